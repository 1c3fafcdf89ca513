//! The backward pass of a scan: a loop from the last step to the first, over the carries that the forward pass kept.
//!
//! Each of its steps computes a step of the forward pass anew, with its gradients. The gradients of captured tensors
//! are carried, so contributions are added in the order of a plain loop. A backward pass that is recorded itself is
//! that of the steps written out.

use crate::autograd::{self, Context, is_grad_enabled};
use crate::device::Device;
use crate::error::Result;
use crate::func::control::repeated::Repeated;
use crate::func::control::traced::{Function, Gradients, example, not_again, recorded_gradients, traced_gradients};
use crate::ir::Scalar;
use crate::ops::factories::full_on;
use crate::ops::joins::stack;
use crate::tensor::Tensor;
use crate::transforms::tracer::{Callee, call_callee};
use std::sync::{Arc, OnceLock};

pub(super) fn call(repeated: &Arc<Repeated>, operands: &[Tensor]) -> Result<Vec<Tensor>> {
    let callee: Arc<dyn Callee> = repeated.clone();
    call_callee(&callee, operands, repeated.types())
}

/// A loop and its backward pass, which is a loop from the last step to the first.
pub(super) struct LoopBackward {
    pub(super) forward: Arc<Repeated>,
    pub(super) backward: Arc<Repeated>,
    pub(super) n_captured: usize,
    /// The floating carries.
    pub(super) carried: Vec<usize>,
    /// The floating results of the steps.
    pub(super) roots: Vec<usize>,
    /// The slices whose gradients are wanted, counted after the carries.
    pub(super) wanted: Vec<usize>,
    /// The captured tensors whose gradients are wanted.
    pub(super) of: Vec<usize>,
    /// Whether the calls of the body, made again, have its gradients.
    pub(super) repeats: OnceLock<bool>,
}

impl autograd::Function for LoopBackward {
    fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let n_operands = self.n_given() + self.n_captured;
        let mut results = call(&self.forward, &inputs[..n_operands])?;
        let carries = results.split_off(results.len() - self.forward.n_carry);
        carries.iter().chain(inputs).for_each(|tensor| context.save(tensor));
        Ok(results)
    }

    fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let (carries, operands) = saved.split_at(self.forward.n_carry);
        let (operands, read) = operands.split_at(self.n_given() + self.n_captured);
        if is_grad_enabled() && saved.iter().chain(gradients).any(Tensor::requires_grad) {
            let mut all = self.recorded(operands, gradients)?;
            all.resize(all.len() + read.len(), None);
            return Ok(all);
        }
        // What is added to this zero keeps its sign.
        let zeros = |like: &Tensor| full_on(Device::CPU, like.sizes(), Scalar::Float(-0.0), Some(like.dtype()));
        let of = || self.of.iter().map(|&at| self.n_given() + at);
        let sums = of().map(|at| zeros(&operands[at])).collect::<Result<Vec<_>>>()?;
        let late = self.carried.iter().map(|&at| &gradients[at]);
        let early = self.roots.iter().map(|&at| &gradients[at]);
        let xs = &operands[self.forward.n_carry..self.n_given()];
        let all = late.chain(&sums).chain(carries).chain(xs).chain(early).chain(read);
        let found = call(&self.backward, &all.cloned().collect::<Vec<_>>())?;
        let mut all = vec![None; operands.len() + read.len()];
        let places = self.carried.iter().copied().chain(of()).chain(self.wanted.iter().copied());
        places.zip(found).for_each(|(at, found)| all[at] = Some(found));
        Ok(all)
    }

    fn name(&self) -> String {
        format!("{}Backward", self.forward.op)
    }
}

impl LoopBackward {
    fn n_given(&self) -> usize {
        self.forward.n_carry + self.forward.xs.len()
    }

    /// The gradients of the operands, recorded: those of the steps written out.
    fn recorded(&self, operands: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let (subprogram, n_carry) = (&self.forward.subprogram, self.forward.n_carry);
        let step = |given: &[Tensor]| subprogram.replay(given)?.ok_or_else(|| not_again(self.forward.op));
        let repeats = match self.repeats.get() {
            Some(repeats) => *repeats,
            None => *self.repeats.get_or_init(|| self.repeats(operands, &step).unwrap_or(false)),
        };
        if !repeats {
            return Err(not_again(self.forward.op));
        }
        let results = |operands: &[Tensor]| {
            let mut carry = operands[..n_carry].to_vec();
            let mut columns = vec![Vec::new(); subprogram.results.len() - n_carry];
            for at in 0..self.forward.length {
                let xs = operands[n_carry..self.n_given()].iter().map(|x| x.select(0, at as i64));
                let xs = xs.collect::<Result<Vec<_>>>()?;
                let ys = step(&[&carry, &xs[..], &operands[self.n_given()..]].concat())?;
                carry = ys[..n_carry].to_vec();
                columns.iter_mut().zip(&ys[n_carry..]).for_each(|(column, y)| column.push(y.clone()));
            }
            // Without steps no gradient flows to results.
            let stacked = columns.iter().filter(|column| !column.is_empty());
            let stacked = stacked.map(|column| stack(&column.iter().collect::<Vec<_>>(), 0));
            carry.into_iter().map(Ok).chain(stacked).collect()
        };
        recorded_gradients(operands, results, gradients)
    }

    /// Whether the calls of the body have the gradients of the function that it was traced from.
    fn repeats(&self, operands: &[Tensor], step: Function<'_>) -> Result<bool> {
        let (subprogram, n_given) = (&self.forward.subprogram, self.n_given());
        let flows = |at: usize| at < self.forward.n_carry || self.wanted.contains(&at);
        let given = subprogram.inputs[..n_given].iter().enumerate().map(|(at, ty)| example(ty, flows(at)));
        let given = given.collect::<Result<Vec<_>>>()?;
        let captured = &operands[n_given..];
        let of: Vec<Tensor> = self.of.iter().map(|&at| captured[at].clone()).collect();
        let again = traced_gradients(&Gradients {
            given: &given,
            function: &|given| step(&[given, captured].concat()),
            results: &subprogram.results,
            carried: &self.carried,
            roots: &self.roots,
            wanted: &self.wanted,
            of: &of,
        })?;
        Ok(again.is_ok_and(|again| again.subprogram.is_same(&self.backward.subprogram)))
    }
}
