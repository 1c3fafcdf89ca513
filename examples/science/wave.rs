//! A wave that meets a wall with two slits: `∂²u/∂t² = c² ∇²u`.
//!
//! Leapfrog steps: `u(t + dt) = 2 u(t) - u(t - dt) + (c dt)² ∇²u`, as in Strikwerda, "Finite Difference Schemes and
//! Partial Differential Equations" (2004), chapter 8. Outer edges reflect, and the wall holds `u` at 0. SciPy's numbers
//! have their differences from `ndimage.laplace`.

use crate::pictures::{self, Colors};
use crate::run::Run;
use opfuse::func::{fori_loop, scan_times};
use opfuse::nn::Border;
use opfuse::{DType, Index, Result, Tensor, compile, trim};
use std::f64::consts::TAU;

const HEIGHT: usize = 128;
const WIDTH: usize = 176;
/// `c dt / h`: the steps are stable up to `1 / √2`.
const COURANT: f64 = 0.5;
const FRAMES: usize = 44;
const STEPS_PER_FRAME: i64 = 8;

/// The sum of both second differences. A point outside is as the nearest one inside.
fn laplacian(u: &Tensor) -> Result<Tensor> {
    let padded = u.border_pad([1, 1, 1, 1], Border::Replicate)?;
    padded.i((.., trim(1, 1)))?.diff(2, 0)? + padded.i((trim(1, 1), ..))?.diff(2, 1)?
}

/// The wave now, and the wave a step before.
type Pair = (Tensor, Tensor);

fn step((u, before): &Pair, is_open: &Tensor) -> Result<Pair> {
    let push = (laplacian(u)? * COURANT.powi(2))?;
    let after = (((u * 2.0)? - before)? + push)?;
    Ok(((after * is_open)?, u.clone()))
}

/// The wave after every [`STEPS_PER_FRAME`] steps.
fn frames(u: &Tensor, before: &Tensor, is_open: &Tensor) -> Result<Tensor> {
    let frame = |pair: &Pair| {
        let pair = fori_loop(0..STEPS_PER_FRAME, |_, pair| step(pair, is_open), pair)?;
        Ok((pair.clone(), pair.0))
    };
    Ok(scan_times(frame, &(u.clone(), before.clone()), FRAMES)?.1)
}

/// A packet of plane waves, of which each column has one value.
fn packet(x: &Tensor) -> Result<Tensor> {
    let envelope = ((x - 28.0)? / 9.0)?.square()?.neg()?.exp()?;
    envelope * (x * (TAU / 10.0))?.cos()?
}

/// 0 in the wall, and 1 elsewhere.
fn slits() -> Result<Tensor> {
    let is_open = Tensor::ones(&[HEIGHT, WIDTH], DType::F64)?;
    is_open.set((.., 60..63), 0.0)?;
    is_open.set((47..54, 60..63), 1.0)?;
    is_open.set((74..81, 60..63), 1.0)?;
    Ok(is_open)
}

pub(crate) fn run(run: &Run) -> Result<()> {
    let x = Tensor::arange(0.0, WIDTH as f64, 1.0)?;
    let is_open = slits()?;
    let u = (packet(&x)? * &is_open)?;
    let before = (packet(&(x + COURANT)?)? * &is_open)?;
    let frames = compile(frames).call((&u, &before, &is_open))?;
    run.check("last", &frames.i((-1, Index::step(.., 4), Index::step(.., 4)))?, 1e-12)?;
    run.check("squares", &frames.square()?.mean([1, 2], false)?, 1e-12)?;

    let beyond = frames.i((-1, .., 63..))?.square()?.sum_all()?.div(&frames.i(0)?.square()?.sum_all()?)?;
    run.say(format!("{:.1} % of the squared wave is right of the slits at the end", 100.0 * beyond.item::<f64>()?));
    let pair = (u, before);
    let compiled = compile(step);
    run.race("a step", || step(&pair, &is_open), || compiled.call((&pair, &is_open)))?;
    let drawn = is_open.gt(0.5)?.where_(&pictures::scaled(&frames, -0.6, 0.6)?, pictures::GRAY)?;
    pictures::save_frames(&run.file("wave.png"), &drawn, Colors::Signed)
}
