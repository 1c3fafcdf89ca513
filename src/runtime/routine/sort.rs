//! Sorts: the places of elements in the order of their values.
//!
//! Every element becomes an integer with the same order, so one sort of integers serves all dtypes. For floats, −0.0
//! equals 0.0, and a NaN is greater than any number and equal to any other NaN. Lines are sorted in parallel if there
//! is enough work. Each is sorted separately, so the split does not change results.

use super::elements::{Operands, Truth};
use super::number::with_element;
use super::walk::{StridedWalk, dim};
use crate::device::{pool, roomy};
use crate::error::Result;
use crate::ir::attrs::{Argsort, Attributes};
use crate::ir::{Attr, DType, Op};
use bytemuck::AnyBitPattern;
use half::{bf16, f16};
use std::sync::{Mutex, PoisonError};

/// Elements that pay for one more thread.
const WORTH_A_THREAD: usize = 1 << 14;

/// An element with an order.
trait Ordered: AnyBitPattern + Send + Sync {
    /// An integer with the order of the elements.
    fn rank(self) -> u64;
}

macro_rules! ordered_floats {
    ($($ty:ident as $bits:ident),*) => {$(
        impl Ordered for $ty {
            fn rank(self) -> u64 {
                const SIGN: $bits = 1 << ($bits::BITS - 1);
                if self.is_nan() {
                    return $bits::MAX.into();
                }
                let bits = if self == $ty::from_bits(SIGN) { 0 } else { self.to_bits() };
                // Among negative numbers, greater bits mean a lesser number.
                (if bits & SIGN == 0 { bits | SIGN } else { !bits }).into()
            }
        }
    )*};
}

ordered_floats!(f16 as u16, bf16 as u16, f32 as u32, f64 as u64);

macro_rules! ordered_integers {
    ($($ty:ident),*) => {$(
        impl Ordered for $ty {
            fn rank(self) -> u64 {
                // Flipping the sign moves the negative numbers below the others.
                (self as i64) as u64 ^ (1 << 63)
            }
        }
    )*};
}

ordered_integers!(u8, i8, i16, i32, i64);

impl Ordered for Truth {
    fn rank(self) -> u64 {
        self.get().into()
    }
}

pub(super) fn run(op: Op, attrs: &[Attr], mut operands: Operands<'_>) -> Result<()> {
    let (input, output) = (operands.inputs.array(0), operands.output.array());
    let Argsort { dim: along, descending, .. } = Argsort::read(attrs);
    let dim = dim(op, along, input)?;
    // Largest first: inverted ranks, so that equal elements keep their order.
    let flip = if descending { u64::MAX } else { 0 };
    let (walk, line) =
        StridedWalk::lines(&input.layout().sizes, dim, [&input.layout().strides, &output.layout().strides]);
    let n_elements = input.layout().numel();
    with_element!(input.dtype(), T => {
        let from = operands.inputs.elements::<T>(0);
        let to = operands.output.elements::<i64>();
        let keyed = |at: usize, pairs: &mut Vec<(u64, i64)>| {
            pairs.clear();
            pairs.extend((0..line.len).zip(0i64..).map(|(i, place)| (from[at + i * line.steps[0]].rank() ^ flip, place)));
            pairs.sort_unstable();
        };
        if line.steps[1] == 1 && n_elements >= 2 * WORTH_A_THREAD {
            let mut rows: Vec<(usize, Mutex<&mut [i64]>)> = roomy(n_elements / line.len.max(1))?;
            let mut lines = to.chunks_exact_mut(line.len);
            walk.each(|[at, _]| rows.extend(lines.next().map(|to| (at, Mutex::new(to)))));
            let failed = Mutex::new(None);
            pool::parallel_for(rows.len(), n_elements / WORTH_A_THREAD, |range| {
                let mut pairs = match roomy(line.len) {
                    Ok(pairs) => pairs,
                    Err(error) => {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        return;
                    }
                };
                for (at, row) in &rows[range] {
                    keyed(*at, &mut pairs);
                    let mut row = row.lock().unwrap_or_else(PoisonError::into_inner);
                    row.iter_mut().zip(&pairs).for_each(|(to, &(_, place))| *to = place);
                }
            });
            if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
                return Err(error);
            }
        } else {
            let mut pairs = roomy(line.len)?;
            walk.each(|[at, out]| {
                keyed(at, &mut pairs);
                for (i, &(_, place)) in pairs.iter().enumerate() {
                    to[out + i * line.steps[1]] = place;
                }
            });
        }
    });
    Ok(())
}
