#![allow(unsafe_code, reason = "calls the CUDA driver")]
//! CUDA graphs: launches that the driver has ready and starts with one call.
//!
//! A graph is a line: each launch begins when the one before it is done, as launches on a stream do. It is built node by node
//! and not captured from a stream: threads share streams, so a capture would take in the work of others, and what a run does
//! besides, like taking memory, may not be captured at all. Nodes stay known, so an argument is changed where it stands.
//!
//! The driver copies arguments when they are set: a run that was started keeps those it was started with. Runs of one graph do
//! not overlap, on whatever streams they are. A graph that is dropped goes once its last run is done.

use super::driver::{Context, Function, Queue};
use super::loader::DRIVER;
use crate::error::Result;
use cudarc::driver::sys;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

/// A launch of an entry that takes words.
pub(crate) struct Launch<'a> {
    /// The entry.
    pub(crate) function: &'a Function,
    /// Blocks.
    pub(crate) grid: u32,
    /// Threads of a block, in two dimensions.
    pub(crate) block: [u32; 2],
    /// The argument.
    pub(crate) argument: &'a [u64],
}

/// Launches that start together.
pub(crate) struct Graph {
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
    nodes: Vec<sys::CUgraphNode>,
    context: Arc<Context>,
}

// SAFETY: handles may be used from any thread, one at a time: what changes a graph, or starts it, takes it by `&mut`.
unsafe impl Send for Graph {}

/// What the driver must have for this.
const FUNCTIONS: [&str; 7] = [
    "cuGraphCreate",
    "cuGraphAddKernelNode_v2",
    "cuGraphInstantiateWithFlags",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
];

/// Whether the driver, which was found, has graphs.
pub(crate) fn has_graphs() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| DRIVER.has(&FUNCTIONS))
}

impl Graph {
    /// Makes launches, of which there is at least one, ready to start in their order.
    ///
    /// # Errors
    /// If the driver refuses.
    ///
    /// # Safety
    /// As for [`Function::start`], whenever it is [started](Graph::start); functions live as long as it. The driver
    /// [has graphs](has_graphs).
    pub(crate) unsafe fn new(launches: &[Launch<'_>]) -> Result<Graph> {
        let first = launches.first().expect("there is at least one launch");
        let (context, mut whole) = (first.function.context().clone(), null_mut());
        // SAFETY: a place for the answer.
        context.call("cuGraphCreate", || unsafe { sys::cuGraphCreate(&mut whole, 0) })?;
        let nodes = Vec::with_capacity(launches.len());
        let mut graph = Graph { graph: whole, exec: null_mut(), nodes, context };
        launches.iter().try_for_each(|launch| graph.add(launch))?;
        let exec = &mut graph.exec;
        graph.context.call("cuGraphInstantiate", || {
            // SAFETY: the graph is alive, and there is a place for the answer.
            unsafe { sys::cuGraphInstantiateWithFlags(exec, whole, 0) }
        })?;
        Ok(graph)
    }

    fn add(&mut self, launch: &Launch<'_>) -> Result<()> {
        let (mut node, before) = (null_mut(), self.nodes.last().map_or(&[][..], std::slice::from_ref));
        let graph = self.graph;
        with_params(launch, |params| {
            self.context.call("cuGraphAddKernelNode", || {
                // SAFETY: handles are alive; the driver copies the parameters and the argument before it returns.
                unsafe { sys::cuGraphAddKernelNode_v2(&mut node, graph, before.as_ptr(), before.len(), params) }
            })
        })?;
        self.nodes.push(node);
        Ok(())
    }

    /// Puts another launch in the place of one, from the next start on.
    ///
    /// # Errors
    /// If the driver refuses; the launch is then the old one.
    ///
    /// # Safety
    /// As for [`Graph::new`].
    pub(crate) unsafe fn change(&mut self, index: usize, launch: &Launch<'_>) -> Result<()> {
        let (exec, node) = (self.exec, self.nodes[index]);
        with_params(launch, |params| {
            self.context.call_by_handle("cuGraphExecKernelNodeSetParams", || {
                // SAFETY: handles are alive; the driver copies the parameters and the argument before it returns.
                unsafe { sys::cuGraphExecKernelNodeSetParams_v2(exec, node, params) }
            })
        })
    }

    /// Starts the launches on a stream of their device, behind its work and the last start of this graph.
    ///
    /// # Errors
    /// If the driver refuses; nothing was started then.
    ///
    /// # Safety
    /// As for [`Function::start`] of each launch as it is now.
    pub(crate) unsafe fn start(&mut self, queue: &Queue) -> Result<()> {
        // SAFETY: handles are alive, and the rest is the caller's promise.
        self.context.call_by_handle("cuGraphLaunch", || unsafe { sys::cuGraphLaunch(self.exec, queue.raw()) })
    }
}

/// Runs a call of the driver that takes a launch by its parameters.
fn with_params<T>(launch: &Launch<'_>, call: impl FnOnce(&sys::CUDA_KERNEL_NODE_PARAMS) -> T) -> T {
    let mut arguments = [launch.argument.as_ptr().cast::<c_void>().cast_mut()];
    let params = sys::CUDA_KERNEL_NODE_PARAMS {
        func: launch.function.raw(),
        gridDimX: launch.grid,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: launch.block[0],
        blockDimY: launch.block[1],
        blockDimZ: 1,
        sharedMemBytes: launch.function.shared_bytes,
        kernelParams: arguments.as_mut_ptr(),
        extra: null_mut(),
        kern: null_mut(),
        ctx: null_mut(),
    };
    call(&params)
}

impl Drop for Graph {
    fn drop(&mut self) {
        // What fails in a destructor cannot be helped; the driver says it again at the next call.
        if self.context.enter().is_err() {
            return;
        }
        // SAFETY: handles were made by `new` and nobody else has them; a run that is not done keeps what it needs.
        unsafe {
            if !self.exec.is_null() {
                sys::cuGraphExecDestroy(self.exec);
            }
            sys::cuGraphDestroy(self.graph);
        }
    }
}
