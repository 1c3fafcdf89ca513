//! Register allocation: chooses physical registers for a block and encodes it.
//!
//! A block is straight-line code, so one walk decides everything. When no register is free, the value whose next use is
//! farthest away is evicted (Belady's rule). It is spilled to the frame if it is not in memory yet. Uniform values that
//! every iteration of a loop reads are *pinned* before the loop, as far as registers are left over. Instructions read
//! the others from memory, or load them if they cannot.

use super::code::{
    self, Address, BasicBlock, Class, CopyDirection, Inst, Lanes, MOST_READS, NEVER, Op, Origin, Start, Those, Uses, V,
};
use super::encoder::{Base, Encoder, Gpr, Index, Masked, Memory, Operands, R10, R11, RAX, RSP, Rm, Width};
use super::encoder::{ConditionCode, Int, Label, RDI, RDX, RSI};
use super::frame::Frame;
use super::level::Level;
use super::opcode::{self, Encoding, Opcode, Tuple};
use crate::codegen::native::argument;
use std::cmp::Reverse;

/// The most vector registers of any level.
const MOST_VECTORS: usize = 32;
/// Mask registers; as an operand, the first means "no mask".
const N_MASKS: usize = 8;

/// Where the row address of an access is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pointer {
    /// In a register.
    Gpr(Gpr),
    /// In the frame.
    Frame(i32),
}

/// Registers for the values of one block.
pub(super) struct Allocator<'a> {
    pub(super) block: &'a BasicBlock,
    encoder: &'a mut Encoder,
    frame: &'a mut Frame,
    pointers: &'a [Pointer],
    /// Where values are read; `next` is relative to the current position of the walk.
    uses: Uses,
    /// The physical register of each virtual register.
    pub(super) places: Vec<Option<u8>>,
    /// The spill slot of each virtual register that was spilled.
    pub(super) spilled: Vec<Option<i32>>,
    n_spilled: usize,
    /// The values in the vector registers; the level may have fewer registers.
    vectors: [Option<V>; MOST_VECTORS],
    masks: [Option<V>; N_MASKS],
    /// A bit per vector register whose value is never evicted: accumulators and pinned values.
    fixed: u32,
    /// A bit per vector register of the level that is free.
    free_vectors: u32,
    free_masks: u32,
}

impl<'a> Allocator<'a> {
    /// Prepares `block`, whose accesses are at `pointers`.
    pub(super) fn new(
        block: &'a BasicBlock,
        encoder: &'a mut Encoder,
        frame: &'a mut Frame,
        pointers: &'a [Pointer],
    ) -> Allocator<'a> {
        let n = block.infos.len();
        let (mut vectors, mut places, mut fixed) = ([None; MOST_VECTORS], vec![None; n], 0);
        for (index, info) in block.infos.iter().enumerate() {
            if let Origin::Register(register) = info.origin {
                vectors[register as usize] = Some(V(index as u32));
                places[index] = Some(register);
                fixed |= 1 << register;
            }
        }
        let masks = [None; N_MASKS];
        let own = u32::MAX >> (MOST_VECTORS - block.level.n_vectors());
        let free = |free: u32, (register, owner): (usize, &Option<V>)| free | u32::from(owner.is_none()) << register;
        let free_vectors = own & vectors.iter().enumerate().fold(0, free);
        // Zero means "no mask".
        let free_masks = (1 << N_MASKS) - 2;
        Allocator {
            block,
            encoder,
            frame,
            pointers,
            uses: block.uses(),
            places,
            spilled: vec![None; n],
            n_spilled: 0,
            vectors,
            masks,
            fixed,
            free_vectors,
            free_masks,
        }
    }

    pub(super) fn level(&self) -> Level {
        self.block.level
    }

    /// Loads uniform values into registers that the block leaves over. They stay there until it ends.
    pub(super) fn pin(&mut self) {
        let taken = self.vectors.iter().filter(|owner| owner.is_some()).count();
        let free = self.level().n_vectors().saturating_sub(taken + self.uses.most_alive + SPARE);
        if free == 0 {
            return;
        }
        let gains = self.gains();
        let mut shared: Vec<(Reverse<u32>, V)> = gains
            .into_iter()
            .zip(0..)
            .filter(|&(gain, number)| gain > 0 && self.block.info(V(number)).class == Class::Vector)
            .map(|(gain, number)| (Reverse(gain), V(number)))
            .collect();
        shared.sort_unstable();
        for (_, v) in shared.into_iter().take(free) {
            let register = self.free_register(Class::Vector).expect("no more are pinned than are free");
            self.load(v, register);
            self.place(v, register);
            self.fixed |= 1 << register;
        }
    }

    /// How much a register helps each uniform value. Instructions that cannot read it from memory count most.
    fn gains(&self) -> Vec<u32> {
        let mut gains = vec![0; self.block.infos.len()];
        for inst in &self.block.insts {
            let foldable = foldable(inst, self.level()).map(|arg| inst.args[arg]);
            for v in inst.reads().into_iter().filter(|&v| self.is_shared(v)) {
                let folds = foldable == Some(v) && self.stays_in_memory(v);
                gains[v.index()] += if folds { 2 } else { 3 };
            }
        }
        gains
    }

    /// Whether a value is never evicted.
    fn stays(&self, v: V) -> bool {
        let stays = |register: u8| self.fixed >> register & 1 != 0;
        self.block.info(v).class == Class::Vector && self.places[v.index()].is_some_and(stays)
    }

    /// Places the top of a loop here.
    pub(super) fn place_loop(&mut self, top: Label) {
        self.encoder.place_loop(top);
    }

    /// Stores a bit per remaining element, `rdx - rax` of them, in the frame, or for AVX2 their number.
    pub(super) fn write_tail(&mut self, at: i32) {
        self.encoder.int(Int::Mov, R11, Rm::Reg(RDX.0));
        self.encoder.int(Int::Sub, R11, Rm::Reg(RAX.0));
        if self.level() == Level::Avx512 {
            self.encoder.set(R10, u64::MAX);
            self.encoder.low_bits(R11, R10, R11);
        }
        self.encoder.int(Int::Store, R11, Rm::Mem(Memory::at(RSP, at)));
    }

    /// Encodes the whole block.
    pub(super) fn run(mut self) {
        for at in 0..self.block.insts.len() {
            self.inst(at);
        }
    }

    fn inst(&mut self, at: usize) {
        let block = self.block;
        let inst = &block.insts[at];
        match inst.op {
            Op::Machine(opcode) => self.machine(at, inst, opcode),
            Op::Fma { minus, wide } => self.fma(at, inst, minus, wide),
            Op::Place { access, ahead } => self.compute_place(access as usize, ahead),
            Op::Unless { exit } => self.leave_unless(at, inst, exit),
            Op::Copy { way, bytes, those, frame } => {
                let address = inst.address.expect("a copy has an address");
                self.copy(address, frame, bytes as usize, way, those);
            }
        }
    }

    /// Whether a value is in memory and the same in every iteration.
    fn is_shared(&self, v: V) -> bool {
        matches!(
            self.block.info(v).origin,
            Origin::Constant(_) | Origin::Element(_) | Origin::Whole(_) | Origin::Lanes(_)
        )
    }

    /// Whether a value can be loaded again after it was evicted, without a spill.
    pub(super) fn is_reloadable(&self, v: V) -> bool {
        self.is_shared(v) || matches!(self.block.info(v).origin, Origin::Memory(_))
    }

    /// Whether an instruction can read a value from memory. A single element needs an embedded broadcast.
    fn stays_in_memory(&self, v: V) -> bool {
        self.level() == Level::Avx512 || !matches!(self.block.info(v).origin, Origin::Element(_))
    }

    /// The next use of a value after an instruction that reads it.
    pub(super) fn later(&self, at: usize, inst: &Inst, v: V) -> u32 {
        let number = inst.reads().iter().position(|&read| read == v).expect("the instruction reads it");
        self.uses.later[at][number]
    }

    /// Ends the uses at this position. Values without a later use free their registers.
    pub(super) fn pass(&mut self, at: usize, inst: &Inst) {
        for (v, later) in inst.reads().into_iter().zip(self.uses.later[at]) {
            self.uses.next[v.index()] = later;
            if later == NEVER && !self.stays(v) {
                self.leave(v);
            }
        }
    }

    fn leave(&mut self, v: V) {
        if let Some(register) = self.places[v.index()].take() {
            match self.block.info(v).class {
                Class::Vector => {
                    self.vectors[register as usize] = None;
                    self.free_vectors |= 1 << register;
                }
                Class::Mask => {
                    self.masks[register as usize] = None;
                    self.free_masks |= 1 << register;
                }
            }
        }
    }

    pub(super) fn place(&mut self, v: V, register: u8) {
        self.places[v.index()] = Some(register);
        match self.block.info(v).class {
            Class::Vector => {
                self.vectors[register as usize] = Some(v);
                self.free_vectors &= !(1 << register);
            }
            Class::Mask => {
                self.masks[register as usize] = Some(v);
                self.free_masks &= !(1 << register);
            }
        }
    }

    fn free_register(&self, class: Class) -> Option<u8> {
        let free = match class {
            Class::Vector => self.free_vectors,
            Class::Mask => self.free_masks,
        };
        (free != 0).then(|| free.trailing_zeros() as u8)
    }

    /// A register of the class. If none is free, the value with the farthest use is evicted, but none of `busy`.
    pub(super) fn take(&mut self, class: Class, busy: &[V]) -> u8 {
        self.free_register(class).unwrap_or_else(|| self.make_room(class, busy))
    }

    #[inline(never)]
    fn make_room(&mut self, class: Class, busy: &[V]) -> u8 {
        let (owners, fixed): (&[Option<V>], u32) = match class {
            Class::Vector => (&self.vectors, self.fixed),
            Class::Mask => (&self.masks, 0),
        };
        let held = |v: &V| self.places[v.index()].filter(|_| self.block.info(*v).class == class);
        let fixed = busy.iter().filter_map(held).fold(fixed, |fixed, register| fixed | 1 << register);
        let (mut victim, mut latest) = (None, (0, V(0)));
        for (register, &owner) in owners.iter().enumerate() {
            if let Some(v) = owner
                && fixed >> register & 1 == 0
                && (self.uses.next[v.index()], v) >= latest
            {
                (victim, latest) = (Some(v), (self.uses.next[v.index()], v));
            }
        }
        let victim = victim.expect("an instruction has fewer operands than there are registers");
        let register = self.places[victim.index()].expect("a victim is in a register");
        if !self.is_reloadable(victim) && self.spilled[victim.index()].is_none() {
            let slot = self.frame.spill(self.n_spilled);
            self.n_spilled += 1;
            self.spilled[victim.index()] = Some(slot);
            let memory = Rm::Mem(Memory::at(RSP, slot));
            match class {
                Class::Vector => self.vector(&opcode::STORE[0], self.level().width(), register, 0, memory),
                Class::Mask => self.vector(&opcode::MASK_STORE, Width::X, register, 0, memory),
            }
        }
        self.leave(victim);
        register
    }

    pub(super) fn vector(&mut self, opcode: &Opcode, width: Width, reg: u8, vvvv: u8, rm: Rm) {
        self.encoder.vector(opcode, width, Operands { reg, vvvv, rm }, None, None);
    }

    /// The register of a value, which is loaded if necessary.
    pub(super) fn bring(&mut self, v: V, busy: &[V]) -> u8 {
        if let Some(register) = self.places[v.index()] {
            return register;
        }
        let register = self.take(self.block.info(v).class, busy);
        self.load(v, register);
        self.place(v, register);
        register
    }

    /// Loads a value from memory.
    pub(super) fn load(&mut self, v: V, register: u8) {
        let info = self.block.info(v);
        if info.class == Class::Mask {
            return self.load_mask(v, register);
        }
        let memory = match self.spilled[v.index()] {
            Some(slot) => Memory::at(RSP, slot),
            None => self.memory(v).unwrap_or_else(|| unreachable!("{v} is read before it is defined")),
        };
        let plain = Rm::Mem(Memory { broadcast: false, ..memory });
        let opcode = if memory.broadcast { &opcode::BROADCAST[info.wide as usize] } else { &opcode::LOAD[0] };
        self.vector(opcode, self.level().width(), register, 0, plain);
    }

    fn load_mask(&mut self, v: V, register: u8) {
        let at = match (self.spilled[v.index()], self.block.info(v).origin) {
            (Some(slot), _) | (None, Origin::Whole(slot)) => slot,
            (None, Origin::Lanes(all)) => {
                let opcode = if all { &opcode::MASK_XNOR } else { &opcode::MASK_XOR };
                return self.vector(opcode, Width::X, register, register, Rm::Reg(register));
            }
            (
                None,
                Origin::Block | Origin::Register(_) | Origin::Constant(_) | Origin::Element(_) | Origin::Memory(_),
            ) => {
                unreachable!("{v} is read before it is defined")
            }
        };
        self.vector(&opcode::MASK_MOVE, Width::X, register, 0, Rm::Mem(Memory::at(RSP, at)));
    }

    /// The memory operand of a value that is in memory from the start.
    fn memory(&mut self, v: V) -> Option<Memory> {
        match self.block.info(v).origin {
            Origin::Constant(number) => Some(self.encoder.constant_memory(number)),
            Origin::Element(at) => Some(Memory { broadcast: true, ..Memory::at(RSP, at) }),
            Origin::Whole(at) => Some(Memory::at(RSP, at)),
            Origin::Memory(address) => Some(self.address(address)),
            Origin::Block | Origin::Register(_) | Origin::Lanes(_) => None,
        }
    }

    /// The operand that may be in memory. It is, if the value is in memory and loading it would not pay.
    pub(super) fn operand(&mut self, v: V, again: bool, wide: bool, busy: &[V]) -> Rm {
        let info = self.block.info(v);
        let keep = again && self.free_register(Class::Vector).is_some() && !self.is_shared(v);
        let suits = self.level() == Level::Avx2 || info.wide == wide;
        let is_vector = info.class == Class::Vector && self.stays_in_memory(v);
        let fits = self.places[v.index()].is_none() && is_vector && suits && !keep;
        let spilled = self.spilled[v.index()].map(|slot| Memory::at(RSP, slot));
        match if fits { spilled.or_else(|| self.memory(v)) } else { None } {
            Some(memory) => Rm::Mem(memory),
            None => Rm::Reg(self.bring(v, busy)),
        }
    }

    fn address(&mut self, address: Address) -> Memory {
        let base = match address.start {
            Start::Frame => RSP,
            Start::Placed => R11,
            Start::Row(access) => self.pointer(access as usize),
        };
        let index = address.scale.map_or(Index::None, |scale| Index::Gpr(RAX, scale));
        Memory { base: Base::Gpr(base), index, disp: address.disp, broadcast: false }
    }

    fn pointer(&mut self, access: usize) -> Gpr {
        match self.pointers[access] {
            Pointer::Gpr(register) => register,
            Pointer::Frame(at) => {
                self.encoder.int(Int::Mov, R10, Rm::Mem(Memory::at(RSP, at)));
                R10
            }
        }
    }

    /// Computes `row + (i + ahead) * stride`.
    fn compute_place(&mut self, access: usize, ahead: i32) {
        let i = Memory::at(RAX, ahead);
        self.encoder.int(Int::Lea, R11, Rm::Mem(i));
        let stride = argument::ACCESSES + access * argument::ACCESS_WORDS + 2;
        self.encoder.int(Int::Imul, R11, Rm::Mem(Memory::at(RDI, 8 * stride as i32)));
        let row = match self.pointers[access] {
            Pointer::Gpr(register) => Rm::Reg(register.0),
            Pointer::Frame(at) => Rm::Mem(Memory::at(RSP, at)),
        };
        self.encoder.int(Int::Add, R11, row);
    }

    /// Copies elements between an address and the frame byte by byte, the last element first.
    fn copy(&mut self, address: Address, frame: i32, bytes: usize, way: CopyDirection, those: Those) {
        let start = Rm::Mem(self.address(address));
        self.encoder.int(Int::Lea, R10, start);
        match those {
            Those::First => self.encoder.set(R11, 1),
            Those::Left(ahead) => {
                self.encoder.int(Int::Lea, RSI, Rm::Mem(Memory::at(RAX, ahead)));
                self.encoder.int(Int::Mov, R11, Rm::Reg(RDX.0));
                self.encoder.int(Int::Sub, R11, Rm::Reg(RSI.0));
                self.encoder.set(RSI, self.level().lanes() as u64);
                self.encoder.int(Int::Cmp, R11, Rm::Reg(RSI.0));
                self.encoder.int(Int::CmovGreater, R11, Rm::Reg(RSI.0));
            }
        }
        self.encoder.set(RSI, bytes as u64);
        self.encoder.int(Int::Imul, R11, Rm::Reg(RSI.0));
        let (top, done) = (self.encoder.label(), self.encoder.label());
        self.encoder.place(top);
        self.encoder.sub(R11, 1);
        self.encoder.jump_if(ConditionCode::Less, done);
        let at = |base: Gpr, disp: i32| Rm::Mem(Memory { index: Index::Gpr(R11, 0), ..Memory::at(base, disp) });
        let (outside, inside) = (at(R10, 0), at(RSP, frame));
        let (from, to) = if way == CopyDirection::In { (outside, inside) } else { (inside, outside) };
        self.encoder.int(Int::LoadByte, RSI, from);
        self.encoder.int(Int::StoreByte, RSI, to);
        self.encoder.jump(top);
        self.encoder.place(done);
    }

    /// Jumps to `exit` unless a mask has all lanes.
    fn leave_unless(&mut self, at: usize, inst: &Inst, exit: Label) {
        let mask = self.bring(inst.args[0], &inst.reads());
        self.pass(at, inst);
        match self.level() {
            Level::Avx512 => {
                self.vector(&opcode::MASK_ALL, Width::X, mask, 0, Rm::Reg(mask));
                self.encoder.jump_if(ConditionCode::NoCarry, exit);
            }
            Level::Avx2 => {
                self.vector(&opcode::SIGNS, Width::Y, R11.0, 0, Rm::Reg(mask));
                self.encoder.compare(R11, (1 << self.level().lanes()) - 1);
                self.encoder.jump_if(ConditionCode::NotEqual, exit);
            }
        }
    }

    fn mask(&mut self, lanes: Option<Lanes>, busy: &[V]) -> Option<Masked> {
        lanes.map(|lanes| Masked { register: self.bring(lanes.mask, busy), zero: lanes.zero })
    }

    fn machine(&mut self, at: usize, inst: &Inst, opcode: &'static Opcode) {
        let busy = inst.reads();
        let mask = self.mask(inst.lanes, &busy);
        if is_indexed(opcode) {
            return self.indexed(at, inst, opcode, &busy, mask);
        }
        let in_memory = foldable(inst, self.level());
        let mut registers = [0; MOST_READS - 1];
        for (arg, &v) in inst.args.iter().enumerate() {
            if Some(arg) != in_memory {
                registers[arg] = self.bring(v, &busy);
            }
        }
        // The operand that may be in memory comes last, because its address may take a general register.
        let operand =
            in_memory.map(|arg| self.operand(inst.args[arg], self.uses.later[at][arg] != NEVER, opcode.wide, &busy));
        let memory = inst.address.map(|address| Rm::Mem(self.address(address)));
        self.pass(at, inst);
        let result = inst.result.map(|v| self.result(v, &busy));
        let [first, second, third] = registers;
        // The operand of the field `rm`, if it is one of the arguments.
        let last = |arg: usize| operand.or(inst.args.get(arg).map(|_| Rm::Reg(registers[arg])));
        let made = result.unwrap_or(0);
        let (reg, vvvv, rm) = match opcode.encoding {
            Encoding::Rvm | Encoding::Rvmr => (made, first, last(1).or(memory)),
            Encoding::Rm if opcode.is_from_gpr() => (made, 0, Some(Rm::Reg(R11.0))),
            Encoding::Rm => (made, 0, last(0).or(memory)),
            Encoding::Mr => (first, 0, memory.or(result.map(Rm::Reg))),
            Encoding::Mvr => (first, second, memory),
            Encoding::Rmv => unreachable!("indexed accesses have an encoding of their own"),
            Encoding::Vm(digit) => (digit, made, last(0)),
        };
        let imm = if opcode.encoding == Encoding::Rvmr { Some(third << 4) } else { inst.imm };
        let operands = Operands { reg, vvvv, rm: rm.expect("an operand of rm") };
        self.encoder.vector(opcode, inst.width, operands, mask, imm);
    }

    /// Encodes gathers, which clobber their mask and need distinct registers, and scatters.
    fn indexed(&mut self, at: usize, inst: &Inst, opcode: &'static Opcode, busy: &[V], mask: Option<Masked>) {
        let index = self.bring(inst.args[0], busy);
        let address = inst.address.expect("an indexed access has an address");
        // In AVX2 the mask is an operand.
        let lanes = if opcode.encoding == Encoding::Rmv { self.bring(inst.args[1], busy) } else { 0 };
        let memory = Memory { index: Index::Vector(index), ..self.address(address) };
        let reg = match inst.result {
            Some(result) => {
                let register = self.result(result, busy);
                // Lanes that are not read stay, so clearing the register avoids a dependence on its old value.
                self.vector(&opcode::XOR[0], self.level().width(), register, register, Rm::Reg(register));
                register
            }
            None => self.bring(inst.args[1], busy),
        };
        self.pass(at, inst);
        self.encoder.vector(opcode, inst.width, Operands { reg, vvvv: lanes, rm: Rm::Mem(memory) }, mask, None);
    }

    /// The register of a result.
    fn result(&mut self, v: V, busy: &[V]) -> u8 {
        if let Some(register) = self.places[v.index()] {
            return register;
        }
        let register = self.take(self.block.info(v).class, busy);
        self.place(v, register);
        register
    }
}

/// Registers that stay free for loads of uniform values inside a block.
const SPARE: usize = 2;

/// The operand that may be read from memory.
fn foldable(inst: &Inst, level: Level) -> Option<usize> {
    let Op::Machine(opcode) = inst.op else { return None };
    let last = code::n_operands(opcode.encoding) - 1;
    let shifts_memory = level == Level::Avx512 || !matches!(opcode.encoding, Encoding::Vm(_));
    (opcode.tuple == Tuple::Full && inst.address.is_none() && shifts_memory).then_some(last)
}

fn is_indexed(opcode: &Opcode) -> bool {
    [&opcode::GATHER, &opcode::SCATTER, &opcode::GATHER_SOME].iter().any(|pair| pair.contains(opcode))
}
