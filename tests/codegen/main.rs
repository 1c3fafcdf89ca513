//! How one group becomes running code: every tier against the interpreter, by bits, and the encoder of machine code.

#[path = "../common/effort.rs"]
mod effort;
mod encoder;
#[path = "../common/kernels/mod.rs"]
mod kernels;
mod native;
mod vm;
