//! The equations that define each operator, for sizes on both sides of every threshold, and for every layout.

use crate::{distance, layouts, matrices, mt, positive, regular, tolerance};
use opfuse::{DType, Result, Tensor};

const ORDERS: [usize; 12] = [0, 1, 2, 3, 4, 5, 8, 16, 24, 25, 40, 70];
const SHAPES: [[usize; 2]; 11] =
    [[0, 3], [3, 0], [1, 1], [1, 4], [4, 1], [3, 5], [5, 3], [16, 16], [30, 7], [7, 30], [40, 60]];

/// Calls `check` for square matrices of every order, dtype and layout, alone and in a batch.
fn each_square(
    make: fn(&[usize], DType) -> Result<Tensor>,
    check: impl Fn(&Tensor, f64) -> Result<Vec<(&'static str, f64)>>,
) -> Result<()> {
    let batches: [&[usize]; 3] = [&[], &[3], &[2, 2]];
    for order in ORDERS {
        for batch in batches {
            each_layout(make, &[batch, &[order, order]].concat(), &check)?;
        }
    }
    Ok(())
}

fn each_rectangle(check: impl Fn(&Tensor, f64) -> Result<Vec<(&'static str, f64)>>) -> Result<()> {
    let batches: [&[usize]; 2] = [&[], &[3]];
    for shape in SHAPES {
        for batch in batches {
            each_layout(matrices, &[batch, &shape].concat(), &check)?;
        }
    }
    Ok(())
}

fn each_layout(
    make: fn(&[usize], DType) -> Result<Tensor>,
    sizes: &[usize],
    check: &impl Fn(&Tensor, f64) -> Result<Vec<(&'static str, f64)>>,
) -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        let order = sizes[sizes.len() - 1].max(sizes[sizes.len() - 2]);
        let allowed = tolerance(dtype, order);
        for (layout, a) in layouts(&make(sizes, dtype)?)? {
            for (what, found) in check(&a, allowed)? {
                assert!(found <= allowed, "{what} is off by {found:e} for {layout} {dtype} of {sizes:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn cholesky_factors_multiply_to_the_matrix() -> Result<()> {
    each_square(positive, |a, _| {
        let (lower, upper) = (a.linalg_cholesky(false)?, a.linalg_cholesky(true)?);
        let scale = a.sizes()[a.dim() - 1].max(1) as f64;
        let (ex, info) = a.linalg_cholesky_ex(false)?;
        assert!(info.to_vec::<i32>()?.iter().all(|&info| info == 0));
        Ok(vec![
            ("L Lᵀ", distance(&lower.matmul(&mt(&lower)?)?, a)? / scale),
            ("Uᵀ U", distance(&mt(&upper)?.matmul(&upper)?, a)? / scale),
            ("L above its diagonal", distance(&lower.triu(1)?, &lower.zeros_like()?)?),
            ("U below its diagonal", distance(&upper.tril(-1)?, &upper.zeros_like()?)?),
            ("the other call", distance(&ex, &lower)?),
        ])
    })
}

#[test]
fn solutions_fulfil_their_equations() -> Result<()> {
    each_square(regular, |a, _| {
        let order = a.sizes()[a.dim() - 1];
        // As many columns as no batch has: else they would be vectors.
        let b = matrices(&[order, 6], a.dtype())?;
        let x = a.linalg_solve(&b)?;
        let (ex, _) = a.linalg_solve_ex(&b)?;
        let eye = Tensor::eye(order, a.dtype())?.expand(a.sizes())?;
        let inverse = a.linalg_inv()?;
        let (lu, pivots) = a.linalg_lu_factor()?;
        let by_lu = lu.linalg_lu_solve(&pivots, &b)?;
        let right = b.expand(x.sizes())?;
        let vector = matrices(&[order], a.dtype())?;
        let of_vector = a.linalg_solve(&vector)?;
        let again = a.matmul(&of_vector.unsqueeze(-1)?)?.squeeze(-1)?;
        Ok(vec![
            ("A X", distance(&a.matmul(&x)?, &right)? / 8.0),
            ("A X of linalg_solve_ex", distance(&a.matmul(&ex)?, &right)? / 8.0),
            ("A X of linalg_lu_solve", distance(&a.matmul(&by_lu)?, &right)? / 8.0),
            ("A A⁻¹", distance(&a.matmul(&inverse)?, &eye)? / 8.0),
            ("A x", distance(&again, &vector.expand(again.sizes())?)? / 8.0),
        ])
    })
}

#[test]
fn triangular_solutions_fulfil_their_equations() -> Result<()> {
    each_square(regular, |a, _| {
        let order = a.sizes()[a.dim() - 1];
        let b = matrices(&[order, 5], a.dtype())?;
        let (x, y) = (a.linalg_solve_triangular(&b, false)?, a.linalg_solve_triangular(&b, true)?);
        let right = b.expand(x.sizes())?;
        let scale = x.abs()?.add(1.0)?;
        let scale = if x.numel() == 0 { 1.0 } else { scale.amax((), false)?.to_dtype(DType::F64)?.item::<f64>()? };
        Ok(vec![
            ("L X", distance(&a.tril(0)?.matmul(&x)?, &right)? / scale),
            ("U Y", distance(&a.triu(0)?.matmul(&y)?, &right)? / scale / 1e3),
        ])
    })
}

#[test]
fn lu_factors_multiply_to_the_matrix() -> Result<()> {
    each_rectangle(|a, _| {
        let (p, l, u) = a.linalg_lu()?;
        Ok(vec![
            ("P L U", distance(&p.matmul(&l.matmul(&u)?)?, a)?),
            ("L above its diagonal", distance(&l.triu(1)?, &l.zeros_like()?)?),
            ("U below its diagonal", distance(&u.tril(-1)?, &u.zeros_like()?)?),
        ])
    })
}

#[test]
fn determinants_agree() -> Result<()> {
    each_square(regular, |a, _| {
        let (det, (sign, log)) = (a.linalg_det()?, a.linalg_slogdet()?);
        let (_, _, u) = a.linalg_lu()?;
        let product = u.diagonal(0, -2, -1)?.abs()?.log()?.sum(-1, false)?;
        let ratio = det.div(&sign.mul(&log.exp()?)?)?;
        Ok(vec![
            ("the logarithm", distance(&log, &product)? / 100.0),
            ("the determinant", distance(&ratio, &ratio.ones_like()?)? / 100.0),
        ])
    })
}

#[test]
fn orthogonal_factors_multiply_to_the_matrix() -> Result<()> {
    each_rectangle(|a, _| {
        let (q, r) = a.linalg_qr()?;
        let ((u, s, vt), (fu, fs, fvt)) = (a.linalg_svd(false)?, a.linalg_svd(true)?);
        let size = s.sizes()[s.dim() - 1] as i64;
        let gram = |x: &Tensor| {
            let product = mt(x)?.matmul(x)?;
            let eye = Tensor::eye(product.sizes()[product.dim() - 1], a.dtype())?;
            distance(&product, &eye.expand(product.sizes())?)
        };
        let thin = |u: &Tensor, vt: &Tensor| -> Result<Tensor> {
            u.narrow(-1, 0, size as usize)?.mul(&s.unsqueeze(-2)?)?.matmul(&vt.narrow(-2, 0, size as usize)?)
        };
        let values = a.linalg_svdvals()?;
        Ok(vec![
            ("Q R", distance(&q.matmul(&r)?, a)?),
            ("Qᵀ Q", gram(&q)?),
            ("R below its diagonal", distance(&r.tril(-1)?, &r.zeros_like()?)?),
            ("U S Vᵀ", distance(&thin(&u, &vt)?, a)?),
            ("U S Vᵀ of full matrices", distance(&thin(&fu, &fvt)?, a)?),
            ("Uᵀ U", gram(&u)?),
            ("Vᵀ V", gram(&mt(&vt)?)?),
            ("Uᵀ U of full matrices", gram(&fu)?),
            ("Vᵀ V of full matrices", gram(&mt(&fvt)?)?),
            ("both singular values", distance(&s, &fs)?),
            ("singular values alone", distance(&s, &values)?),
        ])
    })
}

#[test]
fn eigenvectors_are_only_scaled() -> Result<()> {
    each_square(positive, |a, _| {
        let (w, v) = a.linalg_eigh()?;
        let order = a.sizes()[a.dim() - 1];
        let scale = order.max(1) as f64;
        let eye = Tensor::eye(order, a.dtype())?.expand(a.sizes())?;
        let alone = a.linalg_eigvalsh()?;
        let sorted = if order > 1 { w.sort(-1, false)?.0 } else { w.clone() };
        Ok(vec![
            ("A V", distance(&a.matmul(&v)?, &v.mul(&w.unsqueeze(-2)?)?)? / scale),
            ("Vᵀ V", distance(&mt(&v)?.matmul(&v)?, &eye)?),
            ("eigenvalues alone", distance(&w, &alone)? / scale),
            ("the order", distance(&w, &sorted)?),
        ])
    })
}

#[test]
fn pseudoinverses_fulfil_the_equations_of_penrose() -> Result<()> {
    each_rectangle(|a, _| {
        let p = a.linalg_pinv(None)?;
        if a.numel() == 0 {
            return Ok(vec![]);
        }
        let scale = p.abs()?.amax((), false)?.to_dtype(DType::F64)?.item::<f64>()?.max(1.0);
        let (ap, pa) = (a.matmul(&p)?, p.matmul(a)?);
        Ok(vec![
            ("A P A", distance(&ap.matmul(a)?, a)? / scale),
            ("P A P", distance(&pa.matmul(&p)?, &p)? / scale / scale),
            ("A P", distance(&mt(&ap)?, &ap)? / scale),
            ("P A", distance(&mt(&pa)?, &pa)? / scale),
        ])
    })
}

#[test]
fn least_squares_of_every_rank() -> Result<()> {
    let a = matrices(&[9, 4], DType::F64)?;
    let b = matrices(&[9, 2], DType::F64)?;
    // A column that is the sum of others lowers the rank.
    let deficient = a.clone().matmul(&matrices(&[4, 2], DType::F64)?)?.matmul(&matrices(&[2, 5], DType::F64)?)?;
    for a in [&a, &deficient, &mt(&deficient)?.contiguous()?] {
        let b = if a.sizes()[0] == 9 { b.clone() } else { matrices(&[a.sizes()[0], 2], DType::F64)? };
        let (x, residuals, rank, values) = a.linalg_lstsq(&b, None)?;
        // The residual is orthogonal to the columns.
        let normal = mt(a)?.matmul(&a.matmul(&x)?.sub(&b)?)?;
        assert!(distance(&normal, &normal.zeros_like()?)? < 1e-12);
        assert_eq!((residuals.numel(), values.numel()), (0, 0));
        assert_eq!(rank.item::<i64>()?, a.linalg_matrix_rank(None)?.item::<i64>()?);
        let of_vector = a.linalg_lstsq(&b.select(-1, 1)?.contiguous()?, None)?.0;
        assert!(distance(&of_vector, &x.select(-1, 1)?)? < 1e-12);
    }
    assert_eq!(deficient.linalg_matrix_rank(None)?.item::<i64>()?, 2);
    Ok(())
}

#[test]
fn exponentials_and_powers() -> Result<()> {
    each_square(matrices, |a, _| {
        let half = a.mul(0.5)?.matrix_exp()?;
        let whole = a.matrix_exp()?;
        let both = half.matmul(&half)?;
        let order = a.sizes()[a.dim() - 1];
        let scale = (order as f64).exp().min(1e4);
        let trace = a.diagonal(0, -2, -1)?.sum(-1, false)?.exp()?;
        let det = whole.linalg_det()?.div(&trace)?;
        Ok(vec![
            ("exp(A/2)²", distance(&both, &whole)? / scale),
            ("det(exp(A))", if order > 8 { 0.0 } else { distance(&det, &det.ones_like()?)? / scale }),
        ])
    })?;
    // Of a nilpotent matrix, and of one with a large norm.
    let n = Tensor::try_from([[0.0f64, 3.0], [0.0, 0.0]])?;
    assert_eq!(n.matrix_exp()?.to_vec::<f64>()?, [1.0, 3.0, 0.0, 1.0]);
    let turn = Tensor::try_from([[0.0f64, -100.0], [100.0, 0.0]])?.matrix_exp()?.to_vec::<f64>()?;
    assert!((turn[0] - 100f64.cos()).abs() < 1e-12 && (turn[2] - 100f64.sin()).abs() < 1e-12, "{turn:?}");
    let a = regular(&[3, 4, 4], DType::F64)?;
    let power = a.matrix_power(-3)?.matmul(&a.matrix_power(3)?)?;
    assert!(distance(&power, &Tensor::eye(4, DType::F64)?.expand([3, 4, 4])?)? < 1e-12);
    Ok(())
}

#[test]
fn numbers_near_the_ends_of_the_range_have_spectra() -> Result<()> {
    for (scale, dtype) in [(1e-300, DType::F64), (1e300, DType::F64), (1e-36, DType::F32), (1e37, DType::F32)] {
        let a = positive(&[6, 6], DType::F64)?;
        let scaled = a.mul(scale)?.to_dtype(dtype)?;
        let expected = a.linalg_eigvalsh()?;
        for found in [scaled.linalg_eigvalsh()?, scaled.linalg_eigh()?.0, scaled.linalg_svdvals()?.flip([0])?] {
            let found = found.to_dtype(DType::F64)?.div(scale)?;
            assert!(distance(&found, &expected)? < 1e-5, "{scale}: {found}");
        }
    }
    Ok(())
}
