//! Heat in a plate whose edges are kept cold: `∂u/∂t = κ ∇²u`.
//!
//! Explicit steps over five-point differences, as in Courant, Friedrichs and Lewy, "Über die partiellen
//! Differenzengleichungen der mathematischen Physik" (1928). What SciPy computes is the same by a sine transform, in
//! which a step multiplies each frequency by a number.

use crate::pictures::{self, Colors};
use crate::run::Run;
use opfuse::func::{fori_loop, scan_times};
use opfuse::{Index, Result, Tensor, compile, trim};

/// Points of a side, without the edges.
const SIDE: usize = 128;
/// `κ dt / h²`: the steps are stable up to a quarter.
const COURANT: f64 = 0.2;
const FRAMES: usize = 40;
const STEPS_PER_FRAME: i64 = 25;

/// `u + COURANT (u_up + u_down + u_left + u_right - 4 u)`, where the edges are 0.
fn step(u: &Tensor) -> Result<Tensor> {
    let padded = u.constant_pad_nd([1, 1, 1, 1], 0.0)?;
    let down = padded.i((.., trim(1, 1)))?.diff(2, 0)?;
    let across = padded.i((trim(1, 1), ..))?.diff(2, 1)?;
    u + ((down + across)? * COURANT)?
}

/// The plate after every [`STEPS_PER_FRAME`] steps.
fn frames(u: &Tensor) -> Result<Tensor> {
    let frame = |u: &Tensor| {
        let u = fori_loop(0..STEPS_PER_FRAME, |_, u| step(u), u)?;
        Ok((u.clone(), u))
    };
    Ok(scan_times(frame, u, FRAMES)?.1)
}

/// A hot ring.
fn ring() -> Result<Tensor> {
    let x = Tensor::linspace(0.0, 1.0, SIDE + 2)?.i(trim(1, 1))?;
    let (y, x) = ((x.unsqueeze(1)? - 0.5)?, (x - 0.4)?);
    let distance = y.square()?.add(&x.square()?)?.sqrt()?;
    ((distance - 0.25)? / 0.04)?.square()?.neg()?.exp()
}

pub(crate) fn run(run: &Run) -> Result<()> {
    let u = ring()?;
    let frames = compile(frames).call(&u)?;
    let last = frames.i(-1)?;
    run.check("last", &last.i((Index::step(.., 4), Index::step(.., 4)))?, 1e-12)?;
    run.check("total", &last.sum_all()?, 1e-12)?;

    let left = last.sum_all()?.div(&u.sum_all()?)?.item::<f64>()?;
    run.say(format!("{:.1} % of the heat is left after {FRAMES} frames", 100.0 * left));
    let compiled = compile(step);
    run.race("a step", || step(&u), || compiled.call(&u))?;
    pictures::save_frames(&run.file("heat.png"), &pictures::scaled(&frames, 0.0, 0.7)?, Colors::Hot)
}
