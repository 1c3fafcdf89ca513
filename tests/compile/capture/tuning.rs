//! Measured plans: what a measurement changes, and that it never changes bits.

use crate::unplaced::unplaced;
use crate::values::{bits, ramp};
use opfuse::Tensor;
use opfuse::compile::explain::Decision;
use opfuse::compile::{CompileOptions, Tuning, compile_with};
use opfuse::error::Result;
use opfuse::internals::fusion::Rates;

/// In one kernel every element of `y` is computed at two places, which takes longer than reading it again.
fn repeated(x: &Tensor) -> Result<Tensor> {
    let mut y = x.clone();
    for _ in 0..6 {
        y = y.tanh()?.exp()?;
    }
    &y + y.t()?
}

/// Rates that make any merge look good.
fn blind() -> CompileOptions {
    let mut options = CompileOptions::default();
    options.fusion.rates = Rates { launch: 1_000_000, ..Rates::BUILT_IN };
    options
}

#[test]
fn a_group_that_is_slower_than_its_parts_is_split() -> Result<()> {
    let x = ramp(&[96, 96]);
    let eager = bits(&repeated(&x)?);
    let modelled = compile_with(repeated, blind());
    let measured = compile_with(repeated, CompileOptions { tuning: Tuning::Measured, ..blind() });
    for _ in 0..6 {
        assert!(bits(&modelled.call(&x)?) == eager && bits(&measured.call(&x)?) == eager);
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
fn kernels_that_the_model_is_wrong_about_are_reported() -> Result<()> {
    let x = ramp(&[96, 96]);
    let mut options = CompileOptions { tuning: Tuning::Measured, ..CompileOptions::default() };
    // No machine is as fast as that.
    options.fusion.rates =
        Rates { launch: 1, bandwidth: [u32::MAX; 4], plain: u32::MAX, functions: u32::MAX, ..Rates::BUILT_IN };
    let f = compile_with(|x: &Tensor| x.tanh()?.exp(), options);
    for _ in 0..2 {
        f.call(&x)?;
        assert!(f.explain().groups[0].measured.is_none(), "the third call measures");
    }
    assert!(bits(&f.call(&x)?) == bits(&x.tanh()?.exp()?));
    let explain = f.explain();
    let (group, text) = (&explain.groups[0], explain.to_string());
    let times = group.times_slower().expect("it took longer");
    assert!(times > 2.0 && group.measured.is_some_and(|measured| measured.calls >= 3), "{explain}");
    assert!(text.contains(&format!("slow: {times:.1} times as long as modelled")), "{text}");
    Ok(())
}

#[test]
fn the_model_does_not_compute_an_expensive_value_twice() -> Result<()> {
    let x = ramp(&[96, 96]);
    let modelled = compile_with(repeated, CompileOptions::default());
    assert!(bits(&modelled.call(&x)?) == bits(&repeated(&x)?));
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
#[cfg_attr(debug_assertions, ignore = "how long kernels take that are not optimized says nothing")]
fn a_group_that_is_faster_stays_whole() -> Result<()> {
    // The parts pass over memory twelve times instead of once, which no noise can hide.
    let centred = |x: &Tensor| -> Result<Tensor> {
        let mut y = x.clone();
        for _ in 0..6 {
            y = (&y - y.amax([-1], true)?)?;
        }
        Ok(y)
    };
    let measured = compile_with(centred, CompileOptions { tuning: Tuning::Measured, ..CompileOptions::default() });
    let x = ramp(&[1024, 1024]);
    let eager = bits(&centred(&x)?);
    for _ in 0..5 {
        assert!(bits(&measured.call(&x)?) == eager);
    }
    assert_eq!(measured.explain().kernels_after, 1, "{}", measured.explain());
    Ok(())
}

#[test]
fn an_error_while_measuring_is_the_error_of_the_call() -> Result<()> {
    let pick = |x: &Tensor, at: &Tensor| x.exp()?.index_select(0, at)?.relu();
    let measured = compile_with(pick, CompileOptions { tuning: Tuning::Measured, ..CompileOptions::default() });
    let x = ramp(&[8, 4]);
    let (good, bad) = (Tensor::from_slice(&[1i64, 7], &[2])?, Tensor::from_slice(&[1i64, 8], &[2])?);
    for at in [&good, &good, &bad, &good, &good] {
        let eager = pick(&x, at);
        let found = measured.call((&x, at));
        match eager {
            Ok(eager) => assert!(bits(&found?) == bits(&eager)),
            Err(error) => assert_eq!(unplaced(&found.expect_err("the index is too large")), error.to_string()),
        }
    }
    Ok(())
}
