//! Folds over an outer dim: vectors run along the rows, and machine code keeps their partial results in memory.

use crate::parsed;
use opfuse::internals::codegen::geometry::Lanes;
use opfuse::internals::codegen::tier::Tier;
use opfuse::internals::codegen::x64::Level;
use opfuse::internals::compile::pipeline::build;
use opfuse::internals::fusion::Options;
use opfuse::ir::{DType, Graph};

/// Weighted values, folded over the second dim of three: lengths around those of partial results, of unrolled sweeps
/// and of blocks; rows that fill vectors or do not. Some have a second inner loop, values per element, or an index.
pub(crate) fn folds() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    let lengths = [1, 2, 31, 32, 33, 64, 127, 128, 129, 200, 256, 500, 8192, 8193, 16_500];
    for (case, n) in lengths.into_iter().enumerate() {
        let is_long = n > 1000;
        let dtypes = [(DType::F32, DType::F32), (DType::F64, DType::I32), (DType::BF16, DType::F32)];
        for (dtype, other) in dtypes.into_iter().take(if is_long { 1 } else { 3 }) {
            let lanes = if is_long { 16 + case % 2 } else { [16, 17, 64, 100, 300][case % 5] };
            let outer = if is_long { 1 } else { 1 + case % 3 };
            let sizes = [outer, n, lanes];
            graphs.push((format!("{dtype} and {other} {sizes:?}"), weighted(dtype, other, sizes)));
            graphs.push((format!("indices of {dtype} {sizes:?}"), indices(dtype, sizes)));
        }
    }
    for (case, n) in [1, 5, 31, 32, 33, 64, 65, 127, 128, 129, 200, 300, 8193].into_iter().enumerate() {
        for (step, columns) in [1, 3, 4, 15, 20, 33, 48, 49, 60, 96, 97, 130].into_iter().enumerate() {
            if (case + step) % 2 == 1 || (n > 1000 && columns > 33) {
                continue;
            }
            let dtype = [DType::F32, DType::F64, DType::BF16][(case + step / 2) % 3];
            let sizes = [[1, 2, 7, 40][(case + step / 2) % 4].min(20_000 / n + 1), n, columns];
            graphs.push((format!("stages of {dtype} {sizes:?}"), stages(dtype, sizes)));
        }
    }
    for (what, text) in OTHERS {
        graphs.push((what.to_string(), text.parse().unwrap_or_else(|error| panic!("{what}: {error}"))));
    }
    graphs
}

fn weighted(dtype: DType, other: DType, [outer, n, lanes]: [usize; 3]) -> Graph {
    let (all, kept) = (format!("{outer},{n},{lanes}"), format!("{outer},{lanes}"));
    let made = if dtype == DType::BF16 { DType::F32 } else { dtype };
    let text = format!(
        "n0 = input: {dtype}[{all}]
         n1 = input: {other}[{outer},{n},1]
         n2 = input: {made}[{kept}]
         n3 = mul(n0, n1): {made}[{all}]
         n4 = sum(n3; [1], false, none): {made}[{kept}]
         n5 = amax(n3; [1], false): {made}[{kept}]
         n6 = amin(n3; [1], false): {made}[{kept}]
         n7 = add(n4, n5; 1): {made}[{kept}]
         n8 = sub(n7, n6; 1): {made}[{kept}]
         n9 = mul(n8, n2): {made}[{kept}]
         return n9, n4"
    );
    parsed(&text)
}

/// A softmax over the second dim of three of scaled values, with values per element of each stage. Two operands have a
/// number per column: of each outer position, and of all.
fn stages(dtype: DType, [outer, n, columns]: [usize; 3]) -> Graph {
    let (all, kept) = (format!("{outer},{n},{columns}"), format!("{outer},1,{columns}"));
    let text = format!(
        "n0 = input: {dtype}[{all}]
         n1 = input: {dtype}[{kept}]
         n2 = input: {dtype}[{columns}]
         n3 = mul(n0, n1): {dtype}[{all}]
         n4 = add(n3, n2; 1): {dtype}[{all}]
         n5 = amax(n4; [1], true): {dtype}[{kept}]
         n6 = sub(n4, n5; 1): {dtype}[{all}]
         n7 = exp(n6): {dtype}[{all}]
         n8 = sum(n7; [1], true, none): {dtype}[{kept}]
         n9 = div(n7, n8): {dtype}[{all}]
         n10 = log(n8): {dtype}[{kept}]
         n11 = add(n10, n5; 1): {dtype}[{kept}]
         return n9, n11, n4"
    );
    parsed(&text)
}

/// The indices of the greatest and the least of clamped values, of which many are equal.
fn indices(dtype: DType, [outer, n, lanes]: [usize; 3]) -> Graph {
    let (all, kept) = (format!("{outer},{n},{lanes}"), format!("{outer},{lanes}"));
    let text = format!(
        "n0 = input: {dtype}[{all}]
         n1 = hardtanh(n0; -1.0, 1.0): {dtype}[{all}]
         n2 = argmax(n1; 1, false): i64[{kept}]
         n3 = argmin(n1; 1, false): i64[{kept}]
         n4 = amax(n1; [1], false): {dtype}[{kept}]
         n5 = sub(n2, n3; 1): i64[{kept}]
         return n2, n5, n4"
    );
    parsed(&text)
}

const OTHERS: [(&str, &str); 6] = [
    (
        "an index of integers, of which many are equal",
        "n0 = input: i64[3,45,70]
         n1 = number 3: i64[]#
         n2 = remainder(n0, n1): i64[3,45,70]
         n3 = argmax(n2; 1, false): i64[3,70]
         n4 = argmin(n2; 1, false): i64[3,70]
         return n3, n4",
    ),
    (
        "a mean of rows at indices",
        "n0 = input: f32[90,64]
         n1 = arange(; 0, 240, 1, none): i64[240]
         n2 = number 7: i64[]#
         n3 = mul(n1, n2): i64[240]
         n4 = number 90: i64[]#
         n5 = remainder(n3, n4): i64[240]
         n6 = index_select(n0, n5; 0): f32[240,64]
         n7 = view(n6; [8, 30, 64]): f32[8,30,64]
         n8 = sum(n7; [1], false, none): f32[8,64]
         return n8",
    ),
    (
        "two inner loops, which an operand walks apart",
        "n0 = input: f32[7,40,50,20:40000,1000,20,1]
         n1 = input: f32[40,1,20]
         n2 = mul(n0, n1): f32[7,40,50,20:40000,1000,20,1]
         n3 = exp(n2): f32[7,40,50,20:40000,1000,20,1]
         n4 = sum(n3; [0, 2], false, none): f32[40,20]
         return n4",
    ),
    (
        "values per element beside their fold",
        "n0 = input: f32[3,150,70]
         n1 = input: f32[3,150,1]
         n2 = mul(n0, n1): f32[3,150,70]
         n3 = relu(n2): f32[3,150,70]
         n4 = sum(n3; [1], false, none): f32[3,70]
         return n3, n4",
    ),
    (
        "whether any and whether all",
        "n0 = input: f32[3,150,70]
         n1 = input: f32[3,150,1]
         n2 = lt(n0, n1): bool[3,150,70]
         n3 = any(n2; [1], false): bool[3,70]
         n4 = all(n2; [1], false): bool[3,70]
         return n3, n4",
    ),
    (
        "a product of integers",
        "n0 = input: i64[3,45,70]
         n1 = input: i64[3,45,1]
         n2 = add(n0, n1; 1): i64[3,45,70]
         n3 = prod(n2; 1, false, none): i64[3,70]
         n4 = neg(n3): i64[3,70]
         return n4",
    ),
];

/// The kernels along rows that machine code runs, and all kernels along rows.
pub(crate) fn along_rows(graph: &Graph) -> [usize; 2] {
    let built = build(graph.clone(), &Options::default(), None).unwrap_or_else(|error| panic!("{error}\n{graph}"));
    let kernels = built.executable.launches().map(|launch| &launch.lowered);
    let along: Vec<_> = kernels.filter(|lowered| lowered.geometry.lanes == Lanes::Rows).collect();
    let by_code = along.iter().filter(|lowered| Tier::choose(&lowered.kernel, &lowered.geometry) == Tier::X64);
    [by_code.count(), along.len()]
}

/// Whether this machine has vectors that the tier uses.
pub(crate) fn has_vectors() -> bool {
    Level::best().is_some()
}
