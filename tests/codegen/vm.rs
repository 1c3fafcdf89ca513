//! The vm against the interpreter: random kernels on random geometries, by bits, on every instruction set, whole and in
//! parts.

#![allow(unsafe_code, reason = "launches take raw pointers")]

use crate::effort::seeds;
use opfuse::DType;
use opfuse::internals::codegen::fold::FoldValue;
use opfuse::internals::codegen::kernel::{Inst, Kernel, Kind, Level, Operand, Output, Source};
use opfuse::internals::codegen::vm::{Isa, VmProgram};
use opfuse::internals::codegen::{Access, Faults, Geometry, Lanes, Part, Pointers, interp};
use opfuse::internals::ir::row::Combine;
use opfuse::internals::ir::scalar::{Func, Lit, Prim, Reg, Ty};

/// A small generator of random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Grows a random kernel.
struct Grower {
    random: Random,
    kernel: Kernel,
    /// Whether a register's NaNs have a defined payload.
    canonical: Vec<bool>,
    used: Vec<bool>,
    folds: usize,
}

impl Grower {
    fn grow(seed: u64) -> Kernel {
        let mut random = Random(seed);
        let folds = random.pick(&[0, 0, 1, 1, 2, 3]);
        let mut grower = Grower { random, kernel: Kernel::default(), canonical: Vec::new(), used: Vec::new(), folds };
        for _ in 0..1 + grower.random.below(4) {
            let iota = grower.random.chance(12);
            let dtype = if iota { DType::I64 } else { grower.random.pick(&DType::ALL) };
            let source = if iota { Source::Iota } else { Source::Memory };
            grower.kernel.operands.push(Operand { dtype, source });
        }
        for slot in 0..grower.kernel.operands.len() {
            grower.load(slot);
        }
        let mut left = grower.folds;
        for _ in 0..3 + grower.random.below(22) {
            if left > 0 && grower.random.chance(20) {
                grower.fold();
                left -= 1;
            }
            grower.step();
        }
        for _ in 0..left {
            grower.fold();
        }
        grower.store();
        grower.kernel
    }

    fn push(&mut self, kind: Kind, args: &[Reg], ty: Ty, level: Level, canonical: bool) -> Reg {
        args.iter().for_each(|arg| self.used[arg.index()] = true);
        self.kernel.insts.push(Inst { kind, args: args.iter().copied().collect(), ty, level });
        self.canonical.push(canonical);
        self.used.push(false);
        Reg::new(self.kernel.insts.len() - 1)
    }

    fn level(&mut self) -> Level {
        if self.folds > 0 && self.random.chance(25) { Level::Row } else { Level::Full }
    }

    fn load(&mut self, slot: usize) -> Reg {
        let level = self.level();
        let ty = self.kernel.operands[slot].dtype.compute();
        self.push(Kind::Load(slot as u16), &[], ty, level, true)
    }

    fn lit(&mut self, ty: Ty) -> Reg {
        let small = self.random.below(9) as i64 - 3;
        let lit = match ty {
            Ty::Bool => Lit::bool(small > 0),
            Ty::I32 => Lit::i32(small as i32),
            Ty::I64 => Lit::i64(small),
            Ty::F32 => Lit::f32(self.random.pick(&[small as f32 * 0.5, f32::NAN, -0.0, f32::INFINITY, 1e-40])),
            Ty::F64 => Lit::f64(self.random.pick(&[small as f64 * 0.5, f64::NAN, -0.0, f64::INFINITY, 1e-310])),
        };
        self.push(Kind::Lit(lit), &[], ty, Level::Row, true)
    }

    /// A register of a type: an existing one, a conversion, or a literal.
    fn any(&mut self, ty: Ty) -> Reg {
        let fit: Vec<Reg> =
            (0..self.kernel.insts.len()).map(Reg::new).filter(|&reg| self.kernel.inst(reg).ty == ty).collect();
        if !fit.is_empty() && !self.random.chance(10) {
            // Recent ones more often, so that chains get long.
            let recent = &fit[fit.len().saturating_sub(4)..];
            return if self.random.chance(60) { self.random.pick(recent) } else { self.random.pick(&fit) };
        }
        if self.random.chance(40) {
            return self.lit(ty);
        }
        let from = self.computed();
        let args = [from];
        self.push(Kind::Prim(Prim::Convert(ty)), &args, ty, self.kernel.inst(from).level, !ty.is_float())
    }

    /// A register that is not a literal.
    fn computed(&mut self) -> Reg {
        loop {
            let reg = Reg::new(self.random.below(self.kernel.insts.len()));
            if !matches!(self.kernel.inst(reg).kind, Kind::Lit(_)) {
                return reg;
            }
        }
    }

    /// The register with a defined payload.
    fn canon(&mut self, reg: Reg) -> Reg {
        let inst = self.kernel.inst(reg);
        if self.canonical[reg.index()] {
            return reg;
        }
        let (ty, level) = (inst.ty, inst.level);
        self.push(Kind::Prim(Prim::Canon), &[reg], ty, level, true)
    }

    fn step(&mut self) {
        if self.random.chance(8) {
            let slot = self.random.below(self.kernel.operands.len());
            self.load(slot);
            return;
        }
        if self.random.chance(8) {
            return self.gather();
        }
        if self.random.chance(15) {
            let func = self.random.pick(&Func::ALL);
            let ty = self.random.pick(&[Ty::F32, Ty::F32, Ty::F64]);
            return self.apply(Kind::Func(func), &vec![ty; func.arity()], ty, false);
        }
        let all: Vec<Prim> = Prim::all().collect();
        let prim = self.random.pick(&all);
        let ty = self.random.pick(&Ty::ALL);
        let mut tys = vec![ty; prim.arity()];
        if prim == Prim::Select {
            tys[0] = Ty::Bool;
        }
        let Some(result) = prim.result(&tys) else { return };
        let moves = matches!(
            prim,
            Prim::Select | Prim::Bitcast | Prim::Max | Prim::Min | Prim::Neg | Prim::Abs | Prim::Canon | Prim::RoundF16
        ) || prim == Prim::RoundBF16;
        self.apply(Kind::Prim(prim), &tys, result, moves);
    }

    fn apply(&mut self, kind: Kind, tys: &[Ty], result: Ty, moves: bool) {
        let mut args: Vec<Reg> = tys.iter().map(|&ty| self.any(ty)).collect();
        if moves {
            args = args.into_iter().map(|arg| self.canon(arg)).collect();
        }
        let level = args.iter().map(|&arg| self.kernel.inst(arg).level).max().expect("a prim has arguments");
        if level == Level::Row && self.folds == 0 {
            return;
        }
        self.push(kind, &args, result, level, moves || !result.is_float());
    }

    fn gather(&mut self) {
        let slot = self.random.below(self.kernel.operands.len());
        let index = self.any(Ty::I64);
        let level = self.kernel.inst(index).level.max(self.level());
        let ty = self.kernel.operands[slot].dtype.compute();
        self.push(Kind::Gather(slot as u16), &[index], ty, level, true);
    }

    fn fold(&mut self) {
        let ty = self.random.pick(&Ty::ALL);
        let combine = match ty {
            Ty::Bool => self.random.pick(&[Combine::Any, Combine::All]),
            Ty::I32 | Ty::I64 | Ty::F32 | Ty::F64 => self.random.pick(&[
                Combine::Sum,
                Combine::Prod,
                Combine::Max,
                Combine::Min,
                Combine::ArgMax,
                Combine::ArgMin,
            ]),
        };
        let value = self.any(ty);
        let value = self.canon(value);
        let with_index = matches!(combine, Combine::ArgMax | Combine::ArgMin);
        let args = if with_index { vec![value, self.any(Ty::I64)] } else { vec![value] };
        let ty = if with_index { Ty::I64 } else { ty };
        let canonical = !ty.is_float() || !matches!(combine, Combine::Sum | Combine::Prod);
        self.push(Kind::Fold(combine), &args, ty, Level::Row, canonical);
    }

    /// Stores every unused value, and a few others.
    fn store(&mut self) {
        for index in 0..self.kernel.insts.len() {
            let reg = Reg::new(index);
            let wanted = !self.used[index] || self.random.chance(10);
            let is_lit = matches!(self.kernel.inst(reg).kind, Kind::Lit(_));
            if !wanted || (is_lit && !self.random.chance(20)) {
                continue;
            }
            let ty = self.kernel.inst(reg).ty;
            let fit: Vec<DType> = DType::ALL.into_iter().filter(|dtype| dtype.compute() == ty).collect();
            let dtype = self.random.pick(&fit);
            let level = self.kernel.inst(reg).level;
            let value = match dtype.rounding() {
                // A kernel without folds has no row values but literals.
                Some(_) if level == Level::Row && self.folds == 0 => continue,
                Some(Prim::Canon) | None => self.canon(reg),
                Some(prim) => self.push(Kind::Prim(prim), &[reg], ty, level, true),
            };
            self.kernel.outputs.push(Output { dtype, value });
        }
    }
}

/// A buffer aligned for every dtype.
#[derive(Clone)]
struct Buffer {
    words: Vec<u64>,
    bytes: usize,
}

impl Buffer {
    fn bytes(&self) -> &[u8] {
        // SAFETY: any byte is a valid u8, and the words hold at least that many.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.bytes) }
    }

    /// Interesting values of a dtype.
    fn filled(random: &mut Random, dtype: DType, n: usize) -> Buffer {
        let size = dtype.size();
        let mut buffer = Buffer { words: vec![0; (n * size).div_ceil(8)], bytes: n * size };
        let wild = random.chance(25);
        for element in buffer.bytes_mut().chunks_exact_mut(size) {
            let small = random.below(11) as i64 - 3;
            let (real, bits) = (small as f64 * 0.375 + random.below(64) as f64 / 64.0, random.next());
            let bits = match dtype {
                DType::Bool => bits & 1,
                _ if wild => bits,
                DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => small as u64,
                DType::F16 => half::f16::from_f64(real).to_bits() as u64,
                DType::BF16 => half::bf16::from_f64(real).to_bits() as u64,
                DType::F32 => (real as f32).to_bits() as u64,
                DType::Complex64 | DType::Complex128 => unreachable!("no case is complex"),
                DType::F64 => real.to_bits(),
            };
            element.copy_from_slice(&bits.to_le_bytes()[..size]);
        }
        buffer
    }
}

/// Strides of nested loops in a random order, some of them 0; and the number of elements that they span.
fn layout(random: &mut Random, sizes: &[usize], broadcast: usize, unit: usize) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    if random.chance(30) {
        (1..order.len()).for_each(|i| order.swap(i, random.below(i + 1)));
    }
    let mut strides = vec![0; sizes.len()];
    let mut extent = if random.chance(15) { 2 } else { 1 };
    for &index in order.iter().rev() {
        if !random.chance(broadcast) {
            strides[index] = extent * unit;
            extent *= sizes[index].max(1);
        }
    }
    (strides, extent)
}

struct Case {
    kernel: Kernel,
    geometry: Geometry,
    operands: Vec<Buffer>,
    outputs: Vec<Buffer>,
}

impl Case {
    fn new(seed: u64) -> Case {
        let kernel = Grower::grow(seed);
        kernel.verify().unwrap_or_else(|error| panic!("seed {seed}: {error}\n{kernel}"));
        let mut random = Random(!seed);
        let sizes = [1, 1, 2, 3, 5, 17, 31, 64, 65, 100];
        let long = [0, 1, 7, 32, 63, 64, 200, 1000, 1024, 1500, 2100, 4097];
        let huge = [8192, 8193, 20000];
        let mut rows: Vec<usize> = (0..random.below(3)).map(|_| random.pick(&sizes)).collect();
        let mut inner = vec![if random.chance(8) { random.pick(&huge) } else { random.pick(&long) }];
        if kernel.has_folds() {
            (0..random.pick(&[0, 0, 1, 2])).for_each(|_| inner.insert(0, random.pick(&sizes[..6])));
            if random.chance(20) {
                inner.reverse();
            }
        }
        while rows.iter().chain(&inner).product::<usize>() > 30_000 && !rows.is_empty() {
            rows.pop();
        }
        if rows.len() > 1 && random.chance(4) {
            rows[0] = 0;
        }
        Case::of(kernel, &mut random, &rows, &inner)
    }

    /// Lays out a kernel's memory over loops of these sizes.
    fn of(kernel: Kernel, random: &mut Random, rows: &[usize], inner: &[usize]) -> Case {
        let sizes = [rows, inner].concat();
        let mut case = Case {
            kernel,
            geometry: Geometry {
                rows: rows.iter().copied().collect(),
                inner: inner.iter().copied().collect(),
                operands: Vec::new(),
                outputs: Vec::new(),
                lanes: Lanes::Inner,
            },
            operands: Vec::new(),
            outputs: Vec::new(),
        };
        let split = |strides: &[usize]| {
            (strides[..rows.len()].iter().copied().collect(), strides[rows.len()..].iter().copied().collect())
        };
        for operand in case.kernel.operands.clone() {
            let iota = operand.source == Source::Iota;
            let unit = if iota { 1 } else { operand.dtype.size() };
            let gathered = 1 + random.below(9);
            let with_gather = [&[gathered][..], &sizes[..]].concat();
            let (strides, extent) = layout(random, &with_gather, 25, unit);
            let (rows, inner) = split(&strides[1..]);
            let lead = random.below(3);
            let base = if iota { random.below(100) as i64 - 50 } else { (lead * unit) as i64 };
            case.geometry.operands.push(Access { rows, inner, base, gather: Some((gathered, strides[0])) });
            let n = if iota { 0 } else { extent + lead + 1 };
            case.operands.push(Buffer::filled(random, operand.dtype, n));
        }
        for output in case.kernel.outputs.clone() {
            let unit = output.dtype.size();
            let is_row = case.kernel.has_folds() && case.kernel.inst(output.value).level == Level::Row;
            let over = if is_row { &sizes[..rows.len()] } else { &sizes[..] };
            let (mut strides, extent) = layout(random, over, 0, unit);
            strides.resize(sizes.len(), 0);
            let (rows, inner) = split(&strides);
            case.geometry.outputs.push(Access { rows, inner, base: unit as i64, gather: None });
            let bytes = (extent + 2) * unit;
            case.outputs.push(Buffer { words: vec![0xa5a5_a5a5_a5a5_a5a5; bytes.div_ceil(8)], bytes });
        }
        case
    }

    fn expected(&self) -> (Vec<Buffer>, bool) {
        let (mut outputs, faults) = (self.outputs.clone(), Faults::new());
        let operands: Vec<&[u8]> = self.operands.iter().map(Buffer::bytes).collect();
        let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Buffer::bytes_mut).collect();
        interp::run(&self.kernel, &self.geometry, &operands, &mut slices, &faults);
        (outputs, faults.out_of_range().is_some() || faults.has_zero_divisor())
    }

    /// Runs a launch on fresh outputs.
    fn launch(&self, run: impl FnOnce(Pointers<'_>, &Faults)) -> (Vec<Buffer>, bool) {
        let (mut outputs, faults) = (self.outputs.clone(), Faults::new());
        let operands: Vec<*const u8> = self.operands.iter().map(|buffer| buffer.bytes().as_ptr()).collect();
        let writable: Vec<*mut u8> = outputs.iter_mut().map(|buffer| buffer.bytes_mut().as_mut_ptr()).collect();
        run(Pointers { operands: &operands, outputs: &writable }, &faults);
        (outputs, faults.out_of_range().is_some() || faults.has_zero_divisor())
    }
}

/// The loops of a launch as one part.
fn whole(kernel: &Kernel, geometry: &Geometry) -> Part {
    match geometry.lanes {
        Lanes::Inner if kernel.has_folds() => {
            Part { outer: 0..geometry.n_rows(), lanes: 0..geometry.inner[geometry.inner.len() - 1] }
        }
        Lanes::Inner => Part { outer: 0..geometry.n_rows(), lanes: 0..geometry.n_inner() },
        Lanes::Rows => {
            let (&last, outer) = geometry.rows.split_last().unwrap_or((&1, &[]));
            Part { outer: 0..outer.iter().product(), lanes: 0..last }
        }
    }
}

/// The same loops in several parts.
fn parts(random: &mut Random, kernel: &Kernel, geometry: &Geometry) -> Vec<Part> {
    let whole = whole(kernel, geometry);
    let cut_lanes = geometry.lanes == Lanes::Rows || !kernel.has_folds();
    let outer = random.below(whole.outer.len() + 1);
    let lane = if cut_lanes { random.below(whole.lanes.len() + 1) } else { 0 };
    let mut parts = Vec::new();
    for outer in [outer..whole.outer.end, 0..outer] {
        parts.push(Part { outer: outer.clone(), lanes: lane..whole.lanes.end });
        if lane > 0 {
            parts.push(Part { outer, lanes: 0..lane });
        }
    }
    parts
}

fn check(seed: u64) {
    check_case(&format!("seed {seed}"), Case::new(seed));
}

fn check_case(name: &str, mut case: Case) {
    let expected = case.expected();
    for lanes in [Lanes::Inner, Lanes::Rows] {
        case.geometry.lanes = lanes;
        let classes = case.geometry.classes(&case.kernel);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let program =
                VmProgram::compile_for(isa, &case.kernel, lanes, &classes).expect("this tier takes every kernel");
            let same = |way: &str, got: (Vec<Buffer>, bool)| {
                for (slot, (got, expected)) in got.0.iter().zip(&expected.0).enumerate() {
                    let at = got.bytes().iter().zip(expected.bytes()).position(|(a, b)| a != b);
                    assert!(
                        at.is_none(),
                        "{name}, {isa:?}, {lanes:?}, {way}: out{slot} differs at byte {at:?}\n{}\n{:#?}",
                        case.kernel,
                        case.geometry
                    );
                }
                assert_eq!(got.1, expected.1, "{name}, {isa:?}, {lanes:?}, {way}: faults\n{}", case.kernel);
            };
            let run = |parts: &[Part]| {
                // SAFETY: the interpreter has walked the same geometry on slices of these buffers.
                case.launch(|pointers, faults| unsafe {
                    parts.iter().for_each(|part| program.run(&case.geometry, pointers, part, faults));
                })
            };
            same("whole", run(&[whole(&case.kernel, &case.geometry)]));
            same("parts", run(&parts(&mut Random(case.geometry.n_inner() as u64), &case.kernel, &case.geometry)));
            if program.splits() {
                same("blocks", case.launch(|pointers, faults| run_blocks(&program, &case.geometry, pointers, faults)));
            }
        }
    }
}

/// Every row block by block, last block first.
fn run_blocks(program: &VmProgram, geometry: &Geometry, pointers: Pointers<'_>, faults: &Faults) {
    let (n_blocks, n_folds) = (VmProgram::n_blocks(geometry), program.n_folds());
    for row in 0..geometry.n_rows() {
        let mut values = vec![FoldValue::default(); n_blocks * n_folds];
        for block in (0..n_blocks).rev() {
            let values = &mut values[block * n_folds..(block + 1) * n_folds];
            // SAFETY: as for a whole run.
            unsafe { program.fold_blocks(geometry, pointers, row, block..block + 1, faults, values) };
        }
        // SAFETY: as for a whole run.
        unsafe { program.finish_row(geometry, pointers, row, faults, &values) };
    }
}

#[test]
fn random_kernels_have_the_interpreters_bits() {
    seeds(150, 300).for_each(check);
}

/// Rows with so many partial results that each is finished before the next begins.
#[test]
fn folds_of_wide_rows_have_the_interpreters_bits() {
    let with_folds = (0..).map(|seed| (seed, Grower::grow(seed))).filter(|(_, kernel)| kernel.has_folds());
    for (seed, kernel) in with_folds.take(16) {
        let mut random = Random(seed);
        let width = random.pick(&[513, 600, 1024, 2100]);
        let (rows, inner) = match seed % 4 {
            0 => (vec![width], vec![33]),
            1 => (vec![2, width], vec![3, 20]),
            2 => (vec![width], vec![64, 2]),
            _ => (vec![width], vec![100]),
        };
        check_case(&format!("seed {seed}"), Case::of(kernel, &mut random, &rows, &inner));
    }
    // More than a block, whose last partial results have fewer elements.
    let load = Inst { kind: Kind::Load(0), args: Default::default(), ty: Ty::F32, level: Level::Full };
    let fold = Inst { kind: Kind::Fold(Combine::Sum), args: [Reg::new(0)][..].into(), ty: Ty::F32, level: Level::Row };
    let kernel = Kernel {
        operands: vec![Operand { dtype: DType::F32, source: Source::Memory }],
        insts: vec![load, fold],
        outputs: vec![Output { dtype: DType::F32, value: Reg::new(1) }],
    };
    check_case("blocks", Case::of(kernel, &mut Random(1), &[513], &[8192 + 40]));
}

/// Strided operands that are the same for all outer rows are copied before they are read.
#[test]
fn operands_strided_along_the_rows_have_the_interpreters_bits() {
    for seed in 0..120 {
        let mut random = Random(seed);
        let kernel = Grower::grow(seed);
        let rows = vec![6, random.pick(&[1, 17, 64, 100])];
        let inner =
            if kernel.has_folds() { random.pick(&[&[3][..], &[2, 3], &[0], &[1], &[40], &[4, 1, 5]]) } else { &[7] };
        let mut case = Case::of(kernel, &mut random, &rows, inner);
        case.geometry.operands.iter_mut().for_each(|access| access.rows[0] = 0);
        check_case(&format!("seed {seed}"), case);
    }
}

#[test]
fn a_maximum_is_one_step_and_keeps_nan() {
    let load = |slot| Inst { kind: Kind::Load(slot), args: Default::default(), ty: Ty::F32, level: Level::Full };
    let prim = |prim, args: &[usize], ty| Inst {
        kind: Kind::Prim(prim),
        args: args.iter().map(|&arg| Reg::new(arg)).collect(),
        ty,
        level: Level::Full,
    };
    let operand = Operand { dtype: DType::F32, source: Source::Memory };
    for extreme in [Prim::Max, Prim::Min] {
        let insts = vec![
            load(0),
            load(1),
            prim(Prim::Ne, &[0, 0], Ty::Bool),
            prim(extreme, &[0, 1], Ty::F32),
            prim(Prim::Select, &[2, 0, 3], Ty::F32),
        ];
        let outputs = vec![Output { dtype: DType::F32, value: Reg::new(4) }];
        let kernel = Kernel { operands: vec![operand; 2], insts, outputs };
        let values = [f32::NAN, 1.0, -0.0, 0.0, f32::INFINITY, f32::from_bits(0xffc0_0001)];
        let n = values.len() * values.len();
        let filled = |value: &dyn Fn(usize) -> f32| {
            let mut buffer = Buffer { words: vec![0; n.div_ceil(2)], bytes: n * 4 };
            for (index, element) in buffer.bytes_mut().chunks_exact_mut(4).enumerate() {
                element.copy_from_slice(&value(index).to_le_bytes());
            }
            buffer
        };
        let access = Access { rows: Default::default(), inner: [4].into_iter().collect(), base: 0, gather: None };
        let case = Case {
            kernel,
            geometry: Geometry {
                rows: Default::default(),
                inner: [n].into_iter().collect(),
                operands: vec![access.clone(); 2],
                outputs: vec![access],
                lanes: Lanes::Inner,
            },
            operands: vec![
                filled(&|index| values[index / values.len()]),
                filled(&|index| values[index % values.len()]),
            ],
            outputs: vec![filled(&|_| 7.0)],
        };
        check_case("maximum", case);
    }
}
