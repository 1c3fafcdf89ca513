//! QR factorizations, by Householder reflections.

use crate::element::Number;
use crate::spectra::identity;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::householder::{
    apply_block_householder_sequence_on_the_left_in_place_scratch as scratch_to_apply,
    apply_block_householder_sequence_on_the_left_in_place_with_conj as apply,
};
use faer::linalg::qr::no_pivoting::factor::{qr_in_place, qr_in_place_scratch, recommended_block_size};
use faer::{Conj, Mat, MatMut, Par};

pub(crate) fn qr<T: Number>(a: &mut [T], rows: usize, columns: usize, q: &mut [T], r: &mut [T]) {
    let size = rows.min(columns);
    let width = q.len().checked_div(rows).unwrap_or(0);
    identity(q, rows);
    r.fill(T::ZERO);
    if size == 0 {
        return;
    }
    let block = recommended_block_size::<T>(rows, columns);
    let mut factor = Mat::<T>::zeros(block, size);
    let mut memory = MemBuffer::new(faer::dyn_stack::StackReq::any_of(&[
        qr_in_place_scratch::<T>(rows, columns, block, Par::Seq, Default::default()),
        scratch_to_apply::<T>(rows, block, width),
    ]));
    let mut matrix = MatMut::from_column_major_slice_mut(a, rows, columns);
    let stack = MemStack::new(&mut memory);
    qr_in_place(matrix.as_mut(), factor.as_mut(), Par::Seq, stack, Default::default());
    for j in 0..columns {
        for i in 0..=j.min(width.saturating_sub(1)) {
            r[j * width + i] = matrix[(i, j)];
        }
    }
    let basis = matrix.as_ref().subcols(0, size);
    let target = MatMut::from_column_major_slice_mut(q, rows, width);
    apply(basis, factor.as_ref(), Conj::No, target, Par::Seq, MemStack::new(&mut memory));
    if !T::IS_REAL {
        straighten(rows, columns, q, r);
    }
}

/// Turns the columns of `q` and the rows of `r` so that the diagonal of `r` is real.
fn straighten<T: Number>(rows: usize, columns: usize, q: &mut [T], r: &mut [T]) {
    let width = q.len() / rows;
    for i in 0..rows.min(columns) {
        let direction = r[i * width + i].direction();
        q[i * rows..][..rows].iter_mut().for_each(|element| *element *= direction);
        for j in i..columns {
            r[j * width + i] *= direction.conjugate();
        }
        r[i * width + i] = T::of_part(r[i * width + i].real_part());
    }
}
