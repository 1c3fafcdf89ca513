//! The overloads of binary rows that take a plain number.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::Result;
use crate::ir::row::Schema;
use crate::ir::{Op, Scalar};
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    for &op in Op::ALL {
        let Schema::Binary("Tensor") = op.row().schema else { continue };
        let (right, left) = overloads(op);
        library.def_kernel(
            &format!("{}.{right}(Tensor self, Scalar other) -> Tensor", op.name()),
            move |x: &Tensor, number: Scalar| call(op, &[x, &Tensor::number(number)?], &[]),
        )?;
        if let Some(left) = left {
            library.def_kernel(
                &format!("{}.{left}(Scalar self, Tensor other) -> Tensor", op.name()),
                move |number: Scalar, x: &Tensor| call(op, &[&Tensor::number(number)?, x], &[]),
            )?;
        }
    }
    library
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

/// The names of the overloads with the number on the right and, where there is one, with the number on the left.
/// Operators are named as they came to be; only these differ from the rest.
fn overloads(op: Op) -> (&'static str, Option<&'static str>) {
    match op.name() {
        "bitwise_left_shift" | "bitwise_right_shift" => ("Tensor_Scalar", Some("Scalar_Tensor")),
        "bitwise_and" | "bitwise_or" | "bitwise_xor" | "remainder" => ("Scalar", Some("Scalar_Tensor")),
        "xlogy" => ("Scalar_Other", Some("Scalar_Self")),
        _ => ("Scalar", None),
    }
}
