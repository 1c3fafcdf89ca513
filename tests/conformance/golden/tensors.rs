//! The tensors of one operator's cases, by key.
//!
//! An argument is a strided view of a storage window of its own. So offsets, gaps, repeated elements (stride 0) and
//! empty tensors are exact, and a call that writes can be checked element by element.

use super::case::Window;
use opfuse::device::{Shared, Storage};
use opfuse::dispatch::Array;
use opfuse::ir::Layout;
use opfuse::{DType, Device, Tensor};
use safetensors::{Dtype, SafeTensors};

/// The stored tensors.
pub(crate) struct Store<'a>(SafeTensors<'a>);

impl<'a> Store<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Store<'a>, String> {
        SafeTensors::deserialize(bytes).map(Store).map_err(|error| error.to_string())
    }

    /// The tensor under a key, row-major.
    pub(crate) fn get(&self, key: &str) -> Result<Tensor, String> {
        let view = self.0.tensor(key).map_err(|error| format!("{key}: {error}"))?;
        tensor(dtype_of(view.dtype())?, view.shape().to_vec(), view.data())
    }

    /// The bytes under a key, if there are any.
    pub(crate) fn bytes(&self, key: &str) -> Option<&[u8]> {
        self.0.tensor(key).ok().map(|view| view.data())
    }

    /// A tensor argument.
    pub(crate) fn argument(&self, window: &Window) -> Result<Tensor, String> {
        let stored = self.get(&window.key)?;
        if stored.dtype() != window.dtype {
            return Err(format!("{} is stored as {}", window.key, stored.dtype()));
        }
        let layout = Layout {
            sizes: window.sizes.iter().copied().collect(),
            strides: window.strides.iter().copied().collect(),
            offset: window.offset,
        };
        over(&stored, layout)
    }
}

/// The whole storage of a tensor as a 1-dim tensor.
pub(crate) fn whole_storage(tensor: &Tensor) -> Result<Tensor, String> {
    let count = tensor.array().storage().len() / tensor.dtype().size();
    over(tensor, Layout::contiguous(&[count]))
}

/// Another view of a tensor's storage.
fn over(tensor: &Tensor, layout: Layout) -> Result<Tensor, String> {
    let array = Array::from_storage(tensor.array().storage().clone(), tensor.dtype(), layout);
    array.map(Tensor::from_array).map_err(|error| error.to_string())
}

fn tensor(dtype: DType, sizes: Vec<usize>, bytes: &[u8]) -> Result<Tensor, String> {
    let storage = Storage::copy_of(Device::CPU, bytes).map_err(|error| error.to_string())?;
    let array = Array::from_storage(Shared::new(storage), dtype, Layout::contiguous(&sizes));
    array.map(Tensor::from_array).map_err(|error| error.to_string())
}

fn dtype_of(stored: Dtype) -> Result<DType, String> {
    Ok(match stored {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        other => return Err(format!("stored dtype {other:?} is none of ours")),
    })
}
