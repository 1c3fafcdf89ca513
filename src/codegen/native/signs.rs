//! The sign of a node's value, as far as it is known for all operands.

use super::flat::{Flat, FlatNodeId, FlatOp};
use crate::ir::Combine;
use crate::ir::scalar::{Lit, Prim, Ty};

/// Whether a float cannot be greater than zero. It may be NaN.
pub(super) fn is_not_positive(flat: &Flat, id: FlatNodeId) -> bool {
    let node = &flat.nodes[id];
    match (node.op, &node.args[..]) {
        (FlatOp::Prim(Prim::Canon), &[x]) => is_not_positive(flat, x),
        (FlatOp::Prim(Prim::Neg), &[x]) => is_not_negative(flat, x),
        (FlatOp::Prim(Prim::Sub), &[x, most]) => is_maximum_of(flat, most, x),
        (FlatOp::Prim(Prim::Mul), &[x, y]) => [(x, y), (y, x)].into_iter().any(|(x, y)| {
            let sign = flat.as_lit(y).map_or(0.0, sign);
            sign < 0.0 && is_not_negative(flat, x) || sign > 0.0 && is_not_positive(flat, x)
        }),
        (FlatOp::Load(_) | FlatOp::Lit(_) | FlatOp::Prim(_) | FlatOp::Fold(_), _) => false,
    }
}

/// Whether a float cannot be less than zero. It may be NaN.
fn is_not_negative(flat: &Flat, id: FlatNodeId) -> bool {
    let node = &flat.nodes[id];
    match (node.op, &node.args[..]) {
        (FlatOp::Prim(Prim::Canon), &[x]) => is_not_negative(flat, x),
        (FlatOp::Prim(Prim::Abs), _) => true,
        (FlatOp::Prim(Prim::Mul), &[x, y]) => x == y,
        (FlatOp::Load(_) | FlatOp::Lit(_) | FlatOp::Prim(_) | FlatOp::Fold(_), _) => false,
    }
}

/// Whether `most` is the maximum of values that include `x`.
fn is_maximum_of(flat: &Flat, most: FlatNodeId, x: FlatNodeId) -> bool {
    let node = &flat.nodes[most];
    match node.op {
        FlatOp::Prim(Prim::Canon) => is_maximum_of(flat, node.args[0], x),
        FlatOp::Fold(Combine::Max) => node.args[0] == x,
        FlatOp::Load(_) | FlatOp::Lit(_) | FlatOp::Prim(_) | FlatOp::Fold(_) => false,
    }
}

/// 1 or -1 for a finite nonzero number, else 0.
fn sign(lit: Lit) -> f64 {
    let value = match lit.ty {
        Ty::F32 => lit.as_f32() as f64,
        Ty::F64 => lit.as_f64(),
        Ty::Bool | Ty::I32 | Ty::I64 => 0.0,
    };
    if value.is_finite() && value != 0.0 { value.signum() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::geometry::Class;
    use crate::codegen::kernel::{Inst, Kernel, Kind, Level, Operand, Output, Source};
    use crate::ir::DType;
    use crate::ir::scalar::{Func, Reg};
    use smallvec::SmallVec;

    /// A kernel that applies the instructions to operand 0.
    fn flat(insts: &[(Kind, &[usize])]) -> Flat {
        let operands = vec![Operand { dtype: DType::F32, source: Source::Memory }];
        let mut kernel = Kernel { operands, ..Kernel::default() };
        for &(kind, args) in [(Kind::Load(0), &[][..])].iter().chain(insts) {
            let args: SmallVec<[Reg; 3]> = args.iter().map(|&reg| Reg::new(reg)).collect();
            let level = match kind {
                Kind::Load(_) => Level::Full,
                Kind::Fold(_) => Level::Row,
                Kind::Gather(_) | Kind::Lit(_) | Kind::Prim(_) | Kind::Func(_) => {
                    args.iter().map(|&reg| kernel.inst(reg).level).max().unwrap_or(Level::Row)
                }
            };
            kernel.insts.push(Inst { kind, args, ty: Ty::F32, level });
        }
        kernel.outputs.push(Output { dtype: DType::F32, value: Reg::new(insts.len()) });
        kernel.verify().expect("the kernel is valid");
        Flat::new(&kernel, &[Class::Contiguous; 2])
    }

    const MAXIMUM: (Kind, &[usize]) = (Kind::Fold(Combine::Max), &[0]);
    const MAGNITUDE: (Kind, &[usize]) = (Kind::Prim(Prim::Abs), &[0]);

    #[test]
    fn differences_from_maxima_and_negated_magnitudes_are_not_positive() {
        let prim = Kind::Prim;
        let lit = |value: f32| (Kind::Lit(Lit::f32(value)), &[][..]);
        let is_known = |insts: &[(Kind, &[usize])]| {
            let flat = flat(insts);
            is_not_positive(&flat, flat.outputs[0])
        };
        assert!(is_known(&[MAXIMUM, (prim(Prim::Sub), &[0, 1])]));
        assert!(is_known(&[MAXIMUM, (prim(Prim::Canon), &[1]), (prim(Prim::Sub), &[0, 2]), (prim(Prim::Canon), &[3])]));
        assert!(is_known(&[(prim(Prim::Mul), &[0, 0]), (prim(Prim::Neg), &[1])]));
        assert!(is_known(&[MAGNITUDE, lit(-0.5), (prim(Prim::Mul), &[2, 1])]));
        for other in [
            &[(Kind::Fold(Combine::Min), &[0][..]), (prim(Prim::Sub), &[0, 1])][..],
            &[MAXIMUM, (prim(Prim::Sub), &[1, 0])],
            &[MAGNITUDE, (Kind::Fold(Combine::Max), &[1]), (prim(Prim::Sub), &[0, 2]), (prim(Prim::Neg), &[3])],
            &[(prim(Prim::Neg), &[0])],
            &[MAGNITUDE, lit(0.5), (prim(Prim::Mul), &[2, 1])],
            &[MAGNITUDE, lit(f32::NEG_INFINITY), (prim(Prim::Mul), &[2, 1])],
        ] {
            assert!(!is_known(other), "{other:?}");
        }
    }

    #[test]
    fn an_exponential_is_shorter_for_what_is_not_positive() {
        let exp = Kind::Func(Func::Exp);
        let any = flat(&[(exp, &[0])]).nodes.len();
        let below_maximum = flat(&[MAXIMUM, (Kind::Prim(Prim::Sub), &[0, 1]), (exp, &[2])]).nodes.len() - 2;
        assert!(below_maximum + 7 < any, "{below_maximum} nodes instead of {any}");
    }
}
