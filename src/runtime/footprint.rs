//! Counts the bytes of a memory that strided accesses reach, each once.
//!
//! A walk that reaches no byte twice is counted by multiplication, and so are walks that do not overlap. Only walks
//! that may overlap are marked byte by byte. Nothing here reads memory.

use crate::ir::Layout;
use smallvec::SmallVec;

/// Elements at `base + i0 * stride0 + i1 * stride1 …`, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ByteWalk {
    base: usize,
    /// Contiguous bytes at each position.
    run: usize,
    /// Size and stride of every loop, the largest stride first, without loops of size 1 or stride 0.
    loops: SmallVec<[(usize, usize); 6]>,
}

impl ByteWalk {
    /// Elements of `unit` bytes; `None` if there are none.
    pub(super) fn new(
        mut base: usize,
        unit: usize,
        loops: impl IntoIterator<Item = (usize, usize)>,
    ) -> Option<ByteWalk> {
        let mut kept: SmallVec<[(usize, usize); 6]> = SmallVec::new();
        for (size, stride) in loops {
            match (size, stride) {
                (0, _) => return None,
                (1, _) | (_, 0) => {}
                // Backwards: the same elements from the last one on.
                (size, stride) if stride.cast_signed() < 0 => {
                    base = base.wrapping_add((size - 1).wrapping_mul(stride));
                    kept.push((size, stride.wrapping_neg()));
                }
                (size, stride) => kept.push((size, stride)),
            }
        }
        kept.sort_unstable_by_key(|&(size, stride)| (std::cmp::Reverse(stride), size));
        let mut walk = ByteWalk { base, run: unit, loops: SmallVec::new() };
        // From the inside: contiguous loops are merged.
        while let Some((size, stride)) = kept.pop() {
            match walk.loops.first_mut() {
                None if stride == walk.run => walk.run *= size,
                Some((count, step)) if *count * *step == stride => *count *= size,
                _ => walk.loops.insert(0, (size, stride)),
            }
        }
        Some(walk)
    }

    /// The elements of a layout, of `unit` bytes each.
    pub(super) fn of_layout(layout: &Layout, unit: usize) -> Option<ByteWalk> {
        let loops = layout.sizes.iter().zip(&layout.strides).map(|(&size, &stride)| (size, stride * unit));
        ByteWalk::new(layout.offset * unit, unit, loops)
    }

    /// The end of the last byte.
    fn end(&self) -> usize {
        self.base + self.run + self.loops.iter().map(|&(size, stride)| (size - 1) * stride).sum::<usize>()
    }

    /// The number of its bytes, if it reaches none of them twice.
    fn distinct(&self) -> Option<usize> {
        let mut reach = self.run;
        for &(size, stride) in self.loops.iter().rev() {
            if stride < reach {
                return None;
            }
            reach += (size - 1) * stride;
        }
        Some(self.run * self.loops.iter().map(|&(size, _)| size).product::<usize>())
    }

    /// Calls `visit` with the start of every contiguous run.
    fn each_run(&self, mut visit: impl FnMut(usize)) {
        let mut at: SmallVec<[usize; 6]> = SmallVec::from_elem(0, self.loops.len());
        let mut start = self.base;
        'runs: loop {
            visit(start);
            for (index, &(size, stride)) in self.loops.iter().enumerate().rev() {
                at[index] += 1;
                start += stride;
                if at[index] < size {
                    continue 'runs;
                }
                start -= size * stride;
                at[index] = 0;
            }
            return;
        }
    }
}

/// A bit per byte of a range.
pub(super) struct Marks {
    first: usize,
    marked: Vec<bool>,
    count: usize,
}

impl Marks {
    /// A range without marks.
    pub(super) fn new(first: usize, end: usize) -> Marks {
        Marks { first, marked: vec![false; end - first], count: 0 }
    }

    /// Marks `len` bytes.
    pub(super) fn mark(&mut self, start: usize, len: usize) {
        for byte in &mut self.marked[start - self.first..][..len] {
            self.count += usize::from(!*byte);
            *byte = true;
        }
    }

    /// The number of marked bytes.
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

/// The number of bytes that walks through one memory reach.
pub(super) fn distinct(walks: &[ByteWalk]) -> usize {
    let mut walks: SmallVec<[&ByteWalk; 8]> = walks.iter().collect();
    walks.sort_by_key(|walk| (walk.base, std::cmp::Reverse(walk.end())));
    walks.dedup();
    let (mut total, mut rest) = (0, &walks[..]);
    while let Some(first) = rest.first() {
        // Walks whose ranges overlap are counted together.
        let (mut n_together, mut end) = (1, first.end());
        while let Some(next) = rest.get(n_together).filter(|next| next.base < end) {
            end = end.max(next.end());
            n_together += 1;
        }
        let (together, remaining) = rest.split_at(n_together);
        let alone = if let [walk] = together { walk.distinct() } else { covering(first, end) };
        total += alone.unwrap_or_else(|| {
            let mut marks = Marks::new(first.base, end);
            together.iter().for_each(|walk| walk.each_run(|start| marks.mark(start, walk.run)));
            marks.count()
        });
        rest = remaining;
    }
    total
}

/// The bytes of a walk without gaps that reaches up to `end`, and so covers all walks that start after it.
fn covering(walk: &ByteWalk, end: usize) -> Option<usize> {
    (walk.loops.is_empty() && walk.end() == end).then_some(walk.run)
}

#[cfg(test)]
mod tests {
    use super::{ByteWalk, distinct};
    use std::collections::BTreeSet;

    /// Base, unit, loops.
    type Plain = (usize, usize, Vec<(usize, usize)>);

    /// Every byte of every walk, in a set.
    fn listed(walks: &[Plain]) -> usize {
        let mut bytes = BTreeSet::new();
        for (base, unit, loops) in walks {
            let mut starts = vec![*base];
            for &(size, stride) in loops {
                starts = starts
                    .iter()
                    .flat_map(|&start| (0..size).map(move |n| start.wrapping_add(n.wrapping_mul(stride))))
                    .collect();
            }
            bytes.extend(starts.iter().flat_map(|&start| start..start + unit));
        }
        bytes.len()
    }

    #[test]
    fn every_byte_counts_once() {
        let mut state = 1u64;
        let mut below = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        for case in 0..3000 {
            let unit = [1, 2, 4, 8][below(4)];
            let walks: Vec<Plain> = (0..1 + below(4))
                .map(|_| {
                    let n_loops = below(4);
                    let mut of_loop = |_| {
                        let (size, stride) = (below(5) + usize::from(below(9) > 0), below(12) * unit);
                        (size, if below(4) > 0 { stride } else { stride.wrapping_neg() })
                    };
                    let loops = (0..n_loops).map(&mut of_loop).collect();
                    // So far that no walk goes back to before the first byte.
                    ((200 + below(30)) * unit, unit, loops)
                })
                .collect();
            let made: Vec<ByteWalk> = walks
                .iter()
                .filter_map(|(base, unit, loops)| ByteWalk::new(*base, *unit, loops.iter().copied()))
                .collect();
            assert_eq!(distinct(&made), listed(&walks), "case {case}: {walks:?}");
        }
    }
}
