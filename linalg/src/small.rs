//! Loops for small matrices, and what is too little work for a library: pivots and determinants.
//!
//! Loops run down columns, which are contiguous.

use crate::Failure;
use crate::element::{Number, Real};
use std::cmp::Ordering;

/// Matrices of at most this order are factored here.
pub(crate) const MOST: usize = 24;

/// Calls a function with a size, which is a constant for small ones.
macro_rules! unrolled {
    ($n:expr, |$size:ident| $call:expr) => {
        match $n {
            1 => {
                let $size = 1;
                $call
            }
            2 => {
                let $size = 2;
                $call
            }
            3 => {
                let $size = 3;
                $call
            }
            4 => {
                let $size = 4;
                $call
            }
            5 => {
                let $size = 5;
                $call
            }
            6 => {
                let $size = 6;
                $call
            }
            7 => {
                let $size = 7;
                $call
            }
            8 => {
                let $size = 8;
                $call
            }
            16 => {
                let $size = 16;
                $call
            }
            $size => $call,
        }
    };
}

#[inline(always)]
fn cholesky_of<T: Number>(a: &mut [T], n: usize) -> Result<(), Failure> {
    let a = &mut a[..n * n];
    for j in 0..n {
        let (left, right) = a.split_at_mut((j + 1) * n);
        let column = &mut left[j * n..][..n];
        let pivot = column[j].real_part();
        // NaN fails too.
        let is_positive = pivot > T::Part::ZERO;
        if !is_positive {
            spoil(a, n, j);
            return Err(Failure::NotPositive(j + 1));
        }
        let root = pivot.root();
        column[j] = T::of_part(root);
        for element in &mut column[j + 1..] {
            *element = element.over_part(root);
        }
        for element in &mut column[..j] {
            *element = T::ZERO;
        }
        for k in j + 1..n {
            let factor = column[k].conjugate();
            let target = &mut right[(k - j - 1) * n..][..n];
            for i in k..n {
                target[i] -= column[i] * factor;
            }
        }
    }
    Ok(())
}

/// Marks the columns from `first` on as not computed, and clears the upper triangle.
pub(crate) fn spoil<T: Number>(a: &mut [T], n: usize, first: usize) {
    for j in 0..n {
        a[j * n..][..j].fill(T::ZERO);
        if j >= first {
            a[j * n + j..][..n - j].fill(T::NAN);
        }
    }
}

#[inline(always)]
fn lower<T: Number>(a: &[T], n: usize, b: &mut [T], columns: usize, unit: bool) {
    let a = &a[..n * n];
    for x in b[..n * columns].chunks_exact_mut(n.max(1)) {
        for j in 0..n {
            let column = &a[j * n..][..n];
            if !unit {
                x[j] = x[j].over(column[j]);
            }
            let factor = x[j];
            for i in j + 1..n {
                x[i] -= column[i] * factor;
            }
        }
    }
}

#[inline(always)]
fn upper_of<T: Number>(a: &[T], n: usize, b: &mut [T], columns: usize, unit: bool) {
    let a = &a[..n * n];
    for x in b[..n * columns].chunks_exact_mut(n.max(1)) {
        for j in (0..n).rev() {
            let column = &a[j * n..][..n];
            if !unit {
                x[j] = x[j].over(column[j]);
            }
            let factor = x[j];
            for i in 0..j {
                x[i] -= column[i] * factor;
            }
        }
    }
}

#[inline(always)]
fn lu_of<T: Number>(a: &mut [T], rows: usize, columns: usize, pivots: &mut [usize]) {
    let a = &mut a[..rows * columns];
    for j in 0..rows.min(columns) {
        let column = &a[j * rows..][..rows];
        let mut pivot = j;
        for i in j + 1..rows {
            if column[i].magnitude() > column[pivot].magnitude() {
                pivot = i;
            }
        }
        pivots[j] = pivot;
        if pivot != j {
            for column in a.chunks_exact_mut(rows) {
                column.swap(j, pivot);
            }
        }
        let (left, right) = a.split_at_mut((j + 1) * rows);
        let column = &mut left[j * rows..][..rows];
        let divisor = column[j];
        // A zero pivot has zeros below it.
        if divisor != T::ZERO {
            for element in &mut column[j + 1..] {
                *element = element.over(divisor);
            }
        }
        for target in right.chunks_exact_mut(rows) {
            let factor = target[j];
            for i in j + 1..rows {
                target[i] -= column[i] * factor;
            }
        }
    }
}

/// Swaps rows of `b` as a factorization did.
pub(crate) fn swap_rows<T: Number>(n: usize, pivots: &[usize], b: &mut [T]) {
    for x in b.chunks_exact_mut(n.max(1)) {
        for (i, &pivot) in pivots.iter().enumerate() {
            x.swap(i, pivot);
        }
    }
}

pub(crate) fn check_pivots<T: Number>(a: &[T], rows: usize, count: usize) -> Result<(), Failure> {
    (0..count).find(|&i| a[i * rows + i] == T::ZERO).map_or(Ok(()), |i| Err(Failure::ZeroPivot(i + 1)))
}

/// Whether a permutation is odd.
fn is_odd(pivots: &[usize]) -> bool {
    pivots.iter().enumerate().filter(|&(i, &pivot)| i != pivot).count() % 2 == 1
}

pub(crate) fn determinant<T: Number>(a: &[T], n: usize, pivots: &[usize]) -> T {
    let product = (0..n).fold(T::ONE, |product, i| product * a[i * n + i]);
    if is_odd(pivots) { -product } else { product }
}

/// Matrices of real numbers. For the least sizes the compiler knows the size, and unrolls the loops.
pub(crate) mod real {
    use super::*;

    pub(crate) fn cholesky<T: Real>(a: &mut [T], n: usize) -> Result<(), Failure> {
        unrolled!(n, |size| cholesky_of(a, size))
    }

    pub(crate) fn solve_triangular<T: Real>(a: &[T], n: usize, b: &mut [T], columns: usize, upper: bool, unit: bool) {
        match (upper, unit) {
            (false, false) => unrolled!(n, |size| lower(a, size, b, columns, false)),
            (false, true) => unrolled!(n, |size| lower(a, size, b, columns, true)),
            (true, false) => unrolled!(n, |size| upper_of(a, size, b, columns, false)),
            (true, true) => unrolled!(n, |size| upper_of(a, size, b, columns, true)),
        }
    }

    pub(crate) fn lu<T: Real>(a: &mut [T], rows: usize, columns: usize, pivots: &mut [usize]) {
        if rows == columns {
            unrolled!(rows, |size| lu_of(a, size, size, pivots))
        } else {
            lu_of(a, rows, columns, pivots)
        }
    }

    pub(crate) fn log_determinant<T: Real>(a: &[T], n: usize, pivots: &[usize]) -> [T; 2] {
        let (mut sign, mut sum) = (if is_odd(pivots) { -T::ONE } else { T::ONE }, T::ZERO);
        for i in 0..n {
            let pivot = a[i * n + i];
            match pivot.partial_cmp(&T::ZERO) {
                Some(Ordering::Greater) => {}
                Some(Ordering::Equal) => sign = T::ZERO,
                Some(Ordering::Less) => sign = -sign,
                None => sign = pivot,
            }
            sum += pivot.magnitude().logarithm();
        }
        [sign, sum]
    }
}

/// Matrices of complex numbers. Their arithmetic costs so much more that loops are not unrolled.
pub(crate) mod complex {
    use super::*;

    pub(crate) fn cholesky<T: Number>(a: &mut [T], n: usize) -> Result<(), Failure> {
        cholesky_of(a, n)
    }

    pub(crate) fn solve_triangular<T: Number>(a: &[T], n: usize, b: &mut [T], columns: usize, upper: bool, unit: bool) {
        if upper { upper_of(a, n, b, columns, unit) } else { lower(a, n, b, columns, unit) }
    }

    pub(crate) fn lu<T: Number>(a: &mut [T], rows: usize, columns: usize, pivots: &mut [usize]) {
        lu_of(a, rows, columns, pivots);
    }

    pub(crate) fn log_determinant<T: Number>(a: &[T], n: usize, pivots: &[usize]) -> [T; 2] {
        let (mut sign, mut sum) = (if is_odd(pivots) { -T::ONE } else { T::ONE }, T::Part::ZERO);
        for i in 0..n {
            let pivot = a[i * n + i];
            sign = if pivot == T::ZERO { T::ZERO } else { sign * pivot.direction() };
            sum += pivot.magnitude().logarithm();
        }
        [sign, T::of_part(sum)]
    }
}
