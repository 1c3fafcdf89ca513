//! Unrolls short folds: a kernel over rows of a few elements becomes one without inner elements.
//!
//! The windows of a pooling have a handful of elements each, at other offsets of the same memory. As a fold, every
//! window is a row of its own, and a row takes many times longer to start than to walk. Here each inner element becomes
//! an operand with an offset of its own, and the fold becomes a tree of prims over them. The result is a pointwise
//! kernel whose vectors run along the rows.
//!
//! Many short rows of neighbours are unrolled, too, as those of a normalization over a last dimension of twelve. Their
//! elements are the columns of a matrix, which machine code transposes ([`super::native::deinterleaved`]). An output
//! with an element per inner element becomes several outputs, which are its columns.
//!
//! The tree is the one of [`super::kernel`], so the bits stay. Partial results without elements are left out, because
//! combining an identity changes nothing ([`super::fold`]). The same holds for where partial results start, but for a
//! sum of floats: +0.0 is added to the first element. A sum with +0.0 in it is never -0.0, so one is enough.

use super::fold_prims::{WritePrims, combined, wins};
use super::geometry::{Access, CACHE_LINE, LONG_LOOP, dense_row, is_dense};
use super::kernel::{FOLD_LANES, Inst, Kernel, Kind, Level, Operand, Source};
use crate::fusion::starts::MOST_UNROLLED;
use crate::ir::Combine;
use crate::ir::scalar::{Lit, Prim, Reg, Ty, eval};
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// Most operands and outputs of an unrolled kernel.
const MAX_ACCESSES: usize = 160;
/// Most instructions of an unrolled kernel.
const MAX_INSTS: usize = 768;
/// Most bytes between the elements of neighbouring rows: with more, a vector touches many cache lines.
const MAX_STRIDE: usize = 16;
/// The same for up to [`FEW_ELEMENTS`], and where the rows that are neighbours are fewer than [`MIN_LANES`] and vectors
/// run along another loop. The alternative is a row at a time (`(m * v[:, None]).sum(-1)` of matrices with 3 rows and 3
/// columns).
const MAX_STRIDE_OF_FEW: usize = CACHE_LINE;
/// To load so few elements one by one takes less time than to start a row (traces of matrices with 4 rows).
const FEW_ELEMENTS: usize = 8;
/// Fewest rows along the vector loop.
const MIN_LANES: usize = 4;
/// Fewest rows along the vector loop whose elements are columns that are transposed.
const MIN_COLUMN_LANES: usize = 16;
/// Numbers of elements that are columns: more take longer to transpose than to start a row.
const COLUMNS: RangeInclusive<usize> = 2..=32;
/// Fewest elements of columns, in all rows. On fewer, the code takes many times longer to make than to run, and it is
/// made anew for another number of columns: for each step of a decoder that attends to one more position.
const MIN_COLUMN_ELEMENTS: usize = 1 << 13;
/// Most bytes from a row of columns to the next one.
const MAX_COLUMN_STRIDE: usize = 4 * CACHE_LINE;

/// An unrolled kernel, and how it accesses memory.
pub(super) struct Unrolled {
    pub(super) kernel: Kernel,
    /// One per operand of the new kernel.
    pub(super) accesses: Vec<Access>,
    /// The operand of the old kernel that each operand stands for.
    pub(super) origins: Vec<usize>,
    /// The output of the old kernel that each output is a part of, and how it is accessed.
    pub(super) written: Vec<(usize, Access)>,
    /// The sizes of the row loops. One that was unrolled has size 1.
    pub(super) rows: SmallVec<[usize; 6]>,
}

/// Unrolls the folds of a kernel over `rows` and `inner` loops, where that pays.
pub(super) fn unroll(
    kernel: &Kernel,
    rows: &[usize],
    inner: &[usize],
    operands: &[Access],
    outputs: &[Access],
) -> Option<Unrolled> {
    let count: usize = inner.iter().product();
    let pays = kernel.has_folds()
        && (2..=MOST_UNROLLED).contains(&count)
        && is_small(kernel, count)
        && gathers_once_per_row(kernel)
        && (has_row_outputs(kernel) && is_smooth(kernel, count, rows, operands, outputs)
            || has_columns(kernel, rows, inner, operands, outputs));
    if !pays {
        return None;
    }
    let mut unroller = Unroller {
        old: kernel,
        count,
        operands,
        new: Kernel::default(),
        accesses: Vec::new(),
        origins: Vec::new(),
        interned: HashMap::new(),
    };
    let mut sizes: SmallVec<[usize; 6]> = rows.into();
    let few = few_rows(rows, &outputs[0]).map_or((0, 1), |at| (at, std::mem::replace(&mut sizes[at], 1)));
    let mut written = Vec::new();
    for row in 0..few.1 {
        let place = |element| Place { row: (few.0, row), inner: indices(inner, element) };
        let places: Vec<Place> = (0..count).map(place).collect();
        let values = unroller.row(&places);
        for (slot, (output, access)) in kernel.outputs.iter().zip(outputs).enumerate() {
            let is_row = kernel.inst(output.value).level == Level::Row;
            for (nth, place) in places.iter().enumerate().take(if is_row { 1 } else { count }) {
                let value = copy_at(&values[output.value.index()], nth);
                unroller.new.outputs.push(super::kernel::Output { value, ..*output });
                written.push((slot, place.of(access)));
            }
        }
    }
    let Unroller { new, accesses, origins, .. } = unroller;
    // A result that does not depend on memory would be a value per row, which pointwise kernels do not write.
    let varies = new.outputs.iter().all(|output| new.inst(output.value).level == Level::Full);
    let is_small = accesses.len() + written.len() <= MAX_ACCESSES;
    (varies && is_small).then_some(Unrolled { kernel: new, accesses, origins, written, rows: sizes })
}

/// Whether what is gathered is gathered once per row, such as the value at the index of a maximum. Machine code gathers
/// no narrow elements.
fn gathers_once_per_row(kernel: &Kernel) -> bool {
    kernel.insts.iter().all(|inst| match inst.kind {
        Kind::Gather(slot) => inst.level == Level::Row && kernel.operands[slot as usize].dtype.size() >= 4,
        Kind::Load(_) | Kind::Lit(_) | Kind::Prim(_) | Kind::Func(_) | Kind::Fold(_) => true,
    })
}

/// Whether every output has one value per row.
fn has_row_outputs(kernel: &Kernel) -> bool {
    kernel.outputs.iter().all(|output| kernel.inst(output.value).level == Level::Row)
}

/// Whether the inner elements of each row are neighbours, and vectors along the rows can read and write them as
/// columns of a matrix. What is read or written once per row must be near.
fn has_columns(kernel: &Kernel, rows: &[usize], inner: &[usize], operands: &[Access], outputs: &[Access]) -> bool {
    let Some(lanes) = outputs.first().and_then(|first| last_loop(rows, first)) else { return false };
    let count: usize = inner.iter().product();
    let is_near = |access: &Access, bytes: usize| {
        let (stride, is_still) = (access.rows[lanes], access.inner.iter().all(|&stride| stride == 0));
        let is_wide = is_dense(inner.iter().zip(&access.inner), bytes) && stride <= MAX_COLUMN_STRIDE;
        stride == 0 || is_still && (stride == bytes || bytes >= 4 && stride <= MAX_STRIDE) || is_wide
    };
    // A divergence of rows of 30 elements, with two logarithms of each, takes longer unrolled.
    let weight: usize = kernel.insts.iter().filter(|inst| inst.level == Level::Full).map(Inst::weight).sum();
    let read = operands.iter().zip(&kernel.operands);
    let written = outputs.iter().zip(&kernel.outputs);
    COLUMNS.contains(&count)
        && weight * count <= MAX_INSTS
        && rows[lanes] >= MIN_COLUMN_LANES
        && rows.iter().product::<usize>().saturating_mul(count) >= MIN_COLUMN_ELEMENTS
        && read.clone().any(|(access, _)| access.rows[lanes] != 0)
        && read.clone().all(|(access, operand)| operand.source == Source::Iota || is_near(access, operand.dtype.size()))
        && written.clone().all(|(access, output)| access.rows[lanes] != 0 && is_near(access, output.dtype.size()))
}

/// The last row loop, if it is so short that its rows are unrolled, too, and vectors run along another one.
fn few_rows(rows: &[usize], first: &Access) -> Option<usize> {
    last_loop(rows, first).filter(|&at| rows[at] < MIN_LANES && rows.iter().any(|&size| size >= LONG_LOOP))
}

/// The row loops that stay, ordered as [`Geometry::plan`](super::geometry::Geometry::plan) does.
fn ordered(rows: &[usize], first: &Access) -> SmallVec<[usize; 6]> {
    let mut order: SmallVec<[usize; 6]> = (0..rows.len()).filter(|&at| rows[at] != 1).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(first.rows[at]));
    order
}

fn last_loop(rows: &[usize], first: &Access) -> Option<usize> {
    ordered(rows, first).last().copied()
}

/// Whether the copies of instructions stay few.
fn is_small(kernel: &Kernel, count: usize) -> bool {
    let n_full = kernel.insts.iter().filter(|inst| inst.level == Level::Full).count();
    kernel.insts.len() + n_full * count <= MAX_INSTS
}

/// Whether vectors along the rows read and write neighbours.
fn is_smooth(kernel: &Kernel, count: usize, rows: &[usize], operands: &[Access], outputs: &[Access]) -> bool {
    let Some(first) = outputs.first() else { return false };
    let order = ordered(rows, first);
    let Some(&last) = order.last() else { return false };
    let is_short = rows[last] < MIN_LANES;
    let longer = order.iter().rev().copied().find(|&at| rows[at] >= LONG_LOOP);
    let Some(lanes) = (if is_short { longer } else { Some(last) }) else { return false };
    let max_stride = if is_short || count <= FEW_ELEMENTS { MAX_STRIDE_OF_FEW } else { MAX_STRIDE };
    let is_near = |(access, operand): (&Access, &Operand)| {
        let (stride, bytes) = (access.rows[lanes], operand.dtype.size());
        // Machine code reads narrow elements only where they are neighbours.
        let most = if bytes < 4 { bytes } else { max_stride };
        operand.source == Source::Iota || stride == 0 || stride == bytes || stride <= most
    };
    let moves = operands.iter().any(|access| access.rows[lanes] != 0);
    if moves && first.rows[lanes] <= CACHE_LINE && operands.iter().zip(&kernel.operands).all(is_near) {
        return true;
    }
    if is_short {
        return false;
    }
    // Each operand becomes several, so one of them is enough for `dense_row`.
    let sizes: SmallVec<[usize; 6]> = order.iter().map(|&at| rows[at]).collect();
    let strides: Vec<SmallVec<[usize; 6]>> =
        operands.iter().map(|access| order.iter().map(|&at| access.rows[at]).collect()).collect();
    let each = kernel.operands.iter().zip(&strides).flat_map(|(operand, strides)| [(operand, &strides[..]); 2]);
    first.rows[lanes] <= CACHE_LINE && dense_row(&sizes, &each.collect::<Vec<_>>()).is_some()
}

/// An inner element of a row that is unrolled.
struct Place {
    /// A row loop, and the position along it.
    row: (usize, usize),
    /// The index along each inner loop.
    inner: SmallVec<[usize; 4]>,
}

impl Place {
    /// The access of this element in every other row.
    fn of(&self, access: &Access) -> Access {
        let strides = self.inner.iter().zip(&access.inner).chain([(&self.row.1, &access.rows[self.row.0])]);
        let offset: i64 = strides.map(|(&at, &stride)| at as i64 * stride as i64).sum();
        Access { base: access.base + offset, inner: SmallVec::new(), ..access.clone() }
    }
}

/// The index of an inner element along each loop, row-major.
fn indices(inner: &[usize], element: usize) -> SmallVec<[usize; 4]> {
    let mut rest = element;
    let mut indices: SmallVec<[usize; 4]> = inner
        .iter()
        .rev()
        .map(|&size| {
            let at = rest % size;
            rest /= size;
            at
        })
        .collect();
    indices.reverse();
    indices
}

/// A value at each inner element, or one value for all of them.
type Copies = SmallVec<[Reg; 1]>;

fn copy_at(copies: &Copies, nth: usize) -> Reg {
    copies.get(nth).copied().unwrap_or(copies[0])
}

struct Unroller<'a> {
    old: &'a Kernel,
    /// The number of inner elements.
    count: usize,
    operands: &'a [Access],
    new: Kernel,
    accesses: Vec<Access>,
    origins: Vec<usize>,
    interned: HashMap<Inst, Reg>,
}

impl Unroller<'_> {
    fn emit(&mut self, kind: Kind, args: &[Reg], ty: Ty) -> Reg {
        if let Some(lit) = self.evaluated(kind, args) {
            return self.emit(Kind::Lit(lit), &[], lit.ty);
        }
        let level = match kind {
            Kind::Lit(_) => Level::Row,
            Kind::Load(_) | Kind::Gather(_) | Kind::Fold(_) => Level::Full,
            Kind::Prim(_) | Kind::Func(_) => {
                args.iter().map(|&reg| self.new.inst(reg).level).max().unwrap_or(Level::Row)
            }
        };
        let inst = Inst { kind, args: SmallVec::from_slice(args), ty, level };
        if let Some(&reg) = self.interned.get(&inst) {
            return reg;
        }
        let reg = Reg::new(self.new.insts.len());
        self.interned.insert(inst.clone(), reg);
        self.new.insts.push(inst);
        reg
    }

    /// The value of a call on literals.
    fn evaluated(&self, kind: Kind, args: &[Reg]) -> Option<Lit> {
        let literal = |&reg: &Reg| match self.new.inst(reg).kind {
            Kind::Lit(lit) => Some(lit),
            Kind::Load(_) | Kind::Gather(_) | Kind::Prim(_) | Kind::Func(_) | Kind::Fold(_) => None,
        };
        let lits = || args.iter().map(literal).collect::<Option<SmallVec<[Lit; 3]>>>();
        match kind {
            Kind::Prim(prim) => lits().map(|lits| eval::prim(prim, &lits)),
            Kind::Func(func) => lits().map(|lits| eval::func(func, &lits)),
            Kind::Lit(_) | Kind::Load(_) | Kind::Gather(_) | Kind::Fold(_) => None,
        }
    }

    /// The values of all instructions at the inner elements of a row.
    fn row(&mut self, places: &[Place]) -> Vec<Copies> {
        let old = self.old;
        let mut values: Vec<Copies> = Vec::with_capacity(old.insts.len());
        for inst in &old.insts {
            let value = match (inst.kind, inst.level) {
                (Kind::Fold(combine), _) => smallvec![self.fold(combine, &inst.args, &values)],
                (_, Level::Row) => smallvec![self.copy(inst, &values, &places[0], 0)],
                (_, Level::Full) => {
                    places.iter().enumerate().map(|(nth, place)| self.copy(inst, &values, place, nth)).collect()
                }
            };
            values.push(value);
        }
        values
    }

    /// An instruction at one inner element. A value per row is the same at all of them.
    fn copy(&mut self, inst: &Inst, values: &[Copies], place: &Place, nth: usize) -> Reg {
        let args: SmallVec<[Reg; 3]> = inst.args.iter().map(|arg| copy_at(&values[arg.index()], nth)).collect();
        match inst.kind {
            Kind::Load(slot) => self.load(slot as usize, place, inst.ty),
            Kind::Gather(slot) => {
                let at = self.operand(slot as usize, place.of(&self.operands[slot as usize]));
                self.emit(Kind::Gather(at), &args, inst.ty)
            }
            Kind::Lit(_) | Kind::Prim(_) | Kind::Func(_) | Kind::Fold(_) => self.emit(inst.kind, &args, inst.ty),
        }
    }

    /// The element of an operand at one inner element. A position that no row moves is a number.
    fn load(&mut self, slot: usize, place: &Place, ty: Ty) -> Reg {
        let access = place.of(&self.operands[slot]);
        let operand = self.old.operands[slot];
        if operand.source == Source::Iota && access.rows.iter().all(|&stride| stride == 0) {
            return self.emit(Kind::Lit(Lit::i64(access.base)), &[], Ty::I64);
        }
        let at = self.operand(slot, access);
        self.emit(Kind::Load(at), &[], ty)
    }

    /// The new operand for an access of an old one.
    fn operand(&mut self, slot: usize, access: Access) -> u16 {
        let known = |&at: &usize| self.origins[at] == slot && self.accesses[at] == access;
        let at = (0..self.accesses.len()).find(known).unwrap_or_else(|| {
            self.new.operands.push(self.old.operands[slot]);
            self.accesses.push(access);
            self.origins.push(slot);
            self.accesses.len() - 1
        });
        at as u16
    }

    /// All inner elements of a value combined, in the order of a fold.
    fn fold(&mut self, combine: Combine, args: &[Reg], values: &[Copies]) -> Reg {
        let copies = |arg: Reg| (0..self.count).map(move |nth| copy_at(&values[arg.index()], nth));
        let mut partial: SmallVec<[Reg; FOLD_LANES]> = copies(args[0]).collect();
        if combine.is_index() {
            let indices: SmallVec<[Reg; FOLD_LANES]> = copies(args[1]).collect();
            return self.best_index(combine, &partial, &indices);
        }
        let ty = self.new.inst(partial[0]).ty;
        if combine == Combine::Sum && ty.is_float() {
            let zero = self.emit(Kind::Lit(Lit::number(ty, 0.0)), &[], ty);
            partial[0] = self.prim(Prim::Add, &[partial[0], zero]);
        }
        for later in FOLD_LANES..partial.len() {
            partial[later % FOLD_LANES] = combined(self, combine, partial[later % FOLD_LANES], partial[later]);
        }
        partial.truncate(FOLD_LANES);
        let mut half = FOLD_LANES / 2;
        while half > 0 {
            for upper in half..partial.len() {
                partial[upper - half] = combined(self, combine, partial[upper - half], partial[upper]);
            }
            partial.truncate(half);
            half /= 2;
        }
        partial[0]
    }

    /// The index of the best value, as [`super::fold::IndexFold`] says. A NaN beats all else, and the first of equal
    /// values stays. So the order of comparisons does not matter.
    fn best_index(&mut self, combine: Combine, values: &[Reg], indices: &[Reg]) -> Reg {
        let (mut best, mut index) = (values[0], indices[0]);
        for (&value, &own) in values.iter().zip(indices).skip(1) {
            let wins = wins(self, combine, best, value);
            best = self.prim(Prim::Select, &[wins, value, best]);
            index = self.prim(Prim::Select, &[wins, own, index]);
        }
        index
    }
}

impl WritePrims for Unroller<'_> {
    fn prim(&mut self, prim: Prim, args: &[Reg]) -> Reg {
        let ty = self.new.result(prim, args);
        self.emit(Kind::Prim(prim), args, ty)
    }

    fn is_float(&self, value: Reg) -> bool {
        self.new.inst(value).ty.is_float()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::geometry::{Geometry, LoopOrder};
    use crate::codegen::interp;
    use crate::codegen::kernel::Output;
    use crate::codegen::launch::Faults;
    use crate::ir::DType;

    const ROWS: usize = 7;

    fn inst(kind: Kind, args: &[Reg], ty: Ty, level: Level) -> Inst {
        Inst { kind, args: args.into(), ty, level }
    }

    fn access(row: usize, inner: usize) -> Access {
        Access { rows: smallvec![row], inner: smallvec![inner], ..Access::default() }
    }

    /// A fold over windows of elements that neighbours share, with the numbers of the elements for index folds.
    fn folded(combine: Combine, dtype: DType) -> Kernel {
        let ty = dtype.compute();
        let mut insts = vec![inst(Kind::Load(0), &[], ty, Level::Full), inst(Kind::Load(1), &[], Ty::I64, Level::Full)];
        let (args, result) = if combine.is_index() { (&[0, 1][..], Ty::I64) } else { (&[0][..], ty) };
        let args: Vec<Reg> = args.iter().map(|&arg| Reg::new(arg)).collect();
        insts.push(inst(Kind::Fold(combine), &args, result, Level::Row));
        let operand = |dtype, source| Operand { dtype, source };
        Kernel {
            operands: vec![operand(dtype, Source::Memory), operand(DType::I64, Source::Iota)],
            insts,
            outputs: vec![Output { dtype: result.dtype(), value: Reg::new(2) }],
        }
    }

    /// The bytes of a kernel's output over rows of `count` elements, as they are and unrolled.
    fn both(kernel: &Kernel, count: usize, memory: &[u8]) -> [Vec<u8>; 2] {
        let (bytes, width) = (kernel.operands[0].dtype.size(), kernel.outputs[0].dtype.size());
        let operands = vec![access(bytes, bytes), access(0, 1)];
        let outputs = vec![access(width, 0)];
        let unrolled =
            unroll(kernel, &[ROWS], &[count], &operands, &outputs).expect("short folds of neighbours are unrolled");
        let flat = unrolled.written.iter().map(|(_, access)| access.clone()).collect();
        assert_eq!(unrolled.kernel.verify(), Ok(()));
        let memories: Vec<&[u8]> = vec![memory; unrolled.accesses.len()];
        let geometries = [
            Geometry::plan(kernel, &[ROWS], &[count], operands, outputs.clone(), LoopOrder::OfMemory),
            Geometry::plan(&unrolled.kernel, &[ROWS], &[], unrolled.accesses, flat, LoopOrder::OfMemory),
        ];
        let run = |kernel: &Kernel, geometry: &Geometry, operands: &[&[u8]]| {
            let mut out = vec![0; ROWS * width];
            interp::run(kernel, geometry, operands, &mut [&mut out], &Faults::new());
            out
        };
        [run(kernel, &geometries[0], &[memory, &[]]), run(&unrolled.kernel, &geometries[1], &memories)]
    }

    #[test]
    fn unrolled_folds_have_the_bits_of_folds() {
        let numbers = [0.1, -0.0, 0.0, 1e30, -1e30, f32::NAN, 3.5, f32::INFINITY, -0.0, 3.5, f32::NEG_INFINITY, 1e-40];
        let memory: Vec<u8> = numbers.iter().cycle().take(96).flat_map(|x| x.to_le_bytes()).collect();
        let arithmetic = [Combine::Sum, Combine::Prod, Combine::Max, Combine::Min, Combine::ArgMax, Combine::ArgMin];
        for combine in arithmetic {
            for dtype in [DType::F32, DType::I32, DType::U8, DType::BF16] {
                for count in 2..=MOST_UNROLLED {
                    let [folded, unrolled] = both(&folded(combine, dtype), count, &memory);
                    assert_eq!(folded, unrolled, "{combine:?} of {count} {dtype}");
                }
            }
        }
        for combine in [Combine::Any, Combine::All] {
            let [folded, unrolled] = both(&folded(combine, DType::Bool), 5, &[0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
            assert_eq!(folded, unrolled, "{combine:?}");
        }
    }

    #[test]
    fn long_folds_and_rows_that_are_far_apart_stay() {
        let kernel = folded(Combine::Sum, DType::F32);
        let is_unrolled = |count: usize, row: usize| {
            unroll(&kernel, &[ROWS], &[count], &[access(row, 4), access(0, 1)], &[access(4, 0)]).is_some()
        };
        assert!(
            is_unrolled(64, 4)
                && is_unrolled(4, 16)
                && !is_unrolled(65, 4)
                && is_unrolled(8, 64)
                && !is_unrolled(8, 68)
                && !is_unrolled(9, 36)
                && !is_unrolled(1, 4)
        );
    }

    #[test]
    fn many_rows_of_neighbours_become_columns() {
        let kernel = folded(Combine::Sum, DType::F32);
        let is_unrolled = |n_rows: usize, count: usize| {
            let operands = [access(4 * count, 4), access(0, 1)];
            unroll(&kernel, &[n_rows], &[count], &operands, &[access(4, 0)]).is_some()
        };
        assert!(is_unrolled(1000, 12) && is_unrolled(300, 32));
        assert!(!is_unrolled(600, 12) && !is_unrolled(300, 33), "few elements, or many columns");
    }
}
