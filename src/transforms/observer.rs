//! The [`Observer`] that connects tensors, operators and autograd to traces and `vmap`.

use crate::device::Generator;
use crate::error::Result;
use crate::tensor::handle::Tensor;
use crate::tensor::observer::{self, Access, Observer, Property, Question, Relation};
use crate::transforms::{batched, tracer};
use smallvec::SmallVec;
use std::borrow::Cow;

struct Transforms;

/// Installs the observer.
pub(crate) fn install() {
    observer::install(&Transforms);
}

impl Observer for Transforms {
    fn physical<'a>(&self, wrapper: &'a Tensor) -> Option<&'a Tensor> {
        batched::physical(wrapper)
    }

    fn is_abstract(&self) -> bool {
        tracer::is_abstract()
    }

    fn is_abstract_since(&self, call: u64) -> bool {
        tracer::is_abstract_since(call)
    }

    fn relates(&self, relation: Relation, one: &Tensor, other: &Tensor) -> Option<bool> {
        tracer::relates(relation, one, other)
    }

    fn has(&self, property: Property, tensor: &Tensor) -> Option<bool> {
        tracer::has(property, tensor)
    }

    fn memory_start(&self, tensor: &Tensor) -> usize {
        match batched::physical(tensor) {
            Some(physical) => self.memory_start(physical),
            None => tracer::memory_start(tensor),
        }
    }

    fn on_read(&self, tensor: &Tensor, op: &str) -> Result<()> {
        batched::on_read(tensor, op)?;
        tracer::on_read(tensor, op)
    }

    fn on_extent(&self, number: &Tensor, count: usize) {
        tracer::on_extent(number, count);
    }

    fn draw(&self, generator: &Generator, n_counters: u64) -> Result<Tensor> {
        tracer::draw(generator, n_counters)
    }

    /// If slices draw different numbers, the draw has the mapped dims in addition.
    fn draw_mapped(
        &self,
        op: &str,
        sizes: &[usize],
        draw: &mut dyn FnMut(&[usize]) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let levels = batched::drawing_levels(op)?;
        let sizes: SmallVec<[usize; 6]> =
            levels.iter().map(|level| level.size()).chain(sizes.iter().copied()).collect();
        levels.iter().try_fold(draw(&sizes)?, |numbers, level| level.map(&numbers))
    }

    fn on_function(&self, name: &str) -> Result<()> {
        tracer::on_function(name)
    }

    fn on_handle(&self, tensor: &Tensor, handle: &Tensor) {
        tracer::on_handle(tensor, handle);
    }

    fn on_wanted(&self, tensor: &Tensor) {
        tracer::on_wanted(tensor);
    }

    fn on_reached(&self, leaf: &Tensor) {
        tracer::on_reached(leaf);
    }

    fn on_history(&self, tensor: &Tensor, method: &str) {
        tracer::on_history(tensor, method);
    }

    fn on_data(&self, tensor: &Tensor, data: &Tensor) {
        tracer::on_data(tensor, data);
    }

    fn on_requires_grad(&self, tensor: &Tensor, requires_grad: bool) -> Result<()> {
        tracer::on_requires_grad(tensor, requires_grad)
    }

    fn on_gradient<'a>(&self, leaf: &'a Tensor, access: Access) -> Cow<'a, Tensor> {
        tracer::on_gradient(leaf, access)
    }

    fn on_hooks(&self, leaf: &Tensor) {
        tracer::on_hooks(leaf);
    }

    fn is_alone(&self, tensor: &Tensor) -> Option<bool> {
        tracer::is_alone(tensor)
    }

    fn on_older_call(&self, call: u64, has_no_hooks: Question) {
        tracer::on_older_call(call, has_no_hooks);
    }

    fn refuses_hook(&self, tensor: &Tensor) -> bool {
        tracer::refuses_hook(tensor)
    }
}
