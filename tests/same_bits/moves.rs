//! Proposals of calls that copy elements to other places.

use super::build::Builder;
use super::values::Fill;
use opfuse::ir::{Attr, Attrs, NodeId, Op, TensorType};
use smallvec::smallvec;

impl Builder {
    /// Padding, reversing, repeating.
    pub(crate) fn propose_move(&mut self, op: Op) -> Option<NodeId> {
        let x = self.find(|_| true)?;
        let rank = self.graph[x].ty.rank();
        let attrs: Attrs = match op {
            Op::Flip => {
                let order = self.random.order(rank);
                let n_dims = self.random.below(rank + 1);
                smallvec![Attr::Ints(order[..n_dims].iter().map(|&dim| dim as i64).collect())]
            }
            Op::Repeat => {
                let n_counts = rank + self.random.below(3);
                smallvec![Attr::Ints((0..n_counts).map(|_| self.random.pick(&[1, 1, 2, 3, 0])).collect())]
            }
            _ => {
                let n_pairs = self.random.below(rank + 1);
                let pad = (0..2 * n_pairs).map(|_| self.random.below(5) as i64 - 2).collect();
                smallvec![Attr::Ints(pad), Attr::Scalar(self.scalar())]
            }
        };
        self.call(op, &[x], attrs)
    }

    /// A value with the part that `view` names replaced by another.
    pub(crate) fn propose_part(&mut self, op: Op, view: Op) -> Option<NodeId> {
        let part = self.propose_view(view)?;
        let (x, attrs) = (self.graph[part].args[0], self.graph[part].attrs.clone());
        let over = self.replacement(part);
        self.call(op, &[x, over], attrs)
    }

    /// A window of a value replaced by another.
    pub(crate) fn propose_overlay(&mut self, op: Op) -> Option<NodeId> {
        let x = self.find(|ty| ty.numel() > 0)?;
        let (window, steps, offset) = self.strided_box(x);
        let dtype = self.graph[x].ty.dtype;
        let over = self.strided_input(dtype, &window, Fill::Normal);
        self.call(op, &[x, over], smallvec![Attr::ints(&steps), Attr::int(offset)])
    }

    /// A window of a row-major value.
    pub(crate) fn propose_strided_part(&mut self) -> Option<NodeId> {
        let x = self.find(|ty| ty.numel() > 0 && ty.is_contiguous())?;
        let (window, steps, offset) = self.strided_box(x);
        let window: Vec<i64> = window.iter().map(|&size| size as i64).collect();
        self.call(Op::Part, &[x], smallvec![Attr::ints(&window), Attr::ints(&steps), Attr::int(offset)])
    }

    /// A box with permuted dims inside a value taken row-major: sizes, strides, offset.
    fn strided_box(&mut self, x: NodeId) -> (Vec<usize>, Vec<i64>, i64) {
        let sizes = self.graph[x].ty.sizes.clone();
        let strides = TensorType::contiguous(self.graph[x].ty.dtype, &sizes).strides;
        let (mut window, mut steps, mut offset) = (Vec::new(), Vec::new(), 0);
        for dim in self.random.order(sizes.len()) {
            let first = self.random.below(sizes[dim]);
            let step = 1 + self.random.below(2);
            window.push(self.random.below((sizes[dim] - first).div_ceil(step) + 1));
            steps.push((strides[dim] * step) as i64);
            offset += first * strides[dim];
        }
        (window, steps, offset as i64)
    }

    /// A value with the sizes of `part`: found, or new.
    fn replacement(&mut self, part: NodeId) -> NodeId {
        let sizes = self.graph[part].ty.sizes.to_vec();
        let found = self.find(|ty| ty.sizes[..] == sizes[..]);
        found.unwrap_or_else(|| {
            let dtype = self.graph[part].ty.dtype;
            self.strided_input(dtype, &sizes, Fill::Normal)
        })
    }
}
