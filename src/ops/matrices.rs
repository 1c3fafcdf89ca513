//! Products and parts of matrices and vectors that are compositions: Kronecker and cross products, traces, triangles,
//! distances of points.

use crate::device::{Device, roomy};
use crate::dispatch::library::Library;
use crate::dispatch::value::TensorLayout;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ir::shape::{broadcast, checked_numel, normalize_dim};
use crate::ops::arguments::{check_storage, int};
use crate::ops::composite::Composite;
use crate::ops::factories::full_on;
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;

static KRON: Composite = Composite::new("kron(Tensor self, Tensor other) -> Tensor");
static LINALG_CROSS: Composite = Composite::new("linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor");
static CROSS: Composite = Composite::new("cross(Tensor self, Tensor other, int? dim=None) -> Tensor");
static TRACE: Composite = Composite::new("trace(Tensor self) -> Tensor");
static PDIST: Composite = Composite::new("pdist(Tensor self, float p=2.) -> Tensor");
static CDIST: Composite = Composite::new("cdist(Tensor x1, Tensor x2, float p=2, int? compute_mode=None) -> Tensor");
// Of the lower and of the upper triangle.
static INDICES: [Composite; 2] = [
    Composite::new(
        "tril_indices(int row, int col, int offset=0, *, ScalarType? dtype=long, Layout? layout=None, Device? \
         device=None, bool? pin_memory=None) -> Tensor",
    ),
    Composite::new(
        "triu_indices(int row, int col, int offset=0, *, ScalarType? dtype=long, Layout? layout=None, Device? \
         device=None, bool? pin_memory=None) -> Tensor",
    ),
];

/// Matrices and vectors.
impl Tensor {
    /// The Kronecker product: every element of `self` times the whole of `other`. Sizes are multiplied dim by dim, and
    /// missing dims in front count as 1. Dtypes are promoted.
    ///
    /// # Errors
    /// If there are too many elements.
    #[track_caller]
    pub fn kron(&self, other: &Tensor) -> Result<Tensor> {
        KRON.call((self, other))
    }

    /// The cross product of vectors of three elements along `dim`. Sizes are broadcast, dtypes promoted.
    ///
    /// # Errors
    /// If the ranks differ, if the sizes do not broadcast, or if the dim does not have three elements.
    #[track_caller]
    pub fn cross(&self, other: &Tensor, dim: i64) -> Result<Tensor> {
        CROSS.call((self, other, Some(dim)))
    }

    /// The same as [`Tensor::cross`], under the name of NumPy's and PyTorch's `linalg`.
    ///
    /// # Errors
    /// Same as [`Tensor::cross`].
    #[track_caller]
    pub fn linalg_cross(&self, other: &Tensor, dim: i64) -> Result<Tensor> {
        LINALG_CROSS.call((self, other, dim))
    }

    /// The sum of the diagonal of a matrix. Integers are summed in i64; floats keep their dtype.
    ///
    /// # Errors
    /// If there are not two dims, or if the dtype is bool.
    #[track_caller]
    pub fn trace(&self) -> Result<Tensor> {
        TRACE.call((self,))
    }

    /// The distances of order `p` between each row of `self` and each row of `other`. Dims before the last two are
    /// broadcast. Where a distance is 0 its gradient is 0. With `p` = 2 and more than 25 rows it is a matrix product,
    /// which is fast, and less exact for points that are close.
    ///
    /// # Errors
    /// If the dtype is not f32 or f64, if there are fewer than two dims, if the rows differ in size, or if `p` is
    /// negative.
    #[track_caller]
    pub fn cdist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        CDIST.call((self, other, p, None::<i64>))
    }

    /// The distances of order `p` between each two rows of a matrix, the earlier row first: `n (n - 1) / 2` for `n`
    /// rows.
    ///
    /// # Errors
    /// If the dtype is not floating, if there are not two dims, or if `p` is negative.
    #[track_caller]
    pub fn pdist(&self, p: f64) -> Result<Tensor> {
        PDIST.call((self, p))
    }

    /// The indices (i64) of the lower triangle of a `rows` by `columns` matrix, from the diagonal `offset` down: row
    /// numbers, then column numbers, in row-major order.
    ///
    /// # Errors
    /// If there are too many elements.
    #[track_caller]
    pub fn tril_indices(rows: usize, columns: usize, offset: i64) -> Result<Tensor> {
        INDICES[0].call((int(rows), int(columns), offset, Some(DType::I64), NO_LAYOUT, NO_DEVICE, UNPINNED))
    }

    /// The indices (i64) of the upper triangle, from the diagonal `offset` up. See [`Tensor::tril_indices`].
    ///
    /// # Errors
    /// If there are too many elements.
    #[track_caller]
    pub fn triu_indices(rows: usize, columns: usize, offset: i64) -> Result<Tensor> {
        INDICES[1].call((int(rows), int(columns), offset, Some(DType::I64), NO_LAYOUT, NO_DEVICE, UNPINNED))
    }
}

const NO_LAYOUT: Option<TensorLayout> = None;
const NO_DEVICE: Option<Device> = None;
const UNPINNED: Option<bool> = None;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&KRON, kron)?
        .composite(&LINALG_CROSS, |x: &Tensor, other: &Tensor, dim: i64| cross("linalg_cross", x, other, dim))?
        .composite(&CROSS, |x: &Tensor, other: &Tensor, dim: Option<i64>| {
            let first_of_3 = || x.sizes().iter().position(|&size| size == 3).map(|dim| dim as i64);
            let Some(dim) = dim.or_else(first_of_3) else {
                let what = format!("no dimension of size 3 in input of shape {:?}", x.sizes());
                return Err(Error::shape("cross", what, "vectors must have three elements"));
            };
            cross("cross", x, other, dim)
        })?
        .composite(&TRACE, trace)?
        .composite(&CDIST, cdist)?
        .def_kernel("_cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor", cdist)?
        .composite(&PDIST, |x: &Tensor, p: f64| pdist("pdist", x, p))?
        .def_kernel("_pdist_forward(Tensor self, float p=2.) -> Tensor", |x: &Tensor, p: f64| {
            pdist("_pdist_forward", x, p)
        })?;
    for (triangle, composite) in [Triangle::Lower, Triangle::Upper].into_iter().zip(&INDICES) {
        library.composite(
            composite,
            move |rows: i64,
                  columns: i64,
                  offset: i64,
                  dtype: Option<DType>,
                  layout: Option<TensorLayout>,
                  device: Option<Device>,
                  pin_memory: Option<bool>| {
                check_storage(triangle.op(), layout, pin_memory)?;
                triangle.indices(rows, columns, offset, dtype.unwrap_or(DType::I64), device.unwrap_or(Device::CPU))
            },
        )?;
    }
    Ok(())
}

fn kron(x: &Tensor, other: &Tensor) -> Result<Tensor> {
    let rank = x.dim().max(other.dim());
    let padded = |x: &Tensor| [&vec![1; rank - x.dim()], x.sizes()].concat();
    let (left, right) = (padded(x), padded(other));
    let (mut spread, mut dense, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    for (&left, &right) in left.iter().zip(&right) {
        spread.extend([left, 1]);
        dense.extend([1, right]);
        sizes.push(left.saturating_mul(right));
    }
    checked_numel("kron", &sizes, x.dtype().size().max(other.dtype().size()))?;
    x.reshape(&spread[..])?.mul(&other.reshape(&dense[..])?)?.reshape(&sizes[..])
}

fn cross(op: &str, x: &Tensor, other: &Tensor, dim: i64) -> Result<Tensor> {
    if x.dim() != other.dim() {
        let what =
            format!("inputs must have the same number of dimensions, but have {:?} and {:?}", x.sizes(), other.sizes());
        return Err(Error::shape(op, what, "add dims of size 1"));
    }
    let sizes = broadcast(op, x.sizes(), other.sizes())?;
    let at = normalize_dim(op, dim, sizes.len())?;
    if [x, other].iter().any(|x| x.sizes().get(at) != Some(&3)) {
        let what = format!(
            "inputs dimension {dim} must have length 3, but shapes are {:?} and {:?}",
            x.sizes(),
            other.sizes()
        );
        return Err(Error::shape(op, what, "vectors must have three elements"));
    }
    // Component by component, which one kernel does. Rotated vectors would be copied.
    let parts = |x: &Tensor| -> Result<[Tensor; 3]> {
        let part = |n: i64| x.slice(at as i64, n, n + 1, 1);
        Ok([part(0)?, part(1)?, part(2)?])
    };
    let (a, b) = (parts(x)?, parts(other)?);
    let component = |n: usize| {
        let (next, last) = ((n + 1) % 3, (n + 2) % 3);
        a[next].mul(&b[last])?.sub(&a[last].mul(&b[next])?)
    };
    cat(&[&component(0)?, &component(1)?, &component(2)?], at as i64)?.contiguous()
}

fn trace(x: &Tensor) -> Result<Tensor> {
    if x.dim() != 2 {
        let what = format!("expected a matrix, but got a tensor of shape {:?}", x.sizes());
        return Err(Error::shape("trace", what, "take one matrix"));
    }
    if x.dtype() == DType::Bool {
        return Err(Error::unsupported("trace", x.dtype(), "numbers", "convert with to_dtype(DType::I64) first"));
    }
    x.diagonal(0, 0, 1)?.sum((), false)
}

fn cdist(x: &Tensor, other: &Tensor, p: f64, mode: Option<i64>) -> Result<Tensor> {
    let op = "cdist";
    /// More rows are multiplied as matrices.
    const FEW: usize = 25;
    for x in [x, other] {
        if !matches!(x.dtype(), DType::F32 | DType::F64) {
            return Err(Error::dtype(op, x.dtype(), "f32 or f64", "convert with to_dtype(DType::F32) first"));
        }
    }
    let refuse = |what: String, hint: &str| Err(Error::shape(op, what, hint));
    if x.dim() < 2 || other.dim() < 2 {
        let what = format!("cdist only supports at least 2D tensors, but got {:?} and {:?}", x.sizes(), other.sizes());
        return refuse(what, "add dims of size 1");
    }
    let (left, right) = (&x.sizes()[x.dim() - 2..], &other.sizes()[other.dim() - 2..]);
    if left[1] != right[1] {
        let what = format!("points have {} and {} coordinates", left[1], right[1]);
        return refuse(what, "both must have as many columns");
    }
    // NaN fails too.
    let is_order = p >= 0.0;
    if !is_order {
        return Err(Error::argument(op, format!("cdist only supports non-negative p values, but p is {p}")));
    }
    let by_product = match mode {
        None | Some(0) => left[0] > FEW || right[0] > FEW,
        Some(1) => true,
        Some(2) => false,
        Some(other) => return Err(Error::argument(op, format!("{other} is not a valid value for compute_mode"))),
    };
    if p == 2.0 && by_product {
        return euclidean(x, other);
    }
    x.unsqueeze(-2)?.sub(&other.unsqueeze(-3)?)?.norm(p, -1, false)
}

/// The distances between all pairs of rows: of the first row to each later one, then of the second row, and so on.
fn pdist(op: &str, x: &Tensor, p: f64) -> Result<Tensor> {
    if x.dim() != 2 {
        let what = format!("pdist only supports 2D tensors, got {:?}", x.sizes());
        return Err(Error::shape(op, what, "pass one point per row"));
    }
    // NaN fails too.
    let is_order = p >= 0.0;
    if !is_order {
        return Err(Error::argument(op, format!("pdist only supports non-negative p values, but p is {p}")));
    }
    let rows = x.sizes()[0];
    let pairs = Tensor::triu_indices(rows, rows, 1)?.to_device(x.device())?;
    let [left, right] = [0, 1].map(|side| x.index_select(0, &pairs.select(0, side)?));
    left?.sub(&right?)?.norm(p, -1, false)
}

/// Square roots of `|x|² - 2 x·y + |y|²`, by one matrix product.
fn euclidean(x: &Tensor, other: &Tensor) -> Result<Tensor> {
    let squares = |x: &Tensor| x.square()?.sum(-1, true);
    let ones = |x: &Tensor| {
        let sizes = [&x.sizes()[..x.dim() - 1], &[1]].concat();
        full_on(x.device(), &sizes, 1.into(), Some(x.dtype()))
    };
    let left = cat(&[&x.mul(-2)?, &squares(x)?, &ones(x)?], -1)?;
    let right = cat(&[other, &ones(other)?, &squares(other)?], -1)?;
    let squared = left.matmul(&right.transpose(-1, -2)?)?;
    let is_apart = squared.gt(0.0)?;
    // Masked before the root, whose slope at 0 is infinite. A NaN stays.
    let roots = is_apart.logical_or(&squared.isnan()?)?.where_(&squared, 1.0)?.sqrt()?;
    squared.le(0.0)?.where_(0.0, &roots)
}

#[derive(Clone, Copy)]
enum Triangle {
    Lower,
    Upper,
}

impl Triangle {
    fn op(self) -> &'static str {
        match self {
            Triangle::Lower => "tril_indices",
            Triangle::Upper => "triu_indices",
        }
    }

    /// The columns of a row that belong to it.
    fn columns(self, row: usize, columns: usize, offset: i64) -> std::ops::Range<usize> {
        let bound = |number: i64| number.clamp(0, int(columns)) as usize;
        match self {
            Triangle::Lower => 0..bound(int(row).saturating_add(offset).saturating_add(1)),
            Triangle::Upper => bound(int(row).saturating_add(offset))..columns,
        }
    }

    /// The rows that have elements in it, if there are columns.
    fn rows(self, rows: usize, columns: usize, offset: i64) -> std::ops::Range<usize> {
        let bound = |number: i64| number.clamp(0, int(rows)) as usize;
        match self {
            Triangle::Lower => bound(offset.saturating_neg())..rows,
            Triangle::Upper => 0..bound(int(columns).saturating_sub(offset)),
        }
    }

    /// How many elements it has. The sizes fit [`checked_numel`], so nothing overflows.
    fn count(self, rows: usize, columns: usize, offset: i64) -> usize {
        let (rows, columns) = (rows as i128, columns as i128);
        // The sum of `row + first` over all rows, with summands from 0 to `columns`.
        let area = |first: i128| {
            let growing = (-first).clamp(0, rows);
            let full = (columns - first).clamp(growing, rows);
            (growing + full - 1 + 2 * first) * (full - growing) / 2 + (rows - full) * columns
        };
        let count = match self {
            Triangle::Lower => area(i128::from(offset) + 1),
            Triangle::Upper => rows * columns - area(offset.into()),
        };
        count as usize
    }

    fn indices(self, rows: i64, columns: i64, offset: i64, dtype: DType, device: Device) -> Result<Tensor> {
        let op = self.op();
        let size = |number: i64| {
            usize::try_from(number)
                .map_err(|_| Error::argument(op, format!("sizes are {rows} and {columns}; none may be negative")))
        };
        let (rows, columns) = (size(rows)?, size(columns)?);
        if !matches!(dtype, DType::I64 | DType::I32) {
            return Err(Error::unsupported(op, dtype, "i64 or i32", "indices are whole numbers"));
        }
        checked_numel(op, &[2, rows, columns], dtype.size())?;
        let count = self.count(rows, columns, offset);
        let mut numbers: Vec<i64> = roomy(2 * count)?;
        if count > 0 {
            let of_row = |row| self.columns(row, columns, offset).map(move |column| (row, column));
            let all = || self.rows(rows, columns, offset).flat_map(of_row);
            numbers.extend(all().map(|(row, _)| int(row)));
            numbers.extend(all().map(|(_, column)| int(column)));
        }
        // A trace keeps the numbers, and each call of its program returns a tensor of its own.
        Tensor::from_slice(&numbers, &[2, count])?.copy()?.to_dtype(dtype)?.to_device(device)
    }
}
