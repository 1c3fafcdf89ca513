//! Mapped functions (lines 135, 136).

use crate::assert_error;
use opfuse::autograd::{self, GradOptions};
use opfuse::dispatch::{DispatchKey as K, Dispatcher, Library, Value};
use opfuse::internals::transforms::vmap::slow_calls;
use opfuse::{DType, Error, Result, Tensor, cat, compile, embedding, stack, vmap};

/// Distinct numbers.
fn numbers(sizes: &[usize]) -> Tensor {
    let n = sizes.iter().product::<usize>();
    let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37).sin() + i as f32 * 0.01).collect();
    Tensor::from_slice(&values, sizes).expect("as many elements")
}

fn ids(values: &[i64], sizes: &[usize]) -> Tensor {
    Tensor::from_slice(values, sizes).expect("as many elements")
}

#[track_caller]
fn close(found: &Tensor, expected: &Tensor) {
    assert_eq!((found.sizes(), found.dtype()), (expected.sizes(), expected.dtype()));
    let read = |tensor: &Tensor| tensor.to_dtype(DType::F64).and_then(|t| t.to_vec::<f64>()).expect("a cpu tensor");
    for (a, b) in read(found).into_iter().zip(read(expected)) {
        assert!(a == b || (a - b).abs() <= 1e-5 * (1.0 + b.abs()) || (a.is_nan() && b.is_nan()), "{a} is not {b}");
    }
}

/// Compares the mapped function, for every mapped dim of `x` and with `y` mapped or not, with one call per slice.
#[track_caller]
fn check(
    slices: usize,
    x: &[usize],
    y: &[usize],
    function: impl Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync + Copy,
) {
    let at = |sizes: &[usize], dim: usize| [&sizes[..dim], &[slices], &sizes[dim..]].concat();
    for dim in 0..=x.len() {
        for y_dim in [None, Some(0), Some(y.len())] {
            let (xs, ys) = (numbers(&at(x, dim)), y_dim.map_or(numbers(y), |dim| numbers(&at(y, dim))));
            let mapped = vmap(function).in_dims([Some(dim as i64), y_dim.map(|dim| dim as i64)]).call((&xs, &ys));
            let slice = |i: usize| {
                let y = y_dim.map_or(Ok(ys.clone()), |dim| ys.select(dim as i64, i as i64))?;
                function(&xs.select(dim as i64, i as i64)?, &y)
            };
            let expected = (0..slices).map(slice).collect::<Result<Vec<_>>>().expect("one slice");
            let expected = stack(&expected.iter().collect::<Vec<_>>(), 0).expect("slices of one shape");
            close(&mapped.unwrap_or_else(|error| panic!("{error}")), &expected);
        }
    }
}

#[test]
fn mapped_calls_equal_one_call_per_slice() {
    let slow = slow_calls();
    check(3, &[4], &[2, 4], |x, y| x.add(y)?.mul(2.0)?.exp());
    check(3, &[2, 1], &[4], |x, y| x.maximum(y));
    check(3, &[], &[4], |x, y| x.sub(y));
    check(3, &[2, 3], &[3], |x, y| x.gt(y)?.where_(x, y));
    check(3, &[2, 4], &[], |x, y| x.sum([-1], false)?.mul(y)?.add(x.amax((), true)?));
    check(3, &[2, 4], &[2], |x, y| x.argmax(1, false)?.to_dtype(DType::F32)?.add(y)?.add(x.argmin(None, false)?));
    check(3, &[], &[2], |x, y| x.sum([0], false)?.add(y)?.prod(0, true));
    check(2, &[3, 4], &[4], |x, y| x.softmax(-1)?.mul(y)?.log_softmax(0));
    check(2, &[3, 4], &[4], |x, y| x.layer_norm([4], Some(y), Some(y), 1e-5));
    check(2, &[3, 4], &[4], |x, y| x.var([0], 1, false)?.add(y)?.logsumexp([0], false)?.add(x.std((), 0, false)?));
    check(2, &[3, 4], &[4, 5], |x, y| x.mm(y));
    check(2, &[3, 4], &[4, 5], |x, y| y.t()?.mm(&x.t()?));
    check(3, &[2, 3, 4], &[2, 4, 5], |x, y| x.bmm(y));
    check(3, &[4], &[4], |x, y| x.dot(y));
    check(3, &[3, 4], &[4], |x, y| x.matmul(y)?.outer(y));
    check(3, &[3, 5], &[3, 5], |x, y| x.linear(y, None)?.tril(-1)?.add(x.triu(1)?.sum_all()?));
    check(3, &[3, 3], &[3, 3], |x, y| x.addmm_scaled(y, x, 0.5, 2.0));
    check(3, &[3, 4], &[2, 4], |x, y| cat(&[x, y], 0)?.slice(0, 1, None, 2));
    check(3, &[3], &[3], |x, y| stack(&[x, y], -1)?.select(-1, 1));
    check(3, &[1, 4], &[4], |x, y| x.squeeze(())?.unsqueeze(-1)?.expand([4, 2])?.t()?.add(y));
    check(3, &[2, 6], &[3], |x, y| {
        x.view([2, 2, 3])?.permute([1, 2, 0])?.transpose(-1, 0)?.squeeze(0)?.mul(&y.unsqueeze(1)?)
    });
    check(1, &[1, 4], &[4], |x, y| x.squeeze([0])?.add(y)?.squeeze(()));
    check(3, &[], &[], |x, y| x.t()?.transpose(0, -1)?.expand([2, 3])?.mul(y)?.reshape(6));
    check(3, &[3, 4], &[3], |x, y| x.diagonal(1, 0, -1)?.add(y));
    check(3, &[7], &[3, 2], |x, y| x.unfold(0, 2, 2)?.mul(y)?.unfold(-1, 2, 1)?.sum([-1], false));
    check(3, &[], &[1], |x, y| x.unfold(0, 1, 1)?.add(y));
    check(3, &[2, 4], &[], |x, y| x.as_strided([3], [2], None)?.add(y)?.detach());
    check(3, &[2, 4], &[], |x, y| x.contiguous()?.view_dtype(DType::I16)?.to_dtype(DType::F32)?.add(y));
    check(3, &[2, 4], &[4], |x, y| x.constant_pad_nd([1, -1, 1, 0], 2)?.select_scatter(y, 0, 1)?.flip([0, -1]));
    check(2, &[4], &[2, 2], |x, y| y.slice_scatter(&x.slice(0, 1, 3, 1)?.unsqueeze(0)?, 0, 1, None, 1));
    check(2, &[3], &[2, 3, 3], |x, y| y.diagonal_scatter(&x.expand([2, 3])?, 0, 1, 2)?.repeat([1, 2, 1]));
    assert_eq!(slow_calls(), slow, "every call had a rule");
}

#[test]
fn gathers_are_mapped() {
    let (table, wide) = (numbers(&[3, 5, 4]), ids(&[0, 4, 2, 1, 3, 3], &[3, 2]));
    let rows = vmap(|table: &Tensor, ids: &Tensor| embedding(table, ids));
    let selected = vmap(|table: &Tensor, ids: &Tensor| table.index_select(0, ids));
    for dims in [[Some(0), Some(0)], [Some(0), None], [None, Some(0)]] {
        let (t, i) = (dims[0].map_or(table.select(0, 1).expect("a table"), |_| table.clone()), wide.clone());
        let i = dims[1].map_or(i.select(0, 1).expect("ids"), |_| i);
        let slice = |n: i64| {
            let t = if dims[0].is_some() { t.select(0, n)? } else { t.clone() };
            embedding(&t, &if dims[1].is_some() { i.select(0, n)? } else { i.clone() })
        };
        let expected = (0..3).map(slice).collect::<Result<Vec<_>>>().expect("rows");
        let expected = stack(&expected.iter().collect::<Vec<_>>(), 0).expect("one shape");
        for function in [vmap(|t: &Tensor, i: &Tensor| embedding(t, i)).in_dims(dims).call((&t, &i)), {
            vmap(|t: &Tensor, i: &Tensor| t.index_select(0, i)).in_dims(dims).call((&t, &i))
        }] {
            close(&function.expect("a rule"), &expected);
        }
    }
    close(&rows.call((&table, &wide)).expect("rows"), &selected.call((&table, &wide)).expect("rows"));
    let gathered = vmap(|x: &Tensor, i: &Tensor| x.gather(-1, i)).in_dims([None, Some(0)]);
    let x = numbers(&[5]);
    close(
        &gathered.call((&x, &wide)).expect("a rule"),
        &x.index_select(0, &wide.reshape(6).expect("ids")).and_then(|y| y.view([3, 2])).expect("elements"),
    );
}

#[test]
fn n135_dims_count_without_the_mapped_one() {
    let x = numbers(&[2, 3, 4]);
    let last = vmap(|x: &Tensor| x.sum([-1], false)).call(&x).expect("sums");
    close(&last, &x.sum([2], false).expect("sums"));
    let first = vmap(|x: &Tensor| x.sum([0], false)).call(&x).expect("sums");
    close(&first, &x.sum([1], false).expect("sums"));
    assert_error(vmap(|x: &Tensor| x.sum([2], false)).call(&x), &["expected to be in range of [-2, 1], but got 2"]);
    // One level each.
    let nested = vmap(vmap(|x: &Tensor| {
        assert_eq!(x.sizes(), [4]);
        x.sum([0], false)
    }))
    .call(&x)
    .expect("sums");
    close(&nested, &last);
    let y = numbers(&[3, 4]);
    let outer = vmap(|x: &Tensor, y: &Tensor| vmap(|a: &Tensor, b: &Tensor| a.dot(b)).in_dims([0, 0]).call((x, y)));
    close(
        &outer.in_dims([Some(0), None]).call((&x, &y)).expect("dots"),
        &x.mul(&y).and_then(|z| z.sum([2], false)).expect("dots"),
    );
    let crossed = vmap(|x: &Tensor| vmap(move |a: &Tensor, b: &Tensor| a.mul(b)).in_dims([Some(0), None]).call((x, x)));
    let squares = crossed.call(&y).expect("products");
    close(&squares, &y.unsqueeze(2).and_then(|a| a.mul(&y.unsqueeze(1)?)).expect("products"));
}

#[test]
fn n135_out_dims_place_the_mapped_dim() {
    let x = numbers(&[2, 3, 4]);
    for (dim, order) in [(0, [0, 1, 2]), (1, [1, 0, 2]), (2, [1, 2, 0]), (-1, [1, 2, 0])] {
        close(
            &vmap(|x: &Tensor| x.neg()).out_dims(dim).call(&x).expect("a result"),
            &x.neg().and_then(|y| y.permute(order)).expect("a view"),
        );
    }
    assert_error(vmap(|x: &Tensor| x.neg()).out_dims(3).call(&x), &["out_dim", "[-3, 2], but got 3"]);
    // An output that does not depend on the mapped input is the same for every slice.
    let (y, z) =
        vmap(|x: &Tensor| Ok((Tensor::ones(&[5], DType::F32)?, x.neg()?))).out_dims([1, 0]).call(&x).expect("two");
    assert_eq!((y.sizes(), y.strides(), z.sizes()), (&[5, 2][..], &[1, 0][..], &[2, 3, 4][..]));
    let once = vmap(|_: &Tensor| Tensor::ones(&[5], DType::F32)).out_dims(None).call(&x).expect("one");
    assert_eq!(once.sizes(), [5]);
    assert_error(vmap(|x: &Tensor| x.neg()).out_dims(None).call(&x), &["out_dims is None", "depends on mapped"]);
}

#[test]
fn n136_what_cannot_be_mapped_is_refused() {
    let (three, two) = (numbers(&[3]), numbers(&[2]));
    let add = || vmap(|a: &Tensor, b: &Tensor| a.add(b));
    assert_error(add().call((&three, &two)), &["vmap: the mapped dims have sizes [3, 2]"]);
    assert_error(add().call((&three, 2.0)), &["argument 1 is a plain number"]);
    close(
        &add().in_dims([Some(0), None]).call((&three, 2.0)).expect("a number for all"),
        &three.add(2.0).expect("a sum"),
    );
    assert_error(add().in_dims(None).call((&three, &two)), &["no argument is mapped"]);
    assert_error(add().in_dims([0]).call((&three, &three)), &["in_dims has 1 entries for 2 tensors"]);
    assert_error(add().in_dims(1).call((&three, &three)), &["in_dim of argument 0", "[-1, 0], but got 1"]);
    let item = vmap(|x: &Tensor| x.mul(x.item::<f32>()?)).call(&three);
    assert_error(item, &["item() is not possible inside vmap"]);
    let branch = vmap(|x: &Tensor| if x.gt(0.0)?.item::<bool>()? { x.neg() } else { Ok(x.clone()) }).call(&three);
    assert_error(branch, &["data-dependent control flow is not possible inside vmap"]);
    let read = vmap(|x: &Tensor| Tensor::from_vec(x.to_vec::<f32>()?, &[])).call(&three);
    assert_error(read, &["to_vec", "cannot be read inside vmap"]);
    // A function that returns anything but tensors does not compile: `Outputs` are tensors.
}

#[test]
fn a_mapped_tensor_is_invalid_after_its_vmap() {
    let kept = std::sync::Mutex::new(None);
    let x = numbers(&[3]);
    vmap(|x: &Tensor| {
        *kept.lock().expect("no panic inside") = Some(x.clone());
        x.neg()
    })
    .call(&x)
    .expect("a result");
    let kept = kept.into_inner().expect("no panic inside").expect("the function was called");
    assert_error(kept.neg(), &["kept beyond the vmap"]);
}

#[test]
fn errors_name_the_sizes_of_one_slice() {
    let (x, y) = (numbers(&[3, 4]), numbers(&[3, 5]));
    let add = vmap(|a: &Tensor, b: &Tensor| a.add(b)).call((&x, &y));
    assert_error(add, &["tensor a (4) must match the size of tensor b (5)", "dimension 0"]);
    let failing = vmap(|_: &Tensor| Err::<Tensor, _>(Error::argument("f", "no"))).call(&x);
    assert_error(failing, &["f: no"]);
    close(&vmap(|a: &Tensor| a.neg()).call(&x).expect("the level ended"), &x.neg().expect("a result"));
}

#[test]
fn promotion_is_that_of_one_slice() {
    let wide = Tensor::from_slice(&[1.0f64, 2.0], &[2]).expect("two");
    let f = vmap(|wide: &Tensor, x: &Tensor| wide.add(x)).in_dims([Some(0), None]);
    // A slice of `wide` is 0-dim, so it does not raise the dtype of a tensor with dims.
    assert_eq!(f.call((&wide, &numbers(&[3]))).expect("a sum").dtype(), DType::F32);
    assert_eq!(f.call((&wide, &numbers(&[]))).expect("a sum").dtype(), DType::F64);
    let narrow = numbers(&[2]);
    let f = vmap(|x: &Tensor, wide: &Tensor| x.add(wide)).in_dims([Some(0), None]);
    assert_eq!(f.call((&narrow, &Tensor::scalar(1.0f64).expect("one"))).expect("a sum").dtype(), DType::F64);
}

#[test]
fn operators_without_a_rule_run_once_per_slice() {
    let mut library = Library::fragment("mapped").expect("a block");
    let double = |x: &Tensor| -> Result<(Tensor, Tensor)> {
        let values = x.to_vec::<f32>()?;
        let doubled: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
        Ok((Tensor::from_slice(&doubled, x.sizes())?, Tensor::scalar(values.len() as i64)?))
    };
    library.def("twice(Tensor x) -> (Tensor, Tensor)").expect("a definition");
    library.impl_for("twice", K::CPU, double).expect("a kernel");
    library.def("count(Tensor x) -> int").expect("a definition");
    library.impl_for("count", K::CPU, |x: &Tensor| Ok(x.numel() as i64)).expect("a kernel");
    library.def("write(Tensor(a!) x) -> ()").expect("a definition");
    library.impl_for("write", K::CPU, |_: &Tensor| Ok(())).expect("a kernel");
    let op = |name: &str| Dispatcher::global().lookup(name).expect("defined above");
    let (twice, count, write) = (op("mapped::twice"), op("mapped::count"), op("mapped::write"));
    let x = numbers(&[3, 2]);
    let (doubled, counts) =
        vmap(|x: &Tensor| twice.call::<(&Tensor,), (Tensor, Tensor)>((x,))).in_dims(1).call(&x).expect("slices");
    close(&doubled, &x.t().and_then(|x| x.mul(2.0)).expect("doubled"));
    assert_eq!(counts.to_vec::<i64>(), Ok(vec![3, 3]));
    let slow = slow_calls();
    assert!(slow.iter().any(|(reason, n)| reason.to_string().contains("mapped::twice") && *n == 1), "{slow:?}");
    let counted = vmap(|x: &Tensor| Tensor::scalar(count.call::<(&Tensor,), i64>((x,))?)).call(&x);
    assert_error(counted, &["mapped::count", "a value of type int per slice"]);
    let written = vmap(|x: &Tensor| write.call::<(&Tensor,), ()>((x,)).map(|()| x.clone())).call(&x);
    assert_error(written, &["mapped::write", "writes to an argument"]);
}

#[test]
fn vmap_over_no_slices_gives_none() {
    let x = numbers(&[0, 3]);
    let y = vmap(|x: &Tensor| x.exp()?.sum([0], false)).call(&x).expect("no slices");
    assert_eq!(y.sizes(), [0]);
}

#[test]
fn mapped_functions_compile() {
    let (x, w) = (numbers(&[3, 4]), numbers(&[4]));
    let scores = || vmap(|x: &Tensor, w: &Tensor| x.mul(w)?.softmax(0)?.dot(w)).in_dims([Some(0), None]);
    let eager = scores().call((&x, &w)).expect("eager");
    let outside = compile(scores());
    for _ in 0..2 {
        assert_eq!(outside.call((&x, &w)).and_then(|y| y.to_vec::<f32>()), eager.to_vec::<f32>());
    }
    assert!(outside.explain().kernels_after > 0);
    // Inside a mapped function, a compiled one is part of it.
    let inside = compile(|x: &Tensor, w: &Tensor| x.mul(w)?.softmax(0)?.dot(w));
    close(&vmap(|x: &Tensor| inside.call((x, &w))).call(&x).expect("eager"), &eager);
}

#[test]
fn mapped_values_of_meta_tensors() {
    let meta = numbers(&[3, 4]).ty();
    let x = Tensor::meta(&meta).expect("shapes");
    let y = vmap(|x: &Tensor| x.exp()?.sum([0], false)).call(&x).expect("shapes");
    assert_eq!((y.sizes(), y.has_data()), (&[3][..], false));
}

#[test]
fn boxed_calls_are_mapped_too() {
    let matmul = Dispatcher::global().lookup("aten::matmul").expect("an operator");
    let (x, y) = (numbers(&[2, 3, 4]), numbers(&[4]));
    let product = |x: &Tensor| {
        let mut results = matmul.invoke(vec![Value::Tensor(x.clone()), Value::Tensor(y.clone())], vec![])?;
        match results.pop() {
            Some(Value::Tensor(tensor)) => Ok(tensor),
            _ => Err(Error::argument("matmul", "no tensor")),
        }
    };
    close(&vmap(product).call(&x).expect("products"), &x.matmul(&y).expect("products"));
}

#[test]
fn scans_sorts_and_writes_by_index_are_mapped() {
    let slow = slow_calls();
    check(3, &[2, 4], &[2], |x, y| x.cumsum(-1)?.cumprod(0)?.sum([1], false)?.add(y)?.cumsum(0));
    check(3, &[], &[2], |x, y| x.cumsum(0)?.add(y)?.cumprod(0));
    check(2, &[3, 4], &[3, 4], |x, y| x.sort(0, true)?.0.add(&y.cummax(1)?.0)?.add(&x.topk(4, 1, false)?.0));
    check(2, &[4], &[3, 4], |x, y| y.gather(1, &x.argsort(0, false)?.expand([3, 4])?));
    check(2, &[4], &[4], |x, y| x.scatter_add(0, &y.argsort(0, true)?, y)?.scatter(0, &ids(&[2, 0], &[2]), y));
    check(2, &[4], &[2, 3], |x, y| x.scatter_reduce(0, &ids(&[1, 1, 3], &[3]), &y.select(0, 1)?, "amax", false));
    check(2, &[3, 4], &[2], |x, y| x.index(&[Some(ids(&[-1, 0], &[2])), Some(y.argsort(0, false)?)])?.mul(y));
    check(2, &[3, 4], &[4], |x, y| {
        x.index_put(&[Some(ids(&[1, 1], &[2]))], y, true)?.index_add(0, &ids(&[0], &[1]), &y.unsqueeze(0)?)
    });
    check(2, &[3, 4], &[4], |x, y| x.masked_scatter(&y.gt(0.3)?, x));
    assert_eq!(slow_calls(), slow, "every op has a rule");
}

fn gradient(of: &Tensor, by: &Tensor, upstream: Option<&Tensor>, options: GradOptions) -> Result<Tensor> {
    let found = autograd::grad(&[of], &[by], &[upstream], options)?;
    found.into_iter().next().flatten().ok_or_else(|| Error::argument("grad", "no gradient"))
}

/// The same elements as a leaf.
fn leaf(x: &Tensor) -> Result<Tensor> {
    let leaf = x.detach()?;
    leaf.set_requires_grad(true)?;
    Ok(leaf)
}

type Mapped<'a> = dyn Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync + 'a;

fn loss(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    x.matmul(w)?.tanh()?.square()?.sum((), false)
}

#[test]
fn gradients_taken_inside_are_those_of_each_slice() {
    let (xs, w) = (numbers(&[3, 2, 4]), numbers(&[4, 5]));
    let by_weight = |x: &Tensor, w: &Tensor| {
        let w = leaf(w)?;
        gradient(&loss(x, &w)?, &w, None, GradOptions::default())
    };
    let by_input = |x: &Tensor, w: &Tensor| {
        let x = leaf(x)?;
        gradient(&loss(&x, w)?, &x, None, GradOptions::default())
    };
    let twice = |x: &Tensor, w: &Tensor| {
        let x = leaf(x)?;
        let recorded = GradOptions { create_graph: true, ..GradOptions::default() };
        let first = gradient(&loss(&x, w)?, &x, None, recorded)?;
        gradient(&first.square()?.sum((), false)?, &x, None, GradOptions::default())
    };
    let through_views = |x: &Tensor, w: &Tensor| {
        let x = leaf(x)?;
        let y = x.t()?.slice(0, 1, None, 2)?.unsqueeze(0)?.softmax(-1)?.sum([0], false)?;
        gradient(
            &y.mul(&w.select(1, 0)?.slice(0, 0, 2, 1)?.unsqueeze(1)?)?.sum((), false)?,
            &x,
            None,
            GradOptions::default(),
        )
    };
    let functions: [&Mapped<'_>; 4] = [&by_weight, &by_input, &twice, &through_views];
    for (index, function) in functions.into_iter().enumerate() {
        let mapped = vmap(|x: &Tensor, w: &Tensor| function(x, w)).in_dims([Some(0), None]).call((&xs, &w));
        let slice = |i: i64| function(&xs.select(0, i)?, &w);
        let expected = (0..3).map(slice).collect::<Result<Vec<_>>>().expect("one slice");
        let expected = stack(&expected.iter().collect::<Vec<_>>(), 0).expect("slices of one shape");
        close(&mapped.unwrap_or_else(|error| panic!("function {index}: {error}")), &expected);
    }
}

#[test]
fn gradients_taken_outside_are_those_of_all_slices() {
    let (x, w) = (leaf(&numbers(&[3, 2, 4])).expect("a leaf"), leaf(&numbers(&[4, 5])).expect("a leaf"));
    let losses = vmap(|x: &Tensor, w: &Tensor| loss(x, w)).in_dims([Some(0), None]).call((&x, &w)).expect("losses");
    losses.sum((), false).and_then(|sum| sum.backward()).expect("a way back");
    let found = (x.grad().expect("a gradient"), w.grad().expect("a gradient"));
    x.set_grad(None).and_then(|()| w.set_grad(None)).expect("forgotten");
    loss(&x, &w).and_then(|sum| sum.backward()).expect("a way back");
    close(&found.0, &x.grad().expect("a gradient"));
    close(&found.1, &w.grad().expect("a gradient"));
}

#[test]
fn a_mapped_backward_pass_gives_the_jacobian() {
    let x = leaf(&numbers(&[4])).expect("a leaf");
    let y = x.softmax(0).expect("a result");
    let keep = GradOptions { retain_graph: true, ..GradOptions::default() };
    let rows = vmap(|row: &Tensor| gradient(&y, &x, Some(row), keep)).call(&Tensor::eye(4, DType::F32).expect("eye"));
    let y = y.detach().expect("values");
    let outer = y.unsqueeze(1).and_then(|column| column.mul(&y)).expect("products");
    let expected = Tensor::eye(4, DType::F32).and_then(|eye| eye.mul(&y)?.sub(&outer)).expect("the definition");
    close(&rows.expect("a jacobian"), &expected);
}

#[test]
fn writes_inside_go_to_every_slice() {
    let (x, y) = (numbers(&[3, 4]), numbers(&[3]));
    let written = x.copy().expect("a copy");
    let write = vmap(|x: &Tensor, y: &Tensor| {
        x.slice(0, 1, 3, 1)?.add_(y)?;
        x.mul_(2.0)?;
        Ok(x.clone())
    });
    let result = write.in_dims([0, 0]).call((&written, &y)).expect("a write");
    let mut expected = x.clone();
    let shift = Tensor::from_slice(&[0.0f32, 1.0, 1.0, 0.0], &[4]).expect("four");
    expected = expected.add(y.unsqueeze(1).and_then(|y| y.mul(&shift)).expect("a shift")).expect("a sum");
    expected = expected.mul(2.0).expect("doubled");
    close(&result, &expected);
    close(&written, &expected);
    // A target that is shared by all slices cannot hold a value of each.
    let refused = vmap(|y: &Tensor| x.select(0, 0)?.add_(y).map(|()| y.clone())).call(&y);
    assert_error(refused, &["copy_", "not mapped", "a value for each slice"]);
    // The history of a written tensor is that of each slice.
    let through = |x: &Tensor, y: &Tensor| {
        let y = leaf(y)?;
        let z = x.mul(&y)?;
        z.slice(0, 0, 2, 1)?.mul_(&y)?;
        gradient(&z.sum((), false)?, &y, None, GradOptions::default())
    };
    let found = vmap(through).in_dims([0, 0]).call((&x, &y)).expect("gradients");
    let slices = (0..3).map(|i| through(&x.select(0, i)?, &y.select(0, i)?)).collect::<Result<Vec<_>>>();
    let slices = slices.expect("gradients");
    close(&found, &stack(&slices.iter().collect::<Vec<_>>(), 0).expect("one shape"));
    // A write to a value that the backward pass saved is an error.
    let stale = vmap(|x: &Tensor| {
        let x = leaf(x)?;
        let (y, z) = (x.mul(1.0)?, x.mul(2.0)?);
        let product = y.mul(&z)?;
        y.add_(1.0)?;
        gradient(&product.sum((), false)?, &x, None, GradOptions::default())
    });
    assert_error(stale.call(&x), &["modified by an inplace operation"]);
}
