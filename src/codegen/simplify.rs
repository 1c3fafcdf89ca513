//! Removes what a kernel need not compute.
//!
//! The bits of outputs do not change. A NaN inside a kernel may lose its canonical form where no output shows it.

use super::kernel::{Inst, Kernel, Kind, Output};
use crate::ir::SideTable;
use crate::ir::scalar::{Lit, NanPayload, Prim, Reg, Ty};
use smallvec::smallvec;

/// The kernel without redundant instructions.
pub(super) fn simplify(kernel: Kernel) -> Kernel {
    without_dead(&with_exact_products(with_raw_extremes(without_idle_canons(kernel))))
}

/// Drops each `canon` of a NaN whose sign and payload reach no output. Every path from it meets a prim that ignores
/// them, or another `canon`.
fn without_idle_canons(kernel: Kernel) -> Kernel {
    let shows = shown_payloads(&kernel);
    let mut out = kernel;
    let mut moved: Vec<Reg> = Vec::with_capacity(out.insts.len());
    for index in 0..out.insts.len() {
        for arg in &mut out.insts[index].args {
            *arg = moved[arg.index()];
        }
        let idle = out.insts[index].kind == Kind::Prim(Prim::Canon) && !shows[Reg::new(index)];
        moved.push(if idle { out.insts[index].args[0] } else { Reg::new(index) });
    }
    for output in &mut out.outputs {
        output.value = moved[output.value.index()];
    }
    out
}

/// Per register, whether an output shows the payload of a NaN in it.
fn shown_payloads(kernel: &Kernel) -> SideTable<Reg, bool> {
    let payload = |inst: &Inst| match inst.kind {
        Kind::Prim(prim) => prim.payload(),
        Kind::Fold(combine) => combine.payload(),
        Kind::Func(_) | Kind::Load(_) | Kind::Gather(_) | Kind::Lit(_) => NanPayload::Hidden,
    };
    let outputs = kernel.outputs.iter().map(|output| output.value);
    NanPayload::shown(outputs, kernel.insts.iter().map(|inst| (payload(inst), inst.args.iter().copied())))
}

/// Rewrites `select(x != x, x, max(x, c))` as `max(c, x)`, and the same with `min`, for a literal `c` that is neither
/// NaN nor zero. The raw maximum gives its second operand for a NaN. Operands that are equal and not zero have equal
/// bits.
fn with_raw_extremes(mut kernel: Kernel) -> Kernel {
    for index in 0..kernel.insts.len() {
        let Some((prim, x, limit)) = guarded_extreme(&kernel, &kernel.insts[index]) else { continue };
        kernel.insts[index].kind = Kind::Prim(prim);
        kernel.insts[index].args = smallvec![limit, x];
    }
    kernel
}

fn guarded_extreme(kernel: &Kernel, select: &Inst) -> Option<(Prim, Reg, Reg)> {
    let (Kind::Prim(Prim::Select), &[is_nan, x, other]) = (select.kind, &select.args[..]) else { return None };
    let (is_nan, other) = (kernel.inst(is_nan), kernel.inst(other));
    let Kind::Prim(prim @ (Prim::Max | Prim::Min)) = other.kind else { return None };
    let limit = other.args[1];
    let Kind::Lit(lit) = kernel.inst(limit).kind else { return None };
    let guards = is_nan.kind == Kind::Prim(Prim::Ne) && is_nan.args[..] == [x, x];
    (guards && other.args[0] == x && is_plain(lit)).then_some((prim, x, limit))
}

/// Whether a literal is a float that equals only its own bits.
fn is_plain(lit: Lit) -> bool {
    let value = match lit.ty {
        Ty::F32 => lit.as_f32() as f64,
        Ty::F64 => lit.as_f64(),
        Ty::Bool | Ty::I32 | Ty::I64 => return false,
    };
    !value.is_nan() && value != 0.0
}

/// Rewrites `a * b + c` in f64 as one fused multiply-add where `a` and `b` were f32. Their product is exact, so the sum
/// alone is rounded, as before.
fn with_exact_products(mut kernel: Kernel) -> Kernel {
    let mut uses = vec![0usize; kernel.insts.len()];
    let all = kernel.insts.iter().flat_map(|inst| inst.args.iter().copied());
    all.chain(kernel.outputs.iter().map(|output| output.value)).for_each(|reg| uses[reg.index()] += 1);
    for index in 0..kernel.insts.len() {
        let (Kind::Prim(Prim::Add), Ty::F64) = (kernel.insts[index].kind, kernel.insts[index].ty) else { continue };
        let &[a, b] = &kernel.insts[index].args[..] else { continue };
        let terms = [(a, b), (b, a)].into_iter().find(|(term, _)| uses[term.index()] == 1 && is_exact(&kernel, *term));
        let Some((product, other)) = terms else { continue };
        let factors = kernel.inst(product).args.clone();
        kernel.insts[index].kind = Kind::Prim(Prim::Fma);
        kernel.insts[index].args = factors.into_iter().chain([other]).collect();
    }
    kernel
}

/// Whether a value is a product in f64 of two that were f32.
fn is_exact(kernel: &Kernel, product: Reg) -> bool {
    let was_narrow = |reg: &Reg| {
        let inst = kernel.inst(*reg);
        inst.kind == Kind::Prim(Prim::Convert(Ty::F64)) && kernel.inst(inst.args[0]).ty == Ty::F32
    };
    let inst = kernel.inst(product);
    inst.kind == Kind::Prim(Prim::Mul) && inst.ty == Ty::F64 && inst.args.iter().all(was_narrow)
}

/// Drops instructions that no output needs.
pub(super) fn without_dead(kernel: &Kernel) -> Kernel {
    let mut live = vec![false; kernel.insts.len()];
    for output in &kernel.outputs {
        live[output.value.index()] = true;
    }
    for (index, inst) in kernel.insts.iter().enumerate().rev() {
        // An unused fold stays: stores were placed for a kernel with folds.
        live[index] |= matches!(inst.kind, Kind::Fold(_));
        if live[index] {
            for arg in &inst.args {
                live[arg.index()] = true;
            }
        }
    }
    let mut out = Kernel { operands: kernel.operands.clone(), ..Kernel::default() };
    let mut moved: Vec<Reg> = Vec::with_capacity(kernel.insts.len());
    for (inst, live) in kernel.insts.iter().zip(live) {
        moved.push(Reg::new(out.insts.len()));
        if live {
            let args = inst.args.iter().map(|reg| moved[reg.index()]).collect();
            out.insts.push(Inst { args, ..inst.clone() });
        }
    }
    out.outputs =
        kernel.outputs.iter().map(|output| Output { value: moved[output.value.index()], ..*output }).collect();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::geometry::LoopOrder;
    use crate::codegen::interp;
    use crate::codegen::kernel::{Level, Operand, Source};
    use crate::codegen::launch::Faults;
    use crate::codegen::{Access, Geometry};
    use crate::ir::DType;

    fn inst(kind: Kind, args: &[usize], ty: Ty, level: Level) -> Inst {
        Inst { kind, args: args.iter().map(|&reg| Reg::new(reg)).collect(), ty, level }
    }

    /// `canon(x + x)` limited by a number as in PyTorch, then negated and made canonical.
    fn limited(prim: Prim, limit: f32) -> Kernel {
        let full = |kind: Kind, args: &[usize]| inst(kind, args, Ty::F32, Level::Full);
        Kernel {
            operands: vec![Operand { dtype: DType::F32, source: Source::Memory }],
            insts: vec![
                full(Kind::Load(0), &[]),
                full(Kind::Prim(Prim::Add), &[0, 0]),
                full(Kind::Prim(Prim::Canon), &[1]),
                inst(Kind::Lit(Lit::f32(limit)), &[], Ty::F32, Level::Row),
                inst(Kind::Prim(Prim::Ne), &[2, 2], Ty::Bool, Level::Full),
                full(Kind::Prim(prim), &[2, 3]),
                full(Kind::Prim(Prim::Select), &[4, 2, 5]),
                full(Kind::Prim(Prim::Neg), &[6]),
                full(Kind::Prim(Prim::Canon), &[7]),
            ],
            outputs: vec![Output { dtype: DType::F32, value: Reg::new(8) }],
        }
    }

    fn results(kernel: &Kernel, values: &[f32]) -> Vec<u32> {
        let access = || Access { inner: smallvec![4], ..Access::default() };
        let geometry = Geometry::plan(
            kernel,
            &[values.len()],
            &[],
            vec![row_of(access())],
            vec![row_of(access())],
            LoopOrder::OfMemory,
        );
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut out = vec![0; bytes.len()];
        interp::run(kernel, &geometry, &[&bytes], &mut [&mut out], &Faults::new());
        out.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes"))).collect()
    }

    /// The access with its stride on the row loop.
    fn row_of(access: Access) -> Access {
        Access { rows: access.inner, inner: smallvec![], ..access }
    }

    #[test]
    fn a_guarded_maximum_is_one_instruction_with_the_same_bits() {
        let nan = f32::from_bits(0xffc0_0123);
        let values = [0.0, -0.0, 0.25, 0.125, -1.0, f32::INFINITY, f32::NEG_INFINITY, nan, f32::NAN];
        for prim in [Prim::Max, Prim::Min] {
            for limit in [0.25, 0.5, -2.0, f32::INFINITY] {
                let simple = simplify(limited(prim, limit));
                assert_eq!(simple.insts.len(), 6, "{simple}");
                assert_eq!(results(&simple, &values), results(&limited(prim, limit), &values), "{simple}");
            }
            for limit in [0.0, -0.0, f32::NAN] {
                let simple = simplify(limited(prim, limit));
                assert!(simple.insts.iter().any(|inst| inst.kind == Kind::Prim(Prim::Select)), "{simple}");
                assert_eq!(results(&simple, &values), results(&limited(prim, limit), &values), "{simple}");
            }
        }
    }

    #[test]
    fn products_of_narrow_numbers_are_added_with_one_rounding() {
        let wide = |kind: Kind, args: &[usize]| inst(kind, args, Ty::F64, Level::Full);
        let narrow = |kind: Kind, args: &[usize]| inst(kind, args, Ty::F32, Level::Full);
        let kernel = Kernel {
            operands: vec![Operand { dtype: DType::F32, source: Source::Memory }],
            insts: vec![
                narrow(Kind::Load(0), &[]),
                wide(Kind::Prim(Prim::Convert(Ty::F64)), &[0]),
                inst(Kind::Lit(Lit::f64(1e-3)), &[], Ty::F64, Level::Row),
                wide(Kind::Prim(Prim::Mul), &[1, 1]),
                wide(Kind::Prim(Prim::Add), &[2, 3]),
                // The factor was never narrow, so this product is rounded.
                wide(Kind::Prim(Prim::Mul), &[4, 1]),
                wide(Kind::Prim(Prim::Add), &[5, 4]),
                narrow(Kind::Prim(Prim::Convert(Ty::F32)), &[6]),
                narrow(Kind::Prim(Prim::Canon), &[7]),
            ],
            outputs: vec![Output { dtype: DType::F32, value: Reg::new(8) }],
        };
        let simple = simplify(kernel.clone());
        let count = |prim: Prim| simple.insts.iter().filter(|inst| inst.kind == Kind::Prim(prim)).count();
        assert_eq!((count(Prim::Fma), count(Prim::Mul), count(Prim::Add)), (1, 1, 1), "{simple}");
        let values = [0.0, -0.0, 1e-45, 1.1, -3e38, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.3, 7e-23];
        assert_eq!(results(&simple, &values), results(&kernel, &values), "{simple}");
    }

    #[test]
    fn a_canon_that_an_output_shows_stays() {
        let mut kernel = limited(Prim::Max, 0.0);
        kernel.outputs.push(Output { dtype: DType::F32, value: Reg::new(6) });
        let simple = simplify(kernel);
        let canons = simple.insts.iter().filter(|inst| inst.kind == Kind::Prim(Prim::Canon)).count();
        assert_eq!(canons, 2, "{simple}");
    }
}
