//! Functions with a user-defined derivative.

use crate::autograd::meta::gradient_edge;
use crate::autograd::node::{Backward, BackwardCall, Edge, Node};
use crate::autograd::origin;
use crate::autograd::row::freed;
use crate::autograd::saved::Saved;
use crate::autograd::tape::Places;
use crate::dispatch::key::grad_mode::{is_grad_enabled, no_grad};
use crate::error::{Error, Result};
use crate::profile::locate;
use crate::tensor::handle::Tensor;
use crate::tensor::observer::observer;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};

/// A function with a user-defined derivative, like PyTorch's `torch.autograd.Function`.
///
/// ```
/// use opfuse::autograd::{Context, Function, apply};
/// use opfuse::{Result, Tensor};
///
/// /// `e^x`, whose derivative is the result itself.
/// struct Exp;
///
/// impl Function for Exp {
///     fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
///         let result = inputs[0].exp()?;
///         context.save_result(0);
///         Ok(vec![result])
///     }
///
///     fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
///         Ok(vec![Some((&gradients[0] * &saved[0])?)])
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let x = Tensor::from_slice(&[0.0f64], &[1])?;
/// x.set_requires_grad(true)?;
/// apply(Exp, &[&x])?[0].backward()?;
/// assert_eq!(x.grad().map(|grad| grad.to_vec::<f64>()).transpose()?, Some(vec![1.0]));
/// # Ok(())
/// # }
/// ```
pub trait Function: Send + Sync + 'static {
    /// Computes the results. Calls made here are not recorded. `context` keeps the tensors that `backward` needs.
    ///
    /// # Errors
    /// Any error is returned by [`apply`].
    fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>>;

    /// The gradient of every input, in order; `None` where no gradient flows. `saved` holds the kept tensors in the
    /// order in which they were saved. `gradients` holds one gradient per result, zeros where none arrived. Calls made
    /// here are recorded if higher derivatives are wanted.
    ///
    /// # Errors
    /// Any error is returned by the backward pass.
    fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>>;

    /// The name of the function in `grad_fn` and in errors.
    fn name(&self) -> String {
        let path = std::any::type_name::<Self>();
        format!("{}Backward", path.rsplit("::").next().unwrap_or(path))
    }
}

/// The tensors that a [`Function`] keeps for its backward pass.
#[derive(Default)]
pub struct Context {
    inputs: Vec<Tensor>,
    keeps: Vec<Keep>,
    needs: SmallVec<[bool; 4]>,
}

enum Keep {
    Value(Tensor),
    Result(usize),
}

impl Context {
    /// Keeps an input or another tensor.
    pub fn save(&mut self, tensor: &Tensor) {
        // Inputs were given as handles without history. They stand for the caller's tensors, which have it.
        self.keeps.push(Keep::Value(tensor.clone()));
    }

    /// Whether a gradient flows to the input with this index, so that `backward` is asked for it. What only serves the
    /// gradients of other inputs need not be saved.
    pub fn needs_input_grad(&self, index: usize) -> bool {
        self.needs.get(index).copied().unwrap_or(false)
    }

    /// Keeps the result with this index.
    pub fn save_result(&mut self, index: usize) {
        self.keeps.push(Keep::Result(index));
    }
}

struct FunctionBackward {
    function: Arc<dyn Function>,
    saved: Mutex<Option<Vec<Saved>>>,
    n_inputs: usize,
}

/// Calls a [`Function`] and records it with its own derivative. Returns its results.
///
/// # Errors
/// If the function fails, or if it saves a result that does not exist.
#[track_caller]
pub fn apply(function: impl Function, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let _place = if origin::is_on() { Some(locate(None)) } else { None };
    let function: Arc<dyn Function> = Arc::new(function);
    let needs = inputs.iter().map(|input| is_grad_enabled() && input.requires_grad()).collect();
    let mut context = Context { inputs: inputs.iter().map(|&input| input.clone()).collect(), keeps: Vec::new(), needs };
    let given = context.inputs.clone();
    let results = {
        let _quiet = no_grad();
        function.forward(&mut context, &given)?
    };
    let edges = match is_grad_enabled() {
        true => inputs.iter().map(|input| gradient_edge(input)).collect::<Result<SmallVec<[Option<Edge>; 2]>>>()?,
        false => SmallVec::new(),
    };
    if edges.iter().all(Option::is_none) {
        return Ok(results);
    }
    if let Some(observer) = observer() {
        observer.on_function(&function.name())?;
    }
    // A result may be one of the inputs, whose own history must not change.
    let results: Vec<Tensor> = results.iter().map(own_handle).collect();
    let save = |keep: &Keep| match keep {
        Keep::Value(tensor) => Saved::operand(tensor),
        Keep::Result(index) => match results.get(*index) {
            Some(result) => Saved::result(result, *index),
            None => Err(Error::argument(function.name(), format!("there is no result {index} to save"))),
        },
    };
    let saved = context.keeps.iter().map(save).collect::<Result<Vec<_>>>()?;
    let backward =
        FunctionBackward { function: function.clone(), saved: Mutex::new(Some(saved)), n_inputs: inputs.len() };
    let node = Node::new(Box::new(backward), edges, &results.iter().collect::<SmallVec<[&Tensor; 4]>>());
    for (output, result) in results.iter().enumerate().filter(|(_, result)| result.dtype().is_float()) {
        result.set_edge(Edge::new(node.clone(), output));
    }
    Ok(results)
}

fn own_handle(result: &Tensor) -> Tensor {
    let handle = result.fresh_handle();
    if let Some(observer) = observer() {
        observer.on_handle(result, &handle);
    }
    handle
}

impl FunctionBackward {
    /// What `work` finds of the saved values.
    fn with_saved<T>(&self, work: impl FnOnce(&[Saved]) -> Result<T>) -> Result<T> {
        let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        work(saved.as_deref().ok_or_else(|| freed(&self.name()))?)
    }
}

impl Backward for FunctionBackward {
    fn name(&self) -> String {
        self.function.name()
    }

    fn apply(&self, gradients: Vec<Option<Tensor>>, call: &BackwardCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let unpacked = |saved: &[Saved]| saved.iter().map(|saved| saved.unpack_with_history(call.node)).collect();
        let saved: Vec<Tensor> = self.with_saved(unpacked)?;
        let gradients = crate::autograd::engine::with_zeros(call.node, gradients)?;
        let results = self.function.backward(&saved, &gradients)?;
        if results.len() == self.n_inputs {
            return Ok(results);
        }
        let what = format!("backward returned {} gradients for {} inputs", results.len(), self.n_inputs);
        Err(Error::argument(self.name(), what))
    }

    fn release(&self) {
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.take_if(|saved| !saved.iter().all(Saved::is_number));
    }

    fn is_copyable(&self) -> bool {
        true
    }

    fn is_linear(&self) -> bool {
        false
    }

    fn each_saved(&self, each: &mut dyn FnMut(&Tensor)) {
        let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.iter().flatten().for_each(|saved| each(saved.value()));
    }

    fn check_backward(&self, node: &Arc<Node>) -> Result<()> {
        self.with_saved(|saved| saved.iter().try_for_each(|saved| saved.check(node)))
    }

    fn copy(&self, places: &Places<'_>) -> Result<Box<dyn Backward>> {
        let copies = |saved: &[Saved]| saved.iter().map(|saved| saved.copy(places)).collect::<Result<Vec<_>>>();
        let saved = Mutex::new(Some(self.with_saved(copies)?));
        Ok(Box::new(FunctionBackward { function: self.function.clone(), saved, n_inputs: self.n_inputs }))
    }
}
