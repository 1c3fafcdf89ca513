#![allow(unsafe_code, reason = "starts kernels on addresses of a device")]
//! Matrix products on a device.

use super::{counts, kernels};
use crate::codegen::cuda::product::{LEFT, Product, RESULT, RIGHT, THREADS};
use crate::device::cuda;
use crate::device::{Device, Stream};
use crate::eager::Array;
use crate::eager::product::strides;
use crate::error::{Reason, Result};
use crate::ir::{DType, TensorType};

/// Why products of a dtype are not computed there, if they are not.
pub(super) fn declined(dtype: DType) -> Option<Reason> {
    (dtype == DType::Bool).then(|| Reason::TierCannot("bools have no products".into()))
}

/// `a @ b` of 2-d arrays on the device, or of batches of them, into new memory of type `ty`; `None` if no grid is so large.
///
/// # Errors
/// Out of memory, or a device that fails.
///
/// # Safety
/// The operands are on the device, and the caller keeps everybody from writing to them until this returns.
pub(super) unsafe fn product(
    device: Device,
    a: &Array,
    b: &Array,
    ty: &TensorType,
    stream: &Stream,
) -> Result<Option<Array>> {
    let (rank, size) = (a.layout.rank(), ty.dtype.size());
    let in_bytes = |array: &Array| strides(array).map(|stride| stride * size);
    let product = Product {
        batch: if rank == 3 { a.layout.sizes[0] } else { 1 },
        m: a.layout.sizes[rank - 2],
        k: a.layout.sizes[rank - 1],
        n: b.layout.sizes[rank - 1],
        left: in_bytes(a),
        right: in_bytes(b),
    };
    let Some(blocks) = product.blocks() else { return Ok(None) };
    let out = Array::new(device, ty)?;
    if blocks == 0 {
        return Ok(Some(out));
    }
    for array in [a, b, &out] {
        array.storage().turn_to(stream)?;
    }
    let functions = kernels::products(device, ty.dtype)?;
    let mut words = product.words();
    for (word, array) in [(LEFT, a), (RIGHT, b), (RESULT, &out)] {
        words[word] = array.ptr().addr() as u64;
    }
    let queue = cuda::machine()?.queue(stream)?;
    // SAFETY: extents and strides are those of the operands, whose layouts lie inside their storages, and the result is new
    // memory of its row-major elements; all three were ordered to this stream, and memory that is given back stays as it is
    // until the stream has come past.
    unsafe { functions[0].start(&queue, blocks, [THREADS, 1], &words)? };
    counts::launched(1);
    Ok(Some(out))
}
