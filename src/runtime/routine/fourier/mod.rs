//! Discrete Fourier transforms along a dim.
//!
//! One line is transformed by one thread, and threads share the lines. All lines of one length take the same path,
//! wherever they lie. So results do not depend on threads, strides or batches. `opfuse_fourier` has the algorithms.
//! Here are strides (`lines`), memory and threads (`work`), and plans that are kept (`plans`).

#[cfg(feature = "fourier")]
mod lines;
#[cfg(feature = "fourier")]
mod plans;
#[cfg(feature = "fourier")]
mod work;

use super::elements::Operands;
use crate::error::Result;
use crate::ir::{Attr, Fourier, Op};

/// Transforms every line.
///
/// # Errors
/// If there is no memory.
#[cfg(feature = "fourier")]
pub(super) fn run(op: Op, kind: Fourier, attrs: &[Attr], operands: Operands<'_>) -> Result<()> {
    use crate::error::Error;
    use crate::ir::DType;
    match operands.inputs.array(0).dtype() {
        DType::F32 => work::run::<f32>(op, kind, attrs, operands),
        DType::F64 => work::run::<f64>(op, kind, attrs, operands),
        found @ (DType::Bool
        | DType::U8
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::F16
        | DType::BF16
        | DType::Complex64
        | DType::Complex128) => Err(Error::invalid("plan", format!("{} of dtype {found}", op.name()))),
    }
}

#[cfg(not(feature = "fourier"))]
pub(super) fn run(op: Op, _: Fourier, _: &[Attr], _: Operands<'_>) -> Result<()> {
    let what = "this build has no Fourier transforms; build opfuse with its feature `fourier`".into();
    Err(crate::error::Error::NotImplemented { op: op.name().into(), what })
}
