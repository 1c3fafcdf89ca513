//! What holds for a thread while a guard lives, whatever the order in which guards are dropped.
//!
//! A guard makes one change of a value of its thread, such as "gradients are off". The value is always that of the
//! thread's base value with the changes of all live guards, oldest first. Guards that are dropped in reverse order of
//! their making, as locals are, take the short way: the value before the guard is put back.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;
use std::thread::LocalKey;

/// A change of a value that a guard keeps up.
pub(crate) trait Change<T> {
    /// The value with this change made to it.
    fn apply(&self, before: T) -> T;
}

/// The change that replaces the value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replace<T>(pub T);

impl<T: Clone> Change<T> for Replace<T> {
    fn apply(&self, _before: T) -> T {
        self.0.clone()
    }
}

/// The changes of the live guards of a thread, oldest first.
#[derive(Debug)]
pub(crate) struct Scopes<T, C> {
    open: Vec<Scope<T, C>>,
    n_opened: u64,
}

#[derive(Debug)]
struct Scope<T, C> {
    id: ScopeId,
    /// The value that the change was applied to.
    before: T,
    change: C,
}

/// One live change of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScopeId(u64);

impl<T: Clone, C: Change<T>> Scopes<T, C> {
    pub(crate) const fn new() -> Self {
        Scopes { open: Vec::new(), n_opened: 0 }
    }

    /// Adds a change to `now`, the value so far, and returns the new value.
    #[inline]
    pub(crate) fn open(&mut self, now: T, change: C) -> (ScopeId, T) {
        self.n_opened += 1;
        let id = ScopeId(self.n_opened);
        let after = change.apply(now.clone());
        self.open.push(Scope { id, before: now, change });
        (id, after)
    }

    /// Takes a change away, and returns the value without it, and the change. `now` is the value so far.
    #[inline]
    pub(crate) fn close(&mut self, id: ScopeId, now: T) -> (T, Option<C>) {
        match self.open.pop() {
            Some(innermost) if innermost.id == id => (innermost.before, Some(innermost.change)),
            Some(innermost) => {
                self.open.push(innermost);
                self.close_inside(id, now)
            }
            None => (now, None),
        }
    }

    /// Takes a change away that others were made after.
    #[cold]
    fn close_inside(&mut self, id: ScopeId, now: T) -> (T, Option<C>) {
        let Some(at) = self.open.iter().position(|scope| scope.id == id) else { return (now, None) };
        let removed = self.open.remove(at);
        let mut value = removed.before;
        for later in &mut self.open[at..] {
            later.before = value.clone();
            value = later.change.apply(value);
        }
        (value, Some(removed.change))
    }
}

/// A value of every thread that guards change: what [`thread_setting`] declares.
pub(crate) trait ThreadSetting {
    /// The value.
    type Value: Copy + 'static;
    /// What a guard does to it.
    type Change: Change<Self::Value> + 'static;
    /// The value of this thread. It stands apart from the changes, so that reading it is one load.
    const NOW: &'static LocalKey<Cell<Self::Value>>;
    /// The changes of the live guards of this thread.
    const SCOPES: &'static LocalKey<RefCell<Scopes<Self::Value, Self::Change>>>;

    /// The value of this thread.
    #[inline]
    fn get() -> Self::Value {
        Self::NOW.get()
    }

    /// Changes the value of this thread until the guard is dropped.
    #[inline]
    fn change(change: Self::Change) -> SettingGuard<Self>
    where
        Self: Sized,
    {
        let (id, after) = Self::SCOPES.with_borrow_mut(|scopes| scopes.open(Self::NOW.get(), change));
        Self::NOW.set(after);
        SettingGuard { id, setting: PhantomData, not_send: PhantomData }
    }
}

/// Keeps up one change of a setting of the thread that made it.
#[derive(Debug)]
pub(crate) struct SettingGuard<S: ThreadSetting> {
    id: ScopeId,
    setting: PhantomData<S>,
    not_send: PhantomData<Rc<()>>,
}

impl<S: ThreadSetting> Drop for SettingGuard<S> {
    #[inline]
    fn drop(&mut self) {
        // A guard in a thread-local value may outlive the setting of its thread; then nothing is left to change.
        let closed = S::SCOPES.try_with(|scopes| scopes.borrow_mut().close(self.id, S::NOW.get()));
        if let Ok((after, _)) = closed {
            S::NOW.set(after);
        }
    }
}

/// Declares a setting: `struct Name(Value, Change) = the value of a new thread;`.
macro_rules! thread_setting {
    ($(#[$doc:meta])* struct $Name:ident($Value:ty, $Change:ty) = $base:expr;) => {
        $(#[$doc])*
        #[derive(Debug)]
        struct $Name;

        impl $crate::scope::ThreadSetting for $Name {
            type Value = $Value;
            type Change = $Change;
            const NOW: &'static std::thread::LocalKey<std::cell::Cell<$Value>> = {
                thread_local!(static NOW: std::cell::Cell<$Value> = const { std::cell::Cell::new($base) });
                &NOW
            };
            const SCOPES: &'static std::thread::LocalKey<
                std::cell::RefCell<$crate::scope::Scopes<$Value, $Change>>,
            > = {
                thread_local! {
                    static SCOPES: std::cell::RefCell<$crate::scope::Scopes<$Value, $Change>> =
                        const { std::cell::RefCell::new($crate::scope::Scopes::new()) };
                }
                &SCOPES
            };
        }
    };
}
pub(crate) use thread_setting;

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds digits to a number, so that the value shows which changes hold and in which order.
    struct Digit(u32);

    impl Change<u32> for Digit {
        fn apply(&self, before: u32) -> u32 {
            before * 10 + self.0
        }
    }

    #[test]
    fn the_value_is_that_of_the_live_changes_in_any_order_of_dropping() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let (mut scopes, mut now) = (Scopes::new(), 9);
            let mut live: Vec<(u32, ScopeId)> = Vec::new();
            for digit in 0..3 {
                let (id, after) = scopes.open(now, Digit(digit));
                live.push((digit, id));
                now = after;
            }
            for digit in order {
                let at = live.iter().position(|(of, _)| *of == digit).expect("each is closed once");
                now = scopes.close(live.remove(at).1, now).0;
                let wanted = live.iter().fold(9, |value, (digit, _)| value * 10 + digit);
                assert_eq!(now, wanted, "{order:?} at {digit}");
            }
        }
    }

    #[test]
    fn closing_twice_changes_nothing() {
        let mut scopes = Scopes::new();
        let (outer, now) = scopes.open(1, Replace(2));
        let (inner, now) = scopes.open(now, Replace(3));
        let (now, _) = scopes.close(outer, now);
        assert_eq!(scopes.close(outer, now).0, 3);
        assert_eq!(scopes.close(inner, now).0, 1);
        assert_eq!(scopes.close(inner, 1).0, 1);
    }
}
