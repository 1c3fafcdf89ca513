//! Every row of the op table: values against formulas in f64, and calls on odd shapes and every dtype. Inference must
//! predict the type of the result, and nothing may panic. Derivatives are in `gradients.rs`.

use crate::build::{Builder, n_tensors};
use crate::check::{Effort, failure};
use crate::guarded;
use crate::random::Random;
use crate::reference::elements;
use crate::values::{self, Fill};
use opfuse::dispatch::Array;
use opfuse::internals::eager;
use opfuse::internals::eager::Argument;
use opfuse::internals::ir::row::Rule;
use opfuse::internals::ir::scalar::math;
use opfuse::ir::{Attr, Attrs, DType, Layout, Meaning, Op, TensorType};
use smallvec::smallvec;
use std::f64::consts::{FRAC_2_SQRT_PI, LOG2_E, PI, SQRT_2};

/// Points away from the kinks of piecewise ops.
const POINTS: [f64; 12] = [0.3, -0.3, 0.9, -0.8, 1.7, -1.6, 2.4, -2.6, 0.05, -0.02, 3.7, -4.2];
/// Operands for values alone, kinks included.
const CORNERS: [f64; 8] = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, f64::INFINITY, f64::NAN];

fn pointwise() -> impl Iterator<Item = (Op, Rule)> {
    Op::ALL.iter().filter_map(|&op| match op.row().meaning {
        Meaning::Body(rule, _) => Some((op, rule)),
        _ => None,
    })
}

/// The arguments that [`formula`] assumes.
fn arguments(op: Op) -> Attrs {
    match op {
        Op::Add | Op::Sub => smallvec![Attr::float(0.5)],
        Op::Gelu | Op::GeluBackward => smallvec![Attr::Str("none".into())],
        Op::ThresholdBackward => smallvec![Attr::float(0.5)],
        Op::LeakyReluBackward => smallvec![Attr::float(0.125), Attr::bool(false)],
        Op::EluBackward => smallvec![Attr::float(0.5), Attr::float(2.0), Attr::float(1.5), Attr::bool(false)],
        Op::HardtanhBackward => smallvec![Attr::float(-1.25), Attr::int(2)],
        Op::SoftplusBackward => smallvec![Attr::int(2), Attr::int(3)],
        Op::MaskedFill => smallvec![Attr::float(7.5)],
        Op::Clamp => smallvec![Attr::float(-1.25), Attr::float(2.0)],
        Op::ToCopy => smallvec![Attr::DType(DType::F64)],
        Op::Clone => smallvec![Attr::None],
        Op::DivMode => smallvec![Attr::Str("trunc".into())],
        Op::PowScalar => smallvec![Attr::float(2.5)],
        Op::LerpScalar => smallvec![Attr::float(0.75)],
        Op::Addcmul | Op::Addcdiv => smallvec![Attr::float(-1.5)],
        Op::Polygamma => smallvec![Attr::int(1)],
        Op::Logit => smallvec![Attr::float(0.125)],
        Op::RoundDecimals => smallvec![Attr::int(1)],
        Op::LeakyRelu => smallvec![Attr::float(0.25)],
        Op::Elu => smallvec![Attr::float(1.5), Attr::float(0.5), Attr::float(2.0)],
        Op::Hardtanh => smallvec![Attr::float(-1.25), Attr::float(2.0)],
        Op::Softplus => smallvec![Attr::float(2.0), Attr::float(3.0)],
        Op::Softshrink | Op::Hardshrink => smallvec![Attr::float(0.75)],
        Op::Threshold => smallvec![Attr::float(0.5), Attr::float(-7.0)],
        Op::FillScalar => smallvec![Attr::float(7.5)],
        Op::NativeDropoutBackward => smallvec![Attr::float(1.25)],
        Op::RandomScale => smallvec![Attr::int(-3), Attr::int(8)],
        _ => Attrs::new(),
    }
}

/// erf by its series, and by the continued fraction of its complement.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() || a > 6.0 {
        return if a.is_nan() { x } else { x.signum() };
    }
    if a < 2.0 {
        let (mut term, mut sum) = (a, a);
        for n in 1..100 {
            term *= -a * a / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        return (sum * FRAC_2_SQRT_PI).copysign(x);
    }
    let mut fraction = a;
    for k in (1..200).rev() {
        fraction = a + k as f64 / 2.0 / fraction;
    }
    (1.0 - (-a * a).exp() / PI.sqrt() / fraction).copysign(x)
}

/// The formula of an op in f64, written without opfuse; `None` for ops on whole numbers alone. `math_accuracy.rs`
/// measures the functions that the standard library lacks.
fn formula(op: Op, x: &[f64]) -> Option<f64> {
    let (a, b) = (x[0], x.get(1).copied().unwrap_or(0.0));
    let truth = |value: bool| value as u8 as f64;
    let choose = |condition: bool, yes: f64, no: f64| if condition { yes } else { no };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let nan_wins = |best: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { best };
    let limited = |x: f64, low: f64, high: f64| if x.is_nan() { x } else { x.clamp(low, high) };
    let softplus = |x: f64| limited(x, 0.0, f64::INFINITY) + (-x.abs()).exp().ln_1p();
    let elu =
        |alpha: f64, scale: f64, inner: f64| if a < 0.0 { (a * inner).exp_m1() * alpha * scale } else { a * scale };
    let is_across = |rest: f64| rest != 0.0 && (rest < 0.0) != (b < 0.0);
    let log_of_sum = |rest: f64| if a == b && a.is_infinite() { a } else { nan_wins(a.max(b)) + rest };
    Some(match op {
        Op::Abs => a.abs(),
        Op::Neg => -a,
        Op::Sign if a == 0.0 || a.is_nan() => 0.0,
        Op::Sign => a.signum(),
        Op::Exp => a.exp(),
        Op::Exp2 => a.exp2(),
        Op::Expm1 => a.exp_m1(),
        Op::Log => a.ln(),
        Op::Log2 => a.log2(),
        Op::Log10 => a.log10(),
        Op::Log1p => a.ln_1p(),
        Op::Sqrt => a.sqrt(),
        Op::Rsqrt => 1.0 / a.sqrt(),
        Op::Reciprocal => 1.0 / a,
        Op::Square => a * a,
        Op::Sin => a.sin(),
        Op::Cos => a.cos(),
        Op::Tan => a.tan(),
        Op::Asin => a.asin(),
        Op::Acos => a.acos(),
        Op::Atan => a.atan(),
        Op::Sinh => a.sinh(),
        Op::Cosh => a.cosh(),
        Op::Asinh => a.asinh(),
        Op::Acosh => a.acosh(),
        Op::Atanh => a.atanh(),
        Op::Sinc if a == 0.0 => 1.0,
        Op::Sinc => (a * PI).sin() / (a * PI),
        Op::Erfc => math::erfc64(a),
        Op::Erfinv => math::erfinv64(a),
        Op::Lgamma => math::lgamma64(a),
        Op::Digamma => math::digamma64(a),
        Op::Polygamma => math::trigamma64(a),
        Op::Deg2rad => a.to_radians(),
        Op::Rad2deg => a.to_degrees(),
        Op::Relu6 => limited(a, 0.0, 6.0),
        Op::Mish => a * softplus(a).tanh(),
        Op::Selu => elu(1.673_263_242_354_377_2, 1.050_700_987_355_480_5, 1.0),
        Op::Hardsigmoid => limited(a + 3.0, 0.0, 6.0) / 6.0,
        Op::Hardswish => a * limited(a + 3.0, 0.0, 6.0) / 6.0,
        Op::LogSigmoid => -softplus(-a),
        Op::Frac => a - a.trunc(),
        Op::Isposinf => truth(a == f64::INFINITY),
        Op::Isneginf => truth(a == f64::NEG_INFINITY),
        Op::Signbit => truth(a.is_sign_negative()),
        Op::Fmax => a.max(b),
        Op::Fmin => a.min(b),
        Op::FloorDivide if b == 0.0 => a / b,
        Op::FloorDivide => ((a - a % b) / b - truth(is_across(a % b))).round(),
        Op::Remainder if is_across(a % b) => a % b + b,
        Op::Remainder | Op::Fmod => a % b,
        Op::Atan2 => a.atan2(b),
        Op::Hypot => a.hypot(b),
        Op::Copysign => a.copysign(b),
        Op::Logaddexp => log_of_sum((-(a - b).abs()).exp().ln_1p()),
        Op::Logaddexp2 => log_of_sum((-(a - b).abs()).exp2().ln_1p() * LOG2_E),
        Op::Xlogy if b.is_nan() => b,
        Op::Xlogy if a == 0.0 => 0.0,
        Op::Xlogy => a * b.ln(),
        Op::DivMode => (a / b).trunc(),
        Op::PowScalar => a.powf(2.5),
        Op::LerpScalar => b - (b - a) * 0.25,
        Op::Lerp if x[2].abs() < 0.5 => a + x[2] * (b - a),
        Op::Lerp => b - (b - a) * (1.0 - x[2]),
        Op::Fma => a.mul_add(b, x[2]),
        Op::Sloped => a,
        Op::Addcmul => a - 1.5 * b * x[2],
        Op::Addcdiv => a - 1.5 * b / x[2],
        Op::Heaviside if a == 0.0 => b,
        Op::Heaviside => truth(a > 0.0),
        Op::Logit => {
            let x = limited(a, 0.125, 0.875);
            (x / (1.0 - x)).ln()
        }
        Op::RoundDecimals => (a * 10.0).round_ties_even() / 10.0,
        Op::LeakyRelu => a * if a > 0.0 { 1.0 } else { 0.25 },
        Op::Elu => elu(1.5, 0.5, 2.0),
        Op::Softplus => {
            if a * 2.0 > 3.0 {
                a
            } else {
                (a * 2.0).exp().ln_1p() / 2.0
            }
        }
        Op::Softshrink if a.abs() <= 0.75 => 0.0,
        Op::Softshrink => a - 0.75_f64.copysign(a),
        Op::Hardshrink => a * truth(a.is_nan() || a.abs() > 0.75),
        Op::Threshold => {
            if a <= 0.5 {
                -7.0
            } else {
                a
            }
        }
        Op::FillScalar => 7.5,
        Op::Tanh => a.tanh(),
        Op::Erf => erf(a),
        Op::Sigmoid => sigmoid(a),
        Op::Silu => a * sigmoid(a),
        Op::Relu => {
            if a.is_nan() {
                a
            } else {
                a.max(0.0)
            }
        }
        Op::Floor => a.floor(),
        Op::Ceil => a.ceil(),
        Op::Round => a.round_ties_even(),
        Op::Trunc => a.trunc(),
        Op::Isnan => truth(a.is_nan()),
        Op::Isinf => truth(a.is_infinite()),
        Op::Isfinite => truth(a.is_finite()),
        Op::LogicalNot => truth(a == 0.0),
        Op::Mul => a * b,
        Op::Div => a / b,
        Op::Maximum => nan_wins(a.max(b)),
        Op::Minimum => nan_wins(a.min(b)),
        Op::Pow => a.powf(b),
        Op::Eq => truth(a == b),
        Op::Ne => truth(a != b),
        Op::Lt => truth(a < b),
        Op::Le => truth(a <= b),
        Op::Gt => truth(a > b),
        Op::Ge => truth(a >= b),
        Op::LogicalAnd => truth(a != 0.0 && b != 0.0),
        Op::LogicalOr => truth(a != 0.0 || b != 0.0),
        Op::LogicalXor => truth((a != 0.0) != (b != 0.0)),
        Op::Add => a + 0.5 * b,
        Op::Sub => a - 0.5 * b,
        Op::Gelu => a * 0.5 * (1.0 + erf(a / SQRT_2)),
        Op::GeluBackward => a * (0.5 * (1.0 + erf(b / SQRT_2)) + b * (b * b * -0.5).exp() / (2.0 * PI).sqrt()),
        Op::BinaryCrossEntropy => {
            let log = |log: f64| if log.is_nan() { log } else { log.max(-100.0) };
            (b - 1.0) * log((-a).ln_1p()) - b * log(a.ln())
        }
        Op::SiluBackward => a * sigmoid(b) * (1.0 + b * (1.0 - sigmoid(b))),
        Op::SigmoidBackward => a * (1.0 - b) * b,
        Op::TanhBackward => a * (1.0 - b * b),
        Op::ThresholdBackward => choose(b <= 0.5, 0.0, a),
        Op::LeakyReluBackward => choose(b > 0.0, a, a * 0.125),
        Op::EluBackward => choose(b <= 0.0, a * 1.5 * (b * 1.5).exp(), a * 2.0),
        Op::HardtanhBackward => choose(b <= -1.25 || b >= 2.0, 0.0, a),
        Op::SoftplusBackward => choose(b * 2.0 > 3.0, a, a * sigmoid(b * 2.0)),
        Op::Where => {
            if a != 0.0 {
                b
            } else {
                x[2]
            }
        }
        Op::MaskedFill => {
            if b != 0.0 {
                7.5
            } else {
                a
            }
        }
        Op::Clamp | Op::Hardtanh => limited(a, -1.25, 2.0),
        Op::ToCopy | Op::Clone => a,
        Op::NativeDropoutBackward => a * b * 1.25,
        _ => return None,
    })
}

/// The operand of a pointwise op that is a condition.
fn mask(rule: Rule) -> Option<usize> {
    match rule {
        Rule::Where => Some(0),
        Rule::Masked => Some(1),
        _ => None,
    }
}

fn operand_dtype(rule: Rule, index: usize) -> DType {
    if mask(rule) == Some(index) { DType::Bool } else { DType::F64 }
}

/// Every combination of the numbers.
fn combinations(n_args: usize, numbers: &[f64]) -> Vec<Vec<f64>> {
    (0..n_args).fold(vec![Vec::new()], |all, _| {
        all.iter().flat_map(|x| numbers.iter().map(move |&number| [&x[..], &[number]].concat())).collect()
    })
}

fn array(dtype: DType, numbers: impl Iterator<Item = f64>) -> Array {
    let bytes: Vec<u8> = match dtype {
        DType::Bool => numbers.map(|number| (number > 0.0) as u8).collect(),
        _ => numbers.flat_map(f64::to_le_bytes).collect(),
    };
    let layout = Layout::contiguous(&[bytes.len() / dtype.size()]);
    Array::from_storage(guarded::storage(&bytes), dtype, layout).expect("the storage was made for the layout")
}

#[test]
fn values_are_those_of_the_formulas() {
    let numbers: Vec<f64> = POINTS.iter().chain(&CORNERS).copied().collect();
    // A fill takes its value from a tensor of one element.
    let is_fill = |op: Op| op == Op::Fill;
    for (op, rule) in pointwise().filter(|&(op, rule)| !is_of_bits(rule) && !is_fill(op)) {
        let cases = combinations(n_tensors(op), &numbers);
        let arrays: Vec<Array> =
            (0..n_tensors(op)).map(|index| array(operand_dtype(rule, index), cases.iter().map(|x| x[index]))).collect();
        let operands: Vec<Argument<'_>> = arrays.iter().map(|array| Argument { array, number: false }).collect();
        let result = eager::run(op, &operands, &arguments(op)).unwrap_or_else(|error| panic!("{}: {error}", op.name()));
        for (x, bits) in cases.iter().zip(elements(&result)) {
            let got = if result.dtype() == DType::Bool { bits as f64 } else { f64::from_bits(bits) };
            let as_read =
                |index: usize| if mask(rule) == Some(index) { (x[index] > 0.0) as u8 as f64 } else { x[index] };
            let read: Vec<f64> = (0..x.len()).map(as_read).collect();
            let expected = formula(op, &read).unwrap_or_else(|| panic!("{} has no formula here: write one", op.name()));
            // Terms cancel, in the formula as in the op.
            let scale = match op {
                Op::Gelu | Op::Logaddexp | Op::Logaddexp2 => x[0].abs().max(expected.abs()),
                Op::GeluBackward | Op::SiluBackward => x[0].abs() * x[1].abs().max(1.0),
                _ => expected.abs(),
            };
            let close = got == expected
                || (got.is_nan() && expected.is_nan())
                || (got - expected).abs() <= 16.0 * f64::EPSILON * scale;
            assert!(close, "{}{x:?} is {got:e} instead of {expected:e}", op.name());
        }
    }
}

fn is_of_bits(rule: Rule) -> bool {
    matches!(rule, Rule::Integral | Rule::Whole)
}

#[test]
fn bitwise_ops_work_on_bits() {
    let numbers = [0i64, 1, -1, 5, -12, i64::MAX, i64::MIN];
    let pairs: Vec<(i64, i64)> = numbers.iter().flat_map(|&a| numbers.iter().map(move |&b| (a, b))).collect();
    let integers = |values: Vec<i64>| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Array::from_storage(guarded::storage(&bytes), DType::I64, Layout::contiguous(&[values.len()]))
            .expect("it is as large")
    };
    let (a, b) =
        (integers(pairs.iter().map(|pair| pair.0).collect()), integers(pairs.iter().map(|pair| pair.1).collect()));
    for (op, _) in pointwise().filter(|(_, rule)| is_of_bits(*rule)) {
        let both = [Argument { array: &a, number: false }, Argument { array: &b, number: false }];
        let result = eager::run(op, &both[..n_tensors(op)], &arguments(op)).expect("integers are taken");
        for (&(a, b), got) in pairs.iter().zip(elements(&result)) {
            let expected = match op {
                Op::BitwiseNot => !a,
                Op::RandomScale => -3 + ((u128::from(a as u64) * 11) >> 64) as i64,
                Op::BitwiseAnd => a & b,
                Op::BitwiseOr => a | b,
                Op::BitwiseXor => a ^ b,
                Op::BitwiseLeftShift => u32::try_from(b).ok().and_then(|b| a.checked_shl(b)).unwrap_or(0),
                Op::BitwiseRightShift => u32::try_from(b).ok().and_then(|b| a.checked_shr(b)).unwrap_or(a >> 63),
                _ => panic!("{} has no formula here: write one", op.name()),
            };
            assert_eq!(got as i64, expected, "{}({a}, {b})", op.name());
        }
    }
}

#[test]
fn bodies_are_typed_for_every_dtype() {
    for (op, _) in pointwise() {
        for dtypes in combinations(n_tensors(op), &std::array::from_fn::<f64, 10, _>(|index| index as f64)) {
            let types: Vec<TensorType> =
                dtypes.iter().map(|&index| TensorType::contiguous(DType::ALL[index as usize], &[2])).collect();
            let refs: Vec<&TensorType> = types.iter().collect();
            let attrs = arguments(op);
            let Ok(out) = op.infer(&refs, &attrs) else { continue };
            let body = op.body(&refs, &attrs).unwrap_or_else(|error| panic!("{} of {types:?}: {error}", op.name()));
            body.verify().unwrap_or_else(|error| panic!("{} of {types:?}: {error}\n{body}", op.name()));
            assert_eq!(body.insts[body.results[0].index()].ty, out.dtype.compute(), "{} of {types:?}", op.name());
        }
    }
}

/// The bits of an element depend on those of its operands alone, and not on the number of elements, their layout, or
/// earlier calls.
#[test]
fn an_element_has_the_same_bits_in_small_and_large_calls() {
    const MANY: usize = 130;
    let mut random = Random::new(11);
    let of = |arrays: &[Array], op: Op, attrs: &[Attr]| {
        let operands: Vec<Argument<'_>> = arrays.iter().map(|array| Argument { array, number: false }).collect();
        eager::run(op, &operands, attrs)
    };
    let mut n_cases = 0;
    // The value of a fill is one element.
    for (op, rule) in pointwise().filter(|(op, _)| *op != Op::Fill) {
        for dtype in DType::ALL {
            // Integers are not divided by zero.
            let fill = if dtype.is_float() { Fill::Wild } else { Fill::AboveOne };
            let mut operand = |index: usize| {
                let dtype = if mask(rule) == Some(index) { DType::Bool } else { dtype };
                values::array(&mut random, &TensorType::contiguous(dtype, &[MANY]), fill)
            };
            let all: Vec<Array> = (0..n_tensors(op)).map(&mut operand).collect();
            let Ok(expected) = of(&all, op, &arguments(op)) else { continue };
            let expected: Vec<u64> = elements(&expected).collect();
            n_cases += 1;
            for n in [0, 1, 2, 63, 64, 65] {
                let part = |array: &Array| {
                    let layout = Layout { offset: array.layout().offset, ..Layout::contiguous(&[n]) };
                    Array::from_storage(array.storage().clone(), array.dtype(), layout).expect("it is a part")
                };
                let parts: Vec<Array> = all.iter().map(part).collect();
                // The layouts of results are cached, too.
                let copy = |array: &Array| of(std::slice::from_ref(array), Op::Clone, &[Attr::None]).expect("a copy");
                let copies: Vec<Array> = parts.iter().map(copy).collect();
                for (time, operands) in [&parts, &copies, &copies].into_iter().enumerate() {
                    let got = of(operands, op, &arguments(op)).expect("more elements are taken");
                    assert_eq!(
                        elements(&got).collect::<Vec<u64>>(),
                        expected[..n],
                        "{} of {n} {dtype}, time {time}",
                        op.name()
                    );
                }
            }
        }
    }
    assert!(n_cases > 500, "only {n_cases} cases");
}

/// Each op alone on odd shapes: results have the inferred type, and every tier has the same bits.
#[test]
fn every_op_has_the_same_bits_on_odd_shapes() {
    let shapes: [&[usize]; 14] = [
        &[],
        &[1],
        &[0],
        &[3],
        &[1, 1],
        &[0, 3],
        &[3, 0],
        &[2, 3],
        &[4, 4],
        &[1, 5],
        &[5, 1],
        &[2, 1, 3],
        &[3, 0, 2],
        &[2, 3, 4, 1],
    ];
    let rounds = if cfg!(debug_assertions) { 4 } else { 12 };
    let mut failed = Vec::new();
    for (number, &op) in Op::ALL.iter().enumerate() {
        let mut made = 0;
        for (at, shape) in shapes.iter().enumerate() {
            for round in 0..rounds {
                let seed = ((number * shapes.len() + at) * 1000 + round) as u64;
                let mut builder = Builder::new(seed);
                builder.shape = shape.to_vec();
                let dtype = builder.random.pick(&DType::ALL);
                let fill = builder.random.pick(&[Fill::Normal, Fill::Whole, Fill::Positive, Fill::Wild]);
                builder.strided_input(dtype, shape, fill);
                let part = builder.part_of_shape();
                let dtype = builder.random.pick(&DType::ALL);
                builder.strided_input(dtype, &part, Fill::Normal);
                let Some(output) = (0..10).find_map(|_| builder.propose(op)) else { continue };
                made += 1;
                let case = builder.finish(vec![output]);
                let effort = if round.is_multiple_of(2) { Effort::Interpreter } else { Effort::Tiers };
                if let Some(what) = failure(&case, effort) {
                    failed.push(format!("seed {seed}, {}: {what}\n{}", op.name(), case.graph));
                }
            }
        }
        assert!(made >= rounds, "{} was called {made} times only", op.name());
    }
    assert!(
        failed.is_empty(),
        "{} calls failed; the first:\n{}",
        failed.len(),
        failed[..failed.len().min(4)].join("\n")
    );
}
