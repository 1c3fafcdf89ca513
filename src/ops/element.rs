//! Rust numbers as elements: tensors from slices, and slices from tensors.
//!
//! Data goes in by copy and comes out in logical order, whatever the strides. Nothing is converted on the way: the
//! Rust type names the dtype. Reading needs a value, so it fails on the meta device and while a trace is recorded.

use crate::device::{Device, DeviceKind, roomy};
use crate::error::{Error, Result};
use crate::ir::{DType, Layout, Scalar};
use crate::tensor::handle::Tensor;
use crate::tensor::observer;
use bytemuck::Pod;
use half::{bf16, f16};
use std::fmt;

/// A Rust type that is the element type of some dtype.
pub trait Element: sealed::Bytes + Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The dtype.
    const DTYPE: DType;
}

mod sealed {
    /// Elements as bytes in the machine's order; outside code cannot add element types.
    pub trait Bytes: Sized {
        /// The bytes of some elements.
        fn as_bytes(elements: &[Self]) -> &[u8];

        /// Appends the elements that the bytes hold.
        fn extend(out: &mut Vec<Self>, bytes: &[u8]);

        /// The bytes as elements, unless they are not aligned or no legal elements.
        fn from_bytes(bytes: &[u8]) -> Option<&[Self]>;
    }
}

macro_rules! elements {
    ($($ty:ty => $dtype:ident),*) => {$(
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
        }

        impl sealed::Bytes for $ty {
            fn as_bytes(elements: &[Self]) -> &[u8] {
                bytemuck::cast_slice(elements)
            }

            fn extend(out: &mut Vec<Self>, bytes: &[u8]) {
                extend_pods(out, bytes);
            }

            fn from_bytes(bytes: &[u8]) -> Option<&[Self]> {
                bytemuck::try_cast_slice(bytes).ok()
            }
        }
    )*};
}

elements!(u8 => U8, i8 => I8, i16 => I16, i32 => I32, i64 => I64, f16 => F16, bf16 => BF16, f32 => F32, f64 => F64);

impl Element for bool {
    const DTYPE: DType = DType::Bool;
}

impl sealed::Bytes for bool {
    fn as_bytes(elements: &[Self]) -> &[u8] {
        bytemuck::cast_slice(elements)
    }

    fn extend(out: &mut Vec<Self>, bytes: &[u8]) {
        // Any other byte than 0 and 1 would be no bool, whoever wrote it.
        out.extend(bytes.iter().map(|&byte| byte != 0));
    }

    fn from_bytes(bytes: &[u8]) -> Option<&[bool]> {
        bytemuck::checked::try_cast_slice(bytes).ok()
    }
}

/// Bytes as elements, unless they are not aligned or no legal elements.
#[cfg(feature = "ndarray")]
pub(crate) fn elements_of<T: Element>(bytes: &[u8]) -> Option<&[T]> {
    T::from_bytes(bytes)
}

fn extend_pods<T: Pod>(out: &mut Vec<T>, bytes: &[u8]) {
    match bytemuck::try_cast_slice(bytes) {
        Ok(elements) => out.extend_from_slice(elements),
        // A foreign backend may hand out bytes that are not aligned for the type.
        Err(_) => out.extend(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>)),
    }
}

impl Tensor {
    /// A row-major tensor on the CPU with a copy of `data`; its dtype is that of `T`.
    ///
    /// # Errors
    /// If `sizes` do not have as many elements as `data`.
    pub fn from_slice<T: Element>(data: &[T], sizes: &[usize]) -> Result<Tensor> {
        Tensor::from_bytes(T::DTYPE, sizes, T::as_bytes(data), Device::CPU)
    }

    /// As [`Tensor::from_slice`], from a vector.
    ///
    /// # Errors
    /// If `sizes` do not have as many elements as `data`.
    pub fn from_vec<T: Element>(data: Vec<T>, sizes: &[usize]) -> Result<Tensor> {
        Tensor::from_slice(&data, sizes)
    }

    /// A 0-dim tensor; unlike [`Tensor::number`] it takes part in promotion with its own dtype.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn scalar<T: Element>(value: T) -> Result<Tensor> {
        Tensor::from_slice(&[value], &[])
    }

    /// The elements in logical order (the last dimension fastest).
    ///
    /// # Errors
    /// If `T` is not the tensor's dtype, if there is no data (meta device), or while a trace is recorded.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.read("to_vec")
    }

    /// The only element.
    ///
    /// # Errors
    /// If there is another number of elements, and as [`Tensor::to_vec`].
    pub fn item<T: Element>(&self) -> Result<T> {
        let found = self.numel();
        let not_one = || {
            let what = format!("a tensor of shape {:?} with {found} elements is not one number", self.sizes());
            Error::shape("item", what, "select one element first, or use to_vec")
        };
        if found != 1 {
            return Err(not_one());
        }
        self.read("item")?.first().copied().ok_or_else(not_one)
    }

    /// The only element as a number.
    ///
    /// # Errors
    /// As [`Tensor::item`].
    pub fn to_scalar(&self) -> Result<Scalar> {
        Ok(match self.dtype() {
            DType::Bool => Scalar::Bool(self.item::<bool>()?),
            DType::U8 => Scalar::Int(self.item::<u8>()?.into()),
            DType::I8 => Scalar::Int(self.item::<i8>()?.into()),
            DType::I16 => Scalar::Int(self.item::<i16>()?.into()),
            DType::I32 => Scalar::Int(self.item::<i32>()?.into()),
            DType::I64 => Scalar::Int(self.item::<i64>()?),
            DType::F16 => Scalar::Float(self.item::<f16>()?.into()),
            DType::BF16 => Scalar::Float(self.item::<bf16>()?.into()),
            DType::F32 => Scalar::Float(self.item::<f32>()?.into()),
            DType::F64 => Scalar::Float(self.item::<f64>()?),
        })
    }

    fn read<T: Element>(&self, what: &str) -> Result<Vec<T>> {
        observer::on_read(self, what)?;
        if self.dtype() != T::DTYPE {
            let hint = format!("read it as {}, or convert it with to_dtype(DType::{:?})", self.dtype(), T::DTYPE);
            return Err(Error::dtype(what, self.dtype(), T::DTYPE.name(), hint));
        }
        if self.device().kind == DeviceKind::Cuda {
            return self.detach()?.to_device(Device::CPU)?.read(what);
        }
        let array = self.array();
        array.storage.read(|bytes| {
            let width = array.dtype.size();
            if array.layout.extent() * width > bytes.len() {
                let what_holds = format!("the bytes on {} cannot be read from here", array.device());
                let hint = "copy the tensor to the cpu first".into();
                return Err(Error::Device { op: what.into(), what: what_holds, hint });
            }
            let mut out = roomy(array.layout.numel())?;
            for_each_run(&array.layout, |offset, len| {
                T::extend(&mut out, &bytes[offset * width..(offset + len) * width]);
            });
            Ok(out)
        })
    }
}

/// Visits the elements in logical order, as runs of neighbours in memory: offset of the first and how many.
fn for_each_run(layout: &Layout, mut visit: impl FnMut(usize, usize)) {
    if layout.numel() == 0 {
        return;
    }
    if layout.is_contiguous() {
        return visit(layout.offset, layout.numel());
    }
    let inner = layout.rank() - 1;
    let (len, step) = (layout.sizes[inner], layout.strides[inner]);
    let mut index = vec![0usize; inner];
    loop {
        let row = layout.offset + index.iter().zip(&layout.strides).map(|(i, stride)| i * stride).sum::<usize>();
        if step == 1 {
            visit(row, len);
        } else {
            (0..len).for_each(|i| visit(row + i * step, 1));
        }
        // The next row: the last index that is not at its end advances, and those after it start again.
        let Some(dim) = (0..inner).rev().find(|&dim| index[dim] + 1 < layout.sizes[dim]) else { return };
        index[dim] += 1;
        index[dim + 1..].fill(0);
    }
}
