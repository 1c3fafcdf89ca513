//! Rust numbers as elements: tensors from slices, and vectors from tensors.
//!
//! Slices are copied into tensors (`memory` adopts vectors), and elements are read in row-major order, whatever the
//! strides. No value is converted: the Rust type determines the dtype. Reading is an error on the meta device and in an
//! abstract trace.

use crate::device::{Device, DeviceKind, roomy};
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::local::{exclude, is_tracing};
use crate::dispatch::library::Library;
use crate::eager;
use crate::error::{Error, Result};
use crate::ir::{Attr, DType, Layout, Meaning, Op, Scalar, TensorType};
use crate::ops::composite::Composite;
use crate::ops::conversions::host_copy;
use crate::profile::locate;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;
use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex;
use smallvec::SmallVec;
use std::fmt;

static ITEM: Composite = Composite::new("item(Tensor self) -> Scalar");
static LOCAL_SCALAR: Composite = Composite::new("_local_scalar_dense(Tensor self) -> Scalar");

/// A Rust type that is the element type of a dtype.
pub trait Element: sealed::Bytes + Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The dtype.
    const DTYPE: DType;
}

mod sealed {
    /// Elements as bytes in native order. The trait is sealed: other crates cannot add element types.
    pub trait Bytes: bytemuck::NoUninit + bytemuck::CheckedBitPattern {
        /// The bytes of elements.
        fn as_bytes(elements: &[Self]) -> &[u8];

        /// Appends the elements in `bytes`.
        fn extend(out: &mut Vec<Self>, bytes: &[u8]);

        /// The bytes as elements. `None` if they are not aligned or not valid elements.
        fn from_bytes(bytes: &[u8]) -> Option<&[Self]> {
            bytemuck::checked::try_cast_slice(bytes).ok()
        }

        /// As [`Bytes::from_bytes`], for writing.
        fn from_bytes_mut(bytes: &mut [u8]) -> Option<&mut [Self]> {
            bytemuck::checked::try_cast_slice_mut(bytes).ok()
        }

        /// The element of a number that was read as one.
        fn from_number(number: crate::ir::Scalar) -> Self;
    }
}

macro_rules! elements {
    ($($ty:ty => $dtype:ident, |$number:ident| $convert:expr;)*) => {$(
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

            fn from_number($number: Scalar) -> Self {
                $convert
            }
        }
    )*};
}

elements! {
    Complex<f32> => Complex64, |number| Complex::new(number.as_f64() as f32, 0.0);
    Complex<f64> => Complex128, |number| Complex::new(number.as_f64(), 0.0);
    u8 => U8, |number| number.as_i64() as u8;
    i8 => I8, |number| number.as_i64() as i8;
    i16 => I16, |number| number.as_i64() as i16;
    i32 => I32, |number| number.as_i64() as i32;
    i64 => I64, |number| number.as_i64();
    f16 => F16, |number| f16::from_f64(number.as_f64());
    bf16 => BF16, |number| bf16::from_f64(number.as_f64());
    f32 => F32, |number| number.as_f64() as f32;
    f64 => F64, |number| number.as_f64();
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;
}

impl sealed::Bytes for bool {
    fn as_bytes(elements: &[Self]) -> &[u8] {
        bytemuck::cast_slice(elements)
    }

    fn extend(out: &mut Vec<Self>, bytes: &[u8]) {
        // A bool must be 0 or 1. Other bytes may come from outside this crate.
        out.extend(bytes.iter().map(|&byte| byte != 0));
    }

    fn from_number(number: Scalar) -> Self {
        number.as_bool()
    }
}

/// The bytes as elements. `None` if they are not aligned or not valid elements.
#[cfg(feature = "ndarray")]
pub(crate) fn elements_of<T: Element>(bytes: &[u8]) -> Option<&[T]> {
    T::from_bytes(bytes)
}

/// An element of the type that the dtype of a tensor has, as a number.
macro_rules! by_dtype {
    ($tensor:expr, $T:ident => $element:expr) => {
        by_dtype!(
            @ $tensor, $T, $element; Bool bool, U8 u8, I8 i8, I16 i16, I32 i32, I64 i64, F16 f16, BF16 bf16, F32 f32,
            F64 f64
        )
    };
    (@ $tensor:expr, $T:ident, $element:expr; $($dtype:ident $ty:ty),*) => {
        match $tensor.dtype() {
            $(DType::$dtype => {
                type $T = $ty;
                $element.map(Scalar::from)
            })*
            DType::Complex64 | DType::Complex128 => Err(no_scalar($tensor)),
        }
    };
}

fn extend_pods<T: Pod>(out: &mut Vec<T>, bytes: &[u8]) {
    match bytemuck::try_cast_slice(bytes) {
        Ok(elements) => out.extend_from_slice(elements),
        // The memory of another backend may not be aligned for the type.
        Err(_) => out.extend(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>)),
    }
}

impl Tensor {
    /// A row-major CPU tensor with a copy of `data`. The dtype is that of `T`.
    ///
    /// # Errors
    /// If `data` does not have as many elements as `sizes` say.
    #[track_caller]
    pub fn from_slice<T: Element>(data: &[T], sizes: &[usize]) -> Result<Tensor> {
        Tensor::copied(T::DTYPE, sizes, T::as_bytes(data), Device::CPU)
    }

    /// A 0-dim CPU tensor. Unlike [`Tensor::number`] it promotes as a tensor of its dtype.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn scalar<T: Element>(value: T) -> Result<Tensor> {
        Tensor::from_slice(&[value], &[])
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// If `T` is not the type of the tensor's dtype, if the tensor has no data (meta device), or in an abstract trace.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.read("to_vec")
    }

    /// The only element of the tensor.
    ///
    /// # Errors
    /// If the tensor does not have exactly one element, or if [`Tensor::to_vec`] fails.
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        if self.numel() != 1 {
            return Err(not_one(self));
        }
        self.check_read::<T>("item")?;
        if self.is_complex() {
            return self.read("item")?.first().copied().ok_or_else(|| not_one(self));
        }
        if ITEM.is_own(self.key_set())? && LOCAL_SCALAR.is_own(self.key_set())? {
            return self.elements("item")?.first().copied().ok_or_else(|| not_one(self));
        }
        let _untraced = exclude(DispatchKey::Tracer);
        ITEM.call((self,)).map(T::from_number)
    }

    /// The only element of the tensor, as a [`Scalar`].
    ///
    /// # Errors
    /// Same as [`Tensor::item`].
    #[track_caller]
    pub fn to_scalar(&self) -> Result<Scalar> {
        by_dtype!(self, T => self.item::<T>())
    }

    #[track_caller]
    fn read<T: Element>(&self, what: &str) -> Result<Vec<T>> {
        self.check_read::<T>(what)?;
        if let Some(pairs) = self.pairs() {
            return pairs.read_complex(what);
        }
        match host_copy(self)? {
            Some(copy) => {
                copy.check_dtype::<T>(what)?;
                copy.elements(what)
            }
            None => self.elements(what),
        }
    }

    /// The complex numbers of these pairs.
    #[track_caller]
    fn read_complex<T: Element>(&self, what: &str) -> Result<Vec<T>> {
        let mut out = roomy(self.numel() / 2)?;
        match self.dtype() {
            DType::F64 => T::extend(&mut out, bytemuck::cast_slice(&self.read::<f64>(what)?)),
            _f32 => T::extend(&mut out, bytemuck::cast_slice(&self.read::<f32>(what)?)),
        }
        Ok(out)
    }

    /// Says that the elements are read, and checks that they are `T`s. The line of a read is that of its caller, as for
    /// calls of operators.
    #[track_caller]
    fn check_read<T: Element>(&self, what: &str) -> Result<()> {
        let _place = if is_tracing() { Some(locate(None)) } else { None };
        observer::announce_read(self, what)?;
        self.check_dtype::<T>(what)
    }

    fn check_dtype<T: Element>(&self, what: &str) -> Result<()> {
        if self.dtype() == T::DTYPE {
            return Ok(());
        }
        let hint = format!("read it as {}, or convert it with to_dtype(DType::{:?})", self.dtype(), T::DTYPE);
        Err(Error::dtype(what, self.dtype(), T::DTYPE.name(), hint))
    }

    /// The elements, which are `T`s, in row-major order.
    #[track_caller]
    fn elements<T: Element>(&self, what: &str) -> Result<Vec<T>> {
        observer::need_data(self, what)?;
        if self.device().kind == DeviceKind::Cuda {
            return self.detach()?.moved_to(Device::CPU)?.elements(what);
        }
        let array = self.array();
        array.storage.read(|bytes| {
            let width = array.dtype.size();
            if array.layout.extent() * width > bytes.len() {
                let what_holds = format!("the bytes on {} cannot be accessed by the host", array.device());
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

/// Visits the elements in row-major order, as runs that are contiguous in memory: the offset of the first element, and
/// the length.
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
        // Moves to the next row: increments the last index that is not at its end, and resets all indices after it.
        let Some(dim) = (0..inner).rev().find(|&dim| index[dim] + 1 < layout.sizes[dim]) else { return };
        index[dim] += 1;
        index[dim + 1..].fill(0);
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library.composite(&ITEM, item)?.composite(&LOCAL_SCALAR, local_scalar)?;
    Ok(())
}

pub(crate) fn item(x: &Tensor) -> Result<Scalar> {
    if x.numel() != 1 {
        return Err(not_one(x));
    }
    LOCAL_SCALAR.call((x,))
}

fn local_scalar(x: &Tensor) -> Result<Scalar> {
    if x.numel() != 1 {
        return Err(not_one(x));
    }
    observer::announce_read(x, "item")?;
    by_dtype!(x, T => x.elements::<T>("item")?.first().copied().ok_or_else(|| not_one(x)))
}

/// The result of a row on plain numbers, if it is one too. In a trace, numbers have the values of the traced call.
///
/// # Errors
/// If the row does not take the numbers.
pub(crate) fn number_of(op: Op, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Option<Scalar>> {
    let numbers: Option<SmallVec<[Scalar; 2]>> = tensors.iter().map(|tensor| tensor.as_number()).collect();
    let (Some(numbers), Meaning::Body(..)) = (numbers.filter(|numbers| !numbers.is_empty()), &op.row().meaning) else {
        return Ok(None);
    };
    let types: SmallVec<[TensorType; 2]> = numbers.iter().map(|number| TensorType::number(number.dtype())).collect();
    if !op.infer(&types.iter().collect::<SmallVec<[&TensorType; 2]>>(), attrs)?.number {
        return Ok(None);
    }
    let numbers = numbers.into_iter().map(Tensor::number).collect::<Result<SmallVec<[Tensor; 2]>>>()?;
    let arguments: SmallVec<[eager::Argument<'_>; 2]> = numbers.iter().map(Tensor::as_argument).collect();
    scalar_in(&Tensor::from_array(eager::run(op, &arguments, attrs)?)).map(Some)
}

/// The only element of a tensor. No trace hears of the read.
///
/// # Errors
/// If there are more elements or none, or if the device cannot be read.
pub(crate) fn scalar_in(x: &Tensor) -> Result<Scalar> {
    by_dtype!(x, T => x.elements::<T>("item")?.first().copied().ok_or_else(|| not_one(x)))
}

/// A [`Scalar`] is a real number.
fn no_scalar(x: &Tensor) -> Error {
    let hint = "read it with to_vec, or read real() and imag()";
    Error::dtype("item", x.dtype(), "a dtype of real numbers", hint)
}

fn not_one(x: &Tensor) -> Error {
    let what = format!("a tensor of shape {:?} with {} elements is not one number", x.sizes(), x.numel());
    Error::shape("item", what, "select one element first, or use to_vec")
}
