//! Runs a program on tensors.

use super::calls::{
    Held, call, counting, default, first, gradient, gradients, inference, item, lower, not_lower, quiet, rate,
    recording,
};
use super::customs::{custom, made};
use super::methods::Method;
use super::program::{Arg, Block, Guard, Reading, Statement, Var, Wrapper};
use opfuse::dispatch::Value;
use opfuse::{Error, Result, Scalar, Tensor, compile, vmap};

/// The variables of a running program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Frame {
    pub(crate) tensors: Vec<Option<Tensor>>,
    pub(crate) numbers: Vec<Option<f64>>,
}

/// The guards of a block; they are dropped youngest first, as Rust's locals are.
#[derive(Default)]
pub(crate) struct Guards(Vec<(usize, Held)>);

impl Guards {
    pub(crate) fn numbers(&self) -> Vec<usize> {
        self.0.iter().map(|(number, _)| *number).collect()
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

impl Frame {
    pub(crate) fn new(inputs: &[Tensor], captured: &[Tensor]) -> Frame {
        Frame { tensors: inputs.iter().chain(captured).cloned().map(Some).collect(), numbers: Vec::new() }
    }

    pub(crate) fn get(&self, var: Var) -> &Tensor {
        self.tensors[var].as_ref().expect("variables are made before they are used")
    }

    pub(crate) fn number(&self, number: usize) -> f64 {
        self.numbers[number].expect("numbers are read before they are used")
    }

    pub(crate) fn set(&mut self, var: Var, tensor: Tensor) {
        if self.tensors.len() <= var {
            self.tensors.resize(var + 1, None);
        }
        self.tensors[var] = Some(tensor);
    }

    fn take(&mut self, outs: &[Var], found: Vec<Tensor>) -> Result<()> {
        if found.len() < outs.len() {
            let what = format!("{} results instead of {}", found.len(), outs.len());
            return Err(Error::argument("test", what));
        }
        outs.iter().zip(found).for_each(|(&out, tensor)| self.set(out, tensor));
        Ok(())
    }

    /// The results of a call through the dispatcher.
    pub(crate) fn call(&self, name: &str, args: &[Arg]) -> Result<Vec<Tensor>> {
        call(name, args.iter().map(|arg| self.value(arg)).collect())
    }

    /// The results of a method.
    pub(crate) fn method(&self, method: &Method, tensors: &[Var], ints: &[i64], scalar: &Arg) -> Result<Vec<Tensor>> {
        let tensors: Vec<Tensor> = tensors.iter().map(|&var| self.get(var).clone()).collect();
        (method.run)(&tensors, ints, self.scalar(scalar))
    }

    /// Runs a block.
    pub(crate) fn block(&mut self, block: &Block) -> Result<Vec<Tensor>> {
        let mut guards = Guards::default();
        for statement in &block.statements {
            self.statement(statement, &mut guards)?;
        }
        Ok(block.results.iter().map(|&var| self.get(var).clone()).collect())
    }

    /// Runs a statement.
    pub(crate) fn statement(&mut self, statement: &Statement, guards: &mut Guards) -> Result<()> {
        match statement {
            Statement::Call { outs, name, args } => {
                let found = self.call(name, args)?;
                self.take(outs, found)?;
            }
            Statement::Method { outs, method, tensors, ints, scalar } => {
                let found = self.method(method, tensors, ints, scalar)?;
                self.take(outs, found)?;
            }
            Statement::Custom { outs, kind, of } => {
                let found = custom(*kind, self.get(*of))?;
                self.take(outs, found)?;
            }
            Statement::Make { out, dtype, sizes, start } => self.set(*out, made(*dtype, sizes, *start)?),
            Statement::Clone { out, of } => self.set(*out, self.get(*of).clone()),
            Statement::Drop { of } => self.tensors[*of] = None,
            Statement::Read { number, of, how } => {
                let value = match how {
                    Reading::Item => item(self.get(*of))?,
                    Reading::First => first(self.get(*of))?,
                };
                if self.numbers.len() <= *number {
                    self.numbers.resize(number + 1, None);
                }
                self.numbers[*number] = Some(value);
            }
            Statement::Branch { number, above, then, otherwise, outs } => {
                // What is made inside ends there.
                let mut inner = self.clone();
                let found = inner.block(if self.number(*number) > *above { then } else { otherwise })?;
                self.take(outs, found)?;
            }
            Statement::Open { guard, kind } => guards.0.push((*guard, open(*kind)?)),
            Statement::Close { guard } => guards.0.retain(|(number, _)| number != guard),
            Statement::Nested { wrapper, params, args, body, outs } => {
                let args: Vec<Tensor> = args.iter().map(|&var| self.get(var).clone()).collect();
                let outer = &*self;
                let function = |tensors: &[Tensor]| -> Result<Vec<Tensor>> {
                    let mut inner = outer.clone();
                    params.iter().zip(tensors).for_each(|(&param, tensor)| inner.set(param, tensor.clone()));
                    inner.block(body)
                };
                let found = match wrapper {
                    Wrapper::Compile => compile(function).call(args.as_slice())?,
                    Wrapper::Vmap(dims) => vmap(function).in_dims(dims.clone()).call(args.as_slice())?,
                };
                self.take(outs, found)?;
            }
            Statement::Backward { of } => self.get(*of).backward()?,
            Statement::Grad { outs, of, wrt, create_graph } => {
                let wrt: Vec<&Tensor> = wrt.iter().map(|&var| self.get(var)).collect();
                let found = gradients(self.get(*of), &wrt, *create_graph)?;
                self.take(outs, found)?;
            }
            Statement::TakeGrad { out, of } => {
                let found = gradient(self.get(*of))?;
                self.set(*out, found);
            }
            Statement::ClearGrad { of } => self.get(*of).set_grad(None)?,
            Statement::RequireGrad { of, required } => self.get(*of).set_requires_grad(*required)?,
        }
        Ok(())
    }

    fn scalar(&self, arg: &Arg) -> Scalar {
        match arg {
            Arg::Scalar(scalar) => *scalar,
            Arg::Number(number) => Scalar::Float(self.number(*number)),
            Arg::Rate => rate(),
            _ => Scalar::Int(0),
        }
    }

    fn value(&self, arg: &Arg) -> Value {
        let tensor = |var: &Var| self.get(*var).clone();
        match arg {
            Arg::None => Value::None,
            Arg::Tensor(var) => Value::Tensor(tensor(var)),
            Arg::Tensors(vars) => Value::TensorList(vars.iter().map(tensor).collect()),
            Arg::OptionalTensors(vars) => {
                Value::OptionalTensorList(vars.iter().map(|var| var.as_ref().map(tensor)).collect())
            }
            Arg::Int(number) => Value::Int(*number),
            Arg::Float(number) => Value::Float(*number),
            Arg::Bool(flag) => Value::Bool(*flag),
            Arg::Str(text) => Value::Str(text.as_str().into()),
            Arg::Ints(numbers) => Value::IntList(numbers.as_slice().into()),
            Arg::Floats(numbers) => Value::FloatList(numbers.clone()),
            Arg::Bools(flags) => Value::BoolList(flags.clone()),
            Arg::Scalar(_) | Arg::Number(_) | Arg::Rate => Value::Scalar(self.scalar(arg)),
            Arg::DType(dtype) => Value::DType(*dtype),
            Arg::Format(format) => Value::MemoryFormat(*format),
        }
    }
}

/// Opens a guard.
pub(crate) fn open(kind: Guard) -> Result<Held> {
    match kind {
        Guard::NoGrad => quiet(),
        Guard::EnableGrad => recording(),
        Guard::Inference => inference(),
        Guard::Autocast(dtype) => lower(dtype),
        Guard::NoAutocast => not_lower(),
        Guard::Default(dtype) => default(dtype),
        Guard::Mode => counting(),
    }
}
