//! Search in sorted numbers, membership, and linear interpolation.
//!
//! A search is a binary search with one step per bit of the size, all elements at once. Each step is a gather and a
//! comparison, so it traces and fuses. NaN is greater than any number, and its place is after all elements.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::{DType, Scalar};
use crate::ops::arguments::int;
use crate::ops::composite::Composite;
use crate::ops::factories::full_on;
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;

static SEARCHSORTED: Composite = Composite::new(
    "searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, \
     str? side=None, Tensor? sorter=None) -> Tensor",
);
static BUCKETIZE: Composite = Composite::new(
    "bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
);
static ISIN: Composite = Composite::new(
    "isin.Tensor_Tensor(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> \
     Tensor",
);

/// On which side of equal elements a number is inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Side {
    /// Before them.
    #[default]
    Left,
    /// After them.
    Right,
}

/// Search and interpolation.
impl Tensor {
    /// Where to insert each of `values` into this sorted sequence, so that it stays sorted (i64). The sequence is
    /// 1-dim, or has the dims of `values` except the last.
    ///
    /// ```
    /// # use opfuse::{Result, Side, Tensor};
    /// # fn main() -> Result<()> {
    /// let edges = Tensor::try_from([1.0, 3.0, 5.0])?;
    /// let values = Tensor::try_from([0.0, 3.0, 9.0])?;
    /// assert_eq!(edges.searchsorted(&values, Side::Left)?.to_vec::<i64>()?, [0, 1, 3]);
    /// assert_eq!(edges.searchsorted(&values, Side::Right)?.to_vec::<i64>()?, [0, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the sequence has no dims, or if the shapes do not fit.
    #[track_caller]
    pub fn searchsorted(&self, values: &Tensor, side: Side) -> Result<Tensor> {
        SEARCHSORTED.call((self, values, false, side == Side::Right, None::<&str>, None::<&Tensor>))
    }

    /// The number (i64) of the bucket of each element. Bucket `i` is between `boundaries[i - 1]` and `boundaries[i]`;
    /// an element that equals a boundary is in the bucket below it for [`Side::Left`], and above it otherwise.
    ///
    /// # Errors
    /// If the boundaries are not 1-dim.
    #[track_caller]
    pub fn bucketize(&self, boundaries: &Tensor, side: Side) -> Result<Tensor> {
        BUCKETIZE.call((self, boundaries, false, side == Side::Right))
    }

    /// Whether each element is among those of `test`. NaN is not.
    ///
    /// # Errors
    /// If there is no memory.
    #[track_caller]
    pub fn isin(&self, test: &Tensor) -> Result<Tensor> {
        ISIN.call((self, test, false, false))
    }

    /// The piecewise linear function through the points (`xp`, `fp`) at each element, as NumPy's `interp`. Outside of
    /// the points it is constant. `xp` must be sorted. Integers become the default floating dtype.
    ///
    /// ```
    /// # use opfuse::{Result, Tensor};
    /// # fn main() -> Result<()> {
    /// let (xp, fp) = (Tensor::try_from([0.0, 1.0, 3.0])?, Tensor::try_from([10.0, 20.0, 0.0])?);
    /// let y = Tensor::try_from([-1.0, 0.5, 2.0, 7.0])?.interp(&xp, &fp)?;
    /// assert_eq!(y.to_vec::<f64>()?, [10.0, 15.0, 10.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If `xp` and `fp` are not 1-dim and of one size, or if they have no elements.
    #[track_caller]
    pub fn interp(&self, xp: &Tensor, fp: &Tensor) -> Result<Tensor> {
        if xp.dim() != 1 || xp.sizes() != fp.sizes() || xp.numel() == 0 {
            let what = format!("points of shapes {:?} and {:?}", xp.sizes(), fp.sizes());
            return Err(Error::shape("interp", what, "give one-dim points of one size, at least one"));
        }
        let last = int(xp.numel()) - 1;
        let flat = self.reshape([-1])?;
        if last == 0 {
            let value = fp.expand(flat.sizes())?.add(flat.sub(&flat)?)?;
            return value.reshape(self.sizes());
        }
        let left = xp.searchsorted(&flat.detach()?, Side::Right)?.sub(1)?.clamp(0, last - 1)?;
        let right = left.add(1)?;
        // Without closures, whose calls would stand in lines of this file.
        let (x0, y0) = (xp.gather(0, &left)?, fp.gather(0, &left)?);
        let slope = fp.gather(0, &right)?.sub(&y0)?.div(xp.gather(0, &right)?.sub(&x0)?)?;
        let inside = flat.sub(&x0)?.mul(&slope)?.add(&y0)?;
        let (first_x, first_y) = (xp.select(0, 0)?, fp.select(0, 0)?);
        let (last_x, last_y) = (xp.select(0, -1)?, fp.select(0, -1)?);
        let value = flat.lt(&first_x)?.where_(&first_y, &inside)?;
        flat.ge(&last_x)?.where_(&last_y, &value)?.reshape(self.sizes())
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&SEARCHSORTED, searchsorted)?
        .def_kernel(
            "searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, str? \
             side=None, Tensor? sorter=None) -> Tensor",
            |sequence: &Tensor,
             value: Scalar,
             narrow: bool,
             right: bool,
             side: Option<&str>,
             sorter: Option<&Tensor>| {
                if sequence.dim() > 1 {
                    let what = format!("a number is searched in a sequence of shape {:?}", sequence.sizes());
                    return Err(Error::shape("searchsorted", what, "the sequence must be 1-dim"));
                }
                searchsorted(sequence, &Tensor::number(value)?, narrow, right, side, sorter)
            },
        )?
        .composite(&BUCKETIZE, bucketize)?
        .def_kernel(
            "bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
            |value: Scalar, boundaries: &Tensor, narrow: bool, right: bool| {
                bucketize(&Tensor::number(value)?, boundaries, narrow, right)
            },
        )?
        .composite(&ISIN, isin)?
        .def_kernel(
            "isin.Tensor_Scalar(Tensor elements, Scalar test_element, *, bool assume_unique=False, bool invert=False) \
             -> Tensor",
            |elements: &Tensor, test: Scalar, _unique: bool, invert: bool| {
                if invert { elements.ne(test) } else { elements.eq(test) }
            },
        )?
        .def_kernel(
            "isin.Scalar_Tensor(Scalar element, Tensor test_elements, *, bool assume_unique=False, bool invert=False) \
             -> Tensor",
            |element: Scalar, test: &Tensor, unique: bool, invert: bool| {
                isin(&Tensor::number(element)?, test, unique, invert)
            },
        )?;
    Ok(())
}

fn searchsorted(
    sequence: &Tensor,
    values: &Tensor,
    narrow: bool,
    right: bool,
    side: Option<&str>,
    sorter: Option<&Tensor>,
) -> Result<Tensor> {
    let op = "searchsorted";
    let right = match side {
        None => right,
        Some("right") => true,
        Some("left") if right => {
            let what = "side and right can't be set to opposites, got side of left while right was True";
            return Err(Error::argument(op, what));
        }
        Some("left") => false,
        Some(other) => {
            return Err(Error::argument(op, format!("side can only be 'left' or 'right' but got {other}")));
        }
    };
    let leading = |x: &Tensor| x.sizes()[..x.dim().saturating_sub(1)].to_vec();
    let fits = sequence.dim() == 1 || (sequence.dim() == values.dim() && leading(sequence) == leading(values));
    if sequence.dim() == 0 || !fits {
        let what = format!("a sequence of shape {:?} for values of shape {:?}", sequence.sizes(), values.sizes());
        return Err(Error::shape(
            op,
            what,
            "the sequence must be 1-dim, or differ from the values in the last dim alone",
        ));
    }
    let sorted = match sorter {
        None => sequence.clone(),
        Some(sorter) if sorter.sizes() != sequence.sizes() || sorter.dtype() != DType::I64 => {
            let what = format!("a sorter of {} for a sequence of {}", sorter.ty(), sequence.ty());
            return Err(Error::shape(op, what, "the sorter must be i64 and have the sequence's shape"));
        }
        Some(sorter) => sequence.gather(-1, sorter)?,
    };
    let found = found(&sorted.detach()?, &values.detach()?, right)?;
    if narrow { found.to_dtype(DType::I32) } else { Ok(found) }
}

/// How many elements of each sorted line are less than a value, or for `right` not greater.
fn found(sorted: &Tensor, values: &Tensor, right: bool) -> Result<Tensor> {
    let n = sorted.sizes()[sorted.dim() - 1];
    let lines = if sorted.dim() == 1 { values.reshape([-1])? } else { values.clone() };
    let mut found = full_on(values.device(), lines.sizes(), 0.into(), Some(DType::I64))?;
    let is_nan = lines.ne(&lines)?;
    let mut step = if n == 0 { 0 } else { 1usize << n.ilog2() };
    while step > 0 {
        let next = found.add(int(step))?;
        let element = sorted.gather(-1, &next.clamp_max(int(n))?.sub(1)?)?;
        let passes = if right { element.le(&lines)? } else { element.lt(&lines)? };
        let passes = passes.logical_or(&is_nan)?.logical_and(&next.le(int(n))?)?;
        found = passes.where_(&next, &found)?;
        step /= 2;
    }
    found.reshape(values.sizes())
}

fn bucketize(values: &Tensor, boundaries: &Tensor, narrow: bool, right: bool) -> Result<Tensor> {
    if boundaries.dim() != 1 {
        let what = format!("boundaries have shape {:?}", boundaries.sizes());
        return Err(Error::shape("bucketize", what, "they must be 1-dim"));
    }
    searchsorted(boundaries, values, narrow, right, None, None).map_err(|error| error.of("bucketize"))
}

fn isin(elements: &Tensor, test: &Tensor, _unique: bool, invert: bool) -> Result<Tensor> {
    /// As many are compared one by one.
    const FEW: usize = 16;
    let test = test.reshape([-1])?;
    let holds = if test.numel() == 0 {
        full_on(elements.device(), elements.sizes(), false.into(), None)?
    } else if test.numel() <= FEW {
        elements.unsqueeze(-1)?.eq(&test)?.any(-1, false)?
    } else {
        // One dtype first: the order of the converted elements counts.
        let both = cat(&[&elements.reshape([-1])?.detach()?, &test.detach()?], 0)?;
        let (elements_line, test) =
            (both.narrow(0, 0, elements.numel())?, both.narrow(0, int(elements.numel()), test.numel())?);
        let (sorted, _) = test.sort(0, false)?;
        let place = found(&sorted, &elements_line, false)?.clamp_max(int(test.numel()) - 1)?;
        sorted.gather(0, &place)?.eq(&elements_line)?.reshape(elements.sizes())?
    };
    if invert { holds.logical_not() } else { Ok(holds) }
}
