//! Straight-line code over virtual registers: the bodies of a kernel's loops before register allocation.
//!
//! A virtual register is defined by one instruction. The exception is an accumulator, which lives in a fixed physical
//! register and is updated. A uniform value (a constant, or a value per row) needs no load: an instruction may read it
//! from memory and broadcast it. Loops are written around whole [`BasicBlock`]s. Inside one, the only control flow is
//! [`Op::Unless`], which leaves it for good.

use super::encoder::{Label, Width};
use super::level::Level;
use super::opcode::{DIV_F, Encoding, Opcode, SQRT, Space};
use super::register_list::RegisterList;
use std::fmt;

/// A virtual register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct V(pub(super) u32);

impl V {
    /// Its position in tables.
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What kind of register holds a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// A vector register.
    Vector,
    /// A mask register of AVX-512: a bit per lane.
    Mask,
}

/// Where a value is before any instruction of the block defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Nowhere: an instruction of the block defines it.
    Block,
    /// In this physical register, always.
    Register(u8),
    /// A constant, by its number.
    Constant(u32),
    /// One element at this offset in the frame, broadcast to all lanes.
    Element(i32),
    /// A whole vector, or the bits of a mask, at this offset in the frame.
    Whole(i32),
    /// A mask of all or no lanes.
    Lanes(bool),
    /// A whole vector of an operand. It is loaded where it is needed, and loaded again rather than spilled.
    Memory(Address),
}

/// The properties of a virtual register.
#[derive(Debug, Clone, Copy)]
pub(super) struct Info {
    /// Its kind.
    pub(super) class: Class,
    /// Where it comes from.
    pub(super) origin: Origin,
    /// Whether its lanes have 64 bits; meaningless for masks.
    pub(super) wide: bool,
}

impl Info {
    /// Whether it is a vector that an instruction of the block defines.
    pub(super) fn is_made_vector(&self) -> bool {
        self.origin == Origin::Block && self.class == Class::Vector
    }
}

/// The base of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// The row of an operand or output; row buffers are numbered after them.
    Row(u16),
    /// The frame.
    Frame,
    /// The address that the last [`Op::Place`] computed.
    Placed,
}

/// The address of a memory operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    /// Its base.
    pub(super) start: Start,
    /// Bytes per element of the loop, as a power of two, if the address moves with the loop.
    pub(super) scale: Option<u8>,
    /// An offset in bytes.
    pub(super) disp: i32,
}

/// Which terms of an fma are subtracted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Minus {
    pub(super) product: bool,
    pub(super) addend: bool,
}

/// What an instruction does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Op {
    /// An instruction of the processor.
    Machine(&'static Opcode),
    /// `a * b + c` or, negated, `c - a * b`, with one rounding, of 64-bit lanes or not.
    Fma {
        /// What is subtracted.
        minus: Minus,
        /// Whether lanes have 64 bits.
        wide: bool,
    },
    /// Computes the address of an access, or the value of an iota, `ahead` elements after the loop position.
    Place {
        /// The operand or output.
        access: u16,
        /// Elements ahead.
        ahead: i32,
    },
    /// Leaves the block unless its operand, a mask, has all lanes.
    Unless {
        /// Where to.
        exit: Label,
    },
    /// Copies elements byte by byte between the address of the instruction and the frame.
    Copy {
        /// The direction.
        way: CopyDirection,
        /// Bytes of an element.
        bytes: u8,
        /// The elements.
        those: Those,
        /// The offset in the frame.
        frame: i32,
    },
}

/// The direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyDirection {
    /// From the address to the frame.
    In,
    /// From the frame to the address.
    Out,
}

/// The elements of an iteration that are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Those {
    /// The first.
    First,
    /// The remaining elements of the loop, starting so many after its position.
    Left(i32),
}

/// The lanes that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lanes {
    /// The mask.
    pub(super) mask: V,
    /// Whether the other lanes become zero. Otherwise they stay, and the result must be an accumulator.
    pub(super) zero: bool,
}

/// The most registers that an instruction reads: its operands and a mask.
pub(super) const MOST_READS: usize = 4;

/// One instruction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inst {
    /// What it does.
    pub(super) op: Op,
    /// How many bits of registers it works on.
    pub(super) width: Width,
    /// The register that it defines.
    pub(super) result: Option<V>,
    /// Its operands: `vvvv`, `rm` and `reg`, in the order of the encoding, or `a`, `b`, `c` of an fma.
    pub(super) args: RegisterList<3>,
    /// The lanes that are written, if not all.
    pub(super) lanes: Option<Lanes>,
    /// The memory it reads or writes.
    pub(super) address: Option<Address>,
    /// The immediate.
    pub(super) imm: Option<u8>,
}

/// Straight-line code.
#[derive(Debug)]
pub(super) struct BasicBlock {
    /// The instruction set that it is for.
    pub(super) level: Level,
    /// Its instructions.
    pub(super) insts: Vec<Inst>,
    /// Its registers.
    pub(super) infos: Vec<Info>,
}

/// The position of the next use of a value that has none.
pub(super) const NEVER: u32 = u32::MAX;

/// Where the values of a block are read, as positions of instructions.
#[derive(Debug)]
pub(super) struct Uses {
    /// Per instruction, the next use of each register that it reads, in the order of [`Inst::reads`].
    pub(super) later: Vec<[u32; MOST_READS]>,
    /// Per register, its first use.
    pub(super) next: Vec<u32>,
    /// The most vectors defined by the block that are live at once.
    pub(super) most_alive: usize,
}

impl Inst {
    /// Everything it reads.
    pub(super) fn reads(&self) -> RegisterList<MOST_READS> {
        self.args.and(self.lanes.map(|lanes| lanes.mask))
    }

    /// The latency of its result in cycles, and its reciprocal throughput in half cycles, roughly, for processors with
    /// two vector ports.
    fn timing(&self) -> (usize, usize) {
        match self.op {
            Op::Machine(opcode) if matches!(opcode.space, Space::Fixed(_)) => (2, 1),
            Op::Machine(opcode) => opcode.timing(),
            Op::Fma { .. } => (4, 1),
            Op::Place { .. } => (5, 1),
            Op::Unless { .. } => (3, 2),
            // Whole iterations have a load or a store here.
            Op::Copy { .. } => (7, 1),
        }
    }
}

impl Op {
    /// Whether the divider computes it.
    pub(super) fn is_division(&self) -> bool {
        matches!(self, Op::Machine(opcode) if DIV_F.contains(opcode) || SQRT.contains(opcode))
    }
}

impl BasicBlock {
    /// A block without instructions, with room for `n_insts`.
    pub(super) fn new(level: Level, n_insts: usize) -> BasicBlock {
        BasicBlock { level, insts: Vec::with_capacity(n_insts), infos: Vec::with_capacity(n_insts) }
    }

    /// A new virtual register.
    pub(super) fn register(&mut self, class: Class, wide: bool, origin: Origin) -> V {
        self.infos.push(Info { class, origin, wide });
        V(self.infos.len() as u32 - 1)
    }

    /// The properties of a register.
    pub(super) fn info(&self, v: V) -> Info {
        self.infos[v.index()]
    }

    /// The most vectors defined by the block that are live at once.
    pub(super) fn most_alive(&self) -> usize {
        self.uses().most_alive
    }

    /// Where values are read, found in one backward walk.
    pub(super) fn uses(&self) -> Uses {
        let later = vec![[NEVER; MOST_READS]; self.insts.len()];
        let mut uses = Uses { later, next: vec![NEVER; self.infos.len()], most_alive: 0 };
        let mut alive = 0;
        for ((at, inst), later) in self.insts.iter().enumerate().zip(&mut uses.later).rev() {
            if let Some(v) = inst.result {
                alive -= usize::from(uses.next[v.index()] != NEVER && self.info(v).is_made_vector());
            }
            let reads = inst.reads();
            for (&v, later) in reads.iter().zip(later) {
                *later = uses.next[v.index()];
            }
            for &v in &reads {
                let is_first = uses.next[v.index()] == NEVER;
                alive += usize::from(is_first && self.info(v).is_made_vector());
                uses.next[v.index()] = at as u32;
            }
            uses.most_alive = uses.most_alive.max(alive);
        }
        uses
    }

    /// Cycles of the longest dependence chain, and cycles that all instructions take if none waits.
    pub(super) fn timing(&self) -> (usize, usize) {
        let mut ready = vec![0; self.infos.len()];
        let (mut longest, mut half_cycles) = (0, 0);
        for inst in &self.insts {
            let (latency, busy) = inst.timing();
            let start = inst.reads().into_iter().map(|v| ready[v.index()]).max().unwrap_or(0);
            longest = longest.max(start + latency);
            half_cycles += busy;
            if let Some(result) = inst.result {
                ready[result.index()] = start + latency;
            }
        }
        (longest, half_cycles.div_ceil(2))
    }

    /// Per instruction, whether another one reads its result, or the address that it computes.
    pub(super) fn is_needed(&self) -> Vec<bool> {
        let mut is_read = vec![false; self.infos.len()];
        let mut is_place_used = false;
        let mut needed = vec![true; self.insts.len()];
        for (inst, needed) in self.insts.iter().zip(&mut needed).rev() {
            if matches!(inst.op, Op::Place { .. }) {
                *needed = std::mem::replace(&mut is_place_used, false);
                continue;
            }
            let lasting = |v: V| matches!(self.infos[v.index()].origin, Origin::Register(_));
            *needed = inst.result.is_none_or(|v| is_read[v.index()] || lasting(v));
            if *needed {
                inst.reads().into_iter().for_each(|v| is_read[v.index()] = true);
                is_place_used |= uses_place(inst);
            }
        }
        needed
    }
}

/// Whether an instruction reads what the last [`Op::Place`] computed.
fn uses_place(inst: &Inst) -> bool {
    let from_gpr = matches!(inst.op, Op::Machine(opcode) if opcode.is_from_gpr());
    from_gpr || inst.address.is_some_and(|address| address.start == Start::Placed)
}

impl fmt::Display for V {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.start {
            Start::Row(access) => write!(f, "[row{access}")?,
            Start::Frame => f.write_str("[frame")?,
            Start::Placed => f.write_str("[placed")?,
        }
        if let Some(scale) = self.scale {
            write!(f, " + {} i", 1 << scale)?;
        }
        if self.disp != 0 {
            write!(f, " + {}", self.disp)?;
        }
        f.write_str("]")
    }
}

impl fmt::Display for BasicBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |v: &V| match self.info(*v).origin {
            Origin::Block => format!("{v}"),
            Origin::Register(register) => format!("acc{register}"),
            Origin::Constant(number) => format!("c{number}"),
            Origin::Element(at) => format!("element[{at}]"),
            Origin::Whole(at) => format!("frame[{at}]"),
            Origin::Lanes(all) => format!("lanes({all})"),
            Origin::Memory(address) => address.to_string(),
        };
        for inst in &self.insts {
            f.write_str("    ")?;
            if let Some(result) = &inst.result {
                write!(f, "{}", named(result))?;
                if let Some(lanes) = inst.lanes {
                    write!(f, "{{{}}}{}", named(&lanes.mask), if lanes.zero { "{z}" } else { "" })?;
                }
                f.write_str(" = ")?;
            }
            match inst.op {
                Op::Machine(opcode) => f.write_str(opcode.form(self.level).map_or(opcode.name, |form| form.name))?,
                Op::Fma { minus, wide } => {
                    let (n, add) = (if minus.product { "n" } else { "" }, if minus.addend { "sub" } else { "add" });
                    write!(f, "vf{n}m{add}{}", if wide { "pd" } else { "ps" })?;
                }
                Op::Unless { .. } => f.write_str("leave unless all of")?,
                Op::Place { access, ahead } => write!(f, "place row{access}, i + {ahead}")?,
                Op::Copy { way, bytes, those, .. } => {
                    let way = if way == CopyDirection::In { "in" } else { "out" };
                    match those {
                        Those::First => write!(f, "copy {way} {bytes} bytes of one")?,
                        Those::Left(ahead) => write!(f, "copy {way} {bytes} bytes of each that is left, i + {ahead}")?,
                    }
                }
            }
            let mut operands: Vec<String> = inst.args.iter().map(named).collect();
            operands.extend(inst.address.map(|address| address.to_string()));
            operands.extend(inst.imm.map(|imm| imm.to_string()));
            let lanes = match (inst.lanes, inst.result) {
                (Some(lanes), None) => format!(" {{{}}}", named(&lanes.mask)),
                _ => String::new(),
            };
            writeln!(f, "{}{}{lanes}", if operands.is_empty() { "" } else { " " }, operands.join(", "))?;
        }
        Ok(())
    }
}

/// The number of operands of an opcode that are registers, not counting memory.
pub(super) const fn n_operands(encoding: Encoding) -> usize {
    match encoding {
        Encoding::Rvm | Encoding::Rvmr => 2,
        Encoding::Rm | Encoding::Mr | Encoding::Vm(_) | Encoding::Mvr | Encoding::Rmv => 1,
    }
}
