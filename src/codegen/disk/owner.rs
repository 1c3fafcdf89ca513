//! Whose a file is. What lies in the folder is run, so nobody but the user may have written it.
//!
//! A file is judged by the handle that it is then read from, so it cannot be exchanged in between. Systems without Unix
//! permissions trust nothing; no tier whose code is kept runs there.

#![allow(unsafe_code, reason = "asks the system which user this is")]

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::Result;
use std::path::Path;

/// Whether the user owns it and nobody else may write it.
#[cfg(unix)]
pub(super) fn is_trusted(metadata: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: it has no arguments, touches no memory and cannot fail.
    let user = unsafe { libc::geteuid() };
    metadata.uid() == user && metadata.mode() & WRITABLE_BY_OTHERS == 0
}

/// The permissions of a group and of all to write.
#[cfg(unix)]
const WRITABLE_BY_OTHERS: u32 = 0o022;

#[cfg(not(unix))]
pub(super) fn is_trusted(_: &Metadata) -> bool {
    false
}

/// Opens a file for reading; a link is an error, and a pipe does not wait.
pub(super) fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options.open(path)
}

/// Makes a file for the user alone that is not there yet.
pub(super) fn create(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes a folder for the user alone, and those around it.
pub(super) fn create_folder(path: &Path) -> Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}
