//! Thread-local key sets that are added to, and taken from, the keys of every call.
//!
//! Guards change them and put them back when dropped. An include or exclude guard undoes exactly the bits it added,
//! so guards for the same key nest; a force guard replaces both sets and restores both. Guards belong to the thread
//! that made them and cannot leave it.

use crate::dispatch::key::alias::{AUTOCAST_KEYS, AUTOGRAD_AND_INPLACE_KEYS, AUTOGRAD_KEYS};
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::set::KeySet;
use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;

/// The two sets of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalKeySets {
    /// Added to the keys of every call.
    pub included: KeySet,
    /// Taken from the keys of every call, after the included ones were added.
    pub excluded: KeySet,
}

impl LocalKeySets {
    /// The sets of a fresh thread.
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

/// Keeps keys in the included set; made by [`include()`].
#[derive(Debug)]
#[must_use = "the keys are included only while the guard lives"]
pub struct IncludeGuard {
    added: KeySet,
    not_send: PhantomData<Rc<()>>,
}

/// Keeps keys in the excluded set; made by [`exclude()`].
#[derive(Debug)]
#[must_use = "the keys are excluded only while the guard lives"]
pub struct ExcludeGuard {
    added: KeySet,
    not_send: PhantomData<Rc<()>>,
}

/// Replaces both sets; made by [`force()`].
#[derive(Debug)]
#[must_use = "the sets are replaced only while the guard lives"]
pub struct ForceGuard {
    saved: LocalKeySets,
    not_send: PhantomData<Rc<()>>,
}

/// Includes keys in every call of this thread.
pub fn include(keys: impl Into<KeySet>) -> IncludeGuard {
    let mut local = LOCAL.get();
    let added = without(keys.into(), local.included);
    local.included = local.included | added;
    LOCAL.set(local);
    IncludeGuard { added, not_send: PhantomData }
}

/// Excludes keys from every call of this thread. Naming one backend of a functionality excludes it on all backends,
/// as a difference of key sets does.
pub fn exclude(keys: impl Into<KeySet>) -> ExcludeGuard {
    let mut local = LOCAL.get();
    let added = without(keys.into(), local.excluded);
    local.excluded = local.excluded | added;
    LOCAL.set(local);
    ExcludeGuard { added, not_send: PhantomData }
}

/// Replaces both sets, for instance by those of the thread that a call was made on.
pub fn force(sets: LocalKeySets) -> ForceGuard {
    ForceGuard { saved: LOCAL.replace(sets), not_send: PhantomData }
}

/// Excludes the autograd keys: calls are not recorded for gradients.
pub fn below_autograd() -> ExcludeGuard {
    exclude(AUTOGRAD_KEYS)
}

/// Excludes the autograd keys and the key that tracks views and versions.
pub fn below_ad_inplace_or_view() -> ExcludeGuard {
    exclude(AUTOGRAD_AND_INPLACE_KEYS)
}

/// Puts a key that does not exist per backend into the excluded set, or takes it out; whoever does so puts it back.
pub(crate) fn set_excluded(key: DispatchKey, is_excluded: bool) {
    let (mut local, key) = (LOCAL.get(), KeySet::of(key));
    local.excluded = if is_excluded { local.excluded | key } else { without(local.excluded, key) };
    LOCAL.set(local);
}

/// The bits of `keys` that `present` lacks, backends included, unlike the difference of key sets.
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
