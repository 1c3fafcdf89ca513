//! Captures without data: a compiled function is made ready for inputs of given types.

use super::cells::Found;
use super::compiled::{Compiled, flows};
use super::entry::Entry;
use super::options::{Stance, stance_here};
use crate::device::DeviceKind;
use crate::eager::numerics;
use crate::error::Result;
use crate::tensor::handle::Tensor;
use crate::tensor::structure::Flat;
use crate::transforms::function::{Function, Inputs};
use crate::transforms::tracer::GradientsBefore;

impl<A, F: Function<A>> Compiled<F, A> {
    /// Captures the function for inputs of these types, unless that was done, so that the first call with such inputs
    /// is as fast as the next. Only dtypes and sizes count: nothing is computed and nothing written, and tensors on
    /// [`Device::META`](crate::device::Device) stand for tensors on the CPU.
    ///
    /// ```
    /// # fn main() -> opfuse::Result<()> {
    /// use opfuse::{DType, Tensor, compile};
    /// let f = compile(|x: &Tensor| x.exp()?.sum_all());
    /// f.prepare(&Tensor::zeros(&[8, 4], DType::F32)?)?;
    /// assert_eq!(f.counts().captures, 1);
    /// f.call(&Tensor::ones(&[8, 4], DType::F32)?)?;
    /// assert_eq!(f.counts().captures, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the function fails on inputs of these types, or if there is no memory. A function that has to run eagerly or
    /// in segments is no error.
    pub fn prepare(&self, inputs: impl Inputs<A>) -> Result<()> {
        let _numerics = self.options.numerics.map(numerics);
        let Flat { tensors, words } = inputs.into_parts()?;
        let real = |tensor: &Tensor| match tensor.device().kind {
            DeviceKind::Meta => Tensor::zeros(tensor.sizes(), tensor.dtype()),
            _ => Ok(tensor.clone()),
        };
        let inputs = Flat { tensors: tensors.iter().map(real).collect::<Result<_>>()?, words };
        let stance = stance_here().unwrap_or(self.options.stance);
        if stance == Stance::Deferred || self.bypass(inputs.tensors.iter(), stance).is_some() {
            return Ok(());
        }
        let Found::Cell(cell) = self.count(|cells| cells.find(&inputs, false)) else { return Ok(()) };
        if cell.entry().is_some() {
            return Ok(());
        }
        let Some(building) = cell.build() else { return Ok(()) };
        let entry = self.capture_again(&inputs, &flows(&inputs), GradientsBefore::default())?;
        let refused = match cell.put(entry) {
            Entry::Refused(error) => Err(error.clone()),
            Entry::Graph(_) | Entry::Eager(_) | Entry::Deferred(_) => Ok(()),
        };
        drop(building);
        refused
    }
}
