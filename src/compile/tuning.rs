//! Tuning: measures whether the steps of a plan are faster than their parts.
//!
//! The cost model may be wrong about a machine. With [`Tuning::Measured`](super::Tuning), the third run of a graph is
//! measured: its plan, and the same plan with every group split, run alternately on the inputs of that call. Each
//! kernel is timed. A group that is slower than its parts is split for good, with [`Reason::MeasuredSlower`]. All plans
//! give the same bits. Then the kernels of the plan that stays are timed, and reports name those that the model is
//! wrong about.

use super::explain::{Explain, Measured};
use super::options::{CompileOptions, Tuning};
use super::passes_page::Subject;
use super::pipeline::{self, Built};
use super::profiled;
use super::spans;
use crate::codegen::tier::Tier;
use crate::device::Device;
use crate::error::{Error, Reason, Result};
use crate::fusion::split::{Parts, split};
use crate::fusion::{Options, Plan, Rewritten, StepKind};
use crate::ir::{Graph, NodeId, Numerics};
use crate::profile;
use crate::runtime::{Array, Executable, Failure};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The run that is measured. By then caches and branch predictors are warm.
const MEASURED_RUN: u32 = 3;
/// The time of one comparison, unless the minimum number of runs takes longer.
const BUDGET: Duration = Duration::from_millis(20);
/// The minimum number of runs of each plan.
const MIN_RUNS: u32 = 5;
/// The parts must be faster by one part in this many, because less may be noise.
const MARGIN: u32 = 16;
/// The time to measure the kernels of the plan that stays, and the minimum number of runs.
const REPORT_BUDGET: Duration = Duration::from_millis(5);
const REPORT_RUNS: u32 = 3;
/// A group may be split, and then its parts.
const MAX_ROUNDS: usize = 2;

/// How graphs are built, and whether plans are measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) fusion: Options,
    pub(super) tier: Option<Tier>,
    pub(super) tuning: Tuning,
    /// The target GPU. `None` for the CPU.
    pub(super) device: Option<Device>,
    /// What results may depend on, on a GPU.
    pub(super) numerics: Numerics,
    /// The function that graphs are traced from, by the name of its type.
    pub(super) function: &'static str,
}

impl Settings {
    pub(super) fn of(options: &CompileOptions, function: &'static str) -> Settings {
        let (tier, numerics) = (options.tier_or_forced(), options.numerics.unwrap_or_default());
        Settings { fusion: options.fusion, tier, tuning: options.tuning, device: None, numerics, function }
    }
}

/// A built graph, and a better one if a measurement found it.
pub(super) struct Tuned {
    /// In a box, because programs are moved through many frames while they are built.
    first: Box<Built>,
    settings: Settings,
    runs: AtomicU32,
    better: OnceLock<Option<Box<Built>>>,
    /// What was traced.
    pub(super) subject: Subject,
    /// Tells it from all other graphs of this process.
    pub(super) id: u64,
    /// What its kernels took in profiles.
    pub(super) measured: Mutex<Vec<Measured>>,
}

impl Tuned {
    /// Builds a graph. The caller overwrites the `rewritten` inputs with their new values. `subject` turns the name of
    /// the function into what was traced.
    ///
    /// # Errors
    /// If the graph breaks an invariant.
    pub(super) fn build(
        graph: Graph,
        subject: fn(&'static str) -> Subject,
        rewritten: Vec<Rewritten>,
        settings: &Settings,
    ) -> Result<Tuned> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let (subject, id) = (subject(settings.function), NEXT_ID.fetch_add(1, Ordering::Relaxed));
        let _spans = (profiled::compiles(subject), spans::compile(subject, graph.len()));
        let first = match settings.device {
            None => pipeline::build_over(graph, subject, rewritten, &settings.fusion, settings.tier)?,
            Some(device) => pipeline::build_on(device, settings.numerics, graph, subject, &settings.fusion)?,
        };
        Ok(Tuned {
            first: Box::new(first),
            settings: *settings,
            runs: AtomicU32::new(0),
            better: OnceLock::new(),
            subject,
            id,
            measured: Mutex::default(),
        })
    }

    /// The graph that runs.
    #[inline]
    pub(super) fn built(&self) -> &Built {
        match self.better.get() {
            Some(Some(better)) => better,
            Some(None) | None => &self.first,
        }
    }

    /// The report of the graph that runs, with what profiles have measured of it.
    pub(super) fn explain(&self) -> Explain {
        let mut explain = Explain::of(self.built());
        let measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        for (group, measured) in explain.groups.iter_mut().zip(&*measured) {
            group.measured = Some(*measured).filter(|measured| measured.calls > 0);
        }
        explain
    }

    /// Notes what a kernel took. Numbers of kernels belong to the graph that runs.
    pub(super) fn note(&self, kernel: usize, time: Duration) {
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        if measured.len() <= kernel {
            measured.resize(kernel + 1, Measured::default());
        }
        measured[kernel].add(time);
    }

    /// Whether a measurement has found a better graph.
    pub(super) fn is_better(&self) -> bool {
        matches!(self.better.get(), Some(Some(_)))
    }

    /// Runs the graph, and measures its plan in the third run.
    ///
    /// # Errors
    /// Same as [`Executable::run`].
    #[inline]
    pub(super) fn run(&self, inputs: &[&Array]) -> Result<SmallVec<[Array; 2]>> {
        if self.settings.tuning == Tuning::Measured && self.runs.fetch_add(1, Ordering::Relaxed) + 1 == MEASURED_RUN {
            self.measure(inputs);
        }
        if profile::is_on() {
            return profiled::run(self, inputs);
        }
        self.built().executable.run(inputs)
    }

    #[cold]
    fn measure(&self, inputs: &[&Array]) {
        // After an error no better plan is known. The call itself will return the error.
        let better = tuned(&self.first, &self.settings, inputs).unwrap_or_default();
        if better.is_some() {
            // Times of another plan's kernels.
            self.measured.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        let _ = self.better.set(better.map(Box::new));
        let start = Instant::now();
        for run in 0.. {
            if run >= REPORT_RUNS && start.elapsed() > REPORT_BUDGET {
                break;
            }
            // The call itself returns the error.
            let Ok(times) = self.built().executable.run_timed(inputs) else { break };
            times.into_iter().enumerate().for_each(|(kernel, time)| self.note(kernel, time));
        }
    }
}

/// The same graph without the groups that are slower than their parts on these inputs. `None` if there are none.
///
/// # Errors
/// Same as [`Executable::run`].
fn tuned(built: &Built, settings: &Settings, inputs: &[&Array]) -> Result<Option<Built>> {
    let mut better: Option<Built> = None;
    for _ in 0..MAX_ROUNDS {
        let now = better.as_ref().unwrap_or(built);
        let slower = slower_groups(now, settings, inputs)?;
        if slower.is_empty() {
            break;
        }
        let plan = split(&now.graph, &settings.fusion, &now.plan, Parts::Base, &slower);
        let next = rebuilt(now, plan, settings)?;
        // Parts that are faster alone may be slower in the whole plan, because kernels share caches.
        let [before, after] = alternately([&now.executable, &next.executable], inputs)?.map(|times| total(&times));
        if after >= before {
            break;
        }
        better = Some(next);
    }
    Ok(better)
}

/// The groups that are slower than their parts. Both times are in the reason.
fn slower_groups(built: &Built, settings: &Settings, inputs: &[&Array]) -> Result<HashMap<usize, Reason>> {
    let is_group = |(_, step): &(usize, &crate::fusion::Step)| match &step.kind {
        StepKind::Kernel(_) | StepKind::Parts(_) => step.nodes.len() > 1,
        StepKind::Blocks(_) => true,
        StepKind::Alias | StepKind::Product | StepKind::Routine => false,
    };
    let groups = built.plan.steps.iter().enumerate().filter(is_group);
    let all: HashMap<usize, Reason> = groups.map(|(index, _)| (index, Reason::Disabled)).collect();
    let apart = split(&built.graph, &settings.fusion, &built.plan, Parts::Base, &all);
    if apart.steps.len() == built.plan.steps.len() {
        return Ok(HashMap::new());
    }
    let apart = rebuilt(built, apart, settings)?;
    let [together_times, apart_times] = alternately([&built.executable, &apart.executable], inputs)?;
    let step_of = steps_of_nodes(&built.plan);
    let mut parts: HashMap<usize, (usize, Duration)> = HashMap::new();
    for (step, &time) in kernels(&apart.plan).zip(&apart_times) {
        let Some(&whole) = step.nodes.first().and_then(|node| step_of.get(node)) else { continue };
        let (count, sum) = parts.entry(whole).or_default();
        *count += 1;
        *sum += time;
    }
    let indices = built.plan.steps.iter().enumerate().filter(|(_, step)| !matches!(step.kind, StepKind::Alias));
    let mut slower = HashMap::new();
    for ((index, _), &together) in indices.zip(&together_times) {
        let Some(&(count, sum)) = parts.get(&index) else { continue };
        if count > 1 && sum + sum / MARGIN < together {
            slower.insert(index, Reason::MeasuredSlower { together, apart: sum });
        }
    }
    Ok(slower)
}

fn steps_of_nodes(plan: &Plan) -> HashMap<NodeId, usize> {
    let steps = plan.steps.iter().enumerate();
    steps.flat_map(|(index, step)| step.nodes.iter().map(move |&node| (node, index))).collect()
}

fn kernels(plan: &Plan) -> impl Iterator<Item = &crate::fusion::Step> {
    plan.steps.iter().filter(|step| !matches!(step.kind, StepKind::Alias))
}

fn rebuilt(built: &Built, plan: Plan, settings: &Settings) -> Result<Built> {
    let start = Instant::now();
    let executable = match settings.device {
        None => Executable::build(&built.graph, &plan, settings.tier)?,
        Some(device) => Executable::build_on(device, settings.numerics, &built.graph, &plan).map_err(
            |Failure { step, reason }| Error::invalid("plan", format!("step {step} is not lowered: {reason}")),
        )?,
    };
    let (traced, graph) = (built.traced.clone(), built.graph.clone());
    let (passes, merges) = (built.passes.clone(), built.merges.clone());
    let (rates, plan_time) = (built.rates, built.plan_time);
    let compile_time = built.compile_time + start.elapsed();
    Ok(Built { traced, graph, plan, executable, rates, passes, merges, plan_time, compile_time })
}

/// The best time of each kernel of two executables that run alternately.
fn alternately(executables: [&Executable; 2], inputs: &[&Array]) -> Result<[Vec<Duration>; 2]> {
    let mut best: [Vec<Duration>; 2] = Default::default();
    executables.iter().for_each(|executable| executable.warm());
    let start = Instant::now();
    // The first run is a warm-up.
    for run in 0.. {
        if run > MIN_RUNS && start.elapsed() > BUDGET {
            break;
        }
        for (executable, best) in executables.iter().zip(&mut best) {
            let times = executable.run_timed(inputs)?;
            match run {
                0 => *best = vec![Duration::MAX; times.len()],
                _ => best.iter_mut().zip(times).for_each(|(best, time)| *best = time.min(*best)),
            }
        }
    }
    Ok(best)
}

fn total(times: &[Duration]) -> Duration {
    times.iter().sum()
}
