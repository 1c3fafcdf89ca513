//! Copies of matrices of few columns in column-major order, which the vm transposes by vectors, and of slices of them.

use opfuse::device::pool;
use opfuse::{DType, Result, Tensor, compile};

/// Elements that are all different, as far as the dtype has so many.
fn numbered(sizes: &[usize], dtype: DType) -> Result<Tensor> {
    let n = sizes.iter().product::<usize>() as i64;
    Tensor::arange(0, n, 1)?
        .remainder(251)?
        .reshape(sizes.iter().map(|&size| size as i64).collect::<Vec<i64>>())?
        .to_dtype(dtype)
}

/// The elements of `x`, read one by one.
fn transposed(x: &Tensor) -> Result<Vec<f64>> {
    let (rows, columns) = (x.sizes()[0], x.sizes()[1]);
    let elements = x.to_dtype(DType::F64)?.contiguous()?.to_vec::<f64>()?;
    Ok((0..columns)
        .flat_map(|column| (0..rows).map(move |row| row * columns + column))
        .map(|at| elements[at])
        .collect())
}

#[test]
fn columns_are_copied_to_rows() -> Result<()> {
    let copy = compile(|x: &Tensor| x.t()?.contiguous());
    for dtype in [DType::U8, DType::BF16, DType::F32, DType::F64] {
        for columns in [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 31, 32, 33, 64, 65] {
            for rows in [1, 7, 31, 200] {
                let whole = numbered(&[rows + 2, columns + 3], dtype)?;
                let slice = whole.narrow(0, 1, rows)?.narrow(1, 2, columns)?;
                for x in [slice.contiguous()?, slice] {
                    let expected = transposed(&x)?;
                    for threads in [1, 2] {
                        let found = pool::with_threads(threads, || {
                            [x.t()?.contiguous(), copy.call(&x)].into_iter().collect::<Result<Vec<_>>>()
                        })?;
                        for y in found {
                            assert!(y.is_contiguous());
                            let y = y.to_dtype(DType::F64)?.to_vec::<f64>()?;
                            assert_eq!(y, expected, "{rows} x {columns} of {dtype}, {threads} threads");
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_batch_of_images_changes_its_layout() -> Result<()> {
    for dtype in [DType::U8, DType::F32] {
        let image = numbered(&[3, 5, 7, 8], dtype)?;
        let found = image.permute([0, 3, 1, 2])?.contiguous()?.to_dtype(DType::F64)?.to_vec::<f64>()?;
        let elements = image.to_dtype(DType::F64)?.to_vec::<f64>()?;
        let place = |at: usize| (at / 280 * 35 + at % 35) * 8 + at / 35 % 8;
        let expected: Vec<f64> = (0..elements.len()).map(|at| elements[place(at)]).collect();
        assert_eq!(found, expected, "{dtype}");
    }
    Ok(())
}

#[test]
fn elements_at_indices_are_copied() -> Result<()> {
    for dtype in [DType::U8, DType::Bool, DType::I16, DType::BF16, DType::F16, DType::F32, DType::I64] {
        for [rows, columns] in [[1, 1], [5, 8], [300, 8], [40, 65], [2, 3000]] {
            let whole = numbered(&[rows, columns + 1], dtype)?;
            let at = Tensor::arange(0, (rows * columns) as i64, 1)?.mul(7)?.remainder(columns as i64)?;
            let at = at.reshape([rows as i64, columns as i64])?;
            for x in [whole.narrow(1, 1, columns)?, whole.t()?.contiguous()?.t()?.narrow(1, 0, columns)?] {
                let elements = x.to_dtype(DType::F64)?.contiguous()?.to_vec::<f64>()?;
                let places = at.to_vec::<i64>()?.into_iter().enumerate();
                let expected: Vec<f64> =
                    places.map(|(place, index)| elements[place / columns * columns + index as usize]).collect();
                for threads in [1, 2] {
                    let found = pool::with_threads(threads, || x.gather(1, &at))?;
                    let found = found.to_dtype(DType::F64)?.to_vec::<f64>()?;
                    assert_eq!(found, expected, "{rows} x {columns} of {dtype}, {threads} threads");
                }
            }
        }
    }
    let x = numbered(&[2, 8], DType::BF16)?;
    for outside in [-1, 8, i64::MIN, i64::MAX] {
        let at = Tensor::from_slice(&[0, 1, outside, 2], &[2, 2])?;
        let error = x.gather(1, &at).expect_err("an index is out of range").to_string();
        assert!(error.contains(&outside.to_string()), "{error}");
    }
    Ok(())
}
