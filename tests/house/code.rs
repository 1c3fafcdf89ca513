//! Questions about the code of one file: lines of unsafe code, wildcard arms of matches.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::{CLOSED_ENUMS, block, line_of, words};

pub(crate) fn n_code_lines(code: &str) -> usize {
    code.lines().filter(|line| !line.trim().is_empty()).count()
}

/// Lines with an unsafe block, function or impl header on them, or inside an unsafe block.
pub(crate) fn n_unsafe_lines(code: &str) -> usize {
    let mut lines = BTreeSet::new();
    for at in words(code, "unsafe") {
        let open = code.len() - code[at + "unsafe".len()..].trim_start().len();
        let end = if code[open..].starts_with('{') { block(code, open).end } else { open };
        lines.extend(line_of(code, at)..=line_of(code, end));
    }
    lines.len()
}

/// Position and enum of each `_ =>` in a match with patterns of a closed enum.
pub(crate) fn wildcard_arms(code: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for at in words(code, "match") {
        // The scrutinee has no braces outside of brackets.
        let mut open = at;
        while open < code.len() && !matches!(code.as_bytes()[open], b'{' | b';') {
            open = if matches!(code.as_bytes()[open], b'(' | b'[') { block(code, open).end } else { open + 1 };
        }
        if !code[open.min(code.len())..].starts_with('{') {
            continue;
        }
        let patterns = patterns(code, block(code, open));
        let named = |name: &&&str| {
            let is_path = |range: &Range<usize>| {
                words(&code[range.clone()], name).any(|at| code[range.start + at + name.len()..].starts_with("::"))
            };
            patterns.iter().any(is_path)
        };
        if let Some(name) = CLOSED_ENUMS.iter().find(named) {
            let wild = patterns.iter().filter(|range| code[(*range).clone()].trim() == "_");
            found.extend(wild.map(|range| (range.end, *name)));
        }
    }
    found
}

/// The patterns of a match's arms, guards included.
fn patterns(code: &str, body: Range<usize>) -> Vec<Range<usize>> {
    let bytes = code.as_bytes();
    let mut patterns = Vec::new();
    let mut at = body.start + 1;
    let last = body.end - 1;
    let skip = |at: usize| if matches!(bytes[at], b'(' | b'[' | b'{') { block(code, at).end } else { at + 1 };
    while at < last {
        let start = at;
        while at < last && !code[at..].starts_with("=>") {
            at = skip_char(code, skip(at));
        }
        patterns.push(start..at.min(last));
        at += 2;
        while at < last && bytes[at].is_ascii_whitespace() {
            at += 1;
        }
        if at < last && bytes[at] == b'{' {
            at = block(code, at).end;
            at += usize::from(at < last && bytes[at] == b',');
        } else {
            while at < last && bytes[at] != b',' {
                at = skip(at);
            }
            at += 1;
        }
    }
    patterns
}

/// The next character boundary.
fn skip_char(code: &str, at: usize) -> usize {
    (at..).find(|&at| code.is_char_boundary(at)).unwrap_or(at)
}

mod checks {
    use super::*;
    use crate::code_only;

    #[test]
    fn unsafe_lines_are_counted() {
        assert_eq!(n_unsafe_lines("fn f() {\n    unsafe {\n        g();\n    }\n}\n"), 3);
        assert_eq!(n_unsafe_lines("unsafe impl Send for X {}\nunsafe fn g() {\n}\nlet unsafe_code = 1;\n"), 2);
        assert_eq!(n_code_lines(&code_only("a\n\n// b\n/* c\n*/\nd\n")), 2);
    }

    #[test]
    fn wildcards_are_seen() {
        let check = |text: &str, n_expected: usize| assert_eq!(wildcard_arms(text).len(), n_expected, "{text}");
        check("match op { Op::Add => 1, _ => 2 }", 1);
        check("match f(x, { y }) { (Prim::Add, _) => { a(b, c) } (_, Prim::Mul) if d => e, _ => panic!() }", 1);
        check("match dtype { DType::F32 | DType::F64 => true, DType::I64 => false }", 0);
        check("match n { 0 => Op::Add, _ => Op::Mul }", 0);
        check("match n { 0 => match op { Op::Add => 1, _ => 2 }, _ => 3 }", 1);
        check("match unit { BinOp::Add => 1, _ => 2 }", 0);
        check("match (a, b) { (Pattern::Opaque, x) => x, (_, _) => y }", 0);
    }
}
