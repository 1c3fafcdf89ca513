//! Classes of differences between eager and compiled functions that random programs found.

use super::check::ramp;
use super::twins::{Twins, check_all, leaf_and_buffer};
use crate::bits::bits;
use opfuse::autograd::{GradOptions, grad, inference_mode, no_grad};
use opfuse::internals::codegen::tier::Tier;
use opfuse::{CompileOptions, DType, Result, Tensor, compile, compile_with};

/// Bytes of all kinds, and floats.
fn bytes(call: usize) -> Result<Vec<Tensor>> {
    let bytes: Vec<u8> = (0..70u8).map(|i| if i % 3 == 0 { 0 } else { i + call as u8 }).collect();
    let others: Vec<u8> = (0..70u8).map(|i| if i % 4 == 0 { 0 } else { 255 - i }).collect();
    Ok(vec![Tensor::from_slice(&bytes, &[70])?, Tensor::from_slice(&others, &[70])?, ramp(&[70], call)?])
}

#[test]
fn bools_of_other_bytes_are_true() {
    check_all(&[
        Twins::new("logic", |x, _| {
            let (a, b) = (x[0].view_dtype(DType::Bool)?, x[1].view_dtype(DType::Bool)?);
            Ok(vec![a.logical_and(&b)?, a.logical_or(&b)?, a.logical_xor(&b)?, a.logical_not()?])
        })
        .inputs(bytes),
        Twins::new("comparisons and conversions", |x, _| {
            let (a, b) = (x[0].view_dtype(DType::Bool)?, x[1].view_dtype(DType::Bool)?);
            Ok(vec![a.eq(&b)?, a.ne(&b)?, a.to_dtype(DType::F32)?, a.to_dtype(DType::I64)?, a.add(&x[2])?])
        })
        .inputs(bytes),
        Twins::new("folds", |x, _| {
            let a = x[0].view_dtype(DType::Bool)?;
            Ok(vec![a.sum_all()?, a.any([], false)?, a.all([], false)?])
        })
        .inputs(bytes),
        Twins::new("copies and choices", |x, _| {
            let (a, b) = (x[0].view_dtype(DType::Bool)?, x[1].view_dtype(DType::Bool)?);
            let copied = opfuse::cat(&[&a, &b.flip([0])?], 0)?.to_dtype(DType::U8)?;
            Ok(vec![copied, a.where_(&x[2], &x[2].neg()?)?, b.where_(&a, &b)?.to_dtype(DType::U8)?])
        })
        .inputs(bytes),
    ]);
}

#[test]
fn backward_passes_find_what_was_overwritten_where_no_gradient_arrives() {
    check_all(&[
        Twins::of_leaves("a value of what was severed", |x, _| {
            let y = x[0].exp()?;
            y.zero_()?;
            y.atan2_(y.clone())?;
            Ok(vec![y])
        })
        .any_way(),
        Twins::of_leaves("a result that saved itself", |x, _| {
            let y = x[0].mul(2.0)?;
            y.zero_()?;
            let most = y.exp()?;
            most.mul_(1)?;
            Ok(vec![most])
        })
        .any_way(),
    ]);
}

/// Gradients of gradients of the sum of squares.
fn twice(of: &Tensor, leaf: &Tensor) -> Result<Vec<f32>> {
    let options = GradOptions { create_graph: true, retain_graph: true, allow_unused: false };
    let first = grad(&[&of.square()?.sum_all()?], &[leaf], &[], options)?;
    let first = first.into_iter().flatten().next().expect("it depends on the leaf");
    let second = grad(&[&first.sum_all()?], &[leaf], &[], GradOptions::default())?;
    let mut all = first.to_vec::<f32>()?;
    all.extend(second.into_iter().flatten().next().expect("it depends on the leaf").to_vec::<f32>()?);
    Ok(all)
}

#[test]
fn second_order_gradients_use_the_numbers_of_their_call() -> Result<()> {
    let f = compile(|x: &Tensor, n: &Tensor| x * n);
    for number in [2i64, 3, 5] {
        let (x, n) = (ramp(&[4], 1)?, Tensor::number(number)?);
        x.set_requires_grad(true)?;
        assert_eq!(twice(&f.call((&x, &n))?, &x)?, twice(&(&x * &n)?, &x)?, "{number}");
    }
    Ok(())
}

#[test]
fn second_order_gradients_after_a_write_to_a_captured_tensor_use_what_was_there() -> Result<()> {
    let run = |is_compiled: bool| -> Result<Vec<f32>> {
        let w = leaf_and_buffer()?.remove(0);
        let captured = w.clone();
        let step = move |x: &Tensor| {
            let y = captured.to_dtype(DType::F64)?.exp()?.mul(x)?.to_dtype(DType::F32)?;
            let _quiet = no_grad();
            captured.add_(0.25)?;
            Ok(y)
        };
        let compiled = compile(step.clone());
        let mut all = Vec::new();
        for call in 0..3 {
            let x = ramp(&[4], call)?;
            let y = if is_compiled { compiled.call(&x)? } else { step(&x)? };
            all.extend(twice(&y, &w)?);
        }
        Ok(all)
    };
    assert_eq!(run(true)?, run(false)?);
    Ok(())
}

#[test]
fn a_backward_pass_frees_what_it_runs_through() -> Result<()> {
    let f = compile(|x: &Tensor, y: &Tensor| Ok((x.exp()?.sum_all()?, y.add(2)?.sum_all()?, y.exp()?.sum_all()?)));
    for _ in 0..3 {
        let (x, y) = (ramp(&[4], 1)?, ramp(&[4], 2)?);
        x.set_requires_grad(true)?;
        y.set_requires_grad(true)?;
        let (one, plain, other) = f.call((&x, &y))?;
        one.backward()?;
        plain.backward()?;
        plain.backward()?;
        other.backward()?;
        let error = one.backward().expect_err("it was freed");
        assert!(error.to_string().contains("a second time"), "{error}");
        plain.backward()?;
        assert_eq!(y.grad().expect("it is a leaf").to_vec::<f32>()?, y.exp()?.add(3)?.to_vec::<f32>()?);
    }
    Ok(())
}

/// Elements, and indices that are out of range.
fn bad(call: usize) -> Result<Vec<Tensor>> {
    Ok(vec![ramp(&[4], call)?, Tensor::from_slice(&[7i64, 0], &[2])?])
}

#[test]
fn what_happens_before_a_value_is_out_of_range_takes_effect() {
    check_all(&[
        Twins::new("a write", |x, w| {
            x[0].neg_()?;
            w[1].add_(&x[0])?;
            let _unused = x[0].index_select(0, &x[1])?;
            Ok(Vec::new())
        })
        .inputs(bad),
        Twins::new("one write, and not the next one", |x, w| {
            w[1].add_(1.0)?;
            let picked = x[0].index_select(0, &x[1])?;
            w[1].i(0..2)?.copy_(&picked)?;
            Ok(vec![picked])
        })
        .inputs(bad),
        Twins::new("a write in place", |x, w| {
            w[1].i(0..2)?.zero_()?;
            let _unused = x[0].index_select(0, &x[1])?;
            x[0].i(1..3)?.fill_(7.0)?;
            Ok(vec![x[0].exp()?])
        })
        .inputs(bad),
        Twins::new("a division in place", |x, _| {
            x[0].neg_()?;
            x[1].remainder_(&x[1].mul(0)?)?;
            Ok(Vec::new())
        })
        .inputs(bad),
        Twins::new("a draw, and not the next one", |x, w| {
            w[1].normal_(0.0, 1.0)?;
            let _unused = x[0].index_select(0, &x[1])?;
            w[1].normal_(0.0, 1.0)?;
            Ok(Vec::new())
        })
        .inputs(bad),
    ]);
}

#[test]
fn draws_after_an_error_are_taken_back() -> Result<()> {
    // The default generator belongs to all tests of the process.
    let generator = opfuse::Generator::new(opfuse::Device::CPU);
    let drawing = generator.clone();
    let f = compile(move |x: &Tensor, at: &Tensor| {
        let noise = drawing.rand(x.sizes(), DType::F32)?;
        let picked = x.index_select(0, at)?;
        Ok((noise, picked, drawing.rand(x.sizes(), DType::F32)?))
    });
    for call in 0..3 {
        let at = Tensor::from_slice(&[if call == 0 { 0i64 } else { 9 }, 0], &[2])?;
        let before = generator.state();
        let result = f.call((&ramp(&[4], call)?, &at));
        let drawn = generator.state().counter - before.counter;
        assert_eq!((result.is_ok(), drawn), if call == 0 { (true, 2) } else { (false, 1) }, "call {call}");
    }
    Ok(())
}

#[test]
fn windows_outside_the_memory_of_an_input_are_found() -> Result<()> {
    let f = compile(|x: &Tensor| {
        let _unused = x.as_strided([2i64], [1i64], 2i64)?;
        x.exp()
    });
    for call in 0..4 {
        let memory = ramp(&[4], call)?;
        let x = memory.i(0..2)?;
        assert!(f.call(&x).is_ok(), "call {call}");
        assert!(f.call(&ramp(&[2], call)?).is_err(), "call {call}");
    }
    Ok(())
}

#[test]
fn windows_see_what_is_written_beside_them() {
    fn part() -> Result<Vec<Tensor>> {
        Ok(vec![ramp(&[6], 3)?.i(2..4)?])
    }
    check_all(&[
        Twins::new("a window before a write", |_, w| {
            let window = w[0].as_strided([3i64], [1i64], 1i64)?;
            w[0].sub_(1.0)?;
            Ok(vec![window.exp()?])
        })
        .captured(part)
        .any_way(),
        Twins::new("a window that is written after a write", |_, w| {
            let window = w[0].as_strided([3i64], [1i64], 1i64)?;
            w[0].add_(3)?;
            window.mul_(2)?;
            w[0].add_(1)?;
            Ok(vec![window.clone()])
        })
        .captured(part)
        .any_way(),
    ]);
}

#[test]
fn writes_without_elements_change_nothing() {
    fn parts() -> Result<Vec<Tensor>> {
        let memory = ramp(&[4], 3)?;
        Ok(vec![memory.i(0..0)?, memory.i(0..2)?])
    }
    check_all(&[
        Twins::new("beside a captured tensor that is written", |x, w| {
            w[1].add_(3)?;
            w[0].mul_(2.0)?;
            Ok(vec![w[1].clone(), x[0].exp()?])
        })
        .captured(parts)
        .any_way(),
        Twins::new("of a value that is written", |x, _| {
            let y = x[0].mul(2.0)?;
            let nothing = y.i(4..)?;
            y.neg_()?;
            nothing.add_(1.0)?;
            Ok(vec![y])
        }),
    ]);
}

#[test]
fn views_made_without_gradients_stay_aliases_of_what_is_written() {
    check_all(&[
        Twins::of_leaves("two views", |x, _| {
            let y = x[0].mul(&x[0])?;
            let _quiet = no_grad();
            let (one, other) = (y.i(1..3)?, y.view([2, 2])?);
            other.tanh_()?;
            Ok(vec![one, other])
        }),
        Twins::of_leaves("a view and its base", |x, _| {
            let y = x[0].exp()?;
            let _quiet = no_grad();
            let view = y.i(0..2)?;
            view.log_()?;
            Ok(vec![view, y])
        })
        .any_way(),
        Twins::of_leaves("a detached view that gets a history", |x, _| {
            let y = x[0].add(1)?;
            let view = y.i(1..3)?;
            let detached = view.detach()?;
            detached.sub_(&x[0].i(0..2)?)?;
            Ok(vec![detached, view])
        })
        .any_way(),
    ]);
}

#[test]
fn a_leaf_that_is_given_twice_gets_its_gradient_in_eagers_order() {
    fn pair(call: usize) -> Result<Vec<Tensor>> {
        let x = ramp(&[4], call)?;
        x.set_requires_grad(true)?;
        Ok(vec![x.clone(), x])
    }
    fn plain_pair(call: usize) -> Result<Vec<Tensor>> {
        let x = ramp(&[4], call)?;
        Ok(vec![x.clone(), x])
    }
    check_all(&[
        Twins::new("a softmax", |x, _| Ok(vec![x[1].softmax(0)?.mul(&x[0].exp()?)?.add(&x[1])?.mul(&x[0])?]))
            .inputs(pair),
        Twins::new("one of them is a result", |x, _| Ok(vec![x[1].clone(), x[0].mul(&x[1])?])).inputs(pair),
        Twins::new("one of them is written", |x, _| {
            x[0].add_(1)?;
            x[1].mul_(2)?;
            Ok(vec![x[0].exp()?, x[1].clone()])
        })
        .inputs(plain_pair),
        Twins::new("a part of one of them is written", |x, _| {
            x[1].i(0..2)?.zero_()?;
            Ok(vec![x[0].exp()?])
        })
        .inputs(plain_pair),
    ]);
}

#[test]
fn gradients_inside_are_tensors_of_their_own() {
    check_all(&[
        Twins::new("a gradient that gets a history", |x, w| {
            let found = grad(&[&w[0].sum_all()?], &[&w[0]], &[], GradOptions::default())?;
            let gradient = found.into_iter().flatten().next().expect("it depends on it");
            gradient.mul_(&w[0])?;
            Ok(vec![gradient, x[0].exp()?])
        })
        .any_way(),
        Twins::new("two gradients of one value", |_, w| {
            let view = w[0].view([4])?;
            let found = grad(&[&view.sum_all()?], &[&view, &w[0]], &[], GradOptions::default())?;
            Ok(found.into_iter().flatten().collect())
        })
        .any_way(),
    ]);
}

#[test]
fn values_of_written_tensors_have_eagers_strides_in_dims_of_size_1() {
    fn strange() -> Result<Vec<Tensor>> {
        Ok(vec![ramp(&[6], 3)?.as_strided([1i64, 2, 1], [1i64, 3, 0], 2i64)?])
    }
    check_all(&[Twins::new("a value", |_, w| {
        w[0].round_()?;
        Ok(vec![w[0].sign()?, w[0].sum([1], true)?, w[0].transpose(0, 1)?.exp()?])
    })
    .captured(strange)]);
}

#[test]
fn folds_over_several_dims_without_elements_read_none() -> Result<()> {
    // What compares an operand with itself does not read it, so a kernel may have an operand without memory.
    let bodies: [fn(&Tensor) -> Result<Tensor>; 4] = [
        |x| x.lt(x)?.sum_all(),
        |x| x.ne(x)?.to_dtype(DType::F32)?.sum([0, 1], true),
        |x| x.full_like(1.0)?.add(&x.lt(x)?)?.sum_all(),
        |x| x.exp()?.sum_all(),
    ];
    for tier in ["vm", "cranelift", "x64"] {
        let options = CompileOptions { tier: Tier::from_name(tier), ..CompileOptions::default() };
        for (number, body) in bodies.into_iter().enumerate() {
            for sizes in [[3, 0], [0, 3], [0, 0]] {
                let x = Tensor::zeros(&sizes, DType::F32)?.mul(2.0)?;
                let found = compile_with(body, options.clone()).call(&x)?;
                assert_eq!(bits(&found)?, bits(&body(&x)?)?, "{tier}, body {number}, {sizes:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn inference_tensors_are_told_apart_and_kept_by_value() -> Result<()> {
    let inferred = |call: usize| -> Result<Tensor> {
        let _mode = inference_mode();
        ramp(&[4], call)
    };
    // A value of an inference tensor that the function makes a leaf, and a result of an inference mode inside.
    let keeps = |x: &Tensor| {
        let y = x.sin()?;
        y.set_requires_grad(true)?;
        let inner = {
            let _mode = inference_mode();
            x.sin()?
        };
        Ok((y.mul(&y)?.mul(&y)?, inner))
    };
    let writes = |x: &Tensor| {
        x.add_(1.0)?;
        x.exp()
    };
    let (kept, written) = (compile(keeps), compile(writes));
    for call in 0..4 {
        for input in [inferred(call)?, ramp(&[4], call)?] {
            let (expected, found) = (keeps(&input)?, kept.call(&input)?);
            assert_eq!((bits(&found.0)?, bits(&found.1)?), (bits(&expected.0)?, bits(&expected.1)?));
            assert_eq!((found.0.is_inference(), found.1.is_inference()), (false, true));
            found.0.sum_all()?.backward()?;
            let same = if input.is_inference() { inferred(call)? } else { input.copy()? };
            let outcome = |result: Result<Tensor>| result.and_then(|y| bits(&y)).map_err(|error| error.to_string());
            assert_eq!(outcome(written.call(&input)), outcome(writes(&same)));
        }
    }
    Ok(())
}
