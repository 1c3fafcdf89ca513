//! Cubins of texts: asked of the folder of compiled code first, if there is one, then of NVRTC.
//!
//! Compiling a text takes NVRTC 0.1 to 0.2 s, so `OPFUSE_CACHE_DIR` keeps cubins between processes, as it keeps machine
//! code ([`crate::codegen::disk`]). A file is of use to the same text, options (which name the architecture) and version of
//! NVRTC alone; what is cut off or damaged is compiled again.

use super::{OPTIONS, PRELUDE, Source};
use crate::codegen::disk::{self, Key};
use crate::device::Device;
use crate::device::cuda;
use crate::error::Result;

/// Where a cubin came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// NVRTC has made it.
    Compiled,
    /// It was kept on disk.
    Disk,
}

/// The cubin of a text for a device.
///
/// # Errors
/// If there is no such device or no NVRTC, or the text does not compile: the error holds the log.
pub(crate) fn cubin(device: Device, source: &Source) -> Result<(Vec<u8>, Origin)> {
    let text = format!("{PRELUDE}{}", source.text);
    let mut options: Vec<String> = OPTIONS.map(String::from).into();
    options.push(format!("--gpu-architecture={}{}", cuda::architecture(device)?, source.target.suffix()));
    if cuda::compiler_version()?.0 >= 13 {
        // Texts need nothing of what it leaves out; a short one is compiled in four fifths of the time.
        options.push("--minimal".into());
    }
    let Some(folder) = disk::folder() else { return Ok((cuda::compile(&text, &options)?, Origin::Compiled)) };
    let key = Key::new(("cubin", &text, &options, cuda::compiler_version()?));
    if let Ok(cubin) = folder.load(&key) {
        return Ok((cubin, Origin::Disk));
    }
    let cubin = cuda::compile(&text, &options)?;
    folder.store(&key, &cubin);
    Ok((cubin, Origin::Compiled))
}
