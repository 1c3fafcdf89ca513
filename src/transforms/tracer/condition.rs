//! Conditions of a trace: guards on tensors from outside the function, beyond the types of inputs.

use crate::autograd::HookId;
use crate::device::Device;
use crate::error::{NotCaptured, Result};
use crate::ir::shape::Layout;
use crate::ir::{DType, TensorType};
use crate::runtime::SharedLayout;
use crate::tensor::handle::Tensor;
use crate::tensor::observer::Question;
pub use crate::tensor::observer::{Property, Relation};
use std::fmt;

/// A tensor from outside the traced function.
#[derive(Clone)]
pub enum Outside {
    /// The input at this position.
    Given(usize),
    /// A captured tensor.
    Captured(Tensor),
}

impl Outside {
    /// The tensor, in a call with these inputs.
    pub fn of<'a>(&'a self, inputs: &[&'a Tensor]) -> &'a Tensor {
        match self {
            Outside::Given(index) => inputs[*index],
            Outside::Captured(tensor) => tensor,
        }
    }

    /// Whether both are the same input or the same tensor.
    pub fn is_same(&self, other: &Outside) -> bool {
        match (self, other) {
            (Outside::Given(one), Outside::Given(other)) => one == other,
            (Outside::Captured(one), Outside::Captured(other)) => one.id() == other.id(),
            (Outside::Given(_) | Outside::Captured(_), _) => false,
        }
    }
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outside::Given(index) => write!(f, "input {index}"),
            Outside::Captured(tensor) => write!(f, "a captured tensor ({})", tensor.ty()),
        }
    }
}

/// The type of a gradient that a function reads. It is a guard.
#[derive(Clone)]
pub struct GradientType {
    dtype: DType,
    layout: SharedLayout,
    pub(super) device: Device,
}

impl GradientType {
    /// The type of a gradient, or why the gradient cannot be an input of a graph.
    pub(super) fn of(gradient: &Tensor) -> std::result::Result<GradientType, NotCaptured> {
        match () {
            () if gradient.may_require_grad() => Err(NotCaptured::GradientWithHistory),
            () if !gradient.has_data() => Err(NotCaptured::GradientWithoutData),
            () if gradient.as_number().is_some() => Err(NotCaptured::GradientIsNumber),
            () => {
                let layout = gradient.shared_layout().clone();
                Ok(GradientType { dtype: gradient.dtype(), layout, device: gradient.device() })
            }
        }
    }

    /// A tensor of this type without elements.
    pub(super) fn placeholder(&self) -> Result<Tensor> {
        let Layout { sizes, strides, .. } = &*self.layout;
        let ty = TensorType { dtype: self.dtype, sizes: sizes.clone(), strides: strides.clone(), number: false };
        Tensor::abstracted(&ty, self.device, None)
    }

    /// Whether a gradient has this type.
    pub(super) fn holds(&self, gradient: &Tensor) -> bool {
        self.dtype == gradient.dtype()
            && self.layout.has_extents_of(gradient.shared_layout())
            && self.device == gradient.device()
            && GradientType::of(gradient).is_ok()
    }
}

impl fmt::Display for GradientType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layout { sizes, strides, .. } = &*self.layout;
        write!(f, "of {} {sizes:?}, strides {strides:?}, on {}", self.dtype, self.device)
    }
}

/// A guard of a trace.
#[derive(Clone)]
pub enum Condition {
    /// Whether the tensor has the property.
    Is(Property, Outside, bool),
    /// Whether the tensors are related.
    Are(Relation, Outside, Outside, bool),
    /// The storage offset of the input.
    Begins(usize, usize),
    /// The leaf has no gradient.
    NoGradient(Outside),
    /// The leaf has these hooks.
    Hooks(Outside, Vec<HookId>),
    /// The recorded call of this number, from before the trace, has no hooks.
    Unhooked(u64, Question),
}

impl Condition {
    /// Whether the condition holds for these inputs.
    pub fn holds(&self, inputs: &[&Tensor]) -> bool {
        match self {
            Condition::Is(property, tensor, answer) => property.of(tensor.of(inputs)) == *answer,
            Condition::Are(relation, one, other, answer) => relation.of(one.of(inputs), other.of(inputs)) == *answer,
            Condition::Begins(index, start) => inputs[*index].array().layout().offset == *start,
            Condition::NoGradient(leaf) => leaf.of(inputs).gradient().is_none(),
            Condition::Hooks(leaf, hooks) => leaf.of(inputs).hooks() == *hooks,
            Condition::Unhooked(_, has_no_hooks) => has_no_hooks(),
        }
    }

    /// Separates the conditions on `requires_grad` of captured tensors from all others.
    pub(crate) fn split_requires_grad(conditions: Vec<Condition>) -> (Vec<(Tensor, bool)>, Vec<Condition>) {
        let (mut flows, mut others) = (Vec::new(), Vec::new());
        for condition in conditions {
            match condition {
                Condition::Is(Property::RequiresGrad, Outside::Captured(tensor), flag) => flows.push((tensor, flag)),
                other => others.push(other),
            }
        }
        (flows, others)
    }

    pub(super) fn is_same(&self, other: &Condition) -> bool {
        match (self, other) {
            (Condition::Is(one, of, _), Condition::Is(other, of_other, _)) => one == other && of.is_same(of_other),
            (Condition::Are(one, a, b, _), Condition::Are(other, c, d, _)) => {
                one == other && a.is_same(c) && b.is_same(d)
            }
            (Condition::Begins(one, _), Condition::Begins(other, _)) => one == other,
            (Condition::NoGradient(one), Condition::NoGradient(other)) => one.is_same(other),
            (Condition::Hooks(one, _), Condition::Hooks(other, _)) => one.is_same(other),
            (Condition::Unhooked(one, _), Condition::Unhooked(other, _)) => one == other,
            (
                Condition::Is(..)
                | Condition::Are(..)
                | Condition::Begins(..)
                | Condition::NoGradient(_)
                | Condition::Hooks(..)
                | Condition::Unhooked(..),
                _,
            ) => false,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |is: &bool| if *is { "" } else { " not" };
        match self {
            Condition::Is(Property::RequiresGrad, of, true) => write!(f, "{of} requires gradients"),
            Condition::Is(Property::RequiresGrad, of, false) => write!(f, "{of} requires no gradients"),
            Condition::Is(Property::Leaf, of, is) => write!(f, "{of} is{} a leaf", not(is)),
            Condition::Is(Property::View, of, is) => write!(f, "{of} is{} a view", not(is)),
            Condition::Are(Relation::Same, one, other, is) => {
                write!(f, "{one} and {other} are{} the same tensor", not(is))
            }
            Condition::Are(Relation::Alias, one, other, true) => write!(f, "{one} and {other} share a storage"),
            Condition::Are(Relation::Alias, one, other, false) => write!(f, "{one} and {other} share no storage"),
            Condition::Begins(index, start) => write!(f, "input {index} begins at element {start} of its memory"),
            Condition::NoGradient(of) => write!(f, "{of} has no gradient"),
            Condition::Hooks(of, hooks) if hooks.is_empty() => write!(f, "{of} has no hooks"),
            Condition::Hooks(of, _) => write!(f, "{of} has the hooks it had"),
            Condition::Unhooked(..) => f.write_str("a call that computed a captured tensor has no hooks"),
        }
    }
}

impl Property {
    pub(super) fn of(self, tensor: &Tensor) -> bool {
        match self {
            Property::RequiresGrad => tensor.may_require_grad(),
            Property::Leaf => tensor.is_tape_leaf(),
            Property::View => tensor.is_tape_view(),
        }
    }
}

impl Relation {
    pub(super) fn of(self, one: &Tensor, other: &Tensor) -> bool {
        match self {
            Relation::Same => one.is_handle_of(other),
            Relation::Alias => one.has_storage_of(other),
        }
    }
}

/// An input of the traced function.
pub(super) struct Given {
    /// The handle that the function got.
    pub(super) handle: Tensor,
    /// The tensor that the caller passed.
    pub(super) original: Tensor,
}
