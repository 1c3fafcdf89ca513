//! Tensors as arrays of the ndarray crate, and back (feature `ndarray`).
//!
//! A CPU tensor is viewed without a copy: [`NdView`] blocks writes to its memory while it is alive. An array that is
//! given by value is adopted, and given back. Arrays that are borrowed are copied.

use crate::device::Storage;
use crate::device::foreign::count_copy;
use crate::device::storage::Borrowed;
use crate::error::{Error, Result};
use crate::ir::{Layout, Sizes};
use crate::ops::element::{Element, elements_of};
use crate::ops::memory::adopt;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;
use ndarray::{Array, ArrayD, ArrayView, ArrayViewD, Dimension, IxDyn, ShapeBuilder};
use std::fmt;
use std::marker::PhantomData;

/// A view of a tensor's elements as an array of the ndarray crate. While it is alive, a write to the tensor's storage
/// is an error.
pub struct NdView<T> {
    bytes: Borrowed,
    layout: Layout,
    elements: PhantomData<T>,
}

impl<T: Element> NdView<T> {
    /// The array. It has the sizes, strides and memory of the tensor.
    pub fn view(&self) -> ArrayViewD<'_, T> {
        let Layout { sizes, strides, offset } = &self.layout;
        let elements = elements_of(&self.bytes).expect("it was tried when the view was made");
        if self.layout.numel() == 0 {
            // Without elements, offset and strides have no meaning and may be outside the storage.
            return ArrayView::from_shape(IxDyn(sizes), &[]).expect("no elements are asked for");
        }
        let shape = IxDyn(sizes).strides(IxDyn(strides));
        ArrayView::from_shape(shape, &elements[*offset..]).expect("a tensor lies inside its storage")
    }
}

impl<T: Element> fmt::Debug for NdView<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

impl Tensor {
    /// Views the elements as an array of the ndarray crate, without a copy.
    ///
    /// ```
    /// # use opfuse::{Result, Tensor};
    /// # fn main() -> Result<()> {
    /// let x = Tensor::try_from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    /// let elements = x.to_ndarray::<f32>()?;
    /// assert_eq!(elements.view().sum(), 21.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If `T` is not the type of the tensor's dtype, if the host cannot access the data, or in an abstract trace.
    pub fn to_ndarray<T: Element>(&self) -> Result<NdView<T>> {
        const NAME: &str = "to_ndarray";
        observer::on_read(self, NAME)?;
        if self.dtype() != T::DTYPE {
            let hint = format!("read it as {}, or convert it with to_dtype(DType::{:?})", self.dtype(), T::DTYPE);
            return Err(Error::dtype(NAME, self.dtype(), T::DTYPE.name(), hint));
        }
        let bytes = Storage::borrow(self.as_real().array().storage());
        let layout = Layout { offset: self.storage_offset(), ..self.array().layout().clone() };
        let view = NdView { bytes, layout, elements: PhantomData };
        let is_readable = elements_of::<T>(&view.bytes).is_some_and(|all| view.layout.extent() <= all.len());
        if !is_readable {
            let what = format!("the bytes on {} cannot be accessed by the host", self.device());
            return Err(Error::Device { op: NAME.into(), what, hint: "copy the tensor to the cpu first".into() });
        }
        Ok(view)
    }
}

/// A tensor of the array's shape with a copy of its elements.
impl<T: Element, D: Dimension> TryFrom<ArrayView<'_, T, D>> for Tensor {
    type Error = Error;

    fn try_from(array: ArrayView<'_, T, D>) -> Result<Tensor> {
        match array.as_slice() {
            Some(elements) => Tensor::from_slice(elements, array.shape()),
            None => Tensor::from_slice(&array.iter().copied().collect::<Vec<T>>(), array.shape()),
        }
    }
}

/// A tensor over the memory of the array, with its shape and strides. An array with negative strides is copied, and
/// [`copies`](crate::device::foreign::copies) counts that.
impl<T: Element, D: Dimension> TryFrom<Array<T, D>> for Tensor {
    type Error = Error;

    fn try_from(array: Array<T, D>) -> Result<Tensor> {
        let sizes = array.shape();
        if array.is_empty() {
            return Tensor::from_slice::<T>(&[], sizes);
        }
        // The stride of a dim of one element is not used, and may be any number.
        let of_dim =
            |(&size, &stride): (&usize, &isize)| if size == 1 { Some(1) } else { usize::try_from(stride).ok() };
        let Some(strides) = sizes.iter().zip(array.strides()).map(of_dim).collect() else {
            count_copy();
            return Tensor::try_from(array.view());
        };
        let sizes = Sizes::from_slice(sizes);
        let (data, offset) = array.into_raw_vec_and_offset();
        adopt("try_from", data.into(), T::DTYPE, &Layout { sizes, strides, offset: offset.unwrap_or(0) })
    }
}

/// A tensor of the array's shape with a copy of its elements.
impl<T: Element, D: Dimension> TryFrom<&Array<T, D>> for Tensor {
    type Error = Error;

    fn try_from(array: &Array<T, D>) -> Result<Tensor> {
        Tensor::try_from(array.view())
    }
}

/// An array with a copy of the elements.
///
/// # Errors
/// Same as [`Tensor::to_ndarray`].
impl<T: Element> TryFrom<&Tensor> for ArrayD<T> {
    type Error = Error;

    fn try_from(tensor: &Tensor) -> Result<ArrayD<T>> {
        Ok(tensor.to_ndarray::<T>()?.view().to_owned())
    }
}

/// An array over the memory of a tensor that was made from a vector or an array, if no other tensor has it. Otherwise
/// an array with a copy of the elements.
///
/// # Errors
/// Same as [`Tensor::into_vec`].
impl<T: Element> TryFrom<Tensor> for ArrayD<T> {
    type Error = Error;

    fn try_from(tensor: Tensor) -> Result<ArrayD<T>> {
        let shape = IxDyn(tensor.sizes());
        Ok(ArrayD::from_shape_vec(shape, tensor.into_vec()?).expect("a tensor has as many elements as its sizes say"))
    }
}
