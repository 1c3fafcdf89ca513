//! A call of one operator, eagerly or compiled, forward or with the gradients of its floating operands.
//!
//! A row that begins with `grad:` is the call and a backward pass from gradients of ones. Operators are called boxed
//! and by name, as `torch.ops.aten` calls them.

use super::text::{self, Arg, Call};
use super::values;
use crate::session::{Peer, Row};
use opfuse::autograd::{GradOptions, grad};
use opfuse::device::allocator;
use opfuse::dispatch::{Dispatcher, Operator, Stack, Value};
use opfuse::internals::codegen::cache;
use opfuse::{DType, MemoryFormat, Result, Tensor, compile};
use std::sync::Arc;

/// Rows that are single calls.
pub(crate) struct Sweep {
    is_compiled: bool,
}

impl Sweep {
    /// The first call of a process registers operators and starts threads; that is no row's first call.
    ///
    /// # Errors
    /// If that call fails.
    pub(crate) fn new(is_compiled: bool) -> std::result::Result<Sweep, String> {
        let mut sweep = Sweep { is_compiled };
        sweep.row("aten::relu(f32[64])").and_then(|mut row| (row.call)()).map(drop)?;
        Ok(sweep)
    }
}

impl Peer for Sweep {
    type Output = Vec<Tensor>;
    const VERSION: &'static str = "opfuse";

    fn forget(&mut self) {
        cache::clear();
        allocator::trim();
    }

    fn row(&mut self, name: &str) -> std::result::Result<Row<Vec<Tensor>>, String> {
        let (is_backward, call) = match name.strip_prefix("grad:") {
            Some(call) => (true, call),
            None => (false, name),
        };
        let bound = Bound::new(&text::call(call)?)?;
        allocator::trim();
        let call = if is_backward { bound.with_gradients(self.is_compiled) } else { bound.forward(self.is_compiled) };
        let mut call = call.map_err(words)?;
        Ok(Row {
            call: Box::new(move || call().map_err(words)),
            check: Box::new(|outputs| outputs.iter().map(sum).sum::<Result<f64>>().map_err(words)),
        })
    }
}

#[cold]
fn words(error: opfuse::Error) -> String {
    error.to_string()
}

/// `mean(|y| + y²)`, as the other worker computes it; 0 without elements.
fn sum(output: &Tensor) -> Result<f64> {
    let values = output.to_dtype(DType::F64)?.to_vec::<f64>()?;
    Ok(values.iter().map(|value| value.abs() + value * value).sum::<f64>() / values.len().max(1) as f64)
}

/// What a row calls.
type Called = Box<dyn FnMut() -> Result<Vec<Tensor>>>;

/// An operator with its arguments.
#[derive(Clone)]
struct Bound {
    operator: Operator,
    stack: Arc<Stack>,
    /// Which of the tensors, in their order, get a gradient.
    is_differentiated: Arc<Vec<bool>>,
}

impl Bound {
    fn new(call: &Call) -> std::result::Result<Bound, String> {
        let operator = Dispatcher::global().lookup(&call.name).map_err(words)?;
        let schema = operator.schema().ok_or("the operator has no schema")?;
        let mut is_differentiated = Vec::new();
        let mut made = |arg: &Arg| value(arg, &mut is_differentiated);
        let positional = call.positional.iter().map(&mut made).collect::<std::result::Result<Vec<_>, String>>()?;
        let mut named = Vec::new();
        for (key, arg) in &call.named {
            named.push((key.as_str(), made(arg)?));
        }
        let stack = Arc::new(schema.bind(positional, named).map_err(words)?);
        Ok(Bound { operator, stack, is_differentiated: Arc::new(is_differentiated) })
    }

    fn tensors(&self) -> Vec<Tensor> {
        self.stack.iter().flat_map(Value::tensors).cloned().collect()
    }

    /// Calls the operator with other tensors.
    fn on(&self, tensors: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut stack = Stack::clone(&self.stack);
        let places = stack.iter_mut().flat_map(Value::tensors_mut);
        for (place, tensor) in places.zip(tensors) {
            *place = tensor.clone();
        }
        self.operator.call_boxed(&mut stack)?;
        outputs(stack)
    }

    fn forward(self, is_compiled: bool) -> Result<Called> {
        if is_compiled {
            let tensors = self.tensors();
            let compiled = compile::<Vec<Tensor>, _>(move |tensors: &[Tensor]| self.on(tensors));
            return Ok(Box::new(move || compiled.call(&tensors)));
        }
        Ok(Box::new(move || {
            let mut stack = Stack::clone(&self.stack);
            self.operator.call_boxed(&mut stack)?;
            outputs(stack)
        }))
    }

    fn with_gradients(self, is_compiled: bool) -> Result<Called> {
        let tensors = self.tensors();
        let leaves = self.leaves(&tensors)?;
        let is_differentiable = |output: &&Tensor| output.requires_grad();
        let outputs = self.on(&leaves)?;
        let roots = outputs.iter().filter(is_differentiable).map(|root| Tensor::ones(root.sizes(), root.dtype()));
        let roots = roots.collect::<Result<Vec<Tensor>>>()?;
        drop(outputs);
        if !is_compiled {
            return Ok(Box::new(move || self.gradients(&leaves, &roots)));
        }
        let n_tensors = tensors.len();
        let inputs: Vec<Tensor> = tensors.into_iter().chain(roots).collect();
        let compiled = compile::<Vec<Tensor>, _>(move |inputs: &[Tensor]| {
            let (tensors, roots) = inputs.split_at(n_tensors);
            self.gradients(&self.leaves(tensors)?, roots)
        });
        Ok(Box::new(move || compiled.call(&inputs)))
    }

    /// The tensors, those that get a gradient as leaves of their own.
    fn leaves(&self, tensors: &[Tensor]) -> Result<Vec<Tensor>> {
        let leaf = |(tensor, &is_differentiated): (&Tensor, &bool)| {
            let leaf = tensor.detach()?;
            leaf.set_requires_grad(is_differentiated)?;
            Ok(leaf)
        };
        tensors.iter().zip(self.is_differentiated.iter()).map(leaf).collect()
    }

    /// The outputs and the gradients. The outputs are part of the result, or compiled calls would leave out a forward
    /// pass that the gradients do not need.
    fn gradients(&self, leaves: &[Tensor], roots: &[Tensor]) -> Result<Vec<Tensor>> {
        let outputs: Vec<Tensor> = self.on(leaves)?.into_iter().filter(Tensor::requires_grad).collect();
        let inputs: Vec<&Tensor> = leaves.iter().filter(|leaf| leaf.requires_grad()).collect();
        let roots: Vec<Option<&Tensor>> = roots.iter().map(Some).collect();
        let options = GradOptions { allow_unused: true, ..GradOptions::default() };
        let gradients = grad(&outputs.iter().collect::<Vec<_>>(), &inputs, &roots, options)?;
        let mut results = outputs.iter().map(Tensor::detach).collect::<Result<Vec<Tensor>>>()?;
        results.extend(gradients.into_iter().flatten());
        Ok(results)
    }
}

/// The tensors among results; numbers become tensors.
fn outputs(stack: Stack) -> Result<Vec<Tensor>> {
    let mut outputs = Vec::with_capacity(stack.len());
    for value in stack {
        match value {
            Value::Tensor(tensor) => outputs.push(tensor),
            Value::TensorList(tensors) => outputs.extend(tensors),
            Value::Int(number) => outputs.push(Tensor::scalar(number)?),
            Value::Float(number) => outputs.push(Tensor::scalar(number)?),
            Value::Bool(flag) => outputs.push(Tensor::scalar(flag)?),
            Value::Scalar(number) => outputs.push(Tensor::number(number)?),
            _ => {}
        }
    }
    Ok(outputs)
}

fn value(arg: &Arg, is_differentiated: &mut Vec<bool>) -> std::result::Result<Value, String> {
    Ok(match arg {
        Arg::None => Value::None,
        Arg::Bool(flag) => Value::Bool(*flag),
        Arg::Int(number) => Value::Int(*number),
        Arg::Float(number) => Value::Float(*number),
        Arg::Str(text) => Value::Str(text.as_str().into()),
        Arg::Word(word) => match (DType::from_name(word), MemoryFormat::from_name(word)) {
            (Some(dtype), _) => Value::DType(dtype),
            (None, Some(format)) => Value::MemoryFormat(format),
            (None, None) => return Err(format!("{word} is no dtype and no memory format")),
        },
        Arg::Tensor(operand) => {
            is_differentiated.push(operand.is_differentiated());
            Value::Tensor(values::tensor(operand, is_differentiated.len() as u64).map_err(words)?)
        }
        Arg::List(items) => {
            let items = items.iter().map(|item| value(item, is_differentiated));
            list(items.collect::<std::result::Result<_, String>>()?)?
        }
    })
}

/// A list whose elements say what it is a list of.
fn list(items: Vec<Value>) -> std::result::Result<Value, String> {
    use opfuse::dispatch::Type;
    let has = |test: fn(&Value) -> bool| items.iter().any(test);
    let is_optional = has(|item| matches!(item, Value::None));
    let element = match items.first() {
        Some(Value::Tensor(_) | Value::None) if is_optional => Type::Tensor.optional(),
        Some(Value::Tensor(_)) => Type::Tensor,
        Some(Value::Bool(_)) => Type::Bool,
        _ if has(|item| matches!(item, Value::Float(_))) => Type::Float,
        _ => Type::Int,
    };
    Value::list_of(&element, items).ok_or("a list holds values of different types".into())
}
