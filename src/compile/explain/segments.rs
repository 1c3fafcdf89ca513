//! The report of a function that runs in several segments: a report of each, and what ended it.

use super::{CallReport, Explain, counted};
use crate::transforms::tracer::SegmentEnd;
use std::fmt;
use std::time::Duration;

/// A segment of a compiled function. Segments with the same graph and the same end are one.
#[derive(Debug, Clone)]
pub struct SegmentReport {
    /// How often the call ran it.
    pub runs: u64,
    /// What was compiled for it. The numbers are those of one run.
    pub report: Box<Explain>,
    /// The graph break that ended it. `None` if the function ended.
    pub end: Option<SegmentEnd>,
}

impl Explain {
    /// The report of a call that ran these segments, in the order in which it first ran them. One segment is reported
    /// as a function without graph breaks is. `others` counts the runs of segments that are not among them. The times
    /// for planning and compiling are those of all graphs.
    pub(in crate::compile) fn of_segments(
        mut segments: Vec<SegmentReport>,
        others: u64,
        [plan_time, compile_time]: [Duration; 2],
    ) -> Option<Explain> {
        if segments.len() < 2 {
            return segments.pop().map(|segment| *segment.report);
        }
        let sum = |number: fn(&Explain) -> usize| {
            segments.iter().map(|segment| number(&segment.report) * segment.runs as usize).sum()
        };
        Some(Explain {
            kernels_before: sum(|report| report.kernels_before),
            kernels_after: sum(|report| report.kernels_after),
            bytes_before: sum(|report| report.bytes_before),
            bytes_after: sum(|report| report.bytes_after),
            peak_bytes: segments.iter().map(|segment| segment.report.peak_bytes).max().unwrap_or(0),
            calibration: segments[0].report.calibration.clone(),
            plan_time,
            compile_time,
            segments,
            other_segments: others,
            ..Explain::empty()
        })
    }

    /// Each segment with its position: `2 of 3, run 17 times`.
    pub(super) fn placed_segments(&self) -> impl Iterator<Item = (String, &SegmentReport)> {
        let count = self.segments.len();
        self.segments.iter().enumerate().map(move |(index, segment)| {
            let runs = if segment.runs > 1 { format!(", run {} times", segment.runs) } else { String::new() };
            (format!("{} of {count}{runs}", index + 1), segment)
        })
    }

    /// What runs, in one line: `5 ops in 2 kernels`, or `5 ops in 2 kernels in the body of scan`.
    pub(super) fn totals(&self) -> String {
        let own = (self.kernels_before > 0).then(|| in_kernels(self.kernels_before, self.kernels_after));
        let bodies = self.calls.iter().filter(|call| call.kernels > 0);
        let bodies = bodies.map(|call| format!("{} in the body of {}", call.body(), call.operator));
        let parts: Vec<String> = own.into_iter().chain(bodies).collect();
        let totals = if parts.is_empty() { in_kernels(0, self.kernels_after) } else { parts.join(", ") };
        match self.segments.len() {
            0 => totals,
            segments if self.other_segments == 0 => format!("{}: {totals}", counted(segments, "segment")),
            segments => {
                let others = self.other_segments;
                format!("{} without {others} runs of others: {totals}", counted(segments, "segment"))
            }
        }
    }
}

impl CallReport {
    /// What its bodies compute: `5 ops in 2 kernels`.
    pub(super) fn body(&self) -> String {
        in_kernels(self.ops, self.kernels)
    }
}

fn in_kernels(ops: usize, kernels: usize) -> String {
    format!("{} in {}", counted(ops, "op"), counted(kernels, "kernel"))
}

impl fmt::Display for SegmentEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        self.place.iter().try_for_each(|place| write!(f, "; at {place}"))
    }
}
