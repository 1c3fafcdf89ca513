#![allow(unsafe_code, reason = "answers for the arrays that kernels are started on")]
//! Runs the actions of an executable on a device.
//!
//! The executable is the one for the CPU, with code of the vm. For each action there is a [`DeviceAction`], or the
//! reason why the host runs it. All values of a run are in device memory.
//!
//! A run without a part on the host is a [`DeviceProgram`], built when memory of its alignments first occurs. Other
//! runs, and those whose memory cannot be allocated as one piece, go action by action.

use super::alignments::{Alignments, alignment};
use super::choice::Choice;
use super::device_action::DeviceAction;
use super::epilogue::DeviceEpilogue;
use super::fallback;
use super::inputs::{Need, n_places};
use super::launch::DeviceLaunch;
use super::library::LibraryEpilogue;
use super::outline::Outline;
use super::program::DeviceProgram;
use super::replay::{CALLS, MIN_NODES};
use super::transfer::uploaded;
use crate::device::cuda::{self, Queue};
use crate::device::{Access, Device, DeviceKind, Storage, Stream};
use crate::error::{Error, NoReplay, Reason, Result};
use crate::ir::Numerics;
use crate::runtime::Array;
use crate::runtime::action::{Action, SlotValue, Slots};
use crate::runtime::launch::Launch;
use crate::runtime::schedule::Schedule;
use crate::runtime::view::view;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How the actions of an executable run on a device.
pub(crate) struct DeviceExecutable {
    device: Device,
    /// Per action.
    device_actions: Vec<DeviceAction>,
    /// Per input.
    needs: SmallVec<[Need; 4]>,
    /// What a run does, or why that is unknown.
    outline: std::result::Result<Outline, Reason>,
    /// The programs that ran last, the most recent last.
    programs: Mutex<SmallVec<[ForAlignments; 1]>>,
}

/// A program, with the alignments of the inputs and of the target.
type ForAlignments = (Alignments, Arc<DeviceProgram>);

/// Most programs that an executable keeps. One suffices unless inputs have various alignments.
const MAX_PROGRAMS: usize = 8;

impl DeviceExecutable {
    pub(crate) fn new(device: Device, numerics: Numerics, schedule: &Schedule) -> DeviceExecutable {
        let device_actions = DeviceAction::of_actions(device, numerics, schedule);
        let outline = Outline::new(schedule, &device_actions);
        let needs = Need::of_inputs(schedule, &device_actions);
        DeviceExecutable { device, device_actions, needs, outline, programs: Mutex::default() }
    }

    /// The device.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Why an action runs on the host, if it does.
    pub(crate) fn declined(&self, action: usize) -> Option<Reason> {
        let DeviceAction::Host(reason) = &self.device_actions[action] else { return None };
        Some(reason.clone())
    }

    /// How an action is computed, if it is a product or an epilogue.
    pub(crate) fn choice(&self, action: usize) -> Option<Choice> {
        match &self.device_actions[action] {
            DeviceAction::Product(product) => Some(product.choice()),
            DeviceAction::Deferred(choice) => Some(choice.clone()),
            DeviceAction::Epilogue(epilogue) => Some(Choice::Epilogue(epilogue.declined().cloned())),
            DeviceAction::LibraryEpilogue(_) => Some(Choice::CublasLtEpilogue),
            DeviceAction::Launch(_)
            | DeviceAction::Routine(_)
            | DeviceAction::Host(_)
            | DeviceAction::Forward
            | DeviceAction::Nothing => None,
        }
    }

    /// After how many runs on a stream a run is started as one CUDA graph, or why it never is.
    pub(crate) fn replay(&self) -> std::result::Result<u32, Reason> {
        match &self.outline {
            Err(reason) => Err(reason.clone()),
            Ok(outline) if outline.starts.len() < MIN_NODES => Err(NoReplay::FewKernels { limit: MIN_NODES }.into()),
            Ok(_) if self.device_actions.iter().any(DeviceAction::is_by_cublaslt) => {
                Err(NoReplay::LibraryKernels.into())
            }
            Ok(_) if !cuda::has_graphs() => Err(NoReplay::DriverHasNone.into()),
            Ok(_) => Ok(CALLS),
        }
    }

    /// Runs on inputs with the types of the graph's inputs. Inputs on the host are a few elements that stand for
    /// numbers. If there is a `target`, the only output is written to it. An input that shares the target's storage has
    /// its layout, and the executable works in place.
    ///
    /// # Errors
    /// As for [`Executable::run`].
    pub(crate) fn run(
        &self,
        schedule: &Schedule,
        inputs: &[&Array],
        target: Option<&Array>,
    ) -> Result<SmallVec<[Array; 2]>> {
        self.check(schedule, inputs)?;
        let moved = self.moved(inputs)?;
        let inputs = with_moved(inputs, &moved);
        let stream = Stream::current(self.device)?;
        let queue = cuda::machine()?.queue(&stream)?;
        // Before the run starts: faults reported here are those of earlier work.
        queue.check()?;
        let reads = inputs.iter().map(|array| &**array.storage());
        let access = Access::to_write(reads, target.map(|target| &**target.storage() as &Storage))?;
        if let Some(results) = self.run_program(schedule, &inputs, target, &stream, &queue)? {
            return Ok(results);
        }
        let mut slots = schedule.slots(&inputs);
        if let Some(target) = target {
            let &[(slot, _)] = &schedule.outputs[..] else {
                return Err(Error::argument("executable", "one output is needed to write it to a given place"));
            };
            slots[slot] = SlotValue::Given(target);
        }
        for (index, action) in schedule.actions.iter().enumerate() {
            self.act(index, action, &mut slots, &stream, &access)?;
        }
        Ok(schedule.results(&mut slots))
    }

    /// See [`Executable::run_timed`].
    ///
    /// # Errors
    /// As for [`Executable::run`].
    pub(crate) fn run_timed(&self, schedule: &Schedule, inputs: &[&Array]) -> Result<Vec<Duration>> {
        self.check(schedule, inputs)?;
        let moved = self.moved(inputs)?;
        let inputs = with_moved(inputs, &moved);
        let stream = Stream::current(self.device)?;
        let access = Access::to_read(inputs.iter().map(|array| &**array.storage()));
        let mut slots = schedule.slots(&inputs);
        let mut points = vec![stream.record()?];
        for (index, action) in schedule.actions.iter().enumerate() {
            self.act(index, action, &mut slots, &stream, &access)?;
            points.push(stream.record()?);
        }
        drop(access);
        points.last().expect("there is the first").synchronize()?;
        let mut times = vec![Duration::ZERO; schedule.n_kernels()];
        for (pair, &kernel) in points.windows(2).zip(&schedule.kernels) {
            times[kernel] += pair[0].elapsed(&pair[1])?;
        }
        Ok(times)
    }

    /// Copies those inputs to the device that have to be there.
    fn moved(&self, inputs: &[&Array]) -> Result<SmallVec<[Option<Array>; 4]>> {
        let moves = |array: &Array, need: &Need| array.device() != self.device && need.copies(array);
        let moved = |(&array, need): (&&Array, &Need)| {
            if moves(array, need) { uploaded(self.device, array).map(Some) } else { Ok(None) }
        };
        inputs.iter().zip(&self.needs).map(moved).collect()
    }

    /// Runs it as a program; `None` if there is none, or no memory for it. The locks of all operands are held.
    fn run_program(
        &self,
        schedule: &Schedule,
        inputs: &[&Array],
        target: Option<&Array>,
        stream: &Stream,
        queue: &Queue,
    ) -> Result<Option<SmallVec<[Array; 2]>>> {
        let Ok(outline) = &self.outline else { return Ok(None) };
        if target.is_some() && !outline.has_place_for_target() {
            return Ok(None);
        }
        let Some(program) = self.program(schedule, outline, inputs, target)? else { return Ok(None) };
        let memory = match program.memory(self.device, target.is_some()) {
            Ok(memory) => memory,
            // In smaller pieces the free memory may suffice; otherwise that attempt reports the error.
            Err(Error::OutOfMemory { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        for array in inputs.iter().copied().chain(target) {
            array.storage().turn_to(stream)?;
        }
        // SAFETY: inputs were checked to have the types of the graph's inputs. They are on the device, or single
        // elements that only kernels read; the target is on the device and has the type of the output. The program is
        // the one for their alignments, the run has locked them, and they were just ordered to the stream.
        unsafe { program.run(inputs, target, memory, stream, queue).map(Some) }
    }

    /// The program for the alignments of these arrays, built now if it is new; `None` if there is none.
    fn program(
        &self,
        schedule: &Schedule,
        outline: &Outline,
        inputs: &[&Array],
        target: Option<&Array>,
    ) -> Result<Option<Arc<DeviceProgram>>> {
        let alignments: Alignments = inputs.iter().copied().chain(target).map(alignment).collect();
        let lock = || self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, program)) = lock().iter().find(|(other, _)| *other == alignments) {
            return Ok(Some(program.clone()));
        }
        let (of_inputs, of_target) = alignments.split_at(inputs.len());
        let of_target = of_target.first().copied();
        let made = DeviceProgram::new(schedule, &self.device_actions, outline, self.device, of_inputs, of_target)?;
        let Ok(program) = made.map(Arc::new) else { return Ok(None) };
        let mut programs = lock();
        if programs.len() == MAX_PROGRAMS {
            programs.remove(0);
        }
        programs.push((alignments, program.clone()));
        Ok(Some(program))
    }

    fn act(
        &self,
        index: usize,
        action: &Action,
        slots: &mut Slots<'_>,
        stream: &Stream,
        access: &Access<'_>,
    ) -> Result<()> {
        match (action, &self.device_actions[index]) {
            (Action::Allocate(slot, _), _) if matches!(slots[*slot], SlotValue::Given(_)) => {}
            (Action::Allocate(slot, ty) | Action::Scratch(slot, ty), _) => {
                slots[*slot] = SlotValue::Owned(Array::new(self.device, ty)?);
            }
            (Action::Alias { from, to, .. }, DeviceAction::Forward) => {
                slots[*to] = std::mem::replace(&mut slots[*from], SlotValue::Empty);
            }
            (Action::Alias { op, attrs, from, to }, _) => {
                slots[*to] = SlotValue::Owned(view(*op, attrs, slots[*from].array())?);
            }
            (Action::Release(slot), _) => slots[*slot] = SlotValue::Empty,
            (Action::Launch(launch), _) if launch.is_idle => {}
            (Action::Launch(launch), DeviceAction::Launch(on_device)) => {
                start(on_device, launch, slots, stream)?;
            }
            (Action::Product { left, right, to, ty }, DeviceAction::Product(on_device)) => {
                let (left, right) = (slots[*left].array(), slots[*right].array());
                // SAFETY: operands are arrays of the types of the graph, on the device of this executable; the slots
                // keep them alive and the run has locked them.
                match unsafe { on_device.run(left, right, ty, stream)? } {
                    Ok(result) => slots[*to] = SlotValue::Owned(result),
                    Err(reason) => fallback::run(action, slots, self.device, &reason, access)?,
                }
            }
            (Action::Product { left, right, to, .. }, DeviceAction::Deferred(_)) => {
                let factors = [left, right].map(|&slot| slots[slot].array().clone());
                slots[*to] = SlotValue::Factors(Box::new(factors));
            }
            (Action::Launch(launch), DeviceAction::Epilogue(on_device)) => {
                start_epilogue(on_device, launch, slots, stream)?;
            }
            (Action::Launch(launch), DeviceAction::LibraryEpilogue(epilogue)) => {
                start_library_epilogue(epilogue, launch, slots, stream)?
            }
            (Action::Routine { args, to, .. }, DeviceAction::Routine(on_device)) => {
                let queue = cuda::machine()?.queue(stream)?;
                let operands: SmallVec<[&Array; 3]> = args.iter().map(|&slot| slots[slot].array()).collect();
                // SAFETY: as for products; the result is memory that this run allocated for the action.
                unsafe { on_device.start(&operands, slots[*to].array(), stream, &queue)? };
            }
            (_, DeviceAction::Host(reason)) => fallback::run(action, slots, self.device, reason, access)?,
            (
                _,
                DeviceAction::Launch(_)
                | DeviceAction::Product(_)
                | DeviceAction::Deferred(_)
                | DeviceAction::Forward
                | DeviceAction::Epilogue(_)
                | DeviceAction::LibraryEpilogue(_)
                | DeviceAction::Routine(_)
                | DeviceAction::Nothing,
            ) => {
                unreachable!("every action has the way that was made for it")
            }
        }
        Ok(())
    }

    /// Checks that inputs have the types of the graph's inputs, and are on the device or stand for numbers.
    ///
    /// # Errors
    /// If they do not.
    pub(crate) fn check(&self, schedule: &Schedule, inputs: &[&Array]) -> Result<()> {
        let fits = |(array, ty): (&&Array, &crate::ir::TensorType)| {
            let is_few = array.device().kind == DeviceKind::Cpu && n_places(&array.layout) <= MAX_HOST_ELEMENTS;
            array.is_of(ty) && (array.device() == self.device || is_few)
        };
        if inputs.len() == schedule.input_types.len() && inputs.iter().zip(&schedule.input_types).all(fits) {
            return Ok(());
        }
        Err(schedule.other_types(self.device, inputs))
    }
}

/// Most elements that may come from the host with each run: numbers, and keys of random draws.
const MAX_HOST_ELEMENTS: usize = 2;

/// The inputs, with copies in place of those that were moved.
fn with_moved<'a>(inputs: &[&'a Array], moved: &'a [Option<Array>]) -> SmallVec<[&'a Array; 8]> {
    inputs.iter().zip(moved).map(|(&input, moved)| moved.as_ref().unwrap_or(input)).collect()
}

fn start(on_device: &DeviceLaunch, launch: &Launch, slots: &Slots<'_>, stream: &Stream) -> Result<()> {
    let queue = cuda::machine()?.queue(stream)?;
    let operands: SmallVec<[Option<&Array>; 8]> =
        launch.operands.iter().map(|slot| slot.map(|slot| slots[slot].array())).collect();
    let outputs: SmallVec<[&Array; 4]> = launch.outputs.iter().map(|&slot| slots[slot].array()).collect();
    // SAFETY: operands are arrays of exactly the types the accesses were made from, on the device of this executable,
    // or single elements of inputs. The slots keep them alive and the run has locked them. Outputs were allocated by
    // this run for this launch, so nothing else has them yet, or are locked for writing.
    unsafe { on_device.start(&launch.lowered, &operands, &outputs, stream, &queue) }
}

fn start_epilogue(on_device: &DeviceEpilogue, launch: &Launch, slots: &Slots<'_>, stream: &Stream) -> Result<()> {
    let queue = cuda::machine()?.queue(stream)?;
    let mut factors = None;
    let operands: SmallVec<[Option<&Array>; 8]> = launch
        .operands
        .iter()
        .enumerate()
        .map(|(operand, slot)| match &slots[(*slot)?] {
            SlotValue::Factors(both) if operand == on_device.slot() => {
                factors = Some([&both[0], &both[1]]);
                None
            }
            held => Some(held.array()),
        })
        .collect();
    let factors = factors.expect("the product's action comes first and leaves its operands");
    let outputs: SmallVec<[&Array; 4]> = launch.outputs.iter().map(|&slot| slots[slot].array()).collect();
    // SAFETY: as in `start`; the product's operands are arrays of the types of the graph, which its slot keeps alive.
    unsafe { on_device.start(factors, &operands, &outputs, stream, &queue) }
}

fn start_library_epilogue(
    epilogue: &LibraryEpilogue,
    launch: &Launch,
    slots: &Slots<'_>,
    stream: &Stream,
) -> Result<()> {
    let queue = cuda::machine()?.queue(stream)?;
    let slot = |operand: usize| launch.operands[operand].expect("what cublasLt reads is memory");
    let SlotValue::Factors(factors) = &slots[slot(epilogue.slot)] else {
        unreachable!("the product's action comes first and leaves its operands")
    };
    let bias = epilogue.bias.map(|bias| slots[slot(bias)].array());
    let result = slots[launch.outputs[0]].array();
    // SAFETY: as in `start_epilogue`.
    unsafe { epilogue.product.start([&factors[0], &factors[1]], bias, result, stream, &queue) }
}
