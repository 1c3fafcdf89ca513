//! How kernels with folds run whose memory goes along their rows: in sweeps over the elements, one after the other
//! (`codegen::native::sweeps`).

use super::region::{Region, Value, ValueId, Walk};
use crate::ir::SideTable;

/// Whether the memory of a kernel with folds goes along the rows more than along the folds.
pub(super) fn goes_along_rows(region: &Region) -> bool {
    let n_rows = region.rows.len();
    let (Some(last_row), Some(last)) = (n_rows.checked_sub(1), (n_rows + region.inner.len()).checked_sub(1)) else {
        return false;
    };
    // An index may lead anywhere, so elements that are gathered one by one are not the same one.
    let smooth =
        |walk: &Walk, at: usize| i64::from(walk.strides[at] == 1 || walk.strides[at] == 0 && walk.gather.is_none());
    let score: i64 = region.loads.entities().map(|walk| smooth(walk, last) - smooth(walk, last_row)).sum();
    region.has_folds() && last != last_row && score < 0
}

/// The columns that machine code runs as one loop with the elements of a fold (`codegen::native::merged_rows`), if they
/// are few.
pub(super) fn merged_columns(region: &Region) -> Option<usize> {
    let (&columns, &[_]) = (region.rows.last()?, &region.inner[..]) else { return None };
    let at = region.rows.len() - 1;
    let follows = |walk: &Walk| {
        let strides = [walk.strides[at], walk.strides[at + 1]];
        walk.gather.is_none() && (matches!(strides, [0 | 1, 0]) || strides == [1, columns])
    };
    (columns <= MOST_MERGED && region.loads.entities().all(follows)).then_some(columns)
}

/// How often the elements are swept: once for the folds that no fold precedes, and again for what follows these.
pub(super) fn sweeps(region: &Region) -> usize {
    let before = folds_before(region);
    let folds = region.values.iter().map(|(id, _)| before[id]);
    let written = region.outputs.iter().filter(|(id, _)| region.is_full[*id]).map(|(id, _)| before[*id] + 1);
    folds.chain(written).max().unwrap_or(1)
}

/// The sweeps that end before a value is known.
fn folds_before(region: &Region) -> SideTable<ValueId, usize> {
    let mut before: SideTable<ValueId, usize> = SideTable::with_len(region.values.len(), || 0);
    for (id, value) in region.values.iter() {
        before[id] = match value {
            Value::Fold(_, of) => before[*of] + 1,
            Value::Body(_, args) => args.iter().map(|&arg| before[arg]).max().unwrap_or(0),
            Value::Gather(_, index) => before[*index],
            Value::Load(_) | Value::Number(..) | Value::Position(..) | Value::Extent(_) => 0,
        };
    }
    before
}

/// In how many sweeps each value per element is computed: in all that need it, where vectors go along the rows, and
/// else once.
pub(super) fn times_computed(region: &Region) -> SideTable<ValueId, usize> {
    let mut times: SideTable<ValueId, usize> = SideTable::with_len(region.values.len(), || 1);
    if !goes_along_rows(region) || sweeps(region) < 2 {
        return times;
    }
    let before = folds_before(region);
    let mut needed: SideTable<ValueId, u64> = SideTable::with_len(region.values.len(), || 0);
    let sweep = |id: ValueId| 1_u64 << before[id].min(63);
    region.outputs.iter().filter(|(id, _)| region.is_full[*id]).for_each(|(id, _)| needed[*id] |= sweep(*id));
    let all: Vec<(ValueId, &Value)> = region.values.iter().collect();
    for &(id, value) in all.iter().rev() {
        let own = if region.is_full[id] { needed[id] } else { 0 };
        match value {
            Value::Fold(_, of) => needed[*of] |= sweep(*of),
            Value::Body(_, args) => args.iter().for_each(|&arg| needed[arg] |= own),
            Value::Gather(_, index) => needed[*index] |= own,
            Value::Load(_) | Value::Number(..) | Value::Position(..) | Value::Extent(_) => {}
        }
    }
    for (id, _) in all {
        times[id] = (needed[id].count_ones() as usize).max(1);
    }
    times
}

/// Most columns that machine code merges with elements.
const MOST_MERGED: usize = 96;
