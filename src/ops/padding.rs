//! Padding: with a constant, by reflection, with the edge, or circular.
//!
//! Padding with a constant is a row of the op table. In the other modes each dim is an `index_select` by an index that
//! is computed from a range, so a negative pad crops.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::ConstantPadNd;
use crate::ir::{Attrs, Op, Scalar};
use crate::ops::composite::Composite;
use crate::ops::dims::{Dims, ints};
use crate::ops::factories::range_on;
use crate::ops::memory_formats::in_format;
use crate::tensor::handle::Tensor;

static PAD: Composite =
    Composite::new("pad(Tensor self, SymInt[] pad, str mode=\"constant\", float? value=None) -> Tensor");

/// The operators per number of padded dims.
static BY_RANK: [(Composite, usize, Source); 6] = [
    (Composite::new("reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor"), 1, Source::Reflected),
    (Composite::new("reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor"), 2, Source::Reflected),
    (Composite::new("reflection_pad3d(Tensor self, SymInt[6] padding) -> Tensor"), 3, Source::Reflected),
    (Composite::new("replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor"), 1, Source::Repeated),
    (Composite::new("replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor"), 2, Source::Repeated),
    (Composite::new("replication_pad3d(Tensor self, SymInt[6] padding) -> Tensor"), 3, Source::Repeated),
];

/// Where the elements of a border come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Border {
    /// Mirrored at the edge. The edge element is not repeated.
    Reflect,
    /// The edge element.
    Replicate,
    /// The elements at the opposite edge.
    Circular,
}

/// Padding.
impl Tensor {
    /// Pads with `value`. Negative numbers crop. `pad` holds pairs (before, after), starting with the last dim. Dims
    /// without a pair are not padded. The dtype is kept.
    ///
    /// # Errors
    /// If `pad` is not a list of pairs, has too many pairs, or crops more than there is.
    #[track_caller]
    pub fn constant_pad_nd(&self, pad: impl Into<Dims>, value: impl Into<Scalar>) -> Result<Tensor> {
        call(Op::ConstantPadNd, &[self], &Attrs::from(ConstantPadNd { pad: ints(pad), value: Some(value.into()) }))
    }

    /// Pads the last one, two or three dims of `(N, C, …)` or `(C, …)` with existing elements. `pads` holds pairs
    /// (before, after), starting with the last dim. Negative numbers crop. The dtype is kept.
    ///
    /// # Errors
    /// If the number of pairs does not fit the rank, or if the border is wider than its source.
    #[track_caller]
    pub fn border_pad(&self, pads: impl Into<Dims>, border: Border) -> Result<Tensor> {
        let mode = match border {
            Border::Reflect => "reflect",
            Border::Replicate => "replicate",
            Border::Circular => "circular",
        };
        PAD.call((self, pads.into().as_slice(), mode, None::<f64>))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&PAD, pad)?
        .def_kernel("_pad_circular(Tensor self, SymInt[] pad) -> Tensor", |x: &Tensor, pads: &[i64]| {
            padded("_pad_circular", x, pads, Source::Circular)
        })?;
    for (composite, n, source) in &BY_RANK {
        library.composite(composite, move |x: &Tensor, pads: &[i64]| {
            let op = composite.name();
            if pads.len() != 2 * n {
                let what = format!("padding {pads:?} has {} numbers, not {}", pads.len(), 2 * n);
                return Err(Error::argument(op, what));
            }
            padded(op, x, pads, *source)
        })?;
    }
    Ok(())
}

/// Where the elements of the border come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Mirrored at the edge. The edge element is not repeated.
    Reflected,
    /// The edge element.
    Repeated,
    /// The elements at the opposite edge.
    Circular,
}

pub(crate) fn pad(x: &Tensor, pads: &[i64], mode: &str, value: Option<f64>) -> Result<Tensor> {
    let source = match mode {
        "constant" => return x.constant_pad_nd(pads, value.unwrap_or(0.0)),
        "reflect" => Source::Reflected,
        "replicate" => Source::Repeated,
        "circular" => Source::Circular,
        _ => {
            let what = format!("unrecognised padding mode {mode:?}; use constant, reflect, replicate or circular");
            return Err(Error::NotImplemented { op: "pad".into(), what });
        }
    };
    if value.is_some_and(|value| value != 0.0) {
        return Err(Error::argument("pad", format!("padding mode {mode:?} does not take a value")));
    }
    padded("pad", x, pads, source)
}

/// Pads the last dims. `pads` holds pairs (before, after), starting with the last dim.
fn padded(op: &str, x: &Tensor, pads: &[i64], source: Source) -> Result<Tensor> {
    let n_dims = pads.len() / 2;
    let has_samples = x.dim() == n_dims + 2;
    if !pads.len().is_multiple_of(2) || !(1..=3).contains(&n_dims) || !(has_samples || x.dim() == n_dims + 1) {
        let what =
            format!("padding {pads:?} of shape {:?}; 2, 4 or 6 numbers pad the last 1, 2 or 3 dims, ", x.sizes());
        return Err(Error::NotImplemented {
            op: op.into(),
            what: what + "and the input must have 1 or 2 dims in front of them",
        });
    }
    let pad = |input: &Tensor, first: usize| {
        let mut out = input.clone();
        for (nth, pair) in pads.chunks_exact(2).enumerate() {
            let (dim, own) = (first + n_dims - 1 - nth, x.dim() - 1 - nth);
            if pair != [0, 0] {
                let size = out.sizes()[dim] as i64;
                out = out.index_select(dim as i64, &index(op, x, own, size, [pair[0], pair[1]], source)?)?;
            }
        }
        Ok(out)
    };
    let out = match source {
        Source::Reflected | Source::Repeated => in_format(x, x, n_dims, pad)?,
        // Its parts are written to a row-major result in PyTorch.
        Source::Circular => pad(x, x.dim() - n_dims)?,
    };
    if out.has_storage_of(x) { x.copy() } else { Ok(out) }
}

/// For each element of a padded dim, the index that it is read from.
fn index(op: &str, x: &Tensor, dim: usize, size: i64, pads: [i64; 2], source: Source) -> Result<Tensor> {
    let refuse = |hint: &str| {
        let what = format!("padding {pads:?} at dim {dim} of input shape {:?}", x.sizes());
        Err(Error::shape(op, what, hint))
    };
    let [before, after] = pads;
    if size.saturating_add(before).saturating_add(after) < 0 || size.saturating_add(before.min(after)) < 0 {
        return refuse("it crops more than there is");
    }
    let all = |start: i64| range_on(x.device(), start, size + after, None);
    match source {
        Source::Reflected if before >= size || after >= size => refuse("it must be less than the size of the dim"),
        Source::Repeated if size == 0 => refuse("there is no edge to repeat"),
        Source::Repeated => all(-before)?.clamp(Some(0.into()), Some((size - 1).into())),
        Source::Reflected => {
            let last = size - 1;
            all(-before)?.abs()?.neg()?.add(last)?.abs()?.neg()?.add(last)
        }
        Source::Circular => {
            // Cropped elements are not copied to the opposite edge.
            let (start, end) = ((-before).max(0), size - (-after).max(0));
            let left = end - start;
            if before > left || after > left {
                return refuse("it must be at most the size of the dim");
            }
            let wrapped = range_on(x.device(), start - before.max(0), end + after.max(0), None)?;
            let wrapped_end = wrapped.ge(end)?.where_(wrapped.sub(left)?, &wrapped)?;
            wrapped.lt(start)?.where_(wrapped.add(left)?, wrapped_end)
        }
    }
}
