//! The operands of each row as plain numbers, for libraries with tensors of their own.

use crate::values;

/// Sizes and elements in row-major order.
pub(crate) type Operand = (Vec<usize>, Vec<f32>);

const LARGE: usize = 10_000_000;
const WIDTH: usize = 384;
const HIDDEN: usize = 1536;

/// The operands of a row in the order of its definition; none for a number that names no row.
///
/// Rows in 16-bit floats have f32 operands too, to be rounded.
pub(crate) fn operands(id: &str) -> Vec<Operand> {
    let uniform = |seed, sizes: &[usize]| uniform_in(seed, sizes, -1.0, 1.0);
    let alike = |count: u64, sizes: &[usize]| (1..=count).map(|seed| uniform(seed, sizes)).collect();
    let row = |seed| uniform(seed, &[1024]);
    let wide = |seed| uniform(seed, &[4096, 1024]);
    match id {
        "W01s" => alike(4, &[1_000]),
        "W01m" => alike(4, &[100_000]),
        "W01l" => alike(4, &[LARGE]),
        "W02" | "W19h" | "W19b" => alike(3, &[LARGE]),
        "W03" => vec![uniform_in(1, &[4096, 1024], -4.0, 4.0), row(2)],
        "W04" => vec![uniform_in(1, &[4096, 1024], -4.0, 4.0)],
        "W05" => vec![wide(1), row(2), row(3)],
        "W06" => vec![wide(1), wide(2), row(3)],
        "W07" => vec![wide(1), row(2), wide(3), row(4), row(5)],
        "W08a" | "W08b" | "W08c" | "W09" => alike(1, &[4096, 4096]),
        "W10" => vec![uniform(1, &[2048, 1]), uniform(2, &[1, 2048])],
        "W11t" => vec![uniform(1, &[4096, 2048]), uniform(2, &[2048, 4096])],
        "W11s" => vec![uniform(1, &[4096, 4096]), uniform(2, &[4096, 2048])],
        "W11c" => alike(1, &[2048, 2048]),
        "W12" => vec![uniform(1, &[512, 1024]), weight(2, 1024, 4096), uniform(3, &[4096])],
        "W13" => perceptron(),
        "W14" => perceptron().into_iter().chain([(vec![256, 10], values::targets(256))]).collect(),
        "W15a" | "W15b" => {
            let mask = (vec![256, 256], values::causal_mask(256));
            (1..=3).map(|seed| uniform(seed, &[4, 256, 512])).chain([mask]).collect()
        }
        "W16" => encoder(),
        "W17" => [(5.0, 30.0), (1.0, 100.0), (0.25, 10.0)]
            .into_iter()
            .zip(1..)
            .map(|((low, high), seed)| uniform_in(seed, &[LARGE], low, high))
            .collect(),
        "W18k" => vec![uniform(1, &[16_384, 64]), uniform(2, &[256, 64])],
        "W18n" => alike(1, &[2048, 3]),
        "W20a" => alike(2, &[1]),
        "W20b" => alike(2, &[64]),
        "W20c" => alike(3, &[64]),
        "W22" => alike(2, &[65_536]),
        _ => Vec::new(),
    }
}

fn perceptron() -> Vec<Operand> {
    vec![uniform_in(1, &[256, 784], -1.0, 1.0), weight(2, 784, 1024), bias(3, 1024), weight(4, 1024, 10), bias(5, 10)]
}

fn encoder() -> Vec<Operand> {
    let gain = |seed| (vec![WIDTH], values::affine(seed, WIDTH, 0.1, 1.0));
    vec![
        uniform_in(1, &[8, 128, WIDTH], -1.0, 1.0),
        gain(2),
        bias(3, WIDTH),
        weight(4, WIDTH, 3 * WIDTH),
        bias(5, 3 * WIDTH),
        weight(6, WIDTH, WIDTH),
        bias(7, WIDTH),
        gain(8),
        bias(9, WIDTH),
        weight(10, WIDTH, HIDDEN),
        bias(11, HIDDEN),
        weight(12, HIDDEN, WIDTH),
        bias(13, WIDTH),
    ]
}

fn uniform_in(seed: u64, sizes: &[usize], low: f32, high: f32) -> Operand {
    (sizes.to_vec(), values::uniform(seed, sizes.iter().product(), low, high))
}

fn weight(seed: u64, inputs: usize, outputs: usize) -> Operand {
    (vec![inputs, outputs], values::affine(seed, inputs * outputs, values::weight_scale(inputs), 0.0))
}

fn bias(seed: u64, size: usize) -> Operand {
    (vec![size], values::affine(seed, size, 0.01, 0.0))
}
