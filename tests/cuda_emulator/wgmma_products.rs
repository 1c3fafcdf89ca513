//! Products by groups of four warps, for every tile, layout and schedule. They are exact where sums are, else within
//! the bound of sums in 32 bits.

use crate::effort::is_left_out;
use crate::emulator::{self, Batch, SCHEDULES};
use crate::tensor_products::{Case, Lies, Numbers, Sizes, alignments, case_into, shape_of, unrounded};
use opfuse::error::Reason;
use opfuse::internals::codegen::cuda::Source;
use opfuse::internals::codegen::cuda::product_grid::{LEFT, RESULT, RIGHT};
use opfuse::internals::codegen::cuda::wgmma::WgmmaPlan;
use opfuse::internals::codegen::product::ProductShape;
use opfuse::ir::DType;

/// A product, and how it is launched.
type Planned = (Case, WgmmaPlan);

fn planned(dtype: DType, columns: usize, sizes: Sizes, numbers: Numbers) -> Planned {
    planned_into([dtype; 2], columns, sizes, numbers)
}

fn planned_into(dtypes: [DType; 2], columns: usize, sizes: Sizes, numbers: Numbers) -> Planned {
    let case = case_into(dtypes, 64, sizes, numbers);
    let plan = WgmmaPlan::with_columns(&case.shape, alignments(&case.shape, sizes.off), columns);
    let plan = plan.unwrap_or_else(|reason| panic!("{sizes:?}: {reason}"));
    (case, plan)
}

/// The first difference under some schedule for the changed source; `Ok` if there is none.
fn run(cases: &[Planned], schedules: &[usize], mutate: impl Fn(String) -> String) -> Result<(), String> {
    let mut batch = Batch::default();
    for (case, plan) in cases {
        let source = batch.add(&Source::of_wgmma_product(&plan.variant, None, &batch.name()));
        let result = case.unwritten();
        let buffers = case.buffers(&result);
        let steps: Vec<_> = plan.step.into_iter().collect();
        let pointers = [(LEFT, 0), (RIGHT, 1), (RESULT, 2)];
        batch.launch_mapped(source, &plan.argument, &steps, &pointers, &plan.maps, &buffers.each_ref());
    }
    let program = batch.compile(mutate);
    for &schedule in schedules {
        for ((case, plan), buffers) in cases.iter().zip(program.run(schedule)?) {
            case.judge(&buffers[2]).map_err(|why| format!("schedule {schedule}, {:?}: {why}", plan.variant))?;
        }
    }
    Ok(())
}

const DTYPES: [DType; 2] = [DType::F16, DType::BF16];

/// Sizes around a tile, in every layout.
fn around(columns: usize) -> Vec<Planned> {
    use Lies::{Broadcast, Dense, Pitched, Swapped, SwappedPitched};
    // `Dense` right operands lie across the inner dimension, `Swapped` ones along it, and left operands the other way
    // round.
    let cases = [
        // Whole tiles and strips; a short strip; more strips than stages.
        ([1, 128, 64, columns], [Dense, Swapped]),
        ([1, 128, 72, columns], [Dense, Swapped]),
        ([1, 24, 712, 16], [Dense, Swapped]),
        ([1, 128, 128, columns], [Swapped, Dense]),
        ([1, 24, 520, 16], [Swapped, Dense]),
        // Tails of rows and columns, in each layout.
        ([2, 136, 88, columns - 8], [Dense, Dense]),
        ([2, 136, 88, columns - 8], [Swapped, Dense]),
        ([2, 120, 88, columns + 8], [Dense, Swapped]),
        ([2, 120, 88, columns + 8], [Swapped, Swapped]),
        // Sizes that are no multiples of 8, of lines that begin at multiples of 16 bytes.
        ([1, 131, 37, 21], [Pitched(3), Pitched(3)]),
        ([1, 37, 45, columns + 5], [SwappedPitched(3), SwappedPitched(3)]),
        ([1, 67, 101, columns + 3], [Pitched(3), SwappedPitched(3)]),
        // One matrix for all batches.
        ([3, 20, 24, 16], [Broadcast, Dense]),
        ([3, 20, 24, 16], [Dense, Broadcast]),
        // Sizes of one and of zero.
        ([3, 1, 20, 16], [Pitched(12), Dense]),
        ([2, 1, 40, 16], [Dense, Swapped]),
        ([1, 1, 16, 1], [Dense, Dense]),
        ([1, 8, 1, 8], [Dense, Dense]),
        ([1, 1, 1, 1], [Dense, Dense]),
        ([2, 3, 0, 8], [Dense, Dense]),
        ([1, 0, 3, 4], [Pitched(5), Dense]),
        ([0, 3, 8, 8], [Dense, Dense]),
    ];
    let mut all = Vec::new();
    for (index, ([batch, m, k, n], lies)) in cases.into_iter().enumerate() {
        let numbers = [Numbers::Whole, Numbers::Plain, Numbers::Odd][index % 3];
        all.push(planned(DTYPES[index % 2], columns, Sizes { batch, m, k, n, lies, off: [0; 3] }, numbers));
    }
    all
}

#[test]
fn tiles_of_128_columns_are_close() {
    if emulator::is_available() {
        run(&around(128), &SCHEDULES, |text| text).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
fn tiles_of_256_columns_are_close() {
    if emulator::is_available() {
        run(&around(256), &SCHEDULES, |text| text).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// Many tiles, so that blocks take them in bands, and all widths of stores.
#[test]
fn bands_of_tiles_are_close() {
    if !emulator::is_available() {
        return;
    }
    let sizes = |m, n| Sizes { batch: 2, m, k: 24, n, lies: [Lies::Dense, Lies::Swapped], off: [0; 3] };
    let mut cases = vec![planned(DType::BF16, 128, sizes(128 * 9 + 1, 128 * 2 + 8), Numbers::Whole)];
    for n in [8, 12, 6, 7] {
        cases.push(planned(DType::F16, 128, sizes(5, n), Numbers::Plain));
    }
    let widths: Vec<usize> = cases.iter().map(|(_, plan)| plan.variant.width).collect();
    assert_eq!(widths, [8, 8, 4, 2, 1]);
    run(&cases, &SCHEDULES[..1], |text| text).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn sums_may_stay_in_f32() {
    if !emulator::is_available() {
        return;
    }
    // Lines of the other cases do not begin at multiples of 16 bytes.
    let cases = unrounded().filter(|(_, sizes, _)| sizes.n % 8 == 0);
    let cases: Vec<Planned> = cases.map(|(dtypes, sizes, numbers)| planned_into(dtypes, 128, sizes, numbers)).collect();
    assert_eq!(cases.len(), 4);
    run(&cases, &SCHEDULES, |text| text).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn declined_products_have_a_reason() {
    let shape = shape_of(DType::BF16, [1, 64, 64, 64], [0, 64, 1], [0, 64, 1]);
    let reason = |shape: &ProductShape, alignments| {
        let reason = WgmmaPlan::new(shape, alignments).expect_err("nothing describes it");
        assert!(matches!(reason, Reason::WgmmaCannot(_)), "{reason:?}");
        reason.to_string()
    };
    let of = |change: &dyn Fn(&mut ProductShape)| {
        let mut changed = shape;
        change(&mut changed);
        reason(&changed, [16; 3])
    };
    assert!(WgmmaPlan::new(&shape, [16, 16, 2]).is_ok());
    assert!(of(&|shape| shape.dtype = DType::F32).contains("f32"));
    assert!(reason(&shape, [8, 16, 16]).contains("begin at a multiple of 16"));
    assert!(of(&|shape| shape.left = [0, 65, 1]).contains("nor columns of an operand are contiguous"));
    assert!(of(&|shape| shape.right = [0, 128, 2]).contains("nor columns of an operand are contiguous"));
    // A broadcast row has a stride that tensor maps cannot describe.
    assert!(of(&|shape| shape.left = [0, 0, 1]).contains("nor columns of an operand are contiguous"));
    let apart = |shape: &mut ProductShape| {
        shape.batch = 3;
        shape.left = [64, 3 * 64, 1];
    };
    assert!(of(&apart).contains("no multiple"));
    assert!(of(&|shape| shape.left = [0, 8, 1]).contains("overlap"));
    let windows = |shape: &mut ProductShape| {
        shape.batch = 3;
        shape.left = [64, 64, 1];
    };
    assert!(of(&windows).contains("overlap"));
    assert!(of(&|shape| shape.k = 1 << 31).contains("tensor map"));
    let large = ProductShape { batch: 1 << 40, ..shape };
    assert!(WgmmaPlan::new(&large, [16; 3]).expect_err("no grid is so large").to_string().contains("blocks"));
}

/// The tiles of a product, and the tensor maps of its operands, follow from its shape.
#[test]
fn plans_choose_tiles_by_shape() {
    let shape = shape_of(DType::F16, [1, 4096, 64, 4096], [0, 64, 1], [0, 4096, 1]);
    let plan = |shape: &ProductShape| WgmmaPlan::new(shape, [16; 3]).expect("the product has code");
    let columns = |m, n| plan(&ProductShape { m, n, ..shape }).variant.columns;
    assert_eq!([columns(4096, 4096), columns(256, 4096), columns(1 << 20, 128)], [256, 128, 128]);
    let WgmmaPlan { variant, argument, maps, .. } = plan(&shape);
    assert_eq!((variant.along, variant.width), ([true, false], 8));
    let described: Vec<_> = maps.iter().map(|map| (map.address, map.at, map.tiles)).collect();
    let [left, right] = [&described[0], &described[1]];
    assert_eq!((left.0, left.1, right.0, right.1, argument.len()), (LEFT, 16, RIGHT, 32, 48));
    assert_eq!((left.2.sizes, left.2.strides, left.2.tile), ([64, 4096, 1], [128, 128], [64, 128, 1]));
    assert_eq!((right.2.sizes, right.2.strides, right.2.tile), ([4096, 64, 1], [8192, 8192], [64, 64, 1]));
    // Where a dimension has one element, its stride may be any.
    let column = plan(&ProductShape { n: 1, right: [0, 1, 1], ..shape });
    assert_eq!((column.variant.along, column.maps[1].tiles.strides), ([true, true], [128, 128]));
}

#[test]
fn planted_bugs_are_detected() {
    if is_left_out() || !emulator::is_available() {
        return;
    }
    use Lies::{Broadcast, Dense, Swapped};
    let sizes = |k, lies| Sizes { batch: 2, m: 136, k, n: 152, lies, off: [0; 3] };
    // The last strip lies in the first stage, the last, and another.
    let cases = [
        planned(DType::BF16, 256, sizes(520, [Dense, Swapped]), Numbers::Whole),
        planned(DType::F16, 256, sizes(712, [Swapped, Dense]), Numbers::Whole),
        planned(DType::BF16, 128, sizes(264, [Broadcast, Dense]), Numbers::Whole),
        planned(DType::BF16, 128, sizes(136, [Dense, Swapped]), Numbers::Odd),
    ];
    assert_eq!(run(&cases, &SCHEDULES, |text| text), Ok(()), "the text as it is");
    let bugs = [
        ("strips that have not arrived", "gate_wait(full + stage, round);", ""),
        ("strips that are still read", "gate_wait(empty + stage, round ^ 1);", ""),
        ("the other round of what arrives", "gate_wait(full + stage, round);", "gate_wait(full + stage, round ^ 1);"),
        ("the other round of what is free", "gate_wait(empty + stage, round ^ 1)", "gate_wait(empty + stage, round)"),
        ("more bytes than come", "gate_announce(full + stage, STAGE)", "gate_announce(full + stage, STAGE + 128)"),
        ("fewer bytes than come", "gate_announce(full + stage, STAGE)", "gate_announce(full + stage, STAGE / 2)"),
        ("an arrival that is not announced", "gate_announce(full + stage, STAGE);", "gate_arrive(full + stage);"),
        ("too many arrivals", "gate_begin(full + stage, 1)", "gate_begin(full + stage, 2)"),
        ("too few arrivals", "gate_begin(empty + stage, WARPS)", "gate_begin(empty + stage, 1)"),
        ("gates that the copying does not see", "        gates_ready();\n", ""),
        (
            "gates that others do not see",
            "    }\n    barrier();\n\n    const ProductTile",
            "    }\n\n    const ProductTile",
        ),
        ("the stage that is multiplied given back", "gate_arrive(empty + before)", "gate_arrive(empty + stage)"),
        ("strips given back too early", "group_wait<1>();", "group_wait<2>();"),
        ("sums that are not finished", "        group_wait<0>();\n", ""),
        ("products that are not committed", "            group_commit();\n", ""),
        ("sums that are still written", "            group_begin();\n", ""),
        ("sums where strips are still read", "        part_barrier<GROUPS * GROUP>();\n", ""),
        ("steps along lines too short", "at + step * 32,", "at + step * 16,"),
        ("steps across lines too short", "at + step * 16 * LINE,", "at + step * 8 * LINE,"),
        ("lines permuted in another way", "(u64)1 << 62", "(u64)2 << 62"),
        ("eight lines nearer than they lie", "(u64)(1024 >> 4) << 32", "(u64)(512 >> 4) << 32"),
        ("panels nearer than they lie", "(u64)(panel >> 4) << 16", "(u64)(panel >> 5) << 16"),
        ("stages that are not aligned", "(1024 - shared_place(launched) % 1024) % 1024", "0"),
        ("rows of the other group", "const int first = (group - 1) * 64;", "const int first = 0;"),
        ("a strip that is left out", "(w.at[BASE + T_K] + 63) / 64", "w.at[BASE + T_K] / 64"),
        (
            "the matrix of another operand",
            "right_matrix = w.at[BASE + T_RIGHT + 1]",
            "right_matrix = w.at[BASE + T_LEFT + 1]",
        ),
        (
            "the map of another operand",
            "*const right = w.at + (N - MAP_WORDS)",
            "*const right = w.at + (N - 2 * MAP_WORDS)",
        ),
        ("panels in one place", "to + part * PANEL, map", "to, map"),
        ("more registers than there are", "registers_take<232>", "registers_take<240>"),
        ("rows out of place", "(lane / 4 + half * 8) * PITCH", "(lane / 4 * 2 + half) * PITCH"),
        ("sums out of place", "sum[k * 4 + half * 2 + part]", "sum[k * 4 + half + part * 2]"),
    ];
    emulator::assert_seen(&bugs, |mutate| run(&cases, &SCHEDULES, mutate));
}
