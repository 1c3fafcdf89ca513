//! Decompositions that run as one program.
//!
//! A composite operator calls other operators, each of which reads its operands from memory and writes its result. For
//! large tensors that costs more than the arithmetic. Where no other code could see the calls in between, the
//! decomposition is captured once, and later calls run it as one fused program with the same bits. The transforms
//! install what captures.
//!
//! Other code could see the calls if gradients are recorded, if a mode or a transform is active, or if a kernel was
//! registered from outside.

use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::alias::AUTOGRAD_AND_INPLACE_KEYS;
use crate::dispatch::key::dispatch_key::{Backend, DispatchKey};
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::dispatch::key::local::{LocalKeySets, local_key_sets};
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::value::{Stack, Value};
use crate::tensor::handle::Tensor;
use std::sync::OnceLock;

/// Runs a call of a decomposition as one program. Returns its results, or `None` if the call must be made in parts.
pub(crate) type Runner = fn(&Operator, &Kernel, &Stack) -> Option<Stack>;

static RUNNER: OnceLock<Runner> = OnceLock::new();

/// Elements of a tensor from which a call is worth a program of its own.
const LARGE: usize = 1 << 14;
/// What the calls of a plain function have besides the keys of its tensors.
const PLAIN: KeySet = LocalKeySets::DEFAULT.included;
/// A profile times the call, and passes it on.
const WATCHED: KeySet = KeySet::of(DispatchKey::PythonTLSSnapshot);
/// All functionalities of such calls.
const USUAL: KeySet = PLAIN.union(AUTOGRAD_AND_INPLACE_KEYS).union(KeySet::of(DispatchKey::CPU));

/// Installs what runs whole decompositions.
pub(crate) fn install(runner: Runner) {
    RUNNER.get_or_init(|| runner);
}

/// Whether calls with this tensor are worth a program of their own.
#[inline]
pub(crate) fn is_large(tensor: &Tensor) -> bool {
    tensor.numel() >= LARGE
}

/// Runs a call as one program if it is large, and if no other code could see its parts. A call without tensors is large
/// if one of its numbers is: it makes a tensor of that size.
pub(crate) fn run(operator: &Operator, kernel: &Kernel, keys: KeySet, stack: &Stack) -> Option<Stack> {
    let tensors = || stack.iter().flat_map(Value::tensors);
    let is_large_size = |value: &Value| matches!(value, Value::Int(size) if *size >= LARGE as i64);
    let makes_all = tensors().next().is_none();
    let is_large = if makes_all { stack.iter().any(is_large_size) } else { tensors().any(is_large) };
    let local = local_key_sets();
    let backend = if makes_all { KeySet::EMPTY } else { KeySet::of_backend(Backend::CPU) };
    let is_plain = (local.included - PLAIN - WATCHED).is_empty()
        && local.excluded.has_all(LocalKeySets::DEFAULT.excluded)
        && keys - USUAL == backend;
    let is_recorded = is_grad_enabled() && tensors().any(Tensor::requires_grad);
    if !is_plain || is_recorded || !is_large || !Dispatcher::global().has_builtins_only() {
        return None;
    }
    (RUNNER.get()?)(operator, kernel, stack)
}
