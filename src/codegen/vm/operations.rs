//! Prims, funcs, and storage conversions, as types that the loops of [`super::routine`] are instantiated with.
//!
//! Each is the native form of the same operation in [`crate::ir::scalar::eval`]. A bool is a byte. Every byte
//! except 0 is true, and what is computed is 0 or 1.

#![allow(unsafe_code, reason = "only the unchecked conversion to integers becomes vector instructions")]

use super::division::{FloatRemainder, Quotient};
use super::routine::{Binary, Ternary, Unary};
use crate::codegen::fold::Element;
use crate::ir::scalar::eval::int_pow;
use crate::ir::scalar::half_bits::{narrow_bf16, narrow_f16, round_bf16, round_f16, widen_bf16, widen_f16};
use crate::ir::scalar::math;
use crate::ir::scalar::number::Float;
use std::marker::PhantomData;

/// Prims on any type. A default panics where [`crate::ir::scalar::Prim::result`] rejects the type.
pub(super) trait Native: Element {
    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn rem(self, o: Self) -> Self;
    /// Whether [`Native::usual_rem`] is quicker.
    const HAS_USUAL_REMAINDER: bool;
    /// The remainder without branches, and whether it is right.
    fn usual_rem(self, o: Self) -> (Self, bool);
}

/// Prims on integers; bools are bytes and take part in the logic.
pub(super) trait Bitwise: Element {
    fn and(self, o: Self) -> Self;
    fn or(self, o: Self) -> Self;
    fn xor(self, o: Self) -> Self;
    fn not(self) -> Self;
}

/// Prims on integers only: shifts, with amounts modulo the width; division, which gives 0 for zero; and powers.
pub(super) trait Whole: Element {
    fn quot(self, o: Self) -> Self;
    const HAS_USUAL_QUOTIENT: bool;
    fn usual_quot(self, o: Self) -> (Self, bool);
    fn pow(self, o: Self) -> Self;
    fn shl(self, o: Self) -> Self;
    fn shr(self, o: Self) -> Self;
    fn shru(self, o: Self) -> Self;
}

/// A conversion as [`crate::ir::scalar::eval::convert`] defines it.
pub(super) trait To<T> {
    fn to(self) -> T;
}

macro_rules! integers {
    ($($int:ident, $unsigned:ident;)*) => {$(
        impl Native for $int {
            #[inline(always)]
            fn add(self, o: $int) -> $int {
                self.wrapping_add(o)
            }
            #[inline(always)]
            fn sub(self, o: $int) -> $int {
                self.wrapping_sub(o)
            }
            #[inline(always)]
            fn mul(self, o: $int) -> $int {
                self.wrapping_mul(o)
            }
            #[inline(always)]
            fn neg(self) -> $int {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn abs(self) -> $int {
                self.wrapping_abs()
            }
            #[inline(always)]
            fn rem(self, o: $int) -> $int {
                Quotient::remainder(self, o)
            }
            const HAS_USUAL_REMAINDER: bool = <$int as Quotient>::HAS_USUAL;
            #[inline(always)]
            fn usual_rem(self, o: $int) -> ($int, bool) {
                Quotient::usual_remainder(self, o)
            }
        }
        impl Whole for $int {
            #[inline(always)]
            fn quot(self, o: $int) -> $int {
                Quotient::quotient(self, o)
            }
            const HAS_USUAL_QUOTIENT: bool = <$int as Quotient>::HAS_USUAL;
            #[inline(always)]
            fn usual_quot(self, o: $int) -> ($int, bool) {
                Quotient::usual_quotient(self, o)
            }
            #[inline(always)]
            fn pow(self, o: $int) -> $int {
                int_pow(self as i64, o as i64) as $int
            }
            #[inline(always)]
            fn shl(self, o: $int) -> $int {
                self.wrapping_shl(o as u32)
            }
            #[inline(always)]
            fn shr(self, o: $int) -> $int {
                self.wrapping_shr(o as u32)
            }
            #[inline(always)]
            fn shru(self, o: $int) -> $int {
                (self as $unsigned).wrapping_shr(o as u32) as $int
            }
        }
    )*};
}
integers! { i32, u32; i64, u64; }

macro_rules! floats {
    ($($float:ident)*) => {$(
        impl Native for $float {
            #[inline(always)]
            fn add(self, o: $float) -> $float {
                self + o
            }
            #[inline(always)]
            fn sub(self, o: $float) -> $float {
                self - o
            }
            #[inline(always)]
            fn mul(self, o: $float) -> $float {
                self * o
            }
            #[inline(always)]
            fn neg(self) -> $float {
                -self
            }
            #[inline(always)]
            fn abs(self) -> $float {
                $float::abs(self)
            }
            #[inline(always)]
            fn rem(self, o: $float) -> $float {
                FloatRemainder::remainder(self, o)
            }
            const HAS_USUAL_REMAINDER: bool = true;
            #[inline(always)]
            fn usual_rem(self, o: $float) -> ($float, bool) {
                FloatRemainder::usual_remainder(self, o)
            }
        }
        impl Canonical for $float {
            #[inline(always)]
            fn canonical(self) -> $float {
                // In integers: for floats, the compiler treats all NaNs as equal and drops the selection.
                let (bits, sign) = ($float::to_bits(self), (-0.0 as $float).to_bits());
                let is_nan = bits & !sign > $float::INFINITY.to_bits();
                $float::from_bits(if is_nan { $float::NAN.to_bits() & !sign } else { bits })
            }
        }
    )*};
}
floats! { f32 f64 }

/// NaN without sign and payload.
pub(super) trait Canonical: Element + Float<Mask = bool> {
    fn canonical(self) -> Self;
}

macro_rules! bitwise {
    ($($ty:ident, |$a:ident| $not:expr;)*) => {$(
        impl Bitwise for $ty {
            #[inline(always)]
            fn and(self, o: $ty) -> $ty {
                self & o
            }
            #[inline(always)]
            fn or(self, o: $ty) -> $ty {
                self | o
            }
            #[inline(always)]
            fn xor(self, o: $ty) -> $ty {
                self ^ o
            }
            #[inline(always)]
            fn not(self) -> $ty {
                let $a = self;
                $not
            }
        }
    )*};
}
bitwise! { i32, |a| !a; i64, |a| !a; }

/// Bytes of operands that are used in place may be others than 0 and 1.
impl Bitwise for u8 {
    #[inline(always)]
    fn and(self, o: u8) -> u8 {
        ((self != 0) & (o != 0)) as u8
    }
    #[inline(always)]
    fn or(self, o: u8) -> u8 {
        (self | o != 0) as u8
    }
    #[inline(always)]
    fn xor(self, o: u8) -> u8 {
        ((self != 0) ^ (o != 0)) as u8
    }
    #[inline(always)]
    fn not(self) -> u8 {
        (self == 0) as u8
    }
}

macro_rules! conversions {
    ($($from:ident => $($to:ident)*;)*) => {$($(
        impl To<$to> for $from {
            #[inline(always)]
            fn to(self) -> $to {
                self as $to
            }
        }
    )*)*};
}
conversions! {
    i32 => i32 i64 f32 f64;
    i64 => i32 i64 f32 f64;
    f32 => f32 f64;
    f64 => f32 f64;
}

macro_rules! of_truths {
    ($($to:ident)*) => {$(
        impl To<$to> for u8 {
            #[inline(always)]
            fn to(self) -> $to {
                (self != 0) as u8 as $to
            }
        }
    )*};
}
of_truths! { u8 i32 i64 f32 f64 }

macro_rules! saturating {
    ($($from:ident => $to:ident;)*) => {$(
        impl To<$to> for $from {
            /// What `as` does, written so that it vectorizes.
            #[inline(always)]
            fn to(self) -> $to {
                // The bounds are powers of two, so they are exact; a NaN is in no range.
                let (low, high) = ($to::MIN as $from, -($to::MIN as $from));
                let is_inside = (self >= low) & (self < high);
                // SAFETY: the truncated value is in the integer's range.
                let inside: $to = unsafe { if is_inside { self } else { 0.0 }.to_int_unchecked() };
                let outside = if self >= high { $to::MAX } else { 0 };
                let outside = if self < low { $to::MIN } else { outside };
                if is_inside { inside } else { outside }
            }
        }
    )*};
}
saturating! {
    f32 => i32;
    f32 => i64;
    f64 => i32;
    f64 => i64;
}

macro_rules! truths {
    ($($from:ident, $zero:expr;)*) => {$(
        impl To<u8> for $from {
            #[inline(always)]
            fn to(self) -> u8 {
                (self != $zero) as u8
            }
        }
    )*};
}
truths! { i32, 0; i64, 0; f32, 0.0; f64, 0.0; }

macro_rules! unary {
    ($($name:ident<$bound:path> |$a:ident| $value:expr;)*) => {$(
        pub(super) struct $name<T>(PhantomData<T>);
        impl<T: $bound> Unary for $name<T> {
            type A = T;
            type Out = T;
            #[inline(always)]
            fn apply($a: T) -> T {
                $value
            }
        }
    )*};
}
unary! {
    Copied<Element> |a| a;
    Neg<Native> |a| a.neg();
    Abs<Native> |a| Native::abs(a);
    Not<Bitwise> |a| a.not();
    Sqrt<Canonical> |a| Float::sqrt(a);
    Floor<Canonical> |a| Float::floor(a);
    Ceil<Canonical> |a| Float::ceil(a);
    Trunc<Canonical> |a| Float::trunc(a);
    RoundEven<Canonical> |a| Float::round_even(a);
    Canon<Canonical> |a| a.canonical();
    Rsqrt<Canonical> |a| a.constant(1.0).div(Float::sqrt(a));
}

macro_rules! between {
    ($($name:ident $from:ident => $to:ident |$a:ident| $value:expr;)*) => {$(
        pub(super) struct $name;
        impl Unary for $name {
            type A = $from;
            type Out = $to;
            #[inline(always)]
            fn apply($a: $from) -> $to {
                $value
            }
        }
    )*};
}
between! {
    RoundF16 f32 => f32 |a| widen_f16(round_f16(a));
    RoundBF16 f32 => f32 |a| widen_bf16(round_bf16(a));
    WrapU8 i32 => i32 |a| a as u8 as i32;
    WrapI8 i32 => i32 |a| a as i8 as i32;
    WrapI16 i32 => i32 |a| a as i16 as i32;
    Truth u8 => u8 |a| (a != 0) as u8;
    WidenU8 u8 => i32 |a| a as i32;
    WidenI8 u8 => i32 |a| a as i8 as i32;
    WidenI16 u16 => i32 |a| a as i16 as i32;
    WidenF16 u16 => f32 |a| widen_f16(a);
    WidenBF16 u16 => f32 |a| widen_bf16(a);
    Narrow8 i32 => u8 |a| a as u8;
    Narrow16 i32 => u16 |a| a as u16;
    NarrowF16 f32 => u16 |a| narrow_f16(a);
    NarrowBF16 f32 => u16 |a| narrow_bf16(a);
    StoreF16 f32 => u16 |a| round_f16(a);
    StoreBF16 f32 => u16 |a| round_bf16(a);
}

/// A conversion between types.
pub(super) struct Convert<A, B>(PhantomData<(A, B)>);
impl<A: Element + To<B>, B: Element> Unary for Convert<A, B> {
    type A = A;
    type Out = B;
    #[inline(always)]
    fn apply(a: A) -> B {
        a.to()
    }
}

macro_rules! binary {
    ($($name:ident<$bound:path> |$a:ident, $b:ident| -> $out:ty { $value:expr })*) => {$(
        pub(super) struct $name<T>(PhantomData<T>);
        impl<T: $bound> Binary for $name<T> {
            type A = T;
            type B = T;
            type Out = $out;
            #[inline(always)]
            fn apply($a: T, $b: T) -> $out {
                $value
            }
        }
    )*};
}
binary! {
    Add<Native> |a, b| -> T { a.add(b) }
    Sub<Native> |a, b| -> T { a.sub(b) }
    Mul<Native> |a, b| -> T { a.mul(b) }
    Div<Canonical> |a, b| -> T { Float::div(a, b) }
    Max<Element> |a, b| -> T { if a > b { a } else { b } }
    Min<Element> |a, b| -> T { if a < b { a } else { b } }
    NanMax<Canonical> |a, b| -> T { if (a > b) | Float::ne(a, a) { a } else { b } }
    NanMin<Canonical> |a, b| -> T { if (a < b) | Float::ne(a, a) { a } else { b } }
    Lt<Element> |a, b| -> u8 { (a < b) as u8 }
    Le<Element> |a, b| -> u8 { (a <= b) as u8 }
    Eq<Element> |a, b| -> u8 { (a == b) as u8 }
    Ne<Element> |a, b| -> u8 { (a != b) as u8 }
    And<Bitwise> |a, b| -> T { a.and(b) }
    Or<Bitwise> |a, b| -> T { a.or(b) }
    Xor<Bitwise> |a, b| -> T { a.xor(b) }
    Shl<Whole> |a, b| -> T { a.shl(b) }
    Shr<Whole> |a, b| -> T { a.shr(b) }
    ShrU<Whole> |a, b| -> T { a.shru(b) }
    IntPow<Whole> |a, b| -> T { a.pow(b) }
}

/// Defines operations whose usual operands have a quicker form.
macro_rules! with_usual {
    ($($(#[$doc:meta])* $name:ident<$bound:path> $apply:ident, $has_usual:ident $usual:ident;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name<T>(PhantomData<T>);
        impl<T: $bound> Binary for $name<T> {
            type A = T;
            type B = T;
            type Out = T;
            const HAS_USUAL: bool = T::$has_usual;
            #[inline(always)]
            fn apply(a: T, b: T) -> T {
                a.$apply(b)
            }
            #[inline(always)]
            fn usual(a: T, b: T) -> (T, bool) {
                a.$usual(b)
            }
        }
    )*};
}
with_usual! {
    /// The quotient of integers, toward zero.
    Quot<Whole> quot, HAS_USUAL_QUOTIENT usual_quot;
    /// The remainder of a division toward zero.
    Rem<Native> rem, HAS_USUAL_REMAINDER usual_rem;
}

/// `a * b + c`, rounded once.
pub(super) struct Fma<T>(PhantomData<T>);
impl<T: Canonical> Ternary for Fma<T> {
    type A = T;
    type B = T;
    type C = T;
    type Out = T;
    #[inline(always)]
    fn apply(a: T, b: T, c: T) -> T {
        a.fma(b, c)
    }
}

/// `if mask { yes } else { no }`.
pub(super) struct Select<T>(PhantomData<T>);
impl<T: Element> Ternary for Select<T> {
    type A = u8;
    type B = T;
    type C = T;
    type Out = T;
    #[inline(always)]
    fn apply(mask: u8, yes: T, no: T) -> T {
        if mask != 0 { yes } else { no }
    }
}

/// Whether two bools are the same.
pub(super) struct Same;
impl Binary for Same {
    type A = u8;
    type B = u8;
    type Out = u8;
    #[inline(always)]
    fn apply(a: u8, b: u8) -> u8 {
        a.xor(b) ^ 1
    }
}

/// [`Select`] of bools.
pub(super) struct SelectTruth;
impl Ternary for SelectTruth {
    type A = u8;
    type B = u8;
    type C = u8;
    type Out = u8;
    #[inline(always)]
    fn apply(mask: u8, yes: u8, no: u8) -> u8 {
        Truth::apply(Select::<u8>::apply(mask, yes, no))
    }
}

/// An operation whose result is made canonical at once.
pub(super) struct Canoned<O>(PhantomData<O>);
impl<O: Unary<Out: Canonical>> Unary for Canoned<O> {
    type A = O::A;
    type Out = O::Out;
    #[inline(always)]
    fn apply(a: O::A) -> O::Out {
        O::apply(a).canonical()
    }
}
impl<O: Binary<Out: Canonical>> Binary for Canoned<O> {
    type A = O::A;
    type B = O::B;
    type Out = O::Out;
    #[inline(always)]
    fn apply(a: O::A, b: O::B) -> O::Out {
        O::apply(a, b).canonical()
    }
}
impl<O: Ternary<Out: Canonical>> Ternary for Canoned<O> {
    type A = O::A;
    type B = O::B;
    type C = O::C;
    type Out = O::Out;
    #[inline(always)]
    fn apply(a: O::A, b: O::B, c: O::C) -> O::Out {
        O::apply(a, b, c).canonical()
    }
}

/// An operation whose result is rounded to bf16 at once.
pub(super) struct RoundedBF16<O>(PhantomData<O>);
impl<O: Binary<Out = f32>> Binary for RoundedBF16<O> {
    type A = O::A;
    type B = O::B;
    type Out = f32;
    #[inline(always)]
    fn apply(a: O::A, b: O::B) -> f32 {
        RoundBF16::apply(O::apply(a, b))
    }
}

macro_rules! funcs {
    ($($name:ident $f32:ident $f64:ident;)*) => {$(
        pub(super) struct $name<T>(PhantomData<T>);
        impl Unary for $name<f32> {
            type A = f32;
            type Out = f32;
            #[inline(always)]
            fn apply(a: f32) -> f32 {
                math::$f32(a)
            }
        }
        impl Unary for $name<f64> {
            type A = f64;
            type Out = f64;
            #[inline(always)]
            fn apply(a: f64) -> f64 {
                math::$f64(a)
            }
        }
    )*};
}
funcs! {
    Exp exp32 exp64;
    Exp2 exp2_32 exp2_64;
    Expm1 expm1_32 expm1_64;
    Log log32 log64;
    Log2 log2_32 log2_64;
    Log10 log10_32 log10_64;
    Log1p log1p32 log1p64;
    Tanh tanh32 tanh64;
    Sigmoid sigmoid32 sigmoid64;
    Silu silu32 silu64;
    GeluTanh gelu_tanh_32 gelu_tanh_64;
    Mish mish32 mish64;
    Erf erf32 erf64;
    Asin asin32 asin64;
    Acos acos32 acos64;
    Atan atan32 atan64;
    Erfc erfc32 erfc64;
    Erfinv erfinv32 erfinv64;
    Lgamma lgamma32 lgamma64;
    Digamma digamma32 digamma64;
    Trigamma trigamma32 trigamma64;
}

/// Functions of angles. A block without huge angles skips their range reduction.
macro_rules! angle_funcs {
    ($($name:ident: $($float:ident $func:ident $high:ident),*;)*) => {$(
        pub(super) struct $name<T>(PhantomData<T>);
        $(impl Unary for $name<$float> {
            type A = $float;
            type Out = $float;
            #[inline(always)]
            fn apply(a: $float) -> $float {
                math::$func(a)
            }
            #[inline(always)]
            fn is_usual(a: $float) -> bool {
                a.abs() <= math::small_angles::$high
            }
            #[inline(always)]
            fn apply_usual(a: $float) -> $float {
                math::small_angles::$func(a)
            }
        })*
    )*};
}
angle_funcs! {
    Sin: f32 sin32 HIGH32, f64 sin64 HIGH64;
    Cos: f32 cos32 HIGH32, f64 cos64 HIGH64;
    Tan: f32 tan32 HIGH32, f64 tan64 HIGH64;
}

/// Functions of two numbers.
macro_rules! binary_funcs {
    ($($name:ident: $($float:ident $func:ident),*;)*) => {$(
        pub(super) struct $name<T>(PhantomData<T>);
        $(impl Binary for $name<$float> {
            type A = $float;
            type B = $float;
            type Out = $float;
            #[inline(always)]
            fn apply(a: $float, b: $float) -> $float {
                math::$func(a, b)
            }
        })*
    )*};
}
binary_funcs! {
    Pow: f32 pow32, f64 pow64;
    Atan2: f32 atan2_32, f64 atan2_64;
}
