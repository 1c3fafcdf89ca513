//! The reference evaluation of prims, funcs and bodies on literals. Every tier is tested against it.

use super::body::{Body, Kind};
use super::func::Func;
use super::half_bits::{round_bf16, round_f16, widen_bf16, widen_f16};
use super::number::Float;
use super::prim::{Lit, Prim, Ty};

/// The value of a prim on operands that fit it.
///
/// # Panics
/// On operands that [`Prim::result`] rejects. Bodies are verified before they are evaluated.
pub fn prim(prim: Prim, args: &[Lit]) -> Lit {
    match (prim, args[0].ty) {
        (Prim::Convert(to), _) => convert(args[0], to),
        (Prim::Select, _) => {
            if args[0].as_bool() {
                args[1]
            } else {
                args[2]
            }
        }
        (Prim::Bitcast, ty) => Lit { ty: ty.bitcast(), bits: args[0].bits },
        (Prim::Eq, _) => Lit::bool(equal(args[0], args[1])),
        (Prim::Ne, _) => Lit::bool(!equal(args[0], args[1])),
        (prim, Ty::Bool) => bools(prim, args),
        (prim, Ty::I32) => ints32(prim, args),
        (prim, Ty::I64) => ints64(prim, args),
        (prim, Ty::F32) => floats32(prim, args),
        (prim, Ty::F64) => floats64(prim, args),
    }
}

/// A number converted to another type.
///
/// Floats become integers by rounding toward zero; they saturate, and NaN gives 0. Anything but zero is true, NaN
/// included. i64 becomes i32 by dropping the high bits. Integers become the nearest float.
pub fn convert(value: Lit, to: Ty) -> Lit {
    macro_rules! from {
        ($value:expr, $nonzero:expr) => {
            match to {
                Ty::Bool => Lit::bool($nonzero),
                Ty::I32 => Lit::i32($value as i32),
                Ty::I64 => Lit::i64($value as i64),
                Ty::F32 => Lit::f32($value as f32),
                Ty::F64 => Lit::f64($value as f64),
            }
        };
    }
    match value.ty {
        Ty::Bool => from!(value.as_bool() as u8, value.as_bool()),
        Ty::I32 => from!(value.as_i32(), value.as_i32() != 0),
        Ty::I64 => from!(value.as_i64(), value.as_i64() != 0),
        Ty::F32 => from!(value.as_f32(), value.as_f32() != 0.0),
        Ty::F64 => from!(value.as_f64(), value.as_f64() != 0.0),
    }
}

/// The value of a func on float operands of one type.
pub fn func(func: Func, args: &[Lit]) -> Lit {
    match args[0].ty {
        Ty::F64 => {
            let args: Vec<f64> = args.iter().map(|arg| arg.as_f64()).collect();
            Lit::f64(func.call64(&args))
        }
        Ty::F32 => {
            let args: Vec<f32> = args.iter().map(|arg| arg.as_f32()).collect();
            Lit::f32(func.call32(&args))
        }
        Ty::Bool | Ty::I32 | Ty::I64 => unreachable!("a func takes floats; bodies are verified"),
    }
}

/// The results of a body.
pub fn body(body: &Body, args: &[Lit]) -> Vec<Lit> {
    let mut values: Vec<Lit> = Vec::with_capacity(body.insts.len());
    for inst in &body.insts {
        let operands: Vec<Lit> = inst.args.iter().map(|&reg| values[reg.index()]).collect();
        values.push(match inst.kind {
            Kind::Arg(index) => args[index as usize],
            Kind::Lit(lit) => lit,
            Kind::Prim(op) => prim(op, &operands),
            Kind::Func(op) => func(op, &operands),
        });
    }
    body.results.iter().map(|&reg| values[reg.index()]).collect()
}

/// A power that wraps. A negative exponent gives `1 / base^n` rounded toward zero.
pub fn int_pow(base: i64, exponent: i64) -> i64 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut power, mut square, mut rest) = (1_i64, base, exponent);
    while rest > 0 {
        if rest % 2 == 1 {
            power = power.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest /= 2;
    }
    power
}

/// `bits`, or those of the canonical NaN if they are a NaN, whose magnitude is above that of infinity.
fn canonical<B: Copy + PartialOrd + std::ops::Shl<u32, Output = B> + std::ops::Shr<u32, Output = B>>(
    bits: B,
    infinity: B,
    nan: B,
) -> B {
    if (bits << 1) >> 1 > infinity { nan } else { bits }
}

fn equal(a: Lit, b: Lit) -> bool {
    match a.ty {
        Ty::F32 => a.as_f32() == b.as_f32(),
        Ty::F64 => a.as_f64() == b.as_f64(),
        Ty::Bool | Ty::I32 | Ty::I64 => a.bits == b.bits,
    }
}

fn misuse(prim: Prim, ty: Ty) -> ! {
    unreachable!("{} does not take {ty}; bodies are verified", prim.name())
}

fn bools(op: Prim, args: &[Lit]) -> Lit {
    let (a, b) = (args[0].as_bool(), args.get(1).is_some_and(|arg| arg.as_bool()));
    Lit::bool(match op {
        Prim::And => a & b,
        Prim::Or => a | b,
        Prim::Xor => a ^ b,
        Prim::Not => !a,
        Prim::Add
        | Prim::Sub
        | Prim::Mul
        | Prim::Div
        | Prim::Fma
        | Prim::Neg
        | Prim::Abs
        | Prim::Sqrt
        | Prim::Floor
        | Prim::Ceil
        | Prim::Trunc
        | Prim::RoundEven
        | Prim::Max
        | Prim::Min
        | Prim::Lt
        | Prim::Le
        | Prim::Eq
        | Prim::Ne
        | Prim::Shl
        | Prim::Shr
        | Prim::ShrU
        | Prim::Quot
        | Prim::Rem
        | Prim::IntPow
        | Prim::Select
        | Prim::Bitcast
        | Prim::Canon
        | Prim::RoundF16
        | Prim::RoundBF16
        | Prim::WrapU8
        | Prim::WrapI8
        | Prim::WrapI16
        | Prim::Convert(_) => misuse(op, Ty::Bool),
    })
}

macro_rules! ints {
    ($name:ident, $ty:ty, $unsigned:ty, $make:ident, $get:ident) => {
        fn $name(op: Prim, args: &[Lit]) -> Lit {
            let (a, b) = (args[0].$get(), args.get(1).map_or(0, |arg| arg.$get()));
            Lit::$make(match op {
                Prim::Add => a.wrapping_add(b),
                Prim::Sub => a.wrapping_sub(b),
                Prim::Mul => a.wrapping_mul(b),
                Prim::Neg => a.wrapping_neg(),
                Prim::Abs => a.wrapping_abs(),
                Prim::Max => a.max(b),
                Prim::Min => a.min(b),
                Prim::Lt => return Lit::bool(a < b),
                Prim::Le => return Lit::bool(a <= b),
                Prim::And => a & b,
                Prim::Or => a | b,
                Prim::Xor => a ^ b,
                Prim::Not => !a,
                Prim::Shl => a.wrapping_shl(b as u32),
                Prim::Shr => a.wrapping_shr(b as u32),
                Prim::ShrU => (a as $unsigned).wrapping_shr(b as u32) as $ty,
                Prim::Quot => {
                    if b == 0 {
                        0
                    } else {
                        a.wrapping_div(b)
                    }
                }
                Prim::Rem => {
                    if b == 0 {
                        0
                    } else {
                        a.wrapping_rem(b)
                    }
                }
                Prim::IntPow => int_pow(a as i64, b as i64) as $ty,
                Prim::WrapU8 => a as u8 as $ty,
                Prim::WrapI8 => a as i8 as $ty,
                Prim::WrapI16 => a as i16 as $ty,
                Prim::Div
                | Prim::Fma
                | Prim::Sqrt
                | Prim::Floor
                | Prim::Ceil
                | Prim::Trunc
                | Prim::RoundEven
                | Prim::Eq
                | Prim::Ne
                | Prim::Select
                | Prim::Bitcast
                | Prim::Canon
                | Prim::RoundF16
                | Prim::RoundBF16
                | Prim::Convert(_) => misuse(op, args[0].ty),
            })
        }
    };
}
ints!(ints32, i32, u32, i32, as_i32);
ints!(ints64, i64, u64, i64, as_i64);

macro_rules! floats {
    ($name:ident, $ty:ty, $make:ident, $get:ident) => {
        fn $name(op: Prim, args: &[Lit]) -> Lit {
            let a = args[0].$get();
            let b = args.get(1).map_or(0.0, |arg| arg.$get());
            Lit::$make(match op {
                Prim::Add => a + b,
                Prim::Sub => a - b,
                Prim::Mul => a * b,
                Prim::Div => a / b,
                Prim::Rem => a % b,
                Prim::Fma => a.mul_add(b, args[2].$get()),
                Prim::Neg => -a,
                Prim::Abs => Float::abs(a),
                Prim::Sqrt => Float::sqrt(a),
                Prim::Floor => Float::floor(a),
                Prim::Ceil => Float::ceil(a),
                Prim::Trunc => Float::trunc(a),
                Prim::RoundEven => a.round_ties_even(),
                Prim::Max => Float::max(a, b),
                Prim::Min => Float::min(a, b),
                Prim::Lt => return Lit::bool(a < b),
                Prim::Le => return Lit::bool(a <= b),
                // On bits, because compilers drop a select between a NaN and another NaN.
                Prim::Canon => {
                    <$ty>::from_bits(canonical(a.to_bits(), <$ty>::INFINITY.to_bits(), <$ty>::NAN.to_bits()))
                }
                Prim::RoundF16 => widen_f16(round_f16(a as f32)) as $ty,
                Prim::RoundBF16 => widen_bf16(round_bf16(a as f32)) as $ty,
                Prim::Eq
                | Prim::Ne
                | Prim::And
                | Prim::Or
                | Prim::Xor
                | Prim::Not
                | Prim::Shl
                | Prim::Shr
                | Prim::ShrU
                | Prim::Quot
                | Prim::IntPow
                | Prim::Select
                | Prim::Bitcast
                | Prim::WrapU8
                | Prim::WrapI8
                | Prim::WrapI16
                | Prim::Convert(_) => misuse(op, args[0].ty),
            })
        }
    };
}
floats!(floats32, f32, f32, as_f32);
floats!(floats64, f64, f64, as_f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_max_gives_its_second_operand_on_nan_and_ties() {
        let nan = Lit::f32(f32::NAN);
        assert_eq!(prim(Prim::Max, &[nan, Lit::f32(1.0)]), Lit::f32(1.0));
        assert!(prim(Prim::Max, &[Lit::f32(1.0), nan]).as_f32().is_nan());
        assert_eq!(prim(Prim::Max, &[Lit::f32(0.0), Lit::f32(-0.0)]), Lit::f32(-0.0));
    }

    #[test]
    fn conversions_saturate_and_wrap() {
        assert_eq!(convert(Lit::f32(-1.9), Ty::I32), Lit::i32(-1));
        assert_eq!(convert(Lit::f32(f32::NAN), Ty::I64), Lit::i64(0));
        assert_eq!(convert(Lit::f64(1e300), Ty::I64), Lit::i64(i64::MAX));
        assert_eq!(convert(Lit::i64(1 << 32), Ty::I32), Lit::i32(0));
        assert_eq!(convert(Lit::f32(f32::NAN), Ty::Bool), Lit::bool(true));
        let u8_of_300 = prim(Prim::WrapU8, &[convert(Lit::f32(300.0), Ty::I32)]);
        assert_eq!(u8_of_300, Lit::i32(44));
    }

    #[test]
    fn canon_keeps_everything_but_nan() {
        for bits in [0u32, 0x8000_0000, 0x7f80_0000, 1, 0x3f80_0000] {
            assert_eq!(prim(Prim::Canon, &[Lit::f32(f32::from_bits(bits))]).bits, bits as u64);
        }
        assert_eq!(prim(Prim::Canon, &[Lit::f32(f32::from_bits(0xffc0_1234))]).bits, 0x7fc0_0000);
    }
}
