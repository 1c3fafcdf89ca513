//! One iteration of an element loop: loads, prims, stores, and updates of partial results.
//!
//! The same code writes the vector form, several copies at a time, and the scalar form for the remaining elements.

use super::elements::LaneStride;
use super::function::{Invariants, Writer, next_partial};
use super::partials::{FoldState, GROUPS, Partial};
use super::prims::Arg;
use super::value::{Emit, LANES, Val, ValueForm};
use crate::codegen::kernel::Source;
use crate::codegen::native::flat::{FlatNodeId, FlatOp};
use crate::codegen::native::passes::Pass;
use crate::ir::scalar::Ty;
use crate::ir::{DType, SideTable};
use cranelift_codegen::ir::{InstBuilder, Value};
use smallvec::SmallVec;

/// The value of each node in one copy of a body.
pub(super) type Values = SideTable<FlatNodeId, Option<Val>>;

/// One iteration of an element loop, under construction.
pub(super) struct Body<'w, 'a, 'f> {
    /// The function.
    pub(super) writer: &'w mut Writer<'a, 'f>,
    /// The pass whose loop it is.
    pub(super) pass: &'w Pass,
    /// What was computed before the loop.
    pub(super) invariants: &'w Invariants,
    /// Elements per copy.
    pub(super) form: ValueForm,
    /// The first element.
    pub(super) i: Value,
    /// Address of element `i` per access; row buffers follow the accesses.
    pub(super) addresses: Vec<Option<Value>>,
    /// Literals of this iteration, by node.
    pub(super) lits: Values,
}

impl<'f> Body<'_, '_, 'f> {
    fn emit(&mut self) -> Emit<'_, 'f> {
        Emit { b: self.writer.b, form: self.form }
    }

    /// Writes copies of the body for neighbouring groups of elements, node by node. Constants are loaded once for all
    /// copies, and every load precedes every store.
    pub(super) fn copies(&mut self, n: usize) -> Vec<Values> {
        let mut copies: Vec<Values> = vec![SideTable::with_len(self.writer.flat.nodes.len(), || None); n];
        for &(id, buffer) in &self.pass.kept {
            let (dtype, address) = (self.writer.flat.nodes[id].ty.dtype(), self.buffer_address(id, buffer));
            for (copy, values) in copies.iter_mut().enumerate() {
                let offset = self.offset(copy, dtype.size());
                values[id] = Some(self.emit().load(dtype, address, offset, LaneStride::Contiguous));
            }
        }
        for &id in &self.pass.body {
            for (copy, values) in copies.iter_mut().enumerate() {
                values[id] = Some(self.node(id, copy, values));
            }
        }
        for (copy, values) in copies.iter().enumerate() {
            for &(id, buffer) in &self.pass.keeps {
                let (dtype, address) = (self.writer.flat.nodes[id].ty.dtype(), self.buffer_address(id, buffer));
                let (offset, value) = (self.offset(copy, dtype.size()), self.arg(values, id).val);
                self.emit().store(dtype, value, address, offset, LaneStride::Contiguous);
            }
            for &slot in &self.pass.stores {
                let value = self.arg(values, self.writer.flat.outputs[slot]).val;
                self.store(slot, value, copy);
            }
        }
        copies
    }

    fn node(&mut self, id: FlatNodeId, copy: usize, values: &Values) -> Val {
        let node = &self.writer.flat.nodes[id];
        match node.op {
            FlatOp::Load(slot) => self.load(slot as usize, copy),
            FlatOp::Prim(prim) => {
                let args: SmallVec<[Arg; 3]> = node.args.iter().map(|&arg| self.arg(values, arg)).collect();
                self.emit().prim(prim, &args)
            }
            FlatOp::Lit(_) | FlatOp::Fold(_) => unreachable!("literals and folds are no part of a body"),
        }
    }

    fn arg(&mut self, values: &Values, id: FlatNodeId) -> Arg {
        let flat = self.writer.flat;
        let ty = flat.nodes[id].ty;
        if let Some(val) = values[id] {
            return Arg { val, ty, scalar: None };
        }
        if let Some(lit) = flat.as_lit(id) {
            let val = self.lits[id].unwrap_or_else(|| self.emit().lit(lit));
            self.lits[id] = Some(val);
            // Only shifts use the scalar.
            let scalar = matches!(ty, Ty::I32 | Ty::I64).then(|| self.writer.operand(id));
            return Arg { val, ty, scalar };
        }
        let scalar = self.writer.operand(id);
        let val = match self.form {
            ValueForm::Scalar => Val::One(scalar),
            ValueForm::Vector => {
                self.invariants.splats[id].expect("operands from outside the loop are splatted before it")
            }
        };
        Arg { val, ty, scalar: Some(scalar) }
    }

    fn offset(&self, copy: usize, bytes: usize) -> i32 {
        (copy * self.form.lanes() * bytes) as i32
    }

    fn load(&mut self, slot: usize, copy: usize) -> Val {
        let operand = self.writer.kernel.operands[slot];
        if operand.source == Source::Iota {
            return self.iota(slot, copy);
        }
        let (address, offset, step) = self.place(slot, operand.dtype, copy);
        self.emit().load(operand.dtype, address, offset, step)
    }

    fn store(&mut self, slot: usize, value: Val, copy: usize) {
        let dtype = self.writer.kernel.outputs[slot].dtype;
        let (address, offset, step) = self.place(self.writer.kernel.operands.len() + slot, dtype, copy);
        self.emit().store(dtype, value, address, offset, step);
    }

    /// Address, offset and lane distance of an access in a copy of the body.
    fn place(&mut self, access: usize, dtype: DType, copy: usize) -> (Value, i32, LaneStride) {
        let base = self.writer.row_address(access);
        let Some(stride) = self.invariants.strides[access] else {
            let address = self.address(access, |body| body.element_address(base, dtype.size()));
            return (address, self.offset(copy, dtype.size()), LaneStride::Contiguous);
        };
        let address = self.address(access, |body| {
            let offset = body.writer.b.ins().imul(body.i, stride);
            body.writer.b.ins().iadd(base, offset)
        });
        let ahead = self.writer.b.ins().imul_imm_s(stride, (copy * self.form.lanes()) as i64);
        (self.writer.b.ins().iadd(address, ahead), 0, LaneStride::Bytes(stride))
    }

    fn buffer_address(&mut self, id: FlatNodeId, buffer: usize) -> Value {
        let (base, bytes) = (self.invariants.buffers[buffer], self.writer.flat.nodes[id].ty.size());
        self.address(self.writer.classes.len() + buffer, |body| body.element_address(base, bytes))
    }

    fn element_address(&mut self, base: Value, bytes: usize) -> Value {
        let offset = self.writer.b.ins().ishl_imm_u(self.i, bytes.trailing_zeros() as i64);
        self.writer.b.ins().iadd(base, offset)
    }

    /// The address with that number, computed on first use.
    fn address(&mut self, number: usize, make: impl FnOnce(&mut Self) -> Value) -> Value {
        if self.addresses.len() <= number {
            self.addresses.resize(number + 1, None);
        }
        if let Some(address) = self.addresses[number] {
            return address;
        }
        let address = make(self);
        self.addresses[number] = Some(address);
        address
    }

    /// The values `row + (i + lane) * stride`.
    fn iota(&mut self, slot: usize, copy: usize) -> Val {
        let stride = self.invariants.strides[slot].expect("an iota in a body has its stride loaded");
        let base = self.writer.row_address(slot);
        let lanes = self.form.lanes();
        let b = &mut *self.writer.b;
        let first = b.ins().iadd_imm_s(self.i, (copy * lanes) as i64);
        let mut next = b.ins().imul(first, stride);
        next = b.ins().iadd(base, next);
        if self.form == ValueForm::Scalar {
            return Val::One(next);
        }
        let values: [Value; LANES] = std::array::from_fn(|lane| {
            if lane > 0 {
                next = b.ins().iadd(next, stride);
            }
            next
        });
        self.emit().join_lanes(values, Ty::I64)
    }

    fn partial(&mut self, fold: &FoldState, values: &Values) -> Partial {
        Partial { value: self.arg(values, fold.value).val, index: fold.index.map(|id| self.arg(values, id).val) }
    }

    /// Updates the partial results in the stack slots.
    pub(super) fn fold_in_memory(&mut self, copies: &[Values]) {
        let invariants = self.invariants;
        for fold in &invariants.folds {
            let lane = self.writer.b.ins().band_imm_s(self.i, (GROUPS * LANES - 1) as i64);
            let addresses = fold.addresses(self.writer.b, (copies.len() < GROUPS).then_some(lane));
            for (copy, values) in copies.iter().enumerate() {
                let element = self.partial(fold, values);
                let at = copy * self.form.lanes();
                let acc = fold.read(&mut self.emit(), addresses, at);
                let combined = fold.combine(&mut self.emit(), acc, element);
                fold.write(&mut self.emit(), addresses, at, combined);
            }
        }
    }

    /// Updates partial results that the loop carries in registers, with one copy of the body per group.
    pub(super) fn fold_in_registers(&mut self, copies: &[Values], carried: &[Value], out: &mut SmallVec<[Value; 8]>) {
        let invariants = self.invariants;
        let mut carried = carried.iter().copied();
        for fold in &invariants.folds {
            let shape = fold.identity(&mut self.emit());
            for values in copies {
                let acc = next_partial(shape, &mut carried);
                let element = self.partial(fold, values);
                let combined = fold.combine(&mut self.emit(), acc, element);
                out.extend(combined.value.parts());
                out.extend(combined.index.iter().flat_map(|index| index.parts()));
            }
        }
    }
}
