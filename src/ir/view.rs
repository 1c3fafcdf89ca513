//! Layouts of the view ops: from the layout of the input and the op's arguments to that of the result.

use super::attr::Attr;
use super::shape::{Layout, Sizes, checked_numel, infer_sizes, normalize_dim, normalize_dims};
use crate::error::{Error, Result};
use smallvec::SmallVec;

/// `view(size)`: strides must allow it without a copy.
pub fn view(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    let sizes = infer_sizes("view", &attrs[0].list(), input.numel())?;
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
    let list = attrs[0].list();
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
    let [a, b] =
        [0, 1].map(|index: usize| normalize_dim("transpose", attrs[index].as_int().unwrap_or(0), input.rank()));
    let mut dims: SmallVec<[usize; 6]> = (0..input.rank()).collect();
    if !dims.is_empty() {
        dims.swap(a?, b?);
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
    let list = attrs[0].list();
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

/// `squeeze(dims)`; an empty list means every dim of size 1.
pub fn squeeze(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    Ok(input.squeeze(&normalize_dims("squeeze", &attrs[0].list(), input.rank())?))
}

/// `unsqueeze(dim)`.
pub fn unsqueeze(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    let dim = normalize_dim("unsqueeze", attrs[0].as_int().unwrap_or(0), input.rank() + 1)?;
    Ok(input.unsqueeze(dim))
}

/// `select(dim, index)`.
pub fn select(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    if input.rank() == 0 {
        return Err(Error::shape("select", "a 0-dim tensor has no dim to select from", "index a tensor with dims"));
    }
    let dim = normalize_dim("select", attrs[0].as_int().unwrap_or(0), input.rank())?;
    let (size, got) = (input.sizes[dim] as i64, attrs[1].as_int().unwrap_or(0));
    if got < -size || got >= size {
        return Err(Error::OutOfRange { op: "select".into(), what: "index".into(), low: -size, high: size - 1, got });
    }
    Ok(input.select(dim, if got < 0 { got + size } else { got } as usize))
}

/// `slice(dim, start, end, step)`; bounds are clamped.
pub fn slice(input: &Layout, attrs: &[Attr]) -> Result<Layout> {
    if input.rank() == 0 {
        return Err(Error::shape("slice", "a 0-dim tensor has no dim to slice", "slice a tensor with dims"));
    }
    let dim = normalize_dim("slice", attrs[0].as_int().unwrap_or(0), input.rank())?;
    let size = input.sizes[dim] as i64;
    let step = attrs[3].as_int().unwrap_or(1);
    if step <= 0 {
        return Err(Error::shape("slice", format!("step is {step}"), "it must be positive; use flip to go backwards"));
    }
    let bound = |attr: &Attr, default: i64| {
        let value = attr.as_int().unwrap_or(default);
        (if value < 0 { value.saturating_add(size) } else { value }).clamp(0, size) as usize
    };
    let (start, end) = (bound(&attrs[1], 0), bound(&attrs[2], size));
    Ok(input.slice(dim, start.min(end.max(start)), end, step as usize))
}
