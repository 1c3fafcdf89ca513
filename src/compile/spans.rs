//! Spans of the `tracing` crate: captures, compilations, and calls of compiled functions.
//!
//! `docs/profiling.md` describes names and fields. Without the feature `tracing` a span holds nothing and does nothing.

use super::passes_page::Subject;

/// A span that ends when it is dropped.
#[must_use]
pub(super) struct Span {
    #[cfg(feature = "tracing")]
    _entered: tracing::span::EnteredSpan,
}

/// Enters a span of this level and name, with fields.
#[cfg(feature = "tracing")]
macro_rules! enter {
    ($level:ident, $name:literal, $($field:ident),+) => {
        Span { _entered: tracing::span!(target: "opfuse", tracing::Level::$level, $name, $($field),+).entered() }
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! enter {
    ($level:ident, $name:literal, $($field:ident),+) => {{
        let _unused = ($($field),+,);
        Span {}
    }};
}

/// A call of a compiled function.
#[inline(always)]
pub(super) fn call(function: &'static str) -> Span {
    enter!(TRACE, "call", function)
}

/// A capture of a function.
pub(super) fn capture(function: &'static str) -> Span {
    enter!(DEBUG, "capture", function)
}

/// Passes, planning and compilation of a traced graph of so many nodes.
pub(super) fn compile(traced: Subject, nodes: usize) -> Span {
    let (part, function) = match traced {
        Subject::Graph => ("graph", ""),
        Subject::Function(function) => ("function", function),
        Subject::Backward(function) => ("backward", function),
        Subject::Segment(function) => ("segment", function),
    };
    enter!(DEBUG, "compile", function, part, nodes)
}
