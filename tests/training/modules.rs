//! Every module with the weights, inputs, results and gradients that PyTorch recorded; compiled with eager's bits.

use crate::recorded::{Recorded, same};
use opfuse::nn::*;
use opfuse::{Result, Tensor, compile};

/// Loads the weights, runs, compares with the record, and runs compiled.
fn check<M: Module>(
    case: &str,
    module: M,
    run: impl Fn(&M, &[Tensor]) -> Result<Vec<Tensor>> + Send + Sync,
) -> Result<()> {
    let recorded = Recorded::of_modules();
    let weights = recorded.named(case, "weight");
    let load = || module.load_state_dict(&weights).unwrap_or_else(|error| panic!("{case}: {error}"));
    load();
    let inputs = recorded.inputs(case);
    let outputs = run(&module, &inputs).unwrap_or_else(|error| panic!("{case}: {error}"));
    recorded.check(case, &inputs, &outputs, Some(&module))?;
    let inputs = recorded.numbered(case, "input");
    let compiled = compile(|inputs: &Vec<Tensor>| run(&module, inputs));
    let _unrecorded = opfuse::autograd::no_grad();
    for call in 0..2 {
        load();
        let found = compiled.call(&inputs)?;
        for (at, (found, expected)) in found.iter().zip(&outputs).enumerate() {
            same(&format!("{case}: result {at} of compiled call {call}"), found, expected);
        }
    }
    assert_eq!(compiled.counts().eager, 0, "{case}: {}", compiled.explain());
    Ok(())
}

fn forward<M: Forward>(module: &M, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![module.forward(&inputs[0])?])
}

#[test]
fn linear_layers() -> Result<()> {
    check("linear", Linear::new(4, 3)?, forward)?;
    check("linear_no_bias", Linear::new(4, 3)?.without_bias(), forward)?;
    check("bilinear", Bilinear::new(3, 4, 5)?, |m, x| Ok(vec![m.forward(&x[0], &x[1])?]))
}

#[test]
fn convolutions() -> Result<()> {
    let options = Convolution { stride: 2.into(), padding: 1.into(), groups: 2, ..Default::default() };
    check("conv1d", Conv1d::with(4, 6, 3, options)?, forward)?;
    let options = Convolution { padding: 1.into(), dilation: 2.into(), ..Default::default() };
    check("conv2d", Conv2d::with(3, 4, 3, options)?, forward)?;
    check("conv3d", Conv3d::new(2, 3, 2)?, forward)?;
    let options = ConvTranspose { stride: 2.into(), groups: 2, ..Default::default() };
    check("conv_transpose1d", ConvTranspose1d::with(4, 6, 3, options)?, forward)?;
    let options = ConvTranspose { stride: 2.into(), padding: 1.into(), output_padding: 1.into(), ..Default::default() };
    check("conv_transpose2d", ConvTranspose2d::with(3, 2, 3, options)?, forward)
}

#[test]
fn embeddings() -> Result<()> {
    check("embedding", Embedding::new(7, 4)?.with_padding(2)?, forward)?;
    for (name, mode) in [("sum", BagMode::Sum), ("mean", BagMode::Mean), ("max", BagMode::Max)] {
        let bag = EmbeddingBag { mode, ..EmbeddingBag::new(7, 4)? };
        check(&format!("embedding_bag_{name}"), bag, |m, x| Ok(vec![m.forward_offsets(&x[0], &x[1])?]))?;
    }
    Ok(())
}

#[test]
fn normalizations() -> Result<()> {
    check("layer_norm", LayerNorm::new([3, 4])?, forward)?;
    check("rms_norm", RmsNorm::new(4)?, forward)?;
    check("group_norm", GroupNorm::new(2, 4)?, forward)?;
    check("instance_norm", InstanceNorm::new(3).with_weights()?, forward)?;
    check("batch_norm1d", BatchNorm1d::new(3)?, forward)?;
    check("batch_norm2d", BatchNorm2d::new(3)?, forward)?;
    let mut evaluated = BatchNorm2d::new(3)?;
    evaluated.eval();
    check("batch_norm2d_eval", evaluated, forward)
}

#[test]
fn attention() -> Result<()> {
    check("attention", MultiheadAttention::new(8, 2)?, |m, x| {
        let (y, weights) = m.forward_weights(&x[0], &x[1], &x[2], &AttentionMask::default())?;
        Ok(vec![y, weights])
    })?;
    let batch_first = || Ok(MultiheadAttention { batch_first: true, ..MultiheadAttention::new(8, 2)? });
    check("attention_causal", batch_first()?, |m, x| {
        let mask = AttentionMask { is_causal: true, ..Default::default() };
        Ok(vec![m.forward(&x[0], &x[0], &x[0], &mask)?])
    })?;
    check("attention_sized", batch_first()?.with_sizes(5, 6)?, |m, x| {
        let padding = Tensor::try_from([[false, false, true], [false, false, false]])?;
        let mask = AttentionMask { padding: Some(&padding), ..Default::default() };
        Ok(vec![m.forward(&x[0], &x[1], &x[2], &mask)?])
    })
}

#[test]
fn transformers() -> Result<()> {
    let options = TransformerOptions { feedforward: 16, dropout: 0.0, ..Default::default() };
    check("encoder_layer", TransformerEncoderLayer::new(8, 2, options)?, forward)?;
    check("decoder_layer", TransformerDecoderLayer::new(8, 2, options)?, |m, x| {
        Ok(vec![m.forward(&x[0], &x[1], &AttentionMask::default(), &AttentionMask::default())?])
    })?;
    let options = TransformerOptions { feedforward: 12, gelu: true, batch_first: true, norm_first: true, ..options };
    let encoder = TransformerEncoder { norm: Some(LayerNorm::new(8)?), ..TransformerEncoder::new(8, 2, 2, options)? };
    check("encoder", encoder, forward)
}

#[test]
fn recurrent_layers() -> Result<()> {
    let options = RecurrentOptions { layers: 2, bidirectional: true, ..Default::default() };
    check("lstm", LSTM::new(3, 4, options)?, |m, x| {
        let (y, (hidden, cell)) = m.forward(&x[0], None)?;
        Ok(vec![y, hidden, cell])
    })?;
    check("gru", GRU::new(3, 4, options)?, |m, x| m.forward(&x[0], None).map(|(y, state)| vec![y, state]))?;
    check("rnn", RNN::new(3, 4, options)?, |m, x| m.forward(&x[0], None).map(|(y, state)| vec![y, state]))
}

#[test]
fn activations_pools_and_images() -> Result<()> {
    check("prelu", PReLU::new(3)?, forward)?;
    check("glu", GLU { dim: -1 }, forward)?;
    let options = MaxPool { stride: 2.into(), padding: 1.into(), ..Default::default() };
    check("max_pool2d", MaxPool2d { kernel: 3.into(), options }, forward)?;
    check("avg_pool1d", AvgPool1d::new(3), forward)?;
    check("adaptive_avg_pool2d", AdaptiveAvgPool2d { sizes: [2, 3] }, forward)?;
    check("upsample", Upsample { factors: [2.0, 2.0], interpolation: Interpolation::Bilinear }, forward)?;
    check("pixel_shuffle", PixelShuffle { factor: 2 }, forward)?;
    let windows = Windows { kernel: [2, 3], dilation: [1, 2], padding: [1, 0], stride: [2, 1] };
    check("unfold", Unfold { windows: windows.clone() }, forward)?;
    check("fold", Fold { sizes: [5, 7], windows }, forward)
}

#[test]
fn layers_of_three_dims() -> Result<()> {
    let options = ConvTranspose { stride: 2.into(), padding: 1.into(), output_padding: 1.into(), ..Default::default() };
    check("conv_transpose3d", ConvTranspose3d::with(2, 3, 2, options)?, forward)?;
    check("batch_norm3d", BatchNorm3d::new(3)?, forward)?;
    check("adaptive_avg_pool3d", AdaptiveAvgPool3d { sizes: [2, 3, 2] }, forward)?;
    check("adaptive_max_pool3d", AdaptiveMaxPool3d { sizes: [2, 3, 2] }, forward)?;
    let options = MaxPool { stride: 2.into(), padding: 1.into(), ..Default::default() };
    check("max_pool3d", MaxPool3d { kernel: 3.into(), options }, forward)?;
    let options = AvgPool { padding: 1.into(), count_include_pad: false, ..Default::default() };
    check("avg_pool3d", AvgPool3d { kernel: 2.into(), options }, forward)?;
    let flat = Tensor::zeros(&[2, 3, 4, 5], opfuse::DType::F32)?;
    let error = BatchNorm3d::new(3)?.forward(&flat).expect_err("it has four dims").to_string();
    assert!(error.contains("[2, 3, 4, 5]") && error.contains("[5]"), "{error}");
    Ok(())
}

#[test]
fn recurrent_cells() -> Result<()> {
    check("lstm_cell", LSTMCell::new(3, 4)?, |m, x| {
        let (hidden, cell) = m.forward(&x[0], (&x[1], &x[2]))?;
        Ok(vec![hidden, cell])
    })?;
    check("gru_cell", GRUCell::new(3, 4)?, |m, x| Ok(vec![m.forward(&x[0], &x[1])?]))?;
    check("rnn_cell", RNNCell::new(3, 4)?, |m, x| Ok(vec![m.forward(&x[0], &x[1])?]))?;
    assert_eq!(GRUCell::new(3, 4)?.without_bias().named_parameters().len(), 2);
    Ok(())
}

#[test]
fn rarer_layers_without_tensors() -> Result<()> {
    check("selu", SELU {}, forward)?;
    check("celu", CELU { alpha: 1.5 }, forward)?;
    check("hardtanh", Hardtanh { min: -0.5, max: 0.75 }, forward)?;
    check("hardsigmoid", Hardsigmoid {}, forward)?;
    check("log_sigmoid", LogSigmoid {}, forward)?;
    check("softsign", Softsign {}, forward)?;
    check("tanhshrink", Tanhshrink {}, forward)?;
    check("softshrink", Softshrink { lambda: 0.3 }, forward)?;
    check("hardshrink", Hardshrink { lambda: 0.3 }, forward)?;
    check("threshold", Threshold { threshold: 0.1, value: -2.0 }, forward)?;
    check("softmin", Softmin { dim: -1 }, forward)?;
    check("unflatten", Unflatten { dim: 1, sizes: [2, 3].into() }, forward)?;
    check("constant_pad", ConstantPad { pads: [1, 0, 2, 1].into(), value: 0.5 }, forward)?;
    check("reflection_pad", BorderPad { pads: [1, 2, 0, 1].into(), border: Border::Reflect }, forward)?;
    check("adaptive_max_pool1d", AdaptiveMaxPool1d { size: 3 }, forward)?;
    check("adaptive_max_pool2d", AdaptiveMaxPool2d { sizes: [2, 3] }, forward)
}

#[test]
fn dropout_of_channels_drops_them_whole() -> Result<()> {
    let x = Tensor::ones(&[64, 4, 3, 3], opfuse::DType::F32)?;
    let mut layer = ChannelDropout::new(0.5);
    let channels: Vec<Vec<f32>> = layer.forward(&x)?.to_vec::<f32>()?.chunks(9).map(<[f32]>::to_vec).collect();
    assert!(channels.iter().all(|channel| *channel == [0.0; 9] || *channel == [2.0; 9]));
    let kept = channels.iter().filter(|channel| channel[0] == 2.0).count();
    assert!((78..=178).contains(&kept), "{kept} of 256 are kept");
    layer.eval();
    same("in evaluation", &layer.forward(&x)?, &x);
    // Mean and variance of normal inputs stay.
    let mut layer = AlphaDropout::new(0.2);
    let x = Tensor::randn(&[40_000], opfuse::DType::F32)?;
    let y = layer.forward(&x)?.to_vec::<f32>()?;
    let mean = y.iter().sum::<f32>() / y.len() as f32;
    let variance = y.iter().map(|y| (y - mean).powi(2)).sum::<f32>() / y.len() as f32;
    assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.08, "mean {mean}, variance {variance}");
    layer.eval();
    same("in evaluation", &layer.forward(&x)?, &x);
    Ok(())
}

#[test]
fn sequences_of_modules() -> Result<()> {
    let model = Sequential::new().with(Linear::new(4, 5)?).with(GELU {}).with(LayerNorm::new(5)?);
    check("sequential", model.with(Linear::new(5, 2)?).with(LogSoftmax { dim: -1 }), forward)
}

#[test]
fn rotary_positions_keep_lengths_and_depend_on_distances() -> Result<()> {
    for interleaved in [false, true] {
        let rotary = RotaryEmbedding { interleaved, ..RotaryEmbedding::new(8, 16, 10_000.0)? };
        let (q, k) = (Tensor::randn(&[1, 8], opfuse::DType::F32)?, Tensor::randn(&[1, 8], opfuse::DType::F32)?);
        let product = |at: usize, other: usize| -> Result<f32> {
            rotary.forward_at(&q, at)?.mul(rotary.forward_at(&k, other)?)?.sum_all()?.item::<f32>()
        };
        assert!((product(3, 1)? - product(11, 9)?).abs() < 1e-5);
        assert!((product(5, 5)? - q.mul(&k)?.sum_all()?.item::<f32>()?).abs() < 1e-5);
        assert!(rotary.forward_at(&q, 16).is_err());
        assert!(rotary.state_dict().is_empty());
    }
    Ok(())
}

#[test]
fn a_cache_of_keys_and_values_gives_what_attention_to_all_steps_gives() -> Result<()> {
    let random = || Tensor::randn(&[2, 3, 5, 4], opfuse::DType::F32);
    let (q, k, v) = (random()?, random()?, random()?);
    let whole = q.attention(&k, &v, &Attention { is_causal: true, ..Default::default() })?;
    let mut cache = KvCache::new(5);
    for step in 0..5 {
        let at = |x: &Tensor| x.narrow(2, step, 1);
        let (keys, values) = cache.append(&at(&k)?, &at(&v)?)?;
        let one = at(&q)?.attention(&keys, &values, &Attention::default())?;
        crate::recorded::close("a step", &one, &at(&whole)?, 2e-6);
    }
    let error = cache.append(&k, &v).expect_err("the cache is full");
    assert!(error.to_string().contains("5 steps"), "{error}");
    assert_eq!(cache.steps(), 5);
    Ok(())
}
