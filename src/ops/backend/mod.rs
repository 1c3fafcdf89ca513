//! What every op of the table does at the keys of a backend: run its eager kernel, or infer a shape.

pub(crate) mod cpu;
pub(crate) mod cuda;
pub(crate) mod meta;
