//! The rules of the house that a compiler does not check, read from the sources.
//!
//! Imports between floors go leftwards only, `unsafe` stays in the files listed here and is a small part of the code,
//! files end before they grow unreadable, nothing unfinished is left in, and a match on one of our closed enums names
//! its cases. Every exception stands in this file with its reason, and one that is no longer needed fails too.
//!
//! Sources are read as text without comments, literals and test modules. There is no name resolution: a wildcard arm
//! in a match whose patterns came by `use Prim::*` is not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

/// The floors from the ground up. A file imports from its own floor and those before it.
const FLOORS: [&str; 10] =
    ["error", "debug", "ir", "device", "fusion", "codegen", "runtime", "eager", "dispatch", "compile"];

/// Upward imports that stay: file, what it imports, why.
const UPWARD: [(&str, &str, &str); 1] =
    [("error.rs", "ir", "an error names the dtype it found; `DType` is plain data")];

/// The files that may say `allow(unsafe_code)`: memory, code entry points, SIMD primitives, the CUDA driver.
const UNSAFE_FILES: &[&str] = &[
    "codegen/cranelift/code.rs",
    "codegen/disk/owner.rs",
    "codegen/native/block_folds.rs",
    "codegen/native/code.rs",
    "codegen/native/crossed.rs",
    "codegen/native/lined.rs",
    "codegen/native/launch.rs",
    "codegen/native/packed.rs",
    "codegen/native/patches.rs",
    "codegen/native/program.rs",
    "codegen/native/spaced.rs",
    "codegen/native/turn.rs",
    "codegen/parallel.rs",
    "codegen/tier.rs",
    "codegen/vm/direct.rs",
    "codegen/vm/folds.rs",
    "codegen/vm/machine.rs",
    "codegen/vm/moves.rs",
    "codegen/vm/operations.rs",
    "codegen/vm/packed.rs",
    "codegen/vm/program.rs",
    "codegen/vm/routine.rs",
    "codegen/vm/steps.rs",
    "codegen/x64/memory.rs",
    "device/cuda/absent.rs",
    "device/cuda/compiler.rs",
    "device/cuda/cublaslt.rs",
    "device/cuda/driver.rs",
    "device/cuda/graph.rs",
    "device/cuda/loader.rs",
    "device/cuda/staging.rs",
    "device/cuda/tensor_map.rs",
    "device/memory.rs",
    "device/pool.rs",
    "device/shared.rs",
    "device/storage.rs",
    "dispatch/operator.rs",
    "runtime/action.rs",
    "runtime/blocks.rs",
    "runtime/cuda/epilogue.rs",
    "runtime/cuda/launch.rs",
    "runtime/cuda/library.rs",
    "runtime/cuda/product.rs",
    "runtime/cuda/program.rs",
    "runtime/cuda/replay.rs",
    "runtime/cuda/routine.rs",
    "runtime/cuda/steps.rs",
    "runtime/launch.rs",
    "runtime/product/mod.rs",
    "runtime/product/pack.rs",
    "runtime/product/piece.rs",
    "runtime/product/tile.rs",
    "runtime/product/vector.rs",
    "runtime/routine/elements.rs",
    "runtime/single.rs",
];

/// At most one line of code in so many is inside an unsafe block.
const UNSAFE_SHARE: usize = 10;

const MAX_LINES: usize = 600;

/// Longer files that stay: file, why.
const LONG_FILES: &[(&str, &str)] = &[("src/ir/ops.rs", "a table of one row per op is searched, not read")];

/// What is not left in library code.
const UNFINISHED: [&str; 4] = ["todo!", "unimplemented!", "dbg!", ".unwrap()"];

/// Enums whose every match names its cases, so that the compiler names the matches a new case has to extend.
const CLOSED_ENUMS: [&str; 4] = ["Op", "Prim", "Pattern", "DType"];

#[test]
fn imports_go_down() {
    let sources = library();
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for source in &sources {
        for (floor, name) in upward_imports(source, &sources) {
            if UPWARD.iter().any(|&(file, to, _)| file == source.path && to == floor) {
                used.insert((source.path.clone(), floor));
            } else {
                wrong.push(format!("{}: `{name}` is upstairs, in {floor}", source.path));
            }
        }
    }
    wrong.extend(
        UPWARD
            .iter()
            .filter(|&&(file, to, _)| !used.contains(&(file.to_owned(), to.to_owned())))
            .map(|(file, to, _)| format!("{file} no longer imports {to}: take it off the list")),
    );
    assert_none(&wrong);
}

#[test]
fn unsafe_code_is_where_it_is_known() {
    let mut found: BTreeSet<String> = BTreeSet::new();
    for source in library() {
        if source.code.contains("allow(unsafe_code") || source.code.contains("expect(unsafe_code") {
            found.insert(source.path);
        }
    }
    let listed: BTreeSet<String> = UNSAFE_FILES.iter().map(|&file| file.to_owned()).collect();
    let mut wrong: Vec<String> = found.difference(&listed).map(|file| format!("{file} is not on the list")).collect();
    wrong.extend(listed.difference(&found).map(|file| format!("{file} is on the list without need")));
    assert_none(&wrong);
}

#[test]
fn unsafe_code_is_a_small_part() {
    let sources = library();
    let n_lines: usize = sources.iter().map(|source| n_code_lines(&source.code)).sum();
    let n_unsafe: usize = sources.iter().map(|source| n_unsafe_lines(&source.code)).sum();
    assert!(n_unsafe * UNSAFE_SHARE <= n_lines, "{n_unsafe} of {n_lines} lines of code are unsafe");
}

#[test]
fn files_end_in_time() {
    let mut wrong = Vec::new();
    for (path, text) in ["src", "tests", "examples", "benches"].into_iter().flat_map(rust_files) {
        let n_lines = text.lines().count();
        match (n_lines > MAX_LINES, LONG_FILES.iter().any(|&(file, _)| file == path)) {
            (true, false) => wrong.push(format!("{path} has {n_lines} lines; {MAX_LINES} is the limit")),
            (false, true) => wrong.push(format!("{path} is short enough: take it off the list")),
            (true, true) | (false, false) => {}
        }
    }
    assert_none(&wrong);
}

#[test]
fn nothing_is_unfinished() {
    let mut wrong = Vec::new();
    for source in library() {
        for word in UNFINISHED {
            for (at, _) in source.code.match_indices(word) {
                wrong.push(format!("{}:{}: {word}", source.path, line_of(&source.code, at)));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn matches_on_closed_enums_name_their_cases() {
    let mut wrong = Vec::new();
    for source in library() {
        for (at, name) in wildcard_arms(&source.code) {
            wrong.push(format!("{}:{}: `_ =>` in a match on {name}", source.path, line_of(&source.code, at)));
        }
    }
    assert_none(&wrong);
}

#[track_caller]
fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// A library file: its path below `src`, and its code without comments, literals and tests.
struct Source {
    path: String,
    code: String,
}

fn library() -> Vec<Source> {
    let is_test = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
    let files = rust_files("src").into_iter().filter(|(path, _)| !is_test(path));
    let sources: Vec<Source> = files
        .map(|(path, text)| Source { path: path["src/".len()..].to_owned(), code: without_tests(code_only(&text)) })
        .collect();
    assert!(sources.iter().any(|source| source.path == "lib.rs"), "the sources were not found");
    sources
}

/// Path from the package's root, with `/`, and text of every Rust file in `folder`, sorted.
fn rust_files(folder: &str) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = BTreeMap::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        // A folder that a package leaves out, such as `benches`, holds no files.
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("a folder's entries can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let parts = path.strip_prefix(root).expect("the walk starts at the root").iter();
                let name: Vec<_> = parts.map(|part| part.to_string_lossy()).collect();
                files.insert(name.join("/"), fs::read_to_string(&path).expect("sources are readable UTF-8"));
            }
        }
    }
    files
}

/// Same length and lines, with blanks for comments and for what stands in string and character literals.
fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let blank = literal_or_comment(bytes, at);
        for byte in &mut out[at..at + blank] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at += blank.max(1);
        // An identifier is taken whole, so that the `r` of `for"` starts no raw string.
        while blank == 0 && at < bytes.len() && is_word(bytes[at - 1]) && is_word(bytes[at]) {
            at += 1;
        }
    }
    String::from_utf8(out).expect("whole characters were blanked")
}

/// Length of the comment or literal that starts at `at`, 0 if none does.
fn literal_or_comment(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let until = |found: Option<usize>| found.unwrap_or(rest.len());
    let find = |from: usize, wanted: &[u8]| {
        rest[from..].windows(wanted.len()).position(|window| window == wanted).map(|found| from + found)
    };
    if rest.starts_with(b"//") {
        return until(find(2, b"\n"));
    }
    if rest.starts_with(b"/*") {
        let (mut depth, mut end) = (0, 0);
        while end < rest.len() {
            let step = &rest[end..(end + 2).min(rest.len())];
            depth += i32::from(step == b"/*") - i32::from(step == b"*/");
            end += if step == b"/*" || step == b"*/" { 2 } else { 1 };
            if depth == 0 {
                break;
            }
        }
        return end;
    }
    let prefix = rest.iter().take_while(|&&byte| matches!(byte, b'b' | b'c' | b'r')).count().min(2);
    let hashes = rest[prefix..].iter().take_while(|&&byte| byte == b'#').count();
    if rest[..prefix].ends_with(b"r") && rest.get(prefix + hashes) == Some(&b'"') {
        let end = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
        return until(find(prefix + hashes + 1, &end).map(|found| found + end.len()));
    }
    let quote = match rest.get(prefix) {
        Some(b'"') => b'"',
        // A lifetime has no second quote right after its first character.
        Some(b'\'') if is_char_literal(&rest[prefix..]) => b'\'',
        Some(_) | None => return 0,
    };
    let mut end = prefix + 1;
    while end < rest.len() && rest[end] != quote {
        end += if rest[end] == b'\\' { 2 } else { 1 };
    }
    (end + 1).min(rest.len())
}

fn is_char_literal(from_quote: &[u8]) -> bool {
    let Some(&first) = from_quote.get(1) else { return false };
    let width = match first {
        b'\\' => return true,
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
    };
    from_quote.get(1 + width) == Some(&b'\'')
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Blanks every item under `#[cfg(test)]`.
fn without_tests(code: String) -> String {
    let mut bytes = code.clone().into_bytes();
    for (at, _) in code.match_indices("#[cfg(test)]") {
        let body = code[at..].find(['{', ';']).map_or(code.len(), |found| at + found);
        let end = if code[body..].starts_with('{') { block(&code, body).end } else { body };
        bytes[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    }
    String::from_utf8(bytes).expect("whole characters were blanked")
}

/// The bracketed range that opens at `open`.
fn block(code: &str, open: usize) -> Range<usize> {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        depth += i32::from(matches!(byte, b'(' | b'[' | b'{')) - i32::from(matches!(byte, b')' | b']' | b'}'));
        if depth == 0 {
            return open..at + 1;
        }
    }
    open..code.len()
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

/// Where `word` stands as a whole word.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    let ends = move |at: usize| bytes.get(at).is_none_or(|&byte| !is_word(byte));
    let found = code.match_indices(word).map(|(at, _)| at);
    found.filter(move |&at| at.checked_sub(1).is_none_or(ends) && ends(at + word.len()))
}

fn leading_word(code: &str) -> &str {
    &code[..code.bytes().position(|byte| !is_word(byte)).unwrap_or(code.len())]
}

/// Floor and name of everything that `source` takes from a floor above its own.
fn upward_imports(source: &Source, sources: &[Source]) -> Vec<(String, String)> {
    let rank = |floor: &str| FLOORS.iter().position(|&other| other == floor);
    let own = leading_word(&source.path);
    if own == "lib" {
        return Vec::new();
    }
    let own_rank = rank(own).unwrap_or_else(|| panic!("{} is on no floor", source.path));
    let mut found = Vec::new();
    for name in root_names(source) {
        let floor = rank(&name).map(|_| name.clone()).or_else(|| floor_of_root_name(&name, sources));
        let floor = floor.unwrap_or_else(|| panic!("{}: `crate::{name}` is on no floor", source.path));
        if rank(&floor).is_some_and(|rank| rank > own_rank) {
            found.push((floor, name));
        }
    }
    found
}

/// The first names of all paths from the crate's root: of `crate::a::b`, `crate::{a, b::c}` and `super::super::a`.
fn root_names(source: &Source) -> BTreeSet<String> {
    let code = &source.code;
    let mut names = BTreeSet::new();
    let from_crate = words(code, "crate").map(|at| at + "crate".len()).filter(|&at| code[at..].starts_with("::"));
    let mut starts: Vec<usize> = from_crate.map(|at| at + 2).collect();

    let stem = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
    let climb = "super::".repeat(stem.split('/').count());
    starts.extend(words(code, climb.trim_end_matches("::")).map(|at| at + climb.len()).filter(|&at| at <= code.len()));

    for start in starts {
        if !code[start..].starts_with('{') {
            names.insert(leading_word(&code[start..]).to_owned());
            continue;
        }
        let inside = block(code, start);
        let mut at = inside.start + 1;
        while at < inside.end - 1 {
            let part = code[at..].trim_start();
            at = code.len() - part.len();
            let name = leading_word(part);
            if !name.is_empty() {
                names.insert(name.to_owned());
            }
            // On to the comma after this part, over nested groups.
            while at < inside.end - 1 && code.as_bytes()[at] != b',' {
                at = if code.as_bytes()[at] == b'{' { block(code, at).end } else { at + 1 };
            }
            at += 1;
        }
    }
    names.remove("");
    names
}

/// The floor of a macro, or of what `lib.rs` re-exports under `name`.
fn floor_of_root_name(name: &str, sources: &[Source]) -> Option<String> {
    let declares =
        |code: &str| code.strip_prefix("macro_rules!").is_some_and(|rest| leading_word(rest.trim_start()) == name);
    let is_macro = |source: &&Source| words(&source.code, "macro_rules").any(|at| declares(&source.code[at..]));
    if let Some(source) = sources.iter().find(is_macro) {
        return Some(leading_word(&source.path).to_owned());
    }
    let root = sources.iter().find(|source| source.path == "lib.rs")?;
    root.code.split(';').find_map(|statement| {
        let path = &statement[statement.find("pub use ")? + "pub use ".len()..];
        let path = path.trim_start_matches("crate::").trim_start_matches("self::");
        words(path, name).next().map(|_| leading_word(path).to_owned())
    })
}

fn n_code_lines(code: &str) -> usize {
    code.lines().filter(|line| !line.trim().is_empty()).count()
}

/// Lines with an unsafe block, function or impl header on them, or inside an unsafe block.
fn n_unsafe_lines(code: &str) -> usize {
    let mut lines = BTreeSet::new();
    for at in words(code, "unsafe") {
        let open = code.len() - code[at + "unsafe".len()..].trim_start().len();
        let end = if code[open..].starts_with('{') { block(code, open).end } else { open };
        lines.extend(line_of(code, at)..=line_of(code, end));
    }
    lines.len()
}

/// Position and enum of each `_ =>` in a match with patterns of a closed enum.
fn wildcard_arms(code: &str) -> Vec<(usize, &'static str)> {
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

/// The checks above, checked on sources that break the rules.
mod checks {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), code: without_tests(code_only(text)) }
    }

    #[test]
    fn comments_and_literals_are_blank() {
        let text = "a /* x /* y */ z */ b // c\n\"s\\\"t\" r#\"u\"v\"# 'w' '\\'' &'x y \"ä\" b\"z\" for\"q\"";
        let words: Vec<String> = code_only(text).split_whitespace().map(str::to_owned).collect();
        assert_eq!(words, ["a", "b", "&'x", "y", "for"]);
        assert_eq!(code_only(text).len(), text.len());
    }

    #[test]
    fn tests_are_blank() {
        let code = source("x.rs", "a();\n#[cfg(test)]\nmod tests { fn f() { x.unwrap() } }\nb();").code;
        assert!(code.contains("a();") && code.contains("b();") && !code.contains("unwrap"), "{code}");
    }

    #[test]
    fn upward_imports_are_seen() {
        let all = [
            source("lib.rs", "pub mod ir; pub use dispatch::{Tensor, embedding}; pub use error::Error;"),
            source("eager/rows.rs", "macro_rules! rows { () => {} }"),
        ];
        let check = |path: &str, text: &str, expected: &[&str]| {
            let found: Vec<String> =
                upward_imports(&source(path, text), &all).into_iter().map(|(_, name)| name).collect();
            assert_eq!(found, expected, "{path}: {text}");
        };
        check("ir/graph.rs", "use crate::fusion::plan;", &["fusion"]);
        check("ir/graph.rs", "use crate::{error::{Error, Reason}, ir::DType, codegen::Kernel};", &["codegen"]);
        check("ir/graph.rs", "use crate::Tensor; use crate::Error; use crate::rows;", &["Tensor", "rows"]);
        check("ir/graph.rs", "use super::super::eager; use super::eager;", &["eager"]);
        check("ir/mod.rs", "use super::eager;", &["eager"]);
        check("ir/graph.rs", "/// [`crate::fusion`]\nuse crate::error::Error;", &[]);
        check("dispatch/key.rs", "use crate::eager; use crate::rows; use crate::device::Device;", &[]);
        check("compile/mod.rs", "pub use crate::fusion::Plan;", &[]);
    }

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
