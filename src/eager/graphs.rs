//! Small graphs that eager code runs repeatedly, such as the backward pass of a call.
//!
//! A graph is identified by a number of its owner's. Its executable is cached per thread, by the operand types it was
//! run with. Their strides may differ from those that the graph was made with.

use super::{Argument, CAPACITY, build, current_numerics};
use crate::device::Device;
use crate::error::Result;
use crate::ir::passes::{Target, decompose, eliminate_common, eliminate_dead, passes_for, simplify};
use crate::ir::{Attrs, Graph, MemoryFormat, NodeKind, Numerics, Op, SideTable, TensorType};
use crate::runtime::{Array, Executable, cuda};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Types = SmallVec<[TensorType; 4]>;
/// A graph, its device and numerics if it is not on the CPU, and the types of its operands.
type Key = (u64, Option<(Device, Numerics)>, Types);

thread_local! {
    /// Executables by graph and operand types. The table is cleared when it is full.
    static KNOWN: RefCell<FxHashMap<Key, Arc<Executable>>> = RefCell::new(FxHashMap::default());
}

/// A unique number for a graph.
pub fn graph_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Runs the graph `id`, whose inputs have the dtypes and sizes of `arguments`.
///
/// # Errors
/// Out of memory, or an index out of range.
pub fn run_graph(id: u64, graph: &Graph, arguments: &[Argument<'_>]) -> Result<SmallVec<[Array; 2]>> {
    let types: Types = arguments.iter().map(Argument::ty).collect();
    let arrays: SmallVec<[&Array; 4]> = arguments.iter().map(|argument| argument.array).collect();
    let device = cuda::device_of(arrays.iter().map(|array| array.device()));
    let key = (id, device.map(|device| (device, current_numerics())), types);
    if let Some(executable) = KNOWN.with_borrow(|known| known.get(&key).cloned()) {
        return executable.run(&arrays);
    }
    let Ok(own) = with_inputs(graph, &key.2) else {
        // A view in the graph cannot have these strides.
        let dense: Vec<Array> = arrays.iter().map(|&array| dense(array)).collect::<Result<_>>()?;
        let again: SmallVec<[Argument<'_>; 4]> =
            dense.iter().zip(arguments).map(|(array, old)| Argument { array, number: old.number }).collect();
        return run_graph(id, graph, &again);
    };
    // A copy of what has the right strides already is none.
    let own = eliminate_dead(&simplify(&eliminate_common(&decompose(&own)?)));
    let executable = Arc::new(build(device, own)?);
    KNOWN.with_borrow_mut(|known| {
        if known.len() >= CAPACITY {
            known.clear();
        }
        known.insert(key, executable.clone());
    });
    executable.run(&arrays)
}

/// The executable of a graph on the CPU.
///
/// # Errors
/// If the graph cannot be lowered.
pub fn executable(graph: &Graph) -> Result<Executable> {
    let graph =
        passes_for(Target::Cpu).try_fold(Cow::Borrowed(graph), |graph, pass| (pass.run)(&graph).map(Cow::Owned));
    build(None, graph?.into_owned())
}

/// The graph for inputs with other strides.
fn with_inputs(graph: &Graph, types: &[TensorType]) -> Result<Graph> {
    let mut out = Graph::new();
    let mut moved = SideTable::new();
    for (_, node) in graph.nodes() {
        let args: SmallVec<[_; 4]> = node.args.iter().map(|&arg| moved[arg]).collect();
        moved.push(match node.kind {
            NodeKind::Input(index) => out.input(types[index as usize].clone()),
            NodeKind::Op(op) => out.add(op, &args, node.attrs.clone())?,
            NodeKind::Number(_) | NodeKind::Extent(_) => out.copy(node, &args),
        });
    }
    out.set_outputs(graph.outputs().iter().map(|&output| moved[output]).collect());
    Ok(out)
}

fn dense(array: &Array) -> Result<Array> {
    let attrs = Attrs::from_iter([MemoryFormat::Contiguous.into()]);
    super::run(Op::Clone, &[Argument { array, number: false }], &attrs)
}
