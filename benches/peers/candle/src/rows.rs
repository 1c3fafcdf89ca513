//! The rows as candle's users write them: fused functions of candle-nn where there are any, plain ones elsewhere.

use crate::operands::operands;
use crate::session::{Peer, Row};
use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::ops;

pub(crate) struct Candle;

/// A row over its operands.
type Function = fn(&[Tensor]) -> Result<Vec<Tensor>>;

impl Peer for Candle {
    type Output = Vec<Tensor>;
    const VERSION: &'static str = "candle 0.11.1";

    fn forget(&mut self) {}

    fn row(&mut self, id: &str) -> std::result::Result<Row<Vec<Tensor>>, String> {
        let dtype = match id {
            "W19h" => DType::F16,
            "W19b" => DType::BF16,
            _ => DType::F32,
        };
        let tensor =
            |(sizes, values)| Tensor::from_vec::<Vec<usize>, f32>(values, sizes, &Device::Cpu)?.to_dtype(dtype);
        let inputs = operands(id).into_iter().map(tensor).collect::<Result<Vec<Tensor>>>().map_err(text)?;
        let mut call: Box<dyn FnMut() -> Result<Vec<Tensor>>> = if id == "W14" {
            training(inputs).map_err(text)?
        } else {
            let function = function(id).ok_or("not supported")?;
            Box::new(move || function(&inputs))
        };
        Ok(Row {
            call: Box::new(move || call().map_err(text)),
            check: Box::new(|outputs| outputs.iter().map(|output| check(output).map_err(text)).sum()),
        })
    }
}

#[cold]
fn text(error: candle_core::Error) -> String {
    error.to_string()
}

/// The mean of |y| + y².
fn check(output: &Tensor) -> Result<f64> {
    let values = output.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
    let sum: f64 = values.iter().map(|&y| f64::from(y)).map(|y| y.abs() + y * y).sum();
    Ok(sum / values.len() as f64)
}

fn function(id: &str) -> Option<Function> {
    Some(match id {
        "W01s" | "W01m" | "W01l" => ten_ops,
        "W02" | "W19h" | "W19b" | "W20c" => |x| Ok(vec![((&x[0] * &x[1])? + &x[2])?.relu()?]),
        "W03" => |x| Ok(vec![x[0].broadcast_add(&x[1])?.gelu()?]),
        "W04" => |x| Ok(vec![ops::softmax_last_dim(&x[0])?]),
        "W05" => |x| Ok(vec![ops::layer_norm(&x[0], &x[1], &x[2], 1e-5)?]),
        "W06" => |x| Ok(vec![(ops::rms_norm(&x[0], &x[2], 1e-6)? * x[1].silu()?)?]),
        "W07" => |x| {
            let sum = (&x[2] + x[0].broadcast_add(&x[1])?)?;
            Ok(vec![ops::layer_norm(&sum, &x[3], &x[4], 1e-5)?])
        },
        "W08a" => |x| Ok(vec![x[0].sum(0)?]),
        "W08b" => |x| Ok(vec![x[0].sum(1)?]),
        "W08c" => |x| Ok(vec![x[0].sum_all()?]),
        "W09" => |x| {
            let mean = x[0].mean_keepdim(1)?;
            let variance = x[0].broadcast_sub(&mean)?.sqr()?.mean(1)?;
            Ok(vec![mean, variance])
        },
        "W10" => |x| Ok(vec![x[0].broadcast_add(&x[1])?.t()?.relu()?.contiguous()?]),
        "W11t" => |x| Ok(vec![((x[0].t()? * 2.0)? + &x[1])?]),
        // There are no slices with steps: every second column is the first of each pair.
        "W11s" => |x| {
            let pairs = x[0].reshape((4096, 2048, 2))?;
            Ok(vec![((pairs.narrow(2, 0, 1)?.squeeze(2)? * 2.0)? + &x[1])?])
        },
        "W11c" => five_points,
        "W12" => |x| Ok(vec![x[0].matmul(&x[1])?.broadcast_add(&x[2])?.gelu()?]),
        "W13" => |x| Ok(vec![perceptron(&x[0], &x[1..5])?]),
        "W15a" => |x| Ok(vec![attention(&x[0], &x[1], &x[2], Some(&x[3]), 1)?]),
        "W15b" => |x| Ok(vec![attention(&x[0], &x[1], &x[2], Some(&x[3]), 8)?]),
        "W16" => encoder_layer,
        "W17" => black_scholes,
        "W18k" => nearest,
        "W18n" => inverse_distances,
        "W20a" | "W20b" => |x| Ok(vec![(&x[0] + &x[1])?]),
        "W22" => many_ops,
        _ => return None,
    })
}

fn ten_ops(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let [a, b, c, d] = x else { unreachable!("four operands") };
    let t = (((a * b)? + c)? - d)?;
    let t = ops::sigmoid(&(t * 0.5)?.relu()?)?;
    Ok(vec![(((t * a)? + b)?.tanh()? * c)?])
}

fn five_points(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let moved = |row, column| x[0].narrow(0, row, 2046)?.narrow(1, column, 2046);
    let mut sum = moved(1, 1)?;
    for (row, column) in [(0, 1), (2, 1), (1, 0), (1, 2)] {
        sum = (sum + moved(row, column)?)?;
    }
    Ok(vec![(sum * 0.2)?])
}

/// A hidden layer and an output layer, of weights and biases in turns.
fn perceptron(x: &Tensor, parameters: &[Tensor]) -> Result<Tensor> {
    let hidden = x.matmul(&parameters[0])?.broadcast_add(&parameters[1])?.relu()?;
    hidden.matmul(&parameters[2])?.broadcast_add(&parameters[3])
}

/// A call that updates the parameters and gives the loss.
fn training(operands: Vec<Tensor>) -> Result<Box<dyn FnMut() -> Result<Vec<Tensor>>>> {
    let variables = operands[1..5].iter().map(Var::from_tensor).collect::<Result<Vec<Var>>>()?;
    Ok(Box::new(move || {
        let parameters: Vec<Tensor> = variables.iter().map(|variable| variable.as_tensor().clone()).collect();
        let scores = ops::log_softmax(&perceptron(&operands[0], &parameters)?, D::Minus1)?;
        let loss = (scores * &operands[5])?.sum(D::Minus1)?.mean_all()?.neg()?;
        let gradients = loss.backward()?;
        for variable in &variables {
            let gradient = gradients.get(variable).expect("the loss depends on every parameter");
            variable.set(&(variable.as_tensor() - (gradient * 0.01)?)?)?;
        }
        Ok(vec![loss.detach()])
    }))
}

fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, n_heads: usize) -> Result<Tensor> {
    let (batch, time, width) = q.dims3()?;
    let size = width / n_heads;
    // Products of candle want operands in order.
    let heads = |x: &Tensor| x.reshape((batch, time, n_heads, size))?.transpose(1, 2)?.contiguous();
    let scores = (heads(q)?.matmul(&heads(k)?.t()?)? / (size as f64).sqrt())?;
    let scores = match mask {
        Some(mask) => scores.broadcast_add(mask)?,
        None => scores,
    };
    ops::softmax_last_dim(&scores)?.matmul(&heads(v)?)?.transpose(1, 2)?.reshape((batch, time, width))
}

fn encoder_layer(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let [x, g1, c1, w_qkv, b_qkv, w_out, b_out, g2, c2, w_up, b_up, w_down, b_down] = x else {
        unreachable!("thirteen operands")
    };
    let (batch, time, width) = x.dims3()?;
    let linear = |x: &Tensor, weight: &Tensor, bias: &Tensor| {
        x.flatten_to(1)?.matmul(weight)?.broadcast_add(bias)?.reshape((batch, time, ()))
    };
    let qkv = linear(&ops::layer_norm(x, g1, c1, 1e-5)?, w_qkv, b_qkv)?;
    let part = |index| qkv.narrow(2, index * width, width);
    let x = (x + linear(&attention(&part(0)?, &part(1)?, &part(2)?, None, 12)?, w_out, b_out)?)?;
    let hidden = linear(&ops::layer_norm(&x, g2, c2, 1e-5)?, w_up, b_up)?.gelu()?;
    Ok(vec![(&x + linear(&hidden, w_down, b_down)?)?])
}

fn black_scholes(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let [spot, strike, time] = x else { unreachable!("three operands") };
    let below = |d: &Tensor| ((d * std::f64::consts::FRAC_1_SQRT_2)?.erf()? + 1.0)? * 0.5;
    let spread = (time.sqrt()? * 0.3)?;
    let d1 = (((spot / strike)?.log()? + (time * 0.065)?)? / &spread)?;
    let d2 = (&d1 - &spread)?;
    let discounted = (strike * (time * -0.02)?.exp()?)?;
    let call = ((spot * below(&d1)?)? - (&discounted * below(&d2)?)?)?;
    let put = ((&call - spot)? + discounted)?;
    Ok(vec![call, put])
}

fn nearest(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let [points, centres] = x else { unreachable!("two operands") };
    let products = (points.matmul(&centres.t()?)? * 2.0)?;
    let distances = points.sqr()?.sum_keepdim(1)?.broadcast_sub(&products)?;
    Ok(vec![distances.broadcast_add(&centres.sqr()?.sum(1)?)?.argmin(1)?])
}

fn inverse_distances(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let offsets = x[0].unsqueeze(1)?.broadcast_sub(&x[0].unsqueeze(0)?)?;
    Ok(vec![(offsets.sqr()?.sum(2)? + 1e-3)?.sqrt()?.recip()?.sum(1)?])
}

fn many_ops(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut t = x[0].clone();
    for k in (0..200).step_by(5) {
        t = ((t * (0.9 + 0.001 * f64::from(k)))? + &x[1])?.minimum(0.95f32)?;
        t = (t - &x[0])?.maximum(-0.9f32)?;
    }
    Ok(vec![t])
}
