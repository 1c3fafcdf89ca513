//! Dispatch keys as data: keys, key sets, alias keys, and the key sets of each thread.
//!
//! A tensor holds a key set, so this folder lies below `tensor`, and imports nothing of the dispatcher. Grad mode is
//! here because it is thread-local state that calls consult like the key sets.

pub(crate) mod alias;
pub(crate) mod default_dtype;
pub(crate) mod dispatch_key;
pub(crate) mod grad_mode;
pub(crate) mod local;
pub(crate) mod set;

pub use alias::{AUTOCAST_KEYS, AUTOGRAD_KEYS, expand, includes};
pub use dispatch_key::{Backend, DispatchKey};
pub use local::{
    ExcludeGuard, ForceGuard, IncludeGuard, LocalKeySets, below_ad_inplace_or_view, below_autograd, exclude, force,
    include, local_key_sets,
};
pub use set::{KeySet, KeySetIter, N_SLOTS, RUNTIME_KEYS};
