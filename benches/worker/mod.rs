//! The workers of `scripts/linalg.sh` and `scripts/fourier.sh`: each times one row beside other libraries.
//!
//! `WORKER ROW DTYPE THREADS SECONDS` prints the microseconds of the fastest call within so many seconds, after two
//! calls that are not counted. A row is a name and two sizes, such as `fft 1000x1024`.

use opfuse::device::pool;
use opfuse::{DType, Error, Result, Tensor};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// What is timed.
pub(crate) type Call = Box<dyn Fn() -> Result<Tensor> + Send + Sync>;

/// Runs the worker `name`. `made` gives the call of a row.
///
/// # Errors
/// If the words of the command line are others, or if a call fails.
pub(crate) fn run(name: &str, peers: &str, made: impl Fn(&str, [usize; 2], DType) -> Result<Call>) -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.is_empty() {
        println!("scripts/{name}.sh compares with {peers}");
        return Ok(());
    }
    let [row, dtype, threads, seconds] = &words[..] else {
        return Err(Error::argument(name, format!("usage: {name} ROW DTYPE THREADS SECONDS")));
    };
    let misread = |_| Error::argument(name, "THREADS and SECONDS are whole numbers");
    let (threads, seconds): (usize, u64) = (threads.parse().map_err(misread)?, seconds.parse().map_err(misread)?);
    let (kind, sizes) = sizes(row).ok_or_else(|| Error::argument(name, format!("{row} has no sizes")))?;
    let call = made(kind, sizes, if dtype == "f32" { DType::F32 } else { DType::F64 })?;
    let best = pool::with_threads(threads, || fastest(&call, Duration::from_secs(seconds)))?;
    println!("{:.2}", best.as_secs_f64() * 1e6);
    Ok(())
}

fn sizes(row: &str) -> Option<(&str, [usize; 2])> {
    let (name, sizes) = row.split_once(' ')?;
    let (first, second) = sizes.split_once('x')?;
    Some((name, [first.parse().ok()?, second.parse().ok()?]))
}

fn fastest(call: &Call, during: Duration) -> Result<Duration> {
    let (begin, mut best) = (Instant::now(), Duration::MAX);
    for nth in 0.. {
        let start = Instant::now();
        black_box(call()?);
        if nth >= 2 {
            best = best.min(start.elapsed());
            if begin.elapsed() > during {
                break;
            }
        }
    }
    Ok(best)
}
