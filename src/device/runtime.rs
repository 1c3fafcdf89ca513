//! What a kind of device can do, and which kinds are there.
//!
//! A [`Runtime`] drives all devices of one kind: it counts them, makes streams, and marks points in their work. The
//! CPU has one built in, and the meta device shares it. CUDA has the one of [`super::cuda`] where a driver is found.
//! `PrivateUse1` has one while somebody keeps the [`Registration`] that [`register`] gives; one that is registered for CUDA
//! takes the place of the built-in one. Streams, events, guards and allocators are written against this trait
//! alone and name no kind of device.
//!
//! A *point* is a moment in the work of one stream: it is reached when everything given to the stream before it is
//! done. Points are numbers of the runtime; whoever marked one forgets it once.

use super::allocator::{Allocator, HOST};
use super::{Block, Device, DeviceKind, cuda};
use crate::error::{Error, Result};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Drives the devices of one kind. `device` is always below [`Runtime::device_count`].
pub trait Runtime: Send + Sync {
    /// How many devices there are.
    fn device_count(&self) -> u16;

    /// Told when `device` becomes the current one of the calling thread.
    fn make_current(&self, device: u16) -> Result<()> {
        let _ = device;
        Ok(())
    }

    /// A new stream of the device; 0 is the one that is always there and never made.
    fn create_stream(&self, device: u16) -> Result<u64>;

    /// The stream is not used any more; work already given to it still runs.
    fn destroy_stream(&self, device: u16, stream: u64);

    /// Marks the end of the work given to the stream so far.
    fn mark(&self, device: u16, stream: u64) -> Result<u64>;

    /// Whether the point is reached.
    fn is_reached(&self, device: u16, point: u64) -> Result<bool>;

    /// Returns when the point is reached.
    fn wait(&self, device: u16, point: u64) -> Result<()>;

    /// Work given to the stream from now on starts after the point, which may be one of another device.
    fn hold(&self, device: u16, stream: u64, point_device: u16, point: u64) -> Result<()>;

    /// The time between two points of one device that are both reached.
    fn time_between(&self, device: u16, from: u64, to: u64) -> Result<Duration>;

    /// The point is not asked about any more.
    fn forget(&self, device: u16, point: u64) {
        let _ = (device, point);
    }

    /// Where memory of the device comes from; host memory unless the runtime has its own.
    fn allocator(&self, device: u16) -> &dyn Allocator {
        let _ = device;
        &HOST
    }

    /// Copies bytes of the host to a block of the device's allocator, from the block's byte `at` on, in the order of the
    /// stream; `bytes` may be changed when this returns. Only asked for memory that the host cannot reach.
    ///
    /// # Errors
    /// If the runtime has no such copies, or the device failed.
    fn upload(&self, device: u16, stream: u64, bytes: &[u8], to: &Block, at: usize) -> Result<()> {
        let _ = (stream, bytes, to, at);
        Err(unreachable_memory(device))
    }

    /// Copies bytes of a block of the device's allocator, from the block's byte `at` on, to the host, in the order of the
    /// stream; they are there when this returns. Only asked for memory that the host cannot reach.
    ///
    /// # Errors
    /// If the runtime has no such copies, or the device failed.
    fn download(&self, device: u16, stream: u64, from: &Block, at: usize, bytes: &mut [u8]) -> Result<()> {
        let _ = (stream, from, at, bytes);
        Err(unreachable_memory(device))
    }
}

#[cold]
fn unreachable_memory(device: u16) -> Error {
    let what = format!("the host cannot reach the memory of device {device}, and its runtime copies nothing");
    Error::Device { op: "to".into(), what, hint: "copy it with an op of that device".into() }
}

/// Keeps a runtime registered; dropping it takes the runtime away. What already uses it keeps it alive.
#[must_use = "the runtime is registered only while this lives"]
pub struct Registration {
    slot: &'static Slot,
}

type Slot = RwLock<Option<Arc<dyn Runtime>>>;

static CUDA: Slot = RwLock::new(None);
static PRIVATE_USE_1: Slot = RwLock::new(None);

/// Makes `runtime` the one of a kind of device, until the registration is dropped.
///
/// # Errors
/// For the CPU and the meta device, which have theirs, and while another one is registered.
pub fn register(kind: DeviceKind, runtime: Arc<dyn Runtime>) -> Result<Registration> {
    let refuse = |what: String| Err(Error::Registration { what });
    let slot = match kind {
        DeviceKind::Cuda => &CUDA,
        DeviceKind::PrivateUse1 => &PRIVATE_USE_1,
        DeviceKind::Cpu | DeviceKind::Meta => return refuse(format!("the runtime of {kind} is built in")),
    };
    let mut place = slot.write().unwrap_or_else(PoisonError::into_inner);
    if place.is_some() {
        return refuse(format!("{kind} has a runtime already; drop its registration first"));
    }
    *place = Some(runtime);
    Ok(Registration { slot })
}

impl Drop for Registration {
    fn drop(&mut self) {
        let runtime = self.slot.write().unwrap_or_else(PoisonError::into_inner).take();
        // Its destructor may ask for runtimes, so the lock is free by now.
        drop(runtime);
    }
}

/// The runtime of a kind of device, if there is one.
pub(super) fn find(kind: DeviceKind) -> Option<Arc<dyn Runtime>> {
    need(kind).ok()
}

/// The runtime of a kind of device.
///
/// # Errors
/// Why there is none.
pub(super) fn need(kind: DeviceKind) -> Result<Arc<dyn Runtime>> {
    static HOST_RUNTIME: OnceLock<Arc<dyn Runtime>> = OnceLock::new();
    let slot = match kind {
        DeviceKind::Cpu | DeviceKind::Meta => return Ok(HOST_RUNTIME.get_or_init(|| Arc::new(Host)).clone()),
        DeviceKind::Cuda => &CUDA,
        DeviceKind::PrivateUse1 => &PRIVATE_USE_1,
    };
    let registered = slot.read().unwrap_or_else(PoisonError::into_inner).clone();
    match registered {
        Some(runtime) => Ok(runtime),
        None if kind == DeviceKind::Cuda => cuda::runtime(),
        None => Err(Error::Device {
            op: "device".into(),
            what: format!("there is no {kind} here"),
            hint: "use the cpu, or register a runtime for this kind of device".into(),
        }),
    }
}

/// How many devices of a kind there are; none of a kind without a runtime.
pub fn device_count(kind: DeviceKind) -> u16 {
    find(kind).map_or(0, |runtime| runtime.device_count())
}

/// The runtime of a device and the device's number, which is checked.
pub(super) fn of(device: Device, current: u16) -> Result<(Arc<dyn Runtime>, u16)> {
    let fail = |what: String, hint: &str| Error::Device { op: "device".into(), what, hint: hint.into() };
    let runtime = need(device.kind)?;
    let (index, count) = (device.index.unwrap_or(current), runtime.device_count());
    if index >= count {
        return Err(fail(format!("{device} does not exist; there are {count}"), "use a smaller number"));
    }
    Ok((runtime, index))
}

/// The CPU: work is done when the call that asked for it returns, so every point is reached at once. A point is the
/// time when it was marked.
struct Host;

impl Runtime for Host {
    fn device_count(&self) -> u16 {
        1
    }

    fn create_stream(&self, _: u16) -> Result<u64> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    fn destroy_stream(&self, _: u16, _: u64) {}

    fn mark(&self, _: u16, _: u64) -> Result<u64> {
        static START: OnceLock<Instant> = OnceLock::new();
        Ok(START.get_or_init(Instant::now).elapsed().as_nanos() as u64)
    }

    fn is_reached(&self, _: u16, _: u64) -> Result<bool> {
        Ok(true)
    }

    fn wait(&self, _: u16, _: u64) -> Result<()> {
        Ok(())
    }

    fn hold(&self, _: u16, _: u64, _: u16, _: u64) -> Result<()> {
        Ok(())
    }

    fn time_between(&self, _: u16, from: u64, to: u64) -> Result<Duration> {
        Ok(Duration::from_nanos(to.saturating_sub(from)))
    }
}
