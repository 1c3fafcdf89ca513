//! User modes: handlers that see every call of a thread. Three are provided.
//!
//! [`CallCounter`] counts calls, [`CallLog`] records them, and [`NanCheck`] finds the first call that produces a NaN.
//! [`super::mode`] says how modes nest.

use crate::dispatch::key::alias::AUTOGRAD_AND_INPLACE_KEYS;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::local::exclude;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::rows::call;
use crate::dispatch::schema::OperatorName;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::{Attr, Op};
use crate::tensor::handle::Tensor;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use crate::dispatch::mode::{Mode, ModeGuard, Next, is_active, push_mode};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No change has a half-made state, so a panic does no harm.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts calls by operator.
#[derive(Debug, Default)]
pub struct CallCounter(Mutex<BTreeMap<OperatorName, u64>>);

impl CallCounter {
    /// All calls so far.
    pub fn total(&self) -> u64 {
        lock(&self.0).values().sum()
    }

    /// The calls so far of one operator by its full name, such as `aten::add.Tensor`.
    pub fn count(&self, name: &str) -> u64 {
        let Ok(name) = name.parse::<OperatorName>() else { return 0 };
        lock(&self.0).get(&name).copied().unwrap_or(0)
    }

    /// The calls so far by operator, most frequent first, then by name.
    pub fn counts(&self) -> Vec<(String, u64)> {
        let mut counts: Vec<_> = lock(&self.0).iter().map(|(name, &count)| (name.to_string(), count)).collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    }
}

impl Mode for CallCounter {
    fn call(&self, op: &Operator, stack: &mut Stack, next: Next<'_>) -> Result<()> {
        *lock(&self.0).entry(op.name().clone()).or_default() += 1;
        next.call(stack)
    }
}

/// Records calls with all their arguments. Calls that an operator makes follow its own, indented.
#[derive(Debug, Default)]
pub struct CallLog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    calls: Vec<LoggedCall>,
    depth: usize,
}

/// One call recorded by [`CallLog`]. It prints as `aten::add.Tensor(self=f32[2], other=1, alpha=1)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedCall {
    /// The operator's full name.
    pub op: String,
    /// Names and values of all arguments, including defaults. A tensor is shown as its type, or as the number it stands
    /// for.
    pub arguments: Vec<(String, String)>,
    /// The number of logged calls that it is nested in.
    pub depth: usize,
}

impl CallLog {
    /// The calls so far, in the order they were made.
    pub fn calls(&self) -> Vec<LoggedCall> {
        lock(&self.0).calls.clone()
    }

    /// The names, without namespace and overload, of the calls that are not nested in another.
    pub fn names(&self) -> Vec<String> {
        self.names_at(0)
    }

    /// The names, without namespace and overload, of the calls at nesting depth `depth`.
    pub fn names_at(&self, depth: usize) -> Vec<String> {
        let short = |call: &LoggedCall| {
            let name = call.op.split_once("::").map_or(call.op.as_str(), |(_, name)| name);
            name.split('.').next().unwrap_or(name).to_string()
        };
        lock(&self.0).calls.iter().filter(|call| call.depth == depth).map(short).collect()
    }

    /// Removes all recorded calls.
    pub fn clear(&self) {
        lock(&self.0).calls.clear();
    }
}

impl Mode for CallLog {
    fn call(&self, op: &Operator, stack: &mut Stack, next: Next<'_>) -> Result<()> {
        let name = |index: usize| match op.schema() {
            Some(schema) => schema.arguments.get(index).map_or(String::new(), |argument| argument.name.clone()),
            None => String::new(),
        };
        let arguments = stack.iter().enumerate().map(|(index, value)| (name(index), text(value))).collect();
        let mut log = lock(&self.0);
        let depth = log.depth;
        log.calls.push(LoggedCall { op: op.name().to_string(), arguments, depth });
        log.depth += 1;
        drop(log);
        let result = next.call(stack);
        lock(&self.0).depth -= 1;
        result
    }
}

/// A value on one line. A tensor is shown as its type.
fn text(value: &Value) -> String {
    let tensor = |tensor: &Tensor| match tensor.as_number() {
        Some(number) => number.to_string(),
        None => tensor.ty().to_string(),
    };
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    match value {
        Value::Tensor(one) => tensor(one),
        Value::TensorList(tensors) => list(tensors.iter().map(tensor).collect()),
        Value::OptionalTensorList(tensors) => {
            list(tensors.iter().map(|one| one.as_ref().map_or("None".into(), tensor)).collect())
        }
        Value::Scalar(number) => number.to_string(),
        Value::ScalarList(numbers) => list(numbers.iter().map(ToString::to_string).collect()),
        Value::None
        | Value::Int(_)
        | Value::Float(_)
        | Value::Bool(_)
        | Value::Str(_)
        | Value::IntList(_)
        | Value::FloatList(_)
        | Value::BoolList(_)
        | Value::DType(_)
        | Value::Device(_)
        | Value::Layout(_)
        | Value::MemoryFormat(_)
        | Value::Object(_) => format!("{value:?}"),
    }
}

impl fmt::Display for LoggedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.op)?;
        for (index, (name, value)) in self.arguments.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name}={value}")?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for CallLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        lock(&self.0).calls.iter().try_for_each(|call| writeln!(f, "{:1$}{call}", "", 2 * call.depth))
    }
}

/// Makes the first call that produces a NaN an error, which names the operator and its arguments. A call whose operands
/// contain a NaN is allowed to return NaN. Tensors without data are not checked. Neither are results that share their
/// storage with an operand.
#[derive(Debug, Default)]
pub struct NanCheck;

impl Mode for NanCheck {
    fn call(&self, op: &Operator, stack: &mut Stack, next: Next<'_>) -> Result<()> {
        let operands: Vec<Tensor> = stack.iter().flat_map(Value::tensors).cloned().collect();
        let arguments: Vec<String> = stack.iter().map(text).collect();
        next.call(stack)?;
        for (index, result) in stack.iter().flat_map(Value::tensors).enumerate() {
            let is_view =
                operands.iter().any(|operand| operand.has_storage_of(result) && !operand.is_handle_of(result));
            if is_view || !holds_nan(result)? {
                continue;
            }
            // Only now: most calls produce no NaN.
            let mut had = false;
            for operand in operands.iter().filter(|operand| !operand.is_handle_of(result)) {
                had |= holds_nan(operand)?;
            }
            if !had {
                let what =
                    format!("result {index} holds NaN, but no operand does; arguments ({})", arguments.join(", "));
                return Err(Error::argument(op.name().to_string(), what));
            }
        }
        Ok(())
    }
}

fn holds_nan(tensor: &Tensor) -> Result<bool> {
    if !tensor.dtype().is_float() || !tensor.has_data() {
        return Ok(false);
    }
    // The check itself must not be traced or recorded for gradients.
    let _below = exclude(AUTOGRAD_AND_INPLACE_KEYS | KeySet::of(DispatchKey::Tracer));
    let any = call(Op::Any, &[&call(Op::Isnan, &[tensor], &[])?], &[Attr::None, Attr::bool(false)])?;
    any.item()
}
