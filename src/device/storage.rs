#![allow(unsafe_code, reason = "hands out bytes that several tensors share, under its lock")]
//! The bytes of tensors.
//!
//! A storage is made, filled by its maker, and then shared through [`Shared`] handles; views are tensors with the same
//! storage. A reader or writer of shared bytes holds the storage's lock: many readers or one writer. So threads that
//! write to aliases of one tensor take turns. Short kernels announce what they read instead, which keeps writers out as
//! well, without shared writes (`readers`). A kernel takes the locks of all its operands at once, in the order of their
//! addresses ([`super::Access`]), and calls no foreign code while it holds them.
//!
//! Memory may be [`Foreign`], and read-only: then writing is an error, too.
//!
//! A [`Borrowed`] slice outlives its lock. While one is alive, writing is an error instead of a wait, because the
//! writer may be the borrower. A meta storage has a length and no bytes. Storages know no dtypes.

use super::access::Access;
use super::allocator;
use super::block::Block;
use super::current;
use super::foreign::Foreign;
use super::readers;
use super::runtime;
use super::shared::{Pooled, Shared, Spare};
use super::stream::Stream;
use super::{Device, DeviceKind};
use crate::error::{Error, Result};
use bytemuck::{CheckedBitPattern, NoUninit};
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::LocalKey;

/// A sequence of bytes on a device.
pub struct Storage {
    device: Device,
    len: usize,
    /// Empty on the meta device; elsewhere at least `len` bytes.
    block: Block,
    /// Protects the bytes.
    lock: RwLock<()>,
    /// The number of writers, running or waiting; readers without a lock check it.
    writers: AtomicUsize,
    /// The number of slices that are alive without the lock.
    borrows: AtomicUsize,
    /// How often the bytes were written to.
    version: AtomicU64,
}

thread_local! {
    static SPARE: Spare<Storage> = const { Spare::new() };
}

impl Pooled for Storage {
    #[inline(always)]
    fn spare() -> &'static LocalKey<Spare<Storage>> {
        &SPARE
    }
}

/// The bytes of a storage, which cannot be written while this lives.
#[derive(Debug)]
pub struct Borrowed(Shared<Storage>);

/// Elements of a storage, which cannot be written while this lives; made by
/// [`Tensor::as_slice`](crate::Tensor::as_slice).
pub struct Elements<T> {
    start: *const T,
    len: usize,
    _bytes: Borrowed,
}

// SAFETY: it is a shared slice of `T`s and a handle that keeps them.
unsafe impl<T: Sync> Send for Elements<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Elements<T> {}

impl Borrowed {
    /// The bytes in `range` as elements. `None` if they are not there, not aligned, or not valid.
    pub fn elements<T: CheckedBitPattern>(self, range: Range<usize>) -> Option<Elements<T>> {
        let elements: &[T] = bytemuck::checked::try_cast_slice(self.get(range)?).ok()?;
        Some(Elements { start: elements.as_ptr(), len: elements.len(), _bytes: self })
    }
}

impl<T> Deref for Elements<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the slice was valid when this was made, and nothing writes to it or frees it while `_bytes` lives.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl<T: fmt::Debug> fmt::Debug for Elements<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self[..].fmt(f)
    }
}

impl Deref for Borrowed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the count of borrows is above zero, and then `Storage::exclusive` refuses to write.
        unsafe { self.0.bytes() }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.0.borrows.fetch_sub(1, Ordering::Release);
    }
}

/// Exclusive access to the bytes of a storage; made by [`Storage::exclusive`].
#[derive(Debug)]
#[must_use = "others are kept away only while it lives"]
pub struct Exclusive<'a> {
    writers: &'a AtomicUsize,
    _lock: RwLockWriteGuard<'a, ()>,
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        // Readers that see it also see what was written.
        self.writers.fetch_sub(1, Ordering::Release);
    }
}

impl Storage {
    /// `len` bytes on `device`, initialised but arbitrary. The meta device accepts any length.
    ///
    /// A `PrivateUse1` storage is memory of the registered runtime's allocator, or host memory if there is none.
    pub fn new(device: Device, len: usize) -> Result<Storage> {
        // A GPU always has its index, so that each device has one name.
        let device = match (device.kind, device.index) {
            (DeviceKind::Cuda, None) => Device::cuda(current::current_index(DeviceKind::Cuda)),
            _ => device,
        };
        Ok(Storage::over(block_of(device, len)?, device, len).filled())
    }

    /// Filled as [`allocator::set_fill`] wants it.
    #[inline(always)]
    fn filled(self) -> Storage {
        if let Some(byte) = allocator::fill().filter(|_| self.device.kind == DeviceKind::Cpu) {
            // SAFETY: the block has so many bytes, and nothing else knows of it yet.
            unsafe { std::ptr::write_bytes(self.ptr(), byte, self.len) };
        }
        self
    }

    /// Like [`Storage::new`], for sharing.
    #[inline(always)]
    pub fn shareable(device: Device, len: usize) -> Result<Shared<Storage>> {
        if device.kind == DeviceKind::Cpu
            && let Some(region) = allocator::allocate_at_once(len)
        {
            return Ok(Shared::made_by(|| Storage::over(Block::new(region), device, len).filled()));
        }
        Storage::new(device, len).map(Shared::new)
    }

    #[inline(always)]
    fn over(block: Block, device: Device, len: usize) -> Storage {
        Storage {
            device,
            len,
            block,
            lock: RwLock::new(()),
            writers: AtomicUsize::new(0),
            borrows: AtomicUsize::new(0),
            version: AtomicU64::new(0),
        }
    }

    /// Host memory that the allocator did not make; nothing is copied.
    pub fn foreign(memory: Foreign) -> Storage {
        let len = memory.len();
        Storage::over(Block::foreign(memory), Device::CPU, len)
    }

    /// The elements as a vector, without a copy.
    ///
    /// # Errors
    /// The storage, if it is not over the memory of a vector of `T`, or if the bytes are no valid `T`s.
    pub(crate) fn into_vec<T: NoUninit + CheckedBitPattern + Send>(self) -> Result<Vec<T>, Storage> {
        let Storage { device, len, block, version, .. } = self;
        let over = |block| Storage { version, ..Storage::over(block, device, len) };
        match block.into_foreign().map(Foreign::into_vec) {
            Ok(Ok(data)) => Ok(data),
            Ok(Err(memory)) => Err(over(Block::foreign(memory))),
            Err(block) => Err(over(block)),
        }
    }

    /// Whose memory it is, if it must not be written.
    #[inline]
    pub fn read_only(&self) -> Option<&str> {
        self.block.read_only()
    }

    /// `len` zero bytes on `device`.
    pub fn zeroed(device: Device, len: usize) -> Result<Storage> {
        let mut storage = Storage::new(device, len)?;
        if !storage.is_visible() {
            // Only for tensors made of zeros; kernels fill the others.
            return Storage::copy_of(device, &vec![0; len]);
        }
        storage.bytes_mut().fill(0);
        Ok(storage)
    }

    /// A copy of `bytes` on `device`; on the meta device only their number.
    pub fn copy_of(device: Device, bytes: &[u8]) -> Result<Storage> {
        let mut storage = Storage::new(device, bytes.len())?;
        if !storage.is_visible() {
            storage.upload(bytes)?;
            return Ok(storage);
        }
        let to = storage.bytes_mut();
        to.copy_from_slice(&bytes[..to.len()]);
        Ok(storage)
    }

    /// The device of the bytes.
    #[inline]
    pub fn device(&self) -> Device {
        self.device
    }

    /// The number of bytes, also on the meta device.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that could be used without reallocation: the capacity of the block.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.block.capacity()
    }

    /// Tells the allocator that work on `stream` uses the bytes too; see [`Block::used_on`].
    pub fn used_on(&self, stream: &Stream) {
        self.block.used_on(stream);
    }

    /// Waits until there is no writer, and keeps writers out while the guard lives.
    #[inline]
    pub fn shared(&self) -> RwLockReadGuard<'_, ()> {
        self.lock.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is no reader and no writer, and keeps both out while the guard lives.
    ///
    /// # Errors
    /// If a slice of the bytes is [`Borrowed`], or if the memory is read-only.
    pub fn exclusive(&self) -> Result<Exclusive<'_>> {
        if let Some(whose) = self.read_only() {
            return Err(refused(whose));
        }
        // Ordered with the checks of readers; see `readers`.
        self.writers.fetch_add(1, Ordering::SeqCst);
        let lock = self.lock.write().unwrap_or_else(PoisonError::into_inner);
        let guard = Exclusive { writers: &self.writers, _lock: lock };
        readers::wait_for(self);
        if self.borrows.load(Ordering::Acquire) == 0 {
            return Ok(guard);
        }
        Err(Error::argument("write", "a slice of the tensor's elements is still borrowed; drop it before writing"))
    }

    /// The bytes, for as long as the result lives.
    pub fn borrow(storage: &Shared<Storage>) -> Borrowed {
        let _guard = storage.shared();
        storage.borrows.fetch_add(1, Ordering::Relaxed);
        Borrowed(storage.clone())
    }

    /// Calls `work` with the bytes, and keeps writers out meanwhile. The meta device has no bytes.
    pub fn read<T>(&self, work: impl FnOnce(&[u8]) -> T) -> T {
        let _guard = self.shared();
        // SAFETY: the lock is held while `work` runs, and the slice cannot outlive it.
        work(unsafe { self.bytes() })
    }

    /// Calls `work` with the bytes, with exclusive access, and counts the write. The meta device has no bytes.
    ///
    /// # Errors
    /// If a slice of the bytes is [`Borrowed`], or if the memory is read-only.
    pub fn write<T>(&self, work: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        let _guard = self.exclusive()?;
        self.version.fetch_add(1, Ordering::AcqRel);
        // SAFETY: the block is valid for that many bytes and writable, the lock keeps all others out while `work` runs,
        // and the slice cannot outlive it.
        Ok(work(unsafe { std::slice::from_raw_parts_mut(self.block.raw(), self.n_visible()) }))
    }

    /// The bytes; the meta device has none.
    ///
    /// # Safety
    /// Nothing may write to them while the slice lives: the caller holds [`Storage::shared`], or nothing else has the
    /// storage.
    #[inline]
    pub unsafe fn bytes(&self) -> &[u8] {
        &self.block.as_bytes()[..self.n_visible()]
    }

    /// The number of writers, running or waiting.
    #[inline(always)]
    pub(super) fn writers(&self) -> &AtomicUsize {
        &self.writers
    }

    /// How often the bytes were written to.
    #[inline]
    pub fn version(&self) -> &AtomicU64 {
        &self.version
    }

    /// The bytes, mutably; the meta device has none.
    ///
    /// # Panics
    /// If the memory is read-only.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let n_visible = self.n_visible();
        &mut self.block.as_mut_bytes()[..n_visible]
    }

    /// The first byte; dangling if there are no bytes. Memory of the allocator is 64-byte aligned, and an array checks
    /// that foreign memory is aligned for its dtype.
    ///
    /// Reading through it is like [`Storage::bytes`], writing like [`Storage::bytes_mut`]: the lock must be held.
    #[inline]
    pub fn ptr(&self) -> *mut u8 {
        self.block.raw()
    }

    /// The number of bytes that the host can read.
    #[inline]
    fn n_visible(&self) -> usize {
        self.len.min(self.block.visible())
    }

    /// Whether the host can reach the bytes, if there are any.
    pub fn is_visible(&self) -> bool {
        self.block.visible() == self.block.capacity()
    }

    /// Copies the bytes starting at `at` to the host, from any device, in the order of the thread's stream. Writers are
    /// kept out meanwhile.
    ///
    /// # Errors
    /// If the storage has fewer bytes, or the device cannot be read.
    pub fn fetch(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        let end = at.checked_add(bytes.len()).filter(|&end| end <= self.len && self.device.kind != DeviceKind::Meta);
        let Some(end) = end else {
            let what =
                format!("{} bytes from {at} on are not in a storage of {} on {}", bytes.len(), self.len, self.device);
            return Err(Error::argument("fetch", what));
        };
        if self.is_visible() {
            self.read(|all| bytes.copy_from_slice(&all[at..end]));
            return Ok(());
        }
        let _guard = self.shared();
        self.download(at, bytes)
    }

    /// Writes all bytes, on any device, in the order of the thread's stream, with exclusive access, and counts the
    /// write.
    ///
    /// # Errors
    /// If the number of bytes differs, a slice of them is [`Borrowed`], or memory or device cannot be written to.
    pub fn store(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() != self.len || self.device.kind == DeviceKind::Meta {
            let what = format!("{} bytes cannot be stored in {} bytes on {}", bytes.len(), self.len, self.device);
            return Err(Error::argument("store", what));
        }
        if self.is_visible() {
            return self.write(|all| all.copy_from_slice(bytes));
        }
        let _guard = self.exclusive()?;
        self.version.fetch_add(1, Ordering::AcqRel);
        self.upload(bytes)
    }

    /// A copy of the storage on a device, which may be its own.
    ///
    /// # Errors
    /// If there is no memory, or one of the devices fails.
    pub fn copy_to(&self, device: Device) -> Result<Storage> {
        if self.is_visible() {
            return self.read(|bytes| Storage::copy_of(device, bytes));
        }
        let mut host = Storage::new(Device::CPU, self.len)?;
        self.fetch(0, host.bytes_mut())?;
        if device.kind == DeviceKind::Cpu { Ok(host) } else { Storage::copy_of(device, host.bytes_mut()) }
    }

    /// Like [`Storage::fetch`], for a caller that has `access` to the bytes, or the only handle.
    ///
    /// # Errors
    /// As for [`Storage::fetch`], or if the host reaches the bytes directly.
    pub fn fetch_under(&self, _: &Access<'_>, at: usize, bytes: &mut [u8]) -> Result<()> {
        self.check_device_only()?;
        if at.checked_add(bytes.len()).is_none_or(|end| end > self.len) {
            return Err(Error::argument("fetch", format!("{} bytes from {at} on are not there", bytes.len())));
        }
        self.download(at, bytes)
    }

    /// Like [`Storage::store`], for a caller that has `access` to write the bytes, or the only handle.
    ///
    /// # Errors
    /// As for [`Storage::store`], or if the host reaches the bytes directly.
    pub fn store_under(&self, _: &Access<'_>, bytes: &[u8]) -> Result<()> {
        self.check_device_only()?;
        if bytes.len() != self.len {
            return Err(Error::argument("store", format!("{} bytes for {}", bytes.len(), self.len)));
        }
        self.upload(bytes)
    }

    /// Memory that the host reaches is read and written under locks alone.
    fn check_device_only(&self) -> Result<()> {
        if self.block.visible() == 0 {
            return Ok(());
        }
        Err(Error::argument("storage", format!("the host reaches the memory of {} directly", self.device)))
    }

    fn download(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        let (runtime, index, stream) = self.take_turn()?;
        runtime.download(index, stream, &self.block, at, bytes)
    }

    fn upload(&self, bytes: &[u8]) -> Result<()> {
        let (runtime, index, stream) = self.take_turn()?;
        runtime.upload(index, stream, bytes, &self.block, 0)
    }

    /// Orders work of the thread's current stream from now on after all earlier work on other streams that uses the
    /// bytes.
    fn take_turn(&self) -> Result<(Arc<dyn runtime::Runtime>, u16, u64)> {
        let (runtime, index) = runtime::of(self.device, current::current_index(self.device.kind))?;
        let stream = current::current_stream(Device { index: Some(index), ..self.device })?;
        self.block.take_turn(&stream)?;
        Ok((runtime, index, stream.id()))
    }

    /// Orders work given to `stream` from now on after all earlier work on other streams that uses the bytes; see
    /// [`Block::take_turn`].
    ///
    /// # Errors
    /// If the device failed.
    pub fn turn_to(&self, stream: &Stream) -> Result<()> {
        self.block.take_turn(stream)
    }
}

/// The error of a write to read-only memory.
#[cold]
fn refused(whose: &str) -> Error {
    Error::argument("write", format!("the memory is read-only: it is {whose}; write to a copy(), or make one first"))
}

fn block_of(device: Device, len: usize) -> Result<Block> {
    match device.kind {
        DeviceKind::Cpu => allocator::allocate(len),
        DeviceKind::Meta => Ok(Block::EMPTY),
        DeviceKind::PrivateUse1 | DeviceKind::Cuda => device_block(device, len),
    }
}

/// Memory of a device that is neither the host nor meta.
#[cold]
fn device_block(device: Device, len: usize) -> Result<Block> {
    let runtime = match runtime::need(device.kind) {
        Ok(runtime) => runtime,
        Err(_) if device.kind == DeviceKind::PrivateUse1 => return allocator::allocate(len),
        Err(Error::Device { what, hint, .. }) => {
            let what = format!("no memory is available on {device}: {what}");
            return Err(Error::Device { op: "storage".into(), what, hint });
        }
        Err(error) => return Err(error),
    };
    let (_, index) = runtime::of(device, current::current_index(device.kind))?;
    let block = runtime.allocator(index).allocate(len)?;
    if block.capacity() < len {
        let message = format!("{} bytes were asked for and {} given on {device}", len, block.capacity());
        return Err(Error::invalid("allocator", message));
    }
    Ok(block)
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
        assert_eq!((storage.read(<[u8]>::to_vec), storage.len(), storage.capacity()), (vec![1, 2, 3], 3, 64));
        assert_eq!(storage.ptr().addr() % 64, 0);
        storage.bytes_mut()[1] = 9;
        assert_eq!(storage.read(<[u8]>::to_vec), [1, 9, 3]);
        let zeroed = Storage::zeroed(Device::CPU, 5000).expect("memory is there");
        assert_eq!(zeroed.read(<[u8]>::to_vec), [0; 5000]);
        let empty = Storage::new(Device::CPU, 0).expect("no memory is needed");
        assert!(empty.is_empty() && empty.read(<[u8]>::is_empty));
        assert_eq!(empty.ptr().addr() % 64, 0);
    }

    #[test]
    fn meta_has_a_length_alone() {
        let mut meta = Storage::new(Device::META, usize::MAX).expect("no memory is needed");
        assert_eq!(
            (meta.len(), meta.capacity(), meta.read(<[u8]>::len), meta.bytes_mut().len()),
            (usize::MAX, 0, 0, 0)
        );
        assert_eq!(Storage::copy_of(Device::META, &[1, 2]).expect("no memory is needed").len(), 2);
        assert_eq!(format!("{meta:?}"), format!("Storage({} bytes on meta)", usize::MAX));
    }

    #[test]
    fn other_devices() {
        let backend = Storage::new(Device::of(DeviceKind::PrivateUse1), 16).expect("memory is there");
        assert_eq!(backend.read(<[u8]>::len), 16);
        // This computer may have one or several GPUs.
        let error = Storage::new(Device::cuda(200), 16).expect_err("there are not so many");
        assert!(error.to_string().contains("cuda:200"), "{error}");
        assert!(matches!(Storage::new(Device::CPU, usize::MAX), Err(Error::OutOfMemory { .. })));
    }

    #[test]
    fn borrowed_bytes_cannot_be_written() {
        let storage = Shared::new(Storage::copy_of(Device::CPU, &[1, 2]).expect("memory is there"));
        let borrowed = Storage::borrow(&storage);
        assert_eq!(borrowed[..], [1, 2]);
        assert!(storage.exclusive().is_err());
        drop(borrowed);
        assert!(storage.exclusive().is_ok());
    }
}
