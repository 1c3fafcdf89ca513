//! The bits of a row of a matrix product depend on that row alone: computing the rows in blocks changes nothing, if the
//! blocks are not too small.
//!
//! Kernels around a product are run block by block with it, which relies on this.

use opfuse::fusion::blocks::least_rows;
use opfuse::{DType, Result, Tensor};
use values::{bits, uniform};

mod values;

#[test]
fn blocks_of_rows_have_the_bits_of_the_whole() -> Result<()> {
    let (mut compared, mut wrong) = (0, Vec::new());
    for dtype in [DType::F32, DType::F64] {
        for m in [5, 16, 33, 64, 100, 257] {
            for k in [1, 3, 8, 17, 64, 300, 1100] {
                for n in [2, 8, 15, 33, 64, 65, 130, 500] {
                    for transposed in [false, true] {
                        let a = uniform((m * 31 + k) as u64, &[m, k], dtype)?;
                        let b = match transposed {
                            false => uniform((k * 17 + n) as u64, &[k, n], dtype)?,
                            true => uniform((k * 17 + n) as u64, &[n, k], dtype)?.t()?,
                        };
                        let whole = a.matmul(&b)?;
                        let least = least_rows(n, k);
                        for height in [2, 3, 8, 16, 31, 64, 128].map(|height| least.max(height)) {
                            if height >= m {
                                continue;
                            }
                            let first = (m - height) / 2;
                            let rows =
                                |tensor: &Tensor| tensor.slice(0, Some(first as i64), Some((first + height) as i64), 1);
                            compared += 1;
                            if bits(&rows(&a)?.matmul(&b)?) != bits(&rows(&whole)?) {
                                wrong.push((dtype, m, k, n, transposed, height));
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
