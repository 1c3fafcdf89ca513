//! Chooses how a product is computed on a device: the whole policy, with a reason for each decision.
//!
//! [`Numerics::Strict`](crate::Numerics::Strict) demands the canonical order. With `Fast`, products of floats may have
//! another one. Then `OPFUSE_CUDA_PRODUCTS` chooses, or a model of time ([`roofline`]) that compares
//!
//! - our kernel, on tensor cores where they support the dtype, with any candidate that can be its epilogue, and
//! - cublasLt, with a candidate that it computes itself ([`epilogue_patterns`]); any other is a pass of its own.
//!
//! Our kernel computes what cublasLt cannot, or where it is missing. `OPFUSE_CUDA_PRODUCTS=wgmma` asks for a third way,
//! on compute capability 9.0: our kernel for groups of four warps. The model does not include it, because it never ran
//! on a GPU. Where it declines, our other kernel computes the product.

use super::candidate::EpilogueCandidate;
use super::epilogue_patterns::{self, EpilogueMatch};
use super::library::{LibraryProduct, problem};
use super::roofline::{self, Who, bytes_of};
use crate::codegen::cuda::{tensor_cores, wgmma};
use crate::codegen::product::ProductShape;
use crate::debug;
use crate::device::Device;
use crate::device::cuda::{Architecture, Problem, architecture, has_maps};
use crate::error::{LibraryLimit, Reason, WgmmaLimit};
use crate::ir::{DType, Numerics};
use std::time::Duration;

/// How a product, or its epilogue, is computed on a device, as far as it depends on [`Numerics`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// In the canonical order, with the bits of the CPU. The reason says why nothing faster was chosen.
    Canonical(Option<Reason>),
    /// On tensor cores, which have another order of sums for this dtype. The reason says why not by cublasLt.
    TensorCores(DType, Option<Reason>),
    /// By groups of four warps (`wgmma`), which have another order of sums. The reason says why single warps are used
    /// after all, once that is known.
    Wgmma(DType, Option<Reason>),
    /// By cublasLt, which has another order of sums, too. The reason says why it does not compute the epilogue, if
    /// there is one.
    CublasLt(DType, Option<Reason>),
    /// As the epilogue of our kernel, so that the product is not stored. The reason says why not by groups of four
    /// warps where those were wanted, once that is known.
    Epilogue(Option<Reason>),
    /// As the epilogue of cublasLt, which does not round in between.
    CublasLtEpilogue,
}

impl Choice {
    /// Why nothing faster was chosen, if there is anything faster.
    pub fn declined(&self) -> Option<&Reason> {
        match self {
            Choice::Canonical(reason)
            | Choice::TensorCores(_, reason)
            | Choice::Wgmma(_, reason)
            | Choice::CublasLt(_, reason)
            | Choice::Epilogue(reason) => reason.as_ref(),
            Choice::CublasLtEpilogue => None,
        }
    }

    /// How it differs from the CPU.
    pub fn remark(&self) -> Option<String> {
        match self {
            Choice::Canonical(_) => None,
            Choice::TensorCores(dtype, _) => {
                Some(format!("tensor cores sum products of {dtype} in f32, in an order of their own"))
            }
            Choice::Wgmma(dtype, _) => {
                Some(format!("groups of four warps (wgmma) sum products of {dtype} in f32, in an order of their own"))
            }
            Choice::CublasLt(dtype, _) => {
                let sum = if *dtype == DType::F64 { DType::F64 } else { DType::F32 };
                Some(format!("cublasLt sums products of {dtype} in {sum}, in an order of its own"))
            }
            Choice::Epilogue(_) => Some("it is the epilogue of the matrix product, which is not stored".into()),
            Choice::CublasLtEpilogue => {
                Some("cublasLt computes it as its epilogue, and rounds once, at the end".into())
            }
        }
    }
}

/// A product whose implementation is to be chosen.
pub(super) struct ProductRequest<'a> {
    pub(super) device: Device,
    pub(super) numerics: Numerics,
    pub(super) shape: &'a ProductShape,
    /// The epilogue candidate, and whether it can be our kernel's epilogue.
    pub(super) candidate: Option<(&'a EpilogueCandidate, bool)>,
}

/// The implementation that was chosen.
pub(super) enum ProductDecision {
    /// One of our kernels; the choice says which.
    Own(Choice),
    /// cublasLt, with the candidate as its epilogue if it computes that.
    CublasLt(Choice, LibraryProduct, Option<EpilogueMatch>),
}

/// Whether there is a faster order of sums for a dtype.
fn may_be_fast(dtype: DType) -> bool {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => true,
        DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => false,
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
}

/// Chooses how a product is computed.
pub(super) fn choose(request: &ProductRequest<'_>) -> ProductDecision {
    let &ProductShape { dtype, batch, m, n, .. } = request.shape;
    if !may_be_fast(dtype) || batch * m * n == 0 {
        return ProductDecision::Own(Choice::Canonical(None));
    }
    let on_tensor_cores = on_tensor_cores(request.device, dtype);
    if request.numerics == Numerics::Strict {
        let unit = if on_tensor_cores { "tensor cores" } else { "kernels of cublasLt" };
        return ProductDecision::Own(Choice::Canonical(Some(Reason::WouldChangeBits { unit, dtype })));
    }
    if on_tensor_cores && debug::cuda_products() == Some("wgmma") {
        return ProductDecision::Own(match by_groups(request) {
            Ok(()) => Choice::Wgmma(dtype, None),
            Err(reason) => Choice::TensorCores(dtype, Some(reason)),
        });
    }
    match of_library(request) {
        Ok(decision) => decision,
        Err(reason) if on_tensor_cores => ProductDecision::Own(Choice::TensorCores(dtype, Some(reason))),
        Err(reason) => ProductDecision::Own(Choice::Canonical(Some(reason))),
    }
}

/// Whether our kernel for tensor cores computes products of a dtype on a device.
pub(super) fn on_tensor_cores(device: Device, dtype: DType) -> bool {
    tensor_cores::takes(dtype) && architecture(device).is_ok_and(Architecture::has_tensor_cores)
}

/// Checks whether groups of four warps can compute a product, from its shape and strides.
///
/// # Errors
/// The reason why not.
fn by_groups(request: &ProductRequest<'_>) -> Result<(), Reason> {
    if !architecture(request.device).is_ok_and(Architecture::has_wgmma) {
        return Err(WgmmaLimit::DeviceLacksWgmma { device: request.device.to_string().into() }.into());
    }
    if !has_maps() {
        return Err(WgmmaLimit::NoTensorMaps.into());
    }
    wgmma::check(request.shape)
}

/// A product by cublasLt, with the candidate as its epilogue if possible.
///
/// # Errors
/// The reason why our kernel computes it instead.
fn of_library(request: &ProductRequest<'_>) -> Result<ProductDecision, Reason> {
    let is_forced = match debug::cuda_products() {
        Some(value @ ("own" | "wgmma")) => return Err(LibraryLimit::OtherChosen { value }.into()),
        Some("cublaslt") => true,
        Some(_) | None => false,
    };
    let alone = problem(request.shape)?;
    let found = request.candidate.and_then(|(candidate, _)| epilogue_patterns::matching(candidate, request.shape));
    let taken = |found: Option<EpilogueMatch>, why_apart: Option<Reason>| {
        if !is_forced {
            is_faster(request, found.is_some())?;
        }
        let (epilogue, result) = found.map_or((alone.epilogue, alone.result), |found| (found.epilogue, found.result));
        let product = LibraryProduct::new(request.device, Problem { epilogue, result, ..alone })?;
        let candidate = request.candidate.filter(|_| found.is_none());
        let apart =
            candidate.map(|(_, may_be_own)| why_apart.unwrap_or_else(|| apart(request, may_be_own && !is_forced)));
        Ok(ProductDecision::CublasLt(Choice::CublasLt(request.shape.dtype, apart), product, found))
    };
    match found {
        // For some dtypes cublasLt computes products without epilogues only.
        Some(found) => taken(Some(found), None).or_else(|why| taken(None, Some(why))),
        None => taken(None, None),
    }
}

/// Checks whether cublasLt is faster, by the model.
///
/// # Errors
/// The reason why it is not.
fn is_faster(request: &ProductRequest<'_>, is_fused: bool) -> Result<(), Reason> {
    let [own, other] = modelled(request, is_fused);
    if other < own {
        return Ok(());
    }
    Err(LibraryLimit::LibrarySlower { library: time(other), own: time(own) }.into())
}

/// Why a candidate after a product of cublasLt is a pass of its own. Our kernel with an epilogue may have been weighed
/// against that.
fn apart(request: &ProductRequest<'_>, was_weighed: bool) -> Reason {
    if !was_weighed {
        return LibraryLimit::NoLibraryEpilogue.into();
    }
    let [own, other] = modelled(request, false).map(time);
    Reason::ModelledSlower { together: own, apart: other }
}

/// Modelled seconds of our kernel and of cublasLt, which computes the epilogue or not.
fn modelled(request: &ProductRequest<'_>, is_fused: bool) -> [f64; 2] {
    let candidate = |(candidate, may_be_own): (&EpilogueCandidate, bool), who| {
        let is_fused = match who {
            Who::Own => may_be_own,
            Who::CublasLt => is_fused,
        };
        roofline::EpilogueTraffic { bytes: bytes_of(&candidate.launch.lowered), is_fused }
    };
    [Who::Own, Who::CublasLt].map(|who| {
        let candidate = request.candidate.map(|pair| candidate(pair, who));
        roofline::seconds(who, request.shape, candidate)
    })
}

fn time(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
