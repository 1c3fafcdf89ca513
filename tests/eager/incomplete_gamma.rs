//! The incomplete gamma functions against values of 40 digits, PyTorch's limits, and their derivatives.

use opfuse::autograd::{GradOptions, grad, gradcheck};
use opfuse::{DType, Result, Tensor, compile, vmap};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// `a`, `x`, and the lower and upper function, computed with 40 digits and rounded.
const VALUES: [[f64; 4]; 25] = [
    [1e-300, 0.5, 1.0, 5.597735947761608e-301],
    [1e-08, 0.001, 0.9999999366846083, 6.331539171908876e-08],
    [0.05, 1.5, 0.994664406120514, 0.005335593879485986],
    [0.5, 0.5, 0.6826894921370859, 0.3173105078629141],
    [0.5, 30.0, 0.9999999999999906, 9.485737571073848e-15],
    [1.0, 1e-300, 1e-300, 1.0],
    [0.9, 2.5, 0.9319872302284823, 0.06801276977151774],
    [2.0, 2.0, 0.5939941502901619, 0.40600584970983805],
    [3.5, 1.75, 0.16477451738965787, 0.8352254826103421],
    [7.25, 9.0, 0.7660348271696538, 0.2339651728303462],
    [9.99, 40.0, 0.9999999961312962, 3.868703748037562e-09],
    [12.0, 3.0, 7.13866289742066e-05, 0.9999286133710258],
    [25.0, 26.0, 0.6040734300001716, 0.39592656999982845],
    [29.9, 30.1, 0.5388229756190049, 0.461177024380995],
    [30.0, 30.0, 0.52428301389368, 0.4757169861063199],
    [31.0, 10.0, 7.983794659911185e-08, 0.9999999201620534],
    [40.0, 0.01, 1.213718369000149e-128, 1.0],
    [64.0, 200.0, 1.0, 9.367859514468868e-30],
    [100.0, 95.0, 0.3173568111698, 0.6826431888302],
    [100.0, 180.0, 0.999999999970517, 2.948294557648285e-11],
    [1000.0, 1100.0, 0.99894067674607, 0.0010593232539299773],
    [100000.0, 99000.0, 0.0007574199211747679, 0.9992425800788253],
    [1000000.0, 1002000.0, 0.9771959041012301, 0.022804095898769864],
    [1e10, 1e10, 0.5000013298076014, 0.4999986701923987],
    [1e14, 100000010000000.0, 0.8413447460685434, 0.15865525393145666],
];

fn column(at: usize) -> Result<Tensor> {
    let numbers: Vec<f64> = VALUES.iter().map(|row| row[at]).collect();
    Tensor::from_slice(&numbers, &[numbers.len()])
}

fn line(numbers: &[f64]) -> Result<Tensor> {
    Tensor::from_slice(numbers, &[numbers.len()])
}

fn bits(x: &Tensor) -> Result<Vec<u64>> {
    Ok(x.to_dtype(DType::F64)?.to_vec::<f64>()?.iter().map(|x| x.to_bits()).collect())
}

#[test]
fn values_are_exact_to_the_last_places() -> Result<()> {
    let (a, x) = (column(0)?, column(1)?);
    for (found, at) in [(a.igamma(&x)?, 2), (a.igammac(&x)?, 3)] {
        for (row, found) in VALUES.iter().zip(found.to_vec::<f64>()?) {
            let error = (found - row[at]).abs() / row[at];
            assert!(error <= 5e-14, "function {at} of {:?} is {}, not {found}: {error:e}", &row[..2], row[at]);
        }
    }
    Ok(())
}

#[test]
fn halves_sum_to_one_and_grow_with_x_across_all_formulas() -> Result<()> {
    for a in [0.01, 0.7, 1.0, 2.0, 5.0, 9.999, 10.0, 29.99, 30.0, 77.0, 1e3, 1e5, 1e9] {
        let width = f64::max(a, 1.0);
        let steps: Vec<f64> = (0..600).map(|step| width * f64::from(step).powi(2) / 1e5).collect();
        let x = line(&steps)?;
        let a_s = Tensor::from_slice(&[a], &[1])?;
        let (lower, upper) = (a_s.igamma(&x)?.to_vec::<f64>()?, a_s.igammac(&x)?.to_vec::<f64>()?);
        for (at, (low, high)) in lower.iter().zip(&upper).enumerate() {
            assert!((low + high - 1.0).abs() < 1e-14, "a {a}, x {}: {low} and {high}", steps[at]);
        }
        for at in 1..steps.len() {
            let (rise, fall) = (lower[at] - lower[at - 1], upper[at - 1] - upper[at]);
            assert!(rise >= -1e-13 * lower[at] && fall >= -1e-13 * upper[at - 1], "a {a}, x {}", steps[at]);
        }
    }
    Ok(())
}

#[test]
fn limits_are_those_of_pytorch() -> Result<()> {
    // Rows are `a`, columns `x`: what PyTorch 2.15 returns for the lower function.
    let numbers = [-1.0, 0.0, 1.0, INF, NAN];
    let lower = [
        [NAN, NAN, NAN, NAN, NAN],
        [NAN, NAN, 1.0, 1.0, NAN],
        [NAN, 0.0, 0.6321205588285577, 1.0, NAN],
        [NAN, 0.0, 0.0, NAN, 0.0],
        [NAN, 0.0, NAN, 1.0, NAN],
    ];
    let (a, x) = (line(&numbers)?.unsqueeze(1)?, line(&numbers)?.unsqueeze(0)?);
    let found = [a.igamma(&x)?, a.igammac(&x)?].map(|found| found.to_vec::<f64>().expect("f64"));
    for (at, expected) in lower.as_flattened().iter().enumerate() {
        for (found, expected) in [(found[0][at], *expected), (found[1][at], 1.0 - expected)] {
            let is_same = found.is_nan() && expected.is_nan() || (found - expected).abs() < 1e-15;
            assert!(is_same, "a {}, x {}: {found} is not {expected}", numbers[at / 5], numbers[at % 5]);
        }
    }
    Ok(())
}

#[test]
fn dtypes_forms_and_programs_agree() -> Result<()> {
    let (a, x) = (column(0)?.clamp(Some(0.25.into()), Some(1e4.into()))?, column(1)?.clamp_max(1e4)?);
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        // Narrower floats are the same values, rounded once.
        let (a, x) = (a.to_dtype(dtype)?, x.to_dtype(dtype)?);
        let wide = a.to_dtype(DType::F64)?.igammac(&x.to_dtype(DType::F64)?)?;
        assert_eq!(bits(&a.igammac(&x)?)?, bits(&wide.to_dtype(dtype)?)?, "{dtype}");
    }
    let ints = Tensor::try_from([1i64, 2])?;
    assert_eq!(ints.igamma(&ints)?.dtype(), DType::F32);
    assert_eq!(ints.igamma(&line(&[1.0, 2.0])?)?.dtype(), DType::F64);
    let expected = [bits(&a.igamma(&x)?)?, bits(&a.igammac(&x)?)?];
    let written = a.copy()?;
    written.igamma_(&x)?;
    assert_eq!(bits(&written)?, expected[0]);
    // The third call of a kind has long been one program.
    for _ in 0..3 {
        assert_eq!([bits(&a.igamma(&x)?)?, bits(&a.igammac(&x)?)?], expected);
    }
    let compiled = compile(|a: &Tensor, x: &Tensor| Ok((a.igamma(x)?, a.igammac(x)?)));
    let (lower, upper) = compiled.call((&a, &x))?;
    assert!(compiled.explain().eager.is_none(), "{}", compiled.explain());
    assert_eq!([bits(&lower)?, bits(&upper)?], expected);
    let mapped = vmap(|a: &Tensor, x: &Tensor| a.igamma(x));
    assert_eq!(bits(&mapped.call((&a, &x))?)?, expected[0]);
    for at in 0..VALUES.len() as i64 {
        let alone = a.narrow(0, at, 1)?.igamma(&x.narrow(0, at, 1)?)?;
        assert_eq!(bits(&alone)?, expected[0][at as usize..=at as usize]);
    }
    assert_eq!(a.narrow(0, 0, 0)?.igamma(&x.narrow(0, 0, 0)?)?.sizes(), [0]);
    let error = a.igamma(&x.narrow(0, 0, 2)?).expect_err("sizes differ").to_string();
    assert!(error.contains("[25]") && error.contains("[2]"), "{error}");
    Ok(())
}

/// The gradient of the sum of `y` by `x`.
fn gradient(y: &Tensor, x: &Tensor, create_graph: bool) -> Result<Tensor> {
    let options = GradOptions { create_graph, ..Default::default() };
    let found = grad(&[&y.sum((), false)?], &[x], &[None], options)?;
    Ok(found[0].clone().expect("it takes part"))
}

#[test]
fn derivatives_by_both_operands() -> Result<()> {
    let (a, x) = (line(&[0.5, 3.0, 12.0, 50.0])?, line(&[0.7, 2.5, 15.0, 45.0])?);
    x.set_requires_grad(true)?;
    let slope = gradient(&a.igamma(&x)?, &x, true)?;
    // x^(a - 1) exp(-x) / Γ(a), and its own slope.
    let found = slope.to_vec::<f64>()?;
    let expected = [(0.7f64 * std::f64::consts::PI).sqrt().recip() * (-0.7f64).exp(), 3.125 * (-2.5f64).exp()];
    assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-15), "{found:?}");
    let upper = gradient(&a.igammac(&x)?, &x, false)?;
    assert_eq!(bits(&upper)?, bits(&slope.neg()?)?);
    let twice = gradient(&slope, &x, false)?;
    let expected = slope.mul(&a.sub(1.0)?.div(&x)?.sub(1.0)?)?;
    assert!(twice.sub(&expected)?.abs()?.to_vec::<f64>()?.iter().all(|error| *error < 1e-14));
    // By `a`, with 40 digits.
    a.set_requires_grad(true)?;
    let found = gradient(&a.igamma(&x)?, &a, false)?.to_vec::<f64>()?;
    let expected = [-0.5313388305051272, -0.24711735748326824, -0.07499258464356513, -0.04554329214012388];
    assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-13), "{found:?}");
    let (a, x) = (a.detach()?, x.detach()?);
    gradcheck(|inputs: &[Tensor]| inputs[0].igamma(&inputs[1]), &[&a, &x], 1e-6, 1e-6)?;
    gradcheck(|inputs: &[Tensor]| inputs[0].igammac(&inputs[1]), &[&a, &x], 1e-6, 1e-6)?;
    // At 0 the slope is infinite, 1 or 0.
    let (a, x) = (line(&[0.5, 1.0, 2.0])?, line(&[0.0, 0.0, 0.0])?);
    x.set_requires_grad(true)?;
    assert_eq!(gradient(&a.igammac(&x)?, &x, false)?.to_vec::<f64>()?, [-INF, -1.0, 0.0]);
    Ok(())
}
