//! Convolutions against direct loops, and their gradients against the definition.

use super::{Numbers, check, check_error, elements};
use opfuse::dispatch::{Dispatcher, Value};
use opfuse::nn::{ConvTranspose, Convolution, Padding};
use opfuse::{DType, Tensor};

/// The parameters of a two-dimensional convolution.
#[derive(Debug, Clone)]
struct Case {
    samples: usize,
    groups: usize,
    /// Channels of a group: in, out.
    channels: [usize; 2],
    size: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    transposed: bool,
    output_padding: [usize; 2],
}

impl Case {
    fn random(numbers: &mut Numbers) -> Case {
        let mut pair = |least: usize, bound: usize| [least + numbers.below(bound), least + numbers.below(bound)];
        let (kernel, stride, padding, dilation) = (pair(1, 3), pair(1, 5), pair(0, 4), pair(1, 3));
        let size = pair(1, 6);
        let channels = pair(1, 3);
        let [transposed, output] = pair(0, 2);
        Case {
            samples: numbers.below(4),
            groups: 1 + numbers.below(3),
            channels,
            size,
            kernel,
            stride,
            padding,
            dilation,
            transposed: transposed == 1,
            output_padding: [0, 1].map(|d: usize| output.min(stride[d].max(dilation[d]) - 1)),
        }
    }

    /// Sizes of the result, if there is one.
    fn places(&self) -> Option<[usize; 2]> {
        let place = |d: usize| {
            let reach = self.dilation[d] * (self.kernel[d] - 1) + 1;
            if self.transposed {
                let all = (self.size[d] - 1) * self.stride[d] + reach + self.output_padding[d];
                return all.checked_sub(2 * self.padding[d]).filter(|&size| size > 0);
            }
            Some((self.size[d] + 2 * self.padding[d]).checked_sub(reach)? / self.stride[d] + 1)
        };
        Some([place(0)?, place(1)?])
    }

    fn weight_sizes(&self) -> [usize; 4] {
        let [inner, outer] = self.channels;
        let [kh, kw] = self.kernel;
        if self.transposed { [self.groups * inner, outer, kh, kw] } else { [self.groups * outer, inner, kh, kw] }
    }

    fn input_sizes(&self) -> [usize; 4] {
        [self.samples, self.groups * self.channels[0], self.size[0], self.size[1]]
    }

    fn output_sizes(&self, places: [usize; 2]) -> [usize; 4] {
        [self.samples, self.groups * self.channels[1], places[0], places[1]]
    }

    /// Calls `meet(sample, in, out, input place, output place, weight place)` for each product of the sum.
    fn each(&self, places: [usize; 2], mut meet: impl FnMut(usize, usize, usize)) {
        let [inner, outer] = self.channels;
        let at = |sizes: [usize; 4], index: [usize; 4]| {
            index.iter().zip(sizes).fold(0, |sum, (&index, size)| sum * size + index)
        };
        // A transposed convolution is one with input and output swapped.
        let (small, large) = if self.transposed { (self.size, places) } else { (places, self.size) };
        for index in
            0..self.samples * self.groups * inner * outer * self.kernel[0] * self.kernel[1] * small[0] * small[1]
        {
            let mut rest = index;
            let mut digit = |base: usize| {
                let digit = rest % base;
                rest /= base;
                digit
            };
            let (q, k) = ([digit(small[0]), digit(small[1])], [digit(self.kernel[0]), digit(self.kernel[1])]);
            let (i, o, group, sample) = (digit(inner), digit(outer), digit(self.groups), digit(self.samples));
            let met = [0, 1].map(|d: usize| {
                let place = q[d] * self.stride[d] + k[d] * self.dilation[d];
                place.checked_sub(self.padding[d]).filter(|&place| place < large[d])
            });
            let [Some(row), Some(column)] = met else { continue };
            let (input, output) = if self.transposed { (q, [row, column]) } else { ([row, column], q) };
            let (i, o) = (group * inner + i, group * outer + o);
            let weight = if self.transposed { [i, o % outer, k[0], k[1]] } else { [o, i % inner, k[0], k[1]] };
            meet(
                at(self.input_sizes(), [sample, i, input[0], input[1]]),
                at(self.weight_sizes(), weight),
                at(self.output_sizes(places), [sample, o, output[0], output[1]]),
            );
        }
    }

    fn run(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> opfuse::Result<Tensor> {
        let dims = |pair: [usize; 2]| pair.map(|number| number as i64).into();
        let groups = self.groups as i64;
        let (stride, dilation) = (dims(self.stride), dims(self.dilation));
        if self.transposed {
            let (padding, output_padding) = (dims(self.padding), dims(self.output_padding));
            return x.conv_transpose2d(
                weight,
                bias,
                &ConvTranspose { stride, padding, output_padding, dilation, groups },
            );
        }
        let padding = Padding::Zeros(dims(self.padding));
        x.conv2d(weight, bias, &Convolution { stride, padding, dilation, groups })
    }

    /// The three gradients, from the operator.
    fn gradients(&self, g: &Tensor, x: &Tensor, weight: &Tensor) -> Vec<Tensor> {
        opfuse::dispatch::load().expect("operators register");
        let operator = Dispatcher::global().lookup("aten::convolution_backward").expect("it is registered");
        let list = |pair: [usize; 2]| Value::IntList(pair.iter().map(|&number| number as i64).collect());
        let tensor = |tensor: &Tensor| Value::Tensor(tensor.clone());
        let mut stack = [
            tensor(g),
            tensor(x),
            tensor(weight),
            Value::None,
            list(self.stride),
            list(self.padding),
            list(self.dilation),
            Value::Bool(self.transposed),
            list(self.output_padding),
            Value::Int(self.groups as i64),
            Value::BoolList(vec![true; 3]),
        ]
        .into_iter()
        .collect();
        operator.call_boxed(&mut stack).unwrap_or_else(|error| panic!("{self:?}: {error}"));
        let tensors = stack.into_iter().map(|value| match value {
            Value::Tensor(tensor) => tensor,
            other => panic!("{self:?}: {}", other.type_name()),
        });
        tensors.collect()
    }
}

#[test]
fn values_and_gradients_are_those_of_the_loops() {
    let mut numbers = Numbers(7);
    let mut n_run = 0;
    while n_run < 250 {
        let case = Case::random(&mut numbers);
        n_run += usize::from(is_that_of_the_loops(&case, &mut numbers));
    }
}

/// Many channels of few places, as at the end of a network: the columns of a transposed convolution, also of one in a
/// backward pass, are added up, and samples are columns of one product.
#[test]
fn deep_convolutions_are_those_of_the_loops() {
    let mut numbers = Numbers(11);
    let mut n_run = 0;
    while n_run < 60 {
        let case = Case { channels: [37, 40], ..Case::random(&mut numbers) };
        if case.size.iter().product::<usize>() <= 9 {
            n_run += usize::from(is_that_of_the_loops(&case, &mut numbers));
        }
    }
}

/// Small images with a channel per group: channels become last in memory meanwhile, if there are enough of them.
#[test]
fn depthwise_convolutions_of_small_images_are_those_of_the_loops() {
    let mut numbers = Numbers(13);
    let mut n_run = 0;
    while n_run < 120 {
        let groups = 6 + numbers.below(30);
        let case = Case { groups, channels: [1, 1], ..Case::random(&mut numbers) };
        n_run += usize::from(is_that_of_the_loops(&case, &mut numbers));
    }
}

/// Compares values and gradients, or the error if no window fits. Whether one does.
fn is_that_of_the_loops(case: &Case, numbers: &mut Numbers) -> bool {
    let (x, weight) = (numbers.tensor(&case.input_sizes()), numbers.tensor(&case.weight_sizes()));
    let Some(places) = case.places() else {
        check_error(case.run(&x, &weight, None), &["convolution", "shape"]);
        return false;
    };
    let out = case.output_sizes(places);
    let bias = numbers.tensor(&out[1..2]);
    let (xs, ws) = (elements(&x), elements(&weight));
    let mut expected = vec![0.0; out.iter().product()];
    case.each(places, |i, w, o| expected[o] += xs[i] * ws[w]);
    let text = format!("{case:?}");
    check(case.run(&x, &weight, None), &out, &expected, &text);
    let plane = places[0] * places[1];
    for (index, value) in expected.iter_mut().enumerate() {
        *value += elements(&bias)[index / plane % out[1]];
    }
    check(case.run(&x, &weight, Some(&bias)), &out, &expected, &text);
    let g = numbers.tensor(&out);
    let gs = elements(&g);
    let [mut by_x, mut by_w, mut by_b] = [vec![0.0; xs.len()], vec![0.0; ws.len()], vec![0.0; out[1]]];
    case.each(places, |i, w, o| {
        by_x[i] += ws[w] * gs[o];
        by_w[w] += xs[i] * gs[o];
    });
    gs.iter().enumerate().for_each(|(index, g)| by_b[index / plane % out[1]] += g);
    let found = case.gradients(&g, &x, &weight);
    check(Ok(found[0].clone()), &case.input_sizes(), &by_x, &text);
    check(Ok(found[1].clone()), &case.weight_sizes(), &by_w, &text);
    check(Ok(found[2].clone()), &out[1..2], &by_b, &text);
    true
}

#[test]
fn one_and_three_dims_are_two_with_some_of_size_one() {
    let mut numbers = Numbers(3);
    let (x, weight) = (numbers.tensor(&[2, 4, 9]), numbers.tensor(&[6, 2, 3]));
    let options = Convolution { stride: 2.into(), padding: 1.into(), dilation: 2.into(), groups: 2 };
    let flat = x.conv1d(&weight, None, &options).expect("it fits");
    let as_plane = Convolution { stride: [1, 2].into(), padding: [0, 1].into(), dilation: [1, 2].into(), groups: 2 };
    let lift = |x: &Tensor| x.unsqueeze(2).expect("it has the dim");
    let plane = lift(&x).conv2d(&lift(&weight), None, &as_plane).expect("it fits");
    check(plane.squeeze(2), flat.sizes(), &elements(&flat), "conv1d");
    let as_volume =
        Convolution { stride: [1, 1, 2].into(), padding: [0, 0, 1].into(), dilation: [1, 1, 2].into(), groups: 2 };
    let volume = lift(&lift(&x)).conv3d(&lift(&lift(&weight)), None, &as_volume).expect("it fits");
    check(volume.squeeze([2, 3]), flat.sizes(), &elements(&flat), "conv3d");
    let one = x.select(0, 1).expect("there are two");
    check(one.conv1d(&weight, None, &options), &flat.sizes()[1..], &elements(&flat)[flat.numel() / 2..], "no batch");
}

#[test]
fn padding_by_name_keeps_sizes() {
    let mut numbers = Numbers(4);
    let (x, weight) = (numbers.tensor(&[1, 2, 5, 6]), numbers.tensor(&[3, 2, 2, 3]));
    let same = Convolution { padding: Padding::Same, dilation: [1, 2].into(), ..Default::default() };
    let found = x.conv2d(&weight, None, &same);
    let behind = x.constant_pad_nd([2, 2, 0, 1], 0).expect("it may be padded");
    let expected = behind.conv2d(&weight, None, &Convolution { dilation: [1, 2].into(), ..Default::default() });
    check(found, &[1, 3, 5, 6], &elements(&expected.expect("it fits")), "same");
    let strided = Convolution { stride: 2.into(), ..same };
    check_error(x.conv2d(&weight, None, &strided), &["same", "strided"]);
}

#[test]
fn convolutions_of_other_dtypes_are_right() {
    let mut numbers = Numbers(5);
    let (x, weight) = (numbers.tensor(&[2, 2, 5]), numbers.tensor(&[3, 2, 3]));
    let exact = x.conv1d(&weight, None, &Convolution::default()).expect("it fits");
    // The numbers have few digits, so sums are exact in f32 and are rounded once.
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let [x, weight] = [&x, &weight].map(|tensor| tensor.to_dtype(dtype).expect("memory"));
        let found = x.conv1d(&weight, None, &Convolution::default()).expect("it fits");
        assert_eq!(found.dtype(), dtype);
        let expected = exact.to_dtype(dtype).and_then(|exact| exact.to_dtype(DType::F64)).expect("memory");
        check(found.to_dtype(DType::F64), exact.sizes(), &elements(&expected), dtype.name());
    }
    let whole = |tensor: &Tensor| tensor.mul(32.0).and_then(|tensor| tensor.to_dtype(DType::I64)).expect("memory");
    let found = whole(&x).conv1d(&whole(&weight), None, &Convolution::default()).expect("integers are numbers");
    let expected: Vec<f64> = elements(&exact).iter().map(|value| value * 1024.0).collect();
    check(found.to_dtype(DType::F64), exact.sizes(), &expected, "i64");
}

/// The same elements, with channels last in memory.
fn with_channels_last(x: &Tensor) -> Tensor {
    let rank = x.dim() as i64;
    let last: Vec<i64> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let back: Vec<i64> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    x.permute(last).and_then(|x| x.contiguous()).and_then(|x| x.permute(back)).expect("memory")
}

fn bits(x: &Tensor) -> Vec<u64> {
    let wide = x.to_dtype(DType::F64).and_then(|x| x.to_vec::<f64>()).expect("floats have f64 values");
    wide.into_iter().map(f64::to_bits).collect()
}

#[test]
fn channels_stay_last_and_bits_do_not_depend_on_it() {
    let mut numbers = Numbers(8);
    // Samples, input channels, output channels, groups, kernel, stride.
    let cases = [
        (3, 16, 33, 1, 3, 1),
        (2, 35, 7, 1, 3, 2),
        (2, 20, 24, 1, 1, 1),
        (2, 20, 24, 1, 1, 2),
        (2, 18, 18, 18, 3, 1),
        (1, 33, 33, 33, 5, 2),
        (2, 6, 12, 6, 3, 1),
        (2, 12, 20, 4, 3, 1),
        (2, 8, 1, 1, 3, 1),
        (1, 8, 8, 8, 1, 1),
    ];
    for (samples, inner, outer, groups, kernel, stride) in cases {
        for (n, dtype) in [(2, DType::F32), (2, DType::BF16), (2, DType::F64), (3, DType::F32)] {
            let dims = |sizes: [usize; 2], size: usize| [&sizes[..], &vec![size; n]].concat();
            let make = |numbers: &mut Numbers, sizes: &[usize]| numbers.tensor(sizes).to_dtype(dtype).expect("memory");
            let x = make(&mut numbers, &dims([samples, inner], if n == 2 { 9 } else { 5 }));
            let weight = make(&mut numbers, &dims([outer, inner / groups], kernel));
            let bias = make(&mut numbers, &[outer]);
            let pad = kernel as i64 / 2;
            let options =
                Convolution { stride: stride.into(), padding: pad.into(), groups: groups as i64, ..Default::default() };
            let run = |x: &Tensor, weight: &Tensor| {
                let [x, weight] = [x, weight].map(|x| x.detach().expect("a leaf"));
                for leaf in [&x, &weight] {
                    leaf.set_requires_grad(true).expect("floats have gradients");
                }
                let y = if n == 2 {
                    x.conv2d(&weight, Some(&bias), &options)
                } else {
                    x.conv3d(&weight, Some(&bias), &options)
                };
                let y = y.expect("it fits");
                let loss = y.mul(&y).and_then(|y| y.sum_all()).expect("a number");
                loss.backward().expect("it has a tape");
                [Some(y), x.grad(), weight.grad()].map(|x| x.expect("it has a gradient"))
            };
            let expected = run(&x, &weight);
            for (x_last, weight_last) in [(true, false), (false, true), (true, true)] {
                let as_asked = |x: &Tensor, last: bool| if last { with_channels_last(x) } else { x.clone() };
                let found = run(&as_asked(&x, x_last), &as_asked(&weight, weight_last));
                let text =
                    format!("{samples} {inner} {outer} {groups} {kernel} {stride} {dtype} {x_last} {weight_last}");
                let is_undecided = if weight_last && !x_last { inner == groups || kernel == 1 } else { inner == 1 };
                if !is_undecided {
                    assert_eq!(found[0].strides(), with_channels_last(&found[0]).strides(), "{text}");
                }
                for (found, expected) in found.iter().zip(&expected) {
                    assert_eq!(bits(found), bits(expected), "{text}");
                }
            }
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let mut numbers = Numbers(6);
    let (x, weight) = (numbers.tensor(&[1, 3, 5, 5]), numbers.tensor(&[4, 2, 3, 3]));
    let plain = Convolution::default();
    check_error(x.conv2d(&weight, None, &plain), &["[4, 2, 3, 3]", "[1, 3, 5, 5]", "2 channels, but got 3"]);
    check_error(x.conv1d(&weight, None, &plain), &["conv1d", "[1, 3, 5, 5]"]);
    let weight = numbers.tensor(&[4, 3, 3, 3]);
    check_error(x.conv2d(&weight, Some(&numbers.tensor(&[3])), &plain), &["bias", "[3]", "4 output"]);
    check_error(x.conv2d(&weight.to_dtype(DType::F32).expect("memory"), None, &plain), &["f32", "f64"]);
    check_error(x.conv2d(&weight, None, &Convolution { stride: 0.into(), ..plain.clone() }), &["stride"]);
    check_error(x.conv2d(&weight, None, &Convolution { padding: (-1).into(), ..plain.clone() }), &["padding"]);
    check_error(x.conv2d(&weight, None, &Convolution { dilation: [1, 1, 1].into(), ..plain.clone() }), &["dilation"]);
    check_error(x.conv2d(&weight, None, &Convolution { groups: 0, ..plain.clone() }), &["groups"]);
    check_error(x.conv2d(&weight, None, &Convolution { dilation: 3.into(), ..plain }), &["kernel size"]);
    let more = ConvTranspose { output_padding: 1.into(), ..Default::default() };
    check_error(x.conv_transpose2d(&numbers.tensor(&[3, 2, 3, 3]), None, &more), &["output_padding"]);
}
