//! The function of a kernel: a loop over rows, and inside it one loop over the elements per pass.
//!
//! Every loop is rotated: a guard before it, the test at its end. With the test at the top, Cranelift sinks
//! loop-invariant values into the body. Each pass has a vector loop, unrolled by the size of its body, and a scalar
//! loop for the remaining elements; the same code writes both. A pass with folds also has a loop over blocks of
//! [`FOLD_BLOCK`].
//!
//! The only argument is the address of a buffer of 64-bit words, laid out as [`argument`] says.

use super::body::Body;
use super::elements::LaneStride;
use super::partials::{FoldState, GROUPS, Partial};
use super::prims::Arg;
use super::value::{Emit, LANES, Val, ValueForm, flags};
use crate::codegen::geometry::Class;
use crate::codegen::kernel::{FOLD_BLOCK, Kernel, Source};
use crate::codegen::native::flat::{Flat, FlatNodeId, FlatOp};
use crate::codegen::native::passes::{Pass, Passes};
use crate::codegen::native::{argument, block_folds};
use crate::ir::SideTable;
use crate::ir::scalar::Ty;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AbiParam, BlockArg, InstBuilder, Signature, Value, types};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::FunctionBuilder;
use smallvec::SmallVec;

/// Bodies of fewer nodes are unrolled so many times.
const UNROLL_NODES: [(usize, usize); 3] = [(16, 4), (80, 2), (usize::MAX, 1)];
/// The same for bodies with folds, whose natural unrolling covers all partial results.
const UNROLL_FOLD_NODES: [(usize, usize); 4] = [(6, GROUPS), (14, 4), (48, 2), (usize::MAX, 1)];
/// Most vector registers that partial results are carried in.
const MAX_ACCUMULATORS: usize = 8;

/// Writes the body of a kernel's function.
pub(super) struct Writer<'a, 'f> {
    /// The kernel that is compiled.
    pub(super) kernel: &'a Kernel,
    /// How its accesses move.
    pub(super) classes: &'a [Class],
    /// The kernel's nodes.
    pub(super) flat: &'a Flat,
    plan: &'a Passes,
    /// The function.
    pub(super) b: &'a mut FunctionBuilder<'f>,
    call_conv: CallConv,
    args: Value,
    n_inner: Value,
    /// Scalars that are available in this row: row values and, inside a pass, uniform ones.
    scalars: SideTable<FlatNodeId, Option<Value>>,
    /// The address of each access, or the value of an iota, in this row.
    rows: Vec<Option<Value>>,
}

/// The loop invariants of a pass.
pub(super) struct Invariants {
    /// The distance of elements per access, where it is not a constant.
    pub(super) strides: Vec<Option<Value>>,
    /// The vector of each scalar node.
    pub(super) splats: SideTable<FlatNodeId, Option<Val>>,
    /// Addresses of the row buffers.
    pub(super) buffers: Vec<Value>,
    /// The pass's folds.
    pub(super) folds: Vec<FoldState>,
}

impl<'a, 'f> Writer<'a, 'f> {
    /// Writes the whole function into `b`, whose signature is set.
    pub(super) fn write(
        kernel: &'a Kernel,
        classes: &'a [Class],
        flat: &'a Flat,
        plan: &'a Passes,
        b: &'a mut FunctionBuilder<'f>,
        call_conv: CallConv,
    ) {
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let args = b.block_params(entry)[0];
        let mut load = |word: usize| b.ins().load(types::I64, flags(), args, 8 * word as i32);
        let (n_rows, n_inner) = (load(argument::ROWS), load(argument::INNER));
        let (scalars, rows) = (SideTable::with_len(flat.nodes.len(), || None), vec![None; classes.len()]);
        let mut writer = Writer { kernel, classes, flat, plan, b, call_conv, args, n_inner, scalars, rows };
        let zero = writer.b.ins().iconst(types::I64, 0);
        writer.counted(zero, n_rows, 1, &[], |writer, row, _| {
            writer.row(row);
            SmallVec::new()
        });
        writer.b.ins().return_(&[]);
        writer.b.seal_all_blocks();
    }

    /// Writes `for i in start..end` by `step`, rotated, with carried values. Returns their final values.
    fn counted(
        &mut self,
        start: Value,
        end: Value,
        step: i64,
        carried: &[Value],
        body: impl FnOnce(&mut Self, Value, &[Value]) -> SmallVec<[Value; 8]>,
    ) -> Vec<Value> {
        let (top, done) = (self.b.create_block(), self.b.create_block());
        self.b.append_block_param(top, types::I64);
        for &value in carried {
            let ty = self.b.func.dfg.value_type(value);
            self.b.append_block_param(top, ty);
            self.b.append_block_param(done, ty);
        }
        let branch = |writer: &mut Self, index: Value, values: &[Value]| {
            let out: SmallVec<[BlockArg; 8]> = values.iter().map(|&value| value.into()).collect();
            let again: SmallVec<[BlockArg; 8]> = [index.into()].into_iter().chain(out.iter().copied()).collect();
            let more = writer.b.ins().icmp(IntCC::SignedLessThan, index, end);
            writer.b.ins().brif(more, top, &again, done, &out);
        };
        branch(self, start, carried);
        self.b.switch_to_block(top);
        let params: SmallVec<[Value; 8]> = self.b.block_params(top).into();
        let values = body(self, params[0], &params[1..]);
        let next = self.b.ins().iadd_imm_s(params[0], step);
        branch(self, next, &values);
        self.b.switch_to_block(done);
        self.b.block_params(done).to_vec()
    }

    fn argument(&mut self, word: usize) -> Value {
        self.b.ins().load(types::I64, flags(), self.args, 8 * word as i32)
    }

    fn row(&mut self, row: Value) {
        for access in 0..self.classes.len() {
            let first = argument::ACCESSES + access * argument::ACCESS_WORDS;
            let (base, stride) = (self.argument(first), self.argument(first + 1));
            let offset = self.b.ins().imul(row, stride);
            self.rows[access] = Some(self.b.ins().iadd(base, offset));
        }
        let (plan, flat) = (self.plan, self.flat);
        for pass in &plan.passes {
            for &id in &pass.row {
                self.scalars[id] = Some(self.scalar(id));
            }
            if pass.has_loop() {
                self.pass(pass);
            }
        }
        for &slot in &plan.row_stores {
            let value = self.operand(flat.outputs[slot]);
            let address = self.row_address(self.kernel.operands.len() + slot);
            let dtype = self.kernel.outputs[slot].dtype;
            Emit { b: self.b, form: ValueForm::Scalar }.store(
                dtype,
                Val::One(value),
                address,
                0,
                LaneStride::Contiguous,
            );
        }
    }

    /// The address of an access, or the value of an iota, in this row.
    pub(super) fn row_address(&self, access: usize) -> Value {
        self.rows[access].expect("addresses are computed at the start of a row")
    }

    /// A row value, uniform value or literal that is available, as a scalar.
    pub(super) fn operand(&mut self, id: FlatNodeId) -> Value {
        match (self.flat.as_lit(id), self.scalars[id]) {
            (Some(lit), _) => Emit { b: self.b, form: ValueForm::Scalar }.lit(lit).one(),
            (None, Some(value)) => value,
            (None, None) => unreachable!("operands of row values are row values of this or an earlier pass"),
        }
    }

    /// Computes a row or uniform value. Folds are available already.
    fn scalar(&mut self, id: FlatNodeId) -> Value {
        let node = &self.flat.nodes[id];
        match node.op {
            FlatOp::Load(slot) => {
                let (operand, address) = (self.kernel.operands[slot as usize], self.row_address(slot as usize));
                match operand.source {
                    Source::Iota => address,
                    Source::Memory => Emit { b: self.b, form: ValueForm::Scalar }
                        .load(operand.dtype, address, 0, LaneStride::Contiguous)
                        .one(),
                }
            }
            FlatOp::Lit(_) | FlatOp::Fold(_) => self.operand(id),
            FlatOp::Prim(prim) => {
                let args: SmallVec<[Arg; 3]> = node.args.iter().map(|&arg| self.scalar_arg(arg)).collect();
                Emit { b: self.b, form: ValueForm::Scalar }.prim(prim, &args).one()
            }
        }
    }

    fn scalar_arg(&mut self, id: FlatNodeId) -> Arg {
        let value = self.operand(id);
        Arg { val: Val::One(value), ty: self.flat.nodes[id].ty, scalar: Some(value) }
    }

    /// Writes one pass over the row's elements. Without elements, its folds are empty, and nothing is loaded.
    fn pass(&mut self, pass: &Pass) {
        let folds: Vec<FoldState> = pass.folds.iter().map(|&id| FoldState::new(self.flat, id, self.b)).collect();
        let (some, none, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let empty = self.b.ins().icmp_imm_s(IntCC::Equal, self.n_inner, 0);
        self.b.ins().brif(empty, none, &[], some, &[]);
        for fold in &folds {
            let ty = Emit { b: self.b, form: ValueForm::Scalar }.part(self.flat.nodes[fold.id].ty);
            self.b.append_block_param(done, ty);
        }
        self.b.switch_to_block(none);
        let flat = self.flat;
        let empty: SmallVec<[BlockArg; 8]> = folds
            .iter()
            .map(|fold| Emit { b: self.b, form: ValueForm::Scalar }.lit(fold.empty(flat)).one().into())
            .collect();
        self.b.ins().jump(done, &empty);
        self.b.switch_to_block(some);
        let results: SmallVec<[BlockArg; 8]> = self.elements(pass, folds).into_iter().map(BlockArg::from).collect();
        self.b.ins().jump(done, &results);
        self.b.switch_to_block(done);
        for (&id, index) in pass.folds.iter().zip(0..) {
            self.scalars[id] = Some(self.b.block_params(done)[index]);
        }
        for &id in &pass.uniform {
            self.scalars[id] = None;
        }
    }

    /// Writes the loops of a pass that has elements. Returns the results of its folds.
    fn elements(&mut self, pass: &Pass, folds: Vec<FoldState>) -> Vec<Value> {
        for &id in &pass.uniform {
            self.scalars[id] = Some(self.scalar(id));
        }
        let invariants = self.invariants(pass, folds);
        let zero = self.b.ins().iconst(types::I64, 0);
        if pass.folds.is_empty() {
            self.range_loops(pass, &invariants, zero, self.n_inner);
            return Vec::new();
        }
        let n_folds = invariants.folds.len();
        // Block results are carried out of the loop. If there is one block, they are the folds' results.
        let identities: Vec<Value> = self.carried_identities(&invariants.folds);
        let last = self.counted(zero, self.n_inner, FOLD_BLOCK as i64, &identities, |writer, start, _| {
            let limit = writer.b.ins().iadd_imm_s(start, FOLD_BLOCK as i64);
            let end = writer.b.ins().smin(limit, writer.n_inner);
            writer.range_loops(pass, &invariants, start, end);
            let mut out = SmallVec::new();
            for (index, fold) in invariants.folds.iter().enumerate() {
                let result = fold.tree(&mut Emit { b: writer.b, form: ValueForm::Scalar });
                writer.keep_block(index, start, fold, result);
                out.push(result.index.unwrap_or(result.value).one());
            }
            out
        });
        debug_assert_eq!(last.len(), n_folds);
        self.join_blocks(&invariants.folds, &last)
    }

    fn carried_identities(&mut self, folds: &[FoldState]) -> Vec<Value> {
        let flat = self.flat;
        folds.iter().map(|fold| Emit { b: self.b, form: ValueForm::Scalar }.lit(fold.empty(flat)).one()).collect()
    }

    fn n_blocks(&mut self) -> Value {
        let rounded = self.b.ins().iadd_imm_s(self.n_inner, FOLD_BLOCK as i64 - 1);
        self.b.ins().ushr_imm_u(rounded, FOLD_BLOCK.trailing_zeros() as i64)
    }

    fn block_entry(&mut self, fold: usize, block: Value) -> Value {
        let n_blocks = self.n_blocks();
        let first = self.b.ins().imul_imm_s(n_blocks, fold as i64);
        let entry = self.b.ins().iadd(first, block);
        let offset = self.b.ins().imul_imm_s(entry, argument::BLOCK_BYTES as i64);
        let blocks = self.argument(argument::BLOCKS);
        self.b.ins().iadd(blocks, offset)
    }

    /// Stores the result of the block that starts at element `start`.
    fn keep_block(&mut self, index: usize, start: Value, fold: &FoldState, result: Partial) {
        let block = self.b.ins().ushr_imm_u(start, FOLD_BLOCK.trailing_zeros() as i64);
        let entry = self.block_entry(index, block);
        let value = result.value.one();
        let bits = match fold.ty {
            Ty::Bool | Ty::I32 => self.b.ins().uextend(types::I64, value),
            Ty::F32 => {
                let bits = Emit { b: self.b, form: ValueForm::Scalar }.cast(types::I32, value);
                self.b.ins().uextend(types::I64, bits)
            }
            Ty::I64 | Ty::F64 => value,
        };
        self.b.ins().store(flags(), bits, entry, 0);
        if let Some(index) = result.index {
            self.b.ins().store(flags(), index.one(), entry, 8);
        }
    }

    /// The results of folds from those of their blocks: of the only block, or as the host combines them.
    fn join_blocks(&mut self, folds: &[FoldState], last: &[Value]) -> Vec<Value> {
        let (many, done) = (self.b.create_block(), self.b.create_block());
        for &value in last {
            let ty = self.b.func.dfg.value_type(value);
            self.b.append_block_param(done, ty);
        }
        let single: SmallVec<[BlockArg; 8]> = last.iter().map(|&value| value.into()).collect();
        let is_many = self.b.ins().icmp_imm_s(IntCC::SignedGreaterThan, self.n_inner, FOLD_BLOCK as i64);
        self.b.ins().brif(is_many, many, &[], done, &single);
        self.b.switch_to_block(many);
        let mut signature = Signature::new(self.call_conv);
        signature.params.extend([AbiParam::new(types::I64); 3]);
        let signature = self.b.import_signature(signature);
        let zero = self.b.ins().iconst(types::I64, 0);
        let mut joined: SmallVec<[BlockArg; 8]> = SmallVec::new();
        for (index, fold) in folds.iter().enumerate() {
            let entries = self.block_entry(index, zero);
            let code = self.b.ins().iconst(types::I64, fold_code(fold) as i64);
            let (n_blocks, callee) = (self.n_blocks(), self.argument(argument::FOLD_BLOCKS));
            self.b.ins().call_indirect(signature, callee, &[code, entries, n_blocks]);
            let result = Emit { b: self.b, form: ValueForm::Scalar }.part(self.flat.nodes[fold.id].ty);
            joined.push(self.b.ins().load(result, flags(), entries, 0).into());
        }
        self.b.ins().jump(done, &joined);
        self.b.switch_to_block(done);
        self.b.block_params(done).to_vec()
    }

    fn invariants(&mut self, pass: &Pass, folds: Vec<FoldState>) -> Invariants {
        let n_operands = self.kernel.operands.len();
        let mut strides = vec![None; self.classes.len()];
        let loads = pass.body.iter().filter_map(|&id| match self.flat.nodes[id].op {
            FlatOp::Load(slot) => Some(slot as usize),
            FlatOp::Lit(_) | FlatOp::Prim(_) | FlatOp::Fold(_) => None,
        });
        let stores = pass.stores.iter().map(|slot| n_operands + slot);
        for access in loads.chain(stores).collect::<Vec<_>>() {
            let iota = access < n_operands && self.kernel.operands[access].source == Source::Iota;
            if self.classes[access] != Class::Contiguous || iota {
                strides[access] = Some(self.argument(argument::ACCESSES + access * argument::ACCESS_WORDS + 2));
            }
        }
        let buffers = (0..if pass.keeps.is_empty() && pass.kept.is_empty() { 0 } else { self.plan.n_kept })
            .map(|buffer| {
                let first = self.b.ins().imul_imm_s(self.n_inner, (buffer * argument::BUFFER_BYTES) as i64);
                let base = self.argument(argument::KEPT);
                self.b.ins().iadd(base, first)
            })
            .collect();
        let mut splats = SideTable::with_len(self.flat.nodes.len(), || None);
        for id in self.outer_operands(pass) {
            if self.flat.as_lit(id).is_none() && splats[id].is_none() {
                let scalar = self.operand(id);
                splats[id] = Some(Emit { b: self.b, form: ValueForm::Vector }.splat(scalar, self.flat.nodes[id].ty));
            }
        }
        Invariants { strides, splats, buffers, folds }
    }

    /// Values from outside the loop that its body uses.
    fn outer_operands(&self, pass: &Pass) -> Vec<FlatNodeId> {
        let flat = self.flat;
        let kept = |id: FlatNodeId| pass.kept.iter().any(|kept| kept.0 == id);
        let used = pass.body.iter().flat_map(|&id| flat.nodes[id].args.iter().copied());
        let folded = pass.folds.iter().flat_map(|&id| flat.nodes[id].args.iter().copied());
        let stored = pass.stores.iter().map(|&slot| flat.outputs[slot]);
        used.chain(folded).chain(stored).filter(|&id| flat.nodes[id].uniform && !kept(id)).collect()
    }

    /// Writes the loops over the elements from `start` to `end`, vectors first. Then partial results are in their
    /// slots.
    fn range_loops(&mut self, pass: &Pass, invariants: &Invariants, start: Value, end: Value) {
        let size = pass.body.len();
        let table = if pass.folds.is_empty() { &UNROLL_NODES[..] } else { &UNROLL_FOLD_NODES[..] };
        let copies = table.iter().find(|row| size < row.0).map_or(1, |row| row.1);
        let n_registers: usize = invariants.folds.iter().map(FoldState::n_registers).sum();
        let in_registers = copies == GROUPS && n_registers <= MAX_ACCUMULATORS;
        let identities = self.identities(&invariants.folds);
        let carried = if in_registers {
            identities
        } else {
            self.registers_to_partials(&invariants.folds, &identities);
            Vec::new()
        };
        let mut at = self.whole_steps(start, end, copies);
        let folded = self.counted(start, at, (copies * LANES) as i64, &carried, |writer, i, carried| {
            writer.iteration(pass, invariants, ValueForm::Vector, copies, i, carried)
        });
        if in_registers {
            self.registers_to_partials(&invariants.folds, &folded);
        }
        // Folded rows are often short.
        if copies > 1 && !invariants.folds.is_empty() {
            let from = at;
            at = self.whole_steps(from, end, 1);
            self.counted(from, at, LANES as i64, &[], |writer, i, _| {
                writer.iteration(pass, invariants, ValueForm::Vector, 1, i, &[])
            });
        }
        self.counted(at, end, 1, &[], |writer, i, _| writer.iteration(pass, invariants, ValueForm::Scalar, 1, i, &[]));
    }

    /// The end of the whole iterations of `copies` vectors that fit.
    fn whole_steps(&mut self, start: Value, end: Value, copies: usize) -> Value {
        let length = self.b.ins().isub(end, start);
        let whole = self.b.ins().band_imm_s(length, -((copies * LANES) as i64));
        self.b.ins().iadd(start, whole)
    }

    /// Initial partial results, in vector registers.
    fn identities(&mut self, folds: &[FoldState]) -> Vec<Value> {
        let mut emit = Emit { b: self.b, form: ValueForm::Vector };
        let mut registers = Vec::new();
        for fold in folds {
            let identity = fold.identity(&mut emit);
            for _ in 0..GROUPS {
                registers.extend(identity.value.parts());
                registers.extend(identity.index.iter().flat_map(|index| index.parts()));
            }
        }
        registers
    }

    fn registers_to_partials(&mut self, folds: &[FoldState], registers: &[Value]) {
        let mut emit = Emit { b: self.b, form: ValueForm::Vector };
        let mut registers = registers.iter().copied();
        for fold in folds {
            let (shape, addresses) = (fold.identity(&mut emit), fold.addresses(emit.b, None));
            for group in 0..GROUPS {
                let partial = next_partial(shape, &mut registers);
                fold.write(&mut emit, addresses, group * LANES, partial);
            }
        }
    }

    /// Writes one iteration of an element loop: `copies` of the body, for neighbouring elements starting at `i`.
    fn iteration(
        &mut self,
        pass: &Pass,
        invariants: &Invariants,
        form: ValueForm,
        copies: usize,
        i: Value,
        carried: &[Value],
    ) -> SmallVec<[Value; 8]> {
        let lits = SideTable::with_len(self.flat.nodes.len(), || None);
        let mut body = Body { writer: self, pass, invariants, form, i, addresses: Vec::new(), lits };
        let copies = body.copies(copies);
        let mut out = SmallVec::new();
        if carried.is_empty() {
            body.fold_in_memory(&copies);
        } else {
            body.fold_in_registers(&copies, carried, &mut out);
        }
        out
    }
}

/// The next partial result in registers, with the form of `shape`.
pub(super) fn next_partial(shape: Partial, registers: &mut impl Iterator<Item = Value>) -> Partial {
    Partial { value: shape.value.rebuilt(registers), index: shape.index.map(|index| index.rebuilt(registers)) }
}

/// The code of a fold, which [`block_folds`] decodes.
fn fold_code(fold: &FoldState) -> u64 {
    block_folds::fold_code(fold.combine, fold.ty)
}
