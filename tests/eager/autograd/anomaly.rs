//! `detect_anomaly`: the operator and the line of the first NaN, and parameters as before.

use super::{leaf, refused};
use opfuse::autograd::{
    Context, Function, GradOptions, apply, detect_anomaly, grad, is_anomaly_enabled, no_grad, set_detect_anomaly,
};
use opfuse::nn::checkpoint;
use opfuse::profile::at_line;
use opfuse::{DType, Result, Tensor, compile, scope};

/// Fails unless the error names the derivative, and the line of this file with this mark.
#[track_caller]
fn names<T>(result: Result<T>, name: &str, mark: &str) {
    let source = include_str!("anomaly.rs");
    let line = source.lines().position(|line| line.ends_with(&format!("// {mark}"))).expect("the line is marked") + 1;
    let error = result.err().unwrap_or_else(|| panic!("there is no error: {mark}")).to_string();
    assert!(error.starts_with(name), "{error}");
    assert!(error.contains(&format!("anomaly.rs:{line}")), "{error}");
}

fn root(x: &Tensor) -> Result<Tensor> {
    x.sqrt()?.mul(0.0)?.sum_all() // root
}

#[test]
fn a_nan_of_a_backward_pass_names_the_call() -> Result<()> {
    let x = leaf(&[0.0, 4.0], &[2]);
    // Without it, NaN is a number as any other.
    root(&x)?.backward()?;
    assert!(x.grad().expect("it arrived").to_vec::<f64>()?[0].is_nan());
    x.set_grad(None)?;
    let guard = detect_anomaly();
    names(root(&x)?.backward(), "SqrtBackward", "root");
    assert!(x.grad().is_none(), "the leaf got something");
    names(grad(&[&root(&x)?], &[&x], &[], GradOptions::default()), "SqrtBackward", "root");
    // Infinities are no anomaly, and neither is what is finite.
    x.sqrt()?.sum_all()?.backward()?;
    assert_eq!(x.grad().expect("it arrived").to_vec::<f64>()?, [f64::INFINITY, 0.25]);
    x.set_grad(None)?;
    drop(guard);
    root(&x)?.backward()
}

#[test]
fn a_nan_of_the_loss_names_the_first_call_that_gave_one() -> Result<()> {
    let x = leaf(&[-1.0, 4.0], &[2]);
    let _guard = detect_anomaly();
    let logarithm = x.log()?; // logarithm
    let loss = logarithm.exp()?.mul(2.0)?.sum_all()?;
    names(loss.backward(), "LogBackward", "logarithm");
    // A NaN that the loss does not see is none of it.
    logarithm.select(0, 1)?.backward()?;
    // The line is that of the outermost call, and the name that of the part.
    let scores = leaf(&[f64::INFINITY, 1.0], &[1, 2]);
    let loss = scores.cross_entropy(&Tensor::try_from([0i64])?, &Default::default())?; // loss
    names(loss.backward(), "LogSoftmax", "loss");
    let error = scope("encoder", || x.log()?.sum_all()?.backward()).expect_err("it is NaN").to_string();
    assert!(error.contains(" in encoder"), "{error}");
    Ok(())
}

#[test]
fn compiled_functions_run_eagerly_meanwhile() -> Result<()> {
    let x = leaf(&[0.0, 4.0], &[2]);
    let compiled = compile(|x: &Tensor| {
        let loss = x.sqrt()?.mul(0.0)?.sum_all()?; // compiled
        loss.backward()?;
        loss.detach()
    });
    for _ in 0..2 {
        compiled.call(&x)?;
    }
    x.set_grad(None)?;
    let eager = compiled.counts().eager;
    let guard = detect_anomaly();
    names(compiled.call(&x), "SqrtBackward", "compiled");
    assert_eq!(compiled.counts().eager, eager + 1);
    assert!(x.grad().is_none());
    drop(guard);
    compiled.call(&x)?;
    assert_eq!(compiled.counts().eager, eager + 1);
    Ok(())
}

/// The identity, whose gradient is NaN.
struct Broken;

impl Function for Broken {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].mul(1.0)?])
    }
    fn backward(&self, _: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradients[0].mul(f64::NAN)?)])
    }
}

#[test]
fn functions_of_users_and_checkpoints_have_lines() -> Result<()> {
    let x = leaf(&[0.0, 4.0], &[2]);
    let _guard = detect_anomaly();
    let broken = apply(Broken, &[&x])?; // function
    names(broken[0].sum_all()?.backward(), "BrokenBackward", "function");
    let again = checkpoint(|x| Ok(vec![root(&x[0])?]), &[&x])?;
    names(again[0].backward(), "SqrtBackward", "root");
    // A gradient that came as NaN is not the fault of the call.
    let product = x.mul(2.0)?;
    let given = Tensor::try_from([f64::NAN, 1.0])?;
    refused(opfuse::autograd::backward(&[&product], &[Some(&given)], GradOptions::default()), "from a hook or from");
    Ok(())
}

#[test]
fn higher_derivatives_have_the_line_of_the_call() -> Result<()> {
    let x = leaf(&[0.0], &[1]);
    let _guard = detect_anomaly();
    let y = x.pow(1.5)?.sum_all()?; // power
    let options = GradOptions { create_graph: true, ..GradOptions::default() };
    let slope = grad(&[&y], &[&x], &[], options)?.remove(0).expect("it depends on x");
    // The second derivative of x^1.5 is infinite at 0, and 0 times that is NaN.
    let result = slope.mul(0.0)?.sum_all()?.backward();
    let error = result.expect_err("it is NaN").to_string();
    let line = include_str!("anomaly.rs").lines().position(|line| line.ends_with("// power")).expect("it is there");
    assert!(error.contains(&format!("anomaly.rs:{}", line + 1)), "{error}");
    Ok(())
}

#[test]
fn what_is_not_checked_is_left_alone() -> Result<()> {
    let x = leaf(&[0.0, 4.0], &[2]);
    let before = root(&x)?;
    let _guard = detect_anomaly();
    refused(before.backward(), "recorded without detect_anomaly");
    // Other threads look for nothing.
    std::thread::scope(|threads| threads.spawn(|| root(&x)?.backward()).join().expect("it does not panic"))?;
    // Nothing is recorded, and nothing is refused.
    let _quiet = no_grad();
    assert!(Tensor::try_from([-1.0f64])?.log()?.to_vec::<f64>()?[0].is_nan());
    // Sizes of 0 and dtypes of 16 bits.
    let empty = Tensor::zeros(&[0], DType::BF16)?;
    empty.set_requires_grad(true)?;
    let _loud = opfuse::autograd::enable_grad();
    empty.sqrt()?.sum_all()?.backward()?;
    let half = Tensor::try_from([0.0f32])?.to_dtype(DType::BF16)?;
    half.set_requires_grad(true)?;
    names(root(&half)?.backward(), "SqrtBackward", "root");
    Ok(())
}

#[test]
fn detection_is_off_in_an_inner_guard_and_lines_of_other_programs_are_named() -> Result<()> {
    let x = leaf(&[0.0, 4.0], &[2]);
    let outer = detect_anomaly();
    {
        let _inner = set_detect_anomaly(false);
        assert!(!is_anomaly_enabled());
        root(&x)?.backward()?;
        assert!(x.grad().expect("it arrived").to_vec::<f64>()?[0].is_nan());
    }
    assert!(is_anomaly_enabled());
    let file = "steps.py".into();
    let loss = at_line(&file, 12, || at_line(&file, 34, || x.sqrt()))?.mul(0.0)?.sum_all()?;
    refused(loss.backward(), "steps.py:12");
    drop(outer);
    assert!(!is_anomaly_enabled());
    Ok(())
}
