//! Streams: queues of work of a device.
//!
//! Work given to one stream runs in order; streams of a device do not wait for each other unless told to, by an
//! [`Event`]. Every device has a default stream. Each thread has a current stream per device, changed by
//! [`StreamGuard`](super::StreamGuard). On the CPU work is done when the call returns, so all its streams are idle.

use super::event::Event;
use super::guard;
use super::runtime::{self, Runtime};
use super::{Device, DeviceKind};
use crate::error::Result;
use std::fmt;
use std::sync::Arc;

/// A queue of work of one device. Clones are the same stream.
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    runtime: Arc<dyn Runtime>,
    kind: DeviceKind,
    device: u16,
    id: u64,
}

impl Stream {
    /// A new stream of a device.
    ///
    /// # Errors
    /// If there is no such device, or it has no more streams.
    pub fn new(device: Device) -> Result<Stream> {
        let (runtime, index) = runtime::of(device, guard::current_index(device.kind))?;
        let id = runtime.create_stream(index)?;
        Ok(Stream(Arc::new(Inner { runtime, kind: device.kind, device: index, id })))
    }

    /// The stream that a device always has.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn default_of(device: Device) -> Result<Stream> {
        let (runtime, index) = runtime::of(device, guard::current_index(device.kind))?;
        Ok(Stream(Arc::new(Inner { runtime, kind: device.kind, device: index, id: 0 })))
    }

    /// The stream that this thread gives its work on a device to.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn current(device: Device) -> Result<Stream> {
        guard::current_stream(device)
    }

    /// The device, with its number.
    pub fn device(&self) -> Device {
        Device { kind: self.0.kind, index: Some(self.0.device) }
    }

    /// Its number among the streams of its device; 0 is the default stream.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Whether all work given to it is done.
    ///
    /// # Errors
    /// If the device failed.
    pub fn is_idle(&self) -> Result<bool> {
        self.record()?.is_complete()
    }

    /// Returns when all work given to it is done.
    ///
    /// # Errors
    /// If the device failed.
    pub fn synchronize(&self) -> Result<()> {
        self.record()?.synchronize()
    }

    /// An event recorded on it now.
    ///
    /// # Errors
    /// If the device failed.
    pub fn record(&self) -> Result<Event> {
        let event = Event::new();
        event.record(self)?;
        Ok(event)
    }

    /// Work given to this stream from now on starts after the event; see [`Event::block`].
    ///
    /// # Errors
    /// As [`Event::block`].
    pub fn wait(&self, event: &Event) -> Result<()> {
        event.block(self)
    }

    pub(super) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.0.runtime
    }

    pub(super) fn index(&self) -> u16 {
        self.0.device
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Stream) -> bool {
        self.device() == other.device() && self.id() == other.id()
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} on {})", self.id(), self.device())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.id != 0 {
            self.runtime.destroy_stream(self.device, self.id);
        }
    }
}
