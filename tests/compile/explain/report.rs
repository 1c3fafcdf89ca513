//! The data itself, and the text.

use super::functions::{block, reports};
use crate::values::ramp;
use opfuse::compile::explain::{Decision, GroupKind};
use opfuse::compile::{BreakPolicy, CompileOptions, compile_with};
use opfuse::func::{cond, fori_loop, scan_times};
use opfuse::internals::fusion::{MERGES, PARTITION, When};
use opfuse::internals::ir::passes::{Target, passes_for};
use opfuse::ir::{DType, Op, TensorType};
use opfuse::{Error, Explain, Reason, Result, Tensor, compile};

/// Checks what holds for every report.
fn check(name: &str, explain: &Explain) {
    assert_eq!(explain.kernels_after, explain.groups.len(), "{name}");
    let moved: usize = explain.groups.iter().map(|group| group.bytes_read + group.bytes_written).sum();
    assert_eq!(explain.bytes_after, moved, "{name}");
    for (index, group) in explain.groups.iter().enumerate() {
        assert_eq!(group.index, index, "{name}");
        assert!(group.outputs.iter().all(|node| group.nodes.contains(node)), "{name}");
        assert!(group.inputs.iter().all(|node| !group.nodes.contains(node)), "{name}");
        assert!(group.nodes.iter().all(|&node| explain.group_of(node).is_some_and(|own| own.index == index)), "{name}");
        let generated = matches!(group.kind, GroupKind::Kernel | GroupKind::Parts | GroupKind::Blocks);
        assert_eq!(group.code.is_empty(), !generated, "{name}");
        assert_eq!(group.tier.is_some(), generated, "{name}");
        assert!(!group.sources.is_empty(), "{name}: kernel {index} is for no call");
    }
    for edge in &explain.edges {
        let group = |node| explain.group_of(node).map(|group| group.index);
        assert_eq!(edge.is_fused(), group(edge.producer) == group(edge.consumer), "{name}: {edge:?}");
        assert!(edge.bytes() > 0, "{name}: {edge:?}");
        if let Decision::Kept { reason, hint, .. } = &edge.decision {
            assert_eq!(*hint, reason.hint(), "{name}");
            assert!(hint.len() > 20, "{name}: {hint}");
        }
    }
    // A function that returns its inputs runs nothing.
    if !explain.groups.is_empty() {
        let passes: Vec<&str> = explain.passes.iter().map(|pass| pass.name).collect();
        assert_eq!(passes, passes_for(Target::Cpu).map(|pass| pass.name).collect::<Vec<_>>(), "{name}");
        let steps: Vec<&str> = explain.merges.iter().map(|step| step.name).collect();
        let known = || [PARTITION].into_iter().chain(MERGES.iter().map(|merge| merge.name));
        let always = MERGES.iter().filter(|merge| merge.when == When::Always).map(|merge| merge.name);
        assert!(known().filter(|name| steps.contains(name)).eq(steps.iter().copied()), "{name}: {steps:?}");
        assert!(always.into_iter().all(|name| steps.contains(&name)), "{name}: {steps:?}");
    }
    explain.backward.iter().for_each(|backward| check(name, backward));
}

#[test]
fn reports_are_consistent() -> Result<()> {
    let reports = reports()?;
    reports.iter().for_each(|(name, explain)| check(name, explain));
    assert!(reports.iter().any(|(_, explain)| explain.backward.is_some()));
    Ok(())
}

#[test]
fn nodes_remember_the_call_they_were_made_for() -> Result<()> {
    let f = compile(block);
    f.call((&ramp(&[8, 16]), &ramp(&[16, 32]), &ramp(&[32, 16]), &ramp(&[16])))?;
    let explain = f.explain();
    let calls = |op: Op| {
        let nodes = explain.nodes.iter().filter(|node| node.source.is_some_and(|source| source.op == op));
        nodes.filter_map(|node| node.node.op()).collect::<Vec<Op>>()
    };
    assert!(calls(Op::LayerNorm).contains(&Op::Rsqrt) && calls(Op::LayerNorm).len() > 8, "{:?}", calls(Op::LayerNorm));
    assert_eq!(calls(Op::Mm), [Op::Mm, Op::Mm]);
    let text = explain.to_string();
    assert!(text.contains("add, layer_norm(sum, div, sub, "), "{text}");
    assert!(explain.groups.iter().any(|group| group.sources.iter().any(|source| source.name() == "layer_norm")));
    Ok(())
}

#[test]
fn bytes_of_an_edge_are_those_that_it_moves() -> Result<()> {
    let (x, w) = (ramp(&[10, 10]), ramp(&[10, 10]));
    let size = 400;
    // One user: the value is written and read for it.
    let one = compile(|x: &Tensor, w: &Tensor| w.mm(&x.exp()?));
    one.call((&x, &w))?;
    assert_eq!(one.explain().kept().map(|edge| edge.bytes()).collect::<Vec<_>>(), [2 * size]);
    // The value is returned as well, so it is written anyway.
    let returned = compile(|x: &Tensor, w: &Tensor| {
        let exp = x.exp()?;
        Ok((w.mm(&exp)?, exp))
    });
    returned.call((&x, &w))?;
    assert_eq!(returned.explain().kept().map(|edge| edge.bytes()).collect::<Vec<_>>(), [size]);
    // A view of the value is returned, which is the same memory.
    let viewed = compile(|x: &Tensor, w: &Tensor| {
        let exp = x.exp()?;
        Ok((w.mm(&exp)?, exp.transpose(0, 1)?))
    });
    viewed.call((&x, &w))?;
    assert_eq!(viewed.explain().kept().map(|edge| edge.bytes()).collect::<Vec<_>>(), [size]);
    // The edge is fused, and the value has no other reader.
    let fused = compile(|x: &Tensor, _: &Tensor| x.exp()?.relu());
    fused.call((&x, &w))?;
    assert_eq!(fused.explain().edges[0].decision, Decision::Fused { bytes: 2 * size });
    Ok(())
}

#[test]
fn a_report_without_kernels_says_why() -> Result<()> {
    let eagerly = CompileOptions { breaks: BreakPolicy::Eager, ..CompileOptions::default() };
    let f = compile_with(|x: &Tensor| x.mul(x.sum_all()?.item::<f32>()? as f64), eagerly);
    assert_eq!(f.explain().eager, Some(Reason::NotCalled));
    let meta = Tensor::meta(&TensorType::contiguous(DType::F32, &[3]))?;
    assert!(f.call(&meta).is_err());
    assert!(matches!(f.explain().eager, Some(Reason::NotCaptured(_))), "{}", f.explain());
    f.call(&ramp(&[3]))?;
    let explain = f.explain();
    assert!(matches!(explain.eager, Some(Reason::ReadsValue { .. })), "{explain}");
    for text in [explain.to_string(), explain.plan_text()] {
        assert!(text.contains("runs eagerly") && text.contains("item"), "{text}");
    }
    assert!(explain.to_string().contains("hint: "), "{explain}");
    assert_eq!(explain.to_dot(), "");
    Ok(())
}

/// A call that fails leaves the report of the calls before it.
#[test]
fn a_failed_call_has_no_report() -> Result<()> {
    let f = compile(|a: &Tensor, b: &Tensor| a.add(b)?.exp());
    let (a, b) = (ramp(&[3, 4]), ramp(&[3, 5]));
    assert!(matches!(f.call((&a, &b)), Err(Error::Broadcast { .. })));
    assert!(f.explain().eager.is_some());
    f.call((&a, &a))?;
    assert!(f.explain().eager.is_none(), "{}", f.explain());
    Ok(())
}

/// A counted call returns and does what a call does, and reports the bytes of each group.
#[test]
fn counted_calls_do_what_calls_do() -> Result<()> {
    let f = compile(|x: &Tensor| {
        x.add_(1.0)?;
        Ok((x.exp()?, x.transpose(0, 1)?))
    });
    let (x, y) = (ramp(&[4, 6]), ramp(&[4, 6]));
    assert!(matches!(f.call_counted(&x), Err(Error::Argument { .. })), "nothing is compiled yet");
    let (exp, view) = f.call(&x)?;
    let ((counted_exp, counted_view), traffic) = f.call_counted(&y)?;
    assert_eq!(exp.to_vec::<f32>()?, counted_exp.to_vec::<f32>()?);
    assert_eq!(x.to_vec::<f32>()?, y.to_vec::<f32>()?, "it wrote to its input");
    assert_eq!((view.sizes(), view.strides()), (counted_view.sizes(), counted_view.strides()));
    y.fill_(7.0)?;
    assert_eq!(counted_view.to_vec::<f32>()?, [7.0; 24], "a view of an input stays one");
    let groups = f.explain().groups;
    assert_eq!(traffic.len(), groups.len());
    for (group, traffic) in groups.iter().zip(&traffic) {
        assert_eq!(
            (group.index, group.bytes_read, group.bytes_written),
            (traffic.kernel, traffic.read, traffic.written)
        );
    }
    // Only a run shows which elements an index picks twice.
    let pick = compile(|x: &Tensor, at: &Tensor| x.index_select(0, at)?.exp());
    let at = Tensor::from_slice(&[1i64, 1, 1], &[3])?;
    pick.call((&x, &at))?;
    let (_, traffic) = pick.call_counted((&x, &at))?;
    assert_eq!((traffic[0].read, pick.explain().groups[0].bytes_read), (6 * 4 + 3 * 8, 3 * 6 * 4 + 3 * 8));
    let outside = Tensor::from_slice(&[1i64, 9, 1], &[3])?;
    let [call, counted] = [pick.call((&x, &outside)).err(), pick.call_counted((&x, &outside)).err()];
    assert_eq!(call.map(|error| error.to_string()), counted.map(|error| error.to_string()));
    Ok(())
}

#[test]
fn bodies_of_loops_and_branches_are_counted() -> Result<()> {
    let decay = |x: &Tensor| -> Result<Tensor> { x.sin()?.mul(0.5) };
    let alone = compile(move |x: &Tensor| fori_loop(0..5, |_, c: &Tensor| decay(c), x));
    alone.call(&ramp(&[3]))?;
    let explain = alone.explain();
    let [call] = &explain.calls[..] else { panic!("{explain}") };
    assert_eq!((call.ops, call.kernels), (2, 1), "{explain}");
    let text = explain.to_string();
    assert!(text.starts_with("2 ops in 1 kernel in the body of fori_loop\n"), "{text}");
    assert!(text.contains("report.rs") && text.contains(", with 2 ops in 1 kernel in its body: "), "{text}");
    assert!(explain.to_json().contains("\"ops\": 2"), "{}", explain.to_json());
    // A loop with a loop and a branch in it, and work of the function itself.
    let nested = compile(move |x: &Tensor| {
        let step = |c: &Tensor| {
            let inner = scan_times(|c: &Tensor| Ok((decay(c)?, c.clone())), c, 2)?.0;
            let chosen = cond(&inner.sum_all()?.gt(0.0)?, |c: &Tensor| decay(c), |c: &Tensor| c.neg(), &inner)?;
            Ok((chosen.clone(), chosen))
        };
        scan_times(step, x, 3)?.0.exp()
    });
    nested.call(&ramp(&[3]))?;
    let explain = nested.explain();
    // Two of the inner loop, three of both branches, a sum and a comparison.
    assert_eq!(explain.calls[0].ops, 7, "{explain}");
    let text = explain.to_string();
    assert!(text.starts_with("1 op in 1 kernel, 7 ops in ") && text.contains(" in the body of scan_times\n"), "{text}");
    Ok(())
}
