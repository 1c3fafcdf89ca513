//! Kernels without folds: every length and alignment, prim, func and dtype, and strided, transposed and gathered
//! operands.

use crate::check::Cases;
use crate::emulator;
use crate::kernels::{Builder, Case, Random, buffer, listed, place};
use crate::rows;
use opfuse::internals::codegen::cuda::Form;
use opfuse::internals::codegen::geometry::{Access, Geometry, Lanes};
use opfuse::internals::codegen::kernel::{Kernel, Kind, Level, Operand, Source};
use opfuse::internals::ir::scalar::{Lit, Prim, Ty};
use opfuse::ir::DType;
use std::ops::Range;

/// A kernel on contiguous elements.
pub(crate) fn contiguous(kernel: &Kernel, n: usize, seed: u64) -> Case {
    let mut random = Random::new(seed);
    let access = |unit: usize| Access {
        rows: [].into_iter().collect(),
        inner: [unit].into_iter().collect(),
        base: 0,
        gather: None,
    };
    let is_memory = |source| source == Source::Memory;
    let operands = kernel.operands.iter();
    let outputs = kernel.outputs.iter();
    Case {
        kernel: kernel.clone(),
        geometry: Geometry {
            rows: [].into_iter().collect(),
            inner: [n].into_iter().collect(),
            operands: operands
                .clone()
                .map(|operand| access(if is_memory(operand.source) { operand.dtype.size() } else { 1 }))
                .collect(),
            outputs: outputs.clone().map(|output| access(output.dtype.size())).collect(),
            lanes: Lanes::Inner,
        },
        inputs: operands
            .map(|operand| buffer(&mut random, operand.dtype, if is_memory(operand.source) { n } else { 0 }))
            .collect(),
        outputs: outputs.map(|output| vec![0xa5; n * output.dtype.size()]).collect(),
    }
}

/// `max(x * y + 1, x)` of f32.
pub(crate) fn chain() -> Kernel {
    let mut b = Builder::default();
    let args = listed::loads(&mut b, &[Ty::F32, Ty::F32]);
    let product = b.prim(Prim::Mul, &args);
    let one = b.lit(Lit::f32(1.0));
    let sum = b.prim(Prim::Add, &[product, one]);
    let value = b.prim(Prim::Max, &[sum, args[0]]);
    b.output(DType::F32, value);
    b.kernel
}

#[test]
fn every_length_and_alignment_has_the_interpreters_bits() {
    let mut cases = Cases::default();
    for n in (0..=17).chain([31, 32, 33, 255, 256, 257, 1000, 1023, 1024, 1025, 8193]) {
        cases.add(format!("{n} elements"), contiguous(&chain(), n, n as u64));
        for shift in 1..4 {
            cases.add_at(format!("{n} elements, {shift} behind"), contiguous(&chain(), n, 7), |_| shift);
            cases.add_at(format!("{n} elements, one {shift} behind"), contiguous(&chain(), n, 9), |slot| {
                if slot == 2 { shift } else { 0 }
            });
        }
    }
    cases.check();
}

#[test]
fn every_prim_has_the_interpreters_bits() {
    let mut cases = Cases::default();
    for (name, _, kernel) in listed::of_prims() {
        cases.add(&name, contiguous(&kernel, 1000, 2));
        cases.add(&name, place(&mut Random::new(1), kernel, &[2], &[67]));
    }
    cases.check();
}

#[test]
fn every_func_has_the_interpreters_bits() {
    let mut cases = Cases::default();
    for (name, kernel) in listed::of_funcs() {
        cases.add(&name, contiguous(&kernel, 1000, 7));
    }
    cases.check();
}

#[test]
fn every_dtype_is_read_and_written() {
    let mut cases = Cases::default();
    for (name, kernel) in listed::of_dtypes() {
        cases.add(&name, contiguous(&kernel, 1003, 5));
        cases.add_at(format!("{name}, not aligned"), contiguous(&kernel, 33, 6), |slot| slot);
        cases.add(format!("{name}, strided"), place(&mut Random::new(3), kernel, &[2], &[50]));
    }
    cases.check();
}

/// All 16-bit floats, and floats about halfway between two of them.
#[test]
fn every_half_and_every_tie_is_rounded_right() {
    let mut cases = Cases::default();
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let ties = |exponent_and_up: u32| -> Vec<u8> {
        let near =
            |high: u32| [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xfff, 0x1000, 0x1001, 0x3000].map(|low| high << 16 | low);
        (0..1 << 16).step_by(exponent_and_up as usize).flat_map(near).flat_map(u32::to_le_bytes).collect()
    };
    for dtype in [DType::F16, DType::BF16] {
        let mut b = Builder::default();
        let x = b.load(dtype, Source::Memory, Level::Full);
        b.output(DType::F32, x);
        let mut case = contiguous(&b.kernel, 1 << 16, 0);
        case.inputs[0].copy_from_slice(&all);
        cases.add(format!("all of {dtype}"), case);
        let mut b = Builder::default();
        let x = b.load(DType::F32, Source::Memory, Level::Full);
        b.output(dtype, x);
        let numbers = ties(7);
        let mut case = contiguous(&b.kernel, numbers.len() / 4, 0);
        case.inputs[0].copy_from_slice(&numbers);
        cases.add(format!("to {dtype}"), case);
    }
    cases.check();
}

/// Threads with several vectors: the last ones of a block, of a row, and rows without any.
#[test]
fn threads_compute_several_vectors() {
    let mut cases = Cases::default();
    for (width, vectors) in [(1, 2), (1, 8), (2, 4), (4, 1), (4, 2), (4, 4)] {
        let form = Form::Pointwise { width, vectors };
        let block = 256 * width * vectors;
        for n in [0, 1, width + 1, 256 * width - 1, 256 * width + 1, block - 1, block, block + 1, 2 * block + 5] {
            cases.add_as(format!("{n} elements, {form:?}"), contiguous(&chain(), n, n as u64), form);
        }
        for (rows, lanes) in [(1, 1), (3, 31), (7, 64), (2, 1000), (900, 4)] {
            let suits = lanes % width == 0;
            let form = if suits { form } else { Form::Pointwise { width: 1, vectors } };
            cases.add_as(format!("{rows} x {lanes}, {form:?}"), broadcast(rows, lanes), form);
        }
    }
    let kernel = listed::of_dtypes().into_iter().find(|(name, _)| name == "bf16 to f32").expect("the pair is listed").1;
    for n in [2047, 2048, 8 * 2048 + 9] {
        cases.add_as(format!("{n} of bf16"), contiguous(&kernel, n, 1), Form::Pointwise { width: 8, vectors: 4 });
    }
    let long = contiguous(&chain(), 4 * 512 * 1024 + 3, 1);
    cases.add("a grid that is large enough", long);
    cases.check();
}

/// The sum of an operand and of rows of a table at indices, which lie one per row.
pub(crate) fn gathered(rows: usize, lanes: usize, indices: Range<i64>) -> Case {
    let mut b = Builder::default();
    let index = b.load(DType::I64, Source::Memory, Level::Full);
    b.kernel.operands.push(Operand { dtype: DType::F32, source: Source::Memory });
    let element = b.push(Kind::Gather(1), &[index], Ty::F32, Level::Full);
    let y = b.load(DType::F32, Source::Memory, Level::Full);
    let sum = b.prim(Prim::Add, &[element, y]);
    b.output(DType::F32, sum);
    let mut case = several_rows(&b.kernel, rows, lanes);
    let strides = [[8, 0], [0, 4], [4 * lanes, 4], [4 * lanes, 4]];
    let accesses = case.geometry.operands.iter_mut().chain(&mut case.geometry.outputs);
    for (access, [row, lane]) in accesses.zip(strides) {
        access.rows = [row].into_iter().collect();
        access.inner = [lane].into_iter().collect();
    }
    let stride = 4 * (lanes + 4);
    case.geometry.operands[1].gather = Some((9, stride));
    case.inputs[0] = indices.cycle().take(rows).flat_map(i64::to_le_bytes).collect();
    case.inputs[1] = buffer(&mut Random::new(rows as u64), DType::F32, 9 * stride / 4);
    case
}

/// The same, but `case` has as many lanes as rows, and the indices lie one per lane.
pub(crate) fn by_lane(mut case: Case) -> Case {
    let index = &mut case.geometry.operands[0];
    (index.rows, index.inner) = ([0].into_iter().collect(), [8].into_iter().collect());
    case
}

/// Rows of a table at indices, of which some are outside of it.
#[test]
fn gathered_rows_have_the_interpreters_bits_and_faults() {
    let mut cases = Cases::default();
    for (rows, lanes) in [(1, 1), (5, 33), (7, 64), (40, 300)] {
        for indices in [0..9, -2..9, 3..30] {
            let name = format!("{rows} x {lanes} at {indices:?}");
            let case = gathered(rows, lanes, indices);
            cases.add(name.clone(), case.clone());
            cases.add_as(name.clone(), case.clone(), Form::Pointwise { width: 1, vectors: 4 });
            if lanes % 4 == 0 {
                cases.add_as(name, case, Form::Pointwise { width: 4, vectors: 2 });
            }
        }
    }
    for n in [1, 9, 40] {
        for indices in [0..9, -2..9, 3..30] {
            cases.add(format!("{n} x {n} by lane at {indices:?}"), by_lane(gathered(n, n, indices)));
        }
    }
    cases.check();
}

#[test]
fn transposed_operands_are_read_through_shared_memory() {
    let mut cases = Cases::default();
    let sizes =
        [(1, 16, 64), (2, 37, 300), (3, 50, 17), (1, 100, 513), (2, 15, 40), (1, 31, 33), (2, 32, 32), (1, 64, 65)];
    let narrow = [DType::U8, DType::I16, DType::F16, DType::BF16];
    for dtype in [DType::F32, DType::F64, DType::I64].into_iter().chain(narrow) {
        for (batch, rows, lanes) in sizes {
            let is_narrow = narrow.contains(&dtype);
            let of = |dtype| listed::transposed(dtype, batch, rows, lanes);
            let case = if is_narrow { narrowed(of(dtype.compute().dtype()), dtype) } else { of(dtype) };
            let mut turned = case.clone();
            turned.geometry.rows.swap(0, 1);
            let accesses = turned.geometry.operands.iter_mut().chain(&mut turned.geometry.outputs);
            accesses.for_each(|access| access.rows.swap(0, 1));
            cases.add(format!("{batch} x {rows} x {lanes} of {dtype}"), case);
            cases.add(format!("{rows} x {batch} x {lanes} of {dtype}"), turned);
        }
    }
    cases.check();
}

/// Operands with positive and negative strides that are the same in every row.
#[test]
fn operands_shared_by_all_rows_are_read() {
    let mut cases = Cases::default();
    for dtype in [DType::F32, DType::F64, DType::I32] {
        for (rows, lanes) in [(&[8][..], 64), (&[37], 301), (&[3, 5], 17), (&[64], 1)] {
            for folds in [false, true] {
                let name = format!("{rows:?} x {lanes} of {dtype}, folds {folds}");
                cases.add(name, listed::gathered(dtype, rows, lanes, folds));
            }
        }
    }
    cases.check();
}

/// Every second to seventh element of a line, whose last element ends the memory.
#[test]
fn strided_elements_are_read() {
    let mut cases = Cases::default();
    for dtype in [DType::F32, DType::I64] {
        for (rows, lanes, apart) in [(1, 300, [2, 1]), (7, 15, [3, 4]), (2, 1025, [2, 7])] {
            cases
                .add(format!("{rows} x {lanes} of {dtype}, {apart:?}"), listed::interleaved(dtype, rows, lanes, apart));
        }
    }
    cases.check();
}

/// The case with operands of a narrower dtype, in as many elements.
fn narrowed(mut case: Case, dtype: DType) -> Case {
    let times = case.kernel.operands[0].dtype.size() / dtype.size();
    case.kernel.operands.iter_mut().for_each(|operand| operand.dtype = dtype);
    for access in &mut case.geometry.operands {
        access.rows.iter_mut().chain(&mut access.inner).for_each(|stride| *stride /= times);
        access.base /= times as i64;
    }
    for bytes in &mut case.inputs {
        *bytes = buffer(&mut Random::new(3), dtype, bytes.len() / times / dtype.size());
    }
    case
}

/// Indices of 64 bits, where 32 would do and where they would not.
#[test]
fn indices_of_64_bits_reach_everything() {
    let mut cases = Cases::default();
    let pointwise = [(1, 1), (1, 4), (4, 1), (4, 2)].map(|(width, vectors)| Form::Pointwise { width, vectors });
    for form in pointwise {
        cases.add_wide(format!("in line, {form:?}"), contiguous(&chain(), 3001, 1), form);
        cases.add_wide(format!("rows, {form:?}"), broadcast(40, 100), form);
    }
    let tiles = Form::Tiles { along: 1, transposed: 3 };
    cases.add_wide("squares", listed::transposed(DType::F32, 3, 37, 70), tiles);
    for form in rows::FORMS.into_iter().chain(rows::holding(900)) {
        let normalized = place(&mut Random::new(1), listed::normalized(), &[2, 3], &[9, 100]);
        cases.add_wide(format!("rows, {form:?}"), normalized, form);
    }
    for form in pointwise {
        cases.add_apart(format!("apart, {form:?}"), several_rows(&chain(), 2, 1000), form);
    }
    for form in rows::FORMS.into_iter().chain(rows::holding(1000)) {
        let mut case = rows::finite(several_rows(&listed::normalized(), 2, 1000));
        case.geometry.outputs[2].rows = [4].into_iter().collect();
        case.geometry.outputs[2].inner = [0].into_iter().collect();
        case.outputs[2].truncate(8);
        cases.add_apart(format!("apart, {form:?}"), case, form);
    }
    // A matrix and its transpose: one has distant lines, the other distant elements.
    let mut b = Builder::default();
    let args = listed::loads(&mut b, &[Ty::F32, Ty::F32]);
    let sum = b.prim(Prim::Add, &args);
    b.output(DType::F32, sum);
    let mut case = several_rows(&b.kernel, 2, 50);
    case.geometry.operands[0].inner = [8].into_iter().collect();
    case.geometry.operands[0].rows = [4].into_iter().collect();
    cases.add_wide("lines of a square", case, Form::Tiles { along: 0, transposed: 1 });
    cases.check();
}

/// A kernel on rows of contiguous elements.
pub(crate) fn several_rows(kernel: &Kernel, rows: usize, lanes: usize) -> Case {
    let mut case = contiguous(kernel, rows * lanes, 5);
    case.geometry.rows = [rows].into_iter().collect();
    case.geometry.inner = [lanes].into_iter().collect();
    let accesses = case.geometry.operands.iter_mut().chain(&mut case.geometry.outputs);
    accesses.for_each(|access| access.rows = [access.inner[0] * lanes].into_iter().collect());
    case
}

/// A row operand, a column operand and a dense one: two results.
pub(crate) fn broadcast(rows: usize, lanes: usize) -> Case {
    let mut b = Builder::default();
    let args = listed::loads(&mut b, &[Ty::F32, Ty::F32, Ty::F32]);
    let product = b.prim(Prim::Mul, &args[..2]);
    let sum = b.prim(Prim::Add, &[product, args[2]]);
    b.output(DType::F32, sum);
    b.output(DType::BF16, product);
    let mut case = several_rows(&b.kernel, rows, lanes);
    let strides = [[4 * lanes, 4], [0, 4], [4, 0], [4 * lanes, 4], [2 * lanes, 2]];
    let accesses = case.geometry.operands.iter_mut().chain(&mut case.geometry.outputs);
    for (access, [row, lane]) in accesses.zip(strides) {
        access.rows = [row].into_iter().collect();
        access.inner = [lane].into_iter().collect();
    }
    case
}

/// Rows whose length is no multiple of a vector.
#[test]
fn rows_and_columns_are_broadcast() {
    let mut cases = Cases::default();
    for (rows, lanes) in [(1, 1), (3, 31), (32, 33), (7, 64), (5, 1000), (257, 4), (2, 8193)] {
        cases.add(format!("{rows} x {lanes}"), broadcast(rows, lanes));
    }
    cases.check();
}

/// The emulator detects a misaligned vector, which a device would refuse.
#[test]
fn a_misaligned_vector_is_refused() {
    if !emulator::is_available() {
        return;
    }
    let mut cases = Cases::default();
    cases.add_as_at("four floats", contiguous(&chain(), 64, 1), Form::Pointwise { width: 4, vectors: 1 }, 8);
    let why = cases.check_mutant(|text| text).expect_err("the vector is not aligned");
    assert!(why.contains("not aligned"), "{why}");
}
