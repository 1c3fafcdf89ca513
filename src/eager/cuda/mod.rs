//! Running on a GPU: the steps of an executable, launched or taken to the host.
//!
//! | file | question |
//! |---|---|
//! | `launch` | how does a kernel start on a device? |
//! | `product` | how does a matrix product start there? |
//! | `kernels` | which code runs it, and is it compiled already? |
//! | `steps` | how does each action of an executable run there? |
//! | `fallback` | what if the device has no code for one? |
//! | `counts` | how often did that happen, and why? |
//!
//! What always holds: work goes to the thread's current stream of the device, in the order of the actions; what a kernel
//! reads was ordered behind all work on other streams that used it. Nothing waits for the device but what the host reads:
//! a fallback, and the record of faults of kernels that may have any. Bits are those of the CPU.
//!
//! An eager call is a group of one here too. Not here: views, which no device is needed for.

mod counts;
mod fallback;
mod kernels;
mod launch;
mod product;
mod steps;

pub use counts::{Counts, Fallback, counts, reset_counts};
pub(super) use steps::OnDevice;

use super::{Argument, Array, CAPACITY, Executable, Failure, call_key};
use crate::device::{Device, DeviceKind, Shared, Storage};
use crate::error::{Error, Result};
use crate::fusion::{Options, plan};
use crate::ir::{Attr, Attrs, CallKey, Graph, Layout, Op};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

/// A call: where, and its words.
type Call = (Device, Box<[u64]>);

thread_local! {
    /// What runs the calls that this thread has made, by device; forgotten all at once when there are too many.
    static KNOWN: RefCell<FxHashMap<Call, Arc<Executable>>> = RefCell::new(FxHashMap::default());
}

/// Runs an op that is no view on a device; operands that are elsewhere stand for numbers.
///
/// # Errors
/// What the op's inference says is wrong with the operands, out of memory, an index outside its dimension, code that NVRTC
/// does not compile, or a device that fails.
pub fn run(device: Device, op: Op, arguments: &[Argument<'_>], attrs: &[Attr]) -> Result<Array> {
    let executable = executable_of(device, op, arguments, attrs, None)?;
    let arrays: SmallVec<[&Array; 4]> = arguments.iter().map(|argument| argument.array).collect();
    let mut results = executable.run(&arrays)?;
    results.pop().ok_or_else(|| Error::Internal { message: "a one-op graph has one output".into() })
}

/// Runs an op on the device of `target` and stores the result, converted to its dtype, there. Elements of the target are
/// distinct places, and its sizes are those of the result.
///
/// # Errors
/// As [`run`].
pub fn run_into(op: Op, arguments: &[Argument<'_>], attrs: &[Attr], target: &Array) -> Result<()> {
    let device = target.device();
    let executable = executable_of(device, op, arguments, attrs, Some(target))?;
    // As on the CPU: what works in place is one run under one lock, so that writers on other threads lose nothing.
    let in_the_way = |Argument { array, .. }: &Argument<'_>| {
        Shared::ptr_eq(array.storage(), target.storage())
            && !(executable.works_in_place() && array.layout == target.layout && array.dtype == target.dtype)
    };
    if arguments.iter().any(in_the_way) {
        // A kernel would read what it has already overwritten.
        let result = run(device, op, arguments, attrs)?;
        let attrs = Attrs::from_iter([Attr::DType(target.dtype())]);
        return run_into(Op::ToCopy, &[Argument { array: &result, number: false }], &attrs, target);
    }
    let arrays: SmallVec<[&Array; 4]> = arguments.iter().map(|argument| argument.array).collect();
    executable.run_into(&arrays, target)
}

fn executable_of(
    device: Device,
    op: Op,
    arguments: &[Argument<'_>],
    attrs: &[Attr],
    target: Option<&Array>,
) -> Result<Arc<Executable>> {
    let mut key = CallKey::default();
    call_key(&mut key, op, arguments, attrs);
    if let Some(target) = target {
        key.operand(target.dtype, &target.layout.sizes, &target.layout.strides, false);
    }
    let key = (device, Box::from(&key[..]));
    if let Some(executable) = KNOWN.with_borrow(|known| known.get(&key).cloned()) {
        return Ok(executable);
    }
    let graph = super::graph_of(op, arguments, attrs, target)?;
    let executable = Arc::new(build(device, &graph)?);
    KNOWN.with_borrow_mut(|known| {
        if known.len() >= CAPACITY {
            known.clear();
        }
        known.insert(key, executable.clone());
    });
    Ok(executable)
}

/// A graph for a device.
pub(super) fn build(device: Device, graph: &Graph) -> Result<Executable> {
    Executable::build_on(device, graph, &plan(graph, &Options::default()))
        .map_err(|Failure { step, reason }| Error::invalid("plan", format!("step {step} is not lowered: {reason}")))
}

/// The GPU that arrays are on, if any of them is on one.
pub fn device_of<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Option<Device> {
    arrays.into_iter().map(Array::device).find(|device| device.kind == DeviceKind::Cuda)
}

/// An array of the host as one on a device that lies as it does.
fn uploaded(device: Device, array: &Array) -> Result<Array> {
    let (start, end) = (array.layout.offset * array.dtype.size(), array.layout.extent() * array.dtype.size());
    let storage = array.storage.read(|bytes| Storage::copy_of(device, &bytes[start.min(end)..end]))?;
    let layout = Layout { offset: 0, ..array.layout().clone() };
    Ok(Array { storage: Shared::new(storage), dtype: array.dtype, layout: layout.into() })
}
