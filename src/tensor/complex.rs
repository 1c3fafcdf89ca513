//! Complex tensors: wrappers of pairs.
//!
//! The *pairs* of a complex tensor are a tensor of real numbers with one more dim, the last, of size 2: the real and
//! the imaginary part of each element, side by side in memory. Kernels, graphs, gradients and compiled functions see
//! pairs alone. The key `Complex` lies above those of all of them, and says what an operator does to pairs
//! (`src/transforms/complex`).

use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::set::KeySet;
use crate::error::{Error, Result};
use crate::ir::TensorType;
use crate::ir::shape::contiguous_strides;
use crate::tensor::handle::Tensor;
use std::sync::Arc;

/// The payload of a complex tensor.
struct Pairs(Tensor);

impl Tensor {
    /// The complex tensor with these pairs, which lie side by side in memory. It shares their elements and their
    /// gradient.
    ///
    /// # Errors
    /// If they do not lie side by side.
    pub(crate) fn of_pairs(pairs: &Tensor) -> Result<Tensor> {
        if !are_side_by_side(pairs) {
            let what = format!("{} with strides {:?} is not pairs of f32 or f64", pairs.ty(), pairs.strides());
            return Err(Error::shape("view_as_complex", what, "the last dim must have size 2 and stride 1"));
        }
        let mut ty = TensorType { number: false, dtype: pairs.dtype().complex(), ..pairs.ty() };
        ty.sizes.pop();
        ty.strides.pop();
        // A tensor without elements has strides that say nothing.
        match pairs.numel() {
            0 => ty.strides = contiguous_strides(&ty.sizes),
            _ => ty.strides.iter_mut().for_each(|stride| *stride /= 2),
        }
        let keys = pairs.key_set() | KeySet::of(DispatchKey::Complex);
        Tensor::wrapper(&ty, pairs.device(), keys, Arc::new(Pairs(pairs.clone())))
    }

    /// The pairs of a complex tensor: its elements as real numbers, with one more dim. `None` if the dtype is real.
    pub(crate) fn pairs(&self) -> Option<&Tensor> {
        self.payload::<Pairs>().map(|pairs| &pairs.0)
    }

    /// The tensor of real numbers that holds the elements: the pairs of a complex tensor, and any other tensor itself.
    pub(crate) fn as_real(&self) -> &Tensor {
        self.pairs().unwrap_or(self)
    }
}

/// Whether a tensor can be the pairs of a complex one.
pub(crate) fn are_side_by_side(pairs: &Tensor) -> bool {
    let (sizes, strides) = (pairs.sizes(), pairs.strides());
    let is_even = |dim: usize| strides[dim].is_multiple_of(2) || sizes[dim] == 1;
    let is_of_parts = pairs.dtype().complex().part() == pairs.dtype() && sizes.last() == Some(&2);
    is_of_parts && (pairs.numel() == 0 || (strides.last() == Some(&1) && (0..sizes.len() - 1).all(is_even)))
}
