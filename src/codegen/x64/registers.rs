//! Chooses machine registers for a block and encodes it.
//!
//! A block is straight-line code, so one walk decides everything: whenever a register is needed and none is free, the
//! value whose next use is farthest away leaves its register (Belady's rule), into the frame if it has no place in
//! memory yet. Values of all lanes that are read in every round of a loop are *pinned* before it, as far as registers
//! are left over; the others are read from memory by the instructions that take them, or loaded when one cannot.

use super::code::{self, Address, Block, Class, Home, Inst, Lanes, Op, Start, Those, V, Way};
use super::encoder::{Base, Encoder, Gpr, Index, Masked, Memory, Operands, R10, R11, RAX, RSP, Rm, Width};
use super::encoder::{Condition, Int, Label, RDI, RDX, RSI};
use super::frame::Frame;
use super::level::Level;
use super::opcode::{self, Encoding, Opcode, Tuple};
use crate::codegen::native::word;
use smallvec::SmallVec;

/// Most vector registers that a machine has.
const MOST_VECTORS: usize = 32;
/// Mask registers; the first means "no mask" where a mask is asked for.
const N_MASKS: usize = 8;

/// Where code finds the rows of accesses.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pointer {
    /// In a register.
    Gpr(Gpr),
    /// In the frame.
    Frame(i32),
}

/// Registers for the values of one block.
pub(super) struct Allocator<'a> {
    block: &'a Block,
    encoder: &'a mut Encoder,
    frame: &'a mut Frame,
    pointers: &'a [Pointer],
    /// Per virtual register the positions that read it, last first.
    uses: Vec<SmallVec<[u32; 4]>>,
    /// Per virtual register its machine register.
    places: Vec<Option<u8>>,
    /// Per virtual register where it was put in the frame.
    spilled: Vec<Option<i32>>,
    n_spilled: usize,
    /// Who is in the vector registers; there may be more than the level has.
    vectors: [Option<V>; MOST_VECTORS],
    masks: [Option<V>; N_MASKS],
    /// A bit per register that nobody is in, of those that the level has.
    free_vectors: u32,
    free_masks: u32,
}

const NEVER: u32 = u32::MAX;

impl<'a> Allocator<'a> {
    /// Prepares `block`, whose accesses are found at `pointers`.
    pub(super) fn new(
        block: &'a Block,
        encoder: &'a mut Encoder,
        frame: &'a mut Frame,
        pointers: &'a [Pointer],
    ) -> Allocator<'a> {
        let n = block.infos.len();
        let mut uses: Vec<SmallVec<[u32; 4]>> = vec![SmallVec::new(); n];
        for (at, inst) in block.insts.iter().enumerate().rev() {
            for v in inst.reads() {
                uses[v.index()].push(at as u32);
            }
        }
        let (mut vectors, mut places) = ([None; MOST_VECTORS], vec![None; n]);
        for (index, info) in block.infos.iter().enumerate() {
            if let Home::Register(register) = info.home {
                vectors[register as usize] = Some(V(index as u32));
                places[index] = Some(register);
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
            uses,
            places,
            spilled: vec![None; n],
            n_spilled: 0,
            vectors,
            masks,
            free_vectors,
            free_masks,
        }
    }

    fn level(&self) -> Level {
        self.block.level
    }

    /// Loads values of all lanes into registers that the block leaves over; they hold when it ends.
    pub(super) fn pin(&mut self) {
        let taken = self.vectors.iter().filter(|owner| owner.is_some()).count();
        let free = self.level().n_vectors().saturating_sub(taken + self.block.most_alive() + SPARE);
        let mut shared: Vec<V> = (0..self.block.infos.len() as u32)
            .map(V)
            .filter(|&v| {
                self.is_shared(v) && self.block.info(v).class == Class::Vector && !self.uses[v.index()].is_empty()
            })
            .collect();
        shared.sort_by_cached_key(|v| (std::cmp::Reverse(self.gain(*v)), v.0));
        for v in shared.into_iter().take(free) {
            let register = self.free_register(Class::Vector).expect("no more are pinned than are free");
            self.load(v, register);
            self.pinned(v, register);
        }
    }

    fn pinned(&mut self, v: V, register: u8) {
        self.place(v, register);
        // Used for ever: a pinned value never leaves.
        self.uses[v.index()].insert(0, NEVER - 1);
    }

    /// How much a register is worth to a value of all lanes: instructions that cannot read it from memory count most.
    fn gain(&self, v: V) -> usize {
        self.uses[v.index()]
            .iter()
            .map(|&at| {
                let inst = &self.block.insts[at as usize];
                let folds =
                    self.stays_in_memory(v) && foldable(inst, self.level()).is_some_and(|arg| inst.args[arg] == v);
                if folds { 2 } else { 3 }
            })
            .sum()
    }

    /// Puts the top of a loop here.
    pub(super) fn place_loop(&mut self, top: Label) {
        self.encoder.place_loop(top);
    }

    /// Writes a bit per element that is left, `rdx - rax` of them, into the frame, or for AVX2 their number.
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
            Op::Fma { negated, wide } => self.fma(at, inst, negated, wide),
            Op::Place { access, ahead } => self.compute_place(access, ahead),
            Op::Copy { way, bytes, those, frame } => {
                let address = inst.address.expect("a copy has an address");
                self.copy(address, frame, bytes, way, those);
            }
        }
    }

    /// Whether a value comes from memory and is the same in every round.
    fn is_shared(&self, v: V) -> bool {
        matches!(self.block.info(v).home, Home::Constant(_) | Home::Element(_) | Home::Whole(_) | Home::Lanes(_))
    }

    /// Whether a value can be had again after it left its register.
    fn is_lasting(&self, v: V) -> bool {
        self.is_shared(v) || matches!(self.block.info(v).home, Home::Memory(_))
    }

    /// Whether an instruction can read a value from its place in memory: one element only, if the machine broadcasts.
    fn stays_in_memory(&self, v: V) -> bool {
        self.level() == Level::Avx512 || !matches!(self.block.info(v).home, Home::Element(_))
    }

    fn next_use(&self, v: V) -> u32 {
        self.uses[v.index()].last().copied().unwrap_or(NEVER)
    }

    /// Marks the uses at this position as past; values that nobody reads any more leave their registers.
    fn pass(&mut self, at: usize, inst: &Inst) {
        for v in inst.reads() {
            let uses = &mut self.uses[v.index()];
            if uses.last() == Some(&(at as u32)) {
                uses.pop();
            }
            let lasting = matches!(self.block.info(v).home, Home::Register(_));
            if self.uses[v.index()].is_empty() && !lasting {
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

    fn place(&mut self, v: V, register: u8) {
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

    /// A register of the class; the value that is needed last makes room, but none of `busy`.
    fn take(&mut self, class: Class, busy: &[V]) -> u8 {
        if let Some(register) = self.free_register(class) {
            return register;
        }
        let owners: &[Option<V>] = match class {
            Class::Vector => &self.vectors,
            Class::Mask => &self.masks,
        };
        let movable = |v: &V| !busy.contains(v) && !matches!(self.block.info(*v).home, Home::Register(_));
        let owners = owners.iter().flatten().copied().filter(movable);
        let pinned = |v: V| self.uses[v.index()].first() == Some(&(NEVER - 1));
        let victim = owners.filter(|&v| !pinned(v)).max_by_key(|&v| (self.next_use(v), v.0));
        let victim = victim.expect("an instruction has fewer operands than there are registers");
        let register = self.places[victim.index()].expect("a victim is in a register");
        if !self.is_lasting(victim) && self.spilled[victim.index()].is_none() {
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

    fn vector(&mut self, opcode: &Opcode, width: Width, reg: u8, vvvv: u8, rm: Rm) {
        self.encoder.vector(opcode, width, Operands { reg, vvvv, rm }, None, None);
    }

    /// The register of a value, into which it is brought if need be.
    fn bring(&mut self, v: V, busy: &[V]) -> u8 {
        if let Some(register) = self.places[v.index()] {
            return register;
        }
        let register = self.take(self.block.info(v).class, busy);
        self.load(v, register);
        self.place(v, register);
        register
    }

    /// Loads a value that is in memory.
    fn load(&mut self, v: V, register: u8) {
        let info = self.block.info(v);
        if info.class == Class::Mask {
            return self.load_mask(v, register);
        }
        let memory = match self.spilled[v.index()] {
            Some(slot) => Memory::at(RSP, slot),
            None => self.memory(v).unwrap_or_else(|| unreachable!("{v} is read before it is made")),
        };
        let plain = Rm::Mem(Memory { broadcast: false, ..memory });
        let opcode = if memory.broadcast { &opcode::BROADCAST[info.wide as usize] } else { &opcode::LOAD[0] };
        self.vector(opcode, self.level().width(), register, 0, plain);
    }

    fn load_mask(&mut self, v: V, register: u8) {
        let at = match (self.spilled[v.index()], self.block.info(v).home) {
            (Some(slot), _) | (None, Home::Whole(slot)) => slot,
            (None, Home::Lanes(all)) => {
                let opcode = if all { &opcode::MASK_XNOR } else { &opcode::MASK_XOR };
                return self.vector(opcode, Width::X, register, register, Rm::Reg(register));
            }
            (None, Home::Block | Home::Register(_) | Home::Constant(_) | Home::Element(_) | Home::Memory(_)) => {
                unreachable!("{v} is read before it is made")
            }
        };
        self.vector(&opcode::MASK_MOVE, Width::X, register, 0, Rm::Mem(Memory::at(RSP, at)));
    }

    /// The place in memory of a value that has one from the start.
    fn memory(&mut self, v: V) -> Option<Memory> {
        match self.block.info(v).home {
            Home::Constant(number) => Some(self.encoder.constant_memory(number)),
            Home::Element(at) => Some(Memory { broadcast: true, ..Memory::at(RSP, at) }),
            Home::Whole(at) => Some(Memory::at(RSP, at)),
            Home::Memory(address) => Some(self.address(address)),
            Home::Block | Home::Register(_) | Home::Lanes(_) => None,
        }
    }

    /// The operand that may lie in memory: there, if the value has a place and a register would not pay.
    fn operand(&mut self, v: V, wide: bool, busy: &[V]) -> Rm {
        let info = self.block.info(v);
        let again = self.uses[v.index()].len() > 1;
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
            Start::Row(access) => self.pointer(access),
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

    /// `row + (i + ahead) * stride`.
    fn compute_place(&mut self, access: usize, ahead: i32) {
        let i = Memory::at(RAX, ahead);
        self.encoder.int(Int::Lea, R11, Rm::Mem(i));
        let stride = word::ACCESSES + access * word::ACCESS_WORDS + 2;
        self.encoder.int(Int::Imul, R11, Rm::Mem(Memory::at(RDI, 8 * stride as i32)));
        let row = match self.pointers[access] {
            Pointer::Gpr(register) => Rm::Reg(register.0),
            Pointer::Frame(at) => Rm::Mem(Memory::at(RSP, at)),
        };
        self.encoder.int(Int::Add, R11, row);
    }

    /// Copies elements between an address and the frame, the last first, byte by byte.
    fn copy(&mut self, address: Address, frame: i32, bytes: usize, way: Way, those: Those) {
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
        self.encoder.jump_if(Condition::Less, done);
        let at = |base: Gpr, disp: i32| Rm::Mem(Memory { index: Index::Gpr(R11, 0), ..Memory::at(base, disp) });
        let (outside, inside) = (at(R10, 0), at(RSP, frame));
        let (from, to) = if way == Way::In { (outside, inside) } else { (inside, outside) };
        self.encoder.int(Int::LoadByte, RSI, from);
        self.encoder.int(Int::StoreByte, RSI, to);
        self.encoder.jump(top);
        self.encoder.place(done);
    }

    fn mask(&mut self, lanes: Option<Lanes>, busy: &[V]) -> Option<Masked> {
        lanes.map(|lanes| Masked { register: self.bring(lanes.mask, busy), zero: lanes.zero })
    }

    fn machine(&mut self, at: usize, inst: &Inst, opcode: &'static Opcode) {
        let busy: SmallVec<[V; 4]> = inst.reads().collect();
        let mask = self.mask(inst.lanes, &busy);
        if is_indexed(opcode) {
            return self.indexed(at, inst, opcode, &busy, mask);
        }
        let in_memory = foldable(inst, self.level());
        let mut registers: SmallVec<[Rm; 3]> = SmallVec::from_elem(Rm::Reg(0), inst.args.len());
        // What may be read from memory comes last, since finding its address takes a general register.
        let order = (0..inst.args.len()).filter(|&arg| Some(arg) != in_memory).chain(in_memory);
        for arg in order {
            let v = inst.args[arg];
            registers[arg] = if Some(arg) == in_memory {
                self.operand(v, opcode.wide, &busy)
            } else {
                Rm::Reg(self.bring(v, &busy))
            };
        }
        let memory = inst.address.map(|address| Rm::Mem(self.address(address)));
        self.pass(at, inst);
        let result = inst.result.map(|v| self.result(v, &busy));
        let of = |rm: Option<&Rm>| match rm {
            Some(&Rm::Reg(register)) => register,
            Some(Rm::Mem(_)) => unreachable!("only the operand of rm is read from memory"),
            None => 0,
        };
        let from_gpr = opcode.is_from_gpr();
        let mut imm = inst.imm;
        let operands = match opcode.encoding {
            Encoding::Rvm | Encoding::Rvmr => Operands {
                reg: result.unwrap_or(0),
                vvvv: of(registers.first()),
                rm: registers.get(1).copied().or(memory).expect("an operand of rm"),
            },
            Encoding::Rm if from_gpr => Operands { reg: result.unwrap_or(0), vvvv: 0, rm: Rm::Reg(R11.0) },
            Encoding::Rm => Operands {
                reg: result.unwrap_or(0),
                vvvv: 0,
                rm: registers.first().copied().or(memory).expect("an operand of rm"),
            },
            Encoding::Mr => Operands {
                reg: of(registers.first()),
                vvvv: 0,
                rm: memory.or(result.map(Rm::Reg)).expect("a place for the result"),
            },
            Encoding::Mvr => Operands {
                reg: of(registers.first()),
                vvvv: of(registers.get(1)),
                rm: memory.expect("lanes are written to memory"),
            },
            Encoding::Rmv => unreachable!("indexed accesses are written apart"),
            Encoding::Vm(digit) => Operands {
                reg: digit,
                vvvv: result.unwrap_or(0),
                rm: registers.first().copied().expect("an operand of rm"),
            },
        };
        if opcode.encoding == Encoding::Rvmr {
            imm = Some(of(registers.get(2)) << 4);
        }
        self.encoder.vector(opcode, inst.width, operands, mask, imm);
    }

    /// Gathers, which use up their mask and must not share registers, and scatters.
    fn indexed(&mut self, at: usize, inst: &Inst, opcode: &'static Opcode, busy: &[V], mask: Option<Masked>) {
        let index = self.bring(inst.args[0], busy);
        let address = inst.address.expect("an indexed access has an address");
        // Of AVX2 the mask is an operand.
        let lanes = if opcode.encoding == Encoding::Rmv { self.bring(inst.args[1], busy) } else { 0 };
        let memory = Memory { index: Index::Vector(index), ..self.address(address) };
        let reg = match inst.result {
            Some(result) => {
                let register = self.result(result, busy);
                // The lanes that are not read stay, so the register must not depend on what was in it.
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

    /// The machine's three forms of an fma each overwrite another operand; the one whose value ends here is chosen.
    fn fma(&mut self, at: usize, inst: &Inst, negated: bool, wide: bool) {
        let mut busy: SmallVec<[V; 4]> = inst.reads().collect();
        let [a, b, c] = inst.args[..] else { unreachable!("an fma has three operands") };
        let ends = |this: &Self, v: V| {
            let once = inst.args.iter().filter(|&&arg| arg == v).count() == 1;
            let last = this.uses[v.index()].first() == Some(&(at as u32));
            let own = matches!(this.block.info(v).home, Home::Block | Home::Memory(_));
            once && last && own && this.places[v.index()].is_some()
        };
        let in_memory = |this: &Self, v: V| {
            this.places[v.index()].is_none() && (this.is_lasting(v) || this.spilled[v.index()].is_some())
        };
        let index = wide as usize;
        let pick =
            |add: &'static opcode::Pair, sub: &'static opcode::Pair| if negated { &sub[index] } else { &add[index] };
        // (opcode, overwritten, vvvv, rm)
        let (opcode, over, second, third) = if ends(self, c) {
            let (x, y) = if in_memory(self, a) { (b, a) } else { (a, b) };
            (pick(&opcode::FMADD_231, &opcode::FNMADD_231), c, x, y)
        } else {
            let first_ends = ends(self, a) || (!ends(self, b) && in_memory(self, a));
            let (x, y) = if first_ends { (a, b) } else { (b, a) };
            if in_memory(self, y) && !in_memory(self, c) {
                (pick(&opcode::FMADD_132, &opcode::FNMADD_132), x, c, y)
            } else {
                (pick(&opcode::FMADD_213, &opcode::FNMADD_213), x, y, c)
            }
        };
        let overwrites = ends(self, over);
        let second_register = self.bring(second, &busy);
        let result = inst.result.expect("an fma has a result");
        if overwrites {
            let rm = self.operand(third, wide, &busy);
            let register = self.bring(over, &busy);
            self.pass(at, inst);
            self.place(result, register);
            return self.vector(opcode, inst.width, register, second_register, rm);
        }
        let register = match in_memory(self, over) {
            true => {
                let register = self.take(Class::Vector, &busy);
                self.load(over, register);
                register
            }
            false => {
                let from = self.bring(over, &busy);
                let register = self.take(Class::Vector, &busy);
                self.vector(&opcode::MOVE[0], self.level().width(), register, 0, Rm::Reg(from));
                register
            }
        };
        self.place(result, register);
        // Its register holds an operand already, so it must not make room for the last one.
        busy.push(result);
        let rm = self.operand(third, wide, &busy);
        self.vector(opcode, inst.width, register, second_register, rm);
        self.pass(at, inst);
    }
}

/// Registers that stay free for loads of shared values inside a block.
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
