//! Eigenvalues of symmetric and Hermitian matrices, singular values, and what follows from these.
//!
//! Matrices whose elements would overflow or vanish when squared are scaled by a power of two first, which is exact.

use crate::Failure;
use crate::element::{Number, Real};
use faer::diag::DiagMut;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::matmul::matmul;
use faer::linalg::svd::{ComputeSvdVectors, svd, svd_scratch};
use faer::{Accum, MatMut, MatRef, Par};

pub(crate) fn symmetric_eigen<T: Number>(
    a: &mut [T],
    n: usize,
    values: &mut [T],
    vectors: Option<&mut [T]>,
) -> Result<(), Failure> {
    if n == 0 {
        return Ok(());
    }
    // The upper triangle is not read, whatever it is.
    for j in 0..n {
        for i in 0..j {
            a[j * n + i] = a[i * n + j].conjugate();
        }
        a[j * n + j] = T::of_part(a[j * n + j].real_part());
    }
    let scale = scaled(a)?;
    let wanted = if vectors.is_some() { ComputeEigenvectors::Yes } else { ComputeEigenvectors::No };
    let mut memory = MemBuffer::new(self_adjoint_evd_scratch::<T>(n, wanted, Par::Seq, Default::default()));
    let matrix = MatRef::from_column_major_slice(a, n, n);
    let vectors = vectors.map(|vectors| MatMut::from_column_major_slice_mut(vectors, n, n));
    let stack = MemStack::new(&mut memory);
    self_adjoint_evd(matrix, DiagMut::from_slice_mut(values), vectors, Par::Seq, stack, Default::default())
        .map_err(|_| Failure::NoConvergence)?;
    finished(values, scale)
}

pub(crate) fn singular<T: Number>(
    a: &mut [T],
    rows: usize,
    columns: usize,
    values: &mut [T],
    mut vectors: Option<(&mut [T], &mut [T])>,
) -> Result<(), Failure> {
    singular_of(a, rows, columns, values, vectors.as_mut().map(|(u, v)| (&mut **u, &mut **v)))?;
    if let Some((_, v)) = vectors.filter(|_| !T::IS_REAL) {
        v.iter_mut().for_each(|element| *element = element.conjugate());
    }
    Ok(())
}

/// Of `U S Vᴴ`.
fn singular_of<T: Number>(
    a: &mut [T],
    rows: usize,
    columns: usize,
    values: &mut [T],
    vectors: Option<(&mut [T], &mut [T])>,
) -> Result<(), Failure> {
    let size = rows.min(columns);
    if size == 0 {
        if let Some((u, v)) = vectors {
            identity(u, rows);
            identity(v, columns);
        }
        return Ok(());
    }
    let scale = scaled(a)?;
    let (u, v) = vectors.unzip();
    let of = |vectors: &Option<&mut [T]>, rows: usize| match vectors {
        None => ComputeSvdVectors::No,
        Some(vectors) if vectors.len() == rows * rows => ComputeSvdVectors::Full,
        Some(_) => ComputeSvdVectors::Thin,
    };
    let layout = svd_scratch::<T>(rows, columns, of(&u, rows), of(&v, columns), Par::Seq, Default::default());
    let mut memory = MemBuffer::new(layout);
    let (mut u, mut v) = (u, v);
    // Of a tall matrix the library leaves a block of full vectors as it was.
    for vectors in [&mut u, &mut v].into_iter().flatten() {
        vectors.fill(T::ZERO);
    }
    svd(
        MatRef::from_column_major_slice(a, rows, columns),
        DiagMut::from_slice_mut(values),
        u.map(|u| as_matrix(u, rows)),
        v.map(|v| as_matrix(v, columns)),
        Par::Seq,
        MemStack::new(&mut memory),
        Default::default(),
    )
    .map_err(|_| Failure::NoConvergence)?;
    finished(values, scale)
}

fn as_matrix<T>(elements: &mut [T], rows: usize) -> MatMut<'_, T> {
    let columns = elements.len() / rows;
    MatMut::from_column_major_slice_mut(elements, rows, columns)
}

/// The pseudoinverse `V S⁺ Uᴴ`. Tolerances are absolute, and relative to the greatest singular value.
pub(crate) fn pseudoinverse<T: Number>(
    a: &mut [T],
    rows: usize,
    columns: usize,
    [absolute, relative]: [T::Part; 2],
    out: &mut [T],
) -> Result<(), Failure> {
    let size = rows.min(columns);
    out.fill(T::ZERO);
    if size == 0 {
        return Ok(());
    }
    let (mut s, mut u, mut v) = (vec![T::ZERO; size], vec![T::ZERO; rows * size], vec![T::ZERO; columns * size]);
    singular_of(a, rows, columns, &mut s, Some((&mut u, &mut v)))?;
    let bound = relative * s[0].real_part();
    let tolerance = if bound > absolute { bound } else { absolute };
    for (column, &value) in v.chunks_exact_mut(columns).zip(&s) {
        let value = value.real_part();
        if value > tolerance {
            column.iter_mut().for_each(|element| *element = element.over_part(value));
        } else {
            column.fill(T::ZERO);
        }
    }
    let (u, v) = (MatRef::from_column_major_slice(&u, rows, size), MatRef::from_column_major_slice(&v, columns, size));
    let out = MatMut::from_column_major_slice_mut(out, columns, rows);
    matmul(out, Accum::Replace, v, u.adjoint(), T::ONE, Par::Seq);
    Ok(())
}

/// Scales a matrix into the range where squares are safe, and returns the exponent that it was divided by.
///
/// # Errors
/// If an element is not finite.
pub(crate) fn scaled<T: Number>(a: &mut [T]) -> Result<i32, Failure> {
    let mut most = T::Part::ZERO;
    for &element in &*a {
        if !element.finite() {
            return Err(Failure::NotFinite);
        }
        if element.greatest_part() > most {
            most = element.greatest_part();
        }
    }
    if most == T::Part::ZERO {
        return Ok(0);
    }
    let exponent = most.exponent();
    if exponent.abs() <= T::Part::SAFE_EXPONENT {
        return Ok(0);
    }
    times_power(a, -exponent);
    Ok(exponent)
}

/// Undoes the scaling of the values.
///
/// # Errors
/// If a value is not a number after all.
pub(crate) fn finished<T: Number>(values: &mut [T], exponent: i32) -> Result<(), Failure> {
    if values.iter().any(|value| !value.finite()) {
        return Err(Failure::NoConvergence);
    }
    if exponent != 0 {
        times_power(values, exponent);
    }
    Ok(())
}

/// Multiplies by a power of two in two steps, each of which a number can hold.
pub(crate) fn times_power<T: Number>(numbers: &mut [T], exponent: i32) {
    let half = exponent / 2;
    let (first, second) = (T::Part::power_of_two(half), T::Part::power_of_two(exponent - half));
    numbers.iter_mut().for_each(|number| *number = number.times_part(first).times_part(second));
}

pub(crate) fn identity<T: Number>(matrix: &mut [T], rows: usize) {
    matrix.fill(T::ZERO);
    let columns = matrix.len().checked_div(rows).unwrap_or(0);
    (0..columns).for_each(|i| matrix[i * rows + i] = T::ONE);
}
