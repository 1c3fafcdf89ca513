#![allow(unsafe_code, reason = "calls the CUDA driver")]
//! CUDA graphs: launches that the driver prepares and starts with one call.
//!
//! A graph is a chain: each launch starts when the one before it is done, as on a stream. It is built node by node and
//! not captured from a stream, for two reasons. Threads share streams, so a capture would include the work of others.
//! And a run also allocates memory, which may not be captured. Nodes are remembered, so their parameters can be
//! changed.
//!
//! The driver copies parameters when they are set, so a run keeps those that it was started with. Runs of one graph do
//! not overlap, on any streams. A dropped graph is destroyed once its last run is done.

use super::driver::{Context, Function, Queue};
use super::loader::DRIVER;
use crate::error::Result;
use cudarc::driver::sys;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

/// A launch of a function with its argument buffer.
pub(crate) struct Launch<'a> {
    /// The function.
    pub(crate) function: &'a Function,
    /// Blocks of the grid.
    pub(crate) grid: u32,
    /// Threads of a block, in two dimensions.
    pub(crate) block: [u32; 2],
    /// The argument buffer.
    pub(crate) argument: &'a [u64],
}

/// Launches that are started together.
pub(crate) struct Graph {
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
    nodes: Vec<sys::CUgraphNode>,
    context: Arc<Context>,
}

// SAFETY: handles may be used from any thread, one at a time: what changes or starts a graph takes it by `&mut`.
unsafe impl Send for Graph {}

/// The functions of the driver that graphs need.
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
    /// Prepares a chain of at least one launch.
    ///
    /// # Errors
    /// If the driver refuses.
    ///
    /// # Safety
    /// As for [`Function::start`], whenever it is [started](Graph::start). The functions outlive it, and the driver
    /// [has graphs](has_graphs).
    pub(crate) unsafe fn new(launches: &[Launch<'_>]) -> Result<Graph> {
        let first = launches.first().expect("there is at least one launch");
        let (context, mut whole) = (first.function.context().clone(), null_mut());
        // SAFETY: the result has a place.
        context.call("cuGraphCreate", || unsafe { sys::cuGraphCreate(&mut whole, 0) })?;
        let nodes = Vec::with_capacity(launches.len());
        let mut graph = Graph { graph: whole, exec: null_mut(), nodes, context };
        launches.iter().try_for_each(|launch| graph.add(launch))?;
        let exec = &mut graph.exec;
        graph.context.call("cuGraphInstantiate", || {
            // SAFETY: the graph is alive; the result has a place.
            unsafe { sys::cuGraphInstantiateWithFlags(exec, whole, 0) }
        })?;
        Ok(graph)
    }

    fn add(&mut self, launch: &Launch<'_>) -> Result<()> {
        let (mut node, before) = (null_mut(), self.nodes.last().map_or(&[][..], std::slice::from_ref));
        let graph = self.graph;
        with_params(launch, |params| {
            self.context.call("cuGraphAddKernelNode", || {
                // SAFETY: handles are alive; the driver copies the parameters and the argument buffer before it
                // returns.
                unsafe { sys::cuGraphAddKernelNode_v2(&mut node, graph, before.as_ptr(), before.len(), params) }
            })
        })?;
        self.nodes.push(node);
        Ok(())
    }

    /// Replaces a launch, from the next start on.
    ///
    /// # Errors
    /// If the driver refuses; the old launch stays.
    ///
    /// # Safety
    /// As for [`Graph::new`].
    pub(crate) unsafe fn change(&mut self, index: usize, launch: &Launch<'_>) -> Result<()> {
        let (exec, node) = (self.exec, self.nodes[index]);
        with_params(launch, |params| {
            self.context.call_by_handle("cuGraphExecKernelNodeSetParams", || {
                // SAFETY: handles are alive; the driver copies the parameters and the argument buffer before it
                // returns.
                unsafe { sys::cuGraphExecKernelNodeSetParams_v2(exec, node, params) }
            })
        })
    }

    /// Starts the launches on a stream of their device, after its work and after the last start of this graph.
    ///
    /// # Errors
    /// If the driver refuses; then nothing was started.
    ///
    /// # Safety
    /// As for [`Function::start`], for each current launch.
    pub(crate) unsafe fn start(&mut self, queue: &Queue) -> Result<()> {
        // SAFETY: handles are alive, and the caller guarantees the rest.
        self.context.call_by_handle("cuGraphLaunch", || unsafe { sys::cuGraphLaunch(self.exec, queue.raw()) })
    }
}

/// Calls the driver with the parameters of a launch.
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
        // A failure in a destructor cannot be handled; the driver reports it again at the next call.
        if self.context.enter().is_err() {
            return;
        }
        // SAFETY: handles were made by `new` and nothing else has them; a run in progress keeps what it needs.
        unsafe {
            if !self.exec.is_null() {
                sys::cuGraphExecDestroy(self.exec);
            }
            sys::cuGraphDestroy(self.graph);
        }
    }
}
