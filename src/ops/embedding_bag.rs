//! Bags of embeddings: the sum, mean or maximum of the rows of each bag.
//!
//! Bags follow one another in the ids. Each begins at its offset. The rows of a bag are added in the order of the ids.

use crate::device::Device;
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::{DType, Scalar};
use crate::ops::arguments::{need_float, widened};
use crate::ops::composite::Composite;
use crate::ops::factories::{full_on, range_on};
use crate::ops::indexing::embedding;
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;

/// The rows of a call, and what became of them.
pub(crate) type Bags = (Tensor, Tensor, Tensor, Tensor);

pub(crate) static EMBEDDING_BAG: Composite = Composite::new(
    "embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool \
     sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False) -> (Tensor, Tensor, Tensor, Tensor)",
);

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(
            &EMBEDDING_BAG,
            |w: &Tensor, ids: &Tensor, at: &Tensor, _: bool, mode: i64, _: bool, s: Option<&Tensor>, last: bool| {
                embedding_bag("embedding_bag", w, [ids, at], mode, s, last, None)
            },
        )?
        .def_kernel(
            "embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq, int \
             mode, bool sparse, Tensor? per_sample_weights, bool include_last_offset, int? padding_idx) -> (Tensor, \
             Tensor, Tensor, Tensor)",
            |w: &Tensor,
             ids: &Tensor,
             at: &Tensor,
             _: bool,
             mode: i64,
             _: bool,
             s: Option<&Tensor>,
             last: bool,
             padding: Option<i64>| {
                let n_rows = w.sizes().first().map_or(0, |&rows| rows as i64);
                let padding = padding.map(|id| if id < 0 { id + n_rows } else { id });
                embedding_bag("embedding_bag", w, [ids, at], mode, s, last, padding)
            },
        )?;
    for name in ["_embedding_bag", "_embedding_bag_forward_only"] {
        let schema = format!(
            "{name}(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool \
             sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1) -> \
             (Tensor, Tensor, Tensor, Tensor)"
        );
        library.def_kernel(
            &schema,
            |w: &Tensor,
             ids: &Tensor,
             at: &Tensor,
             _: bool,
             mode: i64,
             _: bool,
             s: Option<&Tensor>,
             last: bool,
             padding: i64| {
                let padding = (padding >= 0).then_some(padding);
                embedding_bag("_embedding_bag", w, [ids, at], mode, s, last, padding)
            },
        )?;
    }
    Ok(())
}

/// What becomes of the rows of a bag.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Sum,
    Mean,
    Max,
}

pub(super) fn mode_of(op: &str, number: i64) -> Result<Mode> {
    match number {
        0 => Ok(Mode::Sum),
        1 => Ok(Mode::Mean),
        2 => Ok(Mode::Max),
        _ => Err(Error::argument(op, format!("mode is {number}; use 0 for sum, 1 for mean or 2 for max"))),
    }
}

fn embedding_bag(
    op: &str,
    weight: &Tensor,
    [ids, offsets]: [&Tensor; 2],
    mode: i64,
    scales: Option<&Tensor>,
    has_last_offset: bool,
    padding: Option<i64>,
) -> Result<Bags> {
    let mode = mode_of(op, mode)?;
    need_float(op, &[weight])?;
    if ids.dim() != 1 || offsets.dim() != 1 || weight.dim() != 2 {
        let what = format!("weight {:?}, ids {:?}, offsets {:?}", weight.sizes(), ids.sizes(), offsets.sizes());
        return Err(Error::shape(op, what, "the weight has 2 dims; ids and offsets have 1"));
    }
    if scales.is_some() && mode != Mode::Sum {
        return Err(Error::argument(op, "per_sample_weights are for the mode sum; multiply the rows instead"));
    }
    let n_bags = offsets.sizes()[0].checked_sub(usize::from(has_last_offset));
    let n_bags = n_bags.ok_or_else(|| Error::shape(op, "there are no offsets", "pass at least the last one"))?;
    let offsets = offsets.narrow(0, 0, n_bags)?.to_dtype(DType::I64)?;
    let (n_ids, device) = (ids.sizes()[0], weight.device());
    let bags = bags_of(device, &offsets, n_ids)?;
    let is_kept = padding.map(|padding| ids.ne(padding)).transpose()?;

    let mut rows = widened(&embedding(weight, ids)?)?;
    if let Some(scales) = scales {
        rows = rows.mul(&widened(scales)?.unsqueeze(1)?)?;
    }
    let ones = full_on(device, &[], Scalar::Int(1), Some(DType::I64))?.expand([n_ids as i64])?;
    let counted = is_kept.as_ref().map_or(Ok(ones), |is_kept| is_kept.to_dtype(DType::I64))?;
    let counts = full_on(device, &[n_bags], Scalar::Int(0), Some(DType::I64))?.index_add(0, &bags, &counted)?;
    let is_padding = is_kept.as_ref().map(|is_kept| is_kept.logical_not()?.unsqueeze(1)).transpose()?;
    let filled = |rows: &Tensor, value: f64| {
        is_padding.as_ref().map_or(Ok(rows.clone()), |is_padding| rows.masked_fill(is_padding, value))
    };
    let n_features = weight.sizes()[1];
    let zeros = full_on(device, &[n_bags, n_features], Scalar::Int(0), Some(rows.dtype()))?;
    let output = match mode {
        Mode::Sum => zeros.index_add(0, &bags, &filled(&rows, 0.0)?)?,
        Mode::Mean => {
            let sums = zeros.index_add(0, &bags, &filled(&rows, 0.0)?)?;
            sums.div(&counts.clamp_min(1)?.to_dtype(rows.dtype())?.unsqueeze(1)?)?
        }
        Mode::Max => {
            let bag_of_each = bags.unsqueeze(1)?.expand(&[n_ids, n_features][..])?;
            let least = full_on(device, &[n_bags, n_features], Scalar::Float(f64::NEG_INFINITY), Some(rows.dtype()))?;
            let most = least.scatter_reduce(0, &bag_of_each, &filled(&rows, f64::NEG_INFINITY)?, "amax", true)?;
            most.masked_fill(&counts.eq(0)?.unsqueeze(1)?, 0.0)?
        }
    };
    let most = match (mode, op) {
        // The backward pass of `torch.compile` reads them.
        (Mode::Max, "_embedding_bag") => {
            greatest_ids(ids, &bags, &filled(&rows, f64::NEG_INFINITY)?, &output, is_kept)?
        }
        (Mode::Max, _) => full_on(device, &[n_bags, n_features], Scalar::Int(-1), Some(DType::I64))?,
        (Mode::Sum | Mode::Mean, _) => full_on(device, &[n_bags], Scalar::Int(0), Some(DType::I64))?,
    };
    Ok((output.to_dtype(weight.dtype())?, bags, counts, most))
}

/// The first id of each bag that has the greatest row, by feature; -1 for bags that are empty.
fn greatest_ids(
    ids: &Tensor,
    bags: &Tensor,
    rows: &Tensor,
    output: &Tensor,
    is_kept: Option<Tensor>,
) -> Result<Tensor> {
    let (device, n_ids) = (ids.device(), ids.sizes()[0]);
    let mut is_greatest = rows.eq(&output.index_select(0, bags)?)?.logical_or(&rows.isnan()?)?;
    if let Some(is_kept) = is_kept {
        is_greatest = is_greatest.logical_and(&is_kept.unsqueeze(1)?)?;
    }
    let none = full_on(device, rows.sizes(), Scalar::Int(n_ids as i64), Some(DType::I64))?;
    let places = range_on(device, 0, n_ids as i64, Some(DType::I64))?.unsqueeze(1)?.expand(rows.sizes())?;
    let places = is_greatest.where_(&places, &none)?;
    let nowhere = full_on(device, output.sizes(), Scalar::Int(n_ids as i64), Some(DType::I64))?;
    let first = nowhere.scatter_reduce(0, &bags.unsqueeze(1)?.expand(rows.sizes())?, &places, "amin", true)?;
    // A last id of -1 is found where there is none.
    let ids = cat(&[&ids.to_dtype(DType::I64)?, &full_on(device, &[1], Scalar::Int(-1), Some(DType::I64))?], 0)?;
    ids.index_select(0, &first.reshape([-1])?)?.reshape(output.sizes())
}

/// The bag of each id: how many offsets are at most its position, less one.
fn bags_of(device: Device, offsets: &Tensor, n_ids: usize) -> Result<Tensor> {
    let ones = full_on(device, &[], Scalar::Int(1), Some(DType::I64))?.expand(offsets.sizes())?;
    // An empty bag at the end begins after the last id.
    let begins = full_on(device, &[n_ids + 1], Scalar::Int(0), Some(DType::I64))?.index_add(0, offsets, &ones)?;
    let numbers = range_on(device, 0, n_ids as i64, Some(DType::I64))?;
    // Ids before the first offset belong to the first bag, so that every bag exists.
    begins.cumsum(0)?.index_select(0, &numbers)?.sub(1)?.clamp_min(0)
}
