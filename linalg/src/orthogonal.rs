//! QR factorizations, by Householder reflections.

use crate::element::Real;
use crate::spectra::identity;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::householder::{
    apply_block_householder_sequence_on_the_left_in_place_scratch as scratch_to_apply,
    apply_block_householder_sequence_on_the_left_in_place_with_conj as apply,
};
use faer::linalg::qr::no_pivoting::factor::{qr_in_place, qr_in_place_scratch, recommended_block_size};
use faer::{Conj, Mat, MatMut, Par};

pub(crate) fn qr<T: Real>(a: &mut [T], rows: usize, columns: usize, q: &mut [T], r: &mut [T]) {
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
    let q = MatMut::from_column_major_slice_mut(q, rows, width);
    apply(basis, factor.as_ref(), Conj::No, q, Par::Seq, MemStack::new(&mut memory));
}
