//! The key sets that alias keys stand for.
//!
//! A kernel registered to an alias serves every key of its set that has no kernel of higher precedence. `table.rs`
//! decides the precedence.

use crate::dispatch::key::dispatch_key::{Backend, DispatchKey};
use crate::dispatch::key::set::KeySet;

use DispatchKey as K;

/// Backends whose gradients `AutogradOther` handles.
pub(crate) const AUTOGRAD_OTHER_BACKENDS: KeySet = KeySet::from_keys(&[
    K::FPGA,
    K::Vulkan,
    K::Metal,
    K::CustomRNGKeyId,
    K::MkldnnCPU,
    K::Sparse,
    K::SparseCsr,
    K::Quantized,
])
.union(KeySet::ALL_BACKENDS);

/// All keys that compute on data, except ragged tensors. Those take implicit decompositions, but no explicit ones.
pub(crate) const BACKEND_KEYS: KeySet = AUTOGRAD_OTHER_BACKENDS.add(K::Dense);

/// All autograd keys.
pub const AUTOGRAD_KEYS: KeySet =
    KeySet::from_keys(&[K::AutogradFunctionality, K::AutogradOther, K::AutogradNestedTensor])
        .union(KeySet::ALL_BACKENDS);

/// All autograd keys, and the key that tracks versions and views.
pub(crate) const AUTOGRAD_AND_INPLACE_KEYS: KeySet = AUTOGRAD_KEYS.add(K::ADInplaceOrView);

/// All mixed-precision keys.
pub const AUTOCAST_KEYS: KeySet = KeySet::from_keys(&[
    K::AutocastCPU,
    K::AutocastMTIA,
    K::AutocastMAIA,
    K::AutocastXPU,
    K::AutocastIPU,
    K::AutocastHPU,
    K::AutocastXLA,
    K::AutocastMPS,
    K::AutocastCUDA,
    K::AutocastPrivateUse1,
]);

const NESTED_KEYS: KeySet = KeySet::from_keys(&[K::NestedTensor, K::AutogradNestedTensor]).union(KeySet::ALL_BACKENDS);

const NON_FUNCTIONAL_KEYS: KeySet =
    BACKEND_KEYS.remove(K::Sparse).remove_backend(Backend::XLA).remove_backend(Backend::Lazy);

/// The keys that an alias stands for; any other key stands for itself alone.
pub const fn expand(key: DispatchKey) -> KeySet {
    match key {
        K::Autograd => AUTOGRAD_KEYS,
        K::CompositeImplicitAutograd => BACKEND_KEYS.union(AUTOGRAD_KEYS).add(K::NestedTensor),
        K::CompositeImplicitAutogradNestedTensor => NESTED_KEYS,
        K::CompositeExplicitAutograd => BACKEND_KEYS,
        K::CompositeExplicitAutogradNonFunctional => NON_FUNCTIONAL_KEYS,
        K::FuncTorchBatchedDecomposition => KeySet::of(K::FuncTorchBatched),
        // Every runtime key. A new alias stands for nothing until it has an arm above.
        runtime => KeySet::of(runtime),
    }
}

/// Whether `alias` stands for the runtime key `key`.
pub const fn includes(alias: DispatchKey, key: DispatchKey) -> bool {
    expand(alias).has(key)
}

/// The backend keys whose gradients an autograd key handles; empty for any other key.
pub(crate) const fn backends_of_autograd(key: DispatchKey) -> KeySet {
    match key.functionality() {
        K::AutogradOther => AUTOGRAD_OTHER_BACKENDS,
        K::AutogradNestedTensor => KeySet::of(K::NestedTensor).union(KeySet::ALL_BACKENDS),
        K::AutogradFunctionality => match key.backend() {
            Some(backend) => KeySet::of(K::Dense.on_backend(backend)),
            None => KeySet::EMPTY,
        },
        other => {
            debug_assert!(!AUTOGRAD_KEYS.has(other));
            KeySet::EMPTY
        }
    }
}
