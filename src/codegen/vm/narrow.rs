//! Kernels on whole numbers of one or two bytes, computed at that width.
//!
//! Sums, differences, products and bit operations have the same low bits at any width, and numbers that fit into the
//! narrow width have the same order there. So vectors hold two or four times as many elements as in the computation
//! type, and nothing is converted. `scripts/sweep.sh --only add` measures it.

#![allow(unsafe_code, reason = "operands and outputs are raw memory, and vector instructions are chosen at run time")]

use super::isa::Isa;
use super::routine::pick;
use crate::codegen::geometry::{Access, Geometry, Lanes, offset};
use crate::codegen::kernel::{Inst, Kernel, Kind, Source};
use crate::codegen::{Part, Pointers};
use crate::ir::DType;
use crate::ir::scalar::{Prim, Ty};
use smallvec::SmallVec;

/// An operation on `n` elements of two operands. Sound if these can be read, and the results written, which are in the
/// place of an operand or overlap none.
type Routine = unsafe fn(a: *const u8, b: *const u8, to: *mut u8, n: usize);

/// Most steps, whose tiles share the nearest cache.
const MOST_STEPS: usize = 6;
/// Bytes of a tile.
const TILE: usize = 2048;

/// A kernel with one output, computed step by step on tiles. The last step writes the output.
#[derive(Debug)]
pub(in crate::codegen) struct Narrow {
    /// Bytes of an element.
    bytes: usize,
    steps: SmallVec<[Step; 2]>,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    routine: Routine,
    args: [Arg; 2],
}

/// Where elements come from.
#[derive(Debug, Clone, Copy)]
enum Arg {
    /// An operand in memory.
    Operand(usize),
    /// A number, by its low bytes.
    Number(u16),
    /// The results of a step.
    Step(usize),
}

/// An instruction's result.
#[derive(Debug, Clone, Copy)]
struct Value {
    arg: Arg,
    number: Number,
}

/// What the low bytes of a result tell of it.
#[derive(Debug, Clone, Copy)]
enum Number {
    /// They are the number itself, as one of this dtype.
    Of(DType),
    /// The number is known.
    Literal(i32),
    /// Nothing of its high bits.
    LowBits,
}

impl Value {
    fn of(arg: Arg, dtype: DType) -> Value {
        Value { arg, number: Number::Of(dtype) }
    }
}

impl Narrow {
    /// The steps of a kernel, if it has nothing but such operations.
    pub(in crate::codegen) fn of(isa: Isa, kernel: &Kernel, lanes: Lanes) -> Option<Narrow> {
        let [output] = &kernel.outputs[..] else { return None };
        let bytes = output.dtype.size();
        if !is_whole(output.dtype) || lanes != Lanes::Inner {
            return None;
        }
        let mut steps: SmallVec<[Step; 2]> = SmallVec::new();
        let mut values: SmallVec<[Value; 8]> = SmallVec::new();
        for inst in &kernel.insts {
            let value = match inst.kind {
                Kind::Load(slot) => {
                    let operand = &kernel.operands[usize::from(slot)];
                    let fits = operand.source == Source::Memory && operand.dtype.size() == bytes;
                    let arg = (fits && is_whole(operand.dtype)).then_some(Arg::Operand(usize::from(slot)))?;
                    Value { arg, number: Number::Of(operand.dtype) }
                }
                Kind::Lit(literal) => {
                    Value { arg: Arg::Number(literal.bits as u16), number: Number::Literal(literal.bits as i32) }
                }
                Kind::Prim(prim) => {
                    let args: SmallVec<[Value; 2]> = inst.args.iter().map(|reg| values[reg.index()]).collect();
                    match (prim, &args[..]) {
                        (Prim::WrapU8, &[Value { arg, .. }]) if bytes == 1 => Value::of(arg, DType::U8),
                        (Prim::WrapI8, &[Value { arg, .. }]) if bytes == 1 => Value::of(arg, DType::I8),
                        (Prim::WrapI16, &[Value { arg, .. }]) => Value::of(arg, DType::I16),
                        (other, args) => {
                            let (step, number) = step(isa, bytes, inst, other, args)?;
                            steps.push(step);
                            Value { arg: Arg::Step(steps.len() - 1), number }
                        }
                    }
                }
                Kind::Gather(_) | Kind::Func(_) | Kind::Fold(_) => return None,
            };
            values.push(value);
        }
        let Arg::Step(last) = values[output.value.index()].arg else { return None };
        (last + 1 == steps.len() && steps.len() <= MOST_STEPS).then_some(Narrow { bytes, steps })
    }

    /// Whether this is how launches of such a geometry run.
    pub(in crate::codegen) fn takes(&self, geometry: &Geometry) -> bool {
        let [output] = &geometry.outputs[..] else { return false };
        let is_row =
            |access: &Access| matches!(geometry.lane_stride(access), stride if stride == 0 || stride == self.bytes);
        geometry.inner.len() == 1
            && geometry.lane_stride(output) == self.bytes
            && geometry.operands.iter().all(|access| access.gather.is_none() && is_row(access))
    }

    /// Computes one part of a launch, if its rows are such.
    ///
    /// # Safety
    /// As for [`VmProgram::run`](super::VmProgram::run) of the kernel that this was made of.
    pub(super) unsafe fn run(&self, geometry: &Geometry, pointers: Pointers<'_>, part: &Part) -> bool {
        if !self.takes(geometry) {
            return false;
        }
        let start = |access: &Access, row: usize| {
            let lane = part.lanes.start.wrapping_mul(geometry.lane_stride(access));
            (access.base as usize).wrapping_add(offset(&geometry.rows, &access.rows, row)).wrapping_add(lane)
        };
        let n = part.lanes.len();
        let tile = n.min(TILE / self.bytes);
        let mut tiles = Tiles::new(self, geometry, tile);
        for row in part.outer.clone().take_while(|_| n > 0) {
            let of_operand = |slot: usize| {
                let access = &geometry.operands[slot];
                (pointers.operands[slot].wrapping_add(start(access, row)), geometry.lane_stride(access))
            };
            let to = pointers.outputs[0].wrapping_add(start(&geometry.outputs[0], row));
            // SAFETY: the caller vouches for the first element of the row of each operand.
            unsafe { tiles.repeat(self, of_operand) };
            for at in (0..n).step_by(tile) {
                let n = tile.min(n - at);
                for (nth, step) in self.steps.iter().enumerate() {
                    let [a, b] = [0, 1].map(|side| match step.args[side] {
                        Arg::Operand(slot) if of_operand(slot).1 != 0 => {
                            of_operand(slot).0.wrapping_add(at * self.bytes)
                        }
                        Arg::Step(step) => tiles.of_step(step).cast_const(),
                        Arg::Operand(_) | Arg::Number(_) => tiles.of_number(nth, side).cast_const(),
                    });
                    let is_last = nth + 1 == self.steps.len();
                    let to = if is_last { to.wrapping_add(at * self.bytes) } else { tiles.of_step(nth) };
                    // SAFETY: the caller vouches for the elements of operands and output; a tile has room for `n`.
                    unsafe { (step.routine)(a, b, to, n) };
                }
            }
        }
        true
    }
}

/// Whether elements are whole numbers or bools of one or two bytes.
fn is_whole(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::I8 | DType::I16 | DType::Bool)
}

/// The step of an instruction, if its low bits follow from those of its operands, and what they tell.
fn step(isa: Isa, bytes: usize, inst: &Inst, prim: Prim, args: &[Value]) -> Option<(Step, Number)> {
    let is_bool = inst.ty == Ty::Bool;
    if !is_bool && inst.ty != Ty::I32 {
        return None;
    }
    let same = if is_bool { Number::Of(DType::Bool) } else { Number::LowBits };
    let low_bits = if bytes == 1 { DType::U8 } else { DType::I16 };
    let step = |dtype, prim, args| Some(Step { routine: routine_for(isa, dtype, prim)?, args });
    match (prim, args) {
        (Prim::And | Prim::Or | Prim::Xor, &[a, b]) => Some((step(low_bits, prim, [a.arg, b.arg])?, same)),
        (Prim::Add | Prim::Sub | Prim::Mul, &[a, b]) if !is_bool => Some((step(low_bits, prim, [a.arg, b.arg])?, same)),
        (Prim::Neg, &[a]) if !is_bool => Some((step(low_bits, Prim::Sub, [Arg::Number(0), a.arg])?, same)),
        (Prim::Not, &[a]) => {
            let ones = if is_bool { 1 } else { u16::MAX };
            Some((step(low_bits, Prim::Xor, [a.arg, Arg::Number(ones)])?, same))
        }
        (Prim::Max | Prim::Min, &[a, b]) => {
            let dtype = common(a.number, b.number)?;
            Some((step(dtype, prim, [a.arg, b.arg])?, Number::Of(dtype)))
        }
        // A bool takes one byte.
        (Prim::Lt | Prim::Le | Prim::Eq | Prim::Ne, &[a, b]) if bytes == 1 => {
            let dtype = common(a.number, b.number)?;
            Some((step(dtype, prim, [a.arg, b.arg])?, same))
        }
        (_others, _) => None,
    }
}

/// The dtype in which two numbers are known whole, so that their order there is theirs.
fn common(a: Number, b: Number) -> Option<DType> {
    match (a, b) {
        (Number::Of(a), Number::Of(b)) => (a == b).then_some(a),
        (Number::Of(dtype), Number::Literal(value)) | (Number::Literal(value), Number::Of(dtype)) => {
            let fits = match dtype {
                DType::Bool => (0..=1).contains(&value),
                DType::U8 => u8::try_from(value).is_ok(),
                DType::I8 => i8::try_from(value).is_ok(),
                DType::I16 => i16::try_from(value).is_ok(),
                _wider => false,
            };
            fits.then_some(dtype)
        }
        (Number::Literal(_) | Number::LowBits, Number::Literal(_)) | (_, Number::LowBits) | (Number::LowBits, _) => {
            None
        }
    }
}

/// Memory for results of steps, and for numbers, which are repeated.
struct Tiles {
    memory: Vec<u8>,
    /// Bytes of a tile.
    pitch: usize,
    bytes: usize,
    /// Where the tile of each number is, by step and side; those of steps come first.
    numbers: SmallVec<[[Option<usize>; 2]; 2]>,
}

impl Tiles {
    fn new(narrow: &Narrow, geometry: &Geometry, elements: usize) -> Tiles {
        let mut n_tiles = narrow.steps.len() - 1;
        let mut number = |arg: &Arg| {
            let is_number = match *arg {
                Arg::Operand(slot) => geometry.lane_stride(&geometry.operands[slot]) == 0,
                Arg::Number(_) => true,
                Arg::Step(_) => false,
            };
            n_tiles += usize::from(is_number);
            is_number.then(|| n_tiles - 1)
        };
        let numbers = narrow.steps.iter().map(|step| [number(&step.args[0]), number(&step.args[1])]).collect();
        let pitch = elements * narrow.bytes;
        Tiles { memory: vec![0; n_tiles * pitch], pitch, bytes: narrow.bytes, numbers }
    }

    fn of_step(&mut self, step: usize) -> *mut u8 {
        self.memory.as_mut_ptr().wrapping_add(step * self.pitch)
    }

    fn of_number(&mut self, step: usize, side: usize) -> *mut u8 {
        let at = self.numbers[step][side].unwrap_or(0);
        self.memory.as_mut_ptr().wrapping_add(at * self.pitch)
    }

    /// Repeats the numbers of a row in their tiles.
    ///
    /// # Safety
    /// The element at each operand's address is alive.
    unsafe fn repeat(&mut self, narrow: &Narrow, of_operand: impl Fn(usize) -> (*const u8, usize)) {
        for (step, places) in narrow.steps.iter().zip(&self.numbers) {
            for (arg, place) in step.args.iter().zip(places) {
                let Some(at) = *place else { continue };
                let mut element = [0; 2];
                match *arg {
                    Arg::Number(number) => element = number.to_le_bytes(),
                    // SAFETY: the caller vouches for it.
                    Arg::Operand(slot) => unsafe {
                        std::ptr::copy_nonoverlapping(of_operand(slot).0, element.as_mut_ptr(), self.bytes);
                    },
                    Arg::Step(_) => {}
                }
                let tile = &mut self.memory[at * self.pitch..][..self.pitch];
                match self.bytes {
                    1 => tile.fill(element[0]),
                    _ => tile.chunks_exact_mut(2).for_each(|place| place.copy_from_slice(&element)),
                }
            }
        }
    }
}

/// A whole number of a width.
trait Whole: Copy {
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    /// 1 or 0, as the three below.
    fn lt(self, other: Self) -> Self;
    fn le(self, other: Self) -> Self;
    fn eq(self, other: Self) -> Self;
    fn ne(self, other: Self) -> Self;
}

macro_rules! whole {
    ($($int:ident)*) => {$(
        impl Whole for $int {
            #[inline(always)]
            fn add(self, other: $int) -> $int {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: $int) -> $int {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, other: $int) -> $int {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn and(self, other: $int) -> $int {
                self & other
            }
            #[inline(always)]
            fn or(self, other: $int) -> $int {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: $int) -> $int {
                self ^ other
            }
            #[inline(always)]
            fn max(self, other: $int) -> $int {
                Ord::max(self, other)
            }
            #[inline(always)]
            fn min(self, other: $int) -> $int {
                Ord::min(self, other)
            }
            #[inline(always)]
            fn lt(self, other: $int) -> $int {
                $int::from(self < other)
            }
            #[inline(always)]
            fn le(self, other: $int) -> $int {
                $int::from(self <= other)
            }
            #[inline(always)]
            fn eq(self, other: $int) -> $int {
                $int::from(self == other)
            }
            #[inline(always)]
            fn ne(self, other: $int) -> $int {
                $int::from(self != other)
            }
        }
    )*};
}
whole! { u8 i8 i16 }

/// The routine of a prim for numbers of a dtype, if there is one.
fn routine_for(isa: Isa, dtype: DType, prim: Prim) -> Option<Routine> {
    match dtype {
        DType::Bool | DType::U8 => routine_of::<u8>(isa, prim),
        DType::I8 => routine_of::<i8>(isa, prim),
        DType::I16 => routine_of::<i16>(isa, prim),
        _wider => None,
    }
}

/// The routine of a prim, if there is one.
fn routine_of<T: Whole>(isa: Isa, prim: Prim) -> Option<Routine> {
    Some(match prim {
        Prim::Add => pick!(self, isa, add::<T>),
        Prim::Sub => pick!(self, isa, sub::<T>),
        Prim::Mul => pick!(self, isa, mul::<T>),
        Prim::And => pick!(self, isa, and::<T>),
        Prim::Or => pick!(self, isa, or::<T>),
        Prim::Xor => pick!(self, isa, xor::<T>),
        Prim::Max => pick!(self, isa, max::<T>),
        Prim::Min => pick!(self, isa, min::<T>),
        Prim::Lt => pick!(self, isa, lt::<T>),
        Prim::Le => pick!(self, isa, le::<T>),
        Prim::Eq => pick!(self, isa, eq::<T>),
        Prim::Ne => pick!(self, isa, ne::<T>),
        _others => return None,
    })
}

/// Elements that are read before their results are written.
const BLOCK: usize = 64;

/// # Safety
/// See [`Routine`].
#[inline(always)]
unsafe fn each<T: Whole>(a: *const T, b: *const T, to: *mut T, n: usize, operation: impl Fn(T, T) -> T) {
    let whole = n / BLOCK * BLOCK;
    // SAFETY: the caller vouches for the elements. A block is read as a whole before its results are written.
    unsafe {
        for at in (0..whole).step_by(BLOCK) {
            let a = a.add(at).cast::<[T; BLOCK]>().read_unaligned();
            let b = b.add(at).cast::<[T; BLOCK]>().read_unaligned();
            // By index, because arrays that are consumed do not become vectors of 32 bytes.
            let results: [T; BLOCK] = std::array::from_fn(|index| operation(a[index], b[index]));
            to.add(at).cast::<[T; BLOCK]>().write_unaligned(results);
        }
        for at in whole..n {
            to.add(at).write_unaligned(operation(a.add(at).read_unaligned(), b.add(at).read_unaligned()));
        }
    }
}

/// Instantiates the loops for one instruction set.
macro_rules! level {
    ($level:ident $features:tt) => {
        mod $level {
            use super::{Whole, each};

            level!(@ $features add);
            level!(@ $features sub);
            level!(@ $features mul);
            level!(@ $features and);
            level!(@ $features or);
            level!(@ $features xor);
            level!(@ $features max);
            level!(@ $features min);
            level!(@ $features lt);
            level!(@ $features le);
            level!(@ $features eq);
            level!(@ $features ne);
        }
    };
    (@ ($($feature:literal)?) $name:ident) => {
        /// # Safety
        /// See [`super::Routine`], for elements of type `T`.
        $(#[target_feature(enable = $feature)])?
        pub(super) unsafe fn $name<T: Whole>(a: *const u8, b: *const u8, to: *mut u8, n: usize) {
            // SAFETY: passed on from the caller.
            unsafe { each::<T>(a.cast(), b.cast(), to.cast(), n, T::$name) }
        }
    };
}

level!(baseline());
#[cfg(target_arch = "x86_64")]
level!(avx2("avx2"));
#[cfg(target_arch = "x86_64")]
level!(avx512("avx512f,avx512bw,avx512dq,avx512vl,avx2"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::interp;
    use crate::codegen::kernel::{Level, Operand, Output};
    use crate::codegen::launch::Faults;
    use crate::ir::scalar::{Lit, Reg};
    use smallvec::smallvec;

    /// `max(-(a * b - 7), b) & !a`, wrapped after each step as lowering does.
    fn kernel(dtype: DType, wrap: Prim) -> Kernel {
        let mut insts: Vec<Inst> = Vec::new();
        let mut push = |kind, args: &[usize]| {
            let args = args.iter().map(|&arg| Reg::new(arg)).collect();
            let level = if matches!(kind, Kind::Lit(_)) { Level::Row } else { Level::Full };
            insts.push(Inst { kind, args, ty: Ty::I32, level });
            insts.len() - 1
        };
        let [a, b, seven] = [Kind::Load(0), Kind::Load(1), Kind::Lit(Lit::i32(7))].map(|kind| push(kind, &[]));
        let mut prim = |prim, args: &[usize]| {
            let value = push(Kind::Prim(prim), args);
            push(Kind::Prim(wrap), &[value])
        };
        let product = prim(Prim::Mul, &[a, b]);
        let less = prim(Prim::Sub, &[product, seven]);
        let negative = prim(Prim::Neg, &[less]);
        let mixed = prim(Prim::Max, &[negative, b]);
        let inverse = prim(Prim::Not, &[a]);
        let result = prim(Prim::And, &[mixed, inverse]);
        let operand = Operand { dtype, source: Source::Memory };
        Kernel { operands: vec![operand; 2], insts, outputs: vec![Output { dtype, value: Reg::new(result) }] }
    }

    /// Runs a kernel of two operands on both sides, with the second one the same for all elements too.
    fn check(kernel: &Kernel, bytes: usize) {
        let access = |stride: usize| Access { inner: smallvec![stride], ..Access::default() };
        assert_eq!(kernel.verify(), Ok(()));
        let memory: Vec<u8> = (0..6000u32 * bytes as u32).map(|i| ((i * 73) >> 2) as u8).collect();
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let narrow = Narrow::of(isa, kernel, Lanes::Inner).expect("it has such steps alone");
            for (n, second) in [(0, bytes), (1, bytes), (63, bytes), (64, 0), (65, bytes), (2999, 0), (5000, bytes)] {
                let geometry = Geometry {
                    rows: smallvec![],
                    inner: smallvec![n],
                    operands: [access(bytes), access(second)].into_iter().collect(),
                    outputs: [access(bytes)].into_iter().collect(),
                    lanes: Lanes::Inner,
                };
                let (from, mut expected) = ([&memory[..], &memory[3 * bytes..]], vec![0; n * bytes]);
                interp::run(kernel, &geometry, &from, &mut [&mut expected], &Faults::new());
                let mut found = vec![0; n * bytes];
                let operands = from.map(<[u8]>::as_ptr);
                let pointers = Pointers { operands: &operands, outputs: &[found.as_mut_ptr()] };
                let part = Part { outer: 0..1, lanes: 0..n };
                // SAFETY: operands and output have so many elements, or one where the stride is 0.
                assert!(unsafe { narrow.run(&geometry, pointers, &part) });
                assert_eq!(found, expected, "{n} elements, {isa:?}\n{kernel}");
            }
        }
    }

    #[test]
    fn narrow_steps_have_the_bits_of_the_computation_type() {
        for (dtype, wrap) in [(DType::U8, Prim::WrapU8), (DType::I8, Prim::WrapI8), (DType::I16, Prim::WrapI16)] {
            check(&kernel(dtype, wrap), dtype.size());
        }
    }

    /// `a < b` or the like, or a comparison with a number.
    fn comparison(dtype: DType, prim: Prim, number: Option<i32>) -> Kernel {
        let inst = |kind, args: &[usize], ty, level| Inst {
            kind,
            args: args.iter().map(|&arg| Reg::new(arg)).collect(),
            ty,
            level,
        };
        let second = match number {
            Some(number) => inst(Kind::Lit(Lit::i32(number)), &[], Ty::I32, Level::Row),
            None => inst(Kind::Load(1), &[], Ty::I32, Level::Full),
        };
        let first = inst(Kind::Load(0), &[], Ty::I32, Level::Full);
        let insts = vec![first, second, inst(Kind::Prim(prim), &[0, 1], Ty::Bool, Level::Full)];
        let outputs = vec![Output { dtype: DType::Bool, value: Reg::new(2) }];
        Kernel { operands: vec![Operand { dtype, source: Source::Memory }; 2], insts, outputs }
    }

    #[test]
    fn numbers_are_compared_with_their_sign() {
        for prim in [Prim::Lt, Prim::Le, Prim::Eq, Prim::Ne] {
            for (dtype, number) in [(DType::U8, 200), (DType::I8, -100)] {
                check(&comparison(dtype, prim, None), 1);
                check(&comparison(dtype, prim, Some(number)), 1);
            }
            // A number out of range, and results that are narrower than operands.
            for (dtype, number) in [(DType::U8, Some(-1)), (DType::I8, Some(128)), (DType::I16, None)] {
                assert!(Narrow::of(Isa::best(), &comparison(dtype, prim, number), Lanes::Inner).is_none());
            }
        }
    }

    #[test]
    fn other_kernels_are_left_to_the_interpreter() {
        let of = |kernel: &Kernel| Narrow::of(Isa::best(), kernel, Lanes::Inner).is_some();
        let takes = kernel(DType::U8, Prim::WrapU8);
        assert!(of(&takes));
        // A wider operand has other bits, and a wrapped one of another width is no whole number of two bytes.
        let mut wider = takes.clone();
        wider.operands[1].dtype = DType::I32;
        assert!(!of(&wider) && !of(&kernel(DType::I16, Prim::WrapU8)));
        // The order of two numbers depends on high bits, which are not known before they are wrapped.
        let mut compares = takes;
        let wrapped = compares.insts.len() - 1;
        assert_eq!(compares.insts[wrapped].kind, Kind::Prim(Prim::WrapU8));
        compares.insts[wrapped - 1].kind = Kind::Prim(Prim::Max);
        assert!(of(&compares), "both were wrapped");
        compares.insts[wrapped - 1].args[0] = Reg::new(3);
        assert!(!of(&compares), "the product was not");
    }
}
