//! Products by cublasLt with `Numerics::Fast`: how close they are, what is one call, and that nothing else calls it.
//!
//! Let u be the unit roundoff of a type. A sum of k products in that type, in any order, is off by at most k u / (1 - k
//! u) times the sum of their magnitudes. That is the bound here. Sums of 16-bit floats and of f32 are in f32, those of
//! f64 in f64, and one rounding to the dtype follows.

use crate::driver::{calls_during, cublaslt_calls};
use crate::fakes::{self, on_device, report};
use opfuse::internals::runtime::cuda::{counts, reset_counts};
use opfuse::{DType, Device, Numerics, Result, Tensor, compile, numerics};

pub(crate) const GPU: Device = Device::cuda(0);

/// Forces cublasLt for every product that it supports, whatever the model says.
pub(crate) const LIBRARY: (&str, &str) = ("OPFUSE_CUDA_PRODUCTS", "cublaslt");

pub(crate) const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// Numbers whose sums depend on their order.
pub(crate) fn table(sizes: &[usize], dtype: DType) -> Result<Tensor> {
    let n: usize = sizes.iter().product();
    let numbers: Vec<f64> = (0..n).map(|n| (n as f64 * 0.7313).sin() * [1.0, 20.0, 0.05][n % 3]).collect();
    Tensor::from_slice(&numbers, sizes)?.to_dtype(dtype)
}

pub(crate) fn there(x: &Tensor) -> Result<Tensor> {
    x.to_device(GPU)
}

pub(crate) fn values(x: &Tensor) -> Result<Vec<f64>> {
    x.to_device(Device::CPU)?.to_dtype(DType::F64)?.to_vec::<f64>()
}

/// Runs `work` on fakes or a device with these settings and fast numerics, if cublasLt is there.
pub(crate) fn fast(settings: &[(&str, &str)], work: impl FnOnce() -> Result<()>) {
    fakes::with(settings, || {
        let _fast = numerics(Numerics::Fast);
        work().expect("nothing fails");
    });
}

/// Whether cublasLt is called for a product; on a device it may not be there.
fn has_library() -> Result<bool> {
    reset_counts();
    let x = there(&table(&[4, 4], DType::F32)?)?;
    x.matmul(&x)?;
    let called = counts().cublaslt == 1;
    assert!(called || on_device(), "the fake is there");
    if !called {
        report("skipped: cublasLt is not there");
    }
    Ok(called)
}

/// What a product may be off from the exact one, and the exact one.
struct Exact {
    values: Vec<f64>,
    bounds: Vec<f64>,
}

impl Exact {
    fn new(a: &Tensor, b: &Tensor) -> Result<Exact> {
        let (dtype, depth) = (a.dtype(), *a.sizes().last().expect("a matrix has rows") as f64);
        let [wide_a, wide_b] = [a.to_dtype(DType::F64)?, b.to_dtype(DType::F64)?];
        let sizes = values(&wide_a.abs()?.matmul(&wide_b.abs()?)?)?;
        // The exact one is a sum in f64 itself.
        let (of_sum, own) = (f64::powi(2.0, if dtype == DType::F64 { -53 } else { -24 }), f64::powi(2.0, -53));
        let gamma = |unit: f64| depth * unit / (1.0 - depth * unit);
        let bounds = sizes.iter().map(|size| (gamma(of_sum) + gamma(own)) * size).collect();
        Ok(Exact { values: values(&wide_a.matmul(&wide_b)?)?, bounds })
    }

    /// The same after adding a number per column and applying a function whose slope is at most `slope`. Both round in
    /// f32.
    fn then(self, bias: &[f64], slope: f64, function: impl Fn(f64) -> f64) -> Exact {
        let columns = bias.len().max(1);
        let bias = |at: usize| bias.get(at % columns).copied().unwrap_or_default();
        let step = f64::powi(2.0, -24);
        let all = self.values.iter().zip(&self.bounds).enumerate();
        let pairs = all.map(|(at, (value, bound))| {
            let sum = value + bias(at);
            let off = bound + step * (sum.abs() + bound);
            (function(sum), slope * off + 16.0 * step * (sum.abs() + off))
        });
        let (values, bounds) = pairs.unzip();
        Exact { values, bounds }
    }

    fn check(&self, name: &str, found: &Tensor) -> Result<()> {
        // Half a step of the last place, and of the least number.
        let (place, least) = match found.dtype() {
            DType::F16 => (-11, -25),
            DType::BF16 => (-8, -134),
            DType::F32 => (-24, -150),
            _ => (-53, -1075),
        };
        let dtype = found.dtype();
        let found = values(found)?;
        assert_eq!(found.len(), self.values.len(), "{name} of {dtype}");
        for (at, ((found, exact), bound)) in found.iter().zip(&self.values).zip(&self.bounds).enumerate() {
            let bound = bound + (exact.abs() + bound) * f64::powi(2.0, place) + f64::powi(2.0, least);
            assert!((found - exact).abs() <= bound, "{name} of {dtype}, {at}: {found}, not {exact} within {bound}");
        }
        Ok(())
    }
}

/// An operand by its sizes in memory, and a view of it.
type Side = (&'static [usize], fn(&Tensor) -> Result<Tensor>);

const AS_IT_IS: fn(&Tensor) -> Result<Tensor> = |x| Ok(x.clone());

/// Operands, and whether cublasLt takes them.
const PRODUCTS: &[(&str, Side, Side, bool)] = &[
    ("one number", (&[1, 1], AS_IT_IS), (&[1, 1], AS_IT_IS), true),
    ("a dot product", (&[1, 70], AS_IT_IS), (&[70, 1], AS_IT_IS), true),
    ("an outer product", (&[30, 1], AS_IT_IS), (&[1, 20], AS_IT_IS), true),
    ("a vector on the left", (&[64], AS_IT_IS), (&[64, 5], AS_IT_IS), true),
    ("a vector on the right", (&[5, 64], AS_IT_IS), (&[64], AS_IT_IS), true),
    ("odd sizes", (&[7, 33], AS_IT_IS), (&[33, 13], AS_IT_IS), true),
    ("large", (&[70, 300], AS_IT_IS), (&[300, 40], AS_IT_IS), true),
    ("left transposed", (&[33, 7], |x| x.t()), (&[33, 13], AS_IT_IS), true),
    ("right transposed", (&[7, 33], AS_IT_IS), (&[13, 33], |x| x.t()), true),
    ("both transposed", (&[33, 7], |x| x.t()), (&[13, 33], |x| x.t()), true),
    ("parts of rows", (&[7, 40], |x| x.slice(1, 3, 36, 1)), (&[33, 20], |x| x.slice(1, 1, 14, 1)), true),
    ("parts of columns", (&[40, 7], |x| x.slice(0, 3, 36, 1)?.t()), (&[20, 33], |x| x.slice(0, 1, 14, 1)?.t()), true),
    ("every second row", (&[14, 33], |x| x.slice(0, 0, 14, 2)), (&[66, 13], |x| x.slice(0, 1, 66, 2)), true),
    ("every second column", (&[7, 66], |x| x.slice(1, 0, 66, 2)), (&[33, 13], AS_IT_IS), false),
    ("one row again and again", (&[1, 33], |x| x.expand([7, 33])), (&[33, 13], AS_IT_IS), false),
    ("batches", (&[3, 7, 33], AS_IT_IS), (&[3, 33, 13], AS_IT_IS), true),
    ("batches, transposed", (&[3, 33, 7], |x| x.transpose(1, 2)), (&[3, 13, 33], |x| x.transpose(1, 2)), true),
    ("parts of batches", (&[5, 7, 33], |x| x.slice(0, 1, 5, 2)), (&[2, 40, 13], |x| x.slice(1, 2, 35, 1)), true),
    ("one matrix for all batches", (&[3, 7, 33], AS_IT_IS), (&[33, 13], AS_IT_IS), true),
    ("one matrix for all batches, left", (&[7, 33], AS_IT_IS), (&[3, 33, 13], AS_IT_IS), true),
    ("batches of batches", (&[2, 1, 7, 33], AS_IT_IS), (&[3, 33, 13], AS_IT_IS), true),
];

/// Products with a size of 0, which do not call the library.
const EMPTY: &[(&[usize], &[usize])] =
    &[(&[0, 4], &[4, 3]), (&[3, 4], &[4, 0]), (&[3, 0], &[0, 2]), (&[0, 0], &[0, 0]), (&[0, 3, 4], &[0, 4, 2])];

#[test]
fn products_are_close() {
    fast(&[LIBRARY], || {
        if !has_library()? {
            return Ok(());
        }
        for dtype in FLOATS {
            for &(name, left, right, is_taken) in PRODUCTS {
                let run = || -> Result<()> {
                    let (a, b) = (table(left.0, dtype)?, table(right.0, dtype)?);
                    let product = |a: &Tensor, b: &Tensor| left.1(a)?.matmul(&right.1(b)?);
                    let exact = Exact::new(&left.1(&a)?, &right.1(&b)?)?;
                    let (a, b) = (there(&a)?, there(&b)?);
                    reset_counts();
                    exact.check(name, &product(&a, &b)?)?;
                    assert_eq!(counts().cublaslt, u64::from(is_taken), "{name} of {dtype}");
                    let compiled = compile(product);
                    for _ in 0..3 {
                        exact.check(name, &compiled.call((&a, &b))?)?;
                    }
                    assert_eq!(counts().cublaslt, 4 * u64::from(is_taken), "{name} of {dtype}, compiled");
                    Ok(())
                };
                run().unwrap_or_else(|error| panic!("{name} of {dtype}: {error}"));
            }
        }
        assert_eq!(counts().fallbacks, []);
        Ok(())
    });
}

#[test]
fn empty_products_do_not_call_it() {
    fast(&[LIBRARY], || {
        if !has_library()? {
            return Ok(());
        }
        reset_counts();
        for dtype in FLOATS {
            for (left, right) in EMPTY {
                let (a, b) = (table(left, dtype)?, table(right, dtype)?);
                let expected = a.matmul(&b)?;
                let found = there(&a)?.matmul(&there(&b)?)?;
                assert_eq!(
                    (found.sizes(), values(&found)?),
                    (expected.sizes(), values(&expected)?),
                    "{left:?} @ {right:?}"
                );
            }
        }
        assert_eq!((counts().cublaslt, counts().fallbacks), (0, vec![]));
        Ok(())
    });
}

/// Sums of small whole numbers are exact in any order, so there is one right product.
#[test]
fn whole_numbers_are_exact() {
    fast(&[LIBRARY], || {
        let whole = |sizes: &[usize], seed: usize| {
            let n: usize = sizes.iter().product();
            Tensor::from_slice(&(0..n).map(|n| ((n * 7 + seed) % 5) as f32 - 2.0).collect::<Vec<f32>>(), sizes)
        };
        for dtype in FLOATS {
            // 4 * 60 is below 2^8.
            let (a, b) = (whole(&[2, 9, 60], 1)?.to_dtype(dtype)?, whole(&[2, 60, 11], 3)?.to_dtype(dtype)?);
            let found = there(&a)?.matmul(&there(&b)?)?;
            assert_eq!(values(&found)?, values(&a.matmul(&b)?)?, "{dtype}");
        }
        Ok(())
    });
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

type Layer = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;
/// Whether there is a number per column, the steepest slope, and the function.
type Meaning = (bool, f64, fn(f64) -> f64);

/// Layers of `[40, 50]`, `[50, 32]` and `[32]`, what they are, and whether they are one call.
const LAYERS: &[(&str, Layer, Meaning, bool)] = &[
    ("bias", |x, w, b| x.matmul(w)?.add(b), (true, 1.0, |x| x), true),
    ("bias first", |x, w, b| b.add(&x.matmul(w)?), (true, 1.0, |x| x), true),
    ("relu", |x, w, _| x.matmul(w)?.relu(), (false, 1.0, |x| x.max(0.0)), true),
    ("bias, relu", |x, w, b| x.matmul(w)?.add(b)?.relu(), (true, 1.0, |x| x.max(0.0)), true),
    ("gelu", |x, w, _| x.matmul(w)?.gelu_tanh(), (false, 1.13, gelu), true),
    ("bias, gelu", |x, w, b| x.matmul(w)?.add(b)?.gelu_tanh(), (true, 1.13, gelu), true),
    (
        "batches",
        |x, w, b| x.view([5, 8, 50])?.matmul(w)?.add(b)?.relu()?.view([40, 32]),
        (true, 1.0, |x| x.max(0.0)),
        true,
    ),
    ("a view in between", |x, w, b| x.matmul(w)?.view([5, 8, 32])?.add(b)?.view([40, 32]), (true, 1.0, |x| x), true),
    // What it has no epilogue for.
    ("tanh", |x, w, b| x.matmul(w)?.add(b)?.tanh(), (true, 1.0, f64::tanh), false),
    ("a number", |x, w, _| x.matmul(w)?.add(1.0), (false, 1.0, |x| x + 1.0), false),
    ("relu twice scaled", |x, w, b| x.matmul(w)?.add(b)?.relu()?.mul(2.0), (true, 2.0, |x| 2.0 * x.max(0.0)), false),
    ("bias halved", |x, w, b| x.matmul(w)?.add(b)?.mul(0.5), (true, 0.5, |x| 0.5 * x), false),
];

#[test]
fn layers_are_one_call_where_it_has_them() {
    fast(&[LIBRARY], || {
        if !has_library()? {
            return Ok(());
        }
        for &(name, layer, (has_bias, slope, function), is_one) in LAYERS {
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                let (x, w, b) = (table(&[40, 50], dtype)?, table(&[50, 32], dtype)?, table(&[32], dtype)?);
                let bias = if has_bias { values(&b)? } else { Vec::new() };
                let exact = Exact::new(&x, &w)?.then(&bias, slope, function);
                let (x, w, b) = (there(&x)?, there(&w)?, there(&b)?);
                let compiled = compile(layer);
                for call in 0..3 {
                    reset_counts();
                    let found = compiled.call((&x, &w, &b))?;
                    let (calls, launches) = (counts().cublaslt, counts().launches);
                    // A separate pass reads a rounded product. So does an eager call, which the first call may be.
                    if (is_one && call > 0) || dtype == DType::F32 {
                        exact.check(name, &found)?;
                    }
                    if call > 0 {
                        assert_eq!((calls, launches), (1, u64::from(!is_one)), "{name} of {dtype}, call {call}");
                    }
                }
                let explain = compiled.explain().to_string();
                assert_eq!(explain.contains("and rounds once, at the end"), is_one, "{name} of {dtype}: {explain}");
                assert_eq!(
                    explain.contains("cublasLt does not compute it: its epilogues"),
                    !is_one,
                    "{name}: {explain}"
                );
            }
        }
        Ok(())
    });
}

/// What only looks like an epilogue: numbers that are not per column, results of another dtype, products that are
/// outputs.
#[test]
fn what_is_no_epilogue_is_a_separate_pass() {
    type Function = fn(&Tensor, &Tensor, &Tensor) -> Result<Vec<Tensor>>;
    const FUNCTIONS: &[(&str, Function)] = &[
        ("a number per row", |x, w, b| Ok(vec![x.matmul(w)?.add(&b.unsqueeze(1)?)?])),
        ("a matrix", |x, w, _| Ok(vec![x.matmul(w)?.add(x)?])),
        ("numbers apart", |x, w, _| Ok(vec![x.matmul(w)?.add(&w.select(1, 0)?)?])),
        ("kept", |x, w, b| {
            let product = x.matmul(w)?;
            Ok(vec![product.add(b)?, product])
        }),
        ("widened", |x, w, b| Ok(vec![x.matmul(w)?.add(b)?.to_dtype(DType::F64)?])),
        ("two results", |x, w, b| {
            let sum = x.matmul(w)?.add(b)?;
            Ok(vec![sum.relu()?, sum])
        }),
        ("gelu by erf", |x, w, b| Ok(vec![x.matmul(w)?.add(b)?.gelu()?])),
        ("a sum", |x, w, b| Ok(vec![x.matmul(w)?.add(b)?.sum([1], false)?])),
    ];
    fast(&[LIBRARY], || {
        if !has_library()? {
            return Ok(());
        }
        for (name, function) in FUNCTIONS {
            let [x, w, b] = [table(&[32, 32], DType::F32)?, table(&[32, 32], DType::F32)?, table(&[32], DType::F32)?];
            let expected = function(&x, &w, &b)?;
            let (x, w, b) = (there(&x)?, there(&w)?, there(&b)?);
            let compiled = compile(*function);
            for _ in 0..3 {
                reset_counts();
                let found = compiled.call((&x, &w, &b))?;
                assert!(counts().cublaslt == 1 && counts().launches >= 1, "{name}: {:?}", counts());
                for (found, expected) in found.iter().zip(&expected) {
                    close(name, found, expected)?;
                }
            }
            let explain = compiled.explain().to_string();
            assert!(!explain.contains("and rounds once"), "{name}: {explain}");
        }
        Ok(())
    });
}

/// Numbers of [`table`] in f32 whose sums of some ten products were computed in two orders.
pub(crate) fn close(name: &str, found: &Tensor, expected: &Tensor) -> Result<()> {
    let (found, expected) = (values(found)?, values(expected)?);
    let largest = expected.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    for (found, expected) in found.iter().zip(&expected) {
        // 2^-24 for each of some hundred roundings of numbers as large as the sums of magnitudes, which are not larger
        // than a few times the largest sum.
        assert!((found - expected).abs() <= largest * 2e-5, "{name}: {found}, not {expected}");
    }
    Ok(())
}

/// A repeated call is one call of cublasLt, and searches for no algorithm.
#[test]
fn a_repeated_call_is_one_call_of_the_library() {
    fakes::only(&[LIBRARY], || {
        let run = || -> Result<()> {
            let _fast = numerics(Numerics::Fast);
            let (x, w, b) = (
                there(&table(&[40, 50], DType::F32)?)?,
                there(&table(&[50, 32], DType::F32)?)?,
                there(&table(&[32], DType::F32)?)?,
            );
            let layer = compile(|x: &Tensor, w: &Tensor, b: &Tensor| x.matmul(w)?.add(b)?.relu());
            let call = |n: usize| -> Result<()> {
                for _ in 0..n {
                    x.matmul(&w)?;
                    layer.call((&x, &w, &b))?;
                }
                Ok(())
            };
            call(20)?;
            const FUNCTIONS: [&str; 4] =
                ["cublasLtMatmul", "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmulDescCreate", "cublasLtCreate"];
            let before = cublaslt_calls(FUNCTIONS);
            let driver = calls_during(|| call(1).expect("nothing fails"));
            let after = cublaslt_calls(FUNCTIONS);
            assert_eq!([0, 1, 2, 3].map(|at| after[at] - before[at]), [2, 0, 0, 0]);
            assert_eq!(driver, [("cuCtxSetCurrent", 2)]);
            Ok(())
        };
        run().expect("nothing fails");
    });
}
