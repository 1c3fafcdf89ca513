#![allow(unsafe_code, reason = "loads libraries of the system")]
//! Finds the driver, NVRTC and cublasLt, and loads them so that cudarc finds them too.
//!
//! cudarc loads a library by name and aborts the program if there is none. So every library is looked for here first,
//! and is called only if it was found. The system matches the names of loaded libraries. So a library in an unusual
//! folder is loaded here by its path, and never unloaded, before cudarc asks.
//!
//! Each library is looked for once per process: first in the folder of `OPFUSE_CUDA_LIB_DIR`, then where the system
//! looks, then in the folders of [`usual_places`].

use crate::debug;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A library of CUDA.
pub(super) struct Library {
    /// Its name in messages.
    what: &'static str,
    /// File names, the best first.
    files: &'static [&'static str],
    /// Prefix of the names of files that must be loaded before it.
    needs: Option<&'static str>,
    /// Functions that are called, and that an older version may lack.
    functions: &'static [&'static str],
    /// The CUDA version of the oldest library that has them.
    since: &'static str,
    is_there: fn() -> bool,
    lacks: fn(&str) -> bool,
    found: OnceLock<Result<(), String>>,
}

/// The driver, which comes with the GPU's kernel module.
pub(super) static DRIVER: Library = Library {
    what: "the CUDA driver",
    files: &["libcuda.so.1", "libcuda.so"],
    needs: None,
    functions: &["cuEventElapsedTime_v2", "cuLaunchKernel", "cuMemHostAlloc", "cuDevicePrimaryCtxRetain"],
    since: "12.8",
    is_there: is_driver_there,
    lacks: driver_lacks,
    found: OnceLock::new(),
};

/// NVRTC, which compiles CUDA source.
pub(super) static COMPILER: Library = Library {
    what: "NVRTC",
    files: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    // It looks them up by name only, so they must be loaded before.
    needs: Some("libnvrtc-builtins.so"),
    functions: &["nvrtcGetCUBIN", "nvrtcGetCUBINSize"],
    since: "12.8",
    is_there: is_compiler_there,
    lacks: compiler_lacks,
    found: OnceLock::new(),
};

/// cublasLt, which multiplies matrices. It is looked for when a product first wants it.
pub(super) static CUBLASLT: Library = Library {
    what: "cublasLt",
    files: &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
    needs: None,
    functions: &[
        "cublasLtCreate",
        "cublasLtDestroy",
        "cublasLtGetStatusName",
        "cublasLtGetVersion",
        "cublasLtMatmul",
        "cublasLtMatmulAlgoGetHeuristic",
        "cublasLtMatmulDescCreate",
        "cublasLtMatmulDescDestroy",
        "cublasLtMatmulDescSetAttribute",
        "cublasLtMatmulPreferenceCreate",
        "cublasLtMatmulPreferenceDestroy",
        "cublasLtMatmulPreferenceSetAttribute",
        "cublasLtMatrixLayoutCreate",
        "cublasLtMatrixLayoutDestroy",
        "cublasLtMatrixLayoutSetAttribute",
    ],
    since: "12.0",
    is_there: is_cublaslt_there,
    lacks: cublaslt_lacks,
    found: OnceLock::new(),
};

impl Library {
    /// Checks whether it may be called. The error says what was looked for and where.
    pub(super) fn find(&self) -> Result<(), String> {
        self.found.get_or_init(|| self.look()).clone()
    }

    fn look(&self) -> Result<(), String> {
        let named = debug::cuda_folder().map(PathBuf::from);
        if let Some(folder) = &named {
            self.load_from(folder);
        }
        if !(self.is_there)() {
            let places = usual_places();
            places.iter().any(|folder| self.load_from(folder));
            if !(self.is_there)() {
                return Err(self.not_found(named.as_deref(), &places));
            }
        }
        match self.functions.iter().find(|function| (self.lacks)(function)) {
            Some(function) => {
                Err(format!("{} is too old: it lacks {function}; CUDA {} or later is needed", self.what, self.since))
            }
            None => Ok(()),
        }
    }

    /// Whether it has all these functions; it was found before.
    pub(super) fn has(&self, functions: &[&str]) -> bool {
        !functions.iter().any(|function| (self.lacks)(function))
    }

    /// Loads it from a folder, if it is there, and never unloads it.
    fn load_from(&self, folder: &Path) -> bool {
        let Some(file) = self.files.iter().map(|file| folder.join(file)).find(|file| file.is_file()) else {
            return false;
        };
        if let Some(needed) = self.needs {
            files_of(folder).filter(|file| file_name(file).starts_with(needed)).for_each(|file| {
                load_for_good(&file);
            });
        }
        load_for_good(&file)
    }

    fn not_found(&self, named: Option<&Path>, places: &[PathBuf]) -> String {
        let listed: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        let folder = match named {
            Some(folder) => format!("in {} (OPFUSE_CUDA_LIB_DIR)", folder.display()),
            None => "in OPFUSE_CUDA_LIB_DIR (not set)".into(),
        };
        let (what, files) = (self.what, self.files.join(", "));
        let others = if listed.is_empty() { String::new() } else { format!(", and in {}", listed.join(", ")) };
        format!("{what} was not found: {files} was looked for {folder}, where the system looks for libraries{others}")
    }
}

fn is_driver_there() -> bool {
    // SAFETY: loads and unloads the library, which runs the driver's own initialisers.
    unsafe { cudarc::driver::sys::is_culib_present() }
}

fn is_compiler_there() -> bool {
    // SAFETY: loads and unloads the library, which runs NVRTC's own initialisers.
    unsafe { cudarc::nvrtc::sys::is_culib_present() }
}

fn is_cublaslt_there() -> bool {
    // SAFETY: loads and unloads the library, which runs cublasLt's own initialisers.
    unsafe { cudarc::cublaslt::sys::is_culib_present() }
}

fn driver_lacks(function: &str) -> bool {
    // SAFETY: the library was just found, and the symbol is not called.
    unsafe { cudarc::driver::sys::culib().get::<unsafe extern "C" fn()>(function).is_err() }
}

fn compiler_lacks(function: &str) -> bool {
    // SAFETY: as in `driver_lacks`.
    unsafe { cudarc::nvrtc::sys::culib().get::<unsafe extern "C" fn()>(function).is_err() }
}

fn cublaslt_lacks(function: &str) -> bool {
    // SAFETY: as in `driver_lacks`.
    unsafe { cudarc::cublaslt::sys::culib().get::<unsafe extern "C" fn()>(function).is_err() }
}

/// Loads a library and never unloads it. Returns whether it could be loaded.
fn load_for_good(file: &Path) -> bool {
    // SAFETY: a file with one of NVIDIA's names in a folder of libraries; its own initialisers run.
    let loaded = unsafe { libloading::Library::new(file) };
    loaded.map(std::mem::forget).is_ok()
}

/// Folders where CUDA may be installed and the system does not look.
fn usual_places() -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = ["/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"].map(PathBuf::from).into();
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    for home in ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable).map(PathBuf::from) {
        places.extend([home.join("lib64"), home.join("targets/x86_64-linux/lib")]);
    }
    let is_cuda = |folder: &PathBuf| file_name(folder).starts_with("cuda");
    places.extend(files_of(Path::new("/usr/local")).filter(is_cuda).map(|folder| folder.join("lib64")));
    for home in ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).map(PathBuf::from) {
        for python in files_of(&home.join("lib")).filter(|folder| file_name(folder).starts_with("python3")) {
            let packages = python.join("site-packages/nvidia");
            places.extend(["cu13/lib", "cuda_nvrtc/lib", "cublas/lib"].map(|folder| packages.join(folder)));
        }
    }
    places.retain(|place| place.is_dir());
    places
}

/// The entries of a folder, sorted by name; none if it cannot be read.
fn files_of(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    files.into_iter()
}

fn file_name(path: &Path) -> String {
    path.file_name().map(OsString::from).unwrap_or_default().to_string_lossy().into_owned()
}
