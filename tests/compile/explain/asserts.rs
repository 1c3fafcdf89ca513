//! `assert_fused!` passes, and fails with the plan.

use super::functions::{block, softmax};
use crate::values::ramp;
use opfuse::{Result, Tensor, assert_fused, compile};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn message(work: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(work)).expect_err("the assertion must fail");
    panic.downcast_ref::<String>().cloned().expect("the message is formatted")
}

#[test]
fn an_assertion_that_holds_passes() -> Result<()> {
    let f = compile(softmax);
    f.call(&ramp(&[8, 16]))?;
    assert_fused!(f, kernels = 1);
    assert_fused!(f, kernels <= 2);
    assert_fused!(f, bytes <= 2 * 8 * 16 * 4);
    assert_fused!(f, kernels = 1, bytes <= 1024,);
    assert_fused!(&f, kernels = 1);
    Ok(())
}

#[test]
fn a_failed_assertion_shows_the_plan_and_the_reasons() -> Result<()> {
    let f = compile(block);
    f.call((&ramp(&[8, 16]), &ramp(&[16, 32]), &ramp(&[32, 16]), &ramp(&[16])))?;
    let n = f.explain().kernels_after;
    for text in [
        message(|| assert_fused!(f, kernels = 1)),
        message(|| assert_fused!(f, kernels <= n - 1)),
        message(|| assert_fused!(f, kernels = n, bytes <= 10)),
    ] {
        assert!(text.starts_with("assertion failed: "), "{text}");
        for part in ["layer_norm", "not fused: ", "the product's own rows", "hint (", &f.explain().plan_text()] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
    }
    Ok(())
}

#[test]
fn a_function_that_was_not_compiled_fails_the_assertion() {
    let f = compile(|x: &Tensor| x.exp());
    let text = message(|| assert_fused!(f, kernels <= 5));
    assert!(text.contains("not been called") && text.contains("hint: call it once"), "{text}");
}
