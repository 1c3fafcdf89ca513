//! Sets of dispatch keys in 64 bits.
//!
//! The low bits are backends, the bits above them functionalities. A set therefore holds every combination of its
//! per-backend functionalities and its backends: `{AutogradCUDA, CPU}` and `{AutogradCPU, CUDA}` are the same set. Sets
//! are values: no operation changes its operands.

use crate::dispatch::key::dispatch_key::{Backend, DispatchKey};
use crate::error::{Error, Result};
use std::fmt;
use std::ops::{BitAnd, BitOr, Sub};

const N_BACKENDS: u32 = Backend::ALL.len() as u32;
const N_FUNCTIONALITIES: u32 = DispatchKey::FUNCTIONALITIES.len() as u32;
const BACKEND_BITS: u64 = (1 << N_BACKENDS) - 1;

/// Number of slots of a dispatch table: `Undefined`, then one per functionality or one per functionality and backend.
pub const N_SLOTS: usize =
    1 + DispatchKey::FUNCTIONALITIES.len() + DispatchKey::PER_BACKEND.len() * (Backend::ALL.len() - 1);

/// A set of dispatch keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct KeySet(u64);

/// First slot of a functionality, and the backend bits that choose among its slots.
#[derive(Clone, Copy)]
struct Block {
    offset: u32,
    mask: u32,
}

/// By functionality index; 0 is `Undefined`.
const BLOCKS: [Block; N_FUNCTIONALITIES as usize + 1] = {
    let mut blocks = [Block { offset: 0, mask: 0 }; N_FUNCTIONALITIES as usize + 1];
    let mut offset = 1;
    let mut i = 1;
    while i < blocks.len() {
        let per_backend = DispatchKey::ALL[i].is_per_backend();
        blocks[i] = Block { offset, mask: if per_backend { BACKEND_BITS as u32 } else { 0 } };
        offset += if per_backend { N_BACKENDS } else { 1 };
        i += 1;
    }
    assert!(offset as usize == N_SLOTS);
    blocks
};

/// The runtime key of every slot, in slot order. Iteration and priority use the same order.
pub const RUNTIME_KEYS: [DispatchKey; N_SLOTS] = {
    let mut keys = [DispatchKey::Undefined; N_SLOTS];
    let mut i = 0;
    while i < DispatchKey::FUNCTIONALITIES.len() {
        let functionality = DispatchKey::FUNCTIONALITIES[i];
        let block = BLOCKS[functionality as usize];
        let mut backend = 0;
        while backend < if block.mask == 0 { 1 } else { Backend::ALL.len() } {
            keys[block.offset as usize + backend] = functionality.on_backend(Backend::ALL[backend]);
            backend += 1;
        }
        i += 1;
    }
    keys
};

impl DispatchKey {
    /// The slot of a runtime key in dispatch tables. Aliases and per-backend functionalities have none.
    #[inline]
    pub const fn slot(self) -> Option<usize> {
        if !self.is_runtime() {
            return None;
        }
        let backend = match self.backend() {
            Some(backend) => backend as usize,
            None => 0,
        };
        Some(BLOCKS[self.functionality() as usize].offset as usize + backend)
    }
}

impl KeySet {
    /// The empty set.
    pub const EMPTY: KeySet = KeySet(0);
    /// Every functionality on every backend.
    pub const FULL: KeySet = KeySet(u64::MAX >> (64 - N_BACKENDS - N_FUNCTIONALITIES));
    /// All backend bits and no functionality. A union with functionalities puts them on all backends.
    pub const ALL_BACKENDS: KeySet = KeySet(BACKEND_BITS);

    /// The set of one key. `Undefined` and alias keys give the empty set. A per-backend functionality gives its bit
    /// without a backend.
    #[inline]
    pub const fn of(key: DispatchKey) -> KeySet {
        let functionality = key.functionality();
        if matches!(functionality, DispatchKey::Undefined) {
            return KeySet::EMPTY;
        }
        let backend = match key.backend() {
            Some(backend) => 1 << backend as u32,
            None => 0,
        };
        KeySet(backend | 1 << (N_BACKENDS + functionality as u32 - 1))
    }

    /// The set of one backend bit.
    #[inline]
    pub const fn of_backend(backend: Backend) -> KeySet {
        KeySet(1 << backend as u32)
    }

    /// The union of the sets of several keys.
    #[inline]
    pub const fn from_keys(keys: &[DispatchKey]) -> KeySet {
        let mut set = KeySet::EMPTY;
        let mut i = 0;
        while i < keys.len() {
            set = set.add(keys[i]);
            i += 1;
        }
        set
    }

    /// The bits: backends from bit 0, functionalities above them.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The set with these bits. Bits without a meaning are dropped.
    #[inline]
    pub const fn from_bits(bits: u64) -> KeySet {
        KeySet(bits & KeySet::FULL.0)
    }

    /// Whether no bit is set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the functionality of `key` is in the set, and its backend if it has one.
    #[inline]
    pub const fn has(self, key: DispatchKey) -> bool {
        let set = KeySet::of(key);
        !set.is_empty() && self.has_all(set)
    }

    /// Whether the backend's bit is set.
    #[inline]
    pub const fn has_backend(self, backend: Backend) -> bool {
        self.0 & KeySet::of_backend(backend).0 != 0
    }

    /// Whether every bit of `other` is in this set.
    #[inline]
    pub const fn has_all(self, other: KeySet) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the two sets share a runtime key: a functionality and, where it exists per backend, a backend.
    #[inline]
    pub fn has_any(self, other: KeySet) -> bool {
        self.intersection(other).iter().next().is_some()
    }

    /// The set with `key` added.
    #[inline]
    pub const fn add(self, key: DispatchKey) -> KeySet {
        self.union(KeySet::of(key))
    }

    /// The set without the functionality of `key`. Backend bits stay, because other functionalities may need them.
    #[inline]
    pub const fn remove(self, key: DispatchKey) -> KeySet {
        self.difference(KeySet::of(key))
    }

    /// The set without that backend. Functionalities stay.
    #[inline]
    pub const fn remove_backend(self, backend: Backend) -> KeySet {
        KeySet(self.0 & !KeySet::of_backend(backend).0)
    }

    /// The union of both sets.
    #[inline]
    pub const fn union(self, other: KeySet) -> KeySet {
        KeySet(self.0 | other.0)
    }

    /// The intersection of both sets.
    #[inline]
    pub const fn intersection(self, other: KeySet) -> KeySet {
        KeySet(self.0 & other.0)
    }

    /// The set without the functionalities of `other`. Backend bits stay.
    #[inline]
    pub const fn difference(self, other: KeySet) -> KeySet {
        KeySet(self.0 & (BACKEND_BITS | !other.0))
    }

    /// The functionality of highest priority, or `Undefined`.
    #[inline]
    pub const fn highest_functionality(self) -> DispatchKey {
        DispatchKey::ALL[self.functionality_index() as usize]
    }

    /// The backend of highest priority.
    #[inline]
    pub const fn highest_backend(self) -> Option<Backend> {
        match self.0 & BACKEND_BITS {
            0 => None,
            bits => Some(Backend::ALL[63 - bits.leading_zeros() as usize]),
        }
    }

    /// The key that decides a call: the highest functionality, on the highest backend if it exists per backend. A
    /// per-backend functionality without a backend bit gives `Undefined`.
    #[inline]
    pub const fn highest(self) -> DispatchKey {
        RUNTIME_KEYS[self.slot()]
    }

    /// The key of highest priority among the backend keys: dense, quantized and sparse.
    #[inline]
    pub const fn highest_backend_key(self) -> DispatchKey {
        const BACKEND_FUNCTIONALITIES: KeySet = KeySet::from_keys(&[
            DispatchKey::Dense,
            DispatchKey::Quantized,
            DispatchKey::Sparse,
            DispatchKey::SparseCsr,
        ])
        .union(KeySet::ALL_BACKENDS);
        self.intersection(BACKEND_FUNCTIONALITIES).highest()
    }

    /// The slot of [`KeySet::highest`], by table look-up.
    #[inline]
    pub const fn slot(self) -> usize {
        let block = BLOCKS[self.functionality_index() as usize];
        let backends = self.0 as u32 & block.mask;
        if backends == 0 {
            // Either the functionality exists once, or its backend is missing. The latter has no slot.
            return if block.mask == 0 { block.offset as usize } else { 0 };
        }
        (block.offset + 31 - backends.leading_zeros()) as usize
    }

    /// The runtime keys of the set, lowest priority first.
    #[inline]
    pub const fn iter(self) -> KeySetIter {
        KeySetIter { set: self, functionality: 1, backend: 0 }
    }

    /// An iterator that starts at the `functionality`-th functionality (from 0) and the `backend`-th backend.
    ///
    /// The position one past the last functionality is the end.
    ///
    /// # Errors
    /// If the position is beyond the end.
    pub fn iter_from(self, functionality: usize, backend: usize) -> Result<KeySetIter> {
        if functionality > N_FUNCTIONALITIES as usize || backend >= N_BACKENDS as usize {
            let message = format!(
                "functionality {functionality} and backend {backend} are out of range: there are \
                 {N_FUNCTIONALITIES} and {N_BACKENDS}"
            );
            return Err(Error::invalid("position in a key set", message));
        }
        Ok(KeySetIter { set: self, functionality: functionality + 1, backend })
    }

    /// Index into [`BLOCKS`] of the highest functionality, 0 for none.
    #[inline]
    const fn functionality_index(self) -> u32 {
        64 - (self.0 >> N_BACKENDS).leading_zeros()
    }
}

impl From<DispatchKey> for KeySet {
    #[inline]
    fn from(key: DispatchKey) -> KeySet {
        KeySet::of(key)
    }
}

impl FromIterator<DispatchKey> for KeySet {
    fn from_iter<I: IntoIterator<Item = DispatchKey>>(keys: I) -> KeySet {
        keys.into_iter().fold(KeySet::EMPTY, KeySet::add)
    }
}

impl BitOr for KeySet {
    type Output = KeySet;

    #[inline]
    fn bitor(self, other: KeySet) -> KeySet {
        self.union(other)
    }
}

impl BitAnd for KeySet {
    type Output = KeySet;

    #[inline]
    fn bitand(self, other: KeySet) -> KeySet {
        self.intersection(other)
    }
}

impl Sub for KeySet {
    type Output = KeySet;

    #[inline]
    fn sub(self, other: KeySet) -> KeySet {
        self.difference(other)
    }
}

impl IntoIterator for KeySet {
    type Item = DispatchKey;
    type IntoIter = KeySetIter;

    fn into_iter(self) -> KeySetIter {
        self.iter()
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, key) in self.iter().enumerate() {
            write!(f, "{}{key}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("}")
    }
}

/// Iterates over the runtime keys of a set, lowest priority first. Made by [`KeySet::iter`].
#[derive(Debug, Clone)]
pub struct KeySetIter {
    set: KeySet,
    /// Index of the next functionality; 0 is `Undefined`.
    functionality: usize,
    backend: usize,
}

impl Iterator for KeySetIter {
    type Item = DispatchKey;

    fn next(&mut self) -> Option<DispatchKey> {
        while self.functionality <= N_FUNCTIONALITIES as usize {
            let functionality = DispatchKey::ALL[self.functionality];
            if self.set.has(functionality) {
                if !functionality.is_per_backend() {
                    self.functionality += 1;
                    self.backend = 0;
                    return Some(functionality);
                }
                while let Some(&backend) = Backend::ALL.get(self.backend) {
                    self.backend += 1;
                    if self.set.has_backend(backend) {
                        return Some(functionality.on_backend(backend));
                    }
                }
            }
            self.functionality += 1;
            self.backend = 0;
        }
        None
    }
}
