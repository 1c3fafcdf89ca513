//! Composite operators as methods call them.
//!
//! A method of a composite operator calls it through the dispatcher, and not its decomposition directly. So a mode logs
//! the call itself, autocast casts its operands once, and a kernel that a user registered for it is found.

use crate::dispatch::builtins::load;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::operator::Operator;
use crate::dispatch::signature::{Args, Returns};
use crate::error::{Error, Result};
use std::sync::OnceLock;

/// A composite operator, looked up by name at its first call.
pub(crate) struct Composite {
    name: &'static str,
    operator: OnceLock<Result<Operator>>,
}

impl Composite {
    /// The operator with this full name, such as `aten::matmul`.
    pub(crate) const fn new(name: &'static str) -> Composite {
        Composite { name, operator: OnceLock::new() }
    }

    /// Calls the operator with the arguments of its schema.
    pub(crate) fn call<'a, A: Args<'a>, R: Returns>(&self, arguments: A) -> Result<R> {
        let operator = self.operator.get_or_init(|| load().and_then(|()| Dispatcher::global().lookup(self.name)));
        operator.as_ref().map_err(Error::clone)?.call(arguments)
    }
}
