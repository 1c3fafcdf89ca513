//! The function of a kernel: a loop over rows, and in it one loop over the elements per pass.
//!
//! Registers: `rdi` holds the address of the words, `rax` the element, `rcx` the elements of a row, `rdx` the end of a
//! stretch, `rsi` the last element at which a whole round fits; `r10` and `r11` are for the moment; the others hold rows
//! of accesses, and `rsi` is for the moment, too, once no whole round fits. A stretch has a loop of whole rounds, several
//! copies of the body each, and one of masked rounds for what is left. A pass with folds has a loop over blocks of
//! [`FOLD_BLOCK`] around that.

use super::body::{Elements, Function};
use super::code::Block;
use super::copies::{Order, Single};
use super::encoder::*;
use super::folds::{Fold, n_groups};
use super::frame::Frame;
use super::level::Level;
use super::prefetch::Prefetches;
use super::registers::{Allocator, Pointer};
use crate::codegen::geometry::Class;
use crate::codegen::kernel::{FOLD_BLOCK, Kernel, Source};
use crate::codegen::native::flat::{Flat, Op};
use crate::codegen::native::passes::{Pass, Passes};
use crate::codegen::native::{Manner, Stores, argument};
use crate::ir::Combine;
use crate::ir::scalar::Ty;
use std::fmt::Write;

/// Registers for the rows of accesses.
const ROW_REGISTERS: [Gpr; 7] = [RBX, R8, R9, R12, R13, R14, R15];
/// Registers that belong to the caller, `rbp` aside.
const SAVED: [Gpr; 5] = [RBX, R12, R13, R14, R15];
/// Bytes of a row value in the frame.
const SLOT_BYTES: i32 = 16;
/// Pages of a new frame are touched one after another, so that none of them lies behind the page that guards the stack.
const PAGE: i32 = 4096;
/// Most copies of a body in a loop without folds.
const MOST_COPIES: usize = 8;
/// Bytes of a vector of narrow elements.
const NARROW_BYTES: i32 = 16;

/// Writes the function of a kernel.
pub(super) struct Writer<'a> {
    function: Function<'a>,
    passes: &'a Passes,
    pub(super) encoder: Encoder,
    frame: Frame,
    pointers: Vec<Pointer>,
    /// Where rows of accesses and row buffers are in the frame.
    pub(super) homes: Vec<i32>,
    words_at: i32,
    pub(super) rows_left: i32,
    block_start: i32,
    block_end: i32,
    pub(super) prefetches: Prefetches,
    /// The text of the blocks, for people.
    text: Option<String>,
}

/// Machine code for a kernel.
pub(super) fn write(how: (Level, Manner), kernel: &Kernel, classes: &[Class], flat: &Flat, passes: &Passes) -> Vec<u8> {
    Writer::new(how, kernel, classes, flat, passes, None).write().0
}

/// The blocks of a kernel's function as text.
pub(super) fn text(how: (Level, Manner), kernel: &Kernel, classes: &[Class], flat: &Flat, passes: &Passes) -> String {
    Writer::new(how, kernel, classes, flat, passes, Some(String::new())).write().1.unwrap_or_default()
}

impl<'a> Writer<'a> {
    fn new(
        (level, manner): (Level, Manner),
        kernel: &'a Kernel,
        motions: &'a [Class],
        flat: &'a Flat,
        passes: &'a Passes,
        text: Option<String>,
    ) -> Writer<'a> {
        let mut frame = Frame::default();
        let (words_at, rows_left) = (frame.take(8, 8), frame.take(8, 8));
        let (block_start, block_end) = (frame.take(8, 8), frame.take(8, 8));
        let (tail, one, narrow) = (frame.take(16, 8), frame.take(8, 8), frame.take(NARROW_BYTES, NARROW_BYTES));
        let rows: Vec<i32> = motions.iter().map(|_| frame.take(8, 8)).collect();
        let buffers = (0..passes.n_kept).map(|_| frame.take(8, 8));
        let homes: Vec<i32> = rows.iter().copied().chain(buffers.collect::<Vec<_>>()).collect();
        let slots = vec![None; flat.nodes.len()];
        let distances = vec![None; motions.len()];
        let shown = flat.shown_payloads();
        let mut function = Function { kernel, motions, flat, manner, shown, slots, distances, rows, tail, one, narrow };
        for pass in &passes.passes {
            for &id in pass.row.iter().chain(&pass.uniform).chain(&pass.folds) {
                let slot = match flat.nodes[id].op {
                    Op::Load(access) if function.is_row_iota(id) => function.rows[access as usize],
                    Op::Load(_) | Op::Lit(_) | Op::Prim(_) | Op::Fold(_) => frame.take(SLOT_BYTES, SLOT_BYTES),
                };
                function.slots[id] = Some(slot);
            }
        }
        for (access, &motion) in motions.iter().enumerate() {
            let iota = kernel.operands.get(access).is_some_and(|operand| operand.source == Source::Iota);
            if iota || motion != Class::Contiguous {
                function.distances[access] = Some(frame.take(128, 64));
            }
        }
        let pointers = homes.iter().map(|&at| Pointer::Frame(at)).collect();
        let encoder = Encoder::new(level);
        let prefetches = Prefetches::new(&function, passes, level, || frame.take(8, 8));
        Writer {
            function,
            passes,
            encoder,
            frame,
            pointers,
            homes,
            words_at,
            rows_left,
            block_start,
            block_end,
            prefetches,
            text,
        }
    }

    fn write(mut self) -> (Vec<u8>, Option<String>) {
        let size_at = self.enter();
        self.copy_words();
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
        self.leave();
        let size = self.frame.size() / 64 * 64 + 64;
        self.encoder.patch(size_at, size);
        (self.encoder.finish(), self.text)
    }

    pub(super) fn at(&self, home: i32) -> Rm {
        Rm::Mem(Memory::at(RSP, home))
    }

    pub(super) fn word(&self, word: usize) -> Rm {
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
        self.encoder.jump_if(Condition::Less, done);
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

    /// Brings into the frame what the words say, and what follows from them for all rows.
    fn copy_words(&mut self) {
        self.encoder.int(Int::Store, RDI, self.at(self.words_at));
        self.encoder.int(Int::Mov, R11, self.word(argument::ROWS));
        self.encoder.int(Int::Store, R11, self.at(self.rows_left));
        self.encoder.int(Int::Mov, RCX, self.word(argument::INNER));
        self.encoder.set(R11, 1);
        self.encoder.int(Int::Store, R11, self.at(self.function.one));
        for access in 0..self.function.motions.len() {
            self.encoder.int(Int::Mov, R11, self.word(argument::ACCESSES + access * argument::ACCESS_WORDS));
            self.encoder.int(Int::Store, R11, self.at(self.homes[access]));
            if let Some(at) = self.function.distances[access] {
                self.write_distances(access, at);
            }
        }
        for buffer in 0..self.passes.n_kept {
            self.encoder.set(R11, (buffer * argument::BUFFER_BYTES) as u64);
            self.encoder.int(Int::Imul, R11, Rm::Reg(RCX.0));
            self.encoder.int(Int::Add, R11, self.word(argument::KEPT));
            let home = self.homes[self.function.motions.len() + buffer];
            self.encoder.int(Int::Store, R11, self.at(home));
        }
    }

    /// The numbers of the lanes times the stride.
    fn write_distances(&mut self, access: usize, at: i32) {
        let stride = self.word(argument::ACCESSES + access * argument::ACCESS_WORDS + 2);
        self.encoder.int(Int::Mov, R10, stride);
        self.encoder.set(R11, 0);
        for lane in 0..self.encoder.level().lanes() as i32 {
            self.encoder.int(Int::Store, R11, self.at(at + 8 * lane));
            self.encoder.int(Int::Add, R11, Rm::Reg(R10.0));
        }
    }

    /// Moves all rows on and runs the next one, if there is one.
    fn next_row(&mut self, top: Label) {
        for access in 0..self.function.motions.len() {
            self.encoder.int(Int::Mov, R11, self.word(argument::ACCESSES + access * argument::ACCESS_WORDS + 1));
            self.encoder.int(Int::AddTo, R11, self.at(self.homes[access]));
        }
        self.encoder.int(Int::Mov, R11, self.at(self.rows_left));
        self.encoder.sub(R11, 1);
        self.encoder.int(Int::Store, R11, self.at(self.rows_left));
        self.encoder.compare(R11, 0);
        self.encoder.jump_if(Condition::NotEqual, top);
    }

    /// Bytes of an element of an access.
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
    fn run(&mut self, block: impl FnOnce(&Function<'a>, &mut Encoder) -> Block, name: &str) {
        let block = block(&self.function, &mut self.encoder);
        if block.insts.is_empty() {
            return;
        }
        self.note(name, &block);
        Allocator::new(&block, &mut self.encoder, &mut self.frame, &self.pointers).run();
    }

    fn note(&mut self, name: &str, block: &Block) {
        if let Some(text) = &mut self.text {
            write!(text, "  {name}\n{block}").expect("a string takes everything");
        }
    }

    fn pass(&mut self, number: usize, pass: &Pass) {
        if !pass.uniform.is_empty() {
            // Without elements there may be nothing to load.
            let none = self.encoder.label();
            self.encoder.compare(RCX, 0);
            self.encoder.jump_if(Condition::Equal, none);
            self.run(|function, encoder| function.row_values(encoder, &pass.uniform), "same for all elements");
            self.encoder.place(none);
        }
        self.load_rows(pass);
        let folds = Fold::of_pass(self.encoder.level(), &self.function, &pass.folds, &mut self.frame);
        if folds.is_empty() {
            self.encoder.set(RAX, 0);
            self.encoder.int(Int::Mov, RDX, Rm::Reg(RCX.0));
            self.stretch(number, pass, &folds);
        } else {
            self.blocks(number, pass, &folds);
        }
        self.pointers = self.homes.iter().map(|&at| Pointer::Frame(at)).collect();
    }

    /// Brings rows of the accesses that the pass's loops walk into registers, as far as there are some.
    fn load_rows(&mut self, pass: &Pass) {
        let n_accesses = self.function.motions.len();
        let loads = pass.body.iter().filter_map(|&id| self.function.flat.nodes[id].op.operand());
        let stores = pass.stores.iter().map(|&slot| self.function.kernel.operands.len() + slot);
        let buffers = pass.keeps.iter().chain(&pass.kept).map(|&(_, buffer)| n_accesses + buffer);
        let mut used: Vec<usize> = loads.chain(stores).chain(buffers).collect();
        used.sort_unstable();
        used.dedup();
        for (access, register) in used.into_iter().zip(ROW_REGISTERS) {
            self.encoder.int(Int::Mov, register, self.at(self.homes[access]));
            self.pointers[access] = Pointer::Gpr(register);
        }
    }

    /// The loop over blocks of a pass with folds. Without elements there is one block without any.
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
        self.encoder.int(Int::Store, RAX, self.at(self.block_start));
        self.encoder.int(Int::Lea, RDX, Rm::Mem(Memory::at(RAX, FOLD_BLOCK as i32)));
        self.encoder.int(Int::Cmp, RDX, Rm::Reg(RCX.0));
        self.encoder.int(Int::CmovGreater, RDX, Rm::Reg(RCX.0));
        self.encoder.int(Int::Store, RDX, self.at(self.block_end));
        self.run(|function, encoder| function.start_folds(encoder, folds), "partial results");
        if folds.iter().any(|fold| fold.counter.is_some()) {
            let none = self.encoder.label();
            self.encoder.compare(RCX, 0);
            self.encoder.jump_if(Condition::Equal, none);
            self.run(|function, encoder| function.start_indices(encoder, folds), "first indices");
            self.encoder.place(none);
        }
        self.stretch(number, pass, folds);
        for (fold, &(value, index)) in folds.iter().zip(&parts) {
            self.run(|function, encoder| function.finish_fold(encoder, fold, value, index), "tree");
        }
        self.encoder.compare(RCX, FOLD_BLOCK as i32);
        self.encoder.jump_if(Condition::LessEqual, done);
        for (number, (fold, &(value, index))) in folds.iter().zip(&parts).enumerate() {
            self.keep_block(number, fold, value, index);
        }
        self.encoder.int(Int::Mov, RAX, self.at(self.block_end));
        self.encoder.int(Int::Cmp, RAX, Rm::Reg(RCX.0));
        self.encoder.jump_if(Condition::Less, top);
        for (number, fold) in folds.iter().enumerate() {
            self.join_blocks(number, fold);
        }
        self.encoder.place(done);
    }

    /// `r11` becomes the number of blocks.
    fn count_blocks(&mut self) {
        self.encoder.int(Int::Lea, R11, Rm::Mem(Memory::at(RCX, FOLD_BLOCK as i32 - 1)));
        self.encoder.shift_right(R11, FOLD_BLOCK.trailing_zeros() as u8);
    }

    /// `r11` becomes the address of the block entries of a fold, or of the entry of the block that was folded just now.
    fn block_entry(&mut self, number: usize, of_block: bool) {
        if of_block {
            self.encoder.int(Int::Mov, RSI, self.at(self.block_start));
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
        self.encoder.int(Int::Add, R11, self.word(argument::BLOCKS));
    }

    fn keep_block(&mut self, number: usize, fold: &Fold, value: i32, index: i32) {
        self.block_entry(number, true);
        self.encoder.int(Int::Mov, R10, self.at(value));
        if fold.ty == Ty::Bool {
            self.encoder.and(R10, 1);
        }
        self.encoder.int(Int::Store, R10, Rm::Mem(Memory::at(R11, 0)));
        if fold.index.is_some() {
            self.encoder.int(Int::Mov, R10, self.at(index));
            self.encoder.int(Int::Store, R10, Rm::Mem(Memory::at(R11, 8)));
        }
    }

    /// Has the results of a fold's blocks folded, and brings what comes of it to its slot.
    fn join_blocks(&mut self, number: usize, fold: &Fold) {
        self.block_entry(number, false);
        self.encoder.int(Int::Store, R11, self.at(self.block_start));
        self.encoder.int(Int::Mov, RSI, Rm::Reg(R11.0));
        self.count_blocks();
        self.encoder.int(Int::Mov, RDX, Rm::Reg(R11.0));
        self.encoder.int(Int::Mov, R10, self.word(argument::FOLD_BLOCKS));
        self.encoder.set(RDI, fold.number());
        self.encoder.zero_upper();
        self.encoder.call(R10);
        self.encoder.int(Int::Mov, RDI, self.at(self.words_at));
        self.encoder.int(Int::Mov, RCX, self.word(argument::INNER));
        self.encoder.int(Int::Mov, R11, self.at(self.block_start));
        self.encoder.int(Int::Mov, R10, Rm::Mem(Memory::at(R11, 0)));
        if matches!(fold.combine, Combine::Any | Combine::All) {
            self.encoder.negate(R10);
        }
        let slot = self.function.slots[fold.id].expect("a fold has a slot");
        self.encoder.int(Int::Store, R10, self.at(slot));
    }

    /// All elements from `rax` to `rdx`.
    fn stretch(&mut self, number: usize, pass: &Pass, folds: &[Fold]) {
        // One masked copy again and again, or, where every copy has its own partial results, all of them once.
        let level = self.encoder.level();
        let n_masked = if folds.is_empty() { 1 } else { n_groups(level) };
        let tail = self.function.single(&mut self.encoder, pass, folds, n_masked, Elements::Tail);
        let mut last = tail.copied(n_masked, Order::Interleaved);
        let (n_copies, order) = if folds.is_empty() {
            copies(&last, level)
        } else if last.most_alive() <= level.most_alive() {
            (n_masked, Order::Interleaved)
        } else {
            last = tail.copied(n_masked, Order::InTurn);
            (n_masked, Order::InTurn)
        };
        let main =
            self.function.single(&mut self.encoder, pass, folds, n_masked, Elements::All).copied(n_copies, order);
        let step = (n_copies * level.lanes()) as i32;
        let (rest, done) = (self.encoder.label(), self.encoder.label());
        self.encoder.int(Int::Lea, RSI, Rm::Mem(Memory::at(RDX, -step)));
        self.encoder.int(Int::Cmp, RAX, Rm::Reg(RSI.0));
        self.encoder.jump_if(Condition::Greater, rest);
        let top = self.encoder.label();
        self.round(&main, Elements::All, top);
        self.prefetch(number, step as usize);
        self.encoder.add(RAX, step);
        self.encoder.int(Int::Cmp, RAX, Rm::Reg(RSI.0));
        self.encoder.jump_if(Condition::LessEqual, top);
        self.encoder.place(rest);
        self.encoder.int(Int::Cmp, RAX, Rm::Reg(RDX.0));
        self.encoder.jump_if(Condition::NotLess, done);
        if !folds.is_empty() && last.insts.len() > SHORT_TAIL {
            self.half_round(&tail, folds, done);
        }
        let top = self.encoder.label();
        self.round(&last, Elements::Tail, top);
        if folds.is_empty() {
            self.encoder.add(RAX, level.lanes() as i32);
            self.encoder.int(Int::Cmp, RAX, Rm::Reg(RDX.0));
            self.encoder.jump_if(Condition::Less, top);
        }
        self.encoder.place(done);
    }

    /// The last round where the elements that are left feed no more than the first half of the groups, as those of short rows do.
    fn half_round(&mut self, tail: &Single, folds: &[Fold], done: Label) {
        let level = self.encoder.level();
        let n_half = n_groups(level) / 2;
        let more = self.encoder.label();
        self.encoder.int(Int::Lea, R11, Rm::Mem(Memory::at(RAX, (n_half * level.lanes()) as i32)));
        self.encoder.int(Int::Cmp, R11, Rm::Reg(RDX.0));
        self.encoder.jump_if(Condition::Less, more);
        let mut half = tail.copied(n_half, Order::Interleaved);
        folds.iter().for_each(|fold| fold.reserve(&mut half, n_half));
        let top = self.encoder.label();
        self.round(&half, Elements::Tail, top);
        self.encoder.jump(done);
        self.encoder.place(more);
    }

    /// A round of a loop, its top at a label.
    fn round(&mut self, block: &Block, elements: Elements, top: Label) {
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

/// How many copies of a body keep the machine busy, and how they are put together.
///
/// Its instructions wait for each other most of the time, and it looks ahead by [`WINDOW`] of them: so many chains of
/// instructions as their latency takes longer than their execution have to be in sight. Short bodies are copied to save
/// on the loop. How far values may be out of registers meanwhile, the level says.
fn copies(body: &Block, level: Level) -> (usize, Order) {
    let (latency, cycles) = body.timing();
    let n = body.insts.len().max(1);
    let in_sight = (WINDOW / n).max(1);
    let busy = latency.div_ceil(cycles.max(1)).div_ceil(in_sight);
    let at_least = if n <= 12 {
        4
    } else if n <= 32 {
        2
    } else {
        1
    };
    let fit = level.most_copied(n) / body.most_alive().max(1);
    let usual = busy.max(at_least).min(MOST_COPIES).min(fit).max(1);
    if n < MUCH || !body.insts.iter().any(|inst| inst.op.is_division()) {
        return (usual, Order::Interleaved);
    }
    // Of staggered copies the machine looks at fewer, and fewer values are alive at once.
    let more = (2 * busy).min(MOST_COPIES).min(3 * fit / 2).min(MOST_STAGGERED / n);
    (usual.max(more), Order::Staggered)
}

/// Instructions of a masked round with folds up to which it may compute groups that have no element.
const SHORT_TAIL: usize = 32;

/// Instructions of all staggered copies: writing more takes longer than many a kernel runs.
const MOST_STAGGERED: usize = 512;

/// Instructions that are much to do beside a division: all copies would then want the divider at once.
const MUCH: usize = 48;

/// Instructions that wait for their operands at once, on machines of the last years.
const WINDOW: usize = 64;
