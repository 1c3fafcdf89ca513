//! The tables of reasons, checked: names, hints, and the list of them in `docs/explain.md`.

use super::{Datum, Reason};
use std::collections::BTreeSet;
use std::fmt::Write;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/explain.md");
const BEGIN: &str = "<!-- reasons: written by a test of src/error/catalog.rs -->\n";
const END: &str = "<!-- end of reasons -->\n";

/// The name of a variant, as `{:?}` prints it, without the table that it is a row of.
fn variant(reason: &Reason) -> String {
    let debug = format!("{reason:?}");
    let inner = match reason.area() {
        Some(_) => debug.split_once('(').map_or("", |(_, inner)| inner),
        None => &debug,
    };
    inner.chars().take_while(char::is_ascii_alphanumeric).collect()
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for c in name.replace("DType", "Dtype").chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

#[test]
fn every_reason_has_a_kind_and_a_hint_of_its_own() {
    let (mut kinds, mut hints) = (BTreeSet::new(), BTreeSet::new());
    for (reason, _) in Reason::examples() {
        assert_eq!(reason.kind(), snake_case(&variant(&reason)), "{reason:?}");
        assert!(kinds.insert(reason.kind()), "{} is the kind of two", reason.kind());
        let hint = reason.hint();
        assert!(hint.len() > 20 && !hint.ends_with('.'), "{reason:?}: {hint}");
        assert!(hint.starts_with("nothing") || hint.starts_with("please report") || hints.insert(hint), "{hint}");
    }
}

#[test]
fn a_sentence_has_all_its_data() {
    for (reason, _) in Reason::examples() {
        let (sentence, data) = (reason.to_string(), reason.data());
        for (name, datum) in &data {
            assert!(sentence.contains(&datum.to_string()), "{name} is not in: {sentence}");
        }
        assert!(!sentence.ends_with('.'), "{sentence}");
        assert_eq!(reason.detail().is_some(), !data.is_empty(), "{reason:?}");
    }
    let slower = Reason::MeasuredSlower {
        together: std::time::Duration::from_nanos(300),
        apart: std::time::Duration::from_nanos(1500),
    };
    assert_eq!(slower.to_string(), "one kernel took longer when measured: 300.0ns together, 1.5µs apart");
    assert_eq!(slower.detail().as_deref(), Some("together 300.0ns, apart 1.5µs"));
    assert_eq!(Reason::ReadsValue { op: "item".into() }.detail().as_deref(), Some("item"));
}

/// `text` in lines of at most `width` columns, all but the first one indented by two.
fn wrapped(text: &str, width: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push_str("\n  ");
            column = 2;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

/// The list of all reasons, as the page has it.
fn list() -> String {
    let mut out = String::new();
    let mut area = None;
    for (index, (reason, text)) in Reason::examples().into_iter().enumerate() {
        if index == 0 || reason.area() != area {
            area = reason.area();
            let begin = if index == 0 { "" } else { "\n" };
            writeln!(
                out,
                "{begin}{}:\n",
                area.map_or("Fusion and calls (`area` is `null`)".into(), |area| format!("Area `{area}`"))
            )
            .expect("writing to a string works");
        }
        let names = reason.data().iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let data = if names.is_empty() { String::new() } else { format!(" ({names})") };
        let text = text.replace(":.1?}", "}");
        let row = format!("- `{}`{data}: {text}. What to do: {}.", reason.kind(), reason.hint());
        writeln!(out, "{}", wrapped(&row, 118)).expect("writing to a string works");
    }
    out
}

#[test]
fn the_page_lists_every_reason() {
    let page = std::fs::read_to_string(PAGE).expect("the page is there");
    let (before, rest) = page.split_once(BEGIN).expect("the list has a beginning");
    let (found, after) = rest.split_once(END).expect("the list has an end");
    let expected = format!("\n{}\n", list());
    if found != expected && std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(PAGE, format!("{before}{BEGIN}{expected}{END}{after}")).expect("the page can be written");
        return;
    }
    assert!(
        found == expected,
        "{PAGE} has another list; UPDATE_EXPECT=1 cargo test --lib error:: writes it:\n{expected}"
    );
}

#[test]
fn data_are_printed_plainly() {
    assert_eq!(Datum::Count(7).to_string(), "7");
    assert_eq!(Datum::Flag(true).to_string(), "true");
}
