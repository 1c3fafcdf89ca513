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

/// Lines that are accumulated together. The elements of one line wait for each other; those of several do not.
const TOGETHER: usize = 8;
/// Elements of a line that are copied at a time.
const PIECE: usize = 64;
/// Contiguous lines of no more elements are accumulated one after the other: copies would take longer.
const SHORT: usize = 24;
/// Lines that are accumulated together if their elements are neighbours, as along the first dim of a matrix.
const NEIGHBOURS: usize = 64;

fn accumulate<T: Element>(
    (walk, line): &(StridedWalk<2>, StridedDim<2>),
    from: &[T],
    to: &mut [T],
    start: T::Running,
    combine: impl Fn(T::Running, T::Running) -> T::Running,
) {
    let is_short = line.steps == [1, 1] && line.len <= SHORT;
    let done: Result<(), std::convert::Infallible> = walk.try_lines(|[input, output], lines| {
        let [from_step, to_step] = lines.steps;
        let mut nth = 0;
        while nth < lines.len {
            let (left, at) = (lines.len - nth, [input + nth * from_step, output + nth * to_step]);
            if (from_step, to_step) == (1, 1) && left >= NEIGHBOURS {
                neighbours(line, at, from, to, start, &combine);
                nth += NEIGHBOURS;
            } else if is_short {
                let (from, to) = (&from[at[0]..][..line.len], &mut to[at[1]..][..line.len]);
                let mut running = start;
                for (element, to) in from.iter().zip(to) {
                    running = combine(running, element.run());
                    *to = T::settle(running);
                }
                nth += 1;
            } else if left >= TOGETHER {
                together(line, lines.steps, at, from, to, start, &combine);
                nth += TOGETHER;
            } else {
                let mut running = start;
                for i in 0..line.len {
                    running = combine(running, from[at[0] + i * line.steps[0]].run());
                    to[at[1] + i * line.steps[1]] = T::settle(running);
                }
                nth += 1;
            }
        }
        Ok(())
    });
    match done {
        Ok(()) => {}
    }
}

/// Accumulates lines whose first elements are `lines` apart from `at` on.
fn together<T: Element>(
    line: &StridedDim<2>,
    lines: [usize; 2],
    at: [usize; 2],
    from: &[T],
    to: &mut [T],
    start: T::Running,
    combine: &impl Fn(T::Running, T::Running) -> T::Running,
) {
    let mut running = [start; TOGETHER];
    if line.steps != [1, 1] {
        for i in 0..line.len {
            let at = [at[0] + i * line.steps[0], at[1] + i * line.steps[1]];
            for (n, running) in running.iter_mut().enumerate() {
                *running = combine(*running, from[at[0] + n * lines[0]].run());
                to[at[1] + n * lines[1]] = T::settle(*running);
            }
        }
        return;
    }
    // Lines whose distance is a power of two share a few sets of the cache, so pieces of them are copied.
    let mut piece = [[T::zeroed(); TOGETHER]; PIECE];
    for first in (0..line.len).step_by(PIECE) {
        let n = PIECE.min(line.len - first);
        for nth in 0..TOGETHER {
            let from = &from[at[0] + nth * lines[0] + first..][..n];
            piece.iter_mut().zip(from).for_each(|(row, &element)| row[nth] = element);
        }
        for row in &mut piece[..n] {
            for (running, element) in running.iter_mut().zip(row) {
                *running = combine(*running, element.run());
                *element = T::settle(*running);
            }
        }
        for nth in 0..TOGETHER {
            let to = &mut to[at[1] + nth * lines[1] + first..][..n];
            to.iter_mut().zip(&piece).for_each(|(to, row)| *to = row[nth]);
        }
    }
}

/// Accumulates lines whose first elements are at `at` and after it.
fn neighbours<T: Element>(
    line: &StridedDim<2>,
    at: [usize; 2],
    from: &[T],
    to: &mut [T],
    start: T::Running,
    combine: &impl Fn(T::Running, T::Running) -> T::Running,
) {
    let mut running = [start; NEIGHBOURS];
    for i in 0..line.len {
        let [input, output] = [0, 1].map(|array: usize| at[array] + i * line.steps[array]);
        let (from, to) = (&from[input..input + NEIGHBOURS], &mut to[output..output + NEIGHBOURS]);
        for ((running, &element), to) in running.iter_mut().zip(from).zip(to) {
            *running = combine(*running, element.run());
            *to = T::settle(*running);
        }
    }
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
