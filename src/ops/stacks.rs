//! Tensors that are stacked and split along rows, columns and layers, as NumPy does: lines count as rows or columns.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ops::arguments::{count, int, tensor_list};
use crate::ops::composite::Composite;
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;

static HSTACK: Composite = Composite::new("hstack(Tensor[] tensors) -> Tensor");
static VSTACK: Composite = Composite::new("vstack(Tensor[] tensors) -> Tensor");
static DSTACK: Composite = Composite::new("dstack(Tensor[] tensors) -> Tensor");
static COLUMN_STACK: Composite = Composite::new("column_stack(Tensor[] tensors) -> Tensor");
static PAD_SEQUENCE: Composite = Composite::new(
    "pad_sequence(Tensor[] sequences, bool batch_first=False, float padding_value=0., str padding_side=\"right\") \
     -> Tensor",
);
static ATLEAST_1D: Composite = Composite::new("atleast_1d(Tensor self) -> Tensor");
static ATLEAST_2D: Composite = Composite::new("atleast_2d(Tensor self) -> Tensor");
static ATLEAST_3D: Composite = Composite::new("atleast_3d(Tensor self) -> Tensor");
static HSPLIT: Composite = Composite::new("hsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]");
static VSPLIT: Composite = Composite::new("vsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]");
static DSPLIT: Composite = Composite::new("dsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]");

/// Joins tensors along dim 1. Lines are joined along their only dim, and numbers count as lines of one element. Dtypes
/// are promoted.
///
/// # Errors
/// If there are no tensors, or if the sizes of other dims differ.
#[track_caller]
pub fn hstack(tensors: &[&Tensor]) -> Result<Tensor> {
    HSTACK.call((&tensor_list(tensors)[..],))
}

/// Joins tensors along dim 0. A number or a line counts as one row. Dtypes are promoted.
///
/// # Errors
/// Same as [`hstack`].
#[track_caller]
pub fn vstack(tensors: &[&Tensor]) -> Result<Tensor> {
    VSTACK.call((&tensor_list(tensors)[..],))
}

/// Joins tensors along dim 2. A line counts as one row of layers, a matrix as one layer. Dtypes are promoted.
///
/// # Errors
/// Same as [`hstack`].
#[track_caller]
pub fn dstack(tensors: &[&Tensor]) -> Result<Tensor> {
    DSTACK.call((&tensor_list(tensors)[..],))
}

/// Joins tensors along dim 1, where a line counts as one column. Dtypes are promoted.
///
/// # Errors
/// Same as [`hstack`].
#[track_caller]
pub fn column_stack(tensors: &[&Tensor]) -> Result<Tensor> {
    COLUMN_STACK.call((&tensor_list(tensors)[..],))
}

/// Sequences `(L, …)` of different lengths as one batch `(longest, N, …)`, or `(N, longest, …)` if `batch_first`.
/// `value` stands after the ends of shorter ones.
///
/// # Errors
/// If there are no sequences, or if their other sizes differ.
#[track_caller]
pub fn pad_sequence(sequences: &[&Tensor], batch_first: bool, value: f64) -> Result<Tensor> {
    PAD_SEQUENCE.call((&tensor_list(sequences)[..], batch_first, value, "right"))
}

/// Pieces and dims, counted as NumPy counts them.
impl Tensor {
    /// With at least one dim: a number is a line of one element. A view.
    ///
    /// # Errors
    /// None on ordinary tensors; a kernel from outside may fail.
    #[track_caller]
    pub fn atleast_1d(&self) -> Result<Tensor> {
        ATLEAST_1D.call((self,))
    }

    /// With at least two dims: a line is one row. A view.
    ///
    /// # Errors
    /// Same as [`Tensor::atleast_1d`].
    #[track_caller]
    pub fn atleast_2d(&self) -> Result<Tensor> {
        ATLEAST_2D.call((self,))
    }

    /// With at least three dims: a matrix is one layer, at the end. A view.
    ///
    /// # Errors
    /// Same as [`Tensor::atleast_1d`].
    #[track_caller]
    pub fn atleast_3d(&self) -> Result<Tensor> {
        ATLEAST_3D.call((self,))
    }

    /// `sections` equal pieces along dim 1, or along the only dim of a line. The pieces are views.
    ///
    /// # Errors
    /// If the tensor has no dims, or if the size is not divisible by `sections`.
    #[track_caller]
    pub fn hsplit(&self, sections: usize) -> Result<Vec<Tensor>> {
        HSPLIT.call((self, int(sections)))
    }

    /// `sections` equal pieces along dim 0. The pieces are views.
    ///
    /// # Errors
    /// If the tensor has fewer than two dims, or if the size is not divisible by `sections`.
    #[track_caller]
    pub fn vsplit(&self, sections: usize) -> Result<Vec<Tensor>> {
        VSPLIT.call((self, int(sections)))
    }

    /// `sections` equal pieces along dim 2. The pieces are views.
    ///
    /// # Errors
    /// If the tensor has fewer than three dims, or if the size is not divisible by `sections`.
    #[track_caller]
    pub fn dsplit(&self, sections: usize) -> Result<Vec<Tensor>> {
        DSPLIT.call((self, int(sections)))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    at_least(library)?;
    splits(library)?;
    library
        .composite(&HSTACK, |tensors: &[Tensor]| {
            let lifted = each("hstack", tensors, |x| lifted(x, 1))?;
            let dim = if lifted.first().is_some_and(|x| x.dim() == 1) { 0 } else { 1 };
            joined(&lifted, dim)
        })?
        .composite(&VSTACK, |tensors: &[Tensor]| joined(&each("vstack", tensors, |x| lifted(x, 2))?, 0))?
        .composite(&DSTACK, |tensors: &[Tensor]| joined(&each("dstack", tensors, |x| lifted(x, 3))?, 2))?
        .composite(&COLUMN_STACK, |tensors: &[Tensor]| {
            let column = |x: &Tensor| if x.dim() < 2 { x.reshape([-1, 1]) } else { Ok(x.clone()) };
            joined(&each("column_stack", tensors, column)?, 1)
        })?
        .def_kernel("unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]", |x: &Tensor, n: i64, dim: i64| {
            x.chunk(count("unsafe_chunk", n)?, dim)
        })?
        .composite(&PAD_SEQUENCE, padded_batch)?;
    Ok(())
}

/// A tensor of at least that many dims, and each of several.
fn at_least(library: &mut Library) -> Result<()> {
    for (form, dims) in [(&ATLEAST_1D, 1), (&ATLEAST_2D, 2), (&ATLEAST_3D, 3)] {
        library.composite(form, move |x: &Tensor| lifted(x, dims))?.def_kernel(
            &format!("{}.Sequence(Tensor[] tensors) -> Tensor[]", form.name()),
            move |tensors: &[Tensor]| tensors.iter().map(|x| lifted(x, dims)).collect::<Result<Vec<_>>>(),
        )?;
    }
    Ok(())
}

fn splits(library: &mut Library) -> Result<()> {
    for (form, dim) in [(&HSPLIT, 1), (&VSPLIT, 0), (&DSPLIT, 2)] {
        let name = form.name();
        library
            .composite(form, move |x: &Tensor, sections: i64| {
                let dim = dim_of(name, x, dim)?;
                let size = x.sizes()[dim as usize] as i64;
                if sections < 1 || size % sections != 0 {
                    let what = format!("dim {dim} of shape {:?} in {sections} sections", x.sizes());
                    return Err(Error::shape(name, what, "the size must be divisible by the number of sections"));
                }
                x.tensor_split(sections as usize, dim)
            })?
            .def_kernel(
                &format!("{name}.array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]"),
                move |x: &Tensor, indices: &[i64]| x.tensor_split_at(indices, dim_of(name, x, dim)?),
            )?;
    }
    Ok(())
}

/// The dim that is split: a line has no columns, and is split itself.
fn dim_of(op: &str, x: &Tensor, dim: i64) -> Result<i64> {
    let needed = if dim == 1 { 1 } else { dim + 1 };
    if (x.dim() as i64) < needed.max(if dim == 0 { 2 } else { 1 }) {
        let what = format!("shape {:?} has {} dims", x.sizes(), x.dim());
        return Err(Error::shape(op, what, "it needs one for hsplit, two for vsplit and three for dsplit"));
    }
    Ok(if dim == 1 && x.dim() == 1 { 0 } else { dim })
}

/// With dims of size 1: a number is a line of one, a line one row, and a matrix one layer at the end.
fn lifted(x: &Tensor, dims: usize) -> Result<Tensor> {
    match (dims, x.dim()) {
        (1, 0) => x.reshape([1]),
        (2, 0) => x.reshape([1, 1]),
        (2, 1) => x.unsqueeze(0),
        (3, 0) => x.reshape([1, 1, 1]),
        (3, 1) => x.unsqueeze(0)?.unsqueeze(-1),
        (3, 2) => x.unsqueeze(-1),
        (_, _) => Ok(x.clone()),
    }
}

fn each(op: &str, tensors: &[Tensor], lift: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    if tensors.is_empty() {
        return Err(Error::argument(op, "expected a non-empty list of tensors"));
    }
    tensors.iter().map(lift).collect()
}

fn joined(tensors: &[Tensor], dim: i64) -> Result<Tensor> {
    cat(&tensors.iter().collect::<Vec<_>>(), dim)
}

/// Sequences `(L, …)` of different lengths as one batch, `(longest, N, …)` or `(N, longest, …)`. The rest is a number.
fn padded_batch(sequences: &[Tensor], batch_first: bool, value: f64, side: &str) -> Result<Tensor> {
    let op = "pad_sequence";
    let is_left = match side {
        "left" => true,
        "right" => false,
        other => return Err(Error::argument(op, format!("padding_side is {other:?}; use \"left\" or \"right\""))),
    };
    let rest = |x: &Tensor| x.sizes().get(1..).map(<[usize]>::to_vec);
    let fits = |x: &Tensor| x.dim() > 0 && rest(x) == sequences.first().and_then(rest);
    if let Some(x) = sequences.iter().find(|x| !fits(x)) {
        let what = format!("a sequence has shape {:?}", x.sizes());
        return Err(Error::shape(op, what, "all need at least one dim, and the same sizes after the first"));
    }
    let longest = sequences.iter().map(|x| x.sizes()[0]).max().unwrap_or(0);
    let padded = each(op, sequences, |x| {
        let missing = (longest - x.sizes()[0]) as i64;
        // Pairs of before and after, from the last dim on.
        let mut pads = vec![0; 2 * x.dim() - 2];
        pads.extend(if is_left { [missing, 0] } else { [0, missing] });
        x.constant_pad_nd(&pads[..], value)
    })?;
    let along = i64::from(!batch_first);
    let lifted = padded.iter().map(|x| x.unsqueeze(along)).collect::<Result<Vec<_>>>()?;
    joined(&lifted, along)
}
