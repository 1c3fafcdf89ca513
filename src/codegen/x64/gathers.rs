//! Gathers: loads at an index that the kernel computes, with a check of each index.
//!
//! There are two forms. Where the index is the same for a whole row and the elements are neighbours, as in an embedding,
//! the index moves the row's address, once per row. Elsewhere the lanes are gathered: offsets are indices times the
//! stride of the gathered dimension. A lane whose index is out of range is not read, and its index is stored in the
//! frame. [`crate::codegen::native::gathers`] says what becomes of it.

use super::body::FunctionContext;
use super::code::{Address, Class, Inst, Lanes, Op, Origin, Start, V};
use super::elements::PLACED;
use super::encoder::*;
use super::frame::Frame;
use super::function::Writer;
use super::level::Level;
use super::masks::Relation;
use super::opcode;
use super::register_list::RegisterList;
use super::select::{BlockShape, Select, Val};
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

/// The elements of an operand at indices. Lanes outside the mask, and those with an index out of range, read nothing.
pub(super) fn gather(
    function: &FunctionContext<'_>,
    select: &mut Select<'_>,
    slot: usize,
    index: &Val,
    mask: Option<V>,
) -> Val {
    let dtype = function.kernel.operands[slot].dtype;
    let [size, stride] = function.gathers.dim(slot).map(|at| {
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
        let address = Address { start: Start::Frame, scale: None, disp: function.gathers.faults };
        select.store_as(&opcode::STORE[1], width, index, address, Some(mask), None);
    }
    let offsets = select.prim(Prim::Mul, &[*index, stride], Ty::I64);
    let moves = select.shape != BlockShape::Row && function.motions[slot] != Motion::Uniform;
    let offsets: Val = match function.distances[slot].filter(|_| moves) {
        None => offsets,
        Some(distances) => (offsets.iter().enumerate())
            .map(|(part, &offset)| {
                let distance = select.distances(distances, part);
                select.op(&opcode::ADD_I[1], &[offset, distance])
            })
            .collect(),
    };
    super::body::place(select, slot, 0);
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

impl Writer<'_> {
    /// Copies sizes and strides of gathered dimensions to the frame, and clears the fault words.
    pub(super) fn load_gathers(&mut self) {
        let n_accesses = self.function.motions.len();
        for nth in 0..self.function.gathers.slots.len() {
            for (word, at) in self.function.gathers.dims[nth].into_iter().enumerate() {
                self.encoder.int(Int::Mov, R11, self.argument(argument::gather(n_accesses, nth) + word));
                self.encoder.int(Int::Store, R11, self.frame_at(at));
            }
        }
        if !self.function.gathers.slots.is_empty() {
            self.encoder.set(R11, 0);
            for word in 0..argument::FAULT_WORDS {
                self.encoder.int(Int::Store, R11, self.frame_at(self.function.gathers.faults + 8 * word as i32));
            }
        }
    }

    /// Copies the fault words to the arguments.
    pub(super) fn report_faults(&mut self) {
        let (n_accesses, n_gathers) = (self.function.motions.len(), self.function.gathers.slots.len());
        if n_gathers == 0 {
            return;
        }
        self.encoder.int(Int::Mov, RDI, self.frame_at(self.arguments_at));
        for word in 0..argument::FAULT_WORDS {
            self.encoder.int(Int::Mov, R11, self.frame_at(self.function.gathers.faults + 8 * word as i32));
            self.encoder.int(Int::Store, R11, self.argument(argument::gather(n_accesses, n_gathers) + word));
        }
    }

    /// Computes the row addresses of the pass's loads whose index is that of the row.
    pub(super) fn place_gathered_rows(&mut self, pass: &Pass) {
        for &id in &pass.body {
            let Some(row) = self.function.gathers.row(id) else { continue };
            let node = &self.function.flat.nodes[id];
            let slot = node.op.operand().expect("a gather has an operand");
            let index = node.args[0];
            match (self.function.flat.as_lit(index), self.function.slots[index]) {
                (Some(lit), _) => self.encoder.set(R11, lit.bits),
                (None, Some(at)) => self.encoder.int(Int::Mov, R11, self.frame_at(at)),
                (None, None) => unreachable!("an index of the row has a slot"),
            }
            let [size, stride] = self.function.gathers.dim(slot);
            let (bad, done) = (self.encoder.label(), self.encoder.label());
            let good = self.encoder.label();
            self.encoder.compare(R11, 0);
            self.encoder.jump_if(ConditionCode::Less, bad);
            self.encoder.int(Int::Cmp, R11, self.frame_at(size));
            self.encoder.jump_if(ConditionCode::Less, good);
            self.encoder.place(bad);
            self.encoder.int(Int::Store, R11, self.frame_at(self.function.gathers.faults));
            // The first row is read instead; the launch fails.
            self.encoder.set(R11, 0);
            self.encoder.jump(done);
            self.encoder.place(good);
            self.encoder.int(Int::Imul, R11, self.frame_at(stride));
            self.encoder.place(done);
            self.encoder.int(Int::Add, R11, self.frame_at(self.row_offsets[slot]));
            self.encoder.int(Int::Store, R11, self.frame_at(self.row_offsets[row]));
        }
    }
}
