//! Where the elements of recorded values lie, so that results have eager's strides.
//!
//! The nodes of a graph compute elements. Their types have strides, too, which decide those of later results. A value
//! whose node has other strides than its tensor gets a node that copies it.

use crate::error::Result;
use crate::ir::shape::{elementwise_strides, same_strides};
use crate::ir::{Attr, MemoryFormat, NodeId, Op, Strides, TensorType};
use crate::tensor::handle::Tensor;
use crate::transforms::tracer::recording::Recording;
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;

impl Recording {
    /// A copy of `value` with the strides of `target`, or with dense strides in the same order if `target` has gaps. A
    /// write changes no strides, and views of the target are recomputed from this copy. Element-wise readers use
    /// `value`, so no kernel makes the copy for them.
    pub(super) fn as_laid_out(&mut self, value: NodeId, target: &Tensor) -> Result<NodeId> {
        self.with_strides(value, target.sizes(), &dense_strides(target))
    }

    /// A value with these dense strides.
    fn with_strides(&mut self, value: NodeId, sizes: &[usize], strides: &Strides) -> Result<NodeId> {
        // The memory is its own if a node computed exactly these elements.
        let root = &self.graph[self.graph.view_base(value)];
        let is_own = root.op().is_some() && root.ty.numel() == sizes.iter().product::<usize>();
        if is_own && same_strides(sizes, &self.graph[value].ty.strides, strides) {
            return Ok(value);
        }
        let mut outermost_first: SmallVec<[usize; 4]> = (0..sizes.len()).collect();
        outermost_first.sort_by_key(|&dim| Reverse((strides[dim], sizes[dim])));
        let mut inverse = smallvec![0; sizes.len()];
        outermost_first.iter().enumerate().for_each(|(place, &dim)| inverse[dim] = place as i64);
        let order = outermost_first.iter().map(|&dim| dim as i64).collect();
        let ordered = self.graph.add(Op::Permute, &[value], smallvec![Attr::Ints(order)])?;
        let dense = self.graph.add(Op::Clone, &[ordered], smallvec![MemoryFormat::Contiguous.into()])?;
        let laid_out = self.graph.add(Op::Permute, &[dense], smallvec![Attr::Ints(inverse)])?;
        self.laid_out.insert(laid_out, value);
        Ok(laid_out)
    }

    /// Whether the memory of a tensor may have more than its elements. That of an input may be another in each call.
    pub(super) fn may_be_part(&self, root: &Tensor) -> bool {
        let is_part = || {
            let (layout, size) = (root.array().layout(), root.dtype().size());
            root.has_data() && (layout.offset > 0 || layout.extent() * size < root.array().storage().len())
        };
        self.given(root).is_some() || has_gaps(root) || is_part()
    }

    /// The type that the result of a call has, which was recorded as `node`, and the node with its strides. These
    /// follow from the strides of the operands, which may be others than those of their nodes: in dims of size 1, which
    /// may decide how the other dims are ordered.
    ///
    /// # Errors
    /// If a copy with these strides cannot be recorded.
    pub(super) fn result_of(&mut self, node: NodeId, operands: &[Tensor]) -> Result<(NodeId, TensorType)> {
        let made = &self.graph[node];
        let is_as_recorded = |(&arg, tensor): (&NodeId, &Tensor)| self.graph[arg].ty.strides[..] == *tensor.strides();
        let as_made = (node, made.ty.clone());
        let Some(op) = made.op().filter(|_| !made.args.iter().zip(operands).all(is_as_recorded)) else {
            return Ok(as_made);
        };
        let types: SmallVec<[TensorType; 4]> = operands.iter().map(Tensor::ty).collect();
        let types: SmallVec<[&TensorType; 4]> = types.iter().collect();
        let Some(ty) = op.infer(&types, &made.attrs).ok().filter(|ty| ty.sizes == made.ty.sizes) else {
            return Ok(as_made);
        };
        match same_strides(&ty.sizes, &ty.strides, &made.ty.strides) {
            true => Ok((node, ty)),
            // The memory of a view is that of its base.
            false if op.is_view() => Ok(as_made),
            false => Ok((self.with_strides(node, &ty.sizes, &ty.strides)?, ty)),
        }
    }
}

/// The strides of an element-wise result of a tensor.
fn dense_strides(tensor: &Tensor) -> Strides {
    elementwise_strides(tensor.sizes(), &[(tensor.sizes(), tensor.strides())])
}

/// Whether there is memory between the elements that is not theirs.
fn has_gaps(tensor: &Tensor) -> bool {
    !same_strides(tensor.sizes(), tensor.strides(), &dense_strides(tensor))
}
