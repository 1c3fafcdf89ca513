//! A subprogram that runs once per step: the call that stands for a whole loop.

use crate::device::{Device, Storage};
use crate::error::{Error, Result};
use crate::func::control::subprogram::{Subprogram, fitted, refitted, results_of};
use crate::ir::{Layout, TensorType};
use crate::runtime::Array;
use crate::tensor::Tensor;
use crate::transforms::tracer::{BodySize, Callee};
use smallvec::SmallVec;
use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

/// Steps from which kernels are made ready for many calls.
const MANY: usize = 16;

/// A loop over slices. Its operands are the first carry, what is sliced along the first dim, and captured tensors. Its
/// results are the last carry, the stacked results of the steps, and, if asked for, the stacked carries before each.
pub(super) struct Repeated {
    pub(super) op: &'static str,
    pub(super) subprogram: Arc<Subprogram>,
    pub(super) n_carry: usize,
    /// The types of what is sliced.
    pub(super) xs: Vec<TensorType>,
    pub(super) length: usize,
    /// Whether the last slice comes first.
    pub(super) is_reversed: bool,
    /// Whether the carry before each step is a result.
    pub(super) keeps_carries: bool,
}

/// Results of steps in the making.
struct Stacked {
    storage: Storage,
    ty: TensorType,
    n_bytes: usize,
}

impl Stacked {
    fn new(slice: &TensorType, length: usize) -> Result<Stacked> {
        let ty = stacked(slice, length);
        let n_bytes = slice.numel() * slice.dtype.size();
        Ok(Stacked { storage: Storage::new(Device::CPU, n_bytes * length)?, ty, n_bytes })
    }

    /// Copies a dense array to its place.
    fn put(&mut self, step: usize, slice: &Array) {
        let (from, to) = (slice.layout().offset * slice.dtype().size(), step * self.n_bytes);
        let into = &mut self.storage.bytes_mut()[to..to + self.n_bytes];
        slice.storage().read(|bytes| into.copy_from_slice(&bytes[from..from + self.n_bytes]));
    }

    fn tensor(self) -> Result<Tensor> {
        let layout = Layout { sizes: self.ty.sizes.clone(), strides: self.ty.strides.clone(), offset: 0 };
        Array::from_storage(self.storage.into(), self.ty.dtype, layout).map(Tensor::from_array)
    }
}

/// The type of that many values.
pub(super) fn stacked(slice: &TensorType, length: usize) -> TensorType {
    let sizes: SmallVec<[usize; 6]> = std::iter::once(length).chain(slice.sizes.iter().copied()).collect();
    TensorType::contiguous(slice.dtype, &sizes)
}

/// The slices of one tensor.
struct Slices<'a> {
    array: Cow<'a, Array>,
    layout: Layout,
    stride: usize,
}

impl<'a> Slices<'a> {
    fn of(array: Cow<'a, Array>) -> Slices<'a> {
        let Layout { sizes, strides, offset } = array.layout();
        let layout = Layout { sizes: sizes[1..].into(), strides: strides[1..].into(), offset: *offset };
        let stride = strides[0];
        Slices { array, layout, stride }
    }

    fn at(&self, step: usize) -> Array {
        let offset = self.layout.offset + step * self.stride;
        self.array.with_layout(Layout { offset, ..self.layout.clone() })
    }
}

impl Repeated {
    /// The types of the results.
    pub(super) fn types(&self) -> Vec<TensorType> {
        let (carry, ys) = self.subprogram.results.split_at(self.n_carry);
        let all = ys.iter().chain(if self.keeps_carries { carry } else { &[] });
        carry.iter().cloned().chain(all.map(|ty| stacked(ty, self.length))).collect()
    }
}

impl Callee for Repeated {
    fn name(&self) -> &'static str {
        self.op
    }

    fn call(&self, operands: &[Tensor]) -> Result<Vec<Tensor>> {
        let (first, rest) = operands.split_at(self.n_carry);
        let (xs, captured) = rest.split_at(self.xs.len());
        let (carries, ys) = self.subprogram.results.split_at(self.n_carry);
        let mut carry: SmallVec<[Array; 4]> = first
            .iter()
            .zip(carries)
            .map(|(tensor, ty)| fitted(tensor.array(), ty).map(Cow::into_owned))
            .collect::<Result<_>>()?;
        let slices = xs.iter().zip(&self.xs).map(|(tensor, ty)| Ok(Slices::of(fitted(tensor.array(), ty)?)));
        let slices = slices.collect::<Result<SmallVec<[Slices<'_>; 4]>>>()?;
        let types = &self.subprogram.inputs[self.n_carry + self.xs.len()..];
        let captured = captured.iter().zip(types).map(|(tensor, ty)| fitted(tensor.array(), ty));
        let captured = captured.collect::<Result<SmallVec<[Cow<'_, Array>; 8]>>>()?;
        let stack = |types: &[TensorType]| types.iter().map(|ty| Stacked::new(ty, self.length)).collect::<Result<_>>();
        let mut ys: SmallVec<[Stacked; 4]> = stack(ys)?;
        let mut kept: SmallVec<[Stacked; 4]> = stack(if self.keeps_carries { carries } else { &[] })?;
        if self.length >= MANY {
            self.subprogram.warm();
        }
        for step in 0..self.length {
            let at = if self.is_reversed { self.length - 1 - step } else { step };
            kept.iter_mut().zip(&carry).for_each(|(kept, carry)| kept.put(at, carry));
            let xs: SmallVec<[Array; 4]> = slices.iter().map(|slices| slices.at(at)).collect();
            let results = {
                let inputs: SmallVec<[&Array; 16]> =
                    carry.iter().chain(&xs).chain(captured.iter().map(|array| &**array)).collect();
                self.subprogram.run(&inputs).map_err(|error| in_step(error, self.op, step))?
            };
            for (at_result, result) in results.into_iter().take(self.subprogram.results.len()).enumerate() {
                let ty = &self.subprogram.results[at_result];
                let result = refitted(result, ty)?;
                match at_result.checked_sub(self.n_carry) {
                    None => carry[at_result] = result,
                    Some(y) => ys[y].put(at, &result),
                }
            }
        }
        let mut results = results_of(carry.into_iter().zip(carries), operands)?;
        for stacked in ys.into_iter().chain(kept) {
            results.push(stacked.tensor()?);
        }
        Ok(results)
    }

    fn is_same(&self, other: &dyn Callee) -> bool {
        let Some(other) = (other as &dyn Any).downcast_ref::<Repeated>() else { return false };
        self.op == other.op
            && self.subprogram.is_same(&other.subprogram)
            && (self.n_carry, self.length) == (other.n_carry, other.length)
            && self.xs == other.xs
            && (self.is_reversed, self.keeps_carries) == (other.is_reversed, other.keeps_carries)
    }

    fn body(&self) -> BodySize {
        self.subprogram.size
    }
}

/// An error of a step of a loop.
#[cold]
pub(super) fn in_step(error: Error, op: &str, step: usize) -> Error {
    error.recorded_at(&format!(" (in step {step} of {op})"))
}
