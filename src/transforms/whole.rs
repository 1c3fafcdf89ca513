//! Captures decompositions of composite operators, and runs them as one program ([`crate::dispatch::whole`]).
//!
//! A thread remembers programs by operator, by the types of the tensors, and by all other arguments. The first call of
//! a kind runs in parts, because a program of a shape that is met once would not pay. The second call traces the
//! decomposition. A trace that is more than a function of its inputs is not used: one that breaks, that writes, that
//! draws random numbers, that takes tensors from elsewhere, or that returns a view.

use crate::device::Shared;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::dispatch::operator::Operator;
use crate::dispatch::value::{Stack, TensorLayout, Value};
use crate::dispatch::whole;
use crate::eager;
use crate::ir::{CallKey, Scalar};
use crate::runtime::{Array, Executable};
use crate::tensor::handle::Tensor;
use crate::transforms::tracer::{Condition, Owner, Trace, trace};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;

/// What is known of a kind of call.
#[derive(Clone)]
enum Known {
    /// It was made once.
    Seen,
    /// It is made in parts.
    InParts,
    /// It is one program.
    Whole(Rc<Program>),
}

/// A captured decomposition.
struct Program {
    executable: Executable,
    conditions: Vec<Condition>,
}

thread_local! {
    /// The calls of this thread. The table is cleared when it is full.
    static KNOWN: RefCell<FxHashMap<Box<[u64]>, Known>> = RefCell::new(FxHashMap::default());
}

/// Installs [`run`].
pub(super) fn install() {
    whole::install(run);
}

/// Runs a call as one program. `None` if it must be made in parts.
fn run(operator: &Operator, kernel: &Kernel, stack: &Stack) -> Option<Stack> {
    let tensors: SmallVec<[&Tensor; 4]> = stack.iter().flat_map(Value::tensors).collect();
    let key = key_of(operator, stack, &tensors)?;
    let known = KNOWN.with_borrow(|known| known.get(&key[..]).cloned());
    let arrays: SmallVec<[&Array; 4]> = tensors.iter().map(|tensor| tensor.array()).collect();
    let program = match known {
        Some(Known::Whole(program)) => program,
        Some(Known::InParts) => return None,
        None => {
            remember(&key, Known::Seen);
            return None;
        }
        Some(Known::Seen) => {
            let program = captured(operator, stack, &tensors).map(Rc::new);
            kernel.note_whole(program.is_some());
            remember(&key, program.clone().map_or(Known::InParts, Known::Whole));
            program?
        }
    };
    if !program.conditions.iter().all(|condition| condition.holds(&tensors)) {
        return None;
    }
    // A call that fails is made again in parts, which describes the mistake.
    let results = program.executable.run(&arrays).ok()?;
    // A copy that computes nothing may be folded to what it copies.
    let is_own = |(at, result): (usize, &Array)| {
        let others = arrays.iter().copied().chain(&results[..at]);
        !others.into_iter().any(|other| Shared::ptr_eq(other.storage(), result.storage()))
    };
    if !results.iter().enumerate().all(is_own) {
        remember(&key, Known::InParts);
        return None;
    }
    Some(results.into_iter().map(|array| Value::Tensor(Tensor::from_array(array))).collect())
}

fn remember(key: &[u64], what: Known) {
    KNOWN.with_borrow_mut(|known| {
        if known.len() >= eager::CAPACITY {
            known.clear();
        }
        known.insert(key.into(), what);
    });
}

/// The program of a call, if it is a function of its tensors.
fn captured(operator: &Operator, stack: &Stack, tensors: &[&Tensor]) -> Option<Program> {
    let inputs: Vec<Tensor> = tensors.iter().map(|&tensor| tensor.clone()).collect();
    let call = |handles: &[Tensor]| {
        let mut stack = stack.clone();
        let places = stack.iter_mut().flat_map(Value::tensors_mut);
        places.zip(handles).for_each(|(place, handle)| *place = handle.clone());
        operator.call_boxed(&mut stack)?;
        Ok(stack)
    };
    let results = |results: &Stack| results.iter().flat_map(Value::tensors).cloned().collect();
    let (made, trace) = trace(&inputs, call, results).ok()?;
    let trace = trace.ok()?;
    let is_new = |value: &Value| matches!(value, Value::Tensor(tensor) if is_plain(tensor));
    if !made.iter().all(is_new) || !is_function(&trace) {
        return None;
    }
    let executable = eager::executable(&trace.graph).ok()?;
    Some(Program { executable, conditions: trace.conditions })
}

/// Whether a traced result is a tensor of its own and without history.
fn is_plain(result: &Tensor) -> bool {
    result.as_number().is_none() && result.view_of().is_none() && !result.requires_grad()
}

/// Whether a trace computes its outputs from its inputs, and does nothing else.
fn is_function(trace: &Trace) -> bool {
    let is_own = |(at, owner): (usize, &Owner)| match owner {
        Owner::Output(own) => *own == at,
        Owner::Anyone => true,
        Owner::Input(_) => false,
    };
    let outputs = trace.graph.outputs().iter().zip(&trace.strides);
    !trace.has_effects()
        && !trace.has_repeats
        && trace.lifted.is_empty()
        && trace.aliases.is_empty()
        && trace.inference.is_empty()
        && trace.owners.iter().enumerate().all(is_own)
        && outputs.into_iter().all(|(&node, strides)| trace.graph[node].ty.strides == *strides)
}

/// What identifies a kind of call. `None` for calls that are not remembered.
fn key_of(operator: &Operator, stack: &Stack, tensors: &[&Tensor]) -> Option<CallKey> {
    let is_usual = |(at, tensor): (usize, &&Tensor)| {
        let is_again = tensors[..at].iter().any(|other| other.has_storage_of(tensor));
        tensor.as_number().is_none() && tensor.has_data() && !tensor.is_complex() && !is_again
    };
    if !tensors.iter().enumerate().all(is_usual) {
        return None;
    }
    let mut key = CallKey::default();
    key.word(operator.address() as u64);
    key.word(is_grad_enabled() as u64 | (eager::current_numerics() as u64) << 8);
    for value in stack {
        add(&mut key, value)?;
    }
    Some(key)
}

/// Adds an argument; `None` if it has a kind that is not remembered. Every kind has its own first word, and lists begin
/// with their length.
pub(super) fn add(key: &mut CallKey, value: &Value) -> Option<()> {
    let tensor = |key: &mut CallKey, tensor: &Tensor| {
        let array = tensor.array();
        key.operand(array.dtype(), &array.layout().sizes, &array.layout().strides, tensor.requires_grad());
    };
    let begin = |key: &mut CallKey, kind: u64, n: usize| {
        key.word(kind);
        key.word(n as u64);
    };
    match value {
        Value::None => key.word(0),
        Value::Tensor(one) => {
            key.word(1);
            tensor(key, one);
        }
        Value::TensorList(list) => {
            begin(key, 2, list.len());
            list.iter().for_each(|one| tensor(key, one));
        }
        Value::Int(value) => begin(key, 3, *value as usize),
        Value::Float(value) => begin(key, 4, value.to_bits() as usize),
        Value::Bool(value) => begin(key, 5, *value as usize),
        Value::IntList(list) => {
            begin(key, 6, list.len());
            list.iter().for_each(|&value| key.word(value as u64));
        }
        Value::BoolList(list) => {
            begin(key, 7, list.len());
            list.iter().for_each(|&value| key.word(value as u64));
        }
        Value::FloatList(list) => {
            begin(key, 8, list.len());
            list.iter().for_each(|value| key.word(value.to_bits()));
        }
        Value::Scalar(scalar) => scalar_words(key, *scalar),
        Value::DType(dtype) => begin(key, 12, *dtype as usize),
        Value::MemoryFormat(format) => begin(key, 13, *format as usize),
        Value::Layout(TensorLayout::Strided) => key.word(14),
        Value::Str(text) => {
            begin(key, 15, text.len());
            text.bytes().for_each(|byte| key.word(byte.into()));
        }
        Value::OptionalTensorList(_)
        | Value::ScalarList(_)
        | Value::Device(_)
        | Value::Layout(TensorLayout::Sparse | TensorLayout::SparseCsr)
        | Value::Object(_) => return None,
    }
    Some(())
}

fn scalar_words(key: &mut CallKey, scalar: Scalar) {
    let (kind, word) = match scalar {
        Scalar::Bool(value) => (9, value as u64),
        Scalar::Int(value) => (10, value as u64),
        Scalar::Float(value) => (11, value.to_bits()),
    };
    key.word(kind);
    key.word(word);
}
