#![allow(unsafe_code, reason = "calls cublasLt")]
//! Matrix products by cublasLt, as safe values that own its handles.
//!
//! A [`Matmul`] is a [`Problem`] with an algorithm that cublasLt has chosen. It may be started from any thread and on
//! any stream of its device. Each start brings its own workspace, so runs share none.
//!
//! cublasLt is column-major. A row-major result is the transposed column-major one. So its first operand is the
//! problem's right one, its rows are the problem's columns, and a number per column is what it calls a bias.
//!
//! f32 is computed in f32 (`CUBLAS_COMPUTE_32F`, never TF32), and so are the sums of 16-bit floats; f64 in f64.

use super::driver::{Context, Queue};
use super::loader::CUBLASLT;
use super::machine::handle;
use super::problem::{Activation, Addresses, Matrix, Order, Problem};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ir::DType;
use cudarc::cublaslt::sys::{self, cublasStatus_t as Status};
use std::ffi::{CStr, c_void};
use std::fmt;
use std::ptr::{from_ref, null_mut};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The cublasLt of CUDA 12.0.
const OLDEST: usize = 120_000;

/// `CUBLAS_OP_N` and `CUBLAS_OP_T`.
const NOT_TRANSPOSED: i32 = 0;
const TRANSPOSED: i32 = 1;

/// Looks for cublasLt.
///
/// # Errors
/// If it may not be called: what was looked for and where. The same at every call.
pub(crate) fn find_cublaslt() -> std::result::Result<(), String> {
    static FOUND: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    let find = || {
        CUBLASLT.find()?;
        // SAFETY: the library was found and has the function, which takes no arguments.
        let version = unsafe { sys::cublasLtGetVersion() };
        if version < OLDEST {
            return Err(format!("cublasLt {version} is too old: CUDA 12.0 or later is needed"));
        }
        Ok(())
    };
    FOUND.get_or_init(find).clone()
}

/// Turns a failed call into an error that names it, the device, and its purpose.
fn check(status: Status, call: &str, context: &Context, what_for: &dyn fmt::Display) -> Result<()> {
    if status == Status::CUBLAS_STATUS_SUCCESS { Ok(()) } else { Err(failure(status, call, context, what_for)) }
}

#[cold]
fn failure(status: Status, call: &str, context: &Context, what_for: &dyn fmt::Display) -> Error {
    // SAFETY: the result is a static string of cublasLt's.
    let name = unsafe { CStr::from_ptr(sys::cublasLtGetStatusName(status)) }.to_string_lossy();
    Error::Device {
        op: call.into(),
        what: format!("{name} on cuda:{}, for {what_for}", context.index),
        hint: "OPFUSE_CUDA_PRODUCTS=own computes products without cublasLt, and Numerics::Strict never uses it".into(),
    }
}

/// A device's handle of cublasLt.
pub(super) struct Handle {
    raw: sys::cublasLtHandle_t,
    context: Arc<Context>,
}

// SAFETY: cublasLt's handles may be used from several threads at once.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Makes a handle; cublasLt was found.
    pub(super) fn new(context: &Arc<Context>) -> Result<Handle> {
        let mut raw = null_mut();
        context.enter()?;
        // SAFETY: the result has a place.
        check(unsafe { sys::cublasLtCreate(&mut raw) }, "cublasLtCreate", context, &"matrix products")?;
        Ok(Handle { raw, context: context.clone() })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A failure in a destructor cannot be handled.
        if self.context.enter().is_ok() {
            // SAFETY: it was made by `new`, and nothing else has it.
            unsafe { sys::cublasLtDestroy(self.raw) };
        }
    }
}

/// Descriptors that cublasLt keeps in host memory until they are dropped.
macro_rules! descriptions {
    ($($(#[$doc:meta])* $name:ident($raw:ty), $attribute:ty, $set:path, $set_name:literal, $destroy:path;)*) => {$(
        $(#[$doc])*
        struct $name($raw);

        // SAFETY: it is host memory that belongs to no thread.
        unsafe impl Send for $name {}
        // SAFETY: concurrent readers take `&self`; the only write through `&self` is made under a lock.
        unsafe impl Sync for $name {}

        impl $name {
            /// Sets an attribute to a value of exactly its type.
            fn set<T: Copy>(&self, attribute: $attribute, value: T, of: &Of<'_>) -> Result<()> {
                // SAFETY: the descriptor is alive, and the value is read before this returns.
                let status = unsafe { $set(self.0, attribute, from_ref(&value).cast::<c_void>(), size_of::<T>()) };
                of.check(status, $set_name)
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: it was made by cublasLt, and nothing else has it.
                unsafe { $destroy(self.0) };
            }
        }
    )*};
}

descriptions! {
    /// What is computed.
    Description(sys::cublasLtMatmulDesc_t), sys::cublasLtMatmulDescAttributes_t, sys::cublasLtMatmulDescSetAttribute,
        "cublasLtMatmulDescSetAttribute", sys::cublasLtMatmulDescDestroy;
    /// The layout of a matrix.
    Layout(sys::cublasLtMatrixLayout_t), sys::cublasLtMatrixLayoutAttribute_t, sys::cublasLtMatrixLayoutSetAttribute,
        "cublasLtMatrixLayoutSetAttribute", sys::cublasLtMatrixLayoutDestroy;
    /// The requirements of an algorithm.
    Preference(sys::cublasLtMatmulPreference_t), sys::cublasLtMatmulPreferenceAttributes_t,
        sys::cublasLtMatmulPreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute", sys::cublasLtMatmulPreferenceDestroy;
}

/// The purpose of calls.
struct Of<'a> {
    context: &'a Context,
    problem: &'a Problem,
}

impl Of<'_> {
    fn check(&self, status: Status, call: &str) -> Result<()> {
        check(status, call, self.context, self.problem)
    }

    fn description(&self) -> Result<Description> {
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        let (compute, scale) = match self.problem.dtype {
            DType::F64 => (sys::cublasComputeType_t::CUBLAS_COMPUTE_64F, sys::cudaDataType::CUDA_R_64F),
            DType::F16 | DType::BF16 | DType::F32 => {
                (sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType::CUDA_R_32F)
            }
            DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => return Err(self.no_float()),
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        };
        let mut raw = null_mut();
        // SAFETY: a place for the answer.
        let status = unsafe { sys::cublasLtMatmulDescCreate(&mut raw, compute, scale) };
        self.check(status, "cublasLtMatmulDescCreate")?;
        let description = Description(raw);
        // It expects the columns of its operands to be contiguous.
        let transposed = |order: Order| match order {
            Order::Rows => NOT_TRANSPOSED,
            Order::Columns => TRANSPOSED,
        };
        description.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, transposed(self.problem.right.order), self)?;
        description.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, transposed(self.problem.left.order), self)?;
        description.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, self.epilogue(), self)?;
        Ok(description)
    }

    fn epilogue(&self) -> sys::cublasLtEpilogue_t {
        use sys::cublasLtEpilogue_t as Epilogue;
        match (self.problem.epilogue.has_bias, self.problem.epilogue.activation) {
            (false, Activation::Nothing) => Epilogue::CUBLASLT_EPILOGUE_DEFAULT,
            (false, Activation::Relu) => Epilogue::CUBLASLT_EPILOGUE_RELU,
            (false, Activation::Gelu) => Epilogue::CUBLASLT_EPILOGUE_GELU,
            (true, Activation::Nothing) => Epilogue::CUBLASLT_EPILOGUE_BIAS,
            (true, Activation::Relu) => Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS,
            (true, Activation::Gelu) => Epilogue::CUBLASLT_EPILOGUE_GELU_BIAS,
        }
    }

    /// The layout of a matrix of `rows` by `columns` elements of the problem.
    fn layout(&self, dtype: DType, [rows, columns]: [usize; 2], matrix: Matrix) -> Result<Layout> {
        use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
        let dtype = match dtype {
            DType::F16 => sys::cudaDataType::CUDA_R_16F,
            DType::BF16 => sys::cudaDataType::CUDA_R_16BF,
            DType::F32 => sys::cudaDataType::CUDA_R_32F,
            DType::F64 => sys::cudaDataType::CUDA_R_64F,
            DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => return Err(self.no_float()),
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        };
        // What is contiguous is a column to cublasLt.
        let (its_rows, its_columns) = match matrix.order {
            Order::Rows => (columns, rows),
            Order::Columns => (rows, columns),
        };
        let mut raw = null_mut();
        // SAFETY: the result has a place.
        let status = unsafe {
            sys::cublasLtMatrixLayoutCreate(&mut raw, dtype, its_rows as u64, its_columns as u64, matrix.pitch as i64)
        };
        self.check(status, "cublasLtMatrixLayoutCreate")?;
        let layout = Layout(raw);
        if self.problem.n_batches > 1 {
            let n_batches = i32::try_from(self.problem.n_batches).map_err(|_| self.too_many())?;
            layout.set(Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, n_batches, self)?;
            layout.set(Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.batch as i64, self)?;
        }
        Ok(layout)
    }

    /// Requirements: the alignments of right operand, left operand and result, and the most workspace.
    fn preference(&self, alignments: [usize; 3], most_workspace: usize) -> Result<Preference> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let mut raw = null_mut();
        // SAFETY: the result has a place.
        let status = unsafe { sys::cublasLtMatmulPreferenceCreate(&mut raw) };
        self.check(status, "cublasLtMatmulPreferenceCreate")?;
        let preference = Preference(raw);
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most_workspace as u64, self)?;
        let [a, b, d] = alignments.map(|alignment| alignment as u32);
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a, self)?;
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b, self)?;
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, d, self)?;
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d, self)?;
        Ok(preference)
    }

    fn no_float(&self) -> Error {
        Error::invalid("matrix product", format!("cublasLt multiplies floats, not {}", self.problem.dtype))
    }

    fn too_many(&self) -> Error {
        Error::invalid(
            "matrix product",
            format!("cublasLt takes fewer than 2^31 matrices, not {}", self.problem.n_batches),
        )
    }
}

/// A matrix product with the algorithm that computes it.
pub(crate) struct Matmul {
    problem: Problem,
    handle: Arc<Handle>,
    description: Description,
    left: Layout,
    right: Layout,
    result: Layout,
    algorithm: sys::cublasLtMatmulAlgo_t,
    workspace: usize,
    /// Locked while the descriptor holds the bias address of one start.
    turn: Mutex<()>,
}

impl Matmul {
    /// Asks cublasLt for an algorithm. The addresses of left operand, right operand and result (and bias) will have
    /// these `alignments`; the workspace is at most `most_workspace` bytes. `None` if there is no algorithm. cublasLt
    /// was [found](find_cublaslt).
    ///
    /// # Errors
    /// If there is no such device, or a call fails.
    pub(crate) fn new(
        device: Device,
        problem: Problem,
        alignments: [usize; 3],
        most_workspace: usize,
    ) -> Result<Option<Matmul>> {
        let handle = handle(device)?;
        let (of, Problem { dtype, m, k, n, .. }) = (Of { context: &handle.context, problem: &problem }, problem);
        handle.context.enter()?;
        let description = of.description()?;
        let left = of.layout(dtype, [m, k], problem.left)?;
        let right = of.layout(dtype, [k, n], problem.right)?;
        let result = of.layout(problem.result, [m, n], Matrix { order: Order::Rows, pitch: n, batch: m * n })?;
        let [of_left, of_right, of_result] = alignments;
        if problem.epilogue.has_bias {
            // Not an address of memory, but with the alignment of the real one. The heuristic does not read it.
            description.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, of_result, &of)?;
        }
        let preference = of.preference([of_right, of_left, of_result], most_workspace)?;
        let (mut count, mut found) = (0, NOTHING_FOUND);
        // SAFETY: descriptors are alive; there are places for one result and the number of results.
        let status = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle.raw,
                description.0,
                right.0,
                left.0,
                result.0,
                result.0,
                preference.0,
                1,
                &mut found,
                &mut count,
            )
        };
        let is_none = |status| status == Status::CUBLAS_STATUS_NOT_SUPPORTED;
        if is_none(status) {
            return Ok(None);
        }
        of.check(status, "cublasLtMatmulAlgoGetHeuristic")?;
        if count < 1 || is_none(found.state) || found.workspaceSize > most_workspace {
            return Ok(None);
        }
        of.check(found.state, "cublasLtMatmulAlgoGetHeuristic")?;
        let (algorithm, workspace, turn) = (found.algo, found.workspaceSize, Mutex::default());
        Ok(Some(Matmul { problem, handle, description, left, right, result, algorithm, workspace, turn }))
    }

    /// Bytes of workspace that a start needs.
    pub(crate) fn workspace(&self) -> usize {
        self.workspace
    }

    /// Starts the product on a stream.
    ///
    /// # Errors
    /// If the stream belongs to another device, or a call fails.
    ///
    /// # Safety
    /// The addresses are those of memory as the problem describes it, with the alignments that were given, and with a
    /// workspace of [`Matmul::workspace`] bytes. Operands stay unchanged, and nothing else uses the result and the
    /// workspace, until the stream has passed this point.
    pub(crate) unsafe fn start(&self, queue: &Queue, addresses: &Addresses) -> Result<()> {
        let context = &self.handle.context;
        let of = Of { context, problem: &self.problem };
        if !Arc::ptr_eq(queue.context(), context) {
            let what =
                format!("cublasLt of cuda:{} was to run on a stream of cuda:{}", context.index, queue.context().index);
            return Err(Error::Device { op: "cublasLtMatmul".into(), what, hint: "multiply on one device".into() });
        }
        context.enter()?;
        let _turn = self.problem.epilogue.has_bias.then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        if self.problem.epilogue.has_bias {
            let bias = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
            self.description.set(bias, addresses.bias, &of)?;
        }
        // One and zero, in the dtype of the sums.
        let ([one, zero], [wide_one, wide_zero]) = ([1.0f32, 0.0], [1.0f64, 0.0]);
        let (alpha, beta) = match self.problem.dtype {
            DType::F64 => (from_ref(&wide_one).cast::<c_void>(), from_ref(&wide_zero).cast::<c_void>()),
            DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => return Err(of.no_float()),
            DType::F16 | DType::BF16 | DType::F32 => (from_ref(&one).cast(), from_ref(&zero).cast()),
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        };
        let at = |address: u64| std::ptr::without_provenance_mut::<c_void>(address as usize);
        // SAFETY: handle and descriptors are alive, scale factors are read before this returns, and the caller
        // guarantees the rest. The result is not read, because its factor is zero.
        let status = unsafe {
            sys::cublasLtMatmul(
                self.handle.raw,
                self.description.0,
                alpha,
                at(addresses.right),
                self.right.0,
                at(addresses.left),
                self.left.0,
                beta,
                at(addresses.result),
                self.result.0,
                at(addresses.result),
                self.result.0,
                &self.algorithm,
                at(addresses.workspace),
                self.workspace,
                queue.raw().cast(),
            )
        };
        of.check(status, "cublasLtMatmul")
    }
}

/// A place for the result of the heuristic.
const NOTHING_FOUND: sys::cublasLtMatmulHeuristicResult_t = sys::cublasLtMatmulHeuristicResult_t {
    algo: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
    workspaceSize: 0,
    state: Status::CUBLAS_STATUS_NOT_SUPPORTED,
    wavesCount: 0.0,
    reserved: [0; 4],
};
