//! The keys that a function draws for its random numbers, for another run of it that must have the same numbers.
//!
//! A key is drawn once per random call. Inside a trace it is abstract, so a second run cannot set the generator back:
//! it has to use the tensor again.

use crate::error::Result;
use crate::tensor::handle::Tensor;
use std::cell::RefCell;
use std::collections::VecDeque;

/// What happens to the keys of a running function.
enum Scope {
    /// They are noted.
    Noted(Vec<Tensor>),
    /// They are those of an earlier run.
    Repeated(VecDeque<Tensor>),
}

thread_local! {
    /// The running functions, innermost last.
    static SCOPES: RefCell<Vec<Scope>> = const { RefCell::new(Vec::new()) };
}

/// Takes the scopes off that a run has added, also if the run panics.
struct Depth(usize);

impl Drop for Depth {
    fn drop(&mut self) {
        SCOPES.with_borrow_mut(|scopes| scopes.truncate(self.0));
    }
}

fn enter(scope: Scope) -> Depth {
    SCOPES.with_borrow_mut(|scopes| {
        scopes.push(scope);
        Depth(scopes.len() - 1)
    })
}

/// Runs a function. Returns the keys that it drew, too.
pub(crate) fn noting<T>(run: impl FnOnce() -> T) -> (T, Vec<Tensor>) {
    let depth = enter(Scope::Noted(Vec::new()));
    let result = run();
    let noted = SCOPES.with_borrow_mut(|scopes| match scopes.get_mut(depth.0) {
        Some(Scope::Noted(keys)) => std::mem::take(keys),
        Some(Scope::Repeated(_)) | None => Vec::new(),
    });
    (result, noted)
}

/// Runs a function that draws these keys again. What it draws beyond them is new.
pub(crate) fn repeating<T>(keys: &[Tensor], run: impl FnOnce() -> T) -> T {
    let _depth = enter(Scope::Repeated(keys.iter().cloned().collect()));
    run()
}

/// Hides the running functions from what this thread draws, until the guard is dropped.
pub(crate) struct Apart(Vec<Scope>);

/// Keys that are drawn while the guard lives are neither noted nor repeated by functions that run already. A trace of
/// what they call draws no numbers for them.
pub(crate) fn apart() -> Apart {
    Apart(SCOPES.take())
}

impl Drop for Apart {
    fn drop(&mut self) {
        SCOPES.set(std::mem::take(&mut self.0));
    }
}

/// The next key: one of an earlier run, or a new one.
///
/// # Errors
/// If `draw` fails.
pub(crate) fn next_key(draw: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
    let (from, repeated) = SCOPES.with_borrow_mut(|scopes| {
        let again = scopes.iter_mut().enumerate().rev().find_map(|(at, scope)| match scope {
            Scope::Repeated(keys) => Some((at + 1, keys.pop_front())),
            Scope::Noted(_) => None,
        });
        again.unwrap_or_default()
    });
    let key = repeated.map_or_else(draw, Ok)?;
    // Functions around the one that runs again have noted their keys before.
    SCOPES.with_borrow_mut(|scopes| {
        for scope in scopes.iter_mut().skip(from) {
            if let Scope::Noted(keys) = scope {
                keys.push(key.clone());
            }
        }
    });
    Ok(key)
}
