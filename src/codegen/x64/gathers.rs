//! Gathers: loads at an index that the kernel computes, with a check of each index.
//!
//! There are two forms. Where the index is the same for a whole row of neighbours, as in an embedding, the index moves
//! the row's address, once per row. Elsewhere the lanes are gathered: offsets are indices times the stride of the
//! gathered dimension. A lane whose index is out of range is not read, and its index is stored in the
//! frame. [`crate::codegen::native::gathers`] says what becomes of it.

use super::code::{Address, Class, Inst, Lanes, Op, Origin, Start, V};
use super::elements::PLACED;
use super::encoder::*;
use super::frame::Frame;
use super::level::Level;
use super::masks::Relation;
use super::opcode;
use super::register_list::RegisterList;
use super::select::{Select, Val};
use crate::codegen::geometry::Class as Motion;
use crate::codegen::kernel::Level as Loop;
use crate::codegen::native::argument;
use crate::codegen::native::flat::{Flat, FlatNodeId, FlatOp};
use crate::codegen::native::passes::Pass;
use crate::ir::scalar::{Lit, Prim, Ty};
use crate::ir::{DType, SideTable};

/// Where the function of a kernel keeps what its gathers need, as offsets in the frame.
#[derive(Debug, Default)]
pub(super) struct Gathers {
    /// The operands that are gathered, in order.
    pub(super) slots: Vec<usize>,
    /// Per operand that is gathered, its size and stride along the gathered dimension.
    dims: Vec<[i32; 2]>,
    /// The last index that was out of range, per lane.
    faults: i32,
    /// Per load whose index is that of a row, the number of its row address.
    rows: SideTable<FlatNodeId, Option<usize>>,
    /// How many there are.
    pub(super) n_rows: usize,
}

impl Gathers {
    /// The gathers of a kernel. Row addresses are numbered from `first_row` on.
    pub(super) fn new(
        slots: Vec<usize>,
        motions: &[Motion],
        flat: &Flat,
        first_row: usize,
        frame: &mut Frame,
    ) -> Gathers {
        let mut gathers = Gathers { rows: SideTable::with_len(flat.nodes.len(), || None), ..Gathers::default() };
        if slots.is_empty() {
            return gathers;
        }
        gathers.faults = frame.take(8 * argument::FAULT_WORDS as i32, 64);
        gathers.dims = slots.iter().map(|_| [frame.take(8, 8), frame.take(8, 8)]).collect();
        for (id, node) in flat.nodes.iter() {
            let (FlatOp::Load(slot), [index]) = (node.op, &node.args[..]) else { continue };
            let is_row = node.level == Loop::Full && flat.nodes[*index].uniform;
            if is_row && motions[slot as usize] == Motion::Contiguous {
                gathers.rows[id] = Some(first_row + gathers.n_rows);
                gathers.n_rows += 1;
            }
        }
        gathers.slots = slots;
        gathers
    }

    /// The number of the row address of a load, if its index is that of a row.
    pub(super) fn row(&self, id: FlatNodeId) -> Option<usize> {
        self.rows[id]
    }

    /// The offsets in the frame of size and stride of an operand's gathered dimension.
    fn dim(&self, slot: usize) -> [i32; 2] {
        let at = self.slots.iter().position(|&gathered| gathered == slot).expect("the operand is gathered");
        self.dims[at]
    }
}

/// An operand that is gathered lane by lane.
pub(super) struct Source {
    /// Its number.
    pub(super) slot: usize,
    pub(super) dtype: DType,
    /// The offset in the frame of its lane distances, if lanes read different elements at one index.
    pub(super) distances: Option<i32>,
}

/// The elements of an operand at indices. Lanes outside the mask, and those with an index out of range, read nothing.
/// `place` computes the address of the operand at this position.
pub(super) fn gather(
    gathers: &Gathers,
    select: &mut Select<'_>,
    source: &Source,
    index: &Val,
    mask: Option<V>,
    place: impl FnOnce(&mut Select<'_>),
) -> Val {
    let &Source { slot, dtype, distances } = source;
    let [size, stride] = gathers.dim(slot).map(|at| {
        let v = select.block.register(Class::Vector, true, Origin::Element(at));
        Val::repeated(v, index.len())
    });
    let zero = select.lit(Lit::i64(0));
    let zero = Val::repeated(zero[0], index.len());
    let not_below = select.compare(Relation::Le, &zero, index, Ty::I64)[0];
    let below = select.compare(Relation::Lt, index, &size, Ty::I64)[0];
    let inside = select.logic(Prim::And, not_below, below);
    let outside = select.not(inside);
    let (inside, outside) = match mask {
        Some(mask) => (select.logic(Prim::And, inside, mask), select.logic(Prim::And, outside, mask)),
        None => (inside, outside),
    };
    let width = select.width();
    for (part, &index) in index.iter().enumerate() {
        let mask = select.mask_part(outside, part, true);
        let address = Address { start: Start::Frame, scale: None, disp: gathers.faults };
        select.store_as(&opcode::STORE[1], width, index, address, Some(mask), None);
    }
    let offsets = select.prim(Prim::Mul, &[*index, stride], Ty::I64);
    let offsets: Val = match distances {
        None => offsets,
        Some(distances) => (offsets.iter().enumerate())
            .map(|(part, &offset)| {
                let distance = select.distances(distances, part);
                select.op(&opcode::ADD_I[1], &[offset, distance])
            })
            .collect(),
    };
    place(select);
    select.gather_at(dtype, &offsets, inside)
}

impl Select<'_> {
    /// Gathers elements at 64-bit offsets from the address that was computed last.
    fn gather_at(&mut self, dtype: DType, offsets: &Val, mask: V) -> Val {
        let wide = dtype.size() == 8;
        let parts: Val = offsets
            .iter()
            .enumerate()
            .map(|(part, &offset)| {
                let mask = self.fresh_mask(Some(mask), part, wide);
                let result = self.vector(wide);
                let (opcode, args, lanes) = match self.level() {
                    Level::Avx2 => (&opcode::GATHER_SOME, RegisterList::from([offset, mask]), None),
                    Level::Avx512 => (&opcode::GATHER, RegisterList::from([offset]), Some(Lanes { mask, zero: false })),
                };
                let (op, width, address) = (Op::Machine(&opcode[wide as usize]), self.width(), Some(PLACED));
                self.push_inst(Inst { op, width, result: Some(result), args, lanes, address, imm: None });
                result
            })
            .collect();
        if wide || parts.len() == 1 { parts } else { self.join_halves(&parts) }
    }
}

/// A word of the frame, and a word of the arguments.
fn frame(at: i32) -> Rm {
    Rm::Mem(Memory::at(RSP, at))
}

fn argument(word: usize) -> Rm {
    Rm::Mem(Memory::at(RDI, 8 * word as i32))
}

impl Gathers {
    /// Copies sizes and strides of gathered dimensions to the frame, and clears the fault words.
    pub(super) fn load(&self, encoder: &mut Encoder, n_accesses: usize) {
        for (nth, dim) in self.dims.iter().enumerate() {
            for (word, &at) in dim.iter().enumerate() {
                encoder.int(Int::Mov, R11, argument(argument::gather(n_accesses, nth) + word));
                encoder.int(Int::Store, R11, frame(at));
            }
        }
        if !self.slots.is_empty() {
            encoder.set(R11, 0);
            for word in 0..argument::FAULT_WORDS {
                encoder.int(Int::Store, R11, frame(self.faults + 8 * word as i32));
            }
        }
    }

    /// Copies the fault words to the arguments, whose address is at that offset in the frame.
    pub(super) fn report(&self, encoder: &mut Encoder, n_accesses: usize, arguments_at: i32) {
        if self.slots.is_empty() {
            return;
        }
        encoder.int(Int::Mov, RDI, frame(arguments_at));
        for word in 0..argument::FAULT_WORDS {
            encoder.int(Int::Mov, R11, frame(self.faults + 8 * word as i32));
            encoder.int(Int::Store, R11, argument(argument::gather(n_accesses, self.slots.len()) + word));
        }
    }

    /// Computes the row addresses of the pass's loads whose index is that of the row. `slots` has the row values, and
    /// `row_offsets` the row addresses, as offsets in the frame.
    pub(super) fn place_rows(
        &self,
        encoder: &mut Encoder,
        flat: &Flat,
        pass: &Pass,
        slots: &SideTable<FlatNodeId, Option<i32>>,
        row_offsets: &[i32],
    ) {
        for &id in &pass.body {
            let Some(row) = self.row(id) else { continue };
            let slot = flat.nodes[id].op.operand().expect("a gather has an operand");
            let index = flat.nodes[id].args[0];
            match (flat.as_lit(index), slots[index]) {
                (Some(lit), _) => encoder.set(R11, lit.bits),
                (None, Some(at)) => encoder.int(Int::Mov, R11, frame(at)),
                (None, None) => unreachable!("an index of the row has a slot"),
            }
            let [size, stride] = self.dim(slot);
            let (bad, good, done) = (encoder.label(), encoder.label(), encoder.label());
            encoder.compare(R11, 0);
            encoder.jump_if(ConditionCode::Less, bad);
            encoder.int(Int::Cmp, R11, frame(size));
            encoder.jump_if(ConditionCode::Less, good);
            encoder.place(bad);
            encoder.int(Int::Store, R11, frame(self.faults));
            // The first row is read instead; the launch fails.
            encoder.set(R11, 0);
            encoder.jump(done);
            encoder.place(good);
            encoder.int(Int::Imul, R11, frame(stride));
            encoder.place(done);
            encoder.int(Int::Add, R11, frame(row_offsets[slot]));
            encoder.int(Int::Store, R11, frame(row_offsets[row]));
        }
    }
}
