//! Where bytes live, and how work is ordered.
//!
//! A [`Device`] is a name. A [`Storage`] is bytes there: on the CPU a [`Block`] of the caching allocator, on the meta
//! device a length alone, elsewhere a block of the device's [`Allocator`]. A [`Runtime`] drives a kind of device.
//! [`Stream`]s and [`Event`]s order its work, and guards select those that a thread uses. The worker [`pool`] runs
//! loops on several threads.
//!
//! What always holds: a block has exactly one owner, so two storages never overlap, unless both are read-only. Host
//! memory is initialised (zero when fresh, old data when recycled), and that of the allocator is 64-byte aligned.
//! [`foreign`] memory came from elsewhere. The CPU runs work in program order, so its streams are always
//! idle and its events complete. A [`Generator`] gives seeds and counters, and no numbers.
//!
//! Nothing here knows dtypes, shapes or tensors, and nothing here decides whether a loop is worth splitting.

pub(crate) mod access;
pub mod allocator;
pub(crate) mod block;
pub(crate) mod cuda;
mod current;
#[expect(clippy::module_inception, reason = "the file is named after its one type, as everywhere in the crate")]
mod device;
mod event;
pub mod foreign;
pub(crate) mod generator;
mod guard;
mod last_cache;
pub mod pool;
mod readers;
pub(crate) mod region;
pub mod runtime;
pub(crate) mod shared;
mod shared_cache;
mod size_class;
pub(crate) mod storage;
mod stream;
mod stream_pool;
mod thread_cache;

pub(crate) use access::Access;
pub(crate) use access::ShortAccess;
pub use allocator::Allocator;
pub(crate) use allocator::roomy;
pub(crate) use block::Block;
pub use current::current_device;
pub use device::{Device, DeviceKind};
pub use event::Event;
pub(crate) use generator::n_settings;
pub use generator::{Generator, GeneratorState, manual_seed};
pub use guard::{DeviceGuard, StreamGuard};
pub(crate) use last_cache::last_cache_bytes;
pub use runtime::Runtime;
pub use shared::Shared;
pub(crate) use shared::WeakShared;
pub(crate) use shared::{Pooled, Spare};
pub(crate) use storage::Exclusive;
pub use storage::{Elements, Storage};
pub use stream::Stream;
pub use stream_pool::StreamPool;
