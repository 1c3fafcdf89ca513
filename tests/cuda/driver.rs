#![allow(unsafe_code, reason = "calls functions that fakes have beside those that they imitate")]
//! What the fakes of the driver and cublasLt report about themselves.

use crate::fakes::on_device;
use std::ffi::{CString, c_char, c_long, c_void};
use std::path::PathBuf;

/// The fake of the driver, as the library has it.
fn fake() -> libloading::Library {
    loaded("libcuda.so.1")
}

fn loaded(file: &str) -> libloading::Library {
    let folder = std::env::var_os("OPFUSE_CUDA_LIB_DIR").expect("a test on fakes names their folder");
    // SAFETY: the fake's initializers run; they also ran when the library was first loaded.
    unsafe { libloading::Library::new(PathBuf::from(folder).join(file)) }.expect("it is loaded already")
}

/// How often functions of the driver were called.
pub(crate) fn calls<const N: usize>(names: [&str; N]) -> [i64; N] {
    calls_of(&fake(), "fake_calls", names)
}

/// How often functions of cublasLt were called.
pub(crate) fn cublaslt_calls<const N: usize>(names: [&str; N]) -> [i64; N] {
    calls_of(&loaded("libcublasLt.so.13"), "fake_lt_calls", names)
}

/// How many descriptions of cublasLt there are.
pub(crate) fn cublaslt_descriptions() -> i64 {
    let library = loaded("libcublasLt.so.13");
    // SAFETY: the function has this type, and takes nothing.
    unsafe { library.get::<unsafe extern "C" fn() -> c_long>("fake_lt_live").expect("it has it")() }
}

fn calls_of<const N: usize>(library: &libloading::Library, function: &str, names: [&str; N]) -> [i64; N] {
    // SAFETY: the function has this type.
    let calls = unsafe { library.get::<unsafe extern "C" fn(*const c_char) -> c_long>(function) };
    let calls = calls.expect("the fake has it");
    names.map(|name| {
        let name = CString::new(name).expect("a name has no zero");
        // SAFETY: it reads a string that ends with a zero.
        unsafe { calls(name.as_ptr()) }
    })
}

/// The calls of functions of the driver while `work` runs, those that are not zero, in the order of names.
pub(crate) fn calls_during(work: impl FnOnce()) -> Vec<(&'static str, i64)> {
    let before = calls(FUNCTIONS);
    work();
    let after = calls(FUNCTIONS);
    let made = FUNCTIONS.into_iter().zip(after.into_iter().zip(before));
    made.map(|(name, (after, before))| (name, after - before)).filter(|&(_, calls)| calls != 0).collect()
}

/// Checks the number of executable graphs; on a device nothing is checked.
pub(crate) fn check_graphs(expected: i64) {
    if on_device() {
        return;
    }
    let library = fake();
    // SAFETY: the function has this type, and takes nothing.
    let found = unsafe { library.get::<unsafe extern "C" fn() -> c_long>("fake_graphs").expect("it has it")() };
    assert_eq!(found, expected, "executable graphs");
}

/// Runs the work of all streams, without anyone waiting for it.
pub(crate) fn run_all() {
    let library = fake();
    // SAFETY: the function has this type, and takes nothing.
    unsafe { library.get::<unsafe extern "C" fn()>("fake_run").expect("it has it")() };
}

/// Leaves the calling thread without a current context, as another library may.
pub(crate) fn leave_context() {
    let library = fake();
    // SAFETY: the function has this type, and no context is one that it takes.
    let code = unsafe {
        let set = library.get::<unsafe extern "C" fn(*mut c_void) -> i32>("cuCtxSetCurrent");
        set.expect("the fake has it")(std::ptr::null_mut())
    };
    assert_eq!(code, 0);
}

/// Functions that a run may call.
const FUNCTIONS: [&str; 22] = [
    "cuCtxSetCurrent",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncSetAttribute",
    "cuGraphAddKernelNode_v2",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuModuleLoadData",
    "cuStreamCreate",
    "cuStreamWaitEvent",
    "cuTensorMapEncodeTiled",
];
