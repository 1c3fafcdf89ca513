//! Sums of products over shared dims: of tensors over any dims, of three operands, of chains of matrices, and products
//! that are added to a tensor.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::Scalar;
use crate::ir::shape::normalize_dim;
use crate::ops::arguments::int_list;
use crate::ops::composite::Composite;
use crate::ops::dims::Dims;
use crate::ops::einsum::einsum;
use crate::tensor::handle::Tensor;

static TENSORDOT: Composite =
    Composite::new("tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor");
static ADDR: Composite =
    Composite::new("addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor");

/// Sums of products over chosen dims.
impl Tensor {
    /// The sums of products over pairs of dims: `dims` of this tensor and `other_dims` of the other, in order. The
    /// result has the other dims of this tensor, then those of the other.
    ///
    /// # Errors
    /// If the lists differ in length, if a dim is out of range, if a pair differs in size and neither is 1, or if the
    /// dtypes differ.
    #[track_caller]
    pub fn tensordot(&self, other: &Tensor, dims: impl Into<Dims>, other_dims: impl Into<Dims>) -> Result<Tensor> {
        TENSORDOT.call((self, other, dims.into().as_slice(), other_dims.into().as_slice()))
    }

    /// `beta * self + alpha * (left outer right)`. If `beta` is 0, the tensor does not count, whatever it holds.
    ///
    /// # Errors
    /// If `left` or `right` is no line, or if the tensor does not broadcast to their product.
    #[track_caller]
    pub fn addr(
        &self,
        left: &Tensor,
        right: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        ADDR.call((self, left, right, beta.into(), alpha.into()))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&TENSORDOT, tensordot)?
        .def_kernel("bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor", bilinear)?
        .def_kernel(
            "_trilinear(Tensor i1, Tensor i2, Tensor i3, int[] expand1, int[] expand2, int[] expand3, int[] sumdim, \
             int unroll_dim=1) -> Tensor",
            trilinear,
        )?
        .def_kernel("linalg_multi_dot(Tensor[] tensors) -> Tensor", |tensors: &[Tensor]| {
            chain("linalg_multi_dot", tensors)
        })?
        .def_kernel("chain_matmul(Tensor[] matrices) -> Tensor", |tensors: &[Tensor]| chain("chain_matmul", tensors))?
        .def_kernel(
            "addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
            addbmm,
        )?
        .composite(&ADDR, |x: &Tensor, left: &Tensor, right: &Tensor, beta: Scalar, alpha: Scalar| {
            plus(x, &left.outer(right)?, beta, alpha)
        })?;
    Ok(())
}

/// `beta * x + alpha * y`, where `x` does not count, whatever it holds, if `beta` is 0.
fn plus(x: &Tensor, y: &Tensor, beta: Scalar, alpha: Scalar) -> Result<Tensor> {
    let is = |number: Scalar, value: f64| number.as_f64() == value;
    let y = if is(alpha, 1.0) { y.clone() } else { y.mul(alpha)? };
    match () {
        () if is(beta, 0.0) => Ok(y),
        () if is(beta, 1.0) => x.add(&y),
        () => x.mul(beta)?.add(&y),
    }
}

/// The sum of the products of a batch, which is one product of longer rows.
fn addbmm(x: &Tensor, left: &Tensor, right: &Tensor, beta: Scalar, alpha: Scalar) -> Result<Tensor> {
    let (&[batch, n, inner], &[other_batch, other_inner, m]) = (left.sizes(), right.sizes()) else {
        return Err(mismatch("addbmm", left, right, "both must have 3 dims"));
    };
    if batch != other_batch || inner != other_inner {
        return Err(mismatch("addbmm", left, right, "batches, and the inner sizes, must be equal"));
    }
    let rows = left.transpose(0, 1)?.reshape(&[n, batch * inner][..])?;
    plus(x, &rows.mm(&right.reshape(&[batch * inner, m][..])?)?, beta, alpha)
}

/// The sum over pairs of dims, as one matrix product. A pair may have size 1 on one side, where the other is summed.
fn tensordot(x: &Tensor, other: &Tensor, dims: &[i64], other_dims: &[i64]) -> Result<Tensor> {
    let op = "tensordot";
    if dims.len() != other_dims.len() {
        let what = format!("both dimension lists should have same length, but they are {dims:?} and {other_dims:?}");
        return Err(Error::argument(op, what));
    }
    let (mut left, mut right) = (x.clone(), other.clone());
    let (mut left_dims, mut right_dims) = (Vec::new(), Vec::new());
    for (&dim, &other_dim) in dims.iter().zip(other_dims) {
        let (a, b) = (normalize_dim(op, dim, x.dim())?, normalize_dim(op, other_dim, other.dim())?);
        let size = |x: &Tensor, dim: usize| {
            x.sizes().get(dim).copied().ok_or_else(|| Error::shape(op, "one tensor has no dims", "pass no dims for it"))
        };
        match (size(x, a)?, size(other, b)?) {
            (one, two) if one == two => {}
            (_, 1) => left = left.sum(a as i64, true)?,
            (1, _) => right = right.sum(b as i64, true)?,
            (_, _) => return Err(mismatch(op, x, other, &format!("dims {dim} and {other_dim} must have one size"))),
        }
        left_dims.push(a as i64);
        right_dims.push(b as i64);
    }
    let rest = |x: &Tensor, used: &[i64]| (0..x.dim() as i64).filter(|dim| !used.contains(dim)).collect::<Vec<_>>();
    let (left_rest, right_rest) = (rest(&left, &left_dims), rest(&right, &right_dims));
    let size = |x: &Tensor, dims: &[i64]| dims.iter().map(|&dim| x.sizes()[dim as usize]).collect::<Vec<usize>>();
    let inner: usize = size(&left, &left_dims).iter().product();
    let (rows, columns) = (size(&left, &left_rest), size(&right, &right_rest));
    let left = left.permute([&left_rest[..], &left_dims].concat())?;
    let left = left.reshape(&[rows.iter().product(), inner][..])?;
    let right = right.permute([&right_dims[..], &right_rest].concat())?;
    let right = right.reshape(&[inner, columns.iter().product()][..])?;
    left.mm(&right)?.reshape(&int_list(&[rows, columns].concat())[..])
}

/// `x1' W y + b` for each pair of rows, with one matrix `W` per output.
fn bilinear(x: &Tensor, y: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let fits = match (x.sizes(), y.sizes(), weight.sizes()) {
        ([rows @ .., a], [others @ .., b], [_, c, d]) => rows == others && a == c && b == d,
        (_, _, _) => false,
    };
    if !fits {
        let what = format!("inputs {:?} and {:?}, weight {:?}", x.sizes(), y.sizes(), weight.sizes());
        return Err(Error::shape("bilinear", what, "inputs (…, a) and (…, b) and a weight (out, a, b) are needed"));
    }
    let sums = einsum("...a,oab,...b->...o", &[x, weight, y])?;
    bias.map_or_else(|| Ok(sums.clone()), |bias| sums.add(bias))
}

/// The product of three operands that are expanded along dims of size 1, summed over dims. `unroll_dim` only says how
/// PyTorch cuts the work.
#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn trilinear(
    one: &Tensor,
    two: &Tensor,
    three: &Tensor,
    expand_one: &[i64],
    expand_two: &[i64],
    expand_three: &[i64],
    sums: &[i64],
    _unroll: i64,
) -> Result<Tensor> {
    let expanded = |x: &Tensor, dims: &[i64]| {
        let mut dims = dims.to_vec();
        dims.sort_unstable();
        dims.iter().try_fold(x.clone(), |x, &dim| x.unsqueeze(dim))
    };
    let product = expanded(one, expand_one)?.mul(expanded(two, expand_two)?)?.mul(expanded(three, expand_three)?)?;
    if sums.is_empty() { Ok(product) } else { product.sum(sums, false) }
}

/// A product of matrices in the order that multiplies fewest numbers (Cormen et al., 2009, section 15.2). The first and
/// the last may be lines.
fn chain(op: &str, tensors: &[Tensor]) -> Result<Tensor> {
    let [first, .., last] = tensors else {
        return match tensors {
            [one] if op == "chain_matmul" => Ok(one.clone()),
            _few => Err(Error::argument(op, format!("expected at least 2 tensors, but got {}", tensors.len()))),
        };
    };
    let (is_row, is_column) = (first.dim() == 1, last.dim() == 1);
    let mut matrices = tensors.to_vec();
    if is_row {
        matrices[0] = first.unsqueeze(0)?;
    }
    if is_column && let Some(last) = matrices.last_mut() {
        *last = last.unsqueeze(1)?;
    }
    let mut sizes = vec![matrices[0].sizes().first().copied().unwrap_or(0)];
    for matrix in &matrices {
        match matrix.sizes() {
            &[rows, columns] if sizes.last() == Some(&rows) => sizes.push(columns),
            other => {
                let what = format!("a matrix of shape {other:?} after one with {:?} columns", sizes.last());
                return Err(Error::shape(op, what, "matrices are needed whose inner sizes are equal"));
            }
        }
    }
    let product = multiplied(&matrices, &cuts(&sizes), 0, matrices.len() - 1)?;
    let product = if is_row { product.squeeze(0)? } else { product };
    if is_column { product.squeeze(-1) } else { Ok(product) }
}

/// Where each run of matrices is cut in two for the fewest multiplications.
fn cuts(sizes: &[usize]) -> Vec<Vec<usize>> {
    let n = sizes.len() - 1;
    let (mut costs, mut cuts) = (vec![vec![0f64; n]; n], vec![vec![0; n]; n]);
    for length in 1..n {
        for start in 0..n - length {
            let end = start + length;
            let cost = |cut: usize| {
                let joined = sizes[start] as f64 * sizes[cut + 1] as f64 * sizes[end + 1] as f64;
                costs[start][cut] + costs[cut + 1][end] + joined
            };
            let best = (start..end).min_by(|&a, &b| cost(a).total_cmp(&cost(b))).unwrap_or(start);
            let least = cost(best);
            costs[start][end] = least;
            cuts[start][end] = best;
        }
    }
    cuts
}

fn multiplied(matrices: &[Tensor], cuts: &[Vec<usize>], start: usize, end: usize) -> Result<Tensor> {
    if start == end {
        return Ok(matrices[start].clone());
    }
    let cut = cuts[start][end];
    multiplied(matrices, cuts, start, cut)?.mm(&multiplied(matrices, cuts, cut + 1, end)?)
}

fn mismatch(op: &str, left: &Tensor, right: &Tensor, hint: &str) -> Error {
    Error::shape(op, format!("shapes {:?} and {:?}", left.sizes(), right.sizes()), hint)
}
