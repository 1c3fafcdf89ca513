//! The tensor: a cheap handle to shared bytes.
//!
//! A handle knows dtype, sizes, strides, offset, device and dispatch keys; cloning it shares everything. Views share
//! the storage. Nothing writes to a storage that is shared, so handles may be used from any thread.

use super::key::DispatchKey;
use super::keyset::KeySet;
use crate::device::{Device, DeviceKind, Storage};
use crate::eager::Array;
use crate::error::{Error, Result};
use crate::ir::shape::{Layout, checked_numel};
use crate::ir::{DType, Scalar, TensorType};
use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An n-dimensional array of one dtype.
#[derive(Clone)]
pub struct Tensor(Arc<Inner>);

struct Inner {
    array: Array,
    keys: KeySet,
    /// The plain number it stands for, which promotes weakly.
    number: Option<Scalar>,
    /// Its name in traces; no other tensor of the process ever has the same.
    id: u64,
    /// The device it belongs to; while a function is traced abstractly, its values have one but no bytes.
    device: Device,
    /// What a wrapper stands for; see [`Tensor::wrapper`].
    payload: Option<Arc<dyn Any + Send + Sync>>,
}

impl Tensor {
    /// A tensor over an array.
    pub fn from_array(array: Array) -> Tensor {
        let device = array.device();
        let keys = device_keys(device);
        Tensor(Arc::new(Inner { array, keys, number: None, id: next_id(), device, payload: None }))
    }

    /// A 0-dim tensor that stands for a plain number: in promotion it is the weakest operand, and a trace records
    /// the number itself.
    pub fn number(value: impl Into<Scalar>) -> Result<Tensor> {
        let value = value.into();
        let lit = value.to_lit(value.dtype());
        let bytes = &lit.bits.to_ne_bytes()[..value.dtype().size()];
        let storage = Arc::new(Storage::copy_of(Device::CPU, bytes)?);
        let array = Array { storage, dtype: value.dtype(), layout: Layout::default() };
        let device = Device::CPU;
        let (keys, number) = (device_keys(device), Some(value));
        Ok(Tensor(Arc::new(Inner { array, keys, number, id: next_id(), device, payload: None })))
    }

    /// A row-major tensor over bytes that are copied.
    pub(crate) fn from_bytes(dtype: DType, sizes: &[usize], bytes: &[u8], device: Device) -> Result<Tensor> {
        let count = checked_numel("from_slice", sizes, dtype.size())?;
        if count * dtype.size() != bytes.len() {
            let what = format!("shape {sizes:?} has {count} elements, but {} were given", bytes.len() / dtype.size());
            return Err(Error::shape("from_slice", what, "the element counts must agree"));
        }
        let storage = Arc::new(Storage::copy_of(device, bytes)?);
        Ok(Tensor::from_array(Array { storage, dtype, layout: Layout::contiguous(sizes) }))
    }

    /// A tensor of type `ty` without bytes, on the meta device.
    pub fn meta(ty: &TensorType) -> Result<Tensor> {
        Array::new(Device::META, ty).map(Tensor::from_array)
    }

    /// A tensor of type `ty` that belongs to `device` but has no bytes: what a function sees while only its shapes
    /// are traced. Reading it is an error.
    pub(crate) fn abstracted(ty: &TensorType, device: Device, number: Option<Scalar>) -> Result<Tensor> {
        let array = Array::new(Device::META, ty)?;
        let keys = device_keys(device);
        Ok(Tensor(Arc::new(Inner { array, keys, number, id: next_id(), device, payload: None })))
    }

    /// A tensor of type `ty` without bytes whose calls go to the kernels of `keys`, which find in `payload` what it
    /// stands for: how a key with behaviour of its own (mapped tensors, a backend's own kind) makes its tensors.
    ///
    /// # Errors
    /// If the sizes have too many elements.
    pub fn wrapper(
        ty: &TensorType,
        device: Device,
        keys: KeySet,
        payload: Arc<dyn Any + Send + Sync>,
    ) -> Result<Tensor> {
        let array = Array::new(Device::META, ty)?;
        Ok(Tensor(Arc::new(Inner { array, keys, number: None, id: next_id(), device, payload: Some(payload) })))
    }

    /// What a wrapper stands for, if it is a wrapper of that kind.
    pub fn payload<T: Any>(&self) -> Option<&T> {
        self.0.payload.as_deref()?.downcast_ref()
    }

    /// Another handle of the same elements; a trace tells the two apart.
    pub(crate) fn fresh_handle(&self) -> Tensor {
        let Inner { array, keys, number, id: _, device, payload } = &*self.0;
        let (array, payload) = (array.clone(), payload.clone());
        Tensor(Arc::new(Inner { array, keys: *keys, number: *number, id: next_id(), device: *device, payload }))
    }

    /// Whether it has bytes to read.
    pub fn has_data(&self) -> bool {
        self.0.array.device().kind != DeviceKind::Meta
    }

    /// The array behind the handle.
    pub fn array(&self) -> &Array {
        &self.0.array
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.0.array.dtype
    }

    /// Sizes, outermost first.
    pub fn sizes(&self) -> &[usize] {
        &self.0.array.layout.sizes
    }

    /// Strides in elements.
    pub fn strides(&self) -> &[usize] {
        &self.0.array.layout.strides
    }

    /// Storage element of the first element.
    pub fn storage_offset(&self) -> usize {
        self.0.array.layout.offset
    }

    /// The number of dimensions.
    pub fn dim(&self) -> usize {
        self.sizes().len()
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.0.array.layout.numel()
    }

    /// Whether elements are dense and row-major.
    pub fn is_contiguous(&self) -> bool {
        self.0.array.layout.is_contiguous()
    }

    /// Where the bytes are.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// The dispatch keys.
    #[inline]
    pub fn key_set(&self) -> KeySet {
        self.0.keys
    }

    /// The plain number it stands for, if it does.
    pub fn as_number(&self) -> Option<Scalar> {
        self.0.number
    }

    /// Its type, as inference sees it.
    pub fn ty(&self) -> TensorType {
        TensorType { number: self.0.number.is_some(), ..self.0.array.ty() }
    }

    /// Whether both handles share one storage.
    pub fn is_alias_of(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0.array.storage, &other.0.array.storage)
    }

    /// Whether both are the very same handle; a trace names tensors by this.
    pub fn is_same(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A number that no other tensor of this process has or will have; clones of a handle share it.
    pub fn id(&self) -> u64 {
        self.0.id
    }
}

/// The next tensor's number. Threads take numbers by the block, so that they do not meet.
fn next_id() -> u64 {
    const BLOCK: u64 = 1 << 12;
    static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NEXT: Cell<u64> = const { Cell::new(0) };
    }
    let mut id = NEXT.get();
    if id.is_multiple_of(BLOCK) {
        id = NEXT_BLOCK.fetch_add(1, Ordering::Relaxed) * BLOCK;
    }
    NEXT.set(id + 1);
    id
}

/// The keys of a dense tensor on a device, with the keys of autograd and mixed precision that ride along.
fn device_keys(device: Device) -> KeySet {
    use DispatchKey as K;
    let keys: &[DispatchKey] = match device.kind {
        DeviceKind::Cpu => &[K::CPU, K::AutogradCPU, K::ADInplaceOrView, K::AutocastCPU],
        DeviceKind::Cuda => &[K::CUDA, K::AutogradCUDA, K::ADInplaceOrView, K::AutocastCUDA],
        DeviceKind::Meta => &[K::Meta, K::AutogradMeta, K::ADInplaceOrView],
        DeviceKind::PrivateUse1 => {
            &[K::PrivateUse1, K::AutogradPrivateUse1, K::ADInplaceOrView, K::AutocastPrivateUse1]
        }
    };
    KeySet::from_keys(keys)
}
