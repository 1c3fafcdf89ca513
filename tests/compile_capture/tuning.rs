//! Plans that are measured: what a measurement changes, and that it never changes bits.

use opfuse::Tensor;
use opfuse::compile::explain::Decision;
use opfuse::compile::{CompileOptions, Tuning, compile_with};
use opfuse::error::Result;
use opfuse::fusion::Rates;

fn ramp(sizes: &[usize]) -> Result<Tensor> {
    let n = sizes.iter().product::<usize>();
    let values: Vec<f32> = (0..n).map(|i| (i % 251) as f32 / 64.0 - 1.5).collect();
    Tensor::from_slice(&values, sizes)
}

fn bits(tensor: &Tensor) -> Result<Vec<u32>> {
    Ok(tensor.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect())
}

/// One kernel computes `exp` of a small operand again for each row, which no model is needed to see is a loss.
fn repeated(x: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let mut scale = scale.clone();
    for _ in 0..6 {
        scale = scale.tanh()?.exp()?;
    }
    x * scale
}

/// Rates that make any merge look good.
fn blind() -> CompileOptions {
    let mut options = CompileOptions::default();
    options.fusion.rates = Rates { launch: 1_000_000, ..Rates::BUILT_IN };
    options
}

#[test]
fn a_group_that_is_slower_than_its_parts_is_split() -> Result<()> {
    let (x, scale) = (ramp(&[512, 64])?, ramp(&[64])?);
    let eager = bits(&repeated(&x, &scale)?)?;
    let modelled = compile_with(repeated, blind());
    let measured = compile_with(repeated, CompileOptions { tuning: Tuning::Measured, ..blind() });
    for _ in 0..6 {
        assert!(bits(&modelled.call((&x, &scale))?)? == eager && bits(&measured.call((&x, &scale))?)? == eager);
    }
    assert_eq!(modelled.explain().kernels_after, 1, "{}", modelled.explain());
    let explain = measured.explain();
    assert!(explain.kernels_after > 1, "{explain}");
    let reasons = explain.kept().filter_map(|edge| match &edge.decision {
        Decision::Kept { reason, .. } => Some(reason.kind()),
        Decision::Fused { .. } => None,
    });
    assert!(reasons.into_iter().all(|kind| kind == "measured_slower"), "{explain}");
    assert_eq!(explain.nodes.len(), modelled.explain().nodes.len());
    Ok(())
}

#[test]
fn the_model_keeps_a_dear_value_of_few_elements_out_of_many_rows() -> Result<()> {
    let (x, scale) = (ramp(&[512, 64])?, ramp(&[64])?);
    let modelled = compile_with(repeated, CompileOptions::default());
    assert!(bits(&modelled.call((&x, &scale))?)? == bits(&repeated(&x, &scale)?)?);
    let explain = modelled.explain();
    assert_eq!(explain.kernels_after, 2, "{explain}");
    let kinds: Vec<&str> = explain
        .kept()
        .map(|edge| match &edge.decision {
            Decision::Kept { reason, .. } => reason.kind(),
            Decision::Fused { .. } => "fused",
        })
        .collect();
    assert_eq!(kinds, ["modelled_slower"]);
    Ok(())
}

#[test]
fn a_group_that_is_faster_stays_whole() -> Result<()> {
    let softmax = |x: &Tensor| x.softmax(-1)?.relu()?.exp();
    let measured = compile_with(softmax, CompileOptions { tuning: Tuning::Measured, ..CompileOptions::default() });
    let x = ramp(&[256, 1024])?;
    let eager = bits(&softmax(&x)?)?;
    for _ in 0..5 {
        assert!(bits(&measured.call(&x)?)? == eager);
    }
    assert_eq!(measured.explain().kernels_after, 1, "{}", measured.explain());
    Ok(())
}

#[test]
fn an_error_while_it_is_measured_is_that_of_the_call() -> Result<()> {
    let pick = |x: &Tensor, at: &Tensor| x.exp()?.index_select(0, at)?.relu();
    let measured = compile_with(pick, CompileOptions { tuning: Tuning::Measured, ..CompileOptions::default() });
    let x = ramp(&[8, 4])?;
    let (good, bad) = (Tensor::from_slice(&[1i64, 7], &[2])?, Tensor::from_slice(&[1i64, 8], &[2])?);
    for at in [&good, &good, &bad, &good, &good] {
        let eager = pick(&x, at);
        let found = measured.call((&x, at));
        match eager {
            Ok(eager) => assert!(bits(&found?)? == bits(&eager)?),
            Err(error) => assert_eq!(found.expect_err("the index is too large").to_string(), error.to_string()),
        }
    }
    Ok(())
}
