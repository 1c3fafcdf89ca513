//! What does this call mean right now?
//!
//! Keys and key sets, operators and their tables, registration blocks, boxed and typed kernels, thread-local sets,
//! and [`Tensor`], whose methods are calls of operators. Each key with behaviour has one file in [`keys`]. Nothing
//! here knows how a kernel computes.

mod alias;
pub mod autograd;
mod call;
mod composite;
mod composites;
mod convert;
mod cpu_fallback;
mod dims;
mod dispatcher;
mod element;
mod factories;
mod format;
mod function;
mod in_place;
mod indexing;
mod joins;
mod kernel;
mod key;
pub mod keys;
mod keyset;
mod library;
mod local;
mod methods;
pub mod modes;
mod mutation;
#[cfg(feature = "ndarray")]
mod ndarray;
pub mod nn;
mod operator;
mod operators;
mod pieces;
mod products;
mod random;
mod random_fills;
mod reductions;
pub mod register;
mod reshaping;
mod scatters;
mod schema;
mod schema_parser;
mod signature;
mod sorting;
mod structure;
mod subscript;
mod table;
mod tensor;
mod transfer;
mod value;
mod view_chain;
mod views;
pub mod vmap;

pub use crate::ir::MemoryFormat;
pub use alias::*;
pub use call::TypedOperator;
pub use cpu_fallback::cpu_fallback;
pub use dims::Dims;
pub use dispatcher::{Dispatcher, Listener, OperatorEvent, Registration};
pub use element::Element;
pub use function::{Function, Input, Inputs, TensorRefs};
pub use joins::{cat, embedding, stack};
pub use kernel::{BoxedFn, IntoKernel, Kernel};
pub use key::{Backend, DispatchKey};
pub use keys::autocast::{AutocastGuard, AutocastState, autocast, autocast_on, no_autocast, no_autocast_on};
pub use keyset::{KeySet, KeySetIter, N_SLOTS, RUNTIME_KEYS};
pub use library::Library;
pub use local::{
    ExcludeGuard, ForceGuard, IncludeGuard, LocalKeySets, below_ad_inplace_or_view, below_autograd, exclude, force,
    include, local_key_sets,
};
#[cfg(feature = "ndarray")]
pub use ndarray::NdView;
pub use operator::{Operator, Site, SlotInfo};
pub use operators::Operand;
pub use register::load;
pub use reshaping::{Indexing, broadcast_tensors, meshgrid};
pub use schema::{AliasAnalysis, AliasInfo, Literal, OperatorName, Parameter, Schema, Type};
pub use signature::{ArgKind, Args, CallArg, ReturnValue, Returns, Signature};
pub use structure::{Flat, Parts, TensorStruct, Tensors, Words};
pub use subscript::{Ellipsis, Index, Indices, NewAxis};
pub use table::Source;
pub use tensor::Tensor;
pub use value::{Stack, TensorLayout, Value};
