//! The three ways to fail, as types.
//!
//! [`Error`] is what a caller did wrong (or, for `Error::Internal`, what we did wrong, caught at the public
//! boundary). [`Reason`] is an optimization that was declined: data, never an error. Panics inside are bugs.

use crate::ir::DType;
use std::fmt;

/// The result of every fallible public function.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong in a call. After any error every live tensor is intact and the next call works.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
    #[error("{op}: {what} out of range (expected to be in range of [{low}, {high}], but got {got})")]
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
    /// Memory could not be had.
    #[error("out of memory on {device}: wanted {wanted} bytes; {held} bytes are held of a limit of {limit}")]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes asked for.
        wanted: usize,
        /// Bytes in use by live tensors.
        held: usize,
        /// The limit in force, `usize::MAX` for none.
        limit: usize,
    },
    /// A panic of a function that was given to [`compile`](crate::compile()), caught where it is called; all state is intact.
    #[error(
        "the compiled function panicked: {message}; look into the function itself (standard error names the line; only if \
         that is one of opfuse is it a bug in opfuse)"
    )]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// A bug in this library, caught at the public boundary; all state is intact.
    #[error("internal error: {message}; this is a bug in opfuse, please report it")]
    Internal {
        /// The panic's message.
        message: String,
    },
}

impl Error {
    /// An [`Error::Shape`] from its parts.
    pub fn shape(op: impl Into<String>, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::Shape { op: op.into(), what: what.into(), hint: hint.into() }
    }

    /// The same error of an operator that called the one it names.
    pub(crate) fn of(mut self, caller: &str) -> Self {
        match &mut self {
            Error::Broadcast { op, .. }
            | Error::Shape { op, .. }
            | Error::OutOfRange { op, .. }
            | Error::Index { op, .. }
            | Error::DType { op, .. }
            | Error::Device { op, .. }
            | Error::NotImplemented { op, .. }
            | Error::Argument { op, .. } => *op = caller.into(),
            Error::Registration { .. }
            | Error::Parse { .. }
            | Error::Invalid { .. }
            | Error::File { .. }
            | Error::OutOfMemory { .. }
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

    /// An [`Error::NotImplemented`] for a dtype that the operator does not take, whatever the other operands are.
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

/// Why an optimization was declined. A fallback without a reason is a bug.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The value leaves the graph, so it must be written to memory.
    IsOutput,
    /// Not every use of the value passes the consumer, so it would have to be computed twice or written anyway.
    UsedElsewhere,
    /// One of the two is never fused: its result depends on data, or it is not a loop over elements.
    OpaqueOp,
    /// Two matrix products or reductions that cannot share one loop.
    TwoAnchors,
    /// The consumer moves elements, and the producer's tile holds them only once it is finished.
    MovesElements,
    /// What a matrix product reads is not made from the product's own rows: the right operand is read whole by each of
    /// them.
    PrologueOfAnchor,
    /// What follows a matrix product goes with other work, as with the rows of another product.
    EpilogueOfAnchor,
    /// A matrix product that is never computed some rows at a time, and why.
    WholeProduct(String),
    /// What is computed at once would not stay in a cache, and how much it is.
    TooMuchMemory(String),
    /// Fusing is legal and saves nothing, or less than it costs.
    NotWorthIt(String),
    /// The two do not run over the same rows.
    DifferentRows,
    /// A reshape of a computed value that merges or splits dimensions in the middle of a kernel.
    ReshapeOfComputed,
    /// The group would have more nodes than the limit.
    GroupTooLarge,
    /// The kernel would have more operands than the limit.
    TooManyArguments,
    /// It would change bits, which only [`Numerics::Fast`](crate::Numerics::Fast) allows, and how.
    WouldChangeBits(String),
    /// The rows are so few and so long that one kernel would leave threads idle.
    RowsTooLong,
    /// Together they would take longer than apart, by the cost model.
    ModelledSlower(String),
    /// Together they took longer than apart when both were measured.
    MeasuredSlower(String),
    /// Fusing would make the graph of kernels cyclic.
    WouldCycle,
    /// A tier cannot express the kernel; the next tier runs it.
    TierCannot(String),
    /// A library that may be used does not compute it, or is not there; a kernel of ours does.
    LibraryCannot(String),
    /// The larger steps of compute capability 9.0 do not compute it; the other kernel for tensor cores does.
    WgmmaCannot(String),
    /// The function reads a value while it is traced, so what it does next depends on data.
    ReadsValue(String),
    /// The function called something that is not captured.
    NotCaptured(String),
    /// The function returned an error while it was traced.
    TraceFailed(String),
    /// Compilation is switched off.
    Disabled,
    /// The function is called with ever new input types, and a capture takes longer than a run: for these types it is
    /// captured once it ran for as long as that takes.
    NewTypes(String),
    /// A mapped call has no rule for its op: it ran once per slice.
    NoBatchingRule(String),
    /// A guard failed: the function was compiled again for these inputs.
    GuardFailed(String),
    /// The function has not been called yet.
    NotCalled,
}

impl Reason {
    /// A name for programs, as in JSON reports: the variant's, in snake case.
    pub const fn kind(&self) -> &'static str {
        match self {
            Reason::IsOutput => "is_output",
            Reason::UsedElsewhere => "used_elsewhere",
            Reason::OpaqueOp => "opaque_op",
            Reason::TwoAnchors => "two_anchors",
            Reason::MovesElements => "moves_elements",
            Reason::PrologueOfAnchor => "prologue_of_anchor",
            Reason::EpilogueOfAnchor => "epilogue_of_anchor",
            Reason::WholeProduct(_) => "whole_product",
            Reason::TooMuchMemory(_) => "too_much_memory",
            Reason::NotWorthIt(_) => "not_worth_it",
            Reason::DifferentRows => "different_rows",
            Reason::ReshapeOfComputed => "reshape_of_computed",
            Reason::GroupTooLarge => "group_too_large",
            Reason::TooManyArguments => "too_many_arguments",
            Reason::WouldChangeBits(_) => "would_change_bits",
            Reason::RowsTooLong => "rows_too_long",
            Reason::ModelledSlower(_) => "modelled_slower",
            Reason::MeasuredSlower(_) => "measured_slower",
            Reason::WouldCycle => "would_cycle",
            Reason::TierCannot(_) => "tier_cannot",
            Reason::LibraryCannot(_) => "library_cannot",
            Reason::WgmmaCannot(_) => "wgmma_cannot",
            Reason::ReadsValue(_) => "reads_value",
            Reason::NotCaptured(_) => "not_captured",
            Reason::TraceFailed(_) => "trace_failed",
            Reason::Disabled => "disabled",
            Reason::NewTypes(_) => "new_types",
            Reason::NoBatchingRule(_) => "no_batching_rule",
            Reason::GuardFailed(_) => "guard_failed",
            Reason::NotCalled => "not_called",
        }
    }

    /// What the reason is about, where the kind does not say it all: an op, an input, an error.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Reason::ModelledSlower(detail)
            | Reason::MeasuredSlower(detail)
            | Reason::WholeProduct(detail)
            | Reason::TooMuchMemory(detail)
            | Reason::NotWorthIt(detail)
            | Reason::TierCannot(detail)
            | Reason::LibraryCannot(detail)
            | Reason::WgmmaCannot(detail)
            | Reason::WouldChangeBits(detail)
            | Reason::ReadsValue(detail)
            | Reason::NotCaptured(detail)
            | Reason::TraceFailed(detail)
            | Reason::NewTypes(detail)
            | Reason::NoBatchingRule(detail)
            | Reason::GuardFailed(detail) => Some(detail),
            Reason::IsOutput
            | Reason::UsedElsewhere
            | Reason::OpaqueOp
            | Reason::TwoAnchors
            | Reason::MovesElements
            | Reason::PrologueOfAnchor
            | Reason::EpilogueOfAnchor
            | Reason::DifferentRows
            | Reason::ReshapeOfComputed
            | Reason::GroupTooLarge
            | Reason::TooManyArguments
            | Reason::RowsTooLong
            | Reason::WouldCycle
            | Reason::Disabled
            | Reason::NotCalled => None,
        }
    }

    /// What a user can do about it, in a sentence.
    pub const fn hint(&self) -> &'static str {
        match self {
            Reason::IsOutput => "return the value only if the caller needs it; what is returned has to be written",
            Reason::UsedElsewhere => {
                "compute the value again where it is used a second time, or move its uses next to each other"
            }
            Reason::OpaqueOp => {
                "put the pointwise work before or after the op into one chain on one side of it; the op itself stays a \
                 kernel of its own"
            }
            Reason::TwoAnchors => "keep the work between the two pointwise, so that it becomes part of one of them",
            Reason::MovesElements => {
                "move the view, gather or concatenation before the computation, so that it reads memory instead of a \
                 computed value"
            }
            Reason::PrologueOfAnchor => {
                "apply the work to the result of the product where the algebra allows, as in (s * a) @ b = s * (a @ b)"
            }
            Reason::EpilogueOfAnchor => {
                "apply the work to one of the products alone, so that it goes with the rows of that one"
            }
            Reason::WholeProduct(_) => "multiply matrices of f32 or f64; the others are products of their own",
            Reason::TooMuchMemory(_) => {
                "use a smaller right operand, as in products of parts of its columns that are joined at the end"
            }
            Reason::NotWorthIt(_) => {
                "return what is between the two only if the caller needs it; a smaller right operand is read again at less cost"
            }
            Reason::DifferentRows => {
                "reduce over the same dims, or give both values the same shape before the reduction"
            }
            Reason::ReshapeOfComputed => "reshape the inputs instead, before anything is computed from them",
            Reason::GroupTooLarge => {
                "raise `CompileOptions::fusion.max_fuse_depth`, or split the function where little data is passed on"
            }
            Reason::TooManyArguments => {
                "concatenate small inputs, or raise `CompileOptions::fusion.max_function_args` if you have set it"
            }
            Reason::WouldChangeBits(_) => {
                "choose `Numerics::Fast`, for the thread or in `CompileOptions::numerics`, if other bits will do"
            }
            Reason::RowsTooLong => "use more and shorter rows, for example a larger batch: those share a kernel",
            Reason::ModelledSlower(_) => {
                "if the model is wrong about this machine, measure it: `compile::calibrate` gives its rates"
            }
            Reason::MeasuredSlower(_) => "nothing: on this machine the parts are faster, and their bits are the same",
            Reason::WouldCycle => {
                "move the op between the two out of the way: compute it before the first or after the second"
            }
            Reason::TierCannot(_) => "set `CompileOptions::tier` to the tier that ran it; the bits are the same",
            Reason::LibraryCannot(_) => {
                "have cublasLt of CUDA 12 or later where the loader looks, or in the folder that `OPFUSE_CUDA_LIB_DIR` names; \
                 `OPFUSE_CUDA_PRODUCTS=cublaslt` takes it whatever the model says"
            }
            Reason::WgmmaCannot(_) => {
                "have rows or columns of both operands next to each other and begin at multiples of 16 bytes, on a device of compute \
                 capability 9.0; the other kernels for tensor cores take all of them"
            }
            Reason::ReadsValue(_) => {
                "keep the decision in tensors (`where_`, masks), or read the value before or after the compiled part"
            }
            Reason::NotCaptured(_) => "call it outside the compiled function and pass its result in",
            Reason::TraceFailed(_) => "make the function return `Ok` for these inputs when it is called eagerly",
            Reason::Disabled => "unset `OPFUSE_EAGER`, or set `CompileOptions::fusion.opt_level` above 0",
            Reason::NewTypes(_) => {
                "call it again with the same sizes (padded, say), or set `CompileOptions::new_types` to `NewTypes::Capture`"
            }
            Reason::NoBatchingRule(_) => "register a batching rule for the op, or call it outside the mapped function",
            Reason::GuardFailed(_) => "pass inputs of the same dtype, rank and layout to every call",
            Reason::NotCalled => "call it once with inputs of the types you are interested in, then ask again",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::IsOutput => f.write_str("the value is an output of the graph"),
            Reason::UsedElsewhere => f.write_str("the value is also used outside the consumer's kernel"),
            Reason::OpaqueOp => f.write_str("an opaque op is never fused"),
            Reason::TwoAnchors => f.write_str("two reductions or matrix products cannot share this loop"),
            Reason::MovesElements => f.write_str("the consumer moves elements of a value that is not finished yet"),
            Reason::PrologueOfAnchor => {
                f.write_str("a matrix product takes no other work into its operands than a block of its own rows")
            }
            Reason::EpilogueOfAnchor => {
                f.write_str("what follows the matrix product goes with other work than blocks of its rows")
            }
            Reason::WholeProduct(what) => write!(f, "the matrix product is not computed in blocks of rows: {what}"),
            Reason::TooMuchMemory(what) => write!(f, "a block would not stay in the cache: {what}"),
            Reason::NotWorthIt(what) => write!(f, "fusing would save too little: {what}"),
            Reason::DifferentRows => f.write_str("the two do not run over the same rows"),
            Reason::ReshapeOfComputed => f.write_str("a reshape of a computed value regroups its dimensions"),
            Reason::GroupTooLarge => f.write_str("the group would exceed the node limit"),
            Reason::TooManyArguments => f.write_str("the kernel would exceed the operand limit"),
            Reason::WouldChangeBits(what) => write!(f, "it would change bits: {what}"),
            Reason::RowsTooLong => f.write_str("few long rows: one kernel would leave threads idle"),
            Reason::ModelledSlower(times) => write!(f, "one kernel would take longer, by the cost model: {times}"),
            Reason::MeasuredSlower(times) => write!(f, "one kernel took longer when measured: {times}"),
            Reason::WouldCycle => f.write_str("fusing would make the kernels depend on each other in a circle"),
            Reason::TierCannot(what) => write!(f, "the code tier cannot express it: {what}"),
            Reason::LibraryCannot(what) => write!(f, "cublasLt does not compute it: {what}"),
            Reason::WgmmaCannot(what) => write!(f, "wgmma does not compute it: {what}"),
            Reason::ReadsValue(op) => write!(f, "{op} reads a value while the function is traced"),
            Reason::NotCaptured(what) => write!(f, "not captured: {what}"),
            Reason::TraceFailed(what) => write!(f, "tracing failed: {what}"),
            Reason::Disabled => f.write_str("compilation is switched off"),
            Reason::NewTypes(what) => write!(f, "inputs of new types: {what}"),
            Reason::NoBatchingRule(op) => write!(f, "{op} has no batching rule and ran once per slice"),
            Reason::GuardFailed(what) => write!(f, "guard failed: {what}"),
            Reason::NotCalled => f.write_str("the function has not been called yet"),
        }
    }
}
