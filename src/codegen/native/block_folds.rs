//! The one function that compiled code calls back: the fold of block results.

#![allow(unsafe_code, reason = "reads and writes block results at an address that compiled code passes")]

use crate::codegen::fold::{self, FoldValue};
use crate::ir::Combine;
use crate::ir::scalar::Ty;

const COMBINES: [Combine; 8] = [
    Combine::Sum,
    Combine::Prod,
    Combine::Max,
    Combine::Min,
    Combine::Any,
    Combine::All,
    Combine::ArgMax,
    Combine::ArgMin,
];

/// A fold as a number for [`fold_blocks`].
pub(in crate::codegen) fn fold_code(combine: Combine, ty: Ty) -> u64 {
    (combine as usize * Ty::ALL.len() + ty as usize) as u64
}

/// A block result as generated code writes it.
#[repr(C)]
struct BlockResult {
    bits: u64,
    index: i64,
}

/// The address of the function that generated code calls to fold block results.
pub(in crate::codegen) fn fold_blocks_address() -> u64 {
    fold_blocks as *const () as u64
}

/// Folds `n` block results in the canonical order and leaves the fold's result in the first one's bits.
unsafe extern "C" fn fold_blocks(code: u64, blocks: *mut BlockResult, n: u64) {
    let (combine, ty) = (COMBINES[code as usize / Ty::ALL.len()], Ty::ALL[code as usize % Ty::ALL.len()]);
    // SAFETY: generated code passes the address of its `n > 1` entries in the words' block area, written by it
    // before and used by no one else during the call.
    let blocks = unsafe { std::slice::from_raw_parts_mut(blocks, n as usize) };
    let indexed = matches!(combine, Combine::ArgMax | Combine::ArgMin);
    let values: Vec<FoldValue> = blocks
        .iter()
        .map(|block| FoldValue { bits: block.bits, index: if indexed { block.index } else { 0 } })
        .collect();
    blocks[0].bits = fold::sequence(combine, ty, &values).result(combine);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fold_codes_are_taken_apart_as_they_were_made() {
        for (number, combine) in COMBINES.into_iter().enumerate() {
            assert_eq!(combine as usize, number);
        }
        for (number, ty) in Ty::ALL.into_iter().enumerate() {
            assert_eq!(ty as usize, number);
        }
    }
}
