//! Readers of files of tensors, as functions of the bytes of a file. They panic if a promise is broken.
//!
//! What is loaded is saved again in every format that has its dtypes, and must come back with the same names, types and
//! bits. A file that is refused is named by the error.

use super::archives::{Member, archive};
use super::bits_of::bits;
use opfuse::exported::Program;
use opfuse::formats::{npy, npz, safetensors};
use opfuse::{DType, Error, Result, StateDict, Tensor, load};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Deflate makes no more bytes than this of one.
const MAX_RATIO: usize = 1032;
/// The most elements of a tensor that is looked at. A tensor of a program may repeat its elements any number of times.
const MAX_ELEMENTS: usize = 1 << 16;

/// A file of safetensors, through the function that looks at what a file holds, and through its own.
pub(crate) fn safetensors_file(bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.file("x.safetensors", bytes);
    checked(&path, bytes, load(&path));
    let Ok(file) = safetensors::SafeTensors::open(&path) else { return };
    let names: Vec<&str> = file.names().collect();
    assert!(file.tensor("no such tensor").is_err() || names.contains(&"no such tensor"));
    let Some(tensors) = checked(&path, bytes, file.tensors()) else { return };
    assert!(tensors.keys().eq(names.iter()), "{names:?} are not the names of the tensors");
    let again = folder.0.join("again");
    safetensors::save(&again, &tensors, file.metadata()).expect("each dtype is one of the format");
    let again = safetensors::SafeTensors::open(&again).expect("it was saved just now");
    assert_eq!(again.metadata(), file.metadata());
}

/// An index of two files of safetensors, `a.safetensors` and `b.safetensors`.
pub(crate) fn safetensors_index(bytes: &[u8]) {
    let folder = Folder::new();
    for (file, name, count) in [("a.safetensors", "layer.weight", 6), ("b.safetensors", "layer.bias", 2)] {
        let tensor = Tensor::arange(0, count, 1).expect("there is memory");
        let tensors = StateDict::from([(name.to_owned(), tensor)]);
        safetensors::save(folder.0.join(file), &tensors, &Default::default()).expect("the folder can be written");
    }
    let path = folder.file("index.json", bytes);
    let Some(tensors) = accepted(&path, bytes, load(&path)) else { return };
    resaved(&tensors);
    let shards = Folder::new();
    safetensors::save_sharded(&shards.0, &tensors, 8).expect("the folder can be written");
    let index = shards.0.join("model.safetensors.index.json");
    same(&tensors, &load(index).expect("it was saved just now"));
}

/// A file of one array of NumPy.
pub(crate) fn npy_file(bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.file("x.npy", bytes);
    let loaded = npy::load(&path).map(|tensor| StateDict::from([("arr_0".to_owned(), tensor)]));
    let Some(tensors) = checked(&path, bytes, loaded) else { return };
    let again = folder.0.join("again");
    npy::save(&again, &tensors["arr_0"]).expect("each dtype is one of the format");
    same(&tensors, &load(&again).expect("it was saved just now"));
}

/// An archive of arrays of NumPy.
pub(crate) fn npz_file(bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.file("x.npz", bytes);
    checked(&path, bytes, npz::load(&path));
}

/// A program of `torch.export`.
pub(crate) fn exported_file(bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.file("x.pt2", bytes);
    program(&path, bytes, Program::load(&path));
}

/// The two texts of a program, with a byte of zero between them: its graph, and where its tensors are. They are put
/// into an archive that is as it should be, once as they are and once packed.
pub(crate) fn exported_text(bytes: &[u8]) {
    let at = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let (model, config) = (&bytes[..at], bytes.get(at + 1..).unwrap_or_default());
    let mut members = [
        Member::stored("m/data/weights/weight_0", &[0x3d; 24]),
        Member::stored("m/data/weights/weight_1", &[1; 8]),
        Member::stored("m/data/weights/model_weights_config.json", config),
        Member::stored("m/models/model.json", model),
        Member::stored("m/byteorder", b"little"),
    ];
    let folder = Folder::new();
    let path = folder.file("x.pt2", &archive(&members));
    let stored = program(&path, bytes, Program::load(&path));
    members.iter_mut().for_each(|member| member.is_deflated = true);
    let path = folder.file("packed.pt2", &archive(&members));
    let packed = program(&path, bytes, Program::load(&path));
    match (stored, packed) {
        (Some(stored), Some(packed)) => same(&small(&stored), &small(&packed)),
        (None, None) => {}
        (stored, packed) => panic!("stored: {:?}, packed: {:?}", stored.is_some(), packed.is_some()),
    }
}

/// What is true of every program that is loaded. Returns its tensors.
fn program(path: &Path, bytes: &[u8], loaded: Result<Program>) -> Option<StateDict> {
    let program = accepted(path, bytes, loaded)?;
    let text = format!("{program:?} {:?} {}", program.operators(), program.torch_version());
    assert!(text.len() < 1000 + 100 * MAX_RATIO * bytes.len(), "{} bytes of text", text.len());
    for input in program.inputs() {
        let _ = (input.name(), input.dtype(), input.sizes());
    }
    let takes_none = program.inputs().is_empty();
    assert!(takes_none || program.call_eager(&[]).is_err(), "it is called without its inputs");
    let few = small(program.state());
    resaved(&few);
    if few.len() == program.state().len() {
        // A tensor that repeats an element cannot be written.
        let _ = program.load_state(&few);
    }
    Some(program.state().clone())
}

/// The tensors with few elements.
fn small(tensors: &StateDict) -> StateDict {
    let few = tensors.iter().filter(|(_, tensor)| tensor.numel() <= MAX_ELEMENTS);
    few.map(|(name, tensor)| (name.clone(), tensor.clone())).collect()
}

/// The tensors of a file, if it is accepted. They have no more bytes than it can hold.
fn checked(path: &Path, bytes: &[u8], loaded: Result<StateDict>) -> Option<StateDict> {
    let tensors = accepted(path, bytes, loaded)?;
    let n_bytes: usize = tensors.values().map(|tensor| tensor.numel() * tensor.dtype().size()).sum();
    assert!(n_bytes <= MAX_RATIO * bytes.len(), "{n_bytes} bytes out of {}", bytes.len());
    resaved(&tensors);
    Some(tensors)
}

/// What was loaded, if it is accepted. An error is that of the file, or of one in its folder.
fn accepted<T>(path: &Path, bytes: &[u8], loaded: Result<T>) -> Option<T> {
    let error = match loaded {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let Error::File { path: named, message } = &error else { panic!("{}: {error}", path.display()) };
    assert_eq!(Path::new(named).parent(), path.parent(), "it names another file: {error}");
    assert!(!message.is_empty() && message.len() < 2000 + 8 * bytes.len(), "a message of {} bytes", message.len());
    None
}

/// Saves tensors in every format that has their dtypes and names, and compares what comes back.
fn resaved(tensors: &StateDict) {
    let folder = Folder::new();
    let path = folder.0.join("again");
    let dtypes = || tensors.values().map(Tensor::dtype);
    if dtypes().all(|dtype| dtype != DType::Complex128) && !tensors.contains_key("__metadata__") {
        safetensors::save(&path, tensors, &Default::default()).expect("each dtype is one of the format");
        same(tensors, &load(&path).expect("it was saved just now"));
    }
    // An archive has names of at most 64 KiB.
    if dtypes().all(|dtype| dtype != DType::BF16) && tensors.keys().all(|name| name.len() < 1 << 15) {
        npz::save(&path, tensors).expect("each dtype is one of the format");
        same(tensors, &npz::load(&path).expect("it was saved just now"));
    }
}

/// Compares names, types and bits.
fn same(left: &StateDict, right: &StateDict) {
    assert!(left.keys().eq(right.keys()), "{:?} and {:?}", left.keys(), right.keys());
    for ((name, one), other) in left.iter().zip(right.values()) {
        assert_eq!((one.dtype(), one.sizes()), (other.dtype(), other.sizes()), "{name:?}");
        let read = |tensor: &Tensor| bits(&tensor.detach().expect("it has data")).expect("it has data");
        assert!(read(one) == read(other), "{name:?} has other elements when it is saved and loaded");
    }
}

/// A folder that is removed with what is in it. It is in memory where the system has such folders.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let memory = Path::new("/dev/shm");
        let root = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = root.join(format!("opfuse-readers-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder can be made");
        Folder(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("the folder can be written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left over is in a folder for such things.
        let _ = fs::remove_dir_all(&self.0);
    }
}
