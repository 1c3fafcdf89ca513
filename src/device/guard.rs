//! Guards, which change the current device or stream of a thread and restore the previous one.
//!
//! A guard belongs to the thread that made it. Guards are dropped in the opposite order of their making.

use super::Device;
use super::current::{current_device, current_index, current_stream, set_device, set_stream};
use super::runtime;
use super::stream::Stream;
use crate::error::Result;
use std::marker::PhantomData;
use std::rc::Rc;

/// Keeps a device current; made by [`DeviceGuard::new`].
#[must_use = "the device is current only while the guard lives"]
pub struct DeviceGuard {
    original: Device,
    current: Device,
    not_send: PhantomData<Rc<()>>,
}

impl DeviceGuard {
    /// Makes a device the current one of its kind.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn new(device: Device) -> Result<DeviceGuard> {
        let original = current_device(device.kind)?;
        let current = switch_to(device)?;
        Ok(DeviceGuard { original, current, not_send: PhantomData })
    }

    /// Makes another device of the same kind current. The guard still restores the device from before the guard.
    ///
    /// # Errors
    /// If there is no such device, or it is of another kind; then nothing changes.
    pub fn set_device(&mut self, device: Device) -> Result<()> {
        if device.kind != self.original.kind {
            let what = format!("the guard keeps a {} device; {device} needs a guard of its own", self.original.kind);
            return Err(crate::Error::argument("set_device", what));
        }
        self.current = switch_to(device)?;
        Ok(())
    }

    /// The device that was current before.
    pub fn original_device(&self) -> Device {
        self.original
    }

    /// The device that the guard made current last.
    pub fn current_device(&self) -> Device {
        self.current
    }
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        // A failing runtime cannot be handled in a destructor, but the thread's own record is restored.
        if switch_to(self.original).is_err() {
            set_device(self.original.kind, self.original.index.unwrap_or(0));
        }
    }
}

fn switch_to(device: Device) -> Result<Device> {
    let (runtime, index) = runtime::of(device, current_index(device.kind))?;
    if index != current_index(device.kind) {
        runtime.make_current(index)?;
        set_device(device.kind, index);
    }
    Ok(Device { kind: device.kind, index: Some(index) })
}

/// Keeps a stream, and its device, current; made by [`StreamGuard::new`].
#[must_use = "the stream is current only while the guard lives"]
pub struct StreamGuard {
    current: Stream,
    /// What was current on the device of `current`.
    original: Stream,
    // Restored after the stream, by its own destructor.
    device: DeviceGuard,
}

impl StreamGuard {
    /// Makes a stream the current one of its device, and its device the current one.
    ///
    /// # Errors
    /// If the device does not exist any more.
    pub fn new(stream: &Stream) -> Result<StreamGuard> {
        let device = DeviceGuard::new(stream.device())?;
        let original = current_stream(stream.device())?;
        set_stream(stream);
        Ok(StreamGuard { current: stream.clone(), original, device })
    }

    /// Makes another stream current. If it belongs to another device, that device becomes current, and the first one
    /// gets its previous stream back.
    ///
    /// # Errors
    /// If the device does not exist any more, or is of another kind; then nothing changes.
    pub fn set_stream(&mut self, stream: &Stream) -> Result<()> {
        if stream.device() != self.current.device() {
            let original = current_stream(stream.device())?;
            self.device.set_device(stream.device())?;
            set_stream(&self.original);
            self.original = original;
        }
        set_stream(stream);
        self.current = stream.clone();
        Ok(())
    }

    /// The stream that the guard made current last.
    pub fn current_stream(&self) -> &Stream {
        &self.current
    }

    /// The device that was current before.
    pub fn original_device(&self) -> Device {
        self.device.original_device()
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        set_stream(&self.original);
    }
}
