//! Prefetches: cache lines are requested before they are needed.
//!
//! Where several passes go through a row, only the first one waits for memory. So the other passes prefetch what the
//! first one reads in the next row. Rows are often a page each, which no hardware prefetcher crosses. The first pass
//! prefetches nothing, because it would wait longer (measured with two passes). A single pass prefetches what it reads
//! itself, at a fixed distance.
//!
//! Where the rows of a launch are pieces of rows, each starts far from the one before. So a pass over them prefetches
//! what it reads and writes some rows below. Otherwise it would wait for almost every store. In patches of 64 lanes,
//! transposed operands take 2.4 times as long without (`scripts/peers.sh --rows W11t`).
//!
//! Two choices depend on the processor, and are made by level:
//!
//! - With AVX2, passes also prefetch the lines of this row that the next pass writes. A store has to fetch its line
//!   first, and few stores can be pending. Softmax takes 0.6 of the time on Zen 3. But layer norm takes 1.17 of it on a
//!   Xeon with AVX-512, where more stores can be pending (`scripts/peers.sh --rows W04,W05`).
//! - With AVX-512 on Intel's processors, a single pass prefetches. Ten ops and Black-Scholes of 1e7 elements take 0.78
//!   and 0.91 of the time on a Xeon (`scripts/peers.sh --rows W01l,W17`). But a dot product from memory takes 1.3 times
//!   as long on Zen 5, whose own prefetchers are faster (`scripts/sweep.sh --only dot`).

use super::body::FunctionContext;
use super::encoder::*;
use super::function::Writer;
use super::level::Level;
use crate::codegen::geometry::Class;
use crate::codegen::kernel::{Kernel, Source};
use crate::codegen::native::flat::{Flat, FlatNodeId};
use crate::codegen::native::passes::{Pass, Passes};
use crate::codegen::native::{Rows, Stores, argument};

/// Bytes of a cache line.
const LINE: usize = 64;
/// Most bytes of a row that is prefetched: it stays in a core's cache until it is read.
const MOST_BYTES: usize = 128 << 10;

/// The distance at which a single pass prefetches. It covers the latency of memory; half and double are about as good.
const FAR_BYTES: usize = 2 << 10;

/// How many rows below a single pass over pieces prefetches; a power of two. One and four are about as good.
const ROWS_BELOW: i32 = 2;

/// What the passes of a kernel prefetch.
#[derive(Debug, Default)]
pub(super) struct Prefetches {
    /// Operands of the first pass, prefetched by the others, with the offset in the frame of their next row's address.
    reads: Vec<(usize, i32)>,
    /// Per pass, the outputs that the next loop writes, by their numbers as accesses.
    writes: Vec<Vec<usize>>,
    /// Operands of a single pass over whole rows.
    single: Vec<usize>,
    /// Accesses of a single pass over pieces of rows, with the offset in the frame of the address some rows below.
    below: Vec<(Want, usize, i32)>,
}

impl Prefetches {
    /// Plans the prefetches of contiguous rows; `take` allocates a slot for an address.
    pub(super) fn new(
        function: &FunctionContext<'_>,
        passes: &Passes,
        level: Level,
        mut take: impl FnMut() -> i32,
    ) -> Prefetches {
        let FunctionContext { kernel, motions, flat, manner, .. } = function;
        let is_contiguous = |&access: &usize| motions[access] == Class::Contiguous;
        let outputs = |pass: &Pass| -> Vec<usize> {
            pass.stores.iter().map(|&slot| kernel.operands.len() + slot).filter(is_contiguous).collect()
        };
        let mut prefetches = Prefetches { writes: vec![Vec::new(); passes.passes.len()], ..Prefetches::default() };
        let [first, others @ ..] = &passes.passes[..] else { return prefetches };
        let read = read(kernel, flat, first).into_iter().filter(is_contiguous);
        if others.iter().any(Pass::has_loop) {
            prefetches.reads = read.map(|slot| (slot, take())).collect();
        } else if manner.rows == Rows::Pieces {
            let written = outputs(first).into_iter().filter(|_| manner.stores == Stores::Cached);
            let wants = read.map(|slot| (Want::Read, slot)).chain(written.map(|access| (Want::Write, access)));
            prefetches.below = wants.map(|(want, access)| (want, access, take())).collect();
        } else if level.prefetches_single_passes() {
            prefetches.single = read.collect();
        }
        if level == Level::Avx2 && manner.stores == Stores::Cached {
            let loops = || (0..passes.passes.len()).filter(|&number| passes.passes[number].has_loop());
            for (before, number) in loops().skip(1).zip(loops().skip(2)) {
                prefetches.writes[before] = outputs(&passes.passes[number]);
            }
        }
        prefetches
    }
}

/// The operands in memory that a pass reads.
fn read(kernel: &Kernel, flat: &Flat, pass: &Pass) -> Vec<usize> {
    // A gathered operand is read somewhere else in each row.
    let is_walked = |&&id: &&FlatNodeId| flat.nodes[id].args.is_empty();
    let mut operands: Vec<usize> =
        pass.body.iter().filter(is_walked).filter_map(|&id| flat.nodes[id].op.operand()).collect();
    operands.sort_unstable();
    operands.dedup();
    operands.retain(|&slot| kernel.operands[slot].source == Source::Memory);
    operands
}

impl Writer<'_> {
    /// Stores the addresses of the next rows in the frame. For rows that are too long, it stores those of this row.
    pub(super) fn load_prefetch_addresses(&mut self) {
        for at in 0..self.prefetches.reads.len() {
            let (access, to) = self.prefetches.reads[at];
            self.encoder.int(Int::Mov, R11, self.frame_at(self.row_offsets[access]));
            self.encoder.int(Int::Mov, R10, Rm::Reg(R11.0));
            self.encoder.int(Int::Add, R10, self.argument(argument::ACCESSES + access * argument::ACCESS_WORDS + 1));
            self.encoder.compare(RCX, (MOST_BYTES / self.element_bytes(access)) as i32);
            self.encoder.int(Int::CmovGreater, R10, Rm::Reg(R11.0));
            self.encoder.int(Int::Store, R10, self.frame_at(to));
        }
        if !self.prefetches.below.is_empty() {
            self.load_addresses_below();
        }
    }

    /// Stores the addresses of rows some way below in the frame. The last rows store their own.
    fn load_addresses_below(&mut self) {
        self.encoder.int(Int::Mov, RSI, self.frame_at(self.rows_left));
        self.encoder.compare(RSI, ROWS_BELOW);
        for at in 0..self.prefetches.below.len() {
            let (_, access, to) = self.prefetches.below[at];
            self.encoder.int(Int::Mov, R11, self.frame_at(self.row_offsets[access]));
            self.encoder.int(Int::Mov, R10, self.argument(argument::ACCESSES + access * argument::ACCESS_WORDS + 1));
            let index = Index::Gpr(R10, ROWS_BELOW.trailing_zeros() as u8);
            let below = Memory { base: Base::Gpr(R11), index, disp: 0, broadcast: false };
            self.encoder.int(Int::Lea, R10, Rm::Mem(below));
            self.encoder.int(Int::CmovGreater, R11, Rm::Reg(R10.0));
            self.encoder.int(Int::Store, R11, self.frame_at(to));
        }
    }

    /// Writes the prefetches of a pass for an iteration of so many elements.
    pub(super) fn prefetch(&mut self, pass: usize, elements: usize) {
        let n_reads = if pass > 0 { self.prefetches.reads.len() } else { 0 };
        for at in 0..n_reads {
            let (access, from) = self.prefetches.reads[at];
            self.prefetch_lines(Want::Read, access, from, 0, elements);
        }
        self.prefetch_far(elements);
        for at in 0..self.prefetches.below.len() {
            let (want, access, from) = self.prefetches.below[at];
            self.prefetch_lines(want, access, from, 0, elements);
        }
        for at in 0..self.prefetches.writes[pass].len() {
            let access = self.prefetches.writes[pass][at];
            let too_long = self.encoder.label();
            self.encoder.compare(RCX, (MOST_BYTES / self.element_bytes(access)) as i32);
            self.encoder.jump_if(ConditionCode::Greater, too_long);
            self.prefetch_lines(Want::Write, access, self.row_offsets[access], 0, elements);
            self.encoder.place(too_long);
        }
    }

    /// Prefetches what a single pass reads, at a distance, but nothing past its end. Another thread may be writing
    /// there, and would wait for the lines that this one took.
    fn prefetch_far(&mut self, elements: usize) {
        let narrowest = self.prefetches.single.iter().map(|&access| self.element_bytes(access)).min();
        let Some(narrowest) = narrowest else { return };
        let too_far = self.encoder.label();
        self.encoder.int(Int::Lea, R11, Rm::Mem(Memory::at(RAX, (FAR_BYTES / narrowest + elements) as i32)));
        self.encoder.int(Int::Cmp, R11, Rm::Reg(RDX.0));
        self.encoder.jump_if(ConditionCode::Greater, too_far);
        for at in 0..self.prefetches.single.len() {
            let access = self.prefetches.single[at];
            self.prefetch_lines(Want::Read, access, self.row_offsets[access], FAR_BYTES as i32, elements);
        }
        self.encoder.place(too_far);
    }

    /// Prefetches the lines of so many elements that start `ahead` bytes after element `rax` of the row whose address
    /// is at `from` in the frame.
    fn prefetch_lines(&mut self, want: Want, access: usize, from: i32, ahead: i32, elements: usize) {
        let bytes = self.element_bytes(access);
        self.encoder.int(Int::Mov, R11, self.frame_at(from));
        for disp in (0..elements * bytes).step_by(LINE) {
            let index = Index::Gpr(RAX, bytes.trailing_zeros() as u8);
            let memory = Memory { base: Base::Gpr(R11), index, disp: ahead + disp as i32, broadcast: false };
            self.encoder.prefetch(want, memory);
        }
    }
}
