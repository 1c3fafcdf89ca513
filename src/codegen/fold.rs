//! What a fold combines, and in which order: the one definition that every tier uses or repeats.
//!
//! [`FoldOp`] and [`IndexFold`] say how two values become one; [`visit`] turns a [`Combine`] and a type into one of
//! them, so that a tier can instantiate its loops; [`sequence`] is the order. A bool is a byte of 0 or 1 here.
//!
//! A partial result that met no element holds the identity, and combining it into another changes nothing. A sum's
//! partial results are never -0.0, because they start from +0.0. A product by 1 is exact. The others pick one of two
//! equal values. So partial results without elements may be skipped.

use super::kernel::{FOLD_BLOCK, FOLD_LANES};
use crate::ir::Combine;
use crate::ir::scalar::Ty;
use std::marker::PhantomData;
use std::ops::Range;

/// A value as folds and tiles store it.
pub trait Element: Copy + Default + PartialOrd + Send + Sync + 'static {
    /// From the bits of a literal.
    fn from_bits64(bits: u64) -> Self;
    /// The bits of a literal: zero-extended.
    fn to_bits64(self) -> u64;
}

/// An element that can be added and multiplied.
pub trait Number: Element {
    /// Neutral for sums.
    const ZERO: Self;
    /// Neutral for products.
    const ONE: Self;
    /// Not above any number.
    const LOWEST: Self;
    /// Not below any number.
    const HIGHEST: Self;
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn times(self, other: Self) -> Self;
    /// Whether it is a NaN.
    fn is_nan(self) -> bool;
}

macro_rules! elements {
    ($($ty:ty, $bits:ty, |$raw:ident| $from:expr, |$value:ident| $to:expr;)*) => {$(
        impl Element for $ty {
            #[inline(always)]
            fn from_bits64(bits: u64) -> $ty {
                let $raw = bits as $bits;
                $from
            }
            #[inline(always)]
            fn to_bits64(self) -> u64 {
                let $value = self;
                let bits: $bits = $to;
                bits as u64
            }
        }
    )*};
}
elements! {
    u8, u8, |raw| raw, |value| value;
    i32, u32, |raw| raw as i32, |value| value as u32;
    i64, u64, |raw| raw as i64, |value| value as u64;
    f32, u32, |raw| f32::from_bits(raw), |value| value.to_bits();
    f64, u64, |raw| f64::from_bits(raw), |value| value.to_bits();
}

macro_rules! numbers {
    ($($ty:ty: $zero:expr, $one:expr, $lowest:expr, $highest:expr, |$a:ident, $b:ident| $plus:expr, $times:expr, $nan:expr;)*) => {$(
        impl Number for $ty {
            const ZERO: $ty = $zero;
            const ONE: $ty = $one;
            const LOWEST: $ty = $lowest;
            const HIGHEST: $ty = $highest;
            #[inline(always)]
            fn plus(self, $b: $ty) -> $ty {
                let $a = self;
                $plus
            }
            #[inline(always)]
            fn times(self, $b: $ty) -> $ty {
                let $a = self;
                $times
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                let is_nan: fn($ty) -> bool = $nan;
                is_nan(self)
            }
        }
    )*};
}
numbers! {
    i32: 0, 1, i32::MIN, i32::MAX, |a, b| a.wrapping_add(b), a.wrapping_mul(b), |_| false;
    i64: 0, 1, i64::MIN, i64::MAX, |a, b| a.wrapping_add(b), a.wrapping_mul(b), |_| false;
    f32: 0.0, 1.0, f32::NEG_INFINITY, f32::INFINITY, |a, b| a + b, a * b, f32::is_nan;
    f64: 0.0, 1.0, f64::NEG_INFINITY, f64::INFINITY, |a, b| a + b, a * b, f64::is_nan;
}

/// How two values become one.
pub trait FoldOp {
    /// What is combined.
    type Value: Element;
    /// Where a partial result starts.
    const IDENTITY: Self::Value;
    /// The partial result `acc` with `x` in it.
    fn combine(acc: Self::Value, x: Self::Value) -> Self::Value;
}

/// Which of two values an index fold keeps.
pub trait IndexFold {
    /// What is compared.
    type Value: Number;
    /// Loses or ties against every value; its index is `i64::MAX`.
    const WORST: Self::Value;
    /// Whether a value is better than another by order alone.
    fn before(a: Self::Value, b: Self::Value) -> bool;

    /// Whether the pair replaces the best so far: a NaN beats all else, ties go to the lower index.
    #[inline(always)]
    fn wins(value: Self::Value, index: i64, best: Self::Value, best_index: i64) -> bool {
        let (nan, best_nan) = (value.is_nan(), best.is_nan());
        let ordered = Self::before(value, best) | (!Self::before(best, value) & (index < best_index));
        (nan & !best_nan) | ((nan == best_nan) & ordered)
    }
}

macro_rules! fold_ops {
    ($($(#[$doc:meta])* $name:ident = $identity:ident, |$acc:ident, $x:ident| $combine:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name<T>(PhantomData<T>);
        impl<T: Number> FoldOp for $name<T> {
            type Value = T;
            const IDENTITY: T = T::$identity;
            #[inline(always)]
            fn combine($acc: T, $x: T) -> T {
                $combine
            }
        }
    )*};
}
fold_ops! {
    /// Sum.
    Sum = ZERO, |acc, x| acc.plus(x);
    /// Product.
    Prod = ONE, |acc, x| acc.times(x);
    /// Greatest; a NaN stays, the later of two equal values is taken.
    Max = LOWEST, |acc, x| if (acc > x) | acc.is_nan() { acc } else { x };
    /// Least.
    Min = HIGHEST, |acc, x| if (acc < x) | acc.is_nan() { acc } else { x };
}

/// Logical or of bytes, which are true unless they are 0.
pub struct Any;
impl FoldOp for Any {
    type Value = u8;
    const IDENTITY: u8 = 0;
    #[inline(always)]
    fn combine(acc: u8, x: u8) -> u8 {
        acc | (x != 0) as u8
    }
}

/// Logical and of bytes, which are true unless they are 0.
pub struct All;
impl FoldOp for All {
    type Value = u8;
    const IDENTITY: u8 = 1;
    #[inline(always)]
    fn combine(acc: u8, x: u8) -> u8 {
        acc & (x != 0) as u8
    }
}

/// Index of the greatest.
pub struct ArgMax<T>(PhantomData<T>);
impl<T: Number> IndexFold for ArgMax<T> {
    type Value = T;
    const WORST: T = T::LOWEST;
    #[inline(always)]
    fn before(a: T, b: T) -> bool {
        a > b
    }
}

/// Index of the least.
pub struct ArgMin<T>(PhantomData<T>);
impl<T: Number> IndexFold for ArgMin<T> {
    type Value = T;
    const WORST: T = T::HIGHEST;
    #[inline(always)]
    fn before(a: T, b: T) -> bool {
        a < b
    }
}

/// Something to be done with a fold's type; see [`visit`].
pub trait Visitor {
    /// What comes of it.
    type Out;
    /// For folds of values.
    fn value<F: FoldOp + 'static>(self) -> Self::Out;
    /// For folds of values with indices.
    fn index<F: IndexFold + 'static>(self) -> Self::Out;
}

/// Calls the visitor with the type that implements a fold.
///
/// # Panics
/// On a fold that does not take the type; kernels are verified.
pub fn visit<V: Visitor>(combine: Combine, ty: Ty, visitor: V) -> V::Out {
    fn numbers<V: Visitor, T: Number>(combine: Combine, visitor: V) -> V::Out {
        match combine {
            Combine::Sum => visitor.value::<Sum<T>>(),
            Combine::Prod => visitor.value::<Prod<T>>(),
            Combine::Max => visitor.value::<Max<T>>(),
            Combine::Min => visitor.value::<Min<T>>(),
            Combine::ArgMax => visitor.index::<ArgMax<T>>(),
            Combine::ArgMin => visitor.index::<ArgMin<T>>(),
            Combine::Any | Combine::All => unreachable!("a logical fold takes bools; kernels are verified"),
        }
    }
    match (ty, combine) {
        (Ty::Bool, Combine::Any) => visitor.value::<Any>(),
        (Ty::Bool, Combine::All) => visitor.value::<All>(),
        (Ty::Bool, _) => unreachable!("an arithmetic fold does not take bools; kernels are verified"),
        (Ty::I32, _) => numbers::<V, i32>(combine, visitor),
        (Ty::I64, _) => numbers::<V, i64>(combine, visitor),
        (Ty::F32, _) => numbers::<V, f32>(combine, visitor),
        (Ty::F64, _) => numbers::<V, f64>(combine, visitor),
    }
}

/// One element or partial result of a fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FoldValue {
    /// The bits of the value as a literal has them.
    pub bits: u64,
    /// Its index; 0 for folds without indices.
    pub index: i64,
}

impl FoldValue {
    /// The bits of the fold's result.
    pub fn result(self, combine: Combine) -> u64 {
        match combine {
            Combine::ArgMax | Combine::ArgMin => self.index as u64,
            Combine::Sum | Combine::Prod | Combine::Max | Combine::Min | Combine::Any | Combine::All => self.bits,
        }
    }
}

/// Folds a sequence of values of type `ty` in the canonical order.
pub fn sequence(combine: Combine, ty: Ty, values: &[FoldValue]) -> FoldValue {
    if values.len() > FOLD_BLOCK {
        let blocks: Vec<FoldValue> = values.chunks(FOLD_BLOCK).map(|block| sequence(combine, ty, block)).collect();
        return sequence(combine, ty, &blocks);
    }
    let step = visit(combine, ty, DynStepOf);
    let mut partial = [step.identity; FOLD_LANES];
    for (index, &value) in values.iter().enumerate() {
        let lane = &mut partial[index % FOLD_LANES];
        *lane = (step.combine)(*lane, value);
    }
    tree(combine, ty, partial)
}

/// The result of all partial results of one block.
pub fn tree(combine: Combine, ty: Ty, mut partial: [FoldValue; FOLD_LANES]) -> FoldValue {
    let step = visit(combine, ty, DynStepOf);
    let mut half = FOLD_LANES / 2;
    while half > 0 {
        for lane in 0..half {
            partial[lane] = (step.combine)(partial[lane], partial[lane + half]);
        }
        half /= 2;
    }
    partial[0]
}

/// What folding a long sequence does next, where the partial results of all levels are kept; see [`steps`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// These elements, of one block, are combined into the partial results of level 0.
    Elements(Range<usize>),
    /// Partial results of a level, from `half` on, are combined into the first ones.
    Halve {
        /// The level; that of elements is 0.
        level: usize,
        /// The first of those that are combined into others.
        half: usize,
        /// How many they are. The others met no element, and would change nothing.
        pairs: usize,
    },
    /// The result of a level is combined into this partial result of the next one, and the level starts again.
    Carry {
        /// The level that is closed.
        level: usize,
        /// The partial result of the next level.
        lane: usize,
    },
}

/// Calls `visit` with each step of folding `n` elements. The result is the first partial result of the last of
/// [`levels`].
pub fn steps(n: usize, mut visit: impl FnMut(Step)) {
    let levels = levels(n);
    for start in (0..n).step_by(FOLD_BLOCK) {
        let end = n.min(start + FOLD_BLOCK);
        visit(Step::Elements(start..end));
        let mut at = end - 1;
        for level in 0..levels {
            if end < n && !(at + 1).is_multiple_of(FOLD_BLOCK) {
                break;
            }
            let used = (at % FOLD_BLOCK + 1).min(FOLD_LANES);
            let mut half = FOLD_LANES / 2;
            while half > 0 {
                let pairs = half.min(used.saturating_sub(half));
                if pairs > 0 {
                    visit(Step::Halve { level, half, pairs });
                }
                half /= 2;
            }
            at /= FOLD_BLOCK;
            if level + 1 < levels {
                visit(Step::Carry { level, lane: at % FOLD_LANES });
            }
        }
    }
}

/// The number of levels of blocks of a fold over `n` elements.
pub fn levels(n: usize) -> usize {
    let mut levels = 1;
    let mut left = n;
    while left > FOLD_BLOCK {
        left = left.div_ceil(FOLD_BLOCK);
        levels += 1;
    }
    levels
}

/// The bits of the value that a partial result starts from.
pub fn identity(combine: Combine, ty: Ty) -> u64 {
    visit(combine, ty, DynStepOf).identity.bits
}

/// A fold on values whose type is known only at run time.
struct DynStep {
    identity: FoldValue,
    combine: fn(FoldValue, FoldValue) -> FoldValue,
}

struct DynStepOf;
impl Visitor for DynStepOf {
    type Out = DynStep;
    fn value<F: FoldOp>(self) -> DynStep {
        DynStep {
            identity: FoldValue { bits: F::IDENTITY.to_bits64(), index: 0 },
            combine: |acc, x| {
                let bits = F::combine(F::Value::from_bits64(acc.bits), F::Value::from_bits64(x.bits)).to_bits64();
                FoldValue { bits, index: 0 }
            },
        }
    }
    fn index<F: IndexFold>(self) -> DynStep {
        DynStep {
            identity: FoldValue { bits: F::WORST.to_bits64(), index: i64::MAX },
            combine: |acc, x| {
                let (value, best) = (F::Value::from_bits64(x.bits), F::Value::from_bits64(acc.bits));
                if F::wins(value, x.index, best, acc.index) { x } else { acc }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Vec<FoldValue> {
        values.iter().enumerate().map(|(i, value)| FoldValue { bits: value.to_bits64(), index: i as i64 }).collect()
    }

    #[test]
    fn nan_wins_and_ties_go_to_the_lower_index() {
        let argmax = |values: &[f32]| sequence(Combine::ArgMax, Ty::F32, &floats(values)).index;
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), 1);
        assert_eq!(argmax(&[1.0, f32::NAN, 3.0, f32::NAN]), 1);
        assert_eq!(argmax(&[f32::NEG_INFINITY; 40]), 0);
        assert_eq!(argmax(&[-0.0, 0.0]), 0);
        let max = |values: &[f32]| f32::from_bits64(sequence(Combine::Max, Ty::F32, &floats(values)).bits);
        assert!(max(&[1.0, f32::NAN, 3.0]).is_nan());
        assert_eq!(max(&[]), f32::NEG_INFINITY);
    }

    #[test]
    fn blocks_are_folded_on_their_own() {
        let mut values = vec![0.0f32; FOLD_BLOCK + 1];
        (values[0], values[32], values[FOLD_BLOCK]) = (1e8, 1.0, 1.0);
        // The 1 in the first block is lost against 1e8; so is the one that comes after the block.
        assert_eq!(f32::from_bits64(sequence(Combine::Sum, Ty::F32, &floats(&values)).bits), 1e8);
        (values[0], values[32]) = (1.0, 1e8);
        values[64] = -1e8;
        assert_eq!(f32::from_bits64(sequence(Combine::Sum, Ty::F32, &floats(&values)).bits), 1.0);
    }
}
