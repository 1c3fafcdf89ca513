//! Counts of what ran on GPUs and what did not, for the whole process, with reasons.

use crate::debug;
use crate::error::Reason;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Something that ran on the host, because the device has no code for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// The op, or the ops of a kernel.
    pub what: String,
    /// Why.
    pub reason: Reason,
    /// How often it ran.
    pub times: u64,
}

/// What ran since the start, or since [`reset_counts`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Kernels that were launched, one by one or by a CUDA graph.
    pub launches: u64,
    /// Calls of cublasLt, with an epilogue or without; its kernels are not counted above.
    pub cublaslt: u64,
    /// CUDA graphs that were instantiated.
    pub graphs: u64,
    /// Runs that were one CUDA graph.
    pub replays: u64,
    /// Kernels that were compiled.
    pub compilations: u64,
    /// What ran on the host, in the order of the first time; at most a thousand kinds.
    pub fallbacks: Vec<Fallback>,
}

/// Most kinds of fallbacks that are distinguished.
const MAX_KINDS: usize = 1000;

static LAUNCHES: AtomicU64 = AtomicU64::new(0);
static CUBLASLT: AtomicU64 = AtomicU64::new(0);
static GRAPHS: AtomicU64 = AtomicU64::new(0);
static REPLAYS: AtomicU64 = AtomicU64::new(0);
static COMPILATIONS: AtomicU64 = AtomicU64::new(0);
static FALLBACKS: Mutex<Vec<Fallback>> = Mutex::new(Vec::new());

/// What ran on GPUs so far, and what the host ran for them.
pub fn counts() -> Counts {
    let [launches, cublaslt, graphs, replays, compilations] =
        [&LAUNCHES, &CUBLASLT, &GRAPHS, &REPLAYS, &COMPILATIONS].map(|count| count.load(Relaxed));
    let fallbacks = FALLBACKS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Counts { launches, cublaslt, graphs, replays, compilations, fallbacks }
}

/// Resets all counts.
pub fn reset_counts() {
    [&LAUNCHES, &CUBLASLT, &GRAPHS, &REPLAYS, &COMPILATIONS].iter().for_each(|count| count.store(0, Relaxed));
    FALLBACKS.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

pub(super) fn launched(n: u64) {
    LAUNCHES.fetch_add(n, Relaxed);
}

pub(super) fn called_library(n: u64) {
    CUBLASLT.fetch_add(n, Relaxed);
}

pub(super) fn made_graph() {
    GRAPHS.fetch_add(1, Relaxed);
}

pub(super) fn replayed() {
    REPLAYS.fetch_add(1, Relaxed);
}

pub(super) fn compiled() {
    COMPILATIONS.fetch_add(1, Relaxed);
}

/// Counts a fallback, and prints a new one if reasons are printed.
pub(super) fn fell_back(what: &str, reason: &Reason) {
    let mut fallbacks = FALLBACKS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |existing: &&mut Fallback| existing.what == what && existing.reason == *reason;
    if let Some(existing) = fallbacks.iter_mut().find(is_it) {
        existing.times += 1;
        return;
    }
    if fallbacks.len() < MAX_KINDS {
        fallbacks.push(Fallback { what: what.into(), reason: reason.clone(), times: 1 });
    }
    drop(fallbacks);
    if debug::explains() {
        debug::print(&format!("{what} runs on the cpu: {reason}"));
    }
}
