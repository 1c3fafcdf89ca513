//! Structures of tensors as inputs and outputs.

use super::check::{look, ramp};
use opfuse::compile::{CompileOptions, Flat, Stance, compile, compile_with, stance};
use opfuse::{Result, Tensor, TensorStruct, vmap};

#[derive(TensorStruct)]
struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

#[derive(TensorStruct)]
enum Activation {
    None,
    Leaky { slope: f64 },
    Gated(Tensor, bool),
}

#[derive(TensorStruct)]
struct Block<N>(Linear, N);

#[derive(TensorStruct)]
struct Model<N> {
    blocks: Vec<Block<N>>,
    ends: (Tensor, [Tensor; 2]),
    n_repeats: usize,
    scale: f64,
}

#[derive(TensorStruct)]
struct Report {
    last: Tensor,
    each: Vec<Tensor>,
    first: Option<Box<Report>>,
    unit: (),
}

fn linear(seed: usize, has_bias: bool) -> Result<Linear> {
    let bias = if has_bias { Some(ramp(&[3], seed + 1)?) } else { None };
    Ok(Linear { weight: ramp(&[3, 3], seed)?, bias })
}

fn model(activations: Vec<Activation>, n_repeats: usize, scale: f64) -> Result<Model<Activation>> {
    let blocks = activations.into_iter().enumerate();
    Ok(Model {
        blocks: blocks.map(|(at, one)| Ok(Block(linear(at, at % 2 == 0)?, one))).collect::<Result<_>>()?,
        ends: (ramp(&[3], 7)?, [ramp(&[3], 8)?, ramp(&[3], 9)?]),
        n_repeats,
        scale,
    })
}

fn forward(model: &Model<Activation>, x: &Tensor) -> Result<Report> {
    let mut last = x.mul(&model.ends.0)?.add(&model.ends.1[0])?;
    let mut each = Vec::new();
    for Block(linear, activation) in model.blocks.iter().cycle().take(model.blocks.len() * model.n_repeats) {
        last = last.matmul(&linear.weight)?;
        if let Some(bias) = &linear.bias {
            last = last.add(bias)?;
        }
        last = match activation {
            Activation::None => last,
            Activation::Leaky { slope } => last.leaky_relu(*slope)?,
            Activation::Gated(gate, true) => last.mul(&gate.sigmoid()?)?,
            Activation::Gated(gate, false) => last.mul(gate)?,
        };
        each.push(last.clone());
    }
    let inner = Report { last: x.exp()?, each: Vec::new(), first: None, unit: () };
    let first = (model.n_repeats > 1).then(|| Box::new(inner));
    Ok(Report { last: last.mul(model.scale)?.add(&model.ends.1[1])?, each, first, unit: () })
}

fn text<T: TensorStruct>(structure: &T) -> String {
    let Flat { tensors, words } = Flat::of(structure);
    format!("{words:?} {}", tensors.iter().map(look).collect::<Vec<_>>().join("; "))
}

/// A gate, for activations that need one.
fn gate() -> Tensor {
    ramp(&[3], 5).expect("the counts agree")
}

#[test]
fn structs_go_in_and_come_out() -> Result<()> {
    let leaky = |slope| Activation::Leaky { slope };
    // Each differs from the one before in one field that is no tensor, and is captured anew.
    let models = [
        model(vec![], 1, 1.0)?,
        model(vec![leaky(0.5)], 1, 1.0)?,
        model(vec![leaky(0.25)], 1, 1.0)?,
        model(vec![leaky(0.25), Activation::None], 1, 1.0)?,
        model(vec![leaky(0.25), Activation::Gated(gate(), true)], 1, 1.0)?,
        model(vec![leaky(0.25), Activation::Gated(gate(), false)], 1, 1.0)?,
        model(vec![leaky(0.25), Activation::Gated(gate(), false)], 2, 1.0)?,
        model(vec![leaky(0.25), Activation::Gated(gate(), false)], 2, f64::NAN)?,
    ];
    for deferred in [false, true] {
        let stance = if deferred { Stance::Deferred } else { Stance::Default };
        let f = compile_with(forward, CompileOptions { stance, ..CompileOptions::default() });
        for _ in 0..2 {
            for (index, model) in models.iter().enumerate() {
                let x = ramp(&[4, 3], index)?;
                assert_eq!(text(&f.call((model, &x))?), text(&forward(model, &x)?), "model {index}");
            }
        }
        let counts = f.counts();
        assert_eq!(counts.eager, 0, "{counts:?}");
        if !deferred {
            assert_eq!((counts.captures, counts.hits), (models.len() as u64, models.len() as u64), "{counts:?}");
        }
    }
    Ok(())
}

#[test]
fn a_struct_is_differentiated_like_its_tensors() -> Result<()> {
    let loss = |model: &Linear, x: &Tensor| {
        let y = x.matmul(&model.weight)?;
        model.bias.as_ref().map_or(Ok(y.clone()), |bias| &y + bias)?.tanh()?.sum_all()
    };
    let f = compile(loss);
    let x = ramp(&[4, 3], 1)?;
    let gradients = |call: &dyn Fn(&Linear) -> Result<Tensor>| -> Result<Vec<String>> {
        let layer = linear(2, true)?;
        let all = Flat::of(&layer).tensors;
        all.iter().try_for_each(|tensor| tensor.set_requires_grad(true))?;
        call(&layer)?.backward()?;
        Ok(all.iter().map(|tensor| look(&tensor.grad().expect("it was used"))).collect())
    };
    let expected = gradients(&|layer| loss(layer, &x))?;
    for _ in 0..3 {
        assert_eq!(gradients(&|layer| f.call((layer, &x)))?, expected);
    }
    assert!(f.explain().eager.is_none(), "{}", f.explain());
    Ok(())
}

#[test]
fn vmap_takes_structs() -> Result<()> {
    let layers = Linear { weight: ramp(&[5, 3, 3], 0)?, bias: Some(ramp(&[5, 3], 1)?) };
    let x = ramp(&[3], 2)?;
    let one = |layer: &Linear, x: &Tensor| {
        let y = x.unsqueeze(0)?.matmul(&layer.weight)?.squeeze(0)?;
        Ok(Linear { bias: layer.bias.as_ref().map(|bias| &y + bias).transpose()?, weight: y })
    };
    let all = vmap(one).in_dims([Some(0), Some(0), None]).call((&layers, &x))?;
    for row in 0..5 {
        let bias = layers.bias.as_ref().map(|bias| bias.select(0, row)).transpose()?;
        let expected = one(&Linear { weight: layers.weight.select(0, row)?, bias }, &x)?;
        let found = Linear {
            weight: all.weight.select(0, row)?.copy()?,
            bias: all.bias.as_ref().map(|bias| bias.select(0, row)?.copy()).transpose()?,
        };
        assert_eq!(text(&found), text(&expected), "row {row}");
    }
    Ok(())
}

#[test]
fn another_structure_is_named_when_recompiling_fails() -> Result<()> {
    let f = compile(|layer: &Linear| layer.weight.exp());
    f.call(&linear(0, true)?)?;
    let _strict = stance(Stance::FailOnRecompile);
    f.call(&linear(1, true)?)?;
    let error = f.call(&linear(0, false)?).map(drop).expect_err("there is no bias");
    assert!(error.to_string().contains("there are 1 inputs, not 2"), "{error}");
    let g = compile(|x: &Tensor, twice: &bool| if *twice { x.add(x) } else { x.exp() });
    let x = ramp(&[3], 0)?;
    {
        let _default = stance(Stance::Default);
        assert_eq!(look(&g.call((&x, &true))?), look(&x.add(&x)?));
        assert_eq!(look(&g.call((&x, &false))?), look(&x.exp()?));
    }
    Ok(())
}
