//! The commands on programs that are checked in: what they print, and their exit codes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/formats/exported").join(name)
}

fn opfuse(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_opfuse")).args(arguments).output().expect("the command can be started")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

#[track_caller]
fn check(arguments: &[&str], code: i32, parts: &[&str]) -> String {
    let Output { status, stdout, stderr } = opfuse(arguments);
    let all = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(code), "{all}");
    for part in parts {
        assert!(all.contains(part), "{part:?} is missing in: {all}");
    }
    all
}

#[test]
fn inspect_lists_inputs_and_operators() {
    let path = model("bert.pt2");
    check(&["inspect", text(&path)], 0, &["i64[s", "aten::linear", "none missing"]);
    let json = check(&["inspect", text(&path), "--json"], 0, &[]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert!(json["operators"]["aten::linear"].as_u64() > Some(10), "{json}");
}

#[test]
fn check_ends_with_its_count() {
    for name in ["perceptron", "encoder", "resnet"] {
        let (program, data) = (model(&format!("{name}.pt2")), model(&format!("{name}.npz")));
        let all = check(&["check", text(&program), "--data", text(&data)], 0, &["compiled bits = eager bits"]);
        let last = all.trim_end().lines().last().unwrap_or_default();
        assert!(
            last.starts_with("check: ") && last.ends_with(" passed, 0 failed") && last != "check: 0 passed, 0 failed"
        );
    }
    // Data of another program.
    let (program, data) = (model("bert.pt2"), model("vit.npz"));
    check(&["check", text(&program), "--data", text(&data)], 1, &["FAILED", "check: 0 passed, 2 failed"]);
    let (program, data) = (model("vit.pt2"), model("vit.npz"));
    let strict = ["check", text(&program), "--data", text(&data), "--tolerance", "0", "--json"];
    check(&strict, 1, &["\"failed\": 2", "\"same_bits\": true"]);
}

#[test]
fn run_writes_what_it_computes() {
    let output = std::env::temp_dir().join(format!("opfuse-run-{}.npz", std::process::id()));
    let (program, data) = (model("encoder.pt2"), model("encoder.npz"));
    check(&["run", text(&program), "--input", text(&data), "--output", text(&output)], 0, &["output 0: f32[2, 8, 32]"]);
    let found = opfuse::load(&output).expect("it was written");
    assert_eq!(found["0"].sizes(), [2, 8, 32]);
    std::fs::remove_file(output).expect("it is there");
}

#[test]
fn explain_and_bench_make_inputs_up() {
    let path = model("encoder.pt2");
    check(&["explain", text(&path)], 0, &["kernel"]);
    check(&["explain", text(&path), "--format", "html"], 0, &["<html"]);
    check(&["bench", text(&path), "--size", "2", "--seconds", "0.05"], 0, &["speed-up", "best of the calls"]);
}

#[test]
fn profiles_show_kernels_and_lines_of_the_source() {
    let path = model("encoder.pt2");
    check(&["profile", text(&path), "--calls", "2"], 0, &["kernel", "GB/s", "captures 0"]);
    let trace = std::env::temp_dir().join(format!("opfuse-trace-{}.json", std::process::id()));
    check(&["profile", text(&path), "--eager", "--calls", "2", "--trace", text(&trace)], 0, &["op aten::", ".py:"]);
    assert!(std::fs::read_to_string(&trace).expect("it was written").contains("traceEvents"));
    std::fs::remove_file(trace).expect("it is there");
    check(&["profile", text(&path), "--json"], 0, &["opfuse.profile/1"]);
}

#[test]
fn what_cannot_be_done_has_an_exit_code() {
    check(&["inspect", "/none.pt2"], 3, &["/none.pt2", "cannot be opened"]);
    check(&["inspect", text(&model("bert.npz"))], 3, &["models/"]);
    check(&["inspect"], 2, &["Usage"]);
}
