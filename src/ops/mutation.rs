//! Writes to tensors: `copy_`, and in-place calls of rows.
//!
//! `copy_` is the only operator that writes. The in-place form of an operator is its functional form followed by
//! `copy_`. So gradients, traces and versions only need to handle `copy_`. If none of them is involved, the kernel of
//! the functional form writes directly to the target. A write by index touches only the indexed elements. A target
//! keeps its shape, strides and dtype.
//!
//! The methods are in `in_place.rs` and next to their functional forms. The operators `x_` and `x.out` are in
//! `written_forms.rs`.

use crate::device::DeviceKind;
use crate::dispatch::builtins::{Builtins, in_place, operator};
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::alias::AUTOGRAD_AND_INPLACE_KEYS;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::grad_mode::{is_grad_enabled, is_inference_mode};
use crate::dispatch::key::set::KeySet;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::eager;
use crate::error::{Error, Result};
use crate::ir::attrs::Cast;
use crate::ir::{Attr, Attrs, DType, Meaning, MemoryFormat, Op, Routine, Scalar, TensorType};
use crate::ops::arguments::ordered;
use crate::ops::derivative::reads_first;
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

const COPY: &str = "copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)";

/// Defines `copy_`, and operators that are one call of it.
pub(crate) fn register(builtins: &mut Builtins) -> Result<()> {
    let mut library = Library::fragment("aten")?;
    let copy = library.def_operator(COPY)?;
    for (key, kernel) in [
        (DispatchKey::CPU, Kernel::typed(copy_cpu)),
        (DispatchKey::CUDA, Kernel::typed(copy_cuda)),
        (DispatchKey::Meta, Kernel::typed(copy_meta)),
    ] {
        library.impl_operator_for(&copy, key, kernel)?;
    }
    builtins.copy = Some(copy);
    builtins.libraries.push(library);
    Ok(())
}

/// The target before a write, for a backward pass that reads it: a copy with its history.
pub(crate) fn as_it_was(target: &Tensor) -> Result<Tensor> {
    crate::dispatch::rows::call(Op::Clone, &[target], &ordered(MemoryFormat::Preserve))
}

/// Copies a result into a target of its shape.
pub(crate) fn write(op: &str, target: &Tensor, result: &Tensor) -> Result<()> {
    check_result(op, target, result.sizes(), result.dtype())?;
    target.copy_(result)
}

/// Checks that a result of these sizes and dtype can be stored in the target.
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

/// Checks that the target may be written to, whatever the value.
pub(crate) fn check_target(op: &str, target: &Tensor) -> Result<()> {
    if target.is_inference() && !is_inference_mode() && target.payload_is_none() {
        let what = "Inplace update to inference tensor outside InferenceMode is not allowed; clone it first";
        return Err(Error::argument(op, what));
    }
    if target.as_number().is_some() {
        let what = "a plain number cannot be written to; make a tensor of it with Tensor::scalar";
        return Err(Error::argument(op, what));
    }
    if target.array().layout().is_expanded() && target.numel() > 0 {
        let what = "unsupported operation: more than one element of the written-to tensor refers to a single memory \
                    location";
        return Err(Error::shape(op, what, "clone() the tensor before performing the operation"));
    }
    Ok(())
}

/// Whether a copy changes nothing. A plain number cannot even be copied into itself.
fn is_itself(target: &Tensor, source: &Tensor) -> bool {
    target.is_handle_of(source) && target.as_number().is_none()
}

fn copy_cpu(target: &Tensor, source: &Tensor, _: bool) -> Result<Tensor> {
    if is_itself(target, source) {
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
    let attrs = Attrs::from(Cast { dtype: Some(target.dtype()) });
    eager::run_into(Op::ToCopy, &[eager::Argument { array: &source, number: false }], &attrs, target.array())?;
    Ok(target.clone())
}

/// Copies if at least one of the two is on a GPU.
fn copy_cuda(target: &Tensor, source: &Tensor, async_: bool) -> Result<Tensor> {
    if target.device().kind != DeviceKind::Cuda {
        let here =
            if crate::tensor::observer::is_abstract() { source.clone() } else { source.to_device(target.device())? };
        return copy_cpu(target, &here, async_);
    }
    if is_itself(target, source) {
        return Ok(target.clone());
    }
    check_target("copy_", target)?;
    let layout = source.array().layout.expand("copy_", target.sizes())?;
    if crate::tensor::observer::is_abstract() {
        return Ok(target.clone());
    }
    // A single element is passed as an argument of the launch.
    let travels = source.device().kind == DeviceKind::Cpu && source.has_data() && source.numel() == 1;
    let here = if travels { source.clone() } else { source.to_device(target.device())? };
    // A copy on this device has a layout of its own.
    let layout =
        if here.has_storage_of(source) { layout } else { here.array().layout.expand("copy_", target.sizes())? };
    let source = here.array().with_layout(layout);
    let attrs = Attrs::from(Cast { dtype: Some(target.dtype()) });
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

/// Whether only a CPU or CUDA kernel handles a call on these tensors: no mode, trace, gradient or other device is
/// involved. Plain numbers have no fixed device.
fn is_plain(operator: &Operator, tensors: &[&Tensor]) -> bool {
    const UNSEEN: KeySet = AUTOGRAD_AND_INPLACE_KEYS.add(DispatchKey::BackendSelect);
    let keys = tensors.iter().fold(KeySet::EMPTY, |keys, tensor| keys | tensor.key_set());
    let keys = operator.call_key_set(keys);
    let (_, kernel) = operator.select(keys, |condition| tensors.iter().any(|tensor| condition(tensor)));
    let seen = keys - UNSEEN;
    let (cpu, cuda) = (KeySet::of(DispatchKey::CPU), KeySet::of(DispatchKey::CUDA));
    let device = tensors[0].device();
    let is_there = |tensor: &&Tensor| tensor.device() == device || tensor.as_number().is_some();
    let unseen = match device.kind {
        DeviceKind::Cuda => (seen | cpu) == (cuda | cpu) && tensors.iter().all(is_there),
        DeviceKind::Cpu | DeviceKind::Meta | DeviceKind::PrivateUse1 => seen == cpu,
    };
    unseen
        // No kernel from outside is asked.
        && kernel.and_then(Kernel::row).is_some()
        && tensors.iter().all(|tensor| tensor.has_data())
        && !(is_grad_enabled() && (tensors.iter().any(|tensor| tensor.requires_grad()) || concerns_base(tensors[0])))
}

/// Whether several elements share memory. Each of them is computed from what was there before the call.
fn overlaps(target: &Tensor) -> bool {
    let layout = target.array().layout();
    !layout.is_contiguous() && !layout.is_injective()
}

/// Whether a write to the target changes the history of its base.
fn concerns_base(target: &Tensor) -> bool {
    target.view_of().is_some_and(|view| view.is_differentiable && view.base.requires_grad())
}

/// Calls the in-place form of an op, which stores the result in its first operand.
#[track_caller]
pub(crate) fn call_in_place(op: Op, tensors: &[&Tensor], attrs: &[Attr]) -> Result<()> {
    // A clone of the target costs two atomic operations.
    crate::dispatch::rows::call_write(op, in_place(op)?, tensors, attrs, (kernel, write_result))
}

/// The kernel of the in-place form of a row.
pub(crate) fn kernel(op: Op, _: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let Some(&target) = tensors.first() else {
        let what = "the tensor that it writes to is missing";
        return Err(Error::argument(op.name(), format!("{what}; its first argument is a tensor")));
    };
    write_result(op, tensors, attrs).map(|()| target.clone())
}

/// Calls an op, and stores the result in its first operand.
fn write_result(op: Op, tensors: &[&Tensor], attrs: &[Attr]) -> Result<()> {
    let (operator, target) = (operator(op)?, tensors[0]);
    check_target(op.name(), target)?;
    // Where a divisor is zero, nothing is written. A write by index looks at its indices first.
    let may_fail = op.checks_values(target.dtype()) && !matches!(op.row().meaning, Meaning::Routine(_));
    if may_fail || !is_plain(operator, tensors) || overlaps(target) {
        let before = if reads_first(op, &Attrs::from(attrs), tensors)? { Some(as_it_was(target)?) } else { None };
        let mut tensors: SmallVec<[&Tensor; 4]> = SmallVec::from_slice(tensors);
        tensors[0] = before.as_ref().unwrap_or(target);
        let result = crate::dispatch::rows::call(op, &tensors, attrs)?;
        return write(op.name(), target, &result);
    }
    // The fast path: most calls repeat an earlier one, whose target was checked.
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
    /// Checks that a kernel may write to the elements, like `copy_`.
    pub(crate) fn check_write(&self) -> Result<()> {
        check_target("copy_", self)
    }

    /// Counts a write to the elements that no operator has counted.
    pub(crate) fn note_write(&self) {
        self.note_writes(1);
    }

    /// Counts so many writes.
    pub(crate) fn note_writes(&self, times: u64) {
        if self.key_set().has(DispatchKey::ADInplaceOrView) {
            self.version_counter().fetch_add(times, Ordering::AcqRel);
        }
    }
}

/// Runs an op that writes to its first operand, when the call is not cached.
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

/// The kernel of an in-place form that is not a call of its row: a number is written without a tensor of it, and also
/// to elements that share memory.
pub(crate) fn own_kernel(op: Op) -> Option<Kernel> {
    if op == Op::FillScalar {
        return Some(Kernel::typed(fill_with_number));
    }
    (op == Op::Fill).then(|| Kernel::typed(fill))
}

/// Fills a tensor, whose elements may share memory, with a number.
pub(crate) fn fill_with_number(x: &Tensor, value: Scalar) -> Result<Tensor> {
    value.need_fit("fill_", x.dtype())?;
    each_once(x)?.copy_(&Tensor::full(&[], value, x.dtype())?)?;
    Ok(x.clone())
}

/// The elements without the repetitions of an expanded dim.
fn each_once(x: &Tensor) -> Result<Tensor> {
    let repeats = |&dim: &usize| x.sizes()[dim] > 1 && x.strides()[dim] == 0;
    (0..x.dim()).filter(repeats).try_fold(x.clone(), |once, dim| once.slice(dim as i64, 0, 1, 1))
}

fn fill(x: &Tensor, value: &Tensor) -> Result<Tensor> {
    if value.dim() != 0 {
        let what = format!("fill_ takes a 0-dim value, not one of shape {:?}", value.sizes());
        return Err(Error::shape("fill_", what, "select one element, or use copy_"));
    }
    x.copy_(value).map(|()| x.clone())
}
