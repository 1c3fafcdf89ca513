//! Loops with a known number of steps.

use crate::autograd::{self, is_grad_enabled};
use crate::error::{Error, Reason, Result};
use crate::func::control::carry::{check_carry, dense_type, differs, note, of_parts, plain_numbers_as_tensors};
use crate::func::control::repeated::{Repeated, in_step, stacked};
use crate::func::control::scan_backward::{LoopBackward, call};
use crate::func::control::traced::{Function, Gradients, Traced, example, reason_to_run, traced, traced_gradients};
use crate::ir::TensorType;
use crate::ops::joins::stack;
use crate::profile::stands_for;
use crate::tensor::structure::{Flat, Tensors, Words};
use crate::tensor::{Tensor, TensorStruct};
use crate::transforms::batched::{Level, level_of, move_dim};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Carries a value through the slices of `xs` along their first dim: `(carry, y) = function(&carry, &x)`, step by step.
/// Returns the last carry, and the results `y` of all steps, stacked along a new first dim. Like `jax.lax.scan`.
///
/// Carry, slice and result are structures of tensors. The carry keeps its structure, shapes and dtypes.
///
/// A function that only computes is called a few times on tensors without values, and not once per step: it is recorded
/// and compiled once. In a compiled function the loop is one step of the program, which compiles as fast for 2000 steps
/// as for two. The values are those of a plain loop, bit by bit. A function that does more, such as reading or writing
/// a tensor, runs step by step. So does one that draws random numbers: each step draws others. Numbers that are drawn
/// for all steps before the loop, as `xs`, do not hinder it.
///
/// Gradients flow to `init`, to `xs` and to captured tensors. The backward pass computes each step anew from its carry,
/// so the forward pass keeps the carries alone.
///
/// ```
/// use opfuse::{Result, Tensor, func::scan};
///
/// # fn main() -> Result<()> {
/// let sums = |sum: &Tensor, x: &Tensor| {
///     let sum = (sum + x)?;
///     Ok((sum.clone(), sum))
/// };
/// let (last, all) = scan(sums, &Tensor::scalar(0.0)?, &Tensor::try_from([1.0, 2.0, 3.0])?)?;
/// assert_eq!((last.item::<f64>()?, all.to_vec::<f64>()?), (6.0, vec![1.0, 3.0, 6.0]));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If `xs` has no tensors, or first dims of different sizes. If a step changes the structure, a shape or a dtype of the
/// carry, or returns results of other types than the first step. If the function fails.
#[track_caller]
pub fn scan<C, X, Y, F>(function: F, init: &C, xs: &X) -> Result<(C, Y)>
where
    C: TensorStruct,
    X: TensorStruct,
    Y: TensorStruct,
    F: Fn(&C, &X) -> Result<(C, Y)>,
{
    let _place = stands_for();
    let (init, xs) = (Flat::of(init), Flat::of(xs));
    let length = length_of(&xs.tensors)?;
    let step = |carry: Flat, x: Flat| {
        let (carry, y) = function(&of_parts("scan", carry)?, &of_parts("scan", x)?)?;
        Ok((Flat::of(&carry), Flat::of(&y)))
    };
    let (last, ys) = Loop { op: "scan", step: &step, init, xs, length }.run()?;
    Ok((of_parts("scan", last)?, of_parts("scan", ys)?))
}

/// Like [`scan`], without slices: `(carry, y) = function(&carry)`, `length` times.
///
/// ```
/// use opfuse::{Result, Tensor, func::scan_times};
///
/// # fn main() -> Result<()> {
/// let halve = |x: &Tensor| Ok((x.mul(0.5)?, x.clone()));
/// let (last, all) = scan_times(halve, &Tensor::scalar(8.0)?, 3)?;
/// assert_eq!((last.item::<f64>()?, all.to_vec::<f64>()?), (1.0, vec![8.0, 4.0, 2.0]));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As for [`scan`].
#[track_caller]
pub fn scan_times<C, Y, F>(function: F, init: &C, length: usize) -> Result<(C, Y)>
where
    C: TensorStruct,
    Y: TensorStruct,
    F: Fn(&C) -> Result<(C, Y)>,
{
    let _place = stands_for();
    let step = |carry: Flat, _: Flat| {
        let (carry, y) = function(&of_parts("scan_times", carry)?)?;
        Ok((Flat::of(&carry), Flat::of(&y)))
    };
    let (init, xs) = (Flat::of(init), Flat::default());
    let (last, ys) = Loop { op: "scan_times", step: &step, init, xs, length }.run()?;
    Ok((of_parts("scan_times", last)?, of_parts("scan_times", ys)?))
}

/// Carries a value through the numbers of a range: `carry = function(&i, &carry)`, where `i` is a tensor of no dims and
/// dtype i64. Like `jax.lax.fori_loop`; see [`scan`].
///
/// ```
/// use opfuse::{Result, Tensor, func::fori_loop};
///
/// # fn main() -> Result<()> {
/// let factorial = fori_loop(1..6, |i: &Tensor, x: &Tensor| x * i, &Tensor::scalar(1i64)?)?;
/// assert_eq!(factorial.item::<i64>()?, 120);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As for [`scan`].
#[track_caller]
pub fn fori_loop<C, F>(range: Range<i64>, function: F, init: &C) -> Result<C>
where
    C: TensorStruct,
    F: Fn(&Tensor, &C) -> Result<C>,
{
    let _place = stands_for();
    let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0);
    let numbers = Tensor::arange(range.start, range.start.saturating_add(length as i64), 1)?;
    let step = |carry: Flat, mut x: Flat| {
        let i = x.tensors.remove(0);
        Ok((Flat::of(&function(&i, &of_parts("fori_loop", carry)?)?), Flat::default()))
    };
    let (init, xs) = (Flat::of(init), Flat::of(&numbers));
    of_parts("fori_loop", Loop { op: "fori_loop", step: &step, init, xs, length }.run()?.0)
}

/// The common size of the first dims.
fn length_of(xs: &[Tensor]) -> Result<usize> {
    let sizes: Vec<Option<usize>> = xs.iter().map(|x| x.sizes().first().copied()).collect();
    match sizes.first() {
        Some(Some(size)) if sizes.iter().all(|other| *other == Some(*size)) => Ok(*size),
        Some(_) => {
            let types: Vec<String> = xs.iter().map(|x| x.ty().to_string()).collect();
            let what = format!("xs are {}, which have not all a first dim of one size", types.join(", "));
            Err(Error::shape("scan", what, "each is sliced along its first dim, once per step"))
        }
        None => Err(Error::argument("scan", "xs has no tensors, so the number of steps is not known; call scan_times")),
    }
}

/// A loop to run.
struct Loop<'a> {
    op: &'static str,
    step: &'a dyn Fn(Flat, Flat) -> Result<(Flat, Flat)>,
    init: Flat,
    xs: Flat,
    length: usize,
}

impl Loop<'_> {
    fn run(mut self) -> Result<(Flat, Flat)> {
        crate::dispatch::load()?;
        plain_numbers_as_tensors(&mut self.init.tensors)?;
        if let Some(level) = innermost(self.init.tensors.iter().chain(&self.xs.tensors)) {
            return self.run_mapped(level);
        }
        if let Some(reason) = reason_to_run(self.init.tensors.iter().chain(&self.xs.tensors)) {
            note(self.op, &reason);
            return self.run_plainly();
        }
        // The words of what a step returns, and the level of captured tensors that are mapped, once it is traced.
        let (words, level) = (RefCell::new(None), Cell::new(None));
        let n_carry = self.init.tensors.len();
        let function = |given: &[Tensor]| {
            let (carry, x) = given.split_at(n_carry);
            let (carry, y) = (self.step)(self.init.with_tensors(carry), self.xs.with_tensors(x))?;
            self.check(0, &carry)?;
            level.set(innermost(carry.tensors.iter().chain(&y.tensors)));
            *words.borrow_mut() = Some(y.words);
            Ok(carry.tensors.into_iter().chain(y.tensors).collect())
        };
        let results = match self.captured(&function)? {
            Ok(recorded) => recorded.run(&self)?,
            Err(reason) => {
                return match level.get() {
                    Some(level) => self.run_mapped(level),
                    None => {
                        note(self.op, &reason);
                        self.run_plainly()
                    }
                };
            }
        };
        let words: Words = words.take().unwrap_or_default();
        let (carry, ys) = results.split_at(n_carry);
        Ok((self.init.with_tensors(carry), Flat { tensors: ys.into(), words }))
    }

    /// The types of the slices.
    fn slice_types(&self) -> Vec<TensorType> {
        let slice = |x: &Tensor| TensorType {
            dtype: x.dtype(),
            sizes: x.sizes()[1..].into(),
            strides: x.strides()[1..].into(),
            number: false,
        };
        self.xs.tensors.iter().map(slice).collect()
    }

    /// Traces the body, and its gradients if they are wanted. The inner error says why it is not traced.
    fn captured(&self, function: Function<'_>) -> Result<Result<Recorded, Reason>> {
        let n_carry = self.init.tensors.len();
        let carries: Vec<TensorType> = self.init.tensors.iter().map(dense_type).collect();
        let slices = self.slice_types();
        let given = |flows: bool| {
            let carries = carries.iter().map(|ty| example(ty, flows));
            let flow = self.xs.tensors.iter().map(|x| flows && x.requires_grad());
            carries.chain(slices.iter().zip(flow).map(|(ty, flow)| example(ty, flow))).collect::<Result<Vec<_>>>()
        };
        let Traced { subprogram, captured } = match traced(&given(false)?, function)? {
            Ok(traced) => traced,
            Err(reason) => return Ok(Err(reason)),
        };
        let xs: Vec<TensorType> = self.xs.tensors.iter().map(|x| TensorType { number: false, ..x.ty() }).collect();
        let all = || self.init.tensors.iter().chain(&self.xs.tensors).chain(&captured);
        let repeated = Repeated {
            op: self.op,
            subprogram,
            n_carry,
            xs,
            length: self.length,
            is_reversed: false,
            keeps_carries: false,
        };
        if !is_grad_enabled() || !all().any(Tensor::requires_grad) {
            return Ok(Ok(Recorded { captured, read: Vec::new(), function: Ok(Arc::new(repeated)) }));
        }
        let is_float = |ty: &TensorType| ty.dtype.is_float();
        let results = &repeated.subprogram.results;
        let carried: Vec<usize> = (0..n_carry).filter(|&at| is_float(&carries[at])).collect();
        let roots: Vec<usize> = (n_carry..results.len()).filter(|&at| is_float(&results[at])).collect();
        let flows = |at: &usize| self.xs.tensors[at - n_carry].requires_grad() && is_float(&slices[at - n_carry]);
        let wanted: Vec<usize> = (n_carry..n_carry + slices.len()).filter(flows).collect();
        let of: Vec<Tensor> = captured.iter().filter(|one| one.requires_grad()).cloned().collect();
        let (given, carried, roots, wanted, of) = (&given(true)?[..], &carried[..], &roots[..], &wanted[..], &of[..]);
        let gradients = traced_gradients(&Gradients { given, function, results, carried, roots, wanted, of })?;
        let Traced { subprogram, captured: read } = match gradients {
            Ok(gradients) => gradients,
            Err(reason) => return Ok(Err(reason)),
        };
        let kept = carries.iter().map(|ty| stacked(ty, self.length));
        let found = roots.iter().map(|&root| stacked(&results[root], self.length));
        let backward = Repeated {
            op: self.op,
            subprogram,
            n_carry: carried.len() + of.len(),
            xs: kept.chain(repeated.xs.iter().cloned()).chain(found).collect(),
            length: self.length,
            is_reversed: true,
            keeps_carries: false,
        };
        let backward = LoopBackward {
            forward: Arc::new(Repeated { keeps_carries: true, ..repeated }),
            backward: Arc::new(backward),
            n_captured: captured.len(),
            carried: carried.to_vec(),
            roots: roots.to_vec(),
            wanted: wanted.to_vec(),
            of: of.iter().filter_map(|one| captured.iter().position(|other| other.is_handle_of(one))).collect(),
            repeats: OnceLock::new(),
        };
        Ok(Ok(Recorded { captured, read, function: Err(backward) }))
    }

    /// The loop over physical tensors, whose carries are all mapped.
    fn run_mapped(self, level: Level) -> Result<(Flat, Flat)> {
        // Gradients per slice are recorded for the mapped tensors.
        let is_recorded = |tensor: &Tensor| is_grad_enabled() && level_of(tensor).is_some() && tensor.requires_grad();
        if self.init.tensors.iter().chain(&self.xs.tensors).any(is_recorded) {
            return self.run_plainly();
        }
        let records = Cell::new(false);
        let is_mapped = self.xs.tensors.iter().map(|x| Ok(level.unmap(x)?.is_some())).collect::<Result<Vec<_>>>()?;
        let map = |tensor: &Tensor| level.map(tensor);
        let slice = |(x, is_mapped): (&Tensor, &bool)| if *is_mapped { level.map(x) } else { Ok(x.clone()) };
        let step = |carry: Flat, x: Flat| {
            let carry = Flat { tensors: carry.tensors.iter().map(map).collect::<Result<_>>()?, words: carry.words };
            let xs = x.tensors.iter().zip(&is_mapped).map(slice).collect::<Result<_>>()?;
            let (next, y) = (self.step)(carry, Flat { tensors: xs, words: x.words })?;
            // Here, so that the error shows the sizes of a slice.
            self.check(0, &next)?;
            if next.tensors.iter().chain(&y.tensors).any(is_recorded) {
                records.set(true);
                return Err(Error::Internal { message: "gradients of slices are recorded step by step".into() });
            }
            let spread = |flat: &Flat| {
                let tensors = flat.tensors.iter().map(|tensor| level.spread(tensor)).collect::<Result<Tensors>>();
                Ok(Flat { tensors: tensors?, words: flat.words.clone() })
            };
            Ok((spread(&next)?, spread(&y)?))
        };
        let init = self.init.tensors.iter().map(|tensor| level.spread(tensor)).collect::<Result<_>>()?;
        let xs = self.xs.tensors.iter().map(|x| match level.unmap(x)? {
            Some(physical) => move_dim(&physical, 0, 1),
            None => Ok(x.clone()),
        });
        let init = Flat { tensors: init, words: self.init.words.clone() };
        let xs = Flat { tensors: xs.collect::<Result<_>>()?, words: self.xs.words.clone() };
        let ran = Loop { op: self.op, step: &step, init, xs, length: self.length }.run();
        if records.get() {
            return self.run_plainly();
        }
        let (last, ys) = ran?;
        let last_tensors = last.tensors.iter().map(map).collect::<Result<_>>()?;
        let ys_tensors = ys.tensors.iter().map(|y| level.map(&move_dim(y, 1, 0)?)).collect::<Result<_>>()?;
        Ok((Flat { tensors: last_tensors, words: last.words }, Flat { tensors: ys_tensors, words: ys.words }))
    }

    /// The loop as it is written.
    fn run_plainly(&self) -> Result<(Flat, Flat)> {
        let mut carry = self.init.clone();
        let mut ys: Vec<Flat> = Vec::with_capacity(self.length);
        for step in 0..self.length {
            let slices = self.xs.tensors.iter().map(|x| x.select(0, step as i64)).collect::<Result<Tensors>>()?;
            let x = Flat { tensors: slices, words: self.xs.words.clone() };
            let (next, y) = (self.step)(carry, x).map_err(|error| in_step(error, self.op, step))?;
            self.check(step, &next)?;
            if let Some(first) = ys.first()
                && let Some(how) = differs(first, &y)
            {
                let what = format!("the result of step {step} {how}");
                return Err(Error::shape(self.op, what, "the results of all steps are stacked, so they have one type"));
            }
            carry = next;
            ys.push(y);
        }
        let Some(first) = ys.first() else {
            let what = "there is no step, and the function cannot be traced to know the types of its results";
            return Err(Error::argument(self.op, format!("{what}; give it at least one")));
        };
        let column = |at: usize| stack(&ys.iter().map(|y| &y.tensors[at]).collect::<Vec<_>>(), 0);
        let tensors = (0..first.tensors.len()).map(column).collect::<Result<Tensors>>()?;
        Ok((carry, Flat { tensors, words: first.words.clone() }))
    }

    /// Checks the carry after a step.
    fn check(&self, step: usize, carry: &Flat) -> Result<()> {
        check_carry(self.op, &self.init, step, carry)
    }
}

/// The innermost level that maps one of these tensors.
fn innermost<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Option<Level> {
    tensors.filter_map(level_of).reduce(|one, other| if one.is_inside(other) { one } else { other })
}

/// A loop whose body is traced.
struct Recorded {
    captured: Vec<Tensor>,
    /// What the gradients use without being given it.
    read: Vec<Tensor>,
    /// The loop, or the loop with its backward pass.
    function: Result<Arc<Repeated>, LoopBackward>,
}

impl Recorded {
    fn run(self, of: &Loop<'_>) -> Result<Vec<Tensor>> {
        let operands = of.init.tensors.iter().chain(&of.xs.tensors).chain(&self.captured);
        match self.function {
            Ok(repeated) => call(&repeated, &operands.cloned().collect::<Vec<_>>()),
            Err(function) => {
                let operands: Vec<&Tensor> = operands.chain(&self.read).collect();
                autograd::apply(function, &operands)
            }
        }
    }
}
