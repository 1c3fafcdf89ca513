//! Writes by index, and index tensors of several dims as one index.

use super::lines::{Lines, More};
use super::{MAX_DIMS, Of, RoutineArray, RoutinePlan, name};
use crate::error::{Reason, TierLimit};
use crate::ir::attrs::{Attributes, FlatIndex, Reducer, ScatterReduce};
use crate::ir::routine::Write;
use crate::ir::{Attr, DType, Layout};
use half::{bf16, f16};

impl RoutinePlan {
    pub(super) fn scatter(
        &mut self,
        write: Write,
        along: usize,
        attrs: &[Attr],
        operands: &[RoutineArray<'_>],
        result: RoutineArray<'_>,
    ) -> Result<(), Reason> {
        let [(dtype, into), (index_dtype, index), (_, source)] = *operands else {
            return Err(TierLimit::WriteOperands { operands: operands.len() }.into());
        };
        let has_writes = index.numel() > 0;
        // 16-bit floats are accumulated in f32 and rounded once.
        let collects = has_writes && write != Write::Overwrite && matches!(dtype, DType::F16 | DType::BF16);
        let wide = if collects { DType::F32 } else { dtype };
        let dense = Layout::contiguous(&into.sizes);
        let (to, target) = if collects { (Of::Scratch, (DType::F32, &dense)) } else { (Of::Result, result) };
        if collects {
            self.scratch_bytes = into.numel() * wide.size();
        }
        let all = Lines::new(&into.sizes, None);
        let copy = format!("copy<{}, {}, {}>", name(dtype), name(wide), all.n_dims());
        self.add(copy, &all, all.argument(&[(Of::Operand(0), operands[0]), (to, target)], 0, &[]))?;
        if !has_writes {
            return Ok(());
        }
        if index.rank() == 0 || index.rank() != into.rank() || index.rank() != source.rank() {
            return Err(TierLimit::WriteWithoutDims.into());
        }
        let lines = Lines::new(&index.sizes, Some(along));
        let size = into.sizes[along];
        let mut counts = dense.clone();
        let mut arrays = vec![(Of::Operand(1), operands[1]), (Of::Operand(2), operands[2]), (to, target)];
        let types = format!("{}, {}, {}", name(index_dtype), name(dtype), name(wide));
        self.can_fault = true;
        match write {
            Write::Overwrite | Write::Add => {
                lines.check_length(lines.length)?;
                let how = if write == Write::Add { "Adding" } else { "Overwriting" };
                let call = format!("scatter<{types}, {how}, {}>", lines.n_dims());
                self.add(call, &lines, lines.argument(&arrays, size as u64, &[]))?;
            }
            Write::Reduce => {
                let ScatterReduce { reduce, include_self, .. } = ScatterReduce::read(attrs);
                let (how, start) = fold(reduce, wide);
                let is_mean = reduce == Some(Reducer::Mean);
                lines.check_length(if is_mean { lines.length.max(size) } else { lines.length })?;
                if is_mean {
                    counts.offset = self.scratch_bytes.div_ceil(DType::I64.size());
                    self.scratch_bytes = (counts.offset + into.numel()) * DType::I64.size();
                    arrays.push((Of::Scratch, (DType::I64, &counts)));
                }
                let call = format!("scatter_reduce<{types}, {how}, {include_self}, {is_mean}, {}>", lines.n_dims());
                self.add(call, &lines, lines.argument(&arrays, size as u64, &[More::Word(start)]))?;
            }
        }
        if collects {
            let settle = format!("settle<{}, {}>", name(dtype), all.n_dims());
            let arrays = [(Of::Scratch, target), (Of::Operand(0), operands[0]), (Of::Result, result)];
            self.add(settle, &all, all.argument(&arrays, 0, &[]))?;
        }
        Ok(())
    }

    pub(super) fn flat_index(
        &mut self,
        attrs: &[Attr],
        operands: &[RoutineArray<'_>],
        result: RoutineArray<'_>,
    ) -> Result<(), Reason> {
        let (n, dtype) = (operands.len(), operands[0].0);
        if n > MAX_DIMS || operands.iter().any(|&(other, _)| other != dtype) {
            return Err(TierLimit::IndexTensors { tensors: n, limit: MAX_DIMS }.into());
        }
        let lines = Lines::new(&operands[0].1.sizes, None);
        let arrays: Vec<(Of, RoutineArray<'_>)> =
            (0..n).map(|at| (Of::Operand(at), operands[at])).chain([(Of::Result, result)]).collect();
        let FlatIndex { sizes, wrap } = FlatIndex::read(attrs);
        let sizes: Vec<More> = sizes.iter().map(|&size| More::Word(size as u64)).collect();
        let call = format!("flat_index<{}, {n}, {wrap}, {}>", name(dtype), lines.n_dims());
        self.can_fault = true;
        self.add(call, &lines, lines.argument(&arrays, 0, &sizes))
    }
}

/// The function that a reducer folds elements with, and the bits of its initial element in a dtype.
fn fold(reduce: Option<Reducer>, dtype: DType) -> (&'static str, u64) {
    let [one, least, greatest] = ends(dtype);
    match reduce {
        Some(Reducer::Prod) => ("Multiplying", one),
        Some(Reducer::Amax) => ("Most", least),
        Some(Reducer::Amin) => ("Fewest", greatest),
        Some(Reducer::Sum | Reducer::Mean) | None => ("Adding", 0),
    }
}

/// The bits of one, of the least element, and of the greatest element.
fn ends(dtype: DType) -> [u64; 3] {
    match dtype {
        DType::Bool => [1, 0, 1],
        DType::U8 => [1, 0, u8::MAX.into()],
        DType::I8 => [1, i8::MIN, i8::MAX].map(|x| (x as u8).into()),
        DType::I16 => [1, i16::MIN, i16::MAX].map(|x| (x as u16).into()),
        DType::I32 => [1, i32::MIN, i32::MAX].map(|x| (x as u32).into()),
        DType::I64 => [1, i64::MIN, i64::MAX].map(|x| x as u64),
        DType::F16 => [f16::ONE, f16::NEG_INFINITY, f16::INFINITY].map(|x| x.to_bits().into()),
        DType::BF16 => [bf16::ONE, bf16::NEG_INFINITY, bf16::INFINITY].map(|x| x.to_bits().into()),
        DType::F32 => [1.0, f32::NEG_INFINITY, f32::INFINITY].map(|x| x.to_bits().into()),
        DType::F64 => [1.0, f64::NEG_INFINITY, f64::INFINITY].map(f64::to_bits),
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
}
