//! Arrays: a storage, a dtype and a layout. What kernels see of a tensor.

use crate::device::{Device, Storage};
use crate::error::{Error, Result};
use crate::ir::{DType, Layout, TensorType};
use std::sync::Arc;

/// Elements of one dtype somewhere in a storage. Cloning shares the storage.
#[derive(Debug, Clone)]
pub struct Array {
    /// The bytes.
    pub storage: Arc<Storage>,
    /// Element type.
    pub dtype: DType,
    /// Where the elements are; counts elements.
    pub layout: Layout,
}

impl Array {
    /// New memory for a value of type `ty`, its contents arbitrary.
    pub fn new(device: Device, ty: &TensorType) -> Result<Array> {
        let layout = Layout { sizes: ty.sizes.clone(), strides: ty.strides.clone(), offset: 0 };
        let storage = Storage::new(device, layout.extent() * ty.dtype.size())?;
        Ok(Array { storage: Arc::new(storage), dtype: ty.dtype, layout })
    }

    /// An array over a storage.
    ///
    /// # Errors
    /// If the layout reaches past the storage.
    pub fn from_storage(storage: Arc<Storage>, dtype: DType, layout: Layout) -> Result<Array> {
        let (needed, have) = (layout.extent() * dtype.size(), storage.len());
        if needed > have {
            let what =
                format!("sizes {:?} and strides {:?} need {needed} bytes of {have}", layout.sizes, layout.strides);
            return Err(Error::shape("array", what, "stay inside the storage"));
        }
        Ok(Array { storage, dtype, layout })
    }

    /// The array's type.
    pub fn ty(&self) -> TensorType {
        let Layout { sizes, strides, .. } = &self.layout;
        TensorType { dtype: self.dtype, sizes: sizes.clone(), strides: strides.clone(), number: false }
    }

    /// Where the bytes are.
    pub fn device(&self) -> Device {
        self.storage.device()
    }

    /// The first element.
    pub fn ptr(&self) -> *mut u8 {
        self.storage.ptr().wrapping_add(self.layout.offset * self.dtype.size())
    }

    /// The same storage under another layout.
    pub fn with_layout(&self, layout: Layout) -> Array {
        Array { storage: self.storage.clone(), dtype: self.dtype, layout }
    }
}
