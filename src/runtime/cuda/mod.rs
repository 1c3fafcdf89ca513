//! How does an executable run on a GPU?
//!
//! | file | question |
//! |---|---|
//! | `device_action` | how does each action of an executable run there? |
//! | `device_executable` | how do they run, one after the other? |
//! | `launch` | how does a kernel start on a device? |
//! | `product` | how does a matrix product start there? |
//! | `routine` | how does a routine start there? |
//! | `choice` | what computes a matrix product, and why? |
//! | `roofline` | how long does one take, by a model? |
//! | `candidate` | which kernel alone consumes a product, without reordering it? |
//! | `epilogue` | how does such a kernel start as a part of our product? |
//! | `epilogue_patterns` | which epilogues does cublasLt compute? |
//! | `library` | how is a product described to cublasLt, and how does it start? |
//! | `maps` | how are the tensor maps of an argument buffer made? |
//! | `alignments` | how are addresses aligned, and what is prepared for that? |
//! | `kernels` | which code runs it, and is it compiled already? |
//! | `memo` | what is made once for all threads? |
//! | `inputs` | how do numbers of the host get there? |
//! | `transfer` | how do whole arrays get there and back? |
//! | `outline` | what will a run do, and in whose memory? |
//! | `program` | how is a run a list of launches? |
//! | `replay` | how does one call start them all? |
//! | `faults` | what error does a fault of a kernel give? |
//! | `fallback` | what if the device has no code for a step? |
//! | `counts` | how often did that happen, and why? |
//!
//! What always holds: work goes to the thread's current stream of the device, in the order of the actions. What a
//! kernel reads was ordered after all work on other streams that used it. The host waits for the device only to read
//! values, as a fallback does. Indices out of range and integer divisions by zero are reported asynchronously. Bits are
//! those of the CPU, unless [`Numerics::Fast`](crate::Numerics::Fast) is chosen.
//!
//! An eager call is an executable of one op here too. Not here: views, which need no device.

mod alignments;
mod candidate;
mod choice;
mod counts;
mod device_action;
mod device_executable;
mod epilogue;
mod epilogue_patterns;
mod fallback;
mod faults;
mod inputs;
mod kernels;
mod launch;
mod library;
mod maps;
mod memo;
mod outline;
mod product;
mod program;
mod replay;
mod roofline;
mod routine;
mod transfer;

pub use choice::Choice;
pub use counts::{Counts, Fallback, counts, reset_counts};
pub(super) use device_executable::DeviceExecutable;
pub use transfer::{device_of, fetched};
