//! How element-wise calls walk memory and lay out results (lines 172 to 184), and how they round (line 195).

use crate::assert_error;
use half::{bf16, f16};
use opfuse::dispatch::{Dispatcher, Value};
use opfuse::internals::codegen::geometry::{Access, Geometry, LoopOrder};
use opfuse::internals::codegen::kernel::{Inst, Kernel, Kind, Level, Operand, Output, Source};
use opfuse::internals::ir::row::Combine;
use opfuse::internals::ir::scalar::{Reg, Ty};
use opfuse::{DType, Device, Result, Tensor};

fn numbers(sizes: &[usize]) -> Tensor {
    let n = sizes.iter().product::<usize>() as i64;
    let sizes: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
    Tensor::arange_of(0, n, 1, DType::F32).and_then(|x| x.view(sizes)).expect("as many elements")
}

fn permuted(sizes: &[usize], dims: &[i64]) -> Tensor {
    let mut stored = vec![0; sizes.len()];
    dims.iter().enumerate().for_each(|(at, &dim)| stored[dim as usize] = sizes[at]);
    numbers(&stored).permute(dims).expect("a view")
}

fn strides(result: Result<Tensor>) -> Vec<usize> {
    result.unwrap_or_else(|error| panic!("{error}")).strides().to_vec()
}

#[test]
fn n174_results_are_laid_out_like_the_first_operand() {
    let (a, b) = (permuted(&[3, 4], &[1, 0]), numbers(&[3, 4]));
    assert_eq!(strides(a.add(&b)), a.strides());
    assert_eq!(strides(b.add(&a)), [4, 1]);
    let (a, b) = (permuted(&[2, 3, 4], &[2, 0, 1]), numbers(&[2, 3, 4]));
    assert_eq!(strides(a.mul(&b)), a.strides());
    assert_eq!(strides(b.mul(&a)), b.strides());
}

#[test]
fn n175_the_operand_of_full_size_decides() {
    let full = permuted(&[3, 4], &[1, 0]);
    for small in [numbers(&[4]), numbers(&[3, 1]), numbers(&[1, 1]), numbers(&[])] {
        assert_eq!(strides(full.add(&small)), full.strides(), "{:?}", small.sizes());
        assert_eq!(strides(small.add(&full)), full.strides(), "{:?}", small.sizes());
    }
    let sliced = numbers(&[3, 8]).slice(1, 0, None, 2).expect("a view");
    assert_eq!(strides(sliced.neg()), [4, 1]);
    assert_eq!(strides(sliced.add(&sliced)), [4, 1]);
    let channels_last = permuted(&[2, 3, 4, 5], &[0, 3, 1, 2]);
    assert_eq!(channels_last.strides(), [60, 1, 15, 3]);
    assert_eq!(strides(channels_last.exp()), channels_last.strides());
    let bias = numbers(&[1, 3, 1, 1]);
    assert_eq!(strides(channels_last.add(&bias)), channels_last.strides());
    assert_eq!(strides(bias.add(&channels_last)), channels_last.strides());
}

#[test]
fn n177_repeated_elements_become_dense() {
    let row = numbers(&[4]).expand([3, 4]).expect("a view");
    let column = numbers(&[3, 1]).expand([3, 4]).expect("a view");
    assert_eq!((row.strides(), column.strides()), (&[0, 1][..], &[1, 0][..]));
    assert_eq!((strides(row.neg()), strides(column.neg())), (vec![4, 1], vec![4, 1]));
}

#[test]
fn n178_the_strides_of_a_given_result_stay() {
    let add = Dispatcher::global().lookup("aten::add.out").expect("an operator");
    let (a, b) = (numbers(&[3, 4]), numbers(&[4]));
    for out in [permuted(&[3, 4], &[1, 0]), numbers(&[3, 8]).slice(1, 0, None, 2).expect("a view")] {
        let strides = out.strides().to_vec();
        let arguments = vec![Value::Tensor(a.clone()), Value::Tensor(b.clone())];
        let mut results = add.invoke(arguments, vec![("out", Value::Tensor(out.clone()))]).expect("a sum");
        let Some(Value::Tensor(result)) = results.pop() else { panic!("no tensor") };
        assert!(result.is_alias_of(&out) && result.strides() == strides);
        assert_eq!(out.to_vec::<f32>(), a.add(&b).and_then(|sum| sum.to_vec::<f32>()));
    }
}

#[test]
fn n180_dtypes_that_must_agree() {
    let (a, b) = (numbers(&[2, 2]), numbers(&[2, 2]).to_dtype(DType::F64).expect("f64"));
    assert_error(a.mm(&b), &["found dtype f64 but expected f32"]);
}

#[test]
fn n181_one_tensor_of_the_cpu_counts_as_a_number() {
    let meta = numbers(&[2, 3]).to_device(Device::META).expect("a type");
    let (scalar, dims) = (numbers(&[]).to_dtype(DType::F64).expect("f64"), numbers(&[3]));
    for result in [meta.add(&scalar), scalar.mul(&meta)] {
        let result = result.expect("a type");
        assert_eq!((result.device(), result.sizes(), result.dtype()), (Device::META, &[2, 3][..], DType::F32));
    }
    assert_error(meta.add(&dims), &["expected all tensors on meta", "cpu"]);
    let condition = meta.gt(0.0).expect("a type");
    assert!(condition.where_(&meta, &scalar).is_ok());
    assert_error(condition.where_(&scalar, &scalar), &["one 0-dim tensor on the cpu", "found one on cpu"]);
    assert_error(meta.mm(&scalar), &["expected all tensors on meta"]);
}

/// A copy of one operand, or its sum over the inner elements.
fn kernel(is_sum: bool, n_operands: u16) -> Kernel {
    let inst = |kind, args: &[usize], level| Inst {
        kind,
        args: args.iter().map(|&arg| Reg::new(arg)).collect(),
        ty: Ty::F32,
        level,
    };
    let mut insts: Vec<Inst> = (0..n_operands).map(|slot| inst(Kind::Load(slot), &[], Level::Full)).collect();
    if is_sum {
        insts.push(inst(Kind::Fold(Combine::Sum), &[0], Level::Row));
    }
    let value = Reg::new(insts.len() - 1);
    let operand = Operand { dtype: DType::F32, source: Source::Memory };
    let outputs = vec![Output { dtype: DType::F32, value }];
    Kernel { operands: vec![operand; n_operands.into()], insts, outputs }
}

/// The loops over `rows` and `inner` for accesses with these byte strides; the last one is the output's.
fn plan(kernel: &Kernel, rows: &[usize], inner: &[usize], strides: &[(&[usize], &[usize])]) -> Geometry {
    let access =
        |&(rows, inner): &(&[usize], &[usize])| Access { rows: rows.into(), inner: inner.into(), ..Access::default() };
    let mut accesses: Vec<Access> = strides.iter().map(access).collect();
    let output = accesses.pop().expect("the output's strides come last");
    Geometry::plan(kernel, rows, inner, accesses, vec![output], LoopOrder::OfMemory)
}

#[test]
fn n172_loops_merge_if_every_operand_allows_it() {
    let copy = kernel(false, 1);
    let dense: (&[usize], &[usize]) = (&[48, 16, 4], &[]);
    let loops = plan(&copy, &[2, 3, 4], &[], &[dense, dense]);
    assert_eq!((&loops.rows[..], &loops.inner[..]), (&[][..], &[24][..]));
    // The stride of a dim of size 1 does not matter.
    let units: (&[usize], &[usize]) = (&[48, 999, 16, 4], &[]);
    let loops = plan(&copy, &[2, 1, 3, 4], &[], &[units, (&[48, 7, 16, 4], &[])]);
    assert_eq!((&loops.rows[..], &loops.inner[..]), (&[][..], &[24][..]));
    // Rows with a gap between them stay apart, for all operands.
    let gaps: (&[usize], &[usize]) = (&[96, 32, 4], &[]);
    let loops = plan(&kernel(false, 2), &[2, 3, 4], &[], &[dense, gaps, dense]);
    assert_eq!((&loops.rows[..], &loops.inner[..]), (&[6][..], &[4][..]));
    assert_eq!((&loops.operands[1].rows[..], &loops.operands[1].inner[..]), (&[32][..], &[4][..]));
    let repeated: (&[usize], &[usize]) = (&[0, 16, 4], &[]);
    let loops = plan(&kernel(false, 2), &[2, 3, 4], &[], &[dense, repeated, dense]);
    assert_eq!((&loops.rows[..], &loops.inner[..]), (&[2][..], &[12][..]));
}

#[test]
fn n183_reduced_dims_are_loops_of_their_own() {
    let sum = kernel(true, 1);
    let loops = plan(&sum, &[3], &[4, 5], &[(&[80], &[20, 4]), (&[4], &[0, 0])]);
    assert_eq!((&loops.rows[..], &loops.inner[..]), (&[3][..], &[20][..]));
    assert_eq!((&loops.outputs[0].rows[..], &loops.outputs[0].inner[..]), (&[4][..], &[0][..]));
    // The other order would suit memory better, but a sum has the order of its elements.
    let loops = plan(&sum, &[3], &[4, 5], &[(&[80], &[4, 16]), (&[4], &[0, 0])]);
    assert_eq!((&loops.rows[..], &loops.inner[..]), (&[3][..], &[4, 5][..]));
    // Kept and reduced dims never become one loop.
    let loops = plan(&sum, &[3, 2], &[5], &[(&[40, 20], &[4]), (&[8, 4], &[0])]);
    assert_eq!((&loops.rows[..], &loops.inner[..]), (&[6][..], &[5][..]));
}

#[test]
fn n195_16_bit_floats_are_computed_in_f32_and_rounded_once() {
    // Bits from a linear congruential generator; all exponents, so that sums round in every place.
    let mut bits = 1_u32;
    let mut next = || {
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (bits >> 16) as u16
    };
    let pairs: Vec<(u16, u16)> = (0..4096).map(|_| (next(), next())).collect();
    macro_rules! check {
        ($ty:ty) => {
            let read = |which: fn(&(u16, u16)) -> u16| {
                pairs.iter().map(|pair| <$ty>::from_bits(which(pair))).collect::<Vec<_>>()
            };
            let (a, b) = (read(|pair| pair.0), read(|pair| pair.1));
            let (x, y) = (Tensor::from_slice(&a, &[4096]).expect("a"), Tensor::from_slice(&b, &[4096]).expect("b"));
            let calls: [(Result<Tensor>, fn(f32, f32) -> f32); 3] =
                [(x.add(&y), |a, b| a + b), (x.mul(&y), |a, b| a * b), (x.div(&y), |a, b| a / b)];
            for (found, exact) in calls {
                let found = found.and_then(|found| found.to_vec::<$ty>()).expect("values");
                for (i, found) in found.iter().enumerate() {
                    let expected = <$ty>::from_f32(exact(a[i].to_f32(), b[i].to_f32()));
                    let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
                    assert!(same, "{:?} and {:?} give {found:?}, not {expected:?}", a[i], b[i]);
                }
            }
        };
    }
    check!(f16);
    check!(bf16);
}
