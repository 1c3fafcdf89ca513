//! Thread-local key sets, which are added to the keys of every call or removed from them.
//!
//! Guards change them while they live. The sets are those of all live guards, in the order in which they were made,
//! so guards may be dropped in any order. Guards belong to the thread that made them and cannot leave it.

use crate::dispatch::key::alias::{AUTOCAST_KEYS, AUTOGRAD_AND_INPLACE_KEYS, AUTOGRAD_KEYS};
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::set::KeySet;
use crate::scope::{Change, SettingGuard, ThreadSetting, thread_setting};

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

thread_setting! {
    /// The sets of this thread.
    struct LocalSets(LocalKeySets, KeyChange) = LocalKeySets::DEFAULT;
}

/// What a guard does to the sets.
#[derive(Debug, Clone, Copy)]
enum KeyChange {
    Include(KeySet),
    Exclude(KeySet),
    /// Takes keys that do not exist per backend out of the excluded set.
    Admit(KeySet),
    Force(LocalKeySets),
}

impl Change<LocalKeySets> for KeyChange {
    #[inline]
    fn apply(&self, before: LocalKeySets) -> LocalKeySets {
        match *self {
            KeyChange::Include(keys) => LocalKeySets { included: before.included | keys, ..before },
            KeyChange::Exclude(keys) => LocalKeySets { excluded: before.excluded | keys, ..before },
            KeyChange::Admit(keys) => LocalKeySets { excluded: without(before.excluded, keys), ..before },
            KeyChange::Force(sets) => sets,
        }
    }
}

/// The sets of this thread.
#[inline]
pub fn local_key_sets() -> LocalKeySets {
    LocalSets::get()
}

/// Keeps keys in the included set. Made by [`include()`].
#[derive(Debug)]
#[must_use = "the keys are included only while the guard lives"]
pub struct IncludeGuard {
    _sets: SettingGuard<LocalSets>,
}

/// Keeps keys in the excluded set. Made by [`exclude()`].
#[derive(Debug)]
#[must_use = "the keys are excluded only while the guard lives"]
pub struct ExcludeGuard {
    _sets: SettingGuard<LocalSets>,
}

/// Replaces both sets. Made by [`force()`].
#[derive(Debug)]
#[must_use = "the sets are replaced only while the guard lives"]
pub struct ForceGuard {
    _sets: SettingGuard<LocalSets>,
}

/// Keeps keys out of the excluded set; made by [`admit`].
#[derive(Debug)]
#[must_use = "the keys are admitted only while the guard lives"]
pub(crate) struct AdmitGuard {
    _sets: SettingGuard<LocalSets>,
}

/// Includes keys in every call of this thread until the guard is dropped.
#[inline]
pub fn include(keys: impl Into<KeySet>) -> IncludeGuard {
    IncludeGuard { _sets: LocalSets::change(KeyChange::Include(keys.into())) }
}

/// Excludes keys from every call of this thread until the guard is dropped. A per-backend key excludes its
/// functionality on all backends, as in a difference of key sets.
#[inline]
pub fn exclude(keys: impl Into<KeySet>) -> ExcludeGuard {
    ExcludeGuard { _sets: LocalSets::change(KeyChange::Exclude(keys.into())) }
}

/// Takes keys that do not exist per backend out of the excluded set.
pub(crate) fn admit(keys: KeySet) -> AdmitGuard {
    AdmitGuard { _sets: LocalSets::change(KeyChange::Admit(keys)) }
}

/// Replaces both sets until the guard is dropped, for instance by those of another thread.
pub fn force(sets: LocalKeySets) -> ForceGuard {
    ForceGuard { _sets: LocalSets::change(KeyChange::Force(sets)) }
}

/// Excludes the autograd keys, so that calls are not recorded for gradients.
pub fn below_autograd() -> ExcludeGuard {
    exclude(AUTOGRAD_KEYS)
}

/// Excludes the autograd keys and the key that tracks views and versions.
pub fn below_ad_inplace_or_view() -> ExcludeGuard {
    exclude(AUTOGRAD_AND_INPLACE_KEYS)
}

/// The bits of `keys` that are not in `present`. Unlike the difference of key sets, this removes backend bits too.
fn without(keys: KeySet, present: KeySet) -> KeySet {
    KeySet::from_bits(keys.bits() & !present.bits())
}

/// Whether this thread is tracing.
pub fn is_tracing() -> bool {
    let sets = local_key_sets();
    sets.included.has(DispatchKey::Tracer) && !sets.excluded.has(DispatchKey::Tracer)
}
