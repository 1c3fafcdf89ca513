//! Graphs, plans and kernels as text, errors of the parser, and a case for every algebraic rule.

use expect_test::{Expect, expect};
use opfuse::internals::codegen::tier::Tier;
use opfuse::internals::compile::pipeline::{Built, build};
use opfuse::internals::fusion::Options;
use opfuse::internals::ir::passes::{RULES, decompose, index_directly, narrow_products};
use opfuse::ir::Graph;

fn built(text: &str) -> Built {
    let graph: Graph = text.parse().unwrap_or_else(|error| panic!("{error}"));
    build(graph, &Options::default(), Some(Tier::Vm)).unwrap_or_else(|error| panic!("{error}"))
}

/// The planned graph, its plan and its kernels.
fn check(text: &str, expected: Expect) {
    let built = built(text);
    let kernels: String = built.executable.launches().map(|launch| launch.lowered.kernel.to_string()).collect();
    expected.assert_eq(&format!("{}{}{kernels}", built.graph, built.plan.text(&built.graph)));
}

#[test]
fn softmax_is_planned_as_one_kernel() {
    check(
        "graph {
           n0 = input: f32[4,8]
           n1 = _softmax(n0; -1, false): f32[4,8]
           return n1
         }",
        expect![[r#"
            graph {
              n0 = input: f32[4,8]
              n1 = amax(n0; [-1], true): f32[4,1]
              n2 = sub(n0, n1; 1): f32[4,8]
              n3 = exp(n2): f32[4,8]
              n4 = sum(n3; [-1], true, none): f32[4,1]
              n5 = reciprocal(n4): f32[4,1]
              n6 = mul(n3, n5): f32[4,8]
              return n6
            }
            plan {
              s0 kernel -> n6: n1 = amax(n0; [-1], true); n2 = sub(n0, n1; 1); n3 = exp(n2); n4 = sum(n3; [-1], true, none); n5 = reciprocal(n4); n6 = mul(n3, n5)
            }
            kernel {
              in0: f32
              r0: f32 = load in0
              r1: f32 per row = fold_max r0
              r2: f32 = sub r0, r1
              r3: f32 = exp r2
              r4: f32 per row = fold_sum r3
              r5: f32 per row = 1.0
              r6: f32 per row = div r5, r4
              r7: f32 = mul r3, r6
              r8: f32 = canon r7
              out0: f32 = r8
            }
        "#]],
    );
}

#[test]
fn layer_norm_is_planned_as_one_kernel() {
    check(
        "graph {
           n0 = input: f32[4,8]
           n1 = input: f32[8]
           n2 = input: f32[8]
           n3 = layer_norm(n0, n1, n2; [8], true, true, 1e-5, true): f32[4,8]
           return n3
         }",
        expect![[r#"
            graph {
              n0 = input: f32[4,8]
              n1 = input: f32[8]
              n2 = input: f32[8]
              n3 = sum(n0; [1], true, none): f32[4,1]
              n4 = extent 8: i64[]#
              n5 = div(n3, n4): f32[4,1]
              n6 = sub(n0, n5; 1): f32[4,8]
              n7 = square(n6): f32[4,8]
              n8 = sum(n7; [1], true, none): f32[4,1]
              n9 = div(n8, n4): f32[4,1]
              n10 = number 1e-5: f64[]#
              n11 = add(n9, n10; 1): f32[4,1]
              n12 = rsqrt(n11): f32[4,1]
              n13 = mul(n6, n12): f32[4,8]
              n14 = mul(n13, n1): f32[4,8]
              n15 = add(n14, n2; 1): f32[4,8]
              return n15
            }
            plan {
              s0 kernel -> n15: n3 = sum(n0; [1], true, none); n5 = div(n3, n4); n6 = sub(n0, n5; 1); n7 = square(n6); n8 = sum(n7; [1], true, none); n9 = div(n8, n4); n11 = add(n9, n10; 1); n12 = rsqrt(n11); n13 = mul(n6, n12); n14 = mul(n13, n1); n15 = add(n14, n2; 1)
            }
            kernel {
              in0: f32
              in1: iota
              in2: f32
              in3: f32
              r0: f32 = load in0
              r1: f32 per row = fold_sum r0
              r2: i64 per row = load in1
              r3: f32 per row = to_f32 r2
              r4: f32 per row = div r1, r3
              r5: f32 = sub r0, r4
              r6: f32 = mul r5, r5
              r7: f32 per row = fold_sum r6
              r8: f32 per row = div r7, r3
              r9: f32 per row = 1e-5
              r10: f32 per row = add r8, r9
              r11: f32 per row = rsqrt r10
              r12: f32 = mul r5, r11
              r13: f32 = load in2
              r14: f32 = mul r12, r13
              r15: f32 = load in3
              r16: f32 = add r14, r15
              r17: f32 = canon r16
              out0: f32 = r17
            }
        "#]],
    );
}

#[test]
fn bias_and_gelu_are_planned_as_one_kernel() {
    check(
        "graph {
           n0 = input: f16[4,8]
           n1 = input: f16[8]
           n2 = add(n0, n1; 1): f16[4,8]
           n3 = gelu(n2; \"none\"): f16[4,8]
           return n3
         }",
        expect![[r#"
            graph {
              n0 = input: f16[4,8]
              n1 = input: f16[8]
              n2 = add(n0, n1; 1): f16[4,8]
              n3 = gelu(n2; "none"): f16[4,8]
              return n3
            }
            plan {
              s0 kernel -> n3: n2 = add(n0, n1; 1); n3 = gelu(n2; "none")
            }
            kernel {
              in0: f16
              in1: f16
              r0: f32 = load in0
              r1: f32 = load in1
              r2: f32 = add r0, r1
              r3: f32 = round_f16 r2
              r4: f32 per row = 0.5
              r5: f32 = mul r3, r4
              r6: f32 per row = 0.70710677
              r7: f32 = mul r3, r6
              r8: f32 = erf r7
              r9: f32 per row = 1.0
              r10: f32 = add r8, r9
              r11: f32 = mul r5, r10
              r12: f32 = round_f16 r11
              out0: f16 = r12
            }
        "#]],
    );
}

#[test]
fn transposes_around_pointwise_ops_are_planned_as_one_kernel() {
    check(
        "graph {
           n0 = input: f32[4,8]
           n1 = transpose(n0; 0, 1): f32[8,4:1,8]
           n2 = exp(n1): f32[8,4:1,8]
           n3 = transpose(n2; 0, 1): f32[4,8]
           n4 = clone(n3; \"contiguous\"): f32[4,8]
           n5 = add(n4, n0; 1): f32[4,8]
           n6 = t(n5): f32[8,4:1,8]
           return n6
         }",
        expect![[r#"
            graph {
              n0 = input: f32[4,8]
              n1 = transpose(n0; 0, 1): f32[8,4:1,8]
              n2 = exp(n1): f32[8,4:1,8]
              n3 = transpose(n2; 0, 1): f32[4,8]
              n4 = add(n3, n0; 1): f32[4,8]
              n5 = t(n4): f32[8,4:1,8]
              return n5
            }
            plan {
              s0 view -> n1: n1 = transpose(n0; 0, 1)
              s1 kernel -> n4: n2 = exp(n1); n3 = transpose(n2; 0, 1); n4 = add(n3, n0; 1)
              s2 view -> n5: n5 = t(n4)
            }
            kernel {
              in0: f32
              in1: f32
              r0: f32 = load in0
              r1: f32 = exp r0
              r2: f32 = load in1
              r3: f32 = add r1, r2
              r4: f32 = canon r3
              out0: f32 = r4
            }
        "#]],
    );
}

#[test]
fn common_subexpressions_and_constants_are_folded() {
    check(
        "graph {
           n0 = input: f32[4]
           n1 = number 2.0: f64[]#
           n2 = number 0.5: f64[]#
           n3 = mul(n1, n2): f64[]#
           n4 = exp(n0): f32[4]
           n5 = exp(n0): f32[4]
           n6 = add(n4, n5; 1): f32[4]
           n7 = sub(n6, n3; 1): f32[4]
           n8 = sin(n0): f32[4]
           return n7, n0
         }",
        expect![[r#"
            graph {
              n0 = input: f32[4]
              n1 = number 1.0: f64[]#
              n2 = exp(n0): f32[4]
              n3 = add(n2, n2; 1): f32[4]
              n4 = sub(n3, n1; 1): f32[4]
              return n4, n0
            }
            plan {
              s0 kernel -> n4: n2 = exp(n0); n3 = add(n2, n2; 1); n4 = sub(n3, n1; 1)
            }
            kernel {
              in0: f32
              r0: f32 = load in0
              r1: f32 = exp r0
              r2: f32 = add r1, r1
              r3: f32 per row = 1.0
              r4: f32 = sub r2, r3
              r5: f32 = canon r4
              out0: f32 = r5
            }
        "#]],
    );
}

#[test]
fn refused_text_names_its_line() {
    let cases = [
        ("n0 = input: f33[4]", "malformed type"),
        ("n0 = input f32[4]", "expected a type"),
        ("n1 = input: f32[4]", "numbered in order"),
        ("n0: f32[4]", "expected `nK"),
        ("n0 = number x: f64[]#", "malformed number"),
        ("n0 = number 1.0: f32[]#", "the type is f64[]#"),
        ("n0 = arrange(; 0, 4, 1, none): i64[4]", "unknown op"),
        ("n0 = arange(; 0, 4, 1, none): i64[5]", "the type is i64[4]"),
        ("n0 = arange(; 0, 4, 0, none): i64[4]", "does not end"),
        ("n0 = arange(; 0, ?, 1, none): i64[4]", "malformed argument"),
        ("n0 = arange(; 0, 4, 1, none: i64[4]", "expected `)`"),
        ("n0 = exp(n0): f32[4]", "unknown operand"),
        ("return n3", "unknown output"),
    ];
    for (line, expected) in cases {
        let text = format!("graph {{\n  {line}\n}}\n");
        let error = text.parse::<Graph>().err().unwrap_or_else(|| panic!("{line} was taken")).to_string();
        assert!(error.contains(expected) && error.contains(&format!("{line:?}")), "{line}: {error}");
        assert!(error.contains("at byte 8"), "{line} starts at byte 8: {error}");
    }
}

/// A rule, a graph whose last node it simplifies, and graphs whose last node only looks like it.
type RuleCase = (&'static str, &'static str, &'static [&'static str]);

const F: &str = "n0 = input: f32[4]\nn1 = exp(n0): f32[4]\n";

/// `$F` stands for an input `n0` and a computed value `n1`.
const CASES: &[RuleCase] = &[
    (
        "x * 1 = x",
        "$F n2 = number 1.0: f64[]#\n n3 = mul(n2, n1): f32[4]",
        &[
            "$F n2 = number -1.0: f64[]#\n n3 = mul(n1, n2): f32[4]",
            // An input may hold a NaN with a payload, which the product would make canonical.
            "$F n2 = number 1: i64[]#\n n3 = mul(n0, n2): f32[4]",
            "n0 = input: i32[4]\n n1 = number 1.0: f64[]#\n n2 = mul(n0, n1): f32[4]",
            // Strides with gaps become dense.
            "n0 = input: i32[4:2]\n n1 = number 1: i64[]#\n n2 = mul(n0, n1): i32[4]",
            "n0 = input: i32[4]\n n1 = input: i32[]\n n2 = mul(n0, n1): i32[4]",
        ],
    ),
    (
        "x / 1 = x",
        "$F n2 = number 1.0: f64[]#\n n3 = div(n1, n2): f32[4]",
        &[
            "$F n2 = number 1.0: f64[]#\n n3 = div(n2, n1): f32[4]",
            "n0 = input: i32[4]\n n1 = number 1: i64[]#\n n2 = div(n0, n1): f32[4]",
            "$F n2 = number 1.0: f64[]#\n n3 = div(n0, n2): f32[4]",
        ],
    ),
    (
        "x - 0 = x",
        "$F n2 = number 0.0: f64[]#\n n3 = sub(n1, n2; 1): f32[4]",
        &[
            // −0 − (−0) is +0.
            "$F n2 = number -0.0: f64[]#\n n3 = sub(n1, n2; 1): f32[4]",
            "$F n2 = number 0.0: f64[]#\n n3 = sub(n2, n1; 1): f32[4]",
            // −0 + 0 is +0.
            "$F n2 = number 0.0: f64[]#\n n3 = add(n1, n2; 1): f32[4]",
            // Infinity times 0 is a NaN.
            "$F n2 = number 0.0: f64[]#\n n3 = sub(n1, n2; inf): f32[4]",
            "n0 = input: f32[4]\n n1 = number 0.0: f64[]#\n n2 = sub(n0, n1; 1): f32[4]",
        ],
    ),
    (
        "to(x, dtype of x) = x",
        "$F n2 = _to_copy(n0; f32): f32[4]",
        &["$F n2 = _to_copy(n0; f64): f64[4]", "n0 = input: f32[4:3]\n n1 = _to_copy(n0; f32): f32[4]"],
    ),
    (
        "clone(x) = x",
        "n0 = input: f32[2,3:1,2]\n n1 = clone(n0; none): f32[2,3:1,2]",
        &["n0 = input: f32[2,3:1,2]\n n1 = clone(n0; \"contiguous\"): f32[2,3]"],
    ),
    (
        "cat(x, empty) = x",
        "$F n2 = input: f32[0]\n n3 = cat(n2, n1; 0): f32[4]",
        &[
            "$F n2 = cat(n0, n1; 0): f32[8]",
            "n0 = input: f32[4:2]\n n1 = input: f32[0]\n n2 = cat(n1, n0; 0): f32[4]",
            "n0 = input: i32[4]\n n1 = input: f32[0]\n n2 = cat(n0, n1; 0): f32[4]",
            "n0 = input: f32[0]\n n1 = cat(n0, n0; 0): f32[0]",
        ],
    ),
    (
        "relu(relu(x)) = relu(x)",
        "$F n2 = relu(n0): f32[4]\n n3 = relu(n2): f32[4]",
        &["$F n2 = relu(n0): f32[4]\n n3 = neg(n2): f32[4]\n n4 = relu(n3): f32[4]", "$F n2 = relu(n1): f32[4]"],
    ),
    (
        "abs(abs(x)) = abs(x)",
        "$F n2 = abs(n0): f32[4]\n n3 = abs(n2): f32[4]",
        &["$F n2 = abs(n0): f32[4]\n n3 = neg(n2): f32[4]\n n4 = abs(n3): f32[4]", "$F n2 = abs(n1): f32[4]"],
    ),
    (
        "neg(neg(x)) = x",
        "$F n2 = neg(n1): f32[4]\n n3 = neg(n2): f32[4]",
        &[
            "$F n2 = neg(n0): f32[4]\n n3 = neg(n2): f32[4]",
            "$F n2 = neg(n1): f32[4]\n n3 = abs(n2): f32[4]\n n4 = neg(n3): f32[4]",
            "n0 = input: i32[4:3]\n n1 = neg(n0): i32[4]\n n2 = neg(n1): i32[4]",
        ],
    ),
    (
        "view(x, shape of x) = x",
        "n0 = input: f32[2,3]\n n1 = view(n0; [2, -1]): f32[2,3]",
        &[
            "n0 = input: f32[2,3]\n n1 = view(n0; [3, 2]): f32[3,2]",
            "n0 = input: f32[3,3]\n n1 = t(n0): f32[3,3:1,3]",
            "n0 = input: f32[3,3]\n n1 = transpose(n0; 0, 1): f32[3,3:1,3]",
            "n0 = input: f32[4]\n n1 = slice(n0; 0, 1, none, 1): f32[3]",
            "n0 = input: f32[1]\n n1 = expand(n0; [3], false): f32[3:0]",
        ],
    ),
    (
        "permute(x, own order) = x",
        "n0 = input: f32[2,3]\n n1 = permute(n0; [0, -1]): f32[2,3]",
        &["n0 = input: f32[3,3]\n n1 = permute(n0; [1, 0]): f32[3,3:1,3]"],
    ),
];

fn rule_case(text: &str) -> Graph {
    let text = text.replace("$F", F);
    let last = text.lines().count() - 1;
    let text = format!("graph {{\n{text}\nreturn n{last}\n}}");
    text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn every_rule_fires_where_it_holds_and_nowhere_else() {
    let mut untested: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
    for (name, fires, tempting) in CASES {
        let rule = RULES.iter().find(|rule| rule.name == *name).unwrap_or_else(|| panic!("there is no rule {name}"));
        untested.retain(|rule| rule != name);
        let applied = |text: &str| {
            let graph = rule_case(text);
            let (_, node) = graph.nodes().next_back().expect("the case has nodes");
            (rule.apply)(&graph, node, &node.args).is_some()
        };
        assert!(applied(fires), "{name} does not fire on\n{fires}");
        for text in *tempting {
            assert!(!applied(text), "{name} fires on\n{text}");
        }
    }
    assert_eq!(untested, Vec::<&str>::new(), "rules without a case");
}

/// On devices, a product of operands that were only widened from 16-bit floats becomes a product of the narrow
/// operands.
#[test]
fn products_of_widened_operands_become_narrow() {
    let check = |text: &str, expected: Expect| {
        let graph: Graph = text.parse().unwrap_or_else(|error| panic!("{error}"));
        let graph = decompose(&graph).unwrap_or_else(|error| panic!("{error}"));
        expected.assert_eq(&narrow_products(&graph).to_string());
    };
    check(
        "graph {
           n0 = input: bf16[8]
           n1 = input: bf16[4,2]
           n2 = input: bf16[2,8]
           n3 = addmm(n0, n1, n2; 1, 1): bf16[4,8]
           return n3
         }",
        expect![[r#"
            graph {
              n0 = input: bf16[8]
              n1 = input: bf16[4,2]
              n2 = input: bf16[2,8]
              n3 = mm.dtype(n1, n2; f32): f32[4,8]
              n4 = _to_copy(n0; f32): f32[8]
              n5 = add(n3, n4; 1): f32[4,8]
              n6 = _to_copy(n5; bf16): bf16[4,8]
              return n6
            }
        "#]],
    );
    // Views of a widened value become views of the narrow one, if the view exists for it.
    check(
        "graph {
           n0 = input: f16[2,3,4]
           n1 = input: f16[5,4:1,5]
           n2 = _to_copy(n0; f32): f32[2,3,4]
           n3 = view(n2; [6, 4]): f32[6,4]
           n4 = _to_copy(n1; f32): f32[5,4:1,5]
           n5 = t(n4): f32[4,5]
           n6 = mm(n3, n5): f32[6,5]
           return n6
         }",
        expect![[r#"
            graph {
              n0 = input: f16[2,3,4]
              n1 = input: f16[5,4:1,5]
              n2 = view(n0; [6, 4]): f16[6,4]
              n3 = t(n1): f16[4,5]
              n4 = mm.dtype(n2, n3; f32): f32[6,5]
              return n4
            }
        "#]],
    );
    // Widened operands with other readers stay. Products of two dtypes, or with an operand that was f32 before, are
    // left alone.
    check(
        "graph {
           n0 = input: bf16[3,4,4]
           n1 = input: f16[3,4,4]
           n2 = input: f32[3,4,4]
           n3 = _to_copy(n0; f32): f32[3,4,4]
           n4 = _to_copy(n1; f32): f32[3,4,4]
           n5 = bmm(n4, n4): f32[3,4,4]
           n6 = bmm(n3, n4): f32[3,4,4]
           n7 = bmm(n3, n2): f32[3,4,4]
           return n4, n5, n6, n7
         }",
        expect![[r#"
            graph {
              n0 = input: bf16[3,4,4]
              n1 = input: f16[3,4,4]
              n2 = input: f32[3,4,4]
              n3 = _to_copy(n0; f32): f32[3,4,4]
              n4 = _to_copy(n1; f32): f32[3,4,4]
              n5 = bmm.dtype(n1, n1; f32): f32[3,4,4]
              n6 = bmm(n3, n4): f32[3,4,4]
              n7 = bmm(n3, n2): f32[3,4,4]
              return n4, n5, n6, n7
            }
        "#]],
    );
}

/// On the CPU, a write by index reads the index tensor itself where the flat index would hold the same numbers.
#[test]
fn writes_read_index_tensors_directly() {
    let check = |text: &str, expected: Expect| {
        let graph: Graph = text.parse().unwrap_or_else(|error| panic!("{error}"));
        expected.assert_eq(&index_directly(&graph).to_string());
    };
    check(
        "graph {
           n0 = input: f32[5,2]
           n1 = input: i32[3]
           n2 = input: f32[3,2]
           n3 = _flat_index(n1; [5], false): i64[3]
           n4 = view(n3; [3,1]): i64[3,1]
           n5 = expand(n4; [3,2], false): i64[3,2:1,0]
           n6 = scatter_add(n0, n5, n2; 0): f32[5,2]
           return n6
         }",
        expect![[r#"
            graph {
              n0 = input: f32[5,2]
              n1 = input: i32[3]
              n2 = input: f32[3,2]
              n3 = _flat_index(n1; [5], false): i64[3]
              n4 = view(n3; [3, 1]): i64[3,1]
              n5 = expand(n4; [3, 2], false): i64[3,2:1,0]
              n6 = view(n1; [3, 1]): i32[3,1]
              n7 = expand(n6; [3, 2], false): i32[3,2:1,0]
              n8 = scatter_add(n0, n7, n2; 0): f32[5,2]
              return n8
            }
        "#]],
    );
    // Negative indices are wrapped, the flat index is of another size, and a slice leaves indices out.
    for (flat, n_written, more) in [
        ("[5], true", 3, "n4 = scatter(n0, n3, n2; 0): f32[5]\n return n4"),
        ("[4], false", 3, "n4 = scatter(n0, n3, n2; 0): f32[5]\n return n4"),
        ("[5], false", 2, "n4 = slice(n3; 0, 0, 2, 1): i64[2]\n n5 = scatter(n0, n4, n2; 0): f32[5]\n return n5"),
    ] {
        let kept = format!(
            "graph {{
               n0 = input: f32[5]
               n1 = input: i64[3]
               n2 = input: f32[{n_written}]
               n3 = _flat_index(n1; {flat}): i64[3]
               {more}
             }}"
        );
        let graph: Graph = kept.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(index_directly(&graph).to_string(), graph.to_string());
    }
}
