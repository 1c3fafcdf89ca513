//! Merged inner elements: folds along few rows, as over the first dim of a matrix with few columns.
//!
//! With lanes along the rows, a step computes one value per row, so a matrix of 16 columns would take a call per 16
//! values. But where rows and inner elements follow each other in memory, a tile may hold several inner elements, and
//! the partial results of neighbours are neighbours too: one call combines up to [`FOLD_LANES`] of them. Each partial
//! result still takes its elements in order, so the bits stay. Row values that such a tile reads, as a softmax its
//! maximum, are spread: copied once per inner element that a tile holds.

use super::plan::{AccessId, Location, Pass, PlaceId, Plan, TileShape, TileStep};
use crate::codegen::kernel::Level;
use crate::codegen::{FOLD_LANES, Geometry, Lanes, Part};

/// Most elements of a tile with merged inner elements.
const MAX_ELEMENTS: usize = 4096;
/// Most bytes of such a tile's places.
const MAX_BYTES: usize = 64 << 10;

/// Inner elements that one tile holds in the passes that allow it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Merged {
    /// A power of two, at most [`FOLD_LANES`].
    pub(super) count: usize,
}

impl Merged {
    /// How many inner elements a tile holds, if a pass of the plan allows more than one.
    pub(super) fn of(plan: &Plan, geometry: &Geometry, part: &Part) -> Option<Merged> {
        let lanes = *geometry.rows.last()?;
        let is_whole = geometry.lanes == Lanes::Rows && part.lanes == (0..lanes) && lanes > 0;
        let most = MAX_ELEMENTS.min(MAX_BYTES / plan.tile_bytes.max(1)) / lanes.max(1);
        if !is_whole || most < 2 || geometry.inner.len() != 1 || geometry.n_inner() < 2 {
            return None;
        }
        let merged = Merged { count: 1 << most.min(FOLD_LANES).ilog2() };
        plan.passes.iter().any(|pass| merged.fits(plan, geometry, pass)).then_some(merged)
    }

    /// Whether the values of a pass at neighbouring inner elements follow each other.
    pub(super) fn fits(self, plan: &Plan, geometry: &Geometry, pass: &Pass) -> bool {
        let mut made: Vec<PlaceId> = Vec::new();
        let is_known = |made: &[PlaceId], place: PlaceId| {
            let (location, shape) = plan.locations[place];
            let is_same = shape == TileShape::Splat || matches!(location, Location::Constant(_) | Location::Block(_));
            is_same || made.contains(&place) || pass.rows_read.iter().any(|value| value.place == place)
        };
        let is_dense = |access| is_dense(plan, geometry, access);
        !pass.tile.is_empty()
            && pass.tile.iter().all(|step| match *step {
                TileStep::Map { dst, args, .. } => {
                    let fits = args.into_iter().all(|arg| is_known(&made, arg));
                    made.push(dst);
                    fits
                }
                TileStep::InPlace { place: dst, access, level } | TileStep::Widen { dst, access, level, .. } => {
                    made.push(dst);
                    level == Level::Full && is_dense(access)
                }
                TileStep::Read { dst, access, level, shape, .. } => {
                    made.push(dst);
                    match shape {
                        TileShape::Splat => is_still(plan, geometry, access),
                        TileShape::Tile => level == Level::Full && is_dense(access),
                    }
                }
                TileStep::Direct { place, access } => {
                    made.push(place);
                    is_dense(access)
                }
                TileStep::Store { src, access, .. } => is_known(&made, src) && is_dense(access),
                TileStep::Repeat { place, .. } => is_known(&made, place),
                TileStep::CheckDivisor { src, .. } => is_known(&made, src),
                TileStep::Fold { fold, value, .. } => is_known(&made, value) && !plan.folds[fold].has_index(),
                TileStep::Keep { place, .. } => {
                    made.push(place);
                    true
                }
                TileStep::Row { .. }
                | TileStep::Gather { .. }
                | TileStep::Scatter { .. }
                | TileStep::ScatterRow { .. } => false,
            })
    }
}

/// Whether the lanes of an inner element are neighbours, and those of the next one follow them.
fn is_dense(plan: &Plan, geometry: &Geometry, access: AccessId) -> bool {
    let (rows, inner) = strides(geometry, access);
    let lanes = geometry.rows.last().copied().unwrap_or(1);
    let is_iota = access.index() < geometry.operands.len() && plan.iotas[access];
    // A step that walks over memory in whole tiles was made for contiguous lanes.
    !is_iota && rows != 0 && inner == lanes.wrapping_mul(rows)
}

/// Whether all lanes and inner elements read the same element.
fn is_still(plan: &Plan, geometry: &Geometry, access: AccessId) -> bool {
    let is_iota = access.index() < geometry.operands.len() && plan.iotas[access];
    !is_iota && strides(geometry, access) == (0, 0)
}

/// The strides along the lanes and along the inner loop.
fn strides(geometry: &Geometry, access: AccessId) -> (usize, usize) {
    let n_operands = geometry.operands.len();
    let access = match access.index().checked_sub(n_operands) {
        None => &geometry.operands[access.index()],
        Some(output) => &geometry.outputs[output],
    };
    (access.rows.last().copied().unwrap_or(0), access.inner.last().copied().unwrap_or(0))
}
