//! The union of two kernels: whether it can be one kernel, and its place in the plan.
//!
//! All merge steps that make a kernel of two share these rules. Whether a merge pays, and whether it closes a cycle, is for
//! the step to ask.

use super::refusals::Refusals;
use super::region::{Region, Value};
use super::unit::{Unit, UnitKind};
use super::units::Units;
use crate::error::Reason;
use crate::ir::NodeId;

/// Rows that are longer than this, in elements, are only merged if there are enough of them for every thread.
const LONG_ROW: usize = 32 * 1024;
/// Rows that are always enough.
const MANY_ROWS: usize = 16;

/// Two kernels as one, whether or not paths lead around them.
pub(super) fn union(units: &Units<'_>, a: u32, b: u32) -> Result<Unit, Reason> {
    are_small_enough(units, a, b, &[])?;
    union_with(units, a, b, &[])
}

/// As [`union`], with views between the two.
pub(super) fn union_with(units: &Units<'_>, a: u32, b: u32, views: &[u32]) -> Result<Unit, Reason> {
    let parts = [a, b].into_iter().chain(views.iter().copied());
    let mut nodes: Vec<NodeId> = parts.flat_map(|unit| units.unit(unit).nodes.iter().copied()).collect();
    // Sorted runs: the stable sort merges those.
    nodes.sort();
    let (region, outputs) = units.lay_out(&nodes)?;
    // What is stored per row need not follow from a fold over nothing, and a loop of no turns would never store it.
    if region.inner.contains(&0) && !region.rows.contains(&0) {
        return Err(Reason::DifferentRows);
    }
    if is_too_long(&region) {
        return Err(Reason::RowsTooLong);
    }
    Ok(Unit { kind: UnitKind::Kernel(Box::new(region)), nodes, outputs })
}

/// Few long rows with more than one pass: a row is one thread's work.
fn is_too_long(region: &Region) -> bool {
    let (rows, inner) = (region.rows.iter().product::<usize>(), region.inner.iter().product::<usize>());
    let is_fold = |value: &Value| matches!(value, Value::Fold(..));
    let full_output = region.outputs.iter().any(|(value, _)| region.is_full[*value]);
    let folds = region.values.iter().filter(|value| is_fold(value)).count();
    inner > LONG_ROW && rows < MANY_ROWS && folds > 0 && (full_output || folds > 1)
}

/// What is known of the union of two kernels without laying it out.
pub(super) fn are_small_enough(units: &Units<'_>, a: u32, b: u32, views: &[u32]) -> Result<(), Reason> {
    let n_nodes = units.unit(a).nodes.len() + units.unit(b).nodes.len() + views.len();
    match () {
        () if n_nodes > units.max_nodes => Err(Reason::GroupTooLarge),
        () if units.are_too_many_arguments(a, b, views) => Err(Reason::TooManyArguments),
        () => Ok(()),
    }
}

/// Puts the union of two units, and of views between them, in the place of the second, and forgets what was said of
/// either.
pub(super) fn accept(units: &mut Units<'_>, producer: u32, consumer: u32, merged: Unit, refusals: &mut Refusals) {
    refusals.forget(producer);
    refusals.forget(consumer);
    let mut members: Vec<u32> = merged.nodes.iter().filter_map(|&node| units.unit_of[node]).collect();
    members.sort_unstable();
    members.dedup();
    units.replace(&members, consumer, merged);
}
