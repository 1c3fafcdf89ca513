//! Methods that write to their tensor.
//!
//! Every method that is one row of the op table and may be written in place is written down once, by [`row_methods`],
//! and gives both forms: they differ in nothing but the call. The in-place forms of composite operators call the
//! operator `x_`, so gradients, traces and modes see what `mutation.rs` says of it. None returns the tensor: it is
//! there already. Sizes, strides and dtype of a tensor never change.

use crate::dispatch::composite::Composite;
use crate::error::Result;
use crate::ir::Scalar;
use crate::ops::mutation::copy_operator;
use crate::ops::operators::Operand;
use crate::tensor::handle::Tensor;

/// Methods that are one row of the op table each, and their in-place forms.
///
/// ```text
/// /// Documentation of the method.
/// method method_(argument: Type) |x, call| call(Op::Row, &[x, argument], &[Attr::None]);
/// ```
macro_rules! row_methods {
    ($(
        $(#[$doc:meta])*
        $name:ident $in_place:ident $(<$($life:lifetime),+>)? ($($argument:ident: $ty:ty),*)
        |$x:ident, $call:ident| $body:expr;
    )*) => {$(
        $(#[$doc])*
        pub fn $name $(<$($life),+>)? (&self, $($argument: $ty),*) -> $crate::error::Result<Tensor> {
            let ($x, $call) = (self, $crate::dispatch::rows::call);
            $body
        }

        #[doc = concat!("In-place form of [`Tensor::", stringify!($name), "`]: the result takes the place of the")]
        /// elements, and views of them see it. Sizes and dtype stay.
        ///
        /// # Errors
        #[doc = concat!("As [`Tensor::", stringify!($name), "`] and [`Tensor::copy_`], or if the result has other sizes")]
        /// or a dtype of a higher category.
        pub fn $in_place $(<$($life),+>)? (&self, $($argument: $ty),*) -> $crate::error::Result<()> {
            let ($x, $call) = (self, $crate::ops::mutation::call_in_place);
            $body
        }
    )*};
}
pub(crate) use row_methods;

/// In-place methods that are one operator each.
///
/// ```text
/// method method_ "aten::operator_" (argument: Type) (self, argument);
/// ```
macro_rules! operator_methods {
    ($($name:ident $in_place:ident $operator:literal ($($argument:ident: $ty:ty),*) ($x:ident $(, $value:expr)*);)*) => {$(
        #[doc = concat!("In-place form of [`Tensor::", stringify!($name), "`]: views of the same elements see it. Sizes")]
        /// and dtype stay.
        ///
        /// # Errors
        #[doc = concat!("As [`Tensor::", stringify!($name), "`] and [`Tensor::copy_`].")]
        pub fn $in_place(&$x, $($argument: $ty),*) -> Result<()> {
            static OPERATOR: Composite = Composite::new($operator);
            OPERATOR.call::<_, Tensor>(($x, $($value),*)).map(|_| ())
        }
    )*};
}

/// Element by element.
impl Tensor {
    operator_methods! {
        celu celu_ "aten::celu_" (alpha: impl Into<Scalar>) (self, alpha.into());
        nan_to_num nan_to_num_ "aten::nan_to_num_" (nan: Option<f64>, posinf: Option<f64>, neginf: Option<f64>)
            (self, nan, posinf, neginf);
        dropout dropout_ "aten::dropout_" (p: f64, training: bool) (self, p, training);
    }

    /// In-place form of [`Tensor::float_power`]: views of the same elements see it. The result is rounded to the dtype.
    ///
    /// # Errors
    /// As [`Tensor::float_power`] and [`Tensor::copy_`], and for integers and bools.
    pub fn float_power_<'a>(&self, exponent: impl Into<Operand<'a>>) -> Result<()> {
        static NUMBER: Composite = Composite::new("aten::float_power_.Scalar");
        static TENSOR: Composite = Composite::new("aten::float_power_.Tensor");
        match exponent.into() {
            Operand::Number(exponent) => NUMBER.call::<_, Tensor>((self, exponent)),
            exponent => TENSOR.call::<_, Tensor>((self, &*exponent.tensor()?)),
        }
        .map(|_| ())
    }
}

/// Writes to elements by index.
impl Tensor {
    operator_methods! {
        index_put index_put_ "aten::index_put_" (indices: &[Option<Tensor>], values: &Tensor, accumulate: bool)
            (self, indices, values, accumulate);
        index_add index_add_ "aten::index_add_" (dim: i64, index: &Tensor, source: &Tensor)
            (self, dim, index, source, Scalar::Int(1));
        index_add_scaled index_add_scaled_ "aten::index_add_"
            (dim: i64, index: &Tensor, source: &Tensor, alpha: impl Into<Scalar>)
            (self, dim, index, source, alpha.into());
        index_copy index_copy_ "aten::index_copy_" (dim: i64, index: &Tensor, source: &Tensor)
            (self, dim, index, source);
        index_fill index_fill_ "aten::index_fill_.int_Scalar" (dim: i64, index: &Tensor, value: impl Into<Scalar>)
            (self, dim, index, value.into());
        index_fill_with index_fill_with_ "aten::index_fill_.int_Tensor" (dim: i64, index: &Tensor, value: &Tensor)
            (self, dim, index, value);
        put put_ "aten::put_" (index: &Tensor, source: &Tensor, accumulate: bool) (self, index, source, accumulate);
        masked_scatter masked_scatter_ "aten::masked_scatter_" (mask: &Tensor, source: &Tensor) (self, mask, source);
        scatter_value scatter_value_ "aten::scatter_.value" (dim: i64, index: &Tensor, value: impl Into<Scalar>)
            (self, dim, index, value.into());
    }
}

/// Overwriting.
impl Tensor {
    /// Overwrites its elements with those of `source`, broadcast to its sizes and converted to its dtype; views of the
    /// same elements see it.
    ///
    /// # Errors
    /// If the sizes do not broadcast, several elements of the target are one (clone it first), or gradients are recorded
    /// and it is a leaf that requires them.
    pub fn copy_(&self, source: &Tensor) -> Result<()> {
        copy_operator()?.call::<_, Tensor>((self, source, false)).map(|_| ())
    }

    /// Overwrites every element with a number, also where several elements are one, as in an expanded tensor; see
    /// [`Tensor::copy_`].
    ///
    /// # Errors
    /// If the number does not fit the dtype, or gradients are recorded and it is a leaf that requires them.
    pub fn fill_(&self, value: impl Into<Scalar>) -> Result<()> {
        let value = value.into();
        value.need_fit("fill_", self.dtype())?;
        self.each_once()?.copy_(&Tensor::full(&[], value, self.dtype())?)
    }

    /// Overwrites every element with zero; see [`Tensor::fill_`].
    ///
    /// # Errors
    /// If gradients are recorded and it is a leaf that requires them.
    pub fn zero_(&self) -> Result<()> {
        self.fill_(0)
    }

    /// The elements without those that expanding repeats.
    fn each_once(&self) -> Result<Tensor> {
        let repeats = |&dim: &usize| self.sizes()[dim] > 1 && self.strides()[dim] == 0;
        (0..self.dim()).filter(repeats).try_fold(self.clone(), |once, dim| once.slice(dim as i64, 0, 1, 1))
    }
}
