//! Norms, cosines, contractions and attention.

use crate::dispatch::composite::Composite;
use crate::error::Result;
use crate::ir::{DType, Scalar};
use crate::ops::dims::Dims;
use crate::tensor::handle::Tensor;

/// The arguments of [`Tensor::attention`] that are rarely given.
#[derive(Debug, Clone, Default)]
pub struct Attention<'a> {
    /// Where a bool mask is false nothing is attended to; a floating one is added to the scores. It broadcasts to
    /// `(…, L, S)`.
    pub mask: Option<&'a Tensor>,
    /// Whether position `i` attends to positions up to `i` only.
    pub is_causal: bool,
    /// What scores are multiplied by; one over the root of the number of features if not given.
    pub scale: Option<f64>,
    /// Whether key and value may have fewer heads (dim −3) than the query, each for several of its.
    pub shares_heads: bool,
}

/// Norms and attention. 16-bit floats are computed in f32 and rounded once.
impl Tensor {
    /// `sum(|x|^p)^(1/p)` over dims, all if empty; for 0 the number of elements that are not 0, for infinity the
    /// greatest magnitude, for minus infinity the least. The gradient where the norm is 0 is 0. The dims go away, or
    /// keep size 1 if `keepdim`. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating, or a dim is out of range or named twice.
    pub fn norm(&self, p: impl Into<Scalar>, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        static VECTOR_NORM: Composite = Composite::new("aten::linalg_vector_norm");
        VECTOR_NORM.call((self, p.into(), Some(dims.into().as_slice()), keepdim, None::<DType>))
    }

    /// The cosine of the angle between two tensors along a dim; sizes are broadcast. Norms count as at least `eps`. The
    /// dim goes away.
    ///
    /// # Errors
    /// If the common dtype is not floating, the sizes do not broadcast, or the dim is out of range.
    pub fn cosine_similarity(&self, other: &Tensor, dim: i64, eps: f64) -> Result<Tensor> {
        static COSINE_SIMILARITY: Composite = Composite::new("aten::cosine_similarity");
        COSINE_SIMILARITY.call((self, other, dim, eps))
    }

    /// `softmax(self @ key' * scale) @ value`: of a query `(…, L, E)`, keys `(…, S, E)` and values `(…, S, V)`, for
    /// each position of the query a mean of the values, `(…, L, V)`. What may attend to nothing gets zeros. All have
    /// one dtype, which the result gets.
    ///
    /// # Errors
    /// If dtypes differ or are not floating, shapes do not fit, or both a mask and `is_causal` are given.
    pub fn attention(&self, key: &Tensor, value: &Tensor, options: &Attention<'_>) -> Result<Tensor> {
        static ATTENTION: Composite = Composite::new("aten::scaled_dot_product_attention");
        let Attention { mask, is_causal, scale, shares_heads } = *options;
        ATTENTION.call((self, key, value, mask, 0.0, is_causal, scale, shares_heads))
    }
}

/// The sum of products that an equation names: `einsum("bij,bjk->bik", &[&a, &b])`. A label that the result lacks is
/// summed over, a label that an operand has twice names its diagonal, and `...` stands for any dims. All have one dtype,
/// which the result gets.
///
/// # Errors
/// If the equation does not fit the tensors, or sizes of one label differ and are not 1.
pub fn einsum(equation: &str, tensors: &[&Tensor]) -> Result<Tensor> {
    static EINSUM: Composite = Composite::new("aten::einsum");
    let tensors: Vec<Tensor> = tensors.iter().map(|&tensor| tensor.clone()).collect();
    EINSUM.call((equation, &tensors[..], None::<&[i64]>))
}
