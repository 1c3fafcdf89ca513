//! Gradients against central differences, in f64, and of second order for some.

use crate::{matrices, mt, positive, regular};
use opfuse::autograd::{GradOptions, grad, gradcheck};
use opfuse::{DType, Result, Tensor};

type Function = fn(&Tensor) -> Result<Tensor>;

/// Checks functions of one matrix, at several shapes.
fn check(cases: &[(&str, Function)], inputs: &[Tensor]) {
    let mut failures = Vec::new();
    for (name, function) in cases {
        for input in inputs {
            if let Err(error) = gradcheck(|x| function(&x[0]), &[input], 1e-6, 1e-5) {
                failures.push(format!("{name} of {:?}: {error}", input.sizes()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A copy that gradients are wanted for.
fn leaf(x: &Tensor) -> Result<Tensor> {
    let leaf = x.detach()?.copy()?;
    leaf.set_requires_grad(true)?;
    Ok(leaf)
}

/// `X Xᵀ + 1`, which is positive definite however `X` moves.
fn definite(x: &Tensor) -> Result<Tensor> {
    let order = x.sizes()[x.dim() - 2];
    x.matmul(&mt(x)?)?.add(&Tensor::eye(order, DType::F64)?)
}

#[test]
fn of_square_matrices() -> Result<()> {
    let cases: &[(&str, Function)] = &[
        ("cholesky", |x| definite(x)?.linalg_cholesky(false)),
        ("upper cholesky", |x| definite(x)?.linalg_cholesky(true)),
        ("cholesky_inverse", |x| definite(x)?.linalg_cholesky(false)?.cholesky_inverse(false)),
        ("inverse", Tensor::linalg_inv),
        ("determinant", Tensor::linalg_det),
        ("log determinant", |x| Ok(x.linalg_slogdet()?.1)),
        ("logdet", |x| definite(x)?.logdet()),
        ("eigenvalues", |x| definite(x)?.linalg_eigvalsh()),
        ("eigenvalues of eigh", |x| Ok(definite(x)?.linalg_eigh()?.0)),
        ("eigenvectors", |x| Ok(definite(x)?.linalg_eigh()?.1)),
        ("eigenvectors squared", |x| definite(x)?.linalg_eigh()?.1.square()),
        ("exponential", Tensor::matrix_exp),
        ("negative power", |x| x.matrix_power(-2)),
        ("condition", |x| x.linalg_cond(None)),
        ("condition of order 1", |x| x.linalg_cond(Some(1.into()))),
        ("cofactors twice", |x| x.linalg_det()?.square()),
    ];
    check(cases, &[regular(&[1, 1], DType::F64)?, regular(&[4, 4], DType::F64)?, regular(&[2, 3, 3], DType::F64)?]);
    Ok(())
}

#[test]
fn of_matrices_of_any_shape() -> Result<()> {
    let cases: &[(&str, Function)] = &[
        ("LU", |x| Ok(x.linalg_lu_factor_ex()?.0)),
        ("L", |x| Ok(x.linalg_lu()?.1)),
        ("U", |x| Ok(x.linalg_lu()?.2)),
        ("Q", |x| Ok(x.linalg_qr()?.0)),
        ("R", |x| Ok(x.linalg_qr()?.1)),
        ("singular values", Tensor::linalg_svdvals),
        ("singular values of svd", |x| Ok(x.linalg_svd(false)?.1)),
        // The signs of vectors may change with the least change of a matrix.
        ("U of svd", |x| x.linalg_svd(false)?.0.square()),
        ("V of svd", |x| x.linalg_svd(false)?.2.square()),
        ("all of svd", |x| {
            let (u, s, vt) = x.linalg_svd(false)?;
            u.mul(&s.sqrt()?.unsqueeze(-2)?)?.matmul(&vt)
        }),
        ("singular values of full matrices", |x| Ok(x.linalg_svd(true)?.1)),
        ("pseudoinverse", |x| x.linalg_pinv(None)),
    ];
    let shapes: [&[usize]; 5] = [&[3, 3], &[5, 3], &[3, 5], &[2, 4, 2], &[2, 2, 4]];
    let inputs: Vec<Tensor> = shapes.iter().map(|shape| matrices(shape, DType::F64)).collect::<Result<_>>()?;
    check(cases, &inputs);
    Ok(())
}

#[test]
fn of_systems() -> Result<()> {
    type System = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let cases: &[(&str, System)] = &[
        ("solve", Tensor::linalg_solve),
        ("solve_ex", |a, b| Ok(a.linalg_solve_ex(b)?.0)),
        ("lower triangle", |a, b| a.linalg_solve_triangular(b, false)),
        ("upper triangle", |a, b| a.linalg_solve_triangular(b, true)),
        ("lu_solve", |a, b| {
            let (lu, pivots) = a.linalg_lu_factor()?;
            lu.linalg_lu_solve(&pivots, b)
        }),
        ("cholesky_solve", |a, b| b.cholesky_solve(&definite(a)?.linalg_cholesky(false)?, false)),
        ("lstsq", |a, b| Ok(a.linalg_lstsq(b, None)?.0)),
    ];
    let shapes: [[&[usize]; 2]; 3] = [[&[3, 3], &[3, 2]], [&[2, 3, 3], &[3, 2]], [&[3, 3], &[2, 3, 1]]];
    for (name, function) in cases {
        for [a, b] in shapes {
            let (a, b) = (regular(a, DType::F64)?, matrices(b, DType::F64)?);
            gradcheck(|x| function(&x[0], &x[1]), &[&a, &b], 1e-6, 1e-5)
                .unwrap_or_else(|error| panic!("{name} of {:?} and {:?}: {error}", a.sizes(), b.sizes()));
        }
    }
    Ok(())
}

/// A gradient is itself a function whose gradient is checked.
#[test]
fn of_second_order() -> Result<()> {
    let cases: &[(&str, Function)] = &[
        ("cholesky", |x| definite(x)?.linalg_cholesky(false)),
        ("inverse", Tensor::linalg_inv),
        ("determinant", Tensor::linalg_det),
        ("log determinant", |x| Ok(x.linalg_slogdet()?.1)),
        ("solve", |x| x.linalg_solve(&Tensor::eye(3, DType::F64)?.narrow(1, 0, 2)?)),
        ("triangular", |x| x.linalg_solve_triangular(&Tensor::eye(3, DType::F64)?, false)),
        ("eigh", |x| definite(x)?.linalg_eigh()?.1.square()),
        ("eigvalsh", |x| definite(x)?.linalg_eigvalsh()),
        ("svd", |x| x.linalg_svd(false)?.0.square()),
        ("svdvals", Tensor::linalg_svdvals),
        ("qr", |x| Ok(x.linalg_qr()?.1)),
        ("lu", |x| Ok(x.linalg_lu_factor_ex()?.0)),
        ("pinv", |x| x.linalg_pinv(None)),
        ("matrix_exp", Tensor::matrix_exp),
    ];
    let x = regular(&[3, 3], DType::F64)?;
    let mut failures = Vec::new();
    for (name, function) in cases {
        let gradient = |x: &[Tensor]| {
            let y = function(&x[0])?.square()?.sum((), false)?;
            let options = GradOptions { create_graph: true, ..GradOptions::default() };
            let found = grad(&[&y], &[&x[0]], &[None], options)?;
            found.into_iter().flatten().next().map_or_else(|| x[0].zeros_like(), Ok)
        };
        if let Err(error) = gradcheck(
            |x| {
                let x = if x[0].requires_grad() { x[0].clone() } else { leaf(&x[0])? };
                let _recorded = opfuse::autograd::enable_grad();
                gradient(&[x])
            },
            &[&x],
            1e-4,
            1e-4,
        ) {
            failures.push(format!("{name}: {error}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

#[test]
fn a_singular_matrix_has_cofactors() -> Result<()> {
    // Of rank 2, 1 and 0.
    let two = [[1.0f64, 2.0, 3.0], [4.0, 5.0, 6.0], [5.0, 7.0, 9.0]];
    let one = [[1.0f64, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 6.0, 9.0]];
    for (rows, expected) in [
        (two, [[3.0, -6.0, 3.0], [3.0, -6.0, 3.0], [-3.0, 6.0, -3.0]]),
        (one, [[0.0; 3]; 3]),
        ([[0.0; 3]; 3], [[0.0; 3]; 3]),
    ] {
        let x = leaf(&Tensor::try_from(rows)?)?;
        let found = grad(&[&x.linalg_det()?], &[&x], &[None], GradOptions::default())?;
        let found = found[0].as_ref().expect("it has a gradient").to_vec::<f64>()?;
        for (found, expected) in found.iter().zip(expected.as_flattened()) {
            assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
        }
    }
    Ok(())
}

#[test]
fn only_the_gradient_of_what_is_used_matters() -> Result<()> {
    // All singular values are equal, so the vectors have no gradient, but the values have.
    let x = positive(&[1, 1], DType::F64)?;
    assert_eq!(x.numel(), 1);
    let eye = leaf(&Tensor::eye(3, DType::F64)?)?;
    for values in [eye.linalg_svd(false)?.1, eye.linalg_eigh()?.0, eye.linalg_svdvals()?] {
        let found = grad(&[&values.sum((), false)?], &[&eye], &[None], GradOptions::default())?;
        let found = found[0].as_ref().expect("it has a gradient").to_vec::<f64>()?;
        assert!(found.iter().all(|x| x.is_finite()), "{found:?}");
    }
    Ok(())
}
