//! The runtime of the CPU, which the meta device shares.

use super::interface::Runtime;
use crate::error::Result;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The CPU. Work is done when its call returns, so every point is reached at once. A point is the time when it was
/// marked.
pub(super) struct Host;

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
