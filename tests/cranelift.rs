//! The Cranelift tier against the interpreter, by bits, on seeded random kernels; its memory and its threads.
//!
//! `OPFUSE_SEED=n` runs one random case alone and `OPFUSE_CASES=n` another number of them.

#![allow(unsafe_code, reason = "a program is run on buffers made here")]

use opfuse::codegen::cranelift::Program;
use opfuse::codegen::geometry::{Access, Class, Geometry, Lanes};
use opfuse::codegen::kernel::{Inst, Kernel, Kind, Level, Operand, Output, Source};
use opfuse::codegen::launch::{Faults, Part, Pointers};
use opfuse::codegen::{FOLD_BLOCK, interp};
use opfuse::ir::scalar::{Func, Lit, Prim, Reg, Ty};
use opfuse::ir::{Combine, DType};

/// A small generator; seeds are what failures print.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// Builds kernels; floats that arithmetic made are canonical, because hardware does not define their NaN bits.
#[derive(Default)]
struct Builder {
    kernel: Kernel,
}

impl Builder {
    fn push(&mut self, kind: Kind, args: &[Reg], ty: Ty, level: Level) -> Reg {
        self.kernel.insts.push(Inst { kind, args: args.into(), ty, level });
        Reg(self.kernel.insts.len() as u32 - 1)
    }

    fn load(&mut self, dtype: DType, source: Source, level: Level) -> Reg {
        self.kernel.operands.push(Operand { dtype, source });
        self.push(Kind::Load(self.kernel.operands.len() as u16 - 1), &[], dtype.compute(), level)
    }

    fn lit(&mut self, lit: Lit) -> Reg {
        self.push(Kind::Lit(lit), &[], lit.ty, Level::Row)
    }

    fn ty(&self, reg: Reg) -> Ty {
        self.kernel.inst(reg).ty
    }

    fn level(&self, args: &[Reg]) -> Level {
        args.iter().map(|&reg| self.kernel.inst(reg).level).max().unwrap_or(Level::Row)
    }

    fn prim(&mut self, prim: Prim, args: &[Reg]) -> Reg {
        let tys: Vec<Ty> = args.iter().map(|&reg| self.ty(reg)).collect();
        let ty = prim.result(&tys).expect("operands fit the prim");
        let level = self.level(args);
        let reg = self.push(Kind::Prim(prim), args, ty, level);
        let moves =
            matches!(prim, Prim::Select | Prim::Max | Prim::Min | Prim::Neg | Prim::Abs | Prim::Bitcast | Prim::Canon);
        if ty.is_float() && !moves { self.push(Kind::Prim(Prim::Canon), &[reg], ty, level) } else { reg }
    }

    fn func(&mut self, func: Func, args: &[Reg]) -> Reg {
        let (ty, level) = (self.ty(args[0]), self.level(args));
        let reg = self.push(Kind::Func(func), args, ty, level);
        self.push(Kind::Prim(Prim::Canon), &[reg], ty, level)
    }

    fn fold(&mut self, combine: Combine, args: &[Reg]) -> Reg {
        let indexed = matches!(combine, Combine::ArgMax | Combine::ArgMin);
        let ty = if indexed { Ty::I64 } else { self.ty(args[0]) };
        let reg = self.push(Kind::Fold(combine), args, ty, Level::Row);
        if ty.is_float() { self.push(Kind::Prim(Prim::Canon), &[reg], ty, Level::Row) } else { reg }
    }

    fn output(&mut self, dtype: DType, value: Reg) {
        let value = match dtype.rounding() {
            Some(prim) => self.push(Kind::Prim(prim), &[value], dtype.compute(), self.kernel.inst(value).level),
            None => value,
        };
        self.kernel.outputs.push(Output { dtype, value });
    }
}

/// A kernel on buffers.
struct Case {
    kernel: Kernel,
    geometry: Geometry,
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
}

fn element(random: &mut Random, dtype: DType, out: &mut Vec<u8>) {
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
        DType::F64 => float.to_bits(),
    };
    out.extend_from_slice(&bits.to_le_bytes()[..dtype.size()]);
}

fn buffer(random: &mut Random, dtype: DType, n: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(n * dtype.size());
    (0..n).for_each(|_| element(random, dtype, &mut bytes));
    bytes
}

/// Strides that give every position its own element, or fewer; and the number of elements they span.
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
    let mut strides = |sizes: &[usize], none: bool| -> Vec<usize> {
        let mut strides = vec![0; sizes.len()];
        for (stride, &size) in strides.iter_mut().zip(sizes).rev() {
            if !none {
                *stride = step * bytes;
                step *= size.max(1);
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

fn place(random: &mut Random, kernel: Kernel, rows: &[usize], inner: &[usize]) -> Case {
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
    fn expected(&self) -> Vec<Vec<u8>> {
        let mut outputs = self.outputs.clone();
        let inputs: Vec<&[u8]> = self.inputs.iter().map(Vec::as_slice).collect();
        let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        interp::run(&self.kernel, &self.geometry, &inputs, &mut slices, &Faults::new());
        outputs
    }

    fn classes(&self) -> Vec<Class> {
        self.geometry.classes(&self.kernel).to_vec()
    }

    fn compile(&self) -> Program {
        Program::compile(&self.kernel, Lanes::Inner, &self.classes())
            .unwrap_or_else(|reason| panic!("{reason}\n{}", self.kernel))
    }

    /// The outputs, the launch cut into two parts.
    fn run(&self, program: &Program, cut: usize) -> Vec<Vec<u8>> {
        let mut outputs = self.outputs.clone();
        let operands: Vec<*const u8> = self.inputs.iter().map(|bytes| bytes.as_ptr()).collect();
        let pointers: Vec<*mut u8> = outputs.iter_mut().map(|bytes| bytes.as_mut_ptr()).collect();
        let n_rows = self.geometry.n_rows();
        let lanes = *self.geometry.inner.last().expect("an inner loop");
        let parts = if self.kernel.has_folds() || n_rows > 1 {
            let at = cut % (n_rows + 1);
            [Part { outer: 0..at, lanes: 0..lanes }, Part { outer: at..n_rows, lanes: 0..lanes }]
        } else {
            let at = cut % (lanes + 1);
            [Part { outer: 0..n_rows, lanes: 0..at }, Part { outer: 0..n_rows, lanes: at..lanes }]
        };
        for part in parts {
            let pointers = Pointers { operands: &operands, outputs: &pointers };
            // SAFETY: `interp` ran the same geometry on slices of the same buffers without leaving them, and the
            // outputs are exclusively borrowed here.
            unsafe { program.run(&self.geometry, pointers, &part, &Faults::new()) };
        }
        outputs
    }

    fn check(&self, program: &Program, what: &str, cut: usize) {
        let (expected, found) = (self.expected(), self.run(program, cut));
        for (slot, (expected, found)) in expected.iter().zip(&found).enumerate() {
            if let Some(at) = (0..expected.len()).find(|&at| expected[at] != found[at]) {
                let near = at.saturating_sub(8)..(at + 8).min(expected.len());
                panic!(
                    "{what}: output {slot} differs at byte {at}: expected {:02x?}, found {:02x?}\n{}\n{:?}",
                    &expected[near.clone()],
                    &found[near],
                    self.kernel,
                    self.geometry
                );
            }
        }
    }
}

fn random_lit(random: &mut Random, ty: Ty) -> Lit {
    let mut bytes = Vec::new();
    element(random, ty.dtype(), &mut bytes);
    bytes.resize(8, 0);
    Lit { ty, bits: u64::from_le_bytes(bytes.try_into().expect("eight bytes")) }
}

/// A reg of that type, by preference an existing one.
fn operand(random: &mut Random, b: &mut Builder, ty: Ty, folds: bool) -> Reg {
    let known: Vec<Reg> = (0..b.kernel.insts.len() as u32).map(Reg).filter(|&reg| b.ty(reg) == ty).collect();
    if !known.is_empty() && random.below(8) > 0 {
        // Recent ones, so that kernels grow deep.
        let from = if random.below(2) == 0 { known.len().saturating_sub(3) } else { 0 };
        return known[from + random.below(known.len() - from)];
    }
    let numbers: Vec<Reg> = (0..b.kernel.insts.len() as u32)
        .map(Reg)
        .filter(|&reg| folds || b.kernel.inst(reg).level == Level::Full)
        .collect();
    if random.below(3) == 0 || numbers.is_empty() {
        let lit = random_lit(random, ty);
        return b.lit(lit);
    }
    let from = random.pick(&numbers);
    b.prim(Prim::Convert(ty), &[from])
}

fn random_kernel(random: &mut Random, folds: bool) -> Kernel {
    let mut b = Builder::default();
    for _ in 0..1 + random.below(4) {
        let level = if folds && random.below(4) == 0 { Level::Row } else { Level::Full };
        let iota = random.below(8) == 0;
        let dtype = if iota { DType::I64 } else { random.pick(&DType::ALL) };
        b.load(dtype, if iota { Source::Iota } else { Source::Memory }, level);
    }
    b.load(DType::F32, Source::Memory, Level::Full);
    let prims: Vec<Prim> = Prim::all().collect();
    for _ in 0..1 + random.below(14) {
        if folds && random.below(5) == 0 {
            random_fold(random, &mut b);
            continue;
        }
        if random.below(6) == 0 {
            let func = random.pick(&Func::ALL);
            let ty = random.pick(&[Ty::F32, Ty::F32, Ty::F64]);
            let args: Vec<Reg> = (0..func.arity()).map(|_| operand(random, &mut b, ty, folds)).collect();
            if folds || b.level(&args) == Level::Full {
                b.func(func, &args);
            }
            continue;
        }
        let prim = random.pick(&prims);
        let ty = random.pick(&Ty::ALL);
        let mut tys = vec![ty; prim.arity()];
        if prim == Prim::Select {
            tys[0] = Ty::Bool;
        }
        if prim.result(&tys).is_some() {
            let args: Vec<Reg> = tys.iter().map(|&ty| operand(random, &mut b, ty, folds)).collect();
            if folds || b.level(&args) == Level::Full {
                b.prim(prim, &args);
            }
        }
    }
    if folds {
        random_fold(random, &mut b);
        let last = Reg(b.kernel.insts.len() as u32 - 1);
        let dtype =
            random.pick(&DType::ALL.into_iter().filter(|dtype| dtype.compute() == b.ty(last)).collect::<Vec<_>>());
        b.output(dtype, last);
    }
    for _ in 0..1 + random.below(3) {
        let n = b.kernel.insts.len();
        let value = Reg((n - 1 - random.below(n.min(6))) as u32);
        let dtype =
            random.pick(&DType::ALL.into_iter().filter(|dtype| dtype.compute() == b.ty(value)).collect::<Vec<_>>());
        if folds || b.kernel.inst(value).level == Level::Full || dtype.rounding().is_none() {
            b.output(dtype, value);
        }
    }
    if b.kernel.outputs.is_empty() {
        let full = b.kernel.insts.iter().rposition(|inst| inst.level == Level::Full).expect("a load is full");
        let value = Reg(full as u32);
        b.output(b.ty(value).dtype(), value);
    }
    b.kernel
}

fn random_fold(random: &mut Random, b: &mut Builder) {
    let full: Vec<Reg> =
        (0..b.kernel.insts.len() as u32).map(Reg).filter(|&reg| b.kernel.inst(reg).level == Level::Full).collect();
    let value = random.pick(&full);
    let index = full.iter().copied().find(|&reg| b.ty(reg) == Ty::I64);
    if b.ty(value) == Ty::Bool {
        let combine = random.pick(&[Combine::Any, Combine::All]);
        b.fold(combine, &[value]);
        return;
    }
    let combine =
        random.pick(&[Combine::Sum, Combine::Prod, Combine::Max, Combine::Min, Combine::ArgMax, Combine::ArgMin]);
    match (combine, index) {
        (Combine::ArgMax | Combine::ArgMin, Some(index)) => b.fold(combine, &[value, index]),
        (Combine::ArgMax | Combine::ArgMin, None) => {
            let index = b.prim(Prim::Convert(Ty::I64), &[value]);
            b.fold(combine, &[value, index])
        }
        _ => b.fold(combine, &[value]),
    };
}

fn random_case(seed: u64) -> Case {
    let mut random = Random::new(seed);
    let folds = random.below(2) == 0;
    let kernel = random_kernel(&mut random, folds);
    let n_rows = random.below(3);
    let rows: Vec<usize> = (0..n_rows).map(|_| 1 + random.below(3)).collect();
    let several = folds && random.below(6) == 0;
    let inner = if several { vec![1 + random.below(4), random.below(20)] } else { vec![random.below(71)] };
    place(&mut random, kernel, &rows, &inner)
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

#[test]
fn random_kernels_have_the_bits_of_the_interpreter() {
    let seeds = match setting("OPFUSE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..setting("OPFUSE_CASES").unwrap_or(600),
    };
    for seed in seeds {
        let case = random_case(seed);
        case.check(&case.compile(), &format!("seed {seed}"), seed as usize);
    }
}

/// One full load per type, in the order given, contiguous.
fn loads(b: &mut Builder, tys: &[Ty]) -> Vec<Reg> {
    tys.iter().map(|ty| b.load(ty.dtype(), Source::Memory, Level::Full)).collect()
}

#[test]
fn every_prim_of_every_type() {
    let mut n_kernels = 0;
    for prim in Prim::all() {
        for ty in Ty::ALL {
            let mut tys = vec![ty; prim.arity()];
            if prim == Prim::Select {
                tys[0] = Ty::Bool;
            }
            if prim.result(&tys).is_none() {
                continue;
            }
            n_kernels += 1;
            let mut b = Builder::default();
            let args = loads(&mut b, &tys);
            let value = b.prim(prim, &args);
            b.output(b.ty(value).dtype(), value);
            for (seed, n) in [(1, 67), (2, 1000), (3, 9)] {
                let case = place(&mut Random::new(seed), b.kernel.clone(), &[2], &[n]);
                case.check(&case.compile(), &format!("{} of {ty}", prim.name()), 1);
            }
        }
    }
    assert!(n_kernels > 90, "{n_kernels}");
}

#[test]
fn every_func_of_both_widths() {
    for func in Func::ALL {
        for ty in [Ty::F32, Ty::F64] {
            let mut b = Builder::default();
            let args = loads(&mut b, &vec![ty; func.arity()]);
            let value = b.func(func, &args);
            b.output(ty.dtype(), value);
            let case = place(&mut Random::new(7), b.kernel, &[3], &[501]);
            case.check(&case.compile(), &format!("{} of {ty}", func.name()), 1);
        }
    }
}

#[test]
fn every_dtype_is_read_and_written() {
    for from in DType::ALL {
        for to in DType::ALL {
            let mut b = Builder::default();
            let x = b.load(from, Source::Memory, Level::Full);
            let x = if b.ty(x) == to.compute() { x } else { b.prim(Prim::Convert(to.compute()), &[x]) };
            b.output(to, x);
            for seed in 0..12 {
                let case = place(&mut Random::new(seed), b.kernel.clone(), &[2], &[150]);
                case.check(&case.compile(), &format!("{from} to {to}, seed {seed}"), 1);
            }
        }
    }
}

fn folded(combine: Combine, dtype: DType) -> Kernel {
    let mut b = Builder::default();
    let x = b.load(dtype, Source::Memory, Level::Full);
    let value = if matches!(combine, Combine::ArgMax | Combine::ArgMin) {
        let index = b.load(DType::I64, Source::Iota, Level::Full);
        b.fold(combine, &[x, index])
    } else {
        b.fold(combine, &[x])
    };
    b.output(b.ty(value).dtype(), value);
    b.kernel
}

fn fold_cases() -> Vec<(Combine, DType)> {
    let numbers = [Combine::Sum, Combine::Prod, Combine::Max, Combine::Min, Combine::ArgMax, Combine::ArgMin];
    let dtypes = [DType::F32, DType::F64, DType::I32, DType::I64, DType::F16, DType::U8];
    let pairs = numbers.into_iter().flat_map(|combine| dtypes.into_iter().map(move |dtype| (combine, dtype)));
    pairs.chain([(Combine::Any, DType::Bool), (Combine::All, DType::Bool)]).collect()
}

#[test]
fn folds_of_every_short_length() {
    for (combine, dtype) in fold_cases() {
        let kernel = folded(combine, dtype);
        for n in 0..=70 {
            let case = place(&mut Random::new(n as u64), kernel.clone(), &[3], &[n]);
            case.check(&case.compile(), &format!("{combine:?} of {n} {dtype}"), 1);
        }
    }
}

#[test]
fn folds_of_several_blocks() {
    for (combine, dtype) in fold_cases() {
        for n in [FOLD_BLOCK - 1, FOLD_BLOCK, FOLD_BLOCK + 1, 3 * FOLD_BLOCK + 37] {
            let case = place(&mut Random::new(n as u64), folded(combine, dtype), &[2], &[n]);
            case.check(&case.compile(), &format!("{combine:?} of {n} {dtype}"), 1);
        }
    }
    let n = 34 * FOLD_BLOCK + 5;
    let case = place(&mut Random::new(1), folded(Combine::Sum, DType::F32), &[], &[n]);
    case.check(&case.compile(), "a sum of more blocks than lanes", 0);
}

/// `(x - mean) / sqrt(var + eps)` and the softmax of it: five passes, one with a dear value that a later one reads.
fn normalized() -> Kernel {
    let mut b = Builder::default();
    let x = b.load(DType::F32, Source::Memory, Level::Full);
    let sum = b.fold(Combine::Sum, &[x]);
    let scale = b.lit(Lit::f32(1.0 / 1024.0));
    let mean = b.prim(Prim::Mul, &[sum, scale]);
    let centered = b.prim(Prim::Sub, &[x, mean]);
    let square = b.prim(Prim::Mul, &[centered, centered]);
    let variance = b.fold(Combine::Sum, &[square]);
    let eps = b.lit(Lit::f32(1e-5));
    let variance = b.prim(Prim::Add, &[variance, eps]);
    let scale = b.func(Func::Rsqrt, &[variance]);
    let normal = b.prim(Prim::Mul, &[centered, scale]);
    let max = b.fold(Combine::Max, &[normal]);
    let shifted = b.prim(Prim::Sub, &[normal, max]);
    let e = b.func(Func::Exp, &[shifted]);
    let total = b.fold(Combine::Sum, &[e]);
    let soft = b.prim(Prim::Div, &[e, total]);
    b.output(DType::F32, normal);
    b.output(DType::F32, soft);
    b.output(DType::F32, variance);
    b.kernel
}

#[test]
fn several_passes() {
    for n in (0..=70).chain([1024, FOLD_BLOCK + 100]) {
        let case = place(&mut Random::new(n as u64), normalized(), &[2, 2], &[n]);
        case.check(&case.compile(), &format!("rows of {n}"), 1);
        let case = place(&mut Random::new(n as u64), normalized(), &[2], &[3, n]);
        case.check(&case.compile(), &format!("rows of 3 x {n}"), 1);
    }
}

#[test]
fn loops_are_rotated() {
    let text =
        Program::emit_text(&normalized(), &[Class::Contiguous, Class::Contiguous, Class::Contiguous, Class::Uniform])
            .expect("the kernel is expressible");
    let mut blocks: Vec<(usize, String)> = Vec::new();
    for line in text.lines().map(str::trim) {
        let name = line.strip_prefix("block").filter(|_| line.ends_with(':'));
        if let Some(name) = name {
            let digits: String = name.chars().take_while(char::is_ascii_digit).collect();
            blocks.push((digits.parse().expect("a block number"), String::new()));
        } else if let Some((_, body)) = blocks.last_mut() {
            body.push_str(line);
            body.push('\n');
        }
    }
    let mut n_loops = 0;
    for (at, (_, body)) in blocks.iter().enumerate() {
        let end = body.trim_end().lines().last().expect("a block has a terminator");
        let back = blocks[..=at].iter().any(|(number, _)| {
            end.contains(&format!("block{number}("))
                || end.contains(&format!("block{number},"))
                || end.ends_with(&format!("block{number}"))
        });
        if back {
            n_loops += 1;
            assert!(end.starts_with("brif"), "a loop is closed by a jump to a test on top: {end}\n{text}");
        }
        // What a row computes once is outside the loops over its elements: those are blocks that lead to themselves.
        if end.contains(&format!("block{}(", blocks[at].0)) {
            assert!(!body.contains("sqrt"), "the row's square root is inside a loop\n{text}");
        }
    }
    // The row loop; per fold one over blocks, two of vectors and a tail, or one of vectors where it is dear.
    assert!(n_loops >= 1 + 4 * 3 + 2, "{n_loops} loops\n{text}");
    assert!(text.contains("sqrt"));
}

#[test]
fn what_cannot_be_expressed_is_declined() {
    let kernel = folded(Combine::Sum, DType::F32);
    assert!(Program::compile(&kernel, Lanes::Rows, &[Class::Contiguous, Class::Uniform]).is_err());
    let mut b = Builder::default();
    let at = b.load(DType::I64, Source::Memory, Level::Full);
    b.kernel.operands.push(Operand { dtype: DType::F32, source: Source::Memory });
    let value = b.push(Kind::Gather(1), &[at], Ty::F32, Level::Full);
    b.output(DType::F32, value);
    let reason = Program::compile(&b.kernel, Lanes::Inner, &[Class::Contiguous; 3]).expect_err("gathers are declined");
    assert!(reason.to_string().contains("gather"), "{reason}");
}

#[test]
fn an_output_may_replace_an_operand() {
    let mut b = Builder::default();
    let args = loads(&mut b, &[Ty::F32, Ty::F32]);
    let sum = b.prim(Prim::Add, &args);
    let value = b.prim(Prim::Mul, &[sum, args[0]]);
    b.output(DType::F32, value);
    let access = || Access { rows: [].into_iter().collect(), inner: [4].into_iter().collect(), base: 0, gather: None };
    for n in 0..70usize {
        let geometry = Geometry {
            rows: [].into_iter().collect(),
            inner: [n].into_iter().collect(),
            operands: vec![access(), access()],
            outputs: vec![access()],
            lanes: Lanes::Inner,
        };
        let program = Program::compile(&b.kernel, Lanes::Inner, &[Class::Contiguous; 3]).expect("it is expressible");
        let mut x: Vec<f32> = (0..n).map(|i| i as f32 - 3.0).collect();
        let y: Vec<f32> = (0..n).map(|i| i as f32 * 0.5).collect();
        let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| (x + y) * x).collect();
        let target = x.as_mut_ptr();
        let pointers =
            Pointers { operands: &[target.cast_const().cast(), y.as_ptr().cast()], outputs: &[target.cast()] };
        // SAFETY: `x` and `y` have `n` elements; the output coincides with the first operand element for element.
        unsafe { program.run(&geometry, pointers, &Part { outer: 0..1, lanes: 0..n }, &Faults::new()) };
        assert_eq!(x, expected);
    }
}

/// Mappings of this process that hold code made at run time.
#[cfg(target_os = "linux")]
fn code_mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("linux lists a process's mappings");
    let own = |line: &&str| line.contains("r-x") && line.split_whitespace().count() == 5;
    maps.lines().filter(own).count()
}

#[test]
#[cfg(target_os = "linux")]
fn dropped_programs_give_their_memory_back() {
    let case = place(&mut Random::new(3), folded(Combine::Sum, DType::F32), &[2], &[50]);
    let kept: Vec<Program> = (0..300).map(|_| case.compile()).collect();
    let with_kept = code_mappings();
    drop(kept);
    let before = code_mappings();
    assert!(with_kept > before, "programs that live hold mappings: {with_kept}, without them {before}");
    for round in 0..1000 {
        let program = case.compile();
        if round % 100 == 0 {
            case.check(&program, "a fresh program", 1);
        }
    }
    let after = code_mappings();
    // Other tests run at the same time and hold a few.
    assert!(after < before + 50, "mappings grew from {before} to {after}");
}

#[test]
fn threads_compile_and_run_at_the_same_time() {
    let shared = random_case(17);
    let program = shared.compile();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (shared, program) = (&shared, &program);
            scope.spawn(move || {
                for seed in 0..40 {
                    shared.check(program, "a shared program", seed);
                    let case = random_case(1000 + thread * 40 + seed as u64);
                    case.check(&case.compile(), &format!("seed {}", 1000 + thread * 40 + seed as u64), seed);
                }
            });
        }
    });
}
