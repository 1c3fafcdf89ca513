//! Horizontal merging: small kernels that have nothing to do with each other but their loops.
//!
//! Updates of many parameters of one shape read and write different memory, so one kernel saves no traffic, but it does
//! save what every kernel costs besides its loops. That counts only where the loops are short. It comes last: a kernel
//! that is busy with two things joins no block of a matrix product.

use super::refusals::Refusals;
use super::union::{accept, union};
use super::unit::UnitKind;
use super::units::Units;
use crate::ir::shape::Sizes;
use rustc_hash::FxHashMap;

/// The saved time must be at least this part of all that the two kernels take.
const SAVED_PART: f64 = 8.0;

/// Merges small kernels over equal loops, each with the one before it; says whether it merged any.
pub(super) fn merge(units: &mut Units<'_>, refusals: &mut Refusals) -> bool {
    let mut has_merged = false;
    let mut latest: FxHashMap<(Sizes, Sizes), u32> = FxHashMap::default();
    for unit in 0..units.units.len() as u32 {
        let Some(region) = units.units[unit as usize].as_ref().and_then(|unit| unit.region()) else { continue };
        let loops = (region.rows.clone(), region.inner.clone());
        if let Some(before) = latest.insert(loops, unit) {
            has_merged |= try_merge(units, before, unit, refusals);
        }
    }
    has_merged
}

fn try_merge(units: &mut Units<'_>, a: u32, b: u32, refusals: &mut Refusals) -> bool {
    let apart = units.cost.unit(units.unit(a)) + units.cost.unit(units.unit(b));
    // Without a look at the union: it saves no more than one of the two costs without loops.
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
