//! Composite operators, each declared once.
//!
//! A composite consists of calls of other operators. Its static holds the schema, the forms that follow from it, and,
//! once its subject is registered, the operator's handle:
//!
//! ```text
//! static CELU: Composite = Composite::new("celu(Tensor self, Scalar alpha=1.0) -> Tensor").with_writes();
//!
//! library.composite(&CELU, celu)?;         in `register`: the schema, its decomposition, `celu_` and `celu.out`
//! CELU.call((self, alpha.into()))          in the method
//! ```
//!
//! A method calls its operator through the dispatcher, and not its decomposition directly. So a mode logs the call
//! itself, autocast converts its operands once, and a kernel that a user registered for it is found. An operator
//! without a method needs no static: `library.def_kernel` takes its schema.

use crate::dispatch::builtins::load;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::dispatch::signature::{Args, Returns};
use crate::dispatch::{IntoKernel, Kernel};
use crate::error::{Error, Result};
use crate::ops::{view_forms, written_forms};
use crate::tensor::handle::Tensor;
use std::sync::OnceLock;

/// A composite operator of the `aten` namespace.
pub(crate) struct Composite {
    schema: &'static str,
    forms: Forms,
    operator: OnceLock<Operator>,
    in_place: OnceLock<Operator>,
}

/// The forms that follow from an operator.
struct Forms {
    /// `x_` and `x.out`. Holds the overload of `x_` if it differs from that of `x`.
    writes: Option<Option<&'static str>>,
    /// For a view: `x_copy`.
    copy: bool,
    /// For a view: `x_`, which is an error if the shape would change.
    view_in_place: bool,
}

impl Composite {
    /// The operator of this schema, without further forms.
    pub(crate) const fn new(schema: &'static str) -> Composite {
        let forms = Forms { writes: None, copy: false, view_in_place: false };
        Composite { schema, forms, operator: OnceLock::new(), in_place: OnceLock::new() }
    }

    /// Adds the forms `x_` and `x.out`. The result must have the sizes of `self`.
    pub(crate) const fn with_writes(mut self) -> Composite {
        self.forms.writes = Some(None);
        self
    }

    /// Like [`Composite::with_writes`], with another overload name for `x_`.
    pub(crate) const fn with_writes_as(mut self, overload: &'static str) -> Composite {
        self.forms.writes = Some(Some(overload));
        self
    }

    /// Adds the form `x_copy` to a view, which returns a copy.
    pub(crate) const fn with_copy(mut self) -> Composite {
        self.forms.copy = true;
        self
    }

    /// Adds the form `x_` to a view, which is an error if the shape would change.
    pub(crate) const fn with_view_in_place(mut self) -> Composite {
        self.forms.view_in_place = true;
        self
    }

    /// The name without namespace and overload.
    pub(crate) fn name(&self) -> &'static str {
        self.schema.split(['.', '(']).next().unwrap_or(self.schema)
    }

    /// Calls the operator with the arguments of its schema.
    ///
    /// # Errors
    /// If the kernel fails.
    #[track_caller]
    pub(crate) fn call<'a, A: Args<'a>, R: Returns>(&self, arguments: A) -> Result<R> {
        self.registered(&self.operator)?.call(arguments)
    }

    /// Calls `x_`, which writes the result to the first argument.
    ///
    /// # Errors
    /// If the kernel fails.
    #[track_caller]
    pub(crate) fn call_in_place<'a, A: Args<'a>>(&self, arguments: A) -> Result<()> {
        self.registered(&self.in_place)?.call::<_, Tensor>(arguments).map(|_| ())
    }

    /// Whether a call with these keys of tensors reaches the crate's own decomposition and nothing before it: no mode,
    /// no kernel from outside, no transform. A trace does not count.
    pub(crate) fn is_own(&self, arguments: KeySet) -> Result<bool> {
        let operator = self.registered(&self.operator)?;
        let keys = operator.call_key_set(arguments) - KeySet::of(DispatchKey::Tracer);
        Ok(operator.kernel(keys).is_some_and(Kernel::is_own))
    }

    fn registered<'a>(&self, operator: &'a OnceLock<Operator>) -> Result<&'a Operator> {
        if operator.get().is_none() {
            load()?;
        }
        operator.get().ok_or_else(|| Error::Internal { message: format!("{} is not registered", self.schema) })
    }
}

impl Library {
    /// Defines a composite by its decomposition, with the forms that follow from it.
    ///
    /// # Errors
    /// If one of them is defined already, or if the signature of the kernel differs from the schema.
    pub(crate) fn composite<M>(
        &mut self,
        composite: &'static Composite,
        kernel: impl IntoKernel<M>,
    ) -> Result<&mut Self> {
        self.define_composite(composite, kernel.into_kernel(), None)
    }

    /// Like [`Library::composite`], where `x_` has a kernel of its own, which touches only the elements that it writes.
    ///
    /// # Errors
    /// Same as [`Library::composite`].
    pub(crate) fn composite_and_in_place<M, N>(
        &mut self,
        composite: &'static Composite,
        kernel: impl IntoKernel<M>,
        in_place: impl IntoKernel<N>,
    ) -> Result<&mut Self> {
        self.define_composite(composite, kernel.into_kernel(), Some(in_place.into_kernel()))
    }

    fn define_composite(
        &mut self,
        composite: &'static Composite,
        kernel: Kernel,
        in_place: Option<Kernel>,
    ) -> Result<&mut Self> {
        let operator = self.def_composite(composite.schema, kernel.own())?;
        let Forms { writes, copy, view_in_place } = composite.forms;
        if let Some(overload) = writes {
            let in_place = written_forms::define(self, &operator, overload, in_place)?;
            composite.in_place.get_or_init(|| in_place);
        }
        if copy {
            view_forms::define_copy(self, &operator)?;
        }
        if view_in_place {
            view_forms::define_in_place(self, &operator, &operator.name().overload)?;
        }
        composite.operator.get_or_init(|| operator);
        Ok(self)
    }
}
