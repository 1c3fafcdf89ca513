//! Outputs that are written past the caches.
//!
//! A store fetches its line first, and pushes another one out of the caches. Whoever reads an output that is larger than the last
//! cache finds its beginning gone anyway, so it is written by stores that do neither. They take aligned vectors alone, an operand
//! that is written in its place was fetched already, and a kernel that computes more than it moves is slower by up to a third
//! (`scripts/peers.sh --rows W17` on Zen 3), as lines wait half written: these run the other code.

use crate::codegen::geometry::{Class, Geometry};
use crate::codegen::kernel::Kernel;
use crate::codegen::launch::{Part, Pointers};
use crate::debug;
use crate::device::last_cache_bytes;
use crate::ir::DType;
use std::sync::OnceLock;

/// What addresses have to be multiples of: a line of a cache, and the widest vector.
const ALIGN: usize = 64;

/// Instructions up to which a kernel without functions waits for memory.
const SHORT_CHAIN: usize = 24;

/// Whether stores past the caches write elements of a dtype.
pub(in crate::codegen) const fn takes(dtype: DType) -> bool {
    dtype.size() >= 4
}

/// Bytes of all outputs from which on they are written past the caches.
fn least_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| debug::stream_from().or_else(last_cache_bytes).unwrap_or(usize::MAX))
}

/// Whether a kernel waits for memory, so that its large outputs are better written past the caches.
pub(super) fn suits(kernel: &Kernel) -> bool {
    !kernel.has_funcs() && kernel.insts.len() <= SHORT_CHAIN
}

/// Whether a part of a launch is to run the code that writes past the caches, of a kernel that it [suits]. Accesses move as `classes`
/// says.
pub(super) fn is_streamed(
    kernel: &Kernel,
    classes: &[Class],
    geometry: &Geometry,
    pointers: Pointers<'_>,
    part: &Part,
) -> bool {
    let (least, n_elements) = (least_bytes(), geometry.n_rows() * geometry.n_inner());
    // Small launches are to pass by quickly.
    if n_elements < least / (8 * kernel.outputs.len().max(1)) {
        return false;
    }
    let n_operands = kernel.operands.len();
    let mut bytes = 0;
    for (slot, (output, access)) in kernel.outputs.iter().zip(&geometry.outputs).enumerate() {
        if classes[n_operands + slot] != Class::Contiguous || !takes(output.dtype) {
            continue;
        }
        let size = output.dtype.size();
        let first = if kernel.has_folds() { 0 } else { part.lanes.start * size };
        let start = (pointers.outputs[slot] as usize).wrapping_add(access.base as usize).wrapping_add(first);
        let is_aligned = start.is_multiple_of(ALIGN) && access.rows.iter().all(|stride| stride.is_multiple_of(ALIGN));
        let is_in_place =
            pointers.operands.iter().any(|&operand| operand.cast() == pointers.outputs[slot].cast_const());
        if !is_aligned || is_in_place {
            return false;
        }
        bytes += n_elements * size;
    }
    bytes >= least.max(1)
}
