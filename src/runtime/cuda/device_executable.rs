#![allow(unsafe_code, reason = "answers for the arrays that kernels are started on")]
//! The actions of an executable on a device.
//!
//! The executable is the one that runs on the CPU, with code of the vm; beside each launch lies how the device runs it, or the
//! reason why it does not. Values of a run are memory of the device all the way.
//!
//! A run that the host has no part in is a [`DeviceProgram`], made when memory of some alignments first comes. The others, and
//! what finds no room for its memory in one piece, go action by action.

use super::choice::Choice;
use super::device_action::DeviceAction;
use super::epilogue::DeviceEpilogue;
use super::fallback;
use super::inputs::{Need, n_places};
use super::launch::{Alignments, DeviceLaunch, alignment};
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
    /// By action.
    device_actions: Vec<DeviceAction>,
    /// By input.
    needs: SmallVec<[Need; 4]>,
    /// What a run does, or why that is not known.
    outline: std::result::Result<Outline, Reason>,
    /// Those that ran last, the last one last.
    programs: Mutex<SmallVec<[ForAlignments; 1]>>,
}

/// A program, and the alignments of inputs, then of the target.
type ForAlignments = (Alignments, Arc<DeviceProgram>);

/// Programs that an executable keeps: one is enough but where inputs begin anywhere.
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

    /// What numerics did to an action, if it is a product or follows one.
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

    /// After how many runs on a stream all kernels of a run are started as one graph, or why they never are.
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

    /// Runs on inputs of the types of the graph's inputs, those on the host being few elements that stand for numbers.
    /// An only output is written to `target`, if there is one; an input that shares its storage lies exactly where it does,
    /// and the executable works in place.
    ///
    /// # Errors
    /// As [`Executable::run`].
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
        // Before anything of this run is done: what is told here is of work that was given before.
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

    /// As [`Executable::run_timed`].
    ///
    /// # Errors
    /// As [`Executable::run`].
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

    /// The inputs that are to be copied to the device, copied.
    fn moved(&self, inputs: &[&Array]) -> Result<SmallVec<[Option<Array>; 4]>> {
        let moves = |array: &Array, need: &Need| array.device() != self.device && need.copies(array);
        let moved = |(&array, need): (&&Array, &Need)| {
            if moves(array, need) { uploaded(self.device, array).map(Some) } else { Ok(None) }
        };
        inputs.iter().zip(&self.needs).map(moved).collect()
    }

    /// Runs it as a program; nothing if it is none, or there is no room. The locks of all operands are held.
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
            // In pieces, what is free may be enough; if not, that says so.
            Err(Error::OutOfMemory { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        for array in inputs.iter().copied().chain(target) {
            array.storage().turn_to(stream)?;
        }
        // SAFETY: inputs were checked to have the types of the graph's, and are on the device, like the target, which has the
        // type of the output, or single elements that kernels alone need; the program is the one of their alignments, the run has locked them, and they were just ordered
        // to the stream.
        unsafe { program.run(inputs, target, memory, stream, queue).map(Some) }
    }

    /// The program for memory like that of these arrays, made now if it is new; nothing if there is none.
    fn program(
        &self,
        schedule: &Schedule,
        outline: &Outline,
        inputs: &[&Array],
        target: Option<&Array>,
    ) -> Result<Option<Arc<DeviceProgram>>> {
        let alignments: Alignments = inputs.iter().copied().chain(target).map(alignment).collect();
        let lock = || self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, program)) = lock().iter().find(|(known, _)| *known == alignments) {
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
                // SAFETY: operands are arrays of the types of the graph, on the device of this executable, which the slots keep
                // alive and the run has locked.
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
                // SAFETY: as for products; the result is memory that this run took for the step.
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

    /// Inputs have the types of the graph's, and are on the device or stand for numbers.
    ///
    /// # Errors
    /// If not.
    pub(crate) fn check(&self, schedule: &Schedule, inputs: &[&Array]) -> Result<()> {
        let fits = |(array, ty): (&&Array, &crate::ir::TensorType)| {
            let few = array.device().kind == DeviceKind::Cpu && n_places(&array.layout) <= FEW;
            array.is_of(ty) && (array.device() == self.device || few)
        };
        if inputs.len() == schedule.input_types.len() && inputs.iter().zip(&schedule.input_types).all(fits) {
            return Ok(());
        }
        Err(schedule.other_types(self.device, inputs))
    }
}

/// Elements of what may come from the host with each run: numbers, and keys of random draws.
const FEW: usize = 2;

/// Inputs, of which some were copied.
fn with_moved<'a>(inputs: &[&'a Array], moved: &'a [Option<Array>]) -> SmallVec<[&'a Array; 8]> {
    inputs.iter().zip(moved).map(|(&input, moved)| moved.as_ref().unwrap_or(input)).collect()
}

fn start(on_device: &DeviceLaunch, launch: &Launch, slots: &Slots<'_>, stream: &Stream) -> Result<()> {
    let queue = cuda::machine()?.queue(stream)?;
    let operands: SmallVec<[Option<&Array>; 8]> =
        launch.operands.iter().map(|slot| slot.map(|slot| slots[slot].array())).collect();
    let outputs: SmallVec<[&Array; 4]> = launch.outputs.iter().map(|&slot| slots[slot].array()).collect();
    // SAFETY: operands are arrays of exactly the types the accesses were made from, on the device of this executable or
    // single elements of inputs, which the slots keep alive and the run has locked; outputs were allocated by this run for this launch and nobody else
    // knows them yet, or are locked for writing.
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
