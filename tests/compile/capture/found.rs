//! More classes of differences that random programs found: memory, checks, and where gradients flow.

use super::check::ramp;
use super::twins::{Twins, check_all, leaf_and_buffer};
use crate::bits::bits;
use crate::unplaced::unplaced;
use opfuse::autograd::{GradOptions, grad, no_grad};
use opfuse::{DType, Result, Tensor, compile};

/// A leaf of `[2, 2, 3]`, and buffers of `[1, 1]` and `[4, 4]`.
fn leaf_and_buffers() -> Result<Vec<Tensor>> {
    let captured = vec![ramp(&[2, 2, 3], 60)?, ramp(&[1, 1], 61)?, ramp(&[4, 4], 62)?];
    captured[0].set_requires_grad(true)?;
    Ok(captured)
}

#[test]
fn dims_of_one_element_have_the_strides_of_the_tensor_where_memory_is_viewed() {
    check_all(&[
        Twins::new("filled", |x, w| {
            w[1].zero_()?;
            let y = x[0].i(0..1)?.mul(2.0)?;
            y.fill_(3.0)?;
            Ok(vec![w[1].view_dtype(DType::F16)?, y.view_dtype(DType::I16)?, y.view_dtype(DType::U8)?.mul(2)?])
        })
        .captured(leaf_and_buffers),
        Twins::new("wider elements", |x, w| {
            let part = w[2].i((1..2, 0..2))?;
            let y = x[0].i(0..2)?.view([1, 2])?.exp()?;
            y.copy_(&part)?;
            Ok(vec![y.view_dtype(DType::F64)?.view_dtype(DType::I64)?])
        })
        .captured(leaf_and_buffers),
        Twins::new("written through a view of a view", |x, _| {
            let y = x[1].mul(2.0)?;
            let row = y.i(1..2)?;
            row.copy_(&x[0].view([1, 4])?)?;
            Ok(vec![row.view_dtype(DType::I16)?, y.as_strided([2, 1], [4, 1], Some(3))?.copy()?])
        }),
    ]);
}

#[test]
fn zero_divisors_are_found_in_values_that_are_overwritten() -> Result<()> {
    type Plant = fn(&Tensor) -> Result<Tensor>;
    let cases: [(&str, Plant); 5] = [
        ("filled", |x| {
            let y = x.remainder(x)?;
            y.fill_(1)?;
            Ok(y)
        }),
        ("zeroed", |x| {
            let y = x.floor_divide(x)?;
            y.zero_()?;
            y.add(1)
        }),
        ("copied over", |x| {
            let y = x.fmod(x)?;
            y.copy_(x)?;
            Ok(y)
        }),
        ("overwritten through views", |x| {
            let y = x.remainder(x)?;
            y.i(0..2)?.fill_(1)?;
            y.i(2..)?.fill_(2)?;
            Ok(y)
        }),
        ("looked at in part", |x| x.remainder(x)?.i(0..1)?.add(1)),
    ];
    for (name, function) in cases {
        let f = compile(function);
        for zero in [5i64, 0, 5, 0] {
            let x = Tensor::try_from(vec![3i64, 4, zero])?;
            let text = |result: Result<Tensor>| result.and_then(|y| bits(&y)).map_err(|error| unplaced(&error));
            assert_eq!(text(f.call(&x)), text(function(&x)), "{name}, {zero}");
        }
    }
    Ok(())
}

#[test]
fn windows_stay_in_the_memory_of_a_number() -> Result<()> {
    let function = |x: &Tensor, n: &Tensor| {
        n.as_strided([2], [1], None)?;
        x.mul(n)
    };
    let inside = |x: &Tensor, n: &Tensor| x.mul(n.as_strided([3, 1], [0, 5], None)?);
    let (f, g) = (compile(function), compile(inside));
    for call in 0..3 {
        let (x, n) = (ramp(&[4], call)?, Tensor::number(0.5 + call as f64)?);
        let text = |result: Result<Tensor>| result.and_then(|y| bits(&y)).map_err(|error| error.to_string());
        assert_eq!(text(f.call((&x, &n))), text(function(&x, &n)));
        assert!(text(f.call((&x, &n))).is_err_and(|error| error.contains("out of bounds for storage of size 8")));
        assert_eq!(text(g.call((&x, &n))), text(inside(&x, &n)));
    }
    Ok(())
}

#[test]
fn views_of_views_that_were_made_in_no_grad_mode_have_no_history() {
    check_all(&[
        Twins::new("of a written leaf", |x, w| {
            let inner = {
                let _quiet = no_grad();
                w[0].mul_(0.5)?;
                w[0].i(1..)?
            };
            Ok(vec![inner.i(0..2)?, x[0].mul(&w[0])?])
        })
        .any_way(),
        Twins::new("of a leaf", |x, w| {
            let inner = {
                let _quiet = no_grad();
                w[0].view([2, 2])?
            };
            Ok(vec![inner.t()?, x[0].mul(&w[0])?, inner.t()?.mul(2.0)?])
        }),
    ]);
}

#[test]
fn gradients_that_are_returned_and_kept_are_the_same_tensor() {
    check_all(&[
        Twins::new("of a leaf that the function made", |x, _| {
            let y = x[0].mul(2.0)?;
            y.set_requires_grad(true)?;
            let z = y.exp()?;
            y.backward_with(&x[0])?;
            Ok(vec![z, y.grad().expect("it was set")])
        })
        .any_way(),
        Twins::new("of a leaf that nothing keeps", |x, _| {
            let y = x[0].mul(2.0)?;
            y.set_requires_grad(true)?;
            y.exp()?.sum_all()?.backward()?;
            Ok(vec![y.grad().expect("it was set"), x[1].exp()?])
        }),
    ]);
}

#[test]
fn gradients_flow_on_through_inputs_that_have_a_history() -> Result<()> {
    let w = ramp(&[4], 5)?;
    w.set_requires_grad(true)?;
    let captured = w.clone();
    let options = GradOptions { retain_graph: true, allow_unused: true, create_graph: false };
    let of = move |x: &Tensor, of: &Tensor| -> Result<Tensor> {
        let found = grad(&[&x.square()?.sum_all()?], &[of], &[], options)?.pop().flatten();
        found.map_or_else(|| of.zeros_like(), Ok)
    };
    let function = move |x: &Tensor| of(x, &captured);
    let (f, both) = (compile(function.clone()), compile(of));
    for call in 0..4 {
        let x = w.mul(call as f64 + 1.0)?;
        assert_eq!(bits(&f.call(&x)?)?, bits(&function(&x)?)?, "call {call}");
        assert_eq!(bits(&both.call((&x, &w))?)?, bits(&of(&x, &w)?)?, "call {call}");
        let leaf = x.detach()?;
        leaf.set_requires_grad(true)?;
        assert_eq!(bits(&f.call(&leaf)?)?, bits(&function(&leaf)?)?, "call {call}");
        assert_eq!(bits(&both.call((&leaf, &leaf))?)?, bits(&of(&leaf, &leaf)?)?, "call {call}");
    }
    Ok(())
}

#[test]
fn gradients_of_zeros_are_there_as_in_eager_calls() {
    check_all(&[
        Twins::new("a write of no elements", |_, w| {
            let y = w[0].mul(2.0)?;
            let none = y.diagonal(3, 0, 2)?;
            none.add_(&none)?;
            Ok(vec![none.i((.., 0..0))?])
        })
        .captured(leaf_and_buffers),
        Twins::new("a part of no elements", |_, w| Ok(vec![w[0].mul(2.0)?.i((.., .., 1..1))?]))
            .captured(leaf_and_buffers),
        Twins::new("a slope without bounds", |_, w| {
            let y = w[0].sub(&w[0])?.add(1.0)?.asin()?;
            let none = y.diagonal(4, 0, 2)?;
            none.mul_(2.0)?;
            Ok(vec![none.i((.., 0..0))?, y.i((.., .., 3..))?])
        })
        .captured(leaf_and_buffers),
        Twins::new("formulas without their gradient", |x, w| Ok(vec![w[0].floor()?, x[0].mul(&w[0])?.sign()?])),
    ]);
}

/// Results of which a loss takes some alone.
#[test]
fn gradients_are_none_where_nothing_flows_and_zeros_where_zeros_flow() -> Result<()> {
    type Both = (Tensor, Tensor);
    let function = |x: &Tensor| Ok((x.floor()?, x.exp()?));
    let f = compile(function);
    for call in 0..3 {
        for which in 0..4 {
            let gradient = |run: &dyn Fn(&Tensor) -> Result<Both>| -> Result<Option<String>> {
                let x = ramp(&[4], call)?;
                x.set_requires_grad(true)?;
                let (a, b) = run(&x)?;
                let loss = match which {
                    0 => a.sum_all()?,
                    1 => b.sum_all()?,
                    2 => (a.sum_all()? + b.sum_all()?)?,
                    _ => (x.sin()?.sum_all()? + a.sum_all()?)?,
                };
                loss.backward()?;
                x.grad().map(|gradient| Ok(format!("{:?}", bits(&gradient)?))).transpose()
            };
            assert_eq!(gradient(&|x| f.call(x))?, gradient(&function)?, "call {call}, loss {which}");
        }
    }
    Ok(())
}

#[test]
fn inputs_are_not_overwritten_while_another_view_of_a_written_part_is_read() {
    check_all(&[
        Twins::new("a column that is added to all", |_, w| {
            let (first, third) = (w[2].select(-1, 0)?, w[2].select(-1, 2)?);
            first.fill_(-0.5)?;
            w[2].add_(&third)?;
            Ok(vec![])
        })
        .captured(leaf_and_buffers),
        Twins::new("a row, after two writes", |x, w| {
            w[2].i(1)?.copy_(&x[0])?;
            w[2].i((.., 3))?.mul_(2.0)?;
            w[2].mul_(w[2].i(1)?)?;
            Ok(vec![w[2].i(0)?.copy()?])
        })
        .captured(leaf_and_buffers),
        Twins::new("a value that is read later", |x, w| {
            w[2].i(1)?.copy_(&x[0])?;
            let sum = w[2].sum([0], false)?;
            w[2].exp_()?;
            Ok(vec![sum.add(&x[0])?])
        })
        .captured(leaf_and_buffers),
    ]);
}

#[test]
fn indices_out_of_range_are_found_where_a_part_is_used() -> Result<()> {
    type Plant = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let cases: [(&str, Plant); 3] = [
        ("a slice", |x, index| x.index_select(0, index)?.i(0..1)?.mul(2.0)),
        ("an element", |x, index| x.index_select(0, index)?.i(0)?.exp()),
        ("filled", |x, index| {
            let y = x.index_select(0, index)?;
            y.fill_(1.0)?;
            Ok(y)
        }),
    ];
    for (name, function) in cases {
        let f = compile(function);
        for bad in [1i64, 9, 2, -9] {
            let (x, index) = (ramp(&[4, 2], 1)?, Tensor::try_from(vec![0i64, 3, bad])?);
            let text = |result: Result<Tensor>| result.and_then(|y| bits(&y)).map_err(|error| unplaced(&error));
            assert_eq!(text(f.call((&x, &index))), text(function(&x, &index)), "{name}, {bad}");
        }
    }
    Ok(())
}

/// Leaves and views of leaves, which have a history.
fn views_of_leaves(call: usize) -> Result<Vec<Tensor>> {
    let leaves = [ramp(&[4], call)?, ramp(&[2, 4], call + 1)?];
    leaves.iter().try_for_each(|leaf| leaf.set_requires_grad(true))?;
    Ok(vec![leaves[0].alias()?, leaves[1].i(..)?])
}

#[test]
fn views_that_are_written_have_a_new_history() {
    check_all(&[Twins::new("read before and after", |x, _| {
        let before = x[0].exp()?;
        {
            let _quiet = no_grad();
            x[0].mul_(0.5)?;
        }
        Ok(vec![before, x[0].sin()?.add(&x[0])?, x[0].clone()])
    })
    .inputs(views_of_leaves)
    .captured(leaf_and_buffer)
    .any_way()]);
}

#[test]
fn writes_by_index_keep_the_payloads_of_places_that_they_do_not_touch() -> Result<()> {
    let function = |x: &Tensor, index: &Tensor, source: &Tensor| {
        let added = x.scatter_add(0, index, source)?;
        let most = x.scatter_reduce(0, index, source, "amax", true)?;
        x.scatter_add_(0, index, source)?;
        Ok((added, most))
    };
    let f = compile(function);
    for (dtype, infinity) in [(DType::F16, 0x7c00i16), (DType::BF16, 0x7f80)] {
        // Quiet and signaling NaNs of both signs, and a number.
        let words = [infinity + 3, infinity | 0x55, (infinity + 1) | i16::MIN, infinity + 2, 0x3c00];
        let given = || Tensor::try_from(words.to_vec())?.view_dtype(dtype);
        let index = Tensor::try_from(vec![3i64, 4])?;
        let source = ramp(&[2], 1)?.to_dtype(dtype)?;
        for _ in 0..3 {
            let (x, y) = (given()?, given()?);
            let (expected, found) = (function(&x, &index, &source)?, f.call((&y, &index, &source))?);
            for (one, other) in [(&expected.0, &found.0), (&expected.1, &found.1), (&x, &y)] {
                assert_eq!(bits(other)?, bits(one)?, "{dtype}");
                assert_eq!(one.view_dtype(DType::I16)?.to_vec::<i16>()?[..3], words[..3], "{dtype}");
            }
            assert_eq!(bits(&expected.0)?, bits(&x)?, "{dtype}");
        }
    }
    Ok(())
}

#[test]
fn constants_that_operators_make_belong_to_one_call() {
    check_all(&[Twins::new("indices of triangles", |x, _| {
        let lower = Tensor::tril_indices(3, 3, 0)?;
        let upper = Tensor::triu_indices(2, 3, 1)?;
        upper.add_(lower.i((.., 0..3))?)?;
        Ok(vec![lower, upper, x[0].exp()?])
    })]);
}
