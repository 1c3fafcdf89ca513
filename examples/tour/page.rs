//! The tour as one self-contained page: a chapter a floor, with its forms side by side.
//!
//! It works without scripts. Its script lights a name such as `n4` wherever the listing has it.

use crate::floors::{Chapter, Form};
use opfuse::internals::escaped::Escaped;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// What all pages of the library look like.
const LOOK: &str = include_str!("../../src/page.css");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page of these chapters.
pub(crate) fn html(chapters: &[Chapter]) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>opfuse: a tour</title>\n<style>\n{LOOK}{STYLE}\
         </style>\n</head>\n<body>\n"
    );
    write(&mut out, chapters).expect("writing to a string works");
    out + "<script>\n" + SCRIPT + "</script>\n</body>\n</html>\n"
}

fn write(out: &mut String, chapters: &[Chapter]) -> fmt::Result {
    writeln!(out, "<nav aria-label=\"Chapters\">\n<ol>")?;
    for (at, chapter) in (1..).zip(chapters) {
        let name = chapter.title.split_once(". ").map_or(chapter.title, |(_, name)| name);
        writeln!(out, "<li><a href=\"#chapter-{at}\">{name}</a></li>")?;
    }
    writeln!(
        out,
        "</ol>\n</nav>\n<main>\n<h1>One function through the whole library</h1>\n<p>The function adds a residual, \
         normalizes each row and applies gelu. That is thirteen loops over memory op by op, and one when compiled. \
         Each chapter is one floor of the library, and shows the function as that floor sees it.</p>\n<p \
         class=\"note\">Written by <code>cargo run --release --example tour -- --html docs/tour.html</code>. Without the option the \
         tour is printed, with times.</p>"
    )?;
    for (at, chapter) in (1..).zip(chapters) {
        writeln!(out, "<section id=\"chapter-{at}\">\n<h2>{}</h2>\n<p>{}</p>", chapter.title, prose(chapter.text))?;
        writeln!(out, "<div class=\"forms\">")?;
        for (at, form) in chapter.forms.iter().enumerate() {
            let beside = chapter.forms.get(if at % 2 == 0 { at + 1 } else { at - 1 });
            writeln!(out, "<div>\n<h3>{}</h3>", Escaped(&form.name))?;
            block(out, form, beside.filter(|_| form.is_compared).map(|beside| beside.text.as_str()), at % 2 == 0)?;
            writeln!(out, "</div>")?;
        }
        writeln!(out, "</div>")?;
        writeln!(out, "</section>")?;
    }
    writeln!(out, "</main>")
}

/// The text of a form. Lines that `other` lacks are marked, as gone if the form comes first.
fn block(out: &mut String, form: &Form, other: Option<&str>, is_first: bool) -> fmt::Result {
    write!(out, "<pre tabindex=\"0\" role=\"group\" aria-label=\"{}\">", Escaped(&form.name))?;
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    for line in other.unwrap_or(&form.text).lines() {
        *left.entry(saying(line)).or_default() += 1;
    }
    for line in form.text.lines() {
        let is_there = left.get_mut(&saying(line)).filter(|count| **count > 0).map(|count| *count -= 1).is_some();
        match (is_there, is_first) {
            (true, _) => writeln!(out, "{}", Escaped(line))?,
            (false, true) => writeln!(out, "<del>{}</del>", Escaped(line))?,
            (false, false) => writeln!(out, "<ins>{}</ins>", Escaped(line))?,
        }
    }
    writeln!(out, "</pre>")
}

/// A line of a graph without names, which passes give anew.
fn saying(line: &str) -> String {
    let words = line.split_inclusive(|c: char| !c.is_alphanumeric());
    let is_name = |word: &str| {
        let word = word.trim_end_matches(|c: char| !c.is_alphanumeric());
        word.strip_prefix('n').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    words.map(|word| if is_name(word) { "_" } else { word }).collect()
}

/// Text with code where it has backticks.
fn prose(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts
        .map(
            |(at, part)| {
                if at % 2 == 0 { Escaped(part).to_string() } else { format!("<code>{}</code>", Escaped(part)) }
            },
        )
        .collect()
}
