//! Files of tensors: what is written is read back, NumPy's files are read, and damaged files are errors.

#[path = "../common/archives.rs"]
mod archives;
#[path = "../common/bits.rs"]
mod bits;
mod bombs;
mod damaged;
#[path = "../common/effort.rs"]
mod effort;
#[allow(unsafe_code, reason = "it plays another library, whose memory is given by pointers")]
mod exchange;
mod exported;
mod files;
mod members;
mod state;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder of its own that is removed with what is in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let (process, nth) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("opfuse-formats-{process}-{nth}-{name}"));
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays is a nuisance, and no failure.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn put(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("the folder can be written to");
}

#[track_caller]
fn check_error<T: std::fmt::Debug>(found: opfuse::Result<T>, parts: &[&str]) {
    let message = found.expect_err("the file is wrong").to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is missing in: {message}");
    }
}
