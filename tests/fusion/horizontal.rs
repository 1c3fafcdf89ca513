//! Horizontal merging: small independent kernels over equal loops share a launch. Large ones would gain nothing.

use crate::values::{bits, uniform};
use opfuse::compile::{Compiled, compile};
use opfuse::error::Result;
use opfuse::{DType, Tensor};

const COUNT: usize = 5;

/// One step of gradient descent: parameters, then their gradients.
fn step(x: &[Tensor]) -> Result<Vec<Tensor>> {
    (0..COUNT).map(|index| &x[index] - (&x[COUNT + index] * 0.1)?).collect()
}

fn kernels(sizes: impl Fn(usize) -> Vec<usize>) -> Result<usize> {
    let inputs: Vec<Tensor> =
        (0..2 * COUNT).map(|at| uniform(at as u64 + 1, &sizes(at % COUNT), DType::F32)).collect::<Result<_>>()?;
    let compiled: Compiled<_, _> = compile(|x: &[Tensor]| step(x));
    let eager = step(&inputs)?;
    for _ in 0..2 {
        let found: Vec<Tensor> = compiled.call(&inputs[..])?;
        for (found, eager) in found.iter().zip(&eager) {
            assert_eq!((found.sizes(), bits(found)), (eager.sizes(), bits(eager)));
        }
    }
    Ok(compiled.explain().kernels_after)
}

#[test]
fn small_kernels_over_equal_loops_are_one() -> Result<()> {
    assert_eq!(kernels(|_| vec![16, 16])?, 1);
    Ok(())
}

#[test]
fn kernels_over_other_loops_are_not_merged() -> Result<()> {
    assert_eq!(kernels(|index| vec![16 + index, 16])?, COUNT);
    Ok(())
}

#[test]
fn large_kernels_are_not_merged() -> Result<()> {
    assert_eq!(kernels(|_| vec![512, 512])?, COUNT);
    Ok(())
}

#[test]
fn dependent_kernels_are_not_merged() -> Result<()> {
    // The second kernel reads a product of the first one's result.
    let body = |x: &Tensor, w: &Tensor| x.exp()?.mm(w)?.to_dtype(DType::F64)?.mm(&w.to_dtype(DType::F64)?)?.relu();
    let (x, w) = (uniform(1, &[6, 6], DType::F32)?, uniform(2, &[6, 6], DType::F32)?);
    let compiled = compile(body);
    for _ in 0..2 {
        assert_eq!(bits(&compiled.call((&x, &w))?), bits(&body(&x, &w)?));
    }
    Ok(())
}
