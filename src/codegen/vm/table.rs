//! The table of routines: for each prim and func on given types.

use super::isa::Isa;
use super::moves::{self, ZeroFinder, has_zero};
use super::operations as op;
use super::routine::{Binary, Routine, Ternary, Unary, map1, map2, map3};
use crate::ir::scalar::{Func, Prim, Ty};

/// What is fused after a prim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finish {
    /// Nothing.
    Raw,
    /// A `Canon`.
    Canon,
    /// A `RoundBF16`.
    BF16,
    /// After `Max` and `Min` of floats: the first operand where that is a NaN.
    NanStays,
}

/// Whether there is a routine for this prim followed by a `Canon`.
pub(super) const fn has_canoned(prim: Prim) -> bool {
    matches!(prim, Prim::Add | Prim::Sub | Prim::Mul | Prim::Div | Prim::Fma | Prim::Sqrt)
}

/// A routine for each instruction set.
type Choice = fn(Isa) -> Routine;

/// The prims with a routine for the prim followed by a `RoundBF16`.
const ROUNDED_BF16: [(Prim, Choice); 4] = [
    (Prim::Add, map2::<op::RoundedBF16<op::Add<f32>>>),
    (Prim::Sub, map2::<op::RoundedBF16<op::Sub<f32>>>),
    (Prim::Mul, map2::<op::RoundedBF16<op::Mul<f32>>>),
    (Prim::Div, map2::<op::RoundedBF16<op::Div<f32>>>),
];

/// The routine of a prim followed by a `RoundBF16`, if there is one.
pub(super) fn rounded_bf16(isa: Isa, prim: Prim) -> Option<Routine> {
    ROUNDED_BF16.iter().find(|rounded| rounded.0 == prim).map(|rounded| rounded.1(isa))
}

/// The routine of a prim whose first operand has type `ty`; for a select, the type of its values.
///
/// # Panics
/// On operands that [`Prim::result`] rejects; kernels are verified.
pub(super) fn prim(isa: Isa, prim: Prim, finish: Finish, ty: Ty) -> Routine {
    macro_rules! typed {
        ($map:ident, $op:ident: $($ty:ident $native:ident),*) => {
            match ty {
                $(Ty::$ty => $map::<op::$op<$native>>(isa),)*
                _ => misuse(prim, ty),
            }
        };
        ($map:ident, $op:ident: numbers) => { typed!($map, $op: I32 i32, I64 i64, F32 f32, F64 f64) };
        ($map:ident, $op:ident: bits) => { typed!($map, $op: Bool u8, I32 i32, I64 i64) };
        ($map:ident, $op:ident: integers) => { typed!($map, $op: I32 i32, I64 i64) };
        ($map:ident, $op:ident: floats) => { typed!($map, $op: F32 f32, F64 f64) };
        ($map:ident, $op:ident: all, $of_bools:ty) => {
            match ty {
                Ty::Bool => $map::<$of_bools>(isa),
                Ty::I32 | Ty::I64 | Ty::F32 | Ty::F64 => typed!($map, $op: numbers),
            }
        };
    }
    match finish {
        Finish::Raw => {}
        Finish::Canon => return canoned(isa, prim, ty),
        Finish::BF16 => return rounded_bf16(isa, prim).unwrap_or_else(|| misuse(prim, ty)),
        Finish::NanStays if prim == Prim::Max => return typed!(map2, NanMax: floats),
        Finish::NanStays => return typed!(map2, NanMin: floats),
    }
    match prim {
        Prim::Add => typed!(map2, Add: numbers),
        Prim::Sub => typed!(map2, Sub: numbers),
        Prim::Mul => typed!(map2, Mul: numbers),
        Prim::Div => typed!(map2, Div: floats),
        Prim::Fma => typed!(map3, Fma: floats),
        Prim::Neg => typed!(map1, Neg: numbers),
        Prim::Abs => typed!(map1, Abs: numbers),
        Prim::Sqrt => typed!(map1, Sqrt: floats),
        Prim::Floor => typed!(map1, Floor: floats),
        Prim::Ceil => typed!(map1, Ceil: floats),
        Prim::Trunc => typed!(map1, Trunc: floats),
        Prim::RoundEven => typed!(map1, RoundEven: floats),
        Prim::Max => typed!(map2, Max: numbers),
        Prim::Min => typed!(map2, Min: numbers),
        Prim::Lt => typed!(map2, Lt: numbers),
        Prim::Le => typed!(map2, Le: numbers),
        Prim::Eq => typed!(map2, Eq: all, op::Same),
        Prim::Ne => typed!(map2, Ne: all, op::Xor<u8>),
        Prim::And => typed!(map2, And: bits),
        Prim::Or => typed!(map2, Or: bits),
        Prim::Xor => typed!(map2, Xor: bits),
        Prim::Not => typed!(map1, Not: bits),
        Prim::Shl => typed!(map2, Shl: integers),
        Prim::Shr => typed!(map2, Shr: integers),
        Prim::ShrU => typed!(map2, ShrU: integers),
        Prim::Quot => typed!(map2, Quot: integers),
        Prim::Rem => typed!(map2, Rem: numbers),
        Prim::IntPow => typed!(map2, IntPow: integers),
        Prim::Select => typed!(map3, Select: all, op::SelectTruth),
        // The same bits in another type: tiles are untyped.
        Prim::Bitcast => copy(isa, ty.size()),
        Prim::Canon => typed!(map1, Canon: floats),
        Prim::RoundF16 => moves::round_f16(isa),
        Prim::RoundBF16 => map1::<op::RoundBF16>(isa),
        Prim::WrapU8 => map1::<op::WrapU8>(isa),
        Prim::WrapI8 => map1::<op::WrapI8>(isa),
        Prim::WrapI16 => map1::<op::WrapI16>(isa),
        Prim::Convert(to) => convert(isa, ty, to),
    }
}

fn canoned(isa: Isa, prim: Prim, ty: Ty) -> Routine {
    fn typed<T: op::Canonical + op::Native>(isa: Isa, prim: Prim, ty: Ty) -> Routine {
        fn of1<O: Unary<Out: op::Canonical>>(isa: Isa) -> Routine {
            map1::<op::Canoned<O>>(isa)
        }
        fn of2<O: Binary<Out: op::Canonical>>(isa: Isa) -> Routine {
            map2::<op::Canoned<O>>(isa)
        }
        fn of3<O: Ternary<Out: op::Canonical>>(isa: Isa) -> Routine {
            map3::<op::Canoned<O>>(isa)
        }
        match prim {
            Prim::Add => of2::<op::Add<T>>(isa),
            Prim::Sub => of2::<op::Sub<T>>(isa),
            Prim::Mul => of2::<op::Mul<T>>(isa),
            Prim::Div => of2::<op::Div<T>>(isa),
            Prim::Fma => of3::<op::Fma<T>>(isa),
            Prim::Sqrt => of1::<op::Sqrt<T>>(isa),
            Prim::Neg
            | Prim::Abs
            | Prim::Floor
            | Prim::Ceil
            | Prim::Trunc
            | Prim::RoundEven
            | Prim::Max
            | Prim::Min
            | Prim::Lt
            | Prim::Le
            | Prim::Eq
            | Prim::Ne
            | Prim::And
            | Prim::Or
            | Prim::Xor
            | Prim::Not
            | Prim::Shl
            | Prim::Shr
            | Prim::ShrU
            | Prim::Quot
            | Prim::Rem
            | Prim::IntPow
            | Prim::Select
            | Prim::Bitcast
            | Prim::Canon
            | Prim::RoundF16
            | Prim::RoundBF16
            | Prim::WrapU8
            | Prim::WrapI8
            | Prim::WrapI16
            | Prim::Convert(_) => misuse(prim, ty),
        }
    }
    match ty {
        Ty::F32 => typed::<f32>(isa, prim, ty),
        Ty::F64 => typed::<f64>(isa, prim, ty),
        Ty::Bool | Ty::I32 | Ty::I64 => misuse(prim, ty),
    }
}

fn convert(isa: Isa, from: Ty, to: Ty) -> Routine {
    fn typed<A>(isa: Isa, to: Ty) -> Routine
    where
        A: crate::codegen::fold::Element + op::To<u8> + op::To<i32> + op::To<i64> + op::To<f32> + op::To<f64>,
    {
        match to {
            Ty::Bool => map1::<op::Convert<A, u8>>(isa),
            Ty::I32 => map1::<op::Convert<A, i32>>(isa),
            Ty::I64 => map1::<op::Convert<A, i64>>(isa),
            Ty::F32 => map1::<op::Convert<A, f32>>(isa),
            Ty::F64 => map1::<op::Convert<A, f64>>(isa),
        }
    }
    match from {
        Ty::Bool => typed::<u8>(isa, to),
        Ty::I32 => typed::<i32>(isa, to),
        Ty::I64 => typed::<i64>(isa, to),
        Ty::F32 => typed::<f32>(isa, to),
        Ty::F64 => typed::<f64>(isa, to),
    }
}

/// The routine of a func on numbers of type `ty`.
pub(super) fn func(isa: Isa, func: Func, ty: Ty) -> Routine {
    macro_rules! typed {
        ($map:ident, $op:ident) => {
            match ty {
                Ty::F32 => $map::<op::$op<f32>>(isa),
                Ty::F64 => $map::<op::$op<f64>>(isa),
                Ty::Bool | Ty::I32 | Ty::I64 => unreachable!("a func takes floats; kernels are verified"),
            }
        };
    }
    match func {
        Func::Exp => typed!(map1, Exp),
        Func::Exp2 => typed!(map1, Exp2),
        Func::Expm1 => typed!(map1, Expm1),
        Func::Log => typed!(map1, Log),
        Func::Log2 => typed!(map1, Log2),
        Func::Log10 => typed!(map1, Log10),
        Func::Log1p => typed!(map1, Log1p),
        Func::Tanh => typed!(map1, Tanh),
        Func::Sigmoid => typed!(map1, Sigmoid),
        Func::Silu => typed!(map1, Silu),
        Func::GeluTanh => typed!(map1, GeluTanh),
        Func::Mish => typed!(map1, Mish),
        Func::Erf => typed!(map1, Erf),
        Func::Sin => typed!(map1, Sin),
        Func::Cos => typed!(map1, Cos),
        Func::Tan => typed!(map1, Tan),
        Func::Pow => typed!(map2, Pow),
        Func::Rsqrt => typed!(map1, Rsqrt),
        Func::Asin => typed!(map1, Asin),
        Func::Acos => typed!(map1, Acos),
        Func::Atan => typed!(map1, Atan),
        Func::Atan2 => typed!(map2, Atan2),
        Func::Erfc => typed!(map1, Erfc),
        Func::Erfinv => typed!(map1, Erfinv),
        Func::Lgamma => typed!(map1, Lgamma),
        Func::Digamma => typed!(map1, Digamma),
        Func::Trigamma => typed!(map1, Trigamma),
    }
}

/// The routine that looks for a zero among integers of type `ty`.
pub(super) fn zero_finder(ty: Ty) -> ZeroFinder {
    match ty {
        Ty::I32 => has_zero::<i32>,
        Ty::I64 => has_zero::<i64>,
        Ty::Bool | Ty::F32 | Ty::F64 => unreachable!("integers are divided; kernels are verified"),
    }
}

/// Copies elements of that many bytes.
pub(super) fn copy(isa: Isa, bytes: usize) -> Routine {
    match bytes {
        1 => map1::<op::Copied<u8>>(isa),
        4 => map1::<op::Copied<i32>>(isa),
        _ => map1::<op::Copied<i64>>(isa),
    }
}

fn misuse(prim: Prim, ty: Ty) -> ! {
    unreachable!("{} does not take {ty}; kernels are verified", prim.name())
}
