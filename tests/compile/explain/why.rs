//! Questions about two ops.

use super::functions::{block, joined};
use crate::values::ramp;
use opfuse::compile::explain::{Answer, Decision};
use opfuse::{Error, Explain, Reason, Result, Tensor, compile};

fn report() -> Result<Explain> {
    let f = compile(block);
    f.call((&ramp(&[8, 16]), &ramp(&[16, 32]), &ramp(&[32, 16]), &ramp(&[16])))?;
    Ok(f.explain())
}

fn reasons(answer: &Answer) -> Vec<&Reason> {
    let Answer::Apart { path } = answer else { panic!("{answer:?}") };
    path.iter()
        .filter_map(|edge| match &edge.decision {
            Decision::Kept { reason, .. } => Some(reason),
            Decision::Fused { .. } => None,
        })
        .collect()
}

#[test]
fn why_explains_unfused_neighbours() -> Result<()> {
    let f = compile(|x: &Tensor, w: &Tensor| x.mm(w)?.cumsum(0));
    f.call((&ramp(&[8, 16]), &ramp(&[16, 32])))?;
    let why = f.explain().why("mm", "cumsum")?;
    assert_eq!(why.a.1, "mm");
    assert_eq!(reasons(&why.answer), [&Reason::OpaqueOp], "{why}");
    assert!(why.to_string().contains("hint: "), "{why}");
    Ok(())
}

#[test]
fn a_calls_name_stands_for_all_of_its_ops() -> Result<()> {
    let explain = report()?;
    for (a, b) in [("add", "layer_norm"), ("layer_norm", "add")] {
        let why = explain.why(a, b)?;
        let Answer::Together { path, .. } = &why.answer else { panic!("{why}") };
        assert!(!path.is_empty() && path.iter().all(|edge| edge.is_fused()), "{why}");
    }
    // Ops that a call is made of.
    let why = explain.why("rsqrt", "sum")?;
    assert!(matches!(why.answer, Answer::Together { .. }), "{why}");
    Ok(())
}

#[test]
fn why_follows_a_path_over_other_ops() -> Result<()> {
    let explain = report()?;
    let (first, last) = (&explain.groups[0], explain.groups.last().expect("there are kernels"));
    let why = explain.why(&first.nodes[0].to_string(), &last.outputs[0].to_string())?;
    let Answer::Apart { path } = &why.answer else { panic!("{why}") };
    assert!(path.len() > 3 && path.windows(2).all(|two| two[0].consumer == two[1].producer), "{why}");
    assert_eq!((path[0].producer, path[path.len() - 1].consumer), (first.nodes[0], last.outputs[0]));
    // The reverse order gives the same path.
    let turned = explain.why(&last.outputs[0].to_string(), &first.nodes[0].to_string())?;
    assert_eq!((turned.a, turned.answer), (why.b.clone(), why.answer.clone()));
    Ok(())
}

#[test]
fn views_are_looked_through() -> Result<()> {
    let f = compile(joined);
    f.call(&ramp(&[8, 16]))?;
    let why = f.explain().why("transpose", "cumsum")?;
    assert_eq!(reasons(&why.answer), [&Reason::OpaqueOp], "{why}");
    Ok(())
}

#[test]
fn ops_without_a_path_are_said_to_have_none() -> Result<()> {
    let f = compile(|x: &Tensor, y: &Tensor| Ok((x.exp()?, y.sum([0], false)?)));
    f.call((&ramp(&[4]), &ramp(&[6, 7])))?;
    let why = f.explain().why("exp", "sum")?;
    assert_eq!(why.answer, Answer::NoPath, "{why}");
    assert!(why.to_string().contains("there is no path"), "{why}");
    Ok(())
}

#[test]
fn why_of_an_op_and_itself_is_answered() -> Result<()> {
    let why = report()?.why("layer_norm", "layer_norm")?;
    assert!(matches!(why.answer, Answer::Together { .. }), "{why}");
    Ok(())
}

#[test]
fn inputs_belong_to_no_kernel() -> Result<()> {
    let explain = report()?;
    let input = explain.nodes[0].id;
    let why = explain.why("layer_norm", &input.to_string())?;
    assert_eq!(why.answer, Answer::InNoKernel { node: input }, "{why}");
    Ok(())
}

#[test]
fn unknown_names_are_refused() -> Result<()> {
    let explain = report()?;
    for name in ["n999", "no_such_op", "", "n"] {
        let error = explain.why(name, "mm").expect_err(name);
        assert!(matches!(&error, Error::Argument { what, .. } if what.contains("layer_norm")), "{error}");
    }
    Ok(())
}

#[test]
fn why_without_a_compiled_graph_is_answered() -> Result<()> {
    let f = compile(|x: &Tensor| x.exp());
    let why = f.explain().why("exp", "sum")?;
    assert_eq!(why.answer, Answer::Eager { reason: Reason::NotCalled }, "{why}");
    let nothing = compile(|x: &Tensor| Ok(x.clone()));
    nothing.call(&ramp(&[2]))?;
    assert!(nothing.explain().why("exp", "sum").is_err());
    Ok(())
}
