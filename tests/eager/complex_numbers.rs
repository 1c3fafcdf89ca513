//! Complex tensors: arithmetic, functions, moves, writes, reductions, gradients, files, and functions of functions.

use num_complex::{Complex32, Complex64};
use opfuse::autograd::gradcheck;
use opfuse::func::grad;
use opfuse::{DType, Result, Tensor, compile, vmap};

type Function = fn(&Tensor) -> Result<Tensor>;
type Number = fn(Complex64) -> Complex64;
type Boxed = Box<dyn Fn(&Tensor) -> Result<Tensor>>;
/// A dtype, with sizes.
type Operand = (DType, &'static [usize]);

const PARTS: [f64; 7] = [-2.5, -1.0, -0.25, 0.0, 0.5, 1.0, 3.0];

/// All pairs of a few parts, as a 7 x 7 matrix.
fn numbers() -> Vec<Complex64> {
    PARTS.iter().flat_map(|&re| PARTS.iter().map(move |&im| Complex64::new(re, im))).collect()
}

fn matrix() -> Result<Tensor> {
    Tensor::from_slice(&numbers(), &[7, 7])
}

/// Numbers without a zero, and away from branch cuts and poles.
fn generic() -> Result<Tensor> {
    let all: Vec<Complex64> = numbers().iter().map(|z| z * 0.7 + Complex64::new(0.11, 0.07)).collect();
    Tensor::from_slice(&all, &[7, 7])
}

fn check(what: &str, found: &Tensor, expected: impl IntoIterator<Item = Complex64>) -> Result<()> {
    check_within(1e-13, what, found, expected)
}

/// Checks elements to an error relative to `1 + |expected|`.
pub(crate) fn check_within(
    error: f64,
    what: &str,
    found: &Tensor,
    expected: impl IntoIterator<Item = Complex64>,
) -> Result<()> {
    let found = found.to_vec::<Complex64>()?;
    let expected: Vec<Complex64> = expected.into_iter().collect();
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let is_near = (found - expected).norm() <= error * (1.0 + expected.norm()) || found == expected;
        assert!(is_near, "{what}, element {at}: {found} is not {expected}");
    }
    Ok(())
}

#[test]
fn arithmetic_is_that_of_numbers() -> Result<()> {
    let (all, z) = (numbers(), matrix()?);
    let w = Complex64::new(0.75, -1.5);
    let one = Tensor::scalar(w)?;
    check("add", &z.add(&one)?, all.iter().map(|z| z + w))?;
    check("sub", &z.sub(&one)?, all.iter().map(|z| z - w))?;
    check("mul", &z.mul(&one)?, all.iter().map(|z| z * w))?;
    check("div", &z.div(&one)?, all.iter().map(|z| z / w))?;
    check("div of", &one.div(&generic()?)?, generic()?.to_vec::<Complex64>()?.iter().map(|z| w / z))?;
    check("a real factor", &z.mul(3)?, all.iter().map(|z| z * 3.0))?;
    check("a number", &(&z + 1.5)?, all.iter().map(|z| z + 1.5))?;
    check("a number on the left", &(2.0 - &z)?, all.iter().map(|z| 2.0 - z))?;
    let real = Tensor::arange_of(0, 49, 1, DType::F64)?.reshape([7, 7])?;
    check("a real tensor", &real.mul(&z)?, all.iter().enumerate().map(|(at, z)| z * at as f64))?;
    check("a real term", &real.add(&z)?, all.iter().enumerate().map(|(at, z)| z + at as f64))?;
    check("a real divisor", &z.div(&real.add(1)?)?, all.iter().enumerate().map(|(at, z)| z / (at as f64 + 1.0)))?;
    check("square", &z.square()?, all.iter().map(|z| z * z))?;
    check("pow", &z.pow(3)?, all.iter().map(|z| z * z * z))?;
    check("negative pow", &generic()?.pow(-2)?, generic()?.to_vec::<Complex64>()?.iter().map(|z| z.powi(-2)))?;
    check("lerp", &z.lerp(&one, 0.25)?, all.iter().map(|z| z + 0.25 * (w - z)))?;
    assert!(z.eq(&z)?.all((), false)?.item::<bool>()?);
    assert_eq!(z.ne(&z.conj()?)?.to_vec::<bool>()?, all.iter().map(|z| z.im != 0.0).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn results_have_promoted_dtypes() -> Result<()> {
    let of = |dtype: DType, sizes: &[usize]| Tensor::ones(sizes, dtype);
    let cases: [(Operand, Operand, DType); 8] = [
        ((DType::Complex64, &[2]), (DType::F32, &[2]), DType::Complex64),
        ((DType::Complex64, &[2]), (DType::F64, &[2]), DType::Complex128),
        ((DType::Complex64, &[2]), (DType::F64, &[]), DType::Complex64),
        ((DType::Complex128, &[]), (DType::F32, &[2]), DType::Complex64),
        ((DType::Complex128, &[]), (DType::Complex64, &[2]), DType::Complex64),
        ((DType::Complex64, &[2]), (DType::I64, &[2]), DType::Complex64),
        ((DType::F64, &[2]), (DType::Complex64, &[]), DType::Complex128),
        ((DType::Complex64, &[]), (DType::Bool, &[]), DType::Complex64),
    ];
    for ((left, left_sizes), (right, right_sizes), expected) in cases {
        let (x, y) = (of(left, left_sizes)?, of(right, right_sizes)?);
        for (name, result) in [("add", x.add(&y)?), ("mul", x.mul(&y)?), ("div", x.div(&y)?), ("sub", y.sub(&x)?)] {
            assert_eq!(result.dtype(), expected, "{name} of {left}{left_sizes:?} and {right}{right_sizes:?}");
        }
    }
    assert_eq!((of(DType::Complex64, &[2])? * 1.5)?.dtype(), DType::Complex64);
    Ok(())
}

/// Functions with the function of a number.
const FUNCTIONS: [(&str, Function, Number); 22] = [
    ("exp", Tensor::exp, |z| z.exp()),
    ("exp2", Tensor::exp2, |z| z.exp2()),
    ("expm1", Tensor::expm1, |z| z.exp() - 1.0),
    ("log", Tensor::log, |z| z.ln()),
    ("log2", Tensor::log2, |z| z.log2()),
    ("log10", Tensor::log10, |z| z.log10()),
    ("log1p", Tensor::log1p, |z| (z + 1.0).ln()),
    ("sqrt", Tensor::sqrt, |z| z.sqrt()),
    ("rsqrt", Tensor::rsqrt, |z| z.sqrt().inv()),
    ("sin", Tensor::sin, |z| z.sin()),
    ("cos", Tensor::cos, |z| z.cos()),
    ("tan", Tensor::tan, |z| z.tan()),
    ("asin", Tensor::asin, |z| z.asin()),
    ("acos", Tensor::acos, |z| z.acos()),
    ("atan", Tensor::atan, |z| z.atan()),
    ("sinh", Tensor::sinh, |z| z.sinh()),
    ("cosh", Tensor::cosh, |z| z.cosh()),
    ("tanh", Tensor::tanh, |z| z.tanh()),
    ("asinh", Tensor::asinh, |z| z.asinh()),
    ("acosh", Tensor::acosh, |z| z.acosh()),
    ("atanh", Tensor::atanh, |z| z.atanh()),
    ("reciprocal", Tensor::reciprocal, |z| z.inv()),
];

#[test]
fn functions_are_those_of_numbers() -> Result<()> {
    let z = generic()?;
    let all = z.to_vec::<Complex64>()?;
    for (name, ours, theirs) in FUNCTIONS {
        check(name, &ours(&z)?, all.iter().map(|&z| theirs(z)))?;
    }
    check("sigmoid", &z.sigmoid()?, all.iter().map(|z| (1.0 + (-z).exp()).inv()))?;
    check("pow", &z.pow(0.3)?, all.iter().map(|z| z.powf(0.3)))?;
    let w = Complex64::new(0.5, -0.25);
    check("complex pow", &z.pow(&Tensor::scalar(w)?)?, all.iter().map(|z| z.powc(w)))?;
    assert_eq!(z.abs()?.to_vec::<f64>()?.len(), 49);
    for ((abs, angle), z) in z.abs()?.to_vec::<f64>()?.iter().zip(z.angle()?.to_vec::<f64>()?).zip(&all) {
        assert!((abs - z.norm()).abs() < 1e-14 && (angle - z.arg()).abs() < 1e-14);
    }
    Ok(())
}

/// Values of NumPy 2.4 at zeros, on cuts, and where parts are infinite or NaN.
#[test]
fn functions_of_odd_numbers_are_those_of_numpy() -> Result<()> {
    let at = |re: f64, im: f64| Tensor::scalar(Complex64::new(re, im));
    let parts = |z: Tensor| z.view_as_real()?.to_vec::<f64>();
    assert_eq!(parts(at(-4.0, 0.0)?.sqrt()?)?, [0.0, 2.0]);
    assert_eq!(parts(at(-4.0, -0.0)?.sqrt()?)?, [0.0, -2.0]);
    assert_eq!(parts(at(0.0, 0.0)?.sqrt()?)?, [0.0, 0.0]);
    assert_eq!(parts(at(-1.0, 0.0)?.log()?)?, [0.0, std::f64::consts::PI]);
    assert_eq!(parts(at(-1.0, -0.0)?.log()?)?, [0.0, -std::f64::consts::PI]);
    assert_eq!(at(3.0, 4.0)?.abs()?.item::<f64>()?, 5.0);
    assert!((at(3e200, 4e200)?.abs()?.item::<f64>()? / 5e200 - 1.0).abs() < 1e-15);
    assert_eq!(at(f64::INFINITY, f64::NAN)?.abs()?.item::<f64>()?, f64::INFINITY);
    assert_eq!(parts(at(1e200, 1e200)?.reciprocal()?)?, [5e-201, -5e-201]);
    assert_eq!(parts(at(0.0, 0.0)?.pow(0)?)?, [1.0, 0.0]);
    assert_eq!(parts(at(0.0, 0.0)?.pow(2.5)?)?, [0.0, 0.0]);
    let odd = Tensor::from_slice(&[Complex64::new(f64::NAN, 1.0), Complex64::new(1.0, f64::INFINITY)], &[2])?;
    assert_eq!(odd.isnan()?.to_vec::<bool>()?, [true, false]);
    assert_eq!(odd.isinf()?.to_vec::<bool>()?, [false, true]);
    assert_eq!(odd.isfinite()?.to_vec::<bool>()?, [false, false]);
    Ok(())
}

/// What treats both parts alike does to each what it does to a real tensor.
#[test]
fn moves_and_sums_are_those_of_the_parts() -> Result<()> {
    let index = Tensor::try_from([3i64, 0, 3])?;
    let mask = Tensor::arange(0, 49, 1)?.reshape([7, 7])?.remainder(3)?.eq(0)?;
    let places = Tensor::arange(0, 49, 1)?.reshape([7, 7])?.remainder(7)?;
    let all: Vec<(&str, Boxed)> = vec![
        ("neg", Box::new(|x| x.neg())),
        ("sum", Box::new(|x| x.sum((), false))),
        ("sum of rows", Box::new(|x| x.sum(1, true))),
        ("mean", Box::new(|x| x.mean(0, false))),
        ("cumsum", Box::new(|x| x.cumsum(1))),
        ("transpose", Box::new(|x| x.transpose(0, 1))),
        ("permute", Box::new(|x| x.permute([1, 0]))),
        ("reshape", Box::new(|x| x.transpose(0, 1)?.reshape([49]))),
        ("slice", Box::new(|x| x.slice(1, 1, 6, 2))),
        ("select", Box::new(|x| x.select(-1, 2))),
        ("squeeze", Box::new(|x| x.unsqueeze(0)?.squeeze(0))),
        ("expand", Box::new(|x| x.unsqueeze(0)?.expand([3, 7, 7]))),
        ("flip", Box::new(|x| x.flip([0]))),
        ("roll", Box::new(|x| x.roll(2, 1))),
        ("repeat", Box::new(|x| x.repeat([2, 1]))),
        ("tril", Box::new(|x| x.tril(0))),
        ("diagonal", Box::new(|x| x.diagonal(1, 0, 1))),
        ("unfold", Box::new(|x| x.unfold(1, 3, 2))),
        ("cat", Box::new(|x| opfuse::cat(&[x, x], 1))),
        ("stack", Box::new(|x| opfuse::stack(&[x, x], -1))),
        ("copy", Box::new(|x| x.copy())),
        ("contiguous", Box::new(|x| x.transpose(0, 1)?.contiguous())),
        ("detach", Box::new(|x| x.detach())),
        ("index_select", Box::new(move |x| x.index_select(1, &index))),
        (
            "where",
            Box::new({
                let mask = mask.clone();
                move |x| mask.where_(x, &x.neg()?)
            }),
        ),
        (
            "gather",
            Box::new({
                let places = places.clone();
                move |x| x.gather(1, &places)
            }),
        ),
        (
            "scatter_add",
            Box::new({
                let places = places.clone();
                move |x| x.scatter_add(1, &places, x)
            }),
        ),
        ("pad", Box::new(|x| x.constant_pad_nd([1, 2], 0))),
        ("zeros_like", Box::new(|x| x.zeros_like())),
        ("split", Box::new(|x| x.split(3, 0)?.pop().expect("there are some").copy())),
    ];
    let z = matrix()?;
    for (name, function) in &all {
        let found = function(&z)?;
        assert_eq!(found.dtype(), DType::Complex128, "{name}");
        for (part, expected) in [(found.real()?, function(&z.real()?)?), (found.imag()?, function(&z.imag()?)?)] {
            assert_eq!(part.sizes(), expected.sizes(), "{name}");
            assert_eq!(part.to_vec::<f64>()?, expected.to_vec::<f64>()?, "{name}");
        }
    }
    let empty = Tensor::zeros(&[0, 3], DType::Complex64)?;
    assert_eq!(empty.sum(0, false)?.to_vec::<Complex32>()?, [Complex32::default(); 3]);
    Ok(())
}

#[test]
fn products_and_reductions() -> Result<()> {
    let z = generic()?;
    let all = z.to_vec::<Complex64>()?;
    let product = |left: &[Complex64], right: &[Complex64]| {
        let at = |row: usize, column: usize| (0..7).map(|k| left[7 * row + k] * right[7 * k + column]).sum();
        (0..49).map(|at_| at(at_ / 7, at_ % 7)).collect::<Vec<Complex64>>()
    };
    check("matmul", &z.matmul(&z)?, product(&all, &all))?;
    let real = z.real()?.contiguous()?;
    let reals: Vec<Complex64> = all.iter().map(|z| z.re.into()).collect();
    check("times real", &z.matmul(&real)?, product(&all, &reals))?;
    check("real times", &real.matmul(&z)?, product(&reals, &all))?;
    let batch = opfuse::stack(&[&z, &z.conj()?], 0)?;
    check("batches", &batch.matmul(&z)?.select(0, 0)?, product(&all, &all))?;
    {
        let _narrow = opfuse::autocast(DType::BF16)?;
        check("inside autocast", &z.matmul(&z)?, product(&all, &all))?;
    }
    let row = z.select(0, 1)?;
    check("dot", &row.dot(&row)?, [all[7..14].iter().map(|z| z * z).sum()])?;
    check("prod", &z.prod(0, false)?, (0..7).map(|at| (0..7).map(|row| all[7 * row + at]).product()))?;
    let norm = z.norm(2, (), false)?.item::<f64>()?;
    assert!((norm - all.iter().map(|z| z.norm_sqr()).sum::<f64>().sqrt()).abs() < 1e-12);
    let mean = all.iter().sum::<Complex64>() / 49.0;
    let variance = all.iter().map(|z| (z - mean).norm_sqr()).sum::<f64>() / 48.0;
    assert!((z.var((), 1, false)?.item::<f64>()? - variance).abs() < 1e-12);
    assert!(z.any((), false)?.item::<bool>()?);
    assert!(!matrix()?.all((), false)?.item::<bool>()?);
    Ok(())
}

#[test]
fn writes_reach_memory_and_views() -> Result<()> {
    let (all, z) = (numbers(), matrix()?);
    z.mul_(2)?;
    check("mul_", &z, all.iter().map(|z| z * 2.0))?;
    let row = z.select(0, 3)?;
    row.fill_(5.0)?;
    assert_eq!(z.i((3, 2))?.item::<Complex64>()?, Complex64::new(5.0, 0.0));
    z.real()?.fill_(1.0)?;
    assert_eq!(row.i(0)?.item::<Complex64>()?, Complex64::new(1.0, 0.0));
    z.set((.., 0), &Tensor::scalar(Complex64::new(0.0, 1.0))?)?;
    assert_eq!(z.i((6, 0))?.item::<Complex64>()?, Complex64::new(0.0, 1.0));
    let (before, pairs) = (z.version(), z.view_as_real()?);
    pairs.zero_()?;
    assert!(z.version() > before && z.is_alias_of(&pairs));
    check("zero", &z, [Complex64::default(); 49])?;
    let error =
        Tensor::zeros(&[2], DType::F32)?.copy_(&Tensor::zeros(&[2], DType::Complex64)?).expect_err("it is real");
    assert!(error.to_string().contains("imaginary"), "{error}");
    Ok(())
}

#[test]
fn text_is_that_of_numpy() -> Result<()> {
    let z = Tensor::from_slice(&[Complex64::new(1.0, 2.0), Complex64::new(-1.5, 0.25)], &[2])?;
    assert_eq!(z.to_string(), "[ 1. +2.j   -1.5+0.25j]");
    assert_eq!(format!("{z:.1}"), "[ 1.0+2.0j -1.5+0.2j]");
    assert_eq!(format!("{z:?}"), "complex128[2] on cpu: [1.0+2.0j, -1.5+0.25j]");
    Ok(())
}

#[test]
fn conversions_keep_what_they_can() -> Result<()> {
    let z = matrix()?;
    let narrow = z.to_dtype(DType::Complex64)?;
    assert_eq!(narrow.to_vec::<Complex32>()?[1], Complex32::new(-2.5, -1.0));
    assert_eq!(Tensor::try_from([1i64, -2])?.to_dtype(DType::Complex64)?.to_string(), "[ 1.+0.j -2.+0.j]");
    assert!(z.to_dtype(DType::F64).is_err_and(|error| error.to_string().contains("imaginary")));
    assert!(z.to_dtype(DType::Bool)?.to_vec::<bool>()?[0]);
    assert!(z.item::<Complex64>().is_err() && z.to_vec::<Complex32>().is_err());
    assert_eq!(z.i((0, 0))?.item::<Complex64>()?, Complex64::new(-2.5, -2.5));
    assert_eq!(z.as_slice::<Complex64>()?[1], Complex64::new(-2.5, -1.0));
    assert_eq!(Tensor::from_vec(numbers(), &[49])?.into_vec::<Complex64>()?, numbers());
    assert!(Tensor::zeros(&[7, 7], DType::F32)?.masked_fill(&z, 1).is_err());
    let odd = Tensor::zeros(&[3, 3], DType::F32)?;
    for error in [odd.view_as_complex(), odd.imag(), odd.view_as_real(), z.lt(&z), z.max_all(), z.sum(5, false)] {
        assert!(error.is_err());
    }
    Ok(())
}

/// Gradients of functions from pairs to pairs, against differences.
#[test]
fn gradients_are_slopes_of_both_parts() -> Result<()> {
    let pairs = generic()?.slice(0, 0, 2, 1)?.view_as_real()?.copy()?;
    for (name, function, _) in FUNCTIONS {
        let of_pairs = |x: &[Tensor]| function(&x[0].view_as_complex()?)?.view_as_real();
        gradcheck(of_pairs, &[&pairs], 1e-7, 1e-6).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let real: [(&str, Function); 4] = [
        ("abs", Tensor::abs),
        ("angle", Tensor::angle),
        ("norm", |z| z.norm(2, 1, false)),
        ("var", |z| z.var(1, 1, false)),
    ];
    for (name, function) in real {
        let of_pairs = |x: &[Tensor]| function(&x[0].view_as_complex()?);
        gradcheck(of_pairs, &[&pairs], 1e-7, 1e-6).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let product = |x: &[Tensor]| {
        let z = x[0].view_as_complex()?;
        z.matmul(&z.transpose(0, 1)?.conj()?)?.div(&z.sum((), false)?)?.view_as_real()
    };
    gradcheck(product, &[&pairs], 1e-7, 1e-6)?;
    Ok(())
}

#[test]
fn leaves_have_complex_gradients() -> Result<()> {
    let z = matrix()?;
    z.set_requires_grad(true)?;
    assert!(z.requires_grad() && z.is_leaf());
    z.abs()?.square()?.sum((), false)?.backward()?;
    let gradient = z.grad().expect("it is a leaf");
    check("2 z, and nothing at zero", &gradient, numbers().iter().map(|z| z * 2.0))?;
    let f = |z: &Tensor| z.mul(z)?.real()?.sum((), false);
    check("conj(2 z)", &grad(f).call(&z.detach()?)?, numbers().iter().map(|z| z.conj() * 2.0))?;
    assert!(z.mul(2)?.sum((), false)?.backward().is_err_and(|error| error.to_string().contains("real")));
    Ok(())
}

#[test]
fn compiled_functions_have_the_bits_of_eager_ones() -> Result<()> {
    let z = generic()?;
    for (name, function, _) in FUNCTIONS {
        let compiled = compile(function);
        for _ in 0..3 {
            let (found, expected) = (compiled.call(&z)?, function(&z)?);
            assert_eq!(found.dtype(), DType::Complex128, "{name}");
            assert_eq!(bits(&found)?, bits(&expected)?, "{name}");
        }
    }
    let step = |z: &Tensor, c: &Tensor| Ok((z.mul(z)?.add(c)?, z.abs()?));
    let compiled = compile(step);
    let c = Tensor::scalar(Complex64::new(0.25, -0.5))?;
    for _ in 0..3 {
        let ((z1, size1), (z2, size2)) = (compiled.call((&z, &c))?, step(&z, &c)?);
        assert_eq!((bits(&z1)?, bits(&size1)?), (bits(&z2)?, bits(&size2)?));
    }
    // A real tensor of pairs is another input than the complex tensor over it.
    let twice = compile(|x: &Tensor| x.mul(x));
    let pairs = z.view_as_real()?;
    assert_eq!(twice.call(&z)?.dtype(), DType::Complex128);
    assert_eq!(twice.call(&pairs)?.to_vec::<f64>()?, pairs.mul(&pairs)?.to_vec::<f64>()?);
    Ok(())
}

fn bits(x: &Tensor) -> Result<Vec<u64>> {
    let real = if x.is_complex() { x.view_as_real()? } else { x.clone() };
    Ok(real.to_vec::<f64>()?.into_iter().map(f64::to_bits).collect())
}

#[test]
fn mapped_functions_see_complex_slices() -> Result<()> {
    let z = generic()?;
    let sums = vmap(|row: &Tensor| row.mul(row)?.sum((), false)).call(&z)?;
    assert_eq!(sums.to_vec::<Complex64>()?, z.mul(&z)?.sum(1, false)?.to_vec::<Complex64>()?);
    let columns = vmap(|column: &Tensor| column.conj()?.dot(column)).in_dims(-1).call(&z)?;
    check(
        "columns",
        &columns,
        (0..7).map(|at| {
            numbers()
                .iter()
                .skip(at)
                .step_by(7)
                .map(|z| (z * 0.7 + Complex64::new(0.11, 0.07)).norm_sqr())
                .sum::<f64>()
                .into()
        }),
    )?;
    Ok(())
}
