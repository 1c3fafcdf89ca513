//! Single operators: a row is a call as text, such as `aten::sum.dim_IntList(f32[4096,1024],[1])`.
//!
//! `text` reads it, `values` makes the operands, and `calls` runs it: eagerly or compiled, forward or with gradients.
//! `benches/peers/python/sweep_peer.py` reads the same text for PyTorch. The driver is `scripts/sweep.sh`.

mod calls;
mod text;
mod values;

pub(crate) use calls::Sweep;

use opfuse::dispatch::Dispatcher;
use std::io::{self, Write};

/// Writes the schema of every built-in operator, one a line.
pub(crate) fn list() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for name in Dispatcher::global().operator_names() {
        let operator = Dispatcher::global().find(&name);
        if let Some(schema) = operator.as_ref().and_then(|operator| operator.schema()) {
            writeln!(out, "{schema}")?;
        }
    }
    out.flush()
}
