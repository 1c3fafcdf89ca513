//! Arrays: a storage, a dtype and a layout. This is what kernels see of a tensor.

use super::shared_layout::SharedLayout;
use crate::device::{Device, Shared, Storage};
use crate::error::{Error, Result};
use crate::ir::shape::same_extents;
use crate::ir::{DType, Layout, TensorType};

/// Elements of one dtype in a storage. Cloning shares the storage and copies no elements.
#[derive(Debug, Clone)]
pub struct Array {
    // Invariant: the layout is inside the storage, which is aligned for the dtype. Every constructor checks it, and
    // kernels rely on it.
    pub(crate) storage: Shared<Storage>,
    pub(crate) dtype: DType,
    pub(crate) layout: SharedLayout,
}

impl Array {
    /// Allocates memory for a value of type `ty`, with arbitrary contents.
    pub fn new(device: Device, ty: &TensorType) -> Result<Array> {
        let layout = Layout { sizes: ty.sizes.clone(), strides: ty.strides.clone(), offset: 0 };
        let storage = Storage::shareable(device, layout.extent() * ty.dtype.size())?;
        Ok(Array { storage, dtype: ty.dtype, layout: layout.into() })
    }

    /// An array over a storage.
    ///
    /// # Errors
    /// If the layout exceeds the storage, or foreign memory is not aligned for the dtype.
    pub fn from_storage(storage: Shared<Storage>, dtype: DType, layout: Layout) -> Result<Array> {
        let needed = checked_extent(&layout).and_then(|extent| extent.checked_mul(dtype.size()));
        if needed.is_none_or(|needed| needed > storage.len()) {
            let (sizes, strides, have) = (&layout.sizes[..], &layout.strides[..], storage.len());
            let what =
                format!("sizes {sizes:?}, strides {strides:?} and offset {} reach past {have} bytes", layout.offset);
            return Err(Error::shape("array", what, "stay inside the storage"));
        }
        if !storage.ptr().addr().is_multiple_of(dtype.size()) {
            let what = format!("memory from elsewhere at {:?} is not aligned for elements of {dtype}", storage.ptr());
            return Err(Error::argument("array", format!("{what}; use a copy() of the tensor")));
        }
        Ok(Array { storage, dtype, layout: layout.into() })
    }

    /// The bytes.
    #[inline]
    pub fn storage(&self) -> &Shared<Storage> {
        &self.storage
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The layout, in elements.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether it has exactly this type; `number` is ignored.
    #[inline]
    pub fn is_of(&self, ty: &TensorType) -> bool {
        let layout = &*self.layout;
        self.dtype == ty.dtype && same_extents(&layout.sizes, &ty.sizes) && same_extents(&layout.strides, &ty.strides)
    }

    /// The array's type.
    pub fn ty(&self) -> TensorType {
        let Layout { sizes, strides, .. } = &*self.layout;
        TensorType { dtype: self.dtype, sizes: sizes.clone(), strides: strides.clone(), number: false }
    }

    /// The device of the bytes.
    #[inline]
    pub fn device(&self) -> Device {
        self.storage.device()
    }

    /// The first element.
    #[inline]
    pub fn ptr(&self) -> *mut u8 {
        self.storage.ptr().wrapping_add(self.layout.offset * self.dtype.size())
    }

    /// The same storage with another layout, which must be inside the old one.
    pub(crate) fn with_layout(&self, layout: Layout) -> Array {
        Array { storage: self.storage.clone(), dtype: self.dtype, layout: layout.into() }
    }
}

/// [`Layout::extent`], or `None` if it overflows, or if sizes and strides differ in rank.
fn checked_extent(layout: &Layout) -> Option<usize> {
    let (sizes, strides) = (&layout.sizes, &layout.strides);
    if sizes.len() != strides.len() {
        return None;
    }
    sizes.iter().try_fold(1usize, |count, &size| count.checked_mul(size.max(1)))?;
    if sizes.contains(&0) {
        return Some(0);
    }
    let mut extent = layout.offset.checked_add(1)?;
    for (&size, &stride) in sizes.iter().zip(strides) {
        extent = extent.checked_add((size - 1).checked_mul(stride)?)?;
    }
    Some(extent)
}
