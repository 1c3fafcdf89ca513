//! Several copies of a body in one block, made of a body that was written once: choosing instructions takes longer than
//! repeating them.
//!
//! Every copy has registers of its own for what its instructions make, works on elements farther on, and has its own
//! lanes that count and its own partial results. Values of all lanes are the same for all.

use super::code::{Address, Block, Home, Info, Inst, Op, Start, Those, V};
use super::folds::PartialLocation;

/// How the copies of a body are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Part by part: what one copy waits for the others fill.
    Interleaved,
    /// The same, but each copy is some parts behind the one before: not all of them want the divider at once.
    Staggered,
    /// One after another, so that fewer values are alive at once.
    InTurn,
}

/// The last of staggered copies begins one in so many of the parts behind the first: farther apart, the machine would not see all
/// of them at once.
const STAGGER: usize = 3;

/// A body as its first copy has it.
#[derive(Debug)]
pub(super) struct Single {
    /// What all copies share, and behind it the body.
    pub(super) block: Block,
    /// Registers that all copies share, however they are made.
    pub(super) n_shared: usize,
    /// Where the parts of the body begin, whose instructions stay together.
    pub(super) parts: Vec<usize>,
    /// What the other copies have of their own.
    pub(super) own: Vec<Own>,
}

/// What a copy has where the first has something else.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Masks of lanes that count.
    pub(super) masks: Vec<(V, V)>,
    /// Places of partial results.
    pub(super) partials: Vec<(PartialLocation, PartialLocation)>,
}

impl Own {
    /// Where a partial result is that the first copy has at `first`.
    fn place(&self, first: PartialLocation) -> PartialLocation {
        self.partials.iter().find(|partial| partial.0 == first).map_or(first, |partial| partial.1)
    }
}

impl Single {
    /// A block of `n` copies, without instructions whose results nobody reads.
    pub(super) fn copied(&self, n: usize, order: Order) -> Block {
        let (insts, parts) = self.needed(n);
        let mut copies = Copies::new(self, n, n * insts.len());
        copies.put(&insts[..parts[0]], 0);
        // Parts by which each copy is behind the one before.
        let behind = match order {
            Order::Interleaved => 0,
            Order::Staggered => parts.len() / (STAGGER * n),
            Order::InTurn => parts.len(),
        };
        for step in 0..parts.len() + (n - 1) * behind {
            for copy in 0..n {
                if let Some(&from) = step.checked_sub(copy * behind).and_then(|part| parts.get(part)) {
                    let end = parts.get(step - copy * behind + 1).copied().unwrap_or(insts.len());
                    copies.put(&insts[from..end], copy);
                }
            }
        }
        copies.block
    }

    /// The instructions that somebody reads, and where parts begin among them. Of those in front of the body, several
    /// copies need all.
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

    /// Where a value of the first copy comes from in another.
    fn home(&self, home: Home, copy: usize) -> Home {
        match home {
            Home::Register(register) => match self.place(PartialLocation::Register(register), copy) {
                PartialLocation::Register(register) => Home::Register(register),
                PartialLocation::Frame(_) => {
                    unreachable!("partial results of a pass are all in registers, or all in the frame")
                }
            },
            Home::Memory(address) => Home::Memory(Address { disp: self.disp(address, copy), ..address }),
            Home::Block | Home::Constant(_) | Home::Element(_) | Home::Whole(_) | Home::Lanes(_) => home,
        }
    }

    /// The distance in the address that a copy has for one of the first.
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

    /// Elements before those of a copy.
    fn elements(&self, copy: usize) -> i32 {
        (copy * self.block.level.lanes()) as i32
    }

    fn own(&self, copy: usize) -> Option<&Own> {
        copy.checked_sub(1).and_then(|copy| self.own.get(copy))
    }
}

/// The block of all copies while it is written.
struct Copies<'a> {
    single: &'a Single,
    block: Block,
    /// Per register of the first copy its number, and how much greater that of the next copy is: 0 if they share it.
    registers: Vec<(u32, u32)>,
}

impl<'a> Copies<'a> {
    fn new(single: &'a Single, n: usize, n_insts: usize) -> Copies<'a> {
        let infos = &single.block.infos;
        let mut block = Block::new(single.block.level, n_insts);
        block.infos.reserve_exact(n * infos.len());
        let mut copies = Copies { single, block, registers: Vec::with_capacity(infos.len()) };
        for (index, &info) in infos.iter().enumerate() {
            let number = copies.block.infos.len() as u32;
            copies.block.infos.push(info);
            let is_own = matches!(info.home, Home::Block | Home::Memory(_) | Home::Register(_));
            let is_own = is_own && index >= single.n_shared;
            copies.registers.push((number, is_own as u32));
            if is_own {
                for copy in 1..n {
                    let home = single.home(info.home, copy);
                    copies.block.infos.push(Info { home, ..info });
                }
            }
        }
        copies
    }

    /// Adds instructions of the body as a copy has them.
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
        // Each is copied whole and then changed: what was written in pieces is slow to copy.
        for inst in &mut block.insts[start..] {
            inst.args.iter_mut().for_each(of);
            inst.result.iter_mut().for_each(of);
            inst.lanes.iter_mut().for_each(|lanes| of(&mut lanes.mask));
            if let Some(address) = &mut inst.address {
                address.disp = single.disp(*address, copy);
            }
            match &mut inst.op {
                Op::Place { ahead, .. } | Op::Copy { those: Those::Left(ahead), .. } => *ahead += single.elements(copy),
                Op::Machine(_) | Op::Fma { .. } | Op::Copy { those: Those::First, .. } => {}
            }
        }
    }
}
