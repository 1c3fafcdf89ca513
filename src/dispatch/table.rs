//! The rules that select the kernel of a slot.
//!
//! A pure function from the registrations of one operator, and the fallback of a key, to the kernel of that key. The
//! order of registrations makes no difference.

use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::alias::{AUTOGRAD_OTHER_BACKENDS, backends_of_autograd, includes};
use crate::dispatch::key::dispatch_key::DispatchKey;
use std::sync::{Arc, OnceLock};

/// The rule that selected the kernel of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Nothing is registered that applies.
    Missing,
    /// A kernel registered to the key itself.
    Direct,
    /// A kernel for all backends, from one of the two explicit aliases.
    DefaultBackend,
    /// The decomposition for ragged tensors.
    Nested,
    /// The decomposition.
    Math,
    /// The decomposition and a backend kernel both claim `AutogradOther`.
    AmbiguousAutogradOther,
    /// A kernel for all autograd keys.
    Autograd,
    /// The decomposition for mapped tensors.
    Batched,
    /// The fallback of the key.
    Fallback,
}

impl Source {
    /// The label in table dumps.
    pub const fn label(self) -> &'static str {
        match self {
            Source::Missing => "missing",
            Source::Direct => "kernel",
            Source::DefaultBackend => "default backend kernel",
            Source::Nested => "nested kernel",
            Source::Math => "math kernel",
            Source::AmbiguousAutogradOther => "ambiguous autogradother",
            Source::Autograd => "autograd kernel",
            Source::Batched => "batched kernel",
            Source::Fallback => "backend fallback",
        }
    }
}

/// The kernel of a slot and its source. With [`Source::Missing`] there is no kernel.
pub(crate) type Slot<'a> = (Option<&'a Arc<Kernel>>, Source);

/// The active kernels of one operator: at most one per runtime or alias key.
pub(crate) trait ActiveKernels {
    /// The newest kernel registered to exactly this key.
    fn get(&self, key: DispatchKey) -> Option<&Arc<Kernel>>;

    /// The keys that have a kernel.
    fn keys(&self) -> impl Iterator<Item = DispatchKey>;
}

/// The kernel of the slot of `key`.
pub(crate) fn compute_slot<'a>(
    kernels: &'a impl ActiveKernels,
    fallback: Option<&'a Arc<Kernel>>,
    key: DispatchKey,
) -> Slot<'a> {
    use DispatchKey as K;
    let is_undefined = key == K::Undefined;
    let found = |alias: K| kernels.get(alias).filter(|_| includes(alias, key));
    let found_or_undefined = |alias: K| kernels.get(alias).filter(|_| is_undefined || includes(alias, key));

    if let Some(kernel) = kernels.get(key) {
        return (Some(kernel), Source::Direct);
    }
    let explicit = found_or_undefined(K::CompositeExplicitAutogradNonFunctional)
        .or_else(|| found_or_undefined(K::CompositeExplicitAutograd));
    if let Some(kernel) = explicit {
        return (Some(kernel), Source::DefaultBackend);
    }
    if let Some(kernel) = found(K::CompositeImplicitAutogradNestedTensor) {
        return (Some(kernel), Source::Nested);
    }
    if let Some(kernel) = found_or_undefined(K::CompositeImplicitAutograd) {
        // A decomposition would hide the backend kernel from autograd, so it yields to a kernel of its own backend.
        // `AutogradOther` serves several backends, so there the choice is ambiguous.
        let has_other = || kernels.keys().any(|registered| AUTOGRAD_OTHER_BACKENDS.has(registered));
        if key == K::AutogradOther && has_other() {
            return (Some(ambiguous()), Source::AmbiguousAutogradOther);
        }
        let backends = backends_of_autograd(key);
        let shielded = kernels.get(K::CompositeExplicitAutograd).is_some()
            || kernels.keys().any(|registered| backends.has(registered));
        if !shielded {
            return (Some(kernel), Source::Math);
        }
    }
    if let Some(kernel) = found(K::Autograd) {
        return (Some(kernel), Source::Autograd);
    }
    if let Some(kernel) = found(K::FuncTorchBatchedDecomposition) {
        return (Some(kernel), Source::Batched);
    }
    (fallback, if fallback.is_some() { Source::Fallback } else { Source::Missing })
}

/// Whether a registration to `registered` can change the slot of `key`.
pub(crate) fn affects(registered: DispatchKey, key: DispatchKey) -> bool {
    registered.is_alias() || registered == key || backends_of_autograd(key).has(registered)
}

fn ambiguous() -> &'static Arc<Kernel> {
    static KERNEL: OnceLock<Arc<Kernel>> = OnceLock::new();
    KERNEL.get_or_init(|| Arc::new(Kernel::ambiguous()))
}
