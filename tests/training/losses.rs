//! Losses with the inputs, results and gradients that PyTorch recorded.

use crate::recorded::Recorded;
use opfuse::nn::Reduction;
use opfuse::nn::losses::*;
use opfuse::{Result, Tensor};

fn check(case: &str, run: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<()> {
    let recorded = Recorded::open("losses.safetensors");
    let inputs = recorded.inputs(case);
    let loss = run(&inputs).unwrap_or_else(|error| panic!("{case}: {error}"));
    recorded.check(case, &inputs, &[loss], None)
}

const REDUCTIONS: [(&str, Reduction); 3] =
    [("none", Reduction::None), ("mean", Reduction::Mean), ("sum", Reduction::Sum)];

#[test]
fn ranking_losses() -> Result<()> {
    let sign = Tensor::try_from([1i64, -1, 1, -1, 1])?;
    for (name, reduction) in REDUCTIONS {
        check(&format!("cosine_embedding_{name}"), |x| cosine_embedding_loss(&x[0], &x[1], &sign, 0.1, reduction))?;
    }
    let mean = Reduction::Mean;
    check("margin_ranking", |x| margin_ranking_loss(&x[0], &x[1], &sign, 0.3, mean))?;
    check("hinge_embedding", |x| hinge_embedding_loss(&x[0], &sign, 0.8, mean))?;
    check("soft_margin", |x| soft_margin_loss(&x[0], &sign, mean))?;
    check("triplet", |x| triplet_margin_loss(&x[0], &x[1], &x[2], 1.5, 2.0, mean))?;
    let classes = Tensor::try_from([0i64, 2, 1, 1])?;
    check("multi_margin", |x| multi_margin_loss(&x[0], &classes, 0.7, mean))
}

#[test]
fn likelihoods() -> Result<()> {
    let mean = Reduction::Mean;
    check("gaussian_nll", |x| gaussian_nll_loss(&x[0], &x[1], &x[2], true, 1e-6, mean))?;
    let counts = Tensor::try_from([0.0f32, 1.0, 2.0, 5.0, 3.0])?;
    check("poisson_nll", |x| poisson_nll_loss(&x[0], &counts, true, true, 1e-8, mean))?;
    check("poisson_nll_rates", |x| poisson_nll_loss(&x[0], &counts, false, false, 1e-8, mean))
}

#[test]
fn connectionist_temporal_classification() -> Result<()> {
    let targets = Tensor::try_from([[1i64, 1, 2, 4], [3, 2, 0, 0], [4, 0, 0, 0]])?;
    let (steps, classes) = (Tensor::try_from([9i64, 7, 5])?, Tensor::try_from([4i64, 2, 0])?);
    for (name, reduction) in REDUCTIONS {
        check(&format!("ctc_{name}"), |x| ctc_loss(&x[0].log_softmax(-1)?, &targets, &steps, &classes, 0, reduction))?;
    }
    let short = Tensor::zeros(&[2, 1, 3], opfuse::DType::F32)?.log_softmax(-1)?;
    let (two, twice) = (Tensor::try_from([2i64])?, Tensor::try_from([[1i64, 1]])?);
    let loss = ctc_loss(&short, &twice, &two, &two, 0, Reduction::None)?;
    assert_eq!(loss.to_vec::<f32>()?, [f32::INFINITY], "the same class twice takes three steps");
    Ok(())
}
