//! A kernel as one flat list of prims, loads and folds, which code generators walk.
//!
//! Funcs are expanded into their bodies, equal nodes are merged, and prims on literals are folded. So a node is one
//! value of the whole kernel. Operands have smaller numbers than users. A node knows its level, its pass (as in
//! [`Kernel::passes`]) and whether it is uniform.
//!
//! No algebraic rewriting happens here. But some functions have a shorter body with the same bits:
//!
//! - an exponential, where the sign that [`signs`](super::signs) finds for its argument allows it;
//! - functions of angles, in a form for elements whose angles are all small. Its code checks that
//!   ([`Flat::all_small`]), and leaves other elements to the usual form.

use super::signs;
use crate::codegen::geometry::Class;
use crate::codegen::kernel::{Kernel, Kind, Level};
use crate::ir::entity::{Arena, entity_id};
use crate::ir::scalar::{Body, Func, Lit, NanPayload, Prim, Ty, body, eval};
use crate::ir::{Combine, SideTable};
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

entity_id! {
    /// Names a node of a [`Flat`]; prints as the number that the names of CUDA source end in, as in `v7`.
    pub(in crate::codegen) struct FlatNodeId(u32) = "";
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::codegen) enum FlatOp {
    /// The element of an operand at this position; with an argument, at that index of its gathered dimension. Only CUDA
    /// supports gathers: the other generators decline such kernels first.
    Load(u16),
    /// A literal.
    Lit(Lit),
    /// A primitive.
    Prim(Prim),
    /// The inner elements of its operand, combined.
    Fold(Combine),
}

impl FlatOp {
    /// The number of the operand that is loaded.
    pub(in crate::codegen) fn operand(self) -> Option<usize> {
        match self {
            FlatOp::Load(slot) => Some(slot as usize),
            FlatOp::Lit(_) | FlatOp::Prim(_) | FlatOp::Fold(_) => None,
        }
    }
}

/// One value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::codegen) struct FlatNode {
    /// What it is.
    pub(in crate::codegen) op: FlatOp,
    /// Its operands.
    pub(in crate::codegen) args: SmallVec<[FlatNodeId; 3]>,
    /// Its type.
    pub(in crate::codegen) ty: Ty,
    /// Per row or per element.
    pub(in crate::codegen) level: Level,
    /// The pass in which it can first be computed, or before which it is available.
    pub(in crate::codegen) pass: usize,
    /// Whether it is the same for all inner elements of a row.
    pub(in crate::codegen) uniform: bool,
}

/// The angles that functions of angles are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Angles {
    /// All.
    #[default]
    All,
    /// Small ones, if they differ by element.
    Small,
}

/// The nodes of a kernel, and those that are its outputs.
#[derive(Debug, Default)]
pub(in crate::codegen) struct Flat {
    /// All nodes, operands before users.
    pub(in crate::codegen) nodes: Arena<FlatNodeId, FlatNode>,
    /// The value of every output.
    pub(in crate::codegen) outputs: Vec<FlatNodeId>,
    /// The f32 divisions of `tanh`: 1 or less, over a sum from 1 to 2^27, in a difference that absorbs an error of one
    /// last place.
    pub(in crate::codegen) tanh_quotients: Vec<FlatNodeId>,
    /// Whether the angles are as small as this form of the kernel takes them to be, if it is such a form.
    pub(in crate::codegen) all_small: Option<FlatNodeId>,
    /// Whether there are functions of angles that differ by element.
    pub(in crate::codegen) has_angles: bool,
    /// What these are expanded to.
    angles: Angles,
    /// A hash table with open addressing: the numbers of nodes, for value numbering. [`NONE`] is an empty place.
    table: Vec<FlatNodeId>,
}

impl Flat {
    /// Flattens `kernel`, whose operands move along the vector loop as `classes` says.
    pub(in crate::codegen) fn new(kernel: &Kernel, classes: &[Class]) -> Flat {
        Flat::of_angles(Angles::All, kernel, classes)
    }

    /// The form of `kernel` for elements whose angles are small.
    pub(in crate::codegen) fn of_small_angles(kernel: &Kernel, classes: &[Class]) -> Flat {
        Flat::of_angles(Angles::Small, kernel, classes)
    }

    fn of_angles(angles: Angles, kernel: &Kernel, classes: &[Class]) -> Flat {
        let mut flat = Flat { nodes: Arena::with_capacity(LEAST_PLACES / 2), angles, ..Flat::default() };
        let mut ids: Vec<FlatNodeId> = Vec::with_capacity(kernel.insts.len());
        for inst in &kernel.insts {
            let args: SmallVec<[FlatNodeId; 3]> = inst.args.iter().map(|reg| ids[reg.index()]).collect();
            ids.push(match inst.kind {
                Kind::Load(slot) => {
                    let uniform = inst.level == Level::Row || classes[slot as usize] == Class::Uniform;
                    flat.node(FlatOp::Load(slot), args, inst.ty, inst.level, uniform)
                }
                Kind::Gather(slot) => {
                    let is_gathered = inst.level == Level::Row || classes[slot as usize] == Class::Uniform;
                    let uniform = is_gathered && args.iter().all(|&id| flat.nodes[id].uniform);
                    flat.node(FlatOp::Load(slot), args, inst.ty, inst.level, uniform)
                }
                Kind::Lit(lit) => flat.lit(lit),
                Kind::Prim(prim) => flat.prim(prim, args, inst.ty),
                Kind::Func(func) => flat.func(func, &args, inst.ty),
                Kind::Fold(combine) => flat.node(FlatOp::Fold(combine), args, inst.ty, Level::Row, true),
            });
        }
        flat.outputs = kernel.outputs.iter().map(|output| ids[output.value.index()]).collect();
        flat
    }

    /// The values that its loops compute for their own sake.
    pub(in crate::codegen) fn roots(&self) -> impl Iterator<Item = FlatNodeId> {
        self.outputs.iter().copied().chain(self.all_small)
    }

    /// The literal of a node, if it is one.
    pub(in crate::codegen) fn as_lit(&self, id: FlatNodeId) -> Option<Lit> {
        match self.nodes[id].op {
            FlatOp::Lit(lit) => Some(lit),
            FlatOp::Load(_) | FlatOp::Prim(_) | FlatOp::Fold(_) => None,
        }
    }

    /// Per node, whether the sign and payload of a NaN in it can reach an output.
    pub(in crate::codegen) fn shown_payloads(&self) -> SideTable<FlatNodeId, bool> {
        let payload = |node: &FlatNode| match node.op {
            FlatOp::Prim(prim) => prim.payload(),
            FlatOp::Fold(combine) => combine.payload(),
            FlatOp::Load(_) | FlatOp::Lit(_) => NanPayload::Hidden,
        };
        let nodes = self.nodes.entities().map(|node| (payload(node), node.args.iter().copied()));
        NanPayload::shown(self.outputs.iter().copied(), nodes)
    }

    fn lit(&mut self, lit: Lit) -> FlatNodeId {
        self.node(FlatOp::Lit(lit), SmallVec::new(), lit.ty, Level::Row, true)
    }

    fn prim(&mut self, prim: Prim, args: SmallVec<[FlatNodeId; 3]>, ty: Ty) -> FlatNodeId {
        let lits: Option<SmallVec<[Lit; 3]>> = args.iter().map(|&id| self.as_lit(id)).collect();
        // Division by zero is a fault of the launch, which constant folding would not record.
        let is_fault = |lits: &[Lit]| prim.needs_divisor(ty) && lits[1].bits == 0;
        if let Some(lits) = lits.filter(|lits| !is_fault(lits)) {
            return self.lit(eval::prim(prim, &lits));
        }
        let level = args.iter().map(|&id| self.nodes[id].level).max().unwrap_or(Level::Row);
        let uniform = args.iter().all(|&id| self.nodes[id].uniform);
        self.node(FlatOp::Prim(prim), args, ty, level, uniform)
    }

    fn func(&mut self, func: Func, args: &[FlatNodeId], ty: Ty) -> FlatNodeId {
        let is_short = func == Func::Exp && signs::is_not_positive(self, args[0]);
        let body = match self.of_small_angle(func, args, ty) {
            Some(body) => body,
            None if is_short => short_exp(ty),
            None => func_body(func, ty),
        };
        let mut ids: Vec<FlatNodeId> = Vec::with_capacity(body.insts.len());
        for inst in &body.insts {
            let operands: SmallVec<[FlatNodeId; 3]> = inst.args.iter().map(|reg| ids[reg.index()]).collect();
            ids.push(match inst.kind {
                body::Kind::Arg(index) => args[index as usize],
                body::Kind::Lit(lit) => self.lit(lit),
                body::Kind::Prim(prim) => self.prim(prim, operands, inst.ty),
                body::Kind::Func(inner) => self.func(inner, &operands, inst.ty),
            });
            if func == Func::Tanh && inst.ty == Ty::F32 && inst.kind == body::Kind::Prim(Prim::Div) {
                self.tanh_quotients.extend(ids.last());
            }
        }
        ids[body.results[0].index()]
    }

    /// The body of a function of angles, if they differ by element and are taken to be small. That they are is noted.
    fn of_small_angle(&mut self, func: Func, args: &[FlatNodeId], ty: Ty) -> Option<&'static Body> {
        let (body, most) = small_angles(func, ty).as_ref()?;
        let is_by_element = self.nodes[args[0]].level == Level::Full && !self.nodes[args[0]].uniform;
        self.has_angles |= is_by_element;
        if self.angles == Angles::All || !is_by_element {
            return None;
        }
        let size = self.prim(Prim::Abs, SmallVec::from_slice(args), ty);
        let most = self.lit(*most);
        let is_small = self.prim(Prim::Le, SmallVec::from_slice(&[size, most]), Ty::Bool);
        self.all_small = Some(match self.all_small {
            Some(others) => self.prim(Prim::And, SmallVec::from_slice(&[others, is_small]), Ty::Bool),
            None => is_small,
        });
        Some(body)
    }

    fn node(&mut self, op: FlatOp, args: SmallVec<[FlatNodeId; 3]>, ty: Ty, level: Level, uniform: bool) -> FlatNodeId {
        if 2 * self.nodes.len() >= self.table.len() {
            self.make_room();
        }
        let place = self.place(op, &args, level);
        if self.table[place] != NONE {
            return self.table[place];
        }
        let ready = args.iter().map(|&id| self.nodes[id].pass).max().unwrap_or(0);
        let pass = if matches!(op, FlatOp::Fold(_)) { ready + 1 } else { ready };
        let id = self.nodes.push(FlatNode { op, args, ty, level, pass, uniform });
        self.table[place] = id;
        id
    }

    /// Where the number of such a node is in the table, or belongs.
    fn place(&self, op: FlatOp, args: &[FlatNodeId], level: Level) -> usize {
        let mut hasher = FxHasher::default();
        op.hash(&mut hasher);
        args.iter().for_each(|&arg| hasher.write_usize(arg.index()));
        let mut place = hasher.finish() as usize;
        loop {
            place &= self.table.len() - 1;
            let Some(node) = self.nodes.get(self.table[place]) else { return place };
            if node.op == op && node.level == level && node.args[..] == *args {
                return place;
            }
            place += 1;
        }
    }

    fn make_room(&mut self) {
        self.table = vec![NONE; (4 * self.nodes.len()).next_power_of_two().max(LEAST_PLACES)];
        for id in self.nodes.ids() {
            let node = &self.nodes[id];
            let place = self.place(node.op, &node.args, node.level);
            self.table[place] = id;
        }
    }
}

/// An empty place of the table.
const NONE: FlatNodeId = FlatNodeId::new(u32::MAX as usize);
/// The smallest size of the table, a power of two.
const LEAST_PLACES: usize = 512;

/// The body of a func. It is recorded once, because recording costs more than expanding.
fn func_body(func: Func, ty: Ty) -> &'static Body {
    static BODIES: [[OnceLock<Body>; 2]; Func::ALL.len()] = [const { [const { OnceLock::new() }; 2] }; Func::ALL.len()];
    BODIES[func as usize][(ty == Ty::F64) as usize].get_or_init(|| func.body(ty))
}

/// The body of a function of angles for small ones, and the greatest of these.
fn small_angles(func: Func, ty: Ty) -> &'static Option<(Body, Lit)> {
    type OfSmall = OnceLock<Option<(Body, Lit)>>;
    static BODIES: [[OfSmall; 2]; Func::ALL.len()] = [const { [const { OnceLock::new() }; 2] }; Func::ALL.len()];
    BODIES[func as usize][(ty == Ty::F64) as usize].get_or_init(|| Body::of_small_angles(func, ty))
}

/// The body of the exponential for arguments that are not positive.
fn short_exp(ty: Ty) -> &'static Body {
    static BODIES: [OnceLock<Body>; 2] = [const { OnceLock::new() }; 2];
    BODIES[(ty == Ty::F64) as usize].get_or_init(|| Body::exp_of_not_positive(ty))
}
