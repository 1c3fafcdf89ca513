//! Kernels without folds: every length and alignment, prim, func and dtype, and operands that are read out of line.

use crate::check::Cases;
use crate::emulator;
use crate::kernels::{Builder, Case, Random, buffer, listed, place};
use opfuse::codegen::cuda::Form;
use opfuse::codegen::geometry::{Access, Geometry, Lanes};
use opfuse::codegen::kernel::{Kernel, Level, Source};
use opfuse::ir::DType;
use opfuse::ir::scalar::{Lit, Prim, Ty};

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
fn every_length_and_alignment() {
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
fn every_prim_of_every_type() {
    let mut cases = Cases::default();
    for (name, _, kernel) in listed::of_prims() {
        cases.add(&name, contiguous(&kernel, 1000, 2));
        cases.add(&name, place(&mut Random::new(1), kernel, &[2], &[67]));
    }
    cases.check();
}

#[test]
fn every_func_of_both_widths() {
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
fn every_half_and_every_tie() {
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

#[test]
fn transposed_operands() {
    let mut cases = Cases::default();
    for dtype in [DType::F32, DType::F64, DType::I64] {
        for (batch, rows, lanes) in [(1, 16, 64), (2, 37, 300), (3, 50, 17), (1, 100, 513), (2, 15, 40)] {
            cases.add(format!("{batch} x {rows} x {lanes} of {dtype}"), listed::transposed(dtype, batch, rows, lanes));
        }
    }
    cases.check();
}

/// A row of operands that stay, of a column, and of elements in line, in vectors that end within rows.
#[test]
fn rows_and_columns() {
    let mut cases = Cases::default();
    for (rows, lanes) in [(1, 1), (3, 31), (32, 33), (7, 64), (5, 1000), (257, 4), (2, 8193)] {
        let mut b = Builder::default();
        let args = listed::loads(&mut b, &[Ty::F32, Ty::F32, Ty::F32]);
        let product = b.prim(Prim::Mul, &args[..2]);
        let sum = b.prim(Prim::Add, &[product, args[2]]);
        b.output(DType::F32, sum);
        b.output(DType::BF16, product);
        let mut case = contiguous(&b.kernel, rows * lanes, lanes as u64);
        case.geometry.rows = [rows].into_iter().collect();
        case.geometry.inner = [lanes].into_iter().collect();
        let strides = [[4 * lanes, 4], [0, 4], [4, 0], [4 * lanes, 4], [2 * lanes, 2]];
        let accesses = case.geometry.operands.iter_mut().chain(&mut case.geometry.outputs);
        for (access, [row, lane]) in accesses.zip(strides) {
            access.rows = [row].into_iter().collect();
            access.inner = [lane].into_iter().collect();
        }
        cases.add(format!("{rows} x {lanes}"), case);
    }
    cases.check();
}

/// A vector at an address that a device refuses is seen.
#[test]
fn a_vector_that_is_not_aligned_is_refused() {
    if !emulator::is_available() {
        return;
    }
    let mut cases = Cases::default();
    cases.add_as_at("four floats", contiguous(&chain(), 64, 1), Form::Pointwise { width: 4 }, 8);
    let why = cases.check_mutant(|text| text).expect_err("the vector is not aligned");
    assert!(why.contains("not aligned"), "{why}");
}
