#![allow(unsafe_code, reason = "owns memory that several handles share, and counts them")]
//! Shared ownership like `Arc`, whose last handle is dropped without a locked instruction.
//!
//! [`Shared`] has its two counts in one word. So one plain load shows that a handle is the only one left, strong or
//! weak, and its value is freed at once. `Arc` has to decrement two counts in turn, which small calls pay twice per
//! tensor. Handles of one value may be cloned, dropped, downgraded and upgraded from any thread. The freed memory is
//! kept by the thread for its next values of that type, up to [`MOST_SPARE`] pieces.
//!
//! Deliberately absent: unsized values, and conversions to and from raw pointers.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::process::abort;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread::LocalKey;

/// One strong handle, in the word of counts.
const STRONG: u64 = 1;
/// One weak handle. All strong ones together hold one, so that the memory outlives the value.
const WEAK: u64 = 1 << 32;
/// The counts of a value with exactly one handle, a strong one.
const ONLY: u64 = STRONG + WEAK;
/// More handles than any program has, and far below where the counts would overflow into each other.
const TOO_MANY: u64 = 1 << 31;

/// Pieces of memory that a thread keeps for values of one type.
const MOST_SPARE: u32 = 64;

/// Starts with a word, which links spare nodes.
#[repr(C)]
struct Node<T> {
    counts: AtomicU64,
    value: T,
}

/// A type that can be shared, for which threads keep spare memory.
///
/// ```
/// use opfuse::device::Shared;
/// use opfuse::internals::device::shared::{Pooled, Spare};
///
/// struct Point(i32, i32);
/// thread_local! { static SPARE: Spare<Point> = const { Spare::new() }; }
/// impl Pooled for Point {
///     fn spare() -> &'static std::thread::LocalKey<Spare<Point>> {
///         &SPARE
///     }
/// }
///
/// let point = Shared::new(Point(1, 2));
/// let other = point.clone();
/// drop(point);
/// assert_eq!((other.0, other.1), (1, 2));
/// ```
pub trait Pooled: Sized + 'static {
    /// The spare memory of the calling thread.
    fn spare() -> &'static LocalKey<Spare<Self>>;
}

/// Spare memory of a thread for values of one type; freed when the thread ends.
pub struct Spare<T> {
    /// The piece added last; the first word of each piece is the address of the one before.
    first: Cell<*mut Node<T>>,
    n: Cell<u32>,
}

impl<T> Spare<T> {
    /// No memory.
    pub const fn new() -> Spare<T> {
        Spare { first: Cell::new(std::ptr::null_mut()), n: Cell::new(0) }
    }

    #[inline(always)]
    fn take(&self) -> Option<NonNull<Node<T>>> {
        let node = NonNull::new(self.first.get())?;
        // SAFETY: linked pieces are memory of nodes that hold no value, and `put` has written their first words.
        self.first.set(unsafe { node.cast().read() });
        self.n.set(self.n.get() - 1);
        Some(node)
    }

    /// Keeps the memory, unless there is enough. Returns whether it did.
    ///
    /// # Safety
    /// The memory came from [`allocate`], holds no value, and belongs to the caller, who gives it up if the result is
    /// true.
    #[inline(always)]
    unsafe fn put(&self, node: NonNull<Node<T>>) -> bool {
        if self.n.get() == MOST_SPARE {
            return false;
        }
        // SAFETY: the memory of a node is at least as large and as aligned as a word.
        unsafe { node.cast().write(self.first.get()) };
        self.first.set(node.as_ptr());
        self.n.set(self.n.get() + 1);
        true
    }
}

impl<T> Default for Spare<T> {
    fn default() -> Spare<T> {
        Spare::new()
    }
}

impl<T> fmt::Debug for Spare<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spare({})", self.n.get())
    }
}

impl<T> Drop for Spare<T> {
    fn drop(&mut self) {
        while let Some(node) = self.take() {
            // SAFETY: spare memory came from `allocate`, holds no value, and was just removed from the list.
            unsafe { free(node) };
        }
    }
}

#[inline(never)]
fn allocate<T>() -> NonNull<Node<T>> {
    NonNull::from(Box::leak(Box::<Node<T>>::new_uninit())).cast()
}

/// # Safety
/// The memory came from [`allocate`], holds no value, and is not used afterwards.
unsafe fn free<T>(node: NonNull<Node<T>>) {
    // SAFETY: passed on from the caller.
    drop(unsafe { Box::from_raw(node.as_ptr().cast::<MaybeUninit<Node<T>>>()) });
}

/// The memory of a node whose value was dropped. It is kept by the thread, or freed.
struct Memory<T: Pooled>(NonNull<Node<T>>);

impl<T: Pooled> Drop for Memory<T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the maker of a `Memory` owns it, and has dropped its value when this is dropped.
        let is_kept = T::spare().try_with(|spare| unsafe { spare.put(self.0) });
        if !is_kept.unwrap_or(false) {
            // SAFETY: the same.
            unsafe { free(self.0) };
        }
    }
}

/// A handle that keeps a value alive. Any number of handles share it.
pub struct Shared<T: Pooled> {
    node: NonNull<Node<T>>,
    owns: PhantomData<Node<T>>,
}

/// A handle that does not keep its value alive.
pub struct WeakShared<T: Pooled> {
    node: NonNull<Node<T>>,
    owns: PhantomData<Node<T>>,
}

// SAFETY: as for `Arc`: handles on several threads give out `&T` there (so `T: Sync`), and the last of them drops the
// value on its thread (so `T: Send`). The counts are atomic.
unsafe impl<T: Pooled + Send + Sync> Send for Shared<T> {}
// SAFETY: the same.
unsafe impl<T: Pooled + Send + Sync> Sync for Shared<T> {}
// SAFETY: the same: a weak handle can become a strong one.
unsafe impl<T: Pooled + Send + Sync> Send for WeakShared<T> {}
// SAFETY: the same.
unsafe impl<T: Pooled + Send + Sync> Sync for WeakShared<T> {}

impl<T: Pooled> Shared<T> {
    /// The first handle of a value.
    #[inline]
    pub fn new(value: T) -> Shared<T> {
        Shared::made_by(|| value)
    }

    /// Like [`Shared::new`] of the result of `make`. The memory is allocated first, so that the value is written in
    /// place.
    #[inline(always)]
    pub fn made_by(make: impl FnOnce() -> T) -> Shared<T> {
        // A thread that is ending keeps no memory.
        let spare = T::spare().try_with(Spare::take).ok().flatten();
        let node = spare.unwrap_or_else(allocate);
        // SAFETY: the memory is that of a node, and nothing else uses it; if `make` panics, it is leaked.
        unsafe {
            (&raw mut (*node.as_ptr()).value).write(make());
            (&raw mut (*node.as_ptr()).counts).write(AtomicU64::new(ONLY));
        }
        Shared { node, owns: PhantomData }
    }

    /// A handle that does not keep the value alive.
    pub fn downgrade(&self) -> WeakShared<T> {
        add(self.counts(), WEAK);
        WeakShared { node: self.node, owns: PhantomData }
    }

    /// Whether both are handles of one value.
    #[inline]
    pub fn ptr_eq(one: &Shared<T>, other: &Shared<T>) -> bool {
        one.node == other.node
    }

    /// The address of the value.
    #[inline]
    pub fn as_ptr(&self) -> *const T {
        &raw const **self
    }

    /// The value, mutably, if there is no other handle of any kind.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        if !is_only(self.counts()) {
            return None;
        }
        // SAFETY: there is no other handle (see `is_only`), and this one is borrowed exclusively as long as the result.
        Some(unsafe { &mut self.node.as_mut().value })
    }

    /// Whether there are other strong handles.
    pub fn has_others(&self) -> bool {
        self.counts().load(Ordering::Acquire) % WEAK > STRONG
    }

    /// The number of strong handles, this one among them. Other threads may change it at any time.
    pub fn n_strong(&self) -> usize {
        (self.counts().load(Ordering::Acquire) % WEAK) as usize
    }

    #[inline(always)]
    fn counts(&self) -> &AtomicU64 {
        // SAFETY: the memory lives as long as there are handles. The reference is to the counts alone.
        unsafe { &(*self.node.as_ptr()).counts }
    }

    /// Drops a handle that was not the only one.
    #[inline(never)]
    fn drop_one_of_many(&mut self) {
        let before = self.counts().fetch_sub(STRONG, Ordering::Release);
        if before % WEAK != STRONG {
            return;
        }
        fence(Ordering::Acquire);
        // The weak handle that the strong ones share. It frees the memory, even if dropping the value panics.
        let _weak = WeakShared { node: self.node, owns: PhantomData::<Node<T>> };
        // SAFETY: this was the last strong handle, weak ones cannot upgrade any more, and the fence orders everything
        // that was done through other handles before this. The memory is freed later, without dropping the value again.
        unsafe { std::ptr::drop_in_place(&raw mut (*self.node.as_ptr()).value) }
    }
}

/// Whether the counts are those of a single strong handle, which the caller has.
///
/// A handle is created by a change of the counts, or together with them. So whoever has one reads its own change or a
/// later one. If the load shows one strong handle and no weak one, the handle is the caller's. A later change would
/// have been made through that handle, so the caller would have read it. All earlier changes continue the release
/// sequences of those that released. So this load orders what other handles did before it.
#[inline(always)]
fn is_only(counts: &AtomicU64) -> bool {
    counts.load(Ordering::Acquire) == ONLY
}

/// Adds a handle.
#[inline(always)]
fn add(counts: &AtomicU64, handle: u64) {
    // A new handle is made through an existing one, so no ordering is needed.
    let before = counts.fetch_add(handle, Ordering::Relaxed);
    if before % WEAK >= TOO_MANY || before / WEAK >= TOO_MANY {
        // Only handles leaked in a loop get here. Going on would free a value in use.
        abort();
    }
}

impl<T: Pooled> Deref for Shared<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: a strong handle keeps the value alive, and only `get_mut` borrows it mutably.
        unsafe { &self.node.as_ref().value }
    }
}

impl<T: Pooled> Clone for Shared<T> {
    #[inline]
    fn clone(&self) -> Shared<T> {
        add(self.counts(), STRONG);
        Shared { node: self.node, owns: PhantomData }
    }
}

impl<T: Pooled> Drop for Shared<T> {
    #[inline(always)]
    fn drop(&mut self) {
        if !is_only(self.counts()) {
            return self.drop_one_of_many();
        }
        // Dropped after the value, even if that panics.
        let _memory = Memory(self.node);
        // SAFETY: there is no other handle, and nothing uses this one after it was dropped.
        unsafe { std::ptr::drop_in_place(&raw mut (*self.node.as_ptr()).value) }
    }
}

impl<T: Pooled> WeakShared<T> {
    /// A strong handle, if the value is still alive.
    pub fn upgrade(&self) -> Option<Shared<T>> {
        let more = |counts: u64| {
            let strong = counts % WEAK;
            if strong >= TOO_MANY {
                abort();
            }
            (strong > 0).then_some(counts + STRONG)
        };
        self.counts().fetch_update(Ordering::Acquire, Ordering::Relaxed, more).ok()?;
        Some(Shared { node: self.node, owns: PhantomData })
    }

    /// Whether the value was dropped.
    pub fn is_gone(&self) -> bool {
        self.counts().load(Ordering::Acquire) % WEAK < STRONG
    }

    fn counts(&self) -> &AtomicU64 {
        // SAFETY: the memory lives as long as there are handles. The reference is to the counts alone.
        unsafe { &(*self.node.as_ptr()).counts }
    }
}

impl<T: Pooled> Clone for WeakShared<T> {
    fn clone(&self) -> WeakShared<T> {
        add(self.counts(), WEAK);
        WeakShared { node: self.node, owns: PhantomData }
    }
}

impl<T: Pooled> Drop for WeakShared<T> {
    fn drop(&mut self) {
        if self.counts().fetch_sub(WEAK, Ordering::Release) != WEAK {
            return;
        }
        fence(Ordering::Acquire);
        // No handle of any kind is left, and the value was dropped with the last strong one.
        drop(Memory(self.node));
    }
}

impl<T: Pooled + fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: Pooled> fmt::Debug for WeakShared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(weak)")
    }
}

impl<T: Pooled> From<T> for Shared<T> {
    fn from(value: T) -> Shared<T> {
        Shared::new(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    /// Counts how often it was dropped.
    struct Counted(Arc<AtomicUsize>, Box<u64>);

    impl Drop for Counted {
        fn drop(&mut self) {
            assert_eq!(*self.1, 7, "a value is whole when it goes");
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes types shareable in tests.
    macro_rules! pooled {
        ($ty:ty) => {
            impl Pooled for $ty {
                fn spare() -> &'static LocalKey<Spare<$ty>> {
                    thread_local! { static SPARE: Spare<$ty> = const { Spare::new() }; }
                    &SPARE
                }
            }
        };
    }
    pooled!(Counted);
    pooled!(i32);

    fn counted() -> (Shared<Counted>, Arc<AtomicUsize>) {
        let dropped = Arc::new(AtomicUsize::new(0));
        (Shared::new(Counted(dropped.clone(), Box::new(7))), dropped)
    }

    #[test]
    fn the_last_strong_handle_drops_the_value() {
        let n = |dropped: &AtomicUsize| dropped.load(Ordering::Relaxed);
        let (one, dropped) = counted();
        let other = one.clone();
        assert!(Shared::ptr_eq(&one, &other) && one.as_ptr() == other.as_ptr());
        drop(one);
        assert_eq!(n(&dropped), 0);
        drop(other);
        assert_eq!(n(&dropped), 1);

        let (one, dropped) = counted();
        let (weak, again) = (one.downgrade(), one.downgrade().clone());
        assert!(Shared::ptr_eq(&weak.upgrade().expect("it is alive"), &one));
        drop(one);
        assert_eq!(n(&dropped), 1);
        assert!(weak.upgrade().is_none() && again.upgrade().is_none());
        drop((weak, again));
        assert_eq!(n(&dropped), 1);
    }

    #[test]
    fn changing_takes_the_only_handle() {
        let mut one = Shared::new(3);
        *one.get_mut().expect("there is no other") += 1;
        let weak = one.downgrade();
        assert!(one.get_mut().is_none());
        drop(weak);
        let other = one.clone();
        assert!(one.get_mut().is_none());
        drop(other);
        assert_eq!(one.get_mut().copied(), Some(4));
    }

    #[test]
    fn threads_that_clone_and_drop_free_once() {
        for round in 0..200 {
            let (first, dropped) = counted();
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (own, weak) = (first.clone(), first.downgrade());
                    scope.spawn(move || {
                        for step in 0..50 {
                            let copies = [own.clone(), own.clone()];
                            let up = weak.upgrade().expect("own keeps it alive");
                            assert_eq!(*up.1, 7, "{round} {thread} {step}");
                            drop((up, copies, own.downgrade()));
                        }
                        drop(own);
                        // Others may or may not have it still.
                        if let Some(up) = weak.upgrade() {
                            assert_eq!(*up.1, 7);
                        }
                    });
                }
                drop(first);
            });
            assert_eq!(dropped.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn a_value_that_panics_when_dropped_leaks_no_memory() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("on purpose");
            }
        }
        pooled!(Panics);
        let one = Shared::new(Panics);
        let (other, weak) = (one.clone(), one.downgrade());
        drop(one);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(other))).is_err());
        assert!(weak.upgrade().is_none());
        drop(weak);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(Shared::new(Panics)))).is_err());
        assert_eq!(Panics::spare().with(|spare| spare.n.get()), 1, "it was used again, and is kept");
    }

    #[test]
    fn memory_is_kept_up_to_a_limit() {
        let n = || i32::spare().with(|spare| spare.n.get());
        let many: Vec<Shared<i32>> = (0..2 * MOST_SPARE as i32).map(Shared::new).collect();
        let addresses: Vec<*const i32> = many.iter().map(Shared::as_ptr).collect();
        let before = n();
        drop(many);
        assert_eq!((before, n()), (0, MOST_SPARE));
        let again = Shared::new(7);
        assert!(addresses.contains(&again.as_ptr()) && n() == MOST_SPARE - 1);
        // The thread that drops gets the memory, here one that ends.
        std::thread::scope(|scope| scope.spawn(move || drop(again)).join().expect("nothing panics"));
        assert_eq!(n(), MOST_SPARE - 1);
    }
}
