//! Methods that write to their tensor: `copy_`, `fill_`, `zero_`, and the macros that make the others.
//!
//! [`row_methods`] declares a method that is one row of the op table and its in-place form at once: they differ only in
//! the call. The in-place form of a composite calls the operator `x_` ([`in_place_methods`]), which `written_forms.rs`
//! defines, so gradients, traces and modes see it. In-place methods return `()`. Sizes, strides and dtype of a tensor
//! never change.

use crate::dispatch::builtins::{copy_operator, in_place};
use crate::dispatch::library::Library;
use crate::error::Result;
use crate::ir::{Op, Scalar};
use crate::ops::composite::Composite;
use crate::ops::mutation::fill_with_number;
use crate::tensor::handle::Tensor;

static ZERO: Composite = Composite::new("zero_(Tensor(a!) self) -> Tensor(a!)");

/// Methods that are one row of the op table, and their in-place forms.
///
/// ```text
/// /// Documentation of the method.
/// method method_(argument: Type) |x, call| call(Op::Row, &[x], &Attrs::from(Row { argument }));
/// ```
macro_rules! row_methods {
    ($(
        $(#[$doc:meta])*
        $name:ident $in_place:ident $(<$($life:lifetime),+>)? ($($argument:ident: $ty:ty),*)
        |$x:ident, $call:ident| $body:expr;
    )*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name $(<$($life),+>)? (&self, $($argument: $ty),*) -> $crate::error::Result<Tensor> {
            let ($x, $call) = (self, $crate::dispatch::rows::call);
            $body
        }

        #[doc = concat!("In-place form of [`Tensor::", stringify!($name), "`]: writes the result to this tensor.")]
        /// Views of the same elements change too. Sizes and dtype are kept.
        ///
        /// # Errors
        #[doc = concat!("Same as [`Tensor::", stringify!($name), "`] and [`Tensor::copy_`].")]
        /// Also if the result has other sizes or a dtype of a higher category.
        #[track_caller]
        pub fn $in_place $(<$($life),+>)? (&self, $($argument: $ty),*) -> $crate::error::Result<()> {
            let ($x, $call) = (self, $crate::ops::mutation::call_in_place);
            $body
        }
    )*};
}
pub(crate) use row_methods;

/// In-place methods of composites.
///
/// ```text
/// method method_ COMPOSITE (argument: Type) (self, argument);
/// ```
macro_rules! in_place_methods {
    ($(
        $name:ident $in_place:ident $composite:ident ($($argument:ident: $ty:ty),*) ($x:ident $(, $value:expr)*);
    )*) => {$(
        #[doc = concat!("In-place form of [`Tensor::", stringify!($name), "`]. Views of the same elements change too.")]
        /// Sizes and dtype are kept.
        ///
        /// # Errors
        #[doc = concat!("Same as [`Tensor::", stringify!($name), "`] and [`Tensor::copy_`].")]
        #[track_caller]
        pub fn $in_place(&$x, $($argument: $ty),*) -> $crate::error::Result<()> {
            $composite.call_in_place(($x, $($value),*))
        }
    )*};
}
pub(crate) use in_place_methods;

/// Writing.
impl Tensor {
    /// Copies the elements of `source` into this tensor. They are broadcast to its sizes and converted to its dtype.
    /// Views of the same elements change too.
    ///
    /// # Errors
    /// If the sizes do not broadcast. If several elements of this tensor share memory (clone it first). If gradients
    /// are recorded and this is a leaf that requires them.
    #[track_caller]
    pub fn copy_(&self, source: &Tensor) -> Result<()> {
        copy_operator()?.call::<_, Tensor>((self, source, false)).map(|_| ())
    }

    /// Fills the tensor with a number. Several elements may share memory, as in an expanded tensor. See
    /// [`Tensor::copy_`].
    ///
    /// # Errors
    /// If the number does not fit the dtype, or if gradients are recorded and this is a leaf that requires them.
    #[track_caller]
    pub fn fill_(&self, value: impl Into<Scalar>) -> Result<()> {
        in_place(Op::FillScalar)?.call::<_, Tensor>((self, value.into())).map(|_| ())
    }

    /// Fills the tensor with zeros. See [`Tensor::fill_`].
    ///
    /// # Errors
    /// If gradients are recorded and this is a leaf that requires them.
    #[track_caller]
    pub fn zero_(&self) -> Result<()> {
        ZERO.call::<_, Tensor>((self,)).map(|_| ())
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library.composite(&ZERO, |x: &Tensor| fill_with_number(x, Scalar::Int(0)))?;
    Ok(())
}
