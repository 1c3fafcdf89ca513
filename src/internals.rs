//! What the crate's own tests, benches and tour look at: every floor as it is.
//!
//! Nothing here is part of the public interface, and any of it may change in any version.

/// A floor under its name, with modules of it that are not public there.
macro_rules! floor {
    ($(#[$doc:meta])* $floor:ident: $($module:ident)*) => {
        $(#[$doc])*
        pub mod $floor {
            pub use crate::$floor::*;
            $(
                /// The module of that name.
                pub mod $module {
                    pub use crate::$floor::$module::*;
                }
            )*
        }
    };
}

floor!(
    /// Programs.
    ir: attr attrs autodiff call_key convolution decompose dot dtype entity graph indexing infer moves
        packed passes pattern philox pooling random routine row scalar shape slopes text verify view windows
);
floor!(
    /// Memory and the order of work.
    device: access block generator region shared storage
);
floor!(
    /// Which nodes become one kernel.
    fusion:
);
floor!(
    /// Kernels and code tiers.
    codegen:
);
floor!(
    /// Planned programs, running.
    runtime:
);
floor!(
    /// One op now.
    eager:
);
floor!(
    /// Handles.
    tensor:
);
floor!(
    /// What a call means.
    dispatch: builtins dispatcher key operator schema signature table
);
floor!(
    /// Operators.
    ops:
);
floor!(
    /// Tracing, mapping, autocast.
    transforms:
);
floor!(
    /// Capture, guards, the pipeline.
    compile: backoff calibration compiled guard options passes_page pipeline repro
);

/// Switches.
pub mod debug {
    pub use crate::debug::*;
}

/// Text inside HTML.
pub mod escaped {
    pub use crate::escaped::*;
}
