//! The device floor from outside: names of devices, the allocator, the worker pool, streams, events, guards,
//! generators.
//!
//! A comment `196` names a line of the conformance list.

mod allocator;
mod generator;
mod names;
mod pool;
mod queues;
mod streams;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The allocator and the pool for one test alone: there is one of each in a process.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
