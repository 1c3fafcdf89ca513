//! What is done to planes of pixels: padding, other sizes, and channels turned into pixels and back.

use crate::dispatch::composite::Composite;
use crate::error::Result;
use crate::ops::dims::Dims;
use crate::tensor::handle::Tensor;

/// Where the elements of a border come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Border {
    /// Back from the edge, which is not repeated itself.
    Reflect,
    /// The edge.
    Replicate,
    /// On from the other edge.
    Circular,
}

/// How a pixel of a resized plane follows from those around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpolation {
    /// It is the nearest one, rounded down.
    Nearest,
    /// It lies between four pixels, whose centres are where they were.
    Bilinear,
    /// It lies between four pixels; those in the corners stay in the corners.
    BilinearCorners,
}

/// Padding and pixels.
impl Tensor {
    /// `(N, C, H, W)` with planes of other sizes. The dtype is kept.
    ///
    /// # Errors
    /// If there are not 4 dims, a size is 0, or the dtype is not floating and something lies between.
    pub fn resize2d(&self, sizes: [i64; 2], interpolation: Interpolation) -> Result<Tensor> {
        static NEAREST: Composite = Composite::new("aten::upsample_nearest2d");
        static BILINEAR: Composite = Composite::new("aten::upsample_bilinear2d");
        let (sizes, none) = (&sizes[..], None::<f64>);
        match interpolation {
            Interpolation::Nearest => NEAREST.call((self, sizes, none, none)),
            Interpolation::Bilinear => BILINEAR.call((self, sizes, false, none, none)),
            Interpolation::BilinearCorners => BILINEAR.call((self, sizes, true, none, none)),
        }
    }

    /// With a border around the last one, two or three dims of `(N, C, …)` or `(C, …)`: two counts for each, the last
    /// dim first. A negative count crops. The dtype is kept.
    ///
    /// # Errors
    /// If the counts do not fit the rank, or the border is wider than the source allows.
    pub fn border_pad(&self, pads: impl Into<Dims>, border: Border) -> Result<Tensor> {
        static PAD: Composite = Composite::new("aten::pad");
        let mode = match border {
            Border::Reflect => "reflect",
            Border::Replicate => "replicate",
            Border::Circular => "circular",
        };
        PAD.call((self, pads.into().as_slice(), mode, None::<f64>))
    }

    /// `(…, C r², H, W)` as `(…, C, H r, W r)`. The dtype is kept.
    ///
    /// # Errors
    /// If there are fewer than 3 dims or the channels are not divisible by `factor²`.
    pub fn pixel_shuffle(&self, factor: i64) -> Result<Tensor> {
        static PIXEL_SHUFFLE: Composite = Composite::new("aten::pixel_shuffle");
        PIXEL_SHUFFLE.call((self, factor))
    }

    /// `(…, C, H r, W r)` as `(…, C r², H, W)`. The dtype is kept.
    ///
    /// # Errors
    /// If there are fewer than 3 dims or the planes are not divisible by `factor`.
    pub fn pixel_unshuffle(&self, factor: i64) -> Result<Tensor> {
        static PIXEL_UNSHUFFLE: Composite = Composite::new("aten::pixel_unshuffle");
        PIXEL_UNSHUFFLE.call((self, factor))
    }
}
