//! The allocator: many threads, its account of bytes, storages, and exhaustion.
//!
//! A process has one allocator, whose account covers the whole process. So these tests run one at a time.

use opfuse::device::{Device, Shared, Storage, allocator, pool};
use opfuse::error::Error;
use opfuse::internals::device::block::Block;
use std::sync::mpsc;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// The allocator for this test alone; cleans up for the next.
struct Turn {
    _guard: MutexGuard<'static, ()>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Also empties this thread's cache, so that its end does not move bytes under the next test.
        allocator::set_limit(usize::MAX);
        allocator::trim();
    }
}

fn turn() -> Turn {
    let turn = Turn { _guard: super::turn() };
    // A scope may end before its threads have destroyed their thread locals, which changes the account.
    let begin = Instant::now();
    while allocator::stats().held_bytes > 0 {
        assert!(begin.elapsed() < Duration::from_secs(10), "a test left {:?}", allocator::stats());
        allocator::trim();
        thread::yield_now();
    }
    turn
}

fn block(bytes: usize) -> Block {
    let block = allocator::allocate(bytes).expect("memory is there");
    assert!(block.capacity() >= bytes && block.as_ptr().addr().is_multiple_of(64));
    block
}

/// A seeded generator (xorshift), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    /// Mostly small, sometimes medium, rarely large; never 0.
    fn size(&mut self) -> usize {
        let log = match self.below(64) {
            0 => 23,
            1..4 => 20,
            4..10 => 17,
            10..30 => 14,
            _ => 10,
        };
        1 + self.below(1 << log)
    }
}

/// A block with canaries at both ends and in the middle.
struct Marked {
    block: Block,
    mark: u8,
}

impl Marked {
    fn new(bytes: usize, mark: u8) -> Marked {
        let mut block = block(bytes);
        for at in Marked::spots(block.capacity()) {
            block.as_mut_bytes()[at] = mark;
        }
        Marked { block, mark }
    }

    fn check(&self) {
        for at in Marked::spots(self.block.capacity()) {
            assert_eq!(self.block.as_bytes()[at], self.mark, "byte {at} of {:?}", self.block);
        }
    }

    fn spots(capacity: usize) -> impl Iterator<Item = usize> {
        (0..capacity).step_by((capacity / 16).max(1)).chain([capacity - 1])
    }
}

#[test]
fn random_sizes_keep_their_canaries() {
    let _turn = turn();
    let live = allocator::stats().live_bytes;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut held: Vec<Marked> = Vec::new();
    for step in 0..20_000 {
        if held.len() < 100 && random.below(5) < 3 {
            held.push(Marked::new(random.size(), step as u8));
        } else if !held.is_empty() {
            held.swap_remove(random.below(held.len())).check();
        }
    }
    held.iter().for_each(Marked::check);
    let sum: usize = held.iter().map(|marked| marked.block.capacity()).sum();
    assert_eq!(allocator::stats().live_bytes - live, sum);
    drop(held);
    assert_eq!(allocator::stats().live_bytes, live);
}

#[test]
fn blocks_may_be_freed_by_other_threads() {
    let _turn = turn();
    let before = allocator::stats();
    const THREADS: usize = 4;
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::sync_channel::<Marked>(64)).unzip();
    thread::scope(|scope| {
        for (number, receiver) in receivers.into_iter().enumerate() {
            let next = senders[(number + 1) % THREADS].clone();
            scope.spawn(move || {
                let mut random = Random(number as u64 + 1);
                for step in 0..5000 {
                    // If the channel is full the block is freed here, so threads never wait in a cycle.
                    if let Err(full) = next.try_send(Marked::new(random.size(), step as u8)) {
                        match full {
                            mpsc::TrySendError::Full(marked) | mpsc::TrySendError::Disconnected(marked) => {
                                marked.check();
                            }
                        }
                    }
                    receiver.try_iter().for_each(|marked| marked.check());
                }
            });
        }
        drop(senders);
    });
    let after = allocator::stats();
    assert_eq!((after.live_bytes, after.live_blocks), (before.live_bytes, before.live_blocks));
    assert_eq!(after.allocations - before.allocations, THREADS as u64 * 5000);
    assert!(after.hits - before.hits > after.fresh - before.fresh, "{after:?}");
}

#[test]
fn blocks_freed_by_a_consumer_return_to_the_producer() {
    let _turn = turn();
    let (sender, receiver) = mpsc::sync_channel::<Block>(16);
    let fresh = allocator::stats().fresh;
    thread::scope(|scope| {
        scope.spawn(move || receiver.into_iter().for_each(drop));
        (0..100_000).for_each(|_| sender.send(block(256)).expect("the consumer lives"));
        drop(sender);
    });
    assert!(allocator::stats().fresh - fresh < 500, "blocks came back through the shared cache");
}

#[test]
fn a_thread_that_ends_leaves_its_cache_to_others() {
    let _turn = turn();
    let before = allocator::stats();
    thread::spawn(|| {
        let blocks: Vec<Block> = (0..200).map(|_| block(1000)).collect();
        drop(blocks);
    })
    .join()
    .expect("it only allocates");
    let after = allocator::stats();
    assert_eq!((after.live_bytes, after.fresh), (before.live_bytes, before.fresh + 200));
    assert_eq!(after.cached_bytes, before.cached_bytes + 200 * 1024);
    let blocks: Vec<Block> = (0..200).map(|_| block(1000)).collect();
    assert_eq!(allocator::stats().fresh, after.fresh, "all were found");
    drop(blocks);
    allocator::trim();
    assert_eq!(allocator::stats().cached_bytes, before.cached_bytes);
}

#[test]
fn blocks_may_outlive_the_cache_of_their_thread() {
    struct AtExit(Option<Block>);
    impl Drop for AtExit {
        fn drop(&mut self) {
            let bytes = self.0.take().map_or(0, |block| block.capacity());
            drop(block(bytes + 1));
        }
    }
    thread_local! {
        static FIRST: std::cell::RefCell<AtExit> = const { std::cell::RefCell::new(AtExit(None)) };
        static LAST: std::cell::RefCell<AtExit> = const { std::cell::RefCell::new(AtExit(None)) };
    }
    let _turn = turn();
    let live = allocator::stats().live_bytes;
    thread::spawn(|| {
        // One is registered before the allocator's own thread local and one after, so one is destroyed after it.
        FIRST.with(|_| ());
        let (small, large) = (block(300), block(3 * MIB));
        LAST.with(|last| last.borrow_mut().0 = Some(small));
        FIRST.with(|first| first.borrow_mut().0 = Some(large));
    })
    .join()
    .expect("destructors do not panic");
    assert_eq!(allocator::stats().live_bytes, live);
}

#[test]
fn a_large_block_is_reused() {
    let _turn = turn();
    let first = block(40_000_000);
    let address = first.as_ptr().addr();
    assert!(address.is_multiple_of(2 * MIB));
    drop(first);
    let fresh = allocator::stats().fresh;
    for bytes in [40_000_000, 37_000_000, 35_000_000, 40_000_000] {
        assert_eq!(block(bytes).as_ptr().addr(), address, "{bytes}");
    }
    assert_eq!(allocator::stats().fresh, fresh);
}

#[test]
fn running_out_leaves_everything_usable() {
    let _turn = turn();
    let live = allocator::stats().live_bytes;
    let mut kept = Storage::copy_of(Device::CPU, &[42; 100]).expect("memory is there");
    allocator::set_limit(live + 8 * MIB);
    let mut blocks = Vec::new();
    let error = loop {
        match allocator::allocate(MIB) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
    };
    assert_eq!(blocks.len(), 7, "the eighth and the 128 bytes do not fit together");
    let held = allocator::stats().live_bytes;
    let limit = live + 8 * MIB;
    assert_eq!(error, Error::OutOfMemory { call: String::new(), device: "cpu".into(), wanted: MIB, held, limit });
    assert!(matches!(Storage::new(Device::CPU, 100 * MIB), Err(Error::OutOfMemory { .. })));
    // Freed memory can be allocated in another size: caches are trimmed before a request fails.
    drop(blocks);
    drop(block(6 * MIB));
    (1..2000).for_each(|n| drop(block(n * 1000 % (2 * MIB) + 1)));
    drop(block(5 * MIB));
    kept.bytes_mut()[0] = 1;
    kept.read(|bytes| assert_eq!((bytes[0], &bytes[1..]), (1, &[42; 99][..])));
    assert!(allocator::stats().held_bytes <= limit);
    allocator::set_limit(usize::MAX);
    drop(block(100 * MIB));
}

#[test]
fn caches_of_other_threads_do_not_cause_exhaustion() {
    let _turn = turn();
    let (to_idle, wake) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel::<()>();
    let idle = thread::spawn(move || {
        drop((0..8).map(|_| block(40_000)).collect::<Vec<_>>());
        ready.send(()).expect("the test waits");
        wake.recv().expect("the test wakes us");
    });
    is_ready.recv().expect("the thread lives");
    let stats = allocator::stats();
    assert!(stats.cached_bytes >= 3 * 40_000, "{stats:?}");
    allocator::set_limit(stats.live_bytes + 2 * MIB);
    drop(block(2 * MIB));
    assert!(allocator::allocate(2 * MIB + 1).is_err());
    allocator::set_limit(usize::MAX);
    to_idle.send(()).expect("the thread waits");
    idle.join().expect("it only waited");
}

#[test]
fn impossible_requests_are_errors() {
    let _turn = turn();
    for bytes in [usize::MAX, isize::MAX as usize, usize::MAX / 2 - 4096, 1 << 60] {
        let error = allocator::allocate(bytes).expect_err("no machine has that");
        assert!(matches!(error, Error::OutOfMemory { wanted, .. } if wanted == bytes));
    }
    assert_eq!(block(0).capacity(), 0);
    assert_eq!(allocator::stats().held_bytes, allocator::stats().live_bytes + allocator::stats().cached_bytes);
}

#[test]
fn the_peak_is_the_most_bytes_in_use() {
    let _turn = turn();
    allocator::reset_peak();
    let base = allocator::stats().peak_bytes;
    let first = block(10 * MIB);
    let second = block(6 * MIB);
    drop(first);
    drop(block(4 * MIB));
    drop(second);
    assert_eq!(allocator::stats().peak_bytes - base, 16 * MIB);
    allocator::reset_peak();
    assert_eq!(allocator::stats().peak_bytes, base);
}

#[test]
fn storages_cross_threads_and_loops_write_disjoint_parts() {
    let _turn = turn();
    let storage = Shared::new(Storage::copy_of(Device::CPU, &[3; 10_000]).expect("memory is there"));
    let sums: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let storage = storage.clone();
                scope.spawn(move || storage.read(|bytes| bytes.iter().map(|&byte| u64::from(byte)).sum()))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it only reads")).collect()
    });
    assert_eq!(sums, [30_000; 4]);
    let mut storage = storage;
    let storage = storage.get_mut().expect("all readers are gone");
    let parts: Vec<Mutex<&mut [u8]>> = storage.bytes_mut().chunks_mut(1000).map(Mutex::new).collect();
    pool::run(parts.len(), 4, &|task| parts[task].lock().expect("no panics").fill(task as u8));
    drop(parts);
    assert!(storage.read(|bytes| bytes.iter().enumerate().all(|(at, &byte)| usize::from(byte) == at / 1000)));
}
