//! Loops that go on as long as a condition of the carry holds.

use crate::autograd::is_grad_enabled;
use crate::error::{Error, NotCaptured, Reason, Result};
use crate::func::control::carry::{check_carry, dense_type, note, of_parts, plain_numbers_as_tensors};
use crate::func::control::repeated::in_step;
use crate::func::control::subprogram::{Subprogram, fitted, is_true, refitted, results_of};
use crate::func::control::traced::{Function, Traced, example, reason_to_run, traced};
use crate::ir::{DType, TensorType};
use crate::profile::stands_for;
use crate::runtime::Array;
use crate::tensor::structure::Flat;
use crate::tensor::{Tensor, TensorStruct};
use crate::transforms::tracer::{BodySize, Callee, call_callee, on_break};
use smallvec::SmallVec;
use std::any::Any;
use std::sync::Arc;

/// Repeats `carry = body(&carry)` as long as `condition(&carry)` is true, which is a bool tensor of one element.
/// Returns the last carry. Like `jax.lax.while_loop`.
///
/// With a limit the loop ends with an error where it would take more steps. The carry keeps its structure, shapes and
/// dtypes. Functions that only compute are recorded once, and compiled once, as in [`scan`](super::scan). Where
/// gradients are wanted, the loop runs step by step, so gradients flow through the steps that were made; inside a
/// compiled function that is a graph break. [`fori_loop`](super::fori_loop) and `scan`, whose number of steps is known,
/// have compiled gradients: give them the most steps, and keep a carry that is done with `where_`.
///
/// ```
/// use opfuse::{Result, Tensor, func::while_loop};
///
/// # fn main() -> Result<()> {
/// let small = |x: &Tensor| x.lt(100.0);
/// let double = |x: &Tensor| x.mul(2.0);
/// let x = while_loop(small, double, &Tensor::scalar(3.0)?, 50)?;
/// assert_eq!(x.item::<f64>()?, 192.0);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the loop takes more steps than its limit. If the condition is no bool tensor of one element. If a step changes
/// the structure, a shape or a dtype of the carry. If a function fails.
#[track_caller]
pub fn while_loop<C, P, F>(condition: P, body: F, init: &C, limit: impl Into<Option<usize>>) -> Result<C>
where
    C: TensorStruct,
    P: Fn(&C) -> Result<Tensor>,
    F: Fn(&C) -> Result<C>,
{
    let _place = stands_for();
    let condition = |carry: Flat| condition(&of_parts(OP, carry)?);
    let body = |carry: Flat| Ok(Flat::of(&body(&of_parts(OP, carry)?)?));
    of_parts(OP, While { condition: &condition, body: &body, init: Flat::of(init), limit: limit.into() }.run()?)
}

const OP: &str = "while_loop";

/// A loop to run.
struct While<'a> {
    condition: &'a dyn Fn(Flat) -> Result<Tensor>,
    body: &'a dyn Fn(Flat) -> Result<Flat>,
    init: Flat,
    limit: Option<usize>,
}

impl While<'_> {
    fn run(mut self) -> Result<Flat> {
        crate::dispatch::load()?;
        plain_numbers_as_tensors(&mut self.init.tensors)?;
        let call = match reason_to_run(self.init.tensors.iter()) {
            Some(reason) => Err(reason),
            None => self.captured()?,
        };
        match call {
            Ok((call, operands)) => {
                let types = call.body.results.clone();
                let callee: Arc<dyn Callee> = Arc::new(call);
                Ok(self.init.with_tensors(&call_callee(&callee, &operands, types)?))
            }
            Err(reason) => {
                note(OP, &reason);
                self.run_plainly(&reason)
            }
        }
    }

    /// Traces condition and body. Returns the operands of the call, too. The inner error says why they are not traced.
    fn captured(&self) -> Result<Result<(Repeats, Vec<Tensor>), Reason>> {
        let given =
            self.init.tensors.iter().map(|tensor| example(&dense_type(tensor), false)).collect::<Result<Vec<_>>>()?;
        let carry = |tensors: &[Tensor]| self.init.with_tensors(tensors);
        let condition: Function<'_> = &|tensors| {
            let condition = (self.condition)(carry(tensors))?;
            check_condition(&condition)?;
            Ok(vec![condition])
        };
        let body: Function<'_> = &|tensors| {
            let next = (self.body)(carry(tensors))?;
            self.check(0, &next)?;
            Ok(next.tensors.to_vec())
        };
        let (condition, body) = match (traced(&given, condition)?, traced(&given, body)?) {
            (Ok(condition), Ok(body)) => (condition, body),
            (Err(reason), _) | (_, Err(reason)) => return Ok(Err(reason)),
        };
        let Traced { subprogram: condition, captured: asked } = condition;
        let Traced { subprogram: body, captured: used } = body;
        let operands: Vec<Tensor> = self.init.tensors.iter().chain(&asked).chain(&used).cloned().collect();
        if is_grad_enabled() && operands.iter().any(Tensor::requires_grad) {
            return Ok(Err(NotCaptured::GradientsOfOpenLoop { op: OP.into() }.into()));
        }
        let (n_carry, n_asked, limit) = (given.len(), asked.len(), self.limit);
        Ok(Ok((Repeats { condition, body, n_carry, n_asked, limit }, operands)))
    }

    fn run_plainly(&self, why: &Reason) -> Result<Flat> {
        let mut carry = self.init.clone();
        for step in 0.. {
            let goes_on = (self.condition)(carry.clone()).map_err(|error| in_step(error, OP, step))?;
            check_condition(&goes_on)?;
            if matches!(why, Reason::NotCaptured(_)) {
                // The read would break a trace for a reason that says less.
                on_break(OP, why)?;
            }
            if !goes_on.item::<bool>()? {
                break;
            }
            check_limit(step, self.limit)?;
            carry = (self.body)(carry).map_err(|error| in_step(error, OP, step))?;
            self.check(step, &carry)?;
        }
        Ok(carry)
    }

    fn check(&self, step: usize, carry: &Flat) -> Result<()> {
        check_carry(OP, &self.init, step, carry)
    }
}

fn check_condition(condition: &Tensor) -> Result<()> {
    if condition.dtype() == DType::Bool && condition.numel() == 1 {
        return Ok(());
    }
    let what = format!("the condition is {}", condition.ty());
    Err(Error::shape(OP, what, "return a bool tensor of one element, such as `x.lt(1.0)` of a tensor of no dims"))
}

fn check_limit(step: usize, limit: Option<usize>) -> Result<()> {
    match limit.filter(|limit| step >= *limit) {
        None => Ok(()),
        Some(limit) => {
            let what = format!("step {step} is beyond the limit of {limit} steps, and the condition still holds");
            Err(Error::argument(OP, format!("{what}; raise the limit, or see why the loop does not end")))
        }
    }
}

/// The call that stands for a loop. Its operands are the first carry, and what condition and body have captured.
struct Repeats {
    condition: Arc<Subprogram>,
    body: Arc<Subprogram>,
    n_carry: usize,
    /// How many tensors the condition has captured.
    n_asked: usize,
    limit: Option<usize>,
}

impl Callee for Repeats {
    fn name(&self) -> &'static str {
        OP
    }

    fn call(&self, operands: &[Tensor]) -> Result<Vec<Tensor>> {
        let fit = |tensors: &[Tensor], types: &[TensorType]| {
            let fit = |(tensor, ty): (&Tensor, _)| Ok(fitted(tensor.array(), ty)?.into_owned());
            tensors.iter().zip(types).map(fit).collect::<Result<SmallVec<[Array; 4]>>>()
        };
        let (first, captured) = operands.split_at(self.n_carry);
        let (asked, used) = captured.split_at(self.n_asked);
        let asked = fit(asked, &self.condition.inputs[self.n_carry..])?;
        let used = fit(used, &self.body.inputs[self.n_carry..])?;
        let mut carry = fit(first, &self.body.results)?;
        for step in 0.. {
            let with = |subprogram: &Subprogram, captured: &[Array]| {
                let inputs: SmallVec<[&Array; 16]> = carry.iter().chain(captured).collect();
                subprogram.run(&inputs).map_err(|error| in_step(error, OP, step))
            };
            let goes_on = with(&self.condition, &asked)?;
            if !is_true(&goes_on[0]) {
                break;
            }
            check_limit(step, self.limit)?;
            let results = with(&self.body, &used)?;
            let next = results.into_iter().zip(&self.body.results);
            carry = next.map(|(array, ty)| refitted(array, ty)).collect::<Result<_>>()?;
        }
        results_of(carry.into_iter().zip(&self.body.results), operands)
    }

    fn is_same(&self, other: &dyn Callee) -> bool {
        let Some(other) = (other as &dyn Any).downcast_ref::<Repeats>() else { return false };
        self.condition.is_same(&other.condition)
            && self.body.is_same(&other.body)
            && (self.n_carry, self.n_asked, self.limit) == (other.n_carry, other.n_asked, other.limit)
    }

    fn body(&self) -> BodySize {
        self.condition.size + self.body.size
    }
}
