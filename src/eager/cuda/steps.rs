#![allow(unsafe_code, reason = "answers for the arrays that kernels are started on")]
//! The actions of an executable on a device.
//!
//! The executable is the one that runs on the CPU, with code of the vm; beside each launch lies how the device runs it, or the
//! reason why it does not. Values of a run are memory of the device all the way.

use super::fallback;
use super::launch::DeviceLaunch;
use super::product::{Choice, DeviceProduct};
use super::uploaded;
use crate::device::cuda;
use crate::device::{Access, Device, DeviceKind, Storage, Stream};
use crate::eager::Array;
use crate::eager::executable::{Action, Executable, Held, Launch, view};
use crate::error::{Error, Reason, Result};
use crate::ir::Numerics;
use smallvec::SmallVec;

/// How the actions of an executable run on a device.
pub(in crate::eager) struct OnDevice {
    device: Device,
    /// By action.
    ways: Vec<Way>,
}

/// How an action runs on a device.
enum Way {
    Launch(DeviceLaunch),
    Product(DeviceProduct),
    /// On the host, and why.
    Host(Reason),
    /// It computes nothing.
    Nothing,
}

impl OnDevice {
    pub(in crate::eager) fn new(device: Device, numerics: Numerics, executable: &Executable) -> OnDevice {
        let ways = executable.actions.iter().map(|action| match action {
            Action::Launch(launch) => DeviceLaunch::new(device, &launch.lowered).map_or_else(Way::Host, Way::Launch),
            Action::Product { ty, .. } => Way::Product(DeviceProduct::new(device, numerics, ty.dtype)),
            Action::Routine { .. } | Action::Blocks(_) => {
                Way::Host(Reason::TierCannot("there is no CUDA kernel for it yet, so the cpu computes it".into()))
            }
            Action::Allocate(..) | Action::Scratch(..) | Action::Alias { .. } | Action::Release(_) => Way::Nothing,
        });
        OnDevice { device, ways: ways.collect() }
    }

    /// The device.
    pub(in crate::eager) fn device(&self) -> Device {
        self.device
    }

    /// Why an action runs on the host, if it does.
    pub(in crate::eager) fn declined(&self, action: usize) -> Option<Reason> {
        match &self.ways[action] {
            Way::Host(reason) => Some(reason.clone()),
            Way::Launch(_) | Way::Product(_) | Way::Nothing => None,
        }
    }

    /// What numerics did to an action, if it is a product.
    pub(in crate::eager) fn choice(&self, action: usize) -> Option<&Choice> {
        match &self.ways[action] {
            Way::Product(product) => Some(product.choice()),
            Way::Launch(_) | Way::Host(_) | Way::Nothing => None,
        }
    }

    /// Runs on inputs of the types of the graph's inputs, those on the host being few elements that stand for numbers.
    /// An only output is written to `target`, if there is one; an input that shares its storage lies exactly where it does,
    /// and the executable works in place.
    ///
    /// # Errors
    /// As [`Executable::run`].
    pub(in crate::eager) fn run(
        &self,
        executable: &Executable,
        inputs: &[&Array],
        target: Option<&Array>,
    ) -> Result<SmallVec<[Array; 2]>> {
        self.check(executable, inputs)?;
        let here = |array: &Array| array.device() == self.device;
        let moved: SmallVec<[Option<Array>; 4]> = inputs
            .iter()
            .map(|input| if here(input) { Ok(None) } else { uploaded(self.device, input).map(Some) })
            .collect::<Result<_>>()?;
        let inputs: SmallVec<[&Array; 8]> =
            inputs.iter().zip(&moved).map(|(&input, moved)| moved.as_ref().unwrap_or(input)).collect();
        let stream = Stream::current(self.device)?;
        let reads = inputs.iter().map(|array| &**array.storage());
        let access = Access::to_write(reads, target.map(|target| &**target.storage() as &Storage))?;
        let mut slots = executable.slots(&inputs);
        if let Some(target) = target {
            let &[(slot, _)] = &executable.outputs[..] else {
                return Err(Error::argument("executable", "one output is needed to write it to a given place"));
            };
            slots[slot] = Held::Given(target);
        }
        for (index, action) in executable.actions.iter().enumerate() {
            self.act(executable, index, action, &mut slots, &stream, &access)?;
        }
        Ok(executable.results(&mut slots))
    }

    fn act(
        &self,
        executable: &Executable,
        index: usize,
        action: &Action,
        slots: &mut [Held<'_>],
        stream: &Stream,
        access: &Access<'_>,
    ) -> Result<()> {
        match (action, &self.ways[index]) {
            (Action::Allocate(slot, _), _) if matches!(slots[*slot], Held::Given(_)) => {}
            (Action::Allocate(slot, ty) | Action::Scratch(slot, ty), _) => {
                slots[*slot] = Held::Own(Array::new(self.device, ty)?);
            }
            (Action::Alias { op, attrs, from, to }, _) => {
                slots[*to] = Held::Own(view(*op, attrs, slots[*from].array())?);
            }
            (Action::Release(slot), _) => slots[*slot] = Held::Nothing,
            (Action::Launch(launch), _) if launch.is_idle => {}
            (Action::Launch(launch), Way::Launch(on_device)) => {
                start(on_device, launch, slots, stream).map_err(|error| launch.blamed(error))?;
            }
            (Action::Product { left, right, to, ty }, Way::Product(on_device)) => {
                let (left, right) = (slots[*left].array(), slots[*right].array());
                // SAFETY: operands are arrays of the types of the graph, on the device of this executable, which the slots keep
                // alive and the run has locked.
                match unsafe { on_device.run(left, right, ty, stream)? } {
                    Ok(result) => slots[*to] = Held::Own(result),
                    Err(reason) => fallback::run(executable, action, slots, self.device, &reason, access)?,
                }
            }
            (_, Way::Host(reason)) => fallback::run(executable, action, slots, self.device, reason, access)?,
            (_, Way::Launch(_) | Way::Product(_) | Way::Nothing) => {
                unreachable!("every action has the way that was made for it")
            }
        }
        Ok(())
    }

    /// Inputs have the types of the graph's, and are on the device or stand for numbers.
    fn check(&self, executable: &Executable, inputs: &[&Array]) -> Result<()> {
        let fits = |(array, ty): (&&Array, &crate::ir::TensorType)| {
            let few = array.device().kind == DeviceKind::Cpu && array.layout.numel() <= FEW;
            array.is_of(ty) && (array.device() == self.device || few)
        };
        if inputs.len() == executable.input_types.len() && inputs.iter().zip(&executable.input_types).all(fits) {
            return Ok(());
        }
        Err(executable.other_types(inputs))
    }
}

/// Elements of what may come from the host with each run: numbers, and keys of random draws.
const FEW: usize = 2;

fn start(on_device: &DeviceLaunch, launch: &Launch, slots: &[Held<'_>], stream: &Stream) -> Result<()> {
    let queue = cuda::machine()?.queue(stream)?;
    let operands: SmallVec<[Option<&Array>; 8]> =
        launch.operands.iter().map(|slot| slot.map(|slot| slots[slot].array())).collect();
    let outputs: SmallVec<[&Array; 4]> = launch.outputs.iter().map(|&slot| slots[slot].array()).collect();
    // SAFETY: operands are arrays of exactly the types the accesses were made from, on the device of this executable,
    // which the slots keep alive and the run has locked; outputs were allocated by this run for this launch and nobody else
    // knows them yet, or are locked for writing.
    unsafe { on_device.start(&launch.lowered, &operands, &outputs, stream, &queue) }
}
