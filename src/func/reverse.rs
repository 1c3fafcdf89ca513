//! Reverse mode: gradients of numbers, and products of vectors with Jacobians.

use crate::autograd::{self, GradOptions, enable_grad, is_grad_enabled};
use crate::error::{Error, Result};
use crate::profile::{stands_for, stands_for_maker};
use crate::tensor::structure::{Flat, Parts, Tensors};
use crate::tensor::{Tensor, TensorStruct};
use crate::transforms::{Function, Inputs};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

/// The arguments of a function, of which the first is differentiated by.
pub trait First {
    /// The type of the first argument; that of all for a function of one slice.
    type First: TensorStruct;
}

macro_rules! firsts {
    ($(($first:ident $(, $other:ident)*);)*) => {$(
        impl<$first: TensorStruct $(, $other: TensorStruct)*> First for ($first, $($other,)*) {
            type First = $first;
        }
    )*};
}
firsts! { (A); (A, B); (A, B, C); (A, B, C, D); (A, B, C, D, E); (A, B, C, D, E, G); }

impl First for Vec<Tensor> {
    type First = SliceOfAll;
}

/// The tensors of a slice: the first argument of a function of one slice.
#[derive(Debug, Clone)]
pub struct SliceOfAll(
    /// The tensors, in order.
    pub Vec<Tensor>,
);

/// A slice has no words, and takes all tensors that are left.
impl TensorStruct for SliceOfAll {
    fn tree_flatten(&self, into: &mut Flat) {
        into.tensors.extend(self.0.iter().cloned());
    }

    fn tree_unflatten(from: &mut Parts<'_>) -> Option<SliceOfAll> {
        Some(SliceOfAll(std::iter::from_fn(|| from.tensor()).collect()))
    }
}

thread_local! {
    /// How many transforms of this module are running on this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// One running transform.
pub(super) struct Session {
    /// Whether results are differentiated again.
    pub(super) is_recorded: bool,
}

impl Session {
    /// Starts a transform of these arguments.
    pub(super) fn enter(inputs: &Flat) -> Session {
        let depth = DEPTH.get();
        DEPTH.set(depth + 1);
        let is_wanted = depth > 0 || inputs.tensors.iter().any(Tensor::requires_grad);
        Session { is_recorded: is_wanted && is_grad_enabled() }
    }

    pub(super) fn options(&self) -> GradOptions {
        GradOptions { retain_graph: false, create_graph: self.is_recorded, allow_unused: true }
    }

    /// A result without history, unless it is differentiated again.
    pub(super) fn finished(&self, tensors: impl IntoIterator<Item = Tensor>) -> Result<Tensors> {
        finished(tensors, self.is_recorded)
    }
}

/// Results without history, unless they are differentiated again.
pub(super) fn finished(tensors: impl IntoIterator<Item = Tensor>, is_recorded: bool) -> Result<Tensors> {
    tensors.into_iter().map(|tensor| if is_recorded { Ok(tensor) } else { tensor.detach() }).collect()
}

/// A structure like `like`, of these tensors.
pub(super) fn structure<R: TensorStruct>(like: &Flat, tensors: Tensors) -> Result<R> {
    Flat { tensors, words: like.words.clone() }
        .tree_unflatten()
        .ok_or_else(|| Error::Internal { message: "a structure has as many tensors as it had".into() })
}

impl Drop for Session {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// A call whose first argument is differentiated by.
pub(super) struct Recorded<R> {
    pub(super) output: R,
    /// The tensors of the first argument as the function got them.
    pub(super) leaves: Tensors,
    /// The words of the first argument.
    words: Flat,
}

impl<R> Recorded<R> {
    /// Calls the function with leaves of its own.
    pub(super) fn of<A: First, F: Function<A, Output = R>>(function: &F, inputs: &Flat) -> Result<Recorded<R>> {
        let _recorded = enable_grad();
        crate::dispatch::load()?;
        let first = A::First::tree_unflatten(&mut Parts::of(inputs))
            .ok_or_else(|| Error::argument("func", "the function takes other arguments than these"))?;
        let first = Flat::of(&first);
        let leaves: Tensors = first.tensors.iter().map(leaf).collect::<Result<_>>()?;
        let mut tensors = inputs.tensors.clone();
        tensors[..leaves.len()].clone_from_slice(&leaves);
        let output = function.apply(&Flat { tensors, words: inputs.words.clone() })?;
        Ok(Recorded { output, leaves, words: first })
    }

    /// The gradients of outputs by the leaves, for gradients of the outputs. Zeros where there is none.
    pub(super) fn gradients(
        &self,
        outputs: &[Tensor],
        upstream: &[Option<&Tensor>],
        options: GradOptions,
    ) -> Result<Tensors> {
        let _recorded = enable_grad();
        gradients(outputs, &self.leaves, upstream, options)
    }

    /// The structure of the first argument with other tensors.
    pub(super) fn first<T: TensorStruct>(&self, tensors: Tensors) -> Result<T> {
        structure(&self.words, tensors)
    }
}

/// Gradients by tensors, zeros where there is none.
pub(super) fn gradients(
    outputs: &[Tensor],
    by: &[Tensor],
    upstream: &[Option<&Tensor>],
    options: GradOptions,
) -> Result<Tensors> {
    let zeros = |tensor: &Tensor| tensor.detach()?.zeros_like();
    let mut found: Vec<Option<Tensor>> = vec![None; by.len()];
    let pairs: Vec<(&Tensor, Option<&Tensor>)> = outputs
        .iter()
        .enumerate()
        .filter(|(_, output)| output.dtype().is_float() && output.requires_grad())
        .map(|(index, output)| (output, upstream.get(index).copied().flatten()))
        .collect();
    let wanted: Vec<usize> = (0..by.len()).filter(|&index| by[index].dtype().is_float()).collect();
    if !pairs.is_empty() && !wanted.is_empty() {
        let (outputs, upstream): (Vec<&Tensor>, Vec<Option<&Tensor>>) = pairs.into_iter().unzip();
        let inputs: Vec<&Tensor> = wanted.iter().map(|&index| &by[index]).collect();
        let gradients = autograd::grad(&outputs, &inputs, &upstream, options)?;
        wanted.iter().zip(gradients).for_each(|(&index, gradient)| found[index] = gradient);
    }
    by.iter().zip(found).map(|(tensor, gradient)| gradient.map_or_else(|| zeros(tensor), Ok)).collect()
}

/// A tensor of the same elements that the function may depend on. It keeps the history of the argument, so that an
/// outer transform sees through it.
fn leaf(x: &Tensor) -> Result<Tensor> {
    if !x.dtype().is_float() {
        return Ok(x.clone());
    }
    if x.requires_grad() {
        return x.alias();
    }
    let leaf = x.detach()?;
    leaf.set_requires_grad(true)?;
    Ok(leaf)
}

/// The first tensor of a result, which must be one number.
fn number_of<R: TensorStruct>(op: &str, output: &R) -> Result<Tensor> {
    match Flat::of(output).tensors.first() {
        Some(number) if number.numel() == 1 && number.dtype().is_float() => Ok(number.clone()),
        Some(other) => {
            let what = format!("the function returned {} first", other.ty());
            Err(Error::shape(op, what, "it must return one floating number; sum it, or use jacrev"))
        }
        None => Err(Error::argument(op, "the function returned no tensors; it must return one number")),
    }
}

/// The gradient of a function that returns one number, by its first argument, in the structure of that argument.
/// Tensors that it returns after the number are left out.
#[track_caller]
pub fn grad<A, F: Function<A>>(function: F) -> Grad<F, A> {
    Grad { inner: value_and_grad(function) }
}

/// Like [`grad`], and also returns what the function returns.
///
/// ```
/// # use opfuse::{Result, Tensor, func::value_and_grad};
/// # fn main() -> Result<()> {
/// let loss = |w: &Tensor, x: &Tensor| x.matmul(w)?.square()?.mean_all();
/// let (w, x) = (Tensor::try_from([1.0, -1.0])?, Tensor::try_from([[3.0, 1.0]])?);
/// let (value, gradient) = value_and_grad(loss).call((&w, &x))?;
/// assert_eq!((value.item::<f64>()?, gradient.to_vec::<f64>()?), (4.0, vec![12.0, 4.0]));
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn value_and_grad<A, F: Function<A>>(function: F) -> ValueAndGrad<F, A> {
    ValueAndGrad { function, made: Location::caller(), arguments: PhantomData }
}

/// The gradient of a function. Made by [`grad`].
pub struct Grad<F, A> {
    inner: ValueAndGrad<F, A>,
}

/// A function with its gradient. Made by [`value_and_grad`].
pub struct ValueAndGrad<F, A> {
    function: F,
    made: &'static Location<'static>,
    arguments: PhantomData<fn(A)>,
}

impl<A: First, F: Function<A>> Function<A> for ValueAndGrad<F, A> {
    type Output = (F::Output, A::First);

    fn apply(&self, inputs: &Flat) -> Result<Self::Output> {
        let _place = stands_for_maker(self.made);
        let session = Session::enter(inputs);
        let recorded = Recorded::of::<A, F>(&self.function, inputs)?;
        let number = number_of("grad", &recorded.output)?;
        let gradients = recorded.gradients(&[number], &[], session.options())?;
        let output = Flat::of(&recorded.output);
        let value = structure(&output, session.finished(output.tensors.clone())?)?;
        Ok((value, recorded.first(session.finished(gradients)?)?))
    }
}

impl<A: First, F: Function<A>> Function<A> for Grad<F, A> {
    type Output = A::First;

    fn apply(&self, inputs: &Flat) -> Result<A::First> {
        self.inner.apply(inputs).map(|(_, gradient)| gradient)
    }
}

/// What a function returns, and its vector-Jacobian product: a function from gradients of the result to those of the
/// first argument.
///
/// ```
/// # use opfuse::{Result, Tensor, func::vjp};
/// # fn main() -> Result<()> {
/// let x = Tensor::try_from([0.0, 1.0])?;
/// let (y, pullback) = vjp(|x: &Tensor| x.exp(), &x)?;
/// assert_eq!(y.to_vec::<f64>()?[0], 1.0);
/// assert_eq!(pullback.call(&Tensor::try_from([3.0, 0.0])?)?.to_vec::<f64>()?, [3.0, 0.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the function fails.
#[track_caller]
pub fn vjp<A: First, F: Function<A>>(function: F, inputs: impl Inputs<A>) -> Result<(F::Output, Pullback<A::First>)> {
    let _place = stands_for();
    let inputs = inputs.into_parts()?;
    let session = Session::enter(&inputs);
    let recorded = Recorded::of::<A, F>(&function, &inputs)?;
    let outputs = Flat::of(&recorded.output);
    let value = structure(&outputs, session.finished(outputs.tensors.clone())?)?;
    let Recorded { leaves, words, .. } = recorded;
    let recorded = Recorded { output: outputs.tensors, leaves, words };
    Ok((value, Pullback { recorded, is_recorded: session.is_recorded, first: PhantomData }))
}

/// A vector-Jacobian product. Made by [`vjp`].
pub struct Pullback<T> {
    recorded: Recorded<Tensors>,
    is_recorded: bool,
    first: PhantomData<fn() -> T>,
}

impl<T: TensorStruct> Pullback<T> {
    /// The gradients of the first argument, for gradients of the result, which have its structure. It may be called
    /// several times.
    ///
    /// # Errors
    /// If the gradients do not have the shapes of the result.
    #[track_caller]
    pub fn call<R: TensorStruct>(&self, upstream: &R) -> Result<T> {
        let _place = stands_for();
        let upstream = Flat::of(upstream).tensors;
        if upstream.len() != self.recorded.output.len() {
            let what = format!("{} gradients for {} results", upstream.len(), self.recorded.output.len());
            return Err(Error::argument("vjp", what));
        }
        let upstream: Vec<Option<&Tensor>> = upstream.iter().map(Some).collect();
        let options = GradOptions { retain_graph: true, create_graph: self.is_recorded, allow_unused: true };
        let gradients = self.recorded.gradients(&self.recorded.output, &upstream, options)?;
        self.recorded.first(finished(gradients, self.is_recorded)?)
    }
}

/// Calls, and text.
macro_rules! callable {
    ($($ty:ident $name:literal;)*) => {$(
        impl<A: First, F: Function<A>> $ty<F, A>
        where
            Self: Function<A>,
        {
            /// Calls the function.
            ///
            /// # Errors
            /// If the function fails, or if its result cannot be differentiated so.
            #[track_caller]
            pub fn call(&self, inputs: impl Inputs<A>) -> Result<<Self as Function<A>>::Output> {
                let _place = $crate::profile::stands_for();
                self.apply(&inputs.into_parts()?)
            }
        }

        impl<F, A> fmt::Debug for $ty<F, A> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($name)
            }
        }
    )*};
}
pub(super) use callable;

callable! {
    Grad "grad";
    ValueAndGrad "value_and_grad";
}

impl<T> fmt::Debug for Pullback<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the vjp of {} results", self.recorded.output.len())
    }
}
