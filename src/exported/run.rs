//! Running the steps of a program: each is a call of an operator, as if the user had made it.

use crate::dispatch::key::local::is_tracing;
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::exported::bind::{Block, Call, Source, Step, Target};
use crate::exported::mapped::Levels;
use crate::ir::{DType, Scalar};
use crate::ops::element::item;
use crate::profile::{self, Located};
use crate::tensor::handle::Tensor;
use num_complex::Complex;
use std::borrow::Cow;

/// The values of slots.
struct Values {
    slots: Vec<Option<Value>>,
    /// The levels of `vmap` that the graph has entered.
    levels: Levels,
}

/// An argument of an operator that takes graphs.
pub(super) enum Part<'a> {
    Value(Value),
    Block(&'a Block),
}

impl Block {
    /// Runs the block.
    ///
    /// # Errors
    /// Those of the calls, each with the place in the Python source.
    pub(super) fn run(&self, inputs: Vec<Value>) -> Result<Vec<Value>> {
        let mut values = Values { slots: vec![None; self.n_slots], levels: Levels::default() };
        if inputs.len() != self.inputs.len() {
            let what = format!("a graph takes {} values, and {} were passed", self.inputs.len(), inputs.len());
            return Err(Error::invalid("exported program", what));
        }
        for (target, value) in self.inputs.iter().zip(inputs) {
            values.put(target, value)?;
        }
        for step in &self.steps {
            let _place = step.located();
            step.run(&mut values).map_err(|error| error.called_at(&step.place))?;
        }
        self.outputs.iter().map(|output| values.get(output)).collect()
    }
}

impl Step {
    /// Notes the line of the Python source, if a trace or a profile will see the calls.
    fn located(&self) -> Option<Located> {
        if !profile::is_on() && !is_tracing() {
            return None;
        }
        // The name of the operator comes first.
        let (_, line) = self.place.split_once(" at ")?;
        let (file, rest) = line.split_once(':')?;
        let line = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
        let composite = match &self.call {
            Call::Operator(operator) => operator.composite_name(),
            Call::Number(_) | Call::Control(_) | Call::Map(_) => None,
        };
        Some(profile::locate_in_file(&file.into(), line, composite))
    }

    fn run(&self, values: &mut Values) -> Result<()> {
        let results = match &self.call {
            Call::Operator(operator) => {
                let mut named = Vec::with_capacity(self.arguments.len());
                for (name, source) in &self.arguments {
                    named.push((name.as_str(), values.get(source)?));
                }
                let is_wide = |(_, value): &(&str, Value)| {
                    value.tensors().any(|tensor| matches!(tensor.dtype(), DType::F64 | DType::Complex128))
                };
                let dtype = if named.iter().any(is_wide) { DType::Complex128 } else { DType::Complex64 };
                for ((_, value), (_, source)) in named.iter_mut().zip(&self.arguments) {
                    if let Source::Complex(parts) = source {
                        *value = complex(*parts, dtype)?;
                    }
                }
                operator.invoke(Vec::new(), named)?.into_vec()
            }
            Call::Number(op) => {
                let args: Vec<Value> =
                    self.arguments.iter().map(|(_, source)| values.get(source)).collect::<Result<_>>()?;
                op.apply(&args)?.into_iter().collect()
            }
            Call::Control(op) => op.run(&values.parts(&self.arguments)?)?,
            Call::Map(op) => {
                let args: Vec<Value> =
                    self.arguments.iter().map(|(_, source)| values.get(source)).collect::<Result<_>>()?;
                op.apply(&args, &mut values.levels)?.into_iter().collect()
            }
        };
        values.put_all(&self.results, results)?;
        self.last.iter().for_each(|&slot| values.slots[slot] = None);
        Ok(())
    }
}

impl Values {
    fn get(&self, source: &Source) -> Result<Value> {
        let slot = |slot: usize| {
            self.slots[slot].clone().ok_or_else(|| Error::invalid("exported program", "a value is missing"))
        };
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
            // Only a call knows the dtype.
            Source::Complex(_) => Value::None,
            Source::Block(_) => return Err(malformed()),
        })
    }

    /// The arguments of an operator that takes graphs.
    fn parts<'a>(&self, sources: &'a [(String, Source)]) -> Result<Vec<Part<'a>>> {
        let part = |(_, source): &'a (String, Source)| match source {
            Source::Block(block) => Ok(Part::Block(block)),
            _ => self.get(source).map(Part::Value),
        };
        sources.iter().map(part).collect()
    }

    fn put(&mut self, target: &Target, value: Value) -> Result<()> {
        match (target, value) {
            (Target::Slot(slot), value) => self.slots[*slot] = Some(value),
            (Target::List(slots), Value::TensorList(tensors)) if slots.len() == tensors.len() => {
                for (&slot, tensor) in slots.iter().zip(tensors) {
                    self.slots[slot] = Some(Value::Tensor(tensor));
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
        if targets.iter().skip(values.len()).any(|target| !matches!(target, Target::Ignored)) {
            let what = format!("{} results were expected, and there are {}", targets.len(), values.len());
            return Err(Error::invalid("exported program", what));
        }
        targets.iter().zip(values).try_for_each(|(target, value)| self.put(target, value))
    }
}

/// A complex number beside tensors. It is as narrow as they let it be, so that it does not widen what it meets.
fn complex([real, imaginary]: [f64; 2], dtype: DType) -> Result<Value> {
    Tensor::scalar(Complex::new(real, imaginary))?.to_dtype(dtype).map(Value::Tensor)
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

pub(super) fn truth_of(value: &Value) -> Result<bool> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::Tensor(tensor) => Ok(item(tensor)?.as_f64() != 0.0),
        _ => Err(malformed()),
    }
}

pub(super) fn malformed() -> Error {
    Error::invalid("exported program", "the arguments of a call have other types than it takes")
}
