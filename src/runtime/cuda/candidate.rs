//! Finds the single kernel that consumes a matrix product without reordering it: an epilogue candidate.
//!
//! The actions alone decide. Whether such a kernel can be an epilogue, `epilogue` and `epilogue_patterns` decide.

use crate::ir::{Layout, TensorType};
use crate::runtime::action::Action;
use crate::runtime::launch::{Launch, Slot};
use crate::runtime::schedule::Schedule;
use crate::runtime::view::view_layout;
use smallvec::SmallVec;
use std::sync::Arc;

/// The only kernel that reads a product, in the product's own order.
pub(super) struct EpilogueCandidate {
    /// The actions of views of the product, which move no elements.
    pub(super) views: SmallVec<[usize; 1]>,
    /// The action of the kernel.
    pub(super) kernel: usize,
    pub(super) launch: Arc<Launch>,
    /// The kernel's operand that is the product.
    pub(super) slot: usize,
}

impl EpilogueCandidate {
    /// The candidate of a product, given by its action, if there is one.
    pub(super) fn of(schedule: &Schedule, product: usize) -> Option<EpilogueCandidate> {
        let Action::Product { to, ty, .. } = &schedule.actions[product] else { return None };
        let Use { kernel, views, value } = only_use(schedule, *to, ty)?;
        let Action::Launch(launch) = &schedule.actions[kernel] else { return None };
        let mut slots = launch.operands.iter().enumerate().filter(|(_, slot)| **slot == Some(value));
        let (Some((slot, _)), None, false) = (slots.next(), slots.next(), launch.is_idle) else { return None };
        Some(EpilogueCandidate { views, kernel, launch: launch.clone(), slot })
    }
}

/// The only use of a value.
struct Use {
    /// The action of a kernel.
    kernel: usize,
    /// The actions of views in between, which move no elements.
    views: SmallVec<[usize; 1]>,
    /// The slot where the kernel finds the value.
    value: Slot,
}

/// The only use of the dense value in a slot, if it is one kernel, and the value is no output.
fn only_use(schedule: &Schedule, mut value: Slot, ty: &TensorType) -> Option<Use> {
    let (mut views, mut layout) = (SmallVec::new(), Layout::contiguous(&ty.sizes));
    loop {
        let mut readers = schedule.actions.iter().enumerate().filter(|(_, action)| reads(action, value));
        let is_output = schedule.outputs.iter().any(|(slot, _)| *slot == value);
        let (Some((at, action)), None, false) = (readers.next(), readers.next(), is_output) else { return None };
        match action {
            Action::Launch(_) => return Some(Use { kernel: at, views, value }),
            Action::Alias { op, attrs, to, .. } => {
                let (seen, dtype) = view_layout(*op, attrs, &layout, ty.dtype).ok()?;
                let is_whole = seen == Layout::contiguous(&seen.sizes) && seen.numel() == layout.numel();
                if !is_whole || dtype != ty.dtype {
                    return None;
                }
                (value, layout) = (*to, seen);
                views.push(at);
            }
            Action::Product { .. }
            | Action::Routine { .. }
            | Action::Blocks(_)
            | Action::Allocate(..)
            | Action::Scratch(..)
            | Action::Release(_) => return None,
        }
    }
}

/// Whether an action reads the value in a slot.
fn reads(action: &Action, value: Slot) -> bool {
    match action {
        Action::Launch(launch) => launch.operands.contains(&Some(value)),
        Action::Product { left, right, .. } => *left == value || *right == value,
        Action::Routine { args, .. } => args.contains(&value),
        Action::Alias { from, .. } => *from == value,
        Action::Blocks(blocks) => blocks.slots().any(|slot| slot == value),
        Action::Allocate(..) | Action::Scratch(..) | Action::Release(_) => false,
    }
}
