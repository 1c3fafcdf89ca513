//! Gathers by index, where the source, the index, or both are mapped.

use crate::error::Result;
use crate::ir::attrs::{Along, Attributes};
use crate::ir::row::GatherKind;
use crate::ir::{Attrs, DType, Op, TensorType};
use crate::ops::factories::range_on;
use crate::ops::indexing::embedding;
use crate::tensor::handle::Tensor;
use crate::transforms::batched::rules::{pad, shifted};
use crate::transforms::batched::{Operands, physical_sizes};

/// The physical result of a gather.
pub(super) fn gather(kind: GatherKind, operands: &Operands, attrs: &Attrs, result: &TensorType) -> Result<Tensor> {
    let [source, index] = &operands.list[..] else { unreachable!("a gather has a source and an index") };
    let size = operands.level.size;
    let dim = |op: Op| shifted(op, Along::read(attrs).dim, source.ty.rank());
    // Scalar slices get a dim to gather along.
    let with_dim = |value: Tensor| if value.dim() == 1 { pad(&value, 1) } else { Ok(value) };
    let physical = match kind {
        GatherKind::Select if !index.is_mapped => {
            with_dim(source.value.clone())?.index_select(dim(Op::IndexSelect)?, &index.value)?
        }
        GatherKind::Select => {
            // Each slice has an index vector, which is the same along all other dims.
            let source = with_dim(source.spread(size)?)?;
            let dim = dim(Op::IndexSelect)?;
            let mut sizes = source.sizes().to_vec();
            let mut index = with_dim(index.value.clone())?;
            sizes[dim as usize] = index.sizes()[1];
            for other in (1..source.dim() as i64).filter(|&other| other != dim) {
                index = index.unsqueeze(other)?;
            }
            source.gather(dim, &index.expand(&sizes[..])?)?
        }
        GatherKind::Elementwise => {
            let (source, index) = (with_dim(source.spread(size)?)?, with_dim(index.spread(size)?)?);
            source.gather(dim(Op::Gather)?, &index)?
        }
        GatherKind::Rows if !source.is_mapped => embedding(&source.value, &index.value)?,
        GatherKind::Rows => {
            // The tables of all slices become one. The rows of slice `i` start at `i * height`.
            let [_, height, width] = *source.value.sizes() else { unreachable!("inference saw a 2-dim table") };
            let table = source.value.reshape(&[size * height, width][..])?;
            let mut first = vec![1; index.ty.rank() + 1];
            first[0] = size;
            let first = range_on(table.device(), 0, size as i64, None)?.mul(height as i64)?.view(&first[..])?;
            embedding(&table, &index.spread(size)?.to_dtype(DType::I64)?.add(&first)?)?
        }
    };
    physical.reshape(&physical_sizes(size, &result.sizes)[..])
}
