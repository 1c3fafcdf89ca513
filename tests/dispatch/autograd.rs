//! Gradients and writes as the dispatcher sees them (lines 127 to 133). The rest of autograd has
//! `tests/eager/autograd`.

use crate::assert_error;
use opfuse::dispatch::{Dispatcher, Value};
use opfuse::internals::transforms::tracer::{Trace, trace};
use opfuse::{DType, Result, Tensor};

fn vector(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, &[values.len()]).expect("as many elements")
}

fn leaf(values: &[f64]) -> Tensor {
    let leaf = vector(values);
    leaf.set_requires_grad(true).expect("a float leaf");
    leaf
}

/// The gradients of the sum of what a function gives.
fn gradients(leaves: &[&Tensor], function: impl FnOnce() -> Result<Tensor>) -> Vec<Vec<f64>> {
    let sum = function().and_then(|y| y.sum((), false)).expect("a result");
    sum.backward().expect("a way back");
    leaves.iter().map(|leaf| leaf.grad().expect("a gradient").to_vec().expect("f64")).collect()
}

#[test]
fn n127_out_and_gradients_do_not_go_together() {
    let add = Dispatcher::global().lookup("aten::add.out").expect("an operator");
    let (x, out) = (leaf(&[1.0, 2.0]), vector(&[0.0, 0.0]));
    let call = || {
        let arguments = vec![Value::Tensor(x.clone()), Value::Tensor(x.clone())];
        add.invoke(arguments, vec![("out", Value::Tensor(out.clone()))])
    };
    assert_error(call(), &["add", "functions with out=... arguments don't support automatic differentiation"]);
    let _quiet = opfuse::autograd::no_grad();
    call().expect("nothing is recorded");
    assert_eq!(out.to_vec::<f64>(), Ok(vec![2.0, 4.0]));
}

#[test]
fn n129_gradients_at_ties() {
    let x = [1.0, 3.0, 3.0];
    let one = |function: fn(&Tensor) -> Result<Tensor>| {
        let x = leaf(&x);
        gradients(&[&x], || function(&x)).remove(0)
    };
    assert_eq!(one(|x| x.max_all()), [0.0, 0.5, 0.5]);
    assert_eq!(one(|x| x.amax([0], false)), [0.0, 0.5, 0.5]);
    assert_eq!(one(|x| x.max_dim(0, false).map(|(values, _)| values)), [0.0, 1.0, 0.0]);
    assert_eq!(one(|x| x.sub(3.0)?.relu()), [0.0, 0.0, 0.0]);
    assert_eq!(one(|x| x.sub(3.0)?.abs()), [-1.0, 0.0, 0.0]);
    assert_eq!(one(|x| x.clamp(Some(1.0.into()), Some(4.0.into()))), [0.0, 1.0, 1.0]);
    let (a, b) = (leaf(&[1.0, 2.0]), leaf(&[1.0, 3.0]));
    assert_eq!(gradients(&[&a, &b], || a.maximum(&b)), [[0.5, 0.0], [0.5, 1.0]]);
    // Tensor bounds share the gradient with the tensor that they bound.
    let (a, low) = (leaf(&[1.0, 2.0]), leaf(&[1.0, 0.0]));
    let clamp = Dispatcher::global().lookup("aten::clamp.Tensor").expect("an operator");
    let clamped = || {
        let mut results = clamp.invoke(vec![Value::Tensor(a.clone()), Value::Tensor(low.clone())], vec![])?;
        let Some(Value::Tensor(result)) = results.pop() else { panic!("no tensor") };
        Ok(result)
    };
    assert_eq!(gradients(&[&a, &low], clamped), [[0.5, 1.0], [0.5, 0.0]]);
}

/// The trace of a function of one tensor.
fn traced(x: &Tensor, function: impl FnOnce(&Tensor) -> Result<Tensor>) -> Trace {
    let inputs = [x.clone()];
    let (_, captured) = trace(&inputs, |inputs| function(&inputs[0]), |result| vec![result.clone()]).expect("a result");
    captured.expect("all calls are rows")
}

fn ops(trace: &Trace) -> Vec<&'static str> {
    trace.graph.nodes().filter_map(|(_, node)| node.op()).map(|op| op.name()).collect()
}

#[test]
fn n130_writes_to_views_become_values() {
    let x = Tensor::ones(&[2, 3], DType::F32).expect("ones");
    let trace = traced(&x, |x| {
        let y = x.copy()?;
        y.view(-1)?.mul_(2)?;
        Ok(y)
    });
    let ops = ops(&trace);
    assert_eq!(ops[..3], ["clone", "view", "mul"], "{}", trace.graph);
    // The write becomes a new value with the shape of the view's base; no op of a graph writes.
    assert!(ops[3..].contains(&"view"), "{}", trace.graph);
    assert!(ops.iter().all(|name| !name.ends_with('_')) && trace.written.is_empty(), "{}", trace.graph);
}

#[test]
fn n132_writes_to_inputs_are_one_copy_at_the_end() {
    let x = Tensor::ones(&[3], DType::F32).expect("ones");
    let trace = traced(&x, |x| {
        x.add_(1)?;
        x.mul_(3)?;
        x.exp()
    });
    assert_eq!(ops(&trace), ["add", "mul", "exp"], "{}", trace.graph);
    // The function's result, then the value that the input gets.
    let outputs: Vec<_> = trace.graph.outputs().iter().map(|&id| trace.graph[id].op().map(|op| op.name())).collect();
    assert_eq!((outputs, &trace.written[..]), (vec![Some("exp"), Some("mul")], &[0][..]));
    // A trace computes nothing.
    assert_eq!(x.to_vec::<f32>(), Ok(vec![1.0; 3]));
}

#[test]
fn n133_out_is_replaced_by_the_result() {
    let add = Dispatcher::global().lookup("aten::add.out").expect("an operator");
    let x = Tensor::ones(&[3], DType::F32).expect("ones");
    let trace = traced(&x, |x| {
        let y = Tensor::zeros(&[3], DType::F32)?;
        add.invoke(vec![Value::Tensor(x.clone()), Value::Tensor(x.clone())], vec![("out", Value::Tensor(y.clone()))])?;
        y.exp()
    });
    let names = ops(&trace);
    assert!(names.contains(&"add") && names.contains(&"exp"), "{}", trace.graph);
    let exp = trace.graph.nodes().find(|(_, node)| node.op().is_some_and(|op| op.name() == "exp"));
    let (_, exp) = exp.expect("found above");
    assert_eq!(trace.graph[exp.args[0]].op().map(|op| op.name()), Some("add"), "{}", trace.graph);
    assert!(trace.written.is_empty());
}

/// Registers `own_<name>::cube`, which has a kernel for the CPU and no derivative.
fn cube(name: &str) -> (opfuse::dispatch::Library, opfuse::dispatch::Operator) {
    use opfuse::dispatch::{DispatchKey, Dispatcher, Library};
    let mut library = Library::def_block(&format!("own_{name}")).expect("the name is used once");
    library.def("cube(Tensor x) -> Tensor").expect("it is a schema");
    let kernel = |x: &Tensor| x * x * x;
    library.impl_for("cube", DispatchKey::CPU, kernel).expect("the signature fits");
    let operator = Dispatcher::global().lookup(&format!("own_{name}::cube")).expect("it is defined");
    (library, operator)
}

#[test]
fn an_operator_without_derivative_does_not_end_the_history_silently() {
    let (_library, cube) = cube("history");
    let x = Tensor::from_slice(&[2.0f32], &[1]).expect("it is small");
    x.set_requires_grad(true).expect("a leaf");
    let cubed = |x: &Tensor| cube.call::<(&Tensor,), Tensor>((x,)).expect("it computes");
    let result = cubed(&x);
    assert!(result.requires_grad() && !result.is_leaf());
    let sum = x.square().and_then(|square| square.add(&result)).expect("the shapes fit");
    let error = sum.backward().expect_err("cube has no derivative").to_string();
    assert!(error.contains("own_history::cube") && error.contains("no derivative"), "{error}");
    // Boxed calls are recorded alike.
    let boxed = cube.invoke(vec![Value::Tensor(x.clone())], vec![]).expect("it computes");
    assert!(matches!(&boxed[0], Value::Tensor(result) if result.requires_grad()));
}

#[test]
fn an_operator_without_derivative_records_nothing_where_no_gradient_is_wanted() {
    let (_library, cube) = cube("quiet");
    let cubed = |x: &Tensor| cube.call::<(&Tensor,), Tensor>((x,)).expect("it computes");
    let x = Tensor::from_slice(&[2.0f32], &[1]).expect("it is small");
    assert!(!cubed(&x).requires_grad());
    x.set_requires_grad(true).expect("a leaf");
    assert!(!cubed(&x.detach().expect("a view")).requires_grad());
    let quiet = opfuse::autograd::no_grad();
    assert!(!cubed(&x).requires_grad());
    drop(quiet);
    let sum = x.square().and_then(|square| square.add(cubed(&x.detach()?))).expect("the shapes fit");
    sum.backward().expect("a part without history takes no gradient");
    assert_eq!(x.grad().map(|grad| grad.to_vec::<f32>()), Some(Ok(vec![4.0])));
}
