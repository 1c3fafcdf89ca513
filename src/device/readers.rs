//! Threads that read storages for a short time without taking their locks.
//!
//! A lock costs a small call two locked instructions per operand, and threads that read the same storage contend for
//! the cache line of its lock. So a thread that runs a short kernel *announces* what it reads, in a slot of its own,
//! and then checks whether the storages have writers. A writer first counts itself in the storage, and then checks all
//! slots. Announcement, count and both checks have one order for all threads (`SeqCst`), so at least one of a reader
//! and a writer sees the other. A reader that sees a writer withdraws its announcement and waits for the lock. A writer
//! that sees an announcement waits until it is withdrawn.
//!
//! What always holds: only its thread writes to a slot; an announcement succeeds at once or not at all, so making one
//! never waits; a writer takes no locks to check. There are [`MAX_READERS`]; further threads take locks.

use super::Storage;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Most threads that read by announcements at the same time.
const MAX_READERS: usize = 256;
/// Most storages of an announcement.
pub(super) const MAX_STORAGES: usize = 3;

/// Checks of a waiting writer before it yields between checks.
const SPINS: u32 = 100;
/// Checks before it sleeps between checks.
const YIELDS: u32 = 200;
/// How long it sleeps.
const NAP: Duration = Duration::from_micros(50);

/// A slot for the announcement of one thread, on cache lines of its own.
#[repr(align(128))]
struct Reader {
    /// Whether a thread owns it.
    is_taken: AtomicBool,
    is_reading: AtomicBool,
    /// Addresses of storages, valid only while the thread is reading.
    storages: [AtomicUsize; MAX_STORAGES],
}

impl Reader {
    const fn free() -> Reader {
        Reader {
            is_taken: AtomicBool::new(false),
            is_reading: AtomicBool::new(false),
            storages: [const { AtomicUsize::new(0) }; MAX_STORAGES],
        }
    }
}

static READERS: [Reader; MAX_READERS] = [const { Reader::free() }; MAX_READERS];

/// The number of slots that were ever used; they are the first ones.
static N_USED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OWN: Own = const { Own(Cell::new(None)) };
}

/// A thread's slot, once it has read. It is freed when the thread ends.
struct Own(Cell<Option<&'static Reader>>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(reader) = self.0.get() {
            reader.is_taken.store(false, Ordering::Release);
        }
    }
}

/// Keeps writers out of the announced storages while it lives. It belongs to its thread.
pub(crate) struct Announced {
    reader: &'static Reader,
    not_send: std::marker::PhantomData<*const ()>,
}

impl Drop for Announced {
    #[inline(always)]
    fn drop(&mut self) {
        // A thread that sees this, or what the next announcement writes, also sees that everything has been read.
        self.reader.is_reading.store(false, Ordering::Release);
    }
}

/// Announces that the thread reads storages from now on. Returns `None` if one of them has a writer, if the thread
/// already has an announcement, or if there is no slot: then locks have to be taken.
#[inline(always)]
pub(super) fn announce<'a>(storages: impl Iterator<Item = &'a Storage> + Clone) -> Option<Announced> {
    // A thread that is ending has no slot any more.
    let reader = OWN.try_with(|own| own.0.get().or_else(|| take_reader(own))).ok().flatten()?;
    if reader.is_reading.load(Ordering::Relaxed) {
        return None;
    }
    let mut slots = reader.storages.iter();
    for storage in storages.clone() {
        // Ordered after all reads of the last announcement.
        slots.next()?.store(address(storage), Ordering::Release);
    }
    for slot in slots {
        slot.store(0, Ordering::Release);
    }
    // A swap instead of a store: it costs the same, and is ordered before the checks below in any case.
    reader.is_reading.swap(true, Ordering::SeqCst);
    let announced = Announced { reader, not_send: std::marker::PhantomData };
    let mut is_written = false;
    for storage in storages {
        is_written |= storage.writers().load(Ordering::SeqCst) != 0;
    }
    (!is_written).then_some(announced)
}

#[cold]
fn take_reader(own: &Own) -> Option<&'static Reader> {
    let take =
        |reader: &Reader| !reader.is_taken.load(Ordering::Relaxed) && !reader.is_taken.swap(true, Ordering::Acquire);
    let (index, reader) = READERS.iter().enumerate().find(|(_, reader)| take(reader))?;
    // Ordered with the checks of writers: a writer that does not check this slot yet is seen by the first
    // announcement.
    N_USED.fetch_max(index + 1, Ordering::SeqCst);
    own.0.set(Some(reader));
    Some(reader)
}

/// Waits until no announcement has the storage. Its writers are counted already, so no new one succeeds.
pub(super) fn wait_for(storage: &Storage) {
    let address = address(storage);
    let reads = |reader: &Reader| {
        reader.is_reading.load(Ordering::SeqCst)
            && reader.storages.iter().any(|slot| slot.load(Ordering::Acquire) == address)
    };
    for reader in &READERS[..N_USED.load(Ordering::SeqCst)] {
        let mut looks = 0;
        while reads(reader) {
            looks += 1;
            match looks {
                ..SPINS => std::hint::spin_loop(),
                SPINS..YIELDS => std::thread::yield_now(),
                YIELDS.. => std::thread::sleep(NAP),
            }
        }
    }
}

fn address(storage: &Storage) -> usize {
    std::ptr::from_ref(storage).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use std::thread;

    fn storages<const N: usize>() -> [Storage; N] {
        std::array::from_fn(|_| Storage::zeroed(Device::CPU, 8).expect("memory is there"))
    }

    #[test]
    fn a_writer_waits_until_announcements_are_taken_back() {
        let [a, b] = storages();
        let is_writing = AtomicBool::new(false);
        let announced = announce([&b, &a].into_iter()).expect("no thread writes");
        thread::scope(|scope| {
            scope.spawn(|| {
                let _exclusive = a.exclusive().expect("nothing is borrowed");
                is_writing.store(true, Ordering::Release);
            });
            while a.writers().load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            assert!(thread::spawn(|| ()).join().is_ok(), "threads come and go while a writer waits");
            assert!(!is_writing.load(Ordering::Acquire));
            drop(announced);
        });
        assert!(is_writing.load(Ordering::Acquire));
        assert!(announce([&a].into_iter()).is_some(), "the writer is gone");
    }

    #[test]
    fn announcements_are_refused_to_whom_locks_are_for() {
        let [a, b, c, d] = storages();
        let exclusive = a.exclusive().expect("nothing is borrowed");
        assert!(announce([&b, &a].into_iter()).is_none(), "one is written to");
        let other = announce([&b].into_iter()).expect("a refused announcement is taken back");
        assert!(announce([&c].into_iter()).is_none(), "the thread reads already");
        let on_another_thread = |storage: &Storage| announce([storage].into_iter()).is_some();
        thread::scope(|scope| {
            assert!(scope.spawn(|| on_another_thread(&b)).join().expect("nothing panics"));
        });
        drop((other, exclusive));
        assert!(announce([&a, &b, &c, &d].into_iter()).is_none(), "there are too many");
        assert!(announce([&a, &b, &c].into_iter()).is_some());
        assert!(announce(std::iter::empty()).is_some(), "nothing is read");
    }

    #[test]
    fn slots_are_used_again() {
        let [a] = storages();
        for _ in 0..2 * MAX_READERS {
            let read = || drop(announce([&a].into_iter()).expect("no thread writes"));
            thread::scope(|scope| scope.spawn(read).join().expect("nothing panics"));
        }
        // Other tests may run beside this one.
        assert!(N_USED.load(Ordering::Relaxed) < MAX_READERS / 2);
    }

    /// A reader sees all that a writer wrote, or nothing of it.
    #[test]
    fn readers_and_writers_keep_apart() {
        const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };
        let [a, b] = storages();
        // Plain cells would be a data race where announcements fail; atomics show the failure without one.
        let values = [const { AtomicUsize::new(0) }; 8];
        thread::scope(|scope| {
            for _ in 0..3 {
                let (a, b, values) = (&a, &b, &values);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        if round % 20 == 0 {
                            // In one order, as runs take them.
                            let _both = (a.exclusive(), b.exclusive());
                            let next = values[0].load(Ordering::Relaxed) + 1;
                            values.iter().for_each(|value| value.store(next, Ordering::Relaxed));
                        }
                        let (announced, guard) = match announce([a, b].into_iter()) {
                            Some(announced) => (Some(announced), None),
                            None => (None, Some((a.shared(), b.shared()))),
                        };
                        let seen = values.each_ref().map(|value| value.load(Ordering::Relaxed));
                        assert!(seen.iter().all(|value| *value == seen[0]), "{seen:?}");
                        drop((announced, guard));
                    }
                });
            }
        });
        assert_eq!(values[7].load(Ordering::Relaxed), 3 * (ROUNDS / 20));
    }
}
