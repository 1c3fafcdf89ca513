//! Poisson numbers are quantiles of the uniform numbers of the same draw.

use super::{generator, numbers, turn};
use opfuse::{DType, Device, Generator, Randomness, Result, Tensor, compile, vmap};

/// Rates on both sides of each change of formula.
const RATES: [f64; 11] = [0.0, 1e-9, 0.4, 3.0, 9.99, 10.0, 14.5, 33.0, 250.0, 1e4, 3e7];

fn rates(count: usize) -> Result<Tensor> {
    Tensor::from_slice(&RATES, &[RATES.len(), 1])?.expand([RATES.len() as i64, count as i64])?.copy()
}

#[test]
fn numbers_are_quantiles_of_one_uniform_number_each() -> Result<()> {
    const COUNT: usize = 400;
    let rates = rates(COUNT)?;
    let found = numbers(&generator(5).poisson(&rates)?);
    let uniform = numbers(&generator(5).rand(&[RATES.len(), COUNT], DType::F64)?);
    for (row, rate) in RATES.into_iter().enumerate() {
        let row = row * COUNT..(row + 1) * COUNT;
        for (&k, &u) in found[row.clone()].iter().zip(&uniform[row]) {
            assert!(k >= 0.0 && k.fract() == 0.0, "{k} of {rate}");
            // The distribution function is above the uniform number at k, and not before.
            let at = |k: f64| -> Result<f64> {
                if k < 0.0 {
                    return Ok(0.0);
                }
                if rate > 50.0 {
                    return Tensor::try_from([k + 1.0])?.igammac(&Tensor::try_from([rate])?)?.item::<f64>();
                }
                let (mut term, mut sum) = ((-rate).exp(), 0.0);
                for j in 0..=k as i64 {
                    sum += term;
                    term *= rate / (j + 1) as f64;
                }
                Ok(sum)
            };
            assert!(at(k)? > u - 1e-13 && at(k - 1.0)? <= u + 1e-13, "{k} of rate {rate} for {u}");
        }
    }
    Ok(())
}

#[test]
fn means_and_variances_are_the_rates() -> Result<()> {
    const COUNT: usize = 20_000;
    for dtype in [DType::F64, DType::F32] {
        let sample = generator(8).poisson(&rates(COUNT)?.to_dtype(dtype)?)?;
        assert_eq!((sample.dtype(), sample.sizes()), (dtype, &[RATES.len(), COUNT][..]));
        for (rate, row) in RATES.into_iter().zip(numbers(&sample).chunks(COUNT)) {
            let mean = row.iter().sum::<f64>() / COUNT as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / COUNT as f64;
            let deviation = (rate / COUNT as f64).sqrt();
            assert!((mean - rate).abs() <= 4.0 * deviation + 1e-4, "{dtype}: mean {mean} of {rate}");
            // The fourth moment is 3 λ² + λ.
            let spread = 4.0 * ((2.0 * rate * rate + rate) / COUNT as f64).sqrt();
            assert!((variance - rate).abs() <= spread + 1e-4, "{dtype}: variance {variance} of {rate}");
        }
    }
    Ok(())
}

#[test]
fn compiled_and_mapped_draws_have_the_same_bits() -> Result<()> {
    let _turn = turn();
    let rates = rates(3)?;
    opfuse::manual_seed(2);
    let expected = [numbers(&rates.poisson()?), numbers(&rates.poisson()?)];
    assert_ne!(expected[0], expected[1]);
    opfuse::manual_seed(2);
    let compiled = compile(|rates: &Tensor| rates.poisson());
    for expected in &expected {
        assert_eq!(numbers(&compiled.call(&rates)?), *expected);
    }
    assert!(compiled.explain().eager.is_none(), "{}", compiled.explain());
    opfuse::manual_seed(2);
    let mapped = vmap(|rates: &Tensor| rates.poisson()).randomness(Randomness::Different).call(&rates)?;
    assert_eq!(numbers(&mapped), expected[0]);
    // A number depends on its own rate and word alone.
    let first = generator(4).poisson(&rates)?;
    let others = generator(4).poisson(&rates.narrow(0, 3, 1)?.expand([RATES.len() as i64, 3])?)?;
    assert_eq!(numbers(&first.narrow(0, 3, 1)?), numbers(&others.narrow(0, 3, 1)?));
    Ok(())
}

#[test]
fn rates_that_are_none() -> Result<()> {
    let rates = Tensor::try_from([-1.0f32, f32::NAN, f32::INFINITY, -0.0])?;
    rates.set_requires_grad(true)?;
    let drawn = generator(1).poisson(&rates)?;
    assert!(!drawn.requires_grad());
    let drawn = drawn.to_vec::<f32>()?;
    assert!(drawn[0].is_nan() && drawn[1].is_nan() && drawn[2] == f32::INFINITY && drawn[3] == 0.0, "{drawn:?}");
    assert_eq!(generator(1).poisson(&Tensor::zeros(&[0, 3], DType::F16)?)?.sizes(), [0, 3]);
    let meta = Tensor::zeros(&[4], DType::BF16)?.to_device(Device::META)?.poisson()?;
    assert_eq!((meta.sizes(), meta.dtype()), (&[4][..], DType::BF16));
    let error = Tensor::try_from([1i64])?.poisson().expect_err("i64").to_string();
    assert!(error.contains("poisson") && error.contains("i64"), "{error}");
    let error = Generator::new(Device::cuda(0)).poisson(&Tensor::try_from([1.0])?).expect_err("cuda").to_string();
    assert!(error.contains("'cuda'"), "{error}");
    Ok(())
}
