//! What the x64 tier writes for small kernels, before registers are chosen: at each level, the loop and its tail.

use crate::case::Builder;
use crate::loads;
use expect_test::{Expect, expect};
use opfuse::codegen::geometry::Class;
use opfuse::codegen::kernel::{Kernel, Level as Loop, Source};
use opfuse::codegen::x64::{self, Level};
use opfuse::ir::scalar::{Prim, Ty};
use opfuse::ir::{Combine, DType};

fn check(level: Level, kernel: &Kernel, expected: &Expect) {
    let classes = vec![Class::Contiguous; kernel.operands.len() + kernel.outputs.len()];
    let text = x64::emit_text(level, kernel, &classes).expect("it is expressible");
    expected.assert_eq(&text);
}

/// `where(a < b, a * b + 1, b)`: a bool, an fma with a constant, a blend.
fn chosen() -> Kernel {
    let mut b = Builder::default();
    let args = loads(&mut b, &[Ty::F32, Ty::F32]);
    let less = b.prim(Prim::Lt, &args);
    let one = b.lit(opfuse::ir::scalar::Lit::f32(1.0));
    let value = b.push(opfuse::codegen::kernel::Kind::Prim(Prim::Fma), &[args[0], args[1], one], Ty::F32, Loop::Full);
    let chosen = b.prim(Prim::Select, &[less, value, args[1]]);
    b.output(DType::F32, chosen);
    b.kernel
}

/// A sum of bf16: narrow elements, partial results.
fn summed() -> Kernel {
    let mut b = Builder::default();
    let x = b.load(DType::BF16, Source::Memory, Loop::Full);
    let sum = b.fold(Combine::Sum, &[x]);
    b.output(DType::F32, sum);
    b.kernel
}

#[test]
fn a_choice_for_avx512() {
    check(Level::Avx512, &chosen(), &expect![[r#""#]]);
}

#[test]
fn a_choice_for_avx2() {
    check(Level::Avx2, &chosen(), &expect![[r#""#]]);
}

#[test]
fn a_sum_for_avx2() {
    check(Level::Avx2, &summed(), &expect![[r#""#]]);
}
