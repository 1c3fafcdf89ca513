//! The calls of the table: what runs alone, and a few chains, on rows of several sizes.

use opfuse::DType::{self, BF16, Bool, F32, F64, I32, I64, U8};
use opfuse::{Result, Tensor, cat};

/// A function of two tensors of one type.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) dtypes: &'static [DType],
    pub(crate) run: fn(&Tensor, &Tensor) -> Result<Tensor>,
}

const FLOATS: &[DType] = &[F32, F64, BF16];
const NUMBERS: &[DType] = &[F32, F64, BF16, I64, I32, U8];
const INTEGERS: &[DType] = &[I64, I32, U8];
const WORDS: &[DType] = &[I64, I32, U8, Bool];
const SINGLE: &[DType] = &[F32];

macro_rules! cases {
    ($($dtypes:ident $name:literal |$x:pat_param, $y:pat_param| $result:expr;)*) => {
        pub(crate) const CASES: &[Case] = &[$(Case { name: $name, dtypes: $dtypes, run: |$x, $y| $result },)*];
    };
}

cases! {
    NUMBERS "add" |x, y| x.add(y);
    NUMBERS "mul" |x, y| x.mul(y);
    NUMBERS "maximum" |x, y| x.maximum(y);
    NUMBERS "neg" |x, _| x.neg();
    NUMBERS "abs" |x, _| x.abs();
    NUMBERS "relu" |x, _| x.relu();
    NUMBERS "where" |x, y| x.gt(y)?.where_(x, y);
    NUMBERS "gt" |x, y| x.gt(y);
    NUMBERS "pow 3" |x, _| x.pow(3);
    FLOATS "div" |x, y| x.div(y);
    INTEGERS "floor_divide" |x, y| x.floor_divide(y);
    NUMBERS "remainder" |x, y| x.remainder(y);
    FLOATS "fmod" |x, y| x.fmod(y);
    FLOATS "sqrt" |x, _| x.sqrt();
    FLOATS "rsqrt" |x, _| x.rsqrt();
    FLOATS "reciprocal" |x, _| x.reciprocal();
    FLOATS "floor" |x, _| x.floor();
    FLOATS "round" |x, _| x.round();
    FLOATS "exp" |x, _| x.exp();
    FLOATS "exp2" |x, _| x.exp2();
    FLOATS "expm1" |x, _| x.expm1();
    FLOATS "log" |x, _| x.log();
    FLOATS "log2" |x, _| x.log2();
    FLOATS "log10" |x, _| x.log10();
    FLOATS "log1p" |x, _| x.log1p();
    FLOATS "tanh" |x, _| x.tanh();
    FLOATS "sigmoid" |x, _| x.sigmoid();
    FLOATS "silu" |x, _| x.silu();
    FLOATS "gelu" |x, _| x.gelu();
    FLOATS "gelu tanh" |x, _| x.gelu_tanh();
    FLOATS "mish" |x, _| x.mish();
    FLOATS "softplus" |x, _| x.softplus(1.0, 20.0);
    FLOATS "erf" |x, _| x.erf();
    FLOATS "erfc" |x, _| x.erfc();
    FLOATS "erfinv" |x, _| x.mul(0.5)?.erfinv();
    FLOATS "sin" |x, _| x.sin();
    FLOATS "cos" |x, _| x.cos();
    FLOATS "tan" |x, _| x.tan();
    FLOATS "asin" |x, _| x.mul(0.5)?.asin();
    FLOATS "acos" |x, _| x.mul(0.5)?.acos();
    FLOATS "atan" |x, _| x.atan();
    FLOATS "atan2" |x, y| x.atan2(y);
    FLOATS "pow" |x, y| x.pow(y);
    FLOATS "sinh" |x, _| x.sinh();
    FLOATS "lgamma" |x, _| x.lgamma();
    FLOATS "digamma" |x, _| x.digamma();
    WORDS "bitwise_xor" |x, y| x.bitwise_xor(y);
    NUMBERS "to f32" |x, _| x.to_dtype(F32)?.mul(0.5);
    NUMBERS "to f64" |x, _| x.to_dtype(F64)?.mul(0.5);
    FLOATS "to bf16" |x, _| x.to_dtype(BF16)?.mul(0.5);
    FLOATS "to i64" |x, _| x.to_dtype(I64)?.add(1);
    SINGLE "polynomial" |x, y| x.mul(y)?.add(x)?.mul(x)?.sub(y)?.mul(y)?.add(1.0);
    SINGLE "chain of functions" |x, y| x.exp()?.add(y)?.log()?.tanh()?.mul(y);
    NUMBERS "sum of rows" |x, _| x.sum([-1], false);
    NUMBERS "sum of columns" |x, _| x.sum([0], false);
    NUMBERS "sum of all" |x, _| x.sum_all();
    NUMBERS "amax of rows" |x, _| x.amax([-1], false);
    NUMBERS "amax of columns" |x, _| x.amax([0], false);
    FLOATS "mean of rows" |x, _| x.mean([-1], false);
    FLOATS "var of rows" |x, _| x.var([-1], 1, false);
    FLOATS "softmax" |x, _| x.softmax(-1);
    FLOATS "log_softmax" |x, _| x.log_softmax(-1);
    FLOATS "row scaled" |x, y| x.mul(&y.select(0, 0)?);
    FLOATS "column scaled" |x, y| x.mul(&y.narrow(1, 0, 1)?);
    FLOATS "transposed" |x, _| x.t()?.contiguous();
    NUMBERS "flip" |x, _| x.flip([-1]);
    NUMBERS "cat" |x, y| cat(&[x, y], 0);
    NUMBERS "argmax of rows" |x, _| x.argmax(-1, false);
    NUMBERS "cumsum" |x, _| x.cumsum(-1);
    NUMBERS "cummax" |x, _| Ok(x.cummax(-1)?.0);
    NUMBERS "sort" |x, _| Ok(x.sort(-1, false)?.0);
    NUMBERS "topk" |x, _| Ok(x.topk(4, -1, true)?.0);
    SINGLE "rand" |x, _| x.rand_like();
    SINGLE "randn" |x, _| x.randn_like();
    SINGLE "linear of 8" |x, y| x.matmul(&y.narrow(0, 0, 8)?.t()?);
    SINGLE "scatter_add" |x, y| x.scatter_add(0, &x.select(1, 0)?.mul(0.0)?.to_dtype(I64)?.unsqueeze(1)?, y);
    FLOATS "take rows" |x, y| x.index_select(0, &y.select(1, 0)?.mul(0.0)?.to_dtype(I64)?);
}
