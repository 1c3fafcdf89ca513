//! The autograd methods of a tensor.

use crate::autograd::accumulate::gradient_owner;
use crate::autograd::hook::{Hook, HookFn, HookId};
use crate::autograd::meta::gradient_edge;
use crate::autograd::node::GradFn;
use crate::autograd::{GradOptions, backward};
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::grad_mode as mode;
use crate::error::{Error, Result};
use crate::ops::complex_numbers::of_pairs;
use crate::tensor::handle::Tensor;
use crate::tensor::observer::{Access, Property, observer};
use std::sync::Arc;

impl Tensor {
    /// Whether gradients flow to this tensor: it is a leaf that was told to require them, or it was computed from
    /// tensors that require them.
    #[inline]
    pub fn requires_grad(&self) -> bool {
        if let Some(pairs) = self.pairs() {
            return pairs.requires_grad();
        }
        if self.view_of().is_some_and(|view| view.is_differentiable && view.base.requires_grad()) {
            // A write may have given the base a history, which this view shares.
            let _ = crate::autograd::views::refresh(self);
        }
        self.autograd().is_some_and(|meta| meta.requires_grad())
    }

    /// Sets whether gradients flow to this tensor. Only floating and complex dtypes have gradients.
    ///
    /// # Errors
    /// If the dtype is neither floating nor complex, if this is a plain number, if this is an inference tensor outside
    /// inference mode, or if a tensor that is no leaf would stop requiring gradients (use [`Tensor::detach`] instead).
    pub fn set_requires_grad(&self, requires_grad: bool) -> Result<()> {
        if let Some(pairs) = self.pairs() {
            return pairs.set_requires_grad(requires_grad);
        }
        let refuse = |what: &str| Err(Error::argument("requires_grad", what));
        if requires_grad && !self.dtype().is_float() {
            let hint = "convert it with to_dtype(DType::F32) first";
            let expected = "a dtype that can: only Tensors of floating point dtype can require gradients";
            return Err(Error::dtype("requires_grad", self.dtype(), expected, hint));
        }
        if requires_grad && self.as_number().is_some() {
            return refuse("a plain number cannot require gradients; make a tensor of it with Tensor::scalar");
        }
        if requires_grad && !self.key_set().has(DispatchKey::ADInplaceOrView) && !mode::is_inference_mode() {
            return refuse("an inference tensor cannot require gradients outside inference mode; clone it first");
        }
        if !requires_grad && !self.stands_for_leaf() {
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

    /// Whether this is a leaf: a tensor that was not computed by a recorded call.
    pub fn is_leaf(&self) -> bool {
        if let Some(pairs) = self.pairs() {
            return pairs.is_leaf();
        }
        observer().and_then(|observer| observer.has(Property::Leaf, self)).unwrap_or_else(|| self.is_tape_leaf())
    }

    /// Like [`Tensor::is_leaf`], but records no guard while tracing.
    pub(crate) fn is_tape_leaf(&self) -> bool {
        !self.requires_grad() || self.autograd().is_none_or(|meta| meta.edge().is_none())
    }

    /// Whether this is a leaf, or a handle that a recording has made of one.
    pub(crate) fn stands_for_leaf(&self) -> bool {
        let edge = || self.autograd().and_then(crate::autograd::meta::Meta::edge);
        self.is_tape_leaf() || edge().is_some_and(|edge| edge.leaf().is_some())
    }

    /// Whether this tensor or its base requires gradients. For a view this is an upper bound.
    #[inline]
    pub(crate) fn may_require_grad(&self) -> bool {
        let flows = |tensor: &Tensor| tensor.autograd().is_some_and(|meta| meta.requires_grad());
        flows(self) || self.view_of().is_some_and(|view| view.is_differentiable && flows(&view.base))
    }

    /// Makes this a leaf that requires gradients and has the hooks of `other`, if `other` requires gradients.
    pub(crate) fn require_grad_like(&self, other: &Tensor) {
        if other.requires_grad() {
            let meta = self.autograd_or_new();
            meta.set_requires_grad(true);
            meta.state().hooks = other.autograd().map(|other| other.state().hooks.clone()).unwrap_or_default();
        }
    }

    /// The recorded call that computed this tensor. `None` for a leaf.
    pub fn grad_fn(&self) -> Option<GradFn> {
        if let Some(pairs) = self.pairs() {
            return pairs.grad_fn();
        }
        on_history(self, "grad_fn");
        if self.is_tape_leaf() {
            return None;
        }
        self.autograd().and_then(crate::autograd::meta::Meta::edge).map(GradFn)
    }

    /// The gradient accumulated in this tensor, with its sizes, dtype and device. `None` before the first backward
    /// pass.
    pub fn grad(&self) -> Option<Tensor> {
        if let Some(pairs) = self.pairs() {
            return pairs.grad().and_then(|gradient| of_pairs(&gradient).ok());
        }
        gradient_owner(self, Access::Read).gradient()
    }

    /// Like [`Tensor::grad`], but records no guard while tracing.
    pub(crate) fn gradient(&self) -> Option<Tensor> {
        self.autograd().and_then(|meta| meta.state().grad.clone())
    }

    /// Replaces the accumulated gradient. `None` clears it.
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
        if let Some(pairs) = self.pairs() {
            return pairs.set_grad(gradient.map(Tensor::as_real));
        }
        gradient_owner(self, Access::Replace).put_gradient(gradient);
        Ok(())
    }

    /// Like [`Tensor::set_grad`] for a gradient of the right type, but records no guard while tracing.
    pub(crate) fn put_gradient(&self, gradient: Option<&Tensor>) {
        if gradient.is_some() || self.autograd().is_some() {
            self.autograd_or_new().state().grad = gradient.cloned();
        }
    }

    /// The ids of the hooks on its own gradient.
    pub(crate) fn hooks(&self) -> Vec<HookId> {
        self.autograd().map(|meta| meta.state().hooks.iter().map(Hook::handle).collect()).unwrap_or_default()
    }

    /// Computes the gradients of this tensor, which has one element, and accumulates them in the leaves it was computed
    /// from.
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
    /// If the tensor has several elements or does not require gradients, or if saved values were freed or written to.
    #[track_caller]
    pub fn backward(&self) -> Result<()> {
        backward(&[self], &[], GradOptions::default())
    }

    /// Like [`Tensor::backward`], starting from `gradient`, which has the shape of this tensor. The tensor can have any
    /// shape.
    ///
    /// # Errors
    /// Same as [`Tensor::backward`], except that several elements are allowed. Also if the gradient has another shape.
    #[track_caller]
    pub fn backward_with(&self, gradient: &Tensor) -> Result<()> {
        backward(&[self], &[Some(gradient)], GradOptions::default())
    }

    /// The same elements without history. Autograd does not notice writes to the result. Prefer [`Tensor::detach`].
    pub fn data(&self) -> Tensor {
        if let Some(data) = self.pairs().and_then(|pairs| Tensor::of_pairs(&pairs.data()).ok()) {
            return data;
        }
        // A number is a value: it has no memory to share, and no history.
        if self.as_number().is_some() {
            return self.clone();
        }
        let data = self.with_own_version();
        if let Some(observer) = observer() {
            observer.on_data(self, &data);
        }
        data
    }

    /// Makes a tensor that is no leaf keep its gradient, so that [`Tensor::grad`] returns it after a backward pass.
    ///
    /// # Errors
    /// If the tensor does not require gradients.
    pub fn retain_grad(&self) -> Result<()> {
        if let Some(pairs) = self.pairs() {
            return pairs.retain_grad();
        }
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

    /// Calls `hook` with the gradient of this tensor when it is computed. A tensor that the hook returns replaces the
    /// gradient.
    ///
    /// # Errors
    /// If the tensor does not require gradients.
    pub fn register_hook(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<HookId> {
        match self.pairs() {
            Some(pairs) => pairs.add_hook(Arc::new(move |gradient| {
                Ok(hook(&of_pairs(gradient)?)?.map(|replacement| replacement.as_real().clone()))
            })),
            None => self.add_hook(Arc::new(hook)),
        }
    }

    fn add_hook(&self, hook: Arc<HookFn>) -> Result<HookId> {
        let Some(edge) = gradient_edge(self)? else {
            let what = "cannot register a hook on a tensor that doesn't require gradient";
            return Err(Error::argument("register_hook", what));
        };
        let hook = Hook::new(hook, false);
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

    /// Removes a hook. Returns whether it existed.
    pub fn remove_hook(&self, id: HookId) -> bool {
        if let Some(pairs) = self.pairs() {
            return pairs.remove_hook(id);
        }
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

    /// Whether this is a view whose base autograd tracks.
    pub fn is_view(&self) -> bool {
        if let Some(pairs) = self.pairs() {
            return pairs.is_view();
        }
        observer().and_then(|observer| observer.has(Property::View, self)).unwrap_or_else(|| self.is_tape_view())
    }

    /// Like [`Tensor::is_view`], but records no guard while tracing.
    pub(crate) fn is_tape_view(&self) -> bool {
        self.view_of().is_some_and(|view| view.is_differentiable)
    }

    /// The base, if this is a view that autograd tracks.
    pub fn base(&self) -> Option<Tensor> {
        on_history(self, "base");
        self.view_of().filter(|view| view.is_differentiable).map(|view| view.base.clone())
    }

    /// Whether this tensor was made in inference mode, so that it stays outside autograd.
    pub fn is_inference(&self) -> bool {
        !self.key_set().has(DispatchKey::ADInplaceOrView) && self.as_number().is_none()
    }
}

/// Notifies the observer that a function asked about the history of a tensor.
fn on_history(tensor: &Tensor, method: &str) {
    if let Some(observer) = observer() {
        observer.on_history(tensor, method);
    }
}
