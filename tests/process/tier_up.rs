//! Kernels of little work begin in the vm and get machine code once they have run often.

#![allow(clippy::print_stdout, reason = "a skipped test says so")]

use crate::alone::has_run_alone;
use crate::values::{bits, ramp};
use opfuse::internals::codegen::LoopOrder;
use opfuse::internals::codegen::lower::{Lowered, lower};
use opfuse::internals::codegen::tier::{Compiled, Tier};
use opfuse::internals::codegen::tier_up::{Code, TierUp};
use opfuse::internals::codegen::x64::Level;
use opfuse::internals::fusion::{Options, StepKind, plan};
use opfuse::ir::{Attrs, Graph, Op, TensorType};
use opfuse::{DType, Explain, Result, Tensor, compile};

/// A chain of these ops on `n` elements.
fn chain(n: usize, ops: &[Op]) -> Lowered {
    let mut graph = Graph::new();
    let mut last = graph.input(TensorType::contiguous(DType::F32, &[n]));
    for &op in ops {
        last = graph.add(op, &[last], Attrs::new()).expect("the ops take one operand");
    }
    graph.set_outputs(vec![last]);
    let plan = plan(&graph, &Options::default());
    let [StepKind::Kernel(region)] = &plan.steps.iter().map(|step| &step.kind).collect::<Vec<_>>()[..] else {
        panic!("a chain is one kernel: {:?}", plan.steps)
    };
    lower(&graph, region, LoopOrder::OfMemory).expect("a chain is lowered")
}

#[test]
fn little_work_begins_in_the_vm_and_gets_machine_code() {
    if has_run_alone() {
        return;
    }
    if Level::best().is_none() {
        println!("skipped: this machine has neither AVX-512 nor AVX2");
        return;
    }
    let Lowered { kernel, geometry, .. } = chain(100, &[Op::Neg, Op::Abs, Op::Sqrt, Op::Exp]);
    let code = Code::new(None, &kernel, &geometry).expect("it is compiled");
    let TierUp { tier, calls } = code.tier_up().expect("it is little work");
    assert!(tier == Tier::X64 && calls > 10, "{tier} after {calls} calls");
    for call in 0..calls {
        let running = code.next(&kernel, &geometry);
        assert!(matches!(running.entry.compiled, Compiled::Vm(_)), "call {call} of {calls}");
    }
    assert!(matches!(code.next(&kernel, &geometry).entry.compiled, Compiled::X64(_)));
    assert_eq!((code.now().entry.compiled.tier(), code.tier_up()), (Tier::X64, None));
    // The next launch uses it.
    let other = Code::new(None, &kernel, &geometry).expect("it is compiled");
    assert_eq!((other.now().entry.compiled.tier(), other.tier_up()), (Tier::X64, None));
}

#[test]
fn warming_compiles_machine_code_at_once() {
    if has_run_alone() {
        return;
    }
    let Lowered { kernel, geometry, .. } = chain(100, &[Op::Neg, Op::Exp, Op::Abs, Op::Sqrt]);
    let code = Code::new(None, &kernel, &geometry).expect("it is compiled");
    code.warm(&kernel, &geometry);
    assert_eq!(code.tier_up(), None);
    assert_eq!(code.now().entry.compiled.tier(), Tier::choose(&kernel, &geometry));
}

#[test]
fn much_work_and_a_forced_tier_get_machine_code_at_once() {
    if has_run_alone() {
        return;
    }
    let Lowered { kernel, geometry, .. } = chain(1 << 22, &[Op::Sqrt, Op::Neg, Op::Exp, Op::Abs]);
    let code = Code::new(None, &kernel, &geometry).expect("it is compiled");
    assert_eq!((code.now().entry.compiled.tier(), code.tier_up()), (Tier::choose(&kernel, &geometry), None));
    let Lowered { kernel, geometry, .. } = chain(100, &[Op::Exp, Op::Neg, Op::Abs, Op::Sqrt]);
    let code = Code::new(Some(Tier::Cranelift), &kernel, &geometry).expect("it is compiled");
    assert_eq!((code.now().entry.compiled.tier(), code.tier_up()), (Tier::Cranelift, None));
}

/// Calls with different sizes count for the same kernel.
#[test]
fn calls_of_all_sizes_count() {
    if has_run_alone() {
        return;
    }
    if Level::best().is_none() {
        println!("skipped: this machine has neither AVX-512 nor AVX2");
        return;
    }
    let later = |n: usize| {
        let Lowered { kernel, geometry, .. } = chain(n, &[Op::Abs, Op::Exp, Op::Neg, Op::Sqrt]);
        let code = Code::new(None, &kernel, &geometry).expect("it is compiled");
        let tier_up = code.tier_up();
        code.next(&kernel, &geometry);
        tier_up.map(|tier_up| tier_up.calls)
    };
    let calls: Vec<Option<u64>> = (1000..2000).map(later).collect();
    let n_before = calls.iter().position(Option::is_none).expect("some size is the last to begin in the vm");
    assert!(n_before > 10, "{n_before}");
    assert!(calls[..n_before].is_sorted_by(|one, next| one >= next), "{calls:?}");
    assert!(calls[n_before..].iter().all(Option::is_none), "{calls:?}");
}

/// A report says which tier will take over. Bits are eager's before and after.
#[test]
fn a_report_announces_the_tier_up_and_bits_stay() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let function = |x: &Tensor| x.neg()?.exp()?.abs()?.sqrt()?.exp();
    let x = ramp(&[100]);
    let eager = bits(&function(&x)?);
    let compiled = compile(function);
    assert_eq!(bits(&compiled.call(&x)?), eager);
    let group = |explain: Explain| (explain.groups[0].tier, explain.groups[0].tier_up);
    let (_, tier_up) = group(compiled.explain());
    for call in 0..=tier_up.map_or(0, |tier_up| tier_up.calls) {
        assert_eq!(bits(&compiled.call(&x)?), eager, "call {call} after {tier_up:?}");
    }
    let (tier, later) = group(compiled.explain());
    assert_eq!(later, None);
    assert!(tier_up.is_none_or(|tier_up| tier == Some(tier_up.tier)), "{tier:?} is not {tier_up:?}");
    Ok(())
}
