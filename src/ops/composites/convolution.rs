//! Convolutions by number of dims, and their gradients at once.
//!
//! All are [`Op::Convolution`], which needs a batch: an input without one is given one of size 1.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::{Attr, Op};
use crate::ops::composites::normalization::nothing;
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    for n in 1..=3 {
        forward(library, n)?;
        transposed(library, n)?;
    }
    library.def_kernel(
        "convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] stride, \
         SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] \
         output_mask) -> (Tensor, Tensor, Tensor)",
        convolution_backward,
    )?;
    Ok(())
}

type Opt<'a> = Option<&'a Tensor>;

fn forward(library: &mut Library, n: usize) -> Result<()> {
    library
        .def_kernel(
            &format!(
                "conv{n}d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[{n}] stride=1, SymInt[{n}] padding=0, \
                 SymInt[{n}] dilation=1, SymInt groups=1) -> Tensor"
            ),
            move |x: &Tensor,
                  weight: &Tensor,
                  bias: Opt<'_>,
                  stride: &[i64],
                  padding: &[i64],
                  dilation: &[i64],
                  groups| {
                let arguments = Arguments { stride, padding, dilation, output_padding: None, groups };
                convolution(&format!("conv{n}d"), n, x, weight, bias, &arguments)
            },
        )?
        .def_kernel(
            &format!(
                "conv{n}d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[{n}] stride=1, str \
                 padding=\"valid\", SymInt[{n}] dilation=1, SymInt groups=1) -> Tensor"
            ),
            move |x: &Tensor,
                  weight: &Tensor,
                  bias: Opt<'_>,
                  stride: &[i64],
                  padding: &str,
                  dilation: &[i64],
                  groups| {
                let arguments = Arguments { stride, padding: &[0], dilation, output_padding: None, groups };
                named(&format!("conv{n}d"), n, x, weight, bias, padding, &arguments)
            },
        )?;
    Ok(())
}

fn transposed(library: &mut Library, n: usize) -> Result<()> {
    let overload = if n == 1 { "" } else { ".input" };
    library.def_kernel(
        &format!(
            "conv_transpose{n}d{overload}(Tensor input, Tensor weight, Tensor? bias=None, SymInt[{n}] stride=1, \
             SymInt[{n}] padding=0, SymInt[{n}] output_padding=0, SymInt groups=1, SymInt[{n}] dilation=1) -> Tensor"
        ),
        move |x: &Tensor,
              weight: &Tensor,
              bias: Opt<'_>,
              stride: &[i64],
              padding: &[i64],
              output_padding: &[i64],
              groups: i64,
              dilation: &[i64]| {
            let op = format!("conv_transpose{n}d");
            let arguments = Arguments { stride, padding, dilation, output_padding: Some(output_padding), groups };
            let most = |d: usize| of_dim(stride, d).max(of_dim(dilation, d));
            if let Some(d) = (0..n).find(|&d| of_dim(output_padding, d) >= most(d)) {
                let what =
                    format!("output_padding {output_padding:?} with stride {stride:?} and dilation {dilation:?}");
                return Err(Error::argument(op, format!("{what}: at dim {d} it must be smaller than one of them")));
            }
            convolution(&op, n, x, weight, bias, &arguments)
        },
    )?;
    Ok(())
}

/// The number of dim `d`, from a list that may have one number for all.
fn of_dim(list: &[i64], d: usize) -> i64 {
    list.get(d).or(list.first()).copied().unwrap_or(0)
}

struct Arguments<'a> {
    stride: &'a [i64],
    padding: &'a [i64],
    dilation: &'a [i64],
    /// Of a transposed convolution.
    output_padding: Option<&'a [i64]>,
    groups: i64,
}

fn convolution(
    op: &str,
    n: usize,
    x: &Tensor,
    weight: &Tensor,
    bias: Opt<'_>,
    arguments: &Arguments<'_>,
) -> Result<Tensor> {
    if x.dim() != n + 1 && x.dim() != n + 2 {
        let what =
            format!("expected {}-dim (unbatched) or {}-dim (batched) input, but got {:?}", n + 1, n + 2, x.sizes());
        return Err(Error::shape(op, what, "pass channels and the dims to convolve over, with or without a batch"));
    }
    let has_batch = x.dim() == n + 2;
    let batch = if has_batch { x.clone() } else { x.unsqueeze(0)? };
    let tensors: Vec<&Tensor> = [Some(&batch), Some(weight), bias].into_iter().flatten().collect();
    let &Arguments { stride, padding, dilation, output_padding, groups } = arguments;
    let attrs = [
        Attr::bool(bias.is_some()),
        Attr::ints(stride),
        Attr::ints(padding),
        Attr::ints(dilation),
        Attr::bool(output_padding.is_some()),
        Attr::ints(output_padding.unwrap_or(&[0])),
        Attr::int(groups),
    ];
    let y = call(Op::Convolution, &tensors, &attrs)?;
    if has_batch { Ok(y) } else { y.squeeze(0) }
}

/// Padding by name: none, or as much as keeps the sizes; what is odd goes behind.
fn named(
    op: &str,
    n: usize,
    x: &Tensor,
    weight: &Tensor,
    bias: Opt<'_>,
    padding: &str,
    arguments: &Arguments<'_>,
) -> Result<Tensor> {
    match padding {
        "valid" => return convolution(op, n, x, weight, bias, arguments),
        "same" => {}
        _ => return Err(Error::argument(op, format!("padding is {padding:?}; use \"valid\", \"same\" or numbers"))),
    }
    if arguments.stride.iter().any(|&stride| stride != 1) {
        let what =
            format!("padding \"same\" is not supported for strided convolutions; stride is {:?}", arguments.stride);
        return Err(Error::argument(op, what));
    }
    if weight.dim() != n + 2 {
        let what = format!("the weight has shape {:?}", weight.sizes());
        return Err(Error::shape(op, what, format!("it must have {} dims", n + 2)));
    }
    let total = |d: usize| (weight.sizes()[2 + d] as i64 - 1) * of_dim(arguments.dilation, d);
    let before: Vec<i64> = (0..n).map(|d| total(d) / 2).collect();
    let odd: Vec<i64> = (0..n).rev().flat_map(|d| [0, total(d) % 2]).collect();
    let x = if odd.iter().any(|&pad| pad != 0) { x.constant_pad_nd(&odd, 0)? } else { x.clone() };
    convolution(op, n, &x, weight, bias, &Arguments { padding: &before, ..*arguments })
}

/// The gradients by input, weight and bias; one that is not asked for is empty.
#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn convolution_backward(
    gradient: &Tensor,
    x: &Tensor,
    weight: &Tensor,
    _bias_sizes: Option<&[i64]>,
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
    transposed: bool,
    output_padding: &[i64],
    groups: i64,
    mask: &[bool],
) -> Result<(Tensor, Tensor, Tensor)> {
    let op = "convolution_backward";
    let &[by_input, by_weight, by_bias] = mask else {
        return Err(Error::argument(op, format!("output_mask has {} entries, not 3", mask.len())));
    };
    let lists = [stride, padding, dilation].map(Attr::ints);
    let [stride_attr, padding_attr, dilation_attr] = lists;
    let expected = Op::Convolution.infer(
        &[&x.ty(), &weight.ty()],
        &[
            Attr::bool(false),
            stride_attr.clone(),
            padding_attr.clone(),
            dilation_attr.clone(),
            Attr::bool(transposed),
            Attr::ints(output_padding),
            Attr::int(groups),
        ],
    )?;
    if gradient.sizes() != &expected.sizes[..] {
        let what = format!("the gradient has shape {:?}, the result {:?}", gradient.sizes(), &expected.sizes[..]);
        return Err(Error::shape(op, what, "they must be the same"));
    }
    let n = x.dim() - 2;
    let nothing = || nothing(x, x.dtype());
    let input = || {
        // What the other direction leaves over: elements that no window reached.
        let missing = |d: usize| {
            let reach = of_dim(dilation, d) * (weight.sizes()[2 + d] as i64 - 1) + 1;
            let natural = (gradient.sizes()[2 + d] as i64 - 1) * of_dim(stride, d) + reach - 2 * of_dim(padding, d);
            if transposed { 0 } else { x.sizes()[2 + d] as i64 - natural }
        };
        let missing: Vec<i64> = (0..n).map(missing).collect();
        let attrs = [
            Attr::bool(false),
            stride_attr.clone(),
            padding_attr.clone(),
            dilation_attr.clone(),
            Attr::bool(!transposed),
            Attr::ints(&missing),
            Attr::int(groups),
        ];
        let mut y = call(Op::Convolution, &[gradient, weight], &attrs)?;
        for d in 0..n {
            y = y.narrow(2 + d as i64, 0, x.sizes()[2 + d])?;
        }
        y.contiguous()
    };
    let by_windows = || {
        let (large, small) = if transposed { (gradient, x) } else { (x, gradient) };
        let kernel: Vec<i64> = weight.sizes()[2..].iter().map(|&size| size as i64).collect();
        let lists = [&kernel[..], stride, padding, dilation].map(Attr::ints);
        let [kernel, stride, padding, dilation] = lists;
        call(Op::ConvolutionWeight, &[large, small], &[kernel, stride, padding, dilation, Attr::int(groups)])
    };
    let others: Vec<i64> = (0..gradient.dim() as i64).filter(|&dim| dim != 1).collect();
    Ok((
        if by_input { input()? } else { nothing()? },
        if by_weight { by_windows()? } else { nothing()? },
        if by_bias { gradient.sum(others, false)? } else { nothing()? },
    ))
}
