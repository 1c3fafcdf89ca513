//! Rows of several inner loops by two kernels: one folds a row, and one computes its elements from the results.
//!
//! What is folded is often contiguous in memory, where all inner loops are one. But elements may be computed with
//! operands that are not, such as the weight and the bias of a group norm, which have a number per channel. [`packed`]
//! would copy them for each row. Here the second kernel has the last inner loop alone, along which they have one
//! number. A row stays in a core's second cache in between.
//!
//! A compiled group norm of 16 by 64 by 56 by 56 in 8 groups takes 0.7 of the time
//! (`scripts/sweep.sh --only group_norm`).
//!
//! [`packed`]: super::packed

#![allow(unsafe_code, reason = "calls code for rows of a launch, whose results it keeps")]

use super::code::Code;
use super::launch::{self, LaunchShape, row_offset};
use super::{Compile, Manner};
use crate::codegen::geometry::{Access, Class, Geometry, Lanes, is_dense};
use crate::codegen::kernel::{Inst, Kernel, Kind, Level, Operand, Output, Source};
use crate::codegen::launch::{Faults, Part, Pointers};
use crate::error::Reason;
use crate::ir::scalar::Reg;
use smallvec::{SmallVec, smallvec};

/// Fewest elements of a row for which calling two kernels pays.
const LEAST_ELEMENTS: usize = 1024;
/// Fewest elements of the last inner loop, which is a row of the second kernel.
const LEAST_LANES: usize = 32;

/// A kernel with folds, as two.
pub(super) struct FoldThenMap {
    /// Writes the outputs per row, and the values per row that elements are computed from.
    fold: Half,
    /// Reads these values first, and writes the outputs per element.
    map: Half,
    n_values: usize,
}

/// The geometries of both kernels for one row, which is at the base of each access.
pub(super) struct Places {
    folds: Geometry,
    maps: Geometry,
}

/// One of the two kernels, compiled.
struct Half {
    piece: Piece,
    classes: SmallVec<[Class; 8]>,
    code: Code,
    shape: LaunchShape,
}

/// One of the two kernels.
struct Piece {
    kernel: Kernel,
    /// The operands of the whole kernel that it reads, after the values.
    operands: Vec<usize>,
    /// The outputs of the whole kernel that it writes, before the values.
    outputs: Vec<usize>,
}

/// Whether a launch may gain: its rows are long, and have elements that are written.
pub(super) fn is_worth(kernel: &Kernel, geometry: &Geometry) -> bool {
    let is_long = geometry.inner.last().is_some_and(|&lanes| lanes >= LEAST_LANES);
    is_long
        && geometry.inner.len() > 1
        && geometry.n_inner() >= LEAST_ELEMENTS
        && !kernel.has_gathers()
        && kernel.outputs.iter().any(|output| kernel.inst(output.value).level == Level::Full)
}

impl FoldThenMap {
    /// Compiles a valid `kernel` with folds for launches like this one.
    ///
    /// # Errors
    /// The reason why no code is made for one of the two.
    pub(super) fn new(compile: Compile, kernel: &Kernel, geometry: &Geometry) -> Result<FoldThenMap, Reason> {
        let values = values(kernel);
        let n_values = values.len();
        let fold = Half::new(compile, Piece::folding(kernel, &values), |piece| piece.folds_of(geometry))?;
        let map = Half::new(compile, Piece::mapping(kernel, &values), |piece| piece.map_of(geometry, n_values))?;
        Ok(FoldThenMap { fold, map, n_values })
    }

    /// How both run on a row of a launch, if they can: what is folded is contiguous, and the classes are those of the
    /// code.
    pub(super) fn places(&self, kernel: &Kernel, geometry: &Geometry) -> Option<Places> {
        let is_still = |access: &Access| access.inner.iter().all(|&stride| stride == 0);
        let is_row = |&slot: &usize| {
            let (operand, access) = (&kernel.operands[slot], &geometry.operands[slot]);
            let is_dense = is_dense(geometry.inner.iter().zip(&access.inner), operand.dtype.size());
            is_still(access) || (is_dense && operand.source == Source::Memory)
        };
        let (fold, map) = (&self.fold, &self.map);
        let is_folded = fold.piece.operands.iter().all(is_row)
            && fold.piece.outputs.iter().all(|&slot| is_still(&geometry.outputs[slot]));
        let (folds, maps) = (fold.piece.folds_of(geometry), map.piece.map_of(geometry, self.n_values));
        let fits = |half: &Half, place: &Geometry| place.classes(&half.piece.kernel) == half.classes;
        (is_folded && fits(fold, &folds) && fits(map, &maps)).then_some(Places { folds, maps })
    }

    /// Runs whole rows.
    ///
    /// # Safety
    /// As for [`super::NativeProgram::run`]. The places are those of the launch.
    pub(super) unsafe fn run(
        &self,
        places: Places,
        geometry: &Geometry,
        pointers: Pointers<'_>,
        part: &Part,
        faults: &Faults,
    ) {
        let FoldThenMap { fold, map, n_values } = self;
        let mut values: SmallVec<[u64; 8]> = smallvec![0; *n_values];
        let values: SmallVec<[*mut u8; 8]> = values.iter_mut().map(|value| (&raw mut *value).cast()).collect();
        let read = |slots: &[usize]| slots.iter().map(|&slot| pointers.operands[slot]).collect::<Vec<_>>();
        let written = |slots: &[usize]| slots.iter().map(|&slot| pointers.outputs[slot]).collect::<Vec<_>>();
        let fold_reads = read(&fold.piece.operands);
        let fold_writes = [written(&fold.piece.outputs), values.to_vec()].concat();
        let map_reads = [values.iter().map(|value| value.cast_const()).collect(), read(&map.piece.operands)].concat();
        let map_writes = written(&map.piece.outputs);
        let Places { mut folds, mut maps } = places;
        let n_mapped = maps.rows.iter().product();
        for row in part.outer.clone() {
            let base = |access: &Access| row_offset(&geometry.rows, access, row) as i64;
            for (place, piece, n_before) in [(&mut folds, &fold.piece, 0), (&mut maps, &map.piece, *n_values)] {
                for (access, &slot) in place.operands[n_before..].iter_mut().zip(&piece.operands) {
                    access.base = base(&geometry.operands[slot]);
                }
                for (access, &slot) in place.outputs.iter_mut().zip(&piece.outputs) {
                    access.base = base(&geometry.outputs[slot]);
                }
            }
            // SAFETY: the row belongs to the part, for which the caller vouches, and the values to this call. What is
            // folded is one row of memory, as `places` found.
            unsafe {
                let reads = Pointers { operands: &fold_reads, outputs: &fold_writes };
                let one = Part { outer: 0..1, lanes: 0..folds.n_inner() };
                launch::run(&fold.code, &fold.shape, &folds, reads, &one, faults);
                let reads = Pointers { operands: &map_reads, outputs: &map_writes };
                let all = Part { outer: 0..n_mapped, lanes: 0..maps.n_inner() };
                launch::run(&map.code, &map.shape, &maps, reads, &all, faults);
            }
        }
    }
}

impl Half {
    fn new(compile: Compile, piece: Piece, place: impl Fn(&Piece) -> Geometry) -> Result<Half, Reason> {
        let classes = place(&piece).classes(&piece.kernel);
        let (code, shape) = compile(&piece.kernel, &classes, Manner::USUAL)?;
        Ok(Half { piece, classes, code, shape })
    }
}

impl Piece {
    /// The kernel of the folds, which writes `values` last.
    fn folding(kernel: &Kernel, values: &[Reg]) -> Piece {
        let mut extract = Extract::new(kernel, None);
        extract.write(Level::Row);
        for &value in values {
            let copy = extract.copy(value);
            extract.piece.kernel.outputs.push(Output { dtype: kernel.inst(value).ty.dtype(), value: copy });
        }
        extract.piece
    }

    /// The kernel of the elements, which reads `values` first.
    fn mapping(kernel: &Kernel, values: &[Reg]) -> Piece {
        let mut extract = Extract::new(kernel, Some(values));
        extract.write(Level::Full);
        extract.piece
    }

    /// The geometry of one row of folds, which is at the base of each access.
    fn folds_of(&self, geometry: &Geometry) -> Geometry {
        let n_inner = geometry.n_inner();
        let access = |stride| Access { rows: smallvec![0], inner: smallvec![stride], base: 0, gather: None };
        let operand = |&slot: &usize| access(geometry.operands[slot].inner.last().copied().unwrap_or(0));
        Geometry {
            rows: smallvec![1],
            inner: smallvec![n_inner],
            operands: self.operands.iter().map(operand).collect(),
            outputs: self.kernel.outputs.iter().map(|_| access(0)).collect(),
            lanes: Lanes::Inner,
        }
    }

    /// The geometry of the elements of one row, which is at the base of each access: all inner loops but the last are
    /// loops over rows.
    fn map_of(&self, geometry: &Geometry, n_values: usize) -> Geometry {
        let (lanes, rows) = geometry.inner.split_last().expect("a row of a fold has inner loops");
        let access = |strides: &[usize]| {
            let (lane, rows) = strides.split_last().expect("an access has a stride per loop");
            Access { rows: rows.into(), inner: smallvec![*lane], base: 0, gather: None }
        };
        let value = access(&vec![0; geometry.inner.len()]);
        let operands = self.operands.iter().map(|&slot| access(&geometry.operands[slot].inner));
        Geometry {
            rows: rows.into(),
            inner: smallvec![*lanes],
            operands: std::iter::repeat_n(value, n_values).chain(operands).collect(),
            outputs: self.outputs.iter().map(|&slot| access(&geometry.outputs[slot].inner)).collect(),
            lanes: Lanes::Inner,
        }
    }
}

/// The values per row that elements are computed from, and that folds are needed for.
fn values(kernel: &Kernel) -> Vec<Reg> {
    let passes = kernel.passes();
    let is_value = |index: usize| kernel.insts[index].level == Level::Row && passes[index] > 0;
    let mut is_needed = vec![false; kernel.insts.len()];
    let elements = kernel.outputs.iter().map(|output| output.value.index());
    elements.filter(|&index| kernel.insts[index].level == Level::Full).for_each(|index| is_needed[index] = true);
    for index in (0..is_needed.len()).rev() {
        if is_needed[index] && !is_value(index) {
            kernel.insts[index].args.iter().for_each(|arg| is_needed[arg.index()] = true);
        }
    }
    (0..is_needed.len()).filter(|&index| is_needed[index] && is_value(index)).map(Reg::new).collect()
}

/// Copies a part of a kernel.
struct Extract<'a> {
    kernel: &'a Kernel,
    piece: Piece,
    /// The copy of each instruction.
    copies: Vec<Option<Reg>>,
    n_given: usize,
    /// Whether the part has no folds.
    is_map: bool,
}

impl<'a> Extract<'a> {
    /// Some values are `given`: they are the first operands of a part without folds.
    fn new(kernel: &'a Kernel, given: Option<&[Reg]>) -> Extract<'a> {
        let (is_map, given) = (given.is_some(), given.unwrap_or_default());
        let mut made = Kernel::default();
        let mut copies = vec![None; kernel.insts.len()];
        for (slot, &value) in given.iter().enumerate() {
            let ty = kernel.inst(value).ty;
            made.operands.push(Operand { dtype: ty.dtype(), source: Source::Memory });
            made.insts.push(Inst { kind: Kind::Load(slot as u16), args: SmallVec::new(), ty, level: Level::Full });
            copies[value.index()] = Some(Reg::new(slot));
        }
        let piece = Piece { kernel: made, operands: Vec::new(), outputs: Vec::new() };
        Extract { kernel, piece, copies, n_given: given.len(), is_map }
    }

    /// Copies the outputs of a level, with all that they need.
    fn write(&mut self, level: Level) {
        for (slot, output) in self.kernel.outputs.iter().enumerate() {
            if self.kernel.inst(output.value).level == level {
                let value = self.copy(output.value);
                self.piece.kernel.outputs.push(Output { dtype: output.dtype, value });
                self.piece.outputs.push(slot);
            }
        }
    }

    /// The copy of an instruction and of all that it needs.
    fn copy(&mut self, root: Reg) -> Reg {
        for reg in self.kernel.needed_by(root, |reg| self.copies[reg.index()].is_some()) {
            self.copies[reg.index()] = Some(self.copy_one(reg));
        }
        self.copied(root)
    }

    fn copied(&self, reg: Reg) -> Reg {
        self.copies[reg.index()].expect("operands precede their users")
    }

    fn copy_one(&mut self, reg: Reg) -> Reg {
        let Inst { kind, args, ty, level } = self.kernel.inst(reg);
        let args: SmallVec<[Reg; 3]> = args.iter().map(|&arg| self.copied(arg)).collect();
        let kind = match *kind {
            Kind::Load(slot) => Kind::Load(self.slot(slot as usize)),
            Kind::Gather(slot) => Kind::Gather(self.slot(slot as usize)),
            Kind::Lit(_) | Kind::Prim(_) | Kind::Func(_) | Kind::Fold(_) => *kind,
        };
        let level = match kind {
            // A kernel without folds has values per element alone, but for literals.
            Kind::Load(_) | Kind::Gather(_) if self.is_map => Level::Full,
            Kind::Prim(_) | Kind::Func(_) if self.is_map => {
                args.iter().map(|&arg| self.piece.kernel.inst(arg).level).max().unwrap_or(Level::Row)
            }
            Kind::Load(_) | Kind::Gather(_) | Kind::Lit(_) | Kind::Prim(_) | Kind::Func(_) | Kind::Fold(_) => *level,
        };
        self.piece.kernel.insts.push(Inst { kind, args, ty: *ty, level });
        Reg::new(self.piece.kernel.insts.len() - 1)
    }

    /// The operand of the piece for one of the whole kernel.
    fn slot(&mut self, slot: usize) -> u16 {
        let known = self.piece.operands.iter().position(|&known| known == slot);
        let at = known.unwrap_or_else(|| {
            self.piece.operands.push(slot);
            self.piece.kernel.operands.push(self.kernel.operands[slot]);
            self.piece.operands.len() - 1
        });
        (self.n_given + at) as u16
    }
}
