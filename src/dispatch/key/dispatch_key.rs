//! Dispatch keys: the reasons to handle a call.
//!
//! A *functionality* is one such reason (dense compute, autograd, tracing, …). Some functionalities exist once per
//! *backend*. Each such pair is a *runtime key* (`SparseCUDA`, `AutogradCPU`). An *alias key* is a name for many
//! runtime keys, and is only used to register kernels.
//!
//! The order of [`DispatchKey`] is: `Undefined`, functionalities from lowest to highest priority, runtime keys per
//! functionality in backend order, alias keys. Everything else (bits, slots, names) follows from that order.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Declares the backends, the keys, and the tables that list them.
///
/// Grammar: `backends { names }`, `functionalities { /// doc, name, optionally = "printed name" }` in ascending
/// priority, `per_backend { Functionality: runtime keys in backend order }` in the order of the functionalities,
/// `aliases { /// doc, name }`.
macro_rules! declare_keys {
    (
        backends { $($backend:ident)* }
        functionalities { $($(#[$fdoc:meta])* $f:ident $(= $fname:literal)?,)* }
        per_backend { $($block:ident: $($k:ident)*;)* }
        aliases { $($(#[$adoc:meta])* $a:ident,)* }
    ) => {
        /// A kind of device, one bit of a key set.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Backend {
            $(#[doc = concat!("Tensors on `", stringify!($backend), "`.")] $backend,)*
        }

        impl Backend {
            /// Every backend, lowest priority first.
            pub const ALL: &[Backend] = &[$(Backend::$backend),*];
        }

        /// One key of the dispatcher; see the module header for the three kinds.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DispatchKey {
            /// No key: the slot of calls without tensors.
            Undefined,
            $($(#[$fdoc])* $f,)*
            $($(#[doc = concat!("One backend of `", stringify!($block), "`.")] $k,)*)*
            $($(#[$adoc])* $a,)*
        }

        impl DispatchKey {
            /// Every key, in declaration order.
            pub const ALL: &[DispatchKey] =
                &[DispatchKey::Undefined, $(DispatchKey::$f,)* $($(DispatchKey::$k,)*)* $(DispatchKey::$a,)*];

            /// Every functionality, lowest priority first; `Undefined` is not one.
            pub const FUNCTIONALITIES: &[DispatchKey] = &[$(DispatchKey::$f),*];

            /// The functionalities that exist once per backend, lowest priority first.
            pub const PER_BACKEND: &[DispatchKey] = &[$(DispatchKey::$block),*];

            /// Every alias key.
            pub const ALIASES: &[DispatchKey] = &[$(DispatchKey::$a),*];

            /// The printed name, which [`DispatchKey::from_str`] reads back.
            pub const fn name(self) -> &'static str {
                match self {
                    DispatchKey::Undefined => "Undefined",
                    $(DispatchKey::$f => declare_keys!(@name $f $($fname)?),)*
                    $($(DispatchKey::$k => stringify!($k),)*)*
                    $(DispatchKey::$a => stringify!($a),)*
                }
            }
        }

        const _: () = {
            assert!(Backend::ALL.len() <= 16, "a key set has room for 16 backends");
            assert!(Backend::ALL.len() + DispatchKey::FUNCTIONALITIES.len() <= 64, "a key set has 64 bits");
            let block_sizes: &[usize] = &[$([$(DispatchKey::$k),*].len()),*];
            let mut i = 0;
            while i < block_sizes.len() {
                assert!(block_sizes[i] == Backend::ALL.len(), "every block lists every backend");
                i += 1;
            }
        };
    };
    (@name $f:ident $fname:literal) => { $fname };
    (@name $f:ident) => { stringify!($f) };
}

declare_keys! {
    backends { CPU CUDA HIP XLA MPS IPU XPU HPU VE Lazy MTIA MAIA PrivateUse1 PrivateUse2 PrivateUse3 Meta }
    functionalities {
        /// Ordinary strided tensors.
        Dense,
        /// An FPGA; not customizable per backend.
        FPGA,
        /// A Vulkan device; not customizable per backend.
        Vulkan,
        /// A Metal device; not customizable per backend.
        Metal,
        /// Quantized tensors.
        Quantized,
        /// A custom random number generator.
        CustomRNGKeyId,
        /// Tensors in an opaque oneDNN layout.
        MkldnnCPU,
        /// Coordinate-format sparse tensors.
        Sparse,
        /// Compressed sparse tensors.
        SparseCsr,
        /// Ragged tensors.
        NestedTensor,
        /// Chooses the backend of factory functions.
        BackendSelect,
        /// User modes and subclasses, below autograd.
        Python,
        /// Tensors with a shape and a device, but without data.
        Fake,
        /// Bottom of the stack of function transforms.
        FuncTorchDynamicLayerBackMode,
        /// Replaces in-place writes and views by functional calls.
        Functionalize,
        /// Tensors with named dimensions.
        Named,
        /// Tensors with a pending conjugation.
        Conjugate,
        /// Tensors with a pending negation.
        Negative,
        /// Tensors known to be zero.
        ZeroTensor,
        /// Version counters and view tracking.
        ADInplaceOrView,
        /// Autograd of backends without an autograd key of their own.
        AutogradOther,
        /// Autograd, once per backend.
        AutogradFunctionality,
        /// Autograd of ragged tensors.
        AutogradNestedTensor,
        /// Records calls into a graph.
        Tracer,
        /// Mixed precision on the CPU.
        AutocastCPU,
        /// Mixed precision on MTIA.
        AutocastMTIA,
        /// Mixed precision on MAIA.
        AutocastMAIA,
        /// Mixed precision on XPU.
        AutocastXPU,
        /// Mixed precision on IPU.
        AutocastIPU,
        /// Mixed precision on HPU.
        AutocastHPU,
        /// Mixed precision on XLA.
        AutocastXLA,
        /// Mixed precision on MPS.
        AutocastMPS,
        /// Mixed precision on CUDA.
        AutocastCUDA,
        /// Mixed precision on the out-of-tree backend.
        AutocastPrivateUse1,
        /// Tensors with a mapped dimension (vmap).
        FuncTorchBatched,
        /// Ragged tensors with a mapped dimension.
        BatchedNestedTensor,
        /// Random operators inside vmap.
        FuncTorchVmapMode,
        /// The older form of mapped tensors.
        Batched,
        /// The older form of the vmap mode.
        VmapMode,
        /// Tensors wrapped for nested differentiation.
        FuncTorchGradWrapper,
        /// Tensors whose initialization is recorded and deferred.
        DeferredInit,
        /// Complex numbers, which the keys below see as pairs of real numbers.
        Complex,
        /// Restores captured thread-local state.
        PythonTLSSnapshot,
        /// Top of the stack of function transforms.
        FuncTorchDynamicLayerFrontMode,
        /// A wrapper key for tests.
        TestingOnlyGenericWrapper = "TESTING_ONLY_GenericWrapper",
        /// A mode key for tests.
        TestingOnlyGenericMode = "TESTING_ONLY_GenericMode",
        /// Sees calls before all other keys except `PythonDispatcher`.
        PreDispatch,
        /// User modes ([`crate::dispatch::modes`]), which see calls first.
        PythonDispatcher,
    }
    per_backend {
        Dense: CPU CUDA HIP XLA MPS IPU XPU HPU VE Lazy MTIA MAIA PrivateUse1 PrivateUse2 PrivateUse3 Meta;
        Quantized: QuantizedCPU QuantizedCUDA QuantizedHIP QuantizedXLA QuantizedMPS QuantizedIPU QuantizedXPU
            QuantizedHPU QuantizedVE QuantizedLazy QuantizedMTIA QuantizedMAIA QuantizedPrivateUse1
            QuantizedPrivateUse2 QuantizedPrivateUse3 QuantizedMeta;
        Sparse: SparseCPU SparseCUDA SparseHIP SparseXLA SparseMPS SparseIPU SparseXPU SparseHPU SparseVE SparseLazy
            SparseMTIA SparseMAIA SparsePrivateUse1 SparsePrivateUse2 SparsePrivateUse3 SparseMeta;
        SparseCsr: SparseCsrCPU SparseCsrCUDA SparseCsrHIP SparseCsrXLA SparseCsrMPS SparseCsrIPU SparseCsrXPU
            SparseCsrHPU SparseCsrVE SparseCsrLazy SparseCsrMTIA SparseCsrMAIA SparseCsrPrivateUse1
            SparseCsrPrivateUse2 SparseCsrPrivateUse3 SparseCsrMeta;
        NestedTensor: NestedTensorCPU NestedTensorCUDA NestedTensorHIP NestedTensorXLA NestedTensorMPS NestedTensorIPU
            NestedTensorXPU NestedTensorHPU NestedTensorVE NestedTensorLazy NestedTensorMTIA NestedTensorMAIA
            NestedTensorPrivateUse1 NestedTensorPrivateUse2 NestedTensorPrivateUse3 NestedTensorMeta;
        AutogradFunctionality: AutogradCPU AutogradCUDA AutogradHIP AutogradXLA AutogradMPS AutogradIPU AutogradXPU
            AutogradHPU AutogradVE AutogradLazy AutogradMTIA AutogradMAIA AutogradPrivateUse1 AutogradPrivateUse2
            AutogradPrivateUse3 AutogradMeta;
    }
    aliases {
        /// All autograd keys.
        Autograd,
        /// A decomposition that autograd sees through. It serves all backends and all autograd keys.
        CompositeImplicitAutograd,
        /// A decomposition for mapped tensors only.
        FuncTorchBatchedDecomposition,
        /// Like `CompositeImplicitAutograd`, for ragged tensors only.
        CompositeImplicitAutogradNestedTensor,
        /// A kernel for all backends, without a derivative.
        CompositeExplicitAutograd,
        /// Like `CompositeExplicitAutograd`, except for backends that need functional kernels.
        CompositeExplicitAutogradNonFunctional,
    }
}

const N_BACKENDS: usize = Backend::ALL.len();
const FIRST_RUNTIME: usize = 1 + DispatchKey::FUNCTIONALITIES.len();
const FIRST_ALIAS: usize = FIRST_RUNTIME + DispatchKey::PER_BACKEND.len() * N_BACKENDS;

/// Position of a per-backend functionality in [`DispatchKey::PER_BACKEND`], by functionality index.
const BLOCK_OF: [Option<u8>; FIRST_RUNTIME] = {
    let mut blocks = [None; FIRST_RUNTIME];
    let mut block = 0;
    while block < DispatchKey::PER_BACKEND.len() {
        blocks[DispatchKey::PER_BACKEND[block] as usize] = Some(block as u8);
        block += 1;
    }
    blocks
};

impl Backend {
    /// The name that runtime keys contain.
    pub const fn name(self) -> &'static str {
        DispatchKey::Dense.on_backend(self).name()
    }
}

impl DispatchKey {
    /// Whether the key stands for other keys, and is expanded when a kernel is registered.
    pub const fn is_alias(self) -> bool {
        self as usize >= FIRST_ALIAS
    }

    /// Whether the key is a functionality that exists once per backend (`Dense`, `AutogradFunctionality`, …).
    pub const fn is_per_backend(self) -> bool {
        (self as usize) < FIRST_RUNTIME && BLOCK_OF[self as usize].is_some()
    }

    /// Whether the key owns a slot of the dispatch table: everything but aliases and per-backend functionalities.
    pub const fn is_runtime(self) -> bool {
        !self.is_alias() && !self.is_per_backend()
    }

    /// The functionality of a key. Alias keys have none and give `Undefined`.
    pub const fn functionality(self) -> DispatchKey {
        if self.is_alias() {
            return DispatchKey::Undefined;
        }
        if (self as usize) < FIRST_RUNTIME {
            return self;
        }
        DispatchKey::PER_BACKEND[(self as usize - FIRST_RUNTIME) / N_BACKENDS]
    }

    /// The backend of a per-backend runtime key.
    pub const fn backend(self) -> Option<Backend> {
        if (self as usize) < FIRST_RUNTIME || self.is_alias() {
            return None;
        }
        Some(Backend::ALL[(self as usize - FIRST_RUNTIME) % N_BACKENDS])
    }

    /// The runtime key of a per-backend functionality on one backend. Any other key is returned unchanged.
    pub const fn on_backend(self, backend: Backend) -> DispatchKey {
        if !self.is_per_backend() {
            return self;
        }
        match BLOCK_OF[self as usize] {
            Some(block) => DispatchKey::ALL[FIRST_RUNTIME + block as usize * N_BACKENDS + backend as usize],
            None => self,
        }
    }
}

impl fmt::Display for DispatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DispatchKey {
    type Err = Error;

    fn from_str(name: &str) -> Result<DispatchKey> {
        DispatchKey::ALL.iter().copied().find(|key| key.name() == name).ok_or_else(|| Error::Parse {
            what: "dispatch key".into(),
            message: name.into(),
            at: 0,
            text: name.into(),
        })
    }
}
