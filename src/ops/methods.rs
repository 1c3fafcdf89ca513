//! The methods of the op table's regular rows: element-wise, with one or two operands and no other arguments.
//!
//! Each has a form that returns a new tensor, `x.relu()`, and an in-place form, `x.relu_()`; see `in_place.rs`. The
//! table has their names and documentation. The methods of all other operators are in the files of their subjects. A
//! method checks nothing, because the inference of the row does.

use crate::ir::Op;
use crate::ops::in_place::row_methods;
use crate::ops::rust_operators::Operand;
use crate::tensor::handle::Tensor;

/// The dtype of the result under a promotion rule, as a sentence for the docs of a method.
macro_rules! dtypes {
    (Promote) => {
        "The result has the common dtype of the operands."
    };
    (Factor) => {
        "The result has the common dtype of the operands."
    };
    (PromoteNum) => {
        "The result has the common dtype of the operands, which must not be bool."
    };
    (PromoteCounting) => {
        "The result has the common dtype of the operands, or i64 for bools."
    };
    (PromoteFloat) => {
        "The result has the common dtype of the operands, or f32 if that is not floating."
    };
    (Division) => {
        "The result has the common dtype of the operands, or f32 if that is not floating."
    };
    (FloatOnly) => {
        "The result has the common dtype of the operands, which must be floating."
    };
    (Integral) => {
        "The result has the common dtype of the operands, which must be an integer or bool."
    };
    (Whole) => {
        "The result has the common dtype of the operands, which must be an integer."
    };
    (Compare) => {
        "Operands are converted to their common dtype. The result is bool."
    };
    (Predicate) => {
        "The result is bool."
    };
}

macro_rules! regular_methods {
    (
        unary { $($(#[$udoc:meta])* $Unary:ident $uname:ident $uwrite:ident $urule:ident |$ux:ident| $ubody:expr; $ud:tt;)* }
        binary { $($(#[$bdoc:meta])* $Binary:ident $bname:ident $bwrite:ident $boverload:literal $brule:ident |$ba:ident, $bb:ident| $bbody:expr; $bd:tt;)* }
        other { $($(#[$odoc:meta])* $Other:ident $(: $Shared:ident)? $({ $($field:tt)* })? = $row:expr;)* }
    ) => {
        /// Element-wise methods of the op table's regular rows.
        impl Tensor {
            row_methods! {
                $(
                    $(#[$udoc])*
                    ///
                    /// Sizes are kept.
                    #[doc = dtypes!($urule)]
                    ///
                    /// # Errors
                    /// If the operator does not accept the dtype.
                    $uname $uwrite() |x, call| call(Op::$Unary, &[x], &[]);
                )*
                $(
                    $(#[$bdoc])*
                    ///
                    /// Sizes are broadcast.
                    #[doc = dtypes!($brule)]
                    ///
                    /// # Errors
                    /// If the sizes do not broadcast, or if the operator does not accept a dtype.
                    $bname $bwrite<'a>(other: impl Into<Operand<'a>>)
                        |x, call| call(Op::$Binary, &[x, &*other.into().tensor()?], &[]);
                )*
            }
        }
    };
}

crate::for_each_op!(regular_methods);
