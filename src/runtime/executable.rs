//! Executables: planned graphs as lists of actions that run.
//!
//! An executable belongs to one set of shapes; its kernels are shared by all shapes through the kernel cache. Values
//! are in slots. A slot is released after its last use, so its memory returns to the allocator and serves the next
//! action. An eager call runs the executable of its one-op graph, a compiled function that of its traced graph.

use super::action::{SlotValue, Slots};
use super::array::Array;
use super::cuda::{Choice, DeviceExecutable};
use super::launch::Launch;
use super::schedule::Schedule;
use super::shared_layout::SharedLayout;
use super::single::Single;
use crate::device::{Access, Device, DeviceKind, Storage};
use crate::error::{Error, Reason, Result};
use crate::fusion::in_place::InPlace;
use crate::ir::TensorType;
use smallvec::{SmallVec, smallvec};
use std::sync::OnceLock;

/// A planned graph that can run.
pub struct Executable {
    pub(super) schedule: Schedule,
    /// Per input, a layout that was found to match its type. Most calls bring the same one again.
    pub(super) seen: Vec<OnceLock<SharedLayout>>,
    /// Reasons why tiers declined, by step of the plan.
    pub declined: Vec<(usize, Reason)>,
    /// Kernels of the plan that write in place, and where.
    pub in_place: Vec<(usize, InPlace)>,
    /// The shorter way to run it, if it is one kernel.
    pub(super) single: Option<Single>,
    /// How it runs on a GPU, if it was built for one.
    pub(super) on_device: Option<DeviceExecutable>,
}

impl Executable {
    /// The GPU that it was built for.
    pub fn device(&self) -> Option<Device> {
        self.on_device.as_ref().map(DeviceExecutable::device)
    }

    /// By kernel of the plan, why its GPU does not run all of it.
    pub fn declined_on_device(&self) -> Vec<(usize, Reason)> {
        let Some(on_device) = &self.on_device else { return Vec::new() };
        let kernels = self.schedule.kernels.iter().enumerate();
        kernels.filter_map(|(index, &kernel)| Some((kernel, on_device.declined(index)?))).collect()
    }

    /// By kernel of the plan, how products and epilogues are computed on its GPU.
    pub fn choices_on_device(&self) -> Vec<(usize, Choice)> {
        let Some(on_device) = &self.on_device else { return Vec::new() };
        let kernels = self.schedule.kernels.iter().enumerate();
        kernels.filter_map(|(index, &kernel)| Some((kernel, on_device.choice(index)?))).collect()
    }

    /// After how many runs on a stream its GPU starts a run as one CUDA graph, or why it never does; `None` on the CPU.
    pub fn replay(&self) -> Option<Result<u32, Reason>> {
        self.on_device.as_ref().map(DeviceExecutable::replay)
    }

    /// The shorter way to run it, if it is one kernel.
    #[inline]
    pub fn single(&self) -> Option<&Single> {
        self.single.as_ref()
    }

    /// Every launch, in order.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.schedule.launches()
    }

    /// Every launch with the kernel of the plan that it belongs to, in order.
    pub fn launches_by_kernel(&self) -> impl Iterator<Item = (usize, &Launch)> {
        self.schedule.launches_by_kernel()
    }

    /// The most bytes that values of a run take at a time: outputs count, inputs do not, nor does what a step allocates
    /// for itself.
    pub fn peak_bytes(&self) -> usize {
        self.schedule.peak_bytes()
    }

    /// Makes every launch use the code that it would get once it is called often.
    pub fn warm(&self) {
        if self.on_device.is_some() {
            return;
        }
        for launch in self.launches() {
            launch.code.warm(&launch.lowered.kernel, &launch.lowered.geometry);
        }
    }

    /// Runs on inputs that have exactly the types of the graph's inputs; their offsets may differ. Inputs that it
    /// [writes to](Executable::rewritten) share no memory with others.
    ///
    /// # Errors
    /// If inputs have other types or no data, there is not enough memory, or an index is out of range.
    pub fn run(&self, inputs: &[&Array]) -> Result<SmallVec<[Array; 2]>> {
        if let Some(on_device) = &self.on_device {
            return on_device.run(&self.schedule, inputs, None);
        }
        self.check(inputs)?;
        if let Some(single) = &self.single {
            return Ok(smallvec![
                single.run(inputs.len(), |index| inputs[index], |array| array).map_err(|error| *error)?
            ]);
        }
        let _access = self.access(inputs)?;
        let mut slots = self.schedule.slots(inputs);
        self.perform(&mut slots)?;
        Ok(self.schedule.results(&mut slots))
    }

    /// The locks of a run on these inputs.
    ///
    /// # Errors
    /// If a slice of a written input is borrowed.
    #[inline]
    pub(super) fn access<'a>(&self, inputs: &[&'a Array]) -> Result<Access<'a>> {
        let reads = inputs.iter().map(|array| &**array.storage());
        match &self.schedule.rewritten[..] {
            [] => Ok(Access::to_read(reads)),
            rewritten => Access::to_write(reads, rewritten.iter().map(|&input| &**inputs[input].storage())),
        }
    }

    /// The inputs that it writes to. Their new values are outputs in the same memory.
    pub fn rewritten(&self) -> &[usize] {
        &self.schedule.rewritten
    }

    /// Like [`Executable::run`], but writes the only output to `target`, which has exactly its type. An input may share
    /// the target's storage if [`Executable::works_in_place`] and it has the target's layout, or if no kernel that
    /// writes the target reads it.
    ///
    /// # Errors
    /// As for [`Executable::run`], or if a slice of the target is borrowed.
    pub fn run_into(&self, inputs: &[&Array], target: &Array) -> Result<()> {
        if let Some(on_device) = &self.on_device {
            return on_device.run(&self.schedule, inputs, Some(target)).map(|_| ());
        }
        self.check(inputs)?;
        let &[(slot, _)] = &self.schedule.outputs[..] else {
            return Err(Error::argument("executable", "one output is needed to write it to a given place"));
        };
        let reads = inputs.iter().map(|array| &**array.storage());
        let _access = Access::to_write(reads, [&**target.storage() as &Storage])?;
        let mut slots = self.schedule.slots(inputs);
        slots[slot] = SlotValue::Given(target);
        self.perform(&mut slots)
    }

    /// Whether it is one kernel that reads every element of an operand where it writes it, so that the output may be in
    /// the memory of an input.
    pub fn works_in_place(&self) -> bool {
        self.schedule.works_in_place()
    }

    pub(super) fn check(&self, inputs: &[&Array]) -> Result<()> {
        let fits = |((array, ty), seen): ((&&Array, &TensorType), &OnceLock<SharedLayout>)| {
            let is_known = seen.get().is_some_and(|seen| seen.is(&array.layout)) && array.dtype == ty.dtype;
            if !is_known && array.is_of(ty) {
                let _ = seen.set(array.layout.clone());
            } else if !is_known {
                return false;
            }
            array.device().kind == DeviceKind::Cpu
        };
        let n_inputs = self.schedule.input_types.len();
        if inputs.len() == n_inputs && inputs.iter().zip(&self.schedule.input_types).zip(&self.seen).all(fits) {
            return Ok(());
        }
        Err(self.schedule.other_types(Device::CPU, inputs))
    }

    /// Runs every action in order. The locks of the inputs are held.
    fn perform(&self, slots: &mut Slots<'_>) -> Result<()> {
        self.schedule.actions.iter().try_for_each(|action| action.run(slots))
    }
}
