//! What a tensor tells the transforms, and what it asks them.
//!
//! A trace has to know that a function read a value or asked whether two tensors share memory. A mapped tensor answers
//! for the tensor that it wraps. Tensors, operators and autograd lie below both, so they call the functions of this
//! file. The transforms install one [`Observer`] when the built-in operators are registered, which every trace and
//! `vmap` begins with. Before that, every answer is that of a plain tensor.

use crate::device::Generator;
use crate::error::{Error, Result};
use crate::ir::Scalar;
use crate::tensor::handle::Tensor;
use std::borrow::Cow;
use std::sync::OnceLock;

/// What a function asked of one tensor, to be answered by yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Property {
    /// Whether gradients flow to it.
    RequiresGrad,
    /// Whether no recorded call made it.
    Leaf,
    /// Whether it is a view that autograd knows of.
    View,
}

/// What a function asked of two tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// Whether they are one handle.
    Same,
    /// Whether they lie in one storage.
    Alias,
}

/// What is done with the gradient of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// It is read.
    Read,
    /// Something is added to it.
    Add,
    /// Another one takes its place, or none.
    Replace,
}

/// The transforms, as tensors, operators and autograd see them.
pub(crate) trait Observer: Sync {
    /// The tensor that a wrapper stands for.
    fn physical<'a>(&self, wrapper: &'a Tensor) -> Option<&'a Tensor>;

    /// Whether values have shapes alone on this thread now.
    fn is_abstract(&self) -> bool;

    /// The answer to a question about two tensors, if it may differ between calls of a traced function.
    fn relates(&self, relation: Relation, one: &Tensor, other: &Tensor) -> Option<bool>;

    /// The answer to a question about one tensor, if it may differ between calls of a traced function.
    fn has(&self, property: Property, tensor: &Tensor) -> Option<bool>;

    /// The element of its memory that a tensor begins at.
    fn memory_start(&self, tensor: &Tensor) -> usize;

    /// Called before a value is read.
    fn on_read(&self, tensor: &Tensor, op: &str) -> Result<()>;

    /// A count that follows from sizes, as a plain number.
    fn on_extent(&self, number: &Tensor, count: usize);

    /// The key of random numbers, drawn from a generator.
    fn draw(&self, generator: &Generator, n_counters: u64) -> Result<Tensor>;

    /// Draws random numbers by `draw`, whose argument are the sizes; inside `vmap` with the dims that it maps.
    fn draw_mapped(
        &self,
        op: &str,
        sizes: &[usize],
        draw: &mut dyn FnMut(&[usize]) -> Result<Tensor>,
    ) -> Result<Tensor>;

    /// Called before a function with a derivative of its own is recorded for gradients.
    fn on_function(&self, name: &str) -> Result<()>;

    /// Called where a function asks how a tensor came about.
    fn on_history(&self, tensor: &Tensor, method: &str);

    /// Called before `requires_grad` of a tensor is set.
    fn on_requires_grad(&self, tensor: &Tensor, requires_grad: bool) -> Result<()>;

    /// Called before the gradient of a tensor is touched; gives the tensor that holds the gradient.
    fn on_gradient<'a>(&self, leaf: &'a Tensor, access: Access) -> Cow<'a, Tensor>;

    /// Called before the hooks of a leaf run.
    fn on_hooks(&self, leaf: &Tensor);

    /// Called before a hook is registered; whether it must not be.
    fn refuses_hook(&self, tensor: &Tensor) -> bool;
}

static OBSERVER: OnceLock<&'static dyn Observer> = OnceLock::new();

/// Installs the observer of the process. Later calls change nothing.
pub(crate) fn install(observer: &'static dyn Observer) {
    OBSERVER.get_or_init(|| observer);
}

/// The observer, if there has been anything to observe.
#[inline]
pub(crate) fn observer() -> Option<&'static dyn Observer> {
    OBSERVER.get().copied()
}

/// Whether values have shapes alone on this thread now.
pub(crate) fn is_abstract() -> bool {
    observer().is_some_and(|observer| observer.is_abstract())
}

/// The element of its memory that a tensor begins at. In a trace it is that of the call's input.
pub(crate) fn memory_start(tensor: &Tensor) -> usize {
    observer().map_or_else(|| tensor.array().layout().offset, |observer| observer.memory_start(tensor))
}

/// Called before a value is read: a trace cannot follow what the function does with it.
///
/// # Errors
/// For a mapped tensor; for one without elements, as in an abstract trace or on the meta device.
pub(crate) fn on_read(tensor: &Tensor, op: &str) -> Result<()> {
    if let Some(observer) = observer() {
        observer.on_read(tensor, op)?;
    }
    if tensor.has_data() {
        return Ok(());
    }
    Err(Error::Device {
        op: op.into(),
        what: "Cannot copy out of meta tensor; no data!".into(),
        hint: "meta tensors have shapes only; run the op on a cpu tensor".into(),
    })
}

/// A count that follows from sizes, as a plain number.
///
/// A trace records that it is one, so that kernels take it as an argument and other sizes find the same kernels.
///
/// # Errors
/// If there is no memory.
pub(crate) fn extent(count: usize) -> Result<Tensor> {
    let number = Tensor::number(Scalar::Int(count as i64))?;
    if let Some(observer) = observer() {
        observer.on_extent(&number, count);
    }
    Ok(number)
}
