//! The work of routines, which are no loops over scalar instructions: all of a node at once.
//!
//! Routines work element by element, so 8-byte elements do not count twice. `cargo bench --bench cost_model` measures
//! scans, sorts, selections, writes and random words. Joined indices, recurrences, factorizations and Fourier
//! transforms are estimates from their operations, and no bench compares them yet.

use super::work::Work;
use crate::ir::routine::Scan;
use crate::ir::{DType, Graph, MatrixWork, NodeId, Routine};

/// The additions that one element of a routine takes as long as.
const SUM_SO_FAR: f64 = 58.0;
const GREATEST_SO_FAR: f64 = 90.0;
const SORTED: f64 = 560.0;
/// Keys of 8-byte floats are twice as long.
const SORTED_WIDE: f64 = 1000.0;
const SELECTED: f64 = 100.0;
/// The additions that choosing the first elements of one more row takes as long as.
const SELECTED_ROW: f64 = 6000.0;
const WRITTEN: f64 = 350.0;
const JOINED: f64 = 12.0;
const RANDOM_WORD: f64 = 25.0;
/// A multiplication with an addition in a factorization, most of which are in short loops.
const FACTORED: f64 = 4.0;
/// One of the `5 n log2 n` operations of a Fourier transform.
const TRANSFORMED: f64 = 4.0;

/// The work of a node that is a routine. Window products are products, so they have none here.
pub(super) fn work(graph: &Graph, node: NodeId, routine: Routine) -> Work {
    let call = &graph[node];
    let first = &graph[call.args[0]].ty;
    let elements = first.numel() as f64;
    Work::plain(match routine {
        Routine::Scan(Scan::Sum | Scan::Prod) | Routine::Recurrence => elements * SUM_SO_FAR,
        Routine::Scan(Scan::ArgMax | Scan::ArgMin) => elements * GREATEST_SO_FAR,
        Routine::Argsort if first.dtype == DType::F64 => elements * SORTED_WIDE,
        Routine::Argsort => elements * SORTED,
        // The result has as many rows, of fewer elements.
        Routine::First => {
            let chosen = call.ty.sizes.iter().zip(&first.sizes).find(|(own, of)| own != of);
            let row = chosen.map_or(1, |(_, &of)| of.max(1));
            elements * SELECTED + elements / row as f64 * SELECTED_ROW
        }
        Routine::Scatter(_) => graph[call.args[1]].ty.numel() as f64 * WRITTEN,
        Routine::FlatIndex => call.ty.numel() as f64 * JOINED * call.args.len() as f64,
        Routine::Bits => call.ty.numel() as f64 * RANDOM_WORD,
        Routine::WindowProduct => 0.0,
        Routine::Matrix(MatrixWork::Permutation) => elements,
        Routine::Matrix(work) => {
            let sides = first.sizes.iter().rev().take(2).copied();
            let least = sides.clone().min().unwrap_or(1);
            elements * least as f64 * passes(work) * FACTORED
        }
        Routine::Fourier(_) => {
            let longest = call.ty.numel().max(first.numel()) as f64;
            // Lines are not longer than the largest dim.
            let line = first.sizes.iter().copied().max().unwrap_or(1).max(2) as f64;
            5.0 * longest * line.log2() * TRANSFORMED
        }
    })
}

/// The multiplications per element and column of a matrix, as factorizations are counted (Golub and Van Loan, "Matrix
/// Computations", 4th edition, chapters 3 to 8).
fn passes(work: MatrixWork) -> f64 {
    match work {
        MatrixWork::Cholesky => 1.0 / 3.0,
        MatrixWork::SolveTriangular | MatrixWork::Permutation => 0.5,
        MatrixWork::Determinant | MatrixWork::LogDeterminant | MatrixWork::Lu | MatrixWork::Solve => 1.0,
        MatrixWork::Inverse | MatrixWork::Eigenvalues => 2.0,
        MatrixWork::Cofactors => 3.0,
        MatrixWork::Qr | MatrixWork::SingularValues => 4.0,
        MatrixWork::Eigen => 9.0,
        MatrixWork::GeneralEigenvalues => 10.0,
        MatrixWork::Singular | MatrixWork::Exponential => 20.0,
        MatrixWork::Pseudoinverse => 22.0,
        MatrixWork::GeneralEigen => 25.0,
    }
}
