//! Concatenations of what one kernel computes, which the kernel writes itself.

use crate::values::{self, bits};
use opfuse::compile::{CompileOptions, compile_with};
use opfuse::internals::codegen::tier::Tier;
use opfuse::{DType, Result, Tensor, cat, stack};

type Function = fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// The halves of the last dim, turned by angles.
fn rotary(x: &Tensor, angles: &Tensor) -> Result<Tensor> {
    let half = x.sizes()[x.dim() - 1] / 2;
    let (low, high) = (x.narrow(-1, 0, half)?, x.narrow(-1, half as i64, half)?);
    let (cos, sin) = (angles.cos()?, angles.sin()?);
    cat(&[&(&low * &cos)?.sub(&(&high * &sin)?)?, &(&low * &sin)?.add(&(&high * &cos)?)?], -1)
}

fn cross(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let component = |at: i64| {
        let of = |tensor: &Tensor, at: i64| tensor.select(-1, (at + 3) % 3);
        (of(x, at + 1)? * of(y, at + 2)?)?.sub(&(of(x, at + 2)? * of(y, at + 1)?)?)
    };
    stack(&[&component(0)?, &component(1)?, &component(2)?], -1)
}

/// Functions of tensors of sizes [60, 4, 32], [60, 1, 16], [200, 3] twice, and [40, 50], with their kernels.
const CASES: &[(&str, usize, Function)] = &[
    ("halves of rows", 1, |x| Ok(vec![rotary(&x[0], &x[1])?])),
    ("halves of normalized rows", 3, |x| {
        let mean = x[0].square()?.mean(-1, true)?;
        Ok(vec![rotary(&x[0].mul(&(mean + 1e-6)?.rsqrt()?)?, &x[1])?])
    }),
    ("columns", 1, |x| Ok(vec![cross(&x[2], &x[3])?])),
    ("rows, and a value of its own", 1, |x| {
        let (sum, other) = ((&x[4] + 1.0)?, (&x[4] * 2.0)?);
        let product = (&sum * &other)?;
        Ok(vec![cat(&[&sum, &other], 0)?, product])
    }),
    ("folds", 1, |x| Ok(vec![cat(&[&x[4].sum([-1], false)?, &x[4].amax(-1, false)?], 0)?])),
    // A result, twice the same operand, columns that are far apart, and an operand from elsewhere.
    ("an operand that is a result", 1, |x| {
        let (sum, other) = ((&x[4] + 1.0)?, (&x[4] * 2.0)?);
        Ok(vec![cat(&[&sum, &other], 0)?, sum])
    }),
    ("the same operand twice", 1, |x| {
        let sum = (&x[4] + 1.0)?;
        Ok(vec![cat(&[&sum, &sum], 0)?])
    }),
    ("columns, one of which is read", 1, |x| {
        let columns = x[4].unbind(-1)?;
        let mut sums = vec![columns[0].clone()];
        for column in &columns[1..20] {
            sums.push((&(&sums[sums.len() - 1] * 0.5)? + column)?);
        }
        Ok(vec![stack(&sums.iter().collect::<Vec<_>>(), 1)?])
    }),
    ("powers beside what they are of", 1, |x| {
        let square = x[4].square()?;
        Ok(vec![stack(&[&x[4], &square, &(&square * &x[4])?], -1)?])
    }),
    ("numbers beside powers", 1, |x| {
        let square = x[4].square()?;
        Ok(vec![stack(&[&x[4].ones_like()?, &x[4], &square, &(&square * &x[4])?], -1)?])
    }),
    ("matrices of stacked rows", 1, |x| {
        let (cos, sin) = (x[2].cos()?, x[2].sin()?);
        let rows = [stack(&[&cos, &sin.neg()?], -1)?, stack(&[&sin, &cos.abs()?], -1)?];
        Ok(vec![stack(&[&rows[0], &rows[1]], -2)?])
    }),
    // A view of the cosine is in two rows.
    ("matrices with twice the same number", 2, |x| {
        let (cos, sin) = (x[2].cos()?, x[2].sin()?);
        let rows = [stack(&[&cos, &sin.neg()?], -1)?, stack(&[&sin, &cos], -1)?];
        Ok(vec![stack(&[&rows[0], &rows[1]], -2)?])
    }),
    ("rows of columns that are wider", 1, |x| {
        let (double, more) = ((&x[2] * 2.0)?, (&x[3] + &x[2])?);
        let inner = cat(&[&double, &more], -1)?;
        Ok(vec![cat(&[&inner, &x[3].neg()?], -1)?])
    }),
    ("an input beside it", 1, |x| Ok(vec![cat(&[&(&x[4] + 1.0)?, &x[4]], -1)?])),
    ("no elements", 1, |x| Ok(vec![cat(&[&(&x[4] + 1.0)?, &x[4].narrow(0, 0, 0)?.exp()?], 0)?])),
];

#[test]
fn kernels_write_concatenations_with_the_bits_of_eager_calls() -> Result<()> {
    let sizes: [&[usize]; 5] = [&[60, 4, 32], &[60, 1, 16], &[200, 3], &[200, 3], &[40, 50]];
    let mut wrong = Vec::new();
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let inputs: Vec<Tensor> =
            sizes.iter().zip(1..).map(|(sizes, seed)| values::uniform(seed, sizes, dtype)).collect::<Result<_>>()?;
        for &(name, n_kernels, function) in CASES {
            let expected = function(&inputs)?;
            for tier in [None, Some(Tier::Vm), Some(Tier::Cranelift), Some(Tier::X64)] {
                let options = CompileOptions { tier, ..CompileOptions::default() };
                let compiled = compile_with(move |inputs: &[Tensor]| function(inputs), options);
                let found = compiled.call(&inputs[..])?;
                assert_eq!(found.len(), expected.len());
                for (found, expected) in found.iter().zip(&expected) {
                    assert_eq!(bits(found), bits(expected), "{name}, {dtype}, {tier:?}");
                    assert_eq!(found.strides(), expected.strides(), "{name}");
                }
                let explain = compiled.explain();
                let groups = explain.groups.iter().filter(|group| group.tier.is_some()).count();
                if (dtype, tier) == (DType::F32, None) && groups != n_kernels {
                    wrong.push(format!("{name} in {groups} kernels:\n{}", explain.plan_text()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
