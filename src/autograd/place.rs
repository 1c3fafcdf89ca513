//! Parts of values that `select` and `slice` take.

use crate::error::Result;
use crate::ir::attrs::{Attributes, Select, SelectBackward, Slice, SliceBackward};
use crate::ir::{Attr, Attrs, Layout, Op, view};
use smallvec::SmallVec;
use std::ops::Range;

/// Where a part lies in the value that it was taken from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The sizes of the value.
    pub(super) sizes: SmallVec<[usize; 6]>,
    pub(super) dim: usize,
    /// Its indices of the dim.
    pub(super) range: Range<usize>,
    /// Whether the part lacks the dim.
    pub(super) is_selected: bool,
}

impl Place {
    /// The place of the part whose gradient this call puts among zeros.
    pub(super) fn of(op: Op, attrs: &[Attr]) -> Option<Place> {
        let (sizes, dim, cut, is_selected): (_, _, Box<dyn Fn(&Layout) -> Result<Layout>>, _) = match op {
            Op::SelectBackward => {
                let SelectBackward { input_sizes, dim, index } = SelectBackward::read(attrs);
                (input_sizes, dim, Box::new(move |of| view::select(of, &Attrs::from(Select { dim, index }))), true)
            }
            Op::SliceBackward => {
                let SliceBackward { input_sizes, dim, start, end, step } = SliceBackward::read(attrs);
                let slice = move |of: &Layout| view::slice(of, &Attrs::from(Slice { dim, start, end, step }));
                (input_sizes, dim, Box::new(slice), false)
            }
            _others => return None,
        };
        let sizes: SmallVec<[usize; 6]> = sizes.iter().map(|&size| size as usize).collect();
        let whole = Layout::contiguous(&sizes);
        let part = cut(&whole).ok()?;
        let dim = if dim < 0 { dim + sizes.len() as i64 } else { dim };
        let dim = usize::try_from(dim).ok().filter(|&dim| dim < sizes.len())?;
        let is_dense = is_selected || part.strides[dim] == whole.strides[dim];
        if part.numel() == 0 || !is_dense {
            return None;
        }
        let start = part.offset / whole.strides[dim];
        let length = if is_selected { 1 } else { part.sizes[dim] };
        Some(Place { sizes, dim, range: start..start + length, is_selected })
    }
}
