//! LU factorizations, and what is solved by them.

use super::operands::{
    batch, first_marked, identity, mh, mt, need_matrices, need_same, need_square, part, shape, sizes, together, vector,
};
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::{Checked, LuPermutation, SolveTriangular};
use crate::ir::packed::Packed;
use crate::ir::shape::broadcast;
use crate::ir::{Attrs, DType, Op};
use crate::ops::arguments::int;
use crate::ops::composite::Composite;
use crate::ops::factories::{full_on, range_on};
use crate::tensor::handle::Tensor;

static LU_FACTOR: Composite =
    Composite::new("linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)");
static LU_FACTOR_EX: Composite = Composite::new(
    "linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots, Tensor \
     info)",
);
static LU: Composite = Composite::new("linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)");
static LU_SOLVE: Composite = Composite::new(
    "linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor",
);
static LU_UNPACK: Composite = Composite::new(
    "lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) -> (Tensor P, Tensor \
     L, Tensor U)",
);

/// LU factorizations with row pivots. f32 and f64, complex64 and complex128.
impl Tensor {
    /// The triangles of `A = P L U` in one matrix, and the pivots (i32): at step `i`, rows `i` and `pivots[i]` were
    /// swapped, counted from 1. The diagonal of `L` is ones and is not stored.
    ///
    /// # Errors
    /// If a pivot is zero: the error names the place in the batch.
    #[track_caller]
    pub fn linalg_lu_factor(&self) -> Result<(Tensor, Tensor)> {
        LU_FACTOR.call((self, true))
    }

    /// The same as [`Tensor::linalg_lu_factor`], and for each matrix the place (i32) of its first zero pivot, counted
    /// from 1, or 0.
    ///
    /// # Errors
    /// If the dtype is another, or if there are fewer than two dims.
    #[track_caller]
    pub fn linalg_lu_factor_ex(&self) -> Result<(Tensor, Tensor, Tensor)> {
        LU_FACTOR_EX.call((self, true, false))
    }

    /// The factors of `A = P L U`: a permutation, a lower triangle with ones on its diagonal, and an upper triangle.
    ///
    /// # Errors
    /// Same as [`Tensor::linalg_lu_factor_ex`].
    #[track_caller]
    pub fn linalg_lu(&self) -> Result<(Tensor, Tensor, Tensor)> {
        LU.call((self, true))
    }

    /// The solution of `A X = B`, where this tensor and `pivots` are what [`Tensor::linalg_lu_factor`] gives for `A`.
    ///
    /// # Errors
    /// If the shapes do not fit, if the dtypes differ, or if a pivot is out of range.
    #[track_caller]
    pub fn linalg_lu_solve(&self, pivots: &Tensor, b: &Tensor) -> Result<Tensor> {
        LU_SOLVE.call((self, pivots, b, true, false))
    }

    /// The factors of [`Tensor::linalg_lu`] from what [`Tensor::linalg_lu_factor`] gives.
    ///
    /// # Errors
    /// If the shapes do not fit, or if a pivot is out of range.
    #[track_caller]
    pub fn lu_unpack(&self, pivots: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
        LU_UNPACK.call((self, pivots, true, true))
    }
}

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&LU_FACTOR, |a: &Tensor, pivot: bool| {
            let op = "linalg.lu_factor";
            need_pivots(op, pivot)?;
            let (lu, pivots, _) = factored(op, a, true)?;
            Ok((lu, pivots))
        })?
        .composite(&LU_FACTOR_EX, |a: &Tensor, pivot: bool, check: bool| {
            let op = "linalg.lu_factor_ex";
            need_pivots(op, pivot)?;
            factored(op, a, check)
        })?
        .composite(&LU, |a: &Tensor, pivot: bool| {
            let op = "linalg.lu";
            need_pivots(op, pivot)?;
            let (lu, pivots, _) = factored(op, a, false)?;
            unpack(op, &lu, &pivots, true, true)
        })?
        .composite(&LU_SOLVE, |lu: &Tensor, pivots: &Tensor, b: &Tensor, left: bool, adjoint: bool| {
            solve_factored("linalg.lu_solve", lu, pivots, b, left, adjoint)
        })?
        .def_kernel(
            "lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor",
            |b: &Tensor, lu: &Tensor, pivots: &Tensor| solve_factored("lu_solve", lu, pivots, b, true, false),
        )?
        .composite(&LU_UNPACK, |lu: &Tensor, pivots: &Tensor, data: bool, permuted: bool| {
            unpack("lu_unpack", lu, pivots, data, permuted)
        })?;
    Ok(())
}

fn need_pivots(op: &str, pivot: bool) -> Result<()> {
    if pivot {
        return Ok(());
    }
    Err(Error::argument(op, "LU without pivoting is not implemented on the CPU; leave pivot out"))
}

/// The triangles in one matrix, the pivots, and the first zero pivot.
pub(super) fn factored(op: &str, a: &Tensor, check: bool) -> Result<(Tensor, Tensor, Tensor)> {
    need_matrices(op, a)?;
    let [rows, columns] = shape(a);
    let layout = Packed::lu(rows, columns);
    let packed = call(Op::LuFactors, &[a], &Attrs::from(Checked { check, pairs: false }))?;
    let lu = mt(&part(&packed, layout.part(0))?)?;
    let pivots = vector(&packed.detach()?, layout.part(1))?.to_dtype(DType::I32)?;
    let info = first_marked(&lu.detach()?.diagonal(0, -2, -1)?.eq(0)?)?;
    Ok((lu, pivots, info))
}

/// The order of rows: row `order[i]` of `A` is row `i` of `L U`.
fn order(op: &str, pivots: &Tensor, rows: usize) -> Result<Tensor> {
    if pivots.dtype() != DType::I32 {
        return Err(Error::dtype(op, pivots.dtype(), "i32", "pass the pivots of linalg_lu_factor"));
    }
    call(Op::LuPermutation, &[pivots], &Attrs::from(LuPermutation { rows: int(rows) }))
}

fn check_factors(op: &str, lu: &Tensor, pivots: &Tensor) -> Result<()> {
    let [rows, columns] = shape(lu);
    if pivots.sizes() == &sizes(batch(lu), &[rows.min(columns)])[..] {
        return Ok(());
    }
    let what = format!(
        "Number of pivots per batch should be same as the dimension of the matrix; shapes are {:?} and {:?}",
        lu.sizes(),
        pivots.sizes()
    );
    Err(Error::shape(op, what, "pass both results of linalg_lu_factor"))
}

/// Solves with `A = P L U`, or with its adjoint if `adjoint`; from the right if not `left`.
pub(super) fn solve_factored(
    op: &str,
    lu: &Tensor,
    pivots: &Tensor,
    b: &Tensor,
    left: bool,
    adjoint: bool,
) -> Result<Tensor> {
    need_square(op, lu)?;
    need_matrices(op, b)?;
    need_same(op, ["LU", "B"], lu, b)?;
    check_factors(op, lu, pivots)?;
    if !left {
        // `X A = B` is `Aᴴ Xᴴ = Bᴴ`.
        return mh(&solve_factored(op, lu, pivots, &mh(b)?, true, !adjoint)?);
    }
    let rows = shape(lu)[0];
    if shape(b)[0] != rows {
        let what = format!("Incompatible shapes of LU and B: {:?} and {:?}", lu.sizes(), b.sizes());
        return Err(Error::shape(op, what, "both must have as many rows"));
    }
    let common = broadcast(op, batch(lu), batch(b))?;
    let (lu, b) = together(op, lu, b)?;
    let order = order(op, pivots, rows)?.expand(&sizes(&common, &[rows])[..])?;
    let reordered = |x: &Tensor, order: &Tensor| x.gather(-2, &order.unsqueeze(-1)?.expand(x.sizes())?);
    let solve = |a: &Tensor, b: &Tensor, upper: bool, unit: bool| {
        let attrs = SolveTriangular { upper, unitriangular: unit, pairs: false };
        mt(&call(Op::SolveTriangular, &[a, b], &Attrs::from(attrs))?)
    };
    if adjoint {
        let turned = mh(&lu)?;
        let x = solve(&turned, &solve(&turned, &b, false, false)?, true, true)?;
        return reordered(&x, &order.argsort(-1, false)?);
    }
    solve(&lu, &solve(&lu, &reordered(&b, &order)?, false, true)?, true, false)
}

fn unpack(op: &str, lu: &Tensor, pivots: &Tensor, data: bool, permuted: bool) -> Result<(Tensor, Tensor, Tensor)> {
    need_matrices(op, lu)?;
    check_factors(op, lu, pivots)?;
    let [rows, columns] = shape(lu);
    let size = rows.min(columns);
    let nothing = || full_on(lu.device(), &[0], 0.into(), Some(lu.dtype()));
    let p = if permuted {
        let order = order(op, pivots, rows)?;
        let numbers = range_on(lu.device(), 0, int(rows), None)?.unsqueeze(-1)?;
        numbers.eq(&order.unsqueeze(-2)?)?.to_dtype(lu.dtype())?
    } else {
        nothing()?
    };
    if !data {
        return Ok((p, nothing()?, nothing()?));
    }
    let lower = lu.narrow(-1, 0, size)?.tril(-1)?;
    let ones = identity(lu, &[], rows)?.narrow(-1, 0, size)?;
    Ok((p, lower.add(&ones)?, lu.narrow(-2, 0, size)?.triu(0)?))
}
