//! Methods of operators that are found by name: other names, and operators whose schemas are not written as statics.
//!
//! [`Named`] holds the name, and after the first call the handle. The registry is asked once, not at each call.

use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::operator::Operator;
use crate::dispatch::signature::{Args, Returns};
use crate::error::Result;
use crate::ops::dims::Dims;
use std::sync::OnceLock;

/// An operator of the `aten` namespace, by its name.
pub(crate) struct Named {
    name: &'static str,
    operator: OnceLock<Operator>,
}

impl Named {
    /// The operator of this name, with its overload: `greater.Tensor`.
    pub(crate) const fn new(name: &'static str) -> Named {
        Named { name, operator: OnceLock::new() }
    }

    /// Calls the operator with the arguments of its schema.
    ///
    /// # Errors
    /// If the kernel fails.
    #[track_caller]
    pub(crate) fn call<'a, A: Args<'a>, R: Returns>(&self, arguments: A) -> Result<R> {
        self.found()?.call(arguments)
    }

    fn found(&self) -> Result<&Operator> {
        if let Some(operator) = self.operator.get() {
            return Ok(operator);
        }
        let found = Dispatcher::global().lookup(&format!("aten::{}", self.name))?;
        Ok(self.operator.get_or_init(|| found))
    }
}

/// Dims, so that a slice of them can be taken in an argument.
pub(crate) fn dims_of(dims: impl Into<Dims>) -> Dims {
    dims.into()
}

/// Dims as an optional argument, where none means all.
pub(crate) fn some(dims: &Dims) -> Option<&[i64]> {
    Some(dims.as_slice()).filter(|dims| !dims.is_empty())
}

/// Methods that call an operator by its name.
///
/// ```text
/// /// Documentation of the method.
/// method(self, argument: Type) -> Result "operator.overload" (self, argument);
/// ```
macro_rules! named_methods {
    ($(
        $(#[$doc:meta])*
        $name:ident($this:ident $(, $argument:ident: $ty:ty)*) -> $result:ty, $operator:literal ($($value:expr),*);
    )*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&$this $(, $argument: $ty)*) -> $crate::error::Result<$result> {
            static OPERATOR: $crate::ops::named::Named = $crate::ops::named::Named::new($operator);
            OPERATOR.call(($($value,)*))
        }
    )*};
}
pub(crate) use named_methods;

/// Functions of [`Tensor`](crate::Tensor) without `self`, as in [`named_methods`].
macro_rules! named_functions {
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $ty:ty),*) -> $result:ty, $operator:literal ($($value:expr),*);
    )*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name($($argument: $ty),*) -> $crate::error::Result<$result> {
            static OPERATOR: $crate::ops::named::Named = $crate::ops::named::Named::new($operator);
            OPERATOR.call(($($value,)*))
        }
    )*};
}
pub(crate) use named_functions;
