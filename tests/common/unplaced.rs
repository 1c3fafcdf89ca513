//! The text of an error without the place where a compiled function recorded the call. Eager errors have none.

use opfuse::Error;

/// All of the text but the place.
pub(crate) fn unplaced(error: &Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (recorded ") {
        Some((text, place)) if place.ends_with(')') => text.into(),
        Some(_) | None => text,
    }
}
