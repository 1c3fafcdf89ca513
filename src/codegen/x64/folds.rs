//! Partial results of folds: where they are, how elements update them, and how they are combined into one value.
//!
//! The order is that of [`crate::codegen::fold`]: element `i` goes to partial result `i mod 32`. With vectors of `n`
//! 32-bit lanes, that is lane `i mod n` of group `i / n mod (32 / n)`. A bool is an all-ones or zero 32-bit lane here.

use super::body::FunctionContext;
use super::code::{Address, BasicBlock, Class, Inst, Lanes, Op, Origin, Start, V};
use super::frame::Frame;
use super::level::Level;
use super::masks::Relation;
use super::opcode;
use super::register_list::RegisterList;
use super::select::{BlockShape, Select, Val, is_wide};
use crate::codegen::fold;
use crate::codegen::geometry::Class as Motion;
use crate::codegen::kernel::{FOLD_LANES, Source};
use crate::codegen::native::flat::{FlatNodeId, FlatOp};
use crate::ir::Combine;
use crate::ir::scalar::{Prim, Ty};
use smallvec::SmallVec;

/// Vectors of partial results per 32-bit value. Each is updated by its own copy of a loop's body.
pub(super) const fn n_groups(level: Level) -> usize {
    FOLD_LANES / level.lanes()
}

/// Predicates of comparison instructions: one operand is a NaN, none is.
const UNORDERED: u8 = 3;
const ORDERED: u8 = 7;

/// Where a vector of partial results is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartialLocation {
    /// In this register.
    Register(u8),
    /// At this offset in the frame.
    Frame(i32),
}

/// A vector of partial results: values and, for index folds, their indices.
#[derive(Debug, Clone)]
pub(super) struct Partial {
    /// The value.
    pub(super) value: Val,
    /// Its index.
    pub(super) index: Option<Val>,
}

/// A fold of a pass.
#[derive(Debug)]
pub(super) struct Fold {
    /// Its node.
    pub(super) id: FlatNodeId,
    /// How it combines.
    pub(super) combine: Combine,
    /// The type of its elements.
    pub(super) ty: Ty,
    /// The node of its elements.
    pub(super) value: FlatNodeId,
    /// The node of their indices.
    pub(super) index: Option<FlatNodeId>,
    /// The iota that gives the indices, if they are consecutive: then no later element has a smaller index.
    pub(super) counter: Option<usize>,
    /// Whether NaNs are collected in vectors of their own. A maximum or minimum does so if any NaN will do as its
    /// result. An update then waits for one instruction of the update before it instead of two.
    nan_apart: bool,
    /// Per group, the locations of the value's vectors, then those of the index or of the NaNs.
    places: Vec<SmallVec<[PartialLocation; 4]>>,
}

impl Fold {
    /// The folds `ids`, with locations for their partial results.
    pub(super) fn of_pass(
        level: Level,
        function: &FunctionContext<'_>,
        ids: &[FlatNodeId],
        frame: &mut Frame,
    ) -> Vec<Fold> {
        let FunctionContext { kernel, motions, flat, shown, .. } = function;
        let counts =
            |&slot: &usize| kernel.operands[slot].source == Source::Iota && motions[slot] == Motion::Contiguous;
        let describe = |&id: &FlatNodeId| {
            let node = &flat.nodes[id];
            let FlatOp::Fold(combine) = node.op else { unreachable!("a fold's node is a fold") };
            let (value, index) = (node.args[0], node.args.get(1).copied());
            let ty = flat.nodes[value].ty;
            let counter = index.and_then(|index| flat.nodes[index].op.operand()).filter(counts);
            let nan_apart = keeps_nan(combine, ty) && !shown[id];
            Fold { id, combine, ty, value, index, counter, nan_apart, places: Vec::new() }
        };
        let mut folds: Vec<Fold> = ids.iter().map(describe).collect();
        let n_groups = n_groups(level);
        let needed: usize = folds.iter().map(|fold| n_groups * fold.vectors()).sum();
        let mut last = level.n_vectors() as u8;
        for fold in &mut folds {
            for _ in 0..n_groups {
                let places = (0..fold.vectors()).map(|_| {
                    if needed <= level.most_partials() {
                        last -= 1;
                        PartialLocation::Register(last)
                    } else {
                        PartialLocation::Frame(frame.take_vector())
                    }
                });
                fold.places.push(places.collect());
            }
        }
        folds
    }

    /// The locations of the first group's vectors, paired with those of another group.
    pub(super) fn moved(&self, group: usize) -> impl Iterator<Item = (PartialLocation, PartialLocation)> {
        self.places[0].iter().copied().zip(self.places[group].iter().copied())
    }

    /// Vectors per group.
    fn vectors(&self) -> usize {
        let others = match (self.index, self.nan_apart) {
            (Some(_), _) => 2,
            (None, true) => self.value_vectors(),
            (None, false) => 0,
        };
        self.value_vectors() + others
    }

    fn value_vectors(&self) -> usize {
        BlockShape::Vector.parts(self.ty)
    }

    /// The partial results of a group. Those in registers can also be written.
    fn partial(&self, select: &mut Select<'_>, group: usize) -> Partial {
        let n_values = self.value_vectors();
        let n_read = if self.index.is_some() { self.vectors() } else { n_values };
        let vectors: SmallVec<[V; 4]> = (0..n_read).map(|number| self.read(select, group, number)).collect();
        let index = self.index.map(|_| Val::from(&vectors[n_values..]));
        Partial { value: Val::from(&vectors[..n_values]), index }
    }

    /// The partial results of a group, with the collected NaNs in them.
    fn whole(&self, select: &mut Select<'_>, group: usize) -> Partial {
        let partial = self.partial(select, group);
        if !self.nan_apart {
            return partial;
        }
        let nans: Val = (self.value_vectors()..self.vectors()).map(|number| self.read(select, group, number)).collect();
        let is_nan = select.is_nan(&nans, self.ty);
        let pick = |(part, (&nan, &value)): (usize, (&V, &V))| select.blend(is_nan, nan, value, part);
        Partial { value: nans.iter().zip(&partial.value).enumerate().map(pick).collect(), index: None }
    }

    /// A vector of the partial results of a group.
    fn read(&self, select: &mut Select<'_>, group: usize, number: usize) -> V {
        let wide = is_wide(self.ty) || (self.index.is_some() && number >= self.value_vectors());
        match self.places[group][number] {
            PartialLocation::Register(register) => select.accumulator(register, wide),
            PartialLocation::Frame(at) => {
                let address = Address { start: Start::Frame, scale: None, disp: at };
                select.load_as(&opcode::LOAD[0], select.level().width(), address, None, wide)
            }
        }
    }

    /// Initializes the partial results.
    pub(super) fn start(&self, select: &mut Select<'_>) {
        let identity = fold::sequence(self.combine, self.ty, &[]);
        let value = match self.ty {
            Ty::Bool => select.word(if identity.bits == 0 { 0 } else { u32::MAX }),
            Ty::I32 | Ty::I64 | Ty::F32 | Ty::F64 => select.bits(is_wide(self.ty), identity.bits),
        };
        let index = select.bits(true, identity.index as u64);
        let number = select.bits(is_wide(self.ty), 0);
        for places in &self.places {
            for (at, &place) in places.iter().enumerate() {
                let v = match (at < self.value_vectors(), self.index) {
                    (true, _) => value,
                    (false, Some(_)) => index,
                    (false, None) => number,
                };
                self.assign(select, place, v, None);
            }
        }
    }

    /// Keeps the registers of groups from a number on, which the block does not use, from being allocated.
    pub(super) fn reserve(&self, block: &mut BasicBlock, from: usize) {
        for place in self.places[from..].iter().flatten() {
            if let PartialLocation::Register(register) = *place {
                block.register(Class::Vector, is_wide(self.ty), Origin::Register(register));
            }
        }
    }

    /// Initializes the indices of a group with those of its first elements. So an element that ties with the identity
    /// need not win.
    pub(super) fn start_indices(&self, select: &mut Select<'_>, group: usize, indices: &Val) {
        let places = &self.places[group][self.value_vectors()..];
        places.iter().zip(indices).for_each(|(&place, &v)| self.assign(select, place, v, None));
    }

    /// Writes a vector to its location; for AVX-512, only the lanes in the mask.
    fn assign(&self, select: &mut Select<'_>, place: PartialLocation, v: V, mask: Option<V>) {
        let level_width = select.level().width();
        match place {
            PartialLocation::Register(register) => {
                let wide = select.block.info(v).wide;
                let result = select.accumulator(register, wide);
                let lanes = mask.map(|mask| Lanes { mask, zero: false });
                let op = Op::Machine(&opcode::MOVE[wide as usize]);
                let (width, args) = (level_width, RegisterList::from([v]));
                select.push_inst(Inst { op, width, result: Some(result), args, lanes, address: None, imm: None });
            }
            PartialLocation::Frame(at) => {
                let address = Address { start: Start::Frame, scale: None, disp: at };
                let wide = select.block.info(v).wide;
                select.store_as(&opcode::STORE[wide as usize], level_width, v, address, mask, None);
            }
        }
    }

    /// Updates the partial results of a group with elements. Those outside the mask are ignored.
    pub(super) fn take(&self, select: &mut Select<'_>, group: usize, x: &Partial, mask: Option<V>) {
        let acc = self.partial(select, group);
        if select.level() == Level::Avx2 {
            return self.take_by_blends(select, group, &acc, x, mask);
        }
        if let (Some(best), Some(index)) = (&acc.index, &x.index) {
            let wins = if self.counter.is_some() {
                self.wins_later(select, &acc.value, &x.value, mask)
            } else {
                let wins = self.wins(select, &acc.value, best, &x.value, index);
                mask.map_or(wins, |mask| select.logic(Prim::And, wins, mask))
            };
            let new: SmallVec<[V; 4]> = x.value.iter().chain(index).copied().collect();
            for (number, (&place, &v)) in self.places[group].iter().zip(&new).enumerate() {
                let part = if number < x.value.len() { number } else { number - x.value.len() };
                let wide = select.block.info(v).wide;
                let wins = select.mask_part(wins, part, wide);
                self.assign(select, place, v, Some(wins));
            }
            return;
        }
        let parts: SmallVec<[(PartialLocation, V, V); 2]> = self.places[group]
            .iter()
            .zip(&acc.value)
            .zip(&x.value)
            .map(|((&place, &acc), &x)| (place, acc, x))
            .collect();
        for (part, (place, acc, x)) in parts.into_iter().enumerate() {
            let mut mask = mask.map(|mask| select.mask_part(mask, part, is_wide(self.ty)));
            if self.nan_apart {
                let is_nan = select.compared_with_itself(x, UNORDERED, mask, is_wide(self.ty));
                let place = self.places[group][self.value_vectors() + part];
                self.assign(select, place, x, Some(is_nan));
            } else if keeps_nan(self.combine, self.ty) {
                // A NaN stays, so only lanes without one are updated.
                mask = Some(select.compared_with_itself(acc, ORDERED, mask, is_wide(self.ty)));
            }
            let opcode = self.opcode();
            match place {
                PartialLocation::Register(_) => {
                    let lanes = mask.map(|mask| Lanes { mask, zero: false });
                    let (op, args) = (Op::Machine(opcode), RegisterList::from([acc, x]));
                    let (width, result) = (select.level().width(), Some(acc));
                    select.push_inst(Inst { op, width, result, args, lanes, address: None, imm: None });
                }
                PartialLocation::Frame(_) => {
                    let sum = select.vector(is_wide(self.ty));
                    select.push(opcode, Some(sum), &[acc, x], None);
                    self.assign(select, place, sum, mask);
                }
            }
        }
    }

    /// [`Fold::take`] for AVX2, whose instructions write all lanes.
    fn take_by_blends(&self, select: &mut Select<'_>, group: usize, acc: &Partial, x: &Partial, mask: Option<V>) {
        let places = &self.places[group];
        let opcode = if self.index.is_some() { None } else { Some(self.opcode()) };
        let in_place = opcode.filter(|opcode| opcode.form(Level::Avx2).is_some());
        if self.nan_apart {
            // Any NaN will do, and all-ones lanes of a comparison are NaNs.
            for (part, &v) in x.value.iter().enumerate() {
                let number = self.value_vectors() + part;
                let existing = self.read(select, group, number);
                let mut is_nan = select.op_imm(&opcode::CMP_F[is_wide(self.ty) as usize], &[v, v], Some(UNORDERED));
                if let Some(mask) = mask {
                    is_nan = select.only(mask, part, is_nan);
                }
                self.update(select, places[number], &opcode::OR[is_wide(self.ty) as usize], existing, is_nan);
            }
        }
        let keeps = keeps_nan(self.combine, self.ty) && !self.nan_apart;
        if let (Some(opcode), None, false) = (in_place, mask, keeps) {
            for ((&place, &acc), &x) in places.iter().zip(&acc.value).zip(&x.value) {
                self.update(select, place, opcode, acc, x);
            }
            return;
        }
        let new = match &x.index {
            Some(index) if self.counter.is_some() => {
                let wins = self.wins_later(select, &acc.value, &x.value, None);
                picked(select, wins, (&x.value, index), acc)
            }
            None if self.nan_apart => self.better(select, acc, x),
            Some(_) | None => self.combined(select, acc, x),
        };
        let old = acc.value.iter().chain(acc.index.iter().flatten());
        let vectors: SmallVec<[(V, V); 4]> =
            new.value.iter().chain(new.index.iter().flatten()).copied().zip(old.copied()).collect();
        for (number, (new, old)) in vectors.into_iter().enumerate() {
            let part = if number < x.value.len() { number } else { number - x.value.len() };
            let v = mask.map_or(new, |mask| select.blend(mask, new, old, part));
            self.assign(select, places[number], v, None);
        }
    }

    /// Combines a vector with the one at its location, in place.
    fn update(&self, select: &mut Select<'_>, place: PartialLocation, opcode: &'static opcode::Opcode, acc: V, x: V) {
        match place {
            PartialLocation::Register(_) => select.push_as(opcode, select.level().width(), Some(acc), &[acc, x], None),
            PartialLocation::Frame(_) => {
                let v = select.op(opcode, &[acc, x]);
                self.assign(select, place, v, None);
            }
        }
    }

    /// The instruction that combines two vectors, if the first has no NaN.
    fn opcode(&self) -> &'static opcode::Opcode {
        let pair = match (self.combine, self.ty.is_float()) {
            (Combine::Sum, true) => &opcode::ADD_F,
            (Combine::Sum, false) => &opcode::ADD_I,
            (Combine::Prod, true) => &opcode::MUL_F,
            (Combine::Prod, false) => &opcode::MUL_I,
            (Combine::Max, true) => &opcode::MAX_F,
            (Combine::Max, false) => &opcode::MAX_I,
            (Combine::Min, true) => &opcode::MIN_F,
            (Combine::Min, false) => &opcode::MIN_I,
            (Combine::Any, _) => &opcode::OR,
            (Combine::All, _) => &opcode::AND,
            (Combine::ArgMax | Combine::ArgMin, _) => unreachable!("index folds are selections"),
        };
        &pair[is_wide(self.ty) as usize]
    }

    /// [`fold::IndexFold::wins`] as a mask.
    fn wins(&self, select: &mut Select<'_>, best: &Val, best_index: &Val, value: &Val, index: &Val) -> V {
        let ty = self.ty;
        let (low, high) = if self.combine == Combine::ArgMax { (best, value) } else { (value, best) };
        let is_better = select.prim(Prim::Lt, &[*low, *high], ty);
        let is_worse = select.prim(Prim::Lt, &[*high, *low], ty);
        let is_not_worse = select.prim(Prim::Not, &[is_worse], Ty::Bool);
        let earlier = select.prim(Prim::Lt, &[*index, *best_index], Ty::I64);
        let tie = select.prim(Prim::And, &[is_not_worse, earlier], Ty::Bool);
        let ordered = select.prim(Prim::Or, &[is_better, tie], Ty::Bool);
        if !ty.is_float() {
            return ordered[0];
        }
        let nan = Val::from([select.is_nan(value, ty)]);
        let best_nan = Val::from([select.is_nan(best, ty)]);
        let same = select.prim(Prim::Eq, &[nan, best_nan], Ty::Bool);
        let ordered = select.prim(Prim::And, &[same, ordered], Ty::Bool);
        let number = select.prim(Prim::Not, &[best_nan], Ty::Bool);
        let first_nan = select.prim(Prim::And, &[nan, number], Ty::Bool);
        select.prim(Prim::Or, &[first_nan, ordered], Ty::Bool)[0]
    }

    /// Like [`Fold::wins`] in the lanes of the mask, where every index is greater than the best one's, so that no tie
    /// wins.
    fn wins_later(&self, select: &mut Select<'_>, best: &Val, value: &Val, mask: Option<V>) -> V {
        let (low, high) = if self.combine == Combine::ArgMax { (best, value) } else { (value, best) };
        let mut wins = select.compare(Relation::LtOrNan, low, high, self.ty)[0];
        if self.ty.is_float() {
            // Nothing wins against a NaN.
            let number = select.compare(Relation::Eq, best, best, self.ty)[0];
            wins = select.logic(Prim::And, wins, number);
        }
        mask.map_or(wins, |mask| select.logic(Prim::And, wins, mask))
    }

    /// The partial result `acc` combined with `x`.
    fn combined(&self, select: &mut Select<'_>, acc: &Partial, x: &Partial) -> Partial {
        if let (Some(best), Some(index)) = (&acc.index, &x.index) {
            let wins = self.wins(select, &acc.value, best, &x.value, index);
            return picked(select, wins, (&x.value, index), acc);
        }
        let better = self.better(select, acc, x);
        if !keeps_nan(self.combine, self.ty) {
            return better;
        }
        let nan = select.is_nan(&acc.value, self.ty);
        let keep = |(part, (&acc, &better)): (usize, (&V, &V))| select.blend(nan, acc, better, part);
        Partial { value: acc.value.iter().zip(&better.value).enumerate().map(keep).collect(), index: None }
    }

    /// The partial result `acc` combined with `x`, if `acc` has no NaN.
    fn better(&self, select: &mut Select<'_>, acc: &Partial, x: &Partial) -> Partial {
        let opcode = self.opcode();
        let fallback = match self.combine {
            Combine::Prod => Prim::Mul,
            Combine::Max => Prim::Max,
            Combine::Min => Prim::Min,
            Combine::Sum | Combine::Any | Combine::All | Combine::ArgMax | Combine::ArgMin => Prim::Add,
        };
        let value = if opcode.form(select.level()).is_some() {
            acc.value.iter().zip(&x.value).map(|(&acc, &x)| select.op(opcode, &[acc, x])).collect()
        } else {
            select.prim(fallback, &[acc.value, x.value], self.ty)
        };
        Partial { value, index: None }
    }

    /// All partial results combined, in the lowest lane.
    pub(super) fn tree(&self, select: &mut Select<'_>) -> Partial {
        let mut groups: Vec<Partial> = (0..self.places.len()).map(|group| self.whole(select, group)).collect();
        while groups.len() > 1 {
            let upper = groups.split_off(groups.len() / 2);
            groups = groups.iter().zip(&upper).map(|(low, high)| self.combined(select, low, high)).collect();
        }
        let mut all = groups.pop().expect("there is a group");
        select.shape = BlockShape::Half;
        let mut half = select.level().lanes() / 2;
        while half > 0 {
            let low = |val: &Val| -> Val { Val::from([val[0]]) };
            let lower = Partial { value: low(&all.value), index: all.index.as_ref().map(low) };
            let upper = Partial {
                value: select.lanes_from(&all.value, half, is_wide(self.ty)),
                index: all.index.as_ref().map(|index| select.lanes_from(index, half, true)),
            };
            all = self.combined(select, &lower, &upper);
            half /= 2;
        }
        all
    }

    /// The code of the fold, for [`fold_code`](crate::codegen::native::block_folds::fold_code)'s users.
    pub(super) fn number(&self) -> u64 {
        crate::codegen::native::block_folds::fold_code(self.combine, self.ty)
    }
}

/// The value and index of `x` in the lanes that win, those of `acc` in the others.
fn picked(select: &mut Select<'_>, wins: V, (value, index): (&Val, &Val), acc: &Partial) -> Partial {
    let mut pick = |new: &Val, old: &Val| -> Val {
        new.iter().zip(old).enumerate().map(|(part, (&new, &old))| select.blend(wins, new, old, part)).collect()
    };
    let value = pick(value, &acc.value);
    Partial { value, index: acc.index.as_ref().map(|old| pick(index, old)) }
}

/// Whether a fold keeps a NaN once it has one. The instruction returns its second operand if either is a NaN.
fn keeps_nan(combine: Combine, ty: Ty) -> bool {
    ty.is_float() && matches!(combine, Combine::Max | Combine::Min)
}

impl Select<'_> {
    /// The accumulator in that register.
    fn accumulator(&mut self, register: u8, wide: bool) -> V {
        let existing = (0..self.block.infos.len() as u32)
            .map(V)
            .find(|&v| self.block.info(v).origin == Origin::Register(register));
        existing.unwrap_or_else(|| self.block.register(Class::Vector, wide, Origin::Register(register)))
    }

    /// The lanes, of a mask or of all, that are NaN or that are not, as `relation` says.
    fn compared_with_itself(&mut self, a: V, relation: u8, mask: Option<V>, wide: bool) -> V {
        let result = self.mask_register();
        self.push_inst(Inst {
            op: Op::Machine(&opcode::CMP_F[wide as usize]),
            width: self.width(),
            result: Some(result),
            args: RegisterList::from([a, a]),
            lanes: mask.map(|mask| Lanes { mask, zero: false }),
            address: None,
            imm: Some(relation),
        });
        result
    }

    /// Lanes `half..2 * half`, moved to the lowest lanes.
    fn lanes_from(&mut self, val: &Val, half: usize, wide: bool) -> Val {
        let bytes = half * if wide { 8 } else { 4 };
        let v = match (bytes, self.level()) {
            (64, _) | (32, Level::Avx2) => val[1],
            (16, Level::Avx2) => self.shuffled(&opcode::PERMUTE, &[val[0]], 0x0e, wide),
            (32, Level::Avx512) => self.shuffled(&opcode::SHUFFLE_X, &[val[0], val[0]], 0x0e, wide),
            (16, Level::Avx512) => self.shuffled(&opcode::SHUFFLE_X, &[val[0], val[0]], 0x01, wide),
            (8, _) => self.shuffled(&opcode::SHUFFLE, &[val[0]], 0x0e, wide),
            (_, _) => self.shuffled(&opcode::SHUFFLE, &[val[0]], 0x01, wide),
        };
        Val::from([v])
    }

    fn shuffled(&mut self, opcode: &'static opcode::Opcode, args: &[V], imm: u8, wide: bool) -> V {
        let result = self.vector(wide);
        self.push(opcode, Some(result), args, Some(imm));
        result
    }
}
