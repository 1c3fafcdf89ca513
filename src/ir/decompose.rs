//! Decompositions of ops to other ops.
//!
//! Eager calls and compiled graphs run the same decompositions, so they have the same bits. 16-bit floats are computed
//! in f32 from the first op to the last, and the result of the whole op is rounded once.

use super::attr::{Attr, Attrs, MemoryFormat};
use super::attrs::*;
use super::dtype::DType;
use super::graph::{Graph, NodeId};
use super::op::Op;
use super::scalar::Scalar;
use super::shape::{contiguous_strides, normalize_dims};
use super::types::TensorType;
use crate::error::Result;

fn binary(graph: &mut Graph, op: Op, a: NodeId, b: NodeId) -> Result<NodeId> {
    let is_sum = matches!(op, Op::Add | Op::Sub);
    let attrs = if is_sum { Add { alpha: Scalar::Int(1) }.into() } else { Attrs::new() };
    graph.add(op, &[a, b], attrs)
}

fn unary(graph: &mut Graph, op: Op, x: NodeId) -> Result<NodeId> {
    graph.add(op, &[x], Attrs::new())
}

fn number(graph: &mut Graph, value: f64) -> NodeId {
    graph.number(Scalar::Float(value))
}

/// `x` in the dtype that its reduction is computed in.
fn widened(graph: &mut Graph, x: NodeId) -> Result<NodeId> {
    let dtype = graph[x].ty.dtype;
    graph.cast(x, dtype.widened())
}

fn sum(graph: &mut Graph, x: NodeId, dims: &Ints, keepdim: bool) -> Result<NodeId> {
    graph.add(Op::Sum, &[x], FoldTo { dim: dims.clone(), keepdim, dtype: None }.into())
}

/// The greatest elements over dims, which stay with size 1.
fn greatest(graph: &mut Graph, x: NodeId, dims: &Ints) -> Result<NodeId> {
    graph.add(Op::Amax, &[x], Fold { dim: dims.clone(), keepdim: true }.into())
}

fn reduced_count(graph: &Graph, x: NodeId, dims: &Ints) -> Result<usize> {
    let ty = &graph[x].ty;
    let dims = normalize_dims("reduction", dims, ty.rank())?;
    Ok(dims.iter().map(|&dim| ty.sizes[dim]).product())
}

/// `sum(x) / n` over dims, which stay with size 1, and `n`.
fn kept_mean(graph: &mut Graph, x: NodeId, dims: &Ints) -> Result<(NodeId, NodeId)> {
    let sum = sum(graph, x, dims, true)?;
    let n = reduced_count(graph, x, dims)?;
    let n = graph.extent(n);
    Ok((binary(graph, Op::Div, sum, n)?, n))
}

/// Drops the reduced dims by a view, unless `keepdim` holds. So a reduction with and one without `keepdim` share a
/// fold.
fn dropped(graph: &mut Graph, kept: NodeId, dims: &Ints, keepdim: bool) -> Result<NodeId> {
    if keepdim || graph[kept].ty.rank() == 0 {
        return Ok(kept);
    }
    let dims = spelt_out(graph, kept, dims)?;
    graph.add(Op::Squeeze, &[kept], DimList { dim: dims }.into())
}

/// The dims of `x` that `dims` names, as sorted indices.
fn spelt_out(graph: &Graph, x: NodeId, dims: &Ints) -> Result<Ints> {
    Ok(ints(&normalize_dims("reduction", dims, graph[x].ty.rank())?))
}

/// `sum(x) / n`.
pub fn mean(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let FoldTo { dim, keepdim, dtype } = FoldTo::read(attrs);
    let out = dtype.unwrap_or(graph[args[0]].ty.dtype);
    let x = graph.cast(args[0], out)?;
    let x = widened(graph, x)?;
    let dims = spelt_out(graph, x, &dim)?;
    let (mean, _) = kept_mean(graph, x, &dims)?;
    let mean = graph.cast(mean, out)?;
    dropped(graph, mean, &dims, keepdim)
}

/// Two passes: the mean, then the mean of squared distances from it.
fn variance(graph: &mut Graph, x: NodeId, dims: &Ints, correction: Scalar) -> Result<NodeId> {
    let (mean, n) = kept_mean(graph, x, dims)?;
    let distance = binary(graph, Op::Sub, x, mean)?;
    let square = unary(graph, Op::Square, distance)?;
    let total = sum(graph, square, dims, true)?;
    let freedom = match correction {
        correction if correction.as_f64() == 0.0 => n,
        correction => {
            // A whole correction is subtracted from the count as an integer, which is exact. Others are subtracted in
            // the dtype of the operand.
            let whole = correction.as_f64().fract() == 0.0;
            let n = if whole { n } else { graph.cast(n, graph[x].ty.dtype)? };
            let correction = graph.number(if whole { Scalar::Int(correction.as_i64()) } else { correction });
            let left = binary(graph, Op::Sub, n, correction)?;
            unary(graph, Op::Relu, left)?
        }
    };
    binary(graph, Op::Div, total, freedom)
}

/// Variance with Bessel's correction: `sum((x - mean)²) / (n - correction)`.
pub fn var(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    spread(graph, args[0], attrs, None)
}

/// Square root of the variance.
pub fn std(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    spread(graph, args[0], attrs, Some(Op::Sqrt))
}

fn spread(graph: &mut Graph, x: NodeId, attrs: &[Attr], then: Option<Op>) -> Result<NodeId> {
    let out = graph[x].ty.dtype;
    let x = widened(graph, x)?;
    let Var { dim, correction, keepdim } = Var::read(attrs);
    let dims = spelt_out(graph, x, &dim)?;
    let variance = variance(graph, x, &dims, correction.unwrap_or(Scalar::Int(1)))?;
    let result = then.map_or(Ok(variance), |op| unary(graph, op, variance))?;
    let result = graph.cast(result, out)?;
    dropped(graph, result, &dims, keepdim)
}

/// `m + log(sum(exp(x - m)))`, where `m` is the greatest element, or 0 where that is infinite.
pub fn logsumexp(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let dtype = graph[args[0]].ty.dtype;
    let out = if dtype.is_float() { dtype } else { DType::DEFAULT_FLOAT };
    let x = graph.cast(args[0], out)?;
    let x = widened(graph, x)?;
    let Fold { dim, keepdim } = Fold::read(attrs);
    let dims = spelt_out(graph, x, &dim)?;
    if reduced_count(graph, x, &dims)? == 0 {
        let sum = sum(graph, x, &dims, keepdim)?;
        let log = unary(graph, Op::Log, sum)?;
        return graph.cast(log, out);
    }
    let greatest = greatest(graph, x, &dims)?;
    let infinite = unary(graph, Op::Isinf, greatest)?;
    let shift = graph.add(Op::MaskedFill, &[greatest, infinite], Value { value: Scalar::Float(0.0) }.into())?;
    let shifted = binary(graph, Op::Sub, x, shift)?;
    let exp = unary(graph, Op::Exp, shifted)?;
    let sum = sum(graph, exp, &dims, true)?;
    let log = unary(graph, Op::Log, sum)?;
    let kept = binary(graph, Op::Add, log, shift)?;
    let kept = graph.cast(kept, out)?;
    dropped(graph, kept, &dims, keepdim)
}

fn is_empty(graph: &Graph, x: NodeId) -> bool {
    graph[x].ty.numel() == 0
}

/// `x - max(x)` along the dim, its exponential, and the sum of the exponential along the dim.
fn exponentials(graph: &mut Graph, x: NodeId, attrs: &[Attr]) -> Result<(NodeId, NodeId, NodeId)> {
    let x = widened(graph, x)?;
    let dims = Ints::from_slice(&[Softmax::read(attrs).dim]);
    let greatest = greatest(graph, x, &dims)?;
    let shifted = binary(graph, Op::Sub, x, greatest)?;
    let exp = unary(graph, Op::Exp, shifted)?;
    let sum = sum(graph, exp, &dims, true)?;
    Ok((shifted, exp, sum))
}

/// `exp(x - max) (1 / sum(exp(x - max)))`.
pub fn softmax(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let out = graph[args[0]].ty.dtype;
    if is_empty(graph, args[0]) {
        return copied(graph, args[0]);
    }
    let (_, exp, sum) = exponentials(graph, args[0], attrs)?;
    // One division per row. The sum is at least 1 and at most the number of its terms, so its inverse is a normal
    // number. The product with it is rounded twice, where a quotient would be rounded once.
    let inverse = unary(graph, Op::Reciprocal, sum)?;
    let ratio = binary(graph, Op::Mul, exp, inverse)?;
    graph.cast(ratio, out).and_then(|node| dense(graph, node))
}

/// `(x - max) - log(sum(exp(x - max)))`.
pub fn log_softmax(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let out = graph[args[0]].ty.dtype;
    if is_empty(graph, args[0]) {
        return copied(graph, args[0]);
    }
    let (shifted, _, sum) = exponentials(graph, args[0], attrs)?;
    let log = unary(graph, Op::Log, sum)?;
    let result = binary(graph, Op::Sub, shifted, log)?;
    graph.cast(result, out).and_then(|node| dense(graph, node))
}

/// A row-major copy. The copy of a plain number is a tensor of the same dtype.
pub(super) fn copied(graph: &mut Graph, x: NodeId) -> Result<NodeId> {
    let ty = &graph[x].ty;
    if ty.number {
        let dtype = ty.dtype;
        return graph.add(Op::ToCopy, &[x], Cast { dtype: Some(dtype) }.into());
    }
    graph.add(Op::Clone, &[x], Ordered { memory_format: MemoryFormat::Contiguous }.into())
}

/// The node itself if it has exactly the row-major strides, else a row-major copy. The op promises these strides, even
/// for dims of size 1.
fn dense(graph: &mut Graph, x: NodeId) -> Result<NodeId> {
    let TensorType { sizes, strides, .. } = &graph[x].ty;
    if *strides == contiguous_strides(sizes) { Ok(x) } else { copied(graph, x) }
}

/// `(x - mean) * rsqrt(var + eps) [* weight] [+ bias]` over the trailing dims.
pub fn layer_norm(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let out = graph[args[0]].ty.dtype;
    let x = widened(graph, args[0])?;
    let rank = graph[x].ty.rank() as i64;
    let LayerNorm { normalized_shape, weight, bias, eps, .. } = LayerNorm::read(attrs);
    let dims: Ints = (rank - normalized_shape.len() as i64..rank).collect();
    let (mean, n) = kept_mean(graph, x, &dims)?;
    let distance = binary(graph, Op::Sub, x, mean)?;
    let square = unary(graph, Op::Square, distance)?;
    let total = sum(graph, square, &dims, true)?;
    let variance = binary(graph, Op::Div, total, n)?;
    let eps = number(graph, eps);
    let shifted = binary(graph, Op::Add, variance, eps)?;
    let scale = unary(graph, Op::Rsqrt, shifted)?;
    let mut y = binary(graph, Op::Mul, distance, scale)?;
    let mut rest = args[1..].iter();
    for (present, op) in [(weight, Op::Mul), (bias, Op::Add)] {
        if let (true, Some(&operand)) = (present, if present { rest.next() } else { None }) {
            let operand = widened(graph, operand)?;
            y = binary(graph, op, y, operand)?;
        }
    }
    graph.cast(y, out).and_then(|node| dense(graph, node))
}

/// `sum(a * b)`. An element of a matrix product is one chain of dependent additions. A sum has many accumulators, so it
/// is faster.
pub fn dot(graph: &mut Graph, args: &[NodeId], _: &[Attr]) -> Result<NodeId> {
    let out = graph[args[0]].ty.dtype;
    let (a, b) = (widened(graph, args[0])?, widened(graph, args[1])?);
    let product = binary(graph, Op::Mul, a, b)?;
    let sum = sum(graph, product, &[0].into_iter().collect(), false)?;
    graph.cast(sum, out)
}

/// `beta * term + alpha * (a @ b)`. Factors of 1 add no node, and a `beta` of 0 ignores the term. Factors of integer
/// operands are rounded toward zero.
pub fn addmm(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let out = graph[args[1]].ty.dtype;
    let op = if graph[args[1]].ty.rank() == 2 { Op::Mm } else { Op::Bmm };
    let (a, b) = (widened(graph, args[1])?, widened(graph, args[2])?);
    let product = graph.add(op, &[a, b], Attrs::new())?;
    let factor = |value: Scalar| if out.is_float() { value } else { Scalar::Int(value.as_i64()) };
    let scaled = |graph: &mut Graph, x: NodeId, factor: Scalar| {
        if factor.as_f64() == 1.0 {
            return Ok(x);
        }
        let factor = graph.number(factor);
        binary(graph, Op::Mul, x, factor)
    };
    let Addmm { beta, alpha } = Addmm::read(attrs);
    let (beta, alpha) = (factor(beta), factor(alpha));
    let mut sum = scaled(graph, product, alpha)?;
    if beta.as_f64() != 0.0 {
        let term = widened(graph, args[0])?;
        let term = scaled(graph, term, beta)?;
        sum = binary(graph, Op::Add, sum, term)?;
    }
    let sum = graph.cast(sum, out)?;
    dense(graph, sum)
}

/// `where(column - row compared with diagonal, x, 0)`.
fn triangle(graph: &mut Graph, x: NodeId, attrs: &[Attr], keep: Op) -> Result<NodeId> {
    let ty = graph[x].ty.clone();
    let (rows, columns) = (ty.sizes[ty.rank() - 2] as i64, ty.sizes[ty.rank() - 1] as i64);
    let range = |graph: &mut Graph, start: i64, count: i64| {
        let [start, end, step] = [start, start + count, 1].map(Scalar::Int);
        graph.add(Op::Arange, &[], Arange { start, end, step, dtype: Some(DType::I64) }.into())
    };
    // `column <= row + diagonal` for the lower triangle, with the diagonal in the range of rows. All diagonals
    // outside of the matrix give the same result, so a far one is clamped.
    let diagonal = Triangle::read(attrs).diagonal.clamp(-rows, columns);
    let row = range(graph, diagonal, rows)?;
    let row = graph.add(Op::Unsqueeze, &[row], Along { dim: 1 }.into())?;
    let column = range(graph, 0, columns)?;
    let kept = graph.add(keep, &[column, row], Attrs::new())?;
    let zero = graph.number(Scalar::Int(0).into_dtype(ty.dtype));
    let result = graph.add(Op::Where, &[kept, x, zero], Attrs::new())?;
    dense(graph, result)
}

/// The lower triangle: columns up to the diagonal.
pub fn tril(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    triangle(graph, args[0], attrs, Op::Le)
}

/// The upper triangle: columns from the diagonal on.
pub fn triu(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    triangle(graph, args[0], attrs, Op::Ge)
}
