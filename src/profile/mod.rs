//! Where does the time of a program go?
//!
//! While a thread is profiled, the floors above open spans here: of operators, kernels, compiled calls, captures. What
//! they cost is kept per subject, and the last spans in a ring. This floor knows times and names alone. What is
//! measured is told by those who run it. [`crate::profile()`] turns recording on.
//!
//! What always holds: spans of a thread nest, a span ends when its guard is dropped, also by a panic, and nothing that
//! is recorded changes a result. The room is bounded, and a report says what was dropped. While no thread is profiled,
//! asking whether this one is costs one load and one branch.

pub(crate) mod axes;
mod export;
mod html;
mod place;
mod recorder;
mod report;
mod text;

pub use place::{Place, at_line, scope};
pub use report::{Event, EventKind, Kind, Memory, Moment, Profile, Row, TimedSpan};

pub(crate) use place::{Located, locate, locate_in_file, place, place_key, stands_for, stands_for_maker};
pub(crate) use recorder::{
    Conditions, MemorySample, Span, Subject, Work, begin, event, is_on, key_of, n_spans, open, uncounted,
};
