#![allow(unsafe_code, reason = "calls the CUDA driver")]
//! The CUDA driver as owned values: contexts, streams, events, memory, modules.
//!
//! Every value keeps its context alive and frees its handle when it is dropped, so a handle is valid while a value has
//! it. A call first makes its context the thread's current one, because another library on the thread may have changed
//! it. Frequent calls on a handle skip that if we set the context last. If another context is current, the driver
//! rejects the handle, and the call is repeated. A [`Context`] exists only once the driver was found, so no call aborts
//! the program.
//!
//! The error of a kernel is returned by whatever call notices it. Addresses are made here and passed out in [`Memory`].
//! Code that passes one back ([`Copy`], launches) has to say why it is valid.

use super::faults::{Faults, Records};
use crate::error::{Error, Result};
use cudarc::driver::sys::{self, CUresult};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_void};
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Turns a failed call into an error that names it and the device.
fn check(code: CUresult, call: &str, device: u16) -> Result<()> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failure(code, call, device)) }
}

#[cold]
fn failure(code: CUresult, call: &str, device: u16) -> Error {
    let mut text = std::ptr::null();
    // SAFETY: the driver stores the address of a static string of its own.
    let name = unsafe {
        match sys::cuGetErrorName(code, &mut text) {
            CUresult::CUDA_SUCCESS if !text.is_null() => CStr::from_ptr(text).to_string_lossy().into_owned(),
            _ => format!("error {}", code as u32),
        }
    };
    let asynchronous =
        "a kernel started before may have failed: its error is reported asynchronously, and the device stays unusable";
    let hint = match code {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => "free tensors, or use smaller ones",
        CUresult::CUDA_ERROR_NO_DEVICE | CUresult::CUDA_ERROR_STUB_LIBRARY => {
            "there is a driver but no GPU; use the cpu"
        }
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
        | CUresult::CUDA_ERROR_LAUNCH_FAILED
        | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
        | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION => asynchronous,
        _ => "see the driver's documentation; tensors of other devices are untouched",
    };
    Error::Device { op: call.into(), what: format!("{name} on cuda:{device}"), hint: hint.into() }
}

/// The number of devices; the driver was found.
pub(super) fn n_devices() -> Result<u16> {
    let mut count = 0;
    // SAFETY: plain calls; the results have places.
    unsafe {
        check(sys::cuInit(0), "cuInit", 0)?;
        check(sys::cuDeviceGetCount(&mut count), "cuDeviceGetCount", 0)?;
    }
    Ok(u16::try_from(count).unwrap_or(u16::MAX))
}

thread_local! {
    /// The context that we made the thread's current one last. Another library may have set another one since.
    static LAST_SET: Cell<usize> = const { Cell::new(0) };
}

/// A device's primary context, retained for the whole process.
pub(super) struct Context {
    raw: sys::CUcontext,
    /// The number of its device.
    pub(super) index: u16,
    /// Compute capability.
    pub(super) capability: (u32, u32),
}

// SAFETY: the driver's functions may be called from any thread; a context is a handle that they take.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the context of a device below [`n_devices`].
    pub(super) fn new(index: u16) -> Result<Context> {
        let (mut device, mut raw) = (0, std::ptr::null_mut());
        let mut capability = [0; 2];
        use sys::CUdevice_attribute_enum as Attribute;
        let attributes = [
            Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        ];
        // SAFETY: plain calls; the results have places.
        unsafe {
            check(sys::cuDeviceGet(&mut device, index.into()), "cuDeviceGet", index)?;
            for (place, attribute) in capability.iter_mut().zip(attributes) {
                check(sys::cuDeviceGetAttribute(place, attribute, device), "cuDeviceGetAttribute", index)?;
            }
            check(sys::cuDevicePrimaryCtxRetain(&mut raw, device), "cuDevicePrimaryCtxRetain", index)?;
        }
        Ok(Context { raw, index, capability: (capability[0] as u32, capability[1] as u32) })
    }

    /// Makes it the thread's current context.
    pub(super) fn enter(&self) -> Result<()> {
        // SAFETY: the context is retained for the whole process.
        check(unsafe { sys::cuCtxSetCurrent(self.raw) }, "cuCtxSetCurrent", self.index)?;
        LAST_SET.set(self.raw.addr());
        Ok(())
    }

    /// Calls the driver with a handle of this context. The call has no effect if the driver rejects the handle.
    pub(super) fn call_by_handle(&self, name: &str, mut call: impl FnMut() -> CUresult) -> Result<()> {
        self.try_by_handle(&mut call).and_then(|code| check(code, name, self.index))
    }

    fn try_by_handle(&self, mut call: impl FnMut() -> CUresult) -> Result<CUresult> {
        if LAST_SET.get() == self.raw.addr() {
            match call() {
                CUresult::CUDA_ERROR_INVALID_CONTEXT | CUresult::CUDA_ERROR_INVALID_HANDLE => {}
                code => return Ok(code),
            }
        }
        self.enter()?;
        Ok(call())
    }

    /// Calls the driver in this context.
    pub(super) fn call(&self, name: &str, call: impl FnOnce() -> CUresult) -> Result<()> {
        self.enter()?;
        check(call(), name, self.index)
    }
}

/// Handles that any thread may use.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident($raw:ty) by $destroy:path $(, with $field:ident: $ty:ty)?;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name {
            raw: $raw,
            context: Arc<Context>,
            $(pub(super) $field: $ty,)?
        }

        // SAFETY: the driver's functions may be called from any thread; this is a handle that they take.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                // A failure in a destructor cannot be handled; the driver reports it again at the next call.
                if self.context.enter().is_ok() {
                    // SAFETY: the handle was made by `new`, and nothing else has it.
                    unsafe { $destroy(self.raw) };
                }
            }
        }
    )*};
}

handles! {
    /// A stream that does not wait for the default stream.
    Queue(sys::CUstream) by sys::cuStreamDestroy_v2, with faults: Arc<Faults>;
    /// A point in the work of a stream.
    Mark(sys::CUevent) by sys::cuEventDestroy_v2;
    /// Memory of a device.
    Memory(sys::CUdeviceptr) by sys::cuMemFree_v2;
    /// Loaded code.
    Module(sys::CUmodule) by sys::cuModuleUnload;
}

impl Queue {
    pub(super) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn new(context: &Arc<Context>, records: &Arc<Records>) -> Result<Arc<Queue>> {
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the result has a place.
        context.call("cuStreamCreate", || unsafe { sys::cuStreamCreate(&mut raw, flags) })?;
        let queue = |queue: &Weak<Queue>| {
            let faults = Arc::new(Faults::new(records.clone(), queue.clone()));
            Queue { raw, context: context.clone(), faults }
        };
        Ok(Arc::new_cyclic(queue))
    }

    /// Records the current end of its work.
    pub(super) fn end(&self) -> Result<Mark> {
        let mark = Mark::new(&self.context)?;
        mark.record(self)?;
        Ok(mark)
    }

    /// Orders work given to it from now on after the mark.
    pub(super) fn wait_for(&self, mark: &Mark) -> Result<()> {
        // SAFETY: both handles are alive.
        self.context.call_by_handle("cuStreamWaitEvent", || unsafe { sys::cuStreamWaitEvent(self.raw, mark.raw, 0) })
    }
}

impl Mark {
    pub(super) fn new(context: &Arc<Context>) -> Result<Mark> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the result has a place.
        context.call("cuEventCreate", || unsafe { sys::cuEventCreate(&mut raw, 0) })?;
        Ok(Mark { raw, context: context.clone() })
    }

    /// Moves it to the end of a stream's work.
    pub(super) fn record(&self, queue: &Queue) -> Result<()> {
        // SAFETY: both handles are alive.
        self.context.call_by_handle("cuEventRecord", || unsafe { sys::cuEventRecord(self.raw, queue.raw) })
    }

    pub(super) fn is_reached(&self) -> Result<bool> {
        // SAFETY: the handle is alive.
        match self.context.try_by_handle(|| unsafe { sys::cuEventQuery(self.raw) })? {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check(code, "cuEventQuery", self.context.index).map(|()| true),
        }
    }

    pub(super) fn wait(&self) -> Result<()> {
        // SAFETY: the handle is alive.
        self.context.call_by_handle("cuEventSynchronize", || unsafe { sys::cuEventSynchronize(self.raw) })
    }

    /// The time to a later mark; both are reached.
    pub(super) fn time_to(&self, later: &Mark) -> Result<Duration> {
        let mut milliseconds = 0.0f32;
        self.context.call("cuEventElapsedTime", || {
            // SAFETY: both handles are alive.
            unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, self.raw, later.raw) }
        })?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Memory {
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Memory> {
        let mut raw = 0;
        // SAFETY: the result has a place.
        context.call("cuMemAlloc", || unsafe { sys::cuMemAlloc_v2(&mut raw, bytes) })?;
        Ok(Memory { raw, context: context.clone() })
    }

    /// Its address.
    pub(super) fn address(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.raw as usize)
    }
}

/// Words in host memory that kernels write while the host polls them.
pub(super) struct Watched {
    start: *mut c_void,
    context: Arc<Context>,
}

// SAFETY: it owns its memory, which is accessed through atomics only.
unsafe impl Send for Watched {}
// SAFETY: as above.
unsafe impl Sync for Watched {}

impl Watched {
    /// The number of words.
    pub(super) const WORDS: usize = 512;

    pub(super) fn new(context: &Arc<Context>) -> Result<Watched> {
        let mut start = std::ptr::null_mut();
        let bytes = 8 * Watched::WORDS;
        // SAFETY: the result has a place.
        context.call("cuMemHostAlloc", || unsafe { sys::cuMemHostAlloc(&mut start, bytes, 0) })?;
        // SAFETY: that many bytes were just allocated.
        unsafe { std::ptr::write_bytes(start.cast::<u8>(), 0, bytes) };
        Ok(Watched { start, context: context.clone() })
    }

    /// The words; kernels use the same addresses.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: that many words were allocated, aligned for any type, and set to zero; a device writes whole words.
        unsafe { std::slice::from_raw_parts(self.start.cast(), Watched::WORDS) }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: it was allocated by `new`; its users kept it until kernels with its addresses were done.
            unsafe { sys::cuMemFreeHost(self.start) };
        }
    }
}

/// Pinned host memory, which a device reads and writes directly.
pub(super) struct Pinned {
    start: *mut c_void,
    capacity: usize,
    /// Recorded after the last copy.
    mark: Mark,
    /// Whether that copy may be in flight.
    is_in_flight: bool,
    context: Arc<Context>,
}

// SAFETY: it owns its memory, which any thread may use.
unsafe impl Send for Pinned {}

impl Pinned {
    pub(super) fn new(context: &Arc<Context>, capacity: usize) -> Result<Pinned> {
        let (mark, mut start) = (Mark::new(context)?, std::ptr::null_mut());
        // SAFETY: the result has a place.
        context.call("cuMemHostAlloc", || unsafe { sys::cuMemHostAlloc(&mut start, capacity, 0) })?;
        let pinned = Pinned { start, capacity, mark, is_in_flight: false, context: context.clone() };
        // SAFETY: that many bytes were just allocated; a slice of them must not be uninitialised.
        unsafe { std::ptr::write_bytes(start.cast::<u8>(), 0, capacity) };
        Ok(pinned)
    }

    /// Copies bytes, at most as many as fit, to an address, in the order of a stream. `bytes` are copied when this
    /// returns.
    ///
    /// # Safety
    /// As many bytes at `address` are memory of the stream's device, and live until the stream has passed this point.
    pub(super) unsafe fn send(&mut self, queue: &Queue, bytes: &[u8], address: u64) -> Result<()> {
        assert!(bytes.len() <= self.capacity, "a copy is cut into pieces that fit");
        self.settle()?;
        // SAFETY: the memory is large enough, and no copy uses it, since the last one has finished.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.cast(), bytes.len()) };
        let (start, n_bytes) = (self.start, bytes.len());
        queue.context.enter()?;
        // SAFETY: the caller guarantees the target; the source does not change until the mark below is reached.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(address, start, n_bytes, queue.raw) };
        check(code, "cuMemcpyHtoDAsync", queue.context.index)?;
        self.mark(queue)
    }

    /// Starts a copy of bytes at an address, in the order of a stream; see [`Pinned::take`].
    ///
    /// # Safety
    /// As for [`Pinned::send`].
    pub(super) unsafe fn start_fetch(&mut self, queue: &Queue, address: u64, bytes: usize) -> Result<()> {
        assert!(bytes <= self.capacity, "a copy is cut into pieces that fit");
        self.settle()?;
        let start = self.start;
        queue.context.enter()?;
        // SAFETY: the caller guarantees the source; the target is large enough, and nothing reads it before the mark is
        // reached.
        let code = unsafe { sys::cuMemcpyDtoHAsync_v2(start, address, bytes, queue.raw) };
        check(code, "cuMemcpyDtoHAsync", queue.context.index)?;
        self.mark(queue)
    }

    /// Waits for the copy that was started, and copies it to `bytes`.
    pub(super) fn take(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.settle()?;
        assert!(bytes.len() <= self.capacity, "a copy is cut into pieces that fit");
        // SAFETY: the memory is large enough, initialised, and no copy is in flight.
        unsafe { std::ptr::copy_nonoverlapping(self.start.cast(), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn mark(&mut self, queue: &Queue) -> Result<()> {
        self.is_in_flight = true;
        self.mark.record(queue)
    }

    /// Waits for the copy in flight.
    fn settle(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_in_flight) { self.mark.wait() } else { Ok(()) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A copy may be in flight. If the device failed, it may still write to the memory, which is then leaked.
        if self.settle().is_ok() && self.context.enter().is_ok() {
            // SAFETY: it was allocated by `new`, and no copy uses it any more.
            unsafe { sys::cuMemFreeHost(self.start) };
        }
    }
}

impl Module {
    /// Loads a cubin.
    pub(super) fn new(context: &Arc<Context>, cubin: &[u8]) -> Result<Module> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: a cubin contains its own length; it came from NVRTC, or from disk with a matching checksum.
        context.call("cuModuleLoadData", || unsafe { sys::cuModuleLoadData(&mut raw, cubin.as_ptr().cast()) })?;
        Ok(Module { raw, context: context.clone() })
    }

    /// The function of that name, whose launches add `shared_bytes` of dynamic shared memory.
    ///
    /// # Errors
    /// If there is none, or the device has less shared memory.
    pub(crate) fn function(self: &Arc<Module>, name: &str, shared_bytes: u32) -> Result<Function> {
        let no_name = |_| Error::argument("cuModuleGetFunction", format!("{name:?} is no name"));
        let name = CString::new(name).map_err(no_name)?;
        let mut raw = std::ptr::null_mut();
        self.context.call("cuModuleGetFunction", || {
            // SAFETY: the module is alive and the name ends with a zero.
            unsafe { sys::cuModuleGetFunction(&mut raw, self.raw, name.as_ptr()) }
        })?;
        if shared_bytes > 0 {
            let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            self.context.call("cuFuncSetAttribute", || {
                // SAFETY: the function belongs to the module, which is alive.
                unsafe { sys::cuFuncSetAttribute(raw, attribute, shared_bytes as i32) }
            })?;
        }
        Ok(Function { raw, shared_bytes, module: self.clone() })
    }
}

/// A function of a module, which it keeps loaded.
pub(crate) struct Function {
    raw: sys::CUfunction,
    /// Dynamic shared memory of a launch, in bytes.
    pub(super) shared_bytes: u32,
    module: Arc<Module>,
}

// SAFETY: the driver's functions may be called from any thread; this is a handle that they take.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    pub(super) fn raw(&self) -> sys::CUfunction {
        self.raw
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.module.context
    }

    /// Launches it on a stream, with an argument buffer as its only parameter, passed by value.
    ///
    /// # Errors
    /// If the stream belongs to another device, or the driver rejects the launch.
    ///
    /// # Safety
    /// The function takes that many words. Every address in them is valid for what it does with it, and stays so until
    /// the stream has passed this point.
    pub(crate) unsafe fn start(&self, queue: &Queue, grid: u32, block: [u32; 2], argument: &[u64]) -> Result<()> {
        if !Arc::ptr_eq(&queue.context, &self.module.context) {
            let (own, other) = (self.module.context.index, queue.context.index);
            let what = format!("code of cuda:{own} was to run on a stream of cuda:{other}");
            return Err(Error::Device { op: "cuLaunchKernel".into(), what, hint: "load it there too".into() });
        }
        let mut arguments = [argument.as_ptr().cast::<c_void>().cast_mut()];
        // SAFETY: handles are alive, the driver copies the parameter before it returns, and the caller guarantees the
        // rest.
        self.module.context.call_by_handle("cuLaunchKernel", || unsafe {
            let nothing = std::ptr::null_mut();
            let arguments = arguments.as_mut_ptr();
            let ([x, y], shared) = (block, self.shared_bytes);
            sys::cuLaunchKernel(self.raw, grid, 1, 1, x, y, 1, shared, queue.raw, arguments, nothing)
        })
    }
}
