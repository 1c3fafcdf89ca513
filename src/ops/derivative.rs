//! Derivatives of calls of rows: graphs from the derivative column ([`vjp`]). They are cached per thread by op,
//! arguments and types.
//!
//! Autograd saves the tensors that such a graph reads, and runs it in the backward pass. An in-place call asks here
//! whether the backward pass reads its target.

use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::eager;
use crate::error::Result;
use crate::ir::autodiff::{Vjp, VjpInput, counted_from, vjp};
use crate::ir::{Attr, Attrs, CallKey, Op, TensorType};
use crate::ops::part_place::PartPlace;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

/// Which operands of a call need a gradient.
pub(crate) type Needs = SmallVec<[bool; 4]>;

/// The maximum number of derivatives in a thread's cache.
const CAPACITY: usize = 4096;

/// The derivative of calls with the same op, arguments and types.
pub(crate) struct Formula {
    pub(crate) op: Op,
    pub(crate) vjp: Vjp,
    /// Where the part lies that the call takes from its operand.
    pub(crate) part: Option<PartPlace>,
    /// Its key in the cache of executables.
    pub(crate) id: u64,
}

thread_local! {
    /// The derivatives of the calls that this thread has recorded. The cache is cleared when it is full.
    static FORMULAS: RefCell<FxHashMap<Box<[u64]>, Arc<Formula>>> = RefCell::new(FxHashMap::default());
}

/// The derivative of a call. `result` gives the type of the call's result if the derivative is not cached.
pub(crate) fn formula(
    op: Op,
    attrs: &[Attr],
    tensors: &[&Tensor],
    needs: &Needs,
    result: impl FnOnce(&[&TensorType], &Attrs) -> Result<TensorType>,
) -> Result<Arc<Formula>> {
    let placed = counted_from(op, attrs, || observer::memory_start(tensors[0]));
    let attrs = placed.as_deref().unwrap_or(attrs);
    let mut key = CallKey::default();
    key.call(op, attrs, tensors.len());
    for (tensor, &needed) in tensors.iter().zip(needs) {
        key.operand(tensor.dtype(), tensor.sizes(), tensor.strides(), tensor.as_number().is_some());
        key.word(needed as u64);
    }
    if let Some(known) = FORMULAS.with_borrow(|formulas| formulas.get(&key[..]).cloned()) {
        return Ok(known);
    }
    let types: SmallVec<[TensorType; 3]> = tensors.iter().map(|tensor| tensor.ty()).collect();
    let types: SmallVec<[&TensorType; 4]> = types.iter().collect();
    let attrs = Attrs::from(attrs);
    let vjp = vjp(op, &types, &attrs, &result(&types, &attrs)?, needs)?;
    let part = PartPlace::of_graph(&vjp.graph);
    let known = Arc::new(Formula { op, vjp, part, id: eager::graph_id() });
    FORMULAS.with_borrow_mut(|formulas| {
        if formulas.len() >= CAPACITY {
            formulas.clear();
        }
        formulas.insert(key[..].into(), known.clone());
    });
    Ok(known)
}

/// Whether the backward pass of a call reads the old value of its first operand.
pub(crate) fn reads_first(op: Op, attrs: &[Attr], tensors: &[&Tensor]) -> Result<bool> {
    let needs: Needs = tensors.iter().map(|tensor| tensor.requires_grad()).collect();
    if !is_grad_enabled() || !needs.contains(&true) || !op.is_differentiable() {
        return Ok(false);
    }
    let formula = formula(op, attrs, tensors, &needs, |types, attrs| op.infer(types, attrs))?;
    Ok(formula.vjp.inputs.iter().any(|input| matches!(input, VjpInput::Arg(0))))
}
