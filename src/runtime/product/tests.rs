//! Products against three nested loops, by bits, at every instruction set of the processor.

use super::piece::ProductPiece;
use super::tile::Multiply;
use super::{elements, fill, product};
use crate::codegen::vm::Isa;
use crate::device::Device;
use crate::ir::{DType, Layout, TensorType};
use crate::runtime::array::Array;

/// Numbers from a counter.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 24
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }
}

/// The layout of a matrix.
#[derive(Debug, Clone, Copy)]
enum Lies {
    Rows,
    Columns,
    /// Every second element of every third row.
    Apart,
    /// One row that is repeated.
    Once,
}

impl Lies {
    const ALL: [Lies; 4] = [Lies::Rows, Lies::Columns, Lies::Apart, Lies::Once];

    fn strides(self, rows: usize, columns: usize) -> [usize; 2] {
        match self {
            Lies::Rows => [columns, 1],
            Lies::Columns => [1, rows],
            Lies::Apart => [6 * columns + 1, 2],
            Lies::Once => [0, 1],
        }
    }
}

pub(super) trait Bits: Multiply + std::fmt::Debug {
    fn of(number: f64) -> Self;
    fn mul_add(self, factor: Self, sum: Self) -> Self;
    fn bits(self) -> u64;
    /// With one NaN for all.
    fn canonical(self) -> Self;
}

macro_rules! bits {
    ($($float:ident)*) => {$(
        impl Bits for $float {
            fn of(number: f64) -> $float {
                number as $float
            }
            fn mul_add(self, factor: $float, sum: $float) -> $float {
                $float::mul_add(self, factor, sum)
            }
            fn bits(self) -> u64 {
                u64::from($float::to_bits(self))
            }
            fn canonical(self) -> $float {
                if self.is_nan() { $float::NAN } else { self }
            }
        }
    )*};
}
bits! { f32 f64 }

/// A message if a product of that shape is wrong.
fn wrong<T: Bits>(
    isa: Isa,
    [m, k, n]: [usize; 3],
    lies: [Lies; 2],
    specials: bool,
    random: &mut Random,
) -> Option<String> {
    let (left, right) = (lies[0].strides(m, k), lies[1].strides(k, n));
    let mut matrix = |rows: usize, columns: usize, [row, column]: [usize; 2]| -> Vec<T> {
        let extent = 1 + rows.saturating_sub(1) * row + columns.saturating_sub(1) * column;
        let all = [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1e-320, 1e300];
        let number = |random: &mut Random| match specials && random.below(40) == 0 {
            true => all[random.below(all.len())],
            false => random.below(1 << 20) as f64 / f64::from(1 << 19) - 1.0,
        };
        (0..extent).map(|_| T::of(number(random))).collect()
    };
    let (a, b) = (matrix(m, k, left), matrix(k, n, right));
    // A margin that must not be written, and rows that are longer than the result's.
    let c_row = n + random.below(3);
    let margin = T::of(7.0);
    let mut c = vec![margin; m * c_row + 64];
    let (is_first, is_last) = (true, true);
    let (a_ptr, b_ptr, gathered, c_ptr) = (a.as_ptr(), b.as_ptr(), None, c.as_mut_ptr());
    let piece = ProductPiece { m, k, n, a: a_ptr, left, b: b_ptr, right, gathered, c: c_ptr, c_row, is_first, is_last };
    // SAFETY: the vectors have the extents of the strides, and the caller asks for an available level.
    #[allow(unsafe_code, reason = "pieces are raw pointers")]
    unsafe {
        piece.multiply(T::kernels(isa));
    }
    for (at, &found) in c.iter().enumerate() {
        let (row, column) = (at / c_row.max(1), at % c_row.max(1));
        let expected = if row < m && column < n {
            let step = |sum: T, step: usize| {
                a[row * left[0] + step * left[1]].mul_add(b[step * right[0] + column * right[1]], sum)
            };
            (0..k).fold(T::of(0.0), step).canonical()
        } else {
            margin
        };
        if found.bits() != expected.bits() {
            return Some(format!("{isa:?} {m} x {k} x {n} {lies:?}: {found:?} at [{row}, {column}], not {expected:?}"));
        }
    }
    None
}

/// A dense array of numbers of which some are special.
pub(super) fn random<T: Bits + bytemuck::NoUninit>(dtype: DType, sizes: &[usize], random: &mut Random) -> Array {
    let mut array = Array::new(Device::CPU, &TensorType::contiguous(dtype, sizes)).expect("memory");
    let specials = [f64::NAN, f64::INFINITY, -0.0, 0.0, 1e-320];
    let numbers: Vec<T> = (0..sizes.iter().product())
        .map(|_| match random.below(400) {
            0 => T::of(specials[random.below(specials.len())]),
            _ => T::of(random.below(1 << 20) as f64 / f64::from(1 << 19) - 1.0),
        })
        .collect();
    fill(&mut array, &numbers);
    array
}

#[test]
fn every_element_is_one_chain() {
    let mut random = Random(1);
    // Shapes beyond tiles: long chains, several blocks of columns, single rows and columns.
    let far = [
        [3, 1200, 40],
        [30, 2100, 70],
        [1, 1100, 300],
        [300, 1030, 1],
        [1, 3, 5000],
        [200, 7, 600],
        [260, 700, 33],
        [61, 530, 200],
        [13, 600, 500],
    ];
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        for transpose in 0..1500 {
            let mut shape = [random.below(41), random.below(41), random.below(41)];
            if transpose % 7 == 0 {
                shape[random.below(3)] = random.below(2);
            }
            if transpose % 25 == 0 {
                shape = far[transpose / 25 % far.len()];
            }
            let lies = [Lies::ALL[random.below(4)], Lies::ALL[random.below(4)]];
            let specials = transpose % 3 == 0;
            let found = match (transpose + transpose / 200) % 2 {
                0 => wrong::<f32>(isa, shape, lies, specials, &mut random),
                _ => wrong::<f64>(isa, shape, lies, specials, &mut random),
            };
            assert_eq!(found, None);
        }
    }
}

/// A batch of small matrices, each of which lies in rows, in columns, or in a part of larger ones.
fn batch<T: Bits + bytemuck::NoUninit>(
    dtype: DType,
    [count, rows, columns]: [usize; 3],
    numbers: &mut Random,
) -> Array {
    let (layout, all) = match numbers.below(3) {
        0 => (vec![rows * columns, columns, 1], [count, rows, columns]),
        1 => (vec![rows * columns, 1, rows], [count, columns, rows]),
        _ => (vec![(rows + 1) * 3 * columns, 3 * columns, 2], [count, rows + 1, 3 * columns]),
    };
    let layout = Layout { sizes: vec![count, rows, columns].into(), strides: layout.into(), offset: 0 };
    random::<T>(dtype, &all, numbers).with_layout(layout)
}

fn wrong_batch<T>(dtype: DType, shape: [usize; 4], numbers: &mut Random) -> Option<String>
where
    T: Bits + bytemuck::NoUninit + bytemuck::AnyBitPattern,
{
    let [count, m, k, n] = shape;
    let (left, right) = (batch::<T>(dtype, [count, m, k], numbers), batch::<T>(dtype, [count, k, n], numbers));
    let out = product(&left, &right, &TensorType::contiguous(dtype, &[count, m, n])).expect("memory");
    let layouts = [left.layout(), right.layout()];
    wrong_element::<T>([&left, &right, &out], [m, k, n]).map(|wrong| format!("{layouts:?}: {wrong}"))
}

/// A message if an element of a product of matrices is not its chain. All arrays have the same number of matrices.
pub(super) fn wrong_element<T>(arrays: [&Array; 3], [m, k, n]: [usize; 3]) -> Option<String>
where
    T: Bits + bytemuck::AnyBitPattern,
{
    let [a, b, c] = arrays.map(|array| elements::<T>(array).collect::<Vec<_>>());
    c.into_iter().enumerate().find_map(|(at, found)| {
        let (matrix, row, column) = (at / n / m, at / n % m, at % n);
        let factors = |step: usize| (a[(matrix * m + row) * k + step], b[(matrix * k + step) * n + column]);
        let chain = (0..k).map(factors).fold(T::of(0.0), |sum, (a, b)| a.mul_add(b, sum)).canonical();
        (found.bits() != chain.bits()).then(|| format!("{found:?} at {at}, not {chain:?}"))
    })
}

#[test]
fn every_element_of_a_batch_of_small_products_is_one_chain() {
    let mut numbers = Random(3);
    for nth in 0..400 {
        let mut up_to = |most: usize| 1 + numbers.below(most);
        let most = [9, 20, 40][nth % 3];
        let shape = [up_to(12), up_to(most), up_to(most), up_to(most)];
        let found = match nth % 2 {
            0 => wrong_batch::<f32>(DType::F32, shape, &mut numbers),
            _ => wrong_batch::<f64>(DType::F64, shape, &mut numbers),
        };
        assert_eq!(found, None);
    }
}
