//! Metrics: counts in tensors, which compiled functions write to, and figures that are read from them.

use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::tensor::Tensor;
use opfuse_derive::TensorStruct;

/// How often the largest score is that of the class.
#[derive(Debug, Clone, TensorStruct)]
pub struct Accuracy {
    right: Tensor,
    total: Tensor,
}

impl Accuracy {
    /// No answers yet.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn new() -> Result<Accuracy> {
        Ok(Accuracy { right: Tensor::zeros(&[], DType::I64)?, total: Tensor::zeros(&[], DType::I64)? })
    }

    /// Counts the rows of scores `(N, C)` whose largest one is at the class in `targets`, `(N,)`.
    ///
    /// # Errors
    /// If sizes do not fit.
    #[track_caller]
    pub fn update(&self, scores: &Tensor, targets: &Tensor) -> Result<()> {
        let _unrecorded = no_grad();
        rows_of("Accuracy", scores, targets)?;
        self.right.add_(scores.argmax(1, false)?.eq(targets)?.to_dtype(DType::I64)?.sum_all()?)?;
        self.total.add_(targets.numel() as i64)
    }

    /// The part of right answers. NaN if there were none.
    ///
    /// # Errors
    /// Only errors of the read.
    pub fn value(&self) -> Result<f64> {
        Ok(self.right.item::<i64>()? as f64 / self.total.item::<i64>()? as f64)
    }
}

fn rows_of(op: &str, scores: &Tensor, targets: &Tensor) -> Result<()> {
    if scores.dim() == 2 && targets.sizes() == [scores.sizes()[0]] {
        return Ok(());
    }
    let what = format!("scores have sizes {:?}, targets {:?}", scores.sizes(), targets.sizes());
    Err(Error::shape(op, what, "they are (N, C) and (N,)"))
}

/// How often samples of a class (rows) get each answer (columns).
#[derive(Debug, Clone, TensorStruct)]
pub struct ConfusionMatrix {
    counts: Tensor,
}

impl ConfusionMatrix {
    /// No answers yet, for so many classes.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn new(classes: usize) -> Result<ConfusionMatrix> {
        Ok(ConfusionMatrix { counts: Tensor::zeros(&[classes, classes], DType::I64)? })
    }

    /// Counts the answers of scores `(N, C)` for the classes `(N,)`.
    ///
    /// # Errors
    /// If sizes do not fit, or if a class is out of range.
    #[track_caller]
    pub fn update(&self, scores: &Tensor, targets: &Tensor) -> Result<()> {
        let _unrecorded = no_grad();
        rows_of("ConfusionMatrix", scores, targets)?;
        let classes = self.counts.sizes()[0];
        if scores.sizes()[1] != classes {
            let what = format!("scores are of {} classes", scores.sizes()[1]);
            return Err(Error::shape("ConfusionMatrix", what, format!("the matrix has {classes}")));
        }
        let answers = scores.argmax(1, false)?;
        let ones = targets.ones_like()?.to_dtype(DType::I64)?;
        let places = [Some(targets.to_dtype(DType::I64)?), Some(answers)];
        self.counts.copy_(&self.counts.index_put(&places, &ones, true)?)
    }

    /// The counts, `(classes, answers)`.
    pub fn counts(&self) -> &Tensor {
        &self.counts
    }
}

/// The area under the receiver operating characteristic: how often a positive sample has a higher score than a negative
/// one. Scores are kept until it is read.
#[derive(Debug, Clone, Default, TensorStruct)]
pub struct Auc {
    scores: Vec<Tensor>,
    positive: Vec<Tensor>,
}

impl Auc {
    /// No answers yet.
    pub fn new() -> Auc {
        Auc::default()
    }

    /// Adds scores and whether the samples are positive, of the same sizes.
    ///
    /// # Errors
    /// If sizes differ.
    #[track_caller]
    pub fn update(&mut self, scores: &Tensor, positive: &Tensor) -> Result<()> {
        if scores.sizes() != positive.sizes() {
            let what = format!("scores have sizes {:?}, targets {:?}", scores.sizes(), positive.sizes());
            return Err(Error::shape("Auc", what, "they must be the same"));
        }
        let _unrecorded = no_grad();
        // Copies, because the caller may write to its tensors before the area is read.
        self.scores.push(scores.detach()?.to_dtype(DType::F64)?.reshape([-1])?.copy()?);
        self.positive.push(positive.ne(0)?.reshape([-1])?);
        Ok(())
    }

    /// The area. Equal scores count half. NaN if all samples are alike.
    ///
    /// # Errors
    /// If a score is NaN.
    pub fn value(&self) -> Result<f64> {
        let mut samples: Vec<(f64, bool)> = Vec::new();
        for (scores, positive) in self.scores.iter().zip(&self.positive) {
            samples.extend(scores.to_vec::<f64>()?.into_iter().zip(positive.to_vec::<bool>()?));
        }
        if samples.iter().any(|(score, _)| score.is_nan()) {
            return Err(Error::argument("Auc", "a score is NaN; it has no rank"));
        }
        samples.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut wins, mut below) = (0.0, 0.0);
        for equal in samples.chunk_by(|a, b| a.0 == b.0) {
            let positive = equal.iter().filter(|sample| sample.1).count() as f64;
            let negative = equal.len() as f64 - positive;
            wins += positive * (below + negative / 2.0);
            below += negative;
        }
        Ok(wins / (below * (samples.len() as f64 - below)))
    }
}

/// The exponential of the mean negative log-likelihood of tokens.
#[derive(Debug, Clone, TensorStruct)]
pub struct Perplexity {
    sum: Tensor,
    tokens: Tensor,
}

impl Perplexity {
    /// No tokens yet.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn new() -> Result<Perplexity> {
        Ok(Perplexity { sum: Tensor::zeros(&[], DType::F64)?, tokens: Tensor::zeros(&[], DType::I64)? })
    }

    /// Adds the mean loss of so many tokens.
    ///
    /// # Errors
    /// If the loss has several elements.
    #[track_caller]
    pub fn update(&self, loss: &Tensor, tokens: usize) -> Result<()> {
        let _unrecorded = no_grad();
        self.sum.add_(loss.detach()?.to_dtype(DType::F64)?.reshape(())?.mul(tokens as f64)?)?;
        self.tokens.add_(tokens as i64)
    }

    /// The perplexity. NaN if there were no tokens.
    ///
    /// # Errors
    /// Only errors of the read.
    pub fn value(&self) -> Result<f64> {
        Ok((self.sum.item::<f64>()? / self.tokens.item::<i64>()? as f64).exp())
    }
}
