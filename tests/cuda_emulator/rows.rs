//! Kernels with folds, in each of their forms.

use crate::check::Cases;
use crate::kernels::{Builder, Case, Random, buffer, listed, place};
use crate::pointwise::{by_lane, contiguous, gathered};
use opfuse::internals::codegen::FOLD_BLOCK;
use opfuse::internals::codegen::cuda::Form;
use opfuse::internals::codegen::kernel::{Level, Source};
use opfuse::internals::ir::row::Combine;
use opfuse::internals::ir::scalar::{Lit, Prim};
use opfuse::ir::DType;
use std::ops::Range;

/// Every form of a kernel with folds that takes rows of any length.
pub(crate) const FORMS: [Form; 3] = [Form::Warps, Form::Blocks, Form::Columns];

/// Forms that hold rows of `n` elements in registers: by one warp, by several with room to spare, and by the most
/// warps.
pub(crate) fn holding(n: usize) -> Vec<Form> {
    let forms = [(1, 1), (2, 1), (8, 1), (32, 1), (1, 2), (4, 4), (4, 16), (16, 4), (32, 8), (32, 16)];
    let has_room = |&(held, warps): &(usize, usize)| n <= 32 * held * warps;
    forms.into_iter().filter(has_room).map(|(held, warps)| Form::Held { held, warps }).collect()
}

/// All forms for rows of `n` elements, of which random cases take one each.
pub(crate) fn forms(n: usize) -> Vec<Form> {
    FORMS.into_iter().chain(holding(n)).collect()
}

/// The case with f32 operands of which no result is a NaN: most of the others have one in every row.
pub(crate) fn finite(mut case: Case) -> Case {
    for (bytes, operand) in case.inputs.iter_mut().zip(&case.kernel.operands) {
        assert_eq!(operand.dtype, DType::F32);
        for (index, element) in bytes.chunks_exact_mut(4).enumerate() {
            element.copy_from_slice(&((index as f32 * 0.37).sin() * 3.0).to_le_bytes());
        }
    }
    case
}

#[test]
fn short_folds_have_the_interpreters_bits() {
    for form in FORMS {
        let mut cases = Cases::default();
        for (combine, dtype) in listed::fold_cases() {
            let kernel = listed::folded(combine, dtype);
            for n in [0, 1, 2, 7, 31, 32, 33, 63, 64, 65, 70, 1000] {
                let case = place(&mut Random::new(n as u64), kernel.clone(), &[3], &[n]);
                cases.add_as(format!("{combine:?} of {n} {dtype}, {form:?}"), case, form);
            }
        }
        cases.check();
    }
}

#[test]
fn folds_of_several_blocks_have_the_interpreters_bits() {
    for form in FORMS {
        let mut cases = Cases::default();
        for (combine, dtype) in listed::fold_cases() {
            for n in [FOLD_BLOCK - 1, FOLD_BLOCK, FOLD_BLOCK + 1, 3 * FOLD_BLOCK + 37] {
                let case = place(&mut Random::new(n as u64), listed::folded(combine, dtype), &[2], &[n]);
                cases.add_as(format!("{combine:?} of {n} {dtype}, {form:?}"), case, form);
            }
        }
        let sum = listed::folded(Combine::Sum, DType::F32);
        let case = place(&mut Random::new(1), sum, &[], &[34 * FOLD_BLOCK + 5]);
        cases.add_as(format!("a sum of more blocks than lanes, {form:?}"), case, form);
        cases.check();
    }
}

/// Rows held in registers, of every length around the limit.
#[test]
fn held_rows_have_the_interpreters_bits() {
    let mut cases = Cases::default();
    for (combine, dtype) in listed::fold_cases() {
        let kernel = listed::folded(combine, dtype);
        for n in [0, 1, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 192, 1000, 1024] {
            let forms = holding(n);
            let form = forms[n % forms.len().min(4)];
            let case = place(&mut Random::new(n as u64), kernel.clone(), &[3], &[n]);
            cases.add_as(format!("{combine:?} of {n} {dtype}, {form:?}"), case.clone(), form);
            cases.add(format!("{combine:?} of {n} {dtype}"), case);
        }
    }
    let sum = listed::folded(Combine::Sum, DType::F32);
    let product = listed::folded(Combine::Prod, DType::F64);
    let index = listed::folded(Combine::ArgMin, DType::I64);
    for kernel in [sum, product, index] {
        for n in [2047, 2049, FOLD_BLOCK - 1, FOLD_BLOCK, FOLD_BLOCK + 1, 2 * FOLD_BLOCK - 100] {
            let case = place(&mut Random::new(n as u64), kernel.clone(), &[2], &[n]);
            for form in holding(n) {
                cases.add_as(format!("{n} elements, {form:?}"), case.clone(), form);
            }
            cases.add(format!("{n} elements"), case);
        }
    }
    cases.check();
}

/// Values that later passes need stay in registers, in rows of several dimensions too.
#[test]
fn passes_over_held_rows_have_the_interpreters_bits() {
    let mut cases = Cases::default();
    for n in [0, 1, 31, 32, 33, 64, 70, 500, 512, 768, 1000, 1025, 4000, 3 * 2048, FOLD_BLOCK + 100] {
        let case = place(&mut Random::new(n as u64), listed::normalized(), &[2, 2], &[n]);
        let folded = place(&mut Random::new(n as u64), listed::normalized(), &[2], &[3, n]);
        for form in holding(n) {
            cases.add_as(format!("rows of {n}, {form:?}"), finite(case.clone()), form);
            cases.add_as(format!("rows of {n}, {form:?}, odd numbers"), case.clone(), form);
        }
        for form in holding(3 * n) {
            cases.add_as(format!("rows of 3 x {n}, {form:?}"), finite(folded.clone()), form);
        }
        cases.add(format!("rows of {n}"), case);
    }
    for rows in [1, 3, 4, 5, 31, 33, 3000] {
        let case = place(&mut Random::new(rows as u64), listed::normalized(), &[rows], &[40]);
        cases.add(format!("{rows} rows"), finite(case));
    }
    cases.check();
}

/// Sums of rows that are an operand and rows of a table at indices.
pub(crate) fn sums_of_gathered(rows: usize, lanes: usize, indices: Range<i64>) -> Case {
    let mut case = gathered(rows, lanes, indices);
    let mut b = Builder { kernel: case.kernel };
    let sum = b.kernel.outputs[0].value;
    let total = b.fold(Combine::Sum, &[sum]);
    b.output(DType::F32, total);
    case.kernel = b.kernel;
    let mut of_row = case.geometry.outputs[0].clone();
    (of_row.rows, of_row.inner) = ([4].into_iter().collect(), [0].into_iter().collect());
    case.geometry.outputs.push(of_row);
    case.outputs.push(vec![0xab; 4 * rows]);
    case
}

/// Rows at one index each: the index is checked once, and no invalid row is read.
#[test]
fn folds_of_gathered_rows_check_each_index_once() {
    let mut cases = Cases::default();
    for (rows, lanes) in [(1, 1), (5, 33), (7, 64), (9, 300), (4, 1024)] {
        for indices in [0..9, -2..9, 3..30] {
            for form in forms(lanes) {
                let case = sums_of_gathered(rows, lanes, indices.clone());
                cases.add_as(format!("{rows} x {lanes} at {indices:?}, {form:?}"), case, form);
            }
        }
    }
    for n in [1, 33, 64] {
        for indices in [0..9, -2..9, 3..30] {
            for form in forms(n) {
                let case = by_lane(sums_of_gathered(n, n, indices.clone()));
                cases.add_as(format!("{n} x {n} by lane at {indices:?}, {form:?}"), case, form);
            }
        }
    }
    cases.check();
}

#[test]
fn folds_keep_the_zero_and_the_nan_of_the_interpreter() {
    for combine in [Combine::Max, Combine::Min] {
        in_all_forms(combine, listed::zeros_and_nan);
    }
}

#[test]
fn arg_folds_keep_the_first_extreme_and_the_first_nan() {
    for combine in [Combine::ArgMax, Combine::ArgMin] {
        in_all_forms(combine, listed::worst_and_others);
    }
}

/// Some folds, each in another form than the one before.
fn in_all_forms(combine: Combine, case: fn(Combine, u64) -> Case) {
    let mut cases = Cases::default();
    for seed in 0..60 {
        let case = case(combine, seed);
        let forms = forms(case.geometry.n_inner());
        let form = forms[seed as usize % forms.len()];
        cases.add_as(format!("{combine:?}, seed {seed}, {form:?}"), case, form);
    }
    cases.check();
}

#[test]
fn kernels_of_several_passes_have_the_interpreters_bits() {
    for form in FORMS {
        let mut cases = Cases::default();
        for n in [0, 1, 5, 31, 32, 33, 64, 70, 1000, FOLD_BLOCK + 100] {
            let case = place(&mut Random::new(n as u64), listed::normalized(), &[2, 2], &[n]);
            cases.add_as(format!("rows of {n}, {form:?}"), finite(case.clone()), form);
            cases.add_as(format!("rows of {n}, {form:?}, odd numbers"), case, form);
            let case = place(&mut Random::new(n as u64), listed::normalized(), &[2], &[3, n]);
            cases.add_as(format!("rows of 3 x {n}, {form:?}"), finite(case), form);
        }
        for rows in [1, 3, 4, 5, 31, 32, 33, 100] {
            let case = place(&mut Random::new(rows as u64), listed::normalized(), &[rows], &[40]);
            cases.add_as(format!("{rows} rows, {form:?}"), finite(case), form);
        }
        cases.check();
    }
}

/// Sums of an outer dimension, where neighbouring elements belong to neighbouring rows.
#[test]
fn folds_of_columns_have_the_interpreters_bits() {
    let mut cases = Cases::default();
    for (length, columns) in [(1, 1), (5, 33), (32, 32), (33, 100), (1000, 3), (FOLD_BLOCK + 1, 40)] {
        let mut b = Builder::default();
        let x = b.load(DType::BF16, Source::Memory, Level::Full);
        let sum = b.fold(Combine::Sum, &[x]);
        let scale = b.lit(Lit::f32(1.0 / 3.0));
        let mean = b.prim(Prim::Mul, &[sum, scale]);
        b.output(DType::F32, mean);
        let mut case = contiguous(&b.kernel, length, columns as u64);
        case.geometry.rows = [columns].into_iter().collect();
        case.geometry.operands[0].rows = [2].into_iter().collect();
        case.geometry.operands[0].inner = [2 * columns].into_iter().collect();
        case.geometry.outputs[0].rows = [4].into_iter().collect();
        case.geometry.outputs[0].inner = [0].into_iter().collect();
        case.inputs[0] = buffer(&mut Random::new(length as u64), DType::BF16, length * columns);
        case.outputs[0] = vec![0xa5; 4 * columns];
        case.geometry.lanes = opfuse::internals::codegen::geometry::Lanes::Rows;
        cases.add(format!("{columns} columns of {length}"), case);
    }
    cases.check();
}

/// The third level of blocks, which begins after 64 million elements: the same source with blocks of 64 elements.
#[test]
fn three_levels_of_blocks_have_the_interpreters_bits() {
    const BLOCK: usize = 64;
    fn sum(values: &[f32]) -> f32 {
        if values.len() > BLOCK {
            return sum(&values.chunks(BLOCK).map(sum).collect::<Vec<_>>());
        }
        let mut partial = [0.0f32; 32];
        values.iter().enumerate().for_each(|(index, value)| partial[index % 32] += value);
        for half in [16, 8, 4, 2, 1] {
            (0..half).for_each(|lane| partial[lane] += partial[lane + half]);
        }
        partial[0]
    }
    for n in [BLOCK, BLOCK * BLOCK, BLOCK * BLOCK + 1, 3 * BLOCK * BLOCK + 100, 40 * BLOCK * BLOCK] {
        let values: Vec<f32> = (0..n).map(|index| (index as f32 * 0.37).sin() * 3.0).collect();
        let mut case = contiguous(&listed::folded(Combine::Sum, DType::F32), n, 0);
        case.geometry.outputs[0].inner = [0].into_iter().collect();
        case.inputs[0] = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        case.outputs[0] = vec![0; 4];
        let mut cases = Cases::default();
        cases.add_as(format!("{n} elements"), case, Form::Warps);
        cases.expect_output(&sum(&values).to_le_bytes(), |text| text.replace("BLOCK = 8192", "BLOCK = 64"));
    }
}
