//! What the x64 tier writes for small kernels, before registers are chosen: at each level, the loop and its tail.

use crate::kernels::Builder;
use crate::kernels::listed::loads;
use expect_test::{Expect, expect};
use opfuse::internals::codegen::geometry::Class;
use opfuse::internals::codegen::kernel::{Kernel, Level as Loop, Source};
use opfuse::internals::codegen::x64;
use opfuse::internals::codegen::x64::Level;
use opfuse::internals::ir::row::Combine;
use opfuse::internals::ir::scalar::{Prim, Ty};
use opfuse::ir::DType;

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
    let one = b.lit(opfuse::internals::ir::scalar::Lit::f32(1.0));
    let value = b.push(
        opfuse::internals::codegen::kernel::Kind::Prim(Prim::Fma),
        &[args[0], args[1], one],
        Ty::F32,
        Loop::Full,
    );
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
    check(
        Level::Avx512,
        &chosen(),
        &expect![[r#"
            avx512
              loop
                v8 = vcmpps [row0 + 4 i], [row1 + 4 i], 17
                v9 = vcmpps [row0 + 4 i + 64], [row1 + 4 i + 64], 17
                v10 = vcmpps [row0 + 4 i + 128], [row1 + 4 i + 128], 17
                v11 = vcmpps [row0 + 4 i + 192], [row1 + 4 i + 192], 17
                v13 = vfmaddps [row0 + 4 i], [row1 + 4 i], c0
                v14 = vfmaddps [row0 + 4 i + 64], [row1 + 4 i + 64], c0
                v15 = vfmaddps [row0 + 4 i + 128], [row1 + 4 i + 128], c0
                v16 = vfmaddps [row0 + 4 i + 192], [row1 + 4 i + 192], c0
                v17{v8} = vpblendmd [row1 + 4 i], v13
                v18{v9} = vpblendmd [row1 + 4 i + 64], v14
                v19{v10} = vpblendmd [row1 + 4 i + 128], v15
                v20{v11} = vpblendmd [row1 + 4 i + 192], v16
                v21 = vcmpps v17, v17, 3
                v26{v21} = vpblendmd v17, c1
                v22 = vcmpps v18, v18, 3
                v27{v22} = vpblendmd v18, c1
                v23 = vcmpps v19, v19, 3
                v28{v23} = vpblendmd v19, c1
                v24 = vcmpps v20, v20, 3
                v29{v24} = vpblendmd v20, c1
                vmovups v26, [row2 + 4 i]
                vmovups v27, [row2 + 4 i + 64]
                vmovups v28, [row2 + 4 i + 128]
                vmovups v29, [row2 + 4 i + 192]
              loop
                v2 = vcmpps [row0 + 4 i], [row1 + 4 i], 17
                v4 = vfmaddps [row0 + 4 i], [row1 + 4 i], c0
                v5{v2} = vpblendmd [row1 + 4 i], v4
                v6 = vcmpps v5, v5, 3
                v8{v6} = vpblendmd v5, c1
                vmovups v8, [row2 + 4 i]
              tail
                v2{frame[32]}{z} = vmovups [row0 + 4 i]
                v3{frame[32]}{z} = vmovups [row1 + 4 i]
                v4 = vcmpps v2, v3, 17
                v6 = vfmaddps v2, v3, c0
                v7{v4} = vpblendmd v3, v6
                v8 = vcmpps v7, v7, 3
                v10{v8} = vpblendmd v7, c1
                vmovups v10, [row2 + 4 i] {frame[32]}
        "#]],
    );
}

#[test]
fn a_choice_for_avx2() {
    check(
        Level::Avx2,
        &chosen(),
        &expect![[r#"
            avx2
              loop
                v8 = vcmpps [row0 + 4 i], [row1 + 4 i], 17
                v9 = vcmpps [row0 + 4 i + 32], [row1 + 4 i + 32], 17
                v10 = vcmpps [row0 + 4 i + 64], [row1 + 4 i + 64], 17
                v11 = vcmpps [row0 + 4 i + 96], [row1 + 4 i + 96], 17
                v13 = vfmaddps [row0 + 4 i], [row1 + 4 i], c2
                v14 = vfmaddps [row0 + 4 i + 32], [row1 + 4 i + 32], c2
                v15 = vfmaddps [row0 + 4 i + 64], [row1 + 4 i + 64], c2
                v16 = vfmaddps [row0 + 4 i + 96], [row1 + 4 i + 96], c2
                v17 = vblendvps [row1 + 4 i], v13, v8
                v18 = vblendvps [row1 + 4 i + 32], v14, v9
                v19 = vblendvps [row1 + 4 i + 64], v15, v10
                v20 = vblendvps [row1 + 4 i + 96], v16, v11
                v21 = vcmpps v17, v17, 3
                v26 = vblendvps v17, c3, v21
                v22 = vcmpps v18, v18, 3
                v27 = vblendvps v18, c3, v22
                v23 = vcmpps v19, v19, 3
                v28 = vblendvps v19, c3, v23
                v24 = vcmpps v20, v20, 3
                v29 = vblendvps v20, c3, v24
                vmovups v26, [row2 + 4 i]
                vmovups v27, [row2 + 4 i + 32]
                vmovups v28, [row2 + 4 i + 64]
                vmovups v29, [row2 + 4 i + 96]
              loop
                v2 = vcmpps [row0 + 4 i], [row1 + 4 i], 17
                v4 = vfmaddps [row0 + 4 i], [row1 + 4 i], c2
                v5 = vblendvps [row1 + 4 i], v4, v2
                v6 = vcmpps v5, v5, 3
                v8 = vblendvps v5, c3, v6
                vmovups v8, [row2 + 4 i]
              tail
                v0 = vpbroadcastd [frame + 32]
                v2 = vpcmpgtd v0, c1
                v3 = vpmaskmovd v2, [row0 + 4 i]
                v4 = vpmaskmovd v2, [row1 + 4 i]
                v5 = vcmpps v3, v4, 17
                v7 = vfmaddps v3, v4, c2
                v8 = vblendvps v4, v7, v5
                v9 = vcmpps v8, v8, 3
                v11 = vblendvps v8, c3, v9
                vpmaskmovd v11, v2, [row2 + 4 i]
        "#]],
    );
}

#[test]
fn a_sum_for_avx2() {
    check(
        Level::Avx2,
        &summed(),
        &expect![[r#"
            avx2
              partial results
                acc15 = vmovdqa c1
                acc14 = vmovdqa c1
                acc13 = vmovdqa c1
                acc12 = vmovdqa c1
              loop
                v0 = vpmovzxwd [row0 + 2 i]
                v4 = vpslld v0, 16
                v1 = vpmovzxwd [row0 + 2 i + 16]
                v5 = vpslld v1, 16
                v2 = vpmovzxwd [row0 + 2 i + 32]
                v6 = vpslld v2, 16
                v3 = vpmovzxwd [row0 + 2 i + 48]
                v7 = vpslld v3, 16
                acc15 = vaddps acc15, v4
                acc14 = vaddps acc14, v5
                acc13 = vaddps acc13, v6
                acc12 = vaddps acc12, v7
              tail
                v0 = vpbroadcastd [frame + 32]
                v2 = vpcmpgtd v0, c3
                v4 = vpcmpgtd v0, c4
                v6 = vpcmpgtd v0, c5
                v8 = vpcmpgtd v0, c6
                copy in 2 bytes of each that is left, i + 0 [row0 + 2 i]
                v9 = vpmovzxwd [frame + 64]
                v13 = vpslld v9, 16
                copy in 2 bytes of each that is left, i + 8 [row0 + 2 i + 16]
                v10 = vpmovzxwd [frame + 64]
                v14 = vpslld v10, 16
                copy in 2 bytes of each that is left, i + 16 [row0 + 2 i + 32]
                v11 = vpmovzxwd [frame + 64]
                v15 = vpslld v11, 16
                copy in 2 bytes of each that is left, i + 24 [row0 + 2 i + 48]
                v12 = vpmovzxwd [frame + 64]
                v16 = vpslld v12, 16
                v21 = vaddps acc15, v13
                v25 = vblendvps acc15, v21, v2
                acc15 = vmovdqa v25
                v22 = vaddps acc14, v14
                v26 = vblendvps acc14, v22, v4
                acc14 = vmovdqa v26
                v23 = vaddps acc13, v15
                v27 = vblendvps acc13, v23, v6
                acc13 = vmovdqa v27
                v24 = vaddps acc12, v16
                v28 = vblendvps acc12, v24, v8
                acc12 = vmovdqa v28
              tree
                v4 = vaddps acc15, acc13
                v5 = vaddps acc14, acc12
                v6 = vaddps v4, v5
                v7 = vpermq v6, 14
                v8 = vaddps v6, v7
                v9 = vpshufd v8, 14
                v10 = vaddps v8, v9
                v11 = vpshufd v10, 1
                v12 = vaddps v10, v11
                vmovups v12, [frame + 96]
              row
                v2 = vcmpps element[96], element[96], 3
                v4 = vblendvps element[96], c7, v2
                vmovups v4, [frame + 112]
                v5 = vcmpps v4, v4, 3
                v6 = vblendvps v4, c7, v5
                vmovups v6, [frame + 128]
              loop
                vmovups element[128], [row1 + 4 i]
                vmovups element[128], [row1 + 4 i + 32]
                vmovups element[128], [row1 + 4 i + 64]
                vmovups element[128], [row1 + 4 i + 96]
              loop
                vmovups element[128], [row1 + 4 i]
              tail
                v0 = vpbroadcastd [frame + 32]
                v2 = vpcmpgtd v0, c3
                vpmaskmovd element[128], v2, [row1 + 4 i]
        "#]],
    );
}
