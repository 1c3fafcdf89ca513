#![allow(unsafe_code, reason = "adopts memory that the allocator did not make")]
//! [`Foreign`]: memory that somebody else allocated, and its owner.
//!
//! A storage over such memory copies nothing. The owner is dropped once, after the last tensor over the memory, on
//! whichever thread drops that. Memory may be read-only; writing it is an error that says whose it is.
//!
//! What always holds: the bytes are initialised, and stay valid and in place while the owner lives. They need no
//! alignment here; an array over them checks that of its dtype. Kernels read nothing past the last byte. The allocator
//! does not count foreign memory, and its limit does not apply to it.

use bytemuck::{CheckedBitPattern, NoUninit, Pod};
use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that was allocated elsewhere, and is freed by dropping its owner.
///
/// ```
/// use opfuse::device::foreign::Foreign;
/// use opfuse::{DType, Result, Tensor};
/// use std::sync::Arc;
///
/// # fn main() -> Result<()> {
/// let bytes: Arc<[u8]> = Arc::from([0, 0, 128, 63, 0, 0, 0, 64]);
/// let x = Tensor::from_foreign(Foreign::shared(bytes, "the message"), DType::F32, &[2])?;
/// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
/// assert!(x.add_(1.0).unwrap_err().to_string().contains("the message"));
/// # Ok(())
/// # }
/// ```
pub struct Foreign {
    start: NonNull<u8>,
    len: usize,
    access: Access,
    /// Made by [`Box::into_raw`]. A box in its place would promise that nothing else points into it.
    owner: NonNull<dyn Any + Send>,
}

/// What may be done with foreign memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Nothing writes it. The text says whose it is, for the error of a write.
    ReadOnly(Cow<'static, str>),
    /// Tensors may write it.
    Writable,
}

// SAFETY: the owner may be sent, and is used only by dropping it, or by value. The makers of the memory promise that
// any thread may use it.
unsafe impl Send for Foreign {}
// SAFETY: through `&Foreign` nothing but plain numbers is read; the owner is not reached.
unsafe impl Sync for Foreign {}

/// The owner of a vector's elements, which gives the vector back.
struct VecMemory<T: 'static> {
    start: *mut T,
    len: usize,
    capacity: usize,
}

// SAFETY: it owns the elements as a vector does, and vectors of such elements may be sent.
unsafe impl<T: Send> Send for VecMemory<T> {}

impl<T> VecMemory<T> {
    fn into_vec(self) -> Vec<T> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `Foreign::from` took a vector apart into these, and it is put together once: `self` is gone.
        unsafe { Vec::from_raw_parts(this.start, this.len, this.capacity) }
    }
}

impl<T> Drop for VecMemory<T> {
    fn drop(&mut self) {
        // SAFETY: as in `into_vec`. A length of 0 names no elements, because tensors may have stored bytes that are no
        // `T`s.
        drop(unsafe { Vec::from_raw_parts(self.start, 0, self.capacity) });
    }
}

/// The elements of a vector, which tensors may write.
impl<T: NoUninit + Send> From<Vec<T>> for Foreign {
    fn from(data: Vec<T>) -> Foreign {
        let mut data = ManuallyDrop::new(data);
        let (start, len, capacity) = (data.as_mut_ptr(), data.len(), data.capacity());
        let owner = VecMemory { start, len, capacity };
        let start = NonNull::new(start).expect("vectors have no null pointers").cast();
        // SAFETY: the elements are initialised without gaps, because `T` is `NoUninit`, and belong to `owner` alone.
        // They are never read as `T`s before `into_vec` has checked them.
        unsafe { Foreign::new(start, len * size_of::<T>(), Access::Writable, owner) }
    }
}

impl Foreign {
    /// Adopts `len` bytes from `start` on, which belong to `owner`.
    ///
    /// # Safety
    ///
    /// Until the owner is dropped, any thread may read the bytes: they are initialised, stay where they are, and are
    /// in one allocation. Nothing else writes them meanwhile, unless it takes turns with all readers. If `access` is
    /// `Writable`, any thread may write them, any bytes, and nothing else reads them without taking turns.
    pub unsafe fn new(start: NonNull<u8>, len: usize, access: Access, owner: impl Any + Send) -> Foreign {
        let owner: Box<dyn Any + Send> = Box::new(owner);
        // SAFETY: a box is not null.
        Foreign { start, len, access, owner: unsafe { NonNull::new_unchecked(Box::into_raw(owner)) } }
    }

    /// Read-only memory that `owner` shares: an `Arc<[T]>`, a byte buffer, a mapped file. `whose` names the memory in
    /// the error of a write: "the mapping of weights.bin".
    pub fn shared<T: NoUninit>(owner: impl AsRef<[T]> + Any + Send, whose: impl Into<Cow<'static, str>>) -> Foreign {
        let owner = Box::into_raw(Box::new(owner));
        // SAFETY: the box was just given up, so the pointer is valid, and only this function has it.
        let elements: &[T] = unsafe { &*owner }.as_ref();
        let (start, len) = (NonNull::from(elements).cast(), size_of_val(elements));
        let access = Access::ReadOnly(whose.into());
        // SAFETY: a box is not null. The elements are borrowed from the owner, which is not moved, and not touched
        // before it is dropped. So they stay as valid as the borrow is. They have no gaps, because `T` is `NoUninit`.
        Foreign { start, len, access, owner: unsafe { NonNull::new_unchecked(owner) } }
    }

    /// Memory that `owner` gives up, which tensors may write: a boxed slice, a writable mapping.
    pub fn owned<T: Pod>(owner: impl AsMut<[T]> + Any + Send) -> Foreign {
        let owner = Box::into_raw(Box::new(owner));
        // SAFETY: the box was just given up, so the pointer is valid, and only this function has it.
        let elements: &mut [T] = unsafe { &mut *owner }.as_mut();
        let (len, start) = (size_of_val(elements), NonNull::from(elements).cast());
        // SAFETY: as in `shared`; the borrow is exclusive, so tensors may write. They may write any bytes, because `T`
        // is `Pod`.
        Foreign { start, len, access: Access::Writable, owner: unsafe { NonNull::new_unchecked(owner) } }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What may be done with the memory.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The bytes, which nothing writes while nothing else has the value.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as the makers promise; writers need the storage that is made of the value.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The first byte.
    #[inline]
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The elements as the vector that they came from.
    ///
    /// # Errors
    /// The memory itself, if it is not that of a vector of `T`, or if the bytes are no valid `T`s.
    pub(super) fn into_vec<T: NoUninit + CheckedBitPattern + Send>(self) -> Result<Vec<T>, Foreign> {
        // SAFETY: the owner lives until it is dropped, and `self` is its only user.
        let is_vec = unsafe { self.owner.as_ref() }.is::<VecMemory<T>>();
        if !is_vec || bytemuck::checked::try_cast_slice::<u8, T>(self.bytes()).is_err() {
            return Err(self);
        }
        // Vectors are writable, so there is no name to drop.
        let this = ManuallyDrop::new(self);
        // SAFETY: `owner` came from a box of that type, which was checked, and is used once: `this` does not drop it.
        let owner = unsafe { Box::from_raw(this.owner.as_ptr().cast::<VecMemory<T>>()) };
        Ok(owner.into_vec())
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: `owner` came from a box, and is dropped once. The memory is not used after this.
        drop(unsafe { Box::from_raw(self.owner.as_ptr()) });
    }
}

static COPIES: AtomicU64 = AtomicU64::new(0);

/// How often memory from elsewhere was copied, because kernels do not take it as it is: elements that are not aligned
/// for their type, negative strides, truth values besides 0 and 1.
pub fn copies() -> u64 {
    COPIES.load(Ordering::Relaxed)
}

/// Counts one of [`copies`].
pub(crate) fn count_copy() {
    COPIES.fetch_add(1, Ordering::Relaxed);
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Foreign({} bytes at {:?}, {:?})", self.len, self.start, self.access)
    }
}
