//! Recorded calls of compiled functions, whose backward pass is compiled too.

use crate::autograd::engine::with_zeros;
use crate::autograd::meta::gradient_edge;
use crate::autograd::node::{Backward, BackwardCall, Edge, Node, ResultType};
use crate::autograd::row::{freed, replay};
use crate::autograd::saved::Saved;
use crate::device::Device;
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::error::Result;
use crate::ir::Graph;
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};

/// The backward pass of a compiled function.
pub(crate) trait GradientProgram: Send + Sync {
    /// The gradients of the operands from the kept tensors and the cotangents of the differentiable results, row-major.
    fn run(&self, kept: &[Tensor], cotangents: &[Tensor]) -> Result<Vec<Option<Tensor>>>;

    /// The graph of the function and its gradients, which is called op by op when the backward pass is recorded. Its
    /// inputs are the operands, then the cotangents.
    fn joint_graph(&self) -> &Graph;

    /// Which outputs of [`GradientProgram::joint_graph`] are the gradients of the operands.
    fn joint_gradients(&self) -> &[Option<usize>];

    /// The graph of the gradients alone. Its inputs are the kept tensors, then the cotangents.
    fn backward_graph(&self) -> &Graph;

    /// Which outputs of [`GradientProgram::backward_graph`] are the gradients of the operands.
    fn backward_gradients(&self) -> &[Option<usize>];
}

struct ProgramBackward {
    program: Arc<dyn GradientProgram>,
    /// The operands, and the kept tensors. If all that was kept are plain numbers, the operands are not saved, and the
    /// backward pass can run any number of times.
    saved: Mutex<Option<(Vec<Saved>, Vec<Saved>)>>,
}

/// Records a program that ran on `operands`, kept `kept`, and returned the differentiable results `results`.
pub(crate) fn record_program(
    program: Arc<dyn GradientProgram>,
    operands: &[&Tensor],
    kept: &[Tensor],
    results: &[&Tensor],
) -> Result<()> {
    let edges =
        operands.iter().map(|operand| gradient_edge(operand)).collect::<Result<SmallVec<[Option<Edge>; 2]>>>()?;
    if edges.iter().all(Option::is_none) {
        return Ok(());
    }
    let kept = kept.iter().map(Saved::operand).collect::<Result<Vec<_>>>()?;
    let operands = if kept.iter().all(Saved::is_number) { &[] } else { operands };
    let operands = operands.iter().map(|operand| Saved::operand(operand)).collect::<Result<_>>()?;
    let function = ProgramBackward { program, saved: Mutex::new(Some((operands, kept))) };
    let node = Node::new(Box::new(function), edges, results.iter().map(|result| ResultType::of(result)).collect());
    for (output, result) in results.iter().enumerate() {
        result.set_edge(Edge::new(node.clone(), output));
    }
    Ok(())
}

impl Backward for ProgramBackward {
    fn name(&self) -> String {
        "CompiledBackward".into()
    }

    fn apply(&self, gradients: Vec<Option<Tensor>>, call: &BackwardCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let unpack = |saved: &[Saved]| saved.iter().map(|saved| saved.unpack(call.node)).collect::<Result<Vec<_>>>();
        let (operands, kept, reads) = {
            let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
            let (operands, kept) = saved.as_ref().ok_or_else(|| freed(&self.name()))?;
            // Only a recorded backward pass reads the operands. For others a write to them is no error.
            let operands = if is_grad_enabled() { unpack(operands)? } else { Vec::new() };
            (operands, unpack(kept)?, !kept.iter().all(Saved::is_number))
        };
        let cotangents = with_zeros(call.node, gradients)?;
        if !is_grad_enabled() {
            return self.program.run(&kept, &cotangents);
        }
        let device = cotangents.first().map_or(Device::CPU, Tensor::device);
        let (graph, places, mut inputs) = match reads {
            true => (self.program.joint_graph(), self.program.joint_gradients(), operands),
            false => (self.program.backward_graph(), self.program.backward_gradients(), kept),
        };
        inputs.extend(cotangents);
        let results = replay(graph, &inputs, device)?;
        Ok(places.iter().map(|place| place.map(|at| results[at].clone())).collect())
    }

    fn release(&self) {
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.take_if(|(_, kept)| !kept.iter().all(Saved::is_number));
    }
}
