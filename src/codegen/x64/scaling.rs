//! Recognizes a product with a power of two in the prims of `ir::scalar::math`.
//!
//! There, `p 2^n` is a product with two powers whose exponents are halves of `n`. So the result is rounded once even
//! where `2^n` overflows or the result is subnormal. AVX-512 has one instruction with that meaning.
//!
//! The pattern has `s = fma(x, c, magic)`, whose low bits are `n` plus twice the exponent bias, and `half = (s << (m -
//! 1)) & sign and exponent bits`. It is `(p half) ((s << m) - half)`, and `n` is `s - magic`.

use crate::codegen::native::flat::{Flat, FlatNodeId, FlatOp};
use crate::ir::scalar::{Lit, Prim, Ty};

/// `p` and `n`, if the product is `p 2^n`.
pub(super) fn scaled(flat: &Flat, product: FlatNodeId) -> Option<(FlatNodeId, FlatNodeId)> {
    let prim = |id: FlatNodeId, prim: Prim| (flat.nodes[id].op == FlatOp::Prim(prim)).then(|| &flat.nodes[id].args[..]);
    let bitcast_of = |id: FlatNodeId| prim(id, Prim::Bitcast).map(|args| args[0]);
    let (mantissa, exponents) = match flat.nodes[product].ty {
        Ty::F32 => (23, Lit { ty: Ty::I32, bits: f32::NEG_INFINITY.to_bits() as u64 }),
        Ty::F64 => (52, Lit { ty: Ty::I64, bits: f64::NEG_INFINITY.to_bits() }),
        Ty::Bool | Ty::I32 | Ty::I64 => return None,
    };
    let shift = |id: FlatNodeId, bits: u64| {
        let args = prim(id, Prim::Shl)?;
        (flat.as_lit(args[1])?.bits == bits).then_some(args[0])
    };
    let &[first, other] = prim(product, Prim::Mul)? else { return None };
    let &[p, half_power] = prim(first, Prim::Mul)? else { return None };
    let half = bitcast_of(half_power)?;
    let &[raised, mask] = prim(half, Prim::And)? else { return None };
    let bits = shift(raised, mantissa - 1)?;
    let &[whole, less] = prim(bitcast_of(other)?, Prim::Sub)? else { return None };
    let fits = flat.as_lit(mask)? == exponents && less == half && shift(whole, mantissa)? == bits;
    let sum = bitcast_of(bits)?;
    let &[_, _, magic] = prim(sum, Prim::Fma)? else { return None };
    let is_shifted = |&id: &FlatNodeId| prim(id, Prim::Sub).is_some_and(|args| args == [sum, magic]);
    let n = flat.nodes.ids().take_while(|&id| id < product).find(is_shifted)?;
    (fits && flat.as_lit(magic)? == magic_number(flat.nodes[product].ty)).then_some((p, n))
}

/// The number with an ulp of 1, to which twice the bias was added.
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

    /// If the exponentials were written in other prims, results would be the same, but slower.
    #[test]
    fn the_exponentials_are_recognized() {
        for ty in [Ty::F32, Ty::F64] {
            for func in [Func::Exp, Func::Exp2] {
                let load = Inst { kind: Kind::Load(0), args: smallvec![], ty, level: Level::Full };
                let call = Inst { kind: Kind::Func(func), args: smallvec![Reg::new(0)], ty, level: Level::Full };
                let kernel = Kernel {
                    operands: vec![Operand { dtype: ty.dtype(), source: Source::Memory }],
                    insts: vec![load, call],
                    outputs: vec![Output { dtype: ty.dtype(), value: Reg::new(1) }],
                };
                let flat = Flat::new(&kernel, &[Class::Contiguous; 2]);
                assert!(scaled(&flat, flat.outputs[0]).is_some(), "{} of {ty}", func.name());
            }
        }
    }
}
