//! Layout rules of the view ops: from the layout of the input and the arguments to the layout of the result.

use super::attr::Attr;
use super::attrs::*;
use super::dtype::DType;
use super::shape::{Layout, Sizes, checked_numel, infer_sizes, normalize_dim, normalize_dims};
use crate::error::{Error, Result};
use smallvec::SmallVec;

/// `view(size)`: strides must allow it without a copy.
pub fn view(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    let sizes = infer_sizes("view", &Shape::read(attrs).size, input.numel())?;
    input.view(&sizes).ok_or_else(|| {
        let what = format!(
            "view size {:?} is not compatible with input sizes {:?} and strides {:?}",
            &sizes[..],
            &input.sizes[..],
            &input.strides[..]
        );
        Error::shape("view", what, "at least one dimension spans across two contiguous subspaces; use reshape")
    })
}

/// `permute(dims)`.
pub fn permute(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    let Dims { dims: list } = Dims::read(attrs);
    let dims: SmallVec<[usize; 6]> =
        list.iter().map(|&dim| normalize_dim("permute", dim, input.rank())).collect::<Result<_>>()?;
    let mut sorted = dims.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..input.rank()) {
        let what = format!("dims {:?} are not an order of {} dims", &list[..], input.rank());
        return Err(Error::shape("permute", what, "name each dim once"));
    }
    Ok(input.permute(&dims))
}

/// `transpose(dim0, dim1)`.
pub fn transpose(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    let Transpose { dim0, dim1 } = Transpose::read(attrs);
    let dim = |dim: i64| normalize_dim("transpose", dim, input.rank());
    let (a, b) = (dim(dim0)?, dim(dim1)?);
    let mut dims: SmallVec<[usize; 6]> = (0..input.rank()).collect();
    if !dims.is_empty() {
        dims.swap(a, b);
    }
    Ok(input.permute(&dims))
}

/// `t()`.
pub fn t(input: &Layout, _: &[Attr]) -> Result<Layout> {
    match input.rank() {
        0 | 1 => Ok(input.clone()),
        2 => Ok(input.permute(&[1, 0])),
        rank => Err(Error::shape("t", format!("the input has {rank} dims"), "t takes at most 2; use transpose")),
    }
}

/// `expand(size)`; −1 keeps a size.
pub fn expand(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    let Expand { size: list, .. } = Expand::read(attrs);
    let lead = list.len().saturating_sub(input.rank());
    let mut sizes = Sizes::new();
    for (dim, &size) in list.iter().enumerate() {
        sizes.push(match (size, dim.checked_sub(lead)) {
            (0.., _) => size as usize,
            (-1, Some(own)) => input.sizes[own],
            _ => {
                let what = format!("the expanded size {:?} has {size} at dim {dim}", &list[..]);
                return Err(Error::shape(
                    "expand",
                    what,
                    "-1 keeps the size of an existing dim; no other negative size is legal",
                ));
            }
        });
    }
    checked_numel("expand", &sizes, 1)?;
    input.expand("expand", &sizes)
}

/// `squeeze(dims)`; an empty list drops no dim.
pub fn squeeze(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    match &DimList::read(attrs).dim[..] {
        [] => Ok(input.clone()),
        dims => Ok(input.squeeze(&normalize_dims("squeeze", dims, input.rank())?)),
    }
}

/// The layout itself: `alias`, `detach`.
pub fn alias(input: &Layout, _: &[Attr]) -> Result<Layout> {
    Ok(input.clone())
}

/// `diagonal(offset, dim1, dim2)`: the two dims are removed, and their diagonal becomes the last dim.
pub fn diagonal(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    let Diagonal { offset, dim1, dim2 } = Diagonal::read(attrs);
    let (dim1, dim2) = (normalize_dim("diagonal", dim1, input.rank())?, normalize_dim("diagonal", dim2, input.rank())?);
    if dim1 == dim2 || input.rank() < 2 {
        let what = format!("diagonal dimensions cannot be identical {dim1}, {dim2}");
        return Err(Error::shape("diagonal", what, "name two dims of a tensor that has them"));
    }
    let (rows, columns) = (input.sizes[dim1], input.sizes[dim2]);
    let shift = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
    let (skipped_rows, skipped_columns) = if offset < 0 { (shift, 0) } else { (0, shift) };
    let count = rows.saturating_sub(skipped_rows).min(columns.saturating_sub(skipped_columns));
    let mut out = input.clone();
    // An empty diagonal would start outside of the input.
    if count > 0 {
        out.offset += skipped_rows * input.strides[dim1] + skipped_columns * input.strides[dim2];
    }
    for dim in [dim1.max(dim2), dim1.min(dim2)] {
        out.sizes.remove(dim);
        out.strides.remove(dim);
    }
    out.sizes.push(count);
    out.strides.push(input.strides[dim1] + input.strides[dim2]);
    Ok(out)
}

/// `unfold(dimension, size, step)`: windows of `size` elements, `step` apart. The elements of a window become the last
/// dim.
pub fn unfold(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    let Unfold { dimension, size, step } = Unfold::read(attrs);
    let dim = normalize_dim("unfold", dimension, input.rank())?;
    let (extent, stride) = if input.rank() == 0 { (1, 1) } else { (input.sizes[dim], input.strides[dim]) };
    let fitting = usize::try_from(size).ok().filter(|&size| size <= extent);
    let (Some(size), Some(step)) = (fitting, usize::try_from(step).ok().filter(|&step| step > 0)) else {
        let what = format!(
            "windows of {size} elements, {step} apart: maximum size for tensor at dimension {dim} is {extent}, and \
             the step must be positive"
        );
        return Err(Error::shape("unfold", what, "pass a size that fits and a step of at least 1"));
    };
    let mut out = input.clone();
    if input.rank() > 0 {
        out.sizes[dim] = (extent - size) / step + 1;
        out.strides[dim] = stride.saturating_mul(step);
    }
    out.sizes.push(size);
    out.strides.push(stride);
    Ok(out)
}

/// `_part(size, stride, offset)`: like `as_strided`, but of a row-major input, and with an offset from its first
/// element. So the result depends on the elements of the input alone, and not on its storage.
pub fn part(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    let (mut part, _) = as_strided(input, DType::Bool, attrs)?;
    if !input.is_contiguous() || part.extent() > input.numel() {
        let (sizes, strides) = (&part.sizes[..], &part.strides[..]);
        let what = format!("sizes {sizes:?}, strides {strides:?} and offset {} of {:?}", part.offset, &input.sizes[..]);
        return Err(Error::shape("_part", what, "the input must be row-major, and the part inside it"));
    }
    part.offset += input.offset;
    Ok(part)
}

/// `as_strided(size, stride, storage_offset)`: the default offset is that of the input.
pub fn as_strided(input: &Layout, dtype: DType, attrs: &[Attr]) -> Result<(Layout, DType)> {
    let AsStrided { size: sizes, stride: strides, storage_offset } = AsStrided::read(attrs);
    if sizes.len() != strides.len() {
        let what = format!(
            "mismatch in length of strides and shape: {} sizes and {} strides are given",
            sizes.len(),
            strides.len()
        );
        return Err(Error::shape("as_strided", what, "pass one stride per size"));
    }
    let counts = |what: &str, numbers: &[i64]| {
        let count = |&number: &i64| {
            usize::try_from(number).map_err(|_| {
                let what = format!("{what} {numbers:?} has a negative number");
                Error::shape("as_strided", what, "sizes, strides and offsets count elements")
            })
        };
        numbers.iter().map(count).collect::<Result<Sizes>>()
    };
    let offset = match storage_offset {
        Some(offset) => counts("storage_offset", &[offset])?[0],
        None => input.offset,
    };
    let (sizes, strides) = (counts("size", &sizes)?, counts("stride", &strides)?);
    checked_numel("as_strided", &sizes, 1)?;
    Ok((Layout { sizes, strides, offset }, dtype))
}

/// `view(dtype)`: the same bytes as elements of another dtype. The last dim grows or shrinks with the width.
pub fn reinterpret(input: &Layout, from: DType, attrs: &[Attr]) -> Result<(Layout, DType)> {
    let to = ViewDtype::read(attrs).dtype.unwrap_or(from);
    if to.is_complex() {
        let hint = "numbers side by side in a last dim of size 2 are complex numbers by view_as_complex()";
        return Err(Error::unsupported("view_dtype", to, "real dtypes", hint));
    }
    let mut out = input.clone();
    if from.size() == to.size() {
        return Ok((out, to));
    }
    let refuse = |what: String| {
        let hint = "widths of elements may only differ along a dense last dim that divides evenly; use contiguous()";
        Err(Error::shape("view", format!("{what} to view {from} as {to} (different element sizes)"), hint))
    };
    let Some(last) = input.rank().checked_sub(1) else {
        return refuse("self.dim() cannot be 0".into());
    };
    if input.strides[last] != 1 {
        return refuse(format!("self.stride(-1) must be 1, not {},", input.strides[last]));
    }
    if from.size() > to.size() {
        let ratio = from.size() / to.size();
        out.sizes[last] *= ratio;
        out.strides[..last].iter_mut().for_each(|stride| *stride *= ratio);
        out.offset *= ratio;
        return Ok((out, to));
    }
    let ratio = to.size() / from.size();
    if !input.sizes[last].is_multiple_of(ratio) {
        return refuse(format!("self.size(-1) must be divisible by {ratio}, not {},", input.sizes[last]));
    }
    if !input.offset.is_multiple_of(ratio) {
        return refuse(format!("self.storage_offset() must be divisible by {ratio}, not {},", input.offset));
    }
    if let Some(dim) = (0..last).find(|&dim| !input.strides[dim].is_multiple_of(ratio)) {
        return refuse(format!("self.stride({dim}) must be divisible by {ratio}, not {},", input.strides[dim]));
    }
    out.sizes[last] /= ratio;
    out.strides[..last].iter_mut().for_each(|stride| *stride /= ratio);
    out.offset /= ratio;
    Ok((out, to))
}

/// `unsqueeze(dim)`.
pub fn unsqueeze(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    let dim = normalize_dim("unsqueeze", Along::read(attrs).dim, input.rank() + 1)?;
    Ok(input.unsqueeze(dim))
}

/// `select(dim, index)`.
pub fn select(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    if input.rank() == 0 {
        return Err(Error::index("select", "select() cannot be applied to a 0-dim tensor", "index a tensor with dims"));
    }
    let Select { dim, index: got } = Select::read(attrs);
    let dim = normalize_dim("select", dim, input.rank())?;
    let size = input.sizes[dim] as i64;
    if got < -size || got >= size {
        return Err(Error::out_of_range("select", "index", [-size, size - 1], got));
    }
    Ok(input.select(dim, if got < 0 { got + size } else { got } as usize))
}

/// `slice(dim, start, end, step)`: bounds are clamped.
pub fn slice(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    if input.rank() == 0 {
        return Err(Error::shape("slice", "slice() cannot be applied to a 0-dim tensor", "slice a tensor with dims"));
    }
    let Slice { dim, start, end, step } = Slice::read(attrs);
    let dim = normalize_dim("slice", dim, input.rank())?;
    let size = input.sizes[dim] as i64;
    if step <= 0 {
        return Err(Error::shape(
            "slice",
            format!("slice step must be positive, not {step}"),
            "it must be positive; use flip to go backwards",
        ));
    }
    let bound = |value: i64| (if value < 0 { value.saturating_add(size) } else { value }).clamp(0, size) as usize;
    let (start, end) = (bound(start.unwrap_or(0)), bound(end.unwrap_or(size)));
    Ok(input.slice(dim, start.min(end.max(start)), end, step as usize))
}
