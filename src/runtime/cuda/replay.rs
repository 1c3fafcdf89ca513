#![allow(unsafe_code, reason = "starts kernels on addresses of a device")]
//! Programs that are started as one CUDA graph.
//!
//! A graph saves time of the host: one call starts all launches. Making it takes as long as some runs, so it is made
//! once the program has run [`CALLS`] times on a stream. From then on, each run updates the argument buffers that
//! changed since the run before, and starts the graph. These are few, because the allocator reuses memory. Every stream
//! has a graph of its own, because runs of one graph wait for each other on any streams. Threads that share a stream
//! take turns with it.
//!
//! If the driver lacks graphs, or refuses one, the program does not ask again, and launches start one by one. So no run
//! fails because of a graph.

use super::counts;
use super::program::DeviceProgram;
use crate::device::Stream;
use crate::device::cuda::{Graph, Queue, has_graphs};
use crate::error::Result;
use smallvec::SmallVec;
use std::sync::{Mutex, PoisonError};

/// Runs of a program on a stream before its graph is made.
pub(super) const CALLS: u32 = 8;

/// Fewest launches of a graph: starting one takes the host about as long as two launches.
pub(super) const MIN_NODES: usize = 3;

/// Most streams that have graphs of one program.
const MAX_STREAMS: usize = 4;

/// The graphs of a program.
#[derive(Default)]
pub(super) struct Replays(Mutex<State>);

#[derive(Default)]
struct State {
    /// Those of the streams that ran it last, the most recent last.
    streams: SmallVec<[OfStream; 1]>,
    /// Whether the driver refused a graph.
    refused: bool,
}

struct OfStream {
    stream: u64,
    calls: u32,
    ready: Option<InstantiatedGraph>,
}

/// A graph, and the current values of its launches.
struct InstantiatedGraph {
    graph: Graph,
    values: Vec<u64>,
}

impl Replays {
    /// Starts a program with these values by a graph, if it has run often enough. Returns whether it did.
    ///
    /// # Safety
    /// All launches of the program may be started with these values on the stream, whose handle is `queue`.
    pub(super) unsafe fn start(&self, program: &DeviceProgram, values: &[u64], stream: &Stream, queue: &Queue) -> bool {
        if program.n_nodes() < MIN_NODES || !program.is_of_launches() || !has_graphs() {
            return false;
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.refused {
            return false;
        }
        let of_stream = state.of(stream.id());
        if of_stream.calls < CALLS {
            of_stream.calls += 1;
            return false;
        }
        // SAFETY: passed on from the caller.
        let started = unsafe { of_stream.start(program, values, queue) };
        if started.is_err() {
            // Launching one by one reports any error of the device.
            *state = State { streams: SmallVec::new(), refused: true };
            return false;
        }
        counts::replayed();
        true
    }
}

impl State {
    fn of(&mut self, stream: u64) -> &mut OfStream {
        let last = match self.streams.iter().position(|other| other.stream == stream) {
            Some(place) => self.streams.remove(place),
            None => {
                if self.streams.len() == MAX_STREAMS {
                    self.streams.remove(0);
                }
                OfStream { stream, calls: 0, ready: None }
            }
        };
        self.streams.push(last);
        self.streams.last_mut().expect("it was pushed")
    }
}

impl OfStream {
    unsafe fn start(&mut self, program: &DeviceProgram, values: &[u64], queue: &Queue) -> Result<()> {
        let ready = match &mut self.ready {
            Some(ready) => {
                // SAFETY: passed on from the caller.
                unsafe { ready.change(program, values)? };
                ready
            }
            // SAFETY: passed on from the caller.
            None => self.ready.insert(unsafe { InstantiatedGraph::new(program, values)? }),
        };
        // SAFETY: passed on from the caller; the launches have these values now.
        unsafe { ready.graph.start(queue) }
    }
}

impl InstantiatedGraph {
    unsafe fn new(program: &DeviceProgram, values: &[u64]) -> Result<InstantiatedGraph> {
        // SAFETY: the graph is started by callers who promise what its launches need; the program keeps its functions.
        let graph = program.with_launches(values, |launches| unsafe { Graph::new(launches) })?;
        counts::made_graph();
        Ok(InstantiatedGraph { graph, values: values.to_vec() })
    }

    /// Updates the launches whose values differ.
    unsafe fn change(&mut self, program: &DeviceProgram, values: &[u64]) -> Result<()> {
        for node in 0..program.n_nodes() {
            let of_node = program.patches(node);
            if self.values[of_node.clone()] == values[of_node.clone()] {
                continue;
            }
            // SAFETY: as in `new`.
            program.with_launch(node, values, |launch| unsafe { self.graph.change(node, launch) })?;
            self.values[of_node.clone()].copy_from_slice(&values[of_node]);
        }
        Ok(())
    }
}
