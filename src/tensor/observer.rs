//! Callbacks from tensors to the transforms.
//!
//! A trace must know when a function reads a value or asks whether two tensors share memory. A mapped tensor answers
//! for the tensor that it wraps. Tensors, operators and autograd lie below the transforms, so they call the functions
//! of this file. The transforms install one [`Observer`] when the built-in operators are registered. Every trace and
//! `vmap` triggers that registration. Without an observer every tensor is a plain tensor.

use crate::device::Generator;
use crate::error::{Error, Result};
use crate::ir::Scalar;
use crate::tensor::handle::Tensor;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// A question about one tensor, whose answer is yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Property {
    /// Does it require gradients?
    RequiresGrad,
    /// Is it a leaf?
    Leaf,
    /// Is it a view that autograd tracks?
    View,
}

/// A question about two tensors, whose answer is yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// Are they clones of one handle?
    Same,
    /// Do they share a storage?
    Alias,
}

/// An access to the gradient of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The gradient is read.
    Read,
    /// A gradient is added to it.
    Add,
    /// The gradient is replaced or cleared.
    Replace,
}

/// A question that can be asked again later.
pub(crate) type Question = Arc<dyn Fn() -> bool + Send + Sync>;

/// What the transforms do on these callbacks.
pub(crate) trait Observer: Sync {
    /// The tensor that a wrapper wraps.
    fn physical<'a>(&self, wrapper: &'a Tensor) -> Option<&'a Tensor>;

    /// Whether this thread is in an abstract trace, where tensors have no values.
    fn is_abstract(&self) -> bool;

    /// Whether this thread is in an abstract trace that began after the recorded call of this number.
    fn is_abstract_since(&self, call: u64) -> bool;

    /// The answer to a question about two tensors, if a trace must decide it.
    fn relates(&self, relation: Relation, one: &Tensor, other: &Tensor) -> Option<bool>;

    /// The answer to a question about one tensor, if a trace must decide it.
    fn has(&self, property: Property, tensor: &Tensor) -> Option<bool>;

    /// The storage offset of a tensor, in elements.
    fn memory_start(&self, tensor: &Tensor) -> usize;

    /// Called before the value of a tensor is read.
    fn on_read(&self, tensor: &Tensor, op: &str) -> Result<()>;

    /// Called for a plain number that was computed from sizes.
    fn on_extent(&self, number: &Tensor, count: usize);

    /// Draws a key for random numbers from a generator.
    fn draw(&self, generator: &Generator, n_counters: u64) -> Result<Tensor>;

    /// Draws random numbers of the given sizes by `draw`. Inside `vmap` the mapped dims are added to the sizes.
    fn draw_mapped(
        &self,
        op: &str,
        sizes: &[usize],
        draw: &mut dyn FnMut(&[usize]) -> Result<Tensor>,
    ) -> Result<Tensor>;

    /// Called before a function with a derivative of its own is recorded on the tape.
    fn on_function(&self, name: &str) -> Result<()>;

    /// Called for a new handle of a tensor, which has another history.
    fn on_handle(&self, tensor: &Tensor, handle: &Tensor);

    /// Called for a tensor whose gradient a function asks for.
    fn on_wanted(&self, tensor: &Tensor);

    /// Called for a leaf that a backward pass for other tensors reaches.
    fn on_reached(&self, leaf: &Tensor);

    /// Called when a function asks about the history of a tensor.
    fn on_history(&self, tensor: &Tensor, method: &str);

    /// Called for an alias without history that has its own version.
    fn on_data(&self, tensor: &Tensor, data: &Tensor);

    /// Called before `requires_grad` of a tensor is set.
    fn on_requires_grad(&self, tensor: &Tensor, requires_grad: bool) -> Result<()>;

    /// Called before an access to the gradient of a tensor. Returns the tensor that holds the gradient.
    fn on_gradient<'a>(&self, leaf: &'a Tensor, access: Access) -> Cow<'a, Tensor>;

    /// Called before the hooks of a leaf run.
    fn on_hooks(&self, leaf: &Tensor);

    /// Whether nothing but the caller refers to a tensor or its elements, if a trace must decide it.
    fn is_alone(&self, tensor: &Tensor) -> Option<bool>;

    /// Called when a backward pass runs through the recorded call of this number, which is older than the trace. It can
    /// be asked whether the call has no hooks.
    fn on_older_call(&self, call: u64, has_no_hooks: Question);

    /// Called before a hook is registered. Returns whether it must not be.
    fn refuses_hook(&self, tensor: &Tensor) -> bool;
}

static OBSERVER: OnceLock<&'static dyn Observer> = OnceLock::new();

/// Installs the observer of the process. Only the first call has an effect.
pub(crate) fn install(observer: &'static dyn Observer) {
    OBSERVER.get_or_init(|| observer);
}

/// The observer, if it is installed.
#[inline]
pub(crate) fn observer() -> Option<&'static dyn Observer> {
    OBSERVER.get().copied()
}

/// Whether this thread is in an abstract trace, where tensors have no values.
pub(crate) fn is_abstract() -> bool {
    observer().is_some_and(|observer| observer.is_abstract())
}

/// The storage offset of a tensor, in elements. In a trace it is that of the call's input.
pub(crate) fn memory_start(tensor: &Tensor) -> usize {
    observer().map_or_else(|| tensor.array().layout().offset, |observer| observer.memory_start(tensor))
}

/// Called before the value of a tensor is read. A trace ends here, because it cannot follow the value.
///
/// # Errors
/// If the tensor is mapped, or if it has no elements, as in an abstract trace or on the meta device.
pub(crate) fn on_read(tensor: &Tensor, op: &str) -> Result<()> {
    announce_read(tensor, op)?;
    need_data(tensor, op)
}

/// The first half of [`on_read`], for a tensor whose value a kernel may know.
///
/// # Errors
/// If the tensor is mapped, or if a trace allows no reads.
pub(crate) fn announce_read(tensor: &Tensor, op: &str) -> Result<()> {
    observer().map_or(Ok(()), |observer| observer.on_read(tensor, op))
}

/// Checks that a tensor has elements.
///
/// # Errors
/// If it has none, as in an abstract trace or on the meta device.
pub(crate) fn need_data(tensor: &Tensor, op: &str) -> Result<()> {
    if tensor.has_data() {
        return Ok(());
    }
    Err(Error::Device {
        op: op.into(),
        what: "Cannot copy out of meta tensor; no data!".into(),
        hint: "meta tensors have shapes only; run the op on a cpu tensor".into(),
    })
}

/// A plain number that was computed from sizes.
///
/// A trace records it as an extent, which kernels take as an argument. So other sizes reuse the same kernels.
///
/// # Errors
/// If there is not enough memory.
pub(crate) fn extent(count: usize) -> Result<Tensor> {
    let number = Tensor::number(Scalar::Int(count as i64))?;
    if let Some(observer) = observer() {
        observer.on_extent(&number, count);
    }
    Ok(number)
}
