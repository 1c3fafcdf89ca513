//! Layouts that arrays share.
//!
//! Results of repeated calls have the same few layouts. The first different ones of a process are interned and never
//! freed. So cloning one changes no reference count, which threads would contend for. All others are reference-counted.

use crate::ir::Layout;
use crate::ir::shape::same_extents;
use std::collections::HashSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most interned layouts: about 120 bytes each.
const KEPT: usize = 1024;

/// A layout that is cheap to clone.
#[derive(Debug, Clone)]
pub struct SharedLayout(Shared);

#[derive(Debug, Clone)]
enum Shared {
    Kept(&'static Layout),
    Counted(Arc<Layout>),
}

impl SharedLayout {
    /// A layout that many arrays will have: it is interned while there is room.
    pub(crate) fn frequent(layout: Layout) -> SharedLayout {
        static ALL: Mutex<Option<HashSet<&'static Layout>>> = Mutex::new(None);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_with(HashSet::new);
        if let Some(existing) = all.get(&layout) {
            return SharedLayout(Shared::Kept(existing));
        }
        if all.len() >= KEPT {
            return SharedLayout::from(layout);
        }
        let kept: &'static Layout = Box::leak(Box::new(layout));
        all.insert(kept);
        SharedLayout(Shared::Kept(kept))
    }

    /// The layout of a 0-dim array.
    pub(crate) fn scalar() -> SharedLayout {
        static SCALAR: OnceLock<SharedLayout> = OnceLock::new();
        SCALAR.get_or_init(|| SharedLayout::frequent(Layout::default())).clone()
    }
}

impl SharedLayout {
    /// Its address if it is interned: no other layout will ever have it.
    #[inline]
    pub fn kept_address(&self) -> Option<usize> {
        match &self.0 {
            Shared::Kept(layout) => Some(std::ptr::from_ref(*layout).addr()),
            Shared::Counted(_) => None,
        }
    }

    /// Whether both are the same object, and not only equal.
    #[inline]
    pub fn is(&self, other: &SharedLayout) -> bool {
        std::ptr::eq(&**self, &**other)
    }

    /// Whether sizes and strides are equal, which is fast for a shared layout.
    #[inline]
    pub(crate) fn has_extents_of(&self, other: &SharedLayout) -> bool {
        let (one, other) = (&**self, &**other);
        std::ptr::eq(one, other)
            || (same_extents(&one.sizes, &other.sizes) && same_extents(&one.strides, &other.strides))
    }
}

impl From<Layout> for SharedLayout {
    fn from(layout: Layout) -> SharedLayout {
        SharedLayout(Shared::Counted(Arc::new(layout)))
    }
}

impl Deref for SharedLayout {
    type Target = Layout;

    #[inline]
    fn deref(&self) -> &Layout {
        match &self.0 {
            Shared::Kept(layout) => layout,
            Shared::Counted(layout) => layout,
        }
    }
}

impl PartialEq for SharedLayout {
    fn eq(&self, other: &SharedLayout) -> bool {
        **self == **other
    }
}

impl Eq for SharedLayout {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_layouts_are_kept_once_and_not_without_end() {
        let of = |size: usize| Layout::contiguous(&[size, 3]);
        let (a, b) = (SharedLayout::frequent(of(7)), SharedLayout::frequent(of(7)));
        assert!(std::ptr::eq(&*a, &*b) && *a == of(7));
        let all: Vec<SharedLayout> = (0..2 * KEPT).map(|size| SharedLayout::frequent(of(size))).collect();
        assert!(all.iter().enumerate().all(|(size, layout)| **layout == of(size)));
        assert!(matches!(all[2 * KEPT - 1].0, Shared::Counted(_)));
    }
}
