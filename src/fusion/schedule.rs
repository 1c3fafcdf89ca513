//! The schedule of merging: which steps make fewer kernels of the base partition, and in which order.
//!
//! [`MERGES`] is the only list of merge steps. It drives the planner and the times in reports. Each step has one kind of
//! argument and a file of its own, which says what the step merges and what has to hold.

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
    /// The name of its file; a step that runs again has another name.
    pub name: &'static str,
    /// When it runs.
    pub when: When,
    /// Merges units and notes why others stay apart; says whether it merged any.
    run: fn(&mut Units<'_>, &mut Refusals) -> bool,
}

/// Every merge step, in the order in which they run.
pub static MERGES: &[Merge] = &[
    // Kernels along the edges between them.
    Merge { name: "stitch", when: When::Always, run: stitch::merge },
    // Kernels that read the same memory, without an edge between them.
    Merge { name: "siblings", when: When::Always, run: siblings::merge },
    // A kernel that has a sibling's results may now take in what reads both.
    Merge { name: "stitch again", when: When::AfterMerge, run: stitch::merge },
    // Elementwise neighbours of concatenations and overlays.
    Merge { name: "piecewise", when: When::Always, run: piecewise::merge },
    // Matrix products and the kernels around them, some rows at a time.
    Merge { name: "blocks", when: When::Always, run: blocks::merge },
    // Small kernels over equal loops. Last: a kernel that is busy with two things joins no block of rows.
    Merge { name: "horizontal", when: When::Always, run: horizontal::merge },
];

/// Runs every merge step; `after` is called with each that ran.
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
