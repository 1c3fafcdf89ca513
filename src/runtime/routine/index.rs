//! Joins index tensors of several dims to one.

use super::elements::Operands;
use super::scatter::{CHECKED, Index};
use super::walk::StridedWalk;
use crate::error::{Error, Result};
use crate::ir::attrs::{Attributes, FlatIndex};
use crate::ir::{Attr, Op};

/// Computes `i0 * (s1 * s2 …) + i1 * (s2 …) + …` for sizes `s`. Each index is checked against its size. Optionally a
/// negative one counts from the end.
pub(super) fn run(op: Op, attrs: &[Attr], mut operands: Operands<'_>) -> Result<()> {
    let FlatIndex { sizes, wrap: wraps } = FlatIndex::read(attrs);
    let to = operands.output.elements::<i64>();
    for operand in 0..operands.inputs.len() {
        // The first operand starts the sums.
        let before = |to: i64, size: i64| if operand == 0 { 0 } else { to * size };
        let layout = operands.inputs.array(operand).layout();
        let (index, size) = (Index::of(operands.inputs, operand), sizes[operand]);
        let low = if wraps { -size } else { 0 };
        let checked = |at: usize| {
            let got = index.at(at);
            if got < low || got >= size {
                let what = format!("index of dimension {operand} with size {size} is");
                return Err(Error::out_of_range(op.name(), what, [low, size - 1], got));
            }
            Ok(if got < 0 { got + size } else { got })
        };
        let mut rest = &mut *to;
        StridedWalk::new(&layout.sizes, [&layout.strides]).try_lines(|[start], line| {
            let (to, after) = std::mem::take(&mut rest).split_at_mut(line.len);
            rest = after;
            if line.steps == [0] {
                // The same index, as along a dim that another operand has.
                let got = checked(start)?;
                to.iter_mut().for_each(|to| *to = before(*to, size) + got);
                return Ok(());
            }
            let mut done = 0;
            if let (Index::Wide(all), [1]) = (index, line.steps) {
                let own = &all[start..start + line.len];
                for (own, to) in own.chunks(CHECKED).zip(to.chunks_mut(CHECKED)) {
                    // Without a call or an exit per element, the compiler makes vectors of it.
                    if !own.iter().fold(true, |fits, &got| fits & (got >= low) & (got < size)) {
                        break;
                    }
                    let places = own.iter().map(|&got| got + (got >> 63 & size));
                    match operand {
                        0 => to.iter_mut().zip(places).for_each(|(to, at)| *to = at),
                        _ => to.iter_mut().zip(places).for_each(|(to, at)| *to = *to * size + at),
                    }
                    done += own.len();
                }
            }
            for (nth, to) in to.iter_mut().enumerate().skip(done) {
                *to = before(*to, size) + checked(start + nth * line.steps[0])?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
