//! Reports as text: totals, one line per kernel, one line per kept edge, and one hint per reason.

use super::{Decision, Explain, Group, counted};
use crate::compile::pipeline::times;
use std::fmt;

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.eager {
            writeln!(f, "runs eagerly: {reason}")?;
            return writeln!(f, "hint: {}", reason.hint());
        }
        let percent = 100.0 * self.bytes_after as f64 / self.bytes_before.max(1) as f64;
        writeln!(f, "{} in {}", counted(self.kernels_before, "op"), counted(self.kernels_after, "kernel"))?;
        writeln!(f, "{} bytes unfused, {} fused ({percent:.0} %)", self.bytes_before, self.bytes_after)?;
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
            writeln!(f, "{}", self.calls(group))?;
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
        self.kept_text(f)?;
        if let Some(backward) = &self.backward {
            write!(f, "backward pass:\n{backward}")?;
        }
        Ok(())
    }
}

impl Explain {
    /// The kept edges with their reasons, then a hint per reason.
    pub(super) fn kept_text(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        for edge in &self.edges {
            if let Decision::Kept { reason, bytes, .. } = &edge.decision {
                let (producer, consumer) = (self.name(edge.producer), self.name(edge.consumer));
                writeln!(f, "not fused: {producer} -> {consumer} ({bytes} bytes): {reason}")?;
            }
        }
        self.kept_reasons().iter().try_for_each(|reason| writeln!(f, "hint ({reason}): {}", reason.hint()))
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
