//! Executables that are one kernel with one result: what most eager calls are.
//!
//! Nothing is looked up while it runs: the memory of the result is taken, the operands are locked, and the kernel is
//! started. [`Executable::run`](super::Executable::run) does the same by its list of actions.

use super::executable::{Launch, Slot};
use super::shared_layout::SharedLayout;
use super::{Argument, Array};
use crate::device::{Access, Device, Storage};
use crate::error::Result;
use crate::ir::{DType, Layout, TensorType};
use smallvec::SmallVec;
use std::sync::Arc;

/// One kernel that makes one result of arguments.
pub(super) struct Single {
    launch: Arc<Launch>,
    /// By slot, the argument that lies there.
    argument_of: SmallVec<[Option<usize>; 6]>,
    dtype: DType,
    /// Shared by all results.
    layout: SharedLayout,
    /// Bytes of the result.
    bytes: usize,
}

impl Single {
    /// A launch whose inputs lie in `inputs` and whose result is new memory of type `ty`; `None` if it needs more
    /// than its inputs.
    pub(super) fn new(
        launch: &Arc<Launch>,
        inputs: &[Option<Slot>],
        ty: &TensorType,
        n_slots: usize,
    ) -> Option<Single> {
        let argument_of: SmallVec<[Option<usize>; 6]> =
            (0..n_slots).map(|slot| inputs.iter().position(|input| *input == Some(slot))).collect();
        let given = launch.operands.iter().flatten().all(|&slot| argument_of[slot].is_some());
        let layout = Layout { sizes: ty.sizes.clone(), strides: ty.strides.clone(), offset: 0 };
        let bytes = layout.extent() * ty.dtype.size();
        (given && launch.outputs.len() == 1).then(|| Single {
            launch: launch.clone(),
            argument_of,
            dtype: ty.dtype,
            layout: SharedLayout::frequent(layout),
            bytes,
        })
    }

    /// Runs on arguments that have exactly the types of the inputs, and bytes on the CPU; `make` makes something of
    /// the result.
    ///
    /// # Errors
    /// Out of memory, or what the kernel finds wrong with the elements.
    #[inline]
    pub(super) fn run<T>(&self, arguments: &[Argument<'_>], make: impl FnOnce(Array) -> T) -> Result<T> {
        self.run_on(arguments.len(), |index| arguments[index].array, make)
    }

    /// The same on `n` arrays, by their positions.
    ///
    /// # Errors
    /// As [`Single::run`].
    #[inline]
    pub(super) fn run_on<'a, T>(
        &self,
        n: usize,
        argument: impl Fn(usize) -> &'a Array,
        make: impl FnOnce(Array) -> T,
    ) -> Result<T> {
        let storage = Storage::shareable(Device::CPU, self.bytes)?;
        let array = |slot: Slot| {
            let index = self.argument_of[slot].expect("operands of the kernel are arguments: seen when it was made");
            argument(index)
        };
        let access = Access::to_read((0..n).map(|index| &**argument(index).storage()));
        #[allow(unsafe_code, reason = "kernels work on raw pointers")]
        // SAFETY: the arguments have the types of the graph's inputs, which the accesses were made from, and `access`
        // keeps writers out; the result was made above with the type of the graph's output, and nobody else knows it.
        unsafe {
            self.launch.start(array, &[storage.ptr()])?;
        }
        drop(access);
        Ok(make(Array { storage, dtype: self.dtype, layout: self.layout.clone() }))
    }
}
