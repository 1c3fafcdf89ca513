//! Tensors from nothing but sizes and numbers.
//!
//! All are row-major; the `_like` forms live on the device of their model, the others on the CPU. Random ones are in
//! `random.rs`.

use crate::device::{Device, DeviceKind};
use crate::dispatch::key::local::is_tracing;
use crate::dispatch::rows::{call, call_on};
use crate::error::Result;
use crate::ir::shape::{checked_numel, contiguous_strides, is_contiguous};
use crate::ir::{Attr, DType, Op, Scalar, Sizes, Strides, TensorType};
use crate::runtime::Array;
use crate::tensor::handle::Tensor;

impl Tensor {
    /// All zeros, or false. Row-major, on the CPU.
    ///
    /// # Errors
    /// If there are too many elements or no memory.
    pub fn zeros(sizes: &[usize], dtype: DType) -> Result<Tensor> {
        checked_numel("zeros", sizes, dtype.size())?;
        Tensor::full(sizes, Scalar::Int(0), dtype)
    }

    /// All ones, or true. Row-major, on the CPU.
    ///
    /// # Errors
    /// If there are too many elements or no memory.
    pub fn ones(sizes: &[usize], dtype: DType) -> Result<Tensor> {
        checked_numel("ones", sizes, dtype.size())?;
        Tensor::full(sizes, Scalar::Int(1), dtype)
    }

    /// Every element is `value`, converted to `dtype`. Row-major, on the CPU.
    ///
    /// The dtype may be left out (`None`): then it is bool for a truth value, i64 for a whole number and the default
    /// floating dtype for any other.
    ///
    /// # Errors
    /// If the value does not fit the dtype, there are too many elements or no memory.
    pub fn full(sizes: &[usize], value: impl Into<Scalar>, dtype: impl Into<Option<DType>>) -> Result<Tensor> {
        // Checked before the sizes become signed numbers.
        checked_numel("full", sizes, 1)?;
        let sizes = sizes.iter().map(|&size| size as i64).collect();
        call(Op::Full, &[], &[Attr::Ints(sizes), Attr::Scalar(value.into()), dtype_attr(dtype.into())])
    }

    /// `start`, `start + step`, … up to but without `end`: 1-dim, i64 if all three are whole numbers, else the default
    /// floating dtype. Row-major, on the CPU.
    ///
    /// # Errors
    /// If `step` is zero or leads away from `end`, or a number is not finite.
    pub fn arange(start: impl Into<Scalar>, end: impl Into<Scalar>, step: impl Into<Scalar>) -> Result<Tensor> {
        arange_on(Device::CPU, start.into(), end.into(), step.into(), None)
    }

    /// As [`Tensor::arange`], in a given dtype.
    ///
    /// # Errors
    /// As [`Tensor::arange`], and for bool.
    pub fn arange_of(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        dtype: DType,
    ) -> Result<Tensor> {
        arange_on(Device::CPU, start.into(), end.into(), step.into(), Some(dtype))
    }

    /// Elements that are arbitrary but initialised. Row-major, on the CPU.
    ///
    /// # Errors
    /// If there are too many elements or no memory.
    pub fn empty(sizes: &[usize], dtype: DType) -> Result<Tensor> {
        blank(Device::CPU, "empty", sizes, contiguous_strides(sizes), dtype)
    }

    /// The `n` by `n` matrix with ones on the diagonal. Row-major, on the CPU.
    ///
    /// # Errors
    /// If there are too many elements or no memory.
    pub fn eye(n: usize, dtype: DType) -> Result<Tensor> {
        checked_numel("eye", &[n, n], dtype.size())?;
        let line = Tensor::arange(0, n as i64, 1)?;
        line.unsqueeze(1)?.eq(&line)?.to_dtype(dtype)
    }

    /// Zeros of the same sizes, dtype and device. Row-major.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn zeros_like(&self) -> Result<Tensor> {
        self.full_like(0)
    }

    /// Ones of the same sizes, dtype and device. Row-major.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn ones_like(&self) -> Result<Tensor> {
        self.full_like(1)
    }

    /// A row-major tensor of the same sizes, dtype and device whose every element is `value`.
    ///
    /// # Errors
    /// If there is no memory, or the device has no factory.
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        full_on(self.device(), self.sizes(), value.into(), Some(self.dtype()))
    }
}

/// A range on a device.
pub(crate) fn arange_on(
    device: Device,
    start: Scalar,
    end: Scalar,
    step: Scalar,
    dtype: Option<DType>,
) -> Result<Tensor> {
    let [start, end, step] = [start, end, step].map(Attr::Scalar);
    made_on(device, Op::Arange, &[start, end, step, dtype_attr(dtype)])
}

/// A filled row-major tensor on a device.
pub(crate) fn full_on(device: Device, sizes: &[usize], value: Scalar, dtype: Option<DType>) -> Result<Tensor> {
    if device.kind != DeviceKind::Meta {
        // Checked before the sizes become signed numbers.
        checked_numel("full", sizes, 1)?;
    }
    let sizes = sizes.iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)).collect();
    made_on(device, Op::Full, &[Attr::Ints(sizes), Attr::Scalar(value), dtype_attr(dtype)])
}

/// The whole numbers from `start` up to but without `end` on a device, i64 unless another dtype is named.
pub(crate) fn range_on(device: Device, start: i64, end: i64, dtype: Option<DType>) -> Result<Tensor> {
    arange_on(device, Scalar::Int(start), Scalar::Int(end), Scalar::Int(1), dtype)
}

/// The result of an op that has no tensor operands, on a device.
pub(crate) fn made_on(device: Device, op: Op, attrs: &[Attr]) -> Result<Tensor> {
    match device.kind {
        DeviceKind::Cpu => call(op, &[], attrs),
        DeviceKind::Meta => Tensor::meta(&op.infer(&[], attrs)?),
        DeviceKind::Cuda => call_on(device, op, &[], attrs),
        DeviceKind::PrivateUse1 => call(op, &[], attrs)?.to_device(device),
    }
}

/// A filled tensor with the strides of a dense one.
pub(crate) fn full_strided(
    device: Device,
    sizes: &[usize],
    strides: &[usize],
    value: Scalar,
    dtype: DType,
) -> Result<Tensor> {
    laid_out(sizes, strides, |sizes| full_on(device, sizes, value, Some(dtype)))
}

/// A tensor that `make` makes row-major in the order of memory that strides have, seen in the order of the sizes.
pub(crate) fn laid_out(
    sizes: &[usize],
    strides: &[usize],
    make: impl FnOnce(&[usize]) -> Result<Tensor>,
) -> Result<Tensor> {
    if is_contiguous(sizes, strides) {
        return make(sizes);
    }
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&dim| std::cmp::Reverse((strides[dim], sizes[dim])));
    let in_memory: Vec<usize> = order.iter().map(|&dim| sizes[dim]).collect();
    let mut places = vec![0i64; sizes.len()];
    for (place, &dim) in order.iter().enumerate() {
        places[dim] = place as i64;
    }
    make(&in_memory)?.permute(places)
}

/// A tensor whose contents are undefined; zeros in a trace.
pub(crate) fn blank(device: Device, op: &str, sizes: &[usize], strides: Strides, dtype: DType) -> Result<Tensor> {
    checked_numel(op, sizes, dtype.size())?;
    match device.kind {
        DeviceKind::Cpu if is_tracing() && is_dense(sizes, &strides) => {
            full_strided(device, sizes, &strides, Scalar::Int(0), dtype)
        }
        DeviceKind::Cpu | DeviceKind::Meta | DeviceKind::Cuda | DeviceKind::PrivateUse1 => {
            let ty = TensorType { dtype, sizes: Sizes::from_slice(sizes), strides, number: false };
            Array::new(device, &ty).map(Tensor::from_array)
        }
    }
}

/// Whether elements have neither gaps nor neighbours in common.
fn is_dense(sizes: &[usize], strides: &[usize]) -> bool {
    let mut order: Vec<usize> = (0..sizes.len()).filter(|&dim| sizes[dim] != 1).collect();
    order.sort_by_key(|&dim| strides[dim]);
    let mut step = 1;
    order.into_iter().all(|dim| {
        let fits = strides[dim] == step;
        step = step.saturating_mul(sizes[dim].max(1));
        fits
    })
}

fn dtype_attr(dtype: Option<DType>) -> Attr {
    dtype.map_or(Attr::None, Attr::DType)
}
