//! Sorts and selections of long lines, which go by digits and by a bound, against whole sorts and the standard library.

use super::routines::{DTYPES, Plain, Random};
use opfuse::{DType, Result, Tensor};

/// The first elements of a sort are those of the whole sort, on long lines too, whatever the dtype and the ties.
#[test]
fn first_elements_are_those_of_the_whole_sort() -> Result<()> {
    let mut random = Random(7);
    for dtype in DTYPES {
        for (sizes, dim) in [(&[5000][..], 0), (&[3, 1200], 1), (&[1200, 3], 0), (&[40, 70], -1), (&[2, 9, 4], 1)] {
            let n = sizes.iter().product::<usize>();
            let range = if random.below(2) == 0 { -3..4 } else { -100..100 };
            let numbers: Vec<f64> = (0..n).map(|_| random.whole(range.clone()) as f64).collect();
            let x = Tensor::from_slice(&numbers, sizes)?;
            let x = if dtype.is_float() { x.masked_fill(&x.eq(2.0)?, f64::NAN)? } else { x };
            let x = x.to_dtype(dtype)?;
            let length = sizes[if dim < 0 { sizes.len() - 1 } else { dim as usize }];
            for k in [0, 1, 2, length / 5, length / 2, length] {
                for largest in [false, true] {
                    let (values, indices) = x.topk(k, dim, largest)?;
                    let whole = x.argsort(dim, largest)?.narrow(dim, 0, k)?;
                    let what = format!("{k} of {sizes:?} {dtype}");
                    assert_eq!(indices.to_vec::<i64>()?, whole.to_vec::<i64>()?, "{what}");
                    assert_eq!(Plain::of(&indices.ne(&whole)?).elements.iter().sum::<f64>(), 0.0, "{what}");
                    let picked = Plain::of(&x.gather(dim, &whole)?).elements;
                    let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
                    assert!(Plain::of(&values).elements.iter().zip(&picked).all(same), "{what}");
                }
            }
        }
    }
    Ok(())
}

/// Long lines are sorted by digits: integers of every magnitude, and floats of every kind.
#[test]
fn long_lines_are_sorted_stably() -> Result<()> {
    let mut random = Random(11);
    let extremes = [i64::MIN, i64::MAX, -1, 0, 1, i64::from(i32::MAX), i64::from(i32::MIN), 1 << 40];
    let wide: Vec<i64> = (0..4000).map(|_| random.whole(-4..4).wrapping_mul(extremes[random.below(8)])).collect();
    let narrow: Vec<i64> = (0..4000).map(|_| (1 << 50) + random.whole(0..700)).collect();
    for numbers in [wide, narrow] {
        let mut expected: Vec<usize> = (0..numbers.len()).collect();
        expected.sort_by_key(|&place| numbers[place]);
        let found = Tensor::from_slice(&numbers, &[numbers.len()])?.argsort(0, false)?.to_vec::<i64>()?;
        assert!(found.iter().map(|&place| place as usize).eq(expected));
    }
    let special = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, -5e-324, 1.5, -1.5, f64::MAX];
    let floats: Vec<f64> = (0..3000).map(|_| special[random.below(special.len())]).collect();
    let mut expected: Vec<usize> = (0..floats.len()).collect();
    expected.sort_by(|&a, &b| floats[b].partial_cmp(&floats[a]).unwrap_or(floats[b].is_nan().cmp(&floats[a].is_nan())));
    for dtype in [DType::F64, DType::F32] {
        let x = Tensor::from_slice(&floats, &[floats.len()])?.to_dtype(dtype)?;
        let found = x.argsort(0, true)?.to_vec::<i64>()?;
        if dtype == DType::F64 {
            assert!(found.iter().map(|&place| place as usize).eq(expected.iter().copied()));
        }
        assert!(
            found
                .windows(2)
                .all(|two| floats[two[0] as usize].to_bits() != floats[two[1] as usize].to_bits() || two[0] < two[1])
        );
    }
    Ok(())
}
