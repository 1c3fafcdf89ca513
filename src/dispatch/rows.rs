//! Calls of rows of the op table, without values on a stack where the kernel is one of a row.

use crate::device::{Device, DeviceGuard};
use crate::dispatch::builtins::operator;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::alias::AUTOGRAD_KEYS;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::row_values::{self, pack};
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::{Attr, Attrs, Op};
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;

/// Calls an op: tensors in schema order, absent optional ones left out, and the other arguments in schema order.
///
/// A kernel of a row is reached directly; any other (a trace, a user's kernel) through values on a stack.
///
/// # Errors
/// If inference refuses the operands, no kernel is there for their keys, and what the kernel returns.
pub fn call(op: Op, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let operator = operator(op)?;
    let keys = operator.call_key_set(tensors.iter().fold(KeySet::EMPTY, |keys, tensor| keys | tensor.key_set()));
    if keys == ON_CPU {
        // Nearly all calls: the slots of these keys are known here.
        return run(op, operator, ON_CPU, tensors, attrs);
    }
    run(op, operator, keys, tensors, attrs)
}

/// As [`call`] of an op whose tensors, if it has any, do not say that it is to run on a GPU.
///
/// # Errors
/// As [`call`], or if there is no such GPU.
pub(crate) fn call_on(gpu: Device, op: Op, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let _current = DeviceGuard::new(gpu)?;
    let operator = operator(op)?;
    let keys = operator.call_key_set(KeySet::of(DispatchKey::CUDA));
    run(op, operator, keys, tensors, attrs)
}

/// What is left of the keys of a call on ordinary tensors, if no mode or guard is in force.
const ON_CPU: KeySet = KeySet::from_keys(&[DispatchKey::CPU, DispatchKey::AutogradCPU]);

/// As [`call`], by the kernel that `keys` lead to; tensors and thread-local sets are not asked.
pub(crate) fn redispatch(op: Op, keys: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    run(op, operator(op)?, keys, tensors, attrs)
}

#[inline(always)]
fn run(op: Op, operator: &Operator, keys: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let (mut keys, mut kernel) = (keys, operator.kernel(keys));
    if kernel.and_then(Kernel::condition).is_some_and(|wants| !wants(tensors)) {
        // What the autograd kernel would do, without calling it.
        keys = keys - AUTOGRAD_KEYS;
        kernel = operator.kernel(keys);
    }
    match kernel.and_then(Kernel::row) {
        Some(kernel) => kernel(op, keys, tensors, attrs),
        None => run_boxed(op, operator, keys, tensors, attrs),
    }
}

/// As [`call`] of another operator with the same arguments, such as the in-place form.
pub(crate) fn call_as(op: Op, operator: &Operator, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let keys = operator.call_key_set(tensors.iter().fold(KeySet::EMPTY, |keys, tensor| keys | tensor.key_set()));
    run_boxed(op, operator, keys, tensors, attrs)
}

fn run_boxed(op: Op, operator: &Operator, keys: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let schema = operator.schema().ok_or_else(|| Error::argument(op.name(), "has no schema"))?;
    let mut stack = pack(schema, tensors, attrs);
    operator.redispatch_boxed(keys, &mut stack)?;
    match stack.pop() {
        Some(Value::Tensor(tensor)) => Ok(tensor),
        Some(_) | None => Err(Error::argument(op.name(), "the kernel left no tensor")),
    }
}

/// A boxed call's arguments in the form of the op table; see [`call`].
///
/// # Errors
/// If a value is of a type that no row takes.
pub fn unpack(op: Op, stack: &Stack) -> Result<(SmallVec<[Tensor; 4]>, Attrs)> {
    let schema = operator(op)?.schema().ok_or_else(|| Error::argument(op.name(), "has no schema"))?;
    row_values::unpack(op, schema, stack)
}
