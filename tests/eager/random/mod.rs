//! Random numbers: which ones, how they are distributed, and that nothing but seed and order decides.

mod distributions;
mod dropout;
mod fills;
mod mapped;
mod poisson;
mod schemas;
mod stream;

use opfuse::{Device, Generator, Tensor};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The default generator for this test alone.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A generator of its own, so that tests do not disturb each other.
fn generator(seed: u64) -> Generator {
    let generator = Generator::new(Device::CPU);
    generator.manual_seed(seed);
    generator
}

/// The elements as numbers.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    let wide = tensor.to_dtype(opfuse::DType::F64).and_then(|wide| wide.to_vec::<f64>());
    wide.expect("tensors of any dtype can be read as f64")
}
