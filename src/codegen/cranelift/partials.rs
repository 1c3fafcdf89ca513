//! Partial results of folds: where they are, how an element updates them, and how they are combined into one value.
//!
//! The order is that of [`crate::codegen::fold`]. Between loops, the partial results are in a stack slot, one lane
//! after another, with values and indices apart. A bool lane is an all-ones or zero i32 there.

use super::elements::LaneStride;
use super::prims::Arg;
use super::value::{Emit, LANES, Val, ValueForm};
use crate::codegen::fold;
use crate::codegen::kernel::FOLD_LANES;
use crate::codegen::native::flat::{Flat, FlatNodeId, FlatOp};
use crate::ir::scalar::{Lit, Prim, Ty};
use crate::ir::{Combine, DType};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, StackSlot, StackSlotData, StackSlotKind, Value, types};
use cranelift_frontend::FunctionBuilder;

/// The number of vectors of partial results.
pub(super) const GROUPS: usize = FOLD_LANES / LANES;

/// A partial result or an element: a value and, for index folds, its index.
#[derive(Debug, Clone, Copy)]
pub(super) struct Partial {
    /// The value.
    pub(super) value: Val,
    /// Its index.
    pub(super) index: Option<Val>,
}

/// Addresses of partial results: of values and of indices.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartialAddresses {
    values: Value,
    indices: Option<Value>,
}

/// A fold and the stack slots of its partial results.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoldState {
    /// The node of its result.
    pub(super) id: FlatNodeId,
    /// How it combines.
    pub(super) combine: Combine,
    /// The type of its elements.
    pub(super) ty: Ty,
    /// The node of its elements.
    pub(super) value: FlatNodeId,
    /// The node of their indices.
    pub(super) index: Option<FlatNodeId>,
    values: StackSlot,
    indices: Option<StackSlot>,
}

/// Bytes of a lane in a stack slot.
const fn lane_bytes(ty: Ty) -> i32 {
    if matches!(ty, Ty::Bool) { 4 } else { ty.size() as i32 }
}

impl FoldState {
    /// The fold that node `id` is, with a new stack slot.
    pub(super) fn new(flat: &Flat, id: FlatNodeId, b: &mut FunctionBuilder<'_>) -> FoldState {
        let node = &flat.nodes[id];
        let FlatOp::Fold(combine) = node.op else { unreachable!("a fold's node is a fold") };
        let ty = flat.nodes[node.args[0]].ty;
        let mut slot = |ty: Ty| {
            let bytes = (lane_bytes(ty) as usize * FOLD_LANES) as u32;
            b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 4))
        };
        let index = node.args.get(1).copied();
        FoldState {
            id,
            combine,
            ty,
            value: node.args[0],
            index,
            values: slot(ty),
            indices: index.map(|_| slot(Ty::I64)),
        }
    }

    /// Vector registers that its partial results take.
    pub(super) fn n_registers(&self) -> usize {
        let parts = |ty: Ty| if lane_bytes(ty) == 8 { 2 } else { 1 };
        GROUPS * (parts(self.ty) + if self.index.is_some() { 2 } else { 0 })
    }

    /// The result of an empty fold.
    pub(super) fn empty(&self, flat: &Flat) -> Lit {
        Lit { ty: flat.nodes[self.id].ty, bits: fold::sequence(self.combine, self.ty, &[]).result(self.combine) }
    }

    /// The identity in the current form.
    pub(super) fn identity(&self, emit: &mut Emit<'_, '_>) -> Partial {
        let identity = fold::sequence(self.combine, self.ty, &[]);
        let value = emit.lit(Lit { ty: self.ty, bits: identity.bits });
        Partial { value, index: self.index.map(|_| emit.lit(Lit::i64(identity.index))) }
    }

    /// The addresses of the partial results starting at `lane`.
    pub(super) fn addresses(&self, b: &mut FunctionBuilder<'_>, lane: Option<Value>) -> PartialAddresses {
        let mut address = |slot: StackSlot, ty: Ty| {
            let base = b.ins().stack_addr(types::I64, slot, 0);
            lane.map_or(base, |lane| {
                let offset = b.ins().ishl_imm_u(lane, lane_bytes(ty).trailing_zeros() as i64);
                b.ins().iadd(base, offset)
            })
        };
        let values = address(self.values, self.ty);
        PartialAddresses { values, indices: self.indices.map(|slot| address(slot, Ty::I64)) }
    }

    /// Loads the partial results at `addresses`, starting at lane `offset`.
    pub(super) fn read(&self, emit: &mut Emit<'_, '_>, addresses: PartialAddresses, offset: usize) -> Partial {
        let at = |ty: Ty| offset as i32 * lane_bytes(ty);
        let value = if self.ty == Ty::Bool {
            let lanes = emit.load(DType::I32, addresses.values, at(Ty::Bool), LaneStride::Contiguous);
            let zero = emit.int(0);
            lanes.zip(zero, |lanes, zero| emit.b.ins().icmp(IntCC::NotEqual, lanes, zero))
        } else {
            emit.load(self.ty.dtype(), addresses.values, at(self.ty), LaneStride::Contiguous)
        };
        let index =
            addresses.indices.map(|indices| emit.load(DType::I64, indices, at(Ty::I64), LaneStride::Contiguous));
        Partial { value, index }
    }

    /// Stores the partial results at `addresses`, starting at lane `offset`.
    pub(super) fn write(&self, emit: &mut Emit<'_, '_>, addresses: PartialAddresses, offset: usize, partial: Partial) {
        let at = |ty: Ty| offset as i32 * lane_bytes(ty);
        let (dtype, value) = match (self.ty, emit.form) {
            (Ty::Bool, ValueForm::Vector) => (DType::I32, emit.mask(partial.value, false)),
            (Ty::Bool, ValueForm::Scalar) => {
                let wide = partial.value.map(|value| emit.b.ins().uextend(types::I32, value));
                (DType::I32, wide.map(|wide| emit.b.ins().ineg(wide)))
            }
            (Ty::I32 | Ty::I64 | Ty::F32 | Ty::F64, _) => (self.ty.dtype(), partial.value),
        };
        emit.store(dtype, value, addresses.values, at(self.ty), LaneStride::Contiguous);
        if let (Some(indices), Some(index)) = (addresses.indices, partial.index) {
            emit.store(DType::I64, index, indices, at(Ty::I64), LaneStride::Contiguous);
        }
    }

    /// The partial result `acc` combined with `x`.
    pub(super) fn combine(&self, emit: &mut Emit<'_, '_>, acc: Partial, x: Partial) -> Partial {
        let ty = self.ty;
        let value = |emit: &mut Emit<'_, '_>, prim: Prim| Partial {
            value: pair(emit, prim, ty, acc.value, x.value),
            index: None,
        };
        match self.combine {
            Combine::Sum => value(emit, Prim::Add),
            Combine::Prod => value(emit, Prim::Mul),
            Combine::Any => value(emit, Prim::Or),
            Combine::All => value(emit, Prim::And),
            Combine::Max | Combine::Min => {
                let prim = if self.combine == Combine::Max { Prim::Max } else { Prim::Min };
                let better = value(emit, prim);
                if !ty.is_float() {
                    return better;
                }
                // Where the partial result is a NaN, the prim gives the element, but the NaN has to stay.
                let nan = pair(emit, Prim::Ne, ty, acc.value, acc.value);
                Partial { value: emit.select(nan, acc.value, better.value, ty), index: None }
            }
            Combine::ArgMax => self.pick(emit, acc, x, |emit, a, b| pair(emit, Prim::Lt, ty, b, a)),
            Combine::ArgMin => self.pick(emit, acc, x, |emit, a, b| pair(emit, Prim::Lt, ty, a, b)),
        }
    }

    /// [`fold::IndexFold::wins`], with `before` as the order.
    fn pick<'f>(
        &self,
        emit: &mut Emit<'_, 'f>,
        acc: Partial,
        x: Partial,
        before: impl Fn(&mut Emit<'_, 'f>, Val, Val) -> Val,
    ) -> Partial {
        let (Some(best_index), Some(index)) = (acc.index, x.index) else { unreachable!("an index fold has indices") };
        let is_better = before(emit, x.value, acc.value);
        let is_worse = before(emit, acc.value, x.value);
        let is_not_worse = pair(emit, Prim::Not, Ty::Bool, is_worse, is_worse);
        let earlier = pair(emit, Prim::Lt, Ty::I64, index, best_index);
        let tie = pair(emit, Prim::And, Ty::Bool, is_not_worse, earlier);
        let mut wins = pair(emit, Prim::Or, Ty::Bool, is_better, tie);
        if self.ty.is_float() {
            let nan = pair(emit, Prim::Ne, self.ty, x.value, x.value);
            let best_nan = pair(emit, Prim::Ne, self.ty, acc.value, acc.value);
            let same = pair(emit, Prim::Eq, Ty::Bool, nan, best_nan);
            let ordered = pair(emit, Prim::And, Ty::Bool, same, wins);
            let number = pair(emit, Prim::Not, Ty::Bool, best_nan, best_nan);
            let first_nan = pair(emit, Prim::And, Ty::Bool, nan, number);
            wins = pair(emit, Prim::Or, Ty::Bool, first_nan, ordered);
        }
        let value = emit.select(wins, x.value, acc.value, self.ty);
        Partial { value, index: Some(emit.select(wins, index, best_index, Ty::I64)) }
    }

    /// The partial results of the stack slot combined into one, in scalar form.
    pub(super) fn tree(&self, emit: &mut Emit<'_, '_>) -> Partial {
        let addresses = self.addresses(emit.b, None);
        let mut vector = emit.with_form(ValueForm::Vector);
        let mut groups: Vec<Partial> =
            (0..GROUPS).map(|group| self.read(&mut vector, addresses, group * LANES)).collect();
        while groups.len() > 1 {
            let upper = groups.split_off(groups.len() / 2);
            groups = groups.iter().zip(&upper).map(|(&low, &high)| self.combine(&mut vector, low, high)).collect();
        }
        let mut lanes: Vec<Partial> = (0..LANES)
            .map(|lane| Partial {
                value: Val::One(vector.lane(groups[0].value, self.ty, lane)),
                index: groups[0].index.map(|index| Val::One(vector.lane(index, Ty::I64, lane))),
            })
            .collect();
        let mut scalar = emit.with_form(ValueForm::Scalar);
        while lanes.len() > 1 {
            let upper = lanes.split_off(lanes.len() / 2);
            lanes = lanes.iter().zip(&upper).map(|(&low, &high)| self.combine(&mut scalar, low, high)).collect();
        }
        lanes[0]
    }
}

fn pair(emit: &mut Emit<'_, '_>, prim: Prim, ty: Ty, a: Val, b: Val) -> Val {
    let arg = |val: Val| Arg { val, ty, scalar: None };
    emit.prim(prim, &[arg(a), arg(b)])
}
