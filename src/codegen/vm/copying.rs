//! Kernels that only copy elements, or fill memory with one: no tiles, no conversions.
//!
//! Elements are moved as bytes, so every dtype of a size has the same routine. Rows that are contiguous, backwards, or
//! one element repeated are copied without tiles. A few rows whose elements are side by side are transposed together.
//! Other rows are left to the interpreter, which walks them in patches.
//!
//! Filled tensors have a literal that is the same per row. So that it becomes a value per element, the kernel selects
//! it in either case of a condition.

#![allow(unsafe_code, reason = "operands and outputs are raw memory, and vector instructions are chosen at run time")]

use super::isa::Isa;
use super::routine::pick;
use crate::codegen::geometry::{Access, offset};
use crate::codegen::kernel::{Inst, Kernel, Kind, Source};
use crate::codegen::native::dense_copies::copy_dense;
use crate::codegen::native::transpose::transpose;
use crate::codegen::{Geometry, Lanes, Part, Pointers};
use crate::ir::DType;
use crate::ir::scalar::Prim;

/// Copies `n` elements of each row. Sound if these can be read and written, and are aligned.
type Mover = unsafe fn(rows: &Rows, n: usize);

/// Rows at equal distances, several times.
struct Rows {
    /// The first element that is copied, and where it goes.
    from: *const u8,
    to: *mut u8,
    /// Bytes from a row to the next one, in both.
    apart: [usize; 2],
    count: usize,
    /// Bytes from the first of these rows to that of the next ones, in both.
    runs_apart: [usize; 2],
    n_runs: usize,
}

impl Rows {
    /// The rows of each run.
    fn runs(&self) -> impl Iterator<Item = impl Iterator<Item = (*const u8, *mut u8)>> {
        let &Rows { from, to, apart, count, runs_apart, n_runs } = self;
        let at = |nth: usize, [read, written]: [usize; 2], (from, to): (*const u8, *mut u8)| {
            (from.wrapping_add(nth.wrapping_mul(read)), to.wrapping_add(nth.wrapping_mul(written)))
        };
        (0..n_runs).map(move |run| {
            let first = at(run, runs_apart, (from, to));
            (0..count).map(move |row| at(row, apart, first))
        })
    }
}

/// A kernel with one output, whose elements are those of an operand or all the same.
#[derive(Debug)]
pub(super) struct Copying {
    /// Bytes of an element.
    bytes: usize,
    origin: Origin,
    forwards: Mover,
    backwards: Mover,
    repeated: Mover,
}

/// Where elements come from.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// An operand.
    Operand(u16),
    /// A literal, as an element has it in memory, and zeros.
    Literal([u8; 8]),
}

impl Copying {
    /// The copy that a kernel is, if it is one.
    pub(super) fn of(isa: Isa, kernel: &Kernel, lanes: Lanes) -> Option<Copying> {
        let [output] = &kernel.outputs[..] else { return None };
        let (stored, bytes) = (kernel.inst(output.value), output.dtype.size());
        let origin = match stored.kind {
            Kind::Load(slot) => {
                let operand = &kernel.operands[usize::from(slot)];
                let is_moved = operand.source == Source::Memory && operand.dtype == output.dtype;
                is_moved.then_some(Origin::Operand(slot))?
            }
            Kind::Prim(Prim::Select) => Origin::Literal(literal(kernel, stored, output.dtype)?),
            Kind::Gather(_) | Kind::Lit(_) | Kind::Prim(_) | Kind::Func(_) | Kind::Fold(_) => return None,
        };
        let [forwards, backwards, repeated] = match bytes {
            1 => movers::<u8>(isa),
            2 => movers::<u16>(isa),
            4 => movers::<u32>(isa),
            8 => movers::<u64>(isa),
            _ => return None,
        };
        (lanes == Lanes::Inner).then_some(Copying { bytes, origin, forwards, backwards, repeated })
    }

    /// Copies one part of a launch, if its rows are such.
    ///
    /// # Safety
    /// As for [`VmProgram::run`](super::VmProgram::run) of the kernel that this was made of.
    pub(super) unsafe fn run(&self, geometry: &Geometry, pointers: Pointers<'_>, part: &Part) -> bool {
        let [output] = &geometry.outputs[..] else { return false };
        if geometry.inner.len() > 1 || geometry.lane_stride(output) != self.bytes {
            return false;
        }
        let still = Access { rows: geometry.rows.iter().map(|_| 0).collect(), ..Access::default() };
        let (operand, memory) = match &self.origin {
            &Origin::Operand(slot) => (&geometry.operands[usize::from(slot)], pointers.operands[usize::from(slot)]),
            Origin::Literal(element) => (&still, element.as_ptr()),
        };
        let (apart, n) = (geometry.lane_stride(operand), part.lanes.len());
        // The first element in memory is the last one of a row that is walked backwards.
        let (first, mover): (usize, Mover) = match apart {
            _ if apart == self.bytes => (part.lanes.start, self.forwards),
            _ if apart == self.bytes.wrapping_neg() => (part.lanes.end.wrapping_sub(1), self.backwards),
            0 => (part.lanes.start, self.repeated),
            // SAFETY: passed on from the caller.
            _ => return unsafe { self.transpose(geometry, operand, memory, pointers.outputs[0], part) },
        };
        let start = |access: &Access, row: usize, lane: usize| {
            let row = offset(&geometry.rows, &access.rows, row);
            let lane = lane.wrapping_mul(geometry.lane_stride(access));
            (access.base as usize).wrapping_add(row).wrapping_add(lane)
        };
        // The strides of the last two row loops.
        let along =
            |nth: usize| [operand, output].map(|access| access.rows.iter().rev().nth(nth).copied().unwrap_or(0));
        for (row, n_runs, count) in blocks(geometry, part).take_while(|_| n > 0) {
            let from = memory.wrapping_add(start(operand, row, first));
            let to = pointers.outputs[0].wrapping_add(start(output, row, part.lanes.start));
            let rows = Rows { from, to, apart: along(0), count, runs_apart: along(1), n_runs };
            // SAFETY: the caller vouches for the elements of both.
            unsafe { mover(&rows, n) };
        }
        true
    }

    /// Copies one part of a launch whose last row loop goes along neighbours, if they fit into a cache line and fill
    /// vectors. Row by row, each line would be read once per row.
    ///
    /// # Safety
    /// As for [`Copying::run`]; elements come from that operand in `memory`, and go to `to`.
    unsafe fn transpose(
        &self,
        geometry: &Geometry,
        operand: &Access,
        memory: *const u8,
        to: *mut u8,
        part: &Part,
    ) -> bool {
        let (output, n_together) = (&geometry.outputs[0], geometry.rows.last().copied().unwrap_or(1));
        let (Some(&beside), Some(&pitch)) = (operand.rows.last(), output.rows.last()) else { return false };
        let fits = (LEAST_TRANSPOSED[self.bytes.ilog2() as usize]..=LINE_BYTES / self.bytes).contains(&n_together);
        if !fits || beside != self.bytes || !pitch.is_multiple_of(self.bytes) {
            return false;
        }
        let (apart, lanes) = (geometry.lane_stride(operand), part.lanes.len());
        let start = |access: &Access, row: usize| {
            let lane = part.lanes.start.wrapping_mul(geometry.lane_stride(access));
            (access.base as usize).wrapping_add(offset(&geometry.rows, &access.rows, row)).wrapping_add(lane)
        };
        for (row, rows) in runs(geometry, part).take_while(|_| lanes > 0) {
            let (from, to) = (memory.wrapping_add(start(operand, row)), to.wrapping_add(start(output, row)));
            // SAFETY: the caller vouches for the elements of these rows in both.
            unsafe { transpose(from, apart, to, pitch / self.bytes, self.bytes, rows, lanes) };
        }
        true
    }
}

/// The rows of a part in runs along the last row loop: the first of each run, and how many they are.
fn runs(geometry: &Geometry, part: &Part) -> impl Iterator<Item = (usize, usize)> {
    blocks(geometry, part).flat_map(|(row, n_runs, count)| (0..n_runs).map(move |nth| (row + nth * count, count)))
}

/// The rows of a part in runs along the last two row loops: the first row, the runs along the last loop, and how many
/// rows each of them has.
fn blocks(geometry: &Geometry, part: &Part) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut sizes = geometry.rows.iter().rev().copied();
    let (last, runs) = (sizes.next().unwrap_or(1), sizes.next().unwrap_or(1));
    let end = part.outer.end;
    let block = move |row: usize| {
        let whole = (runs - row / last % runs).min((end - row) / last);
        match row % last {
            0 if whole > 0 => (row, whole, last),
            skipped => (row, 1, (last - skipped).min(end - row)),
        }
    };
    let first = (part.outer.start < end).then(|| block(part.outer.start));
    std::iter::successors(first, move |(row, n_runs, count)| {
        let next = row + n_runs * count;
        (next < end).then(|| block(next))
    })
}

/// Fewest rows that are transposed by vectors: of elements of 1, 2, 4 and 8 bytes.
const LEAST_TRANSPOSED: [usize; 4] = [8, 4, 4, 2];
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// The literal that `select` is in either case, as an element of `dtype` in memory. Those of 16-bit floats are rounded
/// first, so they are left out.
fn literal(kernel: &Kernel, select: &Inst, dtype: DType) -> Option<[u8; 8]> {
    // Other instructions may find a value out of range.
    let is_plain =
        |inst: &Inst| matches!(inst.kind, Kind::Load(_) | Kind::Lit(_) | Kind::Prim(Prim::Eq | Prim::Select));
    let &[_, one, other] = &select.args[..] else { return None };
    let Kind::Lit(literal) = kernel.inst(one).kind else { return None };
    let mut element = [0; 8];
    match dtype {
        DType::F16 | DType::BF16 => return None,
        DType::Bool | DType::U8 | DType::I8 => element[..1].copy_from_slice(&(literal.bits as u8).to_ne_bytes()),
        DType::I16 => element[..2].copy_from_slice(&(literal.bits as u16).to_ne_bytes()),
        DType::I32 | DType::F32 => element[..4].copy_from_slice(&(literal.bits as u32).to_ne_bytes()),
        DType::I64 | DType::F64 => element.copy_from_slice(&literal.bits.to_ne_bytes()),
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
    (one == other && kernel.insts.iter().all(is_plain)).then_some(element)
}

/// The movers of elements of a size: forwards, backwards, and one element repeated.
fn movers<T: Copy>(isa: Isa) -> [Mover; 3] {
    [pick!(self, isa, forwards::<T>), pick!(self, isa, backwards::<T>), pick!(self, isa, repeated::<T>)]
}

/// Instantiates the loops for one instruction set.
macro_rules! level {
    ($level:ident $(, $feature:literal)?) => {
        mod $level {
            use super::{Rows, copy_dense};

            /// # Safety
            /// See [`super::Mover`]. Both may be the same.
            $(#[target_feature(enable = $feature)])?
            pub(super) unsafe fn forwards<T: Copy>(rows: &Rows, n: usize) {
                for run in rows.runs() {
                    // SAFETY: the caller vouches for the elements.
                    unsafe { copy_dense(run, n * size_of::<T>()) }
                }
            }

            /// # Safety
            /// See [`super::Mover`]; the two do not overlap.
            $(#[target_feature(enable = $feature)])?
            pub(super) unsafe fn backwards<T: Copy>(rows: &Rows, n: usize) {
                for (from, to) in rows.runs().flatten() {
                    // SAFETY: the caller vouches for the elements.
                    let from = unsafe { std::slice::from_raw_parts(from.cast::<T>(), n) };
                    // SAFETY: as above.
                    let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<T>(), n) };
                    to.iter_mut().zip(from.iter().rev()).for_each(|(to, &from)| *to = from);
                }
            }

            /// # Safety
            /// See [`super::Mover`]; only the first element is read, and need not be aligned.
            $(#[target_feature(enable = $feature)])?
            pub(super) unsafe fn repeated<T: Copy>(rows: &Rows, n: usize) {
                for (from, to) in rows.runs().flatten() {
                    // SAFETY: the caller vouches for the elements.
                    unsafe { std::slice::from_raw_parts_mut(to.cast::<T>(), n).fill(from.cast::<T>().read_unaligned()) }
                }
            }
        }
    };
}

level!(baseline);
#[cfg(target_arch = "x86_64")]
level!(avx2, "avx2");
#[cfg(target_arch = "x86_64")]
level!(avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2");

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves numbers of a size in two rows, of all lengths that a mover tells apart.
    fn moved<T: Copy + PartialEq + std::fmt::Debug>(isa: Isa, numbers: &[T]) {
        let [forwards, backwards, repeated] = movers::<T>(isa);
        let half = numbers.len() / 2;
        let [first, second] = [&numbers[..half], &numbers[half..2 * half]];
        for n in 0..half {
            let check = |mover: Mover, expected: &dyn Fn(&[T]) -> Vec<T>| {
                let mut to = numbers.to_vec();
                let (from, apart) = (numbers.as_ptr().cast::<u8>(), [half * size_of::<T>(); 2]);
                let all = [expected(first), first[n..].to_vec(), expected(second), numbers[half + n..].to_vec()];
                // As rows of one run, and as runs of one row.
                for (count, n_runs) in [(2, 1), (1, 2)] {
                    to.copy_from_slice(numbers);
                    let to_rows = to.as_mut_ptr().cast();
                    let rows = Rows { from, to: to_rows, apart, count, runs_apart: apart, n_runs };
                    // SAFETY: both rows have more than `n` elements.
                    unsafe { mover(&rows, n) };
                    assert_eq!(to, all.concat(), "{isa:?} {n} {count}");
                }
            };
            check(forwards, &|row| row[..n].to_vec());
            check(backwards, &|row| row[..n].iter().rev().copied().collect());
            check(repeated, &|row| vec![row[0]; n]);
        }
    }

    #[test]
    fn elements_of_every_size_are_moved() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            moved(isa, &(0..200).collect::<Vec<u8>>());
            moved(isa, &(0..200).map(|n| n * 301).collect::<Vec<u16>>());
            moved(isa, &(0..200).map(|n| n * 70_001).collect::<Vec<u32>>());
            moved(isa, &(0..200).map(|n| n * 0x1_0000_0003).collect::<Vec<u64>>());
        }
    }
}
