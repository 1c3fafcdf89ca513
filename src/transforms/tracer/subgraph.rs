//! Traces of bodies: functions that a loop or a branch runs, each recorded once, in a trace of its own.
//!
//! A body may be traced while its caller is. The outer recording waits meanwhile, and its values are tensors from
//! outside for the inner one. What the body takes from outside without being given it becomes an operand of the loop.

use crate::error::{NotCaptured, Reason, Result};
use crate::ir::Graph;
use crate::tensor::handle::Tensor;
use crate::transforms::tracer::condition::{Condition, Outside, Property, Relation};
use crate::transforms::tracer::opaque_call::OpaqueCall;
use crate::transforms::tracer::recording::{Reads, Recording};
use crate::transforms::tracer::session::{Paused, take_break};
use crate::transforms::tracer::trace::{Lifted, Trace};
use crate::transforms::tracer::trace_by;

/// What a function computes, as a graph.
pub(crate) struct Subgraph {
    /// Takes what the function was given, and then `others`. Returns the results first.
    pub(crate) graph: Graph,
    /// The calls that the graph does not contain, in order.
    pub(crate) calls: Vec<OpaqueCall>,
    /// The tensors that the function used without being given them.
    pub(crate) captured: Vec<Tensor>,
    /// The inputs of the graph that the function was not given.
    pub(crate) others: Vec<SubgraphInput>,
}

/// An input of a body that its function was not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubgraphInput {
    /// A captured tensor.
    Captured(usize),
    /// A result of a call.
    Result {
        /// Which call.
        call: usize,
        /// Which of its results.
        result: usize,
    },
}

/// Traces a function of tensors of these types that only computes. It returns its results, and what the caller wants to
/// know of them. The inner error says why there is no body.
///
/// # Errors
/// If the function fails for another reason than that its tensors have no values.
pub(crate) fn trace_subgraph<R>(
    inputs: &[Tensor],
    function: impl FnOnce(&[Tensor]) -> Result<(Vec<Tensor>, R)>,
) -> Result<Result<(Subgraph, R), Reason>> {
    let mut outer = Paused::new();
    let mut recording = Recording::new(Reads::GraphBreak, None);
    recording.is_subgraph = true;
    let traced = trace_by(recording, inputs, function, |(results, _)| results.clone());
    let ((results, told), captured) = match traced {
        Ok(traced) => traced,
        Err(error) => return take_break().map_or(Err(error), |reason| Ok(Err(reason))),
    };
    drop(results);
    Ok(captured.and_then(|trace| Ok((subgraph_of(trace, outer.0.as_mut())?, told))))
}

/// Hands a condition on to the outer trace, if there is one: what holds for captured tensors now need not hold in each
/// call. Returns whether that is done.
fn hand_on(condition: Condition, outer: Option<&mut Recording>) -> bool {
    let is_captured = |of: &Outside| matches!(of, Outside::Captured(_));
    let seen = |of: &Outside| match (of, &outer) {
        (Outside::Captured(tensor), Some(outer)) => outer.outside(tensor),
        (Outside::Captured(_) | Outside::Given(_), _) => None,
    };
    let handed_on = match &condition {
        // What the body is given in its trace is no captured tensor, and its gradients are apart from those of one.
        Condition::Are(Relation::Same, _, _, false) => None,
        Condition::Is(Property::RequiresGrad, Outside::Given(_), _) => None,
        Condition::Is(property, of, answer) if is_captured(of) => {
            seen(of).map(|of| Condition::Is(*property, of, *answer))
        }
        Condition::Hooks(of, hooks) if is_captured(of) => seen(of).map(|of| Condition::Hooks(of, hooks.clone())),
        Condition::NoGradient(of) if is_captured(of) => seen(of).map(Condition::NoGradient),
        Condition::Unhooked(..) => Some(condition.clone()),
        Condition::Is(..)
        | Condition::Are(..)
        | Condition::Begins(..)
        | Condition::Hooks(..)
        | Condition::NoGradient(_) => return false,
    };
    if let (Some(condition), Some(outer)) = (handed_on, outer) {
        outer.add_condition(condition);
    }
    true
}

/// The body of a trace, unless it does more than compute.
fn subgraph_of(mut trace: Trace, mut outer: Option<&mut Recording>) -> Result<Subgraph, Reason> {
    let conditions = std::mem::take(&mut trace.conditions);
    let reason = match () {
        () if !trace.written.is_empty() || !trace.gradients.is_empty() => Some("writes to a tensor"),
        () if trace.keeps_values() => Some("keeps a tensor that it computed"),
        () if !conditions.into_iter().all(|condition| hand_on(condition, outer.as_deref_mut())) => {
            Some("asks how tensors are related")
        }
        () => None,
    };
    let refuse = |what: &str| Reason::from(NotCaptured::BodyDoesMore { what: what.into() });
    if let Some(what) = reason {
        return Err(refuse(what));
    }
    let (mut captured, mut others) = (Vec::new(), Vec::new());
    for lifted in trace.lifted {
        others.push(match lifted {
            Lifted::Tensor(tensor) => {
                captured.push(tensor);
                SubgraphInput::Captured(captured.len() - 1)
            }
            Lifted::Result { call, result } => SubgraphInput::Result { call, result },
            Lifted::Draw { .. } => return Err(refuse("draws random numbers")),
            Lifted::Number(_) | Lifted::Gradient(..) | Lifted::Declared => return Err(refuse("reads a gradient")),
        });
    }
    Ok(Subgraph { graph: trace.graph, calls: trace.calls, captured, others })
}
