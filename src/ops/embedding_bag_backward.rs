//! The gradients of bags of embeddings, as `torch.compile` calls them.
//!
//! opfuse's own gradients are those of the operators that `embedding_bag` is made of, and need none of these.

use super::embedding_bag::{Mode, mode_of};
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::EmbeddingDenseBackward;
use crate::ir::{Attrs, DType, Op, Scalar};
use crate::ops::composite::Composite;
use crate::ops::factories::full_on;
use crate::ops::indexing::embedding;
use crate::tensor::handle::Tensor;

static BY_TABLE: Composite = Composite::new(
    "_embedding_bag_dense_backward(Tensor grad, Tensor indices, Tensor offset2bag, Tensor bag_size, Tensor \
     maximum_indices, SymInt num_weights, bool scale_grad_by_freq, int mode, Tensor? per_sample_weights, int \
     padding_idx=-1) -> Tensor",
);

/// What the gradient by the table is made of.
struct Bags<'a> {
    indices: &'a Tensor,
    /// The bag of each index, the number of indices of each bag, and the index of the greatest by bag and feature.
    bags: &'a Tensor,
    sizes: &'a Tensor,
    greatest: &'a Tensor,
    num_weights: i64,
    scale_grad_by_freq: bool,
    mode: i64,
    scales: Option<&'a Tensor>,
    padding_idx: i64,
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(
            &BY_TABLE,
            |grad: &Tensor,
             indices: &Tensor,
             bags: &Tensor,
             sizes: &Tensor,
             greatest: &Tensor,
             num_weights: i64,
             scale_grad_by_freq: bool,
             mode: i64,
             scales: Option<&Tensor>,
             padding_idx: i64| {
                let all =
                    Bags { indices, bags, sizes, greatest, num_weights, scale_grad_by_freq, mode, scales, padding_idx };
                by_table(grad, &all)
            },
        )?
        .def_kernel(
            "_embedding_bag_backward(Tensor grad, Tensor indices, Tensor offsets, Tensor offset2bag, Tensor bag_size, \
             Tensor maximum_indices, SymInt num_weights, bool scale_grad_by_freq, int mode, bool sparse, Tensor? \
             per_sample_weights, int padding_idx=-1) -> Tensor",
            |grad: &Tensor,
             indices: &Tensor,
             _: &Tensor,
             bags: &Tensor,
             sizes: &Tensor,
             greatest: &Tensor,
             num_weights: i64,
             by_freq: bool,
             mode: i64,
             sparse: bool,
             scales: Option<&Tensor>,
             padding: i64| {
                if sparse {
                    let what = "sparse is true; there are dense gradients only, so pass false";
                    return Err(Error::argument("_embedding_bag_backward", what));
                }
                BY_TABLE.call::<_, Tensor>((
                    grad,
                    indices,
                    bags,
                    sizes,
                    greatest,
                    num_weights,
                    by_freq,
                    mode,
                    scales,
                    padding,
                ))
            },
        )?
        .def_kernel(
            "_embedding_bag_per_sample_weights_backward(Tensor grad, Tensor weight, Tensor indices, Tensor offsets, \
             Tensor offset2bag, int mode, int padding_idx=-1) -> Tensor",
            |grad: &Tensor, table: &Tensor, indices: &Tensor, _: &Tensor, bags: &Tensor, mode: i64, padding: i64| {
                by_scales(grad, table, indices, bags, mode, padding)
            },
        )?;
    Ok(())
}

/// The gradient by the table: each row of `grad` is added to the rows that its bag was made of.
fn by_table(grad: &Tensor, all: &Bags<'_>) -> Result<Tensor> {
    let op = "_embedding_bag_dense_backward";
    let mode = mode_of(op, all.mode)?;
    if grad.dim() != 2 || all.indices.dim() != 1 || all.bags.sizes() != all.indices.sizes() {
        let what = format!("grad {:?}, indices {:?}, bags {:?}", grad.sizes(), all.indices.sizes(), all.bags.sizes());
        return Err(Error::shape(op, what, "grad has a row per bag, and each index has a bag"));
    }
    let rows = match mode {
        Mode::Max => return by_greatest(grad, all),
        Mode::Sum => grad.index_select(0, all.bags)?,
        Mode::Mean => {
            let sizes = all.sizes.clamp_min(1)?.to_dtype(grad.dtype())?;
            grad.div(&sizes.unsqueeze(1)?)?.index_select(0, all.bags)?
        }
    };
    let rows = all.scales.map_or(Ok(rows.clone()), |scales| rows.mul(&scales.unsqueeze(1)?))?;
    let attrs = EmbeddingDenseBackward {
        num_weights: all.num_weights,
        padding_idx: all.padding_idx,
        scale_grad_by_freq: all.scale_grad_by_freq,
    };
    call(Op::EmbeddingDenseBackward, &[&rows, all.indices], &Attrs::from(attrs))
}

/// The same for maxima: each element is added to the row that had the greatest. An empty bag has none, which is -1.
fn by_greatest(grad: &Tensor, all: &Bags<'_>) -> Result<Tensor> {
    let grad = grad.masked_fill(&all.greatest.lt(0)?, 0.0)?;
    let sizes = [usize::try_from(all.num_weights).unwrap_or(0), grad.sizes()[1]];
    let zeros = full_on(grad.device(), &sizes, Scalar::Int(0), Some(grad.dtype()))?;
    zeros.scatter_add(0, &all.greatest.clamp_min(0)?, &grad)
}

/// The gradient by the scales of the rows: the product of each row with the gradient of its bag.
fn by_scales(
    grad: &Tensor,
    table: &Tensor,
    indices: &Tensor,
    bags: &Tensor,
    mode: i64,
    padding: i64,
) -> Result<Tensor> {
    let op = "_embedding_bag_per_sample_weights_backward";
    if mode_of(op, mode)? != Mode::Sum {
        return Err(Error::argument(op, "per_sample_weights are for the mode sum"));
    }
    let products = grad.index_select(0, bags)?.mul(&embedding(table, indices)?)?.sum([1], false)?;
    if padding < 0 { Ok(products) } else { products.masked_fill(&indices.to_dtype(DType::I64)?.eq(padding)?, 0.0) }
}
