#![allow(unsafe_code, reason = "calls NVRTC")]
//! NVRTC: compiles CUDA source to a cubin for one architecture.
//!
//! Source that does not compile is an error with NVRTC's log. Nothing is cached here.

use super::loader::COMPILER;
use super::no_device;
use crate::error::{Error, Result};
use cudarc::nvrtc::sys::{self, nvrtcResult};
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// Checks that NVRTC was found.
fn need() -> Result<()> {
    let hint =
        "install the CUDA toolkit's NVRTC or the nvidia-cuda-nvrtc wheel, and name its folder in OPFUSE_CUDA_LIB_DIR";
    COMPILER.find().map_err(|what| no_device(what, hint))
}

/// NVRTC's version, which is part of the key of a cubin.
///
/// # Errors
/// If there is no NVRTC.
pub(crate) fn compiler_version() -> Result<(u32, u32)> {
    static VERSION: OnceLock<Result<(u32, u32)>> = OnceLock::new();
    VERSION.get_or_init(read_version).clone()
}

fn read_version() -> Result<(u32, u32)> {
    need()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: NVRTC was found; the results have places.
    check(unsafe { sys::nvrtcVersion(&mut major, &mut minor) }, "nvrtcVersion")?;
    Ok((major as u32, minor as u32))
}

fn check(code: nvrtcResult, call: &str) -> Result<()> {
    if code == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    Err(no_device(format!("{call}: {}", message_of(code)), "see the documentation of NVRTC"))
}

fn message_of(code: nvrtcResult) -> String {
    // SAFETY: the result is a static string of NVRTC's.
    unsafe { CStr::from_ptr(sys::nvrtcGetErrorString(code)).to_string_lossy().into_owned() }
}

/// Compiles source with these options.
///
/// # Errors
/// If there is no NVRTC, or the source does not compile: the error holds the log.
pub(crate) fn compile(source: &str, options: &[String]) -> Result<Vec<u8>> {
    need()?;
    let as_c = |source: &str| CString::new(source).map_err(|_| Error::invalid("CUDA source", "it holds a zero byte"));
    let program = Program::new(&as_c(source)?)?;
    let options = options.iter().map(|option| as_c(option)).collect::<Result<Vec<CString>>>()?;
    program.compile(&options)?;
    program.cubin()
}

/// A program in NVRTC.
struct Program(sys::nvrtcProgram);

impl Program {
    fn new(source: &CStr) -> Result<Program> {
        let mut raw = std::ptr::null_mut();
        let nothing = std::ptr::null();
        // SAFETY: the source ends with a zero, there are no headers, and the result has a place.
        let code =
            unsafe { sys::nvrtcCreateProgram(&mut raw, source.as_ptr(), c"opfuse.cu".as_ptr(), 0, nothing, nothing) };
        check(code, "nvrtcCreateProgram").map(|()| Program(raw))
    }

    fn compile(&self, options: &[CString]) -> Result<()> {
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is alive, and so are the options, whose number is passed.
        let code = unsafe { sys::nvrtcCompileProgram(self.0, pointers.len() as i32, pointers.as_ptr()) };
        if code == nvrtcResult::NVRTC_SUCCESS {
            return Ok(());
        }
        let log = self.log().unwrap_or_default();
        Err(Error::invalid("CUDA source", format!("{}:\n{}", message_of(code), log.trim_end())))
    }

    fn log(&self) -> Result<String> {
        let mut size = 0;
        // SAFETY: the program is alive; the result has a place.
        check(unsafe { sys::nvrtcGetProgramLogSize(self.0, &mut size) }, "nvrtcGetProgramLogSize")?;
        let mut log = vec![0u8; size];
        // SAFETY: the buffer has the size of the log.
        check(unsafe { sys::nvrtcGetProgramLog(self.0, log.as_mut_ptr().cast()) }, "nvrtcGetProgramLog")?;
        Ok(String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned())
    }

    fn cubin(&self) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the program is alive; the result has a place.
        check(unsafe { sys::nvrtcGetCUBINSize(self.0, &mut size) }, "nvrtcGetCUBINSize")?;
        let mut cubin = vec![0u8; size];
        // SAFETY: the buffer has the size of the cubin.
        check(unsafe { sys::nvrtcGetCUBIN(self.0, cubin.as_mut_ptr().cast()) }, "nvrtcGetCUBIN")?;
        Ok(cubin)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was made by `new`, and nothing else has it.
        unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}
