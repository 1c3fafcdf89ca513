//! The CUDA runtime on stand-ins for the driver, NVRTC and cublasLt, against the CPU, by bits.
//!
//! What runs is the library as it is; `libcuda.cpp`, `libnvrtc.cpp` and `libcublasLt.cpp` take the place of NVIDIA's
//! libraries, and kernels run on the emulator of `tests/cuda_emulator`. Without g++ the tests say that they were
//! skipped. `OPFUSE_CUDA_TESTS=device` has them run on a GPU.

#[path = "../same_bits/build.rs"]
mod build;
mod calls;
mod compiled;
mod cublaslt;
mod cublaslt_ways;
mod driver;
mod epilogues;
mod failures;
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
mod procedures;
mod products;
#[path = "../same_bits/random.rs"]
mod random;
#[path = "../same_bits/reference.rs"]
mod reference;
mod replays;
#[path = "../same_bits/routines.rs"]
mod routines;
mod stand_ins;
#[path = "../same_bits/values.rs"]
mod values;
#[path = "../same_bits/views.rs"]
mod views;
mod wgmma;
#[path = "../same_bits/windows.rs"]
mod windows;
