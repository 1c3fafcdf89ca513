//! Ids of tensors.
//!
//! Threads take ids in blocks, so that ids are unique without an atomic operation per tensor. A block belongs to one
//! thread, and the ids of a thread grow. So an id tells whether a thread has made a tensor since a [`Mark`], as long as
//! the thread remembers the blocks that it has started since.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

const BLOCK: u64 = 1 << 12;

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(0) };
    static MARKED: RefCell<Marked> = const { RefCell::new(Marked { n_marks: 0, blocks: Vec::new() }) };
}

/// What a thread remembers while there are marks.
struct Marked {
    n_marks: usize,
    /// The blocks that the thread has started since the oldest mark, in ascending order.
    blocks: Vec<u64>,
}

/// The id of the next tensor.
#[inline]
pub(super) fn next_id() -> u64 {
    let mut id = NEXT.get();
    if id.is_multiple_of(BLOCK) {
        id = start_block() * BLOCK;
    }
    NEXT.set(id + 1);
    id
}

#[cold]
fn start_block() -> u64 {
    static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);
    let block = NEXT_BLOCK.fetch_add(1, Ordering::Relaxed);
    // A thread that ends has no recordings that could ask.
    let _ = MARKED.try_with(|marked| {
        let mut marked = marked.borrow_mut();
        if marked.n_marks > 0 {
            marked.blocks.push(block);
        }
    });
    block
}

/// A moment of this thread. It tells which tensors the thread has made since.
pub(crate) struct Mark {
    /// The id of the next tensor, or a multiple of `BLOCK` if that starts a block.
    next: u64,
    /// How many blocks had been started since the oldest mark.
    n_blocks: usize,
    _of_this_thread: PhantomData<*const ()>,
}

impl Mark {
    /// The present moment.
    pub(crate) fn now() -> Mark {
        let n_blocks = MARKED.with_borrow_mut(|marked| {
            marked.n_marks += 1;
            marked.blocks.len()
        });
        Mark { next: NEXT.get(), n_blocks, _of_this_thread: PhantomData }
    }

    /// Whether this thread has given the id since.
    pub(crate) fn is_before(&self, id: u64) -> bool {
        let block = id / BLOCK;
        let is_first = !self.next.is_multiple_of(BLOCK) && block == self.next / BLOCK;
        match is_first {
            true => id >= self.next,
            false => MARKED.with_borrow(|marked| marked.blocks[self.n_blocks..].binary_search(&block).is_ok()),
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = MARKED.try_with(|marked| {
            let mut marked = marked.borrow_mut();
            marked.n_marks -= 1;
            if marked.n_marks == 0 {
                marked.blocks = Vec::new();
            }
        });
    }
}

#[cfg(test)]
mod checks {
    use super::{BLOCK, Mark, next_id};

    #[test]
    fn a_mark_knows_the_ids_of_its_thread_alone() {
        let before = next_id();
        let outer = Mark::now();
        let first = next_id();
        let others = std::thread::spawn(|| (0..3 * BLOCK).map(|_| next_id()).collect::<Vec<_>>());
        let mut own: Vec<u64> = (0..2 * BLOCK + 7).map(|_| next_id()).collect();
        let inner = Mark::now();
        let between = own.last().copied();
        own.extend((0..3 * BLOCK).map(|_| next_id()));
        let others = others.join().expect("it does not panic");
        assert!(!outer.is_before(before) && outer.is_before(first));
        assert!(own.iter().all(|&id| outer.is_before(id)));
        assert!(!others.iter().any(|&id| outer.is_before(id) || inner.is_before(id)));
        assert!(own.iter().all(|&id| inner.is_before(id) == (Some(id) > between)));
        drop(outer);
        assert!(own.iter().all(|&id| inner.is_before(id) == (Some(id) > between)));
    }
}
