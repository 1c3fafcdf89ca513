//! Normalizations against means and variances that are computed by loops.

use super::{Numbers, check, check_error, elements, tensor};
use opfuse::Tensor;
use opfuse::nn::BatchNorm;

/// Each group of elements, named by `group`, normalized.
fn normalized(data: &[f64], group: impl Fn(usize) -> usize, eps: f64) -> Vec<f64> {
    let normal = |index: usize| {
        let own: Vec<f64> = (0..data.len()).filter(|&i| group(i) == group(index)).map(|i| data[i]).collect();
        let mean = own.iter().sum::<f64>() / own.len() as f64;
        let variance = own.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / own.len() as f64;
        (data[index] - mean) / (variance + eps).sqrt()
    };
    (0..data.len()).map(normal).collect()
}

#[test]
fn channels_groups_and_instances_are_normalized() {
    let x = Numbers(1).tensor(&[3, 4, 5]);
    let (weight, bias) = (Numbers(2).tensor(&[4]), Numbers(3).tensor(&[4]));
    let (ws, bs, data) = (elements(&weight), elements(&bias), elements(&x));
    let scaled = |values: Vec<f64>| -> Vec<f64> {
        values.iter().enumerate().map(|(i, y)| y * ws[i / 5 % 4] + bs[i / 5 % 4]).collect()
    };
    let options =
        BatchNorm { weight: Some(&weight), bias: Some(&bias), training: true, eps: 0.25, ..Default::default() };
    let by_channel = scaled(normalized(&data, |i| i / 5 % 4, 0.25));
    check(x.batch_norm(&options), x.sizes(), &by_channel, "batch");
    check(x.instance_norm(&options), x.sizes(), &scaled(normalized(&data, |i| i / 5, 0.25)), "instance");
    let by_group = scaled(normalized(&data, |i| i / 10, 0.25));
    check(x.group_norm(2, Some(&weight), Some(&bias), 0.25), x.sizes(), &by_group, "group");
    let (mean, variance) = (tensor(&[1.0, 2.0, 3.0, 4.0], &[4]), tensor(&[1.0, 4.0, 9.0, 16.0], &[4]));
    let by_running: Vec<f64> =
        data.iter().enumerate().map(|(i, x)| (x - (i / 5 % 4) as f64 - 1.0) / (i / 5 % 4 + 1) as f64).collect();
    let running = BatchNorm { running: Some((&mean, &variance)), eps: 0.0, ..Default::default() };
    check(x.batch_norm(&running), x.sizes(), &by_running, "running");
}

#[test]
fn running_statistics_follow_the_batch() {
    let x = tensor(&[1.0, 3.0, 10.0, 20.0, 5.0, 3.0, 30.0, 20.0], &[2, 2, 2]);
    let running = || (tensor(&[1.0, 2.0], &[2]), tensor(&[1.0, 4.0], &[2]));
    let (mean, variance) = running();
    let options = BatchNorm { running: Some((&mean, &variance)), training: true, momentum: 0.25, ..Default::default() };
    x.batch_norm(&options).expect("it fits");
    // Channel means are 3 and 20, sample variances 8 / 3 and 200 / 3.
    check(Ok(mean.clone()), &[2], &[1.5, 6.5], "mean");
    check(Ok(variance.clone()), &[2], &[0.75 + 2.0 / 3.0, 3.0 + 50.0 / 3.0], "variance");
    let (mean, variance) = running();
    let options = BatchNorm { running: Some((&mean, &variance)), ..options };
    x.instance_norm(&options).expect("it fits");
    // Per sample: means 2, 4 and 15, 25; variances 2, 2 and 50, 50.
    check(Ok(mean.clone()), &[2], &[0.75 + 0.75, 1.5 + 5.0], "mean of instances");
    check(Ok(variance.clone()), &[2], &[0.75 + 0.5, 3.0 + 12.5], "variance of instances");
}

#[test]
fn rms_norm_divides_by_the_root_mean_square() {
    let x = Numbers(4).tensor(&[2, 3, 4]);
    let weight = Numbers(5).tensor(&[3, 4]);
    let data = elements(&x);
    let expected = |eps: f64| -> Vec<f64> {
        let square = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>() / 12.0;
        let scale = |i: usize| (square(&data[i / 12 * 12..][..12]) + eps).sqrt();
        data.iter().enumerate().map(|(i, x)| x / scale(i) * elements(&weight)[i % 12]).collect()
    };
    check(x.rms_norm([3, 4], Some(&weight), Some(0.5)), x.sizes(), &expected(0.5), "eps");
    check(x.rms_norm([3, 4], Some(&weight), None), x.sizes(), &expected(f64::EPSILON), "no eps");
}

#[test]
fn empty_tensors_are_normalized() {
    let none = Tensor::zeros(&[0, 4, 5], opfuse::DType::F64).expect("memory");
    let options = BatchNorm { training: true, ..Default::default() };
    check(none.batch_norm(&options), &[0, 4, 5], &[], "batch");
    check(none.group_norm(2, None, None, 1e-5), &[0, 4, 5], &[], "group");
    check(none.rms_norm(5, None, None), &[0, 4, 5], &[], "rms");
}

#[test]
fn bad_arguments_are_refused() {
    let x = Numbers(6).tensor(&[2, 4, 3]);
    let short = tensor(&[1.0, 2.0], &[2]);
    check_error(x.batch_norm(&BatchNorm::default()), &["running statistics"]);
    let bad = BatchNorm { bias: Some(&short), training: true, ..Default::default() };
    check_error(x.batch_norm(&bad), &["bias", "[2]", "4 channels"]);
    check_error(x.group_norm(3, None, None, 1e-5), &["4 channels", "3 groups"]);
    check_error(x.rms_norm(4, None, None), &["[4]", "[2, 4, 3]"]);
    check_error(short.batch_norm(&BatchNorm { training: true, ..Default::default() }), &["[2]", "at least 2 dims"]);
}
