//! The only function that compiled code calls back: it folds block results.

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

/// The code of a fold for [`fold_blocks`].
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

/// Folds `n` block results in the canonical order and stores the result in the bits of the first one.
unsafe extern "C" fn fold_blocks(code: u64, blocks: *mut BlockResult, n: u64) {
    let (combine, ty) = (COMBINES[code as usize / Ty::ALL.len()], Ty::ALL[code as usize % Ty::ALL.len()]);
    // SAFETY: generated code passes the address of its `n > 1` entries in the block area of the argument buffer. It
    // wrote them before, and nothing else uses them during the call.
    let blocks = unsafe { std::slice::from_raw_parts_mut(blocks, n as usize) };
    let indexed = combine.is_index();
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
    fn fold_codes_decode_to_what_they_encode() {
        for (number, combine) in COMBINES.into_iter().enumerate() {
            assert_eq!(combine as usize, number);
        }
        for (number, ty) in Ty::ALL.into_iter().enumerate() {
            assert_eq!(ty as usize, number);
        }
    }
}
