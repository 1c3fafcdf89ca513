//! The measures of prose: long lines, long sentences, and words of a private dialect.
//!
//! Pages and comments have lines of at most [`MAX_COLUMNS`]. Sentences of pages and of module headers have at most
//! [`MAX_WORDS`]. The words of [`words::WORDS`] stand in no page, comment, message or name of a test. What is not
//! measured, and is left to the reader: whether a sentence is true and of use.

mod pieces;
mod words;

use std::fs;
use std::path::Path;

use crate::{assert_none, files_with};
use pieces::{Kind, Piece};
use words::Dialect;

const MAX_COLUMNS: usize = 120;
const MAX_WORDS: usize = 35;

/// The folders that are read, and whether their literals are messages to users.
const FOLDERS: [(&str, bool); 8] = [
    ("src", true),
    ("derive/src", true),
    ("linalg/src", true),
    ("fourier/src", true),
    ("python/src", true),
    ("tests", false),
    ("examples", false),
    ("benches", false),
];

/// The endings of sources, whose comments begin with `//`.
const ENDINGS: [&str; 4] = ["rs", "cuh", "cpp", "h"];

#[test]
fn prose_is_plain() {
    assert_none(&measured());
}

/// What is found in every file, a line per finding.
fn measured() -> Vec<String> {
    let dialect = Dialect::new();
    let mut findings = Vec::new();
    for (path, text) in ["docs", "tests", "examples", "benches"].into_iter().flat_map(|folder| files_with(folder, "md"))
    {
        findings.extend(in_page(&path, &text, &dialect));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for page in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        let text = fs::read_to_string(root.join(page)).expect("the pages of the root are there");
        findings.extend(in_page(page, &text, &dialect));
    }
    for (folder, is_library) in FOLDERS {
        for (path, text) in ENDINGS.into_iter().flat_map(|ending| files_with(folder, ending)) {
            // The table of words is made of them.
            if !path.starts_with("tests/house/prose") {
                findings.extend(in_source(&path, &text, is_library && path.ends_with(".rs"), &dialect));
            }
        }
    }
    findings
}

fn in_page(path: &str, text: &str, dialect: &Dialect) -> Vec<String> {
    let mut findings = Vec::new();
    let mut is_code = false;
    for (at, line) in text.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        // A link that stands alone cannot be broken.
        let is_link = !line.trim_start_matches(['-', ' ']).contains(' ') && line.contains("://");
        if !is_code && !is_link && !line.starts_with('|') {
            findings.extend(long_line(path, at + 1, line));
        }
    }
    findings.extend(pieces::of_page(text).iter().flat_map(|piece| in_piece(path, piece, dialect)));
    findings
}

fn in_source(path: &str, text: &str, is_library: bool, dialect: &Dialect) -> Vec<String> {
    let code = crate::code_only(text);
    let mut findings = Vec::new();
    for (at, (line, code)) in text.lines().zip(code.lines()).enumerate() {
        // Of a line that is too long, the end is a comment if it is blank as code, and no literal ends there.
        let is_table = line.trim_start().trim_start_matches(['/', '!']).trim_start().starts_with('|');
        if line.contains("//") && !is_table && !code.ends_with(|end: char| !end.is_whitespace()) {
            findings.extend(long_line(path, at + 1, line));
        }
    }
    findings.extend(pieces::of_source(text, is_library).iter().flat_map(|piece| in_piece(path, piece, dialect)));
    findings
}

fn long_line(path: &str, at: usize, line: &str) -> Option<String> {
    let n = line.chars().count();
    (n > MAX_COLUMNS).then(|| format!("{path}:{at}: {n} columns; {MAX_COLUMNS} is the limit"))
}

fn in_piece(path: &str, piece: &Piece, dialect: &Dialect) -> Vec<String> {
    let text = without_code(&piece.text);
    let mut findings = Vec::new();
    if matches!(piece.kind, Kind::Page | Kind::Header) {
        for (line, n, start) in long_sentences(&text) {
            let line = piece.line + line;
            findings.push(format!("{path}:{line}: a sentence of {n} words, {MAX_WORDS} is the limit: {start} …"));
        }
    }
    let tokens = tokens(&text);
    for (line, said, say) in dialect.find(path, &tokens) {
        findings.push(format!("{path}:{}: \"{said}\"; say instead: {say}", piece.line + line));
    }
    findings
}

/// The text with one word in place of each stretch of code, and without targets of links. Lines stay.
fn without_code(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', ']']) {
        let skipped = if rest[at..].starts_with('`') {
            let ticks = rest[at..].len() - rest[at..].trim_start_matches('`').len();
            let close = rest[at + ticks..].find(&rest[at..at + ticks]);
            out.push_str(&rest[..at]);
            if close.is_some() {
                out.push_str("`c`");
            }
            close.map_or(ticks, |close| close + 2 * ticks)
        } else {
            out.push_str(&rest[..at]);
            match (rest[at..].starts_with("]("), rest[at..].find(')')) {
                (true, Some(close)) => close + 1,
                (true, None) | (false, _) => 1,
            }
        };
        out.extend(rest[at..at + skipped].chars().filter(|&c| c == '\n'));
        rest = &rest[at + skipped..];
    }
    out + rest
}

/// Sentences that are too long: the line they begin in, their number of words, and the first of these.
fn long_sentences(text: &str) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    let mut sentence: Vec<&str> = Vec::new();
    let mut start = 0;
    for (line, content) in text.lines().enumerate() {
        for token in content.split_whitespace().filter(|token| token.contains(char::is_alphanumeric)) {
            if sentence.is_empty() {
                start = line;
            }
            sentence.push(token);
            if ends_sentence(token) {
                found.push((start, std::mem::take(&mut sentence)));
            }
        }
    }
    found.push((start, sentence));
    found.retain(|(_, sentence)| sentence.len() > MAX_WORDS);
    found.into_iter().map(|(line, sentence)| (line, sentence.len(), sentence[..5].join(" "))).collect()
}

fn ends_sentence(token: &str) -> bool {
    token.trim_end_matches(['*', '_', ')', '"', '”']).ends_with(['.', '?', '!'])
}

/// The words of a text in lower case, each with its line; punctuation is a word of its own.
fn tokens(text: &str) -> Vec<(usize, String)> {
    let mut tokens: Vec<(usize, String)> = Vec::new();
    for (line, content) in text.lines().enumerate() {
        let mut token = String::new();
        for c in content.chars().chain([' ']) {
            if c.is_alphanumeric() || matches!(c, '\'' | '-' | '_') {
                token.extend(c.to_lowercase());
                continue;
            }
            if !token.is_empty() {
                tokens.push((line, std::mem::take(&mut token)));
            }
            if !c.is_whitespace() && !matches!(c, '*' | '"') {
                tokens.push((line, c.to_string()));
            }
        }
    }
    tokens
}

mod checks {
    use super::*;

    #[test]
    fn patterns_match_whole_words() {
        let dialect = Dialect::new();
        let said = |text: &str| dialect.find("src/a.rs", &tokens(text)).len();
        assert_eq!(said("The way\nback. A ways-back"), 1);
        assert_eq!(said("the way. Back then"), 0);
        assert_eq!(said("it takes them apart"), 1);
        assert_eq!(said("a stand-in"), 1);
        assert_eq!(said("threads stand in line"), 0);
        assert_eq!(dialect.find("docs/cuda.md", &tokens("a text")).len(), 1);
        assert_eq!(said("a text"), 0);
    }

    #[test]
    fn code_is_no_prose() {
        assert_eq!(without_code("a `way back` [b](c_d.md) e"), "a `c` [b e");
        assert_eq!(without_code("a `b\nc` d"), "a `c`\n d");
        assert_eq!(without_code("a ` b"), "a  b");
    }

    #[test]
    fn long_sentences_are_found() {
        let long = "word ".repeat(MAX_WORDS);
        assert_eq!(long_sentences(&format!("{long}.")).len(), 0);
        assert_eq!(
            long_sentences(&format!("Short.\n{long} more.")),
            [(1, MAX_WORDS + 1, "word word word word word".into())]
        );
        assert_eq!(long_sentences(&format!("{long}\nend. Short.")).len(), 1);
    }

    #[test]
    fn dialect_is_found_where_it_stands() {
        let find = |text: &str| in_source("src/a.rs", text, true, &Dialect::new());
        assert_eq!(find("/// The\n/// way back.\nfn f() {}"), ["src/a.rs:2: \"way back\"; say instead: backward pass"]);
        assert_eq!(find("#[test]\nfn the_way_back() {}").len(), 1);
        assert_eq!(find("const A: &str = \"no stand-in\";").len(), 1);
        assert_eq!(find(&format!("// {}", "a".repeat(118))).len(), 1);
        assert!(find("fn way_back() {} // `way back`").is_empty());
    }
}
