//! Runs the worker of the comparison on some rows. It checks their results against what other libraries found, and
//! answers with an error for a row that differs.

use std::error::Error;
use std::process::Command;

const ROWS: [&str; 8] = ["W01s", "W04", "W13", "W14", "W15b", "W18k", "W20c", "W22"];

#[test]
fn rows_have_the_results_of_other_libraries() -> Result<(), Box<dyn Error>> {
    for peer in ["opfuse-eager", "opfuse-compile"] {
        let run = Command::new(env!("CARGO_BIN_EXE_opfuse-peers"))
            .args(["--peer", peer, "--threads", "2", "--budget", "0.01", "--workloads", &ROWS.join(",")])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .output()?;
        let answers = String::from_utf8(run.stdout)?;
        assert!(run.status.success(), "{peer}: {}{answers}", String::from_utf8_lossy(&run.stderr));
        for row in ROWS {
            let field = format!("\"workload\":\"{row}\"");
            let answer = answers.lines().find(|line| line.contains(&field)).unwrap_or_default();
            assert!(answer.contains("\"min_s\":") && !answer.contains("\"error\""), "{peer} {row}: {answers}");
        }
    }
    Ok(())
}
