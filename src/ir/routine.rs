//! Routines: procedures on whole arrays that are no loop over elements.
//!
//! Scans, sorts, writes to places that an index names, and random words. A routine is never fused: it is a step of its own, and eager
//! calls and compiled graphs run the same code, so their bits agree. Its operands are those of the row, except that a
//! graph converts the one that [`Routine::converted`] names before the routine sees it. Results are dense and
//! row-major. How a routine computes is not said here, nor the type of
//! its result, which is inferred as that of any op.

/// What a routine does.
#[derive(Debug, Clone, Copy)]
pub enum Routine {
    /// What came so far along a dim, each element included.
    Scan(Scan),
    /// `y[i] = factor[i] * y[i - 1] + term[i]` along a dim, or from the end if `reverse` holds.
    Recurrence,
    /// The places of the elements along a dim in the order of their values; equal ones stay in their order.
    Argsort,
    /// A copy of operand 0 with the elements of operand 2 written where operand 1, the index, says along a dim.
    Scatter(Write),
    /// Index tensors, one per dim, as one index into the dims joined, checked; negative ones count from the end if
    /// `wrap` holds.
    FlatIndex,
    /// Random words of operand 0, the key; see [`super::philox`].
    Bits,
}

/// What a scan keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scan {
    /// The sum so far.
    Sum,
    /// The product so far.
    Prod,
    /// The place of the greatest so far, the last of equal ones; a NaN is greater than any number.
    ArgMax,
    /// The place of the least so far, the last of equal ones; a NaN is less than any number.
    ArgMin,
}

/// What a write does with what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Write {
    /// Replaces it; of several writes to one place the last in row-major order stays.
    Overwrite,
    /// Adds to it.
    Add,
    /// What the argument `reduce` names; `include_self` says whether what was there takes part.
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
            | Routine::Scatter(_)
            | Routine::FlatIndex
            | Routine::Bits => None,
        }
    }
}
