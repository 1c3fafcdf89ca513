//! Outputs that are written with non-temporal (streaming) stores.
//!
//! A cached store fetches its line first, and evicts another. An output larger than the last-level cache is evicted
//! before it is read again, so it is written by stores that do neither. The same holds for a launch that moves so much
//! data that little of the output can stay, even in a larger cache, which dozens of cores share. Where the next reader
//! would find most of the output cached, non-temporal stores cost it more than they save here.
//!
//! They are not used for:
//!
//! - unaligned vectors, which they do not support;
//! - an output in the place of an operand, whose lines are already fetched;
//! - with AVX2, a kernel that computes more than it moves. It takes up to a third longer (`scripts/peers.sh --rows W17`
//!   on Zen 3), because lines wait half written.
//!
//! A vector of AVX-512 is a whole line: ten ops of 1e7 elements take 0.83 of the time, and 0.94 with two threads;
//! Black-Scholes takes the same (`scripts/peers.sh --rows W01l,W17`).

use crate::codegen::geometry::{Access, Class, Geometry};
use crate::codegen::kernel::{Kernel, Source};
use crate::codegen::launch::{Part, Pointers};
use crate::debug;
use crate::device::last_cache_bytes;
use crate::ir::DType;
use std::sync::OnceLock;

/// A cache line, which the widest vector fills. Addresses have to be multiples of it.
const LINE: usize = 64;

/// Most instructions for which a kernel without functions waits for memory.
const SHORT_CHAIN: usize = 24;

/// Whether elements of a dtype have non-temporal stores.
pub(in crate::codegen) const fn takes(dtype: DType) -> bool {
    dtype.size() >= 4
}

/// Bytes that a launch moves after which little of an output is left in any cache.
///
/// On a Xeon with 260 MiB of last-level cache, `relu(a*b+c)` of 1e7 elements (153 MiB) takes 0.73 of the time with
/// non-temporal stores, and 0.78 with two threads (`opfuse-peers --peer opfuse-compile --workloads W02`). At 96 MiB,
/// what stays cached is worth more to the next reader: `OPFUSE_STREAM_FROM=33554432` takes 1.2 of the time (`--peer
/// opfuse-eager --workloads W11t`).
const MOST_MOVED: usize = 128 << 20;

/// Bytes from which non-temporal stores pay: of all outputs, or of all that a launch moves.
#[derive(Clone, Copy)]
struct Least {
    outputs: usize,
    moved: usize,
}

fn least() -> Least {
    static LEAST: OnceLock<Least> = OnceLock::new();
    *LEAST.get_or_init(|| match debug::stream_from() {
        Some(outputs) => Least { outputs, moved: usize::MAX },
        None => Least { outputs: last_cache_bytes().unwrap_or(usize::MAX), moved: MOST_MOVED },
    })
}

/// Bytes of the cache lines that an access touches, roughly. Neighbours share lines, and a loop with stride 0 touches
/// no new ones.
fn touched(access: &Access, size: usize, geometry: &Geometry) -> usize {
    let loops = geometry.rows.iter().zip(&access.rows).chain(geometry.inner.iter().zip(&access.inner));
    let moving = loops.filter(|(_, stride)| **stride != 0);
    let (mut count, mut step) = (1, LINE);
    for (&length, &stride) in moving {
        count *= length;
        // A negative stride is stored as its two's complement.
        step = step.min((stride as isize).unsigned_abs());
    }
    count * step.max(size)
}

/// Bytes of all cache lines that a launch touches, roughly.
fn moved(kernel: &Kernel, geometry: &Geometry) -> usize {
    let operands = kernel.operands.iter().zip(&geometry.operands);
    let operands = operands.filter(|(operand, _)| operand.source != Source::Iota);
    let read: usize = operands.map(|(operand, access)| touched(access, operand.dtype.size(), geometry)).sum();
    let outputs = kernel.outputs.iter().zip(&geometry.outputs);
    read + outputs.map(|(output, access)| touched(access, output.dtype.size(), geometry)).sum::<usize>()
}

/// Whether a kernel computes so little that it waits for memory.
pub(in crate::codegen) fn is_short(kernel: &Kernel) -> bool {
    !kernel.has_funcs() && kernel.insts.len() <= SHORT_CHAIN
}

/// Whether a part of a launch runs the code with non-temporal stores. The accesses have the given classes.
pub(super) fn is_streamed(
    kernel: &Kernel,
    classes: &[Class],
    geometry: &Geometry,
    pointers: Pointers<'_>,
    part: &Part,
) -> bool {
    let (least, n_elements) = (least(), geometry.n_rows() * geometry.n_inner());
    // Small launches should decide this fast.
    let n_accesses = kernel.operands.len() + kernel.outputs.len();
    if n_elements < least.outputs.min(least.moved) / (LINE * n_accesses.max(1)) {
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
        let is_aligned = start.is_multiple_of(LINE) && access.rows.iter().all(|stride| stride.is_multiple_of(LINE));
        let is_in_place =
            pointers.operands.iter().any(|&operand| operand.cast() == pointers.outputs[slot].cast_const());
        if !is_aligned || is_in_place {
            return false;
        }
        bytes += n_elements * size;
    }
    bytes > 0 && (bytes >= least.outputs || moved(kernel, geometry) >= least.moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::geometry::Lanes;
    use crate::codegen::kernel::{Operand, Output};
    use crate::ir::scalar::Reg;
    use smallvec::smallvec;

    fn access(row: usize, inner: usize) -> Access {
        Access { rows: smallvec![row], inner: smallvec![inner], ..Access::default() }
    }

    #[test]
    fn lines_that_are_shared_or_stay_count_once() {
        let geometry = Geometry {
            rows: smallvec![100],
            inner: smallvec![1000],
            operands: Vec::new(),
            outputs: Vec::new(),
            lanes: Lanes::Inner,
        };
        let of = |row: usize, inner: usize| touched(&access(row, inner), 4, &geometry);
        assert_eq!(of(4000, 4), 400_000, "contiguous");
        assert_eq!(of(4000, 4_usize.wrapping_neg()), 400_000, "backwards");
        assert_eq!(of(8000, 8), 800_000, "every other one");
        assert_eq!(of(4, 400), 400_000, "transposed");
        assert_eq!(of(400_000, 400), 6_400_000, "one line per element");
        assert_eq!((of(0, 4), of(4, 0), of(0, 0)), (4000, 400, 64), "the same in every row, or in a row, or one");
        let memory = |dtype| Operand { dtype, source: Source::Memory };
        let iota = Operand { dtype: DType::I64, source: Source::Iota };
        let kernel = Kernel {
            operands: vec![memory(DType::F32), iota, memory(DType::F64)],
            outputs: vec![Output { dtype: DType::F32, value: Reg::new(0) }],
            ..Kernel::default()
        };
        let geometry = Geometry {
            operands: vec![access(4000, 4), access(0, 1), access(0, 8)],
            outputs: vec![access(4000, 4)],
            ..geometry
        };
        assert_eq!(moved(&kernel, &geometry), 400_000 + 8000 + 400_000, "iotas move no memory");
    }
}
