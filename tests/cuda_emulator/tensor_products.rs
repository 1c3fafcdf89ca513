//! Products on tensor cores, for every tile, layout, alignment and schedule. They are exact where sums are, else within
//! the bound of sums in 32 bits.

use crate::effort::is_left_out;
use crate::emulator::{self, Batch, Buffer, SCHEDULES};
use half::{bf16, f16};
use opfuse::internals::codegen::cuda::Source;
use opfuse::internals::codegen::cuda::product_grid::{LEFT, RESULT, RIGHT};
use opfuse::internals::codegen::cuda::tensor_cores::TensorPlan;
use opfuse::internals::codegen::product::ProductShape;
use opfuse::ir::DType;

/// The layout of an operand: dense, rows of another length, inner and other dimension swapped, one matrix for all
/// batches, or every other element of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lies {
    Dense,
    Pitched(usize),
    Swapped,
    SwappedPitched(usize),
    Broadcast,
    Apart,
}

impl Lies {
    /// Strides of batch, row and column, and how many elements there are in memory.
    fn strides(self, batch: usize, rows: usize, columns: usize) -> ([usize; 3], usize) {
        let (strides, matrix) = match self {
            Lies::Dense => ([rows * columns, columns, 1], rows * columns),
            Lies::Pitched(pitch) => ([rows * (columns + pitch), columns + pitch, 1], rows * (columns + pitch)),
            Lies::Swapped => ([rows * columns, 1, rows], rows * columns),
            Lies::SwappedPitched(pitch) => ([columns * (rows + pitch), 1, rows + pitch], columns * (rows + pitch)),
            Lies::Broadcast => return ([0, columns, 1], rows * columns),
            Lies::Apart => ([2 * rows * columns, 2 * columns, 2], 2 * rows * columns),
        };
        (strides, batch * matrix)
    }
}

/// What operands are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// Small integers: every sum is exact, whatever its order.
    Whole,
    /// Of many magnitudes.
    Plain,
    /// Small integers with an infinity or a NaN here and there.
    Odd,
}

/// Sizes, layouts of operands, and the elements of each buffer after a multiple of 16 bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) batch: usize,
    pub(crate) m: usize,
    pub(crate) k: usize,
    pub(crate) n: usize,
    pub(crate) lies: [Lies; 2],
    pub(crate) off: [usize; 3],
}

pub(crate) struct Case {
    name: String,
    pub(crate) plan: TensorPlan,
    pub(crate) shape: ProductShape,
    pub(crate) off: [usize; 3],
    pub(crate) operands: [Vec<u8>; 2],
    /// Sums in f64, and the sums of the magnitudes.
    pub(crate) expected: Vec<(f64, f64)>,
    depth: usize,
    is_exact: bool,
}

/// A number as an element of a dtype: f16, bf16 or f32.
pub(crate) fn bytes(dtype: DType, x: f64) -> Vec<u8> {
    match dtype {
        DType::F32 => (x as f32).to_le_bytes().to_vec(),
        DType::F16 => f16::from_f64(x).to_le_bytes().to_vec(),
        _ => bf16::from_f64(x).to_le_bytes().to_vec(),
    }
}

/// The number that an element is.
fn number(dtype: DType, bytes: &[u8]) -> f64 {
    match (dtype, bytes) {
        (DType::F32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
        (DType::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f64(),
        (_, &[a, b]) => bf16::from_le_bytes([a, b]).to_f64(),
        (_, other) => panic!("{} bytes are no {dtype}", other.len()),
    }
}

/// The NaN of a dtype.
fn nan(dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F32 => 0x7fc0_0000_u32.to_le_bytes().to_vec(),
        DType::F16 => 0x7e00_u16.to_le_bytes().to_vec(),
        _ => 0x7fc0_u16.to_le_bytes().to_vec(),
    }
}

/// A product of operands of these layouts, whose result has their dtype.
pub(crate) fn shape_of(
    dtype: DType,
    [batch, m, k, n]: [usize; 4],
    left: [usize; 3],
    right: [usize; 3],
) -> ProductShape {
    ProductShape { dtype, result: dtype, batch, m, k, n, left, right }
}

/// A product whose result has the dtype of its operands.
pub(crate) fn case(dtype: DType, tile: usize, sizes: Sizes, numbers: Numbers) -> Case {
    case_into([dtype; 2], tile, sizes, numbers)
}

/// A product of operands of a dtype into a result of another.
pub(crate) fn case_into([dtype, result]: [DType; 2], tile: usize, sizes: Sizes, numbers: Numbers) -> Case {
    let Sizes { batch, m, k, n, lies, off } = sizes;
    let (left, n_left) = lies[0].strides(batch, m, k);
    let (right, n_right) = lies[1].strides(batch, k, n);
    let one = |index: usize, seed: usize| match numbers {
        Numbers::Whole => ((index * 7 + seed * 3) % 9) as f64 - 4.0,
        Numbers::Plain => {
            (index as f64 * 0.7313 + seed as f64).sin() * [1.0, 1e-2, 3e1][index % 3] // f16 reaches 65504
        }
        Numbers::Odd => match index % 1013 {
            101 => f64::INFINITY,
            515 => f64::NAN,
            at => (at % 5) as f64 - 2.0,
        },
    };
    let operand = |count, seed| -> Vec<Vec<u8>> { (0..count).map(|index| bytes(dtype, one(index, seed))).collect() };
    let (a, b) = (operand(n_left, 1), operand(n_right, 2));
    let at = |strides: [usize; 3], place: [usize; 3]| -> usize { (0..3).map(|dim| strides[dim] * place[dim]).sum() };
    let mut expected = Vec::new();
    for matrix in 0..batch {
        for row in 0..m {
            for column in 0..n {
                let products = (0..k).map(|inner| {
                    let a = number(dtype, &a[at(left, [matrix, row, inner])]);
                    a * number(dtype, &b[at(right, [matrix, inner, column])])
                });
                expected.push(products.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs())));
            }
        }
    }
    let shape = ProductShape { result, ..shape_of(dtype, [batch, m, k, n], left, right) };
    let alignments = alignments(&shape, off);
    let plan = TensorPlan::with_tile(&shape, alignments, tile).expect("the product has code");
    let name = format!("{dtype} into {result} {sizes:?}, {numbers:?}, tile {tile}, {:?}", plan.variant);
    let is_exact = numbers != Numbers::Plain;
    Case { name, plan, shape, off, operands: [a.concat(), b.concat()], expected, depth: k, is_exact }
}

/// The alignments of a product's operands and result, which begin so many elements after a multiple of 16 bytes.
pub(crate) fn alignments(shape: &ProductShape, off: [usize; 3]) -> [usize; 3] {
    std::array::from_fn(|buffer| match remainder(shape, off, buffer) {
        0 => 16,
        bytes => 1 << bytes.trailing_zeros(),
    })
}

/// Bytes of a product's buffer after a multiple of 16.
fn remainder(shape: &ProductShape, off: [usize; 3], buffer: usize) -> usize {
    let dtype = [shape.dtype, shape.dtype, shape.result][buffer];
    off[buffer] * dtype.size() % 16
}

impl Case {
    /// The buffers of operands and result; the result is filled with unexpected values.
    pub(crate) fn buffers<'a>(&'a self, result: &'a [u8]) -> [Buffer<'a>; 3] {
        let bytes: [&[u8]; 3] = [&self.operands[0], &self.operands[1], result];
        let place = |buffer| remainder(&self.shape, self.off, buffer);
        [0, 1, 2].map(|buffer| Buffer { bytes: bytes[buffer], remainder: place(buffer), apart: 0 })
    }

    /// Memory for the result.
    pub(crate) fn unwritten(&self) -> Vec<u8> {
        vec![0xaa; self.shape.result.size() * self.expected.len()]
    }

    /// The first difference of a result.
    pub(crate) fn judge(&self, found: &[u8]) -> Result<(), String> {
        let dtype = self.shape.result;
        for (index, (raw, &(sum, size))) in found.chunks_exact(dtype.size()).zip(&self.expected).enumerate() {
            let wrong = |what: &str| Err(format!("{}: element {index} is {what}", self.name));
            if sum.is_nan() {
                if raw != nan(dtype) {
                    return wrong(&format!("{raw:x?}, not the NaN"));
                }
                continue;
            }
            let found = number(dtype, raw);
            if self.is_exact || sum.is_infinite() {
                if raw != bytes(dtype, sum) {
                    return wrong(&format!("{found}, not {sum}"));
                }
                continue;
            }
            // One f32 rounding of the sum of magnitudes per addition, and the rounding of the result.
            let (digits, least) = match dtype {
                DType::F32 => (24, 0.0),
                DType::F16 => (11, f64::powi(2.0, -25)),
                _ => (8, 0.0),
            };
            let bound = size * (self.depth + 1) as f64 * f64::powi(2.0, -23)
                + sum.abs() * f64::powi(2.0, -digits) * 1.001
                + least;
            if found.is_nan() || (found - sum).abs() > bound {
                return wrong(&format!("{found}, not {sum} within {bound}"));
            }
        }
        Ok(())
    }
}

/// The first difference under some schedule for the changed source; `Ok` if there is none.
fn run(cases: &[Case], schedules: &[usize], mutate: impl Fn(String) -> String) -> Result<(), String> {
    let mut batch = Batch::default();
    for case in cases {
        let plan = &case.plan;
        let source = batch.add(&Source::of_tensor_product(&plan.variant, None, &batch.name()));
        let result = case.unwritten();
        let buffers = case.buffers(&result);
        let steps: Vec<_> = plan.step.into_iter().collect();
        batch.launch(source, &plan.argument, &steps, &[(LEFT, 0), (RIGHT, 1), (RESULT, 2)], &buffers.each_ref());
    }
    let program = batch.compile(mutate);
    for &schedule in schedules {
        for (case, buffers) in cases.iter().zip(program.run(schedule)?) {
            case.judge(&buffers[2]).map_err(|why| format!("schedule {schedule}: {why}"))?;
        }
    }
    Ok(())
}

const DTYPES: [DType; 2] = [DType::F16, DType::BF16];

/// Sizes around a tile, in every layout and alignment.
fn around(tile: usize) -> Vec<Case> {
    use Lies::{Apart, Broadcast, Dense, Pitched, Swapped, SwappedPitched};
    let aligned = [0, 0, 0];
    let cases = [
        // Whole tiles and strips; the last strip is short; there are more strips than stages.
        ([1, tile, 32, tile], [Dense, Dense], aligned),
        ([1, tile, 40, tile], [Dense, Dense], aligned),
        ([1, 24, 200, 16], [Dense, Dense], aligned),
        // Tails of rows and columns, in each layout, with lines that begin at multiples of 16 bytes.
        ([2, tile + 8, 72, tile - 8], [Dense, Dense], aligned),
        ([2, tile + 8, 72, tile - 8], [Swapped, Dense], aligned),
        ([2, tile - 8, 72, tile + 8], [Dense, Swapped], aligned),
        ([2, tile - 8, 72, tile + 8], [Swapped, Swapped], aligned),
        // Columns that are not a multiple of 8, whose lines begin at multiples of 16 bytes all the same.
        ([1, tile + 3, 37, 21], [Pitched(3), Pitched(3)], aligned),
        ([1, 37, 45, tile + 5], [SwappedPitched(3), SwappedPitched(3)], aligned),
        // Nothing is aligned, by address or by length of lines.
        ([1, tile + 1, 33, 20], [Dense, Dense], [1, 1, 2]),
        ([2, 17, 31, tile + 2], [Swapped, Swapped], [0, 2, 1]),
        ([1, 50, 64, 48], [Dense, Dense], [1, 0, 4]),
        // One matrix for all batches, and strided elements.
        ([3, 20, 24, 16], [Broadcast, Dense], aligned),
        ([3, 20, 24, 16], [Dense, Broadcast], aligned),
        ([2, 20, 24, 16], [Apart, Apart], aligned),
        // Single elements, an inner dimension of 0, empty results.
        ([1, 1, 1, 1], [Dense, Dense], aligned),
        ([3, 1, 100, 1], [Dense, Dense], aligned),
        ([2, 3, 0, 8], [Dense, Dense], aligned),
        ([1, 0, 3, 4], [Dense, Dense], aligned),
        ([0, 3, 3, 3], [Dense, Dense], aligned),
    ];
    let mut all = Vec::new();
    for (index, ([batch, m, k, n], lies, off)) in cases.into_iter().enumerate() {
        let numbers = [Numbers::Whole, Numbers::Plain, Numbers::Odd][index % 3];
        all.push(case(DTYPES[index % 2], tile, Sizes { batch, m, k, n, lies, off }, numbers));
    }
    all
}

#[test]
fn small_tiles_are_close() {
    if emulator::is_available() {
        run(&around(64), &SCHEDULES, |text| text).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
fn large_tiles_are_close() {
    if emulator::is_available() {
        run(&around(128), &SCHEDULES, |text| text).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// Many tiles, so that blocks take them in bands, and all widths of stores.
#[test]
fn bands_of_tiles_are_close() {
    if !emulator::is_available() {
        return;
    }
    let sizes = |m, n| Sizes { batch: 2, m, k: 24, n, lies: [Lies::Dense; 2], off: [0; 3] };
    let mut cases = vec![case(DType::BF16, 64, sizes(64 * 9 + 1, 64 * 3), Numbers::Whole)];
    for n in [8, 12, 6, 7] {
        cases.push(case(DType::F16, 64, sizes(5, n), Numbers::Plain));
    }
    let widths: Vec<usize> = cases.iter().map(|case| case.plan.variant.width).collect();
    assert_eq!(widths, [8, 8, 4, 2, 1]);
    run(&cases, &SCHEDULES[..1], |text| text).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn sums_may_stay_in_f32() {
    if !emulator::is_available() {
        return;
    }
    let cases: Vec<Case> = unrounded().map(|(dtypes, sizes, numbers)| case_into(dtypes, 64, sizes, numbers)).collect();
    let widths: Vec<usize> = cases.iter().map(|case| case.plan.variant.width).collect();
    assert_eq!(widths, [8, 8, 2, 1, 8, 8]);
    run(&cases, &SCHEDULES, |text| text).unwrap_or_else(|why| panic!("{why}"));
    let bugs = [
        ("a sum that is rounded", "return op_canon(x); } };\ntemplate", "return op_round_f16(x); } };\ntemplate"),
        ("a NaN that is not the one", "return op_canon(x); } };\ntemplate", "return -x; } };\ntemplate"),
    ];
    emulator::assert_seen(&bugs, |mutate| run(&cases, &SCHEDULES[..1], mutate));
}

/// Products whose sums are not rounded: whole and cut tiles, aligned and not, odd numbers, an inner dimension of 0.
pub(crate) fn unrounded() -> impl Iterator<Item = ([DType; 2], Sizes, Numbers)> {
    use Lies::{Dense, Swapped};
    let cases = [
        ([1, 64, 64, 64], [Dense, Swapped], 0, Numbers::Plain),
        ([2, 72, 40, 24], [Swapped, Dense], 0, Numbers::Odd),
        ([2, 72, 40, 22], [Dense, Swapped], 8, Numbers::Whole),
        ([1, 5, 24, 7], [Dense, Swapped], 1, Numbers::Plain),
        ([1, 33, 48, 80], [Dense, Dense], 4, Numbers::Odd),
        ([2, 3, 0, 8], [Dense, Dense], 0, Numbers::Whole),
    ];
    cases.into_iter().enumerate().map(|(index, ([batch, m, k, n], lies, off, numbers))| {
        ([DTYPES[index % 2], DType::F32], Sizes { batch, m, k, n, lies, off: [0, 0, off] }, numbers)
    })
}

#[test]
fn declined_products_have_a_reason() {
    let shape = shape_of(DType::F32, [1, 2, 2, 2], [4, 2, 1], [4, 2, 1]);
    assert!(TensorPlan::new(&shape, [16; 3]).expect_err("f32 stays f32").to_string().contains("f32"));
    let shape = ProductShape { dtype: DType::BF16, result: DType::BF16, batch: 1 << 40, ..shape };
    assert!(TensorPlan::new(&shape, [16; 3]).expect_err("no grid is so large").to_string().contains("blocks"));
    let large = ProductShape { batch: 1, m: 4096, k: 64, n: 4096, left: [0, 64, 1], right: [0, 4096, 1], ..shape };
    let tile = |shape: &ProductShape| TensorPlan::new(shape, [16; 3]).expect("the product has code").variant.tile;
    assert_eq!([tile(&large), tile(&ProductShape { m: 256, ..large })], [128, 64]);
}

#[test]
fn planted_bugs_are_detected() {
    if is_left_out() || !emulator::is_available() {
        return;
    }
    use Lies::{Dense, Swapped};
    let sizes = |lies| Sizes { batch: 2, m: 72, k: 200, n: 88, lies, off: [0; 3] };
    let unaligned = Sizes { batch: 1, m: 65, k: 199, n: 67, lies: [Dense; 2], off: [1, 1, 1] };
    let cases = [
        case(DType::BF16, 64, sizes([Dense, Dense]), Numbers::Whole),
        case(DType::F16, 64, sizes([Swapped, Swapped]), Numbers::Whole),
        case(DType::BF16, 64, unaligned, Numbers::Whole),
        case(DType::BF16, 64, sizes([Dense, Dense]), Numbers::Odd),
    ];
    assert_eq!(run(&cases, &SCHEDULES, |text| text), Ok(()), "the text as it is");
    let bugs = [
        ("a wait for too few copies", "copies_wait<STAGES - 2>()", "copies_wait<STAGES - 1>()"),
        ("no barrier behind the wait", "copies_wait<STAGES - 2>();\n        barrier();", "copies_wait<STAGES - 2>();"),
        ("no barrier in front of the sums", "    barrier();\n\n    // 16 rows", "    // 16 rows"),
        ("no barrier in front of reading sums", "warp_barrier();\n    IN_TURN", "IN_TURN"),
        ("no barrier behind reading sums", "    }\n    warp_barrier();\n}", "    }\n}"),
        ("groups that are not closed", "        copies_commit();\n        const Place", "        const Place"),
        ("the stage that is being read", "next = next + 1 == STAGES ? 0 : next + 1;", "next = now;"),
        ("pieces in other places", "at = place(line, thread % PIECES)", "at = line * PIECES + thread % PIECES"),
        ("lines that are not there", "line < lines ? in_line : 0", "in_line"),
        ("elements that are not there", "left < PIECE ? left : PIECE", "PIECE"),
        ("matrices that are not turned", "load_matrices_turned(x, stage", "load_matrices(x, stage"),
        (
            "the lower rows for the deeper ones",
            "lower = lane / 8 % 2, deeper = lane / 16",
            "lower = lane / 16, deeper = lane / 8 % 2",
        ),
        (
            "the right columns for the deeper ones",
            "deeper = lane / 8 % 2, right = lane / 16",
            "deeper = lane / 16, right = lane / 8 % 2",
        ),
        ("sums in other places", "(lane / 4 + part / 2 * 8)", "(lane / 4 + part % 2 * 8)"),
        ("a strip read again", "from += onward;", ""),
        ("results beside the matrix", "if (row < m && column < n)", "if (column < n)"),
        (
            "the operand of another matrix",
            "(i64)matrix * (i64)w.at[BASE + T_RIGHT + 1]",
            "(i64)matrix * (i64)w.at[BASE + T_LEFT + 1]",
        ),
        (
            "bands that forget the last tiles",
            "down - above < TILES_TOGETHER ? down - above : TILES_TOGETHER",
            "TILES_TOGETHER",
        ),
        ("a sum that is cut off", "x[k] = Rounded<D>::of(x[k]);", ";"),
    ];
    emulator::assert_seen(&bugs, |mutate| run(&cases, &SCHEDULES, mutate));
}
