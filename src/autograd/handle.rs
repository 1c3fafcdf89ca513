//! What autograd adds to the methods of a tensor.

use crate::autograd::accumulate::gradient_owner;
use crate::autograd::hook::{Hook, HookId};
use crate::autograd::meta::gradient_edge;
use crate::autograd::node::GradFn;
use crate::autograd::{GradOptions, backward};
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::grad_mode as mode;
use crate::error::{Error, Result};
use crate::tensor::handle::Tensor;
use crate::tensor::observer::{Access, Property, observer};
use std::sync::Arc;

impl Tensor {
    /// Whether gradients flow to it: because it was said so, or because it was made from tensors they flow to.
    #[inline]
    pub fn requires_grad(&self) -> bool {
        if self.view_of().is_some_and(|view| view.is_differentiable && view.base.requires_grad()) {
            // A write may have given the base a history that this view comes to share.
            let _ = crate::autograd::views::refresh(self);
        }
        self.autograd().is_some_and(|meta| meta.requires_grad())
    }

    /// Says whether gradients are to flow to it. Only floating dtypes have gradients.
    ///
    /// # Errors
    /// If the dtype is not floating, if it is an inference tensor, or when switching it off for a tensor that was made
    /// from others (detach it instead).
    pub fn set_requires_grad(&self, requires_grad: bool) -> Result<()> {
        let refuse = |what: &str| Err(Error::argument("requires_grad", what));
        if requires_grad && !self.dtype().is_float() {
            let hint = "convert it with to_dtype(DType::F32) first";
            let expected = "a dtype that can: only Tensors of floating point dtype can require gradients";
            return Err(Error::dtype("requires_grad", self.dtype(), expected, hint));
        }
        if requires_grad && !self.key_set().has(DispatchKey::ADInplaceOrView) && !mode::is_inference_mode() {
            return refuse("an inference tensor cannot require gradients outside inference mode; clone it first");
        }
        if !requires_grad && !self.is_tape_leaf() {
            return refuse("you can only change requires_grad flags of leaf variables; use detach");
        }
        if requires_grad && !self.is_tape_leaf() {
            return Ok(());
        }
        if let Some(observer) = observer() {
            observer.on_requires_grad(self, requires_grad)?;
        }
        self.autograd_or_new().set_requires_grad(requires_grad);
        Ok(())
    }

    /// Whether it was not made by a recorded call.
    pub fn is_leaf(&self) -> bool {
        observer().and_then(|observer| observer.has(Property::Leaf, self)).unwrap_or_else(|| self.is_tape_leaf())
    }

    /// As [`Tensor::is_leaf`], without a word to a trace.
    pub(crate) fn is_tape_leaf(&self) -> bool {
        !self.requires_grad() || self.autograd().is_none_or(|meta| meta.edge().is_none())
    }

    /// Whether it, or the tensor it is a view of, requires gradients; a view may have to be looked at closer.
    #[inline]
    pub(crate) fn may_require_grad(&self) -> bool {
        let flows = |tensor: &Tensor| tensor.autograd().is_some_and(|meta| meta.requires_grad());
        flows(self) || self.view_of().is_some_and(|view| view.is_differentiable && flows(&view.base))
    }

    /// Makes it a leaf that requires gradients and has the hooks of `other`, if that requires any.
    pub(crate) fn flow_as(&self, other: &Tensor) {
        if other.requires_grad() {
            let meta = self.autograd_or_new();
            meta.set_requires_grad(true);
            meta.state().hooks = other.autograd().map(|other| other.state().hooks.clone()).unwrap_or_default();
        }
    }

    /// The recorded call that made it.
    pub fn grad_fn(&self) -> Option<GradFn> {
        on_history(self, "grad_fn");
        if self.is_tape_leaf() {
            return None;
        }
        self.autograd().and_then(crate::autograd::meta::Meta::edge).map(GradFn)
    }

    /// The gradient that was added up in it. It has the sizes, dtype and device of the tensor.
    pub fn grad(&self) -> Option<Tensor> {
        gradient_owner(self, Access::Read).gradient()
    }

    /// As [`Tensor::grad`], without a word to a trace.
    pub(crate) fn gradient(&self) -> Option<Tensor> {
        self.autograd().and_then(|meta| meta.state().grad.clone())
    }

    /// Puts another gradient in the place of its own; `None` forgets it.
    ///
    /// # Errors
    /// If the gradient has another shape or dtype.
    pub fn set_grad(&self, gradient: Option<&Tensor>) -> Result<()> {
        if let Some(gradient) = gradient
            && (gradient.sizes() != self.sizes() || gradient.dtype() != self.dtype())
        {
            let what = format!("the gradient is {}, the tensor {}", gradient.ty(), self.ty());
            return Err(Error::shape("set_grad", what, "a gradient has the shape and dtype of its tensor"));
        }
        gradient_owner(self, Access::Replace).put_gradient(gradient);
        Ok(())
    }

    /// As [`Tensor::set_grad`] with a gradient that fits, without a word to a trace.
    pub(crate) fn put_gradient(&self, gradient: Option<&Tensor>) {
        if gradient.is_some() || self.autograd().is_some() {
            self.autograd_or_new().state().grad = gradient.cloned();
        }
    }

    /// The hooks on its own gradient, by name.
    pub(crate) fn hooks(&self) -> Vec<HookId> {
        self.autograd().map(|meta| meta.state().hooks.iter().map(Hook::handle).collect()).unwrap_or_default()
    }

    /// Adds its gradients to the leaves it was made from; it has one element.
    ///
    /// ```
    /// # fn main() -> opfuse::Result<()> {
    /// let x = opfuse::Tensor::from_slice(&[1.0f32, 2.0], &[2])?;
    /// x.set_requires_grad(true)?;
    /// (&x * &x)?.sum((), false)?.backward()?;
    /// assert_eq!(x.grad().map(|grad| grad.to_vec::<f32>()).transpose()?, Some(vec![2.0, 4.0]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If it has several elements or requires no gradients, or saved values were freed or written to.
    pub fn backward(&self) -> Result<()> {
        backward(&[self], &[], GradOptions::default())
    }

    /// As [`Tensor::backward`], from a gradient of its own shape.
    ///
    /// # Errors
    /// As [`Tensor::backward`], or if the gradient has another shape.
    pub fn backward_with(&self, gradient: &Tensor) -> Result<()> {
        backward(&[self], &[Some(gradient)], GradOptions::default())
    }

    /// The same elements without history, whose writes autograd does not notice. Prefer [`Tensor::detach`].
    pub fn data(&self) -> Tensor {
        self.with_own_version()
    }

    /// Keeps the gradient of a tensor that is no leaf, so that [`Tensor::grad`] gives it after a way back.
    ///
    /// # Errors
    /// If it requires no gradients.
    pub fn retain_grad(&self) -> Result<()> {
        let Some(edge) = gradient_edge(self)? else {
            return Err(Error::argument("retain_grad", "can't retain_grad on Tensor that has requires_grad=False"));
        };
        on_history(self, "retain_grad");
        if self.is_tape_leaf() || std::mem::replace(&mut self.autograd_or_new().state().retains, true) {
            return Ok(());
        }
        let keeper = self.downgrade();
        let keep = move |gradient: &Tensor| {
            if let Some(tensor) = keeper.upgrade() {
                let before = tensor.grad();
                let sum = before.map_or_else(|| Ok(gradient.clone()), |before| before.add(gradient))?;
                tensor.set_grad(Some(&sum))?;
            }
            Ok(None)
        };
        edge.node.hooks().push((edge.output, Hook::new(Arc::new(keep), true)));
        Ok(())
    }

    /// Calls `hook` with its gradient when that is ready; what it returns, if anything, takes the gradient's place.
    ///
    /// # Errors
    /// If it requires no gradients.
    pub fn register_hook(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<HookId> {
        let Some(edge) = gradient_edge(self)? else {
            let what = "cannot register a hook on a tensor that doesn't require gradient";
            return Err(Error::argument("register_hook", what));
        };
        let hook = Hook::new(Arc::new(hook), false);
        let id = hook.handle();
        if observer().is_some_and(|observer| observer.refuses_hook(self)) {
            return Ok(id);
        }
        match self.is_tape_leaf() {
            true => self.autograd_or_new().state().hooks.push(hook),
            false => edge.node.hooks().push((edge.output, hook)),
        }
        Ok(id)
    }

    /// Takes a hook back; whether it was there.
    pub fn remove_hook(&self, id: HookId) -> bool {
        let Some(meta) = self.autograd() else { return false };
        let mut state = meta.state();
        let before = state.hooks.len();
        state.hooks.retain(|hook| !hook.is(&id));
        let mut removed = state.hooks.len() < before;
        let edge = state.edge.clone();
        drop(state);
        if let Some(edge) = edge {
            edge.node.hooks().retain(|(_, hook)| {
                let is_it = hook.is(&id);
                removed |= is_it;
                !is_it
            });
        }
        removed
    }

    /// Whether it is a view that shares the elements of a base which autograd knows of.
    pub fn is_view(&self) -> bool {
        observer().and_then(|observer| observer.has(Property::View, self)).unwrap_or_else(|| self.is_tape_view())
    }

    /// As [`Tensor::is_view`], without a word to a trace.
    pub(crate) fn is_tape_view(&self) -> bool {
        self.view_of().is_some_and(|view| view.is_differentiable)
    }

    /// The tensor it is a view of.
    pub fn base(&self) -> Option<Tensor> {
        on_history(self, "base");
        self.view_of().filter(|view| view.is_differentiable).map(|view| view.base.clone())
    }

    /// Whether it was made in inference mode and stays out of autograd.
    pub fn is_inference(&self) -> bool {
        !self.key_set().has(DispatchKey::ADInplaceOrView) && self.as_number().is_none()
    }
}

/// Called where a function asks how a tensor came about.
fn on_history(tensor: &Tensor, method: &str) {
    if let Some(observer) = observer() {
        observer.on_history(tensor, method);
    }
}
