//! Events: points in the work of streams, to wait for, and to measure the time between.
//!
//! An event is the point where it was recorded last. Recording it again moves it, but what already waits for the old
//! point still does. An event that was never recorded is complete, and waiting for it does nothing.

use super::runtime::Runtime;
use super::stream::Stream;
use super::{Device, DeviceKind};
use crate::error::{Error, Result};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A point in the work of a stream. Clones are the same event.
#[derive(Clone, Default)]
pub struct Event(Arc<Mutex<Option<Arc<Point>>>>);

/// A recorded point, which the runtime forgets when it is dropped.
pub(super) struct Point {
    runtime: Arc<dyn Runtime>,
    kind: DeviceKind,
    device: u16,
    id: u64,
}

impl Event {
    /// An event that is not recorded yet.
    pub fn new() -> Event {
        Event::default()
    }

    /// Moves the event to the end of the work given to `stream` so far.
    ///
    /// # Errors
    /// If the device failed; then the event does not move.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let point = Arc::new(Point::mark(stream)?);
        let old = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(point);
        drop(old);
        Ok(())
    }

    /// Orders work given to `stream` from now on after this event. It does nothing if the event was never recorded.
    ///
    /// # Errors
    /// If the event belongs to another kind of device, or the device failed.
    pub fn block(&self, stream: &Stream) -> Result<()> {
        self.point().map_or(Ok(()), |point| point.hold(stream))
    }

    /// Whether the work before the event is done; true if it was never recorded.
    ///
    /// # Errors
    /// If the device failed.
    pub fn is_complete(&self) -> Result<bool> {
        self.point().map_or(Ok(true), |point| point.is_reached())
    }

    /// Waits until the work before the event is done. It returns at once if the event was never recorded.
    ///
    /// # Errors
    /// If the device failed.
    pub fn synchronize(&self) -> Result<()> {
        self.point().map_or(Ok(()), |point| point.wait())
    }

    /// The device where it was recorded last.
    pub fn device(&self) -> Option<Device> {
        self.point().map(|point| point.device())
    }

    /// The time from this event to a later one; both must be complete.
    ///
    /// # Errors
    /// If one of them is not recorded or not complete, or they are on different devices.
    pub fn elapsed(&self, end: &Event) -> Result<Duration> {
        let fail = |what: &str| Err(Error::argument("elapsed", what));
        let (Some(start), Some(end)) = (self.point(), end.point()) else {
            return fail("both events must have been recorded");
        };
        if start.device() != end.device() {
            return fail(&format!("the events are on {} and {}; time both on one", start.device(), end.device()));
        }
        if !start.is_reached()? || !end.is_reached()? {
            return fail("both events must be complete; synchronize first");
        }
        start.runtime.time_between(start.device, start.id, end.id)
    }

    fn point(&self) -> Option<Arc<Point>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Stream {
    /// Whether all work given to it is done.
    ///
    /// # Errors
    /// If the device failed.
    pub fn is_idle(&self) -> Result<bool> {
        self.record()?.is_complete()
    }

    /// Waits until all work given to it is done.
    ///
    /// # Errors
    /// If the device failed.
    pub fn synchronize(&self) -> Result<()> {
        self.record()?.synchronize()
    }

    /// Records an event on it now.
    ///
    /// # Errors
    /// If the device failed.
    pub fn record(&self) -> Result<Event> {
        let event = Event::new();
        event.record(self)?;
        Ok(event)
    }

    /// Orders work given to this stream from now on after the event; see [`Event::block`].
    ///
    /// # Errors
    /// As [`Event::block`].
    pub fn wait(&self, event: &Event) -> Result<()> {
        event.block(self)
    }
}

impl Point {
    /// Marks the end of the work given to a stream so far.
    pub(super) fn mark(stream: &Stream) -> Result<Point> {
        let (runtime, device) = (stream.runtime().clone(), stream.index());
        let id = runtime.mark(device, stream.id())?;
        Ok(Point { runtime, kind: stream.device().kind, device, id })
    }

    pub(super) fn is_reached(&self) -> Result<bool> {
        self.runtime.is_reached(self.device, self.id)
    }

    pub(super) fn wait(&self) -> Result<()> {
        self.runtime.wait(self.device, self.id)
    }

    fn hold(&self, stream: &Stream) -> Result<()> {
        if stream.device().kind != self.kind {
            let what = format!("an event of {} cannot block a stream of {}", self.device(), stream.device());
            let hint = "synchronize the event instead".into();
            return Err(Error::Device { op: "event".into(), what, hint });
        }
        self.runtime.hold(stream.index(), stream.id(), self.device, self.id)
    }

    fn device(&self) -> Device {
        Device { kind: self.kind, index: Some(self.device) }
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        self.runtime.forget(self.device, self.id);
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.device() {
            Some(device) => write!(f, "Event(recorded on {device})"),
            None => f.write_str("Event(never recorded)"),
        }
    }
}
