//! Functions along the first dim of matrices with few columns. A tile of the vm then holds several rows, and what a
//! column has computed once is copied to each of them. The same function along the last dim takes none of these paths.

use opfuse::{DType, Result, Tensor, compile, manual_seed};

/// Sizes around those of tiles, blocks of elements and blocks of folds.
const ROWS: [usize; 7] = [1, 2, 17, 255, 1025, 4096, 40_000];
const COLUMNS: [usize; 7] = [1, 2, 3, 16, 17, 130, 600];

fn standardized(x: &Tensor, dim: i64) -> Result<Tensor> {
    let centred = x.sub(x.mean([dim], true)?)?;
    let spread = centred.square()?.mean([dim], true)?.add(1e-3)?.rsqrt()?;
    centred.mul(spread)?.exp()?.sub(x.amax([dim], true)?)
}

type Along = fn(&Tensor, i64) -> Result<Tensor>;

#[test]
fn columns_have_the_bits_of_rows() {
    let functions: [(&str, Along); 4] = [
        ("softmax", |x, dim| x.softmax(dim)),
        ("log_softmax", |x, dim| x.log_softmax(dim)),
        ("standardized", standardized),
        ("arg", |x, dim| x.sub(x.amax([dim], true)?)?.argmin(Some(dim), true)),
    ];
    manual_seed(7);
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        for (rows, columns) in ROWS.into_iter().flat_map(|rows| COLUMNS.map(|columns| (rows, columns))) {
            if rows * columns > 700_000 {
                continue;
            }
            let x = Tensor::randn(&[rows, columns], dtype).expect("random numbers");
            for (name, function) in functions {
                let case = format!("{name} of {dtype:?} [{rows}, {columns}]");
                let along_rows = x.t().and_then(|x| x.contiguous()).and_then(|x| function(&x, 1));
                let expected = along_rows.and_then(|y| y.t()).and_then(|y| y.contiguous()).expect(&case);
                let fused = compile(move |x: &Tensor| function(x, 0));
                for found in [function(&x, 0), fused.call(&x), fused.call(&x)] {
                    let found = found.expect(&case);
                    let bits = |y: &Tensor| y.to_dtype(DType::F64).and_then(|y| y.to_vec::<f64>()).map(to_bits);
                    assert_eq!(bits(&found).expect(&case), bits(&expected).expect(&case), "{case}");
                }
            }
        }
    }
}

fn to_bits(values: Vec<f64>) -> Vec<u64> {
    values.into_iter().map(f64::to_bits).collect()
}
