//! How does one op run now?
//!
//! An eager call is a graph of one op. It is decomposed, planned, lowered and run like any other graph, and the
//! executable is cached for the next call of the same kind. So eager and compiled code cannot differ in meaning. Views
//! need none of this: they are a new layout of the same storage.

mod graphs;
mod numerics;
mod recent;

pub use graphs::{executable, graph_id, run_graph};
pub use numerics::{NumericsGuard, current_numerics, numerics};

use crate::codegen::tier::Tier;
use crate::device::{Device, DeviceKind, Shared};
use crate::error::{Error, Result};
use crate::fusion::cost::CostModel;
use crate::fusion::{Options, Rates, plan};
use crate::ir::passes::{copy_windows, decompose, narrow_products};
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

/// Most calls that a thread caches.
pub const CAPACITY: usize = 2048;

thread_local! {
    /// Executables of this thread's calls. The table is cleared when it is full.
    static KNOWN: RefCell<FxHashMap<Box<[u64]>, Arc<Executable>>> = RefCell::new(FxHashMap::default());
}

/// Runs an op on arrays, on their device.
///
/// # Errors
/// If the op's inference rejects the operands, there is not enough memory, or an index is out of range.
pub fn run(op: Op, arguments: &[Argument<'_>], attrs: &[Attr]) -> Result<Array> {
    if let (true, [argument]) = (op.is_view(), arguments) {
        if gpu_of(arguments).is_none() {
            check_data(op, arguments)?;
        }
        return view(op, attrs, argument.array);
    }
    run_as(op, arguments, attrs, |array| array)
}

/// Like [`run`] for an op that is no view, but passes the result to `make`. This saves moving an array, which is large,
/// in small calls.
///
/// # Errors
/// As for [`run`].
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

/// Like [`run_as`] for a call that this thread made recently, on operands with the same layouts; `None` for another
/// call.
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

/// Runs a call that is not among the recent ones.
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

/// Runs an op that is no view on a device. Operands on other devices are numbers.
///
/// # Errors
/// If the op's inference rejects the operands, there is not enough memory, NVRTC rejects the source, or the device
/// fails. Also if an earlier call on the same stream had an index out of range or an integer division by zero. Such
/// faults of this call are reported asynchronously: by a later call, or when a value is read.
pub fn run_on(device: Device, op: Op, arguments: &[Argument<'_>], attrs: &[Attr]) -> Result<Array> {
    let executable = executable_of(Some(device), op, arguments, attrs, None)?;
    let arrays: SmallVec<[&Array; 4]> = arguments.iter().map(|argument| argument.array).collect();
    let mut results = executable.run(&arrays)?;
    results.pop().ok_or_else(|| Error::Internal { message: "a one-op graph has one output".into() })
}

/// Runs an op on the device of `target`, and stores the result there, converted to its dtype. The target has the sizes
/// of the result, and its elements do not overlap.
///
/// Operands may share the target's storage. Where a kernel would read what it has already overwritten, the result is
/// computed in new memory first. If it works in place, it is one run under one lock, so that concurrent writes are not
/// lost.
///
/// # Errors
/// As for [`run`], or if a slice of the target is borrowed.
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

/// Runs a write by index in place of its first operand, the target. It changes only indexed elements, and nothing if an
/// index is out of range. Operands that share the target's storage are read as they were before.
///
/// # Errors
/// As for [`run_into`], with the target unchanged.
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

/// Like [`run_into`] for a call that this thread made recently, on operands with the same layouts, whose target is the
/// first operand; `None` for another call.
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

/// The GPU of the first operand that is on one.
fn gpu_of(arguments: &[Argument<'_>]) -> Option<Device> {
    cuda::device_of(arguments.iter().map(|argument| argument.array.device()))
}

/// Checks that the operands have bytes that the CPU can read.
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

/// The executable of a call, on a GPU if one is given.
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
        // No operand starts with such a word.
        let choice = u64::from(device.index.unwrap_or(0)) | (current_numerics() as u64) << 16;
        key.word(u64::MAX - choice);
    }
    if let Some(executable) = KNOWN.with_borrow(|known| known.get(&key[..]).cloned()) {
        return Ok(executable);
    }
    let graph = graph_of(op, arguments, attrs, target)?;
    let executable = Arc::new(build(device, graph)?);
    KNOWN.with_borrow_mut(|known| {
        if known.len() >= CAPACITY {
            known.clear();
        }
        known.insert(key[..].into(), executable.clone());
    });
    Ok(executable)
}

/// Elements of an operand or a result from which a call is worth machine code. Below, the vm runs it without delay.
const LARGE: usize = 1 << 14;
/// The same, where results have rows of fewer than [`SHORT_ROW`] elements: the vm takes each row by itself.
const LARGE_OF_SHORT_ROWS: usize = 1 << 10;
const SHORT_ROW: usize = 16;

/// The tier for a single call; `None` lets each kernel choose. Results count too, because outer operations have small
/// operands.
fn tier_at_once(graph: &Graph) -> Option<Tier> {
    let values = || graph.inputs().iter().chain(graph.outputs()).map(|&node| &graph[node].ty);
    let most = values().map(TensorType::numel).max().unwrap_or(0);
    let is_short = graph.outputs().iter().any(|&node| graph[node].ty.sizes.last().is_some_and(|&row| row < SHORT_ROW));
    let large = if is_short { LARGE_OF_SHORT_ROWS } else { LARGE };
    (most < large).then_some(Tier::Vm)
}

/// Whether a graph computes one op. The kernels of more, as those of a convolution, may each be worth machine code: a
/// padded operand has short rows, which the vm takes one at a time.
fn is_one_step(graph: &Graph) -> bool {
    graph.nodes().filter(|(_, node)| node.op().is_some_and(|op| !op.is_view())).count() <= 1
}

/// Builds the executable of a graph, on a GPU if one is given.
fn build(device: Option<Device>, graph: Graph) -> Result<Executable> {
    let Some(device) = device else {
        let tier = if is_one_step(&graph) { tier_at_once(&graph) } else { None };
        return Executable::build(&graph, &plan(&graph, &Options::default()), tier);
    };
    let graph = narrow_products(&copy_windows(&graph)?);
    let plan = plan(&graph, &Options::default());
    Executable::build_on(device, current_numerics(), &graph, &plan)
        .map_err(|Failure { step, reason }| Error::invalid("plan", format!("step {step} is not lowered: {reason}")))
}

/// The arithmetic operations of a call, and the nanoseconds that one thread of these rates takes for them.
///
/// # Errors
/// If the op's inference rejects the operands.
pub fn arithmetic(op: Op, arguments: &[Argument<'_>], attrs: &[Attr], rates: Rates) -> Result<(f64, f64)> {
    let graph = graph_of(op, arguments, attrs, None)?;
    let cost = CostModel::new(&graph, rates);
    let all = graph.nodes().map(|(id, _)| cost.arithmetic(id));
    Ok(all.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::DType;
    use smallvec::smallvec;

    #[test]
    fn large_results_of_small_operands_are_worth_machine_code() -> Result<()> {
        for (rows, columns, expected) in [
            // An outer difference of points, whose rows are short.
            (64, 3, None),
            (8, 3, Some(Tier::Vm)),
            (64, 32, None),
            (16, 32, Some(Tier::Vm)),
        ] {
            let mut graph = Graph::new();
            let operands = [[rows, 1, columns], [1, rows, columns]];
            let inputs = operands.map(|sizes| graph.input(TensorType::contiguous(DType::F32, &sizes)));
            let result = graph.add(Op::Sub, &inputs, smallvec![Attr::int(1)])?;
            graph.set_outputs(vec![result]);
            assert_eq!(tier_at_once(&graph), expected, "{rows} x {rows} x {columns}");
        }
        Ok(())
    }
}
