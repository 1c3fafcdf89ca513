//! How each action of an executable runs on a device, decided once from the types of its values.

use super::candidate::EpilogueCandidate;
use super::choice::{Choice, ProductDecision, ProductRequest, choose, on_tensor_cores};
use super::epilogue::{DeviceEpilogue, Sums};
use super::launch::DeviceLaunch;
use super::library::LibraryEpilogue;
use super::product::DeviceProduct;
use super::routine::DeviceRoutine;
use crate::codegen::cuda::routines::RoutineArray;
use crate::codegen::product::ProductShape;
use crate::device::Device;
use crate::error::{Reason, TierLimit};
use crate::ir::{DType, Layout, Numerics, SideTable, TensorType};
use crate::runtime::action::Action;
use crate::runtime::launch::Slot;
use crate::runtime::product::shape;
use crate::runtime::schedule::Schedule;
use crate::runtime::view::view_layout;
use smallvec::SmallVec;

/// How an action runs on a device.
pub(super) enum DeviceAction {
    Launch(DeviceLaunch),
    Product(DeviceProduct),
    /// A product that its epilogue computes.
    Deferred(Choice),
    /// A view of such a product; the epilogue sees through it.
    Forward,
    /// An epilogue with its product.
    Epilogue(DeviceEpilogue),
    /// The same by cublasLt.
    LibraryEpilogue(Box<LibraryEpilogue>),
    Routine(Box<DeviceRoutine>),
    /// It runs on the host, for this reason.
    Host(Reason),
    /// Nothing has to be computed.
    Nothing,
}

impl DeviceAction {
    /// The device action of each action.
    pub(super) fn of_actions(device: Device, numerics: Numerics, schedule: &Schedule) -> Vec<DeviceAction> {
        let mut slots: SideTable<Slot, Option<(DType, Layout)>> = SideTable::with_len(schedule.n_slots, || None);
        for (slot, ty) in schedule.inputs.iter().zip(&schedule.input_types) {
            if let Some(slot) = *slot {
                slots[slot] = Some(lying(ty));
            }
        }
        let mut device_actions = Vec::with_capacity(schedule.actions.len());
        // By action, the products whose operands are known.
        let mut products: Vec<(usize, ProductShape)> = Vec::new();
        for (index, action) in schedule.actions.iter().enumerate() {
            device_actions.push(match action {
                Action::Launch(launch) => DeviceLaunch::new(device, &launch.lowered, launch.gathers)
                    .map_or_else(DeviceAction::Host, DeviceAction::Launch),
                Action::Product { left, right, to, ty } => {
                    if let (Some((dtype, left)), Some((_, right))) = (&slots[*left], &slots[*right]) {
                        products.push((index, shape([left, right], *dtype, ty.dtype)));
                    }
                    slots[*to] = Some(lying(ty));
                    DeviceAction::Product(DeviceProduct::own(Choice::Canonical(None)))
                }
                Action::Routine { op, attrs, args, to, .. } => {
                    let place = |slot: Slot| slots[slot].as_ref().map(|(dtype, layout)| (*dtype, layout));
                    let operands: Option<SmallVec<[RoutineArray<'_>; 3]>> =
                        args.iter().map(|&slot| place(slot)).collect();
                    match (operands, place(*to)) {
                        (Some(operands), Some(result)) => DeviceRoutine::new(device, *op, attrs, &operands, result)
                            .map_or_else(DeviceAction::Host, |routine| DeviceAction::Routine(Box::new(routine))),
                        (None, _) | (_, None) => DeviceAction::Host(TierLimit::UnknownOperands.into()),
                    }
                }
                Action::Blocks(_) => DeviceAction::Host(TierLimit::NoCudaKernel.into()),
                Action::Allocate(slot, ty) | Action::Scratch(slot, ty) => {
                    slots[*slot] = Some(lying(ty));
                    DeviceAction::Nothing
                }
                Action::Alias { op, attrs, from, to } => {
                    // An invalid view is an error of the run.
                    let view = |(dtype, layout): &(DType, Layout)| {
                        view_layout(*op, attrs, layout, *dtype).ok().map(|(layout, dtype)| (dtype, layout))
                    };
                    slots[*to] = slots[*from].as_ref().and_then(view);
                    DeviceAction::Nothing
                }
                Action::Release(_) => DeviceAction::Nothing,
            });
        }
        for (index, shape) in products {
            decide(
                &mut device_actions,
                schedule,
                index,
                &ProductRequest { device, numerics, shape: &shape, candidate: None },
            );
        }
        device_actions
    }

    /// Whether cublasLt is called.
    pub(super) fn is_by_cublaslt(&self) -> bool {
        match self {
            DeviceAction::Product(product) => product.is_by_cublaslt(),
            DeviceAction::LibraryEpilogue(_) => true,
            DeviceAction::Launch(_)
            | DeviceAction::Deferred(_)
            | DeviceAction::Forward
            | DeviceAction::Epilogue(_)
            | DeviceAction::Routine(_)
            | DeviceAction::Host(_)
            | DeviceAction::Nothing => false,
        }
    }
}

/// Decides about a product and its epilogue candidate. A kernel is the epilogue of one product at most.
fn decide(device_actions: &mut [DeviceAction], schedule: &Schedule, product: usize, request: &ProductRequest<'_>) {
    let is_free = |candidate: &EpilogueCandidate| {
        matches!(device_actions[candidate.kernel], DeviceAction::Launch(_) | DeviceAction::Host(_))
    };
    let candidate = EpilogueCandidate::of(schedule, product).filter(is_free);
    let may_be_own = |candidate: &EpilogueCandidate| {
        on_tensor_cores(request.device, request.shape.dtype) && DeviceEpilogue::is_possible(candidate, request.shape)
    };
    let candidate = candidate.map(|candidate| (may_be_own(&candidate), candidate));
    let decision = choose(&ProductRequest {
        candidate: candidate.as_ref().map(|(may_be, candidate)| (candidate, *may_be)),
        ..*request
    });
    let (choice, fused, candidate) = match (decision, candidate) {
        (ProductDecision::Own(choice @ (Choice::TensorCores(..) | Choice::Wgmma(..))), Some((true, candidate))) => {
            let sums = if matches!(choice, Choice::Wgmma(..)) { Sums::Groups } else { Sums::Warps };
            (choice, DeviceAction::Epilogue(DeviceEpilogue::new(&candidate, sums)), candidate)
        }
        (ProductDecision::Own(choice), _) => {
            device_actions[product] = DeviceAction::Product(DeviceProduct::own(choice));
            return;
        }
        (ProductDecision::CublasLt(choice, library, Some(found)), Some((_, candidate))) => (
            choice,
            DeviceAction::LibraryEpilogue(Box::new(LibraryEpilogue::new(&candidate, found, library))),
            candidate,
        ),
        (ProductDecision::CublasLt(choice, library, _), _) => {
            device_actions[product] = DeviceAction::Product(DeviceProduct::by_cublaslt(choice, library));
            return;
        }
    };
    device_actions[product] = DeviceAction::Deferred(choice);
    candidate.views.iter().for_each(|&view| device_actions[view] = DeviceAction::Forward);
    device_actions[candidate.kernel] = fused;
}

/// A dense value of a type, at the start of its memory.
fn lying(ty: &TensorType) -> (DType, Layout) {
    (ty.dtype, Layout { sizes: ty.sizes.clone(), strides: ty.strides.clone(), offset: 0 })
}
