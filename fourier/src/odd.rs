//! Transforms of real lines of odd length, by parts of which only half need a transform.
//!
//! A line of `n = p m` elements is a matrix of `p` rows of `m`. The forward transform takes one of length `p` along
//! each column, multiplies by roots of unity, and takes one of length `m` along each row. The columns are real. So rows
//! `k` and `p - k` are conjugates, and of `p` rows only `(p + 1) / 2` are transformed. The backward transform does the
//! same in the opposite order.
//!
//! Two lines as the parts of one complex line would be as fast, but the rounding of one would then depend on the other.

use num_complex::Complex;
use pulp::{Arch, NullaryFnOnce};
use rustfft::{Fft, FftNum, FftPlanner};
use std::sync::Arc;

/// Numbers of rows, by preference. More save more transforms, while those of the columns have more work.
const ROWS: [usize; 5] = [13, 5, 7, 11, 3];
/// Columns that are transformed at once, as vectors.
const TOGETHER: usize = 8;
/// The least length that is faster this way than as a complex line.
const LEAST: usize = 250;

/// A plan for lines of one length.
pub(crate) struct OddLine<T> {
    n_rows: usize,
    n_columns: usize,
    /// The transform of a row.
    fft: Arc<dyn Fft<T>>,
    /// `cos` and `sin` of `2π j k / p` for `j` and `k` from 1 to `(p - 1) / 2`.
    cosines: Vec<T>,
    sines: Vec<T>,
    /// `exp(±2πi c k / n)` for each column `c` of each row `k`, as two lists.
    real_roots: Vec<T>,
    imaginary_roots: Vec<T>,
}

/// `cos` and `sin` of `2π at / n`, rounded once for f32 and nearly so for f64.
fn root(at: usize, n: usize) -> (f64, f64) {
    // Angles of at most an eighth of a turn are the most exact.
    let at = at % n;
    let (eighths, half) = (8 * at / n, n as f64 / 2.0);
    let angle = |from: f64| std::f64::consts::PI * (at as f64 - from) / half;
    let quarter = n as f64 / 4.0;
    match eighths {
        0 => (angle(0.0).cos(), angle(0.0).sin()),
        1 | 2 => (-angle(quarter).sin(), angle(quarter).cos()),
        3 | 4 => (-angle(2.0 * quarter).cos(), -angle(2.0 * quarter).sin()),
        5 | 6 => (angle(3.0 * quarter).sin(), -angle(3.0 * quarter).cos()),
        _last => (angle(4.0 * quarter).cos(), angle(4.0 * quarter).sin()),
    }
}

/// Does some work on a line, compiled for its number of rows, which is one of [`ROWS`], and half of it.
macro_rules! by_rows {
    ($line:expr, $work:ident, $from:expr, $to:expr) => {
        match $line.n_rows {
            3 => Arch::new().dispatch($work::<_, 3, 1>($line, $from, $to)),
            5 => Arch::new().dispatch($work::<_, 5, 2>($line, $from, $to)),
            7 => Arch::new().dispatch($work::<_, 7, 3>($line, $from, $to)),
            11 => Arch::new().dispatch($work::<_, 11, 5>($line, $from, $to)),
            13 => Arch::new().dispatch($work::<_, 13, 6>($line, $from, $to)),
            other => unreachable!("{other} rows are not on the list"),
        }
    };
}

impl<T: FftNum> OddLine<T> {
    /// A plan, if this length has one: it must be odd and have a small factor.
    pub(crate) fn new(length: usize, forward: bool, factor: impl Fn(f64) -> T) -> Option<OddLine<T>> {
        let is_odd = length % 2 == 1 && length >= LEAST;
        let n_rows = ROWS.into_iter().find(|&p| is_odd && length.is_multiple_of(p))?;
        let (n_columns, half) = (length / n_rows, n_rows / 2);
        let mut planner = FftPlanner::new();
        let fft = if forward { planner.plan_fft_forward(n_columns) } else { planner.plan_fft_inverse(n_columns) };
        let of_columns = (1..=half).flat_map(|k| (1..=half).map(move |j| root(j * k, n_rows)));
        let (cosines, sines) = of_columns.map(|(cos, sin)| (factor(cos), factor(sin))).unzip();
        let of_rows = (0..=half).flat_map(|k| (0..n_columns).map(move |c| root(c * k, length)));
        let sign = if forward { -1.0 } else { 1.0 };
        let (real_roots, imaginary_roots) = of_rows.map(|(cos, sin)| (factor(cos), factor(sign * sin))).unzip();
        Some(OddLine { n_rows, n_columns, fft, cosines, sines, real_roots, imaginary_roots })
    }

    /// The number of complex elements that a transform needs besides.
    pub(crate) fn n_scratch(&self) -> usize {
        self.n_transformed() + self.fft.get_inplace_scratch_len()
    }

    /// The elements of the rows that are transformed.
    fn n_transformed(&self) -> usize {
        (self.n_rows / 2 + 1) * self.n_columns
    }

    /// The forward transform of a real line: its first `n / 2 + 1` elements.
    pub(crate) fn forward(&self, from: &[T], to: &mut [Complex<T>], scratch: &mut [Complex<T>]) {
        let (rows, scratch) = scratch.split_at_mut(self.n_transformed());
        by_rows!(self, OfReal, from, rows);
        self.fft.process_with_scratch(rows, scratch);
        // Element c of row k is element k + p c of the result, whose second half is left out.
        let (p, length) = (self.n_rows, self.n_rows * self.n_columns);
        for (k, row) in rows.chunks_exact(self.n_columns).enumerate() {
            let n_first = (length / 2 - k) / p + 1;
            let (first, others) = row.split_at(n_first);
            first.iter().zip(to[k..].iter_mut().step_by(p)).for_each(|(element, to)| *to = *element);
            if k > 0 {
                let targets = to[p - k..].iter_mut().step_by(p);
                others.iter().rev().zip(targets).for_each(|(element, to)| *to = element.conj());
            }
        }
    }

    /// The backward transform of a line whose elements from `n / 2 + 1` on are conjugates of others, to a real one.
    pub(crate) fn backward(&self, from: &[Complex<T>], to: &mut [T], scratch: &mut [Complex<T>]) {
        let (rows, scratch) = scratch.split_at_mut(self.n_transformed());
        let (p, length) = (self.n_rows, self.n_rows * self.n_columns);
        for (k, row) in rows.chunks_exact_mut(self.n_columns).enumerate() {
            let (first, others) = row.split_at_mut((length / 2 - k) / p + 1);
            first.iter_mut().zip(from[k..].iter().step_by(p)).for_each(|(element, from)| *element = *from);
            let start = if k == 0 { p } else { p - k };
            let sources = from[start..].iter().step_by(p);
            others.iter_mut().rev().zip(sources).for_each(|(element, from)| *element = from.conj());
        }
        self.fft.process_with_scratch(rows, scratch);
        by_rows!(self, ToReal, rows, to);
    }

    /// Where each block of columns begins. The last one may overlap with the one before it.
    #[inline(always)]
    fn blocks(&self) -> impl Iterator<Item = usize> + use<T> {
        let last = self.n_columns - TOGETHER;
        (0..self.n_columns).step_by(TOGETHER).map(move |column| column.min(last))
    }

    /// The columns' transforms, times roots of unity. `H` is `(P - 1) / 2`.
    #[inline(always)]
    fn columns_of_real<const P: usize, const H: usize>(&self, from: &[T], rows: &mut [Complex<T>]) {
        let m = self.n_columns;
        for column in self.blocks() {
            let first = block(from, column);
            let (mut sums, mut differences) = ([[T::zero(); TOGETHER]; H], [[T::zero(); TOGETHER]; H]);
            let mut total = first;
            for j in 0..H {
                let (low, high) = (block(from, (j + 1) * m + column), block(from, (P - 1 - j) * m + column));
                for at in 0..TOGETHER {
                    sums[j][at] = low[at] + high[at];
                    differences[j][at] = low[at] - high[at];
                    total[at] = total[at] + sums[j][at];
                }
            }
            for (to, total) in rows[column..column + TOGETHER].iter_mut().zip(total) {
                *to = Complex::new(total, T::zero());
            }
            for k in 0..H {
                let (cosines, sines) = (&self.cosines[k * H..][..H], &self.sines[k * H..][..H]);
                let (mut real, mut imaginary) = (first, [T::zero(); TOGETHER]);
                for j in 0..H {
                    for at in 0..TOGETHER {
                        real[at] = real[at] + cosines[j] * sums[j][at];
                        imaginary[at] = imaginary[at] - sines[j] * differences[j][at];
                    }
                }
                let place = (k + 1) * m + column;
                let (roots, others) = (block(&self.real_roots, place), block(&self.imaginary_roots, place));
                let to = &mut rows[place..place + TOGETHER];
                for at in 0..TOGETHER {
                    let (root, other) = (roots[at], others[at]);
                    let product = |a: T, b: T, c: T, d: T| (a * c - b * d, a * d + b * c);
                    let (real, imaginary) = product(real[at], imaginary[at], root, other);
                    to[at] = Complex::new(real, imaginary);
                }
            }
        }
    }

    /// Products with roots of unity, and the columns' transforms to real numbers. `H` is `(P - 1) / 2`.
    #[inline(always)]
    fn columns_to_real<const P: usize, const H: usize>(&self, rows: &[Complex<T>], to: &mut [T]) {
        let m = self.n_columns;
        for column in self.blocks() {
            let mut first = [T::zero(); TOGETHER];
            for (first, row) in first.iter_mut().zip(&rows[column..column + TOGETHER]) {
                *first = row.re;
            }
            let (mut reals, mut imaginaries) = ([[T::zero(); TOGETHER]; H], [[T::zero(); TOGETHER]; H]);
            let mut total = first;
            for k in 0..H {
                let place = (k + 1) * m + column;
                let (roots, others) = (block(&self.real_roots, place), block(&self.imaginary_roots, place));
                let row = &rows[place..place + TOGETHER];
                for at in 0..TOGETHER {
                    let real = row[at].re * roots[at] - row[at].im * others[at];
                    let imaginary = row[at].re * others[at] + row[at].im * roots[at];
                    // A row and its conjugate.
                    reals[k][at] = real + real;
                    imaginaries[k][at] = imaginary + imaginary;
                    total[at] = total[at] + reals[k][at];
                }
            }
            to[column..column + TOGETHER].copy_from_slice(&total);
            for j in 0..H {
                let (cosines, sines) = (&self.cosines[j * H..][..H], &self.sines[j * H..][..H]);
                let (mut even, mut odd) = (first, [T::zero(); TOGETHER]);
                for k in 0..H {
                    for at in 0..TOGETHER {
                        even[at] = even[at] + cosines[k] * reals[k][at];
                        odd[at] = odd[at] + sines[k] * imaginaries[k][at];
                    }
                }
                let (low, high) = ((j + 1) * m + column, (P - 1 - j) * m + column);
                for at in 0..TOGETHER {
                    to[low + at] = even[at] - odd[at];
                    to[high + at] = even[at] + odd[at];
                }
            }
        }
    }
}

/// Elements from a place on.
#[inline(always)]
fn block<T: FftNum>(from: &[T], start: usize) -> [T; TOGETHER] {
    *from[start..].first_chunk().expect("a block lies inside of the line")
}

/// [`OddLine::columns_of_real`], to be compiled for the vectors of the machine. No product is contracted with a sum, so
/// the bits do not depend on them.
struct OfReal<'a, T, const P: usize, const H: usize>(&'a OddLine<T>, &'a [T], &'a mut [Complex<T>]);

impl<T: FftNum, const P: usize, const H: usize> NullaryFnOnce for OfReal<'_, T, P, H> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.0.columns_of_real::<P, H>(self.1, self.2);
    }
}

/// [`OddLine::columns_to_real`], like [`OfReal`].
struct ToReal<'a, T, const P: usize, const H: usize>(&'a OddLine<T>, &'a [Complex<T>], &'a mut [T]);

impl<T: FftNum, const P: usize, const H: usize> NullaryFnOnce for ToReal<'_, T, P, H> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.0.columns_to_real::<P, H>(self.1, self.2);
    }
}
