//! Where bytes live and how work is ordered.
//!
//! A [`Device`] names a place. A [`Storage`] is bytes there: on the CPU a [`Block`] of the caching allocator, on
//! the meta device a length alone, elsewhere what the device's [`Allocator`] gives. A [`Runtime`] drives a kind of
//! device; [`Stream`]s and [`Event`]s order its work, guards say which of them a thread uses. The worker [`pool`]
//! splits loops over threads.
//!
//! What always holds: a block belongs to exactly one owner, so two storages never overlap; host memory is 64-byte
//! aligned and initialised (zero when fresh, old data when recycled). The CPU runs work in program order, so its
//! streams are always idle and its events complete. A [`Generator`] hands out seeds and counters, no numbers.
//!
//! Nothing here knows dtypes, shapes or tensors, and nothing here decides whether a loop is worth splitting.

mod access;
pub mod allocator;
mod block;
pub(crate) mod cuda;
mod current;
#[expect(clippy::module_inception, reason = "the file is named after its one type, as everywhere in the crate")]
mod device;
mod event;
mod generator;
mod guard;
mod last_cache;
pub mod pool;
mod readers;
mod region;
pub mod runtime;
mod shared;
mod shared_cache;
mod size_class;
mod storage;
mod stream;
mod stream_pool;
mod thread_cache;

pub use access::{Access, ShortAccess};
pub use allocator::Allocator;
pub(crate) use allocator::roomy;
pub use block::{Block, Owner};
pub use current::current_device;
pub use device::{Device, DeviceKind};
pub use event::Event;
pub use generator::{DEFAULT_SEED, Generator, GeneratorState, manual_seed, n_settings};
pub use guard::{DeviceGuard, StreamGuard};
pub use last_cache::last_cache_bytes;
pub use readers::Announced;
pub use region::ALIGNMENT;
pub use runtime::Runtime;
pub use shared::{Pooled, Shared, Spare, WeakShared};
pub use storage::{Borrowed, Exclusive, Storage};
pub use stream::Stream;
pub use stream_pool::StreamPool;
