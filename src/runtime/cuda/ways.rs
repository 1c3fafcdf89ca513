//! How each action of an executable runs on a device: decided once, from the types of its values.

use super::candidate::EpilogueCandidate;
use super::choice::{Choice, Decided, Wanted, choose, on_tensor_cores};
use super::epilogue::{DeviceEpilogue, Sums};
use super::launch::DeviceLaunch;
use super::library::LibraryEpilogue;
use super::product::DeviceProduct;
use super::routine::DeviceRoutine;
use crate::codegen::cuda::routines::Place;
use crate::codegen::product::ProductShape;
use crate::device::Device;
use crate::error::Reason;
use crate::ir::{DType, Layout, Numerics, TensorType};
use crate::runtime::action::Action;
use crate::runtime::product::shape;
use crate::runtime::schedule::Schedule;
use crate::runtime::view::view_layout;
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
    /// The same by cublasLt.
    LibraryEpilogue(Box<LibraryEpilogue>),
    Routine(Box<DeviceRoutine>),
    /// On the host, and why.
    Host(Reason),
    /// It computes nothing.
    Nothing,
}

impl Way {
    /// By action.
    pub(super) fn of_actions(device: Device, numerics: Numerics, schedule: &Schedule) -> Vec<Way> {
        let mut slots: Vec<Option<(DType, Layout)>> = vec![None; schedule.n_slots];
        for (slot, ty) in schedule.inputs.iter().zip(&schedule.input_types) {
            if let Some(slot) = *slot {
                slots[slot] = Some(lying(ty));
            }
        }
        let mut ways = Vec::with_capacity(schedule.actions.len());
        // By action, the products whose operands are known.
        let mut products: Vec<(usize, ProductShape)> = Vec::new();
        for (index, action) in schedule.actions.iter().enumerate() {
            ways.push(match action {
                Action::Launch(launch) => {
                    DeviceLaunch::new(device, &launch.lowered, launch.gathers).map_or_else(Way::Host, Way::Launch)
                }
                Action::Product { left, right, to, ty } => {
                    if let (Some((dtype, left)), Some((_, right))) = (&slots[*left], &slots[*right]) {
                        products.push((index, shape([left, right], *dtype, ty.dtype)));
                    }
                    slots[*to] = Some(lying(ty));
                    Way::Product(DeviceProduct::own(Choice::Canonical(None)))
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
        for (index, shape) in products {
            decide(&mut ways, schedule, index, &Wanted { device, numerics, shape: &shape, candidate: None });
        }
        ways
    }

    /// Whether cublasLt is called.
    pub(super) fn is_by_cublaslt(&self) -> bool {
        match self {
            Way::Product(product) => product.is_by_cublaslt(),
            Way::LibraryEpilogue(_) => true,
            Way::Launch(_)
            | Way::Later(_)
            | Way::HandOn
            | Way::Epilogue(_)
            | Way::Routine(_)
            | Way::Host(_)
            | Way::Nothing => false,
        }
    }
}

/// Decides about a product and the kernel behind it; no kernel is part of two products.
fn decide(ways: &mut [Way], schedule: &Schedule, product: usize, wanted: &Wanted<'_>) {
    let is_free = |candidate: &EpilogueCandidate| matches!(ways[candidate.kernel], Way::Launch(_) | Way::Host(_));
    let candidate = EpilogueCandidate::of(schedule, product).filter(is_free);
    let may_be_own = |candidate: &EpilogueCandidate| {
        on_tensor_cores(wanted.device, wanted.shape.dtype) && DeviceEpilogue::is_possible(candidate, wanted.shape)
    };
    let candidate = candidate.map(|candidate| (may_be_own(&candidate), candidate));
    let decided =
        choose(&Wanted { candidate: candidate.as_ref().map(|(may_be, candidate)| (candidate, *may_be)), ..*wanted });
    let (choice, fused, candidate) = match (decided, candidate) {
        (Decided::Own(choice @ (Choice::TensorCores(..) | Choice::Wgmma(..))), Some((true, candidate))) => {
            let sums = if matches!(choice, Choice::Wgmma(..)) { Sums::Groups } else { Sums::Warps };
            (choice, Way::Epilogue(DeviceEpilogue::new(&candidate, sums)), candidate)
        }
        (Decided::Own(choice), _) => {
            ways[product] = Way::Product(DeviceProduct::own(choice));
            return;
        }
        (Decided::CublasLt(choice, library, Some(found)), Some((_, candidate))) => {
            (choice, Way::LibraryEpilogue(Box::new(LibraryEpilogue::new(&candidate, found, library))), candidate)
        }
        (Decided::CublasLt(choice, library, _), _) => {
            ways[product] = Way::Product(DeviceProduct::by_cublaslt(choice, library));
            return;
        }
    };
    ways[product] = Way::Later(choice);
    candidate.views.iter().for_each(|&view| ways[view] = Way::HandOn);
    ways[candidate.kernel] = fused;
}

/// A value of a type, at the beginning of its memory.
fn lying(ty: &TensorType) -> (DType, Layout) {
    (ty.dtype, Layout { sizes: ty.sizes.clone(), strides: ty.strides.clone(), offset: 0 })
}
