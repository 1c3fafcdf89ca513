//! `opfuse`: a command line for programs that PyTorch exported.
//!
//! Exit codes: 0 if all went well; 1 if `check` found a difference; 2 if the command line is wrong; 3 if a file cannot
//! be read, or the program cannot be loaded or run.

mod bench;
mod check;
mod data;
mod explain;
mod inspect;
mod profile;
mod run;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Inspects, runs, checks, explains and times programs of torch.export (.pt2).
///
/// Exit codes: 0 all went well; 1 `check` found a difference; 2 the command line is wrong; 3 a file cannot be read, or
/// the program cannot be loaded or run.
#[derive(Parser)]
#[command(name = "opfuse", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// Threads that kernels use; all cores by default.
    #[arg(long, global = true, value_name = "N")]
    threads: Option<std::num::NonZeroUsize>,
}

#[derive(Subcommand)]
enum Command {
    /// Lists inputs, parameters and operators.
    Inspect(inspect::Arguments),
    /// Runs a program on arrays of files.
    Run(run::Arguments),
    /// Compares a program with recorded arrays, and compiled bits with eager ones.
    Check(check::Arguments),
    /// Shows what was fused, and why not more.
    Explain(explain::Arguments),
    /// Times eager and compiled calls.
    Bench(bench::Arguments),
    /// Shows where the time of calls goes, by kernel or by operator.
    Profile(profile::Arguments),
}

/// What a command found.
enum Outcome {
    Fine,
    Different,
}

/// Anything that goes wrong, as text.
type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let Arguments { command, json, threads } = Arguments::parse();
    if let Some(threads) = threads {
        opfuse::device::pool::set_num_threads(threads.get());
    }
    let outcome = match command {
        Command::Inspect(arguments) => inspect::run(&arguments, json),
        Command::Run(arguments) => run::run(&arguments, json),
        Command::Check(arguments) => check::run(&arguments, json),
        Command::Explain(arguments) => explain::run(&arguments, json),
        Command::Bench(arguments) => bench::run(&arguments, json),
        Command::Profile(arguments) => profile::run(&arguments, json),
    };
    match outcome {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Different) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(3)
        }
    }
}
