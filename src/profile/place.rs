//! Where a call stands in the program: its file and line, and the part that the program named.
//!
//! The outermost call of an operator notes its caller, so the parts of a composite have the line of the composite. It
//! is noted only while a trace or a profile wants to know.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

/// A line of a program.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The file, as the compiler or the exported program names it.
    pub file: Cow<'static, str>,
    /// The line, from 1.
    pub line: u32,
    /// The named parts around it, the outermost first, such as `encoder/attention`. Empty if there are none.
    pub scope: Arc<str>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        if self.scope.is_empty() { Ok(()) } else { write!(f, " in {}", self.scope) }
    }
}

/// Where the outermost call in progress stands.
#[derive(Clone)]
enum Caller {
    Rust(&'static Location<'static>),
    /// A line of a program that a file holds.
    File(Arc<str>, u32),
}

thread_local! {
    /// Whether a call in progress has noted its caller.
    static IS_KNOWN: Cell<bool> = const { Cell::new(false) };
    static CALLER: RefCell<Option<Caller>> = const { RefCell::new(None) };
    /// The named parts around the code that runs, as one path.
    static SCOPE: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Keeps the place of a call noted.
pub(crate) struct Located {
    is_outermost: bool,
    not_send: PhantomData<*const ()>,
}

impl Drop for Located {
    fn drop(&mut self) {
        if self.is_outermost {
            IS_KNOWN.set(false);
        }
    }
}

fn locate_at(caller: impl FnOnce() -> Caller) -> Located {
    let is_outermost = !IS_KNOWN.replace(true);
    if is_outermost {
        let caller = caller();
        drop(CALLER.try_with(|known| known.replace(Some(caller))));
    }
    Located { is_outermost, not_send: PhantomData }
}

/// Notes the caller of the calling function, unless it is inside another call that is noted.
#[cold]
#[track_caller]
pub(crate) fn locate() -> Located {
    let location = Location::caller();
    locate_at(|| Caller::Rust(location))
}

/// Notes a line of a program that a file holds.
pub(crate) fn locate_in_file(file: &Arc<str>, line: u32) -> Located {
    locate_at(|| Caller::File(file.clone(), line))
}

/// The place of the outermost call in progress.
pub(crate) fn place() -> Option<Place> {
    if !IS_KNOWN.get() {
        return None;
    }
    let scope = || SCOPE.try_with(|scope| scope.borrow().clone()).ok().flatten().unwrap_or_default();
    let caller = CALLER.try_with(|caller| caller.borrow().clone()).ok().flatten()?;
    Some(match caller {
        Caller::Rust(location) => Place { file: location.file().into(), line: location.line(), scope: scope() },
        Caller::File(file, line) => Place { file: Cow::Owned(file.to_string()), line, scope: scope() },
    })
}

/// A number that tells places apart, without making them.
pub(crate) fn place_key() -> u64 {
    if !IS_KNOWN.get() {
        return 0;
    }
    let caller = CALLER.try_with(|caller| match &*caller.borrow() {
        Some(Caller::Rust(location)) => std::ptr::from_ref(*location).addr() as u64,
        Some(Caller::File(file, line)) => super::recorder::key_of(file).wrapping_add(u64::from(*line)),
        None => 0,
    });
    caller.unwrap_or(0)
}

/// Names what `part` does: traces, reports and profiles show the name with every call inside it, and a profile has a
/// row for the part. Parts may be inside parts.
///
/// ```
/// use opfuse::profile::Kind;
/// use opfuse::{Result, Tensor, profile, scope};
///
/// # fn main() -> Result<()> {
/// let x = Tensor::from_slice(&[1.0f32, -2.0], &[2])?;
/// let (_, profile) = profile(|| scope("square", || x.mul(&x)))?;
/// assert_eq!(profile.row(Kind::Scope, "square").map(|row| row.calls), Some(1));
/// # Ok(())
/// # }
/// ```
pub fn scope<R>(name: &str, part: impl FnOnce() -> R) -> R {
    struct Restore(Option<Arc<str>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let before = self.0.take();
            drop(SCOPE.try_with(|scope| scope.replace(before)));
        }
    }
    let path: Arc<str> = SCOPE.with_borrow(|outer| match outer {
        Some(outer) => format!("{outer}/{name}").into(),
        None => name.into(),
    });
    let _restore = Restore(SCOPE.replace(Some(path.clone())));
    let key = if super::is_on() { super::key_of(&path) } else { 0 };
    let _span = super::open(super::Kind::Scope, (key, 0), || super::Subject {
        name: path.to_string(),
        ..super::Subject::default()
    });
    part()
}
