//! The kernels of every row of the op table at the backend keys: run the op, or infer its result's type.

pub(crate) mod cpu;
pub(crate) mod cuda;
pub(crate) mod meta;
