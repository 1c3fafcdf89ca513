//! Streams: queues of a device's work.
//!
//! Work given to one stream runs in order. Streams of a device do not wait for each other, unless an
//! [`Event`](super::Event) makes them. Every device has a default stream. Each thread has a current stream per device,
//! which [`StreamGuard`](super::StreamGuard) changes. On the CPU, work is done when the call returns, so all its
//! streams are idle.
//!
//! A stream is only a name here. `current` opens streams, and `event` waits for them.

use super::runtime::Runtime;
use super::{Device, DeviceKind};
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
    /// The stream `id` of a device. Dropping the last clone destroys it, unless it is the default stream, 0.
    pub(super) fn with_id(runtime: Arc<dyn Runtime>, kind: DeviceKind, device: u16, id: u64) -> Stream {
        Stream(Arc::new(Inner { runtime, kind, device, id }))
    }

    /// The device, with its number.
    pub fn device(&self) -> Device {
        Device { kind: self.0.kind, index: Some(self.0.device) }
    }

    /// Its number among the streams of its device; 0 is the default stream.
    pub fn id(&self) -> u64 {
        self.0.id
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
