//! The interface of a kind of device, and the registered kinds.
//!
//! | file | question |
//! |---|---|
//! | `interface` | what does a device have to do? |
//! | `registry` | which kinds of device are there? |
//! | `host` | how does the CPU do it? |

mod host;
mod interface;
mod registry;

pub use interface::Runtime;
pub use registry::{Registration, device_count, register};
pub(super) use registry::{need, of};
