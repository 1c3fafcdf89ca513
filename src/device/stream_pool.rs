//! A caching allocator for devices whose work runs asynchronously.
//!
//! A freed block may still be in use: work that reads it was given to a stream, but has not run yet. The stream it was
//! allocated for may reuse it at once, because its work runs in order. Another stream may reuse it only after all
//! streams that used the block have passed a point that was marked when it was freed. Mostly one stream uses a block
//! and takes it again. So a point is marked only when another stream asks, and then one point stands for all blocks
//! that the stream has freed.
//!
//! The smallest block that fits is taken, and among equal ones the one at the lowest address. So a program that repeats
//! its allocations gets the same addresses each time, and what was prepared for them stays valid.
//!
//! What always holds: a block has one owner, or is free. Free blocks are returned to the source when the pool is
//! trimmed, and before a request fails. A block in use keeps the pool alive.

use super::Device;
use super::allocator::{Allocator, Stats};
use super::block::{Block, Owner};
use super::current;
use super::event::Point;
use super::shared_cache::lock;
use super::size_class::{self, REQUEST_MAX};
use super::stream::Stream;
use crate::error::{Error, Result};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Allocates memory of a device, or fails; the block's owner frees it.
type Source = dyn Fn(usize) -> Result<Block> + Send + Sync;

/// A caching allocator for one device, over a source of raw memory.
pub struct StreamPool(Arc<Inner>);

struct Inner {
    device: Device,
    source: Box<Source>,
    state: Mutex<State>,
}

struct State {
    free: Vec<OfStream>,
    live_bytes: usize,
    live_blocks: usize,
    held: usize,
    peak: usize,
    limit: usize,
    allocations: u64,
    fresh: u64,
}

/// The free blocks that were allocated for one stream.
struct OfStream {
    stream: Stream,
    /// By capacity, then address.
    blocks: BTreeMap<(usize, usize), Free>,
}

/// A free block.
struct Free {
    block: Block,
    /// Points that its users must have passed. Empty while only its own stream used it and no other stream asked.
    points: SmallVec<[Arc<Point>; 1]>,
    /// Whether another stream has used it, so that even its own must wait for the points.
    shared: bool,
}

/// The owner of one lent block, which returns it to the pool.
struct Lending {
    pool: Arc<Inner>,
    stream: Stream,
    /// Other streams that use it.
    others: Mutex<Vec<Stream>>,
}

impl StreamPool {
    /// A pool for the memory of `device`, allocated by `source`.
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
        let stream = current::current_stream(self.0.device)?;
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
        let mut state = lock(&self.0.state);
        // A stream that cannot be marked has failed, and keeps its blocks.
        let _ = state.mark_all();
        let unused = state.take_unused(Free::is_settled);
        drop(state);
        drop(unused);
    }
}

impl Inner {
    /// A block for work on `stream`: a free one, else a new one, else one that has to be waited for.
    fn take(&self, bytes: usize, stream: &Stream) -> Result<Block> {
        let exhausted = |state: &State| Error::OutOfMemory {
            call: String::new(),
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
        // Returns free blocks to the source, first those that no work uses, then all.
        let marked = state.mark_all();
        drop(state.take_unused(Free::is_settled));
        if let Ok(block) = state.make(capacity, &self.source) {
            return Ok(block);
        }
        marked?;
        for free in state.take_unused(|_| true) {
            free.points.iter().try_for_each(|point| point.wait())?;
        }
        let error = exhausted(&state);
        state.make(capacity, &self.source).map_err(|_| error)
    }
}

impl State {
    /// A free block of that capacity that work on `stream` may overwrite.
    fn reuse(&mut self, capacity: usize, stream: &Stream) -> Option<Block> {
        let sizes = (capacity, 0)..=(capacity + capacity / 8, usize::MAX);
        let own = self.free.iter().position(|of_stream| of_stream.stream == *stream);
        let mut found = own.and_then(|own| {
            let fits = |(_, free): &(_, &Free)| !free.shared || free.is_settled();
            Some((own, *self.free[own].blocks.range(sizes.clone()).find(fits)?.0))
        });
        for index in (0..self.free.len()).filter(|&index| Some(index) != own) {
            if found.is_some() {
                break;
            }
            // A stream that cannot be marked has failed, and keeps its blocks.
            if self.free[index].blocks.range(sizes.clone()).next().is_some() && self.free[index].mark().is_ok() {
                let mut fitting = self.free[index].blocks.range(sizes.clone());
                found = fitting.find(|(_, free)| free.is_settled()).map(|(place, _)| (index, *place));
            }
        }
        let (index, place) = found?;
        let block = self.free[index].blocks.remove(&place)?.block;
        self.count_allocation(block.capacity());
        Some(block)
    }

    /// Adds a block to those of a stream.
    fn put(&mut self, stream: &Stream, free: Free) {
        let index = self.free.iter().position(|of_stream| of_stream.stream == *stream).unwrap_or_else(|| {
            self.free.push(OfStream { stream: stream.clone(), blocks: BTreeMap::new() });
            self.free.len() - 1
        });
        let place = (free.block.capacity(), free.block.as_ptr().addr());
        self.free[index].blocks.insert(place, free);
    }

    /// Marks points for all free blocks without.
    fn mark_all(&mut self) -> Result<()> {
        self.free.iter_mut().map(OfStream::mark).fold(Ok(()), Result::and)
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

    /// Takes the free blocks for which `wanted` holds out of the pool. Dropping one frees its memory.
    fn take_unused(&mut self, wanted: impl Fn(&Free) -> bool) -> Vec<Free> {
        let mut taken = Vec::new();
        for of_stream in &mut self.free {
            taken.extend(of_stream.blocks.extract_if(.., |_, free| wanted(free)).map(|(_, free)| free));
        }
        // A stream without blocks is not kept alive.
        self.free.retain(|of_stream| !of_stream.blocks.is_empty());
        self.held -= taken.iter().map(|free| free.block.capacity()).sum::<usize>();
        taken
    }
}

impl OfStream {
    /// Marks the current end of the stream, for all its blocks without points.
    fn mark(&mut self) -> Result<()> {
        let mut unmarked = self.blocks.values_mut().filter(|free| free.points.is_empty()).peekable();
        if unmarked.peek().is_some() {
            let point = Arc::new(Point::mark(&self.stream)?);
            unmarked.for_each(|free| free.points.push(point.clone()));
        }
        Ok(())
    }
}

impl Free {
    /// Whether all work that used it is known to be done. It never is on a failed device.
    fn is_settled(&self) -> bool {
        !self.points.is_empty() && self.points.iter().all(|point| point.is_reached().unwrap_or(false))
    }
}

impl Owner for Lending {
    fn take_back(&self, block: Block) {
        let others = std::mem::take(&mut *lock(&self.others));
        let shared = !others.is_empty();
        let mark = |stream| Point::mark(stream).map(Arc::new);
        // If only its own stream used it, a point is marked once another stream asks.
        let points: Result<SmallVec<[Arc<Point>; 1]>> =
            if shared { std::iter::once(&self.stream).chain(&others).map(mark).collect() } else { Ok(SmallVec::new()) };
        let mut state = lock(&self.pool.state);
        state.live_blocks -= 1;
        state.live_bytes -= block.capacity();
        match points {
            Ok(points) => state.put(&self.stream, Free { block, points, shared }),
            // A failed device cannot tell when the block is free, so it is never reused.
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
