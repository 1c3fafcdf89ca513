//! Products by groups of four warps, through the runtime: results, reports, what they decline, and CUDA graphs whose
//! tensor maps are made anew.

use crate::driver;
use crate::fakes::{self, on_device};
use crate::fast::{bits, check_close, table, there};
use opfuse::internals::runtime::cuda::{counts, reset_counts};
use opfuse::{DType, Device, Explain, Numerics, Result, Tensor, compile, numerics};

/// Forces groups of four warps for every product that they support.
const GROUPS: (&str, &str) = ("OPFUSE_CUDA_PRODUCTS", "wgmma");

/// The remark on a product that they compute.
const TAKEN: &str = "groups of four warps (wgmma) sum products";

/// How many maps the driver has made; a device does not count them.
fn maps() -> Option<i64> {
    (!on_device()).then(|| driver::calls(["cuTensorMapEncodeTiled"])[0])
}

/// Runs `work`, which makes so many maps.
fn with_maps<T>(expected: i64, work: impl FnOnce() -> T) -> T {
    let before = maps();
    let done = work();
    assert_eq!(maps().map(|after| after - before.unwrap_or(0)), before.map(|_| expected), "maps that were made");
    done
}

/// Runs `work` where groups of four warps multiply: on fakes, or a device of compute capability 9.0.
fn with_groups(work: impl FnOnce()) {
    fakes::with(&[GROUPS], || {
        if on_device() && !is_taken().expect("a product runs") {
            return fakes::skip("the device is not of compute capability 9.0");
        }
        work();
    });
}

fn is_taken() -> Result<bool> {
    let _fast = numerics(Numerics::Fast);
    let (x, function) = (there(&table(8, 8, DType::F16)?)?, compile(|x: &Tensor| x.matmul(x)));
    function.call(&x)?;
    Ok(function.explain().to_string().contains(TAKEN))
}

fn host(x: &Tensor) -> Result<Tensor> {
    x.to_device(Device::CPU)
}

#[test]
fn products_are_close() {
    with_groups(|| {
        for dtype in [DType::F16, DType::BF16] {
            let large: &[[usize; 3]] = if on_device() { &[[520, 1032, 776], [264, 4096, 520]] } else { &[] };
            let small = [[70, 304, 40], [5, 64, 136], [1, 8, 8], [3, 0, 8], [0, 8, 8]];
            for &[m, k, n] in small.iter().chain(large) {
                let run = || -> Result<()> {
                    let (a, b) = (table(m, k, dtype)?, table(k, n, dtype)?);
                    let (there_a, there_b) = (there(&a)?, there(&b)?);
                    let _fast = numerics(Numerics::Fast);
                    let is_read = i64::from(m * k > 0);
                    let found = with_maps(2 * is_read, || there_a.matmul(&there_b))?;
                    check_close(&host(&found)?, &a, &b)?;
                    // Both operands the other way round, and each of them.
                    let turned = there(&b.t()?.contiguous()?)?;
                    check_close(&host(&with_maps(2 * is_read, || there_a.matmul(&turned.t()?))?)?, &a, &b)?;
                    let across = there(&a.t()?.contiguous()?)?;
                    check_close(&host(&across.t()?.matmul(&turned.t()?)?)?, &a, &b)?;
                    check_close(&host(&across.t()?.matmul(&there_b)?)?, &a, &b)
                };
                run().unwrap_or_else(|error| panic!("{m} by {k} by {n} of {dtype}: {error}"));
            }
        }
        assert_eq!(counts().fallbacks, []);
    });
}

type Layer = fn(&Tensor, &Tensor, &Tensor, &Tensor) -> Result<Vec<Tensor>>;

/// Functions of `[3, 40, 48]`, `[32, 48]`, `[32]` and `[3, 40, 32]`, and how many kernels a call starts.
const LAYERS: &[(&str, u64, Layer)] = &[
    ("product", 1, |x, w, _, _| Ok(vec![x.select(0, 1)?.matmul(&w.t()?)?])),
    ("layer", 1, |x, w, bias, _| Ok(vec![x.select(0, 1)?.matmul(&w.t()?)?.add(bias)?.gelu_tanh()?])),
    ("batches", 1, |x, w, bias, r| Ok(vec![x.matmul(&w.t()?)?.add(bias)?.gelu()?.add(r)?])),
    ("other dtype", 1, |x, w, _, r| Ok(vec![x.matmul(&w.t()?)?.to_dtype(DType::F32)?.mul(r)?])),
    ("chained", 2, |x, w, bias, _| {
        let first = x.select(0, 0)?.matmul(&w.t()?)?.add(bias)?.relu()?;
        Ok(vec![first.matmul(w)?.sigmoid()?])
    }),
    ("softmax", 2, |x, w, _, _| Ok(vec![x.matmul(&w.t()?)?.softmax(-1)?])),
];

fn numbers(sizes: &[usize], dtype: DType) -> Result<Tensor> {
    let n = sizes.iter().product();
    there(&table(1, n, dtype)?.reshape(sizes.iter().map(|&size| size as i64).collect::<Vec<_>>())?)
}

fn all_bits(tensors: &[Tensor]) -> Vec<Vec<u64>> {
    tensors.iter().map(bits).collect()
}

#[test]
fn layers_have_the_bits_of_their_calls() {
    with_groups(|| {
        let _fast = numerics(Numerics::Fast);
        for dtype in [DType::F16, DType::BF16] {
            for (name, launches, layer) in LAYERS {
                let run = || -> Result<()> {
                    let (x, w) = (numbers(&[3, 40, 48], dtype)?, numbers(&[32, 48], dtype)?);
                    let (bias, r) = (numbers(&[32], dtype)?, numbers(&[3, 40, 32], dtype)?);
                    let expected = all_bits(&layer(&x, &w, &bias, &r)?);
                    let compiled = compile(*layer);
                    for call in 0..3 {
                        reset_counts();
                        let found = compiled.call((&x, &w, &bias, &r))?;
                        let started = counts().launches;
                        assert!(all_bits(&found) == expected, "{name} of {dtype}, call {call}");
                        // The first call may run op by op.
                        assert!(call == 0 || started == *launches, "{name} of {dtype}: {started} launches");
                    }
                    let explain = compiled.explain().to_string();
                    assert!(explain.contains(TAKEN), "{name} of {dtype}: {explain}");
                    assert!(!explain.contains("wgmma does not"), "{name} of {dtype}: {explain}");
                    assert_eq!(counts().fallbacks, []);
                    Ok(())
                };
                run().unwrap_or_else(|error| panic!("{name} of {dtype}: {error}"));
            }
        }
    });
}

fn perceptron(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let first = x.matmul(&w.t()?)?.relu()?.softmax(-1)?;
    first.matmul(w)?.softmax(-1)?.matmul(w)?.add(1.0)
}

/// A CUDA graph's launches hold maps, which are made anew when addresses change.
#[test]
fn graphs_make_maps_anew_for_other_addresses() {
    with_groups(|| {
        let run = || -> Result<()> {
            let _fast = numerics(Numerics::Fast);
            let inputs: Vec<[Tensor; 2]> = (0..4)
                .map(|seed| {
                    let x = table(24, 40, DType::BF16)?.mul(1.0 / (seed + 1) as f64)?.to_dtype(DType::BF16)?;
                    Ok([x, table(40, 40, DType::BF16)?.add(seed as f64)?.to_dtype(DType::BF16)?])
                })
                .collect::<Result<_>>()?;
            let expected: Vec<Vec<u64>> = inputs
                .iter()
                .map(|[x, w]| perceptron(&there(x)?, &there(w)?).map(|found| bits(&found)))
                .collect::<Result<_>>()?;
            let function = compile(perceptron);
            reset_counts();
            let mut kept = Vec::new();
            for call in 0..40 {
                let number = call * 7 % 4;
                // New memory for inputs each time, and sometimes what stays, so that addresses change.
                let (x, w) = (there(&inputs[number][0])?, there(&inputs[number][1])?);
                let found = function.call((&x, &w))?;
                if call % 3 == 0 {
                    kept.push((number, x, found));
                } else {
                    assert!(bits(&found) == expected[number], "call {call}");
                }
            }
            for (number, _, found) in &kept {
                assert!(bits(found) == expected[*number]);
            }
            let counts = counts();
            assert_eq!((counts.graphs, counts.replays, counts.fallbacks.len()), (1, 31, 0));
            let explain = function.explain().to_string();
            assert!(explain.contains(TAKEN) && explain.contains("started as one CUDA graph"), "{explain}");
            driver::check_graphs(1);
            // Unchanged addresses need no new maps.
            let (x, w) = (there(&inputs[0][0])?, there(&inputs[0][1])?);
            let results: Vec<Tensor> = (0..2).map(|_| function.call((&x, &w))).collect::<Result<_>>()?;
            drop(results);
            function.call((&x, &w))?;
            with_maps(0, || function.call((&x, &w)))?;
            Ok(())
        };
        run().expect("nothing fails");
    });
}

/// The report of a compiled layer that has run on these operands; checks the product, too.
fn report(a: &Tensor, b: &Tensor, there_a: &Tensor, there_b: &Tensor) -> Result<Explain> {
    let layer = compile(|a: &Tensor, b: &Tensor| a.matmul(b));
    for _ in 0..2 {
        check_close(&host(&layer.call((there_a, there_b))?)?, a, b)?;
    }
    Ok(layer.explain())
}

#[test]
fn what_is_declined_says_why() {
    with_groups(|| {
        let run = || -> Result<()> {
            let _fast = numerics(Numerics::Fast);
            let (a, b) = (table(20, 37, DType::BF16)?, table(37, 24, DType::BF16)?);
            let explain = with_maps(0, || report(&a, &b, &there(&a)?, &there(&b)?))?.to_string();
            assert!(explain.contains("wgmma does not compute it: neither rows nor columns of an operand"), "{explain}");
            assert!(explain.contains("fast: tensor cores sum products of bf16"), "{explain}");
            // A misaligned operand is declined with a reason, and an aligned one is taken.
            let (a, b) = (table(20, 48, DType::F16)?, table(48, 24, DType::F16)?);
            let (wide, there_b) = (there(&table(20, 56, DType::F16)?)?, there(&b)?);
            let part = wide.slice(1, 1, 49, 1)?;
            let explain = with_maps(0, || report(&host(&part)?, &b, &part, &there_b))?;
            assert!(explain.to_string().contains("does not begin at a multiple of 16 bytes"), "{explain}");
            assert!(explain.to_json().contains("\"wgmma_cannot\""), "{explain}");
            let explain = report(&a, &b, &there(&a)?, &there_b)?.to_string();
            assert!(explain.contains(TAKEN) && !explain.contains("wgmma does not"), "{explain}");
            // The same for a product with an epilogue.
            let layer = compile(|a: &Tensor, b: &Tensor| a.matmul(b)?.relu());
            let expected = bits(&part.matmul(&there_b)?.relu()?);
            for _ in 0..2 {
                assert!(bits(&layer.call((&part, &there_b))?) == expected);
            }
            let explain = layer.explain().to_string();
            assert!(explain.contains("does not begin at a multiple of 16 bytes"), "{explain}");
            // Other dtypes never use it.
            let [a, b] = [a.to_dtype(DType::F32)?, b.to_dtype(DType::F32)?];
            assert!(bits(&there(&a)?.matmul(&there(&b)?)?) == bits(&a.matmul(&b)?));
            Ok(())
        };
        run().expect("nothing fails");
    });
}

/// Each warp runs as long as it can, the last one first.
#[test]
fn products_are_close_under_another_schedule() {
    fakes::with(&[GROUPS, ("OPFUSE_FAKE_SCHEDULE", "3")], || {
        let run = || -> Result<()> {
            let _fast = numerics(Numerics::Fast);
            let (a, b) = (table(136, 520, DType::BF16)?, table(520, 40, DType::BF16)?);
            check_close(&host(&there(&a)?.matmul(&there(&b)?)?)?, &a, &b)
        };
        run().expect("nothing fails");
    });
}

/// `Numerics::Strict` is the default, and keeps the CPU's bits whatever the switch says.
#[test]
fn strict_products_are_canonical() {
    with_groups(|| {
        let run = || -> Result<()> {
            let (a, b) = (table(40, 304, DType::BF16)?, table(304, 24, DType::BF16)?);
            let found = with_maps(0, || there(&a)?.matmul(&there(&b)?))?;
            assert!(bits(&found) == bits(&a.matmul(&b)?));
            Ok(())
        };
        run().expect("nothing fails");
    });
}

#[test]
fn devices_of_other_capabilities_decline() {
    fakes::with(&[GROUPS, ("OPFUSE_FAKE_CAPABILITY", "80")], || {
        let run = || -> Result<()> {
            let _fast = numerics(Numerics::Fast);
            let (a, b) = (table(40, 48, DType::BF16)?, table(48, 24, DType::BF16)?);
            let explain = with_maps(0, || report(&a, &b, &there(&a)?, &there(&b)?))?.to_string();
            assert!(explain.contains("cuda:0 is not of compute capability 9.0"), "{explain}");
            assert!(explain.contains("fast: tensor cores sum products of bf16"), "{explain}");
            Ok(())
        };
        run().expect("nothing fails");
    });
}

#[test]
fn a_map_that_is_refused_is_an_error() {
    fakes::with(&[GROUPS, ("OPFUSE_FAKE_REFUSE", "map")], || {
        let run = || -> Result<()> {
            let (a, b) = (there(&table(8, 16, DType::F16)?)?, there(&table(16, 8, DType::F16)?)?);
            let strict = bits(&a.matmul(&b)?);
            {
                let _fast = numerics(Numerics::Fast);
                let error = a.matmul(&b).expect_err("the driver refuses").to_string();
                assert!(error.contains("cuTensorMapEncodeTiled") && error.contains("=own"), "{error}");
            }
            // The device works as before.
            assert!(bits(&a.matmul(&b)?) == strict);
            Ok(())
        };
        run().expect("nothing fails");
    });
}

/// A missing wait in a source is detected: strips that have not arrived are NaN.
#[test]
fn planted_bugs_are_detected() {
    let from = ("OPFUSE_FAKE_FROM", "gate_wait(full + stage, round);");
    fakes::with(&[GROUPS, from, ("OPFUSE_FAKE_TO", "")], || {
        let run = || -> Result<Vec<f64>> {
            let _fast = numerics(Numerics::Fast);
            let (a, b) = (there(&table(8, 16, DType::F16)?)?, there(&table(16, 8, DType::F16)?)?);
            a.matmul(&b)?.to_dtype(DType::F64)?.to_vec()
        };
        assert!(run().is_ok_and(|found| found.iter().all(|x| x.is_nan())));
    });
}
