//! Errors of the scalar functions, in units of the last place.
//!
//! 32-bit functions are compared with the 64-bit ones of the standard library on a stride through every bit pattern;
//! functions that it lacks are compared with our own in 64 bits. 64-bit functions are compared with the points of
//! `tests/data/math64.csv`, computed in 160 bits. Each point has the nearest double, and the rest of the value in units
//! of its last place. Operators that are made of several functions are measured in the same way, through tensors.
//! `docs/accuracy.md` is the table of all results; `UPDATE_EXPECT=1` writes it anew.

use expect_test::expect_file;
use opfuse::internals::ir::scalar::func::Func;
use opfuse::internals::ir::scalar::math;
use opfuse::{Result, Tensor};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_PI_2, PI};

/// The largest errors that `math.rs` promises, in ulp of 32 and 64 bits.
const BOUNDS: [(Func, f64, f64); 27] = [
    (Func::Exp, 1.0, 1.0),
    (Func::Exp2, 1.0, 1.0),
    (Func::Expm1, 1.6, 1.8),
    (Func::Log, 1.0, 1.25),
    (Func::Log2, 1.25, 1.0),
    (Func::Log10, 1.0, 1.0),
    (Func::Log1p, 1.6, 1.5),
    (Func::Tanh, 1.9, 2.0),
    (Func::Sigmoid, 1.9, 1.9),
    (Func::Silu, 1.8, 1.5),
    (Func::GeluTanh, 1.9, 1.5),
    (Func::Mish, 2.0, 1.5),
    (Func::Erf, 1.9, 1.9),
    (Func::Sin, 1.5, 1.5),
    (Func::Cos, 1.5, 1.5),
    (Func::Tan, 1.9, 1.9),
    (Func::Pow, 1.0, 1.0),
    (Func::Rsqrt, 1.5, 1.5),
    (Func::Asin, 1.5, 1.5),
    (Func::Acos, 1.25, 1.25),
    (Func::Atan, 1.25, 1.25),
    (Func::Atan2, 1.5, 1.5),
    (Func::Erfc, 1.8, 1.25),
    (Func::Erfinv, 2.0, 1.5),
    (Func::Lgamma, 2.0, 1.25),
    (Func::Digamma, 2.0, 2.0),
    (Func::Trigamma, 2.0, 2.0),
];

/// The value in 64 bits that a function of 32 bits should round.
fn reference(func: Func, args: &[f64]) -> f64 {
    let x = args[0];
    match func {
        Func::Exp => x.exp(),
        Func::Exp2 => x.exp2(),
        Func::Expm1 => x.exp_m1(),
        Func::Log => x.ln(),
        Func::Log2 => x.log2(),
        Func::Log10 => x.log10(),
        Func::Log1p => x.ln_1p(),
        Func::Tanh => x.tanh(),
        Func::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Func::Silu => x / (1.0 + (-x).exp()),
        Func::GeluTanh => gelu_tanh(x),
        Func::Mish => mish(x),
        Func::Erf => math::erf64(x),
        Func::Sin => x.sin(),
        Func::Cos => x.cos(),
        Func::Tan => x.tan(),
        Func::Pow => x.powf(args[1]),
        Func::Rsqrt => 1.0 / x.sqrt(),
        Func::Asin => x.asin(),
        Func::Acos => x.acos(),
        Func::Atan => x.atan(),
        Func::Atan2 => x.atan2(args[1]),
        Func::Erfc => math::erfc64(x),
        Func::Erfinv => math::erfinv64(x),
        Func::Lgamma => math::lgamma64(x),
        Func::Digamma => math::digamma64(x),
        Func::Trigamma => math::trigamma64(x),
    }
}

/// The number whose last place is the unit of the error: the result, or the larger term where the reflection of a gamma
/// function cancels.
fn measure(func: Func, x: f64, want: f64) -> f64 {
    match func {
        Func::Lgamma if x < 0.0 => want.abs().max(math::lgamma64(-x).abs()).max(1.0),
        Func::Digamma if x < 0.0 => {
            let positive = math::digamma64(-x);
            want.abs().max(positive.abs()).max((want - positive).abs()).max(1.0)
        }
        Func::Trigamma if x < 0.0 => want.abs().max(math::trigamma64(-x)),
        _ => want,
    }
}

/// The distance of `got` from `want` in units of the last place that `want` has in 32 bits.
fn ulps32(got: f32, want: f64) -> f64 {
    ulps32_of(got, want, want)
}

/// As [`ulps32`], in units of the last place of another number.
fn ulps32_of(got: f32, want: f64, measure: f64) -> f64 {
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() == want.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if f64::from(got) == want || (got.is_infinite() && got == want as f32) {
        return if got.is_sign_negative() == want.is_sign_negative() { 0.0 } else { f64::INFINITY };
    }
    // Infinity counts as the next float.
    let got = if got.is_infinite() { 2_f64.powi(128).copysign(got.into()) } else { f64::from(got) };
    let exponent = ((measure.abs().to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
    (got - want).abs() / 2_f64.powi(exponent - 23)
}

/// The worst point seen.
#[derive(Default)]
struct Worst {
    ulps: f64,
    args: String,
    n_points: usize,
}

impl Worst {
    fn see(&mut self, ulps: f64, args: &impl std::fmt::Debug) {
        self.n_points += 1;
        // An error that is NaN is kept as the worst.
        if ulps > self.ulps || ulps.is_nan() {
            (self.ulps, self.args) = (ulps, format!("{args:?}"));
        }
    }

    /// A message if the error is out of bounds.
    fn violation(&self, name: &str, width: u32, bound: f64) -> Option<String> {
        let Worst { ulps, args, n_points } = self;
        assert!(*n_points > 100, "{name} of {width} bits: only {n_points} points");
        // An error that is NaN is out of bounds.
        let is_within = *ulps <= bound;
        (!is_within).then(|| format!("{name} of {width} bits is {ulps} ulp off at {args}, more than {bound}"))
    }

    /// Cells of a table: the error, rounded up, where it is, and the number of points.
    fn cells(&self) -> String {
        let Worst { ulps, args, n_points } = self;
        format!("{:.2} | {} | {n_points}", (ulps * 100.0).ceil() / 100.0, args.trim_matches(['(', ')', '[', ']']))
    }
}

/// A reproducible stream of bits (xorshift).
struct Stream(u64);

impl Stream {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number in `[0, 1)`.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / 2_f64.powi(53)
    }
}

/// A stride through every bit pattern, the middle of the range, where functions are used, and special values.
fn points_32() -> impl Iterator<Item = f32> {
    // A prime, so that all low bits occur as well as all exponents.
    const STRIDE: usize = 9_973;
    let specials = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE, 1.0, -1.0, f32::MAX];
    let patterns = (0..u32::MAX).step_by(STRIDE).map(f32::from_bits);
    let middle = (0..200_000).map(|i| (i - 100_000) as f32 * 1.234_567e-4);
    patterns.chain(middle).chain(specials)
}

fn unary_32(func: Func) -> Worst {
    let mut worst = Worst::default();
    for x in points_32() {
        let want = reference(func, &[x.into()]);
        worst.see(ulps32_of(func.call32(&[x]), want, measure(func, x.into(), want)), &x);
    }
    worst
}

fn pow_32() -> Worst {
    let func = Func::Pow;
    let mut stream = Stream(0x9e37_79b9_7f4a_7c15);
    let mut worst = Worst::default();
    for i in 0..400_000 {
        let bits = stream.next();
        let any = f32::from_bits(bits as u32);
        // Exponents that spread the result over the whole range and past its ends, for any base and for bases near 1.
        let spread = |x: f32, unit: f64| ((unit * 290.0 - 155.0) / f64::from(x).log2()) as f32;
        let near_1 = 1.0 + (stream.unit() as f32 - 0.5) * 2_f32.powi(-((bits >> 60) as i32));
        let (x, y) = match i % 4 {
            0 => (any, f32::from_bits((bits >> 32) as u32)),
            1 => (any.abs(), spread(any.abs(), stream.unit())),
            2 => (near_1, spread(near_1, stream.unit())),
            _ => (any, ((bits >> 32) % 41) as f32 - 20.0),
        };
        worst.see(ulps32(func.call32(&[x, y]), reference(func, &[x.into(), y.into()])), &(x, y));
    }
    worst
}

/// Every pair of numbers that C99 has a rule for, in both widths, against the standard library's `powf`.
#[test]
fn pow_has_the_special_cases_of_c99() {
    let huge = f64::from(f32::MAX);
    let tiny = f64::from(f32::from_bits(1));
    let sizes = [0.0, tiny, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 16_777_215.0, 16_777_216.0, huge, f64::INFINITY, f64::NAN];
    let numbers: Vec<f64> = sizes.iter().flat_map(|&size| [size, -size]).collect();
    for &x in &numbers {
        for &y in &numbers {
            let (want, got) = ((x as f32).powf(y as f32), math::pow32(x as f32, y as f32));
            assert!(ulps32(got, f64::from(want)) <= 1.0, "pow32({x}, {y}) is {got}, not {want}");
            let (want, got) = (x.powf(y), math::pow64(x, y));
            let is_same = got.to_bits().abs_diff(want.to_bits()) <= 1 || (got.is_nan() && want.is_nan());
            assert!(is_same, "pow64({x}, {y}) is {got}, not {want}");
        }
    }
}

/// Pairs of all sizes and signs, and every pair of numbers that C99 has a rule for.
fn atan2_32() -> Worst {
    let func = Func::Atan2;
    let mut stream = Stream(0x9e37_79b9_7f4a_7c15);
    let mut worst = Worst::default();
    for i in 0..400_000 {
        let bits = stream.next();
        let any = |bits: u64| f32::from_bits(bits as u32);
        let near = |unit: f64| (unit * 6.0 - 3.0) as f32;
        let (y, x) = if i % 2 == 0 { (any(bits), any(bits >> 32)) } else { (near(stream.unit()), near(stream.unit())) };
        worst.see(ulps32(func.call32(&[y, x]), reference(func, &[y.into(), x.into()])), &(y, x));
    }
    let sizes = [0.0, f32::from_bits(1), 0.5, 1.0, 2.0, f32::MAX, f32::INFINITY, f32::NAN];
    for (y, x) in sizes.iter().flat_map(|&y| sizes.iter().map(move |&x| (y, x))) {
        for (y, x) in [(y, x), (-y, x), (y, -x), (-y, -x)] {
            worst.see(ulps32(func.call32(&[y, x]), reference(func, &[y.into(), x.into()])), &(y, x));
            let (got, want): (f64, f64) = (math::atan2_64(y.into(), x.into()), f64::from(y).atan2(x.into()));
            let is_same = got.to_bits().abs_diff(want.to_bits()) <= 1 || (got.is_nan() && want.is_nan());
            assert!(is_same, "atan2_64({y}, {x}) is {got}, not {want}");
        }
    }
    worst
}

/// The short reduction of angles has the bits of the long one, wherever it is used.
#[test]
fn small_angles_have_the_same_bits() {
    let angles = (0..1_000_000).step_by(7).map(f64::from).chain([0.0, 1e-300, 0.5, 1e-20]);
    for x in angles.flat_map(|x| [x, -x, x * 1.000_123]) {
        for (short, long) in [
            (math::small_angles::sin64(x), math::sin64(x)),
            (math::small_angles::cos64(x), math::cos64(x)),
            (math::small_angles::tan64(x), math::tan64(x)),
        ] {
            assert_eq!(short.to_bits(), long.to_bits(), "{x}");
        }
        let x = x as f32;
        for (short, long) in [
            (math::small_angles::sin32(x), math::sin32(x)),
            (math::small_angles::cos32(x), math::cos32(x)),
            (math::small_angles::tan32(x), math::tan32(x)),
        ] {
            assert!(x.abs() > math::small_angles::HIGH32 || short.to_bits() == long.to_bits(), "{x}");
        }
    }
}

#[test]
fn the_exponential_for_nonpositive_numbers_has_the_same_bits() {
    let same_32 = |x: f32| {
        let (short, long) = (math::not_positive::exp32(x), math::exp32(x));
        assert!(short.to_bits() == long.to_bits() || short.is_nan() && long.is_nan(), "{x}: {short}, {long}");
    };
    let sign = 1 << 31;
    (sign..=u32::MAX).step_by(251).map(f32::from_bits).for_each(same_32);
    // Subnormal results, results that underflow, powers that underflow, and special values.
    (870_000..1_120_000).map(|x| x as f32 / -10_000.0).for_each(same_32);
    [0.0, -0.0, -f32::MIN_POSITIVE, f32::MIN, f32::NEG_INFINITY, f32::NAN].into_iter().for_each(same_32);
    let same_64 = |x: f64| {
        let (short, long) = (math::not_positive::exp64(x), math::exp64(x));
        assert!(short.to_bits() == long.to_bits() || short.is_nan() && long.is_nan(), "{x}: {short}, {long}");
    };
    let sign = 1 << 63;
    (sign..=u64::MAX).step_by(0x0000_1234_5678_9abd).map(f64::from_bits).for_each(same_64);
    (700_000..770_000).map(|x| x as f64 / -1000.0).for_each(same_64);
    [0.0, -0.0, -f64::MIN_POSITIVE, f64::MIN, f64::NEG_INFINITY, f64::NAN].into_iter().for_each(same_64);
}

/// A point of 64 bits: arguments, the nearest double of the value, and the rest of the value in its last place.
struct Point {
    args: Vec<f64>,
    want: f64,
    rest: f64,
}

/// The points of a file by the name they stand under.
fn points_64(file: &str) -> Vec<(String, Vec<Point>)> {
    let path = format!("{}/tests/data/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the data lies beside the tests");
    let mut all: Vec<(String, Vec<Point>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(',').collect();
        let Some((rest, bits)) = fields.split_last().filter(|(_, bits)| !bits.is_empty()) else {
            all.push((line.into(), Vec::new()));
            continue;
        };
        let bits = bits.iter().map(|field| u64::from_str_radix(field, 16).expect("numbers are hexadecimal bits"));
        let mut args: Vec<f64> = bits.map(f64::from_bits).collect();
        let want = args.pop().expect("a line has all its fields");
        let rest = rest.parse().expect("the rest is a decimal");
        all.last_mut().expect("a name comes first").1.push(Point { args, want, rest });
    }
    all
}

impl Point {
    /// How far `got` is from the value, in units of the last place of the value, or of a number that is larger.
    fn ulps(&self, got: f64, measure: f64) -> f64 {
        let Point { want, rest, .. } = self;
        if got.is_nan() || got.is_sign_negative() != want.is_sign_negative() {
            return f64::INFINITY;
        }
        let exponent = |number: f64| ((number.to_bits() >> 52) & 0x7ff) as i32;
        let larger = exponent(measure) - exponent(*want);
        if larger > 0 {
            // The distance in units of the value may be large, and small in units of the larger number.
            let place = |number: f64| 2_f64.powi(exponent(number) - 1023 - 52);
            return (got - want - rest * place(*want)).abs() / place(measure);
        }
        // Patterns of one sign are ordered like their numbers, one unit of the last place apart.
        let steps = (got.to_bits() as i64 - want.to_bits() as i64) as f64;
        (steps - rest * want.signum()).abs()
    }
}

/// An operator that is made of several functions.
struct Composed {
    name: &'static str,
    call: fn(&Tensor) -> Result<Tensor>,
    reference: fn(f64) -> f64,
    /// The number whose last place is the unit of the error, from argument and value: a larger one where terms cancel.
    measure: fn(f64, f64) -> f64,
    /// The largest errors in ulp of 32 and 64 bits.
    bounds: (f64, f64),
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

const fn composed(
    name: &'static str,
    call: fn(&Tensor) -> Result<Tensor>,
    reference: fn(f64) -> f64,
    bounds: (f64, f64),
) -> Composed {
    Composed { name, call, reference, measure: |_, want| want, bounds }
}

const COMPOSED: [Composed; 9] = [
    composed("sinh", Tensor::sinh, f64::sinh, (1.75, 2.0)),
    composed("cosh", Tensor::cosh, f64::cosh, (1.9, 2.0)),
    composed("asinh", Tensor::asinh, f64::asinh, (1.75, 1.5)),
    composed("acosh", Tensor::acosh, f64::acosh, (2.0, 1.5)),
    composed("atanh", Tensor::atanh, f64::atanh, (2.0, 1.5)),
    Composed {
        // Of `x / 2 (1 + erf)`, where `erf` is near −1.
        measure: |x, want| want.abs().max(x.abs() / 2.0),
        ..composed("gelu", Tensor::gelu, |x| x * 0.5 * math::erfc64(-x * FRAC_1_SQRT_2), (2.0, 2.0))
    },
    composed("softplus", |x| x.softplus(1, 20), |x| if x > 20.0 { x } else { softplus(x) }, (2.0, 1.5)),
    composed("log_sigmoid", Tensor::log_sigmoid, |x| -softplus(-x), (2.0, 1.5)),
    composed("elu", |x| x.elu(1.0), |x| if x < 0.0 { x.exp_m1() } else { x }, (1.0, 1.0)),
];

fn gelu_tanh(x: f64) -> f64 {
    x / (1.0 + (-2.0 * (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x)).exp())
}

/// Of `x n / (n + 2)` with `n = e^x (e^x + 2)`.
fn mish(x: f64) -> f64 {
    let n = x.min(100.0).exp() * (x.min(100.0).exp() + 2.0);
    x * (n / (n + 2.0))
}

impl Composed {
    fn worst_32(&self) -> Result<Worst> {
        // Near the largest numbers, terms that are larger than the result overflow.
        let args: Vec<f32> = points_32().filter(|x| !x.is_finite() || x.abs() < 1e38).collect();
        let got = (self.call)(&Tensor::from_slice(&args, &[args.len()])?)?.to_vec::<f32>()?;
        let mut worst = Worst::default();
        for (&x, got) in args.iter().zip(got) {
            let want = (self.reference)(x.into());
            worst.see(ulps32_of(got, want, (self.measure)(x.into(), want)), &x);
        }
        Ok(worst)
    }

    fn worst_64(&self, points: &[Point]) -> Result<Worst> {
        let args: Vec<f64> = points.iter().map(|point| point.args[0]).collect();
        let got = (self.call)(&Tensor::from_slice(&args, &[args.len()])?)?.to_vec::<f64>()?;
        let mut worst = Worst::default();
        for (point, got) in points.iter().zip(got) {
            worst.see(point.ulps(got, (self.measure)(point.args[0], point.want)), &point.args);
        }
        Ok(worst)
    }
}

const PAGE: &str = "\
# How exact the functions are

Functions have the same bits eagerly and compiled, on every tier, with any number of threads. f16 and bf16 are computed
in f32. So one table is enough. It has the largest error that was found, in units of the last place of the result (ulp;
0.5 is what rounding alone costs). It also has the argument of that error, and how many were tried.

`tests/ir/math_accuracy.rs` measures the table. It fails if a figure passes the bound that the code promises, or if this
page is not what it measured. `UPDATE_EXPECT=1 cargo test --test ir math_accuracy` writes the page.

f32 is compared with f64 on every 9973rd bit pattern, so on all exponents, and on 200,000 numbers between -12.3 and 12.3
(`pow`, `atan2`: 400,000 pairs of all sizes). f64 is compared with points computed in at least 160 bits
(`tests/data/math64.csv`, `tests/data/composed64.csv`). Zeros, infinities, NaN and the ends of ranges are tested by
their bits.

Some figures are not errors of the result alone. `lgamma`, `digamma` and `trigamma` of negative numbers are made by
reflection, and `gelu` is `x / 2 (1 + erf(x / sqrt 2))`. Where such terms cancel, the error is measured in the last
place of the larger one.

No figure is beyond 2 ulp. `softplus` is `x` from 20 on, by definition.
";

#[test]
fn errors_are_bounded_and_documented() -> Result<()> {
    let mut page =
        format!("{PAGE}\n| function | f32 | at | points | f64 | at | points |\n|---|---|---|---|---|---|---|\n");
    let mut violations = Vec::new();
    let mut row = |name: &str, worst: [Worst; 2], bounds: (f64, f64)| {
        let [narrow, wide] = &worst;
        violations.extend(narrow.violation(name, 32, bounds.0).into_iter().chain(wide.violation(name, 64, bounds.1)));
        page.push_str(&format!("| {name} | {} | {} |\n", narrow.cells(), wide.cells()));
    };
    let wide = points_64("math64.csv");
    for (func, bound_32, bound_64) in BOUNDS {
        let narrow = match func {
            Func::Pow => pow_32(),
            Func::Atan2 => atan2_32(),
            func => unary_32(func),
        };
        let (_, points) = wide.iter().find(|(name, _)| name == func.name()).expect("every function has points");
        let mut worst = Worst::default();
        for point in points {
            worst.see(point.ulps(func.call64(&point.args), point.want), &point.args);
        }
        row(func.name(), [narrow, worst], (bound_32, bound_64));
    }
    let wide = points_64("composed64.csv");
    for op in &COMPOSED {
        let (_, points) = wide.iter().find(|(name, _)| name == op.name).expect("every operator has points");
        row(op.name, [op.worst_32()?, op.worst_64(points)?], op.bounds);
    }
    // On other systems the standard library, which f32 is compared with, has other errors.
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        expect_file!["../../docs/accuracy.md"].assert_eq(&page);
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    Ok(())
}

/// The ends of the ranges: values are compared by their bits, in both widths.
#[test]
fn functions_are_exact_at_the_ends_of_their_ranges() {
    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;
    // x, then f(x); a NaN matches any NaN.
    let cases: [(Func, &[(f64, f64)]); 25] = [
        (Func::Exp, &[(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (1e4, INF), (-1e4, 0.0), (NAN, NAN)]),
        (Func::Exp2, &[(0.0, 1.0), (3.0, 8.0), (-20.0, 9.5367431640625e-7), (INF, INF), (-INF, 0.0), (NAN, NAN)]),
        (Func::Expm1, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (1e4, INF), (1e-40, 1e-40), (NAN, NAN)]),
        (Func::Log, &[(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN), (-INF, NAN), (NAN, NAN)]),
        (Func::Log2, &[(0.0, -INF), (1.0, 0.0), (8.0, 3.0), (0.125, -3.0), (INF, INF), (-1.0, NAN), (NAN, NAN)]),
        (Func::Log10, &[(0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN), (NAN, NAN)]),
        (Func::Log1p, &[(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (INF, INF), (-2.0, NAN), (1e-40, 1e-40), (NAN, NAN)]),
        (Func::Tanh, &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (50.0, 1.0), (1e-40, 1e-40), (NAN, NAN)]),
        (Func::Sigmoid, &[(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (1e4, 1.0), (-1e4, 0.0), (NAN, NAN)]),
        (Func::Silu, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, NAN), (1e30, 1e30), (-1e30, -0.0), (NAN, NAN)]),
        (Func::GeluTanh, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, NAN), (1e30, 1e30), (-1e30, -0.0), (NAN, NAN)]),
        (Func::Mish, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, NAN), (1e30, 1e30), (-1e30, -0.0), (NAN, NAN)]),
        (Func::Erf, &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (7.0, 1.0), (-7.0, -1.0), (NAN, NAN)]),
        (Func::Sin, &[(0.0, 0.0), (-0.0, -0.0), (1e-40, 1e-40), (INF, NAN), (-INF, NAN), (NAN, NAN)]),
        (Func::Cos, &[(0.0, 1.0), (-0.0, 1.0), (1e-40, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN)]),
        (Func::Tan, &[(0.0, 0.0), (-0.0, -0.0), (1e-40, 1e-40), (INF, NAN), (-INF, NAN), (NAN, NAN)]),
        (Func::Asin, &[(0.0, 0.0), (-0.0, -0.0), (1e-40, 1e-40), (1.0, FRAC_PI_2), (1.5, NAN), (INF, NAN), (NAN, NAN)]),
        (Func::Acos, &[(1.0, 0.0), (0.0, FRAC_PI_2), (-1.0, PI), (1.5, NAN), (-INF, NAN), (NAN, NAN)]),
        (Func::Atan, &[(0.0, 0.0), (-0.0, -0.0), (1e-40, 1e-40), (INF, FRAC_PI_2), (-INF, -FRAC_PI_2), (NAN, NAN)]),
        (Func::Erfc, &[(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 2.0), (30.0, 0.0), (-30.0, 2.0), (NAN, NAN)]),
        (Func::Erfinv, &[(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (INF, NAN), (NAN, NAN)]),
        (
            Func::Lgamma,
            &[
                (1.0, 0.0),
                (2.0, 0.0),
                (0.0, INF),
                (-0.0, INF),
                (-3.0, INF),
                (-1e30, INF),
                (INF, INF),
                (-INF, INF),
                (NAN, NAN),
            ],
        ),
        (Func::Digamma, &[(0.0, -INF), (-0.0, INF), (-3.0, NAN), (-1e30, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)]),
        (Func::Trigamma, &[(0.0, INF), (-0.0, INF), (-3.0, INF), (INF, 0.0), (NAN, NAN)]),
        (Func::Rsqrt, &[(0.0, INF), (-0.0, -INF), (4.0, 0.5), (INF, 0.0), (-1.0, NAN), (NAN, NAN)]),
    ];
    for (func, cases) in cases {
        for &(x, want) in cases {
            let got = func.call64(&[x]);
            let is_same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
            assert!(is_same, "{}64({x:e}) is {got:e}, not {want:e}", func.name());
            let (got, want) = (func.call32(&[x as f32]), want as f32);
            let is_same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
            assert!(is_same, "{}32({x:e}) is {got:e}, not {want:e}", func.name());
        }
    }
}

#[test]
fn names_of_functions_parse_back() {
    for (func, row) in Func::ALL.into_iter().zip(BOUNDS) {
        assert_eq!(Func::from_name(func.name()), Some(func));
        assert_eq!(func, row.0, "the bounds follow the declaration");
    }
    assert_eq!(Func::from_name("sine"), None);
}
