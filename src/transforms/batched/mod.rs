//! The FuncTorchBatched key: tensors with a mapped dim, which `vmap` makes.
//!
//! A mapped tensor is a wrapper with the sizes of one slice. It wraps the *physical* tensor, which has the mapped dim
//! in addition, and the level of its `vmap`. A call takes the innermost level among its operands and moves the mapped
//! dims of that level to the front. It then calls the op on the physical tensors, with adapted arguments, and wraps the
//! result. Physical tensors may be mapped by an outer level, where the same happens again.
//!
//! The meaning of an op, not its name, gives the physical call; see [`rules`]. An operator that is no row of the op
//! table runs its decomposition. An operator without either runs once per slice, which is counted with its
//! [`Reason`](crate::error::Reason). The key lies above autograd, autocast and the tracer: these see physical tensors
//! only.
//!
//! If gradients are wanted inside and outside the `vmap`, they are recorded twice: for the physical tensors by
//! autograd, and for the mapped tensors here. So a gradient taken inside is a gradient per slice, even with respect to
//! a tensor that is not mapped.

mod gathers;
mod rules;
mod slices;
mod views;

pub(crate) use slices::each;
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

/// The behaviour of random operators inside `vmap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Randomness {
    /// Random operators are errors.
    #[default]
    Error,
    /// Each slice draws different numbers.
    Different,
    /// All slices get the same numbers.
    Same,
}

/// The payload of a mapped tensor.
struct Mapped {
    physical: Tensor,
    dim: usize,
    level: u64,
}

/// One active `vmap` of this thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level {
    id: u64,
    /// The number of slices.
    size: usize,
    /// The behaviour of random operators.
    randomness: Randomness,
}

thread_local! {
    /// Outermost first. Inner levels have larger ids.
    static LEVELS: RefCell<Vec<Level>> = const { RefCell::new(Vec::new()) };
}

/// An active level. It ends when the session is dropped, even by a panic.
pub(crate) struct Session(Level);

/// Starts a level on this thread.
pub(crate) fn enter(size: usize, randomness: Randomness) -> Session {
    // Ids are never reused, so a tensor that outlives its level or leaves its thread is detected.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let level = Level { id: NEXT.fetch_add(1, Ordering::Relaxed), size, randomness };
    LEVELS.with_borrow_mut(|levels| levels.push(level));
    Session(level)
}

/// The levels of this thread whose slices draw different random numbers, outermost first.
///
/// # Errors
/// If random operators are errors at some level.
pub(crate) fn drawing_levels(op: &str) -> Result<SmallVec<[Level; 2]>> {
    LEVELS.with_borrow(|levels| {
        if levels.iter().any(|level| level.randomness == Randomness::Error) {
            let what = "a random operator was called inside vmap without a choice of randomness; choose \
                        Randomness::Different (numbers per slice) or Randomness::Same (the same numbers)";
            return Err(Error::argument(op, what));
        }
        let different = |level: &&Level| level.randomness == Randomness::Different;
        Ok(levels.iter().filter(different).copied().collect())
    })
}

/// The active level that maps a tensor. The innermost one, if there are several.
pub(crate) fn level_of(tensor: &Tensor) -> Option<Level> {
    let id = tensor.payload::<Mapped>()?.level;
    LEVELS.with_borrow(|levels| levels.iter().copied().find(|level| level.id == id))
}

impl Level {
    /// The number of slices.
    pub(crate) fn size(self) -> usize {
        self.size
    }

    /// Whether it lies inside the other one.
    pub(crate) fn is_inside(self, other: Level) -> bool {
        self.id > other.id
    }

    /// The physical tensor with its mapped dim in front, if this level maps it.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn unmap(self, tensor: &Tensor) -> Result<Option<Tensor>> {
        let mapped = tensor.payload::<Mapped>().filter(|mapped| mapped.level == self.id);
        mapped.map(|mapped| to_front(&mapped.physical, mapped.dim)).transpose()
    }

    /// The physical tensor with its mapped dim in front. A tensor that is not mapped is expanded by that dim.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn spread(self, tensor: &Tensor) -> Result<Tensor> {
        match self.unmap(tensor)? {
            Some(physical) => Ok(physical),
            None => tensor.expand(&physical_sizes(self.size, tensor.sizes())[..]),
        }
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

/// The physical tensor of a mapped tensor, which has one more dim.
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
    /// Has the mapped dim in front if it is mapped.
    value: Tensor,
    is_mapped: bool,
    /// The type of one slice.
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
    /// The physical tensor. If the operand is not mapped, it is expanded by the mapped dim in front.
    fn spread(&self, size: usize) -> Result<Tensor> {
        if self.is_mapped {
            Ok(self.value.clone())
        } else {
            self.value.expand(&physical_sizes(size, &self.ty.sizes)[..])
        }
    }
}

/// The sizes of a physical tensor: the number of slices, then those of one slice.
fn physical_sizes(size: usize, slice: &[usize]) -> SmallVec<[usize; 6]> {
    std::iter::once(size).chain(slice.iter().copied()).collect()
}

/// A view with dim `from` first.
fn to_front(tensor: &Tensor, from: usize) -> Result<Tensor> {
    if from == 0 { Ok(tensor.clone()) } else { move_dim(tensor, from, 0) }
}

/// A view with dim `from` moved to `to`. The other dims keep their order.
pub(crate) fn move_dim(tensor: &Tensor, from: usize, to: usize) -> Result<Tensor> {
    let mut dims: SmallVec<[i64; 6]> = (0..tensor.dim() as i64).collect();
    let moved = dims.remove(from);
    dims.insert(to, moved);
    tensor.permute(&dims[..])
}

/// The kernel of this key for every row of the op table.
pub(crate) fn kernel(op: Op, _: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let attrs = &Attrs::from(attrs);
    let operands = Operands::of(op.name(), tensors)?;
    // Inferred for one slice, so that errors show the sizes that the caller sees.
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

/// The kernel of this key for `copy_`.
pub(crate) fn copy_kernel(_: KeySet, target: &Tensor, source: &Tensor, _: bool) -> Result<Tensor> {
    let operands = Operands::of("copy_", &[target, source])?;
    let [into, from] = &operands.list[..] else { unreachable!("there are two operands") };
    if !into.is_mapped {
        let what = "a tensor that is not mapped is written to inside vmap, but cannot hold a value for each slice; \
                    use the form that returns a new tensor, or map the target too";
        return Err(Error::argument("copy_", what));
    }
    // Checked for one slice, so that the error shows the sizes that the caller sees.
    source.array().layout.expand("copy_", target.sizes())?;
    autograd::recorded_write(target, source, || {
        let n_missing = if from.is_mapped { into.ty.rank() - from.ty.rank() } else { 0 };
        into.value.copy_(&rules::pad(&from.value, n_missing)?)?;
        Ok(target.clone())
    })
}

/// The kernel of this key for every operator that is no row.
pub(crate) fn fallback(operator: &Operator, keys: KeySet, stack: &mut Stack) -> Result<()> {
    let below = keys - KeySet::of(DispatchKey::FuncTorchBatched);
    if operator.slot(below.highest_backend_key()).source == Source::Math {
        // The parts of the decomposition come back to this key.
        return operator.redispatch_boxed(below, stack);
    }
    let operands = {
        let tensors: SmallVec<[&Tensor; 4]> = stack.iter().flat_map(Value::tensors).collect();
        Operands::of(&operator.name().to_string(), &tensors)?
    };
    slices::boxed(operator, &operands, stack)
}

/// Called before the value of a tensor is read.
///
/// # Errors
/// If the tensor is mapped, because it has one value per slice.
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
