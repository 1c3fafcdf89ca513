#![allow(unsafe_code, reason = "maps files into memory")]
//! Files: mapped for reading, and replaced as a whole by writing.
//!
//! A mapped file takes no memory before it is touched. Tensors over it are read-only and keep the mapping. **A file
//! must not change while it is mapped**: tensors would change with it, and a file that became shorter ends the process
//! where the missing part is touched. [`replace`] never changes a file: it writes another one and gives that the name,
//! so a mapping of the old one stays as it is.

use crate::device::foreign::Foreign;
use crate::error::{Error, Result};
use crate::ir::{DType, Layout};
use crate::ops::memory::adopt;
use crate::tensor::handle::Tensor;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that is mapped for reading, or that the program was built with.
#[derive(Debug, Clone)]
pub(crate) struct Mapped {
    path: Arc<Path>,
    content: Content,
}

/// Where the bytes of a file are.
#[derive(Debug, Clone)]
enum Content {
    /// A file of no bytes cannot be mapped.
    Empty,
    Map(Arc<Map>),
    Static(&'static [u8]),
}

/// A mapping, and the file for further ones.
#[derive(Debug)]
struct Map {
    bytes: memmap2::Mmap,
    file: File,
}

/// Some bytes of a file.
struct Part {
    map: Arc<Map>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.map.bytes[self.range.clone()]
    }
}

impl Mapped {
    /// Maps a file.
    ///
    /// # Errors
    /// If there is no regular file of that name, or it cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Mapped> {
        // Opening a pipe would wait for a writer.
        let metadata = fs::metadata(path).map_err(|error| fail(path, format!("cannot be opened: {error}")))?;
        if !metadata.is_file() {
            return Err(fail(path, "is no regular file; name a file of tensors"));
        }
        let file = File::open(path).map_err(|error| fail(path, format!("cannot be opened: {error}")))?;
        let path: Arc<Path> = path.into();
        if file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            return Ok(Mapped { path, content: Content::Empty });
        }
        // SAFETY: the module's documentation passes on to users that a mapped file must not change. The mapping is
        // read-only, and bytes of any value are valid.
        let map = unsafe { memmap2::Mmap::map(&file) };
        let bytes = map.map_err(|error| fail(&path, format!("cannot be mapped: {error}")))?;
        Ok(Mapped { path, content: Content::Map(Arc::new(Map { bytes, file })) })
    }

    /// A file whose bytes are part of this program. Errors call it `name`.
    pub(crate) fn embedded(name: &str, bytes: &'static [u8]) -> Mapped {
        Mapped { path: Path::new(name).into(), content: Content::Static(bytes) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Empty => &[],
            Content::Map(map) => &map.bytes[..],
            Content::Static(bytes) => bytes,
        }
    }

    /// The error that names the file.
    pub(crate) fn fail(&self, what: impl Display) -> Error {
        fail(&self.path, what)
    }

    /// Whether a byte of the file is at an address for elements of a dtype.
    pub(crate) fn is_aligned(&self, at: usize, dtype: DType) -> bool {
        (self.bytes().as_ptr().addr() + at).is_multiple_of(dtype.size())
    }

    /// A tensor over the bytes in `range`, which are in the file. It is a copy if the bytes are not aligned for the
    /// dtype.
    ///
    /// # Errors
    /// If there are not as many bytes as dtype and layout need.
    pub(crate) fn tensor(&self, range: Range<usize>, dtype: DType, layout: &Layout) -> Result<Tensor> {
        let memory = match &self.content {
            Content::Map(map) if !range.is_empty() => {
                let whose = format!("mapped from {}", self.path.display());
                Foreign::shared(Part { map: map.clone(), range }, whose)
            }
            Content::Static(bytes) => Foreign::from(bytes[range].to_vec()),
            Content::Map(_) | Content::Empty => Foreign::from(Vec::<u8>::new()),
        };
        adopt("load", memory, dtype, layout)
    }

    /// The bytes in `range`, which are in the file, for tensors that may be written. A page that is written becomes the
    /// memory's own; the file stays as it is. Bytes that are part of the program are copied.
    ///
    /// # Errors
    /// If the system maps no more.
    pub(crate) fn private(&self, range: Range<usize>) -> Result<Foreign> {
        Ok(match &self.content {
            Content::Map(map) if !range.is_empty() => {
                let mut options = memmap2::MmapOptions::new();
                options.offset(range.start as u64).len(range.len());
                // SAFETY: as in `open`. The mapping is private, so nothing else sees what is written to it.
                let own = unsafe { options.map_copy(&map.file) };
                Foreign::owned(own.map_err(|error| self.fail(format!("cannot be mapped: {error}")))?)
            }
            Content::Static(bytes) => Foreign::from(bytes[range].to_vec()),
            Content::Map(_) | Content::Empty => Foreign::from(Vec::<u8>::new()),
        })
    }
}

/// The error of a file.
pub(crate) fn fail(path: &Path, what: impl Display) -> Error {
    Error::File { path: path.display().to_string(), message: what.to_string() }
}

/// A name out of a file, as errors show it.
pub(crate) fn shown(name: &str) -> String {
    const MOST: usize = 120;
    match name.char_indices().nth(MOST) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}…", &name[..end]),
    }
}

/// Gives a file new content: all of it, or, after an error, what it had before. The content is written to another file
/// in the same folder, which is synced to the disk and renamed. Where the path is a link, the file that it leads to is
/// replaced.
///
/// # Errors
/// If the folder or the disk cannot be written to, or those of `write`.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&mut Output<'_>) -> Result<()>) -> Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let (part, file) = create_beside(&target).map_err(|error| unwritten(path, &error))?;
    let mut output = Output { path, file: BufWriter::with_capacity(1 << 20, file), at: 0 };
    let written = write(&mut output).and_then(|()| {
        let synced = output.file.flush().and_then(|()| output.file.get_ref().sync_all());
        synced.map_err(|error| unwritten(path, &error))
    });
    // Not every system renames a file that is open.
    drop(output);
    let written = written.and_then(|()| fs::rename(&part, &target).map_err(|error| unwritten(path, &error)));
    if written.is_err() {
        // The first failure is reported. That the part could not be removed as well changes nothing.
        let _ = fs::remove_file(&part);
        return written;
    }
    sync_folder(&target);
    Ok(())
}

/// A file that is written.
pub(crate) struct Output<'a> {
    path: &'a Path,
    file: BufWriter<File>,
    /// How many bytes it has.
    pub(crate) at: u64,
}

impl Output<'_> {
    /// Appends bytes.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.at += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|error| unwritten(self.path, &error))
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> Error {
    fail(path, format!("cannot be written: {error}"))
}

/// Makes a rename last. Not every system can sync a folder, and the content is safe already.
fn sync_folder(target: &Path) {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

/// A new file in the folder of `target`.
fn create_beside(target: &Path) -> std::io::Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let Some(name) = target.file_name() else { return Err(ErrorKind::InvalidInput.into()) };
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut part = std::ffi::OsString::from(".");
        part.push(name);
        part.push(format!(".{}-{number}.part", std::process::id()));
        let part = target.with_file_name(part);
        match OpenOptions::new().write(true).create_new(true).open(&part) {
            // Left over from a process of the same number.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            file => return file.map(|file| (part, file)),
        }
    }
}
