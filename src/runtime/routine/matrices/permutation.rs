//! The order of rows that pivots lead to.

use crate::error::{Error, Result};
use crate::ir::MatrixWork;
use crate::runtime::routine::elements::Operands;
use crate::runtime::routine::walk::StridedWalk;

/// Swaps row `i` with row `pivots[i]`, counted from 1, one after another.
pub(super) fn run(mut operands: Operands<'_>) -> Result<()> {
    let pivots = operands.inputs.elements::<i32>(0);
    let (from, to) = (operands.inputs.array(0).layout(), operands.output.array().layout().clone());
    let (Some(last), Some(&rows)) = (from.rank().checked_sub(1), to.sizes.last()) else {
        return Err(Error::invalid("plan", "pivots without dims"));
    };
    let (count, step) = (from.sizes[last], from.strides[last]);
    let order = operands.output.elements::<i64>();
    let walk = StridedWalk::new(&from.sizes[..last], [&from.strides[..last], &to.strides[..last]]);
    walk.try_each(|[at, start]| {
        let order = &mut order[start..start + rows];
        order.iter_mut().zip(0..).for_each(|(place, row)| *place = row);
        for i in 0..count {
            let pivot = pivots[at + i * step];
            let with = usize::try_from(pivot).ok().and_then(|pivot| pivot.checked_sub(1)).filter(|&row| row < rows);
            let Some(with) = with else {
                let what = format!("pivot {pivot} of {rows} rows");
                return Err(Error::index(MatrixWork::Permutation.name(), what, "pivots count from 1"));
            };
            order.swap(i, with);
        }
        Ok(())
    })
}
