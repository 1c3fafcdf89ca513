//! The argument buffer of a kernel: a list of 64-bit words, which is its only parameter.
//!
//! | word | content |
//! |---|---|
//! | [`ROWS`] | rows |
//! | [`INNER`] | elements per row |
//! | [`ITEMS`] | what the grid is cut into: vectors, rows, or blocks of rows |
//! | [`FAULTS`] | address of the fault record, see [`FAULT_WORDS`] |
//! | [`SCRATCH`] | address of [`super::Plan::scratch_bytes`] bytes for the results of blocks |
//! | [`SITE`] | the name of the launch in the fault record: a number below 2^56 that is not 0 |
//! | from [`LOOPS`] | per loop three words: its size, and the multiplier and shift that divide by it |
//! | then | per operand and output: the address of its first element (of an iota its first value, of a number the
//! element itself), and a stride per loop in bytes (units) |
//! | then | per gathered operand: the size of the gathered dimension, and its stride in bytes |
//!
//! Loops are the row loops, the inner loops, and the items of a row. Addresses are added at launch: a [`super::Plan`]
//! holds the offset from the pointer. All else depends on the shapes alone.

use crate::codegen::geometry::Access;

/// Rows.
pub const ROWS: usize = 0;
/// Elements per row.
pub const INNER: usize = 1;
/// Items of the grid.
pub const ITEMS: usize = 2;
/// Address of the fault record.
pub const FAULTS: usize = 3;
/// Address of the results of blocks.
pub const SCRATCH: usize = 4;
/// The name of the launch in the fault record.
pub const SITE: usize = 5;
/// The first word of the loops.
pub const LOOPS: usize = 6;
/// Words of the fault record. The first is 0 as long as there is no fault. Otherwise it is 256 times the site plus a
/// place. The place is the number of the gathered operand, 7 for all from the eighth on, or 255 for an integer division
/// by zero. Then come two words per place: the index out of range, and the size of its dimension.
pub const FAULT_WORDS: usize = 17;
/// Words of a loop: size, multiplier, shift.
const LOOP_WORDS: usize = 3;

/// The positions in a kernel's argument buffer, which depend on its numbers of loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Row loops.
    pub rows: usize,
    /// Inner loops.
    pub inner: usize,
}

impl Layout {
    /// The size of a loop; row loops come first. Its multiplier and shift follow.
    pub const fn size_of_loop(self, index: usize) -> usize {
        LOOPS + LOOP_WORDS * index
    }

    /// The number of the loop over the items of a row, after all others.
    pub const fn items_of_row(self) -> usize {
        self.rows + self.inner
    }

    /// The word with the address of an access; operands come first, then outputs.
    pub const fn address(self, access: usize) -> usize {
        LOOPS + LOOP_WORDS * (self.items_of_row() + 1) + access * (1 + self.rows + self.inner)
    }

    /// The word with the stride of an access along a loop.
    pub const fn stride(self, access: usize, index: usize) -> usize {
        self.address(access) + 1 + index
    }

    /// The word with the size of the `number`-th gathered operand's dimension; its stride in bytes follows.
    pub const fn gathered(self, n_accesses: usize, number: usize) -> usize {
        self.address(n_accesses) + 2 * number
    }

    /// The number of words for so many accesses, of which some are gathered.
    pub const fn n_words(self, n_accesses: usize, n_gathered: usize) -> usize {
        self.gathered(n_accesses, n_gathered)
    }

    /// Writes the words of an access.
    pub(super) fn put_access(self, argument: &mut [u64], number: usize, access: &Access) {
        argument[self.address(number)] = access.base as u64;
        for (index, &stride) in access.rows.iter().chain(&access.inner).enumerate() {
            argument[self.stride(number, index)] = stride as u64;
        }
    }

    /// Writes a loop's size and its division.
    pub(super) fn put_loop(self, argument: &mut [u64], index: usize, size: usize, division: Division) {
        let at = self.size_of_loop(index);
        argument[at] = size as u64;
        argument[at + 1] = division.multiplier;
        argument[at + 2] = division.shift as u64;
    }
}

/// Division by a constant through multiplication: `(high half of n * multiplier + n) >> shift`.
///
/// Exact for every `n` below half of the range of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Division {
    multiplier: u64,
    shift: u32,
}

impl Division {
    /// Division of 32-bit numbers by `divisor`, which is below 2^31. For 0 it divides by 1: an empty loop has no
    /// positions.
    pub(super) fn narrow(divisor: usize) -> Division {
        let divisor = divisor.max(1) as u128;
        let shift = u128::BITS - (divisor - 1).leading_zeros();
        Division { multiplier: (((1 << 32) * ((1 << shift) - divisor)) / divisor + 1) as u64 & u32::MAX as u64, shift }
    }

    /// Division of 64-bit numbers by `divisor`, which is below 2^63.
    pub(super) fn wide(divisor: usize) -> Division {
        let divisor = divisor.max(1) as u128;
        let shift = u128::BITS - (divisor - 1).leading_zeros();
        // 2^64 * (2^shift - divisor) / divisor, where the product would not fit: the quotient is below 2^64.
        let (high, rest) = (((1u128 << shift) - divisor) / divisor, ((1u128 << shift) - divisor) % divisor);
        let low = (rest << 64) / divisor;
        Division { multiplier: ((high << 64) + low + 1) as u64, shift }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisions_are_exact() {
        let around = |n: u64| [n.saturating_sub(1), n, n + 1];
        for power in 0..31 {
            for divisor in
                around(1 << power).into_iter().chain([3, 7, 10, 641, 6700417]).filter(|&d| d > 0 && d < 1 << 31)
            {
                let Division { multiplier, shift } = Division::narrow(divisor as usize);
                let of_quotients = [1, 2, 5, (1 << 31) / divisor].map(|quotient| quotient * divisor);
                let numbers = of_quotients.into_iter().flat_map(around).chain([0, 1, 77, (1 << 31) - 1]);
                for n in numbers.filter(|&n| n < 1 << 31) {
                    let high = (n * multiplier) >> 32;
                    let sum = (high + n) as u32;
                    assert_eq!((sum >> shift) as u64, n / divisor, "{n} / {divisor}");
                }
            }
        }
        for power in 0..63 {
            for divisor in
                around(1 << power).into_iter().chain([3, 7, 10, 641, 6700417]).filter(|&d| d > 0 && d < 1 << 63)
            {
                let Division { multiplier, shift } = Division::wide(divisor as usize);
                let of_quotients = [1, 2, 5, (1 << 63) / divisor].map(|quotient| quotient.saturating_mul(divisor));
                let numbers = of_quotients.into_iter().flat_map(|n| around(n.min(u64::MAX - 1)));
                for n in numbers.chain([0, 1, 77, (1 << 63) - 1]).filter(|&n| n < 1 << 63) {
                    let high = ((n as u128 * multiplier as u128) >> 64) as u64;
                    assert_eq!(
                        high.checked_add(n).expect("below half of the range") >> shift,
                        n / divisor,
                        "{n} / {divisor}"
                    );
                }
            }
        }
    }
}
