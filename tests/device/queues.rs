//! Fake devices: queues that run an item only when a test says so.

use opfuse::device::allocator::Allocator;
use opfuse::device::runtime::{self, Registration};
use opfuse::device::{Device, DeviceKind, Runtime, Stream, StreamPool};
use opfuse::error::{Error, Result};
use opfuse::internals::device::block::Block;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Streams of every device by device and number; a stream's items run in order, one per step.
pub(crate) struct Queues {
    n_devices: u16,
    state: Mutex<State>,
    pools: Vec<StreamPool>,
}

#[derive(Default)]
struct State {
    streams: HashMap<(u16, u64), Queue>,
    next_stream: u64,
    next_point: u64,
    /// Live events: their stream, and its length when they were recorded.
    points: HashMap<u64, (u16, u64, usize)>,
    log: Vec<String>,
    devices: Vec<u16>,
    fails: bool,
}

#[derive(Default)]
struct Queue {
    items: Vec<Item>,
    n_done: usize,
}

#[derive(Clone)]
enum Item {
    Work(String),
    Hold(u64),
}

impl Queues {
    pub(crate) fn new(n_devices: u16) -> Queues {
        let device = |index| Device { kind: DeviceKind::PrivateUse1, index: Some(index) };
        let pools = (0..n_devices).map(|index| StreamPool::new(device(index), memory())).collect();
        Queues { n_devices, state: Mutex::default(), pools }
    }

    /// Registers devices as `PrivateUse1`, for one test at a time.
    pub(crate) fn registered(n_devices: u16) -> (Arc<Queues>, Registered) {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let queues = Arc::new(Queues::new(n_devices));
        let registration = runtime::register(DeviceKind::PrivateUse1, queues.clone()).expect("it is this test's turn");
        (queues, Registered { _registration: registration, _turn: turn })
    }

    /// Adds an item to a stream.
    pub(crate) fn submit(&self, stream: &Stream, work: &str) {
        let key = (stream.device().index.expect("streams know their device"), stream.id());
        self.lock().streams.entry(key).or_default().items.push(Item::Work(work.into()));
    }

    /// Runs what a stream can run, and returns it.
    pub(crate) fn run(&self, stream: &Stream) -> Vec<String> {
        let mut state = self.lock();
        state.log.clear();
        while state.step((stream.device().index.expect("streams know their device"), stream.id())) {}
        std::mem::take(&mut state.log)
    }

    /// From now on every call fails, or none.
    pub(crate) fn set_failing(&self, fails: bool) {
        self.lock().fails = fails;
    }

    /// The devices that threads were told to use, in order.
    pub(crate) fn switches(&self) -> Vec<u16> {
        std::mem::take(&mut self.lock().devices)
    }

    pub(crate) fn n_points(&self) -> usize {
        self.lock().points.len()
    }

    pub(crate) fn n_streams(&self) -> usize {
        self.lock().streams.keys().filter(|(_, id)| *id != 0).count()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn checked(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.fails { Err(Error::Internal { message: "the device is broken".into() }) } else { Ok(state) }
    }
}

/// Keeps the devices there.
pub(crate) struct Registered {
    _registration: Registration,
    _turn: MutexGuard<'static, ()>,
}

impl State {
    fn is_reached(&self, point: u64) -> bool {
        let (device, stream, length) = self.points[&point];
        self.streams.get(&(device, stream)).is_none_or(|queue| queue.n_done >= length)
    }

    fn step(&mut self, key: (u16, u64)) -> bool {
        let queue = self.streams.entry(key).or_default();
        let Some(item) = queue.items.get(queue.n_done).cloned() else { return false };
        match item {
            Item::Hold(point) if !self.is_reached(point) => return false,
            Item::Hold(_) => {}
            Item::Work(work) => self.log.push(work),
        }
        self.streams.entry(key).or_default().n_done += 1;
        true
    }
}

impl Runtime for Queues {
    fn device_count(&self) -> u16 {
        self.n_devices
    }

    fn make_current(&self, device: u16) -> Result<()> {
        self.checked()?.devices.push(device);
        Ok(())
    }

    fn create_stream(&self, device: u16) -> Result<u64> {
        let mut state = self.checked()?;
        state.next_stream += 1;
        let id = state.next_stream;
        state.streams.insert((device, id), Queue::default());
        Ok(id)
    }

    fn destroy_stream(&self, device: u16, stream: u64) {
        self.lock().streams.remove(&(device, stream));
    }

    fn mark(&self, device: u16, stream: u64) -> Result<u64> {
        let mut state = self.checked()?;
        let length = state.streams.entry((device, stream)).or_default().items.len();
        state.next_point += 1;
        let point = state.next_point;
        state.points.insert(point, (device, stream, length));
        Ok(point)
    }

    fn is_reached(&self, _: u16, point: u64) -> Result<bool> {
        Ok(self.checked()?.is_reached(point))
    }

    fn wait(&self, device: u16, point: u64) -> Result<()> {
        let mut state = self.checked()?;
        let stream = state.points[&point].1;
        while !state.is_reached(point) {
            assert!(state.step((device, stream)), "a test waits for what it holds back");
        }
        Ok(())
    }

    fn hold(&self, device: u16, stream: u64, _: u16, point: u64) -> Result<()> {
        let mut state = self.checked()?;
        // The queue keeps the event, because its owner may drop it.
        let copy = state.points[&point];
        state.next_point += 1;
        let own = state.next_point;
        state.points.insert(own, copy);
        state.streams.entry((device, stream)).or_default().items.push(Item::Hold(own));
        Ok(())
    }

    fn time_between(&self, _: u16, from: u64, to: u64) -> Result<Duration> {
        let state = self.checked()?;
        let at = |point: u64| state.points[&point].2 as u64;
        Ok(Duration::from_millis(at(to) - at(from)))
    }

    fn forget(&self, _: u16, point: u64) {
        self.lock().points.remove(&point);
    }

    fn allocator(&self, device: u16) -> &dyn Allocator {
        &self.pools[usize::from(device)]
    }
}

/// Memory that only the devices can reach: unused addresses.
fn memory() -> impl Fn(usize) -> Result<Block> + Send + Sync + 'static {
    let next = AtomicUsize::new(0x1000);
    move |bytes| {
        let address = NonZeroUsize::new(next.fetch_add(bytes, Ordering::Relaxed)).expect("it does not come round");
        Ok(Block::on_device(address, bytes))
    }
}

/// Where a block lies.
pub(crate) fn address(block: &Block) -> usize {
    block.as_ptr().addr()
}
