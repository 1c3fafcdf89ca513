//! A caching allocator for devices whose work runs later than it is asked for.
//!
//! A freed block may still be in use: the work that reads it was given to a stream, but has not run yet. So a free
//! block remembers the points at which the streams that used it stood when it was freed. The stream it was made for
//! may have it again at once, since its work runs in order; any other stream only after all points are reached.
//!
//! What always holds: a block is in use by one owner, or free with its points. Free blocks go back to the source when
//! the pool is trimmed, and before a request fails. A block in use keeps the pool alive.

use super::Device;
use super::allocator::{Allocator, Stats};
use super::event::Point;
use super::guard;
use super::memory::{Block, Owner};
use super::shared_cache::lock;
use super::size_class::{self, REQUEST_MAX};
use super::stream::Stream;
use crate::error::{Error, Result};
use std::sync::{Arc, Mutex};

/// Gives memory of a device, or says that there is none; the block's owner frees it.
type Source = dyn Fn(usize) -> Result<Block> + Send + Sync;

/// A caching allocator for one device, over a source of raw memory.
pub struct StreamPool(Arc<Inner>);

struct Inner {
    device: Device,
    source: Box<Source>,
    state: Mutex<State>,
}

struct State {
    free: Vec<Free>,
    live_bytes: usize,
    live_blocks: usize,
    held: usize,
    peak: usize,
    limit: usize,
    allocations: u64,
    fresh: u64,
}

/// A block nobody holds.
struct Free {
    block: Block,
    /// The stream it was allocated for.
    stream: Stream,
    points: Vec<Point>,
    /// Whether another stream has used it, so that even its own must wait for the points.
    shared: bool,
}

/// One block's way back into the pool.
struct Lending {
    pool: Arc<Inner>,
    stream: Stream,
    /// Other streams that were told to use it.
    others: Mutex<Vec<Stream>>,
}

impl StreamPool {
    /// A pool for the memory of `device` that takes from `source`.
    pub fn new(device: Device, source: impl Fn(usize) -> Result<Block> + Send + Sync + 'static) -> StreamPool {
        let state = State {
            free: Vec::new(),
            live_bytes: 0,
            live_blocks: 0,
            held: 0,
            peak: 0,
            limit: usize::MAX,
            allocations: 0,
            fresh: 0,
        };
        StreamPool(Arc::new(Inner { device, source: Box::new(source), state: Mutex::new(state) }))
    }
}

impl Allocator for StreamPool {
    fn allocate(&self, bytes: usize) -> Result<Block> {
        if bytes == 0 {
            return Ok(Block::EMPTY);
        }
        let stream = guard::current_stream(self.0.device)?;
        let block = self.0.take(bytes, &stream)?;
        Ok(block.lent(Arc::new(Lending { pool: self.0.clone(), stream, others: Mutex::default() })))
    }

    fn stats(&self) -> Stats {
        let state = lock(&self.0.state);
        Stats {
            live_bytes: state.live_bytes,
            live_blocks: state.live_blocks,
            cached_bytes: state.held - state.live_bytes,
            held_bytes: state.held,
            peak_bytes: state.peak,
            limit: state.limit,
            allocations: state.allocations,
            fresh: state.fresh,
            hits: state.allocations - state.fresh,
        }
    }

    fn set_limit(&self, bytes: usize) {
        lock(&self.0.state).limit = bytes;
    }

    fn trim(&self) {
        let unused = lock(&self.0.state).take_unused(Free::is_settled);
        drop(unused);
    }
}

impl Inner {
    /// A block for work on `stream`: a free one, else a new one, else one that is worth waiting for.
    fn take(&self, bytes: usize, stream: &Stream) -> Result<Block> {
        let exhausted = |state: &State| Error::OutOfMemory {
            device: self.device.to_string(),
            wanted: bytes,
            held: state.live_bytes,
            limit: state.limit,
        };
        let mut state = lock(&self.state);
        if bytes > REQUEST_MAX {
            return Err(exhausted(&state));
        }
        let capacity = size_class::capacity(bytes);
        if let Some(block) = state.reuse(capacity, stream) {
            return Ok(block);
        }
        if let Ok(block) = state.make(capacity, &self.source) {
            return Ok(block);
        }
        // What is free goes back to the source, first what nobody waits for, then all.
        drop(state.take_unused(Free::is_settled));
        if let Ok(block) = state.make(capacity, &self.source) {
            return Ok(block);
        }
        for free in state.take_unused(|_| true) {
            free.points.iter().try_for_each(Point::wait)?;
        }
        let error = exhausted(&state);
        state.make(capacity, &self.source).map_err(|_| error)
    }
}

impl State {
    /// A free block of that capacity which work on `stream` may overwrite.
    fn reuse(&mut self, capacity: usize, stream: &Stream) -> Option<Block> {
        let sizes = capacity..=capacity + capacity / 8;
        let fits = |(_, free): &(usize, &Free)| {
            let in_order = free.stream == *stream && !free.shared;
            sizes.contains(&free.block.capacity()) && (in_order || free.is_settled())
        };
        let tightest = self.free.iter().enumerate().filter(fits).min_by_key(|(_, free)| free.block.capacity());
        let place = tightest.map(|(place, _)| place)?;
        let block = self.free.swap_remove(place).block;
        self.count_allocation(block.capacity());
        Some(block)
    }

    /// A block of the source.
    fn make(&mut self, capacity: usize, source: &Source) -> Result<Block, ()> {
        if self.held.saturating_add(capacity) > self.limit {
            return Err(());
        }
        let block = source(capacity).ok().filter(|block| block.capacity() >= capacity).ok_or(())?;
        self.held += block.capacity();
        self.fresh += 1;
        self.count_allocation(block.capacity());
        Ok(block)
    }

    fn count_allocation(&mut self, capacity: usize) {
        self.allocations += 1;
        self.live_blocks += 1;
        self.live_bytes += capacity;
        self.peak = self.peak.max(self.live_bytes);
    }

    /// Takes the free blocks that `wanted` names out of the pool. Dropping one gives its memory back.
    fn take_unused(&mut self, wanted: impl Fn(&Free) -> bool) -> Vec<Free> {
        let (taken, kept) = std::mem::take(&mut self.free).into_iter().partition(wanted);
        self.free = kept;
        let taken: Vec<Free> = taken;
        self.held -= taken.iter().map(|free| free.block.capacity()).sum::<usize>();
        taken
    }
}

impl Free {
    /// Whether all work that used it is done. A device that fails never says so.
    fn is_settled(&self) -> bool {
        self.points.iter().all(|point| point.is_reached().unwrap_or(false))
    }
}

impl Owner for Lending {
    fn take_back(&self, block: Block) {
        let others = std::mem::take(&mut *lock(&self.others));
        let points: Result<Vec<Point>> = std::iter::once(&self.stream).chain(&others).map(Point::mark).collect();
        let mut state = lock(&self.pool.state);
        state.live_blocks -= 1;
        state.live_bytes -= block.capacity();
        match points {
            Ok(points) => {
                let shared = !others.is_empty();
                state.free.push(Free { block, stream: self.stream.clone(), points, shared });
            }
            // A device that failed does not say when the block is free: it is never used again.
            Err(_) => {
                state.held -= block.capacity();
                std::mem::forget(block);
            }
        }
    }

    fn used_on(&self, stream: &Stream) {
        let mut others = lock(&self.others);
        if *stream != self.stream && !others.contains(stream) {
            others.push(stream.clone());
        }
    }

    fn take_turn(&self, stream: &Stream) -> Result<()> {
        let mut others = lock(&self.others);
        // All of them: two that only read did not wait for each other.
        for before in std::iter::once(&self.stream).chain(&*others).filter(|before| *before != stream) {
            before.record()?.block(stream)?;
        }
        if *stream != self.stream && !others.contains(stream) {
            others.push(stream.clone());
        }
        Ok(())
    }
}
