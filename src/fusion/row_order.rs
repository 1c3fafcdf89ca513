//! Reorders a kernel's loops to those of a matrix product's rows.
//!
//! A group in blocks of rows ([`super::blocks`]) runs a kernel on some rows at a time. So the loops over rows come
//! first, outermost first, and all others follow. An example is a copy of `[batch, head, time, size]` to `[batch, time,
//! head, size]`: it runs over batch, head and time if these are the rows of its operand.
//!
//! The kernel reads values of the group row by row. It may write its results to other rows, because every iteration
//! writes elements of its own, so blocks do not overlap. A result whose rows are scattered is kept in memory whole, and
//! no member of the group may read it.
//!
//! Results do not change: row loops may run in any order, and the loops of a fold keep their order.

use super::region::{LoadId, Region, Walk};
use crate::error::Reason;
use crate::ir::{Graph, Layout, Meaning, NodeId};
use smallvec::SmallVec;

/// A kernel that can run on some rows at a time.
pub(super) struct RowKernel {
    /// Its loops, with those of the rows first. Values of the group are read directly, not through views.
    pub(super) region: Region,
    /// The results whose rows are not contiguous.
    pub(super) scattered: Vec<NodeId>,
}

/// `region` with the loops of `n_rows` rows first. `is_inside` says whether the group computes a value, or its base if
/// it is a view.
///
/// # Errors
/// The reason why it cannot be computed row by row.
pub(super) fn rows_first(
    graph: &Graph,
    region: &Region,
    n_rows: usize,
    is_inside: &dyn Fn(NodeId) -> bool,
) -> Result<RowKernel, Reason> {
    if region.rows.iter().chain(&region.inner).any(|&size| size == 0) {
        return Err(Reason::NothingToCompute);
    }
    let mut region = region.clone();
    let root = |node: NodeId| if is_inside(node) { graph.view_base(node) } else { node };
    let mut own: SmallVec<[LoadId; 4]> = SmallVec::new();
    for id in region.loads.ids() {
        let load = &mut region.loads[id];
        if is_inside(load.node) {
            *load = without_views(graph, load).ok_or(Reason::MovesElements)?;
            own.push(id);
        }
    }
    region.operands = region.operands.iter().map(|&node| root(node)).collect();
    region.operands.sort_unstable();
    region.operands.dedup();
    let leading = own.first().map(|&load| &region.loads[load]).or(region.outputs.first().map(|(_, walk)| walk));
    let (order, n_outer) = order(graph, &region, n_rows, leading.ok_or(Reason::DifferentRows)?)?;
    reorder(&mut region, &order);
    let follows = |walk: &Walk| follows_rows(graph, &region, walk, n_rows, n_outer);
    if !own.iter().all(|&load| follows(&region.loads[load])) {
        return Err(Reason::DifferentRows);
    }
    let scattered = region.outputs.iter().map(|(_, walk)| walk).filter(|walk| !follows(walk));
    let scattered = scattered.map(|walk| walk.node).collect();
    Ok(RowKernel { region, scattered })
}

/// The same elements as a walk of the base of the walk's value. `None` if that is no affine walk.
fn without_views(graph: &Graph, walk: &Walk) -> Option<Walk> {
    if walk.gather.is_some() {
        return None;
    }
    let (root, layout) = base_layout(graph, walk.node)?;
    let same = |((&size, &found), &stride): ((&usize, &usize), &usize)| size == 1 || found == stride;
    let ty = &graph[walk.node].ty;
    let is_same = ty.sizes.iter().zip(&ty.strides).zip(&layout.strides).all(same);
    is_same.then(|| Walk { node: root, base: walk.base + layout.offset, ..walk.clone() })
}

/// The base of `node`, and the layout of `node` in it if the base is dense.
fn base_layout(graph: &Graph, node: NodeId) -> Option<(NodeId, Layout)> {
    let call = &graph[node];
    let Some(op) = call.op().filter(|op| op.is_view()) else {
        return call.ty.is_contiguous().then(|| (node, Layout::contiguous(&call.ty.sizes)));
    };
    let Meaning::View(rule) = op.row().meaning else { return None };
    let (root, layout) = base_layout(graph, call.args[0])?;
    Some((root, rule(&layout, &call.attrs).ok()?))
}

/// A new order of the row loops, and how many of them run over the product's rows. These are the loops whose stride in
/// `leading` is a whole row or more.
fn order(
    graph: &Graph,
    region: &Region,
    n_rows: usize,
    leading: &Walk,
) -> Result<(SmallVec<[usize; 6]>, usize), Reason> {
    let per_row = row_elements(graph, leading.node, n_rows).ok_or(Reason::DifferentRows)?;
    let (mut outer, mut rest): (SmallVec<[usize; 6]>, SmallVec<[usize; 6]>) =
        (0..region.rows.len()).partition(|&at| leading.strides[at] >= per_row);
    outer.sort_by_key(|&at| std::cmp::Reverse(leading.strides[at]));
    // Within a row, memory is written in ascending order.
    if let Some((_, first)) = region.outputs.first() {
        rest.sort_by_key(|&at| std::cmp::Reverse(first.strides[at]));
    }
    let n_outer = outer.len();
    match outer.iter().map(|&at| region.rows[at]).product::<usize>() == n_rows {
        true => Ok((outer.into_iter().chain(rest).collect(), n_outer)),
        false => Err(Reason::DifferentRows),
    }
}

fn reorder(region: &mut Region, order: &[usize]) {
    region.rows = order.iter().map(|&at| region.rows[at]).collect();
    for walk in region.loads.entities_mut().chain(region.outputs.iter_mut().map(|(_, walk)| walk)) {
        let rows: SmallVec<[usize; 6]> = order.iter().map(|&at| walk.strides[at]).collect();
        walk.strides[..rows.len()].copy_from_slice(&rows);
    }
}

/// The number of elements of a value per row.
fn row_elements(graph: &Graph, node: NodeId, n_rows: usize) -> Option<usize> {
    let ty = &graph[node].ty;
    let fits = ty.is_contiguous() && ty.numel() > 0 && ty.numel().is_multiple_of(n_rows);
    fits.then(|| ty.numel() / n_rows)
}

/// Whether the first loops run over the rows of a walk in order, and the other loops stay inside a row.
fn follows_rows(graph: &Graph, region: &Region, walk: &Walk, n_rows: usize, n_outer: usize) -> bool {
    let Some(per_row) = row_elements(graph, walk.node, n_rows) else { return false };
    let loops: SmallVec<[usize; 6]> = region.rows.iter().chain(&region.inner).copied().collect();
    let mut stride = per_row;
    for at in (0..n_outer).rev() {
        if walk.strides[at] != stride {
            return false;
        }
        stride *= loops[at];
    }
    let reach: usize = (n_outer..loops.len()).map(|at| (loops[at] - 1) * walk.strides[at]).sum();
    walk.base + reach < per_row
}
