//! A kernel's instructions as this tier needs them: with shapes, and fused where the bits stay the same.

use super::isa::Isa;
use super::pairs::{self, Half, Pair, Side};
use super::plan::{FoldId, TileShape};
use super::table::{self, Finish, has_canoned};
use crate::codegen::kernel::{Kernel, Kind, Level, Source};
use crate::codegen::{Class, Lanes};
use crate::ir::SideTable;
use crate::ir::entity::Arena;
use crate::ir::scalar::{Func, Lit, Prim, Reg, Ty};
use smallvec::SmallVec;

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum What {
    Load(usize),
    Gather(usize),
    Lit(Lit),
    Prim(Prim, Finish),
    /// Two prims, of three operands.
    Pair(Pair),
    Func(Func),
    /// The fold with that number.
    Fold(FoldId),
    /// A part of its only user.
    Fused,
}

/// One instruction.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) what: What,
    pub(super) args: SmallVec<[Reg; 3]>,
    pub(super) ty: Ty,
    pub(super) level: Level,
    pub(super) shape: TileShape,
    /// See [`Kernel::passes`].
    pub(super) pass: usize,
}

impl Node {
    /// The half of a pair that this node may be.
    fn half(&self) -> Option<Half> {
        match self.what {
            What::Prim(prim, finish) => Half::of(prim, finish),
            What::Load(_) | What::Gather(_) | What::Lit(_) | What::Pair(_) => None,
            What::Func(_) | What::Fold(_) | What::Fused => None,
        }
    }
}

/// An output and its value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Store {
    pub(super) value: Reg,
    /// Whether storing rounds: the rounding prim is fused.
    pub(super) rounds: bool,
}

/// The nodes of a kernel.
#[derive(Debug)]
pub(super) struct Nodes<'k> {
    pub(super) kernel: &'k Kernel,
    pub(super) lanes: Lanes,
    pub(super) classes: &'k [Class],
    pub(super) nodes: Arena<Reg, Node>,
    pub(super) stores: Vec<Store>,
    pub(super) has_folds: bool,
}

impl<'k> Nodes<'k> {
    pub(super) fn new(isa: Isa, kernel: &'k Kernel, lanes: Lanes, classes: &'k [Class]) -> Nodes<'k> {
        let stores = kernel.outputs.iter().map(|output| Store { value: output.value, rounds: false }).collect();
        let mut all = Nodes { kernel, lanes, classes, nodes: Arena::default(), stores, has_folds: kernel.has_folds() };
        let mut n_folds = 0;
        for (inst, pass) in kernel.insts.iter().zip(kernel.passes()) {
            let what = match inst.kind {
                Kind::Load(slot) => What::Load(slot as usize),
                Kind::Gather(slot) => What::Gather(slot as usize),
                Kind::Lit(lit) => What::Lit(lit),
                Kind::Prim(prim) => What::Prim(prim, Finish::Raw),
                Kind::Func(func) => What::Func(func),
                Kind::Fold(_) => {
                    n_folds += 1;
                    What::Fold(FoldId::new(n_folds - 1))
                }
            };
            let shape = all.shape(what, &inst.args, inst.level);
            let args = inst.args.clone();
            all.nodes.push(Node { what, args, ty: inst.ty, level: inst.level, shape, pass });
        }
        all.fuse();
        all.pair(isa);
        all
    }

    /// How a memory access moves along the lanes.
    pub(super) fn class(&self, access: usize, level: Level) -> Class {
        match (self.lanes, level) {
            (Lanes::Inner, Level::Row) => Class::Uniform,
            (Lanes::Inner, Level::Full) | (Lanes::Rows, _) => self.classes[access],
        }
    }

    /// Whether an operand can be used in place.
    pub(super) fn is_in_place(&self, slot: usize, level: Level) -> bool {
        let operand = &self.kernel.operands[slot];
        operand.source == Source::Memory
            && operand.dtype == operand.dtype.compute().dtype()
            && self.class(slot, level) == Class::Contiguous
    }

    /// Whether an output is contiguous along the lanes.
    pub(super) fn is_contiguous_output(&self, output: usize) -> bool {
        self.classes[self.kernel.operands.len() + output] == Class::Contiguous
    }

    /// The cost of recomputing each full value, in simple steps.
    pub(super) fn costs(&self) -> SideTable<Reg, usize> {
        let mut costs: SideTable<Reg, usize> = SideTable::new();
        for node in self.nodes.entities() {
            let own = match node.what {
                What::Load(slot) => usize::from(!self.is_in_place(slot, node.level)),
                What::Gather(_) => 2,
                What::Lit(_) | What::Fold(_) | What::Fused => 0,
                What::Prim(Prim::Div | Prim::Sqrt | Prim::Quot | Prim::Rem, _) => 4,
                What::Prim(Prim::IntPow, _) => 16,
                What::Prim(..) => 1,
                What::Pair(_) => 2,
                What::Func(_) => 16,
            };
            let args: usize = node.args.iter().map(|&arg| costs[arg]).sum();
            costs.push(if node.level == Level::Row || node.shape == TileShape::Splat {
                0
            } else {
                (own + args).min(1 << 20)
            });
        }
        costs
    }

    fn shape(&self, what: What, args: &[Reg], level: Level) -> TileShape {
        let any_tile = args.iter().any(|&arg| self.nodes[arg].shape == TileShape::Tile);
        let is_tile = match what {
            What::Load(slot) | What::Gather(slot) => any_tile || self.class(slot, level) != Class::Uniform,
            What::Lit(_) => false,
            What::Prim(..) | What::Func(_) => any_tile,
            What::Fold(_) => self.lanes == Lanes::Rows,
            What::Pair(_) | What::Fused => unreachable!("nothing is fused yet"),
        };
        if is_tile { TileShape::Tile } else { TileShape::Splat }
    }

    /// The operands of `select(a != a, a, max(a, b))` as one step: how a maximum or minimum of floats is written.
    fn nan_stays(&self, reg: Reg, uses: &SideTable<Reg, usize>) -> Option<(Prim, [Reg; 3])> {
        let node = &self.nodes[reg];
        let (&[mask, a, picked], What::Prim(Prim::Select, Finish::Raw)) = (&node.args[..], node.what) else {
            return None;
        };
        let (is_nan, extreme) = (&self.nodes[mask], &self.nodes[picked]);
        let What::Prim(prim @ (Prim::Max | Prim::Min), Finish::Raw) = extreme.what else { return None };
        let fits = is_nan.what == What::Prim(Prim::Ne, Finish::Raw)
            && is_nan.args[..] == [a, a]
            && extreme.args[0] == a
            && extreme.ty.is_float()
            && (uses[mask], uses[picked]) == (1, 1);
        fits.then_some((prim, [mask, a, picked]))
    }

    /// The operands of `select(a < b, b, a)`, which is a maximum, or `select(a < b, a, b)`, a minimum, as one step.
    fn chosen_by_order(&self, reg: Reg, uses: &SideTable<Reg, usize>) -> Option<(Prim, [Reg; 2])> {
        let node = &self.nodes[reg];
        let (&[mask, yes, no], What::Prim(Prim::Select, Finish::Raw)) = (&node.args[..], node.what) else {
            return None;
        };
        let order = &self.nodes[mask];
        if order.what != What::Prim(Prim::Lt, Finish::Raw) || uses[mask] != 1 || node.ty == Ty::Bool {
            return None;
        }
        if order.args[..] == [no, yes] {
            return Some((Prim::Max, [yes, no]));
        }
        (order.args[..] == [yes, no]).then_some((Prim::Min, [yes, no]))
    }

    /// How often each value is read or stored.
    fn uses(&self) -> SideTable<Reg, usize> {
        let mut uses = SideTable::with_len(self.nodes.len(), || 0);
        let live = self.nodes.entities().filter(|node| node.what != What::Fused);
        live.flat_map(|node| &node.args).for_each(|&arg| uses[arg] += 1);
        self.stores.iter().for_each(|store| uses[store.value] += 1);
        uses
    }

    /// Merges two prims into one step where there is a routine for both, and the value between them has no other user.
    fn pair(&mut self, isa: Isa) {
        let uses = self.uses();
        for reg in self.nodes.ids() {
            if self.nodes[reg].what == What::Prim(Prim::RoundBF16, Finish::Raw) {
                let arg = self.nodes[reg].args[0];
                if let What::Prim(prim, Finish::Raw) = self.nodes[arg].what
                    && uses[arg] == 1
                    && table::rounded_bf16(isa, prim).is_some()
                {
                    self.nodes[arg].what = What::Fused;
                    self.nodes[reg].what = What::Prim(prim, Finish::BF16);
                    self.nodes[reg].args = self.nodes[arg].args.clone();
                }
            }
            let node = &self.nodes[reg];
            let Some(second) = node.half() else { continue };
            for (arg, other, side) in
                [(node.args[0], node.args[1], Side::Left), (node.args[1], node.args[0], Side::Right)]
            {
                let first = &self.nodes[arg];
                let Some(half) = first.half() else { continue };
                let (a, b) = (first.args[0], first.args[1]);
                let pair = Pair { first: half, second, side };
                let together = (first.level, first.pass, first.shape) == (node.level, node.pass, TileShape::Tile);
                if uses[arg] == 1 && together && pairs::pair(isa, pair, node.ty).is_some() {
                    self.nodes[arg].what = What::Fused;
                    self.nodes[reg].what = What::Pair(pair);
                    self.nodes[reg].args = [a, b, other].into_iter().collect();
                    break;
                }
            }
        }
    }

    /// Fuses neighbours where the value between them has no other user: a NaN check and a maximum, a prim and a
    /// `Canon`, a rounding and a store.
    fn fuse(&mut self) {
        let uses = self.uses();
        for reg in self.nodes.ids() {
            if let Some((prim, [mask, a, picked])) = self.nan_stays(reg, &uses) {
                let b = self.nodes[picked].args[1];
                (self.nodes[mask].what, self.nodes[picked].what) = (What::Fused, What::Fused);
                self.nodes[reg].what = What::Prim(prim, Finish::NanStays);
                self.nodes[reg].args = [a, b].into_iter().collect();
            }
            if let Some((prim, args)) = self.chosen_by_order(reg, &uses) {
                let mask = self.nodes[reg].args[0];
                self.nodes[mask].what = What::Fused;
                self.nodes[reg].what = What::Prim(prim, Finish::Raw);
                self.nodes[reg].args = args.into_iter().collect();
            }
            let What::Prim(Prim::Canon, Finish::Raw) = self.nodes[reg].what else { continue };
            let arg = self.nodes[reg].args[0];
            match self.nodes[arg].what {
                What::Prim(prim, Finish::Raw) if has_canoned(prim) && uses[arg] == 1 => {
                    self.nodes[arg].what = What::Fused;
                    self.nodes[reg].what = What::Prim(prim, Finish::Canon);
                    self.nodes[reg].args = self.nodes[arg].args.clone();
                }
                _ => {}
            }
        }
        for output in 0..self.stores.len() {
            let value = self.stores[output].value;
            let (node, dtype) = (&self.nodes[value], self.kernel.outputs[output].dtype);
            let rounding = dtype.rounding().filter(|&prim| prim != Prim::Canon);
            let is_rounded = rounding.is_some_and(|prim| node.what == What::Prim(prim, Finish::Raw));
            if is_rounded && uses[value] == 1 && node.level == Level::Full && self.is_contiguous_output(output) {
                self.stores[output] = Store { value: node.args[0], rounds: true };
                self.nodes[value].what = What::Fused;
            }
        }
    }
}
