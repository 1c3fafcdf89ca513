//! `#[derive(Module)]`: names, roles, flags, conversions, copies, and refused states.

use opfuse::nn::*;
use opfuse::{DType, Device, Result, StateDict, Tensor};

#[derive(Clone, Module)]
enum Head {
    Plain(Linear),
    Normalized { norm: LayerNorm, linear: Linear },
}

#[derive(Clone, Module)]
struct Model {
    embed: Tensor,
    #[module(buffer)]
    mean: Option<Tensor>,
    #[module(transient)]
    table: Vec<Tensor>,
    layers: Vec<Box<dyn Forward>>,
    #[module(name = "head")]
    last: Head,
    title: String,
    slope: f64,
    #[module(skip)]
    limit: Option<std::time::Duration>,
    #[module(training)]
    training: bool,
    tied: Tensor,
}

fn model() -> Result<Model> {
    let embed = Tensor::ones(&[2, 3], DType::F32)?;
    embed.set_requires_grad(true)?;
    Ok(Model {
        tied: embed.clone(),
        embed,
        mean: Some(Tensor::zeros(&[3], DType::F32)?),
        table: vec![Tensor::ones(&[1], DType::I64)?],
        layers: vec![Box::new(Linear::new(3, 3)?), Box::new(Dropout::new(0.5)), Box::new(BatchNorm1d::new(3)?)],
        last: Head::Normalized { norm: LayerNorm::new(3)?, linear: Linear::new(3, 1)?.without_bias() },
        title: "model".to_owned(),
        slope: 0.5,
        limit: None,
        training: true,
    })
}

fn names(all: Vec<(String, Tensor)>) -> Vec<String> {
    all.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn names_and_roles_follow_fields() -> Result<()> {
    let model = model()?;
    let layers = ["layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"];
    let parameters = [&["embed"][..], &layers, &["head.norm.weight", "head.norm.bias", "head.linear.weight"]].concat();
    assert_eq!(names(model.named_parameters()), parameters);
    let buffers = ["mean", "table.0", "layers.2.running_mean", "layers.2.running_var", "layers.2.num_batches_tracked"];
    assert_eq!(names(model.named_buffers()), buffers);
    let saved = model.state_dict();
    assert!(saved.contains_key("tied") && !saved.contains_key("table.0"));
    assert_eq!(saved.len(), parameters.len() + 1 + buffers.len() - 1);
    let plain = Model { last: Head::Plain(Linear::new(3, 1)?), ..model };
    assert!(plain.state_dict().contains_key("head.0.weight"));
    assert_eq!((plain.title.as_str(), plain.slope, plain.limit), ("model", 0.5, None));
    Ok(())
}

#[test]
fn training_reaches_every_flag() -> Result<()> {
    let mut model = model()?;
    let x = Tensor::ones(&[4, 3], DType::F32)?;
    model.eval();
    assert!(!model.training);
    assert_eq!(model.layers[1].forward(&x)?.to_vec::<f32>()?, x.to_vec::<f32>()?);
    model.train();
    assert!(model.training);
    let kept = model.layers[1].forward(&x)?.to_vec::<f32>()?;
    assert!(kept.iter().all(|value| [0.0, 2.0].contains(value)), "{kept:?}");
    Ok(())
}

#[test]
fn conversions_and_copies_keep_ties_and_gradients() -> Result<()> {
    let original = model()?;
    let mut copy = original.deep_clone()?;
    copy.to(Device::CPU, DType::F64)?;
    assert!(copy.embed.is_same(&copy.tied) && copy.embed.requires_grad() && copy.embed.is_leaf());
    assert_eq!((copy.embed.dtype(), copy.table[0].dtype()), (DType::F64, DType::I64));
    assert_eq!(original.embed.dtype(), DType::F32);
    assert!(copy.mean.as_ref().is_some_and(|mean| !mean.requires_grad()));
    let error = copy.to(Device::CPU, DType::I64).expect_err("weights are floats");
    assert!(error.to_string().contains("not floating"), "{error}");
    copy.embed.detach()?.fill_(3.0)?;
    assert_eq!(original.embed.to_vec::<f32>()?, [1.0; 6]);
    assert!(original.clone().embed.is_same(&original.embed));
    Ok(())
}

#[test]
fn a_state_that_does_not_fit_is_refused_as_a_whole() -> Result<()> {
    let (model, other) = (model()?, model()?);
    let mut state: StateDict =
        other.state_dict().into_iter().map(|(name, x)| (name, x.copy().expect("memory"))).collect();
    state.insert("embed".to_owned(), Tensor::full(&[2, 3], 7.0, DType::F32)?);
    state.remove("mean");
    state.remove("layers.0.bias");
    state.insert("extra".to_owned(), Tensor::scalar(1.0f32)?);
    state.insert("head.linear.weight".to_owned(), Tensor::ones(&[3, 1], DType::F32)?);
    let error = model.load_state_dict(&state).expect_err("it does not fit").to_string();
    assert!(error.contains("2 missing: layers.0.bias, mean"), "{error}");
    assert!(error.contains("1 unexpected: extra"), "{error}");
    assert!(error.contains("head.linear.weight is [3, 1] instead of [1, 3]"), "{error}");
    assert_eq!(model.embed.to_vec::<f32>()?, [1.0; 6], "nothing was loaded");
    Ok(())
}

#[test]
fn initializers_have_their_ranges() -> Result<()> {
    opfuse::manual_seed(5);
    let spread = |tensor: &Tensor| -> Result<(f64, f64)> {
        let values = tensor.to_vec::<f32>()?;
        let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64;
        let square = values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / values.len() as f64;
        Ok((mean, (square - mean * mean).sqrt()))
    };
    let check = |tensor: &Tensor, std: f64| -> Result<()> {
        let (mean, found) = spread(tensor)?;
        assert!(mean.abs() < 0.05 * std && (found / std - 1.0).abs() < 0.05, "{mean}, {found} instead of {std}");
        Ok(())
    };
    let weight = Tensor::zeros(&[60, 50, 3], DType::F32)?;
    init::kaiming_uniform(&weight, 5f64.sqrt(), init::Fan::In)?;
    check(&weight, 1.0 / (450f64).sqrt())?;
    init::kaiming_normal(&weight, 0.0, init::Fan::Out)?;
    check(&weight, (2.0f64 / 180.0).sqrt())?;
    init::xavier_uniform(&weight, 2.0)?;
    check(&weight, 2.0 * (2.0f64 / 330.0).sqrt())?;
    init::truncated_normal(&weight, 0.0, 1.0, -1.0, 1.0)?;
    check(&weight, 0.53956)?;
    assert!(weight.abs()?.max_all()?.item::<f32>()? <= 1.0);
    for sizes in [[5usize, 3], [3, 5], [4, 4]] {
        let matrix = Tensor::zeros(&sizes, DType::F64)?;
        init::orthogonal(&matrix, 2.0)?;
        let gram = if sizes[0] < sizes[1] { matrix.mm(&matrix.t()?)? } else { matrix.t()?.mm(&matrix)? };
        let eye = Tensor::eye(sizes[0].min(sizes[1]), DType::F64)?.mul(4.0)?;
        crate::recorded::close("gram", &gram, &eye, 1e-12);
    }
    let linear = Linear::new(16, 1000)?;
    assert!(linear.weight.abs()?.max_all()?.item::<f32>()? <= 0.25);
    check(&linear.weight, 0.25 / 3f64.sqrt())?;
    assert!(init::xavier_uniform(&Tensor::zeros(&[3], DType::F32)?, 1.0).is_err());
    Ok(())
}
