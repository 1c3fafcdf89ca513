//! Fourier transforms and spectrograms against their definition.

use crate::complex_numbers::check_within;
use num_complex::Complex64;
use opfuse::autograd::gradcheck;
use opfuse::{DType, Result, Tensor, compile};

fn check(what: &str, found: &Tensor, expected: impl IntoIterator<Item = Complex64>) -> Result<()> {
    check_within(1e-12, what, found, expected)
}

/// Real numbers without a pattern.
fn noise(n: usize) -> Vec<f64> {
    (0..n).map(|at| ((at * at * 31 + 7 * at) % 101) as f64 / 50.0 - 1.0).collect()
}

fn generic() -> Result<Tensor> {
    let (re, im) = (noise(49), noise(98));
    let all: Vec<Complex64> = re.iter().zip(&im[49..]).map(|(&re, &im)| Complex64::new(re, im)).collect();
    Tensor::from_slice(&all, &[7, 7])
}

/// The transform by its definition, along the last dim.
fn transform(line: &[Complex64], sign: f64) -> Vec<Complex64> {
    let n = line.len();
    let root = |power: usize| Complex64::cis(sign * std::f64::consts::TAU * (power % n) as f64 / n as f64);
    (0..n).map(|k| line.iter().enumerate().map(|(j, x)| x * root(j * k)).sum()).collect()
}

#[test]
fn fourier_transforms_are_those_of_the_definition() -> Result<()> {
    for n in [1usize, 2, 3, 5, 8, 12, 17, 30] {
        let line: Vec<Complex64> =
            (0..n).map(|at| Complex64::new((at * at % 7) as f64 - 2.0, (at % 3) as f64)).collect();
        let z = Tensor::from_slice(&line, &[n])?;
        check("fft", &z.fft(None, -1)?, transform(&line, -1.0))?;
        check("ifft", &z.ifft(None, -1)?, transform(&line, 1.0).into_iter().map(|z| z / n as f64))?;
        let (x, reals) = (z.real()?, line.iter().map(|z| z.re.into()).collect::<Vec<Complex64>>());
        let whole = transform(&reals, -1.0);
        check("fft of reals", &x.fft(None, 0)?, whole.iter().copied())?;
        check("rfft", &x.rfft(None, 0)?, whole[..n / 2 + 1].iter().copied())?;
        let back = x.rfft(None, 0)?.irfft(n, 0)?;
        for (found, expected) in back.to_vec::<f64>()?.iter().zip(x.to_vec::<f64>()?) {
            assert!((found - expected).abs() < 1e-12);
        }
        let padded: Vec<Complex64> = line.iter().copied().chain([Complex64::default(); 2]).collect();
        check("padded", &z.fft(n + 2, 0)?, transform(&padded, -1.0))?;
        if n > 1 {
            check("cut", &z.fft(n - 1, 0)?, transform(&line[..n - 1], -1.0))?;
        }
    }
    Ok(())
}

#[test]
fn fourier_transforms_along_several_dims() -> Result<()> {
    let z = generic()?;
    let both = z.fft(None, 0)?.fft(None, 1)?.to_vec::<Complex64>()?;
    check("fftn", &z.fftn(())?, both.iter().copied())?;
    check("ifftn", &z.fftn(())?.ifftn(())?, z.to_vec::<Complex64>()?)?;
    let x = z.real()?.copy()?;
    check("rfftn", &x.rfftn(())?, x.fftn(())?.slice(1, 0, 4, 1)?.to_vec::<Complex64>()?)?;
    let even = x.slice(1, 0, 6, 1)?;
    let back = even.rfftn([0, 1])?.irfftn([0, 1])?;
    for (found, expected) in back.to_vec::<f64>()?.iter().zip(even.to_vec::<f64>()?) {
        assert!((found - expected).abs() < 1e-12);
    }
    assert_eq!(Tensor::arange(0, 5, 1)?.fftshift(())?.to_vec::<i64>()?, [3, 4, 0, 1, 2]);
    assert_eq!(Tensor::arange(0, 5, 1)?.fftshift(())?.ifftshift(())?.to_vec::<i64>()?, [0, 1, 2, 3, 4]);
    let compiled = compile(|z: &Tensor| z.fft(None, 0)?.abs());
    for _ in 0..3 {
        assert_eq!(compiled.call(&z)?.to_vec::<f64>()?, z.fft(None, 0)?.abs()?.to_vec::<f64>()?);
    }
    let power = |x: &[Tensor]| x[0].rfft(None, 1)?.abs()?.square();
    gradcheck(power, &[&x.slice(0, 0, 2, 1)?], 1e-6, 1e-6)?;
    for error in
        [z.rfft(None, 0), z.fft(0, 0), z.fft(None, 2), z.fftn([0, 0]), Tensor::zeros(&[0], DType::F32)?.fft(None, 0)]
    {
        assert!(error.is_err());
    }
    assert_eq!(Tensor::ones(&[4], DType::I64)?.fft(None, 0)?.dtype(), DType::Complex64);
    Ok(())
}

/// A window that is not symmetric.
fn window(n: usize) -> Vec<f64> {
    (0..n).map(|at| 0.3 + (at as f64 / n as f64).powi(2)).collect()
}

#[test]
fn spectrograms_are_transforms_of_windows() -> Result<()> {
    const N: usize = 8;
    let (signal, factors) = (noise(41), window(N));
    let x = Tensor::from_slice(&signal, &[41])?;
    let w = Tensor::from_slice(&factors, &[N])?;
    let spectra = x.stft(N, 3, Some(&w))?;
    // Continued by reflection, which does not repeat the edge.
    let at = |place: i64| signal[place.unsigned_abs().min((80 - place).unsigned_abs()) as usize];
    let n_frames = 1 + 41 / 3;
    assert_eq!(spectra.sizes(), [N / 2 + 1, n_frames]);
    for frame in 0..n_frames {
        let part = |j: usize| (at((3 * frame + j) as i64 - 4) * factors[j]).into();
        let line: Vec<Complex64> = (0..N).map(part).collect();
        check("a window", &spectra.select(1, frame as i64)?, transform(&line, -1.0)[..N / 2 + 1].iter().copied())?;
    }
    let back = spectra.istft(N, 3, Some(&w))?;
    let len = back.numel();
    assert_eq!(len, 3 * (n_frames - 1));
    for (found, expected) in back.to_vec::<f64>()?.iter().zip(&signal) {
        assert!((found - expected).abs() < 1e-12);
    }
    let batch = opfuse::stack(&[&x, &x.neg()?], 0)?;
    let both = batch.stft(N, 3, Some(&w))?;
    check("a batch", &both.select(0, 0)?, spectra.to_vec::<Complex64>()?)?;
    assert_eq!(both.istft(N, 3, Some(&w))?.sizes(), [2, len]);
    assert_eq!(x.stft(N, 2, None)?.sizes(), [N / 2 + 1, 21]);
    // Dtypes of signal and window are promoted.
    let (narrow, window) = (x.to_dtype(DType::F32)?, w.to_dtype(DType::F32)?);
    let wide = narrow.to_dtype(DType::F64)?;
    let promoted = narrow.stft(N, 3, Some(&w))?;
    assert_eq!(promoted.dtype(), DType::Complex128);
    check("promoted", &promoted, wide.stft(N, 3, Some(&w))?.to_vec::<Complex64>()?)?;
    let compiled = compile(|x: &Tensor, w: &Tensor| x.stft(N, 3, Some(w))).call((&narrow, &w))?;
    assert_eq!(compiled.dtype(), DType::Complex128);
    assert_eq!(compiled.to_vec::<Complex64>()?, promoted.to_vec::<Complex64>()?);
    assert_eq!(narrow.stft(N, 3, Some(&window))?.dtype(), DType::Complex64);
    assert_eq!(narrow.stft(N, 3, None)?.dtype(), DType::Complex64);
    assert_eq!(narrow.stft(N, 3, Some(&window))?.istft(N, 3, Some(&w))?.dtype(), DType::F64);
    assert_eq!(spectra.istft(N, 3, Some(&window))?.dtype(), DType::F64);
    assert_eq!(narrow.stft(N, 3, Some(&window))?.istft(N, 3, Some(&window))?.dtype(), DType::F32);
    let phases = w.to_dtype(DType::Complex128)?;
    assert_eq!(x.stft(N, 3, Some(&phases))?.sizes(), [N, n_frames]);
    let refusal = spectra.istft(N, 3, Some(&phases)).expect_err("the signal would be complex").to_string();
    assert!(refusal.contains("complex128") && refusal.contains("real"), "{refusal}");
    let loss = |x: &[Tensor]| x[0].stft(N, 3, None)?.abs()?.square();
    gradcheck(loss, &[&x], 1e-6, 1e-6)?;
    for error in [x.stft(N, 0, None), x.stft(4, 1, Some(&w)), x.stft(100, 1, None), x.istft(N, 3, None)] {
        assert!(error.is_err());
    }
    Ok(())
}
