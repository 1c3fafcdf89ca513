//! Machine code on disk, for kernels that other processes compiled before. It is off by default.
//!
//! [`format`] defines the files, [`folder`] manages them, and [`owner`] checks who may have written them.
//! `OPFUSE_CACHE_DIR` or [`use_folder`] names the folder. The x64 tier, whose code has no relocations, and CUDA, for
//! cubins, use it.
//!
//! What always holds: a file is used only if it is intact, its key is exactly that of the kernel, and only the user can
//! have written it, because its content is run. Everything else is a [`Miss`], counted, and the kernel is compiled.
//! Absent: locks between processes. Files appear complete under their names, or not at all.

mod folder;
mod format;
mod owner;

pub use folder::Folder;
pub(in crate::codegen) use format::Key;

use crate::debug;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Most bytes of all files of a folder. Several processes that write at once may exceed it by what each of them writes
/// between two scans, which are at most 256 files apart.
pub const BOUND: u64 = 64 << 20;

/// Why no code was loaded from a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Miss {
    /// There is no such file.
    Absent,
    /// Another user owns the file or may write it, or it is no regular file.
    Untrusted,
    /// It is a link, or the system refuses to read it.
    Unreadable,
    /// It is truncated, or its checksum differs.
    Damaged,
    /// It is intact but has another key with the same name, or another format.
    Other,
}

/// What happened to a folder in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Kernels whose code was loaded.
    pub hits: u64,
    /// Kernels whose code was not loaded, by [`Miss`].
    pub misses: [u64; 5],
    /// Files written.
    pub stored: u64,
    /// Files that could not be written.
    pub not_stored: u64,
    /// Files removed to make room.
    pub removed: u64,
}

impl Stats {
    /// Kernels whose code was not loaded for this reason.
    pub fn missed(&self, miss: Miss) -> u64 {
        self.misses[miss as usize]
    }
}

/// Which folder is used.
#[derive(Debug, Clone)]
enum State {
    /// Not decided yet.
    Unknown,
    Off,
    On(Arc<Folder>),
    /// The folder of `OPFUSE_CACHE_DIR` cannot be used.
    Refused(String),
}

static STATE: Mutex<State> = Mutex::new(State::Unknown);

/// Stores machine code in this folder from now on, whatever `OPFUSE_CACHE_DIR` says. `None` turns it off. A folder that
/// does not exist is created, for the user alone.
///
/// # Errors
/// If the folder cannot be created or read, is not the user's, or can be written by others. Code in it is run.
pub fn use_folder(path: Option<&Path>) -> Result<()> {
    match path {
        None => set(State::Off),
        Some(path) => use_folder_of(path, BOUND)?,
    }
    Ok(())
}

/// Like [`use_folder`], with at most `bound` bytes of files.
///
/// # Errors
/// As for [`use_folder`].
pub fn use_folder_of(path: &Path, bound: u64) -> Result<()> {
    let folder = Folder::open(path, bound).map_err(|why| Error::argument("use_folder", why))?;
    set(State::On(Arc::new(folder)));
    Ok(())
}

/// The bytes of a file with this content, for fuzzers of the format. The subject stands for a kernel.
pub fn packed(subject: &[u8], content: &[u8]) -> Vec<u8> {
    format::pack(&Key::new(subject), content)
}

/// The content of a file, if it is intact and of this subject.
///
/// # Errors
/// Why it is not used.
pub fn unpacked<'a>(subject: &[u8], file: &'a [u8]) -> std::result::Result<&'a [u8], Miss> {
    format::unpack(&Key::new(subject), file)
}

fn set(state: State) {
    *STATE.lock().unwrap_or_else(PoisonError::into_inner) = state;
}

/// The folder in use, if there is one.
pub fn folder() -> Option<Arc<Folder>> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if let State::Unknown = *state {
        *state = of_environment();
    }
    match &*state {
        State::On(folder) => Some(folder.clone()),
        State::Unknown | State::Off | State::Refused(_) => None,
    }
}

/// Why the folder of `OPFUSE_CACHE_DIR` is not used, if it is not.
pub fn refusal() -> Option<String> {
    folder();
    match &*STATE.lock().unwrap_or_else(PoisonError::into_inner) {
        State::Refused(why) => Some(why.clone()),
        State::Unknown | State::Off | State::On(_) => None,
    }
}

fn of_environment() -> State {
    let Some(path) = debug::cache_folder() else { return State::Off };
    match Folder::open(&PathBuf::from(path), BOUND) {
        Ok(folder) => State::On(Arc::new(folder)),
        Err(why) => {
            if debug::explains() {
                debug::print(&format!("opfuse: machine code is not kept on disk: {why}"));
            }
            State::Refused(why)
        }
    }
}
