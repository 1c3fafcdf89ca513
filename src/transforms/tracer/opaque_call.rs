//! A call that a graph does not contain, and how a program makes it.

use crate::device::DeviceKind;
use crate::dispatch::key::local::below_autograd;
use crate::dispatch::operator::Operator;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, NotCaptured, Result};
use crate::ir::shape::{Layout, same_strides};
use crate::ir::{NodeId, Strides, TensorType};
use crate::profile::{Place, place};
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;
use std::any::Any;
use std::iter::Sum;
use std::ops::Add;
use std::sync::{Arc, OnceLock};

/// Code that a graph calls and does not see into, such as a loop with its compiled body.
pub(crate) trait Callee: Any + Send + Sync {
    /// What reports call it.
    fn name(&self) -> &'static str;

    /// Computes the results from operands of the types that it was recorded with.
    ///
    /// # Errors
    /// If a value is out of range, or if there is not enough memory.
    fn call(&self, operands: &[Tensor]) -> Result<Vec<Tensor>>;

    /// Whether the other one computes the same.
    fn is_same(&self, other: &dyn Callee) -> bool;

    /// What its bodies compute, each once.
    fn body(&self) -> BodySize;
}

/// How much a compiled body computes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BodySize {
    /// How many ops it has.
    pub ops: usize,
    /// How many kernels these are.
    pub kernels: usize,
}

impl Add for BodySize {
    type Output = BodySize;

    fn add(self, other: BodySize) -> BodySize {
        BodySize { ops: self.ops + other.ops, kernels: self.kernels + other.kernels }
    }
}

impl Sum for BodySize {
    fn sum<I: Iterator<Item = BodySize>>(all: I) -> BodySize {
        all.fold(BodySize::default(), Add::add)
    }
}

/// What is called.
#[derive(Clone)]
enum Called {
    /// An operator. Tensors of the graph are represented in its arguments by their types, plain numbers are themselves.
    Operator(Operator, Box<Stack>),
    /// Other code. All its operands are values of the graph.
    Callee(Arc<dyn Callee>),
}

/// A call of code that a graph does not see into.
#[derive(Clone)]
pub struct OpaqueCall {
    called: Called,
    /// The values that the call reads: the tensors among its arguments that are no plain numbers, in order.
    pub reads: Vec<NodeId>,
    /// Their strides.
    pub strides: Vec<Strides>,
    /// The inputs of the graph that are its results, in order.
    pub results: Vec<usize>,
    types: Vec<TensorType>,
    /// Where in the program the call stands, if that is known.
    pub place: Option<Place>,
    /// Why the program must not run any more.
    refusal: OnceLock<NotCaptured>,
}

impl OpaqueCall {
    /// A call of an operator with these arguments, which hold a tensor on the meta device for each value that it reads.
    /// Its results, which have these types, are no inputs of a graph yet.
    pub(super) fn of_operator(
        operator: Operator,
        arguments: Stack,
        (reads, strides): (Vec<NodeId>, Vec<Strides>),
        types: Vec<TensorType>,
    ) -> OpaqueCall {
        OpaqueCall::new(Called::Operator(operator, Box::new(arguments)), (reads, strides), types)
    }

    /// A call of other code, whose operands are these values with these strides.
    pub(super) fn of_callee(
        callee: Arc<dyn Callee>,
        (reads, strides): (Vec<NodeId>, Vec<Strides>),
        types: Vec<TensorType>,
    ) -> OpaqueCall {
        OpaqueCall::new(Called::Callee(callee), (reads, strides), types)
    }

    fn new(called: Called, (reads, strides): (Vec<NodeId>, Vec<Strides>), types: Vec<TensorType>) -> OpaqueCall {
        OpaqueCall { called, reads, strides, results: Vec::new(), types, place: place(), refusal: OnceLock::new() }
    }

    /// The name of the operator, or of what else is called.
    pub fn name(&self) -> String {
        match &self.called {
            Called::Operator(operator, _) => operator.name().to_string(),
            Called::Callee(callee) => callee.name().into(),
        }
    }

    /// Why it is a call of its own.
    pub fn reason(&self) -> NotCaptured {
        let op = self.name().into();
        match &self.called {
            Called::Operator(..) => NotCaptured::OpaqueCall { op },
            Called::Callee(_) => NotCaptured::ControlFlow { op },
        }
    }

    /// What the bodies of a loop or branch compute, each once. Nothing sees into an operator.
    pub fn body(&self) -> BodySize {
        match &self.called {
            Called::Operator(..) => BodySize::default(),
            Called::Callee(callee) => callee.body(),
        }
    }

    /// The types of the results.
    pub fn types(&self) -> &[TensorType] {
        &self.types
    }

    /// Why programs with this call must not run any more, if they must not.
    pub fn refusal(&self) -> Option<&NotCaptured> {
        self.refusal.get()
    }

    /// Whether both call the same code with the same arguments.
    pub fn is_same(&self, other: &OpaqueCall) -> bool {
        let text = |arguments: &Stack| {
            let shown = |value: &Value| {
                let numbers: Vec<String> = value.tensors().map(|tensor| format!("{:?}", tensor.as_number())).collect();
                let types: Vec<String> = value.tensors().map(|tensor| tensor.ty().to_string()).collect();
                match numbers.is_empty() {
                    true => format!("{value:?}"),
                    false => format!("{} {numbers:?} {types:?}", value.type_name()),
                }
            };
            arguments.iter().map(shown).collect::<Vec<_>>()
        };
        let calls_same = match (&self.called, &other.called) {
            (Called::Operator(one, arguments), Called::Operator(other, others)) => {
                one.address() == other.address() && text(arguments) == text(others)
            }
            (Called::Callee(one), Called::Callee(other)) => one.is_same(&**other),
            (Called::Operator(..), Called::Callee(_)) | (Called::Callee(_), Called::Operator(..)) => false,
        };
        calls_same
            && self.reads == other.reads
            && self.strides == other.strides
            && self.results == other.results
            && self.types == other.types
    }

    /// Makes the call with these values. Nothing is locked meanwhile, so its kernel may do what it likes.
    ///
    /// # Errors
    /// An error of the kernel. Also if its results are not what the Meta kernel said, or if it has written to an
    /// operand: programs with this call are then refused.
    pub fn run(&self, operands: &[Tensor]) -> Result<Vec<Tensor>> {
        let located = |error: Error| match &self.place {
            Some(place) => error.recorded_at(&place.recorded()),
            None => error,
        };
        let (operator, mut stack) = match &self.called {
            Called::Operator(operator, arguments) => (operator, Stack::clone(arguments)),
            // It returns what it was recorded with, in memory of its own.
            Called::Callee(callee) => return callee.call(operands).map_err(located),
        };
        let numberless = stack.iter_mut().flat_map(Value::tensors_mut).filter(|tensor| tensor.as_number().is_none());
        numberless.zip(operands).for_each(|(place, operand)| *place = operand.clone());
        let versions: SmallVec<[u64; 4]> = operands.iter().map(Tensor::version).collect();
        {
            let _below = below_autograd();
            operator.call_boxed(&mut stack).map_err(located)?;
        }
        if let Some(at) = operands.iter().zip(versions).position(|(operand, version)| operand.version() != version) {
            return Err(located(self.refuse(format!("writes to its operand {at}"))));
        }
        let results: Vec<Tensor> = stack.iter().flat_map(Value::tensors).cloned().collect();
        let is_alias = |(at, result): (usize, &Tensor)| {
            operands.iter().chain(&results[..at]).any(|other| other.has_storage_of(result))
        };
        if results.iter().enumerate().any(is_alias) {
            return Err(located(self.refuse("returns memory of an operand, or the same memory twice".into())));
        }
        let is_it = |(result, ty): (&Tensor, &TensorType)| {
            let found = result.ty();
            found.dtype == ty.dtype
                && found.sizes == ty.sizes
                && same_strides(&ty.sizes, &found.strides, &ty.strides)
                && result.as_number().is_none()
                && result.device().kind == DeviceKind::Cpu
                && result.has_data()
        };
        if results.len() != self.types.len() || !results.iter().zip(&self.types).all(is_it) {
            let list = |types: &mut dyn Iterator<Item = TensorType>| {
                types.map(|ty| ty.to_string()).collect::<Vec<_>>().join(", ")
            };
            let found = list(&mut results.iter().map(Tensor::ty));
            let told = list(&mut self.types.iter().cloned());
            return Err(located(self.refuse(format!("returns ({found}), but its Meta kernel says ({told})"))));
        }
        // Neither a history nor a handle that the kernel keeps becomes part of the program.
        let own = |(result, ty): (&Tensor, &TensorType)| with_strides(result, &ty.strides);
        Ok(results.iter().zip(&self.types).map(own).collect())
    }

    /// Refuses to run programs with this call.
    fn refuse(&self, what: String) -> Error {
        let why = NotCaptured::OtherThanDeclared { op: self.name().into(), what: what.clone().into() };
        let error = Error::argument(self.name(), format!("its kernel {what}; {}", why.hint()));
        // Another thread may have refused it before.
        let _ = self.refusal.set(why);
        error
    }
}

/// A handle of the elements of a result. Dims of size 1 get the strides that the graph expects.
fn with_strides(result: &Tensor, strides: &Strides) -> Tensor {
    let array = result.array();
    let before = array.layout();
    if before.strides == *strides {
        return Tensor::from_array(array.clone());
    }
    let layout = Layout { sizes: before.sizes.clone(), strides: strides.clone(), offset: before.offset };
    Tensor::from_array(array.with_layout(layout))
}
