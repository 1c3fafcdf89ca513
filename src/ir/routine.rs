//! Routines: procedures on whole arrays that are not a loop over independent elements.
//!
//! They are scans, sorts, writes by index, random words, and products of windows. A routine is never fused: it is a
//! step of its own. Eager calls and compiled graphs run the same code, so their bits agree. Its operands are those of
//! the row, but a graph first converts the one that [`Routine::converted`] names. Results are dense and row-major.
//!
//! This file only names the routines. `src/runtime/routine` computes them, and `infer/routines.rs` types them.

/// What a routine does.
#[derive(Debug, Clone, Copy)]
pub enum Routine {
    /// An inclusive scan along a dim.
    Scan(Scan),
    /// `y[i] = factor[i] * y[i - 1] + term[i]` along a dim, or from the end if `reverse` holds.
    Recurrence,
    /// The indices that sort the elements along a dim. The sort is stable.
    Argsort,
    /// The indices of the greatest or least elements along a dim, in the order of a stable sort.
    First,
    /// A copy of operand 0 with the elements of operand 2 written along a dim to the indices in operand 1.
    Scatter(Write),
    /// Index tensors, one per dim, as one index into the flattened dims. Indices are checked. Negative ones count from
    /// the end if `wrap` holds.
    FlatIndex,
    /// Random words for the key in operand 0; see [`super::philox`].
    Bits,
    /// Products of matrices and windows; see [`super::window_product`].
    WindowProduct,
}

/// What a scan accumulates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scan {
    /// The sum so far.
    Sum,
    /// The product so far.
    Prod,
    /// The index of the greatest so far, the last of equal ones. A NaN is greater than any number.
    ArgMax,
    /// The index of the least so far, the last of equal ones. A NaN is less than any number.
    ArgMin,
}

/// How a write combines a new value with the one that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Write {
    /// Replaces it. Of several writes to one place, the last in row-major order stays.
    Overwrite,
    /// Adds to it.
    Add,
    /// As the argument `reduce` says. The value that was there takes part if `include_self` holds.
    Reduce,
}

impl Routine {
    /// The operand that is converted to the dtype of the result first.
    pub const fn converted(&self) -> Option<usize> {
        match self {
            Routine::Scan(Scan::Sum | Scan::Prod) => Some(0),
            Routine::Scan(Scan::ArgMax | Scan::ArgMin)
            | Routine::Recurrence
            | Routine::Argsort
            | Routine::First
            | Routine::Scatter(_)
            | Routine::FlatIndex
            | Routine::Bits
            | Routine::WindowProduct => None,
        }
    }
}
