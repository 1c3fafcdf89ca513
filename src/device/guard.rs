//! The current device and the current streams of a thread, and the guards that change them.
//!
//! A thread starts on device 0 of every kind with the default stream of every device. A guard belongs to the thread
//! that made it and puts back what it found; guards end in the opposite order of their making.

use super::runtime;
use super::stream::Stream;
use super::{Device, DeviceKind};
use crate::error::Result;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

thread_local! {
    static DEVICES: Cell<[u16; DeviceKind::ALL.len()]> = const { Cell::new([0; DeviceKind::ALL.len()]) };
    /// Streams that are current without being their device's default.
    static STREAMS: RefCell<Vec<Stream>> = const { RefCell::new(Vec::new()) };
}

/// The device of a kind that this thread works on, with its number.
///
/// # Errors
/// If there is no device of that kind.
pub fn current_device(kind: DeviceKind) -> Result<Device> {
    let (_, index) = runtime::of(Device::of(kind), current_index(kind))?;
    Ok(Device { kind, index: Some(index) })
}

pub(super) fn current_index(kind: DeviceKind) -> u16 {
    DEVICES.get()[kind as usize]
}

fn set_device(kind: DeviceKind, index: u16) {
    let mut devices = DEVICES.get();
    devices[kind as usize] = index;
    DEVICES.set(devices);
}

pub(super) fn current_stream(device: Device) -> Result<Stream> {
    let index = device.index.unwrap_or(current_index(device.kind));
    let device = Device { index: Some(index), ..device };
    let found = STREAMS.with_borrow(|streams| streams.iter().find(|stream| stream.device() == device).cloned());
    found.map_or_else(|| Stream::default_of(device), Ok)
}

fn set_stream(stream: &Stream) {
    let old = STREAMS.with_borrow_mut(|streams| {
        let place = streams.iter().position(|other| other.device() == stream.device());
        let old = place.map(|place| streams.swap_remove(place));
        if stream.id() != 0 {
            streams.push(stream.clone());
        }
        old
    });
    // Its destructor may come back here.
    drop(old);
}

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

    /// Makes another device of the same kind the current one; the guard still puts back what it found first.
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
        // A runtime that is gone or fails now cannot be helped from a destructor; the thread's own record is put back.
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
    // Put back after the stream, by its own destructor.
    device: DeviceGuard,
}

impl StreamGuard {
    /// Makes a stream the current one of its device, and its device the current one.
    ///
    /// # Errors
    /// If the device is gone.
    pub fn new(stream: &Stream) -> Result<StreamGuard> {
        let device = DeviceGuard::new(stream.device())?;
        let original = current_stream(stream.device())?;
        set_stream(stream);
        Ok(StreamGuard { current: stream.clone(), original, device })
    }

    /// Makes another stream current. If it is one of another device, that device becomes current, and the first one
    /// gets the stream back that it had before the guard.
    ///
    /// # Errors
    /// If the device is gone or of another kind; then nothing changes.
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
