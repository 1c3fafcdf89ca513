//! Planted bugs: a change of the text that a device would punish has to be seen under some schedule.

use crate::check::Cases;
use crate::emulator;
use crate::kernels::{Random, listed, place};
use crate::pointwise::{chain, contiguous};
use crate::rows::finite;
use opfuse::codegen::cuda::Form;
use opfuse::ir::scalar::{Prim, Ty};
use opfuse::ir::{Combine, DType};

/// What is changed, from, to, and a word of what is said about it (nothing where bits differ).
type Mutant = (&'static str, &'static str, &'static str, &'static str);

fn check(cases: &Cases, mutants: &[Mutant]) {
    assert_eq!(cases.check_mutant(|text| text), Ok(()), "the text as it is");
    for (name, from, to, said) in mutants {
        let seen = cases.check_mutant(|text| {
            assert!(text.contains(from), "{name}: {from:?} is not there\n{text}");
            text.replace(from, to)
        });
        let why = seen.err().unwrap_or_else(|| panic!("{name} is not seen"));
        assert!(why.contains(said), "{name}: {why}");
    }
}

const TOUCHED: &str = "memory outside all buffers";
const DIFFERS: &str = "differs";

#[test]
fn of_pointwise_kernels() {
    if !emulator::is_available() {
        return;
    }
    let mut cases = Cases::default();
    cases.add("in line", contiguous(&chain(), 1003, 1));
    check(
        &cases,
        &[
            (
                "a load behind the last element",
                "if (n == V) {\n        UNROLL for (int k = 0; k < Raw::PIECES",
                "if (true) {\n        UNROLL for (int k = 0; k < Raw::PIECES",
                "memory",
            ),
            (
                "a store behind the last element",
                "if (k < n) ((typename D::Stored*)to)",
                "((typename D::Stored*)to)",
                "",
            ),
            ("elements out of place", "* 4;", "* 5;", ""),
        ],
    );
    let mut cases = Cases::default();
    cases.add_as("by element", contiguous(&chain(), 1003, 1), Form::Pointwise { width: 1 });
    check(&cases, &[("a grid without an end", "if (item >= (u32)w.at[2]) return;", "", "")]);
    let mut cases = Cases::default();
    cases.add("rows", place(&mut Random::new(1), listed::transposed(DType::F32, 1, 1, 1).kernel, &[3, 5], &[7]));
    check(
        &cases,
        &[("a remainder that is not taken", "p1 = (int)(row - p1_above * (u32)w.at[8])", "p1 = (int)row", "")],
    );
    let mut cases = Cases::default();
    let nan = |&(_, prim, ref kernel): &(String, Prim, _)| {
        let kernel: &opfuse::codegen::kernel::Kernel = kernel;
        prim == Prim::Convert(Ty::I64) && kernel.operands[0].dtype == DType::F64
    };
    let (name, _, kernel) = listed::of_prims().into_iter().find(nan).expect("the conversion is a prim");
    cases.add(name, contiguous(&kernel, 1000, 2));
    check(
        &cases,
        &[("a NaN that becomes the least integer", "is_nan(a) ? 0 : __double2ll_rz(a)", "__double2ll_rz(a)", DIFFERS)],
    );
}

#[test]
fn of_warps() {
    if !emulator::is_available() {
        return;
    }
    for form in [Form::Warps, Form::Blocks] {
        let mut cases = Cases::default();
        for n in [40, 8192 * 3 + 50] {
            cases.add_as(
                format!("{n} elements"),
                finite(place(&mut Random::new(n as u64), listed::normalized(), &[6], &[n])),
                form,
            );
        }
        check(
            &cases,
            &[
                ("a short tree", "half > 0; half /= 2) x =", "half > 1; half /= 2) x =", DIFFERS),
                ("a shuffle to the wrong lane", "lane_down(x, half));", "lane_down(x, half / 2));", DIFFERS),
                ("a result that one lane alone has", "return lane_first(x);", "return x;", DIFFERS),
                ("elements in another order", "i += LANES) {", "i += 1) {", DIFFERS),
                (
                    "a thread that leaves its warp",
                    "Warp team =",
                    "if (thread_x() % 32u == 31u) return;\n    Warp team =",
                    "not met by all",
                ),
                ("a row that is not there", "if (item >= (u32)w.at[2]) return;", "", ""),
            ],
        );
    }
    let mut cases = Cases::default();
    let mut sum = contiguous(&listed::folded(Combine::Sum, DType::F32), 8192 * 20 + 50, 1);
    sum.geometry.outputs[0].inner = [0].into_iter().collect();
    cases.add_as("blocks", finite(sum), Form::Warps);
    check(
        &cases,
        &[("a block for the wrong lane", "if (number % LANES == team.lane)", "if (0 == team.lane)", DIFFERS)],
    );
}

#[test]
fn of_columns() {
    if !emulator::is_available() {
        return;
    }
    let mut cases = Cases::default();
    // A row behind the last is outside of memory if rows have elements of their own.
    let apart = (0..)
        .map(|seed| place(&mut Random::new(seed), listed::normalized(), &[37], &[50]))
        .find(|case| case.geometry.operands[0].rows[0] > 0)
        .expect("three of four placements are so");
    cases.add_as("columns", finite(apart), Form::Columns);
    check(
        &cases,
        &[
            ("no barrier in front of the tree", "*own = x;\n        barrier();", "*own = x;", DIFFERS),
            ("no barrier between steps", "own[half * LANES]);\n            barrier();", "own[half * LANES]);", DIFFERS),
            (
                "no barrier behind the tree",
                "[row];\n        // The next tree writes to the same slots.\n        barrier();",
                "[row];",
                DIFFERS,
            ),
            (
                "a thread that leaves its block",
                "Column team =",
                "if (!live) return;\n    Column team =",
                "not met by all",
            ),
            ("a row that is not there", "live ? item : (u32)w.at[0] - 1", "item", TOUCHED),
            ("slots that are not there", "SHARED(uint4, slots, 1024)", "SHARED(uint4, slots, 100)", TOUCHED),
            ("slots of a neighbour", "(lane * LANES + row)", "(lane * LANES + row / 2)", DIFFERS),
        ],
    );
}
