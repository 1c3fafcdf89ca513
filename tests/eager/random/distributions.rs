//! Distributions, by moments and by the largest distance of the empirical distribution function, at fixed seeds.

use super::{generator, numbers};
use opfuse::{DType, Result, Tensor};

/// The largest distance between the empirical distribution function and the given one, times the root of the count.
fn kolmogorov(mut sample: Vec<f64>, distribution: impl Fn(f64) -> f64) -> f64 {
    sample.sort_by(f64::total_cmp);
    let n = sample.len() as f64;
    let distance = |(at, &x): (usize, &f64)| {
        let expected = distribution(x);
        (expected - at as f64 / n).abs().max(((at + 1) as f64 / n - expected).abs())
    };
    sample.iter().enumerate().map(distance).fold(0.0, f64::max) * n.sqrt()
}

fn mean_and_variance(sample: &[f64]) -> (f64, f64) {
    let n = sample.len() as f64;
    let mean = sample.iter().sum::<f64>() / n;
    (mean, sample.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n)
}

/// The normal distribution function, by Simpson's rule.
fn normal(x: f64) -> f64 {
    let steps = 400;
    let h = x / f64::from(steps);
    let density = |t: f64| (-t * t / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let sum: f64 = (1..steps).map(|i| density(f64::from(i) * h) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
    0.5 + (density(0.0) + sum + density(x)) * h / 3.0
}

const N: usize = 20_000;
/// A bound that one sample of 10,000 exceeds.
const CRITICAL: f64 = 2.23;

#[test]
fn uniform_numbers_have_their_distribution() -> Result<()> {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        let tensor = generator(1).rand(&[N], dtype)?;
        assert_eq!(tensor.dtype(), dtype);
        let sample = numbers(&tensor);
        assert!(sample.iter().all(|x| (0.0..1.0).contains(x)), "{dtype}");
        let (mean, variance) = mean_and_variance(&sample);
        let grain = if dtype == DType::BF16 { 2e-3 } else { 3e-4 };
        assert!(
            (mean - 0.5).abs() < 0.01 + grain && (variance - 1.0 / 12.0).abs() < 2e-3,
            "{dtype}: {mean} {variance}"
        );
        // Numbers of few bits come in steps.
        let steps = if dtype == DType::BF16 { (N as f64).sqrt() / 256.0 } else { 0.1 };
        let distance = kolmogorov(sample, |x| x);
        assert!(distance < CRITICAL + steps, "{dtype}: {distance}");
    }
    Ok(())
}

#[test]
fn normal_numbers_have_their_distribution() -> Result<()> {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        let sample = numbers(&generator(2).randn(&[N], dtype)?);
        let (mean, variance) = mean_and_variance(&sample);
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "{dtype}: {mean} {variance}");
        let fourth = sample.iter().map(|x| x.powi(4)).sum::<f64>() / N as f64;
        assert!((fourth - 3.0).abs() < 0.25, "{dtype}: {fourth}");
        let neighbours = sample.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / N as f64;
        assert!(neighbours.abs() < 0.03, "{dtype}: {neighbours}");
        let halves = (0..N / 2).map(|i| sample[i] * sample[N / 2 + i]).sum::<f64>() / (N / 2) as f64;
        assert!(halves.abs() < 0.04, "{dtype}: {halves}");
        if dtype.size() >= 4 {
            let distance = kolmogorov(sample, normal);
            assert!(distance < CRITICAL, "{dtype}: {distance}");
        }
    }
    Ok(())
}

#[test]
fn whole_numbers_have_their_distribution() -> Result<()> {
    let sample = generator(3).randint(-3, 4, &[7 * N])?.to_vec::<i64>()?;
    let counts: Vec<usize> = (-3..4).map(|value| sample.iter().filter(|&&x| x == value).count()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 7 * N);
    let chi: f64 = counts.iter().map(|&count| (count as f64 - N as f64).powi(2) / N as f64).sum();
    assert!(chi < 27.9, "{counts:?}: 6 degrees of freedom, one sample of 10,000");
    // Ranges of any length, up to all of i64.
    for (low, high) in [(0, 1), (5, 6), (0, 1 << 40), (i64::MIN, i64::MAX), (-1 << 62, 1 << 62)] {
        let sample = generator(4).randint(low, high, &[N])?.to_vec::<i64>()?;
        assert!(sample.iter().all(|x| (low..high).contains(x)), "{low}..{high}");
        let length = high as f64 - low as f64;
        if length > 1e6 {
            let sample = sample.iter().map(|&x| (x as f64 - low as f64) / length).collect();
            assert!(kolmogorov(sample, |x| x) < CRITICAL, "{low}..{high}");
        }
    }
    Ok(())
}

#[test]
fn permutations_are_equally_likely() -> Result<()> {
    let generator = generator(5);
    for n in [0, 1, 2, 1000] {
        let mut order = generator.randperm(n)?.to_vec::<i64>()?;
        let moved = order.iter().enumerate().filter(|(at, to)| *at as i64 != **to).count();
        assert!(n < 1000 || moved > 950, "{moved}");
        order.sort_unstable();
        assert_eq!(order, (0..n as i64).collect::<Vec<_>>());
    }
    // All six orders of three are equally likely.
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..3000 {
        *counts.entry(generator.randperm(3)?.to_vec::<i64>()?).or_insert(0) += 1;
    }
    assert!(counts.len() == 6 && counts.values().all(|count| (400..600).contains(count)), "{counts:?}");
    Ok(())
}

#[test]
fn bools_have_their_distribution() -> Result<()> {
    let probabilities = Tensor::from_slice(&[0.0f32, 0.1, 0.5, 0.9, 1.0], &[5, 1])?.expand([5, N as i64])?;
    for dtype in [DType::F32, DType::F64, DType::F16] {
        let sample = generator(6).bernoulli(&probabilities.to_dtype(dtype)?)?;
        assert_eq!((sample.dtype(), sample.sizes()), (dtype, &[5, N][..]));
        let means: Vec<f64> = numbers(&sample).chunks(N).map(|row| mean_and_variance(row).0).collect();
        for (mean, expected) in means.iter().zip([0.0, 0.1, 0.5, 0.9, 1.0]) {
            let deviation: f64 = 4.0 * (expected * (1.0 - expected) / N as f64).sqrt();
            assert!((mean - expected).abs() <= deviation, "{dtype}: {means:?}");
        }
    }
    Ok(())
}
