//! Padding: with a constant, by reflection, with the edge, or circular.
//!
//! Padding with a constant is a row of the op table. In the other modes each dim is joined from pieces: the border
//! before the elements, those that are kept, and the border after them. A negative pad crops.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::ConstantPadNd;
use crate::ir::{Attrs, MemoryFormat, Op, Scalar};
use crate::ops::arguments::ordered;
use crate::ops::composite::Composite;
use crate::ops::dims::{Dims, ints};
use crate::ops::joins::cat;
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

    /// Pads with existing elements. `pads` holds pairs (before, after), starting with the last dim. Dims without a pair
    /// are not padded, so an image may be `(H, W)`, `(C, H, W)` or `(N, C, H, W)`. Negative numbers crop. The dtype is
    /// kept.
    ///
    /// # Errors
    /// If `pads` is not a list of pairs, has more pairs than there are dims, or if the border is wider than its source.
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
    if !pads.len().is_multiple_of(2) || n_dims > x.dim() {
        let what = format!("padding {pads:?} of shape {:?}", x.sizes());
        return Err(Error::shape(op, what, "give a pair for each padded dim, at most as many as there are dims"));
    }
    let pad = |input: &Tensor, first: usize| {
        let mut out = input.clone();
        for (nth, pair) in pads.chunks_exact(2).enumerate() {
            let (dim, own) = (first + n_dims - 1 - nth, x.dim() - 1 - nth);
            if pair != [0, 0] {
                check(op, x, own, out.sizes()[dim] as i64, [pair[0], pair[1]], source)?;
                out = joined(&out, dim as i64, [pair[0], pair[1]], source)?;
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

/// Checks the pads of one dim of an input, which has this size.
fn check(op: &str, x: &Tensor, dim: usize, size: i64, [before, after]: [i64; 2], source: Source) -> Result<()> {
    let refuse = |hint: &str| {
        let what = format!("padding {:?} at dim {dim} of input shape {:?}", [before, after], x.sizes());
        Err(Error::shape(op, what, hint))
    };
    if size.saturating_add(before).saturating_add(after) < 0 || size.saturating_add(before.min(after)) < 0 {
        return refuse("it crops more than there is");
    }
    match source {
        Source::Reflected if before >= size || after >= size => refuse("it must be less than the size of the dim"),
        Source::Repeated if size == 0 => refuse("there is no edge to repeat"),
        Source::Circular => {
            let [start, end] = kept(size, [before, after]);
            if before > end - start || after > end - start {
                return refuse("it must be at most the size of the dim");
            }
            Ok(())
        }
        Source::Reflected | Source::Repeated => Ok(()),
    }
}

/// The elements of a dim of this size that pads keep: from the first one to before the second one.
fn kept(size: i64, [before, after]: [i64; 2]) -> [i64; 2] {
    let start = (-before).max(0);
    [start, (size + after.min(0)).max(start)]
}

/// Pads one dim, whose pads were checked.
fn joined(x: &Tensor, dim: i64, [before, after]: [i64; 2], source: Source) -> Result<Tensor> {
    let size = x.sizes()[dim as usize] as i64;
    let [start, end] = kept(size, [before, after]);
    let part = |start: i64, n: i64| x.slice(dim, start, start + n, 1);
    let border = |is_before: bool, n: i64| match source {
        Source::Reflected => {
            let mirrored = part(if is_before { 1 } else { size - 1 - n }, n)?;
            if n == 1 { Ok(mirrored) } else { mirrored.flip(&[dim][..]) }
        }
        Source::Repeated => {
            let mut sizes = x.sizes().to_vec();
            sizes[dim as usize] = n as usize;
            part(if is_before { 0 } else { size - 1 }, 1)?.expand(&sizes[..])
        }
        // Cropped elements are not copied to the opposite edge.
        Source::Circular => part(if is_before { end - n } else { start }, n),
    };
    let mut pieces = Vec::with_capacity(3);
    if before > 0 {
        pieces.push(border(true, before)?);
    }
    pieces.push(part(start, end - start)?);
    if after > 0 {
        pieces.push(border(false, after)?);
    }
    // A single piece is a view.
    match &pieces[..] {
        [only] => call(Op::Clone, &[only], &ordered(MemoryFormat::Contiguous)),
        several => cat(&several.iter().collect::<Vec<_>>(), dim)?.contiguous(),
    }
}
