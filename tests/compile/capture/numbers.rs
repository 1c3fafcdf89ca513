//! Plain numbers as inputs and as captured tensors.

use super::check::ramp;
use super::history::leaf_buffer_and_number;
use super::twins::{Twins, check_all};
use opfuse::{Result, Tensor};

/// Numbers of numbers are numbers, and views of a number are copies.
#[test]
fn plain_numbers_stay_plain_numbers() {
    const CASES: &[Twins] = &[
        Twins::new("numbers of numbers", |x, _| Ok(vec![x[1].add(&x[1])?, x[1].exp()?, x[0].mul(&x[1].mul(0.5)?)?])),
        Twins::new("numbers of captured numbers", |x, w| Ok(vec![w[2].neg()?, x[0].add(&w[2].tanh()?)?])),
        Twins::new("a number that is returned", |x, w| Ok(vec![x[1].clone(), w[2].data(), x[0].neg()?])),
        Twins::new("a view of a number that is written", |x, w| {
            let (view, captured) = (x[1].view(-1)?, w[2].unsqueeze(0)?);
            view.add_(1.0)?;
            captured.mul_(2.0)?;
            Ok(vec![view, captured, x[1].add(&w[2])?])
        }),
        Twins::new("views of a view of a number", |x, _| {
            let view = x[1].detach()?;
            let wide = view.expand([2, 2])?;
            Ok(vec![view, wide, x[0].add(1)?])
        }),
        Twins::new("numbers around a read", |x, w| {
            let view = x[1].alias()?;
            let half = x[1].mul(0.5)?;
            view.sub_(&half)?;
            let read = x[0].sum_all()?.item::<f32>()? as f64;
            Ok(vec![view, half.add(read)?, w[2].abs()?, half.masked_select(&x[1].gt(0)?)?])
        })
        .any_way(),
        Twins::new("a number that is written", |x, _| {
            x[1].copy_(&x[1])?;
            Ok(vec![x[0].neg()?])
        })
        .any_way(),
        Twins::new("a number that shall require gradients", |x, _| {
            x[1].set_requires_grad(true)?;
            Ok(vec![x[0].mul(&x[1])?])
        })
        .any_way(),
    ];
    fn tensor_and_number(call: usize) -> Result<Vec<Tensor>> {
        Ok(vec![ramp(&[4], call)?, Tensor::number(0.25 * (call as f64 + 1.0))?])
    }
    let of = |case: &Twins| Twins { inputs: tensor_and_number, captured: leaf_buffer_and_number, ..*case };
    check_all(&CASES.iter().map(of).collect::<Vec<Twins>>());
}
