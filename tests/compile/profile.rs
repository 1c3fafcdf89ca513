//! Profiles: what they see, what they never change, and what they refuse.

use opfuse::autograd::{GradOptions, grad};
use opfuse::compile::{CompileOptions, NewTypes};
use opfuse::profile::{Kind, Profile};
use opfuse::{Error, Result, Tensor, compile, compile_with, profile};
use serde_json::Value;

fn x() -> Result<Tensor> {
    let values: Vec<f32> = (0..256 * 96).map(|at| (at as f32 * 0.37).sin()).collect();
    Tensor::from_slice(&values, &[256, 96])
}

fn softmax(x: &Tensor) -> Result<Tensor> {
    let e = x.sub(&x.amax([-1], true)?)?.exp()?;
    e.div(&e.sum([-1], true)?)
}

fn bits(x: &Tensor) -> Result<Vec<u32>> {
    Ok(x.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect())
}

/// Spans nest, own times add up to what is covered, and no more than the wall is covered.
#[track_caller]
fn check_sums(profile: &Profile) {
    assert!(profile.covered <= profile.wall, "{profile}");
    assert_eq!(profile.dropped_spans, 0);
    let top: std::time::Duration = profile.spans.iter().filter(|span| span.depth == 0).map(|span| span.time).sum();
    assert_eq!(top, profile.covered);
    let own: std::time::Duration = profile.rows.iter().map(|row| row.own).sum();
    assert_eq!(own, profile.covered, "{profile}");
    // Spans are in the order of their ends, so a span comes after those inside it.
    let mut ended: Vec<&opfuse::profile::TimedSpan> = Vec::new();
    for span in &profile.spans {
        while let Some(inner) = ended.pop_if(|inner| inner.depth > span.depth) {
            assert!(span.start <= inner.start && inner.start + inner.time <= span.start + span.time, "{profile}");
        }
        if let Some(before) = ended.last() {
            assert!(before.start + before.time <= span.start, "{profile}");
        }
        ended.push(span);
    }
    for row in &profile.rows {
        assert!(row.least <= row.median && row.median <= row.total && row.own <= row.total, "{row:?}");
    }
    let calls: u64 = profile.rows.iter().map(|row| row.calls).sum();
    assert_eq!(calls, profile.spans.len() as u64);
    assert_eq!(profile.memory.timeline.len(), profile.spans.len());
}

#[test]
fn eager_calls_are_seen_with_their_traffic() -> Result<()> {
    let x = x()?;
    let plain = softmax(&x)?;
    let (result, profile) = profile(|| softmax(&x).and_then(|_| softmax(&x)).and_then(|_| softmax(&x)))?;
    assert_eq!(bits(&result?)?, bits(&plain)?);
    check_sums(&profile);
    let exp = profile.row(Kind::Operator, "aten::exp").expect("it was called");
    assert_eq!((exp.calls, exp.bytes), (3, 3 * 2 * 256 * 96 * 4));
    assert!(exp.operations >= 3.0 * 256.0 * 96.0 && exp.roof.is_some_and(|roof| roof > 0.0), "{exp:?}");
    assert!(exp.gigabytes_per_second().is_some_and(|rate| rate > 0.0));
    let sum = profile.row(Kind::Operator, "aten::sum.dim_IntList").expect("it was called");
    assert_eq!(sum.bytes, 3 * (256 * 96 + 256) * 4);
    assert!(profile.memory.peak.is_some_and(|peak| peak.live >= 256 * 96 * 4), "{:?}", profile.memory);
    Ok(())
}

#[test]
fn kernels_of_compiled_functions_are_seen() -> Result<()> {
    let x = x()?;
    let f = compile(softmax);
    let first = f.call(&x)?;
    let (result, profile) = f.profile(&x)?;
    assert_eq!(bits(&result)?, bits(&first)?);
    check_sums(&profile);
    let kernel = profile.of_kind(Kind::Kernel).next().expect("it has a kernel");
    let explain = f.explain();
    assert_eq!((kernel.calls, kernel.bytes), (1, explain.groups[0].bytes() as u64));
    assert_eq!(kernel.tier, explain.groups[0].tier.map(|tier| tier.name()));
    let measured = explain.groups[0].measured.expect("it was profiled");
    assert_eq!((measured.calls, measured.total), (1, kernel.total));
    assert!(explain.to_string().contains(", measured ") && explain.to_json().contains("\"least_ns\""), "{explain}");
    assert!(kernel.detail.contains("exp") && kernel.threads.is_some(), "{kernel:?}");
    assert_eq!(profile.of_kind(Kind::Capture).count(), 0, "{profile}");
    assert_eq!(profile.of_kind(Kind::Call).map(|row| row.calls).sum::<u64>(), 1);
    Ok(())
}

#[test]
fn captures_and_compiles_are_seen_and_traced_calls_are_not() -> Result<()> {
    let x = x()?;
    let f = compile(softmax);
    let (result, profile) = profile(|| f.call(&x))?;
    assert_eq!(bits(&result?)?, bits(&softmax(&x)?)?);
    check_sums(&profile);
    for kind in [Kind::Capture, Kind::Compile, Kind::Call] {
        assert_eq!(profile.of_kind(kind).map(|row| row.calls).sum::<u64>(), 1, "{kind:?}\n{profile}");
    }
    assert_eq!(profile.of_kind(Kind::Operator).count(), 0, "{profile}");
    Ok(())
}

#[test]
fn graph_breaks_are_events() -> Result<()> {
    let x = x()?;
    let f = compile(|x: &Tensor| {
        let y = x.exp()?;
        if y.sum_all()?.item::<f32>()? > 0.0 { y.relu()?.add(&y) } else { Ok(y) }
    });
    let (result, profile) = profile(|| f.call(&x).and_then(|_| f.call(&x)))?;
    result?;
    check_sums(&profile);
    assert!(!profile.events.is_empty(), "{profile}");
    assert!(profile.of_kind(Kind::Call).any(|row| row.name.starts_with("segment of")), "{profile}");
    Ok(())
}

#[test]
fn backward_passes_are_seen_eager_and_compiled() -> Result<()> {
    let loss = |w: &Tensor| softmax(&w.mul(w)?)?.mul(w)?.sum_all();
    let options = CompileOptions { new_types: NewTypes::Capture, ..CompileOptions::default() };
    let f = compile_with(loss, options);
    let w = x()?;
    w.set_requires_grad(true)?;
    let eager = |w: &Tensor| grad(&[&loss(w)?], &[w], &[], GradOptions::default());
    let compiled = |w: &Tensor| grad(&[&f.call(w)?], &[w], &[], GradOptions::default());
    compiled(&w)?;
    let plain = eager(&w)?;
    for (is_compiled, run) in [(false, &eager as &dyn Fn(&Tensor) -> Result<Vec<Option<Tensor>>>), (true, &compiled)] {
        let (gradient, profile) = profile(|| run(&w))?;
        let gradient = gradient?;
        check_sums(&profile);
        for (one, other) in gradient.iter().zip(&plain) {
            let [one, other] = [one, other].map(|gradient| gradient.as_ref().expect("it flows"));
            assert_eq!(bits(one)?, bits(other)?);
        }
        assert_eq!(profile.of_kind(Kind::Backward).map(|row| row.calls).sum::<u64>(), 1, "{profile}");
        assert!(profile.of_kind(Kind::Node).count() > 0, "{profile}");
        let backward = profile.of_kind(Kind::Call).any(|row| row.name.starts_with("backward pass of"));
        assert_eq!(backward, is_compiled, "{profile}");
    }
    Ok(())
}

#[test]
fn a_profile_inside_a_profile_is_refused_and_the_outer_goes_on() -> Result<()> {
    let x = x()?;
    let (inner, outer) = profile(|| {
        let inner = profile(|| panic!("it must not run")).map(|_: ((), Profile)| ());
        x.exp().map(|_| inner)
    })?;
    let Err(Error::Argument { op, what }) = inner? else { panic!("it is refused") };
    assert!(op == "profile" && what.contains("scope"), "{what}");
    assert_eq!(outer.row(Kind::Operator, "aten::exp").map(|row| row.calls), Some(1));
    check_sums(&outer);
    Ok(())
}

#[test]
fn a_panic_ends_the_profile() -> Result<()> {
    let x = x()?;
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        profile(|| {
            x.exp().expect("it works");
            panic!("planned");
        })
        .map(|_: ((), Profile)| ())
    }));
    assert!(caught.is_err());
    // The thread is as before: nothing is recorded, and the next profile begins anew.
    let y = x.exp()?;
    let (_, profile) = profile(|| y.relu())?;
    assert_eq!(profile.row(Kind::Operator, "aten::exp"), None);
    check_sums(&profile);
    Ok(())
}

#[test]
fn an_error_ends_its_spans() -> Result<()> {
    let x = x()?;
    let (result, profile) = profile(|| {
        let wrong = x.mm(&x).is_err();
        x.exp().map(|_| wrong)
    })?;
    assert!(result?);
    check_sums(&profile);
    Ok(())
}

#[test]
fn other_threads_are_not_seen() -> Result<()> {
    let x = x()?;
    let (_, profile) = profile(|| {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| x.exp().expect("it works"));
            }
        });
    })?;
    assert_eq!(profile.rows, []);
    check_sums(&profile);
    Ok(())
}

#[test]
fn json_and_traces_parse() -> Result<()> {
    let x = x()?;
    let f = compile(softmax);
    let (_, profile) = profile(|| f.call(&x).and_then(|y| y.exp()))?;
    let json: Value = serde_json::from_str(&profile.to_json()).expect("it is JSON");
    assert_eq!(json["schema"], "opfuse.profile/1");
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(profile.rows.len()));
    assert_eq!(json["wall_ns"].as_u64(), Some(profile.wall.as_nanos() as u64));
    let trace: Value = serde_json::from_str(&profile.to_chrome_trace()).expect("it is JSON");
    let events = trace["traceEvents"].as_array().expect("it has events");
    let spans: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(spans.len(), profile.spans.len());
    let (mut covered, mut end) = (0.0, 0.0);
    for (span, own) in spans.iter().zip(&profile.spans).filter(|(_, own)| own.depth == 0) {
        let [start, time] = ["ts", "dur"].map(|field| span[field].as_f64().expect("it is a number"));
        assert!(start >= end && time >= 0.0 && own.time.as_nanos() as f64 / 1e3 == time);
        (covered, end) = (covered + time, start + time);
    }
    assert!((covered - profile.covered.as_nanos() as f64 / 1e3).abs() < 1.0);
    let page = profile.to_html();
    assert_eq!(page.matches("<rect ").count(), profile.spans.len());
    assert_eq!(page.matches("<tr>").count(), 1 + profile.rows.len());
    assert!(page.contains("aten::exp") && !page.contains("http"), "{page}");
    let n_dots = profile.rows.iter().filter(|row| row.operations > 0.0 && row.bytes > 0).count();
    assert!(n_dots > 0);
    assert_eq!(page.matches("<ellipse data-row=").count(), n_dots, "{page}");
    let text = profile.to_string();
    assert!(text.contains("wall") && text.contains("built in") && text.contains("op aten::exp"), "{text}");
    Ok(())
}

#[test]
fn the_room_is_bounded_and_what_is_dropped_is_said() -> Result<()> {
    let x = Tensor::from_slice(&[1.0f32], &[1])?;
    let n = 70_000;
    let (_, profile) = profile(|| (0..n).for_each(|_| drop(x.exp())))?;
    let row = profile.row(Kind::Operator, "aten::exp").expect("it was called");
    assert_eq!(row.calls, n);
    assert_eq!(profile.spans.len() as u64 + profile.dropped_spans, n);
    assert!(profile.dropped_spans > 0 && profile.to_string().contains("dropped"), "{profile}");
    assert!(row.least <= row.median && row.median <= row.total);
    Ok(())
}

/// Most of a long computation is covered by spans. The bound is wide: other programs may take the processor away
/// between spans.
#[test]
fn the_sum_of_spans_is_close_to_the_wall() -> Result<()> {
    let x = x()?;
    let y = x.transpose(0, 1)?.contiguous()?;
    let best = (0..20).map(|_| {
        let (_, profile) = profile(|| (0..20).for_each(|_| drop(x.mm(&y).and_then(|z| softmax(&z)))))?;
        Ok(profile.covered.as_secs_f64() / profile.wall.as_secs_f64())
    });
    let best = best.collect::<Result<Vec<f64>>>()?.into_iter().fold(0.0, f64::max);
    assert!(best > 0.9, "only {best:.3} of the wall is covered");
    Ok(())
}
