//! Memory of tensors that comes from outside, and goes there: vectors, shared slices, bytes.
//!
//! What can be adopted is not copied: the memory of a vector, of an `Arc<[T]>`, of a mapped file. Kernels need elements
//! that are aligned for their type, and truth values of 0 and 1. Memory that has neither is copied, and
//! [`copies`](crate::device::foreign::copies) counts that. The conversions of the ndarray crate are in
//! `ndarray.rs`.

use crate::device::foreign::{Foreign, count_copy};
use crate::device::{Device, Elements, Shared, Storage};
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::dispatch::key::local::is_tracing;
use crate::error::{Error, Result};
use crate::ir::shape::checked_numel;
use crate::ir::{DType, Layout};
use crate::ops::element::Element;
use crate::runtime::Array;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;
use std::any::Any;

impl Tensor {
    /// A row-major CPU tensor over the memory of a vector, which is not copied. [`Tensor::into_vec`] gives it back.
    ///
    /// # Errors
    /// If `data` does not have as many elements as `sizes` say.
    #[track_caller]
    pub fn from_vec<T: Element>(data: Vec<T>, sizes: &[usize]) -> Result<Tensor> {
        whole("from_vec", data.into(), T::DTYPE, sizes)
    }

    /// A read-only, row-major CPU tensor over elements that `owner` shares: an `Arc<[T]>`, a byte buffer, a mapping.
    /// They are not copied, and the owner is dropped after the last tensor over them.
    ///
    /// ```
    /// # use opfuse::{Result, Tensor};
    /// # use std::sync::Arc;
    /// # fn main() -> Result<()> {
    /// let weights: Arc<[f32]> = Arc::from([1.0, 2.0, 3.0]);
    /// let x = Tensor::from_shared(weights.clone(), &[3])?;
    /// assert_eq!(x.sum((), false)?.item::<f32>()?, 6.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there are not as many elements as `sizes` say.
    #[track_caller]
    pub fn from_shared<T: Element>(owner: impl AsRef<[T]> + Any + Send, sizes: &[usize]) -> Result<Tensor> {
        let memory = Foreign::shared(owner, "shared with the program that made the tensor");
        whole("from_shared", memory, T::DTYPE, sizes)
    }

    /// A row-major CPU tensor over memory that the allocator did not make. Memory that is not aligned for the dtype, or
    /// that holds truth values besides 0 and 1, is copied.
    ///
    /// # Errors
    /// If the memory does not have as many bytes as dtype and sizes say.
    #[track_caller]
    pub fn from_foreign(memory: Foreign, dtype: DType, sizes: &[usize]) -> Result<Tensor> {
        whole("from_foreign", memory, dtype, sizes)
    }

    /// A row-major CPU tensor with a copy of elements that are given as bytes in native order. Truth values are bytes,
    /// of which all but 0 are true.
    ///
    /// # Errors
    /// If there are not as many bytes as dtype and sizes say.
    #[track_caller]
    pub fn from_bytes(bytes: &[u8], dtype: DType, sizes: &[usize]) -> Result<Tensor> {
        check_len("from_bytes", bytes.len(), dtype, sizes)?;
        let tensor = Tensor::copied(dtype, sizes, bytes, Device::CPU)?;
        if !is_valid(dtype, bytes) {
            make_valid(tensor.array().storage())?;
        }
        Ok(tensor)
    }

    /// The elements in row-major order, without a copy. While the result is alive, a write to the tensor's memory is an
    /// error.
    ///
    /// ```
    /// # use opfuse::{Result, Tensor};
    /// # fn main() -> Result<()> {
    /// let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], &[3])?;
    /// let elements = x.as_slice::<f32>()?;
    /// assert_eq!(elements[1..], [2.0, 3.0]);
    /// assert!(x.add_(1.0).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If `T` is not the type of the tensor's dtype, if the elements are not dense and row-major, if the host cannot
    /// access them, or in an abstract trace.
    #[track_caller]
    pub fn as_slice<T: Element>(&self) -> Result<Elements<T>> {
        const NAME: &str = "as_slice";
        observer::on_read(self, NAME)?;
        let (array, range) = self.dense_range::<T>(NAME)?;
        Storage::borrow(array.storage()).elements(range).ok_or_else(|| unreachable_elements(self, NAME))
    }

    /// The elements in row-major order, for writing. This counts as one write, whatever is written. The tensor must be
    /// the only one over its memory.
    ///
    /// ```
    /// # use opfuse::{Result, Tensor};
    /// # fn main() -> Result<()> {
    /// let mut x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], &[3])?;
    /// x.as_mut_slice::<f32>()?[0] = 7.0;
    /// assert_eq!(x.to_vec::<f32>()?, [7.0, 2.0, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Tensor::as_slice`]. Also if other tensors, views or slices have the memory, if it is read-only, if
    /// gradients are recorded for the tensor, or while a function is traced.
    #[track_caller]
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        const NAME: &str = "as_mut_slice";
        if is_tracing() {
            let what = "a trace cannot record what is written to a slice; use copy_ in a function that is compiled";
            return Err(Error::argument(NAME, what));
        }
        observer::on_read(self, NAME)?;
        self.check_write().map_err(|error| error.of(NAME))?;
        if is_grad_enabled() && self.requires_grad() {
            let what =
                "the tensor requires gradients, which know nothing of writes to a slice; hold no_grad() meanwhile";
            return Err(Error::argument(NAME, what));
        }
        let (_, range) = self.dense_range::<T>(NAME)?;
        // Refuses read-only memory, and slices that are alive. The uniqueness checked below keeps new ones out.
        drop(self.array().storage().exclusive().map_err(|error| error.of(NAME))?);
        if self.only_storage().is_none() {
            let what = "other tensors, views or clones have the memory; drop them, or take a copy() of the tensor";
            return Err(Error::argument(NAME, what));
        }
        self.note_write();
        let storage = self.only_storage().expect("it was the only handle just now");
        let elements = storage.bytes_mut().get_mut(range).and_then(T::from_bytes_mut);
        elements.ok_or_else(|| Error::argument(NAME, "the host cannot access the elements; copy them to the cpu first"))
    }

    /// The elements in row-major order. The memory of a vector that the tensor was made from is given back without a
    /// copy, if no other tensor has it.
    ///
    /// # Errors
    /// Same as [`Tensor::to_vec`].
    #[track_caller]
    pub fn into_vec<T: Element>(mut self) -> Result<Vec<T>> {
        const NAME: &str = "into_vec";
        observer::on_read(&self, NAME)?;
        let is_whole = self.dense_range::<T>(NAME).is_ok_and(|(array, range)| range == (0..array.storage().len()));
        if let Some(storage) = self.only_storage().filter(|_| is_whole) {
            match std::mem::replace(storage, Storage::new(Device::CPU, 0)?).into_vec() {
                Ok(data) => return Ok(data),
                Err(unchanged) => *storage = unchanged,
            }
        }
        self.to_vec().map_err(|error| error.of(NAME))
    }

    /// The array, and where its elements are in the storage, if they are `T`s without gaps.
    fn dense_range<T: Element>(&self, op: &str) -> Result<(&Array, std::ops::Range<usize>)> {
        if self.dtype() != T::DTYPE {
            let hint = format!("read it as {}, or convert it with to_dtype(DType::{:?})", self.dtype(), T::DTYPE);
            return Err(Error::dtype(op, self.dtype(), T::DTYPE.name(), hint));
        }
        if !self.is_contiguous() {
            let what = format!("sizes {:?} with strides {:?} are not row-major", self.sizes(), self.strides());
            return Err(Error::shape(op, what, "use contiguous() first, or to_vec"));
        }
        let array = self.as_real().array();
        let start = if self.numel() == 0 { 0 } else { array.layout().offset * array.dtype().size() };
        Ok((array, start..start + self.numel() * self.dtype().size()))
    }
}

fn unreachable_elements(tensor: &Tensor, op: &str) -> Error {
    let what = format!("the host cannot access the elements on {}", tensor.device());
    Error::Device { op: op.into(), what, hint: "copy the tensor to the cpu first".into() }
}

/// A row-major tensor over all of some foreign memory.
fn whole(op: &str, memory: Foreign, dtype: DType, sizes: &[usize]) -> Result<Tensor> {
    check_len(op, memory.len(), dtype, sizes)?;
    adopt(op, memory, dtype, &Layout::contiguous(sizes))
}

/// A tensor over foreign memory, which is copied only if kernels do not take it as it is.
///
/// # Errors
/// If the layout is not inside the memory.
pub(crate) fn adopt(op: &str, memory: Foreign, dtype: DType, layout: &Layout) -> Result<Tensor> {
    over(op, &adopted(memory, dtype)?, dtype, layout)
}

/// Foreign memory as a storage of elements of a dtype. It is copied only if kernels do not take it as it is.
pub(crate) fn adopted(memory: Foreign, dtype: DType) -> Result<Shared<Storage>> {
    let size = if dtype.is_complex() { dtype.part().size() } else { dtype.size() };
    let is_aligned = memory.is_empty() || memory.bytes().as_ptr().addr().is_multiple_of(size);
    let is_valid = is_valid(dtype, memory.bytes());
    let storage = if is_aligned && is_valid {
        Storage::foreign(memory)
    } else {
        count_copy();
        Storage::copy_of(Device::CPU, memory.bytes())?
    };
    if !is_valid {
        make_valid(&storage)?;
    }
    Ok(Shared::new(storage))
}

/// A tensor over a part of a storage, which other tensors may have, too.
///
/// # Errors
/// If the layout is not inside the storage.
pub(crate) fn over(op: &str, storage: &Shared<Storage>, dtype: DType, layout: &Layout) -> Result<Tensor> {
    if dtype.is_complex() {
        return Tensor::of_pairs(&over(op, storage, dtype.part(), &layout.of_pairs())?);
    }
    let array = Array::from_storage(storage.clone(), dtype, layout.clone()).map_err(|error| error.of(op))?;
    Ok(Tensor::from_array(array))
}

fn check_len(op: &str, found: usize, dtype: DType, sizes: &[usize]) -> Result<()> {
    let count = checked_numel(op, sizes, dtype.size())?;
    if count * dtype.size() == found {
        return Ok(());
    }
    let what = match found % dtype.size() {
        0 => format!("shape {sizes:?} has {count} elements, but {} were given", found / dtype.size()),
        _ => format!("shape {sizes:?} of {dtype} has {} bytes, but {found} were given", count * dtype.size()),
    };
    Err(Error::shape(op, what, "the element counts must agree"))
}

/// Whether the bytes are elements: kernels expect truth values of 0 and 1.
fn is_valid(dtype: DType, bytes: &[u8]) -> bool {
    dtype != DType::Bool || bytes.iter().fold(0, |seen, byte| seen | byte) <= 1
}

/// Truth values of 0 and 1 for those of a storage that was made just now.
fn make_valid(storage: &Storage) -> Result<()> {
    storage.write(|bytes| bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0)))
}
