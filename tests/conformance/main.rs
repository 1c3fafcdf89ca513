//! Conformance with data from outside.
//!
//! Each test reads a folder of cases and prints `NAME: N passed, N failed`. `OPFUSE_FUSER_CASES` names another folder
//! of fuser cases, `OPFUSE_GOLDEN` another folder with `_keysets.json` and `_dispatch_table.json`.

#![allow(clippy::print_stdout, reason = "the counts are this test's output")]

#[path = "../common/bits.rs"]
mod bits;
mod dispatch_tables;
mod fuser_cases;
mod golden;
mod keysets;
#[path = "../common/panics.rs"]
mod panics;

use std::path::PathBuf;

/// The folder that a variable names, or the one that is checked in.
fn folder(variable: &str, own: &str) -> PathBuf {
    let own = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(own);
    std::env::var_os(variable).map_or_else(own, PathBuf::from)
}

fn report(name: &str, (passed, failures): (usize, Vec<String>)) {
    println!("{name}: {passed} passed, {} failed", failures.len());
    assert!(failures.is_empty(), "{name}:\n{}", failures.join("\n"));
    assert!(passed > 0, "{name}: there are no cases");
}

#[test]
fn fuser_cases() {
    report("fuser_cases", fuser_cases::run(&folder("OPFUSE_FUSER_CASES", "fuser_cases")));
}

#[test]
fn keysets() {
    report("keysets", keysets::run(&folder("OPFUSE_GOLDEN", "golden")));
}

#[test]
fn dispatch_tables() {
    report("dispatch_tables", dispatch_tables::run(&folder("OPFUSE_GOLDEN", "golden")));
}

#[test]
fn golden_mapped() {
    let failures = golden::mapped::run(&folder("OPFUSE_GOLDEN", "golden")).expect("readable data");
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn golden() {
    let own = std::env::var_os("OPFUSE_GOLDEN").is_none();
    if let Err(complaint) = golden::run(&folder("OPFUSE_GOLDEN", "golden"), own) {
        panic!("golden: {complaint}");
    }
}

/// The operators of order statistics, searches, sets, histograms, matrices and grids.
fn science() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join("golden_science")
}

#[test]
fn golden_science() {
    if let Err(complaint) = golden::run(&science(), true) {
        panic!("golden_science: {complaint}");
    }
}

#[test]
fn golden_science_mapped() {
    let failures = golden::mapped::run(&science()).expect("readable data");
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

/// The operators of linear algebra.
#[test]
fn golden_linalg() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join("golden_linalg");
    if let Err(complaint) = golden::run(&folder, true) {
        panic!("golden_linalg: {complaint}");
    }
    let failures = golden::mapped::run(&folder).expect("readable data");
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}
