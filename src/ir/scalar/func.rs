//! The named functions of scalar bodies, and the dispatch to their definitions.

use super::math;
use super::number::Float;

/// A function with a body in [`math`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Func {
    /// `e^x`.
    Exp,
    /// `2^x`.
    Exp2,
    /// `e^x - 1`.
    Expm1,
    /// Natural logarithm.
    Log,
    /// Logarithm to base 2.
    Log2,
    /// Logarithm to base 10.
    Log10,
    /// `ln(1 + x)`.
    Log1p,
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `x / (1 + e^-x)`.
    Silu,
    /// `x / (1 + e^-v)` with `v = √(8/π) (x + 0.044715 x³)`.
    GeluTanh,
    /// `x tanh(ln(1 + e^x))`.
    Mish,
    /// Error function.
    Erf,
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Tangent.
    Tan,
    /// `x^y`.
    Pow,
    /// `1 / √x`.
    Rsqrt,
    /// Inverse sine.
    Asin,
    /// Inverse cosine.
    Acos,
    /// Inverse tangent.
    Atan,
    /// `atan2(y, x)`: the angle of the point `(x, y)`.
    Atan2,
    /// Complement of the error function.
    Erfc,
    /// Inverse of the error function.
    Erfinv,
    /// Logarithm of the absolute value of the gamma function.
    Lgamma,
    /// Derivative of the logarithm of the gamma function.
    Digamma,
    /// Second derivative of the logarithm of the gamma function.
    Trigamma,
}

impl Func {
    /// Every function, in declaration order.
    pub const ALL: [Func; 27] = [
        Func::Exp,
        Func::Exp2,
        Func::Expm1,
        Func::Log,
        Func::Log2,
        Func::Log10,
        Func::Log1p,
        Func::Tanh,
        Func::Sigmoid,
        Func::Silu,
        Func::GeluTanh,
        Func::Mish,
        Func::Erf,
        Func::Sin,
        Func::Cos,
        Func::Tan,
        Func::Pow,
        Func::Rsqrt,
        Func::Asin,
        Func::Acos,
        Func::Atan,
        Func::Atan2,
        Func::Erfc,
        Func::Erfinv,
        Func::Lgamma,
        Func::Digamma,
        Func::Trigamma,
    ];

    /// The short name: `exp`, `log1p`, …
    pub const fn name(self) -> &'static str {
        match self {
            Func::Exp => "exp",
            Func::Exp2 => "exp2",
            Func::Expm1 => "expm1",
            Func::Log => "log",
            Func::Log2 => "log2",
            Func::Log10 => "log10",
            Func::Log1p => "log1p",
            Func::Tanh => "tanh",
            Func::Sigmoid => "sigmoid",
            Func::Silu => "silu",
            Func::GeluTanh => "gelu_tanh",
            Func::Mish => "mish",
            Func::Erf => "erf",
            Func::Sin => "sin",
            Func::Cos => "cos",
            Func::Tan => "tan",
            Func::Pow => "pow",
            Func::Rsqrt => "rsqrt",
            Func::Asin => "asin",
            Func::Acos => "acos",
            Func::Atan => "atan",
            Func::Atan2 => "atan2",
            Func::Erfc => "erfc",
            Func::Erfinv => "erfinv",
            Func::Lgamma => "lgamma",
            Func::Digamma => "digamma",
            Func::Trigamma => "trigamma",
        }
    }

    /// The function of that short name.
    pub fn from_name(name: &str) -> Option<Func> {
        Func::ALL.into_iter().find(|func| func.name() == name)
    }

    /// How many arguments it takes.
    pub const fn arity(self) -> usize {
        match self {
            Func::Pow | Func::Atan2 => 2,
            Func::Exp
            | Func::Exp2
            | Func::Expm1
            | Func::Log
            | Func::Log2
            | Func::Log10
            | Func::Log1p
            | Func::Tanh
            | Func::Sigmoid
            | Func::Silu
            | Func::GeluTanh
            | Func::Mish
            | Func::Erf
            | Func::Sin
            | Func::Cos
            | Func::Tan
            | Func::Rsqrt
            | Func::Asin
            | Func::Acos
            | Func::Atan
            | Func::Erfc
            | Func::Erfinv
            | Func::Lgamma
            | Func::Digamma
            | Func::Trigamma => 1,
        }
    }

    /// Its value on 32-bit numbers. Panics unless there are [`Func::arity`] arguments.
    #[inline(always)]
    pub fn call32<F: Float>(self, args: &[F]) -> F {
        assert_eq!(args.len(), self.arity(), "{} takes another number of arguments", self.name());
        match self {
            Func::Exp => math::exp32(args[0]),
            Func::Exp2 => math::exp2_32(args[0]),
            Func::Expm1 => math::expm1_32(args[0]),
            Func::Log => math::log32(args[0]),
            Func::Log2 => math::log2_32(args[0]),
            Func::Log10 => math::log10_32(args[0]),
            Func::Log1p => math::log1p32(args[0]),
            Func::Tanh => math::tanh32(args[0]),
            Func::Sigmoid => math::sigmoid32(args[0]),
            Func::Silu => math::silu32(args[0]),
            Func::GeluTanh => math::gelu_tanh_32(args[0]),
            Func::Mish => math::mish32(args[0]),
            Func::Erf => math::erf32(args[0]),
            Func::Sin => math::sin32(args[0]),
            Func::Cos => math::cos32(args[0]),
            Func::Tan => math::tan32(args[0]),
            Func::Pow => math::pow32(args[0], args[1]),
            Func::Rsqrt => math::rsqrt32(args[0]),
            Func::Asin => math::asin32(args[0]),
            Func::Acos => math::acos32(args[0]),
            Func::Atan => math::atan32(args[0]),
            Func::Atan2 => math::atan2_32(args[0], args[1]),
            Func::Erfc => math::erfc32(args[0]),
            Func::Erfinv => math::erfinv32(args[0]),
            Func::Lgamma => math::lgamma32(args[0]),
            Func::Digamma => math::digamma32(args[0]),
            Func::Trigamma => math::trigamma32(args[0]),
        }
    }

    /// Its value on 64-bit numbers. Panics unless there are [`Func::arity`] arguments.
    #[inline(always)]
    pub fn call64<F: Float>(self, args: &[F]) -> F {
        assert_eq!(args.len(), self.arity(), "{} takes another number of arguments", self.name());
        match self {
            Func::Exp => math::exp64(args[0]),
            Func::Exp2 => math::exp2_64(args[0]),
            Func::Expm1 => math::expm1_64(args[0]),
            Func::Log => math::log64(args[0]),
            Func::Log2 => math::log2_64(args[0]),
            Func::Log10 => math::log10_64(args[0]),
            Func::Log1p => math::log1p64(args[0]),
            Func::Tanh => math::tanh64(args[0]),
            Func::Sigmoid => math::sigmoid64(args[0]),
            Func::Silu => math::silu64(args[0]),
            Func::GeluTanh => math::gelu_tanh_64(args[0]),
            Func::Mish => math::mish64(args[0]),
            Func::Erf => math::erf64(args[0]),
            Func::Sin => math::sin64(args[0]),
            Func::Cos => math::cos64(args[0]),
            Func::Tan => math::tan64(args[0]),
            Func::Pow => math::pow64(args[0], args[1]),
            Func::Rsqrt => math::rsqrt64(args[0]),
            Func::Asin => math::asin64(args[0]),
            Func::Acos => math::acos64(args[0]),
            Func::Atan => math::atan64(args[0]),
            Func::Atan2 => math::atan2_64(args[0], args[1]),
            Func::Erfc => math::erfc64(args[0]),
            Func::Erfinv => math::erfinv64(args[0]),
            Func::Lgamma => math::lgamma64(args[0]),
            Func::Digamma => math::digamma64(args[0]),
            Func::Trigamma => math::trigamma64(args[0]),
        }
    }
}
