//! Who computes a product with `Numerics::Fast`, and why.
//!
//! The model decides, unless cublasLt is missing, too old, names no algorithm or fails. Workspaces, streams, threads,
//! gradients and reports are tested as well.

use crate::cublaslt::{FLOATS, GPU, LIBRARY, close, fast, table, there, values};
use crate::driver::{cublaslt_calls, cublaslt_descriptions};
use crate::fakes::{self, OLD};
use opfuse::device::{Stream, StreamGuard};
use opfuse::internals::runtime::cuda::{counts, reset_counts};
use opfuse::{DType, Device, Explain, Numerics, Result, Tensor, compile, numerics};
use std::path::PathBuf;

const OWN: (&str, &str) = ("OPFUSE_CUDA_PRODUCTS", "own");

fn layer(x: &Tensor, w: &Tensor, b: &Tensor) -> Result<Tensor> {
    x.matmul(w)?.add(b)?.relu()
}

/// Operands of [`layer`].
fn operands(dtype: DType) -> Result<[Tensor; 3]> {
    Ok([table(&[40, 50], dtype)?, table(&[50, 32], dtype)?, table(&[32], dtype)?])
}

/// The layer, compiled, as the CPU has it but for the order of sums; its report.
fn layer_is_right(dtype: DType) -> Result<Explain> {
    let [x, w, b] = operands(dtype)?;
    let expected = layer(&x, &w, &b)?;
    let (x, w, b) = (there(&x)?, there(&w)?, there(&b)?);
    let compiled = compile(layer);
    for _ in 0..3 {
        let found = compiled.call((&x, &w, &b))?;
        match dtype {
            DType::F32 | DType::F64 => close("a layer", &found, &expected)?,
            // Two roundings of an eighth bit at most, of numbers up to 8 times as large as the result.
            _ => {
                for (found, expected) in values(&found)?.iter().zip(values(&expected)?) {
                    assert!((found - expected).abs() <= 0.02 * (expected.abs() + 8.0), "{found}, not {expected}");
                }
            }
        }
    }
    Ok(compiled.explain())
}

/// What all of a report says.
fn says(explain: &Explain, text: &str) {
    assert!(explain.to_string().contains(text), "no {text:?} in {explain}");
}

#[test]
fn strict_never_calls_it() {
    fakes::only(&[LIBRARY], || {
        let run = || -> Result<()> {
            for dtype in FLOATS {
                let [x, w, b] = operands(dtype)?;
                let expected = values(&layer(&x, &w, &b)?)?;
                let (x, w, b) = (there(&x)?, there(&w)?, there(&b)?);
                let compiled = compile(layer);
                for _ in 0..3 {
                    assert_eq!(values(&compiled.call((&x, &w, &b))?)?, expected, "{dtype}");
                    assert_eq!(values(&layer(&x, &w, &b)?)?, expected, "{dtype}");
                }
                says(&compiled.explain(), &format!("products of {dtype} in an order of"));
                assert!(compiled.explain().to_json().contains("\"would_change_bits\""));
            }
            assert_eq!(cublaslt_calls(["cublasLtCreate", "cublasLtMatmul"]), [0, 0]);
            // The same tensors, fast: now it is called.
            let _fast = numerics(Numerics::Fast);
            let x = there(&table(&[4, 4], DType::F32)?)?;
            x.matmul(&x)?;
            assert_eq!(cublaslt_calls(["cublasLtCreate", "cublasLtMatmul"]), [1, 1]);
            let whole = x.to_dtype(DType::I32)?;
            assert_eq!(
                whole.matmul(&whole)?.to_vec::<i32>()?,
                x.to_device(Device::CPU)?
                    .to_dtype(DType::I32)?
                    .matmul(&whole.to_device(Device::CPU)?)?
                    .to_vec::<i32>()?
            );
            assert_eq!(cublaslt_calls(["cublasLtMatmul"]), [1], "not for integers");
            Ok(())
        };
        run().expect("nothing fails");
    });
}

/// Small products are not worth a call, and large ones are. Where cublasLt cannot fuse what follows, our kernel is
/// chosen if memory is the bottleneck.
#[test]
fn the_model_chooses_by_size_and_epilogue() {
    fakes::only(&[], || {
        let run = || -> Result<()> {
            let _fast = numerics(Numerics::Fast);
            reset_counts();
            for dtype in FLOATS {
                says(&layer_is_right(dtype)?, "cublasLt does not compute it: by the cost model it takes");
            }
            assert_eq!(counts().cublaslt, 0);
            let large = there(&table(&[640, 640], DType::F32)?)?;
            large.matmul(&large)?;
            assert_eq!(counts().cublaslt, 1);
            Ok(())
        };
        run().expect("nothing fails");
    });
}

/// A folder with fakes of the driver and NVRTC, and what `more` puts there.
fn without_cublaslt(name: &str, more: impl Fn(&PathBuf)) -> Option<PathBuf> {
    let folder = fakes::folder()?;
    let own = folder.join(name);
    std::fs::create_dir_all(&own).expect("a folder can be made");
    for file in ["libcuda.so.1", "libnvrtc.so.13"] {
        let _ = std::fs::copy(folder.join(file), own.join(file));
    }
    more(&own);
    Some(own)
}

/// Our kernels compute everything, and the report says why.
fn check_own(folder: Option<PathBuf>, settings: &[(&str, &str)], reason: &str) {
    let Some(folder) = folder else { return };
    let folder = folder.to_str().expect("it has a name in letters");
    let settings: Vec<(&str, &str)> =
        [LIBRARY, ("OPFUSE_CUDA_LIB_DIR", folder)].into_iter().chain(settings.iter().copied()).collect();
    fakes::without(&settings, || {
        let run = || -> Result<()> {
            let _fast = numerics(Numerics::Fast);
            for dtype in FLOATS {
                let explain = layer_is_right(dtype)?;
                if counts().cublaslt > 0 && reason.contains("not found") {
                    // The system has one.
                    return Ok(());
                }
                says(&explain, &format!("cublasLt does not compute it: {reason}"));
                assert!(explain.to_json().contains("\"library_cannot\""));
                let on_tensor_cores = explain.to_string().contains("tensor cores sum products");
                assert_eq!(on_tensor_cores, matches!(dtype, DType::F16 | DType::BF16), "{explain}");
            }
            assert_eq!((counts().cublaslt, counts().fallbacks), (0, vec![]));
            Ok(())
        };
        run().expect("nothing fails");
    });
}

#[test]
fn a_missing_library_leaves_products_to_us() {
    let folder = without_cublaslt("without_cublaslt", |_| {});
    check_own(
        folder,
        &[],
        "cublasLt was not found: libcublasLt.so.13, libcublasLt.so.12, libcublasLt.so was looked for in",
    );
}

#[test]
fn a_library_without_a_function_leaves_products_to_us() {
    let old = |own: &PathBuf| {
        let _ = std::fs::copy(own.with_file_name(OLD).join("libcublasLt.so.13"), own.join("libcublasLt.so.13"));
    };
    let reason = "cublasLt is too old: it lacks cublasLtGetStatusName; CUDA 12.0 or later is needed";
    check_own(without_cublaslt("old_cublaslt", old), &[], reason);
}

#[test]
fn an_old_library_leaves_products_to_us() {
    let version = [("OPFUSE_FAKE_LT_VERSION", "110805")];
    let folder = fakes::folder().map(PathBuf::from);
    check_own(folder, &version, "cublasLt 110805 is too old: CUDA 12.0 or later is needed");
}

#[test]
fn without_an_algorithm_products_are_ours() {
    let folder = || fakes::folder().map(PathBuf::from);
    check_own(folder(), &[("OPFUSE_FAKE_LT_NOTHING", "all")], "it has no algorithm for");
}

/// There is no algorithm with an epilogue: the product is a call of cublasLt, and what follows is a pass.
#[test]
fn without_an_algorithm_for_the_epilogue_it_is_a_pass() {
    fast(&[LIBRARY, ("OPFUSE_FAKE_LT_NOTHING", "epilogue")], || {
        for dtype in FLOATS {
            reset_counts();
            let explain = layer_is_right(dtype)?;
            says(&explain, "cublasLt sums products of");
            says(&explain, "it has no algorithm for");
            assert!(counts().cublaslt == 3 && counts().launches >= 3, "{:?}", counts());
        }
        Ok(())
    });
}

/// Sums of f64 have no epilogue there.
#[test]
fn wide_layers_are_a_call_and_a_pass() {
    fakes::only(&[LIBRARY], || {
        let _fast = numerics(Numerics::Fast);
        let explain = layer_is_right(DType::F64).expect("nothing fails");
        says(&explain, "cublasLt sums products of f64 in f64");
        says(&explain, "+ bias, relu");
    });
}

#[test]
fn a_call_that_fails_is_an_error() {
    fast(&[LIBRARY, ("OPFUSE_FAKE_LT_FAIL", "2")], || {
        let [x, w, b] = operands(DType::F32)?;
        let expected = layer(&x, &w, &b)?;
        let (x, w, b) = (there(&x)?, there(&w)?, there(&b)?);
        let check = |error: opfuse::Error| {
            let error = error.to_string();
            for word in [
                "cublasLtMatmul",
                "CUBLAS_STATUS_EXECUTION_FAILED on cuda:0",
                "f32[40, 50] @ f32[50, 32]",
                "OPFUSE_CUDA_PRODUCTS",
            ] {
                assert!(error.contains(word), "{word} is missing: {error}");
            }
        };
        x.matmul(&w)?;
        check(x.matmul(&w).expect_err("the second one is refused"));
        close("afterwards", &layer(&x, &w, &b)?, &expected)?;
        let compiled = compile(layer);
        for _ in 0..3 {
            close("compiled", &compiled.call((&x, &w, &b))?, &expected)?;
        }
        Ok(())
    });
}

#[test]
fn a_failed_call_in_a_program_is_an_error() {
    fast(&[LIBRARY, ("OPFUSE_FAKE_LT_FAIL", "5")], || {
        let [x, w, b] = operands(DType::F32)?;
        let (x, w, b) = (there(&x)?, there(&w)?, there(&b)?);
        let compiled = compile(layer);
        let failed = (0..6).filter(|_| compiled.call((&x, &w, &b)).is_err()).count();
        assert_eq!(failed, 1);
        Ok(())
    });
}

/// Results of runs whose work is on its way at once: in turns on two streams, and on several threads.
fn overlapping(compute: impl Fn(&Tensor) -> Result<Tensor> + Sync) -> Result<()> {
    let inputs: Vec<Tensor> = (0..4).map(|n| there(&table(&[40, 50], DType::F32)?.add(n)?)).collect::<Result<_>>()?;
    let expected: Vec<Vec<f64>> = inputs.iter().map(|x| values(&compute(x)?)).collect::<Result<_>>()?;
    let streams = [Stream::new(GPU)?, Stream::new(GPU)?];
    let mut results = Vec::new();
    for call in 0..24 {
        let _guard = StreamGuard::new(&streams[call / 3 % 2])?;
        results.push((call % 4, compute(&inputs[call % 4])?));
    }
    for (input, result) in &results {
        assert!(values(result)? == expected[*input], "the same call has the same bits");
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (compute, inputs, expected) = (&compute, &inputs, &expected);
            scope.spawn(move || {
                let _fast = numerics(Numerics::Fast);
                let stream = if thread < 2 { Stream::default_of(GPU) } else { Stream::new(GPU) };
                let _guard = StreamGuard::new(&stream.expect("there is one")).expect("the device is there");
                for call in 0..20 {
                    let at = (thread + call) % 4;
                    let found = compute(&inputs[at]).and_then(|result| values(&result)).expect("it runs");
                    assert!(found == expected[at], "thread {thread}, call {call}");
                }
            });
        }
    });
    Ok(())
}

#[test]
fn streams_and_threads_share_no_workspace() {
    for workspace in ["0", "4096"] {
        fast(&[LIBRARY, ("OPFUSE_FAKE_LT_WORKSPACE", workspace)], || {
            let [_, w, b] = operands(DType::F32)?;
            let (w, b) = (there(&w)?, there(&b)?);
            overlapping(|x| x.matmul(&w))?;
            let compiled = compile(layer);
            overlapping(|x| compiled.call((x, &w, &b)))?;
            // Biases of several calls at once, through one description.
            let biases = [there(&table(&[32], DType::F32)?.mul(3.0)?)?, b];
            overlapping(|x| compiled.call((x, &w, &biases[0]))?.add(&compiled.call((x, &w, &biases[1]))?))?;
            assert!(counts().cublaslt > 200, "{:?}", counts());
            Ok(())
        });
    }
}

/// Whether products on two streams are right. They share no operands, because two streams read an operand one after
/// the other.
fn are_apart() -> Result<bool> {
    let _fast = numerics(Numerics::Fast);
    let [x, w, _] = operands(DType::F32)?;
    let factors = [1.0, 3.0].map(|number| Ok([there(&x.mul(number)?)?, there(&w.add(number)?)?]));
    let factors: Vec<[Tensor; 2]> = factors.into_iter().collect::<Result<_>>()?;
    let expected = factors.iter().map(|[x, w]| values(&x.matmul(w)?)).collect::<Result<Vec<Vec<f64>>>>()?;
    let streams = [Stream::new(GPU)?, Stream::new(GPU)?];
    let mut results = Vec::new();
    for call in 0..8 {
        let _guard = StreamGuard::new(&streams[call % 2])?;
        let [x, w] = &factors[call % 2];
        results.push(x.matmul(w)?);
    }
    let found = results.iter().map(values).collect::<Result<Vec<Vec<f64>>>>()?;
    Ok(found.iter().enumerate().all(|(call, found)| *found == expected[call % 2]))
}

#[test]
fn streams_have_workspaces_of_their_own() {
    fast(&[LIBRARY, ("OPFUSE_FAKE_LT_WORKSPACE", "4096")], || {
        assert!(are_apart()?);
        Ok(())
    });
}

/// The fake detects streams that share a workspace.
#[test]
fn a_shared_workspace_is_detected() {
    let planted = [LIBRARY, ("OPFUSE_FAKE_LT_WORKSPACE", "4096"), ("OPFUSE_FAKE_LT_SHARED", "1")];
    fakes::only(&planted, || assert!(!are_apart().expect("nothing fails"), "two streams worked in the same memory"));
}

/// Our kernels before and after products, in one program that is no CUDA graph.
#[test]
fn programs_with_calls_are_no_graphs() {
    for workspace in ["0", "1024"] {
        fast(&[LIBRARY, ("OPFUSE_FAKE_LT_WORKSPACE", workspace)], || {
            let function = |x: &Tensor, w: &Tensor, b: &Tensor| {
                let first = layer(&x.mul(0.25)?, w, b)?;
                let second = first.matmul(&w.t()?)?.softmax(-1)?;
                second.matmul(w)?.add(b)?.gelu_tanh()?.sum([0], false)
            };
            let [x, w, b] = operands(DType::F32)?;
            let expected = function(&x, &w, &b)?;
            let (x, w, b) = (there(&x)?, there(&w)?, there(&b)?);
            let compiled = compile(function);
            let mut bits = None;
            for call in 0..20 {
                reset_counts();
                let found = compiled.call((&x, &w, &b))?;
                close("three products", &found, &expected)?;
                if call > 0 {
                    let found = values(&found)?;
                    assert!(*bits.get_or_insert_with(|| found.clone()) == found, "call {call}");
                    assert_eq!((counts().cublaslt, counts().launches, counts().replays), (3, 3, 0), "call {call}");
                }
            }
            says(&compiled.explain(), "cublasLt launches kernels of its own");
            assert!(compiled.explain().replay.is_some_and(|replay| replay.is_err()));
            Ok(())
        });
    }
}

/// Settings under which algorithms need a larger workspace than there is.
const TOO_LARGE: [(&str, &str); 3] =
    [LIBRARY, ("OPFUSE_FAKE_LT_WORKSPACE", "4000000"), ("OPFUSE_FAKE_MEMORY", "3000000")];

fn products_and_layers() -> Result<Vec<Tensor>> {
    let [x, w, b] = operands(DType::F32)?;
    let (x, w, b) = (there(&x)?, there(&w)?, there(&b)?);
    let compiled = compile(layer);
    Ok(vec![x.matmul(&w)?, compiled.call((&x, &w, &b))?, compiled.call((&x, &w, &b))?])
}

/// Where no workspace can be allocated, an algorithm without one is used.
#[test]
fn without_a_workspace_another_algorithm_is_used() {
    fast(&TOO_LARGE, || {
        let found = products_and_layers()?;
        let [x, w, b] = operands(DType::F32)?;
        close("a product", &found[0], &x.matmul(&w)?)?;
        found[1..].iter().try_for_each(|found| close("a layer", found, &layer(&x, &w, &b)?))
    });
}

/// Every algorithm needs a workspace, so the error of the allocation is returned.
#[test]
fn without_any_workspace_products_are_out_of_memory() {
    fast(&[&TOO_LARGE[..], &[("OPFUSE_FAKE_LT_NOTHING", "workspace")]].concat(), || {
        let error = products_and_layers().expect_err("there is no memory").to_string();
        assert!(error.contains("out of memory on cuda:0: wanted 4000000 bytes"), "{error}");
        let x = there(&table(&[40, 50], DType::F32)?)?;
        close("a sum", &x.add(&x)?, &x.to_device(Device::CPU)?.mul(2.0)?)
    });
}

/// Descriptions are freed with their owners. Threads that end keep no executables, and the caches are bounded.
#[test]
fn algorithms_are_bounded() {
    fakes::only(&[LIBRARY], || {
        const MOST: i64 = 4 * 1024;
        let mut shapes = 0;
        for thread in 0..3 {
            // A joined thread has dropped its caches.
            std::thread::scope(|scope| {
                let worker = scope.spawn(|| {
                    let _fast = numerics(Numerics::Fast);
                    let all = table(&[1, 600], DType::F32).and_then(|x| there(&x)).expect("there is a device");
                    for k in 1..600 {
                        let part = all.slice(1, 0, k, 1).expect("it is a view");
                        let other = all.slice(1, 0, 2 * thread + 2, 1).expect("it is a view");
                        part.t().and_then(|column| column.matmul(&other)).expect("it runs");
                    }
                });
                worker.join().expect("it ends");
            });
            shapes += 599;
        }
        let [asked] = cublaslt_calls(["cublasLtMatmulAlgoGetHeuristic"]);
        assert!(asked >= shapes && 4 * asked > MOST, "{asked} were asked for");
        let live = cublaslt_descriptions();
        assert!((1..=MOST).contains(&live), "{live} descriptions");
    });
}

#[test]
fn gradients_of_a_linear_layer_use_it() {
    fast(&[LIBRARY], || {
        let gradients = |device: Device, is_compiled: bool| -> Result<Vec<Tensor>> {
            let [x, w, b] = operands(DType::F32)?;
            let [x, w, b] = [x.to_device(device)?, w.to_device(device)?, b.to_device(device)?];
            let inputs = [&x, &w, &b];
            inputs.iter().try_for_each(|input| input.set_requires_grad(true).map(|_| ()))?;
            let loss = |x: &Tensor, w: &Tensor, b: &Tensor| x.matmul(w)?.add(b)?.gelu_tanh()?.square()?.mean_all();
            let loss = if is_compiled { compile(loss).call((&x, &w, &b))? } else { loss(&x, &w, &b)? };
            loss.backward()?;
            Ok(inputs.iter().map(|input| input.grad().expect("it got one")).collect())
        };
        let expected = gradients(Device::CPU, false)?;
        for is_compiled in [false, true] {
            reset_counts();
            for (found, expected) in gradients(GPU, is_compiled)?.iter().zip(&expected) {
                close("a gradient", found, expected)?;
            }
            assert_eq!(counts().cublaslt, 3, "one on the way there and two on the way back");
        }
        Ok(())
    });
}

/// A linear layer of 16-bit floats is one call: its bias is added to the sums, and what is stored is rounded once.
#[test]
fn linear_layers_are_one_call() {
    fast(&[LIBRARY], || {
        for dtype in [DType::F16, DType::BF16] {
            let [x, w, b] = operands(dtype)?;
            let layer: fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor> = |x, w, b| b.addmm(x, w)?.relu();
            // An unsupported epilogue is a pass over sums that are not rounded.
            let scaled: fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor> = |x, w, b| b.addmm_scaled(x, w, 0.5, 2.0);
            for (layer, launches) in [(layer, 0), (scaled, 1)] {
                let expected = values(&layer(&x, &w, &b)?)?;
                let compiled = compile(layer);
                let [x, w, b] = [there(&x)?, there(&w)?, there(&b)?];
                compiled.call((&x, &w, &b))?;
                reset_counts();
                let found = compiled.call((&x, &w, &b))?;
                assert_eq!((counts().cublaslt, counts().launches), (1, launches), "{dtype}: {}", compiled.explain());
                // Another order of sums is another rounding now and then.
                for (found, expected) in values(&found)?.iter().zip(expected) {
                    assert!((found - expected).abs() <= 0.008 * (expected.abs() + 1.0), "{found}, not {expected}");
                }
            }
        }
        Ok(())
    });
}

#[test]
fn reports_name_who_computes_a_product() {
    fast(&[LIBRARY], || {
        let explain = layer_is_right(DType::BF16)?;
        says(&explain, "fast: cublasLt sums products of bf16 in f32, in an order of its own");
        says(&explain, "fast: cublasLt computes it as its epilogue, and rounds once, at the end");
        assert!(explain.groups.iter().all(|group| group.declined.is_none()), "{explain}");
        Ok(())
    });
}

#[test]
fn reports_say_that_a_switch_chose() {
    fast(&[OWN], || {
        says(&layer_is_right(DType::BF16)?, "cublasLt does not compute it: OPFUSE_CUDA_PRODUCTS is own");
        Ok(())
    });
}

/// Each device has a handle of its own for its products.
#[test]
fn devices_have_handles_of_their_own() {
    fakes::only(&[LIBRARY], || {
        let run = || -> Result<()> {
            let _fast = numerics(Numerics::Fast);
            let x = table(&[8, 8], DType::F32)?;
            for index in [0, 1, 0] {
                let on_device = x.to_device(Device::cuda(index))?;
                close("a square", &on_device.matmul(&on_device)?, &x.matmul(&x)?)?;
            }
            assert_eq!(cublaslt_calls(["cublasLtCreate", "cublasLtMatmul"]), [2, 3]);
            Ok(())
        };
        run().expect("nothing fails");
    });
}
