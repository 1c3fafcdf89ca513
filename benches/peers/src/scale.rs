//! How a row gets larger, or smaller, than it is defined: `W02@0x8,0x8,0x8@3`.
//!
//! After the first `@` there is a word per operand. `AXISxTIMES` repeats it along an axis, `AXIS/PARTS` takes the first
//! of so many parts of it, and `-` leaves it as it is. After the second `@` stands the number of copies of all
//! operands, which calls use in turns. Repeating does not change what most rows add up to, and large operands are made
//! where they are used.

use opfuse::device::Device;
use opfuse::{Result, Tensor};

/// What is done to a row's operands.
pub(crate) struct Scale {
    operands: Vec<Change>,
    n_sets: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Nothing,
    Times { axis: usize, times: usize },
    Part { axis: usize, parts: usize },
}

impl Scale {
    /// The row's number, and its scale.
    ///
    /// # Errors
    /// If the text is not of the form above.
    pub(crate) fn of_name(name: &str) -> std::result::Result<(&str, Scale), String> {
        let mut parts = name.split('@');
        let id = parts.next().unwrap_or_default();
        let words = parts.next().unwrap_or_default().split(',').filter(|word| !word.is_empty());
        let operands = words.map(change).collect::<std::result::Result<Vec<Change>, String>>()?;
        let n_sets = parts.next().map_or(Ok(1), number)?;
        Ok((id, Scale { operands, n_sets }))
    }

    /// Whether operands stay as they are.
    pub(crate) fn is_plain(&self) -> bool {
        self.operands.iter().all(|&change| change == Change::Nothing)
    }

    /// The operands on a device, so many times.
    pub(crate) fn sets(&self, inputs: Vec<Tensor>, device: Device) -> Result<Vec<Vec<Tensor>>> {
        let changes = self.operands.iter().copied().chain(std::iter::repeat(Change::Nothing));
        let first: Vec<Tensor> =
            inputs.iter().zip(changes).map(|(input, change)| changed(input, change, device)).collect::<Result<_>>()?;
        let mut sets = Vec::new();
        for _ in 1..self.n_sets {
            sets.push(first.iter().map(Tensor::copy).collect::<Result<Vec<Tensor>>>()?);
        }
        sets.push(first);
        Ok(sets)
    }
}

fn change(word: &str) -> std::result::Result<Change, String> {
    if word == "-" {
        return Ok(Change::Nothing);
    }
    if let Some((axis, times)) = word.split_once('x') {
        return Ok(Change::Times { axis: number(axis)?, times: number(times)? });
    }
    let (axis, parts) = word.split_once('/').ok_or(format!("{word} is no change of an operand"))?;
    Ok(Change::Part { axis: number(axis)?, parts: number(parts)? })
}

fn number(text: &str) -> std::result::Result<usize, String> {
    text.parse().map_err(|_| format!("{text} is no number that fits here"))
}

fn changed(input: &Tensor, change: Change, device: Device) -> Result<Tensor> {
    match change {
        Change::Nothing => input.to_device(device),
        Change::Times { axis, times } => {
            let times: Vec<i64> = (0..input.dim()).map(|at| if at == axis { times as i64 } else { 1 }).collect();
            input.to_device(device)?.repeat(&times[..])
        }
        Change::Part { axis, parts } => {
            let size = (input.sizes()[axis] / parts).max(1);
            input.slice(axis as i64, 0, size as i64, 1)?.contiguous()?.to_device(device)
        }
    }
}
