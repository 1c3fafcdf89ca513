//! Triangular factorizations of matrices that are worth a call of the library.

use crate::Failure;
use crate::element::Number;
use crate::small::spoil;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{LltError, cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::lu::partial_pivoting::factor::{lu_in_place, lu_in_place_scratch};
use faer::linalg::triangular_solve as triangular;
use faer::{MatMut, MatRef, Par};

pub(crate) fn cholesky<T: Number>(a: &mut [T], n: usize) -> Result<(), Failure> {
    for i in 0..n {
        a[i * n + i] = T::of_part(a[i * n + i].real_part());
    }
    let mut memory = MemBuffer::new(cholesky_in_place_scratch::<T>(n, Par::Seq, Default::default()));
    let matrix = MatMut::from_column_major_slice_mut(a, n, n);
    let stack = MemStack::new(&mut memory);
    let found = cholesky_in_place(matrix, Default::default(), Par::Seq, stack, Default::default());
    let failed = match found {
        Ok(_) => (0..n).find(|&i| {
            let is_positive = a[i * n + i].real_part() > T::Part::ZERO;
            !is_positive
        }),
        Err(LltError::NonPositivePivot { index }) => Some(index.min(n - 1)),
    };
    spoil(a, n, failed.unwrap_or(n));
    failed.map_or(Ok(()), |at| Err(Failure::NotPositive(at + 1)))
}

pub(crate) fn solve_triangular<T: Number>(a: &[T], n: usize, b: &mut [T], columns: usize, upper: bool, unit: bool) {
    let a = MatRef::from_column_major_slice(a, n, n);
    let b = MatMut::from_column_major_slice_mut(b, n, columns);
    match (upper, unit) {
        (false, false) => triangular::solve_lower_triangular_in_place(a, b, Par::Seq),
        (false, true) => triangular::solve_unit_lower_triangular_in_place(a, b, Par::Seq),
        (true, false) => triangular::solve_upper_triangular_in_place(a, b, Par::Seq),
        (true, true) => triangular::solve_unit_upper_triangular_in_place(a, b, Par::Seq),
    }
}

pub(crate) fn lu<T: Number>(a: &mut [T], rows: usize, columns: usize, pivots: &mut [usize]) {
    let mut memory = MemBuffer::new(lu_in_place_scratch::<usize, T>(rows, columns, Par::Seq, Default::default()));
    let (mut order, mut place) = (vec![0usize; rows], vec![0usize; rows]);
    let matrix = MatMut::from_column_major_slice_mut(a, rows, columns);
    lu_in_place(matrix, &mut order, &mut place, Par::Seq, MemStack::new(&mut memory), Default::default());
    // Row `order[i]` came to row `i`. The swaps that do so one after another are unique.
    let (mut now, mut place): (Vec<usize>, Vec<usize>) = ((0..rows).collect(), (0..rows).collect());
    for (i, pivot) in pivots.iter_mut().enumerate() {
        let from = place[order[i]];
        *pivot = from;
        now.swap(i, from);
        place[now[i]] = i;
        place[now[from]] = from;
    }
}
