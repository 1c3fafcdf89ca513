//! `vmap` in an exported program. The export writes down where a level of `vmap` begins and ends, and which tensors
//! enter and leave it. The calls between are recorded as they look to one slice.

use crate::dispatch::value::Value;
use crate::error::Result;
use crate::exported::run::{malformed, tensor};
use crate::transforms::batched::{Randomness, Session, enter};
use crate::transforms::vmap::unmapped;

/// A step of a `vmap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MapOp {
    /// A level begins: how many slices, and what random operators do.
    Begin,
    /// A tensor enters a level: tensor, mapped dim, level.
    Enter,
    /// A tensor leaves a level: tensor, level, number of slices, position of the dim.
    Leave,
    /// The innermost level ends.
    End,
}

/// The levels that were entered, the innermost last.
#[derive(Default)]
pub(super) struct Levels(Vec<(Session, usize)>);

impl Drop for Levels {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

impl Levels {
    /// The level of that number; they count from 1.
    fn at(&self, number: i64) -> Result<&(Session, usize)> {
        let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        at.and_then(|at| self.0.get(at)).ok_or_else(malformed)
    }
}

impl MapOp {
    /// The step of that name.
    pub(super) fn from_name(name: &str) -> Option<MapOp> {
        Some(match name {
            "_vmap_increment_nesting" => MapOp::Begin,
            "_add_batch_dim" => MapOp::Enter,
            "_remove_batch_dim" => MapOp::Leave,
            "_vmap_decrement_nesting" => MapOp::End,
            _ => return None,
        })
    }

    /// Makes the step.
    ///
    /// # Errors
    /// If the arguments are not those of the step, or if there is no such level or dim.
    pub(super) fn apply(self, args: &[Value], levels: &mut Levels) -> Result<Option<Value>> {
        match (self, args) {
            (MapOp::Begin, [Value::Int(size), randomness]) => {
                let size = usize::try_from(*size).map_err(|_| malformed())?;
                let randomness = match randomness {
                    Value::Str(text) if &**text == "different" => Randomness::Different,
                    Value::Str(text) if &**text == "same" => Randomness::Same,
                    _ => Randomness::Error,
                };
                levels.0.push((enter(size, randomness), size));
                Ok(None)
            }
            (MapOp::Enter, [x, Value::Int(dim), Value::Int(level)]) => {
                let x = tensor(x)?;
                let rank = x.dim() as i64;
                let dim = usize::try_from(if *dim < 0 { dim + rank } else { *dim }).ok();
                let dim = dim.filter(|&dim| dim < x.dim()).ok_or_else(malformed)?;
                levels.at(*level)?.0.map(&x, dim).map(|x| Some(Value::Tensor(x)))
            }
            (MapOp::Leave, [x, Value::Int(level), Value::Int(_), Value::Int(dim)]) => {
                let (session, size) = levels.at(*level)?;
                let x = tensor(x)?;
                unmapped(session, *size, &x, x.dim(), Some(*dim)).map(|x| Some(Value::Tensor(x)))
            }
            (MapOp::End, []) => levels.0.pop().map(|_| None).ok_or_else(malformed),
            _ => Err(malformed()),
        }
    }
}
