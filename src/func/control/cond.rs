//! Branches by the value of a tensor.

use crate::autograd::{self, Context, is_grad_enabled};
use crate::error::{Error, Reason, Result};
use crate::func::control::carry::{dense_type, differs, note, of_parts, plain_numbers_as_tensors};
use crate::func::control::subprogram::{Subprogram, fitted, is_true, results_of};
use crate::func::control::traced::{
    Gradients, Traced, example, not_again, reason_to_run, recorded_gradients, traced, traced_gradients, zeros,
};
use crate::ir::{DType, TensorType};
use crate::profile::stands_for;
use crate::runtime::Array;
use crate::tensor::structure::{Flat, Words};
use crate::tensor::{Tensor, TensorStruct};
use crate::transforms::tracer::{BodySize, Callee, call_callee, is_tracing};
use smallvec::SmallVec;
use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

/// `then(&inputs)` if the predicate, a bool tensor of one element, is true, and `otherwise(&inputs)` if not. Like
/// `torch.cond` and `jax.lax.cond`.
///
/// In a compiled function, and where gradients are recorded, both branches are recorded once and compiled once, and one
/// of them runs in each call. They return the same structure, shapes and dtypes. Gradients flow to `inputs` and to
/// captured tensors; those of the branch that did not run are zeros. A branch that does more than compute is called as
/// it is, which needs the value of the predicate.
///
/// ```
/// use opfuse::{Result, Tensor, compile, func::cond};
///
/// # fn main() -> Result<()> {
/// let f = |x: &Tensor| cond(&x.sum_all()?.gt(0.0)?, |x: &Tensor| x.sqrt(), |x: &Tensor| x.neg(), x);
/// let f = compile(f);
/// assert_eq!(f.call(&Tensor::try_from([4.0, 9.0])?)?.to_vec::<f64>()?, [2.0, 3.0]);
/// assert_eq!(f.call(&Tensor::try_from([-4.0, -9.0])?)?.to_vec::<f64>()?, [4.0, 9.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the predicate is no bool tensor of one element. If the branches return other types where both are recorded. If a
/// branch fails.
#[track_caller]
pub fn cond<I, R, T, E>(predicate: &Tensor, then: T, otherwise: E, inputs: &I) -> Result<R>
where
    I: TensorStruct,
    R: TensorStruct,
    T: Fn(&I) -> Result<R>,
    E: Fn(&I) -> Result<R>,
{
    let _place = stands_for();
    let then = |inputs: Flat| Ok(Flat::of(&then(&of_parts(OP, inputs)?)?));
    let otherwise = |inputs: Flat| Ok(Flat::of(&otherwise(&of_parts(OP, inputs)?)?));
    of_parts(OP, Cond { predicate, branches: [&then, &otherwise], inputs: Flat::of(inputs) }.run()?)
}

const OP: &str = "cond";

/// A branch to take.
struct Cond<'a> {
    predicate: &'a Tensor,
    branches: [&'a dyn Fn(Flat) -> Result<Flat>; 2],
    inputs: Flat,
}

impl Cond<'_> {
    fn run(mut self) -> Result<Flat> {
        crate::dispatch::load()?;
        if self.predicate.dtype() != DType::Bool || self.predicate.numel() != 1 {
            let what = format!("the predicate is {}", self.predicate.ty());
            let hint = "pass a bool tensor of one element, such as `x.gt(0.0)` of a tensor of no dims";
            return Err(Error::shape(OP, what, hint));
        }
        plain_numbers_as_tensors(&mut self.inputs.tensors)?;
        if !self.predicate.payload_is_none() {
            return self.choose_by_slice();
        }
        let reason = match is_tracing() || is_grad_enabled() {
            true => reason_to_run(std::iter::once(self.predicate).chain(&self.inputs.tensors)),
            false => return self.run_plainly(),
        };
        let words: RefCell<Vec<Flat>> = RefCell::new(Vec::new());
        let recorded = match reason {
            Some(reason) => Err(reason),
            None => self.captured(&words)?,
        };
        match recorded {
            Ok(recorded) => {
                let words = words.take().pop().map_or_else(Words::new, |like| like.words);
                Ok(Flat { tensors: recorded.run(&self)?.into(), words })
            }
            Err(reason) => {
                note(OP, &reason);
                self.run_plainly()
            }
        }
    }

    fn run_plainly(self) -> Result<Flat> {
        let [then, otherwise] = self.branches;
        if self.predicate.item::<bool>()? { then(self.inputs) } else { otherwise(self.inputs) }
    }

    /// Both branches, and of each slice of the predicate the result of one.
    fn choose_by_slice(self) -> Result<Flat> {
        let [then, otherwise] = self.branches.map(|branch| branch(self.inputs.clone()));
        let (then, otherwise) = (then?, otherwise?);
        check_alike(&then, &otherwise)?;
        let predicate = self.predicate.reshape(&[] as &[i64])?;
        let chosen = then.tensors.iter().zip(&otherwise.tensors).map(|(one, other)| predicate.where_(one, other));
        Ok(Flat { tensors: chosen.collect::<Result<_>>()?, words: then.words })
    }

    /// Traces both branches, and their gradients if they are wanted. The inner error says why they are not traced.
    /// Examples of the results are left in `made`.
    fn captured(&self, made: &RefCell<Vec<Flat>>) -> Result<Result<Recorded, Reason>> {
        let types: Vec<TensorType> =
            self.inputs.tensors.iter().map(|tensor| TensorType { number: false, ..tensor.ty() }).collect();
        let flows = |tensor: &Tensor| is_grad_enabled() && tensor.requires_grad() && tensor.dtype().is_float();
        let given = self.inputs.tensors.iter().zip(&types).map(|(tensor, ty)| example(ty, flows(tensor)));
        let given = given.collect::<Result<Vec<_>>>()?;
        let functions = self.branches.map(|branch| {
            move |tensors: &[Tensor]| {
                let results = branch(self.inputs.with_tensors(tensors))?;
                let types =
                    results.tensors.iter().map(|one| example(&dense_type(one), false)).collect::<Result<_>>()?;
                made.borrow_mut().push(Flat { tensors: types, words: results.words });
                Ok(results.tensors.to_vec())
            }
        });
        let [then, otherwise] = functions.each_ref().map(|function| traced(&given, function));
        let (then, otherwise) = match (then?, otherwise?) {
            (Ok(then), Ok(otherwise)) => (then, otherwise),
            (Err(reason), _) | (_, Err(reason)) => return Ok(Err(reason)),
        };
        if let [one, other] = &made.borrow()[..] {
            check_alike(one, other)?;
        }
        let (n_given, results) = (given.len(), then.subprogram.results.clone());
        let captured: Vec<Tensor> = then.captured.iter().chain(&otherwise.captured).cloned().collect();
        let n_then = then.captured.len();
        // The predicate comes first.
        let own = |from: usize, n: usize| (1..=n_given).chain(1 + n_given + from..1 + n_given + from + n).collect();
        let gives = || (0..results.len()).map(Given::Result).collect::<Vec<_>>();
        let forward = Branch {
            reads: [own(0, n_then), own(n_then, otherwise.captured.len())],
            gives: [gives(), gives()],
            subprograms: [then.subprogram, otherwise.subprogram],
            types: results.clone(),
        };
        if !is_grad_enabled() || !self.inputs.tensors.iter().chain(&captured).any(Tensor::requires_grad) {
            return Ok(Ok(Recorded { captured, read: Vec::new(), function: Ok(Arc::new(forward)) }));
        }
        let roots: Vec<usize> = (0..results.len()).filter(|&at| results[at].dtype.is_float()).collect();
        let wanted: Vec<usize> = (0..n_given).filter(|&at| flows(&self.inputs.tensors[at])).collect();
        let positions = (0..captured.len()).filter(|&at| captured[at].requires_grad());
        let (of_then, of_otherwise): (Vec<usize>, Vec<usize>) = positions.partition(|&at| at < n_then);
        let mut traces = Vec::with_capacity(2);
        for (function, of) in functions.iter().zip([&of_then, &of_otherwise]) {
            let of: Vec<Tensor> = of.iter().map(|&at| captured[at].clone()).collect();
            let (given, roots, wanted, of) = (&given[..], &roots[..], &wanted[..], &of[..]);
            let gradients = Gradients { given, function, results: &results, carried: &[], roots, wanted, of };
            match traced_gradients(&gradients)? {
                Ok(traced) => traces.push(traced),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        let [then, otherwise]: [Traced; 2] =
            traces.try_into().unwrap_or_else(|_| unreachable!("there are two branches"));
        let read: Vec<Tensor> = then.captured.iter().chain(&otherwise.captured).cloned().collect();
        // The operands: the predicate, sums of both branches, what is given, gradients of results, what both read.
        let (n_then, n_otherwise, n_read) = (of_then.len(), of_otherwise.len(), then.captured.len());
        let shared = 1 + n_then + n_otherwise..1 + n_then + n_otherwise + n_given + roots.len();
        let after = shared.end;
        let reads = [
            (1..1 + n_then).chain(shared.clone()).chain(after..after + n_read).collect(),
            (1 + n_then..shared.start).chain(shared).chain(after + n_read..after + read.len()).collect(),
        ];
        let untouched = |from: usize, n: usize| (from..from + n).map(Given::Operand);
        let computed = |from: usize, n: usize| (from..from + n).map(Given::Result);
        let gives = [
            computed(0, n_then)
                .chain(untouched(1 + n_then, n_otherwise))
                .chain(computed(n_then, wanted.len()))
                .collect(),
            untouched(1, n_then).chain(computed(0, n_otherwise + wanted.len())).collect(),
        ];
        let of: Vec<usize> = of_then.into_iter().chain(of_otherwise).collect();
        let sums = of.iter().map(|&at| dense_type(&captured[at]));
        let slopes = wanted.iter().map(|&at| dense_type(&self.inputs.tensors[at]));
        let types = sums.chain(slopes).collect();
        let backward = Arc::new(Branch { subprograms: [then.subprogram, otherwise.subprogram], reads, gives, types });
        let n_captured = captured.len();
        let function = CondBackward { forward: Arc::new(forward), backward, n_given, n_captured, roots, wanted, of };
        Ok(Ok(Recorded { captured, read, function: Err(function) }))
    }
}

fn check_alike(then: &Flat, otherwise: &Flat) -> Result<()> {
    let Some(how) = differs(then, otherwise) else { return Ok(()) };
    let what = format!("the result of the second branch {how} in the first one");
    Err(Error::shape(OP, what, "both branches return the same structure, shapes and dtypes"))
}

/// Branches that are traced.
struct Recorded {
    captured: Vec<Tensor>,
    /// What the gradients use without being given it.
    read: Vec<Tensor>,
    /// The call, or the call with its backward pass.
    function: Result<Arc<Branch>, CondBackward>,
}

impl Recorded {
    fn run(self, of: &Cond<'_>) -> Result<Vec<Tensor>> {
        let operands = std::iter::once(of.predicate).chain(&of.inputs.tensors).chain(&self.captured);
        match self.function {
            Ok(branch) => call(&branch, &operands.cloned().collect::<Vec<_>>()),
            Err(function) => autograd::apply(function, &operands.chain(&self.read).collect::<Vec<_>>()),
        }
    }
}

/// A result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Given {
    /// A result of the subprogram.
    Result(usize),
    /// A copy of an operand.
    Operand(usize),
}

/// The call that stands for a branch. Its first operand is the predicate. Of the rest each subprogram reads some.
struct Branch {
    subprograms: [Arc<Subprogram>; 2],
    reads: [Vec<usize>; 2],
    gives: [Vec<Given>; 2],
    types: Vec<TensorType>,
}

fn call(branch: &Arc<Branch>, operands: &[Tensor]) -> Result<Vec<Tensor>> {
    let callee: Arc<dyn Callee> = branch.clone();
    call_callee(&callee, operands, branch.types.clone())
}

impl Callee for Branch {
    fn name(&self) -> &'static str {
        OP
    }

    fn call(&self, operands: &[Tensor]) -> Result<Vec<Tensor>> {
        let taken = usize::from(!is_true(operands[0].array()));
        let subprogram = &self.subprograms[taken];
        let inputs = self.reads[taken].iter().zip(&subprogram.inputs);
        let inputs = inputs.map(|(&at, ty)| fitted(operands[at].array(), ty));
        let inputs = inputs.collect::<Result<SmallVec<[Cow<'_, Array>; 8]>>>()?;
        let found = subprogram.run(&inputs.iter().map(|array| &**array).collect::<SmallVec<[&Array; 8]>>())?;
        let array = |from: &Given| match *from {
            Given::Result(at) => found[at].clone(),
            Given::Operand(at) => operands[at].array().clone(),
        };
        results_of(self.gives[taken].iter().map(array).zip(&self.types), operands)
    }

    fn is_same(&self, other: &dyn Callee) -> bool {
        let Some(other) = (other as &dyn Any).downcast_ref::<Branch>() else { return false };
        self.subprograms.iter().zip(&other.subprograms).all(|(one, other)| one.is_same(other))
            && (&self.reads, &self.gives, &self.types) == (&other.reads, &other.gives, &other.types)
    }

    fn body(&self) -> BodySize {
        self.subprograms.iter().map(|subprogram| subprogram.size).sum()
    }
}

/// A branch and its backward pass, which is a branch by the same predicate.
struct CondBackward {
    forward: Arc<Branch>,
    backward: Arc<Branch>,
    n_given: usize,
    n_captured: usize,
    /// The floating results.
    roots: Vec<usize>,
    /// What is given whose gradients are wanted.
    wanted: Vec<usize>,
    /// The captured tensors whose gradients are wanted.
    of: Vec<usize>,
}

impl autograd::Function for CondBackward {
    fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        inputs.iter().for_each(|tensor| context.save(tensor));
        call(&self.forward, &inputs[..1 + self.n_given + self.n_captured])
    }

    fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let (operands, read) = saved.split_at(1 + self.n_given + self.n_captured);
        if is_grad_enabled() && saved.iter().chain(gradients).any(Tensor::requires_grad) {
            let mut all = self.recorded(operands, gradients)?;
            all.resize(saved.len(), None);
            return Ok(all);
        }
        let of = || self.of.iter().map(|&at| 1 + self.n_given + at);
        let sums = of().map(|at| zeros(&operands[at])).collect::<Result<Vec<_>>>()?;
        let found = self.roots.iter().map(|&at| &gradients[at]);
        let given = &operands[1..=self.n_given];
        let all = operands[..1].iter().chain(&sums).chain(given).chain(found).chain(read);
        let found = call(&self.backward, &all.cloned().collect::<Vec<_>>())?;
        let mut all = vec![None; saved.len()];
        of().chain(self.wanted.iter().map(|&at| 1 + at)).zip(found).for_each(|(at, found)| all[at] = Some(found));
        Ok(all)
    }

    fn name(&self) -> String {
        "condBackward".into()
    }
}

impl CondBackward {
    /// The gradients of the operands, recorded: those of the branch that is taken, written out.
    fn recorded(&self, operands: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let taken = usize::from(!operands[0].item::<bool>()?);
        let (subprogram, reads) = (&self.forward.subprograms[taken], &self.forward.reads[taken]);
        let results = |given: &[Tensor]| subprogram.replay(given)?.ok_or_else(|| not_again(OP));
        let read = |operands: &[Tensor]| reads.iter().map(|&at| operands[at].clone()).collect::<Vec<_>>();
        let own = read(operands);
        let (given, captured) = own.split_at(self.n_given);
        let examples = given.iter().zip(&subprogram.inputs).enumerate();
        let examples =
            examples.map(|(at, (_, ty))| example(ty, self.wanted.contains(&at))).collect::<Result<Vec<_>>>()?;
        let is_own = |at: &&usize| reads.contains(&(1 + self.n_given + **at));
        let of: Vec<Tensor> =
            self.of.iter().filter(is_own).map(|&at| operands[1 + self.n_given + at].clone()).collect();
        let again = traced_gradients(&Gradients {
            given: &examples,
            function: &|given| results(&[given, captured].concat()),
            results: &self.forward.types,
            carried: &[],
            roots: &self.roots,
            wanted: &self.wanted,
            of: &of,
        })?;
        if !again.is_ok_and(|again| again.subprogram.is_same(&self.backward.subprograms[taken])) {
            return Err(not_again(OP));
        }
        recorded_gradients(operands, |operands| results(&read(operands)), gradients)
    }
}
