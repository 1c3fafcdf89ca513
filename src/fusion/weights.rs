//! Weights: how long scalar instructions take, measured on vectors of a server's core.
//!
//! Prims are compared with an addition, and functions with the hyperbolic tangent, because calibration times these two
//! (`cargo bench --bench cost_model` shows the error of each). 8-byte elements have weights of their own: a vector has
//! half as many of them, which is counted elsewhere, and functions of them take more steps.

use crate::ir::DType;
use crate::ir::scalar::{Func, Prim, Ty};

/// The weight of a prim by the type of its first operand.
pub(super) fn prim(prim: Prim, ty: Ty) -> f64 {
    let by_width = |narrow: f64, wide: f64| if matches!(ty, Ty::F64 | Ty::I64) { wide } else { narrow };
    match prim {
        Prim::Add | Prim::Sub | Prim::Fma | Prim::Neg | Prim::Abs | Prim::Bitcast => 1.0,
        // No processor multiplies vectors of 8-byte integers in one step.
        Prim::Mul => {
            if ty == Ty::I64 {
                2.0
            } else {
                1.0
            }
        }
        Prim::Floor | Prim::Ceil | Prim::Trunc | Prim::RoundEven => 1.0,
        Prim::Max | Prim::Min | Prim::Lt | Prim::Le | Prim::Eq | Prim::Ne | Prim::Select => 1.0,
        Prim::And | Prim::Or | Prim::Xor | Prim::Not | Prim::Shl | Prim::Shr | Prim::ShrU => 1.0,
        Prim::Canon | Prim::WrapU8 | Prim::WrapI8 | Prim::WrapI16 => 1.0,
        Prim::RoundF16 => 2.0,
        Prim::RoundBF16 => 3.0,
        Prim::Div => by_width(3.0, 5.0),
        Prim::Sqrt => by_width(7.0, 12.0),
        Prim::Convert(_) => by_width(1.0, 1.5),
        Prim::Rem if ty.is_float() => by_width(30.0, 20.0),
        Prim::Quot | Prim::Rem => by_width(70.0, 40.0),
        // A loop of products for each element.
        Prim::IntPow => by_width(140.0, 65.0),
    }
}

/// The weight of a division of integers by a literal, which is made of multiplications.
pub(super) fn by_literal(ty: Ty) -> f64 {
    if ty == Ty::I64 { 26.0 } else { 16.0 }
}

/// The weight of a function. Its operands and its result have one type.
pub(super) fn func(func: Func, ty: Ty) -> f64 {
    let [narrow, wide] = match func {
        Func::Exp | Func::Exp2 => [0.62, 0.86],
        Func::Rsqrt => [0.63, 1.0],
        Func::Expm1 => [0.7, 1.05],
        Func::Sigmoid => [0.74, 1.0],
        Func::Silu => [0.88, 1.05],
        Func::Asin | Func::Acos => [0.95, 1.2],
        Func::Tanh | Func::Cos => [1.0, 1.3],
        Func::Sin => [1.05, 1.35],
        Func::Log => [1.05, 2.0],
        Func::GeluTanh => [1.1, 1.3],
        Func::Log1p => [1.1, 2.0],
        Func::Log2 | Func::Log10 => [1.2, 2.2],
        Func::Atan => [1.15, 1.5],
        Func::Erf => [1.2, 2.0],
        Func::Mish => [1.3, 1.55],
        Func::Tan => [1.55, 2.05],
        Func::Atan2 => [2.0, 2.1],
        Func::Erfc => [2.3, 3.3],
        Func::Erfinv => [2.6, 6.8],
        Func::Pow => [3.7, 5.2],
        // The second is not measured, and is like the first.
        Func::Digamma | Func::Trigamma => [5.1, 10.0],
        Func::Lgamma => [10.0, 16.5],
    };
    if ty == Ty::F64 { wide } else { narrow }
}

/// What a conversion between memory and registers takes: nothing for dtypes that are computed with as they are.
pub(super) fn conversion(dtype: DType) -> f64 {
    match dtype {
        DType::F16 | DType::BF16 => 1.5,
        DType::U8 | DType::I8 | DType::I16 | DType::Bool => 0.5,
        DType::F32 | DType::F64 | DType::I32 | DType::I64 | DType::Complex64 | DType::Complex128 => 0.0,
    }
}
