//! The function of a kernel: a loop over rows, and inside it one loop over the elements per pass.
//!
//! Registers: `rdi` holds the argument buffer, `rax` the element, `rcx` the elements of a row, and `rdx` the end of the
//! range in work. `rsi` holds the last element at which a whole iteration fits; when none fits any more, it is scratch.
//! `r10` and `r11` are scratch. The others hold the rows of accesses.
//!
//! A range has a loop of whole iterations, unrolled into several copies of the body, then one of single copies, and one
//! of masked iterations for the rest. A pass with folds has a loop over blocks of [`FOLD_BLOCK`] around them.

use super::body::{Elements, FunctionContext};
use super::code::BasicBlock;
use super::copies::{Order, Single, copies};
use super::encoder::*;
use super::folds::{Fold, n_groups};
use super::frame::Frame;
use super::gathers::Gathers;
use super::level::Level;
use super::prefetch::Prefetches;
use super::registers::{Allocator, Pointer};
use crate::codegen::geometry::Class;
use crate::codegen::kernel::{FOLD_BLOCK, Kernel, Source};
use crate::codegen::native::passes::{Pass, Passes};
use crate::codegen::native::{Form, Manner, Stores, argument};
use crate::ir::scalar::Ty;
use crate::ir::{Combine, SideTable};
use std::fmt::Write;

/// Registers for the rows of accesses.
const ROW_REGISTERS: [Gpr; 7] = [RBX, R8, R9, R12, R13, R14, R15];
/// Callee-saved registers, except `rbp`.
const SAVED: [Gpr; 5] = [RBX, R12, R13, R14, R15];
/// Pages of a new frame are touched one after another, so that the stack's guard page is never skipped.
const PAGE: i32 = 4096;
/// Bytes of the buffer for narrow elements.
const NARROW_BYTES: i32 = 16;

/// Writes the function of a kernel.
pub(super) struct Writer<'a> {
    function: FunctionContext<'a>,
    passes: &'a Passes,
    /// The form for elements that the loops leave, if they are for small angles.
    all_angles: Option<(FunctionContext<'a>, &'a Pass)>,
    pub(super) encoder: Encoder,
    frame: Frame,
    pointers: Vec<Pointer>,
    /// Offsets in the frame of the row addresses of accesses and row buffers.
    pub(super) row_offsets: Vec<i32>,
    arguments_at: i32,
    pub(super) rows_left: i32,
    /// Offsets in the frame of the range in work: a block of folds, or elements with huge angles.
    block_start: i32,
    block_end: i32,
    pub(super) prefetches: Prefetches,
    /// A listing of the blocks, for people.
    listing: Option<String>,
}

/// Machine code for a kernel in its usual form, and in one for small angles if it has that.
pub(super) fn write(
    how: (Level, Manner),
    kernel: &Kernel,
    classes: &[Class],
    usual: &Form,
    small: Option<&Form>,
) -> Vec<u8> {
    Writer::new(how, kernel, classes, usual, small, None).write().0
}

/// A listing of the blocks of a kernel's function.
pub(super) fn listing(
    how: (Level, Manner),
    kernel: &Kernel,
    classes: &[Class],
    usual: &Form,
    small: Option<&Form>,
) -> String {
    Writer::new(how, kernel, classes, usual, small, Some(String::new())).write().1.unwrap_or_default()
}

impl<'a> Writer<'a> {
    fn new(
        (level, manner): (Level, Manner),
        kernel: &'a Kernel,
        motions: &'a [Class],
        usual: &'a Form,
        small: Option<&'a Form>,
        listing: Option<String>,
    ) -> Writer<'a> {
        let (flat, passes) = small.unwrap_or(usual);
        let mut frame = Frame::default();
        let (arguments_at, rows_left) = (frame.take(8, 8), frame.take(8, 8));
        let (block_start, block_end) = (frame.take(8, 8), frame.take(8, 8));
        let (tail, one, narrow) = (frame.take(16, 8), frame.take(8, 8), frame.take(NARROW_BYTES, NARROW_BYTES));
        let rows: Vec<i32> = motions.iter().map(|_| frame.take(8, 8)).collect();
        let buffers = (0..passes.n_kept).map(|_| frame.take(8, 8));
        let mut row_offsets: Vec<i32> = rows.iter().copied().chain(buffers.collect::<Vec<_>>()).collect();
        let gathered = kernel.gathered().to_vec();
        let gathers = Gathers::new(gathered, motions, flat, row_offsets.len(), &mut frame);
        row_offsets.extend((0..gathers.n_rows).map(|_| frame.take(8, 8)));
        let mut function = FunctionContext {
            kernel,
            motions,
            flat,
            manner,
            shown: flat.shown_payloads(),
            slots: SideTable::with_len(flat.nodes.len(), || None),
            distances: vec![None; motions.len()],
            rows,
            tail,
            one,
            narrow,
            gathers,
            exit: None,
        };
        for (access, &motion) in motions.iter().enumerate() {
            let iota = kernel.operands.get(access).is_some_and(|operand| operand.source == Source::Iota);
            if iota || motion != Class::Contiguous || function.gathers.slots.contains(&access) {
                function.distances[access] = Some(frame.take(128, 64));
            }
        }
        function.take_slots(passes, &mut frame);
        let all_angles = small.map(|_| {
            let mut function = function.of_other_form(&usual.0);
            function.take_slots(&usual.1, &mut frame);
            (function, &usual.1.passes[0])
        });
        let pointers = row_offsets.iter().map(|&at| Pointer::Frame(at)).collect();
        let encoder = Encoder::new(level);
        let prefetches = Prefetches::new(&function, passes, level, || frame.take(8, 8));
        Writer {
            function,
            passes,
            all_angles,
            encoder,
            frame,
            pointers,
            row_offsets,
            arguments_at,
            rows_left,
            block_start,
            block_end,
            prefetches,
            listing,
        }
    }

    fn write(mut self) -> (Vec<u8>, Option<String>) {
        let size_at = self.enter();
        self.load_arguments();
        let row = self.encoder.label();
        self.encoder.place(row);
        self.load_prefetch_addresses();
        for (number, pass) in self.passes.passes.iter().enumerate() {
            self.run(|function, encoder| function.row_values(encoder, &pass.row), "row");
            if pass.has_loop() {
                self.pass(number, pass);
            }
        }
        if !self.passes.row_stores.is_empty() {
            self.run(|function, encoder| function.row_stores(encoder, &self.passes.row_stores), "row outputs");
        }
        self.next_row(row);
        let n_accesses = self.function.motions.len();
        self.function.gathers.report(&mut self.encoder, n_accesses, self.arguments_at);
        self.leave();
        let size = self.frame.size() / 64 * 64 + 64;
        self.encoder.patch(size_at, size);
        (self.encoder.finish(), self.listing)
    }

    pub(super) fn frame_at(&self, offset: i32) -> Rm {
        Rm::Mem(Memory::at(RSP, offset))
    }

    pub(super) fn argument(&self, word: usize) -> Rm {
        Rm::Mem(Memory::at(RDI, 8 * word as i32))
    }

    fn enter(&mut self) -> usize {
        self.encoder.push(RBP);
        self.encoder.int(Int::Mov, RBP, Rm::Reg(RSP.0));
        SAVED.into_iter().for_each(|register| self.encoder.push(register));
        self.encoder.int(Int::Mov, R11, Rm::Reg(RSP.0));
        let size_at = self.encoder.sub(RSP, 0);
        self.encoder.and(RSP, -64);
        let (probe, done) = (self.encoder.label(), self.encoder.label());
        self.encoder.place(probe);
        self.encoder.sub(R11, PAGE);
        self.encoder.int(Int::Cmp, R11, Rm::Reg(RSP.0));
        self.encoder.jump_if(ConditionCode::Less, done);
        self.encoder.int(Int::Store, R11, Rm::Mem(Memory::at(R11, 0)));
        self.encoder.jump(probe);
        self.encoder.place(done);
        size_at
    }

    fn leave(&mut self) {
        if self.function.manner.stores == Stores::Streamed {
            self.encoder.fence();
        }
        self.encoder.zero_upper();
        let saved = Memory::at(RBP, -8 * SAVED.len() as i32);
        self.encoder.int(Int::Lea, RSP, Rm::Mem(saved));
        SAVED.into_iter().rev().for_each(|register| self.encoder.pop(register));
        self.encoder.pop(RBP);
        self.encoder.ret();
    }

    /// Copies the argument buffer to the frame, with what follows from it for all rows.
    fn load_arguments(&mut self) {
        self.encoder.int(Int::Store, RDI, self.frame_at(self.arguments_at));
        self.encoder.int(Int::Mov, R11, self.argument(argument::ROWS));
        self.encoder.int(Int::Store, R11, self.frame_at(self.rows_left));
        self.encoder.int(Int::Mov, RCX, self.argument(argument::INNER));
        self.encoder.set(R11, 1);
        self.encoder.int(Int::Store, R11, self.frame_at(self.function.one));
        for access in 0..self.function.motions.len() {
            self.encoder.int(Int::Mov, R11, self.argument(argument::ACCESSES + access * argument::ACCESS_WORDS));
            self.encoder.int(Int::Store, R11, self.frame_at(self.row_offsets[access]));
            if let Some(at) = self.function.distances[access] {
                self.write_distances(access, at);
            }
        }
        self.function.gathers.load(&mut self.encoder, self.function.motions.len());
        for buffer in 0..self.passes.n_kept {
            self.encoder.set(R11, (buffer * argument::BUFFER_BYTES) as u64);
            self.encoder.int(Int::Imul, R11, Rm::Reg(RCX.0));
            self.encoder.int(Int::Add, R11, self.argument(argument::KEPT));
            let origin = self.row_offsets[self.function.motions.len() + buffer];
            self.encoder.int(Int::Store, R11, self.frame_at(origin));
        }
    }

    /// Stores the lane numbers times the stride.
    fn write_distances(&mut self, access: usize, at: i32) {
        let stride = self.argument(argument::ACCESSES + access * argument::ACCESS_WORDS + 2);
        self.encoder.int(Int::Mov, R10, stride);
        self.encoder.set(R11, 0);
        for lane in 0..self.encoder.level().lanes() as i32 {
            self.encoder.int(Int::Store, R11, self.frame_at(at + 8 * lane));
            self.encoder.int(Int::Add, R11, Rm::Reg(R10.0));
        }
    }

    /// Advances all rows, and loops if one is left.
    fn next_row(&mut self, top: Label) {
        for access in 0..self.function.motions.len() {
            self.encoder.int(Int::Mov, R11, self.argument(argument::ACCESSES + access * argument::ACCESS_WORDS + 1));
            self.encoder.int(Int::AddTo, R11, self.frame_at(self.row_offsets[access]));
        }
        self.encoder.int(Int::Mov, R11, self.frame_at(self.rows_left));
        self.encoder.sub(R11, 1);
        self.encoder.int(Int::Store, R11, self.frame_at(self.rows_left));
        self.encoder.compare(R11, 0);
        self.encoder.jump_if(ConditionCode::NotEqual, top);
    }

    /// The size of an element of an access.
    pub(super) fn element_bytes(&self, access: usize) -> usize {
        let kernel = self.function.kernel;
        let of_output = |slot: usize| kernel.outputs[slot].dtype;
        kernel
            .operands
            .get(access)
            .map_or_else(|| of_output(access - kernel.operands.len()), |operand| operand.dtype)
            .size()
    }

    /// Encodes a block outside of loops.
    fn run(&mut self, block: impl FnOnce(&FunctionContext<'a>, &mut Encoder) -> BasicBlock, name: &str) {
        let block = block(&self.function, &mut self.encoder);
        if block.insts.is_empty() {
            return;
        }
        self.note(name, &block);
        Allocator::new(&block, &mut self.encoder, &mut self.frame, &self.pointers).run();
    }

    fn note(&mut self, name: &str, block: &BasicBlock) {
        if let Some(listing) = &mut self.listing {
            write!(listing, "  {name}\n{block}").expect("writing to a string cannot fail");
        }
    }

    fn pass(&mut self, number: usize, pass: &Pass) {
        if !pass.uniform.is_empty() {
            // Without elements, there may be nothing to load.
            let none = self.encoder.label();
            self.encoder.compare(RCX, 0);
            self.encoder.jump_if(ConditionCode::Equal, none);
            self.run(|function, encoder| function.row_values(encoder, &pass.uniform), "same for all elements");
            self.place_gathered_rows(pass);
            self.encoder.place(none);
        } else {
            // An index may be a value per row, or a number.
            self.place_gathered_rows(pass);
        }
        self.load_rows(pass);
        let folds = Fold::of_pass(self.encoder.level(), &self.function, &pass.folds, &mut self.frame);
        if folds.is_empty() {
            self.encoder.set(RAX, 0);
            self.encoder.int(Int::Mov, RDX, Rm::Reg(RCX.0));
            match self.all_angles.take() {
                Some((usual, usual_pass)) => self.loops_by_angles(number, pass, usual, usual_pass),
                None => self.range_loops(number, pass, &folds),
            }
        } else {
            self.blocks(number, pass, &folds);
        }
        self.pointers = self.row_offsets.iter().map(|&at| Pointer::Frame(at)).collect();
    }

    fn place_gathered_rows(&mut self, pass: &Pass) {
        let FunctionContext { gathers, flat, slots, .. } = &self.function;
        gathers.place_rows(&mut self.encoder, flat, pass, slots, &self.row_offsets);
    }

    /// Loads the rows of the accesses in the pass's loops into registers, as far as they suffice.
    fn load_rows(&mut self, pass: &Pass) {
        let n_accesses = self.function.motions.len();
        let loads = pass.body.iter().filter_map(|&id| {
            let slot = self.function.flat.nodes[id].op.operand();
            self.function.gathers.row(id).or(slot)
        });
        let stores = pass.stores.iter().map(|&slot| self.function.kernel.operands.len() + slot);
        let buffers = pass.keeps.iter().chain(&pass.kept).map(|&(_, buffer)| n_accesses + buffer);
        let mut used: Vec<usize> = loads.chain(stores).chain(buffers).collect();
        used.sort_unstable();
        used.dedup();
        for (access, register) in used.into_iter().zip(ROW_REGISTERS) {
            self.encoder.int(Int::Mov, register, self.frame_at(self.row_offsets[access]));
            self.pointers[access] = Pointer::Gpr(register);
        }
    }

    /// Writes the loop over blocks of a pass with folds. A row without elements has one empty block.
    fn blocks(&mut self, number: usize, pass: &Pass, folds: &[Fold]) {
        let parts: Vec<(i32, i32)> = folds
            .iter()
            .map(|fold| (self.function.slots[fold.id].expect("a fold has a slot"), fold.index.is_some()))
            .map(
                |(slot, indexed)| {
                    if indexed { (self.frame.take(16, 16), self.frame.take(16, 16)) } else { (slot, slot) }
                },
            )
            .collect();
        let (top, done) = (self.encoder.label(), self.encoder.label());
        self.encoder.set(RAX, 0);
        self.encoder.place(top);
        self.encoder.int(Int::Store, RAX, self.frame_at(self.block_start));
        self.encoder.int(Int::Lea, RDX, Rm::Mem(Memory::at(RAX, FOLD_BLOCK as i32)));
        self.encoder.int(Int::Cmp, RDX, Rm::Reg(RCX.0));
        self.encoder.int(Int::CmovGreater, RDX, Rm::Reg(RCX.0));
        self.encoder.int(Int::Store, RDX, self.frame_at(self.block_end));
        self.run(|function, encoder| function.start_folds(encoder, folds), "partial results");
        if folds.iter().any(|fold| fold.counter.is_some()) {
            let none = self.encoder.label();
            self.encoder.compare(RCX, 0);
            self.encoder.jump_if(ConditionCode::Equal, none);
            self.run(|function, encoder| function.start_indices(encoder, folds), "first indices");
            self.encoder.place(none);
        }
        self.range_loops(number, pass, folds);
        for (fold, &(value, index)) in folds.iter().zip(&parts) {
            self.run(|function, encoder| function.finish_fold(encoder, fold, value, index), "tree");
        }
        self.encoder.compare(RCX, FOLD_BLOCK as i32);
        self.encoder.jump_if(ConditionCode::LessEqual, done);
        for (number, (fold, &(value, index))) in folds.iter().zip(&parts).enumerate() {
            self.keep_block(number, fold, value, index);
        }
        self.encoder.int(Int::Mov, RAX, self.frame_at(self.block_end));
        self.encoder.int(Int::Cmp, RAX, Rm::Reg(RCX.0));
        self.encoder.jump_if(ConditionCode::Less, top);
        for (number, fold) in folds.iter().enumerate() {
            self.join_blocks(number, fold);
        }
        self.encoder.place(done);
    }

    /// Sets `r11` to the number of blocks.
    fn count_blocks(&mut self) {
        self.encoder.int(Int::Lea, R11, Rm::Mem(Memory::at(RCX, FOLD_BLOCK as i32 - 1)));
        self.encoder.shift_right(R11, FOLD_BLOCK.trailing_zeros() as u8);
    }

    /// Sets `r11` to the address of a fold's block results, or to that of the current block's result.
    fn block_entry(&mut self, number: usize, of_block: bool) {
        if of_block {
            self.encoder.int(Int::Mov, RSI, self.frame_at(self.block_start));
            self.encoder.shift_right(RSI, FOLD_BLOCK.trailing_zeros() as u8);
        } else {
            self.encoder.set(RSI, 0);
        }
        self.count_blocks();
        self.encoder.set(R10, number as u64);
        self.encoder.int(Int::Imul, R11, Rm::Reg(R10.0));
        self.encoder.int(Int::Add, R11, Rm::Reg(RSI.0));
        self.encoder.set(R10, argument::BLOCK_BYTES as u64);
        self.encoder.int(Int::Imul, R11, Rm::Reg(R10.0));
        self.encoder.int(Int::Add, R11, self.argument(argument::BLOCKS));
    }

    fn keep_block(&mut self, number: usize, fold: &Fold, value: i32, index: i32) {
        self.block_entry(number, true);
        self.encoder.int(Int::Mov, R10, self.frame_at(value));
        if fold.ty == Ty::Bool {
            self.encoder.and(R10, 1);
        }
        self.encoder.int(Int::Store, R10, Rm::Mem(Memory::at(R11, 0)));
        if fold.index.is_some() {
            self.encoder.int(Int::Mov, R10, self.frame_at(index));
            self.encoder.int(Int::Store, R10, Rm::Mem(Memory::at(R11, 8)));
        }
    }

    /// Calls the function that folds the results of a fold's blocks, and stores its result in the slot.
    fn join_blocks(&mut self, number: usize, fold: &Fold) {
        self.block_entry(number, false);
        self.encoder.int(Int::Store, R11, self.frame_at(self.block_start));
        self.encoder.int(Int::Mov, RSI, Rm::Reg(R11.0));
        self.count_blocks();
        self.encoder.int(Int::Mov, RDX, Rm::Reg(R11.0));
        self.encoder.int(Int::Mov, R10, self.argument(argument::FOLD_BLOCKS));
        self.encoder.set(RDI, fold.number());
        self.encoder.zero_upper();
        self.encoder.call(R10);
        self.encoder.int(Int::Mov, RDI, self.frame_at(self.arguments_at));
        self.encoder.int(Int::Mov, RCX, self.argument(argument::INNER));
        self.encoder.int(Int::Mov, R11, self.frame_at(self.block_start));
        self.encoder.int(Int::Mov, R10, Rm::Mem(Memory::at(R11, 0)));
        if matches!(fold.combine, Combine::Any | Combine::All) {
            self.encoder.negate(R10);
        }
        let slot = self.function.slots[fold.id].expect("a fold has a slot");
        self.encoder.int(Int::Store, R10, self.frame_at(slot));
    }

    /// Writes the loops over the elements from `rax` to `rdx` for small angles. Where they meet another one, the next
    /// elements take a loop for all angles.
    fn loops_by_angles(&mut self, number: usize, pass: &Pass, usual: FunctionContext<'a>, usual_pass: &Pass) {
        let (again, huge, done) = (self.encoder.label(), self.encoder.label(), self.encoder.label());
        self.encoder.place(again);
        self.function.exit = Some(huge);
        self.range_loops(number, pass, &[]);
        self.encoder.jump(done);
        self.encoder.place(huge);
        self.encoder.int(Int::Store, RDX, self.frame_at(self.block_end));
        self.encoder.int(Int::Lea, R11, Rm::Mem(Memory::at(RAX, HUGE_RANGE)));
        self.encoder.int(Int::Cmp, R11, Rm::Reg(RDX.0));
        self.encoder.int(Int::CmovGreater, R11, Rm::Reg(RDX.0));
        self.encoder.int(Int::Mov, RDX, Rm::Reg(R11.0));
        self.encoder.int(Int::Store, RDX, self.frame_at(self.block_start));
        let small = std::mem::replace(&mut self.function, usual);
        self.run(|function, encoder| function.row_values(encoder, &usual_pass.row), "row, for all angles");
        self.run(|function, encoder| function.row_values(encoder, &usual_pass.uniform), "uniform, for all angles");
        let rest = self.function.single(&mut self.encoder, usual_pass, &[], 1, Elements::Tail);
        self.masked_loop(&rest.copied(1, Order::Interleaved));
        self.function = small;
        self.encoder.int(Int::Mov, RAX, self.frame_at(self.block_start));
        self.encoder.int(Int::Mov, RDX, self.frame_at(self.block_end));
        self.encoder.int(Int::Cmp, RAX, Rm::Reg(RDX.0));
        self.encoder.jump_if(ConditionCode::Less, again);
        self.encoder.place(done);
    }

    /// Writes a loop of masked iterations of one copy from `rax` to `rdx`.
    fn masked_loop(&mut self, block: &BasicBlock) {
        let top = self.encoder.label();
        self.iteration(block, Elements::Tail, top);
        self.encoder.add(RAX, block.level.lanes() as i32);
        self.encoder.int(Int::Cmp, RAX, Rm::Reg(RDX.0));
        self.encoder.jump_if(ConditionCode::Less, top);
    }

    /// Writes a loop of whole iterations of some copies from `rax` to `rdx`, as far as they fit. It prefetches for a
    /// pass of this number, if there is one.
    fn whole_loop(&mut self, block: &BasicBlock, n_copies: usize, prefetched: Option<usize>) {
        let (top, rest) = (self.encoder.label(), self.encoder.label());
        let step = n_copies * block.level.lanes();
        self.encoder.int(Int::Lea, RSI, Rm::Mem(Memory::at(RDX, -(step as i32))));
        self.encoder.int(Int::Cmp, RAX, Rm::Reg(RSI.0));
        self.encoder.jump_if(ConditionCode::Greater, rest);
        self.iteration(block, Elements::All, top);
        if let Some(number) = prefetched {
            self.prefetch(number, step);
        }
        self.encoder.add(RAX, step as i32);
        self.encoder.int(Int::Cmp, RAX, Rm::Reg(RSI.0));
        self.encoder.jump_if(ConditionCode::LessEqual, top);
        self.encoder.place(rest);
    }

    /// Writes the loops over the elements from `rax` to `rdx`.
    fn range_loops(&mut self, number: usize, pass: &Pass, folds: &[Fold]) {
        // Without folds, the rest takes masked iterations of one copy. With folds, each copy has its own partial
        // results, so one masked iteration has all copies.
        let level = self.encoder.level();
        let n_masked = if folds.is_empty() { 1 } else { n_groups(level) };
        let tail = self.function.single(&mut self.encoder, pass, folds, n_masked, Elements::Tail);
        let mut last = tail.copied(n_masked, Order::Interleaved);
        let (n_copies, order) = if self.function.exit.is_some() {
            // No copy may store before another one has checked its angles.
            (copies(&last, level).0, Order::Interleaved)
        } else if folds.is_empty() {
            copies(&last, level)
        } else if last.most_alive() <= level.most_alive() {
            (n_masked, Order::Interleaved)
        } else {
            last = tail.copied(n_masked, Order::InTurn);
            (n_masked, Order::InTurn)
        };
        let whole = self.function.single(&mut self.encoder, pass, folds, n_masked, Elements::All);
        self.whole_loop(&whole.copied(n_copies, order), n_copies, Some(number));
        if folds.is_empty() && n_copies > 1 {
            // A masked iteration takes twice as many instructions.
            self.whole_loop(&whole.copied(1, order), 1, None);
        }
        let done = self.encoder.label();
        self.encoder.int(Int::Cmp, RAX, Rm::Reg(RDX.0));
        self.encoder.jump_if(ConditionCode::NotLess, done);
        if !folds.is_empty() && last.insts.len() > SHORT_TAIL {
            self.half_iteration(&tail, folds, done);
        }
        if folds.is_empty() {
            self.masked_loop(&last);
        } else {
            let top = self.encoder.label();
            self.iteration(&last, Elements::Tail, top);
        }
        self.encoder.place(done);
    }

    /// Writes the last iteration for the case that the remaining elements reach only the first half of the groups, as
    /// those of short rows do.
    fn half_iteration(&mut self, tail: &Single, folds: &[Fold], done: Label) {
        let level = self.encoder.level();
        let n_half = n_groups(level) / 2;
        let more = self.encoder.label();
        self.encoder.int(Int::Lea, R11, Rm::Mem(Memory::at(RAX, (n_half * level.lanes()) as i32)));
        self.encoder.int(Int::Cmp, R11, Rm::Reg(RDX.0));
        self.encoder.jump_if(ConditionCode::Less, more);
        let mut half = tail.copied(n_half, Order::Interleaved);
        folds.iter().for_each(|fold| fold.reserve(&mut half, n_half));
        let top = self.encoder.label();
        self.iteration(&half, Elements::Tail, top);
        self.encoder.jump(done);
        self.encoder.place(more);
    }

    /// Writes an iteration of a loop, with its top at a label.
    fn iteration(&mut self, block: &BasicBlock, elements: Elements, top: Label) {
        self.note(if elements == Elements::All { "loop" } else { "tail" }, block);
        let tail = self.function.tail;
        let mut allocator = Allocator::new(block, &mut self.encoder, &mut self.frame, &self.pointers);
        allocator.pin();
        allocator.place_loop(top);
        if elements == Elements::Tail {
            allocator.write_tail(tail);
        }
        allocator.run();
    }
}

/// Elements that are computed for all angles where a huge one is met: a multiple of a vector's lanes, and few enough
/// for the instruction that makes the mask of what is left, which takes a number of 8 bits.
const HUGE_RANGE: i32 = 128;

/// Most instructions of a masked iteration with folds that may compute groups without elements.
const SHORT_TAIL: usize = 32;
