//! The arithmetic of routines, for every dtype.
//!
//! 16-bit floats are widened to f32 and rounded once when they are stored. Integers wrap; bools add by or and multiply
//! by and. A NaN of arithmetic is stored as the canonical one, as everywhere else.

use super::elements::Truth;
use crate::device::roomy;
use crate::error::Result;
use crate::ir::scalar::half_bits::{round_bf16, round_f16, widen_bf16, widen_f16};
use bytemuck::AnyBitPattern;
use half::{bf16, f16};

/// A number type of computations.
pub(super) trait Number: Copy + PartialOrd + Send + Sync {
    /// Identity of the sum.
    const ZERO: Self;
    /// Identity of the product.
    const ONE: Self;
    /// Not greater than any number.
    const LEAST: Self;
    /// Not less than any number.
    const GREATEST: Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
    /// The product.
    fn times(self, other: Self) -> Self;
    /// The quotient, rounded down for integers. The number itself if `count` is not above 1.
    fn over(self, count: usize) -> Self;
    /// Whether it is a NaN.
    fn is_nan(self) -> bool;
    /// The number, or the canonical NaN.
    fn canonical(self) -> Self;
    /// Whether the number is the canonical form of itself. A NaN counts as one that is not.
    fn is_canonical(self) -> bool;
}

/// An element of a tensor.
pub(super) trait Element: AnyBitPattern + Send + Sync {
    /// The type of its sums and products.
    type Wide: Number;
    /// The type that scans accumulate in; wider for f32, so that long sums stay exact.
    type Running: Number;
    /// The element as a number.
    fn widen(self) -> Self::Wide;
    /// The element that stores a number.
    fn narrow(wide: Self::Wide) -> Self;
    /// The element as a number of a scan.
    fn run(self) -> Self::Running;
    /// The element that stores a number of a scan.
    fn settle(running: Self::Running) -> Self;
    /// Calls `work` with the elements as numbers, and stores what it leaves in them, also if it fails.
    ///
    /// # Errors
    /// As `work`, or if there is no memory for the numbers.
    fn with_wide(elements: &mut [Self], work: impl FnOnce(&mut [Self::Wide]) -> Result<()>) -> Result<()>;
}

macro_rules! floats {
    ($($ty:ident running $running:ident),*) => {$(
        impl Number for $ty {
            const ZERO: $ty = 0.0;
            const ONE: $ty = 1.0;
            const LEAST: $ty = $ty::NEG_INFINITY;
            const GREATEST: $ty = $ty::INFINITY;
            fn plus(self, other: $ty) -> $ty {
                self + other
            }
            fn times(self, other: $ty) -> $ty {
                self * other
            }
            fn over(self, count: usize) -> $ty {
                // Both sides are computed, without a branch. A count of elements has a sign bit to spare, and signed
                // numbers are converted faster.
                let quotient = (self / count as i64 as $ty).canonical();
                if count > 1 { quotient } else { self }
            }
            fn is_nan(self) -> bool {
                $ty::is_nan(self)
            }
            fn canonical(self) -> $ty {
                if self.is_nan() { $ty::NAN } else { self }
            }
            fn is_canonical(self) -> bool {
                !self.is_nan()
            }
        }

        impl Element for $ty {
            type Wide = $ty;
            type Running = $running;
            fn widen(self) -> $ty {
                self
            }
            fn narrow(wide: $ty) -> $ty {
                wide
            }
            fn run(self) -> $running {
                self.into()
            }
            fn settle(running: $running) -> $ty {
                (running as $ty).canonical()
            }
            fn with_wide(elements: &mut [$ty], work: impl FnOnce(&mut [$ty]) -> Result<()>) -> Result<()> {
                work(elements)
            }
        }
    )*};
}

floats!(f32 running f64, f64 running f64);

macro_rules! halves {
    ($($ty:ident $widen:ident $round:ident),*) => {$(
        impl Element for $ty {
            type Wide = f32;
            type Running = f32;
            fn widen(self) -> f32 {
                $widen(self.to_bits())
            }
            fn narrow(wide: f32) -> $ty {
                $ty::from_bits($round(wide))
            }
            fn run(self) -> f32 {
                self.widen()
            }
            fn settle(running: f32) -> $ty {
                $ty::narrow(running.canonical())
            }
            fn with_wide(elements: &mut [$ty], work: impl FnOnce(&mut [f32]) -> Result<()>) -> Result<()> {
                let mut wide: Vec<f32> = roomy(elements.len())?;
                wide.extend(elements.iter().map(|element| element.widen()));
                let result = work(&mut wide);
                // What was not written keeps its bits, also those of a NaN.
                for (element, wide) in elements.iter_mut().zip(wide) {
                    if element.widen().to_bits() != wide.to_bits() {
                        *element = $ty::narrow(wide);
                    }
                }
                result
            }
        }
    )*};
}

halves!(f16 widen_f16 round_f16, bf16 widen_bf16 round_bf16);

macro_rules! itself {
    ($($ty:ident),*) => {$(
        impl Element for $ty {
            type Wide = $ty;
            type Running = $ty;
            fn widen(self) -> $ty {
                self
            }
            fn narrow(wide: $ty) -> $ty {
                wide
            }
            fn run(self) -> $ty {
                self
            }
            fn settle(running: $ty) -> $ty {
                running
            }
            fn with_wide(elements: &mut [$ty], work: impl FnOnce(&mut [$ty]) -> Result<()>) -> Result<()> {
                work(elements)
            }
        }
    )*};
}

itself!(u8, i8, i16, i32, i64, Truth);

macro_rules! integers {
    ($($ty:ident),*) => {$(
        impl Number for $ty {
            const ZERO: $ty = 0;
            const ONE: $ty = 1;
            const LEAST: $ty = $ty::MIN;
            const GREATEST: $ty = $ty::MAX;
            fn plus(self, other: $ty) -> $ty {
                self.wrapping_add(other)
            }
            fn times(self, other: $ty) -> $ty {
                self.wrapping_mul(other)
            }
            fn over(self, count: usize) -> $ty {
                // Dividing by a count does not need more bits.
                if count > 1 { (self as i128).div_euclid(count as i128) as $ty } else { self }
            }
            fn is_nan(self) -> bool {
                false
            }
            fn canonical(self) -> $ty {
                self
            }
            fn is_canonical(self) -> bool {
                true
            }
        }
    )*};
}

integers!(u8, i8, i16, i32, i64);

impl Number for Truth {
    const ZERO: Truth = Truth::new(false);
    const ONE: Truth = Truth::new(true);
    const LEAST: Truth = Truth::new(false);
    const GREATEST: Truth = Truth::new(true);
    fn plus(self, other: Truth) -> Truth {
        Truth::new(self.get() | other.get())
    }
    fn times(self, other: Truth) -> Truth {
        Truth::new(self.get() & other.get())
    }
    fn over(self, _: usize) -> Truth {
        self
    }
    fn is_nan(self) -> bool {
        false
    }
    fn canonical(self) -> Truth {
        Truth::new(self.get())
    }
    fn is_canonical(self) -> bool {
        self.is_zero_or_one()
    }
}

/// Expands a body with `$T` as the element type of a dtype.
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::F16 => {
                type $T = half::f16;
                $body
            }
            DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
            DType::U8 => {
                type $T = u8;
                $body
            }
            DType::I8 => {
                type $T = i8;
                $body
            }
            DType::I16 => {
                type $T = i16;
                $body
            }
            DType::I32 => {
                type $T = i32;
                $body
            }
            DType::I64 => {
                type $T = i64;
                $body
            }
            DType::Bool => {
                type $T = super::elements::Truth;
                $body
            }
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        }
    };
}
pub(super) use with_element;
