//! Graphs like those of networks: matrix products, attention and row-wise ops, between which values change their sizes.
//! Products and the kernels around them merge to blocks of rows; a value that has other sizes than the matrix which a
//! product reads, or that is also a result, must keep its elements.

use super::build::{Builder, Case};
use super::values::Fill;
use opfuse::ir::{Attr, Attrs, DType, MemoryFormat, NodeId, Op};
use smallvec::smallvec;

/// The sizes of a network's values: batches, rows of a batch, heads, and elements of a head.
#[derive(Clone, Copy)]
struct Extents {
    batch: usize,
    rows: usize,
    heads: usize,
    size: usize,
}

impl Extents {
    fn width(self) -> usize {
        self.heads * self.size
    }

    /// The sizes in which a value may be seen, with its elements in the same order. The first are those of a matrix.
    fn views(self) -> [Vec<usize>; 6] {
        let Extents { batch, rows, heads, size } = self;
        [
            vec![batch * rows, self.width()],
            vec![batch, rows, self.width()],
            vec![batch, rows, heads, size],
            vec![batch * rows, heads, size],
            vec![batch * rows * self.width()],
            vec![batch * rows, 1, self.width()],
        ]
    }
}

/// The graph of a seed, with arrays to run it on.
pub(crate) fn network(seed: u64) -> Case {
    let mut builder = Builder::new(seed ^ 0x2e75_0000_0000);
    builder.limit = 2_000_000;
    let b = &mut builder;
    let extents = Extents {
        batch: b.random.pick(&[1, 1, 2, 3]),
        rows: b.random.pick(&[1, 2, 5, 16, 33, 64, 100, 257]),
        heads: b.random.pick(&[1, 2, 4]),
        size: b.random.pick(&[1, 3, 8, 16]),
    };
    let dtype = b.random.pick(&[DType::F32, DType::F32, DType::F32, DType::F64, DType::BF16]);
    let first = b.strided_input(dtype, &extents.views()[1], Fill::Normal);
    let (mut values, mut outputs) = (vec![first], Vec::new());
    for _ in 0..2 + b.random.below(7) {
        let layer = LAYERS[b.random.below(LAYERS.len())];
        let Some(value) = layer(b, extents, &values) else { continue };
        values.push(value);
        if b.random.percent(35) {
            outputs.push(value);
        }
    }
    outputs.truncate(3);
    outputs.extend(values.last());
    builder.finish(outputs)
}

/// Makes a new value of the values so far.
type Layer = fn(&mut Builder, Extents, &[NodeId]) -> Option<NodeId>;

const LAYERS: [Layer; 9] = [linear, linear, linear, batched, attention, pointwise, pointwise, normalized, sum_of_two];

/// One of the last values.
fn recent(b: &mut Builder, values: &[NodeId]) -> NodeId {
    let back = b.random.below(values.len().min(3));
    values[values.len() - 1 - back]
}

/// A value in other sizes, by a view where its strides allow one.
fn shaped(b: &mut Builder, value: NodeId, sizes: &[usize]) -> Option<NodeId> {
    if b.graph[value].ty.sizes[..] == *sizes {
        return Some(value);
    }
    let attrs = || -> Attrs { smallvec![Attr::Ints(sizes.iter().map(|&size| size as i64).collect())] };
    if let Some(view) = b.call(Op::View, &[value], attrs()) {
        return Some(view);
    }
    let dense = b.call(Op::Clone, &[value], smallvec![MemoryFormat::Contiguous.into()])?;
    b.call(Op::View, &[dense], attrs())
}

/// A value in some sizes.
fn seen(b: &mut Builder, extents: Extents, value: NodeId) -> Option<NodeId> {
    let views = extents.views();
    let sizes = &views[b.random.below(views.len())];
    shaped(b, value, sizes)
}

fn permuted(b: &mut Builder, value: NodeId, dims: &[i64]) -> Option<NodeId> {
    b.call(Op::Permute, &[value], smallvec![Attr::ints(dims)])
}

fn linear(b: &mut Builder, extents: Extents, values: &[NodeId]) -> Option<NodeId> {
    let value = recent(b, values);
    let matrix = shaped(b, value, &extents.views()[0])?;
    let (dtype, width) = (b.graph[matrix].ty.dtype, extents.width());
    let weight = b.strided_input(dtype, &[width, width], Fill::Normal);
    if b.random.percent(40) {
        let bias = b.strided_input(dtype, &[width], Fill::Normal);
        let factors = smallvec![Attr::int(1), Attr::int(1)];
        return b.call(Op::Addmm, &[bias, matrix, weight], factors);
    }
    b.plain(Op::Mm, &[matrix, weight])
}

/// A product with a matrix of its own per batch.
fn batched(b: &mut Builder, extents: Extents, values: &[NodeId]) -> Option<NodeId> {
    let value = recent(b, values);
    let matrices = shaped(b, value, &extents.views()[1])?;
    let (dtype, width) = (b.graph[matrices].ty.dtype, extents.width());
    let weight = b.strided_input(dtype, &[extents.batch, width, width], Fill::Normal);
    b.plain(Op::Bmm, &[matrices, weight])
}

/// Attention of heads among three values.
fn attention(b: &mut Builder, extents: Extents, values: &[NodeId]) -> Option<NodeId> {
    let Extents { batch, rows, heads, size } = extents;
    let per_head = |b: &mut Builder| {
        let value = recent(b, values);
        let split = shaped(b, value, &extents.views()[2])?;
        let split = permuted(b, split, &[0, 2, 1, 3])?;
        shaped(b, split, &[batch * heads, rows, size])
    };
    let [query, key, value] = [per_head(b)?, per_head(b)?, per_head(b)?];
    let key = permuted(b, key, &[0, 2, 1])?;
    let scores = b.plain(Op::Bmm, &[query, key])?;
    let weights = b.call(Op::Softmax, &[scores], smallvec![Attr::int(-1), Attr::bool(false)])?;
    let mixed = b.plain(Op::Bmm, &[weights, value])?;
    let mixed = shaped(b, mixed, &[batch, heads, rows, size])?;
    let mixed = permuted(b, mixed, &[0, 2, 1, 3])?;
    shaped(b, mixed, &extents.views()[1])
}

/// An activation of a sum or product with what is broadcast, in some sizes.
fn pointwise(b: &mut Builder, extents: Extents, values: &[NodeId]) -> Option<NodeId> {
    let value = recent(b, values);
    let value = seen(b, extents, value)?;
    let ty = b.graph[value].ty.clone();
    let sizes: Vec<usize> = ty.sizes.iter().map(|&size| if b.random.percent(50) { 1 } else { size }).collect();
    let other = b.strided_input(ty.dtype, &sizes, Fill::Normal);
    let mixed = if b.random.percent(50) {
        b.plain(Op::Mul, &[value, other])?
    } else {
        b.call(Op::Add, &[value, other], smallvec![Attr::int(1)])?
    };
    let activation = b.random.pick(&[Op::Relu, Op::Tanh, Op::Sigmoid, Op::Neg]);
    b.plain(activation, &[mixed])
}

/// Minus the mean of the last dim, in some sizes.
fn normalized(b: &mut Builder, extents: Extents, values: &[NodeId]) -> Option<NodeId> {
    let value = recent(b, values);
    let value = seen(b, extents, value)?;
    let mean = b.call(Op::Mean, &[value], smallvec![Attr::ints(&[-1]), Attr::bool(true), Attr::None])?;
    b.call(Op::Sub, &[value, mean], smallvec![Attr::int(1)])
}

/// The sum of two values, in some sizes.
fn sum_of_two(b: &mut Builder, extents: Extents, values: &[NodeId]) -> Option<NodeId> {
    let [one, other] = [recent(b, values), recent(b, values)];
    let one = seen(b, extents, one)?;
    let sizes = b.graph[one].ty.sizes.clone();
    let other = shaped(b, other, &sizes)?;
    b.call(Op::Add, &[one, other], smallvec![Attr::int(1)])
}
