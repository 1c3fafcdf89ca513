//! What a segment did before the call that failed.
//!
//! A segment that finds a value out of range has computed nothing. An eager function would have run the calls before
//! that one. So the calls run one by one, up to the error. Then the writes before it take effect, and later writes,
//! draws and changes of gradients are taken back.

use crate::autograd::replay_until;
use crate::device::{Device, Generator, GeneratorState};
use crate::dispatch::key::grad_mode::no_grad;
use crate::eager::{self, Argument};
use crate::error::{Error, Result};
use crate::ir::{Attr, Attrs, Graph, NodeId, Op, SideTable};
use crate::tensor::handle::Tensor;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// The recorded effects of a segment, in order.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) writes: Vec<Write>,
    pub(super) draws: Vec<Draw>,
    pub(super) gradients: Vec<GradientBefore>,
}

/// A recorded write.
pub(super) struct Write {
    /// The number of nodes when it was recorded: what the write waits for.
    pub(super) n_nodes: usize,
    /// The written input, and its new value.
    pub(super) to: Option<(usize, NodeId)>,
    /// The tensor from outside that counted the write, and how often.
    pub(super) counted: Option<(Tensor, u64)>,
}

/// Counters that were drawn.
pub(super) struct Draw {
    pub(super) n_nodes: usize,
    pub(super) generator: Generator,
    pub(super) start: GeneratorState,
    pub(super) n_counters: u64,
}

/// The gradient of a leaf before it was changed.
pub(super) struct GradientBefore {
    pub(super) n_nodes: usize,
    pub(super) leaf: Tensor,
    pub(super) gradient: Option<Tensor>,
}

impl Effects {
    /// Does what the calls of a segment did before one of them failed, and returns its error. If they all succeed one
    /// by one, the segment failed for another reason, such as want of memory, and has no effects. `keep` is given the
    /// values of those before it.
    pub(super) fn before(
        self,
        graph: &Graph,
        inputs: &[Tensor],
        error: Error,
        keep: impl FnOnce(&SideTable<NodeId, Tensor>) -> Result<()>,
    ) -> Error {
        let _unrecorded = no_grad();
        let plain: Vec<Tensor> = inputs.iter().map(Tensor::fresh_handle).collect();
        let device = inputs.first().map_or(Device::CPU, Tensor::device);
        let (values, failed) = replay_until(graph, &plain, device);
        let Some(failed) = failed else { return error };
        let n_done = values.ids().len();
        let mut last: BTreeMap<usize, NodeId> = BTreeMap::new();
        for Write { n_nodes, to, counted } in self.writes {
            if n_nodes <= n_done {
                last.extend(to);
            } else if let Some((tensor, times)) = counted {
                tensor.version_counter().fetch_sub(times, Ordering::AcqRel);
            }
        }
        for draw in self.draws.iter().rev().filter(|draw| draw.n_nodes > n_done) {
            draw.generator.take_back(draw.start, draw.n_counters);
        }
        for change in self.gradients.iter().rev().filter(|change| change.n_nodes > n_done) {
            change.leaf.put_gradient(change.gradient.as_ref());
        }
        let written = last.into_iter().try_for_each(|(input, value)| copy(&values[value], &inputs[input]));
        written.and_then(|()| keep(&values)).err().unwrap_or(failed)
    }
}

fn copy(value: &Tensor, target: &Tensor) -> Result<()> {
    let attrs = Attrs::from_iter([Attr::DType(target.dtype())]);
    eager::run_into(Op::ToCopy, &[Argument { array: value.array(), number: false }], &attrs, target.array())
}
