//! How does one op run now?
//!
//! An eager call is a one-op graph: it is decomposed, planned, lowered and run by the tiles of the vm like any other
//! graph, and the result is kept for the next call of the same kind. So eager and compiled code cannot differ in
//! meaning. Views never get that far: they are a new layout of the same storage.

mod graphs;
mod numerics;
mod recent;

pub use graphs::{graph_id, run_graph};
pub use numerics::{NumericsGuard, current_numerics, numerics};

use crate::codegen::tier::Tier;
use crate::device::{Device, DeviceKind, Shared};
use crate::error::{Error, Result};
use crate::fusion::{Options, plan};
use crate::ir::passes::{decompose, narrow_products};
use crate::ir::{Attr, Attrs, CallKey, Graph, Meaning, Op, TensorType};
use crate::runtime::{Array, BoxedResult, Executable, Failure, cuda, view};
use recent::Use;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

/// A tensor operand of an eager call.
#[derive(Debug, Clone, Copy)]
pub struct Argument<'a> {
    /// Its elements.
    pub array: &'a Array,
    /// Whether it stands for a plain number.
    pub number: bool,
}

impl Argument<'_> {
    /// Its type.
    pub fn ty(&self) -> TensorType {
        TensorType { number: self.number, ..self.array.ty() }
    }
}

/// Most calls a thread remembers.
pub const CAPACITY: usize = 2048;

thread_local! {
    /// What runs the calls that this thread has made; forgotten all at once when there are too many.
    static KNOWN: RefCell<FxHashMap<Box<[u64]>, Arc<Executable>>> = RefCell::new(FxHashMap::default());
}

/// Runs an op on arrays, where they are.
///
/// # Errors
/// What the op's inference says is wrong with the operands, out of memory, or an index outside its dimension.
pub fn run(op: Op, arguments: &[Argument<'_>], attrs: &[Attr]) -> Result<Array> {
    if let (true, [argument]) = (op.is_view(), arguments) {
        if gpu_of(arguments).is_none() {
            check_data(op, arguments)?;
        }
        return view(op, attrs, argument.array);
    }
    run_as(op, arguments, attrs, |array| array)
}

/// As [`run`] of an op that is no view, and makes something of the result where it lies: an array is large, and small
/// calls are many.
///
/// # Errors
/// As [`run`].
#[inline]
pub fn run_as<T>(
    op: Op,
    arguments: &[Argument<'_>],
    attrs: &[Attr],
    make: impl Copy + FnOnce(Array) -> T,
) -> Result<T> {
    match run_again(op, arguments, attrs, make) {
        Some(result) => result.map_err(|error| *error),
        None => run_known(op, arguments, attrs).map(make),
    }
}

/// As [`run_as`] of a call that this thread has made lately, on operands of the same layouts; `None` if it is another.
#[inline(always)]
pub fn run_again<T>(
    op: Op,
    arguments: &[Argument<'_>],
    attrs: &[Attr],
    make: impl FnOnce(Array) -> T,
) -> Option<BoxedResult<T>> {
    recent::with(op, arguments, attrs, Use::Made, |single| {
        single.run(arguments.len(), |index| arguments[index].array, make)
    })
}

/// Runs a call that is not at hand.
#[inline(never)]
fn run_known(op: Op, arguments: &[Argument<'_>], attrs: &[Attr]) -> Result<Array> {
    if let Some(device) = gpu_of(arguments) {
        return run_on(device, op, arguments, attrs);
    }
    check_data(op, arguments)?;
    let executable = executable_of(None, op, arguments, attrs, None)?;
    if let Some(single) = executable.single() {
        recent::keep(op, arguments, attrs, Use::Made, &executable);
        return single.run(arguments.len(), |index| arguments[index].array, |array| array).map_err(|error| *error);
    }
    let arrays: SmallVec<[&Array; 4]> = arguments.iter().map(|argument| argument.array).collect();
    let mut results = executable.run(&arrays)?;
    Ok(results.pop().expect("a one-op graph has one output"))
}

/// Runs an op that is no view on a device, which operands need not tell; operands that are elsewhere stand for numbers.
///
/// # Errors
/// What the op's inference says is wrong with the operands, out of memory, code that NVRTC does not compile, a device that fails,
/// or what an earlier call on the same stream has found wrong with its elements: an index outside its dimension, or an integer that
/// is divided by zero. Of this call that is told at a later one, or when a value is read.
pub fn run_on(device: Device, op: Op, arguments: &[Argument<'_>], attrs: &[Attr]) -> Result<Array> {
    let executable = executable_of(Some(device), op, arguments, attrs, None)?;
    let arrays: SmallVec<[&Array; 4]> = arguments.iter().map(|argument| argument.array).collect();
    let mut results = executable.run(&arrays)?;
    results.pop().ok_or_else(|| Error::Internal { message: "a one-op graph has one output".into() })
}

/// Runs an op where `target` is and stores the result, converted to its dtype, there. Elements of the target are distinct
/// places, and its sizes are those of the result.
///
/// Operands may share the target's storage: where a kernel would read what it has already overwritten, the result is
/// made elsewhere first. What works in place is one run under one lock, so that writers on other threads lose nothing.
///
/// # Errors
/// As [`run`], or if a slice of the target is borrowed.
pub fn run_into(op: Op, arguments: &[Argument<'_>], attrs: &[Attr], target: &Array) -> Result<()> {
    let device = cuda::device_of([target.device()]);
    if device.is_none() {
        check_data(op, arguments)?;
    }
    let executable = executable_of(device, op, arguments, attrs, Some(target))?;
    let arrays: SmallVec<[&Array; 4]> = arguments.iter().map(|argument| argument.array).collect();
    let in_the_way = |array: &&Array| {
        Shared::ptr_eq(array.storage(), target.storage())
            && !(executable.works_in_place() && array.layout == target.layout && array.dtype == target.dtype)
    };
    if arrays.iter().any(in_the_way) {
        let result = run(op, arguments, attrs)?;
        let attrs = Attrs::from_iter([Attr::DType(target.dtype)]);
        return run_into(Op::ToCopy, &[Argument { array: &result, number: false }], &attrs, target);
    }
    if arguments.first().is_some_and(|first| std::ptr::eq(first.array, target)) && executable.works_in_place() {
        recent::keep(op, arguments, attrs, Use::Written, &executable);
    }
    executable.run_into(&arrays, target)
}

/// Runs a write by index where its first operand, the target, lies: only what an index names is touched, and nothing if one
/// is outside its dimension. Operands that share the target's storage are read as they were.
///
/// # Errors
/// As [`run_into`], with the target left as it was.
pub fn write_by_index(op: Op, arguments: [&Array; 3], attrs: &[Attr]) -> Result<()> {
    let target = arguments[0];
    let mut copies: [Option<Array>; 3] = [None, None, None];
    for (copy, array) in copies.iter_mut().zip(arguments).skip(1) {
        if Shared::ptr_eq(array.storage(), target.storage()) {
            *copy = Some(run(Op::Clone, &[Argument { array, number: false }], &[Attr::None])?);
        }
    }
    let [_, index, source] = [0, 1, 2].map(|at: usize| copies[at].as_ref().unwrap_or(arguments[at]));
    crate::runtime::write_by_index(op, attrs, [target, index, source])
}

/// As [`run_into`] of a call whose target is its first operand and that this thread has made lately, on operands of the
/// same layouts; `None` if it is another.
#[inline]
pub fn run_in_place_again(op: Op, arguments: &[Argument<'_>], attrs: &[Attr]) -> Option<BoxedResult<()>> {
    let (target, others) = arguments.split_first()?;
    let target = target.array;
    let in_the_way = |Argument { array, .. }: &Argument<'_>| {
        Shared::ptr_eq(array.storage(), target.storage())
            && !(array.layout.is(&target.layout) && array.dtype == target.dtype)
    };
    if others.iter().any(in_the_way) {
        return None;
    }
    recent::with(op, arguments, attrs, Use::Written, |single| {
        single.run_in_place(arguments.len(), |index| arguments[index].array)
    })
}

/// The GPU that one of the operands is on, if any is.
fn gpu_of(arguments: &[Argument<'_>]) -> Option<Device> {
    cuda::device_of(arguments.iter().map(|argument| argument.array.device()))
}

/// Arrays without bytes have no value, and memory of other devices is for their kernels.
fn check_data(op: Op, arguments: &[Argument<'_>]) -> Result<()> {
    let elsewhere = |argument: &&Argument<'_>| argument.array.device().kind != DeviceKind::Cpu;
    match arguments.iter().find(elsewhere) {
        None => Ok(()),
        Some(argument) => Err(not_here(op, argument.array.device())),
    }
}

#[cold]
fn not_here(op: Op, device: Device) -> Error {
    let (what, hint) = match device.kind {
        DeviceKind::Meta => (
            "an operand has no data".to_string(),
            "a tensor that a trace made has no value outside it; meta tensors have shapes only",
        ),
        DeviceKind::Cpu | DeviceKind::Cuda | DeviceKind::PrivateUse1 => {
            (format!("an operand is on {device}"), "move the operands to the cpu")
        }
    };
    Error::Device { op: op.name().into(), what, hint: hint.into() }
}

/// What runs a call, on a GPU if one is given.
fn executable_of(
    device: Option<Device>,
    op: Op,
    arguments: &[Argument<'_>],
    attrs: &[Attr],
    target: Option<&Array>,
) -> Result<Arc<Executable>> {
    let mut key = CallKey::default();
    key.call(op, attrs, arguments.len());
    for Argument { array, number } in arguments {
        key.operand(array.dtype, &array.layout.sizes, &array.layout.strides, *number);
    }
    if let Some(target) = target {
        key.operand(target.dtype, &target.layout.sizes, &target.layout.strides, false);
    }
    if let Some(device) = device {
        // No operand begins with such a word.
        let choice = u64::from(device.index.unwrap_or(0)) | (current_numerics() as u64) << 16;
        key.word(u64::MAX - choice);
    }
    if let Some(executable) = KNOWN.with_borrow(|known| known.get(&key[..]).cloned()) {
        return Ok(executable);
    }
    let graph = graph_of(op, arguments, attrs, target)?;
    let arrays = arguments.iter().map(|argument| argument.array).chain(target);
    let executable = Arc::new(build(device, graph, arrays)?);
    KNOWN.with_borrow_mut(|known| {
        if known.len() >= CAPACITY {
            known.clear();
        }
        known.insert(key[..].into(), executable.clone());
    });
    Ok(executable)
}

/// Elements of an operand from which a call is worth machine code; below, the vm runs it at once.
const MANY: usize = 1 << 14;

/// The tier that a single call on operands of these sizes runs on, unless its kernel suits another.
fn tier_at_once<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Option<Tier> {
    let most = arrays.into_iter().map(|array| array.layout.numel()).max().unwrap_or(0);
    (most < MANY).then_some(Tier::Vm)
}

/// The executable of a graph on arrays of these sizes, on a GPU if one is given.
fn build<'a>(device: Option<Device>, graph: Graph, arrays: impl IntoIterator<Item = &'a Array>) -> Result<Executable> {
    let Some(device) = device else {
        return Executable::build(&graph, &plan(&graph, &Options::default()), tier_at_once(arrays));
    };
    let graph = narrow_products(&graph);
    let plan = plan(&graph, &Options::default());
    Executable::build_on(device, current_numerics(), &graph, &plan)
        .map_err(|Failure { step, reason }| Error::invalid("plan", format!("step {step} is not lowered: {reason}")))
}

/// The graph of one op.
fn graph_of(op: Op, arguments: &[Argument<'_>], attrs: &[Attr], target: Option<&Array>) -> Result<Graph> {
    let mut graph = Graph::new();
    let inputs: SmallVec<[_; 4]> = arguments.iter().map(|argument| graph.input(argument.ty())).collect();
    let mut output = graph.add(op, &inputs, attrs.into())?;
    if let Some(target) = target {
        let is_kernel = matches!(op.row().meaning, Meaning::Body(..));
        if !is_kernel || graph[output].ty.dtype != target.dtype {
            output = graph.add(Op::ToCopy, &[output], Attrs::from_iter([Attr::DType(target.dtype)]))?;
        }
        graph.set_strides(output, &target.layout.strides);
    }
    graph.set_outputs(vec![output]);
    decompose(&graph)
}
