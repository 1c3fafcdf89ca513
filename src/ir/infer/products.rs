//! Types of the results of matrix products.

use super::reductions::need_float;
use crate::error::{Error, Result};
use crate::ir::attrs::{Attributes, MmDtype};
use crate::ir::dtype::DType;
use crate::ir::row::Call;
use crate::ir::shape::{self, broadcast};
use crate::ir::types::TensorType;

/// The type of a matrix product of 2-d operands: `(m, k) @ (k, n)` gives `(m, n)`.
pub fn mm(call: &Call<'_>) -> Result<TensorType> {
    product_into(call, 2)
}

/// The type of a batched matrix product of 3-d operands: `(b, m, k) @ (b, k, n)` gives `(b, m, n)`.
pub fn bmm(call: &Call<'_>) -> Result<TensorType> {
    product_into(call, 3)
}

/// The type of the inner product of two 1-d operands of floats: a 0-d tensor.
pub fn dot(call: &Call<'_>) -> Result<TensorType> {
    let [a, b] = [call.args[0], call.args[1]];
    let dtype = product_dtype(call, a, b)?;
    need_float(call.name(), dtype)?;
    if a.rank() != 1 || a.sizes != b.sizes {
        let what = format!("shapes {:?} and {:?} cannot be multiplied", &a.sizes[..], &b.sizes[..]);
        return Err(Error::shape(call.name(), what, "both must be 1-d and of one size"));
    }
    Ok(TensorType::contiguous(dtype, &[]))
}

/// The type of a matrix product plus a term that broadcasts to it.
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
        return Err(Error::shape(call.name(), what, "it must broadcast to the product"));
    }
    Ok(out)
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

/// The type of a product. Its dtype is that of the operands, or f32 for 16-bit operands if the argument asks for it.
fn product_into(call: &Call<'_>, rank: usize) -> Result<TensorType> {
    let ty = product(call, call.args[0], call.args[1], rank)?;
    let Some(dtype) = MmDtype::read(call.attrs).out_dtype else { return Ok(ty) };
    let is_of_sums = dtype == DType::F32 && matches!(ty.dtype, DType::F16 | DType::BF16);
    if dtype != ty.dtype && !is_of_sums {
        let hint = "the result has the operands' dtype, or is f32 if they are f16 or bf16; convert it";
        return Err(Error::dtype(call.name(), dtype, ty.dtype.name(), hint));
    }
    shape::checked_numel(call.name(), &ty.sizes, dtype.size())?;
    Ok(TensorType { dtype, ..ty })
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
