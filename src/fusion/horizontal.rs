//! Horizontal merging: merges small independent kernels with equal loops.
//!
//! Updates of many parameters of one shape read and write different memory. One kernel for them saves no traffic, but
//! it saves launches, which matters if loops are short. This step is last, because a kernel with independent work
//! cannot join blocks of rows.

use super::refusals::Refusals;
use super::union::{accept, union};
use super::unit::{UnitId, UnitKind};
use super::units::Units;
use crate::ir::shape::Sizes;
use rustc_hash::FxHashMap;

/// The saved time must be at least one part in so many of the time of the two kernels.
const SAVED_PART: f64 = 8.0;

/// Merges small kernels over equal loops, each with the one before it. Returns whether it merged any.
pub(super) fn merge(units: &mut Units<'_>, refusals: &mut Refusals) -> bool {
    let mut has_merged = false;
    let mut latest: FxHashMap<(Sizes, Sizes), UnitId> = FxHashMap::default();
    for unit in units.units.ids() {
        let Some(region) = units.units[unit].as_ref().and_then(|unit| unit.region()) else { continue };
        let loops = (region.rows.clone(), region.inner.clone());
        if let Some(before) = latest.insert(loops, unit) {
            has_merged |= try_merge(units, before, unit, refusals);
        }
    }
    has_merged
}

fn try_merge(units: &mut Units<'_>, a: UnitId, b: UnitId, refusals: &mut Refusals) -> bool {
    let apart = units.cost.unit(units.unit(a)) + units.cost.unit(units.unit(b));
    // The union saves at most one launch, so this is known without laying it out.
    if units.cost.launch_time() * SAVED_PART < apart || !units.are_independent(a, b) {
        return false;
    }
    if let Ok(merged) = union(units, a, b)
        && matches!(merged.kind, UnitKind::Kernel(_))
        && (apart - units.cost.unit(&merged)) * SAVED_PART >= apart
    {
        accept(units, a, b, merged, refusals);
        return true;
    }
    false
}
