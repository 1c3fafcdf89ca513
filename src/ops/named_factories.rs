//! New tensors under ATen's names: like another one, with a layout, windows and frequencies; and Fourier transforms
//! along two dims.
//!
//! `factories.rs`, `windows.rs`, `frequencies.rs` and `fourier_transforms.rs` define the operators.

use crate::device::Device;
use crate::dispatch::value::TensorLayout;
use crate::ir::{DType, MemoryFormat, Scalar};
use crate::ops::dims::Dims;
use crate::ops::named::{dims_of, named_functions, named_methods};
use crate::tensor::handle::Tensor;

// The options that methods leave out.
const NO_DTYPE: Option<DType> = None;
const NO_LAYOUT: Option<TensorLayout> = None;
const NO_DEVICE: Option<Device> = None;
const UNPINNED: Option<bool> = None;
const NO_FORMAT: Option<MemoryFormat> = None;

/// New tensors with the dtype and the device of this one.
impl Tensor {
    named_methods! {
        /// A tensor with undefined contents and the sizes, dtype, device and order of dims of this one. Fill it before
        /// it is read.
        ///
        /// # Errors
        /// If there is not enough memory.
        empty_like(self) -> Tensor, "empty_like" (self, NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED, NO_FORMAT);

        /// A tensor of these sizes with undefined contents. Dtype and device are those of this tensor.
        ///
        /// # Errors
        /// If a size is negative, or if there is not enough memory.
        new_empty(self, sizes: impl Into<Dims>) -> Tensor, "new_empty"
            (self, dims_of(sizes).as_slice(), NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED);

        /// A tensor of these sizes and strides with undefined contents. Dtype and device are those of this tensor.
        ///
        /// # Errors
        /// If there is not one stride per size, if a number is negative, or if there is not enough memory.
        new_empty_strided(self, sizes: impl Into<Dims>, strides: impl Into<Dims>) -> Tensor, "new_empty_strided"
            (self, dims_of(sizes).as_slice(), dims_of(strides).as_slice(), NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED);

        /// Zeros of these sizes. Dtype and device are those of this tensor.
        ///
        /// # Errors
        /// If a size is negative, or if there is not enough memory.
        new_zeros(self, sizes: impl Into<Dims>) -> Tensor, "new_zeros"
            (self, dims_of(sizes).as_slice(), NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED);

        /// Ones of these sizes. Dtype and device are those of this tensor.
        ///
        /// # Errors
        /// If a size is negative, or if there is not enough memory.
        new_ones(self, sizes: impl Into<Dims>) -> Tensor, "new_ones"
            (self, dims_of(sizes).as_slice(), NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED);

        /// A tensor of these sizes that holds `value` everywhere. Dtype and device are those of this tensor.
        ///
        /// # Errors
        /// If a size is negative, if the number does not fit the dtype, or if there is not enough memory.
        new_full(self, sizes: impl Into<Dims>, value: impl Into<Scalar>) -> Tensor, "new_full"
            (self, dims_of(sizes).as_slice(), value.into(), NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED);

        /// Random whole numbers from `low` up to and without `high`, with the sizes, dtype and device of this tensor.
        ///
        /// # Errors
        /// If there are no such numbers, or if they do not fit the dtype.
        randint_like(self, low: i64, high: i64) -> Tensor, "randint_like.low_dtype"
            (self, low, high, NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED, NO_FORMAT);
    }
}

/// New tensors from nothing.
impl Tensor {
    named_functions! {
        /// A tensor on the CPU with undefined contents and these strides. Fill it before it is read.
        ///
        /// # Errors
        /// If there is not one stride per size, if a number is negative, or if there is not enough memory.
        empty_strided(sizes: impl Into<Dims>, strides: impl Into<Dims>, dtype: DType) -> Tensor, "empty_strided"
            (dims_of(sizes).as_slice(), dims_of(strides).as_slice(), Some(dtype), NO_LAYOUT, NO_DEVICE, UNPINNED);

        /// A tensor on the CPU with undefined contents, whose dims lie in memory in this order, the outermost first.
        ///
        /// # Errors
        /// If the order does not hold each dim once, if a size is negative, or if there is not enough memory.
        empty_permuted(sizes: impl Into<Dims>, order: impl Into<Dims>, dtype: DType) -> Tensor, "empty_permuted"
            (dims_of(sizes).as_slice(), dims_of(order).as_slice(), Some(dtype), NO_LAYOUT, NO_DEVICE, UNPINNED);

        /// A number as a tensor without dims, on the CPU.
        ///
        /// # Errors
        /// If the number does not fit the dtype.
        scalar_tensor(value: impl Into<Scalar>, dtype: DType) -> Tensor, "scalar_tensor"
            (value.into(), Some(dtype), NO_LAYOUT, NO_DEVICE, UNPINNED);

        /// The triangular window of Bartlett in the default dtype. A periodic one leaves out the last of
        /// `length + 1` numbers.
        ///
        /// # Errors
        /// If the length is negative.
        bartlett_window(length: i64, is_periodic: bool) -> Tensor, "bartlett_window.periodic"
            (length, is_periodic, NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED);

        /// The window of Blackman. See [`Tensor::bartlett_window`].
        ///
        /// # Errors
        /// If the length is negative.
        blackman_window(length: i64, is_periodic: bool) -> Tensor, "blackman_window.periodic"
            (length, is_periodic, NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED);

        /// The window of Hamming, `0.54 - 0.46 cos`. See [`Tensor::bartlett_window`].
        ///
        /// # Errors
        /// If the length is negative.
        hamming_window(length: i64, is_periodic: bool) -> Tensor, "hamming_window.periodic"
            (length, is_periodic, NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED);

        /// The window of Hann, `0.5 - 0.5 cos`. See [`Tensor::bartlett_window`].
        ///
        /// # Errors
        /// If the length is negative.
        hann_window(length: i64, is_periodic: bool) -> Tensor, "hann_window.periodic"
            (length, is_periodic, NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED);

        /// The window of Kaiser with the shape `beta`; PyTorch's default is 12. See [`Tensor::bartlett_window`].
        ///
        /// # Errors
        /// If the length is negative.
        kaiser_window(length: i64, is_periodic: bool, beta: f64) -> Tensor, "kaiser_window.beta"
            (length, is_periodic, beta, NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED);

        /// The frequencies of the elements of [`Tensor::fft`] of `n` samples that are `d` apart, in the default dtype.
        ///
        /// # Errors
        /// If `n` is negative.
        fftfreq(n: i64, d: f64) -> Tensor, "fft_fftfreq" (n, d, NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED);

        /// The frequencies of the elements of [`Tensor::rfft`]. See [`Tensor::fftfreq`].
        ///
        /// # Errors
        /// If `n` is negative.
        rfftfreq(n: i64, d: f64) -> Tensor, "fft_rfftfreq" (n, d, NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED);
    }
}

/// Fourier transforms along two dims, and of signals with a conjugate half.
impl Tensor {
    named_methods! {
        /// [`Tensor::fftn`] along two dims.
        ///
        /// # Errors
        /// Same as [`Tensor::fftn`].
        fft2(self, dims: [i64; 2]) -> Tensor, "fft_fft2" (self, None::<&[i64]>, &dims[..], None::<&str>);

        /// [`Tensor::ifftn`] along two dims.
        ///
        /// # Errors
        /// Same as [`Tensor::ifftn`].
        ifft2(self, dims: [i64; 2]) -> Tensor, "fft_ifft2" (self, None::<&[i64]>, &dims[..], None::<&str>);

        /// [`Tensor::rfftn`] along two dims.
        ///
        /// # Errors
        /// Same as [`Tensor::rfftn`].
        rfft2(self, dims: [i64; 2]) -> Tensor, "fft_rfft2" (self, None::<&[i64]>, &dims[..], None::<&str>);

        /// [`Tensor::irfftn`] along two dims.
        ///
        /// # Errors
        /// Same as [`Tensor::irfftn`].
        irfft2(self, dims: [i64; 2]) -> Tensor, "fft_irfft2" (self, None::<&[i64]>, &dims[..], None::<&str>);

        /// The real transform of a signal of which `dim` holds one half; the other is its conjugate. Without `n` the
        /// result has `2 (size - 1)` elements along the dim.
        ///
        /// # Errors
        /// Same as [`Tensor::fft`].
        hfft(self, n: Option<i64>, dim: i64) -> Tensor, "fft_hfft" (self, n, dim, None::<&str>);

        /// The inverse of [`Tensor::hfft`]: one half of a signal, of its real transform.
        ///
        /// # Errors
        /// Same as [`Tensor::fft`]. Also if the dtype is complex.
        ihfft(self, n: Option<i64>, dim: i64) -> Tensor, "fft_ihfft" (self, n, dim, None::<&str>);
    }
}
