//! The rules of the house that a compiler does not check, read from the sources.
//!
//! Imports between floors go down only, and an import cycle inside a floor is small. `unsafe` stays in the files listed
//! here and is a small part of the code. Files end before they grow unreadable. Nothing unfinished is left in. A match
//! on one of our closed enums names its cases. Prose is plain (`prose`). Every exception stands in this file with its
//! reason, and an exception that is no longer needed fails too.
//!
//! Sources are read as text without comments, literals and test modules. Imports are followed to the defining file
//! (`imports`), but there is no type inference. A wildcard arm in a match whose patterns came by `use Prim::*` is not
//! seen.

mod code;
mod cycles;
mod imports;
mod prose;
mod surface;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use code::{n_code_lines, n_unsafe_lines, wildcard_arms};
use cycles::Cycle;
use imports::Imports;

/// The floors from the ground up. A file imports from its own floor and those before it. Where a folder inside a
/// floor is a floor of its own, its files belong to it alone.
const FLOORS: [&str; 26] = [
    "error",
    "debug",
    "lru",
    "scope",
    "json",
    "escaped",
    "profile",
    "ir",
    "device",
    "fusion",
    "codegen",
    "runtime",
    "eager",
    // Keys and key sets are pure data that a tensor holds; what they mean is decided in `dispatch`.
    "dispatch/key",
    "tensor",
    "dispatch",
    "ops",
    "formats",
    "autograd",
    "transforms",
    "func",
    "compile",
    "nn",
    "optim",
    "data",
    "exported",
];

/// Upward imports that stay: file, what it imports, why.
const UPWARD: [(&str, &str, &str); 9] = [
    ("error/failure.rs", "ir", "an error names the dtype it found; `DType` is plain data"),
    ("error/data.rs", "ir", "a dtype is a datum of reasons; `DType` is plain data"),
    ("error/kernels.rs", "ir", "a reason names the dtype it is about"),
    ("error/libraries.rs", "ir", "a reason names the dtype it is about"),
    ("error/reason.rs", "ir", "a reason names the dtype it is about"),
    ("dispatch/builtins.rs", "ops", "the first call registers the built-in operators: nothing runs before main"),
    ("dispatch/builtins.rs", "autograd", "as above, its kernels"),
    ("dispatch/builtins.rs", "transforms", "as above, their kernels"),
    ("ops/norms.rs", "autograd", "the count of a 0-norm has a derivative of its own, which is none"),
];

/// The most files of an import cycle.
const MAX_CYCLE: usize = 5;

/// Larger import cycles that stay, at most three: a file of the cycle, its number of files, why they are one thing.
const CYCLES: &[(&str, usize, &str)] = &[];

/// The files that may say `allow(unsafe_code)`: memory, code entry points, SIMD primitives, the CUDA driver.
const UNSAFE_FILES: &[&str] = &[
    "codegen/cranelift/code.rs",
    "codegen/disk/owner.rs",
    "codegen/native/along_inner.rs",
    "codegen/native/along_rows.rs",
    "codegen/native/block_folds.rs",
    "codegen/native/code.rs",
    "codegen/native/deinterleaved.rs",
    "codegen/native/dense_copies.rs",
    "codegen/native/fold_then_map.rs",
    "codegen/native/gathered.rs",
    "codegen/native/launch.rs",
    "codegen/native/long_rows.rs",
    "codegen/native/merged_rows.rs",
    "codegen/native/packed.rs",
    "codegen/native/patches.rs",
    "codegen/native/program.rs",
    "codegen/native/row_copies.rs",
    "codegen/native/short_rows.rs",
    "codegen/native/strip.rs",
    "codegen/native/strip_calls.rs",
    "codegen/native/transpose.rs",
    "codegen/native/transposed.rs",
    "codegen/parallel.rs",
    "codegen/tier.rs",
    "codegen/vm/copying.rs",
    "codegen/vm/direct.rs",
    "codegen/vm/folds.rs",
    "codegen/vm/crosswise.rs",
    "codegen/vm/gathered.rs",
    "codegen/vm/interpreter.rs",
    "codegen/vm/moves.rs",
    "codegen/vm/narrow.rs",
    "codegen/vm/operations.rs",
    "codegen/vm/picking.rs",
    "codegen/vm/program.rs",
    "codegen/vm/routine.rs",
    "codegen/vm/steps.rs",
    "codegen/x64/memory.rs",
    "device/block.rs",
    "device/cuda/absent.rs",
    "device/cuda/compiler.rs",
    "device/cuda/cublaslt.rs",
    "device/cuda/driver.rs",
    "device/cuda/graph.rs",
    "device/cuda/loader.rs",
    "device/cuda/staging.rs",
    "device/cuda/tensor_map.rs",
    "device/foreign.rs",
    "device/pool.rs",
    "device/region.rs",
    "device/shared.rs",
    "device/storage.rs",
    "dispatch/operator.rs",
    "formats/arrow.rs",
    "formats/dlpack.rs",
    "formats/file.rs",
    "runtime/action.rs",
    "runtime/blocks.rs",
    "runtime/cuda/device_executable.rs",
    "runtime/cuda/epilogue.rs",
    "runtime/cuda/launch.rs",
    "runtime/cuda/library.rs",
    "runtime/cuda/product.rs",
    "runtime/cuda/program.rs",
    "runtime/cuda/replay.rs",
    "runtime/cuda/routine.rs",
    "runtime/launch.rs",
    "runtime/product/mod.rs",
    "runtime/product/direct.rs",
    "runtime/product/format.rs",
    "runtime/product/narrow.rs",
    "runtime/product/pack.rs",
    "runtime/product/piece.rs",
    "runtime/product/small.rs",
    "runtime/product/tile.rs",
    "runtime/product/vector.rs",
    "runtime/product/windows.rs",
    "runtime/routine/elements.rs",
    "runtime/routine/random.rs",
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
    let imports = Imports::of(&library());
    let mut used = BTreeSet::new();
    let unknown = imports.unknown();
    let mut wrong: Vec<String> = unknown.map(|(file, name)| format!("{file}: `{name}` was not found")).collect();
    for (file, other, names) in imports.iter() {
        let (Some(own), Some(floor)) = (floor_of(file), floor_of(other)) else { continue };
        if UPWARD.iter().any(|&(from, to, _)| from == file && to == FLOORS[floor]) {
            used.insert((file, FLOORS[floor]));
        } else if floor > own {
            wrong.push(format!("{file}: {names} is upstairs, in {other}"));
        }
    }
    wrong.extend(
        UPWARD
            .iter()
            .filter(|&&(file, to, _)| !used.contains(&(file, to)))
            .map(|(file, to, _)| format!("{file} no longer imports {to}: take it off the list")),
    );
    assert_none(&wrong);
}

#[test]
fn every_file_is_on_a_floor() {
    let sources = library();
    let homeless = sources.iter().filter(|source| source.path != "lib.rs" && floor_of(&source.path).is_none());
    let wrong: Vec<String> = homeless.map(|source| format!("{} is on no floor", source.path)).collect();
    assert_none(&wrong);
}

#[test]
fn import_cycles_are_small() {
    let mut imports = Imports::of(&library());
    // Imports that go up have a test and a list of their own.
    imports.retain(|file, other| floor_of(file) >= floor_of(other));
    let cycles = cycles::cycles(&imports);
    let wrong = wrong_cycles(&cycles, CYCLES, |cycle| cycle.show(&imports));
    assert_none(&wrong);
    assert!(CYCLES.len() <= 3, "more than three cycles are excused");
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
    for (path, text) in ["src", "python/src", "tests", "examples", "benches"].into_iter().flat_map(rust_files) {
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

/// The floor of a library file, as its place in [`FLOORS`]; none for `lib.rs`.
fn floor_of(path: &str) -> Option<usize> {
    let stem = path.trim_end_matches(".rs");
    let holds = |floor: &str| stem.strip_prefix(floor).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    (0..FLOORS.len()).filter(|&at| holds(FLOORS[at])).max_by_key(|&at| FLOORS[at].len())
}

/// Complaints about cycles that are too large and not excused, and about excuses for more than there is.
fn wrong_cycles(cycles: &[Cycle], excused: &[(&str, usize, &str)], show: impl Fn(&Cycle) -> String) -> Vec<String> {
    let mut wrong = Vec::new();
    for &(file, n_files, _) in excused {
        let found = cycles.iter().find(|cycle| cycle.files.contains(file)).map_or(0, |cycle| cycle.files.len());
        if found < n_files {
            wrong.push(format!("CYCLES: {file} is in a cycle of {found} files, not {n_files}"));
        }
    }
    let is_excused =
        |cycle: &Cycle| excused.iter().any(|&(file, n, _)| cycle.files.contains(file) && cycle.files.len() <= n);
    for cycle in cycles.iter().filter(|&cycle| cycle.files.len() > MAX_CYCLE && !is_excused(cycle)) {
        let n_files = cycle.files.len();
        let floor = cycle.files.first().and_then(|file| floor_of(file)).map_or("lib", |at| FLOORS[at]);
        wrong.push(format!("a cycle of {n_files} files in {floor}, where {MAX_CYCLE} are allowed:\n{}", show(cycle)));
    }
    wrong
}

/// A library file: its path below `src`, and its code without comments, literals and tests.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) code: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), code: without_tests(code_only(text)) }
    }
}

fn library() -> Vec<Source> {
    // The door of the tests is made of re-exports by a macro; nothing in the crate imports it.
    let is_test = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/") || path == "src/internals.rs";
    let files = rust_files("src").into_iter().filter(|(path, _)| !is_test(path));
    let sources: Vec<Source> = files.map(|(path, text)| Source::new(&path["src/".len()..], &text)).collect();
    assert!(sources.iter().any(|source| source.path == "lib.rs"), "the sources were not found");
    sources
}

/// Path from the package's root, with `/`, and text of every Rust file in `folder`, sorted.
fn rust_files(folder: &str) -> BTreeMap<String, String> {
    files_with(folder, "rs")
}

/// The same of files with any ending.
fn files_with(folder: &str, ending: &str) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = BTreeMap::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        // A folder that a package leaves out, such as `benches`, holds no files.
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("a folder's entries can be listed").path();
            // A crate beside the workspace has build output of its own.
            if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
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

/// The checks above, checked on sources that break the rules.
mod checks {
    use super::*;

    #[test]
    fn folders_are_floors() {
        let floor = |path| floor_of(path).map(|at| FLOORS[at]);
        assert_eq!(floor("error.rs"), Some("error"));
        assert_eq!(floor("dispatch/key.rs"), Some("dispatch/key"));
        assert_eq!(floor("dispatch/key/set.rs"), Some("dispatch/key"));
        assert_eq!(floor("dispatch/keyed.rs"), Some("dispatch"));
        assert_eq!(floor("dispatch/mod.rs"), Some("dispatch"));
        assert_eq!(floor("lib.rs"), None);
        assert_eq!(floor("attic/mod.rs"), None);
    }

    #[test]
    fn large_cycles_are_wrong() {
        let cycle = |n_files: usize| Cycle { files: (0..n_files).map(|at| format!("ir/f{at}.rs")).collect() };
        let check = |cycles: &[Cycle], excused: &[(&str, usize, &str)], expected: &str| {
            let wrong = wrong_cycles(cycles, excused, |_| String::new());
            assert_eq!(wrong.join(""), expected);
        };
        check(&[cycle(5)], &[], "");
        check(&[cycle(6)], &[], "a cycle of 6 files in ir, where 5 are allowed:\n");
        check(&[cycle(6)], &[("ir/f2.rs", 6, "")], "");
        check(&[cycle(7)], &[("ir/f2.rs", 6, "")], "a cycle of 7 files in ir, where 5 are allowed:\n");
        check(&[cycle(6)], &[("ir/f2.rs", 7, "")], "CYCLES: ir/f2.rs is in a cycle of 6 files, not 7");
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
        let code = Source::new("x.rs", "a();\n#[cfg(test)]\nmod tests { fn f() { x.unwrap() } }\nb();").code;
        assert!(code.contains("a();") && code.contains("b();") && !code.contains("unwrap"), "{code}");
    }
}
