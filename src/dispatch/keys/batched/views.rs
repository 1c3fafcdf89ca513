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
    /// These arguments are dims.
    Dims(&'static [usize]),
    /// The first argument is a dim of the result.
    NewDim,
    /// Dims of size 1 go away: so they do in a view of the result's sizes.
    Squeeze,
    /// The two dims of a matrix are swapped.
    Matrix,
    /// Sizes and strides are given.
    Memory,
    /// Sizes and strides are given, counted in the order of elements.
    Part,
    /// No argument speaks of dims.
    Same,
}

/// The rule of every view of the op table.
const RULES: &[(Op, Rule)] = &[
    (Op::View, Rule::Sizes),
    (Op::UnsafeView, Rule::Sizes),
    (Op::Expand, Rule::Expand),
    (Op::Permute, Rule::Order),
    (Op::Transpose, Rule::Dims(&[0, 1])),
    (Op::Diagonal, Rule::Dims(&[1, 2])),
    (Op::Unfold, Rule::Dims(&[0])),
    (Op::T, Rule::Matrix),
    (Op::Squeeze, Rule::Squeeze),
    (Op::Unsqueeze, Rule::NewDim),
    (Op::Select, Rule::Dims(&[0])),
    (Op::Slice, Rule::Dims(&[0])),
    (Op::AsStrided, Rule::Memory),
    (Op::Part, Rule::Part),
    (Op::ViewDtype, Rule::Same),
    (Op::Alias, Rule::Same),
    (Op::Detach, Rule::Same),
];

/// The physical view, or `None` if the op has no rule.
pub(super) fn view(op: Op, operands: &Operands, attrs: &Attrs, result: &TensorType) -> Result<Option<Tensor>> {
    let Some((_, rule)) = RULES.iter().find(|(of, _)| *of == op) else { return Ok(None) };
    let operand = &operands.list[0];
    let (value, rank) = (&operand.value, operand.ty.rank());
    let sizes = || physical_sizes(operands.level.size, &result.sizes);
    let mut attrs = attrs.clone();
    let physical = match rule {
        Rule::Sizes => call(op, &[value], &[Attr::Ints(sizes().iter().map(|&size| size as i64).collect())]),
        Rule::Expand => pad(value, result.rank() - rank)?.expand(&sizes()[..]),
        Rule::Order => {
            let dims = attrs[0].list().iter().map(|&dim| shifted(op, dim, rank)).collect::<Result<Vec<_>>>()?;
            value.permute([&[0], &dims[..]].concat())
        }
        Rule::Dims(dims) => {
            for &dim in *dims {
                attrs[dim] = Attr::int(shifted(op, attrs[dim].as_int().unwrap_or(0), rank)?);
            }
            // A dim to work along, for slices that have none.
            let view = call(op, &[&pad(value, usize::from(rank == 0))?], &attrs)?;
            if rank == 0 { view.view(&sizes()[..]) } else { Ok(view) }
        }
        Rule::NewDim => value.unsqueeze(shifted(op, attrs[0].as_int().unwrap_or(0), rank + 1)?),
        Rule::Squeeze => value.view(&sizes()[..]),
        Rule::Matrix if rank < 2 => Ok(value.clone()),
        Rule::Matrix => value.transpose(1, 2),
        Rule::Memory => {
            for (attr, first) in [(0, operands.level.size as i64), (1, value.strides()[0] as i64)] {
                let behind = attrs[attr].list();
                attrs[attr] = Attr::Ints(std::iter::once(first).chain(behind).collect());
            }
            call(op, &[value], &attrs)
        }
        Rule::Part => {
            for (attr, first) in [(0, operands.level.size), (1, operand.ty.numel())] {
                let behind = attrs[attr].list();
                attrs[attr] = Attr::Ints(std::iter::once(first as i64).chain(behind).collect());
            }
            call(op, &[&value.contiguous()?], &attrs)
        }
        Rule::Same => call(op, &[value], &attrs),
    };
    physical.map(Some)
}
