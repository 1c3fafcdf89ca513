//! Typed ids of entities, and tables that they index.
//!
//! An entity, such as a node of a graph, lives in an [`Arena`] and is named by its position there. Each kind of entity
//! has an id type of its own, so a position in one arena is never mistaken for one in another. An id prints as in the
//! text form of its stage.
//!
//! Facts about entities live in a [`SideTable`], and not in the entities. Nothing is ever removed: ids stay valid.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// An id: the position of an entity in its arena.
pub trait EntityId: Copy {
    /// Names the entity at `index`.
    ///
    /// # Panics
    /// If the id type is too narrow for it.
    fn new(index: usize) -> Self;

    /// The position in the arena.
    fn index(self) -> usize;
}

/// Declares an id type over an unsigned integer. It prints as the prefix and the position.
macro_rules! entity_id {
    ($(#[$doc:meta])* $vis:vis struct $Id:ident($Repr:ty) = $prefix:literal;) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis struct $Id($Repr);

        impl $Id {
            /// Names the entity at `index`.
            ///
            /// # Panics
            /// If the id type is too narrow for it.
            $vis const fn new(index: usize) -> $Id {
                assert!(index <= <$Repr>::MAX as usize, "the id type holds all positions of its arena");
                $Id(index as $Repr)
            }

            /// The position in the arena.
            $vis const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl $crate::ir::EntityId for $Id {
            fn new(index: usize) -> $Id {
                $Id::new(index)
            }

            fn index(self) -> usize {
                $Id::index(self)
            }
        }

        impl std::fmt::Display for $Id {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl std::fmt::Debug for $Id {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self}")
            }
        }
    };
}
pub(crate) use entity_id;

/// The entities of one kind, in the order in which they were added.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Arena<Id, T> {
    entities: Vec<T>,
    id: PhantomData<fn(Id)>,
}

impl<Id: EntityId, T> Arena<Id, T> {
    /// No entities, with room for `n`.
    pub fn with_capacity(n: usize) -> Arena<Id, T> {
        Arena { entities: Vec::with_capacity(n), id: PhantomData }
    }

    /// Adds an entity; returns its name.
    pub fn push(&mut self, entity: T) -> Id {
        self.entities.push(entity);
        Id::new(self.entities.len() - 1)
    }

    /// The number of entities.
    pub fn len(&self) -> usize {
        self.entities.len()
    }

    /// Whether there are no entities.
    pub fn is_empty(&self) -> bool {
        self.entities.is_empty()
    }

    /// The entity of that name, if there is one.
    pub fn get(&self, id: Id) -> Option<&T> {
        self.entities.get(id.index())
    }

    /// Every name, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = Id> + ExactSizeIterator + use<Id, T> {
        (0..self.len()).map(Id::new)
    }

    /// Every entity, in order.
    pub fn entities(&self) -> std::slice::Iter<'_, T> {
        self.entities.iter()
    }

    /// Every entity, in order, to change it.
    pub fn entities_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.entities.iter_mut()
    }

    /// Every entity with its name.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Id, &T)> + ExactSizeIterator {
        self.entities.iter().enumerate().map(|(index, entity)| (Id::new(index), entity))
    }
}

impl<Id, T> Default for Arena<Id, T> {
    fn default() -> Self {
        Arena { entities: Vec::new(), id: PhantomData }
    }
}

impl<Id, T: fmt::Debug> fmt::Debug for Arena<Id, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entities.fmt(f)
    }
}

impl<Id: EntityId, T> Index<Id> for Arena<Id, T> {
    type Output = T;
    fn index(&self, id: Id) -> &T {
        &self.entities[id.index()]
    }
}

impl<Id: EntityId, T> IndexMut<Id> for Arena<Id, T> {
    fn index_mut(&mut self, id: Id) -> &mut T {
        &mut self.entities[id.index()]
    }
}

/// A value per entity of an arena: a fact about each.
#[derive(PartialEq, Eq)]
pub struct SideTable<Id, T> {
    values: Vec<T>,
    id: PhantomData<fn(Id)>,
}

impl<Id: EntityId, T> SideTable<Id, T> {
    /// An empty table, to be filled in the order of the ids.
    pub fn new() -> SideTable<Id, T> {
        SideTable::default()
    }

    /// The value of the next entity.
    pub fn push(&mut self, value: T) {
        self.values.push(value);
    }

    /// A table with a value made for each of `n` entities.
    pub fn with_len(n: usize, value: impl FnMut() -> T) -> SideTable<Id, T> {
        std::iter::repeat_with(value).take(n).collect()
    }

    /// Puts other values in the place of all; the memory stays.
    pub fn refill(&mut self, values: impl IntoIterator<Item = T>) {
        self.values.clear();
        self.values.extend(values);
    }

    /// Makes it a table of `n` entities: drops what there is more of, makes what there is less of.
    pub fn resize_with(&mut self, n: usize, value: impl FnMut() -> T) {
        self.values.resize_with(n, value);
    }

    /// Every name, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = Id> + ExactSizeIterator + use<Id, T> {
        (0..self.values.len()).map(Id::new)
    }

    /// Every value, in order.
    pub fn values(&self) -> std::slice::Iter<'_, T> {
        self.values.iter()
    }

    /// Every value, in order, to change it.
    pub fn values_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.values.iter_mut()
    }

    /// Gives every entity that value.
    pub fn fill(&mut self, value: T)
    where
        T: Clone,
    {
        self.values.fill(value);
    }
}

impl<Id, T> FromIterator<T> for SideTable<Id, T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        SideTable { values: values.into_iter().collect(), id: PhantomData }
    }
}

impl<Id, T: Clone> Clone for SideTable<Id, T> {
    fn clone(&self) -> Self {
        SideTable { values: self.values.clone(), id: PhantomData }
    }

    fn clone_from(&mut self, other: &Self) {
        self.values.clone_from(&other.values);
    }
}

impl<Id, T> Default for SideTable<Id, T> {
    fn default() -> Self {
        SideTable { values: Vec::new(), id: PhantomData }
    }
}

impl<Id, T: fmt::Debug> fmt::Debug for SideTable<Id, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values.fmt(f)
    }
}

impl<Id: EntityId, T> Index<Id> for SideTable<Id, T> {
    type Output = T;
    fn index(&self, id: Id) -> &T {
        &self.values[id.index()]
    }
}

impl<Id: EntityId, T> IndexMut<Id> for SideTable<Id, T> {
    fn index_mut(&mut self, id: Id) -> &mut T {
        &mut self.values[id.index()]
    }
}
