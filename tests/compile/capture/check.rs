//! One case, eagerly and compiled: the same results, errors, strides, aliases, writes and draws at every call.

use crate::unplaced::unplaced;
use opfuse::compile::{BreakPolicy, CompileOptions, Counts, Stance};
use opfuse::device::Device;
use opfuse::{DType, Generator, Reason, Result, Tensor, compile_with};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The state of a function besides its inputs. The eager one and the compiled one have one each, made alike.
pub(crate) struct World {
    pub(crate) weight: Tensor,
    pub(crate) generator: Generator,
    calls: AtomicUsize,
    /// How often the function ran; only compiled functions run less often than they are called.
    pub(crate) runs: AtomicUsize,
}

impl World {
    fn new() -> Result<World> {
        let generator = Generator::new(Device::CPU);
        generator.manual_seed(7);
        let (calls, runs) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(World { weight: ramp(&[4], 0)?, generator, calls, runs })
    }

    /// The number of the call, counted outside the function.
    pub(crate) fn call(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

/// A function and how it is called.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) function: fn(&World, &[Tensor]) -> Result<Vec<Tensor>>,
    /// The shapes of the inputs of each call.
    pub(crate) calls: &'static [&'static [&'static [usize]]],
    /// Changes the state before each call.
    pub(crate) before: fn(&World) -> Result<()>,
    /// Prepares the inputs before each call.
    pub(crate) inputs: fn(Vec<Tensor>) -> Result<Vec<Tensor>>,
    /// How the compiled function must have run after all calls.
    pub(crate) expect: Expect,
}

/// How a compiled function runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// As one graph: the function itself runs only while it is captured.
    Compiled,
    /// In segments: graphs before and after values are read.
    Segments,
    /// In either way, or eagerly with a reason.
    Any,
}

impl Case {
    pub(crate) const fn new(
        name: &'static str,
        calls: &'static [&'static [&'static [usize]]],
        expect: Expect,
        function: fn(&World, &[Tensor]) -> Result<Vec<Tensor>>,
    ) -> Case {
        Case { name, function, calls, before: |_| Ok(()), inputs: Ok, expect }
    }

    pub(crate) const fn before(mut self, before: fn(&World) -> Result<()>) -> Case {
        self.before = before;
        self
    }

    pub(crate) const fn inputs(mut self, inputs: fn(Vec<Tensor>) -> Result<Vec<Tensor>>) -> Case {
        self.inputs = inputs;
        self
    }
}

/// Distinct numbers of both signs.
pub(crate) fn ramp(sizes: &[usize], seed: usize) -> Result<Tensor> {
    let count: usize = sizes.iter().product();
    let value = |i: usize| (i as f32 * 0.37 + seed as f32 * 0.71).sin() * 3.0 + i as f32 * 1e-3;
    Tensor::from_slice(&(0..count).map(value).collect::<Vec<f32>>(), sizes)
}

/// Everything observable about a tensor.
pub(crate) fn look(tensor: &Tensor) -> String {
    let values = match tensor.dtype() {
        DType::F32 => tensor.to_vec::<f32>().map(|values| values.iter().map(|value| value.to_bits()).collect()),
        _ => tensor.to_dtype(DType::I64).and_then(|whole| whole.to_vec::<i64>()).map(|values| {
            let bits: Vec<u32> = values.iter().map(|&value| value as u32).collect();
            bits
        }),
    };
    let (ty, number) = (tensor.ty(), tensor.as_number());
    format!("{ty} strides {:?} offset {} {number:?} {values:?}", tensor.strides(), tensor.storage_offset())
}

/// The eager side or the compiled side.
pub(crate) struct Side {
    pub(crate) world: World,
    case: &'static Case,
}

impl Side {
    pub(crate) fn new(case: &'static Case) -> Result<Side> {
        Ok(Side { world: World::new()?, case })
    }

    /// Everything observable about one call.
    fn observe(&self, call: usize, run: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>) -> Result<String> {
        self.world.calls.store(call, Ordering::Relaxed);
        (self.case.before)(&self.world)?;
        let shapes = self.case.calls[call];
        let fresh =
            shapes.iter().enumerate().map(|(index, sizes)| ramp(sizes, call * 10 + index)).collect::<Result<_>>()?;
        let inputs = (self.case.inputs)(fresh)?;
        let outputs = run(&inputs);
        let mut seen = Vec::new();
        match &outputs {
            Ok(outputs) => {
                let all: Vec<&Tensor> = inputs.iter().chain([&self.world.weight]).chain(outputs).collect();
                seen.push(format!("{} outputs", outputs.len()));
                for (index, output) in outputs.iter().enumerate() {
                    let aliases = all.iter().map(|other| other.is_alias_of(output) && output.numel() > 0);
                    seen.push(format!("output {index}: {} aliases {:?}", look(output), aliases.collect::<Vec<_>>()));
                }
            }
            Err(error) => seen.push(format!("error: {}", unplaced(error))),
        }
        seen.extend(inputs.iter().enumerate().map(|(index, input)| format!("input {index}: {}", look(input))));
        seen.push(format!("weight: {}", look(&self.world.weight)));
        seen.push(format!("generator: {:?}", self.world.generator.state()));
        Ok(seen.join("\n"))
    }
}

/// Runs a case on both sides, and returns how the compiled function ran.
pub(crate) fn check(case: &'static Case, options: &CompileOptions) -> Result<(Counts, Option<Reason>)> {
    let (eager, other) = (Side::new(case)?, Side::new(case)?);
    let f = compile_with(
        |inputs: &[Tensor]| {
            other.world.runs.fetch_add(1, Ordering::Relaxed);
            (case.function)(&other.world, inputs)
        },
        options.clone(),
    );
    for call in 0..case.calls.len() {
        let expected = eager.observe(call, |inputs| caught(|| (case.function)(&eager.world, inputs)))?;
        let found = other.observe(call, |inputs| f.call(inputs))?;
        assert_eq!(found, expected, "{}, call {call}, {options:?}\n{}", case.name, f.explain());
    }
    let counts = f.counts();
    assert_eq!(counts.calls, case.calls.len() as u64, "{}", case.name);
    let reason = f.explain().eager;
    let has_reasons = counts.eager == 0 || counts.hits > 0 || reason.is_some();
    let holds = match (case.expect, options.breaks, options.stance) {
        (Expect::Compiled, _, Stance::Default) => reason.is_none() && (counts.eager, counts.deferred) == (0, 0),
        (Expect::Segments, BreakPolicy::Allow, Stance::Default) => {
            // The first call ran eagerly and found the break, which came again in the deferred calls.
            counts.eager == 0 && counts.deferred + 1 == counts.calls && counts.breaks > 0
        }
        (Expect::Compiled | Expect::Segments, _, Stance::Deferred) => {
            counts.eager == 0 && counts.deferred == counts.calls
        }
        _ => has_reasons,
    };
    assert!(holds, "{}: {counts:?} {reason:?}", case.name);
    Ok((counts, reason))
}

/// A panic as the error that a compiled function makes of it.
fn caught(work: impl FnOnce() -> Result<Vec<Tensor>>) -> Result<Vec<Tensor>> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<&str>().map(ToString::to_string).unwrap_or_default();
        Err(opfuse::Error::Panicked { message })
    })
}

/// Silences the panics that cases make on purpose.
pub(crate) fn quietly() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload_as_str().is_some_and(|message| message.starts_with("on purpose")) {
                before(info);
            }
        }));
    });
}
