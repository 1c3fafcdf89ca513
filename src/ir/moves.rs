//! Rows that copy elements to other places: padding, writing over a part, reversing, repeating.
//!
//! Results are row-major. A part of a tensor is described by a layout: that of the view op, applied to a row-major
//! layout. [`Op::Overlay`] writes to it.

use super::attr::{Attr, MemoryFormat};
use super::attrs::{ints, *};
use super::decompose::copied;
use super::graph::{Graph, NodeId};
use super::op::Op;
use super::row::{Call, ViewRule};
use super::scalar::Scalar;
use super::shape::{Layout, Sizes, checked_numel, contiguous_strides, normalize_dim};
use super::types::TensorType;
use super::{DType, view};
use crate::error::{Error, Result};
use smallvec::SmallVec;

/// Where a padded tensor lands.
struct Padding {
    /// Sizes of the result.
    sizes: Sizes,
    /// Per dim of the operand, the first element that is kept and one past the last.
    kept: SmallVec<[(usize, usize); 6]>,
    /// Where the kept elements begin in the result.
    starts: Sizes,
}

fn padding(ty: &TensorType, pad: &[i64]) -> Result<Padding> {
    let rank = ty.rank();
    let refuse = |what: String, hint: &str| Err(Error::shape("constant_pad_nd", what, hint));
    if !pad.len().is_multiple_of(2) || pad.len() > 2 * rank {
        let what = format!("a pad list of {} numbers is given for {rank} dims", pad.len());
        return refuse(what, "pass one pair (before, after) per dim, the last dim first");
    }
    let mut out = Padding { sizes: ty.sizes.clone(), kept: SmallVec::new(), starts: Sizes::new() };
    for (dim, &size) in ty.sizes.iter().enumerate() {
        let pair = 2 * (rank - 1 - dim);
        let (before, after) = pad.get(pair..pair + 2).map_or((0, 0), |pair| (pair[0], pair[1]));
        let cut = |count: i64| usize::try_from(count.min(0).unsigned_abs()).unwrap_or(usize::MAX);
        let room = |count: i64| count.max(0) as usize;
        let Some(left) = size.checked_sub(cut(before)).and_then(|left| left.checked_sub(cut(after))) else {
            let what = format!("the input size {size}, plus negative padding {before} and {after}, is negative");
            return refuse(what, "cut off at most the size of the dim");
        };
        let Some(padded) = left.checked_add(room(before)).and_then(|size| size.checked_add(room(after))) else {
            return refuse(
                format!("padding {before} and {after} is too large"),
                "its bytes must fit the address space",
            );
        };
        out.sizes[dim] = padded;
        out.kept.push((cut(before), cut(before) + left));
        out.starts.push(room(before));
    }
    checked_numel("constant_pad_nd", &out.sizes, ty.dtype.size())?;
    Ok(out)
}

/// The type of a padded tensor: the dtype is kept, and every padded dim grows or shrinks. The value has to fit the
/// dtype.
pub fn padded(call: &Call<'_>) -> Result<TensorType> {
    let ConstantPadNd { pad, value } = ConstantPadNd::read(call.attrs);
    let padding = padding(call.args[0], &pad)?;
    if let Some(value) = value {
        value.need_fit("constant_pad_nd", call.args[0].dtype)?;
    }
    Ok(TensorType::contiguous(call.args[0].dtype, &padding.sizes))
}

/// Writes the kept elements over a fill.
pub fn constant_pad_nd(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let ty = graph[args[0]].ty.clone();
    let ConstantPadNd { pad, value } = ConstantPadNd::read(attrs);
    let padding = padding(&ty, &pad)?;
    let mut kept = args[0];
    for (dim, &(start, end)) in padding.kept.iter().enumerate() {
        if (start, end) != (0, ty.sizes[dim]) {
            let [start, end] = [start, end].map(|bound| Some(bound as i64));
            kept = graph.add(Op::Slice, &[kept], Slice { dim: dim as i64, start, end, step: 1 }.into())?;
        }
    }
    if graph[kept].ty.sizes == padding.sizes {
        return copied(graph, kept);
    }
    let fill = full(graph, &padding.sizes, value.unwrap_or(Scalar::Int(0)), ty.dtype)?;
    let strides = contiguous_strides(&padding.sizes);
    let offset = strides.iter().zip(&padding.starts).map(|(stride, start)| stride * start).sum();
    overlay(graph, fill, kept, &Layout { sizes: graph[kept].ty.sizes.clone(), strides, offset })
}

fn full(graph: &mut Graph, sizes: &[usize], value: Scalar, dtype: DType) -> Result<NodeId> {
    graph.add(Op::Full, &[], Full { size: ints(sizes), fill_value: value, dtype: Some(dtype) }.into())
}

/// Converts `over`, and writes it over the part `layout` of `under`, which counts as row-major.
fn overlay(graph: &mut Graph, under: NodeId, over: NodeId, layout: &Layout) -> Result<NodeId> {
    let dtype = graph[under].ty.dtype;
    let over = graph.cast(over, dtype)?;
    // An empty part may have an offset outside of `under`.
    let offset = if layout.numel() == 0 { 0 } else { layout.offset };
    let attrs = Overlay { stride: ints(&layout.strides), offset: offset as i64 };
    graph.add(Op::Overlay, &[under, over], attrs.into())
}

/// The type of a copy with a part replaced: that of the operand. The part and its replacement must have equal sizes.
fn replaced(call: &Call<'_>, rule: ViewRule) -> Result<TensorType> {
    let (under, over) = (call.args[0], call.args[1]);
    let part = rule(&Layout::contiguous(&under.sizes), call.attrs)?;
    if part.sizes != over.sizes {
        let what = format!(
            "expected src to have a size equal to the slice of self: src size = {:?}, slice size = {:?}",
            &over.sizes[..],
            &part.sizes[..]
        );
        return Err(Error::shape(call.name(), what, "expand or slice src to fit"));
    }
    Ok(TensorType::contiguous(under.dtype, &under.sizes))
}

fn replace(graph: &mut Graph, args: &[NodeId], attrs: &[Attr], rule: ViewRule) -> Result<NodeId> {
    let part = rule(&Layout::contiguous(&graph[args[0]].ty.sizes), attrs)?;
    overlay(graph, args[0], args[1], &part)
}

macro_rules! replacing {
    ($($(#[$doc:meta])* $infer:ident, $(#[$parts_doc:meta])* $parts:ident, $rule:path;)*) => {$(
        $(#[$doc])*
        pub fn $infer(call: &Call<'_>) -> Result<TensorType> {
            replaced(call, $rule)
        }

        $(#[$parts_doc])*
        pub fn $parts(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
            replace(graph, args, attrs, $rule)
        }
    )*};
}

replacing! {
    /// The type of `select_scatter`.
    select_replaced, /// Writes over one index of a dim.
    select_scatter, view::select;
    /// The type of `slice_scatter`.
    slice_replaced, /// Writes over a slice of a dim.
    slice_scatter, view::slice;
    /// The type of `diagonal_scatter`.
    diagonal_replaced, /// Writes over a diagonal.
    diagonal_scatter, view::diagonal;
}

/// The dims of a `flip`. A repeated one is an error.
fn flipped_dims(ty: &TensorType, attrs: &[Attr]) -> Result<SmallVec<[usize; 6]>> {
    let mut dims: SmallVec<[usize; 6]> = SmallVec::new();
    for dim in Dims::read(attrs).dims {
        let dim = normalize_dim("flip", dim, ty.rank())?;
        if dims.contains(&dim) {
            let what = format!("dim {dim} appears multiple times in the list of dims");
            return Err(Error::shape("flip", what, "name each dim once"));
        }
        dims.push(dim);
    }
    Ok(dims)
}

/// The type of `flip`: that of the operand, row-major.
pub fn flipped(call: &Call<'_>) -> Result<TensorType> {
    flipped_dims(call.args[0], call.attrs)?;
    Ok(TensorType::contiguous(call.args[0].dtype, &call.args[0].sizes))
}

/// Selects dims by a descending index: neighbours as one dim, where a view makes them one.
pub fn flip(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let ty = graph[args[0]].ty.clone();
    let dims = flipped_dims(&ty, attrs)?;
    let is_flipped = |dim: usize| dims.contains(&dim) && ty.sizes[dim] > 1;
    let (mut x, mut first) = (args[0], 0);
    while first < ty.rank() {
        let mut end = first + 1;
        if is_flipped(first) {
            let TensorType { sizes, strides, .. } = graph[x].ty.clone();
            let layout = Layout { sizes, strides, offset: 0 };
            let is_one = |end: usize| layout.view(&merged(&ty, first, end)).is_some();
            while end < ty.rank() && is_flipped(end) && is_one(end + 1) {
                end += 1;
            }
            x = reshaped(graph, x, &merged(&ty, first, end))?;
            x = backwards(graph, x, first)?;
            x = reshaped(graph, x, &ty.sizes)?;
        }
        first = end;
    }
    if x == args[0] { copied(graph, x) } else { Ok(x) }
}

/// The sizes with some neighbours as one dim.
fn merged(ty: &TensorType, first: usize, end: usize) -> Sizes {
    let (before, rest) = ty.sizes.split_at(first);
    let (own, after) = rest.split_at(end - first);
    before.iter().copied().chain([own.iter().product()]).chain(after.iter().copied()).collect()
}

fn reshaped(graph: &mut Graph, x: NodeId, sizes: &[usize]) -> Result<NodeId> {
    if graph[x].ty.sizes[..] == *sizes { Ok(x) } else { graph.add(Op::View, &[x], Shape { size: ints(sizes) }.into()) }
}

/// Selects a dim by a descending index.
fn backwards(graph: &mut Graph, x: NodeId, dim: usize) -> Result<NodeId> {
    let last = graph[x].ty.sizes[dim] as i64 - 1;
    let [start, end, step] = [last, -1, -1].map(Scalar::Int);
    let index = graph.add(Op::Arange, &[], Arange { start, end, step, dtype: Some(DType::I64) }.into())?;
    graph.add(Op::IndexSelect, &[x, index], Along { dim: dim as i64 }.into())
}

/// The sizes of the operand, with leading ones, and how often each is repeated.
fn repeats(ty: &TensorType, attrs: &[Attr]) -> Result<(Sizes, Sizes)> {
    let Repeat { repeats: list } = Repeat::read(attrs);
    let refuse = |what: &str, hint: &str| Err(Error::shape("repeat", format!("{what}: {:?}", &list[..]), hint));
    let Some(lead) = list.len().checked_sub(ty.rank()) else {
        let what = "number of dimensions of repeat dims can not be smaller than number of dimensions of tensor";
        return refuse(what, "pass one count per dim; counts of new dims come first");
    };
    if list.iter().any(|&count| count < 0) {
        return refuse("repeat counts cannot be negative", "pass 0 for no elements");
    }
    let mut sizes: Sizes = SmallVec::from_elem(1, lead);
    sizes.extend_from_slice(&ty.sizes);
    let counts: Sizes = list.iter().map(|&count| count as usize).collect();
    let spread: Sizes = counts.iter().chain(&sizes).copied().collect();
    checked_numel("repeat", &spread, ty.dtype.size())?;
    Ok((sizes, counts))
}

/// The type of `repeat`: the sizes are multiplied.
pub fn repeated(call: &Call<'_>) -> Result<TensorType> {
    let (sizes, counts) = repeats(call.args[0], call.attrs)?;
    let sizes: Sizes = sizes.iter().zip(&counts).map(|(size, count)| size * count).collect();
    Ok(TensorType::contiguous(call.args[0].dtype, &sizes))
}

/// Adds a dim before each, expands it, and merges the two.
pub fn repeat(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let (sizes, counts) = repeats(&graph[args[0]].ty, attrs)?;
    let ints = |sizes: &mut dyn Iterator<Item = usize>| -> Ints { sizes.map(|size| size as i64).collect() };
    let lone = ints(&mut sizes.iter().flat_map(|&size| [1, size]));
    let spread = ints(&mut sizes.iter().zip(&counts).flat_map(|(&size, &count)| [count, size]));
    let merged = ints(&mut sizes.iter().zip(&counts).map(|(size, count)| size * count));
    let x = graph.add(Op::View, args, Shape { size: lone }.into())?;
    let x = graph.add(Op::Expand, &[x], Expand { size: spread, implicit: false }.into())?;
    let x = graph.add(Op::Clone, &[x], Ordered { memory_format: MemoryFormat::Contiguous }.into())?;
    graph.add(Op::View, &[x], Shape { size: merged }.into())
}
