//! The epilogues that cublasLt computes itself: a bias per column, `relu`, and `gelu` with `tanh`.
//!
//! A kernel is compared with those that the compiler makes of these ops. So a new way of writing a body needs no change
//! here. Expressions are compared: the numbers of registers and of operands do not matter.

use super::candidate::EpilogueCandidate;
use super::memo::Memo;
use crate::codegen::cuda::epilogue::{in_order_of, is_dense};
use crate::codegen::geometry::{Access, Geometry, LoopOrder};
use crate::codegen::kernel::{Kernel, Kind, Source};
use crate::codegen::lower::lower;
use crate::codegen::product::ProductShape;
use crate::device::cuda::{Activation, LtEpilogue};
use crate::error::{Error, Result};
use crate::fusion::{Options, StepKind, plan};
use crate::ir::scalar::Reg;
use crate::ir::{Attr, Attrs, DType, Graph, NodeId, Op, TensorType};
use smallvec::SmallVec;
use std::sync::Arc;

/// A kernel that is an epilogue of cublasLt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EpilogueMatch {
    pub(super) epilogue: LtEpilogue,
    /// The dtype of the stored result.
    pub(super) result: DType,
    /// The kernel's operand with a number per column.
    pub(super) bias: Option<usize>,
}

/// The epilogue of cublasLt that the candidate of a product of that shape is, if it is one.
pub(super) fn matching(candidate: &EpilogueCandidate, shape: &ProductShape) -> Option<EpilogueMatch> {
    let (kernel, geometry) = (&candidate.launch.lowered.kernel, &candidate.launch.lowered.geometry);
    let bias = match kernel.operands.len() {
        1 => None,
        2 => Some(1 - candidate.slot),
        _ => return None,
    };
    let result = kernel.outputs.first()?.dtype;
    if ![shape.dtype, shape.result].contains(&result) {
        return None;
    }
    let geometry = &in_order_of(geometry, candidate.slot);
    if kernel.has_folds()
        || !is_dense(kernel, geometry, candidate.slot, shape)
        || !is_stored_there(kernel, geometry, candidate.slot)
    {
        return None;
    }
    if bias.is_some_and(|bias| kernel.operands[bias].dtype != result || !is_per_column(kernel, geometry, bias, shape)) {
        return None;
    }
    let epilogue = patterns([shape.result, result]).iter().find(|pattern| pattern.is(kernel, candidate.slot))?.epilogue;
    Some(EpilogueMatch { epilogue, result, bias })
}

/// Whether the only result has the layout of the product.
fn is_stored_there(kernel: &Kernel, geometry: &Geometry, slot: usize) -> bool {
    let ([output], [access]) = (&kernel.outputs[..], &geometry.outputs[..]) else { return false };
    let (product, stored) = (&geometry.operands[slot], output.dtype.size());
    let size = kernel.operands[slot].dtype.size();
    let strides = |access: &Access| access.rows.iter().chain(&access.inner).copied().collect::<SmallVec<[usize; 4]>>();
    let same = strides(access).into_iter().zip(strides(product)).all(|(own, other)| own * size == other * stored);
    access.base == 0 && same
}

/// Whether an operand is a dense row of numbers per column; loops are in the order of the product's memory.
fn is_per_column(kernel: &Kernel, geometry: &Geometry, bias: usize, shape: &ProductShape) -> bool {
    let (operand, access) = (kernel.operands[bias], &geometry.operands[bias]);
    let sizes = geometry.rows.iter().chain(&geometry.inner).rev();
    let strides = access.rows.iter().chain(&access.inner).rev();
    let mut within = 1;
    let follows = sizes.zip(strides).filter(|(size, _)| **size != 1).all(|(&size, &stride)| {
        // A loop is either inside of rows or over rows.
        let expected = if within < shape.n { within * operand.dtype.size() } else { 0 };
        within *= size;
        stride == expected && (within <= shape.n || expected == 0)
    });
    // A single number may be on the host.
    follows && shape.n > 1 && operand.source == Source::Memory && access.base == 0 && access.gather.is_none()
}

/// A kernel that computes an epilogue of its operand `product`, and of another operand with a bias if there is one.
struct Pattern {
    epilogue: LtEpilogue,
    kernel: Kernel,
    product: usize,
}

/// The patterns for products of one dtype whose results are stored as another, which is the same or narrower.
fn patterns(dtypes: [DType; 2]) -> Arc<Vec<Pattern>> {
    static PATTERNS: Memo<[DType; 2], Arc<Vec<Pattern>>> = Memo::new(DType::ALL.len());
    PATTERNS.get(dtypes, |&dtypes| Ok(Arc::new(all_of(dtypes)?))).unwrap_or_default()
}

fn all_of([product, result]: [DType; 2]) -> Result<Vec<Pattern>> {
    let mut patterns = Vec::new();
    for activation in [Activation::Nothing, Activation::Relu, Activation::Gelu] {
        if activation != Activation::Nothing || product != result {
            patterns.push(Pattern::new([product, result], &[0], activation)?);
        }
        // The operands of a sum have either order.
        for terms in [[0, 1], [1, 0]] {
            patterns.push(Pattern::new([product, result], &terms, activation)?);
        }
    }
    Ok(patterns)
}

impl Pattern {
    /// The kernel of an activation of the product, which is input 0, or of its sum with input 1.
    fn new([product, result]: [DType; 2], terms: &[usize], activation: Activation) -> Result<Pattern> {
        let mut graph = Graph::new();
        let inputs = [(product, &[2, 3][..]), (result, &[3])];
        let inputs = inputs.map(|(dtype, sizes)| graph.input(TensorType::contiguous(dtype, sizes)));
        let mut value = inputs[0];
        if let &[left, right] = terms {
            let bias = graph.cast(inputs[1], product)?;
            let terms = [left, right].map(|term| if term == 0 { inputs[0] } else { bias });
            value = graph.add(Op::Add, &terms, Attrs::from_iter([Attr::int(1)]))?;
        }
        value = graph.cast(value, result)?;
        value = match activation {
            Activation::Nothing => value,
            Activation::Relu => graph.add(Op::Relu, &[value], Attrs::new())?,
            Activation::Gelu => graph.add(Op::Gelu, &[value], Attrs::from_iter([Attr::Str("tanh".into())]))?,
        };
        graph.set_outputs(vec![value]);
        let (kernel, operands) = only_kernel(&graph)?;
        let product = operands.iter().position(|operand| *operand == Some(inputs[0])).unwrap_or_default();
        Ok(Pattern { epilogue: LtEpilogue { has_bias: terms.len() == 2, activation }, kernel, product })
    }

    /// Whether a kernel computes the same, with the product as its operand `slot`.
    fn is(&self, kernel: &Kernel, slot: usize) -> bool {
        let (Some(own), Some(other)) = (self.kernel.outputs.first(), kernel.outputs.first()) else { return false };
        self.kernel.operands.len() == kernel.operands.len() && self.agrees(own.value, kernel, other.value, slot)
    }

    /// Whether two registers have the same expression.
    fn agrees(&self, own: Reg, kernel: &Kernel, other: Reg, slot: usize) -> bool {
        let (own, other) = (self.kernel.inst(own), kernel.inst(other));
        let same = match (own.kind, other.kind) {
            (Kind::Load(own), Kind::Load(other)) => (usize::from(own) == self.product) == (usize::from(other) == slot),
            (own, other) => own == other,
        };
        same && own.ty == other.ty
            && own.args.len() == other.args.len()
            && own.args.iter().zip(&other.args).all(|(&own, &other)| self.agrees(own, kernel, other, slot))
    }
}

/// The only kernel of a graph, and the nodes of its operands.
fn only_kernel(graph: &Graph) -> Result<(Kernel, Vec<Option<NodeId>>)> {
    let plan = plan(graph, &Options::default());
    let [step] = &plan.steps[..] else { return Err(Error::invalid("plan", "a few pointwise ops are one kernel")) };
    let StepKind::Kernel(region) = &step.kind else {
        return Err(Error::invalid("plan", "a few pointwise ops are one kernel"));
    };
    let lowered = lower(graph, region, LoopOrder::OfMemory)?;
    Ok((lowered.kernel, lowered.operands))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float_has_all_patterns_and_no_two_are_the_same() {
        let same = [DType::F16, DType::BF16, DType::F32, DType::F64].map(|dtype| [dtype; 2]);
        let narrower = [DType::F16, DType::BF16].map(|dtype| [DType::F32, dtype]);
        for dtypes in same.into_iter().chain(narrower) {
            let patterns = patterns(dtypes);
            // Rounding a product, and nothing else, is a pattern too.
            assert_eq!(patterns.len(), if dtypes[0] == dtypes[1] { 8 } else { 9 }, "{dtypes:?}");
            for one in patterns.iter() {
                let alike = patterns.iter().filter(|other| other.is(&one.kernel, one.product));
                assert!(alike.clone().all(|other| other.epilogue == one.epilogue), "{dtypes:?}:\n{}", one.kernel);
                assert!(alike.count() >= 1, "{dtypes:?}:\n{}", one.kernel);
            }
        }
    }
}
