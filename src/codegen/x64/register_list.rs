//! A list virtual registers, stored inline: the operands of an instruction, the parts of a value.

use super::code::V;
use std::ops::{Deref, DerefMut};

/// At most `N` registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RegisterList<const N: usize> {
    registers: [V; N],
    /// As wide as a register, so that a list is copied in the pieces that it was written in, which is fast.
    n: u32,
}

impl<const N: usize> RegisterList<N> {
    /// No registers.
    pub(super) const NONE: RegisterList<N> = RegisterList { registers: [V(0); N], n: 0 };

    /// The same register `n` times.
    pub(super) fn repeated(v: V, n: usize) -> RegisterList<N> {
        assert!(n <= N, "too many registers");
        RegisterList { registers: [v; N], n: n as u32 }
    }

    /// These registers, and perhaps one more.
    pub(super) fn and<const M: usize>(&self, v: Option<V>) -> RegisterList<M> {
        let mut all = RegisterList::NONE;
        all.registers[..N].copy_from_slice(&self.registers);
        all.n = self.n;
        if let Some(v) = v {
            all.push(v);
        }
        all
    }

    /// Adds a register.
    pub(super) fn push(&mut self, v: V) {
        self.registers[self.n as usize] = v;
        self.n += 1;
    }
}

impl<const N: usize> Deref for RegisterList<N> {
    type Target = [V];

    fn deref(&self) -> &[V] {
        &self.registers[..self.n as usize]
    }
}

impl<const N: usize> DerefMut for RegisterList<N> {
    fn deref_mut(&mut self) -> &mut [V] {
        &mut self.registers[..self.n as usize]
    }
}

impl<const N: usize, const M: usize> From<[V; M]> for RegisterList<N> {
    fn from(registers: [V; M]) -> RegisterList<N> {
        registers.into_iter().collect()
    }
}

impl<const N: usize> From<&[V]> for RegisterList<N> {
    fn from(registers: &[V]) -> RegisterList<N> {
        registers.iter().copied().collect()
    }
}

impl<const N: usize> FromIterator<V> for RegisterList<N> {
    fn from_iter<I: IntoIterator<Item = V>>(registers: I) -> RegisterList<N> {
        let mut list = RegisterList::NONE;
        registers.into_iter().for_each(|v| list.push(v));
        list
    }
}

impl<const N: usize> IntoIterator for RegisterList<N> {
    type Item = V;
    type IntoIter = std::iter::Take<std::array::IntoIter<V, N>>;

    fn into_iter(self) -> Self::IntoIter {
        self.registers.into_iter().take(self.n as usize)
    }
}

impl<'a, const N: usize> IntoIterator for &'a RegisterList<N> {
    type Item = &'a V;
    type IntoIter = std::slice::Iter<'a, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
