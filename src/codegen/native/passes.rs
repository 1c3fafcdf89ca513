//! Distributes the nodes of a kernel over loops: before a pass, once per pass, or for every element.
//!
//! A pass is one loop over the row's elements. It computes its folds, which are available after it, and its outputs. A
//! later pass may need a per-element value of an earlier one. It is recomputed if that is cheap. Otherwise it is
//! *kept*: the earlier pass writes it to a row buffer, which the later one reads.

use super::flat::{Flat, FlatNode, FlatNodeId, FlatOp};
use crate::codegen::kernel::Level;
use crate::ir::SideTable;
use crate::ir::scalar::{Prim, Ty};
use rustc_hash::FxHashSet;

/// Values made of this many nodes are kept instead of recomputed.
const KEEP_NODES: usize = 14;
/// As how many nodes a division, a root, or a rounding to 16 bits counts. To round the sum of two operands again takes
/// six cycles per vector, and to read it from a row buffer one (`residual norm bf16` of
/// `python/benches/torch_compile.py --other-functions`).
const COSTLY: usize = 11;

/// Which values of an earlier pass are kept for later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codegen) enum Keep<'a> {
    /// Expensive ones, in row buffers.
    Expensive,
    /// Those that read an operand in memory; per operand, whether it is in memory.
    Read(&'a [bool]),
    /// None: all are recomputed.
    Nothing,
}

/// One loop over the row's elements, and the row values that are needed before it.
#[derive(Debug, Default)]
pub(in crate::codegen) struct Pass {
    /// Row values computed before it.
    pub(in crate::codegen) row: Vec<FlatNodeId>,
    /// Uniform values that may only be computed if there is an element.
    pub(in crate::codegen) uniform: Vec<FlatNodeId>,
    /// Values per element.
    pub(in crate::codegen) body: Vec<FlatNodeId>,
    /// Folds updated by this loop.
    pub(in crate::codegen) folds: Vec<FlatNodeId>,
    /// Outputs written by this loop.
    pub(in crate::codegen) stores: Vec<usize>,
    /// Values that this loop keeps, with the numbers of their row buffers.
    pub(in crate::codegen) keeps: Vec<(FlatNodeId, usize)>,
    /// Values of its body that are read from a row buffer instead of computed.
    pub(in crate::codegen) kept: Vec<(FlatNodeId, usize)>,
}

impl Pass {
    /// Whether the loop has anything to do.
    pub(in crate::codegen) fn has_loop(&self) -> bool {
        !self.folds.is_empty() || !self.stores.is_empty()
    }
}

/// All passes in order; outputs per row are written after the last one.
#[derive(Debug)]
pub(in crate::codegen) struct Passes {
    /// The passes; the last one may have row values only.
    pub(in crate::codegen) passes: Vec<Pass>,
    /// Outputs written once per row.
    pub(in crate::codegen) row_stores: Vec<usize>,
    /// The number of row buffers.
    pub(in crate::codegen) n_kept: usize,
}

impl Passes {
    /// The most folds of any pass.
    pub(in crate::codegen) fn n_folds(&self) -> usize {
        self.passes.iter().map(|pass| pass.folds.len()).max().unwrap_or(0)
    }

    /// Distributes the nodes. A row value is stored `once` per row in an output that does not move along the inner
    /// loop, and for every element in one that does.
    pub(in crate::codegen) fn new(flat: &Flat, once: impl Fn(usize) -> bool, keep: Keep<'_>) -> Passes {
        let n_passes = flat.nodes.entities().map(|node| node.pass).max().unwrap_or(0) + 1;
        let mut all = Passes { passes: Vec::new(), row_stores: Vec::new(), n_kept: 0 };
        all.passes.resize_with(n_passes, Pass::default);
        let needed = closure(flat, &flat.roots().collect::<Vec<_>>(), |_| true);
        for &id in &needed {
            if matches!(flat.nodes[id].op, FlatOp::Fold(_)) {
                all.passes[flat.nodes[id].pass - 1].folds.push(id);
            } else if flat.nodes[id].level == Level::Row && flat.as_lit(id).is_none() {
                all.passes[flat.nodes[id].pass].row.push(id);
            }
        }
        for (slot, &id) in flat.outputs.iter().enumerate() {
            match flat.nodes[id].level {
                Level::Row if once(slot) => all.row_stores.push(slot),
                Level::Row | Level::Full => all.passes[flat.nodes[id].pass].stores.push(slot),
            }
        }
        for pass in 0..n_passes {
            all.fill(flat, pass, keep);
        }
        all
    }

    /// Finds what the loop of `pass` computes, reads from row buffers, and needs once.
    fn fill(&mut self, flat: &Flat, pass: usize, keep: Keep<'_>) {
        let roots = self.roots(flat, pass);
        let kept: Vec<FlatNodeId> = match keep {
            Keep::Expensive => self.worth_keeping(flat, pass, &roots, |id, cone| {
                flat.nodes[id].ty != Ty::Bool
                    && cone.iter().map(|&id| weight(&flat.nodes[id])).sum::<usize>() >= KEEP_NODES
            }),
            Keep::Read(in_memory) => self.worth_keeping(flat, pass, &roots, |_, cone| {
                cone.iter().any(|&id| flat.nodes[id].op.operand().is_some_and(|slot| in_memory[slot]))
            }),
            Keep::Nothing => Vec::new(),
        };
        for &id in &kept {
            let owner = self.first_pass_with(id, pass).expect("a kept value is computed by an earlier pass");
            let existing = self.passes[owner].keeps.iter().find(|keep| keep.0 == id).map(|keep| keep.1);
            let buffer = existing.unwrap_or(self.n_kept);
            if existing.is_none() {
                self.passes[owner].keeps.push((id, buffer));
                self.n_kept += 1;
            }
            self.passes[pass].kept.push((id, buffer));
        }
        // Row values are computed elsewhere and kept ones are read, so the walk stops at both.
        let per_element = |id: FlatNodeId| flat.nodes[id].level == Level::Full;
        for id in closure(flat, &roots, |id| per_element(id) && !kept.contains(&id)) {
            if per_element(id) && !kept.contains(&id) {
                let list =
                    if flat.nodes[id].uniform { &mut self.passes[pass].uniform } else { &mut self.passes[pass].body };
                list.push(id);
            }
        }
    }

    fn roots(&self, flat: &Flat, pass: usize) -> Vec<FlatNodeId> {
        let folds = self.passes[pass].folds.iter().flat_map(|&id| flat.nodes[id].args.iter().copied());
        let condition = flat.all_small.filter(|&id| flat.nodes[id].pass == pass);
        folds.chain(self.passes[pass].stores.iter().map(|&slot| flat.outputs[slot])).chain(condition).collect()
    }

    fn first_pass_with(&self, id: FlatNodeId, before: usize) -> Option<usize> {
        (0..before).find(|&pass| self.passes[pass].body.binary_search(&id).is_ok())
    }

    /// The values nearest to the roots that an earlier pass computes and that are expensive, by all nodes they are made
    /// of.
    fn worth_keeping(
        &self,
        flat: &Flat,
        pass: usize,
        roots: &[FlatNodeId],
        is_expensive: impl Fn(FlatNodeId, &[FlatNodeId]) -> bool,
    ) -> Vec<FlatNodeId> {
        let mut kept = Vec::new();
        let mut seen = FxHashSet::default();
        let mut stack: Vec<FlatNodeId> = roots.to_vec();
        while let Some(id) = stack.pop() {
            let node = &flat.nodes[id];
            if node.level == Level::Row || node.uniform || !seen.insert(id) {
                continue;
            }
            let cone = || closure(flat, &[id], |id| flat.nodes[id].level == Level::Full && !flat.nodes[id].uniform);
            if self.first_pass_with(id, pass).is_some() && is_expensive(id, &cone()) {
                kept.push(id);
            } else {
                stack.extend(node.args.iter().copied());
            }
        }
        kept
    }
}

/// As how many nodes one counts. What a row has once is not computed again.
fn weight(node: &FlatNode) -> usize {
    match node.op {
        _ if node.level == Level::Row || node.uniform => 1,
        FlatOp::Prim(Prim::Div | Prim::Sqrt | Prim::RoundBF16 | Prim::RoundF16) => COSTLY,
        FlatOp::Load(_) | FlatOp::Lit(_) | FlatOp::Prim(_) | FlatOp::Fold(_) => 1,
    }
}

/// All nodes reachable from `roots`, in ascending order. The operands of nodes that `enter` refuses are not followed.
fn closure(flat: &Flat, roots: &[FlatNodeId], enter: impl Fn(FlatNodeId) -> bool) -> Vec<FlatNodeId> {
    let mut seen = SideTable::with_len(flat.nodes.len(), || false);
    roots.iter().for_each(|&id| seen[id] = true);
    let mut ids = Vec::with_capacity(flat.nodes.len());
    // Operands have smaller numbers than users.
    for id in flat.nodes.ids().rev() {
        if !seen[id] {
            continue;
        }
        ids.push(id);
        if enter(id) {
            flat.nodes[id].args.iter().for_each(|&arg| seen[arg] = true);
        }
    }
    ids.reverse();
    ids
}
