//! Functions of matrices: exponentials, and the gradient of the determinant.

use crate::element::{Element, Number, Real};
use crate::{Failure, small, spectra};
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

/// The cofactors `det(A) A⁻ᵀ`. For a singular matrix `U S Wᵀ`, they are `det(U) det(W) U* C W*ᵀ`, where `C` has the
/// products of all other singular values, and `X*` is the conjugate of `X`.
pub(crate) fn cofactors<T: Number + Element>(a: &[T], n: usize, out: &mut [T]) -> Result<(), Failure> {
    let (mut lu, mut pivots) = (a.to_vec(), vec![0; n]);
    T::lu(&mut lu, n, n, &mut pivots);
    let det = T::determinant(&lu, n, &pivots);
    if det != T::ZERO && small::check_pivots(&lu, n, n).is_ok() {
        // The columns of the inverse are the rows of its transpose.
        let mut inverse = vec![T::ZERO; n * n];
        spectra::identity(&mut inverse, n);
        T::solve_by_lu(&lu, n, &pivots, &mut inverse, n);
        for j in 0..n {
            for i in 0..n {
                out[j * n + i] = inverse[i * n + j] * det;
            }
        }
        return Ok(());
    }
    let (mut s, mut u, mut v) = (vec![T::ZERO; n], vec![T::ZERO; n * n], vec![T::ZERO; n * n]);
    spectra::singular(&mut a.to_vec(), n, n, &mut s, Some((&mut u, &mut v)))?;
    let mut sign = T::ONE;
    for vectors in [&u, &v] {
        let mut lu = vectors.clone();
        T::lu(&mut lu, n, n, &mut pivots);
        sign *= T::determinant(&lu, n, &pivots).direction();
    }
    u.iter_mut().chain(&mut v).for_each(|element| *element = element.conjugate());
    for (skipped, column) in v.chunks_exact_mut(n.max(1)).enumerate() {
        let others = s.iter().enumerate().filter(|&(i, _)| i != skipped);
        let product = others.fold(sign, |product, (_, &value)| product * value);
        column.iter_mut().for_each(|element| *element *= product);
    }
    product(&u, &v, n, Transposed::Right, out);
    Ok(())
}

/// Which factor of a product is transposed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transposed {
    Neither,
    Right,
}

fn product<T: Number>(a: &[T], b: &[T], n: usize, transposed: Transposed, out: &mut [T]) {
    let (a, b) = (MatRef::from_column_major_slice(a, n, n), MatRef::from_column_major_slice(b, n, n));
    let b = if transposed == Transposed::Right { b.transpose() } else { b };
    matmul(MatMut::from_column_major_slice_mut(out, n, n), Accum::Replace, a, b, T::ONE, Par::Seq);
}

/// The matrix exponential by scaling and squaring of the diagonal Padé approximant of order 13 (Higham, The scaling and
/// squaring method for the matrix exponential revisited, SIAM J. Matrix Anal. Appl. 26, 2005, algorithm 2.3).
pub(crate) fn exponential<T: Number + Element>(a: &mut [T], n: usize, out: &mut [T]) {
    /// The greatest 1-norm for which the approximant is exact to f64.
    const THETA: f64 = 5.371920351148152;
    const B: [f64; 14] = [
        64764752532480000.0,
        32382376266240000.0,
        7771770303897600.0,
        1187353796428800.0,
        129060195264000.0,
        10559470521600.0,
        670442572800.0,
        33522128640.0,
        1323241920.0,
        40840800.0,
        960960.0,
        16380.0,
        182.0,
        1.0,
    ];
    if n == 0 {
        return;
    }
    let sums =
        a.chunks_exact(n).map(|column| column.iter().fold(0.0, |sum, element| sum + element.magnitude().to_f64()));
    let norm = sums.fold(0.0, |most: f64, sum| if sum > most || sum.is_nan() { sum } else { most });
    if !norm.is_finite() {
        out.fill(T::NAN);
        return;
    }
    let squarings = if norm > THETA { (norm / THETA).log2().ceil() as i32 } else { 0 };
    spectra::times_power(a, -squarings);
    let zeros = || vec![T::ZERO; n * n];
    let (mut a2, mut a4, mut a6, mut sum, mut odd, mut even) = (zeros(), zeros(), zeros(), zeros(), zeros(), zeros());
    product(a, a, n, Transposed::Neither, &mut a2);
    product(&a2, &a2, n, Transposed::Neither, &mut a4);
    product(&a4, &a2, n, Transposed::Neither, &mut a6);
    // The coefficients are scaled by the first, so that all of them are at most 1: f32 has no room for them.
    let b = |i: usize| T::of_part(T::Part::from_f64(B[i] / B[0]));
    let combined = |out: &mut [T], [c6, c4, c2, c0]: [T; 4]| {
        for (at, element) in out.iter_mut().enumerate() {
            *element += a6[at] * c6 + a4[at] * c4 + a2[at] * c2;
            if at % (n + 1) == 0 {
                *element += c0;
            }
        }
    };
    combined(&mut sum, [b(13), b(11), b(9), T::ZERO]);
    product(&a6, &sum, n, Transposed::Neither, &mut even);
    combined(&mut even, [b(7), b(5), b(3), b(1)]);
    product(a, &even, n, Transposed::Neither, &mut odd);
    sum.fill(T::ZERO);
    combined(&mut sum, [b(12), b(10), b(8), T::ZERO]);
    product(&a6, &sum, n, Transposed::Neither, &mut even);
    combined(&mut even, [b(6), b(4), b(2), b(0)]);
    // (V - U) X = V + U.
    let mut left = zeros();
    for at in 0..n * n {
        left[at] = even[at] - odd[at];
        out[at] = even[at] + odd[at];
    }
    let mut pivots = vec![0; n];
    T::lu(&mut left, n, n, &mut pivots);
    T::solve_by_lu(&left, n, &pivots, out, n);
    for _ in 0..squarings {
        product(out, out, n, Transposed::Neither, &mut sum);
        out.copy_from_slice(&sum);
    }
}

#[cfg(test)]
mod tests {
    use crate::{large, small};

    #[test]
    fn both_factorizations_agree() {
        let n = 17;
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        let a: Vec<f64> = (0..n * n).map(|_| next()).collect();
        let (mut first, mut second, mut p, mut q) = (a.clone(), a, vec![0; n], vec![0; n]);
        small::real::lu(&mut first, n, n, &mut p);
        large::lu(&mut second, n, n, &mut q);
        assert_eq!(p, q);
        assert!(first.iter().zip(&second).all(|(x, y)| (x - y).abs() < 1e-12));
    }
}
