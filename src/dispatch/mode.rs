//! User modes: a stack of handlers per thread that see every call first (the `PythonDispatcher` key).
//!
//! The key is included only while a mode is pushed, so a thread without modes pays nothing. The innermost mode handles
//! a call first. While its handler runs, that mode and the modes inside it are off, so calls made by the handler reach
//! only the outer modes. [`Next::call`] passes the call to the next outer mode, and after the outermost one to the
//! operator. The operator runs with all modes on, so they also see the calls that a composite operator makes. Modes do
//! not follow a call to another thread.
//!
//! Reads are calls too: `item` is `aten::item`, and `to_vec` is `aten::_to_copy` to the host. While no mode, wrapper or
//! kernel from outside can see them, they are skipped.

use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::local::{IncludeGuard, include};
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::value::Stack;
use crate::error::Result;
use crate::scope::{Change, ScopeId, Scopes};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

/// A handler of every call of a thread, while it is pushed.
pub trait Mode {
    /// Handles a call. `stack` holds the arguments, and on return must hold the results and nothing else.
    /// [`Next::call`] does what would happen without this mode.
    ///
    /// # Errors
    /// An error of the call, or of the mode itself. The caller gets it in place of a result.
    fn call(&self, op: &Operator, stack: &mut Stack, next: Next<'_>) -> Result<()>;
}

/// A linked list with shared tails: each node also is the list of the modes around it.
type Modes = Option<Rc<Node>>;

struct Node {
    mode: Arc<dyn Mode>,
    outer: Modes,
}

/// What changes the modes that see the next call of a thread.
enum ModeChange {
    Push(Arc<dyn Mode>),
    /// Puts others in force while a handler runs.
    Switch(Modes),
}

impl Change<Modes> for ModeChange {
    fn apply(&self, before: Modes) -> Modes {
        match self {
            ModeChange::Push(mode) => Some(Rc::new(Node { mode: mode.clone(), outer: before })),
            ModeChange::Switch(modes) => modes.clone(),
        }
    }
}

/// The modes of a thread.
struct Pushed {
    /// The modes that see the next call, innermost first.
    modes: Modes,
    scopes: Scopes<Modes, ModeChange>,
}

thread_local! {
    static PUSHED: RefCell<Pushed> = const { RefCell::new(Pushed { modes: None, scopes: Scopes::new() }) };
}

/// The rest of a call: the outer modes, and the operator.
pub struct Next<'a> {
    op: &'a Operator,
    /// The keys below the `PythonDispatcher` key.
    keys: KeySet,
    outer: Modes,
    /// The modes that are on while the operator runs.
    all: Modes,
}

impl Next<'_> {
    /// The keys that the operator is called with.
    pub fn keys(&self) -> KeySet {
        self.keys
    }

    /// Passes the call on.
    ///
    /// # Errors
    /// An error of the call.
    pub fn call(self, stack: &mut Stack) -> Result<()> {
        match self.outer {
            Some(node) => handle(self.op, self.keys, node, self.all, stack),
            None => {
                let _all = ModeScope::open(ModeChange::Switch(self.all));
                self.op.redispatch_boxed(self.keys, stack)
            }
        }
    }
}

/// Keeps a mode on its thread's stack; made by [`push_mode`]. Guards may be dropped in any order.
#[must_use = "the mode is on only while the guard lives"]
pub struct ModeGuard {
    _modes: ModeScope,
    _key: IncludeGuard,
}

/// Keeps up one change of the modes of its thread.
struct ModeScope {
    id: ScopeId,
    not_send: PhantomData<Rc<()>>,
}

impl ModeScope {
    fn open(change: ModeChange) -> ModeScope {
        let id = PUSHED.with_borrow_mut(|pushed| {
            let (id, after) = pushed.scopes.open(pushed.modes.take(), change);
            pushed.modes = after;
            id
        });
        ModeScope { id, not_send: PhantomData }
    }
}

impl Drop for ModeScope {
    fn drop(&mut self) {
        // A guard in a thread-local value may outlive the modes of its thread; then nothing is left to change.
        let closed = PUSHED.try_with(|pushed| pushed.borrow_mut().close(self.id));
        // A mode may own guards itself, so it is dropped when nothing is borrowed any more.
        drop(closed);
    }
}

/// Pushes a mode: every call of this thread goes to it until the guard is dropped.
///
/// ```
/// use opfuse::dispatch::modes::{CallLog, push_mode};
/// use std::sync::Arc;
///
/// # fn main() -> opfuse::Result<()> {
/// let x = opfuse::Tensor::from_slice(&[1.0f32, 2.0], &[2])?;
/// let log = Arc::new(CallLog::default());
/// let guard = push_mode(log.clone());
/// x.add(1.0)?;
/// drop(guard);
/// x.exp()?;
/// assert_eq!(log.to_string(), "aten::add.Tensor(self=f32[2], other=1.0, alpha=1)\n");
/// # Ok(())
/// # }
/// ```
pub fn push_mode(mode: Arc<dyn Mode>) -> ModeGuard {
    ModeGuard { _modes: ModeScope::open(ModeChange::Push(mode)), _key: include(DispatchKey::PythonDispatcher) }
}

impl Pushed {
    /// Takes a change away, and returns what it kept alive.
    fn close(&mut self, id: ScopeId) -> (Modes, Option<ModeChange>) {
        let before = self.modes.clone();
        let (after, change) = self.scopes.close(id, self.modes.take());
        self.modes = after;
        (before, change)
    }
}

/// Whether a mode will handle the next call of this thread.
pub fn is_active() -> bool {
    PUSHED.with_borrow(|pushed| pushed.modes.is_some())
}

fn handle(op: &Operator, keys: KeySet, node: Rc<Node>, all: Modes, stack: &mut Stack) -> Result<()> {
    let outer = node.outer.clone();
    let _outer = ModeScope::open(ModeChange::Switch(outer.clone()));
    node.mode.call(op, stack, Next { op, keys, outer, all })
}

/// The kernel of the `PythonDispatcher` key, for all operators.
///
/// # Errors
/// An error of the mode or of the call.
pub(crate) fn fallback(operator: &Operator, keys: KeySet, stack: &mut Stack) -> Result<()> {
    let below = keys - KeySet::of(DispatchKey::PythonDispatcher);
    let modes = PUSHED.with_borrow(|pushed| pushed.modes.clone());
    match modes {
        Some(node) => handle(operator, below, node.clone(), Some(node), stack),
        None => operator.redispatch_boxed(below, stack),
    }
}
