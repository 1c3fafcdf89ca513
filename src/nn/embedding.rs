//! Tables of rows: embeddings, and sums of embeddings.

use super::init::{normal, parameter};
use super::module::{Forward, Module};
use crate::autograd::no_grad;
use crate::dispatch::Dispatcher;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::embedding;
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
    pub fn new(rows: usize, features: usize) -> Result<Embedding> {
        let weight = parameter(&[rows, features])?;
        normal(&weight, 0.0, 1.0)?;
        Ok(Embedding { weight, padding: None })
    }

    /// The table with a row of zeros that has no gradient.
    ///
    /// # Errors
    /// If there is no such row.
    pub fn with_padding(self, row: usize) -> Result<Embedding> {
        let _unrecorded = no_grad();
        self.weight.select(0, row as i64)?.fill_(0.0)?;
        Ok(Embedding { padding: Some(row), ..self })
    }
}

impl Forward for Embedding {
    /// The rows of integer ids: the sizes of these, and then the features.
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
    pub fn new(rows: usize, features: usize) -> Result<EmbeddingBag> {
        Ok(EmbeddingBag { weight: Embedding::new(rows, features)?.weight, mode: BagMode::Mean })
    }

    /// The bags of ids in a row, which begin at `offsets`. The first offset is 0.
    ///
    /// # Errors
    /// If ids or offsets are not 1-dim, or if an id is out of range.
    pub fn forward_offsets(&self, ids: &Tensor, offsets: &Tensor) -> Result<Tensor> {
        if ids.dim() != 1 || offsets.dim() != 1 {
            let what = format!("ids have sizes {:?}, offsets {:?}", ids.sizes(), offsets.sizes());
            return Err(Error::shape("embedding_bag", what, "both have one dim here"));
        }
        let (n, bags) = (ids.numel(), offsets.numel());
        // The bag of each id: how many offsets are at or before it, less one.
        let at = Tensor::arange(0, n as i64, 1)?.to_device(ids.device())?.unsqueeze(1)?;
        let bag = offsets.to_dtype(DType::I64)?.unsqueeze(0)?.le(&at)?.to_dtype(DType::I64)?.sum([1], false)?.sub(1)?;
        let rows = embedding(&self.weight, ids)?;
        let zeros = Tensor::zeros(&[bags, rows.sizes()[1]], rows.dtype())?.to_device(rows.device())?;
        match self.mode {
            BagMode::Sum => zeros.index_add(0, &bag, &rows),
            BagMode::Mean => {
                let ones = Tensor::ones(&[n, 1], rows.dtype())?.to_device(rows.device())?;
                let counts = zeros.narrow(1, 0, 1)?.index_add(0, &bag, &ones)?.clamp_min(1)?;
                zeros.index_add(0, &bag, &rows)?.div(&counts)
            }
            BagMode::Max => {
                let index = bag.unsqueeze(1)?.expand_as(&rows)?;
                let reduce = Dispatcher::global().find_schema("aten::scatter_reduce", "two")?;
                reduce.call((&zeros, 0i64, &index, &rows, "amax", false))
            }
        }
    }
}

impl Forward for EmbeddingBag {
    /// The bags that are the rows of `(bags, ids)`.
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
