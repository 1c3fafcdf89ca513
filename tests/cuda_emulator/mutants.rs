//! Planted bugs: a change of the source that is wrong on a device has to be detected under some schedule.

use crate::check::Cases;
use crate::effort::is_left_out;
use crate::emulator;
use crate::kernels::{Builder, Random, listed, place};
use crate::pointwise::{broadcast, by_lane, chain, contiguous, gathered, several_rows};
use crate::rows::{finite, sums_of_gathered};
use opfuse::internals::codegen::cuda::Form;
use opfuse::internals::ir::row::Combine;
use opfuse::internals::ir::scalar::{Prim, Ty};
use opfuse::ir::DType;
use std::ops::Range;

/// The name of a bug, from, to, and a part of the message (empty where bits differ).
type Mutant = (&'static str, &'static str, &'static str, &'static str);

fn check(cases: &Cases, mutants: &[Mutant]) {
    assert_eq!(cases.check_mutant(|text| text), Ok(()), "the unchanged source");
    for (name, from, to, said) in mutants {
        let seen = cases.check_mutant(|text| {
            assert!(text.contains(from), "{name}: {from:?} is not there\n{text}");
            text.replace(from, to)
        });
        let why = seen.err().unwrap_or_else(|| panic!("{name} is not detected"));
        assert!(why.contains(said), "{name}: {why}");
    }
}

const TOUCHED: &str = "memory outside all buffers";
const DIFFERS: &str = "differs";

#[test]
fn bugs_of_pointwise_kernels_are_detected() {
    if is_left_out() || !emulator::is_available() {
        return;
    }
    let mut cases = Cases::default();
    cases.add("in line", contiguous(&chain(), 1000, 1));
    check(
        &cases,
        &[("vectors that are not there", "const bool live = next < items;", "const bool live = true;", TOUCHED)],
    );
    let mut cases = Cases::default();
    cases.add("in line", contiguous(&chain(), 1003, 1));
    check(
        &cases,
        &[
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
    let narrowed = listed::of_dtypes().into_iter().find(|(name, _)| name == "f32 to bf16").expect("the pair is listed");
    cases.add("two accesses per vector", contiguous(&narrowed.1, 1003, 1));
    check(
        &cases,
        &[(
            "a load behind the last element",
            "if (n == V) {\n        load_vector",
            "if (true) {\n        load_vector",
            TOUCHED,
        )],
    );
    let mut cases = Cases::default();
    cases.add_as("several", broadcast(9, 200), Form::Pointwise { width: 1, vectors: 4 });
    check(&cases, &[("vectors that a block shares", "first + u * 256u", "first + u * 255u", "")]);
    let mut cases = Cases::default();
    cases.add("squares", listed::transposed(DType::F32, 2, 37, 70));
    check(
        &cases,
        &[
            ("no barrier behind a square", "barrier();\n    UNROLL", "UNROLL", DIFFERS),
            ("a line that is not there", "if (across <", "if (true || across <", TOUCHED),
            ("a square of another place", "[thread_x() * 33 + line]", "[line * 33 + thread_x()]", DIFFERS),
            ("squares that are left out", "/ 32;", "/ 64;", DIFFERS),
        ],
    );
    let mut cases = Cases::default();
    cases.add("rows", place(&mut Random::new(1), listed::transposed(DType::F32, 1, 1, 1).kernel, &[3, 5], &[7]));
    check(
        &cases,
        &[("a remainder that is not taken", "p1 = (int)(row - p1_above * (u32)w.at[9])", "p1 = (int)row", "")],
    );
    let mut cases = Cases::default();
    let nan = |&(_, prim, ref kernel): &(String, Prim, _)| {
        let kernel: &opfuse::internals::codegen::kernel::Kernel = kernel;
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
fn bugs_of_faults_are_detected() {
    if is_left_out() || !emulator::is_available() {
        return;
    }
    const TOLD: &str = "faults are not those";
    let mut b = Builder::default();
    let args = listed::loads(&mut b, &[Ty::I64, Ty::I64]);
    let value = b.prim(Prim::Rem, &args);
    b.output(DType::I64, value);
    let of_divisors = |divisor: fn(usize) -> i64| {
        let mut case = contiguous(&b.kernel, 1003, 1);
        case.inputs[1] = (0..1003).flat_map(|at| divisor(at).to_le_bytes()).collect();
        let mut cases = Cases::default();
        cases.add("a remainder", case);
        cases
    };
    check(&of_divisors(|_| 3), &[("a lane behind the end", "if (k < n && v1 == 0)", "if (v1 == 0)", TOLD)]);
    check(
        &of_divisors(|at| at as i64 % 7),
        &[
            ("a zero that is not told", "if (k < n && v1 == 0)", "if (false)", TOLD),
            ("a launch without a name", "record[0] = site << 8 | 255", "record[0] = 255", TOLD),
        ],
    );
    const SEEN: &str = "if (live && (u64)v0 >=";
    let of_indices = |indices: Range<i64>| {
        let mut cases = Cases::default();
        cases.add("rows at indices", gathered(5, 33, indices));
        cases
    };
    check(
        &of_indices(5..10),
        &[
            ("an index that is not told", SEEN, "if (false && (u64)v0 >=", TOLD),
            (
                "an index that is read at",
                "if ((u64)index < size) {\n        load_vector",
                "if (true) {\n        load_vector",
                TOUCHED,
            ),
            ("a launch without a name", "record[0] = site << 8 | (u64)place", "record[0] = (u64)place", TOLD),
            ("an index that is not named", "record[1 + 2 * place] = (u64)index;", "", TOLD),
        ],
    );
    check(&of_indices(0..9), &[("an index of the dimension", SEEN, "if (live && (u64)v0 <", TOLD)]);
    let mut cases = Cases::default();
    cases.add("elements at indices", by_lane(gathered(5, 5, 5..10)));
    cases.add_as("the same in rows", by_lane(sums_of_gathered(5, 5, 5..10)), Form::Held { held: 1, warps: 1 });
    check(
        &cases,
        &[
            ("an index that is not noted", "&& number < 0) number =", "&& number > 0) number =", TOLD),
            ("a note that nobody tells", "if (outside.number >= 0)", "if (false)", TOLD),
            ("a size that is not named", "outside.index, size)", "outside.index, ~0ull)", TOLD),
            ("an index that is read at", "(u64)index < size ? load_one", "true ? load_one", TOUCHED),
        ],
    );
    for (n, held, warps) in [(33, 2, 1), (64, 2, 1), (300, 4, 4)] {
        let mut cases = Cases::default();
        cases.add_as(format!("held rows of {n}"), sums_of_gathered(5, n, 5..10), Form::Held { held, warps });
        check(
            &cases,
            &[
                ("an index that is not told", ") fault_index(", " && false) fault_index(", TOLD),
                ("a row that is read at", "= (u64)v0 < w.at", "= true || w.at", TOUCHED),
            ],
        );
    }
}

#[test]
fn bugs_of_warps_are_detected() {
    if is_left_out() || !emulator::is_available() {
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
        let of_all: [Mutant; 5] = [
            ("a short tree", "half > 0; half /= 2) x =", "half > 1; half /= 2) x =", DIFFERS),
            ("a shuffle to the wrong lane", "lane_down(x, half));", "lane_down(x, half / 2));", DIFFERS),
            ("elements in another order", " + k * LANES;", " + (7 - k) * LANES;", ""),
            (
                "a thread that leaves its warp",
                "Warp team =",
                "if (thread_x() % 32u == 31u) return;\n    Warp team =",
                "not met by all",
            ),
            ("a row that is not there", "if (item >= (u32)w.at[2]) return;", "", ""),
        ];
        check(&cases, &of_all);
        let of_form: Mutant = match form {
            Form::Blocks => ("a total in the wrong place", ") * w.at[0] + row) = r", ") * w.at[0]) = r", ""),
            _ => ("a result that one lane alone has", "return lane_first(x);", "return x;", DIFFERS),
        };
        check(&cases, &[of_form]);
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
fn bugs_of_held_rows_are_detected() {
    if is_left_out() || !emulator::is_available() {
        return;
    }
    let mut cases = Cases::default();
    for (n, held, warps) in [(40, 2, 1), (1000, 8, 4), (2 * 8192 - 50, 32, 16)] {
        let mut case = several_rows(&listed::normalized(), 6, n);
        case.geometry.outputs[2].rows = [4].into_iter().collect();
        case.geometry.outputs[2].inner = [0].into_iter().collect();
        case.outputs[2].truncate(4 * 6);
        // The maximum comes last.
        case.inputs[0] =
            (0..6 * n).flat_map(|index| ((index as f32 * 0.37).sin() + index as f32 * 0.01).to_le_bytes()).collect();
        cases.add_as(format!("{n} elements"), case, Form::Held { held, warps });
    }
    check(
        &cases,
        &[
            ("elements that are not there", "const bool here = k < mine;", "const bool here = true;", ""),
            ("a value that is not held", "h0[k] = v0;", "h0[0] = v0;", DIFFERS),
            ("one set of slots", "set ^= 1;", "", DIFFERS),
            (
                "no barrier behind a turn",
                "*own = acc;\n            }\n            barrier();",
                "*own = acc;\n            }",
                DIFFERS,
            ),
            ("a turn that begins anew", "turn == 0 ? F::identity() : *own", "F::identity()", DIFFERS),
            (
                "no barrier in front of the tree",
                "[warp * LANES + lane] = own;\n        barrier();",
                "[warp * LANES + lane] = own;",
                DIFFERS,
            ),
            ("a warp that is left out", "other = 1; other < SHARING", "other = 1; other < 1", DIFFERS),
            (
                "the partial results of another block",
                "first_warp = warp / SHARING * SHARING",
                "first_warp = 0",
                DIFFERS,
            ),
            ("the slots of another block", "parts + (warp / SHARING * LANES + lane)", "parts + lane", DIFFERS),
            (
                "no barrier in front of blocks",
                "= of_block;\n        barrier();\n        return",
                "= of_block;\n        return",
                DIFFERS,
            ),
            (
                "a thread that leaves its block",
                "Crew<4, 8> team =",
                "if (thread_x() == 70u) return;\n    Crew<4, 8> team =",
                "not met by all",
            ),
            ("an element less in a turn", "k < mine) acc", "k < mine - 1) acc", DIFFERS),
        ],
    );
    let mut cases = Cases::default();
    let case = several_rows(&listed::normalized(), 6, 1024);
    cases.add_as("all that there is room for", finite(case), Form::Held { held: 8, warps: 4 });
    check(&cases, &[("elements out of place", "i = first + k * LANES", "i = first + k * (LANES - 1)", DIFFERS)]);
}

#[test]
fn bugs_of_columns_are_detected() {
    if is_left_out() || !emulator::is_available() {
        return;
    }
    let mut cases = Cases::default();
    // A row after the last one is outside of memory if rows have elements of their own.
    let apart = (0..)
        .map(|seed| place(&mut Random::new(seed), listed::normalized(), &[37], &[50]))
        .find(|case| case.geometry.operands[0].rows[0] > 0)
        .expect("three of four placements are so");
    cases.add_as("columns", finite(apart), Form::Columns);
    check(
        &cases,
        &[
            ("no barrier in front of the tree", "*own = x;\n        barrier();", "*own = x;", DIFFERS),
            ("no barrier between steps", "own[half * ROWS]);\n            barrier();", "own[half * ROWS]);", DIFFERS),
            (
                "no barrier behind the tree",
                "[row];\n        // The next tree writes the same slots.\n        barrier();",
                "[row];",
                DIFFERS,
            ),
            (
                "a thread that leaves its block",
                "Column<32> team =",
                "if (!live) return;\n    Column<32> team =",
                "not met by all",
            ),
            ("a row that is not there", "live ? item : (u32)w.at[0] - 1", "item", TOUCHED),
            ("slots that are not there", "SHARED(uint4, slots, 1024)", "SHARED(uint4, slots, 100)", TOUCHED),
            ("slots of a neighbour", "(lane * ROWS + row)", "(lane * ROWS + row / 2)", DIFFERS),
        ],
    );
}
