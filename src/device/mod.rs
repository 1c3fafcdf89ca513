//! Where bytes live and how work is ordered.
//!
//! A [`Device`] names a place. A [`Storage`] is bytes there: on the CPU a [`Block`] of the caching allocator, on
//! the meta device a length alone. The worker [`pool`] splits loops over threads.
//!
//! What always holds: a block is 64-byte aligned, its bytes are initialised (zero when fresh, old data when
//! recycled), and it belongs to exactly one owner, so two storages never overlap. The CPU runs work in program
//! order, so there are no streams or events here.
//!
//! Nothing here knows dtypes, shapes or tensors, and nothing here decides whether a loop is worth splitting.

mod access;
pub mod allocator;
#[expect(clippy::module_inception, reason = "the file is named after its one type, as everywhere in the crate")]
mod device;
mod memory;
pub mod pool;
mod shared_cache;
mod size_class;
mod storage;
mod thread_cache;

pub use access::Access;
pub use device::{Device, DeviceKind};
pub use memory::{ALIGNMENT, Block};
pub use storage::{Borrowed, Storage};
