//! Scalar types and primitives.
//!
//! Bodies compute in five types: `bool`, `i32`, `i64`, `f32`, `f64`. Narrower dtypes are widened by a load. A rounding
//! prim ([`Prim::RoundF16`], [`Prim::WrapU8`], …) narrows them where an eager call would store.
//!
//! Hardware does not define the payload of a NaN that arithmetic makes, so results pass through [`Prim::Canon`]. Only
//! `Canon`, the moves (`Select`, `Bitcast`) and the sign prims see payloads.

use crate::error::{Error, Result};
use crate::ir::{DType, EntityId, SideTable};
use half::{bf16, f16};
use std::fmt;

/// The type of a scalar inside a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ty {
    /// A truth value.
    Bool,
    /// 32-bit integer; also u8, i8 and i16 while computed.
    I32,
    /// 64-bit integer.
    I64,
    /// binary32; also f16 and bf16 while computed.
    F32,
    /// binary64.
    F64,
}

impl Ty {
    /// Every type.
    pub const ALL: [Ty; 5] = [Ty::Bool, Ty::I32, Ty::I64, Ty::F32, Ty::F64];

    /// Whether it is floating point.
    pub const fn is_float(self) -> bool {
        matches!(self, Ty::F32 | Ty::F64)
    }

    /// Bytes of one value in a register file or tile.
    pub const fn size(self) -> usize {
        match self {
            Ty::Bool => 1,
            Ty::I32 | Ty::F32 => 4,
            Ty::I64 | Ty::F64 => 8,
        }
    }

    /// The result type of a bit cast: the integer or float of the same width.
    pub const fn bitcast(self) -> Ty {
        match self {
            Ty::Bool => Ty::Bool,
            Ty::I32 => Ty::F32,
            Ty::F32 => Ty::I32,
            Ty::I64 => Ty::F64,
            Ty::F64 => Ty::I64,
        }
    }

    /// The dtype whose storage is this type.
    pub const fn dtype(self) -> DType {
        match self {
            Ty::Bool => DType::Bool,
            Ty::I32 => DType::I32,
            Ty::I64 => DType::I64,
            Ty::F32 => DType::F32,
            Ty::F64 => DType::F64,
        }
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.dtype().name())
    }
}

impl DType {
    /// The type that elements of this dtype, or their parts, are computed in.
    pub const fn compute(self) -> Ty {
        match self {
            DType::Bool => Ty::Bool,
            DType::U8 | DType::I8 | DType::I16 | DType::I32 => Ty::I32,
            DType::I64 => Ty::I64,
            DType::F16 | DType::BF16 | DType::F32 | DType::Complex64 => Ty::F32,
            DType::F64 | DType::Complex128 => Ty::F64,
        }
    }

    /// The prim that rounds or wraps a computed value to this dtype before a store, if one is needed.
    pub const fn rounding(self) -> Option<Prim> {
        match self {
            DType::Bool | DType::I32 | DType::I64 => None,
            DType::U8 => Some(Prim::WrapU8),
            DType::I8 => Some(Prim::WrapI8),
            DType::I16 => Some(Prim::WrapI16),
            DType::F16 => Some(Prim::RoundF16),
            DType::BF16 => Some(Prim::RoundBF16),
            DType::F32 | DType::F64 | DType::Complex64 | DType::Complex128 => Some(Prim::Canon),
        }
    }
}

/// A plain number as a user writes it.
#[derive(Debug, Clone, Copy)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A floating-point number.
    Float(f64),
}

impl Scalar {
    /// Its dtype in promotion.
    pub const fn dtype(self) -> DType {
        match self {
            Scalar::Bool(_) => DType::Bool,
            Scalar::Int(_) => DType::I64,
            Scalar::Float(_) => DType::F64,
        }
    }

    /// As a floating-point number.
    pub const fn as_f64(self) -> f64 {
        match self {
            Scalar::Bool(value) => value as u8 as f64,
            Scalar::Int(value) => value as f64,
            Scalar::Float(value) => value,
        }
    }

    /// As a whole number, rounded toward zero. Floats out of range saturate, and NaN gives 0.
    pub const fn as_i64(self) -> i64 {
        match self {
            Scalar::Bool(value) => value as i64,
            Scalar::Int(value) => value,
            Scalar::Float(value) => value as i64,
        }
    }

    /// As a truth value: anything but zero is true, NaN included.
    pub const fn as_bool(self) -> bool {
        match self {
            Scalar::Bool(value) => value,
            Scalar::Int(value) => value != 0,
            Scalar::Float(value) => value != 0.0,
        }
    }

    /// The number converted to the category of `dtype`.
    pub fn into_dtype(self, dtype: DType) -> Scalar {
        match dtype.compute() {
            Ty::Bool => Scalar::Bool(self.as_bool()),
            Ty::I32 | Ty::I64 => Scalar::Int(self.as_i64()),
            Ty::F32 | Ty::F64 => Scalar::Float(self.as_f64()),
        }
    }

    /// Whether an element of `dtype` can hold this number, fractions aside. As in PyTorch, whole numbers in
    /// `-255..=255` fit u8, and any number fits 16-bit floats, as an infinity if it is too large.
    pub fn fits(self, dtype: DType) -> bool {
        let (least, greatest) = match dtype {
            DType::U8 => (0, u8::MAX.into()),
            DType::I8 => (i8::MIN.into(), i8::MAX.into()),
            DType::I16 => (i16::MIN.into(), i16::MAX.into()),
            DType::I32 => (i32::MIN.into(), i32::MAX.into()),
            DType::I64 => (i64::MIN, i64::MAX),
            DType::F32 | DType::Complex64 => {
                return !self.as_f64().is_finite() || self.as_f64().abs() <= f32::MAX.into();
            }
            DType::Bool | DType::F16 | DType::BF16 | DType::F64 | DType::Complex128 => return true,
        };
        match self {
            Scalar::Bool(_) => true,
            Scalar::Int(value) if dtype == DType::U8 => value.unsigned_abs() <= u8::MAX.into(),
            Scalar::Int(value) => (least..=greatest).contains(&value),
            // The greatest i64 is rounded up to a power of two, which does not fit.
            Scalar::Float(value) => value >= least as f64 && value.trunc() < greatest as f64 + 1.0,
        }
    }

    /// Checks that an element of `dtype` can hold this number.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn need_fit(self, op: &str, dtype: DType) -> Result<()> {
        if self.fits(dtype) {
            return Ok(());
        }
        let what = format!("value cannot be converted to type {dtype} without overflow: it is {self}");
        Err(Error::argument(op, format!("{what}; choose a wider dtype, or a number in its range")))
    }

    /// The literal that holds this number after conversion to `dtype`.
    pub fn to_lit(self, dtype: DType) -> Lit {
        let wide = match dtype.compute() {
            Ty::Bool => Lit::bool(self.as_bool()),
            Ty::I32 => Lit::i32(self.as_i64() as i32),
            Ty::I64 => Lit::i64(self.as_i64()),
            Ty::F32 => match self {
                // One rounding: a conversion by way of f64 would round twice.
                Scalar::Int(value) => Lit::f32(value as f32),
                Scalar::Bool(_) | Scalar::Float(_) => Lit::f32(self.as_f64() as f32),
            },
            Ty::F64 => Lit::f64(self.as_f64()),
        };
        dtype.rounding().map_or(wide, |prim| super::eval::prim(prim, &[wide]))
    }
}

// Constants compare by bits: 0.0 is not -0.0, and a NaN equals itself.
impl PartialEq for Scalar {
    #[inline]
    fn eq(&self, other: &Scalar) -> bool {
        match (self, other) {
            (Scalar::Bool(a), Scalar::Bool(b)) => a == b,
            (Scalar::Int(a), Scalar::Int(b)) => a == b,
            (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits(),
            (Scalar::Bool(_) | Scalar::Int(_) | Scalar::Float(_), _) => false,
        }
    }
}
impl Eq for Scalar {}

impl std::hash::Hash for Scalar {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        match self {
            Scalar::Bool(value) => (0u8, *value as u64).hash(state),
            Scalar::Int(value) => (1u8, *value as u64).hash(state),
            Scalar::Float(value) => (2u8, value.to_bits()).hash(state),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(value) => write!(f, "{value}"),
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::Float(value) => write!(f, "{value:?}"),
        }
    }
}

macro_rules! scalar_from {
    ($($from:ty => $variant:ident($to:ty)),* $(,)?) => {$(
        impl From<$from> for Scalar {
            fn from(value: $from) -> Scalar {
                Scalar::$variant(<$to>::from(value))
            }
        }
    )*};
}
scalar_from!(bool => Bool(bool), u8 => Int(i64), u16 => Int(i64), u32 => Int(i64), i8 => Int(i64), i16 => Int(i64),
             i32 => Int(i64), i64 => Int(i64), f16 => Float(f64), bf16 => Float(f64), f32 => Float(f64),
             f64 => Float(f64));

macro_rules! wide_scalar_from {
    ($($from:ty),*) => {$(
        /// A number beyond the integers of tensors becomes a float.
        impl From<$from> for Scalar {
            fn from(value: $from) -> Scalar {
                i64::try_from(value).map_or(Scalar::Float(value as f64), Scalar::Int)
            }
        }
    )*};
}
wide_scalar_from!(u64, usize, isize);

/// A literal of a scalar type, by its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lit {
    /// Its type.
    pub ty: Ty,
    /// Its bits, zero-extended to 64.
    pub bits: u64,
}

impl Lit {
    /// A truth value.
    pub const fn bool(value: bool) -> Lit {
        Lit { ty: Ty::Bool, bits: value as u64 }
    }

    /// A 32-bit integer.
    pub const fn i32(value: i32) -> Lit {
        Lit { ty: Ty::I32, bits: value as u32 as u64 }
    }

    /// A 64-bit integer.
    pub const fn i64(value: i64) -> Lit {
        Lit { ty: Ty::I64, bits: value as u64 }
    }

    /// A binary32 number.
    pub const fn f32(value: f32) -> Lit {
        Lit { ty: Ty::F32, bits: value.to_bits() as u64 }
    }

    /// A binary64 number.
    pub const fn f64(value: f64) -> Lit {
        Lit { ty: Ty::F64, bits: value.to_bits() }
    }

    /// A number of type `ty`: rounded toward zero for integers, to nearest for floats.
    pub const fn number(ty: Ty, value: f64) -> Lit {
        match ty {
            Ty::Bool => Lit::bool(value != 0.0),
            Ty::I32 => Lit::i32(value as i32),
            Ty::I64 => Lit::i64(value as i64),
            Ty::F32 => Lit::f32(value as f32),
            Ty::F64 => Lit::f64(value),
        }
    }

    /// The value of an f32 literal.
    pub const fn as_f32(self) -> f32 {
        f32::from_bits(self.bits as u32)
    }

    /// The value of an f64 literal.
    pub const fn as_f64(self) -> f64 {
        f64::from_bits(self.bits)
    }

    /// The value of an i32 literal.
    pub const fn as_i32(self) -> i32 {
        self.bits as u32 as i32
    }

    /// The value of an i64 literal.
    pub const fn as_i64(self) -> i64 {
        self.bits as i64
    }

    /// The value of a bool literal.
    pub const fn as_bool(self) -> bool {
        self.bits != 0
    }
}

impl fmt::Display for Lit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ty {
            Ty::Bool => write!(f, "{}", self.as_bool()),
            Ty::I32 => write!(f, "{}", self.as_i32()),
            Ty::I64 => write!(f, "{}", self.as_i64()),
            Ty::F32 => write!(f, "{:?}", self.as_f32()),
            Ty::F64 => write!(f, "{:?}", self.as_f64()),
        }
    }
}

macro_rules! prims {
    ($($(#[$doc:meta])* $Variant:ident $name:literal $arity:literal,)*) => {
        /// A scalar primitive. Operands have one type unless its line says otherwise; integers wrap.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Prim { $($(#[$doc])* $Variant,)* /** Conversion to another type; see [`super::eval::convert`]. */ Convert(Ty) }

        impl Prim {
            /// Every prim, conversions once per target type.
            pub fn all() -> impl Iterator<Item = Prim> {
                [$(Prim::$Variant),*].into_iter().chain(Ty::ALL.map(Prim::Convert))
            }

            /// The name in the text form.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Prim::$Variant => $name,)*
                    Prim::Convert(Ty::Bool) => "to_bool",
                    Prim::Convert(Ty::I32) => "to_i32",
                    Prim::Convert(Ty::I64) => "to_i64",
                    Prim::Convert(Ty::F32) => "to_f32",
                    Prim::Convert(Ty::F64) => "to_f64",
                }
            }

            /// The number of operands.
            pub const fn arity(self) -> usize {
                match self { $(Prim::$Variant => $arity,)* Prim::Convert(_) => 1 }
            }
        }
    };
}

prims! {
    /// Sum of numbers.
    Add "add" 2,
    /// Difference of numbers.
    Sub "sub" 2,
    /// Product of numbers.
    Mul "mul" 2,
    /// Quotient of floats.
    Div "div" 2,
    /// `a * b + c` with one rounding, floats.
    Fma "fma" 3,
    /// Sign flipped.
    Neg "neg" 1,
    /// Sign cleared.
    Abs "abs" 1,
    /// Square root of a float.
    Sqrt "sqrt" 1,
    /// Float rounded down to a whole number.
    Floor "floor" 1,
    /// Float rounded up to a whole number.
    Ceil "ceil" 1,
    /// Float rounded toward zero to a whole number.
    Trunc "trunc" 1,
    /// Nearest whole number, ties to even, floats.
    RoundEven "round" 1,
    /// `if a > b { a } else { b }`: a NaN or an equal pair gives the second operand.
    Max "max" 2,
    /// `if a < b { a } else { b }`.
    Min "min" 2,
    /// `a < b`, a bool; false for NaN.
    Lt "lt" 2,
    /// `a <= b`, a bool.
    Le "le" 2,
    /// `a == b`, a bool; any type.
    Eq "eq" 2,
    /// `a != b`, a bool; true for NaN; any type.
    Ne "ne" 2,
    /// Bitwise and, of bools or integers.
    And "and" 2,
    /// Bitwise or.
    Or "or" 2,
    /// Bitwise exclusive or.
    Xor "xor" 2,
    /// Bitwise complement; logical for bools.
    Not "not" 1,
    /// Integer shifted left; the amount is taken modulo the width.
    Shl "shl" 2,
    /// Integer shifted right, sign kept.
    Shr "shr" 2,
    /// Integer shifted right, zeros in.
    ShrU "shru" 2,
    /// Quotient of integers, rounded toward zero; wraps. A zero divisor gives 0 and faults the launch.
    Quot "quot" 2,
    /// Exact remainder with the sign of the dividend, of integers or floats. A zero divisor of integers gives 0 and
    /// faults the launch.
    Rem "rem" 2,
    /// Power of integers; wraps. A negative exponent gives `1 / base^n` rounded toward zero: 0, 1 or −1.
    IntPow "ipow" 2,
    /// `if mask { yes } else { no }` of a bool and two values.
    Select "select" 3,
    /// The same bits as the integer or float of that width.
    Bitcast "bitcast" 1,
    /// Replaces a NaN by the canonical one: positive, quiet, without payload. Other values are kept.
    Canon "canon" 1,
    /// f32 rounded to an f16 value, NaN canonical.
    RoundF16 "round_f16" 1,
    /// f32 rounded to a bf16 value, NaN canonical.
    RoundBF16 "round_bf16" 1,
    /// i32 reduced to u8.
    WrapU8 "wrap_u8" 1,
    /// i32 reduced to i8.
    WrapI8 "wrap_i8" 1,
    /// i32 reduced to i16.
    WrapI16 "wrap_i16" 1,
}

impl Prim {
    /// The prim of that name.
    pub fn from_name(name: &str) -> Option<Prim> {
        Prim::all().find(|prim| prim.name() == name)
    }

    /// The type of the result, or `None` if the prim does not take these operands.
    pub fn result(self, args: &[Ty]) -> Option<Ty> {
        if args.len() != self.arity() {
            return None;
        }
        let (a, same) = (args[0], args.iter().all(|&ty| ty == args[0]));
        let number = a != Ty::Bool;
        let ok = |holds: bool, ty: Ty| (same && holds).then_some(ty);
        match self {
            Prim::Add | Prim::Sub | Prim::Mul | Prim::Neg | Prim::Abs | Prim::Max | Prim::Min => ok(number, a),
            Prim::Div
            | Prim::Fma
            | Prim::Sqrt
            | Prim::Floor
            | Prim::Ceil
            | Prim::Trunc
            | Prim::RoundEven
            | Prim::Canon => ok(a.is_float(), a),
            Prim::Lt | Prim::Le => ok(number, Ty::Bool),
            Prim::Eq | Prim::Ne => ok(true, Ty::Bool),
            Prim::And | Prim::Or | Prim::Xor | Prim::Not => ok(!a.is_float(), a),
            Prim::Shl | Prim::Shr | Prim::ShrU | Prim::Quot | Prim::IntPow => ok(matches!(a, Ty::I32 | Ty::I64), a),
            Prim::Rem => ok(number, a),
            Prim::Select => (a == Ty::Bool && args[1] == args[2]).then_some(args[1]),
            Prim::Bitcast => ok(number, a.bitcast()),
            Prim::RoundF16 | Prim::RoundBF16 => ok(a == Ty::F32, a),
            Prim::WrapU8 | Prim::WrapI8 | Prim::WrapI16 => ok(a == Ty::I32, a),
            Prim::Convert(to) => Some(to),
        }
    }

    /// Whether it divides integers if its operands have this type, so that the second must not be zero.
    pub const fn needs_divisor(self, ty: Ty) -> bool {
        matches!(self, Prim::Quot | Prim::Rem) && matches!(ty, Ty::I32 | Ty::I64)
    }

    /// Whether no machine has a vector instruction for it, so that it is computed element by element.
    pub const fn is_by_element(self) -> bool {
        matches!(self, Prim::Quot | Prim::Rem | Prim::IntPow)
    }

    /// How the result depends on the sign and payload of an operand that is a NaN.
    pub const fn payload(self) -> NanPayload {
        match self {
            Prim::Bitcast => NanPayload::Shown,
            Prim::Select | Prim::Max | Prim::Min | Prim::Neg | Prim::Abs => NanPayload::Moved,
            Prim::Add | Prim::Sub | Prim::Mul | Prim::Div | Prim::Fma | Prim::Sqrt => NanPayload::Hidden,
            Prim::Floor | Prim::Ceil | Prim::Trunc | Prim::RoundEven | Prim::Canon => NanPayload::Hidden,
            Prim::Lt | Prim::Le | Prim::Eq | Prim::Ne | Prim::And | Prim::Or | Prim::Xor | Prim::Not => {
                NanPayload::Hidden
            }
            Prim::Shl | Prim::Shr | Prim::ShrU | Prim::Quot | Prim::Rem | Prim::IntPow => NanPayload::Hidden,
            Prim::RoundF16 | Prim::RoundBF16 => NanPayload::Hidden,
            Prim::WrapU8 | Prim::WrapI8 | Prim::WrapI16 | Prim::Convert(_) => NanPayload::Hidden,
        }
    }
}

/// How the result of an instruction depends on the sign and payload of a NaN operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NanPayload {
    /// Not at all, once the result is canonical.
    Hidden,
    /// The result may be that NaN, with its sign or its payload.
    Moved,
    /// The bits of the operand are an ordinary value in the result.
    Shown,
}

impl NanPayload {
    /// For each value of a list, operands before users: whether the sign and payload of a NaN can be observed. They can
    /// if the value is one of the `outputs`, or an operand of a value that shows them.
    pub fn shown<Id: EntityId, A: IntoIterator<Item = Id>>(
        outputs: impl Iterator<Item = Id>,
        values: impl DoubleEndedIterator<Item = (NanPayload, A)> + ExactSizeIterator,
    ) -> SideTable<Id, bool> {
        let mut shows = SideTable::with_len(values.len(), || false);
        outputs.for_each(|output| shows[output] = true);
        for (index, (payload, args)) in values.enumerate().rev() {
            let value = Id::new(index);
            let passes_on = match payload {
                NanPayload::Hidden => false,
                NanPayload::Moved => shows[value],
                NanPayload::Shown => true,
            };
            args.into_iter().for_each(|arg| shows[arg] |= passes_on);
        }
        shows
    }
}
