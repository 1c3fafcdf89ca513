//! Threads that read a storage without its lock, and writers.

mod checked {
    #![allow(dead_code, unused_doc_comments, reason = "naps are left out, and statics of loom are made by a macro")]

    include!(concat!(env!("OUT_DIR"), "/readers.rs"));
}

use checked::{announce, wait_for};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// What `readers` needs of a storage, with a value instead of bytes.
pub(crate) struct Storage {
    writers: AtomicUsize,
    lock: Mutex<()>,
    value: UnsafeCell<u64>,
}

impl Storage {
    fn new() -> Arc<Storage> {
        Arc::new(Storage { writers: AtomicUsize::new(0), lock: Mutex::new(()), value: UnsafeCell::new(1) })
    }

    pub(crate) fn writers(&self) -> &AtomicUsize {
        &self.writers
    }

    /// Writes as `Storage::exclusive` of the library does.
    fn write(&self) {
        self.writers.fetch_add(1, Ordering::SeqCst);
        let lock = self.lock.lock().expect("nothing panics");
        wait_for(self);
        // SAFETY: loom fails the model if there is another user.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.writers.fetch_sub(1, Ordering::Release);
        drop(lock);
    }

    fn read_twice(&self) {
        self.read();
        self.read();
    }

    /// Reads by an announcement, or else under the lock.
    fn read(&self) {
        let announced = announce([self].into_iter());
        let _lock = announced.is_none().then(|| self.lock.lock().expect("nothing panics"));
        // SAFETY: loom fails the model if there is a writer.
        self.value.with(|value| assert!(unsafe { *value } > 0));
    }
}

/// Runs calls on a thread each. The first thread runs none: it ends after the statics of loom.
fn check(preemptions: usize, calls: &'static [fn(&Storage)]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(|| {
        let storage = Storage::new();
        let threads: Vec<_> = calls
            .iter()
            .map(|call| {
                let storage = storage.clone();
                thread::spawn(move || call(&storage))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    });
}

#[test]
fn a_reader_and_a_writer_keep_apart() {
    check(4, &[Storage::read, Storage::write]);
}

#[test]
fn a_slot_is_used_again_while_a_writer_looks() {
    check(3, &[Storage::read_twice, Storage::write]);
}

#[test]
fn two_readers_and_a_writer_keep_apart() {
    check(2, &[Storage::read, Storage::read, Storage::write]);
}
