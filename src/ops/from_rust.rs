//! Tensors from Rust arrays, vectors and numbers, and back.
//!
//! No value is converted: the Rust type determines the dtype. Nested arrays and vectors give the tensor its shape. A
//! flat vector holds the elements of a tensor in row-major order. A flat vector becomes a tensor without a copy; all
//! other conversions copy.

use crate::device::roomy;
use crate::error::{Error, Result};
use crate::ops::element::Element;
use crate::tensor::handle::Tensor;
use half::{bf16, f16};

/// A 1-dim tensor with a copy of the elements.
impl<T: Element> TryFrom<&[T]> for Tensor {
    type Error = Error;

    fn try_from(data: &[T]) -> Result<Tensor> {
        Tensor::from_slice(data, &[data.len()])
    }
}

/// A 1-dim tensor over the memory of the vector.
impl<T: Element> TryFrom<Vec<T>> for Tensor {
    type Error = Error;

    fn try_from(data: Vec<T>) -> Result<Tensor> {
        let len = data.len();
        Tensor::from_vec(data, &[len])
    }
}

/// A 1-dim tensor with a copy of the elements.
impl<T: Element> TryFrom<&Vec<T>> for Tensor {
    type Error = Error;

    fn try_from(data: &Vec<T>) -> Result<Tensor> {
        Tensor::from_slice(data, &[data.len()])
    }
}

/// A 2-dim tensor. Each inner vector is a row.
///
/// # Errors
/// If the rows have different lengths.
impl<T: Element> TryFrom<Vec<Vec<T>>> for Tensor {
    type Error = Error;

    fn try_from(rows: Vec<Vec<T>>) -> Result<Tensor> {
        let sizes = [rows.len(), even(&rows)?];
        Tensor::from_slice(&rows.concat(), &sizes)
    }
}

/// A 3-dim tensor.
///
/// # Errors
/// If vectors at one depth have different lengths.
impl<T: Element> TryFrom<Vec<Vec<Vec<T>>>> for Tensor {
    type Error = Error;

    fn try_from(matrices: Vec<Vec<Vec<T>>>) -> Result<Tensor> {
        let (n, n_rows) = (matrices.len(), even(&matrices)?);
        let rows = matrices.concat();
        let sizes = [n, n_rows, even(&rows)?];
        Tensor::from_slice(&rows.concat(), &sizes)
    }
}

/// A 4-dim tensor.
///
/// # Errors
/// If vectors at one depth have different lengths.
impl<T: Element> TryFrom<Vec<Vec<Vec<Vec<T>>>>> for Tensor {
    type Error = Error;

    fn try_from(batches: Vec<Vec<Vec<Vec<T>>>>) -> Result<Tensor> {
        let (n, n_matrices) = (batches.len(), even(&batches)?);
        let matrices = batches.concat();
        let n_rows = even(&matrices)?;
        let rows = matrices.concat();
        let sizes = [n, n_matrices, n_rows, even(&rows)?];
        Tensor::from_slice(&rows.concat(), &sizes)
    }
}

/// The common length of all rows. 0 if there are none.
fn even<T>(rows: &[Vec<T>]) -> Result<usize> {
    let len = rows.first().map_or(0, Vec::len);
    match rows.iter().position(|row| row.len() != len) {
        None => Ok(len),
        Some(at) => {
            let what = format!("vector 0 has {len} elements, but vector {at} has {}", rows[at].len());
            Err(Error::shape("try_from", what, "nested vectors of one depth must have one length"))
        }
    }
}

/// A 1-dim tensor with a copy of the elements.
impl<T: Element, const N: usize> TryFrom<[T; N]> for Tensor {
    type Error = Error;

    fn try_from(data: [T; N]) -> Result<Tensor> {
        Tensor::from_slice(&data, &[N])
    }
}

/// A 1-dim tensor with a copy of the elements.
impl<T: Element, const N: usize> TryFrom<&[T; N]> for Tensor {
    type Error = Error;

    fn try_from(data: &[T; N]) -> Result<Tensor> {
        Tensor::from_slice(data, &[N])
    }
}

/// A 2-dim tensor. Each inner array is a row.
impl<T: Element, const N: usize, const M: usize> TryFrom<[[T; M]; N]> for Tensor {
    type Error = Error;

    fn try_from(data: [[T; M]; N]) -> Result<Tensor> {
        Tensor::from_slice(data.as_flattened(), &[N, M])
    }
}

/// A 3-dim tensor.
impl<T: Element, const N: usize, const M: usize, const K: usize> TryFrom<[[[T; K]; M]; N]> for Tensor {
    type Error = Error;

    fn try_from(data: [[[T; K]; M]; N]) -> Result<Tensor> {
        Tensor::from_slice(data.as_flattened().as_flattened(), &[N, M, K])
    }
}

/// A 4-dim tensor.
impl<T: Element, const N: usize, const M: usize, const K: usize, const L: usize> TryFrom<[[[[T; L]; K]; M]; N]>
    for Tensor
{
    type Error = Error;

    fn try_from(data: [[[[T; L]; K]; M]; N]) -> Result<Tensor> {
        Tensor::from_slice(data.as_flattened().as_flattened().as_flattened(), &[N, M, K, L])
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        /// A 0-dim tensor.
        impl TryFrom<$number> for Tensor {
            type Error = Error;

            fn try_from(number: $number) -> Result<Tensor> {
                Tensor::scalar(number)
            }
        }

        /// The only element of the tensor.
        ///
        /// # Errors
        /// Same as [`Tensor::item`].
        impl TryFrom<&Tensor> for $number {
            type Error = Error;

            #[track_caller]
            fn try_from(tensor: &Tensor) -> Result<$number> {
                tensor.item()
            }
        }

        /// The only element of the tensor.
        ///
        /// # Errors
        /// Same as [`Tensor::item`].
        impl TryFrom<Tensor> for $number {
            type Error = Error;

            #[track_caller]
            fn try_from(tensor: Tensor) -> Result<$number> {
                tensor.item()
            }
        }
    )*};
}

numbers!(bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64);

macro_rules! vectors {
    ($($(#[$doc:meta])* $vector:ty, $read:ident;)*) => {$(
        $(#[$doc])*
        impl<T: Element> TryFrom<&Tensor> for $vector {
            type Error = Error;

            #[track_caller]
            fn try_from(tensor: &Tensor) -> Result<$vector> {
                tensor.$read()
            }
        }

        $(#[$doc])*
        impl<T: Element> TryFrom<Tensor> for $vector {
            type Error = Error;

            #[track_caller]
            fn try_from(tensor: Tensor) -> Result<$vector> {
                tensor.$read()
            }
        }
    )*};
}

vectors! {
    /// The elements in row-major order.
    ///
    /// # Errors
    /// Same as [`Tensor::to_vec`].
    Vec<T>, to_vec;
    /// The rows of a 2-dim tensor.
    ///
    /// # Errors
    /// Same as [`Tensor::to_vec2`].
    Vec<Vec<T>>, to_vec2;
    /// The matrices of a 3-dim tensor, each as its rows.
    ///
    /// # Errors
    /// Same as [`Tensor::to_vec3`].
    Vec<Vec<Vec<T>>>, to_vec3;
}

impl Tensor {
    /// The rows of a 2-dim tensor.
    ///
    /// # Errors
    /// If the tensor has another number of dims, or if [`Tensor::to_vec`] fails.
    #[track_caller]
    pub fn to_vec2<T: Element>(&self) -> Result<Vec<Vec<T>>> {
        let &[n_rows, length] = self.sizes() else { return Err(self.other_rank("to_vec2", 2)) };
        cut(self.to_vec()?, n_rows, length)
    }

    /// The matrices of a 3-dim tensor, each as its rows.
    ///
    /// # Errors
    /// If the tensor has another number of dims, or if [`Tensor::to_vec`] fails.
    #[track_caller]
    pub fn to_vec3<T: Element>(&self) -> Result<Vec<Vec<Vec<T>>>> {
        let &[n, n_rows, length] = self.sizes() else { return Err(self.other_rank("to_vec3", 3)) };
        cut(cut(self.to_vec()?, n.saturating_mul(n_rows), length)?, n, n_rows)
    }

    fn other_rank(&self, op: &str, rank: usize) -> Error {
        let what = format!("a tensor of shape {:?} has not {rank} dims", self.sizes());
        Error::shape(op, what, "reshape it, or use to_vec for a flat vector")
    }
}

/// Splits elements into `n` vectors of `length`.
///
/// # Errors
/// If there is not enough memory: a tensor without elements may have any number of rows.
fn cut<T>(elements: Vec<T>, n: usize, length: usize) -> Result<Vec<Vec<T>>> {
    let mut elements = elements.into_iter();
    let mut rows = roomy(n)?;
    rows.extend((0..n).map(|_| elements.by_ref().take(length).collect()));
    Ok(rows)
}
