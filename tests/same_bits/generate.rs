//! Random graphs of every op, mostly small.

use super::build::{Builder, Case};
use super::values::Fill;
use opfuse::ir::{DType, Meaning, NodeId, NodeKind, Op, TensorType};

/// The graph of a seed, with arrays to run it on.
pub(crate) fn small(seed: u64) -> Case {
    let mut builder = Builder::new(seed);
    choose_shape(&mut builder);
    for _ in 0..1 + builder.random.below(4) {
        add_input(&mut builder);
    }
    let most = if builder.random.percent(20) { 23 } else { 8 };
    let wanted = 3 + builder.random.below(most);
    let (mut added, mut attempts) = (0, 0);
    while added < wanted && attempts < 200 {
        let op = choose_op(&mut builder);
        added += builder.propose(op).is_some() as usize;
        attempts += 1;
    }
    let outputs = choose_outputs(&mut builder);
    builder.finish(outputs)
}

/// Every twentieth graph is large enough to cross tiles and blocks of folds, and for several threads.
fn choose_shape(builder: &mut Builder) {
    let random = &mut builder.random;
    let large = random.percent(5);
    let rank = if large { 1 + random.below(3) } else { random.below(5) };
    let some = [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 65];
    let many = [1, 2, 16, 33, 64, 100, 256, 1000, 1024, 4097, 8192, 8193, 20_000];
    builder.limit = if large { 120_000 } else { 3000 };
    let mut left = if large { 60_000 } else { 600 };
    for _ in 0..rank {
        let size = if large {
            random.pick(&many)
        } else if random.percent(4) {
            0
        } else {
            random.pick(&some)
        };
        let size = size.min(left);
        left /= size.max(1);
        builder.shape.push(size);
    }
}

fn add_input(builder: &mut Builder) {
    let fill = match builder.random.below(10) {
        0..=4 => Fill::Normal,
        5 => Fill::Whole,
        6 => Fill::Positive,
        _ => Fill::Wild,
    };
    let floats = [DType::F32, DType::F32, DType::F16, DType::BF16, DType::F64];
    let dtype =
        if builder.random.percent(60) { builder.random.pick(&floats) } else { builder.random.pick(&DType::ALL) };
    if builder.random.percent(4) {
        let dtype = builder.random.pick(&[DType::F64, DType::I64, DType::Bool]);
        builder.input(TensorType::number(dtype), fill);
        return;
    }
    let sizes = if builder.random.percent(70) { builder.shape.clone() } else { builder.part_of_shape() };
    builder.strided_input(dtype, &sizes, fill);
}

fn choose_op(builder: &mut Builder) -> Op {
    let class = builder.random.below(100);
    let wanted = |op: &Op| match op.row().meaning {
        Meaning::Body(..) => class < 46,
        Meaning::Fold(_) => (46..57).contains(&class),
        Meaning::Decompose(_) => (57..66).contains(&class),
        Meaning::View(_) | Meaning::Window(_) => (66..82).contains(&class),
        Meaning::Product => (82..84).contains(&class),
        Meaning::Gather(_) => (84..89).contains(&class),
        Meaning::Concat | Meaning::Overlay => (89..91).contains(&class),
        Meaning::Fill => (91..93).contains(&class),
        Meaning::Range => (93..95).contains(&class),
        Meaning::Routine(_) => class >= 95,
    };
    let ops: Vec<Op> = Op::ALL.iter().copied().filter(wanted).collect();
    builder.random.pick(&ops)
}

/// The unused last values; sometimes also an input, a value in the middle, or one of them twice.
fn choose_outputs(builder: &mut Builder) -> Vec<NodeId> {
    let uses = builder.graph.use_counts();
    let ids: Vec<NodeId> = builder.graph.nodes().map(|(id, _)| id).collect();
    let is_call = |id: &NodeId| matches!(builder.graph[*id].kind, NodeKind::Op(_));
    let mut outputs: Vec<NodeId> = ids.iter().rev().copied().filter(|id| is_call(id) && uses[*id] == 0).collect();
    let random = &mut builder.random;
    outputs.truncate(1 + random.below(3));
    if outputs.len() < 3 && random.percent(25) {
        outputs.push(random.pick(&ids));
    }
    if outputs.is_empty() || (outputs.len() < 3 && random.percent(8)) {
        outputs.push(outputs.first().copied().unwrap_or(ids[0]));
    }
    outputs
}
