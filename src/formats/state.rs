//! Structures of tensors by name: a model gives its weights, and takes those of a file.

use crate::dispatch::key::grad_mode::no_grad;
use crate::error::{Error, Result};
use crate::tensor::handle::Tensor;
use crate::tensor::names::Names;
use crate::tensor::structure::{Flat, TensorStruct};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// Tensors by their dotted names.
pub type StateDict = BTreeMap<String, Tensor>;

/// How many names a message lists of a kind.
const MOST_LISTED: usize = 100;

/// The tensors of a structure by their dotted names: the fields and positions that lead to them. Every
/// [`TensorStruct`] has these methods.
///
/// ```
/// use opfuse::{Named, Result, Tensor, TensorStruct};
///
/// #[derive(TensorStruct)]
/// struct Layer {
///     #[tensor(name = "LayerNorm.weight")]
///     scale: Tensor,
///     bias: Option<Tensor>,
/// }
///
/// # fn main() -> Result<()> {
/// let layer = |value: f32| Layer { scale: Tensor::try_from([value]).unwrap(), bias: None };
/// let weights = vec![layer(1.0), layer(2.0)].named();
/// assert_eq!(weights.keys().collect::<Vec<_>>(), ["0.LayerNorm.weight", "1.LayerNorm.weight"]);
/// let second = layer(0.0).load_named(&weights, "1")?;
/// assert_eq!(second.scale.item::<f32>()?, 2.0);
/// let error = layer(0.0).load_named(&weights, "2").err().unwrap();
/// assert!(error.to_string().contains("1 missing: 2.LayerNorm.weight"));
/// # Ok(())
/// # }
/// ```
pub trait Named: TensorStruct {
    /// The tensors by name.
    fn named(&self) -> StateDict {
        Names::of(self, "").into_iter().zip(Flat::of(self).tensors).collect()
    }

    /// This structure with the tensors that `from` has under its names, after `prefix` and a dot. Everything else
    /// stays.
    ///
    /// Tensors are shared with `from`, if they are on the device of those that they replace. A tensor that replaces one
    /// that requires gradients is a copy that requires them, because training writes to it. The tensors of a structure
    /// may be meta tensors, which have sizes alone.
    ///
    /// # Errors
    /// If names are missing, if there are others after the prefix, or if dtypes or sizes differ. All of these are in
    /// one message.
    fn load_named(&self, from: &StateDict, prefix: &str) -> Result<Self> {
        load_named(self, from, prefix)
    }
}

impl<T: TensorStruct> Named for T {}

/// The structure with tensors of `from`.
fn load_named<T: TensorStruct>(structure: &T, from: &StateDict, prefix: &str) -> Result<T> {
    let (flat, names) = (Flat::of(structure), Names::of(structure, prefix));
    if names.len() != flat.tensors.len() {
        let what = format!("tree_names gives {} names for {} tensors", names.len(), flat.tensors.len());
        return Err(Error::argument("load_named", format!("{what}; it names each tensor of tree_flatten in order")));
    }
    let (mut missing, mut other) = (Vec::new(), Vec::new());
    let mut found: Vec<&Tensor> = Vec::new();
    for (name, own) in names.iter().zip(&flat.tensors) {
        let Some(tensor) = from.get(name) else {
            missing.push(name.as_str());
            continue;
        };
        if (tensor.dtype(), tensor.sizes()) != (own.dtype(), own.sizes()) {
            let type_of = |x: &Tensor| format!("{}{:?}", x.dtype(), x.sizes());
            other.push(format!("{name} is {} instead of {}", type_of(tensor), type_of(own)));
        }
        found.push(tensor);
    }
    let within = |name: &&str| {
        name.strip_prefix(prefix).is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('.'))
    };
    let known: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let unexpected: Vec<&str> =
        from.keys().map(String::as_str).filter(|name| within(name) && !known.contains(name)).collect();
    let parts = [listed("missing", &missing), listed("unexpected", &unexpected), listed("of another type", &other)];
    let wrong: Vec<String> = parts.into_iter().flatten().collect();
    if !wrong.is_empty() {
        let what = wrong.join("; ");
        return Err(Error::argument("load_named", format!("{what}; name the fields and give them sizes as the file")));
    }
    let tensors =
        found.into_iter().zip(&flat.tensors).map(|(tensor, own)| like(tensor, own)).collect::<Result<Vec<_>>>()?;
    Ok(flat.with_tensors(&tensors).tree_unflatten().expect("it has the parts of a structure of its type"))
}

/// The tensor in the place of `own`.
fn like(tensor: &Tensor, own: &Tensor) -> Result<Tensor> {
    let _unrecorded = no_grad();
    let here = if own.has_data() { tensor.to_device(own.device())? } else { tensor.clone() };
    if !own.requires_grad() {
        return Ok(here);
    }
    let copy = here.copy()?;
    copy.set_requires_grad(true)?;
    Ok(copy)
}

/// A part of a message.
fn listed(kind: &str, names: &[impl Display]) -> Option<String> {
    if names.is_empty() {
        return None;
    }
    let shown: Vec<String> = names.iter().take(MOST_LISTED).map(ToString::to_string).collect();
    let more = match names.len() - shown.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    Some(format!("{} {kind}: {}{more}", names.len(), shown.join(", ")))
}
