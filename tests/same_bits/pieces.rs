//! What is computed piece by piece: rows of several loops, which machine code reads from packed copies, and piecewise
//! values, of which several are computed together.

use crate::parsed;
use opfuse::internals::compile::pipeline::build;
use opfuse::internals::fusion::Options;
use opfuse::internals::fusion::StepKind;
use opfuse::ir::{DType, Graph};

/// Statistics of channels over images of several sizes, and what is done with them, as in a backward pass of batch
/// norm: operands that differ in every element, by image, by channel, or backwards, and 16-bit floats and integers.
pub(crate) fn rows() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for (dtype, other) in [(DType::F32, DType::F32), (DType::F32, DType::BF16), (DType::F64, DType::I32)] {
        for (images, channels, height, width) in
            [(1, 3, 2, 5), (2, 9, 1, 1), (3, 17, 1, 3), (2, 9, 2, 2), (5, 10, 3, 3), (3, 11, 9, 15), (2, 8, 13, 40)]
        {
            let all = format!("{images},{channels},{height},{width}");
            let (plane, count) = (height * width, images * height * width);
            // Every second element, so that copies gather.
            let apart = format!("{},{},{},2", 2 * channels * plane, 2 * plane, 2 * width);
            let text = format!(
                "n0 = input: {dtype}[{all}]
                 n1 = input: {other}[{all}:{apart}]
                 n2 = input: {dtype}[{images},{channels},1,1]
                 n3 = input: {dtype}[1,{channels},1,1]
                 n4 = mul(n0, n1): {dtype}[{all}]
                 n5 = add(n4, n2; 1): {dtype}[{all}]
                 n6 = sum(n5; [0, 2, 3], true, none): {dtype}[1,{channels},1,1]
                 n7 = number {count}.0: f64[]#
                 n8 = div(n6, n7): {dtype}[1,{channels},1,1]
                 n9 = sub(n5, n8; 1): {dtype}[{all}]
                 n10 = mul(n9, n3): {dtype}[{all}]
                 n11 = amax(n10; [0, 2, 3], false): {dtype}[{channels}]
                 return n10, n6, n11"
            );
            graphs.push((format!("{dtype} and {other} [{all}]"), parsed(&text)));
        }
    }
    graphs.extend(apart());
    graphs.extend(groups());
    graphs
}

/// Folds of operands whose elements are a few apart, which are packed from a certain length on.
fn apart() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I64, DType::I32, DType::U8] {
        for (apart, n) in [(2, 1), (3, 15), (4, 16), (2, 17), (3, 100), (5, 100), (2, 1000), (4, 9000)] {
            let text = format!(
                "n0 = input: {dtype}[3,{n}:{},{apart}]
                 n1 = input: {dtype}[3,{n}]
                 n2 = mul(n0, n1): {dtype}[3,{n}]
                 n3 = amax(n2; [1], true): {dtype}[3,1]
                 n4 = sub(n2, n3; 1): {dtype}[3,{n}]
                 n5 = argmax(n4; 1, false): i64[3]
                 return n4, n3, n5",
                n * apart
            );
            graphs.push((format!("{n} elements of {dtype}, {apart} apart"), parsed(&text)));
        }
    }
    graphs
}

/// Groups of channels with a weight per channel: only the weights are packed, or nothing is where planes are long.
fn groups() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for (dtype, other) in [(DType::F32, DType::F32), (DType::F64, DType::BF16)] {
        for (rows, channels, plane) in [(1, 2, 1), (3, 4, 50), (20, 2, 9), (2, 40, 33), (3, 2, 1031), (5, 3, 7000)] {
            let all = format!("{rows},{channels},{plane}");
            let text = format!(
                "n0 = input: {dtype}[{all}]
                 n1 = input: {other}[1,{channels},1]
                 n2 = sum(n0; [1, 2], true, none): {dtype}[{rows},1,1]
                 n3 = sub(n0, n2; 1): {dtype}[{all}]
                 n4 = mul(n3, n1): {dtype}[{all}]
                 n5 = amax(n0; [1, 2], true): {dtype}[{rows},1,1]
                 n6 = exp(n5): {dtype}[{rows},1,1]
                 n7 = minimum(n4, n6): {dtype}[{all}]
                 return n7, n2"
            );
            graphs.push((format!("groups of {dtype} [{all}]"), parsed(&text)));
        }
    }
    graphs
}

/// Graphs of several piecewise values, and how many steps they need.
pub(crate) fn values() -> Vec<(&'static str, Graph, usize)> {
    let graphs = [
        (
            "neighbours on a ring, in both dims",
            "n0 = input: f32[40,50]
             n1 = slice(n0; 0, 39, 40, 1): f32[1,50]
             n2 = slice(n0; 0, 0, 39, 1): f32[39,50]
             n3 = cat(n1, n2; 0): f32[40,50]
             n4 = slice(n0; 0, 1, 40, 1): f32[39,50]
             n5 = slice(n0; 0, 0, 1, 1): f32[1,50]
             n6 = cat(n4, n5; 0): f32[40,50]
             n7 = slice(n0; 1, 49, 50, 1): f32[40,1:50,1]
             n8 = slice(n0; 1, 0, 49, 1): f32[40,49:50,1]
             n9 = cat(n7, n8; 1): f32[40,50]
             n10 = add(n3, n6; 1): f32[40,50]
             n11 = add(n10, n9; 1): f32[40,50]
             n12 = sub(n11, n0; 1): f32[40,50]
             return n12",
            1,
        ),
        (
            "rolled along both dims, and added to what it was",
            "n0 = input: f32[40,50]
             n1 = slice(n0; 0, 37, 40, 1): f32[3,50]
             n2 = slice(n0; 0, 0, 37, 1): f32[37,50]
             n3 = cat(n1, n2; 0): f32[40,50]
             n4 = slice(n3; 1, 7, 50, 1): f32[40,43:50,1]
             n5 = slice(n3; 1, 0, 7, 1): f32[40,7:50,1]
             n6 = cat(n4, n5; 1): f32[40,50]
             n7 = add(n6, n0; 1): f32[40,50]
             return n7",
            1,
        ),
        (
            "edges around a computed value, and every second column of that",
            "n0 = input: f32[2,70,90]
             n1 = exp(n0): f32[2,70,90]
             n2 = slice(n1; 1, 69, 70, 1): f32[2,1,90:6300,90,1]
             n3 = slice(n1; 1, 0, 2, 1): f32[2,2,90:6300,90,1]
             n4 = cat(n2, n1, n3; 1): f32[2,73,90]
             n5 = slice(n4; 2, 88, 90, 1): f32[2,73,2:6570,90,1]
             n6 = slice(n4; 2, 0, 1, 1): f32[2,73,1:6570,90,1]
             n7 = cat(n5, n4, n6; 2): f32[2,73,93]
             n8 = slice(n7; 2, 0, 93, 2): f32[2,73,47:6789,93,2]
             n9 = slice(n7; 2, 1, 2, 1): f32[2,73,1:6789,93,1]
             n10 = cat(n8, n9; 2): f32[2,73,48]
             return n10",
            2,
        ),
        (
            "a padded value over another one, which is also a result",
            "n0 = input: f32[3,8,9]
             n1 = input: f32[3,10,11]
             n2 = abs(n0): f32[3,8,9]
             n3 = constant_pad_nd(n2; [1, 1, 1, 1], 0.5): f32[3,10,11]
             n4 = slice(n1; 1, 2, 10, 1): f32[3,8,11:110,11,1]
             n5 = constant_pad_nd(n4; [0, 0, 2, 0], -1.0): f32[3,10,11]
             n6 = mul(n3, n5): f32[3,10,11]
             n7 = add(n6, n1; 1): f32[3,10,11]
             return n7, n3",
            2,
        ),
        (
            "a narrow frame around what is computed",
            "n0 = input: f32[5,7,6,3]
             n1 = exp(n0): f32[5,7,6,3]
             n2 = constant_pad_nd(n1; [2, 1, 1, 1], 0.0): f32[5,7,8,6]
             return n2",
            1,
        ),
    ];
    graphs.into_iter().map(|(what, text, n_steps)| (what, parsed(text), n_steps)).collect()
}

/// The steps of the plan besides views.
pub(crate) fn steps(graph: &Graph) -> usize {
    let built = build(graph.clone(), &Options::default(), None).unwrap_or_else(|error| panic!("{error}\n{graph}"));
    built.plan.steps.iter().filter(|step| !matches!(step.kind, StepKind::Alias)).count()
}
