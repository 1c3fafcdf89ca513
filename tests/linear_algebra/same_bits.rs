//! A call has the same bits in a batch, under `vmap`, compiled, and with any number of threads.

use crate::{matrices, positive, regular};
use opfuse::device::pool;
use opfuse::{DType, Device, Result, Tensor, compile, vmap};

type Function = fn(&Tensor) -> Result<Vec<Tensor>>;

fn bits(x: &[Tensor]) -> Result<Vec<Vec<u64>>> {
    let of_one = |x: &Tensor| Ok(x.to_dtype(DType::F64)?.to_vec::<f64>()?.iter().map(|x| x.to_bits()).collect());
    x.iter().map(of_one).collect()
}

const SQUARE: &[(&str, Function)] = &[
    ("cholesky", |x| Ok(vec![x.linalg_cholesky(false)?, x.linalg_cholesky(true)?])),
    ("cholesky_ex", |x| {
        let (l, info) = x.linalg_cholesky_ex(false)?;
        Ok(vec![l, info])
    }),
    ("solve", |x| Ok(vec![x.linalg_solve(&x.narrow(-1, 0, 2)?)?])),
    ("solve_triangular", |x| Ok(vec![x.linalg_solve_triangular(&x.narrow(-1, 0, 2)?, true)?])),
    ("inv", |x| Ok(vec![x.linalg_inv()?])),
    ("det", |x| Ok(vec![x.linalg_det()?])),
    ("slogdet", |x| {
        let (sign, log) = x.linalg_slogdet()?;
        Ok(vec![sign, log])
    }),
    ("lu", |x| {
        let ((p, l, u), (_, pivots)) = (x.linalg_lu()?, x.linalg_lu_factor()?);
        Ok(vec![p, l, u, pivots])
    }),
    ("qr", |x| {
        let (q, r) = x.linalg_qr()?;
        Ok(vec![q, r])
    }),
    ("eigh", |x| {
        let (w, v) = x.linalg_eigh()?;
        Ok(vec![w, v, x.linalg_eigvalsh()?])
    }),
    ("svd", |x| {
        let (u, s, vt) = x.narrow(-1, 1, 2)?.linalg_svd(true)?;
        Ok(vec![u, s, vt, x.linalg_svdvals()?])
    }),
    ("pinv", |x| Ok(vec![x.narrow(-2, 0, 2)?.linalg_pinv(None)?])),
    ("rank", |x| Ok(vec![x.linalg_matrix_rank(None)?])),
    ("lstsq", |x| Ok(vec![x.narrow(-1, 0, 2)?.linalg_lstsq(&x.narrow(-1, 2, 1)?, None)?.0])),
    ("cond", |x| Ok(vec![x.linalg_cond(None)?])),
    ("matrix_exp", |x| Ok(vec![x.matrix_exp()?])),
    ("matrix_power", |x| Ok(vec![x.matrix_power(-3)?])),
];

#[test]
fn of_compiled_calls_and_of_two_threads() -> Result<()> {
    let orders = [(3, 700), (5, 300), (30, 9)];
    for (name, function) in SQUARE {
        for (order, count) in orders {
            for dtype in [DType::F32, DType::F64] {
                let x = positive(&[count, order, order], dtype)?;
                let expected = bits(&pool::with_threads(1, || function(&x))?)?;
                let found = bits(&pool::with_threads(2, || function(&x))?)?;
                assert!(found == expected, "{name} of {order} with two threads");
                let compiled = compile(*function);
                for _ in 0..2 {
                    assert!(bits(&compiled.call(&x)?)? == expected, "{name} of {order}, compiled");
                }
                let report = compiled.explain();
                assert!(report.eager.is_none(), "{name}: {report}");
                let last = x.select(0, count as i64 - 1)?;
                let alone = bits(&function(&last)?)?;
                let part = function(&x)?.iter().map(|x| x.select(0, -1)).collect::<Result<Vec<_>>>()?;
                assert!(bits(&part)? == alone, "{name} of {order}, the last of a batch");
            }
        }
    }
    Ok(())
}

#[test]
fn under_vmap() -> Result<()> {
    let x = positive(&[4, 3, 5, 5], DType::F64)?;
    for (name, function) in SQUARE {
        let expected = bits(&function(&x)?)?;
        let mapped = vmap(*function).call(&x)?;
        assert!(bits(&mapped)? == expected, "{name} under vmap");
        let inner = vmap(|x: &Tensor| vmap(*function).call(x)).call(&x)?;
        assert!(bits(&inner)? == expected, "{name} under two vmaps");
    }
    // One matrix for many right sides, and the other way round.
    let (a, b) = (regular(&[4, 4], DType::F64)?, matrices(&[7, 4], DType::F64)?);
    let mapped = vmap(|a: &Tensor, b: &Tensor| a.linalg_solve(b)).in_dims([None, Some(0)]).call((&a, &b))?;
    let expected = a.linalg_solve(&b.t()?)?.t()?;
    assert!(bits(&[mapped])? == bits(&[expected])?);
    let many = regular(&[7, 4, 4], DType::F64)?;
    let one = matrices(&[4], DType::F64)?;
    let mapped = vmap(|a: &Tensor, b: &Tensor| a.linalg_solve(b)).in_dims([Some(0), None]).call((&many, &one))?;
    assert!(bits(&[mapped])? == bits(&[many.linalg_solve(&one)?])?);
    Ok(())
}

#[test]
fn shapes_need_no_data() -> Result<()> {
    for sizes in [&[4, 4][..], &[2, 3, 4, 4], &[0, 3, 3]] {
        let x = positive(sizes, DType::F32)?;
        let meta = x.to_device(Device::META)?;
        for (name, function) in SQUARE {
            let (found, expected) = (function(&meta)?, function(&x)?);
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(
                    (found.sizes(), found.dtype(), found.strides()),
                    (expected.sizes(), expected.dtype(), expected.strides()),
                    "{name} of {sizes:?}"
                );
            }
        }
    }
    Ok(())
}
