//! Loads at computed indices on every tier: values, and indices that are out of range.

use super::check::look;
use crate::unplaced::unplaced;
use opfuse::compile::{CompileOptions, compile_with};
use opfuse::internals::codegen::tier::Tier;
use opfuse::{DType, Result, Tensor};

type Pick = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// How a source of 50 rows and 37 columns is read at indices below 37.
const PICKS: [(&str, Pick); 8] = [
    ("rows", |x, at| x.index_select(0, &at.i(0)?)),
    ("columns", |x, at| x.index_select(1, &at.i(0)?)),
    ("columns of a transposed source", |x, at| x.t()?.index_select(0, &at.i(0)?)),
    ("elements along rows", |x, at| x.gather(1, at)),
    ("elements along columns", |x, at| x.gather(0, at)),
    ("a computed index", |x, at| x.gather(1, &at.mul(-1)?.add(36)?)),
    ("every second row", |x, at| x.i(opfuse::Index::step(.., 2))?.gather(1, &at.i(0..25)?)?.mul(2)),
    ("a sum of two", |x, at| x.index_select(0, &at.i(0)?)?.add(x.index_select(0, &at.i(1)?)?)),
];

fn source(dtype: DType) -> Result<Tensor> {
    Tensor::arange(0, 50 * 37, 1)?.remainder(113)?.view([50, 37])?.to_dtype(dtype)
}

fn indices(bad: Option<(usize, i64)>) -> Result<Tensor> {
    let mut numbers: Vec<i64> = (0..50 * 37).map(|i| (i * i * 7 + 3 * i) % 25).collect();
    if let Some((place, index)) = bad {
        numbers[place] = index;
    }
    Tensor::from_slice(&numbers, &[50, 37])
}

#[test]
fn indexed_loads_have_eagers_values_on_every_tier() -> Result<()> {
    for (name, pick) in PICKS {
        for tier in Tier::ALL {
            let f = compile_with(pick, CompileOptions { tier: Some(tier), ..CompileOptions::default() });
            for dtype in [DType::F32, DType::F64, DType::I64, DType::I32, DType::BF16, DType::U8, DType::Bool] {
                for wide in [true, false] {
                    let at = if wide { indices(None)? } else { indices(None)?.to_dtype(DType::I32)? };
                    let x = source(dtype)?;
                    let (found, expected) = (f.call((&x, &at)), pick(&x, &at));
                    let text = |result: Result<Tensor>| result.map_or_else(|error| unplaced(&error), |y| look(&y));
                    assert_eq!(text(found), text(expected), "{name} of {dtype} on {tier}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn indices_out_of_range_are_errors_on_every_tier() -> Result<()> {
    for (name, pick) in PICKS {
        for tier in Tier::ALL {
            let f = compile_with(pick, CompileOptions { tier: Some(tier), ..CompileOptions::default() });
            let x = source(DType::F32)?;
            for place in [0, 5, 16, 36, 37, 24 * 37 + 36] {
                for index in [-1000, 1 << 40, i64::MIN, i64::MAX, 50] {
                    let at = indices(Some((place, index)))?;
                    let (found, expected) = (f.call((&x, &at)), pick(&x, &at));
                    let text = |result: Result<Tensor>| result.map_or_else(|error| unplaced(&error), |y| look(&y));
                    assert_eq!(text(found), text(expected), "{name}: {index} at {place} on {tier}");
                }
            }
            let at = indices(None)?;
            assert_eq!(look(&f.call((&x, &at))?), look(&pick(&x, &at)?), "{name} goes on after errors on {tier}");
        }
    }
    Ok(())
}

#[test]
fn a_dim_without_elements_has_no_index() -> Result<()> {
    for tier in Tier::ALL {
        let f = compile_with(
            |x: &Tensor, at: &Tensor| x.index_select(0, at)?.mul(2),
            CompileOptions { tier: Some(tier), ..CompileOptions::default() },
        );
        let (x, at) = (Tensor::zeros(&[0, 40], DType::F32)?, Tensor::zeros(&[3], DType::I64)?);
        assert!(f.call((&x, &at)).is_err(), "{tier}");
        assert_eq!(f.call((&x, &at.i(0..0)?))?.sizes(), [0, 40], "{tier}");
    }
    Ok(())
}
