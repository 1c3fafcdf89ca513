//! Inputs that are given twice.

use crate::tensor::handle::Tensor;
use smallvec::SmallVec;
use std::collections::HashMap;

/// Positions of inputs that are the same tensor.
pub(crate) type Repeats = SmallVec<[(usize, usize); 1]>;

/// The inputs that are the same tensor as an earlier one: the position of that one, and their own.
pub(crate) fn repeats(inputs: &[&Tensor]) -> Repeats {
    /// So many inputs are compared with each other; more are looked up.
    const FEW: usize = 16;
    let mut repeats = Repeats::new();
    let mut known = HashMap::new();
    for (index, input) in inputs.iter().enumerate().filter(|(_, input)| input.as_number().is_none()) {
        let first = match inputs.len() <= FEW {
            true => inputs[..index].iter().position(|first| first.is_handle_of(input)),
            false => Some(*known.entry(input.id()).or_insert(index)).filter(|&first| first < index),
        };
        repeats.extend(first.map(|first| (first, index)));
    }
    repeats
}
