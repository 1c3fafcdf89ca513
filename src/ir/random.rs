//! Random ops: types of their results, and how numbers are made of random words.
//!
//! Every random op is a pure function of a *key*, an i64 tensor of a seed and a first counter. One routine makes words
//! from it, as [`super::philox`] defines them. The rest is ordinary arithmetic on those words. It fuses with other ops,
//! and has the same bits on every tier and device. Element `i` of a result, in row-major order, depends on word `i` of
//! the draw alone. A normal number is made of words `i` and `n + i` of a draw of `2 n`.

use super::attr::{Attr, Attrs};
use super::attrs::*;
use super::dtype::DType;
use super::graph::{Graph, NodeId};
use super::op::Op;
use super::philox;
use super::row::Call;
use super::scalar::{Lit, Prim, Scalar, Sym};
use super::shape::{self, Sizes};
use super::types::TensorType;
use crate::error::{Error, Result};

/// The word that numbers of a dtype are made of: 64 bits for f64 and i64, else 32.
pub const fn word(dtype: DType) -> DType {
    match dtype {
        DType::F64 | DType::I64 => DType::I64,
        DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::F16 | DType::BF16 | DType::F32 => {
            DType::I32
        }
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
}

/// How many counters a draw of `n` numbers of a dtype takes, if each is made of `words` words.
pub fn n_counters(n: usize, words: usize, dtype: DType) -> u64 {
    philox::n_counters(n.saturating_mul(words), word(dtype).size())
}

/// The random bits of a uniform number: those of the dtype's significand, so no result rounds to 1.
const fn uniform_bits(dtype: DType) -> u32 {
    match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F64 => 53,
        DType::F32 | DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => 24,
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
}

fn key(call: &Call<'_>) -> Result<()> {
    let key = call.args[0];
    if key.dtype == DType::I64 && key.sizes[..] == [2] {
        return Ok(());
    }
    Err(Error::argument(call.name(), format!("the key is {key}, not i64[2]: a seed and a counter")))
}

fn sized(call: &Call<'_>, dtype: DType) -> Result<TensorType> {
    key(call)?;
    let Shape { size: sizes } = Shape::read(call.attrs);
    if let Some(bad) = sizes.iter().find(|size| **size < 0) {
        return Err(Error::shape(call.name(), format!("size {bad} is negative"), "sizes count elements"));
    }
    let sizes: Sizes = sizes.iter().map(|&size| size as usize).collect();
    shape::checked_numel(call.name(), &sizes, dtype.size().max(8) * 2)?;
    Ok(TensorType::contiguous(dtype, &sizes))
}

/// The type of random words: i32 or i64.
pub fn bits(call: &Call<'_>) -> Result<TensorType> {
    match Drawn::read(call.attrs).dtype {
        Some(dtype @ (DType::I32 | DType::I64)) => sized(call, dtype),
        Some(found) => Err(Error::dtype(call.name(), found, "i32 or i64", "words have 32 or 64 bits")),
        None => Err(Error::argument(call.name(), "needs a dtype: i32 or i64")),
    }
}

/// The type of uniform and normal numbers: a floating dtype.
pub fn float(call: &Call<'_>) -> Result<TensorType> {
    match Drawn::read(call.attrs).dtype.unwrap_or(DType::DEFAULT_FLOAT) {
        dtype if dtype.is_float() => sized(call, dtype),
        found => Err(Error::dtype(call.name(), found, "a floating dtype", "use randint for whole numbers")),
    }
}

/// The type of truth values. `p` must be a probability.
pub fn bernoulli(call: &Call<'_>) -> Result<TensorType> {
    let RandomBernoulli { p, .. } = RandomBernoulli::read(call.attrs);
    if !(0.0..=1.0).contains(&p) {
        return Err(Error::argument(call.name(), format!("p is {p}; a probability is between 0 and 1")));
    }
    sized(call, DType::Bool)
}

/// The type of whole numbers in `low..high`.
pub fn range(call: &Call<'_>) -> Result<TensorType> {
    let RandomRange { low, high, .. } = RandomRange::read(call.attrs);
    if low >= high {
        let what = format!("the range from {low} up to {high} is empty");
        return Err(Error::argument(call.name(), format!("{what}; the lower bound must be less than the upper one")));
    }
    sized(call, DType::I64)
}

/// The type of [`Op::RandomScale`]. The operand must be i64.
pub fn scale_words(call: &Call<'_>) -> Result<TensorType> {
    match call.args[0].dtype {
        DType::I64 => super::infer::pointwise(call),
        found => Err(Error::dtype(call.name(), found, "i64", "words have 64 bits")),
    }
}

fn words(graph: &mut Graph, key: NodeId, size: Ints, dtype: DType) -> Result<NodeId> {
    graph.add(Op::RandomBits, &[key], Drawn { size, dtype: Some(dtype) }.into())
}

/// The low bits of words as floats in [0, 1).
fn unit(graph: &mut Graph, words: NodeId, bits: u32) -> Result<NodeId> {
    let float = if graph[words].ty.dtype == DType::I64 { DType::F64 } else { DType::F32 };
    let mask = graph.number(Scalar::Int((1 << bits) - 1));
    let low = graph.add(Op::BitwiseAnd, &[words, mask], Attrs::new())?;
    let whole = graph.add(Op::ToCopy, &[low], Cast { dtype: Some(float) }.into())?;
    let scale = graph.number(Scalar::Float((-f64::from(bits)).exp2()));
    graph.add(Op::Mul, &[whole, scale], Attrs::new())
}

/// Uniform numbers: the low bits of each word, times a power of two.
pub fn uniform(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let Drawn { size, dtype } = Drawn::read(attrs);
    let dtype = dtype.unwrap_or(DType::DEFAULT_FLOAT);
    let words = words(graph, args[0], size, word(dtype))?;
    let unit = unit(graph, words, uniform_bits(dtype))?;
    graph.cast(unit, dtype)
}

/// Normal numbers: `√(-2 ln u) cos(2 π v)` with `u` in (0, 1] and `v` in [0, 1) (Box and Muller 1958). `u` uses all
/// bits of its word but the sign, so the tails reach 6.5 standard deviations in f32 and 9.3 in f64.
pub fn normal(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let Drawn { mut size, dtype } = Drawn::read(attrs);
    let dtype = dtype.unwrap_or(DType::DEFAULT_FLOAT);
    let (word, float) = (word(dtype), if dtype == DType::F64 { DType::F64 } else { DType::F32 });
    size.insert(0, 2);
    let words = words(graph, args[0], size, word)?;
    let half = |graph: &mut Graph, index: i64| graph.add(Op::Select, &[words], Select { dim: 0, index }.into());
    let binary = |graph: &mut Graph, op: Op, x: NodeId, number: f64| {
        let number = graph.number(Scalar::Float(number));
        let attrs = if op == Op::Add { Add { alpha: Scalar::Int(1) }.into() } else { Attrs::new() };
        graph.add(op, &[x, number], attrs)
    };

    let bits = 8 * word.size() as u32 - 1;
    let (u, mask) = (half(graph, 0)?, graph.number(Scalar::Int(i64::MAX >> (63 - bits))));
    let u = graph.add(Op::BitwiseAnd, &[u, mask], Attrs::new())?;
    let u = graph.cast(u, float)?;
    let u = binary(graph, Op::Add, u, 1.0)?;
    let u = binary(graph, Op::Mul, u, (-f64::from(bits)).exp2())?;
    let log = graph.add(Op::Log, &[u], Attrs::new())?;
    let square = binary(graph, Op::Mul, log, -2.0)?;
    let radius = graph.add(Op::Sqrt, &[square], Attrs::new())?;

    let v = half(graph, 1)?;
    let v = unit(graph, v, uniform_bits(float))?;
    let angle = binary(graph, Op::Mul, v, std::f64::consts::TAU)?;
    let cos = graph.add(Op::Cos, &[angle], Attrs::new())?;
    let z = graph.add(Op::Mul, &[radius, cos], Attrs::new())?;
    graph.cast(z, dtype)
}

/// Truth values: whether each word, as a signed number, is among the least `p · 2^32`.
pub fn chance(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let RandomBernoulli { size, p } = RandomBernoulli::read(attrs);
    let words = words(graph, args[0], size, DType::I32)?;
    let n_true = (p * 32f64.exp2()).round() as i64;
    // The bound is an i64, because it may be above all words.
    let bound = graph.number(Scalar::Int(n_true + i64::from(i32::MIN)));
    if n_true < 1 << 32 {
        return graph.add(Op::Lt, &[words, bound], Attrs::new());
    }
    graph.add(Op::Eq, &[words, words], Attrs::new())
}

/// Whole numbers: the upper half of the product of each unsigned word and the length of the range, plus its start.
pub fn scaled(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let RandomRange { size, low, high } = RandomRange::read(attrs);
    let words = words(graph, args[0], size, DType::I64)?;
    graph.add(Op::RandomScale, &[words], RandomScale { low, high }.into())
}

/// `low + (x · (high - low) >> 64)` of unsigned 64-bit `x`, by halves of 32 bits.
pub fn scale<'r>(x: Sym<'r>, low: i64, high: i64) -> Sym<'r> {
    let length = (high as u64).wrapping_sub(low as u64);
    let number = |value: u64| x.lit(Lit::i64(value as i64));
    let mask = number(u64::from(u32::MAX));
    let upper = |value: Sym<'r>| value.prim(Prim::ShrU, &[number(32)]);
    let lower = |value: Sym<'r>| value.prim(Prim::And, &[mask]);
    let (x_low, x_high) = (lower(x), upper(x));
    let (length_low, length_high) = (number(length & u64::from(u32::MAX)), number(length >> 32));
    // None of these sums overflows: (2^32 - 1)² + 2 (2^32 - 1) < 2^64.
    let first = x_high * length_low + upper(x_low * length_low);
    let second = x_low * length_high + lower(first);
    x_high * length_high + upper(first) + upper(second) + number(low as u64)
}
