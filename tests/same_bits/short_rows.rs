//! Short rows: machine code runs them as one row (`native::short_rows`), or has vectors along many of them (`unroll`).

use crate::parsed;
use opfuse::ir::{DType, Graph};

/// The lengths of rows: around those of vectors, and of the longest that are taken.
const LENGTHS: [usize; 12] = [2, 3, 4, 5, 7, 8, 12, 15, 16, 33, 64, 65];

/// Values of short rows beside numbers per row, rows that are shared by all others or by some, slices and counts.
pub(crate) fn values() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for (case, lanes) in LENGTHS.into_iter().enumerate() {
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::I32, DType::U8] {
            // Both are enough rows for several copies, or one.
            let (outer, rows) = if case % 2 == 0 { (40, 17) } else { (3, 8) };
            let (wide, all) = (2 * lanes + 1, format!("{dtype}[{outer},{rows},{lanes}]"));
            let text = format!(
                "n0 = input: {dtype}[{outer},{rows},{lanes}]
                 n1 = input: {dtype}[{outer},{rows},1]
                 n2 = input: {dtype}[{outer},1,{lanes}]
                 n3 = input: {dtype}[{lanes}]
                 n4 = input: {dtype}[{outer},{rows},{lanes}:{strides}]
                 n5 = mul(n0, n1): {all}
                 n6 = add(n5, n2; 1): {all}
                 n7 = sub(n6, n3; 1): {all}
                 n8 = maximum(n7, n4): {all}
                 n9 = arange(; 0, {lanes}, 1, none): i64[{lanes}]
                 n10 = input: i64[{outer},{rows},1]
                 n11 = eq(n9, n10): bool[{outer},{rows},{lanes}]
                 n12 = where(n11, n8, n7): {all}
                 n13 = mul(n1, n2): {all}
                 return n12, n13",
                strides = format_args!("{},{wide},1", rows * wide),
            );
            graphs.push((format!("{lanes} of {dtype}"), parsed(&text)));
        }
    }
    graphs
}

/// Folds of short rows, and values per element that depend on them.
pub(crate) fn folds() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for (case, lanes) in LENGTHS.into_iter().take(10).enumerate() {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            // With fewer, folds stay folds.
            let n_rows = 8192 / lanes + 17;
            let outer = [1, 3, 100, n_rows][case % 4].min(n_rows);
            let rows = n_rows.div_ceil(outer);
            let (all, kept) = (format!("{dtype}[{outer},{rows},{lanes}]"), format!("{dtype}[{outer},{rows},1]"));
            let wide = lanes + 2;
            // Rows of a slice do not follow each other.
            let strides = if case % 3 == 1 { format!(":{},{wide},1", rows * wide) } else { String::new() };
            let text = format!(
                "n0 = input: {dtype}[{outer},{rows},{lanes}{strides}]
                 n1 = input: {dtype}[{lanes}]
                 n2 = amax(n0; [-1], true): {kept}
                 n3 = sub(n0, n2; 1): {all}
                 n4 = exp(n3): {all}
                 n5 = sum(n4; [-1], true, none): {kept}
                 n6 = div(n4, n5): {all}
                 n7 = mul(n6, n1): {all}
                 n8 = argmax(n0; -1, false): i64[{outer},{rows}]
                 n9 = mul(n0, n1): {all}
                 n10 = sum(n9; [-1], false, none): {dtype}[{outer},{rows}]
                 return n7, n8, n10"
            );
            graphs.push((format!("{lanes} of {dtype}, {outer} times {rows}"), parsed(&text)));
        }
    }
    graphs
}

/// Folds of short rows of whole numbers, and values per element that depend on them. Their columns are narrow.
pub(crate) fn whole_folds() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for (case, lanes) in LENGTHS.into_iter().take(10).enumerate() {
        for dtype in [DType::U8, DType::I8, DType::I16, DType::I64] {
            let rows = 8192 / lanes + 17;
            let (all, kept) = (format!("{dtype}[{rows},{lanes}]"), format!("{dtype}[{rows},1]"));
            let strides = if case % 3 == 1 { format!(":{},1", lanes + 3) } else { String::new() };
            let text = format!(
                "n0 = input: {dtype}[{rows},{lanes}{strides}]
                 n1 = input: {dtype}[{lanes}]
                 n2 = amax(n0; [-1], true): {kept}
                 n3 = sub(n2, n0; 1): {all}
                 n4 = mul(n3, n1): {all}
                 n5 = sum(n4; [-1], false, none): i64[{rows}]
                 n6 = argmin(n0; -1, false): i64[{rows}]
                 return n4, n5, n6"
            );
            graphs.push((format!("{lanes} of {dtype}, {rows} times"), parsed(&text)));
        }
    }
    graphs
}

/// Columns of matrices of narrow elements, and matrices that are transposed, with arithmetic beside them.
pub(crate) fn columns() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for columns in [2, 3, 4, 5, 8, 9, 16, 33] {
        for dtype in [DType::U8, DType::I16, DType::BF16, DType::F32] {
            let rows = 1000;
            let text = format!(
                "n0 = input: {dtype}[{rows},{columns}]
                 n1 = transpose(n0; 0, 1): {dtype}[{columns},{rows}:1,{columns}]
                 n2 = input: {dtype}[{columns},{rows}]
                 n3 = maximum(n2, n1): {dtype}[{columns},{rows}]
                 n4 = select(n0; 1, 0): {dtype}[{rows}:{columns}]
                 n5 = add(n4, n4; 1): {dtype}[{rows}]
                 n6 = flip(n2; [1]): {dtype}[{columns},{rows}]
                 return n3, n5, n6"
            );
            graphs.push((format!("{columns} columns of {dtype}"), parsed(&text)));
        }
    }
    graphs
}
