//! Reports as text: totals, one line per kernel, one line per kept edge, and one hint per reason.

use super::{CallReport, Decision, Edge, Explain, Group, counted};
use crate::compile::pipeline::times;
use crate::ir::NodeId;
use crate::profile::Place;
use std::cmp::Reverse;
use std::fmt;

/// Edges that are shown for one reason; the others are counted.
const SHOWN_PER_REASON: usize = 4;
/// Lines that are shown for one kernel.
const SHOWN_LINES: usize = 8;

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.eager {
            writeln!(f, "runs eagerly: {reason}")?;
            return writeln!(f, "hint: {}", reason.hint());
        }
        let percent = 100.0 * self.bytes_after as f64 / self.bytes_before.max(1) as f64;
        writeln!(f, "{}", self.totals())?;
        writeln!(f, "{} bytes unfused, {} fused ({percent:.0} %)", self.bytes_before, self.bytes_after)?;
        writeln!(f, "at most {} bytes allocated at a time", self.peak_bytes)?;
        let source = &self.calibration.source;
        writeln!(f, "modelled to take one thread {:.1?} (rates: {source})", self.modelled_time())?;
        writeln!(f, "planned in {:.1?}, compiled in {:.1?}", self.plan_time, self.compile_time)?;
        if !self.passes.is_empty() {
            writeln!(f, "passes: {}", times(&self.passes))?;
            writeln!(f, "merge steps: {}", times(&self.merges))?;
        }
        if self.changing_numbers > 0 {
            let numbers = counted(self.changing_numbers, "plain number");
            writeln!(f, "{numbers} of the arguments changed, so they are inputs; each call traces the function")?;
        }
        match &self.replay {
            Some(Ok(calls)) => writeln!(f, "started as one CUDA graph after {}", counted(*calls as usize, "call"))?,
            Some(Err(reason)) => writeln!(f, "not started as one CUDA graph: {reason}")?,
            None => {}
        }
        for group in &self.groups {
            write!(f, "{} {} [{}] ", group.kind, group.index, group.tiers())?;
            write!(f, "reads {}, writes {} bytes, ", group.bytes_read, group.bytes_written)?;
            write!(f, "modelled {:.1?}", group.modelled_time)?;
            if let Some(measured) = group.measured {
                write!(f, ", measured {:.1?}", measured.least)?;
            }
            write!(f, ": ")?;
            let lines = self.lines(group);
            writeln!(f, "{}{}{lines}", self.calls(group), if lines.is_empty() { "" } else { " at " })?;
            if let Some(times) = group.times_slower() {
                writeln!(f, "  slow: {times:.1} times as long as modelled; compile::calibrate measures this machine")?;
            }
            if let Some(reason) = &group.declined {
                writeln!(f, "  declined: {reason}")?;
            }
            if let Some(over) = group.in_place {
                writeln!(f, "  in place: only what changes is written, to the memory of {}", self.name(over))?;
            }
            for remark in &group.remarks {
                writeln!(f, "  fast: {remark}")?;
            }
        }
        self.copies_text(f)?;
        self.kept_text(f)?;
        self.calls.iter().try_for_each(|call| write!(f, "{call}"))?;
        for (position, segment) in self.placed_segments() {
            write!(f, "segment {position}:\n{}", segment.report)?;
            if let Some(end) = &segment.end {
                writeln!(f, "graph break: {end}\nhint: {}", end.reason.hint())?;
            }
        }
        if let Some(backward) = &self.backward {
            write!(f, "backward pass:\n{backward}")?;
        }
        Ok(())
    }
}

impl fmt::Display for CallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = self.results.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "calls {} -> {types}", self.operator)?;
        if let Some(place) = &self.place {
            write!(f, " at {place}")?;
        }
        if self.kernels > 0 {
            write!(f, ", with {} in its body", self.body())?;
        }
        writeln!(f, ": {}\nhint: {}", self.reason, self.reason.hint())?;
        match self.before.groups.is_empty() {
            true => Ok(()),
            false => write!(f, "before this call:\n{}", self.before),
        }
    }
}

impl Explain {
    /// The kept edges by reason, those that cost most first, then a hint per reason.
    pub(super) fn kept_text(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        for (bytes, edges) in self.kept_by_reason() {
            for edge in edges.iter().take(SHOWN_PER_REASON) {
                let Decision::Kept { reason, bytes, .. } = &edge.decision else { continue };
                let (producer, consumer) = (self.name(edge.producer), self.name(edge.consumer));
                write!(f, "not fused: {producer} -> {consumer} ({bytes} bytes): {reason}")?;
                match [edge.producer, edge.consumer].map(|node| self.place(node)) {
                    [Some(one), Some(other)] if !one.is_same_line(other) => writeln!(f, "; {one} -> {other}")?,
                    [_, Some(place)] | [Some(place), None] => writeln!(f, "; at {place}")?,
                    [None, None] => writeln!(f)?,
                }
            }
            if let Some(more) = edges.len().checked_sub(SHOWN_PER_REASON).filter(|&more| more > 0) {
                let edges = counted(more, "edge");
                writeln!(f, "not fused: {edges} more for the last reason, {bytes} bytes with those above")?;
            }
        }
        self.kept_reasons().iter().try_for_each(|reason| writeln!(f, "hint ({reason}): {}", reason.hint()))
    }

    /// The kept edges with the bytes that they cost, by reason. The most bytes come first, in both lists.
    fn kept_by_reason(&self) -> Vec<(usize, Vec<&Edge>)> {
        let mut all: Vec<(usize, Vec<&Edge>)> = Vec::new();
        for wanted in self.kept_reasons() {
            let is_it = |edge: &&Edge| matches!(&edge.decision, Decision::Kept { reason, .. } if reason == wanted);
            let mut edges: Vec<&Edge> = self.kept().filter(is_it).collect();
            edges.sort_by_key(|edge| Reverse(edge.bytes()));
            all.push((edges.iter().map(|edge| edge.bytes()).sum(), edges));
        }
        all.sort_by_key(|(bytes, _)| Reverse(*bytes));
        all
    }

    /// Where in the program the call of a node stands, if that is known.
    pub(super) fn place(&self, node: NodeId) -> Option<&Place> {
        self.nodes.get(node.index())?.place.as_ref()
    }

    /// The lines of the calls in a group, each once, in order: `src/main.rs:12, 14`.
    pub(super) fn lines(&self, group: &Group) -> String {
        let mut places: Vec<&Place> = Vec::new();
        for place in group.nodes.iter().filter_map(|&node| self.place(node)) {
            if !places.iter().any(|other| other.is_same_line(place)) {
                places.push(place);
            }
        }
        let mut out = String::new();
        let mut last: Option<&Place> = None;
        for place in places.iter().take(SHOWN_LINES) {
            let separator = if out.is_empty() { "" } else { ", " };
            out += separator;
            match last {
                Some(last) if last.file == place.file && last.scope == place.scope => out += &place.line.to_string(),
                Some(_) | None => out += &place.to_string(),
            }
            last = Some(place);
        }
        if places.len() > SHOWN_LINES {
            out += ", …";
        }
        out
    }

    /// The ops of a group in order. Ops of one composite call are grouped: `softmax(amax, sub, exp, sum, div), relu`.
    pub(super) fn calls(&self, group: &Group) -> String {
        let mut out = String::new();
        let mut open = None;
        for &node in &group.nodes {
            let report = &self.nodes[node.index()];
            let Some(op) = report.node.op() else { continue };
            let composite = report.source.filter(|source| source.op != op);
            let goes_on = open.is_some() && open == composite;
            if open.is_some() && !goes_on {
                out.push(')');
            }
            if !out.is_empty() {
                out += ", ";
            }
            if let Some(source) = composite.filter(|_| !goes_on) {
                out += source.name();
                out.push('(');
            }
            out += op.name();
            open = composite;
        }
        if open.is_some() {
            out.push(')');
        }
        out
    }
}
