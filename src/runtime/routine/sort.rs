//! Sorts and selections: the places of elements in the order of their values.
//!
//! Every element becomes an integer with the same order, so one sort of integers serves all dtypes. For floats, −0.0
//! equals 0.0, and a NaN is greater than any number and equal to any other NaN. A key is that integer and the place of
//! its element. So no two keys are equal, and the order of equal elements is that of their places.
//!
//! Long lines are sorted by their digits (`radix`), and short ones by comparisons. Where only the first of a line are
//! wanted, one pass keeps the best so far. Lines are worked on in parallel if there is enough work; the split does not
//! change results.

use super::elements::{Operands, Truth};
use super::number::with_element;
use super::walk::{StridedWalk, dim};
use crate::device::{pool, roomy};
use crate::error::{Error, Result};
use crate::ir::attrs::{Argsort, Attributes, TopkIndices};
use crate::ir::{Attr, DType, Op};
use bytemuck::AnyBitPattern;
use half::{bf16, f16};
use std::sync::{Mutex, PoisonError};

/// Elements that pay for one more thread.
const WORTH_A_THREAD: usize = 1 << 14;
/// A line of fewer elements is sorted by comparisons.
const SHORT_LINE: usize = 1024;
/// Bits of a digit.
const DIGIT: u32 = 11;
/// Elements that are compared with the worst of the best at once.
const BATCH: usize = 16;

/// An element with an order.
trait Ordered: AnyBitPattern + Send + Sync {
    /// How many bits a rank has.
    const BITS: u32;
    /// An integer with the order of the elements.
    fn rank(self) -> u64;
}

macro_rules! ordered_floats {
    ($($ty:ident as $bits:ident and $signed:ident),*) => {$(
        impl Ordered for $ty {
            const BITS: u32 = $bits::BITS;
            #[inline(always)]
            fn rank(self) -> u64 {
                const SIGN: $bits = 1 << ($bits::BITS - 1);
                let bits = if self.to_bits() == SIGN { 0 } else { self.to_bits() };
                // Among negative numbers, greater bits mean a lesser number.
                let flipped = (bits as $signed >> ($bits::BITS - 1)) as $bits | SIGN;
                (if self.is_nan() { $bits::MAX } else { bits ^ flipped }).into()
            }
        }
    )*};
}

ordered_floats!(f16 as u16 and i16, bf16 as u16 and i16, f32 as u32 and i32, f64 as u64 and i64);

macro_rules! ordered_integers {
    ($($ty:ident as $bits:ident),*) => {$(
        impl Ordered for $ty {
            const BITS: u32 = $bits::BITS;
            #[inline(always)]
            fn rank(self) -> u64 {
                // The least number becomes 0.
                (self.wrapping_sub($ty::MIN) as $bits).into()
            }
        }
    )*};
}

ordered_integers!(u8 as u8, i8 as u8, i16 as u16, i32 as u32, i64 as u64);

impl Ordered for Truth {
    const BITS: u32 = 1;
    #[inline(always)]
    fn rank(self) -> u64 {
        self.get().into()
    }
}

/// A rank and a place, ordered by both.
trait Key: Copy + Ord + Default + Send {
    fn new(rank: u64, place: usize) -> Self;
    fn place(self) -> i64;
    fn rank(self) -> u64;
}

/// A rank of at most 32 bits above a place of at most 32 bits.
impl Key for u64 {
    #[inline(always)]
    fn new(rank: u64, place: usize) -> u64 {
        rank << 32 | place as u64
    }
    fn place(self) -> i64 {
        (self & u64::from(u32::MAX)) as i64
    }
    #[inline(always)]
    fn rank(self) -> u64 {
        self >> 32
    }
}

impl Key for (u64, u64) {
    #[inline(always)]
    fn new(rank: u64, place: usize) -> (u64, u64) {
        (rank, place as u64)
    }
    fn place(self) -> i64 {
        self.1 as i64
    }
    #[inline(always)]
    fn rank(self) -> u64 {
        self.0
    }
}

/// Argsort: all places of each line.
pub(super) fn run(op: Op, attrs: &[Attr], operands: Operands<'_>) -> Result<()> {
    let Argsort { dim, descending, .. } = Argsort::read(attrs);
    each_line(op, dim, descending, None, operands)
}

/// The places of the `k` greatest or least elements of each line, in order.
pub(super) fn first(op: Op, attrs: &[Attr], operands: Operands<'_>) -> Result<()> {
    let TopkIndices { k, dim, largest } = TopkIndices::read(attrs);
    each_line(op, dim, largest, Some(k as usize), operands)
}

fn each_line(op: Op, along: i64, descending: bool, k: Option<usize>, mut operands: Operands<'_>) -> Result<()> {
    let (input, output) = (operands.inputs.array(0), operands.output.array());
    let dim = dim(op, along, input)?;
    let (walk, line) =
        StridedWalk::lines(&input.layout().sizes, dim, [&input.layout().strides, &output.layout().strides]);
    let lines = Lines { walk, len: line.len, step: line.steps[0], out_step: line.steps[1], k };
    let n_elements = input.layout().numel();
    with_element!(input.dtype(), T => {
        let (from, to) = (operands.inputs.elements::<T>(0), operands.output.elements::<i64>());
        let span = Span::of::<T>(from, descending);
        match span.bits <= 32 && lines.len <= u32::MAX as usize {
            true => lines.order::<T, u64>(from, to, n_elements, span),
            false => lines.order::<T, (u64, u64)>(from, to, n_elements, span),
        }
    })
}

/// The ranks that keys are made of, the least first.
#[derive(Clone, Copy)]
struct Span {
    /// Inverts the order of ranks: largest first, while equal elements keep their order.
    flip: u64,
    /// The least rank after that.
    least: u64,
    /// Bits of the difference between the least and the greatest.
    bits: u32,
}

impl Span {
    /// The ranks of these elements. Those of 64 bits are looked at, because most integers need fewer.
    fn of<T: Ordered>(elements: &[T], descending: bool) -> Span {
        let flip = if descending { u64::MAX >> (64 - T::BITS) } else { 0 };
        if T::BITS <= 32 {
            return Span { flip, least: 0, bits: T::BITS };
        }
        let widen = |(least, most): (u64, u64), x: &T| (least.min(x.rank() ^ flip), most.max(x.rank() ^ flip));
        let (least, most) = elements.iter().fold((u64::MAX, 0), widen);
        Span { flip, least, bits: u64::BITS - most.saturating_sub(least).leading_zeros() }
    }

    #[inline(always)]
    fn rank<T: Ordered>(self, x: T) -> u64 {
        (x.rank() ^ self.flip) - self.least
    }
}

/// The lines of a tensor, and what is wanted of each.
struct Lines {
    walk: StridedWalk<2>,
    len: usize,
    step: usize,
    out_step: usize,
    /// How many places are wanted, if not all.
    k: Option<usize>,
}

impl Lines {
    fn order<T: Ordered, K: Key>(&self, from: &[T], to: &mut [i64], n_elements: usize, span: Span) -> Result<()> {
        let k = self.k.unwrap_or(self.len);
        if self.out_step != 1 || n_elements < 2 * WORTH_A_THREAD {
            let mut room = self.room::<K>()?;
            self.walk.each(|[at, out]| {
                let places = self.places(&from[at..], &mut room, span);
                places.iter().enumerate().for_each(|(i, key)| to[out + i * self.out_step] = key.place());
            });
            return Ok(());
        }
        let mut rows: Vec<(usize, Mutex<&mut [i64]>)> = roomy(n_elements / self.len.max(1))?;
        let mut lines = to.chunks_exact_mut(k);
        self.walk.each(|[at, _]| rows.extend(lines.next().map(|to| (at, Mutex::new(to)))));
        let failed: Mutex<Option<Error>> = Mutex::new(None);
        pool::parallel_for(rows.len(), n_elements / WORTH_A_THREAD, |range| {
            let mut room = match self.room::<K>() {
                Ok(room) => room,
                Err(error) => {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    return;
                }
            };
            for (at, row) in &rows[range] {
                let places = self.places(&from[*at..], &mut room, span);
                let mut row = row.lock().unwrap_or_else(PoisonError::into_inner);
                row.iter_mut().zip(places).for_each(|(to, key)| *to = key.place());
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Whether the wanted are few enough that a pass with a bound finds them.
    fn is_selection(&self) -> bool {
        self.k.is_some_and(|k| k <= self.len / 4)
    }

    /// The most keys that are kept while a few are selected.
    fn selected_room(&self) -> usize {
        2 * self.k.unwrap_or(0) + 4 * BATCH
    }

    /// Room for the keys of a line, and for their copies while digits are sorted.
    fn room<K: Key>(&self) -> Result<[Vec<K>; 2]> {
        let is_radix = !self.is_selection() && self.len >= SHORT_LINE;
        let n_keys = if self.is_selection() { self.selected_room() } else { self.len };
        Ok([roomy(n_keys)?, roomy(if is_radix { n_keys } else { 0 })?])
    }

    /// The first keys of the line that starts at the first element.
    fn places<'a, T: Ordered, K: Key>(&self, from: &[T], [keys, other]: &'a mut [Vec<K>; 2], span: Span) -> &'a [K] {
        keys.clear();
        if self.is_selection() {
            self.select(from, span, keys);
        } else {
            keys.extend((0..self.len).map(|i| K::new(span.rank(from[i * self.step]), i)));
            if self.len < SHORT_LINE {
                keys.sort_unstable();
            } else {
                radix(keys, other, span.bits);
            }
        }
        &keys[..self.k.unwrap_or(self.len)]
    }

    /// Leaves the `k` least keys, sorted. Elements are compared with the worst of the best so far, a batch at a time.
    fn select<T: Ordered, K: Key>(&self, from: &[T], span: Span, keys: &mut Vec<K>) {
        let (k, room) = (self.k.unwrap_or(0), self.selected_room());
        let mut bound = u64::MAX;
        let mut start = 0;
        while start < self.len {
            let n = BATCH.min(self.len - start);
            let mut ranks = [u64::MAX; BATCH];
            match self.step {
                1 => ranks.iter_mut().zip(&from[start..start + n]).for_each(|(rank, &x)| *rank = span.rank(x)),
                step => ranks[..n].iter_mut().zip(start..).for_each(|(rank, i)| *rank = span.rank(from[i * step])),
            }
            if ranks.iter().fold(false, |any, &rank| any | (rank <= bound)) {
                keys.extend((0..n).filter(|&i| ranks[i] <= bound).map(|i| K::new(ranks[i], start + i)));
                if keys.len() + BATCH > room {
                    keys.select_nth_unstable(k - 1);
                    keys.truncate(k);
                    bound = keys[k - 1].rank();
                }
            }
            start += n;
        }
        keys.sort_unstable();
        keys.truncate(k);
    }
}

/// Sorts keys by their ranks of so many bits, digit by digit from the least. Keys of one rank keep their order.
fn radix<K: Key>(keys: &mut Vec<K>, other: &mut Vec<K>, bits: u32) {
    const N_DIGITS: usize = 1 << DIGIT;
    let digit = |key: K, shift: u32| (key.rank() >> shift) as usize & (N_DIGITS - 1);
    other.clear();
    other.resize(keys.len(), K::default());
    let mut shift = 0;
    while shift < bits {
        let mut counts = [0usize; N_DIGITS];
        keys.iter().for_each(|&key| counts[digit(key, shift)] += 1);
        // All keys have the same digit: they are in order already.
        let is_one = keys.first().is_none_or(|&key| counts[digit(key, shift)] == keys.len());
        if !is_one {
            let mut next = 0;
            for count in &mut counts {
                next += std::mem::replace(count, next);
            }
            for &key in keys.iter() {
                let at = &mut counts[digit(key, shift)];
                other[*at] = key;
                *at += 1;
            }
            std::mem::swap(keys, other);
        }
        shift += DIGIT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_the_order_of_floats() {
        let sorted = [f32::NEG_INFINITY, -2.0, -1e-45, 0.0, 1e-45, 2.0, f32::INFINITY, f32::NAN];
        assert!(sorted.is_sorted_by(|a, b| a.rank() < b.rank()));
        assert_eq!((-0.0f32).rank(), 0.0f32.rank());
        assert_eq!((-f32::NAN).rank(), f32::NAN.rank());
        assert!([i64::MIN, -1, 0, i64::MAX].is_sorted_by(|a, b| a.rank() < b.rank()));
        assert!([i8::MIN, -1, 0, i8::MAX].is_sorted_by(|a, b| a.rank() < b.rank()));
    }

    #[test]
    fn digits_sort_like_comparisons() {
        let ranks = |i: usize| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let mut keys: Vec<(u64, u64)> = (0..5000).map(|i| Key::new((ranks(i) % 1000) << 30, i)).collect();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        radix(&mut keys, &mut Vec::new(), 64);
        assert_eq!(keys, sorted);
    }
}
