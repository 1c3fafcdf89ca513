//! The public surface: what stands at the crate's root and in its public modules, against a checked-in list.
//!
//! A name becomes public on purpose: it is added to `public.txt` in the commit that adds it. `UPDATE_EXPECT=1` writes
//! the list anew. `#[doc(hidden)]` items are no part of it. A `pub use` of everything in a module is refused, because
//! it does not name what it makes public.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{assert_none, code_only, is_word, leading_word, rust_files};

/// The most different names at the first two levels. Types of the root stand in the module that they belong to, too. A
/// third of them are modules with the names that people know them by.
const MOST: usize = 367;

#[test]
fn public_names_are_on_the_list() {
    let files = rust_files("src");
    let read = |path: &str| files.get(path).map(|text| code_only(text));
    let root = public_names(&read("src/lib.rs").expect("the root is there"));
    let mut names = BTreeSet::new();
    let mut wrong = Vec::new();
    for name in root {
        let faces = [format!("src/{name}/mod.rs"), format!("src/{name}.rs"), format!("src/ops/{name}.rs")];
        if let Some(face) = faces.iter().find_map(|path| read(path)) {
            names.extend(public_names(&face).into_iter().map(|inner| format!("{name}::{inner}")));
        }
        names.insert(name);
    }
    wrong.extend(names.iter().filter(|name| name.contains('*')).map(|name| format!("{name}: name what is public")));
    let different: BTreeSet<&str> = names.iter().filter_map(|name| name.rsplit("::").next()).collect();
    if different.len() > MOST {
        wrong.push(format!("{} public names at the first two levels; {MOST} is the limit", different.len()));
    }
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/house/public.txt");
    let text: String = names.iter().map(|name| format!("{name}\n")).collect();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&list, &text).expect("the list can be written");
    }
    let listed = fs::read_to_string(&list).expect("the list is checked in");
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    wrong.extend(names.difference(&listed).map(|name| format!("{name} is public and not in tests/house/public.txt")));
    wrong.extend(listed.difference(&names).map(|name| format!("{name} is in tests/house/public.txt and not public")));
    assert_none(&wrong);
}

/// The names that a file makes public at its top level: modules, re-exports and items, but those hidden from the docs.
fn public_names(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut hidden = false;
    let mut rest = code;
    while let Some(line) = rest.lines().next() {
        let after = &rest[(line.len() + 1).min(rest.len())..];
        if let Some(item) = line.strip_prefix("pub ") {
            let mut words = item.split(|c: char| !c.is_ascii() || !is_word(c as u8)).filter(|word| !word.is_empty());
            let kind = words.find(|word| !matches!(*word, "const" | "unsafe" | "async")).unwrap_or_default();
            let found = match kind {
                "use" => {
                    let tree = &rest["pub use ".len()..];
                    used(&tree[..tree.find(';').unwrap_or(tree.len())])
                }
                "fn" | "struct" | "enum" | "trait" | "type" | "static" | "mod" => {
                    words.next().into_iter().map(str::to_owned).collect()
                }
                constant => vec![leading_word(constant).to_owned()],
            };
            if !hidden {
                names.extend(found);
            }
        }
        hidden = line.starts_with("#[doc(hidden)]");
        rest = after;
    }
    names
}

/// The names that a use tree brings.
fn used(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    if let Some(open) = tree.find('{') {
        let inner = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
        let mut parts = vec![String::new()];
        let mut depth = 0;
        for c in inner.chars() {
            depth += i32::from(c == '{') - i32::from(c == '}');
            match parts.last_mut() {
                Some(_) if c == ',' && depth == 0 => parts.push(String::new()),
                Some(part) => part.push(c),
                None => {}
            }
        }
        return parts.iter().filter(|part| !part.trim().is_empty()).flat_map(|part| used(part)).collect();
    }
    let name = tree.rsplit(" as ").next().unwrap_or(tree);
    vec![name.rsplit("::").next().unwrap_or(name).trim().to_owned()]
}

mod checks {
    use super::*;

    #[test]
    fn names_are_found() {
        let code = "pub mod a;\nmod b;\npub use c::{D, e::{self, F}, G as H};\npub use i::J;\n#[doc(hidden)]\npub use k::L;\n\
                    pub fn m() {}\npub const fn n() {}\npub(crate) fn o() {}\npub struct P;\n    pub fn q() {}\npub use r::*;\n\
                    pub const S: u8 = 1;\n";
        let expected = ["*", "D", "F", "H", "J", "P", "S", "a", "m", "n", "self"];
        let found = public_names(code);
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }
}
