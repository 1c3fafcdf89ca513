//! Element types, their categories, and type promotion.
//!
//! Promotion follows PyTorch. The highest category among the operands decides (bool < integer < floating). Inside that
//! category tensors with dimensions come first, then 0-dim tensors, then plain numbers.

use std::fmt;

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// IEEE binary16; computed in f32.
    F16,
    /// bfloat16; computed in f32.
    BF16,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
    /// A complex number of two f32.
    Complex64,
    /// A complex number of two f64.
    Complex128,
}

/// The kind of number that a dtype holds, in the order of promotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// Truth values.
    Bool,
    /// Whole numbers.
    Integer,
    /// Floating-point numbers.
    Float,
    /// Complex numbers.
    Complex,
}

impl DType {
    /// Every dtype whose elements are real, in declaration order. Kernels compute with these.
    pub const ALL: [DType; 10] = [
        DType::Bool,
        DType::U8,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ];

    /// The dtypes of complex numbers. Their tensors are pairs of real numbers ([`crate::Tensor::view_as_real`]).
    pub const COMPLEX: [DType; 2] = [DType::Complex64, DType::Complex128];

    /// Every dtype: those of [`DType::ALL`], then those of [`DType::COMPLEX`].
    pub fn real_and_complex() -> impl Iterator<Item = DType> {
        DType::ALL.into_iter().chain(DType::COMPLEX)
    }

    /// The dtype of factories that are given none, and of integers that are converted to floating point.
    pub const DEFAULT_FLOAT: DType = DType::F32;

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            DType::Bool | DType::U8 | DType::I8 => 1,
            DType::I16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::F32 => 4,
            DType::I64 | DType::F64 | DType::Complex64 => 8,
            DType::Complex128 => 16,
        }
    }

    /// The short name: `f32`, `i64`, `bool`, …
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::U8 => "u8",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::Complex64 => "complex64",
            DType::Complex128 => "complex128",
        }
    }

    /// The dtype of that short name.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::real_and_complex().find(|dtype| dtype.name() == name)
    }

    /// The category that promotion sees.
    pub const fn category(self) -> Category {
        match self {
            DType::Bool => Category::Bool,
            DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => Category::Integer,
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => Category::Float,
            DType::Complex64 | DType::Complex128 => Category::Complex,
        }
    }

    /// Whether the dtype is floating point.
    pub const fn is_float(self) -> bool {
        matches!(self.category(), Category::Float)
    }

    /// Whether the elements are complex numbers.
    pub const fn is_complex(self) -> bool {
        matches!(self.category(), Category::Complex)
    }

    /// The dtype of the real and the imaginary part of a complex number. Any other dtype is its own.
    pub const fn part(self) -> DType {
        match (self.is_complex(), self.size()) {
            (true, 8) => DType::F32,
            (true, _) => DType::F64,
            (false, _) => self,
        }
    }

    /// The dtype of complex numbers that hold such parts: `complex128` for f64, else `complex64`.
    pub const fn complex(self) -> DType {
        if matches!(self.part(), DType::F64) { DType::Complex128 } else { DType::Complex64 }
    }

    /// What a kernel does with a complex dtype. It never gets one: graphs and storages hold the parts of complex
    /// numbers, as a dim of two real numbers (`src/tensor/complex.rs`).
    #[cold]
    pub(crate) const fn not_in_kernels() -> ! {
        panic!("kernels compute with the parts of complex numbers")
    }

    /// The dtype that computations are done in: f32 for 16-bit floats, else itself.
    pub const fn widened(self) -> DType {
        match self {
            DType::F16 | DType::BF16 => DType::F32,
            DType::Bool
            | DType::U8
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::F32
            | DType::F64
            | DType::Complex64
            | DType::Complex128 => self,
        }
    }

    /// The common dtype of two tensors with dimensions.
    ///
    /// `u8` with `i8` gives `i16`; `f16` with `bf16` gives `f32`; a floating dtype absorbs integers unchanged. A
    /// complex dtype with `f64` gives `complex128`, and absorbs all others unchanged.
    pub fn promote(self, other: DType) -> DType {
        if self == other {
            return self;
        }
        if self.category() != other.category() {
            let (weaker, stronger) = if self.category() > other.category() { (other, self) } else { (self, other) };
            // The parts of a complex number are as wide as a real number beside it.
            return if stronger.is_complex() && weaker == DType::F64 { weaker.complex() } else { stronger };
        }
        match (self.category(), self.size().max(other.size())) {
            (Category::Bool, _) => DType::Bool,
            (Category::Integer, 1) => DType::I16,
            (Category::Integer, 2) => DType::I16,
            (Category::Integer, 4) => DType::I32,
            (Category::Integer, _) => DType::I64,
            (Category::Float, 8) => DType::F64,
            (Category::Float, _) => DType::F32,
            (Category::Complex, _) => DType::Complex128,
        }
    }

    /// Whether a result of dtype `self` may be written into a destination of dtype `to`.
    pub fn can_cast(self, to: DType) -> bool {
        self.category() <= to.category()
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What promotion needs to know of one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromoteOperand {
    /// Its dtype.
    pub dtype: DType,
    /// Its priority.
    pub rank: PromoteRank,
}

/// The priority of an operand among those of its category, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PromoteRank {
    /// A plain number.
    Number,
    /// A 0-dim tensor.
    ZeroDim,
    /// A tensor with dimensions.
    Tensor,
}

/// The common dtype of several operands, or `None` if there are none.
pub fn promote_all(operands: impl IntoIterator<Item = PromoteOperand>) -> Option<DType> {
    let mut by_rank: [Option<DType>; 3] = [None; 3];
    for operand in operands {
        let slot = &mut by_rank[operand.rank as usize];
        *slot = Some(slot.map_or(operand.dtype, |dtype| dtype.promote(operand.dtype)));
    }
    let mut result: Option<DType> = None;
    for (rank, dtype) in by_rank.into_iter().enumerate().rev() {
        let Some(dtype) = dtype else { continue };
        // A plain floating number counts as the default float, whatever its own width.
        let dtype = if rank == PromoteRank::Number as usize && dtype.is_float() { DType::DEFAULT_FLOAT } else { dtype };
        result = Some(match result {
            Some(stronger) if stronger.category() >= dtype.category() => stronger,
            // A weaker complex number makes numbers of the same width complex.
            Some(stronger) if stronger.is_float() && dtype.is_complex() => stronger.complex(),
            Some(_) | None => dtype,
        });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dtype: DType, rank: PromoteRank) -> PromoteOperand {
        PromoteOperand { dtype, rank }
    }

    #[test]
    fn promotion_pairs() {
        let cases = [
            (DType::U8, DType::I8, DType::I16),
            (DType::U8, DType::I16, DType::I16),
            (DType::F16, DType::BF16, DType::F32),
            (DType::I64, DType::F16, DType::F16),
            (DType::Bool, DType::U8, DType::U8),
            (DType::I32, DType::I64, DType::I64),
            (DType::F32, DType::F64, DType::F64),
        ];
        for (a, b, expected) in cases {
            assert_eq!(a.promote(b), expected, "{a} with {b}");
            assert_eq!(b.promote(a), expected, "{b} with {a}");
        }
    }

    #[test]
    fn promotion_ranks() {
        use PromoteRank::{Number, Tensor, ZeroDim};
        let cases = [
            ((DType::F32, Tensor), (DType::F64, ZeroDim), DType::F32),
            ((DType::I64, Tensor), (DType::F64, ZeroDim), DType::F64),
            ((DType::F16, Tensor), (DType::F32, ZeroDim), DType::F16),
            ((DType::Bool, Tensor), (DType::I64, Number), DType::I64),
            ((DType::Bool, Tensor), (DType::Bool, Number), DType::Bool),
            ((DType::I64, ZeroDim), (DType::F64, Number), DType::F32),
            ((DType::F16, Tensor), (DType::F64, Number), DType::F16),
        ];
        for ((a, ra), (b, rb), expected) in cases {
            assert_eq!(promote_all([of(a, ra), of(b, rb)]), Some(expected), "{a} {ra:?} with {b} {rb:?}");
        }
        assert_eq!(promote_all([]), None);
    }
}
