//! The runtimes of the kinds of devices.
//!
//! The CPU has a built-in runtime, and the meta device shares it. CUDA has that of [`super::super::cuda`] where a
//! driver is found. `PrivateUse1` has one while a [`Registration`] of [`register`] lives. A runtime that is registered
//! for CUDA replaces the built-in one.

use super::host::Host;
use super::interface::Runtime;
use crate::device::{Device, DeviceKind, cuda};
use crate::error::{Error, Result};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// Keeps a runtime registered, until it is dropped. Devices in use keep the runtime alive.
#[must_use = "the runtime is registered only while this lives"]
pub struct Registration {
    slot: &'static Slot,
}

type Slot = RwLock<Option<Arc<dyn Runtime>>>;

static CUDA: Slot = RwLock::new(None);
static PRIVATE_USE_1: Slot = RwLock::new(None);

/// Registers the runtime of a kind of device, until the registration is dropped.
///
/// # Errors
/// For the CPU and the meta device, whose runtimes are built in, and while another one is registered.
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
pub(in crate::device) fn find(kind: DeviceKind) -> Option<Arc<dyn Runtime>> {
    need(kind).ok()
}

/// The runtime of a kind of device.
///
/// # Errors
/// If there is none, and why.
pub(in crate::device) fn need(kind: DeviceKind) -> Result<Arc<dyn Runtime>> {
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

/// The number of devices of a kind; 0 without a runtime.
pub fn device_count(kind: DeviceKind) -> u16 {
    find(kind).map_or(0, |runtime| runtime.device_count())
}

/// The runtime of a device, and the device's index, which is checked.
pub(in crate::device) fn of(device: Device, current: u16) -> Result<(Arc<dyn Runtime>, u16)> {
    let fail = |what: String, hint: &str| Error::Device { op: "device".into(), what, hint: hint.into() };
    let runtime = need(device.kind)?;
    let (index, count) = (device.index.unwrap_or(current), runtime.device_count());
    if index >= count {
        return Err(fail(format!("{device} does not exist; there are {count}"), "use a smaller number"));
    }
    Ok((runtime, index))
}
