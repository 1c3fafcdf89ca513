//! The tensor: a cheap handle to shared memory.
//!
//! A handle has a dtype, sizes, strides, an offset, a device and dispatch keys. A clone shares everything. Views share
//! the storage, whose lock separates readers and writers, so handles may be used from any thread. The handle also holds
//! the autograd state of the tensor, which is made at first use.

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
use crate::tensor::ids::next_id;
use crate::tensor::observer::{self, Relation, observer};
use crate::tensor::view_chain::ViewChain;
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::LocalKey;

/// An n-dimensional array of one dtype. A clone is the same tensor. Any thread may use it.
///
/// Elements have a [`DType`]. The sizes, strides and dtype of a tensor never change. Methods return a [`Result`], whose
/// error names the op, the shapes and dtypes, and what to do. The value is a new tensor, or a view of the same elements
/// where the method says so. Methods that write to the tensor end in `_` or start with `set`.
/// - Conversion: [`Tensor::from_slice`], [`Tensor::zeros`], [`Tensor::arange`], [`Tensor::rand`], and `try_from` of
///   numbers, slices, vectors and nested arrays and vectors of up to four dims. Back: [`Tensor::to_vec`],
///   [`Tensor::item`], `f32::try_from(&x)`.
/// - Operators: `+ - * / % & | ^` take tensors, references, numbers and, on one side, results of other calls. Sizes are
///   broadcast. A number raises the category of the dtype (bool, integer, floating) but never the width. On the left it
///   is a literal, f64, i64, bool, f16 or bf16.
/// - Indexing: [`Tensor::i`] reads and [`Tensor::set`] writes by numbers, ranges, masks and index tensors.
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
    /// The plain number it stands for, which promotes weakly (a wrapped number in PyTorch).
    number: Option<Scalar>,
    /// Its identity in traces, unique in the process.
    id: u64,
    /// The device it belongs to. In an abstract trace, tensors have a device but no bytes.
    device: Device,
    /// The value of a wrapper; see [`Tensor::wrapper`].
    payload: Option<Arc<dyn Any + Send + Sync>>,
    /// The base and view chain of a view, if autograd tracks it.
    view: Option<Box<ViewOf>>,
    /// The version counter, if it is not that of the storage.
    version: Option<Arc<AtomicU64>>,
    /// The autograd state.
    autograd: OnceLock<Box<dyn Any + Send + Sync>>,
    /// The elements, if the handle was made before them; see [`Tensor::take_elements`]. They have the layout of
    /// `array`.
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

/// Where a view comes from.
#[derive(Clone)]
pub(crate) struct ViewOf {
    /// The base, which is not itself a view.
    pub(crate) base: Tensor,
    /// The view ops that lead from the base to this view.
    pub(crate) chain: ViewChain,
    /// The version of the elements when the view was made.
    pub(crate) made_at: u64,
    /// Whether gradients flow from the view to the base.
    pub(crate) is_differentiable: bool,
    /// Whether it was made in grad mode. If not, later writes through it may be an error.
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
        // Built in place: each copy would cost a small call several nanoseconds.
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

    /// A 0-dim tensor that stands for a plain number. In type promotion it is the weakest operand. A trace records the
    /// number itself.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn number(value: impl Into<Scalar>) -> Result<Tensor> {
        let value = value.into();
        let lit = value.to_lit(value.dtype());
        let bytes = &lit.bits.to_ne_bytes()[..value.dtype().size()];
        let mut storage = Storage::shareable(Device::CPU, bytes.len())?;
        storage.get_mut().expect("it was made just now").bytes_mut().copy_from_slice(bytes);
        let array = Array { storage, dtype: value.dtype(), layout: SharedLayout::scalar() };
        Ok(Tensor::over(array, Some(value)))
    }

    /// A row-major tensor with a copy of these bytes.
    pub(crate) fn copied(dtype: DType, sizes: &[usize], bytes: &[u8], device: Device) -> Result<Tensor> {
        if dtype.is_complex() {
            let pairs = Layout::contiguous(sizes).of_pairs();
            return Tensor::of_pairs(&Tensor::copied(dtype.part(), &pairs.sizes, bytes, device)?);
        }
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

    /// A tensor of type `ty` that belongs to `device` but has no bytes, as abstract traces use it. Reading it is an
    /// error.
    pub(crate) fn abstracted(ty: &TensorType, device: Device, number: Option<Scalar>) -> Result<Tensor> {
        let array = Array::new(Device::META, ty)?;
        Ok(Tensor(Shared::new(Inner { number, ..Inner::new(array, device_keys(device), device) })))
    }

    /// A tensor of type `ty` without bytes, whose calls go to the kernels of `keys`. These read its value from
    /// `payload`. Keys with behaviour of their own make their tensors this way: mapped tensors, or the tensors of a
    /// backend.
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

    /// The payload of a wrapper, if it has type `T`.
    pub fn payload<T: Any>(&self) -> Option<&T> {
        self.0.payload.as_deref()?.downcast_ref()
    }

    /// Whether this is not a wrapper.
    pub(crate) fn payload_is_none(&self) -> bool {
        self.0.payload.is_none()
    }

    /// A view of this tensor: a tensor over `array` with the same dispatch keys and version counter.
    pub(crate) fn view_with(&self, array: Array) -> Tensor {
        let Inner { keys, device, version, .. } = &*self.0;
        Tensor(Shared::new(Inner { version: version.clone(), ..Inner::new(array, *keys, *device) }))
    }

    /// A new handle of the same elements, without history. A trace sees two tensors. Both share the version counter.
    pub(crate) fn fresh_handle(&self) -> Tensor {
        self.derived(|_| {})
    }

    /// A new handle of the same elements, without history. A trace sees the same tensor.
    pub(crate) fn snapshot(&self) -> Tensor {
        self.derived(|inner| inner.id = self.0.id)
    }

    /// A new handle of the same elements, without history and with its own version counter.
    pub(crate) fn with_own_version(&self) -> Tensor {
        self.derived(|inner| inner.version = Some(Arc::default()))
    }

    /// A new handle of the same elements that is an inference tensor.
    pub(crate) fn as_inference(&self) -> Tensor {
        self.derived(|inner| inner.keys = inner.keys - AUTOGRAD_AND_INPLACE_KEYS)
    }

    /// A new handle of the same elements that is an inference tensor if this one is none, and none if it is one.
    pub(crate) fn with_other_inference(&self) -> Tensor {
        match self.0.keys.has(DispatchKey::ADInplaceOrView) {
            true => self.as_inference(),
            false => self
                .derived(|inner| inner.keys = inner.keys | (all_device_keys(inner.device) & AUTOGRAD_AND_INPLACE_KEYS)),
        }
    }

    /// The same tensor, or a new handle that is as little or as much an inference tensor as `other`.
    pub(crate) fn with_inference_of(self, other: &Tensor) -> Tensor {
        let is_normal = |tensor: &Tensor| tensor.0.keys.has(DispatchKey::ADInplaceOrView);
        if is_normal(&self) == is_normal(other) { self } else { self.with_other_inference() }
    }

    /// The same tensor, marked as a view.
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

    /// The slot for the autograd state.
    #[inline]
    pub(crate) fn autograd_slot(&self) -> &OnceLock<Box<dyn Any + Send + Sync>> {
        &self.0.autograd
    }

    /// Where this view comes from, if autograd tracks it.
    pub(crate) fn view_of(&self) -> Option<&ViewOf> {
        self.0.view.as_deref()
    }

    /// The version: how often this tensor, or a tensor that shares its elements, was written to.
    pub fn version(&self) -> u64 {
        self.version_counter().load(Ordering::Acquire)
    }

    pub(crate) fn version_counter(&self) -> &AtomicU64 {
        let wrapped = || self.pairs().or_else(|| observer().filter(|_| !self.payload_is_none())?.physical(self));
        match (&self.0.version, wrapped()) {
            (Some(own), _) => own,
            (None, Some(physical)) => physical.version_counter(),
            (None, None) => self.array().storage().version(),
        }
    }

    /// Whether the tensor has elements in memory, unlike meta tensors and wrappers. A complex tensor has them if its
    /// parts do.
    pub fn has_data(&self) -> bool {
        self.as_real().array().device().kind != DeviceKind::Meta
    }

    /// The array of the tensor.
    #[inline]
    pub fn array(&self) -> &Array {
        self.0.filled.get().map_or(&self.0.array, |filled| filled)
    }

    /// The storage, mutably, if no other handle leads to it.
    pub(crate) fn only_storage(&mut self) -> Option<&mut Storage> {
        let inner = self.0.get_mut()?;
        match inner.filled.get_mut() {
            Some(filled) => filled.storage.get_mut(),
            None => inner.array.storage.get_mut(),
        }
    }

    /// Gives a handle without bytes the elements in `storage`. All clones of the handle get them. A handle is filled at
    /// most once.
    ///
    /// # Errors
    /// If the storage is too short.
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

    /// Sizes and strides, which tensors share.
    #[inline]
    pub(crate) fn shared_layout(&self) -> &SharedLayout {
        &self.0.array.layout
    }

    /// Strides in elements.
    pub fn strides(&self) -> &[usize] {
        &self.0.array.layout.strides
    }

    /// The position of the first element in the storage, in elements.
    pub fn storage_offset(&self) -> usize {
        match self.pairs() {
            Some(pairs) => pairs.storage_offset() / 2,
            None => observer::memory_start(self),
        }
    }

    /// The number of dimensions.
    pub fn dim(&self) -> usize {
        self.sizes().len()
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.0.array.layout.numel()
    }

    /// Whether the elements are dense and row-major.
    pub fn is_contiguous(&self) -> bool {
        self.0.array.layout.is_contiguous()
    }

    /// The device of the elements.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// The dispatch keys of this tensor.
    #[inline]
    pub fn key_set(&self) -> KeySet {
        self.0.keys
    }

    /// The plain number that the tensor stands for, if any.
    pub fn as_number(&self) -> Option<Scalar> {
        self.0.number
    }

    /// Dtype, sizes and wrapped-number flag, as type inference takes them.
    pub fn ty(&self) -> TensorType {
        TensorType { number: self.0.number.is_some(), ..self.0.array.ty() }
    }

    /// Whether both tensors share one storage.
    pub fn is_alias_of(&self, other: &Tensor) -> bool {
        let (one, other) = (self.as_real(), other.as_real());
        observer()
            .and_then(|observer| observer.relates(Relation::Alias, one, other))
            .unwrap_or_else(|| one.has_storage_of(other))
    }

    /// Like [`Tensor::is_alias_of`], but records no guard while tracing.
    pub(crate) fn has_storage_of(&self, other: &Tensor) -> bool {
        Shared::ptr_eq(self.as_real().array().storage(), other.as_real().array().storage())
    }

    /// The address of its storage, which is equal for tensors that share one.
    pub(crate) fn storage_address(&self) -> usize {
        self.as_real().array().storage().as_ptr().addr()
    }

    /// Whether a write to one tensor may change the other.
    pub(crate) fn shares(&self, other: &Tensor) -> bool {
        self.has_storage_of(other) && self.numel() > 0 && other.numel() > 0
    }

    /// Whether both are clones of the same handle. A complex tensor is no more than its pairs, so two are the same if
    /// these are.
    pub fn is_same(&self, other: &Tensor) -> bool {
        let (one, other) = match (self.pairs(), other.pairs()) {
            (Some(one), Some(other)) => (one, other),
            (None, _) | (_, None) => (self, other),
        };
        observer()
            .and_then(|observer| observer.relates(Relation::Same, one, other))
            .unwrap_or_else(|| one.is_handle_of(other))
    }

    /// Like [`Tensor::is_same`], but records no guard while tracing.
    pub(crate) fn is_handle_of(&self, other: &Tensor) -> bool {
        Shared::ptr_eq(&self.0, &other.0)
    }

    /// Whether the handle has other clones.
    pub(crate) fn has_other_handles(&self) -> bool {
        self.0.has_others()
    }

    /// The number of clones of the handle, this one among them.
    pub(crate) fn n_handles(&self) -> usize {
        self.0.n_strong()
    }

    /// A number that identifies the tensor in this process. Clones of a handle share it.
    pub fn id(&self) -> u64 {
        self.0.id
    }
}

/// The keys of a dense tensor on a device, with its autograd and autocast keys. In inference mode it has no autograd
/// keys.
#[inline]
fn device_keys(device: Device) -> KeySet {
    let all = all_device_keys(device);
    if is_inference_mode() { all - AUTOGRAD_AND_INPLACE_KEYS } else { all }
}

/// The same whatever the mode.
fn all_device_keys(device: Device) -> KeySet {
    use DispatchKey as K;
    const CPU: KeySet = KeySet::from_keys(&[K::CPU, K::AutogradCPU, K::ADInplaceOrView, K::AutocastCPU]);
    const CUDA: KeySet = KeySet::from_keys(&[K::CUDA, K::AutogradCUDA, K::ADInplaceOrView, K::AutocastCUDA]);
    const META: KeySet = KeySet::from_keys(&[K::Meta, K::AutogradMeta, K::ADInplaceOrView]);
    const PRIVATE: KeySet =
        KeySet::from_keys(&[K::PrivateUse1, K::AutogradPrivateUse1, K::ADInplaceOrView, K::AutocastPrivateUse1]);
    match device.kind {
        DeviceKind::Cpu => CPU,
        DeviceKind::Cuda => CUDA,
        DeviceKind::Meta => META,
        DeviceKind::PrivateUse1 => PRIVATE,
    }
}
