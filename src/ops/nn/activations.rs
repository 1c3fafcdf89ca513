//! Activations with arguments. Those without are methods that the op table writes.

use crate::dispatch::composite::Composite;
use crate::error::Result;
use crate::ir::{Attr, Op, Scalar};
use crate::ops::in_place::row_methods;
use crate::tensor::handle::Tensor;

static CELU: Composite = Composite::new("aten::celu");
static PRELU: Composite = Composite::new("aten::prelu");
static GLU: Composite = Composite::new("aten::glu");

/// Element by element: activations with arguments.
impl Tensor {
    row_methods! {
        /// The element where positive, else the element times `slope`. Sizes and dtype are kept.
        ///
        /// # Errors
        /// If the dtype is not floating.
        leaky_relu leaky_relu_(slope: impl Into<Scalar>)
            |x, call| call(Op::LeakyRelu, &[x], &[Attr::Scalar(slope.into())]);

        /// The element where positive, else `alpha * (exp(x) - 1)`. Sizes and dtype are kept.
        ///
        /// # Errors
        /// If the dtype is not floating.
        elu elu_(alpha: impl Into<Scalar>)
            |x, call| call(Op::Elu, &[x], &[Attr::Scalar(alpha.into()), Attr::int(1), Attr::int(1)]);
    }

    /// The element where positive, else `alpha * (exp(x / alpha) - 1)`. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If the dtype is not floating or `alpha` is 0.
    pub fn celu(&self, alpha: impl Into<Scalar>) -> Result<Tensor> {
        CELU.call((self, alpha.into()))
    }

    /// The element where positive, else the element times `weight`: one number, or one per channel, which is dim 1.
    /// Sizes and dtype are kept.
    ///
    /// # Errors
    /// If the dtypes are not one and the same floating one, or `weight` has another shape.
    pub fn prelu(&self, weight: &Tensor) -> Result<Tensor> {
        PRELU.call((self, weight))
    }

    row_methods! {
        /// Elements limited to `min..=max`, which are converted to their dtype. Sizes and dtype are kept.
        ///
        /// # Errors
        /// For bools, and for u8 with a negative bound.
        hardtanh hardtanh_(min: impl Into<Scalar>, max: impl Into<Scalar>)
            |x, call| call(Op::Hardtanh, &[x], &[Attr::Scalar(min.into()), Attr::Scalar(max.into())]);

        /// `log(1 + exp(beta * x)) / beta`, and the element itself where `beta * x` is above `threshold`. Sizes and
        /// dtype are kept.
        ///
        /// # Errors
        /// If the dtype is not floating.
        softplus softplus_(beta: impl Into<Scalar>, threshold: impl Into<Scalar>)
            |x, call| call(Op::Softplus, &[x], &[Attr::Scalar(beta.into()), Attr::Scalar(threshold.into())]);

        /// The element brought closer to 0 by `lambda`, 0 within it. Sizes and dtype are kept.
        ///
        /// # Errors
        /// If the dtype is not floating or `lambda` is negative.
        softshrink softshrink_(lambda: impl Into<Scalar>)
            |x, call| call(Op::Softshrink, &[x], &[Attr::Scalar(lambda.into())]);

        /// The element, 0 within `lambda`. Sizes and dtype are kept.
        ///
        /// # Errors
        /// If the dtype is not floating.
        hardshrink hardshrink_(lambda: impl Into<Scalar>)
            |x, call| call(Op::Hardshrink, &[x], &[Attr::Scalar(lambda.into())]);

        /// The element where it is above `threshold`, else `value`. Sizes and dtype are kept.
        ///
        /// # Errors
        /// For bools.
        threshold threshold_(threshold: impl Into<Scalar>, value: impl Into<Scalar>)
            |x, call| call(Op::Threshold, &[x], &[Attr::Scalar(threshold.into()), Attr::Scalar(value.into())]);
    }

    /// The first half of `dim` times the logistic function of the second; `dim` is halved. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating, or `dim` is out of range or has an odd size.
    pub fn glu(&self, dim: i64) -> Result<Tensor> {
        GLU.call((self, dim))
    }
}
