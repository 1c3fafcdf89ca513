//! Calls that look into the program of a compiled function, such as one that counts bytes.

use super::compiled::{Compiled, other_outputs};
use super::entry::Entry;
use super::options::Stance;
use super::panics::guarded;
use super::program::Program;
use crate::eager::numerics;
use crate::error::{Error, Result};
use crate::runtime::Traffic;
use crate::tensor::handle::Tensor;
use crate::tensor::structure::Flat;
use crate::transforms::function::{Function, Inputs, TensorRefs};

impl<A, F: Function<A>> Compiled<F, A> {
    /// Like [`Compiled::call`], and counts the bytes that each kernel moved while it ran. The traffic of a kernel has
    /// the position of its group in [`Explain::groups`](crate::Explain::groups). Kernels run in a slow interpreter.
    /// Results and side effects are those of a call. A byte counts once per kernel, however often the kernel accesses
    /// it.
    ///
    /// # Errors
    /// Same as [`Compiled::call`]. Also if nothing is compiled for inputs of these types: the function was not called
    /// with them yet, or runs eagerly or in segments.
    pub fn call_counted(&self, inputs: impl Inputs<A>) -> Result<(F::Output, Vec<Traffic>)> {
        let _numerics = self.options.numerics.map(numerics);
        let inputs = inputs.into_parts()?;
        let what = "nothing is compiled for these inputs, so no kernel's bytes can be counted";
        let mut traffic = Vec::new();
        let parts = self.with_program("call_counted", what, &inputs, |program, tensors| {
            if program.refuses(tensors).is_some() {
                let what = "a written input shares elements with another input; clone one of them";
                return Err(Error::argument("call_counted", what));
            }
            guarded(|| {
                program.run_by(tensors, &[], program.lifted(), |tuned, arrays| {
                    let (results, counted) = tuned.built().executable.run_counted(arrays)?;
                    traffic = counted;
                    Ok(results)
                })
            })
        })?;
        let output = parts.tree_unflatten();
        output.map(|output| (output, traffic)).ok_or_else(other_outputs)
    }

    /// Calls `work` with the program for these inputs, and their tensors. If no single graph is compiled for them, the
    /// error says `what`.
    pub(super) fn with_program<R>(
        &self,
        op: &str,
        what: &str,
        inputs: &Flat,
        work: impl FnOnce(&Program, &[&Tensor]) -> Result<R>,
    ) -> Result<R> {
        let cell = self.count(|cells| cells.known(inputs));
        let is_usual = self.bypass(inputs.tensors.iter(), Stance::Default).is_none();
        match cell.as_ref().and_then(|cell| cell.entry()) {
            Some(Entry::Graph(program)) if is_usual && !program.makes_calls() => {
                let tensors: TensorRefs<'_> = inputs.tensors.iter().collect();
                work(program, &tensors)
            }
            Some(Entry::Graph(_) | Entry::Eager(_) | Entry::Deferred(_) | Entry::Refused(_)) | None => {
                Err(Error::argument(op, format!("{what}; call the function first, and see explain()")))
            }
        }
    }
}
