//! A profile as JSON, and as a trace that Chrome and Perfetto open.
//!
//! A field that changes its meaning or is removed makes a new [`SCHEMA`]; an added field does not.

use super::place::Place;
use super::report::{Moment, Profile, Row};
use crate::json::Json;
use std::time::Duration;

/// The name and version of the schema, the first field of a profile in JSON.
const SCHEMA: &str = "opfuse.profile/1";

impl Profile {
    /// The profile as indented JSON with a fixed order of keys. `docs/profiling.md` describes the schema.
    pub fn to_json(&self) -> String {
        let spans = self.spans.iter().map(|span| {
            Json::Object(vec![
                ("row", count(span.row)),
                ("start_ns", nanoseconds(span.start)),
                ("ns", nanoseconds(span.time)),
                ("depth", count(span.depth)),
            ])
        });
        let events = self.events.iter().map(|event| {
            Json::Object(vec![
                ("at_ns", nanoseconds(event.at)),
                ("kind", text(event.kind.name())),
                ("what", text(&event.what)),
            ])
        });
        let memory = Json::Object(vec![
            ("start", count(self.memory.start)),
            ("fresh_allocations", Json::Count(self.memory.fresh_allocations)),
            ("peak", self.memory.peak.as_ref().map_or(Json::Null, moment)),
            ("timeline", Json::List(self.memory.timeline.iter().map(moment).collect())),
        ]);
        Json::Object(vec![
            ("schema", text(SCHEMA)),
            ("wall_ns", nanoseconds(self.wall)),
            ("covered_ns", nanoseconds(self.covered)),
            ("threads", count(self.threads)),
            ("rates", text(&self.rates)),
            ("rows", Json::List(self.rows.iter().map(row).collect())),
            ("spans", Json::List(spans.collect())),
            ("dropped_spans", Json::Count(self.dropped_spans)),
            ("events", Json::List(events.collect())),
            ("dropped_events", Json::Count(self.dropped_events)),
            ("memory", memory),
        ])
        .to_text()
    }

    /// The spans, events and memory as a trace in Chrome's format, which `chrome://tracing` and Perfetto open.
    pub fn to_chrome_trace(&self) -> String {
        let mut events = Vec::new();
        for span in &self.spans {
            let row = &self.rows[span.row];
            let mut args = vec![("calls", Json::Count(row.calls))];
            if !row.detail.is_empty() {
                args.push(("ops", text(&row.detail)));
            }
            if let Some(place) = &row.place {
                args.push(("at", text(place.to_string())));
            }
            if let Some(tier) = row.tier {
                args.push(("tier", text(tier)));
            }
            events.push(Json::Object(vec![
                ("name", text(&row.name)),
                ("cat", text(row.kind.name())),
                ("ph", text("X")),
                ("ts", microseconds(span.start)),
                ("dur", microseconds(span.time)),
                ("pid", count(1)),
                ("tid", count(1)),
                ("args", Json::Object(args)),
            ]));
        }
        for event in &self.events {
            events.push(Json::Object(vec![
                ("name", text(event.kind.name())),
                ("cat", text("event")),
                ("ph", text("i")),
                ("s", text("t")),
                ("ts", microseconds(event.at)),
                ("pid", count(1)),
                ("tid", count(1)),
                ("args", Json::Object(vec![("what", text(&event.what))])),
            ]));
        }
        for moment in &self.memory.timeline {
            events.push(Json::Object(vec![
                ("name", text("memory")),
                ("ph", text("C")),
                ("ts", microseconds(moment.at)),
                ("pid", count(1)),
                ("args", Json::Object(vec![("bytes", count(moment.live))])),
            ]));
        }
        let lines: Vec<String> = events.iter().map(Json::to_line).collect();
        let about = Json::Object(vec![
            ("schema", text(SCHEMA)),
            ("wall_us", microseconds(self.wall)),
            ("covered_us", microseconds(self.covered)),
            ("dropped_spans", Json::Count(self.dropped_spans)),
        ]);
        let events = lines.join(",\n");
        format!(
            "{{\"displayTimeUnit\": \"ns\", \"otherData\": {}, \"traceEvents\": [\n{events}\n]}}\n",
            about.to_line()
        )
    }
}

fn row(row: &Row) -> Json {
    Json::Object(vec![
        ("kind", text(row.kind.name())),
        ("name", text(&row.name)),
        ("detail", text(&row.detail)),
        ("place", row.place.as_ref().map_or(Json::Null, place)),
        ("tier", row.tier.map_or(Json::Null, text)),
        ("threads", row.threads.map_or(Json::Null, count)),
        ("calls", Json::Count(row.calls)),
        ("total_ns", nanoseconds(row.total)),
        ("own_ns", nanoseconds(row.own)),
        ("least_ns", nanoseconds(row.least)),
        ("median_ns", nanoseconds(row.median)),
        ("bytes", Json::Count(row.bytes)),
        ("operations", Json::Number(row.operations)),
        ("gigabytes_per_second", row.gigabytes_per_second().map_or(Json::Null, Json::Number)),
        ("gigaflops_per_second", row.gigaflops_per_second().map_or(Json::Null, Json::Number)),
        ("roof", row.roof.map_or(Json::Null, Json::Number)),
        ("fresh_allocations", Json::Count(row.fresh_allocations)),
    ])
}

fn place(place: &Place) -> Json {
    let line = ("line", Json::Count(place.line.into()));
    Json::Object(vec![("file", text(place.file.clone())), line, ("scope", text(&*place.scope))])
}

fn moment(moment: &Moment) -> Json {
    Json::Object(vec![("at_ns", nanoseconds(moment.at)), ("bytes", count(moment.live)), ("row", count(moment.row))])
}

fn text(value: impl Into<String>) -> Json {
    Json::Text(value.into())
}

fn count(value: usize) -> Json {
    Json::Count(value as u64)
}

fn nanoseconds(time: Duration) -> Json {
    Json::Count(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Whole nanoseconds as microseconds, so that spans nest exactly.
fn microseconds(time: Duration) -> Json {
    Json::Number(time.as_nanos() as f64 / 1e3)
}
