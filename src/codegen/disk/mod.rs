//! Machine code kept on disk, for kernels that other processes compiled before. Off unless somebody asks for it.
//!
//! [`format`] says what a file holds, [`folder`] keeps files and their number of bytes, [`owner`] says who may have written
//! them. `OPFUSE_CACHE_DIR` or [`use_folder`] names the folder; the tier `x64`, whose code has no relocations, uses it, and CUDA for cubins.
//!
//! What always holds: a file is used only if it is whole, for exactly the kernel that is asked for, and nobody but the user
//! can have written it, for what it holds is run. Everything else is a [`Miss`], counted, and the kernel is compiled. Absent:
//! locks between processes; files appear whole, under their names, or not at all.

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
/// between two looks at the folder, which are at most 256 files apart.
pub const BOUND: u64 = 64 << 20;

/// Why no code came from a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Miss {
    /// There is no such file.
    Absent,
    /// Someone else owns the file or may write it, or it is no file at all.
    Untrusted,
    /// The system does not let it be read, or it is a link.
    Unreadable,
    /// It is cut off or its checksum does not fit.
    Damaged,
    /// It is whole, and of another kernel whose name happens to be the same, or of another form of files.
    Other,
}

/// What a folder has been good for in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Kernels whose code was there.
    pub hits: u64,
    /// Kernels that were not, by [`Miss`].
    pub misses: [u64; 5],
    /// Files written.
    pub stored: u64,
    /// Files that could not be written.
    pub not_stored: u64,
    /// Files removed to make room.
    pub removed: u64,
}

impl Stats {
    /// Kernels that were not there for this reason.
    pub fn missed(&self, miss: Miss) -> u64 {
        self.misses[miss as usize]
    }
}

/// Where code is kept.
#[derive(Debug, Clone)]
enum State {
    /// Nobody has asked yet.
    Unknown,
    Off,
    On(Arc<Folder>),
    /// The folder that `OPFUSE_CACHE_DIR` names is of no use.
    Refused(String),
}

static STATE: Mutex<State> = Mutex::new(State::Unknown);

/// Keeps machine code in this folder from now on, whatever `OPFUSE_CACHE_DIR` says; nowhere if there is none. A folder
/// that does not exist is made, for the user alone.
///
/// # Errors
/// The folder cannot be made or read, is not the user's, or can be written by others: code is run that lies there.
pub fn use_folder(path: Option<&Path>) -> Result<()> {
    match path {
        None => set(State::Off),
        Some(path) => use_folder_of(path, BOUND)?,
    }
    Ok(())
}

/// [`use_folder`], of a folder with at most `bound` bytes of files.
///
/// # Errors
/// As there.
pub fn use_folder_of(path: &Path, bound: u64) -> Result<()> {
    let folder = Folder::open(path, bound).map_err(|why| Error::argument("use_folder", why))?;
    set(State::On(Arc::new(folder)));
    Ok(())
}

fn set(state: State) {
    *STATE.lock().unwrap_or_else(PoisonError::into_inner) = state;
}

/// The folder where code is kept, if it is.
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

/// Why the folder that `OPFUSE_CACHE_DIR` names is not used, if it is not.
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
