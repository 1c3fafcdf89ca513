//! The CUDA runtime on stand-ins for the driver and NVRTC, against the CPU, by bits.
//!
//! What runs is the library as it is; `libcuda.cpp` and `libnvrtc.cpp` take the place of NVIDIA's libraries, and kernels run
//! on the emulator of `tests/cuda_emulator`. Without g++ the tests say that they were skipped.

mod failures;
mod first;
mod stand_ins;
