//! Which matrix products cublasLt and the `wgmma` kernel do not compute.
//!
//! Another kernel of this library computes such a product. Only [`Numerics::Fast`](crate::Numerics::Fast) uses the two.

use super::Error;
use super::data::{Datum, Field};
use super::table::reasons;
use crate::ir::DType;
use std::sync::Arc;
use std::time::Duration;

reasons! {
/// Why cublasLt does not compute a matrix product, or its epilogue.
LibraryLimit {
    /// The inner dimension is 0, so the sums have no terms.
    EmptySums
        "empty_sums" => "it does not compute products over a dim of size 0";
        "nothing: a product over an empty dim is a fill with zeros";
    /// Neither rows nor columns of an operand are contiguous.
    OperandApart {
        /// `left` or `right`.
        side: &'static str,
    }
        "operand_apart" => "neither rows nor columns of the {side} operand are contiguous";
        "make the operand contiguous";
    /// The library was not found, or is too old.
    NotFound {
        /// What was looked for and where.
        error: Box<str>,
    }
        "not_found" => "{error}";
        "install cublasLt of CUDA 12 or later where the loader looks, or in the folder of `OPFUSE_CUDA_LIB_DIR`";
    /// A call of the library failed.
    CallFailed {
        /// The error.
        error: Arc<Error>,
    }
        "call_failed" => "{error}";
        "set `OPFUSE_CUDA_PRODUCTS=own`, which never calls cublasLt";
    /// The library has no algorithm for the product.
    NoAlgorithm {
        /// The product.
        problem: Box<str>,
    }
        "no_algorithm" => "it has no algorithm for {problem}";
        "use sizes and strides that are multiples of 16 bytes";
    /// `OPFUSE_CUDA_PRODUCTS` names another kernel.
    OtherChosen {
        /// Its value.
        value: &'static str,
    }
        "other_chosen" => "OPFUSE_CUDA_PRODUCTS is {value}";
        "unset `OPFUSE_CUDA_PRODUCTS`, or set it to `cublaslt`";
    /// The library would take longer, by the cost model.
    LibrarySlower {
        /// How long it would take.
        library: Duration,
        /// How long a kernel of this library takes.
        own: Duration,
    }
        "library_slower" => "by the cost model it takes {library:.1?}, and a kernel of opfuse {own:.1?}";
        "set `OPFUSE_CUDA_PRODUCTS=cublaslt` to use it all the same";
    /// The library has no epilogue that computes what follows the product.
    NoLibraryEpilogue
        "no_library_epilogue" =>
        "its epilogues are a bias per column, relu, and gelu by tanh, and the work after the product is another";
        "end the kernel after the product with one of these, or set `OPFUSE_CUDA_PRODUCTS=own`";
}
}

reasons! {
/// Why the `wgmma` kernel, which works in groups of four warps, does not compute a matrix product.
WgmmaLimit {
    /// The device has no such instruction.
    DeviceLacksWgmma {
        /// The device.
        device: Box<str>,
    }
        "device_lacks_wgmma" => "{device} is not of compute capability 9.0";
        "unset `OPFUSE_CUDA_PRODUCTS`: the other kernel for tensor cores runs on this device";
    /// The driver has no tensor maps.
    NoTensorMaps
        "no_tensor_maps" => "the driver does not support tensor maps";
        "install a driver of CUDA 12 or later, which has tensor maps";
    /// The instruction does not take the dtype.
    WgmmaDType {
        /// The dtype of the operands.
        dtype: DType,
    }
        "wgmma_dtype" => "it does not sum products of {dtype} in f32";
        "multiply operands of f16 or bf16";
    /// An operand is not aligned.
    Unaligned {
        /// The alignment that is needed, in bytes.
        bytes: usize,
    }
        "unaligned" => "an operand does not begin at a multiple of {bytes} bytes";
        "clone the operand, which aligns it";
    /// The operand has more rows or columns than a tensor map can describe.
    MapTooSmall {
        /// The rows of the operand.
        rows: usize,
        /// The columns of the operand.
        columns: usize,
    }
        "map_too_small" => "a tensor map cannot describe {rows} by {columns} elements";
        "multiply the matrix in parts";
    /// Neither rows nor columns of an operand are contiguous and aligned.
    LinesApart {
        /// The alignment that lines need, in bytes.
        bytes: usize,
    }
        "lines_apart" =>
        "neither rows nor columns of an operand are contiguous and begin at multiples of {bytes} bytes";
        "make the operand contiguous, with rows of a multiple of 16 bytes";
    /// The batch stride of an operand is not aligned.
    MatricesApart {
        /// The bytes from one matrix to the next.
        matrix: usize,
        /// The bytes from one line to the next.
        line: usize,
        /// The alignment that both need, in bytes.
        bytes: usize,
    }
        "matrices_apart" =>
        "the batch stride of {matrix} bytes is no multiple of {bytes} bytes and of the line stride of {line} bytes";
        "make the batch contiguous";
    /// Lines or matrices of an operand share memory.
    OperandOverlaps
        "operand_overlaps" => "lines or matrices of an operand overlap";
        "clone the operand, so that each element has memory of its own";
    /// The strides of an operand are larger than a tensor map can describe.
    StrideTooLarge
        "stride_too_large" => "an operand is larger than a tensor map can describe";
        "multiply a smaller batch, or parts of the matrix";
}
}
