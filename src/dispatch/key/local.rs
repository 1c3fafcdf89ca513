//! Thread-local key sets, which are added to the keys of every call or removed from them.
//!
//! Guards change the sets, and restore them when dropped. An include or exclude guard undoes exactly the bits that it
//! added, so guards of the same key nest. A force guard replaces and restores both sets. A guard belongs to the thread
//! that made it.

use crate::dispatch::key::alias::{AUTOCAST_KEYS, AUTOGRAD_AND_INPLACE_KEYS, AUTOGRAD_KEYS};
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::set::KeySet;
use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;

/// The two key sets of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalKeySets {
    /// Added to the keys of every call.
    pub included: KeySet,
    /// Removed from the keys of every call, after the included keys were added.
    pub excluded: KeySet,
}

impl LocalKeySets {
    /// The sets of a new thread.
    pub const DEFAULT: LocalKeySets = LocalKeySets {
        included: KeySet::from_keys(&[DispatchKey::BackendSelect, DispatchKey::ADInplaceOrView]),
        excluded: AUTOCAST_KEYS,
    };

    /// The keys of a call whose arguments have the keys `arguments`.
    #[inline]
    pub const fn apply(self, arguments: KeySet) -> KeySet {
        arguments.union(self.included).difference(self.excluded)
    }
}

thread_local! {
    static LOCAL: Cell<LocalKeySets> = const { Cell::new(LocalKeySets::DEFAULT) };
}

/// The sets of this thread.
#[inline]
pub fn local_key_sets() -> LocalKeySets {
    LOCAL.get()
}

/// Keeps keys in the included set. Made by [`include()`].
#[derive(Debug)]
#[must_use = "the keys are included only while the guard lives"]
pub struct IncludeGuard {
    added: KeySet,
    not_send: PhantomData<Rc<()>>,
}

/// Keeps keys in the excluded set. Made by [`exclude()`].
#[derive(Debug)]
#[must_use = "the keys are excluded only while the guard lives"]
pub struct ExcludeGuard {
    added: KeySet,
    not_send: PhantomData<Rc<()>>,
}

/// Replaces both sets. Made by [`force()`].
#[derive(Debug)]
#[must_use = "the sets are replaced only while the guard lives"]
pub struct ForceGuard {
    saved: LocalKeySets,
    not_send: PhantomData<Rc<()>>,
}

/// Includes keys in every call of this thread until the guard is dropped.
pub fn include(keys: impl Into<KeySet>) -> IncludeGuard {
    let mut local = LOCAL.get();
    let added = without(keys.into(), local.included);
    local.included = local.included | added;
    LOCAL.set(local);
    IncludeGuard { added, not_send: PhantomData }
}

/// Excludes keys from every call of this thread until the guard is dropped. A per-backend key excludes its
/// functionality on all backends, as in a difference of key sets.
pub fn exclude(keys: impl Into<KeySet>) -> ExcludeGuard {
    let mut local = LOCAL.get();
    let added = without(keys.into(), local.excluded);
    local.excluded = local.excluded | added;
    LOCAL.set(local);
    ExcludeGuard { added, not_send: PhantomData }
}

/// Replaces both sets until the guard is dropped, for instance by those of another thread.
pub fn force(sets: LocalKeySets) -> ForceGuard {
    ForceGuard { saved: LOCAL.replace(sets), not_send: PhantomData }
}

/// Excludes the autograd keys, so that calls are not recorded for gradients.
pub fn below_autograd() -> ExcludeGuard {
    exclude(AUTOGRAD_KEYS)
}

/// Excludes the autograd keys and the key that tracks views and versions.
pub fn below_ad_inplace_or_view() -> ExcludeGuard {
    exclude(AUTOGRAD_AND_INPLACE_KEYS)
}

/// Adds a key to the excluded set, or removes it. The caller restores it. The key must not exist per backend.
pub(crate) fn set_excluded(key: DispatchKey, is_excluded: bool) {
    let (mut local, key) = (LOCAL.get(), KeySet::of(key));
    local.excluded = if is_excluded { local.excluded | key } else { without(local.excluded, key) };
    LOCAL.set(local);
}

/// The bits of `keys` that are not in `present`. Unlike the difference of key sets, this removes backend bits too.
fn without(keys: KeySet, present: KeySet) -> KeySet {
    KeySet::from_bits(keys.bits() & !present.bits())
}

impl Drop for IncludeGuard {
    fn drop(&mut self) {
        let mut local = LOCAL.get();
        local.included = without(local.included, self.added);
        LOCAL.set(local);
    }
}

impl Drop for ExcludeGuard {
    fn drop(&mut self) {
        let mut local = LOCAL.get();
        local.excluded = without(local.excluded, self.added);
        LOCAL.set(local);
    }
}

impl Drop for ForceGuard {
    fn drop(&mut self) {
        LOCAL.set(self.saved);
    }
}

/// Whether this thread is tracing.
pub fn is_tracing() -> bool {
    let sets = local_key_sets();
    sets.included.has(DispatchKey::Tracer) && !sets.excluded.has(DispatchKey::Tracer)
}
