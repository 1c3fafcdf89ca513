//! The eager twin against the compiled twin: everything that can be observed, after every call.

use super::calls::{over, set_rate};
use super::given::{Before, Made};
use super::interpret::open;
use super::known::is_documented;
use super::program::{After, Settings};
use crate::bits::bits;
use crate::panics::message;
use crate::unplaced::unplaced;
use opfuse::autograd::{GradOptions, grad};
use opfuse::compile::{BreakPolicy, CompileOptions, Counts, Determinism, Stance, compile_with, stance};
use opfuse::device::{allocator, pool};
use opfuse::internals::codegen::tier::Tier;
use opfuse::internals::fusion::{Options, Order};
use opfuse::{Device, Error, Generator, Result, Tensor, TensorStruct, manual_seed};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The number of the call.
    pub(crate) call: usize,
    /// What was compared: `bits`, `strides`, `outcome`, ….
    pub(crate) kind: &'static str,
    /// Of what.
    pub(crate) place: String,
    pub(crate) eager: String,
    pub(crate) compiled: String,
}

/// One observed fact.
struct Fact {
    kind: &'static str,
    place: String,
    value: String,
}

/// A function of captured tensors and inputs.
pub(crate) type Body<'a> = &'a (dyn Fn(&[Tensor], &[Tensor]) -> Result<Vec<Tensor>> + Sync + Send);

/// Makes the inputs of the call of that number, beside captured tensors and the call before.
pub(crate) type Inputs<'a> = &'a (dyn Fn(usize, &[Tensor], &Before) -> Result<Made> + Sync);

/// Inputs with a plain number.
#[derive(TensorStruct)]
struct Rated {
    inputs: Vec<Tensor>,
    rate: f64,
}

/// The plain numbers of the calls.
const RATES: [f64; 4] = [0.5, 0.25, -0.0, 3.0];
/// How many threads call a function at last.
const THREADS: usize = 3;

/// A function and how it is called.
pub(crate) struct Calls<'a> {
    pub(crate) captured: &'a (dyn Fn() -> Result<Made> + Sync),
    pub(crate) inputs: Inputs<'a>,
    pub(crate) n_calls: usize,
    pub(crate) settings: &'a Settings,
    pub(crate) body: Body<'a>,
}

/// Keeps other threads from the default generator, which belongs to the process, while a program draws from it.
pub(crate) fn turn(draws: bool) -> (Option<RwLockReadGuard<'static, ()>>, Option<RwLockWriteGuard<'static, ()>>) {
    static GENERATOR: RwLock<()> = RwLock::new(());
    if draws {
        (None, Some(GENERATOR.write().unwrap_or_else(PoisonError::into_inner)))
    } else {
        (Some(GENERATOR.read().unwrap_or_else(PoisonError::into_inner)), None)
    }
}

/// The first difference between the eager and the compiled twin.
pub(crate) fn difference(calls: &Calls<'_>) -> Option<Difference> {
    let _turn = turn(calls.settings.draws);
    pool::with_threads(calls.settings.threads, || both(calls)).err()
}

/// Checks a printed program.
pub(crate) fn check(
    captured: fn() -> Result<Made>,
    inputs: fn(usize, &[Tensor], &Before) -> Result<Made>,
    n_calls: usize,
    settings: &Settings,
    body: fn(&[Tensor], &[Tensor]) -> Result<Vec<Tensor>>,
) {
    let calls = Calls { captured: &captured, inputs: &inputs, n_calls, settings, body: &body };
    if let Some(found) = difference(&calls) {
        panic!("{found:#?}");
    }
}

/// Options of fusion: the default ones first.
fn fusion(number: usize) -> Options {
    let default = CompileOptions::default().fusion;
    match number {
        1 => Options { max_fuse_depth: 2, ..default },
        2 => Options { max_function_args: 4, ..default },
        3 => Options { order: Order::Strict, ..default },
        4 => Options { opt_level: 0, ..default },
        _ => default,
    }
}

/// How compiled functions ran, over all programs: calls, hits, deferred and eager ones.
pub(crate) static RAN: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

fn note(counts: &Counts) {
    let all = [counts.calls, counts.hits, counts.deferred, counts.eager];
    RAN.iter().zip(all).for_each(|(sum, count)| {
        sum.fetch_add(count, Ordering::Relaxed);
    });
}

fn both(case: &Calls<'_>) -> std::result::Result<(), Difference> {
    let body = case.body;
    let outside = |error: Error| Difference {
        call: 0,
        kind: "setup",
        place: String::new(),
        eager: error.to_string(),
        compiled: String::new(),
    };
    let captured = [(case.captured)().map_err(outside)?, (case.captured)().map_err(outside)?];
    let options = CompileOptions {
        tier: case.settings.tier.and_then(Tier::from_name),
        stance: if case.settings.deferred { Stance::Deferred } else { Stance::Default },
        determinism: if case.settings.checked { Determinism::Checked } else { Determinism::Assumed },
        capacity: case.settings.capacity,
        fusion: fusion(case.settings.fusion),
        breaks: if case.settings.whole { BreakPolicy::Eager } else { BreakPolicy::Allow },
        ..CompileOptions::default()
    };
    let plain = compile_with(|inputs: &[Tensor]| body(&captured[1].tensors, inputs), options.clone());
    let with_rate = |given: &Rated| {
        set_rate(given.rate);
        body(&captured[1].tensors, &given.inputs)
    };
    let rated = compile_with(with_rate, options);
    let call_at = |call: usize, inputs: &[Tensor]| match case.settings.rates {
        true => rated.call(&Rated { inputs: inputs.to_vec(), rate: RATES[call % RATES.len()] }),
        false => plain.call(inputs),
    };
    let eager_at = |call: usize, inputs: &[Tensor]| {
        if case.settings.rates {
            set_rate(RATES[call % RATES.len()]);
        }
        body(&captured[0].tensors, inputs)
    };
    let mut kept: [Vec<Tensor>; 2] = [Vec::new(), Vec::new()];
    let mut before = [Before::default(), Before::default()];
    for call in 0..case.n_calls {
        let eager = {
            let _eager = stance(Stance::Eager);
            let run = |inputs: &[Tensor]| eager_at(call, inputs);
            observe(case, call, &captured[0], &run, &mut before[0])
        };
        let run = |inputs: &[Tensor]| call_at(call, inputs);
        // What a compiled function does not write has other bits than what an eager call left there.
        allocator::set_fill(Some(1));
        let found = observe(case, call, &captured[1], &run, &mut before[1]);
        allocator::set_fill(None);
        compare(call, &eager, &found)?;
        let is_full = |facts: &[Fact]| facts.first().is_some_and(|fact| fact.value.starts_with("error OutOfMemory"));
        if is_full(&eager) && is_full(&found) {
            // What the eager call wrote before stays written, so nothing can be compared from here on.
            return Ok(());
        }
        kept.iter_mut().zip(&before).for_each(|(kept, before)| kept.extend(before.results.iter().cloned()));
    }
    note(&if case.settings.rates { rated.counts() } else { plain.counts() });
    let facts = kept.map(|kept| {
        let mut facts = Vec::new();
        kept.iter().enumerate().for_each(|(i, tensor)| look(&mut facts, &format!("kept result {i}"), tensor));
        facts
    });
    compare(case.n_calls, &facts[0], &facts[1])?;
    let is_alone = captured[0].tensors.is_empty() && captured[0].memories.is_empty() && !case.settings.draws;
    if !(case.settings.shared && is_alone) {
        return Ok(());
    }
    let on_a_thread = || {
        for call in (0..case.n_calls).rev() {
            let eager = {
                let _eager = stance(Stance::Eager);
                let run = |inputs: &[Tensor]| eager_at(call, inputs);
                observe(case, call, &captured[0], &run, &mut Before::default())
            };
            let run = |inputs: &[Tensor]| call_at(call, inputs);
            let found = observe(case, call, &captured[1], &run, &mut Before::default());
            compare(call, &eager, &found)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(on_a_thread)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("panics are observed"))
    })
}

/// What a difference is about, gravest first.
const KINDS: &[&str] = &[
    "setup",
    "panic",
    "bits",
    "outcome",
    "dtype",
    "sizes",
    "gradient",
    "aliases",
    "requires grad",
    "leaf",
    "inference",
    "number",
    "draws",
    "identity",
    "offset",
    "strides",
    "version",
    "strides of one",
];

/// The gravest difference between two lists of facts.
fn compare(call: usize, eager: &[Fact], found: &[Fact]) -> std::result::Result<(), Difference> {
    let mut gravest: Option<(usize, Difference)> = None;
    for (eager, found) in eager.iter().zip(found) {
        let is_full = |fact: &Fact| fact.kind == "outcome" && fact.value.starts_with("error OutOfMemory");
        if is_full(eager) && is_full(found) {
            // A compiled call without memory has done nothing, an eager one what came before.
            break;
        }
        if eager.place == found.place && eager.kind == found.kind && eager.value == found.value {
            continue;
        }
        if eager.kind == "outcome" && eager.place == found.place && is_same_error(&eager.value, &found.value) {
            continue;
        }
        if is_documented(&eager.value, &found.value) {
            break;
        }
        let rank = KINDS.iter().position(|kind| *kind == eager.kind).expect("every kind is listed");
        if gravest.as_ref().is_none_or(|(other, _)| rank < *other) {
            let (kind, place) = (eager.kind, eager.place.clone());
            let (eager, compiled) = (eager.value.clone(), found.value.clone());
            gravest = Some((rank, Difference { call, kind, place, eager, compiled }));
        }
        // Facts after one that is missing are about something else.
        if eager.place != found.place || eager.kind != found.kind || eager.kind == "outcome" {
            break;
        }
    }
    gravest.map_or(Ok(()), |(_, difference)| Err(difference))
}

/// Everything observable about one call.
fn observe(
    case: &Calls<'_>,
    call: usize,
    captured: &Made,
    run: &dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    before: &mut Before,
) -> Vec<Fact> {
    let mut facts = Vec::new();
    if case.settings.draws {
        manual_seed(call as u64);
    }
    let made = match (case.inputs)(call, &captured.tensors, before) {
        Ok(made) => made,
        Err(error) => return vec![Fact { kind: "setup", place: "inputs".into(), value: error.to_string() }],
    };
    let versions: Vec<u64> = made.tensors.iter().chain(&captured.tensors).map(Tensor::version).collect();
    let around = case.settings.around[call].map(open);
    let ran = catch_unwind(AssertUnwindSafe(|| run(&made.tensors)));
    drop(around);
    let outputs = match ran {
        Ok(Ok(outputs)) => {
            facts.push(Fact { kind: "outcome", place: "the call".into(), value: format!("{} results", outputs.len()) });
            outputs
        }
        Ok(Err(error)) => {
            let kind = if let Error::Panicked { .. } = error { "panic" } else { "outcome" };
            facts.push(Fact { kind, place: "the call".into(), value: shown_error(&error) });
            Vec::new()
        }
        Err(panic) => {
            facts.push(Fact { kind: "panic", place: "the call".into(), value: format!("panic: {}", message(&*panic)) });
            Vec::new()
        }
    };
    let known: Vec<(String, &Tensor)> = names("input", &made.tensors)
        .chain(names("captured", &captured.tensors))
        .chain(names("result", &outputs))
        .collect();
    let n_before = known.len() - outputs.len();
    for (i, output) in outputs.iter().enumerate() {
        let before = &known[..n_before + i];
        let place = format!("result {i}");
        let same = before.iter().find(|(_, other)| other.is_same(output)).map_or("none", |(name, _)| name);
        facts.push(Fact { kind: "identity", place: place.clone(), value: same.into() });
        let aliases: Vec<&str> =
            before.iter().filter(|(_, other)| other.is_alias_of(output)).map(|(name, _)| name.as_str()).collect();
        facts.push(Fact { kind: "aliases", place: place.clone(), value: format!("{aliases:?}") });
        look(&mut facts, &place, output);
        let origin = before[..n_before].iter().find(|(_, other)| other.is_alias_of(output));
        if let (true, Some((_, origin))) = (output.numel() > 0, origin) {
            // An input may be a result of an earlier call, whose place in memory is its own affair.
            let offset = output.storage_offset() as i64 - origin.storage_offset() as i64;
            facts.push(Fact { kind: "offset", place, value: offset.to_string() });
        }
    }
    for ((name, tensor), version) in known[..n_before].iter().zip(versions) {
        look(&mut facts, name, tensor);
        // A compiled call writes back once, however often the function writes.
        let is_written = tensor.version() > version;
        facts.push(Fact { kind: "version", place: name.clone(), value: format!("counted a write: {is_written}") });
    }
    for (name, memory) in names("memory of input", &made.memories).chain(names("captured memory", &captured.memories)) {
        let all = over(memory, memory.sizes(), memory.strides(), 0).and_then(|all| bits(&all));
        facts.push(Fact { kind: "bits", place: name, value: shown(all) });
    }
    let leaves = || {
        names("input", &made.tensors)
            .chain(names("captured", &captured.tensors))
            .chain(names("leaf of input", &made.leaves))
            .chain(names("leaf of captured", &captured.leaves))
            .filter(|(_, tensor)| tensor.is_leaf())
    };
    gradients(&mut facts, leaves(), "");
    if case.settings.draws {
        let drawn = Generator::default_of(Device::CPU).map(|generator| generator.state());
        facts.push(Fact { kind: "draws", place: "the generator".into(), value: format!("{drawn:?}") });
    }
    // A hook of a result does not see gradients that flow there through other results of a compiled call, nor those of
    // a backward pass that is recorded.
    let is_alone = outputs.iter().filter(|output| output.requires_grad()).count() == 1;
    let is_seen = is_alone && case.settings.after == After::Backward;
    let kept: Vec<(String, &Tensor)> = match case.settings.hooks && is_seen {
        true => names("result", &outputs).filter(|(_, output)| hooked(output)).collect(),
        false => Vec::new(),
    };
    let outcome = match catch_unwind(AssertUnwindSafe(|| afterwards(case.settings.after, &outputs, leaves()))) {
        Ok(Ok(extra)) => {
            for (i, extra) in extra.iter().enumerate() {
                look(&mut facts, &format!("gradient {i}"), extra);
            }
            "none".into()
        }
        Ok(Err(error)) => shown_error(&error),
        Err(panic) => {
            let value = format!("panic: {}", message(&*panic));
            facts.push(Fact { kind: "panic", place: "backward".into(), value: value.clone() });
            value
        }
    };
    facts.push(Fact { kind: "outcome", place: "backward".into(), value: outcome });
    gradients(&mut facts, leaves(), " after backward");
    gradients(&mut facts, kept.into_iter(), " after backward");
    if case.settings.clears {
        for tensor in captured.tensors.iter().chain(&captured.leaves) {
            let cleared = tensor.set_grad(None);
            facts.push(Fact { kind: "outcome", place: "clearing".into(), value: format!("{cleared:?}") });
        }
    }
    *before = Before { inputs: made.tensors, results: outputs };
    facts
}

fn names<'a>(what: &'a str, tensors: &'a [Tensor]) -> impl Iterator<Item = (String, &'a Tensor)> {
    tensors.iter().enumerate().map(move |(i, tensor)| (format!("{what} {i}"), tensor))
}

/// Keeps the gradient of a result with a history, and changes it by a hook. Returns whether it has one.
fn hooked(output: &Tensor) -> bool {
    let hook = |gradient: &Tensor| gradient.mul(2.0).map(Some);
    output.requires_grad()
        && !output.is_leaf()
        && output.retain_grad().and_then(|()| output.register_hook(hook)).is_ok()
}

/// Gradients of the results; returned are those that `grad` gives.
fn afterwards<'a>(
    after: After,
    outputs: &[Tensor],
    leaves: impl Iterator<Item = (String, &'a Tensor)>,
) -> Result<Vec<Tensor>> {
    let mut loss: Option<Tensor> = None;
    for output in outputs.iter().filter(|output| output.requires_grad()) {
        let part = real(output)?.square()?.sum_all()?;
        loss = Some(if let Some(loss) = loss { loss.add(&part)? } else { part });
    }
    let Some(loss) = loss else { return Ok(Vec::new()) };
    match after {
        After::Nothing => Ok(Vec::new()),
        After::Backward => loss.backward().map(|()| Vec::new()),
        After::Twice => {
            let wanted: Vec<&Tensor> = leaves.map(|(_, leaf)| leaf).filter(|leaf| leaf.requires_grad()).collect();
            let options = GradOptions { create_graph: true, allow_unused: true, retain_graph: true };
            let found = grad(&[&loss], &wanted, &[], options)?;
            let mut sum: Option<Tensor> = None;
            for gradient in found.iter().flatten().filter(|gradient| gradient.requires_grad()) {
                let part = real(gradient)?.sum_all()?;
                sum = Some(if let Some(sum) = sum { sum.add(&part)? } else { part });
            }
            if let Some(sum) = sum {
                sum.backward()?;
            }
            Ok(found.into_iter().flatten().collect())
        }
    }
}

/// The tensor, or the parts of a complex one: a loss is real.
fn real(tensor: &Tensor) -> Result<Tensor> {
    if tensor.is_complex() { tensor.view_as_real() } else { Ok(tensor.clone()) }
}

fn gradients<'a>(facts: &mut Vec<Fact>, leaves: impl Iterator<Item = (String, &'a Tensor)>, when: &str) {
    for (name, leaf) in leaves {
        let place = format!("gradient of {name}{when}");
        match leaf.grad() {
            None => facts.push(Fact { kind: "gradient", place, value: "none".into() }),
            Some(gradient) => {
                facts.push(Fact { kind: "gradient", place: place.clone(), value: "some".into() });
                look(facts, &place, &gradient);
            }
        }
    }
}

/// What a tensor is, apart from what it shares.
fn look(facts: &mut Vec<Fact>, place: &str, tensor: &Tensor) {
    let mut push = |kind, value: String| facts.push(Fact { kind, place: place.into(), value });
    push("dtype", tensor.dtype().to_string());
    push("sizes", format!("{:?}", tensor.sizes()));
    push(
        "bits",
        shown(
            catch_unwind(AssertUnwindSafe(|| bits(tensor)))
                .unwrap_or_else(|panic| Err(Error::Panicked { message: message(&*panic) })),
        ),
    );
    push("requires grad", tensor.requires_grad().to_string());
    push("leaf", tensor.is_leaf().to_string());
    push("inference", tensor.is_inference().to_string());
    push("number", format!("{:?}", tensor.as_number()));
    let strides: Vec<usize> = tensor
        .sizes()
        .iter()
        .zip(tensor.strides())
        .map(|(&size, &stride)| if size == 1 { 0 } else { stride })
        .collect();
    push("strides", format!("{:?}", if tensor.numel() == 0 { Vec::new() } else { strides }));
    push("strides of one", format!("{:?}", tensor.strides()));
}

/// The elements of a tensor that has no more than these are listed, and those of larger ones are hashed.
const LISTED: usize = 4096;

fn shown(bits: Result<Vec<u64>>) -> String {
    match bits {
        Ok(bits) if bits.len() > LISTED => {
            let mut hasher = DefaultHasher::new();
            bits.hash(&mut hasher);
            format!("{} elements of the hash {:x}", bits.len(), hasher.finish())
        }
        Ok(bits) => bits.iter().map(|bits| format!("{bits:x}")).collect::<Vec<_>>().join(" "),
        Err(error) => format!("error: {error}"),
    }
}

/// The kind of an error, and its text. Compiled calls also say where the call was recorded, which eager calls do not.
fn shown_error(error: &Error) -> String {
    format!("error {}: {}", error.kind(), unplaced(error))
}

/// Whether both are errors of one kind; their texts may name other versions, values or operators.
fn is_same_error(one: &str, other: &str) -> bool {
    let kind = |text: &str| text.strip_prefix("error ").and_then(|text| text.split(':').next().map(str::to_string));
    kind(one).is_some() && kind(one) == kind(other)
}
