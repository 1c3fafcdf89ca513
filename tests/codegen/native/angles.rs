//! Loops for small angles, which leave elements with huge ones to a loop for all angles.

use super::case::Checked;
use crate::kernels::listed::{loads, of_func};
use crate::kernels::{Builder, Case, Random, place};
use opfuse::internals::codegen::geometry::{Access, Class, Geometry, LoopOrder};
use opfuse::internals::codegen::kernel::Kernel;
use opfuse::internals::codegen::launch::{Faults, Part, Pointers};
use opfuse::internals::codegen::x64;
use opfuse::internals::ir::scalar::{Func, Lit, Prim, Ty};

/// Angles that take the long reduction, or none.
const HUGE: [f64; 6] = [1e9, -3e12, 3e38, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];

fn element(ty: Ty, value: f64) -> Vec<u8> {
    if ty == Ty::F64 { value.to_le_bytes().to_vec() } else { (value as f32).to_le_bytes().to_vec() }
}

/// Small angles in all operands, but for huge ones at these positions of the first.
fn fill(case: &mut Case, ty: Ty, positions: &[usize], seed: u64) {
    let mut random = Random::new(seed);
    for (operand, bytes) in case.inputs.iter_mut().enumerate() {
        for (at, bytes) in bytes.chunks_exact_mut(ty.size()).enumerate() {
            let small = (random.below(20_001) as f64 - 10_000.0) * 1e-3;
            let is_huge = operand == 0 && positions.contains(&at);
            bytes.copy_from_slice(&element(ty, if is_huge { random.pick(&HUGE) } else { small }));
        }
    }
}

/// `sin(x + a) * cos(x) / a + sin(a)`. In some layouts `a` is the same for all elements of a row.
fn waves(ty: Ty) -> Kernel {
    let mut b = Builder::default();
    let [x, a] = loads(&mut b, &[ty, ty])[..] else { unreachable!("two are loaded") };
    let shifted = b.prim(Prim::Add, &[x, a]);
    let (sin, cos) = (b.func(Func::Sin, &[shifted]), b.func(Func::Cos, &[x]));
    let of_other = b.func(Func::Sin, &[a]);
    let product = b.prim(Prim::Mul, &[sin, cos]);
    let ratio = b.prim(Prim::Div, &[product, a]);
    let sum = b.prim(Prim::Add, &[ratio, of_other]);
    b.output(ty.dtype(), sum);
    b.output(ty.dtype(), cos);
    b.kernel
}

#[test]
fn huge_angles_have_the_interpreters_bits_wherever_they_stand() {
    for ty in [Ty::F32, Ty::F64] {
        let funcs = [Func::Sin, Func::Cos, Func::Tan].map(|func| (func.name().to_owned(), of_func(func, ty)));
        for (name, kernel) in funcs.into_iter().chain([("waves".to_owned(), waves(ty))]) {
            for (n, positions) in [
                (1, &[0][..]),
                (15, &[14]),
                (16, &[]),
                (63, &[3, 40]),
                (500, &[]),
                (500, &[0]),
                (500, &[499]),
                (1000, &[17, 18, 300, 700, 999]),
                (2000, &[255, 256, 257, 511, 1024]),
            ] {
                for seed in 0..6 {
                    let mut case = place(&mut Random::new(seed), kernel.clone(), &[3], &[n]);
                    fill(&mut case, ty, positions, seed);
                    case.check_all(&format!("{name} of {n} {ty}, huge at {positions:?}, seed {seed}"), 1);
                }
            }
        }
    }
}

/// The elements of an iteration that meets a huge angle are computed again, so none of them may be stored before.
#[test]
fn an_output_over_its_operand_is_written_once() {
    for (ty, n) in [(Ty::F32, 1000), (Ty::F64, 333)] {
        for func in [Func::Sin, Func::Cos, Func::Tan] {
            let mut b = Builder::default();
            let x = loads(&mut b, &[ty])[0];
            let value = b.func(func, &[x]);
            // A division in a long body would stagger the copies.
            let seven = b.lit(if ty == Ty::F64 { Lit::f64(7.0) } else { Lit::f32(7.0) });
            let ratio = b.prim(Prim::Div, &[seven, value]);
            let sum = b.prim(Prim::Add, &[ratio, x]);
            b.output(ty.dtype(), sum);
            let access = || Access { rows: [ty.size()].into_iter().collect(), ..Access::default() };
            let order = LoopOrder::OfMemory;
            let geometry = Geometry::plan(&b.kernel, &[n], &[], vec![access()], vec![access()], order);
            let memory = vec![0; n * ty.size()];
            let mut case = Case { kernel: b.kernel, geometry, inputs: vec![memory.clone()], outputs: vec![memory] };
            fill(&mut case, ty, &[31, 64, 200, 332], 9);
            let expected = case.expected().0;
            for (tier, program) in case.programs() {
                let mut memory = case.inputs[0].clone();
                let start = memory.as_mut_ptr();
                let pointers = Pointers { operands: &[start.cast_const()], outputs: &[start] };
                let part = Part { outer: 0..1, lanes: 0..n };
                // SAFETY: operand and output have the same elements of the same memory, which is borrowed here alone.
                unsafe { program.run(&case.geometry, pointers, &part, &Faults::new()) };
                assert!(memory == expected[0], "{} of {ty} in place, {tier}", func.name());
            }
        }
    }
}

/// Only the loop for all angles reduces huge ones.
#[test]
fn the_usual_loop_is_short() {
    for level in x64::Level::ALL {
        let text = x64::emit_text(level, &of_func(Func::Sin, Ty::F32), &[Class::Contiguous; 2]).expect("expressible");
        let (usual, all) = text.split_once("  tail\n").and_then(|(_, rest)| rest.split_once("  tail\n")).expect("two");
        let count = |text: &str| text.lines().count();
        assert!(usual.contains("leave unless all of") && !all.contains("leave unless"), "{text}");
        assert!(2 * count(usual) < count(all), "{text}");
    }
}
