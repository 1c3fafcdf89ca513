//! Running on a GPU: the steps of an executable, launched or taken to the host.
//!
//! | file | question |
//! |---|---|
//! | `launch` | how does a kernel start on a device? |
//! | `choice` | who computes a matrix product, and why? |
//! | `roofline` | how long does one take, by a model? |
//! | `product` | how does a matrix product start there? |
//! | `maps` | how does a device get to know the operands of which it copies boxes? |
//! | `candidate` | which kernel alone consumes a product, without reordering it? |
//! | `epilogue` | how does such a kernel start as a part of our product? |
//! | `epilogue_patterns` | which epilogues does cublasLt compute? |
//! | `library` | what is cublasLt asked for, and how does it start? |
//! | `routine` | how does a procedure on whole arrays start there? |
//! | `kernels` | which code runs it, and is it compiled already? |
//! | `memo` | what is made once for all threads? |
//! | `device_actions` | how does each action of an executable run there? |
//! | `device_executable` | how do they run, one after the other? |
//! | `inputs` | how do numbers of the host get there? |
//! | `outline` | what will a run do, and in whose memory? |
//! | `program` | how is a run a list of launches? |
//! | `replay` | how does one call start them all? |
//! | `faults` | what is said about operands that kernels find wrong? |
//! | `fallback` | what if the device has no code for one? |
//! | `counts` | how often did that happen, and why? |
//!
//! What always holds: work goes to the thread's current stream of the device, in the order of the actions; what a kernel
//! reads was ordered behind all work on other streams that used it. Nothing waits for the device but what the host reads, as a
//! fallback does: an integer that is divided by zero, or an index outside its dimension, is told late. Bits are those of the CPU, unless
//! [`Numerics::Fast`](crate::Numerics::Fast) is chosen.
//!
//! An eager call is a group of one here too. Not here: views, which no device is needed for.

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

pub use choice::Choice;
pub use counts::{Counts, Fallback, counts, reset_counts};
pub(super) use device_executable::DeviceExecutable;

use super::array::Array;
use crate::device::{Device, DeviceKind, Shared, Storage};
use crate::error::Result;
use crate::ir::Layout;

/// The GPU among these devices, if there is one.
pub fn device_of(devices: impl IntoIterator<Item = Device>) -> Option<Device> {
    devices.into_iter().find(|device| device.kind == DeviceKind::Cuda)
}

/// An array of the host as one on a device that lies as it does.
fn uploaded(device: Device, array: &Array) -> Result<Array> {
    let (start, end) = (array.layout.offset * array.dtype.size(), array.layout.extent() * array.dtype.size());
    let storage = array.storage.read(|bytes| Storage::copy_of(device, &bytes[start.min(end)..end]))?;
    let layout = Layout { offset: 0, ..array.layout().clone() };
    Ok(Array { storage: Shared::new(storage), dtype: array.dtype, layout: layout.into() })
}

/// The elements of an array, and what is between them, on the host; `fetch` copies bytes of its storage, from one on.
///
/// # Errors
/// If there is no memory, or the device fails.
pub fn fetched(array: &Array, fetch: impl FnOnce(&Storage, usize, &mut [u8]) -> Result<()>) -> Result<Array> {
    let size = array.dtype.size();
    let (start, end) = (array.layout.offset * size, array.layout.extent() * size);
    let mut storage = Storage::new(Device::CPU, end.saturating_sub(start))?;
    fetch(&array.storage, start, storage.bytes_mut())?;
    let layout = Layout { offset: 0, ..array.layout().clone() };
    Ok(Array { storage: Shared::new(storage), dtype: array.dtype, layout: layout.into() })
}
