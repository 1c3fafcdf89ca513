//! The FuncTorchBatched key: tensors with a mapped dim, as `vmap` makes them.
//!
//! A mapped tensor is a wrapper. Its sizes are those that one slice has; behind it lies the *physical* tensor, which
//! has one dim more, and the level of the `vmap` that maps it. A call takes the innermost level among its operands,
//! brings the mapped dims of that level to the front, calls the op, with its arguments changed, on the physical
//! tensors, and wraps the result. Physical tensors may be mapped by an outer level; then the same happens again.
//!
//! Which op is called with which arguments follows from what the op means, not from its name; see [`rules`]. An
//! operator that is no row of the op table runs its decomposition; what has neither runs once per slice, which is
//! counted with its [`Reason`](crate::error::Reason). The key lies above autograd, autocast and the tracer: these see
//! physical tensors only.
//!
//! Gradients are recorded twice where both are wanted: of the physical tensors by autograd, as seen from outside the
//! `vmap`, and of the mapped ones here, as seen from inside. So a gradient taken inside is one of each slice, also with
//! respect to a tensor that is not mapped itself.

mod gathers;
mod rules;
mod slices;
mod views;

pub use slices::slow_calls;

use crate::autograd::{inplace_or_view, kernel as autograd};
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::table::Source;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::{Attr, Attrs, DType, Op, TensorType};
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What random operators do inside `vmap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Randomness {
    /// They are errors.
    #[default]
    Error,
    /// Every slice gets numbers of its own.
    Different,
    /// All slices get the same numbers.
    Same,
}

/// What a mapped tensor stands for.
struct Mapped {
    physical: Tensor,
    dim: usize,
    level: u64,
}

/// One `vmap` in progress on this thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level {
    id: u64,
    /// How many slices there are.
    size: usize,
    /// What random operators do.
    randomness: Randomness,
}

thread_local! {
    /// Outermost first. Ids grow inwards.
    static LEVELS: RefCell<Vec<Level>> = const { RefCell::new(Vec::new()) };
}

/// A level for as long as it lives; ends also by a panic.
pub(crate) struct Session(Level);

/// Starts a level on this thread.
pub(crate) fn enter(size: usize, randomness: Randomness) -> Session {
    // Never given twice, so that a tensor that outlives its level, or its thread, is found out.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let level = Level { id: NEXT.fetch_add(1, Ordering::Relaxed), size, randomness };
    LEVELS.with_borrow_mut(|levels| levels.push(level));
    Session(level)
}

/// The levels of this thread whose slices get random numbers of their own, outermost first.
///
/// # Errors
/// If one refuses random operators.
pub(crate) fn drawing_levels(op: &str) -> Result<SmallVec<[Level; 2]>> {
    LEVELS.with_borrow(|levels| {
        if levels.iter().any(|level| level.randomness == Randomness::Error) {
            let what = "a random operator was called inside vmap, which was not told what it should do; choose \
                        Randomness::Different, numbers for every slice, or Randomness::Same";
            return Err(Error::argument(op, what));
        }
        let different = |level: &&Level| level.randomness == Randomness::Different;
        Ok(levels.iter().filter(different).copied().collect())
    })
}

impl Level {
    /// How many slices there are.
    pub(crate) fn size(self) -> usize {
        self.size
    }

    /// `tensor` with its first dim mapped.
    pub(crate) fn map(self, tensor: &Tensor) -> Result<Tensor> {
        wrap(tensor, 0, self)
    }
}

impl Session {
    /// `tensor` with its dim `dim` mapped.
    pub(crate) fn map(&self, tensor: &Tensor, dim: usize) -> Result<Tensor> {
        wrap(tensor, dim, self.0)
    }

    /// The physical tensor of `tensor` and its mapped dim, if this level maps it.
    pub(crate) fn unmap<'a>(&self, tensor: &'a Tensor) -> Option<(&'a Tensor, usize)> {
        let mapped = tensor.payload::<Mapped>().filter(|mapped| mapped.level == self.0.id)?;
        Some((&mapped.physical, mapped.dim))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        LEVELS.with_borrow_mut(|levels| levels.retain(|level| level.id != self.0.id));
    }
}

/// What a mapped tensor stands for: a tensor with one dim more.
pub(crate) fn physical(tensor: &Tensor) -> Option<&Tensor> {
    tensor.payload::<Mapped>().map(|mapped| &mapped.physical)
}

fn wrap(physical: &Tensor, dim: usize, level: Level) -> Result<Tensor> {
    let mut ty = TensorType { number: false, ..physical.ty() };
    ty.sizes.remove(dim);
    ty.strides.remove(dim);
    let keys = physical.key_set() | KeySet::of(DispatchKey::FuncTorchBatched);
    let mapped = Mapped { physical: physical.clone(), dim, level: level.id };
    Tensor::wrapper(&ty, physical.device(), keys, Arc::new(mapped))
}

/// One operand of a mapped call.
struct Operand {
    /// With the mapped dim in front if it is mapped, else as it was given.
    value: Tensor,
    is_mapped: bool,
    /// The type that one slice has.
    ty: TensorType,
}

/// The operands of a mapped call.
struct Operands {
    level: Level,
    list: SmallVec<[Operand; 4]>,
}

impl Operands {
    fn of(op: &str, tensors: &[&Tensor]) -> Result<Operands> {
        let levels = tensors.iter().filter_map(|tensor| tensor.payload::<Mapped>()).map(|mapped| mapped.level);
        let innermost = levels.max().ok_or_else(|| Error::invalid("mapped call", format!("{op} has none")))?;
        let level = LEVELS.with_borrow(|levels| levels.iter().copied().find(|level| level.id == innermost));
        let level = level.ok_or_else(|| {
            let what = "a mapped tensor was kept beyond the vmap, or the thread, that it belongs to";
            Error::argument(op, format!("{what}; return it from the mapped function instead"))
        })?;
        let operand = |&tensor: &&Tensor| {
            let mapped = tensor.payload::<Mapped>().filter(|mapped| mapped.level == level.id);
            let value = mapped.map_or_else(|| Ok(tensor.clone()), |mapped| to_front(&mapped.physical, mapped.dim))?;
            Ok(Operand { value, is_mapped: mapped.is_some(), ty: tensor.ty() })
        };
        Ok(Operands { level, list: tensors.iter().map(operand).collect::<Result<_>>()? })
    }

    fn types(&self) -> SmallVec<[&TensorType; 4]> {
        self.list.iter().map(|operand| &operand.ty).collect()
    }
}

impl Operand {
    /// The physical tensor, with the dim in front repeated for an operand that is not mapped.
    fn spread(&self, size: usize) -> Result<Tensor> {
        if self.is_mapped {
            Ok(self.value.clone())
        } else {
            self.value.expand(&physical_sizes(size, &self.ty.sizes)[..])
        }
    }
}

/// The sizes of one slice, behind the number of slices.
fn physical_sizes(size: usize, slice: &[usize]) -> SmallVec<[usize; 6]> {
    std::iter::once(size).chain(slice.iter().copied()).collect()
}

/// The same tensor with dim `from` as the first.
fn to_front(tensor: &Tensor, from: usize) -> Result<Tensor> {
    if from == 0 { Ok(tensor.clone()) } else { move_dim(tensor, from, 0) }
}

/// The same tensor with dim `from` at `to`, the others in order.
pub(crate) fn move_dim(tensor: &Tensor, from: usize, to: usize) -> Result<Tensor> {
    let mut dims: SmallVec<[i64; 6]> = (0..tensor.dim() as i64).collect();
    let moved = dims.remove(from);
    dims.insert(to, moved);
    tensor.permute(&dims[..])
}

/// The kernel of every row of the op table at this key.
pub(crate) fn kernel(op: Op, _: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let attrs = &Attrs::from(attrs);
    let operands = Operands::of(op.name(), tensors)?;
    // Asked of one slice, so that errors speak of what the caller sees.
    let result = op.infer(&operands.types(), attrs)?;
    let physical = match rules::apply(op, &operands, tensors, attrs, &result)? {
        rules::Applied::Physical(physical) => physical,
        rules::Applied::Wrapped(tensor) => return Ok(tensor),
        rules::Applied::NoRule => slices::row(op, &operands, attrs, &result)?,
    };
    debug_assert_eq!(physical.sizes(), &physical_sizes(operands.level.size, &result.sizes)[..], "{}", op.name());
    let mut result = wrap(&physical, 0, operands.level)?;
    if op.is_view() {
        result = inplace_or_view::marked(op, tensors[0], attrs, result);
    }
    autograd::record_call(op, tensors, attrs, &result)?;
    Ok(result)
}

/// The kernel of `copy_` at this key.
pub(crate) fn copy_kernel(_: KeySet, target: &Tensor, source: &Tensor, _: bool) -> Result<Tensor> {
    let operands = Operands::of("copy_", &[target, source])?;
    let [into, from] = &operands.list[..] else { unreachable!("there are two operands") };
    if !into.is_mapped {
        let what = "a tensor that is not mapped is written to inside vmap, but cannot hold a value for each slice; \
                    use the form that returns a new tensor, or map the target too";
        return Err(Error::argument("copy_", what));
    }
    // Asked of one slice, so that the error speaks of what the caller sees.
    source.array().layout.expand("copy_", target.sizes())?;
    autograd::recorded_write(target, source, || {
        let n_missing = if from.is_mapped { into.ty.rank() - from.ty.rank() } else { 0 };
        into.value.copy_(&rules::pad(&from.value, n_missing)?)?;
        Ok(target.clone())
    })
}

/// The kernel at this key of every operator that is no row.
pub(crate) fn fallback(operator: &Operator, keys: KeySet, stack: &mut Stack) -> Result<()> {
    let below = keys - KeySet::of(DispatchKey::FuncTorchBatched);
    if operator.slot(below.highest_backend_key()).source == Source::Math {
        // Its parts come back here one by one.
        return operator.redispatch_boxed(below, stack);
    }
    let operands = {
        let tensors: SmallVec<[&Tensor; 4]> = stack.iter().flat_map(Value::tensors).collect();
        Operands::of(&operator.name().to_string(), &tensors)?
    };
    slices::boxed(operator, &operands, stack)
}

/// Called before a value is read.
///
/// # Errors
/// If the tensor is mapped: there is one value per slice.
pub(crate) fn on_read(tensor: &Tensor, what: &str) -> Result<()> {
    if tensor.payload::<Mapped>().is_none() {
        return Ok(());
    }
    let is_condition = tensor.dtype() == DType::Bool;
    let reason = match what {
        "item" if is_condition => {
            "data-dependent control flow is not possible inside vmap: a mapped condition has one value per slice; \
             choose with where_"
        }
        "item" => "item() is not possible inside vmap: a mapped tensor has one value per slice; compute with tensors",
        "nonzero" | "masked_select" | "unique" | "_unique2" | "repeat_interleave" => {
            "not possible inside vmap: the size of the result depends on data and may differ from slice to slice"
        }
        _ => "the elements of a mapped tensor cannot be read inside vmap; return the tensor and read it outside",
    };
    Err(Error::argument(what, reason))
}
