//! Subscripts: `t.i((0, .., 1..3))`.
//!
//! There is one item per dim, from the first dim on. Dims without an item are taken whole. Numbers, ranges, [`NewAxis`]
//! and [`Ellipsis`] give a view. Index tensors and masks give a copy. Negative numbers count from the end, also in
//! ranges. Bounds beyond the dim are clamped.

use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::rust_operators::Operand;
use crate::tensor::handle::Tensor;
use std::convert::Infallible;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// An item of a subscript, made from a number, range or tensor.
#[derive(Debug, Clone)]
pub enum Index {
    /// One index of a dim, which is removed.
    Select(i64),
    /// Every `step`-th index from `start` to below `end`. `None` is no bound.
    Slice {
        /// The first index.
        start: Option<i64>,
        /// One past the last index.
        end: Option<i64>,
        /// The distance between indices, at least 1.
        step: i64,
    },
    /// A new dim of size 1.
    NewAxis,
    /// All dims that the other items leave over, taken whole.
    Ellipsis,
    /// The indices in an integer tensor. Or the positions where a bool tensor is true; it stands for as many dims as it
    /// has.
    Tensor(Tensor),
}

/// An item that adds a dim of size 1. `None` means the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NewAxis;

/// An item for all dims that the other items leave over. There may be at most one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ellipsis;

impl Index {
    /// Every `step`-th index from `start` to below `end`. `None` is no bound. It is the same as a range, but also
    /// expresses those that Clippy rejects: `1..-1` is everything except the first and the last, see [`trim`].
    pub fn slice(start: impl Into<Option<i64>>, end: impl Into<Option<i64>>, step: i64) -> Index {
        Index::Slice { start: start.into(), end: end.into(), step }
    }

    /// Every `step`-th index of a range: `Index::step(1..9, 2)`.
    pub fn step(range: impl Into<Index>, step: i64) -> Index {
        match range.into() {
            Index::Slice { start, end, step: own } => Index::Slice { start, end, step: own.saturating_mul(step) },
            whole @ (Index::Select(_) | Index::NewAxis | Index::Ellipsis | Index::Tensor(_)) => whole,
        }
    }
}

/// An item for all indices of a dim except `front` at its start and `back` at its end: `trim(1, 1)` is what the range
/// `1..-1` would be, which Clippy rejects.
///
/// ```
/// # use opfuse::{Result, Tensor, trim};
/// # fn main() -> Result<()> {
/// let u = Tensor::arange(0, 20, 1)?.reshape([4, 5])?;
/// let left = u.i((trim(1, 1), trim(0, 2)))?;
/// assert_eq!((left.sizes(), left.i((0, 0))?.item::<i64>()?), (&[2, 3][..], 5));
/// # Ok(())
/// # }
/// ```
pub fn trim(front: usize, back: usize) -> Index {
    let end = if back == 0 { None } else { Some(-back.index()) };
    Index::Slice { start: Some(front.index()), end, step: 1 }
}

impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Index {
        Index::Slice { start: None, end: None, step: 1 }
    }
}

impl From<NewAxis> for Index {
    fn from(_: NewAxis) -> Index {
        Index::NewAxis
    }
}

impl From<Ellipsis> for Index {
    fn from(_: Ellipsis) -> Index {
        Index::Ellipsis
    }
}

/// `None` adds a dim of size 1.
impl From<Option<Infallible>> for Index {
    fn from(_: Option<Infallible>) -> Index {
        Index::NewAxis
    }
}

impl From<&Tensor> for Index {
    fn from(indices: &Tensor) -> Index {
        Index::Tensor(indices.clone())
    }
}

impl From<Tensor> for Index {
    fn from(indices: Tensor) -> Index {
        Index::Tensor(indices)
    }
}

/// An integer as an index. Numbers beyond `i64` are out of range of every dim.
trait Number {
    fn index(self) -> i64;
}

impl Number for i64 {
    fn index(self) -> i64 {
        self
    }
}

impl Number for i32 {
    fn index(self) -> i64 {
        self.into()
    }
}

impl Number for usize {
    fn index(self) -> i64 {
        i64::try_from(self).unwrap_or(i64::MAX)
    }
}

/// The bound after `last`. After −1, the last index, there is no bound.
fn index_after(last: i64) -> Option<i64> {
    if last == -1 { None } else { Some(last.saturating_add(1)) }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl From<$number> for Index {
            fn from(index: $number) -> Index {
                Index::Select(index.index())
            }
        }

        impl From<Range<$number>> for Index {
            fn from(range: Range<$number>) -> Index {
                Index::Slice { start: Some(range.start.index()), end: Some(range.end.index()), step: 1 }
            }
        }

        impl From<RangeFrom<$number>> for Index {
            fn from(range: RangeFrom<$number>) -> Index {
                Index::Slice { start: Some(range.start.index()), end: None, step: 1 }
            }
        }

        impl From<RangeTo<$number>> for Index {
            fn from(range: RangeTo<$number>) -> Index {
                Index::Slice { start: None, end: Some(range.end.index()), step: 1 }
            }
        }

        impl From<RangeInclusive<$number>> for Index {
            fn from(range: RangeInclusive<$number>) -> Index {
                Index::Slice { start: Some(range.start().index()), end: index_after(range.end().index()), step: 1 }
            }
        }

        impl From<RangeToInclusive<$number>> for Index {
            fn from(range: RangeToInclusive<$number>) -> Index {
                Index::Slice { start: None, end: index_after(range.end.index()), step: 1 }
            }
        }
    )*};
}

numbers!(i32, i64, usize);

/// The argument of [`Tensor::i`]: one item, a tuple of up to eight items, or a slice or vector of [`Index`].
pub trait Indices {
    /// The items in order.
    fn into_items(self) -> Vec<Index>;
}

macro_rules! single {
    ($($item:ty),*) => {$(
        impl Indices for $item {
            fn into_items(self) -> Vec<Index> {
                vec![self.into()]
            }
        }
    )*};
}

single!(Index, RangeFull, NewAxis, Ellipsis, Option<Infallible>, &Tensor, Tensor, i32, i64, usize);
single!(Range<i32>, RangeFrom<i32>, RangeTo<i32>, RangeInclusive<i32>, RangeToInclusive<i32>);
single!(Range<i64>, RangeFrom<i64>, RangeTo<i64>, RangeInclusive<i64>, RangeToInclusive<i64>);
single!(Range<usize>, RangeFrom<usize>, RangeTo<usize>, RangeInclusive<usize>, RangeToInclusive<usize>);

impl Indices for Vec<Index> {
    fn into_items(self) -> Vec<Index> {
        self
    }
}

impl Indices for &[Index] {
    fn into_items(self) -> Vec<Index> {
        self.to_vec()
    }
}

impl Indices for () {
    fn into_items(self) -> Vec<Index> {
        Vec::new()
    }
}

macro_rules! tuples {
    ($(($($item:ident)*))*) => {$(
        #[allow(non_snake_case, reason = "the type parameters name the variables")]
        impl<$($item: Into<Index>),*> Indices for ($($item,)*) {
            fn into_items(self) -> Vec<Index> {
                let ($($item,)*) = self;
                vec![$($item.into()),*]
            }
        }
    )*};
}

tuples! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) }

impl Tensor {
    /// The part of the tensor at a subscript, which has one item per dim. A number selects one index and removes the
    /// dim. A range selects several indices, and `..` all of them. [`NewAxis`] or `None` adds a dim of size 1.
    /// [`Ellipsis`] stands for all dims that the other items leave over. An integer tensor selects the indices that it
    /// holds, a bool tensor the positions where it is true; one of no dims adds a dim of size 1 or 0. Dims after the
    /// last item are taken whole. Negative numbers count from the end.
    ///
    /// The result is a view, unless there are tensors among the items.
    ///
    /// ```
    /// # use opfuse::{Result, Tensor};
    /// # use opfuse::{Ellipsis, Index, NewAxis};
    /// # fn main() -> Result<()> {
    /// let x = Tensor::arange(0, 24, 1)?.reshape([2, 3, 4])?;
    /// assert_eq!(x.i((0, 1, -1))?.item::<i64>()?, 7);
    /// assert_eq!(x.i((.., 1..3))?.sizes(), [2, 2, 4]);
    /// assert_eq!(x.i((Ellipsis, ..=-2))?.sizes(), [2, 3, 3]);
    /// assert_eq!(x.i((1, NewAxis, Index::step(.., 2)))?.sizes(), [1, 2, 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there are more items than dims, or more than one [`Ellipsis`]. If a number is out of range, if a step is not
    /// positive, or if a tensor does not fit.
    #[track_caller]
    pub fn i(&self, indices: impl Indices) -> Result<Tensor> {
        let (view, picks) = self.taken(indices.into_items())?;
        if picks.iter().all(Option::is_none) {
            return Ok(view);
        }
        view.index(&picks)
    }

    /// Writes `value`, a number or a tensor, to the part that [`Tensor::i`] selects. It is broadcast, and converted to
    /// the dtype of `self`. Views of the same elements change too.
    ///
    /// ```
    /// # use opfuse::{DType, Result, Tensor};
    /// # fn main() -> Result<()> {
    /// let x = Tensor::zeros(&[2, 3], DType::F32)?;
    /// x.set((0, ..), 1.0)?;
    /// x.set((.., 2), &Tensor::try_from([5, 6])?)?;
    /// x.set(x.eq(0)?, -1)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0, 5.0, -1.0, -1.0, 6.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Tensor::i`] and [`Tensor::copy_`].
    #[track_caller]
    pub fn set<'a>(&self, indices: impl Indices, value: impl Into<Operand<'a>>) -> Result<()> {
        let (view, picks) = self.taken(indices.into_items())?;
        let value = value.into().tensor()?;
        if picks.iter().all(Option::is_none) {
            // As in NumPy and PyTorch, leading dims of size 1 that the view does not have are dropped.
            let extra = value.dim().saturating_sub(view.dim());
            return match value.sizes()[..extra].iter().all(|&size| size == 1) {
                true => view.copy_(&value.reshape(&value.sizes()[extra..])?),
                false => view.copy_(&value),
            };
        }
        view.index_put_(&picks, &value.to_dtype(self.dtype())?, false)
    }

    /// The view that the items other than tensors select, and the tensors by dim of that view.
    #[track_caller]
    fn taken(&self, items: Vec<Index>) -> Result<(Tensor, Vec<Option<Tensor>>)> {
        let dims_of = |item: &Index| match item {
            Index::Select(_) | Index::Slice { .. } => 1,
            Index::NewAxis | Index::Ellipsis => 0,
            Index::Tensor(tensor) if tensor.dtype() == DType::Bool => tensor.dim(),
            Index::Tensor(_) => 1,
        };
        let named: usize = items.iter().map(dims_of).sum();
        let n_rests = items.iter().filter(|item| matches!(item, Index::Ellipsis)).count();
        let refuse = |what: String, hint: &str| Err(Error::index("i", what, hint));
        if named > self.dim() {
            let what = format!("too many indices for tensor of dimension {}: {named}", self.dim());
            return refuse(what, "give at most one per dim");
        }
        if n_rests > 1 {
            return refuse(format!("an index can only have a single Ellipsis, not {n_rests}"), "leave the others out");
        }
        let (mut view, mut dim, mut picks) = (self.clone(), 0i64, Vec::new());
        // A dim without a tensor.
        let pass = |picks: &mut Vec<Option<Tensor>>, dim: &mut i64, n_dims: usize| {
            picks.resize(picks.len() + n_dims, None);
            *dim += n_dims as i64;
        };
        for item in &items {
            match item {
                Index::Select(index) => view = view.select(dim, *index)?,
                Index::Slice { start: None, end: None, step: 1 } => pass(&mut picks, &mut dim, 1),
                Index::Slice { start, end, step } => {
                    view = view.slice(dim, *start, *end, *step)?;
                    pass(&mut picks, &mut dim, 1);
                }
                Index::NewAxis => {
                    view = view.unsqueeze(dim)?;
                    pass(&mut picks, &mut dim, 1);
                }
                Index::Ellipsis => pass(&mut picks, &mut dim, self.dim() - named),
                // A mask of no dims selects all or nothing: it is a mask of a new dim of size 1.
                Index::Tensor(mask) if mask.dtype() == DType::Bool && mask.dim() == 0 => {
                    view = view.unsqueeze(dim)?;
                    picks.push(Some(mask.reshape([1])?));
                    dim += 1;
                }
                Index::Tensor(tensor) => {
                    picks.push(Some(tensor.clone()));
                    dim += dims_of(item) as i64;
                }
            }
        }
        Ok((view, picks))
    }
}
