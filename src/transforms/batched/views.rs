//! Views of mapped tensors: adapts the arguments of the view of one slice to the physical view.

use crate::dispatch::rows::call;
use crate::error::Result;
use crate::ir::attrs::{Along, AsStrided, Attributes, Dims, Part, Shape, ints};
use crate::ir::{Attr, Attrs, Op, TensorType};
use crate::tensor::handle::Tensor;
use crate::transforms::batched::rules::{pad, shifted};
use crate::transforms::batched::{Operands, physical_sizes};

/// How the arguments of a view are adapted.
enum Rule {
    /// The argument is the sizes of the result.
    Sizes,
    /// Like `Sizes`, but dims may be added in front of those of the slice.
    Expand,
    /// The argument is an order of all dims.
    Order,
    /// The arguments with these names are dims.
    Dims(&'static [&'static str]),
    /// The argument is a new dim of the result.
    NewDim,
    /// Removes dims of size 1: the physical view has the sizes of the result.
    Squeeze,
    /// Swaps the two dims of a matrix.
    Matrix,
    /// The arguments are sizes and strides.
    Memory,
    /// The arguments are sizes and strides, in the order of elements and not of memory.
    Part,
    /// No argument depends on dims.
    Same,
}

/// The rule of every view op.
const RULES: &[(Op, Rule)] = &[
    (Op::View, Rule::Sizes),
    (Op::UnsafeView, Rule::Sizes),
    (Op::Expand, Rule::Expand),
    (Op::Permute, Rule::Order),
    (Op::Transpose, Rule::Dims(&["dim0", "dim1"])),
    (Op::Diagonal, Rule::Dims(&["dim1", "dim2"])),
    (Op::Unfold, Rule::Dims(&["dimension"])),
    (Op::T, Rule::Matrix),
    (Op::Squeeze, Rule::Squeeze),
    (Op::Unsqueeze, Rule::NewDim),
    (Op::Select, Rule::Dims(&["dim"])),
    (Op::Slice, Rule::Dims(&["dim"])),
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
        Rule::Sizes => call(op, &[value], &Attrs::from(Shape { size: ints(&sizes()) })),
        Rule::Expand => pad(value, result.rank() - rank)?.expand(&sizes()[..]),
        Rule::Order => {
            let dims = Dims::read(&attrs).dims.iter().map(|&dim| shifted(op, dim, rank)).collect::<Result<Vec<_>>>()?;
            value.permute([&[0], &dims[..]].concat())
        }
        Rule::Dims(dims) => {
            for (attr, _) in attrs.iter_mut().zip(op.attr_names()).filter(|(_, name)| dims.contains(name)) {
                *attr = Attr::int(shifted(op, attr.as_int().unwrap_or(0), rank)?);
            }
            // Scalar slices get a dim to work along.
            let view = call(op, &[&pad(value, usize::from(rank == 0))?], &attrs)?;
            if rank == 0 { view.view(&sizes()[..]) } else { Ok(view) }
        }
        Rule::NewDim => value.unsqueeze(shifted(op, Along::read(&attrs).dim, rank + 1)?),
        Rule::Squeeze => value.view(&sizes()[..]),
        Rule::Matrix if rank < 2 => Ok(value.clone()),
        Rule::Matrix => value.transpose(1, 2),
        Rule::Memory => {
            let mut window = AsStrided::read(&attrs);
            window.size.insert(0, operands.level.size as i64);
            window.stride.insert(0, value.strides()[0] as i64);
            call(op, &[value], &Attrs::from(window))
        }
        Rule::Part => {
            let mut part = Part::read(&attrs);
            part.size.insert(0, operands.level.size as i64);
            part.stride.insert(0, operand.ty.numel() as i64);
            call(op, &[&value.contiguous()?], &Attrs::from(part))
        }
        Rule::Same => call(op, &[value], &attrs),
    };
    physical.map(Some)
}
