//! Windows of images as columns, and back: `Unfold` and `Fold`.

use super::module::{Forward, Module};
use crate::error::{Error, Result};
use crate::ops::Dims;
use crate::tensor::Tensor;

/// Where windows lie along height and width.
#[derive(Debug, Clone, Module)]
pub struct Windows {
    /// The sizes of a window.
    pub kernel: [usize; 2],
    /// The distance between elements of a window.
    pub dilation: [usize; 2],
    /// The zeros at both ends.
    pub padding: [usize; 2],
    /// The distance between windows.
    pub stride: [usize; 2],
}

impl Windows {
    /// Windows of these sizes, one per position.
    pub fn new(kernel: [usize; 2]) -> Windows {
        Windows { kernel, dilation: [1, 1], padding: [0, 0], stride: [1, 1] }
    }

    /// How many elements a window reaches over, and how many windows fit, along a dim of `size`.
    fn along(&self, at: usize, size: usize) -> Result<(usize, usize)> {
        let fail = |what: String| Error::shape("unfold", what, "use sizes and strides of at least 1");
        let (kernel, step) = (self.kernel[at], self.stride[at]);
        if kernel == 0 || step == 0 || self.dilation[at] == 0 {
            return Err(fail(format!("a kernel of {kernel} with stride {step} and dilation {}", self.dilation[at])));
        }
        let (reach, room) = (self.dilation[at] * (kernel - 1) + 1, size + 2 * self.padding[at]);
        let first = room.checked_sub(reach);
        let none = || fail(format!("a window reaches over {reach} elements of {room}, padding included"));
        first.map(|rest| (reach, rest / step + 1)).ok_or_else(none)
    }
}

fn planes(op: &str, x: &Tensor, dims: usize, what_fits: &str) -> Result<()> {
    if x.dim() == dims {
        return Ok(());
    }
    Err(Error::shape(op, format!("the input has sizes {:?}", x.sizes()), what_fits))
}

/// The windows of `(N, C, H, W)` as columns: `(N, C * elements of a window, windows)`.
#[derive(Debug, Clone, Module)]
pub struct Unfold {
    /// Where they lie.
    pub windows: Windows,
}

impl Forward for Unfold {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        planes("unfold", x, 4, "it has four dims: batch, channels, height and width")?;
        let Windows { kernel, dilation, padding: [above, left], stride } = &self.windows;
        let ((tall, rows), (wide, columns)) =
            (self.windows.along(0, x.sizes()[2])?, self.windows.along(1, x.sizes()[3])?);
        let pads = [left, left, above, above].map(|&n| n as i64);
        let padded = x.constant_pad_nd(Dims::from(pads), 0.0)?;
        let windows = padded.unfold(2, tall, stride[0])?.unfold(3, wide, stride[1])?;
        let picked = windows.slice(4, None, None, dilation[0] as i64)?.slice(5, None, None, dilation[1] as i64)?;
        let n = x.sizes()[1] * kernel[0] * kernel[1];
        picked.permute([0, 1, 4, 5, 2, 3])?.reshape([x.sizes()[0] as i64, n as i64, (rows * columns) as i64])
    }
}

/// The inverse of [`Unfold`]: columns are added up where windows overlap.
#[derive(Debug, Clone, Module)]
pub struct Fold {
    /// Height and width of the result.
    pub sizes: [usize; 2],
    /// Where the windows lie.
    pub windows: Windows,
}

impl Forward for Fold {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        planes("fold", x, 3, "it has three dims: batch, elements of windows, and windows")?;
        let Windows { kernel, dilation, padding, stride } = &self.windows;
        let [(_, rows), (_, columns)] = [self.windows.along(0, self.sizes[0])?, self.windows.along(1, self.sizes[1])?];
        let in_window = kernel[0] * kernel[1];
        if !x.sizes()[1].is_multiple_of(in_window) || x.sizes()[2] != rows * columns {
            let what = format!("the input has sizes {:?}", x.sizes());
            let hint = format!("dim 1 is a multiple of {in_window}, and dim 2 is {rows} * {columns} windows");
            return Err(Error::shape("fold", what, hint));
        }
        let (batch, channels) = (x.sizes()[0], x.sizes()[1] / in_window);
        let sizes = [batch, channels, kernel[0], kernel[1], rows, columns].map(|n| n as i64);
        let parts = x.reshape(sizes)?;
        let [tall, wide] = [0, 1].map(|at| self.sizes[at] + 2 * padding[at]);
        let sum = Tensor::zeros(&[batch, channels, tall, wide], x.dtype())?.to_device(x.device())?;
        for row in 0..kernel[0] {
            for column in 0..kernel[1] {
                let along = |at: usize, first: usize, count: usize| {
                    let start = first * dilation[at];
                    (start as i64, (start + (count - 1) * stride[at] + 1) as i64, stride[at] as i64)
                };
                let (top, bottom, down) = along(0, row, rows);
                let (left, right, across) = along(1, column, columns);
                let place = sum.slice(2, top, bottom, down)?.slice(3, left, right, across)?;
                place.add_(parts.select(2, row as i64)?.select(2, column as i64)?)?;
            }
        }
        sum.narrow(2, padding[0] as i64, self.sizes[0])?.narrow(3, padding[1] as i64, self.sizes[1])?.contiguous()
    }
}
