//! Types of the results of views, concatenations and overlays.

use crate::error::{Error, Result};
use crate::ir::attr::{Attrs, MemoryFormat};
use crate::ir::attrs::{Along, Attributes, Overlay};
use crate::ir::memory_formats::{dense, suggested_format};
use crate::ir::row::{Call, Meaning, ViewRule};
use crate::ir::shape::{self, Layout, Sizes, normalize_dim};
use crate::ir::types::TensorType;

/// The type of a view, from its layout rule for an input at offset 0.
pub fn view(call: &Call<'_>) -> Result<TensorType> {
    let Meaning::View(rule) = call.op.row().meaning else {
        unreachable!("{} is no view", call.name());
    };
    let input = call.args[0];
    let layout = rule(&Layout { sizes: input.sizes.clone(), strides: input.strides.clone(), offset: 0 }, call.attrs)?;
    Ok(TensorType { dtype: input.dtype, sizes: layout.sizes, strides: layout.strides, number: false })
}

/// The type of a window of memory, for an operand at offset 0. The size of the storage is checked when the call runs.
pub fn window(call: &Call<'_>) -> Result<TensorType> {
    let Meaning::Window(rule) = call.op.row().meaning else {
        unreachable!("{} is no window", call.name());
    };
    let input = call.args[0];
    let layout = Layout { sizes: input.sizes.clone(), strides: input.strides.clone(), offset: 0 };
    let (layout, dtype) = rule(&layout, input.dtype, call.attrs)?;
    Ok(TensorType { dtype, sizes: layout.sizes, strides: layout.strides, number: false })
}

/// The type of the gradient of a view of a tensor of these sizes. The gradient of the view must have the view's sizes.
pub fn part_of(call: &Call<'_>, sizes: &[i64], view: ViewRule, attrs: &Attrs) -> Result<TensorType> {
    let grad = call.args[0];
    if let Some(bad) = sizes.iter().find(|size| **size < 0) {
        return Err(Error::shape(call.name(), format!("size {bad} is negative"), "sizes count elements"));
    }
    let sizes: Sizes = sizes.iter().map(|&size| size as usize).collect();
    shape::checked_numel(call.name(), &sizes, grad.dtype.size())?;
    let seen = view(&Layout::contiguous(&sizes), attrs)?;
    if seen.sizes != grad.sizes {
        let what = format!("the gradient has shape {:?}, the view has {:?}", &grad.sizes[..], &seen.sizes[..]);
        return Err(Error::shape(call.name(), what, "pass the gradient of the same view"));
    }
    Ok(TensorType::contiguous(grad.dtype, &sizes))
}

/// Whether the operand of a concatenation goes with any shape: if it is 1-dim and has no elements.
pub fn joins_anything(ty: &TensorType) -> bool {
    ty.sizes.as_slice() == [0]
}

/// The type of a concatenation: promoted dtype. Dims other than `dim` must be equal.
pub fn cat(call: &Call<'_>) -> Result<TensorType> {
    let Some(any) = call.args.first() else {
        return Err(Error::argument("cat", "expected a non-empty list of tensors"));
    };
    let dtype = crate::ir::dtype::promote_all(call.args.iter().map(|arg| arg.promote_operand())).unwrap_or(any.dtype);
    let first = call.args.iter().find(|arg| !joins_anything(arg)).unwrap_or(any);
    let dim = normalize_dim("cat", Along::read(call.attrs).dim, first.rank())?;
    if let Some(arg) = call.args.iter().find(|arg| arg.rank() == 0) {
        let what = format!("0-dim tensors like that of type {} cannot be joined", arg.dtype);
        return Err(Error::shape("cat", what, "use stack"));
    }
    let mut sizes = first.sizes.clone();
    sizes[dim] = 0;
    for arg in call.args {
        if joins_anything(arg) {
            continue;
        }
        let fits = arg.rank() == first.rank() && (0..first.rank()).all(|d| d == dim || arg.sizes[d] == first.sizes[d]);
        if !fits {
            let what = format!("shapes {:?} and {:?} differ outside dim {dim}", &first.sizes[..], &arg.sizes[..]);
            return Err(Error::shape("cat", what, "all other sizes must be equal"));
        }
        sizes[dim] += arg.sizes[dim];
    }
    shape::checked_numel("cat", &sizes, dtype.size())?;
    // Images that all have the channels last keep them there.
    let mut formats = call.args.iter().map(|arg| suggested_format(&arg.sizes, &arg.strides));
    let format = formats.next().filter(|&first| formats.all(|format| format == first));
    Ok(dense(format.unwrap_or(MemoryFormat::Contiguous), dtype, &sizes))
}

/// The type of an overlay. The window must be inside the first operand, and its elements must not overlap.
pub fn overlay(call: &Call<'_>) -> Result<TensorType> {
    let (under, over) = (call.args[0], call.args[1]);
    let refuse = |what: String| {
        let hint = "the window must be inside the first operand, without overlapping elements";
        Err(Error::shape(call.name(), what, hint))
    };
    let Overlay { stride: strides, offset } = Overlay::read(call.attrs);
    if strides.len() != over.rank() || offset < 0 || strides.iter().any(|&stride| stride < 0) {
        return refuse(format!("strides {:?} and offset {offset} do not fit {} dims", &strides[..], over.rank()));
    }
    let strides = strides.iter().map(|&stride| stride as usize).collect();
    let window = Layout { sizes: over.sizes.clone(), strides, offset: offset as usize };
    if window.extent() > under.numel() || !window.is_injective() {
        let (sizes, strides) = (&window.sizes[..], &window.strides[..]);
        return refuse(format!("a window of sizes {sizes:?}, strides {strides:?}, offset {offset} on {under}"));
    }
    Ok(TensorType::contiguous(under.dtype, &under.sizes))
}

/// The type of a triangle: that of the operand, which must have at least two dims.
pub fn triangle(call: &Call<'_>) -> Result<TensorType> {
    let input = call.args[0];
    if input.rank() < 2 {
        let what = format!("the input has shape {:?}", &input.sizes[..]);
        return Err(Error::shape(call.name(), what, "it must have at least 2 dims"));
    }
    Ok(TensorType::contiguous(input.dtype, &input.sizes))
}
