//! Keeps the memory format of images.
//!
//! Where the channels of an input are last in memory, those of the result are, too, as in PyTorch. So a network keeps
//! the format from its first layer to its last, and vectors run along the channels.

use crate::error::Result;
use crate::ir::MemoryFormat;
use crate::ir::memory_formats::suggested_format;
use crate::tensor::handle::Tensor;

/// The memory format that the strides suggest.
pub(crate) fn format_of(x: &Tensor) -> MemoryFormat {
    suggested_format(x.sizes(), x.strides())
}

/// Applies `f` to `x` and its first spatial dim, where `x` has `n` of them in the order of `like`. In the result of `f`
/// channels are where they are in its argument. If they are last in the memory of `like`, they are the last dim there,
/// so a result that is row-major has them last in memory.
pub(crate) fn in_format(
    like: &Tensor,
    x: &Tensor,
    n: usize,
    f: impl FnOnce(&Tensor, usize) -> Result<Tensor>,
) -> Result<Tensor> {
    if format_of(like) == MemoryFormat::Contiguous || x.dim() != n + 2 {
        return f(x, x.dim() - n);
    }
    let rank = x.dim() as i64;
    let last: Vec<i64> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let back: Vec<i64> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    f(&x.permute(last)?, 1)?.permute(back)
}
