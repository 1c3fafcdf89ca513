//! Scans: accumulations along a dim.
//!
//! Elements are taken in order. Sums of f32 accumulate in f64, those of 16-bit floats in f32, and each result is
//! rounded once.

use super::elements::Operands;
use super::number::{Element, Number, with_element};
use super::walk::{StridedDim, StridedWalk, dim};
use crate::error::Result;
use crate::ir::attrs::{Along, Attributes, Recurrence};
use crate::ir::routine::Scan;
use crate::ir::{Attr, DType, Op};

pub(super) fn run(op: Op, kind: Scan, attrs: &[Attr], mut operands: Operands<'_>) -> Result<()> {
    let (input, output) = (operands.inputs.array(0), operands.output.array());
    let dim = dim(op, Along::read(attrs).dim, input)?;
    let lines = StridedWalk::lines(&input.layout().sizes, dim, [&input.layout().strides, &output.layout().strides]);
    with_element!(input.dtype(), T => {
        type Running = <T as Element>::Running;
        let from = operands.inputs.elements::<T>(0);
        match kind {
            Scan::Sum => accumulate(&lines, from, operands.output.elements(), Running::ZERO, Number::plus),
            Scan::Prod => accumulate(&lines, from, operands.output.elements(), Running::ONE, Number::times),
            Scan::ArgMax => places(&lines, from, operands.output.elements(), |new, best| new >= best),
            Scan::ArgMin => places(&lines, from, operands.output.elements(), |new, best| new <= best),
        }
    });
    Ok(())
}

/// `y[i] = factor[i] * y[i - 1] + term[i]`, with `y` before the first being 0.
pub(super) fn recurrence(op: Op, attrs: &[Attr], mut operands: Operands<'_>) -> Result<()> {
    let (factor, term, output) = (operands.inputs.array(0), operands.inputs.array(1), operands.output.array());
    let Recurrence { dim: along, reverse } = Recurrence::read(attrs);
    let dim = dim(op, along, term)?;
    let strides = [factor, term, output].map(|array| &array.layout().strides[..]);
    let (walk, line) = StridedWalk::lines(&term.layout().sizes, dim, strides);
    with_element!(term.dtype(), T => {
        let (factors, terms) = (operands.inputs.elements::<T>(0), operands.inputs.elements::<T>(1));
        let to = operands.output.elements::<T>();
        walk.each(|start| {
            let mut running = <T as Element>::Running::ZERO;
            for i in 0..line.len {
                let i = if reverse { line.len - 1 - i } else { i };
                let [factor, term, output] = [0, 1, 2].map(|array: usize| start[array] + i * line.steps[array]);
                running = factors[factor].run().times(running).plus(terms[term].run());
                to[output] = T::settle(running);
            }
        });
    });
    Ok(())
}

fn accumulate<T: Element>(
    (walk, line): &(StridedWalk<2>, StridedDim<2>),
    from: &[T],
    to: &mut [T],
    start: T::Running,
    combine: impl Fn(T::Running, T::Running) -> T::Running,
) {
    walk.each(|[input, output]| {
        let mut running = start;
        for i in 0..line.len {
            running = combine(running, from[input + i * line.steps[0]].run());
            to[output + i * line.steps[1]] = T::settle(running);
        }
    });
}

/// The place of the best element so far, the later of equal ones; a NaN is better than any number.
fn places<T: Element>(
    (walk, line): &(StridedWalk<2>, StridedDim<2>),
    from: &[T],
    to: &mut [i64],
    better: impl Fn(T::Wide, T::Wide) -> bool,
) {
    walk.each(|[input, output]| {
        let mut best: Option<(T::Wide, i64)> = None;
        for i in 0..line.len {
            let new = from[input + i * line.steps[0]].widen();
            let stays = best.is_some_and(|(best, _)| !new.is_nan() && (best.is_nan() || !better(new, best)));
            let (_, place) = *match (&mut best, stays) {
                (Some(best), true) => best,
                (best, _) => best.insert((new, i as i64)),
            };
            to[output + i * line.steps[1]] = place;
        }
    });
}
