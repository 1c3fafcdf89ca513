//! A number times a power of two, where a kernel has it in the prims of `ir::scalar::math`.
//!
//! There `p 2^n` is a product with two powers whose exponents are halves of `n`, so that a result is rounded once also
//! where `2^n` is no number or the result is subnormal. The machine has one instruction with just that meaning. What is
//! looked for, with `s = fma(x, c, magic)`, whose low bits are `n` and twice the bias of exponents:
//! `half = (s << (m - 1)) & sign and exponent bits`, `(p half) ((s << m) - half)`; `n` is `s - magic`.

use crate::codegen::native::flat::{Flat, Id, Op};
use crate::ir::scalar::{Lit, Prim, Ty};

/// `p` and `n` of a product that is `p 2^n`.
pub(super) fn scaled(flat: &Flat, product: Id) -> Option<(Id, Id)> {
    let prim = |id: Id, prim: Prim| (flat.nodes[id].op == Op::Prim(prim)).then(|| &flat.nodes[id].args[..]);
    let behind_cast = |id: Id| prim(id, Prim::Bitcast).map(|args| args[0]);
    let (mantissa, exponents) = match flat.nodes[product].ty {
        Ty::F32 => (23, Lit { ty: Ty::I32, bits: f32::NEG_INFINITY.to_bits() as u64 }),
        Ty::F64 => (52, Lit { ty: Ty::I64, bits: f64::NEG_INFINITY.to_bits() }),
        Ty::Bool | Ty::I32 | Ty::I64 => return None,
    };
    let shift = |id: Id, bits: u64| {
        let args = prim(id, Prim::Shl)?;
        (flat.as_lit(args[1])?.bits == bits).then_some(args[0])
    };
    let &[first, other] = prim(product, Prim::Mul)? else { return None };
    let &[p, half_power] = prim(first, Prim::Mul)? else { return None };
    let half = behind_cast(half_power)?;
    let &[raised, mask] = prim(half, Prim::And)? else { return None };
    let bits = shift(raised, mantissa - 1)?;
    let &[whole, less] = prim(behind_cast(other)?, Prim::Sub)? else { return None };
    let fits = flat.as_lit(mask)? == exponents && less == half && shift(whole, mantissa)? == bits;
    let sum = behind_cast(bits)?;
    let &[_, _, magic] = prim(sum, Prim::Fma)? else { return None };
    let n = (0..product).find(|&id| prim(id, Prim::Sub).is_some_and(|args| args == [sum, magic]))?;
    (fits && flat.as_lit(magic)? == magic_number(flat.nodes[product].ty)).then_some((p, n))
}

/// The number whose last place is 1 and to which twice the bias was added.
fn magic_number(ty: Ty) -> Lit {
    match ty {
        Ty::F64 => Lit::f64(1.5 * 2_f64.powi(52) + 2.0 * 1023.0),
        Ty::Bool | Ty::I32 | Ty::I64 | Ty::F32 => Lit::f32(1.5 * 2_f32.powi(23) + 2.0 * 127.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::geometry::Class;
    use crate::codegen::kernel::{Inst, Kernel, Kind, Level, Operand, Output, Source};
    use crate::ir::scalar::{Func, Reg};
    use smallvec::smallvec;

    /// Were the prims of the exponentials written in another way, nothing would be wrong but slower.
    #[test]
    fn the_exponentials_are_recognized() {
        for ty in [Ty::F32, Ty::F64] {
            for func in [Func::Exp, Func::Exp2] {
                let load = Inst { kind: Kind::Load(0), args: smallvec![], ty, level: Level::Full };
                let call = Inst { kind: Kind::Func(func), args: smallvec![Reg(0)], ty, level: Level::Full };
                let kernel = Kernel {
                    operands: vec![Operand { dtype: ty.dtype(), source: Source::Memory }],
                    insts: vec![load, call],
                    outputs: vec![Output { dtype: ty.dtype(), value: Reg(1) }],
                };
                let flat = Flat::new(&kernel, &[Class::Contiguous; 2]);
                assert!(scaled(&flat, flat.outputs[0]).is_some(), "{} of {ty}", func.name());
            }
        }
    }
}
