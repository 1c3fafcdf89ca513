//! Symbols, which record a body from ordinary Rust arithmetic.
//!
//! A [`Sym`] stands for a register of the [`Recorder`] that it borrows. Operators and methods append instructions. The
//! op table writes its bodies with symbols. The math functions of [`super::math`] run on symbols to become prims.

use super::body::{Body, Inst, Kind, Reg};
use super::func::Func;
use super::math::{not_positive, small_angles};
use super::number::{Bits, Float, Mask};
use super::prim::{Lit, Prim, Ty};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops;

/// Collects the instructions of a body. Identical ones are merged.
#[derive(Debug, Default)]
pub struct Recorder {
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    insts: Vec<Inst>,
    recorded: HashMap<Inst, Reg>,
}

impl Recorder {
    /// An empty recorder.
    pub fn new() -> Recorder {
        Recorder::default()
    }

    /// Argument `index` of the body.
    pub fn arg(&self, index: u32, ty: Ty) -> Sym<'_> {
        self.push(Kind::Arg(index), &[], ty)
    }

    /// A literal.
    pub fn lit(&self, lit: Lit) -> Sym<'_> {
        self.push(Kind::Lit(lit), &[], lit.ty)
    }

    /// The body recorded so far, with these results.
    pub fn finish(&self, results: &[Sym<'_>]) -> Body {
        Body { insts: self.state.borrow().insts.clone(), results: results.iter().map(|sym| sym.reg).collect() }
    }

    fn push(&self, kind: Kind, args: &[Sym<'_>], ty: Ty) -> Sym<'_> {
        let inst = Inst { kind, args: args.iter().map(|sym| sym.reg).collect(), ty };
        let mut state = self.state.borrow_mut();
        if let Some(&reg) = state.recorded.get(&inst) {
            return Sym { recorder: self, reg, ty };
        }
        let reg = Reg::new(state.insts.len());
        state.insts.push(inst.clone());
        state.recorded.insert(inst, reg);
        Sym { recorder: self, reg, ty }
    }

    fn kind(&self, reg: Reg) -> (Kind, SmallVec<[Reg; 3]>) {
        let state = self.state.borrow();
        let inst = &state.insts[reg.index()];
        (inst.kind, inst.args.clone())
    }

    /// Whether the value only moves bits of arguments and literals, or of results of `rounding`. Then it needs no
    /// rounding.
    fn is_moved(&self, reg: Reg, rounding: Prim) -> bool {
        let (kind, args) = self.kind(reg);
        match kind {
            Kind::Arg(_) => true,
            Kind::Prim(Prim::Select) => self.is_moved(args[1], rounding) && self.is_moved(args[2], rounding),
            Kind::Prim(Prim::Max | Prim::Min) => self.is_moved(args[0], rounding) && self.is_moved(args[1], rounding),
            Kind::Lit(lit) => match lit.ty {
                Ty::F32 => !lit.as_f32().is_nan() && lit.as_f32().fract() == 0.0 && lit.as_f32().abs() <= 128.0,
                Ty::F64 => !lit.as_f64().is_nan(),
                Ty::Bool | Ty::I32 | Ty::I64 => false,
            },
            Kind::Prim(prim) => prim == rounding,
            Kind::Func(_) => false,
        }
    }
}

/// A register of a recorder, used like a number.
#[derive(Debug, Clone, Copy)]
pub struct Sym<'r> {
    recorder: &'r Recorder,
    reg: Reg,
    ty: Ty,
}

impl<'r> Sym<'r> {
    /// Its type.
    pub fn ty(self) -> Ty {
        self.ty
    }

    /// Its register.
    pub fn reg(self) -> Reg {
        self.reg
    }

    /// A number of this symbol's type.
    pub fn num(self, value: f64) -> Sym<'r> {
        self.recorder.lit(Lit::number(self.ty, value))
    }

    /// A literal in the same body.
    pub fn lit(self, lit: Lit) -> Sym<'r> {
        self.recorder.lit(lit)
    }

    /// A prim with this symbol as first operand.
    ///
    /// # Panics
    /// If the operand types do not fit: bodies in the op table are checked for every dtype by the tests.
    pub fn prim(self, prim: Prim, rest: &[Sym<'r>]) -> Sym<'r> {
        let mut args: SmallVec<[Sym<'r>; 3]> = SmallVec::from_slice(&[self]);
        args.extend_from_slice(rest);
        let tys: SmallVec<[Ty; 3]> = args.iter().map(|sym| sym.ty).collect();
        let ty = prim.result(&tys).unwrap_or_else(|| unreachable!("{} does not take {tys:?}", prim.name()));
        self.recorder.push(Kind::Prim(prim), &args, ty)
    }

    fn func(self, func: Func, rest: &[Sym<'r>]) -> Sym<'r> {
        let mut args: SmallVec<[Sym<'r>; 3]> = SmallVec::from_slice(&[self]);
        args.extend_from_slice(rest);
        assert!(self.ty.is_float() && args.iter().all(|sym| sym.ty == self.ty), "{} takes floats", func.name());
        self.recorder.push(Kind::Func(func), &args, self.ty)
    }

    /// Converted to another type, or itself if it has that type.
    pub fn to(self, ty: Ty) -> Sym<'r> {
        if ty == self.ty { self } else { self.prim(Prim::Convert(ty), &[]) }
    }

    /// Rounded as an eager store of `dtype` rounds.
    pub fn rounded(self, dtype: crate::ir::DType) -> Sym<'r> {
        match dtype.rounding() {
            Some(prim) if !self.recorder.is_moved(self.reg, prim) => self.prim(prim, &[]),
            Some(_) | None => self,
        }
    }

    /// `self > other`.
    pub fn gt(self, other: Sym<'r>) -> Sym<'r> {
        other.prim(Prim::Lt, &[self])
    }

    /// `self >= other`.
    pub fn ge(self, other: Sym<'r>) -> Sym<'r> {
        other.prim(Prim::Le, &[self])
    }

    /// Whether it is a NaN; false for integers.
    pub fn is_nan(self) -> Sym<'r> {
        self.prim(Prim::Ne, &[self])
    }

    /// `yes` where this bool holds, else `no`.
    pub fn then(self, yes: Sym<'r>, no: Sym<'r>) -> Sym<'r> {
        self.prim(Prim::Select, &[yes, no])
    }
}

macro_rules! sym_funcs {
    ($($name:ident => $func:ident),* $(,)?) => {
        impl<'r> Sym<'r> {$(
            #[doc = concat!("The func `", stringify!($name), "` of a float.")]
            pub fn $name(self) -> Sym<'r> {
                self.func(Func::$func, &[])
            }
        )*
            /// Raised to a power, floats.
            pub fn pow(self, exponent: Sym<'r>) -> Sym<'r> {
                self.func(Func::Pow, &[exponent])
            }

            /// The angle of the point `(x, self)`, floats.
            pub fn atan2(self, x: Sym<'r>) -> Sym<'r> {
                self.func(Func::Atan2, &[x])
            }
        }
    };
}
sym_funcs!(exp => Exp, exp2 => Exp2, expm1 => Expm1, log => Log, log2 => Log2, log10 => Log10, log1p => Log1p,
           tanh => Tanh, sigmoid => Sigmoid, silu => Silu, gelu_tanh => GeluTanh, mish => Mish, erf => Erf, sin => Sin, cos => Cos, tan => Tan, rsqrt => Rsqrt,
           asin => Asin, acos => Acos, atan => Atan, erfc => Erfc, erfinv => Erfinv, lgamma => Lgamma, digamma => Digamma, trigamma => Trigamma);

macro_rules! sym_operators {
    ($($trait:ident $method:ident => $prim:ident),* $(,)?) => {$(
        impl<'r> ops::$trait for Sym<'r> {
            type Output = Sym<'r>;
            fn $method(self, other: Sym<'r>) -> Sym<'r> {
                self.prim(Prim::$prim, &[other])
            }
        }
    )*};
}
sym_operators!(Add add => Add, Sub sub => Sub, Mul mul => Mul, Div div => Div, BitAnd bitand => And, BitOr bitor => Or,
               BitXor bitxor => Xor);

macro_rules! sym_number_operators {
    ($($trait:ident $method:ident),* $(,)?) => {$(
        impl<'r> ops::$trait<f64> for Sym<'r> {
            type Output = Sym<'r>;
            fn $method(self, other: f64) -> Sym<'r> {
                ops::$trait::$method(self, self.num(other))
            }
        }
        impl<'r> ops::$trait<Sym<'r>> for f64 {
            type Output = Sym<'r>;
            fn $method(self, other: Sym<'r>) -> Sym<'r> {
                ops::$trait::$method(other.num(self), other)
            }
        }
    )*};
}
sym_number_operators!(Add add, Sub sub, Mul mul, Div div);

impl<'r> ops::Neg for Sym<'r> {
    type Output = Sym<'r>;
    fn neg(self) -> Sym<'r> {
        self.prim(Prim::Neg, &[])
    }
}

impl<'r> ops::Not for Sym<'r> {
    type Output = Sym<'r>;
    fn not(self) -> Sym<'r> {
        self.prim(Prim::Not, &[])
    }
}

macro_rules! float_prims {
    ($($method:ident($($arg:ident),*) => $prim:ident),* $(,)?) => {
        impl<'r> Float for Sym<'r> {
            type Bits = Sym<'r>;
            type Mask = Sym<'r>;
            fn constant(self, value: f64) -> Self {
                self.num(value)
            }
            fn select(mask: Self, yes: Self, no: Self) -> Self {
                mask.then(yes, no)
            }
            fn to_bits(self) -> Self {
                self.prim(Prim::Bitcast, &[])
            }
            $(fn $method(self $(, $arg: Self)*) -> Self {
                self.prim(Prim::$prim, &[$($arg),*])
            })*
        }
    };
}
float_prims!(add(o) => Add, sub(o) => Sub, mul(o) => Mul, div(o) => Div, neg() => Neg, abs() => Abs, sqrt() => Sqrt,
             fma(b, c) => Fma, floor() => Floor, ceil() => Ceil, trunc() => Trunc, round_even() => RoundEven,
             max(o) => Max, min(o) => Min, lt(o) => Lt, le(o) => Le, eq(o) => Eq, ne(o) => Ne);

impl<'r> Bits for Sym<'r> {
    type Mask = Sym<'r>;
    type Float = Sym<'r>;
    fn constant(self, value: i64) -> Self {
        let lit = if self.ty == Ty::I32 { Lit::i32(value as i32) } else { Lit::i64(value) };
        self.recorder.lit(lit)
    }
    fn add(self, o: Self) -> Self {
        self.prim(Prim::Add, &[o])
    }
    fn sub(self, o: Self) -> Self {
        self.prim(Prim::Sub, &[o])
    }
    fn mul(self, o: Self) -> Self {
        self.prim(Prim::Mul, &[o])
    }
    fn and(self, o: Self) -> Self {
        self.prim(Prim::And, &[o])
    }
    fn or(self, o: Self) -> Self {
        self.prim(Prim::Or, &[o])
    }
    fn xor(self, o: Self) -> Self {
        self.prim(Prim::Xor, &[o])
    }
    fn shl(self, n: u32) -> Self {
        self.prim(Prim::Shl, &[self.num(n as f64)])
    }
    fn shr(self, n: u32) -> Self {
        self.prim(Prim::Shr, &[self.num(n as f64)])
    }
    fn shru(self, n: u32) -> Self {
        self.prim(Prim::ShrU, &[self.num(n as f64)])
    }
    fn lt(self, o: Self) -> Self {
        self.prim(Prim::Lt, &[o])
    }
    fn eq(self, o: Self) -> Self {
        self.prim(Prim::Eq, &[o])
    }
    fn select(mask: Self, yes: Self, no: Self) -> Self {
        mask.then(yes, no)
    }
    fn to_float_bits(self) -> Self {
        self.prim(Prim::Bitcast, &[])
    }
}

impl<'r> Mask for Sym<'r> {
    fn and(self, o: Self) -> Self {
        self.prim(Prim::And, &[o])
    }
    fn or(self, o: Self) -> Self {
        self.prim(Prim::Or, &[o])
    }
    fn not(self) -> Self {
        self.prim(Prim::Not, &[])
    }
}

impl Func {
    /// The func as a body of prims on arguments of type `ty`.
    pub fn body(self, ty: Ty) -> Body {
        let recorder = Recorder::new();
        let args: SmallVec<[Sym<'_>; 2]> = (0..self.arity() as u32).map(|index| recorder.arg(index, ty)).collect();
        let result = if ty == Ty::F64 { self.call64(&args) } else { self.call32(&args) };
        recorder.finish(&[result])
    }
}

impl Body {
    /// A shorter body of a function of angles, and the greatest magnitude of an angle that it is for.
    pub fn of_small_angles(func: Func, ty: Ty) -> Option<(Body, Lit)> {
        type Function<'r> = fn(Sym<'r>) -> Sym<'r>;
        let recorder = Recorder::new();
        let functions: [(Func, Function<'_>, Function<'_>); 3] = [
            (Func::Sin, small_angles::sin32, small_angles::sin64),
            (Func::Cos, small_angles::cos32, small_angles::cos64),
            (Func::Tan, small_angles::tan32, small_angles::tan64),
        ];
        let &(_, of_32_bits, of_64_bits) = functions.iter().find(|row| row.0 == func)?;
        let x = recorder.arg(0, ty);
        let (result, most) = match ty == Ty::F64 {
            true => (of_64_bits(x), Lit::f64(small_angles::HIGH64)),
            false => (of_32_bits(x), Lit::f32(small_angles::HIGH32)),
        };
        Some((recorder.finish(&[result]), most))
    }

    /// A shorter body of [`Func::Exp`], for arguments that are not positive, or NaN.
    pub fn exp_of_not_positive(ty: Ty) -> Body {
        let recorder = Recorder::new();
        let x = recorder.arg(0, ty);
        let result = if ty == Ty::F64 { not_positive::exp64(x) } else { not_positive::exp32(x) };
        recorder.finish(&[result])
    }
}
