//! Epilogues of products on tensor cores: one launch, with the bits of the calls one by one.

use crate::fakes;
use opfuse::internals::runtime::cuda::{counts, reset_counts};
use opfuse::{DType, Device, Numerics, Result, Tensor, compile, numerics};

const GPU: Device = Device::cuda(0);

/// Products by kernels of opfuse; those of cublasLt have tests of their own.
const OWN: (&str, &str) = ("OPFUSE_CUDA_PRODUCTS", "own");

fn table(sizes: &[usize], dtype: DType) -> Result<Tensor> {
    let n: usize = sizes.iter().product();
    let numbers: Vec<f32> = (0..n).map(|n| (n as f32 * 0.7313).sin() * [1.0, 3.0, 0.1][n % 3]).collect();
    Tensor::from_slice(&numbers, sizes)?.to_dtype(dtype)?.to_device(GPU)
}

fn bits(tensors: &[Tensor]) -> Vec<Vec<u64>> {
    let of = |x: &Tensor| x.to_dtype(DType::F64).and_then(|x| x.to_vec::<f64>()).expect("it can be read");
    tensors.iter().map(|x| of(x).into_iter().map(f64::to_bits).collect()).collect()
}

type Layer = fn(&Tensor, &Tensor, &Tensor, &Tensor) -> Result<Vec<Tensor>>;

/// Functions of `[3, 40, 50]`, `[50, 32]`, `[32]` and `[3, 40, 32]`, and how many kernels a call starts.
const LAYERS: &[(&str, u64, Layer)] = &[
    ("activation", 1, |x, w, _, _| Ok(vec![x.select(0, 0)?.matmul(w)?.relu()?])),
    ("layer", 1, |x, w, bias, _| Ok(vec![x.select(0, 1)?.matmul(w)?.add(bias)?.gelu_tanh()?])),
    ("linear", 1, |x, w, bias, _| Ok(vec![bias.addmm(&x.select(0, 0)?, w)?])),
    ("linear and more", 1, |x, w, bias, r| {
        Ok(vec![bias.addmm_scaled(&x.select(0, 1)?, w, 0.5, 2.0)?.gelu()?.add(&r.select(0, 1)?)?])
    }),
    ("linear batches", 1, |x, w, bias, _| Ok(vec![bias.baddbmm(x, &w.expand([3, 50, 32])?)?.tanh()?])),
    ("sums of f32", 1, |x, w, _, r| Ok(vec![x.select(0, 0)?.mm_dtype(w, DType::F32)?.mul(&r.select(0, 0)?)?])),
    ("batches", 1, |x, w, bias, r| Ok(vec![x.matmul(w)?.add(bias)?.gelu()?.add(r)?])),
    ("other dtype", 1, |x, w, _, r| Ok(vec![x.matmul(w)?.to_dtype(DType::F32)?.mul(r)?])),
    ("two results", 1, |x, w, bias, _| {
        let sum = x.matmul(w)?.add(bias)?;
        Ok(vec![sum.tanh()?, sum.gt(0.0)?.to_dtype(DType::F32)?])
    }),
    // A kernel that reorders elements of a product is no epilogue.
    ("heads", 2, |x, w, bias, _| {
        let sum = x.select(0, 2)?.matmul(w)?.add(bias)?;
        Ok(vec![sum.reshape([40, 4, 8])?.permute([1, 0, 2])?.contiguous()?])
    }),
    ("part of a residual", 1, |x, w, _, r| Ok(vec![x.slice(0, 0, 2, 1)?.matmul(w)?.add(&r.slice(0, 1, 3, 1)?)?])),
    ("two products", 2, |x, w, _, _| Ok(vec![x.select(0, 0)?.matmul(w)?.add(&x.select(0, 1)?.matmul(w)?)?.relu()?])),
    ("chained", 2, |x, w, bias, _| {
        let first = x.select(0, 0)?.matmul(w)?.add(bias)?.relu()?;
        Ok(vec![first.matmul(&w.t()?)?.sigmoid()?])
    }),
    // The product is an output, is reduced, or is transposed: it is stored.
    ("returned", 2, |x, w, _, _| {
        let product = x.select(0, 0)?.matmul(w)?;
        Ok(vec![product.relu()?, product])
    }),
    ("softmax", 2, |x, w, _, _| Ok(vec![x.matmul(w)?.softmax(-1)?])),
];

#[test]
fn layers_have_the_bits_of_their_calls() {
    fakes::with(&[OWN], || {
        let _fast = numerics(Numerics::Fast);
        let mut wrong = Vec::new();
        for dtype in [DType::F16, DType::BF16] {
            for (name, launches, layer) in LAYERS {
                let mut run = || -> Result<()> {
                    let (x, w) = (table(&[3, 40, 50], dtype)?, table(&[50, 32], dtype)?);
                    let (bias, r) = (table(&[32], dtype)?, table(&[3, 40, 32], dtype)?);
                    let expected = bits(&layer(&x, &w, &bias, &r)?);
                    let compiled = compile(*layer);
                    for call in 0..3 {
                        reset_counts();
                        let found = compiled.call((&x, &w, &bias, &r))?;
                        let started = counts().launches;
                        assert!(bits(&found) == expected, "{name} of {dtype}, call {call}");
                        // The first call runs eagerly.
                        if call > 0 && started != *launches {
                            wrong.push(format!("{name} of {dtype}: {started} launches"));
                        }
                    }
                    let explain = compiled.explain();
                    let is_behind = !matches!(*name, "returned" | "softmax");
                    if explain.to_string().contains("which is not stored") != is_behind {
                        wrong.push(format!("{name} of {dtype}: {explain}"));
                    }
                    assert_eq!(counts().fallbacks, []);
                    Ok(())
                };
                run().unwrap_or_else(|error| panic!("{name} of {dtype}: {error}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}
