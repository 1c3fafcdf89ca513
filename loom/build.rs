//! Prepares sources of the library for loom. They are checked as they are: only what they import from `std` is
//! replaced by what loom offers in its place. A replacement that no longer fits the source fails the build.
//!
//! `OPFUSE_LOOM_MUTANT=n` plants the n-th bug of [`MUTANTS`], which the models must find (`scripts/loom.sh`).

use std::path::Path;
use std::{env, fs};

/// File, what stands there, and what replaces it everywhere in the file.
const REPLACED: &[(&str, &str, &str)] = &[
    ("shared", "use std::sync::atomic::", "use loom::sync::atomic::"),
    ("readers", "use std::sync::atomic::", "use loom::sync::atomic::"),
    // Statics of loom are made at run time. A thread may give its slot back after the statics are gone, so the slots
    // stay. Two of them are enough for the threads of the models.
    ("readers", "const MAX_READERS: usize = 256;", "const MAX_READERS: usize = 2;"),
    ("readers", "const fn free()", "fn free()"),
    (
        "readers",
        "storages: [const { AtomicUsize::new(0) }; MAX_STORAGES]",
        "storages: std::array::from_fn(|_| AtomicUsize::new(0))",
    ),
    (
        "readers",
        "static READERS: [Reader; MAX_READERS] = [const { Reader::free() }; MAX_READERS];",
        "loom::lazy_static! { static ref READERS: &'static [Reader; MAX_READERS] = \
         Box::leak(Box::new(std::array::from_fn(|_| Reader::free()))); }",
    ),
    (
        "readers",
        "static N_USED: AtomicUsize = AtomicUsize::new(0);",
        "loom::lazy_static! { static ref N_USED: AtomicUsize = AtomicUsize::new(0); }",
    ),
    (
        "readers",
        "thread_local! {\n    static OWN: Own = const { Own(Cell::new(None)) };",
        "loom::thread_local! {\n    static OWN: Own = Own(Cell::new(None));",
    ),
    // Loom takes a load with `SeqCst` as one with `Acquire`. A fence before it gives the order that is meant.
    ("readers", ".load(Ordering::SeqCst)", ".load({ loom::sync::atomic::fence(Ordering::SeqCst); Ordering::Acquire })"),
    // Loom runs other threads at a yield alone.
    ("readers", "std::hint::spin_loop()", "loom::thread::yield_now()"),
    ("readers", "std::thread::yield_now()", "loom::thread::yield_now()"),
    ("readers", "std::thread::sleep(NAP)", "loom::thread::yield_now()"),
];

/// Planted bugs: file, what stands there, what replaces it.
const MUTANTS: &[(&str, &str, &str)] = &[
    ("shared", "counts.load(Ordering::Acquire) == ONLY", "counts.load(Ordering::Relaxed) == ONLY"),
    ("shared", "fetch_sub(STRONG, Ordering::Release)", "fetch_sub(STRONG, Ordering::Relaxed)"),
    ("shared", "        fence(Ordering::Acquire);\n        // The weak handle", "        // The weak handle"),
    ("shared", "(strong > 0).then_some", "(counts > 0).then_some"),
    ("shared", "counts.load(Ordering::Acquire) == ONLY", "counts.load(Ordering::Acquire) % WEAK == STRONG"),
    ("readers", "is_written |=", "is_written &="),
    ("readers", "while reads(reader) {", "while reads(reader) && looks < 1 {"),
    (
        "readers",
        "storage.writers().load({ loom::sync::atomic::fence(Ordering::SeqCst); Ordering::Acquire })",
        "storage.writers().load(Ordering::Acquire)",
    ),
    (
        "readers",
        "self.reader.is_reading.store(false, Ordering::Release)",
        "self.reader.is_reading.store(false, Ordering::Relaxed)",
    ),
];

fn main() {
    let mutant = env::var("OPFUSE_LOOM_MUTANT").ok().map(|n| n.parse::<usize>().expect("the mutant is a number"));
    println!("cargo::rerun-if-env-changed=OPFUSE_LOOM_MUTANT");
    for name in ["shared", "readers"] {
        let path = format!("../src/device/{name}.rs");
        println!("cargo::rerun-if-changed={path}");
        let source = fs::read_to_string(&path).expect("the source is there");
        // Attributes and headers of files cannot be included, and the tests are not of interest.
        let (code, _) = source.split_once("#[cfg(test)]").expect("the tests follow the code");
        let lines = code.lines().filter(|line| !line.starts_with("//!") && !line.starts_with("#!["));
        let mut code = lines.collect::<Vec<_>>().join("\n");
        let planted = mutant.map(|n| MUTANTS[n]);
        for (file, from, to) in REPLACED.iter().copied().chain(planted) {
            if file == name {
                assert!(code.contains(from), "{path} has no {from:?} any more");
                code = code.replace(from, to);
            }
        }
        let out = env::var("OUT_DIR").expect("cargo names the folder");
        fs::write(Path::new(&out).join(format!("{name}.rs")), code).expect("it can be written");
    }
}
