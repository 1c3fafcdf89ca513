//! The macro that expands a table of reasons: one row says all about one reason.
//!
//! ```text
//! /// What the table is about.
//! Name {
//!     /// What the variant means.
//!     Variant { /** What the field is. */ field: Type } "kind" => "sentence with {field}";
//!         "hint";
//! }
//! {
//!     /// What the rows of the other table have in common.
//!     Variant(OtherTable) "area" => "the beginning of their sentences";
//! }
//! ```
//!
//! The kind is the variant's name in snake case, which `catalog` tests. Rows of another table keep their kind, data and
//! hint. A sentence names every field: the compiler warns of one that it leaves out.

/// Expands a table to an enum with a variant per row, its kinds, sentences, hints and data.
macro_rules! reasons {
    (
        $(#[$of_enum:meta])* $name:ident {
        $($(#[$doc:meta])* $variant:ident $({ $($(#[$of_field:meta])* $field:ident: $type:ty),+ $(,)? })?
            $kind:literal => $text:literal; $hint:literal;)*
        }
        $({ $($(#[$of_area:meta])* $inner:ident($table:ty) $area:literal => $begin:literal;)* })?
    ) => {
        $(#[$of_enum])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant $({ $($(#[$of_field])* $field: $type),+ })?,)*
            $($($(#[$of_area])* $inner($table),)*)?
        }

        impl $name {
            /// The name of the row in snake case, as in JSON reports.
            pub const fn kind(&self) -> &'static str {
                match self {
                    $($name::$variant $({ $($field: _),+ })? => $kind,)*
                    $($($name::$inner(reason) => reason.kind(),)*)?
                }
            }

            /// What a user can do about it, in a sentence.
            pub const fn hint(&self) -> &'static str {
                match self {
                    $($name::$variant $({ $($field: _),+ })? => $hint,)*
                    $($($name::$inner(reason) => reason.hint(),)*)?
                }
            }

            /// The name of the nested table that the reason is a row of, or `None` for a row of this table.
            pub const fn area(&self) -> Option<&'static str> {
                match self {
                    $($($name::$inner(_) => Some($area),)*)?
                    $($name::$variant $({ $($field: _),+ })? => None,)*
                }
            }

            /// The data, by the names of the fields.
            pub(crate) fn data(&self) -> Vec<(&'static str, Datum)> {
                match self {
                    $($name::$variant $({ $($field),+ })? => vec![$($((stringify!($field), Field::datum($field))),+)?],)*
                    $($($name::$inner(reason) => reason.data(),)*)?
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $($name::$variant $({ $($field),+ })? => write!(f, $text),)*
                    $($($name::$inner(reason) => write!(f, concat!($begin, ": {}"), reason),)*)?
                }
            }
        }

        #[cfg(test)]
        impl $name {
            /// One reason of each row, with the row's text.
            pub(super) fn examples() -> Vec<(Self, &'static str)> {
                let own = [$(($name::$variant $({ $($field: Field::example()),+ })?, $text)),*];
                let inner: Vec<Vec<(Self, &'static str)>> = vec![$($(
                    <$table>::examples().into_iter().map(|(reason, text)| ($name::$inner(reason), text)).collect()
                ),*)?];
                own.into_iter().chain(inner.into_iter().flatten()).collect()
            }
        }
    };
}

pub(super) use reasons;
