//! How does one op run now, on arrays?
//!
//! An eager call is a one-op graph: it is decomposed, planned, lowered and run by the tiles of the vm like any other
//! graph, and the result is kept for the next call of the same kind. So eager and compiled code cannot differ in
//! meaning. Views never get that far: they are a new layout of the same storage.

mod array;
pub mod executable;
mod graphs;
mod product;
mod routine;

pub use array::Array;
pub use executable::Executable;
pub use graphs::{graph_id, run_graph};

use crate::codegen::tier::Tier;
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::fusion::{Options, plan};
use crate::ir::passes::decompose;
use crate::ir::{Attr, Attrs, DType, Graph, Meaning, Op, Sizes, Strides, TensorType};
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A tensor operand of an eager call.
#[derive(Debug, Clone, Copy)]
pub struct Argument<'a> {
    /// Its elements.
    pub array: &'a Array,
    /// Whether it stands for a plain number.
    pub number: bool,
}

impl Argument<'_> {
    /// Its type.
    pub fn ty(&self) -> TensorType {
        TensorType { number: self.number, ..self.array.ty() }
    }
}

/// Most calls a thread remembers.
pub const CAPACITY: usize = 2048;

/// A call as it was when its executable was made.
struct Known {
    op: Op,
    attrs: Attrs,
    arguments: SmallVec<[(DType, Sizes, Strides, bool); 3]>,
    /// Dtype and strides of the memory that the result is written to, if it is given.
    target: Option<(DType, Strides)>,
    executable: Arc<Executable>,
}

thread_local! {
    /// Calls this thread has made, by hash; forgotten all at once when there are too many.
    static KNOWN: RefCell<HashMap<u64, Known, std::hash::BuildHasherDefault<FxHasher>>> = RefCell::new(HashMap::default());
}

/// Runs an op on arrays.
///
/// # Errors
/// What the op's inference says is wrong with the operands, out of memory, or an index outside its dimension.
pub fn run(op: Op, arguments: &[Argument<'_>], attrs: &Attrs) -> Result<Array> {
    check_data(op, arguments)?;
    if let (true, [argument]) = (op.is_view(), arguments) {
        return executable::view(op, attrs, argument.array);
    }
    let executable = executable_of(op, arguments, attrs, None)?;
    let arrays: SmallVec<[&Array; 4]> = arguments.iter().map(|argument| argument.array).collect();
    let mut results = executable.run(&arrays)?;
    Ok(results.pop().expect("a one-op graph has one output"))
}

/// Runs an op on arrays and stores the result, converted to its dtype, in `target`, whose elements are distinct places
/// and whose sizes are those of the result.
///
/// Operands may share the target's storage: where a kernel would read what it has already overwritten, the result is
/// made elsewhere first.
///
/// # Errors
/// As [`run`], or if a slice of the target is borrowed.
pub fn run_into(op: Op, arguments: &[Argument<'_>], attrs: &Attrs, target: &Array) -> Result<()> {
    check_data(op, arguments)?;
    let executable = executable_of(op, arguments, attrs, Some(target))?;
    let arrays: SmallVec<[&Array; 4]> = arguments.iter().map(|argument| argument.array).collect();
    let in_the_way = |array: &&Array| {
        Arc::ptr_eq(array.storage(), target.storage())
            && !(executable.works_in_place() && array.layout == target.layout && array.dtype == target.dtype)
    };
    if arrays.iter().any(in_the_way) {
        let result = run(op, arguments, attrs)?;
        let attrs = Attrs::from_iter([Attr::DType(target.dtype)]);
        return run_into(Op::ToCopy, &[Argument { array: &result, number: false }], &attrs, target);
    }
    executable.run_into(&arrays, target)
}

fn check_data(op: Op, arguments: &[Argument<'_>]) -> Result<()> {
    if arguments.iter().any(|argument| argument.array.device().kind == DeviceKind::Meta) {
        let hint = "a tensor that a trace made has no value outside it; meta tensors have shapes only";
        return Err(Error::Device { op: op.name().into(), what: "an operand has no data".into(), hint: hint.into() });
    }
    Ok(())
}

fn executable_of(op: Op, arguments: &[Argument<'_>], attrs: &Attrs, target: Option<&Array>) -> Result<Arc<Executable>> {
    let hash = hash_of(op, arguments, attrs, target);
    let found = KNOWN.with_borrow(|known| {
        known.get(&hash).filter(|known| known.is(op, arguments, attrs, target)).map(|known| known.executable.clone())
    });
    if let Some(executable) = found {
        return Ok(executable);
    }
    let executable = Arc::new(build(op, arguments, attrs, target)?);
    let arguments = arguments.iter().map(|argument| {
        let layout = &argument.array.layout;
        (argument.array.dtype, layout.sizes.clone(), layout.strides.clone(), argument.number)
    });
    let known = Known {
        op,
        attrs: attrs.clone(),
        arguments: arguments.collect(),
        target: target.map(|target| (target.dtype, target.layout.strides.clone())),
        executable: executable.clone(),
    };
    KNOWN.with_borrow_mut(|all| {
        if all.len() >= CAPACITY {
            all.clear();
        }
        all.insert(hash, known);
    });
    Ok(executable)
}

fn hash_of(op: Op, arguments: &[Argument<'_>], attrs: &[Attr], target: Option<&Array>) -> u64 {
    let mut hasher = FxHasher::default();
    (op, attrs, arguments.len()).hash(&mut hasher);
    for argument in arguments {
        let layout = &argument.array.layout;
        (argument.array.dtype, argument.number, &layout.sizes[..], &layout.strides[..]).hash(&mut hasher);
    }
    if let Some(target) = target {
        (target.dtype, &target.layout.strides[..]).hash(&mut hasher);
    }
    hasher.finish()
}

impl Known {
    fn is(&self, op: Op, arguments: &[Argument<'_>], attrs: &Attrs, target: Option<&Array>) -> bool {
        let same_target = match (&self.target, target) {
            (None, None) => true,
            (Some((dtype, strides)), Some(target)) => *dtype == target.dtype && *strides == target.layout.strides,
            (None, Some(_)) | (Some(_), None) => false,
        };
        let same = |(known, argument): (&(DType, Sizes, Strides, bool), &Argument<'_>)| {
            let (array, layout) = (argument.array, &argument.array.layout);
            known.0 == array.dtype && known.1 == layout.sizes && known.2 == layout.strides && known.3 == argument.number
        };
        self.op == op
            && self.attrs == *attrs
            && same_target
            && self.arguments.len() == arguments.len()
            && self.arguments.iter().zip(arguments).all(same)
    }
}

/// The executable of a one-op graph, on the vm: it runs at once, without machine code.
fn build(op: Op, arguments: &[Argument<'_>], attrs: &Attrs, target: Option<&Array>) -> Result<Executable> {
    let mut graph = Graph::new();
    let inputs: SmallVec<[_; 4]> = arguments.iter().map(|argument| graph.input(argument.ty())).collect();
    let mut output = graph.add(op, &inputs, attrs.clone())?;
    if let Some(target) = target {
        let is_kernel = matches!(op.row().meaning, Meaning::Body(..));
        if !is_kernel || graph[output].ty.dtype != target.dtype {
            output = graph.add(Op::ToCopy, &[output], Attrs::from_iter([Attr::DType(target.dtype)]))?;
        }
        graph.set_strides(output, &target.layout.strides);
    }
    graph.set_outputs(vec![output]);
    let graph = decompose(&graph)?;
    let plan = plan(&graph, &Options::default());
    Executable::build(&graph, &plan, Some(Tier::Vm))
}
