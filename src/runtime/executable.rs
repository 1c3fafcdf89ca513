//! Executables: planned graphs as steps that run.
//!
//! An executable belongs to one set of shapes; its kernels are shared by all shapes through the kernel cache. Values
//! live in slots; a slot is emptied after its last use, so its buffer goes back to the allocator and serves the next
//! step. An eager call runs the executable of its one-op graph, a compiled function that of its traced graph.

use super::array::Array;
use super::blocks::BlockRun;
use super::builder::{Accepts, Builder, Failure};
use super::cuda::{Choice, OnDevice};
use super::product::product;
use super::routine::{self, Operands};
use super::shared_layout::SharedLayout;
use super::single::Single;
use crate::codegen::Pointers;
use crate::codegen::lower::Lowered;
use crate::codegen::tier::Tier;
use crate::codegen::tier_up::Code;
use crate::device::{Access, Device, DeviceKind, Shared, Storage};
use crate::error::{Error, Reason, Result};
use crate::fusion::Plan;
use crate::fusion::in_place::InPlace;
use crate::ir::{Attr, Attrs, DType, Graph, Layout, Meaning, Numerics, Op, TensorType};
use smallvec::{SmallVec, smallvec};
use std::sync::{Arc, OnceLock};

/// What a kernel that runs without steps comes to: an error is one word, so that the result comes back in registers.
pub type Quick<T> = std::result::Result<T, Box<Error>>;

/// Holds a value while an executable runs.
pub(super) type Slot = usize;

/// A kernel launch with everything that does not change between calls.
pub struct Launch {
    /// What runs it.
    pub code: Code,
    /// The kernel and its loops.
    pub lowered: Lowered,
    pub(super) operands: SmallVec<[Option<Slot>; 6]>,
    pub(super) outputs: SmallVec<[Slot; 2]>,
    /// The op that an index outside its dimension is blamed on, if the kernel gathers.
    pub(super) gathers: Option<Op>,
    /// Whether there is nothing to write. Its operands may then have no memory to read from.
    pub(super) is_idle: bool,
}

/// What a slot holds while an executable runs.
pub(super) enum Held<'a> {
    /// Nothing yet, or nothing any more.
    Nothing,
    /// An input, or memory for an output, which the caller keeps.
    Given(&'a Array),
    /// A value of this run.
    Own(Array),
    /// The operands of a product that is computed where it is used.
    Factors(Box<[Array; 2]>),
}

impl Held<'_> {
    pub(super) fn array(&self) -> &Array {
        match self {
            Held::Given(array) => array,
            Held::Own(array) => array,
            Held::Nothing | Held::Factors(_) => {
                unreachable!("steps are ordered by their edges, and released after the last use")
            }
        }
    }

    fn into_array(self) -> Array {
        match self {
            Held::Own(array) => array,
            other @ (Held::Given(_) | Held::Nothing | Held::Factors(_)) => other.array().clone(),
        }
    }
}

/// One step.
pub(super) enum Action {
    /// Takes new memory for a value.
    Allocate(Slot, TensorType),
    /// The same for what a kernel's prologue hands to it, which is no traffic: it stays in a cache.
    Scratch(Slot, TensorType),
    Launch(Arc<Launch>),
    /// A view of memory.
    Alias {
        op: Op,
        attrs: Attrs,
        from: Slot,
        to: Slot,
    },
    Product {
        left: Slot,
        right: Slot,
        to: Slot,
        ty: TensorType,
    },
    /// One whose first argument is where it writes works in place.
    Routine {
        op: Op,
        attrs: Attrs,
        args: SmallVec<[Slot; 3]>,
        to: Slot,
    },
    /// Products and kernels, some rows at a time.
    Blocks(Box<BlockRun>),
    /// The value is not needed any more.
    Release(Slot),
}

impl Action {
    fn launches(&self) -> SmallVec<[&Launch; 1]> {
        match self {
            Action::Launch(launch) => smallvec![&**launch],
            Action::Blocks(blocks) => blocks.launches().collect(),
            Action::Allocate(..)
            | Action::Scratch(..)
            | Action::Alias { .. }
            | Action::Product { .. }
            | Action::Routine { .. }
            | Action::Release(_) => SmallVec::new(),
        }
    }
}

/// A graph that runs.
pub struct Executable {
    pub(super) actions: Vec<Action>,
    /// For each action the kernel of the plan that it belongs to; what only makes a view counts as the next one's.
    pub(super) kernels: Vec<usize>,
    pub(super) n_slots: usize,
    pub(super) inputs: Vec<Option<Slot>>,
    pub(super) input_types: Vec<TensorType>,
    /// By input, a layout that was found to have the extents of its type: most calls bring the same one again.
    pub(super) seen: Vec<OnceLock<SharedLayout>>,
    /// The slots of the outputs, and whether no later output is the same.
    pub(super) outputs: Vec<(Slot, bool)>,
    /// Reasons why a tier was not taken, by step of the plan.
    pub declined: Vec<(usize, Reason)>,
    /// The inputs that it writes to: their new values are outputs.
    pub(super) rewritten: Vec<usize>,
    /// Kernels of the plan that write in place, and where.
    pub in_place: Vec<(usize, InPlace)>,
    /// How it runs with less ado, if it is one kernel.
    pub(super) single: Option<Single>,
    /// How it runs on a GPU, if it was built for one.
    pub(super) on_device: Option<OnDevice>,
}

impl Executable {
    /// Lowers and compiles every step of a plan. `tier` forces one; otherwise each kernel gets the one that suits it.
    ///
    /// # Errors
    /// A step that no tier compiles.
    pub fn build(graph: &Graph, plan: &Plan, tier: Option<Tier>) -> Result<Executable> {
        Executable::build_if(graph, plan, tier, &|_| Ok(())).map_err(|Failure { step, reason }| {
            Error::invalid("plan", format!("step {step} is not compiled: {reason}"))
        })
    }

    /// As [`Executable::build`], where kernels that `accepts` refuses are not compiled.
    ///
    /// # Errors
    /// The first step that is refused, or that no tier compiles.
    pub fn build_if(
        graph: &Graph,
        plan: &Plan,
        tier: Option<Tier>,
        accepts: Accepts<'_>,
    ) -> std::result::Result<Executable, Failure> {
        Builder::new(graph, tier, accepts).build(plan)
    }

    /// As [`Executable::build`], for a GPU and with these numerics: what that has no code for runs on the CPU, with a reason.
    ///
    /// # Errors
    /// The first step that cannot be lowered.
    pub fn build_on(
        device: Device,
        numerics: Numerics,
        graph: &Graph,
        plan: &Plan,
    ) -> std::result::Result<Executable, Failure> {
        let accepts = |_: &_| Ok(());
        let mut executable = Builder::new(graph, Some(Tier::Vm), &accepts).step_by_step().build(plan)?;
        executable.single = None;
        executable.on_device = Some(OnDevice::new(device, numerics, &executable));
        Ok(executable)
    }

    /// The GPU that it was built for.
    pub fn device(&self) -> Option<Device> {
        self.on_device.as_ref().map(OnDevice::device)
    }

    /// By kernel of the plan, why the GPU that it was built for does not run all of it.
    pub fn declined_on_device(&self) -> Vec<(usize, Reason)> {
        let Some(on_device) = &self.on_device else { return Vec::new() };
        let kernels = self.kernels.iter().enumerate();
        kernels.filter_map(|(index, &kernel)| Some((kernel, on_device.declined(index)?))).collect()
    }

    /// By kernel of the plan, what numerics did to its products, and to what follows them, on the GPU that it was built for.
    pub fn choices_on_device(&self) -> Vec<(usize, Choice)> {
        let Some(on_device) = &self.on_device else { return Vec::new() };
        let kernels = self.kernels.iter().enumerate();
        kernels.filter_map(|(index, &kernel)| Some((kernel, on_device.choice(index)?))).collect()
    }

    /// After how many runs on a stream the GPU that it was built for starts all kernels of a run as one CUDA graph, or why it
    /// never does; `None` on the CPU.
    pub fn replay(&self) -> Option<Result<u32, Reason>> {
        self.on_device.as_ref().map(OnDevice::replay)
    }

    /// How it runs as the one kernel that it is.
    #[inline]
    pub fn single(&self) -> Option<&Single> {
        self.single.as_ref()
    }

    /// Every launch, in order.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.actions.iter().flat_map(Action::launches)
    }

    /// Every launch with the kernel of the plan that it belongs to, in order.
    pub fn launches_by_kernel(&self) -> impl Iterator<Item = (usize, &Launch)> {
        let actions = self.actions.iter().zip(&self.kernels);
        actions.flat_map(|(action, &kernel)| action.launches().into_iter().map(move |launch| (kernel, launch)))
    }

    /// Has every launch take the code that it would take once it is called often.
    pub fn warm(&self) {
        if self.on_device.is_some() {
            return;
        }
        for launch in self.launches() {
            launch.code.warm(&launch.lowered.kernel, &launch.lowered.geometry);
        }
    }

    /// Runs on inputs that have exactly the types of the graph's inputs; their offsets may differ. Those that it
    /// [writes to](Executable::rewritten) share no memory with others.
    ///
    /// # Errors
    /// Inputs of other types or without data, out of memory, or an index outside its dimension.
    pub fn run(&self, inputs: &[&Array]) -> Result<SmallVec<[Array; 2]>> {
        if let Some(on_device) = &self.on_device {
            return on_device.run(self, inputs, None);
        }
        self.check(inputs)?;
        if let Some(single) = &self.single {
            return Ok(smallvec![
                single.run(inputs.len(), |index| inputs[index], |array| array).map_err(|error| *error)?
            ]);
        }
        let reads = inputs.iter().map(|array| &**array.storage());
        let _access = match &self.rewritten[..] {
            [] => Access::to_read(reads),
            rewritten => Access::to_write(reads, rewritten.iter().map(|&input| &**inputs[input].storage()))?,
        };
        let mut slots = self.slots(inputs);
        self.perform(&mut slots)?;
        Ok(self.results(&mut slots))
    }

    /// The inputs that it writes to, whose new values are outputs that lie there.
    pub fn rewritten(&self) -> &[usize] {
        &self.rewritten
    }

    /// The inputs, those that it writes to as copies.
    ///
    /// # Errors
    /// If there is no memory.
    pub(super) fn apart(&self, inputs: &[&Array]) -> Result<SmallVec<[Array; 4]>> {
        let mut apart: SmallVec<[Array; 4]> = inputs.iter().map(|&input| input.clone()).collect();
        for &input in &self.rewritten {
            apart[input].storage = Shared::new(inputs[input].storage.copy_to(Device::CPU)?);
        }
        Ok(apart)
    }

    /// The outputs, from where they lie.
    pub(super) fn results(&self, slots: &mut [Held<'_>]) -> SmallVec<[Array; 2]> {
        let take = |&(slot, is_last): &(Slot, bool)| match is_last {
            true => std::mem::replace(&mut slots[slot], Held::Nothing).into_array(),
            false => slots[slot].array().clone(),
        };
        self.outputs.iter().map(take).collect()
    }

    /// As [`Executable::run`], but the only output is written to `target`, which has exactly its type. An input may
    /// share the target's storage if [`Executable::works_in_place`] and it has the target's layout, or if it is read
    /// by no kernel that writes the target.
    ///
    /// # Errors
    /// As [`Executable::run`], or if a slice of the target is borrowed.
    pub fn run_into(&self, inputs: &[&Array], target: &Array) -> Result<()> {
        if let Some(on_device) = &self.on_device {
            return on_device.run(self, inputs, Some(target)).map(|_| ());
        }
        self.check(inputs)?;
        let &[(slot, _)] = &self.outputs[..] else {
            return Err(Error::argument("executable", "one output is needed to write it to a given place"));
        };
        let reads = inputs.iter().map(|array| &**array.storage());
        let _access = Access::to_write(reads, [&**target.storage() as &Storage])?;
        let mut slots = self.slots(inputs);
        slots[slot] = Held::Given(target);
        self.perform(&mut slots)
    }

    /// Whether it is one kernel that reads every element of an operand at the place where it writes it, so that the
    /// output may lie where an input lies.
    pub fn works_in_place(&self) -> bool {
        if self
            .actions
            .iter()
            .any(|action| matches!(action, Action::Product { .. } | Action::Routine { .. } | Action::Blocks(_)))
        {
            return false;
        }
        let mut launches = self.launches();
        match (launches.next(), launches.next()) {
            (Some(launch), None) => launch.gathers.is_none() && !launch.lowered.kernel.has_folds(),
            _ => false,
        }
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
        let n_inputs = self.input_types.len();
        if inputs.len() == n_inputs && inputs.iter().zip(&self.input_types).zip(&self.seen).all(fits) {
            return Ok(());
        }
        Err(self.other_types(inputs))
    }

    #[cold]
    pub(super) fn other_types(&self, inputs: &[&Array]) -> Error {
        let expected: Vec<String> = self.input_types.iter().map(TensorType::to_string).collect();
        let found: Vec<String> = inputs.iter().map(|array| array.ty().to_string()).collect();
        let place = self.device().unwrap_or(Device::CPU);
        let what =
            format!("inputs on {place} of types ({}) are needed, not ({})", expected.join(", "), found.join(", "));
        Error::argument("executable", what)
    }

    pub(super) fn slots<'a>(&self, inputs: &[&'a Array]) -> SmallVec<[Held<'a>; 8]> {
        let mut slots: SmallVec<[Held<'_>; 8]> = (0..self.n_slots).map(|_| Held::Nothing).collect();
        for (slot, &input) in self.inputs.iter().zip(inputs) {
            if let Some(slot) = *slot {
                slots[slot] = Held::Given(input);
            }
        }
        slots
    }

    /// Every action in order; the locks of the inputs are held.
    fn perform(&self, slots: &mut [Held<'_>]) -> Result<()> {
        self.actions.iter().try_for_each(|action| self.act(action, slots))
    }

    /// Runs an action; the locks of the inputs are held, or nobody else knows them.
    #[inline]
    pub(super) fn act(&self, action: &Action, slots: &mut [Held<'_>]) -> Result<()> {
        match action {
            // An output may have its place already.
            Action::Allocate(slot, _) if matches!(slots[*slot], Held::Given(_)) => {}
            Action::Allocate(slot, ty) | Action::Scratch(slot, ty) => {
                slots[*slot] = Held::Own(Array::new(Device::CPU, ty)?)
            }
            Action::Launch(launch) => launch.run(slots)?,
            Action::Alias { op, attrs, from, to } => {
                slots[*to] = Held::Own(view(*op, attrs, slots[*from].array())?);
            }
            Action::Product { left, right, to, ty } => {
                slots[*to] = Held::Own(product(slots[*left].array(), slots[*right].array(), ty)?);
            }
            Action::Routine { op, attrs, args, to } => {
                let inputs: SmallVec<[&Array; 3]> = args.iter().map(|&slot| slots[slot].array()).collect();
                #[allow(unsafe_code, reason = "a routine writes memory that others will share")]
                // SAFETY: inputs are kept from being written while this runs, values of this run are known to
                // it alone, and the memory of the result was taken for this step and belongs to no operand, or is that
                // of the first, which is then the same array and has no other reader left.
                let operands = unsafe { Operands::new(&inputs, slots[*to].array()) };
                routine::run(*op, attrs, operands)?;
            }
            Action::Blocks(blocks) => {
                let slots = &*slots;
                #[allow(unsafe_code, reason = "blocks are written through raw pointers")]
                // SAFETY: inputs are kept from being written while this runs, and what the group writes was
                // allocated by this run for it alone, or is locked for writing.
                unsafe {
                    blocks.run(&|slot| slots[slot].array())?;
                }
            }
            Action::Release(slot) => slots[*slot] = Held::Nothing,
        }
        Ok(())
    }
}

/// The view of an array that a view op makes.
///
/// # Errors
/// What the op says is wrong with its arguments, or a window that reaches past the storage.
pub fn view(op: Op, attrs: &[Attr], array: &Array) -> Result<Array> {
    let (layout, dtype) = view_layout(op, attrs, &array.layout, array.dtype)?;
    if !matches!(op.row().meaning, Meaning::Window(_)) {
        return Ok(array.with_layout(layout));
    }
    Array::from_storage(array.storage.clone(), dtype, layout.clone()).map_err(|_| {
        let (sizes, strides, have) = (&layout.sizes[..], &layout.strides[..], array.storage.len());
        let what = format!(
            "sizes {sizes:?}, strides {strides:?}, storage offset {} of {dtype} are out of bounds for storage of size \
             {have}",
            layout.offset
        );
        Error::shape(op.name(), what, "stay inside the memory of the input")
    })
}

/// The layout and dtype that a view op makes of those of its input.
///
/// # Errors
/// What the op says is wrong with its arguments.
#[inline]
pub(super) fn view_layout(op: Op, attrs: &[Attr], layout: &Layout, dtype: DType) -> Result<(Layout, DType)> {
    match op.row().meaning {
        Meaning::View(rule) => Ok((rule(layout, attrs)?, dtype)),
        Meaning::Window(rule) => rule(layout, dtype, attrs),
        Meaning::Body(..)
        | Meaning::Decompose(_)
        | Meaning::Fold(_)
        | Meaning::Product
        | Meaning::Gather(_)
        | Meaning::Concat
        | Meaning::Overlay
        | Meaning::Fill
        | Meaning::Range
        | Meaning::Routine(_) => Err(Error::invalid("plan", format!("{} is no view", op.name()))),
    }
}

impl Launch {
    fn run(&self, slots: &[Held<'_>]) -> Result<()> {
        let array = |slot: Slot| slots[slot].array();
        let outputs: SmallVec<[*mut u8; 4]> = self.outputs.iter().map(|&slot| array(slot).ptr()).collect();
        #[allow(unsafe_code, reason = "kernels work on raw pointers")]
        // SAFETY: operands are arrays of exactly the types the accesses were made from, inside storages that the
        // slots keep alive and the run has locked; outputs were allocated by this run for this launch and nobody else
        // knows them yet, or are locked for writing.
        unsafe {
            self.start(array, &outputs)
        }
    }

    /// Runs the kernel on the operands that lie in slots and on outputs.
    ///
    /// # Safety
    /// Arrays and outputs have the types that the launch was made for; nobody writes the arrays, and nobody else uses
    /// the outputs, until this returns.
    #[allow(unsafe_code, reason = "kernels work on raw pointers")]
    #[inline]
    pub(super) unsafe fn start<'a>(&self, array: impl Fn(Slot) -> &'a Array, outputs: &[*mut u8]) -> Result<()> {
        let pointer = |slot: &Option<Slot>| slot.map_or(std::ptr::dangling(), |slot| array(slot).ptr().cast_const());
        let mut operands: SmallVec<[*const u8; 8]> = SmallVec::new();
        for slot in &self.operands {
            operands.push(pointer(slot));
        }
        // SAFETY: the caller's promise.
        unsafe { self.start_at(&operands, outputs) }.map_err(|error| *error)
    }

    /// As [`Launch::start`], on pointers to the first elements of its operands; one that is no memory has any.
    ///
    /// # Safety
    /// As for [`Launch::start`].
    #[allow(unsafe_code, reason = "kernels work on raw pointers")]
    #[inline]
    pub(super) unsafe fn start_at(&self, operands: &[*const u8], outputs: &[*mut u8]) -> Quick<()> {
        if self.is_idle {
            return Ok(());
        }
        let Lowered { kernel, geometry, .. } = &self.lowered;
        let (running, pointers) = (self.code.next(kernel, geometry), Pointers { operands, outputs });
        // SAFETY: the caller's promise.
        match unsafe { running.cut.run(&running.entry.compiled, geometry, pointers) } {
            Ok(()) => Ok(()),
            Err(error) => Err(Box::new(self.blamed(error))),
        }
    }

    /// An error of the kernel as one of the op that gathers.
    #[cold]
    pub(super) fn blamed(&self, error: Error) -> Error {
        match (error, self.gathers) {
            // ATen has another class of error for `gather` than for its kin.
            (Error::OutOfRange { what, low, high, got, .. }, Some(Op::Gather)) => {
                Error::argument("gather", format!("{what} {got} is out of bounds: it must be in {low}..={high}"))
            }
            (Error::OutOfRange { what, low, high, got, .. }, Some(op)) => {
                Error::OutOfRange { op: op.name().into(), what, low, high, got }
            }
            (error, _) => error,
        }
    }
}
