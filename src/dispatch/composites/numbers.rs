//! The overloads of binary rows that take a plain number.

use crate::dispatch::library::Library;
use crate::dispatch::register::call;
use crate::dispatch::tensor::Tensor;
use crate::error::Result;
use crate::ir::op::Schema;
use crate::ir::{Op, Scalar};

pub(super) fn register(library: &mut Library) -> Result<()> {
    for &op in Op::ALL {
        let Schema::Binary("Tensor") = op.row().schema else { continue };
        library.def_kernel(
            &format!("{}.Scalar(Tensor self, Scalar other) -> Tensor", op.name()),
            move |x: &Tensor, number: Scalar| call(op, &[x, &Tensor::number(number)?], &[]),
        )?;
    }
    library
        .def_kernel("pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor", |x: &Tensor, number: Scalar| {
            x.pow(number)
        })?
        .def_kernel(
            "add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
            |x: &Tensor, number: Scalar, alpha: Scalar| x.add_scaled(number, alpha),
        )?
        .def_kernel(
            "sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
            |x: &Tensor, number: Scalar, alpha: Scalar| x.sub_scaled(number, alpha),
        )?;
    Ok(())
}
