//! Views of values whose strides here may not be those that PyTorch gave them.
//!
//! A graph calls `view` where the strides of the export allowed it. Results of some operators have other strides here:
//! a convolution of a channels-last input is row-major. Where nothing is written to, a view and a copy are the same to
//! the program, so `reshape`, which copies only where there is no view, takes the place of `view`. In a program that
//! writes, a `view` stays one, and is an error where it cannot be.

use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::operator::Operator;
use crate::error::Result;
use crate::exported::bind::{Block, Call, Source};
use std::sync::Arc;

impl Block {
    /// Calls `reshape` in place of `view` if the program does not write to any value.
    pub(super) fn relax_views(&mut self) -> Result<()> {
        if !self.writes() {
            self.reshape_views(&Dispatcher::global().find_schema("aten::reshape", "")?);
        }
        Ok(())
    }

    fn writes(&self) -> bool {
        self.steps.iter().any(|step| {
            let writes = match &step.call {
                Call::Operator(operator) => operator.schema().is_some_and(|schema| {
                    schema.arguments.iter().any(|argument| argument.alias.as_ref().is_some_and(|alias| alias.is_write))
                }),
                Call::Number(_) | Call::Control(_) | Call::Map(_) => false,
            };
            writes || step.arguments.iter().any(|(_, source)| matches!(source, Source::Block(inner) if inner.writes()))
        })
    }

    fn reshape_views(&mut self, reshape: &Operator) {
        for step in &mut self.steps {
            let is_view = matches!(&step.call, Call::Operator(operator) if operator.name().to_string() == "aten::view");
            if is_view {
                step.call = Call::Operator(reshape.clone());
            }
            for (name, source) in &mut step.arguments {
                if is_view && name == "size" {
                    *name = "shape".into();
                }
                // A block has one owner before the program is complete.
                if let Source::Block(inner) = source
                    && let Some(inner) = Arc::get_mut(inner)
                {
                    inner.reshape_views(reshape);
                }
            }
        }
    }
}
