//! Timing that can be trusted on a busy machine.
//!
//! What is compared runs in turns (A B A B …), in chunks shorter than a time slice, and the best chunk counts:
//! everything that disturbs a run makes it slower. How much slower the median chunk was is shown beside it.

use opfuse::device::{Device, Storage, pool};
use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// For each of the things that take turns.
    pub(crate) budget: Duration,
    pub(crate) chunk: Duration,
    pub(crate) min_chunks: usize,
}

impl Effort {
    pub(crate) const FULL: Effort =
        Effort { budget: Duration::from_millis(500), chunk: Duration::from_millis(1), min_chunks: 9 };
    pub(crate) const QUICK: Effort =
        Effort { budget: Duration::from_millis(80), chunk: Duration::from_millis(1), min_chunks: 3 };
}

/// Seconds per call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Of the best chunk.
    pub(crate) best: f64,
    /// Of the median chunk.
    pub(crate) median: f64,
}

impl Timing {
    /// Median over best: 1 is a quiet machine.
    pub(crate) fn spread(self) -> f64 {
        self.median / self.best
    }

    /// Best, in nanoseconds.
    pub(crate) fn nanos(self) -> f64 {
        self.best * 1e9
    }
}

/// Times several pieces of work in turns.
pub(crate) fn in_turns<const N: usize>(effort: Effort, mut works: [&mut dyn FnMut(); N]) -> [Timing; N] {
    let n_calls = works.each_mut().map(|work| calls_per_chunk(effort, work));
    let mut chunks: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
    let start = Instant::now();
    while chunks[0].len() < effort.min_chunks || start.elapsed() < effort.budget * N as u32 {
        for ((work, &n_calls), chunks) in works.iter_mut().zip(&n_calls).zip(&mut chunks) {
            let start = Instant::now();
            (0..n_calls).for_each(|_| work());
            chunks.push(start.elapsed().as_secs_f64() / n_calls as f64);
        }
    }
    chunks.map(|mut chunks| {
        chunks.sort_by(f64::total_cmp);
        Timing { best: chunks[0], median: chunks[chunks.len() / 2] }
    })
}

/// Warms up, and finds how many calls fill a chunk.
fn calls_per_chunk(effort: Effort, work: &mut dyn FnMut()) -> usize {
    let mut n_calls = 1;
    loop {
        let start = Instant::now();
        (0..n_calls).for_each(|_| work());
        let elapsed = start.elapsed();
        if elapsed >= effort.chunk / 2 || n_calls >= 1 << 22 {
            let per_call = elapsed.as_secs_f64() / n_calls as f64;
            return ((effort.chunk.as_secs_f64() / per_call) as usize).max(1);
        }
        n_calls *= 4;
    }
}

/// Gives `body` a call of `a = b + 0.5 c`, three arrays that have `footprint` bytes together, and these bytes.
///
/// The loop is plain Rust, over warm memory from the same allocator as tensors have (so with the same huge pages),
/// split over the same pool. Bytes count once each, as they do for kernels; that a plain store also reads its cache
/// line is the memory's business in both.
pub(crate) fn with_triad<R>(footprint: usize, threads: usize, body: impl FnOnce(&mut dyn FnMut(), f64) -> R) -> R {
    let n = (footprint / 12).max(64);
    let mut arrays: [Storage; 3] =
        std::array::from_fn(|_| Storage::zeroed(Device::CPU, n * 4).expect("there is memory"));
    let [a, b, c] = arrays.each_mut().map(|array| bytemuck::cast_slice_mut::<u8, f32>(&mut array.bytes_mut()[..n * 4]));
    let piece = n.div_ceil(if threads == 1 { 1 } else { threads * 4 }).next_multiple_of(64);
    let pieces = a.chunks_mut(piece).zip(b.chunks(piece)).zip(c.chunks(piece));
    let pieces: Vec<Mutex<_>> = pieces.map(|((a, b), c)| Mutex::new((a, b, c))).collect();
    let mut work = || {
        pool::run(pieces.len(), threads, &|index| {
            let mut piece = pieces[index].lock().expect("nothing panics");
            let (a, b, c) = &mut *piece;
            for ((a, b), c) in a.iter_mut().zip(b.iter()).zip(c.iter()) {
                *a = b + 0.5 * c;
            }
            black_box(a);
        });
    };
    body(&mut work, (n * 12) as f64)
}

/// Seconds in a readable unit.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-4 => format!("{:.2} us", s * 1e6),
        s => format!("{:.3} ms", s * 1e3),
    }
}

/// The median of samples, and the least and greatest.
pub(crate) fn summary(mut samples: Vec<f64>) -> [f64; 3] {
    samples.sort_by(f64::total_cmp);
    [samples[samples.len() / 2], samples[0], samples[samples.len() - 1]]
}
