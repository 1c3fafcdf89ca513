//! Executables that are one kernel with one result, as most eager calls are.
//!
//! Nothing is looked up while it runs: it allocates the result, locks the operands, and starts the kernel.
//! [`Executable::run`](super::Executable::run) does the same through its list of actions.

use super::array::Array;
use super::launch::{BoxedResult, Launch, Slot};
use super::shared_layout::SharedLayout;
use crate::device::{Access, Device, ShortAccess, Storage};
use crate::ir::{DType, Layout, TensorType};
use smallvec::SmallVec;
use std::sync::Arc;

/// Most operands of such a kernel.
const MAX_OPERANDS: usize = 8;

/// The pointers of operands that are not in memory.
const NO_POINTERS: [*const u8; MAX_OPERANDS] = [std::ptr::dangling(); MAX_OPERANDS];

/// Replaces the argument of an operand that is not in memory.
const NO_ARGUMENT: u8 = u8::MAX;

/// One kernel that computes one result from arguments.
pub struct Single {
    launch: Arc<Launch>,
    /// Per operand of the kernel, its argument.
    operands: SmallVec<[u8; MAX_OPERANDS]>,
    dtype: DType,
    /// The layout of all results.
    layout: SharedLayout,
    /// Bytes of the result.
    bytes: usize,
    /// Whether it runs so shortly that writers may spin until it is done.
    is_short: bool,
}

/// Most elements of a short kernel, which takes a few microseconds.
const SHORT: usize = 1 << 14;

impl Single {
    /// A launch whose inputs are in the slots `inputs` and whose result is new memory of type `ty`; `None` if it needs
    /// more than its inputs.
    pub(super) fn new(launch: &Arc<Launch>, inputs: &[Option<Slot>], ty: &TensorType) -> Option<Single> {
        let argument = |slot: &Option<Slot>| match slot {
            None => Some(NO_ARGUMENT),
            Some(slot) => {
                let index = inputs.iter().position(|input| *input == Some(*slot))?;
                u8::try_from(index).ok().filter(|&index| index != NO_ARGUMENT)
            }
        };
        let operands = launch.operands.iter().map(argument).collect::<Option<SmallVec<[u8; MAX_OPERANDS]>>>()?;
        let is_small = operands.len() <= MAX_OPERANDS;
        let geometry = &launch.lowered.geometry;
        let layout = Layout { sizes: ty.sizes.clone(), strides: ty.strides.clone(), offset: 0 };
        let bytes = layout.extent() * ty.dtype.size();
        (is_small && launch.outputs.len() == 1).then(|| Single {
            launch: launch.clone(),
            operands,
            dtype: ty.dtype,
            layout: SharedLayout::frequent(layout),
            bytes,
            is_short: geometry.n_rows().saturating_mul(geometry.n_inner()) <= SHORT,
        })
    }

    /// Runs on `n` arguments that have exactly the types of the inputs, and bytes on the CPU. The result is passed to
    /// `make`.
    ///
    /// # Errors
    /// Out of memory, or a fault of the kernel.
    #[inline]
    pub fn run<'a, T>(
        &self,
        n: usize,
        argument: impl Fn(usize) -> &'a Array,
        make: impl FnOnce(Array) -> T,
    ) -> BoxedResult<T> {
        let storage = Storage::shareable(Device::CPU, self.bytes)?;
        let mut operands = NO_POINTERS;
        self.point(&mut operands, &argument);
        let storages = (0..n).map(|index| &**argument(index).storage());
        let access = match self.is_short {
            true => ShortAccess::to_read(storages),
            false => ShortAccess::Locked(Access::to_read(storages)),
        };
        #[allow(unsafe_code, reason = "kernels work on raw pointers")]
        // SAFETY: the arguments have the types of the graph's inputs, which the accesses were made from, and `access`
        // keeps writers out. The result was made above with the type of the graph's output, and nothing else has it.
        unsafe {
            self.launch.start_at(&operands[..self.operands.len()], &[storage.ptr()])?;
        }
        drop(access);
        Ok(make(Array { storage, dtype: self.dtype, layout: self.layout.clone() }))
    }

    /// Runs on `n` arguments of which the first is the target: the result replaces its elements. The arguments are as
    /// for [`Single::run`]. One that shares the target's storage has its layout and dtype.
    ///
    /// # Errors
    /// As for [`Single::run`], or if a slice of the target is borrowed.
    #[inline]
    pub fn run_in_place<'a>(&self, n: usize, argument: impl Fn(usize) -> &'a Array) -> BoxedResult<()> {
        let target = argument(0);
        let mut operands = NO_POINTERS;
        self.point(&mut operands, &argument);
        let reads = (1..n).map(|index| &**argument(index).storage());
        let access = Access::to_write(reads, [&**target.storage() as &Storage])?;
        #[allow(unsafe_code, reason = "kernels work on raw pointers")]
        // SAFETY: the arguments have the types of the graph's inputs, which the accesses were made from, and the target
        // that of its output. `access` locks the target exclusively and keeps writers out of the others. Operands in
        // the target's storage have its layout, and only kernels that work in place are kept for this.
        unsafe {
            self.launch.start_at(&operands[..self.operands.len()], &[target.ptr()])?;
        }
        drop(access);
        Ok(())
    }

    /// Stores the addresses of the kernel's operands. It writes in place, because a returned array would be copied in
    /// wider pieces than it was written in, which stalls the processor.
    #[inline(always)]
    fn point<'a>(&self, operands: &mut [*const u8; MAX_OPERANDS], argument: &impl Fn(usize) -> &'a Array) {
        for (pointer, index) in operands.iter_mut().zip(&self.operands) {
            if *index != NO_ARGUMENT {
                *pointer = argument(*index as usize).ptr().cast_const();
            }
        }
    }
}
