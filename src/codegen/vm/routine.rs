//! How a scalar operation becomes a routine over a tile: one source, compiled for three instruction sets.
//!
//! A routine runs over `n` elements in blocks of [`BLOCK`]. The last, partial block is computed on copies. So no
//! routine has a scalar remainder, and none accesses memory past an operand. A uniform operand is one block that holds
//! its element [`BLOCK`] times, with step 0.

#![allow(unsafe_code, reason = "tiles are raw memory, and vector instructions are chosen at run time")]

use super::isa::Isa;
use super::plan::Line;
use std::mem::MaybeUninit;

/// Elements of a block.
pub(super) const BLOCK: usize = 64;

/// An operand or result of a routine.
#[derive(Debug, Clone, Copy)]
pub(super) struct TileOperand {
    /// Its first element.
    pub(super) ptr: *mut u8,
    /// Elements from one block to the next: [`BLOCK`], or 0 for a block that stands for all.
    pub(super) step: usize,
}

/// The arguments of a routine.
///
/// For every routine: `dst` has room for `n` results; each source with step `BLOCK` holds `n` elements, each with step
/// 0 holds `BLOCK`; all are aligned to their element types, and the processor has the routine's instructions. A source
/// may start at `dst`, if it has step `BLOCK` and its elements have the size of a result: then each result replaces its
/// operand. Otherwise `dst` overlaps no source.
#[derive(Debug)]
pub(super) struct Call {
    /// Where the results are written.
    pub(super) dst: *mut u8,
    /// The operands. Those that the routine lacks repeat another.
    pub(super) src: [TileOperand; 3],
    /// The number of elements.
    pub(super) n: usize,
}

/// A precompiled loop. Calling it is sound under the conditions of [`Call`].
pub(super) type Routine = unsafe fn(&Call);

/// An operation on one element.
pub(super) trait Unary {
    type A: Copy + Default;
    type Out: Copy + Default;
    fn apply(a: Self::A) -> Self::Out;
    /// Whether [`Unary::apply_usual`] applies to this operand. By default it never does.
    #[inline(always)]
    fn is_usual(_: Self::A) -> bool {
        true
    }
    /// Like `apply`, with the same bits, but only for usual operands.
    #[inline(always)]
    fn apply_usual(a: Self::A) -> Self::Out {
        Self::apply(a)
    }
}

/// An operation on two elements.
pub(super) trait Binary {
    type A: Copy + Default;
    type B: Copy + Default;
    type Out: Copy + Default;
    /// Whether [`Binary::usual`] is quicker than [`Binary::apply`].
    const HAS_USUAL: bool = false;
    fn apply(a: Self::A, b: Self::B) -> Self::Out;
    /// The result without branches, so that vectors compute it, and whether it is right.
    #[inline(always)]
    fn usual(a: Self::A, b: Self::B) -> (Self::Out, bool) {
        (Self::apply(a, b), true)
    }
}

/// An operation on three elements.
pub(super) trait Ternary {
    type A: Copy + Default;
    type B: Copy + Default;
    type C: Copy + Default;
    type Out: Copy + Default;
    fn apply(a: Self::A, b: Self::B, c: Self::C) -> Self::Out;
}

/// Runs a routine on the last, partial block, through copies. `sizes` are the bytes of an element of each operand, 0
/// for those that the routine lacks, and of a result.
///
/// # Safety
/// As for the routine, with `n` less than [`BLOCK`].
pub(super) unsafe fn edge(rest: &Call, sizes: [usize; 3], out_size: usize, routine: Routine) {
    const LINES: usize = BLOCK * size_of::<u64>() / Line::BYTES;
    let mut copies = [[Line::ZERO; LINES]; 3];
    let mut out = [Line::ZERO; LINES];
    let mut call = Call { dst: out.as_mut_ptr().cast(), src: rest.src, n: BLOCK };
    for ((src, copy), size) in call.src.iter_mut().zip(&mut copies).zip(sizes) {
        if src.step > 0 {
            let copy = copy.as_mut_ptr().cast();
            // SAFETY: `n` elements are left in the operand, and a copy has room for a block of the largest.
            unsafe { std::ptr::copy_nonoverlapping(src.ptr, copy, rest.n * size) };
            src.ptr = copy;
        }
    }
    // SAFETY: every operand is one whole block now, and so is the result; zero bytes are a value of every type.
    unsafe {
        routine(&call);
        std::ptr::copy_nonoverlapping(call.dst, rest.dst, rest.n * out_size);
    }
}

/// A block to read while results are written to `dst`: a copy if they replace it. Then nothing else refers to the
/// block, so results may be written through a reference of their own.
///
/// # Safety
/// A block is at `from`, aligned. It starts where the block at `dst` does, or does not overlap it.
#[inline(always)]
unsafe fn apart<T: Copy, Out>(from: *const T, dst: *const Out, copy: &mut MaybeUninit<[T; BLOCK]>) -> &[T; BLOCK] {
    let block = from.cast::<[T; BLOCK]>();
    // SAFETY: the caller vouches for the block; one that is not copied is not written to while it is referred to.
    unsafe { if from.addr() == dst.addr() { copy.write(block.read()) } else { &*block } }
}

/// Instantiates the loops for one instruction set. References to whole blocks tell the compiler that results and
/// operands do not overlap; see [`apart`].
macro_rules! level {
    ($level:ident $(, $feature:literal)?) => {
        pub(super) mod $level {
            use super::{BLOCK, Binary, Call, MaybeUninit, TileOperand, Ternary, Unary, apart, edge};

            $(#[target_feature(enable = $feature)])?
            #[inline]
            fn block1<O: Unary>(out: &mut [O::Out; BLOCK], a: &[O::A; BLOCK]) {
                if a.iter().fold(true, |all, &a| all & O::is_usual(a)) {
                    for i in 0..BLOCK {
                        out[i] = O::apply_usual(a[i]);
                    }
                } else {
                    for i in 0..BLOCK {
                        out[i] = O::apply(a[i]);
                    }
                }
            }

            $(#[target_feature(enable = $feature)])?
            #[inline]
            fn block2<O: Binary>(out: &mut [O::Out; BLOCK], a: &[O::A; BLOCK], b: &[O::B; BLOCK]) {
                if O::HAS_USUAL {
                    let mut n_right = 0;
                    for i in 0..BLOCK {
                        let (value, is_right) = O::usual(a[i], b[i]);
                        out[i] = value;
                        n_right += u32::from(is_right);
                    }
                    if n_right == BLOCK as u32 {
                        return;
                    }
                }
                for i in 0..BLOCK {
                    out[i] = O::apply(a[i], b[i]);
                }
            }

            $(#[target_feature(enable = $feature)])?
            #[inline]
            fn block3<O: Ternary>(out: &mut [O::Out; BLOCK], a: &[O::A; BLOCK], b: &[O::B; BLOCK], c: &[O::C; BLOCK]) {
                for i in 0..BLOCK {
                    out[i] = O::apply(a[i], b[i], c[i]);
                }
            }

            /// # Safety
            /// See [`Call`].
            $(#[target_feature(enable = $feature)])?
            pub(in super::super) unsafe fn map1<O: Unary>(call: &Call) {
                let (mut out, mut a, step) = (call.dst.cast::<O::Out>(), call.src[0].ptr.cast::<O::A>(), call.src[0].step);
                let mut copy = MaybeUninit::uninit();
                for _ in 0..call.n / BLOCK {
                    // SAFETY: there are `n / BLOCK` aligned whole blocks; those that overlap results are copied.
                    unsafe {
                        let block = apart(a, out, &mut copy);
                        block1::<O>(&mut *out.cast(), block);
                        (out, a) = (out.add(BLOCK), a.add(step));
                    }
                }
                let n = call.n % BLOCK;
                if n > 0 {
                    let src = [TileOperand { ptr: a.cast(), step }, call.src[1], call.src[2]];
                    let rest = Call { dst: out.cast(), src, n };
                    // SAFETY: `n` elements are left in the operands and in `out`.
                    unsafe { edge(&rest, [size_of::<O::A>(), 0, 0], size_of::<O::Out>(), map1::<O>) }
                }
            }

            /// # Safety
            /// See [`Call`].
            $(#[target_feature(enable = $feature)])?
            pub(in super::super) unsafe fn map2<O: Binary>(call: &Call) {
                let [a, b, _] = call.src;
                let mut out = call.dst.cast::<O::Out>();
                let (mut pa, mut pb) = (a.ptr.cast::<O::A>(), b.ptr.cast::<O::B>());
                let mut copies = (MaybeUninit::uninit(), MaybeUninit::uninit());
                for _ in 0..call.n / BLOCK {
                    // SAFETY: there are `n / BLOCK` aligned whole blocks; those that overlap results are copied.
                    unsafe {
                        let blocks = (apart(pa, out, &mut copies.0), apart(pb, out, &mut copies.1));
                        block2::<O>(&mut *out.cast(), blocks.0, blocks.1);
                        (out, pa, pb) = (out.add(BLOCK), pa.add(a.step), pb.add(b.step));
                    }
                }
                let n = call.n % BLOCK;
                if n > 0 {
                    let src = [TileOperand { ptr: pa.cast(), step: a.step }, TileOperand { ptr: pb.cast(), step: b.step }, call.src[2]];
                    let rest = Call { dst: out.cast(), src, n };
                    // SAFETY: `n` elements are left in the operands and in `out`.
                    unsafe { edge(&rest, [size_of::<O::A>(), size_of::<O::B>(), 0], size_of::<O::Out>(), map2::<O>) }
                }
            }

            /// # Safety
            /// See [`Call`].
            $(#[target_feature(enable = $feature)])?
            pub(in super::super) unsafe fn map3<O: Ternary>(call: &Call) {
                let [a, b, c] = call.src;
                let mut out = call.dst.cast::<O::Out>();
                let (mut pa, mut pb, mut pc) = (a.ptr.cast::<O::A>(), b.ptr.cast::<O::B>(), c.ptr.cast::<O::C>());
                let mut copies = (MaybeUninit::uninit(), MaybeUninit::uninit(), MaybeUninit::uninit());
                for _ in 0..call.n / BLOCK {
                    // SAFETY: there are `n / BLOCK` aligned whole blocks; those that overlap results are copied.
                    unsafe {
                        let blocks = (apart(pa, out, &mut copies.0), apart(pb, out, &mut copies.1));
                        block3::<O>(&mut *out.cast(), blocks.0, blocks.1, apart(pc, out, &mut copies.2));
                        (out, pa, pb, pc) = (out.add(BLOCK), pa.add(a.step), pb.add(b.step), pc.add(c.step));
                    }
                }
                let n = call.n % BLOCK;
                if n > 0 {
                    let src = [TileOperand { ptr: pa.cast(), step: a.step }, TileOperand { ptr: pb.cast(), step: b.step }, TileOperand { ptr: pc.cast(), step: c.step }];
                    let rest = Call { dst: out.cast(), src, n };
                    // SAFETY: `n` elements are left in the operands and in `out`.
                    unsafe { edge(&rest, [size_of::<O::A>(), size_of::<O::B>(), size_of::<O::C>()], size_of::<O::Out>(), map3::<O>) }
                }
            }
        }
    };
}

level!(baseline);
#[cfg(target_arch = "x86_64")]
level!(avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
level!(avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma");

/// The instance of a loop for an instruction set: `pick!(self, isa, map2::<Add<f32>>)`. The first argument is the
/// module with the instances.
macro_rules! pick {
    ($module:ident, $isa:expr, $map:ident :: < $op:ty >) => {
        match $isa {
            $crate::codegen::vm::isa::Isa::Baseline => $module::baseline::$map::<$op> as _,
            #[cfg(target_arch = "x86_64")]
            $crate::codegen::vm::isa::Isa::Avx2 => $module::avx2::$map::<$op> as _,
            #[cfg(target_arch = "x86_64")]
            $crate::codegen::vm::isa::Isa::Avx512 => $module::avx512::$map::<$op> as _,
            #[cfg(not(target_arch = "x86_64"))]
            $crate::codegen::vm::isa::Isa::Avx2 | $crate::codegen::vm::isa::Isa::Avx512 => {
                $module::baseline::$map::<$op> as _
            }
        }
    };
}
pub(super) use pick;

/// The routine of an operation on one element.
pub(super) fn map1<O: Unary>(isa: Isa) -> Routine {
    pick!(self, isa, map1::<O>)
}

/// The routine of an operation on two elements.
pub(super) fn map2<O: Binary>(isa: Isa) -> Routine {
    pick!(self, isa, map2::<O>)
}

/// The routine of an operation on three elements.
pub(super) fn map3<O: Ternary>(isa: Isa) -> Routine {
    pick!(self, isa, map3::<O>)
}

#[cfg(test)]
mod tests {
    use super::super::operations as op;
    use super::*;

    const N_MOST: usize = 200;

    fn numbers(seed: usize) -> [f32; N_MOST] {
        std::array::from_fn(|i| ((i * 37 + seed * 11) % 101) as f32 - 50.25)
    }

    /// Runs a routine on three operands, of which those `replaced` hold the same numbers; with `in_place`, these are
    /// where the result is.
    fn run(routine: Routine, n: usize, replaced: [bool; 3], in_place: bool) -> Vec<u32> {
        let mut operands = [1, 2, 3].map(|seed| if replaced[seed - 1] { numbers(0) } else { numbers(seed) });
        let mut target = if in_place { numbers(0) } else { [0.0; N_MOST] };
        let dst: *mut u8 = target.as_mut_ptr().cast();
        let [a, b, c] = &mut operands;
        let mut src = [a, b, c].map(|operand| TileOperand { ptr: operand.as_mut_ptr().cast(), step: BLOCK });
        for (place, _) in src.iter_mut().zip(replaced).filter(|(_, replaced)| in_place && *replaced) {
            place.ptr = dst;
        }
        // SAFETY: all hold that many elements, operands that overlap the result start where it does, and the level is
        // available.
        unsafe { routine(&Call { dst, src, n }) };
        target[..n].iter().map(|value| value.to_bits()).collect()
    }

    /// Miri also checks that references do not overlap (`cargo +nightly miri test --lib vm::routine`).
    #[test]
    fn results_may_take_the_place_of_operands() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let routines = [map1::<op::Sin<f32>>(isa), map2::<op::Sub<f32>>(isa), map3::<op::Fma<f32>>(isa)];
            for (routine, which) in routines.into_iter().flat_map(|routine| (0..8).map(move |which| (routine, which))) {
                let replaced = [0, 1, 2].map(|operand| which >> operand & 1 == 1);
                for n in [1, BLOCK - 1, BLOCK, 2 * BLOCK, N_MOST] {
                    let [apart, in_place] = [false, true].map(|in_place| run(routine, n, replaced, in_place));
                    assert!(apart == in_place, "{isa:?}, {n} elements, {replaced:?}");
                }
            }
        }
    }
}
