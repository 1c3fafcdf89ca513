//! The source of some kernels, and their launches. `UPDATE_EXPECT=1` accepts what has changed.

use crate::kernels::{Builder, Case, Random, listed, place};
use crate::pointwise::{broadcast, chain, contiguous, several_rows};
use expect_test::expect_file;
use opfuse::error::Reason;
use opfuse::internals::codegen::cuda::{Form, Plan, Source};
use opfuse::internals::codegen::geometry::{Geometry, Lanes};
use opfuse::internals::ir::row::Combine;
use opfuse::internals::ir::scalar::{Prim, Ty};
use opfuse::ir::DType;

fn check(name: &str, case: &Case, form: Option<Form>) {
    let aligned = vec![16; case.inputs.len() + case.outputs.len()];
    let plan = match form {
        Some(form) => Plan::with_form(&case.kernel, &case.geometry, form),
        None => Plan::new(&case.kernel, &case.geometry, &aligned),
    };
    let plan = plan.expect("the kernel is one that CUDA code is made for");
    let source = Source::new(&case.kernel, &plan.variant, name);
    let text = format!("/*\n{}{:?}\n{plan:?}\n*/\n{}", case.kernel, case.geometry, source.code);
    expect_file![format!("sources/{name}.cu")].assert_eq(&text);
}

#[test]
fn sources_are_as_accepted() {
    check("vectors", &contiguous(&chain(), 1003, 1), None);
    check("broadcast", &broadcast(40, 1000), Some(Form::Pointwise { width: 4, vectors: 2 }));
    check("transposed", &listed::transposed(DType::F32, 2, 37, 300), None);
    let normalized = |inner: &[usize]| place(&mut Random::new(1), listed::normalized(), &[5, 7], inner);
    check("warps", &normalized(&[100]), Some(Form::Warps));
    check("held", &normalized(&[1000]), Some(Form::Held { held: 8, warps: 4 }));
    check("columns", &normalized(&[4, 25]), Some(Form::Columns));
    let argmax = contiguous(&listed::folded(Combine::ArgMax, DType::F16), 100_000, 1);
    check("blocks", &argmax, None);
    let mut b = Builder::default();
    let args = listed::loads(&mut b, &[Ty::I64, Ty::I64]);
    let value = b.prim(Prim::Rem, &args);
    b.output(DType::I64, value);
    check("remainder", &contiguous(&b.kernel, 10, 1), None);
}

/// The form of a kernel follows from its shape.
#[test]
fn plans_choose_forms_by_shape() {
    let form = |case: &Case, alignment: usize| {
        let alignments = vec![alignment; case.inputs.len() + case.outputs.len()];
        Plan::new(&case.kernel, &case.geometry, &alignments)
            .expect("the kernel is one that CUDA code is made for")
            .variant
            .form
    };
    for (alignment, width) in [(4, 1), (8, 2), (16, 4), (256, 4)] {
        assert_eq!(form(&contiguous(&chain(), 1000, 1), alignment), Form::Pointwise { width, vectors: 1 });
    }
    assert_eq!(form(&contiguous(&chain(), 3, 1), 16), Form::Pointwise { width: 2, vectors: 1 });
    for (n, vectors) in [(1 << 20, 2), ((1 << 20) - 4, 1)] {
        assert_eq!(form(&contiguous(&chain(), n, 1), 16), Form::Pointwise { width: 4, vectors });
    }
    let negated =
        &listed::of_prims().into_iter().find(|(name, ..)| name == "neg of f32").expect("the prim is listed").2;
    assert_eq!(form(&contiguous(negated, 1 << 22, 1), 16), Form::Pointwise { width: 4, vectors: 4 });
    assert_eq!(form(&listed::transposed(DType::F32, 2, 16, 300), 16), Form::Tiles { along: 1, transposed: 3 });
    assert_eq!(form(&listed::transposed(DType::F32, 2, 15, 300), 16), Form::Pointwise { width: 1, vectors: 1 });
    let bytes = listed::of_dtypes().into_iter().find(|(name, _)| name == "bf16 to f16").expect("the pair is listed").1;
    assert_eq!(form(&contiguous(&bytes, 1000, 1), 16), Form::Pointwise { width: 8, vectors: 1 });
    let sum = listed::folded(Combine::Sum, DType::F32);
    let rows = |rows: usize, inner: usize, lanes: Lanes| {
        let mut case = place(&mut Random::new(1), sum.clone(), &[1], &[1]);
        let geometry = Geometry {
            rows: [rows].into_iter().collect(),
            inner: [inner].into_iter().collect(),
            lanes,
            ..case.geometry
        };
        case.geometry = geometry;
        case
    };
    for (n_rows, length, held, warps) in [
        (5000, 100, 4, 1),
        (5000, 768, 24, 1),
        (5000, 1024, 32, 1),
        (5000, 1025, 32, 2),
        (5000, 3072, 24, 4),
        (5000, 16384, 32, 16),
        (5, 16384, 32, 16),
        (5, 1000, 4, 8),
    ] {
        assert_eq!(form(&rows(n_rows, length, Lanes::Inner), 16), Form::Held { held, warps }, "{n_rows} x {length}");
    }
    // Long bodies have more warps, up to the most that a block has.
    for (length, held, warps) in [(100, 4, 1), (1000, 4, 8), (3000, 8, 16), (8192, 16, 16), (16384, 16, 16)] {
        let expected = if length > 8192 { Form::Blocks } else { Form::Held { held, warps } };
        assert_eq!(form(&several_rows(&listed::normalized(), 5, length), 16), expected, "rows of {length}");
    }
    assert_eq!(form(&rows(10_000, 100_000, Lanes::Inner), 16), Form::Warps);
    assert_eq!(form(&rows(5000, 100_000, Lanes::Inner), 16), Form::Blocks);
    assert_eq!(form(&rows(5, 100_000, Lanes::Inner), 16), Form::Blocks);
    assert_eq!(form(&rows(5000, 100, Lanes::Rows), 16), Form::Columns);
}

#[test]
fn too_many_operands_are_declined() {
    let mut b = Builder::default();
    let many = listed::loads(&mut b, &[Ty::F32; 200]);
    let sum = many.into_iter().reduce(|sum, x| b.prim(Prim::Add, &[sum, x])).expect("there are some");
    b.output(DType::F32, sum);
    let case = place(&mut Random::new(1), b.kernel, &[2, 2], &[2]);
    assert_eq!(Plan::new(&case.kernel, &case.geometry, &[16; 201]), Err(Reason::TooManyArguments));
}
