//! Every differentiable row of the op table: its gradients against differences in f64.
//!
//! Calls are proposed as for the tests of compiled code: broadcasting, strides, sizes of 0 and 1, plain numbers. The
//! graph of the gradients runs node by node; compiled it must give the same bits.

#[path = "same_bits/build.rs"]
mod build;
#[path = "same_bits/check.rs"]
mod check;
#[path = "same_bits/random.rs"]
mod random;
#[allow(dead_code, reason = "slopes are taken at ordinary numbers only")]
#[path = "same_bits/values.rs"]
mod values;
#[path = "same_bits/views.rs"]
mod views;

use build::{Builder, Case};
use check::{Effort, elements, failure, reference};
use opfuse::device::{Device, Storage};
use opfuse::eager::{self, Argument, Array};
use opfuse::ir::autodiff::{VjpInput, vjp};
use opfuse::ir::{Attrs, DType, Layout, NodeId, Op, TensorType, verify};
use std::sync::Arc;
use values::Fill;

/// A call whose operands are known.
struct Call {
    op: Op,
    attrs: Attrs,
    args: Vec<Array>,
    numbers: Vec<bool>,
}

const SHAPES: [&[usize]; 10] = [&[], &[1], &[0], &[4], &[2, 3], &[1, 3], &[3, 0], &[3, 3], &[2, 1, 3], &[2, 3, 2]];

/// A call of `op` on f64 operands and whatever else it takes.
fn propose(op: Op, seed: u64, shape: &[usize]) -> Option<Call> {
    let mut builder = Builder::new(seed);
    builder.limit = 64;
    builder.shape = shape.to_vec();
    let fill = builder.random.pick(&[Fill::Normal, Fill::Positive]);
    builder.strided_input(DType::F64, shape, fill);
    let part = builder.part_of_shape();
    builder.strided_input(DType::F64, &part, Fill::Normal);
    let output = (0..40).find_map(|_| {
        let id = builder.propose(op)?;
        let (graph, node) = (&builder.graph, &builder.graph[id]);
        let f64_only = |id: &NodeId| !graph[*id].ty.dtype.is_float() || graph[*id].ty.dtype == DType::F64;
        let differentiable = |id: &NodeId| graph[*id].ty.dtype.is_float() && !graph[*id].ty.number;
        let good =
            node.ty.dtype == DType::F64 && node.args.iter().all(f64_only) && node.args.iter().any(differentiable);
        good.then_some(id)
    })?;
    let case = builder.finish(vec![output]);
    let values = reference(&case.graph, &case.inputs).expect("a legal call runs");
    let node = &case.graph[output];
    Some(Call {
        op,
        attrs: node.attrs.clone(),
        args: node.args.iter().map(|arg| values[arg.index()].clone()).collect(),
        numbers: node.args.iter().map(|&arg| case.graph[arg].ty.number).collect(),
    })
}

fn array(dtype: DType, sizes: &[usize], bits: &[u64]) -> Array {
    let bytes: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()[..dtype.size()].to_vec()).collect();
    let storage = Storage::copy_of(Device::CPU, &bytes).expect("memory is there");
    Array::from_storage(Arc::new(storage), dtype, Layout::contiguous(sizes)).expect("the storage was made for it")
}

fn bits(array: &Array) -> Vec<u64> {
    elements(array).collect()
}

fn numbers(array: &Array) -> Vec<f64> {
    elements(array).map(f64::from_bits).collect()
}

impl Call {
    fn types(&self) -> Vec<TensorType> {
        let ty = |(array, &number): (&Array, &bool)| TensorType { number, ..array.ty() };
        self.args.iter().zip(&self.numbers).map(ty).collect()
    }

    fn run(&self, args: &[Array]) -> Array {
        let arguments: Vec<Argument<'_>> =
            args.iter().zip(&self.numbers).map(|(array, &number)| Argument { array, number }).collect();
        eager::run(self.op, &arguments, &self.attrs).unwrap_or_else(|error| panic!("{}: {error}", self.op.name()))
    }

    /// The gradient of every operand, and the graph that gave them.
    fn gradients(&self, result: &Array, grad: &Array) -> (Vec<Option<Array>>, Case) {
        let types = self.types();
        let refs: Vec<&TensorType> = types.iter().collect();
        let vjp = vjp(self.op, &refs, &self.attrs, &result.ty(), &vec![true; types.len()])
            .unwrap_or_else(|error| panic!("{} of {types:?} {:?}: {error}", self.op.name(), self.attrs));
        verify(&vjp.graph).unwrap_or_else(|error| panic!("{}: {error}\n{}", self.op.name(), vjp.graph));
        let input = |input: &VjpInput| match *input {
            VjpInput::Arg(index) => self.args[index].clone(),
            VjpInput::Result => result.clone(),
            VjpInput::Grad => grad.clone(),
        };
        let case = Case { graph: vjp.graph, inputs: vjp.inputs.iter().map(input).collect() };
        let values = reference(&case.graph, &case.inputs)
            .unwrap_or_else(|error| panic!("{} of {types:?}: {error}\n{}", self.op.name(), case.graph));
        let gradient = |place: &Option<usize>| place.map(|place| values[case.graph.outputs()[place].index()].clone());
        (vjp.outputs.iter().map(gradient).collect(), case)
    }
}

/// The slope of a loss where `x` is moved, if it has one there, and how exact that is. The loss comes with the sum of
/// the magnitudes that it was added up from.
fn slope(x: f64, loss: impl Fn(f64) -> (f64, f64)) -> Option<(f64, f64)> {
    let step = 1e-6 * x.abs().max(1.0);
    let [(below, _), (here, magnitude), (above, _)] = [loss(x - step), loss(x), loss(x + step)];
    let (left, right) = ((here - below) / step, (above - here) / step);
    let noise = 4.0 * f64::EPSILON * magnitude / step;
    let smooth = (left - right).abs() <= 1e-3 * left.abs().max(right.abs()).max(1.0) + noise;
    let slope = (above - below) / (2.0 * step);
    (smooth && slope.is_finite()).then_some((slope, 1e-5 * slope.abs().max(1.0) + noise))
}

/// Checks one call; returns how many slopes were compared.
fn check_call(call: &Call, seed: u64, compiled: bool) -> usize {
    let (op, types) = (call.op, call.types());
    let result = call.run(&call.args);
    let mut random = random::Random::new(seed);
    let weights: Vec<f64> = (0..result.layout().numel()).map(|_| random.normal()).collect();
    let weight_bits: Vec<u64> = weights.iter().map(|weight| weight.to_bits()).collect();
    let grad = array(DType::F64, &result.layout().sizes, &weight_bits);
    let (gradients, case) = call.gradients(&result, &grad);
    let what = || format!("{} of {types:?} {:?}, seed {seed}\n{}", op.name(), call.attrs, case.graph);
    if compiled && let Some(failure) = failure(&case, Effort::Tiers) {
        panic!("{}\n{failure}", what());
    }
    let dense: Vec<Array> = call.args.iter().map(|arg| array(arg.dtype(), &arg.layout().sizes, &bits(arg))).collect();
    let mut compared = 0;
    for (operand, gradient) in gradients.iter().enumerate() {
        let wanted = types[operand].dtype.is_float() && !types[operand].number;
        assert_eq!(gradient.is_some(), wanted, "operand {operand} of {}", what());
        let Some(gradient) = gradient else { continue };
        let expected = TensorType::contiguous(types[operand].dtype, &types[operand].sizes);
        assert_eq!(gradient.ty(), expected, "the gradient of operand {operand} of {}", what());
        let bits = bits(&dense[operand]);
        for (at, got) in numbers(gradient).into_iter().enumerate() {
            let loss = |value: f64| {
                let mut args = dense.clone();
                let mut bits = bits.clone();
                bits[at] = value.to_bits();
                args[operand] = array(DType::F64, &types[operand].sizes, &bits);
                let parts = numbers(&call.run(&args)).into_iter().zip(&weights).map(|(y, weight)| y * weight);
                parts.fold((0.0, 0.0), |(sum, magnitude), part| (sum + part, magnitude + part.abs()))
            };
            let Some((expected, tolerance)) = slope(f64::from_bits(bits[at]), loss) else { continue };
            let close = (got - expected).abs() <= tolerance;
            assert!(close, "element {at} of operand {operand} has gradient {got} instead of {expected}: {}", what());
            compared += 1;
        }
    }
    compared
}

#[test]
fn gradients_are_slopes() {
    let rounds = if cfg!(debug_assertions) { 2 } else { 8 };
    for (number, &op) in Op::ALL.iter().enumerate().filter(|(_, op)| op.is_differentiable()) {
        let (mut compared, mut calls) = (0, 0);
        for (at, shape) in SHAPES.iter().enumerate() {
            for round in 0..rounds {
                let seed = ((number * SHAPES.len() + at) * 1000 + round) as u64;
                let Some(call) = propose(op, seed, shape) else { continue };
                compared += check_call(&call, seed, round == 0);
                calls += 1;
            }
        }
        assert!(compared > 0, "{}: no slope was compared in {calls} calls", op.name());
    }
}
