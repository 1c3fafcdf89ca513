//! Writes to the places that an index names along a dim.
//!
//! The result starts as a copy of the target, or is the target itself. Then the elements of the source are written in
//! row-major order of the index. So of several writes to one place the last stays, and sums have one order. 16-bit
//! floats accumulate in f32 and are rounded once. A write in place changes only indexed elements, and only after all
//! indices were checked.

use super::elements::{Inputs, Operands};
use super::number::{Element, Number, with_element};
use super::walk::{self, StridedWalk};
use crate::device::roomy;
use crate::error::{Error, Result};
use crate::ir::attrs::{Along, Attributes, Reducer, ScatterReduce};
use crate::ir::routine::Write;
use crate::ir::{Attr, DType, Op, Sizes};
use bytemuck::AnyBitPattern;

pub(super) fn run(op: Op, write: Write, attrs: &[Attr], mut operands: Operands<'_>) -> Result<()> {
    let n_writes = operands.inputs.array(1).layout().numel();
    // An index without elements may have any dtype and rank.
    let places = if n_writes == 0 { None } else { Some(Destinations::new(op, Along::read(attrs).dim, &operands)?) };
    let in_place = operands.is_in_place();
    with_element!(operands.inputs.array(0).dtype(), T => {
        let source = operands.inputs.elements::<T>(2);
        let to = operands.output.elements::<T>();
        if !in_place {
            copy(operands.inputs, to);
        }
        let Some(places) = places else { return Ok(()) };
        let ScatterReduce { reduce, include_self, .. } = ScatterReduce::read(attrs);
        let writes = Writes { write, places: &places, reduce, include_self, source };
        match in_place {
            true => writes.in_place(to),
            false => writes.one_by_one(to),
        }
    })
}

/// Indices that are checked before they are used. They stay in a core's first cache.
pub(super) const CHECKED: usize = 2048;
/// A target with at most so many elements per write is widened as a whole. Otherwise touched places are sorted.
const FEW: usize = 16;

/// The elements of a source, and where they are written.
struct Writes<'a, T> {
    write: Write,
    places: &'a Destinations<'a>,
    /// How a reducing write combines elements.
    reduce: Option<Reducer>,
    /// Whether the target's own elements take part.
    include_self: bool,
    source: &'a [T],
}

impl<T: Element> Writes<'_, T> {
    /// Writes element by element, until an index is out of range.
    fn one_by_one(&self, to: &mut [T]) -> Result<()> {
        let &Writes { write, places, source, .. } = self;
        match write {
            Write::Overwrite => places.each_row(Overwriting { to, source }),
            Write::Add => T::with_wide(to, |to| places.each_row(Adding { to, source })),
            Write::Reduce => T::with_wide(to, |to| self.reduce(to, |at| at)),
        }
    }

    /// Writes to shared memory: only to indexed elements, and only if all indices are in range.
    fn in_place(&self, to: &mut [T]) -> Result<()> {
        let &Writes { write, places, reduce, source, .. } = self;
        places.check()?;
        // Only touched places are widened for the whole call, and have counts for means.
        let is_mean = matches!(write, Write::Reduce) && reduce == Some(Reducer::Mean);
        let is_direct = matches!(write, Write::Overwrite) || (!is_mean && size_of::<T::Wide>() == size_of::<T>());
        if is_direct || places.count.saturating_mul(FEW) >= to.len() {
            return self.one_by_one(to);
        }
        let touched = places.touched()?;
        let position = |at| touched.partition_point(|&one| one < at);
        let mut wide: Vec<T::Wide> = touched.iter().map(|&at| to[at].widen()).collect();
        match write {
            Write::Reduce => self.reduce(&mut wide, position)?,
            Write::Add | Write::Overwrite => places.each(|from, at| add(&mut wide[position(at)], source[from]))?,
        }
        touched.iter().zip(wide).for_each(|(&at, wide)| to[at] = T::narrow(wide));
        Ok(())
    }

    /// Accumulates the source in `to`, where `position` gives the number of a place.
    fn reduce(&self, to: &mut [T::Wide], position: impl Fn(usize) -> usize) -> Result<()> {
        type Combine<N> = fn(N, N) -> N;
        let &Writes { places, reduce, include_self, source, .. } = self;
        let (start, combine): (T::Wide, Combine<T::Wide>) = match reduce {
            Some(Reducer::Prod) => (T::Wide::ONE, Number::times),
            Some(Reducer::Amax) => (T::Wide::LEAST, |a, b| if a.is_nan() || a >= b { a } else { b }),
            Some(Reducer::Amin) => (T::Wide::GREATEST, |a, b| if a.is_nan() || a <= b { a } else { b }),
            Some(Reducer::Sum | Reducer::Mean) | None => (T::Wide::ZERO, Number::plus),
        };
        if !include_self {
            places.each(|_, at| to[position(at)] = start)?;
        }
        places.each(|from, at| {
            let to = &mut to[position(at)];
            *to = combine(*to, source[from].widen()).canonical();
        })?;
        if reduce == Some(Reducer::Mean) {
            let mut counts = roomy(to.len())?;
            counts.resize(to.len(), usize::from(include_self));
            places.each(|_, at| counts[position(at)] += 1)?;
            for (to, count) in to.iter_mut().zip(counts).filter(|(_, count)| *count > 1) {
                *to = to.over(count).canonical();
            }
        }
        Ok(())
    }
}

/// What a write does to elements that follow each other in source and result, and to single ones.
trait RowWrite {
    /// Writes an element of the source to a place of the result.
    fn one(&mut self, from: usize, at: usize);
    /// Writes neighbours of the source to neighbours of the result.
    fn neighbours(&mut self, from: usize, at: usize, len: usize);
}

struct Overwriting<'a, T> {
    to: &'a mut [T],
    source: &'a [T],
}

impl<T: Copy> RowWrite for Overwriting<'_, T> {
    #[inline(always)]
    fn one(&mut self, from: usize, at: usize) {
        self.to[at] = self.source[from];
    }
    fn neighbours(&mut self, from: usize, at: usize, len: usize) {
        self.to[at..at + len].copy_from_slice(&self.source[from..from + len]);
    }
}

struct Adding<'a, T: Element> {
    to: &'a mut [T::Wide],
    source: &'a [T],
}

impl<T: Element> RowWrite for Adding<'_, T> {
    #[inline(always)]
    fn one(&mut self, from: usize, at: usize) {
        add(&mut self.to[at], self.source[from]);
    }
    fn neighbours(&mut self, from: usize, at: usize, len: usize) {
        let source = &self.source[from..from + len];
        self.to[at..at + len].iter_mut().zip(source).for_each(|(to, &element)| add(to, element));
    }
}

#[inline(always)]
fn add<N: Number, T: Element<Wide = N>>(to: &mut N, element: T) {
    *to = to.plus(element.widen()).canonical();
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

/// Where each element of the source is written.
struct Destinations<'a> {
    op: Op,
    dim: usize,
    /// The size of the dim.
    size: usize,
    /// The stride of the dim in the result.
    step: usize,
    /// Over the index: index, source, and result without the dim.
    walk: StridedWalk<3>,
    index: Index<'a>,
    /// How many elements are written.
    count: usize,
    /// Over the elements of the index alone.
    indices: StridedWalk<1>,
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

    /// The index at a position.
    #[inline(always)]
    pub(super) fn at(self, at: usize) -> i64 {
        match self {
            Index::Narrow(index) => index[at].into(),
            Index::Wide(index) => index[at],
        }
    }
}

impl<'a> Destinations<'a> {
    fn new(op: Op, dim: i64, operands: &Operands<'a>) -> Result<Destinations<'a>> {
        let inputs = operands.inputs;
        let into = operands.output.array();
        let dim = walk::dim(op, dim, into)?;
        let (index, source) = (inputs.array(1).layout(), inputs.array(2).layout());
        let mut strides = into.layout().strides.clone();
        let (size, step) = if strides.is_empty() { (1, 1) } else { (into.layout().sizes[dim], strides[dim]) };
        if let Some(along) = strides.get_mut(dim) {
            *along = 0;
        }
        // A 0-dim tensor counts as one with a dim of size 1, whose stride does not matter.
        let rank = index.rank();
        let lifted = |strides: &[usize]| if strides.len() == rank { strides.to_vec() } else { vec![0; rank] };
        let (sources, places) = (lifted(&source.strides), lifted(&strides));
        let walk = StridedWalk::new(&index.sizes, [&index.strides, &sources, &places]);
        let once =
            index.sizes.iter().zip(&index.strides).map(|(&size, &stride)| if stride == 0 { size.min(1) } else { size });
        let indices = StridedWalk::new(&once.collect::<Sizes>(), [&index.strides]);
        let count = index.numel();
        Ok(Destinations { op, dim, size, step, walk, index: Index::of(inputs, 1), count, indices })
    }

    /// Checks every index.
    fn check(&self) -> Result<()> {
        self.indices.try_lines(|[index], line| match (self.index, line.steps) {
            (Index::Narrow(all), [1]) => self.check_all(&all[index..index + line.len]),
            (Index::Wide(all), [1]) => self.check_all(&all[index..index + line.len]),
            (_, [step]) => (0..line.len).try_for_each(|i| self.place(index + i * step).map(|_| ())),
        })
    }

    /// The written places in the result, each once, in order.
    fn touched(&self) -> Result<Vec<usize>> {
        let mut touched = Vec::new();
        self.each(|_, at| touched.push(at))?;
        touched.sort_unstable();
        touched.dedup();
        Ok(touched)
    }

    /// The position along the dim that an index gives.
    #[inline(always)]
    fn place(&self, index: usize) -> Result<usize> {
        let place = self.index.at(index);
        if place < 0 || place as usize >= self.size { Err(self.outside(place)) } else { Ok(place as usize) }
    }

    /// Calls `visit` with the places in the source and in the result.
    fn each(&self, visit: impl FnMut(usize, usize)) -> Result<()> {
        struct Visiting<F>(F);
        impl<F: FnMut(usize, usize)> RowWrite for Visiting<F> {
            #[inline(always)]
            fn one(&mut self, from: usize, at: usize) {
                (self.0)(from, at);
            }
            fn neighbours(&mut self, from: usize, at: usize, len: usize) {
                (0..len).for_each(|i| (self.0)(from + i, at + i));
            }
        }
        self.each_row(Visiting(visit))
    }

    /// Writes all elements, in row-major order of the index. Those with one index are written together.
    fn each_row(&self, write: impl RowWrite) -> Result<()> {
        match self.index {
            Index::Narrow(index) => self.each_row_by(index, write),
            Index::Wide(index) => self.each_row_by(index, write),
        }
    }

    fn each_row_by<I: Copy + Into<i64>>(&self, index: &[I], mut write: impl RowWrite) -> Result<()> {
        self.walk.try_lines(|[first, from, at], line| {
            let [index_step, from_step, at_step] = line.steps;
            if index_step == 1 {
                let line = index[first..first + line.len].chunks(CHECKED).enumerate();
                return line.map(|(nth, places)| (nth * CHECKED, places)).try_for_each(|(start, places)| {
                    self.check_all(places)?;
                    let (from, at) = (from + start * from_step, at + start * at_step);
                    let place = |nth: usize| Into::<i64>::into(places[nth]) as usize;
                    match (from_step, self.step, at_step) {
                        (1, 1, 0) => (0..places.len()).for_each(|i| write.one(from + i, at + place(i))),
                        (_, step, _) => (0..places.len())
                            .for_each(|i| write.one(from + i * from_step, at + place(i) * step + i * at_step)),
                    }
                    Ok(())
                });
            }
            if index_step != 0 {
                for i in 0..line.len {
                    let place = self.place(first + i * index_step)?;
                    write.one(from + i * from_step, at + place * self.step + i * at_step);
                }
                return Ok(());
            }
            let at = at + self.place(first)? * self.step;
            match (from_step, at_step) {
                (1, 1) => write.neighbours(from, at, line.len),
                (from_step, at_step) => {
                    (0..line.len).for_each(|i| write.one(from + i * from_step, at + i * at_step));
                }
            }
            Ok(())
        })
    }

    /// Checks indices that are neighbours, in vectors.
    fn check_all<I: Copy + Into<i64>>(&self, places: &[I]) -> Result<()> {
        let is_outside = |place: i64| place as u64 >= self.size as u64;
        if !places.iter().fold(false, |any, &place| any | is_outside(place.into())) {
            return Ok(());
        }
        let first = places.iter().map(|&place| Into::<i64>::into(place)).find(|&place| is_outside(place));
        first.map_or(Ok(()), |place| Err(self.outside(place)))
    }

    #[cold]
    fn outside(&self, index: i64) -> Error {
        let what = format!("index {index} is out of bounds for dimension {} with size {}", self.dim, self.size);
        Error::argument(self.op.name(), what)
    }
}
