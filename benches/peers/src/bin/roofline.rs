#![allow(unsafe_code, reason = "vector loads and stores take pointers, and calling AVX-512 code needs a promise")]
//! What this machine can do in a second: `roofline THREADS` prints one JSON object.
//!
//! - `fma` counts two operations for each element of a fused multiply-add in registers.
//! - `exp` and `sigmoid` are elements of a vectorized exponential of degree 6, and of 1 / (1 + exp(-x)), in the
//!   first-level cache.
//! - `triad` and `read` are bytes of `a = b + 3 c` and of a sum, by footprint of all threads together. A triad uses
//!   plain or non-temporal stores, and a sum reads in one place or in four, whichever is faster.
//!
//! Everything is the best of several samples, because disturbances only slow down. It needs AVX-512, and says so where
//! there is none; rows then have no floor.

use std::io::{self, Write};
use std::process::ExitCode;

#[cfg(target_arch = "x86_64")]
mod machine {
    use opfuse::device::{Device, Storage};
    use std::arch::x86_64::*;
    use std::hint::black_box;
    use std::sync::{Barrier, Mutex};
    use std::time::Instant;

    /// Bytes of all threads together.
    const FOOTPRINTS: [usize; 14] = [
        12_000,
        36_000,
        256_000,
        1_000_000,
        2_000_000,
        4_000_000,
        12_000_000,
        24_000_000,
        48_000_000,
        67_000_000,
        96_000_000,
        135_000_000,
        200_000_000,
        480_000_000,
    ];
    /// Bytes that a sample of memory moves at least; small footprints, which are faster, move more.
    const TRAFFIC: usize = 600_000_000;
    const CACHED_TRAFFIC: usize = 2_400_000_000;
    const CACHED: usize = 3_000_000;
    const SAMPLES: usize = 9;
    /// Elements of the arrays that stay in the first-level cache.
    const NEAR: usize = 2048;
    const ROUNDS: usize = 10_000;
    const FMA_ROUNDS: usize = 2_000_000;
    const CHAINS: usize = 12;
    const LANES: usize = 16;

    type Lanes = [f32; LANES];

    /// The whole report.
    pub(super) fn report(threads: usize) -> String {
        let fma = rate(threads, (FMA_ROUNDS * CHAINS * LANES * 2) as f64, || {
            // SAFETY: `main` has seen AVX-512.
            || unsafe { multiply_add() }
        });
        let near = |body: unsafe fn(&mut [Lanes], &[Lanes])| {
            rate(threads, (NEAR * ROUNDS) as f64, move || {
                let (mut out, input) = (Array::of(NEAR), Array::of(NEAR));
                move || {
                    for _ in 0..ROUNDS {
                        // SAFETY: `main` has seen AVX-512.
                        unsafe { body(black_box(out.lanes()), input.fixed()) };
                    }
                }
            })
        };
        let (exp, sigmoid) = (near(exps), near(sigmoids));
        let triads = FOOTPRINTS.map(|bytes| (bytes, triad_rate(threads, bytes)));
        let reads = FOOTPRINTS.map(|bytes| (bytes, read_rate(threads, bytes)));
        let rates = |rates: [(usize, f64); FOOTPRINTS.len()]| {
            rates.map(|(bytes, rate)| format!("\"{bytes}\":{rate:.4e}")).join(",")
        };
        format!(
            "{{\"threads\":{threads},\"fma\":{fma:.4e},\"exp\":{exp:.4e},\"sigmoid\":{sigmoid:.4e},\
             \"triad\":{{{}}},\"read\":{{{}}}}}",
            rates(triads),
            rates(reads)
        )
    }

    /// An array of f32 from opfuse's allocator: aligned to vectors, in huge pages where it is large.
    struct Array(Storage);

    impl Array {
        fn of(elements: usize) -> Array {
            let mut array = Array(Storage::zeroed(Device::CPU, elements * 4).expect("there is memory"));
            for (place, lanes) in array.lanes().iter_mut().enumerate() {
                *lanes = [1e-3 * (place % 1000) as f32; LANES];
            }
            array
        }

        fn lanes(&mut self) -> &mut [Lanes] {
            let n = self.0.len() / size_of::<Lanes>();
            // SAFETY: the storage has that many bytes and is aligned to 64; every pattern of bits is an f32.
            unsafe { std::slice::from_raw_parts_mut(self.0.bytes_mut().as_mut_ptr().cast(), n) }
        }

        fn fixed(&self) -> &[Lanes] {
            let n = self.0.len() / size_of::<Lanes>();
            // SAFETY: as above, and nothing writes while the array is borrowed.
            unsafe { std::slice::from_raw_parts(self.0.ptr().cast_const().cast(), n) }
        }
    }

    /// How much of `amount`, which each thread's work is, all threads do in a second.
    fn rate<W: FnMut()>(threads: usize, amount: f64, work: impl Fn() -> W + Sync) -> f64 {
        let (barrier, best) = (Barrier::new(threads), Mutex::new(f64::MAX));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut work = work();
                    work();
                    for _ in 0..SAMPLES {
                        barrier.wait();
                        let start = Instant::now();
                        work();
                        let is_first = barrier.wait().is_leader();
                        let elapsed = start.elapsed().as_secs_f64();
                        if is_first {
                            let mut best = best.lock().expect("nothing panics");
                            *best = best.min(elapsed);
                        }
                    }
                });
            }
        });
        let best = best.into_inner().expect("nothing panics");
        amount * threads as f64 / best
    }

    fn triad_rate(threads: usize, footprint: usize) -> f64 {
        let elements = (footprint / 12 / threads).next_multiple_of(8 * LANES);
        let n_rounds = rounds(footprint);
        let bytes = (12 * elements * n_rounds) as f64;
        let of = |triad: unsafe fn(&mut [Lanes], &[Lanes], &[Lanes])| {
            rate(threads, bytes, move || {
                let (mut a, b, c) = (Array::of(elements), Array::of(elements), Array::of(elements));
                move || {
                    for _ in 0..n_rounds {
                        // SAFETY: `main` has seen AVX-512.
                        unsafe { triad(black_box(a.lanes()), b.fixed(), c.fixed()) };
                    }
                }
            })
        };
        of(triad).max(of(triad_past_cache))
    }

    fn read_rate(threads: usize, footprint: usize) -> f64 {
        let elements = (footprint / 4 / threads).next_multiple_of(8 * LANES);
        let n_rounds = rounds(footprint);
        let of = |sum: unsafe fn(&[Lanes]) -> f32| {
            rate(threads, (4 * elements * n_rounds) as f64, move || {
                let array = Array::of(elements);
                move || {
                    for _ in 0..n_rounds {
                        // SAFETY: `main` has seen AVX-512.
                        black_box(unsafe { sum(black_box(array.fixed())) });
                    }
                }
            })
        };
        of(sum).max(of(sum_in_four_places))
    }

    fn rounds(footprint: usize) -> usize {
        (if footprint < CACHED { CACHED_TRAFFIC } else { TRAFFIC }).div_ceil(footprint)
    }

    fn load(lanes: &Lanes) -> __m512 {
        // SAFETY: all of a vector can be read there, and any alignment does; AVX-512 is seen to by `main`.
        unsafe { _mm512_loadu_ps(lanes.as_ptr()) }
    }

    fn store(lanes: &mut Lanes, value: __m512) {
        // SAFETY: all of a vector can be written there, and any alignment does; AVX-512 is seen to by `main`.
        unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), value) }
    }

    #[target_feature(enable = "avx512f")]
    fn triad(a: &mut [Lanes], b: &[Lanes], c: &[Lanes]) {
        let three = _mm512_set1_ps(3.0);
        for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
            store(a, _mm512_fmadd_ps(load(c), three, load(b)));
        }
    }

    #[target_feature(enable = "avx512f")]
    fn triad_past_cache(a: &mut [Lanes], b: &[Lanes], c: &[Lanes]) {
        let three = _mm512_set1_ps(3.0);
        assert!(a.as_ptr().addr().is_multiple_of(size_of::<Lanes>()), "storages are aligned to vectors");
        for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
            // SAFETY: all of a vector can be written there, and the first of the array is aligned to one.
            unsafe { _mm512_stream_ps(a.as_mut_ptr(), _mm512_fmadd_ps(load(c), three, load(b))) };
        }
        _mm_sfence();
    }

    #[target_feature(enable = "avx512f")]
    fn sum(array: &[Lanes]) -> f32 {
        let mut sums = [_mm512_setzero_ps(); 8];
        for eight in array.as_chunks::<8>().0 {
            for (sum, lanes) in sums.iter_mut().zip(eight) {
                *sum = _mm512_add_ps(*sum, load(lanes));
            }
        }
        sums.iter().map(|&sum| _mm512_reduce_add_ps(sum)).sum()
    }

    #[target_feature(enable = "avx512f")]
    fn sum_in_four_places(array: &[Lanes]) -> f32 {
        let quarter = array.len() / 4;
        let (front, back) = array.split_at(2 * quarter);
        let ((a, b), (c, d)) = (front.split_at(quarter), back.split_at(quarter));
        let mut sums = [_mm512_setzero_ps(); 8];
        let pairs = |lanes| <[Lanes]>::as_chunks::<2>(lanes).0;
        for (((a, b), c), d) in pairs(a).iter().zip(pairs(b)).zip(pairs(c)).zip(pairs(d)) {
            for (sum, lanes) in sums.iter_mut().zip([a, b, c, d].into_iter().flatten()) {
                *sum = _mm512_add_ps(*sum, load(lanes));
            }
        }
        sums.iter().map(|&sum| _mm512_reduce_add_ps(sum)).sum()
    }

    #[target_feature(enable = "avx512f")]
    fn multiply_add() {
        let (factor, shift) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(1e-4)));
        let mut chains = [_mm512_set1_ps(black_box(1e-3)); CHAINS];
        for _ in 0..FMA_ROUNDS {
            for chain in &mut chains {
                *chain = _mm512_fmadd_ps(*chain, factor, shift);
            }
        }
        black_box(chains);
    }

    #[target_feature(enable = "avx512f")]
    fn exp(x: __m512) -> __m512 {
        const SERIES: [f32; 6] = [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
        let x = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-87.0)), _mm512_set1_ps(88.0));
        let n = _mm512_roundscale_ps::<0>(_mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E)));
        // The logarithm of 2 in two parts, so that the rest of the argument is exact.
        let rest = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693_359_4), x);
        let rest = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.121_944_4e-4), rest);
        let mut value = _mm512_set1_ps(1.0 / 720.0);
        for term in SERIES {
            value = _mm512_fmadd_ps(value, rest, _mm512_set1_ps(term));
        }
        _mm512_scalef_ps(value, n)
    }

    #[target_feature(enable = "avx512f")]
    fn exps(out: &mut [Lanes], input: &[Lanes]) {
        for (out, input) in out.iter_mut().zip(input) {
            store(out, exp(load(input)));
        }
    }

    #[target_feature(enable = "avx512f")]
    fn sigmoids(out: &mut [Lanes], input: &[Lanes]) {
        let one = _mm512_set1_ps(1.0);
        for (out, input) in out.iter_mut().zip(input) {
            let opposite = _mm512_sub_ps(_mm512_setzero_ps(), load(input));
            store(out, _mm512_div_ps(one, _mm512_add_ps(one, exp(opposite))));
        }
    }
}

fn main() -> ExitCode {
    let threads = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_usize).max(1);
    match report(threads) {
        Some(report) => match writeln!(io::stdout(), "{report}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        None => {
            // An error here cannot be reported anywhere.
            let _ = writeln!(io::stderr(), "the roofline needs a processor with AVX-512");
            ExitCode::FAILURE
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn report(threads: usize) -> Option<String> {
    std::arch::is_x86_feature_detected!("avx512f").then(|| machine::report(threads))
}

#[cfg(not(target_arch = "x86_64"))]
fn report(_threads: usize) -> Option<String> {
    None
}
