//! Why a matrix product and its neighbours are not computed in blocks of rows: the rule that was broken.

use crate::values::uniform;
use opfuse::compile::CompileOptions;
use opfuse::compile::explain::{Answer, Decision};
use opfuse::{DType, Result, Tensor, compile_with};

struct Case {
    name: &'static str,
    sizes: &'static [&'static [usize]],
    dtype: DType,
    function: fn(&[Tensor]) -> Result<Vec<Tensor>>,
    /// The two ops asked about.
    ends: (&'static str, &'static str),
    /// The kind of the reason, and a part of its text.
    kind: &'static str,
    text: &'static str,
    /// The most nodes of a group.
    max_nodes: usize,
}

const CASE: Case = Case {
    name: "",
    sizes: &[&[300, 16], &[16, 64]],
    dtype: DType::F32,
    function: |x| Ok(vec![x[0].mm(&x[1])?.relu()?]),
    ends: ("mm", "relu"),
    kind: "",
    text: "",
    max_nodes: 256,
};

const CASES: &[Case] = &[
    Case {
        name: "a large right operand",
        sizes: &[&[400, 600], &[600, 512]],
        kind: "right_operand_too_large",
        text: "1228800 bytes a matrix",
        ..CASE
    },
    Case {
        name: "rows of a megabyte",
        sizes: &[&[17, 1], &[1, 200_000]],
        function: |x| Ok(vec![x[0].mm(&x[1])?.sum(-1, false)?]),
        ends: ("mm", "sum"),
        kind: "block_too_large",
        text: "16 rows and 12800064 bytes",
        ..CASE
    },
    Case { name: "16-bit floats", dtype: DType::BF16, kind: "whole_product", text: "products of bf16", ..CASE },
    Case {
        name: "an output between the two",
        function: |x| {
            let product = x[0].mm(&x[1])?;
            Ok(vec![product.relu()?, product])
        },
        kind: "not_worth_it",
        text: "would save 0 bytes",
        ..CASE
    },
    Case {
        name: "columns",
        function: |x| Ok(vec![x[0].mm(&x[1])?.sum([0], false)?]),
        ends: ("mm", "sum"),
        kind: "different_rows",
        text: "same rows",
        ..CASE
    },
    Case {
        name: "a transposed result",
        sizes: &[&[300, 16], &[16, 600]],
        function: |x| Ok(vec![x[0].mm(&x[1])?.t()?.softmax(-1)?]),
        ends: ("mm", "exp"),
        kind: "different_rows",
        text: "same rows",
        ..CASE
    },
    Case {
        name: "a transposed result multiplied",
        function: |x| Ok(vec![x[0].mm(&x[1])?.t()?.mm(&x[0])?]),
        ends: ("n2", "n4"),
        kind: "moves_elements",
        text: "moves elements",
        ..CASE
    },
    Case {
        name: "rows written elsewhere",
        sizes: &[&[300, 16], &[16, 16]],
        function: |x| {
            let moved = x[0].mm(&x[1])?.view([3, 100, 16])?.transpose(0, 1)?.contiguous()?;
            Ok(vec![moved.view([300, 16])?.mm(&x[1])?])
        },
        ends: ("clone", "n7"),
        kind: "different_rows",
        text: "same rows",
        ..CASE
    },
    Case {
        name: "the right operand",
        sizes: &[&[300, 16], &[16, 64]],
        function: |x| Ok(vec![x[0].mm(&x[1].relu()?)?]),
        ends: ("relu", "mm"),
        kind: "prologue_of_anchor",
        text: "the product's own rows",
        ..CASE
    },
    Case {
        name: "a routine between the two",
        function: |x| {
            let product = x[0].mm(&x[1])?;
            Ok(vec![product.add(&product.cumsum(1)?)?])
        },
        ends: ("mm", "add"),
        kind: "would_cycle",
        text: "in a cycle",
        ..CASE
    },
    Case {
        name: "a view that is returned",
        function: |x| {
            let view = x[0].mm(&x[1])?.view([100, 3, 64])?;
            Ok(vec![view.relu()?, view])
        },
        kind: "used_elsewhere",
        text: "outside",
        ..CASE
    },
    Case {
        name: "a sum of two products",
        sizes: &[&[300, 16], &[16, 64], &[300, 8], &[8, 64]],
        function: |x| Ok(vec![x[0].mm(&x[1])?.add(&x[2].mm(&x[3])?)?]),
        ends: ("n4", "add"),
        kind: "epilogue_of_anchor",
        text: "with work on other rows",
        ..CASE
    },
    Case { name: "a limit of one node", max_nodes: 1, kind: "group_too_large", text: "node limit", ..CASE },
    Case {
        name: "an empty product",
        sizes: &[&[300, 0], &[0, 64]],
        kind: "nothing_to_compute",
        text: "no elements",
        ..CASE
    },
];

#[test]
fn every_rule_has_its_reason() -> Result<()> {
    for case in CASES {
        let inputs = case.sizes.iter().zip(1..).map(|(sizes, seed)| uniform(seed, sizes, case.dtype));
        let inputs: Vec<Tensor> = inputs.collect::<Result<_>>()?;
        let mut options = CompileOptions::default();
        options.fusion.max_fuse_depth = case.max_nodes;
        let function = case.function;
        let f = compile_with(move |inputs: &[Tensor]| function(inputs), options);
        f.call(&inputs[..])?;
        let explain = f.explain();
        let why = explain.why(case.ends.0, case.ends.1)?;
        let Answer::Apart { path } = &why.answer else { panic!("{}: {why}\n{explain}", case.name) };
        let Some(Decision::Kept { reason, .. }) = path.first().map(|edge| &edge.decision) else {
            panic!("{}: {why}\n{explain}", case.name)
        };
        assert_eq!(reason.kind(), case.kind, "{}: {why}\n{explain}", case.name);
        assert!(reason.to_string().contains(case.text), "{}: {reason}", case.name);
        assert!(explain.to_json().contains(&format!("\"{}\"", case.kind)), "{}", explain.to_json());
    }
    Ok(())
}

/// Products that can be computed in blocks are, so the reasons above are not those of a fuser that never tries.
#[test]
fn without_a_broken_rule_they_are_fused() -> Result<()> {
    let Case { sizes, dtype, function, .. } = CASE;
    // Few rows and columns too: the bits of a row depend on nothing else.
    for sizes in [sizes, &[&[3, 16], &[16, 8]], &[&[3, 16], &[16, 1]], &[&[1, 16], &[16, 64]]] {
        let inputs: Vec<Tensor> =
            sizes.iter().zip(1..).map(|(sizes, seed)| uniform(seed, sizes, dtype)).collect::<Result<_>>()?;
        let f = compile_with(move |inputs: &[Tensor]| function(inputs), CompileOptions::default());
        f.call(&inputs[..])?;
        let why = f.explain().why("mm", "relu")?;
        assert!(matches!(why.answer, Answer::Together { .. }), "{why}");
    }
    Ok(())
}
