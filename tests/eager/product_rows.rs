//! Rows of matrix products have the same bits in every product.
//!
//! An element is one chain of fused multiply-adds over the inner dimension, from its start. Its bits depend on its row
//! and column alone, and not on strides, batches, threads or other rows. Blocks of rows rely on that.
//! `src/runtime/product/tests.rs` compares all instruction sets with the chain.

use crate::values::{bits, uniform};
use opfuse::device::pool;
use opfuse::{DType, Result, Tensor};

#[test]
fn parts_have_the_bits_of_the_whole() -> Result<()> {
    let (mut compared, mut wrong) = (0, Vec::new());
    for dtype in [DType::F32, DType::F64] {
        for m in [1, 5, 16, 33, 100, 257] {
            for k in [1, 3, 17, 64, 300, 1100] {
                for n in [1, 2, 15, 33, 64, 130, 500] {
                    for transposed in [false, true] {
                        let a = uniform((m * 31 + k) as u64, &[m, k], dtype)?;
                        let b = match transposed {
                            false => uniform((k * 17 + n) as u64, &[k, n], dtype)?,
                            true => uniform((k * 17 + n) as u64, &[n, k], dtype)?.t()?,
                        };
                        let whole = a.matmul(&b)?;
                        let part = |tensor: &Tensor, dim: usize, first: usize, size: usize| {
                            tensor.slice(dim as i64, Some(first as i64), Some((first + size) as i64), 1)
                        };
                        for size in [1, 2, 8, 31, 128] {
                            if size < m {
                                let first = (m - size) / 2;
                                let rows = part(&a, 0, first, size)?.matmul(&b)?;
                                compared += 1;
                                if bits(&rows) != bits(&part(&whole, 0, first, size)?) {
                                    wrong.push((dtype, m, k, n, transposed, "rows", size));
                                }
                            }
                            if size < n {
                                let first = (n - size) / 2;
                                let columns = a.matmul(&part(&b, 1, first, size)?)?;
                                compared += 1;
                                if bits(&columns) != bits(&part(&whole, 1, first, size)?) {
                                    wrong.push((dtype, m, k, n, transposed, "columns", size));
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(compared > 1000 && wrong.is_empty(), "{} of {compared}: {wrong:?}", wrong.len());
    Ok(())
}

#[test]
fn batches_and_threads_have_the_bits_of_the_chain() -> Result<()> {
    pool::set_num_threads(5);
    for (batch, m, k, n) in
        [(1, 300, 70, 90), (1, 40, 70, 700), (3, 90, 120, 100), (9, 60, 50, 70), (1, 1, 900, 700), (1, 700, 900, 1)]
    {
        let a = uniform(1, &[batch, m, k], DType::F32)?;
        let b = uniform(2, &[batch, n, k], DType::F32)?.transpose(1, 2)?;
        let (left, right): (Vec<f32>, Vec<f32>) = (a.to_vec()?, b.contiguous()?.to_vec()?);
        let element = |index: usize| {
            let (row, column) = (index / n, index % n);
            let from = row / m * k * n + column;
            (0..k).fold(0.0, |sum, step| left[row * k + step].mul_add(right[from + step * n], sum))
        };
        let chains: Vec<f32> = (0..batch * m * n).map(element).collect();
        for threads in [1, 2, 5] {
            let product: Vec<f32> = pool::with_threads(threads, || a.bmm(&b))?.to_vec()?;
            let is_same = product.iter().zip(&chains).all(|(x, y)| x.to_bits() == y.to_bits());
            assert!(is_same, "{batch} x {m} x {k} x {n}, {threads} threads");
        }
    }
    pool::set_num_threads(0);
    Ok(())
}

#[test]
fn matrices_beside_one_left_operand_have_the_bits_of_each_alone() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        for (batch, m, k, n) in [(2, 32, 32, 1), (8, 40, 70, 4), (5, 33, 300, 17), (3, 257, 64, 63), (2, 50, 50, 64)] {
            let a = uniform(1, &[m, k], dtype)?;
            let all = a.expand([batch as i64, m as i64, k as i64])?;
            let stacked = uniform(2, &[batch, k, n], dtype)?;
            let columns = uniform(2, &[batch, n, k], dtype)?.transpose(1, 2)?;
            for (b, threads) in [(&stacked, 1), (&stacked, 3), (&columns, 1)] {
                let whole = pool::with_threads(threads, || all.bmm(b))?;
                for at in 0..batch as i64 {
                    let alone = a.mm(&b.select(0, at)?)?;
                    let case = format!("{dtype:?}: {at} of {batch} x {m} x {k} x {n}, {threads} threads");
                    assert_eq!(bits(&whole.select(0, at)?), bits(&alone), "{case}");
                }
            }
        }
    }
    Ok(())
}

/// A matrix of 16-bit floats that lies by rows, by columns, apart, or as one row that is repeated.
fn lying(lies: usize, seed: u64, rows: usize, columns: usize, dtype: DType) -> Result<Tensor> {
    let (n, m) = (rows as i64, columns as i64);
    match lies {
        0 => uniform(seed, &[rows, columns], dtype),
        1 => uniform(seed, &[columns, rows], dtype)?.t(),
        2 => uniform(seed, &[2 * rows + 1, 3 * columns], dtype)?.slice(0, Some(0), Some(2 * n), 2)?.slice(
            1,
            Some(1),
            Some(3 * m),
            3,
        ),
        _ => uniform(seed, &[1, columns], dtype)?.expand([n, m]),
    }
}

#[test]
fn products_of_16_bit_floats_are_those_of_widened_operands_rounded_once() -> Result<()> {
    let (mut compared, mut wrong) = (0, Vec::new());
    let threads = pool::num_threads();
    // Around whole vectors, tiles and blocks of rows, columns and steps.
    let rows = [1, 2, 13, 32, 33, 200, 400];
    let steps = [0, 1, 9, 260, 700];
    let columns = [1, 2, 15, 33, 129, 1030];
    for dtype in [DType::BF16, DType::F16] {
        for (m, k, n) in rows
            .iter()
            .flat_map(|&m| steps.iter().map(move |&k| (m, k)))
            .flat_map(|(m, k)| columns.iter().map(move |&n| (m, k, n)).filter(|&(m, k, n)| m * k * n < 1 << 24))
        {
            let seed = (m * 31 + k * 7 + n) as u64;
            let lies = [seed as usize % 4, seed as usize / 4 % 4];
            let (a, b) = (lying(lies[0], seed, m, k, dtype)?, lying(lies[1], seed + 1, k, n, dtype)?);
            let sums = a.to_dtype(DType::F32)?.matmul(&b.to_dtype(DType::F32)?)?;
            for used in [1, 2] {
                pool::set_num_threads(used);
                let rounded = a.matmul(&b)?;
                compared += 1;
                if bits(&rounded) != bits(&sums.to_dtype(dtype)?) || rounded.dtype() != dtype {
                    wrong.push((dtype, m, k, n, lies, used));
                }
            }
        }
    }
    pool::set_num_threads(threads);
    assert_eq!(wrong, [], "of {compared}");
    assert!(compared > 400);
    Ok(())
}

#[test]
fn infinities_and_nans_of_16_bit_floats_are_kept() -> Result<()> {
    let numbers = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1.0, -1e-7, 6e4];
    for dtype in [DType::BF16, DType::F16] {
        let column = Tensor::from_slice(&numbers, &[8, 1])?.to_dtype(dtype)?;
        let row = column.t()?;
        let sums = column.to_dtype(DType::F32)?.matmul(&row.to_dtype(DType::F32)?)?;
        assert_eq!(bits(&column.matmul(&row)?), bits(&sums.to_dtype(dtype)?));
    }
    Ok(())
}
