//! Views: new layouts of the same storage.

use super::array::Array;
use crate::error::{Error, Result};
use crate::ir::{Attr, DType, Layout, Meaning, Op};

/// The view of an array that a view op makes.
///
/// # Errors
/// If the op rejects its arguments, or the view exceeds the storage.
pub fn view(op: Op, attrs: &[Attr], array: &Array) -> Result<Array> {
    let (layout, dtype) = view_layout(op, attrs, &array.layout, array.dtype)?;
    if !matches!(op.row().meaning, Meaning::Window(_)) {
        return Ok(array.with_layout(layout));
    }
    Array::from_storage(array.storage.clone(), dtype, layout.clone()).map_err(|error| {
        if matches!(error, Error::Argument { .. }) {
            return error.of(op.name());
        }
        let (sizes, strides, have) = (&layout.sizes[..], &layout.strides[..], array.storage.len());
        let what = format!(
            "sizes {sizes:?}, strides {strides:?}, storage offset {} of {dtype} are out of bounds for storage of size \
             {have}",
            layout.offset
        );
        Error::shape(op.name(), what, "stay inside the memory of the input")
    })
}

/// The layout and dtype that a view op makes from those of its input.
///
/// # Errors
/// If the op rejects its arguments.
#[inline]
pub(super) fn view_layout(op: Op, attrs: &[Attr], layout: &Layout, dtype: DType) -> Result<(Layout, DType)> {
    match op.row().meaning {
        Meaning::View(rule) => Ok((rule(layout, attrs)?, dtype)),
        Meaning::Window(rule) => rule(layout, dtype, attrs),
        Meaning::Body(..)
        | Meaning::Decompose(_)
        | Meaning::Fold(_)
        | Meaning::Product
        | Meaning::Gather(_)
        | Meaning::Concat
        | Meaning::Overlay
        | Meaning::Fill
        | Meaning::Range
        | Meaning::Routine(_) => Err(Error::invalid("plan", format!("{} is no view", op.name()))),
    }
}
