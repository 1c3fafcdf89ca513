//! Two neighbouring prims as one routine, with the value between them in a register.
//!
//! The bits are those of the two steps: each prim rounds, and nothing is contracted. Only pairs that are frequent in
//! float kernels exist. The baseline has none, because they do not pay for narrow vectors.

use super::isa::Isa;
use super::operations as op;
use super::routine::{Binary, Routine, Ternary, map3};
use super::table::Finish;
use crate::ir::scalar::{Prim, Ty};
use std::marker::PhantomData;

/// A binary prim of a pair, with what is fused after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    Add,
    Sub,
    Mul,
    AddCanon,
    SubCanon,
    MulCanon,
    Max,
    Min,
    NanMax,
    NanMin,
}

const HALVES: [(Prim, Finish, Half); 10] = [
    (Prim::Add, Finish::Raw, Half::Add),
    (Prim::Sub, Finish::Raw, Half::Sub),
    (Prim::Mul, Finish::Raw, Half::Mul),
    (Prim::Add, Finish::Canon, Half::AddCanon),
    (Prim::Sub, Finish::Canon, Half::SubCanon),
    (Prim::Mul, Finish::Canon, Half::MulCanon),
    (Prim::Max, Finish::Raw, Half::Max),
    (Prim::Min, Finish::Raw, Half::Min),
    (Prim::Max, Finish::NanStays, Half::NanMax),
    (Prim::Min, Finish::NanStays, Half::NanMin),
];

impl Half {
    /// The half that a prim may be.
    pub(super) fn of(prim: Prim, finish: Finish) -> Option<Half> {
        HALVES.into_iter().find(|half| (half.0, half.1) == (prim, finish)).map(|half| half.2)
    }
}

/// Which operand of the second prim the first one's result is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// `(a first b) second c`, or `c second (a first b)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) first: Half,
    pub(super) second: Half,
    pub(super) side: Side,
}

/// `(a O1 b) O2 c`.
struct Left<O1, O2>(PhantomData<(O1, O2)>);
impl<O1: Binary, O2: Binary<A = O1::Out>> Ternary for Left<O1, O2> {
    type A = O1::A;
    type B = O1::B;
    type C = O2::B;
    type Out = O2::Out;
    #[inline(always)]
    fn apply(a: O1::A, b: O1::B, c: O2::B) -> O2::Out {
        O2::apply(O1::apply(a, b), c)
    }
}

/// `c O2 (a O1 b)`.
struct Right<O1, O2>(PhantomData<(O1, O2)>);
impl<O1: Binary, O2: Binary<B = O1::Out>> Ternary for Right<O1, O2> {
    type A = O1::A;
    type B = O1::B;
    type C = O2::A;
    type Out = O2::Out;
    #[inline(always)]
    fn apply(a: O1::A, b: O1::B, c: O2::A) -> O2::Out {
        O2::apply(c, O1::apply(a, b))
    }
}

/// A binary prim on one type.
trait Same<T>: Binary<A = T, B = T, Out = T> {}
impl<T, O: Binary<A = T, B = T, Out = T>> Same<T> for O {}

/// The routine of a pair on values of type `ty`, if there is one.
pub(super) fn pair(isa: Isa, pair: Pair, ty: Ty) -> Option<Routine> {
    match (isa, ty) {
        (Isa::Baseline, _) | (_, Ty::Bool | Ty::I32 | Ty::I64) => None,
        (Isa::Avx2 | Isa::Avx512, Ty::F32) => typed::<f32>(isa, pair),
        (Isa::Avx2 | Isa::Avx512, Ty::F64) => typed::<f64>(isa, pair),
    }
}

fn typed<T: op::Native + op::Canonical>(isa: Isa, pair: Pair) -> Option<Routine> {
    match pair.first {
        Half::Add => arithmetic::<T, op::Add<T>>(isa, pair),
        Half::Sub => arithmetic::<T, op::Sub<T>>(isa, pair),
        Half::Mul => arithmetic::<T, op::Mul<T>>(isa, pair),
        Half::Max => arithmetic::<T, op::Max<T>>(isa, pair),
        Half::Min => arithmetic::<T, op::Min<T>>(isa, pair),
        // A NaN is moved after these, so it is made canonical before.
        Half::AddCanon => extreme::<T, op::Canoned<op::Add<T>>>(isa, pair),
        Half::SubCanon => extreme::<T, op::Canoned<op::Sub<T>>>(isa, pair),
        Half::MulCanon => extreme::<T, op::Canoned<op::Mul<T>>>(isa, pair),
        // A clamp.
        Half::NanMax => {
            let is_clamp = (pair.second, pair.side) == (Half::NanMin, Side::Right);
            is_clamp.then(|| map3::<Right<op::NanMax<T>, op::NanMin<T>>>(isa))
        }
        Half::NanMin => None,
    }
}

fn arithmetic<T: op::Native + op::Canonical, O: Same<T>>(isa: Isa, pair: Pair) -> Option<Routine> {
    // The order of the operands of a sum or product affects only the payload of a NaN.
    Some(match (pair.second, pair.side) {
        (Half::Add, _) => map3::<Left<O, op::Add<T>>>(isa),
        (Half::Mul, _) => map3::<Left<O, op::Mul<T>>>(isa),
        (Half::Sub, Side::Left) => map3::<Left<O, op::Sub<T>>>(isa),
        (Half::Sub, Side::Right) => map3::<Right<O, op::Sub<T>>>(isa),
        (Half::AddCanon, _) => map3::<op::Canoned<Left<O, op::Add<T>>>>(isa),
        (Half::MulCanon, _) => map3::<op::Canoned<Left<O, op::Mul<T>>>>(isa),
        (Half::SubCanon, Side::Left) => map3::<op::Canoned<Left<O, op::Sub<T>>>>(isa),
        (Half::SubCanon, Side::Right) => map3::<op::Canoned<Right<O, op::Sub<T>>>>(isa),
        (Half::Max | Half::Min | Half::NanMax | Half::NanMin, _) => return None,
    })
}

fn extreme<T: op::Canonical, O: Same<T>>(isa: Isa, pair: Pair) -> Option<Routine> {
    Some(match (pair.second, pair.side) {
        (Half::Max, Side::Left) => map3::<Left<O, op::Max<T>>>(isa),
        (Half::Min, Side::Left) => map3::<Left<O, op::Min<T>>>(isa),
        (Half::Max, Side::Right) => map3::<Right<O, op::Max<T>>>(isa),
        (Half::Min, Side::Right) => map3::<Right<O, op::Min<T>>>(isa),
        (Half::NanMax, Side::Right) => map3::<Right<O, op::NanMax<T>>>(isa),
        (Half::NanMin, Side::Right) => map3::<Right<O, op::NanMin<T>>>(isa),
        (Half::NanMax | Half::NanMin, Side::Left) => return None,
        (Half::Add | Half::Sub | Half::Mul | Half::AddCanon | Half::SubCanon | Half::MulCanon, _) => return None,
    })
}

#[cfg(test)]
#[allow(unsafe_code, reason = "routines take raw pointers")]
mod tests {
    use super::super::routine::{BLOCK, Call, TileOperand};
    use super::super::table;
    use super::*;

    /// Runs a routine on `n` elements.
    fn run(routine: Routine, src: [&[u64]; 3], n: usize) -> Vec<u64> {
        let mut out = vec![0u64; src[0].len()];
        let src = src.map(|src| TileOperand { ptr: src.as_ptr().cast_mut().cast(), step: BLOCK });
        // SAFETY: every slice holds more than `n` elements of eight bytes, and the level is available.
        unsafe { routine(&Call { dst: out.as_mut_ptr().cast(), src, n }) };
        out
    }

    fn values(ty: Ty, salt: u64, n: usize) -> Vec<u64> {
        let special = [0.0, -0.0, 1.0, -1.5, f64::INFINITY, f64::NEG_INFINITY, 1e-40, 3e38, 0.1, f64::NAN];
        let value = |i: usize| {
            let i = (i as u64 + 1).wrapping_mul(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            if i.is_multiple_of(3) { special[(i / 3) as usize % special.len()] } else { (i as f64 - 2e9) / 3e7 }
        };
        match ty {
            Ty::F32 => {
                let bits = |i: usize| u64::from((value(i) as f32).to_bits());
                (0..n).map(|i| bits(2 * i) | bits(2 * i + 1) << 32).collect()
            }
            _ => (0..n).map(|i| value(i).to_bits()).collect(),
        }
    }

    #[test]
    fn a_pair_has_the_bits_of_its_two_steps() {
        let mut n_pairs = 0;
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for ty in [Ty::F32, Ty::F64] {
                let (a, b, c) = (values(ty, 1, 1000), values(ty, 3, 1000), values(ty, 7, 1000));
                let n = 1000 * 8 / ty.size() - 3;
                let canon = table::prim(isa, Prim::Canon, Finish::Raw, ty);
                let canonical = |bits: Vec<u64>| run(canon, [&bits; 3], n);
                for (first, second) in HALVES.iter().flat_map(|first| HALVES.iter().map(move |second| (first, second)))
                {
                    for side in [Side::Left, Side::Right] {
                        let Some(routine) = pair(isa, Pair { first: first.2, second: second.2, side }, ty) else {
                            continue;
                        };
                        n_pairs += 1;
                        let between = run(table::prim(isa, first.0, first.1, ty), [&a, &b, &b], n);
                        let (x, y) = if side == Side::Left { (&between, &c) } else { (&c, &between) };
                        let apart = run(table::prim(isa, second.0, second.1, ty), [x, y, y], n);
                        let together = run(routine, [&a, &b, &c], n);
                        assert!(canonical(together) == canonical(apart), "{first:?} {second:?} {side:?} {ty} {isa:?}");
                    }
                }
            }
        }
        assert!(n_pairs > 0 || Isa::best() == Isa::Baseline);
    }

    #[test]
    fn a_prim_rounded_to_bf16_has_the_bits_of_its_two_steps() {
        let (a, b) = (values(Ty::F32, 1, 1000), values(Ty::F32, 3, 1000));
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for prim in [Prim::Add, Prim::Sub, Prim::Mul, Prim::Div] {
                let between = run(table::prim(isa, prim, Finish::Raw, Ty::F32), [&a, &b, &b], 1997);
                let apart = run(table::prim(isa, Prim::RoundBF16, Finish::Raw, Ty::F32), [&between; 3], 1997);
                let together = run(table::prim(isa, prim, Finish::BF16, Ty::F32), [&a, &b, &b], 1997);
                assert!(together == apart, "{prim:?} {isa:?}");
            }
        }
    }
}
