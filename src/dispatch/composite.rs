//! Composite operators as methods see them.
//!
//! A method that is a composite operator calls it through the dispatcher, not its decomposition directly: a mode logs
//! the call itself, autocast casts its operands once, and a kernel that somebody registered for it is found.

use crate::dispatch::builtins::load;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::operator::Operator;
use crate::dispatch::signature::{Args, Returns};
use crate::error::{Error, Result};
use std::sync::OnceLock;

/// A composite operator of the `aten` namespace by name, looked up at its first call.
pub(crate) struct Composite {
    name: &'static str,
    operator: OnceLock<Result<Operator>>,
}

impl Composite {
    /// The operator of that full name, `aten::matmul`.
    pub(crate) const fn new(name: &'static str) -> Composite {
        Composite { name, operator: OnceLock::new() }
    }

    /// Calls it; the arguments are those of its schema.
    pub(crate) fn call<'a, A: Args<'a>, R: Returns>(&self, arguments: A) -> Result<R> {
        let operator = self.operator.get_or_init(|| load().and_then(|()| Dispatcher::global().lookup(self.name)));
        operator.as_ref().map_err(Error::clone)?.call(arguments)
    }
}
