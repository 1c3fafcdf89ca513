//! What a program is given: numbers to compare with, a folder to draw into, and a clock.

use opfuse::{DType, Error, Result, StateDict, Tensor};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// One run of one program.
pub(crate) struct Run {
    pub(crate) program: &'static str,
    pub(crate) folder: PathBuf,
    pub(crate) expected: StateDict,
    pub(crate) times: bool,
}

impl Run {
    /// An array that the reference recorded for this program.
    pub(crate) fn recorded(&self, name: &str) -> Result<Tensor> {
        let key = format!("{}.{name}", self.program);
        let found = self.expected.get(&key).cloned();
        found.ok_or_else(|| Error::argument("science", format!("expected.npz has no array {key}")))
    }

    /// Fails if `found` is further from the recorded array than `tolerance`, measured by its greatest magnitude.
    pub(crate) fn check(&self, name: &str, found: &Tensor, tolerance: f64) -> Result<()> {
        let expected = self.recorded(name)?.to_dtype(DType::F64)?;
        let scale = expected.abs()?.max_all()?.item::<f64>()?;
        let closeness = found.closeness(&expected, 0.0, tolerance * scale)?;
        if closeness.is_close() {
            return Ok(());
        }
        Err(Error::argument("science", format!("{}.{name}: {closeness}", self.program)))
    }

    /// The path of a file to draw.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Prints a line of the summary.
    pub(crate) fn say(&self, line: impl std::fmt::Display) {
        println!("{:12} {line}", self.program);
    }

    /// Prints how long two forms of the same work take, if that is asked for.
    pub(crate) fn race<R>(
        &self,
        what: &str,
        eager: impl Fn() -> Result<R>,
        compiled: impl Fn() -> Result<R>,
    ) -> Result<()> {
        if self.times {
            let (eager, compiled) = (seconds(eager)?, seconds(compiled)?);
            let [a, b] = [eager, compiled].map(|seconds| 1e6 * seconds);
            self.say(format!("{what}: eager {a:.1} µs, compiled {b:.1} µs, ratio {:.1}", eager / compiled));
        }
        Ok(())
    }
}

/// The path of a file beside this source.
pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/science").join(name)
}

/// An error that names the file.
pub(crate) fn file_error(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::File { path: path.display().to_string(), message: error.to_string() }
}

/// The least time of five, each an average of as many calls as a twentieth of a second has.
fn seconds<R>(work: impl Fn() -> Result<R>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..5 {
        let begun = Instant::now();
        let mut calls = 0;
        while begun.elapsed().as_secs_f64() < 0.05 {
            work()?;
            calls += 1;
        }
        least = least.min(begun.elapsed().as_secs_f64() / f64::from(calls));
    }
    Ok(least)
}
