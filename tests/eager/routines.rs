//! Scans, sorts and writes by index against slow twins, on every dtype and on odd layouts; bad arguments are refused.
//!
//! Elements are small whole numbers, which every dtype holds exactly, so that results are compared for equality.

use opfuse::dispatch::{Dispatcher, Value};
use opfuse::stack;
use opfuse::{DType, Error, Result, Tensor, compile};
use std::ops::Range;

/// Numbers without a pattern.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % bound.max(1)
    }

    pub(super) fn whole(&mut self, range: Range<i64>) -> i64 {
        range.start + self.below((range.end - range.start) as usize) as i64
    }
}

pub(super) const DTYPES: [DType; 10] = [
    DType::Bool,
    DType::U8,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

const SHAPES: [&[usize]; 9] = [&[], &[1], &[5], &[0], &[3, 4], &[4, 0, 2], &[2, 3, 4], &[1, 6, 1], &[2, 1, 3, 2]];

/// A shape with its elements in logical order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plain {
    sizes: Vec<usize>,
    pub(super) elements: Vec<f64>,
}

impl Plain {
    pub(super) fn of(tensor: &Tensor) -> Plain {
        let elements = tensor.to_dtype(DType::F64).and_then(|wide| wide.to_vec::<f64>()).expect("it has data");
        Plain { sizes: tensor.sizes().to_vec(), elements }
    }

    fn new(sizes: &[usize], mut element: impl FnMut() -> f64) -> Plain {
        let count = sizes.iter().product();
        Plain { sizes: sizes.to_vec(), elements: std::iter::repeat_with(&mut element).take(count).collect() }
    }

    fn places(&self) -> Vec<Vec<usize>> {
        let place = |mut at: usize| {
            let mut place: Vec<usize> = self.sizes.iter().rev().map(|&size| (at % size, at /= size).0).collect();
            place.reverse();
            place
        };
        (0..self.elements.len()).map(place).collect()
    }

    fn at(&self, place: &[usize]) -> usize {
        place.iter().zip(&self.sizes).fold(0, |at, (i, size)| at * size + i)
    }

    /// The elements of every line along `dim`, as their positions.
    fn lines(&self, dim: usize) -> Vec<Vec<usize>> {
        if self.sizes.is_empty() {
            return vec![vec![0]];
        }
        let starts = self.places().into_iter().filter(|place| place[dim] == 0);
        starts
            .map(|mut place| {
                (0..self.sizes[dim])
                    .map(|i| {
                        place[dim] = i;
                        self.at(&place)
                    })
                    .collect()
            })
            .collect()
    }

    /// As a tensor, laid out in one of four ways.
    fn tensor(&self, dtype: DType, way: usize) -> Tensor {
        let make = || -> Result<Tensor> {
            let dense = Tensor::from_slice(&self.elements, &self.sizes)?.to_dtype(dtype)?;
            match way {
                0 => Ok(dense),
                1 if self.sizes.len() > 1 => dense.transpose(0, -1)?.contiguous()?.transpose(0, -1),
                2 => stack(&[&dense, &dense], -1)?.select(-1, 1),
                _ => stack(&[&dense, &dense], 0)?.select(0, 1),
            }
        };
        make().expect("the layout exists")
    }
}

/// Whole numbers from −2 to 2, or from 0 where the dtype has no negative ones.
fn elements(random: &mut Random, sizes: &[usize], dtype: DType) -> Plain {
    let range = match dtype {
        DType::Bool => 0..2,
        DType::U8 => 0..3,
        _ => -2..3,
    };
    Plain::new(sizes, || random.whole(range.clone()) as f64)
}

/// Calls `check` for every dtype, shape, dim and layout.
fn everywhere(mut check: impl FnMut(&mut Random, DType, &[usize], i64, usize)) {
    let mut random = Random(7);
    for dtype in DTYPES {
        for sizes in SHAPES {
            for dim in 0..sizes.len().max(1) {
                for way in 0..4 {
                    let signed = if random.below(2) == 0 { dim as i64 } else { dim as i64 - sizes.len().max(1) as i64 };
                    check(&mut random, dtype, sizes, signed, way);
                }
            }
        }
    }
}

fn index_of(dim: i64, rank: usize) -> usize {
    dim.rem_euclid(rank.max(1) as i64) as usize
}

#[track_caller]
fn check_equal(what: &str, found: Result<Tensor>, dtype: DType, expected: &Plain) {
    let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(found.dtype(), dtype, "{what}");
    assert_eq!(Plain::of(&found), *expected, "{what}");
}

#[test]
fn scans_are_running_folds() {
    everywhere(|random, dtype, sizes, dim, way| {
        let plain = elements(random, sizes, dtype);
        let x = plain.tensor(dtype, way);
        let fitting = if dtype.is_float() { dtype } else { DType::I64 };
        let (mut sums, mut products) = (plain.clone(), plain.clone());
        for line in plain.lines(index_of(dim, sizes.len())) {
            let (mut sum, mut product) = (0.0, 1.0);
            for at in line {
                sum += plain.elements[at];
                product *= plain.elements[at];
                sums.elements[at] = sum;
                products.elements[at] = product;
            }
        }
        check_equal("cumsum", x.cumsum(dim), fitting, &sums);
        check_equal("cumprod", x.cumprod(dim), fitting, &products);
    });
}

#[test]
fn running_extremes_name_the_last_of_equals() {
    everywhere(|random, dtype, sizes, dim, way| {
        let mut plain = elements(random, sizes, dtype);
        if dtype.is_float() {
            plain.elements.iter_mut().filter(|_| random.below(8) == 0).for_each(|element| *element = f64::NAN);
        }
        let x = plain.tensor(dtype, way);
        for greatest in [true, false] {
            let mut places = plain.clone();
            for line in plain.lines(index_of(dim, sizes.len())) {
                let mut best = 0;
                for (i, &at) in line.iter().enumerate() {
                    let (new, old) = (plain.elements[at], plain.elements[line[best]]);
                    let better = if greatest { new >= old } else { new <= old };
                    if new.is_nan() || (!old.is_nan() && better) {
                        best = i;
                    }
                    places.elements[at] = best as f64;
                }
            }
            let (values, indices) = if greatest { x.cummax(dim) } else { x.cummin(dim) }.expect("the dim is there");
            assert_eq!(Plain::of(&values).elements.len(), plain.elements.len());
            assert_eq!(values.dtype(), dtype);
            check_equal("places", Ok(indices), DType::I64, &places);
        }
    });
}

#[test]
fn sorts_are_stable_and_put_nan_last() {
    everywhere(|random, dtype, sizes, dim, way| {
        let mut plain = elements(random, sizes, dtype);
        if dtype.is_float() {
            for element in &mut plain.elements {
                match random.below(8) {
                    0 => *element = f64::NAN,
                    1 => *element = -0.0,
                    2 => *element = f64::NEG_INFINITY,
                    _ => {}
                }
            }
        }
        let x = plain.tensor(dtype, way);
        for descending in [false, true] {
            let (mut order, mut sorted) = (plain.clone(), plain.clone());
            let rank = |x: f64| if x.is_nan() { f64::INFINITY } else { x };
            for line in plain.lines(index_of(dim, sizes.len())) {
                let mut places: Vec<usize> = (0..line.len()).collect();
                places.sort_by(|&a, &b| {
                    let (a, b) = (rank(plain.elements[line[a]]), rank(plain.elements[line[b]]));
                    let (a, b) = if descending { (b, a) } else { (a, b) };
                    a.partial_cmp(&b).expect("no NaN is left")
                });
                for (&at, &place) in line.iter().zip(&places) {
                    order.elements[at] = place as f64;
                    sorted.elements[at] = plain.elements[line[place]];
                }
            }
            check_equal("argsort", x.argsort(dim, descending), DType::I64, &order);
            let (values, indices) = x.sort(dim, descending).expect("the dim is there");
            assert_eq!(Plain::of(&indices), order);
            let bits = |plain: &Plain| -> Vec<u64> { plain.elements.iter().map(|x| x.to_bits() << 1).collect() };
            assert_eq!(bits(&Plain::of(&values)), bits(&sorted));
        }
    });
}

#[test]
fn long_sorts_are_those_of_the_standard_library() {
    let mut random = Random(3);
    let numbers: Vec<f32> = (0..70_000).map(|_| random.whole(-500..500) as f32 / 8.0).collect();
    let mut expected = numbers.clone();
    expected.chunks_mut(700).for_each(|row| row.sort_by(f32::total_cmp));
    let x = Tensor::from_slice(&numbers, &[100, 700]).expect("it has as many elements");
    let (values, _) = x.sort(-1, false).expect("the dim is there");
    assert_eq!(values.to_vec::<f32>(), Ok(expected));
}

#[test]
fn topk_is_the_first_of_a_sort() {
    let x = Tensor::try_from([[3.0f32, 1.0, 2.0, 5.0], [0.0, 9.0, 7.0, 8.0]]).expect("memory is there");
    let (values, indices) = x.topk(2, 1, true).expect("there are two");
    assert_eq!(values.to_vec(), Ok(vec![5.0f32, 3.0, 9.0, 8.0]));
    assert_eq!(indices.to_vec(), Ok(vec![3i64, 0, 1, 3]));
    let (values, indices) = x.topk(1, 0, false).expect("there is one");
    assert_eq!(values.to_vec(), Ok(vec![0.0f32, 1.0, 2.0, 5.0]));
    assert_eq!((indices.sizes(), indices.to_vec()), (&[1, 4][..], Ok(vec![1i64, 0, 0, 0])));
    let error = x.topk(5, 1, true).expect_err("there are four");
    assert!(error.to_string().contains("[2, 4]"), "{error}");
}

/// A whole number as an element of a dtype.
fn kept(dtype: DType, number: f64) -> f64 {
    match dtype {
        DType::Bool => (number != 0.0) as u8 as f64,
        DType::U8 => number as i64 as u8 as f64,
        DType::I8 => number as i64 as i8 as f64,
        _ => number,
    }
}

/// An index for a scatter or a gather: of the shape's rank, in the other dims not larger.
fn index(random: &mut Random, sizes: &[usize], dim: usize) -> Plain {
    let mut own: Vec<usize> = sizes.iter().map(|&size| size - random.below(2).min(size)).collect();
    let size = sizes.get(dim).copied().unwrap_or(1);
    if let Some(along) = own.get_mut(dim) {
        *along = if size == 0 { 0 } else { random.below(6) };
    }
    Plain::new(&own, || random.below(size) as f64)
}

type Write = fn(f64, f64) -> f64;

#[test]
fn writes_by_index_go_in_order() {
    let words: [(&str, Write, f64); 5] = [
        ("sum", |a, b| a + b, 0.0),
        ("prod", |a, b| a * b, 1.0),
        ("amax", f64::max, f64::NEG_INFINITY),
        ("amin", f64::min, f64::INFINITY),
        ("mean", |a, b| a + b, 0.0),
    ];
    everywhere(|random, dtype, sizes, dim, way| {
        let into = elements(random, sizes, dtype);
        let at = index_of(dim, sizes.len());
        let index = index(random, sizes, at);
        let larger: Vec<usize> = index.sizes.iter().map(|&size| size + random.below(2)).collect();
        let source = elements(random, &larger, dtype);
        let index_dtype = if random.below(2) == 0 { DType::I64 } else { DType::I32 };
        let tensors =
            (into.tensor(dtype, way), index.tensor(index_dtype, (way + 1) % 4), source.tensor(dtype, (way + 2) % 4));
        let (x, i, s) = &tensors;
        // Where each element of the source goes, and what it is.
        let writes: Vec<(usize, f64)> = index
            .places()
            .into_iter()
            .zip(&index.elements)
            .map(|(mut place, &to)| {
                let value = source.elements[source.at(&place)];
                if let Some(along) = place.get_mut(at) {
                    *along = to as usize;
                }
                (into.at(&place), value)
            })
            .collect();
        let mut overwritten = into.clone();
        writes.iter().for_each(|&(place, value)| overwritten.elements[place] = value);
        check_equal("scatter", x.scatter(dim, i, s), dtype, &overwritten);
        let mut filled = into.clone();
        writes.iter().for_each(|&(place, _)| filled.elements[place] = 1.0);
        check_equal("scatter_value", x.scatter_value(dim, i, 1), dtype, &filled);
        let mut added = into.clone();
        for &(place, value) in &writes {
            added.elements[place] = kept(dtype, added.elements[place] + value);
        }
        check_equal("scatter_add", x.scatter_add(dim, i, s), dtype, &added);
        for (word, write, start) in words {
            for with_self in [true, false] {
                let mut reduced = into.clone();
                let mut counts = vec![with_self as usize; into.elements.len()];
                if !with_self {
                    writes.iter().for_each(|&(place, _)| reduced.elements[place] = start);
                }
                for &(place, value) in &writes {
                    reduced.elements[place] = kept(dtype, write(reduced.elements[place], value));
                    counts[place] += 1;
                }
                if word == "mean" && dtype != DType::Bool {
                    for (element, count) in reduced.elements.iter_mut().zip(counts).filter(|(_, count)| *count > 0) {
                        *element /= count as f64;
                        *element = match dtype {
                            DType::F32 => f64::from(*element as f32),
                            DType::F16 => half::f16::from_f64(*element).to_f64(),
                            DType::BF16 => half::bf16::from_f64(*element).to_f64(),
                            DType::Complex64 | DType::Complex128 => unreachable!("no case is complex"),
                            DType::F64 => *element,
                            _ => element.floor(),
                        };
                    }
                }
                check_equal(word, x.scatter_reduce(dim, i, s, word, with_self), dtype, &reduced);
            }
        }
    });
}

/// Two or three dims of a shape by index tensors, masks and whole dims.
fn indices(random: &mut Random, sizes: &[usize]) -> Vec<Option<Plain>> {
    let shapes: [&[usize]; 4] = [&[], &[3], &[2, 1], &[2, 3]];
    let n_named = random.below(sizes.len() + 1);
    sizes[..n_named]
        .iter()
        .map(|&size| {
            let shape = shapes[random.below(4)];
            let low = -(size as i64);
            (random.below(3) > 0 && size > 0).then(|| Plain::new(shape, || random.whole(low..size as i64) as f64))
        })
        .collect()
}

/// The shape of an indexed tensor and, for each of its elements, the place it comes from.
fn indexed(x: &Plain, indices: &[Option<Plain>]) -> (Vec<usize>, Vec<usize>) {
    let named: Vec<usize> = (0..indices.len()).filter(|&dim| indices[dim].is_some()).collect();
    let rank = indices.iter().flatten().map(|index| index.sizes.len()).max().unwrap_or(0);
    let mut common = vec![1; rank];
    for index in indices.iter().flatten() {
        let lead = rank - index.sizes.len();
        index
            .sizes
            .iter()
            .enumerate()
            .filter(|(_, size)| **size != 1)
            .for_each(|(dim, &size)| common[lead + dim] = size);
    }
    let neighbours = named.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    let front = if neighbours { named.first().copied().unwrap_or(0) } else { 0 };
    let rest: Vec<usize> = (0..x.sizes.len()).filter(|dim| !named.contains(dim)).collect();
    let rest_sizes: Vec<usize> = rest.iter().map(|&dim| x.sizes[dim]).collect();
    let sizes = [&rest_sizes[..front], &common, &rest_sizes[front..]].concat();
    let from = Plain::new(&sizes, || 0.0).places().into_iter().map(|place| {
        let (before, behind) = place.split_at(front);
        let (own, behind) = behind.split_at(rank);
        let mut source = vec![0; x.sizes.len()];
        rest.iter().zip(before.iter().chain(behind)).for_each(|(&dim, &at)| source[dim] = at);
        for &dim in &named {
            let index = indices[dim].as_ref().expect("it is named");
            let own: Vec<usize> =
                own[rank - index.sizes.len()..].iter().zip(&index.sizes).map(|(&at, &size)| at % size.max(1)).collect();
            source[dim] = (index.elements[index.at(&own)] as i64).rem_euclid(x.sizes[dim] as i64) as usize;
        }
        x.at(&source)
    });
    (sizes.clone(), from.collect())
}

#[test]
fn index_tensors_are_broadcast_together() {
    let mut random = Random(11);
    let shapes: [&[usize]; 5] = [&[4], &[3, 4], &[2, 3, 4], &[3, 1, 2, 2], &[2, 0, 3]];
    for round in 0..300 {
        let sizes = shapes[random.below(5)];
        let dtype = DTYPES[random.below(10)];
        let x = elements(&mut random, sizes, dtype);
        let indices = indices(&mut random, sizes);
        let tensors: Vec<Option<Tensor>> = indices
            .iter()
            .map(|index| index.as_ref().map(|index| index.tensor([DType::I64, DType::I32][round % 2], round % 4)))
            .collect();
        let (shape, from) = indexed(&x, &indices);
        let what = format!("{sizes:?} by {indices:?}");
        let expected = Plain { sizes: shape.clone(), elements: from.iter().map(|&at| x.elements[at]).collect() };
        let tensor = x.tensor(dtype, round % 3);
        check_equal(&what, tensor.index(&tensors), dtype, &expected);
        let values = elements(&mut random, &shape, dtype);
        let (mut put, mut added) = (x.clone(), x.clone());
        for (&at, &value) in from.iter().zip(&values.elements) {
            put.elements[at] = value;
            added.elements[at] = kept(dtype, added.elements[at] + value);
        }
        let values = values.tensor(dtype, round % 4);
        check_equal(&what, tensor.index_put(&tensors, &values, false), dtype, &put);
        check_equal(&what, tensor.index_put(&tensors, &values, true), dtype, &added);
    }
}

#[test]
fn masks_pick_the_elements_where_they_are_true() {
    everywhere(|random, dtype, sizes, _, way| {
        let x = elements(random, sizes, dtype);
        let mask = elements(random, sizes, DType::Bool);
        let held: Vec<usize> = (0..mask.elements.len()).filter(|&at| mask.elements[at] != 0.0).collect();
        let (tensor, mask) = (x.tensor(dtype, way), mask.tensor(DType::Bool, (way + 1) % 4));
        let chosen = Plain { sizes: vec![held.len()], elements: held.iter().map(|&at| x.elements[at]).collect() };
        check_equal("masked_select", tensor.masked_select(&mask), dtype, &chosen);
        if !sizes.is_empty() {
            check_equal("index by mask", tensor.index(&[Some(mask.clone())]), dtype, &chosen);
        }
        let source = elements(random, &[held.len() + 1], dtype);
        let mut written = x.clone();
        held.iter().zip(&source.elements).for_each(|(&at, &value)| written.elements[at] = value);
        check_equal("masked_scatter", tensor.masked_scatter(&mask, &source.tensor(dtype, way)), dtype, &written);
        let places: Vec<f64> =
            held.iter().flat_map(|&at| x.places()[at].iter().map(|&i| i as f64).collect::<Vec<_>>()).collect();
        let expected = Plain { sizes: vec![held.len(), sizes.len()], elements: places };
        check_equal("nonzero", mask.nonzero(), DType::I64, &expected);
    });
}

fn whole(data: &[i64]) -> Tensor {
    Tensor::try_from(data).expect("memory is there")
}

#[track_caller]
fn check_values<T: opfuse::Element>(found: Result<Tensor>, sizes: &[usize], expected: &[T]) {
    let found = found.expect("the call is legal");
    assert_eq!((found.sizes(), found.to_vec::<T>()), (sizes, Ok(expected.to_vec())));
}

#[test]
fn a_mask_of_no_dims_selects_all_or_nothing() {
    let x = Tensor::try_from([[1.0f32, 2.0], [3.0, 4.0]]).expect("memory is there");
    let mask = |held: bool| Tensor::full(&[], held, None).expect("memory is there");
    check_values(x.i(mask(true)), &[1, 2, 2], &[1.0f32, 2.0, 3.0, 4.0]);
    check_values(x.i(mask(false)), &[0, 2, 2], &[] as &[f32]);
    check_values(x.i((1, mask(true))), &[1, 2], &[3.0f32, 4.0]);
    check_values(Tensor::full(&[], 7.0f32, None).and_then(|x| x.i(mask(true))), &[1], &[7.0f32]);
    x.set(mask(false), 9.0f32).expect("the mask selects nothing");
    check_values(Ok(x.clone()), &[2, 2], &[1.0f32, 2.0, 3.0, 4.0]);
    x.set(mask(true), 9.0f32).expect("the mask selects all");
    check_values(Ok(x), &[2, 2], &[9.0f32; 4]);
}

#[test]
fn an_index_vector_picks_slices() {
    let x = Tensor::try_from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]).expect("memory is there");
    let source = Tensor::try_from([[10.0f32, 20.0, 30.0], [40.0, 50.0, 60.0]]).expect("memory is there");
    let index = whole(&[2, 0, 2]);
    check_values(x.index_add(1, &index, &source), &[2, 3], &[21.0f32, 2.0, 43.0, 54.0, 5.0, 106.0]);
    check_values(x.index_add_scaled(1, &index, &source, 0.5), &[2, 3], &[11.0f32, 2.0, 23.0, 29.0, 5.0, 56.0]);
    check_values(x.index_copy(1, &index, &source), &[2, 3], &[20.0f32, 2.0, 30.0, 50.0, 5.0, 60.0]);
    check_values(x.index_fill(1, &whole(&[-1, 0]), 9), &[2, 3], &[9.0f32, 2.0, 9.0, 9.0, 5.0, 9.0]);
    check_values(x.take(&whole(&[-1, 0, 3])), &[3], &[6.0f32, 1.0, 4.0]);
    check_values(
        x.put(&whole(&[-1, 0]), &x.select(0, 0).and_then(|row| row.narrow(0, 1, 2)).expect("two"), true),
        &[2, 3],
        &[4.0f32, 2.0, 3.0, 4.0, 5.0, 8.0],
    );
    check_values(
        x.take_along_dim(&Tensor::try_from([[0i64], [-1]]).expect("memory is there"), 1),
        &[2, 1],
        &[1.0f32, 6.0],
    );
    check_values(x.take_along_dim(&whole(&[5, 1]), None), &[2], &[6.0f32, 2.0]);
    let scalar = Tensor::scalar(3.0f32).expect("memory is there");
    check_values(scalar.index_add(0, &whole(&[0]), &scalar), &[], &[6.0f32]);
    check_values(scalar.index_fill(0, &whole(&[0]), 1), &[], &[1.0f32]);
    check_values(scalar.gather(0, &whole(&[0, 0])), &[2], &[3.0f32, 3.0]);
    check_values(scalar.scatter_add(0, &whole(&[0, 0]), &x.reshape([-1]).expect("six")), &[], &[6.0f32]);
}

#[test]
fn writes_by_index_happen_in_place() {
    let x = Tensor::zeros(&[2, 3], DType::F32).expect("memory is there");
    let row = x.select(0, 1).expect("there are two");
    let ones = Tensor::ones(&[2], DType::F32).expect("memory is there");
    row.index_add_(0, &whole(&[2, 2]), &ones).expect("it fits");
    x.index_put_(&[None, Some(whole(&[0]))], &Tensor::scalar(5.0f32).expect("memory is there"), false)
        .expect("it fits");
    row.scatter_(0, &whole(&[1]), &ones).expect("it fits");
    row.index_fill_(0, &whole(&[-3]), 7).expect("it fits");
    check_values(Ok(x.clone()), &[2, 3], &[5.0f32, 0.0, 0.0, 7.0, 1.0, 2.0]);
    let call = |name: &str, arguments: Vec<Value>| {
        let operator = Dispatcher::global().lookup(name).expect("it is registered");
        operator.invoke(arguments, Vec::new()).expect("the call is legal")
    };
    call("aten::cumsum_", vec![Value::Tensor(row.clone()), Value::Int(0)]);
    let indices = Value::OptionalTensorList(vec![Some(whole(&[0]))]);
    call("aten::index_put_", vec![Value::Tensor(x.clone()), indices, Value::Tensor(row.clone()), Value::Bool(true)]);
    check_values(Ok(x), &[2, 3], &[12.0f32, 8.0, 10.0, 7.0, 8.0, 10.0]);
}

#[test]
fn elements_are_repeated_and_counted() {
    let x = Tensor::try_from([[1i64, 0], [2, 3]]).expect("memory is there");
    check_values(x.repeat_interleave(2, None), &[8], &[1i64, 1, 0, 0, 2, 2, 3, 3]);
    check_values(x.repeat_interleave(2, 0), &[4, 2], &[1i64, 0, 1, 0, 2, 3, 2, 3]);
    check_values(x.repeat_interleave_each(&whole(&[0, 2]), 1), &[2, 2], &[0i64, 0, 3, 3]);
    check_values(x.one_hot(None), &[2, 2, 4], &[0i64, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]);
    check_values(x.count_nonzero(()), &[], &[3i64]);
    check_values(x.count_nonzero(0), &[2], &[2i64, 1]);
    assert!(!x.repeat_interleave(1, 0).expect("the dim is there").is_alias_of(&x));
}

#[test]
fn out_of_range_indices_are_refused() {
    let x = Tensor::zeros(&[3, 4], DType::F32).expect("memory is there");
    let one = |value: i64| whole(&[value]);
    let is_index = |error: Error| matches!(error, Error::OutOfRange { .. } | Error::Index { .. });
    let column = |value: i64| Tensor::from_slice(&[value], &[1, 1]).expect("memory is there");
    let of_index: [Result<Tensor>; 13] = [
        x.index(&[Some(one(3))]),
        x.index(&[Some(one(-4))]),
        x.index(&[None, Some(one(4))]),
        x.index(&[Some(whole(&[0, 1])), Some(whole(&[0, 1, 2]))]),
        x.index(&[Some(Tensor::zeros(&[1], DType::F32).expect("memory is there"))]),
        x.index(&[None, None, Some(one(0))]),
        x.index(&[Some(Tensor::zeros(&[4], DType::Bool).expect("memory is there"))]),
        x.index_put(&[Some(one(7))], &Tensor::zeros(&[], DType::F32).expect("memory is there"), false),
        x.index_select(0, &one(3)),
        x.index_add(0, &one(-1), &Tensor::zeros(&[1, 4], DType::F32).expect("memory is there")),
        x.index_copy(0, &one(3), &Tensor::zeros(&[1, 4], DType::F32).expect("memory is there")),
        x.index_fill(0, &one(-4), 1),
        x.take(&one(12)),
    ];
    for (number, result) in of_index.into_iter().enumerate() {
        let error = result.expect_err("it names nothing");
        assert!(is_index(error.clone()), "{number}: {error}");
    }
    let source = Tensor::zeros(&[1, 1], DType::F32).expect("memory is there");
    let of_value: [Result<Tensor>; 8] = [
        x.gather(0, &column(3)),
        x.gather(0, &column(-1)),
        x.gather(0, &one(0)),
        x.scatter(0, &column(3), &source),
        x.scatter_add(1, &column(-1), &source),
        x.scatter_add(1, &column(0), &Tensor::zeros(&[1, 1], DType::F64).expect("memory is there")),
        x.scatter_reduce(1, &column(0), &source, "median", true),
        x.masked_scatter(&Tensor::ones(&[3, 4], DType::Bool).expect("memory is there"), &source),
    ];
    for (number, result) in of_value.into_iter().enumerate() {
        let error = result.expect_err("it is illegal");
        assert!(!is_index(error.clone()), "{number}: {error}");
    }
    check_values(x.index_select(0, &one(2)), &[1, 4], &[0.0f32; 4]);
}

#[test]
fn compiled_functions_index_by_tensors_and_masks() {
    let x = Tensor::try_from([[3.0f32, 1.0, 2.0], [0.0, 9.0, 7.0]]).expect("memory is there");
    let by_index = compile(|x: &Tensor| {
        let (values, places) = x.mul(2.0)?.sort(1, true)?;
        let again = x.scatter_add(1, &places, &values)?.cumsum(0)?;
        again.index(&[None, Some(whole(&[2, -3]))])
    });
    let eager = x.mul(2.0).and_then(|twice| twice.sort(1, true)).and_then(|(values, places)| {
        x.scatter_add(1, &places, &values)?.cumsum(0)?.index(&[None, Some(whole(&[2, -3]))])
    });
    let expected = eager.and_then(|eager| eager.to_vec::<f32>());
    for _ in 0..3 {
        assert_eq!(by_index.call(&x).and_then(|found| found.to_vec::<f32>()), expected);
    }
    let by_mask = compile(|x: &Tensor| x.add(1.0)?.masked_select(&x.gt(1.5)?)?.mul(2.0));
    for _ in 0..3 {
        let found = by_mask.call(&x).and_then(|found| found.to_vec::<f32>());
        assert_eq!(found, Ok(vec![8.0, 6.0, 20.0, 16.0]));
    }
}
