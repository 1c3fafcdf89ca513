//! Eight programs of science: each computes, draws, and compares its numbers with those of NumPy and SciPy.
//!
//! `cargo run --release --example science` runs all of them, `… -- heat` one. `… -- heat FOLDER` draws into a folder
//! other than `target/science`. With `--times`, steps of Rust's eager calls are timed beside compiled ones.
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

use opfuse::{Error, Result};
use run::Run;
use std::path::{Path, PathBuf};
use std::time::Instant;

const PROGRAMS: [(&str, fn(&Run) -> Result<()>); 8] = [
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
    // A first word that is no program is the folder.
    let one = words.first().and_then(|word| PROGRAMS.iter().find(|(name, _)| name == word));
    let folder = match words.get(usize::from(one.is_some())) {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("target/science"),
    };
    std::fs::create_dir_all(&folder).map_err(|error| run::file_error(&folder, error))?;
    let expected = opfuse::load(run::data("expected.npz"))?;

    for &(name, program) in one.map_or(&PROGRAMS[..], std::slice::from_ref) {
        let begun = Instant::now();
        program(&Run { program: name, folder: folder.clone(), expected: expected.clone(), times: !flags.is_empty() })?;
        println!("{name:12} agrees with NumPy and SciPy ({:.2} s)", begun.elapsed().as_secs_f64());
    }
    println!("pictures and plots: {}", folder.display());
    Ok(())
}
