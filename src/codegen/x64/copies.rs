//! Unrolling: several copies of a body in one block, made of a body that was written once.
//!
//! Copying instructions takes less time than selecting them again. Every copy has registers of its own for what it
//! defines. It works on its own elements, and has its own masks and partial results. Uniform values are shared by all
//! copies.

use super::code::{Address, BasicBlock, Info, Inst, Op, Origin, Start, Those, V};
use super::folds::PartialLocation;
use super::level::Level;

/// How the instructions of the copies are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Part by part, so that the other copies hide the latency of one.
    Interleaved,
    /// The same, but each copy starts some parts after the one before, so that not all need the divider at once.
    Staggered,
    /// One copy after another, so that fewer values are live at once.
    InTurn,
}

/// The last staggered copy starts one `STAGGER`th of the parts after the first. If it started later, the copies would
/// not fit the processor's reorder window.
const STAGGER: usize = 3;

/// The most copies of a body in a loop without folds.
const MOST_COPIES: usize = 8;
/// Most instructions of all staggered copies: writing more takes longer than many a kernel runs.
const MOST_STAGGERED: usize = 512;

/// A body of more instructions has much to do beside a division: all copies would then need the divider at once.
const LONG_BESIDE_DIVISION: usize = 48;

/// Instructions that wait for their operands in recent processors, roughly.
const WINDOW: usize = 64;

/// How many copies of a body keep the processor busy, and in which order their instructions are.
///
/// Most of the time the instructions of a body wait for each other, and the processor looks ahead by [`WINDOW`] of
/// them. So as many independent copies have to be in sight as latency exceeds throughput. Short bodies are copied to
/// save loop overhead. The level limits how many values may be live.
pub(super) fn copies(body: &BasicBlock, level: Level) -> (usize, Order) {
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
    if n < LONG_BESIDE_DIVISION || !body.insts.iter().any(|inst| inst.op.is_division()) {
        return (usual, Order::Interleaved);
    }
    // Of staggered copies the processor sees fewer, and fewer values are live at once.
    let more = (2 * busy).min(MOST_COPIES).min(3 * fit / 2).min(MOST_STAGGERED / n);
    (usual.max(more), Order::Staggered)
}

/// A body as its first copy has it.
#[derive(Debug)]
pub(super) struct Single {
    /// The code that all copies share, followed by the body.
    pub(super) block: BasicBlock,
    /// Registers up to this number are shared by all copies.
    pub(super) n_shared: usize,
    /// Where the parts of the body begin. The instructions of a part stay together.
    pub(super) parts: Vec<usize>,
    /// What the other copies have instead of the first one's masks and partial results.
    pub(super) own: Vec<Own>,
}

/// What a copy has instead of the first one's masks and partial results, in pairs.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Masks of active lanes.
    pub(super) masks: Vec<(V, V)>,
    /// Locations of partial results.
    pub(super) partials: Vec<(PartialLocation, PartialLocation)>,
}

impl Own {
    /// The location of the partial result that the first copy has at `first`.
    fn place(&self, first: PartialLocation) -> PartialLocation {
        self.partials.iter().find(|partial| partial.0 == first).map_or(first, |partial| partial.1)
    }
}

impl Single {
    /// A block of `n` copies, without instructions whose results are unused.
    pub(super) fn copied(&self, n: usize, order: Order) -> BasicBlock {
        let (insts, parts) = self.needed(n);
        let mut copies = Copies::new(self, n, n * insts.len());
        copies.put(&insts[..parts[0]], 0);
        // Parts by which each copy starts after the one before.
        let delay = match order {
            Order::Interleaved => 0,
            Order::Staggered => parts.len() / (STAGGER * n),
            Order::InTurn => parts.len(),
        };
        for step in 0..parts.len() + (n - 1) * delay {
            for copy in 0..n {
                if let Some(&from) = step.checked_sub(copy * delay).and_then(|part| parts.get(part)) {
                    let end = parts.get(step - copy * delay + 1).copied().unwrap_or(insts.len());
                    copies.put(&insts[from..end], copy);
                }
            }
        }
        copies.block
    }

    /// The instructions whose results are used, and where parts begin among them. With several copies, all shared
    /// instructions are kept.
    fn needed(&self, n: usize) -> (Vec<Inst>, Vec<usize>) {
        let needed = self.block.is_needed();
        let (mut insts, mut parts) = (Vec::with_capacity(needed.len()), Vec::with_capacity(self.parts.len()));
        let mut begins = self.parts.iter().copied().peekable();
        for (at, inst) in self.block.insts.iter().enumerate() {
            while begins.next_if_eq(&at).is_some() {
                parts.push(insts.len());
            }
            if needed[at] || parts.is_empty() && n > 1 {
                insts.push(*inst);
            }
        }
        parts.extend(begins.map(|_| insts.len()));
        (insts, parts)
    }

    /// The origin of another copy's value, for a value of the first copy.
    fn origin(&self, origin: Origin, copy: usize) -> Origin {
        match origin {
            Origin::Register(register) => match self.place(PartialLocation::Register(register), copy) {
                PartialLocation::Register(register) => Origin::Register(register),
                PartialLocation::Frame(_) => {
                    unreachable!("partial results of a pass are all in registers, or all in the frame")
                }
            },
            Origin::Memory(address) => Origin::Memory(Address { disp: self.disp(address, copy), ..address }),
            Origin::Block | Origin::Constant(_) | Origin::Element(_) | Origin::Whole(_) | Origin::Lanes(_) => origin,
        }
    }

    /// The offset in an address of another copy, for an address of the first copy.
    fn disp(&self, address: Address, copy: usize) -> i32 {
        match (address.start, address.scale) {
            (Start::Frame, _) => match self.place(PartialLocation::Frame(address.disp), copy) {
                PartialLocation::Frame(at) => at,
                PartialLocation::Register(_) => {
                    unreachable!("partial results of a pass are all in registers, or all in the frame")
                }
            },
            (Start::Row(_) | Start::Placed, Some(scale)) => address.disp + (self.elements(copy) << scale),
            (Start::Row(_) | Start::Placed, None) => address.disp,
        }
    }

    fn place(&self, first: PartialLocation, copy: usize) -> PartialLocation {
        self.own(copy).map_or(first, |own| own.place(first))
    }

    /// Elements of the copies before this one.
    fn elements(&self, copy: usize) -> i32 {
        (copy * self.block.level.lanes()) as i32
    }

    fn own(&self, copy: usize) -> Option<&Own> {
        copy.checked_sub(1).and_then(|copy| self.own.get(copy))
    }
}

/// The block of all copies, under construction.
struct Copies<'a> {
    single: &'a Single,
    block: BasicBlock,
    /// Per register of the first copy, its number, and the step to that of the next copy: 0 if they share it.
    registers: Vec<(u32, u32)>,
}

impl<'a> Copies<'a> {
    fn new(single: &'a Single, n: usize, n_insts: usize) -> Copies<'a> {
        let infos = &single.block.infos;
        let mut block = BasicBlock::new(single.block.level, n_insts);
        block.infos.reserve_exact(n * infos.len());
        let mut copies = Copies { single, block, registers: Vec::with_capacity(infos.len()) };
        for (index, &info) in infos.iter().enumerate() {
            let number = copies.block.infos.len() as u32;
            copies.block.infos.push(info);
            let is_own = matches!(info.origin, Origin::Block | Origin::Memory(_) | Origin::Register(_));
            let is_own = is_own && index >= single.n_shared;
            copies.registers.push((number, is_own as u32));
            if is_own {
                for copy in 1..n {
                    let origin = single.origin(info.origin, copy);
                    copies.block.infos.push(Info { origin, ..info });
                }
            }
        }
        copies
    }

    /// Adds instructions of the body for one copy.
    fn put(&mut self, insts: &[Inst], copy: usize) {
        let Copies { single, block, registers } = self;
        let masks = single.own(copy).map_or(&[][..], |own| &own.masks);
        let of = |v: &mut V| {
            let first = masks.iter().find(|mask| mask.0 == *v).map_or(*v, |mask| mask.1);
            let (number, step) = registers[first.index()];
            *v = V(number + copy as u32 * step);
        };
        let start = block.insts.len();
        block.insts.extend_from_slice(insts);
        // Copying whole instructions and then changing them is faster than writing them field by field.
        for inst in &mut block.insts[start..] {
            inst.args.iter_mut().for_each(of);
            inst.result.iter_mut().for_each(of);
            inst.lanes.iter_mut().for_each(|lanes| of(&mut lanes.mask));
            if let Some(address) = &mut inst.address {
                address.disp = single.disp(*address, copy);
            }
            match &mut inst.op {
                Op::Place { ahead, .. } | Op::Copy { those: Those::Left(ahead), .. } => *ahead += single.elements(copy),
                Op::Machine(_) | Op::Fma { .. } | Op::Unless { .. } | Op::Copy { those: Those::First, .. } => {}
            }
        }
    }
}
