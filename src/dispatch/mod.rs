//! What does this call mean right now?
//!
//! The mechanism alone: keys and key sets, operators and their tables, registration blocks, boxed and typed kernels,
//! thread-local sets and user modes. No operator is defined here, and nothing here knows how a kernel computes.

pub(crate) mod builtins;
mod call;
mod cpu_fallback;
pub(crate) mod dispatcher;
pub(crate) mod kernel;
pub(crate) mod key;
pub(crate) mod library;
pub(crate) mod mode;
pub mod modes;
pub(crate) mod operator;
pub(crate) mod row_values;
pub mod rows;
pub(crate) mod schema;
mod schema_parser;
pub(crate) mod signature;
pub(crate) mod table;
pub(crate) mod value;
pub(crate) mod whole;

pub use crate::runtime::Array;
pub use builtins::{load, operator};
pub use call::TypedOperator;
pub(crate) use cpu_fallback::copy_storage;
pub use cpu_fallback::cpu_fallback;
pub use dispatcher::{Dispatcher, Registration};
pub use kernel::{BoxedFn, IntoKernel, Kernel};
pub use key::{
    Backend, DispatchKey, ExcludeGuard, IncludeGuard, KeySet, below_ad_inplace_or_view, below_autograd, exclude,
    expand, include, includes,
};
pub use library::Library;
pub use operator::Operator;

pub use schema::{AliasAnalysis, OperatorName, Parameter, Schema, Type};
pub use value::{Stack, TensorLayout, Value};
