//! Registration blocks.
//!
//! A [`Library`] registers the operators of one namespace. A *definition* block owns its namespace. A *fragment* adds
//! definitions to a namespace that another block may own. An *implementation* block registers kernels for one dispatch
//! key. Dropping a block undoes its registrations, newest first. A registration that fails changes nothing.

use crate::dispatch::builtins::is_registering;
use crate::dispatch::dispatcher::{Dispatcher, Registration};
use crate::dispatch::kernel::{IntoKernel, Kernel};
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::operator::{Operator, Site};
use crate::dispatch::schema::{AliasAnalysis, OperatorName, Schema};
use crate::error::{Error, Result};
use std::panic::Location;

/// A block of registrations, like PyTorch's `torch.library.Library`. Dropping it undoes them.
///
/// This adds an operator with an attribute, `beta`, and a method that calls it. The operator is made of others, so its
/// derivative follows, and `compile` fuses it with its neighbours. `examples/custom_op.rs` has an operator with a
/// kernel and a derivative of its own.
///
/// ```
/// use opfuse::dispatch::{Dispatcher, Library, Operator};
/// use opfuse::{Result, Tensor, compile};
/// use std::sync::LazyLock;
///
/// /// `x * sigmoid(beta * x)`.
/// fn swish(x: &Tensor, beta: f64) -> Result<Tensor> {
///     x.mul(x.mul(beta)?.sigmoid()?)
/// }
///
/// /// Calls look it up once.
/// static SWISH: LazyLock<Result<Operator>> = LazyLock::new(|| Dispatcher::global().lookup("mine::swish"));
///
/// trait Swish {
///     fn swish(&self, beta: f64) -> Result<Tensor>;
/// }
///
/// impl Swish for Tensor {
///     fn swish(&self, beta: f64) -> Result<Tensor> {
///         SWISH.as_ref().map_err(Clone::clone)?.call((self, beta))
///     }
/// }
///
/// fn main() -> Result<()> {
///     let mut library = Library::def_block("mine")?;
///     library.def_kernel("swish(Tensor self, float beta=1.0) -> Tensor", swish)?;
///
///     let x = Tensor::try_from([-1.0f32, 0.5, 2.0])?;
///     assert_eq!(x.swish(1.0)?.to_vec::<f32>()?, x.silu()?.to_vec::<f32>()?);
///
///     // Compiled, it has the bits of the eager call, in one kernel.
///     let chain = |x: &Tensor| x.swish(2.0)?.add(1.0);
///     let compiled = compile(chain);
///     assert_eq!(compiled.call(&x)?.to_vec::<f32>()?, chain(&x)?.to_vec::<f32>()?);
///     assert_eq!(compiled.explain().kernels_after, 1);
///
///     // The slope at 0 is one half.
///     let zero = Tensor::try_from([0.0f32])?;
///     zero.set_requires_grad(true)?;
///     zero.swish(2.0)?.sum_all()?.backward()?;
///     assert_eq!(zero.grad().map(|slope| slope.to_vec::<f32>()).transpose()?, Some(vec![0.5]));
///
///     // It lives as long as the library.
///     drop(library);
///     assert!(Dispatcher::global().lookup("mine::swish").is_err());
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping a library undoes its registrations"]
pub struct Library {
    dispatcher: Dispatcher,
    kind: Kind,
    /// `_` stands for all namespaces. Only such a block can register fallbacks.
    namespace: String,
    site: Site,
    registrations: Vec<Registration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Definitions,
    Fragment,
    Implementations(DispatchKey),
}

impl Library {
    /// The definition block of a namespace, in the global registry. A namespace has at most one.
    ///
    /// # Errors
    /// Same as [`Library::def_block_in`].
    #[track_caller]
    pub fn def_block(namespace: &str) -> Result<Library> {
        Library::def_block_in(Dispatcher::global(), namespace)
    }

    /// The definition block of a namespace. A namespace has at most one.
    ///
    /// # Errors
    /// If another block owns the namespace, or if it is not a valid name.
    #[track_caller]
    pub fn def_block_in(dispatcher: &Dispatcher, namespace: &str) -> Result<Library> {
        let mut library = Library::new(dispatcher, Kind::Definitions, namespace)?;
        library.registrations.push(dispatcher.register_namespace(namespace)?);
        Ok(library)
    }

    /// A block that adds definitions to a namespace, in the global registry.
    ///
    /// # Errors
    /// Same as [`Library::fragment_in`].
    #[track_caller]
    pub fn fragment(namespace: &str) -> Result<Library> {
        Library::fragment_in(Dispatcher::global(), namespace)
    }

    /// A block that adds definitions to a namespace.
    ///
    /// # Errors
    /// If the namespace is not a valid name.
    #[track_caller]
    pub fn fragment_in(dispatcher: &Dispatcher, namespace: &str) -> Result<Library> {
        Library::new(dispatcher, Kind::Fragment, namespace)
    }

    /// A block of kernels for one key, in the global registry. The namespace `_` stands for all.
    ///
    /// # Errors
    /// Same as [`Library::impl_block_in`].
    #[track_caller]
    pub fn impl_block(namespace: &str, key: DispatchKey) -> Result<Library> {
        Library::impl_block_in(Dispatcher::global(), namespace, key)
    }

    /// A block of kernels for one key. The namespace `_` stands for all.
    ///
    /// # Errors
    /// If the namespace is not a valid name.
    #[track_caller]
    pub fn impl_block_in(dispatcher: &Dispatcher, namespace: &str, key: DispatchKey) -> Result<Library> {
        Library::new(dispatcher, Kind::Implementations(key), namespace)
    }

    #[track_caller]
    fn new(dispatcher: &Dispatcher, kind: Kind, namespace: &str) -> Result<Library> {
        let site = Location::caller();
        let legal = !namespace.is_empty() && namespace.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let is_wildcard = namespace == "_" && !matches!(kind, Kind::Implementations(_));
        if !legal || is_wildcard {
            let what = format!("'{namespace}' is not a namespace that operators can be defined in ({site})");
            return Err(Error::Registration { what });
        }
        Ok(Library {
            dispatcher: dispatcher.clone(),
            kind,
            namespace: namespace.into(),
            site,
            registrations: Vec::new(),
        })
    }

    /// Defines an operator from its schema.
    ///
    /// # Errors
    /// If the text is not a schema (the message says where), if it names another namespace, if the operator is defined
    /// already, or if this is an implementation block.
    #[track_caller]
    pub fn def(&mut self, schema: &str) -> Result<&mut Self> {
        self.def_operator(schema).map(|_| self)
    }

    /// Defines an operator with the given alias analysis.
    ///
    /// # Errors
    /// Same as [`Library::def`].
    #[track_caller]
    pub fn def_with(&mut self, schema: &str, alias_analysis: AliasAnalysis) -> Result<&mut Self> {
        let schema = Schema { alias_analysis, ..self.parse_schema(schema)? };
        self.define(schema).map(|_| self)
    }

    /// Defines an operator and registers its decomposition.
    ///
    /// # Errors
    /// Same as [`Library::def`], and if the signature of the kernel differs from that of the schema.
    #[track_caller]
    pub fn def_kernel<M>(&mut self, schema: &str, kernel: impl IntoKernel<M>) -> Result<&mut Self> {
        self.def_composite(schema, kernel.into_kernel()).map(|_| self)
    }

    /// Like [`Library::def_kernel`], and returns the operator, so that callers need not look it up.
    ///
    /// It takes the kernel itself: a copy of this code for each function would be half a megabyte.
    #[track_caller]
    #[inline(never)]
    pub(crate) fn def_composite(&mut self, schema: &str, mut kernel: Kernel) -> Result<Operator> {
        let schema = self.parse_schema(schema)?;
        let has_alias = schema.arguments.iter().chain(&schema.returns).any(|value| value.alias.is_some());
        if is_registering() && !has_alias {
            kernel = kernel.may_be_whole();
        }
        let (operator, definition) = self.dispatcher.define(schema)?;
        let key = DispatchKey::CompositeImplicitAutograd;
        let implementation = self.dispatcher.register_kernel(operator.name(), key, kernel)?;
        self.registrations.extend([definition, implementation]);
        Ok(operator)
    }

    /// Like [`Library::def`], and returns the operator, so that callers need not look it up.
    #[track_caller]
    pub(crate) fn def_operator(&mut self, schema: &str) -> Result<Operator> {
        let schema = self.parse_schema(schema)?;
        self.define(schema)
    }

    /// Defines an operator with the schema that a typed kernel implies, and registers the kernel as its decomposition.
    ///
    /// # Errors
    /// Same as [`Library::def`], and if the kernel is boxed.
    #[track_caller]
    pub fn def_inferred<M>(&mut self, name: &str, kernel: impl IntoKernel<M>) -> Result<&mut Self> {
        self.define_inferred(name, kernel.into_kernel())
    }

    #[track_caller]
    fn define_inferred(&mut self, name: &str, kernel: Kernel) -> Result<&mut Self> {
        self.check_defines(name)?;
        let name = self.qualify(name.parse()?, "operator name")?;
        let Some(schema) = kernel.inferred_schema(&name) else {
            let what = format!("{name}: a schema cannot be inferred from a boxed kernel ({})", Location::caller());
            return Err(Error::Registration { what });
        };
        let definition = self.dispatcher.register_def(schema)?;
        let implementation = self.dispatcher.register_kernel(&name, DispatchKey::CompositeImplicitAutograd, kernel)?;
        self.registrations.extend([definition, implementation]);
        Ok(self)
    }

    /// Registers a kernel for the key of the block. A definition block or fragment has no key: there the kernel is
    /// registered as decomposition (`CompositeImplicitAutograd`).
    ///
    /// # Errors
    /// If the name belongs to another namespace. If the signature of the kernel differs from that of the schema or of
    /// the other kernels.
    #[track_caller]
    pub fn impl_<M>(&mut self, name: &str, kernel: impl IntoKernel<M>) -> Result<&mut Self> {
        self.implement(name, self.key(), kernel.into_kernel())
    }

    /// Like [`Library::impl_`], for an operator whose handle the caller has.
    #[track_caller]
    pub(crate) fn impl_operator(&mut self, operator: &Operator, kernel: Kernel) -> Result<&mut Self> {
        let key = self.key();
        self.impl_operator_for(operator, key, kernel)
    }

    /// Like [`Library::impl_for`], for an operator whose handle the caller has.
    #[track_caller]
    pub(crate) fn impl_operator_for(
        &mut self,
        operator: &Operator,
        key: DispatchKey,
        kernel: Kernel,
    ) -> Result<&mut Self> {
        self.check_key(key)?;
        let name = self.qualify(operator.name().clone(), "operator name")?;
        self.registrations.push(self.dispatcher.register_kernel(&name, key, kernel)?);
        Ok(self)
    }

    /// Registers a kernel for a key. If the block has a key, it must be the same.
    ///
    /// # Errors
    /// Same as [`Library::impl_`], and if the block has another key.
    #[track_caller]
    pub fn impl_for<M>(&mut self, name: &str, key: DispatchKey, kernel: impl IntoKernel<M>) -> Result<&mut Self> {
        self.check_key(key)?;
        self.implement(name, key, kernel.into_kernel())
    }

    /// Registers a fallback for the key of the block: the kernel of all operators that have none for this key. The
    /// namespace of the block must be `_`.
    ///
    /// # Errors
    /// If the block has no key or a namespace other than `_`, if the kernel is typed, or if the key has a fallback
    /// already.
    #[track_caller]
    pub fn fallback<M>(&mut self, kernel: impl IntoKernel<M>) -> Result<&mut Self> {
        let Kind::Implementations(key) = self.kind else {
            return Err(self.refusal(
                "cannot register a fallback inside a definition block: a fallback belongs in an implementation block, \
                 which has a dispatch key"
                    .into(),
            ));
        };
        if self.namespace != "_" {
            let namespace = &self.namespace;
            return Err(self.refusal(format!(
                "a fallback applies to the operators of all namespaces; register it in an implementation block for \
                 namespace _, not {namespace}"
            )));
        }
        let kernel = kernel.into_kernel();
        if kernel.signature().is_some() {
            return Err(
                self.refusal(format!("the fallback for {key} must be a boxed kernel: it runs for every schema"))
            );
        }
        self.registrations.push(self.dispatcher.register_fallback(key, kernel)?);
        Ok(self)
    }

    /// The key of the block; that of decompositions if it has none.
    fn key(&self) -> DispatchKey {
        match self.kind {
            Kind::Implementations(key) => key,
            Kind::Definitions | Kind::Fragment => DispatchKey::CompositeImplicitAutograd,
        }
    }

    #[track_caller]
    fn define(&mut self, schema: Schema) -> Result<Operator> {
        let (operator, definition) = self.dispatcher.define(schema)?;
        self.registrations.push(definition);
        Ok(operator)
    }

    #[track_caller]
    #[inline(never)]
    fn implement(&mut self, name: &str, key: DispatchKey, kernel: Kernel) -> Result<&mut Self> {
        let name = self.qualify(name.parse()?, "operator name")?;
        self.registrations.push(self.dispatcher.register_kernel(&name, key, kernel)?);
        Ok(self)
    }

    fn parse_schema(&self, text: &str) -> Result<Schema> {
        self.check_defines(text)?;
        let mut schema: Schema = text.parse()?;
        schema.name = self.qualify(schema.name, "schema string")?;
        Ok(schema)
    }

    fn check_defines(&self, what: &str) -> Result<()> {
        if let Kind::Implementations(key) = self.kind {
            return Err(self.refusal(format!(
                "cannot define operators inside of an implementation block (key {key}): {what}; all definitions go \
                 into the definition block of their namespace or a fragment"
            )));
        }
        Ok(())
    }

    fn check_key(&self, key: DispatchKey) -> Result<()> {
        match self.kind {
            Kind::Implementations(own) if own != key => Err(self.refusal(format!(
                "explicitly provided dispatch key ({key}) is inconsistent with the dispatch key of the enclosing \
                 block ({own}); use a separate block for it"
            ))),
            Kind::Implementations(_) | Kind::Definitions | Kind::Fragment => Ok(()),
        }
    }

    /// Adds the block's namespace to a name, unless the name has another one.
    fn qualify(&self, name: OperatorName, what: &str) -> Result<OperatorName> {
        let namespace = &self.namespace;
        match name.namespace() {
            Some(_) if namespace == "_" => Ok(name),
            None if namespace == "_" => {
                Err(self.refusal(format!("{name} needs a namespace in a block for all of them")))
            }
            None => Ok(OperatorName::new(format!("{namespace}::{}", name.name), name.overload)),
            Some(own) if own == namespace => Ok(name),
            Some(own) => Err(self.refusal(format!(
                "explicitly provided namespace ({own}) in {what} {name} does not match namespace of enclosing block \
                 ({namespace}); move it to the block of its namespace"
            ))),
        }
    }

    fn refusal(&self, what: String) -> Error {
        Error::Registration { what: format!("{what}; block at {}", self.site) }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // Newest first, so that an older registration that becomes active again is complete.
        while let Some(registration) = self.registrations.pop() {
            drop(registration);
        }
    }
}
