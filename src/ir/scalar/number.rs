//! The traits that scalar bodies are written over.
//!
//! [`Float`], [`Bits`] and [`Mask`] have the few operations that a body may use. Each is one prim, and about one
//! machine instruction. Native numbers implement them here and compute. Other types record the operations, so both run
//! the same list in the same order.
//!
//! Nothing contracts or reassociates: a product is fused with a sum only where [`Float::fma`] says so. There is
//! deliberately no conversion between floats and integers. Bodies use bit patterns instead, which every tier has.
//! Methods have the names of prims and not those of `std::ops`, so a recorded list reads like its source.

#![allow(clippy::should_implement_trait, reason = "methods are named after the prims they record")]

/// A floating-point number of 32 or 64 bits.
pub trait Float: Copy {
    /// The signed integer of the same width.
    type Bits: Bits<Mask = Self::Mask, Float = Self>;
    /// The result of a comparison.
    type Mask: Mask;

    /// `value` rounded to nearest. `self` only gives the type, and the recorder if there is one.
    fn constant(self, value: f64) -> Self;
    /// `self + o`.
    fn add(self, o: Self) -> Self;
    /// `self - o`.
    fn sub(self, o: Self) -> Self;
    /// `self * o`.
    fn mul(self, o: Self) -> Self;
    /// `self / o`.
    fn div(self, o: Self) -> Self;
    /// The number with its sign flipped, NaN included.
    fn neg(self) -> Self;
    /// The number with its sign cleared, NaN included.
    fn abs(self) -> Self;
    /// The square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// `self * b + c` with one rounding.
    fn fma(self, b: Self, c: Self) -> Self;
    /// Rounded down to a whole number.
    fn floor(self) -> Self;
    /// Rounded up to a whole number.
    fn ceil(self) -> Self;
    /// Rounded toward zero to a whole number.
    fn trunc(self) -> Self;
    /// The nearest whole number, ties to even.
    fn round_even(self) -> Self;
    /// Exactly `if self > o { self } else { o }`: a NaN on either side gives `o`.
    fn max(self, o: Self) -> Self;
    /// Exactly `if self < o { self } else { o }`: a NaN on either side gives `o`.
    fn min(self, o: Self) -> Self;
    /// `self < o`; false for NaN.
    fn lt(self, o: Self) -> Self::Mask;
    /// `self <= o`; false for NaN.
    fn le(self, o: Self) -> Self::Mask;
    /// `self == o`; false for NaN.
    fn eq(self, o: Self) -> Self::Mask;
    /// `self != o`; true for NaN.
    fn ne(self, o: Self) -> Self::Mask;
    /// `yes` where the mask holds, else `no`; both are computed.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;
    /// The bit pattern.
    fn to_bits(self) -> Self::Bits;
}

/// A signed integer as wide as its float. Arithmetic wraps; shift counts are below the width.
pub trait Bits: Copy {
    /// The result of a comparison.
    type Mask: Mask;
    /// The float of the same width.
    type Float;

    /// The low bits of `v`. `self` only gives the type, and the recorder if there is one.
    fn constant(self, v: i64) -> Self;
    /// `self + o`.
    fn add(self, o: Self) -> Self;
    /// `self - o`.
    fn sub(self, o: Self) -> Self;
    /// `self * o`.
    fn mul(self, o: Self) -> Self;
    /// Bitwise and.
    fn and(self, o: Self) -> Self;
    /// Bitwise or.
    fn or(self, o: Self) -> Self;
    /// Bitwise exclusive or.
    fn xor(self, o: Self) -> Self;
    /// Left by `n` bits.
    fn shl(self, n: u32) -> Self;
    /// Right by `n` bits, filling with the sign.
    fn shr(self, n: u32) -> Self;
    /// Right by `n` bits, filling with zero.
    fn shru(self, n: u32) -> Self;
    /// `self < o`, signed.
    fn lt(self, o: Self) -> Self::Mask;
    /// `self == o`.
    fn eq(self, o: Self) -> Self::Mask;
    /// `yes` where the mask holds, else `no`; both are computed.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;
    /// The float with this bit pattern.
    fn to_float_bits(self) -> Self::Float;
}

/// A truth value per lane.
pub trait Mask: Copy {
    /// Both.
    fn and(self, o: Self) -> Self;
    /// Either.
    fn or(self, o: Self) -> Self;
    /// The opposite.
    fn not(self) -> Self;
}

impl Mask for bool {
    #[inline(always)]
    fn and(self, o: Self) -> Self {
        self & o
    }
    #[inline(always)]
    fn or(self, o: Self) -> Self {
        self | o
    }
    #[inline(always)]
    fn not(self) -> Self {
        !self
    }
}

/// Declares methods that are one expression each.
macro_rules! methods {
    ($($name:ident($self:ident $(, $arg:ident: $arg_type:ty)*) -> $out:ty = $body:expr;)*) => {
        $(#[inline(always)]
        fn $name($self $(, $arg: $arg_type)*) -> $out {
            $body
        })*
    };
}

/// Implements [`Float`] for a native float whose bits are a native integer.
macro_rules! native_float {
    ($float:ident, $int:ident) => {
        impl Float for $float {
            type Bits = $int;
            type Mask = bool;

            methods! {
                constant(self, value: f64) -> Self = value as $float;
                add(self, o: Self) -> Self = self + o;
                sub(self, o: Self) -> Self = self - o;
                mul(self, o: Self) -> Self = self * o;
                div(self, o: Self) -> Self = self / o;
                neg(self) -> Self = -self;
                abs(self) -> Self = $float::abs(self);
                sqrt(self) -> Self = $float::sqrt(self);
                fma(self, b: Self, c: Self) -> Self = $float::mul_add(self, b, c);
                floor(self) -> Self = $float::floor(self);
                ceil(self) -> Self = $float::ceil(self);
                trunc(self) -> Self = $float::trunc(self);
                round_even(self) -> Self = $float::round_ties_even(self);
                max(self, o: Self) -> Self = if self > o { self } else { o };
                min(self, o: Self) -> Self = if self < o { self } else { o };
                lt(self, o: Self) -> bool = self < o;
                le(self, o: Self) -> bool = self <= o;
                eq(self, o: Self) -> bool = self == o;
                ne(self, o: Self) -> bool = self != o;
                to_bits(self) -> $int = $float::to_bits(self) as $int;
            }

            #[inline(always)]
            fn select(mask: bool, yes: Self, no: Self) -> Self {
                if mask { yes } else { no }
            }
        }
    };
}

/// Implements [`Bits`] for a native integer. Logical shifts use the unsigned type of the same width.
macro_rules! native_bits {
    ($int:ident, $unsigned:ident, $float:ident) => {
        impl Bits for $int {
            type Mask = bool;
            type Float = $float;

            methods! {
                constant(self, v: i64) -> Self = v as $int;
                add(self, o: Self) -> Self = self.wrapping_add(o);
                sub(self, o: Self) -> Self = self.wrapping_sub(o);
                mul(self, o: Self) -> Self = self.wrapping_mul(o);
                and(self, o: Self) -> Self = self & o;
                or(self, o: Self) -> Self = self | o;
                xor(self, o: Self) -> Self = self ^ o;
                shl(self, n: u32) -> Self = self.wrapping_shl(n);
                shr(self, n: u32) -> Self = self.wrapping_shr(n);
                shru(self, n: u32) -> Self = (self as $unsigned).wrapping_shr(n) as $int;
                lt(self, o: Self) -> bool = self < o;
                eq(self, o: Self) -> bool = self == o;
                to_float_bits(self) -> $float = $float::from_bits(self as $unsigned);
            }

            #[inline(always)]
            fn select(mask: bool, yes: Self, no: Self) -> Self {
                if mask { yes } else { no }
            }
        }
    };
}

native_float!(f32, i32);
native_float!(f64, i64);
native_bits!(i32, u32, f32);
native_bits!(i64, u64, f64);
