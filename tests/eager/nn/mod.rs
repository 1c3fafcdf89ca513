//! Layers and losses against plain loops, and against values computed by hand.

mod convolution;
mod losses;
mod memory_formats;
mod normalization;
mod pooling;
mod rest;
mod windows;

use opfuse::{Result, Tensor};

/// Numbers that look random, from a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    /// A whole number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    /// A number between −2 and 2 with few digits, so that sums of products are exact.
    fn number(&mut self) -> f64 {
        (self.below(129) as f64 - 64.0) / 32.0
    }

    fn tensor(&mut self, sizes: &[usize]) -> Tensor {
        let data: Vec<f64> = (0..sizes.iter().product()).map(|_| self.number()).collect();
        Tensor::from_slice(&data, sizes).expect("the data fits the sizes")
    }
}

fn tensor(data: &[f64], sizes: &[usize]) -> Tensor {
    Tensor::from_slice(data, sizes).expect("the data fits the sizes")
}

fn elements(x: &Tensor) -> Vec<f64> {
    x.to_vec().expect("an f64 tensor with data")
}

/// Sizes must be equal, and elements close; a NaN is close to a NaN.
#[track_caller]
fn check(found: Result<Tensor>, sizes: &[usize], expected: &[f64], case: &str) {
    let found = found.unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_eq!(found.sizes(), sizes, "{case}: sizes");
    for (index, (found, &expected)) in elements(&found).into_iter().zip(expected).enumerate() {
        let is_close = found == expected || (found - expected).abs() <= 1e-11 * expected.abs().max(1.0);
        assert!(
            is_close || (found.is_nan() && expected.is_nan()),
            "{case}: element {index} is {found}, not {expected}"
        );
    }
}

#[track_caller]
fn check_error<T: std::fmt::Debug>(found: Result<T>, parts: &[&str]) {
    let message = found.expect_err("the call is illegal").to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is missing in: {message}");
    }
}
