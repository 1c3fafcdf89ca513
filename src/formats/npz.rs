//! `.npz`: arrays of NumPy by name, in a zip archive.
//!
//! Members that are stored and aligned are mapped, as in archives that [`save`] writes. Others are copied or unpacked,
//! and compared with their checksum. What is unpacked is bounded by [`MAX_UNPACKED`] in all.

use crate::error::Result;
use crate::formats::StateDict;
use crate::formats::elements::with_bytes;
use crate::formats::file::{Mapped, fail, replace, shown};
use crate::formats::npy;
use crate::formats::zip::{Member, Writer, members};
use crate::tensor::handle::Tensor;
use std::path::Path;

/// Most bytes that the packed members of one archive may have when they are unpacked.
pub const MAX_UNPACKED: usize = 1 << 36;

/// How an archive begins: with a member, or with the directory if it has none.
pub(super) const MAGICS: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];

/// Loads all arrays of an archive. The file must not change while a tensor of it lives; see [`load`](crate::load).
///
/// # Errors
/// If there is no such file, if it is no archive of arrays, or if a member is damaged. The error names the member.
pub fn load(path: impl AsRef<Path>) -> Result<StateDict> {
    tensors(&Mapped::open(path.as_ref())?)
}

pub(super) fn tensors(file: &Mapped) -> Result<StateDict> {
    let members = members(file.bytes()).map_err(|what| file.fail(what))?;
    let packed = members.iter().filter(|member| member.is_deflated);
    let unpacked = packed.fold(0usize, |sum, member| sum.saturating_add(member.len));
    if unpacked > MAX_UNPACKED {
        let what = format!("its members have {unpacked} bytes when they are unpacked; {MAX_UNPACKED} is the limit");
        return Err(file.fail(what));
    }
    let mut all = StateDict::new();
    for member in &members {
        let name = member.name.strip_suffix(".npy").unwrap_or(&member.name);
        let tensor = tensor(file, member).map_err(|what| file.fail(format!("array {}: {what}", shown(name))))?;
        if all.insert(name.to_owned(), tensor).is_some() {
            return Err(file.fail(format!("array {} is there twice", shown(name))));
        }
    }
    Ok(all)
}

fn tensor(file: &Mapped, member: &Member) -> Result<Tensor, String> {
    let say = |error: crate::Error| error.to_string();
    if member.is_deflated {
        let bytes = member.unpacked(file.bytes())?;
        let array = npy::parse(&bytes)?;
        return array.copied(&bytes[array.data.clone()]).map_err(say);
    }
    let bytes = &file.bytes()[member.range.clone()];
    let array = npy::parse(bytes)?;
    let data = member.range.start + array.data.start..member.range.start + array.data.end;
    if array.is_native() && file.is_aligned(data.start, array.dtype) {
        return file.tensor(data, array.dtype, &array.layout).map_err(say);
    }
    member.check(bytes)?;
    array.copied(&bytes[array.data.clone()]).map_err(say)
}

/// Saves tensors as an archive of arrays, which are stored. A file that was there is replaced as a whole, or stays as
/// it was.
///
/// # Errors
/// If a tensor cannot be read, its dtype is `bf16`, which the format has not, or the file cannot be written.
pub fn save(path: impl AsRef<Path>, tensors: &StateDict) -> Result<()> {
    let path = path.as_ref();
    replace(path, |output| {
        let mut writer = Writer::new(output);
        for (name, tensor) in tensors {
            let header = npy::header(tensor).map_err(|what| fail(path, format!("array {}: {what}", shown(name))))?;
            with_bytes("save", tensor, |bytes| writer.put(&format!("{name}.npy"), [&header, bytes]))?;
        }
        writer.finish()
    })
}
