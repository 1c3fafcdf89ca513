//! Products whose right operand is a view of windows (`ir::window_product`).
//!
//! Panels are packed straight from the view (`gather`), so the windows are never copied to memory.

use super::format::Format;
use super::gather::{Gathered, WindowTable};
use super::piece::ProductPiece;
use super::tile::Multiply;
use super::{Cut, pool, widened};
use crate::codegen::vm::Isa;
use crate::error::Result;
use crate::ir::attrs::{Attributes, WindowProduct};
use crate::ir::{Attr, DType, Layout};
use crate::runtime::array::Array;
use smallvec::SmallVec;

/// Dims in front of the inner ones: samples and groups.
const BATCH: usize = 2;

/// Computes the product of `(samples, groups, M, K)` and windows `(samples, groups, inner…, columns…)` into `out`.
///
/// The result is dense. 16-bit floats are widened in memory, but not as often as windows repeat them. The op's
/// inference has checked the shapes.
///
/// # Errors
/// Out of memory.
pub(in crate::runtime) fn of_windows(left: &Array, windows: &Array, out: &Array, attrs: &[Attr]) -> Result<()> {
    let inner = WindowProduct::read(attrs).inner as usize;
    match left.dtype() {
        DType::F32 => multiply::<f32>(left, windows, out, inner),
        DType::F64 => multiply::<f64>(left, windows, out, inner),
        DType::F16 => multiply::<f32>(&widened(left, Format::F16)?, &widened(windows, Format::F16)?, out, inner),
        DType::BF16 => multiply::<f32>(&widened(left, Format::BF16)?, &widened(windows, Format::BF16)?, out, inner),
        dtype @ (DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64) => {
            unreachable!("products of windows of {dtype} are products of copies")
        }
    }
}

fn multiply<T: Multiply>(left: &Array, windows: &Array, out: &Array, inner: usize) -> Result<()> {
    let kernels = T::kernels(Isa::best());
    let (a, b) = (left.layout(), windows.layout());
    let (m, k) = (a.sizes[BATCH], a.sizes[BATCH + 1]);
    let dims = dims(b);
    let table = WindowTable::new(&dims[BATCH..BATCH + inner], &dims[BATCH + inner..], kernels.lanes)?;
    let n: usize = b.sizes[BATCH + inner..].iter().product();
    let [samples, groups] = [a.sizes[0], a.sizes[1]];
    let cut = Cut::new([samples * groups, m, k, n]);
    let one = |index: usize| {
        let (matrix, rows, columns) = cut.part(index);
        let (sample, group) = (matrix / groups, matrix % groups);
        let at = |array: &Array, offset: usize| array.ptr().cast::<T>().wrapping_add(offset);
        let start = |layout: &Layout| sample * layout.strides[0] + group * layout.strides[1];
        let piece = ProductPiece {
            m: rows.len(),
            k,
            n: columns.len(),
            a: at(left, start(a) + rows.start * a.strides[BATCH]).cast_const(),
            left: [a.strides[BATCH], a.strides[BATCH + 1]],
            b: at(windows, start(b)).cast_const(),
            right: [0, 0],
            gathered: Some(Gathered { table: &table, step: 0, column: columns.start }),
            c: at(out, (matrix * m + rows.start) * n + columns.start),
            c_row: n,
            is_first: true,
            is_last: true,
        };
        #[allow(unsafe_code, reason = "pieces are raw pointers")]
        // SAFETY: the layouts of the operands are inside their storages, which they keep alive, and the table has only
        // offsets of the windows' layout. Nothing writes the operands while a routine runs. `out` is memory of
        // `samples * groups * m * n` elements that nothing else uses, and each index writes its own part. The level is
        // one of this processor.
        unsafe {
            piece.multiply(kernels);
        }
    };
    pool::run(cut.parts(), cut.threads, &one);
    Ok(())
}

/// The size and stride of each dim.
fn dims(layout: &Layout) -> SmallVec<[(usize, usize); 8]> {
    layout.sizes.iter().copied().zip(layout.strides.iter().copied()).collect()
}
