//! Transposed convolution: the places of windows become elements, and elements places.
//!
//! Each element `e` of a dim gets `x[q] * w[t]` for all places and taps with `stride * q + dilation * t = e + padding`.
//! Elements that are `stride` apart get the same taps: they are a [`Phase`]. So each combination of phases is a
//! convolution of stride 1, by those taps in reverse, and no zeros are multiplied. Its result is written over the
//! elements of the phases. An element is one chain over channels and taps, as in every other convolution.
//!
//! Where there are many phases, each has few taps. Then all taps are multiplied at once by all places, and the columns
//! are added up where windows overlap (`col2im`). So it is where there are few places for many channels: the weight is
//! then not copied in reverse.

use super::attrs::{self, Dims, ints};
use super::autodiff::Expr;
use super::convolution::{AllWindows, Around, Convolution, Geometry, PerDim, product, readable};
use super::op::Op;
use super::scalar::Scalar;
use super::shape::{Sizes, contiguous_strides};
use super::windows::{Windows, laid_out, padded, part, unfolded};
use smallvec::SmallVec;

/// Most combinations of phases that are convolutions of their own.
const PHASES: usize = 16;
/// With so many channels per place, as at the end of a network for images, all columns have a fraction of the elements
/// of the weight. Then they are added up, and the weight is not copied.
const DEEP: usize = 4;

/// Every `stride`-th element of a dim.
#[derive(Debug, Clone, Copy)]
struct Phase {
    /// The first element.
    first: usize,
    /// How many elements there are.
    count: usize,
    /// The first tap that reaches them, the distance to the next one, and how many there are.
    tap: usize,
    step: usize,
    taps: usize,
    /// The distance of the places of two neighbouring taps.
    dilation: usize,
    /// The place that the last tap reads for the first element. It may lie before the first place.
    start: i64,
}

impl Phase {
    /// The phase of the elements from `first` on, of a dim of so many elements.
    fn new(geometry: &Geometry, d: usize, first: usize, size: usize, kernel: usize) -> Phase {
        let (stride, dilation) = (geometry.stride[d], geometry.dilation[d]);
        let (place, rest) = ((first + geometry.padding[d]) / stride, (first + geometry.padding[d]) % stride);
        let common = common_divisor(stride, dilation);
        let step = stride / common;
        let tap = (0..kernel.min(step)).find(|tap| dilation * tap % stride == rest);
        let taps = tap.map_or(0, |tap| (kernel - tap).div_ceil(step));
        let tap = tap.unwrap_or(0);
        let reached = (dilation * tap / stride + taps.saturating_sub(1) * (dilation / common)) as i64;
        let count = (size - first).div_ceil(stride);
        Phase { first, count, tap, step, taps, dilation: dilation / common, start: place as i64 - reached }
    }

    fn windows(&self) -> Windows {
        Windows { count: self.count, stride: 1, kernel: self.taps, dilation: self.dilation }
    }

    /// One past the last place that is read.
    fn end(&self) -> i64 {
        self.start + self.windows().length().unwrap_or(0) as i64
    }
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// The transposed convolution of `(N, C, places…)` by `(C, M, taps…)`.
pub(super) fn transposed<'g>(x: Expr<'g>, weight: Expr<'g>, convolution: &Convolution) -> Expr<'g> {
    let geometry = &convolution.geometry;
    let (sizes, kernel, n) = (x.sizes(), weight.sizes(), geometry.stride.len());
    let size = |d: usize| convolution.size(d, sizes[2 + d], kernel[2 + d]).expect("inference found a size");
    let wanted: PerDim = (0..n).map(size).collect();
    let counts = (0..n).map(|d| geometry.stride[d].min(wanted[d]));
    let n_places = sizes[2..].iter().product::<usize>();
    let has_taps = kernel[2..].iter().any(|&taps| taps > 1);
    let is_deep = has_taps && n_places.saturating_mul(DEEP) <= sizes[1] / geometry.groups;
    if is_deep || counts.clone().try_fold(1, usize::checked_mul).is_none_or(|count| count > PHASES) {
        return added_up(x, weight, geometry, &wanted);
    }
    let phases: SmallVec<[Vec<Phase>; 3]> = counts
        .enumerate()
        .map(|(d, count)| (0..count).map(|first| Phase::new(geometry, d, first, wanted[d], kernel[2 + d])).collect())
        .collect();
    in_phases(x, weight, geometry, &phases, &wanted)
}

/// The convolutions of all combinations of phases. The input is padded once for all of them.
fn in_phases<'g>(
    x: Expr<'g>,
    weight: Expr<'g>,
    geometry: &Geometry,
    phases: &[Vec<Phase>],
    wanted: &[usize],
) -> Expr<'g> {
    let (sizes, kernel, n) = (x.sizes(), weight.sizes(), wanted.len());
    let x = readable(x, weight, geometry.groups, kernel[1]);
    let reversed = reversed(weight, geometry.groups);
    let reaching = |d: usize| phases[d].iter().filter(|phase| phase.taps > 0);
    let before = |d: usize| -reaching(d).map(|phase| phase.start).min().unwrap_or(0);
    let after = |d: usize| reaching(d).map(Phase::end).max().unwrap_or(0) - sizes[2 + d] as i64;
    let input = padded(x, &(0..n).map(|d| (before(d), after(d))).collect::<Around>(), Scalar::Int(0));
    let out: Sizes = [&[sizes[0], kernel[1] * geometry.groups], wanted].concat().into();
    let dtype = x.dtype().widened();
    let strides = contiguous_strides(&out);
    let mut y: Option<Expr<'g>> = None;
    for nth in 0..phases.iter().map(Vec::len).product() {
        let mut rest = nth;
        let own: SmallVec<[Phase; 3]> = phases
            .iter()
            .map(|phases| {
                let phase = phases[rest % phases.len()];
                rest /= phases.len();
                phase
            })
            .collect();
        if own.iter().any(|phase| phase.taps == 0) {
            continue;
        }
        let (mut places, mut taps) = (input, reversed);
        for (d, phase) in own.iter().enumerate() {
            let length = phase.windows().length().unwrap_or(0);
            places = part(places, 2 + d, (phase.start + before(d)) as usize, length, 1);
            let last = phase.tap + (phase.taps - 1) * phase.step;
            let length = (phase.taps - 1) * phase.step + 1;
            taps = part(taps, 3 + d, kernel[2 + d] - 1 - last, length, phase.step);
        }
        let windows = unfolded(places, &own.iter().map(Phase::windows).collect::<AllWindows>());
        let (taken, n_taps) = (taps.sizes(), own.iter().map(|phase| phase.taps).product::<usize>());
        let one = product(windows, laid_out(taps, &[taken[0], taken[1], taken[2] * n_taps]), n);
        if one.sizes() == out {
            return one;
        }
        let under = y.unwrap_or_else(|| x.builder().full(&out, 0, dtype));
        let mut window = strides.clone();
        window.iter_mut().skip(2).zip(&geometry.stride).for_each(|(window, stride)| *window *= stride);
        let offset: usize = own.iter().enumerate().map(|(d, phase)| phase.first * strides[2 + d]).sum();
        let window = attrs::Overlay { stride: ints(&window), offset: offset as i64 };
        y = Some(under.call(Op::Overlay, &[one], window.into()));
    }
    y.unwrap_or_else(|| x.builder().full(&out, 0, dtype))
}

/// The product of all taps and all places, added up where windows overlap.
fn added_up<'g>(x: Expr<'g>, weight: Expr<'g>, geometry: &Geometry, wanted: &[usize]) -> Expr<'g> {
    let Geometry { stride, padding, dilation, groups } = geometry;
    let (sizes, kernel, n) = (x.sizes(), weight.sizes(), stride.len());
    let (samples, channels) = (sizes[0], sizes[1] / groups);
    let rows: usize = kernel[1..].iter().product();
    let n_places: usize = sizes[2..].iter().product();
    // Rows are places of all samples, and columns are what a channel gives. So the weight is read as it lies.
    let x = laid_out(x, &[samples, *groups, channels, n_places]).permute(&[1, 0, 3, 2]);
    let x = laid_out(x, &[*groups, samples * n_places, channels]);
    let columns = x.wide().matmul(laid_out(weight, &[*groups, channels, rows]).wide());
    let columns = laid_out(columns, &[&[*groups, samples], &sizes[2..], &kernel[1..]].concat());
    // The places and the elements of each dim become neighbours, after samples, groups and channels.
    let lead = [1, 0, 2 + n];
    let order = (0..n).flat_map(|d| [2 + d, lead.len() + n + d]);
    let mut y = columns.permute(&lead.into_iter().chain(order).collect::<SmallVec<[usize; 8]>>());
    for d in (0..n).rev() {
        let at = lead.len() + 2 * d;
        y = overlapped(y, at, stride[d], dilation[d]);
        let missing = (padding[d] + wanted[d]).saturating_sub(y.sizes()[at]);
        y = padded(y, &around_dim(y.rank(), at, (0, missing as i64)), Scalar::Int(0));
        y = part(y, at, padding[d], wanted[d], 1);
    }
    laid_out(y, &[&[samples, groups * kernel[1]], wanted].concat())
}

/// The padding of the dims from `dim` to the last, where only `dim` is padded.
fn around_dim(rank: usize, dim: usize, pads: (i64, i64)) -> Around {
    let mut around: Around = SmallVec::from_elem((0, 0), rank - dim);
    around[0] = pads;
    around
}

/// Columns added up where they overlap (`col2im` along one dim). Dim `at` holds places that are `stride` apart, and the
/// next dim holds the elements of each place, which are `dilation` apart. Both become one dim.
fn overlapped<'g>(columns: Expr<'g>, at: usize, stride: usize, dilation: usize) -> Expr<'g> {
    let columns = dilated(columns, at + 1, dilation);
    let (rank, sizes) = (columns.rank(), columns.sizes());
    // A single place has no neighbour, so a smaller stride gives the same result with less padding.
    let stride = if sizes[at] == 1 { stride.min(sizes[at + 1]) } else { stride };
    // The elements of a place are split into `reach` pieces of `stride` elements, and piece `i` adds to the place `i`
    // further on.
    let reach = sizes[at + 1].div_ceil(stride);
    let mut around = around_dim(rank, at, ((reach - 1) as i64, (reach - 1) as i64));
    around[1].1 = (reach * stride - sizes[at + 1]) as i64;
    let columns = padded(columns, &around, Scalar::Int(0));
    let mut split: Sizes = columns.sizes();
    split[at + 1] = stride;
    split.insert(at + 1, reach);
    let columns = laid_out(columns, &split);
    let n_places = sizes[at] + reach - 1;
    let piece = |nth: usize| {
        let own = part(columns, at, reach - 1 - nth, n_places, 1);
        own.call(Op::Select, &[], attrs::Select { dim: at as i64 + 1, index: nth as i64 }.into())
    };
    let sum = (1..reach).fold(piece(0), |sum, nth| sum + piece(nth));
    let mut joined: Sizes = sum.sizes();
    joined[at] *= stride;
    joined.remove(at + 1);
    laid_out(sum, &joined)
}

/// The elements of a dim with zeros between them, `step` from one to the next.
fn dilated<'g>(x: Expr<'g>, dim: usize, step: usize) -> Expr<'g> {
    let size = x.sizes()[dim];
    if step == 1 || size <= 1 {
        return x;
    }
    let lifted = x.unsqueeze(dim + 1);
    let groups = padded(lifted, &around_dim(lifted.rank(), dim + 1, (0, step as i64 - 1)), Scalar::Int(0));
    let mut joined: Sizes = x.sizes();
    joined[dim] *= step;
    part(laid_out(groups, &joined), dim, 0, (size - 1) * step + 1, 1)
}

/// A `(C, M, taps…)` weight as `(groups, M, C / groups, taps…)` with the taps in reverse. It is copied once.
fn reversed<'g>(weight: Expr<'g>, groups: usize) -> Expr<'g> {
    let sizes = weight.sizes();
    let (rows, taps) = (sizes[1], &sizes[2..]);
    let split = laid_out(weight, &[&[groups, sizes[0] / groups, rows], taps].concat());
    let order: SmallVec<[usize; 6]> = [0, 2, 1].into_iter().chain(3..3 + taps.len()).collect();
    let by_output = split.permute(&order);
    if taps.iter().all(|&taps| taps == 1) {
        return by_output;
    }
    by_output.call(Op::Flip, &[], Dims { dims: (3..3 + taps.len() as i64).collect() }.into())
}
