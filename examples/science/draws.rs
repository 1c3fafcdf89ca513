//! Random numbers that NumPy computes with the same bits: a hash of a counter.
//!
//! A number depends on its counter alone, so all of them are computed at once, in the kernel that uses them. opfuse has
//! generators of its own (`Tensor::rand`); this one is written out so that two programs can be compared.

use opfuse::{Result, Tensor};

const LOW_32_BITS: i64 = 0xFFFF_FFFF;

/// A number between 0 and 1 for each counter: the finalizer of MurmurHash3 for 32 bits (Appleby 2011).
pub(crate) fn uniform(counter: &Tensor) -> Result<Tensor> {
    let h = counter.bitwise_and(LOW_32_BITS)?;
    let h = h.bitwise_xor(&h.bitwise_right_shift(16)?)?;
    // Products wrap at 64 bits, which leaves the low 32 bits right.
    let h = h.mul(0x85EB_CA6B_i64)?.bitwise_and(LOW_32_BITS)?;
    let h = h.bitwise_xor(&h.bitwise_right_shift(13)?)?;
    let h = h.mul(0xC2B2_AE35_i64)?.bitwise_and(LOW_32_BITS)?;
    let h = h.bitwise_xor(&h.bitwise_right_shift(16)?)?;
    h.add(0.5)?.mul(0.5f64.powi(32))
}

/// A normal number for each counter: the quantile of the uniform one.
pub(crate) fn normal(counter: &Tensor) -> Result<Tensor> {
    uniform(counter)?.mul(2.0)?.sub(1.0)?.erfinv()?.mul(std::f64::consts::SQRT_2)
}
