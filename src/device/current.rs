//! The current device and the current streams of a thread.
//!
//! A thread starts on device 0 of every kind, with the default stream of every device. Guards change that
//! ([`DeviceGuard`](super::DeviceGuard), [`StreamGuard`](super::StreamGuard)). Streams are opened here, because a
//! device without an index is the current one.

use super::runtime;
use super::stream::Stream;
use super::{Device, DeviceKind};
use crate::error::Result;
use std::cell::{Cell, RefCell};

thread_local! {
    static DEVICES: Cell<[u16; DeviceKind::ALL.len()]> = const { Cell::new([0; DeviceKind::ALL.len()]) };
    /// Current streams that are not their device's default.
    static STREAMS: RefCell<Vec<Stream>> = const { RefCell::new(Vec::new()) };
}

/// The device of a kind that this thread works on, with its index.
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

pub(super) fn set_device(kind: DeviceKind, index: u16) {
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

pub(super) fn set_stream(stream: &Stream) {
    let old = STREAMS.with_borrow_mut(|streams| {
        let place = streams.iter().position(|other| other.device() == stream.device());
        let old = place.map(|place| streams.swap_remove(place));
        if stream.id() != 0 {
            streams.push(stream.clone());
        }
        old
    });
    // Its destructor may call back into this file.
    drop(old);
}

impl Stream {
    /// Creates a stream on a device.
    ///
    /// # Errors
    /// If there is no such device, or it cannot create more streams.
    pub fn new(device: Device) -> Result<Stream> {
        let (runtime, index) = runtime::of(device, current_index(device.kind))?;
        let id = runtime.create_stream(index)?;
        Ok(Stream::with_id(runtime, device.kind, index, id))
    }

    /// The default stream of a device.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn default_of(device: Device) -> Result<Stream> {
        let (runtime, index) = runtime::of(device, current_index(device.kind))?;
        Ok(Stream::with_id(runtime, device.kind, index, 0))
    }

    /// The stream of a device that this thread gives its work to.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn current(device: Device) -> Result<Stream> {
        current_stream(device)
    }
}
