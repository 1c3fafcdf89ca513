//! Non-tensor arguments by name.
//!
//! A graph and a call hold arguments as a list in schema order, [`Attrs`]. Code that wants one of them reads the list
//! as a struct with a field per argument: `let Slice { dim, step, .. } = Slice::read(&node.attrs)`. It makes a list the
//! same way: `Unsqueeze { dim: 1 }.into()`. No code counts positions.
//!
//! The op table declares the fields of each op, beside its schema; [`Op::attr_names`] lists them. Ops with equal
//! arguments share a struct. Structs that no single op is named after are declared here. A struct whose fields are the
//! first ones of another reads that one's lists too: [`Fold`] reads the arguments of every reduction.

use super::attr::{Attr, Attrs, MemoryFormat};
use super::dtype::DType;
use super::op::Op;
use super::scalar::Scalar;
use smallvec::SmallVec;

/// A list of whole numbers: sizes, strides, dims.
pub type Ints = SmallVec<[i64; 4]>;

/// Sizes or dims as an argument.
pub fn ints(numbers: &[usize]) -> Ints {
    numbers.iter().map(|&number| number as i64).collect()
}

/// The arguments of some ops, by name.
pub trait Attributes: Sized + Into<Attrs> {
    /// The names in schema order.
    const NAMES: &'static [&'static str];

    /// Reads a list. An argument that is missing, or of another kind, has its default.
    fn read(attrs: &[Attr]) -> Self;

    /// The first argument that its field cannot hold, with its name: a string that names no variant.
    fn misfit(attrs: &[Attr]) -> Option<(&'static str, &Attr)>;
}

/// The type of a field.
pub trait Attribute: Sized {
    /// The value of an argument that is not given.
    fn absent() -> Self;

    /// The value, if the argument is given and of this kind.
    fn read(attr: &Attr) -> Option<Self>;

    /// The value as an argument.
    fn attr(self) -> Attr;

    /// Whether this type has a value for the argument.
    fn holds(_: &Attr) -> bool {
        true
    }
}

impl Attribute for bool {
    fn absent() -> bool {
        false
    }
    fn read(attr: &Attr) -> Option<bool> {
        attr.scalar().map(Scalar::as_bool)
    }
    fn attr(self) -> Attr {
        Attr::bool(self)
    }
}

impl Attribute for i64 {
    fn absent() -> i64 {
        0
    }
    fn read(attr: &Attr) -> Option<i64> {
        attr.as_int()
    }
    fn attr(self) -> Attr {
        Attr::int(self)
    }
}

impl Attribute for f64 {
    fn absent() -> f64 {
        0.0
    }
    fn read(attr: &Attr) -> Option<f64> {
        attr.scalar().map(Scalar::as_f64)
    }
    fn attr(self) -> Attr {
        Attr::float(self)
    }
}

impl Attribute for Scalar {
    fn absent() -> Scalar {
        Scalar::Int(0)
    }
    fn read(attr: &Attr) -> Option<Scalar> {
        attr.scalar()
    }
    fn attr(self) -> Attr {
        Attr::Scalar(self)
    }
}

impl Attribute for Ints {
    fn absent() -> Ints {
        SmallVec::new()
    }
    fn read(attr: &Attr) -> Option<Ints> {
        Some(attr.list())
    }
    fn attr(self) -> Attr {
        Attr::Ints(self)
    }
}

impl Attribute for DType {
    fn absent() -> DType {
        DType::DEFAULT_FLOAT
    }
    fn read(attr: &Attr) -> Option<DType> {
        attr.dtype()
    }
    fn attr(self) -> Attr {
        Attr::DType(self)
    }
}

impl Attribute for MemoryFormat {
    fn absent() -> MemoryFormat {
        MemoryFormat::Preserve
    }
    fn read(attr: &Attr) -> Option<MemoryFormat> {
        attr.memory_format()
    }
    fn attr(self) -> Attr {
        Attr::from(self)
    }
}

impl<T: Attribute> Attribute for Option<T> {
    fn absent() -> Option<T> {
        None
    }
    fn read(attr: &Attr) -> Option<Option<T>> {
        Some(T::read(attr))
    }
    fn attr(self) -> Attr {
        self.map_or(Attr::None, T::attr)
    }
    fn holds(attr: &Attr) -> bool {
        T::holds(attr)
    }
}

/// Declares an enum for an argument that the schema calls `str`, with the string of each variant.
macro_rules! words {
    ($($(#[$doc:meta])* $Name:ident { $($(#[$variant_doc:meta])* $Variant:ident = $word:literal,)* } absent $Absent:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $Name { $($(#[$variant_doc])* $Variant,)* }

        impl Attribute for $Name {
            fn absent() -> $Name {
        $Name::$Absent
    }
            fn read(attr: &Attr) -> Option<$Name> {
                match attr.word() {
                    $($word => Some($Name::$Variant),)*
                    _ => None,
                }
            }
            fn attr(self) -> Attr {
                Attr::Str(match self { $($Name::$Variant => $word,)* }.into())
            }
            fn holds(attr: &Attr) -> bool {
                attr.word().is_empty() || <$Name as Attribute>::read(attr).is_some()
            }
        }
    )*};
}

words! {
    /// How a quotient is rounded.
    Rounding {
        /// Toward 0.
        Trunc = "trunc",
        /// Down.
        Floor = "floor",
    } absent Trunc
    /// How a Gaussian error linear unit is computed.
    Approximation {
        /// By the error function.
        Exact = "none",
        /// By a hyperbolic tangent.
        Tanh = "tanh",
    } absent Exact
    /// How elements that are written to the same place are combined.
    Reducer {
        /// Their sum.
        Sum = "sum",
        /// Their product.
        Prod = "prod",
        /// Their mean.
        Mean = "mean",
        /// The greatest.
        Amax = "amax",
        /// The least.
        Amin = "amin",
    } absent Sum
}

/// The default of a field: the one that is declared, or that of its type.
macro_rules! absent {
    ($fty:ty) => {
        <$fty as Attribute>::absent()
    };
    ($fty:ty, $default:expr) => {
        $default
    };
}

macro_rules! attributes {
    ($($(#[$doc:meta])* $Name:ident { $($field:ident: $fty:ty $(= $default:expr)?),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $Name {
            $(#[doc = concat!("`", stringify!($field), "` of the schema.")] pub $field: $fty,)*
        }

        impl Attributes for $Name {
            const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];

            fn read(attrs: &[Attr]) -> $Name {
                let mut attrs = attrs.iter();
                $(
                    let given = attrs.next().and_then(<$fty as Attribute>::read);
                    let $field = given.unwrap_or(absent!($fty $(, $default)?));
                )*
                $Name { $($field),* }
            }

            fn misfit(attrs: &[Attr]) -> Option<(&'static str, &Attr)> {
                let mut attrs = attrs.iter();
                $(
                    if let Some(attr) = attrs.next().filter(|attr| !<$fty as Attribute>::holds(attr)) {
                        return Some((stringify!($field), attr));
                    }
                )*
                None
            }
        }

        impl From<$Name> for Attrs {
            #[inline]
            fn from(attrs: $Name) -> Attrs {
                let mut list = Attrs::new();
                $(list.push(Attribute::attr(attrs.$field));)*
                list
            }
        }
    )*};
}

attributes! {
    /// One number that every element is compared or combined with, or replaced by.
    Value { value: Scalar }
    /// A memory format.
    Ordered { memory_format: MemoryFormat }
    /// The dims that a reduction runs over (an empty list means all), and whether they stay with size 1.
    Fold { dim: Ints, keepdim: bool }
    /// The dtype of a [`ToCopy`] that keeps the order of memory.
    Cast { dtype: Option<DType> }
    /// As [`Fold`], with the dtype of the result.
    FoldTo { dim: Ints, keepdim: bool, dtype: Option<DType> }
    /// A dim.
    Along { dim: i64 }
    /// Dims that are reduced or dropped. It reads the lists of all reductions, [`Var`] included.
    DimList { dim: Ints }
    /// A list of dims.
    Dims { dims: Ints }
    /// Sizes of the result.
    Shape { size: Ints }
    /// Sizes and dtype of the result.
    Drawn { size: Ints, dtype: Option<DType> }
    /// The main diagonal or one beside it.
    Triangle { diagonal: i64 }
    /// Whether a matrix that cannot be factored is an error, or gives NaNs and infinities; [`OfPairs`].
    Checked { check: bool, pairs: bool }
    /// Whether singular vectors are as many as rows and columns; [`OfPairs`].
    SvdFactors { full: bool, pairs: bool }
    /// Whether matrices and the result are of complex numbers, which are pairs in one more dim, the last.
    OfPairs { pairs: bool }
}

macro_rules! structs_of_rows {
    (
        unary { $($(#[$udoc:meta])* $Unary:ident $uname:ident $uwrite:ident $urule:ident |$ux:ident| $ubody:expr; $ud:tt;)* }
        binary { $($(#[$bdoc:meta])* $Binary:ident $bname:ident $bwrite:ident $boverload:literal $brule:ident |$ba:ident, $bb:ident| $bbody:expr; $bd:tt;)* }
        other { $($(#[$odoc:meta])* $Other:ident $(: $Shared:ident)? $({ $($field:tt)* })? = $row:expr;)* }
    ) => {
        $($(
            attributes! {
                #[doc = concat!("Non-tensor arguments of [`Op::", stringify!($Other), "`].")]
                $Other { $($field)* }
            }
        )?)*

        /// The names of each row's arguments.
        static NAMES: [&[&str]; Op::ALL.len()] = [
            $(names_of!($Unary),)*
            $(names_of!($Binary),)*
            $(names_of!($Other $(: $Shared)? $({ $($field)* })?),)*
        ];
    };
}

/// The names of the arguments of one row.
macro_rules! names_of {
    ($Op:ident) => {
        &[]
    };
    ($Op:ident: $Shared:ident) => {
        <$Shared as Attributes>::NAMES
    };
    ($Op:ident { $($field:tt)* }) => {
        <$Op as Attributes>::NAMES
    };
}

crate::for_each_op!(structs_of_rows);

impl Op {
    /// The names of its non-tensor arguments, in the order of the schema.
    pub fn attr_names(self) -> &'static [&'static str] {
        NAMES[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the arguments that a list holds: all but tensors, and optional tensors too.
    fn names_in_schema(schema: &str) -> Vec<&str> {
        let (_, inside) = schema.split_once('(').expect("a schema has arguments");
        let (inside, _) = inside.rsplit_once(") ->").expect("a schema has a result");
        let is_tensor = |ty: &str| ty.starts_with("Tensor") && ty != "Tensor?";
        let arguments = inside.split(", ").filter_map(|argument| argument.split_once(' '));
        arguments.filter(|(ty, _)| !is_tensor(ty)).map(|(_, name)| name.split('=').next().unwrap_or(name)).collect()
    }

    #[test]
    fn rows_declare_the_arguments_of_their_schemas() {
        for &op in Op::ALL {
            assert_eq!(op.attr_names(), names_in_schema(&op.schema()), "{}", op.schema());
        }
    }

    #[test]
    fn lists_come_back_as_they_were() {
        let attrs: Attrs = Slice { dim: 1, start: None, end: Some(4), step: 2 }.into();
        assert_eq!(Slice::read(&attrs), Slice { dim: 1, start: None, end: Some(4), step: 2 });
        assert_eq!(Slice::read(&attrs[..1]), Slice { dim: 1, start: None, end: None, step: 1 });
        assert_eq!(DivMode::misfit(&[Attr::Str("up".into())]), Some(("rounding_mode", &Attr::Str("up".into()))));
    }
}
