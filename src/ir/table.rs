//! The rows of the op table, built from its text in [`super::ops`].
//!
//! This file imports every scalar body, inference rule, decomposition and derivative that a row names. Nothing imports
//! it: [`Op::row`] gives the row of an op.

use super::attr::Attrs;
use super::attrs::*;
use super::autodiff::{
    Derivative, activations, factorizations, fourier, matrices, pointwise, products, reductions, scans, scatters,
    strided, views,
};
use super::bodies::*;
use super::convolution;
use super::decompose;
use super::indexing;
use super::infer;
use super::moves;
use super::op::Op;
use super::pooling;
use super::random;
use super::routine::{Fourier, MatrixWork, Routine, Scan, Write};
use super::row::{Combine, GatherKind, Meaning, Row, Rule, Schema};
use super::scalar::Prim;
use super::slopes;
use super::view;
use super::window_product;
use smallvec::smallvec;

/// A scalar body that reads the arguments of the call by name: `body!(Rule, |x, Variant { name }| expression)`.
macro_rules! body {
    ($rule:ident, |$x:ident, $attrs:pat_param| $value:expr) => {
        Meaning::Body(Rule::$rule, |$x, attrs| {
            let $attrs = Attributes::read(attrs);
            $value
        })
    };
}

macro_rules! rows {
    (
        unary { $($(#[$udoc:meta])* $Unary:ident $uname:ident $uwrite:ident $urule:ident |$ux:ident| $ubody:expr; $ud:tt;)* }
        binary { $($(#[$bdoc:meta])* $Binary:ident $bname:ident $bwrite:ident $boverload:literal $brule:ident |$ba:ident, $bb:ident| $bbody:expr; $bd:tt;)* }
        other { $($(#[$odoc:meta])* $Other:ident $(: $Shared:ident)? $({ $($field:tt)* })? = $row:expr;)* }
    ) => {
        static ROWS: [Row; Op::ALL.len()] = [
            $(Row {
                name: stringify!($uname),
                schema: Schema::Unary,
                infer: infer::pointwise,
                meaning: Meaning::Body(Rule::$urule, |x, _| { let $ux = x[0]; $ubody }),
                derivative: unary_derivative!($ud),
            },)*
            $(Row {
                name: stringify!($bname),
                schema: Schema::Binary($boverload),
                infer: infer::pointwise,
                meaning: Meaning::Body(Rule::$brule, |x, _| { let ($ba, $bb) = (x[0], x[1]); $bbody }),
                derivative: binary_derivative!($bd),
            },)*
            $($row,)*
        ];
    };
}

/// The derivative column of a row under `unary`.
macro_rules! unary_derivative {
    (none) => {
        Derivative::None
    };
    (zero) => {
        Derivative::Zero
    };
    ((|$x:ident, $y:ident| $d:expr)) => {
        unary_derivative!((|$x, $y, g| g * $d))
    };
    ((|$x:ident, $y:ident, $g:ident| $d:expr)) => {
        Derivative::Pointwise(|call| {
            let ($x, $y, $g) = (call.args[0], call.result, call.grad);
            let _ = ($x, $y);
            smallvec![Some($d)]
        })
    };
}

/// The derivative column of a row under `binary`.
macro_rules! binary_derivative {
    (none) => {
        Derivative::None
    };
    (zero) => {
        Derivative::Zero
    };
    ((|$a:ident, $b:ident, $y:ident| [$da:expr, $db:expr])) => {
        binary_derivative!((|$a, $b, $y, g| [g * $da, g * $db]))
    };
    ((|$a:ident, $b:ident, $y:ident, $g:ident| $d:expr)) => {
        Derivative::Pointwise(|call| {
            let ($a, $b, $y, $g) = (call.args[0], call.args[1], call.result, call.grad);
            let _ = ($a, $b, $y);
            let [first, second] = $d;
            smallvec![Some(first), Some(second)]
        })
    };
}

crate::for_each_op!(rows);

impl Op {
    /// The op's row.
    pub fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// The op of that name.
    pub fn from_name(name: &str) -> Option<Op> {
        Op::ALL.iter().copied().find(|op| op.name() == name)
    }
}
