//! The work on one matrix, for each kind.

use super::batch::{Matrices, Number, each, n_parts};
use super::errors::{Trouble, error};
use crate::error::Result;
use crate::ir::attrs::*;
use crate::ir::packed::Packed;
use crate::ir::{Attr, MatrixWork};
use crate::runtime::routine::elements::Operands;

/// What a task has for the matrices that it works on.
struct Scratch<T> {
    matrix: Vec<T>,
    pivots: Vec<usize>,
    /// Where the matrix lies that was copied or factored last. An expanded batch repeats it.
    at: Option<usize>,
}

impl<T: Number> Scratch<T> {
    /// Copies the matrix that starts at `start`.
    fn take(&mut self, matrices: &Matrices<'_, T>, start: usize) {
        self.at = Some(start);
        matrices.copy(start, &mut self.matrix);
    }

    /// Factors it by `P L U`.
    fn factor(&mut self, matrices: &Matrices<'_, T>, start: usize) {
        self.take(matrices, start);
        T::lu(&mut self.matrix, matrices.rows, matrices.columns, &mut self.pivots);
    }
}

pub(super) fn run<T: Number>(work: MatrixWork, attrs: &[Attr], mut operands: Operands<'_>) -> Result<()> {
    let layout = operands.inputs.array(0).layout();
    let of_operand = |index: usize| {
        let inputs = operands.inputs;
        Matrices::new(inputs.elements::<T::Part>(index), inputs.array(index).layout())
    };
    let a = of_operand(0);
    let others: Vec<Matrices<'_, T>> = (1..operands.inputs.len()).map(of_operand).collect();
    let (rows, columns, size) = (a.rows, a.columns, a.rows.min(a.columns));
    let has_batch = layout.rank() > 1 + n_parts::<T>();
    let out: &mut [T] = bytemuck::cast_slice_mut(operands.output.elements::<T::Part>());
    let flops = |factor: usize| factor.saturating_mul(rows).saturating_mul(columns).saturating_mul(size);
    let scratch = || Scratch { matrix: vec![T::default(); rows * columns], pivots: vec![0; size], at: None };
    let done = match work {
        MatrixWork::Cholesky => {
            let CholeskyFactor { upper, check, .. } = CholeskyFactor::read(attrs);
            // The upper triangle is the lower one of the transposed matrix.
            let a = if upper { a.transposed() } else { a };
            each(
                out,
                rows * rows,
                flops(1) / 3,
                || (),
                |_, matrix, out| {
                    a.copy(a.start(matrix), out);
                    let factored = T::cholesky(out, rows);
                    if upper {
                        transpose(out, rows);
                    }
                    if check { Ok(factored?) } else { Ok(()) }
                },
            )
        }
        MatrixWork::SolveTriangular => {
            let SolveTriangular { upper, unitriangular, .. } = SolveTriangular::read(attrs);
            let b = &others[0];
            let cost = rows * rows * b.columns;
            each(out, rows * b.columns, cost, scratch, |scratch, matrix, out| {
                let start = a.start(matrix);
                if scratch.at != Some(start) {
                    scratch.take(&a, start);
                }
                b.copy(b.start(matrix), out);
                T::solve_triangular(&scratch.matrix, rows, out, b.columns, upper, unitriangular);
                Ok(())
            })
        }
        MatrixWork::Solve => {
            let Checked { check, .. } = Checked::read(attrs);
            let b = &others[0];
            let cost = flops(1).saturating_add(2 * rows * rows * b.columns);
            each(out, rows * b.columns, cost, scratch, |scratch, matrix, out| {
                let start = a.start(matrix);
                if scratch.at != Some(start) {
                    scratch.factor(&a, start);
                }
                if check {
                    T::check_pivots(&scratch.matrix, rows, rows)?;
                }
                b.copy(b.start(matrix), out);
                T::solve_by_lu(&scratch.matrix, rows, &scratch.pivots, out, b.columns);
                Ok(())
            })
        }
        MatrixWork::Inverse => {
            let Checked { check, .. } = Checked::read(attrs);
            each(out, rows * rows, flops(2), scratch, |scratch, matrix, out| {
                scratch.factor(&a, a.start(matrix));
                if check {
                    T::check_pivots(&scratch.matrix, rows, rows)?;
                }
                T::identity(out, rows);
                T::solve_by_lu(&scratch.matrix, rows, &scratch.pivots, out, rows);
                Ok(())
            })
        }
        MatrixWork::Determinant => each(out, 1, flops(1), scratch, |scratch, matrix, out| {
            scratch.factor(&a, a.start(matrix));
            out[0] = T::determinant(&scratch.matrix, rows, &scratch.pivots);
            Ok(())
        }),
        MatrixWork::LogDeterminant => each(out, 2, flops(1), scratch, |scratch, matrix, out| {
            scratch.factor(&a, a.start(matrix));
            out.copy_from_slice(&T::log_determinant(&scratch.matrix, rows, &scratch.pivots));
            Ok(())
        }),
        MatrixWork::Cofactors => {
            // Those of the transposed matrix are the transposed ones.
            let a = a.transposed();
            each(out, rows * rows, flops(3), scratch, |scratch, matrix, out| {
                scratch.take(&a, a.start(matrix));
                Ok(T::cofactors(&scratch.matrix, rows, out)?)
            })
        }
        MatrixWork::Lu => {
            let Checked { check, .. } = Checked::read(attrs);
            each(out, rows * columns + size, flops(1), scratch, |scratch, matrix, out| {
                let (factors, pivots) = out.split_at_mut(rows * columns);
                a.copy(a.start(matrix), factors);
                T::lu(factors, rows, columns, &mut scratch.pivots);
                if check {
                    T::check_pivots(factors, rows, size)?;
                }
                for (to, &pivot) in pivots.iter_mut().zip(&scratch.pivots) {
                    *to = T::from_count(pivot + 1);
                }
                Ok(())
            })
        }
        MatrixWork::Qr => {
            let packed = Packed::qr(rows, columns, QrFactors::read(attrs).complete);
            each(out, packed.len(), flops(4), scratch, |scratch, matrix, out| {
                scratch.take(&a, a.start(matrix));
                let (q, r) = out.split_at_mut(packed.part(1).start);
                T::qr(&mut scratch.matrix, rows, columns, q, r);
                Ok(())
            })
        }
        MatrixWork::Eigen => each(out, rows + rows * rows, flops(9), scratch, |scratch, matrix, out| {
            scratch.take(&a, a.start(matrix));
            let (values, vectors) = out.split_at_mut(rows);
            Ok(T::symmetric_eigen(&mut scratch.matrix, rows, values, Some(vectors))?)
        }),
        MatrixWork::Eigenvalues => each(out, rows, flops(2), scratch, |scratch, matrix, out| {
            scratch.take(&a, a.start(matrix));
            Ok(T::symmetric_eigen(&mut scratch.matrix, rows, out, None)?)
        }),
        MatrixWork::GeneralEigen => {
            let length = (rows + rows * rows) * 2 / n_parts::<T>();
            each(out, length, flops(25), scratch, |scratch, matrix, out| {
                scratch.take(&a, a.start(matrix));
                let (values, vectors) = bytemuck::cast_slice_mut(out).split_at_mut(rows);
                Ok(T::eigen(&mut scratch.matrix, rows, values, Some(vectors))?)
            })
        }
        MatrixWork::GeneralEigenvalues => {
            let length = rows * 2 / n_parts::<T>();
            each(out, length, flops(10), scratch, |scratch, matrix, out| {
                scratch.take(&a, a.start(matrix));
                Ok(T::eigen(&mut scratch.matrix, rows, bytemuck::cast_slice_mut(out), None)?)
            })
        }
        MatrixWork::Singular => {
            let packed = Packed::svd(rows, columns, SvdFactors::read(attrs).full);
            each(out, packed.len(), flops(20), scratch, |scratch, matrix, out| {
                scratch.take(&a, a.start(matrix));
                let (u, rest) = out.split_at_mut(packed.part(1).start);
                let (s, v) = rest.split_at_mut(size);
                Ok(T::singular(&mut scratch.matrix, rows, columns, s, Some((u, v)))?)
            })
        }
        MatrixWork::SingularValues => each(out, size, flops(4), scratch, |scratch, matrix, out| {
            scratch.take(&a, a.start(matrix));
            Ok(T::singular(&mut scratch.matrix, rows, columns, out, None)?)
        }),
        MatrixWork::Pseudoinverse => each(out, rows * columns, flops(22), scratch, |scratch, matrix, out| {
            scratch.take(&a, a.start(matrix));
            let tolerances = [others[0].first(matrix), others[1].first(matrix)];
            Ok(T::pseudoinverse(&mut scratch.matrix, rows, columns, tolerances, out)?)
        }),
        MatrixWork::Exponential => each(out, rows * rows, flops(20), scratch, |scratch, matrix, out| {
            scratch.take(&a, a.start(matrix));
            T::exponential(&mut scratch.matrix, rows, out);
            Ok(())
        }),
        // It is no work on elements.
        MatrixWork::Permutation => Ok(()),
    };
    done.map_err(|(matrix, trouble): (usize, Trouble)| error(work, trouble, has_batch.then_some(matrix)))
}

/// Swaps rows and columns of a square matrix.
fn transpose<T>(matrix: &mut [T], order: usize) {
    for i in 0..order {
        for j in i + 1..order {
            matrix.swap(i * order + j, j * order + i);
        }
    }
}
