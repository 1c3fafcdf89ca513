//! Lines along a dim, and the argument buffers of launches over them.

use super::{LINE, Of, RoutineArray, RoutineLaunch, RoutinePlan, STEPS, THREADS, grid};
use crate::codegen::cuda::EntryLaunch;
use crate::codegen::cuda::argument::ITEMS;
use crate::error::{Reason, TierLimit};
use smallvec::SmallVec;

/// Steps that a single thread takes before it pays to decline, where lines are few.
const MAX_ALONE: usize = 1 << 14;
/// With fewer lines, a device is not busy.
const MANY_LINES: usize = 1024;

/// Lines along a dim, or single elements.
pub(super) struct Lines {
    dim: Option<usize>,
    pub(super) length: usize,
    pub(super) count: usize,
    /// The other dims with their sizes.
    others: SmallVec<[(usize, usize); 4]>,
}

/// A word after those of lines and arrays.
#[derive(Clone, Copy)]
pub(super) enum More {
    Word(u64),
    /// The address of scratch memory, at this byte offset.
    Scratch(usize),
}

/// The argument buffer of a launch, without addresses.
#[derive(Clone)]
pub(super) struct Argument {
    pub(super) argument: Vec<u64>,
    pub(super) places: SmallVec<[(usize, Of); 4]>,
}

impl Lines {
    pub(super) fn new(sizes: &[usize], dim: Option<usize>) -> Lines {
        // A tensor without dims is a line of one element.
        let dim = dim.filter(|_| !sizes.is_empty());
        let others: SmallVec<[(usize, usize); 4]> =
            sizes.iter().copied().enumerate().filter(|&(at, _)| Some(at) != dim).collect();
        let count = others.iter().map(|&(_, size)| size).product();
        Lines { dim, length: dim.map_or(1, |dim| sizes[dim]), count, others }
    }

    pub(super) fn n_dims(&self) -> usize {
        self.others.len()
    }

    /// Whether there are too few lines to keep a device busy.
    pub(super) fn are_few(&self) -> bool {
        self.count < MANY_LINES
    }

    /// # Errors
    /// If a few threads would take many steps, `steps` at most, while the rest of a device is idle.
    pub(super) fn check_length(&self, steps: usize) -> Result<(), Reason> {
        if steps <= MAX_ALONE || !self.are_few() {
            return Ok(());
        }
        Err(TierLimit::FewLongLines { lines: self.count, steps }.into())
    }

    /// The argument buffer for these arrays, with the word of the kind, and further words.
    pub(super) fn argument(&self, arrays: &[(Of, RoutineArray<'_>)], of_kind: u64, more: &[More]) -> Argument {
        let mut argument = vec![0; STEPS];
        (argument[0], argument[1], argument[ITEMS]) = (self.count as u64, self.length as u64, self.count as u64);
        argument[LINE] = of_kind;
        let mut places = SmallVec::new();
        let stride = |(dtype, layout): RoutineArray<'_>, dim: usize| {
            layout.strides.get(dim).map_or(0, |&stride| (stride * dtype.size()) as u64)
        };
        for &(of, place) in arrays {
            places.push((argument.len(), of));
            // The address of another array is that of its first element.
            let start = if of == Of::Scratch { place.1.offset * place.0.size() } else { 0 };
            argument.extend([start as u64, self.dim.map_or(0, |dim| stride(place, dim))]);
        }
        for &(dim, size) in &self.others {
            argument.push(size as u64);
            argument.extend(arrays.iter().map(|&(_, place)| stride(place, dim)));
        }
        for &more in more {
            argument.push(match more {
                More::Word(word) => word,
                More::Scratch(at) => {
                    places.push((argument.len(), Of::Scratch));
                    at as u64
                }
            });
        }
        Argument { argument, places }
    }
}

impl RoutinePlan {
    /// Adds an entry, and its launch with a thread per line if there are lines.
    ///
    /// # Errors
    /// If there are more lines than a grid has threads.
    pub(super) fn add(&mut self, call: String, lines: &Lines, argument: Argument) -> Result<(), Reason> {
        let entry = self.entry(call, argument.argument.len());
        if lines.count > 0 && lines.length > 0 {
            self.launch(entry, argument, grid(lines.count)?);
        }
        Ok(())
    }

    /// Adds an entry and returns its number.
    pub(super) fn entry(&mut self, call: String, n_words: usize) -> usize {
        self.variant.entries.push((call, n_words));
        self.variant.entries.len() - 1
    }

    /// Adds a launch of so many blocks.
    pub(super) fn launch(&mut self, entry: usize, argument: Argument, blocks: u32) {
        let Argument { argument, places } = argument;
        let step = EntryLaunch { entry, items: argument[ITEMS], grid: blocks, block: [THREADS as u32, 1] };
        self.launches.push(RoutineLaunch { step, argument, places });
    }
}
