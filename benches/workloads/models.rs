//! Workloads around matrix products.

use super::Workload;
use super::inputs::{affine, causal_mask, same_shaped, targets, uniform, weight};
use opfuse::autograd::{GradOptions, grad};
use opfuse::{Result, Tensor};

pub(super) const WORKLOADS: [Workload; 6] = [
    Workload { id: "W12", what: "gelu(x w + b)", inputs: layer, run: linear_gelu, check: 0.43739 },
    Workload { id: "W13", what: "two-layer perceptron", inputs: perceptron_inputs, run: perceptron, check: 0.11414 },
    Workload { id: "W14", what: "training step of W13", inputs: training_inputs, run: training_step, check: 7.6238 },
    Workload { id: "W15a", what: "attention, 1 head", inputs: attention_inputs, run: one_head, check: 0.066_852 },
    Workload { id: "W15b", what: "attention, 8 heads", inputs: attention_inputs, run: eight_heads, check: 0.06695 },
    Workload { id: "W16", what: "encoder layer", inputs: encoder_inputs, run: encoder_layer, check: 0.89705 },
];

fn layer() -> Result<Vec<Tensor>> {
    Ok(vec![uniform(1, &[512, 1024])?, weight(2, 1024, 4096)?, uniform(3, &[4096])?])
}

fn linear_gelu(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![(x[0].matmul(&x[1])? + &x[2])?.gelu_tanh()?])
}

fn perceptron_inputs() -> Result<Vec<Tensor>> {
    let bias = |seed, size| affine(seed, &[size], 0.01, 0.0);
    Ok(vec![uniform(1, &[256, 784])?, weight(2, 784, 1024)?, bias(3, 1024)?, weight(4, 1024, 10)?, bias(5, 10)?])
}

fn perceptron(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let hidden = (x[0].matmul(&x[1])? + &x[2])?.relu()?;
    Ok(vec![(hidden.matmul(&x[3])? + &x[4])?])
}

/// The perceptron's, and one-hot targets.
fn training_inputs() -> Result<Vec<Tensor>> {
    let mut inputs = perceptron_inputs()?;
    inputs.push(targets(256)?);
    Ok(inputs)
}

/// The loss, and the parameters after a step against its gradient.
fn training_step(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let (inputs, parameters, targets) = (&x[0], &x[1..5], &x[5]);
    let leaf = |parameter: &Tensor| {
        let leaf = parameter.detach()?;
        leaf.set_requires_grad(true)?;
        Ok(leaf)
    };
    let leaves = parameters.iter().map(leaf).collect::<Result<Vec<Tensor>>>()?;
    let hidden = (inputs.matmul(&leaves[0])? + &leaves[1])?.relu()?;
    let scores = (hidden.matmul(&leaves[2])? + &leaves[3])?;
    let loss = (scores.log_softmax(-1)? * targets)?.sum(-1, false)?.mean_all()?.neg()?;
    let leaves: Vec<&Tensor> = leaves.iter().collect();
    let gradients = grad(&[&loss], &leaves, &[], GradOptions::default())?;
    let mut outputs = vec![loss.detach()?];
    for (parameter, gradient) in parameters.iter().zip(gradients) {
        outputs.push((parameter - (gradient.expect("the loss depends on every parameter") * 0.01)?)?);
    }
    Ok(outputs)
}

fn attention_inputs() -> Result<Vec<Tensor>> {
    let mut inputs = same_shaped(3, &[4, 256, 512])?;
    inputs.push(causal_mask(256)?);
    Ok(inputs)
}

fn one_head(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![attention(&x[0], &x[1], &x[2], Some(&x[3]), 1)?])
}

fn eight_heads(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![attention(&x[0], &x[1], &x[2], Some(&x[3]), 8)?])
}

/// Attention as separate ops over `[batch, time, width]`, heads split and merged back.
fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, n_heads: usize) -> Result<Tensor> {
    let &[batch, time, width] = q.sizes() else { unreachable!("three dims") };
    let size = width / n_heads;
    let heads = |x: &Tensor| x.reshape(&[batch, time, n_heads, size][..])?.transpose(1, 2);
    let (q, k, v) = (heads(q)?, heads(k)?, heads(v)?);
    let mut scores = (q.matmul(&k.transpose(-2, -1)?)? * (1.0 / (size as f64).sqrt()))?;
    if let Some(mask) = mask {
        scores = (scores + mask)?;
    }
    scores.softmax(-1)?.matmul(&v)?.transpose(1, 2)?.reshape(&[batch, time, width][..])
}

const WIDTH: usize = 384;
const HIDDEN: usize = 1536;

fn encoder_inputs() -> Result<Vec<Tensor>> {
    let gain = |seed| affine(seed, &[WIDTH], 0.1, 1.0);
    let bias = |seed, size| affine(seed, &[size], 0.01, 0.0);
    Ok(vec![
        uniform(1, &[8, 128, WIDTH])?,
        gain(2)?,
        bias(3, WIDTH)?,
        weight(4, WIDTH, 3 * WIDTH)?,
        bias(5, 3 * WIDTH)?,
        weight(6, WIDTH, WIDTH)?,
        bias(7, WIDTH)?,
        gain(8)?,
        bias(9, WIDTH)?,
        weight(10, WIDTH, HIDDEN)?,
        bias(11, HIDDEN)?,
        weight(12, HIDDEN, WIDTH)?,
        bias(13, WIDTH)?,
    ])
}

fn encoder_layer(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let [x, g1, c1, w_qkv, b_qkv, w_out, b_out, g2, c2, w_up, b_up, w_down, b_down] = x else {
        unreachable!("thirteen inputs")
    };
    let linear = |x: &Tensor, weight: &Tensor, bias: &Tensor| x.matmul(weight)? + bias;
    let width = WIDTH as i64;
    let qkv = linear(&x.layer_norm(width, Some(g1), Some(c1), 1e-5)?, w_qkv, b_qkv)?;
    let part = |index: i64| qkv.slice(-1, index * width, (index + 1) * width, 1);
    let mixed = attention(&part(0)?, &part(1)?, &part(2)?, None, 12)?;
    let x = (x + linear(&mixed, w_out, b_out)?)?;
    let hidden = linear(&x.layer_norm(width, Some(g2), Some(c2), 1e-5)?, w_up, b_up)?.gelu_tanh()?;
    Ok(vec![(&x + linear(&hidden, w_down, b_down)?)?])
}
