//! Notes what a deferred recording writes and draws, and which gradients it changes, for [`super::effects`].

use crate::device::{Generator, GeneratorState};
use crate::tensor::handle::Tensor;
use crate::transforms::tracer::effects::{Draw, GradientBefore, Write};
use crate::transforms::tracer::recording::Recording;

impl Recording {
    /// Notes a write through `target`, whose version was `before`.
    pub(super) fn note_effect(&mut self, target: &Tensor, before: u64) {
        if !self.is_deferred() {
            return;
        }
        let root = self.root(target);
        let input = self.inputs.iter().position(|input| input.id() == root.id());
        let to = input.and_then(|input| Some((input, self.nodes.get(&root.id())?.node)));
        let counted = target.has_data().then(|| (target.clone(), target.version().wrapping_sub(before)));
        self.effects.writes.push(Write { n_nodes: self.graph.len(), to, counted });
    }

    /// Notes that a deferred recording has drawn from a generator.
    pub(super) fn note_draw(&mut self, generator: &Generator, start: GeneratorState, n_counters: u64) {
        let n_nodes = self.graph.len();
        self.effects.draws.push(Draw { n_nodes, generator: generator.clone(), start, n_counters });
    }

    /// Notes that a deferred recording is about to change the gradient of a leaf.
    pub(super) fn note_gradient(&mut self, leaf: &Tensor) {
        let (n_nodes, gradient) = (self.graph.len(), leaf.gradient());
        self.effects.gradients.push(GradientBefore { n_nodes, leaf: leaf.clone(), gradient });
    }
}
