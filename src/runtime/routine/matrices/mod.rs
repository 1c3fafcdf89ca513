//! Work on each matrix of a batch: factorizations, solutions, functions.
//!
//! One matrix is worked on by one thread, and threads share the matrices of a batch. So results do not depend on how
//! many there are. A complex number is a pair of elements in the last dim. Where several matrices fail, the error is
//! that of the first. `opfuse_linalg` has the algorithms; here are strides, batches and errors.

#[cfg(feature = "linalg")]
mod batch;
#[cfg(feature = "linalg")]
mod errors;
mod permutation;
#[cfg(feature = "linalg")]
mod work;

use super::elements::Operands;
use crate::error::Result;
use crate::ir::{Attr, MatrixWork, Op};

/// Does the work on every matrix.
///
/// # Errors
/// If a matrix has no result.
pub(super) fn run(op: Op, work: MatrixWork, attrs: &[Attr], operands: Operands<'_>) -> Result<()> {
    if work == MatrixWork::Permutation {
        return permutation::run(operands);
    }
    dense(op, work, attrs, operands)
}

#[cfg(feature = "linalg")]
fn dense(op: Op, work: MatrixWork, attrs: &[Attr], operands: Operands<'_>) -> Result<()> {
    use crate::error::Error;
    use crate::ir::DType;
    use crate::ir::infer::matrices::of_pairs;
    use opfuse_linalg::Complex;
    match operands.inputs.array(0).dtype() {
        DType::F32 if of_pairs(op, attrs) => work::run::<Complex<f32>>(work, attrs, operands),
        DType::F64 if of_pairs(op, attrs) => work::run::<Complex<f64>>(work, attrs, operands),
        DType::F32 => work::run::<f32>(work, attrs, operands),
        DType::F64 => work::run::<f64>(work, attrs, operands),
        found @ (DType::Bool
        | DType::U8
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::F16
        | DType::BF16) => Err(Error::invalid("plan", format!("{} of dtype {found}", work.name()))),
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
}

#[cfg(not(feature = "linalg"))]
fn dense(_: Op, work: MatrixWork, _: &[Attr], _: Operands<'_>) -> Result<()> {
    let what = "this build has no linear algebra; build opfuse with its feature `linalg`".into();
    Err(crate::error::Error::NotImplemented { op: work.name().into(), what })
}
