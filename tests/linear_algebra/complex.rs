//! Matrices of complex numbers, and eigenvalues of any matrices.
//!
//! Oracles are equations, the real matrix `[[a, -b], [b, a]]` that multiplies as `a + bi` does, and differences.

use crate::{distance, layouts, matrices, mt, regular, tolerance};
use opfuse::autograd::gradcheck;
use opfuse::device::pool;
use opfuse::{DType, Device, Result, Tensor, cat, compile, stack, vmap};

const ORDERS: [usize; 9] = [0, 1, 2, 3, 5, 8, 24, 25, 40];
const SHAPES: [[usize; 2]; 8] = [[0, 3], [3, 0], [1, 4], [4, 1], [3, 5], [5, 3], [30, 7], [7, 30]];
const DTYPES: [DType; 2] = [DType::Complex64, DType::Complex128];

/// Complex matrices without a pattern.
fn complex(sizes: &[usize], dtype: DType) -> Result<Tensor> {
    matrices(&[sizes, &[2]].concat(), dtype.part())?.view_as_complex()
}

fn eye(order: usize, dtype: DType) -> Result<Tensor> {
    Tensor::eye(order, dtype.part())?.to_dtype(dtype)
}

fn mh(x: &Tensor) -> Result<Tensor> {
    mt(x)?.conj()
}

fn regular_complex(sizes: &[usize], dtype: DType) -> Result<Tensor> {
    let order = sizes[sizes.len() - 1];
    complex(sizes, dtype)?.add(&eye(order, dtype)?.mul(2.0 * (order as f64).sqrt() + 1.0)?)
}

/// `X Xᴴ + 1`.
fn definite(x: &Tensor) -> Result<Tensor> {
    x.matmul(&mh(x)?)?.add(&eye(x.sizes()[x.dim() - 2], x.dtype())?.to_device(x.device())?)
}

/// The real matrices that multiply as complex ones do.
fn embedded(x: &Tensor) -> Result<Tensor> {
    let (re, im) = (x.real()?.contiguous()?, x.imag()?.contiguous()?);
    let (above, below) = (cat(&[&re, &im.neg()?], -1)?, cat(&[&im, &re], -1)?);
    cat(&[&above, &below], -2)
}

fn parts(x: &Tensor) -> Result<Tensor> {
    if x.is_complex() { x.view_as_real() } else { Ok(x.clone()) }
}

fn apart(x: &Tensor, y: &Tensor) -> Result<f64> {
    assert_eq!(x.dtype(), y.dtype());
    distance(&parts(x)?, &parts(y)?)
}

/// Calls `check` for matrices in every layout, alone and in a batch.
fn each(
    shapes: &[[usize; 2]],
    make: fn(&[usize], DType) -> Result<Tensor>,
    check: impl Fn(&Tensor) -> Result<Vec<(&'static str, f64)>>,
) -> Result<()> {
    for shape in shapes {
        for batch in [&[][..], &[3]] {
            for dtype in DTYPES {
                let sizes = [batch, &shape[..]].concat();
                let x = make(&sizes, dtype)?;
                let order = shape[0].max(shape[1]);
                let allowed = 4.0 * tolerance(dtype.part(), order) * (order as f64).max(1.0).sqrt();
                for (layout, a) in layouts(&x)? {
                    for (what, found) in check(&a)? {
                        assert!(found <= allowed, "{what} is off by {found:e} for {layout} {dtype} of {sizes:?}");
                    }
                }
            }
        }
    }
    Ok(())
}

fn squares() -> Vec<[usize; 2]> {
    ORDERS.iter().map(|&order| [order, order]).collect()
}

#[test]
fn solutions_and_inverses_fulfil_their_equations() -> Result<()> {
    each(&squares(), regular_complex, |a| {
        let order = a.sizes()[a.dim() - 1];
        let b = complex(&[order, 6], a.dtype())?;
        let x = a.linalg_solve(&b)?;
        let ones = eye(order, a.dtype())?.expand(a.sizes())?;
        let inverse = a.linalg_inv()?;
        let (lu, pivots) = a.linalg_lu_factor()?;
        let (p, l, u) = a.linalg_lu()?;
        let b = b.expand(x.sizes())?;
        let (lower, upper) = (a.tril(0)?, a.triu(0)?);
        Ok(vec![
            ("A X", apart(&a.matmul(&x)?, &b)?),
            ("A A⁻¹", apart(&a.matmul(&inverse)?, &ones)?),
            ("P L U", apart(&p.matmul(&l)?.matmul(&u)?, a)? / (order as f64).max(1.0)),
            ("X by LU", apart(&lu.linalg_lu_solve(&pivots, &b)?, &x)?),
            ("L X", apart(&lower.matmul(&a.linalg_solve_triangular(&b, false)?)?, &b)?),
            ("U X", apart(&upper.matmul(&a.linalg_solve_triangular(&b, true)?)?, &b)?),
        ])
    })
}

#[test]
fn determinants_are_those_of_real_matrices() -> Result<()> {
    each(&squares(), regular_complex, |a| {
        let (det, (sign, log)) = (a.linalg_det()?, a.linalg_slogdet()?);
        let (_, real) = embedded(a)?.linalg_slogdet()?;
        let scaled = det.div(&log.exp()?)?;
        Ok(vec![
            (
                "half the logarithm of the real one",
                apart(&log.mul(2.0)?, &real)? / real.abs()?.numel().max(1) as f64 / 8.0,
            ),
            ("the sign", if a.sizes()[a.dim() - 1] < 24 { apart(&scaled, &sign)? } else { 0.0 }),
            ("its magnitude", apart(&sign.abs()?, &log.ones_like()?)?),
        ])
    })?;
    // (1 + i)(2 - i) - 3i.
    let x = complex_of([[1.0, 1.0], [0.0, 3.0], [1.0, 0.0], [2.0, -1.0]])?;
    assert_eq!(parts(&x.linalg_det()?)?.to_vec::<f64>()?, [3.0, -2.0]);
    assert_eq!(parts(&x.logdet()?.exp()?)?.round_decimals(9)?.to_vec::<f64>()?, [3.0, -2.0]);
    Ok(())
}

/// A matrix of two rows and columns from its pairs.
fn complex_of(pairs: [[f64; 2]; 4]) -> Result<Tensor> {
    Tensor::try_from(pairs)?.reshape([2, 2, 2])?.view_as_complex()
}

#[test]
fn cholesky_factors_multiply_to_the_matrix() -> Result<()> {
    each(&squares(), complex, |x| {
        let a = definite(x)?;
        let order = a.sizes()[a.dim() - 1];
        let (lower, upper) = (a.linalg_cholesky(false)?, a.linalg_cholesky(true)?);
        let b = complex(&[order, 2], a.dtype())?;
        let (scale, solved) = ((order as f64).max(1.0), b.cholesky_solve(&lower, false)?);
        // The other triangle is not read.
        let half = a.tril(0)?;
        Ok(vec![
            ("L Lᴴ", apart(&lower.matmul(&mh(&lower)?)?, &a)? / scale),
            ("Uᴴ U", apart(&mh(&upper)?.matmul(&upper)?, &a)? / scale),
            ("L above its diagonal", apart(&lower.triu(1)?, &lower.zeros_like()?)?),
            ("the imaginary diagonal", distance(&lower.diagonal(0, -2, -1)?.imag()?, &real_zeros(&lower)?)?),
            ("from a triangle", apart(&half.linalg_cholesky(false)?, &lower)?),
            ("A X", apart(&a.matmul(&solved)?, &b.expand(solved.sizes())?)? / scale),
            ("A X by U", apart(&b.cholesky_solve(&upper, true)?, &solved)?),
        ])
    })
}

fn real_zeros(x: &Tensor) -> Result<Tensor> {
    x.diagonal(0, -2, -1)?.real()?.zeros_like()
}

#[test]
fn orthogonal_factorizations_multiply_to_the_matrix() -> Result<()> {
    let shapes = [&SHAPES[..], &squares()].concat();
    each(&shapes, complex, |a| {
        let size = a.sizes()[a.dim() - 1].min(a.sizes()[a.dim() - 2]);
        let ((q, r), (u, s, vh)) = (a.linalg_qr()?, a.linalg_svd(false)?);
        let (whole, _, whole_vh) = a.linalg_svd(true)?;
        let scale = (size as f64).max(1.0);
        let ones = |x: &Tensor| eye(x.sizes()[x.dim() - 1], x.dtype())?.expand(x.sizes());
        let unit = |x: &Tensor| mh(x)?.matmul(x).and_then(|x| apart(&x, &ones(&x)?));
        let p = a.linalg_pinv(None)?;
        Ok(vec![
            ("Q R", apart(&q.matmul(&r)?, a)? / scale),
            ("Qᴴ Q", unit(&q)?),
            ("R below its diagonal", apart(&r.tril(-1)?, &r.zeros_like()?)?),
            ("the imaginary diagonal of R", distance(&r.diagonal(0, -2, -1)?.imag()?, &real_zeros(&r)?)?),
            ("U S Vᴴ", apart(&u.mul(&s.unsqueeze(-2)?)?.matmul(&vh)?, a)? / scale),
            ("Uᴴ U", unit(&u)?),
            ("V Vᴴ", unit(&mh(&vh)?)?),
            ("the whole of U", unit(&whole)?),
            ("the whole of V", unit(&mh(&whole_vh)?)?),
            ("singular values", apart(&a.linalg_svdvals()?, &s)? / scale),
            ("A A⁺ A", apart(&a.matmul(&p)?.matmul(a)?, a)? / scale),
        ])
    })
}

#[test]
fn eigenvectors_are_stretched_by_eigenvalues() -> Result<()> {
    each(&squares(), complex, |x| {
        let a = x.add(&mh(x)?)?;
        let (w, v) = a.linalg_eigh()?;
        assert!(!w.is_complex());
        let (values, vectors) = x.linalg_eig()?;
        let scale = 4.0 * (x.sizes()[x.dim() - 1] as f64).max(1.0);
        let sum = values.sum(-1, false)?;
        let trace = x.diagonal(0, -2, -1)?.sum(-1, false)?;
        Ok(vec![
            ("A V of a Hermitian matrix", apart(&a.matmul(&v)?, &v.mul(&w.unsqueeze(-2)?)?)? / scale),
            ("from its lower triangle", apart(&a.tril(0)?.linalg_eigvalsh()?, &w)? / scale),
            ("A V", apart(&x.matmul(&vectors)?, &vectors.mul(&values.unsqueeze(-2)?)?)? / scale),
            ("the trace", apart(&sum, &trace)? / scale),
            ("lengths", distance(&vectors.abs()?.square()?.sum(-2, false)?, &values.abs()?.ones_like()?)?),
        ])
    })?;
    for dtype in [DType::F32, DType::F64] {
        for order in ORDERS {
            for (layout, a) in layouts(&matrices(&[2, order, order], dtype)?)? {
                let (values, vectors) = a.linalg_eig()?;
                assert_eq!(values.dtype(), dtype.complex());
                let found = apart(&a.matmul(&vectors)?, &vectors.mul(&values.unsqueeze(-2)?)?)?;
                let allowed = 8.0 * tolerance(dtype, order);
                assert!(found <= allowed, "A V is off by {found:e} for {layout} {dtype} of {order}");
                // Numbers that are not real come with their conjugates.
                let (imaginary, _) = parts(&values)?.select(-1, 1)?.sort(-1, false)?;
                let mirrored = imaginary.flip([-1])?.neg()?;
                assert!(distance(&imaginary, &mirrored)? == 0.0, "{layout} {dtype} of {order}");
            }
        }
    }
    Ok(())
}

#[test]
fn exponentials_are_those_of_real_matrices() -> Result<()> {
    each(&squares()[..6], complex, |x| {
        let found = embedded(&x.matrix_exp()?)?;
        let expected = embedded(x)?.matrix_exp()?;
        Ok(vec![("the exponential", distance(&found, &expected)? / 20.0)])
    })
}

type Function = fn(&Tensor) -> Result<Vec<Tensor>>;

const FUNCTIONS: &[(&str, Function)] = &[
    ("cholesky", |x| Ok(vec![definite(x)?.linalg_cholesky(false)?, definite(x)?.linalg_cholesky(true)?])),
    ("inverse", |x| Ok(vec![x.linalg_inv()?])),
    ("solve", |x| Ok(vec![x.linalg_solve(&x.narrow(-1, 0, 2)?.conj()?)?])),
    ("triangular", |x| Ok(vec![x.linalg_solve_triangular(&x.narrow(-1, 0, 2)?, true)?])),
    ("determinant", |x| Ok(vec![x.linalg_det()?])),
    ("log determinant", |x| {
        let (sign, log) = x.linalg_slogdet()?;
        Ok(vec![sign, log])
    }),
    ("lu", |x| Ok(vec![x.linalg_lu()?.1, x.linalg_lu()?.2, x.narrow(-1, 0, 2)?.linalg_lu()?.1])),
    ("qr", |x| {
        let ((q, r), wide) = (x.linalg_qr()?, x.narrow(-2, 0, 2)?.linalg_qr()?.1);
        Ok(vec![q, r, wide, x.narrow(-1, 0, 2)?.linalg_qr()?.1])
    }),
    ("eigh", |x| {
        let (w, v) = definite(x)?.linalg_eigh()?;
        Ok(vec![w, v.abs()?.square()?, definite(x)?.linalg_eigvalsh()?])
    }),
    ("svd", |x| {
        let (u, s, vh) = x.linalg_svd(false)?;
        let (tall, _, _) = x.narrow(-1, 0, 2)?.linalg_svd(false)?;
        let (_, _, wide) = x.narrow(-2, 0, 2)?.linalg_svd(false)?;
        let again = u.mul(&s.sqrt()?.unsqueeze(-2)?)?.matmul(&vh)?;
        Ok(vec![s, u.abs()?, vh.abs()?, again, tall.abs()?, wide.abs()?, x.linalg_svdvals()?])
    }),
    ("pinv", |x| Ok(vec![x.narrow(-1, 0, 2)?.linalg_pinv(None)?, x.narrow(-2, 0, 2)?.linalg_pinv(None)?])),
    ("eig", |x| {
        let (values, vectors) = x.linalg_eig()?;
        Ok(vec![values, vectors.abs()?, x.linalg_eigvals()?])
    }),
    ("matrix_exp", |x| Ok(vec![x.matrix_exp()?])),
    ("matrix_power", |x| Ok(vec![x.matrix_power(-2)?])),
    ("lstsq", |x| Ok(vec![x.narrow(-1, 0, 2)?.linalg_lstsq(&x.narrow(-1, 1, 1)?, None)?.0])),
];

#[test]
fn gradients_are_those_of_differences() -> Result<()> {
    let mut failures = Vec::new();
    let inputs = [regular_complex(&[3, 3], DType::Complex128)?, regular_complex(&[2, 4, 4], DType::Complex128)?];
    for (name, function) in FUNCTIONS {
        for input in &inputs {
            let count = function(input)?.len();
            for index in 0..count {
                let of_parts = |x: &[Tensor]| parts(&function(&x[0].view_as_complex()?)?[index]);
                if let Err(error) = gradcheck(of_parts, &[&parts(input)?], 1e-6, 1e-5) {
                    failures.push(format!("{name}, result {index} of {:?}: {error}", input.sizes()));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

#[test]
fn eigenvalues_of_real_matrices_have_real_gradients() -> Result<()> {
    // One with complex eigenvalues, and one with real ones.
    let turned = Tensor::try_from([[1.0f64, -2.0, 0.3], [2.0, 1.5, 0.1], [0.2, 0.4, 3.0]])?;
    let symmetric = Tensor::try_from([[1.0f64, 0.5, 0.3], [0.5, 3.0, 0.1], [0.3, 0.1, 6.0]])?;
    for x in [turned, symmetric, regular(&[2, 4, 4], DType::F64)?] {
        let functions: [fn(&Tensor) -> Result<Tensor>; 3] =
            [|x| x.linalg_eigvals(), |x| Ok(x.linalg_eig()?.0), |x| x.linalg_eig()?.1.abs()];
        for function in functions {
            gradcheck(|x| parts(&function(&x[0])?), &[&x], 1e-6, 1e-5)?;
        }
    }
    Ok(())
}

fn bits(x: &[Tensor]) -> Result<Vec<Vec<u64>>> {
    let of_one =
        |x: &Tensor| Ok(parts(x)?.to_dtype(DType::F64)?.to_vec::<f64>()?.iter().map(|x| x.to_bits()).collect());
    x.iter().map(of_one).collect()
}

#[test]
fn bits_depend_on_nothing_but_the_matrix() -> Result<()> {
    for (name, function) in FUNCTIONS.iter().chain(&[("eig", EIG)]) {
        for (order, count) in [(4, 400), (30, 5)] {
            for dtype in DTYPES {
                let x = regular_complex(&[count, order, order], dtype)?;
                let expected = bits(&pool::with_threads(1, || function(&x))?)?;
                assert!(bits(&pool::with_threads(2, || function(&x))?)? == expected, "{name} with two threads");
                let compiled = compile(*function);
                for _ in 0..2 {
                    assert!(bits(&compiled.call(&x)?)? == expected, "{name} of {order}, compiled");
                }
                let report = compiled.explain();
                assert!(report.eager.is_none(), "{name}: {report}");
                let few = x.narrow(0, 0, 3)?;
                let expected = bits(&function(&few)?)?;
                assert!(bits(&vmap(*function).call(&few)?)? == expected, "{name} of {order} under vmap");
            }
        }
    }
    Ok(())
}

/// Of real matrices.
const EIG: Function = |x| {
    let (values, vectors) = x.real()?.contiguous()?.linalg_eig()?;
    Ok(vec![values, vectors, x.imag()?.contiguous()?.linalg_eigvals()?])
};

#[test]
fn shapes_need_no_data() -> Result<()> {
    for sizes in [&[4, 4][..], &[2, 4, 4], &[0, 4, 4]] {
        let x = regular_complex(sizes, DType::Complex64)?;
        let meta = x.to_device(Device::META)?;
        for (name, function) in FUNCTIONS.iter().chain(&[("eig", EIG)]) {
            for (found, expected) in function(&meta)?.iter().zip(function(&x)?) {
                let of = |x: &Tensor| (x.sizes().to_vec(), x.dtype(), x.strides().to_vec());
                assert_eq!(of(found), of(&expected), "{name} of {sizes:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn matrices_without_a_result_are_named() -> Result<()> {
    fn message<T>(result: Result<T>) -> String {
        result.err().expect("an error").to_string()
    }
    // Row 2 is i times row 1.
    let singular = complex_of([[1.0, 0.0], [2.0, 1.0], [0.0, 1.0], [-1.0, 2.0]])?;
    let one = complex_of([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0]])?;
    let batch = stack(&[&one, &singular], 0)?;
    let negative = complex_of([[1.0, 0.0], [0.0, -2.0], [0.0, 2.0], [1.0, 0.0]])?;
    let nan = complex_of([[1.0, 0.0], [0.0, f64::NAN], [0.0, 0.0], [1.0, 0.0]])?;
    let lower_nan = mt(&nan)?;
    let cases = [
        (message(batch.linalg_solve(&one)), "linalg.solve: (Batch element 1): ", "singular"),
        (message(batch.linalg_inv()), "linalg.inv: (Batch element 1): ", "singular"),
        (message(singular.linalg_lu_factor()), "linalg.lu_factor: ", "U[2,2] is zero"),
        (message(negative.linalg_cholesky(false)), "linalg.cholesky: ", "minor of order 2"),
        (message(nan.linalg_eig()), "linalg.eig: ", "non-finite"),
        (message(nan.linalg_eigvals()), "linalg.eigvals: ", "non-finite"),
        (message(lower_nan.linalg_eigh()), "linalg.eigh: ", "non-finite"),
        (message(nan.linalg_svdvals()), "linalg.svdvals: ", "non-finite"),
        (message(nan.linalg_pinv(None)), "linalg.pinv: ", "non-finite"),
        (message(complex(&[2, 3], DType::Complex64)?.linalg_eig()), "linalg.eig: ", "batches of square"),
        (message(complex(&[2, 3], DType::Complex64)?.linalg_det()), "linalg.det: ", "batches of square"),
        (message(complex(&[3], DType::Complex64)?.linalg_qr()), "linalg.qr: ", "at least 2 dimensions"),
        (message(one.linalg_solve(&Tensor::eye(2, DType::F64)?)), "linalg.solve: ", "same dtype"),
        (message(Tensor::eye(2, DType::I64)?.linalg_eig()), "linalg.eig: ", "only for f32 and f64"),
    ];
    for (message, begin, within) in cases {
        assert!(message.starts_with(begin) && message.contains(within), "{message}");
    }
    assert_eq!(parts(&singular.linalg_det()?)?.to_vec::<f64>()?, [0.0, 0.0]);
    assert_eq!(batch.linalg_inv_ex()?.1.to_vec::<i32>()?, [0, 2]);
    assert_eq!(batch.linalg_matrix_rank(None)?.to_vec::<i64>()?, [2, 1]);
    assert_eq!(negative.linalg_cholesky_ex(false)?.1.item::<i32>()?, 2);
    Ok(())
}

#[test]
fn great_and_small_numbers_do_not_overflow() -> Result<()> {
    for (dtype, scales) in [(DType::Complex64, [1e30, 1e-30]), (DType::Complex128, [1e250, 1e-250])] {
        let x = regular_complex(&[3, 3], dtype)?;
        let values = x.linalg_eigvals()?.abs()?.sum((), false)?.to_dtype(DType::F64)?.item::<f64>()?;
        for scale in scales {
            let scaled = x.mul(scale)?;
            let found =
                scaled.linalg_eigvals()?.abs()?.to_dtype(DType::F64)?.div(scale)?.sum((), false)?.item::<f64>()?;
            assert!((found / values - 1.0).abs() < 1e-5, "{found} is not {values}");
            let product = scaled.linalg_inv()?.matmul(&scaled)?;
            assert!(apart(&product, &eye(3, dtype)?)? < 1e-5);
        }
    }
    Ok(())
}
