//! The capacities of blocks.
//!
//! Requests are rounded up to a class, so that a freed block fits the next request of about its size:
//!
//! | capacity | step | who keeps it when freed |
//! |---|---|---|
//! | 64 B – 64 KiB (small) | 64 B up to 256 B, then 4 per power of two | the thread, then the shared list of the class |
//! | 80 KiB – 1.75 MiB (medium) | 4 per power of two | the shared list of the class |
//! | 2 MiB and up (large) | 2 MiB up to 16 MiB, then 8 per power of two | the shared best-fit cache |
//!
//! A capacity is its own class: `capacity(capacity(n)) == capacity(n)`. Waste is below 64 B, 25 %, and 2 MiB or
//! 12.5 %, whichever is larger.

/// Largest capacity that threads cache for themselves.
pub(super) const SMALL_MAX: usize = 64 << 10;
/// Smallest capacity that is mapped on its own, and the unit of such mappings: one huge page.
pub(super) const LARGE_MIN: usize = 2 << 20;
/// Number of small classes.
pub(super) const N_SMALL: usize = 36;
/// Number of small and medium classes.
pub(super) const N_LISTED: usize = 55;
/// Requests above this are refused before any arithmetic on them can overflow.
pub(super) const REQUEST_MAX: usize = isize::MAX as usize / 4;

/// Largest request that a listed class serves; above it blocks are large.
const LISTED_MAX: usize = LARGE_MIN / 4 * 7 / 2;

/// The capacity of a block that serves a request of `bytes`, which is not 0 and at most [`REQUEST_MAX`].
#[inline]
pub(super) fn capacity(bytes: usize) -> usize {
    debug_assert!((1..=REQUEST_MAX).contains(&bytes), "requests are checked by the allocator");
    if bytes <= 256 {
        return bytes.next_multiple_of(64);
    }
    if bytes <= LISTED_MAX {
        return bytes.next_multiple_of(step(bytes, 2));
    }
    if bytes <= 8 * LARGE_MIN {
        return bytes.next_multiple_of(LARGE_MIN);
    }
    bytes.next_multiple_of(step(bytes, 3))
}

/// The index of the small or medium class with that capacity.
#[inline]
pub(super) fn index(capacity: usize) -> usize {
    debug_assert!((64..LARGE_MIN).contains(&capacity), "large blocks have no list");
    if capacity <= 256 {
        return capacity / 64 - 1;
    }
    let octave = (capacity - 1).ilog2();
    (octave as usize - 8) * 4 + ((capacity - 1) >> (octave - 2)) % 4 + 4
}

/// The largest cached large block that a request of `bytes` may take.
///
/// A block freed by a request is found by any request up to 12.5 % smaller. Above 16 MiB, the block is at most 9/8 of
/// the first request, which is at most 8/7 of the second; below, the two are one unit apart.
pub(super) fn largest_fit(bytes: usize) -> usize {
    (capacity(bytes) + LARGE_MIN).max(bytes / 7 * 9 + 9)
}

/// The distance between classes around `bytes` if each octave `(2^k, 2^(k+1)]` has `2^log_steps` of them.
#[inline]
fn step(bytes: usize, log_steps: u32) -> usize {
    1 << ((bytes - 1).ilog2() - log_steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes around every boundary.
    fn sizes() -> impl Iterator<Item = usize> {
        (6..40).flat_map(|log| (8..16).map(move |eighths| (eighths << log) / 8)).flat_map(|size| size - 1..=size + 1)
    }

    #[test]
    fn capacities_are_fixed_points_and_never_too_small() {
        for bytes in (1..5000).chain(sizes()) {
            let capacity = capacity(bytes);
            assert!(capacity >= bytes && capacity.is_multiple_of(64), "{bytes} -> {capacity}");
            assert_eq!(super::capacity(capacity), capacity, "{bytes}");
            let waste = capacity - bytes;
            let allowed = if bytes <= 256 {
                63
            } else if capacity < LARGE_MIN {
                bytes / 4
            } else {
                (bytes / 8).max(LARGE_MIN)
            };
            assert!(waste <= allowed, "{bytes} -> {capacity}");
            assert!(capacity < LARGE_MIN || capacity.is_multiple_of(LARGE_MIN), "{bytes} -> {capacity}");
        }
    }

    #[test]
    fn indices_number_the_listed_classes_without_gaps() {
        let mut capacities: Vec<usize> = sizes().map(capacity).filter(|&capacity| capacity < LARGE_MIN).collect();
        capacities.sort_unstable();
        capacities.dedup();
        assert_eq!(capacities.len(), N_LISTED);
        assert_eq!(capacities[N_SMALL - 1], SMALL_MAX);
        for (at, &capacity) in capacities.iter().enumerate() {
            assert_eq!(index(capacity), at, "{capacity}");
        }
    }

    #[test]
    fn a_freed_large_block_fits_slightly_smaller_requests() {
        for bytes in sizes().filter(|&bytes| bytes >= 3 << 20) {
            for smaller in [bytes, bytes - bytes / 16, bytes - bytes / 8] {
                assert!(capacity(bytes) <= largest_fit(smaller), "{bytes} then {smaller}");
                assert!(capacity(smaller) <= capacity(bytes), "{bytes} then {smaller}");
            }
        }
    }
}
