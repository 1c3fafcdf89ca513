//! Generated CUDA on the emulator against the interpreter, by bits.
//!
//! The source is what NVRTC would get for a device. g++ compiles it with a header that emulates blocks of threads
//! (`emulator.h`, `driver.cpp`). Without g++ the tests say that they were skipped. A short run has a part of long lists
//! of cases, and no planted bugs; `OPFUSE_TEST_LONG=1` has all. `OPFUSE_SEED=n` runs one random case alone and
//! `OPFUSE_FUZZ=n` another number of them.

mod check;
#[path = "../common/effort.rs"]
mod effort;
mod emulator;
#[path = "../common/kernels/mod.rs"]
mod kernels;
mod mutants;
mod pointwise;
mod products;
mod random;
mod rows;
mod sources;
mod tensor_epilogues;
mod tensor_products;

mod wgmma_epilogues;
mod wgmma_products;
