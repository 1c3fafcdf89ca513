//! Prints a program as a Rust test that stands beside those of `found.rs`.

use super::given::memory;
use super::methods::Method;
use super::program::{
    Arg, Block, Case, Feed, Given, Guard, Memory, Place, Reading, Role, Statement, Tensors, Var, Wrapper,
};
use opfuse::{DType, Result, Scalar};
use std::fmt::Write;

/// The program as text.
pub(crate) fn program(name: &str, case: &Case) -> String {
    let mut out = format!("#[test]\nfn {name}() {{\n    fn captured() -> Result<Made> {{\n");
    given(&mut out, &case.captured, 2);
    out +=
        "    }\n    fn inputs(call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {\n        match call {\n";
    for (call, tensors) in case.calls.iter().enumerate() {
        let last = call + 1 == case.calls.len();
        out += &if last { "            _ => {\n".into() } else { format!("            {call} => {{\n") };
        given(&mut out, tensors, 4);
        out += "            }\n";
    }
    out += "        }\n    }\n    fn function(w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {\n";
    let n_inputs = case.n_inputs();
    for var in 0..n_inputs {
        line(&mut out, 2, &format!("let t{var} = x[{var}].clone();"));
    }
    for index in 0..case.captured.given.len() {
        line(&mut out, 2, &format!("let t{} = w[{index}].clone();", n_inputs + index));
    }
    statements(&mut out, &case.body, 2);
    line(&mut out, 2, &format!("Ok(vec![{}])", handles(&case.body.results)));
    out += "    }\n";
    let settings = format!("{:?}", case.settings).replace("after: ", "after: After::").replace("BF16", "DType::BF16");
    line(&mut out, 1, &format!("let settings = {settings};"));
    line(&mut out, 1, &format!("check(captured, inputs, {}, &settings, function);", case.calls.len()));
    out + "}\n"
}

fn line(out: &mut String, depth: usize, text: &str) {
    *out += &"    ".repeat(depth);
    *out += text;
    out.push('\n');
}

fn given(out: &mut String, tensors: &Tensors, depth: usize) {
    line(out, depth, "let mut made = Made::default();");
    for memory in &tensors.memories {
        if memory.len == 0 {
            line(out, depth, &format!("made.memories.push(Tensor::zeros(&[0], DType::{:?})?);", memory.dtype));
            continue;
        }
        let elements = elements(memory).unwrap_or_else(|error| error.to_string());
        line(out, depth, &format!("made.memories.push(Tensor::from_slice(&[{elements}], &[{}])?);", memory.len));
    }
    for given in &tensors.given {
        let fresh = one(given, tensors);
        let text = match given.feed {
            Feed::Fresh => fresh,
            feed => format!("match _before.get(Feed::{feed:?}) {{ Some(tensor) => tensor, None => {fresh} }}"),
        };
        line(out, depth, &format!("let given = {text};"));
        line(out, depth, "made.tensors.push(given);");
    }
    line(out, depth, "Ok(made)");
}

fn one(given: &Given, tensors: &Tensors) -> String {
    let Given { place, sizes, strides, offset, role, feed: _ } = given;
    let index = match place {
        Place::Memory(index) => *index,
        Place::Input(index) => return format!("made.tensors[{index}].clone()"),
        Place::Captured(index) => return format!("_w[{index}].clone()"),
        Place::Number(number) => return format!("Tensor::number({})?", scalar_text(&Arg::Scalar(*number))),
    };
    let over = if tensors.memories[index].is_complex() { "over_pairs" } else { "over" };
    let plain = format!("{over}(&made.memories[{index}], &{sizes:?}, &{strides:?}, {offset})?");
    match role {
        Role::Plain => plain,
        Role::Inference => format!("inferred(&{plain})?"),
        _ if !tensors.memories[index].dtype.is_float() => plain,
        Role::Leaf => format!("leaf({plain})?"),
        Role::Computed => format!("{{ let plain = {plain}; made.leaf(plain)?.mul(1.5)? }}"),
        Role::View => format!("{{ let plain = {plain}; made.leaf(plain)?.alias()? }}"),
    }
}

fn elements(given: &Memory) -> Result<String> {
    let tensor = memory(given)?;
    macro_rules! read {
        ($ty:ty, |$x:ident| $text:expr) => {
            tensor.to_vec::<$ty>()?.into_iter().map(|$x| $text).collect::<Vec<String>>().join(", ")
        };
    }
    Ok(match given.dtype {
        DType::F16 => read!(opfuse::f16, |x| format!("f16::from_bits({:#x})", x.to_bits())),
        DType::BF16 => read!(opfuse::bf16, |x| format!("bf16::from_bits({:#x})", x.to_bits())),
        DType::F32 => read!(f32, |x| match x.is_finite() {
            true => format!("{x:?}f32"),
            false => format!("f32::from_bits({:#x})", x.to_bits()),
        }),
        DType::Complex64 | DType::Complex128 => unreachable!("no case is complex"),
        DType::F64 => read!(f64, |x| match x.is_finite() {
            true => format!("{x:?}f64"),
            false => format!("f64::from_bits({:#x})", x.to_bits()),
        }),
        DType::I8 => read!(i8, |x| format!("{x}i8")),
        DType::I16 => read!(i16, |x| format!("{x}i16")),
        DType::I32 => read!(i32, |x| format!("{x}i32")),
        DType::I64 => read!(i64, |x| format!("{x}i64")),
        DType::U8 => read!(u8, |x| format!("{x}u8")),
        DType::Bool => read!(bool, |x| x.to_string()),
    })
}

fn handles(vars: &[Var]) -> String {
    vars.iter().map(|var| format!("t{var}.clone()")).collect::<Vec<_>>().join(", ")
}

fn names(vars: &[Var]) -> String {
    vars.iter().map(|var| format!("t{var}")).collect::<Vec<_>>().join(", ")
}

fn statements(out: &mut String, block: &Block, depth: usize) {
    for each in &block.statements {
        statement(out, each, depth);
    }
}

fn statement(out: &mut String, statement: &Statement, depth: usize) {
    let text = match statement {
        Statement::Call { outs, name, args } => {
            let args = args.iter().map(value).collect::<Vec<_>>().join(", ");
            taken(outs, &format!("call({name:?}, vec![{args}])?"))
        }
        Statement::Method { outs, method, tensors, ints, scalar } => {
            let call = method_call(method, tensors, ints, scalar);
            let is_many = ["chunk", "split", "unbind", "max_dim", "sort"].iter().any(|name| call.contains(name));
            match outs[..] {
                [] => format!("{call}?;"),
                [out] if !is_many => format!("let t{out} = {call}?;"),
                _ => taken(outs, &format!("{call}?.tensors()")),
            }
        }
        Statement::Custom { outs, kind, of } => taken(outs, &format!("custom({kind}, &t{of})?")),
        Statement::Make { out, dtype, sizes, start } => {
            format!("let t{out} = made(DType::{dtype:?}, &{sizes:?}, {start})?;")
        }
        Statement::Clone { out, of } => format!("let t{out} = t{of}.clone();"),
        Statement::Drop { of } => format!("drop(t{of});"),
        Statement::Read { number, of, how } => {
            let how = if *how == Reading::Item { "item" } else { "first" };
            format!("let n{number} = {how}(&t{of})?;")
        }
        Statement::Branch { number, above, then, otherwise, outs } => {
            line(out, depth, &format!("let [{}] = if n{number} > {} {{", names(outs), float(*above)));
            statements(out, then, depth + 1);
            line(out, depth + 1, &format!("[{}]", handles(&then.results)));
            line(out, depth, "} else {");
            statements(out, otherwise, depth + 1);
            line(out, depth + 1, &format!("[{}]", handles(&otherwise.results)));
            "};".into()
        }
        Statement::Open { guard, kind } => format!(
            "let g{guard} = {}?;",
            match kind {
                Guard::NoGrad => "quiet()".into(),
                Guard::EnableGrad => "recording()".into(),
                Guard::Inference => "inference()".into(),
                Guard::Autocast(dtype) => format!("lower(DType::{dtype:?})"),
                Guard::NoAutocast => "not_lower()".into(),
                Guard::Default(dtype) => format!("default(DType::{dtype:?})"),
                Guard::Mode => "counting()".to_string(),
            }
        ),
        Statement::Close { guard } => format!("drop(g{guard});"),
        Statement::Nested { wrapper, params, args, body, outs } => {
            line(out, depth, "let inner = |p: &[Tensor]| -> Result<Vec<Tensor>> {");
            for (index, param) in params.iter().enumerate() {
                line(out, depth + 1, &format!("let t{param} = p[{index}].clone();"));
            }
            statements(out, body, depth + 1);
            line(out, depth + 1, &format!("Ok(vec![{}])", handles(&body.results)));
            line(out, depth, "};");
            let wrapped = match wrapper {
                Wrapper::Compile => "compile(inner)".into(),
                Wrapper::Vmap(dims) => format!("vmap(inner).in_dims(vec!{dims:?})"),
            };
            taken(outs, &format!("{wrapped}.call(&[{}][..])?", handles(args)))
        }
        Statement::Backward { of } => format!("t{of}.backward()?;"),
        Statement::Grad { outs, of, wrt, create_graph } => {
            let wrt = wrt.iter().map(|var| format!("&t{var}")).collect::<Vec<_>>().join(", ");
            taken(outs, &format!("gradients(&t{of}, &[{wrt}], {create_graph})?"))
        }
        Statement::TakeGrad { out, of } => format!("let t{out} = gradient(&t{of})?;"),
        Statement::ClearGrad { of } => format!("t{of}.set_grad(None)?;"),
        Statement::RequireGrad { of, required } => format!("t{of}.set_requires_grad({required})?;"),
    };
    line(out, depth, &text);
}

fn taken(outs: &[Var], call: &str) -> String {
    if outs.is_empty() { format!("{call};") } else { format!("let [{}] = first_of({call})?;", names(outs)) }
}

/// The text of a method with arguments in place of names.
fn method_call(method: &Method, tensors: &[Var], ints: &[i64], scalar: &Arg) -> String {
    let mut out = String::new();
    let mut rest = method.text;
    while let Some(first) = rest.chars().next() {
        if !first.is_ascii_alphabetic() {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        rest = tail;
        let is_name = !out.ends_with('.') || out.ends_with("..");
        let tensor = method.tensors.iter().position(|name| *name == word && is_name);
        let int = method.ints.iter().position(|(name, _)| *name == word && is_name);
        match (tensor, int) {
            (Some(at), _) if tail.starts_with('.') => drop(write!(out, "t{}", tensors[at])),
            (Some(at), _) => drop(write!(out, "&t{}", tensors[at])),
            (_, Some(at)) => drop(write!(out, "{}i64", ints[at])),
            _ if word == "s" && is_name && method.takes_scalar => out += &scalar_text(scalar),
            _ => out += word,
        }
    }
    out
}

fn float(number: f64) -> String {
    if number.is_finite() { format!("{number:?}") } else { format!("f64::from_bits({:#x})", number.to_bits()) }
}

fn scalar_text(arg: &Arg) -> String {
    match arg {
        Arg::Number(number) => format!("Scalar::Float(n{number})"),
        Arg::Rate => "rate()".into(),
        Arg::Scalar(Scalar::Float(number)) => format!("Scalar::Float({})", float(*number)),
        Arg::Scalar(other) => format!("Scalar::{other:?}"),
        _ => "Scalar::Int(0)".into(),
    }
}

fn value(arg: &Arg) -> String {
    match arg {
        Arg::None => "Value::None".into(),
        Arg::Tensor(var) => format!("Value::Tensor(t{var}.clone())"),
        Arg::Tensors(vars) => format!("Value::TensorList(vec![{}])", handles(vars)),
        Arg::OptionalTensors(vars) => {
            let one = |var: &Option<Var>| var.map_or("None".into(), |var| format!("Some(t{var}.clone())"));
            format!("Value::OptionalTensorList(vec![{}])", vars.iter().map(one).collect::<Vec<_>>().join(", "))
        }
        Arg::Int(number) => format!("Value::Int({number})"),
        Arg::Float(number) => format!("Value::Float({})", float(*number)),
        Arg::Bool(flag) => format!("Value::Bool({flag})"),
        Arg::Str(text) => format!("Value::Str({text:?}.into())"),
        Arg::Ints(numbers) => format!("Value::IntList(vec!{numbers:?}.into())"),
        Arg::Floats(numbers) => format!("Value::FloatList(vec!{numbers:?})"),
        Arg::Bools(flags) => format!("Value::BoolList(vec!{flags:?})"),
        Arg::Scalar(_) | Arg::Number(_) | Arg::Rate => format!("Value::Scalar({})", scalar_text(arg)),
        Arg::DType(dtype) => format!("Value::DType(DType::{dtype:?})"),
        Arg::Format(format) => format!("Value::MemoryFormat(MemoryFormat::{format:?})"),
    }
}
