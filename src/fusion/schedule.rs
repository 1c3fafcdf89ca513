//! The schedule: the merge steps after the base partition, in order.
//!
//! [`MERGES`] is the only list of merge steps. It drives the planner and the times in reports. Each step has a file of
//! its own, which says what it merges and under which conditions.

use super::refusals::Refusals;
use super::units::Units;
use super::{blocks, horizontal, piecewise, siblings, stitch};

/// When a merge step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// Only if the step before it merged something.
    AfterMerge,
}

/// One merge step.
#[derive(Debug, Clone, Copy)]
pub struct Merge {
    /// The name of its file. A step that runs again has another name.
    pub name: &'static str,
    /// When it runs.
    pub when: When,
    /// Merges units, and records why others were not merged. Returns whether it merged any.
    run: fn(&mut Units<'_>, &mut Refusals) -> bool,
}

/// Every merge step, in the order in which they run.
pub static MERGES: &[Merge] = &[
    // Kernels along the edges between them.
    Merge { name: "stitch", when: When::Always, run: stitch::merge },
    // Kernels that read the same memory, without an edge between them.
    Merge { name: "siblings", when: When::Always, run: siblings::merge },
    // Merged siblings may now be merged with a kernel that reads results of both.
    Merge { name: "stitch again", when: When::AfterMerge, run: stitch::merge },
    // Elementwise neighbours of concatenations and overlays.
    Merge { name: "piecewise", when: When::Always, run: piecewise::merge },
    // Matrix products and the kernels around them, some rows at a time.
    Merge { name: "blocks", when: When::Always, run: blocks::merge },
    // Small kernels over equal loops. Last, because a kernel with independent work cannot join blocks of rows.
    Merge { name: "horizontal", when: When::Always, run: horizontal::merge },
];

/// Runs the merge steps. `after` is called with each that ran.
pub(super) fn merge_all(units: &mut Units<'_>, after: &mut dyn FnMut(&'static Merge)) -> Refusals {
    let mut refusals = Refusals::default();
    units.sort();
    let mut has_merged = false;
    for merge in MERGES {
        if merge.when == When::AfterMerge && !has_merged {
            continue;
        }
        has_merged = (merge.run)(units, &mut refusals);
        after(merge);
    }
    refusals
}
