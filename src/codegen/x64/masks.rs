//! Bools at both levels: comparisons, logic, and selection.
//!
//! A bool is a mask register, or in AVX2 a vector of all-ones or zero 32-bit lanes. A value of 64-bit lanes has two
//! parts. Each takes its own part of a mask: the lower or upper bits, or half the lanes widened. Parts that a mask was
//! made of are remembered.

use super::code::{Address, Class, Inst, Lanes, Op, Origin, Start, V};
use super::encoder::{Constant, Label, Width};
use super::level::Level;
use super::opcode;
use super::register_list::RegisterList;
use super::select::{BlockShape, Select, Val, is_wide};
use crate::ir::scalar::{Prim, Ty};

/// Comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    Eq,
    Ne,
    Lt,
    Le,
    /// Less, or one operand is a NaN.
    LtOrNan,
    Unordered,
}

impl Relation {
    /// The predicate for floats. A NaN makes all but `Ne`, `LtOrNan` and `Unordered` false, without a floating-point
    /// exception.
    const fn float(self) -> u8 {
        match self {
            Relation::Eq => 0,
            Relation::Ne => 4,
            Relation::Lt => 17,
            Relation::Le => 18,
            Relation::LtOrNan => 25,
            Relation::Unordered => 3,
        }
    }

    const fn int(self) -> u8 {
        match self {
            Relation::Eq => 0,
            Relation::Ne => 4,
            Relation::Lt | Relation::LtOrNan => 1,
            Relation::Le => 2,
            // No integers are unordered; 3 is "never".
            Relation::Unordered => 3,
        }
    }
}

impl Select<'_> {
    /// A new register for a mask.
    pub(super) fn mask_register(&mut self) -> V {
        let class = match self.level() {
            Level::Avx2 => Class::Vector,
            Level::Avx512 => Class::Mask,
        };
        self.block.register(class, false, Origin::Block)
    }

    /// The mask that an instruction makes.
    pub(super) fn mask_op(&mut self, opcode: &'static opcode::Opcode, args: &[V], imm: Option<u8>) -> V {
        let result = self.mask_register();
        self.push(opcode, Some(result), args, imm);
        result
    }

    /// A mask of all or no lanes.
    pub(super) fn all_lanes(&mut self, all: bool) -> V {
        if self.level() == Level::Avx2 {
            return self.word(if all { u32::MAX } else { 0 });
        }
        let existing = self.lanes[all as usize];
        let v = existing.unwrap_or_else(|| self.block.register(Class::Mask, false, Origin::Lanes(all)));
        self.lanes[all as usize] = Some(v);
        v
    }

    /// Leaves the block unless a mask has all lanes.
    pub(super) fn leave_unless(&mut self, mask: V, exit: Label) {
        let (op, width, args) = (Op::Unless { exit }, self.width(), RegisterList::from([mask]));
        self.push_inst(Inst { op, width, result: None, args, lanes: None, address: None, imm: None });
    }

    /// A uniform mask, from its slot in the frame.
    pub(super) fn row_mask(&mut self, slot: i32) -> V {
        match self.level() {
            Level::Avx2 => {
                let mask = self.block.register(Class::Vector, false, Origin::Element(slot));
                let wide = self.block.register(Class::Vector, true, Origin::Element(slot));
                self.mask_parts.insert(mask, Val::from([wide, wide]));
                mask
            }
            Level::Avx512 => {
                let mask = self.block.register(Class::Mask, false, Origin::Whole(slot));
                // The mask is uniform, so its upper half equals itself.
                self.mask_parts.insert(mask, Val::from([mask, mask]));
                mask
            }
        }
    }

    /// The mask of the first lane; for AVX-512 it is at the offset `one` in the frame.
    pub(super) fn first_lane(&mut self, one: i32) -> V {
        match self.level() {
            Level::Avx2 => self.shared(Constant::Vector([u32::MAX as u64, 0, 0, 0, 0, 0, 0, 0]), false),
            Level::Avx512 => self.block.register(Class::Mask, false, Origin::Whole(one)),
        }
    }

    /// The masks of the remaining lanes of each copy. At `tail` in the frame are their bits, or for AVX2 their number.
    pub(super) fn tail_masks(&mut self, copies: usize, tail: i32) -> Vec<V> {
        let n_lanes = self.level().lanes();
        match self.level() {
            Level::Avx2 => {
                let address = Address { start: Start::Frame, scale: None, disp: tail };
                let left = self.load_as(&opcode::BROADCAST[0], Width::Y, address, None, false);
                let numbers = |copy: usize, pair: usize| {
                    let number = (copy * n_lanes + 2 * pair) as u64;
                    if 2 * pair < n_lanes { number | (number + 1) << 32 } else { 0 }
                };
                let mask = |copy: usize| {
                    let numbers = Constant::Vector(std::array::from_fn(|pair| numbers(copy, pair)));
                    let numbers = self.shared(numbers, false);
                    self.mask_op(&opcode::GT_I[0], &[left, numbers], None)
                };
                (0..copies).map(mask).collect()
            }
            Level::Avx512 => {
                let mask = |copy: usize| {
                    let at = tail + (copy * n_lanes / 8) as i32;
                    let mask = self.block.register(Class::Mask, false, Origin::Whole(at));
                    let upper = self.block.register(Class::Mask, false, Origin::Whole(at + 1));
                    self.mask_parts.insert(mask, Val::from([mask, upper]));
                    mask
                };
                (0..copies).map(mask).collect()
            }
        }
    }

    /// A mask with those of its parts that are remembered.
    pub(super) fn with_parts(&self, mask: V) -> Vec<V> {
        [mask].into_iter().chain(self.mask_parts.get(&mask).into_iter().flatten().copied()).collect()
    }

    /// The part of a mask for a part of a value; `wide` says whether its lanes have 64 bits.
    pub(super) fn mask_part(&mut self, mask: V, part: usize, wide: bool) -> V {
        let origin = self.block.info(mask).origin;
        match (self.level(), origin) {
            (Level::Avx2, _) if !wide => return mask,
            (Level::Avx2, Origin::Constant(number)) if self.encoder.is_uniform(number) => {
                let bits = if self.encoder.constant_bits(number) == 0 { 0 } else { u64::MAX };
                return self.bits(true, bits);
            }
            (Level::Avx512, Origin::Lanes(_)) => return mask,
            (Level::Avx512, _) if part == 0 => return mask,
            (Level::Avx2 | Level::Avx512, _) => {}
        }
        if let Some(parts) = self.mask_parts.get(&mask) {
            return parts[part];
        }
        let parts: Val = match self.level() {
            Level::Avx512 => Val::from([mask, self.mask_op(&opcode::MASK_SHIFT_RIGHT, &[mask], Some(8))]),
            Level::Avx2 => {
                let halves = self.halves(mask);
                halves.iter().map(|&half| self.widened(&opcode::I32_TO_I64, half)).collect()
            }
        };
        self.mask_parts.insert(mask, parts);
        parts[part]
    }

    /// Joins the masks of the parts of a value.
    fn join_masks(&mut self, masks: Val, ty: Ty) -> V {
        match (self.level(), &masks[..]) {
            (Level::Avx2, &[mask]) if !is_wide(ty) => mask,
            (Level::Avx2, _) => {
                let mask = self.packed(&masks);
                self.mask_parts.insert(mask, masks);
                mask
            }
            (Level::Avx512, &[mask]) => mask,
            (Level::Avx512, &[low, high]) => self.mask_op(&opcode::MASK_JOIN, &[high, low], None),
            (Level::Avx512, _) => unreachable!("a value has one part or two"),
        }
    }

    /// The lower halves of the 64-bit lanes of a value, packed.
    pub(super) fn packed(&mut self, parts: &Val) -> V {
        let (low, high) = (parts[0], *parts.last().expect("a value has a part"));
        let pairs = self.vector(false);
        self.push(&opcode::SHUFFLE_TWO, Some(pairs), &[low, high], Some(0x88));
        if self.shape == BlockShape::Row {
            return pairs;
        }
        let result = self.vector(false);
        self.push(&opcode::PERMUTE, Some(result), &[pairs], Some(0xd8));
        result
    }

    /// The mask of the lanes in which the relation holds.
    pub(super) fn compare(&mut self, relation: Relation, a: &Val, b: &Val, ty: Ty) -> Val {
        if ty == Ty::Bool {
            let differ = self.logic(Prim::Xor, a[0], b[0]);
            return match relation {
                Relation::Ne => Val::from([differ]),
                Relation::Eq => Val::from([self.not(differ)]),
                Relation::Lt | Relation::Le | Relation::LtOrNan | Relation::Unordered => {
                    unreachable!("bools have no order")
                }
            };
        }
        let masks: Val = a.iter().zip(b).map(|(&a, &b)| self.compared(relation, a, b, ty)).collect();
        Val::from([self.join_masks(masks, ty)])
    }

    fn compared(&mut self, relation: Relation, a: V, b: V, ty: Ty) -> V {
        let wide = is_wide(ty) as usize;
        match (ty.is_float(), self.level()) {
            (true, _) => self.lanes_op(&opcode::CMP_F[wide], &[a, b], Some(relation.float())),
            (false, Level::Avx512) => self.mask_op(&opcode::CMP_I[wide], &[a, b], Some(relation.int())),
            (false, Level::Avx2) => {
                let (equal, greater) = (&opcode::EQ_I[wide], &opcode::GT_I[wide]);
                let (opcode, args, negated) = match relation {
                    Relation::Eq => (equal, [a, b], false),
                    Relation::Ne => (equal, [a, b], true),
                    Relation::Lt | Relation::LtOrNan => (greater, [b, a], false),
                    Relation::Le => (greater, [a, b], true),
                    Relation::Unordered => unreachable!("no integer is unordered"),
                };
                let lanes = self.op(opcode, &args);
                if !negated {
                    return lanes;
                }
                let ones = self.bits(wide == 1, u64::MAX);
                self.op(&opcode::XOR[wide], &[lanes, ones])
            }
        }
    }

    /// The mask that an instruction on lanes of its own width makes.
    fn lanes_op(&mut self, opcode: &'static opcode::Opcode, args: &[V], imm: Option<u8>) -> V {
        match self.level() {
            Level::Avx2 => self.op_imm(opcode, args, imm),
            Level::Avx512 => self.mask_op(opcode, args, imm),
        }
    }

    /// The mask of the NaN lanes of a float.
    pub(super) fn is_nan(&mut self, a: &Val, ty: Ty) -> V {
        self.compare(Relation::Unordered, a, a, ty)[0]
    }

    /// `And`, `Or` or `Xor` of two masks.
    pub(super) fn logic(&mut self, prim: Prim, a: V, b: V) -> V {
        let (of_masks, of_lanes) = match prim {
            Prim::And => (&opcode::MASK_AND, &opcode::AND[0]),
            Prim::Or => (&opcode::MASK_OR, &opcode::OR[0]),
            other => {
                debug_assert_eq!(other, Prim::Xor);
                (&opcode::MASK_XOR, &opcode::XOR[0])
            }
        };
        match self.level() {
            Level::Avx2 => self.op(of_lanes, &[a, b]),
            Level::Avx512 => self.mask_op(of_masks, &[a, b], None),
        }
    }

    /// The negation of a mask.
    pub(super) fn not(&mut self, mask: V) -> V {
        match self.level() {
            Level::Avx2 => {
                let ones = self.all_lanes(true);
                self.op(&opcode::XOR[0], &[mask, ones])
            }
            Level::Avx512 => self.mask_op(&opcode::MASK_NOT, &[mask], None),
        }
    }

    /// `yes` in the lanes of the mask, `no` in the others.
    pub(super) fn blend(&mut self, mask: V, yes: V, no: V, part: usize) -> V {
        let info = self.block.info(yes);
        if info.class == Class::Mask {
            return self.blend_masks(mask, yes, no);
        }
        let mask = self.mask_part(mask, part, info.wide);
        let result = self.vector(info.wide);
        let (op, args, lanes): (_, RegisterList<3>, _) = match self.level() {
            Level::Avx2 => (&opcode::PICK, RegisterList::from([no, yes, mask]), None),
            Level::Avx512 => {
                (&opcode::BLEND[info.wide as usize], RegisterList::from([no, yes]), Some(Lanes { mask, zero: false }))
            }
        };
        let (op, width) = (Op::Machine(op), self.width());
        self.push_inst(Inst { op, width, result: Some(result), args, lanes, address: None, imm: None });
        result
    }

    fn blend_masks(&mut self, mask: V, yes: V, no: V) -> V {
        let yes = self.logic(Prim::And, mask, yes);
        let others = self.not(mask);
        let no = self.logic(Prim::And, others, no);
        self.logic(Prim::Or, yes, no)
    }

    /// A part of a value in the lanes of the mask, zero in the others.
    pub(super) fn only(&mut self, mask: V, part: usize, v: V) -> V {
        let wide = self.block.info(v).wide;
        let mask = self.mask_part(mask, part, wide);
        if self.level() == Level::Avx2 {
            return self.op(&opcode::AND[wide as usize], &[mask, v]);
        }
        let result = self.vector(wide);
        let lanes = Some(Lanes { mask, zero: true });
        let (op, width, args) = (Op::Machine(&opcode::MOVE[wide as usize]), self.width(), RegisterList::from([v]));
        self.push_inst(Inst { op, width, result: Some(result), args, lanes, address: None, imm: None });
        result
    }

    /// A mask as all-ones or zero 32-bit lanes.
    pub(super) fn lanes_of(&mut self, mask: V) -> V {
        match self.level() {
            Level::Avx2 => mask,
            Level::Avx512 => self.op(&opcode::MASK_TO_LANES, &[mask]),
        }
    }
}
