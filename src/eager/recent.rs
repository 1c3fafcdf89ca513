//! The recent calls of a thread, whose executables are found without comparing shapes.
//!
//! Most calls repeat with operands whose layouts are interned ([`SharedLayout`]), so the address of a layout identifies
//! sizes and strides. A call hashes to one place in a small table, which holds the last call with that hash. Other
//! calls, and those with more operands, are looked up by [`CallKey`](crate::ir::CallKey).

use super::Argument;
use crate::device::DeviceKind;
use crate::ir::{Attr, Op};
use crate::runtime::{Executable, Single};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

/// Places in a thread's table.
const PLACES: usize = 128;
/// Most operands of a call in the table.
const MAX_OPERANDS: usize = 3;

/// The key of a call, besides its other arguments: the op, the use of the result, and the dtype and kind of each
/// operand; then the address of each operand's layout, or 0.
type Words = [u64; 1 + MAX_OPERANDS];

struct Recent {
    words: Words,
    attrs: SmallVec<[Attr; 1]>,
    executable: Arc<Executable>,
}

thread_local! {
    /// Empty until the first call is kept.
    static RECENT: RefCell<Vec<Option<Recent>>> = const { RefCell::new(Vec::new()) };
}

/// The key of a call, if its operands are few, on the CPU, and have interned layouts.
#[inline(always)]
fn words_of(op: Op, arguments: &[Argument<'_>], result: Use) -> Option<Words> {
    if arguments.len() > MAX_OPERANDS {
        return None;
    }
    let mut words = [op as u64 | (result as u64) << (u64::BITS - 1), 0, 0, 0];
    for (index, Argument { array, number }) in arguments.iter().enumerate() {
        if array.storage.device().kind != DeviceKind::Cpu {
            return None;
        }
        words[0] |= (array.dtype as u64 | 0x40 | (*number as u64) << 7) << (32 + 8 * index);
        words[1 + index] = array.layout.kept_address()? as u64;
    }
    Some(words)
}

/// The place of a call. Most calls differ in op or first operand.
#[inline(always)]
fn place(words: &Words) -> usize {
    let mixed = words[0].wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ (words[1] ^ words[2].rotate_left(16)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> (u64::BITS - PLACES.ilog2())) as usize
}

#[inline(always)]
fn are_same(one: &[Attr], other: &[Attr]) -> bool {
    match (one, other) {
        ([], []) => true,
        ([Attr::Scalar(one)], [Attr::Scalar(other)]) => one == other,
        (one, other) => one == other,
    }
}

/// What happens to the result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// It is new memory.
    Made,
    /// It replaces the first operand.
    Written,
}

/// Calls `run` with the kernel of the call, if the table has it.
#[inline(always)]
pub(super) fn with<R>(
    op: Op,
    arguments: &[Argument<'_>],
    attrs: &[Attr],
    result: Use,
    run: impl FnOnce(&Single) -> R,
) -> Option<R> {
    let [call, a, b, c] = words_of(op, arguments, result)?;
    with_words(call, a, b, c, attrs, run)
}

/// Like [`with`], by the key of the call. Not inlined, so that the key is passed in registers: reading recently written
/// words in wider pieces stalls the processor.
#[inline(never)]
fn with_words<R>(call: u64, a: u64, b: u64, c: u64, attrs: &[Attr], run: impl FnOnce(&Single) -> R) -> Option<R> {
    // The borrow may last while a kernel runs, because kernels do not call this module.
    RECENT.with_borrow(|recent| {
        let recent = recent.get(place(&[call, a, b, c]))?.as_ref()?;
        if recent.words != [call, a, b, c] || !are_same(&recent.attrs, attrs) {
            return None;
        }
        recent.executable.single().map(run)
    })
}

/// Puts the executable of a call in the table.
pub(super) fn keep(op: Op, arguments: &[Argument<'_>], attrs: &[Attr], result: Use, executable: &Arc<Executable>) {
    let Some(words) = words_of(op, arguments, result) else { return };
    let new = Recent { words, attrs: attrs.into(), executable: executable.clone() };
    let old = RECENT.with_borrow_mut(|recent| {
        if recent.is_empty() {
            recent.resize_with(PLACES, || None);
        }
        recent[place(&words)].replace(new)
    });
    // Dropped after the borrow, because it may own anything.
    drop(old);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, Storage};
    use crate::ir::{DType, Layout};
    use crate::runtime::{Array, SharedLayout};
    use std::collections::HashSet;

    fn array(dtype: DType, layout: Layout, device: Device) -> Array {
        let storage = Storage::new(device, 1024).expect("memory is there");
        Array { storage: storage.into(), dtype, layout: SharedLayout::frequent(layout) }
    }

    /// Calls with different op, dtype, layout, kind or number of operands have different keys.
    #[test]
    fn different_calls_have_different_words() {
        let layouts = [Layout::default(), Layout::contiguous(&[4]), Layout::contiguous(&[2, 2])];
        let dtypes = DType::ALL.iter();
        let arrays: Vec<Array> = dtypes
            .flat_map(|&dtype| layouts.iter().map(move |layout| array(dtype, layout.clone(), Device::CPU)))
            .collect();
        let arguments: Vec<Argument<'_>> =
            arrays.iter().flat_map(|array| [false, true].map(|number| Argument { array, number })).collect();
        let (mut seen, mut n_calls) = (HashSet::new(), 0);
        let mut call = |op, arguments: &[Argument<'_>]| {
            n_calls += 2;
            seen.extend([Use::Made, Use::Written].map(|result| words_of(op, arguments, result).expect("it is kept")));
        };
        for op in [Op::Add, Op::Sub, *Op::ALL.last().expect("there are ops")] {
            call(op, &[]);
            for &a in &arguments {
                call(op, &[a]);
                for &b in &arguments {
                    call(op, &[a, b]);
                    call(op, &[arguments[0], a, b]);
                }
            }
        }
        assert_eq!(seen.len(), n_calls);
    }

    #[test]
    fn some_calls_are_not_kept() {
        let kept = array(DType::F32, Layout::contiguous(&[4]), Device::CPU);
        let meta = array(DType::F32, Layout::contiguous(&[4]), Device::META);
        let counted = Array { layout: Layout::contiguous(&[4]).into(), ..kept.clone() };
        let of = |array| Argument { array, number: false };
        assert!(words_of(Op::Neg, &[of(&kept)], Use::Made).is_some());
        assert!(
            words_of(Op::Neg, &[of(&meta)], Use::Made).is_none()
                && words_of(Op::Neg, &[of(&counted)], Use::Made).is_none()
        );
        assert!(words_of(Op::Cat, &[of(&kept); 4], Use::Made).is_none());
    }
}
