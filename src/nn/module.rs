//! Modules: structs whose tensors have names and roles.
//!
//! A module shows its tensors to a visitor, in the order of its fields, and all else follows from that: parameters,
//! buffers, state dicts, conversions, copies. `#[derive(Module)]` writes the visits. Names are those of PyTorch: the
//! fields and positions that lead to a tensor.
//!
//! A tensor that is in two places is one tensor: it is listed once among the parameters, and conversions and copies
//! keep it one. State dicts hold it under each of its names.

use super::state;
use crate::autograd::no_grad;
use crate::device::Device;
use crate::error::Result;
use crate::formats::StateDict;
use crate::ir::DType;
use crate::tensor::Tensor;
pub use opfuse_derive::Module;
use std::collections::{HashMap, HashSet};
use std::fmt::{Display, Write};

/// What a tensor is to its module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It is trained.
    Parameter,
    /// It is saved, and not trained: running statistics, for example.
    Buffer,
    /// It is neither trained nor saved: a table that is made again, for example.
    Transient,
}

/// Sees the tensors of a module.
pub struct Visitor<'a> {
    path: String,
    role: Role,
    see: &'a mut dyn FnMut(&str, Role, &Tensor),
}

/// Sees the tensors and flags of a module, and may change them.
pub struct VisitorMut<'a> {
    path: String,
    role: Role,
    see: &'a mut dyn FnMut(PartMut<'_>),
}

/// A part of a module that may change.
pub enum PartMut<'a> {
    /// A tensor.
    Tensor {
        /// Its dotted name.
        name: &'a str,
        /// What it is to its module.
        role: Role,
        /// Its place.
        tensor: &'a mut Tensor,
    },
    /// The flag that is on in training.
    Training(&'a mut bool),
}

macro_rules! paths {
    ($($visitor:ident $visit:ident $($mutable:ident)?;)*) => {$(
        impl $visitor<'_> {
            /// Visits a field: its tensors have this name, and the role, unless modules inside say otherwise.
            pub fn field(&mut self, name: &str, role: Role, part: &$($mutable)? dyn Module) {
                let before = std::mem::replace(&mut self.role, role);
                self.element(&name, part);
                self.role = before;
            }

            /// Visits an element of a list, which has the role of the list.
            pub fn element(&mut self, name: &dyn Display, part: &$($mutable)? dyn Module) {
                let len = self.path.len();
                let dot = if len == 0 { "" } else { "." };
                // Text never fails to be appended to.
                let _ = write!(self.path, "{dot}{name}");
                part.$visit(self);
                self.path.truncate(len);
            }
        }
    )*};
}
paths! {
    Visitor visit;
    VisitorMut visit_mut mut;
}

impl VisitorMut<'_> {
    /// Visits the flag that is on in training.
    pub fn training(&mut self, flag: &mut bool) {
        (self.see)(PartMut::Training(flag));
    }
}

/// A part of a network that owns its tensors: a layer, a model, a list of layers. Derive it with
/// `#[derive(Clone, Module)]`.
///
/// ```
/// use opfuse::nn::{Forward, Linear, Module};
/// use opfuse::{Result, Tensor};
///
/// #[derive(Clone, Module)]
/// struct Mlp {
///     hidden: Linear,
///     output: Linear,
/// }
///
/// impl Mlp {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         self.output.forward(&self.hidden.forward(x)?.relu()?)
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let model = Mlp { hidden: Linear::new(8, 16)?, output: Linear::new(16, 2)? };
/// let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["hidden.weight", "hidden.bias", "output.weight", "output.bias"]);
/// let copy = model.deep_clone()?;
/// copy.load_state_dict(&model.state_dict())?;
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no module",
    label = "its tensors are not known",
    note = "write `#[derive(Module)]` on it, or `#[module(skip)]` on a field that holds no tensor"
)]
pub trait Module: Send + Sync {
    /// Shows the tensors, in order.
    fn visit(&self, visitor: &mut Visitor<'_>);

    /// Shows the tensors in the same order, to be replaced, and the flags of training.
    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>);

    /// The parameters and their names, each once.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        once(named(self, |role| role == Role::Parameter))
    }

    /// The parameters, each once.
    fn parameters(&self) -> Vec<Tensor> {
        self.named_parameters().into_iter().map(|(_, tensor)| tensor).collect()
    }

    /// The buffers and their names, each once: also those that are not saved.
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        once(named(self, |role| role != Role::Parameter))
    }

    /// Parameters and saved buffers by name. The tensors are those of the module, not copies.
    fn state_dict(&self) -> StateDict {
        named(self, |role| role != Role::Transient).into_iter().collect()
    }

    /// Copies the tensors of `from` into those of the module, converted to their dtypes and devices.
    ///
    /// # Errors
    /// If names are missing, if there are others, or if sizes differ; all of these are in one message. Nothing is
    /// written then.
    fn load_state_dict(&self, from: &StateDict) -> Result<()> {
        state::load("load_state_dict", &self.state_dict(), from)
    }

    /// Switches to training: dropout drops, and batch statistics are used.
    fn train(&mut self) {
        set_training(self, true);
    }

    /// Switches to evaluation.
    fn eval(&mut self) {
        set_training(self, false);
    }

    /// Moves the tensors to a device, and converts floating ones to a dtype.
    ///
    /// The module then has other tensors, so make the optimizer afterwards.
    ///
    /// # Errors
    /// If there is no such device, not enough memory, or if the dtype is not floating. The module stays as it was.
    fn to(&mut self, device: Device, dtype: DType) -> Result<()> {
        if !dtype.is_float() {
            return Err(crate::error::Error::argument("to", format!("{dtype} is not floating; modules have floats")));
        }
        replace(self, &mut |tensor| {
            let here = tensor.to_device(device)?;
            if here.dtype().is_float() { here.to_dtype(dtype) } else { Ok(here) }
        })
    }

    /// Clears the gradients of the parameters.
    ///
    /// # Errors
    /// If a gradient cannot be cleared.
    fn zero_grad(&self) -> Result<()> {
        self.parameters().iter().try_for_each(|tensor| tensor.set_grad(None))
    }

    /// A copy with tensors of its own. `clone()` shares them.
    ///
    /// # Errors
    /// If there is not enough memory.
    fn deep_clone(&self) -> Result<Self>
    where
        Self: Clone + Sized,
    {
        let mut copy = self.clone();
        replace(&mut copy, &mut |tensor| tensor.copy())?;
        Ok(copy)
    }
}

/// The tensors with their names, in order.
fn named<M: Module + ?Sized>(module: &M, wanted: impl Fn(Role) -> bool) -> Vec<(String, Tensor)> {
    let mut all = Vec::new();
    let mut see = |name: &str, role: Role, tensor: &Tensor| {
        if wanted(role) {
            all.push((name.to_owned(), tensor.clone()));
        }
    };
    module.visit(&mut Visitor { path: String::new(), role: Role::Parameter, see: &mut see });
    all
}

fn once(mut all: Vec<(String, Tensor)>) -> Vec<(String, Tensor)> {
    let mut seen = HashSet::new();
    all.retain(|(_, tensor)| seen.insert(tensor.id()));
    all
}

fn set_training<M: Module + ?Sized>(module: &mut M, training: bool) {
    let mut see = |part: PartMut<'_>| {
        if let PartMut::Training(flag) = part {
            *flag = training;
        }
    };
    module.visit_mut(&mut VisitorMut { path: String::new(), role: Role::Parameter, see: &mut see });
}

/// Replaces each tensor, once all new ones are there. A tensor in two places gets one that is in both.
fn replace<M: Module + ?Sized>(module: &mut M, new: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<()> {
    let mut tensors: HashMap<u64, Tensor> = HashMap::new();
    for (_, old) in once(named(module, |_| true)) {
        let _unrecorded = no_grad();
        let mut tensor = new(&old)?;
        if old.requires_grad() && !tensor.is_same(&old) {
            if !tensor.is_leaf() {
                tensor = tensor.detach()?;
            }
            tensor.set_requires_grad(true)?;
        }
        tensors.insert(old.id(), tensor);
    }
    let mut see = |part: PartMut<'_>| {
        if let PartMut::Tensor { tensor, .. } = part
            && let Some(new) = tensors.get(&tensor.id())
        {
            *tensor = new.clone();
        }
    };
    module.visit_mut(&mut VisitorMut { path: String::new(), role: Role::Parameter, see: &mut see });
    Ok(())
}

/// A module from one tensor to one. [`Sequential`](super::Sequential) chains them.
pub trait Forward: Module + CloneForward {
    /// The output for an input.
    ///
    /// # Errors
    /// If sizes or dtypes do not fit.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor>;
}

/// Clones of `Box<dyn Forward>`. Every [`Forward`] that is `Clone` has it.
pub trait CloneForward {
    /// A clone, which shares the tensors.
    fn clone_boxed(&self) -> Box<dyn Forward>;
}

impl<M: Forward + Clone + 'static> CloneForward for M {
    fn clone_boxed(&self) -> Box<dyn Forward> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Forward> {
    fn clone(&self) -> Self {
        (**self).clone_boxed()
    }
}

impl Module for Tensor {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (visitor.see)(&visitor.path, visitor.role, self);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        (visitor.see)(PartMut::Tensor { name: &visitor.path, role: visitor.role, tensor: self });
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (**self).visit(visitor);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        (**self).visit_mut(visitor);
    }
}

impl<M: Module> Module for Option<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.iter().for_each(|part| part.visit(visitor));
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        self.iter_mut().for_each(|part| part.visit_mut(visitor));
    }
}

macro_rules! lists {
    ($([$($generic:tt)*] $ty:ty;)*) => {$(
        impl<$($generic)*> Module for $ty {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                self.iter().enumerate().for_each(|(index, part)| visitor.element(&index, part));
            }
            fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
                self.iter_mut().enumerate().for_each(|(index, part)| visitor.element(&index, part));
            }
        }
    )*};
}
lists! {
    [M: Module] Vec<M>;
    [M: Module, const N: usize] [M; N];
}

/// Types without tensors.
macro_rules! plain {
    ($($ty:ty),* $(,)?) => {$(
        impl Module for $ty {
            fn visit(&self, _: &mut Visitor<'_>) {}
            fn visit_mut(&mut self, _: &mut VisitorMut<'_>) {}
        }
    )*};
}
plain!((), bool, u8, u32, u64, usize, i32, i64, f32, f64, String, &'static str, DType, Device);
plain!(crate::ops::Dims, super::Convolution, super::ConvTranspose, super::MaxPool, super::AvgPool);
plain!(super::Interpolation, super::Reduction);
