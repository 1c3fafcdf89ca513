//! The lines of the program that the calls of a report stand in, for its page.
//!
//! Files are looked for where the compiler found them. Of a file that cannot be read, the numbers of lines are shown.

use super::Explain;
use super::html::colour;
use crate::escaped::Escaped;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::fs;

/// Lines that are shown before and after the line of a call.
const AROUND: u32 = 2;
/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// The most kernels that a line has colours of.
const MAX_COLOURS: usize = 6;

/// The kernels of each line with a call.
type Called = BTreeMap<u32, BTreeSet<usize>>;

/// Writes the source of a report.
pub(super) fn write(out: &mut String, explain: &Explain) -> fmt::Result {
    let files = called(explain);
    if files.is_empty() {
        return Ok(());
    }
    writeln!(out, "<div class=\"source\">\n<h3>Source</h3>")?;
    for (file, lines) in &files {
        writeln!(out, "<p class=\"file\">{}</p>", Escaped(file))?;
        let text = match fs::metadata(file) {
            Ok(about) if about.len() <= MAX_BYTES => fs::read_to_string(file).ok(),
            Ok(_) | Err(_) => None,
        };
        if text.is_none() {
            writeln!(out, "<p class=\"note\">The file was not found when this page was written.</p>")?;
        }
        write!(out, "<pre tabindex=\"0\" role=\"group\" aria-label=\"Lines of {}\">", Escaped(file))?;
        match text {
            Some(text) => shown(out, &text, lines)?,
            None => lines.iter().try_for_each(|(&line, groups)| one(out, line, "", Some(groups)))?,
        }
        writeln!(out, "</pre>")?;
    }
    writeln!(out, "</div>")
}

/// The lines with calls by file, each with the kernels that compute for it.
fn called(explain: &Explain) -> BTreeMap<&str, Called> {
    let mut files: BTreeMap<&str, Called> = BTreeMap::new();
    for report in &explain.nodes {
        if let (Some(place), Some(group)) = (&report.place, report.group) {
            files.entry(&place.file).or_default().entry(place.line).or_default().insert(group);
        }
    }
    files
}

/// The lines of a text with calls, and those around them.
fn shown(out: &mut String, text: &str, called: &Called) -> fmt::Result {
    let near = |line: u32| called.range(line.saturating_sub(AROUND)..=line + AROUND).next().is_some();
    let mut last = 0;
    for (line, code) in (1..).zip(text.lines()).filter(|&(line, _)| near(line)) {
        if last != 0 && line > last + 1 {
            write!(out, "<span class=\"gap\">⋮</span>")?;
        }
        one(out, line, code, called.get(&line))?;
        last = line;
    }
    Ok(())
}

fn one(out: &mut String, line: u32, code: &str, groups: Option<&BTreeSet<usize>>) -> fmt::Result {
    match groups {
        None => write!(out, "<span class=\"line\">")?,
        Some(groups) => {
            let names: Vec<String> = groups.iter().map(ToString::to_string).collect();
            write!(out, "<span class=\"line called\" data-groups=\"{}\">", names.join(" "))?;
        }
    }
    write!(out, "<span class=\"kernels\">")?;
    for &group in groups.into_iter().flatten().take(MAX_COLOURS) {
        write!(out, "<i data-group=\"{group}\" style=\"background:{}\">{group}</i>", colour(group))?;
    }
    // The line is an element of its own, so it needs no end; an empty one keeps its height.
    write!(out, "</span><b>{line:>4} </b>{}</span>", Escaped(if code.is_empty() { " " } else { code }))
}
