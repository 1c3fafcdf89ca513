//! User modes: a stack of handlers per thread that see every call first (the `PythonDispatcher` key).
//!
//! The key is included only while a mode is pushed, so a thread without modes pays nothing. The innermost mode handles
//! a call first. While its handler runs, that mode and the modes inside it are off, so calls made by the handler reach
//! only the outer modes. [`Next::call`] passes the call to the next outer mode, and after the outermost one to the
//! operator. The operator runs with all modes on, so they also see the calls that a composite operator makes. Modes do
//! not follow a call to another thread.

use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::local::{IncludeGuard, include};
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::value::Stack;
use crate::error::Result;
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

/// The modes of a thread.
struct Pushed {
    /// The modes that see the next call, innermost first.
    modes: Modes,
    /// The number of live guards. The first one includes the key, the last one drops it.
    n_guards: usize,
    key: Option<IncludeGuard>,
}

thread_local! {
    static PUSHED: RefCell<Pushed> = const { RefCell::new(Pushed { modes: None, n_guards: 0, key: None }) };
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
                let _all = Switch::to(self.all);
                self.op.redispatch_boxed(self.keys, stack)
            }
        }
    }
}

/// Keeps a mode on its thread's stack. Made by [`push_mode`]. Guards must be dropped in reverse order, as locals are.
#[must_use = "the mode is on only while the guard lives"]
pub struct ModeGuard {
    before: Modes,
    not_send: PhantomData<Rc<()>>,
}

/// Pushes a mode: it handles every call of this thread until the guard is dropped.
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
    PUSHED.with_borrow_mut(|pushed| {
        if pushed.n_guards == 0 {
            pushed.key = Some(include(DispatchKey::PythonDispatcher));
        }
        pushed.n_guards += 1;
        let before = pushed.modes.clone();
        pushed.modes = Some(Rc::new(Node { mode, outer: before.clone() }));
        ModeGuard { before, not_send: PhantomData }
    })
}

impl Drop for ModeGuard {
    fn drop(&mut self) {
        let removed = PUSHED.with_borrow_mut(|pushed| {
            pushed.n_guards -= 1;
            if pushed.n_guards == 0 {
                pushed.key = None;
            }
            std::mem::replace(&mut pushed.modes, self.before.take())
        });
        // Dropped outside the borrow: a mode may own guards itself.
        drop(removed);
    }
}

/// Whether a mode will handle the next call of this thread.
pub fn is_active() -> bool {
    PUSHED.with_borrow(|pushed| pushed.modes.is_some())
}

/// Replaces the modes of the thread until it is dropped, even by a panic.
struct Switch {
    before: Modes,
}

impl Switch {
    fn to(modes: Modes) -> Switch {
        Switch { before: PUSHED.with_borrow_mut(|pushed| std::mem::replace(&mut pushed.modes, modes)) }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let before = self.before.take();
        let _replaced = PUSHED.with_borrow_mut(|pushed| std::mem::replace(&mut pushed.modes, before));
    }
}

fn handle(op: &Operator, keys: KeySet, node: Rc<Node>, all: Modes, stack: &mut Stack) -> Result<()> {
    let outer = node.outer.clone();
    let _outer = Switch::to(outer.clone());
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
