//! Memory formats that strides suggest.
//!
//! Operators on images keep the order of their input: where channels are last in memory, they are last in the result.

use super::attr::MemoryFormat;
use super::dtype::DType;
use super::shape::{Strides, contiguous_strides, strides_in_order};
use super::types::TensorType;

/// The memory format that strides suggest, as PyTorch reads them.
pub(crate) fn suggested_format(sizes: &[usize], strides: &[usize]) -> MemoryFormat {
    let (order, format): (&[usize], _) = match sizes.len() {
        4 => (&[1, 3, 2, 0], MemoryFormat::ChannelsLast),
        5 => (&[1, 4, 3, 2, 0], MemoryFormat::ChannelsLast3d),
        _ => return MemoryFormat::Contiguous,
    };
    let mut least = 0;
    for &dim in order {
        // An image with one channel and one pixel fits both formats. It counts as row-major.
        let undecided = dim == 0 && least == strides[1];
        if sizes[dim] == 0 || strides[dim] < least || strides[1] == 0 || undecided {
            return MemoryFormat::Contiguous;
        }
        least = strides[dim] * sizes[dim];
    }
    format
}

/// The type of a tensor that is dense in a memory format, and row-major where the format is of other dims.
pub(crate) fn dense(format: MemoryFormat, dtype: DType, sizes: &[usize]) -> TensorType {
    TensorType { strides: dense_strides(format, sizes), ..TensorType::contiguous(dtype, sizes) }
}

/// Dense strides in a memory format, which are row-major where the format is of other dims.
pub(crate) fn dense_strides(format: MemoryFormat, sizes: &[usize]) -> Strides {
    match format.order() {
        Some(order) if order.len() == sizes.len() => strides_in_order(sizes, order),
        Some(_) | None => contiguous_strides(sizes),
    }
}
