//! Tensors that tests compute with, and what they compare of results.

#![allow(dead_code, reason = "every test uses a part of it")]

use opfuse::{DType, Result, Tensor};

/// A reproducible stream of bits (xorshift).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.next() % from.len() as u64) as usize]
    }

    /// Elements between −1 and 1.
    pub(crate) fn tensor(&mut self, sizes: &[usize], dtype: DType) -> Result<Tensor> {
        let mut next = || (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        let elements: Vec<f64> = (0..sizes.iter().product()).map(|_| next()).collect();
        Tensor::from_slice(&elements, sizes)?.to_dtype(dtype)
    }
}

/// Elements between −1 and 1, others for every seed.
pub(crate) fn uniform(seed: u64, sizes: &[usize], dtype: DType) -> Result<Tensor> {
    Numbers::new(seed).tensor(sizes, dtype)
}

/// Values that no two elements share, of both signs.
pub(crate) fn ramp(sizes: &[usize]) -> Tensor {
    let count: usize = sizes.iter().product();
    let values: Vec<f32> = (0..count).map(|i| (i as f32 * 0.37).sin() * 3.0 + i as f32 * 1e-3).collect();
    Tensor::from_slice(&values, sizes).expect("the counts agree")
}

/// The bits of all elements, widened where that loses nothing.
pub(crate) fn bits(tensor: &Tensor) -> Vec<u64> {
    if tensor.dtype() == DType::F32 {
        let elements = tensor.to_vec::<f32>().expect("f32 on the cpu");
        return elements.into_iter().map(|element| u64::from(element.to_bits())).collect();
    }
    let wide = tensor.to_dtype(DType::F64).and_then(|wide| wide.to_vec::<f64>()).expect("floats on the cpu");
    wide.into_iter().map(f64::to_bits).collect()
}

pub(crate) fn softmax_by_parts(x: &Tensor) -> Result<Tensor> {
    let shifted = x.sub(&x.amax([-1], true)?)?;
    let exp = shifted.exp()?;
    exp.div(&exp.sum([-1], true)?)
}
