//! Every line of the conformance list has a test, or a reason in `deviations.md`.
//!
//! A test carries the number of a line in its name (`n033_…`, `n057_n058_…`), or in a comment (`// line 033`,
//! `/// Lines 123 and 100.`, `/// 196: …`). The numbers are those of the list; not all numbers are in use.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The lines of the list, by section.
const LINES: &[(&str, &[u32])] = &[
    ("key set algebra", &[1, 3, 4, 6, 7, 9, 10, 12]),
    ("iteration", &[13, 15, 16, 18]),
    ("priority and slots", &[19, 21, 22, 24, 25]),
    ("alias keys", &[27, 28, 30, 31]),
    ("computed tables", &[33, 34, 36, 37, 39, 40, 42, 43, 45, 46, 48, 49, 51, 52, 54, 55]),
    ("registration", &[57, 58, 60, 61, 63, 64, 66, 67, 69, 70]),
    ("schemas", &[72, 73, 75, 76, 78, 79, 81, 82]),
    ("calls without a kernel", &[84, 85]),
    ("fallthrough", &[87, 88, 90, 91]),
    ("thread-local sets", &[93, 94, 96, 97, 99, 100]),
    ("redispatch and boxing", &[102, 103, 105, 106, 108, 109, 111]),
    ("autograd, versions, in-place", &[112, 114, 115, 117, 118, 120, 121, 123, 124, 126, 127, 129]),
    ("functionalize, batched, autocast, tracer, meta", &[130, 132, 133, 135, 136, 138, 139, 141, 142]),
    ("views and storage", &[144, 145, 147, 148, 150]),
    ("matmul", &[151, 153, 154, 156, 157]),
    ("promotion and broadcasting", &[159, 160, 162, 163, 165, 166, 168, 169, 171]),
    ("element iterator", &[172, 174, 175, 177, 178, 180, 181, 183, 184]),
    ("accelerator launches", &[186, 187, 189, 190, 192, 193, 195]),
    ("devices, streams, generators", &[196, 198, 199, 201]),
];

/// Lines whose behaviour is not there yet; a line leaves when its test comes.
const OPEN: &[u32] = &[];

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn sources(folder: &Path, out: &mut Vec<String>) {
    let entries = std::fs::read_dir(folder).expect("a folder of tests");
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(std::fs::read_to_string(path).expect("a source in UTF-8"));
        }
    }
}

/// The number that three digits at the front of `text` make.
fn number(text: &str) -> Option<u32> {
    let digits = text.get(..3).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let more = text[3..].starts_with(|next: char| next.is_ascii_digit());
    if more { None } else { digits.parse().ok() }
}

/// The numbers that a line of source names.
fn named(line: &str) -> Vec<u32> {
    let line = line.trim();
    if let Some(name) = line.strip_prefix("fn n") {
        let name = name.split('(').next().unwrap_or(name);
        return number(name).into_iter().chain(name.split("_n").skip(1).filter_map(number)).collect();
    }
    let Some((_, comment)) = line.split_once("// ").filter(|(before, _)| !before.ends_with("//!")) else {
        return Vec::new();
    };
    let numbers = ["Lines ", "Line ", "lines ", "line "].iter().find_map(|word| comment.strip_prefix(word));
    let numbers = numbers.unwrap_or(comment).split([':', '.', '(']).next().unwrap_or(comment);
    numbers.split(", ").flat_map(|part| part.split(" and ")).map_while(|part| number(part.trim())).collect()
}

#[test]
fn every_line_is_tested_or_explained() {
    let mut texts = Vec::new();
    sources(&tests(), &mut texts);
    let tested: BTreeSet<u32> = texts.iter().flat_map(|text| text.lines()).flat_map(named).collect();
    let deviations = std::fs::read_to_string(tests().join("dispatch/deviations.md")).expect("it is checked in");
    let explained: BTreeSet<u32> = deviations.lines().filter_map(|line| number(line.strip_prefix("- ")?)).collect();
    let mut wrong = Vec::new();
    let all: BTreeSet<u32> = LINES.iter().flat_map(|(_, lines)| *lines).copied().collect();
    for (section, line) in LINES.iter().flat_map(|(section, lines)| lines.iter().map(move |line| (section, line))) {
        match (tested.contains(line) || explained.contains(line), OPEN.contains(line)) {
            (false, false) => wrong.push(format!("line {line:03} ({section}) has no test and no explanation")),
            (true, true) => wrong.push(format!("line {line:03} ({section}) is there: take it out of OPEN")),
            (true, false) | (false, true) => {}
        }
    }
    let unknown = explained.iter().chain(OPEN).filter(|line| !all.contains(line));
    wrong.extend(unknown.map(|line| format!("line {line:03} is not on the list")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn numbers_are_found_where_they_are_named() {
    let cases: &[(&str, &[u32])] = &[
        ("fn n057_n058_lookup_errors() {", &[57, 58]),
        ("    fn n004_sets() {", &[4]),
        ("fn n_points() {", &[]),
        ("line: 39, // line 039", &[39]),
        ("// line 165, 168: counted in the result", &[165, 168]),
        ("/// 198: entering", &[198]),
        ("/// 198, 199", &[198, 199]),
        ("/// Line 166.", &[166]),
        ("/// Lines 123 and 100 (guards).", &[123, 100]),
        ("//! Lines 001 to 031.", &[]),
        ("/// 3-d batches", &[]),
        ("// line 2100", &[]),
    ];
    for (line, numbers) in cases {
        assert_eq!(named(line), *numbers, "{line}");
    }
}
