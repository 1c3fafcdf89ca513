//! Views of mapped tensors: the arguments of the view of one slice as those of the physical view.

use super::{Operands, physical_sizes, rules::pad, rules::shifted};
use crate::dispatch::Tensor;
use crate::dispatch::register::call;
use crate::error::Result;
use crate::ir::{Attr, Attrs, Op, TensorType};

/// How the arguments of a view change.
enum Rule {
    /// The sizes of the result are given.
    Sizes,
    /// As `Sizes`, for dims that are added in front of those of the slice.
    Expand,
    /// The order of all dims.
    Order,
    /// The first so many arguments are dims.
    Dims(usize),
    /// The first argument is a dim of the result.
    NewDim,
    /// The dims of size 1 among those named.
    Squeeze,
    /// The two dims of a matrix are swapped.
    Matrix,
}

/// The rule of every view of the op table.
const RULES: &[(Op, Rule)] = &[
    (Op::View, Rule::Sizes),
    (Op::Expand, Rule::Expand),
    (Op::Permute, Rule::Order),
    (Op::Transpose, Rule::Dims(2)),
    (Op::T, Rule::Matrix),
    (Op::Squeeze, Rule::Squeeze),
    (Op::Unsqueeze, Rule::NewDim),
    (Op::Select, Rule::Dims(1)),
    (Op::Slice, Rule::Dims(1)),
];

/// The physical view, or `None` if the op has no rule.
pub(super) fn view(op: Op, operands: &Operands, attrs: &Attrs, result: &TensorType) -> Result<Option<Tensor>> {
    let Some((_, rule)) = RULES.iter().find(|(of, _)| *of == op) else { return Ok(None) };
    let operand = &operands.list[0];
    let (value, rank) = (&operand.value, operand.ty.rank());
    let sizes = || physical_sizes(operands.level.size, &result.sizes);
    let mut attrs = attrs.clone();
    let physical = match rule {
        Rule::Sizes => value.view(&sizes()[..]),
        Rule::Expand => pad(value, result.rank() - rank)?.expand(&sizes()[..]),
        Rule::Order => {
            let dims = attrs[0].list().iter().map(|&dim| shifted(op, dim, rank)).collect::<Result<Vec<_>>>()?;
            value.permute([&[0], &dims[..]].concat())
        }
        // A slice without dims has nothing to swap.
        Rule::Dims(2) if rank == 0 => Ok(value.clone()),
        Rule::Dims(n) => {
            for attr in &mut attrs[..*n] {
                *attr = Attr::int(shifted(op, attr.as_int().unwrap_or(0), rank)?);
            }
            call(op, &[value], &attrs)
        }
        Rule::NewDim => value.unsqueeze(shifted(op, attrs[0].as_int().unwrap_or(0), rank + 1)?),
        Rule::Squeeze => {
            let named = attrs[0].list().iter().map(|&dim| shifted(op, dim, rank)).collect::<Result<Vec<_>>>()?;
            let is_named = |dim: &usize| named.is_empty() || named.contains(&(*dim as i64));
            let dims = (1..=rank).filter(|dim| value.sizes()[*dim] == 1 && is_named(dim));
            let dims: Vec<i64> = dims.map(|dim| dim as i64).collect();
            // An empty list would name the mapped dim too.
            if dims.is_empty() { Ok(value.clone()) } else { value.squeeze(dims) }
        }
        Rule::Matrix if rank < 2 => Ok(value.clone()),
        Rule::Matrix => value.transpose(1, 2),
    };
    physical.map(Some)
}
