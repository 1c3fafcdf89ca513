//! Sorts. A block sorts a line in shared memory, or a run of a longer one; then launches merge pairs of runs until
//! there is one.

use super::lines::{Lines, More};
use super::{LINE, Of, RoutineArray, RoutinePlan, blocks, grid, name};
use crate::codegen::cuda::argument::ITEMS;
use crate::error::{Reason, TierLimit};

/// Elements that a block sorts.
const RUN: usize = 2048;
/// Bytes of a rank, and of a place.
const PAIR: [usize; 2] = [8, 4];

impl RoutinePlan {
    pub(super) fn sort(
        &mut self,
        along: usize,
        descending: bool,
        operand: RoutineArray<'_>,
        result: RoutineArray<'_>,
    ) -> Result<(), Reason> {
        let (dtype, input) = operand;
        let lines = Lines::new(&input.sizes, Some(along));
        if lines.length > RUN {
            return self.sort_by_merging(&lines, descending, operand, result);
        }
        let size = lines.length.next_power_of_two().max(64);
        let call = format!("argsort<{}, {descending}, {size}, {}>", name(dtype), lines.n_dims());
        let argument = lines.argument(&[(Of::Operand(0), operand), (Of::Result, result)], 0, &[]);
        let entry = self.entry(call, argument.argument.len());
        if lines.count > 0 && lines.length > 0 {
            self.launch(entry, argument, blocks(lines.count)?);
        }
        Ok(())
    }

    fn sort_by_merging(
        &mut self,
        lines: &Lines,
        descending: bool,
        operand: RoutineArray<'_>,
        result: RoutineArray<'_>,
    ) -> Result<(), Reason> {
        if i32::try_from(lines.length).is_err() {
            return Err(TierLimit::LineTooLong { elements: lines.length }.into());
        }
        let (items, dims) = (lines.count * lines.length, lines.n_dims());
        // Ranks, then places, twice: a pass reads one pair of them and writes the other.
        let ranks = items * PAIR[0];
        let half = (ranks + items * PAIR[1]).next_multiple_of(PAIR[0]);
        self.scratch_bytes = 2 * half;
        let scratch = |from: usize| {
            let [here, there] = [from, 1 - from].map(|number| number * half);
            [here, here + ranks, there, there + ranks].map(More::Scratch)
        };
        let n_runs = lines.length.div_ceil(RUN);
        let to_runs = lines.argument(&[(Of::Operand(0), operand)], n_runs as u64, &scratch(0));
        let n_words = to_runs.argument.len();
        let call = format!("sort_runs<{}, {descending}, {RUN}, {dims}>", name(operand.0));
        let runs = self.entry(call, n_words);
        let passes = [false, true].map(|is_last| self.entry(format!("merge_runs<{is_last}, {dims}>"), n_words));
        if items == 0 {
            return Ok(());
        }
        self.launch(runs, to_runs, blocks(lines.count * n_runs)?);
        let (mut width, mut from) = (RUN, 0);
        while width < lines.length {
            let is_last = 2 * width >= lines.length;
            let mut argument = lines.argument(&[(Of::Result, result)], 0, &scratch(from));
            (argument.argument[0], argument.argument[ITEMS]) = (items as u64, items as u64);
            argument.argument[LINE] = width as u64;
            self.launch(passes[usize::from(is_last)], argument, grid(items)?);
            (width, from) = (2 * width, 1 - from);
        }
        Ok(())
    }
}
