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
        /// The least number of kernels that a graph is built for.
        limit: usize,
    }
        "few_kernels" => "fewer than {limit} kernels start as fast one by one";
        "nothing: a graph would not be faster";
    /// cublasLt launches kernels of its own.
    LibraryKernels
        "library_kernels" => "cublasLt launches kernels of its own, which cannot be added to a graph";
        "set `OPFUSE_CUDA_PRODUCTS=own` if launches cost more than the products";
    /// The driver has no graphs.
    DriverHasNone
        "driver_has_none" => "the driver does not support CUDA graphs";
        "install a driver of CUDA 12 or later";
    /// The CPU computes a step of the call.
    HostStep
        "host_step" => "the cpu computes a step of the call";
        "see `declined` of the groups for why the cpu computes one of them";
    /// A view of memory depends on the size of its operand's storage.
    ViewOfMemory {
        /// The op that takes the view.
        op: &'static str,
    }
        "view_of_memory" => "{op} depends on the size of its operand's storage";
        "take views by slices and strides of dims instead of `as_strided`";
    /// A view could not be made of its operand's layout.
    ViewFailed {
        /// The error.
        error: Arc<Error>,
    }
        "view_failed" => "a view failed: {error}";
        "please report it: views that were traced can be made again";
    /// The key of a random generator has another layout than it was made with.
    RandomKeyMoved
        "random_key_moved" => "the key of a random generator has another layout than it was made with";
        "pass generators, not views of their keys";
}
}
