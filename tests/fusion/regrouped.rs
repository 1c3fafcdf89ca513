//! Views that split or join dimensions inside kernels: one kernel where elements keep their order, and eager's bits.

use crate::on_threads;
use crate::values::{bits, uniform};
use opfuse::compile::{CompileOptions, compile_with};
use opfuse::internals::codegen::tier::Tier;
use opfuse::{DType, Result, Tensor};

type Function = fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// Batches, positions and features.
const SIZES: [usize; 3] = [5, 14, 24];
const ROWS: usize = SIZES[0] * SIZES[1];

fn flat(x: &Tensor) -> Result<Tensor> {
    x.view([ROWS as i64, SIZES[2] as i64])
}

fn deep(x: &Tensor) -> Result<Tensor> {
    x.view([SIZES[0] as i64, SIZES[1] as i64, SIZES[2] as i64])
}

fn norm(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    x.layer_norm(&SIZES[2..], Some(weight), Some(weight), 1e-5)
}

/// Functions of a tensor of [`SIZES`] and a vector of features, with the kernels that they become.
const CASES: &[(&str, usize, Function)] = &[
    ("join, element by element", 1, |x| Ok(vec![flat(&x[0].exp()?)?.add(&x[1])?])),
    ("split, element by element", 1, |x| Ok(vec![deep(&flat(&x[0])?.exp()?)?.add(&x[1])?])),
    ("join into a norm", 1, |x| Ok(vec![norm(&flat(&x[0].exp()?)?, &x[1])?])),
    ("a norm of a norm", 1, |x| Ok(vec![norm(&flat(&norm(&x[0], &x[1])?)?, &x[1])?])),
    ("there and back", 1, |x| {
        let powers = x[0].exp()?;
        Ok(vec![deep(&norm(&flat(&powers)?, &x[1])?)?.add(&powers)?])
    }),
    ("both shapes are results", 1, |x| {
        let powers = x[0].exp()?;
        Ok(vec![norm(&flat(&powers)?, &x[1])?, powers])
    }),
    ("joined rows of a softmax", 1, |x| {
        Ok(vec![x[0].exp()?.view([SIZES[0] as i64, (SIZES[1] * SIZES[2]) as i64])?.softmax(-1)?])
    }),
    ("where the largest is", 1, |x| {
        let scores = x[0].mul(&x[1])?.view([SIZES[0] as i64, (SIZES[1] * SIZES[2]) as i64])?;
        Ok(vec![scores.argmax(1, false)?])
    }),
    ("values per row", 1, |x| {
        let totals = x[0].sum([2], true)?.view([ROWS as i64, 1])?;
        Ok(vec![flat(&x[0])?.sub(&totals)?.exp()?])
    }),
    ("three groupings", 1, |x| {
        let parts = x[0].exp()?.view([SIZES[0] as i64, SIZES[1] as i64, 4, 6])?.softmax(-1)?;
        Ok(vec![flat(&parts)?.mul(&x[1])?])
    }),
    ("joined heads", 1, |x| {
        let heads = x[0].view([SIZES[0] as i64, SIZES[1] as i64, 4, 6])?.transpose(1, 2)?.exp()?;
        Ok(vec![deep(&heads.transpose(1, 2)?.contiguous()?)?.add(&x[1])?])
    }),
    // Sizes of which neither divides the other have no common loops.
    ("3 x 8 of 4 x 6", 2, |x| {
        let powers = x[0].view([ROWS as i64, 4, 6])?.exp()?;
        Ok(vec![powers.view([ROWS as i64, 3, 8])?.softmax(-1)?])
    }),
    ("columns", 2, |x| Ok(vec![flat(&x[0].exp()?)?.sum([0], false)?])),
    ("the view is a result", 2, |x| {
        let view = flat(&x[0].exp()?)?;
        Ok(vec![norm(&view, &x[1])?, view])
    }),
];

#[test]
fn views_that_keep_the_order_do_not_split_kernels() -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let inputs = [uniform(1, &SIZES, dtype)?, uniform(2, &SIZES[2..], dtype)?];
        for &(name, n_kernels, function) in CASES {
            let eager = function(&inputs)?;
            for tier in [None].into_iter().chain(Tier::ALL.map(Some)) {
                let options = CompileOptions { tier, ..CompileOptions::default() };
                let compiled = compile_with(move |inputs: &[Tensor]| function(inputs), options);
                for threads in [1, 2] {
                    let call = || on_threads(threads, || compiled.call(&inputs[..]));
                    call()?;
                    for (eager, found) in eager.iter().zip(call()?) {
                        let what = format!("{name}, {dtype}, {tier:?}, {threads} threads");
                        assert_eq!((eager.sizes(), eager.strides()), (found.sizes(), found.strides()), "{what}");
                        assert!(bits(eager) == bits(&found), "{what}: other bits\n{}", compiled.explain());
                    }
                }
                let explain = compiled.explain();
                assert_eq!(explain.kernels_after, n_kernels, "{name}, {dtype}\n{}\n{explain}", explain.plan_text());
            }
        }
    }
    Ok(())
}
