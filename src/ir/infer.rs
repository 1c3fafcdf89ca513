//! Dtype and shape of every op's result, from operand types alone.
//!
//! These functions are the only place that knows them: eager calls, Meta tensors and traces all ask here. Every error
//! names the op, what was found, and what to do.

use super::attr::Attr;
use super::dtype::DType;
use super::op::{Call, Meaning};
use super::scalar::Scalar;
use super::shape::{self, Layout, Sizes, broadcast, normalize_dim, normalize_dims};
use super::types::TensorType;
use crate::error::{Error, Result};

/// Element-wise results: broadcast sizes, promoted dtype, strides that follow the operands.
pub fn pointwise(call: &Call<'_>) -> Result<TensorType> {
    let Meaning::Body(rule, _) = call.op.row().meaning else {
        unreachable!("{} has no body", call.name());
    };
    let dtype = rule.compute(call.name(), call.args, call.attrs)?.result;
    let mut sizes = Sizes::from_slice(&call.args[0].sizes);
    for arg in &call.args[1..] {
        sizes = broadcast(call.name(), &sizes, &arg.sizes)?;
    }
    shape::checked_numel(call.name(), &sizes, dtype.size())?;
    let inputs: Vec<(&[usize], &[usize])> = call.args.iter().map(|arg| (&arg.sizes[..], &arg.strides[..])).collect();
    let strides = shape::elementwise_strides(&sizes, &inputs);
    Ok(TensorType { dtype, sizes, strides, number: false })
}

/// As [`pointwise`], the strides following the second operand before the first.
pub fn second_leads(call: &Call<'_>) -> Result<TensorType> {
    pointwise(&Call { args: &[call.args[1], call.args[0]], ..*call })
}

/// As [`pointwise`], for ops with a factor `alpha`, which must be whole if the result is.
pub fn scaled(call: &Call<'_>) -> Result<TensorType> {
    let result = pointwise(call)?;
    match call.attrs.first().and_then(Attr::scalar) {
        Some(Scalar::Bool(alpha)) if result.dtype != DType::Bool => Err(Error::argument(
            call.name(),
            format!("alpha is {alpha} but the result is {}; for numbers alpha must be one", result.dtype),
        )),
        Some(Scalar::Float(alpha)) if !result.dtype.is_float() => Err(Error::argument(
            call.name(),
            format!("alpha is {alpha:?} but the result is {}; for integers alpha must be a whole number", result.dtype),
        )),
        Some(_) | None => Ok(result),
    }
}

/// As [`pointwise`], row-major.
pub fn row_major(call: &Call<'_>) -> Result<TensorType> {
    let dense = pointwise(call)?;
    Ok(TensorType::contiguous(dense.dtype, &dense.sizes))
}

/// As [`row_major`], with a value that the first operand's dtype holds.
pub fn masked_fill(call: &Call<'_>) -> Result<TensorType> {
    let result = row_major(call)?;
    let value = call.attrs[0].scalar().unwrap_or(Scalar::Int(0));
    value.need_fit(call.name(), result.dtype).map(|()| result)
}

/// As [`pointwise`], for operands that must have one and the same dtype.
pub fn one_dtype(call: &Call<'_>) -> Result<TensorType> {
    let dtype = call.args[0].dtype;
    match call.args.iter().find(|arg| arg.dtype != dtype) {
        Some(other) => Err(Error::dtype(
            call.name(),
            other.dtype,
            dtype.name(),
            "operands are not promoted here; convert one side",
        )),
        None => pointwise(call),
    }
}

/// As [`pointwise`], checking how the quotient is rounded.
pub fn division(call: &Call<'_>) -> Result<TensorType> {
    match call.attrs[0].word() {
        "" | "trunc" | "floor" => pointwise(call),
        other => {
            let what = format!("rounding_mode is {other:?}; use none, \"trunc\" or \"floor\"");
            Err(Error::argument("div", what))
        }
    }
}

/// As [`pointwise`]: integers have no negative powers, and bools have none.
pub fn power_of_number(call: &Call<'_>) -> Result<TensorType> {
    let result = pointwise(call)?;
    let exponent = call.attrs[0].scalar().unwrap_or(Scalar::Int(1));
    if result.dtype == DType::Bool {
        return Err(Error::unsupported("pow", DType::Bool, "a number", "convert first"));
    }
    if !result.dtype.is_float() && exponent.as_i64() < 0 {
        let what = format!("Integers to negative integer powers are not allowed: the exponent is {exponent}");
        return Err(Error::argument("pow", format!("{what}; convert to a floating dtype first")));
    }
    Ok(result)
}

/// As [`pointwise`], for orders whose factorial is not far from what f32 holds.
pub fn polygamma(call: &Call<'_>) -> Result<TensorType> {
    match call.attrs[0].as_int() {
        Some(0..=30) => pointwise(call),
        order => Err(Error::argument("polygamma", format!("order {order:?} is not supported; use 0 to 30"))),
    }
}

/// As [`pointwise`], with bounds that unsigned integers have.
pub fn hardtanh(call: &Call<'_>) -> Result<TensorType> {
    let is_negative = |attr: &Attr| attr.scalar().is_some_and(|bound| bound.as_f64() < 0.0);
    if call.args[0].dtype == DType::U8 && call.attrs.iter().any(is_negative) {
        return Err(Error::argument("hardtanh", "u8 elements cannot have negative limits; convert first"));
    }
    pointwise(call)
}

/// As [`pointwise`], with a distance that is not negative.
pub fn softshrink(call: &Call<'_>) -> Result<TensorType> {
    match call.attrs[0].scalar() {
        Some(lambda) if lambda.as_f64() < 0.0 => {
            Err(Error::argument("softshrink", format!("lambd is {lambda}; it must not be negative")))
        }
        Some(_) | None => pointwise(call),
    }
}

/// As [`pointwise`], with a value that is one element.
pub fn fill(call: &Call<'_>) -> Result<TensorType> {
    if call.args[1].rank() != 0 {
        let what = format!("the value has shape {:?}", &call.args[1].sizes[..]);
        return Err(Error::shape("fill", what, "it must be a 0-dim tensor"));
    }
    pointwise(call)
}

/// As [`pointwise`], checking the name of the approximation.
pub fn gelu(call: &Call<'_>) -> Result<TensorType> {
    match call.attrs[0].word() {
        "none" | "tanh" | "" => pointwise(call),
        other => Err(Error::argument("gelu", format!("approximate is {other:?}; use \"none\" or \"tanh\""))),
    }
}

/// As [`pointwise`], needing a bound.
pub fn clamp(call: &Call<'_>) -> Result<TensorType> {
    if call.attrs.iter().all(|attr| *attr == Attr::None) {
        return Err(Error::argument("clamp", "at least one of min and max must be given"));
    }
    if call.args[0].dtype == DType::Bool {
        return Err(Error::unsupported("clamp", DType::Bool, "a number", "convert first"));
    }
    pointwise(call)
}

/// As [`pointwise`], in the order of memory that the first argument asks for.
pub fn clone(call: &Call<'_>) -> Result<TensorType> {
    ordered(call, call.attrs[0].word())
}

/// As [`clone`]; a dtype comes first.
pub fn to_copy(call: &Call<'_>) -> Result<TensorType> {
    ordered(call, call.attrs.get(1).map_or("", Attr::word))
}

/// A dense result in a named order of memory; no name keeps that of the operand.
fn ordered(call: &Call<'_>, format: &str) -> Result<TensorType> {
    let kept = pointwise(call)?;
    let order: &[usize] = match format {
        "contiguous" => return Ok(TensorType::contiguous(kept.dtype, &kept.sizes)),
        "channels_last" => &[0, 2, 3, 1],
        "channels_last_3d" => &[0, 2, 3, 4, 1],
        _ => return Ok(kept),
    };
    if order.len() != kept.rank() {
        let what = format!("the shape {:?} has no {format} order", &kept.sizes[..]);
        return Err(Error::shape(call.name(), what, format!("it needs {} dims", order.len())));
    }
    Ok(TensorType { strides: shape::strides_in_order(&kept.sizes, order), ..kept })
}

/// The dims a reduction runs over: its first argument, or all.
pub fn reduced_dims(op: &str, attrs: &[Attr], rank: usize) -> Result<smallvec::SmallVec<[usize; 6]>> {
    normalize_dims(op, &attrs[0].list(), rank)
}

/// The shape of a reduction's result; `keepdim` is its second argument.
fn reduced(call: &Call<'_>, dtype: DType) -> Result<TensorType> {
    reduced_keep(call, dtype, call.attrs[1].is_true())
}

fn reduced_keep(call: &Call<'_>, dtype: DType, keep: bool) -> Result<TensorType> {
    let input = call.args[0];
    let dims = reduced_dims(call.name(), call.attrs, input.rank())?;
    let mut sizes = Sizes::new();
    for (dim, &size) in input.sizes.iter().enumerate() {
        match (dims.contains(&dim), keep) {
            (true, true) => sizes.push(1),
            (true, false) => {}
            (false, _) => sizes.push(size),
        }
    }
    Ok(TensorType::contiguous(dtype, &sizes))
}

/// Sums and products: integers and bools accumulate in i64 unless a dtype is asked for.
pub fn sum(call: &Call<'_>) -> Result<TensorType> {
    let found = call.args[0].dtype;
    let dtype = call.attrs[2].dtype().unwrap_or(if found.is_float() { found } else { DType::I64 });
    reduced(call, dtype)
}

/// Means: floats only, unless a floating dtype is asked for.
pub fn mean(call: &Call<'_>) -> Result<TensorType> {
    let dtype = call.attrs[2].dtype().unwrap_or(call.args[0].dtype);
    if !dtype.is_float() {
        return Err(Error::unsupported("mean", dtype, "a floating dtype", "pass a floating dtype, or convert first"));
    }
    reduced(call, dtype)
}

fn non_empty(call: &Call<'_>) -> Result<()> {
    let input = call.args[0];
    let dims = reduced_dims(call.name(), call.attrs, input.rank())?;
    match dims.iter().find(|&&dim| input.sizes[dim] == 0) {
        Some(dim) => Err(Error::OutOfRange {
            op: call.name().into(),
            what: format!("size of dim {dim}, which is reduced and has no identity,"),
            low: 1,
            high: i64::MAX,
            got: 0,
        }),
        None => Ok(()),
    }
}

/// Greatest and least elements: dtype kept, nothing to reduce is an error.
pub fn extremum(call: &Call<'_>) -> Result<TensorType> {
    non_empty(call)?;
    reduced(call, call.args[0].dtype)
}

/// Index of an extremum: i64; bools are refused.
pub fn arg_extremum(call: &Call<'_>) -> Result<TensorType> {
    if call.args[0].dtype == DType::Bool {
        return Err(Error::unsupported(call.name(), DType::Bool, "a number", "convert first"));
    }
    non_empty(call)?;
    reduced(call, DType::I64)
}

/// Any and all: bool, or u8 from u8.
pub fn truth(call: &Call<'_>) -> Result<TensorType> {
    let dtype = if call.args[0].dtype == DType::U8 { DType::U8 } else { DType::Bool };
    reduced(call, dtype)
}

fn need_float(op: &str, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        return Ok(());
    }
    Err(Error::unsupported(op, dtype, "a floating dtype", "convert with to_dtype(DType::F32) first"))
}

/// Variance: floats; dim, correction, keepdim.
pub fn var(call: &Call<'_>) -> Result<TensorType> {
    need_float(call.name(), call.args[0].dtype)?;
    reduced_keep(call, call.args[0].dtype, call.attrs[2].is_true())
}

/// Log-sum-exp: integers are raised to the default float.
pub fn logsumexp(call: &Call<'_>) -> Result<TensorType> {
    let found = call.args[0].dtype;
    reduced(call, if found.is_float() { found } else { DType::DEFAULT_FLOAT })
}

/// Softmax along a dim: floats, type kept.
pub fn softmax(call: &Call<'_>) -> Result<TensorType> {
    let input = call.args[0];
    need_float(call.name(), input.dtype)?;
    normalize_dim(call.name(), call.attrs[0].as_int().unwrap_or(-1), input.rank())?;
    Ok(TensorType::contiguous(input.dtype, &input.sizes))
}

/// Gradients of softmax along a dim: two operands of one size, the dtype asked for.
pub fn softmax_data(call: &Call<'_>) -> Result<TensorType> {
    let (grad, output) = (call.args[0], call.args[1]);
    need_float(call.name(), grad.dtype)?;
    normalize_dim(call.name(), call.attrs[0].as_int().unwrap_or(-1), grad.rank())?;
    if grad.sizes != output.sizes {
        let what = format!("gradient and output have shapes {:?} and {:?}", &grad.sizes[..], &output.sizes[..]);
        return Err(Error::shape(call.name(), what, "they must be equal"));
    }
    Ok(TensorType::contiguous(call.attrs[1].dtype().unwrap_or(grad.dtype), &grad.sizes))
}

/// Gradients of a view of part of a tensor: the first argument is the tensor's sizes, the others are those of `view`,
/// whose result the gradient must have the sizes of.
pub fn part_of(call: &Call<'_>, view: fn(&Layout, &[Attr]) -> Result<Layout>) -> Result<TensorType> {
    let (grad, sizes) = (call.args[0], call.attrs[0].list());
    if let Some(bad) = sizes.iter().find(|size| **size < 0) {
        return Err(Error::shape(call.name(), format!("size {bad} is negative"), "sizes count elements"));
    }
    let sizes: Sizes = sizes.iter().map(|&size| size as usize).collect();
    shape::checked_numel(call.name(), &sizes, grad.dtype.size())?;
    let seen = view(&Layout::contiguous(&sizes), &call.attrs[1..])?;
    if seen.sizes != grad.sizes {
        let what = format!("the gradient has shape {:?}, the view has {:?}", &grad.sizes[..], &seen.sizes[..]);
        return Err(Error::shape(call.name(), what, "pass the gradient of that very view"));
    }
    Ok(TensorType::contiguous(grad.dtype, &sizes))
}

/// Layer normalization: the normalized shape must be the input's trailing shape and that of weight and bias.
pub fn layer_norm(call: &Call<'_>) -> Result<TensorType> {
    let input = call.args[0];
    need_float(call.name(), input.dtype)?;
    let shape: Sizes = call.attrs[0].list().iter().map(|&size| size.max(0) as usize).collect();
    if shape.is_empty() || !input.sizes.ends_with(&shape) {
        let what =
            format!("normalized_shape {:?} is not the end of the input shape {:?}", &shape[..], &input.sizes[..]);
        return Err(Error::shape(call.name(), what, "pass the sizes of the trailing dims"));
    }
    for arg in &call.args[1..] {
        if arg.sizes != shape {
            let what =
                format!("weight or bias has shape {:?}, not the normalized shape {:?}", &arg.sizes[..], &shape[..]);
            return Err(Error::shape(call.name(), what, "make them the same shape"));
        }
        if arg.dtype != input.dtype {
            return Err(Error::dtype(
                call.name(),
                arg.dtype,
                input.dtype.name(),
                "convert weight and bias to the input's dtype",
            ));
        }
    }
    Ok(TensorType::contiguous(input.dtype, &input.sizes))
}

/// Views: the view's layout of an input that starts at offset 0.
pub fn view(call: &Call<'_>) -> Result<TensorType> {
    let Meaning::View(rule) = call.op.row().meaning else {
        unreachable!("{} is no view", call.name());
    };
    let input = call.args[0];
    let layout = rule(&Layout { sizes: input.sizes.clone(), strides: input.strides.clone(), offset: 0 }, call.attrs)?;
    Ok(TensorType { dtype: input.dtype, sizes: layout.sizes, strides: layout.strides, number: false })
}

/// Windows of memory: the layout and dtype over an operand that starts at offset 0. Only the call itself knows how
/// far the memory reaches.
pub fn window(call: &Call<'_>) -> Result<TensorType> {
    let Meaning::Window(rule) = call.op.row().meaning else {
        unreachable!("{} is no window", call.name());
    };
    let input = call.args[0];
    let layout = Layout { sizes: input.sizes.clone(), strides: input.strides.clone(), offset: 0 };
    let (layout, dtype) = rule(&layout, input.dtype, call.attrs)?;
    Ok(TensorType { dtype, sizes: layout.sizes, strides: layout.strides, number: false })
}

fn product_dtype(call: &Call<'_>, a: &TensorType, b: &TensorType) -> Result<DType> {
    if a.dtype != b.dtype {
        return Err(Error::dtype(
            call.name(),
            b.dtype,
            a.dtype.name(),
            "matrix products do not promote; convert one side",
        ));
    }
    if a.dtype == DType::Bool {
        return Err(Error::unsupported(call.name(), DType::Bool, "a number", "convert first"));
    }
    Ok(a.dtype)
}

fn product(call: &Call<'_>, a: &TensorType, b: &TensorType, rank: usize) -> Result<TensorType> {
    let dtype = product_dtype(call, a, b)?;
    let fits = a.rank() == rank && b.rank() == rank && a.sizes[..rank - 2] == b.sizes[..rank - 2];
    if !fits || a.sizes[rank - 1] != b.sizes[rank - 2] {
        let what = format!("shapes {:?} and {:?} cannot be multiplied", &a.sizes[..], &b.sizes[..]);
        let hint = format!("both must be {rank}-d, with equal batches and the inner sizes equal; matmul broadcasts");
        return Err(Error::shape(call.name(), what, hint));
    }
    let mut sizes = a.sizes.clone();
    sizes[rank - 1] = b.sizes[rank - 1];
    shape::checked_numel(call.name(), &sizes, dtype.size())?;
    Ok(TensorType::contiguous(dtype, &sizes))
}

/// Matrix product of 2-d operands, into a dtype if one is asked for.
pub fn mm(call: &Call<'_>) -> Result<TensorType> {
    product_into(call, 2)
}

/// Batched matrix product of 3-d operands; the same.
pub fn bmm(call: &Call<'_>) -> Result<TensorType> {
    product_into(call, 3)
}

/// A product whose result has the dtype of the operands, or that of their sums.
fn product_into(call: &Call<'_>, rank: usize) -> Result<TensorType> {
    let ty = product(call, call.args[0], call.args[1], rank)?;
    let Some(dtype) = call.attrs.first().and_then(Attr::dtype) else { return Ok(ty) };
    let is_of_sums = dtype == DType::F32 && matches!(ty.dtype, DType::F16 | DType::BF16);
    if dtype != ty.dtype && !is_of_sums {
        let hint = "the result has the operands' dtype, or is f32 if they are f16 or bf16; convert it";
        return Err(Error::dtype(call.name(), dtype, ty.dtype.name(), hint));
    }
    shape::checked_numel(call.name(), &ty.sizes, dtype.size())?;
    Ok(TensorType { dtype, ..ty })
}

/// Matrix product plus a term that broadcasts to it.
pub fn addmm(call: &Call<'_>) -> Result<TensorType> {
    let rank = if call.name() == "addmm" { 2 } else { 3 };
    let out = product(call, call.args[1], call.args[2], rank)?;
    let term = call.args[0];
    if term.dtype != out.dtype {
        return Err(Error::dtype(
            call.name(),
            term.dtype,
            out.dtype.name(),
            "matrix products do not promote; convert the term",
        ));
    }
    if broadcast(call.name(), &term.sizes, &out.sizes)? != out.sizes {
        let what = format!("the term {:?} is larger than the product {:?}", &term.sizes[..], &out.sizes[..]);
        return Err(Error::shape(call.name(), what, "it may only be repeated"));
    }
    Ok(out)
}

pub(super) fn need_index(op: &str, index: &TensorType) -> Result<()> {
    if matches!(index.dtype, DType::I64 | DType::I32) {
        return Ok(());
    }
    Err(Error::dtype(op, index.dtype, "i64 or i32", "indices are whole numbers; convert with to_dtype(DType::I64)"))
}

/// One index vector along a dim.
pub fn index_select(call: &Call<'_>) -> Result<TensorType> {
    let (input, index) = (call.args[0], call.args[1]);
    need_index(call.name(), index)?;
    let dim = normalize_dim(call.name(), call.attrs[0].as_int().unwrap_or(0), input.rank())?;
    if index.rank() > 1 {
        let what = format!("index has shape {:?}", &index.sizes[..]);
        return Err(Error::index(call.name(), what, "it must be 1-d; embedding and gather take more dims"));
    }
    let mut sizes = input.sizes.clone();
    if !sizes.is_empty() {
        sizes[dim] = index.numel();
    } else if index.numel() != 1 {
        let what = format!("index of a 0-dim tensor has shape {:?}", &index.sizes[..]);
        return Err(Error::index(call.name(), what, "it must hold one index"));
    }
    Ok(TensorType::contiguous(input.dtype, &sizes))
}

/// One index per result element: the index's shape, which may not exceed the input's in the other dims. An index
/// without elements may have any shape and dtype.
pub fn gather(call: &Call<'_>) -> Result<TensorType> {
    let (input, index) = (call.args[0], call.args[1]);
    let dim = normalize_dim(call.name(), call.attrs[0].as_int().unwrap_or(0), input.rank())?;
    if index.numel() > 0 {
        need_index(call.name(), index)?;
        if !super::routine::fits(&index.sizes, &input.sizes, Some(dim)) {
            let shapes = (&index.sizes[..], &input.sizes[..]);
            let what = format!("index shape {:?} does not fit input shape {:?} along dim {dim}", shapes.0, shapes.1);
            return Err(Error::shape(call.name(), what, "ranks must be equal, and other dims at most the input's"));
        }
    }
    shape::checked_numel(call.name(), &index.sizes, input.dtype.size())?;
    Ok(TensorType::contiguous(input.dtype, &index.sizes))
}

/// Rows of a 2-d table: the index's shape and the row.
pub fn embedding(call: &Call<'_>) -> Result<TensorType> {
    let (table, index) = (call.args[0], call.args[1]);
    need_index(call.name(), index)?;
    if table.rank() != 2 {
        return Err(Error::shape(call.name(), format!("the table has shape {:?}", &table.sizes[..]), "it must be 2-d"));
    }
    let mut sizes = index.sizes.clone();
    sizes.push(table.sizes[1]);
    shape::checked_numel(call.name(), &sizes, table.dtype.size())?;
    Ok(TensorType::contiguous(table.dtype, &sizes))
}

/// Whether the operand of a concatenation goes with any shape: 1-dim without elements.
pub fn joins_anything(ty: &TensorType) -> bool {
    ty.sizes.as_slice() == [0]
}

/// Operands side by side: promoted dtype, other dims equal.
pub fn cat(call: &Call<'_>) -> Result<TensorType> {
    let Some(any) = call.args.first() else {
        return Err(Error::argument("cat", "expected a non-empty list of tensors"));
    };
    let dtype = super::dtype::promote_all(call.args.iter().map(|arg| arg.promote_operand())).unwrap_or(any.dtype);
    let first = call.args.iter().find(|arg| !joins_anything(arg)).unwrap_or(any);
    let dim = normalize_dim("cat", call.attrs[0].as_int().unwrap_or(0), first.rank())?;
    if let Some(arg) = call.args.iter().find(|arg| arg.rank() == 0) {
        let what = format!("0-dim tensors like that of type {} cannot be joined", arg.dtype);
        return Err(Error::shape("cat", what, "use stack"));
    }
    let mut sizes = first.sizes.clone();
    sizes[dim] = 0;
    for arg in call.args {
        if joins_anything(arg) {
            continue;
        }
        let fits = arg.rank() == first.rank() && (0..first.rank()).all(|d| d == dim || arg.sizes[d] == first.sizes[d]);
        if !fits {
            let what = format!("shapes {:?} and {:?} differ outside dim {dim}", &first.sizes[..], &arg.sizes[..]);
            return Err(Error::shape("cat", what, "all other sizes must be equal"));
        }
        sizes[dim] += arg.sizes[dim];
    }
    shape::checked_numel("cat", &sizes, dtype.size())?;
    Ok(TensorType::contiguous(dtype, &sizes))
}

/// One tensor over another: the window must lie inside the first, no two of its elements at one place.
pub fn overlay(call: &Call<'_>) -> Result<TensorType> {
    let (under, over) = (call.args[0], call.args[1]);
    let refuse = |what: String| Err(Error::shape(call.name(), what, "stay inside the first operand, one place each"));
    let strides = call.attrs[0].list();
    let offset = call.attrs[1].as_int().unwrap_or(0);
    if strides.len() != over.rank() || offset < 0 || strides.iter().any(|&stride| stride < 0) {
        return refuse(format!("strides {:?} and offset {offset} do not fit {} dims", &strides[..], over.rank()));
    }
    let strides = strides.iter().map(|&stride| stride as usize).collect();
    let window = Layout { sizes: over.sizes.clone(), strides, offset: offset as usize };
    if window.extent() > under.numel() || !window.is_injective() {
        let (sizes, strides) = (&window.sizes[..], &window.strides[..]);
        return refuse(format!("a window of sizes {sizes:?}, strides {strides:?}, offset {offset} on {under}"));
    }
    Ok(TensorType::contiguous(under.dtype, &under.sizes))
}

/// Triangles: at least two dims, type kept.
pub fn triangle(call: &Call<'_>) -> Result<TensorType> {
    let input = call.args[0];
    if input.rank() < 2 {
        let what = format!("the input has shape {:?}", &input.sizes[..]);
        return Err(Error::shape(call.name(), what, "it must have at least 2 dims"));
    }
    Ok(TensorType::contiguous(input.dtype, &input.sizes))
}

/// One value: the dtype asked for, else the one that fits the value.
pub fn full(call: &Call<'_>) -> Result<TensorType> {
    let value = call.attrs[1].scalar().unwrap_or(Scalar::Int(0));
    let fitting = if value.dtype().is_float() { DType::DEFAULT_FLOAT } else { value.dtype() };
    let dtype = call.attrs[2].dtype().unwrap_or(fitting);
    let sizes = call.attrs[0].list();
    if let Some(bad) = sizes.iter().find(|size| **size < 0) {
        return Err(Error::shape("full", format!("size {bad} is negative"), "sizes count elements"));
    }
    let sizes: Sizes = sizes.iter().map(|&size| size as usize).collect();
    shape::checked_numel("full", &sizes, dtype.size())?;
    value.need_fit("full", dtype)?;
    Ok(TensorType::contiguous(dtype, &sizes))
}

/// A range: i64 when all three numbers are whole, else the default float, unless a dtype is asked for.
pub fn arange(call: &Call<'_>) -> Result<TensorType> {
    let [start, end, step] = [0, 1, 2].map(|index: usize| call.attrs[index].scalar().unwrap_or(Scalar::Int(1)));
    let whole = [start, end, step].iter().all(|value| !value.dtype().is_float());
    let dtype = call.attrs[3].dtype().unwrap_or(if whole { DType::I64 } else { DType::DEFAULT_FLOAT });
    if dtype == DType::Bool {
        return Err(Error::unsupported("arange", dtype, "a number", "compare a range to make bools"));
    }
    let invalid = |what: String| Err(Error::shape("arange", what, "end must be reached from start in steps of step"));
    if step.as_f64() == 0.0 || !(start.as_f64().is_finite() && end.as_f64().is_finite() && step.as_f64().is_finite()) {
        return invalid(format!("range from {start} to {end} in steps of {step} does not end"));
    }
    let count = if whole {
        let (span, step) = (end.as_i64() as i128 - start.as_i64() as i128, step.as_i64() as i128);
        span.signum() * step.signum() * ((span.abs() + step.abs() - 1) / step.abs())
    } else {
        ((end.as_f64() - start.as_f64()) / step.as_f64()).ceil() as i128
    };
    if count < 0 {
        return invalid(format!("range from {start} to {end} in steps of {step} runs the wrong way"));
    }
    let Ok(count) = usize::try_from(count) else {
        let what = format!("range from {start} to {end} in steps of {step} has {count} elements or more");
        return Err(Error::shape("arange", what, "they do not fit the address space; pass a longer step"));
    };
    shape::checked_numel("arange", &[count], dtype.size())?;
    Ok(TensorType::contiguous(dtype, &[count]))
}
