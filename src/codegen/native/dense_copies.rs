//! Copies of short runs of bytes, for which a call each would take longer than the copy.

#![allow(unsafe_code, reason = "copies between addresses that callers vouch for")]

/// Copies so many bytes for each pair of addresses. Runs are often so short that a call for each would take longer.
///
/// # Safety
/// All bytes are alive, those of second addresses writable, and none are in two pairs. Both addresses of a pair may be
/// the same.
#[inline(always)]
pub(in crate::codegen) unsafe fn copy_dense(pairs: impl Iterator<Item = (*const u8, *mut u8)>, bytes: usize) {
    type Block = [u8; 16];
    type Wide = [u8; 32];
    // SAFETY: passed on from the caller.
    unsafe {
        match bytes {
            1 => blocks::<u8, 0>(pairs, bytes),
            2 => blocks::<u16, 0>(pairs, bytes),
            3 => blocks::<u16, 1>(pairs, bytes),
            4 => blocks::<u32, 0>(pairs, bytes),
            5..=7 => blocks::<u32, 1>(pairs, bytes),
            8 => blocks::<u64, 0>(pairs, bytes),
            9..=15 => blocks::<u64, 1>(pairs, bytes),
            16 => blocks::<Block, 0>(pairs, bytes),
            32 => blocks::<Wide, 0>(pairs, bytes),
            17..=31 => blocks::<Block, 1>(pairs, bytes),
            33..=48 => blocks::<Block, 2>(pairs, bytes),
            49..=64 => blocks::<Block, 3>(pairs, bytes),
            65..=96 => blocks::<Wide, 2>(pairs, bytes),
            97..=128 => blocks::<Wide, 3>(pairs, bytes),
            129..=160 => blocks::<Wide, 4>(pairs, bytes),
            161..=192 => blocks::<Wide, 5>(pairs, bytes),
            193..=224 => blocks::<Wide, 6>(pairs, bytes),
            _ => pairs.for_each(|(from, to)| std::ptr::copy(from, to, bytes)),
        }
    }
}

/// Copies `N` blocks of type `T`, and one that ends where the bytes do.
///
/// # Safety
/// As for [`copy_dense`]. There are as many bytes as in those blocks, and at least those of one.
#[inline(always)]
unsafe fn blocks<T: Copy, const N: usize>(pairs: impl Iterator<Item = (*const u8, *mut u8)>, bytes: usize) {
    let last = bytes - size_of::<T>();
    for (from, to) in pairs {
        // SAFETY: passed on from the caller.
        let copy = |at: usize| unsafe {
            to.add(at).cast::<T>().write_unaligned(from.add(at).cast::<T>().read_unaligned());
        };
        (0..N).for_each(|nth| copy(nth * size_of::<T>()));
        copy(last);
    }
}

/// Copies so many bytes `count` times, one copy after the other.
///
/// # Safety
/// All bytes are alive, and those of the copies may be written.
pub(super) unsafe fn repeat(from: *const u8, to: *mut u8, bytes: usize, count: usize) {
    let pairs = (0..count).map(|nth| (from, to.wrapping_add(nth * bytes)));
    // SAFETY: passed on from the caller.
    unsafe { copy_dense(pairs, bytes) };
}
