#![allow(unsafe_code, reason = "starts products on addresses of a device")]
//! Matrix products by cublasLt: how they are described to it, and the algorithms that it chooses.
//!
//! An algorithm is asked for once per problem, alignments and device, and kept for all threads. Each start allocates
//! its workspace from the pool, like results, so streams share none.

use super::alignments::{ByAlignments, ProductAlignments, alignment_of};
use super::candidate::EpilogueCandidate;
use super::counts;
use super::epilogue_patterns::EpilogueMatch;
use super::memo::Memo;
use crate::codegen::product::ProductShape;
use crate::device::cuda::{Addresses, LtEpilogue, Matmul, Matrix, Order, Problem, Queue, architecture, find_cublaslt};
use crate::device::{Device, Storage, Stream};
use crate::error::{Error, LibraryLimit, Reason, Result};
use crate::ir::DType;
use crate::runtime::Array;
use std::sync::Arc;

/// Most algorithms that are kept, of all devices.
const CAPACITY: usize = 1024;

/// The key of an algorithm: device, problem, alignments, and most bytes of workspace.
type Key = (Device, Problem, ProductAlignments, usize);

/// The chosen algorithms; `None` if there is none.
static KNOWN: Memo<Key, Option<Arc<Matmul>>> = Memo::new(CAPACITY);

/// A product that cublasLt computes.
pub(super) struct LibraryProduct {
    device: Device,
    problem: Problem,
    most_workspace: usize,
    /// The algorithm for the least alignments that addresses of elements can have.
    least_aligned: Arc<Matmul>,
    /// The chosen algorithms. A bias counts with the result.
    ready: ByAlignments<Arc<Matmul>, ProductAlignments>,
}

/// The description of a product for cublasLt.
///
/// # Errors
/// The reason why it cannot be described.
pub(super) fn problem(shape: &ProductShape) -> Result<Problem, Reason> {
    let &ProductShape { dtype, result, mut batch, mut m, k, n, left, right } = shape;
    if k == 0 {
        return Err(LibraryLimit::EmptySums.into());
    }
    let matrix_of = |side: &'static str, rows, columns, strides| {
        matrix(rows, columns, strides).ok_or(LibraryLimit::OperandApart { side })
    };
    let (mut left, right) = (matrix_of("left", m, k, left)?, matrix_of("right", k, n, right)?);
    // Batches that share the right operand are more rows, if the stride between batches continues that of rows.
    if batch > 1 && right.batch == 0 && left.order == Order::Rows && left.batch == m * left.pitch {
        (m, batch, left.batch) = (m * batch, 1, 0);
    }
    Ok(Problem { dtype, result, n_batches: batch, m, k, n, left, right, epilogue: LtEpilogue::NOTHING })
}

/// The layout of a matrix with these strides of batch, row and column. A stride that is never used may have any value.
fn matrix(rows: usize, columns: usize, [batch, row, column]: [usize; 3]) -> Option<Matrix> {
    if (columns <= 1 || column == 1) && (rows <= 1 || row >= columns) {
        return Some(Matrix { order: Order::Rows, pitch: if rows <= 1 { columns } else { row }, batch });
    }
    if (rows <= 1 || row == 1) && (columns <= 1 || column >= rows) {
        return Some(Matrix { order: Order::Columns, pitch: if columns <= 1 { rows } else { column }, batch });
    }
    None
}

impl LibraryProduct {
    /// A product for which cublasLt has an algorithm.
    ///
    /// # Errors
    /// The reason why it has none.
    pub(super) fn new(device: Device, problem: Problem) -> Result<LibraryProduct, Reason> {
        find_cublaslt().map_err(|error| LibraryLimit::NotFound { error: error.into() })?;
        let failed = |error: Error| LibraryLimit::CallFailed { error: Arc::new(error) };
        let most_workspace = architecture(device).map_err(failed)?.most_workspace();
        let least = [problem.dtype, problem.dtype, problem.result].map(DType::size);
        let least_aligned = algorithm((device, problem, least, most_workspace)).map_err(failed)?;
        let least_aligned =
            least_aligned.ok_or_else(|| LibraryLimit::NoAlgorithm { problem: problem.to_string().into() })?;
        Ok(LibraryProduct { device, problem, most_workspace, least_aligned, ready: ByAlignments::default() })
    }

    /// The algorithm for these alignments.
    ///
    /// # Errors
    /// If a call of cublasLt fails.
    pub(super) fn ready(&self, alignments: ProductAlignments) -> Result<Arc<Matmul>> {
        self.ready.get_or_make(alignments, |&alignments| {
            let found = algorithm((self.device, self.problem, alignments, self.most_workspace))?;
            Ok(found.unwrap_or_else(|| self.least_aligned.clone()))
        })
    }

    /// Starts it on a stream whose handle is `queue`.
    ///
    /// # Errors
    /// If there is no memory for a workspace and no algorithm without one, or cublasLt or the device fails.
    ///
    /// # Safety
    /// Arrays are on the device and have the types of the graph. Until this returns, the caller lets nothing else write
    /// the operands or use the result.
    pub(super) unsafe fn start(
        &self,
        factors: [&Array; 2],
        bias: Option<&Array>,
        result: &Array,
        stream: &Stream,
        queue: &Queue,
    ) -> Result<()> {
        for array in factors.into_iter().chain(bias).chain([result]) {
            array.storage().turn_to(stream)?;
        }
        let [left, right] = factors.map(address);
        let (result, bias) = (address(result), bias.map(address));
        let alignments = alignments([left, right, result], bias);
        let (ready, workspace) = self.with_workspace(self.ready(alignments)?, alignments)?;
        let bias = bias.unwrap_or_default();
        let addresses = Addresses { left, right, result, bias, workspace: workspace.ptr().addr() as u64 };
        // SAFETY: arrays have the types that the problem was made from, and the alignments that the algorithm was asked
        // for. They were ordered to this stream, nothing writes to operands, and only this code has the result. Freed
        // memory is not reused before the stream has passed this point.
        unsafe { ready.start(queue, &addresses)? };
        counts::called_library(1);
        Ok(())
    }

    /// A workspace for an algorithm, or another algorithm without one if there is no memory.
    fn with_workspace(&self, ready: Arc<Matmul>, alignments: ProductAlignments) -> Result<(Arc<Matmul>, Storage)> {
        match Storage::new(self.device, ready.workspace()) {
            Ok(workspace) => Ok((ready, workspace)),
            Err(error @ Error::OutOfMemory { .. }) => match algorithm((self.device, self.problem, alignments, 0))? {
                Some(ready) => Ok((ready, Storage::new(self.device, 0)?)),
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }
}

/// The alignments for an algorithm: a bias is aligned like the result.
pub(super) fn alignments([left, right, result]: [u64; 3], bias: Option<u64>) -> ProductAlignments {
    [left, right, result | bias.unwrap_or_default()].map(alignment_of)
}

fn address(array: &Array) -> u64 {
    array.ptr().addr() as u64
}

fn algorithm(key: Key) -> Result<Option<Arc<Matmul>>> {
    KNOWN.get(key, |&(device, problem, alignments, most_workspace)| {
        Ok(Matmul::new(device, problem, alignments, most_workspace)?.map(Arc::new))
    })
}

/// A product with its epilogue, both by cublasLt.
pub(super) struct LibraryEpilogue {
    /// The kernel's operand that is the product.
    pub(super) slot: usize,
    /// Its operand with a number per column.
    pub(super) bias: Option<usize>,
    pub(super) product: LibraryProduct,
}

impl LibraryEpilogue {
    pub(super) fn new(candidate: &EpilogueCandidate, found: EpilogueMatch, product: LibraryProduct) -> LibraryEpilogue {
        LibraryEpilogue { slot: candidate.slot, bias: found.bias, product }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix_of(order: Order, pitch: usize) -> Option<Matrix> {
        Some(Matrix { order, pitch, batch: 7 })
    }

    #[test]
    fn matrices_lie_in_rows_or_in_columns() {
        let cases = [
            ("rows", 4, 5, 5, 1, matrix_of(Order::Rows, 5)),
            ("rows apart", 4, 5, 9, 1, matrix_of(Order::Rows, 9)),
            ("columns", 4, 5, 1, 4, matrix_of(Order::Columns, 4)),
            ("columns apart", 4, 5, 1, 6, matrix_of(Order::Columns, 6)),
            ("a row", 1, 5, 0, 1, matrix_of(Order::Rows, 5)),
            ("a row of apart numbers", 1, 5, 0, 3, matrix_of(Order::Columns, 3)),
            ("a column", 4, 1, 3, 0, matrix_of(Order::Rows, 3)),
            ("one number", 1, 1, 0, 0, matrix_of(Order::Rows, 1)),
            ("one row again and again", 4, 5, 0, 1, None),
            ("rows that overlap", 4, 5, 3, 1, None),
            ("every second", 4, 5, 10, 2, None),
            ("one number again and again", 4, 5, 0, 0, None),
        ];
        for (name, rows, columns, row, column, expected) in cases {
            assert_eq!(matrix(rows, columns, [7, row, column]), expected, "{name}");
        }
    }

    #[test]
    fn batches_that_share_the_right_operand_are_rows() {
        let shape = |left_batch, right_batch| ProductShape {
            dtype: DType::F32,
            result: DType::F32,
            batch: 3,
            m: 4,
            k: 5,
            n: 6,
            left: [left_batch, 5, 1],
            right: [right_batch, 6, 1],
        };
        let sizes = |shape| problem(&shape).map(|problem| (problem.n_batches, problem.m));
        assert_eq!(sizes(shape(20, 0)), Ok((1, 12)));
        assert_eq!(sizes(shape(40, 0)), Ok((3, 4)));
        assert_eq!(sizes(shape(20, 30)), Ok((3, 4)));
        assert!(problem(&ProductShape { k: 0, ..shape(20, 30) }).is_err());
    }
}
