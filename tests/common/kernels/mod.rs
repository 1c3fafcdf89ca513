//! Kernels on buffers for the tests of code generators: how they are built and placed in memory, what the interpreter
//! computes, and a list of them.

pub(crate) mod listed;
#[allow(dead_code, reason = "these tests use a part of the generator")]
#[path = "../../same_bits/random.rs"]
mod numbers;
pub(crate) mod random;

pub(crate) use numbers::Random;

use opfuse::internals::codegen::geometry::{Access, Geometry, Lanes};
use opfuse::internals::codegen::interp;
use opfuse::internals::codegen::kernel::{Inst, Kernel, Kind, Level, Operand, Output, Source};
use opfuse::internals::codegen::launch::Faults;
use opfuse::internals::ir::row::Combine;
use opfuse::internals::ir::scalar::{Func, Lit, Prim, Reg, Ty};
use opfuse::ir::DType;

/// Builds kernels; floats that arithmetic made are canonical, because hardware does not define their NaN bits.
#[derive(Default)]
pub(crate) struct Builder {
    pub(crate) kernel: Kernel,
}

impl Builder {
    pub(crate) fn push(&mut self, kind: Kind, args: &[Reg], ty: Ty, level: Level) -> Reg {
        self.kernel.insts.push(Inst { kind, args: args.into(), ty, level });
        Reg::new(self.kernel.insts.len() - 1)
    }

    pub(crate) fn load(&mut self, dtype: DType, source: Source, level: Level) -> Reg {
        self.kernel.operands.push(Operand { dtype, source });
        self.push(Kind::Load(self.kernel.operands.len() as u16 - 1), &[], dtype.compute(), level)
    }

    pub(crate) fn lit(&mut self, lit: Lit) -> Reg {
        self.push(Kind::Lit(lit), &[], lit.ty, Level::Row)
    }

    pub(crate) fn ty(&self, reg: Reg) -> Ty {
        self.kernel.inst(reg).ty
    }

    pub(crate) fn level(&self, args: &[Reg]) -> Level {
        args.iter().map(|&reg| self.kernel.inst(reg).level).max().unwrap_or(Level::Row)
    }

    pub(crate) fn prim(&mut self, prim: Prim, args: &[Reg]) -> Reg {
        let tys: Vec<Ty> = args.iter().map(|&reg| self.ty(reg)).collect();
        let ty = prim.result(&tys).expect("operands fit the prim");
        let level = self.level(args);
        let reg = self.push(Kind::Prim(prim), args, ty, level);
        let moves =
            matches!(prim, Prim::Select | Prim::Max | Prim::Min | Prim::Neg | Prim::Abs | Prim::Bitcast | Prim::Canon);
        if ty.is_float() && !moves { self.push(Kind::Prim(Prim::Canon), &[reg], ty, level) } else { reg }
    }

    pub(crate) fn func(&mut self, func: Func, args: &[Reg]) -> Reg {
        let (ty, level) = (self.ty(args[0]), self.level(args));
        let reg = self.push(Kind::Func(func), args, ty, level);
        self.push(Kind::Prim(Prim::Canon), &[reg], ty, level)
    }

    pub(crate) fn fold(&mut self, combine: Combine, args: &[Reg]) -> Reg {
        let indexed = matches!(combine, Combine::ArgMax | Combine::ArgMin);
        let ty = if indexed { Ty::I64 } else { self.ty(args[0]) };
        let reg = self.push(Kind::Fold(combine), args, ty, Level::Row);
        if ty.is_float() { self.push(Kind::Prim(Prim::Canon), &[reg], ty, Level::Row) } else { reg }
    }

    pub(crate) fn output(&mut self, dtype: DType, value: Reg) {
        let value = match dtype.rounding() {
            Some(prim) => self.push(Kind::Prim(prim), &[value], dtype.compute(), self.kernel.inst(value).level),
            None => value,
        };
        self.kernel.outputs.push(Output { dtype, value });
    }
}

/// A kernel on buffers.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) kernel: Kernel,
    pub(crate) geometry: Geometry,
    pub(crate) inputs: Vec<Vec<u8>>,
    pub(crate) outputs: Vec<Vec<u8>>,
}

pub(crate) fn element(random: &mut Random, dtype: DType, out: &mut Vec<u8>) {
    let odd = random.below(4) == 0;
    let small = random.below(200) as i64 - 100;
    let float = if odd {
        let nan = f64::from_bits(0x7ff8_0000_0000_0000 | (random.next() & (1 << 63)));
        random.pick(&[
            0.0,
            -0.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            nan,
            1e-40,
            -1e-310,
            1e30,
            3e38,
            65519.9,
            2147483648.0,
            9.3e18,
            0.5,
            2.5,
        ])
    } else {
        small as f64 / 16.0 + random.below(1000) as f64 * 1e-5
    };
    let int = if odd {
        random.pick(&[
            i64::MIN,
            i64::MAX,
            i32::MIN as i64,
            i32::MAX as i64,
            255,
            128,
            -129,
            (1 << 40) + 1,
            (1 << 53) + 1,
        ])
    } else {
        small
    };
    let bits = match dtype {
        DType::Bool => (int & 1) as u64,
        DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => int as u64,
        DType::F16 => random.next() & 0xffff,
        DType::BF16 => (float as f32).to_bits() as u64 >> 16,
        DType::F32 => (float as f32).to_bits() as u64,
        DType::Complex64 | DType::Complex128 => unreachable!("no case is complex"),
        DType::F64 => float.to_bits(),
    };
    out.extend_from_slice(&bits.to_le_bytes()[..dtype.size()]);
}

pub(crate) fn buffer(random: &mut Random, dtype: DType, n: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(n * dtype.size());
    (0..n).for_each(|_| element(random, dtype, &mut bytes));
    bytes
}

/// Strides that give every position its own element, or share some; and the number of elements they span.
fn access(
    random: &mut Random,
    rows: &[usize],
    inner: &[usize],
    bytes: usize,
    unique: bool,
    per_row: bool,
) -> (Access, usize) {
    let mut step = if unique && random.below(3) > 0 { 1 } else { random.pick(&[1, 1, 2, 3]) };
    let uniform = !unique && random.below(4) == 0;
    // Gaps between the runs of a loop keep a program from walking two loops as one.
    let gap = random.below(2) * 3;
    let mut strides = |sizes: &[usize], none: bool| -> Vec<usize> {
        let mut strides = vec![0; sizes.len()];
        for (stride, &size) in strides.iter_mut().zip(sizes).rev() {
            if !none {
                *stride = step * bytes;
                step = step * size.max(1) + gap;
            }
        }
        strides
    };
    let inner_strides = strides(inner, per_row || uniform);
    let row_strides = strides(rows, !unique && random.below(4) == 0);
    let base = random.below(3);
    let access = Access {
        rows: row_strides.into_iter().collect(),
        inner: inner_strides.into_iter().collect(),
        base: (base * bytes) as i64,
        gather: None,
    };
    (access, base + step + 1)
}

pub(crate) fn place(random: &mut Random, kernel: Kernel, rows: &[usize], inner: &[usize]) -> Case {
    kernel.verify().unwrap_or_else(|error| panic!("{error}\n{kernel}"));
    let mut geometry =
        Geometry { rows: rows.into(), inner: inner.into(), operands: vec![], outputs: vec![], lanes: Lanes::Inner };
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for (slot, operand) in kernel.operands.iter().enumerate() {
        let per_row = kernel.insts.iter().any(|inst| inst.kind == Kind::Load(slot as u16) && inst.level == Level::Row);
        let bytes = if operand.source == Source::Iota { 1 } else { operand.dtype.size() };
        let (access, n) = access(random, rows, inner, bytes, false, per_row);
        geometry.operands.push(access);
        inputs.push(if operand.source == Source::Iota { Vec::new() } else { buffer(random, operand.dtype, n) });
    }
    for output in &kernel.outputs {
        let per_row = kernel.has_folds() && kernel.inst(output.value).level == Level::Row && random.below(3) > 0;
        let (access, n) = access(random, rows, inner, output.dtype.size(), true, per_row);
        geometry.outputs.push(access);
        outputs.push(vec![0xa5; n * output.dtype.size()]);
    }
    Case { kernel, geometry, inputs, outputs }
}

impl Case {
    /// The outputs by the interpreter, and the faults that it finds.
    pub(crate) fn expected(&self) -> (Vec<Vec<u8>>, Faults) {
        let (mut outputs, faults) = (self.outputs.clone(), Faults::new());
        let inputs: Vec<&[u8]> = self.inputs.iter().map(Vec::as_slice).collect();
        let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        interp::run(&self.kernel, &self.geometry, &inputs, &mut slices, &faults);
        (outputs, faults)
    }
}
