//! Parts of values that `select` and `slice` take.

use crate::ir::attrs::{Attributes, Select, SelectBackward, Slice, SliceBackward};
use crate::ir::{Attr, Attrs, Graph, Layout, NodeKind, Op, view};
use smallvec::SmallVec;
use std::ops::Range;

/// Where a part lies in the value that it was taken from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartPlace {
    /// The sizes of the value.
    pub(crate) sizes: SmallVec<[usize; 6]>,
    pub(crate) dim: usize,
    /// Its indices of the dim.
    pub(crate) range: Range<usize>,
    /// Whether the part lacks the dim.
    pub(crate) is_selected: bool,
}

impl PartPlace {
    /// The place of a part whose gradient is put among zeros by a graph that does nothing else.
    pub(super) fn of_graph(graph: &Graph) -> Option<PartPlace> {
        let mut nodes = graph.nodes().map(|(_, node)| node);
        match (nodes.next(), nodes.next(), nodes.next()) {
            (Some(input), Some(node), None) if matches!(input.kind, NodeKind::Input(_)) => {
                PartPlace::of(node.op()?, &node.attrs)
            }
            (_, _, _) => None,
        }
    }

    /// The place of the part whose gradient this call puts among zeros.
    fn of(op: Op, attrs: &[Attr]) -> Option<PartPlace> {
        let sized = |sizes: &[i64]| -> Layout {
            Layout::contiguous(&sizes.iter().map(|&size| size as usize).collect::<SmallVec<[usize; 6]>>())
        };
        let (whole, part, dim, is_selected) = match op {
            Op::SelectBackward => {
                let SelectBackward { input_sizes, dim, index } = SelectBackward::read(attrs);
                let whole = sized(&input_sizes);
                let part = view::select(&whole, &Attrs::from(Select { dim, index })).ok()?;
                (whole, part, dim, true)
            }
            Op::SliceBackward => {
                let SliceBackward { input_sizes, dim, start, end, step } = SliceBackward::read(attrs);
                let whole = sized(&input_sizes);
                let part = view::slice(&whole, &Attrs::from(Slice { dim, start, end, step })).ok()?;
                (whole, part, dim, false)
            }
            _others => return None,
        };
        let sizes: SmallVec<[usize; 6]> = whole.sizes.iter().copied().collect();
        let dim = if dim < 0 { dim + sizes.len() as i64 } else { dim };
        let dim = usize::try_from(dim).ok().filter(|&dim| dim < sizes.len())?;
        let is_dense = is_selected || part.strides[dim] == whole.strides[dim];
        if part.numel() == 0 || !is_dense {
            return None;
        }
        let start = part.offset / whole.strides[dim];
        let length = if is_selected { 1 } else { part.sizes[dim] };
        Some(PartPlace { sizes, dim, range: start..start + length, is_selected })
    }
}
