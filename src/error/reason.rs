//! The table of reasons: why an optimization was declined.
//!
//! A fallback without a reason is a bug. Some areas have tables of their own: [captures](super::NotCaptured), code
//! tiers, libraries, and CUDA graphs.

use super::data::{Datum, Field};
use super::table::reasons;
use super::{Error, LibraryLimit, NoReplay, NotCaptured, TierLimit, WgmmaLimit};
use crate::ir::DType;
use std::sync::Arc;
use std::time::Duration;

reasons! {
/// Why an optimization was declined. A fallback without a reason is a bug.
Reason {
    /// The value leaves the graph, so it must be written to memory.
    IsOutput
        "is_output" => "the value is an output of the graph";
        "return the value only if the caller needs it; what is returned has to be written";
    /// Some uses of the value do not pass the consumer, so it would have to be computed twice or written anyway.
    UsedElsewhere
        "used_elsewhere" => "the value is also used outside the consumer's kernel";
        "compute the value again where it is used a second time, or move its uses next to each other";
    /// One of the two is opaque: its result depends on data, or it is not a loop over elements.
    OpaqueOp
        "opaque_op" => "an opaque op is never fused";
        "put the pointwise work all before the op or all after it; the op itself stays a kernel of its own";
    /// Two matrix products or reductions that cannot share one loop.
    TwoAnchors
        "two_anchors" => "two reductions or matrix products cannot share this loop";
        "keep the work between the two pointwise, so that it becomes part of one of them";
    /// The consumer moves elements, and reads some before the producer has computed them.
    MovesElements
        "moves_elements" => "the consumer moves elements of a value that is not finished yet";
        "move the view, gather or concatenation before the computation, so that it reads memory instead of a computed \
         value";
    /// The right operand of a matrix product is computed. Every row reads it whole, so the product's kernel cannot.
    PrologueOfAnchor
        "prologue_of_anchor" =>
        "work on an operand of a matrix product is fused only if it is on the product's own rows";
        "apply the work to the result of the product where the algebra allows, as in (s * a) @ b = s * (a @ b)";
    /// The consumer of a matrix product is part of another kernel, such as one with the rows of another product.
    EpilogueOfAnchor
        "epilogue_of_anchor" => "the consumer of the matrix product is in a kernel with work on other rows";
        "apply the work to one of the products alone, so that it joins the rows of that one";
    /// Matrix products of this dtype are never computed in blocks of rows.
    WholeProduct {
        /// The dtype of the operands.
        dtype: DType,
    }
        "whole_product" => "products of {dtype} are computed all at once, not in blocks of rows";
        "multiply matrices of f32 or f64 if blocks of rows matter more than the dtype";
    /// The rows of a matrix product's result are not contiguous.
    ProductRowsApart
        "product_rows_apart" => "the rows of the matrix product's result are not contiguous";
        "multiply contiguous matrices, so that their product is contiguous, too";
    /// The smallest block of rows does not fit into the cache.
    BlockTooLarge {
        /// The least number of rows of a block.
        rows: usize,
        /// How many bytes they take.
        bytes: usize,
        /// How many bytes fit into the cache.
        limit: usize,
    }
        "block_too_large" =>
        "a block would not stay in the cache: the smallest one has {rows} rows and {bytes} bytes; there is room for \
         {limit}";
        "use shorter rows, such as parts of the columns that are joined at the end";
    /// The right operand of a matrix product, which each block reads whole, does not fit into the cache.
    RightOperandTooLarge {
        /// How many bytes one matrix of it takes.
        bytes: usize,
        /// How many bytes fit into the cache.
        limit: usize,
    }
        "right_operand_too_large" =>
        "the right operand would not stay in the cache: it has {bytes} bytes a matrix; there is room for {limit}";
        "use a smaller right operand, as in products of parts of its columns that are joined at the end";
    /// Blocks of rows read more bytes again than they save.
    NotWorthIt {
        /// Bytes that would no longer be moved.
        saved: usize,
        /// Bytes that would be moved once more.
        extra: usize,
    }
        "not_worth_it" =>
        "fusing would save too little: blocks of rows would save {saved} bytes, and move {extra} bytes again";
        "return what is between the two only if the caller needs it; a smaller right operand costs less to read again";
    /// Blocks of rows save as many bytes without this work.
    SavesNothingMore
        "saves_nothing_more" => "fusing would save nothing: blocks of rows save as many bytes without it";
        "nothing: the kernel runs as fast on its own";
    /// The kernel writes the new value of an input to the memory of the input. A group in blocks of rows would write to
    /// memory of its own, which would be copied then.
    RenewsInput
        "renews_input" => "the kernel overwrites an input in place, which blocks of rows do not do";
        "nothing: writing in place saves a copy of the new value";
    /// One of the two has no elements.
    NothingToCompute
        "nothing_to_compute" => "fusing would save nothing: one of the two has no elements";
        "nothing: calls on empty tensors cost next to nothing";
    /// The two do not run over the same rows.
    DifferentRows
        "different_rows" => "the two do not run over the same rows";
        "reduce over the same dims, or give both values the same shape before the reduction";
    /// A reshape inside a kernel merges or splits dimensions of a computed value.
    ReshapeOfComputed
        "reshape_of_computed" => "a reshape of a computed value regroups its dimensions";
        "reshape the inputs instead, before anything is computed from them";
    /// The group would have more nodes than the limit.
    GroupTooLarge
        "group_too_large" => "the group would exceed the node limit";
        "raise `CompileOptions::fusion.max_fuse_depth`, or split the function where little data is passed on";
    /// The kernel would have more operands than the limit.
    TooManyArguments
        "too_many_arguments" => "the kernel would exceed the operand limit";
        "concatenate small inputs, or raise `CompileOptions::fusion.max_function_args` if you have set it";
    /// A sum in another order has other bits, which only [`Numerics::Fast`](crate::Numerics::Fast) allows.
    WouldChangeBits {
        /// The hardware unit or library that has its own order.
        unit: &'static str,
        /// The dtype of the operands.
        dtype: DType,
    }
        "would_change_bits" => "it would change bits: {unit} sum products of {dtype} in an order of their own";
        "choose `Numerics::Fast`, for the thread or in `CompileOptions::numerics`, if other bits will do";
    /// The rows are so few and so long that one kernel would leave threads idle.
    RowsTooLong
        "rows_too_long" => "few long rows: one kernel would leave threads idle";
        "use more and shorter rows, for example a larger batch: those share a kernel";
    /// One kernel would take longer than its parts, by the cost model.
    ModelledSlower {
        /// How long one kernel would take.
        together: Duration,
        /// How long the parts take.
        apart: Duration,
    }
        "modelled_slower" =>
        "one kernel would take longer, by the cost model: {together:.1?} together, {apart:.1?} apart";
        "if the model is wrong about this machine, measure it: `compile::calibrate` gives its rates";
    /// One kernel took longer than its parts when both were measured.
    MeasuredSlower {
        /// How long one kernel took.
        together: Duration,
        /// How long the parts took.
        apart: Duration,
    }
        "measured_slower" => "one kernel took longer when measured: {together:.1?} together, {apart:.1?} apart";
        "nothing: on this machine the parts are faster, and their bits are the same";
    /// Fusing would make the graph of kernels cyclic.
    WouldCycle
        "would_cycle" => "fusing would make the kernels depend on each other in a cycle";
        "compute the op between the two before the first or after the second";
    /// The function reads a value while it is traced, so what it does next depends on data.
    ReadsValue {
        /// The op that reads it.
        op: Box<str>,
    }
        "reads_value" => "{op} reads a value while the function is traced";
        "keep the decision in tensors (`where_`, masks), or read the value before or after the compiled part";
    /// The function returned an error while it was traced.
    TraceFailed {
        /// The error.
        error: Arc<Error>,
    }
        "trace_failed" => "tracing failed: {error}";
        "make the function return `Ok` for these inputs when it is called eagerly";
    /// The function panicked while it was traced.
    Panicked {
        /// The panic's message.
        message: Box<str>,
    }
        "panicked" => "the function panicked while it was traced: {message}";
        "remove the cause of the panic; standard error names its line";
    /// Compilation is switched off.
    Disabled
        "disabled" => "compilation is switched off";
        "unset `OPFUSE_EAGER`, or set `CompileOptions::fusion.opt_level` above 0";
    /// The function is often called with new input types, and recompile back-off delays the capture for these types. It
    /// ends once runs with these types took as long as a capture takes.
    NewTypes {
        /// How long a capture takes.
        capture: Duration,
        /// How long a run takes.
        run: Duration,
        /// How long runs with inputs of these types took so far.
        waited: Duration,
    }
        "new_types" =>
        "inputs of new types: a capture takes {capture:.1?}, a run {run:.1?}; {waited:.1?} of runs with these so far";
        "call it again with the same sizes (padded, say), or set `CompileOptions::new_types` to `NewTypes::Capture`";
    /// A mapped call has no rule for its op: it ran once per slice.
    NoBatchingRule {
        /// The operator.
        op: Box<str>,
    }
        "no_batching_rule" => "{op} has no batching rule and ran once per slice";
        "register a batching rule for the op, or call it outside the mapped function";
    /// The function has not been called yet.
    NotCalled
        "not_called" => "the function has not been called yet";
        "call it once with inputs of the types you are interested in, then ask again";
}
{
    /// The function did something that a graph cannot represent.
    NotCaptured(NotCaptured) "not_captured" => "not captured";
    /// A code tier, or the CUDA code generator, cannot express the kernel; the next tier or the CPU runs it.
    TierCannot(TierLimit) "tier_cannot" => "the code tier cannot express it";
    /// cublasLt does not compute the product; a kernel of this library does.
    LibraryCannot(LibraryLimit) "library_cannot" => "cublasLt does not compute it";
    /// The `wgmma` kernel does not compute the product; the other kernel for tensor cores does.
    WgmmaCannot(WgmmaLimit) "wgmma_cannot" => "wgmma does not compute it";
    /// The kernels of a call are not replayed as one CUDA graph.
    NotReplayed(NoReplay) "not_replayed" => "the kernels do not start as one CUDA graph";
}
}

impl Reason {
    /// The reason for a trace that ended with this error.
    pub(crate) fn of_error(error: Error) -> Reason {
        match error {
            Error::Panicked { message } => Reason::Panicked { message: message.into() },
            error => Reason::TraceFailed { error: Arc::new(error) },
        }
    }

    /// The data of the reason as text, such as an op, an error or sizes. `None` if the kind says everything.
    pub fn detail(&self) -> Option<String> {
        match &self.data()[..] {
            [] => None,
            [(_, datum)] => Some(datum.to_string()),
            data => Some(data.iter().map(|(name, datum)| format!("{name} {datum}")).collect::<Vec<_>>().join(", ")),
        }
    }

    /// Whether it is a call that an abstract trace records, although it ends a segment.
    pub(crate) const fn is_opaque_call(&self) -> bool {
        matches!(self, Reason::NotCaptured(NotCaptured::OpaqueCall { .. } | NotCaptured::ControlFlow { .. }))
    }

    /// Whether this is a graph break: the function can run in segments around what is not captured.
    pub(crate) const fn is_break(&self) -> bool {
        matches!(self, Reason::ReadsValue { .. } | Reason::NotCaptured(_))
    }
}

impl From<NotCaptured> for Reason {
    fn from(reason: NotCaptured) -> Reason {
        Reason::NotCaptured(reason)
    }
}

impl From<TierLimit> for Reason {
    fn from(reason: TierLimit) -> Reason {
        Reason::TierCannot(reason)
    }
}

impl From<LibraryLimit> for Reason {
    fn from(reason: LibraryLimit) -> Reason {
        Reason::LibraryCannot(reason)
    }
}

impl From<WgmmaLimit> for Reason {
    fn from(reason: WgmmaLimit) -> Reason {
        Reason::WgmmaCannot(reason)
    }
}

impl From<NoReplay> for Reason {
    fn from(reason: NoReplay) -> Reason {
        Reason::NotReplayed(reason)
    }
}
