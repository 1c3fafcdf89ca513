//! The `PythonTLSSnapshot` key: times the calls of a profiled thread, and passes them on.
//!
//! The key is included only while a profile is on, so other calls cost what they always cost. It sees calls as they
//! were made, before every other key but modes. Calls that are traced compute nothing, and are not timed.

use super::whole::add;
use crate::device::pool;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::local::{IncludeGuard, include, is_tracing};
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::rows::unpack;
use crate::dispatch::value::{Stack, Value};
use crate::eager::{self, Argument};
use crate::error::Result;
use crate::fusion::Rates;
use crate::ir::{CallKey, Op};
use crate::profile::{self, Kind, Subject, Work};
use crate::tensor::handle::Tensor;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};

/// Nanoseconds of one thread that pay for one more, roughly.
const WORTH_A_THREAD: f64 = 16_000.0;

thread_local! {
    /// The rates of the profile of this thread.
    static RATES: Cell<Rates> = const { Cell::new(Rates::BUILT_IN) };
    /// What calls compute, by row, tensors and other arguments. The table is cleared when it is full.
    static KNOWN: RefCell<FxHashMap<Box<[u64]>, Work>> = RefCell::new(FxHashMap::default());
}

/// Times every call of this thread until the guard is dropped. `rates` say how fast calls could be.
pub(crate) fn watch_calls(rates: Rates) -> IncludeGuard {
    RATES.set(rates);
    KNOWN.with_borrow_mut(FxHashMap::clear);
    include(DispatchKey::PythonTLSSnapshot)
}

/// The kernel of the key, for all operators.
///
/// # Errors
/// An error of the call.
pub(super) fn fallback(operator: &Operator, keys: KeySet, stack: &mut Stack) -> Result<()> {
    let below = keys - KeySet::of(DispatchKey::PythonTLSSnapshot);
    if is_tracing() || !profile::is_on() {
        return operator.redispatch_boxed(below, stack);
    }
    let op = operator.row();
    let read = if op.is_some_and(Op::is_view) { None } else { Some(bytes(stack)) };
    let computed = match op {
        Some(op) if read.is_some() => work(op, stack),
        Some(_) | None => Work::default(),
    };
    let mut span = profile::open(Kind::Operator, (operator.address() as u64, profile::place_key()), || Subject {
        name: operator.name().to_string(),
        place: profile::place(),
        held: Some(Box::new(operator.clone())),
        ..Subject::default()
    });
    let before = profile::n_spans();
    operator.redispatch_boxed(below, stack)?;
    // An operator that is made of others did what they did.
    if let (Some(read), true) = (read, op.is_some() || profile::n_spans() == before) {
        let moved = read + bytes(stack);
        let work = Work { bytes: moved, ..computed }.moving(RATES.get().moving_time(moved as usize));
        let threads = ((work.roof / WORTH_A_THREAD) as usize).clamp(1, pool::num_threads());
        span.did(Work { roof: work.roof / threads as f64, ..work });
    }
    Ok(())
}

/// The bytes of all tensors, each once.
fn bytes(stack: &Stack) -> u64 {
    let tensors: SmallVec<[&Tensor; 4]> =
        stack.iter().flat_map(Value::tensors).filter(|tensor| tensor.as_number().is_none()).collect();
    let is_new = |at: usize, tensor: &Tensor| !tensors[..at].iter().any(|other| other.is_handle_of(tensor));
    let all = tensors.iter().enumerate().filter(|(at, tensor)| is_new(*at, tensor));
    all.map(|(_, tensor)| tensor.ty().bytes() as u64).sum()
}

/// What a call of a row computes.
fn work(op: Op, stack: &Stack) -> Work {
    let mut key = CallKey::default();
    key.word(op as u64);
    if stack.iter().any(|value| add(&mut key, value).is_none()) {
        return Work::default();
    }
    if let Some(known) = KNOWN.with_borrow(|known| known.get(&key[..]).copied()) {
        return known;
    }
    let work = profile::uncounted(|| work_anew(op, stack).unwrap_or_default());
    KNOWN.with_borrow_mut(|known| {
        if known.len() >= eager::CAPACITY {
            known.clear();
        }
        known.insert(key[..].into(), work);
    });
    work
}

fn work_anew(op: Op, stack: &Stack) -> Result<Work> {
    let (tensors, attrs) = unpack(op, stack)?;
    let arguments: SmallVec<[Argument<'_>; 4]> = tensors.iter().map(Tensor::as_argument).collect();
    let (operations, roof) = eager::arithmetic(op, &arguments, &attrs, RATES.get())?;
    Ok(Work { bytes: 0, operations, roof })
}
