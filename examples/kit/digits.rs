//! Digits of 5 by 3 pixels at random places in images of 8 by 8.

use opfuse::data::TensorDataset;
use opfuse::{DType, Device, Generator, Result, Tensor};

/// A row of three bits per line.
const GLYPHS: [[u8; 5]; 10] = [
    [7, 5, 5, 5, 7],
    [2, 6, 2, 2, 7],
    [7, 1, 7, 4, 7],
    [7, 1, 3, 1, 7],
    [5, 5, 7, 1, 1],
    [7, 4, 7, 1, 7],
    [7, 4, 7, 5, 7],
    [7, 1, 2, 2, 2],
    [7, 5, 7, 5, 7],
    [7, 5, 7, 1, 7],
];

/// So many images `(n, 1, 8, 8)` and their digits, drawn from a seed. Pixels are 0 or 1, plus normal noise.
pub(crate) fn digits(n: usize, seed: u64, noise: f64) -> Result<TensorDataset> {
    let generator = Generator::new(Device::CPU);
    generator.manual_seed(seed);
    let places = generator.randint(0, 10 * 4 * 6, &[n])?.to_vec::<i64>()?;
    let mut pixels = vec![0.0f32; n * 64];
    for (image, &place) in pixels.chunks_mut(64).zip(&places) {
        let (digit, top, left) = (place % 10, (place / 10) % 4, place / 40);
        for (row, bits) in GLYPHS[digit as usize].iter().enumerate() {
            for column in (0..3).filter(|column| bits >> (2 - column) & 1 == 1) {
                image[(row + top as usize) * 8 + column + left as usize] = 1.0;
            }
        }
    }
    let noise = generator.randn(&[n, 1, 8, 8], DType::F32)?.mul(noise)?;
    let labels: Vec<i64> = places.iter().map(|place| place % 10).collect();
    TensorDataset::new(Tensor::from_slice(&pixels, &[n, 1, 8, 8])?.add(&noise)?, Tensor::from_slice(&labels, &[n])?)
}
