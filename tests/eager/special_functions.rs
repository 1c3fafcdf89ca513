//! Bessel functions and their kin against recorded values of SciPy 1.17, floats by their bits, divisors, and scans by
//! steps.

use opfuse::autograd::{GradOptions, grad, gradcheck};
use opfuse::dispatch::{Dispatcher, Value};
use opfuse::{DType, Device, Result, Tensor, compile, vmap};

type Function = fn(&Tensor) -> Result<Tensor>;

fn call(name: &str, arguments: Vec<Value>) -> Result<Tensor> {
    opfuse::dispatch::load()?;
    let mut stack = arguments.into_iter().collect();
    Dispatcher::global().lookup(name).expect("it is registered").call_boxed(&mut stack)?;
    let mut results = stack.iter().flat_map(Value::tensors);
    Ok(results.next().expect("a result").clone())
}

fn one(name: &str, x: &Tensor) -> Result<Tensor> {
    call(name, vec![Value::Tensor(x.clone())])
}

const FUNCTIONS: [(&str, Function); 7] = [
    ("i0", Tensor::i0),
    ("i0e", |x| one("aten::special_i0e", x)),
    ("i1", |x| one("aten::special_i1", x)),
    ("i1e", |x| one("aten::special_i1e", x)),
    ("j0", |x| one("aten::special_bessel_j0", x)),
    ("j1", |x| one("aten::special_bessel_j1", x)),
    ("erfcx", |x| one("aten::special_erfcx", x)),
];

const POINTS: [f64; 10] = [0.0, -0.3, 0.75, -2.5, 5.0, 7.9, 8.1, -20.0, 100.0, 300.0];

/// Of `scipy.special` at these points, and of `erfcx` at others.
const VALUES: [[f64; 10]; 7] = [
    [
        1.0,
        1.0226268793515974,
        1.1456467780440016,
        3.289839144050123,
        27.239871823604442,
        389.406283282158,
        469.5006067101214,
        43558282.559553534,
        1.0737517071310738e42,
        4.475847367935052e128,
    ],
    [
        1.0,
        0.7575806251825481,
        0.5411652192034955,
        0.27004644161220276,
        0.18354081260932834,
        0.14436986414104191,
        0.14251180948829525,
        0.089780311884826,
        0.03994437929909668,
        0.02304255841508546,
    ],
    [
        0.0,
        -0.15169384000359282,
        0.40199246158092217,
        -2.5167162452886984,
        24.335642142450524,
        363.8539440845081,
        439.48430891035844,
        -42454973.385127775,
        1.0683693903381625e42,
        4.468381385036954e128,
    ],
    [
        0.0,
        -0.11237756063983881,
        0.189887793304855,
        -0.20658464953126654,
        0.16397226694454234,
        0.13489649943989365,
        0.13340068832583662,
        -0.08750622218328867,
        0.03974415302513025,
        0.02300412204026895,
    ],
    [
        1.0,
        0.9776262465382961,
        0.8642422751666485,
        -0.04838377646819804,
        -0.1775967713143383,
        0.1943618448412782,
        0.14751745404437763,
        0.16702466434058322,
        0.01998585030422333,
        -0.033298554876306494,
    ],
    [
        0.0,
        -0.148318816273104,
        0.34924360217486217,
        -0.497094102464274,
        -0.3275791375914653,
        0.21917939992175126,
        0.24760776698159287,
        -0.0668331241758502,
        -0.0771453520141123,
        -0.03188743137749927,
    ],
    [
        1.0,
        1.4537492328427655,
        0.506937650293145,
        1035.8148429726227,
        0.11070463773306861,
        0.07085747736739714,
        0.028174348741051323,
        144009798674.66104,
        5.641895807268084e-05,
        5.641895835477563e-201,
    ],
];
const POINTS_OF_ERFCX: [f64; 10] = [0.0, -0.3, 0.75, -2.5, 5.0, 7.9, 20.0, -5.0, 1e4, 1e200];

fn points(name: &str) -> [f64; 10] {
    if name == "erfcx" { POINTS_OF_ERFCX } else { POINTS }
}

#[test]
fn functions_have_the_values_of_scipy() -> Result<()> {
    for ((name, function), expected) in FUNCTIONS.into_iter().zip(VALUES) {
        let x = Tensor::from_slice(&points(name), &[10])?;
        let found = function(&x)?.to_vec::<f64>()?;
        for ((at, found), expected) in points(name).into_iter().zip(found).zip(expected) {
            // Oscillating functions are exact relative to their greatest values nearby.
            let scale = if name.starts_with('j') { 1.0 } else { expected.abs() };
            assert!((found - expected).abs() <= 2e-15 * scale + 1e-300, "{name}({at}) is {expected}, not {found}");
        }
        // Narrower floats are the same values, rounded once.
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let narrow = x.to_dtype(dtype)?;
            let expected = function(&narrow.to_dtype(DType::F64)?)?.to_dtype(dtype)?;
            assert_eq!(bits(&function(&narrow)?)?, bits(&expected)?, "{name} of {dtype}");
        }
        assert_eq!(function(&Tensor::try_from([1i64, 2])?)?.dtype(), DType::F32);
        for odd in [x.narrow(0, 0, 0)?, x.select(0, 1)?, x.slice(0, 0, 10, 3)?, x.unsqueeze(0)?.expand([2, 10])?] {
            let expected: Vec<u64> = odd
                .contiguous()?
                .to_vec::<f64>()?
                .iter()
                .map(|&x| Ok(bits(&function(&Tensor::from_slice(&[x], &[1])?)?)?[0]))
                .collect::<Result<_>>()?;
            assert_eq!(bits(&function(&odd)?)?, expected, "{name} of {:?}", odd.sizes());
        }
    }
    Ok(())
}

#[test]
fn functions_have_limits() -> Result<()> {
    let x = Tensor::try_from([f64::INFINITY, f64::NEG_INFINITY, f64::NAN])?;
    let limits = [
        [f64::INFINITY, f64::INFINITY],
        [0.0, 0.0],
        [f64::INFINITY, f64::NEG_INFINITY],
        [0.0, 0.0],
        [0.0, 0.0],
        [0.0, 0.0],
        [0.0, f64::INFINITY],
    ];
    for ((name, function), expected) in FUNCTIONS.into_iter().zip(limits) {
        let found = function(&x)?.to_vec::<f64>()?;
        assert_eq!(found[..2], expected, "{name}");
        assert!(found[2].is_nan(), "{name} of NaN is {}", found[2]);
    }
    Ok(())
}

/// Of PyTorch 2.15 at these points.
const SLOPES: [(&str, [f64; 4]); 5] = [
    ("i0", [0.0, -0.15169384000359282, 2.5167162452886984, 1030.9147225169565]),
    ("i0e", [0.0, 0.6452030645427088, -0.06346179208093622, -0.007734540645831789]),
    ("i1", [0.5, 0.5169807460062873, 2.283152645934644, 979.0422742317127]),
    ("i1e", [0.5, 0.2706111957432461, -0.019172067731570375, -0.006401568680378361]),
    ("erfcx", [-std::f64::consts::FRAC_2_SQRT_PI, -2.0006287068011717, -0.0743473467897946, -0.006840134415568189]),
];

fn slope(function: Function, x: &Tensor) -> Result<Vec<f64>> {
    let x = x.copy()?;
    x.set_requires_grad(true)?;
    let found = grad(&[&function(&x)?.sum((), false)?], &[&x], &[None], GradOptions::default())?;
    found[0].as_ref().expect("a gradient").to_vec::<f64>()
}

#[test]
fn functions_have_derivatives() -> Result<()> {
    for (name, expected) in SLOPES {
        let (_, function) = FUNCTIONS.into_iter().find(|(other, _)| *other == name).expect("it is listed");
        let found = slope(function, &Tensor::try_from([0.0, -0.3, 2.5, 9.0])?)?;
        for (found, expected) in found.into_iter().zip(expected) {
            let close = (found - expected).abs() <= 1e-12 * expected.abs().max(1.0);
            assert!(close, "the slope of {name} is {expected}, not {found}");
        }
    }
    // The slope of J0 is -J1.
    let x = Tensor::try_from([-3.0, 0.5, 4.0, 7.0, 12.0, 30.0])?;
    let found = slope(FUNCTIONS[4].1, &x)?;
    let expected = FUNCTIONS[5].1(&x)?.neg()?.to_vec::<f64>()?;
    assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-12), "{found:?}");
    Ok(())
}

fn bits(x: &Tensor) -> Result<Vec<u64>> {
    Ok(x.to_dtype(DType::F64)?.contiguous()?.to_vec::<f64>()?.iter().map(|x| x.to_bits()).collect())
}

/// Numbers from -12 to 12, many enough for machine code.
fn many(dtype: DType) -> Result<Tensor> {
    Tensor::arange(-20000, 20000, 1)?.to_dtype(DType::F64)?.div(1666.7)?.to_dtype(dtype)
}

#[test]
fn compiled_bits_are_eager_ones() -> Result<()> {
    let more: [(&str, Function); 5] = [
        ("zeta", |x| zeta(&x.abs()?.add(1.5)?, &x.abs()?.add(0.1)?)),
        ("nextafter", |x| x.nextafter(&x.square()?)),
        ("mantissa", |x| Ok(x.frexp()?.0)),
        ("exponent", |x| x.frexp()?.1.to_dtype(DType::F64)),
        ("logcumsumexp", |x| x.logcumsumexp(0)),
    ];
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let x = many(dtype)?;
        for (name, function) in FUNCTIONS.into_iter().chain(more) {
            let expected = bits(&function(&x)?)?;
            assert!(bits(&compile(function).call(&x)?)? == expected, "{name} of {dtype}, compiled");
            let rows = x.reshape([4, 10000])?;
            let mapped = bits(&vmap(function).call(&rows)?)?;
            let alone: Vec<Vec<u64>> =
                (0..4).map(|row| bits(&function(&rows.select(0, row)?)?)).collect::<Result<_>>()?;
            assert!(mapped == alone.concat(), "{name} of {dtype} under vmap");
            let meta = function(&x.to_device(Device::META)?)?;
            assert_eq!((meta.sizes(), meta.dtype()), (x.sizes(), function(&x)?.dtype()), "{name} of {dtype}");
        }
    }
    Ok(())
}

fn zeta(s: &Tensor, q: &Tensor) -> Result<Tensor> {
    call("aten::special_zeta", vec![Value::Tensor(s.clone()), Value::Tensor(q.clone())])
}

#[test]
fn zeta_has_the_values_of_scipy() -> Result<()> {
    let s = Tensor::try_from([2.0, 3.5, 1.01, 30.0, 2.0, 2.0, 4.0, 1.5])?;
    let q = Tensor::try_from([1.0, 0.25, 7.0, 1.5, 1e3, 1e-3, -0.5, 3.0])?;
    let expected = [
        1.6449340668482266,
        128.54695896428433,
        98.14463369609564,
        5.215096203815733e-06,
        0.001000500166666633,
        1000001.6425331959,
        32.23484850566707,
        1.2588219580922144,
    ];
    for (found, expected) in zeta(&s, &q)?.to_vec::<f64>()?.into_iter().zip(expected) {
        assert!((found / expected - 1.0).abs() < 1e-14, "{expected}, not {found}");
    }
    // Of PyTorch: a pole, no value, a pole, no value, no number.
    let s = Tensor::try_from([1.0, 0.5, 2.0, 2.5, f64::NAN])?;
    let found = zeta(&s, &Tensor::try_from([2.0, 2.0, -3.0, -0.5, 1.0])?)?.to_vec::<f64>()?;
    assert_eq!(found.iter().map(|x| x.is_nan()).collect::<Vec<_>>(), [false, true, false, true, true]);
    assert_eq!((found[0], found[2]), (f64::INFINITY, f64::INFINITY));
    // Its slope in the second operand, of PyTorch.
    let found = slope(|q| zeta(&Tensor::try_from([3.0f64])?, q), &Tensor::try_from([0.5, 2.0, 11.0])?)?;
    for (found, expected) in found.into_iter().zip([-48.70454551700121, -0.24696970113341465, -0.0008599506521449343]) {
        assert!((found / expected - 1.0).abs() < 1e-12, "{expected}, not {found}");
    }
    Ok(())
}

/// `f64::next_up` and `next_down` are the slow twin.
#[test]
fn neighbours_are_those_of_rust() -> Result<()> {
    macro_rules! check {
        ($float:ident, $x:expr, $y:expr) => {
            let (x, y) = ($x, $y);
            let expected = match x.partial_cmp(&y) {
                None => $float::NAN,
                Some(std::cmp::Ordering::Equal) => y,
                Some(std::cmp::Ordering::Less) => x.next_up(),
                Some(std::cmp::Ordering::Greater) => x.next_down(),
            };
            let found = Tensor::try_from([x])?.nextafter(&Tensor::try_from([y])?)?.to_vec::<$float>()?[0];
            let are_nan = found.is_nan() && expected.is_nan();
            assert!(found.to_bits() == expected.to_bits() || are_nan, "{x}, {y}: {found}");
        };
    }
    let numbers = [0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, f64::MAX, f64::MIN, f64::INFINITY, 3.7, f64::NAN];
    for x in numbers {
        for y in numbers {
            check!(f64, x, y);
            check!(f32, x as f32, y as f32);
        }
    }
    // Of bf16, 1 + 2^-7.
    let next = Tensor::try_from([1.0f32])?
        .to_dtype(DType::BF16)?
        .nextafter(&Tensor::try_from([2.0f32])?.to_dtype(DType::BF16)?)?;
    assert_eq!(next.to_dtype(DType::F32)?.to_vec::<f32>()?, [1.0078125]);
    assert!(Tensor::try_from([1i64])?.nextafter(&Tensor::try_from([2i64])?).is_err());
    Ok(())
}

#[test]
fn mantissas_and_exponents_make_the_number() -> Result<()> {
    let numbers = [1.0, -0.75, 6.0, 1e-310, 5e-324, f64::MAX, -f64::MIN_POSITIVE, 0.0, -0.0, f64::INFINITY, f64::NAN];
    let (mantissas, exponents) = Tensor::from_slice(&numbers, &[11])?.frexp()?;
    let exponents = exponents.to_vec::<i32>()?;
    assert_eq!(exponents, [1, 0, 3, -1029, -1073, 1024, -1021, 0, 0, 0, 0]);
    for ((m, e), x) in mantissas.to_vec::<f64>()?.into_iter().zip(exponents).zip(numbers) {
        assert!(m == 0.0 || !m.is_finite() || (0.5..1.0).contains(&m.abs()), "{m} of {x}");
        let again = m * 2f64.powi(e / 2) * 2f64.powi(e - e / 2);
        assert!(again.to_bits() == x.to_bits() || x.is_nan(), "{m} * 2^{e} is not {x}");
    }
    let (mantissas, exponents) = Tensor::try_from([1e-45f32, 3.0, f32::MAX])?.frexp()?;
    assert_eq!(exponents.to_vec::<i32>()?, [-148, 2, 128]);
    assert_eq!(mantissas.to_vec::<f32>()?, [0.5, 0.75, 0.99999994]);
    gradcheck(|x| Ok(x[0].frexp()?.0), &[&Tensor::try_from([0.7, -3.0, 40.0])?], 1e-6, 1e-6)?;
    Ok(())
}

fn euclid(a: i64, b: i64) -> i64 {
    if b == 0 { a.wrapping_abs() } else { euclid(b, a.wrapping_rem(b)) }
}

#[test]
fn divisors_are_those_of_euclid() -> Result<()> {
    // The last two numbers of the sequence of Fibonacci in each width take the most steps.
    for (dtype, last) in [
        (DType::U8, [144, 233]),
        (DType::I8, [55, 89]),
        (DType::I16, [17711, 28657]),
        (DType::I32, [1134903170, 1836311903]),
        (DType::I64, [4660046610375530309, 7540113804746346429]),
    ] {
        let numbers = [0, 1, 2, 12, 18, 35, 64, 97, last[0], last[1]];
        let signed: Vec<i64> = match dtype {
            DType::U8 => numbers.to_vec(),
            _ => numbers.iter().chain(&numbers.map(|x| -x)).copied().collect(),
        };
        let x = Tensor::from_slice(&signed, &[signed.len()])?.to_dtype(dtype)?;
        let (gcd, lcm) = (x.unsqueeze(1)?.gcd(&x)?, x.unsqueeze(1)?.lcm(&x)?);
        assert_eq!((gcd.dtype(), lcm.dtype()), (dtype, dtype));
        let found = gcd.to_dtype(DType::I64)?.to_vec::<i64>()?;
        let multiples = lcm.to_dtype(DType::I64)?.to_vec::<i64>()?;
        for (at, found) in found.into_iter().enumerate() {
            let (a, b) = (signed[at / signed.len()], signed[at % signed.len()]);
            assert_eq!(found, euclid(a, b), "the divisor of {a} and {b} as {dtype}");
            if a.abs().max(b.abs()) < 13 && found > 0 {
                assert_eq!(multiples[at], (a / found * b).abs(), "the multiple of {a} and {b}");
            }
        }
        let again = compile(|x: &Tensor| x.unsqueeze(1)?.gcd(x)).call(&x)?;
        assert!(again.eq(&gcd)?.all((), false)?.item::<bool>()?, "{dtype}, compiled");
    }
    assert_eq!(Tensor::try_from([0i64, 0])?.lcm(&Tensor::try_from([0i64, 4])?)?.to_vec::<i64>()?, [0, 0]);
    let message = Tensor::try_from([1.5f32])?.gcd(&Tensor::try_from([1i64])?).expect_err("an error").to_string();
    assert!(message.contains("gcd") && message.contains("whole numbers"), "{message}");
    Ok(())
}

#[test]
fn logarithms_of_running_sums_do_not_overflow() -> Result<()> {
    let x = Tensor::try_from([-1e4, 2.0, -3.0, 1e4, 5.0, f64::NEG_INFINITY])?;
    // Of PyTorch.
    let expected = [-1e4, 2.0, 2.0067153484891183, 1e4, 1e4, 1e4];
    for (found, expected) in x.logcumsumexp(0)?.to_vec::<f64>()?.into_iter().zip(expected) {
        assert!((found - expected).abs() < 1e-15 * expected.abs().max(1.0), "{expected}, not {found}");
    }
    let far = Tensor::try_from([f64::NEG_INFINITY, f64::NEG_INFINITY, 1.0, f64::NAN, 1.0])?.logcumsumexp(0)?;
    let far = far.to_vec::<f64>()?;
    assert_eq!(far[..3], [f64::NEG_INFINITY, f64::NEG_INFINITY, 1.0]);
    assert!(far[3].is_nan() && far[4].is_nan());
    for sizes in [&[0, 3][..], &[3, 0], &[1], &[], &[2, 5, 3]] {
        let x = Tensor::arange(0, sizes.iter().product::<usize>() as i64, 1)?.to_dtype(DType::F64)?.sin()?;
        let sizes: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
        let x = x.reshape(&sizes[..])?;
        for dim in 0..x.dim().max(1) as i64 {
            let found = x.logcumsumexp(dim)?;
            let expected = x.exp()?.cumsum(dim)?.log()?;
            assert_eq!(found.sizes(), x.sizes());
            assert!(found.numel() == 0 || found.sub(&expected)?.abs()?.amax((), false)?.item::<f64>()? < 1e-14);
            gradcheck(|x| x[0].logcumsumexp(dim), &[&x], 1e-6, 1e-6)?;
        }
    }
    assert!(x.logcumsumexp(1).is_err());
    Ok(())
}

#[test]
fn whole_numbers_are_drawn_like_a_model() -> Result<()> {
    let model = Tensor::zeros(&[2000], DType::F32)?;
    let mut arguments = vec![Value::Tensor(model), Value::Int(3), Value::Int(7)];
    arguments.extend([Value::None, Value::None, Value::None, Value::None, Value::None]);
    let drawn = call("aten::randint_like.low_dtype", arguments)?;
    assert_eq!(drawn.dtype(), DType::F32);
    let mut seen = drawn.to_vec::<f32>()?;
    seen.sort_by(f32::total_cmp);
    seen.dedup();
    assert_eq!(seen, [3.0, 4.0, 5.0, 6.0]);
    Ok(())
}
