//! Cases as text, compared with their eager calls and made smaller.
//!
//! Bugs are planted: a predicate runs a graph in which one op is replaced by another.

use opfuse::compile::Repro;
use opfuse::dispatch::Array;
use opfuse::error::{Error, Result};
use opfuse::internals::compile::pipeline::build;
use opfuse::internals::compile::repro::compare;
use opfuse::internals::fusion::Options;
use opfuse::ir::{DType, Graph};
use opfuse::{CompileOptions, Tensor, compile, compile_with, manual_seed};
use std::cell::Cell;

fn results(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Array>> {
    let built = build(graph.clone(), &Options::default(), None)?;
    let arrays: Vec<&Array> = inputs.iter().map(Tensor::array).collect();
    Ok(built.executable.run(&arrays)?.into_vec())
}

/// Whether the outputs differ if a compiler puts one op in the place of another.
fn is_wrong(repro: &Repro, op: &str, other: &str) -> bool {
    let planted = repro.graph().to_string().replace(&format!("= {op}("), &format!("= {other}("));
    let planted: Graph = planted.parse().expect("both ops take the same arguments");
    let [right, wrong] = [repro.graph(), &planted].map(|graph| results(graph, repro.inputs()));
    compare(repro.graph(), right, wrong).is_err()
}

/// A network's layer with two results: 30 ops and more.
fn layer() -> Result<Repro> {
    let text = "
graph {
  n0 = input: f32[4,6]
  n1 = input: f32[6,6]
  n2 = input: f32[6]
  n3 = mm(n0, n1): f32[4,6]
  n4 = add(n3, n2; 1): f32[4,6]
  n5 = erf(n4): f32[4,6]
  n6 = mul(n4, n5): f32[4,6]
  n7 = mean(n6; [-1], true, none): f32[4,1]
  n8 = sub(n6, n7; 1): f32[4,6]
  n9 = mul(n8, n8): f32[4,6]
  n10 = sum(n9; [-1], true, none): f32[4,1]
  n11 = sqrt(n10): f32[4,1]
  n12 = div(n8, n11): f32[4,6]
  n13 = tanh(n12): f32[4,6]
  n14 = mm(n13, n1): f32[4,6]
  n15 = exp(n14): f32[4,6]
  n16 = sum(n15; [0], false, none): f32[6]
  return n14, n16
}
inputs {
";
    let words = |n: u32| (0..n).map(|i| format!(" {:x}", (0.1 * i as f32 - 0.7).to_bits())).collect::<String>();
    format!("{text}n0 ={}\nn1 ={}\nn2 ={}\n}}\n", words(24), words(36), words(6)).parse()
}

#[test]
fn one_wrong_op_is_found_with_operands_as_inputs() -> Result<()> {
    let repro = layer()?;
    assert!(is_wrong(&repro, "erf", "tanh"), "the bug shows in the whole graph");
    let small = repro.minimize(|repro| is_wrong(repro, "erf", "tanh"));
    assert!(is_wrong(&small, "erf", "tanh"));
    let text = small.graph().to_string();
    assert_eq!(text, "graph {\n  n0 = input: f32[4,6]\n  n1 = erf(n0): f32[4,6]\n  return n1\n}\n");
    // Ones are enough to tell erf from tanh, and zeros are not.
    assert!(small.to_string().ends_with("inputs {\n  n0 = 3f800000*24\n}\n"), "{small}");
    Ok(())
}

#[test]
fn two_ops_that_fail_together_are_kept_together() -> Result<()> {
    // As a wrong fusion would: `exp` is wrong only where a sum reads it.
    let is_pair = |repro: &Repro| {
        let text = repro.graph().to_string();
        let summed = text.lines().find_map(|line| line.split_once("= sum(")?.1.split([',', ';']).next());
        summed.is_some_and(|node| text.contains(&format!("  {node} = exp("))) && is_wrong(repro, "exp", "log")
    };
    let small = layer()?.minimize(is_pair);
    assert_eq!(small.graph().nodes().filter(|(_, node)| node.op().is_some()).count(), 2, "{small}");
    assert_eq!(small.graph().outputs().len(), 1);
    Ok(())
}

#[test]
fn a_case_that_does_not_fail_stays_and_calls_are_few() -> Result<()> {
    let repro = layer()?;
    let calls = Cell::new(0);
    let same = repro.minimize(|_| {
        calls.set(calls.get() + 1);
        false
    });
    assert_eq!(same.to_string(), repro.to_string());
    assert!(calls.get() < 80, "{} calls", calls.get());
    Ok(())
}

#[test]
fn texts_lead_to_the_same_case() -> Result<()> {
    let cases = [
        "graph {\n  n0 = input: bf16[2,3:1,2]\n  n1 = neg(n0): bf16[2,3:1,2]\n  return n1\n}\n\
         inputs {\n  n0 = 7fc1 8000 0*2 1 ff80\n}\n",
        "graph {\n  n0 = input: i64[3:0]\n  n1 = neg(n0): i64[3]\n  return n1\n}\n\
         inputs {\n  n0 = 8000000000000000*3\n}\n",
        "graph {\n  n0 = input: bool[2]\n  n1 = input: u8[0,5]\n  n2 = logical_not(n0): bool[2]\n  return n2, n1\n}\n\
         inputs {\n  n0 = 1 0\n  n1 =\n}\n",
        "graph {\n  n0 = number 0.5: f64[]#\n  n1 = input: f64[]\n  n2 = mul(n1, n0): f64[]\n  return n2\n}\n\
         inputs {\n  n1 = fff8000000000001\n}\n",
    ];
    for text in cases {
        let repro: Repro = text.parse()?;
        assert_eq!(repro.to_string(), text);
        repro.check(&CompileOptions::default())?;
        for tier in opfuse::internals::codegen::tier::Tier::ALL {
            repro.check(&CompileOptions { tier: Some(tier), ..CompileOptions::default() })?;
        }
    }
    Ok(())
}

#[test]
fn a_case_prints_as_a_test() -> Result<()> {
    let text = "graph {\n  n0 = input: f32[2]\n  n1 = exp(n0): f32[2]\n  return n1\n}\ninputs {\n  n0 = 0*2\n}\n";
    let expected = "#[test]\nfn exp_differs() -> opfuse::Result<()> {\n    let repro: opfuse::compile::Repro = \"\n\
        graph {\n  n0 = input: f32[2]\n  n1 = exp(n0): f32[2]\n  return n1\n}\ninputs {\n  n0 = 0*2\n}\n\"\n    \
        .parse()?;\n    repro.check(&opfuse::CompileOptions::default())\n}\n";
    assert_eq!(text.parse::<Repro>()?.to_test("exp_differs"), expected);
    Ok(())
}

#[test]
fn bad_texts_and_tensors_are_refused() -> Result<()> {
    let graph = "graph {\n  n0 = input: f32[2]\n  n1 = exp(n0): f32[2]\n  return n1\n}\n";
    for (values, message) in [
        ("", "`inputs {` with the values"),
        ("inputs {\n n0 = 0 0", "needs a `}`"),
        ("inputs {\n}", "n0 needs a line of values"),
        ("inputs {\n n1 = 0 0\n}", "`n0 =` is expected"),
        ("inputs {\n n0 = 0\n}", "2 elements are expected"),
        ("inputs {\n n0 = 0*18446744073709551615 0\n}", "2 elements are expected"),
        ("inputs {\n n0 = 0 1ffffffff\n}", "bits of an element of f32"),
        ("inputs {\n n0 = 0 x\n}", "bits of an element of f32"),
        ("inputs {\n n0 = 0*\n}", "bits of an element of f32"),
        ("inputs {\n n0 = 0 0\n n1 = 0\n}", "no more inputs"),
    ] {
        let error = format!("{graph}{values}").parse::<Repro>().expect_err(values).to_string();
        assert!(error.contains(message), "{error}");
    }
    let large = "graph {\n  n0 = input: f32[100000000000]\n  return n0\n}\ninputs {\n n0 = 0*100000000000\n}\n";
    let error = large.parse::<Repro>().expect_err("a few bytes, 400 GB").to_string();
    assert!(error.contains("elements in all"), "{error}");
    let graph: Graph = graph.parse()?;
    for (inputs, message) in [
        (Vec::new(), "0 inputs were given"),
        (vec![Tensor::zeros(&[2], DType::F64)?], "f64[2] was given"),
        (vec![Tensor::zeros(&[2, 2], DType::F32)?.select(1, 0)?], "was given"),
        (vec![Tensor::zeros(&[2], DType::F32)?.to_device(opfuse::Device::META)?], "has no data"),
    ] {
        let error = Repro::new(graph.clone(), inputs).expect_err(message).to_string();
        assert!(error.contains(message), "{error}");
    }
    Ok(())
}

#[test]
fn differences_are_named() -> Result<()> {
    let repro: Repro = "graph {\n  n0 = input: f32[2]\n  n1 = exp(n0): f32[2]\n  return n1\n}\n\
        inputs {\n  n0 = 0*2\n}\n"
        .parse()?;
    let of = |values: &[f32]| Ok(vec![Tensor::from_slice(values, &[values.len()])?.array().clone()]);
    let error = || Err(Error::argument("exp", "no"));
    let differs = |eager, compiled| compare(repro.graph(), eager, compiled).map_err(|error| error.to_string());
    assert_eq!(differs(of(&[1.0, 2.0]), of(&[1.0, 2.0])), Ok(()));
    assert_eq!(differs(error(), error()), Ok(()));
    for (result, message) in [
        (differs(of(&[1.0, 0.0]), of(&[1.0, -0.0])), "output 0 (n1), element 1: eager 0, compiled 80000000"),
        (differs(of(&[1.0, 0.0]), of(&[1.0])), "eager f32[2], compiled f32[1]"),
        (differs(of(&[1.0, 0.0]), error()), "eager calls work; compiled: exp: no"),
        (differs(error(), of(&[1.0])), "the compiled graph works"),
        (differs(error(), Err(Error::Internal { message: "overflow".into() })), "compiled: "),
    ] {
        let what = result.expect_err(message);
        assert!(what.contains(message), "{what}");
    }
    Ok(())
}

#[test]
fn an_index_out_of_range_fails_on_both_sides() -> Result<()> {
    let repro: Repro =
        "graph {\n  n0 = input: f32[2]\n  n1 = input: i64[1]\n  n2 = index_select(n0, n1; 0): f32[1]\n  \
        return n2\n}\ninputs {\n  n0 = 0*2\n  n1 = 7\n}\n"
            .parse()?;
    repro.check(&CompileOptions::default())
}

#[test]
fn a_compiled_function_is_compared_without_effects() -> Result<()> {
    let captured = Tensor::from_slice(&[1.0f32, 2.0], &[2])?;
    let f = compile(move |x: &Tensor| {
        let noise = x.rand_like()?;
        let y = x.add(&noise)?.mul(&captured)?;
        x.mul_(2.0)?;
        y.exp()
    });
    let x = Tensor::from_slice(&[0.5f32, -1.0], &[2])?;
    f.call(&x)?;
    manual_seed(3);
    let (before, version) = (x.to_vec::<f32>()?, x.version());
    assert!(f.minimize(&x)?.is_none());
    assert_eq!((x.to_vec::<f32>()?, x.version()), (before, version));
    let drawn = f.call(&x)?.to_vec::<f32>()?;
    let again = Tensor::from_slice(&[1.0f32, -2.0], &[2])?;
    manual_seed(3);
    assert_eq!(f.call(&again)?.to_vec::<f32>()?, drawn, "a comparison draws nothing");
    Ok(())
}

#[test]
fn what_is_not_one_graph_is_refused() -> Result<()> {
    let x = Tensor::ones(&[2], DType::F32)?;
    let f = compile(|x: &Tensor| x.exp());
    let reads = compile(|x: &Tensor| x.mul(x.sum_all()?.item::<f32>()?));
    reads.call(&x)?;
    reads.call(&x)?;
    let eager = compile_with(|x: &Tensor| x.exp(), CompileOptions { capacity: 0, ..CompileOptions::default() });
    eager.call(&x)?;
    for result in [f.minimize(&x), reads.minimize(&x), eager.minimize(&x)] {
        let error = result.map(|_| ()).expect_err("there is no graph").to_string();
        assert!(error.contains("call the function first, and see explain()"), "{error}");
    }
    Ok(())
}
