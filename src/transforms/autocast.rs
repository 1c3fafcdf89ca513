//! The Autocast keys: automatic mixed precision per kind of device.
//!
//! In autocast, some operators first convert their operands; [`POLICIES`] lists them. Only floating operands on that
//! kind of device are converted, and f64 never. All other operators fall through. Every tensor has the keys, which are
//! normally excluded; [`autocast`] removes them from the excluded set. The conversions are ordinary calls above
//! autograd and the tracer: the gradient of an f32 weight is f32, and a graph contains the conversions. Converted
//! weights are deliberately not cached between calls: in a compiled function one conversion serves all uses.

use crate::device::DeviceKind;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::alias::AUTOCAST_KEYS;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::local::{AdmitGuard, ExcludeGuard, admit, exclude};
use crate::dispatch::key::set::KeySet;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::scope::{Change, SettingGuard, ThreadSetting, thread_setting};
use crate::tensor::handle::Tensor;
use std::collections::HashMap;

/// The conversion of an operator's operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// To the dtype of the scope, f16 or bf16.
    Lower,
    /// To f32.
    F32,
    /// To the widest dtype among them: f32 if one is f32, else the dtype of the scope.
    Promote,
}

use Policy::{F32, Lower, Promote};

/// The operators that convert, by the name of all their overloads: the policy on the CPU, and the policy on
/// accelerators. Products gain more from 16 bits on accelerators, so there more of the other operators run in f32.
///
/// This is PyTorch's list, which is one of names, and it stands here as one so that the two can be compared. A policy
/// is for all overloads of a name, rows and composites alike. A name that no operator has yet takes effect with it.
pub(crate) const POLICIES: &[(Option<Policy>, Option<Policy>, &str)] = &[
    (
        Some(Lower),
        Some(Lower),
        "mm bmm addmm baddbmm addbmm matmul linear linalg_vecdot prelu _convolution conv1d conv2d conv3d conv_tbc \
         conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention",
    ),
    (None, Some(Lower), "mv addmv addr einsum chain_matmul linalg_multi_dot convolution"),
    (
        Some(F32),
        Some(F32),
        "binary_cross_entropy_with_logits cdist cosine_embedding_loss hinge_embedding_loss huber_loss kl_div l1_loss \
         margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss nll_loss2d poisson_nll_loss \
         prod smooth_l1_loss soft_margin_loss triplet_margin_loss",
    ),
    (
        Some(F32),
        None,
        "adaptive_avg_pool3d avg_pool3d binary_cross_entropy cross_entropy_loss ctc_loss max_pool3d nanquantile \
         quantile reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d replication_pad3d trace",
    ),
    (
        None,
        Some(F32),
        "acos asin cosh cosine_similarity cumprod cumsum dist erfinv exp expm1 frobenius_norm group_norm layer_norm \
         linalg_matrix_norm linalg_vector_norm log log10 log1p log2 log_softmax logsumexp native_layer_norm norm \
         nuclear_norm pdist pow reciprocal renorm rsqrt sinh softmax softplus sum tan",
    ),
    (Some(Promote), Some(Promote), "cat stack"),
    (Some(Promote), None, "index_copy"),
    (None, Some(Promote), "addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot vdot"),
];

/// The kinds of devices that support autocast, with their keys.
const KINDS: [(DeviceKind, DispatchKey); 3] = [
    (DeviceKind::Cpu, DispatchKey::AutocastCPU),
    (DeviceKind::Cuda, DispatchKey::AutocastCUDA),
    (DeviceKind::PrivateUse1, DispatchKey::AutocastPrivateUse1),
];

/// The autocast state of a thread: the lower-precision dtype for each kind of device where it is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AutocastState([Option<DType>; KINDS.len()]);

thread_setting! {
    /// The autocast state of this thread.
    struct Autocast(AutocastState, Switch) = AutocastState([None; KINDS.len()]);
}

/// What a guard does: the dtype by kind of device, where it is switched. `None` inside means off.
#[derive(Debug, Clone, Copy)]
struct Switch([Option<Option<DType>>; KINDS.len()]);

impl Change<AutocastState> for Switch {
    fn apply(&self, before: AutocastState) -> AutocastState {
        AutocastState(std::array::from_fn(|at| self.0[at].unwrap_or(before.0[at])))
    }
}

impl AutocastState {
    /// The state of this thread.
    pub fn current() -> AutocastState {
        Autocast::get()
    }

    /// The lower-precision dtype on devices of that kind, if autocast is on there.
    pub fn dtype(self, kind: DeviceKind) -> Option<DType> {
        KINDS.iter().zip(self.0).find(|((of, _), _)| *of == kind).and_then(|(_, dtype)| dtype)
    }
}

/// Keeps autocast on or off; made by [`autocast`] and its variants. The youngest live guard for a kind of device
/// decides, whatever the order in which guards are dropped.
#[derive(Debug)]
#[must_use = "autocast is changed only while the guard lives"]
pub struct AutocastGuard {
    _state: SettingGuard<Autocast>,
    /// Where it is on, its keys are not excluded, and where it is off, they are.
    _on: AdmitGuard,
    _off: ExcludeGuard,
}

/// Enables autocast on this thread, on devices of every kind, until the guard is dropped. `dtype` (bf16 or f16) is the
/// lower precision. Like PyTorch's `torch.autocast`.
///
/// ```
/// use opfuse::autocast;
/// use opfuse::{DType, Tensor};
///
/// # fn main() -> opfuse::Result<()> {
/// let x = Tensor::ones(&[2, 2], DType::F32)?;
/// let _guard = autocast(DType::BF16)?;
/// assert_eq!(x.mm(&x)?.dtype(), DType::BF16);
/// assert_eq!(x.add(&x)?.dtype(), DType::F32);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If `dtype` is neither bf16 nor f16.
pub fn autocast(dtype: DType) -> Result<AutocastGuard> {
    check(dtype)?;
    Ok(enter(Switch([Some(Some(dtype)); KINDS.len()])))
}

/// Like [`autocast`], on devices of one kind only.
///
/// # Errors
/// If `dtype` is neither bf16 nor f16, or if the kind has no autocast.
pub fn autocast_on(kind: DeviceKind, dtype: DType) -> Result<AutocastGuard> {
    check(dtype)?;
    changed(kind, Some(dtype))
}

/// Disables autocast on this thread, on devices of every kind, until the guard is dropped.
pub fn no_autocast() -> AutocastGuard {
    enter(Switch([Some(None); KINDS.len()]))
}

/// Like [`no_autocast`], on devices of one kind only.
///
/// # Errors
/// If the kind has no autocast.
pub fn no_autocast_on(kind: DeviceKind) -> Result<AutocastGuard> {
    changed(kind, None)
}

fn check(dtype: DType) -> Result<()> {
    if matches!(dtype, DType::F16 | DType::BF16) {
        return Ok(());
    }
    Err(Error::dtype("autocast", dtype, "bf16 or f16", "autocast lowers the precision of products"))
}

fn changed(kind: DeviceKind, dtype: Option<DType>) -> Result<AutocastGuard> {
    let Some(at) = KINDS.iter().position(|(of, _)| *of == kind) else {
        return Err(Error::argument("autocast", format!("devices of kind {kind} have no autocast")));
    };
    let mut switch = Switch([None; KINDS.len()]);
    switch.0[at] = Some(dtype);
    Ok(enter(switch))
}

fn enter(switch: Switch) -> AutocastGuard {
    let keys = |is_on: bool| {
        let switched = KINDS.iter().zip(switch.0).filter(|(_, to)| to.is_some_and(|dtype| dtype.is_some() == is_on));
        switched.fold(KeySet::EMPTY, |keys, ((_, key), _)| keys | KeySet::of(*key))
    };
    AutocastGuard { _state: Autocast::change(switch), _on: admit(keys(true)), _off: exclude(keys(false)) }
}

/// Registers the kernels of [`POLICIES`] for all operators that are registered now.
pub(crate) fn register(libraries: &mut Vec<Library>) -> Result<()> {
    let mut overloads: HashMap<String, Vec<Operator>> = HashMap::new();
    for operator in Dispatcher::global().operators() {
        if let Some(base) = operator.name().name.strip_prefix("aten::") {
            overloads.entry(base.to_string()).or_default().push(operator);
        }
    }
    for (kind, key) in KINDS {
        let mut library = Library::impl_block("aten", key)?;
        for (cpu, accelerator, bases) in POLICIES {
            let Some(policy) = (if kind == DeviceKind::Cpu { *cpu } else { *accelerator }) else { continue };
            for operator in bases.split(' ').filter_map(|base| overloads.get(base)).flatten() {
                // The dtype of an `out` tensor is its own.
                let writes = operator.schema().is_some_and(|schema| {
                    schema.arguments.iter().any(|argument| argument.alias.as_ref().is_some_and(|alias| alias.is_write))
                });
                if !writes {
                    library.impl_operator(operator, kernel(kind, policy))?;
                }
            }
        }
        libraries.push(library);
    }
    Ok(())
}

fn kernel(kind: DeviceKind, policy: Policy) -> Kernel {
    Kernel::boxed(move |operator: &Operator, _, stack: &mut Stack| {
        let _below = exclude(AUTOCAST_KEYS);
        if let Some(lower) = AutocastState::current().dtype(kind) {
            convert(kind, policy, lower, stack)?;
        }
        operator.call_boxed(stack)
    })
    .named("autocast")
}

fn convert(kind: DeviceKind, policy: Policy, lower: DType, stack: &mut Stack) -> Result<()> {
    let is_eligible = |tensor: &Tensor| {
        tensor.dtype().is_float()
            && tensor.dtype() != DType::F64
            && tensor.as_number().is_none()
            && tensor.device().kind == kind
    };
    let dtype = match policy {
        Lower => lower,
        F32 => DType::F32,
        Promote => {
            let mut eligible = stack.iter().flat_map(Value::tensors).filter(|tensor| is_eligible(tensor));
            if eligible.all(|tensor| tensor.dtype() == lower) { lower } else { DType::F32 }
        }
    };
    let converted = |tensor: &mut Tensor| -> Result<()> {
        if is_eligible(tensor) && tensor.dtype() != dtype {
            *tensor = tensor.to_dtype(dtype)?;
        }
        Ok(())
    };
    for value in stack.iter_mut() {
        value.tensors_mut().try_for_each(converted)?;
    }
    Ok(())
}
