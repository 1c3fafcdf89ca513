//! A call has the same bits in a batch, under `vmap`, compiled, and with any number of threads.

use crate::{bits, fft, irfft, numbers, rfft};
use opfuse::device::pool;
use opfuse::{DType, Device, Result, Tensor, compile, vmap};

type Function = fn(&Tensor) -> Result<Tensor>;

/// Functions of a tensor of three dims, the last of which has the size 2.
const FUNCTIONS: &[(&str, Function)] = &[
    ("forward", |x| fft(x, 1, true, 1.0)),
    ("backward along the first dim", |x| fft(x, 0, false, 0.1)),
    ("both dims", |x| fft(&fft(x, 1, true, 1.0)?, 0, true, 1.0)),
    ("of real numbers", |x| rfft(x, 1, true, 1.0)),
    ("of real numbers along the last dim", |x| rfft(x, -1, true, 0.3)),
    ("of real numbers, whole", |x| rfft(&x.select(-1, 1)?, 0, false, 1.0)),
    ("to real numbers", |x| irfft(x, 1, 2 * x.sizes()[1] as i64 - 2, 1.0)),
    ("to real numbers along the first dim", |x| irfft(x, 0, 2 * x.sizes()[0] as i64 - 1, 0.3)),
    ("among others", |x| fft(&x.mul(2.0)?.add(1.0)?, 1, true, 1.0)?.exp()),
    ("of a transposed one", |x| fft(&x.transpose(0, 1)?, 1, true, 1.0)),
];

#[test]
fn of_compiled_calls_and_of_several_threads() -> Result<()> {
    for sizes in [[3, 5, 2], [300, 64, 2], [2, 70_000, 2], [70_000, 2, 2], [513, 257, 2]] {
        for dtype in [DType::F32, DType::F64] {
            let x = numbers(&sizes, dtype)?;
            for (name, function) in FUNCTIONS {
                let expected = bits(&pool::with_threads(1, || function(&x))?)?;
                for threads in [2, 3] {
                    let found = bits(&pool::with_threads(threads, || function(&x))?)?;
                    assert!(found == expected, "{name} of {sizes:?} with {threads} threads");
                }
                let compiled = compile(*function);
                for _ in 0..2 {
                    assert!(bits(&compiled.call(&x)?)? == expected, "{name} of {sizes:?}, compiled");
                }
                let report = compiled.explain();
                assert!(report.eager.is_none(), "{name}: {report}");
            }
        }
    }
    Ok(())
}

#[test]
fn of_one_line_alone() -> Result<()> {
    for n in [2, 3, 7, 16, 31, 32, 33, 100, 255, 273, 1001, 1009, 5000] {
        for dtype in [DType::F32, DType::F64] {
            let x = numbers(&[41, n, 2], dtype)?;
            let [rows, columns] = [fft(&x, 1, true, 0.3)?, fft(&x.transpose(0, 1)?.copy()?, 0, true, 0.3)?];
            let half = rfft(&x, 1, true, 0.3)?;
            // From `n` pairs to an odd number of real elements.
            let size = 2 * n as i64 - 1;
            let real = irfft(&x, 1, size, 0.3)?;
            for line in [0, 1, 17, 40] {
                let alone = x.select(0, line)?;
                let expected = bits(&fft(&alone, 0, true, 0.3)?)?;
                assert!(bits(&rows.select(0, line)?)? == expected, "line {line} of {n} in rows");
                assert!(bits(&columns.select(1, line)?)? == expected, "line {line} of {n} in columns");
                assert!(bits(&half.select(0, line)?)? == bits(&rfft(&alone, 0, true, 0.3)?)?, "line {line} of {n}");
                let alone = irfft(&alone, 0, size, 0.3)?;
                assert!(bits(&real.select(0, line)?)? == bits(&alone)?, "line {line} of {size} real elements");
            }
        }
    }
    Ok(())
}

#[test]
fn under_vmap() -> Result<()> {
    let x = numbers(&[4, 3, 6, 5, 2], DType::F64)?;
    for (name, function) in FUNCTIONS {
        let slices = |x: &Tensor, dim: i64| -> Result<Vec<Tensor>> {
            (0..x.sizes()[dim as usize] as i64).map(|at| x.select(dim, at)).collect()
        };
        for dim in [0, 1, 2] {
            let of_one = |x: Tensor| vmap(*function).call(&x);
            let each: Vec<Tensor> = slices(&x, dim)?.into_iter().map(of_one).collect::<Result<_>>()?;
            let expected = opfuse::stack(&each.iter().collect::<Vec<_>>(), 0)?;
            let twice = vmap(|x: &Tensor| vmap(*function).call(x)).in_dims([Some(dim)]).call(&x)?;
            assert!(bits(&twice)? == bits(&expected)?, "{name} under two vmaps, the outer one of dim {dim}");
        }
        let x = x.select(0, 1)?;
        let each: Vec<Tensor> = slices(&x, 0)?.iter().map(function).collect::<Result<_>>()?;
        let expected = opfuse::stack(&each.iter().collect::<Vec<_>>(), 0)?;
        assert!(bits(&vmap(*function).call(&x)?)? == bits(&expected)?, "{name} under vmap");
    }
    Ok(())
}

#[test]
fn shapes_need_no_data() -> Result<()> {
    for sizes in [[4, 6, 2], [1, 1, 2], [0, 3, 2]] {
        let x = numbers(&sizes, DType::F32)?;
        let meta = x.to_device(Device::META)?;
        for (name, function) in FUNCTIONS {
            let (found, expected) = (function(&meta), function(&x));
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(
                    (found.sizes(), found.dtype(), found.strides()),
                    (expected.sizes(), expected.dtype(), expected.strides()),
                    "{name} of {sizes:?}"
                ),
                (found, expected) => {
                    let [found, expected] = [found, expected].map(|result| result.expect_err("both fail").to_string());
                    assert_eq!(found, expected, "{name} of {sizes:?}");
                }
            }
        }
    }
    Ok(())
}
