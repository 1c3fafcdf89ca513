//! Dotted names of the tensors of a structure, as files of weights have them: `layers.0.weight`.
//!
//! A name is the path of fields and positions that leads to the tensor. Options and boxes add nothing to it. So a model
//! whose fields are called like the modules of a model in PyTorch takes the weights of that.

use std::fmt::{Display, Write};

/// The names of the tensors of a structure so far, in the order of
/// [`tree_flatten`](super::TensorStruct::tree_flatten).
#[derive(Debug, Clone, Default)]
pub struct Names {
    names: Vec<String>,
    /// The path to the value that is named at the moment.
    path: String,
}

impl Names {
    /// The names of a structure, whose [`tree_names`](super::TensorStruct::tree_names) are asked for. They begin with
    /// `prefix`.
    pub fn of<T: super::TensorStruct>(structure: &T, prefix: &str) -> Vec<String> {
        let mut names = Names { names: Vec::new(), path: prefix.to_owned() };
        structure.tree_names(&mut names);
        names.names
    }

    /// Names what is in a field or an element, by `name` after the path that leads here.
    pub fn part(&mut self, name: impl Display, within: impl FnOnce(&mut Names)) {
        let len = self.path.len();
        let dot = if len == 0 { "" } else { "." };
        // Text never fails to be appended to.
        let _ = write!(self.path, "{dot}{name}");
        within(self);
        self.path.truncate(len);
    }

    /// Names the next tensor by the path that leads here.
    pub fn tensor(&mut self) {
        self.names.push(self.path.clone());
    }
}
