//! Joins index tensors of several dims to one.

use super::destinations::{BLOCK, Index, first_outside};
use super::elements::Operands;
use super::walk::StridedWalk;
use crate::error::{Error, Result};
use crate::ir::attrs::{Attributes, FlatIndex};
use crate::ir::{Attr, Op};

/// Computes `i0 * (s1 * s2 …) + i1 * (s2 …) + …` for sizes `s`. Each index is checked against its size. Optionally a
/// negative one counts from the end.
pub(super) fn run(op: Op, attrs: &[Attr], mut operands: Operands<'_>) -> Result<()> {
    let FlatIndex { sizes, wrap: wraps } = FlatIndex::read(attrs);
    let to = operands.output.elements::<i64>();
    let mut copies = None;
    for operand in 0..operands.inputs.len() {
        let layout = operands.inputs.array(operand).layout();
        let (index, size) = (Index::of(operands.inputs, operand), sizes[operand]);
        let low = if wraps { -size } else { 0 };
        let wrapped = |got: i64| got + (got >> 63 & size);
        let check = |indices: &[i64]| match first_outside(indices, low, size - 1) {
            None => Ok(()),
            Some(got) => {
                let what = format!("index of dimension {operand} with size {size} is");
                Err(Error::out_of_range(op.name(), what, [low, size - 1], got))
            }
        };
        let mut rest = &mut *to;
        StridedWalk::new(&layout.sizes, [&layout.strides]).try_lines(|[start], line| {
            let (to, after) = std::mem::take(&mut rest).split_at_mut(line.len);
            rest = after;
            let step = line.steps[0];
            // The same index, as along a dim that another operand has, is read once.
            let is_one = step == 0;
            for (nth, to) in to.chunks_mut(BLOCK).enumerate() {
                let len = if is_one { 1 } else { to.len() };
                let own = index.block(start + nth * BLOCK * step, step, len, &mut copies);
                check(own)?;
                let place =
                    |got: i64, to: &mut i64| *to = if operand == 0 { wrapped(got) } else { *to * size + wrapped(got) };
                match is_one {
                    true => to.iter_mut().for_each(|to| place(own[0], to)),
                    false => to.iter_mut().zip(own).for_each(|(to, &got)| place(got, to)),
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}
