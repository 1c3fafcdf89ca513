//! Matrix products against explicit chains, by bits, for every tile, layout and schedule.

use crate::effort::is_left_out;
use crate::emulator::{self, Batch, Buffer, SCHEDULES};
use crate::tensor_products::shape_of;
use half::{bf16, f16};
use opfuse::internals::codegen::cuda::Source;
use opfuse::internals::codegen::cuda::product::ProductPlan;
use opfuse::internals::codegen::cuda::product_grid::{LEFT, RESULT, RIGHT};
use opfuse::internals::codegen::product::ProductShape;
use opfuse::ir::DType;

/// A product, its operands and what comes out.
struct Case {
    plan: ProductPlan,
    left: Vec<u8>,
    right: Vec<u8>,
    expected: Vec<u8>,
}

/// An element type: how numbers are stored, a step of a chain, and the rounding of the result.
trait Element: Copy {
    type Sum: Copy;
    const ZERO: Self::Sum;
    fn of(x: f64) -> Self;
    fn chain(self, other: Self, sum: Self::Sum) -> Self::Sum;
    fn stored(sum: Self::Sum) -> Vec<u8>;
    /// The same of a result of f32, where that is another dtype.
    fn unrounded(sum: Self::Sum) -> Vec<u8> {
        Self::stored(sum)
    }
    fn bytes(self) -> Vec<u8>;
}

macro_rules! element {
    ($type:ty, $sum:ty, $of:expr, $chain:expr, $stored:expr $(, $unrounded:expr)?) => {
        impl Element for $type {
            type Sum = $sum;
            const ZERO: $sum = 0 as $sum;
            fn of(x: f64) -> $type {
                ($of)(x)
            }
            fn chain(self, other: $type, sum: $sum) -> $sum {
                ($chain)(self, other, sum)
            }
            fn stored(sum: $sum) -> Vec<u8> {
                let stored: $type = ($stored)(sum);
                stored.to_le_bytes().to_vec()
            }
            $(fn unrounded(sum: $sum) -> Vec<u8> {
                ($unrounded)(sum)
            })?
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
        }
    };
}
element!(f32, f32, |x| x as f32, f32::mul_add, |sum: f32| if sum.is_nan() { f32::from_bits(0x7fc0_0000) } else { sum });
element!(f64, f64, |x| x, f64::mul_add, |sum: f64| if sum.is_nan() {
    f64::from_bits(0x7ff8_0000_0000_0000)
} else {
    sum
});
element!(
    f16,
    f32,
    f16::from_f64,
    |a: f16, b: f16, sum| a.to_f32().mul_add(b.to_f32(), sum),
    |sum: f32| { if sum.is_nan() { f16::from_bits(0x7e00) } else { f16::from_f32(sum) } },
    f32::stored
);
element!(
    bf16,
    f32,
    bf16::from_f64,
    |a: bf16, b: bf16, sum| a.to_f32().mul_add(b.to_f32(), sum),
    |sum: f32| { if sum.is_nan() { bf16::from_bits(0x7fc0) } else { bf16::from_f32(sum) } },
    f32::stored
);
element!(i8, i8, |x| (x * 37.0) as i64 as i8, |a: i8, b: i8, sum: i8| sum.wrapping_add(a.wrapping_mul(b)), |sum| sum);
element!(i64, i64, |x| (x * 3e18) as i64, |a: i64, b: i64, sum: i64| sum.wrapping_add(a.wrapping_mul(b)), |sum| sum);

/// Sizes, and the layout of operands: dense, or with the inner dimension and the other one swapped.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    m: usize,
    k: usize,
    n: usize,
    swapped: [bool; 2],
}

/// What operands are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// Of many magnitudes.
    Plain,
    /// With infinities, NaNs and negative zeros among them.
    Odd,
    /// So small that all products are negative zeros.
    Tiny,
}

fn case<T: Element>([dtype, result]: [DType; 2], side: usize, sizes: Sizes, numbers: Numbers) -> Case {
    let Sizes { batch, m, k, n, swapped } = sizes;
    let strides = |rows: usize, columns: usize, swapped: bool| match swapped {
        false => [rows * columns, columns, 1],
        true => [rows * columns, 1, rows],
    };
    let shape = ProductShape {
        result,
        ..shape_of(dtype, [batch, m, k, n], strides(m, k, swapped[0]), strides(k, n, swapped[1]))
    };
    let number = |index: usize, seed: f64| match (numbers, index % 97) {
        (Numbers::Odd, 13) => f64::INFINITY,
        (Numbers::Odd, 40) => f64::NAN,
        (Numbers::Odd, 71 | 72) => -0.0,
        (Numbers::Tiny, _) => seed.cos() * 1e-30,
        (Numbers::Plain | Numbers::Odd, _) => (index as f64 * 0.7313 + seed).sin() * [1.0, 1e-3, 1e3][index % 3],
    };
    let operand = |count: usize, seed: f64| -> Vec<T> { (0..count).map(|index| T::of(number(index, seed))).collect() };
    let (left, right) = (operand(batch * m * k, 0.3), operand(batch * k * n, 1.9));
    let mut expected = Vec::new();
    for matrix in 0..batch {
        for row in 0..m {
            for column in 0..n {
                let at = |strides: [usize; 3], row: usize, column: usize| {
                    matrix * strides[0] + row * strides[1] + column * strides[2]
                };
                let step =
                    |sum, inner| left[at(shape.left, row, inner)].chain(right[at(shape.right, inner, column)], sum);
                let sum = (0..k).fold(T::ZERO, step);
                expected.extend(if dtype == result { T::stored(sum) } else { T::unrounded(sum) });
            }
        }
    }
    let bytes = |elements: &[T]| elements.iter().flat_map(|&element| element.bytes()).collect();
    let plan = ProductPlan::with_side(&shape, side).expect("the product has code");
    Case { plan, left: bytes(&left), right: bytes(&right), expected }
}

/// The first difference under some schedule for the changed source; `Ok` if there is none.
fn run(cases: &[(String, Case)], mutate: impl Fn(String) -> String) -> Result<(), String> {
    let mut batch = Batch::default();
    for (_, Case { plan, left, right, expected }) in cases {
        let source = batch.add(&Source::of_product(&plan.variant, &batch.name()));
        let result = vec![0xaa; expected.len()];
        let buffers = [left, right, &result].map(|bytes| Buffer { bytes, remainder: 0, apart: 0 });
        let steps: Vec<_> = plan.step.into_iter().collect();
        batch.launch(source, &plan.argument, &steps, &[(LEFT, 0), (RIGHT, 1), (RESULT, 2)], &buffers.each_ref());
    }
    let program = batch.compile(mutate);
    for schedule in SCHEDULES {
        for ((name, case), buffers) in cases.iter().zip(program.run(schedule)?) {
            if let Some(at) = (0..case.expected.len()).find(|&at| case.expected[at] != buffers[2][at]) {
                return Err(format!("{name}, schedule {schedule}: the result differs at byte {at}"));
            }
        }
    }
    Ok(())
}

fn all(side: usize, sizes: Sizes, numbers: Numbers) -> Vec<(String, Case)> {
    use DType::{BF16, F16, F32, F64, I8, I64};
    let name = |dtypes: [DType; 2]| format!("{} into {} {sizes:?}, side {side}", dtypes[0], dtypes[1]);
    let mut cases = vec![
        (name([F32; 2]), case::<f32>([F32; 2], side, sizes, numbers)),
        (name([F16; 2]), case::<f16>([F16; 2], side, sizes, numbers)),
        (name([BF16; 2]), case::<bf16>([BF16; 2], side, sizes, numbers)),
        (name([F16, F32]), case::<f16>([F16, F32], side, sizes, numbers)),
        (name([BF16, F32]), case::<bf16>([BF16, F32], side, sizes, numbers)),
        (name([I8; 2]), case::<i8>([I8; 2], side, sizes, Numbers::Plain)),
    ];
    if side <= 4 {
        cases.push((name([F64; 2]), case::<f64>([F64; 2], side, sizes, numbers)));
        cases.push((name([I64; 2]), case::<i64>([I64; 2], side, sizes, Numbers::Plain)));
    }
    cases
}

#[test]
fn products_have_the_bits_of_their_chains() {
    if !emulator::is_available() {
        return;
    }
    let mut cases = Vec::new();
    for side in [2, 4, 8] {
        for (index, swapped) in [[false, false], [true, false], [false, true], [true, true]].into_iter().enumerate() {
            let sizes = Sizes { batch: 2, m: 16 * side + 3, k: [7, 8, 9, 37][index], n: 16 * side - 5, swapped };
            let numbers = if index == 1 { Numbers::Odd } else { Numbers::Plain };
            cases.extend(all(side, sizes, numbers));
        }
    }
    // No rows, no columns, no steps, single elements.
    for [batch, m, k, n] in [[1, 0, 3, 4], [1, 3, 3, 0], [0, 3, 3, 3], [2, 3, 0, 2], [1, 1, 1, 1], [3, 1, 100, 1]] {
        cases.extend(all(2, Sizes { batch, m, k, n, swapped: [false, false] }, Numbers::Plain));
    }
    run(&cases, |text| text).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn a_plan_keeps_a_device_busy() {
    let side = |dtype, batch, m, n| {
        let shape = shape_of(dtype, [batch, m, 64, n], [m * 64, 64, 1], [64 * n, n, 1]);
        ProductPlan::new(&shape).expect("the product has code").variant.side
    };
    assert_eq!(side(DType::F32, 1, 4096, 4096), 8);
    assert_eq!(side(DType::F64, 1, 4096, 4096), 4);
    assert_eq!(side(DType::F32, 1, 1024, 1024), 4);
    assert_eq!(side(DType::F32, 1, 64, 64), 2);
    assert_eq!(side(DType::F32, 300, 64, 64), 8);
}

#[test]
fn declined_products_have_a_reason() {
    let shape = shape_of(DType::Bool, [1, 2, 2, 2], [4, 2, 1], [4, 2, 1]);
    assert!(ProductPlan::new(&shape).is_err());
    let shape = ProductShape { dtype: DType::F32, result: DType::F32, batch: 1 << 40, ..shape };
    assert!(ProductPlan::new(&shape).expect_err("no grid is so large").to_string().contains("blocks"));
}

#[test]
fn planted_bugs_are_detected() {
    if is_left_out() || !emulator::is_available() {
        return;
    }
    let sizes = Sizes { batch: 2, m: 67, k: 21, n: 61, swapped: [false, false] };
    let of = |numbers| (format!("{numbers:?}"), case::<f32>([DType::F32; 2], 4, sizes, numbers));
    let cases = [Numbers::Plain, Numbers::Tiny].map(of);
    assert_eq!(run(&cases, |text| text), Ok(()), "the text as it is");
    let bugs = [
        ("no barrier behind a strip", "}\n        barrier();", "}"),
        (
            "no barrier in front of the first",
            "right.put(rights, thread);\n    barrier();",
            "right.put(rights, thread);",
        ),
        ("one strip for both", "now = 1 - now;", ""),
        ("a chain that goes on behind its end", "nothing(Value(0))", "Value(0)"),
        ("rows that are not there", "place(index) < length && ", ""),
        ("steps that are not there", " && level(index) < depth", ""),
        ("a strip read again", "from += onward;", ""),
        ("a result beside the matrix", "if (row < m && column < n)", "if (column < n)"),
        ("a sum that is rounded twice", "return op_fma(a, b, sum)", "return op_add(op_mul(a, b), sum)"),
        (
            "the operand of another matrix",
            "(i64)matrix * (i64)w.at[P_RIGHT + 1]",
            "(i64)matrix * (i64)w.at[P_LEFT + 1]",
        ),
    ];
    emulator::assert_seen(&bugs, |mutate| run(&cases, mutate));
}
