//! Operands that are walked backwards, and folds across the lines of memory.

use crate::values::bits;
use opfuse::device::pool;
use opfuse::{DType, Result, Tensor};

fn values(sizes: &[usize], dtype: DType) -> Result<Tensor> {
    let n: usize = sizes.iter().product();
    let all: Vec<f32> = (0..n).map(|i| ((i * 7919 % 2003) as f32 - 1000.0) / 64.0).collect();
    Tensor::from_slice(&all, sizes)?.to_dtype(dtype)
}

#[test]
fn folds_of_transposed_operands_have_the_bits_of_copies() -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I64, DType::U8] {
        for sizes in [[150, 130], [64, 1000], [1000, 64], [17, 16], [700, 19], [3, 9000], [1, 40]] {
            let x = values(&sizes, dtype)?.transpose(0, 1)?;
            let dense = x.contiguous()?;
            for threads in [1, 2] {
                let of_threads =
                    |call: &dyn Fn() -> Result<Tensor>| pool::with_threads(threads, call).map(|y| bits(&y));
                let what = format!("{dtype} {sizes:?}, {threads} threads");
                assert_eq!(of_threads(&|| x.sum((), false))?, bits(&dense.sum((), false)?), "sum of {what}");
                assert_eq!(of_threads(&|| x.amax((), false))?, bits(&dense.amax((), false)?), "amax of {what}");
                assert_eq!(
                    of_threads(&|| x.argmin(None, false))?,
                    bits(&dense.argmin(None, false)?),
                    "argmin of {what}"
                );
                if dtype.is_float() {
                    assert_eq!(of_threads(&|| x.var((), 1, false))?, bits(&dense.var((), 1, false)?), "var of {what}");
                }
            }
        }
    }
    let deep = values(&[3, 40, 5, 50], DType::F32)?.permute([0, 3, 2, 1])?;
    let dense = deep.contiguous()?;
    assert_eq!(bits(&deep.sum([1, 3], false)?), bits(&dense.sum([1, 3], false)?));
    assert_eq!(bits(&deep.sum([1, 2, 3], false)?), bits(&dense.sum([1, 2, 3], false)?));
    Ok(())
}

#[test]
fn flips_reverse_every_layout() -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I64, DType::U8, DType::Bool] {
        for sizes in [[40, 70], [130, 33], [1, 50], [50, 1], [0, 4], [2, 3]] {
            let x = values(&sizes, dtype)?;
            let t = x.transpose(0, 1)?;
            let layouts = [x.clone(), t.clone(), x.slice(1, 0, None, 2)?, t.slice(1, 0, None, 3)?];
            for x in layouts {
                for dims in [&[0i64][..], &[1], &[0, 1]] {
                    let index = |dim: usize, at: usize| match dims.contains(&(dim as i64)) {
                        true => x.sizes()[dim] - 1 - at,
                        false => at,
                    };
                    let dense = bits(&x.contiguous()?);
                    let (rows, columns) = (x.sizes()[0], x.sizes()[1]);
                    let size = dense.len().checked_div(rows * columns).unwrap_or(0);
                    let expected: Vec<_> = (0..rows)
                        .flat_map(|row| (0..columns).map(move |column| (row, column)))
                        .map(|(row, column)| (index(0, row) * columns + index(1, column)) * size)
                        .flat_map(|at| dense[at..at + size].to_vec())
                        .collect();
                    assert_eq!(bits(&x.flip(dims)?), expected, "{dtype} {:?} flipped along {dims:?}", x.sizes());
                    // Inside a chain, in either order.
                    let chain = x.flip(dims)?.to_dtype(DType::F32)?.mul(2.0)?;
                    let fused = opfuse::compile(|x: &Tensor| x.flip(dims)?.to_dtype(DType::F32)?.mul(2.0));
                    assert_eq!(bits(&fused.call(&x)?), bits(&chain));
                    let sum = x.flip(dims)?.to_dtype(DType::F32)?.sum(-1, false)?;
                    let fused = opfuse::compile(|x: &Tensor| x.flip(dims)?.to_dtype(DType::F32)?.sum(-1, false));
                    assert_eq!(bits(&fused.call(&x)?), bits(&sum));
                }
            }
        }
    }
    Ok(())
}

type Normalization = fn(&Tensor, i64) -> Result<Tensor>;

/// Several passes along a dim, with a result per element or per row.
const NORMALIZATIONS: [(&str, Normalization); 4] = [
    ("softmax", |x, dim| x.softmax(dim)),
    ("log_softmax", |x, dim| x.log_softmax(dim)),
    ("var", |x, dim| x.var([dim], 1, false)),
    ("standardized", |x, dim| (x - &x.mean([dim], true)?)?.div(&x.std([dim], 0, true)?.add(1e-3)?)),
];

#[test]
fn normalizations_across_lines_have_the_bits_of_copies() -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        // Whole and cut patches, rows that are too long to be copied, and few rows.
        for sizes in [[300, 170], [17, 2050], [2050, 17], [16, 4096], [9000, 20], [40, 9000], [15, 3000]] {
            let x = values(&sizes, dtype)?;
            x.set((3, 5), f64::NAN)?;
            x.set((.., 7), f64::NEG_INFINITY)?;
            x.set((4, ..), -0.0)?;
            for x in [x.clone(), x.transpose(0, 1)?, x.slice(1, 0, None, 2)?] {
                for dim in [0, 1] {
                    // The same rows, contiguous.
                    let dense = x.transpose(dim, 1)?.contiguous()?;
                    for (name, call) in NORMALIZATIONS {
                        let what = format!("{name} of {dtype} {:?} along {dim}", x.sizes());
                        let y = call(&dense, 1)?;
                        let expected = if y.dim() == 2 { y.transpose(dim, 1)?.contiguous()? } else { y };
                        for threads in [1, 2] {
                            let found = pool::with_threads(threads, || call(&x, dim))?;
                            assert_eq!(bits(&found), bits(&expected), "{what}, {threads} threads");
                        }
                        let fused = opfuse::compile(move |x: &Tensor| call(x, dim));
                        assert_eq!(bits(&fused.call(&x)?), bits(&expected), "{what}, compiled");
                    }
                }
            }
        }
    }
    Ok(())
}
