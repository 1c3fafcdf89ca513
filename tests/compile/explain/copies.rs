//! Writes to inputs, and copies that a call makes besides its kernels, are counted.

use crate::values::ramp;
use opfuse::compile::explain::CopyReason;
use opfuse::compile::{Function, Inputs};
use opfuse::{Explain, Result, Tensor, assert_fused, compile, embedding};

/// The bytes of the tensor that is written.
const SIZE: usize = 6 * 4 * 4;

fn report<A, F: Function<A>>(function: F, inputs: impl Inputs<A>) -> Result<Explain> {
    let f = compile(function);
    f.call(inputs)?;
    Ok(f.explain())
}

/// Kernels and copies add up to all bytes. Returns those of each.
fn bytes(explain: &Explain) -> (usize, usize) {
    let kernels = explain.groups.iter().map(|group| group.bytes()).sum::<usize>();
    let copies = explain.copies.iter().map(|copy| copy.bytes()).sum::<usize>();
    assert_eq!(explain.bytes_after, kernels + copies, "{explain}");
    (kernels, copies)
}

#[test]
fn a_write_in_place_is_no_copy() -> Result<()> {
    let explain = report(|x: &Tensor| x.add_(1.0).map(|_| ()), &ramp(&[6, 4]))?;
    assert_eq!(bytes(&explain), (2 * SIZE, 0), "{explain}");
    assert!(!explain.to_string().contains("copy of"), "{explain}");
    Ok(())
}

#[test]
fn a_value_that_is_written_back_is_moved_twice() -> Result<()> {
    // The index may be out of range, so the input is overwritten after the look-up.
    let function = |x: &Tensor, at: &Tensor| {
        x.add_(1.0)?;
        embedding(x, at)
    };
    let (x, at) = (ramp(&[6, 4]), Tensor::from_slice(&[1i64], &[1])?);
    let explain = report(function, (&x, &at))?;
    let [copy] = &explain.copies[..] else { panic!("{explain}") };
    assert_eq!(copy.reason, CopyReason::WrittenBack { input: 0 });
    assert_eq!((copy.bytes_read, copy.bytes_written), (SIZE, SIZE));
    let (kernels, copies) = bytes(&explain);
    assert_eq!((kernels > 2 * SIZE, copies), (true, 2 * SIZE), "{explain}");
    let line = format!("copy of {} add reads {SIZE}, writes {SIZE} bytes: it is the new value of input 0", copy.value);
    assert!(explain.to_string().contains(&line), "{explain}");
    assert!(explain.plan_text().contains(&format!("copy add1 (reads {SIZE} bytes, writes {SIZE})")), "{explain}");
    assert!(explain.to_html().contains("<h3>Copies</h3>"));
    let json: serde_json::Value = serde_json::from_str(&explain.to_json()).expect("it is JSON");
    assert_eq!(json["copies"][0]["input"], 0);
    assert_eq!(json["copies"][0]["value"], copy.value.to_string());
    assert_eq!(json["copies"][0]["bytes_written"], SIZE);
    assert_eq!(json["bytes"]["after"], explain.bytes_after);
    let f = compile(function);
    f.call((&x, &at))?;
    assert_fused!(f, bytes <= explain.bytes_after);
    let limit = opfuse::compile::explain::Limit::BytesAtMost(kernels);
    let message = f.explain().check(&[limit]).expect_err("a copy is moved, too");
    assert!(message.contains("copy add1"), "{message}");
    Ok(())
}

#[test]
fn a_copy_of_the_function_itself_counts_before_fusion_too() -> Result<()> {
    let explain = report(|x: &Tensor, y: &Tensor| x.copy_(y).map(|_| ()), (&ramp(&[6, 4]), &ramp(&[6, 4])))?;
    assert_eq!((bytes(&explain), explain.bytes_before), ((0, 2 * SIZE), 2 * SIZE), "{explain}");
    Ok(())
}

#[test]
fn results_that_the_function_keeps_apart_are_copied() -> Result<()> {
    let explain = report(|x: &Tensor| Ok((x.exp()?, x.exp()?)), &ramp(&[6, 4]))?;
    assert_eq!(bytes(&explain), (2 * SIZE, 2 * SIZE), "{explain}");
    assert_eq!(explain.copies[0].reason, CopyReason::KeptApart);
    assert!(explain.to_string().contains("which the function keeps apart"), "{explain}");
    Ok(())
}

#[test]
fn writes_where_gradients_are_recorded_are_counted() -> Result<()> {
    let function = |x: &Tensor, w: &Tensor| {
        x.add_(1.0)?;
        x.mul(w)?.sum_all()
    };
    let w = ramp(&[6, 4]);
    w.set_requires_grad(true)?;
    let explain = report(function, (&ramp(&[6, 4]), &w))?;
    let back = explain.copies.iter().filter(|copy| copy.reason == CopyReason::WrittenBack { input: 0 }).count();
    assert_eq!(back, 1, "{explain}");
    bytes(&explain);
    Ok(())
}

#[test]
fn writes_of_segments_are_counted() -> Result<()> {
    let f = compile(|x: &Tensor| {
        x.add_(1.0)?;
        let sum = x.sum_all()?.item::<f32>()?;
        x.mul_(f64::from(sum))?;
        x.exp()
    });
    for _ in 0..2 {
        f.call(&ramp(&[6, 4]))?;
        let explain = f.explain();
        let copies: Vec<usize> = explain.segments.iter().map(|segment| bytes(&segment.report).1).collect();
        assert_eq!(copies, [2 * SIZE, 2 * SIZE], "{explain}");
        let all: usize = explain.segments.iter().map(|segment| segment.report.bytes_after).sum();
        assert_eq!(explain.bytes_after, all, "{explain}");
    }
    Ok(())
}

#[test]
fn views_are_made_again_for_a_backward_pass_and_not_copied() -> Result<()> {
    let (w, x) = (ramp(&[5, 4]), ramp(&[2, 3, 4]));
    // The derivative of a square reads its operand, and not the result, which belongs to the caller.
    let layer = |x: &Tensor, w: &Tensor| x.reshape([6, 4])?.matmul(&w.t()?)?.reshape([2, 15])?.square();
    let f = compile(layer);
    let mut gradients = Vec::new();
    for compiled in [false, true, true] {
        let [x, w] = [&x, &w].map(Tensor::detach);
        let (x, w) = (x?.clone(), w?.clone());
        [&x, &w].into_iter().try_for_each(|leaf| leaf.set_requires_grad(true).map(|_| ()))?;
        let y = if compiled { f.call((&x, &w))? } else { layer(&x, &w)? };
        y.sum_all()?.backward()?;
        let of = |leaf: &Tensor| leaf.grad().expect("it has a gradient").to_vec::<f32>();
        gradients.push((y.detach()?.to_vec::<f32>()?, of(&x)?, of(&w)?));
    }
    assert!(gradients[1] == gradients[0] && gradients[2] == gradients[0], "{gradients:?}");
    let explain = f.explain();
    assert!(explain.copies.is_empty(), "{explain}");
    Ok(())
}
