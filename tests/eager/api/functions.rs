//! Function transforms: values against formulas and differences, composed with each other, `vmap` and `compile`.

use opfuse::func::{SliceOfAll, grad, hessian, jacfwd, jacrev, jvp, linearize, value_and_grad, vjp};
use opfuse::{DType, Error, Result, Tensor, TensorStruct, compile, vmap};

fn line(numbers: &[f64]) -> Tensor {
    Tensor::from_slice(numbers, &[numbers.len()]).expect("a line")
}

fn close(found: &Tensor, expected: &[f64]) {
    let found = found.to_vec::<f64>().expect("numbers");
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= 1e-12 * expected.abs().max(1.0), "{found} for {expected}");
    }
}

/// `x0² x1 + sin(x1)`: the gradient is `(2 x0 x1, x0² + cos x1)`.
fn energy(x: &Tensor) -> Result<Tensor> {
    let (a, b) = (x.select(0, 0)?, x.select(0, 1)?);
    a.square()?.mul(&b)?.add(b.sin()?)
}

#[test]
fn gradients_are_those_of_the_formula_and_nothing_accumulates() -> Result<()> {
    let x = line(&[2.0, 3.0]);
    close(&grad(energy).call(&x)?, &[12.0, 4.0 + 3f64.cos()]);
    let (value, gradient) = value_and_grad(energy).call(&x)?;
    close(&value, &[12.0 + 3f64.sin()]);
    close(&gradient, &[12.0, 4.0 + 3f64.cos()]);
    assert!(!x.requires_grad() && !gradient.requires_grad() && !value.requires_grad());
    x.set_requires_grad(true)?;
    let gradient = grad(energy).call(&x)?;
    assert!(gradient.requires_grad() && x.grad().is_none(), "a gradient of what requires gradients is differentiable");
    gradient.sum_all()?.backward()?;
    close(&x.grad().expect("the sum of both rows of the Hessian"), &[6.0 + 4.0, 4.0 - 3f64.sin()]);
    Ok(())
}

#[test]
fn transforms_compose() -> Result<()> {
    let x = line(&[2.0, 3.0]);
    let second = [6.0, 4.0, 4.0, -3f64.sin()];
    close(&hessian(energy).call(&x)?, &second);
    close(&jacfwd(grad(energy)).call(&x)?, &second);
    close(&jacrev(jacfwd(energy)).call(&x)?, &second);
    close(&jacfwd(jacrev(energy)).call(&x)?, &second);
    let third = jacrev(hessian(energy)).call(&x)?;
    close(&third, &[0.0, 2.0, 2.0, 0.0, 2.0, 0.0, 0.0, -3f64.cos()]);
    // A gradient inside a gradient: the outer one sees the inner one's argument, and what it captures.
    let outer = grad(|x: &Tensor| {
        let slope = grad(|y: &Tensor| x.mul(y)?.square()?.sum_all()).call(&x.mul(2)?)?;
        slope.sum_all()
    });
    // d/dx of 2 x² y at y = 2 x is d/dx 4 x³.
    close(&outer.call(&line(&[3.0]))?, &[108.0]);
    Ok(())
}

#[test]
fn compiled_and_mapped_transforms_have_the_bits_of_plain_ones() -> Result<()> {
    let x = line(&[2.0, 3.0]);
    let rows = Tensor::try_from([[2.0, 3.0], [-1.0, 0.5], [0.0, 0.0]])?;
    let bits = |x: &Tensor| -> Result<Vec<u64>> { Ok(x.to_vec::<f64>()?.iter().map(|x| x.to_bits()).collect()) };
    let compiled = compile(grad(energy));
    assert_eq!(bits(&compiled.call(&x)?)?, bits(&grad(energy).call(&x)?)?);
    assert!(compiled.explain().eager.is_none(), "{}", compiled.explain());
    let compiled = compile(hessian(energy));
    assert_eq!(bits(&compiled.call(&x)?)?, bits(&hessian(energy).call(&x)?)?);
    assert!(compiled.explain().eager.is_none(), "{}", compiled.explain());
    let (mapped, compiled) = (vmap(grad(energy)), compile(vmap(grad(energy))));
    assert_eq!(bits(&compiled.call(&rows)?)?, bits(&mapped.call(&rows)?)?);
    for row in 0..3 {
        close(&mapped.call(&rows)?.select(0, row)?, &grad(energy).call(&rows.select(0, row)?)?.to_vec::<f64>()?);
    }
    let pushed = compile(|x: &Tensor, t: &Tensor| jvp(energy, x, t));
    let t = line(&[1.0, -1.0]);
    let (value, change) = pushed.call((&x, &t))?;
    close(&value, &[12.0 + 3f64.sin()]);
    close(&change, &[12.0 - 4.0 - 3f64.cos()]);
    Ok(())
}

#[test]
fn products_with_jacobians_agree_with_the_jacobian() -> Result<()> {
    let function = |x: &Tensor| x.exp()?.cumsum(0)?.mul(x);
    let x = line(&[0.3, -1.0, 0.8]);
    let jacobian = jacrev(function).call(&x)?;
    close(&jacfwd(function).call(&x)?, &jacobian.to_vec::<f64>()?);
    let (u, t) = (line(&[1.0, 2.0, -1.0]), line(&[0.5, 0.0, 3.0]));
    let (value, pullback) = vjp(function, &x)?;
    close(&value, &function(&x)?.to_vec::<f64>()?);
    close(&pullback.call(&u)?, &u.unsqueeze(0)?.mm(&jacobian)?.to_vec::<f64>()?);
    close(&pullback.call(&u)?, &u.unsqueeze(0)?.mm(&jacobian)?.to_vec::<f64>()?);
    let product = jacobian.mv(&t)?.to_vec::<f64>()?;
    close(&jvp(function, &x, &t)?.1, &product);
    let (value, linear) = linearize(function, &x)?;
    close(&value, &function(&x)?.to_vec::<f64>()?);
    close(&linear.call(&t)?, &product);
    let step = 1e-6;
    let moved = function(&x.add(&t.mul(step)?)?)?.sub(function(&x.sub(&t.mul(step)?)?)?)?.div(2.0 * step)?;
    for (found, expected) in product.iter().zip(moved.to_vec::<f64>()?) {
        assert!((found - expected).abs() < 1e-8, "{found} for {expected}");
    }
    Ok(())
}

#[derive(TensorStruct)]
struct Model {
    weight: Tensor,
    bias: Option<Tensor>,
    classes: Tensor,
    scale: f64,
}

#[test]
fn arguments_and_results_may_be_structures() -> Result<()> {
    let loss = |model: &Model, x: &Tensor| {
        let y = x.matmul(&model.weight)?.mul(model.scale)?;
        let y = model.bias.as_ref().map_or(Ok(y.clone()), |bias| y.add(bias))?;
        Ok((y.square()?.sum_all()?, y))
    };
    let model = |bias: Option<Tensor>| -> Result<Model> {
        Ok(Model { weight: line(&[1.0, 2.0]), bias, classes: Tensor::arange(0, 3, 1)?, scale: 2.0 })
    };
    let x = Tensor::try_from([[1.0, -1.0]])?;
    let ((value, aux), gradient) = value_and_grad(loss).call((&model(Some(line(&[1.0])))?, &x))?;
    close(&value, &[1.0]);
    close(&aux, &[-1.0]);
    close(&gradient.weight, &[-4.0, 4.0]);
    close(gradient.bias.as_ref().expect("it had one"), &[-2.0]);
    assert_eq!((gradient.scale, gradient.classes.to_vec::<i64>()?), (2.0, vec![0; 3]));
    let gradient = grad(loss).call((&model(None)?, &x))?;
    assert!(gradient.bias.is_none());
    // All tensors of a slice.
    let all = grad(|xs: &[Tensor]| xs[0].mul(&xs[1])?.sum_all());
    let SliceOfAll(found) = all.call([&line(&[2.0]), &line(&[5.0])])?;
    close(&found[0], &[5.0]);
    close(&found[1], &[2.0]);
    Ok(())
}

#[test]
fn constants_and_empty_arguments_have_gradients_of_zeros() -> Result<()> {
    let x = line(&[1.0, 2.0]);
    close(&grad(|_: &Tensor| Tensor::scalar(3.0f64)).call(&x)?, &[0.0, 0.0]);
    close(&jacrev(|x: &Tensor| x.zeros_like()).call(&x)?, &[0.0; 4]);
    close(&jacfwd(|x: &Tensor| x.zeros_like()).call(&x)?, &[0.0; 4]);
    close(&jvp(|x: &Tensor| x.zeros_like(), &x, &x)?.1, &[0.0, 0.0]);
    let none = Tensor::zeros(&[0], DType::F64)?;
    assert_eq!(jacrev(|x: &Tensor| x.exp()).call(&none)?.sizes(), [0, 0]);
    assert_eq!(jacfwd(|x: &Tensor| x.exp()).call(&none)?.sizes(), [0, 0]);
    assert_eq!(grad(|x: &Tensor| x.sum_all()).call(&none)?.sizes(), [0]);
    // A number, and a function that is linear, so that its second derivative is zero.
    close(&grad(|x: &Tensor| x.mul(3.0)).call(&Tensor::scalar(1.0f64)?)?, &[3.0]);
    close(&hessian(|x: &Tensor| x.sum_all()).call(&x)?, &[0.0; 4]);
    Ok(())
}

#[test]
fn misuse_is_an_error() {
    let x = line(&[1.0, 2.0]);
    let text = |error: Error| error.to_string();
    let many = grad(|x: &Tensor| x.exp()).call(&x).map_err(text).expect_err("two numbers");
    assert!(many.contains("grad") && many.contains("[2]") && many.contains("jacrev"), "{many}");
    let failed = grad(|x: &Tensor| x.reshape([5])).call(&x).map_err(text).expect_err("a shape");
    assert!(failed.contains("reshape"), "{failed}");
    let tangent = jvp(|x: &Tensor| x.exp(), &x, &line(&[1.0])).map_err(text).expect_err("another shape");
    assert!(tangent.contains("jvp") && tangent.contains("[1]") && tangent.contains("[2]"), "{tangent}");
    // The depth is as before after an error: a result has no history.
    assert!(!grad(energy).call(&x).expect("a gradient").requires_grad());
}
