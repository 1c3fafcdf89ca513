//! What a launch gives to a tier: pointers, and which part of the loops to run.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Base pointers of one launch, in the kernel's order, before an access's `base` is added.
#[derive(Debug, Clone, Copy)]
pub struct Pointers<'a> {
    /// One per operand; dangling for an iota.
    pub operands: &'a [*const u8],
    /// One per output.
    pub outputs: &'a [*mut u8],
}

/// A part of a launch. Parts of one launch are disjoint and may run at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Flattened positions of all row loops except the vector loop.
    pub outer: Range<usize>,
    /// Positions of the vector loop: all of them if it is the inner loop of a kernel with folds.
    pub lanes: Range<usize>,
}

/// What went wrong while a launch ran; shared by its parts.
#[derive(Debug, Default)]
pub struct Faults {
    out_of_range: AtomicBool,
    index: AtomicI64,
    zero_divisor: AtomicBool,
}

impl Faults {
    /// No fault so far.
    pub const fn new() -> Faults {
        Faults { out_of_range: AtomicBool::new(false), index: AtomicI64::new(0), zero_divisor: AtomicBool::new(false) }
    }

    /// Records an index outside its dimension.
    pub fn record(&self, index: i64) {
        self.index.store(index, Ordering::Relaxed);
        self.out_of_range.store(true, Ordering::Release);
    }

    /// Records a division of integers by zero.
    pub fn record_zero_divisor(&self) {
        self.zero_divisor.store(true, Ordering::Release);
    }

    /// Whether integers were divided by zero.
    pub fn has_zero_divisor(&self) -> bool {
        self.zero_divisor.load(Ordering::Acquire)
    }

    /// An index that was outside its dimension, if any was.
    pub fn out_of_range(&self) -> Option<i64> {
        self.out_of_range.load(Ordering::Acquire).then(|| self.index.load(Ordering::Relaxed))
    }
}
