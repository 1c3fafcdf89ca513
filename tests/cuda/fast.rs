//! `Numerics::Fast` on a device: what changes and by how much, what keeps its bits, and what is reported. Neither mode
//! leaks into calls of the other.

use crate::fakes;
use opfuse::internals::runtime::cuda::{counts, reset_counts};
use opfuse::{CompileOptions, DType, Device, Numerics, Result, Tensor, cat, compile, compile_with, numerics};

const GPU: Device = Device::cuda(0);

/// Products by kernels of opfuse; those of cublasLt have tests of their own.
const OWN: (&str, &str) = ("OPFUSE_CUDA_PRODUCTS", "own");

/// Numbers whose sums depend on their order.
pub(crate) fn table(rows: usize, columns: usize, dtype: DType) -> Result<Tensor> {
    let numbers: Vec<f32> =
        (0..rows * columns).map(|n| (n as f32 * 0.7313).sin() * [1.0, 100.0, 0.01][n % 3]).collect();
    Tensor::from_slice(&numbers, &[rows, columns])?.to_dtype(dtype)
}

pub(crate) fn there(x: &Tensor) -> Result<Tensor> {
    x.to_device(GPU)
}

pub(crate) fn bits(x: &Tensor) -> Vec<u64> {
    let values = x.to_dtype(DType::F64).and_then(|x| x.to_vec::<f64>()).expect("it can be read");
    values.into_iter().map(f64::to_bits).collect()
}

/// The product in f64, and the product of the magnitudes.
fn exact(a: &Tensor, b: &Tensor) -> Result<[Vec<f64>; 2]> {
    let [a, b] = [a.to_dtype(DType::F64)?, b.to_dtype(DType::F64)?];
    Ok([a.matmul(&b)?.to_vec()?, a.abs()?.matmul(&b.abs()?)?.to_vec()?])
}

/// Checks that every element is within the bound of sums in f32 and one rounding.
pub(crate) fn check_close(found: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    let depth = a.sizes()[1] as f64;
    let digits = if found.dtype() == DType::F16 { 11 } else { 8 };
    let [sums, sizes] = exact(a, b)?;
    for (at, ((found, sum), size)) in
        found.to_dtype(DType::F64)?.to_vec::<f64>()?.iter().zip(&sums).zip(&sizes).enumerate()
    {
        let bound = size * (depth + 1.0) * f64::powi(2.0, -23) + sum.abs() * f64::powi(2.0, -digits) * 1.001;
        assert!((found - sum).abs() <= bound, "element {at}: {found}, not {sum} within {bound}");
    }
    Ok(())
}

#[test]
fn products_of_halves_are_close() {
    fakes::with(&[OWN], || {
        for dtype in [DType::F16, DType::BF16] {
            for [m, k, n] in [[70, 300, 40], [5, 64, 129], [1, 7, 1], [3, 0, 2], [0, 4, 4]] {
                let run = || -> Result<()> {
                    let (a, b) = (table(m, k, dtype)?, table(k, n, dtype)?);
                    let _fast = numerics(Numerics::Fast);
                    check_close(&there(&a)?.matmul(&there(&b)?)?.to_device(Device::CPU)?, &a, &b)?;
                    // Views of other strides and addresses.
                    let found = there(&b)?.t()?.matmul(&there(&a)?.t()?)?.t()?.to_device(Device::CPU)?;
                    check_close(&found, &a, &b)?;
                    if k > 1 {
                        let (a, b) = (a.slice(1, 1, k as i64, 1)?, b.slice(0, 1, k as i64, 1)?);
                        check_close(&there(&a)?.matmul(&there(&b)?)?.to_device(Device::CPU)?, &a, &b)?;
                        let part = there(&table(m, k, dtype)?)?.slice(1, 1, k as i64, 1)?;
                        check_close(&part.matmul(&there(&b)?)?.to_device(Device::CPU)?, &a, &b)?;
                    }
                    Ok(())
                };
                run().unwrap_or_else(|error| panic!("{m} by {k} by {n} of {dtype}: {error}"));
            }
        }
    });
}

/// A bias is added to sums that are not rounded, so a linear layer differs from the CPU's in the order of sums alone.
#[test]
fn linear_layers_do_not_widen_halves() {
    fakes::with(&[OWN], || {
        for dtype in [DType::F16, DType::BF16] {
            let run = || -> Result<()> {
                // No sum overflows f16.
                let (x, w) = (table(40, 300, dtype)?.mul(0.125)?, table(24, 300, dtype)?.mul(0.125)?);
                let bias = table(1, 24, dtype)?.squeeze(0)?;
                let layer = |x: &Tensor, w: &Tensor, bias: &Tensor| x.linear(w, Some(bias));
                let expected = bits(&layer(&x, &w, &bias)?);
                let sums = |x: &Tensor, w: &Tensor| x.mm_dtype(&w.t()?, DType::F32);
                let unrounded = bits(&sums(&x, &w)?);
                let [x, w, bias] = [there(&x)?, there(&w)?, there(&bias)?];
                let compiled = compile(layer);
                assert!(bits(&layer(&x, &w, &bias)?) == expected, "strict");
                assert!(bits(&sums(&x, &w)?) == unrounded, "strict");
                assert!(bits(&compiled.call((&x, &w, &bias))?) == expected, "strict, compiled");
                let _fast = numerics(Numerics::Fast);
                reset_counts();
                let found = layer(&x, &w, &bias)?;
                assert_eq!((counts().launches, counts().fallbacks), (1, vec![]));
                assert!(bits(&sums(&x, &w)?) != unrounded, "the order of sums is another one");
                check_close(&found.to_device(Device::CPU)?, &with_ones(&x)?, &with_row(&w.t()?, &bias)?)?;
                for _ in 0..3 {
                    assert!(bits(&compiled.call((&x, &w, &bias))?) == bits(&found), "compiled");
                }
                let explain = compiled.explain().to_string();
                assert!(explain.contains(&format!("tensor cores sum products of {dtype} in f32")), "{explain}");
                Ok(())
            };
            run().unwrap_or_else(|error| panic!("{dtype}: {error}"));
        }
    });
}

/// A matrix with a column of ones appended, on the CPU.
fn with_ones(x: &Tensor) -> Result<Tensor> {
    let x = x.to_device(Device::CPU)?;
    cat(&[&x, &Tensor::ones(&[x.sizes()[0], 1], x.dtype())?], 1)
}

/// A matrix with a row appended, on the CPU.
fn with_row(x: &Tensor, row: &Tensor) -> Result<Tensor> {
    cat(&[&x.to_device(Device::CPU)?, &row.to_device(Device::CPU)?.unsqueeze(0)?], 0)
}

/// The bits show the order of sums, and so the mode of a call. The mode does not depend on earlier calls.
#[test]
fn modes_do_not_leak_into_later_calls() {
    fakes::with(&[OWN], || {
        let run = || -> Result<()> {
            let [a, b] = [table(40, 300, DType::BF16)?, table(300, 24, DType::BF16)?];
            let (strict, c, d) = (bits(&a.matmul(&b)?), there(&a)?, there(&b)?);
            let free = compile(|a: &Tensor, b: &Tensor| a.matmul(b));
            let options = |choice| CompileOptions { numerics: Some(choice), ..CompileOptions::default() };
            let product = |a: &Tensor, b: &Tensor| a.matmul(b);
            let bound = [Numerics::Strict, Numerics::Fast].map(|choice| compile_with(product, options(choice)));
            let mut fast = None;
            for choice in [Numerics::Strict, Numerics::Fast, Numerics::Fast, Numerics::Strict] {
                let _guard = numerics(choice);
                let found = bits(&c.matmul(&d)?);
                match choice {
                    Numerics::Strict => assert!(found == strict),
                    Numerics::Fast => assert!(found != strict),
                }
                if choice == Numerics::Fast {
                    assert!(*fast.get_or_insert_with(|| found.clone()) == found, "each time the same");
                }
                for _ in 0..3 {
                    assert!(bits(&free.call((&c, &d))?) == found, "{choice}");
                    assert!(bits(&bound[0].call((&c, &d))?) == strict, "{choice}");
                    let found = bits(&bound[1].call((&c, &d))?);
                    assert!(*fast.get_or_insert_with(|| found.clone()) == found, "{choice}");
                }
                assert!(bits(&a.matmul(&b)?) == strict, "on the CPU nothing changes");
            }
            assert_eq!(free.counts().entries, 2, "one for each choice");
            Ok(())
        };
        run().expect("nothing fails");
    });
}

#[test]
fn gradients_are_fast_too() {
    fakes::with(&[OWN], || {
        let gradient = |choice: Numerics, compiled: bool| -> Result<Vec<u64>> {
            let _guard = numerics(choice);
            let (x, w) = (there(&table(300, 200, DType::BF16)?)?, there(&table(200, 16, DType::BF16)?)?);
            w.set_requires_grad(true)?;
            let function = |x: &Tensor, w: &Tensor| x.matmul(w)?.square()?.sum_all();
            let loss = if compiled { compile(function).call((&x, &w))? } else { function(&x, &w)? };
            loss.backward()?;
            Ok(bits(&w.grad().expect("it got one")))
        };
        let [strict, fast] = [Numerics::Strict, Numerics::Fast].map(|choice| gradient(choice, false));
        let [strict, fast] = [strict.expect("nothing fails"), fast.expect("nothing fails")];
        assert!(strict != fast);
        assert!(gradient(Numerics::Strict, true) == Ok(strict));
        assert!(gradient(Numerics::Fast, true) == Ok(fast));
    });
}

/// Everything but products of 16-bit floats has the same bits.
#[test]
fn the_rest_keeps_its_bits() {
    fakes::with(&[OWN], || {
        let run = || -> Result<()> {
            let _fast = numerics(Numerics::Fast);
            for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool) {
                let (a, b) = (table(20, 70, dtype)?, table(70, 9, dtype)?);
                if !matches!(dtype, DType::F16 | DType::BF16) {
                    assert_eq!(bits(&there(&a)?.matmul(&there(&b)?)?), bits(&a.matmul(&b)?), "{dtype}");
                }
                if dtype.is_float() {
                    let f = |x: &Tensor| x.tanh()?.mul(x)?.softmax(-1)?.sum([0], false);
                    assert_eq!(bits(&f(&there(&a)?)?), bits(&f(&a)?), "{dtype}");
                }
            }
            Ok(())
        };
        run().expect("nothing fails");
    });
}

#[test]
fn reports_say_what_changed() {
    fakes::with(&[OWN], || {
        let run = || -> Result<()> {
            reset_counts();
            let (a, b) = (there(&table(40, 30, DType::F16)?)?, there(&table(30, 24, DType::F16)?)?);
            let function = compile(|a: &Tensor, b: &Tensor| a.matmul(b)?.relu());
            function.call((&a, &b))?;
            let strict = function.explain();
            assert!(strict.to_string().contains("would change bits: tensor cores sum products of f16"), "{strict}");
            assert!(strict.to_json().contains("\"would_change_bits\""), "{strict}");
            assert!(
                strict.groups.iter().all(|group| group.remarks.is_empty() && group.device == Some(GPU)),
                "{strict}"
            );
            let _fast = numerics(Numerics::Fast);
            function.call((&a, &b))?;
            let fast = function.explain();
            assert!(fast.to_string().contains("fast: tensor cores sum products of f16 in f32"), "{fast}");
            assert!(fast.to_string().contains("OPFUSE_CUDA_PRODUCTS is own"), "{fast}");
            // A report has no remark where nothing changed.
            let [a, b] = [a.to_dtype(DType::I32)?, b.to_dtype(DType::I32)?];
            function.call((&a, &b))?;
            assert!(function.explain().groups.iter().all(|group| group.remarks.is_empty() && group.declined.is_none()));
            assert_eq!(counts().fallbacks, []);
            Ok(())
        };
        run().expect("nothing fails");
    });
}
