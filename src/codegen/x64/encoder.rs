//! Bytes of machine instructions: EVEX and VEX forms of vector instructions, and the integer ones that loops need.
//!
//! Formats are those of Intel's Software Developer's Manual, volume 2, chapter 2. Constants follow the code and are
//! addressed relative to the instruction pointer. Every jump has a 32-bit displacement, so nothing moves once written.
//! The encoder knows no kernel and no value. Tests compare its bytes with a disassembler.

use super::level::Level;
use super::opcode::{Encoding, Opcode, Space, Tuple};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

/// A general-purpose register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gpr(pub u8);

macro_rules! gprs {
    ($($name:ident = $number:literal),*) => {
        $(#[doc = concat!("Register ", stringify!($name), ".")] pub const $name: Gpr = Gpr($number);)*
    };
}
gprs!(RAX = 0, RCX = 1, RDX = 2, RBX = 3, RSP = 4, RBP = 5, RSI = 6, RDI = 7);
gprs!(R8 = 8, R9 = 9, R10 = 10, R11 = 11, R12 = 12, R13 = 13, R14 = 14, R15 = 15);

/// Bits of a vector register that an instruction works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// 128 bits.
    X,
    /// 256 bits.
    Y,
    /// 512 bits.
    Z,
}

impl Width {
    /// The width in bytes.
    pub const fn bytes(self) -> i32 {
        16 << self as i32
    }
}

/// The base of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// A register.
    Gpr(Gpr),
    /// A constant, by its number.
    Constant(u32),
}

/// The index of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    /// Nothing.
    None,
    /// A register times 1, 2, 4 or 8, given as a power of two.
    Gpr(Gpr, u8),
    /// Each lane of a vector register: an indexed access.
    Vector(u8),
}

/// A memory operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The base.
    pub base: Base,
    /// The index.
    pub index: Index,
    /// The displacement in bytes.
    pub disp: i32,
    /// Whether the one element there is broadcast to all lanes.
    pub broadcast: bool,
}

impl Memory {
    /// The memory at a register plus a displacement.
    pub fn at(base: Gpr, disp: i32) -> Memory {
        Memory { base: Base::Gpr(base), index: Index::None, disp, broadcast: false }
    }
}

/// The operand of an instruction that may be in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rm {
    /// A register by number.
    Reg(u8),
    /// Memory.
    Mem(Memory),
}

impl Rm {
    /// The numbers of the index register and of the base, or of the register itself; 0 if there is none.
    fn numbers(self) -> (u8, u8) {
        let memory = match self {
            Rm::Reg(register) => return (0, register),
            Rm::Mem(memory) => memory,
        };
        let index = match memory.index {
            Index::None => 0,
            Index::Gpr(index, _) => index.0,
            Index::Vector(index) => index,
        };
        let base = match memory.base {
            Base::Gpr(base) => base.0,
            Base::Constant(_) => 0,
        };
        (index, base)
    }
}

/// Which lanes an instruction writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Masked {
    /// The mask register, 1 to 7.
    pub register: u8,
    /// Whether the other lanes become zero; otherwise they stay.
    pub zero: bool,
}

/// The registers of a vector instruction, by their fields.
#[derive(Debug, Clone, Copy)]
pub struct Operands {
    /// The field `reg`, or the digit that some opcodes have there.
    pub reg: u8,
    /// The field `vvvv`; 0 if the instruction has none.
    pub vvvv: u8,
    /// The field `rm`.
    pub rm: Rm,
}

/// When a jump is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ConditionCode {
    /// Without a carry.
    NoCarry = 3,
    /// Equal, zero.
    Equal = 4,
    /// Not equal, not zero.
    NotEqual = 5,
    /// Less, signed.
    Less = 12,
    /// Not less, signed.
    NotLess = 13,
    /// Less or equal, signed.
    LessEqual = 14,
    /// Greater, signed.
    Greater = 15,
}

/// An integer instruction on two registers, or on a register and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Int {
    /// Adds to the register.
    Add = 0x03,
    /// Subtracts from the register.
    Sub = 0x2b,
    /// Compares.
    Cmp = 0x3b,
    /// Loads into the register.
    Mov = 0x8b,
    /// Stores the register.
    Store = 0x89,
    /// Adds the register to memory.
    AddTo = 0x01,
    /// Loads the address into the register.
    Lea = 0x8d,
    /// Multiplies the register.
    Imul = 0x0faf,
    /// Loads into the register if the last comparison gave greater, signed.
    CmovGreater = 0x0f4f,
    /// Loads a byte into the register, zero-extended.
    LoadByte = 0x0fb6,
    /// Stores the low byte of the register.
    StoreByte = 0x88,
}

/// What a cache line is prefetched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Reading.
    Read,
    /// Writing: the core gets the line exclusively.
    Write,
}

/// The target of jumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// A constant in memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Constant {
    /// Four bytes.
    Word(u32),
    /// Eight bytes.
    Double(u64),
    /// A whole vector of 64-bit lanes.
    Vector([u64; 8]),
}

/// Writes machine code.
#[derive(Debug)]
pub struct Encoder {
    level: Level,
    bytes: Vec<u8>,
    constants: IndexSet<Constant, FxBuildHasher>,
    /// Where the displacement of a constant goes, the constant, and the bytes of the instruction after the
    /// displacement.
    uses: Vec<(usize, u32, i32)>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Encoder {
    /// An encoder for an instruction set.
    pub fn new(level: Level) -> Encoder {
        let (bytes, uses) = (Vec::with_capacity(USUAL_BYTES), Vec::with_capacity(USUAL_BYTES / 32));
        let constants = IndexSet::with_capacity_and_hasher(USUAL_BYTES / 128, FxBuildHasher);
        Encoder { level, bytes, constants, uses, labels: Vec::new(), jumps: Vec::new() }
    }

    /// The instruction set that it writes for.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The number of a constant, which is added if it is new.
    pub fn constant(&mut self, constant: Constant) -> u32 {
        self.constants.insert_full(constant).0 as u32
    }

    /// The memory operand of a constant, broadcast unless it is a whole vector.
    pub fn constant_memory(&self, number: u32) -> Memory {
        let broadcast = self.level == Level::Avx512 && self.is_uniform(number);
        Memory { base: Base::Constant(number), index: Index::None, disp: 0, broadcast }
    }

    /// Whether a constant is one element, the same for all lanes.
    pub fn is_uniform(&self, number: u32) -> bool {
        !matches!(self.constants[number as usize], Constant::Vector(_))
    }

    /// The bits of a constant; those of the first lane if it is a vector.
    pub fn constant_bits(&self, number: u32) -> u64 {
        match self.constants[number as usize] {
            Constant::Word(word) => word as u64,
            Constant::Double(double) => double,
            Constant::Vector(lanes) => lanes[0],
        }
    }

    /// Writes a vector instruction, with `imm` if the opcode has one. AVX2 has no masks and no embedded broadcasts.
    ///
    /// # Panics
    /// If the level has no such instruction.
    pub fn vector(&mut self, opcode: &Opcode, width: Width, operands: Operands, mask: Option<Masked>, imm: Option<u8>) {
        let form = opcode.form(self.level).expect("code is selected for its level");
        match form.space {
            Space::Evex => self.bytes.extend_from_slice(&evex(opcode, width, operands, mask)),
            Space::Vex => self.bytes.extend_from_slice(&vex(opcode, form.wide, width == Width::Y, operands)),
            Space::Fixed(long) => self.bytes.extend_from_slice(&vex(opcode, form.wide, long, operands)),
        }
        let n_after = imm.is_some() as i32;
        let compress = match form.space {
            Space::Evex => scale_of_distance(opcode, width, operands.rm),
            Space::Vex | Space::Fixed(_) => 1,
        };
        self.modrm(operands.reg, operands.rm, compress, n_after);
        self.bytes.extend(imm);
    }

    /// Writes the ModRM byte and the rest of an address. A short displacement counts in units of `compress`. The
    /// instruction has `n_after` bytes after it.
    fn modrm(&mut self, reg: u8, rm: Rm, compress: i32, n_after: i32) {
        let reg = (reg & 7) << 3;
        let memory = match rm {
            Rm::Reg(register) => return self.bytes.push(0xc0 | reg | register & 7),
            Rm::Mem(memory) => memory,
        };
        let base = match memory.base {
            Base::Gpr(base) => base.0,
            Base::Constant(number) => {
                self.bytes.push(reg | 5);
                self.uses.push((self.bytes.len(), number, n_after));
                return self.bytes.extend([0; 4]);
            }
        };
        let short = memory.disp / compress;
        let is_short = memory.disp % compress == 0 && i8::try_from(short).is_ok();
        // Without a displacement, the numbers of rbp and r13 mean something else.
        let form = match (memory.disp, is_short) {
            (0, _) if base & 7 != RBP.0 => 0x00,
            (_, true) => 0x40,
            (_, false) => 0x80,
        };
        let sib = match memory.index {
            Index::None if base & 7 != RSP.0 => None,
            Index::None => Some(4 << 3),
            Index::Gpr(index, scale) => Some(scale << 6 | (index.0 & 7) << 3),
            Index::Vector(index) => Some((index & 7) << 3),
        };
        self.bytes.push(form | reg | if sib.is_some() { 4 } else { base & 7 });
        self.bytes.extend(sib.map(|sib| sib | base & 7));
        match form {
            0x00 => {}
            0x40 => self.bytes.push(short as i8 as u8),
            _ => self.bytes.extend(memory.disp.to_le_bytes()),
        }
    }

    /// Writes a 64-bit integer instruction.
    pub fn int(&mut self, int: Int, register: Gpr, rm: Rm) {
        let (index, base) = rm.numbers();
        self.bytes.push(0x48 | (register.0 >> 3) << 2 | (index >> 3) << 1 | base >> 3);
        let code = int as u16;
        if code > 0xff {
            self.bytes.push(0x0f);
        }
        self.bytes.push(code as u8);
        self.modrm(register.0, rm, 1, 0);
    }

    /// Prefetches the cache line at an address. It never faults and changes no register. A processor without
    /// `prefetchw` executes it as a no-op.
    pub fn prefetch(&mut self, want: Want, memory: Memory) {
        let (index, base) = Rm::Mem(memory).numbers();
        let opcode = match want {
            Want::Read => 0x18,
            Want::Write => 0x0d,
        };
        self.bytes.extend([0x40 | (index >> 3) << 1 | base >> 3, 0x0f, opcode]);
        self.modrm(1, Rm::Mem(memory), 1, 0);
    }

    /// Sets the register to a 64-bit number.
    pub fn set(&mut self, register: Gpr, value: u64) {
        self.bytes.extend([0x48 | register.0 >> 3, 0xb8 | register.0 & 7]);
        self.bytes.extend(value.to_le_bytes());
    }

    /// Adds a number to a register.
    pub fn add(&mut self, register: Gpr, value: i32) {
        self.immediate(0, register, value);
    }

    /// Subtracts a number from a register. Returns where the number is, see [`Encoder::patch`].
    pub fn sub(&mut self, register: Gpr, value: i32) -> usize {
        self.immediate(5, register, value);
        self.bytes.len() - 4
    }

    /// Masks a register with a number.
    pub fn and(&mut self, register: Gpr, value: i32) {
        self.immediate(4, register, value);
    }

    /// Compares a register with a number.
    pub fn compare(&mut self, register: Gpr, value: i32) {
        self.immediate(7, register, value);
    }

    fn immediate(&mut self, digit: u8, register: Gpr, value: i32) {
        self.bytes.extend([0x48 | register.0 >> 3, 0x81, 0xc0 | digit << 3 | register.0 & 7]);
        self.bytes.extend(value.to_le_bytes());
    }

    /// Shifts a register right, logically.
    pub fn shift_right(&mut self, register: Gpr, bits: u8) {
        self.bytes.extend([0x48 | register.0 >> 3, 0xc1, 0xe8 | register.0 & 7, bits]);
    }

    /// Negates a register.
    pub fn negate(&mut self, register: Gpr) {
        self.bytes.extend([0x48 | register.0 >> 3, 0xf7, 0xd8 | register.0 & 7]);
    }

    /// Sets `to` to the lowest bits of `from`; the register `count` has their number.
    pub fn low_bits(&mut self, to: Gpr, from: Gpr, count: Gpr) {
        const BZHI: Opcode = Opcode {
            name: "bzhi",
            space: Space::Fixed(false),
            map: 2,
            prefix: 0,
            wide: true,
            older: None,
            code: 0xf5,
            encoding: Encoding::Rvm,
            tuple: Tuple::None,
        };
        self.vector(&BZHI, Width::X, Operands { reg: to.0, vvvv: count.0, rm: Rm::Reg(from.0) }, None, None);
    }

    /// Pushes a register.
    pub fn push(&mut self, register: Gpr) {
        self.bytes.extend([0x40 | register.0 >> 3, 0x50 | register.0 & 7]);
    }

    /// Pops a register.
    pub fn pop(&mut self, register: Gpr) {
        self.bytes.extend([0x40 | register.0 >> 3, 0x58 | register.0 & 7]);
    }

    /// Calls the function whose address a register holds.
    pub fn call(&mut self, register: Gpr) {
        self.bytes.extend([0x40 | register.0 >> 3, 0xff, 0xd0 | register.0 & 7]);
    }

    /// Returns.
    pub fn ret(&mut self) {
        self.bytes.push(0xc3);
    }

    /// Clears the upper halves of vector registers, without which SSE code of the caller would run slowly.
    pub fn zero_upper(&mut self) {
        self.bytes.extend([0xc5, 0xf8, 0x77]);
    }

    /// Completes all non-temporal stores before later stores.
    pub fn fence(&mut self) {
        self.bytes.extend([0x0f, 0xae, 0xf8]);
    }

    /// A new label, not placed yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label here.
    pub fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.bytes.len());
    }

    /// Places a label at the next address that is aligned for the top of a loop.
    pub fn place_loop(&mut self, label: Label) {
        const NOPS: [&[u8]; 4] =
            [&[], &[0x90], &[0x0f, 0x1f, 0x40, 0x00], &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00]];
        loop {
            let missing = self.bytes.len().next_multiple_of(LOOP_ALIGN) - self.bytes.len();
            let nop = NOPS.iter().rev().find(|nop| nop.len() <= missing).expect("the first is empty");
            if nop.is_empty() {
                break;
            }
            self.bytes.extend(*nop);
        }
        self.place(label);
    }

    /// Bytes written so far.
    pub fn n_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Jumps.
    pub fn jump(&mut self, label: Label) {
        self.bytes.push(0xe9);
        self.jumps.push((self.bytes.len(), label));
        self.bytes.extend([0; 4]);
    }

    /// Jumps if the condition holds.
    pub fn jump_if(&mut self, condition: ConditionCode, label: Label) {
        self.bytes.extend([0x0f, 0x80 | condition as u8]);
        self.jumps.push((self.bytes.len(), label));
        self.bytes.extend([0; 4]);
    }

    /// Replaces a number written before.
    pub fn patch(&mut self, at: usize, value: i32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// The code, followed by its constants.
    ///
    /// # Panics
    /// If a jump leads to a label that was not placed.
    pub fn finish(mut self) -> Vec<u8> {
        for (at, label) in std::mem::take(&mut self.jumps) {
            let target = self.labels[label.0].expect("every label is placed before the code is finished");
            self.patch(at, (target as i64 - at as i64 - 4) as i32);
        }
        let mut places = vec![0; self.constants.len()];
        for (number, constant) in self.constants.iter().enumerate() {
            let (copies, align) = match (self.level, constant) {
                (_, Constant::Vector(_)) => (1, 64),
                (Level::Avx512, Constant::Word(_) | Constant::Double(_)) => (1, 8),
                (Level::Avx2, Constant::Word(_)) => (8, 32),
                (Level::Avx2, Constant::Double(_)) => (4, 32),
            };
            self.bytes.resize(self.bytes.len().next_multiple_of(align), 0);
            places[number] = self.bytes.len();
            match constant {
                Constant::Word(word) => self.bytes.extend(word.to_le_bytes().repeat(copies)),
                Constant::Double(double) => self.bytes.extend(double.to_le_bytes().repeat(copies)),
                Constant::Vector(lanes) => self.bytes.extend(lanes.iter().flat_map(|lane| lane.to_le_bytes())),
            }
        }
        for (at, number, n_after) in std::mem::take(&mut self.uses) {
            self.patch(at, places[number as usize] as i32 - at as i32 - 4 - n_after);
        }
        self.bytes
    }
}

/// The EVEX prefix and the opcode, for AVX-512.
fn evex(opcode: &Opcode, width: Width, Operands { reg, vvvv, rm }: Operands, mask: Option<Masked>) -> [u8; 5] {
    let inverted = |register: u8, bit: u8| (!register >> bit) & 1;
    // Bit 4 of a vector index shares its place with that of `vvvv`; no instruction has both.
    let (index, base) = rm.numbers();
    let (x, v4, broadcast) = match rm {
        Rm::Reg(register) => (inverted(register, 4), inverted(vvvv, 4), 0),
        Rm::Mem(memory) => {
            let is_vector = matches!(memory.index, Index::Vector(_));
            (inverted(index, 3), inverted(if is_vector { index } else { vvvv }, 4), memory.broadcast as u8)
        }
    };
    let b = inverted(base, 3);
    let (aaa, z) = mask.map_or((0, 0), |mask| (mask.register, mask.zero as u8));
    [
        0x62,
        inverted(reg, 3) << 7 | x << 6 | b << 5 | inverted(reg, 4) << 4 | opcode.map,
        (opcode.wide as u8) << 7 | (!vvvv & 15) << 3 | 1 << 2 | opcode.prefix,
        z << 7 | (width as u8) << 5 | broadcast << 4 | v4 << 3 | aaa,
        opcode.code,
    ]
}

/// The three-byte VEX prefix and the opcode, for AVX2; registers are below 16.
fn vex(opcode: &Opcode, wide: bool, long: bool, Operands { reg, vvvv, rm }: Operands) -> [u8; 4] {
    let inverted = |register: u8| (!register >> 3) & 1;
    let (index, base) = rm.numbers();
    [
        0xc4,
        inverted(reg) << 7 | inverted(index) << 6 | inverted(base) << 5 | opcode.map,
        (wide as u8) << 7 | (!vvvv & 15) << 3 | (long as u8) << 2 | opcode.prefix,
        opcode.code,
    ]
}

/// Bytes reserved for the code with its constants.
const USUAL_BYTES: usize = 4096;
/// The alignment of loop tops.
const LOOP_ALIGN: usize = 32;

/// The unit of a short displacement: the bytes that the instruction accesses, or one element.
fn scale_of_distance(opcode: &Opcode, width: Width, rm: Rm) -> i32 {
    let broadcast = matches!(rm, Rm::Mem(Memory { broadcast: true, .. }));
    let element = if opcode.wide { 8 } else { 4 };
    match opcode.tuple {
        _ if broadcast => element,
        Tuple::None => 1,
        Tuple::Full | Tuple::Whole => width.bytes(),
        Tuple::Half => width.bytes() / 2,
        Tuple::Quarter => width.bytes() / 4,
        Tuple::Element => element,
    }
}
