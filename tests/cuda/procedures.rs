//! Routines on a device: scans, sorts, writes by index and random words. They have the CPU's bits and errors; a routine
//! that runs on the CPU has a reason.

use crate::driver::calls_during;
use crate::fakes;
use opfuse::internals::runtime::cuda::{counts, reset_counts};
use opfuse::nn::Convolution;
use opfuse::{DType, Device, Error, Result, Tensor, compile};

const GPU: Device = Device::cuda(0);

/// Numbers of which many are equal; floats have NaNs, infinities and both zeros among them.
fn table(sizes: &[usize], dtype: DType, seed: usize) -> Tensor {
    const ODD: [f64; 6] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 3.0e38];
    let n: usize = sizes.iter().product();
    let number = |at: usize| {
        let drawn = (at * 7919 + seed * 104_729 + 13) % 101;
        if dtype.is_float() && drawn % 17 == 3 { ODD[drawn / 17] } else { drawn as f64 / 8.0 - 5.0 }
    };
    let numbers: Vec<f64> = (0..n).map(number).collect();
    Tensor::from_slice(&numbers, sizes).and_then(|x| x.to_dtype(dtype)).expect("memory is there")
}

/// Indices below `size`.
fn indices(sizes: &[usize], size: i64, seed: i64) -> Tensor {
    let n: usize = sizes.iter().product();
    let all: Vec<i64> = (0..n as i64).map(|at| (at * 37 + seed * 11 + at / 3) % size).collect();
    Tensor::from_slice(&all, sizes).expect("memory is there")
}

/// Dtype, sizes, and the bits of all elements.
type Looks = (DType, Vec<usize>, Vec<u64>);

fn bytes(x: &Tensor) -> Looks {
    let here = x.to_device(Device::CPU).and_then(|x| x.contiguous()).expect("it comes home");
    let bits: Vec<u64> = match here.dtype() {
        DType::Complex64 | DType::Complex128 => unreachable!("no case is complex"),
        DType::F64 => here.to_vec::<f64>().expect("it is read").into_iter().map(f64::to_bits).collect(),
        DType::F32 => here.to_vec::<f32>().expect("it is read").into_iter().map(|x| x.to_bits().into()).collect(),
        DType::F16 | DType::BF16 => {
            let wide = here.to_dtype(DType::F32).and_then(|x| x.to_vec::<f32>()).expect("it is read");
            wide.into_iter().map(|x| x.to_bits().into()).collect()
        }
        DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            let wide = here.to_dtype(DType::I64).and_then(|x| x.to_vec::<i64>()).expect("it is read");
            wide.into_iter().map(|x| x as u64).collect()
        }
    };
    (x.dtype(), x.sizes().to_vec(), bits)
}

/// Compares a function on the device with the CPU, and checks that nothing fell back to the host.
fn check(name: &str, operands: &[&Tensor], function: impl Fn(&[&Tensor]) -> Result<Tensor>) {
    reset_counts();
    let expected = function(operands).unwrap_or_else(|error| panic!("{name}: {error}"));
    let there: Vec<Tensor> = operands.iter().map(|x| x.to_device(GPU).expect("there is a device")).collect();
    let there: Vec<&Tensor> = there.iter().collect();
    for round in 0..2 {
        let found = function(&there).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found.device(), GPU, "{name}");
        assert_eq!(bytes(&found), bytes(&expected), "{name}, round {round}");
    }
    assert_eq!(counts().fallbacks, [], "{name}");
}

const DTYPES: [DType; 10] = DType::ALL;

/// All shapes for one dtype, the first for the others: most of the time goes to g++.
fn shapes_for<'a>(dtype: DType, all: &[(&'a [usize], i64)]) -> Vec<(&'a [usize], i64)> {
    all.iter().copied().take(if dtype == DType::F32 { all.len() } else { 1 }).collect()
}

#[test]
fn scans_have_the_bits_of_the_cpu() {
    fakes::with(&[], || {
        for dtype in DTYPES {
            for (sizes, dim) in
                [(&[5, 7][..], 0), (&[5, 7], 1), (&[2, 3, 4], 1), (&[300, 3], 1), (&[], 0), (&[3, 0], 0)]
            {
                let x = table(sizes, dtype, 1);
                let name = |what: &str| format!("{what} of {dtype} {sizes:?} along {dim}");
                check(&name("cumsum"), &[&x], |x| x[0].cumsum(dim));
                check(&name("cumprod"), &[&x], |x| x[0].cumprod(dim));
                check(&name("cummax"), &[&x], |x| Ok(x[0].cummax(dim)?.1));
                check(&name("cummin"), &[&x], |x| Ok(x[0].cummin(dim)?.0));
            }
        }
        // Few long lines are shared by blocks where the order of their elements does not matter.
        let all = [(&[2, 5000][..], 1), (&[2049, 2], 0), (&[1, 2, 4100], 2)];
        for dtype in DTYPES {
            for (sizes, dim) in shapes_for(dtype, &all) {
                let x = table(sizes, dtype, 8);
                let name = |what: &str| format!("{what} of {dtype} {sizes:?} along {dim}");
                check(&name("cummax"), &[&x], |x| Ok(x[0].cummax(dim)?.1));
                check(&name("cummin"), &[&x], |x| Ok(x[0].cummin(dim)?.0));
                if !dtype.is_float() {
                    check(&name("cumsum"), &[&x], |x| x[0].cumsum(dim));
                    check(&name("cumprod"), &[&x], |x| x[0].cumprod(dim));
                }
            }
        }
        let x = table(&[3, 3000], DType::I32, 9);
        check("long, across", &[&x], |x| x[0].t()?.slice(0, 1, 2900, 1)?.cumsum(0));
        let x = table(&[600_000], DType::I32, 9);
        check("more chunks than threads", &[&x], |x| x[0].cumsum(0));
        let x = table(&[6, 9], DType::F32, 2);
        check("across", &[&x], |x| x[0].t()?.slice(0, 1, 8, 2)?.cumsum(1));
        check("in a chain", &[&x], |x| x[0].mul(0.5)?.cumsum(0)?.exp()?.cumprod(1));
    });
}

#[test]
fn sorts_have_the_bits_of_the_cpu() {
    // Warps run as long as they can, the last first, so a missing barrier reads values that are not written yet.
    fakes::with(&[("OPFUSE_FAKE_SCHEDULE", "3")], || {
        let all = [(&[4, 70][..], 1), (&[70, 4], 0), (&[1], 0), (&[2, 3, 5], 1), (&[0, 3], 1)];
        for dtype in DTYPES {
            for (sizes, dim) in shapes_for(dtype, &all) {
                let x = table(sizes, dtype, 3);
                for descending in [false, true] {
                    let name = format!("{dtype} {sizes:?} along {dim}, descending: {descending}");
                    check(&name, &[&x], |x| x[0].argsort(dim, descending));
                    check(&name, &[&x], |x| Ok(x[0].sort(dim, descending)?.0));
                }
            }
        }
        let x = table(&[3, 1500], DType::F32, 4);
        check("many", &[&x], |x| x[0].argsort(1, false));
        check("the first few", &[&x], |x| Ok(x[0].topk(7, 1, true)?.0));
    });
}

/// Lines longer than a block can sort: sorted runs are merged.
#[test]
fn long_sorts_merge_their_runs() {
    for schedule in ["0", "3"] {
        let settings = [("OPFUSE_FAKE_SCHEDULE", schedule)];
        fakes::with(&settings, || {
            let all = [(&[2, 2049][..], 1), (&[4097, 2], 0), (&[4096], 0), (&[2, 1, 13_000], 2)];
            for dtype in DTYPES {
                for (sizes, dim) in shapes_for(dtype, &all) {
                    let x = table(sizes, dtype, 3);
                    for descending in [false, true] {
                        let name = format!("{dtype} {sizes:?} along {dim}, descending: {descending}");
                        check(&name, &[&x], |x| x[0].argsort(dim, descending));
                    }
                }
            }
            let x = table(&[3, 5000], DType::F32, 4);
            check("its elements", &[&x], |x| Ok(x[0].sort(1, false)?.0));
            check("the first few", &[&x], |x| Ok(x[0].topk(7, 1, true)?.1));
            check("across", &[&x], |x| x[0].t()?.slice(0, 3, 4900, 2)?.argsort(0, true));
            check("equal ones", &[&x], |x| x[0].mul(0.0)?.argsort(1, true));
            let x = table(&[0, 5000], DType::F32, 4);
            check("no lines", &[&x], |x| x[0].argsort(1, false));
        });
    }
}

#[test]
fn writes_by_index_have_the_bits_of_the_cpu() {
    fakes::with(&[], || {
        for dtype in DTYPES {
            let (x, source) = (table(&[6, 9], dtype, 5), table(&[8, 9], dtype, 6));
            let rows = indices(&[8, 7], 6, 1);
            let columns = indices(&[6, 5], 9, 2).to_dtype(DType::I32).expect("it is converted");
            let name = |what: &str| format!("{what} of {dtype}");
            check(&name("scatter"), &[&x, &rows, &source], |x| x[0].scatter(0, x[1], x[2]));
            check(&name("scatter_add"), &[&x, &rows, &source], |x| x[0].scatter_add(0, x[1], x[2]));
            check(&name("along rows"), &[&x, &columns, &source], |x| x[0].scatter_add(1, x[1], x[2]));
            check(&name("of a view"), &[&x, &columns, &source], |x| {
                x[0].t()?.scatter(0, &x[1].t()?, &x[2].t()?.slice(1, 1, 8, 1)?)
            });
            let few = indices(&[4], 6, 3);
            check(&name("index_add"), &[&x, &few, &source], |x| x[0].index_add(0, x[1], &x[2].slice(0, 0, 4, 1)?));
            check(&name("index_put"), &[&x, &few, &source], |x| {
                x[0].index_put(&[Some(x[1].clone()), Some(x[1].clone())], &x[2].slice(0, 0, 4, 1)?.select(1, 0)?, true)
            });
        }
        let x = table(&[6, 9], DType::F32, 5);
        check("nothing written", &[&x, &indices(&[0, 9], 6, 1), &x], |x| x[0].scatter_add(0, x[1], x[2]));
    });
}

#[test]
fn accumulating_writes_have_the_bits_of_the_cpu() {
    const WORDS: [&str; 5] = ["sum", "prod", "mean", "amax", "amin"];
    fakes::with(&[], || {
        for (number, dtype) in DTYPES.into_iter().enumerate() {
            let (x, source) = (table(&[6, 9], dtype, 5), table(&[8, 9], dtype, 6));
            let rows = indices(&[8, 7], 6, 1);
            for (at, word) in WORDS.into_iter().enumerate() {
                for with_self in [false, true] {
                    if dtype != DType::F32 && with_self == ((number + at) % 2 == 0) {
                        continue;
                    }
                    let name = format!("{word} of {dtype}, with what is there: {with_self}");
                    check(&name, &[&x, &rows, &source], |x| x[0].scatter_reduce(0, x[1], x[2], word, with_self));
                }
            }
        }
        let (x, source) = (table(&[6, 9], DType::F32, 5), table(&[8, 9], DType::F32, 6));
        let columns = indices(&[6, 5], 9, 2).to_dtype(DType::I32).expect("it is converted");
        check("of a view", &[&x, &columns, &source], |x| {
            x[0].t()?.scatter_reduce(0, &x[1].t()?, &x[2].t()?.slice(1, 1, 8, 1)?, "mean", false)
        });
        let x = table(&[6, 9], DType::BF16, 5);
        check("nothing written", &[&x, &indices(&[0, 9], 6, 1), &x], |x| {
            x[0].scatter_reduce(0, x[1], x[2], "amax", false)
        });
        let there = |x: &Tensor| x.to_device(GPU).expect("there is a device");
        let x = table(&[3, 2], DType::F32, 5);
        let index = Tensor::from_slice(&[0i64, 3], &[1, 2]).expect("memory is there");
        let found = there(&x).scatter_reduce(0, &there(&index), &there(&x), "mean", false).expect("nobody waits");
        let error = found.to_vec::<f32>().expect_err("it is told").to_string();
        assert!(error.contains("index 3 is out of bounds for dimension 0 with size 3"), "{error}");
    });
}

#[test]
fn convolutions_have_the_bits_of_the_cpu() {
    fakes::with(&[], || {
        // Dense, in groups, depthwise, and depthwise with two results for each channel.
        for (groups, outer) in [(1, 5), (2, 6), (4, 4), (4, 8)] {
            for dtype in [DType::F32, DType::F64, DType::BF16] {
                let (x, weight) = (table(&[2, 4, 7, 6], dtype, 5), table(&[outer, 4 / groups, 3, 3], dtype, 6));
                let options = Convolution { padding: 1.into(), groups: groups as i64, ..Convolution::default() };
                let name = |what: &str| format!("{what} of {dtype} with {groups} groups and {outer} channels");
                check(&name("a convolution"), &[&x, &weight], |x| x[0].conv2d(x[1], None, &options));
                check(&name("channels last"), &[&x, &weight], |x| {
                    let x_last = x[0].permute([0, 2, 3, 1])?.contiguous()?.permute([0, 3, 1, 2])?;
                    x_last.conv2d(x[1], None, &options)
                });
                let strided = Convolution { stride: 2.into(), ..options.clone() };
                check(&name("a strided one"), &[&x, &weight], |x| x[0].conv2d(x[1], None, &strided));
            }
        }
    });
}

/// An out-of-range index is the CPU's error, reported asynchronously, and the device goes on.
#[test]
fn out_of_range_indices_are_reported_asynchronously() {
    fakes::with(&[], || {
        let (x, source) = (table(&[6, 9], DType::F32, 5), table(&[8, 9], DType::F32, 6));
        let [there_x, there_source] = [&x, &source].map(|x| x.to_device(GPU).expect("there is a device"));
        for wrong in [6, -1, i64::MAX] {
            let mut all: Vec<i64> = (0..8 * 9).map(|at| at % 6).collect();
            all[17] = wrong;
            let index = Tensor::from_slice(&all, &[8, 9]).expect("memory is there");
            let there = index.to_device(GPU).expect("there is a device");
            let expected = x.scatter_add(0, &index, &source).map(drop);
            assert!(expected.is_err());
            let late = |error: Error| error.to_string().replace(" (reported asynchronously by cuda:0)", "");
            let found =
                there_x.scatter_add(0, &there, &there_source).map(|y| y.to_vec::<f32>().map(drop).map_err(late));
            assert_eq!(found, Ok(expected.map_err(late)), "{wrong}");
            let put = |x: &Tensor, index: &Tensor, source: &Tensor| {
                x.index_put(&[Some(index.clone())], &source.select(0, 0)?, false)
            };
            let found = put(&there_x, &there, &there_source).map(|y| y.to_vec::<f32>().map(drop).map_err(late));
            assert_eq!(found, Ok(put(&x, &index, &source).map(drop).map_err(late)), "{wrong}");
        }
        assert_eq!(bytes(&there_x), bytes(&x));
    });
}

#[test]
fn random_words_have_the_bits_of_the_cpu() {
    fakes::only(&[], || {
        let draw = |device: Device| -> Result<Vec<Looks>> {
            opfuse::manual_seed(11);
            let x = table(&[5, 7], DType::F32, 1).to_device(device)?;
            let noise = compile(|x: &Tensor| x.mul(&x.rand_like()?)?.add(&x.randn_like()?));
            let mut all = vec![x.rand_like()?, x.randn_like()?, x.dropout(0.4, true)?];
            all.push(x.to_dtype(DType::F64)?.rand_like()?);
            for _ in 0..12 {
                all.push(noise.call(&x)?);
            }
            Ok(all.iter().map(bytes).collect())
        };
        let expected = draw(Device::CPU).expect("the cpu draws");
        reset_counts();
        assert_eq!(draw(GPU).expect("the device draws"), expected);
        assert_eq!(counts().fallbacks, []);
        let x = table(&[5, 7], DType::F32, 1).to_device(GPU).expect("there is a device");
        (0..9).for_each(|_| drop(x.rand_like().expect("it is drawn")));
        let calls = calls_during(|| drop(x.rand_like().expect("it is drawn")));
        assert!(calls.iter().all(|&(name, _)| name == "cuLaunchKernel"), "the key travels with the launch: {calls:?}");
    });
}

/// Routines that run on the CPU, with their reasons.
#[test]
fn fallbacks_to_the_cpu_have_reasons() {
    fakes::with(&[], || {
        let x = table(&[1, 20_000], DType::F32, 1).to_device(GPU).expect("there is a device");
        let index = indices(&[1, 20_000], 20_000, 1).to_device(GPU).expect("there is a device");
        type Function<'a> = &'a dyn Fn() -> Result<Tensor>;
        let cases: [(&str, Function<'_>); 3] = [
            ("1 of 20000 elements", &|| x.cumsum(1)),
            ("1 of 20000 elements", &|| x.scatter(1, &index, &x)),
            ("1 of 20000 elements", &|| x.scatter_reduce(1, &index, &x, "amax", true)),
        ];
        for (reason, function) in cases {
            reset_counts();
            function().expect("the cpu computes it");
            let fallbacks = counts().fallbacks;
            assert!(fallbacks.iter().any(|fallback| fallback.reason.to_string().contains(reason)), "{fallbacks:?}");
        }
    });
}

/// Zeros and ones.
fn finite(x: &Tensor) -> Result<Tensor> {
    x.gt(0.0)?.to_dtype(DType::F32)
}

/// A bug in a source makes a result, or an error, that is not the CPU's.
#[test]
fn planted_bugs_are_detected() {
    type Function = fn(&[&Tensor]) -> Result<Tensor>;
    let sort: Function = |x| x[0].argsort(1, false);
    let sum: Function = |x| x[0].cumsum(1);
    let write: Function = |x| x[0].scatter_add(1, x[1], x[0]);
    let long_sort: Function = |x| x[0].argsort(0, true);
    let long_sum: Function = |x| x[0].to_dtype(DType::I32)?.cumsum(0);
    let places: Function = |x| Ok(x[0].cummax(0)?.1);
    let mean: Function = |x| finite(x[0])?.scatter_reduce(1, &x[1].mul(0)?, &finite(x[0])?, "mean", true);
    let most: Function = |x| finite(x[0])?.scatter_reduce(1, &x[1].mul(0)?, &finite(x[0])?.sub(2.0)?, "amax", false);
    const SHORT: &[usize] = &[3, 300];
    const LONG: &[usize] = &[9000];
    let bugs = [
        ("ties of runs", "ranks[half] <= rank", "ranks[half] < rank", long_sort, LONG),
        ("places of runs", "(low - start)", "(low - start) / 2", long_sort, LONG),
        ("the end of a run", "middle + width < n ? middle + width : n", "n", long_sort, LONG),
        (
            "chunks before",
            "combine(of_chunks<S, DIMS>(w)[block_x()], before",
            "combine(S::identity(), before",
            long_sum,
            LONG,
        ),
        ("threads before", "S::combine(other, slots[thread])", "S::combine(slots[thread], other)", places, LONG),
        (
            "barrier of slots",
            "[thread - by] : S::identity();\n        barrier();",
            "[thread - by] : S::identity();",
            long_sum,
            LONG,
        ),
        ("count", "step[ARRAYS - 1], WITH_SELF)", "step[ARRAYS - 1], 0)", mean, SHORT),
        ("what is there", "if (!WITH_SELF) {", "if (false) {", most, SHORT),
        ("ties", "at_a > at_b", "at_a < at_b", sort, SHORT),
        ("barrier", "barrier();", ";", sort, SHORT),
        ("line", "lines.at[0] += lines.step[0];", ";", sum, SHORT),
        ("running", "Running<dt_f32> { typedef double Type; }", "Running<dt_f32> { typedef float Type; }", sum, SHORT),
        ("bound", "(u64)place >= w.at[LINE]", "(u64)place > w.at[LINE]", write, SHORT),
    ];
    for (name, from, to, function, sizes) in bugs {
        let settings =
            [("OPFUSE_FAKE_FROM", from), ("OPFUSE_FAKE_TO", to), ("OPFUSE_FAKE_SCHEDULE", "3"), ("OPFUSE_BUG", name)];
        fakes::only(&settings, || {
            if std::env::var("OPFUSE_BUG").is_ok_and(|now| now == name) {
                let x = table(sizes, DType::F32, 7).mul(0.1).expect("it is computed");
                let index = Tensor::full(sizes, 300i64, None).expect("memory is there");
                let [there, there_index] = [&x, &index].map(|x| x.to_device(GPU).expect("there is a device"));
                let expected = function(&[&x, &index]).map(|x| bytes(&x).2);
                let found = function(&[&there, &there_index]).map(|x| bytes(&x).2);
                assert!(found.is_ok(), "{name} still compiles");
                assert_ne!(found, expected, "{name}");
            }
        });
    }
}
