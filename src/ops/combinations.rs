//! Tensors that are arranged from others: products and combinations of lines, powers of a line, blocks along a
//! diagonal.

use crate::device::{Device, roomy};
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ir::shape::checked_numel;
use crate::ops::arguments::{count, int};
use crate::ops::factories::{full_on, range_on};
use crate::ops::joins::{cat, stack};
use crate::ops::reshaping::{Indexing, meshgrid};
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("block_diag(Tensor[] tensors) -> Tensor", block_diag)?
        .def_kernel("cartesian_prod(Tensor[] tensors) -> Tensor", cartesian_prod)?
        .def_kernel("combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor", combinations)?
        .def_kernel(
            "vander(Tensor x, int? N=None, bool increasing=False) -> Tensor",
            |x: &Tensor, columns: Option<i64>, is_increasing: bool| match x.dim() {
                1 => powers("vander", x, columns, is_increasing),
                _other => Err(Error::shape("vander", format!("shape {:?}", x.sizes()), "a line is needed")),
            },
        )?
        .def_kernel("linalg_vander(Tensor x, *, SymInt? N=None) -> Tensor", |x: &Tensor, columns: Option<i64>| {
            powers("linalg_vander", x, columns, true)
        })?;
    Ok(())
}

/// The matrices along the diagonal of a matrix of zeros. A number is a matrix of one element, and a line one row.
fn block_diag(tensors: &[Tensor]) -> Result<Tensor> {
    let op = "block_diag";
    if let Some(x) = tensors.iter().find(|x| x.dim() > 2) {
        return Err(Error::shape(op, format!("shape {:?}", x.sizes()), "at most 2 dims are possible"));
    }
    if tensors.is_empty() {
        return full_on(Device::CPU, &[1, 0], 0.into(), None);
    }
    let blocks: Vec<Tensor> =
        tensors.iter().map(|x| if x.dim() == 2 { Ok(x.clone()) } else { x.reshape([1, -1]) }).collect::<Result<_>>()?;
    let columns: usize = blocks.iter().map(|block| block.sizes()[1]).sum();
    let mut before = 0;
    let mut rows = Vec::with_capacity(blocks.len());
    for block in &blocks {
        let [height, width] = [block.sizes()[0], block.sizes()[1]];
        let zeros = |width: usize| full_on(block.device(), &[height, width], 0.into(), Some(block.dtype()));
        rows.push(cat(&[&zeros(before)?, block, &zeros(columns - before - width)?], 1)?);
        before += width;
    }
    // Dtypes are promoted.
    cat(&rows.iter().collect::<Vec<_>>(), 0)
}

/// Every choice of one element per line, a row each; the last line varies fastest.
fn cartesian_prod(tensors: &[Tensor]) -> Result<Tensor> {
    let op = "cartesian_prod";
    if let Some(x) = tensors.iter().find(|x| x.dim() != 1) {
        return Err(Error::shape(op, format!("shape {:?}", x.sizes()), "lines are needed"));
    }
    match tensors {
        [] => Err(Error::argument(op, "there must be at least one tensor")),
        [one] => Ok(one.clone()),
        many => {
            let grids = meshgrid(&many.iter().collect::<Vec<_>>(), Indexing::Ij)?;
            let columns = grids.iter().map(|grid| grid.reshape([-1])).collect::<Result<Vec<_>>>()?;
            stack(&columns.iter().collect::<Vec<_>>(), 1)
        }
    }
}

/// Every choice of `r` elements of a line in its order, a row each, in lexicographic order of places.
fn combinations(x: &Tensor, r: i64, with_replacement: bool) -> Result<Tensor> {
    let op = "combinations";
    if x.dim() != 1 {
        return Err(Error::shape(op, format!("shape {:?}", x.sizes()), "a line is needed"));
    }
    let (n, r) = (x.sizes()[0], count(op, r)?);
    if r == 0 {
        return full_on(x.device(), &[0], 0.into(), Some(x.dtype()));
    }
    // The number of choices: a binomial coefficient, checked before anything is made.
    checked_numel(op, &[n, r], size_of::<i64>())?;
    let from = if with_replacement { n + r - usize::from(n > 0) } else { n };
    let mut rows: usize = usize::from(from >= r && n > 0);
    // As many are chosen as are left out, so the smaller number of factors will do.
    for k in 0..r.min(from.saturating_sub(r)) {
        // Exact at every step: a product of consecutive numbers is divisible.
        rows = checked_numel(op, &[rows, from - k], 1)? / (k + 1);
    }
    checked_numel(op, &[rows, r], size_of::<i64>())?;
    if rows == 0 {
        // A part of the line, so that it has its history.
        return x.narrow(0, 0, 0)?.unsqueeze(1)?.expand(&[0, r][..])?.copy();
    }
    let mut places: Vec<i64> = roomy(rows * r)?;
    let gap = usize::from(!with_replacement);
    let mut choice: Vec<usize> = (0..r).map(|at| at * gap).collect();
    for _ in 0..rows {
        places.extend(choice.iter().map(|&place| int(place)));
        // The last place that can still move, and those after it follow.
        let movable = (0..r).rev().find(|&at| choice[at] + 1 + (r - 1 - at) * gap < n);
        let Some(at) = movable else { break };
        choice[at] += 1;
        for later in at + 1..r {
            choice[later] = choice[later - 1] + gap;
        }
    }
    let index = Tensor::from_slice(&places, &[rows * r])?.copy()?.to_device(x.device())?;
    x.index_select(0, &index)?.view(&[rows, r][..])
}

/// The powers of each element: from 0 up, or down to 0.
fn powers(op: &str, x: &Tensor, columns: Option<i64>, is_increasing: bool) -> Result<Tensor> {
    let Some(&length) = x.sizes().last() else {
        return Err(Error::shape(op, "a number has no powers along a line", "a line is needed"));
    };
    let columns = columns.map_or(Ok(length), |columns| count(op, columns))?;
    let exponents = range_on(x.device(), 0, int(columns), Some(DType::I64))?;
    let exponents = if is_increasing { exponents } else { exponents.flip([0])? };
    let x = if x.dtype().is_float() { x.clone() } else { x.to_dtype(DType::I64)? };
    x.unsqueeze(-1)?.pow(&exponents)
}
