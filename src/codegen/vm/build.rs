//! Builds a plan from nodes.
//!
//! Each pass computes, in order, the values that its folds, stores and kept values need. A value of an earlier pass is
//! read from the row buffer if it was expensive, and recomputed otherwise. Tiles are allocated such that a result never
//! has the memory of an operand of the same step.

use super::isa::Isa;
use super::nodes::{Node, Nodes, What};
use super::plan::{
    AccessId, BufferId, Fold, FoldId, Line, Location, Pass, PlaceId, Plan, RowRead, RowValue, TileShape, TileStep,
};
use super::routine::BLOCK;
use super::{folds, moves, pairs, table};
use crate::codegen::Class;
use crate::codegen::kernel::{Kind, Level, Source};
use crate::ir::SideTable;
use crate::ir::scalar::{Lit, Prim, Reg};
use smallvec::SmallVec;
use std::collections::HashSet;

/// A full value of this cost is kept for later passes.
const EXPENSIVE: usize = 4;

/// Whether full values may be kept in row buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// Expensive ones are.
    Expensive,
    /// None: all are recomputed. For rows that are too long.
    Nothing,
}

/// Builds the plan of a kernel.
pub(super) fn build(isa: Isa, nodes: &Nodes<'_>, keep: Keep) -> Plan {
    let n = nodes.nodes.len();
    let mut builder = Builder {
        isa,
        nodes,
        plan: Plan::default(),
        shared: SideTable::with_len(n, || None),
        local: SideTable::with_len(n, || None),
        buffers: SideTable::with_len(n, || None),
        is_expensive: nodes.costs().values().map(|&cost| keep == Keep::Expensive && cost >= EXPENSIVE).collect(),
        free: [const { Vec::new() }; 9],
    };
    builder.plan.iotas = nodes.kernel.operands.iter().map(|operand| operand.source == Source::Iota).collect();
    let zeros = builder.constant(Lit::i64(0));
    assert_eq!(zeros, Plan::ZEROS, "zeros are the first place of a plan");
    builder.shared_places();
    let n_passes = nodes.nodes.entities().map(|node| node.pass).max().unwrap_or(0) + 1;
    let mut passes: Vec<Pass> = (0..n_passes).map(|_| Pass::default()).collect();
    // Later passes determine what earlier ones keep.
    let lists: Vec<Needs> = {
        let mut lists: Vec<Needs> = (0..n_passes).rev().map(|pass| builder.needs(pass)).collect();
        lists.reverse();
        lists
    };
    for (index, (pass, needs)) in passes.iter_mut().zip(&lists).enumerate() {
        builder.row_steps(index, pass);
        builder.tile_steps(index, needs, pass);
    }
    drop_unread_repeats(&mut passes);
    builder.plan.passes = passes;
    builder.plan
}

/// Drops repeats of tiles that no routine reads as whole blocks.
fn drop_unread_repeats(passes: &mut [Pass]) {
    let mut read: HashSet<PlaceId> = HashSet::new();
    for step in passes.iter().flat_map(|pass| pass.rows.iter().chain(&pass.tile)) {
        if let TileStep::Map { args, shape: TileShape::Tile, whole: true, .. } = step {
            read.extend(args);
        }
    }
    let is_read = |step: &TileStep| !matches!(step, TileStep::Repeat { place, .. } if !read.contains(place));
    for pass in passes {
        pass.rows.retain(is_read);
        pass.tile.retain(is_read);
    }
}

/// What one pass computes per tile.
struct Needs {
    /// Full values, in order, and whether they come from the row buffer.
    values: Vec<(Reg, Origin)>,
    /// Outputs that are stored.
    outputs: Vec<usize>,
    /// Folds that are updated.
    folds: Vec<FoldId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Computed,
    Buffer,
}

struct Builder<'a> {
    isa: Isa,
    nodes: &'a Nodes<'a>,
    plan: Plan,
    /// Places that all lists share: literals, row values, splats.
    shared: SideTable<Reg, Option<PlaceId>>,
    /// Places of the current list.
    local: SideTable<Reg, Option<PlaceId>>,
    /// Row buffers.
    buffers: SideTable<Reg, Option<BufferId>>,
    /// Whether a value is worth keeping.
    is_expensive: SideTable<Reg, bool>,
    /// Free tiles by element size.
    free: [Vec<usize>; 9],
}

impl Builder<'_> {
    fn place(&mut self, location: Location, shape: TileShape) -> PlaceId {
        self.plan.locations.push((location, shape))
    }

    fn constant(&mut self, lit: Lit) -> PlaceId {
        let at = self.plan.constants.len() * Line::BYTES;
        let word = match lit.ty.size() {
            1 => lit.bits * 0x0101_0101_0101_0101,
            4 => lit.bits | lit.bits << 32,
            _ => lit.bits,
        };
        let lines = BLOCK * lit.ty.size() / Line::BYTES;
        self.plan.constants.extend(std::iter::repeat_n(Line([word; 8]), lines));
        self.place(Location::Constant(at), TileShape::Splat)
    }

    fn block(&mut self, size: usize) -> PlaceId {
        let at = self.plan.block_bytes;
        self.plan.block_bytes += BLOCK * size;
        self.place(Location::Block(at), TileShape::Splat)
    }

    fn tile(&mut self, size: usize) -> PlaceId {
        let at = self.free[size].pop().unwrap_or_else(|| {
            self.plan.tile_bytes += size;
            self.plan.tile_bytes - size
        });
        self.place(Location::Tile(at), TileShape::Tile)
    }

    /// Allocates the places of literals, folds, row values and splats, and declares the folds.
    fn shared_places(&mut self) {
        let nodes = self.nodes;
        for (reg, node) in nodes.nodes.iter() {
            let size = node.ty.size();
            self.shared[reg] = match (node.what, node.shape) {
                (What::Fused, _) => None,
                (What::Lit(lit), _) => Some(self.constant(lit)),
                (What::Fold(_), TileShape::Tile) => Some(self.place(Location::Moving, TileShape::Tile)),
                (_, TileShape::Splat) => Some(self.block(size)),
                (_, TileShape::Tile) if node.level == Level::Row && nodes.is_in_place_load(reg) => {
                    Some(self.place(Location::Moving, TileShape::Tile))
                }
                (_, TileShape::Tile) if node.level == Level::Row => Some(self.tile(size)),
                (_, TileShape::Tile) => None,
            };
            if let (What::Fold(_), Kind::Fold(combine)) = (node.what, nodes.kernel.inst(reg).kind) {
                let ty = nodes.nodes[node.args[0]].ty;
                let result = self.shared[reg].expect("a fold has a place");
                let routines = folds::routines(self.isa, combine, ty);
                self.plan.folds.push(Fold { combine, ty, routines, result });
            }
        }
    }

    /// The values that a pass needs for its folds, its stores, and what later passes want kept.
    fn needs(&mut self, pass: usize) -> Needs {
        let nodes = self.nodes;
        let is_here =
            |&(_, node): &(Reg, &super::nodes::Node)| matches!(node.what, What::Fold(_)) && node.pass == pass + 1;
        let fold_nodes: SmallVec<[Reg; 4]> = nodes.nodes.iter().filter(is_here).map(|(reg, _)| reg).collect();
        let is_stored = |output: &usize| {
            let value = &nodes.nodes[nodes.stores[*output].value];
            value.pass == pass && (value.level == Level::Full || !nodes.has_folds)
        };
        let outputs: Vec<usize> = (0..nodes.stores.len()).filter(is_stored).collect();
        let kept = nodes.nodes.ids().filter(|&reg| self.buffers[reg].is_some() && nodes.nodes[reg].pass == pass);
        let mut work: Vec<Reg> = kept.collect();
        work.extend(fold_nodes.iter().flat_map(|&fold| &nodes.nodes[fold].args));
        work.extend(outputs.iter().map(|&output| nodes.stores[output].value));
        let mut origins: SideTable<Reg, Option<Origin>> = SideTable::with_len(nodes.nodes.len(), || None);
        while let Some(reg) = work.pop() {
            let node = &nodes.nodes[reg];
            if node.level == Level::Row || origins[reg].is_some() {
                continue;
            }
            if node.pass < pass && node.shape == TileShape::Tile && self.is_expensive[reg] {
                origins[reg] = Some(Origin::Buffer);
                if self.buffers[reg].is_none() {
                    self.buffers[reg] = Some(self.plan.buffers.push(node.ty.size()));
                }
                continue;
            }
            origins[reg] = Some(Origin::Computed);
            work.extend(&node.args);
        }
        let values = nodes.nodes.ids().filter_map(|reg| Some((reg, origins[reg]?))).collect();
        let folds = fold_nodes.iter().map(|&node| match nodes.nodes[node].what {
            What::Fold(fold) => fold,
            _ => unreachable!("filtered above"),
        });
        Needs { values, outputs, folds: folds.collect() }
    }

    fn row_steps(&mut self, index: usize, pass: &mut Pass) {
        let nodes = self.nodes;
        for (reg, node) in nodes.nodes.iter() {
            let is_step = !matches!(node.what, What::Lit(_) | What::Fold(_) | What::Fused);
            if node.level == Level::Row && node.pass == index && is_step {
                let dst = self.shared[reg].expect("a row value has a place");
                self.compute(reg, dst, &mut pass.rows);
            }
        }
        for (output, store) in nodes.stores.iter().enumerate() {
            let value = &nodes.nodes[store.value];
            if nodes.has_folds && value.level == Level::Row && value.pass == index {
                let writer = moves::scatter(nodes.kernel.outputs[output].dtype);
                let access = nodes.output_access(output);
                pass.stores.push(TileStep::ScatterRow { writer, src: self.of(store.value), access });
            }
        }
    }

    fn tile_steps(&mut self, pass_index: usize, needs: &Needs, pass: &mut Pass) {
        let nodes = self.nodes;
        self.local.fill(None);
        // The position of a value's last use, and where stores and folds go.
        let position = |reg: Reg| needs.values.iter().position(|&(value, _)| value == reg);
        let mut last: Vec<usize> = (0..needs.values.len()).collect();
        for (at, &(reg, origin)) in needs.values.iter().enumerate() {
            if origin == Origin::Computed {
                nodes.nodes[reg]
                    .args
                    .iter()
                    .filter_map(|&arg| position(arg))
                    .for_each(|arg| last[arg] = last[arg].max(at));
            }
        }
        let end = needs.values.len();
        let fold_args: Vec<&[Reg]> = needs.folds.iter().map(|&fold| nodes.fold_args(fold)).collect();
        let mut fold_at: Vec<usize> = Vec::new();
        for args in &fold_args {
            let at = args.iter().filter_map(|&arg| position(arg)).max();
            args.iter().filter_map(|&arg| position(arg)).for_each(|arg| last[arg] = last[arg].max(at.unwrap_or(0)));
            fold_at.push(at.unwrap_or(end));
        }
        // One of several outputs may be where an operand is, so all of them are stored after the last read.
        let is_late = needs.outputs.len() > 1 && !nodes.kernel.has_folds();
        let stored = |&output: &usize| position(nodes.stores[output].value);
        let store_at: Vec<usize> =
            needs.outputs.iter().map(|output| stored(output).filter(|_| !is_late).unwrap_or(end)).collect();
        if is_late {
            needs.outputs.iter().filter_map(stored).for_each(|value| last[value] = end);
        }
        for at in 0..=end {
            let mut direct = None;
            if let Some(&(reg, origin)) = needs.values.get(at) {
                let here =
                    needs.outputs.iter().zip(&store_at).filter(|&(_, &store)| store == at).map(|(&output, _)| output);
                direct = here.into_iter().find(|&output| origin == Origin::Computed && self.is_direct(reg, output));
                self.value(pass_index, reg, origin, direct, &mut pass.tile);
            }
            for (&output, _) in needs.outputs.iter().zip(&store_at).filter(|&(_, &store)| store == at) {
                if Some(output) != direct {
                    self.store(output, &mut pass.tile);
                }
            }
            for ((&fold, args), _) in needs.folds.iter().zip(&fold_args).zip(&fold_at).filter(|&(_, &fold)| fold == at)
            {
                let value = self.of(args[0]);
                let index = args.get(1).map_or(value, |&arg| self.of(arg));
                pass.tile.push(TileStep::Fold { fold, value, index });
            }
            for (dead, _) in last.iter().enumerate().filter(|&(_, &last)| last == at) {
                self.release(needs.values[dead].0);
            }
        }
        pass.folds.clone_from(&needs.folds);
        pass.rows_read = self.rows_read(&pass.tile);
    }

    /// The row values with an element per lane among what steps read.
    fn rows_read(&self, steps: &[TileStep]) -> Vec<RowValue> {
        let read: HashSet<PlaceId> = steps.iter().flat_map(TileStep::reads).collect();
        let row_value = |(reg, node): (Reg, &Node)| {
            let is_row = node.level == Level::Row && node.shape == TileShape::Tile;
            let place = self.shared[reg].filter(|place| is_row && read.contains(place))?;
            Some(RowValue { place, size: node.ty.size() })
        };
        self.nodes.nodes.iter().filter_map(row_value).collect()
    }

    /// The place of a value in the current list.
    fn of(&self, reg: Reg) -> PlaceId {
        self.local[reg].or(self.shared[reg]).expect("operands precede users and are in the list")
    }

    fn release(&mut self, reg: Reg) {
        if let Some(place) = self.local[reg]
            && let (Location::Tile(at), _) = self.plan.locations[place]
        {
            self.free[self.nodes.nodes[reg].ty.size()].push(at);
        }
    }

    /// Whether a value can be computed directly into an output.
    fn is_direct(&self, reg: Reg, output: usize) -> bool {
        let (node, dtype) = (&self.nodes.nodes[reg], self.nodes.kernel.outputs[output].dtype);
        node.shape == TileShape::Tile
            && self.buffers[reg].is_none()
            && !self.nodes.is_in_place_load(reg)
            && !self.nodes.stores[output].rounds
            && dtype == dtype.compute().dtype()
            && self.nodes.is_contiguous_output(output)
    }

    /// Adds the steps that compute a full value.
    fn value(&mut self, pass: usize, reg: Reg, origin: Origin, direct: Option<usize>, steps: &mut Vec<TileStep>) {
        let node = &self.nodes.nodes[reg];
        if node.shape == TileShape::Splat {
            let dst = self.of(reg);
            return self.compute(reg, dst, steps);
        }
        let keep = self.buffers[reg].filter(|_| origin == Origin::Buffer || node.pass == pass);
        let place = match (keep, direct) {
            (None, None) if !self.nodes.is_in_place_load(reg) => self.tile(node.ty.size()),
            _ => self.place(Location::Moving, TileShape::Tile),
        };
        self.local[reg] = Some(place);
        if let Some(buffer) = keep {
            steps.push(TileStep::Keep { place, buffer });
        } else if let Some(output) = direct {
            steps.push(TileStep::Direct { place, access: self.nodes.output_access(output) });
        }
        if origin == Origin::Computed {
            self.compute(reg, place, steps);
        }
    }

    /// Adds the step that computes a value into a place.
    fn compute(&mut self, reg: Reg, dst: PlaceId, steps: &mut Vec<TileStep>) {
        let nodes = self.nodes;
        let node = &nodes.nodes[reg];
        let routine = match node.what {
            What::Load(slot) => {
                let (access, level) = (AccessId::new(slot), node.level);
                steps.push(match self.row_read(slot, node.level, node.shape) {
                    RowRead::InPlace => TileStep::InPlace { place: dst, access, level },
                    RowRead::Widen(routine) => TileStep::Widen { routine, dst, access, level },
                    RowRead::Read(reader, shape) => TileStep::Read { reader, dst, access, level, shape },
                });
                return self.repeat(reg, dst, steps);
            }
            What::Gather(slot) => {
                let (access, level, index) = (AccessId::new(slot), node.level, self.of(node.args[0]));
                let operand = &nodes.kernel.operands[slot];
                steps.push(if nodes.nodes[node.args[0]].shape == TileShape::Splat {
                    let size = node.ty.size() as u8;
                    TileStep::Row { read: self.row_read(slot, level, node.shape), dst, index, access, level, size }
                } else {
                    let gatherer =
                        if operand.source == Source::Iota { moves::iota_at as _ } else { moves::gather(operand.dtype) };
                    TileStep::Gather { gatherer, dst, index, access, level }
                });
                return self.repeat(reg, dst, steps);
            }
            What::Prim(prim, finish) => {
                let typed = if prim == Prim::Select { 1 } else { 0 };
                let divides = prim.needs_divisor(node.ty);
                if divides && !matches!(nodes.nodes[node.args[1]].what, What::Lit(lit) if lit.bits != 0) {
                    let finder = table::zero_finder(node.ty);
                    steps.push(TileStep::CheckDivisor { finder, src: self.of(node.args[1]) });
                }
                table::prim(self.isa, prim, finish, nodes.nodes[node.args[typed]].ty)
            }
            What::Pair(pair) => pairs::pair(self.isa, pair, node.ty).expect("pairs have routines"),
            What::Func(func) => table::func(self.isa, func, node.ty),
            What::Lit(_) | What::Fold(_) | What::Fused => unreachable!("these are not computed by steps"),
        };
        let mut places: SmallVec<[PlaceId; 3]> = node.args.iter().map(|&arg| self.of(arg)).collect();
        places.resize(3, places[0]);
        let whole = places.iter().chain([&dst]).all(|&place| self.plan.locations[place].0 != Location::Moving);
        steps.push(TileStep::Map { routine, dst, args: [places[0], places[1], places[2]], shape: node.shape, whole });
        if !whole {
            self.repeat(reg, dst, steps);
        }
    }

    /// Adds the step that fills the last block of a value's tile, if it is in scratch memory.
    fn repeat(&self, reg: Reg, place: PlaceId, steps: &mut Vec<TileStep>) {
        if let (Location::Tile(_), TileShape::Tile) = self.plan.locations[place] {
            steps.push(TileStep::Repeat { repeater: moves::repeater(self.nodes.nodes[reg].ty.size()), place });
        }
    }

    fn row_read(&self, slot: usize, level: Level, shape: TileShape) -> RowRead {
        let operand = &self.nodes.kernel.operands[slot];
        if operand.source == Source::Iota {
            return RowRead::Read(moves::read_iota, shape);
        }
        match self.nodes.class(slot, level) {
            Class::Uniform => RowRead::Read(moves::splat(operand.dtype), shape),
            Class::Contiguous if self.nodes.is_in_place(slot, level) => RowRead::InPlace,
            Class::Contiguous => RowRead::Widen(moves::widen(self.isa, operand.dtype)),
            Class::Strided => RowRead::Read(moves::strided(operand.dtype), shape),
        }
    }

    /// Adds the step that stores an output of a full value, or of a literal in a kernel without folds.
    fn store(&mut self, output: usize, steps: &mut Vec<TileStep>) {
        let nodes = self.nodes;
        let (store, dtype) = (nodes.stores[output], nodes.kernel.outputs[output].dtype);
        let (src, access) = (self.of(store.value), nodes.output_access(output));
        steps.push(if nodes.is_contiguous_output(output) {
            let rounding = moves::round_and_narrow(self.isa, dtype).filter(|_| store.rounds);
            TileStep::Store { routine: rounding.unwrap_or_else(|| moves::narrow(self.isa, dtype)), src, access }
        } else {
            TileStep::Scatter { writer: moves::scatter(dtype), src, access }
        });
    }
}

impl Nodes<'_> {
    /// The access of an output.
    fn output_access(&self, output: usize) -> AccessId {
        AccessId::new(self.kernel.operands.len() + output)
    }

    /// Whether a node is a load (or a gather of whole rows) whose tile is the operand's own memory.
    fn is_in_place_load(&self, reg: Reg) -> bool {
        let node = &self.nodes[reg];
        match node.what {
            What::Load(slot) => self.is_in_place(slot, node.level),
            What::Gather(slot) => {
                self.is_in_place(slot, node.level) && self.nodes[node.args[0]].shape == TileShape::Splat
            }
            What::Lit(_) | What::Prim(..) | What::Pair(_) | What::Func(_) | What::Fold(_) | What::Fused => false,
        }
    }

    /// The values of a fold.
    fn fold_args(&self, fold: FoldId) -> &[Reg] {
        let node = self.nodes.entities().find(|node| node.what == What::Fold(fold)).expect("the fold exists");
        &node.args
    }
}
