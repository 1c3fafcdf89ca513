//! Random kernels: every prim, func, dtype and fold, a few passes deep.

use super::{Builder, Case, Random, element, place};
use opfuse::internals::codegen::kernel::{Kernel, Level, Source};
use opfuse::internals::ir::row::Combine;
use opfuse::internals::ir::scalar::{Func, Lit, Prim, Reg, Ty};
use opfuse::ir::DType;

fn random_lit(random: &mut Random, ty: Ty) -> Lit {
    let mut bytes = Vec::new();
    element(random, ty.dtype(), &mut bytes);
    bytes.resize(8, 0);
    Lit { ty, bits: u64::from_le_bytes(bytes.try_into().expect("eight bytes")) }
}

/// A reg of that type, by preference an existing one.
fn operand(random: &mut Random, b: &mut Builder, ty: Ty, folds: bool) -> Reg {
    let known: Vec<Reg> = (0..b.kernel.insts.len()).map(Reg::new).filter(|&reg| b.ty(reg) == ty).collect();
    if !known.is_empty() && random.below(8) > 0 {
        // Recent ones, so that kernels grow deep.
        let from = if random.below(2) == 0 { known.len().saturating_sub(3) } else { 0 };
        return known[from + random.below(known.len() - from)];
    }
    let numbers: Vec<Reg> = (0..b.kernel.insts.len())
        .map(Reg::new)
        .filter(|&reg| folds || b.kernel.inst(reg).level == Level::Full)
        .collect();
    if random.below(3) == 0 || numbers.is_empty() {
        let lit = random_lit(random, ty);
        return b.lit(lit);
    }
    let from = random.pick(&numbers);
    b.prim(Prim::Convert(ty), &[from])
}

fn random_kernel(random: &mut Random, folds: bool) -> Kernel {
    let mut b = Builder::default();
    for _ in 0..1 + random.below(4) {
        let level = if folds && random.below(4) == 0 { Level::Row } else { Level::Full };
        let iota = random.below(8) == 0;
        let dtype = if iota { DType::I64 } else { random.pick(&DType::ALL) };
        b.load(dtype, if iota { Source::Iota } else { Source::Memory }, level);
    }
    b.load(DType::F32, Source::Memory, Level::Full);
    let prims: Vec<Prim> = Prim::all().filter(|prim| !prim.is_by_element()).collect();
    for _ in 0..1 + random.below(14) {
        if folds && random.below(5) == 0 {
            random_fold(random, &mut b);
            continue;
        }
        if random.below(6) == 0 {
            let func = random.pick(&Func::ALL);
            let ty = random.pick(&[Ty::F32, Ty::F32, Ty::F64]);
            let args: Vec<Reg> = (0..func.arity()).map(|_| operand(random, &mut b, ty, folds)).collect();
            if folds || b.level(&args) == Level::Full {
                b.func(func, &args);
            }
            continue;
        }
        let prim = random.pick(&prims);
        let ty = random.pick(&Ty::ALL);
        let mut tys = vec![ty; prim.arity()];
        if prim == Prim::Select {
            tys[0] = Ty::Bool;
        }
        if prim.result(&tys).is_some() {
            let args: Vec<Reg> = tys.iter().map(|&ty| operand(random, &mut b, ty, folds)).collect();
            if folds || b.level(&args) == Level::Full {
                b.prim(prim, &args);
            }
        }
    }
    if folds {
        random_fold(random, &mut b);
        let last = Reg::new(b.kernel.insts.len() - 1);
        let dtype =
            random.pick(&DType::ALL.into_iter().filter(|dtype| dtype.compute() == b.ty(last)).collect::<Vec<_>>());
        b.output(dtype, last);
    }
    for _ in 0..1 + random.below(3) {
        let n = b.kernel.insts.len();
        let value = Reg::new(n - 1 - random.below(n.min(6)));
        let dtype =
            random.pick(&DType::ALL.into_iter().filter(|dtype| dtype.compute() == b.ty(value)).collect::<Vec<_>>());
        if folds || b.kernel.inst(value).level == Level::Full || dtype.rounding().is_none() {
            b.output(dtype, value);
        }
    }
    if b.kernel.outputs.is_empty() {
        let full = b.kernel.insts.iter().rposition(|inst| inst.level == Level::Full).expect("a load is full");
        let value = Reg::new(full);
        b.output(b.ty(value).dtype(), value);
    }
    b.kernel
}

fn random_fold(random: &mut Random, b: &mut Builder) {
    let full: Vec<Reg> =
        (0..b.kernel.insts.len()).map(Reg::new).filter(|&reg| b.kernel.inst(reg).level == Level::Full).collect();
    let value = random.pick(&full);
    let index = full.iter().copied().find(|&reg| b.ty(reg) == Ty::I64);
    if b.ty(value) == Ty::Bool {
        let combine = random.pick(&[Combine::Any, Combine::All]);
        b.fold(combine, &[value]);
        return;
    }
    let combine =
        random.pick(&[Combine::Sum, Combine::Prod, Combine::Max, Combine::Min, Combine::ArgMax, Combine::ArgMin]);
    match (combine, index) {
        (Combine::ArgMax | Combine::ArgMin, Some(index)) => b.fold(combine, &[value, index]),
        (Combine::ArgMax | Combine::ArgMin, None) => {
            let index = b.prim(Prim::Convert(Ty::I64), &[value]);
            b.fold(combine, &[value, index])
        }
        _ => b.fold(combine, &[value]),
    };
}

pub(crate) fn random_case(seed: u64) -> Case {
    let mut random = Random::new(seed);
    let folds = random.below(2) == 0;
    let kernel = random_kernel(&mut random, folds);
    let n_rows = random.below(3);
    let rows: Vec<usize> = (0..n_rows).map(|_| 1 + random.below(3)).collect();
    let several = folds && random.below(6) == 0;
    let inner = if several { vec![1 + random.below(4), random.below(20)] } else { vec![random.below(71)] };
    place(&mut random, kernel, &rows, &inner)
}
