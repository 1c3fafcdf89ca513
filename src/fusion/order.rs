//! An order of the units that respects every edge, kept up while units are merged.
//!
//! Whether a merge would close a circle is a search for a path; the order bounds it to what lies between the units. When
//! units are merged, only those between them that lead to one or follow from one are moved (Pearce and Kelly, "A Dynamic
//! Topological Sort Algorithm for Directed Acyclic Graphs", 2006). Node numbers would not do as such an order: a kernel
//! with several results may have an early one that somebody reads and a late one that waits for somebody else.

use super::units::Units;
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

/// The place of each unit in the order, by its number.
#[derive(Debug, Default)]
pub(super) struct UnitOrder {
    place: Vec<u32>,
}

impl UnitOrder {
    /// The order of units that were not merged yet.
    pub(super) fn of(units: &Units<'_>) -> UnitOrder {
        let mut waits: Vec<usize> = (0..units.units.len() as u32).map(|unit| units.predecessors(unit).len()).collect();
        let mut ready: BTreeSet<u32> = (0..waits.len() as u32).filter(|&unit| waits[unit as usize] == 0).collect();
        let mut place = vec![0; waits.len()];
        let mut next_place = 0;
        while let Some(unit) = ready.pop_first() {
            place[unit as usize] = next_place;
            next_place += 1;
            let next: BTreeSet<u32> = units.successors(unit).collect();
            for next in next {
                waits[next as usize] -= 1;
                if waits[next as usize] == 0 {
                    ready.insert(next);
                }
            }
        }
        UnitOrder { place }
    }

    fn at(&self, unit: u32) -> u32 {
        self.place[unit as usize]
    }
}

/// The first and the last place of some units.
fn window(order: &UnitOrder, members: &[u32]) -> (u32, u32) {
    let places = || members.iter().map(|&member| order.at(member));
    (places().min().unwrap_or(0), places().max().unwrap_or(0))
}

/// Whether a path leaves the members and comes back: as one unit they would wait for themselves.
pub(super) fn leaves_and_returns(units: &Units<'_>, members: &[u32]) -> bool {
    let (_, last) = window(&units.order, members);
    let mut seen: FxHashSet<u32> = FxHashSet::default();
    let mut stack: Vec<u32> = members.iter().flat_map(|&member| units.successors(member)).collect();
    stack.retain(|next| !members.contains(next));
    while let Some(unit) = stack.pop() {
        if units.order.at(unit) > last || !seen.insert(unit) {
            continue;
        }
        for next in units.successors(unit) {
            if members.contains(&next) {
                return true;
            }
            stack.push(next);
        }
    }
    false
}

/// Whether neither of two units leads to the other.
pub(super) fn are_independent(units: &Units<'_>, a: u32, b: u32) -> bool {
    let reads = |from: u32, to: u32| units.successors(from).any(|next| next == to);
    !reads(a, b) && !reads(b, a) && !leaves_and_returns(units, &[a, b])
}

/// Makes room for the members at one place, which is that of `merged`, one of them; no path leaves them and comes back.
pub(super) fn contract(units: &mut Units<'_>, members: &[u32], merged: u32) {
    let (first, last) = window(&units.order, members);
    let after = reached(units, members, |unit| units.successors(unit).collect(), |place| place < last);
    let before = reached(units, members, |unit| units.predecessors(unit), |place| place > first);
    let order = &mut units.order;
    let mut places: Vec<u32> = members.iter().chain(&before).chain(&after).map(|&unit| order.at(unit)).collect();
    places.sort_unstable();
    let (n_before, n_after, n_places) = (before.len(), after.len(), places.len());
    for (unit, &place) in before.into_iter().zip(&places) {
        order.place[unit as usize] = place;
    }
    for (unit, &place) in after.into_iter().zip(&places[n_places - n_after..]) {
        order.place[unit as usize] = place;
    }
    order.place[merged as usize] = places[n_before];
}

/// The units outside the members that are reached from them over places that are `inside`, in their order.
fn reached(
    units: &Units<'_>,
    members: &[u32],
    next: impl Fn(u32) -> Vec<u32>,
    inside: impl Fn(u32) -> bool,
) -> Vec<u32> {
    let mut seen: FxHashSet<u32> = FxHashSet::default();
    let mut stack: Vec<u32> = members.iter().flat_map(|&member| next(member)).collect();
    while let Some(unit) = stack.pop() {
        if inside(units.order.at(unit)) && !members.contains(&unit) && seen.insert(unit) {
            stack.extend(next(unit));
        }
    }
    let mut found: Vec<u32> = seen.into_iter().collect();
    found.sort_unstable_by_key(|&unit| units.order.at(unit));
    found
}
