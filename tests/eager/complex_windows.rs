//! Convolutions, running products and random numbers of complex tensors.

use num_complex::Complex64;
use opfuse::autograd::gradcheck;
use opfuse::nn::Convolution;
use opfuse::{DType, Result, Tensor, compile, manual_seed, vmap};

/// Complex numbers without a pattern.
fn numbers(sizes: &[usize]) -> Result<Tensor> {
    let count = sizes.iter().product::<usize>();
    let parts = |shift: usize| (0..count).map(move |at| ((at * 7919 + shift * 31) as f64).sin());
    let values: Vec<Complex64> = parts(1).zip(parts(2)).map(|(re, im)| Complex64::new(re, im)).collect();
    Tensor::from_slice(&values, sizes)
}

fn values(x: &Tensor) -> Result<Vec<Complex64>> {
    x.to_dtype(DType::Complex128)?.contiguous()?.to_vec()
}

/// The slow twin: a correlation along one dim, with padding.
fn correlated(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, pad: usize) -> Result<Vec<Complex64>> {
    let (xs, ws) = (x.sizes().to_vec(), weight.sizes().to_vec());
    let (x, w) = (values(x)?, values(weight)?);
    let bias = bias.map(values).transpose()?;
    let length = xs[2] + 2 * pad + 1 - ws[2];
    let mut out = Vec::new();
    for sample in 0..xs[0] {
        for channel in 0..ws[0] {
            for at in 0..length {
                let mut sum = bias.as_ref().map_or(Complex64::default(), |bias| bias[channel]);
                for inner in 0..ws[1] {
                    for tap in 0..ws[2] {
                        let place = at + tap;
                        if place >= pad && place - pad < xs[2] {
                            let element = x[(sample * xs[1] + inner) * xs[2] + place - pad];
                            sum += element * w[(channel * ws[1] + inner) * ws[2] + tap];
                        }
                    }
                }
                out.push(sum);
            }
        }
    }
    Ok(out)
}

fn close(found: &Tensor, expected: &[Complex64]) -> Result<()> {
    let found = values(found)?;
    assert_eq!(found.len(), expected.len());
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).norm()).fold(0.0, f64::max);
    assert!(worst < 1e-12, "off by {worst:e}");
    Ok(())
}

fn padded(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    x.conv1d(weight, bias, &Convolution { padding: 1.into(), ..Convolution::default() })
}

#[test]
fn convolutions_are_sums_of_products() -> Result<()> {
    let (x, weight, bias) = (numbers(&[2, 3, 7])?, numbers(&[4, 3, 3])?, numbers(&[4])?);
    close(&padded(&x, &weight, None)?, &correlated(&x, &weight, None, 1)?)?;
    close(&padded(&x, &weight, Some(&bias))?, &correlated(&x, &weight, Some(&bias), 1)?)?;
    // A real operand among complex ones.
    let (real_x, real_weight, real_bias) = (x.real()?, weight.imag()?, bias.real()?);
    close(&padded(&real_x, &weight, Some(&real_bias))?, &correlated(&real_x, &weight, Some(&real_bias), 1)?)?;
    close(&padded(&x, &real_weight, None)?, &correlated(&x, &real_weight, None, 1)?)?;
    close(&padded(&real_x, &real_weight, Some(&bias))?, &correlated(&real_x, &real_weight, Some(&bias), 1)?)?;
    // One row of two dims, and no sample.
    let plane = x.unsqueeze(2)?.conv2d(&weight.unsqueeze(2)?, Some(&bias), &Convolution::default())?;
    close(&plane, &correlated(&x, &weight, Some(&bias), 0)?)?;
    assert_eq!(padded(&numbers(&[0, 3, 7])?, &weight, None)?.sizes(), [0, 4, 7]);
    let of_pairs = |x: &[Tensor]| {
        let [x, weight, bias] = [&x[0], &x[1], &x[2]].map(Tensor::view_as_complex);
        padded(&x?, &weight?, Some(&bias?))?.view_as_real()
    };
    let pairs = [&x, &weight, &bias].map(|x| x.view_as_real().expect("it is complex"));
    gradcheck(of_pairs, &[&pairs[0], &pairs[1], &pairs[2]], 1e-6, 1e-6)?;
    let compiled = compile(move |x: &Tensor| padded(x, &numbers(&[4, 3, 3])?, None));
    assert_eq!(values(&compiled.call(&x)?)?, values(&padded(&x, &weight, None)?)?);
    assert!(padded(&x, &numbers(&[4, 2, 3])?, None).is_err());
    Ok(())
}

#[test]
fn running_products_multiply_one_after_another() -> Result<()> {
    for sizes in [&[1][..], &[0], &[9], &[3, 6]] {
        let x = numbers(sizes)?;
        let last = sizes[sizes.len() - 1];
        let mut expected = values(&x)?;
        for row in expected.chunks_mut(last.max(1)) {
            (1..row.len()).for_each(|at| row[at] *= row[at - 1]);
        }
        close(&x.cumprod(-1)?, &expected)?;
        gradcheck(|x| x[0].view_as_complex()?.cumprod(-1)?.view_as_real(), &[&x.view_as_real()?], 1e-6, 1e-6)?;
    }
    let x = numbers(&[4, 5])?;
    let rows = vmap(|x: &Tensor| x.cumprod(0)).call(&x)?;
    assert_eq!(values(&rows)?, values(&x.cumprod(1)?)?);
    assert!(x.cumprod(2).is_err());
    Ok(())
}

#[test]
fn random_complex_numbers_have_random_parts() -> Result<()> {
    manual_seed(3);
    let model = Tensor::zeros(&[20000], DType::Complex64)?;
    let normal = model.randn_like()?;
    assert_eq!((normal.dtype(), normal.sizes()), (DType::Complex64, model.sizes()));
    // Of PyTorch's definition, the variance of both parts together is 1.
    let size = normal.abs()?.square()?.mean((), false)?.to_dtype(DType::F64)?.item::<f64>()?;
    assert!((size - 1.0).abs() < 0.05, "{size}");
    let uniform = model.rand_like()?;
    for part in [uniform.real()?, uniform.imag()?] {
        let mean = part.mean((), false)?.to_dtype(DType::F64)?.item::<f64>()?;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        assert!(part.ge(0.0)?.logical_and(&part.lt(1.0)?)?.all((), false)?.item::<bool>()?);
    }
    Ok(())
}
