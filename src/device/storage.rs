//! The bytes behind tensors.
//!
//! A storage is made, written by whoever made it, and then shared in an `Arc`; views are tensors with the same
//! storage. Safe code writes only through `&mut Storage`, that is before it is shared or after it has become the
//! only user again (`Arc::get_mut`). A meta storage has a length and no bytes. Element types are the tensor's affair.

use super::allocator;
use super::memory::Block;
use super::{Device, DeviceKind};
use crate::error::{Error, Result};
use std::fmt;

/// A stretch of bytes on a device.
pub struct Storage {
    device: Device,
    len: usize,
    /// Empty on the meta device; elsewhere at least `len` bytes.
    block: Block,
}

impl Storage {
    /// `len` bytes on `device`, initialised but arbitrary. The meta device accepts any length.
    ///
    /// `PrivateUse1` storages are host memory of the same allocator.
    pub fn new(device: Device, len: usize) -> Result<Storage> {
        let block = match device.kind {
            DeviceKind::Cpu | DeviceKind::PrivateUse1 => allocator::allocate(len)?,
            DeviceKind::Meta => Block::EMPTY,
            DeviceKind::Cuda => {
                return Err(Error::Device {
                    op: "storage".into(),
                    what: format!("no memory can be had on {device}"),
                    hint: "CUDA storages are not part of this build; use the cpu".into(),
                });
            }
        };
        Ok(Storage { device, len, block })
    }

    /// `len` zero bytes on `device`.
    pub fn zeroed(device: Device, len: usize) -> Result<Storage> {
        let mut storage = Storage::new(device, len)?;
        storage.bytes_mut().fill(0);
        Ok(storage)
    }

    /// A copy of `bytes` on `device`; of their number alone on the meta device.
    pub fn copy_of(device: Device, bytes: &[u8]) -> Result<Storage> {
        let mut storage = Storage::new(device, bytes.len())?;
        let to = storage.bytes_mut();
        to.copy_from_slice(&bytes[..to.len()]);
        Ok(storage)
    }

    /// Where the bytes are.
    #[inline]
    pub fn device(&self) -> Device {
        self.device
    }

    /// How many bytes it stands for, also on the meta device.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it stands for no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that could be used without moving: the capacity of the block.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.block.capacity()
    }

    /// The bytes; none on the meta device.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.block.as_bytes()[..self.present()]
    }

    /// The bytes, for writing; none on the meta device.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let present = self.present();
        &mut self.block.as_mut_bytes()[..present]
    }

    /// The first byte, 64-byte aligned; dangling if there are no bytes.
    ///
    /// Reading through it is like [`Storage::bytes`]. Writing is for kernels: no slice of the bytes may be alive, and
    /// no other thread may use the bytes meanwhile.
    #[inline]
    pub fn ptr(&self) -> *mut u8 {
        self.block.raw()
    }

    /// How many bytes there are to read.
    #[inline]
    fn present(&self) -> usize {
        self.len.min(self.block.capacity())
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Storage({} bytes on {})", self.len, self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_bytes() {
        let mut storage = Storage::copy_of(Device::CPU, &[1, 2, 3]).expect("memory is there");
        assert_eq!((storage.bytes(), storage.len(), storage.capacity()), (&[1, 2, 3][..], 3, 64));
        assert_eq!(storage.ptr().addr() % 64, 0);
        storage.bytes_mut()[1] = 9;
        assert_eq!(storage.bytes(), [1, 9, 3]);
        let zeroed = Storage::zeroed(Device::CPU, 5000).expect("memory is there");
        assert_eq!(zeroed.bytes(), [0; 5000]);
        let empty = Storage::new(Device::CPU, 0).expect("no memory is needed");
        assert!(empty.is_empty() && empty.bytes().is_empty());
        assert_eq!(empty.ptr().addr() % 64, 0);
    }

    #[test]
    fn meta_has_a_length_alone() {
        let mut meta = Storage::new(Device::META, usize::MAX).expect("no memory is needed");
        assert_eq!((meta.len(), meta.capacity(), meta.bytes().len(), meta.bytes_mut().len()), (usize::MAX, 0, 0, 0));
        assert_eq!(Storage::copy_of(Device::META, &[1, 2]).expect("no memory is needed").len(), 2);
        assert_eq!(format!("{meta:?}"), format!("Storage({} bytes on meta)", usize::MAX));
    }

    #[test]
    fn other_devices() {
        let backend = Storage::new(Device::of(DeviceKind::PrivateUse1), 16).expect("memory is there");
        assert_eq!(backend.bytes().len(), 16);
        let error = Storage::new(Device::cuda(0), 16).expect_err("there is no CUDA");
        assert!(error.to_string().contains("cuda:0"), "{error}");
        assert!(matches!(Storage::new(Device::CPU, usize::MAX), Err(Error::OutOfMemory { .. })));
    }
}
