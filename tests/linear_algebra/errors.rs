//! Matrices that have no result, and calls that make no sense.

use crate::{matrices, positive};
use opfuse::{DType, Result, Tensor};

fn message<T>(result: Result<T>) -> String {
    result.err().expect("an error").to_string()
}

/// A batch in which matrix 3 is replaced.
fn batch_with(bad: [[f64; 3]; 3]) -> Result<Tensor> {
    let x = positive(&[5, 3, 3], DType::F64)?;
    x.select(0, 3)?.copy_(&Tensor::try_from(bad)?)?;
    Ok(x)
}

const SINGULAR: [[f64; 3]; 3] = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]];
const NAN: f64 = f64::NAN;
const WITH_NAN: [[f64; 3]; 3] = [[1.0, 2.0, 3.0], [2.0, NAN, 6.0], [1.0, 0.0, 1.0]];

#[test]
fn a_matrix_without_result_is_named() -> Result<()> {
    let (singular, nan) = (batch_with(SINGULAR)?, batch_with(WITH_NAN)?);
    let b = matrices(&[3, 1], DType::F64)?;
    let cases = [
        (message(singular.linalg_cholesky(false)), "linalg.cholesky: (Batch element 3): ", "minor of order 2"),
        (message(nan.linalg_cholesky(true)), "linalg.cholesky: (Batch element 3): ", "not positive-definite"),
        (message(singular.linalg_solve(&b)), "linalg.solve: (Batch element 3): ", "singular"),
        (message(singular.linalg_inv()), "linalg.inv: (Batch element 3): ", "singular"),
        (message(singular.linalg_lu_factor()), "linalg.lu_factor: (Batch element 3): ", "U[3,3] is zero"),
        (message(nan.linalg_eigh()), "linalg.eigh: (Batch element 3): ", "non-finite"),
        (message(nan.linalg_eigvalsh()), "linalg.eigvalsh: (Batch element 3): ", "non-finite"),
        (message(nan.linalg_svd(true)), "linalg.svd: (Batch element 3): ", "non-finite"),
        (message(nan.linalg_svdvals()), "linalg.svdvals: (Batch element 3): ", "non-finite"),
        (message(nan.linalg_pinv(None)), "linalg.pinv: (Batch element 3): ", "non-finite"),
        (message(singular.select(0, 3)?.linalg_cholesky(false)), "linalg.cholesky: The factorization", "order 2"),
    ];
    for (message, begin, within) in cases {
        assert!(message.starts_with(begin) && message.contains(within), "{message}");
    }
    Ok(())
}

#[test]
fn other_calls_say_which_matrix_failed() -> Result<()> {
    let singular = batch_with(SINGULAR)?;
    let (factor, info) = singular.linalg_cholesky_ex(false)?;
    assert_eq!(info.to_vec::<i32>()?, [0, 0, 0, 2, 0]);
    assert!(factor.select(0, 3)?.to_vec::<f64>()?[4].is_nan());
    assert_eq!(singular.linalg_lu_factor_ex()?.2.to_vec::<i32>()?, [0, 0, 0, 3, 0]);
    assert_eq!(singular.linalg_inv_ex()?.1.to_vec::<i32>()?, [0, 0, 0, 3, 0]);
    assert_eq!(singular.linalg_solve_ex(&matrices(&[3, 1], DType::F64)?)?.1.to_vec::<i32>()?, [0, 0, 0, 3, 0]);
    assert_eq!(singular.linalg_matrix_rank(None)?.to_vec::<i64>()?, [3, 3, 3, 2, 3]);
    assert_eq!(singular.select(0, 3)?.linalg_det()?.item::<f64>()?, 0.0);
    let (sign, log) = singular.select(0, 3)?.linalg_slogdet()?;
    assert_eq!((sign.item::<f64>()?, log.item::<f64>()?), (0.0, f64::NEG_INFINITY));
    Ok(())
}

#[test]
fn a_large_matrix_fails_as_a_small_one() -> Result<()> {
    for order in [30, 90] {
        let x = positive(&[order, order], DType::F64)?;
        let place = order as i64 - 4;
        x.select(0, place)?.select(0, place)?.fill_(-1.0)?;
        let (_, info) = x.linalg_cholesky_ex(false)?;
        assert_eq!(i64::from(info.item::<i32>()?), place + 1);
        let nan = matrices(&[order, order], DType::F64)?;
        nan.select(0, 3)?.select(0, 7)?.fill_(f64::NAN)?;
        // What does not iterate gives NaNs, as for small matrices.
        assert!(nan.linalg_det()?.item::<f64>()?.is_nan());
        assert!(nan.linalg_qr()?.1.isnan()?.any((), false)?.item::<bool>()?);
        assert!(nan.linalg_inv()?.isnan()?.any((), false)?.item::<bool>()?);
        assert!(nan.matrix_exp()?.isnan()?.any((), false)?.item::<bool>()?);
        assert!(message(nan.linalg_cholesky(false)).contains("not positive-definite"));
        assert!(message(nan.linalg_svdvals()).contains("non-finite"));
        let infinite = matrices(&[order, order], DType::F64)?;
        infinite.select(0, 3)?.select(0, 1)?.fill_(f64::INFINITY)?;
        assert!(message(infinite.linalg_eigh()).contains("non-finite"));
        infinite.linalg_qr()?;
        infinite.linalg_lu_factor_ex()?;
        infinite.matrix_exp()?;
    }
    Ok(())
}

#[test]
fn an_unused_failure_is_found_in_a_graph_too() -> Result<()> {
    let singular = batch_with(SINGULAR)?;
    let compiled = opfuse::compile(|x: &Tensor| {
        let _unused = x.linalg_cholesky(false)?;
        x.add(1.0)
    });
    assert!(message(compiled.call(&singular)).contains("linalg.cholesky: (Batch element 3)"));
    assert!(message(compiled.call(&singular)).contains("linalg.cholesky: (Batch element 3)"));
    compiled.call(&positive(&[5, 3, 3], DType::F64)?)?;
    Ok(())
}

#[test]
fn shapes_and_dtypes_that_make_no_sense() -> Result<()> {
    let tall = matrices(&[4, 3], DType::F64)?;
    let square = positive(&[3, 3], DType::F64)?;
    let refused: Vec<(&str, String)> = vec![
        ("batches of square", message(tall.linalg_cholesky(false))),
        ("batches of square", message(tall.linalg_inv())),
        ("batches of square", message(tall.linalg_det())),
        ("batches of square", message(tall.linalg_eigh())),
        ("batches of square", message(tall.matrix_exp())),
        ("at least 2 dimensions", message(tall.select(0, 0)?.linalg_svd(true))),
        ("at least 2 dimensions", message(tall.select(0, 0)?.linalg_qr())),
        ("Incompatible shapes", message(square.linalg_solve(&matrices(&[4, 2], DType::F64)?))),
        ("same dtype", message(square.linalg_solve(&matrices(&[3, 2], DType::F32)?))),
        ("same dtype", message(square.linalg_solve_triangular(&matrices(&[3, 2], DType::F32)?, true))),
        ("only for f32 and f64", message(square.to_dtype(DType::I64)?.linalg_inv())),
        ("only for f32 and f64", message(square.to_dtype(DType::F16)?.linalg_svd(false))),
        ("only for f32 and f64", message(square.to_dtype(DType::BF16)?.linalg_cholesky(false))),
        ("Number of pivots", message(square.lu_unpack(&Tensor::try_from([1i32])?))),
        ("pivots count from 1", message(square.lu_unpack(&Tensor::try_from([1i32, 2, 4])?))),
    ];
    for (part, message) in refused {
        assert!(message.contains(part), "{message}");
    }
    Ok(())
}

#[test]
fn huge_matrices_are_refused_by_their_size() -> Result<()> {
    let huge = Tensor::zeros(&[1, 1], DType::F32)?.expand([1 << 31, 1 << 31])?;
    for message in [message(huge.linalg_cholesky(false)), message(huge.linalg_svd(true)), message(huge.linalg_qr())] {
        assert!(!message.contains("panicked"), "{message}");
    }
    Ok(())
}
