//! Reports as JSON. `docs/explain.md` describes the schema. The functions here follow it field by field, in the order
//! of printing. A field that changes its meaning or is removed makes a new [`SCHEMA`]; an added field does not.

use super::{BreakReport, CallReport, CopyReason, CopyReport, Decision, Edge, Explain, Group, Measured, NodeReport};
use super::{SegmentReport, Source};
use crate::codegen::tier::Tier;
use crate::codegen::tier_up::TierUp;
use crate::compile::calibration::Calibration;
use crate::compile::pipeline::Timed;
use crate::error::{Datum, Reason};
use crate::fusion::Rates;
use crate::fusion::role::Role;
use crate::ir::text::NodeText;
use crate::ir::{NodeId, NodeKind, Op};
use crate::json::Json;
use crate::profile::Place;
use std::fmt;
use std::time::Duration;

/// The name and version of the schema, the first field of every report.
pub const SCHEMA: &str = "opfuse.explain/1";

impl Explain {
    /// The report as indented JSON with a fixed order of keys. `docs/explain.md` describes the schema [`SCHEMA`].
    pub fn to_json(&self) -> String {
        let mut fields = vec![("schema", text(SCHEMA))];
        fields.extend(report(self));
        Json::Object(fields).to_text()
    }
}

fn report(explain: &Explain) -> Vec<(&'static str, Json)> {
    let before_after = |before, after| Json::Object(vec![("before", count(before)), ("after", count(after))]);
    vec![
        ("eager", option(explain.eager.as_ref(), reason)),
        ("kernels", before_after(explain.kernels_before, explain.kernels_after)),
        ("bytes", before_after(explain.bytes_before, explain.bytes_after)),
        ("peak_bytes", count(explain.peak_bytes)),
        ("modelled_ns", nanoseconds(explain.modelled_time())),
        ("rates", rates(&explain.calibration)),
        ("replay", option(explain.replay.as_ref(), replay)),
        ("passes", list(&explain.passes, timed)),
        ("merges", list(&explain.merges, timed)),
        ("plan_ns", nanoseconds(explain.plan_time)),
        ("compile_ns", nanoseconds(explain.compile_time)),
        ("groups", list(&explain.groups, group)),
        ("copies", list(&explain.copies, copy)),
        ("nodes", list(&explain.nodes, node)),
        ("edges", list(&explain.edges, edge)),
        ("outputs", list(&explain.outputs, name)),
        ("calls", list(&explain.calls, call)),
        ("segments", list(&explain.segments, segment)),
        ("other_segments", Json::Count(explain.other_segments)),
        ("backward", option(explain.backward.as_deref(), |backward| Json::Object(report(backward)))),
    ]
}

fn call(call: &CallReport) -> Json {
    Json::Object(vec![
        ("operator", text(&call.operator)),
        ("results", list(&call.results, |ty| text(ty))),
        ("place", option(call.place.as_ref(), place)),
        ("reason", reason(&call.reason)),
        ("ops", count(call.ops)),
        ("kernels", count(call.kernels)),
        ("before", Json::Object(report(&call.before))),
    ])
}

fn segment(segment: &SegmentReport) -> Json {
    Json::Object(vec![
        ("runs", Json::Count(segment.runs)),
        ("report", Json::Object(report(&segment.report))),
        ("end", option(segment.end.as_ref(), end)),
    ])
}

fn end(end: &BreakReport) -> Json {
    Json::Object(vec![("reason", reason(&end.reason)), ("place", option(end.place.as_ref(), place))])
}

fn timed(phase: &Timed) -> Json {
    Json::Object(vec![("name", text(phase.name)), ("ns", nanoseconds(phase.time))])
}

fn replay(replay: &Result<u32, Reason>) -> Json {
    let calls = replay.as_ref().ok().map(|&calls| u64::from(calls));
    Json::Object(vec![("calls", option(calls, Json::Count)), ("reason", option(replay.as_ref().err(), reason))])
}

fn rates(calibration: &Calibration) -> Json {
    let Rates { launch, bandwidth, jump, plain, functions, multiply_adds } = calibration.rates;
    let number = |value: u32| Json::Count(value.into());
    Json::Object(vec![
        ("source", text(&calibration.source)),
        ("launch_ns", number(launch)),
        ("bandwidth", list(&bandwidth, |&rate| number(rate))),
        ("jump", number(jump)),
        ("plain", number(plain)),
        ("functions", number(functions)),
        ("multiply_adds", number(multiply_adds)),
    ])
}

fn group(group: &Group) -> Json {
    Json::Object(vec![
        ("index", count(group.index)),
        ("kind", text(group.kind.name())),
        ("nodes", list(&group.nodes, name)),
        ("inputs", list(&group.inputs, name)),
        ("outputs", list(&group.outputs, name)),
        ("sources", list(&group.sources, source)),
        ("tier", option(group.tier.map(Tier::name), text)),
        ("device", option(group.device.map(|device| device.to_string()), |device| text(&device))),
        ("tier_up", option(group.tier_up, tier_up)),
        ("declined", option(group.declined.as_ref(), reason)),
        ("in_place", option(group.in_place.as_ref(), name)),
        ("remarks", list(&group.remarks, |remark| text(remark))),
        ("bytes_read", count(group.bytes_read)),
        ("bytes_written", count(group.bytes_written)),
        ("operations", Json::Count(group.operations as u64)),
        ("modelled_ns", nanoseconds(group.modelled_time)),
        ("measured", option(group.measured, measured)),
        ("compile_ns", nanoseconds(group.compile_time)),
        ("code", text(&group.code)),
    ])
}

fn copy(copy: &CopyReport) -> Json {
    let input = match copy.reason {
        CopyReason::WrittenBack { input } => count(input),
        CopyReason::KeptApart => Json::Null,
    };
    Json::Object(vec![
        ("value", name(&copy.value)),
        ("input", input),
        ("text", text(copy.reason)),
        ("bytes_read", count(copy.bytes_read)),
        ("bytes_written", count(copy.bytes_written)),
    ])
}

fn measured(Measured { calls, least, total }: Measured) -> Json {
    let calls = ("calls", Json::Count(calls));
    Json::Object(vec![calls, ("least_ns", nanoseconds(least)), ("total_ns", nanoseconds(total))])
}

fn tier_up(TierUp { tier, calls }: TierUp) -> Json {
    Json::Object(vec![("tier", text(tier.name())), ("calls", Json::Count(calls))])
}

fn node(report: &NodeReport) -> Json {
    let role = match (report.role, report.node.kind) {
        (Role::Input, _) => "input",
        (Role::Inline, NodeKind::Op(_)) => "fill",
        (Role::Inline, NodeKind::Input(_) | NodeKind::Number(_) | NodeKind::Extent(_)) => "number",
        (Role::Loop, _) => "loop",
        (Role::View, _) => "view",
        (Role::Product, _) => "product",
        (Role::Parts, _) => "parts",
        (Role::Routine, _) => "routine",
    };
    Json::Object(vec![
        ("id", name(&report.id)),
        ("role", text(role)),
        ("op", option(report.node.op().map(Op::name), text)),
        ("text", text(NodeText(&report.node))),
        ("args", list(&report.node.args, name)),
        ("type", text(&report.node.ty)),
        ("bytes", count(report.node.ty.bytes())),
        ("source", option(report.source.as_ref(), source)),
        ("place", option(report.place.as_ref(), place)),
        ("group", option(report.group, count)),
    ])
}

fn place(place: &Place) -> Json {
    let line = ("line", Json::Count(place.line.into()));
    Json::Object(vec![("file", text(&place.file)), line, ("scope", text(&place.scope))])
}

fn source(source: &Source) -> Json {
    Json::Object(vec![("node", name(&source.node)), ("op", text(source.op.name()))])
}

fn edge(edge: &Edge) -> Json {
    let (decision, why) = match &edge.decision {
        Decision::Fused { .. } => ("fused", Json::Null),
        Decision::Kept { reason: why, .. } => ("kept", reason(why)),
    };
    Json::Object(vec![
        ("producer", name(&edge.producer)),
        ("consumer", name(&edge.consumer)),
        ("decision", text(decision)),
        ("bytes", count(edge.bytes())),
        ("reason", why),
    ])
}

fn reason(reason: &Reason) -> Json {
    Json::Object(vec![
        ("kind", text(reason.kind())),
        ("area", option(reason.area(), text)),
        ("data", Json::Object(reason.data().into_iter().map(|(name, datum)| (name, json(datum))).collect())),
        ("detail", option(reason.detail(), text)),
        ("text", text(reason)),
        ("hint", text(reason.hint())),
    ])
}

fn json(datum: Datum) -> Json {
    match datum {
        Datum::Text(value) => Json::Text(value),
        Datum::Count(value) => Json::Count(value),
        Datum::Time(time) => nanoseconds(time),
        Datum::Flag(value) => Json::Flag(value),
    }
}

fn name(id: &NodeId) -> Json {
    text(id)
}

fn text(value: impl fmt::Display) -> Json {
    Json::Text(value.to_string())
}

fn count(value: usize) -> Json {
    Json::Count(value as u64)
}

fn nanoseconds(time: Duration) -> Json {
    Json::Count(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn option<T>(value: Option<T>, json: impl FnOnce(T) -> Json) -> Json {
    value.map_or(Json::Null, json)
}

fn list<T>(values: &[T], json: impl Fn(&T) -> Json) -> Json {
    Json::List(values.iter().map(json).collect())
}
