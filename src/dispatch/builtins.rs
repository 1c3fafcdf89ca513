//! The built-in operators of this process, registered at the first call or the first look at the registry.
//!
//! The floors above the dispatcher define them: `ops` the operators and the kernels of backends, `autograd` and
//! `transforms` the kernels of their keys. Rust runs no code before `main`, so the first call triggers registration.
//! The list of registering floors is therefore here: the only place where the dispatcher imports from floors above it.

use crate::dispatch::cpu_fallback::cpu_fallback;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::{autograd, ops, transforms};
use std::cell::Cell;
use std::sync::OnceLock;

/// The functions that register, in order. Fallbacks come first: a new operator takes those that are there at once,
/// and a new fallback has to go to every operator that is there.
const REGISTER: [fn(&mut Builtins) -> Result<()>; 6] = [
    fallbacks,
    autograd::register_fallbacks,
    transforms::register_fallbacks,
    ops::register,
    autograd::register,
    transforms::register,
];

/// Keys without behaviour: calls fall through them.
const PASSED: &[DispatchKey] = &[
    DispatchKey::BackendSelect,
    DispatchKey::Functionalize,
    DispatchKey::ADInplaceOrView,
    DispatchKey::AutocastCPU,
    DispatchKey::AutocastCUDA,
    DispatchKey::AutocastPrivateUse1,
];

/// What is registered so far, by the handles that registering it gave.
#[derive(Default)]
pub(crate) struct Builtins {
    /// The operators of the op table, in its order.
    pub(crate) by_op: Vec<Operator>,
    /// Their in-place forms, where there are any.
    pub(crate) in_place: Vec<Option<Operator>>,
    /// The operator that writes, `copy_`.
    pub(crate) copy: Option<Operator>,
    /// Owns the registrations.
    pub(crate) libraries: Vec<Library>,
}

impl Builtins {
    /// The ops of the table with their operators.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (Op, &Operator)> {
        Op::ALL.iter().copied().zip(&self.by_op)
    }

    /// Registers kernels that are the fallbacks of their keys, for all operators.
    pub(crate) fn register_fallbacks(&mut self, all: impl IntoIterator<Item = (DispatchKey, Kernel)>) -> Result<()> {
        for (key, kernel) in all {
            let mut library = Library::impl_block("_", key)?;
            library.fallback(kernel)?;
            self.libraries.push(library);
        }
        Ok(())
    }

    /// The operator that writes, `copy_`.
    pub(crate) fn copy(&self) -> Result<&Operator> {
        self.copy.as_ref().ok_or_else(|| Error::Internal { message: "copy_ is not registered".into() })
    }
}

static BUILTINS: OnceLock<Result<Builtins>> = OnceLock::new();

thread_local! {
    /// Whether this thread is the one that registers them.
    static IS_REGISTERING: Cell<bool> = const { Cell::new(false) };
}

#[inline]
fn builtins() -> Result<&'static Builtins> {
    BUILTINS.get_or_init(register).as_ref().map_err(Error::clone)
}

/// Registers the built-in operators, unless they are there or this thread is about to. What went wrong is said by
/// every call of one.
pub(crate) fn complete() {
    if BUILTINS.get().is_none() && !IS_REGISTERING.get() {
        BUILTINS.get_or_init(register);
    }
}

/// Whether this thread registers the built-in operators, which are never unregistered.
pub(crate) fn is_registering() -> bool {
    IS_REGISTERING.get()
}

/// Registers the built-in operators now rather than at the first call or look-up.
///
/// # Errors
/// If two of them contradict each other, which is a broken invariant of this crate.
pub fn load() -> Result<()> {
    builtins().map(|_| ())
}

/// The operator of a row of the op table.
///
/// # Errors
/// Same as [`load`].
#[inline]
pub fn operator(op: Op) -> Result<&'static Operator> {
    builtins().map(|builtins| &builtins.by_op[op as usize])
}

/// The in-place form of an op, if it has one.
pub(crate) fn in_place(op: Op) -> Result<&'static Operator> {
    let form = builtins()?.in_place.get(op as usize).and_then(Option::as_ref);
    form.ok_or_else(|| Error::Internal { message: format!("{} has no in-place form", op.name()) })
}

/// The operator that writes, `copy_`.
pub(crate) fn copy_operator() -> Result<&'static Operator> {
    builtins()?.copy()
}

fn register() -> Result<Builtins> {
    let mut builtins = Builtins::default();
    IS_REGISTERING.set(true);
    let registered = REGISTER.iter().try_for_each(|register| register(&mut builtins));
    if registered.is_ok() {
        Dispatcher::global().seal_builtins();
    }
    IS_REGISTERING.set(false);
    registered?;
    Ok(builtins)
}

/// Registers the dispatcher's own kernels: each is the fallback of one key for all operators.
fn fallbacks(builtins: &mut Builtins) -> Result<()> {
    let passed = PASSED.iter().map(|&key| (key, Kernel::fallthrough()));
    let boxed = [
        (DispatchKey::CUDA, Kernel::boxed(cpu_fallback).named("cpu_fallback")),
        (DispatchKey::PythonDispatcher, Kernel::boxed(crate::dispatch::mode::fallback).named("modes")),
    ];
    builtins.register_fallbacks(passed.chain(boxed))
}
