//! The functions, and how they are called. A new case is a row here.

use super::check::{Case, Expect, check, quietly};
use opfuse::autograd::{inference_mode, no_grad};
use opfuse::compile::{BreakPolicy, CompileOptions, Determinism, Stance};
use opfuse::{DType, Error, Result, Tensor, cat, embedding};
use std::sync::atomic::Ordering;

const ONCE: &[&[usize]] = &[&[3, 4]];
/// Calls with the same types.
const SAME: &[&[&[usize]]] = &[ONCE, ONCE, ONCE, ONCE];
/// Calls with types that were seen before, and with new ones.
const MIXED: &[&[&[usize]]] = &[ONCE, &[&[5, 4]], ONCE, &[&[1, 4]], &[&[0, 4]], &[&[5, 4]]];
const PAIRS: &[&[&[usize]]] = &[&[&[3, 4], &[4]], &[&[3, 4], &[4]], &[&[2, 4], &[4]], &[&[3, 4], &[4]]];

const ROWS: &[&[&[usize]]] = &[&[&[2, 3], &[3]], &[&[2, 3], &[3]], &[&[2, 3], &[3]]];

use Expect::{Any, Compiled, Segments};

pub(crate) const CASES: &[Case] = &[
    // Functions by what they return.
    Case::new("an input", MIXED, Compiled, |_, x| Ok(vec![x[0].clone()])),
    Case::new("a view of an input", MIXED, Compiled, |_, x| Ok(vec![x[0].transpose(0, 1)?])),
    Case::new("part of an input", SAME, Compiled, |_, x| Ok(vec![x[0].select(1, 2)?, x[0].slice(0, 1, None, 2)?])),
    Case::new("the same tensor twice", MIXED, Compiled, |_, x| {
        let y = x[0].exp()?;
        Ok(vec![y.clone(), y])
    }),
    Case::new("a value and views of it", MIXED, Compiled, |_, x| {
        let y = x[0].exp()?;
        Ok(vec![y.unsqueeze(0)?, y.clone(), y.transpose(0, 1)?])
    }),
    Case::new("an input, a view and a value", MIXED, Compiled, |_, x| {
        Ok(vec![x[0].clone(), x[0].t()?, x[0].neg()?, x[0].clone()])
    }),
    Case::new("a captured tensor", SAME, Compiled, |world, _| Ok(vec![world.weight.clone()])),
    Case::new("a constant", SAME, Compiled, |_, _| Tensor::full(&[2], 3.5, DType::F32).map(|x| vec![x])),
    Case::new("no tensors, after writing to one", SAME, Compiled, |_, x| x[0].mul_(2.0).map(|()| vec![])),
    Case::new("another number of tensors by shape", MIXED, Any, |_, x| {
        (0..x[0].sizes()[0]).map(|row| x[0].select(0, row as i64)?.exp()).collect()
    }),
    Case::new("a copy of an input", MIXED, Compiled, |_, x| Ok(vec![x[0].copy()?, x[0].slice(0, 0, 1, 1)?.copy()?])),
    Case::new("a copy of a strided input", SAME, Compiled, |_, x| Ok(vec![x[0].copy()?, x[0].contiguous()?]))
        .inputs(|x| Ok(vec![x[0].transpose(0, 1)?])),
    Case::new("equal values", MIXED, Compiled, |_, x| {
        let (y, z) = (x[0].exp()?, x[0].exp()?);
        Ok(vec![y.t()?, y, z.clone(), z.slice(0, 0, 1, 1)?, x[0].exp()?.slice(1, 1, 3, 1)?])
    }),
    // By what they write.
    Case::new("inputs are swapped", &[&[&[3], &[3]], &[&[3], &[3]], &[&[3], &[3]]], Compiled, |_, x| {
        let old = x[0].copy()?;
        x[0].copy_(&x[1])?;
        x[1].copy_(&old)?;
        Ok(vec![old, x[0].clone()])
    }),
    Case::new("an input as it was, after it is written to", SAME, Compiled, |_, x| {
        let old = x[0].copy()?;
        x[0].add_(1.0)?;
        Ok(vec![old])
    }),
    Case::new("a write in inference mode through a view", SAME, Any, |_, x| {
        let _inference = inference_mode();
        let y = x[0].exp()?;
        y.select(0, 1)?.fill_(2.0)?;
        Ok(vec![y.mul(1.5)?])
    }),
    Case::new("an input is written to", MIXED, Compiled, |_, x| {
        x[0].add_(1.0)?;
        Ok(vec![x[0].exp()?])
    }),
    Case::new("an input is written to and returned", SAME, Compiled, |_, x| {
        x[0].mul_(0.5)?;
        Ok(vec![x[0].clone(), x[0].neg()?])
    }),
    Case::new("a view of an input is written to", SAME, Compiled, |_, x| {
        x[0].select(0, 1)?.fill_(7.0)?;
        Ok(vec![x[0].exp()?])
    }),
    Case::new("a view from before the write is returned", SAME, Any, |_, x| {
        let view = x[0].transpose(0, 1)?;
        x[0].add_(1.0)?;
        Ok(vec![view.exp()?, view])
    }),
    Case::new("a row is copied over a tensor that has a flat view", ROWS, Compiled, |_, x| {
        let sum = x[0].mul(2.0)?;
        let flat = sum.view([-1])?;
        sum.copy_(&x[1].reshape([1, 3])?.expand(sum.sizes())?)?;
        Ok(vec![flat.add(1.0)?, flat, sum])
    }),
    Case::new("a row is copied over an input that has a flat view", ROWS, Compiled, |_, x| {
        let flat = x[0].reshape([-1])?;
        x[0].copy_(&x[1])?;
        Ok(vec![flat.add(1.0)?])
    }),
    Case::new("a transposed value is copied over one with a flat view", ROWS, Compiled, |_, x| {
        let sum = x[0].mul(2.0)?.t()?;
        let flat = sum.t()?.view([-1])?;
        sum.copy_(&x[1].unsqueeze(1)?)?;
        Ok(vec![flat.add(1.0)?, sum])
    }),
    Case::new("memory of what was filled is shown", ROWS, Compiled, |_, x| {
        let sum = x[0].mul(2.0)?;
        let shown = sum.as_strided([2, 2], [1, 1], 0)?;
        sum.zero_()?;
        Ok(vec![shown.add(1.0)?, shown])
    }),
    Case::new("memory of what a part was copied to is shown", ROWS, Compiled, |_, x| {
        let (sum, copied) = (x[1].mul(2.0)?, x[1].exp()?);
        sum.copy_(&x[0].exp()?.select(0, 1)?)?;
        copied.copy_(&x[0].select(0, 1)?)?;
        Ok(vec![sum.as_strided([2], [1], 0)?.add(1.0)?, copied.as_strided([2], [1], 0)?.add(1.0)?, copied])
    }),
    Case::new("a part of a transposed value is filled", ROWS, Compiled, |_, x| {
        let sum = x[0].mul(2.0)?;
        let flat = sum.view([-1])?;
        sum.t()?.select(0, 1)?.fill_(3.0)?;
        Ok(vec![flat.as_strided([2], [3], 1)?.add(1.0)?, sum.t()?.t()?.view([-1])?])
    }),
    Case::new("what was filled is returned, and written to later", ROWS, Compiled, |_, x| {
        let (zeros, threes) = (x[0].mul(2.0)?, x[0].exp()?);
        zeros.zero_()?;
        threes.fill_(3.0)?;
        threes.copy_(&x[1])?;
        Ok(vec![zeros, threes])
    }),
    Case::new("a copy made by reshape is written to", ROWS, Compiled, |_, x| {
        let copied = x[0].t()?.reshape([-1])?;
        copied.add_(1.0)?;
        Ok(vec![copied.mul(2.0)?, copied])
    }),
    Case::new("a view of a copy made by reshape is written to", ROWS, Compiled, |_, x| {
        let copied = x[0].t()?.reshape([-1])?;
        let part = copied.view([3, -1])?.select(0, 1)?;
        part.mul_(3.0)?;
        Ok(vec![copied, part.add(1.0)?])
    }),
    Case::new("an input without elements is written to beside another in the same memory", ROWS, Compiled, |_, x| {
        x[0].add_(1.0)?;
        Ok(vec![x[1].mul(2.0)?])
    })
    .inputs(|x| Ok(vec![x[0].as_strided([1, 0], [1, 1], 0)?, x[0].as_strided([1, 0], [1, 1], 0)?])),
    Case::new("an input is written to beside an empty part of it", ROWS, Compiled, |_, x| {
        x[0].add_(1.0)?;
        Ok(vec![x[1].sum_all()?])
    })
    .inputs(|x| Ok(vec![x[0].clone(), x[0].narrow(1, 3, 0)?])),
    Case::new("one element of an expanded input is written to", ROWS, Any, |_, x| {
        x[0].diagonal(-1, 0, 1)?.neg_()?;
        Ok(vec![x[0].mul(2.0)?])
    })
    .inputs(|x| Ok(vec![x[1].select(0, 0)?.as_strided([2, 1], [1, 0], 0)?.expand([2, 7])?])),
    Case::new("an input whose elements overlap is written to through a view", ROWS, Any, |_, x| {
        x[0].select(0, 0)?.add_(1.0)?;
        Ok(vec![x[0].mul(2.0)?])
    })
    .inputs(|x| Ok(vec![x[1].as_strided([2, 2], [1, 1], 0)?])),
    Case::new("gaps of an input that was written to are shown", ROWS, Any, |_, x| {
        x[0].add_(1.0)?;
        Ok(vec![x[0].as_strided([2], [3], 0)?.mul(2.0)?, x[0].as_strided([3], [1], 0)?])
    })
    .inputs(|x| Ok(vec![x[0].narrow(1, 0, 2)?])),
    Case::new("an input is written to, the gaps of which are shown", ROWS, Any, |_, x| {
        let shown = x[0].as_strided([3], [1], 0)?;
        x[0].add_(1.0)?;
        Ok(vec![shown.mul(2.0)?])
    })
    .inputs(|x| Ok(vec![x[0].narrow(1, 0, 2)?])),
    Case::new("gaps of a view that was written through are shown", ROWS, Compiled, |_, x| {
        let sum = x[0].mul(2.0)?;
        let part = sum.narrow(1, 0, 2)?;
        part.add_(1.0)?;
        Ok(vec![part.as_strided([2], [3], 0)?.mul(2.0)?, part.as_strided([3], [1], 0)?])
    }),
    Case::new("windows that lie side by side are written to", ROWS, Any, |_, x| {
        let sum = x[0].mul(2.0)?;
        sum.unfold(1, 1, 1)?.add_(1.0)?;
        sum.as_strided([2], [2], 1)?.neg_()?;
        Ok(vec![sum])
    }),
    Case::new("one input is written into another", PAIRS, Compiled, |_, x| {
        x[1].copy_(&x[0].select(0, 0)?)?;
        Ok(vec![x[1].add(&x[0])?])
    }),
    Case::new("an alias of an input is written to", PAIRS, Any, |_, x| {
        x[1].add_(10.0)?;
        Ok(vec![x[0].exp()?, x[1].exp()?])
    })
    .inputs(|x| Ok(vec![x[0].clone(), x[0].select(0, 1)?])),
    Case::new("the same input twice, one is written to", PAIRS, Any, |_, x| {
        x[1].add_(10.0)?;
        Ok(vec![x[0].exp()?])
    })
    .inputs(|x| Ok(vec![x[0].clone(), x[0].clone()])),
    // By what they capture.
    Case::new("a captured tensor that is changed between calls", MIXED, Compiled, |world, x| {
        Ok(vec![x[0].mul(&world.weight)?.relu()?])
    })
    .before(|world| world.weight.add_(0.25)),
    Case::new("a captured tensor that the function changes", MIXED, Compiled, |world, x| {
        let sum = x[0].sum([0], false)?;
        world.weight.add_(&sum)?;
        Ok(vec![world.weight.exp()?])
    }),
    Case::new("a view of a captured tensor", SAME, Compiled, |world, x| {
        Ok(vec![x[0].mul(&world.weight.slice(0, 0, 1, 1)?)?])
    })
    .before(|world| world.weight.mul_(-1.5)),
    Case::new("an input that is captured too", PAIRS, Any, |world, x| Ok(vec![x[0].mul(&world.weight)?.exp()?]))
        .before(|world| world.weight.add_(1.0)),
    // By what they draw.
    Case::new("random numbers", MIXED, Compiled, |world, x| {
        Ok(vec![x[0].add(&world.generator.rand(x[0].sizes(), DType::F32)?)?])
    }),
    Case::new("random numbers of two kinds", SAME, Compiled, |world, x| {
        let noise = world.generator.randn(&[4], DType::F32)?;
        Ok(vec![world.generator.rand(x[0].sizes(), DType::F32)?.mul(&noise)?, noise])
    }),
    Case::new("a generator that is set", SAME, Any, |world, x| {
        world.generator.manual_seed(3);
        Ok(vec![world.generator.rand(x[0].sizes(), DType::F32)?])
    }),
    // By how they depend on values.
    Case::new("control flow that depends on a value", MIXED, Segments, |_, x| {
        let y = x[0].tanh()?;
        let more = y.sum_all()?.item::<f32>()? > 0.0;
        Ok(vec![if more { y.mul(2.0)?.exp()? } else { y.neg()? }])
    }),
    Case::new("a loop until a value is small", SAME, Segments, |_, x| {
        let mut y = x[0].clone();
        while y.abs()?.amax((), false)?.item::<f32>()? > 0.1 {
            y = y.mul(0.5)?.tanh()?;
        }
        Ok(vec![y])
    }),
    Case::new("a value that becomes a number", SAME, Segments, |_, x| {
        let scale = x[0].abs()?.amax((), false)?.item::<f32>()?;
        Ok(vec![x[0].div(scale)?.add(1.0)?.sqrt()?])
    }),
    Case::new("an input that is read", SAME, Segments, |_, x| {
        let first = x[0].to_vec::<f32>()?.first().copied().unwrap_or(0.0);
        Ok(vec![if first > 0.0 { x[0].exp()? } else { x[0].neg()? }])
    }),
    Case::new("a write before a read", SAME, Segments, |_, x| {
        x[0].mul_(3.0)?;
        let sum = x[0].sum_all()?.item::<f32>()?;
        x[0].add_(sum)?;
        Ok(vec![x[0].exp()?])
    }),
    Case::new("a view across a read", SAME, Segments, |_, x| {
        let y = x[0].exp()?;
        let row = y.select(0, 1)?;
        let sum = y.sum_all()?.item::<f32>()?;
        y.add_(sum)?;
        Ok(vec![row.neg()?, y, row])
    }),
    Case::new("sizes that depend on values", MIXED, Segments, |_, x| {
        let positive = x[0].masked_select(&x[0].gt(0.0)?)?;
        Ok(vec![positive.mul(2.0)?.sum_all()?, positive])
    }),
    Case::new("a draw before and after a read", SAME, Segments, |world, x| {
        let noise = world.generator.rand(x[0].sizes(), DType::F32)?;
        let more = x[0].add(&noise)?.sum_all()?.item::<f32>()? > 0.0;
        let rest = world.generator.randn(&[if more { 2 } else { 3 }], DType::F32)?;
        Ok(vec![noise.mul(&x[0])?, rest])
    }),
    Case::new("a value of a captured tensor", SAME, Segments, |world, x| {
        let scale = world.weight.select(0, 0)?.item::<f32>()?;
        Ok(vec![if scale > 0.6 { x[0].exp()? } else { x[0].mul(&world.weight)? }])
    })
    .before(|world| world.weight.add_(0.25)),
    // By how they fail.
    Case::new("an error by shape", PAIRS, Any, |_, x| x[0].add(&x[1])?.matmul(&x[1]).map(|y| vec![y])),
    Case::new("an error after a write", SAME, Any, |_, x| {
        x[0].add_(1.0)?;
        Err(Error::argument("test", "on purpose"))
    }),
    Case::new("an index outside on some calls", SAME, Compiled, |world, x| {
        Ok(vec![embedding(&x[0], &world.weight.slice(0, 0, 1, 1)?.to_dtype(DType::I64)?)?])
    })
    .before(|world| world.weight.fill_(if world.call() == 2 { 3.0 } else { 1.0 })),
    Case::new("a panic half-way in the first run", SAME, Any, |world, x| {
        let y = x[0].exp()?;
        assert!(world.runs.load(Ordering::Relaxed) != 1 && world.call() != 0, "on purpose");
        y.add(1.0).map(|y| vec![y])
    }),
    Case::new("a panic at a value that cannot be read", MIXED, Any, |_, x| {
        let sum = x[0].exp()?.sum_all()?.item::<f32>().expect("it has one element");
        x[0].mul(sum).map(|y| vec![y])
    }),
    // Others.
    Case::new("gradients inside", SAME, Compiled, |_, x| {
        let x = x[0].detach()?;
        x.set_requires_grad(true)?;
        x.exp()?.sum_all()?.backward()?;
        let gradient = x.grad().ok_or_else(|| Error::argument("test", "no gradient"))?;
        let _quiet = no_grad();
        Ok(vec![gradient.mul(2.0)?])
    }),
    Case::new("parts and wholes", PAIRS, Compiled, |_, x| {
        let both = cat(&[&x[0], &x[1].unsqueeze(0)?], 0)?;
        Ok(vec![both.cumsum(0)?, both.softmax(1)?.sum([0], false)?])
    }),
    Case::new("strided inputs", SAME, Compiled, |_, x| Ok(vec![x[0].exp()?, x[0].contiguous()?]))
        .inputs(|x| Ok(vec![x[0].transpose(0, 1)?.slice(0, 1, None, 2)?])),
];

#[test]
fn compiled_functions_do_what_eager_ones_do() -> Result<()> {
    quietly();
    let options = [
        CompileOptions::default(),
        CompileOptions { breaks: BreakPolicy::Eager, ..CompileOptions::default() },
        CompileOptions { stance: Stance::Deferred, ..CompileOptions::default() },
        // `Determinism::Checked` accepts every function that is captured.
        CompileOptions { determinism: Determinism::Checked, ..CompileOptions::default() },
    ];
    for options in &options {
        for case in CASES {
            check(case, options)?;
        }
    }
    Ok(())
}
