//! What the guide promises about the length of a run.

/// The first program of the guide, without its model and its data, is ten lines at most.
#[test]
fn a_run_is_ten_lines_beside_the_model() {
    let guide = include_str!("../../docs/training.md");
    let program = guide.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it has a program");
    let (_, run) = program.split_once("fn main() -> Result<()> {\n").expect("it has a main function");
    let model = ["let data", "let path", "let model", "std::fs::remove_file", "Ok(())", "}"];
    let lines: Vec<&str> = run
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//") && !model.iter().any(|own| line.starts_with(own)))
        .collect();
    assert!((5..=10).contains(&lines.len()), "{} lines:\n{}", lines.len(), lines.join("\n"));
    for part in ["Loader::", "Optimizer::", "Checkpoint::", ".resume()", "compile(", ".save()"] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part} is not among the lines");
    }
}
