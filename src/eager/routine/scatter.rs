//! Writes to the places that an index names along a dim.
//!
//! The result starts as a copy of what is written to; then the elements of the source go in in row-major order of the
//! index, so of several writes to one place the last stays, and sums have one order. 16-bit floats are collected in f32
//! and rounded once.

use super::elements::{Inputs, Operands};
use super::number::{Element, Number, with_element};
use super::walk::Walk;
use crate::device::roomy;
use crate::error::{Error, Result};
use crate::ir::routine::Write;
use crate::ir::shape::contiguous_strides;
use crate::ir::{Attr, DType, Op};
use bytemuck::AnyBitPattern;

pub(super) fn run(op: Op, write: Write, attrs: &[Attr], mut operands: Operands<'_>) -> Result<()> {
    let n_writes = operands.inputs.array(1).layout().numel();
    // An index without elements may have any dtype and rank.
    let places = if n_writes == 0 { None } else { Some(Places::new(op, &attrs[0], operands.inputs)?) };
    with_element!(operands.inputs.array(0).dtype(), T => {
        let source = operands.inputs.elements::<T>(2);
        let to = operands.output.elements::<T>();
        copy(operands.inputs, to);
        let Some(places) = places else { return Ok(()) };
        match write {
            Write::Overwrite => places.each(|from, at| to[at] = source[from]),
            Write::Add => T::with_wide(to, |to| {
                places.each(|from, at| to[at] = to[at].plus(source[from].widen()).canonical())
            }),
            Write::Reduce => T::with_wide(to, |to| reduce(&places, attrs, source, to)),
        }
    })
}

/// Operand 0, dense and row-major.
pub(super) fn copy<T: AnyBitPattern>(inputs: Inputs<'_>, to: &mut [T]) {
    let (from, layout) = (inputs.elements::<T>(0), inputs.array(0).layout());
    if layout.is_contiguous() {
        to.copy_from_slice(from);
        return;
    }
    let mut to = to.iter_mut();
    Walk::new(&layout.sizes, [&layout.strides]).each(|[at]| {
        if let Some(to) = to.next() {
            *to = from[at];
        }
    });
}

fn reduce<T: Element>(places: &Places<'_>, attrs: &[Attr], source: &[T], to: &mut [T::Wide]) -> Result<()> {
    type Combine<N> = fn(N, N) -> N;
    let word = attrs[1].word();
    let (start, combine): (T::Wide, Combine<T::Wide>) = match word {
        "prod" => (T::Wide::ONE, Number::times),
        "amax" => (T::Wide::LEAST, |a, b| if a.is_nan() || a >= b { a } else { b }),
        "amin" => (T::Wide::GREATEST, |a, b| if a.is_nan() || a <= b { a } else { b }),
        _ => (T::Wide::ZERO, Number::plus),
    };
    let with_self = attrs[2].is_true();
    if !with_self {
        places.each(|_, at| to[at] = start)?;
    }
    places.each(|from, at| to[at] = combine(to[at], source[from].widen()).canonical())?;
    if word == "mean" {
        let mut counts = roomy(to.len())?;
        counts.resize(to.len(), usize::from(with_self));
        places.each(|_, at| counts[at] += 1)?;
        for (to, count) in to.iter_mut().zip(counts).filter(|(_, count)| *count > 1) {
            *to = to.over(count).canonical();
        }
    }
    Ok(())
}

/// Where each element of the source goes.
struct Places<'a> {
    op: Op,
    dim: usize,
    /// The size of the dim.
    size: usize,
    /// From one place of the dim to the next in the result.
    step: usize,
    /// Over the index: index, source, result without the dim.
    walk: Walk<3>,
    index: Index<'a>,
}

/// Indices of either width.
#[derive(Clone, Copy)]
pub(super) enum Index<'a> {
    Narrow(&'a [i32]),
    Wide(&'a [i64]),
}

impl<'a> Index<'a> {
    /// The indices of an operand.
    pub(super) fn of(inputs: Inputs<'a>, operand: usize) -> Index<'a> {
        if inputs.array(operand).dtype() == DType::I32 {
            Index::Narrow(inputs.elements(operand))
        } else {
            Index::Wide(inputs.elements(operand))
        }
    }

    /// One of them.
    pub(super) fn at(self, at: usize) -> i64 {
        match self {
            Index::Narrow(index) => index[at].into(),
            Index::Wide(index) => index[at],
        }
    }
}

impl<'a> Places<'a> {
    fn new(op: Op, dim: &Attr, inputs: Inputs<'a>) -> Result<Places<'a>> {
        let into = inputs.array(0);
        let dim = super::dim(op, dim, 0, into)?;
        let (index, source) = (inputs.array(1).layout(), inputs.array(2).layout());
        let mut strides = contiguous_strides(&into.layout().sizes);
        let (size, step) = if strides.is_empty() { (1, 1) } else { (into.layout().sizes[dim], strides[dim]) };
        if let Some(along) = strides.get_mut(dim) {
            *along = 0;
        }
        // A 0-dim tensor takes part as one with a dim of size 1, whose stride does not matter.
        let rank = index.rank();
        let lifted = |strides: &[usize]| if strides.len() == rank { strides.to_vec() } else { vec![0; rank] };
        let (sources, places) = (lifted(&source.strides), lifted(&strides));
        let walk = Walk::new(&index.sizes, [&index.strides, &sources, &places]);
        Ok(Places { op, dim, size, step, walk, index: Index::of(inputs, 1) })
    }

    /// Calls `visit` with the places in the source and in the result.
    fn each(&self, mut visit: impl FnMut(usize, usize)) -> Result<()> {
        self.walk.try_each(|[index, from, at]| {
            let place = self.index.at(index);
            if place < 0 || place as usize >= self.size {
                return Err(self.outside(place));
            }
            visit(from, at + place as usize * self.step);
            Ok(())
        })
    }

    #[cold]
    fn outside(&self, index: i64) -> Error {
        let what = format!("index {index} is out of bounds for dimension {} with size {}", self.dim, self.size);
        Error::argument(self.op.name(), what)
    }
}
