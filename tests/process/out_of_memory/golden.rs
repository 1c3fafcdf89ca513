//! The calls of `tests/golden`, eager and compiled, with every allocation failing once.

#[path = "../../conformance/golden/call.rs"]
#[allow(dead_code, reason = "classes of errors are for tests/conformance, which shares this file")]
mod call;
#[path = "../../conformance/golden/case.rs"]
#[allow(dead_code, reason = "what the reference gave is for tests/conformance, which shares this file")]
mod case;
#[path = "../../conformance/golden/folder.rs"]
mod folder;
#[path = "../../conformance/golden/tensors.rs"]
#[allow(dead_code, reason = "the bytes are for tests/conformance, which shares this file")]
mod tensors;

use super::{bits, in_use};
use crate::alone::has_run_alone;
use call::{Outcome, as_tensor, flattened, with_tensors};
use case::{Case, Expected};
use opfuse::compile;
use opfuse::device::allocator::Fault;
use opfuse::dispatch::{Operator, Stack};
use opfuse::{Error, Tensor};
use tensors::{Store, whole_storage};

/// The bits of all that a call gave, and of the storages of its arguments afterwards.
type Bits = (Vec<Vec<u64>>, Vec<Vec<u64>>);

/// A call that can be made again and again.
struct Program<'a> {
    case: &'a Case,
    operator: &'a Operator,
    store: &'a Store<'a>,
}

/// The outcome of one call: its results or its error, and the arguments as it left them.
type Called = (Result<Vec<Tensor>, Error>, Vec<Tensor>);

impl Program<'_> {
    fn arguments(&self) -> Result<Stack, String> {
        call::arguments(self.case, self.operator, self.store)
    }

    /// The tensors among the arguments of a stack.
    fn tensors(&self, stack: &Stack) -> Vec<Tensor> {
        call::tensors(&self.case.args, stack).into_iter().map(|(_, tensor)| tensor.clone()).collect()
    }

    /// Makes the call with one failing allocation: `fault` counts from the call's first one.
    fn eager(&self, fault: Option<u64>) -> Result<(Called, bool), String> {
        let stack = self.arguments()?;
        let tensors = self.tensors(&stack);
        let fault = fault.map(Fault::after);
        let outcome = call::call(self.operator, stack);
        let has_struck = fault.is_some_and(|fault| fault.has_struck());
        let results = match outcome {
            Outcome::Panicked(message) => return Err(format!("it panicked: {message}")),
            Outcome::Failed(error) => Err(error),
            Outcome::Returned(values) => values.iter().filter_map(as_tensor).collect(),
        };
        Ok(((results, tensors), has_struck))
    }

    /// The same as the first call of a compiled function.
    fn compiled(&self, fault: Option<u64>) -> Result<(Called, bool), String> {
        let template = self.arguments()?;
        let tensors = self.tensors(&template);
        let function = |inputs: &[Tensor]| -> opfuse::Result<Vec<Tensor>> {
            let mut stack = with_tensors(&self.case.args, &template, inputs);
            self.operator.call_boxed(&mut stack)?;
            flattened(stack).iter().filter_map(as_tensor).collect()
        };
        let compiled = compile(function);
        let fault = fault.map(Fault::after);
        let results = compiled.call(&tensors[..]);
        let has_struck = fault.is_some_and(|fault| fault.has_struck());
        Ok(((results, tensors), has_struck))
    }

    /// Whether the results follow from the arguments.
    fn is_defined(&self) -> bool {
        let Expected::Outputs(outputs, _) = &self.case.expected else { return false };
        outputs.iter().all(|output| !matches!(output, case::Output::Tensor(output) if output.values.is_none()))
    }

    fn bits(&self, (results, left): &Called) -> Result<Bits, String> {
        let results = results.as_ref().map_err(ToString::to_string)?;
        let results = if self.is_defined() { results.iter().map(bits).collect() } else { Vec::new() };
        Ok((results, storages(left)?))
    }

    /// Fails every allocation once, for one way to make the call.
    fn check(&self, run: impl Fn(&Self, Option<u64>) -> Result<(Called, bool), String>) -> Result<u64, String> {
        let before = storages(&self.tensors(&self.arguments()?))?;
        // The first call allocates what threads and the process keep.
        drop(run(self, None)?);
        let want = self.bits(&run(self, None)?.0)?;
        let used = in_use();
        for n in 0.. {
            let (called, has_struck) = run(self, Some(n))?;
            let say = |what: &str| Err(format!("allocation {n}: {what}"));
            if !has_struck {
                return Ok(n);
            }
            match &called.0 {
                Ok(_) => return say("nobody said that it failed"),
                Err(Error::OutOfMemory { device, wanted, .. }) if device == "cpu" && *wanted > 0 => {}
                Err(other) => return say(&format!("the error is {other}")),
            }
            if self.is_defined() && storages(&called.1)? != before {
                return say("an argument has changed");
            }
            drop(called);
            let again = run(self, None)?.0;
            if self.is_defined() && self.bits(&again)? != want {
                return say("the next call gives other bits");
            }
            drop(again);
            if in_use() != used {
                return say(&format!("{:?} bytes and blocks are in use instead of {used:?}", in_use()));
            }
        }
        unreachable!("a call makes finitely many allocations")
    }
}

fn storages(tensors: &[Tensor]) -> Result<Vec<Vec<u64>>, String> {
    tensors.iter().map(|tensor| whole_storage(tensor).map(|whole| bits(&whole))).collect()
}

/// The cases of an operator; how many allocations failed, eagerly and compiled.
fn check_operator(name: &str, failures: &mut Vec<String>) -> [u64; 2] {
    let (cases, bytes) = folder::cases(name);
    let store = Store::new(&bytes).expect("an operator's tensors are in their format");
    let mut faults = [0, 0];
    for json in &cases {
        let case = Case::parse(json).expect("the case is in its format");
        let Some(operator) = call::operator(&case) else { continue };
        let program = Program { case: &case, operator: &operator, store: &store };
        if !matches!(program.eager(None), Ok(((Ok(_), _), _))) {
            // A call that fails without a fault is a matter of tests/conformance.
            continue;
        }
        let ways = [("eager", program.check(Program::eager)), ("compiled", program.check(Program::compiled))];
        for ((way, outcome), faults) in ways.into_iter().zip(&mut faults) {
            match outcome {
                Ok(n) => *faults += n,
                Err(what) => failures.push(format!("{} {} [{}], {way}: {what}", case.id, case.operator, case.tag)),
            }
        }
    }
    faults
}

#[test]
fn golden_calls_survive_every_failed_allocation() {
    if has_run_alone() {
        return;
    }
    opfuse::dispatch::load().expect("operators can be loaded");
    let (mut failures, mut faults) = (Vec::new(), [0, 0]);
    let operators = folder::operators();
    for (_, name) in &operators {
        let found = check_operator(name, &mut failures);
        (0..2).for_each(|way| faults[way] += found[way]);
    }
    println!("allocations that failed: {} of eager calls, {} of compiled ones", faults[0], faults[1]);
    assert!(failures.is_empty(), "{} calls:\n{}", failures.len(), failures.join("\n"));
    assert!(faults.iter().all(|&n| n > operators.len() as u64), "{faults:?} allocations failed, eagerly and compiled");
}
