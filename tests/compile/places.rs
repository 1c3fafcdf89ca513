//! Source lines and named parts in traces, reports and profiles.

use opfuse::compile::explain::Explain;
use opfuse::profile::{Kind, Place};
use opfuse::{Result, Tensor, compile, profile, scope};

fn x() -> Result<Tensor> {
    Tensor::from_slice(&[0.5f32, -1.0, 2.0, 0.25], &[2, 2])
}

/// The places of the ops in a report, by op.
fn places(explain: &Explain) -> Vec<(String, Place)> {
    let nodes = explain.nodes.iter().filter_map(|node| Some((node.node.op()?.name().into(), node.place.clone()?)));
    nodes.collect()
}

#[test]
fn reports_know_the_lines_of_methods_operators_and_composites() -> Result<()> {
    let first = line!() + 2;
    let f = compile(|x: &Tensor| {
        let y = x.exp()?;
        let z = (&y * x)?;
        let w = z.celu(1.0)?;
        opfuse::cat(&[&w.mm(&y)?, x], 0)
    });
    f.call(&x()?)?;
    let explain = f.explain();
    let found = places(&explain);
    for (op, line) in [("exp", first), ("mul", first + 1), ("mm", first + 3)] {
        let places: Vec<&Place> = found.iter().filter(|(name, _)| name == op).map(|(_, place)| place).collect();
        assert!(!places.is_empty(), "{op}: {found:?}");
        let is_it = |place: &&Place| place.file.ends_with("places.rs") && place.line == line && place.scope.is_empty();
        assert!(places.iter().any(is_it), "{op}: {places:?}");
    }
    assert!(found.iter().all(|(_, place)| place.file.ends_with("places.rs")), "{found:?}");
    let text = explain.to_string();
    assert!(text.contains(&format!("places.rs:{first}")), "{text}");
    assert!(explain.to_json().contains(&format!("\"line\": {first}")));
    Ok(())
}

#[test]
fn named_parts_are_shown_and_nest() -> Result<()> {
    let f = compile(|x: &Tensor| {
        let y = scope("outer", || scope("inner", || x.exp()))?;
        y.relu()
    });
    f.call(&x()?)?;
    let found = places(&f.explain());
    let scope_of = |op: &str| found.iter().find(|(name, _)| name == op).map(|(_, place)| place.scope.to_string());
    assert_eq!(scope_of("exp").as_deref(), Some("outer/inner"));
    assert_eq!(scope_of("relu").as_deref(), Some(""));
    let x = x()?;
    let (_, profile) = profile(|| scope("outer", || scope("inner", || x.exp()).and_then(|y| y.relu())))?;
    let row = |name: &str| profile.row(Kind::Scope, name).expect("it ran");
    assert!(row("outer").total >= row("outer/inner").total);
    let exp = profile.row(Kind::Operator, "aten::exp").and_then(|row| row.place.clone()).expect("it has a place");
    assert_eq!(&*exp.scope, "outer/inner");
    Ok(())
}

#[test]
fn a_name_ends_with_its_part_also_by_a_panic() -> Result<()> {
    let caught = std::panic::catch_unwind(|| scope("lost", || panic!("planned")));
    assert!(caught.is_err());
    let x = x()?;
    let (_, profile) = profile(|| x.exp())?;
    let place = profile.row(Kind::Operator, "aten::exp").and_then(|row| row.place.clone()).expect("it has a place");
    assert!(place.scope.is_empty());
    Ok(())
}

#[test]
fn calls_of_one_operator_on_two_lines_are_two_rows() -> Result<()> {
    let x = x()?;
    let line = line!() + 2;
    let (_, profile) = profile(|| {
        drop(x.exp());
        drop(x.exp());
        (0..3).for_each(|_| drop(x.exp()));
    })?;
    let mut rows: Vec<(u32, u64)> =
        profile.of_kind(Kind::Operator).filter_map(|row| Some((row.place.as_ref()?.line, row.calls))).collect();
    rows.sort_unstable();
    assert_eq!(rows, [(line, 1), (line + 1, 1), (line + 2, 3)], "{profile}");
    assert!(profile.to_string().contains("places.rs:"), "{profile}");
    Ok(())
}

#[test]
fn captures_say_what_was_different() -> Result<()> {
    let f = compile(|x: &Tensor| x.exp());
    f.call(&x()?)?;
    f.call(&Tensor::from_slice(&[0.5f64, 1.0], &[2])?)?;
    let captures = f.captures();
    assert_eq!(captures[0].differs, None);
    let why = captures[1].differs.as_deref().expect("it is the second");
    assert!(why.contains("f64") && why.contains("f32"), "{why}");
    Ok(())
}
