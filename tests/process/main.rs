//! Tests of process-wide state: memory, compiled kernels and their counts, the folder of machine code, system calls.
//!
//! Each test runs in a process of its own: it starts this program again for itself alone.

mod absurd_calls;
mod alone;
#[path = "../common/bits.rs"]
mod bits;
#[allow(unsafe_code, reason = "a program is run on buffers made here")]
#[cfg(unix)]
#[path = "../codegen/native/case.rs"]
mod case;
mod compile_memory;
#[cfg(unix)]
mod disk_cache;
#[path = "../common/effort.rs"]
mod effort;
mod kernel_cache;
#[allow(dead_code, reason = "these tests use a part of the module")]
#[cfg(unix)]
#[path = "../common/kernels/mod.rs"]
mod kernels;
mod methods;
mod opaque_calls;
mod opaque_gradients;
mod out_of_memory;
#[path = "../common/panics.rs"]
mod panics;
mod refusals;
mod registration;
mod scale;
mod small_calls;
mod tier_up;
#[path = "../common/values.rs"]
mod values;
