//! The history of results: which of them require gradients, from what, and with which bits, however a call runs.

use super::check::ramp;
use super::twins::{Twins, check_all, leaf_and_buffer, leaves};
use opfuse::autograd::{enable_grad, inference_mode, no_grad};
use opfuse::dispatch::{Dispatcher, Value};
use opfuse::{DType, Result, Tensor};

#[test]
fn results_of_captured_tensors_alone_keep_their_history() {
    check_all(&[
        Twins::new("one of the input, one of a captured leaf", |x, w| {
            Ok(vec![(&x[0] * &w[0])?.sum_all()?, w[0].square()?.sum_all()?])
        }),
        Twins::new("of a captured leaf alone", |_, w| Ok(vec![w[0].square()?.exp()?])),
        Twins::of_leaves("beside leaves", |x, w| Ok(vec![(&x[0] * &w[0])?, w[0].square()?, w[1].exp()?])),
        Twins::of_leaves("the captured tensors themselves", |x, w| Ok(vec![x[0].exp()?, w[0].clone(), w[1].clone()])),
        Twins::new("a view of a captured leaf", |x, w| Ok(vec![w[0].view([2, 2])?, (&x[0] * &w[0])?])),
        Twins::new("a view of a value of a captured leaf", |x, w| {
            let square = w[0].square()?;
            Ok(vec![square.i(1..3)?, square.view([2, 2])?, x[0].exp()?])
        }),
    ]);
}

#[test]
fn writes_that_sever_a_history_leave_a_result_that_requires_gradients() {
    check_all(&[
        Twins::of_leaves("zero_", |x, _| {
            let y = x[0].relu()?;
            y.zero_()?;
            Ok(vec![y])
        }),
        Twins::of_leaves("fill_, beside another result", |x, _| {
            let y = x[0].relu()?;
            y.fill_(3.0)?;
            Ok(vec![y, x[0].exp()?])
        }),
        Twins::of_leaves("copy_ of a detached tensor", |x, w| {
            let y = x[0].relu()?;
            y.copy_(&w[1])?;
            Ok(vec![y])
        }),
        Twins::of_leaves("a part is zeroed", |x, _| {
            let y = x[1].mul(3.0)?;
            y.i(0)?.zero_()?;
            Ok(vec![y])
        }),
        Twins::of_leaves("all of a result that saved itself: backward is an error", |x, _| {
            let y = x[0].relu()?;
            y.i(0..2)?.zero_()?;
            Ok(vec![y])
        })
        .any_way(),
        Twins::new("of a captured leaf", |x, w| {
            let y = w[0].relu()?;
            y.zero_()?;
            Ok(vec![y, x[0].exp()?])
        }),
    ]);
}

#[test]
fn captured_buffers_may_be_written_while_gradients_are_recorded() {
    check_all(&[
        Twins::of_leaves("a running mean", |x, w| {
            w[1].mul_(0.9)?;
            w[1].add_(x[0].detach()?)?;
            Ok(vec![x[0].mul(&w[1])?.sum_all()?])
        }),
        Twins::of_leaves("written after its use", |x, w| {
            let y = x[0].mul(&x[1])?.exp()?;
            w[1].copy_(&y.i(0)?.detach()?)?;
            Ok(vec![y])
        }),
        Twins::of_leaves("used, then written: backward is an error", |x, w| {
            let y = x[0].mul(&w[1])?;
            w[1].add_(1.0)?;
            Ok(vec![y])
        })
        .any_way(),
        Twins::of_leaves("written through a view", |x, w| {
            w[1].i(1..3)?.mul_(2.0)?;
            Ok(vec![x[0].mul(&w[1])?])
        }),
        Twins::of_leaves("written with a value that requires gradients", |x, w| {
            w[1].copy_(&x[0])?;
            Ok(vec![w[1].exp()?])
        })
        .any_way(),
        Twins::of_leaves("a view of it is", |x, w| {
            w[1].i(0..2)?.copy_(&x[0].i(0..2)?)?;
            Ok(vec![w[1].exp()?])
        })
        .any_way(),
    ]);
}

#[test]
fn inputs_that_are_written_and_returned_are_as_in_eager_calls() {
    check_all(&[
        Twins::new("an input", |x, _| {
            x[0].add_(1.0)?;
            Ok(vec![x[0].clone()])
        }),
        Twins::new("a leaf in no-grad mode", |x, w| {
            let _quiet = no_grad();
            w[0].add_(&x[0])?;
            Ok(vec![w[0].clone()])
        }),
        Twins::of_leaves("an input leaf in no-grad mode", |x, w| {
            {
                let _quiet = no_grad();
                x[0].add_(&w[1])?;
            }
            Ok(vec![x[0].clone(), x[0].exp()?])
        })
        .any_way(),
        Twins::new("a leaf in no-grad mode, and a view of it", |x, w| {
            let _quiet = no_grad();
            w[0].add_(&x[0])?;
            Ok(vec![w[0].clone(), w[0].i(1..3)?])
        }),
        Twins::new("a captured view of a leaf in no-grad mode", |x, w| {
            let _quiet = no_grad();
            w[2].add_(&x[0])?;
            Ok(vec![w[2].clone()])
        })
        .captured(|| {
            let mut captured = leaf_and_buffer()?;
            captured.push(captured[0].alias()?);
            Ok(captured)
        }),
        Twins::of_leaves("a leaf is refused", |x, _| {
            x[0].add_(1.0)?;
            Ok(vec![x[0].clone()])
        })
        .any_way(),
    ]);
}

#[test]
fn gradients_of_inputs_that_are_results_are_added_in_eagers_order() {
    check_all(&[
        Twins::of_leaves("the input itself", |x, _| {
            Ok(vec![x[0].clone(), x[0].mul(0.3)?, x[0].mul(0.7)?, x[0].exp()?])
        }),
        Twins::of_leaves("a view of it", |x, _| {
            Ok(vec![x[1].i(0)?, x[1].mul(0.3)?.add(x[1].sin()?)?, x[1].mul(0.7)?, x[1].t()?])
        }),
        Twins::of_leaves("a captured leaf", |x, w| {
            Ok(vec![w[0].clone(), x[0].mul(&w[0])?.add(w[0].sin()?)?, w[0].mul(0.7)?])
        }),
        Twins::of_leaves("a leaf used before the views of a value", |x, _| {
            let y = x[1].mul(0.3)?;
            Ok(vec![y.i(0)?, y.i(1)?, y.exp()?, x[1].clone(), x[1].tanh()?])
        }),
    ]);
}

#[test]
fn results_without_a_gradient_contribute_nothing() {
    // A zero times an infinite slope would be NaN.
    let weighed = |x: &[Tensor], _: &[Tensor]| {
        let zero = x[0].mul(0.0)?;
        let detour = zero.log()?;
        let both = x[0].mul(2.0)?;
        let _unused = detour.detach()?;
        Ok(vec![both, detour.detach()?])
    };
    check_all(&[Twins::of_leaves("a detached detour", weighed)]);
    let f = opfuse::compile(|x: &Tensor| Ok((x.mul(2.0)?, x.mul(0.0)?.log()?, x.mul(0.5)?.exp()?)));
    for call in 0..3 {
        let x = leaves(call).expect("there is memory").remove(0);
        let (double, _infinite, half) = f.call(&x).expect("it runs");
        (double.sum_all().expect("a sum") + half.sum_all().expect("a sum"))
            .and_then(|loss| loss.backward())
            .expect("there is a history");
        let slope = x.grad().expect("it reached the leaf").to_vec::<f32>().expect("on the cpu");
        assert!(slope.iter().all(|slope| slope.is_finite()), "call {call}: {slope:?}");
    }
}

#[test]
fn captured_values_of_captured_leaves_get_their_gradients_once() {
    check_all(&[
        Twins::new("a leaf and its square", |x, w| Ok(vec![x[0].mul(&w[0])?.add(&w[2])?, w[2].exp()?]))
            .captured(leaf_buffer_and_square),
        Twins::of_leaves("the same of leaves", |x, w| Ok(vec![x[0].mul(&w[2])?.mul(&w[0])?]))
            .captured(leaf_buffer_and_square),
        Twins::new("a value that is written: its history changes", |x, w| {
            w[2].mul_(&x[0])?;
            Ok(vec![w[2].clone()])
        })
        .captured(leaf_buffer_and_square)
        .any_way(),
    ]);
}

/// A leaf, a buffer, and the square of the leaf with its history.
fn leaf_buffer_and_square() -> Result<Vec<Tensor>> {
    let mut captured = leaf_and_buffer()?;
    captured.push(captured[0].square()?);
    Ok(captured)
}

#[test]
fn views_and_detached_views_of_one_value_stay_aliases() {
    check_all(&[
        Twins::new("a view and a detached one that is written", |x, _| {
            let b = x[0].mul(2.0)?;
            let (a, d) = (b.i(0..2)?, b.i(1..4)?.detach()?);
            d.add_(1.0)?;
            Ok(vec![a, d])
        }),
        Twins::of_leaves("the same of a leaf", |x, _| {
            let b = x[0].mul(2.0)?;
            let (a, d) = (b.i(0..2)?, b.i(1..4)?.detach()?);
            Ok(vec![a, d])
        }),
        Twins::new("detached of detached", |x, _| {
            let b = x[1].exp()?;
            let d = b.detach()?.i(1)?;
            let e = d.i(1..3)?.detach()?;
            e.mul_(2.0)?;
            Ok(vec![b.i((.., 1))?, d, e])
        }),
        Twins::new("a view of the input, detached", |x, _| {
            let d = x[1].i(1)?.detach()?;
            d.mul_(2.0)?;
            Ok(vec![x[1].i((.., 1..3))?, d])
        }),
    ]);
}

#[test]
fn views_made_in_inference_mode_see_writes() {
    let quietly: &[(&'static str, super::twins::Function)] = &[
        ("linear", |x, _| {
            let v = x[0].view([1, 2, 2])?.linear(&x[0].view([2, 2])?, None)?;
            v.relu_()?;
            let _read = x[0].sum_all()?.item::<f32>()?;
            Ok(vec![v])
        }),
        ("view of a product", |x, _| {
            let v = x[0].mul(2.0)?.view([2, 2])?;
            v.relu_()?;
            let _read = x[0].sum_all()?.item::<f32>()?;
            Ok(vec![v])
        }),
        ("roll and repeat_interleave", |x, _| {
            let (a, b) = (x[1].roll([1i64], [1i64])?, x[0].repeat_interleave(2, Some(0))?);
            a.relu_()?;
            b.relu_()?;
            let _read = x[0].sum_all()?.item::<f32>()?;
            Ok(vec![a, b])
        }),
        ("matmul", |x, _| {
            let v = x[1].view([2, 2, 2])?.matmul(&x[0].view([2, 2])?)?;
            v.relu_()?;
            let _read = v.sum_all()?.item::<f32>()?;
            Ok(vec![v])
        }),
        ("a base and its view, both written", |x, _| {
            let b = x[1].mul(2.0)?;
            let v = b.i(1)?;
            v.relu_()?;
            b.add_(1.0)?;
            let _read = v.sum_all()?.item::<f32>()?;
            v.mul_(3.0)?;
            Ok(vec![b, v])
        }),
        ("without a read", |x, _| {
            let b = x[1].mul(2.0)?;
            let v = b.i(1)?;
            v.relu_()?;
            Ok(vec![b, v])
        }),
    ];
    let cases: Vec<Twins> = quietly.iter().map(|&(name, function)| Twins::new(name, function).any_way()).collect();
    check_all(&cases);
    let _inference = inference_mode();
    check_all(&cases);
}

#[test]
fn inputs_that_are_captured_tensors_too_are_the_same_tensors() {
    check_all(&[
        Twins::new("a captured number", |x, w| Ok(vec![w[2].clone(), x[0].mul(&w[2])?]))
            .captured(leaf_buffer_and_number),
        Twins::new("captured tensors that share memory", |x, w| {
            w[4].copy_(&w[3])?;
            Ok(vec![w[3].add(&x[0].i(0..2)?)?])
        })
        .captured(parts_of_one_memory)
        .any_way(),
    ]);
    for is_leaf in [false, true] {
        let w = leaf_and_buffer().expect("there is memory").remove(usize::from(!is_leaf));
        let captured = w.clone();
        let f = opfuse::compile(move |x: &Tensor| Ok((captured.detach()?, x.mul(&captured)?)));
        for call in 0..4 {
            let other = ramp(&[4], call).expect("there is memory");
            let given = if call % 2 == 0 { &other } else { &w };
            let (detached, product) = f.call(given).expect("it runs");
            assert!(detached.is_alias_of(&w), "call {call}");
            if is_leaf {
                product.sum_all().and_then(|sum| sum.backward()).expect("it has a history");
                let gradient = w.grad().expect("it reached the leaf").to_vec::<f32>().expect("on the cpu");
                let given = given.to_vec::<f32>().expect("on the cpu");
                let times = if call % 2 == 0 { 1.0 } else { 2.0 };
                assert_eq!(gradient, given.iter().map(|x| x * times).collect::<Vec<_>>(), "call {call}");
                w.set_grad(None).expect("a leaf");
            }
        }
    }
}

/// Elements, and indices that are out of range.
fn bad(call: usize) -> Result<Vec<Tensor>> {
    Ok(vec![ramp(&[4], call)?, Tensor::from_slice(&[7i64, 0], &[2])?])
}

#[test]
fn values_out_of_range_are_found_wherever_they_are() {
    check_all(&[
        Twins::new("a result that nobody uses", |x, _| {
            let _unused = x[0].index_select(0, &x[1])?;
            x[0].exp().map(|y| vec![y])
        })
        .inputs(bad),
        Twins::new("a value that is overwritten", |x, _| {
            let picked = x[0].index_select(0, &x[1])?;
            picked.zero_()?;
            Ok(vec![picked])
        })
        .inputs(bad),
        Twins::new("after a write to a captured tensor, with gradients", |x, w| {
            w[1].add_(1.0)?;
            Ok(vec![x[0].index_select(0, &x[1])?])
        })
        .inputs(|call| {
            let inputs = bad(call)?;
            inputs[0].set_requires_grad(true)?;
            Ok(inputs)
        })
        .any_way(),
        Twins::new("a gradient of a table that nobody uses", |x, _| {
            let grad = x[0].view([2, 2])?;
            let table = Dispatcher::global().lookup("aten::embedding_dense_backward")?;
            let (grad, index) = (Value::Tensor(grad), Value::Tensor(x[1].clone()));
            let args = vec![grad, index, Value::Int(3), Value::Int(-1), Value::Bool(false)];
            let _unused = table.invoke(args, Vec::new())?;
            Ok(vec![x[0].exp()?])
        })
        .inputs(bad),
        Twins::new("indices of a longer dim", |x, _| {
            let _unused = x[0].view([2, 2])?.index_select(0, &x[0].argsort(0, true)?)?;
            Ok(vec![x[0].exp()?])
        })
        .inputs(bad),
        Twins::new("an integer that is divided by", |x, _| {
            let _unused = x[1].remainder(&x[1].mul(0)?)?;
            Ok(vec![x[0].exp()?])
        })
        .inputs(bad),
    ]);
}

/// A leaf, a buffer, and a plain number.
pub(super) fn leaf_buffer_and_number() -> Result<Vec<Tensor>> {
    let mut captured = leaf_and_buffer()?;
    captured.push(Tensor::number(0.5)?);
    Ok(captured)
}

/// A leaf, a buffer, a memory, and two parts of it that share an element.
fn parts_of_one_memory() -> Result<Vec<Tensor>> {
    let mut captured = leaf_and_buffer()?;
    let memory = ramp(&[6], 33)?;
    let part = |start: usize| {
        let array = memory.array();
        let layout =
            opfuse::ir::Layout { sizes: [2].into_iter().collect(), strides: [1].into_iter().collect(), offset: start };
        opfuse::internals::runtime::Array::from_storage(array.storage().clone(), DType::F32, layout)
            .map(Tensor::from_array)
    };
    captured.extend([memory.clone(), part(1)?, part(2)?]);
    Ok(captured)
}

#[test]
fn segments_return_the_inputs_themselves() {
    check_all(&[
        Twins::new("read, then returned", |x, _| {
            let _read = x[0].sum_all()?.item::<f32>()?;
            Ok(vec![x[0].clone(), x[1].i(0)?])
        })
        .any_way(),
        Twins::new("written with a value that requires gradients", |x, w| {
            x[0].copy_(&w[0])?;
            Ok(vec![x[0].exp()?, x[0].clone()])
        })
        .any_way(),
    ]);
}

#[test]
fn results_that_the_function_makes_leaves_are_leaves() {
    check_all(&[
        Twins::new("a value", |x, _| {
            let t = x[0].add(0.5)?;
            t.set_requires_grad(true)?;
            Ok(vec![t])
        })
        .any_way(),
        Twins::new("a value of which another one is computed", |x, _| {
            let t = x[0].add(0.5)?;
            t.set_requires_grad(true)?;
            Ok(vec![t.exp()?])
        }),
        Twins::new("a captured tensor", |x, w| {
            w[1].set_requires_grad(true)?;
            Ok(vec![x[0].mul(&w[1])?])
        })
        .any_way(),
        Twins::of_leaves("a view of a plain tensor", |x, w| {
            let v = w[1].i(0..2)?;
            v.set_requires_grad(true)?;
            Ok(vec![v, x[0].exp()?])
        })
        .any_way(),
    ]);
}

#[test]
fn data_is_an_alias_with_a_version_of_its_own() {
    check_all(&[
        Twins::new("of a value", |x, _| {
            let t = x[0].add(1.0)?;
            let u = t.data();
            Ok(vec![u.neg()?, t])
        }),
        Twins::of_leaves("of an input and of a captured leaf", |x, w| Ok(vec![x[0].data(), w[0].data(), x[0].exp()?])),
        Twins::new("written", |x, _| {
            let t = x[0].add(1.0)?;
            t.data().mul_(2.0)?;
            Ok(vec![t.exp()?, t])
        }),
        Twins::new("written where it is an input", |x, _| {
            x[0].data().mul_(2.0)?;
            x[1].add_(1.0)?;
            x[1].data().add_(1.0)?;
            Ok(vec![x[0].exp()?])
        }),
        Twins::new("alone", |x, _| Ok(vec![x[0].data()])),
        Twins::new("read", |x, _| {
            let t = x[0].exp()?;
            let sum = t.data().sum_all()?.item::<f32>()?;
            Ok(vec![t.data().mul(f64::from(sum))?])
        })
        .any_way(),
    ]);
}

#[test]
fn writes_to_overlapping_elements_read_what_was_there() {
    let overlapping = |call: usize| {
        let x = ramp(&[16], call)?;
        Ok(vec![x.as_strided([4, 2], [3, 3], Some(0))?, ramp(&[4, 2], call + 7)?])
    };
    check_all(&[
        Twins::new("exp_", |x, _| {
            x[0].exp_()?;
            Ok(vec![x[0].mul(2.0)?])
        })
        .inputs(overlapping)
        .any_way(),
        Twins::new("add_ of another tensor", |x, _| {
            x[0].add_(&x[1])?;
            Ok(vec![x[0].sum_all()?])
        })
        .inputs(overlapping)
        .any_way(),
    ]);
}

#[test]
fn copies_made_by_view_methods_may_be_written_later() {
    check_all(&[
        Twins::of_leaves("a folded matmul in no-grad mode", |x, w| {
            let v = {
                let _quiet = no_grad();
                x[1].view([2, 2, 2])?.matmul(&w[1].view([2, 2])?)?
            };
            v.mul_(&w[0].view([2, 2])?)?;
            Ok(vec![v])
        }),
        Twins::of_leaves("a reshape that copies in no-grad mode", |x, w| {
            let v = {
                let _quiet = no_grad();
                x[1].t()?.reshape([8])?
            };
            let _recorded = enable_grad();
            v.i(0..4)?.mul_(&w[0])?;
            Ok(vec![v])
        }),
        Twins::of_leaves("flatten that copies in no-grad mode", |x, w| {
            let v = {
                let _quiet = no_grad();
                x[1].t()?.flatten(0, -1)?
            };
            v.i(0..4)?.mul_(&w[0])?;
            Ok(vec![v])
        }),
    ]);
}

#[test]
fn written_views_of_values_keep_their_strides() {
    check_all(&[
        Twins::new("a transposed column", |x, _| {
            let v = x[1].mul(2.0)?.t()?.i((.., 0..1))?;
            v.add_(1.0)?;
            Ok(vec![v])
        }),
        Twins::new("a column", |x, _| {
            let v = x[1].mul(2.0)?.i((.., 0..1))?;
            v.add_(1.0)?;
            Ok(vec![v])
        }),
        Twins::new("no elements", |x, _| {
            let v = x[1].i(0..0)?;
            v.add_(1.0)?;
            Ok(vec![v.reshape([0])?, v.contiguous()?, v.mul(2.0)?, x[1].i(0..0)?.exp()?])
        }),
        Twins::new("a stepped slice", |x, _| {
            let v = x[1].exp()?.view([8])?.slice(0, Some(1), Some(8), 3)?;
            v.mul_(2.0)?;
            Ok(vec![v])
        }),
    ]);
}

#[test]
fn windows_of_computed_values_show_eagers_memory() {
    check_all(&[
        Twins::new("of a computed value", |x, _| {
            Ok(vec![
                x[1].mul(2.0)?.as_strided([3, 2], [2, 1], Some(1))?,
                x[1].t()?.exp()?.as_strided([8], [1], Some(0))?,
            ])
        })
        .any_way(),
        Twins::new("outside the window of an input", |x, _| Ok(vec![x[0].as_strided([2], [1], Some(4))?.exp()?]))
            .inputs(|call| Ok(vec![ramp(&[8], call)?.i(2..6)?]))
            .any_way(),
        Twins::new("of a written part of a larger memory", |x, _| {
            x[0].sub_(1.0)?;
            Ok(vec![x[0].as_strided([3], [2], Some(3))?])
        })
        .inputs(|call| Ok(vec![ramp(&[8], call)?.i(2..6)?]))
        .any_way(),
        Twins::new("a computed value in f64", |x, _| {
            Ok(vec![x[1].to_dtype(DType::F64)?.t()?.mul(2.0)?.as_strided([2, 2], [4, 1], Some(0))?])
        })
        .any_way(),
    ]);
}

/// A leaf and a buffer, and leaves as inputs: what all cases are called with.
#[test]
fn the_twins_of_these_tests_have_leaves() -> Result<()> {
    let all: Vec<Tensor> = leaves(0)?.into_iter().chain(leaf_and_buffer()?).collect();
    let flags: Vec<bool> = all.iter().map(Tensor::requires_grad).collect();
    assert_eq!(flags, [true, true, true, false]);
    Ok(())
}
