//! Which nodes become one kernel: groups that are legal, kernels that merge, and how few there are. The bits stay
//! eager's.

mod blocks;
mod concatenations;
#[path = "../common/effort.rs"]
mod effort;
mod fusion_table;
mod hoisting;
mod horizontal;
#[path = "../common/legality.rs"]
mod legality;
mod modelled_times;
mod partition_properties;
mod regrouped;
mod sizes;
mod slow_folds;
#[path = "../common/values.rs"]
mod values;

use opfuse::device::pool;

/// Runs `work` on so many threads at most; tests that run at the same time keep their own numbers.
fn on_threads<R>(threads: usize, work: impl FnOnce() -> R) -> R {
    pool::set_num_threads(2);
    pool::with_threads(threads, work)
}
