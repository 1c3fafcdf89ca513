//! Why the kernels of a call are started one by one, and not as one CUDA graph.

use super::Error;
use super::data::{Datum, Field};
use super::table::reasons;
use std::sync::Arc;

reasons! {
/// Why the kernels of a call are not replayed as one CUDA graph.
NoReplay {
    /// There are few kernels.
    FewKernels {
        /// The fewest that a graph is built of.
        limit: usize,
    }
        "few_kernels" => "fewer than {limit} kernels start as fast one by one";
        "nothing: a graph would not be faster";
    /// cublasLt starts kernels of its own.
    LibraryKernels
        "library_kernels" => "cublasLt starts kernels of its own, and a graph is built of kernels that are known";
        "set `OPFUSE_CUDA_PRODUCTS=own` if launches cost more than the products";
    /// The driver has no graphs.
    DriverHasNone
        "driver_has_none" => "the driver has no graphs";
        "install a driver of CUDA 12 or later";
    /// The CPU computes a part of it.
    HostStep
        "host_step" => "the cpu computes a step of it";
        "see `declined` of the groups for why the cpu computes one of them";
    /// A view of memory depends on how much memory there is.
    ViewOfMemory {
        /// The op that takes the view.
        op: &'static str,
    }
        "view_of_memory" => "{op} looks at how much memory there is";
        "take views by slices and strides of dims instead of `as_strided`";
    /// A view could not be made of its operand's layout.
    ViewFailed {
        /// The error.
        error: Arc<Error>,
    }
        "view_failed" => "a view of it failed: {error}";
        "please report it: views that were traced can be made again";
    /// A key of random words has another layout than it was made with.
    RandomKeyMoved
        "random_key_moved" => "a key of random words does not lie as it was made";
        "pass generators, not views of their keys";
}
}
