//! The operands of a call. `benches/peers/python/sweep_peer.py` makes the same elements.

use super::text::Operand;
use crate::workloads;
use opfuse::{DType, Result, Tensor};

/// The operand with that number in its call.
pub(crate) fn tensor(operand: &Operand, number: u64) -> Result<Tensor> {
    let Operand { dtype, sizes, .. } = operand;
    let n = sizes.len();
    let mut stored = sizes.clone();
    if operand.is("t") {
        stored.swap(n - 2, n - 1);
        return elements(operand, number, &stored)?.to_dtype(*dtype)?.transpose(-2, -1);
    }
    if operand.is("s") {
        stored[n - 1] *= 2;
        let wide = elements(operand, number, &stored)?.to_dtype(*dtype)?;
        return wide.slice(-1, 0, stored[n - 1] as i64, 2);
    }
    if operand.is("w") {
        stored[n - 1] += 8;
        let wide = elements(operand, number, &stored)?.to_dtype(*dtype)?;
        return wide.slice(-1, 1, sizes[n - 1] as i64 + 1, 1);
    }
    if operand.is("b") {
        stored[0] = 1;
        let sizes: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
        return elements(operand, number, &stored)?.to_dtype(*dtype)?.expand(&sizes[..]);
    }
    if operand.is("cl") {
        let channels = stored.remove(1);
        stored.push(channels);
        let order: Vec<i64> = [0, n as i64 - 1].into_iter().chain(1..n as i64 - 1).collect();
        return elements(operand, number, &stored)?.to_dtype(*dtype)?.permute(&order[..]);
    }
    elements(operand, number, &stored)?.to_dtype(*dtype)
}

/// Elements in the order of memory, as f32, or as f64 for whole numbers.
fn elements(operand: &Operand, number: u64, sizes: &[usize]) -> Result<Tensor> {
    let count: usize = sizes.iter().product();
    let last = sizes.last().copied().unwrap_or(1);
    let numbers = |value: &dyn Fn(usize) -> f64| Tensor::from_vec((0..count).map(value).collect(), sizes);
    if operand.is("perm") {
        return numbers(&|i| ((i as u64 * 7919) % count as u64) as f64);
    }
    if operand.is("sorted") {
        return numbers(&|i| (i % last) as f64 / last as f64);
    }
    let (low, high) = operand.range.unwrap_or(match operand.dtype {
        DType::Bool => (0.0, 2.0),
        DType::U8 => (0.0, 200.0),
        dtype if dtype.is_float() => (-1.0, 1.0),
        _ => (-100.0, 100.0),
    });
    if operand.dtype.is_float() {
        return workloads::inputs::uniform_in(number, sizes, low as f32, high as f32);
    }
    let unit = workloads::inputs::uniform_in(number, sizes, 0.0, 1.0)?.to_dtype(DType::F64)?;
    ((unit * (high - low))? + low)?.floor()
}
