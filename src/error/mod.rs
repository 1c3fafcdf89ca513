//! Errors, and reasons why an optimization was declined.
//!
//! An [`Error`] is what a caller did wrong, or a panic that was caught at a public function. A [`Reason`] says why an
//! optimization was declined: it is data for reports, never an error. A broken invariant of this library is a panic.
//!
//! A reason carries the names, sizes and times that it is about. Its sentence is made from these when it is printed.
//! Of the other floors, only [`DType`](crate::ir::DType) is used here.

mod capture;
#[cfg(test)]
mod catalog;
mod data;
mod failure;
mod graphs;
mod kernels;
mod libraries;
mod reason;
mod table;

pub use capture::NotCaptured;
pub(crate) use data::Datum;
pub use failure::{Error, Result};
pub use graphs::NoReplay;
pub use kernels::TierLimit;
pub use libraries::{LibraryLimit, WgmmaLimit};
pub use reason::Reason;
