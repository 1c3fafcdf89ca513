//! Copies of matrices of few columns in column-major order, which the vm transposes by vectors, and of slices of them.

use opfuse::device::pool;
use opfuse::{DType, Result, Tensor, compile};

/// Elements that are all different, as far as the dtype has so many.
fn numbered(sizes: &[usize], dtype: DType) -> Result<Tensor> {
    let n = sizes.iter().product::<usize>() as i64;
    Tensor::arange(0, n, 1, DType::I64)?.remainder(251)?.reshape(sizes)?.to_dtype(dtype)
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
                let slice = whole.narrow(0, 1, rows as i64)?.narrow(1, 2, columns as i64)?;
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
