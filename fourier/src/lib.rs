//! Discrete Fourier transforms of one line, for opfuse.
//!
//! This crate is the only place that knows `rustfft` and `realfft`. It is apart from opfuse so that their generic code
//! is compiled once, and not with every change of opfuse.
//!
//! What always holds:
//!
//! - A complex number is a pair of elements, real part first. A line is a slice of elements without gaps.
//! - A call runs on the thread that it is called from. So results depend on the line, on the plan and on the vector
//!   instructions of the machine alone.
//! - Every length from 1 on has a plan. The cost grows with `n log n` for all of them, primes included.
//!
//! Deliberately absent: strides, batches, threads, memory of its own, a cache of plans.

mod odd;

use num_complex::Complex;
use odd::OddLine;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftPlanner};
use std::sync::Arc;

/// What a plan computes of a line of length `n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transform {
    /// `y[k]`, the sum of `x[j] exp(-2πi j k / n)` over `j`, for complex `x`.
    Forward,
    /// The same with `exp(2πi j k / n)`.
    Backward,
    /// The forward transform of a real line. Its elements from `n / 2 + 1` on are left out: they are conjugates.
    FromReal,
    /// The backward transform of the `n / 2 + 1` first elements of a line whose others are conjugates. The result is
    /// real. The imaginary parts of element 0, and of element `n / 2` of an even length, are not read.
    ToReal,
}

/// More lines than share a vector.
pub const TOGETHER: usize = 8;

/// An element: f32 or f64.
pub trait Element: rustfft::FftNum + bytemuck::Pod + Default {
    /// The plan of a transform of lines of this length, which is at least 1.
    fn plan(transform: Transform, length: usize) -> Plan<Self>;

    /// A factor, rounded.
    fn factor(factor: f64) -> Self;
}

/// How lines of one length are transformed.
pub struct Plan<T: Element> {
    length: usize,
    work: Work<T>,
}

enum Work<T> {
    Complex(Arc<dyn Fft<T>>),
    FromReal(Arc<dyn RealToComplex<T>>),
    ToReal(Arc<dyn ComplexToReal<T>>),
    OddFromReal(OddLine<T>),
    OddToReal(OddLine<T>),
}

// The bodies are here and not in `Plan`, so that they are compiled in this crate.
macro_rules! elements {
    ($($T:ident)*) => {
        $(
            impl Element for $T {
                fn plan(transform: Transform, length: usize) -> Plan<$T> {
                    assert!(length > 0, "a line has an element");
                    let work = match transform {
                        Transform::Forward => Work::Complex(FftPlanner::new().plan_fft_forward(length)),
                        Transform::Backward => Work::Complex(FftPlanner::new().plan_fft_inverse(length)),
                        Transform::FromReal => match OddLine::new(length, true, $T::factor) {
                            Some(line) => Work::OddFromReal(line),
                            None => Work::FromReal(RealFftPlanner::new().plan_fft_forward(length)),
                        },
                        Transform::ToReal => match OddLine::new(length, false, $T::factor) {
                            Some(line) => Work::OddToReal(line),
                            None => Work::ToReal(RealFftPlanner::new().plan_fft_inverse(length)),
                        },
                    };
                    Plan { length, work }
                }

                fn factor(factor: f64) -> $T {
                    factor as $T
                }
            }
        )*
    };
}

elements! { f32 f64 }

impl<T: Element> Plan<T> {
    /// The number of elements of a line before the transform.
    pub fn n_from(&self) -> usize {
        match &self.work {
            Work::Complex(_) => 2 * self.length,
            Work::FromReal(_) | Work::OddFromReal(_) => self.length,
            Work::ToReal(_) | Work::OddToReal(_) => 2 * (self.length / 2 + 1),
        }
    }

    /// The number of elements of its result.
    pub fn n_to(&self) -> usize {
        match &self.work {
            Work::Complex(_) => 2 * self.length,
            Work::FromReal(_) | Work::OddFromReal(_) => 2 * (self.length / 2 + 1),
            Work::ToReal(_) | Work::OddToReal(_) => self.length,
        }
    }

    /// Whether [`Plan::run`] works in place of the result.
    pub fn is_in_place(&self) -> bool {
        matches!(self.work, Work::Complex(_))
    }

    /// The number of elements that [`Plan::run`] needs besides.
    pub fn n_scratch(&self) -> usize {
        2 * match &self.work {
            Work::Complex(fft) => fft.get_inplace_scratch_len(),
            Work::FromReal(fft) => fft.get_scratch_len(),
            Work::ToReal(fft) => fft.get_scratch_len(),
            Work::OddFromReal(line) | Work::OddToReal(line) => line.n_scratch(),
        }
    }

    /// Transforms a line, and multiplies the result by `scale`. If the plan works in place, the line is in `to`, and
    /// `from` is not used; else it is in `from`, which has arbitrary elements afterwards. So has `scratch`.
    ///
    /// A plan that works in place takes several lines, one after another. Short lines may then share vectors. So the
    /// bits of a line may depend on whether their number is a multiple of [`TOGETHER`], and on nothing else of them.
    ///
    /// # Panics
    /// If a slice does not have the plan's number of elements; `scratch` may have more.
    pub fn run(&self, from: &mut [T], to: &mut [T], scratch: &mut [T], scale: T) {
        assert!(to.len().is_multiple_of(self.n_to()), "results have the length of the plan");
        let scratch = bytemuck::cast_slice_mut::<T, Complex<T>>(&mut scratch[..self.n_scratch()]);
        match &self.work {
            Work::Complex(fft) => fft.process_with_scratch(bytemuck::cast_slice_mut(to), scratch),
            Work::FromReal(fft) => {
                let done = fft.process_with_scratch(from, bytemuck::cast_slice_mut(to), scratch);
                done.expect("the slices have the lengths of the plan");
                for at in self.real_numbers().into_iter().flatten() {
                    to[2 * at + 1] = T::zero();
                }
            }
            Work::ToReal(fft) => {
                for at in self.real_numbers().into_iter().flatten() {
                    from[2 * at + 1] = T::zero();
                }
                let done = fft.process_with_scratch(bytemuck::cast_slice_mut(from), to, scratch);
                done.expect("the slices have the lengths of the plan, and what has to be real is");
            }
            Work::OddFromReal(line) => {
                line.forward(from, bytemuck::cast_slice_mut(to), scratch);
                to[1] = T::zero();
            }
            Work::OddToReal(line) => {
                from[1] = T::zero();
                line.backward(bytemuck::cast_slice(from), to, scratch);
            }
        }
        if scale != T::one() {
            to.iter_mut().for_each(|element| *element = *element * scale);
        }
    }

    /// The elements of the transform of a real line that are real themselves.
    fn real_numbers(&self) -> [Option<usize>; 2] {
        [Some(0), self.length.is_multiple_of(2).then_some(self.length / 2)]
    }
}

#[cfg(test)]
mod tests {
    use super::{Element, Plan, Transform};
    use std::f64::consts::TAU;

    /// Numbers between -1 and 1 without a pattern.
    fn numbers(count: usize) -> Vec<f64> {
        let mut state = count as u64 + 1;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// `exp(sign 2πi j k / n)` for every product `j k`, reduced first so that angles stay small.
    fn slow(x: &[[f64; 2]], sign: f64) -> Vec<[f64; 2]> {
        let n = x.len();
        let roots: Vec<[f64; 2]> =
            (0..n).map(|j| sign * TAU * j as f64 / n as f64).map(|a| [a.cos(), a.sin()]).collect();
        let sum = |k: usize| {
            x.iter().enumerate().fold([0.0, 0.0], |sum, (j, x)| {
                let root = roots[j * k % n];
                [sum[0] + x[0] * root[0] - x[1] * root[1], sum[1] + x[0] * root[1] + x[1] * root[0]]
            })
        };
        (0..n).map(sum).collect()
    }

    /// A line before a transform, and its result by the definition.
    fn expected(transform: Transform, n: usize) -> (Vec<f64>, Vec<f64>) {
        let half = n / 2 + 1;
        match transform {
            Transform::Forward | Transform::Backward => {
                let x = numbers(2 * n);
                let sign = if transform == Transform::Forward { -1.0 } else { 1.0 };
                let y = slow(x.as_chunks().0, sign);
                (x, y.concat())
            }
            Transform::FromReal => {
                let x = numbers(n);
                let pairs: Vec<[f64; 2]> = x.iter().map(|&x| [x, 0.0]).collect();
                (x, slow(&pairs, -1.0)[..half].concat())
            }
            Transform::ToReal => {
                let x = numbers(2 * half);
                let at = |k: usize| [x[2 * k], if k == 0 || 2 * k == n { 0.0 } else { x[2 * k + 1] }];
                let conjugate = |[real, imaginary]: [f64; 2]| [real, -imaginary];
                let whole: Vec<[f64; 2]> =
                    (0..n).map(|k| if k < half { at(k) } else { conjugate(at(n - k)) }).collect();
                let y = slow(&whole, 1.0).iter().map(|y| y[0]).collect();
                (x, y)
            }
        }
    }

    fn found<T: Element + Into<f64>>(transform: Transform, n: usize, x: &[f64], scale: f64) -> Vec<f64> {
        let plan: Plan<T> = T::plan(transform, n);
        let mut from: Vec<T> = x.iter().map(|&x| T::factor(x)).collect();
        assert_eq!(plan.n_from(), from.len());
        let mut to = vec![T::default(); plan.n_to()];
        // Results do not depend on what was there.
        let mut scratch = vec![T::factor(f64::NAN); plan.n_scratch()];
        if plan.is_in_place() {
            to.copy_from_slice(&from);
            from.clear();
        }
        plan.run(&mut from, &mut to, &mut scratch, T::factor(scale));
        to.into_iter().map(Into::into).collect()
    }

    #[test]
    fn lines_of_all_lengths_are_sums() {
        let primes = [67, 73, 97, 101, 127, 191, 257, 509, 997, 1009];
        // Odd ones from 250 on go by parts, of each number of rows.
        let odd = [253, 255, 273, 343, 363, 605, 625, 729, 999, 1001, 1003];
        let others = [96, 100, 121, 128, 243, 256, 360, 512, 1000, 1024];
        for n in (1..=64).chain(primes).chain(others).chain(odd) {
            for transform in [Transform::Forward, Transform::Backward, Transform::FromReal, Transform::ToReal] {
                for scale in [1.0, 0.375] {
                    let (x, expected) = expected(transform, n);
                    let size = expected.iter().fold(1.0f64, |size, y| size.max(y.abs())) * scale;
                    for (found, epsilon) in [
                        (found::<f64>(transform, n, &x, scale), f64::EPSILON),
                        (found::<f32>(transform, n, &x, scale), f64::from(f32::EPSILON)),
                    ] {
                        assert_eq!(found.len(), expected.len());
                        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                            let error = (found - expected * scale).abs();
                            assert!(error <= 16.0 * epsilon * size, "{transform:?} of {n}, element {at}: {error}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_real_by_definition_has_no_imaginary_part() {
        for n in [1, 2, 3, 4, 5, 6, 15, 16, 17, 100, 605] {
            let y = found::<f32>(Transform::FromReal, n, &numbers(n), -1.0);
            assert_eq!(y[1], 0.0, "{n}");
            assert!(n % 2 == 1 || y[n + 1] == 0.0, "{n}");
            // Imaginary parts that are not read may be anything.
            let mut x = numbers(2 * (n / 2 + 1));
            let expected = found::<f64>(Transform::ToReal, n, &x, 1.0);
            x[1] = f64::NAN;
            if n % 2 == 0 {
                x[n + 1] = f64::NAN;
            }
            assert_eq!(found::<f64>(Transform::ToReal, n, &x, 1.0), expected, "{n}");
        }
    }
}
