//! Eigenvalues of matrices of any kind.

use crate::Failure;
use crate::element::{Number, Real};
use crate::spectra::{finished, scaled};
use faer::diag::DiagMut;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{ComputeEigenvectors, evd_cplx, evd_real, evd_scratch};
use faer::{MatMut, MatRef, Par};
use num_complex::Complex;

/// Eigenvalues and vectors that are not real come in pairs of conjugates.
pub(crate) fn of_real<T: Real>(
    a: &mut [T],
    n: usize,
    values: &mut [Complex<T>],
    vectors: Option<&mut [Complex<T>]>,
) -> Result<(), Failure>
where
    Complex<T>: Number<Part = T>,
{
    let scale = scaled(a)?;
    let (mut re, mut im) = (vec![T::ZERO; n], vec![T::ZERO; n]);
    let mut columns = vec![T::ZERO; if vectors.is_some() { n * n } else { 0 }];
    if n == 1 {
        re[0] = a[0];
        columns.fill(T::ONE);
    } else if n > 1 {
        let wanted = wanted(vectors.is_some());
        let layout = evd_scratch::<T>(n, ComputeEigenvectors::No, wanted, Par::Seq, Default::default());
        let right = vectors.is_some().then(|| MatMut::from_column_major_slice_mut(&mut columns, n, n));
        evd_real(
            MatRef::from_column_major_slice(a, n, n),
            DiagMut::from_slice_mut(&mut re),
            DiagMut::from_slice_mut(&mut im),
            None,
            right,
            Par::Seq,
            MemStack::new(&mut MemBuffer::new(layout)),
            Default::default(),
        )
        .map_err(|_| Failure::NoConvergence)?;
    }
    for (value, (&re, &im)) in values.iter_mut().zip(re.iter().zip(&im)) {
        *value = Complex { re, im };
    }
    finished(values, scale)?;
    let Some(vectors) = vectors else { return Ok(()) };
    let mut j = 0;
    while j < n {
        let is_pair = im[j] != T::ZERO && j + 1 < n;
        for i in 0..n {
            let part = if is_pair { columns[(j + 1) * n + i] } else { T::ZERO };
            vectors[j * n + i] = Complex { re: columns[j * n + i], im: part };
        }
        normalize(&mut vectors[j * n..][..n]);
        if is_pair {
            let (first, second) = vectors[j * n..].split_at_mut(n);
            second.iter_mut().zip(first).for_each(|(to, from)| *to = from.conjugate());
        }
        j += if is_pair { 2 } else { 1 };
    }
    Ok(())
}

pub(crate) fn of_complex<T: Real>(
    a: &mut [Complex<T>],
    n: usize,
    values: &mut [Complex<T>],
    vectors: Option<&mut [Complex<T>]>,
) -> Result<(), Failure>
where
    Complex<T>: Number<Part = T>,
{
    let scale = scaled(a)?;
    let mut vectors = vectors;
    if n == 1 {
        values[0] = a[0];
        vectors.iter_mut().for_each(|vectors| vectors.fill(Complex::<T>::ONE));
    } else if n > 1 {
        let wanted = wanted(vectors.is_some());
        let layout = evd_scratch::<Complex<T>>(n, ComputeEigenvectors::No, wanted, Par::Seq, Default::default());
        evd_cplx(
            MatRef::from_column_major_slice(a, n, n),
            DiagMut::from_slice_mut(values),
            None,
            vectors.as_mut().map(|vectors| MatMut::from_column_major_slice_mut(vectors, n, n)),
            Par::Seq,
            MemStack::new(&mut MemBuffer::new(layout)),
            Default::default(),
        )
        .map_err(|_| Failure::NoConvergence)?;
    }
    finished(values, scale)?;
    if let Some(vectors) = vectors {
        vectors.chunks_exact_mut(n.max(1)).for_each(normalize);
    }
    Ok(())
}

fn wanted(vectors: bool) -> ComputeEigenvectors {
    if vectors { ComputeEigenvectors::Yes } else { ComputeEigenvectors::No }
}

/// Gives a vector the length 1, and turns it so that its greatest element is real. A real vector keeps its sign.
fn normalize<T: Real>(vector: &mut [Complex<T>])
where
    Complex<T>: Number<Part = T>,
{
    let mut greatest = Complex::<T>::ZERO;
    for &element in &*vector {
        if element.magnitude() > greatest.magnitude() {
            greatest = element;
        }
    }
    let scale = greatest.magnitude();
    if scale == T::ZERO || !scale.finite() {
        return;
    }
    let is_real = vector.iter().all(|element| element.im == T::ZERO);
    let turn = if is_real { Complex::<T>::ONE } else { greatest.direction().conjugate() };
    let mut sum = T::ZERO;
    for element in &mut *vector {
        let is_greatest = *element == greatest;
        *element = element.over_part(scale) * turn;
        if is_greatest {
            element.im = T::ZERO;
        }
        sum += element.re * element.re + element.im * element.im;
    }
    let length = sum.root();
    vector.iter_mut().for_each(|element| *element = element.over_part(length));
}
