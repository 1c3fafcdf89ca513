//! Matrix products on a device: every dtype, shapes around a tile, transposed and broadcast operands, and odd values.

use crate::fakes;
use opfuse::internals::runtime::cuda::{counts, reset_counts};
use opfuse::{DType, Device, Result, Tensor};

const GPU: Device = Device::cuda(0);

/// Numbers with zeros of both signs, tiny ones whose products are rounded to zero, and, if `odd`, infinities and NaN.
fn numbers(sizes: &[usize], seed: usize, odd: bool) -> Tensor {
    let special = [-0.0, 1e-30, -1e-30, 3.0e38, f32::INFINITY, f32::NAN];
    let n: usize = sizes.iter().product();
    let number = |at: usize| match (at * 31 + seed * 17) % 23 {
        special_at @ 0..4 => special[special_at],
        special_at @ 4..6 if odd => special[special_at],
        other => (other as f32 - 12.0) / 7.0,
    };
    Tensor::from_slice(&(0..n).map(number).collect::<Vec<f32>>(), sizes).expect("memory is there")
}

/// A product that is -0: below the least number, and rounded.
fn tiny() -> (Tensor, Tensor) {
    let one = |value: f32| Tensor::from_slice(&[value], &[1, 1]).expect("memory is there");
    (one(1e-30), one(-1e-30))
}

fn check(name: &str, a: &Tensor, b: &Tensor) -> Result<()> {
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool) {
        let [a, b] = [a.to_dtype(dtype)?, b.to_dtype(dtype)?];
        let expected = a.matmul(&b)?;
        let [there, other] = [a.to_device(GPU)?, b.to_device(GPU)?];
        let found = there.matmul(&other)?.to_device(Device::CPU)?;
        let bits = |x: &Tensor| x.array().storage().read(<[u8]>::to_vec);
        assert_eq!((found.sizes(), found.dtype()), (expected.sizes(), dtype), "{name}");
        assert!(bits(&found)[..] == bits(&expected.contiguous()?)[..], "{name} of {dtype}:\n{found}\n{expected}");
    }
    Ok(())
}

#[test]
fn products_have_the_bits_of_the_cpu() {
    fakes::with(&[], || {
        reset_counts();
        for (seed, [m, k, n]) in
            [[1, 1, 1], [3, 0, 2], [0, 3, 2], [5, 7, 9], [64, 16, 64], [65, 17, 66], [1, 130, 3], [130, 2, 1]]
                .into_iter()
                .enumerate()
        {
            let name = format!("{m} by {k} by {n}");
            let (a, b) = (numbers(&[m, k], seed, seed % 2 == 0), numbers(&[k, n], seed + 1, false));
            check(&name, &a, &b).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let turned = || {
            check("transposed", &numbers(&[9, 20], 1, false).t()?, &numbers(&[70, 9], 2, false).t()?)?;
            check("tiny", &tiny().0, &tiny().1)?;
            check("batches", &numbers(&[3, 4, 5], 3, true), &numbers(&[3, 5, 6], 4, false))?;
            check("one for all", &numbers(&[3, 4, 5], 5, false), &numbers(&[5, 6], 6, true))
        };
        turned().expect("nothing fails");
        assert_eq!(counts().fallbacks, []);
    });
}
