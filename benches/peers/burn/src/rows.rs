//! The rows as burn's users write them. Ranks are part of burn's types, so a row names those of its operands.

use crate::operands::{Operand, operands};
use crate::session::{Peer, Row};
use burn::tensor::activation::{gelu_approximate, log_softmax, relu, sigmoid, silu, softmax};
use burn::tensor::module::{layer_norm, linear};
use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData, s};
use std::vec::IntoIter;

pub(crate) struct Burn;

/// What a call gives.
pub(crate) enum Outputs {
    Vector(Tensor<1>),
    Matrix(Tensor<2>),
    Batch(Tensor<3>),
    Vectors([Tensor<1>; 2]),
    Matrices([Tensor<2>; 2]),
}
use Outputs::{Batch, Matrices, Matrix, Vector, Vectors};

type Call = Box<dyn FnMut() -> Outputs>;

impl Peer for Burn {
    type Output = Outputs;
    const VERSION: &'static str = "burn 0.22.1 (flex)";

    fn forget(&mut self) {}

    fn row(&mut self, id: &str) -> Result<Row<Outputs>, String> {
        let device = if id == "W14" { Device::flex().autodiff() } else { Device::flex() };
        let mut call = call(id, Operands { left: operands(id).into_iter(), device }).ok_or("not supported")?;
        Ok(Row { call: Box::new(move || Ok(call())), check: Box::new(check) })
    }
}

fn check(outputs: &Outputs) -> Result<f64, String> {
    match outputs {
        Vector(tensor) => mean(tensor),
        Matrix(tensor) => mean(tensor),
        Batch(tensor) => mean(tensor),
        Vectors(tensors) => tensors.iter().map(mean).sum(),
        Matrices(tensors) => tensors.iter().map(mean).sum(),
    }
}

/// The mean of |y| + y².
fn mean<const D: usize>(output: &Tensor<D>) -> Result<f64, String> {
    let data = output.clone().cast(FloatDType::F32).into_data().convert_dtype(DType::F32);
    let values = data.try_to_vec::<f32>().map_err(|error| format!("{error:?}"))?;
    let sum: f64 = values.iter().map(|&y| f64::from(y)).map(|y| y.abs() + y * y).sum();
    Ok(sum / values.len() as f64)
}

/// A row's operands, taken one by one.
struct Operands {
    left: IntoIter<Operand>,
    device: Device,
}

impl Operands {
    fn next<const D: usize>(&mut self) -> Tensor<D> {
        let (sizes, values) = self.left.next().expect("formulas take the operands that rows have");
        Tensor::from_data(TensorData::new(values, sizes), &self.device)
    }

    fn array<const D: usize, const N: usize>(&mut self) -> [Tensor<D>; N] {
        std::array::from_fn(|_| self.next())
    }
}

fn call(id: &str, mut x: Operands) -> Option<Call> {
    Some(match id {
        "W01s" | "W01m" | "W01l" => {
            let [a, b, c, d] = x.array::<1, 4>();
            Box::new(move || {
                let t = (a.clone() * b.clone() + c.clone() - d.clone()) * 0.5;
                Vector((sigmoid(relu(t)) * a.clone() + b.clone()).tanh() * c.clone())
            })
        }
        "W02" | "W20c" | "W19h" | "W19b" => {
            let [a, b, c] = x.array::<1, 3>().map(|operand| match id {
                "W19h" => operand.cast(FloatDType::F16),
                "W19b" => operand.cast(FloatDType::BF16),
                _ => operand,
            });
            Box::new(move || Vector(relu(a.clone() * b.clone() + c.clone())))
        }
        "W03" => {
            let (x, bias) = (x.next::<2>(), x.next::<1>());
            Box::new(move || Matrix(gelu_approximate(x.clone() + bias.clone().unsqueeze())))
        }
        "W04" => over_matrix(x, |x| Matrix(softmax(x, 1))),
        "W05" => {
            let (x, [weight, bias]) = (x.next::<2>(), x.array::<1, 2>());
            Box::new(move || Matrix(layer_norm(x.clone(), weight.clone(), Some(bias.clone()), 1e-5)))
        }
        "W06" => {
            let ([x, gate], weight) = (x.array::<2, 2>(), x.next::<1>());
            Box::new(move || {
                let root = (x.clone().square().mean_dim(1) + 1e-6).sqrt();
                Matrix(x.clone() / root * weight.clone().unsqueeze() * silu(gate.clone()))
            })
        }
        "W07" => {
            let (x, bias, residual, [weight, shift]) = (x.next::<2>(), x.next::<1>(), x.next::<2>(), x.array::<1, 2>());
            Box::new(move || {
                let sum = residual.clone() + (x.clone() + bias.clone().unsqueeze());
                Matrix(layer_norm(sum, weight.clone(), Some(shift.clone()), 1e-5))
            })
        }
        "W08a" => over_matrix(x, |x| Matrix(x.sum_dim(0))),
        "W08b" => over_matrix(x, |x| Matrix(x.sum_dim(1))),
        "W08c" => over_matrix(x, |x| Vector(x.sum())),
        "W09" => over_matrix(x, |x| {
            let (variance, mean) = x.var_mean_bias(1);
            Matrices([mean, variance])
        }),
        "W10" => over_matrices(x, |a, b| Matrix(relu((a + b).transpose()))),
        "W11t" => over_matrices(x, |x, z| Matrix(x.transpose() * 2.0 + z)),
        "W11s" => over_matrices(x, |x, z| Matrix(x.slice(s![.., ..;2]) * 2.0 + z)),
        "W11c" => over_matrix(x, |x| {
            let moved = |row: usize, column: usize| x.clone().slice([row..row + 2046, column..column + 2046]);
            Matrix((moved(1, 1) + moved(0, 1) + moved(2, 1) + moved(1, 0) + moved(1, 2)) * 0.2)
        }),
        "W12" => {
            let ([x, weight], bias) = (x.array::<2, 2>(), x.next::<1>());
            Box::new(move || Matrix(gelu_approximate(linear(x.clone(), weight.clone(), Some(bias.clone())))))
        }
        "W13" => {
            let (x, layers) = (x.next::<2>(), layers(&mut x));
            Box::new(move || Matrix(perceptron(&x, &layers)))
        }
        "W14" => training(x),
        "W15a" | "W15b" => {
            let ([q, k, v], mask) = (x.array::<3, 3>(), x.next::<2>());
            let n_heads = if id == "W15a" { 1 } else { 8 };
            Box::new(move || Batch(attention([&q, &k, &v].map(Tensor::clone), Some(mask.clone()), n_heads)))
        }
        "W16" => encoder(x),
        "W17" => black_scholes(x),
        "W18k" => over_matrices(x, |points, centres| {
            let squares = points.clone().square().sum_dim(1);
            let products = points.matmul(centres.clone().transpose()) * 2.0;
            Matrix((squares - products + centres.square().sum_dim(1).transpose()).argmin(1).float())
        }),
        "W18n" => over_matrix(x, |points| {
            let offsets = points.clone().unsqueeze_dim::<3>(1) - points.unsqueeze_dim::<3>(0);
            Batch((offsets.square().sum_dim(2) + 1e-3).sqrt().recip().sum_dim(1))
        }),
        "W20a" | "W20b" => {
            let [a, b] = x.array::<1, 2>();
            Box::new(move || Vector(a.clone() + b.clone()))
        }
        "W22" => {
            let [x, y] = x.array::<1, 2>();
            Box::new(move || {
                let steps = (0..200).step_by(5).map(|k| 0.9 + 0.001 * f64::from(k));
                Vector(steps.fold(x.clone(), |t, factor| {
                    ((t * factor + y.clone()).clamp_max(0.95) - x.clone()).clamp_min(-0.9)
                }))
            })
        }
        _ => return None,
    })
}

fn over_matrix(mut x: Operands, formula: fn(Tensor<2>) -> Outputs) -> Call {
    let x = x.next();
    Box::new(move || formula(x.clone()))
}

fn over_matrices(mut x: Operands, formula: fn(Tensor<2>, Tensor<2>) -> Outputs) -> Call {
    let [a, b] = x.array();
    Box::new(move || formula(a.clone(), b.clone()))
}

/// Weight and bias of a layer.
type Layer = (Tensor<2>, Tensor<1>);

fn layers(x: &mut Operands) -> [Layer; 2] {
    std::array::from_fn(|_| (x.next(), x.next()))
}

fn perceptron(x: &Tensor<2>, [(w1, b1), (w2, b2)]: &[Layer; 2]) -> Tensor<2> {
    let hidden = relu(linear(x.clone(), w1.clone(), Some(b1.clone())));
    linear(hidden, w2.clone(), Some(b2.clone()))
}

/// A call that updates the parameters and gives the loss.
fn training(mut operands: Operands) -> Call {
    let x = operands.next::<2>();
    let mut layers = layers(&mut operands).map(|(weight, bias)| (weight.require_grad(), bias.require_grad()));
    let targets = operands.next::<2>();
    Box::new(move || {
        let scores = log_softmax(perceptron(&x, &layers), 1);
        let loss = (scores * targets.clone()).sum_dim(1).mean().neg();
        let mut gradients = loss.backward();
        for (weight, bias) in &mut layers {
            update(weight, &mut gradients);
            update(bias, &mut gradients);
        }
        Vector(loss.inner())
    })
}

fn update<const D: usize>(parameter: &mut Tensor<D>, gradients: &mut burn::tensor::Gradients) {
    let gradient = parameter.grad_remove(gradients).expect("the loss depends on every parameter");
    *parameter = Tensor::from_inner(parameter.clone().inner() - gradient * 0.01).require_grad();
}

fn attention([q, k, v]: [Tensor<3>; 3], mask: Option<Tensor<2>>, n_heads: usize) -> Tensor<3> {
    let [batch, time, width] = q.dims();
    let size = width / n_heads;
    let heads = |x: Tensor<3>| x.reshape([batch, time, n_heads, size]).swap_dims(1, 2);
    let scores = heads(q).matmul(heads(k).transpose()) / (size as f64).sqrt();
    let scores = match mask {
        Some(mask) => scores + mask.unsqueeze(),
        None => scores,
    };
    softmax(scores, 3).matmul(heads(v)).swap_dims(1, 2).reshape([batch, time, width])
}

fn encoder(mut operands: Operands) -> Call {
    let x = operands.next::<3>();
    let [g1, c1] = operands.array::<1, 2>();
    let [qkv, out] = layers(&mut operands);
    let [g2, c2] = operands.array::<1, 2>();
    let [up, down] = layers(&mut operands);
    let apply = |x: Tensor<3>, layer: &Layer| linear(x, layer.0.clone(), Some(layer.1.clone()));
    Box::new(move || {
        let parts = apply(layer_norm(x.clone(), g1.clone(), Some(c1.clone()), 1e-5), &qkv);
        let part = |at: usize| parts.clone().narrow(2, at * 384, 384);
        let x = x.clone() + apply(attention([part(0), part(1), part(2)], None, 12), &out);
        let normed = layer_norm(x.clone(), g2.clone(), Some(c2.clone()), 1e-5);
        Batch(x + apply(gelu_approximate(apply(normed, &up)), &down))
    })
}

fn black_scholes(mut operands: Operands) -> Call {
    let [spot, strike, time] = operands.array::<1, 3>();
    let below = |d: Tensor<1>| ((d * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
    Box::new(move || {
        let spread = time.clone().sqrt() * 0.3;
        let d1 = ((spot.clone() / strike.clone()).log() + time.clone() * 0.065) / spread.clone();
        let d2 = d1.clone() - spread;
        let discounted = strike.clone() * (time.clone() * -0.02).exp();
        let call = spot.clone() * below(d1) - discounted.clone() * below(d2);
        let put = call.clone() - spot.clone() + discounted;
        Vectors([call, put])
    })
}
