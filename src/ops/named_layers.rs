//! Methods of layers under ATen's names: padding by rank, resampling, single recurrent steps, and random activations.
//!
//! The files of their subjects define the operators.

use crate::device::Generator;
use crate::ir::Scalar;
use crate::ops::arguments::tensor_list;
use crate::ops::dims::Dims;
use crate::ops::losses::Reduction;
use crate::ops::named::{dims_of, named_methods};
use crate::tensor::handle::Tensor;

const NO_SCALE: Option<f64> = None;

/// Padding with elements, the last dim first. See [`Tensor::border_pad`], which takes any rank.
impl Tensor {
    named_methods! {
        /// Pads `(N, C, L)` or `(C, L)` with elements mirrored at the edge.
        ///
        /// # Errors
        /// If the rank does not fit, or if a border is as wide as the dim.
        reflection_pad1d(self, pads: [i64; 2]) -> Tensor, "reflection_pad1d" (self, &pads[..]);

        /// Pads `(N, C, H, W)` or `(C, H, W)` with elements mirrored at the edge.
        ///
        /// # Errors
        /// If the rank does not fit, or if a border is as wide as the dim.
        reflection_pad2d(self, pads: [i64; 4]) -> Tensor, "reflection_pad2d" (self, &pads[..]);

        /// Pads `(N, C, D, H, W)` or `(C, D, H, W)` with elements mirrored at the edge.
        ///
        /// # Errors
        /// If the rank does not fit, or if a border is as wide as the dim.
        reflection_pad3d(self, pads: [i64; 6]) -> Tensor, "reflection_pad3d" (self, &pads[..]);

        /// Pads `(N, C, L)` or `(C, L)` with the edge element.
        ///
        /// # Errors
        /// If the rank does not fit, or if the dim has no elements.
        replication_pad1d(self, pads: [i64; 2]) -> Tensor, "replication_pad1d" (self, &pads[..]);

        /// Pads `(N, C, H, W)` or `(C, H, W)` with the edge elements.
        ///
        /// # Errors
        /// If the rank does not fit, or if a dim has no elements.
        replication_pad2d(self, pads: [i64; 4]) -> Tensor, "replication_pad2d" (self, &pads[..]);

        /// Pads `(N, C, D, H, W)` or `(C, D, H, W)` with the edge elements.
        ///
        /// # Errors
        /// If the rank does not fit, or if a dim has no elements.
        replication_pad3d(self, pads: [i64; 6]) -> Tensor, "replication_pad3d" (self, &pads[..]);
    }
}

/// Resampling. [`Tensor::resize2d`] has the other two for images.
impl Tensor {
    named_methods! {
        /// Resizes the lines of `(N, C, L)` by the nearest elements. The dtype is kept.
        ///
        /// # Errors
        /// If there are not 3 dims, or if a size is 0.
        upsample_nearest1d(self, size: i64) -> Tensor, "upsample_nearest1d" (self, &[size][..], NO_SCALE);

        /// Resizes the volumes of `(N, C, D, H, W)` by the nearest elements. The dtype is kept.
        ///
        /// # Errors
        /// If there are not 5 dims, or if a size is 0.
        upsample_nearest3d(self, sizes: [i64; 3]) -> Tensor, "upsample_nearest3d"
            (self, &sizes[..], NO_SCALE, NO_SCALE, NO_SCALE);

        /// Resizes the lines of `(N, C, L)` by linear interpolation, where the centres of elements or, with
        /// `align_corners`, the ends are aligned. The dtype is kept.
        ///
        /// # Errors
        /// If there are not 3 dims, if a size is 0, or if the dtype is not floating.
        upsample_linear1d(self, size: i64, align_corners: bool) -> Tensor, "upsample_linear1d"
            (self, &[size][..], align_corners, NO_SCALE);

        /// Resizes the images of `(N, C, H, W)` by cubic interpolation. See [`Tensor::upsample_linear1d`].
        ///
        /// # Errors
        /// If there are not 4 dims, if a size is 0, or if the dtype is not floating.
        upsample_bicubic2d(self, sizes: [i64; 2], align_corners: bool) -> Tensor, "upsample_bicubic2d"
            (self, &sizes[..], align_corners, NO_SCALE, NO_SCALE);

        /// Resizes the volumes of `(N, C, D, H, W)` by linear interpolation. See [`Tensor::upsample_linear1d`].
        ///
        /// # Errors
        /// If there are not 5 dims, if a size is 0, or if the dtype is not floating.
        upsample_trilinear3d(self, sizes: [i64; 3], align_corners: bool) -> Tensor, "upsample_trilinear3d"
            (self, &sizes[..], align_corners, NO_SCALE, NO_SCALE, NO_SCALE);

        /// The positions from -1 to 1 that each of the affine maps in this tensor gives for the elements of an image.
        /// The maps are `(N, 2, 3)` for sizes `(N, C, H, W)`, or `(N, 3, 4)` for `(N, C, D, H, W)`. They are for
        /// [`Tensor::grid_sample`].
        ///
        /// # Errors
        /// If the sizes do not fit, or if the dtype is not floating.
        affine_grid_generator(self, sizes: impl Into<Dims>, align_corners: bool) -> Tensor, "affine_grid_generator"
            (self, dims_of(sizes).as_slice(), align_corners);

        /// Puts each element to its place in its plane, where others are 0: the reverse of
        /// [`Tensor::max_pool2d_with_indices`]. The input is `(N, C, H, W)` or `(C, H, W)`.
        ///
        /// # Errors
        /// If the shapes differ, if the rank does not fit, or if an index is out of range.
        max_unpool2d(self, indices: &Tensor, sizes: [i64; 2]) -> Tensor, "max_unpool2d" (self, indices, &sizes[..]);
    }
}

/// Recurrent steps. The input is `(N, in)`, the state `(N, hidden)`, and weights hold the gates one after the other:
/// `(gates * hidden, in)` and `(gates * hidden, hidden)`. `nn` has the layers of several steps.
impl Tensor {
    named_methods! {
        /// One step of an LSTM: the new hidden state and the new cell. `state` holds the old ones. There are four
        /// gates.
        ///
        /// # Errors
        /// If the sizes do not fit, or if dtypes differ.
        lstm_cell(self, state: [&Tensor; 2], weights: [&Tensor; 2], biases: [Option<&Tensor>; 2]) -> (Tensor, Tensor),
            "lstm_cell" (self, &tensor_list(&state)[..], weights[0], weights[1], biases[0], biases[1]);

        /// One step of a GRU: the new state. There are three gates.
        ///
        /// # Errors
        /// If the sizes do not fit, or if dtypes differ.
        gru_cell(self, state: &Tensor, weights: [&Tensor; 2], biases: [Option<&Tensor>; 2]) -> Tensor,
            "gru_cell" (self, state, weights[0], weights[1], biases[0], biases[1]);

        /// One step of a plain recurrent layer with `tanh`: the new state. There is one gate.
        ///
        /// # Errors
        /// If the sizes do not fit, or if dtypes differ.
        rnn_tanh_cell(self, state: &Tensor, weights: [&Tensor; 2], biases: [Option<&Tensor>; 2]) -> Tensor,
            "rnn_tanh_cell" (self, state, weights[0], weights[1], biases[0], biases[1]);

        /// One step of a plain recurrent layer with `relu`. See [`Tensor::rnn_tanh_cell`].
        ///
        /// # Errors
        /// If the sizes do not fit, or if dtypes differ.
        rnn_relu_cell(self, state: &Tensor, weights: [&Tensor; 2], biases: [Option<&Tensor>; 2]) -> Tensor,
            "rnn_relu_cell" (self, state, weights[0], weights[1], biases[0], biases[1]);
    }
}

/// Random activations, rounding and a loss.
impl Tensor {
    named_methods! {
        /// [`Tensor::dropout`] of whole planes: all elements of a sample's channel, dims 0 and 1.
        ///
        /// # Errors
        /// Same as [`Tensor::dropout`]. Also if there are fewer than 2 dims.
        feature_dropout(self, p: f64, training: bool) -> Tensor, "feature_dropout" (self, p, training);

        /// [`Tensor::dropout`] that keeps mean and variance of what `selu` gives.
        ///
        /// # Errors
        /// Same as [`Tensor::dropout`].
        alpha_dropout(self, p: f64, training: bool) -> Tensor, "alpha_dropout" (self, p, training);

        /// [`Tensor::leaky_relu`] with a slope for each element that is drawn between the bounds in training, and their
        /// mean otherwise.
        ///
        /// # Errors
        /// If the dtype is not floating.
        rrelu(self, lower: impl Into<Scalar>, upper: impl Into<Scalar>, training: bool) -> Tensor, "rrelu"
            (self, lower.into(), upper.into(), training, None::<&Generator>);

        /// Rounds to the numbers that integers from `least` to `most` stand for: `(integer - zero_point) * scale`. The
        /// gradient passes where nothing is cut off.
        ///
        /// # Errors
        /// If the dtype is not floating, if the scale is not positive, or if the zero point is out of the range.
        fake_quantize_per_tensor_affine(self, scale: f64, zero_point: i64, least: i64, most: i64) -> Tensor,
            "fake_quantize_per_tensor_affine" (self, scale, zero_point, least, most);

        /// [`Tensor::fake_quantize_per_tensor_affine`], and where nothing is cut off (bool).
        ///
        /// # Errors
        /// Same as [`Tensor::fake_quantize_per_tensor_affine`].
        fake_quantize_per_tensor_affine_cachemask(self, scale: f64, zero_point: i64, least: i64, most: i64)
            -> (Tensor, Tensor),
            "fake_quantize_per_tensor_affine_cachemask" (self, scale, zero_point, least, most);

        /// The loss of several classes per sample, with a margin of 1. Scores are `(N, C)` or `(C,)`. The target has
        /// their shape: the classes of each sample, and -1 after the last.
        ///
        /// # Errors
        /// If the shapes differ, if the rank does not fit, or if a class is out of range.
        multilabel_margin_loss(self, target: &Tensor, reduction: Reduction) -> Tensor, "multilabel_margin_loss"
            (self, target, reduction.number());
    }
}
