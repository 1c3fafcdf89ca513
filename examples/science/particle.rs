//! A particle filter follows a state that a Kalman filter cannot, because two signs explain each observation.
//!
//! The bootstrap filter and the model of Gordon, Salmond and Smith, "Novel approach to nonlinear/non-Gaussian Bayesian
//! state estimation" (1993): `x' = x/2 + 25 x / (1 + x²) + 8 cos(1.2 t) + v`, seen as `x² / 20 + w`. Particles are
//! chosen at equal distances with one random offset, as in Kitagawa (1996).

use crate::draws::{normal, uniform};
use crate::plots::{Series, plot};
use crate::run::Run;
use opfuse::func::scan;
use opfuse::{Result, Side, Tensor, compile};

const PARTICLES: i64 = 2000;

/// Moves the particles, weighs them by the observation `z`, and draws them anew. The results beside the particles are
/// the mean, and the number of particles that as good a sample would have.
fn step(x: &Tensor, t: &Tensor, z: &Tensor) -> Result<(Tensor, (Tensor, Tensor))> {
    let number = Tensor::arange(0, PARTICLES, 1)?;
    let noise = normal(&number.add(&t.add(1)?.mul(PARTICLES)?)?)?.mul(10f64.sqrt())?;
    let pull = x.mul(25.0)?.div(&x.square()?.add(1.0)?)?;
    let x = x.mul(0.5)?.add(&pull)?.add(&t.mul(1.2)?.cos()?.mul(8.0)?)?.add(&noise)?;

    let weights = z.sub(&x.square()?.div(20.0)?)?.square()?.mul(-0.5)?.softmax(0)?;
    let mean = weights.dot(&x)?;
    let size = weights.dot(&weights)?.reciprocal()?;

    let offset = uniform(&t.add(1_000_000)?)?;
    let points = number.add(&offset)?.div(PARTICLES)?;
    let chosen = weights.cumsum(0)?.searchsorted(&points, Side::Left)?.clamp_max(PARTICLES - 1)?;
    Ok((x.index_select(0, &chosen)?, (mean, size)))
}

fn filter(x: &Tensor, seen: &Tensor) -> Result<(Tensor, Tensor)> {
    let step = |x: &Tensor, (t, z): &(Tensor, Tensor)| step(x, t, z);
    let times = Tensor::arange(0, seen.numel() as i64, 1)?;
    Ok(scan(step, x, &(times, seen.clone()))?.1)
}

pub(crate) fn run(run: &Run) -> Result<()> {
    let (seen, truth) = (run.recorded("seen")?, run.recorded("truth")?);
    let x = normal(&Tensor::arange(0, PARTICLES, 1)?)?.mul(5f64.sqrt())?;
    let (means, sizes) = compile(filter).call((&x, &seen))?;
    run.check("means", &means, 1e-9)?;
    run.check("sizes", &sizes, 1e-9)?;

    let error = means.sub(&truth)?.square()?.mean_all()?.sqrt()?.item::<f64>()?;
    let spread = truth.std((), 0, false)?.item::<f64>()?;
    run.say(format!("the mean is off by {error:.2}; the state varies by {spread:.2}"));
    let (t, z) = (Tensor::scalar(3i64)?, seen.i(3)?);
    let compiled = compile(step);
    run.race("a step", || step(&x, &t, &z), || compiled.call((&x, &t, &z)))?;

    let over_time = |x: &Tensor| Ok::<_, opfuse::Error>((0..).map(f64::from).zip(x.to_vec::<f64>()?).collect());
    let series = [Series::line("true state", over_time(&truth)?), Series::line("mean", over_time(&means)?)];
    plot(&run.file("particle.svg"), ["A particle filter", "time", "state"], &series)
}
