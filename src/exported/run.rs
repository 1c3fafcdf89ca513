//! Running the steps of a program: each is a call of an operator, as if the user had made it.

use crate::autograd::set_grad_enabled;
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::exported::bind::{Block, Call, Source, Step, Target};
use crate::ir::Scalar;
use crate::ops::element::item;
use crate::tensor::handle::Tensor;
use crate::transforms::{autocast, no_autocast};
use std::borrow::Cow;

/// The values of slots.
struct Values(Vec<Option<Value>>);

impl Block {
    /// Runs the block.
    ///
    /// # Errors
    /// Those of the calls, each with the place in the Python source.
    pub(super) fn run(&self, inputs: Vec<Value>) -> Result<Vec<Value>> {
        let mut values = Values(vec![None; self.n_slots]);
        if inputs.len() != self.inputs.len() {
            let what = format!("a graph takes {} values, and {} were passed", self.inputs.len(), inputs.len());
            return Err(Error::invalid("exported program", what));
        }
        for (target, value) in self.inputs.iter().zip(inputs) {
            values.put(target, value)?;
        }
        for step in &self.steps {
            step.run(&mut values).map_err(|error| error.called_at(&step.place))?;
        }
        self.outputs.iter().map(|output| values.get(output)).collect()
    }
}

impl Step {
    fn run(&self, values: &mut Values) -> Result<()> {
        let results = match &self.call {
            Call::Operator(operator) => {
                let mut named = Vec::with_capacity(self.arguments.len());
                for (name, source) in &self.arguments {
                    named.push((name.as_str(), values.get(source)?));
                }
                operator.invoke(Vec::new(), named)?.into_vec()
            }
            Call::Number(op) => {
                let args: Vec<Value> =
                    self.arguments.iter().map(|(_, source)| values.get(source)).collect::<Result<_>>()?;
                op.apply(&args)?.into_iter().collect()
            }
            Call::WithGradients => match &self.arguments[..] {
                [(_, enabled), (_, Source::Block(block)), rest @ ..] => {
                    let is_enabled = truth_of(&values.get(enabled)?)?;
                    let args = values.all(rest)?;
                    let _mode = set_grad_enabled(is_enabled);
                    block.run(args)?
                }
                _ => return Err(malformed()),
            },
            Call::WithAutocast => match &self.arguments[..] {
                [(_, _device), (_, dtype), (_, enabled), (_, _cache), (_, Source::Block(block)), rest @ ..] => {
                    let is_enabled = truth_of(&values.get(enabled)?)?;
                    let (dtype, args) = (values.get(dtype)?, values.all(rest)?);
                    match (is_enabled, dtype) {
                        (true, Value::DType(dtype)) => {
                            let _mode = autocast(dtype)?;
                            block.run(args)?
                        }
                        (true, _) => return Err(malformed()),
                        (false, _) => {
                            let _mode = no_autocast();
                            block.run(args)?
                        }
                    }
                }
                _ => return Err(malformed()),
            },
            Call::Cond => match &self.arguments[..] {
                [(_, condition), (_, Source::Block(then)), (_, Source::Block(otherwise)), rest @ ..] => {
                    let condition = truth_of(&values.get(condition)?)?;
                    let args = values.all(rest)?;
                    if condition { then.run(args)? } else { otherwise.run(args)? }
                }
                _ => return Err(malformed()),
            },
        };
        values.put_all(&self.results, results)?;
        self.last.iter().for_each(|&slot| values.0[slot] = None);
        Ok(())
    }
}

impl Values {
    fn get(&self, source: &Source) -> Result<Value> {
        let slot =
            |slot: usize| self.0[slot].clone().ok_or_else(|| Error::invalid("exported program", "a value is missing"));
        let tensor = |at: usize| if let Value::Tensor(tensor) = slot(at)? { Ok(tensor) } else { Err(malformed()) };
        Ok(match source {
            Source::Slot(at) => slot(*at)?,
            Source::Value(value) => value.clone(),
            Source::Ints(parts) => {
                let number = |part: &Source| {
                    if let Value::Int(number) = self.get(part)? { Ok(number) } else { Err(malformed()) }
                };
                Value::IntList(parts.iter().map(number).collect::<Result<_>>()?)
            }
            Source::Tensors(slots) => Value::TensorList(slots.iter().map(|&at| tensor(at)).collect::<Result<_>>()?),
            Source::OptionalTensors(slots) => {
                let optional = |at: &Option<usize>| at.map(tensor).transpose();
                Value::OptionalTensorList(slots.iter().map(optional).collect::<Result<_>>()?)
            }
            Source::Block(_) => return Err(malformed()),
        })
    }

    /// The operands of a call of a graph. A list of tensors stands for its elements.
    fn all(&self, sources: &[(String, Source)]) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        for (_, source) in sources {
            match self.get(source)? {
                Value::TensorList(tensors) => all.extend(tensors.into_iter().map(Value::Tensor)),
                value => all.push(value),
            }
        }
        Ok(all)
    }

    fn put(&mut self, target: &Target, value: Value) -> Result<()> {
        match (target, value) {
            (Target::Slot(slot), value) => self.0[*slot] = Some(value),
            (Target::List(slots), Value::TensorList(tensors)) if slots.len() == tensors.len() => {
                for (&slot, tensor) in slots.iter().zip(tensors) {
                    self.0[slot] = Some(Value::Tensor(tensor));
                }
            }
            (Target::List(slots), value) => {
                let what = format!("a list of {} tensors was expected as a result, and it is {value:?}", slots.len());
                return Err(Error::invalid("exported program", what));
            }
            (Target::Ignored, _) => {}
        }
        Ok(())
    }

    fn put_all(&mut self, targets: &[Target], values: Vec<Value>) -> Result<()> {
        // The results of a graph are one list where the program says so.
        if let [target @ Target::List(slots)] = targets
            && slots.len() == values.len()
            && values.iter().all(|value| matches!(value, Value::Tensor(_)))
        {
            let tensors = values.iter().flat_map(Value::tensors).cloned().collect();
            return self.put(target, Value::TensorList(tensors));
        }
        if values.len() < targets.len() {
            let what = format!("{} results were expected, and there are {}", targets.len(), values.len());
            return Err(Error::invalid("exported program", what));
        }
        targets.iter().zip(values).try_for_each(|(target, value)| self.put(target, value))
    }
}

/// The number that a tensor of one element holds.
///
/// # Errors
/// If it has more elements or none.
pub(super) fn number(tensor: &Tensor) -> Result<Value> {
    Ok(match item(tensor)? {
        Scalar::Int(number) => Value::Int(number),
        Scalar::Float(number) => Value::Float(number),
        Scalar::Bool(flag) => Value::Bool(flag),
    })
}

/// A value as a tensor: numbers are tensors of no dims.
///
/// # Errors
/// If it is neither.
pub(super) fn tensor(value: &Value) -> Result<Cow<'_, Tensor>> {
    match value {
        Value::Tensor(tensor) => Ok(Cow::Borrowed(tensor)),
        Value::Int(number) => Tensor::scalar(*number).map(Cow::Owned),
        Value::Float(number) => Tensor::scalar(*number).map(Cow::Owned),
        Value::Bool(flag) => Tensor::scalar(*flag).map(Cow::Owned),
        _ => Err(malformed()),
    }
}

fn truth_of(value: &Value) -> Result<bool> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::Tensor(tensor) => Ok(item(tensor)?.as_f64() != 0.0),
        _ => Err(malformed()),
    }
}

fn malformed() -> Error {
    Error::invalid("exported program", "the arguments of a call have other types than it takes")
}
