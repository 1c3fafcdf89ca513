//! Chooses the form of an fma: each form overwrites another operand.

use super::code::{Class, Inst, Minus, NEVER, Origin, V};
use super::encoder::Rm;
use super::opcode;
use super::registers::Allocator;

/// The forms that subtract nothing, the addend, the product, both.
type Forms = [&'static opcode::Pair; 4];
const FORMS_231: Forms = [&opcode::FMADD_231, &opcode::FMSUB_231, &opcode::FNMADD_231, &opcode::FNMSUB_231];
const FORMS_213: Forms = [&opcode::FMADD_213, &opcode::FMSUB_213, &opcode::FNMADD_213, &opcode::FNMSUB_213];
const FORMS_132: Forms = [&opcode::FMADD_132, &opcode::FMSUB_132, &opcode::FNMADD_132, &opcode::FNMSUB_132];

impl Allocator<'_> {
    /// Encodes an fma. Each of the three forms overwrites another operand; the one whose operand is dead afterwards is
    /// chosen.
    pub(super) fn fma(&mut self, at: usize, inst: &Inst, minus: Minus, wide: bool) {
        let mut busy = inst.reads();
        let [a, b, c] = inst.args[..] else { unreachable!("an fma has three operands") };
        let ends = |this: &Self, v: V| {
            let once = || inst.args.iter().filter(|&&arg| arg == v).count() == 1;
            let own = || matches!(this.block.info(v).origin, Origin::Block | Origin::Memory(_));
            this.places[v.index()].is_some() && this.later(at, inst, v) == NEVER && own() && once()
        };
        let in_memory = |this: &Self, v: V| {
            this.places[v.index()].is_none() && (this.is_reloadable(v) || this.spilled[v.index()].is_some())
        };
        let pick = |forms: &Forms| &forms[2 * minus.product as usize + minus.addend as usize][wide as usize];
        // (opcode, overwritten, vvvv, rm)
        let (opcode, over, second, third) = if ends(self, c) {
            let (x, y) = if in_memory(self, a) { (b, a) } else { (a, b) };
            (pick(&FORMS_231), c, x, y)
        } else {
            let first_ends = ends(self, a) || (!ends(self, b) && in_memory(self, a));
            let (x, y) = if first_ends { (a, b) } else { (b, a) };
            if in_memory(self, y) && !in_memory(self, c) {
                (pick(&FORMS_132), x, c, y)
            } else {
                (pick(&FORMS_213), x, y, c)
            }
        };
        let overwrites = ends(self, over);
        let again = self.later(at, inst, third) != NEVER;
        let second_register = self.bring(second, &busy);
        let result = inst.result.expect("an fma has a result");
        if overwrites {
            let rm = self.operand(third, again, wide, &busy);
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
        // The result's register already holds an operand, so it must not be evicted for the last one.
        busy.push(result);
        let rm = self.operand(third, again, wide, &busy);
        self.vector(opcode, inst.width, register, second_register, rm);
        self.pass(at, inst);
    }
}
