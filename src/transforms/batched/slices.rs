//! Calls without a batching rule, which run once per slice. Their results are stacked.

use crate::debug;
use crate::device::Device;
use crate::dispatch::builtins::operator;
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::dispatch::operator::Operator;
use crate::dispatch::rows::call;
use crate::dispatch::schema::OperatorName;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Reason, Result};
use crate::ir::{Attrs, Op, Scalar, TensorType};
use crate::ops::factories::full_on;
use crate::ops::joins::stack;
use crate::tensor::handle::Tensor;
use crate::transforms::batched::{Level, Mapped, Operands, physical_sizes, wrap};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::BTreeMap;

thread_local! {
    static SLOW: RefCell<BTreeMap<OperatorName, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// The reasons why mapped calls of this thread ran once per slice, with their counts.
pub fn slow_calls() -> Vec<(Reason, u64)> {
    SLOW.with_borrow(|slow| {
        slow.iter().map(|(name, &n)| (Reason::NoBatchingRule { op: name.to_string().into() }, n)).collect()
    })
}

fn count(operator: &Operator) {
    SLOW.with_borrow_mut(|slow| *slow.entry(operator.name().clone()).or_default() += 1);
    if debug::explains() {
        debug::print(&Reason::NoBatchingRule { op: operator.name().to_string().into() }.to_string());
    }
}

/// Runs a row slice by slice. Returns the physical result.
pub(super) fn row(op: Op, operands: &Operands, attrs: &Attrs, result: &TensorType) -> Result<Tensor> {
    count(operator(op)?);
    let size = operands.level.size;
    if size == 0 {
        let device = operands.list.first().map_or(Device::CPU, |operand| operand.value.device());
        return full_on(device, &physical_sizes(0, &result.sizes), Scalar::Int(0), Some(result.dtype));
    }
    let slice = |index: usize| {
        let values = operands.list.iter().map(|operand| {
            if operand.is_mapped { operand.value.select(0, index as i64) } else { Ok(operand.value.clone()) }
        });
        let values = values.collect::<Result<SmallVec<[Tensor; 4]>>>()?;
        call(op, &values.iter().collect::<SmallVec<[&Tensor; 4]>>(), attrs)
    };
    let slices = (0..size).map(slice).collect::<Result<Vec<_>>>()?;
    stack(&slices.iter().collect::<Vec<_>>(), 0)
}

/// Runs any operator slice by slice. The stack then holds wrapped results.
pub(super) fn boxed(operator: &Operator, operands: &Operands, arguments: &mut Stack) -> Result<()> {
    let refusal = |what: &str| Error::argument(operator.name().to_string(), format!("vmap: {what}"));
    if let Some(schema) = operator.schema() {
        let writes =
            |argument: &crate::dispatch::schema::Parameter| argument.alias.as_ref().is_some_and(|alias| alias.is_write);
        if schema.arguments.iter().any(writes) {
            return Err(refusal("the operator writes to an argument and has no batching rule; use one that does not"));
        }
    }
    let records = is_grad_enabled() && arguments.iter().flat_map(Value::tensors).any(is_recorded);
    if records {
        return Err(refusal(
            "the operator has no batching rule, so its gradient inside vmap is not known; detach its operands",
        ));
    }
    count(operator);
    if operands.level.size == 0 {
        return Err(refusal("there are no slices, and the types of the operator's results are only known from a run"));
    }
    let mut results: Vec<Stack> = Vec::new();
    for index in 0..operands.level.size {
        let mut slice = arguments.clone();
        for tensor in slice.iter_mut().flat_map(Value::tensors_mut) {
            if let Some(mapped) = tensor.payload::<Mapped>().filter(|mapped| mapped.level == operands.level.id) {
                *tensor = mapped.physical.select(mapped.dim as i64, index as i64)?;
            }
        }
        operator.call_boxed(&mut slice)?;
        results.push(slice);
    }
    let stacked = results[0].iter().enumerate().map(|(at, first)| match first {
        Value::Tensor(_) => joined(&results, at, operands.level).map(Value::Tensor),
        Value::None => Ok(Value::None),
        other => {
            let what = format!("the operator returns a value of type {} per slice, not a tensor", other.type_name());
            Err(refusal(&what))
        }
    });
    *arguments = stacked.collect::<Result<_>>()?;
    Ok(())
}

/// Makes a call of other code than an operator slice by slice. At least one of the operands is mapped.
///
/// # Errors
/// If a call fails, or if there are no slices.
pub(crate) fn each(
    op: &str,
    operands: &[Tensor],
    call: &dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Vec<Tensor>> {
    let level = Operands::of(op, &operands.iter().collect::<SmallVec<[&Tensor; 8]>>())?.level;
    let slice = |index: usize| {
        let one = |tensor: &Tensor| match tensor.payload::<Mapped>().filter(|mapped| mapped.level == level.id) {
            Some(mapped) => mapped.physical.select(mapped.dim as i64, index as i64),
            None => Ok(tensor.clone()),
        };
        call(&operands.iter().map(one).collect::<Result<Vec<_>>>()?)
    };
    let results = (0..level.size).map(slice).collect::<Result<Vec<_>>>()?;
    let Some(first) = results.first() else {
        return Err(Error::argument(op, "vmap: there are no slices, and results are only known from a run"));
    };
    let joined = |at: usize| stack(&results.iter().map(|result| &result[at]).collect::<Vec<_>>(), 0);
    (0..first.len()).map(|at| wrap(&joined(at)?, 0, level)).collect()
}

/// Whether gradients of a mapped tensor are recorded inside the `vmap`.
fn is_recorded(tensor: &Tensor) -> bool {
    tensor.payload::<Mapped>().is_some() && tensor.requires_grad()
}

fn joined(results: &[Stack], at: usize, level: Level) -> Result<Tensor> {
    let tensors: Vec<&Tensor> = results.iter().filter_map(|result| result.get(at)?.tensors().next()).collect();
    wrap(&stack(&tensors, 0)?, 0, level)
}
