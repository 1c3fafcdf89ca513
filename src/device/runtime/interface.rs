//! [`Runtime`]: what a kind of device can do.
//!
//! Streams, events, guards and allocators are written against this trait alone and name no kind of device.
//!
//! A *point* is a moment in the work of one stream. It is reached when everything given to the stream before it is
//! done. Points are numbers of the runtime; whoever marked one forgets it once.

use crate::device::Block;
use crate::device::allocator::{Allocator, HOST};
use crate::error::{Error, Result};
use std::time::Duration;

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
