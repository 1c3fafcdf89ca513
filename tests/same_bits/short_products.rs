//! Products of few steps that pointwise ops read: `unroll_products` makes them multiply-adds, with the bits of the
//! product.

use crate::parsed;
use opfuse::internals::compile::pipeline::build;
use opfuse::internals::fusion::Options;
use opfuse::ir::{DType, Graph, Op};

/// Products of matrices, and whether they are unrolled. Operands lie by rows or by columns.
pub(crate) fn products() -> Vec<(String, Graph, bool)> {
    let mut graphs = Vec::new();
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        for steps in 1..=5 {
            for (op, lead, rows, columns) in [("mm", "", 250, 70), ("bmm", "3,", 90, 65), ("bmm", "3,", 900, 30)] {
                for layouts in [["", ""], [":1", ":1"]] {
                    // Columns of an operand by columns are as far apart as it has rows.
                    let strides = |[rows, columns]: [usize; 2], by_column: &str| match (by_column, lead) {
                        ("", _) => String::new(),
                        (_, "") => format!(":1,{rows}"),
                        _ => format!(":{},1,{rows}", rows * columns),
                    };
                    let left = strides([rows, steps], layouts[0]);
                    let right = strides([steps, columns], layouts[1]);
                    let text = format!(
                        "n0 = input: {dtype}[{lead}{rows},{steps}{left}]
                         n1 = input: {dtype}[{lead}{steps},{columns}{right}]
                         n2 = {op}(n0, n1): {dtype}[{lead}{rows},{columns}]
                         n3 = neg(n2): {dtype}[{lead}{rows},{columns}]
                         n4 = sum(n3; [-1], false, none): {dtype}[{lead}{rows}]
                         return n3, n2, n4"
                    );
                    let graph = parsed(&text);
                    let is_unrolled = dtype != DType::BF16 && steps <= 4 && columns >= 64;
                    graphs.push((format!("{steps} steps of {dtype}, {op}, {rows} rows"), graph, is_unrolled));
                }
            }
        }
    }
    graphs
}

/// Whether no product is left in the planned graph.
pub(crate) fn is_unrolled(graph: &Graph) -> bool {
    let built = build(graph.clone(), &Options::default(), None).unwrap_or_else(|error| panic!("{error}\n{graph}"));
    built.graph.nodes().all(|(_, node)| !matches!(node.op(), Some(Op::Mm | Op::Bmm)))
}
