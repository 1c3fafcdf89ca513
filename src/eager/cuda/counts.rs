//! What ran on GPUs and what did not: counted for the process, with the reasons.

use crate::debug;
use crate::error::Reason;
use std::sync::{Mutex, PoisonError};

/// Something that ran on the host because the device has no code for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// The op, or the ops of a kernel.
    pub what: String,
    /// Why.
    pub reason: Reason,
    /// How often.
    pub times: u64,
}

/// What ran since the start, or since [`reset_counts`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Kernels that were started.
    pub launches: u64,
    /// Kernels whose code was compiled.
    pub compilations: u64,
    /// What ran on the host, in the order in which it first did; the first thousand kinds of it.
    pub fallbacks: Vec<Fallback>,
}

/// Kinds of fallbacks that are told apart.
const MAX_KINDS: usize = 1000;

static COUNTS: Mutex<Counts> = Mutex::new(Counts { launches: 0, compilations: 0, fallbacks: Vec::new() });

/// What ran on GPUs so far, and what the host ran for them.
pub fn counts() -> Counts {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Begins counting anew.
pub fn reset_counts() {
    *COUNTS.lock().unwrap_or_else(PoisonError::into_inner) = Counts::default();
}

pub(super) fn launched(n: u64) {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner).launches += n;
}

pub(super) fn compiled() {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner).compilations += 1;
}

/// Counts a fallback, and prints one that is new if reasons are to be printed.
pub(super) fn fell_back(what: &str, reason: &Reason) {
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |known: &&mut Fallback| known.what == what && known.reason == *reason;
    if let Some(known) = counts.fallbacks.iter_mut().find(is_it) {
        known.times += 1;
        return;
    }
    if counts.fallbacks.len() < MAX_KINDS {
        counts.fallbacks.push(Fallback { what: what.into(), reason: reason.clone(), times: 1 });
    }
    drop(counts);
    if debug::explains() {
        debug::print(&format!("{what} runs on the cpu: {reason}"));
    }
}
