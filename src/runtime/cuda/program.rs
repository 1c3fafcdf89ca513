#![allow(unsafe_code, reason = "starts kernels on addresses of a device")]
//! A run as a list of launches whose argument buffers lack only addresses.
//!
//! It is made from an [`Outline`], for memory of some alignments. A run allocates memory for its results and one piece
//! for everything else, patches the addresses, and starts one launch after the other. It does not look at actions.
//! Programs of several launches that run often are started as one CUDA graph (`replay`). A product of cublasLt is a
//! call instead of a launch. Its kernels are unknown, so a program with one cannot be a graph.

use super::alignments::{Alignments, IN_WORDS, WIDEST, alignment_of};
use super::counts;
use super::device_action::DeviceAction;
use super::faults;
use super::kernels::Functions;
use super::launch::{element, word};
use super::maps;
use super::outline::{DeviceWork, LocatedValue, Location, Outline, Start, arrange};
use super::product::{PLACES, PreparedProduct};
use super::replay::Replays;
use crate::codegen::cuda::routines::{Of, RoutineLaunch};
use crate::codegen::cuda::wgmma::TileMap;
use crate::codegen::cuda::{EntryLaunch, argument};
use crate::device::cuda::{Addresses, Launch, Matmul, Queue};
use crate::device::{Device, Shared, Storage, Stream};
use crate::error::{NoReplay, Reason, Result};
use crate::ir::{DType, Layout};
use crate::runtime::product::shape;
use crate::runtime::schedule::Schedule;
use crate::runtime::{Array, SharedLayout};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// A launch or call, without addresses.
struct Node {
    work: NodeWork,
    /// The argument buffer of a launch, or the addresses for cublasLt ([`addresses`]).
    argument: Vec<u64>,
    /// Its tensor maps, which are made once the addresses are known.
    maps: SmallVec<[TileMap; 2]>,
    /// The patches of its argument buffer.
    patches: Range<usize>,
}

/// What a node starts.
enum NodeWork {
    Launch(Arc<Functions>, EntryLaunch),
    CublasLt(Arc<Matmul>),
}

/// What an address is relative to, or the element that replaces it.
#[derive(Debug, Clone, Copy)]
enum Base {
    Input(usize),
    /// An element of an input on the host, instead of an address.
    Element(usize, usize),
    /// The memory of a result.
    Made(usize),
    /// The memory of everything else.
    Rest,
    /// The fault record of the stream.
    Faults,
}

/// An address in the argument buffer of a node.
struct Patch {
    word: usize,
    base: Base,
    distance: u64,
}

/// A result.
struct Output {
    base: Base,
    dtype: DType,
    /// `None` for an input that is returned unchanged.
    layout: Option<SharedLayout>,
}

/// Launches in order.
pub(super) struct DeviceProgram {
    /// All patches, in the order of the nodes.
    patches: Vec<Patch>,
    /// Bytes of each result's memory.
    made: Vec<usize>,
    /// Bytes of the memory of everything else.
    rest: usize,
    outputs: Vec<Output>,
    // Dropped before the functions that its graphs start.
    replays: Replays,
    nodes: Vec<Node>,
    /// The number of nodes that call cublasLt.
    n_matmuls: usize,
}

/// The memory of a run.
pub(super) struct RunMemory {
    made: SmallVec<[Shared<Storage>; 2]>,
    rest: Storage,
}

impl DeviceProgram {
    /// The program for inputs, and a target if there is one, of these alignments. Sources that are new are compiled.
    ///
    /// # Errors
    /// If code cannot be made. The inner error is the reason why there is no program.
    pub(super) fn new(
        schedule: &Schedule,
        device_actions: &[DeviceAction],
        outline: &Outline,
        device: Device,
        inputs: &[usize],
        target: Option<usize>,
    ) -> Result<std::result::Result<DeviceProgram, Reason>> {
        let kept = |number: &usize| outline.memories[*number].is_kept;
        let made: Vec<usize> = (0..outline.memories.len()).filter(kept).collect();
        let mut nodes = Nodes { outline, made: &made, inputs, target, nodes: Vec::new(), scratch: Vec::new() };
        for start in &outline.starts {
            match Outline::work(schedule, device_actions, start) {
                DeviceWork::Kernel(launch, lowered) => {
                    let alignments: Alignments =
                        accesses(start).map(|value| value.map_or(WIDEST, |value| nodes.alignment(value))).collect();
                    let ready = launch.ready(lowered, alignments)?;
                    let plan = &ready.plan;
                    let is_memory = |access: usize| launch.is_memory(lowered, access);
                    let places = accesses(start).enumerate().filter(|(access, _)| is_memory(*access));
                    let places =
                        places.filter_map(|(access, value)| Some((plan.variant.layout.address(access), value?)));
                    let places: Vec<(usize, &LocatedValue)> = places.collect();
                    for step in &plan.steps {
                        let mut argument = plan.argument.clone();
                        argument[argument::ITEMS] = step.items;
                        nodes.add(start, &ready.functions, *step, argument, &places, plan.scratch_bytes);
                        nodes.name_last(launch.site());
                    }
                }
                DeviceWork::Epilogue(epilogue) => {
                    let (own, factors) = start.operands.split_at(start.operands.len() - 2);
                    let [Some(left), Some(right)] = factors else {
                        unreachable!("a product has two operands in memory")
                    };
                    let own = own.iter().map(Option::as_ref).chain(start.outputs.iter().map(Some));
                    let values: Vec<Option<&LocatedValue>> = own.chain([Some(left), Some(right)]).collect();
                    let alignment =
                        |value: &Option<&LocatedValue>| value.map_or(WIDEST, |value| nodes.alignment(value));
                    let alignments = values.iter().map(alignment).collect();
                    let ready = epilogue.ready(
                        device,
                        &epilogue.shape([&left.layout, &right.layout], left.dtype),
                        alignments,
                    )?;
                    let places = ready.places.iter().zip(values).enumerate();
                    let places = places.filter(|(access, _)| epilogue.is_memory(*access));
                    let places: Vec<_> = places.filter_map(|(_, (&place, value))| Some((place, value?))).collect();
                    nodes.add(start, &ready.functions, ready.step, ready.argument.clone(), &places, 0);
                    nodes.map_last(&ready.maps);
                }
                DeviceWork::Product(product, ty) => {
                    let [Some(left), Some(right)] = &start.operands[..] else {
                        unreachable!("a product has two operands in memory")
                    };
                    let values = [left, right, &start.outputs[0]];
                    let shape = shape([&left.layout, &right.layout], left.dtype, ty.dtype);
                    let ready = match product.ready(device, values.map(|value| nodes.alignment(value)), &shape)? {
                        Ok(PreparedProduct::Launch(ready)) => ready,
                        Ok(PreparedProduct::CublasLt(matmul)) => {
                            nodes.add_matmul(start, matmul, values, None);
                            continue;
                        }
                        Err(reason) => return Ok(Err(reason)),
                    };
                    let Some((step, functions)) = &ready.launch else { continue };
                    let places: Vec<_> = PLACES.into_iter().zip(values).collect();
                    nodes.add(start, functions, *step, ready.argument.clone(), &places, 0);
                    nodes.map_last(&ready.maps);
                }
                DeviceWork::LibraryEpilogue(epilogue) => {
                    let [Some(left), Some(right), bias @ ..] = &start.operands[..] else {
                        unreachable!("a product has two operands in memory")
                    };
                    let (values, bias) = ([left, right, &start.outputs[0]], bias.iter().flatten().next());
                    let [of_left, of_right, of_result] = values.map(|value| nodes.alignment(value));
                    let of_bias = bias.map_or(WIDEST, |bias| nodes.alignment(bias));
                    let matmul = epilogue.product.ready([of_left, of_right, of_result.min(of_bias)])?;
                    nodes.add_matmul(start, matmul, values, bias);
                }
                DeviceWork::Routine(routine) => {
                    let is_on_host = |value: &&LocatedValue| matches!(value.location, Location::Input(index) if inputs[index] == IN_WORDS);
                    let on_host = start.operands.iter().flatten().find(is_on_host);
                    if on_host.is_some_and(|key| key.layout != Layout::contiguous(&[2])) {
                        return Ok(Err(NoReplay::RandomKeyMoved.into()));
                    }
                    let (plan, functions) = routine.ready(on_host.is_some())?;
                    for launch in &plan.launches {
                        nodes.add_routine(start, &functions, launch, plan.scratch_bytes);
                        nodes.name_last(routine.site());
                    }
                }
            }
        }
        Ok(Ok(nodes.finish(schedule)))
    }

    /// Allocates memory for a run, except for a result that has a target.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(super) fn memory(&self, device: Device, has_target: bool) -> Result<RunMemory> {
        let made = if has_target { &[] } else { &self.made[..] };
        let made = made.iter().map(|&bytes| Storage::shareable(device, bytes)).collect::<Result<_>>()?;
        Ok(RunMemory { made, rest: Storage::new(device, self.rest)? })
    }

    /// Starts the launches on a stream, and returns the results.
    ///
    /// # Errors
    /// If the device fails.
    ///
    /// # Safety
    /// Inputs, and the target if there is one, are on the device, or are single elements that kernels read. They have
    /// the types of the executable and the alignments of this program, and were ordered to the stream, whose handle is
    /// `queue`. The memory is new. Until this returns, the caller lets nothing else write the inputs or use the target.
    pub(super) unsafe fn run(
        &self,
        inputs: &[&Array],
        target: Option<&Array>,
        memory: RunMemory,
        stream: &Stream,
        queue: &Queue,
    ) -> Result<SmallVec<[Array; 2]>> {
        let record = if self.can_fault() { queue.fault_record(faults::error)? } else { 0 };
        let base = |base: Base| match (base, target) {
            // SAFETY: passed on from the caller.
            (Base::Input(index), _) => unsafe { word(inputs[index]) },
            // SAFETY: passed on from the caller.
            (Base::Element(index, at), _) => unsafe { element(inputs[index], at) },
            (Base::Made(_), Some(target)) => target.ptr().addr() as u64,
            (Base::Made(number), None) => memory.made[number].ptr().addr() as u64,
            (Base::Rest, _) => memory.rest.ptr().addr() as u64,
            (Base::Faults, _) => record,
        };
        let value = |patch: &Patch| base(patch.base).wrapping_add(patch.distance);
        let values: SmallVec<[u64; 16]> = self.patches.iter().map(value).collect();
        // SAFETY: argument buffers are those of plans for the types and alignments of these arrays. Each has the
        // address of an array of its type, or of memory of the size it needs. All of it was ordered to the stream, and
        // freed memory is not reused before the stream has passed this point.
        unsafe {
            if !self.replays.start(self, &values, stream, queue) {
                for node in &self.nodes {
                    let argument = self.argument(node, &values)?;
                    match &node.work {
                        NodeWork::Launch(..) => {
                            let launch = node.launch(&argument);
                            launch.function.start(queue, launch.grid, launch.block, launch.argument)?;
                        }
                        NodeWork::CublasLt(matmul) => matmul.start(queue, &addresses(&argument))?,
                    }
                }
            }
        }
        counts::launched((self.nodes.len() - self.n_matmuls) as u64);
        counts::called_library(self.n_matmuls as u64);
        if target.is_some() {
            return Ok(SmallVec::new());
        }
        Ok(self.outputs.iter().map(|output| output.of(inputs, &memory)).collect())
    }

    fn can_fault(&self) -> bool {
        self.patches.iter().any(|patch| matches!(patch.base, Base::Faults))
    }

    pub(super) fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Whether all nodes are launches of our kernels.
    pub(super) fn is_of_launches(&self) -> bool {
        self.n_matmuls == 0
    }

    /// The values of a run that a node needs.
    pub(super) fn patches(&self, node: usize) -> Range<usize> {
        self.nodes[node].patches.clone()
    }

    /// Calls `work` with a launch and its values of a run. All nodes [are launches](DeviceProgram::is_of_launches).
    ///
    /// # Errors
    /// If its argument buffer cannot be made, or those of `work`.
    pub(super) fn with_launch<T>(
        &self,
        node: usize,
        values: &[u64],
        work: impl FnOnce(&Launch<'_>) -> Result<T>,
    ) -> Result<T> {
        let node = &self.nodes[node];
        work(&node.launch(&self.argument(node, values)?))
    }

    /// Calls `work` with all launches and the values of a run. All nodes [are launches](DeviceProgram::is_of_launches).
    ///
    /// # Errors
    /// If an argument buffer cannot be made, or those of `work`.
    pub(super) fn with_launches<T>(&self, values: &[u64], work: impl FnOnce(&[Launch<'_>]) -> Result<T>) -> Result<T> {
        let argument: Vec<Words> = self.nodes.iter().map(|node| self.argument(node, values)).collect::<Result<_>>()?;
        let launches: Vec<Launch<'_>> =
            self.nodes.iter().zip(&argument).map(|(node, argument)| node.launch(argument)).collect();
        work(&launches)
    }

    /// The argument buffer of a node with its values of a run.
    ///
    /// # Errors
    /// If its tensor maps cannot be made.
    fn argument(&self, node: &Node, values: &[u64]) -> Result<Words> {
        let mut argument = Words::from_slice(&node.argument);
        for at in node.patches.clone() {
            argument[self.patches[at].word] = values[at];
        }
        maps::make(&mut argument, &node.maps)?;
        Ok(argument)
    }
}

/// An argument buffer.
type Words = SmallVec<[u64; 64]>;

impl Node {
    fn launch<'a>(&'a self, argument: &'a [u64]) -> Launch<'a> {
        let NodeWork::Launch(functions, EntryLaunch { entry, grid, block, .. }) = &self.work else {
            unreachable!("graphs are made of launches alone")
        };
        Launch { function: &functions[*entry], grid: *grid, block: *block, argument }
    }
}

/// The number of addresses of a cublasLt call: left operand, right operand, result, bias, and workspace.
const N_ADDRESSES: usize = 5;

fn addresses(argument: &[u64]) -> Addresses {
    let &[left, right, result, bias, workspace] = argument else {
        unreachable!("there are as many words as addresses")
    };
    Addresses { left, right, result, bias, workspace }
}

impl Output {
    fn of(&self, inputs: &[&Array], memory: &RunMemory) -> Array {
        let (storage, offset) = match (self.base, &self.layout) {
            (Base::Input(index), None) => return inputs[index].clone(),
            (Base::Input(index), Some(_)) => (inputs[index].storage(), inputs[index].layout().offset),
            (Base::Made(number), _) => (&memory.made[number], 0),
            (Base::Rest | Base::Element(..) | Base::Faults, _) => unreachable!("results have memory of their own"),
        };
        let layout = match &self.layout {
            Some(layout) if offset > 0 => Layout { offset: layout.offset + offset, ..(**layout).clone() }.into(),
            Some(layout) => layout.clone(),
            None => unreachable!("only an input is a result as it is"),
        };
        Array { storage: storage.clone(), dtype: self.dtype, layout }
    }
}

/// Operands, then outputs.
fn accesses(start: &Start) -> impl Iterator<Item = Option<&LocatedValue>> {
    start.operands.iter().map(Option::as_ref).chain(start.outputs.iter().map(Some))
}

/// The operand of an address, if it has one.
fn of_operand(of: Of) -> Option<usize> {
    match of {
        Of::Operand(operand) | Of::Element(operand, _) => Some(operand),
        Of::Result | Of::Scratch => None,
    }
}

/// A program under construction.
struct Nodes<'a> {
    outline: &'a Outline,
    /// The numbers of the results' memories.
    made: &'a [usize],
    /// The alignments of inputs.
    inputs: &'a [usize],
    target: Option<usize>,
    nodes: Vec<(Node, Vec<Address>)>,
    /// Scratch memory: bytes, and the actions that use it.
    scratch: Vec<(usize, [usize; 2])>,
}

/// An address before memory is arranged: its word, what it is relative to, and its offset.
type Address = (usize, UnplacedBase, u64);

/// What an address is relative to, before memory is arranged.
#[derive(Clone, Copy)]
enum UnplacedBase {
    Location(Location),
    Element(usize, usize),
    Scratch(usize),
    Faults,
}

impl Nodes<'_> {
    fn alignment(&self, value: &LocatedValue) -> usize {
        let base = match value.location {
            Location::Input(index) => self.inputs[index],
            Location::Own(number) => self.target.filter(|_| self.outline.memories[number].is_kept).unwrap_or(WIDEST),
        };
        if base == IN_WORDS { IN_WORDS } else { base.min(alignment_of(value.distance() as u64)) }
    }

    fn add(
        &mut self,
        start: &Start,
        functions: &Arc<Functions>,
        step: EntryLaunch,
        argument: Vec<u64>,
        places: &[(usize, &LocatedValue)],
        scratch: usize,
    ) {
        let mut patches: Vec<Address> = Vec::new();
        for &(word, value) in places {
            let distance = argument[word].wrapping_add(value.distance() as u64);
            patches.push((word, UnplacedBase::Location(value.location), distance));
        }
        if scratch > 0 {
            patches.push((argument::SCRATCH, self.scratch(start, scratch), 0));
        }
        self.push(NodeWork::Launch(functions.clone(), step), argument, patches);
    }

    fn push(&mut self, work: NodeWork, argument: Vec<u64>, patches: Vec<Address>) {
        self.nodes.push((Node { work, argument, maps: SmallVec::new(), patches: 0..0 }, patches));
    }

    /// Adds a product by cublasLt, of left operand, right operand and result.
    fn add_matmul(
        &mut self,
        start: &Start,
        matmul: Arc<Matmul>,
        values: [&LocatedValue; 3],
        bias: Option<&LocatedValue>,
    ) {
        let places = values.into_iter().chain(bias).enumerate();
        let patch = |(word, value): (usize, &LocatedValue)| {
            (word, UnplacedBase::Location(value.location), value.distance() as u64)
        };
        let mut patches: Vec<Address> = places.map(patch).collect();
        if matmul.workspace() > 0 {
            patches.push((N_ADDRESSES - 1, self.scratch(start, matmul.workspace()), 0));
        }
        self.push(NodeWork::CublasLt(matmul), vec![0; N_ADDRESSES], patches);
    }

    fn add_routine(&mut self, start: &Start, functions: &Arc<Functions>, launch: &RoutineLaunch, scratch: usize) {
        let operand = |at: usize| start.operands[at].as_ref().expect("operands of a routine are memory");
        let mut patches: Vec<Address> = Vec::new();
        for &(word, of) in &launch.places {
            let distance = launch.argument[word];
            let of_value = |value: &LocatedValue| {
                (UnplacedBase::Location(value.location), distance.wrapping_add(value.distance() as u64))
            };
            let (found, distance) = match (of, of_operand(of).map(|at| operand(at).location)) {
                (Of::Element(_, at), Some(Location::Input(input))) => (UnplacedBase::Element(input, at), 0),
                (Of::Element(..), _) => unreachable!("what is on the host is an input"),
                (Of::Operand(at), _) => of_value(operand(at)),
                (Of::Result, _) => of_value(&start.outputs[0]),
                (Of::Scratch, _) => (self.scratch(start, scratch), distance),
            };
            patches.push((word, found, distance));
        }
        self.push(NodeWork::Launch(functions.clone(), launch.step), launch.argument.clone(), patches);
    }

    /// Sets the number of the last launch in fault records.
    fn name_last(&mut self, site: Option<u64>) {
        if let (Some(site), Some((node, patches))) = (site, self.nodes.last_mut()) {
            node.argument[argument::SITE] = site;
            patches.push((argument::FAULTS, UnplacedBase::Faults, 0));
        }
    }

    /// Adds tensor maps to the last launch.
    fn map_last(&mut self, maps: &[TileMap]) {
        if let Some((node, _)) = self.nodes.last_mut() {
            node.maps.extend_from_slice(maps);
        }
    }

    /// Allocates scratch memory of an action, which its launches share.
    fn scratch(&mut self, start: &Start, bytes: usize) -> UnplacedBase {
        let used = [start.action, start.action];
        if self.scratch.last().is_none_or(|&(_, last)| last != used) {
            self.scratch.push((bytes, used));
        }
        UnplacedBase::Scratch(self.scratch.len() - 1)
    }

    /// Arranges the memory that is not kept, and completes the program.
    fn finish(self, schedule: &Schedule) -> DeviceProgram {
        let outline = self.outline;
        let own = outline.memories.iter().enumerate().filter(|(_, memory)| !memory.is_kept);
        let own =
            own.map(|(number, memory)| (UnplacedBase::Location(Location::Own(number)), (memory.bytes, memory.used)));
        let scratch = self.scratch.iter().enumerate().map(|(number, &piece)| (UnplacedBase::Scratch(number), piece));
        let mut pieces: Vec<(UnplacedBase, (usize, [usize; 2]))> = own.chain(scratch).collect();
        pieces.sort_by_key(|(_, (_, [first, _]))| *first);
        let (places, rest) = arrange(&pieces.iter().map(|&(_, piece)| piece).collect::<Vec<_>>());
        let mut of_own = vec![0; outline.memories.len()];
        let mut of_scratch = vec![0; self.scratch.len()];
        for ((found, _), place) in pieces.into_iter().zip(places) {
            match found {
                UnplacedBase::Location(Location::Own(number)) => of_own[number] = place as u64,
                UnplacedBase::Scratch(number) => of_scratch[number] = place as u64,
                UnplacedBase::Location(Location::Input(_)) | UnplacedBase::Element(..) | UnplacedBase::Faults => {
                    unreachable!("inputs and records are not arranged")
                }
            }
        }
        let base = |found: UnplacedBase| match found {
            UnplacedBase::Location(Location::Input(index)) => (Base::Input(index), 0),
            UnplacedBase::Location(Location::Own(number)) => match self.made.iter().position(|&made| made == number) {
                Some(made) => (Base::Made(made), 0),
                None => (Base::Rest, of_own[number]),
            },
            UnplacedBase::Element(input, at) => (Base::Element(input, at), 0),
            UnplacedBase::Scratch(number) => (Base::Rest, of_scratch[number]),
            UnplacedBase::Faults => (Base::Faults, 0),
        };
        let (mut nodes, mut patches) = (Vec::with_capacity(self.nodes.len()), Vec::new());
        for (mut node, of_node) in self.nodes {
            let first = patches.len();
            patches.extend(of_node.into_iter().map(|(word, found, distance)| {
                let (base, place) = base(found);
                Patch { word, base, distance: distance.wrapping_add(place) }
            }));
            node.patches = first..patches.len();
            nodes.push(node);
        }
        let outputs = outline.outputs.iter().map(|value| {
            let ty = if let Location::Input(index) = value.location { schedule.input_types.get(index) } else { None };
            let as_it_is = ty.is_some_and(|ty| {
                value.layout.offset == 0 && value.layout.sizes == ty.sizes && value.layout.strides == ty.strides
            });
            let layout = (!as_it_is).then(|| value.layout.clone().into());
            Output { base: base(UnplacedBase::Location(value.location)).0, dtype: value.dtype, layout }
        });
        let outputs = outputs.collect();
        let made = self.made.iter().map(|&number| outline.memories[number].bytes).collect();
        let n_matmuls = nodes.iter().filter(|node| matches!(node.work, NodeWork::CublasLt(_))).count();
        DeviceProgram { patches, made, rest, outputs, replays: Replays::default(), nodes, n_matmuls }
    }
}
