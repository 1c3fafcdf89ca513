//! Factorizations of dense matrices, for opfuse.
//!
//! This crate is the only place that knows `faer`. It is apart from opfuse so that faer's generic code is compiled
//! once, and not with every change of opfuse.
//!
//! What always holds:
//!
//! - A matrix is a slice in column-major order, without gaps. An element is f32, f64, or a complex number.
//! - A call runs on the thread that it is called from. So results do not depend on the number of threads.
//! - Small matrices have loops of our own ([`small`]), because a call of faer costs more than their arithmetic.
//!   Which path runs depends on sizes alone.
//! - Numbers that are not finite never reach an algorithm that iterates until it converges.
//!
//! Deliberately absent: strides, batches, threads.

mod element;
mod functions;
mod general;
mod large;
mod orthogonal;
mod small;
mod spectra;

pub use element::Element;
pub use num_complex::Complex;

/// Why a factorization has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// The leading minor of this order is not positive.
    NotPositive(usize),
    /// This pivot, counted from 1, is zero.
    ZeroPivot(usize),
    /// An element is infinite or NaN.
    NotFinite,
    /// The iteration did not converge.
    NoConvergence,
}
