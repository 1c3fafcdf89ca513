//! Prose, found in pages and sources, in pieces that no sentence reaches over.
//!
//! A page is cut at blank lines, headings, list items and cells of tables; its code blocks are left out. Comments of a
//! source are cut as pages are. Literals of the library are messages, and names of tests are sentences as well.

use crate::{block, code_only, leading_word, line_of, literal_or_comment, words};

/// What a piece is, which decides what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A paragraph, list item, heading or cell of a page.
    Page,
    /// The same of a module's header.
    Header,
    /// The same of any other comment.
    Comment,
    /// A literal.
    Message,
    /// The name of a test.
    Name,
}

/// A stretch of prose, with its lines as they stand.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) kind: Kind,
    /// The number of its first line.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// The pieces of a page.
pub(crate) fn of_page(text: &str) -> Vec<Piece> {
    of_lines(Kind::Page, text.lines().enumerate().map(|(at, line)| (at + 1, line)))
}

/// The pieces of a source: comments, names of tests, and literals outside of tests if it is part of the library.
pub(crate) fn of_source(text: &str, is_library: bool) -> Vec<Piece> {
    let code = code_only(text);
    let mut pieces = Vec::new();
    let mut lines: Vec<(usize, &str)> = Vec::new();
    let mut last = (Kind::Comment, "");
    let (mut at, mut line) = (0, 1);
    while at < text.len() {
        let length = literal_or_comment(text.as_bytes(), at);
        let found = &text[at..at + length];
        if found.starts_with("//") {
            let (kind, marker) = marker(found);
            // A comment at the end of a line of code begins anew.
            let is_alone = text[..at].trim_end_matches(' ').ends_with('\n');
            let is_next = lines.last().is_some_and(|&(before, _)| before + 1 == line);
            let follows = is_alone && is_next && (kind, marker) == last;
            if !follows {
                pieces.extend(of_lines(last.0, lines.drain(..)));
            }
            last = (kind, marker);
            lines.push((line, &found[marker.len()..]));
        } else if length > 0 && is_library && !found.starts_with('\'') {
            let text = found.replace("\\n", "; ").replace('\\', " ");
            pieces.push(Piece { kind: Kind::Message, line, text });
        }
        line += text[at..].bytes().take(length.max(1)).filter(|&byte| byte == b'\n').count();
        at += length.max(1);
        // An identifier is taken whole, as in `code_only`.
        while length == 0 && (inside_a_word(text, at) || !text.is_char_boundary(at)) {
            at += 1;
        }
    }
    pieces.extend(of_lines(last.0, lines.into_iter()));
    pieces.extend(test_names(&code));
    pieces
}

fn inside_a_word(text: &str, at: usize) -> bool {
    let is_word = |at: usize| text.as_bytes().get(at).is_some_and(|&byte| crate::is_word(byte));
    at > 0 && is_word(at - 1) && is_word(at)
}

/// What a comment is, and how it begins.
fn marker(comment: &str) -> (Kind, &'static str) {
    match comment.as_bytes().get(2) {
        Some(b'!') => (Kind::Header, "//!"),
        Some(b'/') => (Kind::Comment, "///"),
        Some(_) | None => (Kind::Comment, "//"),
    }
}

fn of_lines<'a>(kind: Kind, lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    // Whether the next line goes on with the last piece, and the fence of the code block that it is in.
    let mut goes_on = false;
    let mut fence = None;
    for (line, text) in lines {
        let trimmed = text.trim();
        let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
        match (mark, fence) {
            (Some(_), None) => fence = mark,
            (Some(_), Some(_)) if mark == fence => fence = None,
            (Some(_) | None, _) => {}
        }
        if mark.is_some() || fence.is_some() || trimmed.is_empty() {
            goes_on = false;
        } else if trimmed.starts_with('|') {
            let cells = trimmed.trim_matches('|').split(" | ");
            pieces.extend(cells.map(|cell| Piece { kind, line, text: cell.trim().to_owned() }));
            goes_on = false;
        } else {
            let is_heading = trimmed.starts_with('#');
            match pieces.last_mut() {
                Some(piece) if goes_on && !is_heading && !is_item(trimmed) => {
                    piece.text.push('\n');
                    piece.text.push_str(trimmed);
                }
                Some(_) | None => pieces.push(Piece { kind, line, text: trimmed.to_owned() }),
            }
            goes_on = !is_heading;
        }
    }
    pieces
}

/// Whether a line begins an item of a list.
fn is_item(line: &str) -> bool {
    let after_number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ")
        || line.starts_with("* ")
        || after_number.len() < line.len() && after_number.starts_with(". ")
}

/// The names of functions under `#[test]`, with blanks between their words.
fn test_names(code: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (at, mark) in code.match_indices("#[test]") {
        let rest = &code[at + mark.len()..];
        // Other attributes may stand between.
        let body = rest.find('{').map_or(rest.len(), |found| block(rest, found).start);
        if let Some(found) = words(&rest[..body], "fn").next() {
            let line = line_of(code, at + mark.len() + found);
            let name = leading_word(rest[found + "fn".len()..].trim_start());
            pieces.push(Piece { kind: Kind::Name, line, text: name.replace('_', " ") });
        }
    }
    pieces
}

mod checks {
    use super::*;

    fn shown(pieces: &[Piece]) -> Vec<String> {
        pieces.iter().map(|piece| format!("{:?} {} {}", piece.kind, piece.line, piece.text)).collect()
    }

    #[test]
    fn pages_are_cut_into_pieces() {
        let page = "# A\nb\nc\n\n- d\n  e\n1. f\n```\ng\n```\n| h | i |\nj";
        let expected = ["1 # A", "2 b\nc", "5 - d\ne", "7 1. f", "11 h", "11 i", "12 j"];
        assert_eq!(shown(&of_page(page)), expected.map(|piece| format!("Page {piece}")));
    }

    #[test]
    fn comments_messages_and_names_are_found() {
        let source = "//! a\n//! b\n\n/// c\n// d\nfn e() { f(\"g\\nh\"); } // i\n#[test]\nfn j_k() {}\n";
        let expected =
            ["Header 1 a\nb", "Comment 4 c", "Message 6 \"g; h\"", "Comment 5 d", "Comment 6 i", "Name 8 j k"];
        assert_eq!(shown(&of_source(source, true)), expected);
        assert!(of_source(source, false).iter().all(|piece| piece.kind != Kind::Message));
    }
}
