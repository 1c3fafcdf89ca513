//! Values against sums in f64, along every dim and in every layout.

use crate::{bits, call, fft, irfft, numbers, rfft};
use opfuse::dispatch::Value;
use opfuse::{DType, Result, Tensor};
use std::f64::consts::TAU;

type Complex = [f64; 2];

/// The sum over `j` of `x[j] exp(sign 2πi j k / n)`. Products `j k` are reduced first, so that angles stay small.
fn sum(x: &[Complex], k: usize, sign: f64) -> Complex {
    let n = x.len();
    x.iter().enumerate().fold([0.0, 0.0], |sum, (j, x)| {
        let (sin, cos) = (sign * TAU * (j * k % n) as f64 / n as f64).sin_cos();
        [sum[0] + x[0] * cos - x[1] * sin, sum[1] + x[0] * sin + x[1] * cos]
    })
}

/// The elements along a dim of a tensor of complex numbers, for all places of the others in row-major order.
fn lines(x: &[Complex], sizes: &[usize], dim: usize) -> Vec<Vec<Complex>> {
    let (n, after) = (sizes[dim], sizes[dim + 1..].iter().product::<usize>());
    let line = |at: usize| (0..n).map(|i| x[at / after * n * after + i * after + at % after]).collect();
    (0..x.len() / n).map(line).collect()
}

fn pairs(x: &Tensor) -> Result<Vec<Complex>> {
    Ok(x.to_dtype(DType::F64)?.to_vec::<f64>()?.as_chunks().0.to_vec())
}

fn reals(x: &Tensor) -> Result<Vec<Complex>> {
    Ok(x.to_dtype(DType::F64)?.to_vec::<f64>()?.iter().map(|&x| [x, 0.0]).collect())
}

/// Compares lines of a result with sums at the places `at`. `given` are complete lines.
#[track_caller]
fn compare(found: &[Vec<Complex>], given: &[Vec<Complex>], at: &[usize], [sign, scale]: [f64; 2], dtype: DType) {
    assert_eq!(found.len(), given.len());
    let epsilon = if dtype == DType::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    for (found, given) in found.iter().zip(given) {
        let size = given.iter().map(|x| x[0] * x[0] + x[1] * x[1]).sum::<f64>().sqrt();
        // The slow sum in f64 has errors of its own, which grow with its length.
        let allowed = scale * size * (10.0 * epsilon + given.len() as f64 * f64::EPSILON);
        for &k in at {
            let expected = sum(given, k, sign).map(|part| part * scale);
            for (found, expected) in found[k].iter().zip(expected) {
                assert!((found - expected).abs() <= allowed, "element {k} of {}: {found}, {expected}", given.len());
            }
        }
    }
}

/// Checks all transforms along `dim` of tensors whose other sizes are given, for lines of `n` elements.
#[track_caller]
fn check(sizes: &[usize], dim: usize, dtype: DType, at: &[usize]) -> Result<()> {
    let n = sizes[dim];
    let with = |size: usize, pairs: bool| {
        let mut sizes = sizes.to_vec();
        sizes[dim] = size;
        sizes.extend(pairs.then_some(2));
        sizes
    };
    let (whole, along) = (with(n, false), dim as i64);
    let x = numbers(&with(n, true), dtype)?;
    for (forward, sign, scale) in [(true, -1.0, 1.0), (false, 1.0, 0.375)] {
        let y = fft(&x, along, forward, scale)?;
        assert_eq!((y.sizes(), y.dtype()), (x.sizes(), dtype));
        compare(&lines(&pairs(&y)?, &whole, dim), &lines(&pairs(&x)?, &whole, dim), at, [sign, scale], dtype);
    }
    let x = numbers(&whole, dtype)?;
    let given = lines(&reals(&x)?, &whole, dim);
    let (half, n_half) = (with(n / 2 + 1, false), n / 2 + 1);
    let in_half: Vec<usize> = at.iter().copied().filter(|&k| k < n_half).collect();
    let (y, all) = (rfft(&x, along, true, 0.5)?, rfft(&x, along, false, 0.5)?);
    assert_eq!((y.sizes(), all.sizes()), (&with(n_half, true)[..], &with(n, true)[..]));
    compare(&lines(&pairs(&y)?, &half, dim), &given, &in_half, [-1.0, 0.5], dtype);
    compare(&lines(&pairs(&all)?, &whole, dim), &given, at, [-1.0, 0.5], dtype);
    // Half a line, whose other half follows from it.
    let x = numbers(&with(n_half, true), dtype)?;
    let mut given = lines(&pairs(&x)?, &half, dim);
    for line in &mut given {
        for k in [0, n / 2] {
            if k == 0 || 2 * k == n {
                line[k][1] = 0.0;
            }
        }
        (n_half..n).for_each(|k| line.push([line[n - k][0], -line[n - k][1]]));
    }
    let y = irfft(&x, along, n as i64, 0.375)?;
    assert_eq!(y.sizes(), whole);
    compare(&lines(&reals(&y)?, &whole, dim), &given, at, [1.0, 0.375], dtype);
    Ok(())
}

#[test]
fn lines_of_every_length_along_every_dim() -> Result<()> {
    let primes = [67, 97, 101, 127, 251, 509, 1009];
    for n in (1..=64).chain(primes).chain([128, 144, 255, 256, 1000, 1024]) {
        let at: Vec<usize> = if n <= 128 { (0..n).collect() } else { (0..n).step_by(n / 31).collect() };
        for dtype in [DType::F32, DType::F64] {
            check(&[n], 0, dtype, &at)?;
            check(&[3, n], 1, dtype, &at)?;
            check(&[n, 5], 0, dtype, &at)?;
            check(&[2, n, 3], 1, dtype, &at)?;
        }
    }
    Ok(())
}

#[test]
fn long_lines() -> Result<()> {
    for n in (11..=16).map(|power| 1 << power).chain([10_007, 3 * 5 * 7 * 11 * 13]) {
        for dtype in [DType::F32, DType::F64] {
            check(&[n], 0, dtype, &[0, 1, 2, n / 3, n / 2, n / 2 + 1, n - 1])?;
            check(&[n, 2], 0, dtype, &[1, n - 2])?;
        }
    }
    Ok(())
}

/// Values of NumPy 2.4.
#[test]
fn recorded_values() -> Result<()> {
    let x = [0.5, -1.25, 3.0, 2.0, -0.75, 1.5];
    let y = [1.0, 0.25, -2.0, 0.5, 1.75, -0.5];
    let z: Vec<f64> = x.iter().zip(y).flat_map(|(&x, y)| [x, y]).collect();
    let (x, z) = (Tensor::from_slice(&x, &[6])?, Tensor::from_slice(&z, &[6, 2])?);
    let cases: [(Tensor, &[f64]); 6] = [
        (
            fft(&z, 0, true, 1.0)?,
            &[
                5.0,
                1.0,
                -5.098076211353316,
                -0.3660254037844387,
                5.147114317029974,
                7.379165124598851,
                0.5,
                0.5000000000000001,
                -2.6471143170299736,
                -3.8791651245988508,
                0.09807621135331598,
                1.3660254037844388,
            ],
        ),
        (
            fft(&z, 0, false, 1.0 / 6.0)?,
            &[
                0.8333333333333333,
                0.16666666666666666,
                0.01634603522555267,
                0.2276709006307398,
                -0.4411857195049956,
                -0.6465275207664751,
                0.08333333333333326,
                0.08333333333333331,
                0.8578523861716623,
                1.2298608540998084,
                -0.8496793685588859,
                -0.06100423396407312,
            ],
        ),
        (rfft(&x, 0, true, 1.0)?, &[5.0, 0.0, -2.5, -0.8660254037844384, 1.25, 5.629165124598851, 0.5, 0.0]),
        (
            rfft(&x.narrow(0, 0, 5)?, 0, true, 1.0)?,
            &[3.5, 0.0, -4.163118960624632, -0.11225699414489637, 3.663118960624632, 1.24494914244139],
        ),
        (
            irfft(&z.narrow(0, 0, 4)?, 0, 6, 1.0 / 6.0)?,
            &[
                1.0,
                -0.4531518477924108,
                -0.5245190528383289,
                1.1666666666666665,
                0.774519052838329,
                -1.4635148188742557,
            ],
        ),
        (
            irfft(&z.narrow(0, 0, 3)?, 0, 5, 0.2)?,
            &[0.8, -0.6502063402329474, 0.05570515217204051, 1.694952628702781, -1.4004514406418738],
        ),
    ];
    for (found, expected) in cases {
        let found = found.to_vec::<f64>()?;
        assert_eq!(found.len(), expected.len());
        let is_near = |(found, expected): (&f64, &f64)| (found - expected).abs() < 2e-15;
        assert!(found.iter().zip(expected).all(is_near), "{found:?} is not {expected:?}");
    }
    Ok(())
}

#[test]
fn recorded_frequencies() -> Result<()> {
    let third = 2.0 / 3.0;
    let cases: [(&str, i64, f64, &[f64]); 6] = [
        ("aten::fft_fftfreq", 6, 0.25, &[0.0, third, 2.0 * third, -2.0, -2.0 * third, -third]),
        ("aten::fft_fftfreq", 5, 0.1, &[0.0, 2.0, 4.0, -4.0, -2.0]),
        ("aten::fft_fftfreq", 0, 1.0, &[]),
        ("aten::fft_rfftfreq", 6, 0.25, &[0.0, third, 2.0 * third, 2.0]),
        ("aten::fft_rfftfreq", 5, 0.1, &[0.0, 2.0, 4.0]),
        ("aten::fft_rfftfreq", 1, 1.0, &[0.0]),
    ];
    for (name, n, d, expected) in cases {
        let arguments = |dtype: Option<DType>| {
            let dtype = dtype.map_or(Value::None, Value::DType);
            [Value::Int(n), Value::Float(d), dtype, Value::None, Value::None, Value::None]
        };
        assert_eq!(call(name, arguments(Some(DType::F64)))?.to_vec::<f64>()?, expected, "{name}({n}, {d})");
        let rounded: Vec<f32> = expected.iter().map(|&x| x as f32).collect();
        assert_eq!(call(name, arguments(None))?.to_vec::<f32>()?, rounded, "{name}({n}, {d})");
        let message = call(name, arguments(Some(DType::I64))).expect_err("whole numbers").to_string();
        assert!(message.contains("not implemented for i64"), "{message}");
    }
    let negative = [Value::Int(-1), Value::Float(1.0), Value::None, Value::None, Value::None, Value::None];
    let message = call("aten::fft_fftfreq", negative).expect_err("a negative count").to_string();
    assert!(message.contains("fft_fftfreq") && message.contains("-1"), "{message}");
    Ok(())
}

/// Views of `x`, whose last dim has the size 2, so that it may be that of pairs. Sizes stay at most 5 of them.
fn views(x: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
    let rank = x.dim() as i64;
    let mut turned: Vec<i64> = (0..rank).collect();
    turned[..rank as usize - 1].reverse();
    let apart: Vec<i64> = (0..rank).rev().collect();
    Ok(vec![
        ("transposed", x.permute(&turned[..])?),
        ("parts far apart", x.permute(&apart[..])?.copy()?.permute(&apart[..])?),
        ("every other", x.slice(0, Some(1), None, 2)?),
        ("expanded", x.narrow(0, 1, 1)?.expand(&[&[7], &x.sizes()[1..]].concat()[..])?),
        ("one part twice", x.narrow(-1, 1, 1)?.expand(x.sizes())?),
        ("offset by one", x.slice(-1, Some(1), None, 1)?.expand(x.sizes())?),
    ])
}

#[test]
fn views_give_the_bits_of_their_copies() -> Result<()> {
    for sizes in [&[6, 5, 2][..], &[3, 4, 5, 2], &[130, 96, 2], &[4, 2, 1030, 2], &[40, 3, 70, 2]] {
        for dtype in [DType::F32, DType::F64] {
            for (name, view) in views(&numbers(sizes, dtype)?)? {
                let copy = view.copy()?;
                for dim in 0..view.dim() as i64 - 1 {
                    let (n, what) = (view.sizes()[dim as usize] as i64, format!("{name} of {sizes:?} along {dim}"));
                    assert!(bits(&fft(&view, dim, true, 0.5)?)? == bits(&fft(&copy, dim, true, 0.5)?)?, "{what}");
                    let [found, expected] = [&view, &copy].map(|x| bits(&irfft(x, dim, 2 * n - 1, 0.5)?));
                    assert!(found? == expected?, "{what}, to real numbers");
                }
                for dim in 0..view.dim() as i64 {
                    for onesided in [true, false] {
                        let [found, expected] = [&view, &copy].map(|x| bits(&rfft(x, dim, onesided, 0.5)?));
                        assert!(found? == expected?, "{name} of {sizes:?} along {dim}, of real numbers");
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn nothing_has_an_empty_transform() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        let x = Tensor::zeros(&[0, 6, 2], dtype)?;
        assert_eq!(fft(&x, 1, true, 1.0)?.sizes(), [0, 6, 2]);
        assert_eq!(rfft(&x, 1, true, 1.0)?.sizes(), [0, 4, 2, 2]);
        assert_eq!(irfft(&x, 1, 11, 1.0)?.sizes(), [0, 11]);
        assert_eq!(fft(&Tensor::zeros(&[3, 0, 2], dtype)?, 0, false, 1.0)?.sizes(), [3, 0, 2]);
    }
    Ok(())
}

#[test]
fn a_nan_stays_in_its_line() -> Result<()> {
    let x = numbers(&[9, 12, 2], DType::F32)?;
    let with_nan = x.copy()?;
    with_nan.select(0, 4)?.select(0, 3)?.fill_(f64::NAN)?;
    let (found, expected) = (fft(&with_nan, 1, true, 1.0)?, fft(&x, 1, true, 1.0)?);
    for line in 0..9 {
        let [found, expected] = [&found, &expected].map(|x| x.select(0, line));
        let (found, expected) = (found?, expected?);
        if line == 4 {
            assert!(found.to_vec::<f32>()?.iter().all(|x| x.is_nan()));
        } else {
            assert_eq!(bits(&found)?, bits(&expected)?, "line {line}");
        }
    }
    Ok(())
}
