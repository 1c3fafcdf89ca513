//! Writes to the places that an index names along a dim.
//!
//! The result starts as a copy of the target, or is the target itself. Then the elements of the source are written in
//! row-major order of the index. So of several writes to one place the last stays, and sums have one order. 16-bit
//! floats accumulate in f32 and are rounded once. A write in place changes only indexed elements. Where others see
//! these, all indices are checked first.

use super::destinations::{Combining, Destinations, Numbered};
use super::elements::{Inputs, Operands};
use super::number::{Element, Number, with_element};
use super::walk::StridedWalk;
use crate::device::roomy;
use crate::error::Result;
use crate::ir::attrs::{Along, Attributes, Reducer, ScatterReduce};
use crate::ir::routine::Write;
use crate::ir::{Attr, DType, Op};
use bytemuck::AnyBitPattern;

pub(super) fn run(op: Op, write: Write, attrs: &[Attr], mut operands: Operands<'_>) -> Result<()> {
    let n_writes = operands.inputs.array(1).layout().numel();
    // An index without elements may have any dtype and rank.
    let places = if n_writes == 0 { None } else { Some(Destinations::new(op, Along::read(attrs).dim, &operands)?) };
    let in_place = operands.is_in_place();
    if let Some(places) = places.as_ref().filter(|_| operands.is_kept()) {
        places.check()?;
    }
    with_element!(operands.inputs.array(0).dtype(), T => {
        let source = operands.inputs.elements::<T>(2);
        let to = operands.output.elements::<T>();
        if !in_place {
            copy(operands.inputs, to);
        }
        let Some(places) = places else { return Ok(()) };
        let ScatterReduce { reduce, include_self, .. } = ScatterReduce::read(attrs);
        let writes = Writes { write, places: &places, touched: None, reduce, include_self, source };
        match in_place {
            true => writes.in_place(to),
            false => writes.all(to),
        }
    })
}

/// A target with at most so many elements per write is widened as a whole. Otherwise touched places are sorted.
const FEW: usize = 16;

/// The elements of a source, and where they are written.
struct Writes<'a, T> {
    write: Write,
    places: &'a Destinations<'a>,
    /// The places that the elements of the result are for, if it is not the whole one.
    touched: Option<&'a [usize]>,
    /// How a reducing write combines elements.
    reduce: Option<Reducer>,
    /// Whether the target's own elements take part.
    include_self: bool,
    source: &'a [T],
}

impl<T: Element> Writes<'_, T> {
    /// Writes all elements, until an index is out of range.
    fn all(&self, to: &mut [T]) -> Result<()> {
        match self.write {
            Write::Overwrite => self.each(to, |to, element| *to = element, |to, source| to.copy_from_slice(source)),
            Write::Add | Write::Reduce => T::with_wide(to, |to| self.accumulate(to)),
        }
    }

    /// Writes to shared memory, and only to indexed elements.
    fn in_place(&self, to: &mut [T]) -> Result<()> {
        let &Writes { write, places, reduce, .. } = self;
        // Only touched places are widened for the whole call, and have counts for means.
        let is_mean = matches!(write, Write::Reduce) && reduce == Some(Reducer::Mean);
        let is_direct = matches!(write, Write::Overwrite) || (!is_mean && size_of::<T::Wide>() == size_of::<T>());
        if is_direct || places.count.saturating_mul(FEW) >= to.len() {
            return self.all(to);
        }
        let touched = places.touched()?;
        let mut wide: Vec<T::Wide> = touched.iter().map(|&at| to[at].widen()).collect();
        Writes { touched: Some(&touched), ..*self }.accumulate(&mut wide)?;
        touched.iter().zip(wide).for_each(|(&at, wide)| to[at] = T::narrow(wide));
        Ok(())
    }

    /// Adds the source to `to`, or reduces it into that.
    fn accumulate(&self, to: &mut [T::Wide]) -> Result<()> {
        let reduce = if matches!(self.write, Write::Add) { None } else { self.reduce };
        let start = match reduce {
            Some(Reducer::Prod) => T::Wide::ONE,
            Some(Reducer::Amax) => T::Wide::LEAST,
            Some(Reducer::Amin) => T::Wide::GREATEST,
            Some(Reducer::Sum | Reducer::Mean) | None => T::Wide::ZERO,
        };
        if matches!(self.write, Write::Reduce) && !self.include_self {
            self.each(to, |to, _| *to = start, |to, _| to.fill(start))?;
        }
        match reduce {
            Some(Reducer::Prod) => self.fold(to, Number::times),
            Some(Reducer::Amax) => self.fold(to, |a, b| if a.is_nan() || a >= b { a } else { b }),
            Some(Reducer::Amin) => self.fold(to, |a, b| if a.is_nan() || a <= b { a } else { b }),
            Some(Reducer::Sum | Reducer::Mean) | None => self.fold(to, Number::plus),
        }?;
        if reduce == Some(Reducer::Mean) { self.divide(to) } else { Ok(()) }
    }

    /// Combines every element with the number at its place.
    fn fold(&self, to: &mut [T::Wide], combine: impl Fn(T::Wide, T::Wide) -> T::Wide) -> Result<()> {
        let one = |to: &mut T::Wide, element: T| {
            *to = combine(*to, element.widen());
            if !to.is_canonical() {
                settle(to);
            }
        };
        let row = |to: &mut [T::Wide], source: &[T]| {
            let mut are_canonical = true;
            for (to, &element) in to.iter_mut().zip(source) {
                *to = combine(*to, element.widen());
                are_canonical &= to.is_canonical();
            }
            if !are_canonical {
                to.iter_mut().for_each(settle);
            }
        };
        self.each(to, one, row)
    }

    /// Divides sums by how many elements they have.
    fn divide(&self, to: &mut [T::Wide]) -> Result<()> {
        let mut counts = roomy(to.len())?;
        counts.resize(to.len(), usize::from(self.include_self));
        self.each(&mut counts, |count, _| *count += 1, |counts, _| counts.iter_mut().for_each(|count| *count += 1))?;
        to.iter_mut().zip(counts).for_each(|(to, count)| *to = to.over(count));
        Ok(())
    }

    /// Calls `one` with every element and what is at its place, or `row` with those that are neighbours.
    fn each<N>(&self, to: &mut [N], one: impl Fn(&mut N, T), row: impl Fn(&mut [N], &[T])) -> Result<()> {
        let &Writes { places, source, .. } = self;
        let write = Combining { to, source, one, row };
        match self.touched {
            None => places.each_row(write),
            Some(touched) => places.each_row(Numbered { write, places: touched }),
        }
    }
}

/// Makes a number canonical. Few are not, so it stays out of the loops.
#[cold]
#[inline(never)]
fn settle<N: Number>(number: &mut N) {
    *number = number.canonical();
}

/// Copies operand 0 to dense row-major memory.
pub(super) fn copy<T: AnyBitPattern>(inputs: Inputs<'_>, to: &mut [T]) {
    let (from, layout) = (inputs.elements::<T>(0), inputs.array(0).layout());
    if layout.is_contiguous() {
        to.copy_from_slice(from);
        return;
    }
    let mut to = to.iter_mut();
    StridedWalk::new(&layout.sizes, [&layout.strides]).each(|[at]| {
        if let Some(to) = to.next() {
            *to = from[at];
        }
    });
}
