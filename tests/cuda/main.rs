//! The CUDA runtime on fakes of the driver, NVRTC and cublasLt, against the CPU, by bits.
//!
//! The library under test is unmodified. `libcuda.cpp`, `libnvrtc.cpp` and `libcublasLt.cpp` replace NVIDIA's
//! libraries, and kernels run on the emulator of `tests/cuda_emulator`. Without g++ the tests say that they were
//! skipped. `OPFUSE_CUDA_TESTS=device` runs them on a GPU.

#[path = "../same_bits/build.rs"]
mod build;
mod calls;
mod compiled;
mod cublaslt;
mod cublaslt_choice;
mod driver;
#[path = "../common/effort.rs"]
mod effort;
mod epilogues;
mod failures;
mod fakes;
mod fast;
mod faults;
mod first;
#[path = "../same_bits/generate.rs"]
mod generate;
mod golden;
mod graphs;
mod matrix;
mod measured;
#[path = "../same_bits/moves.rs"]
mod moves;
mod order;
#[path = "../common/panics.rs"]
mod panics;
mod procedures;
mod products;
#[path = "../same_bits/random.rs"]
mod random;
#[path = "../same_bits/reference.rs"]
mod reference;
mod replays;
#[path = "../same_bits/routines.rs"]
mod routines;
#[path = "../same_bits/values.rs"]
mod values;
#[path = "../same_bits/views.rs"]
mod views;
mod wgmma;
#[path = "../same_bits/windows.rs"]
mod windows;
