//! The errors that calls return.
//!
//! A variant names the operator and the shapes, dtypes or devices involved, and says what to do.

use crate::ir::DType;
use std::fmt;

/// The result of every fallible public function.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong in a call. After any error every live tensor is intact and the next call works.
///
/// Its `Debug` text is its message, because a `main` that returns it prints that.
#[derive(Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two shapes cannot be broadcast together.
    #[error(
        "{op}: the size of tensor a ({left}) must match the size of tensor b ({right}) at non-singleton dimension \
         {dim}; shapes are {a:?} and {b:?}; sizes must be equal or 1"
    )]
    Broadcast {
        /// The operator that was called.
        op: String,
        /// Shape of the left operand.
        a: Vec<usize>,
        /// Shape of the right operand.
        b: Vec<usize>,
        /// The dimension of the result at which they disagree.
        dim: usize,
        /// The left size there.
        left: usize,
        /// The right size there.
        right: usize,
    },
    /// Shapes or arguments that the operator cannot work with.
    #[error("{op}: {what}; {hint}")]
    Shape {
        /// The operator that was called.
        op: String,
        /// What does not hold, with the shapes.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// A dimension or an index lies outside its range.
    #[error("{op}: {what} out of range (expected to be in range of [{low}, {high}], but got {got}){place}")]
    OutOfRange {
        /// The operator that was called.
        op: String,
        /// What was indexed: `Dimension`, `index`, …
        what: String,
        /// Smallest legal value.
        low: i64,
        /// Largest legal value.
        high: i64,
        /// The value found.
        got: i64,
        /// Where the call was recorded, in words, if a compiled function made it. Empty otherwise.
        place: String,
    },
    /// Indices, or a dimension, that select nothing of a tensor.
    #[error("{op}: {what}; {hint}")]
    Index {
        /// The operator that was called.
        op: String,
        /// What does not hold, with the shapes.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// A dtype that does not fit the other operands.
    #[error("{op}: found dtype {found} but expected {expected}; {hint}")]
    DType {
        /// The operator that was called.
        op: String,
        /// The dtype found.
        found: DType,
        /// What would be accepted, in words.
        expected: String,
        /// What to do about it.
        hint: String,
    },
    /// Operands on devices that cannot be combined.
    #[error("{op}: {what}; {hint}")]
    Device {
        /// The operator that was called.
        op: String,
        /// What does not hold, with the devices.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// An operator has no kernel for the call's dispatch key, or none for its dtype.
    #[error("{op}: {what}")]
    NotImplemented {
        /// The operator that was called.
        op: String,
        /// Which key was looked up and which are available, or which dtype was found and which are taken.
        what: String,
    },
    /// A matrix that has no result: it is singular, not positive definite, or not finite.
    #[error("{op}: {what}; {hint}")]
    LinearAlgebra {
        /// The operator that was called.
        op: String,
        /// What does not hold, with the place in the batch.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// A call's arguments do not fit the operator's schema.
    #[error("{op}: {what}")]
    Argument {
        /// The operator that was called.
        op: String,
        /// Argument, expected and found type, and the declaration.
        what: String,
    },
    /// A registration that the dispatcher refuses.
    #[error("{what}")]
    Registration {
        /// What is wrong, with the sites involved.
        what: String,
    },
    /// Text that does not parse: a schema, a graph, a device or key name.
    #[error("could not parse {what}: {message} at byte {at} of {text:?}")]
    Parse {
        /// What kind of text it was.
        what: String,
        /// Why it does not parse.
        message: String,
        /// Byte offset of the problem.
        at: usize,
        /// The text, or its relevant line.
        text: String,
    },
    /// A graph, plan or kernel that breaks an invariant of its form.
    #[error("invalid {what}: {message}")]
    Invalid {
        /// `graph`, `plan`, `kernel`, …
        what: String,
        /// Which invariant fails, and where.
        message: String,
    },
    /// A file that is missing, unreadable, truncated or of the wrong form.
    #[error("{path}: {message}")]
    File {
        /// The file or folder.
        path: String,
        /// What is wrong with it and what to do.
        message: String,
    },
    /// An allocation failed, or would exceed the limit of its device.
    #[error(
        "{}out of memory on {device}: wanted {wanted} bytes; {held} bytes are held{}",
        of_call(.call),
        room(*.limit)
    )]
    OutOfMemory {
        /// The operator that was called, with the types of its tensors; empty where no operator was.
        call: String,
        /// The device.
        device: String,
        /// Bytes asked for.
        wanted: usize,
        /// Bytes in use by live tensors.
        held: usize,
        /// The limit in force, `usize::MAX` for none.
        limit: usize,
    },
    /// A NaN that [`detect_anomaly`](crate::autograd::detect_anomaly) found.
    #[error("{op}: {what}; {}", called(place.as_deref()))]
    Anomaly {
        /// The derivative of the operator, as `grad_fn` names it.
        op: String,
        /// Which value has the NaN.
        what: String,
        /// The line that called the operator, if it is known.
        place: Option<String>,
    },
    /// A call of a program from a file failed.
    #[error("{error} (called by {place})")]
    Called {
        /// What was called, and where in the source that the program was exported from.
        place: String,
        /// What went wrong.
        error: Box<Error>,
    },
    /// A panic of a function that was given to [`compile`](crate::compile()), caught where it is called. All state is
    /// intact.
    #[error(
        "the compiled function panicked: {message}; standard error names the line; it is a bug in opfuse only if that \
         line is one of opfuse"
    )]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// A bug in this library, caught at the public boundary. All state is intact.
    #[error("internal error: {message}; this is a bug in opfuse, please report it")]
    Internal {
        /// The panic's message.
        message: String,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How the place of a recorded call begins.
const RECORDED: &str = " (recorded ";

/// The operator in front of a message, if there was one.
fn of_call(call: &str) -> String {
    if call.is_empty() { String::new() } else { format!("{call}: ") }
}

/// Where a call is whose values have a NaN.
fn called(place: Option<&str>) -> String {
    match place {
        Some(place) => format!("it was called at {place}"),
        None => "it was recorded without detect_anomaly, which needs its guard before the forward pass".into(),
    }
}

/// What a limit leaves to do.
fn room(limit: usize) -> String {
    match limit {
        usize::MAX => "; drop tensors that are not needed, or compute in smaller parts".into(),
        limit => format!(" of a limit of {limit}; drop tensors that are not needed, or raise the limit"),
    }
}

impl Error {
    /// Says which call of a program failed. The innermost place stays.
    pub(crate) fn called_at(self, place: &str) -> Error {
        match self {
            Error::Called { .. } => self,
            error => Error::Called { place: place.into(), error: Box::new(error) },
        }
    }

    /// Names the call that ran out of memory, unless the error is another one or names a call already.
    pub(crate) fn in_call(mut self, describe: impl FnOnce() -> String) -> Self {
        if let Error::OutOfMemory { call, .. } = &mut self
            && call.is_empty()
        {
            *call = describe();
        }
        self
    }

    /// Says where the call was recorded that failed in a compiled function: appends `place`, unless a place is there.
    /// Errors that no value causes stay as they are.
    pub(crate) fn recorded_at(mut self, place: &str) -> Error {
        if self.recorded_place().is_none()
            && let Some(end) = self.end_mut()
        {
            end.push_str(place);
        }
        self
    }

    /// What [`Error::recorded_at`] has appended.
    pub(crate) fn recorded_place(&self) -> Option<String> {
        let text = self.to_string();
        text.rfind(RECORDED).and_then(|at| text.get(at..)).map(str::to_string)
    }

    /// The end of the text, where that is a part of its own.
    fn end_mut(&mut self) -> Option<&mut String> {
        match self {
            Error::OutOfRange { place, .. } => Some(place),
            Error::Shape { hint, .. }
            | Error::Index { hint, .. }
            | Error::DType { hint, .. }
            | Error::Device { hint, .. }
            | Error::LinearAlgebra { hint, .. } => Some(hint),
            Error::NotImplemented { what, .. } | Error::Argument { what, .. } => Some(what),
            Error::Broadcast { .. }
            | Error::Registration { .. }
            | Error::Parse { .. }
            | Error::Invalid { .. }
            | Error::File { .. }
            | Error::OutOfMemory { .. }
            | Error::Anomaly { .. }
            | Error::Called { .. }
            | Error::Panicked { .. }
            | Error::Internal { .. } => None,
        }
    }

    /// The name of the variant, such as `Argument`.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::Broadcast { .. } => "Broadcast",
            Error::Shape { .. } => "Shape",
            Error::OutOfRange { .. } => "OutOfRange",
            Error::Index { .. } => "Index",
            Error::DType { .. } => "DType",
            Error::Device { .. } => "Device",
            Error::NotImplemented { .. } => "NotImplemented",
            Error::LinearAlgebra { .. } => "LinearAlgebra",
            Error::Argument { .. } => "Argument",
            Error::Registration { .. } => "Registration",
            Error::Parse { .. } => "Parse",
            Error::Invalid { .. } => "Invalid",
            Error::File { .. } => "File",
            Error::OutOfMemory { .. } => "OutOfMemory",
            Error::Anomaly { .. } => "Anomaly",
            Error::Called { .. } => "Called",
            Error::Panicked { .. } => "Panicked",
            Error::Internal { .. } => "Internal",
        }
    }

    /// An [`Error::Shape`] from its parts.
    pub fn shape(op: impl Into<String>, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::Shape { op: op.into(), what: what.into(), hint: hint.into() }
    }

    /// An [`Error::OutOfRange`] of an index that must lie in `low..=high`.
    pub(crate) fn out_of_range(
        op: impl Into<String>,
        what: impl Into<String>,
        [low, high]: [i64; 2],
        got: i64,
    ) -> Self {
        Error::OutOfRange { op: op.into(), what: what.into(), low, high, got, place: String::new() }
    }

    /// Names `caller` as the operator of the error. For operators that call others.
    pub(crate) fn of(mut self, caller: &str) -> Self {
        match &mut self {
            Error::Broadcast { op, .. }
            | Error::Shape { op, .. }
            | Error::OutOfRange { op, .. }
            | Error::Index { op, .. }
            | Error::DType { op, .. }
            | Error::Device { op, .. }
            | Error::LinearAlgebra { op, .. }
            | Error::NotImplemented { op, .. }
            | Error::Argument { op, .. } => *op = caller.into(),
            Error::Registration { .. }
            | Error::Parse { .. }
            | Error::Invalid { .. }
            | Error::File { .. }
            | Error::OutOfMemory { .. }
            | Error::Anomaly { .. }
            | Error::Called { .. }
            | Error::Panicked { .. }
            | Error::Internal { .. } => {}
        }
        self
    }

    /// An [`Error::DType`] from its parts.
    pub fn dtype(op: impl Into<String>, found: DType, expected: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::DType { op: op.into(), found, expected: expected.into(), hint: hint.into() }
    }

    /// An [`Error::Index`] from its parts.
    pub fn index(op: impl Into<String>, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::Index { op: op.into(), what: what.into(), hint: hint.into() }
    }

    /// An [`Error::NotImplemented`] for a dtype that the operator never takes, whatever the other operands are.
    pub fn unsupported(op: impl Into<String>, found: DType, expected: &str, hint: &str) -> Self {
        Error::NotImplemented {
            op: op.into(),
            what: format!("not implemented for {found}, only for {expected}; {hint}"),
        }
    }

    /// An [`Error::Invalid`] from its parts.
    pub fn invalid(what: impl Into<String>, message: impl Into<String>) -> Self {
        Error::Invalid { what: what.into(), message: message.into() }
    }

    /// An [`Error::Argument`] from its parts.
    pub fn argument(op: impl Into<String>, what: impl Into<String>) -> Self {
        Error::Argument { op: op.into(), what: what.into() }
    }
}
