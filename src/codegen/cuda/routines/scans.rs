//! Scans. A thread scans a line. If lines are few and long, blocks share them where the order of elements does not
//! matter.

use super::lines::{Lines, More};
use super::{Of, RoutineArray, RoutinePlan, THREADS, blocks, name};
use crate::error::Reason;
use crate::ir::routine::Scan;

/// Elements of a line that a block scans, as in the source.
const CHUNK: usize = 8 * THREADS;
/// Most bytes of a chunk's result.
const PART_BYTES: usize = 16;

impl RoutinePlan {
    pub(super) fn scan(
        &mut self,
        kind: Scan,
        along: usize,
        operand: RoutineArray<'_>,
        result: RoutineArray<'_>,
    ) -> Result<(), Reason> {
        let (dtype, input) = operand;
        let (form, parts, how) = match kind {
            Scan::Sum => ("scan", "Sums", "Plus"),
            Scan::Prod => ("scan", "Sums", "Times"),
            Scan::ArgMax => ("scan_places", "Bests", "Greatest"),
            Scan::ArgMin => ("scan_places", "Bests", "Least"),
        };
        let is_chain = matches!(kind, Scan::Sum | Scan::Prod) && dtype.is_float();
        let lines = Lines::new(&input.sizes, Some(along));
        let arrays = [(Of::Operand(0), operand), (Of::Result, result)];
        if !is_chain && lines.are_few() && lines.length > CHUNK {
            let (element, dims) = (name(dtype), lines.n_dims());
            let parts = format!("{parts}<{element}, {how}>");
            return self.scan_in_chunks(&element, &parts, dims, &lines, &arrays);
        }
        lines.check_length(lines.length)?;
        let call = format!("{form}<{}, {how}, {}>", name(dtype), lines.n_dims());
        self.add(call, &lines, lines.argument(&arrays, 0, &[]))
    }

    fn scan_in_chunks(
        &mut self,
        element: &str,
        parts: &str,
        dims: usize,
        lines: &Lines,
        arrays: &[(Of, RoutineArray<'_>)],
    ) -> Result<(), Reason> {
        let chunks = lines.length.div_ceil(CHUNK);
        let argument = lines.argument(arrays, chunks as u64, &[More::Scratch(0)]);
        self.scratch_bytes = lines.count * chunks * PART_BYTES;
        let calls = [
            (format!("scan_chunks<{element}, {parts}, {dims}>"), lines.count * chunks),
            (format!("scan_totals<{parts}, {dims}>"), lines.count),
            (format!("scan_with_offset<{element}, {parts}, {dims}>"), lines.count * chunks),
        ];
        for (call, n_blocks) in calls {
            let entry = self.entry(call, argument.argument.len());
            if lines.count > 0 {
                self.launch(entry, argument.clone(), blocks(n_blocks)?);
            }
        }
        Ok(())
    }

    pub(super) fn recurrence(
        &mut self,
        along: usize,
        reverse: bool,
        operands: &[RoutineArray<'_>],
        result: RoutineArray<'_>,
    ) -> Result<(), Reason> {
        let (dtype, term) = operands[1];
        let lines = Lines::new(&term.sizes, Some(along));
        lines.check_length(lines.length)?;
        let call = format!("recurrence<{}, {reverse}, {}>", name(dtype), lines.n_dims());
        let arrays = [(Of::Operand(0), operands[0]), (Of::Operand(1), operands[1]), (Of::Result, result)];
        self.add(call, &lines, lines.argument(&arrays, 0, &[]))
    }
}
