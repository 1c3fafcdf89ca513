//! What the pages name is there: every file, module and heading that they point to.
//!
//! The pages are the `*.md` files of the root and of `docs`. A name is checked if it is a link, or if it stands in
//! backticks and is a path (`src/ir/ops.rs`), or a module with what is in it (`compile::calibrate`). Commands and code
//! blocks are not looked at. The library takes no part, so this test is compiled and run at once.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that a path may begin with.
const ROOTS: [&str; 8] = ["src", "tests", "docs", "examples", "benches", "scripts", "derive", ".ci"];

/// Endings of files that are named by a path.
const ENDINGS: [&str; 10] = ["rs", "md", "sh", "py", "cuh", "cpp", "h", "json", "svg", "csv"];

/// What is made on demand and need not be there.
const MADE: [&str; 3] = ["docs/benchmarks/gpu.md", "docs/benchmarks/gpu.svg", "target"];

#[test]
fn everything_named_is_there() {
    if !root().join(".ci").exists() {
        return; // A published package leaves out folders that the pages name.
    }
    let sources = rust_files(&root().join("src"));
    let mut missing = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("pages are readable UTF-8");
        let prose = without_code_blocks(&text);
        let shown = page.strip_prefix(root()).expect("pages are in the package").display().to_string();
        let lost = links(&prose).into_iter().filter(|link| !leads_somewhere(&page, link));
        missing.extend(lost.map(|link| format!("{shown}: the link {link} leads nowhere")));
        for name in quoted(&prose) {
            if is_path(&name) && !is_file(&name) {
                missing.push(format!("{shown}: there is no `{name}`"));
            } else if is_module_path(&name) && !is_declared(&name, &sources) {
                missing.push(format!("{shown}: `{name}` is not in the sources"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// The contents of the book list every chapter, and the programs of every chapter are tested.
#[test]
fn every_chapter_of_the_book_is_listed_and_tested() {
    let chapters = root().join("docs/book/src");
    let contents = fs::read_to_string(chapters.join("SUMMARY.md")).expect("the book has contents");
    let tested = fs::read_to_string(root().join("src/lib.rs")).expect("the crate has a root");
    let names = fs::read_dir(&chapters).expect("the book has chapters").flatten().map(|entry| entry.file_name());
    let mut lost: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    lost.retain(|name| name != "SUMMARY.md");
    assert!(lost.len() > 4, "the chapters were not found");
    lost.retain(|name| !contents.contains(&format!("({name})")) || !tested.contains(&format!("\"{name}\"")));
    assert!(lost.is_empty(), "not in SUMMARY.md, or not in src/lib.rs: {lost:?}");
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => pages.push(path),
            }
        }
    }
    pages.extend(fs::read_dir(root()).into_iter().flatten().flatten().map(|entry| entry.path()));
    pages.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    pages.sort();
    assert!(pages.len() > 4, "the pages were not found");
    pages
}

/// Path from `src` without its ending, and text, of every source.
fn rust_files(folder: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for path in fs::read_dir(next).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let name = path.strip_prefix(folder).expect("it is inside").with_extension("");
                let name = name.to_string_lossy().replace('\\', "/");
                let name = name.trim_end_matches("/mod").to_owned();
                files.push((name, fs::read_to_string(path).expect("sources are readable UTF-8")));
            }
        }
    }
    files
}

fn without_code_blocks(text: &str) -> String {
    let mut inside = false;
    let mut prose = String::new();
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        if !inside && !is_fence {
            prose.push_str(line);
        }
        prose.push('\n');
    }
    prose
}

/// Targets of links that are not on the web.
fn links(prose: &str) -> Vec<String> {
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.starts_with("http")).map(str::to_owned).collect()
}

fn leads_somewhere(page: &Path, link: &str) -> bool {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { page.to_path_buf() } else { page.with_file_name(file) };
    if heading.is_empty() {
        return target.exists();
    }
    let text = fs::read_to_string(target).unwrap_or_default();
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| anchor(line.trim_start_matches('#')));
    headings.into_iter().any(|known| known == heading)
}

/// The anchor that web pages give a heading.
fn anchor(heading: &str) -> String {
    let kept = |letter: char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    heading.trim().to_lowercase().chars().filter(|&letter| kept(letter)).collect::<String>().replace(' ', "-")
}

/// What stands in single backticks.
fn quoted(prose: &str) -> BTreeSet<String> {
    prose.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Whether a name is that of a file or folder of the package.
fn is_path(name: &str) -> bool {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte));
    let begins = ROOTS.iter().any(|root| name.strip_prefix(root).is_some_and(|rest| rest.starts_with('/')));
    let ends = name.rsplit_once('.').is_some_and(|(_, ending)| ENDINGS.contains(&ending));
    is_plain && (begins || ends && name.contains('/')) && !MADE.iter().any(|made| name.starts_with(made))
}

fn is_file(name: &str) -> bool {
    root().join(name).exists()
}

/// Whether a name is one like `compile::calibrate` or `compile::explain::Group`.
fn is_module_path(name: &str) -> bool {
    let parts: Vec<&str> = name.split("::").collect();
    let is_word =
        |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let foreign = ["std", "torch", "cargo"];
    parts.len() > 1 && parts.iter().all(is_word) && !foreign.contains(&parts[0])
}

/// Whether the longest part of the name that is a module holds the rest of it as words.
fn is_declared(name: &str, sources: &[(String, String)]) -> bool {
    let parts: Vec<&str> = name.trim_start_matches("opfuse::").trim_start_matches("crate::").split("::").collect();
    let module = |n: usize| parts[..n].join("/");
    let is_module = |n: &usize| sources.iter().any(|(path, _)| *path == module(*n));
    let n = (1..=parts.len()).rev().find(is_module).unwrap_or(0);
    let prefix = module(n);
    let inside = |path: &str| n == 0 || path == prefix || path.starts_with(&format!("{prefix}/"));
    parts[n..].iter().all(|part| sources.iter().any(|(path, text)| inside(path) && has_word(text, part)))
}

fn has_word(text: &str, word: &str) -> bool {
    let is_letter = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    text.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|before| text.as_bytes().get(before));
        !is_letter(before) && !is_letter(text.as_bytes().get(at + word.len()))
    })
}

/// The checks above, checked on names.
mod checks {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        for path in ["src/ir/ops.rs", "tests/cuda", "ir/ops.rs", "docs/cuda.md"] {
            assert!(is_path(path), "{path}");
        }
        for other in ["ops.rs", "a / b", "cargo bench --bench fusion", "docs/benchmarks/gpu.md", "f32/f64"] {
            assert!(!is_path(other), "{other}");
        }
        assert!(is_module_path("compile::calibrate") && is_module_path("Reason::NewTypes"));
        assert!(!is_module_path("dispatch") && !is_module_path("std::fs") && !is_module_path("f::<f32>()"));
    }

    #[test]
    fn links_and_headings_are_found() {
        assert_eq!(links("a [b](c.md) and [d](https://e) [f](g.md#h)"), ["c.md", "g.md#h"]);
        assert_eq!(anchor(" On a GPU: `scripts/gpu`"), "on-a-gpu-scriptsgpu");
        assert_eq!(without_code_blocks("a\n```rust\nb\n```\nc"), "a\n\n\n\nc\n");
        assert_eq!(quoted("`a` b `c`"), BTreeSet::from(["a".to_owned(), "c".to_owned()]));
    }

    #[test]
    fn modules_hold_their_items() {
        let sources = [("ir/graph".to_owned(), "pub struct Graph;".to_owned()), ("ir".to_owned(), String::new())];
        assert!(is_declared("ir::graph::Graph", &sources) && is_declared("ir::Graph", &sources));
        assert!(!is_declared("ir::Graphs", &sources) && !is_declared("fusion::plan", &sources));
    }
}
