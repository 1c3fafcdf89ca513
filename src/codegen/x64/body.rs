//! The body of a pass's loops: loads, prims, stores, and updates of partial results.

use super::code::{Address, BasicBlock, Class, Inst, Minus, Op, Origin, Start, V};
use super::copies::{Own, Single};
use super::elements::{Layout, Payloads, When};
use super::encoder::{Encoder, Label, Width};
use super::folds::{Fold, Partial, n_groups};
use super::frame::Frame;
use super::gathers::{self, Gathers};
use super::level::Level;
use super::opcode;
use super::register_list::RegisterList;
use super::scaling::scaled;
use super::select::{BlockShape, Select, Val, is_wide};
use crate::codegen::geometry::Class as Motion;
use crate::codegen::kernel::{Kernel, Source};
use crate::codegen::native::flat::{Flat, FlatNodeId, FlatOp};
use crate::codegen::native::passes::{Pass, Passes};
use crate::codegen::native::{Manner, Stores, streamed};
use crate::ir::scalar::{Lit, Prim, Ty};
use crate::ir::{DType, SideTable};
use smallvec::SmallVec;

/// Bytes of a row value in the frame.
const SLOT_BYTES: i32 = 16;

/// What blocks need of the function that they are part of.
#[derive(Debug)]
pub(super) struct FunctionContext<'a> {
    /// The kernel that is compiled.
    pub(super) kernel: &'a Kernel,
    /// How its accesses move.
    pub(super) motions: &'a [Motion],
    /// Its nodes.
    pub(super) flat: &'a Flat,
    /// Which stores are non-temporal, and which operands are staged.
    pub(super) manner: Manner,
    /// Per node, whether an output shows the payload of a NaN in it.
    pub(super) shown: SideTable<FlatNodeId, bool>,
    /// Offset in the frame of each row value: 16 bytes of a value, or the bits or lanes of a mask.
    pub(super) slots: SideTable<FlatNodeId, Option<i32>>,
    /// Offset in the frame of the lane distances of each access.
    pub(super) distances: Vec<Option<i32>>,
    /// Offset in the frame of the row address of each access, or of an iota's value.
    pub(super) rows: Vec<i32>,
    /// Offset in the frame of the elements of the last iteration: a bit for each, or for AVX2 their number.
    pub(super) tail: i32,
    /// Offset in the frame of a mask of one lane; not for AVX2.
    pub(super) one: i32,
    /// Offset in the frame of a buffer for narrow elements that are copied one by one.
    pub(super) narrow: i32,
    /// What its gathers need.
    pub(super) gathers: Gathers,
    /// Where the loops go on with elements whose angles are not [all small](Flat::all_small).
    pub(super) exit: Option<Label>,
}

/// Which elements an iteration of a loop works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Elements {
    /// All lanes of every copy.
    All,
    /// The remaining ones, as the mask or number in the frame says.
    Tail,
}

impl<'a> FunctionContext<'a> {
    /// What blocks of another form of the kernel need, which has the same accesses and no gathers.
    pub(super) fn of_other_form(&self, flat: &'a Flat) -> FunctionContext<'a> {
        FunctionContext {
            flat,
            shown: flat.shown_payloads(),
            slots: SideTable::with_len(flat.nodes.len(), || None),
            distances: self.distances.clone(),
            rows: self.rows.clone(),
            gathers: Gathers::default(),
            exit: None,
            ..*self
        }
    }

    /// Takes a slot in the frame for every value that is the same for all elements of a row.
    pub(super) fn take_slots(&mut self, passes: &Passes, frame: &mut Frame) {
        for pass in &passes.passes {
            for &id in pass.row.iter().chain(&pass.uniform).chain(&pass.folds) {
                let slot = match self.flat.nodes[id].op {
                    FlatOp::Load(access) if self.is_row_iota(id) => self.rows[access as usize],
                    FlatOp::Load(_) | FlatOp::Lit(_) | FlatOp::Prim(_) | FlatOp::Fold(_) => {
                        frame.take(SLOT_BYTES, SLOT_BYTES)
                    }
                };
                self.slots[id] = Some(slot);
            }
        }
    }
}

impl FunctionContext<'_> {
    /// The body of the loop of `pass`, written once; the masks of its `n_masked` copies select the elements.
    pub(super) fn single(
        &self,
        encoder: &mut Encoder,
        pass: &Pass,
        folds: &[Fold],
        n_masked: usize,
        elements: Elements,
    ) -> Single {
        let mut select = self.select(encoder, BlockShape::Vector, 2 * pass.body.len());
        let mut own: Vec<Own> = Vec::new();
        let mut mask = None;
        if elements == Elements::Tail {
            let masks = select.tail_masks(n_masked, self.tail);
            let of_first = select.with_parts(masks[0]);
            own = masks[1..]
                .iter()
                .map(|&mask| Own {
                    masks: of_first.iter().copied().zip(select.with_parts(mask)).collect(),
                    ..Own::default()
                })
                .collect();
            mask = Some(masks[0]);
        }
        for fold in folds {
            own.resize_with(n_groups(select.level()) - 1, Own::default);
            own.iter_mut().zip(1..).for_each(|(own, group)| own.partials.extend(fold.moved(group)));
        }
        let n_shared = select.block.infos.len();
        let mut body = Body::new(self, select, pass, mask);
        let parts = body.write(folds);
        Single { block: body.select.block, n_shared, parts, own }
    }

    fn select<'e>(&self, encoder: &'e mut Encoder, shape: BlockShape, n_insts: usize) -> Select<'e> {
        Select::new(encoder, shape, self.narrow, n_insts)
    }

    /// Computes row values and stores each in its slot.
    pub(super) fn row_values(&self, encoder: &mut Encoder, ids: &[FlatNodeId]) -> BasicBlock {
        let mut row = self.row(encoder);
        for &id in ids.iter().filter(|&&id| !self.is_row_iota(id)) {
            let value = row.node(id);
            row.values[id] = Some(value);
            let slot = self.slots[id].expect("a row value has a slot");
            row.keep_row(self.flat.nodes[id].ty, value[0], slot);
        }
        row.select.block
    }

    /// Writes row values to the outputs with those numbers.
    pub(super) fn row_stores(&self, encoder: &mut Encoder, slots: &[usize]) -> BasicBlock {
        let mut row = self.row(encoder);
        for &slot in slots {
            let value = row.value(self.flat.outputs[slot]);
            let mask = row.mask;
            let start = Start::Row((self.kernel.operands.len() + slot) as u16);
            let layout = Layout::Contiguous(Address { start, scale: None, disp: 0 });
            let payloads = self.payloads_of_output(slot);
            row.select.store(self.kernel.outputs[slot].dtype, &value, layout, mask, payloads);
        }
        row.select.block
    }

    /// Initializes the partial results of folds.
    pub(super) fn start_folds(&self, encoder: &mut Encoder, folds: &[Fold]) -> BasicBlock {
        let mut select = self.select(encoder, BlockShape::Vector, 0);
        folds.iter().for_each(|fold| fold.start(&mut select));
        select.block
    }

    /// Sets the first indices of folds with a counter, in a block that has elements.
    pub(super) fn start_indices(&self, encoder: &mut Encoder, folds: &[Fold]) -> BasicBlock {
        let mut select = self.select(encoder, BlockShape::Vector, 0);
        let level = select.level();
        for (fold, slot) in folds.iter().filter_map(|fold| Some((fold, fold.counter?))) {
            for group in 0..n_groups(level) {
                let indices = self.iota(&mut select, slot, group * level.lanes());
                fold.start_indices(&mut select, group, &indices);
            }
        }
        select.block
    }

    /// Combines the partial results of a fold. The result goes to its slot, its value and index to the frame.
    pub(super) fn finish_fold(&self, encoder: &mut Encoder, fold: &Fold, value_at: i32, index_at: i32) -> BasicBlock {
        let mut select = self.select(encoder, BlockShape::Vector, 0);
        let result = fold.tree(&mut select);
        let slot = self.slots[fold.id].expect("a fold has a slot");
        match &result.index {
            Some(index) => {
                select.keep_vector(result.value[0], value_at);
                select.keep_vector(index[0], index_at);
                select.keep_vector(index[0], slot);
            }
            None if fold.ty == Ty::Bool => select.keep_lanes(result.value[0], slot),
            None => select.keep_vector(result.value[0], slot),
        }
        select.block
    }

    fn row<'s>(&'s self, encoder: &'s mut Encoder) -> Body<'s, 's> {
        let mut select = self.select(encoder, BlockShape::Row, 0);
        let one = select.first_lane(self.one);
        Body::new(self, select, &NO_PASS, Some(one))
    }

    /// Whether a node is an iota that is the same for all elements; its slot is then that of the row.
    pub(super) fn is_row_iota(&self, id: FlatNodeId) -> bool {
        match self.flat.nodes[id].op {
            FlatOp::Load(slot) => {
                self.kernel.operands[slot as usize].source == Source::Iota && self.flat.nodes[id].uniform
            }
            FlatOp::Lit(_) | FlatOp::Prim(_) | FlatOp::Fold(_) => false,
        }
    }

    /// Whether an output can show the payload of a NaN in a node.
    fn payloads(&self, id: FlatNodeId) -> Payloads {
        if self.shown[id] { Payloads::Kept } else { Payloads::Lost }
    }

    /// Whether the value of an f16 output can be a NaN other than the canonical one.
    fn payloads_of_output(&self, slot: usize) -> Payloads {
        if self.is_canonical(self.flat.outputs[slot]) { Payloads::Lost } else { Payloads::Kept }
    }

    /// Whether a division is 1 over an f32 square root.
    fn is_inverse_of_root(&self, id: FlatNodeId) -> bool {
        let [n, d] = self.flat.nodes[id].args[..] else { return false };
        self.flat.as_lit(n) == Some(Lit::f32(1.0)) && self.flat.nodes[d].op == FlatOp::Prim(Prim::Sqrt)
    }

    /// Whether a NaN in a node is known to be the canonical one.
    fn is_canonical(&self, id: FlatNodeId) -> bool {
        let node = &self.flat.nodes[id];
        match node.op {
            FlatOp::Prim(Prim::RoundF16 | Prim::Canon) => true,
            FlatOp::Prim(Prim::Max | Prim::Min) => node.args.iter().all(|&arg| self.is_canonical(arg)),
            FlatOp::Prim(Prim::Select) => node.args[1..].iter().all(|&arg| self.is_canonical(arg)),
            FlatOp::Lit(lit) => lit.ty == Ty::F32 && !lit.as_f32().is_nan(),
            FlatOp::Prim(_) | FlatOp::Load(_) | FlatOp::Fold(_) => false,
        }
    }
}

impl FunctionContext<'_> {
    /// The values of an iota, starting `ahead` elements after the loop position.
    fn iota(&self, select: &mut Select<'_>, slot: usize, ahead: usize) -> Val {
        place(select, slot, ahead);
        let first = match select.level() {
            Level::Avx2 => {
                let lowest = select.vector(true);
                select.push_as(&opcode::MOVE_GPR, Width::X, Some(lowest), &[], None);
                select.op(&opcode::BROADCAST[1], &[lowest])
            }
            Level::Avx512 => select.op(&opcode::BROADCAST_GPR, &[]),
        };
        let distances = self.distances[slot].expect("an iota has distances in the frame");
        (0..2)
            .map(|part| {
                let distance = select.distances(distances, part);
                select.op(&opcode::ADD_I[1], &[first, distance])
            })
            .collect()
    }
}

/// Computes the start of a strided access, `ahead` elements after the loop position.
fn place(select: &mut Select<'_>, access: usize, ahead: usize) {
    let op = Op::Place { access: access as u16, ahead: ahead as i32 };
    let (width, args) = (select.width(), RegisterList::NONE);
    select.push_inst(Inst { op, width, result: None, args, lanes: None, address: None, imm: None });
}

static NO_PASS: Pass = Pass {
    row: Vec::new(),
    uniform: Vec::new(),
    body: Vec::new(),
    folds: Vec::new(),
    stores: Vec::new(),
    keeps: Vec::new(),
    kept: Vec::new(),
};

/// Instructions of a body per division that hide it. The processor executes 20 meanwhile, but some of them wait for the
/// result.
const HIDING_INSTS: usize = 32;

/// A block under construction.
struct Body<'f, 'e> {
    function: &'f FunctionContext<'f>,
    select: Select<'e>,
    pass: &'f Pass,
    /// The value of each node, once it is computed.
    values: SideTable<FlatNodeId, Option<Val>>,
    /// The lanes that are stored and folded, if not all.
    mask: Option<V>,
    /// Divisions and roots of the pass that use the divider.
    n_divided: usize,
}

impl<'f, 'e> Body<'f, 'e> {
    /// An empty body.
    fn new(function: &'f FunctionContext<'f>, select: Select<'e>, pass: &'f Pass, mask: Option<V>) -> Body<'f, 'e> {
        let is_divided =
            |&&id: &&FlatNodeId| matches!(function.flat.nodes[id].op, FlatOp::Prim(Prim::Div | Prim::Sqrt));
        let n_divided = pass.body.iter().filter(is_divided).count();
        let values = SideTable::with_len(function.flat.nodes.len(), || None);
        Body { function, select, pass, values, mask, n_divided }
    }

    /// Writes the whole body and returns where its parts begin.
    fn write(&mut self, folds: &[Fold]) -> Vec<usize> {
        let pass = self.pass;
        let mut parts = Vec::with_capacity(pass.body.len() + 2);
        parts.push(self.select.block.insts.len());
        self.read_kept();
        for &id in &pass.body {
            parts.push(self.select.block.insts.len());
            let value = self.node(id);
            self.values[id] = Some(value);
        }
        if let (Some(id), Some(exit)) = (self.function.flat.all_small, self.function.exit) {
            // All copies check before one of them stores: the elements are computed again.
            parts.push(self.select.block.insts.len());
            let is_small = self.value(id)[0];
            self.select.leave_unless(is_small, exit);
        }
        parts.push(self.select.block.insts.len());
        self.finish(folds);
        parts
    }

    fn read_kept(&mut self) {
        for &(id, buffer) in &self.pass.kept {
            let dtype = self.function.flat.nodes[id].ty.dtype();
            let layout = self.contiguous(self.function.motions.len() + buffer, dtype);
            let value = self.select.load(dtype, layout, self.mask, Payloads::Kept, When::Needed);
            self.values[id] = Some(value);
        }
    }

    /// Writes the stores, and the updates of partial results.
    fn finish(&mut self, folds: &[Fold]) {
        let function = self.function;
        for &(id, buffer) in &self.pass.keeps {
            let dtype = function.flat.nodes[id].ty.dtype();
            let layout = self.contiguous(function.motions.len() + buffer, dtype);
            let value = self.value(id);
            self.select.store(dtype, &value, layout, self.mask, Payloads::Kept);
        }
        for &slot in &self.pass.stores {
            let dtype = function.kernel.outputs[slot].dtype;
            let value = self.value(function.flat.outputs[slot]);
            let layout = self.layout(function.kernel.operands.len() + slot, dtype);
            let payloads = function.payloads_of_output(slot);
            match layout {
                Layout::Contiguous(address)
                    if function.manner.stores == Stores::Streamed && self.mask.is_none() && streamed::takes(dtype) =>
                {
                    self.select.stream(dtype, &value, address);
                }
                Layout::Contiguous(_) | Layout::Strided(_) => {
                    self.select.store(dtype, &value, layout, self.mask, payloads);
                }
            }
        }
        for fold in folds {
            let mut value = self.value(fold.value);
            if fold.ty == Ty::Bool {
                value = Val::from([self.select.lanes_of(value[0])]);
            }
            let index = fold.index.map(|id| self.value(id));
            fold.take(&mut self.select, 0, &Partial { value, index }, self.mask);
        }
    }

    /// The value of a node.
    fn value(&mut self, id: FlatNodeId) -> Val {
        if let Some(value) = self.values[id] {
            return value;
        }
        let function = self.function;
        let ty = function.flat.nodes[id].ty;
        let value = match (function.flat.as_lit(id), function.slots[id]) {
            (Some(lit), _) => self.select.lit(lit),
            (None, Some(slot)) if ty == Ty::Bool => Val::from([self.select.row_mask(slot)]),
            (None, Some(slot)) => {
                let v = self.select.block.register(Class::Vector, is_wide(ty), Origin::Element(slot));
                Val::repeated(v, self.select.shape.parts(ty))
            }
            (None, None) => unreachable!("operands are computed before, or are values of the row"),
        };
        self.values[id] = Some(value);
        value
    }

    fn node(&mut self, id: FlatNodeId) -> Val {
        let node = &self.function.flat.nodes[id];
        match node.op {
            FlatOp::Load(slot) => self.load(id, slot as usize),
            FlatOp::Prim(Prim::Fma) => self.fma(&node.args, node.ty),
            FlatOp::Prim(Prim::Mul)
                if self.select.level() == Level::Avx512
                    && let Some((p, n)) = scaled(self.function.flat, id) =>
            {
                let (p, n) = (self.value(p), self.value(n));
                self.select.scale(&p, &n, node.ty)
            }
            FlatOp::Prim(Prim::Div) if self.is_divider_late() && self.function.flat.tanh_quotients.contains(&id) => {
                self.n_divided -= 1;
                let (n, d) = (self.value(node.args[0]), self.value(node.args[1]));
                self.select.quotient(n[0], d[0])
            }
            FlatOp::Prim(Prim::Div) if self.is_divider_late() && self.function.is_inverse_of_root(id) => {
                self.n_divided -= 1;
                let d = self.value(node.args[1]);
                self.select.inverse_of_root(d[0])
            }
            FlatOp::Prim(Prim::RoundF16) if self.function.payloads(id) == Payloads::Lost => {
                let value = self.value(node.args[0]);
                Val::from([self.select.rounded_f16(value[0])])
            }
            FlatOp::Prim(prim) => {
                let args: SmallVec<[Val; 3]> = node.args.iter().map(|&arg| self.value(arg)).collect();
                self.select.prim(prim, &args, self.function.flat.nodes[node.args[0]].ty)
            }
            FlatOp::Lit(_) | FlatOp::Fold(_) => self.value(id),
        }
    }

    /// Whether the divider would take longer than all other instructions, so that divisions should avoid it.
    fn is_divider_late(&self) -> bool {
        let has_instruction = self.select.level() == Level::Avx512 && self.select.shape == BlockShape::Vector;
        has_instruction && self.n_divided > 1 && HIDING_INSTS * self.n_divided > self.pass.body.len()
    }

    /// An fma, which absorbs the negations of its operands.
    fn fma(&mut self, args: &[FlatNodeId], ty: Ty) -> Val {
        let mut term = |id: FlatNodeId| {
            let node = &self.function.flat.nodes[id];
            let is_negated = node.op == FlatOp::Prim(Prim::Neg);
            (self.value(if is_negated { node.args[0] } else { id }), is_negated)
        };
        let [(a, of_a), (b, of_b), (c, of_c)] = [args[0], args[1], args[2]].map(&mut term);
        self.select.fma(&a, &b, &c, ty, Minus { product: of_a != of_b, addend: of_c })
    }

    fn load(&mut self, id: FlatNodeId, slot: usize) -> Val {
        let operand = self.function.kernel.operands[slot];
        if let Some(&index) = self.function.flat.nodes[id].args.first() {
            return self.gather(id, slot, index);
        }
        let is_row = self.select.shape == BlockShape::Row;
        if operand.source == Source::Iota {
            return if is_row { self.value(id) } else { self.function.iota(&mut self.select, slot, 0) };
        }
        let layout = if is_row {
            Layout::Contiguous(Address { start: Start::Row(slot as u16), scale: None, disp: 0 })
        } else {
            self.layout(slot, operand.dtype)
        };
        let payloads = self.function.payloads(id);
        // The loads of an iteration come before its stores, except for a value that is stored unchanged.
        let stored = self.pass.stores.iter().any(|&slot| self.function.flat.outputs[slot] == id);
        let when = if stored { When::Here } else { When::Needed };
        self.select.load(operand.dtype, layout, self.mask, payloads, when)
    }

    /// The element of an operand at an index.
    fn gather(&mut self, id: FlatNodeId, slot: usize, index: FlatNodeId) -> Val {
        if let Some(row) = self.function.gathers.row(id) {
            let dtype = self.function.kernel.operands[slot].dtype;
            let layout = self.contiguous(row, dtype);
            return self.select.load(dtype, layout, self.mask, self.function.payloads(id), When::Here);
        }
        let (function, index) = (self.function, self.value(index));
        let moves = self.select.shape != BlockShape::Row && function.motions[slot] != Motion::Uniform;
        let source = gathers::Source {
            slot,
            dtype: function.kernel.operands[slot].dtype,
            distances: function.distances[slot].filter(|_| moves),
        };
        let put = |select: &mut Select<'_>| place(select, slot, 0);
        gathers::gather(&function.gathers, &mut self.select, &source, &index, self.mask, put)
    }

    fn contiguous(&self, access: usize, dtype: DType) -> Layout {
        let scale = Some(dtype.size().trailing_zeros() as u8);
        Layout::Contiguous(Address { start: Start::Row(access as u16), scale, disp: 0 })
    }

    fn layout(&mut self, access: usize, dtype: DType) -> Layout {
        if self.function.motions[access] == Motion::Contiguous {
            return self.contiguous(access, dtype);
        }
        place(&mut self.select, access, 0);
        Layout::Strided(self.function.distances[access].expect("a strided access has distances in the frame"))
    }

    /// Stores a row value in its slot.
    fn keep_row(&mut self, ty: Ty, v: V, slot: i32) {
        if ty != Ty::Bool {
            return self.select.keep_vector(v, slot);
        }
        let ones = self.select.word(u32::MAX);
        let lanes = self.select.only(v, 0, ones);
        self.select.keep_lanes(lanes, slot);
    }
}

impl Select<'_> {
    /// Stores the lowest lanes of a vector in the frame.
    fn keep_vector(&mut self, v: V, at: i32) {
        let address = Address { start: Start::Frame, scale: None, disp: at };
        self.store_as(&opcode::STORE[0], Width::X, v, address, None, None);
    }

    /// Stores the lowest of all-ones or zero lanes in a slot, or its bits for all lanes.
    fn keep_lanes(&mut self, v: V, at: i32) {
        if self.level() == Level::Avx2 {
            let lanes = self.op(&opcode::BROADCAST[0], &[v]);
            return self.keep_vector(lanes, at);
        }
        let shape = std::mem::replace(&mut self.shape, BlockShape::Half);
        let lanes = self.op(&opcode::BROADCAST[0], &[v]);
        let mask = self.mask_op(&opcode::LANES_TO_MASK, &[lanes], None);
        self.shape = shape;
        let address = Address { start: Start::Frame, scale: None, disp: at };
        self.store_as(&opcode::MASK_STORE, Width::X, mask, address, None, None);
    }
}
