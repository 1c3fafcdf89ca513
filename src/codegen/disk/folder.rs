//! A folder of files with machine code, one per kernel, bounded in bytes.
//!
//! A file is written under a temporary name and renamed when it is complete. Its modification time says when it was
//! last used, to the hour. A writer makes room first, by removing the least recently used files. Only names of the form
//! made here are read or removed.

use super::format::{Key, pack, unpack};
use super::{Miss, Stats, owner};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{ErrorKind, Read, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Extension of complete files.
const WHOLE: &str = "opfuse";
/// Extension of files that are being written.
const UNFINISHED: &str = "opfuse-part";
/// How long writing may take. An older unfinished file was left by a process that ended.
const LONGEST_WRITE: Duration = Duration::from_secs(3600);
/// Resolution of the time of last use.
const USE_STEP: Duration = Duration::from_secs(3600);
/// Files written between two scans of the folder.
const SCAN_EVERY: u64 = 256;

/// A folder of machine code.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    bound: u64,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    stats: Stats,
    /// Bytes of all files at the last scan, plus those written since.
    bytes: u64,
    /// Attempts to write so far; each has its own temporary name.
    writes: u64,
}

impl Folder {
    /// Opens a folder with at most `bound` bytes of files, which is created if it does not exist.
    ///
    /// # Errors
    /// A sentence, if it cannot be created or read, is not the user's, or others may write it.
    pub fn open(path: &Path, bound: u64) -> std::result::Result<Folder, String> {
        let shown = path.display();
        owner::create_folder(path).map_err(|error| format!("the folder {shown} cannot be made: {error}"))?;
        let metadata = fs::metadata(path).map_err(|error| format!("the folder {shown} cannot be read: {error}"))?;
        if !metadata.is_dir() || !owner::is_trusted(&metadata) {
            return Err(format!("the folder {shown} must be the user's own, and others may not write it (chmod 700)"));
        }
        Ok(Folder { path: path.into(), bound, held: Mutex::default() })
    }

    /// Hits, misses and files written so far.
    pub fn stats(&self) -> Stats {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).stats
    }

    /// Reads the content of a key.
    ///
    /// # Errors
    /// Why there is none.
    pub(in crate::codegen) fn load(&self, key: &Key) -> std::result::Result<Vec<u8>, Miss> {
        let loaded = self.read(key);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match &loaded {
            Ok(_) => held.stats.hits += 1,
            Err(miss) => held.stats.misses[*miss as usize] += 1,
        }
        loaded
    }

    /// Stores content for a key. A failure is counted and has no other effect.
    pub(in crate::codegen) fn store(&self, key: &Key, content: &[u8]) {
        let file = pack(key, content);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let number = held.writes;
        held.writes += 1;
        if number.is_multiple_of(SCAN_EVERY) || held.bytes + file.len() as u64 > self.bound {
            self.make_room(&mut held, file.len() as u64);
        }
        if file.len() as u64 > self.bound / 8 || self.write(key, number, &file).is_err() {
            held.stats.not_stored += 1;
            return;
        }
        held.stats.stored += 1;
        held.bytes += file.len() as u64;
    }

    /// Whether there is a file for a key, valid or not.
    pub(in crate::codegen) fn has(&self, key: &Key) -> bool {
        self.file(key).symlink_metadata().is_ok()
    }

    fn file(&self, key: &Key) -> PathBuf {
        self.path.join(format!("{:016x}.{WHOLE}", key.name()))
    }

    fn read(&self, key: &Key) -> std::result::Result<Vec<u8>, Miss> {
        let mut file = owner::open(&self.file(key)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Miss::Absent,
            _ => Miss::Unreadable,
        })?;
        let metadata = file.metadata().map_err(|_| Miss::Unreadable)?;
        if !metadata.is_file() || !owner::is_trusted(&metadata) {
            return Err(Miss::Untrusted);
        }
        if metadata.len() > self.bound {
            return Err(Miss::Damaged);
        }
        let mut bytes = vec![0; metadata.len() as usize];
        file.read_exact(&mut bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Miss::Damaged,
            _ => Miss::Unreadable,
        })?;
        let n_content = unpack(key, &bytes)?.len();
        if age(&metadata) > USE_STEP {
            // A folder that is read-only is still useful.
            let _ = file.set_modified(SystemTime::now());
        }
        bytes.drain(..bytes.len() - n_content);
        Ok(bytes)
    }

    fn write(&self, key: &Key, number: u64, bytes: &[u8]) -> Result<()> {
        // Processes may share a folder, and a process may open the same folder several times.
        let own = format!("{:016x}-{}-{:x}-{number}", key.name(), std::process::id(), std::ptr::from_ref(self).addr());
        let part = self.path.join(own).with_extension(UNFINISHED);
        let written = owner::create(&part).and_then(|mut file| file.write_all(bytes));
        let renamed = written.and_then(|()| fs::rename(&part, self.file(key)));
        if renamed.is_err() {
            // The file may not exist.
            let _ = fs::remove_file(&part);
        }
        renamed
    }

    /// Scans the folder and removes the least recently used files until `n_bytes` more fit.
    fn make_room(&self, held: &mut Held, n_bytes: u64) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(metadata) = entry.metadata() else { continue };
            match path.extension().and_then(OsStr::to_str) {
                Some(WHOLE) if metadata.is_file() => {
                    files.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), metadata.len(), path));
                }
                Some(UNFINISHED) if age(&metadata) > LONGEST_WRITE => {
                    let _ = fs::remove_file(path);
                }
                _ => {}
            }
        }
        held.bytes = files.iter().map(|(_, n_bytes, _)| n_bytes).sum();
        if held.bytes + n_bytes <= self.bound {
            return;
        }
        // An eighth more than needed is removed, so that this is rare.
        let goal = (self.bound - self.bound / 8).saturating_sub(n_bytes);
        files.sort();
        for (_, n_bytes, path) in files {
            if held.bytes <= goal {
                break;
            }
            if fs::remove_file(path).is_ok() {
                held.bytes -= n_bytes;
                held.stats.removed += 1;
            }
        }
    }
}

/// The time since a file was modified.
fn age(metadata: &Metadata) -> Duration {
    metadata.modified().ok().and_then(|time| time.elapsed().ok()).unwrap_or_default()
}
