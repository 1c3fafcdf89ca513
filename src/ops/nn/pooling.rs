//! Pooling: one number for each window.

use crate::dispatch::composite::Composite;
use crate::error::Result;
use crate::ops::dims::Dims;
use crate::tensor::handle::Tensor;

/// The windows of [`Tensor::max_pool2d`] and its kin; a list of one number holds for all dims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaxPool {
    /// From one window to the next; windows side by side if empty.
    pub stride: Dims,
    /// What is put around the input, and never chosen.
    pub padding: Dims,
    /// From one element of a window to the next.
    pub dilation: Dims,
    /// Whether a last window may reach beyond the padding.
    pub ceil_mode: bool,
}

impl Default for MaxPool {
    fn default() -> Self {
        MaxPool { stride: ().into(), padding: 0.into(), dilation: 1.into(), ceil_mode: false }
    }
}

/// The windows of [`Tensor::avg_pool2d`] and its kin; a list of one number holds for all dims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvgPool {
    /// From one window to the next; windows side by side if empty.
    pub stride: Dims,
    /// Zeros that are put around the input.
    pub padding: Dims,
    /// Whether a last window may reach beyond the padding.
    pub ceil_mode: bool,
    /// Whether the padding counts as elements.
    pub count_include_pad: bool,
    /// What to divide by instead of the number of elements.
    pub divisor: Option<i64>,
}

impl Default for AvgPool {
    fn default() -> Self {
        AvgPool { stride: ().into(), padding: 0.into(), ceil_mode: false, count_include_pad: true, divisor: None }
    }
}

/// Pooling of `(N, C, …)` or `(C, …)`. The dtype is kept.
impl Tensor {
    /// The greatest element of each window of the last dim; a NaN wins. `(N, C, L)` or `(C, L)`; the dtype is kept.
    ///
    /// # Errors
    /// For bools, or if ranks or numbers do not fit.
    pub fn max_pool1d(&self, kernel: impl Into<Dims>, options: &MaxPool) -> Result<Tensor> {
        static MAX_POOL: Composite = Composite::new("aten::max_pool1d");
        let MaxPool { stride, padding, dilation, ceil_mode } = options;
        let kernel = kernel.into();
        let [kernel, stride, padding, dilation] = [&kernel, stride, padding, dilation].map(Dims::as_slice);
        MAX_POOL.call((self, kernel, stride, padding, dilation, *ceil_mode))
    }

    /// The greatest element of each window of the last two dims; a NaN wins. `(N, C, H, W)` or `(C, H, W)`; the dtype
    /// is kept.
    ///
    /// # Errors
    /// For bools, or if ranks or numbers do not fit.
    pub fn max_pool2d(&self, kernel: impl Into<Dims>, options: &MaxPool) -> Result<Tensor> {
        static MAX_POOL: Composite = Composite::new("aten::max_pool2d");
        let MaxPool { stride, padding, dilation, ceil_mode } = options;
        let kernel = kernel.into();
        let [kernel, stride, padding, dilation] = [&kernel, stride, padding, dilation].map(Dims::as_slice);
        MAX_POOL.call((self, kernel, stride, padding, dilation, *ceil_mode))
    }

    /// The greatest element of each window of the last two dims, and its place (i64) in its plane, row-major; the first
    /// of equal ones, the last NaN. `(N, C, H, W)` or `(C, H, W)`; the dtype is kept.
    ///
    /// # Errors
    /// For bools, or if ranks or numbers do not fit.
    pub fn max_pool2d_with_indices(&self, kernel: impl Into<Dims>, options: &MaxPool) -> Result<(Tensor, Tensor)> {
        static MAX_POOL: Composite = Composite::new("aten::max_pool2d_with_indices");
        let MaxPool { stride, padding, dilation, ceil_mode } = options;
        let kernel = kernel.into();
        let [kernel, stride, padding, dilation] = [&kernel, stride, padding, dilation].map(Dims::as_slice);
        MAX_POOL.call((self, kernel, stride, padding, dilation, *ceil_mode))
    }

    /// The mean of each window of the last dim. `divisor` is not used. `(N, C, L)` or `(C, L)`; the dtype is kept.
    ///
    /// # Errors
    /// If the dtype is neither floating nor i64, or ranks or numbers do not fit.
    pub fn avg_pool1d(&self, kernel: impl Into<Dims>, options: &AvgPool) -> Result<Tensor> {
        static AVG_POOL: Composite = Composite::new("aten::avg_pool1d");
        let AvgPool { stride, padding, ceil_mode, count_include_pad, .. } = options;
        let kernel = kernel.into();
        let [kernel, stride, padding] = [&kernel, stride, padding].map(Dims::as_slice);
        AVG_POOL.call((self, kernel, stride, padding, *ceil_mode, *count_include_pad))
    }

    /// The mean of each window of the last two dims. `(N, C, H, W)` or `(C, H, W)`; the dtype is kept.
    ///
    /// # Errors
    /// If the dtype is neither floating nor i64, ranks or numbers do not fit, or the divisor is 0.
    pub fn avg_pool2d(&self, kernel: impl Into<Dims>, options: &AvgPool) -> Result<Tensor> {
        static AVG_POOL: Composite = Composite::new("aten::avg_pool2d");
        let AvgPool { stride, padding, ceil_mode, count_include_pad, divisor } = options;
        let kernel = kernel.into();
        let [kernel, stride, padding] = [&kernel, stride, padding].map(Dims::as_slice);
        AVG_POOL.call((self, kernel, stride, padding, *ceil_mode, *count_include_pad, *divisor))
    }

    /// The means of so many windows of the last dim, as even as can be. `(N, C, L)` or `(C, L)`; the dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating or the rank does not fit.
    pub fn adaptive_avg_pool1d(&self, size: i64) -> Result<Tensor> {
        static ADAPTIVE: Composite = Composite::new("aten::adaptive_avg_pool1d");
        ADAPTIVE.call((self, &[size][..]))
    }

    /// The means of so many windows of the last two dims each, as even as can be. `(N, C, H, W)` or `(C, H, W)`; the
    /// dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating or the rank does not fit.
    pub fn adaptive_avg_pool2d(&self, sizes: [i64; 2]) -> Result<Tensor> {
        static ADAPTIVE: Composite = Composite::new("aten::adaptive_avg_pool2d");
        ADAPTIVE.call((self, &sizes[..]))
    }
}
