//! The tensor: a cheap handle to shared bytes.
//!
//! A handle knows dtype, sizes, strides, offset, device and dispatch keys; cloning it shares everything. Views share
//! the storage, whose lock makes readers and writers take turns, so handles may be used from any thread. What autograd
//! knows of a tensor hangs on the handle too, and is made when it is first needed.

use crate::device::{Device, DeviceKind, Pooled, Shared, Spare, Storage, WeakShared};
use crate::dispatch::key::alias::AUTOGRAD_AND_INPLACE_KEYS;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::grad_mode::is_inference_mode;
use crate::dispatch::key::set::KeySet;
use crate::eager::Argument;
use crate::error::{Error, Result};
use crate::ir::shape::{Layout, checked_numel};
use crate::ir::{DType, Scalar, TensorType};
use crate::runtime::{Array, SharedLayout};
use crate::tensor::observer::{self, Relation, observer};
use crate::tensor::view_chain::ViewStep;
use smallvec::SmallVec;
use std::any::Any;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::LocalKey;

/// An n-dimensional array of one dtype, which any thread may use. A clone is the same tensor.
///
/// Elements are of a [`DType`]; sizes, strides and dtype of a tensor never change. Methods give a [`Result`], whose error
/// names the op, the shapes and dtypes, and what to do. What they return is a new tensor, or a view of the same elements
/// where the method says so; methods that write to the tensor end in `_` or are called `set`.
///
/// - From numbers: [`Tensor::from_slice`], [`Tensor::zeros`], [`Tensor::arange`], [`Tensor::rand`], and `try_from` of
///   numbers, slices, vectors and nested arrays and vectors of up to four dims. Back: [`Tensor::to_vec`],
///   [`Tensor::item`], `f32::try_from(&x)`.
/// - `+ - * / % & | ^` take tensors, references, numbers and, on one side, results of other calls. Sizes are broadcast.
///   A number raises the category of the dtype (bool, integer, floating) but never the width. On the left it is a
///   literal, f64, i64, bool, f16 or bf16.
/// - Parts: [`Tensor::i`] reads and [`Tensor::set`] writes by numbers, ranges, masks and index tensors.
/// - Text: `{}` prints the elements as NumPy does, `{:?}` the type and a few elements.
///
/// ```
/// use opfuse::{DType, Result, Tensor};
///
/// # fn main() -> Result<()> {
/// let x = Tensor::try_from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
/// assert_eq!((x.dtype(), x.sizes()), (DType::F32, &[2, 3][..]));
/// let y = ((&x * &x)? + 1.0)?;
/// assert_eq!(y.i((.., 1..))?.to_vec::<f32>()?, [5.0, 10.0, 26.0, 37.0]);
/// let centered = (&x - x.mean([1], true))?;
/// assert_eq!(centered.to_string(), "[[-1.  0.  1.]\n [-1.  0.  1.]]");
/// x.set((0, ..), 0.0)?;
/// x.mul_(2)?;
/// assert_eq!(x.to_vec2::<f32>()?, [[0.0, 0.0, 0.0], [8.0, 10.0, 12.0]]);
/// let error = x.add(&Tensor::zeros(&[4], DType::F32)?).unwrap_err();
/// assert!(error.to_string().contains("[2, 3]"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tensor(Shared<Inner>);

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
    /// The tensor it is a view of, if that matters to autograd.
    view: Option<Box<ViewOf>>,
    /// Counts writes, unless the storage does.
    version: Option<Arc<AtomicU64>>,
    /// What autograd knows of it.
    autograd: OnceLock<Box<dyn Any + Send + Sync>>,
    /// The elements, if they came after the handle: see [`Tensor::take_elements`]. They lie as those of `array` would.
    filled: OnceLock<Box<Array>>,
}

thread_local! {
    static SPARE: Spare<Inner> = const { Spare::new() };
}

impl Pooled for Inner {
    #[inline(always)]
    fn spare() -> &'static LocalKey<Spare<Inner>> {
        &SPARE
    }
}

/// What a view knows of where it comes from.
#[derive(Clone)]
pub(crate) struct ViewOf {
    /// The tensor that is a view of nothing.
    pub(crate) base: Tensor,
    /// How to get from there to here.
    pub(crate) chain: SmallVec<[ViewStep; 1]>,
    /// The version of the elements when the view was made.
    pub(crate) made_at: u64,
    /// Whether gradients flow from the view to the base.
    pub(crate) is_differentiable: bool,
    /// Whether it was made while gradients were recorded; writing through one that was not is refused later on.
    pub(crate) made_with_grad: bool,
}

/// A handle that does not keep its tensor alive.
#[derive(Clone)]
pub(crate) struct WeakTensor(WeakShared<Inner>);

impl WeakTensor {
    pub(crate) fn upgrade(&self) -> Option<Tensor> {
        self.0.upgrade().map(Tensor)
    }
}

impl Inner {
    #[inline]
    fn new(array: Array, keys: KeySet, device: Device) -> Inner {
        let (id, filled, autograd) = (next_id(), OnceLock::new(), OnceLock::new());
        Inner { array, filled, keys, number: None, id, device, payload: None, view: None, version: None, autograd }
    }
}

impl Tensor {
    /// A tensor over an array.
    #[inline(always)]
    pub fn from_array(array: Array) -> Tensor {
        Tensor::over(array, None)
    }

    #[inline(always)]
    fn over(array: Array, number: Option<Scalar>) -> Tensor {
        let device = array.device();
        let (keys, id) = (device_keys(device), next_id());
        // Written out: whatever is copied into its place costs a small call several nanoseconds.
        Tensor(Shared::made_by(|| Inner {
            array,
            keys,
            number,
            id,
            device,
            payload: None,
            view: None,
            version: None,
            autograd: OnceLock::new(),
            filled: OnceLock::new(),
        }))
    }

    /// A 0-dim tensor that stands for a plain number: in promotion it is the weakest operand, and a trace records
    /// the number itself.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn number(value: impl Into<Scalar>) -> Result<Tensor> {
        let value = value.into();
        let lit = value.to_lit(value.dtype());
        let bytes = &lit.bits.to_ne_bytes()[..value.dtype().size()];
        let mut storage = Storage::shareable(Device::CPU, bytes.len())?;
        storage.get_mut().expect("it was made just now").bytes_mut().copy_from_slice(bytes);
        let array = Array { storage, dtype: value.dtype(), layout: SharedLayout::scalar() };
        Ok(Tensor::over(array, Some(value)))
    }

    /// A row-major tensor over bytes that are copied.
    pub(crate) fn from_bytes(dtype: DType, sizes: &[usize], bytes: &[u8], device: Device) -> Result<Tensor> {
        let count = checked_numel("from_slice", sizes, dtype.size())?;
        if count * dtype.size() != bytes.len() {
            let what = format!("shape {sizes:?} has {count} elements, but {} were given", bytes.len() / dtype.size());
            return Err(Error::shape("from_slice", what, "the element counts must agree"));
        }
        let storage = Shared::new(Storage::copy_of(device, bytes)?);
        Ok(Tensor::from_array(Array { storage, dtype, layout: SharedLayout::frequent(Layout::contiguous(sizes)) }))
    }

    /// A tensor of type `ty` without bytes, on the meta device.
    ///
    /// # Errors
    /// If the sizes have too many elements.
    pub fn meta(ty: &TensorType) -> Result<Tensor> {
        Array::new(Device::META, ty).map(Tensor::from_array)
    }

    /// A tensor of type `ty` that belongs to `device` but has no bytes: what a function sees while only its shapes
    /// are traced. Reading it is an error.
    pub(crate) fn abstracted(ty: &TensorType, device: Device, number: Option<Scalar>) -> Result<Tensor> {
        let array = Array::new(Device::META, ty)?;
        Ok(Tensor(Shared::new(Inner { number, ..Inner::new(array, device_keys(device), device) })))
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
        Ok(Tensor(Shared::new(Inner { payload: Some(payload), ..Inner::new(array, keys, device) })))
    }

    /// What a wrapper stands for, if it is a wrapper of that kind.
    pub fn payload<T: Any>(&self) -> Option<&T> {
        self.0.payload.as_deref()?.downcast_ref()
    }

    /// Whether it is no wrapper.
    pub(crate) fn payload_is_none(&self) -> bool {
        self.0.payload.is_none()
    }

    /// A tensor over an array with the dispatch keys of this one, as a view has them.
    pub(crate) fn view_with(&self, array: Array) -> Tensor {
        let Inner { keys, device, version, .. } = &*self.0;
        Tensor(Shared::new(Inner { version: version.clone(), ..Inner::new(array, *keys, *device) }))
    }

    /// Another handle of the same elements, without history; a trace tells the two apart, writes count for both.
    pub(crate) fn fresh_handle(&self) -> Tensor {
        self.derived(|_| {})
    }

    /// Another handle that a trace takes for the same tensor, without history.
    pub(crate) fn snapshot(&self) -> Tensor {
        self.derived(|inner| inner.id = self.0.id)
    }

    /// The same elements as a tensor that writes are counted apart for, without history.
    pub(crate) fn with_own_version(&self) -> Tensor {
        self.derived(|inner| inner.version = Some(Arc::default()))
    }

    /// The same tensor marked as a view.
    pub(crate) fn marked_as_view(mut self, view: ViewOf) -> Tensor {
        let view = Some(Box::new(view));
        match self.0.get_mut() {
            Some(inner) => {
                inner.view = view;
                self
            }
            None => self.derived(|inner| inner.view = view),
        }
    }

    /// The tensor as an operand of a kernel.
    #[inline]
    pub(crate) fn as_argument(&self) -> Argument<'_> {
        Argument { array: self.array(), number: self.0.number.is_some() }
    }

    fn derived(&self, change: impl FnOnce(&mut Inner)) -> Tensor {
        let Inner { keys, number, device, version, payload, .. } = &*self.0;
        let fresh = Inner::new(self.array().clone(), *keys, *device);
        let mut inner = Inner { number: *number, version: version.clone(), payload: payload.clone(), ..fresh };
        change(&mut inner);
        Tensor(Shared::new(inner))
    }

    pub(crate) fn downgrade(&self) -> WeakTensor {
        WeakTensor(self.0.downgrade())
    }

    /// The slot where autograd keeps what it knows of the tensor.
    #[inline]
    pub(crate) fn autograd_slot(&self) -> &OnceLock<Box<dyn Any + Send + Sync>> {
        &self.0.autograd
    }

    /// Where it comes from, if it is a view that autograd tracks.
    pub(crate) fn view_of(&self) -> Option<&ViewOf> {
        self.0.view.as_deref()
    }

    /// How often it or a tensor that shares its elements was written to.
    pub fn version(&self) -> u64 {
        self.version_counter().load(Ordering::Acquire)
    }

    pub(crate) fn version_counter(&self) -> &AtomicU64 {
        let wrapped = || observer().filter(|_| !self.payload_is_none())?.physical(self);
        match (&self.0.version, wrapped()) {
            (Some(own), _) => own,
            (None, Some(physical)) => physical.version_counter(),
            (None, None) => self.array().storage().version(),
        }
    }

    /// Whether it has bytes to read.
    pub fn has_data(&self) -> bool {
        self.array().device().kind != DeviceKind::Meta
    }

    /// The array behind the handle.
    #[inline]
    pub fn array(&self) -> &Array {
        self.0.filled.get().map_or(&self.0.array, |filled| filled)
    }

    /// Gives a handle without bytes the elements that `storage` holds at its places; whoever had the handle before has
    /// them too. A handle is filled once: what it holds is never exchanged.
    ///
    /// # Errors
    /// If the storage is too short for it.
    pub(crate) fn take_elements(&self, storage: &Shared<Storage>) -> Result<()> {
        let Array { dtype, layout, .. } = &self.0.array;
        let array = Array::from_storage(storage.clone(), *dtype, Layout::clone(layout))?;
        self.0.filled.get_or_init(|| Box::new(array));
        Ok(())
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.0.array.dtype
    }

    /// Sizes, outermost first.
    pub fn sizes(&self) -> &[usize] {
        &self.0.array.layout.sizes
    }

    /// Sizes and strides, as they are shared between tensors.
    #[inline]
    pub(crate) fn shared_layout(&self) -> &SharedLayout {
        &self.0.array.layout
    }

    /// Strides in elements.
    pub fn strides(&self) -> &[usize] {
        &self.0.array.layout.strides
    }

    /// Storage element of the first element.
    pub fn storage_offset(&self) -> usize {
        observer::memory_start(self)
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
        observer()
            .and_then(|observer| observer.relates(Relation::Alias, self, other))
            .unwrap_or_else(|| self.has_storage_of(other))
    }

    /// As [`Tensor::is_alias_of`], without a word to a trace.
    pub(crate) fn has_storage_of(&self, other: &Tensor) -> bool {
        Shared::ptr_eq(self.array().storage(), other.array().storage())
    }

    /// Whether writing to one may change the other.
    pub(crate) fn shares(&self, other: &Tensor) -> bool {
        self.has_storage_of(other) && self.numel() > 0 && other.numel() > 0
    }

    /// Whether both are the very same handle; a trace names tensors by this.
    pub fn is_same(&self, other: &Tensor) -> bool {
        observer()
            .and_then(|observer| observer.relates(Relation::Same, self, other))
            .unwrap_or_else(|| self.is_handle_of(other))
    }

    /// As [`Tensor::is_same`], without a word to a trace.
    pub(crate) fn is_handle_of(&self, other: &Tensor) -> bool {
        Shared::ptr_eq(&self.0, &other.0)
    }

    /// Whether there are other handles of this very tensor.
    pub(crate) fn has_other_handles(&self) -> bool {
        self.0.has_others()
    }

    /// A number that no other tensor of this process has or will have; clones of a handle share it.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The number that the next tensor of this thread has, unless it begins a new block.
    pub(crate) fn upcoming_id() -> u64 {
        NEXT_ID.get()
    }

    /// Whether this thread made it after its upcoming number was `since`: surely not, if it did not; surely, unless it took
    /// several blocks of numbers meanwhile.
    pub(crate) fn is_made_since(&self, since: u64) -> bool {
        let (id, upcoming) = (self.id(), Tensor::upcoming_id());
        let block = |id: u64| id / BLOCK_OF_IDS;
        // Blocks belong to one thread: the one that it was in then, and the one that it is in now.
        let is_first = !since.is_multiple_of(BLOCK_OF_IDS) && block(id) == block(since);
        let is_last = upcoming > 0 && block(id) == block(upcoming - 1);
        upcoming != since && (is_first || is_last) && (block(id) != block(since) || id >= since)
    }
}

/// Threads take numbers by the block, so that they do not meet.
const BLOCK_OF_IDS: u64 = 1 << 12;

thread_local! {
    static NEXT_ID: Cell<u64> = const { Cell::new(0) };
}

/// The next tensor's number.
#[inline]
fn next_id() -> u64 {
    static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);
    let mut id = NEXT_ID.get();
    if id.is_multiple_of(BLOCK_OF_IDS) {
        id = NEXT_BLOCK.fetch_add(1, Ordering::Relaxed) * BLOCK_OF_IDS;
    }
    NEXT_ID.set(id + 1);
    id
}

/// The keys of a dense tensor on a device, with the keys of autograd and mixed precision that ride along; those of
/// autograd stay away in inference mode.
#[inline]
fn device_keys(device: Device) -> KeySet {
    use DispatchKey as K;
    const CPU: KeySet = KeySet::from_keys(&[K::CPU, K::AutogradCPU, K::ADInplaceOrView, K::AutocastCPU]);
    const CUDA: KeySet = KeySet::from_keys(&[K::CUDA, K::AutogradCUDA, K::ADInplaceOrView, K::AutocastCUDA]);
    const META: KeySet = KeySet::from_keys(&[K::Meta, K::AutogradMeta, K::ADInplaceOrView]);
    const PRIVATE: KeySet =
        KeySet::from_keys(&[K::PrivateUse1, K::AutogradPrivateUse1, K::ADInplaceOrView, K::AutocastPrivateUse1]);
    let all = match device.kind {
        DeviceKind::Cpu => CPU,
        DeviceKind::Cuda => CUDA,
        DeviceKind::Meta => META,
        DeviceKind::PrivateUse1 => PRIVATE,
    };
    if is_inference_mode() { all - AUTOGRAD_AND_INPLACE_KEYS } else { all }
}
