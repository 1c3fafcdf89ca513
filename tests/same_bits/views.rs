//! Proposals of views.

use super::build::Builder;
use opfuse::ir::{Attr, Attrs, DType, Layout, MemoryFormat, NodeId, Op};
use smallvec::smallvec;

impl Builder {
    /// A view of some value. Where its strides do not allow `view`, a dense copy is made first.
    pub(crate) fn propose_view(&mut self, op: Op) -> Option<NodeId> {
        let x = match op {
            Op::T => self.find(|ty| ty.rank() <= 2),
            Op::Squeeze => self.find(|ty| ty.sizes.contains(&1)).or_else(|| self.find(|_| true)),
            Op::Select | Op::Slice => self.find(|ty| ty.rank() > 0),
            _ => self.find(|_| true),
        }?;
        let sizes = self.graph[x].ty.sizes.to_vec();
        let rank = sizes.len();
        let any_dim = |builder: &mut Builder| {
            let rank = rank.max(1);
            let dim = builder.random.below(rank) as i64;
            if builder.random.percent(50) { dim } else { dim - rank as i64 }
        };
        let attrs: Attrs = match op {
            Op::View => smallvec![Attr::ints(&self.regrouped(&sizes))],
            Op::Permute => {
                let order: Vec<i64> = self.random.order(rank).iter().map(|&dim| dim as i64).collect();
                smallvec![Attr::ints(&order)]
            }
            Op::Transpose => smallvec![Attr::int(any_dim(self)), Attr::int(any_dim(self))],
            Op::T => Attrs::new(),
            Op::Expand => {
                let mut to: Vec<i64> = (0..self.random.below(3)).map(|_| self.random.below(4) as i64).collect();
                for &size in &sizes {
                    to.push(match (size, self.random.percent(30)) {
                        (1, _) => self.random.below(6) as i64,
                        (_, true) => -1,
                        (_, false) => size as i64,
                    });
                }
                smallvec![Attr::ints(&to), Attr::bool(false)]
            }
            Op::Squeeze => {
                let ones: Vec<i64> = (0..rank).filter(|&dim| sizes[dim] == 1).map(|dim| dim as i64).collect();
                smallvec![if self.random.percent(30) { Attr::ints(&[any_dim(self)]) } else { Attr::ints(&ones) }]
            }
            Op::Unsqueeze => smallvec![Attr::int(self.random.below(2 * rank + 2) as i64 - rank as i64 - 1)],
            Op::Select => {
                let dim = self.random.below(rank);
                let size = sizes[dim].max(1);
                smallvec![Attr::int(dim as i64), Attr::int(self.random.below(2 * size) as i64 - size as i64)]
            }
            Op::Part => return self.propose_strided_part(),
            Op::Alias | Op::Detach => Attrs::new(),
            Op::UnsafeView => smallvec![Attr::ints(&self.regrouped(&sizes))],
            Op::Diagonal => {
                let (first, second) = (any_dim(self), any_dim(self));
                smallvec![Attr::int(self.random.below(7) as i64 - 3), Attr::int(first), Attr::int(second)]
            }
            Op::Unfold => {
                let dim = self.random.below(rank.max(1));
                let size = self.random.below(sizes.get(dim).copied().unwrap_or(1) + 1) as i64;
                smallvec![Attr::int(dim as i64), Attr::int(size), Attr::int(1 + self.random.below(3) as i64)]
            }
            _ => {
                let dim = self.random.below(rank.max(1));
                let size = sizes.get(dim).copied().unwrap_or(1);
                let bound = |builder: &mut Builder| match builder.random.below(5) {
                    0 | 1 => Attr::None,
                    _ => Attr::int(builder.random.below(2 * size + 3) as i64 - size as i64 - 1),
                };
                let (start, end) = (bound(self), bound(self));
                smallvec![Attr::int(dim as i64), start, end, Attr::int(1 + self.random.below(3) as i64)]
            }
        };
        match self.call(op, &[x], attrs.clone()) {
            Some(view) => Some(view),
            None if matches!(op, Op::View | Op::UnsafeView) => {
                let dense = self.call(Op::Clone, &[x], smallvec![MemoryFormat::Contiguous.into()])?;
                self.call(op, &[dense], attrs)
            }
            None => None,
        }
    }

    /// A window of the memory of some value.
    pub(crate) fn propose_window(&mut self, op: Op) -> Option<NodeId> {
        let x = self.find(|ty| !ty.number)?;
        if op == Op::ViewDtype {
            let dtype = self.random.pick(&DType::ALL);
            // Every bit pattern is valid for every dtype but bool. A wider dtype needs an aligned offset in the
            // storage, which a graph does not state.
            let is_wide = dtype.size() > self.graph[x].ty.dtype.size();
            let dtype = if dtype == DType::Bool || is_wide { DType::U8 } else { dtype };
            return self.call(op, &[x], smallvec![Attr::DType(dtype)]);
        }
        let ty = self.graph[x].ty.clone();
        let reach = Layout { sizes: ty.sizes, strides: ty.strides, offset: 0 }.extent();
        let (mut sizes, mut strides, mut left) = (Vec::new(), Vec::new(), reach.max(1) - 1);
        for _ in 0..self.random.below(4) {
            let stride = self.random.below(left.min(9) + 1);
            let most = left.checked_div(stride).unwrap_or(3);
            let size = if reach == 0 { 0 } else { 1 + self.random.below(most.min(5) + 1).min(most) };
            left -= stride * size.max(1) - stride;
            sizes.push(size as i64);
            strides.push(stride as i64);
        }
        if reach == 0 && sizes.is_empty() {
            return None;
        }
        // The window starts at the value's first element: a graph knows nothing of the memory before it.
        self.call(op, &[x], smallvec![Attr::ints(&sizes), Attr::ints(&strides), Attr::None])
    }

    /// Other sizes with as many elements: neighbours joined, sizes split, ones put in, one left to be inferred.
    fn regrouped(&mut self, sizes: &[usize]) -> Vec<i64> {
        let mut out: Vec<usize> = Vec::new();
        for &size in sizes {
            match out.last_mut() {
                Some(last) if self.random.percent(45) => *last *= size,
                _ => out.push(size),
            }
        }
        if let Some(at) = (!out.is_empty()).then(|| self.random.below(out.len())) {
            let factor = self.random.pick(&[1, 2, 3, 4]);
            if out[at].is_multiple_of(factor) && out[at] > 0 {
                out[at] /= factor;
                out.insert(at + self.random.below(2), factor);
            }
        }
        if self.random.percent(15) {
            out.insert(self.random.below(out.len() + 1), 1);
        }
        let mut out: Vec<i64> = out.iter().map(|&size| size as i64).collect();
        if !out.is_empty() && self.random.percent(20) && !out.contains(&0) {
            let at = self.random.below(out.len());
            out[at] = -1;
        }
        out
    }
}
