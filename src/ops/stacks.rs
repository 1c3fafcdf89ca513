//! Tensors that are stacked and split along rows, columns and layers, as NumPy does: lines count as rows or columns.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ops::arguments::count;
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    at_least(library)?;
    splits(library)?;
    library
        .def_kernel("hstack(Tensor[] tensors) -> Tensor", |tensors: &[Tensor]| {
            let lifted = each("hstack", tensors, |x| lifted(x, 1))?;
            let dim = if lifted.first().is_some_and(|x| x.dim() == 1) { 0 } else { 1 };
            joined(&lifted, dim)
        })?
        .def_kernel("vstack(Tensor[] tensors) -> Tensor", |tensors: &[Tensor]| {
            joined(&each("vstack", tensors, |x| lifted(x, 2))?, 0)
        })?
        .def_kernel("dstack(Tensor[] tensors) -> Tensor", |tensors: &[Tensor]| {
            joined(&each("dstack", tensors, |x| lifted(x, 3))?, 2)
        })?
        .def_kernel("column_stack(Tensor[] tensors) -> Tensor", |tensors: &[Tensor]| {
            let column = |x: &Tensor| if x.dim() < 2 { x.reshape([-1, 1]) } else { Ok(x.clone()) };
            joined(&each("column_stack", tensors, column)?, 1)
        })?
        .def_kernel("unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]", |x: &Tensor, n: i64, dim: i64| {
            x.chunk(count("unsafe_chunk", n)?, dim)
        })?
        .def_kernel(
            "pad_sequence(Tensor[] sequences, bool batch_first=False, float padding_value=0., str \
             padding_side=\"right\") -> Tensor",
            pad_sequence,
        )?;
    Ok(())
}

/// A tensor of at least that many dims, and each of several.
fn at_least(library: &mut Library) -> Result<()> {
    for (name, dims) in [("atleast_1d", 1), ("atleast_2d", 2), ("atleast_3d", 3)] {
        library
            .def_kernel(&format!("{name}(Tensor self) -> Tensor"), move |x: &Tensor| lifted(x, dims))?
            .def_kernel(&format!("{name}.Sequence(Tensor[] tensors) -> Tensor[]"), move |tensors: &[Tensor]| {
                tensors.iter().map(|x| lifted(x, dims)).collect::<Result<Vec<_>>>()
            })?;
    }
    Ok(())
}

fn splits(library: &mut Library) -> Result<()> {
    for (name, dim) in [("hsplit", 1), ("vsplit", 0), ("dsplit", 2)] {
        library
            .def_kernel(
                &format!("{name}.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]"),
                move |x: &Tensor, sections: i64| {
                    let dim = dim_of(name, x, dim)?;
                    let size = x.sizes()[dim as usize] as i64;
                    if sections < 1 || size % sections != 0 {
                        let what = format!("dim {dim} of shape {:?} in {sections} sections", x.sizes());
                        return Err(Error::shape(name, what, "the size must be divisible by the number of sections"));
                    }
                    x.tensor_split(sections as usize, dim)
                },
            )?
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
fn pad_sequence(sequences: &[Tensor], batch_first: bool, value: f64, side: &str) -> Result<Tensor> {
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
