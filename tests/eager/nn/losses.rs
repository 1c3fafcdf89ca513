//! Losses against their formulas.

use super::{Numbers, check, check_error, elements, tensor};
use opfuse::nn::{CrossEntropy, Reduction};
use opfuse::{DType, Result, Tensor};

/// Checks a loss that is `formula(x, t)` element by element under every reduction.
fn check_elementwise(
    name: &str,
    x: &Tensor,
    t: &Tensor,
    loss: impl Fn(Reduction) -> Result<Tensor>,
    formula: impl Fn(f64, f64) -> f64,
) {
    let all: Vec<f64> = elements(x).iter().zip(elements(t)).map(|(&x, t)| formula(x, t)).collect();
    let sum: f64 = all.iter().sum();
    check(loss(Reduction::None), x.sizes(), &all, name);
    check(loss(Reduction::Sum), &[], &[sum], name);
    check(loss(Reduction::Mean), &[], &[sum / all.len() as f64], name);
}

#[test]
fn distance_losses_are_their_formulas() {
    let (x, t) = (Numbers(1).tensor(&[3, 4]), Numbers(2).tensor(&[3, 4]));
    check_elementwise("mse", &x, &t, |by| x.mse_loss(&t, by), |x, t| (x - t).powi(2));
    check_elementwise("l1", &x, &t, |by| x.l1_loss(&t, by), |x, t| (x - t).abs());
    let smooth = |x: f64, t: f64| {
        let d = (x - t).abs();
        if d < 0.7 { d * d / 1.4 } else { d - 0.35 }
    };
    check_elementwise("smooth l1", &x, &t, |by| x.smooth_l1_loss(&t, by, 0.7), smooth);
    check_elementwise("l1 as smooth", &x, &t, |by| x.smooth_l1_loss(&t, by, 0.0), |x, t| (x - t).abs());
    let huber = |x: f64, t: f64| {
        let d = (x - t).abs();
        if d <= 0.7 { d * d / 2.0 } else { 0.7 * (d - 0.35) }
    };
    check_elementwise("huber", &x, &t, |by| x.huber_loss(&t, by, 0.7), huber);
    check_error(x.huber_loss(&t, Reduction::Mean, 0.0), &["delta"]);
    check_error(x.smooth_l1_loss(&t, Reduction::Mean, -1.0), &["beta"]);
    check_error(x.to_dtype(DType::I64).and_then(|x| x.mse_loss(&t, Reduction::Mean)), &["i64", "floating"]);
}

#[test]
fn losses_of_probabilities_are_their_formulas() {
    let p = tensor(&[0.0, 0.25, 0.5, 1.0], &[4]);
    let t = tensor(&[0.0, 1.0, 0.5, 0.0], &[4]);
    let log = |x: f64| x.ln().max(-100.0);
    let entropy = |p: f64, t: f64| -(t * log(p) + (1.0 - t) * log(1.0 - p));
    check_elementwise("bce", &p, &t, |by| p.binary_cross_entropy(&t, None, by), entropy);
    let x = tensor(&[-800.0, -1.5, 0.0, 700.0], &[4]);
    let of_logits = |x: f64, t: f64| x.max(0.0) - x * t + (-x.abs()).exp().ln_1p();
    check_elementwise("logits", &x, &t, |by| x.binary_cross_entropy_with_logits(&t, None, None, by), of_logits);
    let (weight, positive) = (tensor(&[1.0, 2.0, 3.0, 4.0], &[4]), tensor(&[3.0], &[1]));
    let found = x.binary_cross_entropy_with_logits(&t, Some(&weight), Some(&positive), Reduction::None);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let part = |x: f64, t: f64| -(3.0 * t * sigmoid(x).ln() + (1.0 - t) * sigmoid(-x).ln());
    check(found, &[4], &[0.0, 2.0 * part(-1.5, 1.0), 3.0 * part(0.0, 0.5), 2800.0], "weights");
    check_error(p.binary_cross_entropy(&t.unsqueeze(0).expect("a dim"), None, Reduction::Mean), &["[1, 4]", "[4]"]);
    let divergence = |x: f64, t: f64| if t == 0.0 { 0.0 } else { t * (t.ln() - x) };
    let x = tensor(&[-0.5, -1.0, -2.0, -3.0], &[4]);
    check_elementwise("kl", &x, &t, |by| x.kl_div(&t, by, false), divergence);
    check_elementwise("log kl", &x, &x, |by| x.kl_div(&x, by, true), |_, _| 0.0);
}

/// `(N, C, L)` logits, class numbers, and per place the log-probabilities.
fn logits() -> (Tensor, Tensor, Vec<[f64; 3]>) {
    let x = Numbers(5).tensor(&[2, 3, 2]);
    let target = Tensor::from_slice(&[2i64, 0, 1, -7], &[2, 2]).expect("four");
    let data = elements(&x);
    let place = |n: usize, l: usize| {
        let row = [0, 1, 2].map(|c: usize| data[(n * 3 + c) * 2 + l]);
        let total: f64 = row.iter().map(|x| x.exp()).sum();
        row.map(|x| x - total.ln())
    };
    (x, target, vec![place(0, 0), place(0, 1), place(1, 0), place(1, 1)])
}

#[test]
fn losses_of_classes_are_their_formulas() {
    let (x, target, logs) = logits();
    let weight = tensor(&[0.5, 2.0, 3.0], &[3]);
    let options = CrossEntropy { weight: Some(&weight), ignore_index: -7, ..Default::default() };
    let own = [3.0 * -logs[0][2], 0.5 * -logs[1][0], 2.0 * -logs[2][1], 0.0];
    let by = |reduction: Reduction| x.cross_entropy(&target, &CrossEntropy { reduction, ..options.clone() });
    check(by(Reduction::None), &[2, 2], &own, "none");
    check(by(Reduction::Sum), &[], &[own.iter().sum()], "sum");
    check(by(Reduction::Mean), &[], &[own.iter().sum::<f64>() / 5.5], "mean");
    let smooth = CrossEntropy { label_smoothing: 0.3, reduction: Reduction::None, ..options.clone() };
    let even = |place: usize| -(0.5 * logs[place][0] + 2.0 * logs[place][1] + 3.0 * logs[place][2]);
    let smoothed: Vec<f64> = (0..3).map(|place| 0.7 * own[place] + 0.1 * even(place)).chain([0.0]).collect();
    check(x.cross_entropy(&target, &smooth), &[2, 2], &smoothed, "smoothed");
    let smooth = CrossEntropy { reduction: Reduction::Mean, ..smooth };
    check(x.cross_entropy(&target, &smooth), &[], &[smoothed.iter().sum::<f64>() / 5.5], "smoothed mean");
    let likelihood = x.log_softmax(1).and_then(|x| x.nll_loss(&target, &options));
    check(likelihood, &[], &[own.iter().sum::<f64>() / 5.5], "nll");
    let one = x.select(2, 0).and_then(|x| x.select(0, 0)).expect("there is one");
    let class = Tensor::scalar(2i64).expect("a number");
    check(one.cross_entropy(&class, &CrossEntropy::default()), &[], &[-logs[0][2]], "no batch");
    let none = Tensor::full(&[2, 2], -7, DType::I64).expect("memory");
    check(x.cross_entropy(&none, &options), &[], &[f64::NAN], "nothing counts");
}

#[test]
fn losses_of_class_probabilities_are_their_formulas() {
    let (x, _, logs) = logits();
    let target = Numbers(8).tensor(&[2, 3, 2]);
    let data = elements(&target);
    let (logs, data) = (&logs, &data);
    let sum = |share: f64| {
        let of = |place: usize| {
            (0..3).map(move |c: usize| {
                -logs[place][c] * (data[(place / 2 * 3 + c) * 2 + place % 2] * (1.0 - share) + share / 3.0)
            })
        };
        (0..4).flat_map(of).sum::<f64>()
    };
    check(x.cross_entropy(&target, &CrossEntropy::default()), &[], &[sum(0.0) / 4.0], "probabilities");
    let smooth = CrossEntropy { label_smoothing: 0.6, reduction: Reduction::Sum, ..Default::default() };
    check(x.cross_entropy(&target, &smooth), &[], &[sum(0.6)], "smoothed");
}

#[test]
fn bad_arguments_are_refused() {
    let (x, target, _) = logits();
    let plain = CrossEntropy::default();
    check_error(x.cross_entropy(&target, &plain), &["target", "out of range", "-7"]);
    check_error(x.nll_loss(&target.to_dtype(DType::F64).expect("memory"), &plain), &["f64", "i64"]);
    check_error(x.nll_loss(&target.select(0, 0).expect("there are two"), &plain), &["[2, 3, 2]", "[2]", "[2, 2]"]);
    let weight = tensor(&[1.0, 2.0], &[2]);
    let weighted = CrossEntropy { weight: Some(&weight), ..Default::default() };
    check_error(x.cross_entropy(&target, &weighted), &["weight", "[2]", "3 classes"]);
    let ignoring = CrossEntropy { ignore_index: 1, ..Default::default() };
    check_error(x.cross_entropy(&x, &ignoring), &["ignore_index"]);
    check_error(x.cross_entropy(&target, &CrossEntropy { label_smoothing: 1.5, ..plain }), &["label_smoothing"]);
}
