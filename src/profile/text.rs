//! A profile as a table for the terminal.

use super::report::{Kind, Profile, Row};
use std::fmt;
use std::time::Duration;

/// Rows that the table shows; the others are summed up.
const SHOWN: usize = 40;
/// Events that the table shows.
const SHOWN_EVENTS: usize = 8;
/// Columns of a name.
const WIDTH: usize = 60;

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = percent(self.covered, self.wall);
        let threads = self.threads;
        writeln!(f, "wall {}, spans {} ({share} %), {threads} threads", time(self.wall), time(self.covered))?;
        writeln!(f, "roof: the rates of the cost model ({}) times the threads of a row", self.rates)?;
        let named = ["calls", "own", "share", "least", "median", "MB/call", "GB/s", "GFLOP/s", "roof", "threads"];
        for name in named {
            write!(f, "{name:>9}")?;
        }
        writeln!(f, "  what")?;
        for row in self.rows.iter().take(SHOWN) {
            self.line(f, row)?;
        }
        if let Some(rest) = self.rows.get(SHOWN..).filter(|rest| !rest.is_empty()) {
            let own = rest.iter().map(|row| row.own).sum();
            writeln!(f, "{:>9}{:>9}{:>8}%  in {} more rows", "", time(own), percent(own, self.wall), rest.len())?;
        }
        self.remarks(f)
    }
}

impl Profile {
    fn line(&self, f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
        let number = |value: Option<f64>| value.map_or("-".into(), three);
        let megabytes = (row.bytes > 0).then(|| row.bytes as f64 / row.calls.max(1) as f64 / 1e6);
        let roof = row.roof.map_or("-".into(), |roof| format!("{:.0} %", 100.0 * roof));
        let threads = row.threads.map_or("-".into(), |threads| threads.to_string());
        write!(f, "{:>9}{:>9}{:>8}%", row.calls, time(row.own), percent(row.own, self.wall))?;
        write!(f, "{:>9}{:>9}{:>9}", time(row.least), time(row.median), number(megabytes))?;
        write!(f, "{:>9}", number(row.gigabytes_per_second()))?;
        write!(f, "{:>9}{roof:>9}{threads:>9}  ", number(row.gigaflops_per_second()))?;
        write!(f, "{} {}", row.kind.name(), shortened(&row.name))?;
        if let Some(tier) = row.tier {
            write!(f, " [{tier}]")?;
        }
        if !row.detail.is_empty() {
            write!(f, " {}", shortened(&row.detail))?;
        }
        if let Some(place) = &row.place {
            write!(f, " at {place}")?;
        }
        writeln!(f)
    }

    fn remarks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |kind: Kind| self.of_kind(kind).map(|row| row.calls).sum::<u64>();
        let breaks = self.events.len() as u64 + self.dropped_events;
        writeln!(
            f,
            "captures {}, compiles {}, graph breaks {breaks}, allocations from the system {}",
            count(Kind::Capture),
            count(Kind::Compile),
            self.memory.fresh_allocations
        )?;
        let memory = &self.memory;
        write!(f, "memory: {} at the start", megabytes(memory.start))?;
        match memory.peak {
            Some(peak) => {
                let row = &self.rows[peak.row];
                let name = shortened(&row.name);
                let at = time(peak.at);
                writeln!(f, ", at most {} after {} {name} at {at}", megabytes(peak.live), row.kind.name())?;
            }
            None => writeln!(f)?,
        }
        for event in self.events.iter().take(SHOWN_EVENTS) {
            writeln!(f, "{} at {}: {}", event.kind.name(), time(event.at), event.what)?;
        }
        if self.events.len() > SHOWN_EVENTS {
            writeln!(f, "and {} more events", self.events.len() - SHOWN_EVENTS)?;
        }
        if self.dropped_spans + self.dropped_events > 0 {
            let (spans, events) = (self.dropped_spans, self.dropped_events);
            writeln!(f, "dropped: the first {spans} spans and {events} events; rows count them")?;
        }
        Ok(())
    }
}

fn percent(part: Duration, whole: Duration) -> String {
    format!("{:.1}", 100.0 * part.as_secs_f64() / whole.as_secs_f64().max(1e-12))
}

fn megabytes(bytes: usize) -> String {
    format!("{} MB", three(bytes as f64 / 1e6))
}

/// A time with three digits and its unit.
pub(super) fn time(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    match nanos {
        ..1e3 => format!("{nanos:.0}ns"),
        ..1e6 => format!("{}us", three(nanos / 1e3)),
        ..1e9 => format!("{}ms", three(nanos / 1e6)),
        _ => format!("{}s", three(nanos / 1e9)),
    }
}

/// A number with about three digits.
pub(super) fn three(value: f64) -> String {
    match value.abs() {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// The name, or its end, where paths of types differ.
fn shortened(name: &str) -> String {
    let n_chars = name.chars().count();
    if n_chars <= WIDTH {
        return name.to_string();
    }
    let end: String = name.chars().skip(n_chars - WIDTH + 1).collect();
    format!("…{end}")
}
