//! Eight programs of science: each computes, draws, and compares its numbers with those of NumPy and SciPy.
//!
//! `cargo run --release --example science` runs all of them, `… -- heat` one. `… -- heat FOLDER` or `… -- all FOLDER`
//! draws into a folder other than `target/science`. With `--times`, eager calls are timed beside compiled ones.
//! Videos are animated PNG files, which browsers play.
//!
//! `expected.npz` holds the numbers of `scripts/science_reference.py`, and the observations that the filters are given.
//! A number that is off by more than the tolerance of its check ends the program with an error.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

mod draws;
mod heat;
mod ising;
mod kalman;
mod nbody;
mod particle;
mod photograph;
mod pictures;
mod plots;
mod run;
mod spectrogram;
mod wave;

use opfuse::{DType, Error, Result, set_default_dtype};
use run::Run;
use std::path::{Path, PathBuf};
use std::time::Instant;

type Program = fn(&Run) -> Result<()>;

const PROGRAMS: [(&str, Program); 8] = [
    ("heat", heat::run),
    ("wave", wave::run),
    ("ising", ising::run),
    ("kalman", kalman::run),
    ("particle", particle::run),
    ("nbody", nbody::run),
    ("spectrogram", spectrogram::run),
    ("photograph", photograph::run),
];

fn main() -> Result<()> {
    let (flags, words): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word.starts_with("--"));
    if let Some(flag) = flags.iter().find(|flag| *flag != "--times") {
        return Err(Error::argument("science", format!("there is no flag {flag}; there is --times")));
    }
    let name = words.first().map_or("all", String::as_str);
    let programs: Vec<_> = PROGRAMS.iter().filter(|(program, _)| name == "all" || name == *program).collect();
    if programs.is_empty() || words.len() > 2 {
        let names = PROGRAMS.map(|(name, _)| name).join(", ");
        return Err(Error::argument("science", format!("give one of {names}, all; and a folder, if you like")));
    }
    let folder = match words.get(1) {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("target/science"),
    };
    std::fs::create_dir_all(&folder).map_err(|error| run::file_error(&folder, error))?;
    // As in NumPy: `linspace`, and integers divided, are f64.
    let _default = set_default_dtype(DType::F64)?;
    let expected = opfuse::load(run::data("expected.npz"))?;

    for &(name, program) in programs {
        let begun = Instant::now();
        program(&Run { program: name, folder: folder.clone(), expected: expected.clone(), times: !flags.is_empty() })?;
        println!("{name:12} agrees with NumPy and SciPy ({:.2} s)", begun.elapsed().as_secs_f64());
    }
    println!("pictures and plots: {}", folder.display());
    Ok(())
}
