//! Which matrix products cublasLt, and the kernel for groups of four warps, do not compute.
//!
//! Another kernel of this library computes such a product. Only [`Numerics::Fast`](crate::Numerics::Fast) asks for these.

use super::Error;
use super::data::{Datum, Field};
use super::table::reasons;
use crate::ir::DType;
use std::sync::Arc;
use std::time::Duration;

reasons! {
/// Why cublasLt does not compute a matrix product, or what follows it.
LibraryLimit {
    /// The sums have no terms.
    EmptySums
        "empty_sums" => "it takes no sums of nothing";
        "nothing: a product over an empty dim is a fill with zeros";
    /// Neither rows nor columns of an operand are contiguous.
    OperandApart {
        /// `left` or `right`.
        side: &'static str,
    }
        "operand_apart" => "neither rows nor columns of the {side} operand lie side by side";
        "make the operand contiguous";
    /// The library was not found, or is too old.
    NotFound {
        /// What was looked for and where.
        error: Box<str>,
    }
        "not_found" => "{error}";
        "have cublasLt of CUDA 12 or later where the loader looks, or in the folder that `OPFUSE_CUDA_LIB_DIR` names";
    /// A call of the library failed.
    CallFailed {
        /// The error.
        error: Arc<Error>,
    }
        "call_failed" => "{error}";
        "set `OPFUSE_CUDA_PRODUCTS=own`, which never calls cublasLt";
    /// The library names no algorithm.
    NoAlgorithm {
        /// The product.
        problem: Box<str>,
    }
        "no_algorithm" => "it names no algorithm for {problem}";
        "use sizes and strides that are multiples of 16 bytes";
    /// `OPFUSE_CUDA_PRODUCTS` names another kernel.
    OtherChosen {
        /// Its value.
        value: &'static str,
    }
        "other_chosen" => "OPFUSE_CUDA_PRODUCTS is {value}";
        "unset `OPFUSE_CUDA_PRODUCTS`, or set it to `cublaslt`";
    /// The library would take longer, by the model.
    LibrarySlower {
        /// How long it would take.
        library: Duration,
        /// How long a kernel of this library takes.
        own: Duration,
    }
        "library_slower" => "by the model it takes {library:.1?}, and a kernel of opfuse {own:.1?}";
        "set `OPFUSE_CUDA_PRODUCTS=cublaslt` to use it all the same";
    /// The library has no epilogue for what follows the product.
    NoLibraryEpilogue
        "no_library_epilogue" =>
        "what follows is no bias per column that is added, relu, or gelu by tanh";
        "end the kernel after the product with one of these, or set `OPFUSE_CUDA_PRODUCTS=own`";
}
}

reasons! {
/// Why the kernel for groups of four warps does not compute a matrix product.
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
        "no_tensor_maps" => "the driver makes no tensor maps of operands";
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
    /// A tensor map does not have so many elements.
    MapTooSmall {
        /// The rows of the operand.
        rows: usize,
        /// The columns of the operand.
        columns: usize,
    }
        "map_too_small" => "no tensor map has {rows} by {columns} elements";
        "multiply the matrix in parts";
    /// Neither rows nor columns of an operand are contiguous and aligned.
    LinesApart {
        /// The alignment that lines need, in bytes.
        bytes: usize,
    }
        "lines_apart" =>
        "neighbours of an operand are not next to each other, or its lines do not begin at multiples of {bytes} bytes";
        "make the operand contiguous, with rows of a multiple of 16 bytes";
    /// The matrices of a batch are not aligned to each other.
    MatricesApart {
        /// The bytes from one matrix to the next.
        matrix: usize,
        /// The bytes from one line to the next.
        line: usize,
        /// The alignment that both need, in bytes.
        bytes: usize,
    }
        "matrices_apart" =>
        "matrices are {matrix} bytes apart, which is no multiple of {bytes} and of the {line} of lines";
        "make the batch contiguous";
    /// Lines or matrices of an operand share memory.
    OperandOverlaps
        "operand_overlaps" => "lines or matrices of an operand overlap";
        "clone the operand, so that each element has memory of its own";
    /// The strides of an operand are larger than a tensor map describes.
    StrideTooLarge
        "stride_too_large" => "an operand is larger than a tensor map describes";
        "multiply a smaller batch, or parts of the matrix";
}
}
