//! Graphs like those of models: chains of row patterns with residuals, broadcasts and reductions. At their sizes, rows
//! cross tiles and blocks, and launches are split over threads.

use super::build::{Builder, Case};
use super::values::Fill;
use opfuse::ir::{Attr, Attrs, DType, MemoryFormat, NodeId, Op};
use smallvec::smallvec;

/// The graph of a seed, with arrays to run it on.
pub(crate) fn workload(seed: u64) -> Case {
    let mut builder = Builder::new(seed ^ 0x5eed_0000_0000);
    builder.limit = 2_000_000;
    let columns =
        builder.random.pick(&[1, 5, 31, 32, 33, 64, 100, 257, 768, 1000, 4096, 4097, 8192, 8193, 20_000, 70_000]);
    let most = (200_000 / columns).max(1);
    let rows = builder.random.pick(&[1, 2, 3, 7, 16, 17, 64, 100, 333, 1024]).min(most);
    builder.shape = vec![rows, columns];
    if builder.random.percent(20) && rows * columns < 60_000 {
        builder.shape.insert(0, 3);
    }
    let dtype = builder.random.pick(&[DType::F32, DType::F32, DType::F32, DType::F16, DType::BF16, DType::F64]);
    let shape = builder.shape.clone();
    let fill = if builder.random.percent(10) { Fill::Wild } else { Fill::Normal };
    let mut x = builder.strided_input(dtype, &shape, fill);
    let mut outputs = Vec::new();
    for _ in 0..1 + builder.random.below(5) {
        let pattern = builder.random.below(PATTERNS.len());
        if let Some((next, side)) = PATTERNS[pattern](&mut builder, x) {
            let keeps = builder.graph[next].ty.sizes[..] == shape[..];
            outputs.extend(side.filter(|_| builder.random.percent(30)));
            if keeps {
                x = next;
            } else {
                outputs.push(next);
            }
        }
    }
    outputs.truncate(2);
    outputs.push(x);
    builder.finish(outputs)
}

/// The value after a pattern, and one from its middle.
type Step = Option<(NodeId, Option<NodeId>)>;

const PATTERNS: [fn(&mut Builder, NodeId) -> Step; 13] = [
    residual,
    bias_activation,
    softmax,
    softmax_by_hand,
    layer_norm,
    rms_norm,
    column_sums,
    centred,
    masked,
    transposed,
    through_another_dtype,
    scaled,
    extremes,
];

fn sum(b: &mut Builder, x: NodeId, dims: &[i64], keep: bool) -> Option<NodeId> {
    b.call(Op::Sum, &[x], smallvec![Attr::ints(dims), Attr::bool(keep), Attr::None])
}

fn add(b: &mut Builder, x: NodeId, y: NodeId) -> Option<NodeId> {
    b.call(Op::Add, &[x, y], smallvec![Attr::int(1)])
}

fn sub(b: &mut Builder, x: NodeId, y: NodeId) -> Option<NodeId> {
    b.call(Op::Sub, &[x, y], smallvec![Attr::int(1)])
}

fn by_number(b: &mut Builder, op: Op, x: NodeId, value: f64) -> Option<NodeId> {
    let number = b.graph.number(opfuse::Scalar::Float(value));
    let attrs: Attrs = if matches!(op, Op::Add | Op::Sub) { smallvec![Attr::int(1)] } else { Attrs::new() };
    b.call(op, &[x, number], attrs)
}

/// A weight as long as a row.
fn weight(b: &mut Builder, x: NodeId) -> NodeId {
    let ty = b.graph[x].ty.clone();
    b.strided_input(ty.dtype, &ty.sizes[ty.rank() - 1..], Fill::Normal)
}

fn residual(b: &mut Builder, x: NodeId) -> Step {
    let ty = b.graph[x].ty.clone();
    let other = match b.find(|other| other.sizes == ty.sizes) {
        Some(found) if b.random.percent(50) => found,
        Some(_) | None => b.strided_input(ty.dtype, &ty.sizes, Fill::Normal),
    };
    Some((add(b, x, other)?, None))
}

fn bias_activation(b: &mut Builder, x: NodeId) -> Step {
    let bias = weight(b, x);
    let shifted = add(b, x, bias)?;
    let activation = b.random.pick(&[Op::Gelu, Op::Relu, Op::Silu, Op::Tanh, Op::Sigmoid, Op::Erf]);
    let attrs: Attrs = if activation == Op::Gelu { smallvec![Attr::Str("none".into())] } else { Attrs::new() };
    Some((b.call(activation, &[shifted], attrs)?, Some(shifted)))
}

fn softmax(b: &mut Builder, x: NodeId) -> Step {
    let op = b.random.pick(&[Op::Softmax, Op::LogSoftmax]);
    let dim = b.random.pick(&[-1, -1, -1, 0]);
    Some((b.call(op, &[x], smallvec![Attr::int(dim), Attr::bool(false)])?, None))
}

fn softmax_by_hand(b: &mut Builder, x: NodeId) -> Step {
    let greatest = b.call(Op::Amax, &[x], smallvec![Attr::ints(&[-1]), Attr::bool(true)])?;
    let shifted = sub(b, x, greatest)?;
    let exp = b.plain(Op::Exp, &[shifted])?;
    let total = sum(b, exp, &[-1], true)?;
    Some((b.plain(Op::Div, &[exp, total])?, Some(total)))
}

fn layer_norm(b: &mut Builder, x: NodeId) -> Step {
    let ty = b.graph[x].ty.clone();
    let columns = ty.sizes[ty.rank() - 1] as i64;
    let (scale, shift) = (weight(b, x), weight(b, x));
    let attrs =
        smallvec![Attr::ints(&[columns]), Attr::bool(true), Attr::bool(true), Attr::float(1e-5), Attr::bool(true)];
    Some((b.call(Op::LayerNorm, &[x, scale, shift], attrs)?, None))
}

fn rms_norm(b: &mut Builder, x: NodeId) -> Step {
    let square = b.plain(Op::Square, &[x])?;
    let mean = b.call(Op::Mean, &[square], smallvec![Attr::ints(&[-1]), Attr::bool(true), Attr::None])?;
    let shifted = by_number(b, Op::Add, mean, 1e-6)?;
    let scale = b.plain(Op::Rsqrt, &[shifted])?;
    let y = b.plain(Op::Mul, &[x, scale])?;
    let w = weight(b, x);
    Some((b.plain(Op::Mul, &[y, w])?, Some(mean)))
}

fn column_sums(b: &mut Builder, x: NodeId) -> Step {
    let op = b.random.pick(&[Op::Mean, Op::Sum]);
    let keep = b.random.percent(50);
    let sums = b.call(op, &[x], smallvec![Attr::ints(&[-2]), Attr::bool(keep), Attr::None])?;
    let y = if keep { sub(b, x, sums) } else { None };
    Some((y.unwrap_or(sums), Some(sums)))
}

fn centred(b: &mut Builder, x: NodeId) -> Step {
    let mean = b.call(Op::Mean, &[x], smallvec![Attr::None, Attr::bool(false), Attr::None])?;
    Some((sub(b, x, mean)?, Some(mean)))
}

fn masked(b: &mut Builder, x: NodeId) -> Step {
    let mask = by_number(b, Op::Gt, x, 0.25)?;
    let y = b.call(Op::MaskedFill, &[x, mask], smallvec![Attr::float(-1.5)])?;
    let op = b.random.pick(&[Op::Tril, Op::Triu]);
    let triangle = b.call(op, &[y], smallvec![Attr::int(1)])?;
    Some((if b.random.percent(50) { triangle } else { y }, Some(mask)))
}

fn transposed(b: &mut Builder, x: NodeId) -> Step {
    let t = b.call(Op::Transpose, &[x], smallvec![Attr::int(-1), Attr::int(-2)])?;
    let y = b.plain(Op::Abs, &[t])?;
    let back = b.call(Op::Transpose, &[y], smallvec![Attr::int(-1), Attr::int(-2)])?;
    let dense = b.call(Op::Clone, &[back], smallvec![MemoryFormat::Contiguous.into()])?;
    Some((add(b, x, dense)?, Some(y)))
}

fn through_another_dtype(b: &mut Builder, x: NodeId) -> Step {
    let (own, other) = (b.graph[x].ty.dtype, b.random.pick(&DType::ALL));
    let there = b.cast(x, other)?;
    Some((b.cast(there, own)?, None))
}

fn scaled(b: &mut Builder, x: NodeId) -> Step {
    let y = by_number(b, Op::Mul, x, 0.7)?;
    let y = by_number(b, Op::Add, y, -0.1)?;
    Some((b.call(Op::Clamp, &[y], smallvec![Attr::float(-2.0), Attr::float(2.5)])?, None))
}

fn extremes(b: &mut Builder, x: NodeId) -> Step {
    let op = b.random.pick(&[Op::Argmax, Op::Argmin, Op::Amax, Op::Amin, Op::Any, Op::All, Op::Prod]);
    let dim = b.random.pick(&[-1, -2]);
    let mut attrs: Attrs = smallvec![Attr::int(dim), Attr::bool(false)];
    if op == Op::Prod {
        attrs.push(Attr::None);
    }
    let found = b.call(op, &[x], attrs)?;
    Some((found, None))
}
