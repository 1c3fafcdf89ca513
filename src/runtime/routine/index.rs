//! Joins index tensors of several dims to one.

use super::elements::Operands;
use super::scatter::Index;
use super::walk::StridedWalk;
use crate::error::{Error, Result};
use crate::ir::attrs::{Attributes, FlatIndex};
use crate::ir::{Attr, Op};

/// Computes `i0 * (s1 * s2 …) + i1 * (s2 …) + …` for sizes `s`. Each index is checked against its size. Optionally a
/// negative one counts from the end.
pub(super) fn run(op: Op, attrs: &[Attr], mut operands: Operands<'_>) -> Result<()> {
    let FlatIndex { sizes, wrap: wraps } = FlatIndex::read(attrs);
    let to = operands.output.elements::<i64>();
    to.fill(0);
    for operand in 0..operands.inputs.len() {
        let layout = operands.inputs.array(operand).layout();
        let (index, size) = (Index::of(operands.inputs, operand), sizes[operand]);
        let low = if wraps { -size } else { 0 };
        let mut to = to.iter_mut();
        StridedWalk::new(&layout.sizes, [&layout.strides]).try_each(|[at]| {
            let got = index.at(at);
            if got < low || got >= size {
                let what = format!("index of dimension {operand} with size {size} is");
                return Err(Error::out_of_range(op.name(), what, [low, size - 1], got));
            }
            if let Some(to) = to.next() {
                *to = *to * size + if got < 0 { got + size } else { got };
            }
            Ok(())
        })?;
    }
    Ok(())
}
