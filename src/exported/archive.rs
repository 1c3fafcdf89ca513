//! The archive of an exported program: a zip file with the program as JSON, and the bytes of its tensors.
//!
//! Nothing is unpickled. Members that Python pickled (inputs of examples, tensors of other classes) are not read, and
//! a program that needs one is refused. Tensors are over the mapped file, privately: a write changes the tensor and
//! not the file. A member that is packed or not aligned is copied, once for all tensors over it. So tensors over one
//! member share what is written, as they did in PyTorch, and memory is bounded by what the members have.

use crate::device::foreign::Foreign;
use crate::device::{Shared, Storage};
use crate::error::Result;
use crate::exported::model::{Model, Size, TensorMeta, set, string, tensor_meta};
use crate::formats::file::{Mapped, shown};
use crate::formats::json::{Bad, Reader};
use crate::formats::zip::{Member, members};
use crate::ir::{DType, Layout};
use crate::ops::memory::{adopted, over};
use crate::tensor::handle::Tensor;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Most bytes that packed members may have when they are unpacked.
const MAX_UNPACKED: usize = 1 << 36;
/// Where a tensor lies that belongs to the state of the module, and one that the export found elsewhere.
const FOLDERS: [&str; 2] = ["data/weights", "data/constants"];

/// What an archive holds.
pub(super) struct Archive {
    pub(super) model: Model,
    /// The tensors that the program refers to, by their names in the module.
    pub(super) tensors: BTreeMap<String, Tensor>,
    /// Those that were pickled.
    pub(super) pickled: Vec<String>,
}

/// The memory of members, by name, and by whether it is for truth values. These have memory of their own, because bytes
/// besides 0 and 1 are changed in it.
type Memories = BTreeMap<(String, bool), Shared<Storage>>;

/// Where the bytes of a tensor are.
#[derive(Default)]
struct Payload {
    path: String,
    is_pickled: bool,
    meta: TensorMeta,
}

impl Archive {
    /// Reads an archive.
    ///
    /// # Errors
    /// If it is no archive of an exported program, or if a part is missing or damaged. The error names the member.
    pub(super) fn read(file: &Mapped) -> Result<Archive> {
        let all = members(file.bytes()).map_err(|what| file.fail(what))?;
        let packed = all.iter().filter(|member| member.is_deflated);
        if packed.fold(0usize, |sum, member| sum.saturating_add(member.len)) > MAX_UNPACKED {
            return Err(file.fail(format!("its packed members have more than {MAX_UNPACKED} bytes")));
        }
        // All names begin with that of the archive when it was written.
        let inner = |member: &Member| member.name.split_once('/').map(|(_, rest)| rest.to_owned());
        let by_name: BTreeMap<String, &Member> =
            all.iter().filter_map(|member| Some((inner(member)?, member))).collect();
        Contents { file, members: by_name }.archive()
    }
}

struct Contents<'a> {
    file: &'a Mapped,
    members: BTreeMap<String, &'a Member>,
}

impl Contents<'_> {
    fn archive(&self) -> Result<Archive> {
        let models = self.members.keys().filter_map(|name| name.strip_prefix("models/")?.strip_suffix(".json"));
        let models: Vec<&str> = models.collect();
        let [name] = models[..] else {
            return Err(self.file.fail(match models.len() {
                0 if self.members.keys().any(|name| name == "code" || name.starts_with("code/")) => {
                    "it is TorchScript, which PyTorch deprecated; save torch.export.export(…) with torch.export.save"
                        .to_owned()
                }
                0 => "it holds no models/….json; write it with torch.export.save of torch 2.9 or later".to_owned(),
                n => format!("it holds {n} programs ({}); save each to a file of its own", models.join(", ")),
            }));
        };
        if self.text("byteorder").is_ok_and(|order| order.trim() != "little") {
            return Err(self.file.fail("its numbers are big-endian; save it on a little-endian machine"));
        }
        let path = format!("models/{name}.json");
        let model = Model::parse(&self.text(&path)?).map_err(|bad| self.bad(&path, &bad))?;
        let (mut tensors, mut pickled) = (BTreeMap::new(), Vec::new());
        for folder in FOLDERS {
            let config = format!("{folder}/{name}_{}_config.json", folder.trim_start_matches("data/"));
            if self.members.contains_key(&config) {
                self.tensors(folder, &config, &mut tensors, &mut pickled)?;
            }
        }
        Ok(Archive { model, tensors, pickled })
    }

    /// Adds the tensors of a folder. Names with the same bytes are the same tensor.
    fn tensors(
        &self,
        folder: &str,
        config: &str,
        tensors: &mut BTreeMap<String, Tensor>,
        pickled: &mut Vec<String>,
    ) -> Result<()> {
        let payloads = payloads(&self.text(config)?).map_err(|bad| self.bad(config, &bad))?;
        let mut same: BTreeMap<String, Tensor> = BTreeMap::new();
        let mut memories = Memories::new();
        for (name, payload) in payloads {
            if payload.is_pickled {
                pickled.push(name);
                continue;
            }
            let key = format!("{} {:?}", payload.path, payload.meta);
            let tensor = match same.entry(key) {
                Entry::Occupied(entry) => entry.get().clone(),
                Entry::Vacant(entry) => {
                    let path = format!("{folder}/{}", payload.path);
                    let tensor = self.tensor(path, &payload.meta, &mut memories);
                    let tensor = tensor.map_err(|what| self.file.fail(format!("tensor {}: {what}", shown(&name))))?;
                    entry.insert(tensor).clone()
                }
            };
            if tensors.insert(name.clone(), tensor).is_some() {
                return Err(self.file.fail(format!("tensor {} is there twice", shown(&name))));
            }
        }
        Ok(())
    }

    /// A tensor over a member, whose memory may be there from another one.
    fn tensor(&self, path: String, meta: &TensorMeta, memories: &mut Memories) -> Result<Tensor, String> {
        let dtype = meta.dtype.ok_or("its dtype is not supported")?;
        let layout = layout(meta).ok_or("its sizes, strides or offset are no numbers")?;
        let say = |error: crate::Error| error.to_string();
        let memory = match memories.entry((path, dtype == DType::Bool)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let memory = self.memory(&entry.key().0)?;
                // Aligned for every dtype, because the next tensor over it may have another one.
                let strictest = if dtype == DType::Bool { DType::Bool } else { DType::F64 };
                entry.insert(adopted(memory, strictest).map_err(say)?)
            }
        };
        let tensor = over("load", memory, dtype, &layout).map_err(say)?;
        if meta.requires_grad {
            tensor.set_requires_grad(true).map_err(say)?;
        }
        Ok(tensor)
    }

    /// The bytes of a member, unpacked.
    fn memory(&self, path: &str) -> Result<Foreign, String> {
        let member = self.members.get(path).ok_or_else(|| format!("its member {} is missing", shown(path)))?;
        if member.is_deflated || !self.file.is_aligned(member.range.start, DType::F64) {
            return Ok(Foreign::from(member.unpacked(self.file.bytes())?));
        }
        self.file.private(member.range.clone()).map_err(|error| error.to_string())
    }

    fn text(&self, path: &str) -> Result<String> {
        let fail = |what: String| self.file.fail(format!("member {}: {what}", shown(path)));
        let member = self.members.get(path).ok_or_else(|| fail("it is missing".into()))?;
        let bytes = member.unpacked(self.file.bytes()).map_err(fail)?;
        String::from_utf8(bytes).map_err(|_| fail("it is no UTF-8 text".into()))
    }

    fn bad(&self, path: &str, bad: &Bad) -> crate::Error {
        self.file.fail(format!("member {}: {bad}", shown(path)))
    }
}

/// The layout of a tensor in its bytes.
fn layout(meta: &TensorMeta) -> Option<Layout> {
    let number = |size: &Size| if let Size::Is(size) = size { usize::try_from(*size).ok() } else { None };
    Some(Layout {
        sizes: meta.sizes.iter().map(number).collect::<Option<_>>()?,
        strides: meta.strides.iter().map(number).collect::<Option<_>>()?,
        offset: usize::try_from(meta.offset).ok()?,
    })
}

/// `{"config": {"l1.weight": {"path_name": …, "use_pickle": …, "tensor_meta": …}, …}}`.
fn payloads(text: &str) -> Result<Vec<(String, Payload)>, Bad> {
    let mut reader = Reader::new(text);
    let mut all = Vec::new();
    reader.object(|reader, key| match &*key {
        "config" => reader.object(|reader, name| {
            let mut payload = Payload::default();
            reader.object(|reader, key| match &*key {
                "path_name" => set(&mut payload.path, string(reader)),
                "use_pickle" => set(&mut payload.is_pickled, reader.boolean()),
                "tensor_meta" if reader.peek() == Some(b'{') => set(&mut payload.meta, tensor_meta(reader)),
                _ => reader.skip(),
            })?;
            all.push((name.into_owned(), payload));
            Ok(())
        }),
        _ => reader.skip(),
    })?;
    reader.end()?;
    Ok(all)
}
