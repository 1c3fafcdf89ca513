//! Sums of few elements before other folds: `unroll` makes them additions in one kernel, with the bits of the fold.

use crate::parsed;
use opfuse::internals::compile::pipeline::build;
use opfuse::internals::fusion::Options;
use opfuse::ir::{DType, Graph, Op};

/// Points, perhaps as zeros of both signs, summed over a dim of `few` elements and then over all the points.
pub(crate) fn sums() -> Vec<(String, Graph, usize)> {
    let mut graphs = Vec::new();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for few in 1..=5 {
            for (keepdim, factor) in [(false, "1.5"), (true, "-0.0")] {
                let kept = if keepdim { "10,1,20" } else { "10,20" };
                let text = format!(
                    "n0 = input: {dtype}[10,{few},20]
                     n1 = number {factor}: f64[]#
                     n2 = mul(n0, n1): {dtype}[10,{few},20]
                     n3 = sum(n2; [1], {keepdim}, none): {dtype}[{kept}]
                     n4 = abs(n3): {dtype}[{kept}]
                     n5 = sum(n4; [-1], false, none): {dtype}[10{one}]
                     n6 = neg(n3): {dtype}[{kept}]
                     return n5, n6",
                    one = if keepdim { ",1" } else { "" }
                );
                let graph = parsed(&text);
                graphs.push((format!("{few} of {dtype}, {keepdim}"), graph, few));
            }
        }
    }
    graphs
}

/// Whether a sum of so many elements is unrolled to additions in the planned graph, as it should be.
pub(crate) fn is_unrolled(graph: &Graph, few: usize) -> bool {
    let built = build(graph.clone(), &Options::default(), None).unwrap_or_else(|error| panic!("{error}\n{graph}"));
    let n_sums = built.graph.nodes().filter(|(_, node)| node.op() == Some(Op::Sum)).count();
    n_sums == if (2..=4).contains(&few) { 1 } else { 2 }
}
