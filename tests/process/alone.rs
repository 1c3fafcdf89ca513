//! Starts a test again in a process of its own.

use std::process::Command;

/// Set in the process that runs one test alone.
const ALONE: &str = "OPFUSE_TEST_ALONE";

/// Runs the calling test in a process of its own and returns `true`; returns `false` in that process.
///
/// Fails with the output of the process if the test fails there. Otherwise passes on what the test printed.
#[track_caller]
#[allow(clippy::print_stdout, reason = "what the test printed is printed again")]
pub(crate) fn has_run_alone() -> bool {
    if std::env::var_os(ALONE).is_some() {
        return false;
    }
    let thread = std::thread::current();
    let test = thread.name().expect("tests run in threads of their names");
    let program = std::env::current_exe().expect("a running program has a path");
    let output = Command::new(program).args(["--exact", test, "--nocapture"]).env(ALONE, "1").output();
    let output = output.expect("a program that runs can be started");
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{test} alone: {}\n{out}\n{err}", output.status);
    assert!(out.contains("1 passed"), "{test} was not found in its own program:\n{out}");
    let of_harness = |line: &&str| line.is_empty() || line.starts_with("running ") || line.starts_with("test ");
    out.lines().filter(|line| !of_harness(line)).for_each(|line| println!("{line}"));
    true
}
