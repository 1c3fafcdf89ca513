//! The elements of matrices, and what can be done with a matrix of them.

use crate::{Failure, functions, general, large, orthogonal, small, spectra};
use num_complex::Complex;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

/// Arithmetic of real and complex numbers.
pub(crate) trait Number:
    faer::traits::ComplexField
    + Copy
    + PartialEq
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
{
    /// What its parts are.
    type Part: Real;
    const ZERO: Self;
    const ONE: Self;
    const NAN: Self;
    fn of_part(part: Self::Part) -> Self;
    fn real_part(self) -> Self::Part;
    fn conjugate(self) -> Self;
    fn magnitude(self) -> Self::Part;
    /// The magnitude of the greatest part.
    fn greatest_part(self) -> Self::Part;
    fn finite(self) -> bool;
    fn over(self, divisor: Self) -> Self;
    fn times_part(self, factor: Self::Part) -> Self;
    fn over_part(self, divisor: Self::Part) -> Self;
    /// The number of magnitude 1 with its direction. Zero has that of 1.
    fn direction(self) -> Self;
}

/// Arithmetic of f32 and f64.
pub(crate) trait Real:
    Number<Part = Self> + faer::traits::RealField + PartialOrd + Div<Output = Self> + DivAssign
{
    /// Numbers of at most this binary exponent, and of at least its negative, are squared without harm.
    const SAFE_EXPONENT: i32;
    fn root(self) -> Self;
    fn logarithm(self) -> Self;
    /// The exponent `e` of the least power of two above a positive number.
    fn exponent(self) -> i32;
    /// Two to a power, which is not too large for the type.
    fn power_of_two(exponent: i32) -> Self;
    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
}

/// An element: f32, f64, or a complex number of these. All matrices are column-major; sizes that do not fit the slices
/// are a panic. Real numbers among the results of a complex matrix are complex numbers without imaginary part.
pub trait Element: Sized + Copy + Default + Send + Sync + 'static {
    /// The complex numbers of this precision.
    type Complex: Element;

    /// A count as an element.
    fn from_count(count: usize) -> Self;

    /// Writes the identity.
    fn identity(a: &mut [Self], n: usize);

    /// Factors a positive definite matrix of order `n` as `L Lᴴ`, from its lower triangle, in place. Elements above the
    /// diagonal become 0.
    ///
    /// # Errors
    /// If it is not positive definite. The diagonal is NaN from the first bad minor on, then.
    fn cholesky(a: &mut [Self], n: usize) -> Result<(), Failure>;

    /// Solves `A X = B` in place of `b`, which has `columns` columns. Elements of `a` on the other side of the diagonal
    /// are not read; with `unit` the diagonal is not read either, and counts as 1.
    fn solve_triangular(a: &[Self], n: usize, b: &mut [Self], columns: usize, upper: bool, unit: bool);

    /// Factors a matrix of `rows` by `columns` as `P L U` in place. At step `i`, rows `i` and `pivots[i]` were swapped.
    /// There are as many pivots as the lesser size.
    fn lu(a: &mut [Self], rows: usize, columns: usize, pivots: &mut [usize]);

    /// Solves `A X = B` in place of `b`, from what [`Element::lu`] has left in `a`.
    fn solve_by_lu(a: &[Self], n: usize, pivots: &[usize], b: &mut [Self], columns: usize);

    /// Checks the first `count` pivots of what [`Element::lu`] has left.
    ///
    /// # Errors
    /// The first pivot that is zero.
    fn check_pivots(a: &[Self], rows: usize, count: usize) -> Result<(), Failure>;

    /// The determinant, from what [`Element::lu`] has left.
    fn determinant(a: &[Self], n: usize, pivots: &[usize]) -> Self;

    /// The sign of the determinant and the logarithm of its magnitude.
    fn log_determinant(a: &[Self], n: usize, pivots: &[usize]) -> [Self; 2];

    /// The cofactors: the derivatives of the determinant by each element. They exist for singular matrices too.
    ///
    /// # Errors
    /// If the matrix is singular and an element is not finite.
    fn cofactors(a: &[Self], n: usize, out: &mut [Self]) -> Result<(), Failure>;

    /// Factors a matrix of `rows` by `columns`: `q` with orthonormal columns, as many as it has room for (all rows, or
    /// the lesser size), and `r`, which has as many rows. `a` is overwritten. The diagonal of a complex `r` is real.
    fn qr(a: &mut [Self], rows: usize, columns: usize, q: &mut [Self], r: &mut [Self]);

    /// The eigenvalues of a symmetric or Hermitian matrix in ascending order, and its eigenvectors as columns. Only the
    /// lower triangle is read. `a` is overwritten.
    ///
    /// # Errors
    /// If an element that is read is not finite, or if the iteration does not converge.
    fn symmetric_eigen(
        a: &mut [Self],
        n: usize,
        values: &mut [Self],
        vectors: Option<&mut [Self]>,
    ) -> Result<(), Failure>;

    /// The eigenvalues of any square matrix, and its eigenvectors as columns of length 1. The greatest element of a
    /// complex vector is real. `a` is overwritten.
    ///
    /// # Errors
    /// If an element is not finite, or if the iteration does not converge.
    fn eigen(
        a: &mut [Self],
        n: usize,
        values: &mut [Self::Complex],
        vectors: Option<&mut [Self::Complex]>,
    ) -> Result<(), Failure>;

    /// The singular values in descending order, and the singular vectors as columns of `u` and of the conjugate of `v`:
    /// the matrix is `u diag(values) vᵀ`. Each has as many columns as the lesser size, or all. `a` is overwritten.
    ///
    /// # Errors
    /// If an element is not finite, or if the iteration does not converge.
    fn singular(
        a: &mut [Self],
        rows: usize,
        columns: usize,
        values: &mut [Self],
        vectors: Option<(&mut [Self], &mut [Self])>,
    ) -> Result<(), Failure>;

    /// The pseudoinverse: singular values that are at most `tolerance` count as 0. `a` is overwritten.
    ///
    /// # Errors
    /// As for [`Element::singular`].
    fn pseudoinverse(
        a: &mut [Self],
        rows: usize,
        columns: usize,
        tolerance: [Self; 2],
        out: &mut [Self],
    ) -> Result<(), Failure>;

    /// The matrix exponential. `a` is overwritten.
    fn exponential(a: &mut [Self], n: usize, out: &mut [Self]);
}

macro_rules! reals {
    ($($ty:ident $safe:literal $bits:ident),*) => {$(
        impl Number for $ty {
            type Part = $ty;
            const ZERO: $ty = 0.0;
            const ONE: $ty = 1.0;
            const NAN: $ty = $ty::NAN;
            #[inline(always)]
            fn of_part(part: $ty) -> $ty { part }
            #[inline(always)]
            fn real_part(self) -> $ty { self }
            #[inline(always)]
            fn conjugate(self) -> $ty { self }
            #[inline(always)]
            fn magnitude(self) -> $ty { self.abs() }
            #[inline(always)]
            fn greatest_part(self) -> $ty { self.abs() }
            #[inline(always)]
            fn finite(self) -> bool { self.is_finite() }
            #[inline(always)]
            fn over(self, divisor: $ty) -> $ty { self / divisor }
            #[inline(always)]
            fn times_part(self, factor: $ty) -> $ty { self * factor }
            #[inline(always)]
            fn over_part(self, divisor: $ty) -> $ty { self / divisor }
            fn direction(self) -> $ty { if self < 0.0 { -1.0 } else { 1.0 } }
        }

        impl Real for $ty {
            const SAFE_EXPONENT: i32 = $safe;
            #[inline(always)]
            fn root(self) -> $ty { self.sqrt() }
            fn logarithm(self) -> $ty { self.ln() }
            fn exponent(self) -> i32 {
                // A subnormal number is raised first.
                let raised = if self < $ty::MIN_POSITIVE { $ty::MANTISSA_DIGITS as i32 } else { 0 };
                let normal = self * Self::power_of_two(raised);
                let biased = (normal.to_bits() >> ($ty::MANTISSA_DIGITS - 1)) as i32;
                biased - ($ty::MAX_EXP - 2) - raised
            }
            fn power_of_two(exponent: i32) -> $ty {
                $ty::from_bits(((exponent + $ty::MAX_EXP - 1) as $bits) << ($ty::MANTISSA_DIGITS - 1))
            }
            fn from_f64(value: f64) -> $ty { value as $ty }
            fn to_f64(self) -> f64 { self.into() }
        }

        impl Number for Complex<$ty> {
            type Part = $ty;
            const ZERO: Self = Complex { re: 0.0, im: 0.0 };
            const ONE: Self = Complex { re: 1.0, im: 0.0 };
            const NAN: Self = Complex { re: $ty::NAN, im: $ty::NAN };
            #[inline(always)]
            fn of_part(part: $ty) -> Self { Complex { re: part, im: 0.0 } }
            #[inline(always)]
            fn real_part(self) -> $ty { self.re }
            #[inline(always)]
            fn conjugate(self) -> Self { Complex { re: self.re, im: -self.im } }
            #[inline(always)]
            fn magnitude(self) -> $ty { self.re.hypot(self.im) }
            #[inline(always)]
            fn greatest_part(self) -> $ty { if self.re.abs() > self.im.abs() { self.re.abs() } else { self.im.abs() } }
            #[inline(always)]
            fn finite(self) -> bool { self.re.is_finite() && self.im.is_finite() }
            fn over(self, divisor: Self) -> Self {
                // Both are scaled by the greater part of the divisor, so that no square overflows.
                let scale = divisor.greatest_part();
                let (re, im) = (divisor.re / scale, divisor.im / scale);
                let (norm, x) = (re * re + im * im, self.over_part(scale));
                Complex { re: (x.re * re + x.im * im) / norm, im: (x.im * re - x.re * im) / norm }
            }
            #[inline(always)]
            fn times_part(self, factor: $ty) -> Self { Complex { re: self.re * factor, im: self.im * factor } }
            #[inline(always)]
            fn over_part(self, divisor: $ty) -> Self { Complex { re: self.re / divisor, im: self.im / divisor } }
            fn direction(self) -> Self {
                let size = self.magnitude();
                if size == 0.0 { Self::ONE } else { self.over_part(size) }
            }
        }
    )*};
}

reals!(f32 40 u32, f64 300 u64);

macro_rules! elements {
    ($($ty:ty: $small:ident $general:ident, $part:ident;)*) => {$(
        impl Element for $ty {
            type Complex = Complex<$part>;
            fn from_count(count: usize) -> $ty {
                <$ty>::of_part(count as $part)
            }
            fn identity(a: &mut [$ty], n: usize) {
                spectra::identity(a, n);
            }
            fn cholesky(a: &mut [$ty], n: usize) -> Result<(), Failure> {
                if n <= small::MOST { small::$small::cholesky(a, n) } else { large::cholesky(a, n) }
            }
            fn solve_triangular(a: &[$ty], n: usize, b: &mut [$ty], columns: usize, upper: bool, unit: bool) {
                if n <= small::MOST {
                    small::$small::solve_triangular(a, n, b, columns, upper, unit);
                } else {
                    large::solve_triangular(a, n, b, columns, upper, unit);
                }
            }
            fn lu(a: &mut [$ty], rows: usize, columns: usize, pivots: &mut [usize]) {
                if rows.max(columns) <= small::MOST {
                    small::$small::lu(a, rows, columns, pivots);
                } else {
                    large::lu(a, rows, columns, pivots);
                }
            }
            fn solve_by_lu(a: &[$ty], n: usize, pivots: &[usize], b: &mut [$ty], columns: usize) {
                small::swap_rows(n, pivots, b);
                <$ty>::solve_triangular(a, n, b, columns, false, true);
                <$ty>::solve_triangular(a, n, b, columns, true, false);
            }
            fn check_pivots(a: &[$ty], rows: usize, count: usize) -> Result<(), Failure> {
                small::check_pivots(a, rows, count)
            }
            fn determinant(a: &[$ty], n: usize, pivots: &[usize]) -> $ty {
                small::determinant(a, n, pivots)
            }
            fn log_determinant(a: &[$ty], n: usize, pivots: &[usize]) -> [$ty; 2] {
                small::$small::log_determinant(a, n, pivots)
            }
            fn cofactors(a: &[$ty], n: usize, out: &mut [$ty]) -> Result<(), Failure> {
                functions::cofactors(a, n, out)
            }
            fn qr(a: &mut [$ty], rows: usize, columns: usize, q: &mut [$ty], r: &mut [$ty]) {
                orthogonal::qr(a, rows, columns, q, r);
            }
            fn symmetric_eigen(
                a: &mut [$ty],
                n: usize,
                values: &mut [$ty],
                vectors: Option<&mut [$ty]>,
            ) -> Result<(), Failure> {
                spectra::symmetric_eigen(a, n, values, vectors)
            }
            fn eigen(
                a: &mut [$ty],
                n: usize,
                values: &mut [Complex<$part>],
                vectors: Option<&mut [Complex<$part>]>,
            ) -> Result<(), Failure> {
                general::$general(a, n, values, vectors)
            }
            fn singular(
                a: &mut [$ty],
                rows: usize,
                columns: usize,
                values: &mut [$ty],
                vectors: Option<(&mut [$ty], &mut [$ty])>,
            ) -> Result<(), Failure> {
                spectra::singular(a, rows, columns, values, vectors)
            }
            fn pseudoinverse(
                a: &mut [$ty],
                rows: usize,
                columns: usize,
                tolerance: [$ty; 2],
                out: &mut [$ty],
            ) -> Result<(), Failure> {
                spectra::pseudoinverse(a, rows, columns, tolerance.map(Number::real_part), out)
            }
            fn exponential(a: &mut [$ty], n: usize, out: &mut [$ty]) {
                functions::exponential(a, n, out);
            }
        }
    )*};
}

elements! {
    f32: real of_real, f32;
    f64: real of_real, f64;
    Complex<f32>: complex of_complex, f32;
    Complex<f64>: complex of_complex, f64;
}
