//! The registry of operators, fallbacks, namespaces and listeners.
//!
//! Every change happens under one lock. It either succeeds, or leaves everything as it was. It returns a
//! [`Registration`] that undoes it when dropped. Calls do not use the registry: they go through [`Operator`] handles.

use crate::dispatch::builtins;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::set::{KeySet, N_SLOTS};
use crate::dispatch::operator::{Operator, Registered, Site};
use crate::dispatch::schema::{OperatorName, Schema};
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A registry of operators. Clones share it.
#[derive(Clone)]
pub struct Dispatcher(Arc<Registry>);

struct Registry {
    state: Mutex<State>,
    /// How often a definition, kernel or fallback came or went.
    generation: AtomicU64,
    /// What `generation` was when the built-in operators were complete, and the last id of their registrations.
    builtin: OnceLock<(u64, u64)>,
}

struct State {
    operators: HashMap<OperatorName, Operator>,
    /// By slot.
    fallbacks: Vec<Option<Registered>>,
    /// Where each namespace was claimed.
    namespaces: HashMap<String, Site>,
    listeners: Vec<(u64, Arc<Listener>)>,
    next_id: u64,
}

/// A change that a listener is notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorEvent {
    /// The operator is defined. Also sent for the operators that are defined when the listener is added.
    Defined,
    /// The definition is about to be removed. The handle is still fully valid.
    Removed,
}

/// A function that is notified of definitions and removals.
pub type Listener = dyn Fn(OperatorEvent, &Operator) + Send + Sync;

/// One change of a dispatcher. Dropping it undoes the change.
#[must_use = "dropping a registration undoes it"]
pub struct Registration {
    dispatcher: Dispatcher,
    undo: Undo,
}

enum Undo {
    Definition(OperatorName),
    Kernel { name: OperatorName, key: DispatchKey, id: u64 },
    Fallback { slot: usize },
    Namespace(String),
    Listener(u64),
}

impl Default for Dispatcher {
    fn default() -> Self {
        Dispatcher::new()
    }
}

impl Dispatcher {
    /// An empty registry, separate from the global one.
    pub fn new() -> Dispatcher {
        let state = State {
            operators: HashMap::new(),
            fallbacks: vec![const { None }; N_SLOTS],
            namespaces: HashMap::new(),
            listeners: Vec::new(),
            next_id: 0,
        };
        let (generation, builtin) = (AtomicU64::new(0), OnceLock::new());
        Dispatcher(Arc::new(Registry { state: Mutex::new(state), generation, builtin }))
    }

    /// The registry of this process, with the built-in operators: they are registered before anybody sees it.
    pub fn global() -> &'static Dispatcher {
        static GLOBAL: OnceLock<Dispatcher> = OnceLock::new();
        builtins::complete();
        GLOBAL.get_or_init(Dispatcher::new)
    }

    /// How often a definition, kernel or fallback was registered or undone: whoever relies on a registration looks
    /// again when this has changed.
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// Notes that all registered so far is built in.
    pub(crate) fn seal_builtins(&self) {
        let last_id = self.state().next_id;
        self.0.builtin.get_or_init(|| (self.generation(), last_id));
    }

    /// Whether nothing was registered or unregistered since the built-in operators were complete.
    pub(crate) fn has_builtins_only(&self) -> bool {
        self.0.builtin.get().is_some_and(|&(generation, _)| self.generation() == generation)
    }

    /// Whether a call of a built-in operator with these keys may meet a kernel that was registered from outside.
    pub(crate) fn is_overridden(&self, operator: &Operator, keys: KeySet) -> bool {
        let Some(&(generation, last_id)) = self.0.builtin.get() else { return false };
        if self.generation() == generation {
            return false;
        }
        let is_newer = |fallback: &Option<Registered>| fallback.as_ref().is_some_and(|fallback| fallback.id > last_id);
        let state = self.state();
        let fallback = |key: &DispatchKey| key.slot().is_some_and(|slot| is_newer(&state.fallbacks[slot]));
        keys.iter().any(|key| fallback(&key)) || operator.has_newer_kernel(last_id, keys)
    }

    /// The operator of that name, whether it is defined or not.
    pub fn find(&self, name: &OperatorName) -> Option<Operator> {
        self.state().operators.get(name).cloned()
    }

    /// The defined operator `namespace::name` with that overload name.
    ///
    /// # Errors
    /// If there is no such operator, or if it has kernels but no schema.
    pub fn find_schema(&self, name: &str, overload: &str) -> Result<Operator> {
        let found = self.find(&OperatorName::new(name, overload));
        match found {
            Some(op) if op.is_defined() => Ok(op),
            Some(_) => Err(Error::Registration {
                what: format!(
                    "Could not find schema for {name}.{overload} but we found an implementation; did you forget to \
                     def() the operator?"
                ),
            }),
            None => Err(Error::Registration { what: format!("Could not find schema for {name}.{overload}") }),
        }
    }

    /// The defined operator by its full name, such as `aten::add.Tensor`.
    ///
    /// # Errors
    /// If the name is not `namespace::name` with an optional `.overload`, or if [`Dispatcher::find_schema`] fails.
    pub fn lookup(&self, name: &str) -> Result<Operator> {
        let name: OperatorName = name.parse()?;
        self.find_schema(&name.name, &name.overload)
    }

    /// The names of all operators that have a definition or a kernel, sorted.
    pub fn operator_names(&self) -> Vec<OperatorName> {
        let mut names: Vec<OperatorName> = self.state().operators.keys().cloned().collect();
        names.sort();
        names
    }

    /// All operators that have a definition or a kernel, sorted by name.
    pub(crate) fn operators(&self) -> Vec<Operator> {
        let mut operators: Vec<Operator> = self.state().operators.values().cloned().collect();
        operators.sort_by(|a, b| a.name().cmp(b.name()));
        operators
    }

    /// Defines an operator.
    ///
    /// # Errors
    /// If the operator is defined already, or if a registered kernel has another signature.
    #[track_caller]
    pub fn register_def(&self, schema: Schema) -> Result<Registration> {
        self.define(schema).map(|(_, registration)| registration)
    }

    /// Like [`Dispatcher::register_def`], and also returns the operator.
    #[track_caller]
    pub(crate) fn define(&self, schema: Schema) -> Result<(Operator, Registration)> {
        let site = Location::caller();
        let name = schema.name.clone();
        let (op, listeners) = {
            let mut state = self.state();
            let op = state.operator(&name);
            if let Err(error) = op.define(schema, site) {
                let unused = state.forget_if_unused(&name);
                drop(state);
                drop(unused);
                return Err(error);
            }
            (op, state.listeners.clone())
        };
        for (_, listener) in listeners {
            listener(OperatorEvent::Defined, &op);
        }
        Ok((op, self.registration(Undo::Definition(name))))
    }

    /// Registers a kernel of an operator for a runtime or alias key. The operator need not be defined yet.
    ///
    /// # Errors
    /// If the key is `Undefined` or a functionality without its backend. If the signature of the kernel differs from
    /// that of the schema or of the other kernels.
    #[track_caller]
    pub fn register_kernel(&self, name: &OperatorName, key: DispatchKey, kernel: Kernel) -> Result<Registration> {
        let site = Location::caller();
        if key == DispatchKey::Undefined || key.is_per_backend() {
            let what = format!("{name}: no kernel can be registered to {key} ({site}); name a runtime or alias key");
            return Err(Error::Registration { what });
        }
        let mut state = self.state();
        let id = state.next_id();
        let op = state.operator(name);
        let added = op.add_kernel(key, registered(id, kernel, site), &state.fallbacks);
        if let Err(error) = added {
            let unused = state.forget_if_unused(name);
            drop(state);
            drop(unused);
            return Err(error);
        }
        drop(state);
        Ok(self.registration(Undo::Kernel { name: name.clone(), key, id }))
    }

    /// Registers the fallback of a runtime key: the kernel of all operators that have none for this key.
    ///
    /// # Errors
    /// If the key is not a runtime key, or if it has a fallback already.
    #[track_caller]
    pub fn register_fallback(&self, key: DispatchKey, kernel: Kernel) -> Result<Registration> {
        let site = Location::caller();
        let Some(slot) = key.slot().filter(|_| key != DispatchKey::Undefined) else {
            let what = format!("a backend fallback cannot be registered to {key} ({site}); name a runtime key");
            return Err(Error::Registration { what });
        };
        let mut state = self.state();
        if let Some(previous) = &state.fallbacks[slot] {
            return Err(Error::Registration {
                what: format!(
                    "Tried to register multiple backend fallbacks for the same dispatch key {key}; previous \
                     registration {}, new registration {site}",
                    previous.site
                ),
            });
        }
        let id = state.next_id();
        state.fallbacks[slot] = Some(registered(id, kernel, site));
        state.update_fallback(slot);
        drop(state);
        Ok(self.registration(Undo::Fallback { slot }))
    }

    /// Claims a namespace for one definition block.
    ///
    /// # Errors
    /// If another block owns the namespace.
    #[track_caller]
    pub fn register_namespace(&self, namespace: &str) -> Result<Registration> {
        let site = Location::caller();
        let mut state = self.state();
        if let Some(previous) = state.namespaces.get(namespace) {
            return Err(Error::Registration {
                what: format!(
                    "only a single definition block can own the namespace {namespace}; put all definitions into it or \
                     use a fragment; previous block {previous}, new block {site}"
                ),
            });
        }
        state.namespaces.insert(namespace.to_string(), site);
        drop(state);
        Ok(self.registration(Undo::Namespace(namespace.to_string())))
    }

    /// Adds a listener. It is notified of all defined operators at once, and of later changes as they happen.
    ///
    /// It runs outside the dispatcher's lock, so it may look up operators.
    pub fn add_listener(&self, listener: impl Fn(OperatorEvent, &Operator) + Send + Sync + 'static) -> Registration {
        let listener: Arc<Listener> = Arc::new(listener);
        let (id, mut defined) = {
            let mut state = self.state();
            let id = state.next_id();
            state.listeners.push((id, Arc::clone(&listener)));
            (id, state.operators.values().filter(|op| op.is_defined()).cloned().collect::<Vec<_>>())
        };
        defined.sort_by(|a, b| a.name().cmp(b.name()));
        for op in &defined {
            listener(OperatorEvent::Defined, op);
        }
        self.registration(Undo::Listener(id))
    }

    /// Recomputes every dispatch table from scratch and compares it with the one in use.
    ///
    /// # Errors
    /// The first difference, with its operator and key.
    pub fn check_invariants(&self) -> Result<()> {
        let state = self.state();
        state.operators.values().try_for_each(|op| op.check_invariants(&state.fallbacks))
    }

    fn registration(&self, undo: Undo) -> Registration {
        self.note_change();
        Registration { dispatcher: self.clone(), undo }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics between the first and the last step of a change.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a change, which is complete by now.
    fn note_change(&self) {
        self.0.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn undo_definition(&self, name: &OperatorName) {
        let Some(op) = self.find(name) else { return };
        let listeners = self.state().listeners.clone();
        for (_, listener) in listeners {
            listener(OperatorEvent::Removed, &op);
        }
        op.undefine();
        self.forget_if_unused(name);
    }

    fn forget_if_unused(&self, name: &OperatorName) {
        let unused = self.state().forget_if_unused(name);
        // Dropped without the lock: kernels may own registrations themselves.
        drop(unused);
    }
}

impl State {
    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn operator(&mut self, name: &OperatorName) -> Operator {
        if let Some(op) = self.operators.get(name) {
            return op.clone();
        }
        let op = Operator::new(name.clone(), &self.fallbacks);
        self.operators.insert(name.clone(), op.clone());
        op
    }

    /// Removes an operator for which nothing is registered. The caller must drop it without the lock.
    fn forget_if_unused(&mut self, name: &OperatorName) -> Option<Operator> {
        if self.operators.get(name)?.is_unused() { self.operators.remove(name) } else { None }
    }

    fn update_fallback(&self, slot: usize) {
        for op in self.operators.values() {
            op.update_fallback(slot, &self.fallbacks);
        }
    }
}

fn registered(id: u64, kernel: Kernel, site: Site) -> Registered {
    // Calls of built-in kernels need not be counted.
    let kernel = if builtins::is_registering() { kernel.kept() } else { kernel };
    Registered { id, kernel: Arc::new(kernel), site }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let dispatcher = &self.dispatcher;
        match &self.undo {
            Undo::Definition(name) => dispatcher.undo_definition(name),
            Undo::Kernel { name, key, id } => {
                let state = dispatcher.state();
                let op = state.operators.get(name);
                let removed = op.and_then(|op| op.remove_kernel(*key, *id, &state.fallbacks));
                drop(state);
                // Without the lock: what a kernel captures may own registrations itself.
                removed.iter().for_each(|kernel| kernel.retire());
                dispatcher.forget_if_unused(name);
            }
            Undo::Fallback { slot } => {
                let mut state = dispatcher.state();
                let removed = state.fallbacks[*slot].take();
                state.update_fallback(*slot);
                drop(state);
                removed.iter().for_each(|registered| registered.kernel.retire());
            }
            Undo::Namespace(namespace) => {
                dispatcher.state().namespaces.remove(namespace);
            }
            Undo::Listener(id) => {
                let mut state = dispatcher.state();
                let at = state.listeners.iter().position(|(listener, _)| listener == id);
                let removed = at.map(|at| state.listeners.remove(at));
                drop(state);
                drop(removed);
            }
        }
        dispatcher.note_change();
    }
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dispatcher({} operators)", self.state().operators.len())
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.undo {
            Undo::Definition(name) => write!(f, "definition of {name}"),
            Undo::Kernel { name, key, .. } => write!(f, "kernel of {name} for {key}"),
            Undo::Fallback { slot } => write!(f, "fallback of slot {slot}"),
            Undo::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Undo::Listener(_) => f.write_str("listener"),
        }
    }
}
