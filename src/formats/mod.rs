//! How do tensors get into files and other libraries, and out of them?
//!
//! | file | format |
//! |---|---|
//! | [`safetensors`] | tensors by name, mapped; also several files with an index |
//! | [`npy`] | one array of NumPy |
//! | [`npz`] | arrays of NumPy by name, over `zip` |
//! | [`dlpack`] | memory of other libraries on the CPU |
//! | [`arrow`] | columns of Arrow's C Data Interface |
//! | `state` | structures of tensors by name |
//! | `json` | the headers of the first |
//! | `file` | mapping a file, and replacing one as a whole |
//!
//! What always holds: input is not trusted. Whatever a file says is checked before memory is taken for it, and an error
//! names the file and the tensor. Nothing in a file is run, unpickled, or used as a path outside of its folder.

pub mod arrow;
pub mod dlpack;
mod elements;
pub(crate) mod file;
pub(crate) mod json;
pub mod npy;
pub mod npz;
pub mod safetensors;
mod state;
pub(crate) mod zip;

use crate::error::Result;
pub use state::{Named, StateDict};
use std::path::Path;

/// Loads the tensors of a file by what it holds, whatever its name: safetensors, an index of such files, `.npz`, or
/// `.npy`, whose only tensor is called `arr_0`.
///
/// Elements are mapped, not read: they take no memory before they are touched, and cannot be written. **The file must
/// not change while a tensor of it lives.** Elements would change with it, and a file that becomes shorter ends the
/// process. The `save` functions of this crate keep to that: they replace files, and do not change them.
///
/// ```
/// use opfuse::formats::safetensors;
/// use opfuse::{Result, StateDict, Tensor};
///
/// # fn main() -> Result<()> {
/// let path = std::env::temp_dir().join(format!("opfuse-{}.safetensors", std::process::id()));
/// let tensors = StateDict::from([("weight".to_owned(), Tensor::try_from([1.0f32, 2.0])?)]);
/// safetensors::save(&path, &tensors, &Default::default())?;
/// let loaded = opfuse::load(&path)?;
/// assert_eq!(loaded["weight"].to_vec::<f32>()?, [1.0, 2.0]);
/// # std::fs::remove_file(path).ok();
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If there is no such file, if it has another form, or if it is damaged. The error names the file and the tensor.
pub fn load(path: impl AsRef<Path>) -> Result<StateDict> {
    let file = file::Mapped::open(path.as_ref())?;
    let bytes = file.bytes();
    if bytes.starts_with(npy::MAGIC) {
        return Ok(StateDict::from([("arr_0".to_owned(), npy::tensor(&file)?)]));
    }
    if npz::MAGICS.iter().any(|magic| bytes.starts_with(magic)) {
        if zip::members(bytes).is_ok_and(|members| members.iter().any(|member| is_program(&member.name))) {
            let hint = "load it with opfuse::exported::Program::load, and take its tensors with state";
            return Err(file.fail(format!("it is a program of torch.export; {hint}")));
        }
        return npz::tensors(&file);
    }
    if safetensors::is_likely(bytes) {
        return safetensors::SafeTensors::of(file)?.tensors();
    }
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
        return safetensors::load_sharded(&file);
    }
    Err(safetensors::unknown(&file))
}

/// Whether a member of that name makes an archive an exported program.
fn is_program(name: &str) -> bool {
    name.split_once('/').is_some_and(|(_, rest)| rest.starts_with("models/") && rest.ends_with(".json"))
}
