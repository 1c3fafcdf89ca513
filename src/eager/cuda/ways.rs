//! How each action of an executable runs on a device: decided once, from the types of its values.

use super::epilogue::{self, DeviceEpilogue};
use super::launch::DeviceLaunch;
use super::product::{Choice, DeviceProduct};
use super::routine::DeviceRoutine;
use crate::codegen::cuda::routines::Place;
use crate::device::Device;
use crate::eager::executable::{Action, Executable, view_layout};
use crate::error::Reason;
use crate::ir::{DType, Layout, Numerics, TensorType};
use smallvec::SmallVec;

/// How an action runs on a device.
pub(super) enum Way {
    Launch(DeviceLaunch),
    Product(DeviceProduct),
    /// A product that is computed in its epilogue.
    Later(Choice),
    /// A view of one.
    HandOn,
    /// The epilogue, and the product with it.
    Epilogue(DeviceEpilogue),
    Routine(Box<DeviceRoutine>),
    /// On the host, and why.
    Host(Reason),
    /// It computes nothing.
    Nothing,
}

impl Way {
    /// By action.
    pub(super) fn of_actions(device: Device, numerics: Numerics, executable: &Executable) -> Vec<Way> {
        let mut slots: Vec<Option<(DType, Layout)>> = vec![None; executable.n_slots];
        for (slot, ty) in executable.inputs.iter().zip(&executable.input_types) {
            if let Some(slot) = *slot {
                slots[slot] = Some(lying(ty));
            }
        }
        let mut ways = Vec::with_capacity(executable.actions.len());
        for action in &executable.actions {
            ways.push(match action {
                Action::Launch(launch) => {
                    DeviceLaunch::new(device, &launch.lowered, launch.gathers).map_or_else(Way::Host, Way::Launch)
                }
                Action::Product { to, ty, .. } => {
                    slots[*to] = Some(lying(ty));
                    Way::Product(DeviceProduct::new(device, numerics, ty.dtype))
                }
                Action::Routine { op, attrs, args, to } => {
                    let place = |slot: usize| slots[slot].as_ref().map(|(dtype, layout)| (*dtype, layout));
                    let operands: Option<SmallVec<[Place<'_>; 3]>> = args.iter().map(|&slot| place(slot)).collect();
                    match (operands, place(*to)) {
                        (Some(operands), Some(result)) => DeviceRoutine::new(device, *op, attrs, &operands, result)
                            .map_or_else(Way::Host, |routine| Way::Routine(Box::new(routine))),
                        (None, _) | (_, None) => Way::Host(Reason::TierCannot("its operands are not known".into())),
                    }
                }
                Action::Blocks(_) => {
                    Way::Host(Reason::TierCannot("there is no CUDA kernel for it yet, so the cpu computes it".into()))
                }
                Action::Allocate(slot, ty) | Action::Scratch(slot, ty) => {
                    slots[*slot] = Some(lying(ty));
                    Way::Nothing
                }
                Action::Alias { op, attrs, from, to } => {
                    // One that is no view is an error of the run.
                    let view = |(dtype, layout): &(DType, Layout)| {
                        view_layout(*op, attrs, layout, *dtype).ok().map(|(layout, dtype)| (dtype, layout))
                    };
                    slots[*to] = slots[*from].as_ref().and_then(view);
                    Way::Nothing
                }
                Action::Release(_) => Way::Nothing,
            });
        }
        let on_tensor_cores =
            |action: usize| matches!(&ways[action], Way::Product(product) if product.is_on_tensor_cores());
        for found in epilogue::find(executable, on_tensor_cores) {
            if let Way::Product(product) = &ways[found.product] {
                ways[found.product] = Way::Later(product.choice().clone());
                found.views.iter().for_each(|&view| ways[view] = Way::HandOn);
                let kernel = found.kernel;
                ways[kernel] = Way::Epilogue(found);
            }
        }
        ways
    }
}

/// A value of a type, at the beginning of its memory.
fn lying(ty: &TensorType) -> (DType, Layout) {
    (ty.dtype, Layout { sizes: ty.sizes.clone(), strides: ty.strides.clone(), offset: 0 })
}
