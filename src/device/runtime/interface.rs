//! [`Runtime`]: what a kind of device can do.
//!
//! Streams, events, guards and allocators are written for this trait and know no kind of device.
//!
//! A *point* is a moment in the work of one stream. It is reached when everything given to the stream before it is
//! done. Points are numbers of the runtime, and each is forgotten once.

use crate::device::Block;
use crate::device::allocator::{Allocator, HOST};
use crate::error::{Error, Result};
use std::time::Duration;

/// Drives the devices of one kind. `device` is always below [`Runtime::device_count`].
pub trait Runtime: Send + Sync {
    /// How many devices there are.
    fn device_count(&self) -> u16;

    /// Called when `device` becomes the current one of the calling thread.
    fn make_current(&self, device: u16) -> Result<()> {
        let _ = device;
        Ok(())
    }

    /// Creates a stream on the device. Stream 0 always exists and is never created.
    fn create_stream(&self, device: u16) -> Result<u64>;

    /// Called when the stream is not used any more; work already given to it still runs.
    fn destroy_stream(&self, device: u16, stream: u64);

    /// Marks the end of the work given to the stream so far.
    fn mark(&self, device: u16, stream: u64) -> Result<u64>;

    /// Whether the point is reached.
    fn is_reached(&self, device: u16, point: u64) -> Result<bool>;

    /// Waits until the point is reached.
    fn wait(&self, device: u16, point: u64) -> Result<()>;

    /// Orders work given to the stream from now on after the point, which may be of another device.
    fn hold(&self, device: u16, stream: u64, point_device: u16, point: u64) -> Result<()>;

    /// The time between two reached points of one device.
    fn time_between(&self, device: u16, from: u64, to: u64) -> Result<Duration>;

    /// Called when the point is not used any more.
    fn forget(&self, device: u16, point: u64) {
        let _ = (device, point);
    }

    /// The allocator of the device's memory; by default that of host memory.
    fn allocator(&self, device: u16) -> &dyn Allocator {
        let _ = device;
        &HOST
    }

    /// Copies bytes of the host to a block of the device's allocator, starting at the block's byte `at`, in the order
    /// of the stream. `bytes` may be changed when this returns. Only called for memory that the host cannot reach.
    ///
    /// # Errors
    /// If the runtime cannot copy, or the device failed.
    fn upload(&self, device: u16, stream: u64, bytes: &[u8], to: &Block, at: usize) -> Result<()> {
        let _ = (stream, bytes, to, at);
        Err(unreachable_memory(device))
    }

    /// Copies bytes of a block of the device's allocator, starting at the block's byte `at`, to the host, in the order
    /// of the stream. They have arrived when this returns. Only called for memory that the host cannot reach.
    ///
    /// # Errors
    /// If the runtime cannot copy, or the device failed.
    fn download(&self, device: u16, stream: u64, from: &Block, at: usize, bytes: &mut [u8]) -> Result<()> {
        let _ = (stream, from, at, bytes);
        Err(unreachable_memory(device))
    }
}

#[cold]
fn unreachable_memory(device: u16) -> Error {
    let what = format!("the host cannot reach the memory of device {device}, and its runtime cannot copy it");
    Error::Device { op: "to".into(), what, hint: "copy it with an op of that device".into() }
}
