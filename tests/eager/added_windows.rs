//! Sums of windows (`Tensor::col2im`), by shifted lines or one by one, against loops over numbers.

use super::routines::Random;
use opfuse::nn::Patches;
use opfuse::{DType, Result, Tensor};

/// The size of an image, and windows along one of its dims: kernel, dilation, padding, stride.
type Along = (usize, [i64; 4]);

/// Windows that follow each other, overlap by whole strides and by parts, are apart, dilated, padded, and alone.
const CASES: [Along; 10] = [
    (6, [2, 1, 0, 2]),
    (7, [3, 1, 1, 1]),
    (9, [4, 1, 0, 2]),
    (8, [5, 1, 2, 3]),
    (9, [2, 1, 1, 3]),
    (9, [3, 2, 1, 1]),
    (5, [5, 1, 0, 1]),
    (3, [2, 1, 4, 1]),
    (4, [1, 1, 0, 1]),
    (4, [3, 1, 0, 1 << 40]),
];

fn count((size, [kernel, dilation, padding, stride]): Along) -> usize {
    ((size as i64 + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1) as usize
}

/// The pixel of an element of a window, if it is not in the padding.
fn pixel((size, [_, dilation, padding, stride]): Along, element: usize, window: usize) -> Option<usize> {
    let at = window as i64 * stride + element as i64 * dilation - padding;
    usize::try_from(at).ok().filter(|&at| at < size)
}

#[test]
fn windows_are_added_at_their_places() -> Result<()> {
    let (mut random, n_images) = (Random(9), 2);
    for (nth, &rows) in CASES.iter().enumerate() {
        for &columns in [&CASES[nth], &CASES[(nth + 3) % CASES.len()]] {
            let [kernel_rows, kernel_columns] = [rows, columns].map(|(_, [kernel, ..])| kernel as usize);
            let [lines, places] = [rows, columns].map(count);
            let (window, all) = (kernel_rows * kernel_columns, lines * places);
            let numbers: Vec<f64> = (0..n_images * window * all).map(|_| random.whole(-9..10) as f64).collect();
            let mut expected = vec![0.0; n_images * rows.0 * columns.0];
            for (at, number) in numbers.iter().enumerate() {
                let (image, element, place) = (at / (window * all), at / all % window, at % all);
                let row = pixel(rows, element / kernel_columns, place / places);
                let column = pixel(columns, element % kernel_columns, place % places);
                if let (Some(row), Some(column)) = (row, column) {
                    expected[(image * rows.0 + row) * columns.0 + column] += number;
                }
            }
            let of = |at: usize| [rows.1[at], columns.1[at]];
            let patches = Patches { kernel: of(0), dilation: of(1), padding: of(2), stride: of(3) };
            for dtype in [DType::F32, DType::F64, DType::BF16] {
                let x = Tensor::from_slice(&numbers, &[n_images, window, all])?.to_dtype(dtype)?;
                let found = x.col2im([rows.0 as i64, columns.0 as i64], &patches)?;
                assert_eq!(found.sizes(), [n_images, 1, rows.0, columns.0]);
                let found = found.to_dtype(DType::F64)?.to_vec::<f64>()?;
                assert_eq!(found, expected, "{dtype}, {rows:?} by {columns:?}");
            }
        }
    }
    Ok(())
}
