//! The tiers that make machine code against the interpreter, by bits, on seeded random kernels; the memory of code, and
//! threads.
//!
//! `OPFUSE_SEED=n` runs one random case alone and `OPFUSE_FUZZ=n` another number of them.

#![allow(unsafe_code, reason = "a program is run on buffers made here")]

mod angles;
mod case;
mod text;

use crate::effort::seeds;
use crate::kernels::listed::{fold_cases, folded, loads, normalized, worst_and_others, zeros_and_nan};
use crate::kernels::random::random_case;
use crate::kernels::{Builder, Case, Random, listed, place};
use case::Checked;
use opfuse::internals::codegen::FOLD_BLOCK;
use opfuse::internals::codegen::geometry::{Access, Class, Geometry, Lanes};
use opfuse::internals::codegen::kernel::{Kind, Level, Operand, Source};
use opfuse::internals::codegen::launch::{Faults, Part, Pointers};
use opfuse::internals::codegen::native::NativeProgram;
use opfuse::internals::codegen::{cranelift, x64};
use opfuse::internals::ir::row::Combine;
use opfuse::internals::ir::scalar::{Func, Lit, Prim, Ty};
use opfuse::ir::DType;

#[test]
fn random_kernels_have_the_bits_of_the_interpreter() {
    for seed in seeds(600, 1200) {
        let case = random_case(seed);
        case.check_all(&format!("seed {seed}"), seed as usize);
    }
}

#[test]
fn every_prim_has_the_interpreters_bits() {
    let kernels: Vec<_> = listed::of_prims().into_iter().filter(|(_, prim, _)| !prim.is_by_element()).collect();
    assert!(kernels.len() > 90, "{}", kernels.len());
    for (name, _, kernel) in kernels {
        for (seed, n) in [(1, 67), (2, 1000), (3, 9)] {
            let case = place(&mut Random::new(seed), kernel.clone(), &[2], &[n]);
            case.check_all(&name, 1);
        }
    }
}

#[test]
fn every_func_has_the_interpreters_bits() {
    for (name, kernel) in listed::of_funcs() {
        let case = place(&mut Random::new(7), kernel, &[3], &[501]);
        case.check_all(&name, 1);
    }
}

#[test]
fn every_dtype_is_read_and_written() {
    for (name, kernel) in listed::of_dtypes() {
        for seed in 0..12 {
            let case = place(&mut Random::new(seed), kernel.clone(), &[2], &[150]);
            case.check_all(&format!("{name}, seed {seed}"), 1);
        }
    }
}

/// Half of the elements lie near some numbers; the others have random bits.
fn fill(bytes: &mut [u8], ty: Ty, edges: &[f64], seed: u64) {
    let (mut random, wide) = (Random::new(seed), ty == Ty::F64);
    for element in bytes.chunks_exact_mut(ty.size()) {
        let near = random.pick(edges) * (1.0 + (random.below(4001) as f64 - 2000.0) * 1e-5);
        let any = random.next();
        match (wide, random.below(2) == 0) {
            (true, true) => element.copy_from_slice(&near.to_bits().to_le_bytes()),
            (true, false) => element.copy_from_slice(&any.to_le_bytes()),
            (false, true) => element.copy_from_slice(&(near as f32).to_bits().to_le_bytes()),
            (false, false) => element.copy_from_slice(&(any as u32).to_le_bytes()),
        }
    }
}

/// In a body with another division, machine code multiplies instead. Copies of such a body are staggered.
#[test]
fn tanh_in_a_body_with_a_division_has_the_interpreters_bits() {
    let mut b = Builder::default();
    let x = loads(&mut b, &[Ty::F32])[0];
    let tanh = b.push(Kind::Func(Func::Tanh), &[x], Ty::F32, Level::Full);
    let sigmoid = b.push(Kind::Func(Func::Sigmoid), &[x], Ty::F32, Level::Full);
    let both = b.prim(Prim::Mul, &[tanh, sigmoid]);
    let ratio = b.prim(Prim::Div, &[both, x]);
    [tanh, ratio].into_iter().for_each(|value| b.output(DType::F32, value));
    let text = x64::emit_text(x64::Level::Avx512, &b.kernel, &[Class::Contiguous; 3]).expect("it is expressible");
    assert!(text.contains("vrcp14ps") && text.contains("vdivps"), "{text}");
    let edges = [1e-40, 1e-20, 1e-8, 1e-4, 0.01, 0.3, 0.549, 0.9, 1.2, 2.0, 4.0, 9.01, -0.5, -3.0, -20.0];
    let mut case = place(&mut Random::new(6), b.kernel, &[], &[200_000]);
    case.inputs.iter_mut().for_each(|bytes| fill(bytes, Ty::F32, &edges, 3));
    case.check_all("tanh beside a division", 1);
}

/// A square root and a division by it compete for the divider.
#[test]
fn reciprocals_of_roots_have_the_interpreters_bits() {
    let mut b = Builder::default();
    let x = loads(&mut b, &[Ty::F32])[0];
    // No canonical form of its NaN is needed, because no output shows it.
    let root = b.push(Kind::Prim(Prim::Sqrt), &[x], Ty::F32, Level::Full);
    let one = b.lit(Lit::f32(1.0));
    let inverse = b.prim(Prim::Div, &[one, root]);
    b.output(DType::F32, inverse);
    let text = x64::emit_text(x64::Level::Avx512, &b.kernel, &[Class::Contiguous; 2]).expect("it is expressible");
    assert!(text.contains("vrcp14ps") && !text.contains("vdivps"), "{text}");
    // The root of the number below 4 has a mantissa of ones alone.
    let below_4 = f64::from(f32::from_bits(4.0_f32.to_bits() - 1));
    let edges = [0.0, -0.0, -1.0, 1e-45, 1e-40, 1e-38, 1.0, below_4, 4.0, 3e38, f64::INFINITY, f64::NAN];
    let mut case = place(&mut Random::new(8), b.kernel, &[], &[200_000]);
    case.inputs.iter_mut().for_each(|bytes| fill(bytes, Ty::F32, &edges, 4));
    case.check_all("one over a root", 1);
}

/// Machine code has shortcuts to scale by powers of two, which must not change the bits at the ends of the range.
#[test]
fn exponentials_have_the_interpreters_bits_everywhere() {
    let edges = [
        -150.0, -149.0, -126.0, -110.2, -109.5, -104.0, -103.3, -87.4, -10.93, -0.3, 0.3, 8.0, 88.7, 89.0, 127.9,
        128.0, 710.0, -746.0, -753.0,
    ];
    let activations = [Func::Sigmoid, Func::Silu, Func::GeluTanh, Func::Mish];
    let others = [Func::Exp, Func::Exp2, Func::Expm1, Func::Tanh, Func::Erf, Func::Erfc, Func::Erfinv, Func::Pow];
    let gammas = [Func::Lgamma, Func::Digamma, Func::Trigamma];
    for func in [&activations[..], &others, &gammas].concat() {
        for ty in [Ty::F32, Ty::F64] {
            let mut case = place(&mut Random::new(5), listed::of_func(func, ty), &[], &[40_000]);
            case.inputs.iter_mut().zip(0..).for_each(|(bytes, seed)| fill(bytes, ty, &edges, seed));
            case.check_all(&format!("{} of {ty}", func.name()), 1);
        }
    }
}

#[test]
fn short_folds_have_the_interpreters_bits() {
    for (combine, dtype) in fold_cases() {
        let kernel = folded(combine, dtype);
        for n in 0..=70 {
            let case = place(&mut Random::new(n as u64), kernel.clone(), &[3], &[n]);
            case.check_all(&format!("{combine:?} of {n} {dtype}"), 1);
        }
    }
}

#[test]
fn folds_keep_the_zero_and_the_nan_of_the_interpreter() {
    check_folds([Combine::Max, Combine::Min], 200, zeros_and_nan);
}

#[test]
fn arg_folds_keep_the_first_extreme_and_the_first_nan() {
    check_folds([Combine::ArgMax, Combine::ArgMin], 400, worst_and_others);
}

/// Checks each of two folds on so many random cases.
fn check_folds(combines: [Combine; 2], seeds: u64, case: fn(Combine, u64) -> Case) {
    for combine in combines {
        (0..seeds).for_each(|seed| case(combine, seed).check_all(&format!("{combine:?}, seed {seed}"), 1));
    }
}

#[test]
fn folds_of_several_blocks_have_the_interpreters_bits() {
    for (combine, dtype) in fold_cases() {
        for n in [FOLD_BLOCK - 1, FOLD_BLOCK, FOLD_BLOCK + 1, 3 * FOLD_BLOCK + 37] {
            let case = place(&mut Random::new(n as u64), folded(combine, dtype), &[2], &[n]);
            case.check_all(&format!("{combine:?} of {n} {dtype}"), 1);
        }
    }
    let n = 34 * FOLD_BLOCK + 5;
    let case = place(&mut Random::new(1), folded(Combine::Sum, DType::F32), &[], &[n]);
    case.check_all("a sum of more blocks than lanes", 0);
}

#[test]
fn kernels_of_several_passes_have_the_interpreters_bits() {
    for n in (0..=70).chain([1024, FOLD_BLOCK + 100]) {
        let case = place(&mut Random::new(n as u64), normalized(), &[2, 2], &[n]);
        case.check_all(&format!("rows of {n}"), 1);
        let case = place(&mut Random::new(n as u64), normalized(), &[2], &[3, n]);
        case.check_all(&format!("rows of 3 x {n}"), 1);
    }
}

#[test]
fn loops_are_rotated() {
    let text =
        cranelift::emit_text(&normalized(), &[Class::Contiguous, Class::Contiguous, Class::Contiguous, Class::Uniform])
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
        // Values of a row are computed outside the loops over its elements. A loop is a block that jumps to itself.
        if end.contains(&format!("block{}(", blocks[at].0)) {
            assert!(!body.contains("sqrt"), "the row's square root is inside a loop\n{text}");
        }
    }
    // The row loop. Per fold one loop over blocks, two of vectors and a tail, or one of vectors where it is expensive.
    assert!(n_loops >= 1 + 4 * 3 + 2, "{n_loops} loops\n{text}");
    assert!(text.contains("sqrt"));
}

#[test]
fn what_cannot_be_expressed_is_declined() {
    let mut b = Builder::default();
    let at = b.load(DType::I64, Source::Memory, Level::Full);
    b.kernel.operands.push(Operand { dtype: DType::F32, source: Source::Memory });
    let value = b.push(Kind::Gather(1), &[at], Ty::F32, Level::Full);
    b.output(DType::F32, value);
    let reason =
        cranelift::compile(&b.kernel, Lanes::Inner, &[Class::Contiguous; 3]).expect_err("gathers are declined");
    assert!(reason.to_string().contains("gather"), "{reason}");
    let mut b = Builder::default();
    let args = loads(&mut b, &[Ty::I64, Ty::I64]);
    let value = b.prim(Prim::Quot, &args);
    b.output(DType::I64, value);
    let reason =
        cranelift::compile(&b.kernel, Lanes::Inner, &[Class::Contiguous; 3]).expect_err("divisions are declined");
    assert!(reason.to_string().contains("zero divisor"), "{reason}");
}

/// Transposed operands are copied patch by patch.
#[test]
fn transposed_operands_have_the_interpreters_bits() {
    for dtype in [DType::F32, DType::F64, DType::I64] {
        for (batch, rows, lanes) in [(1, 16, 64), (2, 37, 300), (3, 50, 17), (1, 100, 513), (1, 131, 259), (2, 15, 40)]
        {
            let case = listed::transposed(dtype, batch, rows, lanes);
            for cut in [0, 1, 20] {
                case.check_all(&format!("{batch} x {rows} x {lanes} of {dtype}"), cut);
            }
        }
    }
}

/// Operands with small strides, which machine code deinterleaves.
#[test]
fn deinterleaved_operands_have_the_interpreters_bits() {
    for dtype in [DType::F32, DType::F64, DType::I64, DType::I32] {
        for (rows, lanes) in [(1, 16), (7, 15), (3, 300), (9, 64), (2, 2500), (70, 33), (2, 1024), (4, 0)] {
            for apart in [[2, 1], [2, 2], [3, 4], [5, 2], [7, 16], [4, 3]] {
                let case = listed::interleaved(dtype, rows, lanes, apart);
                for cut in [0, 1, 20] {
                    case.check_all(&format!("{rows} x {lanes} of {dtype}, {apart:?} apart"), cut);
                }
            }
        }
    }
}

/// Strided operands that are the same in every row are gathered once.
#[test]
fn gathered_operands_have_the_interpreters_bits() {
    for dtype in [DType::F32, DType::F64, DType::I64, DType::I32] {
        for (rows, lanes) in
            [(&[8][..], 64), (&[37], 301), (&[3, 5], 17), (&[9], 2), (&[2], 40), (&[64], 1), (&[10], 0)]
        {
            for folds in [false, true] {
                let case = listed::gathered(dtype, rows, lanes, folds);
                for cut in [0, 1, 5] {
                    case.check_all(&format!("{rows:?} x {lanes} of {dtype}, folds {folds}"), cut);
                }
            }
        }
    }
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
        let classes = [Class::Contiguous; 3];
        let by_cranelift = cranelift::compile(&b.kernel, Lanes::Inner, &classes).expect("it is expressible");
        let by_x64 = x64::Level::ALL.map(|level| x64::compile(level, &b.kernel, Lanes::Inner, &classes));
        for program in by_x64.into_iter().flatten().chain([by_cranelift]) {
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
}

/// Mappings of this process that hold code made at run time, and their pages. The system may join neighbours, so that
/// many programs are one mapping.
#[cfg(target_os = "linux")]
fn code_mappings() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("linux lists a process's mappings");
    let own = |line: &&str| line.contains("r-x") && line.split_whitespace().count() == 5;
    let address = |text: &str| usize::from_str_radix(text, 16).expect("addresses are hexadecimal");
    let bytes = |line: &str| {
        let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
        range.map_or(0, |(start, end)| address(end) - address(start))
    };
    let lines = || maps.lines().filter(own);
    (lines().count(), lines().map(bytes).sum::<usize>() / 4096)
}

/// Compiles a kernel again and again.
#[cfg(target_os = "linux")]
fn memory_comes_back(compile: impl Fn() -> NativeProgram, check: impl Fn(&NativeProgram)) {
    let kept: Vec<NativeProgram> = (0..300).map(|_| compile()).collect();
    let (_, with_kept) = code_mappings();
    drop(kept);
    let (before, pages_before) = code_mappings();
    assert!(with_kept > pages_before, "programs that live hold pages: {with_kept}, without them {pages_before}");
    for round in 0..1000 {
        let program = compile();
        if round % 100 == 0 {
            check(&program);
        }
    }
    let (after, pages_after) = code_mappings();
    // Other tests run at the same time and hold a few.
    assert!(after < before + 50, "mappings grew from {before} to {after}");
    assert!(pages_after < pages_before + 500, "pages grew from {pages_before} to {pages_after}");
}

#[test]
#[cfg(target_os = "linux")]
fn dropped_programs_give_their_memory_back() {
    let case = place(&mut Random::new(3), folded(Combine::Sum, DType::F32), &[2], &[50]);
    for (number, (tier, _)) in case.programs().into_iter().enumerate() {
        let compile = || case.programs().swap_remove(number).1;
        memory_comes_back(compile, |program| case.check(program, &format!("a fresh program of {tier}"), 1));
    }
}

#[test]
fn threads_compile_and_run_at_the_same_time() {
    let shared = random_case(17);
    let programs = shared.programs();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (shared, programs) = (&shared, &programs);
            scope.spawn(move || {
                for seed in 0..40 {
                    programs.iter().for_each(|(tier, program)| shared.check(program, tier, seed));
                    let case = random_case(1000 + thread * 40 + seed as u64);
                    case.check_all(&format!("seed {}", 1000 + thread * 40 + seed as u64), seed);
                }
            });
        }
    });
}
