//! Checks the owner of a file. Files of the folder are run, so only the user may have been able to write them.
//!
//! The check uses the handle that the file is then read from, so the file cannot be exchanged in between. Without Unix
//! permissions nothing is trusted; no tier that stores code runs on such systems.

#![allow(unsafe_code, reason = "asks the system which user this is")]

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::Result;
use std::path::Path;

/// Whether the user owns the file and no other user may write it.
#[cfg(unix)]
pub(super) fn is_trusted(metadata: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: it has no arguments, touches no memory and cannot fail.
    let user = unsafe { libc::geteuid() };
    metadata.uid() == user && metadata.mode() & WRITABLE_BY_OTHERS == 0
}

/// The write permissions of group and others.
#[cfg(unix)]
const WRITABLE_BY_OTHERS: u32 = 0o022;

#[cfg(not(unix))]
pub(super) fn is_trusted(_: &Metadata) -> bool {
    false
}

/// Opens a file for reading. A link is an error, and a pipe does not block.
pub(super) fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options.open(path)
}

/// Creates a new file for the user alone.
pub(super) fn create(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Creates a folder for the user alone, with its parents.
pub(super) fn create_folder(path: &Path) -> Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}
