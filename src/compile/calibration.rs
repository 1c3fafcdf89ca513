//! Calibration: the rates of this machine, for the cost model.
//!
//! By default plans are made for [`Rates::BUILT_IN`], so the same function has the same plan everywhere.
//! `OPFUSE_CALIBRATION` names a file with the rates of a machine. It is read once per process, and written if it does
//! not exist. [`calibrate`] measures at once; its rates go into `CompileOptions::fusion.rates`. If the file cannot be
//! read, the built-in rates are used, and reports say why.

use super::pipeline::{self, Built};
use crate::debug;
use crate::device::{Device, Shared, Storage, pool};
use crate::error::{Error, Result};
use crate::fusion::Options;
use crate::fusion::rates::{LEVELS, Rates, level};
use crate::ir::{Attr, Attrs, DType, Graph, Layout, NodeId, Op, TensorType};
use crate::runtime::Array;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The first line of a file.
const HEADER: &str = "opfuse rates 1";
/// The time to measure one rate. The largest arrays take one run more.
const BUDGET: Duration = Duration::from_millis(3);
/// The minimum number of runs per rate. The first one is a warm-up.
const MIN_RUNS: usize = 3;
/// The size in bytes of arrays that lie in memory: several times a large cache.
const MEMORY: usize = 96 << 20;

/// Rates, and their source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calibration {
    /// The rates.
    pub rates: Rates,
    /// Their source.
    pub source: Source,
}

/// The source of rates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The default.
    BuiltIn,
    /// Set in the options of the function.
    Given,
    /// The file that `OPFUSE_CALIBRATION` names.
    File(PathBuf),
    /// Measured by this process and written to that file.
    Measured(PathBuf),
    /// The built-in rates, because the file or the measurement failed; with the error.
    Failed(String),
}

impl Calibration {
    /// Rates with their source.
    pub fn of(rates: Rates) -> Calibration {
        let in_force = calibration();
        match rates {
            rates if rates == in_force.rates => in_force.clone(),
            Rates::BUILT_IN => Calibration { rates, source: Source::BuiltIn },
            rates => Calibration { rates, source: Source::Given },
        }
    }
}

/// The default rates of options, with their source.
///
/// The first call reads or writes the file of `OPFUSE_CALIBRATION`.
pub fn calibration() -> &'static Calibration {
    static IN_FORCE: OnceLock<Calibration> = OnceLock::new();
    IN_FORCE.get_or_init(|| match debug::calibration_file() {
        None => Calibration { rates: Rates::BUILT_IN, source: Source::BuiltIn },
        Some(path) => from_file(path),
    })
}

/// The rates in a file, which is written if it does not exist. If that fails, the built-in rates.
///
/// ```
/// use opfuse::internals::compile::calibration::{Source, from_file};
/// use opfuse::internals::fusion::Rates;
/// // A folder is no file with rates.
/// let calibration = from_file(std::env::temp_dir());
/// assert_eq!(calibration.rates, Rates::BUILT_IN);
/// assert!(matches!(calibration.source, Source::Failed(why) if why.contains("cannot be read")));
/// ```
pub fn from_file(path: impl AsRef<Path>) -> Calibration {
    let path = path.as_ref();
    let failed = |what: String| Calibration { rates: Rates::BUILT_IN, source: Source::Failed(what) };
    match read(path) {
        Ok(text) => match parse(&text) {
            Ok(rates) => Calibration { rates, source: Source::File(path.into()) },
            Err(error) => failed(format!("the calibration file {} is of no use: {error}", path.display())),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => match calibrate() {
            Ok(rates) => match write(path, &text(&rates)) {
                Ok(()) => Calibration { rates, source: Source::Measured(path.into()) },
                Err(error) => failed(format!("the calibration file {} cannot be written: {error}", path.display())),
            },
            Err(error) => failed(format!("calibration failed: {error}")),
        },
        Err(error) => failed(format!("the calibration file {} cannot be read: {error}", path.display())),
    }
}

/// The text of a calibration file.
fn read(path: &Path) -> std::io::Result<String> {
    // A device or a pipe may never end.
    const MOST_BYTES: u64 = 1 << 20;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Measures the rates of this machine on one thread. It takes a few milliseconds per rate.
///
/// # Errors
/// If there is not enough memory.
pub fn calibrate() -> Result<Rates> {
    pool::with_threads(1, measured)
}

fn measured() -> Result<Rates> {
    let built_in = Rates::BUILT_IN;
    let launch = time(&sum(64)?)?;
    let mut bandwidth = built_in.bandwidth;
    let held = LEVELS.iter().map(|level| level / 2).chain([MEMORY]);
    for (rate, bytes) in bandwidth.iter_mut().zip(held) {
        let n = bytes / 12;
        *rate = per_microsecond(12 * n, time(&sum(n)?)?.saturating_sub(launch));
    }
    let side = 512;
    let moved = 2 * side * side * 4;
    let crossed = per_microsecond(moved, time(&transposed(side)?)?.saturating_sub(launch));
    let n = LEVELS[0] / 8;
    let of_loop =
        |op, length| Ok::<_, Error>(per_microsecond(n * length, time(&chain(op, n, length)?)?.saturating_sub(launch)));
    let side = 192;
    let multiplied = time(&product(side)?)?.saturating_sub(launch);
    Ok(Rates {
        launch: u32::try_from(launch.as_nanos()).unwrap_or(u32::MAX).max(1),
        bandwidth,
        jump: (bandwidth[level(moved)] / crossed).max(1),
        plain: of_loop(Op::Mul, 16)?,
        functions: of_loop(Op::Tanh, 4)?,
        multiply_adds: per_microsecond(side * side * side, multiplied),
    })
}

fn per_microsecond(count: usize, time: Duration) -> u32 {
    let rate = count as f64 / (time.as_secs_f64() * 1e6).max(1e-6);
    (rate as u32).max(1)
}

/// The best time of a graph on inputs of ones. They are written, because new memory may be one page of zeros.
fn time(built: &Built) -> Result<Duration> {
    let types = built.graph.inputs().iter().map(|&input| &built.graph[input].ty);
    let inputs = types.map(ones).collect::<Result<Vec<Array>>>()?;
    let inputs: Vec<&Array> = inputs.iter().collect();
    built.executable.run(&inputs)?;
    let (start, mut best) = (Instant::now(), Duration::MAX);
    for run in 0.. {
        if run >= MIN_RUNS && start.elapsed() >= BUDGET {
            break;
        }
        let start = Instant::now();
        built.executable.run(&inputs)?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

fn ones(ty: &TensorType) -> Result<Array> {
    let mut storage = Storage::zeroed(Device::CPU, ty.bytes())?;
    bytemuck::cast_slice_mut(&mut storage.bytes_mut()[..ty.bytes()]).fill(1.0_f32);
    let layout = Layout { sizes: ty.sizes.clone(), strides: ty.strides.clone(), offset: 0 };
    Array::from_storage(Shared::new(storage), ty.dtype, layout)
}

fn built(sizes: &[&[usize]], function: impl FnOnce(&mut Graph, &[NodeId]) -> Result<NodeId>) -> Result<Built> {
    let mut graph = Graph::new();
    let inputs: Vec<NodeId> =
        sizes.iter().map(|sizes| graph.input(TensorType::contiguous(DType::F32, sizes))).collect();
    let output = function(&mut graph, &inputs)?;
    graph.set_outputs(vec![output]);
    pipeline::build(graph, &Options::default(), None)
}

fn sum(n: usize) -> Result<Built> {
    built(&[&[n], &[n]], |graph, x| graph.add(Op::Add, x, Attrs::from_elem(Attr::int(1), 1)))
}

/// `x^T + y`: one operand is read across its rows.
fn transposed(side: usize) -> Result<Built> {
    built(&[&[side, side], &[side, side]], |graph, x| {
        let across = graph.add(Op::Transpose, &x[..1], Attrs::from_iter([Attr::int(0), Attr::int(1)]))?;
        graph.add(Op::Add, &[across, x[1]], Attrs::from_elem(Attr::int(1), 1))
    })
}

/// A chain of one op. The second operand of a binary op is always an input.
fn chain(op: Op, n: usize, length: usize) -> Result<Built> {
    built(&[&[n], &[n]], |graph, x| {
        let mut value = x[0];
        for _ in 0..length {
            let args = [value, x[1]];
            value = graph.add(op, if op == Op::Mul { &args } else { &args[..1] }, Attrs::new())?;
        }
        Ok(value)
    })
}

fn product(side: usize) -> Result<Built> {
    built(&[&[side, side], &[side, side]], |graph, x| graph.add(Op::Mm, x, Attrs::new()))
}

/// Rates as text: a header, then one line per rate with its name and numbers.
pub fn text(rates: &Rates) -> String {
    let bandwidth = rates.bandwidth.map(|rate| rate.to_string()).join(" ");
    let Rates { launch, jump, plain, functions, multiply_adds, .. } = rates;
    format!(
        "{HEADER}\nlaunch {launch}\nbandwidth {bandwidth}\njump {jump}\nplain {plain}\nfunctions {functions}\n\
         multiply_adds {multiply_adds}\n"
    )
}

/// Rates of a text.
///
/// # Errors
/// The line that is not as [`text`] writes it.
pub fn parse(text: &str) -> Result<Rates> {
    let bad = |what: String| Error::invalid("rates", what);
    let mut lines = text.lines();
    if lines.next() != Some(HEADER) {
        return Err(bad(format!("the first line is not {HEADER:?}; delete the file to have it made again")));
    }
    let mut numbers = |name: &str, count: usize| {
        let line = lines.next().unwrap_or_default();
        let above_0 = |word: &str| word.parse::<u32>().ok().filter(|&number| number > 0);
        let words = line.strip_prefix(name).map(|rest| rest.split_whitespace().map(above_0));
        let found: Option<Vec<u32>> = words.and_then(Iterator::collect);
        found
            .filter(|numbers| numbers.len() == count)
            .ok_or_else(|| bad(format!("{line:?} is not {name:?} and {count} numbers above 0")))
    };
    let launch = numbers("launch", 1)?[0];
    let bandwidth = numbers("bandwidth", LEVELS.len() + 1)?;
    let bandwidth = bandwidth.try_into().map_err(|_| bad("bandwidth has other levels".into()))?;
    let mut one = |name: &str| Ok::<u32, Error>(numbers(name, 1)?[0]);
    Ok(Rates {
        launch,
        bandwidth,
        jump: one("jump")?,
        plain: one("plain")?,
        functions: one("functions")?,
        multiply_adds: one("multiply_adds")?,
    })
}

/// Writes a file atomically: readers see all of it or nothing.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let unfinished = PathBuf::from(name);
    std::fs::write(&unfinished, text)?;
    std::fs::rename(&unfinished, path)
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::BuiltIn => f.write_str("built in"),
            Source::Given => f.write_str("given"),
            Source::File(path) => write!(f, "read from {}", path.display()),
            Source::Measured(path) => write!(f, "measured for {}", path.display()),
            Source::Failed(what) => write!(f, "built in, because {what}"),
        }
    }
}
