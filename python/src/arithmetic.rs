//! Python's operators on tensors. Each is an operator of the crate; what is neither tensor nor number may know better.

use crate::creation::{complex_number, complex_of, number_of, tensor_of};
use crate::errors::OrRaise;
use crate::operators::call_by_name;
use crate::tensor::PyTensor;
use opfuse::default_dtype;
use pyo3::class::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyNotImplemented, PyTuple};

type Object<'py> = Bound<'py, PyAny>;

/// Both operands of Python's operator as the operator of that name.
fn binary<'py>(name: &str, left: &Object<'py>, right: &Object<'py>) -> PyResult<Object<'py>> {
    let py = left.py();
    match (operand(left, right)?, operand(right, left)?) {
        (Some(left), Some(right)) => call_by_name(py, name, &[left, right]),
        _ => Ok(PyNotImplemented::get(py).to_owned().into_any()),
    }
}

/// A tensor, a number, or a tensor over an array of NumPy. `None` for other objects. A complex number beside a tensor
/// of whole numbers has the precision of the default float, as a real one has.
fn operand<'py>(object: &Object<'py>, beside: &Object<'py>) -> PyResult<Option<Object<'py>>> {
    if object.cast::<PyTensor>().is_ok() || number_of(object)?.is_some() {
        return Ok(Some(object.clone()));
    }
    if let Some(number) = complex_of(object) {
        let dtype = beside.cast::<PyTensor>().map(|beside| beside.get().0.dtype());
        let is_of_whole = dtype.is_ok_and(|dtype| !dtype.is_float() && !dtype.is_complex());
        let number = complex_number(number).or_raise(object.py())?;
        let number =
            if is_of_whole { number.to_dtype(default_dtype().complex()).or_raise(object.py())? } else { number };
        return PyTensor::object(object.py(), number).map(Some);
    }
    if !object.hasattr("__array_interface__")? {
        return Ok(None);
    }
    PyTensor::object(object.py(), tensor_of(object, None)?).map(Some)
}

fn write<'py>(name: &str, target: &Object<'py>, other: &Object<'py>) -> PyResult<()> {
    let other = operand(other, target)?.unwrap_or_else(|| other.clone());
    call_by_name(target.py(), name, &[target.clone(), other]).map(drop)
}

fn unary<'py>(name: &str, slf: &Bound<'py, PyTensor>) -> PyResult<Object<'py>> {
    call_by_name(slf.py(), name, &[slf.as_any().clone()])
}

#[pymethods]
impl PyTensor {
    fn __add__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("add", slf, other)
    }

    fn __radd__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("add", other, slf)
    }

    fn __sub__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("sub", slf, other)
    }

    fn __rsub__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("sub", other, slf)
    }

    fn __mul__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("mul", slf, other)
    }

    fn __rmul__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("mul", other, slf)
    }

    fn __truediv__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("div", slf, other)
    }

    fn __rtruediv__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("div", other, slf)
    }

    fn __floordiv__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("floor_divide", slf, other)
    }

    fn __rfloordiv__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("floor_divide", other, slf)
    }

    fn __mod__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("remainder", slf, other)
    }

    fn __rmod__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("remainder", other, slf)
    }

    fn __matmul__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("matmul", slf, other)
    }

    fn __rmatmul__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("matmul", other, slf)
    }

    fn __and__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("bitwise_and", slf, other)
    }

    fn __rand__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("bitwise_and", other, slf)
    }

    fn __or__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("bitwise_or", slf, other)
    }

    fn __ror__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("bitwise_or", other, slf)
    }

    fn __xor__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("bitwise_xor", slf, other)
    }

    fn __rxor__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("bitwise_xor", other, slf)
    }

    fn __lshift__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("bitwise_left_shift", slf, other)
    }

    fn __rlshift__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("bitwise_left_shift", other, slf)
    }

    fn __rshift__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("bitwise_right_shift", slf, other)
    }

    fn __rrshift__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        binary("bitwise_right_shift", other, slf)
    }

    fn __iadd__(slf: &Bound<'_, Self>, other: &Object<'_>) -> PyResult<()> {
        write("add_", slf, other)
    }

    fn __isub__(slf: &Bound<'_, Self>, other: &Object<'_>) -> PyResult<()> {
        write("sub_", slf, other)
    }

    fn __imul__(slf: &Bound<'_, Self>, other: &Object<'_>) -> PyResult<()> {
        write("mul_", slf, other)
    }

    fn __itruediv__(slf: &Bound<'_, Self>, other: &Object<'_>) -> PyResult<()> {
        write("div_", slf, other)
    }

    fn __ifloordiv__(slf: &Bound<'_, Self>, other: &Object<'_>) -> PyResult<()> {
        write("floor_divide_", slf, other)
    }

    fn __imod__(slf: &Bound<'_, Self>, other: &Object<'_>) -> PyResult<()> {
        write("remainder_", slf, other)
    }

    fn __ipow__(slf: &Bound<'_, Self>, other: &Object<'_>, _modulo: Option<&Object<'_>>) -> PyResult<()> {
        write("pow_", slf, other)
    }

    fn __ilshift__(slf: &Bound<'_, Self>, other: &Object<'_>) -> PyResult<()> {
        write("bitwise_left_shift_", slf, other)
    }

    fn __irshift__(slf: &Bound<'_, Self>, other: &Object<'_>) -> PyResult<()> {
        write("bitwise_right_shift_", slf, other)
    }

    fn __iand__(slf: &Bound<'_, Self>, other: &Object<'_>) -> PyResult<()> {
        write("bitwise_and_", slf, other)
    }

    fn __ior__(slf: &Bound<'_, Self>, other: &Object<'_>) -> PyResult<()> {
        write("bitwise_or_", slf, other)
    }

    fn __ixor__(slf: &Bound<'_, Self>, other: &Object<'_>) -> PyResult<()> {
        write("bitwise_xor_", slf, other)
    }

    /// The quotient rounded down, and the remainder.
    fn __divmod__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>) -> PyResult<Object<'py>> {
        let quotient = binary("floor_divide", slf, other)?;
        if quotient.is(&*PyNotImplemented::get(slf.py())) {
            return Ok(quotient);
        }
        Ok(PyTuple::new(slf.py(), [quotient, binary("remainder", slf, other)?])?.into_any())
    }

    fn __pow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Object<'py>,
        modulo: Option<&Object<'py>>,
    ) -> PyResult<Object<'py>> {
        match modulo {
            None => binary("pow", slf, other),
            Some(_) => Ok(PyNotImplemented::get(slf.py()).to_owned().into_any()),
        }
    }

    fn __rpow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Object<'py>,
        _modulo: Option<&Object<'py>>,
    ) -> PyResult<Object<'py>> {
        binary("pow", other, slf)
    }

    #[pyo3(signature = (decimals=0))]
    fn __round__<'py>(slf: &Bound<'py, Self>, decimals: i64) -> PyResult<Object<'py>> {
        if decimals == 0 {
            return unary("round", slf);
        }
        let named = PyDict::new(slf.py());
        named.set_item("decimals", decimals)?;
        slf.as_any().call_method("round", (), Some(&named))
    }

    fn __neg__<'py>(slf: &Bound<'py, Self>) -> PyResult<Object<'py>> {
        unary("neg", slf)
    }

    fn __pos__<'py>(slf: Bound<'py, Self>) -> Bound<'py, Self> {
        slf
    }

    fn __abs__<'py>(slf: &Bound<'py, Self>) -> PyResult<Object<'py>> {
        unary("abs", slf)
    }

    fn __invert__<'py>(slf: &Bound<'py, Self>) -> PyResult<Object<'py>> {
        unary("bitwise_not", slf)
    }

    fn __richcmp__<'py>(slf: &Bound<'py, Self>, other: &Object<'py>, op: CompareOp) -> PyResult<Object<'py>> {
        let name = match op {
            CompareOp::Lt => "lt",
            CompareOp::Le => "le",
            CompareOp::Eq => "eq",
            CompareOp::Ne => "ne",
            CompareOp::Gt => "gt",
            CompareOp::Ge => "ge",
        };
        binary(name, slf, other)
    }
}
