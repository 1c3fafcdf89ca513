//! Calls of rows of the op table. Kernels of rows are called without values on a stack.

use crate::device::{Device, DeviceGuard};
use crate::dispatch::builtins::operator;
use crate::dispatch::call::{Origin, is_located, located};
use crate::dispatch::kernel::{Kernel, RowFn};
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::row_values::{self, pack};
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::{Attr, Attrs, Op};
use crate::profile::locate;
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;

/// Calls the op `op`. `tensors` are in schema order, without the absent optional ones. `attrs` are the other arguments
/// in schema order.
///
/// A kernel of a row is called directly. Any other kernel (a trace, a user's kernel) gets values on a stack.
///
/// # Errors
/// If shape or dtype inference fails, if there is no kernel for the keys of the operands, or if the kernel fails.
#[track_caller]
pub fn call(op: Op, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let operator = operator(op)?;
    let keys = operator.call_key_set(tensors.iter().fold(KeySet::EMPTY, |keys, tensor| keys | tensor.key_set()));
    if keys == ON_CPU {
        // The common case: with constant keys, the compiler computes their slots.
        return run(op, operator, ON_CPU, tensors, attrs);
    }
    if is_located(keys) {
        return run_located(op, operator, keys, tensors, attrs);
    }
    run(op, operator, keys, tensors, attrs)
}

/// Apart from [`call`], which stays small that way.
#[cold]
#[inline(never)]
#[track_caller]
fn run_located(op: Op, operator: &Operator, keys: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let _place = locate(None);
    run(op, operator, keys, tensors, attrs)
}

/// Like [`call`], for an op that runs on a GPU although its tensors, if any, do not have a CUDA key.
///
/// # Errors
/// Same as [`call`], or if there is no such GPU.
#[track_caller]
pub(crate) fn call_on(gpu: Device, op: Op, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let _current = DeviceGuard::new(gpu)?;
    let operator = operator(op)?;
    let keys = operator.call_key_set(KeySet::of(DispatchKey::CUDA));
    let _place = located(keys, operator);
    run(op, operator, keys, tensors, attrs)
}

/// The keys of a call on ordinary CPU tensors without modes or guards.
const ON_CPU: KeySet = KeySet::from_keys(&[DispatchKey::CPU, DispatchKey::AutogradCPU]);

/// Like [`call`], by the kernel that `keys` select. The keys of tensors and thread-local sets are not consulted.
pub(crate) fn redispatch(op: Op, keys: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    run(op, operator(op)?, keys, tensors, attrs)
}

#[inline(always)]
fn run(op: Op, operator: &Operator, keys: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let (keys, kernel) = operator.select(keys, |condition| tensors.iter().any(|tensor| condition(tensor)));
    match kernel.and_then(Kernel::row) {
        Some(kernel) => kernel(op, keys, tensors, attrs),
        None => run_boxed(op, operator, keys, tensors, attrs),
    }
}

/// Calls `operator`, which writes to its first operand and has the arguments of the op `op`. The result, which is that
/// operand, is dropped. `write` does what the kernel `usual` does, without making the result.
///
/// # Errors
/// Same as [`call`].
#[track_caller]
pub(crate) fn call_write(
    op: Op,
    operator: &Operator,
    tensors: &[&Tensor],
    attrs: &[Attr],
    (usual, write): (RowFn, WriteFn),
) -> Result<()> {
    let keys = operator.call_key_set(tensors.iter().fold(KeySet::EMPTY, |keys, tensor| keys | tensor.key_set()));
    let _place = located(keys, operator);
    let (keys, kernel) = operator.select(keys, |condition| tensors.iter().any(|tensor| condition(tensor)));
    match kernel.and_then(Kernel::row) {
        Some(kernel) if std::ptr::fn_addr_eq(kernel, usual) => write(op, tensors, attrs),
        Some(kernel) => kernel(op, keys, tensors, attrs).map(drop),
        None => run_boxed(op, operator, keys, tensors, attrs).map(drop),
    }
}

/// What a kernel of a row that writes does.
pub(crate) type WriteFn = fn(Op, &[&Tensor], &[Attr]) -> Result<()>;

fn run_boxed(op: Op, operator: &Operator, keys: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let schema = operator.schema().ok_or_else(|| Error::argument(op.name(), "has no schema"))?;
    let mut stack = pack(schema, tensors, attrs);
    operator.dispatch_boxed(Origin::Call, keys, &mut stack)?;
    match stack.pop() {
        Some(Value::Tensor(tensor)) => Ok(tensor),
        Some(_) | None => Err(Error::argument(op.name(), "the kernel returned no tensor")),
    }
}

/// The arguments of a boxed call in the form that [`call`] takes.
///
/// # Errors
/// If a value has a type that no row takes.
pub fn unpack(op: Op, stack: &Stack) -> Result<(SmallVec<[Tensor; 4]>, Attrs)> {
    let schema = operator(op)?.schema().ok_or_else(|| Error::argument(op.name(), "has no schema"))?;
    row_values::unpack(op, schema, stack)
}
