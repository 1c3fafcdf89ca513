//! The static type of a value: dtype, sizes, strides.

use super::dtype::{DType, PromoteOperand, PromoteRank};
use super::shape::{Sizes, Strides, contiguous_strides, is_contiguous, numel};
use std::fmt;

/// The type of a tensor value in a graph. Sizes and strides count elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub sizes: Sizes,
    /// Strides that an eager result would have.
    pub strides: Strides,
    /// Whether the value stands for a plain number, which has the lowest priority in promotion.
    pub number: bool,
}

impl TensorType {
    /// A dense row-major type.
    pub fn contiguous(dtype: DType, sizes: &[usize]) -> TensorType {
        TensorType { dtype, sizes: sizes.into(), strides: contiguous_strides(sizes), number: false }
    }

    /// The type of a plain number.
    pub fn number(dtype: DType) -> TensorType {
        TensorType { dtype, sizes: Sizes::new(), strides: Strides::new(), number: true }
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        numel(&self.sizes)
    }

    /// Bytes of the elements, each counted once.
    pub fn bytes(&self) -> usize {
        // An expanded dimension repeats the same bytes.
        let distinct = self.sizes.iter().zip(&self.strides).filter(|(_, stride)| **stride != 0).map(|(size, _)| size);
        distinct.product::<usize>() * self.dtype.size()
    }

    /// Whether the elements are dense and row-major.
    pub fn is_contiguous(&self) -> bool {
        is_contiguous(&self.sizes, &self.strides)
    }

    /// The operand that promotion sees.
    pub fn promote_operand(&self) -> PromoteOperand {
        let rank = match (self.number, self.rank()) {
            (true, _) => PromoteRank::Number,
            (false, 0) => PromoteRank::ZeroDim,
            (false, _) => PromoteRank::Tensor,
        };
        PromoteOperand { dtype: self.dtype, rank }
    }
}

impl fmt::Display for TensorType {
    /// `f32[4,8]`. Strides follow a colon if they are not row-major: `f32[4,8:1,4]`. A plain number ends in `#`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &[usize]| values.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        write!(f, "{}[{}", self.dtype, list(&self.sizes))?;
        if self.strides != contiguous_strides(&self.sizes) {
            write!(f, ":{}", list(&self.strides))?;
        }
        write!(f, "]{}", if self.number { "#" } else { "" })
    }
}
