//! Why a code tier, or the CUDA code generator, declines a kernel.
//!
//! The next tier runs such a kernel, and the interpreter takes every kernel. On a GPU another kernel or the CPU
//! computes it.

use super::Error;
use super::data::{Datum, Field};
use super::table::reasons;
use crate::ir::DType;
use std::sync::Arc;

reasons! {
/// Why there is no code for a kernel.
TierLimit {
    /// The machine has no such instruction set.
    MissingIsa {
        /// The instruction set.
        isa: Box<str>,
    }
        "missing_isa" => "this machine has no {isa}";
        "choose another tier in `CompileOptions::tier`, or leave the choice to the library; the bits are the same";
    /// The machine lacks an instruction that the kernel needs.
    MissingInstruction
        "missing_instruction" => "this machine lacks an instruction that the kernel needs";
        "set `CompileOptions::tier` to the tier that ran it; the bits are the same";
    /// The machine is not a 64-bit little-endian one, which generated code requires.
    UnknownMachine
        "unknown_machine" => "generated code runs on 64-bit little-endian machines only";
        "set `CompileOptions::tier` to `Tier::Vm`, which runs on every machine";
    /// Cranelift returned an error.
    Cranelift {
        /// The error.
        error: Box<str>,
    }
        "cranelift" => "Cranelift refuses it: {error}";
        "set `CompileOptions::tier` to `Tier::X64` or `Tier::Vm`";
    /// The build has no Cranelift.
    NoCranelift
        "no_cranelift" => "this build has no Cranelift";
        "build opfuse with its feature `cranelift`, or leave the choice to the library; the bits are the same";
    /// The system gives no memory for code.
    NoCodeMemory {
        /// The error of the system.
        error: Box<str>,
    }
        "no_code_memory" => "the system gives no memory for code: {error}";
        "allow the process to map executable memory; until then kernels are interpreted";
    /// Elements of less than four bytes are strided, and there are no gathers and scatters of them.
    NarrowStride {
        /// The dtype of the operand or result.
        dtype: DType,
    }
        "narrow_stride" => "it gathers and scatters elements of four and eight bytes only, and {dtype} is narrower";
        "make the operand or result contiguous";
    /// AVX2 has no instruction that scatters.
    NoScatter
        "no_scatter" => "AVX2 has no instruction that scatters elements";
        "make the result contiguous";
    /// The kernel gathers, and the tier has no gathers, or none inside a fold.
    Gathers
        "gathers" => "it has no gathers with a bounds check, or none inside a fold";
        "nothing: the interpreter checks each index, and its bits are the same";
    /// The kernel divides integers or has another prim that is computed element by element.
    ByElement {
        /// The scalar primitive.
        prim: &'static str,
    }
        "by_element" => "it has no check for zero divisors, no exact remainder and no integer power, as {prim} needs";
        "compute it in floats if the values allow that";
    /// The kernel could not be lowered.
    NotLowered {
        /// The error.
        error: Arc<Error>,
    }
        "not_lowered" => "it cannot be lowered: {error}";
        "please report it: kernels that were planned can be lowered";
    /// The elements need more blocks than a CUDA grid may have.
    GridTooLarge
        "grid_too_large" => "its elements need more blocks than a CUDA grid may have";
        "compute the tensor in parts";
    /// A tensor has more dimensions than CUDA kernels take.
    TooManyDims {
        /// How many it has.
        dims: usize,
        /// The limit.
        limit: usize,
    }
        "too_many_dims" => "one of its tensors has {dims} dims, more than {limit}";
        "flatten dims that are next to each other";
    /// Bools have no product.
    BoolProduct
        "bool_product" => "bools have no product";
        "convert the operands to another dtype";
    /// Tensor cores do not take the dtype.
    NoTensorCores {
        /// The dtype of the operands.
        dtype: DType,
    }
        "no_tensor_cores" => "tensor cores do not sum products of {dtype}";
        "multiply f16 or bf16 if their precision will do";
    /// The kernel reduces, so it cannot be an epilogue of a matrix product.
    EpilogueReduces
        "epilogue_reduces" => "no epilogue: it reduces";
        "keep what follows the product pointwise";
    /// The kernel may find a zero divisor or an index out of range, so it cannot be an epilogue of a matrix product.
    EpilogueMayFault
        "epilogue_may_fault" => "no epilogue: it may fault on a zero divisor or an index out of range";
        "gather or divide integers in a kernel of its own";
    /// The kernel does not read the product in the order of its elements, so it cannot be an epilogue of it.
    EpilogueReorders
        "epilogue_reorders" => "no epilogue: it does not read the product in the order of its elements";
        "transpose or expand after the pointwise work";
    /// A line is too long for the index type of the sort kernel.
    LineTooLong {
        /// The elements of a line.
        elements: usize,
    }
        "line_too_long" => "a line has {elements} elements, and CUDA sorts fewer than 2^31";
        "sort the tensor in parts";
    /// A selection of the first elements of a sort has no kernel.
    NoSelection
        "no_selection" => "no kernel selects the first elements of a sort: the cpu does";
        "sort all elements with `argsort`, which has a kernel, and take the first";
    /// A product of windows that lie in memory has no kernel.
    NoWindows
        "no_windows" => "no kernel multiplies windows where they lie: the cpu does";
        "copy the windows with `contiguous`, and multiply them with `bmm`";
    /// Work on whole matrices, such as a factorization, has no kernel.
    NoFactorizations
        "no_factorizations" => "no kernel factors matrices: the cpu does";
        "factor on the cpu, and move the result once";
    /// Fourier transforms have no kernel.
    NoTransforms
        "no_transforms" => "no kernel computes Fourier transforms: the cpu does";
        "transform on the cpu, and move the result once";
    /// A scan or a write by index runs along few long lines, each of which is sequential.
    FewLongLines {
        /// How many lines there are.
        lines: usize,
        /// How many steps one of them has.
        steps: usize,
    }
        "few_long_lines" =>
        "lines are few and long ({lines} of {steps} elements), and each is sequential: the cpu computes them";
        "use more and shorter lines, for example a larger batch";
    /// A write by index has other operands than target, index and source.
    WriteOperands {
        /// How many it has.
        operands: usize,
    }
        "write_operands" => "a write by index has three operands, not {operands}";
        "call the op with its declared arguments";
    /// A write by index has an operand without dims.
    WriteWithoutDims
        "write_without_dims" => "a tensor without dims takes part in a write by index";
        "give every operand one dim, with `unsqueeze`";
    /// The tensors of an index are too many, or of several dtypes.
    IndexTensors {
        /// How many there are.
        tensors: usize,
        /// The limit.
        limit: usize,
    }
        "index_tensors" => "its {tensors} index tensors are more than {limit}, or of several dtypes";
        "index with few tensors of one dtype";
    /// There is no CUDA kernel for blocks of rows.
    NoCudaKernel
        "no_cuda_kernel" => "there is no CUDA kernel for it yet, so the cpu computes it";
        "split the function between the matrix product and its neighbours";
    /// The types of the operands are not known when the kernel is chosen.
    UnknownOperands
        "unknown_operands" => "its operands are not known";
        "please report it: a plan has the types of all its values";
}
}
