//! Pooling against loops over windows.

use super::{Numbers, check, check_error, elements, tensor};
use opfuse::nn::{AvgPool, MaxPool};
use opfuse::{DType, Result, Tensor};

/// The windows of one dim.
#[derive(Debug, Clone, Copy)]
struct Pool {
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    ceil: bool,
}

impl Pool {
    fn random(numbers: &mut Numbers, ceil: bool) -> Pool {
        let (kernel, dilation) = (1 + numbers.below(3), 1 + numbers.below(2));
        let reach = dilation * (kernel - 1) + 1;
        let padding = numbers.below(reach / 2 + 1);
        Pool { size: 1 + numbers.below(7), kernel, stride: 1 + numbers.below(3), padding, dilation, ceil }
    }

    /// Where windows begin, counted from the first element.
    fn begins(self) -> Vec<i64> {
        let Pool { size, kernel, stride, padding, dilation, ceil } = self;
        let begin = |window: usize| (window * stride) as i64 - padding as i64;
        let fits = |window: &usize| {
            let end = begin(*window) + (dilation * (kernel - 1)) as i64;
            // In ceil mode there is one more window if elements are left over and it begins inside; it may reach
            // outside.
            let is_last = ceil && begin(*window) < size as i64 && end - (stride as i64) < (size + padding) as i64 - 1;
            end < (size + padding) as i64 || is_last
        };
        (0..).take_while(fits).map(begin).collect()
    }

    /// The elements of a window that are inside.
    fn elements(self, begin: i64) -> impl Iterator<Item = usize> {
        let inside = move |k: usize| usize::try_from(begin + (k * self.dilation) as i64).ok();
        (0..self.kernel).filter_map(inside).filter(move |&index| index < self.size)
    }
}

fn lists(pools: [Pool; 2], number: fn(&Pool) -> usize) -> [i64; 2] {
    pools.map(|pool| number(&pool) as i64)
}

fn list(pools: &[Pool], number: fn(&Pool) -> usize) -> Vec<i64> {
    pools.iter().map(|pool| number(pool) as i64).collect()
}

#[test]
fn max_pooling_takes_the_maximum_of_each_window() {
    let mut numbers = Numbers(11);
    for round in 0..200 {
        let ceil = numbers.below(2) == 1;
        let pools = [(); 2].map(|()| Pool::random(&mut numbers, ceil));
        let begins = pools.map(Pool::begins);
        let (rows, columns) = (pools[0].size, pools[1].size);
        let mut data: Vec<f64> = (0..2 * rows * columns).map(|_| numbers.number().round()).collect();
        if round % 3 == 0 {
            let place = numbers.below(data.len());
            data[place] = f64::NAN;
        }
        if round % 5 == 0 {
            data.iter_mut().for_each(|value| *value = f64::NEG_INFINITY);
        }
        let options = MaxPool {
            stride: lists(pools, |pool| pool.stride).into(),
            padding: lists(pools, |pool| pool.padding).into(),
            dilation: lists(pools, |pool| pool.dilation).into(),
            ceil_mode: ceil,
        };
        let x = tensor(&data, &[2, rows, columns]);
        let found = x.max_pool2d_with_indices(lists(pools, |pool| pool.kernel), &options);
        let case = format!("{pools:?}");
        if begins.iter().any(Vec::is_empty) {
            check_error(found, &["too small"]);
            continue;
        }
        let misses = |d: usize| begins[d].iter().any(|&begin| pools[d].elements(begin).next().is_none());
        if misses(0) || misses(1) {
            check_error(found, &["between the elements"]);
            continue;
        }
        let (mut values, mut places) = (Vec::new(), Vec::new());
        for plane in data.chunks(rows * columns) {
            for &top in &begins[0] {
                for &left in &begins[1] {
                    let mut best: Option<usize> = None;
                    for row in pools[0].elements(top) {
                        for column in pools[1].elements(left) {
                            let at = row * columns + column;
                            if best.is_none_or(|best| plane[at] > plane[best] || plane[at].is_nan()) {
                                best = Some(at);
                            }
                        }
                    }
                    let best = best.expect("every window meets an element");
                    values.push(plane[best]);
                    places.push(best as f64);
                }
            }
        }
        let sizes = [2, begins[0].len(), begins[1].len()];
        let (found, indices) = found.unwrap_or_else(|error| panic!("{case}: {error}"));
        check(Ok(found), &sizes, &values, &case);
        assert_eq!(indices.dtype(), DType::I64);
        check(indices.to_dtype(DType::F64), &sizes, &places, &case);
    }
}

#[test]
fn average_pooling_takes_the_mean_of_each_window() {
    let mut numbers = Numbers(12);
    for _ in 0..200 {
        let ceil = numbers.below(2) == 1;
        let pools = [(); 2].map(|()| {
            let pool = Pool::random(&mut numbers, ceil);
            Pool { dilation: 1, padding: pool.padding.min(pool.kernel / 2), ..pool }
        });
        let begins = pools.map(Pool::begins);
        if begins.iter().any(Vec::is_empty) {
            continue;
        }
        let x = numbers.tensor(&[1, 2, pools[0].size, pools[1].size]);
        let (count_include_pad, divisor) = (numbers.below(2) == 1, [None, Some(3), Some(-2)][numbers.below(3)]);
        let options = AvgPool {
            stride: lists(pools, |pool| pool.stride).into(),
            padding: lists(pools, |pool| pool.padding).into(),
            ceil_mode: ceil,
            count_include_pad,
            divisor,
        };
        let mut expected = Vec::new();
        for plane in elements(&x).chunks(pools[0].size * pools[1].size) {
            for &top in &begins[0] {
                for &left in &begins[1] {
                    let all = || pools[0].elements(top).flat_map(|row| pools[1].elements(left).map(move |c| (row, c)));
                    let sum: f64 = all().map(|(row, column)| plane[row * pools[1].size + column]).sum();
                    let reach = |pool: Pool, begin: i64| {
                        ((begin + pool.kernel as i64).min((pool.size + pool.padding) as i64) - begin) as f64
                    };
                    let with_padding = reach(pools[0], top) * reach(pools[1], left);
                    let own = if count_include_pad { with_padding } else { all().count() as f64 };
                    expected.push(sum / divisor.map_or(own, |divisor| divisor as f64));
                }
            }
        }
        let sizes = [1, 2, begins[0].len(), begins[1].len()];
        let found = x.avg_pool2d(lists(pools, |pool| pool.kernel), &options);
        check(found, &sizes, &expected, &format!("{pools:?} {options:?}"));
    }
}

#[test]
fn pooling_of_volumes_is_pooling_of_planes_and_then_of_depth() -> Result<()> {
    let mut numbers = Numbers(14);
    for round in 0..40 {
        let ceil = numbers.below(2) == 1;
        let mut pools = [(); 3].map(|()| Pool { size: 3 + numbers.below(4), ..Pool::random(&mut numbers, ceil) });
        let n_samples = 1 + numbers.below(2);
        // Planes of a depth are like channels, and so are lines along the depth.
        let planes = |x: &Tensor| x.reshape([n_samples as i64, -1, x.sizes()[3] as i64, x.sizes()[4] as i64]);
        let lines = |x: &Tensor, depth: usize| {
            let &[.., height, width] = x.sizes() else { unreachable!("there are planes") };
            let split = [n_samples, 2, depth, height, width].map(|size| size as i64);
            x.reshape(split)?.permute([0, 1, 3, 4, 2])?.reshape([n_samples as i64, -1, depth as i64])
        };
        let [depth, height, width] = pools.map(|pool| pool.size);
        let x = numbers.tensor(&[n_samples, 2, depth, height, width]);
        let max = |pools: &[Pool]| MaxPool {
            stride: list(pools, |pool| pool.stride).into(),
            padding: list(pools, |pool| pool.padding).into(),
            dilation: list(pools, |pool| pool.dilation).into(),
            ceil_mode: ceil,
        };
        let kernel = |pools: &[Pool]| list(pools, |pool| pool.kernel);
        if !pools.iter().any(|pool| pool.begins().is_empty()) {
            let all = x.max_pool3d(kernel(&pools), &max(&pools))?;
            let (values, places) = x.max_pool3d_with_indices(kernel(&pools), &max(&pools))?;
            assert_eq!(elements(&values), elements(&all));
            let flat = |x: &Tensor| x.reshape([2 * n_samples as i64, -1]);
            let found = flat(&x)?.gather(1, &flat(&places)?)?;
            assert_eq!(elements(&found), elements(&all), "indices are those of the maxima");
            let first = planes(&x)?.max_pool2d(kernel(&pools[1..]), &max(&pools[1..]))?;
            let both = lines(&first, depth)?.max_pool1d(kernel(&pools[..1]), &max(&pools[..1]))?;
            check(lines(&all, all.sizes()[2]), both.sizes(), &elements(&both), &format!("round {round}: {pools:?}"));
            let meta = Tensor::meta(&x.ty())?.max_pool3d(kernel(&pools), &max(&pools))?;
            assert_eq!((meta.sizes(), meta.dtype()), (all.sizes(), DType::F64));
        }
        for pool in &mut pools {
            (pool.dilation, pool.padding) = (1, pool.padding.min(pool.kernel / 2));
        }
        if pools.iter().any(|pool| pool.begins().is_empty()) {
            continue;
        }
        let count_include_pad = numbers.below(2) == 1;
        let mean = |pools: &[Pool]| AvgPool {
            stride: list(pools, |pool| pool.stride).into(),
            padding: list(pools, |pool| pool.padding).into(),
            ceil_mode: ceil,
            count_include_pad,
            divisor: None,
        };
        let all = x.avg_pool3d(kernel(&pools), &mean(&pools))?;
        let first = planes(&x)?.avg_pool2d(kernel(&pools[1..]), &mean(&pools[1..]))?;
        let both = lines(&first, depth)?.avg_pool1d(kernel(&pools[..1]), &mean(&pools[..1]))?;
        check(lines(&all, all.sizes()[2]), both.sizes(), &elements(&both), &format!("round {round}: {pools:?}"));
        let sum = x.avg_pool3d(kernel(&pools), &AvgPool { divisor: Some(1), ..mean(&pools) })?;
        let negative = x.avg_pool3d(kernel(&pools), &AvgPool { divisor: Some(-2), ..mean(&pools) })?;
        let halves: Vec<f64> = elements(&sum).iter().map(|sum| sum / -2.0).collect();
        check(Ok(negative), sum.sizes(), &halves, "a divisor");
    }
    Ok(())
}

#[test]
fn adaptive_pooling_has_even_windows() {
    let mut numbers = Numbers(13);
    for (size, count) in [(7, 3), (6, 3), (4, 6), (5, 5), (5, 1), (3, 7), (8, 5)] {
        let x = numbers.tensor(&[2, 2, size]);
        let mut expected = Vec::new();
        for row in elements(&x).chunks(size) {
            for window in 0..count {
                let own = &row[window * size / count..((window + 1) * size).div_ceil(count)];
                expected.push(own.iter().sum::<f64>() / own.len() as f64);
            }
        }
        check(x.adaptive_avg_pool1d(count as i64), &[2, 2, count], &expected, &format!("{size} to {count}"));
    }
    let x = numbers.tensor(&[1, 2, 5, 6]);
    let plane = x.adaptive_avg_pool2d([3, 4]).expect("it fits");
    let rows = x.transpose(2, 3).and_then(|x| x.reshape([2, 6, 5])).and_then(|x| x.adaptive_avg_pool1d(3));
    let both = rows.and_then(|x| x.transpose(1, 2)).and_then(|x| x.adaptive_avg_pool1d(4)).expect("it fits");
    check(plane.reshape([2, 3, 4]), &[2, 3, 4], &elements(&both), "two dims");
}

#[test]
fn pooling_takes_integers_and_refuses_bad_arguments() {
    let x = Tensor::from_slice(&[5i64, -4, 2, -9], &[1, 4]).expect("four");
    let means = x.avg_pool1d(2, &AvgPool::default()).expect("i64 is averaged");
    assert_eq!(means.to_vec::<i64>().expect("i64"), [0, -3]);
    let best = x.max_pool1d(3, &MaxPool { stride: 1.into(), ..Default::default() }).expect("i64 has an order");
    assert_eq!(best.to_vec::<i64>().expect("i64"), [5, 2]);
    let x = Numbers(1).tensor(&[1, 4, 4]);
    let wide = MaxPool { padding: 2.into(), ..Default::default() };
    check_error(x.max_pool2d(2, &wide), &["at most half", "pad=2", "kernel_size=2"]);
    check_error(x.max_pool2d(5, &MaxPool::default()), &["[1, 4, 4]", "too small"]);
    check_error(x.avg_pool2d(2, &AvgPool { divisor: Some(0), ..Default::default() }), &["divisor"]);
    check_error(x.max_pool1d(0, &MaxPool::default()), &["kernel_size"]);
    check_error(x.select(0, 0).and_then(|x| x.avg_pool2d(2, &AvgPool::default())), &["[4, 4]"]);
    check_error(x.max_pool3d(2, &MaxPool::default()), &["max_pool3d", "4-dim or 5-dim", "[1, 4, 4]"]);
    let volume = Numbers(1).tensor(&[1, 2, 2, 2]);
    check_error(volume.max_pool3d([2, 2], &MaxPool::default()), &["max_pool3d", "pass 3 numbers"]);
    check_error(volume.avg_pool3d(2, &AvgPool { divisor: Some(0), ..Default::default() }), &["avg_pool3d", "zero"]);
    let line = Numbers(1).tensor(&[1, 1, 3]);
    for count in [1_000_000_000_000, 1 << 60, i64::MAX] {
        assert!(line.adaptive_avg_pool1d(count).is_err(), "{count} means are more than memory holds");
    }
    check_error(line.adaptive_avg_pool1d(i64::MAX), &["adaptive_avg_pool1d", "9223372036854775807"]);
}
