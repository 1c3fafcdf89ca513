//! What programs call: the interpreter and printed programs share it.

use super::own::own;
use opfuse::autograd::{GradOptions, enable_grad, grad, inference_mode, no_grad};
use opfuse::dispatch::modes::{CallCounter, push_mode};
use opfuse::dispatch::{Array, Dispatcher, Stack, Value};
use opfuse::ir::Layout;
use opfuse::{DType, Error, Result, Scalar, Tensor, autocast, no_autocast, set_default_dtype};
use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

/// Calls an operator by its full name; the tensors among its results, lists flattened.
pub(crate) fn call(name: &str, arguments: Vec<Value>) -> Result<Vec<Tensor>> {
    if name.starts_with("programs::") {
        own();
    }
    let mut stack: Stack = arguments.into_iter().collect();
    Dispatcher::global().lookup(name)?.call_boxed(&mut stack)?;
    let mut out = Vec::new();
    for value in stack {
        match value {
            Value::Tensor(tensor) => out.push(tensor),
            Value::TensorList(tensors) => out.extend(tensors),
            _ => {}
        }
    }
    Ok(out)
}

/// So many of the tensors.
pub(crate) fn first_of<const N: usize>(tensors: Vec<Tensor>) -> Result<[Tensor; N]> {
    let count = tensors.len();
    let taken: Vec<Tensor> = tensors.into_iter().take(N).collect();
    taken.try_into().map_err(|_| Error::argument("test", format!("{count} results instead of {N}")))
}

/// The only element as a number.
pub(crate) fn item(tensor: &Tensor) -> Result<f64> {
    Ok(match tensor.to_scalar()? {
        Scalar::Bool(flag) => f64::from(flag),
        Scalar::Int(number) => number as f64,
        Scalar::Float(number) => number,
    })
}

/// The first element as a number, or 0.
pub(crate) fn first(tensor: &Tensor) -> Result<f64> {
    macro_rules! read {
        ($ty:ty, |$x:ident| $number:expr) => {
            tensor.to_vec::<$ty>()?.first().map_or(0.0, |$x| $number)
        };
    }
    Ok(match tensor.dtype() {
        DType::F16 => read!(opfuse::f16, |x| x.to_f64()),
        DType::BF16 => read!(opfuse::bf16, |x| x.to_f64()),
        DType::F32 => read!(f32, |x| f64::from(*x)),
        DType::Complex64 | DType::Complex128 => return first(&tensor.real()?),
        DType::F64 => read!(f64, |x| *x),
        DType::I8 => read!(i8, |x| f64::from(*x)),
        DType::I16 => read!(i16, |x| f64::from(*x)),
        DType::I32 => read!(i32, |x| f64::from(*x)),
        DType::I64 => read!(i64, |x| *x as f64),
        DType::U8 => read!(u8, |x| f64::from(*x)),
        DType::Bool => read!(bool, |x| f64::from(*x)),
    })
}

thread_local! {
    static RATE: Cell<f64> = const { Cell::new(0.5) };
}

/// Sets the number that the function is given beside its inputs.
pub(crate) fn set_rate(rate: f64) {
    RATE.set(rate);
}

/// The number that the function is given beside its inputs.
pub(crate) fn rate() -> Scalar {
    Scalar::Float(RATE.get())
}

/// The gradient of a leaf.
pub(crate) fn gradient(tensor: &Tensor) -> Result<Tensor> {
    tensor.grad().ok_or_else(|| Error::argument("test", "no gradient"))
}

/// Gradients of the sum of a tensor; zeros where there are none.
pub(crate) fn gradients(of: &Tensor, wrt: &[&Tensor], create_graph: bool) -> Result<Vec<Tensor>> {
    let options = GradOptions { create_graph, allow_unused: true, retain_graph: true };
    let found = grad(&[&of.sum_all()?], wrt, &[], options)?;
    found.into_iter().zip(wrt).map(|(found, input)| found.map_or_else(|| input.zeros_like(), Ok)).collect()
}

/// A tensor over the memory of another, without history.
pub(crate) fn over(memory: &Tensor, sizes: &[usize], strides: &[usize], offset: usize) -> Result<Tensor> {
    let layout = Layout {
        sizes: sizes.iter().copied().collect(),
        strides: strides.iter().copied().collect(),
        offset: memory.array().layout().offset + offset,
    };
    Array::from_storage(memory.array().storage().clone(), memory.dtype(), layout).map(Tensor::from_array)
}

/// Like [`over`], for complex elements whose parts are neighbours in the memory.
pub(crate) fn over_pairs(memory: &Tensor, sizes: &[usize], strides: &[usize], offset: usize) -> Result<Tensor> {
    let sizes = [sizes, &[2]].concat();
    let strides: Vec<usize> = strides.iter().map(|stride| 2 * stride).chain([1]).collect();
    over(memory, &sizes, &strides, 2 * offset)?.view_as_complex()
}

/// A leaf that requires gradients.
pub(crate) fn leaf(tensor: Tensor) -> Result<Tensor> {
    tensor.set_requires_grad(true)?;
    Ok(tensor)
}

/// The same elements in an inference tensor.
pub(crate) fn inferred(tensor: &Tensor) -> Result<Tensor> {
    let _mode = inference_mode();
    match tensor.is_complex() {
        true => Tensor::from_array(tensor.view_as_real()?.array().clone()).view_as_complex(),
        false => Ok(Tensor::from_array(tensor.array().clone())),
    }
}

pub(crate) type Held = Box<dyn Any>;

pub(crate) fn quiet() -> Result<Held> {
    Ok(Box::new(no_grad()))
}

pub(crate) fn recording() -> Result<Held> {
    Ok(Box::new(enable_grad()))
}

pub(crate) fn inference() -> Result<Held> {
    Ok(Box::new(inference_mode()))
}

pub(crate) fn lower(dtype: DType) -> Result<Held> {
    Ok(Box::new(autocast(dtype)?))
}

pub(crate) fn not_lower() -> Result<Held> {
    Ok(Box::new(no_autocast()))
}

pub(crate) fn default(dtype: DType) -> Result<Held> {
    Ok(Box::new(set_default_dtype(dtype)?))
}

pub(crate) fn counting() -> Result<Held> {
    Ok(Box::new(push_mode(Arc::new(CallCounter::default()))))
}
