//! Models by name: their weights go out, and come in from a file.

use crate::{Folder, check_error};
use opfuse::compile::{Flat, Parts};
use opfuse::formats::safetensors;
use opfuse::{DType, Named, Result, StateDict, Tensor, TensorStruct, load};
use std::collections::BTreeMap;

#[derive(TensorStruct)]
struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

#[derive(TensorStruct)]
enum Norm {
    None,
    Layer { scale: Tensor },
    Both(Tensor, Box<Linear>),
}

#[derive(TensorStruct)]
struct Model {
    layers: Vec<Linear>,
    #[tensor(name = "LayerNorm")]
    norm: Norm,
    r#final: (Linear, [Tensor; 2]),
    slope: f64,
}

/// A structure that does not say what its tensors are called.
struct Unnamed(Vec<Tensor>);

impl TensorStruct for Unnamed {
    fn tree_flatten(&self, into: &mut Flat) {
        self.0.tree_flatten(into);
    }
    fn tree_unflatten(from: &mut Parts<'_>) -> Option<Unnamed> {
        TensorStruct::tree_unflatten(from).map(Unnamed)
    }
}

fn linear(value: f32, bias: bool) -> Linear {
    let full = |sizes: &[usize]| Tensor::full(sizes, value, DType::F32).expect("memory is there");
    Linear { weight: full(&[2, 2]), bias: bias.then(|| full(&[2])) }
}

fn model(value: f32) -> Model {
    let x = linear(value, false).weight;
    Model {
        layers: vec![linear(value, true), linear(value, false)],
        norm: Norm::Both(x.clone(), Box::new(linear(value, true))),
        r#final: (linear(value, false), [x.clone(), x]),
        slope: 0.5,
    }
}

const NAMES: [&str; 9] = [
    "LayerNorm.0",
    "LayerNorm.1.bias",
    "LayerNorm.1.weight",
    "final.0.weight",
    "final.1.0",
    "final.1.1",
    "layers.0.bias",
    "layers.0.weight",
    "layers.1.weight",
];

#[test]
fn tensors_have_the_names_of_the_path_to_them() -> Result<()> {
    assert_eq!(model(1.0).named().into_keys().collect::<Vec<_>>(), NAMES);
    let scale = Tensor::zeros(&[1], DType::F32)?;
    assert_eq!(Norm::Layer { scale }.named().into_keys().collect::<Vec<_>>(), ["scale"]);
    assert!(Norm::None.named().is_empty());
    let unnamed = Unnamed(vec![Tensor::scalar(1i64)?, Tensor::scalar(2i64)?]);
    assert_eq!(unnamed.named().into_keys().collect::<Vec<_>>(), ["0", "1"]);
    Ok(())
}

#[test]
fn a_model_takes_the_weights_of_a_file() -> Result<()> {
    let folder = Folder::new("model");
    let path = folder.file("weights");
    safetensors::save(&path, &model(3.0).named(), &BTreeMap::new())?;
    let weights = load(&path)?;
    let trained = model(0.0);
    trained.layers[0].weight.set_requires_grad(true)?;
    let loaded = trained.load_named(&weights, "")?;
    assert_eq!(loaded.slope, 0.5);
    for (name, tensor) in loaded.named() {
        assert_eq!(tensor.max_all()?.item::<f32>()?, 3.0, "{name}");
    }
    // What is trained is a copy, and everything else is mapped.
    assert!(loaded.layers[0].weight.requires_grad() && !weights["layers.0.weight"].requires_grad());
    assert!(!loaded.layers[0].weight.is_alias_of(&weights["layers.0.weight"]));
    assert!(loaded.layers[1].weight.is_alias_of(&weights["layers.1.weight"]));
    let first = linear(0.0, true).load_named(&weights, "layers.0")?;
    assert_eq!(first.bias.expect("it has one").to_vec::<f32>()?, [3.0, 3.0]);
    let meta = |sizes: &[usize]| Tensor::zeros(sizes, DType::F32).and_then(|x| Tensor::meta(&x.ty()));
    let planned = Linear { weight: meta(&[2, 2])?, bias: None }.load_named(&weights, "layers.1")?;
    assert_eq!(planned.weight.i((0, 0))?.item::<f32>()?, 3.0);
    Ok(())
}

#[test]
fn all_that_does_not_fit_is_in_one_message() -> Result<()> {
    let mut weights: StateDict = model(1.0).named();
    for name in ["layers.0.bias", "final.0.weight"] {
        weights.remove(name);
    }
    weights.insert("layers.1.bias".into(), Tensor::scalar(1.0f32)?);
    weights.insert("LayerNorm.0".into(), Tensor::zeros(&[3], DType::F64)?);
    let parts = [
        "load_named: 2 missing: layers.0.bias, final.0.weight",
        "1 unexpected: layers.1.bias",
        "1 of another type: LayerNorm.0 is f64[3] instead of f32[2, 2]",
    ];
    check_error(model(0.0).load_named(&weights, "").map(|_| ()), &parts);
    check_error(linear(0.0, false).load_named(&weights, "layers.1").map(|_| ()), &["1 unexpected: layers.1.bias"]);
    // `layers.1` is no prefix of `layers.10`.
    let tens = StateDict::from([
        ("layers.1.weight".to_owned(), linear(2.0, false).weight),
        ("layers.10.weight".to_owned(), linear(2.0, false).weight),
    ]);
    linear(0.0, false).load_named(&tens, "layers.1")?;
    let many = (0..1000).map(|i| (format!("w{i}"), linear(1.0, false).weight)).collect();
    check_error(Unnamed(Vec::new()).load_named(&many, "").map(|_| ()), &["1000 unexpected: w0, w1, w10", "900 more"]);
    Ok(())
}
