//! Long rows of folds, whose blocks threads share (`native::long_rows`).

use crate::parsed;
use opfuse::ir::{DType, Graph};

/// Several folds of values that are computed, over a few long rows: around a block, and around what threads share.
pub(crate) fn folds() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    let lengths = [4095, 4096, 4097, 65_535, 65_536, 65_537, 69_632, 69_633, 100_000];
    let dtypes = [DType::F32, DType::F64, DType::BF16, DType::I64, DType::I32, DType::U8];
    for (case, n) in lengths.into_iter().enumerate() {
        for nth in 0..2 {
            let dtype = dtypes[(2 * case + nth) % dtypes.len()];
            let rows = 1 + (case + nth) % 3;
            graphs.push((format!("{rows} rows of {n} {dtype}"), several(dtype, rows, n)));
            graphs.push((format!("{rows} rows of {n} {dtype}: indices"), indices(dtype, rows, n)));
        }
    }
    graphs
}

fn several(dtype: DType, rows: usize, n: usize) -> Graph {
    let (all, sum) = (format!("{rows},{n}"), if dtype.is_float() { dtype } else { DType::I64 });
    parsed(&format!(
        "n0 = input: {dtype}[{all}]
         n1 = input: {dtype}[{n}]
         n2 = sub(n0, n1; 1): {dtype}[{all}]
         n3 = mul(n2, n2): {dtype}[{all}]
         n4 = sum(n3; [1], false, none): {sum}[{rows}]
         n5 = amax(n2; [1], false): {dtype}[{rows}]
         n6 = lt(n0, n1): bool[{all}]
         n7 = any(n6; [1], false): bool[{rows}]
         n8 = all(n6; [1], false): bool[{rows}]
         return n4, n5, n7, n8"
    ))
}

fn indices(dtype: DType, rows: usize, n: usize) -> Graph {
    let all = format!("{rows},{n}");
    parsed(&format!(
        "n0 = input: {dtype}[{all}]
         n1 = input: {dtype}[{all}]
         n2 = maximum(n0, n1): {dtype}[{all}]
         n3 = argmax(n2; 1, false): i64[{rows}]
         n4 = argmin(n2; 1, false): i64[{rows}]
         n5 = amin(n2; [1], false): {dtype}[{rows}]
         return n3, n4, n5"
    ))
}
