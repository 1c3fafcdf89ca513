//! The slow, obvious meaning of a kernel on a geometry. Every tier is judged against it.
//!
//! Elements are computed one at a time through [`crate::ir::scalar::eval`], and every register is kept for a whole
//! row. The vector loop of the geometry plays no part. Memory is byte slices, so a wrong geometry panics instead of
//! reading out of bounds.

use super::fold::{self, FoldValue};
use super::geometry::{Access, Geometry};
use super::kernel::{Inst, Kernel, Kind, Level, Source};
use super::launch::Faults;
use crate::ir::DType;
use crate::ir::scalar::half_bits::{narrow_bf16, narrow_f16, widen_bf16, widen_f16};
use crate::ir::scalar::{Lit, Reg, Ty, eval};

/// An observer of every element that a kernel accesses: the operand or output, and the byte where the element starts.
pub trait Watch {
    /// An element of an operand is read.
    fn read(&self, slot: usize, at: usize);
    /// An element of an output is written.
    fn written(&self, slot: usize, at: usize);
}

/// No observer.
impl Watch for () {
    fn read(&self, _: usize, _: usize) {}
    fn written(&self, _: usize, _: usize) {}
}

/// Runs the whole kernel. Slices start where the pointers of a launch point; an iota's slice is empty.
///
/// # Panics
/// If an access leaves its slice, or the kernel is not valid.
pub fn run(kernel: &Kernel, geometry: &Geometry, operands: &[&[u8]], outputs: &mut [&mut [u8]], faults: &Faults) {
    run_watched(kernel, geometry, operands, outputs, faults, &());
}

/// Like [`run`], with an observer.
///
/// # Panics
/// As [`run`].
pub fn run_watched(
    kernel: &Kernel,
    geometry: &Geometry,
    operands: &[&[u8]],
    outputs: &mut [&mut [u8]],
    faults: &Faults,
    watch: &impl Watch,
) {
    let inner = positions(&geometry.inner);
    for row in positions(&geometry.rows) {
        let mut values: Vec<Vec<Lit>> = Vec::with_capacity(kernel.insts.len());
        for inst in &kernel.insts {
            let row = Row { kernel, geometry, operands, faults, watch, row: &row, inner: &inner, values: &values };
            let value = row.evaluate(inst);
            values.push(value);
        }
        for (slot, output) in kernel.outputs.iter().enumerate() {
            let access = &geometry.outputs[slot];
            // A row value is written once per row even if the row is empty.
            let once = kernel.has_folds() && access.inner.iter().all(|&stride| stride == 0);
            let is_row = kernel.inst(output.value).level == Level::Row;
            let origin = vec![vec![0; geometry.inner.len()]];
            for (index, at) in if once && is_row { &origin } else { &inner }.iter().enumerate() {
                let value = &values[output.value.index()];
                let value = if is_row { value[0] } else { value[index] };
                let at = address(access, &row, at) as usize;
                watch.written(slot, at);
                store(outputs[slot], at, output.dtype, value);
            }
        }
    }
}

struct Row<'a, W> {
    kernel: &'a Kernel,
    geometry: &'a Geometry,
    operands: &'a [&'a [u8]],
    faults: &'a Faults,
    watch: &'a W,
    row: &'a [usize],
    inner: &'a [Vec<usize>],
    values: &'a [Vec<Lit>],
}

impl<W: Watch> Row<'_, W> {
    /// One value for a row register, one per inner element for a full one.
    fn evaluate(&self, inst: &Inst) -> Vec<Lit> {
        if let Kind::Fold(combine) = inst.kind {
            let ty = self.kernel.inst(inst.args[0]).ty;
            let elements: Vec<FoldValue> = (0..self.inner.len())
                .map(|index| FoldValue {
                    bits: self.arg(inst.args[0], index).bits,
                    index: inst.args.get(1).map_or(0, |&reg| self.arg(reg, index).as_i64()),
                })
                .collect();
            return vec![Lit { ty: inst.ty, bits: fold::sequence(combine, ty, &elements).result(combine) }];
        }
        match inst.level {
            Level::Row => vec![self.element(inst, 0, &vec![0; self.geometry.inner.len()])],
            Level::Full => (0..self.inner.len()).map(|index| self.element(inst, index, &self.inner[index])).collect(),
        }
    }

    fn arg(&self, reg: Reg, index: usize) -> Lit {
        let values = &self.values[reg.index()];
        if self.kernel.inst(reg).level == Level::Row { values[0] } else { values[index] }
    }

    fn element(&self, inst: &Inst, index: usize, at: &[usize]) -> Lit {
        let args: Vec<Lit> = inst.args.iter().map(|&reg| self.arg(reg, index)).collect();
        match inst.kind {
            Kind::Lit(lit) => lit,
            Kind::Prim(prim) => {
                if prim.needs_divisor(inst.ty) && args[1].bits == 0 {
                    self.faults.record_zero_divisor();
                }
                eval::prim(prim, &args)
            }
            Kind::Func(func) => eval::func(func, &args),
            Kind::Load(slot) => self.read(slot, address(&self.geometry.operands[slot as usize], self.row, at)),
            Kind::Gather(slot) => {
                let access = &self.geometry.operands[slot as usize];
                let (size, stride) = access.gather.expect("a gathered operand has its dimension in the geometry");
                let index = args[0].as_i64();
                if index < 0 || index >= size as i64 {
                    self.faults.record(index);
                    return Lit { ty: inst.ty, bits: 0 };
                }
                self.read(slot, address(access, self.row, at).wrapping_add(index.wrapping_mul(stride as i64)))
            }
            Kind::Fold(_) => unreachable!("folds are not evaluated by element"),
        }
    }

    fn read(&self, slot: u16, address: i64) -> Lit {
        let operand = &self.kernel.operands[slot as usize];
        match operand.source {
            Source::Iota => Lit::i64(address),
            Source::Memory => {
                self.watch.read(slot as usize, address as usize);
                load(self.operands[slot as usize], address as usize, operand.dtype)
            }
        }
    }
}

/// Base plus position times strides.
fn address(access: &Access, row: &[usize], inner: &[usize]) -> i64 {
    let at = row.iter().zip(&access.rows).chain(inner.iter().zip(&access.inner));
    at.fold(access.base, |sum, (&index, &stride)| sum.wrapping_add((index as i64).wrapping_mul(stride as i64)))
}

/// All positions of nested loops, outermost slowest.
fn positions(sizes: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &size in sizes {
        all = all.iter().flat_map(|at| (0..size).map(move |index| [&at[..], &[index]].concat())).collect();
    }
    all
}

/// The element of `dtype` at a byte offset, widened to its computation type.
pub fn load(bytes: &[u8], at: usize, dtype: DType) -> Lit {
    let mut raw = [0; 8];
    raw[..dtype.size()].copy_from_slice(&bytes[at..at + dtype.size()]);
    let bits = u64::from_le_bytes(raw);
    match dtype {
        DType::Bool => Lit::bool(bits != 0),
        DType::U8 => Lit::i32(bits as u8 as i32),
        DType::I8 => Lit::i32(bits as i8 as i32),
        DType::I16 => Lit::i32(bits as i16 as i32),
        DType::F16 => Lit::f32(widen_f16(bits as u16)),
        DType::BF16 => Lit::f32(widen_bf16(bits as u16)),
        DType::I32 => Lit { ty: Ty::I32, bits },
        DType::I64 => Lit { ty: Ty::I64, bits },
        DType::F32 => Lit { ty: Ty::F32, bits },
        DType::F64 => Lit { ty: Ty::F64, bits },
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
}

/// Writes a value that was rounded to `dtype` before.
pub fn store(bytes: &mut [u8], at: usize, dtype: DType, value: Lit) {
    let bits = match dtype {
        DType::F16 => narrow_f16(value.as_f32()) as u64,
        DType::BF16 => narrow_bf16(value.as_f32()) as u64,
        DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F32 | DType::F64 => {
            value.bits
        }
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    };
    bytes[at..at + dtype.size()].copy_from_slice(&bits.to_le_bytes()[..dtype.size()]);
}
