//! Writing: `copy_`, and the in-place and `out` forms of other operators. The methods are in `in_place.rs`.
//!
//! `copy_` is the one operator that writes. The in-place form of an operator is its functional form followed by
//! `copy_`, so gradients, traces and versions need to know about `copy_` alone; where none of them is concerned, the
//! kernel of the functional form writes straight to the target; of a write by index it touches what the index names. A
//! target keeps its shape, strides and dtype.

use crate::dispatch::key::alias::AUTOGRAD_AND_INPLACE_KEYS;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::grad_mode::{is_grad_enabled, is_inference_mode};
use crate::ops::derivative::reads_first;

use crate::device::DeviceKind;
use crate::dispatch::builtins::op_of;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::dispatch::rows::unpack;
use crate::dispatch::schema::{AliasInfo, OperatorName, Parameter, Schema, Type};
use crate::dispatch::value::{Stack, Value};
use crate::eager;
use crate::error::{Error, Result};
use crate::ir::{Attr, Attrs, DType, Meaning, Op, Routine, Scalar, TensorType};
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

const COPY: &str = "copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)";

static COPY_OPERATOR: OnceLock<Operator> = OnceLock::new();

/// The operator `copy_`.
pub(crate) fn copy_operator() -> Result<&'static Operator> {
    crate::dispatch::builtins::load()?;
    COPY_OPERATOR.get().ok_or_else(|| Error::Internal { message: "copy_ is not registered".into() })
}

/// Registers `copy_`, and the in-place and `out` forms of every element-wise operator and of those that write by index.
pub(crate) fn register(libraries: &mut Vec<Library>, by_op: &[Operator]) -> Result<()> {
    let mut definitions = Library::fragment("aten")?;
    definitions.def(COPY)?;
    definitions
        .def_kernel("fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)", |x: &Tensor, value: Scalar| {
            x.fill_(value).map(|()| x.clone())
        })?
        .def_kernel("fill_.Tensor(Tensor(a!) self, Tensor value) -> Tensor(a!)", |x: &Tensor, value: &Tensor| {
            if value.dim() != 0 {
                let what = format!("fill_ takes a 0-dim value, not one of shape {:?}", value.sizes());
                return Err(Error::shape("fill_", what, "select one element, or use copy_"));
            }
            x.copy_(value).map(|()| x.clone())
        })?
        .def_kernel("zero_(Tensor(a!) self) -> Tensor(a!)", |x: &Tensor| x.zero_().map(|()| x.clone()))?;
    for (key, kernel) in [
        (DispatchKey::CPU, Kernel::typed(copy_cpu)),
        (DispatchKey::CUDA, Kernel::typed(copy_cuda)),
        (DispatchKey::Meta, Kernel::typed(copy_meta)),
    ] {
        definitions.impl_for("aten::copy_", key, kernel)?;
    }
    COPY_OPERATOR.get_or_init(|| Dispatcher::global().lookup("aten::copy_").expect("it was defined above"));
    let rows: HashSet<OperatorName> = by_op
        .iter()
        .zip(Op::ALL)
        .filter(|(_, op)| matches!(op.row().meaning, Meaning::Body(..)))
        .map(|(operator, _)| operator.name().clone())
        .collect();
    for name in Dispatcher::global().operator_names() {
        let Some(functional) = Dispatcher::global().find(&name) else { continue };
        if let Some(schema) = functional.schema().filter(|schema| has_written_forms(schema, &rows)) {
            let is_row = rows.contains(&schema.name);
            derive(&mut definitions, &functional, schema, is_row)?;
        }
    }
    libraries.push(definitions);
    Ok(())
}

/// Overloads of element-wise composites that do the same as a row of their name.
const COMPOSITE_OVERLOADS: [&str; 3] = ["Scalar", "Scalar_mode", "Tensor_Scalar"];

/// Operators that are no element-wise rows and keep the shape of their first operand: all their overloads are written.
const SHAPE_KEEPERS: [&str; 18] = [
    "aten::clamp",
    "aten::clamp_min",
    "aten::clamp_max",
    "aten::masked_fill",
    "aten::nan_to_num",
    "aten::celu",
    "aten::float_power",
    "aten::cumsum",
    "aten::cumprod",
    "aten::scatter",
    "aten::scatter_add",
    "aten::scatter_reduce",
    "aten::index_put",
    "aten::index_add",
    "aten::index_copy",
    "aten::index_fill",
    "aten::masked_scatter",
    "aten::put",
];

/// Whether the operator's result may take the place of its first operand.
fn has_written_forms(schema: &Schema, rows: &HashSet<OperatorName>) -> bool {
    let takes_self = schema.arguments.first().is_some_and(|first| first.ty == Type::Tensor && first.name == "self");
    let gives_one = matches!(&schema.returns[..], [one] if one.ty == Type::Tensor && one.alias.is_none());
    let is_ours = schema.name.name.starts_with("aten::") && !schema.name.name.starts_with("aten::_");
    // What chooses an order of memory makes a tensor of its own.
    let keeps_layout = !schema.arguments.iter().any(|argument| argument.name == "memory_format");
    let OperatorName { name, overload } = &schema.name;
    let by_name = rows.contains(&schema.name)
        || (COMPOSITE_OVERLOADS.contains(&&**overload) && rows.iter().any(|row| row.name == *name))
        || SHAPE_KEEPERS.contains(&&**name);
    takes_self && gives_one && is_ours && keeps_layout && by_name
}

/// Names of in-place forms that do not follow from the functional form: functional overload, in-place overload.
const INPLACE_OVERLOADS: [(&str, &str, &str); 5] = [
    ("aten::float_power", "Tensor_Tensor", "Tensor"),
    ("aten::float_power", "Tensor_Scalar", "Scalar"),
    ("aten::pow", "Tensor_Tensor", "Tensor"),
    ("aten::pow", "Tensor_Scalar", "Scalar"),
    ("aten::floor_divide", "", "Tensor"),
];

/// The name of the in-place form of a functional operator.
fn in_place_name(functional: &OperatorName) -> OperatorName {
    let OperatorName { name, overload } = functional;
    let other = INPLACE_OVERLOADS.iter().find(|(op, of, _)| op == name && of == overload);
    let overload = other.map_or_else(|| overload.clone(), |(_, _, overload)| (*overload).into());
    OperatorName { name: format!("{name}_"), overload }
}

/// Defines `x_` and `x.out` for a functional operator `x`.
fn derive(library: &mut Library, functional: &Operator, schema: &Schema, is_row: bool) -> Result<()> {
    let OperatorName { name, overload } = &schema.name;
    let written = Some(AliasInfo { before: vec!["a".into()], is_write: true, after: Vec::new() });
    let mut returned = schema.returns.clone();
    returned[0].alias = written.clone();

    let mut in_place = Schema { returns: returned.clone(), ..schema.clone() };
    in_place.name = in_place_name(&schema.name);
    in_place.arguments[0].alias = written.clone();
    define(
        library,
        &in_place,
        Kernel::boxed({
            let functional = functional.clone();
            move |_, _, stack| run_in_place(&functional, stack)
        }),
    )?;

    let mut out = Schema { returns: returned, ..schema.clone() };
    out.name = OperatorName { name: name.clone(), overload: out_overload(overload, is_row) };
    out.arguments.push(Parameter {
        name: "out".into(),
        ty: Type::Tensor,
        alias: written,
        default: None,
        kwarg_only: true,
    });
    define(
        library,
        &out,
        Kernel::boxed({
            let functional = functional.clone();
            move |_, _, stack| run_out(&functional, stack)
        }),
    )
}

fn out_overload(overload: &str, is_row: bool) -> String {
    match overload {
        "" => "out".into(),
        "Tensor" if is_row => "out".into(),
        "Tensor_mode" => "out_mode".into(),
        other => format!("{other}_out"),
    }
}

/// Defines an operator with a decomposition, unless one of that name is there already.
fn define(library: &mut Library, schema: &Schema, kernel: Kernel) -> Result<()> {
    if Dispatcher::global().find(&schema.name).is_none() {
        library.def_kernel(&schema.to_string(), kernel.named("mutation"))?;
    }
    Ok(())
}

fn run_in_place(functional: &Operator, stack: &mut Stack) -> Result<()> {
    let name = functional.name().to_string();
    let Some(Value::Tensor(target)) = stack.first().cloned() else {
        return Err(Error::argument(name, "the first argument is to be written to, so it must be a tensor"));
    };
    check_target(&name, &target)?;
    let recorded = is_grad_enabled() && stack.iter().flat_map(Value::tensors).any(Tensor::requires_grad);
    let reads = match op_of(functional).filter(|_| recorded) {
        Some(op) => {
            let (tensors, attrs) = unpack(op, stack)?;
            reads_first(op, &attrs, &tensors.iter().collect::<SmallVec<[&Tensor; 4]>>())?
        }
        None => recorded,
    };
    if reads {
        stack[0] = Value::Tensor(as_it_was(&target)?);
    }
    functional.call_boxed(stack)?;
    let result = stack.pop().and_then(|value| value.tensors().next().cloned());
    let result = result.ok_or_else(|| Error::argument(&*name, "the kernel left no tensor"))?;
    write(&name, &target, &result)?;
    stack.clear();
    stack.push(Value::Tensor(target));
    Ok(())
}

/// The target before it is written to, for a way back that reads it: a copy with its history.
fn as_it_was(target: &Tensor) -> Result<Tensor> {
    crate::dispatch::rows::call(Op::Clone, &[target], &[Attr::None])
}

fn run_out(functional: &Operator, stack: &mut Stack) -> Result<()> {
    let name = functional.name().to_string();
    let Some(Value::Tensor(out)) = stack.pop() else {
        return Err(Error::argument(name, "out must be a tensor"));
    };
    let recorded = is_grad_enabled() && stack.iter().flat_map(Value::tensors).chain([&out]).any(Tensor::requires_grad);
    if recorded {
        return Err(Error::argument(
            name,
            "functions with out=... arguments don't support automatic differentiation, but one of the arguments \
             requires grad; call the form without out",
        ));
    }
    check_target(&name, &out)?;
    functional.call_boxed(stack)?;
    let result = stack.pop().and_then(|value| value.tensors().next().cloned());
    let result = result.ok_or_else(|| Error::argument(&*name, "the kernel left no tensor"))?;
    if out.sizes() != result.sizes() {
        let (found, sizes, dtype) = (out.sizes(), result.sizes(), result.dtype());
        let what = format!("out has shape {found:?}, but the result has shape {sizes:?}, and a tensor is not resized");
        let hint =
            format!("pass an out made by Tensor::empty(&{sizes:?}, DType::{dtype:?}), or call the form without out");
        return Err(Error::shape(name, what, hint));
    }
    write(&name, &out, &result)?;
    stack.clear();
    stack.push(Value::Tensor(out));
    Ok(())
}

/// Stores a result in a target of its shape.
fn write(op: &str, target: &Tensor, result: &Tensor) -> Result<()> {
    check_result(op, target, result.sizes(), result.dtype())?;
    target.copy_(result)
}

/// Whether a result of these sizes and dtype can take the place of the target's elements.
fn check_result(op: &str, target: &Tensor, sizes: &[usize], dtype: DType) -> Result<()> {
    if dtype.category() > target.dtype().category() {
        let expected = format!("one that can be stored as {}", target.dtype());
        let hint = format!("result type {dtype} can't be cast to the desired output type {}", target.dtype());
        return Err(Error::dtype(op, dtype, expected, hint));
    }
    if sizes != target.sizes() {
        let what = format!("output with shape {:?} doesn't match the broadcast shape {sizes:?}", target.sizes());
        return Err(Error::shape(op, what, "a target keeps its shape; use the form that returns a new tensor"));
    }
    Ok(())
}

/// Whether the target may be written to, whatever the value.
pub(crate) fn check_target(op: &str, target: &Tensor) -> Result<()> {
    if target.is_inference() && !is_inference_mode() && target.payload_is_none() {
        let what = "Inplace update to inference tensor outside InferenceMode is not allowed; clone it first";
        return Err(Error::argument(op, what));
    }
    if target.array().layout().is_expanded() && target.numel() > 0 {
        let what = "unsupported operation: more than one element of the written-to tensor refers to a single memory \
                    location";
        return Err(Error::shape(op, what, "clone() the tensor before performing the operation"));
    }
    Ok(())
}

fn copy_cpu(target: &Tensor, source: &Tensor, _: bool) -> Result<Tensor> {
    if target.is_handle_of(source) {
        return Ok(target.clone());
    }
    check_target("copy_", target)?;
    let layout = source.array().layout.expand("copy_", target.sizes())?;
    if crate::tensor::observer::is_abstract() {
        return Ok(target.clone());
    }
    if target.has_data() && !source.has_data() {
        return Err(Error::Device {
            op: "copy_".into(),
            what: "Cannot copy out of meta tensor; no data!".into(),
            hint: "meta tensors have shapes only".into(),
        });
    }
    let source = source.array().with_layout(layout);
    let attrs = Attrs::from_iter([Attr::DType(target.dtype())]);
    eager::run_into(Op::ToCopy, &[eager::Argument { array: &source, number: false }], &attrs, target.array())?;
    Ok(target.clone())
}

/// One of the two is on a GPU.
fn copy_cuda(target: &Tensor, source: &Tensor, async_: bool) -> Result<Tensor> {
    if target.device().kind != DeviceKind::Cuda {
        let here =
            if crate::tensor::observer::is_abstract() { source.clone() } else { source.to_device(target.device())? };
        return copy_cpu(target, &here, async_);
    }
    if target.is_handle_of(source) {
        return Ok(target.clone());
    }
    check_target("copy_", target)?;
    let layout = source.array().layout.expand("copy_", target.sizes())?;
    if crate::tensor::observer::is_abstract() {
        return Ok(target.clone());
    }
    // A single element travels with the launch.
    let travels = source.device().kind == DeviceKind::Cpu && source.has_data() && source.numel() == 1;
    let here = if travels { source.clone() } else { source.to_device(target.device())? };
    // What was brought here lies in an order of its own.
    let layout =
        if here.has_storage_of(source) { layout } else { here.array().layout.expand("copy_", target.sizes())? };
    let source = here.array().with_layout(layout);
    let attrs = Attrs::from_iter([Attr::DType(target.dtype())]);
    eager::run_into(Op::ToCopy, &[eager::Argument { array: &source, number: false }], &attrs, target.array())?;
    Ok(target.clone())
}

fn copy_meta(target: &Tensor, source: &Tensor, async_: bool) -> Result<Tensor> {
    if !target.has_data() {
        source.array().layout.expand("copy_", target.sizes())?;
        return Ok(target.clone());
    }
    copy_cpu(target, source, async_)
}

/// Whether a call on these tensors is nobody's business but the kernel's, of the CPU or of the GPU that all of them are on;
/// plain numbers are everywhere.
fn is_plain(operator: &Operator, tensors: &[&Tensor]) -> bool {
    const UNSEEN: KeySet = AUTOGRAD_AND_INPLACE_KEYS.add(DispatchKey::BackendSelect);
    let keys = tensors.iter().fold(KeySet::EMPTY, |keys, tensor| keys | tensor.key_set());
    let seen = operator.call_key_set(keys) - UNSEEN;
    let (cpu, cuda) = (KeySet::of(DispatchKey::CPU), KeySet::of(DispatchKey::CUDA));
    let device = tensors[0].device();
    let is_there = |tensor: &&Tensor| tensor.device() == device || tensor.as_number().is_some();
    let unseen = match device.kind {
        DeviceKind::Cuda => (seen | cpu) == (cuda | cpu) && tensors.iter().all(is_there),
        DeviceKind::Cpu | DeviceKind::Meta | DeviceKind::PrivateUse1 => seen == cpu,
    };
    unseen
        && tensors.iter().all(|tensor| tensor.has_data())
        && !(is_grad_enabled() && (tensors.iter().any(|tensor| tensor.requires_grad()) || concerns_base(tensors[0])))
}

/// Whether a write to the target would concern the history of its base.
fn concerns_base(target: &Tensor) -> bool {
    target.view_of().is_some_and(|view| view.is_differentiable && view.base.requires_grad())
}

/// Calls an op with an in-place form and stores the result in its first operand.
pub(crate) fn call_in_place(op: Op, tensors: &[&Tensor], attrs: &[Attr]) -> Result<()> {
    let (operator, target) = (crate::dispatch::builtins::operator(op)?, tensors[0]);
    check_target(op.name(), target)?;
    if crate::dispatch::mode::is_active() {
        // A mode sees the call itself, not only what it is made of.
        let name = in_place_name(operator.name());
        let in_place = Dispatcher::global().find_schema(&name.name, &name.overload)?;
        return crate::dispatch::rows::call_as(op, &in_place, tensors, attrs).map(|_| ());
    }
    if !is_plain(operator, tensors) {
        let before = if reads_first(op, &Attrs::from(attrs), tensors)? { Some(as_it_was(target)?) } else { None };
        let mut tensors: SmallVec<[&Tensor; 4]> = SmallVec::from_slice(tensors);
        tensors[0] = before.as_ref().unwrap_or(target);
        let result = crate::dispatch::rows::call(op, &tensors, attrs)?;
        return write(op.name(), target, &result);
    }
    // Most calls are like one before, whose target was found fit for such a result.
    let again = match *tensors {
        [a] => eager::run_in_place_again(op, &[a.as_argument()], attrs),
        [a, b] => eager::run_in_place_again(op, &[a.as_argument(), b.as_argument()], attrs),
        _ => None,
    };
    match again {
        Some(result) => result.map_err(|error| *error)?,
        None => write_anew(op, tensors, attrs)?,
    }
    target.note_write();
    Ok(())
}

impl Tensor {
    /// Whether a run may write to its elements, as `copy_` may.
    pub(crate) fn check_write(&self) -> Result<()> {
        check_target("copy_", self)
    }

    /// Counts a write to its elements that no operator has counted.
    pub(crate) fn note_write(&self) {
        if self.key_set().has(DispatchKey::ADInplaceOrView) {
            self.version_counter().fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Runs a kernel that writes to the first operand and is not at hand.
#[inline(never)]
fn write_anew(op: Op, tensors: &[&Tensor], attrs: &[Attr]) -> Result<()> {
    let types: SmallVec<[TensorType; 4]> = tensors.iter().map(|tensor| tensor.ty()).collect();
    let types: SmallVec<[&TensorType; 4]> = types.iter().collect();
    let result = op.infer(&types, attrs)?;
    check_result(op.name(), tensors[0], &result.sizes, result.dtype)?;
    let is_here = |tensor: &&Tensor| tensor.device().kind == DeviceKind::Cpu;
    if let (Meaning::Routine(Routine::Scatter(_)), [target, index, source], true) =
        (&op.row().meaning, tensors, tensors.iter().all(is_here))
    {
        return eager::write_by_index(op, [target.array(), index.array(), source.array()], attrs);
    }
    let arguments: SmallVec<[eager::Argument<'_>; 4]> = tensors.iter().map(|tensor| tensor.as_argument()).collect();
    eager::run_into(op, &arguments, attrs, tensors[0].array())
}
