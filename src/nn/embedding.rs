//! Tables of rows: embeddings, and sums of embeddings.

use super::init::{normal, parameter};
use super::module::{Forward, Module};
use crate::autograd::no_grad;
use crate::dispatch::Dispatcher;
use crate::error::{Error, Result};
use crate::ops::embedding;
use crate::ops::embedding_bag::{Bags, EMBEDDING_BAG};
use crate::tensor::Tensor;

/// Rows of a table by number. As in PyTorch, the table starts normal.
#[derive(Clone, Module)]
pub struct Embedding {
    /// `(rows, features)`.
    pub weight: Tensor,
    /// The row that has no gradient.
    #[module(skip)]
    pub padding: Option<usize>,
}

impl Embedding {
    /// A table of so many rows.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn new(rows: usize, features: usize) -> Result<Embedding> {
        let weight = parameter(&[rows, features])?;
        normal(&weight, 0.0, 1.0)?;
        Ok(Embedding { weight, padding: None })
    }

    /// The table with a row of zeros that has no gradient.
    ///
    /// # Errors
    /// If there is no such row.
    #[track_caller]
    pub fn with_padding(self, row: usize) -> Result<Embedding> {
        let _unrecorded = no_grad();
        self.weight.select(0, row as i64)?.fill_(0.0)?;
        Ok(Embedding { padding: Some(row), ..self })
    }
}

impl Forward for Embedding {
    /// The rows of integer ids: the sizes of these, and then the features.
    #[track_caller]
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let Some(row) = self.padding else {
            return embedding(&self.weight, ids);
        };
        Dispatcher::global().find_schema("aten::embedding", "")?.call((&self.weight, ids, row as i64, false, false))
    }
}

/// How the rows of a bag become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BagMode {
    /// Their sum.
    Sum,
    /// Their mean. An empty bag gives zeros.
    #[default]
    Mean,
    /// The largest element of each column. An empty bag gives zeros.
    Max,
}

/// Rows of a table by number, bag by bag.
#[derive(Clone, Module)]
pub struct EmbeddingBag {
    /// `(rows, features)`.
    pub weight: Tensor,
    /// How rows become one.
    #[module(skip)]
    pub mode: BagMode,
}

impl EmbeddingBag {
    /// A table of so many rows, whose bags are means.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn new(rows: usize, features: usize) -> Result<EmbeddingBag> {
        Ok(EmbeddingBag { weight: Embedding::new(rows, features)?.weight, mode: BagMode::Mean })
    }

    /// The bags of ids in a row, which begin at `offsets`. The first offset is 0.
    ///
    /// # Errors
    /// If ids or offsets are not 1-dim, or if an id is out of range.
    #[track_caller]
    pub fn forward_offsets(&self, ids: &Tensor, offsets: &Tensor) -> Result<Tensor> {
        if ids.dim() != 1 || offsets.dim() != 1 {
            let what = format!("ids have sizes {:?}, offsets {:?}", ids.sizes(), offsets.sizes());
            return Err(Error::shape("embedding_bag", what, "both have one dim here"));
        }
        let mode = match self.mode {
            BagMode::Sum => 0i64,
            BagMode::Mean => 1,
            BagMode::Max => 2,
        };
        let bags: Bags =
            EMBEDDING_BAG.call((&self.weight, ids, offsets, false, mode, false, None::<&Tensor>, false))?;
        Ok(bags.0)
    }
}

impl Forward for EmbeddingBag {
    /// The bags that are the rows of `(bags, ids)`.
    #[track_caller]
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        if ids.dim() != 2 {
            let what = format!("ids have sizes {:?}", ids.sizes());
            return Err(Error::shape("embedding_bag", what, "they have two dims; use forward_offsets for one"));
        }
        let rows = embedding(&self.weight, ids)?;
        match self.mode {
            BagMode::Sum => rows.sum([1], false),
            BagMode::Mean => rows.mean([1], false),
            BagMode::Max => rows.amax([1], false),
        }
    }
}
