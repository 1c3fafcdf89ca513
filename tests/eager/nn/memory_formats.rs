//! Operators on images keep channels last in memory, with the bits of row-major images.

use crate::values::{bits, ramp};
use opfuse::autograd;
use opfuse::nn::{AvgPool, Border, Interpolation, MaxPool};
use opfuse::{DType, Result, Tensor};

type Call = fn(&Tensor) -> Result<Tensor>;

/// Each with whether PyTorch keeps the format.
const CALLS: [(&str, Call, bool); 16] = [
    ("max_pool2d", |x| x.max_pool2d(2, &MaxPool::default()), true),
    (
        "max_pool2d, padded",
        |x| x.max_pool2d([3, 2], &MaxPool { stride: 2.into(), padding: 1.into(), ..MaxPool::default() }),
        true,
    ),
    ("its indices", |x| Ok(x.max_pool2d_with_indices(2, &MaxPool::default())?.1), true),
    ("avg_pool2d", |x| x.avg_pool2d(2, &AvgPool::default()), true),
    (
        "avg_pool2d, padded",
        |x| {
            x.avg_pool2d(
                3,
                &AvgPool { stride: 2.into(), padding: 1.into(), count_include_pad: false, ..AvgPool::default() },
            )
        },
        true,
    ),
    ("adaptive_avg_pool2d", |x| x.adaptive_avg_pool2d([3, 2]), true),
    ("adaptive_avg_pool2d, uneven", |x| x.adaptive_avg_pool2d([4, 5]), true),
    ("adaptive_avg_pool2d of all", |x| x.adaptive_avg_pool2d([1, 1]), true),
    ("nearest", |x| x.resize2d([12, 9], Interpolation::Nearest), true),
    ("bilinear", |x| x.resize2d([12, 9], Interpolation::Bilinear), true),
    ("bilinear by corners", |x| x.resize2d([4, 7], Interpolation::BilinearCorners), true),
    ("reflected", |x| x.border_pad([1, 2, 3, 0], Border::Reflect), true),
    ("replicated", |x| x.border_pad([1, 2, -1, 0], Border::Replicate), true),
    ("circular", |x| x.border_pad([1, 2, 3, 0], Border::Circular), false),
    ("cat", |x| opfuse::cat(&[x, &x.mul(2.0)?, x], 1), true),
    ("cat with a row-major image", |x| opfuse::cat(&[x, &x.contiguous()?], 1), false),
];

/// The same elements with channels last in memory.
fn channels_last(x: &Tensor) -> Result<Tensor> {
    x.permute([0, 2, 3, 1])?.contiguous()?.permute([0, 3, 1, 2])
}

/// Whether the dims are, from the outermost in memory, samples, height, width and channels. A single element of a dim
/// may have any stride.
fn is_channels_last(x: &Tensor) -> bool {
    let (n, s) = (x.sizes(), x.strides());
    let expected = [n[1] * n[2] * n[3], 1, n[1] * n[3], n[1]];
    (0..4).all(|dim| n[dim] == 1 || s[dim] == expected[dim])
}

#[test]
fn channels_stay_last_in_memory() -> Result<()> {
    for dtype in [DType::F32, DType::BF16, DType::F64] {
        for sizes in [[2, 5, 6, 6], [3, 1, 6, 8], [2, 33, 10, 4]] {
            let x = ramp(&sizes).mul(0.37)?.to_dtype(dtype)?;
            // Zeros of both signs, a NaN and infinities meet in a window.
            x.set(
                (0, 0, 0, ..4),
                &Tensor::from_slice(&[0.0f32, -0.0, f32::NAN, f32::INFINITY], &[4])?.to_dtype(dtype)?,
            )?;
            x.set((1, 0, 2, ..2), &Tensor::from_slice(&[-0.0f32, 0.0], &[2])?.to_dtype(dtype)?)?;
            let last = channels_last(&x)?;
            for (name, call, keeps) in CALLS {
                let what = format!("{name} of {dtype} {sizes:?}");
                let (expected, y) = (call(&x)?, call(&last)?);
                assert_eq!(y.sizes(), expected.sizes(), "{what}");
                assert_eq!(bits(&y), bits(&expected), "{what}");
                // An image with one channel fits both formats.
                if sizes[1] > 1 {
                    assert_eq!(is_channels_last(&y), keeps, "{what}: strides {:?}", y.strides());
                }
                let compiled = opfuse::compile(call);
                let fused = compiled.call(&last)?;
                assert_eq!((bits(&fused), fused.strides()), (bits(&y), y.strides()), "{what}, compiled");
            }
        }
    }
    Ok(())
}

#[test]
fn gradients_have_the_bits_of_row_major_images() -> Result<()> {
    let x = ramp(&[2, 5, 6, 6]).mul(0.37)?.sin()?;
    for (name, call, _) in CALLS {
        let gradient = |x: &Tensor| -> Result<Option<Tensor>> {
            let x = x.detach()?;
            x.set_requires_grad(true)?;
            let y = call(&x)?;
            if !y.dtype().is_float() {
                return Ok(None);
            }
            let loss = y.mul(&ramp(y.sizes()).cos()?)?.sum((), false)?;
            Ok(autograd::grad(&[&loss], &[&x], &[None], autograd::GradOptions::default())?.remove(0))
        };
        let (expected, found) = (gradient(&x)?, gradient(&channels_last(&x)?)?);
        assert_eq!(found.as_ref().map(bits), expected.as_ref().map(bits), "{name}");
    }
    Ok(())
}
