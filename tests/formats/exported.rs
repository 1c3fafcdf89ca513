//! Programs that PyTorch exported: results and gradients against PyTorch's, and compiled bits against eager ones.
//!
//! `scripts/export_models.py` makes the files. Arrays are called `0.in.0`, `0.out.0`, `0.grad.NAME`.

use crate::Folder;
use crate::archives::{Member, archive};
use crate::bits::bits;
use opfuse::autograd::no_grad;
use opfuse::exported::Program;
use opfuse::formats::npz;
use opfuse::{DType, Result, StateDict, Tensor, cat};
use std::path::PathBuf;

/// Every model.
const MODELS: [&str; 18] = [
    "perceptron",
    "encoder",
    "bert",
    "distilbert",
    "gpt2",
    "llama",
    "qwen3",
    "vit",
    "resnet",
    "convnext",
    "t5",
    "lstm",
    "layers",
    "control",
    "numbers",
    "bert_bf16",
    "transforms",
    "complex",
];

/// The largest difference from PyTorch, relative to the largest element. PyTorch rounds bf16 at other places.
fn tolerance(name: &str) -> f64 {
    if name == "bert_bf16" { 0.02 } else { 1e-5 }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/formats/exported").join(name)
}

/// The arrays `CALL.KIND.0`, `CALL.KIND.1`, ….
fn arrays(all: &StateDict, call: usize, kind: &str) -> Vec<Tensor> {
    (0..).map_while(|at| all.get(&format!("{call}.{kind}.{at}")).cloned()).collect()
}

fn values(x: &Tensor) -> Result<Vec<f64>> {
    if matches!(x.dtype(), DType::Complex64 | DType::Complex128) {
        return values(&x.view_as_real()?);
    }
    x.to_dtype(DType::F64)?.contiguous()?.to_vec::<f64>()
}

/// The largest magnitude of some tensors.
fn largest<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Result<f64> {
    let mut largest = 1e-30;
    for tensor in tensors {
        largest = values(tensor)?.iter().fold(largest, |largest: f64, x| largest.max(x.abs()));
    }
    Ok(largest)
}

/// The largest difference, relative to `scale`.
fn difference(found: &Tensor, wanted: &Tensor, scale: f64) -> Result<f64> {
    assert_eq!(found.sizes(), wanted.sizes());
    let pairs = values(found)?.into_iter().zip(values(wanted)?);
    Ok(pairs.map(|(a, b)| (a - b).abs() / scale).fold(0.0, f64::max))
}

fn check(name: &str) -> Result<Vec<String>> {
    let arrays_of = npz::load(path(&format!("{name}.npz")))?;
    let load = || Program::load(path(&format!("{name}.pt2")));
    let (eager, compiled) = (load()?, load()?);
    let mut wrong = Vec::new();
    let unrecorded = no_grad();
    for call in 0.. {
        let inputs = arrays(&arrays_of, call, "in");
        let wanted = arrays(&arrays_of, call, "out");
        if wanted.is_empty() {
            break;
        }
        let found = eager.call_eager(&inputs)?;
        assert_eq!(found.len(), wanted.len(), "{name}");
        for (at, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            let difference = difference(found, wanted, largest([wanted].into_iter())?)?;
            if difference > tolerance(name) {
                wrong.push(format!("{name}: output {at} of call {call} differs by {difference:e}"));
            }
        }
        let again = compiled.call(&inputs)?;
        if found.iter().map(bits).ne(again.iter().map(bits)) {
            wrong.push(format!("{name}: call {call} has other bits compiled"));
        }
    }
    drop(unrecorded);
    if !arrays_of.keys().any(|name| name.starts_with("0.grad")) {
        return Ok(wrong);
    }
    // A gradient that cancels, as before a normalization, has the error of those that do not.
    let scale = largest(arrays_of.iter().filter(|(name, _)| name.starts_with("0.grad")).map(|(_, array)| array))?;
    for run in [Program::call_eager, Program::call] {
        let program = load()?;
        let outputs = run(&program, &arrays(&arrays_of, 0, "in"))?;
        outputs[0].pow(3.0)?.sum_all()?.backward()?;
        for (array, wanted) in &arrays_of {
            let Some(parameter) = array.strip_prefix("0.grad.") else { continue };
            let Some(parameter) = program.state().get(parameter) else {
                // A wrapper's name is in front of the model's own.
                wrong.push(format!("{name}: no parameter is {parameter}"));
                continue;
            };
            let difference = parameter.grad().map(|found| difference(&found, wanted, scale)).transpose()?;
            if difference.is_none_or(|difference| difference > tolerance(name)) {
                wrong.push(format!("{name}: the gradient {array} differs by {difference:?}"));
            }
        }
    }
    Ok(wrong)
}

/// The models whose batch has a symbolic size and that treat its rows alike, and how many rows each gets.
const BATCHED: [&str; 6] = ["encoder", "bert", "gpt2", "llama", "vit", "resnet"];

/// Row `i` of a batch has the bits of that row alone. The rows are those of all recorded calls of one length.
#[test]
fn rows_of_a_batch_have_their_own_bits() -> Result<()> {
    let _unrecorded = no_grad();
    for name in BATCHED {
        let all = npz::load(path(&format!("{name}.npz")))?;
        let program = Program::load(path(&format!("{name}.pt2")))?;
        let row = |call: usize, at: i64| arrays(&all, call, "in")[0].narrow(0, at, 1);
        let (first, second) = (row(0, 0)?, row(0, 1)?);
        let alone = program.call(std::slice::from_ref(&first))?;
        for batch in [2, 3, 8] {
            let mut rows = vec![&second; batch];
            rows[batch / 2] = &first;
            let outputs = program.call(&[cat(&rows, 0)?])?;
            for (output, alone) in outputs.iter().zip(&alone) {
                let row = output.narrow(0, batch as i64 / 2, 1)?;
                assert_eq!(bits(&row)?, bits(alone)?, "{name}: a row of {batch} has other bits than alone");
            }
        }
    }
    Ok(())
}

#[test]
fn models_compute_what_pytorch_does() {
    let wrong: Vec<String> =
        MODELS.iter().flat_map(|name| check(name).unwrap_or_else(|error| vec![format!("{name}: {error}")])).collect();
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.expect_err("it must be refused").to_string()
}

#[test]
fn inputs_and_state_come_in_by_name() -> Result<()> {
    let _unrecorded = no_grad();
    let all = npz::load(path("perceptron.npz"))?;
    let program = Program::load(path("perceptron.pt2"))?;
    let inputs = arrays(&all, 0, "in");
    let named: StateDict =
        program.inputs().iter().map(|input| input.name().to_owned()).zip(inputs.iter().cloned()).collect();
    let start: StateDict =
        program.state().iter().map(|(name, tensor)| Ok((name.clone(), tensor.copy()?))).collect::<Result<_>>()?;
    let first = program.call_named(&named)?;
    // The program counts its calls, and forgets it again.
    program.load_state(&start)?;
    let again = program.call(&inputs)?;
    assert_eq!(
        first.iter().map(bits).collect::<Result<Vec<_>>>()?,
        again.iter().map(bits).collect::<Result<Vec<_>>>()?
    );

    let mut other = named.clone();
    other.remove("x");
    other.insert("y".to_owned(), inputs[0].clone());
    let refusal = message(program.call_named(&other));
    assert!(refusal.contains("1 missing: x; 1 unknown: y"), "{refusal}");
    let mut other = start.clone();
    other.insert("calls".to_owned(), Tensor::zeros(&[2], DType::F32)?);
    let refusal = message(program.load_state(&other));
    assert!(refusal.contains("calls is f32[2] instead of f32[]"), "{refusal}");
    Ok(())
}

#[test]
fn numbers_are_arguments() -> Result<()> {
    let all = npz::load(path("numbers.npz"))?;
    let program = Program::load(path("numbers.pt2"))?;
    // The factor and the flag were exported for their values; they may be passed all the same.
    let leaves = arrays(&all, 0, "in");
    assert_eq!((program.inputs().len(), leaves.len()), (4, 6));
    let taken = [&leaves[0], &leaves[1], &leaves[3], &leaves[4]].map(Tensor::clone);
    assert_eq!(bits(&program.call(&taken)?[0])?, bits(&program.call(&leaves)?[0])?);
    let mut other = leaves.clone();
    other[2] = Tensor::scalar(2.5)?;
    let refusal = message(program.call(&other));
    assert!(refusal.contains("argument 2 is 2.5, and the program was exported for 1.5"), "{refusal}");
    // More numbers than have a capture of their own.
    for n in 1..40i64 {
        let mut other = taken.clone();
        other[1] = Tensor::scalar(n)?;
        let (found, wanted) = (program.call(&other), program.call_eager(&other));
        match (found, wanted) {
            (Ok(found), Ok(wanted)) => assert_eq!(bits(&found[0])?, bits(&wanted[0])?, "{n}"),
            (found, wanted) => assert!(found.is_err() && wanted.is_err(), "{n}: {found:?} {wanted:?}"),
        }
    }
    Ok(())
}

#[test]
fn an_error_of_a_compiled_call_names_the_python_line() -> Result<()> {
    let all = npz::load(path("bert.npz"))?;
    let program = Program::load(path("bert.pt2"))?;
    let _unrecorded = no_grad();
    let mut inputs = arrays(&all, 0, "in");
    program.call(&inputs)?;
    inputs[0] = inputs[0].add(1 << 20)?;
    let eager = program.call_eager(&inputs).expect_err("there is no such word").to_string();
    let compiled = program.call(&inputs).expect_err("there is no such word").to_string();
    let (text, place) = compiled.rsplit_once(" (recorded at ").unwrap_or_else(|| panic!("no place: {compiled}"));
    let line = place.split([' ', ',', ')']).next().unwrap_or_default();
    assert!(line.contains(".py:"), "{compiled}");
    assert!(eager.starts_with(text) && eager.contains(line), "{eager}\n{compiled}");
    Ok(())
}

#[test]
fn a_prepared_program_is_not_captured_again() -> Result<()> {
    let all = npz::load(path("bert.npz"))?;
    let program = Program::load(path("bert.pt2"))?;
    let _unrecorded = no_grad();
    let inputs = arrays(&all, 0, "in");
    program.prepare(&[Tensor::zeros(inputs[0].sizes(), DType::I64)?])?;
    let before = program.explain().to_string();
    assert!(before.contains("kernel"), "{before}");
    let wanted = program.call_eager(&inputs)?;
    let found = program.call(&inputs)?;
    assert_eq!(bits(&found[0])?, bits(&wanted[0])?);
    Ok(())
}

#[test]
fn a_program_is_built_in() -> Result<()> {
    let program = opfuse::include_model!("exported/lstm.pt2")?;
    let all = npz::load(path("lstm.npz"))?;
    let _unrecorded = no_grad();
    let mapped = Program::load(path("lstm.pt2"))?;
    let inputs = arrays(&all, 0, "in");
    assert_eq!(bits(&program.call(&inputs)?[0])?, bits(&mapped.call(&inputs)?[0])?);
    let refusal = message(Program::from_bytes("no.pt2", b"PK no program"));
    assert!(refusal.contains("no.pt2"), "{refusal}");
    Ok(())
}

#[test]
fn load_names_who_loads_programs() {
    let refusal = message(opfuse::load(path("lstm.pt2")));
    assert!(refusal.contains("exported::Program::load"), "{refusal}");
}

/// A program that returns the result of one call. Its input `x` has two complex numbers of 128 bits.
fn program_of(call: &str) -> Result<Program> {
    let model = r#"{"graph_module":{"graph":{"inputs":[{"as_tensor":{"name":"x"}}],
        "outputs":[{"as_tensor":{"name":"y"}}],
        "nodes":[{CALL,"outputs":[{"as_tensor":{"name":"y"}}],
        "metadata":{"stack_trace":"File \"m.py\", line 3, in forward\n    y = f(x)"}}],
        "tensor_values":{"x":{"dtype":11,"sizes":[{"as_int":2}],"strides":[{"as_int":1}],"requires_grad":false,
        "storage_offset":{"as_int":0},"layout":7}}},"signature":{"input_specs":[{"user_input":{"arg":{"as_tensor":
        {"name":"x"}}}}],"output_specs":[{"user_output":{"arg":{"as_tensor":{"name":"y"}}}}]}},"range_constraints":{},
        "schema_version":{"major":8,"minor":20},"torch_version":"2.9"}"#;
    let members = [
        Member::stored("m/models/model.json", model.replace("CALL", call).as_bytes()),
        Member::stored("m/data/weights/model_weights_config.json", br#"{"config":{}}"#),
        Member::stored("m/byteorder", b"little"),
    ];
    let folder = Folder::new("exported");
    std::fs::write(folder.file("m.pt2"), archive(&members)).expect("the folder can be written to");
    Program::load(folder.file("m.pt2"))
}

#[test]
fn tensors_are_filled_with_complex_numbers() -> Result<()> {
    let number = |imag: f64| format!(r#"{{"as_complex":{{"real":1.5,"imag":{imag:?}}}}}"#);
    let call = |target: &str, first: &str, number: &str, rest: &str| {
        let value = if target.starts_with("fill") { "value" } else { "fill_value" };
        let inputs = format!(r#"{first},{{"name":"{value}","arg":{number}}}{rest}"#);
        program_of(&format!(r#""target":"torch.ops.aten.{target}","inputs":[{inputs}]"#))
    };
    let x = r#"{"name":"self","arg":{"as_tensor":{"name":"x"}}}"#;
    let size = r#"{"name":"size","arg":{"as_ints":[2]}}"#;
    let x_and_size = format!("{x},{size}");
    let (wide, none) =
        (r#",{"name":"dtype","arg":{"as_scalar_type":11}}"#, r#",{"name":"dtype","arg":{"as_none":true}}"#);
    let double = r#",{"name":"dtype","arg":{"as_scalar_type":8}}"#;
    let input = Tensor::zeros(&[2], DType::Complex128)?;
    for (target, first, rest, dtype) in [
        ("full.default", size, "", DType::Complex64),
        ("full.default", size, none, DType::Complex64),
        ("full.default", size, wide, DType::Complex128),
        ("full_like.default", x, "", DType::Complex128),
        ("new_full.default", &*x_and_size, "", DType::Complex128),
        ("fill.Scalar", x, "", DType::Complex128),
        ("fill_.Scalar", x, "", DType::Complex128),
    ] {
        for imag in [-2.0, 0.0] {
            let program = call(target, first, &number(imag), rest)?;
            for found in [program.call_eager(&[input.copy()?])?, program.call(&[input.copy()?])?] {
                assert_eq!(found[0].dtype(), dtype, "{target}");
                assert_eq!(values(&found[0])?, [1.5, imag, 1.5, imag], "{target}");
            }
        }
    }
    // A real tensor has no room for it.
    let program = call("full.default", size, &number(-2.0), double)?;
    let refusal = message(program.call_eager(&[input]));
    assert!(refusal.contains("aten.full.default at m.py:3") && refusal.contains("f64"), "{refusal}");
    Ok(())
}
