//! Import cycles: files of which each reaches each other over imports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

use crate::imports::Imports;

/// A largest set of files that import each other, directly or through others.
pub(crate) struct Cycle {
    pub(crate) files: BTreeSet<String>,
}

/// The cycles of two files or more, the largest first.
pub(crate) fn cycles(imports: &Imports) -> Vec<Cycle> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = imports.files().map(|file| (file, reached(imports, file))).collect();
    let mut cycles: Vec<Cycle> = Vec::new();
    for (file, reached) in &reach {
        let both = reached.iter().filter(|other| reach[*other].contains(file));
        let files: BTreeSet<String> = both.map(|&other| other.to_owned()).collect();
        if files.len() > 1 && files.first().is_some_and(|first| first == file) {
            cycles.push(Cycle { files });
        }
    }
    cycles.sort_by_key(|cycle| std::cmp::Reverse(cycle.files.len()));
    cycles
}

/// The files that `file` imports from, directly or through others.
fn reached<'a>(imports: &'a Imports, file: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = imports.from(file).collect();
    while let Some(other) = open.pop() {
        if reached.insert(other) {
            open.extend(imports.from(other));
        }
    }
    reached
}

impl Cycle {
    /// Its files, imports whose removal cuts it, and the shortest cycles that some of these close.
    pub(crate) fn show(&self, imports: &Imports) -> String {
        let closing = self.closing(imports);
        let files: Vec<&str> = self.files.iter().map(String::as_str).collect();
        let mut out = format!("  {}\n  without these {} imports it would be none:\n", files.join(" "), closing.len());
        let written = "strings take what is written";
        for (file, other) in &closing {
            writeln!(out, "    {file} → {other}: {}", imports.names(file, other)).expect(written);
        }
        for (file, other) in closing.iter().take(3) {
            let way = self.shortest_way(other, file, imports).join(" → ");
            writeln!(out, "  for example: {file} → {way}").expect(written);
        }
        out
    }

    fn inner<'a>(&'a self, file: &str, imports: &'a Imports) -> impl Iterator<Item = &'a str> {
        imports.from(file).filter(|other| self.files.contains(*other))
    }

    /// Imports without which there is no cycle, few of them: those against an order in which files that import much
    /// and are imported little come first (Eades, Lin and Smyth).
    fn closing<'a>(&'a self, imports: &'a Imports) -> Vec<(&'a str, &'a str)> {
        let mut left: BTreeSet<&str> = self.files.iter().map(String::as_str).collect();
        let (mut order, mut last) = (Vec::new(), Vec::new());
        while !left.is_empty() {
            let n_out = |file: &str| self.inner(file, imports).filter(|other| left.contains(other)).count();
            let n_in = |file: &str| left.iter().filter(|other| self.inner(other, imports).any(|to| to == file)).count();
            let (file, rank) = left
                .iter()
                .map(|&file| (file, (n_out(file), n_in(file))))
                .max_by_key(|&(_, (n_out, n_in))| (n_out == 0 || n_in == 0, n_out as isize - n_in as isize))
                .expect("files are left");
            if rank.0 == 0 {
                last.push(file)
            } else {
                order.push(file)
            }
            left.remove(file);
        }
        order.extend(last.into_iter().rev());
        let rank: BTreeMap<&str, usize> = order.iter().enumerate().map(|(at, &file)| (file, at)).collect();
        let all = order.iter().flat_map(|&file| self.inner(file, imports).map(move |other| (file, other)));
        all.filter(|(file, other)| rank[other] < rank[file]).collect()
    }

    /// The files on a shortest way over imports, both ends included.
    fn shortest_way<'a>(&'a self, from: &'a str, to: &str, imports: &'a Imports) -> Vec<&'a str> {
        let mut before: BTreeMap<&str, &str> = BTreeMap::new();
        let mut open = VecDeque::from([from]);
        while let Some(file) = open.pop_front() {
            for other in self.inner(file, imports) {
                if other != from && !before.contains_key(other) {
                    before.insert(other, file);
                    open.push_back(other);
                }
            }
        }
        let (to, _) = before.get_key_value(to).map_or((from, from), |(&to, &file)| (to, file));
        let mut way = vec![to];
        while let Some(&file) = before.get(way[way.len() - 1]) {
            way.push(file);
        }
        way.reverse();
        way
    }
}

mod checks {
    use super::*;
    use crate::Source;

    /// A library of files that import the next one, the last of them the first.
    fn ring(n_files: usize, text: impl Fn(usize) -> String) -> Imports {
        let files = (0..n_files).map(|at| Source::new(&format!("ir/f{at}.rs"), &text((at + 1) % n_files)));
        let face: String = (0..n_files).map(|at| format!("mod f{at}; pub use f{at}::T{at};")).collect();
        let rest = [Source::new("ir/mod.rs", &face), Source::new("lib.rs", "pub mod ir;")];
        Imports::of(&files.chain(rest).collect::<Vec<_>>())
    }

    fn sizes(imports: &Imports) -> Vec<usize> {
        cycles(imports).iter().map(|cycle| cycle.files.len()).collect()
    }

    #[test]
    fn cycles_have_their_size() {
        for n_files in [2, 5, 6, 40] {
            // Through the face of the folder, and past it.
            assert_eq!(sizes(&ring(n_files, |next| format!("use crate::ir::T{next};"))), [n_files]);
            assert_eq!(sizes(&ring(n_files, |next| format!("use super::f{next}::T{next};"))), [n_files]);
            // Tests may import what they like.
            let in_tests = |next| format!("#[cfg(test)] mod tests {{ use crate::ir::T{next}; }}");
            assert!(sizes(&ring(n_files, in_tests)).is_empty());
        }
    }

    #[test]
    fn chains_are_no_cycles() {
        let chain = |next: usize| if next == 0 { String::new() } else { format!("use crate::ir::T{next};") };
        assert!(sizes(&ring(6, chain)).is_empty());
    }

    #[test]
    fn cycles_are_shown() {
        let imports = ring(3, |next| format!("use crate::ir::T{next};"));
        let cycle = &cycles(&imports)[0];
        let shown = cycle.show(&imports);
        let files = "ir/f0.rs ir/f1.rs ir/f2.rs";
        assert!(shown.contains(files) && shown.contains("without these 1 imports"), "{shown}");
        assert!(
            shown.contains("ir/f0.rs → ir/f1.rs → ir/f2.rs → ir/f0.rs") || shown.matches('→').count() == 4,
            "{shown}"
        );
    }
}
