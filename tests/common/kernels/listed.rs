//! Kernels by name: one per prim, func, pair of dtypes and fold, and one of several passes.

use super::{Builder, Case, Random, buffer, place};
use opfuse::internals::codegen::kernel::{Kernel, Kind, Level, Source};
use opfuse::internals::ir::row::Combine;
use opfuse::internals::ir::scalar::{Func, Lit, Prim, Reg, Ty};
use opfuse::ir::DType;

/// One full load per type, in the order given, contiguous.
pub(crate) fn loads(b: &mut Builder, tys: &[Ty]) -> Vec<Reg> {
    tys.iter().map(|ty| b.load(ty.dtype(), Source::Memory, Level::Full)).collect()
}

/// A kernel per prim and type of its operands.
pub(crate) fn of_prims() -> Vec<(String, Prim, Kernel)> {
    let mut kernels = Vec::new();
    for prim in Prim::all() {
        for ty in Ty::ALL {
            let mut tys = vec![ty; prim.arity()];
            if prim == Prim::Select {
                tys[0] = Ty::Bool;
            }
            if prim.result(&tys).is_none() {
                continue;
            }
            let mut b = Builder::default();
            let args = loads(&mut b, &tys);
            let value = b.prim(prim, &args);
            b.output(b.ty(value).dtype(), value);
            kernels.push((format!("{} of {ty}", prim.name()), prim, b.kernel));
        }
    }
    kernels
}

/// A kernel per func and width.
pub(crate) fn of_funcs() -> Vec<(String, Kernel)> {
    let pairs = Func::ALL.into_iter().flat_map(|func| [Ty::F32, Ty::F64].map(|ty| (func, ty)));
    pairs.map(|(func, ty)| (format!("{} of {ty}", func.name()), of_func(func, ty))).collect()
}

/// A func on operands of one type.
pub(crate) fn of_func(func: Func, ty: Ty) -> Kernel {
    let mut b = Builder::default();
    let args = loads(&mut b, &vec![ty; func.arity()]);
    let value = b.func(func, &args);
    b.output(ty.dtype(), value);
    b.kernel
}

/// A conversion per pair of dtypes.
pub(crate) fn of_dtypes() -> Vec<(String, Kernel)> {
    let pairs = DType::ALL.into_iter().flat_map(|from| DType::ALL.map(|to| (from, to)));
    let kernel = |(from, to): (DType, DType)| {
        let mut b = Builder::default();
        let x = b.load(from, Source::Memory, Level::Full);
        let x = if b.ty(x) == to.compute() { x } else { b.prim(Prim::Convert(to.compute()), &[x]) };
        b.output(to, x);
        (format!("{from} to {to}"), b.kernel)
    };
    pairs.map(kernel).collect()
}

/// Every fold and the dtypes that it is tested on.
pub(crate) fn fold_cases() -> Vec<(Combine, DType)> {
    let numbers = [Combine::Sum, Combine::Prod, Combine::Max, Combine::Min, Combine::ArgMax, Combine::ArgMin];
    let dtypes = [DType::F32, DType::F64, DType::I32, DType::I64, DType::F16, DType::U8];
    let pairs = numbers.into_iter().flat_map(|combine| dtypes.into_iter().map(move |dtype| (combine, dtype)));
    pairs.chain([(Combine::Any, DType::Bool), (Combine::All, DType::Bool)]).collect()
}

pub(crate) fn folded(combine: Combine, dtype: DType) -> Kernel {
    let mut b = Builder::default();
    let x = b.load(dtype, Source::Memory, Level::Full);
    let value = if matches!(combine, Combine::ArgMax | Combine::ArgMin) {
        let index = b.load(DType::I64, Source::Iota, Level::Full);
        b.fold(combine, &[x, index])
    } else {
        b.fold(combine, &[x])
    };
    b.output(b.ty(value).dtype(), value);
    b.kernel
}

/// `(x - mean) / sqrt(var + eps)` and the softmax of it: five passes, one with an expensive value that a later one
/// reads.
pub(crate) fn normalized() -> Kernel {
    let mut b = Builder::default();
    let x = b.load(DType::F32, Source::Memory, Level::Full);
    let sum = b.fold(Combine::Sum, &[x]);
    let scale = b.lit(Lit::f32(1.0 / 1024.0));
    let mean = b.prim(Prim::Mul, &[sum, scale]);
    let centered = b.prim(Prim::Sub, &[x, mean]);
    let square = b.prim(Prim::Mul, &[centered, centered]);
    let variance = b.fold(Combine::Sum, &[square]);
    let eps = b.lit(Lit::f32(1e-5));
    let variance = b.prim(Prim::Add, &[variance, eps]);
    let scale = b.func(Func::Rsqrt, &[variance]);
    let normal = b.prim(Prim::Mul, &[centered, scale]);
    let max = b.fold(Combine::Max, &[normal]);
    let shifted = b.prim(Prim::Sub, &[normal, max]);
    let e = b.func(Func::Exp, &[shifted]);
    let total = b.fold(Combine::Sum, &[e]);
    let soft = b.prim(Prim::Div, &[e, total]);
    b.output(DType::F32, normal);
    b.output(DType::F32, soft);
    b.output(DType::F32, variance);
    b.kernel
}

/// `x * y + z`.
fn product_and_sum(dtype: DType) -> Kernel {
    let mut b = Builder::default();
    let args = loads(&mut b, &[dtype.compute(); 3]);
    let product = b.prim(Prim::Mul, &args[..2]);
    let sum = b.prim(Prim::Add, &[product, args[2]]);
    b.output(dtype, sum);
    b.kernel
}

/// `x * y + z` of matrices of which `x` and `y` are transposed: one with a gap after each line, one without.
pub(crate) fn transposed(dtype: DType, batch: usize, rows: usize, lanes: usize) -> Case {
    let bytes = dtype.size();
    let mut case = place(&mut Random::new(rows as u64), product_and_sum(dtype), &[batch, rows], &[lanes]);
    for (slot, line) in [(0, rows + 3), (1, rows)] {
        let access = &mut case.geometry.operands[slot];
        access.rows = [lanes * line * bytes, bytes].into_iter().collect();
        access.inner = [line * bytes].into_iter().collect();
        access.base = 0;
        case.inputs[slot] = buffer(&mut Random::new(slot as u64), dtype, batch * lanes * line);
    }
    case
}

/// `x * y + z` of matrices of which `x` and `y` have these strides from lane to lane.
pub(crate) fn interleaved(dtype: DType, rows: usize, lanes: usize, apart: [usize; 2]) -> Case {
    let bytes = dtype.size();
    let mut case = place(&mut Random::new(lanes as u64), product_and_sum(dtype), &[rows], &[lanes]);
    for (slot, apart) in apart.into_iter().enumerate() {
        // The last element ends the memory.
        let line = (lanes * apart).saturating_sub(apart - 1);
        let access = &mut case.geometry.operands[slot];
        access.rows = [line * bytes].into_iter().collect();
        access.inner = [apart * bytes].into_iter().collect();
        access.base = 0;
        case.inputs[slot] = buffer(&mut Random::new(slot as u64), dtype, rows * line);
    }
    case
}

/// `x * y` of a matrix and of a strided line that is the same in every row; with `folds`, summed over each row.
pub(crate) fn gathered(dtype: DType, rows: &[usize], lanes: usize, folds: bool) -> Case {
    let mut b = Builder::default();
    let args = loads(&mut b, &[dtype.compute(); 2]);
    let mut value = b.prim(Prim::Mul, &args);
    if folds {
        value = b.fold(Combine::Sum, &[value]);
    }
    b.output(dtype, value);
    let mut case = place(&mut Random::new(lanes as u64), b.kernel, rows, &[lanes]);
    let stride = 3 * dtype.size();
    let access = &mut case.geometry.operands[1];
    access.rows.iter_mut().for_each(|row| *row = 0);
    access.inner = [stride].into_iter().collect();
    // The last elements come first: strides may be negative.
    if lanes.is_multiple_of(2) {
        access.inner[0] = stride.wrapping_neg();
        access.base = (lanes.saturating_sub(1) * stride) as i64;
    } else {
        access.base = dtype.size() as i64;
    }
    case.inputs[1] = buffer(&mut Random::new(2), dtype, 3 * lanes + 1);
    case
}

/// A fold of zeros of both signs and perhaps NaN, which returns its operand's bits: NaNs are not made canonical.
pub(crate) fn zeros_and_nan(combine: Combine, seed: u64) -> Case {
    let mut kernel = folded(combine, DType::F32);
    let fold = kernel.insts.iter().position(|inst| matches!(inst.kind, Kind::Fold(_))).expect("a fold");
    kernel.outputs[0].value = Reg::new(fold);
    let mut random = Random::new(seed);
    let n = 1 + random.below(100);
    let mut case = place(&mut random, kernel, &[2], &[n]);
    let with_nan = random.below(2) == 0;
    for bytes in case.inputs[0].chunks_exact_mut(4) {
        let nan = 0x7fc0_0000 | (random.next() as u32 & 0x803f_ffff);
        let bits = if with_nan && random.below(3) == 0 { nan } else { (random.next() as u32) & 0x8000_0000 };
        bytes.copy_from_slice(&bits.to_le_bytes());
    }
    case
}

/// A fold of f32 values, most of which equal its initial value; some are zeros of both signs or NaN.
pub(crate) fn worst_and_others(combine: Combine, seed: u64) -> Case {
    let mut random = Random::new(seed);
    let n = 1 + random.below(100);
    let mut case = place(&mut random, folded(combine, DType::F32), &[3], &[n]);
    let others = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, -0.0, 1.0];
    let (worst, n_others) = (others[random.below(2)], random.below(others.len() + 1));
    for bytes in case.inputs[0].chunks_exact_mut(4) {
        let value = if random.below(8) == 0 { others[..n_others].get(random.below(6)) } else { None };
        bytes.copy_from_slice(&value.unwrap_or(&worst).to_le_bytes());
    }
    case
}
