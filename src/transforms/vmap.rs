//! `vmap`: applies a function of one slice to all slices at once.
//!
//! [`vmap`] turns a function of, say, a vector into a function of a batch of vectors. The function is called once, with
//! tensors whose mapped dim is hidden, and every op works on all slices. [`super::batched`] says how.

use crate::error::{Error, Result};
use crate::profile::{stands_for, stands_for_maker};
use crate::tensor::handle::Tensor;
use crate::tensor::structure::Flat;
use crate::transforms::batched::{Session, enter, move_dim};
use crate::transforms::function::{Function, Inputs};
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

pub use crate::transforms::batched::Randomness;
pub use crate::transforms::batched::slow_calls;

/// The mapped dims: one for all tensors, or one for each. `None` maps nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapDims {
    /// The same dim for all tensors.
    All(Option<i64>),
    /// One dim per tensor.
    Each(Vec<Option<i64>>),
}

impl From<i64> for MapDims {
    fn from(dim: i64) -> MapDims {
        MapDims::All(Some(dim))
    }
}

impl From<Option<i64>> for MapDims {
    fn from(dim: Option<i64>) -> MapDims {
        MapDims::All(dim)
    }
}

impl<const N: usize> From<[i64; N]> for MapDims {
    fn from(dims: [i64; N]) -> MapDims {
        MapDims::Each(dims.map(Some).to_vec())
    }
}

impl<const N: usize> From<[Option<i64>; N]> for MapDims {
    fn from(dims: [Option<i64>; N]) -> MapDims {
        MapDims::Each(dims.to_vec())
    }
}

impl From<Vec<Option<i64>>> for MapDims {
    fn from(dims: Vec<Option<i64>>) -> MapDims {
        MapDims::Each(dims)
    }
}

impl MapDims {
    fn for_each(&self, what: &str, count: usize) -> Result<Vec<Option<i64>>> {
        match self {
            MapDims::All(dim) => Ok(vec![*dim; count]),
            MapDims::Each(dims) if dims.len() == count => Ok(dims.clone()),
            MapDims::Each(dims) => {
                let given = dims.len();
                Err(Error::argument(
                    "vmap",
                    format!("{what} has {given} entries for {count} tensors; give one for each"),
                ))
            }
        }
    }
}

/// A function of slices as a function of whole tensors. Made by [`vmap`].
pub struct Vmap<F, A> {
    function: F,
    in_dims: MapDims,
    out_dims: MapDims,
    randomness: Randomness,
    made: &'static Location<'static>,
    arguments: PhantomData<fn(A)>,
}

/// Maps a function over a dim of its arguments: the first dim, unless [`Vmap::in_dims`] is called. The results are
/// stacked along their first dim, unless [`Vmap::out_dims`] is called. Like PyTorch's `torch.vmap`.
///
/// ```
/// use opfuse::{Result, Tensor, vmap};
///
/// # fn main() -> Result<()> {
/// let rows = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// let vector = Tensor::from_slice(&[10.0f32, 1.0], &[2])?;
/// let dots = vmap(|a: &Tensor, b: &Tensor| a.dot(b)).in_dims([Some(0), None]);
/// assert_eq!(dots.call((&rows, &vector))?.to_vec::<f32>()?, [12.0, 34.0]);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn vmap<A, F: Function<A>>(function: F) -> Vmap<F, A> {
    let (in_dims, out_dims) = (MapDims::All(Some(0)), MapDims::All(Some(0)));
    Vmap {
        function,
        in_dims,
        out_dims,
        randomness: Randomness::Error,
        made: Location::caller(),
        arguments: PhantomData,
    }
}

impl<F, A> Vmap<F, A> {
    /// Sets the mapped dim of each argument tensor. Negative dims count from the end. With `None` every slice gets the
    /// whole tensor.
    pub fn in_dims(mut self, dims: impl Into<MapDims>) -> Self {
        self.in_dims = dims.into();
        self
    }

    /// Sets the position of the mapped dim in each result tensor. Negative dims count from the end. `None` states that
    /// the result does not depend on mapped arguments. It is then returned once.
    pub fn out_dims(mut self, dims: impl Into<MapDims>) -> Self {
        self.out_dims = dims.into();
        self
    }

    /// Sets the behaviour of random operators. By default they are errors.
    pub fn randomness(mut self, randomness: Randomness) -> Self {
        self.randomness = randomness;
        self
    }
}

impl<A, F: Function<A>> Vmap<F, A> {
    /// Calls the function on all slices.
    ///
    /// # Errors
    /// If no argument is mapped, if a mapped argument is a plain number or has no such dim, or if the sizes of mapped
    /// dims differ. If the function fails: reading a mapped value is an error too.
    #[track_caller]
    pub fn call(&self, inputs: impl Inputs<A>) -> Result<F::Output> {
        let _place = stands_for();
        self.apply(&inputs.into_parts()?)
    }
}

impl<A, F: Function<A>> Function<A> for Vmap<F, A> {
    type Output = F::Output;

    fn apply(&self, parts: &Flat) -> Result<F::Output> {
        let _place = stands_for_maker(self.made);
        crate::dispatch::load()?;
        let inputs = &parts.tensors;
        let in_dims = self.in_dims.for_each("in_dims", inputs.len())?;
        let dims = inputs.iter().zip(&in_dims).enumerate().map(|(index, (input, &dim))| {
            mapped_dim(index, input, input.dim() - usize::from(parts.words.is_complex(index)), dim)
        });
        let dims = dims.collect::<Result<Vec<Option<usize>>>>()?;
        let sizes: Vec<usize> =
            inputs.iter().zip(&dims).filter_map(|(input, dim)| Some(input.sizes()[(*dim)?])).collect();
        let Some(&size) = sizes.first() else {
            return Err(Error::argument("vmap", "no argument is mapped; name a dim of at least one in in_dims"));
        };
        if sizes.iter().any(|&other| other != size) {
            let what = format!("the mapped dims have sizes {sizes:?}");
            return Err(Error::shape("vmap", what, "the mapped dims of all arguments must have the same size"));
        }
        let session = enter(size, self.randomness);
        let slices = inputs.iter().zip(&dims).map(|(input, dim)| match dim {
            Some(dim) => session.map(input, *dim),
            None => Ok(input.clone()),
        });
        let slices = Flat { tensors: slices.collect::<Result<_>>()?, words: parts.words.clone() };
        let Flat { tensors, words } = Flat::of(&self.function.apply(&slices)?);
        let out_dims = self.out_dims.for_each("out_dims", tensors.len())?;
        let outputs = tensors.iter().zip(out_dims).enumerate().map(|(index, (output, dim))| {
            unmapped(&session, size, output, output.dim() - usize::from(words.is_complex(index)), dim)
        });
        let result = Flat { tensors: outputs.collect::<Result<_>>()?, words };
        result
            .tree_unflatten()
            .ok_or_else(|| Error::Internal { message: "a result has as many tensors as it had".into() })
    }
}

/// The dim of an argument of `rank` dims, as an index.
fn mapped_dim(index: usize, input: &Tensor, rank: usize, dim: Option<i64>) -> Result<Option<usize>> {
    let Some(dim) = dim else { return Ok(None) };
    if input.as_number().is_some() {
        let what = format!("argument {index} is a plain number, which has no dim {dim} to map; give None in in_dims");
        return Err(Error::argument("vmap", what));
    }
    let rank = rank as i64;
    if dim < -rank || dim >= rank {
        let what = format!("in_dim of argument {index}, which has {rank} dims,");
        return Err(Error::out_of_range("vmap", what, [-rank, rank - 1], dim));
    }
    Ok(Some(if dim < 0 { dim + rank } else { dim } as usize))
}

/// A result, whose slices have `rank` dims, with its mapped dim at `dim`.
pub(crate) fn unmapped(
    session: &Session,
    size: usize,
    output: &Tensor,
    rank: usize,
    dim: Option<i64>,
) -> Result<Tensor> {
    let mapped = session.unmap(output);
    let Some(dim) = dim else {
        return match mapped {
            None => Ok(output.clone()),
            Some(_) => {
                let what = "a result depends on mapped arguments, but out_dims is None for it; name the dim it gets";
                Err(Error::argument("vmap", what))
            }
        };
    };
    let rank = rank as i64 + 1;
    if dim < -rank || dim >= rank {
        let what = format!("out_dim of a result that has {rank} dims");
        return Err(Error::out_of_range("vmap", what, [-rank, rank - 1], dim));
    }
    let dim = if dim < 0 { dim + rank } else { dim } as usize;
    match mapped {
        Some((physical, from)) if from == dim => Ok(physical.clone()),
        Some((physical, from)) => move_dim(physical, from, dim),
        // The result is the same for every slice.
        None => {
            let mut sizes = output.sizes().to_vec();
            sizes.insert(dim, size);
            output.unsqueeze(dim as i64)?.expand(&sizes[..])
        }
    }
}

impl<F, A> fmt::Debug for Vmap<F, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vmap(in_dims={:?}, out_dims={:?}, {:?})", self.in_dims, self.out_dims, self.randomness)
    }
}
