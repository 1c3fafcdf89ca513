//! Gradients against central differences, in f64, of first and of second order.

use crate::{fft, irfft, numbers, rfft};
use opfuse::autograd::{GradOptions, enable_grad, grad, gradcheck};
use opfuse::{DType, Result, Tensor, compile, vmap};

type Function = fn(&Tensor) -> Result<Tensor>;

/// Functions of a tensor of three dims, the last of which has the size 2.
const FUNCTIONS: &[(&str, Function)] = &[
    ("forward", |x| fft(x, 1, true, 0.5)),
    ("backward", |x| fft(x, 0, false, 2.0)),
    ("of real numbers", |x| rfft(x, 1, true, 0.5)),
    ("of real numbers along the last dim", |x| rfft(x, -1, true, 1.0)),
    ("of real numbers along the first dim", |x| rfft(x, -3, true, 1.0)),
    ("of real numbers, whole", |x| rfft(x, 1, false, 0.5)),
    ("to an even number of real numbers", |x| irfft(x, 1, 2 * x.sizes()[1] as i64 - 2, 0.5)),
    ("to an odd number of real numbers", |x| irfft(x, -2, 2 * x.sizes()[1] as i64 - 1, 0.5)),
    ("to real numbers along the first dim", |x| irfft(x, 0, 2 * x.sizes()[0] as i64 - 1, 1.0)),
    ("there and back", |x| irfft(&rfft(&x.square()?, 1, true, 1.0)?, 1, x.sizes()[1] as i64, 1.0)),
];

const SHAPES: [[usize; 3]; 5] = [[3, 4, 2], [2, 5, 2], [2, 2, 2], [1, 3, 2], [4, 7, 2]];

/// A copy that gradients are wanted for.
fn leaf(x: &Tensor) -> Result<Tensor> {
    let leaf = x.detach()?.copy()?;
    leaf.set_requires_grad(true)?;
    Ok(leaf)
}

/// The gradient of a sum of cubes, which depends on `x` in a nonlinear way.
fn gradient(function: Function, x: &Tensor) -> Result<Tensor> {
    let y = function(x)?;
    let y = y.mul(&y)?.mul(&y)?.sum((), false)?;
    let options = GradOptions { create_graph: true, ..GradOptions::default() };
    let found = grad(&[&y], &[x], &[None], options)?;
    found.into_iter().flatten().next().map_or_else(|| x.zeros_like(), Ok)
}

#[test]
fn are_slopes() -> Result<()> {
    let mut failures = Vec::new();
    for (name, function) in FUNCTIONS {
        for shape in SHAPES {
            let x = numbers(&shape, DType::F64)?;
            if let Err(error) = gradcheck(|x| function(&x[0]), &[&x], 1e-6, 1e-6) {
                failures.push(format!("{name} of {shape:?}: {error}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// A gradient is itself a function whose gradient is checked.
#[test]
fn have_slopes() -> Result<()> {
    let mut failures = Vec::new();
    for (name, function) in FUNCTIONS {
        for shape in &SHAPES[..3] {
            let x = numbers(shape, DType::F64)?;
            let of_leaf = |x: &[Tensor]| {
                let x = if x[0].requires_grad() { x[0].clone() } else { leaf(&x[0])? };
                let _recorded = enable_grad();
                gradient(*function, &x)
            };
            if let Err(error) = gradcheck(of_leaf, &[&x], 1e-5, 1e-4) {
                failures.push(format!("{name} of {shape:?}: {error}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// The gradient of one line is that of the line in a batch, eager and compiled, and under `vmap`.
#[test]
fn have_the_same_bits() -> Result<()> {
    for (name, function) in FUNCTIONS {
        let x = numbers(&[6, 3, 5, 2], DType::F64)?;
        let of = |x: &Tensor| -> Result<Tensor> {
            let x = leaf(x)?;
            gradient(*function, &x)
        };
        let each: Vec<Tensor> = (0..6).map(|at| of(&x.select(0, at)?)).collect::<Result<_>>()?;
        let expected = crate::bits(&opfuse::stack(&each.iter().collect::<Vec<_>>(), 0)?)?;
        let weighted = |x: &Tensor| -> Result<Tensor> {
            let y = vmap(*function).call(x)?;
            y.mul(&y)?.mul(&y)?.sum((), false)
        };
        let leaf = leaf(&x)?;
        let compiled = compile(weighted);
        for y in [weighted(&leaf)?, compiled.call(&leaf)?] {
            let found = grad(&[&y], &[&leaf], &[None], GradOptions::default())?;
            let found = found[0].as_ref().expect("it has a gradient");
            assert!(crate::bits(found)? == expected, "{name}");
        }
    }
    Ok(())
}
