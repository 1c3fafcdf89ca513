//! Philox4x32-10: random words as a pure function of a counter and a key (Salmon et al. 2011, "Parallel random
//! numbers: as easy as 1, 2, 3").
//!
//! This module defines every random number of the crate. A *draw* is made from a seed and a first counter.
//!
//! - Of 32-bit words, word `i` is word `i mod 4` of the block whose counter is `first + i / 4` and whose key is the
//!   seed.
//! - Of 64-bit words, word `i` is words `2 i mod 4` and `2 i mod 4 + 1` of the block with counter `first + i / 2`, the
//!   lower half first.
//!
//! So a number depends on seed, counter and position only, and any thread or device can compute any of them.

/// The words of one block.
pub type PhiloxBlock = [u32; 4];

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
/// The fractional bits of the golden ratio and of √3. Every round adds them to the key.
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// One block of random words. They are in 64-bit lanes, of which only the lower halves matter: vectors have products of
/// such lanes.
#[inline(always)]
pub fn philox4x32(counter: PhiloxBlock, key: [u32; 2]) -> PhiloxBlock {
    const LOW: u64 = u32::MAX as u64;
    let ([mut a, mut b, mut c, mut d], [mut left, mut right]) = (counter.map(u64::from), key);
    for round in 0..ROUNDS {
        if round > 0 {
            (left, right) = (left.wrapping_add(WEYL[0]), right.wrapping_add(WEYL[1]));
        }
        let (first, second) = (u64::from(MULTIPLIERS[0]) * (a & LOW), u64::from(MULTIPLIERS[1]) * (c & LOW));
        (a, b, c, d) = (second >> 32 ^ b ^ u64::from(left), second, first >> 32 ^ d ^ u64::from(right), first);
    }
    [a, b, c, d].map(|word| word as u32)
}

/// The block of a seed at a counter.
#[inline(always)]
pub fn block(seed: u64, counter: u64) -> PhiloxBlock {
    philox4x32([counter as u32, (counter >> 32) as u32, 0, 0], [seed as u32, (seed >> 32) as u32])
}

/// How many counters a draw of `n` words of `bytes` bytes each takes.
pub fn n_counters(n: usize, bytes: usize) -> u64 {
    (n as u64).div_ceil(16 / bytes as u64)
}

/// Both 64-bit words of the block of a seed at a counter.
#[inline(always)]
fn pair(seed: u64, counter: u64) -> [u64; 2] {
    let [a, b, c, d] = block(seed, counter).map(u64::from);
    [a | b << 32, c | d << 32]
}

/// How many blocks are computed at a time, so that the compiler makes vectors of them.
const LANES: usize = 16;

/// Calls `put` with the words of each block of `out`, the first of which is that of `counter`.
#[inline(always)]
fn fill<T>(seed: u64, counter: u64, out: &mut [T], put: impl Fn(&mut T, [u64; 2])) {
    let (chunks, rest) = out.as_chunks_mut::<LANES>();
    let last = counter.wrapping_add((chunks.len() * LANES) as u64);
    for (chunk, n) in chunks.iter_mut().zip(0u64..) {
        let first = counter.wrapping_add(n * LANES as u64);
        let (mut lows, mut highs) = ([0; LANES], [0; LANES]);
        for ((low, high), lane) in lows.iter_mut().zip(&mut highs).zip(0u64..) {
            [*low, *high] = pair(seed, first.wrapping_add(lane));
        }
        chunk.iter_mut().zip(lows).zip(highs).for_each(|((out, low), high)| put(out, [low, high]));
    }
    rest.iter_mut().zip(0u64..).for_each(|(out, n)| put(out, pair(seed, last.wrapping_add(n))));
}

/// 32-bit words `start..start + out.len()` of the draw of a seed from a first counter.
#[inline(always)]
pub fn fill32(seed: u64, first: u64, start: usize, out: &mut [u32]) {
    let word = |at: usize| block(seed, first.wrapping_add(at as u64 / 4))[at % 4];
    let head = ((4 - start % 4) % 4).min(out.len());
    let (head, rest) = out.split_at_mut(head);
    head.iter_mut().zip(start..).for_each(|(out, at)| *out = word(at));
    let counter = first.wrapping_add((start + head.len()) as u64 / 4);
    let (blocks, rest) = rest.as_chunks_mut::<4>();
    fill(seed, counter, blocks, |out, [low, high]| {
        *out = [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32];
    });
    let at = start + head.len() + 4 * blocks.len();
    rest.iter_mut().zip(at..).for_each(|(out, at)| *out = word(at));
}

/// 64-bit words `start..start + out.len()` of the draw of a seed from a first counter.
#[inline(always)]
pub fn fill64(seed: u64, first: u64, start: usize, out: &mut [u64]) {
    let word = |at: usize| pair(seed, first.wrapping_add(at as u64 / 2))[at % 2];
    let (head, rest) = out.split_at_mut((start % 2).min(out.len()));
    head.iter_mut().for_each(|out| *out = word(start));
    let counter = first.wrapping_add((start + head.len()) as u64 / 2);
    let (blocks, rest) = rest.as_chunks_mut::<2>();
    fill(seed, counter, blocks, |out, pair| *out = pair);
    let at = start + head.len() + 2 * blocks.len();
    rest.iter_mut().zip(at..).for_each(|(out, at)| *out = word(at));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that come with the paper's library.
    #[test]
    fn known_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, words) in cases {
            assert_eq!(philox4x32(counter, key), words, "{counter:x?} {key:x?}");
        }
    }

    #[test]
    fn many_blocks_at_a_time_are_the_same_words() {
        let (seed, first) = (0xfedc_ba98_7654_3210, u64::MAX - 40);
        let (mut words, mut wide) = (vec![0; 4 * 5 * LANES + 3], vec![0; 2 * 5 * LANES + 1]);
        fill32(seed, first, 0, &mut words);
        fill64(seed, first, 0, &mut wide);
        for (at, word) in words.iter().enumerate() {
            assert_eq!(*word, block(seed, first.wrapping_add(at as u64 / 4))[at % 4], "{at}");
        }
        for (at, word) in wide.iter().enumerate() {
            let block = block(seed, first.wrapping_add(at as u64 / 2));
            assert_eq!([*word as u32, (*word >> 32) as u32], block[at % 2 * 2..][..2], "{at}");
        }
    }

    #[test]
    fn any_part_of_a_draw_is_the_same_words() {
        let (seed, first) = (0x0123_4567_89ab_cdef, u64::MAX - 2);
        let mut all = [0; 41];
        fill32(seed, first, 0, &mut all);
        assert_eq!(all[4..8], block(seed, first.wrapping_add(1)));
        assert_eq!(all[12..16], block(seed, 0), "counters wrap");
        for start in 0..41 {
            for end in start..41 {
                let mut part = vec![0; end - start];
                fill32(seed, first, start, &mut part);
                assert_eq!(part, all[start..end], "{start}..{end}");
            }
        }
        let mut wide = [0; 20];
        fill64(seed, first, 0, &mut wide);
        for (at, word) in wide.iter().enumerate() {
            assert_eq!([*word as u32, (*word >> 32) as u32], all[2 * at..2 * at + 2], "{at}");
        }
        let mut part = [0; 7];
        fill64(seed, first, 3, &mut part);
        assert_eq!(part, wide[3..10]);
        assert_eq!([n_counters(0, 4), n_counters(1, 4), n_counters(4, 4), n_counters(5, 4)], [0, 1, 1, 2]);
        assert_eq!([n_counters(1, 8), n_counters(2, 8), n_counters(3, 8)], [1, 1, 2]);
    }
}
