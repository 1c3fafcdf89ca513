//! Decompositions of indexing: the gradient of `embedding` as a write to zeros, and the special cases of `gather`.

use super::attr::{Attr, Attrs, MemoryFormat};
use super::attrs::{ints, *};
use super::dtype::DType;
use super::graph::{Graph, Node, NodeId};
use super::infer::need_index;
use super::op::Op;
use super::row::Call;
use super::scalar::Scalar;
use super::shape::{self, Sizes};
use super::types::TensorType;
use crate::error::{Error, Result};

/// A call of `gather` in the form that kernels take: an empty index becomes an empty result, and a 0-dim operand
/// becomes one with a dim of size 1.
pub fn gather(graph: &mut Graph, node: &Node, args: &[NodeId]) -> Result<NodeId> {
    let (x, index) = (args[0], args[1]);
    if node.ty.numel() == 0 {
        return full(graph, ints(&node.ty.sizes), 0, node.ty.dtype);
    }
    match (graph[x].ty.rank(), graph[index].ty.rank()) {
        (0, 1) => {
            let x = graph.add(Op::Unsqueeze, &[x], Along { dim: 0 }.into())?;
            graph.add(Op::Gather, &[x, index], node.attrs.clone())
        }
        (1, 0) => {
            let index = graph.add(Op::Unsqueeze, &[index], Along { dim: 0 }.into())?;
            let chosen = graph.add(Op::Gather, &[x, index], node.attrs.clone())?;
            graph.add(Op::View, &[chosen], Shape { size: Ints::new() }.into())
        }
        (_, _) => Ok(graph.copy(node, args)),
    }
}

/// The type of the gradient of an embedding table: `num_weights` rows. `grad_output` has the shape of the indices and a
/// dim for the row.
pub fn embedding_dense_backward_type(call: &Call<'_>) -> Result<TensorType> {
    let (grad, index) = (call.args[0], call.args[1]);
    need_index(call.name(), index)?;
    if grad.rank() != index.rank() + 1 || !grad.sizes.starts_with(&index.sizes) {
        let what = format!("gradient shape {:?} and indices shape {:?}", &grad.sizes[..], &index.sizes[..]);
        return Err(Error::shape(call.name(), what, "the gradient has the shape of the indices and one dim more"));
    }
    let n_rows = EmbeddingDenseBackward::read(call.attrs).num_weights;
    let sizes = counts(call.name(), &[n_rows, grad.sizes[index.rank()] as i64])?;
    shape::checked_numel(call.name(), &sizes, grad.dtype.size())?;
    Ok(TensorType::contiguous(grad.dtype, &sizes))
}

/// Adds every row of the gradient to the row of zeros that its index names. Rows of `padding_idx` are skipped. With
/// `scale_grad_by_freq`, each row is divided by the number of rows with the same index.
pub fn embedding_dense_backward(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let (dtype, row) = (graph[args[0]].ty.dtype, *graph[args[0]].ty.sizes.last().unwrap_or(&1));
    let count = graph[args[1]].ty.numel();
    let EmbeddingDenseBackward { num_weights, padding_idx, scale_grad_by_freq } = EmbeddingDenseBackward::read(attrs);
    let mut grad = reshaped(graph, args[0], &[count, row])?;
    let index = reshaped(graph, args[1], &[count])?;
    let column = reshaped(graph, index, &[count, 1])?;
    if scale_grad_by_freq {
        let wide = dtype.widened();
        let zeros = full(graph, Ints::from_slice(&[num_weights]), 0, wide)?;
        let ones = full(graph, ints(&[count]), 1, wide)?;
        let counts = graph.add(Op::ScatterAdd, &[zeros, index, ones], Along { dim: 0 }.into())?;
        let counts = graph.add(Op::Gather, &[counts, index], Gather { dim: 0, sparse_grad: false }.into())?;
        let counts = graph.add(Op::Unsqueeze, &[counts], Along { dim: 1 }.into())?;
        grad = graph.add(Op::ToCopy, &[grad], Cast { dtype: Some(wide) }.into())?;
        grad = graph.add(Op::Div, &[grad, counts], Attrs::new())?;
    }
    if padding_idx >= 0 {
        let number = graph.number(Scalar::Int(padding_idx));
        let is_padding = graph.add(Op::Eq, &[column, number], Attrs::new())?;
        grad = graph.add(Op::MaskedFill, &[grad, is_padding], Value { value: Scalar::Int(0) }.into())?;
    }
    let index = graph.add(Op::Expand, &[column], Expand { size: ints(&[count, row]), implicit: false }.into())?;
    let zeros = full(graph, Ints::from_slice(&[num_weights, row as i64]), 0, graph[grad].ty.dtype)?;
    let sum = graph.add(Op::ScatterAdd, &[zeros, index, grad], Along { dim: 0 }.into())?;
    graph.cast(sum, dtype)
}

fn full(graph: &mut Graph, size: Ints, value: i64, dtype: DType) -> Result<NodeId> {
    graph.add(Op::Full, &[], Full { size, fill_value: Scalar::Int(value), dtype: Some(dtype) }.into())
}

fn reshaped(graph: &mut Graph, x: NodeId, sizes: &[usize]) -> Result<NodeId> {
    let dense = if graph[x].ty.is_contiguous() {
        x
    } else {
        graph.add(Op::Clone, &[x], Ordered { memory_format: MemoryFormat::Contiguous }.into())?
    };
    graph.add(Op::View, &[dense], Shape { size: ints(sizes) }.into())
}

/// Sizes from signed numbers.
fn counts(op: &str, sizes: &[i64]) -> Result<Sizes> {
    let count = |&size: &i64| {
        usize::try_from(size).map_err(|_| Error::shape(op, format!("size {size} is negative"), "sizes count elements"))
    };
    sizes.iter().map(count).collect()
}
