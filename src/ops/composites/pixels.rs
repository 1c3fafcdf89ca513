//! Channels turned into pixels and back.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::{MemoryFormat, Op};
use crate::ops::composites::arguments::count;
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("pixel_shuffle(Tensor self, int upscale_factor) -> Tensor", pixel_shuffle)?
        .def_kernel("pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor", pixel_unshuffle)?
        .def_kernel("channel_shuffle(Tensor self, SymInt groups) -> Tensor", channel_shuffle)?;
    Ok(())
}

/// `(…, C r², H, W)` becomes `(…, C, H r, W r)`.
fn pixel_shuffle(x: &Tensor, factor: i64) -> Result<Tensor> {
    let op = "pixel_shuffle";
    let (r, outer, [channels, height, width]) = planes(op, x, factor)?;
    if channels % (r * r) != 0 {
        let what = format!("input shape {:?} has {channels} channels", x.sizes());
        return Err(Error::shape(op, what, format!("they must be divisible by {factor} * {factor}")));
    }
    let channels = channels / (r * r);
    let split = [outer, &[channels, r, r, height, width]].concat();
    let order = [0, 3, 1, 4, 2];
    rearranged(x, &split, outer.len(), &order, &[outer, &[channels, height * r, width * r]].concat())
}

/// `(…, C, H r, W r)` becomes `(…, C r², H, W)`.
fn pixel_unshuffle(x: &Tensor, factor: i64) -> Result<Tensor> {
    let op = "pixel_unshuffle";
    let (r, outer, [channels, height, width]) = planes(op, x, factor)?;
    if height % r != 0 || width % r != 0 {
        let what = format!("input shape {:?} has planes of {height} by {width}", x.sizes());
        return Err(Error::shape(op, what, format!("both must be divisible by {factor}")));
    }
    let (height, width) = (height / r, width / r);
    let split = [outer, &[channels, height, r, width, r]].concat();
    let order = [0, 2, 4, 1, 3];
    rearranged(x, &split, outer.len(), &order, &[outer, &[channels * r * r, height, width]].concat())
}

/// Channels dealt out: the first of every group, then the second of every group, ….
fn channel_shuffle(x: &Tensor, groups: i64) -> Result<Tensor> {
    let op = "channel_shuffle";
    let groups = count(op, groups)?;
    match x.sizes() {
        &[samples, channels, ref rest @ ..] if groups > 0 && !rest.is_empty() && channels % groups == 0 => {
            let split = [&[samples, groups, channels / groups, rest.iter().product()][..]].concat();
            rearranged(x, &split, 1, &[1, 0, 2], x.sizes())
        }
        sizes => {
            let what = format!("input shape {sizes:?} for {groups} groups");
            Err(Error::shape(op, what, "there must be at least 3 dims, and dim 1 must divide evenly into the groups"))
        }
    }
}

/// The factor, the leading sizes, and channels, height and width.
fn planes<'a>(op: &str, x: &'a Tensor, factor: i64) -> Result<(usize, &'a [usize], [usize; 3])> {
    let r = count(op, factor)?;
    match x.sizes() {
        [outer @ .., channels, height, width] if r > 0 => Ok((r, outer, [*channels, *height, *width])),
        sizes => {
            let what = format!("input shape {sizes:?} and factor {factor}");
            Err(Error::shape(op, what, "there must be at least 3 dims, and the factor must be positive"))
        }
    }
}

/// A row-major copy: dims split into `split`, those behind the first `n_outer` put in `order`, and joined to `sizes`.
fn rearranged(x: &Tensor, split: &[usize], n_outer: usize, order: &[usize], sizes: &[usize]) -> Result<Tensor> {
    let dims: Vec<i64> = (0..n_outer).chain(order.iter().map(|dim| dim + n_outer)).map(|dim| dim as i64).collect();
    let moved = x.reshape(split)?.permute(dims)?;
    call(Op::Clone, &[&moved], &[MemoryFormat::Contiguous.into()])?.view(sizes)
}
