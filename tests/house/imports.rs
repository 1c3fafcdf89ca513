//! Which file imports what from which other file.
//!
//! A path is followed to the file that defines its first item: through `crate`, `self`, `super` and nested groups,
//! through the `use` of a name under another, and through the re-exports of a folder's face. So the face of a folder
//! is passed, not imported, and its re-exports of its own files are no imports of its.
//!
//! There is no type inference: a method that is called on a value is not seen, nor is a macro called by its bare name.
//! An item that a macro makes belongs to the last file on the path that is known.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::{Source, block, is_word, leading_word, words};

/// The words of a path: `crate`, `ir`, `Op`. The last one of a glob is `*`.
type Names = Vec<String>;

/// So many names of an import are shown.
const MAX_SHOWN: usize = 6;

/// The imports between the files of a library.
#[derive(Default)]
pub(crate) struct Imports {
    files: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    unknown: Vec<(String, String)>,
}

impl Imports {
    pub(crate) fn of(sources: &[Source]) -> Self {
        let library = Library::of(sources);
        let mut imports = Self::default();
        for (name, module) in &library.modules {
            imports.files.insert(module.file.clone(), BTreeMap::new());
            for path in module.imported(name, &library) {
                match library.resolve(name, &path) {
                    Some(other) if other == *name => {}
                    Some(other) => imports.add(&module.file, &library.modules[&other].file, path.join("::")),
                    None if path[0] == "crate" || path[0] == "super" => {
                        imports.unknown.push((module.file.clone(), path.join("::")));
                    }
                    // An outside crate, or a type from a prelude.
                    None => {}
                }
            }
        }
        imports
    }

    fn add(&mut self, file: &str, other: &str, name: String) {
        self.files.entry(file.to_owned()).or_default().entry(other.to_owned()).or_default().insert(name);
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The files that `file` imports from.
    pub(crate) fn from(&self, file: &str) -> impl Iterator<Item = &str> {
        self.files[file].keys().map(String::as_str)
    }

    /// What `file` imports from `other`, for people: a few names.
    pub(crate) fn names(&self, file: &str, other: &str) -> String {
        let paths = self.files[file].get(other).into_iter().flatten();
        let names: BTreeSet<&str> = paths.map(|path| path.rsplit("::").next().unwrap_or(path)).collect();
        let more = if names.len() > MAX_SHOWN { ", …" } else { "" };
        let shown: Vec<String> = names.iter().take(MAX_SHOWN).map(|name| format!("`{name}`")).collect();
        shown.join(", ") + more
    }

    /// Forgets the imports for which `keep` of file and other file is false.
    pub(crate) fn retain(&mut self, keep: impl Fn(&str, &str) -> bool) {
        for (file, others) in &mut self.files {
            others.retain(|other, _| keep(file, other));
        }
    }

    /// Each file, another that it imports from, and what it imports.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, String)> {
        self.files().flat_map(move |file| self.from(file).map(move |other| (file, other, self.names(file, other))))
    }

    /// Paths into the library that lead nowhere, with their file: the reader of sources is mistaken.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = &(String, String)> {
        self.unknown.iter()
    }
}

/// What can be named in a file, and what it names.
struct Module {
    file: String,
    items: BTreeSet<String>,
    uses: Vec<Use>,
    /// Paths outside of `use`.
    paths: Vec<Names>,
}

/// One name that a `use` brings in.
struct Use {
    path: Names,
    name: String,
    is_public: bool,
}

impl Module {
    fn new(source: &Source) -> Self {
        let (uses, rest) = uses(&source.code);
        Self { file: source.path.clone(), items: items(&source.code), uses, paths: paths(&rest) }
    }

    /// The paths that make imports: all but re-exports of what is in the module's own folder.
    fn imported(&self, name: &str, library: &Library) -> Vec<Names> {
        let inside = format!("{name}/");
        let is_face = |one: &&Use| {
            one.is_public && library.resolve(name, &one.path).is_some_and(|other| other.starts_with(&inside))
        };
        let brought_in = self.uses.iter().filter(|one| self.file != "lib.rs" && !is_face(one));
        brought_in.map(|one| one.path.clone()).chain(self.paths.iter().cloned()).collect()
    }
}

/// Modules by their path with `/`; the root's is empty.
struct Library {
    modules: BTreeMap<String, Module>,
    macros: BTreeMap<String, String>,
}

impl Library {
    fn of(sources: &[Source]) -> Self {
        let modules: BTreeMap<String, Module> =
            sources.iter().map(|source| (module_name(&source.path), Module::new(source))).collect();
        let macros = sources.iter().flat_map(|source| {
            let names = declared(&source.code, "macro_rules!");
            names.map(|name| (name, module_name(&source.path))).collect::<Vec<_>>()
        });
        Self { macros: macros.collect(), modules }
    }

    /// The module that defines what `path` means in module `from`.
    fn resolve(&self, from: &str, path: &[String]) -> Option<String> {
        self.follow(from, path, &mut BTreeSet::new())
    }

    fn follow(&self, from: &str, path: &[String], seen: &mut BTreeSet<(String, String)>) -> Option<String> {
        match path[0].as_str() {
            "crate" => self.find("", &path[1..], seen),
            "self" => self.find(from, &path[1..], seen),
            "super" => {
                let n_up = path.iter().take_while(|name| *name == "super").count();
                let module = (0..n_up).fold(from, |module, _| module.rsplit_once('/').map_or("", |(above, _)| above));
                self.find(module, &path[n_up..], seen)
            }
            _ => self.find(from, path, seen),
        }
    }

    /// The module that defines `path`, which begins inside `module`.
    fn find(&self, module: &str, path: &[String], seen: &mut BTreeSet<(String, String)>) -> Option<String> {
        let here = self.modules.get(module)?;
        let Some((first, rest)) = path.split_first() else { return Some(module.to_owned()) };
        let child = if module.is_empty() { first.clone() } else { format!("{module}/{first}") };
        if self.modules.contains_key(&child) {
            return self.find(&child, rest, seen).or(Some(child));
        }
        if first == "*" || here.items.contains(first) {
            return Some(module.to_owned());
        }
        // A module that takes a name from itself, through others, does not define it.
        if !seen.insert((module.to_owned(), first.clone())) {
            return None;
        }
        let named = here.uses.iter().filter(|one| one.name == *first);
        for one in named {
            let whole = [one.path.as_slice(), rest].concat();
            if let Some(found) = self.follow(module, &whole, seen) {
                return Some(found);
            }
        }
        for one in here.uses.iter().filter(|one| one.name == "*" && one.path.len() > 1) {
            let inside = self.follow(module, &one.path[..one.path.len() - 1], seen);
            let found = inside.filter(|inside| inside != module).and_then(|inside| self.find(&inside, path, seen));
            if found.is_some() {
                return found;
            }
        }
        if module.is_empty() { self.macros.get(first).cloned() } else { None }
    }
}

fn module_name(path: &str) -> String {
    let stem = path.trim_end_matches(".rs").trim_end_matches("/mod");
    if stem == "lib" { String::new() } else { stem.to_owned() }
}

/// The names that code declares.
fn items(code: &str) -> BTreeSet<String> {
    let keywords = ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "mod", "macro_rules!"];
    keywords.into_iter().flat_map(|keyword| declared(code, keyword).collect::<Vec<_>>()).collect()
}

/// The names that follow `keyword`. `mod name;` declares a file, which is found by its path.
fn declared<'a>(code: &'a str, keyword: &'a str) -> impl Iterator<Item = String> + 'a {
    let behind = words(code, keyword).map(move |at| code[at + keyword.len()..].trim_start());
    let names = behind.map(|rest| (leading_word(rest), rest)).filter(move |(name, rest)| {
        let is_file = keyword == "mod" && rest[name.len()..].trim_start().starts_with(';');
        !name.is_empty() && !is_file
    });
    names.map(|(name, _)| name.to_owned())
}

/// What the code's `use` statements bring in, and the code with blanks for them.
fn uses(code: &str) -> (Vec<Use>, String) {
    let inline = inline_modules(code);
    let mut found = Vec::new();
    let mut rest = code.to_owned().into_bytes();
    for at in words(code, "use") {
        let from = at + "use".len();
        // `use<'a>` of a type captures lifetimes.
        if !code[from..].starts_with(char::is_whitespace) {
            continue;
        }
        let end = code[from..].find(';').map_or(code.len(), |length| from + length);
        let before = code[..at].trim_end();
        let in_brackets = before.rfind("pub(").is_some_and(|open| block(before, open + 3).end == before.len());
        let n_found = found.len();
        add_tree(&code[from..end], &[], before.ends_with("pub") || in_brackets, &mut found);
        for one in &mut found[n_found..] {
            one.path = out_of_inline(std::mem::take(&mut one.path), at, &inline);
        }
        rest[at..end].fill(b' ');
    }
    (found, String::from_utf8(rest).expect("whole statements were blanked"))
}

/// The bodies of modules that stand inside a file, which counts as one module.
fn inline_modules(code: &str) -> Vec<Range<usize>> {
    let opens = words(code, "mod").filter_map(|at| code[at..].find(['{', ';']).map(|length| at + length));
    opens.filter(|&open| code[open..].starts_with('{')).map(|open| block(code, open)).collect()
}

/// The path at `at` as the file itself would write it: modules inside of the file are no step up.
fn out_of_inline(path: Names, at: usize, inline: &[Range<usize>]) -> Names {
    let depth = inline.iter().filter(|body| body.contains(&at)).count();
    let n_up = path.iter().take_while(|name| *name == "super").count();
    match n_up.min(depth) {
        0 => path,
        n_out if n_out == n_up => ["self".to_owned()].into_iter().chain(path.into_iter().skip(n_up)).collect(),
        n_out => path.into_iter().skip(n_out).collect(),
    }
}

/// Adds the leaves of a tree such as `a::{b, c::{self, d as e}, f::*}`.
fn add_tree(tree: &str, above: &[String], is_public: bool, out: &mut Vec<Use>) {
    let segments = |text: &str| -> Names { text.split("::").map(|name| name.trim().to_owned()).collect() };
    if let Some(open) = tree.find('{') {
        let head = segments(&tree[..open]).into_iter().filter(|name| !name.is_empty());
        let above: Names = above.iter().cloned().chain(head).collect();
        for part in parts(&tree[open + 1..block(tree, open).end - 1]) {
            add_tree(part, &above, is_public, out);
        }
        return;
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
    let mut path: Names = above.iter().cloned().chain(segments(path)).filter(|name| !name.is_empty()).collect();
    if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
        path.pop();
    }
    if let Some(last) = path.last() {
        let name = alias.unwrap_or(last).to_owned();
        out.push(Use { name, path, is_public });
    }
}

/// What commas outside of brackets divide.
fn parts(list: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0);
    for (at, byte) in list.bytes().enumerate() {
        depth += i32::from(byte == b'{') - i32::from(byte == b'}');
        if byte == b',' && depth == 0 {
            parts.push(&list[start..at]);
            start = at + 1;
        }
    }
    parts.push(&list[start..]);
    parts.into_iter().filter(|part| !part.trim().is_empty()).collect()
}

/// The paths of two names or more in code without `use` statements.
fn paths(code: &str) -> Vec<Names> {
    let bytes = code.as_bytes();
    let inline = inline_modules(code);
    let is_path = |end: usize| code[end..].starts_with("::") && bytes.get(end + 2).copied().is_some_and(is_word);
    let mut found = BTreeSet::new();
    let mut at = 0;
    while at < bytes.len() {
        if !is_word(bytes[at]) {
            at += 1;
            continue;
        }
        // `::a::b` begins with a crate, `<T>::a` with a type.
        let is_inside = code[..at].ends_with("::");
        let mut end = at + leading_word(&code[at..]).len();
        while is_path(end) {
            end += 2 + leading_word(&code[end + 2..]).len();
        }
        let names: Names = code[at..end].split("::").map(str::to_owned).collect();
        if names.len() > 1 && !is_inside {
            found.insert(out_of_inline(names, at, &inline));
        }
        at = end;
    }
    found.into_iter().collect()
}

mod checks {
    use super::*;

    /// What the files of a planted library import, as `file → other` lines.
    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let sources: Vec<Source> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
        let imports = Imports::of(&sources);
        let found: Vec<String> = imports.iter().map(|(file, other, _)| format!("{file} → {other}")).collect();
        assert_eq!(found, expected, "{files:?}");
        assert_eq!(imports.unknown().count(), 0, "{files:?}");
    }

    #[test]
    fn paths_lead_to_files() {
        let others =
            [("a/b.rs", "pub struct B; pub fn f() {}"), ("a/c.rs", "pub enum C { X }"), ("a/mod.rs", "mod b;")];
        for (text, expected) in [
            ("use crate::a::b::B;", &["a/d.rs → a/b.rs"][..]),
            ("use super::{b::{self, f as g}, c::C};", &["a/d.rs → a/b.rs", "a/d.rs → a/c.rs"]),
            ("use super::b; fn g() { b::f(); }", &["a/d.rs → a/b.rs"]),
            ("fn g() -> crate::a::c::C { super::c::C::X }", &["a/d.rs → a/c.rs"]),
            ("use super::b::*;", &["a/d.rs → a/b.rs"]),
            (
                "fn g() -> impl Sized + use<'_> { <B as super::b::T>::x; ::a::b::B; std::mem::take(x) }",
                &["a/d.rs → a/b.rs"],
            ),
            ("mod inner { use super::super::b::B; fn f() { super::g() } } fn g() {}", &["a/d.rs → a/b.rs"]),
            ("use crate::a::b::made_by_a_macro;", &["a/d.rs → a/b.rs"]),
            ("/// [`crate::a::b`]\nfn g() { \"crate::a::b\"; self::h(); Self::i() }\nfn h() {}", &[]),
            ("#[cfg(test)]\nmod tests { use crate::a::b::B; }", &[]),
        ] {
            let files = [others.as_slice(), &[("a/d.rs", text), ("lib.rs", "")]].concat();
            check(&files, expected);
        }
    }

    #[test]
    fn re_exports_are_seen_through() {
        let face = ("a/mod.rs", "mod b; mod c; pub use b::B; pub(crate) use self::c::*; pub use crate::e::E as F;");
        let files = [("a/b.rs", "pub struct B;"), ("a/c.rs", "pub struct C;"), ("e.rs", "pub struct E;"), face];
        let root = ("lib.rs", "pub use a::{B as Root}; pub mod a; pub mod e;");
        for (text, expected) in [
            ("use crate::a::B;", &["a/mod.rs → e.rs", "f.rs → a/b.rs"][..]),
            ("use crate::a::{C, F};", &["a/mod.rs → e.rs", "f.rs → a/c.rs", "f.rs → e.rs"]),
            ("use crate::Root;", &["a/mod.rs → e.rs", "f.rs → a/b.rs"]),
            ("use crate::a; fn f() { a::C; }", &["a/mod.rs → e.rs", "f.rs → a/c.rs", "f.rs → a/mod.rs"]),
        ] {
            check(&[files.as_slice(), &[("f.rs", text), root]].concat(), expected);
        }
    }

    #[test]
    fn macros_are_found_at_the_root() {
        let rows = ("a/rows.rs", "macro_rules! rows { () => { $crate::b::B } }");
        check(
            &[rows, ("b.rs", "pub struct B; crate::rows!();"), ("lib.rs", "")],
            &["a/rows.rs → b.rs", "b.rs → a/rows.rs"],
        );
    }

    #[test]
    fn unknown_paths_are_told() {
        let imports = Imports::of(&[Source::new("a.rs", "use crate::nowhere::X;"), Source::new("lib.rs", "")]);
        let unknown: Vec<&(String, String)> = imports.unknown().collect();
        assert_eq!(unknown, [&("a.rs".to_owned(), "crate::nowhere::X".to_owned())]);
    }
}
