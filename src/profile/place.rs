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
    /// The column, from 1, or 0 if it is not known.
    pub column: u32,
    /// The named parts around it, the outermost first, such as `encoder/attention`. Empty if there are none.
    pub scope: Arc<str>,
    /// The operator that was called there, if it is made of others, such as `cross_entropy_loss`. Empty for any other.
    pub operator: Arc<str>,
}

impl Place {
    /// Where a call was recorded, for the text of its error: ` (recorded at src/main.rs:12:5, as part of layer_norm)`.
    /// Empty if it is not known. A line of this crate says nothing to a user.
    pub(crate) fn recorded(&self) -> String {
        let line = match self.column {
            0 => format!(" at {}:{}", self.file, self.line),
            column => format!(" at {}:{}:{column}", self.file, self.line),
        };
        let line = if self.is_own() { String::new() } else { line };
        let scope = if self.scope.is_empty() { String::new() } else { format!(" in {}", self.scope) };
        let comma = if line.is_empty() && scope.is_empty() { "" } else { "," };
        let of = if self.operator.is_empty() { String::new() } else { format!("{comma} as part of {}", self.operator) };
        match format!("{line}{scope}{of}") {
            nothing if nothing.is_empty() => nothing,
            place => format!(" (recorded{place})"),
        }
    }

    /// Whether both are calls in the same line and the same named part.
    pub(crate) fn is_same_line(&self, other: &Place) -> bool {
        (&self.file, self.line, &self.scope) == (&other.file, other.line, &other.scope)
    }

    /// Whether the line is one of this crate.
    fn is_own(&self) -> bool {
        is_own(&self.file)
    }
}

/// Whether a file is one of this crate, which the compiler names as it names this one.
fn is_own(file: &str) -> bool {
    let root = file!().strip_suffix("src/profile/place.rs");
    root.and_then(|root| file.strip_prefix(root)).is_some_and(|rest| rest.starts_with("src/"))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        if self.scope.is_empty() { Ok(()) } else { write!(f, " in {}", self.scope) }
    }
}

/// Where the outermost call in progress stands, and the composite operator that it is a call of.
#[derive(Clone)]
struct Call {
    at: Caller,
    operator: Option<Arc<str>>,
}

#[derive(Clone)]
enum Caller {
    Rust(&'static Location<'static>),
    /// A line of a program that a file holds.
    File(Arc<str>, u32),
}

thread_local! {
    /// Whether a call in progress has noted its caller.
    static IS_KNOWN: Cell<bool> = const { Cell::new(false) };
    static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
    /// The call of the crate that makes calls of operators for the user, such as `backward`.
    static AROUND: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
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

fn locate_at(call: impl FnOnce() -> Call) -> Located {
    let is_outermost = !IS_KNOWN.replace(true);
    if is_outermost {
        let call = call();
        drop(CALL.try_with(|known| known.replace(Some(call))));
    }
    Located { is_outermost, not_send: PhantomData }
}

/// Notes the caller of the calling function, unless it is inside another call that is noted. `composite` is the name of
/// the operator that is called, if it is made of others.
#[cold]
#[track_caller]
pub(crate) fn locate(composite: Option<&str>) -> Located {
    let location = Location::caller();
    locate_at(|| Call { at: Caller::Rust(location), operator: composite.map(of_user) })
}

/// Notes a line of a program that a file holds. `composite` is as for [`locate`].
pub(crate) fn locate_in_file(file: &Arc<str>, line: u32, composite: Option<&str>) -> Located {
    locate_at(|| Call { at: Caller::File(file.clone(), line), operator: composite.map(of_user) })
}

/// Calls `part`, whose calls of operators stand at a line of a program in another language: reports, profiles and
/// errors name that line. Inside a call of the crate whose line is known already, nothing changes.
///
/// ```
/// use opfuse::{Result, Tensor, autograd, profile};
///
/// # fn main() -> Result<()> {
/// let x = Tensor::try_from([-1.0f32])?;
/// x.set_requires_grad(true)?;
/// let _guard = autograd::detect_anomaly();
/// let root = profile::at_line(&"model.lua".into(), 7, || x.sqrt())?;
/// assert!(root.sum_all()?.backward().unwrap_err().to_string().contains("model.lua:7"));
/// # Ok(())
/// # }
/// ```
pub fn at_line<R>(file: &Arc<str>, line: u32, part: impl FnOnce() -> R) -> R {
    let _place = locate_in_file(file, line, None);
    part()
}

/// The name of an operator as users know it.
fn of_user(name: &str) -> Arc<str> {
    name.strip_prefix("aten::").unwrap_or(name).into()
}

/// Says that calls of operators which the crate makes until the guard is dropped stand where the calling function is
/// called. A call from the crate changes nothing, because a line of the user may be known from further out.
#[track_caller]
pub(crate) fn stands_for() -> StandsFor {
    let (location, before) = (Location::caller(), AROUND.get());
    if !is_own(location.file()) {
        AROUND.set(Some(location));
    }
    StandsFor { before, not_send: PhantomData }
}

/// Like [`stands_for`], with the line that made what is called now, unless another line is known.
pub(crate) fn stands_for_maker(made: &'static Location<'static>) -> StandsFor {
    let before = AROUND.get();
    AROUND.set(before.or(Some(made)));
    StandsFor { before, not_send: PhantomData }
}

/// Ends what [`stands_for`] or [`stands_for_maker`] said.
pub(crate) struct StandsFor {
    before: Option<&'static Location<'static>>,
    not_send: PhantomData<*const ()>,
}

impl Drop for StandsFor {
    fn drop(&mut self) {
        AROUND.set(self.before);
    }
}

/// The place of the outermost call in progress.
pub(crate) fn place() -> Option<Place> {
    if !IS_KNOWN.get() {
        return None;
    }
    let scope = || SCOPE.try_with(|scope| scope.borrow().clone()).ok().flatten().unwrap_or_default();
    let Call { at, operator } = CALL.try_with(|call| call.borrow().clone()).ok().flatten()?;
    let (file, line, column) = match at {
        Caller::Rust(location) => {
            let around = AROUND.get().filter(|_| is_own(location.file()));
            let location = around.unwrap_or(location);
            (location.file().into(), location.line(), location.column())
        }
        Caller::File(file, line) => (Cow::Owned(file.to_string()), line, 0),
    };
    Some(Place { file, line, column, scope: scope(), operator: operator.unwrap_or_default() })
}

/// A number that tells places apart, without making them.
pub(crate) fn place_key() -> u64 {
    if !IS_KNOWN.get() {
        return 0;
    }
    let caller = CALL.try_with(|call| match call.borrow().as_ref().map(|call| &call.at) {
        Some(Caller::Rust(location)) => {
            let location = AROUND.get().filter(|_| is_own(location.file())).unwrap_or(location);
            std::ptr::from_ref(location).addr() as u64
        }
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
