//! The argument buffer of a compiled function, whose only argument is the address of these 64-bit words.

/// Rows to run.
pub(in crate::codegen) const ROWS: usize = 0;
/// Elements per row.
pub(in crate::codegen) const INNER: usize = 1;
/// Address of the row buffers, [`BUFFER_BYTES`] per element each; a multiple of [`BUFFER_ALIGN`].
pub(in crate::codegen) const KEPT: usize = 2;
/// Address of the block results: per fold an entry per block.
pub(in crate::codegen) const BLOCKS: usize = 3;
/// Address of the function that folds block results.
pub(in crate::codegen) const FOLD_BLOCKS: usize = 4;
/// From here on, [`ACCESS_WORDS`] per operand and output: the address in the first row (for an iota, its value), stride
/// per row, stride per element.
pub(in crate::codegen) const ACCESSES: usize = 5;
/// Words per access.
pub(in crate::codegen) const ACCESS_WORDS: usize = 3;
/// Words per gathered operand, after the accesses: size and stride of the gathered dimension.
pub(in crate::codegen) const GATHER_WORDS: usize = 2;
/// Words after those: an index that was out of range, per lane; see [`super::gathers`].
pub(in crate::codegen) const FAULT_WORDS: usize = 8;

/// Where the words of the gathered operand `nth` begin, or, after the last one, the fault words.
pub(in crate::codegen) const fn gather(n_accesses: usize, nth: usize) -> usize {
    ACCESSES + n_accesses * ACCESS_WORDS + nth * GATHER_WORDS
}

/// Bytes of an element in a row buffer.
pub(in crate::codegen) const BUFFER_BYTES: usize = 8;
/// The alignment of the row buffers: that of the widest vector.
pub(in crate::codegen) const BUFFER_ALIGN: usize = 64;
/// Bytes of a block result: bits of the value, then its index.
pub(in crate::codegen) const BLOCK_BYTES: usize = 16;
