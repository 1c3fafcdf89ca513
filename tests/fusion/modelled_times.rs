//! Modelled times beside measured ones: the cost model with its built-in rates stays near what kernels took on a
//! machine of these rates (`cargo bench --bench cost_model`, `docs/benchmarks/cost_model.md`).

use crate::values::uniform;
use opfuse::internals::fusion::{Options, Rates};
use opfuse::{CompileOptions, DType, Result, Tensor, compile_with};

type Function = fn(&Tensor) -> Result<Tensor>;

/// Functions of matrices, with the microseconds that all kernels of one took on one thread.
const MEASURED: &[(&str, DType, [usize; 2], f64, Function)] = &[
    ("tanh", DType::F32, [512, 512], 45.9, |x| x.tanh()),
    ("exp", DType::F64, [512, 512], 84.0, |x| x.exp()),
    ("log", DType::BF16, [512, 512], 64.6, |x| x.log()),
    ("lgamma", DType::F32, [512, 512], 455.3, |x| x.lgamma()),
    ("abs", DType::F32, [2048, 2048], 583.7, |x| x.abs()),
    ("sqrt", DType::F64, [64, 512], 7.5, |x| x.sqrt()),
    ("neg", DType::BF16, [512, 512], 14.7, |x| x.neg()),
    ("fmod", DType::F32, [512, 512], 75.4, |x| x.fmod(0.3)),
    ("sum of rows", DType::F32, [512, 512], 8.2, |x| x.sum([-1], false)),
    ("sum of rows", DType::F32, [4096, 8], 3.7, |x| x.sum([-1], false)),
    ("sum of columns", DType::F32, [512, 512], 11.2, |x| x.sum([0], false)),
    ("sum of columns", DType::F32, [65536, 8], 39.0, |x| x.sum([0], false)),
    ("amax of rows", DType::F32, [512, 512], 11.5, |x| x.amax([-1], false)),
    ("argmax of rows", DType::F32, [512, 512], 32.7, |x| x.argmax(-1, false)),
    ("softmax", DType::F32, [512, 512], 53.7, |x| x.softmax(-1)),
    ("softmax", DType::BF16, [65536, 8], 191.9, |x| x.softmax(-1)),
    ("transposed", DType::F32, [512, 512], 30.2, |x| x.t()?.contiguous()),
    ("cumsum", DType::F32, [512, 512], 142.9, |x| x.cumsum(-1)),
    ("sort", DType::F32, [64, 512], 186.8, |x| Ok(x.sort(-1, false)?.0)),
    ("sort", DType::F64, [512, 512], 4605.1, |x| Ok(x.sort(-1, false)?.0)),
    ("topk", DType::F32, [4096, 8], 273.0, |x| Ok(x.topk(4, -1, true)?.0)),
    ("randn", DType::F32, [512, 512], 240.3, |x| x.randn_like()),
];

/// The largest factor between both times.
const MOST: f64 = 2.5;

#[test]
fn modelled_times_are_near_measured_ones() -> Result<()> {
    let mut wrong = Vec::new();
    for &(name, dtype, sizes, measured, function) in MEASURED {
        let x = uniform(1, &sizes, DType::F32)?.to_dtype(dtype)?;
        let fusion = Options { rates: Rates::BUILT_IN, ..Options::default() };
        let f = compile_with(function, CompileOptions { fusion, ..CompileOptions::default() });
        f.call(&x)?;
        let explain = f.explain();
        let modelled: f64 = explain.groups.iter().map(|group| group.modelled_time.as_secs_f64() * 1e6).sum();
        if !(measured / MOST..measured * MOST).contains(&modelled) {
            wrong.push(format!("{name} of {dtype} {sizes:?}: modelled {modelled:.1} us, measured {measured:.1} us"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
