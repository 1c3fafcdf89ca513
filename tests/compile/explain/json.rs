//! JSON parses back and holds everything that the data holds.

use super::functions::reports;
use crate::values::ramp;
use opfuse::compile::explain::{Decision, SCHEMA};
use opfuse::compile::{BreakPolicy, CompileOptions, compile_with};
use opfuse::{Explain, Reason, Result, Tensor};
use serde_json::Value;
use std::collections::BTreeSet;

fn parsed(explain: &Explain) -> Value {
    serde_json::from_str(&explain.to_json()).unwrap_or_else(|error| panic!("{error}\n{}", explain.to_json()))
}

fn check(name: &str, explain: &Explain, json: &Value) {
    assert_eq!(json["kernels"]["after"], explain.kernels_after, "{name}");
    assert_eq!(json["bytes"]["before"], explain.bytes_before, "{name}");
    let list = |key: &str| json[key].as_array().unwrap_or_else(|| panic!("{name}: {key} is no list"));
    assert_eq!(list("nodes").len(), explain.nodes.len(), "{name}");
    assert_eq!(list("groups").len(), explain.groups.len(), "{name}");
    for (found, node) in list("nodes").iter().zip(&explain.nodes) {
        assert_eq!(found["id"], node.id.to_string(), "{name}");
        assert_eq!(found["type"], node.node.ty.to_string(), "{name}");
        assert_eq!(found["group"].as_u64().map(|group| group as usize), node.group, "{name}");
    }
    for (found, group) in list("groups").iter().zip(&explain.groups) {
        assert_eq!(found["kind"], group.kind.name(), "{name}");
        assert_eq!(found["code"], group.code, "{name}");
        assert_eq!(found["bytes_read"], group.bytes_read, "{name}");
        assert_eq!(found["modelled_ns"], group.modelled_time.as_nanos() as u64, "{name}");
    }
    for (key, phases) in [("passes", &explain.passes), ("merges", &explain.merges)] {
        assert_eq!(list(key).len(), phases.len(), "{name}");
        for (found, phase) in list(key).iter().zip(phases) {
            assert_eq!(found["name"], phase.name, "{name}");
            assert_eq!(found["ns"], phase.time.as_nanos() as u64, "{name}");
        }
    }
    assert_eq!(list("edges").len(), explain.edges.len(), "{name}");
    for (found, edge) in list("edges").iter().zip(&explain.edges) {
        assert_eq!(found["producer"], edge.producer.to_string(), "{name}");
        assert_eq!(found["consumer"], edge.consumer.to_string(), "{name}");
        assert_eq!(found["bytes"], edge.bytes(), "{name}");
        match &edge.decision {
            Decision::Fused { .. } => {
                assert_eq!((&found["decision"], &found["reason"]), (&"fused".into(), &Value::Null), "{name}");
            }
            Decision::Kept { reason, hint, .. } => {
                assert_eq!(found["decision"], "kept", "{name}");
                assert_eq!(found["reason"]["kind"], reason.kind(), "{name}");
                assert_eq!(found["reason"]["text"], reason.to_string(), "{name}");
                assert_eq!(found["reason"]["hint"], *hint, "{name}");
            }
        }
    }
    match &explain.backward {
        Some(backward) => check(name, backward, &json["backward"]),
        None => assert!(json["backward"].is_null(), "{name}"),
    }
}

#[test]
fn json_has_everything() -> Result<()> {
    for (name, explain) in reports()? {
        let json = parsed(&explain);
        assert_eq!(json["schema"], SCHEMA);
        assert!(json["eager"].is_null());
        check(name, &explain, &json);
        let keys: Vec<usize> = ["\"schema\"", "\"eager\"", "\"kernels\"", "\"groups\"", "\"nodes\"", "\"edges\""]
            .map(|key| explain.to_json().find(key).unwrap_or_else(|| panic!("{key} is missing")))
            .to_vec();
        assert!(keys.is_sorted(), "{keys:?}");
    }
    Ok(())
}

#[test]
fn odd_strings_are_quoted() {
    let odd = "a \"word\", a \\, a\nline, a\ttab, a \u{1}, ä and 🦀";
    let explain = Explain::eager(Reason::Panicked { message: odd.into() });
    let json = parsed(&explain);
    assert_eq!(json["eager"]["kind"], "panicked");
    assert_eq!(json["eager"]["data"]["message"], odd);
    assert_eq!(json["eager"]["detail"], odd);
    assert_eq!(json["groups"], Value::Array(Vec::new()));
}

#[test]
fn a_function_that_runs_eagerly_says_so() -> Result<()> {
    let eagerly = CompileOptions { breaks: BreakPolicy::Eager, ..CompileOptions::default() };
    let f = compile_with(|x: &Tensor| x.mul(x.sum_all()?.item::<f32>()? as f64), eagerly);
    assert_eq!(parsed(&f.explain())["eager"]["kind"], "not_called");
    f.call(&ramp(&[3]))?;
    assert_eq!(parsed(&f.explain())["eager"]["kind"], "reads_value");
    Ok(())
}

/// Every key of an object of some kind that occurs in `json`.
fn keys(json: &Value, found: &mut BTreeSet<String>) {
    match json {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            found.insert(key.clone());
            keys(value, found);
        }),
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_guide_lists_every_key() -> Result<()> {
    let guide = include_str!("../../../docs/explain.md");
    let mut found = BTreeSet::new();
    for (_, explain) in reports()? {
        keys(&parsed(&explain), &mut found);
    }
    assert!(found.len() > 30, "{found:?}");
    let missing: Vec<&String> = found.iter().filter(|key| !guide.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "docs/explain.md does not say what {missing:?} are");
    assert!(guide.contains(include_str!("plans/softmax.txt")), "the guide shows another plan");
    Ok(())
}
