//! Why a function, or a part of it, is not captured as a graph.
//!
//! Each row is one thing that a function, its inputs or its caller did. An index counts the inputs of the function from
//! 0. A tensor that is no input is named by its dtype and sizes.

use super::data::{Datum, Field};
use super::table::reasons;

reasons! {
/// What a function did that a graph cannot represent.
NotCaptured {
    /// The function started another trace on the same thread.
    NestedTrace
        "nested_trace" => "a nested trace ended this one";
        "trace the inner function before or after the outer one";
    /// The call is part of a function that is traced.
    NestedCall
        "nested_call" => "the call is part of a function that is traced, and is compiled with it";
        "nothing: see the report of the outer function";
    /// An operator has neither a row in the op table nor a decomposition.
    NoDecomposition {
        /// The operator.
        op: Box<str>,
    }
        "no_decomposition" => "{op} has no row in the op table and no decomposition";
        "register the operator as a composite of others, or call it outside the compiled function";
    /// An operator from outside has kernels and no decomposition. A graph calls it, and does not see into it.
    OpaqueCall {
        /// The operator.
        op: Box<str>,
    }
        "opaque_call" => "{op} has kernels of its own and no decomposition, so it is called as it is";
        "register a kernel for `DispatchKey::Tracer` that calls operators of the library, so that these are fused";
    /// A loop or a branch is a call of the program, whose body is compiled once.
    ControlFlow {
        /// The function that was called.
        op: Box<str>,
    }
        "control_flow" => "{op} is a step of its own, whose body is compiled once";
        "nothing, unless it has few steps; then write the steps out, so that they are fused with their neighbours";
    /// The body of a loop or a branch does more than compute its results.
    BodyDoesMore {
        /// What it does.
        what: Box<str>,
    }
        "body_does_more" => "the body of a loop or a branch {what}, so it runs step by step";
        "return what changes as a part of the carry or of the results, and draw random numbers for all steps before the \
         loop";
    /// The kernel of an operator from outside did something else than its schema and its Meta kernel say.
    OtherThanDeclared {
        /// The operator.
        op: Box<str>,
        /// What it did.
        what: Box<str>,
    }
        "other_than_declared" => "the kernel of {op} {what}";
        "return new tensors of the types that the Meta kernel tells, and mark in the schema what is written or \
         returned";
    /// A built-in operator has a kernel that was registered from outside.
    OverriddenKernel {
        /// The operator.
        op: Box<str>,
    }
        "overridden_kernel" => "{op} has a kernel that was registered from outside, which a graph does not call";
        "nothing, if the kernel is to be called; it runs between the compiled segments";
    /// A derivative or a hook of a user does more than compute gradients.
    BackwardEffects
        "backward_effects" =>
        "a user-defined derivative or a hook writes, draws, or changes gradients, which a backward pass of a graph does \
         not";
        "let it compute gradients and nothing else, or call the function outside the compiled one";
    /// An op runs on another device than the CPU while calls are deferred.
    OtherDevice {
        /// The operator.
        op: Box<str>,
    }
        "other_device" => "{op} runs on another device than the cpu";
        "move every input to the device that the function computes on";
    /// The function works on tensors of several devices.
    TwoDevices {
        /// The device of the inputs.
        device: Box<str>,
        /// The other device.
        other: Box<str>,
    }
        "two_devices" => "the function works on tensors of {device} and of {other}";
        "move all tensors to one device before the compiled function, with `to_device`";
    /// A call is recorded for gradients while calls are deferred.
    RecordedForGradients {
        /// The operator.
        op: Box<str>,
    }
        "recorded_for_gradients" => "{op} is recorded for gradients";
        "call it with `no_grad` if its gradients are not needed";
    /// Gradients flow through a loop whose number of steps is not known.
    GradientsOfOpenLoop {
        /// The loop.
        op: Box<str>,
    }
        "gradients_of_open_loop" =>
        "gradients flow through {op}, whose number of steps is not known, so it runs step by step";
        "call `fori_loop` or `scan` with the most steps that it may take, and keep a carry that is done with `where_`; \
         or call it with `no_grad`";
    /// Gradients flow to an input of a function that runs in segments.
    SegmentsNeedGradients
        "segments_need_gradients" =>
        "gradients flow to an input, and a function that runs in segments is not recorded for gradients";
        "remove what breaks the capture (see `Compiled::breaks`), or call the function with `no_grad`";
    /// The function writes to a tensor that shares elements with another one.
    WriteToShared {
        /// The operator that writes.
        op: Box<str>,
    }
        "write_to_shared" => "{op} writes to a tensor that shares elements with another one";
        "write to a clone, or pass tensors that do not share memory";
    /// The function writes through a view whose inverse is not known.
    WriteThroughView {
        /// The operator that writes.
        op: Box<str>,
    }
        "write_through_view" => "{op} writes through a view that has no inverse";
        "write to the base of the view, or to a clone";
    /// A tensor was written to through another one that has the same elements.
    WrittenThroughAlias
        "written_through_alias" => "a tensor was written to through another one";
        "write to the tensor itself, or pass tensors that do not share memory";
    /// An input that is written to shares memory with another one.
    WrittenInputShared
        "written_input_shared" => "an input that is written to shares elements with another one";
        "give the input memory of its own, with `clone`";
    /// A written input is a view without history of a tensor that requires gradients.
    WrittenViewUnrecorded
        "written_view_unrecorded" => "an input that is written to is a view of a tensor that requires gradients, made without recording";
        "make the view with grad mode enabled, or call the function in no_grad mode";
    /// A result shares elements with an input that is written to, and no view ops say how.
    ResultSharesInput {
        /// Which result.
        result: usize,
    }
        "result_shares_input" =>
        "result {result} shares elements with an input that is written to, and no view ops relate the two";
        "return a clone, or make the view inside the function";
    /// A tensor is written to that has views made in inference mode, which do not know their base.
    InferenceViews
        "inference_views" => "a tensor is written to that has views made in inference mode";
        "make the views outside inference mode, or write to a clone";
    /// A tensor is written to whose elements overlap in memory.
    OverlappingElements
        "overlapping_elements" => "a tensor is written to whose elements share memory with each other";
        "write to a contiguous clone";
    /// A tensor is written to that has gaps in memory, and an `as_strided` view covers them.
    GapsShown
        "gaps_shown" => "a tensor with gaps in memory is written to, and a view of memory covers the gaps";
        "make the tensor contiguous before views of its memory are taken";
    /// A view of memory is taken of a tensor with gaps that was written to.
    ShowsGaps {
        /// The operator that takes the view.
        op: Box<str>,
    }
        "shows_gaps" => "{op} covers memory between the elements of a tensor that was written to";
        "take the view before the write, or of a contiguous clone";
    /// Something that is not traced wrote to a tensor that the function uses.
    UntracedWrite {
        /// The tensor's dtype and sizes.
        tensor: Box<str>,
    }
        "untraced_write" => "a tensor ({tensor}) was written to by something that is not traced";
        "write to tensors with ops of this library, on the thread that calls the function";
    /// The function uses a tensor from outside that has no data.
    TensorWithoutData {
        /// The tensor's dtype and sizes.
        tensor: Box<str>,
    }
        "tensor_without_data" => "a tensor ({tensor}) from outside the function has no data";
        "meta tensors have shapes only; use a tensor on the cpu or a GPU";
    /// The function writes a value that requires gradients to a captured tensor, which then has another history.
    HistoryWritten {
        /// The tensor.
        tensor: Box<str>,
    }
        "history_written" => "{tensor} is written where gradients are recorded, so its history changes";
        "return the new value, or write a detached one";
    /// The thread looks for the call that gives NaN.
    DetectsAnomalies
        "detects_anomalies" => "`detect_anomaly` is on, and checks what each call gives";
        "drop its guard once the call that gives NaN is found";
    /// An input has no data, or is on no device that code is compiled for.
    InputWithoutData
        "input_without_data" => "an input has no data on the cpu or a GPU";
        "meta tensors have shapes only; pass a tensor on the cpu or a GPU";
    /// An input of the call is a tensor that the function captures, too.
    InputIsCaptured {
        /// The position of the input.
        input: usize,
    }
        "input_is_captured" => "input {input} is a tensor that the function captures, too";
        "pass it only, or capture it only";
    /// The function asks how an input was made.
    InputHistory {
        /// The method that asks.
        method: Box<str>,
    }
        "input_history" => "{method} is called on an input that autograd recorded the making of";
        "call it before the compiled function, and pass the answer in";
    /// The function sets `requires_grad` of an input.
    RequiresGradSet {
        /// The position of the input.
        input: usize,
        /// What it is set to.
        value: bool,
    }
        "requires_grad_set" => "requires_grad of input {input} is set to {value}";
        "set `requires_grad` before the compiled function is called";
    /// A result is a leaf that the function made.
    LeafMade {
        /// The position of the result.
        result: usize,
    }
        "leaf_made" => "result {result} is computed by the function, which sets its requires_grad";
        "set `requires_grad` of the result after the call";
    /// A result is the gradient of a leaf that the function made, and another result has a history that leads there.
    LeafKept {
        /// The position of the result.
        result: usize,
    }
        "leaf_kept" => "result {result} is the gradient of a leaf that the function made and that another result \
                        keeps";
        "return a clone of the gradient";
    /// The function writes to a tensor from outside that is a view with a history.
    ViewWritten {
        /// The tensor: which input, or its dtype and sizes.
        tensor: Box<str>,
    }
        "view_written" => "the function writes to {tensor}, a view that gradients flow through";
        "pass the tensor that it is a view of, or a detached view";
    /// A call of the function changes whether a tensor from outside the function requires gradients.
    RequiresGradChanged {
        /// The tensor: which input, or its dtype and sizes.
        tensor: Box<str>,
    }
        "requires_grad_changed" => "the function changes whether gradients flow to {tensor}";
        "write a value that requires gradients to such a tensor outside the compiled function";
    /// The function calls `backward`, and gradients flow to the tensors that an input was computed from.
    BackwardThroughInput
        "backward_through_input" => "gradients flow through an input to the tensors that it was computed from";
        "call `backward` outside the compiled function, or pass a detached input";
    /// The function registers a hook on a tensor from outside.
    HookRegistered {
        /// The tensor: which input, or its dtype and sizes.
        tensor: Box<str>,
    }
        "hook_registered" => "a hook is registered on a tensor from outside the function: {tensor}";
        "register the hook before the compiled function is called";
    /// A backward pass of the function runs through a hook of a captured tensor with a history.
    HookPassed
        "hook_passed" => "a backward pass of the function runs through a hook of a tensor that was computed outside";
        "run the backward pass outside the compiled function, or remove the hook";
    /// The function reads a gradient that requires gradients itself.
    GradientWithHistory
        "gradient_with_history" => "a gradient is read that requires gradients itself";
        "detach the gradient, or call `backward` without `create_graph`";
    /// The function reads a gradient that has no data.
    GradientWithoutData
        "gradient_without_data" => "a gradient is read that has no data";
        "set gradients to tensors with data, or clear them with `zero_grad`";
    /// The function reads a gradient that is a plain number.
    GradientIsNumber
        "gradient_is_number" => "a gradient is read that is a plain number";
        "set the gradient to a tensor of the leaf's shape";
    /// The function leaves a gradient in a leaf that requires gradients itself.
    GradientLeft {
        /// The leaf: which input, or its dtype and sizes.
        leaf: Box<str>,
    }
        "gradient_left" => "a gradient that requires gradients itself is left in {leaf}";
        "call `backward` without `create_graph`, or outside the compiled function";
    /// The function sets the seed or the state of a random generator.
    GeneratorSet
        "generator_set" => "a random generator is seeded in the function, or its state is set";
        "set seeds and states outside the compiled function";
    /// The function kept a tensor that it computed. It is captured if the next call keeps none.
    KeptTensor
        "kept_tensor" => "the function kept a tensor that it computed; the next call shows whether it always does";
        "call it again: a tensor that is made once and kept is an input of later calls";
    /// The function keeps tensors from call to call, so each call may do something else.
    KeepsTensors
        "keeps_tensors" => "the function keeps tensors that it computed, so each call may do something else";
        "return such a tensor, and pass it to the next call";
    /// The function did something else when it was traced again.
    ChangesByCall
        "changes_by_call" => "the function did something else when it was traced again";
        "let the function depend on its inputs alone, or on tensors that it captures";
    /// The guards of every program for these input types failed.
    TooManyVariants {
        /// How many programs there are.
        programs: usize,
        /// The guard that failed last.
        last: Box<str>,
    }
        "too_many_variants" =>
        "guards failed in each of {programs} captures for inputs of these types; the last one was: {last}";
        "make sure that what the function asks of its tensors is the same in each call";
    /// The segments of the function differ at nearly every call.
    SegmentsDiffer
        "segments_differ" =>
        "the segments of the function differ at nearly every call, so compiling them costs more than it saves";
        "remove what breaks the capture (see `Compiled::breaks`), or leave the function eager";
    /// The function was called while it was being compiled.
    IsCompiling
        "is_compiling" => "the function was called while this thread or another one was still compiling it";
        "nothing: later calls run the compiled code";
    /// A user's dispatch mode is active, and sees every call of an operator.
    UserMode
        "user_mode" => "a dispatch mode is active, which has to see every call of an operator";
        "call the function outside the mode";
    /// The cache of the compiled function has no room.
    NoCapacity
        "no_capacity" => "the cache has a capacity of 0";
        "set `CompileOptions::capacity` above 0";
    /// No call has returned a value yet.
    NoResultYet
        "no_result_yet" => "no call so far returned a value";
        "call the function once with inputs that it accepts";
    /// The function returned no tensors and wrote to none.
    NoEffect
        "no_effect" => "the function returned no tensors and wrote to none";
        "return at least one tensor";
    /// No segment of the function computes anything.
    ComputesNothing
        "computes_nothing" => "the function computes nothing";
        "nothing: there is no kernel to report";
}
}
