//! The union of two kernels: whether it can be one kernel, and how it replaces the two.
//!
//! All merge steps that make one kernel of two share these rules. The steps themselves check whether a merge pays, and
//! whether it closes a cycle.

use super::refusals::Refusals;
use super::region::{Region, Value};
use super::unit::{Unit, UnitId, UnitKind};
use super::units::Units;
use crate::error::Reason;
use crate::ir::NodeId;

/// Rows of more elements than this are merged only if there are at least [`MANY_ROWS`], so that threads are busy.
const LONG_ROW: usize = 32 * 1024;
/// Enough rows to keep threads busy.
const MANY_ROWS: usize = 16;

/// Two kernels as one. Cycles are not checked.
pub(super) fn union(units: &Units<'_>, a: UnitId, b: UnitId) -> Result<Unit, Reason> {
    are_small_enough(units, a, b, &[])?;
    union_with(units, a, b, &[])
}

/// Like [`union`], with views between the two.
pub(super) fn union_with(units: &Units<'_>, a: UnitId, b: UnitId, views: &[UnitId]) -> Result<Unit, Reason> {
    let parts = [a, b].into_iter().chain(views.iter().copied());
    let mut nodes: Vec<NodeId> = parts.flat_map(|unit| units.unit(unit).nodes.iter().copied()).collect();
    // The stable sort merges sorted runs in linear time.
    nodes.sort();
    let (region, outputs) = units.lay_out(&nodes)?;
    // A value per row need not depend on a fold, and inner loops without iterations would never store it.
    if region.inner.contains(&0) && !region.rows.contains(&0) {
        return Err(Reason::DifferentRows);
    }
    if is_too_long(&region) {
        return Err(Reason::RowsTooLong);
    }
    Ok(Unit { kind: UnitKind::Kernel(Box::new(region)), nodes, outputs })
}

/// Whether rows are few and long, and take more than one pass. One thread computes a row.
fn is_too_long(region: &Region) -> bool {
    let (rows, inner) = (region.rows.iter().product::<usize>(), region.inner.iter().product::<usize>());
    let is_fold = |value: &Value| matches!(value, Value::Fold(..));
    let full_output = region.outputs.iter().any(|(value, _)| region.is_full[*value]);
    let folds = region.values.entities().filter(|value| is_fold(value)).count();
    inner > LONG_ROW && rows < MANY_ROWS && folds > 0 && (full_output || folds > 1)
}

/// Checks the limits of a union without laying it out.
///
/// # Errors
/// If it has too many nodes or arguments.
pub(super) fn are_small_enough(units: &Units<'_>, a: UnitId, b: UnitId, views: &[UnitId]) -> Result<(), Reason> {
    let n_nodes = units.unit(a).nodes.len() + units.unit(b).nodes.len() + views.len();
    match () {
        () if n_nodes > units.max_nodes => Err(Reason::GroupTooLarge),
        () if units.are_too_many_arguments(a, b, views) => Err(Reason::TooManyArguments),
        () => Ok(()),
    }
}

/// Replaces two units, and views between them, by their union, which gets the number of the second. Refusals of either
/// are forgotten.
pub(super) fn accept(units: &mut Units<'_>, producer: UnitId, consumer: UnitId, merged: Unit, refusals: &mut Refusals) {
    refusals.forget(producer);
    refusals.forget(consumer);
    let mut members: Vec<UnitId> = merged.nodes.iter().filter_map(|&node| units.unit_of[node]).collect();
    members.sort_unstable();
    members.dedup();
    units.replace(&members, consumer, merged);
}
