//! Reversed, rolled, rotated and repeated elements. All results are copies.

use crate::device::roomy;
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::{self, Repeat};
use crate::ir::shape::{checked_numel, normalize_dim};
use crate::ir::{Attrs, DType, MemoryFormat, Op};
use crate::ops::arguments::ordered;
use crate::ops::arguments::{count, int};
use crate::ops::composite::Composite;
use crate::ops::dims::{Dims, ints};
use crate::ops::indexing::at_least_1d;
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;

static TILE: Composite = Composite::new("tile(Tensor self, SymInt[] dims) -> Tensor");
static ROLL: Composite = Composite::new("roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor");
static ROT90: Composite = Composite::new("rot90(Tensor self, int k=1, int[] dims=[0,1]) -> Tensor");
static REPEAT_INTERLEAVE: Composite = Composite::new(
    "repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor",
);
static REPEAT_INTERLEAVE_EACH: Composite = Composite::new(
    "repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor",
);

/// Permuted elements.
impl Tensor {
    /// Reverses the elements along `dims`. `()` reverses nothing. The result is a copy. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    #[track_caller]
    pub fn flip(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        call(Op::Flip, &[self], &Attrs::from(attrs::Dims { dims: ints(dims) }))
    }

    /// Repeats the tensor along each dim. If there are more counts than dims, the first counts are for new dims. The
    /// result is a copy. The dtype is kept.
    ///
    /// # Errors
    /// If there are fewer counts than dims, or if a count is negative.
    #[track_caller]
    pub fn repeat(&self, repeats: impl Into<Dims>) -> Result<Tensor> {
        call(Op::Repeat, &[self], &Attrs::from(Repeat { repeats: ints(repeats) }))
    }

    /// Like [`Tensor::repeat`]. If there are fewer counts than dims, the first dims are not repeated.
    ///
    /// # Errors
    /// If a count is negative.
    #[track_caller]
    pub fn tile(&self, counts: impl Into<Dims>) -> Result<Tensor> {
        TILE.call((self, counts.into().as_slice()))
    }

    /// Shifts the elements by `shifts[i]` positions along `dims[i]`. Elements beyond the end come back at the start.
    /// Without dims (`()`) and with one shift, all elements are shifted in row-major order. The result is a copy. Sizes
    /// and dtype are kept.
    ///
    /// # Errors
    /// If there are no shifts or not one per dim, or if a dim is out of range.
    #[track_caller]
    pub fn roll(&self, shifts: impl Into<Dims>, dims: impl Into<Dims>) -> Result<Tensor> {
        ROLL.call((self, shifts.into().as_slice(), dims.into().as_slice()))
    }

    fn rolled(&self, shift: i64, dim: i64) -> Result<Tensor> {
        let at = normalize_dim("roll", dim, self.dim())?;
        let Some(&size) = self.sizes().get(at) else {
            return Err(Error::index("roll", "a 0-dim tensor has no dims", "leave dims out"));
        };
        if self.numel() == 0 {
            return Ok(self.clone());
        }
        let start = (size as i64 - shift.rem_euclid(size as i64)) % size as i64;
        cat(&[&self.slice(dim, start, None, 1)?, &self.slice(dim, 0, start, 1)?], dim)
    }

    /// Rotates by `n` right angles in the plane of two dims, from the first toward the second. The result is a copy.
    /// The dtype is kept.
    ///
    /// # Errors
    /// If `dims` are not two different dims.
    #[track_caller]
    pub fn rot90(&self, n: i64, dims: impl Into<Dims>) -> Result<Tensor> {
        ROT90.call((self, n, dims.into().as_slice()))
    }
}

/// Elements repeated one by one.
impl Tensor {
    /// Repeats every element of `dim` `repeats` times in a row. Without a dim, the elements are taken in row-major
    /// order, and the result is 1-dim. The dtype is kept.
    ///
    /// # Errors
    /// If the dim is out of range.
    #[track_caller]
    pub fn repeat_interleave(&self, repeats: usize, dim: impl Into<Option<i64>>) -> Result<Tensor> {
        REPEAT_INTERLEAVE.call((self, int(repeats), dim.into(), None::<i64>))
    }

    /// Like [`Tensor::repeat_interleave`], with a number of repeats per element of `dim`, or one for all. `repeats` is
    /// i64 or i32. Its values are read, which is a graph break.
    ///
    /// # Errors
    /// If the dim is out of range, if a number is negative, if there is not one number per element, or if
    /// [`Tensor::nonzero`] fails.
    #[track_caller]
    pub fn repeat_interleave_each(&self, repeats: &Tensor, dim: impl Into<Option<i64>>) -> Result<Tensor> {
        REPEAT_INTERLEAVE_EACH.call((self, repeats, dim.into(), None::<i64>))
    }

    /// The tensor with the dim, or all elements as one dim.
    fn line_for(&self, dim: Option<i64>) -> Result<(Tensor, i64)> {
        match dim {
            Some(dim) => Ok((at_least_1d(self)?, dim)),
            None => Ok((self.reshape([-1])?, 0)),
        }
    }
}

/// The index 0 as often as the first number says, 1 as often as the second, and so on.
pub(crate) fn repeated_places(repeats: &Tensor) -> Result<Tensor> {
    const OP: &str = "repeat_interleave";
    if !matches!(repeats.dtype(), DType::I64 | DType::I32) {
        return Err(Error::dtype(OP, repeats.dtype(), "i64 or i32", "repeats are whole numbers; convert them"));
    }
    if repeats.dim() != 1 {
        let what = format!("repeats have shape {:?}", repeats.sizes());
        return Err(Error::shape(OP, what, "they must be 1-dim"));
    }
    observer::on_read(repeats, OP)?;
    let count = |count: i64| {
        let negative = |_| Error::argument(OP, format!("repeats can not be negative, but one is {count}"));
        usize::try_from(count).map_err(negative)
    };
    let counts = repeats.to_dtype(DType::I64)?.to_vec::<i64>()?;
    let total = counts.iter().try_fold(0usize, |total, &one| Ok::<_, Error>(total.saturating_add(count(one)?)))?;
    let mut places: Vec<i64> = roomy(total)?;
    for (place, one) in counts.into_iter().enumerate() {
        places.resize(places.len() + count(one)?, place as i64);
    }
    Tensor::from_slice(&places, &[places.len()])?.to_device(repeats.device())
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&TILE, tile)?
        .composite(&ROLL, roll)?
        .composite(&ROT90, rot90)?
        .composite(&REPEAT_INTERLEAVE, repeat_interleave)?
        .composite(&REPEAT_INTERLEAVE_EACH, repeat_interleave_each)?
        .def_kernel(
            "repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor",
            |repeats: &Tensor, size: Option<i64>| {
                of_size(repeated_places(repeats)?, None, size)?.to_dtype(repeats.dtype())
            },
        )?;
    Ok(())
}

/// Checks that a result has the size that the caller expects.
fn of_size(x: Tensor, dim: Option<i64>, size: Option<i64>) -> Result<Tensor> {
    let Some(size) = size else { return Ok(x) };
    let dim = dim.unwrap_or(0).rem_euclid(x.dim().max(1) as i64) as usize;
    if x.sizes()[dim] as i64 == size {
        return Ok(x);
    }
    let what = format!("output_size is {size}, but the repeats add up to {}", x.sizes()[dim]);
    Err(Error::argument("repeat_interleave", what))
}

fn tile(x: &Tensor, counts: &[i64]) -> Result<Tensor> {
    let missing = x.dim().saturating_sub(counts.len());
    x.repeat([&vec![1; missing], counts].concat())
}

fn roll(x: &Tensor, shifts: &[i64], dims: &[i64]) -> Result<Tensor> {
    match (shifts, dims) {
        (&[shift], []) => x.flatten(0, -1)?.roll(shift, 0)?.reshape(x.sizes()),
        (shifts, dims) if shifts.len() != dims.len() || shifts.is_empty() => {
            let what = format!("shifts and dimensions must align. shifts: {shifts:?}, dims: {dims:?}");
            Err(Error::shape("roll", what, "give one shift per dim"))
        }
        (shifts, dims) => {
            let mut rolled = x.clone();
            for (&shift, &dim) in shifts.iter().zip(dims) {
                rolled = rolled.rolled(shift, dim)?;
            }
            if rolled.is_handle_of(x) { x.copy() } else { Ok(rolled) }
        }
    }
}

fn rot90(x: &Tensor, n: i64, dims: &[i64]) -> Result<Tensor> {
    let &[first, second] = dims else {
        let what = format!("expected total rotation dims == 2, but got dims = {dims:?}");
        return Err(Error::shape("rot90", what, "name two dims"));
    };
    if normalize_dim("rot90", first, x.dim())? == normalize_dim("rot90", second, x.dim())? {
        let what = format!("expected rotation dims to be different, but got dim0 = {first} and dim1 = {second}");
        return Err(Error::shape("rot90", what, "name two dims"));
    }
    match n.rem_euclid(4) {
        0 => x.copy(),
        1 => x.flip(second)?.transpose(first, second),
        2 => x.flip([first, second]),
        _ => x.flip(first)?.transpose(first, second),
    }
}

fn repeat_interleave(x: &Tensor, repeats: i64, dim: Option<i64>, size: Option<i64>) -> Result<Tensor> {
    let repeats = count("repeat_interleave", repeats)?;
    let wanted = dim;
    let (x, dim) = x.line_for(dim)?;
    let at = normalize_dim("repeat_interleave", dim, x.dim())?;
    let mut sizes = x.sizes().to_vec();
    sizes.insert(at + 1, repeats);
    checked_numel("repeat_interleave", &sizes, x.dtype().size())?;
    let repeated = x.unsqueeze(at as i64 + 1)?.expand(&sizes[..])?;
    sizes.remove(at + 1);
    // The number of elements was checked. It may be 0.
    sizes[at] = sizes[at].saturating_mul(repeats);
    // Always a copy, even where a view would do.
    let repeated = call(Op::Clone, &[&repeated], &ordered(MemoryFormat::Contiguous))?.view(&sizes[..])?;
    of_size(repeated, wanted, size)
}

fn repeat_interleave_each(x: &Tensor, repeats: &Tensor, dim: Option<i64>, size: Option<i64>) -> Result<Tensor> {
    let wanted = dim;
    let (x, dim) = x.line_for(dim)?;
    let at = normalize_dim("repeat_interleave", dim, x.dim())?;
    let repeats = if repeats.numel() == 1 && repeats.dim() <= 1 {
        repeats.reshape([1])?.expand([x.sizes()[at] as i64])?
    } else {
        repeats.clone()
    };
    if repeats.sizes() != [x.sizes()[at]] {
        let what = format!("repeats of shape {:?} for dim {dim} of shape {:?}", repeats.sizes(), x.sizes());
        return Err(Error::shape("repeat_interleave", what, "give one number, or one per element of the dim"));
    }
    of_size(x.index_select(dim, &repeated_places(&repeats)?)?, wanted, size)
}
