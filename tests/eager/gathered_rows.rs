//! Short rows at indices (`native::row_copies`), and short rows that are added at indices (`routine::destinations`),
//! against loops over numbers.

use super::routines::Random;
use opfuse::compile::compile;
use opfuse::{DType, Result, Tensor};

/// Enough elements for rows to run as one, whatever their length.
const LEAST_ELEMENTS: usize = 1 << 14;

fn numbers(random: &mut Random, n: usize) -> Vec<f64> {
    (0..n).map(|_| random.whole(-9..10) as f64).collect()
}

fn indices(random: &mut Random, n: usize, size: usize) -> Vec<i64> {
    (0..n).map(|_| random.below(size) as i64).collect()
}

#[test]
fn short_rows_at_indices_are_those_of_the_source() -> Result<()> {
    let mut random = Random(3);
    let select = compile(|x: &Tensor, index: &Tensor| x.index_select(0, index));
    let scaled = compile(|x: &Tensor, index: &Tensor, by: &Tensor| (x.index_select(0, index)? * by)?.relu());
    for lanes in (1..=25).chain([31]) {
        let n = LEAST_ELEMENTS.div_ceil(lanes) + 5;
        for (dtype, n_rows) in [(DType::F32, 1), (DType::F64, 37), (DType::I64, 2), (DType::BF16, 9), (DType::U8, 700)]
        {
            let values: Vec<f64> = numbers(&mut random, n_rows * lanes).iter().map(|x| x.abs()).collect();
            let (places, by) = (indices(&mut random, n, n_rows), numbers(&mut random, n));
            let x = Tensor::from_slice(&values, &[n_rows, lanes])?.to_dtype(dtype)?;
            let index = Tensor::from_slice(&places, &[n])?;
            let rows = || places.iter().flat_map(|&place| &values[place as usize * lanes..][..lanes]);
            let expected: Vec<f64> = rows().copied().collect();
            let what = format!("{lanes} of {dtype}");
            for found in [x.index_select(0, &index)?, select.call((&x, &index))?] {
                assert_eq!(found.to_dtype(DType::F64)?.to_vec::<f64>()?, expected, "{what}");
            }
            let factors = Tensor::from_slice(&by, &[n, 1])?.to_dtype(dtype)?;
            if dtype.is_float() {
                let expected: Vec<f64> = rows().enumerate().map(|(at, x)| (x * by[at / lanes]).max(0.0)).collect();
                let found = scaled.call((&x, &index, &factors))?.to_dtype(DType::F64)?;
                assert_eq!(found.to_vec::<f64>()?, expected, "{what}, scaled");
            }
        }
    }
    Ok(())
}

#[test]
fn an_index_outside_of_short_rows_is_an_error() -> Result<()> {
    let select = compile(|x: &Tensor, index: &Tensor| x.index_select(0, index));
    for lanes in [2, 3, 4, 7, 20] {
        let n = LEAST_ELEMENTS.div_ceil(lanes);
        let x = Tensor::from_slice(&vec![1.0f32; 50 * lanes], &[50, lanes])?;
        let right = Tensor::from_slice(&vec![49i64; n], &[n])?;
        for outside in [50, -1, i64::MAX, i64::MIN] {
            let mut places = vec![3; n];
            places[n - 2] = outside;
            let index = Tensor::from_slice(&places, &[n])?;
            for found in [x.index_select(0, &index), select.call((&x, &index))] {
                let message = found.expect_err("the index is outside").to_string();
                assert!(message.contains(&outside.to_string()), "{message}");
            }
            assert_eq!(select.call((&x, &right))?.to_vec::<f32>()?, vec![1.0; n * lanes]);
        }
    }
    Ok(())
}

#[test]
fn short_rows_are_added_at_indices_in_order() -> Result<()> {
    let mut random = Random(5);
    for lanes in [1, 2, 3, 4, 5, 8, 17] {
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::I64, DType::I32] {
            let (n, n_rows) = (1000, 13);
            let (source, places) = (numbers(&mut random, n * lanes), indices(&mut random, n, n_rows));
            let mut expected = vec![0.0; n_rows * lanes];
            for (row, &place) in source.chunks(lanes).zip(&places) {
                expected[place as usize * lanes..].iter_mut().zip(row).for_each(|(to, from)| *to += from);
            }
            let zeros = Tensor::zeros(&[n_rows, lanes], dtype)?;
            let source = Tensor::from_slice(&source, &[n, lanes])?.to_dtype(dtype)?;
            let index = Tensor::from_slice(&places, &[n])?;
            // In 16 bits, sums are rounded once.
            let expected = Tensor::from_slice(&expected, &[n_rows, lanes])?.to_dtype(dtype)?.to_dtype(DType::F64)?;
            let found = zeros.index_add(0, &index, &source)?.to_dtype(DType::F64)?;
            assert_eq!(found.to_vec::<f64>()?, expected.to_vec::<f64>()?, "{lanes} of {dtype}");
            // Rows that are columns of memory, and a result that is one.
            let turned = source.t()?.contiguous()?.t()?;
            let found = zeros.t()?.contiguous()?.t()?.index_add(0, &index, &turned)?.to_dtype(DType::F64)?;
            assert_eq!(found.to_vec::<f64>()?, expected.to_vec::<f64>()?, "columns of {lanes} of {dtype}");
            let mut wrong = places.clone();
            wrong[n - 1] = n_rows as i64;
            let message = zeros.index_add(0, &Tensor::from_slice(&wrong, &[n])?, &source).expect_err("13 of 13 rows");
            assert!(message.to_string().contains("got 13"), "{message}");
        }
    }
    Ok(())
}
