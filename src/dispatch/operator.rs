//! Operators: a name, a schema, the registered kernels, and the dispatch table computed from them.
//!
//! What always holds: every slot equals what `table.rs` computes from the current registrations, because updates happen
//! under their lock. A mask lacks exactly the keys whose slot is a fallthrough kernel. No list of kernels is empty.
//! Reading a slot takes no lock: a published kernel lives as long as the operator. What an unregistered kernel captured
//! is freed (`kernel.rs`), so some hundred bytes stay of each.

#![allow(unsafe_code, reason = "slots of the dispatch table are read without a lock")]

use crate::debug;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::alias::includes;
use crate::dispatch::key::dispatch_key::{Backend, DispatchKey};
use crate::dispatch::key::set::{KeySet, N_SLOTS, RUNTIME_KEYS};
use crate::dispatch::schema::{OperatorName, Parameter, Schema};
use crate::dispatch::signature::Signature;
use crate::dispatch::table::{ActiveKernels, Source, affects, compute_slot};
use crate::error::{Error, Result};
use crate::ir::Op;
use smallvec::SmallVec;
use std::fmt::{self, Write};
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Where a registration was made.
pub type Site = &'static Location<'static>;

/// A handle to an operator. Clones share it. It stays valid after the operator was removed from its dispatcher.
#[derive(Clone)]
pub struct Operator(Arc<Entry>);

struct Entry {
    name: OperatorName,
    /// The row of the op table that it was made from, if it was.
    row: OnceLock<Op>,
    definition: Published<Definition, 1>,
    slots: Published<Kernel, N_SLOTS>,
    /// By backend: the keys whose slot is not a fallthrough kernel.
    masks: [AtomicU64; Backend::ALL.len()],
    registrations: Mutex<Registrations>,
}

/// Cells that are read without a lock and written under one.
struct Published<T, const N: usize> {
    cells: [AtomicPtr<T>; N],
    /// Owns every target that a cell ever had. Nothing is removed before the cells are dropped.
    kept: Mutex<Vec<Arc<T>>>,
}

impl<T, const N: usize> Published<T, N> {
    fn new() -> Self {
        Published { cells: [const { AtomicPtr::new(ptr::null_mut()) }; N], kept: Mutex::default() }
    }

    #[inline]
    fn get(&self, cell: usize) -> Option<&T> {
        let pointer = self.cells[cell].load(Ordering::Acquire);
        // SAFETY: a cell holds null or the address inside an `Arc` that `set` put into `kept` before it stored the
        // address. `kept` only grows while `self` lives, and the result borrows `self`, so the target is alive and,
        // being shared through `Arc`, never mutably borrowed.
        unsafe { pointer.as_ref() }
    }

    fn set(&self, cell: usize, value: Option<&Arc<T>>) {
        let address = value.map_or(ptr::null(), Arc::as_ptr);
        if ptr::eq(self.cells[cell].load(Ordering::Relaxed), address) {
            return;
        }
        if let Some(value) = value {
            let mut kept = lock(&self.kept);
            // From the newest: a kernel for many slots is found at once.
            if !kept.iter().rev().any(|other| Arc::ptr_eq(other, value)) {
                kept.push(Arc::clone(value));
            }
        }
        self.cells[cell].store(address.cast_mut(), Ordering::Release);
    }
}

/// A schema, and what follows from it.
struct Definition {
    schema: Schema,
    /// The results that are arguments which the operator writes to, each with the position of its argument.
    returned: SmallVec<[(usize, usize); 1]>,
}

impl Definition {
    fn new(schema: Schema) -> Definition {
        let written = |parameter: &Parameter| parameter.alias.clone().filter(|alias| alias.is_write);
        let argument = |result: &Parameter| {
            let alias = written(result)?;
            schema.arguments.iter().position(|argument| written(argument).is_some_and(|own| own.before == alias.before))
        };
        let results = schema.returns.iter().enumerate();
        let returned = results.filter_map(|(at, result)| Some((at, argument(result)?))).collect();
        Definition { schema, returned }
    }
}

/// The current registrations of an operator.
struct Registrations {
    definition: Option<(Arc<Definition>, Site)>,
    kernels: KernelLists,
    sources: [Source; N_SLOTS],
    /// The signature of the first typed kernel, and where it was registered.
    signature: Option<(Signature, Site)>,
}

/// Sorted by key; each list has the active kernel last and is never empty.
struct KernelLists(Vec<(DispatchKey, Vec<Registered>)>);

/// One kernel registered for one key.
#[derive(Clone)]
pub(crate) struct Registered {
    pub(crate) id: u64,
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) site: Site,
}

impl ActiveKernels for KernelLists {
    fn get(&self, key: DispatchKey) -> Option<&Arc<Kernel>> {
        let (_, list) = self.0.iter().find(|(registered, _)| *registered == key)?;
        list.last().map(|registered| &registered.kernel)
    }

    fn keys(&self) -> impl Iterator<Item = DispatchKey> {
        self.0.iter().map(|(key, _)| *key)
    }
}

impl KernelLists {
    fn list(&mut self, key: DispatchKey) -> &mut Vec<Registered> {
        let at = match self.0.binary_search_by_key(&key, |(registered, _)| *registered) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, (key, Vec::new()));
                at
            }
        };
        &mut self.0[at].1
    }
}

/// The fallbacks of all operators, by slot.
pub(crate) type Fallbacks = [Option<Registered>];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Updates leave the data consistent wherever they can panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a slot holds, for dumps and tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotInfo {
    /// The rule that selected the kernel.
    pub source: Source,
    /// The name of the kernel; empty if there is none.
    pub kernel: String,
}

impl Operator {
    /// An operator without any kernel of its own.
    pub(crate) fn new(name: OperatorName, fallbacks: &Fallbacks) -> Operator {
        let registrations = Registrations {
            definition: None,
            kernels: KernelLists(Vec::new()),
            sources: [Source::Missing; N_SLOTS],
            signature: None,
        };
        let op = Operator(Arc::new(Entry {
            name,
            row: OnceLock::new(),
            definition: Published::new(),
            slots: Published::new(),
            masks: [const { AtomicU64::new(KeySet::FULL.bits()) }; Backend::ALL.len()],
            registrations: Mutex::new(registrations),
        }));
        op.update(&mut lock(&op.0.registrations), fallbacks, |_| true);
        op
    }

    /// The operator's name.
    pub fn name(&self) -> &OperatorName {
        &self.0.name
    }

    /// The row of the op table that it was made from, if it was.
    pub(crate) fn row(&self) -> Option<Op> {
        self.0.row.get().copied()
    }

    /// What tells it from all other operators while it lives.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Says which row it is made from.
    pub(crate) fn set_row(&self, op: Op) {
        self.0.row.get_or_init(|| op);
    }

    /// The schema, if the operator is defined.
    pub fn schema(&self) -> Option<&Schema> {
        self.0.definition.get(0).map(|definition| &definition.schema)
    }

    /// The results that are arguments which the operator writes to: positions of result and argument.
    #[inline]
    pub(crate) fn returned_arguments(&self) -> &[(usize, usize)] {
        self.0.definition.get(0).map_or(&[], |definition| &definition.returned)
    }

    /// Whether the operator has a definition.
    pub fn is_defined(&self) -> bool {
        self.schema().is_some()
    }

    /// The kernel for these keys, read without a lock.
    #[inline]
    pub(crate) fn kernel(&self, keys: KeySet) -> Option<&Kernel> {
        self.0.slots.get(keys.slot())
    }

    /// The keys that calls do not fall through, for the backend of `keys`.
    #[inline]
    pub(crate) fn mask(&self, keys: KeySet) -> KeySet {
        self.load_mask(keys.highest_backend().map_or(0, |backend| backend as usize))
    }

    /// Like [`Operator::kernel`], but under the lock of the registrations. A registration updates a slot and the masks
    /// in several steps, so a call that found no kernel looks again here before it fails.
    #[cold]
    pub(crate) fn settle(&self, keys: KeySet) -> Result<(&Kernel, KeySet)> {
        let registrations = lock(&self.0.registrations);
        let keys = keys & self.mask(keys);
        match self.kernel(keys) {
            Some(kernel) => Ok((kernel, keys)),
            None => Err(self.not_implemented(&registrations, keys)),
        }
    }

    fn not_implemented(&self, registrations: &Registrations, keys: KeySet) -> Error {
        let name = self.name();
        let key = keys.highest();
        let available: Vec<&str> = RUNTIME_KEYS
            .iter()
            .zip(registrations.sources)
            .filter(|(_, source)| *source != Source::Missing)
            .map(|(key, _)| key.name())
            .collect();
        let available = available.join(", ");
        let what = if key == DispatchKey::Undefined {
            format!(
                "there were no tensor arguments to this function (e.g., an empty list of tensors), but no fallback \
                 function is registered for schema {name}; pass a tensor, or register a composite kernel; available \
                 functions are [{available}]"
            )
        } else {
            let hint = if self.is_defined() { "" } else { "; the operator is not defined: call def() first" };
            format!(
                "could not run '{name}' with arguments from the '{key}' backend; '{name}' is only available for these \
                 backends: [{available}]{hint}"
            )
        };
        Error::NotImplemented { op: name.to_string(), what }
    }

    /// The signature of the first typed kernel registered, and where it was registered.
    pub(crate) fn recorded_signature(&self) -> Option<(Signature, Site)> {
        lock(&self.0.registrations).signature
    }

    /// The contents of a runtime key's slot. Other keys have no slot and show as missing.
    pub fn slot(&self, key: DispatchKey) -> SlotInfo {
        let registrations = lock(&self.0.registrations);
        let Some(slot) = key.slot() else { return SlotInfo { source: Source::Missing, kernel: String::new() } };
        let kernel = self.0.slots.get(slot).map_or(String::new(), |kernel| kernel.name().to_string());
        SlotInfo { source: registrations.sources[slot], kernel }
    }

    /// Whether a kernel is registered to exactly this runtime or alias key.
    pub fn has_kernel_for(&self, key: DispatchKey) -> bool {
        lock(&self.0.registrations).kernels.get(key).is_some()
    }

    /// Whether a kernel with an id above `last_id` is registered for one of these keys.
    pub(crate) fn has_newer_kernel(&self, last_id: u64, keys: KeySet) -> bool {
        let registrations = lock(&self.0.registrations);
        let serves = |registered: DispatchKey| match registered.is_alias() {
            true => keys.iter().any(|key| includes(registered, key)),
            false => keys.has(registered),
        };
        let mut lists = registrations.kernels.0.iter();
        lists.any(|(key, list)| list.last().is_some_and(|active| active.id > last_id) && serves(*key))
    }

    /// The current registrations as text: the definition, then kernels by key, the active one first.
    pub fn dump_registrations(&self) -> String {
        let registrations = lock(&self.0.registrations);
        let mut text = format!("name: {}\n", self.name());
        // Writing to a string cannot fail.
        let _ = match &registrations.definition {
            Some((definition, site)) => {
                let schema = &definition.schema;
                let kind = schema.alias_analysis.name();
                write!(text, "schema: {schema}\ndebug: registered at {site}\nalias analysis kind: {kind}\n")
            }
            None => writeln!(text, "schema: (none)"),
        };
        for (key, list) in &registrations.kernels.0 {
            let alias = if key.is_alias() { "[alias]" } else { "" };
            for (age, registered) in list.iter().rev().enumerate() {
                let kernel = &registered.kernel;
                let (name, forms, site) = (kernel.name(), kernel.forms(), registered.site);
                let _ = match age {
                    0 => writeln!(text, "{key}{alias}: {name} {forms}"),
                    _ => writeln!(text, "{key}{alias} (inactive): {name} {forms}, registered at {site}"),
                };
            }
        }
        text
    }

    /// The computed table as text, one line per slot that has a kernel.
    pub fn dump_table(&self) -> String {
        let registrations = lock(&self.0.registrations);
        let mut text = String::new();
        for (slot, source) in registrations.sources.iter().enumerate() {
            if let Some(kernel) = self.0.slots.get(slot) {
                let _ = writeln!(text, "{}: {} [{}]", RUNTIME_KEYS[slot], kernel.name(), source.label());
            }
        }
        text
    }
}

/// Changes. The dispatcher makes them under its own lock.
impl Operator {
    /// Sets the definition, unless it contradicts a registered kernel.
    pub(crate) fn define(&self, schema: Schema, site: Site) -> Result<()> {
        let mut registrations = lock(&self.0.registrations);
        if let Some((_, original)) = &registrations.definition {
            return Err(Error::Registration {
                what: format!(
                    "tried to register operator {schema} with the same name and overload name multiple times; \
                     duplicate registration: {site}; original registration: {original}"
                ),
            });
        }
        for (_, list) in &registrations.kernels.0 {
            for registered in list {
                check_against(&schema, site, &registered.kernel, registered.site)?;
            }
        }
        let definition = Arc::new(Definition::new(schema));
        self.0.definition.set(0, Some(&definition));
        registrations.definition = Some((definition, site));
        Ok(())
    }

    pub(crate) fn undefine(&self) {
        let mut registrations = lock(&self.0.registrations);
        registrations.definition = None;
        self.0.definition.set(0, None);
    }

    /// Makes a kernel the active one of a key, unless it contradicts the schema.
    pub(crate) fn add_kernel(&self, key: DispatchKey, new: Registered, fallbacks: &Fallbacks) -> Result<()> {
        let mut registrations = lock(&self.0.registrations);
        if let Some((definition, site)) = &registrations.definition {
            check_against(&definition.schema, site, &new.kernel, new.site)?;
        }
        if registrations.signature.is_none() {
            registrations.signature = new.kernel.signature().map(|signature| (signature, new.site));
        }
        let list = registrations.kernels.list(key);
        if let Some(previous) = list.last() {
            let (new_site, old_site) = (new.site, previous.site);
            if debug::explains() {
                let name = self.name();
                debug::print(&format!(
                    "{name}: the kernel for {key} registered at {new_site} takes the place of the one registered at \
                     {old_site}, until it is dropped"
                ));
            }
        }
        list.push(new);
        self.update(&mut registrations, fallbacks, |slot| affects(key, slot));
        Ok(())
    }

    /// Takes a kernel out. The caller retires it, without locks.
    pub(crate) fn remove_kernel(&self, key: DispatchKey, id: u64, fallbacks: &Fallbacks) -> Option<Arc<Kernel>> {
        let mut registrations = lock(&self.0.registrations);
        let list = registrations.kernels.list(key);
        let removed = list.iter().position(|registered| registered.id == id).map(|at| list.remove(at).kernel);
        registrations.kernels.0.retain(|(_, list)| !list.is_empty());
        if registrations.kernels.0.is_empty() {
            registrations.signature = None;
        }
        self.update(&mut registrations, fallbacks, |slot| affects(key, slot));
        removed
    }

    /// Recomputes the slot whose fallback has changed.
    pub(crate) fn update_fallback(&self, slot: usize, fallbacks: &Fallbacks) {
        self.update(&mut lock(&self.0.registrations), fallbacks, |key| key.slot() == Some(slot));
    }

    /// Whether nothing is registered.
    pub(crate) fn is_unused(&self) -> bool {
        let registrations = lock(&self.0.registrations);
        registrations.definition.is_none() && registrations.kernels.0.is_empty()
    }

    fn update(&self, registrations: &mut Registrations, fallbacks: &Fallbacks, which: impl Fn(DispatchKey) -> bool) {
        for (slot, &key) in RUNTIME_KEYS.iter().enumerate().filter(|(_, key)| which(**key)) {
            let fallback = fallbacks[slot].as_ref().map(|registered| &registered.kernel);
            let (kernel, source) = compute_slot(&registrations.kernels, fallback, key);
            registrations.sources[slot] = source;
            self.0.slots.set(slot, kernel);
            self.set_fallthrough(key, kernel.is_some_and(|kernel| kernel.is_fallthrough()));
        }
    }

    fn set_fallthrough(&self, key: DispatchKey, is_fallthrough: bool) {
        let own = key.backend();
        let functionality = KeySet::of(key.functionality());
        // For keys that do not exist per backend, all masks agree.
        let first = own.map_or(0, |backend| backend as usize);
        let is_stale = self.load_mask(first).has_all(functionality) == is_fallthrough;
        if key == DispatchKey::Undefined || !is_stale {
            return;
        }
        for backend in Backend::ALL.iter().filter(|backend| own.is_none_or(|own| own == **backend)) {
            let old = self.load_mask(*backend as usize);
            let new = if is_fallthrough { old - functionality } else { old | functionality };
            self.0.masks[*backend as usize].store(new.bits(), Ordering::Relaxed);
        }
    }

    #[inline]
    fn load_mask(&self, backend: usize) -> KeySet {
        KeySet::from_bits(self.0.masks[backend].load(Ordering::Relaxed))
    }

    /// Compares every slot and mask with a computation from scratch.
    pub(crate) fn check_invariants(&self, fallbacks: &Fallbacks) -> Result<()> {
        let registrations = lock(&self.0.registrations);
        let broken = |message: String| Err(Error::invalid("operator", format!("{}: {message}", self.name())));
        if registrations.definition.as_ref().map(|(definition, _)| &definition.schema) != self.schema() {
            return broken("the schema in use is not the one defined".into());
        }
        for (key, list) in &registrations.kernels.0 {
            if list.is_empty() {
                return broken(format!("the list of kernels for {key} is empty"));
            }
            if *key == DispatchKey::Undefined {
                return broken("a kernel is registered to Undefined".into());
            }
        }
        for (slot, &key) in RUNTIME_KEYS.iter().enumerate() {
            let fallback = fallbacks[slot].as_ref().map(|registered| &registered.kernel);
            let (kernel, source) = compute_slot(&registrations.kernels, fallback, key);
            let stored = self.0.slots.get(slot).map_or(ptr::null(), ptr::from_ref);
            if source != registrations.sources[slot] || !ptr::eq(stored, kernel.map_or(ptr::null(), Arc::as_ptr)) {
                return broken(format!("the slot of {key} is stale"));
            }
            let skipped = kernel.is_some_and(|kernel| kernel.is_fallthrough());
            let backend = key.backend().map_or(0, |backend| backend as usize);
            if key != DispatchKey::Undefined && self.load_mask(backend).has(key) == skipped {
                return broken(format!("the fallthrough mask of {key} is stale"));
            }
        }
        Ok(())
    }
}

/// Rejects a kernel whose signature contradicts the schema. Boxed kernels fit every schema.
fn check_against(schema: &Schema, defined: Site, kernel: &Kernel, site: Site) -> Result<()> {
    let Some(inferred) = kernel.inferred_schema(&schema.name) else { return Ok(()) };
    match schema.difference(&inferred) {
        None => Ok(()),
        Some(reason) => Err(Error::Registration {
            what: format!(
                "the schema inferred from the kernel doesn't match the expected schema of operator {}\n  expected \
                 schema: {schema}\n    defined at {defined}\n  inferred schema: {inferred}\n    of the kernel {}, \
                 registered at {site}\n  reason: {reason}",
                schema.name,
                kernel.name()
            ),
        }),
    }
}

impl PartialEq for Operator {
    fn eq(&self, other: &Operator) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Operator {}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())
    }
}
