//! The names of the ops of the table.
//!
//! A name is plain data: a graph holds it, a pass compares it. Its row in [`super::table`] gives the meaning.

macro_rules! names {
    (
        unary { $($(#[$udoc:meta])* $Unary:ident $uname:ident $uwrite:ident $urule:ident |$ux:ident| $ubody:expr; $ud:tt;)* }
        binary { $($(#[$bdoc:meta])* $Binary:ident $bname:ident $bwrite:ident $boverload:literal $brule:ident |$ba:ident, $bb:ident| $bbody:expr; $bd:tt;)* }
        other { $($(#[$odoc:meta])* $Other:ident $(: $Shared:ident)? $({ $($field:tt)* })? = $row:expr;)* }
    ) => {
        /// An op of the table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Op { $($(#[$udoc])* $Unary,)* $($(#[$bdoc])* $Binary,)* $($(#[$odoc])* $Other,)* }

        impl Op {
            /// Every op, in table order.
            pub const ALL: &[Op] = &[$(Op::$Unary,)* $(Op::$Binary,)* $(Op::$Other,)*];
        }
    };
}

crate::for_each_op!(names);
