//! Files of safetensors: tensors by name, mapped; also split into several files with an index.
//!
//! A file is the length of a header in eight bytes, a header in JSON, and the elements. The header is checked as a
//! whole when the file is opened: every tensor has exactly its bytes, no two overlap, and none are left over. So taking
//! a tensor later cannot meet a damaged file.

use crate::error::{Error, Result};
use crate::formats::StateDict;
use crate::formats::elements::with_bytes;
use crate::formats::file::{Mapped, Output, fail, replace, shown};
use crate::formats::json::{Bad, Reader, write_string};
use crate::ir::shape::checked_numel;
use crate::ir::{DType, Layout};
use crate::tensor::handle::Tensor;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::path::{Component, Path};

/// Longest header. Longer ones are no headers.
const MAX_HEADER: usize = 100_000_000;
/// Where elements begin is a multiple of this, so that mapped tensors are aligned like others.
const ALIGNMENT: usize = 64;
/// The key of the texts about a file, which no tensor has.
const METADATA: &str = "__metadata__";
/// Most dims of a tensor.
const MAX_DIMS: usize = 64;

/// Dtypes of the format, with their bits. Those without a dtype here cannot be read.
const DTYPES: [(&str, Option<DType>, usize); 22] = [
    ("BOOL", Some(DType::Bool), 8),
    ("U8", Some(DType::U8), 8),
    ("I8", Some(DType::I8), 8),
    ("I16", Some(DType::I16), 16),
    ("I32", Some(DType::I32), 32),
    ("I64", Some(DType::I64), 64),
    ("F16", Some(DType::F16), 16),
    ("BF16", Some(DType::BF16), 16),
    ("F32", Some(DType::F32), 32),
    ("F64", Some(DType::F64), 64),
    ("U16", None, 16),
    ("U32", None, 32),
    ("U64", None, 64),
    ("F8_E4M3", None, 8),
    ("F8_E5M2", None, 8),
    ("F8_E8M0", None, 8),
    ("F8_E4M3FNUZ", None, 8),
    ("F8_E5M2FNUZ", None, 8),
    ("F6_E2M3", None, 6),
    ("F6_E3M2", None, 6),
    ("F4", None, 4),
    ("C64", Some(DType::Complex64), 64),
];

/// An open file of safetensors. Its header was read; its tensors are taken by name.
///
/// The file must not change while this or a tensor of it lives; see [`load`](crate::load).
#[derive(Debug, Clone)]
pub struct SafeTensors {
    file: Mapped,
    entries: BTreeMap<String, Entry>,
    metadata: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
struct Entry {
    dtype: &'static (&'static str, Option<DType>, usize),
    sizes: Vec<usize>,
    range: Range<usize>,
}

impl SafeTensors {
    /// Maps a file and checks its header.
    ///
    /// # Errors
    /// If there is no such file, or if it is no file of safetensors: truncated, with tensors that overlap, or with text
    /// that is no such header.
    pub fn open(path: impl AsRef<Path>) -> Result<SafeTensors> {
        SafeTensors::of(Mapped::open(path.as_ref())?)
    }

    pub(super) fn of(file: Mapped) -> Result<SafeTensors> {
        let bytes = file.bytes();
        let Some((len, rest)) = bytes.split_first_chunk::<8>() else {
            return Err(file.fail(format!("has {} bytes, and a header begins with 8; it is truncated", bytes.len())));
        };
        let len = u64::from_le_bytes(*len);
        let Some(header) = usize::try_from(len).ok().filter(|&len| len <= MAX_HEADER).and_then(|len| rest.get(..len))
        else {
            let what = format!("says that its header has {len} bytes, but {} follow", rest.len());
            return Err(file.fail(format!("{what}; it is truncated or no file of safetensors")));
        };
        let data = rest.len() - header.len();
        let text = std::str::from_utf8(header).map_err(|error| file.fail(format!("the header is no text: {error}")))?;
        let (entries, metadata) = header_of(text).map_err(|bad| file.fail(format!("header: {bad}")))?;
        check(&entries, data).map_err(|what| file.fail(what))?;
        Ok(SafeTensors { entries: shifted(entries, bytes.len() - data), metadata, file })
    }

    /// The names of the tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// What the file says about itself.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// A tensor over the mapped elements, which are read-only. Elements that are not aligned for their dtype are
    /// copied.
    ///
    /// # Errors
    /// If there is no tensor of that name, or it has a dtype that opfuse has not.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let Some(entry) = self.entries.get(name) else {
            let what = format!("has no tensor {}; it has {} others", shown(name), self.entries.len());
            return Err(self.file.fail(format!("{what}, which names() lists")));
        };
        let Some(dtype) = entry.dtype.1 else {
            let what = format!("tensor {} has the dtype {}, which opfuse has not", shown(name), entry.dtype.0);
            return Err(self.file.fail(format!("{what}; convert it before it is saved")));
        };
        self.file.tensor(entry.range.clone(), dtype, &Layout::contiguous(&entry.sizes))
    }

    /// All tensors.
    ///
    /// # Errors
    /// As for [`SafeTensors::tensor`].
    pub fn tensors(&self) -> Result<StateDict> {
        self.names().map(|name| Ok((name.to_owned(), self.tensor(name)?))).collect()
    }
}

type Header = (BTreeMap<String, Entry>, BTreeMap<String, String>);

fn header_of(text: &str) -> Result<Header, Bad> {
    let (mut entries, mut metadata) = (BTreeMap::new(), BTreeMap::new());
    let mut reader = Reader::new(text);
    reader.object(|reader, name| {
        if name == METADATA {
            return reader.object(|reader, key| {
                let value = reader.string()?.into_owned();
                metadata.insert(key.into_owned(), value);
                Ok(())
            });
        }
        let entry = entry(reader, &name)?;
        match entries.insert(name.into_owned(), entry) {
            None => Ok(()),
            Some(_) => Err(reader.bad("two tensors have the same name")),
        }
    })?;
    reader.end()?;
    Ok((entries, metadata))
}

/// The description of a tensor.
fn entry(reader: &mut Reader<'_>, name: &str) -> Result<Entry, Bad> {
    let (mut dtype, mut sizes, mut offsets) = (None, None, None);
    let number = |reader: &mut Reader<'_>| {
        let number = reader.number()?;
        usize::try_from(number).map_err(|_| reader.bad("the number is too large"))
    };
    reader.object(|reader, key| match &*key {
        "dtype" => {
            let found = reader.string()?;
            dtype = DTYPES.iter().find(|(known, ..)| *known == found);
            if dtype.is_some() { Ok(()) } else { Err(reader.bad(format!("unknown dtype {}", shown(&found)))) }
        }
        "shape" => {
            let all: &mut Vec<usize> = sizes.insert(Vec::new());
            reader.array(|reader| match all.len() {
                MAX_DIMS => Err(reader.bad(format!("more than {MAX_DIMS} dims"))),
                _ => number(reader).map(|size| all.push(size)),
            })
        }
        "data_offsets" => {
            let all: &mut Vec<usize> = offsets.insert(Vec::new());
            reader.array(|reader| match all.len() {
                2 => Err(reader.bad("more than two offsets")),
                _ => number(reader).map(|offset| all.push(offset)),
            })
        }
        _ => Err(reader.bad(format!("unknown key {}", shown(&key)))),
    })?;
    match (dtype, sizes, offsets.as_deref()) {
        (Some(dtype), Some(sizes), Some(&[from, to])) if from <= to => Ok(Entry { dtype, sizes, range: from..to }),
        _ => Err(reader.bad(format!("tensor {} needs a dtype, a shape, and two offsets in order", shown(name)))),
    }
}

/// Checks that every tensor has its bytes, and that together they have all of them once.
fn check(entries: &BTreeMap<String, Entry>, data: usize) -> Result<(), String> {
    let mut all: Vec<(&String, &Entry)> = entries.iter().collect();
    all.sort_by_key(|(_, entry)| (entry.range.start, entry.range.end));
    let mut end = 0;
    for (name, Entry { dtype: (dtype, _, bits), sizes, range }) in all {
        let name = shown(name);
        let count = checked_numel("load", sizes, bits.div_ceil(8)).ok().and_then(|count| count.checked_mul(*bits));
        let Some(bytes) = count.filter(|bits| bits % 8 == 0).map(|bits| bits / 8) else {
            return Err(format!("tensor {name}: shape {sizes:?} of {dtype} has no whole number of bytes"));
        };
        if bytes != range.len() {
            let has = range.len();
            return Err(format!("tensor {name}: shape {sizes:?} of {dtype} has {bytes} bytes, but its offsets {has}"));
        }
        if range.start < end {
            return Err(format!("tensor {name} begins at {}, inside of another one", range.start));
        }
        if range.start > end {
            return Err(format!(
                "tensor {name} begins at {}, and the bytes before it belong to no tensor",
                range.start
            ));
        }
        end = range.end;
        if end > data {
            return Err(format!("tensor {name} ends at {end}, but there are {data} bytes; the file is truncated"));
        }
    }
    if end < data { Err(format!("{} bytes at the end belong to no tensor", data - end)) } else { Ok(()) }
}

/// The entries with ranges in the file.
fn shifted(mut entries: BTreeMap<String, Entry>, start: usize) -> BTreeMap<String, Entry> {
    for entry in entries.values_mut() {
        entry.range = entry.range.start + start..entry.range.end + start;
    }
    entries
}

/// Saves tensors as a file of safetensors, with texts about them. A file that was there is replaced as a whole, or
/// stays as it was.
///
/// # Errors
/// If a tensor cannot be read or is called `__metadata__`, or the file cannot be written.
pub fn save(path: impl AsRef<Path>, tensors: &StateDict, metadata: &BTreeMap<String, String>) -> Result<()> {
    let all: Vec<(&String, &Tensor)> = tensors.iter().collect();
    replace(path.as_ref(), |output| write(output, all, metadata))
}

fn write(output: &mut Output<'_>, mut all: Vec<(&String, &Tensor)>, metadata: &BTreeMap<String, String>) -> Result<()> {
    if all.iter().any(|(name, _)| *name == METADATA) {
        let what = format!("a tensor is called {METADATA}, which stands for texts about the file; rename it");
        return Err(Error::argument("save", what));
    }
    // Wide elements first, so that all are aligned.
    all.sort_by_key(|(name, tensor)| (std::cmp::Reverse(tensor.dtype().size()), *name));
    let mut header = String::from("{");
    if !metadata.is_empty() {
        let _ = write!(header, "\"{METADATA}\":{{");
        separated(&mut header, metadata, |header, (key, value)| {
            write_string(header, key);
            header.push(':');
            write_string(header, value);
        });
        header.push_str(if all.is_empty() { "}" } else { "}," });
    }
    if let Some((name, tensor)) = all.iter().find(|(_, tensor)| name_of(tensor.dtype()).is_none()) {
        let what = format!("tensor {name} is {}, a dtype that safetensors have not; convert it", tensor.dtype());
        return Err(Error::argument("save", what));
    }
    let mut at = 0;
    separated(&mut header, &all, |header, (name, tensor)| {
        let end = at + n_bytes(tensor);
        let (dtype, sizes) = (name_of(tensor.dtype()).unwrap_or_default(), tensor.sizes());
        write_string(header, name);
        // Text never fails to be appended to.
        let _ = write!(header, ":{{\"dtype\":\"{dtype}\",\"shape\":{sizes:?},\"data_offsets\":[{at},{end}]}}");
        at = end;
    });
    header.push('}');
    let len = (header.len() + 8).next_multiple_of(ALIGNMENT) - 8;
    header.extend(std::iter::repeat_n(' ', len - header.len()));
    output.put(&(len as u64).to_le_bytes())?;
    output.put(header.as_bytes())?;
    all.iter().try_for_each(|(_, tensor)| with_bytes("save", tensor, |bytes| output.put(bytes)))
}

fn separated<T>(out: &mut String, items: impl IntoIterator<Item = T>, mut put: impl FnMut(&mut String, T)) {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        put(out, item);
    }
}

fn n_bytes(tensor: &Tensor) -> usize {
    tensor.numel() * tensor.dtype().size()
}

/// The name of a dtype in the format, which has no `complex128`.
fn name_of(dtype: DType) -> Option<&'static str> {
    DTYPES.iter().find(|(_, known, _)| *known == Some(dtype)).map(|(name, ..)| *name)
}

/// Saves tensors in files of at most `shard_bytes` bytes each, and an index `model.safetensors.index.json` that
/// [`load`](crate::load) reads. A tensor that is larger has a file of its own. The index is written last.
///
/// # Errors
/// As for [`save`].
pub fn save_sharded(folder: impl AsRef<Path>, tensors: &StateDict, shard_bytes: usize) -> Result<()> {
    let mut shards: Vec<Vec<(&String, &Tensor)>> = Vec::new();
    let mut room = 0;
    for (name, tensor) in tensors {
        let bytes = n_bytes(tensor);
        if bytes > room || shards.is_empty() {
            shards.push(Vec::new());
            room = shard_bytes;
        }
        room = room.saturating_sub(bytes);
        shards.last_mut().expect("one was pushed").push((name, tensor));
    }
    let total: usize = tensors.values().map(n_bytes).sum();
    let mut index = format!("{{\"metadata\":{{\"total_size\":{total}}},\"weight_map\":{{");
    let mut named: Vec<(&String, String)> = Vec::new();
    let count = shards.len();
    for (number, shard) in shards.into_iter().enumerate() {
        let file = format!("model-{:05}-of-{count:05}.safetensors", number + 1);
        named.extend(shard.iter().map(|(name, _)| (*name, file.clone())));
        replace(&folder.as_ref().join(file), |output| write(output, shard, &BTreeMap::new()))?;
    }
    separated(&mut index, &named, |index, (name, file)| {
        write_string(index, name);
        index.push(':');
        write_string(index, file);
    });
    index.push_str("}}\n");
    replace(&folder.as_ref().join("model.safetensors.index.json"), |output| output.put(index.as_bytes()))
}

/// The tensors that an index names, from files in its folder.
pub(super) fn load_sharded(index: &Mapped) -> Result<StateDict> {
    if index.bytes().len() > MAX_HEADER {
        return Err(index.fail("is too long for an index"));
    }
    let text = std::str::from_utf8(index.bytes()).map_err(|error| index.fail(format!("is no text: {error}")))?;
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut reader = Reader::new(text);
    let mut has_map = false;
    let walked = reader.object(|reader, key| match &*key {
        "weight_map" => {
            has_map = true;
            reader.object(|reader, name| {
                let file = reader.string()?.into_owned();
                files.entry(file).or_default().push(name.into_owned());
                Ok(())
            })
        }
        _ => reader.skip(),
    });
    walked.and_then(|()| reader.end()).map_err(|bad| index.fail(format!("index: {bad}")))?;
    if !has_map {
        return Err(index.fail("is JSON without a weight_map, so it is no index of files of safetensors"));
    }
    let mut all = StateDict::new();
    for (file, names) in files {
        let mut parts = Path::new(&file).components();
        let (Some(Component::Normal(_)), None) = (parts.next(), parts.next()) else {
            let what = format!("index: the file {} is not in the folder of the index", shown(&file));
            return Err(index.fail(what));
        };
        let shard = SafeTensors::open(index.path().with_file_name(&file))?;
        for name in names {
            let tensor = shard.tensor(&name)?;
            if all.insert(name.clone(), tensor).is_some() {
                return Err(index.fail(format!("index: tensor {} is named twice", shown(&name))));
            }
        }
    }
    Ok(all)
}

/// Whether bytes begin like a file of safetensors.
pub(super) fn is_likely(bytes: &[u8]) -> bool {
    bytes.get(8) == Some(&b'{') && bytes[..8].last() == Some(&0)
}

/// The error of a file of another format.
pub(super) fn unknown(file: &Mapped) -> Error {
    let what = "is no file of safetensors, no .npy, no .npz, and no index of safetensors";
    fail(file.path(), format!("{what}; convert it to one of these"))
}
