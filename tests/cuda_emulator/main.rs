//! Generated CUDA on the emulator against the interpreter, by bits.
//!
//! The text is what a device would be given, compiled by g++ behind a header that is a small machine of its own
//! (`emulator.h`, `driver.cpp`). Without g++ the tests say that they were skipped. `OPFUSE_SEED=n` runs one random case
//! alone and `OPFUSE_CASES=n` another number of them.

mod check;
mod emulator;
#[path = "../common/kernels/mod.rs"]
mod kernels;
mod mutants;
mod pointwise;
mod products;
mod random;
mod rows;
mod tensor_epilogues;
mod tensor_products;
mod texts;
mod wgmma_epilogues;
mod wgmma_products;
