//! Compiles source to a cubin: by the folder of compiled code if it has one, and else by NVRTC.
//!
//! NVRTC takes 0.1 to 0.2 s per source. So `OPFUSE_CACHE_DIR` keeps cubins between processes, as it keeps machine code
//! ([`crate::codegen::disk`]). The key is the source, the options (which name the architecture) and the version of
//! NVRTC. A damaged file is compiled again.

use super::{OPTIONS, PRELUDE, Source};
use crate::codegen::disk::{self, Key};
use crate::device::Device;
use crate::device::cuda;
use crate::error::Result;

/// Where a cubin came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// NVRTC compiled it.
    Compiled,
    /// It was on disk.
    Disk,
}

/// The cubin of a source for a device.
///
/// # Errors
/// If there is no such device or no NVRTC, or the source does not compile: the error holds the log.
pub(crate) fn cubin(device: Device, source: &Source) -> Result<(Vec<u8>, Origin)> {
    let code = format!("{PRELUDE}{}", source.code);
    let mut options: Vec<String> = OPTIONS.map(String::from).into();
    options.push(format!("--gpu-architecture={}{}", cuda::architecture(device)?, source.target.suffix()));
    if cuda::compiler_version()?.0 >= 13 {
        // The source needs nothing of what it leaves out; a short one compiles in four fifths of the time.
        options.push("--minimal".into());
    }
    let Some(folder) = disk::folder() else { return Ok((cuda::compile(&code, &options)?, Origin::Compiled)) };
    let key = Key::new(("cubin", &code, &options, cuda::compiler_version()?));
    if let Ok(cubin) = folder.load(&key) {
        return Ok((cubin, Origin::Disk));
    }
    let cubin = cuda::compile(&code, &options)?;
    folder.store(&key, &cubin);
    Ok((cubin, Origin::Compiled))
}
