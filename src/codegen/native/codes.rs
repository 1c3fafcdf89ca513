//! The code of a kernel, and its variant with non-temporal stores, compiled once a launch is large enough.

use super::code::Code;
use super::launch::LaunchShape;
use super::{Compile, Manner, Rows, Stores};
use crate::codegen::geometry::Class;
use crate::codegen::kernel::Kernel;
use crate::error::Reason;
use smallvec::SmallVec;
use std::sync::OnceLock;

/// The code of one kernel for one set of access classes.
pub(super) struct Codes {
    /// The tier's compiler.
    pub(super) compile: Compile,
    /// The classes of the kernel's accesses, operands first.
    pub(super) classes: SmallVec<[Class; 8]>,
    rows: Rows,
    /// What a launch must know.
    pub(super) shape: LaunchShape,
    cached: Code,
    streamed: OnceLock<Option<Code>>,
}

impl Codes {
    /// Compiles `kernel` with cached stores.
    ///
    /// # Errors
    /// The reason why no code is made for it.
    pub(super) fn new(compile: Compile, kernel: &Kernel, classes: &[Class], rows: Rows) -> Result<Codes, Reason> {
        let (cached, shape) = compile(kernel, classes, Manner { stores: Stores::Cached, rows })?;
        Ok(Codes { compile, classes: classes.into(), rows, shape, cached, streamed: OnceLock::new() })
    }

    /// The code of the kernel with such stores, if the tier makes it, and else that with cached ones.
    pub(super) fn storing(&self, stores: Stores, kernel: &Kernel) -> &Code {
        let streamed = || {
            let manner = Manner { stores: Stores::Streamed, rows: self.rows };
            (self.compile)(kernel, &self.classes, manner).ok().map(|(code, _)| code)
        };
        match stores {
            Stores::Cached => &self.cached,
            Stores::Streamed => self.streamed.get_or_init(streamed).as_ref().unwrap_or(&self.cached),
        }
    }

    /// Bytes of machine code and constants.
    pub(super) fn n_bytes(&self) -> usize {
        self.cached.n_bytes()
    }
}
