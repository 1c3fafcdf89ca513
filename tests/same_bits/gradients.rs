//! Every differentiable row of the op table: its gradients against differences in f64, and the gradients of those.
//!
//! Calls are proposed as for the tests of compiled code: broadcasting, strides, sizes of 0 and 1, plain numbers. The
//! graph of the gradients runs node by node; compiled it must give the same bits. A table has the gradients at kinks,
//! zeros and infinities.

use crate::build::{Builder, Case};
use crate::check::{Effort, failure};
use crate::guarded;
use crate::random::Random;
use crate::reference::{elements, reference};
use crate::values::Fill;
use opfuse::Error;
use opfuse::dispatch::Array;
use opfuse::internals::eager;
use opfuse::internals::eager::Argument;
use opfuse::internals::ir::autodiff::{Vjp, VjpInput, vjp};
use opfuse::internals::ir::routine::Routine;
use opfuse::ir::{Attr, Attrs, DType, Graph, Layout, Meaning, NodeId, NodeKind, Op, TensorType, verify};
use smallvec::smallvec;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Operands that are constants for the reference, though they may be floats.
const CONSTANTS: [(Op, usize); 1] = [(Op::NativeDropoutBackward, 1)];

/// A call whose operands are known.
#[derive(Clone)]
struct Call {
    op: Op,
    attrs: Attrs,
    args: Vec<Array>,
    numbers: Vec<bool>,
}

const SHAPES: [&[usize]; 10] = [&[], &[1], &[0], &[4], &[2, 3], &[1, 3], &[3, 0], &[3, 3], &[2, 1, 3], &[2, 3, 2]];

/// Where an op gives numbers.
fn domain(op: Op) -> &'static [Fill] {
    match op {
        Op::Asin | Op::Acos | Op::Atanh | Op::Erfinv | Op::Logit => &[Fill::Unit],
        Op::Acosh => &[Fill::AboveOne],
        _ => &[Fill::Normal, Fill::Positive],
    }
}

/// A call of `op` on f64 operands and whatever else it takes.
fn propose(op: Op, seed: u64, shape: &[usize]) -> Option<Call> {
    let mut builder = Builder::new(seed);
    builder.limit = 64;
    builder.shape = shape.to_vec();
    let fill = builder.random.pick(domain(op));
    builder.strided_input(DType::F64, shape, fill);
    let part = builder.part_of_shape();
    // A single element outside of an op's domain makes the whole loss NaN.
    let other = if matches!(fill, Fill::Unit | Fill::AboveOne) { fill } else { Fill::Normal };
    builder.strided_input(DType::F64, &part, other);
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
    let call = Call::of(&case.graph, output, &values);
    if !is_tame(&call) {
        return None;
    }
    // A window of memory is another one over a dense copy, and may not fit there.
    match op.row().meaning {
        Meaning::Window(_) => Some(call.dense()).filter(|call| call.try_run(&call.args).is_ok()),
        _ => Some(call),
    }
}

/// Whether slopes near the plain numbers can be measured. A remainder by a tiny number, an angle at the origin and an
/// infinite power have none.
fn is_tame(call: &Call) -> bool {
    let number = |(arg, &is_number): (&Array, &bool)| {
        let values =
            elements(arg).map(|bits| if arg.dtype() == DType::F64 { f64::from_bits(bits) } else { bits as i64 as f64 });
        !is_number || values.into_iter().all(|value| (0.1..=8.0).contains(&value.abs()))
    };
    let finite = |attr: &Attr| attr.scalar().is_none_or(|scalar| scalar.as_f64().is_finite());
    call.args.iter().zip(&call.numbers).all(number) && call.attrs.iter().all(finite)
}

fn array(dtype: DType, sizes: &[usize], bits: &[u64]) -> Array {
    let bytes: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()[..dtype.size()].to_vec()).collect();
    Array::from_storage(guarded::storage(&bytes), dtype, Layout::contiguous(sizes))
        .expect("the storage was made for it")
}

fn bits(array: &Array) -> Vec<u64> {
    elements(array).collect()
}

fn numbers(array: &Array) -> Vec<f64> {
    elements(array).map(f64::from_bits).collect()
}

impl Call {
    /// The call that a node is, with the values of its operands.
    fn of(graph: &Graph, id: NodeId, values: &[Array]) -> Call {
        let node = &graph[id];
        Call {
            op: node.op().expect("it is a call"),
            attrs: node.attrs.clone(),
            args: node.args.iter().map(|arg| values[arg.index()].clone()).collect(),
            numbers: node.args.iter().map(|&arg| graph[arg].ty.number).collect(),
        }
    }

    fn types(&self) -> Vec<TensorType> {
        let ty = |(array, &number): (&Array, &bool)| TensorType { number, ..array.ty() };
        self.args.iter().zip(&self.numbers).map(ty).collect()
    }

    fn try_run(&self, args: &[Array]) -> Result<Array, Error> {
        let arguments: Vec<Argument<'_>> =
            args.iter().zip(&self.numbers).map(|(array, &number)| Argument { array, number }).collect();
        eager::run(self.op, &arguments, &self.attrs)
    }

    fn run(&self, args: &[Array]) -> Array {
        self.try_run(args).unwrap_or_else(|error| panic!("{}: {error}", self.op.name()))
    }

    fn vjp(&self, result: &Array) -> Vjp {
        let types = self.types();
        let refs: Vec<&TensorType> = types.iter().collect();
        let vjp = vjp(self.op, &refs, &self.attrs, &result.ty(), &vec![true; types.len()])
            .unwrap_or_else(|error| panic!("{} of {types:?} {:?}: {error}", self.op.name(), self.attrs));
        verify(&vjp.graph).unwrap_or_else(|error| panic!("{}: {error}\n{}", self.op.name(), vjp.graph));
        vjp
    }

    /// The arrays that the graph of the gradients starts from.
    fn inputs(&self, vjp: &Vjp, result: &Array, grad: &Array) -> Vec<Array> {
        let input = |input: &VjpInput| match *input {
            VjpInput::Arg(index) => self.args[index].clone(),
            VjpInput::Result => result.clone(),
            VjpInput::Grad => row_major(grad),
        };
        vjp.inputs.iter().map(input).collect()
    }

    /// Whether an operand gets a gradient.
    fn takes_gradient(&self, operand: usize) -> bool {
        let is_constant = CONSTANTS.contains(&(self.op, operand));
        self.args[operand].dtype().is_float() && !self.numbers[operand] && !is_constant
    }

    /// The gradient of every operand.
    fn gradients(&self, grad: &Array) -> Vec<Option<Array>> {
        let result = self.run(&self.args);
        let vjp = self.vjp(&result);
        let values = values_of(&vjp.graph, &self.inputs(&vjp, &result, grad));
        vjp.outputs.iter().map(|place| place.map(|place| values[vjp.graph.outputs()[place].index()].clone())).collect()
    }

    /// The type of the gradient of an operand. That of a column-major factor of a matrix product is column-major.
    fn gradient_type(&self, operand: usize) -> TensorType {
        let ty = &self.types()[operand];
        let mut expected = TensorType::contiguous(ty.dtype, &ty.sizes);
        let factors = match self.op {
            Op::Mm | Op::Bmm => 0..2,
            Op::Addmm | Op::Baddbmm => 1..3,
            _ => 0..0,
        };
        if !factors.contains(&operand) {
            return expected;
        }
        let last = ty.rank() - 2;
        let (rows, columns) = (ty.sizes[last], ty.sizes[last + 1]);
        let is_column_major = rows > 1 && columns > 1 && ty.strides[last] == 1 && ty.strides[last + 1] >= rows;
        if is_column_major {
            (expected.strides[last], expected.strides[last + 1]) = (1, rows);
        }
        expected
    }

    /// The same call with dense operands of its own.
    fn dense(&self) -> Call {
        Call { args: self.args.iter().map(row_major).collect(), ..self.clone() }
    }

    fn with(&self, operand: usize, at: usize, value: f64) -> Call {
        let mut call = self.clone();
        call.args[operand] = changed(&call.args[operand], at, value);
        call
    }
}

fn row_major(x: &Array) -> Array {
    array(x.dtype(), &x.layout().sizes, &bits(x))
}

fn changed(x: &Array, at: usize, value: f64) -> Array {
    let mut bits = bits(x);
    bits[at] = value.to_bits();
    array(x.dtype(), &x.layout().sizes, &bits)
}

fn values_of(graph: &Graph, inputs: &[Array]) -> Vec<Array> {
    reference(graph, inputs).unwrap_or_else(|error| panic!("{error}\n{graph}"))
}

/// The sum of products, and of their magnitudes.
fn inner(x: &Array, weights: &Array) -> (f64, f64) {
    let parts = numbers(x).into_iter().zip(numbers(weights)).map(|(x, weight)| x * weight);
    parts.fold((0.0, 0.0), |(sum, magnitude), part| (sum + part, magnitude + part.abs()))
}

fn normal(random: &mut Random, sizes: &[usize]) -> Array {
    let count = sizes.iter().product();
    let bits: Vec<u64> = (0..count).map(|_| random.normal().to_bits()).collect();
    array(DType::F64, sizes, &bits)
}

/// The slope of a loss at `x`, if it has one, and its accuracy. The loss comes with the sum of the magnitudes of its
/// terms.
fn slope(x: f64, loss: impl Fn(f64) -> (f64, f64)) -> Option<(f64, f64)> {
    let step = 1e-6 * x.abs().max(1.0);
    let [(below, _), (here, magnitude), (above, _)] = [loss(x - step), loss(x), loss(x + step)];
    let [(far_below, _), (far_above, _)] = [loss(x - 2.0 * step), loss(x + 2.0 * step)];
    let slope = (above - below) / (2.0 * step);
    let noise = 4.0 * f64::EPSILON * magnitude / step;
    // A kink shows as different slopes on the two sides, a jump as a different slope over a wider step.
    let others = [(here - below) / step, (above - here) / step, (far_above - far_below) / (4.0 * step)];
    let smooth = others.iter().all(|other| (other - slope).abs() <= 1e-3 * slope.abs().max(1.0) + noise);
    (smooth && slope.is_finite()).then_some((slope, 1e-5 * slope.abs().max(1.0) + noise))
}

/// Compares a gradient with the slopes of a loss of its elements; returns how many there were.
fn compare(x: &Array, gradient: &Array, loss: impl Fn(usize, f64) -> (f64, f64), what: impl Fn() -> String) -> usize {
    let mut compared = 0;
    for (at, (x, got)) in numbers(x).into_iter().zip(numbers(gradient)).enumerate() {
        let Some((expected, tolerance)) = slope(x, |x| loss(at, x)) else { continue };
        let close = (got - expected).abs() <= tolerance;
        assert!(close, "element {at} has gradient {got} instead of {expected}: {}", what());
        compared += 1;
    }
    compared
}

/// Checks the gradients of one call.
fn check_call(call: &Call, seed: u64, compiled: bool) -> usize {
    let (op, types) = (call.op, call.types());
    let result = call.run(&call.args);
    let grad = normal(&mut Random::new(seed), &result.layout().sizes);
    let vjp = call.vjp(&result);
    let what = || format!("{} of {types:?} {:?}, seed {seed}\n{}", op.name(), call.attrs, vjp.graph);
    let case = Case { graph: vjp.graph.clone(), inputs: call.inputs(&vjp, &result, &grad) };
    if compiled && let Some(failure) = failure(&case, Effort::Tiers) {
        panic!("{}\n{failure}", what());
    }
    let dense = call.dense();
    let mut compared = 0;
    for (operand, gradient) in call.gradients(&grad).iter().enumerate() {
        assert_eq!(gradient.is_some(), call.takes_gradient(operand), "operand {operand} of {}", what());
        let Some(gradient) = gradient else { continue };
        assert_eq!(gradient.ty(), call.gradient_type(operand), "the gradient of operand {operand} of {}", what());
        let loss = |at: usize, value: f64| inner(&call.run(&dense.with(operand, at, value).args), &grad);
        compared += compare(&dense.args[operand], gradient, loss, || format!("operand {operand} of {}", what()));
    }
    compared
}

/// Whether gradients of the row are tried here. Work on matrices needs those that can be factorized:
/// tests/linear_algebra makes them, and checks these gradients. A slope that is given is none of the values.
fn is_tried(op: &Op) -> bool {
    let is_matrix = matches!(op.row().meaning, Meaning::Routine(Routine::Matrix(_)));
    op.is_differentiable() && !is_matrix && *op != Op::Sloped
}

/// Runs `check` on calls of every differentiable row. It returns how many elements it compared, which must not be 0.
/// Rows that accept few of the proposed numbers get more attempts.
fn on_all_rows(salt: u64, rounds: u64, check: impl Fn(&Call, u64, u64) -> usize) {
    let mut failed = Vec::new();
    for (number, &op) in Op::ALL.iter().enumerate().filter(|(_, op)| is_tried(op)) {
        let (mut compared, mut round) = (0, 0);
        let whole = catch_unwind(AssertUnwindSafe(|| {
            while round < rounds || (compared == 0 && round < 20 * rounds) {
                for (at, shape) in SHAPES.iter().enumerate() {
                    let seed = ((number * SHAPES.len() + at) as u64 * 100 + salt) * 100 + round;
                    compared += propose(op, seed, shape).map_or(0, |call| check(&call, seed, round));
                }
                round += 1;
            }
            assert!(compared > 0, "{}: nothing was compared", op.name());
        }));
        failed.extend(whole.is_err().then_some(op.name()));
    }
    assert!(failed.is_empty(), "rows with wrong gradients: {failed:?}");
}

#[test]
fn gradients_are_slopes() {
    let rounds = if cfg!(debug_assertions) { 2 } else { 8 };
    on_all_rows(0, rounds, |call, seed, round| check_call(call, seed, round == 0));
}

/// The gradients of every node of a graph, pulled back node by node from seeds.
fn pulled_back(graph: &Graph, values: &[Array], seeds: Vec<(NodeId, Array)>) -> Vec<Option<Array>> {
    let mut gradients: Vec<Option<Array>> = vec![None; graph.len()];
    for (id, seed) in seeds {
        add_to(&mut gradients[id.index()], seed);
    }
    for (id, node) in graph.nodes().rev() {
        let (NodeKind::Op(_), Some(grad)) = (node.kind, gradients[id.index()].clone()) else { continue };
        let call = Call::of(graph, id, values);
        for (&arg, gradient) in node.args.iter().zip(call.gradients(&grad)) {
            if let Some(gradient) = gradient {
                add_to(&mut gradients[arg.index()], gradient);
            }
        }
    }
    gradients
}

fn add_to(sum: &mut Option<Array>, term: Array) {
    *sum = Some(match sum.take() {
        None => term,
        Some(sum) => {
            let operands = [&sum, &term].map(|array| Argument { array, number: false });
            eager::run(Op::Add, &operands, &[Attr::int(1)]).expect("gradients of one value have one type")
        }
    });
}

/// Checks the gradients of the gradients of one call, along its operands and along the gradient it is given.
fn check_twice(call: &Call, seed: u64) -> usize {
    let call = call.dense();
    let result = call.run(&call.args);
    let mut random = Random::new(seed);
    let grad = normal(&mut random, &result.layout().sizes);
    let vjp = call.vjp(&result);
    let graph = &vjp.graph;
    let weights: Vec<Array> = graph.outputs().iter().map(|&id| normal(&mut random, &graph[id].ty.sizes)).collect();
    let loss = |call: &Call, grad: &Array| {
        let result = call.run(&call.args);
        let values = values_of(graph, &call.inputs(&vjp, &result, grad));
        let parts = graph.outputs().iter().zip(&weights).map(|(id, weights)| inner(&values[id.index()], weights));
        parts.fold((0.0, 0.0), |(sum, magnitude), part| (sum + part.0, magnitude + part.1))
    };
    let values = values_of(graph, &call.inputs(&vjp, &result, &grad));
    let seeds = graph.outputs().iter().copied().zip(weights.iter().cloned()).collect();
    let gradients = pulled_back(graph, &values, seeds);
    let mut along_args: Vec<Option<Array>> = vec![None; call.args.len()];
    let mut along_grad = None;
    for (input, &id) in vjp.inputs.iter().zip(graph.inputs()) {
        let Some(gradient) = gradients[id.index()].clone() else { continue };
        match *input {
            VjpInput::Arg(index) => add_to(&mut along_args[index], gradient),
            VjpInput::Grad => along_grad = Some(gradient),
            VjpInput::Result => {
                for (sum, gradient) in along_args.iter_mut().zip(call.gradients(&gradient)) {
                    if let Some(gradient) = gradient {
                        add_to(sum, gradient);
                    }
                }
            }
        }
    }
    let what = || format!("{} of {:?} {:?}, seed {seed}\n{graph}", call.op.name(), call.types(), call.attrs);
    let mut compared = 0;
    for (operand, ty) in call.types().iter().enumerate().filter(|&(operand, _)| call.takes_gradient(operand)) {
        let zeros = || array(ty.dtype, &ty.sizes, &vec![0; ty.numel()]);
        let gradient = along_args[operand].clone().unwrap_or_else(zeros);
        let loss = |at: usize, value: f64| loss(&call.with(operand, at, value), &grad);
        compared +=
            compare(&call.args[operand], &gradient, loss, || format!("operand {operand}, twice, of {}", what()));
    }
    let zeros = || array(DType::F64, &result.layout().sizes, &vec![0; result.layout().numel()]);
    let along_grad = along_grad.unwrap_or_else(zeros);
    let loss = |at: usize, value: f64| loss(&call, &changed(&grad, at, value));
    compared + compare(&grad, &along_grad, loss, || format!("the gradient of {}", what()))
}

#[test]
fn gradients_of_gradients_are_slopes() {
    let rounds = if cfg!(debug_assertions) { 1 } else { 4 };
    on_all_rows(50, rounds, |call, seed, _| check_twice(call, seed));
}

/// Operands of every float dtype have gradients of their own type, which compile to the same bits.
#[test]
fn gradients_have_the_type_of_their_operand() {
    for (number, &op) in Op::ALL.iter().enumerate().filter(|(_, op)| is_tried(op)) {
        for (at, shape) in [&[3][..], &[2, 3], &[2, 3, 2]].iter().enumerate() {
            let seed = (number * 3 + at) as u64 * 100 + 77;
            let mut builder = Builder::new(seed);
            builder.limit = 64;
            builder.shape = shape.to_vec();
            for sizes in [shape.to_vec(), builder.part_of_shape()] {
                let dtype = builder.random.pick(&[DType::F16, DType::BF16, DType::F32, DType::I64]);
                builder.strided_input(dtype, &sizes, Fill::Normal);
            }
            let found = (0..40).find_map(|_| {
                let id = builder.propose(op)?;
                let node = &builder.graph[id];
                let takes = |arg: &NodeId| builder.graph[*arg].ty.dtype.is_float() && !builder.graph[*arg].ty.number;
                (node.ty.dtype.is_float() && node.args.iter().any(takes)).then_some(id)
            });
            let Some(output) = found else { continue };
            let case = builder.finish(vec![output]);
            let values = values_of(&case.graph, &case.inputs);
            let call = Call::of(&case.graph, output, &values);
            let result = &values[output.index()];
            let vjp = call.vjp(result);
            for (operand, place) in vjp.outputs.iter().enumerate() {
                let gradient = place.map(|place| vjp.graph[vjp.graph.outputs()[place]].ty.clone());
                let expected = call.takes_gradient(operand).then(|| call.gradient_type(operand));
                assert_eq!(gradient, expected, "{} of {:?}\n{}", op.name(), call.types(), vjp.graph);
            }
            let ones = array(result.dtype(), &result.layout().sizes, &vec![0x3c00; result.layout().numel()]);
            let case = Case { graph: vjp.graph.clone(), inputs: call.inputs(&vjp, result, &ones) };
            if let Some(failure) = failure(&case, Effort::Tiers) {
                panic!("{}, seed {seed}: {failure}\n{}", op.name(), vjp.graph);
            }
        }
    }
}

/// A vector operand of a call, the gradient of the result, and the gradients of the operands.
type Kink<'a> = (Op, Attrs, &'a [&'a [f64]], &'a [f64], &'a [&'a [f64]]);

#[test]
fn gradients_at_kinks_zeros_and_infinities_are_listed() {
    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;
    let bounds = || smallvec![Attr::int(-1), Attr::float(2.0)];
    let along = || smallvec![Attr::ints(&[0]), Attr::bool(false)];
    let product = || smallvec![Attr::int(0), Attr::bool(false), Attr::None];
    let plain = Attrs::new;
    let spread = || smallvec![Attr::ints(&[0]), Attr::int(1), Attr::bool(false)];
    let cases: &[Kink<'_>] = &[
        (Op::Relu, plain(), &[&[0.0, -0.0, -1.0, 2.0, NAN]], &[3.0, 3.0, INF, 3.0, 3.0], &[&[0.0, 0.0, 0.0, 3.0, 3.0]]),
        (Op::Abs, plain(), &[&[0.0, -0.0, -2.0, NAN]], &[3.0, INF, 3.0, 3.0], &[&[0.0, 0.0, -3.0, 0.0]]),
        (Op::Sign, plain(), &[&[0.0, 5.0]], &[INF, 1.0], &[&[0.0, 0.0]]),
        (Op::Floor, plain(), &[&[0.0, 5.5]], &[INF, 1.0], &[&[0.0, 0.0]]),
        (Op::Clamp, bounds(), &[&[-1.0, 2.0, -3.0, 0.0]], &[1.0, 1.0, INF, 1.0], &[&[0.0, 0.0, 0.0, 1.0]]),
        (Op::Clamp, smallvec![Attr::int(-1), Attr::None], &[&[-1.0, 0.0]], &[INF, 1.0], &[&[0.0, 1.0]]),
        (Op::Clamp, smallvec![Attr::None, Attr::int(2)], &[&[2.0, 0.0]], &[INF, 1.0], &[&[0.0, 1.0]]),
        (
            Op::Xlogy,
            plain(),
            &[&[0.0, 0.0, 2.0, 2.0], &[0.0, -1.0, 1.0, 0.0]],
            &[3.0, 3.0, 3.0, 0.0],
            &[&[0.0, 0.0, 0.0, 0.0], &[NAN, 0.0, 6.0, NAN]],
        ),
        (
            Op::Maximum,
            plain(),
            &[&[1.0, 1.0, 3.0], &[1.0, 2.0, 2.0]],
            &[4.0, INF, 4.0],
            &[&[2.0, 0.0, 4.0], &[2.0, INF, 0.0]],
        ),
        (
            Op::Minimum,
            plain(),
            &[&[1.0, 1.0, 3.0], &[1.0, 2.0, 2.0]],
            &[4.0, 4.0, INF],
            &[&[2.0, 4.0, 0.0], &[2.0, 0.0, INF]],
        ),
        (Op::Sqrt, plain(), &[&[0.0, 4.0]], &[1.0, 1.0], &[&[INF, 0.25]]),
        (
            Op::Pow,
            plain(),
            &[&[0.0, 0.0, 0.0, 2.0], &[0.5, 2.0, 0.0, 0.0]],
            &[1.0; 4],
            &[&[INF, 0.0, 0.0, 0.0], &[0.0, 0.0, 0.0, std::f64::consts::LN_2]],
        ),
        (Op::Prod, product(), &[&[0.0, 2.0, 3.0]], &[2.0], &[&[12.0, 0.0, 0.0]]),
        (Op::Prod, product(), &[&[0.0, 0.0, 3.0]], &[2.0], &[&[0.0, 0.0, 0.0]]),
        (Op::Prod, product(), &[&[4.0, 2.0, -3.0]], &[1.0], &[&[-6.0, -12.0, 8.0]]),
        (Op::Amax, along(), &[&[2.0, 1.0, 2.0]], &[4.0], &[&[2.0, 0.0, 2.0]]),
        (Op::Amin, along(), &[&[2.0, 1.0, 2.0]], &[INF], &[&[0.0, INF, 0.0]]),
        (Op::Std, spread(), &[&[2.0, 2.0, 2.0]], &[4.0], &[&[0.0, 0.0, 0.0]]),
        (Op::Logsumexp, along(), &[&[2.0, -INF]], &[4.0], &[&[4.0, 0.0]]),
        (
            Op::Copysign,
            plain(),
            &[&[0.0, -0.0, -2.0], &[-1.0, 1.0, 3.0]],
            &[3.0, INF, 3.0],
            &[&[0.0, 0.0, -3.0], &[0.0; 3]],
        ),
        (Op::Logit, smallvec![Attr::None], &[&[0.0, 1.0, 0.5]], &[1.0; 3], &[&[INF, INF, 4.0]]),
        (Op::Logit, smallvec![Attr::float(0.25)], &[&[0.25, 0.75, 0.125]], &[3.0, 3.0, INF], &[&[16.0, 16.0, 0.0]]),
        (
            Op::BinaryCrossEntropy,
            plain(),
            &[&[0.0, 1.0, 0.5], &[0.0, 1.0, 0.5]],
            &[2.0; 3],
            &[&[0.0; 3], &[200.0, -200.0, 0.0]],
        ),
        (
            Op::ThresholdBackward,
            smallvec![Attr::int(1)],
            &[&[INF, 5.0, 5.0], &[1.0, 2.0, NAN]],
            &[1.0, 3.0, 3.0],
            &[&[0.0, 3.0, 3.0], &[0.0; 3]],
        ),
        (
            Op::HardtanhBackward,
            bounds(),
            &[&[5.0; 3], &[-1.0, 2.0, 0.0]],
            &[INF, 3.0, 3.0],
            &[&[0.0, 0.0, 3.0], &[0.0; 3]],
        ),
    ];
    for (op, attrs, operands, grad, expected) in cases {
        let vector = |numbers: &[f64]| {
            let bits: Vec<u64> = numbers.iter().map(|number| number.to_bits()).collect();
            array(DType::F64, &[numbers.len()], &bits)
        };
        let args: Vec<Array> = operands.iter().map(|operand| vector(operand)).collect();
        let call = Call { op: *op, attrs: attrs.clone(), numbers: vec![false; args.len()], args };
        let sizes = call.run(&call.args).layout().sizes.clone();
        let grad_bits: Vec<u64> = grad.iter().map(|number| number.to_bits()).collect();
        let got: Vec<Vec<f64>> =
            call.gradients(&array(DType::F64, &sizes, &grad_bits)).iter().flatten().map(numbers).collect();
        let same = |(x, y): (&f64, &f64)| x == y || (x.is_nan() && y.is_nan());
        let all = |(x, y): (&Vec<f64>, &&[f64])| x.len() == y.len() && x.iter().zip(*y).all(same);
        let is_right = got.len() == expected.len() && got.iter().zip(*expected).all(all);
        assert!(is_right, "{} of {operands:?} with gradient {grad:?}: {got:?}, not {expected:?}", op.name());
    }
}
