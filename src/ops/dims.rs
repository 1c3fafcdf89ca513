//! Lists of dims or sizes as arguments.

use crate::ir::attrs::Ints;
use smallvec::SmallVec;

/// Dims or sizes: one number, an array, a slice or a vector.
///
/// Negative dims count from the end. The method defines the meaning of an empty list and of a size of −1. For
/// reductions an empty list, written `()`, means all dims.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dims(SmallVec<[i64; 6]>);

impl Dims {
    /// The numbers.
    pub fn as_slice(&self) -> &[i64] {
        &self.0
    }
}

/// The numbers as an attribute of a row.
pub(crate) fn ints(dims: impl Into<Dims>) -> Ints {
    Ints::from_slice(dims.into().as_slice())
}

impl From<()> for Dims {
    fn from((): ()) -> Dims {
        Dims::default()
    }
}

impl From<i64> for Dims {
    fn from(dim: i64) -> Dims {
        Dims(SmallVec::from_slice(&[dim]))
    }
}

impl From<&[i64]> for Dims {
    fn from(dims: &[i64]) -> Dims {
        Dims(SmallVec::from_slice(dims))
    }
}

impl From<Vec<i64>> for Dims {
    fn from(dims: Vec<i64>) -> Dims {
        Dims(SmallVec::from_vec(dims))
    }
}

impl From<&Vec<i64>> for Dims {
    fn from(dims: &Vec<i64>) -> Dims {
        Dims::from(dims.as_slice())
    }
}

impl<const N: usize> From<[i64; N]> for Dims {
    fn from(dims: [i64; N]) -> Dims {
        Dims::from(dims.as_slice())
    }
}

impl<const N: usize> From<&[i64; N]> for Dims {
    fn from(dims: &[i64; N]) -> Dims {
        Dims::from(dims.as_slice())
    }
}

/// The sizes of a tensor, as in `a.view(b.sizes())`.
impl From<&[usize]> for Dims {
    fn from(sizes: &[usize]) -> Dims {
        // No tensor is as large as the bound, so operators reject it as too many elements.
        Dims(sizes.iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)).collect())
    }
}
