//! Batching rules: the physical call of an op, by what the op means.
//!
//! All rules take operands with the mapped dim in front and return a result with it in front. Arguments that count the
//! dims of one slice are changed to count the physical dims, where the slice begins at dim 1.

use crate::dispatch::builtins::operator;
use crate::dispatch::rows::call;
use crate::dispatch::schema::Type;
use crate::error::Result;
use crate::ir::attrs::{Along, Attributes, Overlay, WindowProduct};
use crate::ir::shape::normalize_dim;
use crate::ir::{
    Attr, Attrs, Graph, GraphFn, Meaning, MemoryFormat, NodeId, NodeKind, Op, Routine, Rule, SideTable, TensorType,
};
use crate::ops::arguments::device_of;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;
use crate::transforms::batched::{Operand, Operands, gathers, physical_sizes, views};
use smallvec::SmallVec;

/// The outcome of a rule.
pub(super) enum Applied {
    /// The physical result, with the mapped dim in front.
    Physical(Tensor),
    /// The result for the caller.
    Wrapped(Tensor),
    /// There is no rule.
    NoRule,
}

/// Applies the rule of an op. `tensors` are the operands as given. `result` is the type of one slice.
pub(super) fn apply(
    op: Op,
    operands: &Operands,
    tensors: &[&Tensor],
    attrs: &Attrs,
    result: &TensorType,
) -> Result<Applied> {
    let physical = match &op.row().meaning {
        Meaning::Body(rule, _) => Some(match channels_last(attrs) {
            Some(order) => in_order(op, operands, attrs, order)?,
            None => pointwise(op, *rule, operands, attrs)?,
        }),
        Meaning::Fold(_) => along_dims(op, operands, attrs, result)?,
        Meaning::Decompose(parts) => match along_dims(op, operands, attrs, result)? {
            Some(physical) => Some(physical),
            None => return in_parts(*parts, tensors, attrs).map(Applied::Wrapped),
        },
        Meaning::View(_) | Meaning::Window(_) => views::view(op, operands, attrs, result)?,
        Meaning::Product => Some(product(operands, result)?),
        Meaning::Gather(kind) => Some(gathers::gather(*kind, operands, attrs, result)?),
        Meaning::Routine(Routine::WindowProduct) => Some(window_product(operands, attrs, result)?),
        Meaning::Routine(_) => Some(routine(op, operands, attrs, result)?),
        Meaning::Concat => Some(concat(op, operands, attrs, result)?),
        Meaning::Overlay => Some(overlay(op, operands, attrs)?),
        // They have no tensor operand.
        Meaning::Fill | Meaning::Range => None,
    };
    Ok(physical.map_or(Applied::NoRule, Applied::Physical))
}

/// A batched product broadcasts the leading dims. If the result is wider than the operands, these are converted first.
fn product(operands: &Operands, result: &TensorType) -> Result<Tensor> {
    let [left, right] = [0, 1].map(|index| &operands.list[index].value);
    if left.dtype() == result.dtype {
        return left.matmul(right);
    }
    left.to_dtype(result.dtype)?.matmul(&right.to_dtype(result.dtype)?)
}

/// A batched product of a copy of the windows.
fn window_product(operands: &Operands, attrs: &Attrs, result: &TensorType) -> Result<Tensor> {
    let [left, windows] = [0, 1].map(|index| &operands.list[index].value);
    let ty = &operands.list[1].ty;
    // The batch dims of the windows, and the first dim of their columns.
    let (batch, columns) = (2, 2 + WindowProduct::read(attrs).inner as usize);
    let product = |sizes: &[usize]| sizes.iter().product::<usize>() as i64;
    let mapped = windows.sizes().len() - ty.rank();
    let mut sizes: Vec<i64> = windows.sizes()[..mapped + batch].iter().map(|&size| size as i64).collect();
    sizes.extend([product(&ty.sizes[batch..columns]), product(&ty.sizes[columns..])]);
    // The factors of a row may be several dims.
    let rows = left.sizes().len() - operands.list[0].ty.rank() + batch + 1;
    let mut factors: Vec<i64> = left.sizes()[..rows].iter().map(|&size| size as i64).collect();
    factors.push(product(&left.sizes()[rows..]));
    let product = left.reshape(&factors[..])?.matmul(&windows.reshape(&sizes[..])?)?;
    product.reshape(&physical_sizes(operands.level.size, &result.sizes)[..])
}

/// Slices are aligned at their last dims, so slices of lower rank get dims of size 1 after the mapped dim.
fn pointwise(op: Op, rule: Rule, operands: &Operands, attrs: &Attrs) -> Result<Tensor> {
    let types = operands.types();
    let rank = types.iter().map(|ty| ty.rank()).max().unwrap_or(0);
    let compute = rule.compute(op.name(), &types, attrs)?;
    let aligned = |(index, operand): (usize, &Operand)| {
        let mut value = operand.value.clone();
        if !operand.is_mapped {
            return Ok(value);
        }
        if operand.ty.rank() == 0 {
            // A 0-dim slice promotes weakly. Its physical tensor has a dim and would not.
            value = compute.of_operand(index).map_or_else(|| Ok(value.clone()), |dtype| value.to_dtype(dtype))?;
        }
        pad(&value, rank - operand.ty.rank())
    };
    let values = operands.list.iter().enumerate().map(aligned).collect::<Result<SmallVec<[Tensor; 4]>>>()?;
    call(op, &values.iter().collect::<SmallVec<[&Tensor; 4]>>(), attrs)
}

/// The order of the physical dims in memory, if an argument asks for channels last.
fn channels_last(attrs: &Attrs) -> Option<&'static [i64]> {
    attrs.iter().find_map(|attr| match attr.memory_format()? {
        MemoryFormat::ChannelsLast => Some(&[0, 1, 3, 4, 2][..]),
        MemoryFormat::ChannelsLast3d => Some(&[0, 1, 3, 4, 5, 2][..]),
        MemoryFormat::Preserve | MemoryFormat::Contiguous => None,
    })
}

/// Calls an op so that the dims of its result lie in memory in `order`.
fn in_order(op: Op, operands: &Operands, attrs: &Attrs, order: &[i64]) -> Result<Tensor> {
    let mut attrs = attrs.clone();
    for format in attrs.iter_mut().filter(|attr| attr.memory_format().is_some()) {
        *format = MemoryFormat::Contiguous.into();
    }
    let mut back = vec![0; order.len()];
    order.iter().zip(0..).for_each(|(&dim, at)| back[dim as usize] = at);
    call(op, &[&operands.list[0].value.permute(order)?], &attrs)?.permute(back)
}

/// Inserts `n` dims of size 1 after the first dim.
pub(super) fn pad(value: &Tensor, n: usize) -> Result<Tensor> {
    (0..n).try_fold(value.clone(), |value, _| value.unsqueeze(1))
}

/// A parameter that holds dims.
struct DimArgument {
    is_list: bool,
    /// Whether an empty list stands for all dims. Parameters whose list has no declared length take it literally.
    empty_is_all: bool,
}

/// For each attribute: whether it is a parameter called `dim`, `dims`, `dim0`, …. `None` if shifting dims is not enough
/// to adapt the op.
fn dim_arguments(op: Op) -> Result<Option<SmallVec<[Option<DimArgument>; 4]>>> {
    let mut found = SmallVec::new();
    for argument in operator(op)?.schema().map_or(&[][..], |schema| &schema.arguments) {
        // `input_sizes` would have to change with the dims. The parts of the op handle it.
        if argument.name == "input_sizes" {
            return Ok(None);
        }
        let ty = if let Type::Optional(inner) = &argument.ty { inner } else { &argument.ty };
        // Whether an optional tensor is present is an attribute.
        let is_attr = !ty.holds_tensors() || matches!(argument.ty, Type::Optional(_));
        let is_dims = argument.name.trim_end_matches(char::is_numeric).trim_end_matches('s') == "dim";
        if is_attr {
            let empty_is_all = !matches!(argument.ty, Type::List(_, None));
            found.push(is_dims.then_some(DimArgument { is_list: matches!(ty, Type::List(..)), empty_is_all }));
        }
    }
    Ok(Some(found).filter(|found: &SmallVec<_>| found.iter().any(Option::is_some)))
}

/// The physical dim of a dim of one slice.
pub(super) fn shifted(op: Op, dim: i64, rank: usize) -> Result<i64> {
    Ok(normalize_dim(op.name(), dim, rank)? as i64 + 1)
}

/// An op of one operand that works along dims and treats all other dims alike.
fn along_dims(op: Op, operands: &Operands, attrs: &Attrs, result: &TensorType) -> Result<Option<Tensor>> {
    let ([operand], Some(arguments)) = (&operands.list[..], dim_arguments(op)?) else { return Ok(None) };
    // A list that is not of dims, such as sizes, would have to change too.
    if attrs.iter().zip(&arguments).any(|(attr, argument)| matches!(attr, Attr::Ints(_)) && argument.is_none()) {
        return Ok(None);
    }
    let rank = operand.ty.rank();
    // Scalar slices get a dim to work along.
    let mut value = if rank == 0 { operand.value.unsqueeze(1)? } else { operand.value.clone() };
    let mut attrs = attrs.clone();
    for (attr, argument) in attrs.iter_mut().zip(arguments) {
        let Some(DimArgument { is_list, empty_is_all }) = argument else { continue };
        *attr = match &*attr {
            Attr::Scalar(dim) => Attr::int(shifted(op, dim.as_i64(), rank)?),
            Attr::Ints(dims) if !dims.is_empty() => {
                Attr::Ints(dims.iter().map(|&dim| shifted(op, dim, rank)).collect::<Result<_>>()?)
            }
            Attr::Ints(_) if !empty_is_all => Attr::ints(&[]),
            Attr::Ints(_) => Attr::Ints((1..value.dim() as i64).collect()),
            Attr::None if is_list => Attr::Ints((1..value.dim() as i64).collect()),
            Attr::None if matches!(op.row().meaning, Meaning::Fold(_)) => {
                value = value.reshape(&[operands.level.size, operand.ty.numel()][..])?;
                Attr::int(1)
            }
            Attr::None | Attr::DType(_) | Attr::MemoryFormat(_) | Attr::Str(_) => return Ok(None),
        };
    }
    let physical = call(op, &[&value], &attrs)?;
    physical.reshape(&physical_sizes(operands.level.size, &result.sizes)[..]).map(Some)
}

/// Runs a decomposition. Each of its ops is a mapped call.
fn in_parts(parts: GraphFn, tensors: &[&Tensor], attrs: &Attrs) -> Result<Tensor> {
    let mut graph = Graph::new();
    let inputs: SmallVec<[_; 4]> = tensors.iter().map(|tensor| graph.input(tensor.ty())).collect();
    let output = parts(&mut graph, &inputs, attrs)?;
    let device = device_of(tensors);
    let mut values: SideTable<NodeId, Tensor> = SideTable::new();
    for (_, node) in graph.nodes() {
        values.push(match node.kind {
            NodeKind::Input(index) => tensors[index as usize].clone(),
            NodeKind::Number(number) => Tensor::number(number)?,
            NodeKind::Extent(count) => observer::extent(count as usize)?,
            NodeKind::Op(op) => {
                let args: SmallVec<[&Tensor; 4]> = node.args.iter().map(|&arg| &values[arg]).collect();
                let made = call(op, &args, &node.attrs)?;
                // Ranges and fills have no operand that says where they are.
                if args.is_empty() && made.device() != device { made.to_device(device)? } else { made }
            }
        });
    }
    Ok(values[output].clone())
}

/// The windows of all slices as one window, with the mapped dim outermost.
fn overlay(op: Op, operands: &Operands, attrs: &Attrs) -> Result<Tensor> {
    let values = operands.list.iter().map(|operand| operand.spread(operands.level.size));
    let values = values.collect::<Result<SmallVec<[Tensor; 4]>>>()?;
    let mut window = Overlay::read(attrs);
    window.stride.insert(0, operands.list[0].ty.numel() as i64);
    call(op, &values.iter().collect::<SmallVec<[&Tensor; 4]>>(), &Attrs::from(window))
}

fn concat(op: Op, operands: &Operands, attrs: &Attrs, result: &TensorType) -> Result<Tensor> {
    let (rank, size) = (result.rank(), operands.level.size);
    let dim = shifted(op, Along::read(attrs).dim, rank)?;
    let mut nothing = physical_sizes(size, &result.sizes);
    nothing[dim as usize] = 0;
    let values = operands.list.iter().map(|operand| match operand.spread(size)? {
        // An empty vector can be concatenated with tensors of any rank.
        value if operand.ty.rank() != rank => value.reshape(&nothing[..]),
        value => Ok(value),
    });
    let values = values.collect::<Result<SmallVec<[Tensor; 4]>>>()?;
    call(op, &values.iter().collect::<SmallVec<[&Tensor; 4]>>(), &Attrs::from(Along { dim }))
}

/// A routine treats all lines along its dim alike.
fn routine(op: Op, operands: &Operands, attrs: &Attrs, result: &TensorType) -> Result<Tensor> {
    let spread = |operand: &Operand| {
        let value = operand.spread(operands.level.size)?;
        // Scalar slices get a dim to work along.
        if operand.ty.rank() == 0 { value.unsqueeze(1) } else { Ok(value) }
    };
    let values = operands.list.iter().map(spread).collect::<Result<SmallVec<[Tensor; 4]>>>()?;
    let rank = operands.list[0].ty.rank();
    let mut attrs = attrs.clone();
    for (attr, argument) in attrs.iter_mut().zip(dim_arguments(op)?.unwrap_or_default()) {
        if argument.is_some() {
            *attr = Attr::int(shifted(op, attr.as_int().unwrap_or(0), rank)?);
        }
    }
    let physical = call(op, &values.iter().collect::<SmallVec<[&Tensor; 4]>>(), &attrs)?;
    physical.reshape(&physical_sizes(operands.level.size, &result.sizes)[..])
}
