//! Reports of functions that run in segments.

use super::html::elements;
use crate::values::ramp;
use expect_test::expect;
use opfuse::compile::explain::{Answer, BreakReport};
use opfuse::compile::{CompileOptions, Stance, compile_with};
use opfuse::{Explain, Reason, Result, Tensor, assert_fused, compile};
use serde_json::Value;

/// Three segments: the first ends at a read, the second at a read of another kind.
fn reads_twice(x: &Tensor) -> Result<Tensor> {
    let y = x.mul(2.0)?.tanh()?;
    let greatest = y.amax((), false)?.item::<f32>()?;
    let z = y.div(f64::from(greatest))?.exp()?;
    let all = z.amin([0], false)?.to_vec::<f32>()?;
    z.sub(f64::from(all[0]))?.relu()
}

/// The line of the first read of [`reads_twice`].
const FIRST_READ: u32 = 14;

/// The report without times and tiers, which depend on the machine.
fn without_times(text: &str) -> String {
    let is_timed = |line: &&str| ["modelled", "planned", "passes", "merge"].iter().any(|word| line.starts_with(word));
    let lines = text.lines().filter(|line| !is_timed(line)).map(|line| match line.split_once(", modelled ") {
        Some((before, after)) => {
            let untiered = before.split(['[', ']']).step_by(2).collect::<String>();
            format!("{untiered}{}\n", after.find(": ").map_or("", |at| &after[at..]))
        }
        None => format!("{line}\n"),
    });
    lines.collect()
}

fn report() -> Result<Explain> {
    let f = compile(reads_twice);
    f.call(&ramp(&[4, 8]))?;
    Ok(f.explain())
}

#[test]
fn all_segments_are_shown_with_what_broke_between_them() -> Result<()> {
    let explain = report()?;
    assert_eq!(explain.segments.len(), 3, "{explain}");
    let text = without_times(&explain.to_string());
    expect![[r#"
        3 segments: 8 ops in 3 kernels
        1852 bytes unfused, 820 fused (44 %)
        at most 160 bytes allocated at a time
        segment 1 of 3:
        3 ops in 1 kernel
        652 bytes unfused, 260 fused (40 %)
        at most 132 bytes allocated at a time
        kernel 0  reads 128, writes 132 bytes: mul, tanh, amax at tests/compile/explain/segments.rs:13, 14
        graph break: item reads a value while the function is traced; at tests/compile/explain/segments.rs:14
        hint: keep the decision in tensors (`where_`, masks), or read the value before or after the compiled part
        segment 2 of 3:
        3 ops in 1 kernel
        680 bytes unfused, 296 fused (44 %)
        at most 160 bytes allocated at a time
        kernel 0  reads 136, writes 160 bytes: div, exp, amin at tests/compile/explain/segments.rs:15, 16
        graph break: to_vec reads a value while the function is traced; at tests/compile/explain/segments.rs:16
        hint: keep the decision in tensors (`where_`, masks), or read the value before or after the compiled part
        segment 3 of 3:
        2 ops in 1 kernel
        520 bytes unfused, 264 fused (51 %)
        at most 128 bytes allocated at a time
        kernel 0  reads 136, writes 128 bytes: sub, relu at tests/compile/explain/segments.rs:17
    "#]]
    .assert_eq(&text);
    Ok(())
}

#[test]
fn totals_are_those_of_all_segments() -> Result<()> {
    let f = compile(reads_twice);
    f.call(&ramp(&[4, 8]))?;
    for explain in [f.explain(), f.call(&ramp(&[4, 8])).map(|_| f.explain())?] {
        let sum = |number: fn(&Explain) -> usize| explain.segments.iter().map(|one| number(&one.report)).sum::<usize>();
        assert_eq!(explain.kernels_after, sum(|report| report.groups.len()));
        assert_eq!(explain.kernels_before, sum(|report| report.kernels_before));
        assert_eq!(explain.bytes_after, sum(|report| report.bytes_after));
        assert_eq!(explain.bytes_before, sum(|report| report.bytes_before));
        assert_eq!(explain.modelled_time(), explain.segments.iter().map(|one| one.report.modelled_time()).sum());
        assert_eq!(explain.compile_time, explain.segments.iter().map(|one| one.report.compile_time).sum());
        assert!(explain.groups.is_empty() && explain.nodes.is_empty() && explain.eager.is_none());
    }
    let kernels = f.explain().kernels_after;
    assert!(kernels >= 3, "{}", f.explain());
    assert_fused!(f, kernels <= kernels);
    let message = f.explain().check(&[opfuse::compile::explain::Limit::Kernels(1)]).expect_err("there are more");
    assert!(message.contains("segment 2 of 3") && message.contains("graph break: item"), "{message}");
    Ok(())
}

#[test]
fn a_segment_that_runs_again_is_shown_once() -> Result<()> {
    let f = compile(|x: &Tensor| {
        let mut x = x.clone();
        while x.abs()?.amax((), false)?.item::<f32>()? > 0.25 {
            x = x.mul(0.5)?;
        }
        x.exp()
    });
    // The first call takes the greatest element of the input itself, the others that of a value.
    let x = Tensor::from_slice(&[4.0f32, -1.0], &[2])?;
    let expected = Tensor::from_slice(&[0.25f32, -0.0625], &[2])?.exp()?.to_vec::<f32>()?;
    for _ in 0..2 {
        assert_eq!(f.call(&x)?.to_vec::<f32>()?, expected);
        let explain = f.explain();
        let runs: Vec<u64> = explain.segments.iter().map(|segment| segment.runs).collect();
        assert_eq!(runs, [1, 4, 1], "{explain}");
        assert!(explain.to_string().contains("segment 2 of 3, run 4 times:"), "{explain}");
        let kernels: Vec<usize> = explain.segments.iter().map(|segment| segment.report.kernels_after).collect();
        assert_eq!(explain.kernels_after, kernels[0] + 4 * kernels[1] + kernels[2]);
        let compiled = explain.segments.iter().map(|segment| segment.report.compile_time).sum();
        assert_eq!(explain.compile_time, compiled, "a graph is compiled once");
    }
    Ok(())
}

#[test]
fn the_list_of_segments_is_bounded_and_says_what_it_leaves_out() -> Result<()> {
    let f = compile(|x: &Tensor| {
        for start in 0..300 {
            x.narrow(0, start, 1)?.exp()?.to_vec::<f32>()?;
        }
        x.exp()
    });
    f.call(&ramp(&[300]))?;
    let explain = f.explain();
    assert_eq!((explain.segments.len(), explain.other_segments), (256, 45));
    assert!(
        explain.to_string().starts_with("256 segments without 45 runs of others: 256 ops in 256 kernels"),
        "{explain}"
    );
    Ok(())
}

#[test]
fn a_function_of_one_segment_is_reported_as_one_without_breaks() -> Result<()> {
    let reads = compile(|x: &Tensor| {
        let sum = x.mul(2.0)?.tanh()?.sum_all()?;
        Tensor::scalar(sum.item::<f32>()?)
    });
    let whole = compile(|x: &Tensor| x.mul(2.0)?.tanh()?.sum_all());
    let x = ramp(&[4, 8]);
    whole.call(&x)?;
    let expected = without_times(&whole.explain().to_string());
    for _ in 0..2 {
        reads.call(&x)?;
        let explain = reads.explain();
        assert!(explain.segments.is_empty());
        // The two functions stand on other lines.
        let same = |text: &str| {
            text.lines().map(|line| line.split(" at ").next().unwrap_or_default().into()).collect::<Vec<String>>()
        };
        assert_eq!(same(&without_times(&explain.to_string())), same(&expected));
    }
    Ok(())
}

#[test]
fn other_views_show_all_segments() -> Result<()> {
    let explain = report()?;
    let plan = explain.plan_text();
    let starts: Vec<&str> = plan.lines().filter(|line| line.starts_with("segment ")).collect();
    assert_eq!(starts, ["segment 1 of 3", "segment 2 of 3", "segment 3 of 3"], "{plan}");
    assert!(!plan.contains("segments.rs"), "a plan has no lines");
    assert_eq!(explain.to_dot().matches("digraph {").count(), 3);
    assert!(matches!(explain.why("mul", "tanh")?.answer, Answer::Together { .. }), "of the first segment");
    assert!(matches!(explain.why("sub", "relu")?.answer, Answer::Together { .. }), "of the last segment");
    let error = explain.why("tanh", "relu").expect_err("a graph break is between them").to_string();
    assert!(error.contains("none of the 3 segments has both"), "{error}");

    let page = explain.to_html();
    let elements = elements("segments", &page);
    let count = |element: &str| elements.iter().filter(|other| *other == element).count();
    assert_eq!((page.matches("<div class=\"graph\">").count(), count("script"), count("h1")), (3, 1, 1));
    assert!((1..=3).all(|at| page.contains(&format!("<h2>Segment {at} of 3</h2>"))), "{page}");
    for segment in &explain.segments {
        for code in segment.report.groups.iter().map(|group| group.code.replace('<', "&lt;").replace('>', "&gt;")) {
            assert!(page.contains(&code.replace('"', "&quot;")), "{page}");
        }
    }
    let place = format!("segments.rs:{FIRST_READ}.</p>");
    assert!(page.contains("Graph break: item reads a value") && page.contains(&place), "{page}");
    Ok(())
}

#[test]
fn json_has_all_segments() -> Result<()> {
    let explain = report()?;
    let json: Value = serde_json::from_str(&explain.to_json()).expect("it is JSON");
    assert_eq!(json["kernels"]["after"], explain.kernels_after);
    let segments = json["segments"].as_array().expect("a list");
    assert_eq!(segments.len(), 3);
    for (found, segment) in segments.iter().zip(&explain.segments) {
        assert_eq!(found["runs"], segment.runs);
        assert_eq!(found["report"]["groups"].as_array().map(Vec::len), Some(segment.report.groups.len()));
        match &segment.end {
            Some(BreakReport { reason, place }) => {
                assert_eq!(found["end"]["reason"]["kind"], reason.kind());
                assert_eq!(found["end"]["place"]["line"].as_u64(), place.as_ref().map(|place| u64::from(place.line)));
            }
            None => assert!(found["end"].is_null()),
        }
    }
    Ok(())
}

/// A call that no graph holds names its operator and its line.
#[test]
fn a_call_between_segments_is_named() -> Result<()> {
    let weight = ramp(&[8, 8]);
    weight.set_requires_grad(true)?;
    let line = line!() + 4;
    let f = compile_with(
        |x: &Tensor| {
            let y = x.mul(2.0)?.tanh()?;
            let z = y.mm(&weight)?.detach()?;
            z.exp()?.relu()
        },
        CompileOptions { stance: Stance::Deferred, ..CompileOptions::default() },
    );
    f.call(&ramp(&[4, 8]))?;
    let explain = f.explain();
    let end = explain.segments[0].end.clone().expect("it is not the last");
    assert!(end.reason.to_string().contains("mm"), "{end}");
    assert!(!matches!(end.reason, Reason::ReadsValue { .. }), "{end}");
    assert_eq!(end.place.map(|place| place.line), Some(line), "{explain}");
    Ok(())
}
