//! Modules in a row.

use super::module::{Forward, Module, Visitor, VisitorMut};
use crate::error::Result;
use crate::profile::stands_for;
use crate::tensor::Tensor;

/// Modules that run one after the other. Their names are their positions, as in PyTorch, or given.
///
/// ```
/// use opfuse::nn::{Forward, Linear, ReLU, Sequential};
/// use opfuse::{DType, Tensor};
///
/// # fn main() -> opfuse::Result<()> {
/// let model = Sequential::new().with(Linear::new(4, 8)?).with(ReLU {}).with(Linear::new(8, 2)?);
/// assert_eq!(model.forward(&Tensor::ones(&[3, 4], DType::F32)?)?.sizes(), [3, 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Sequential {
    modules: Vec<(String, Box<dyn Forward>)>,
}

impl Sequential {
    /// No modules: the result is the input.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Adds a module, whose name is its position.
    #[must_use]
    pub fn with(self, module: impl Forward + 'static) -> Sequential {
        let name = self.modules.len().to_string();
        self.with_named(&name, module)
    }

    /// Adds a module with a name.
    #[must_use]
    pub fn with_named(mut self, name: &str, module: impl Forward + 'static) -> Sequential {
        self.modules.push((name.to_owned(), Box::new(module)));
        self
    }

    /// The modules and their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &dyn Forward)> {
        self.modules.iter().map(|(name, module)| (name.as_str(), &**module))
    }
}

impl Module for Sequential {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.modules.iter().for_each(|(name, module)| visitor.element(name, module));
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        self.modules.iter_mut().for_each(|(name, module)| visitor.element(name, module));
    }
}

impl Forward for Sequential {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _place = stands_for();
        self.modules.iter().try_fold(x.clone(), |x, (_, module)| module.forward(&x))
    }
}
