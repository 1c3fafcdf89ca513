//! Two galaxies meet: heavy centres with discs of light stars, after Toomre and Toomre, "Galactic Bridges and Tails"
//! (1972).
//!
//! The potential is `-Σ m_i m_j / √(|x_i - x_j|² + ε²)`, and the force is its gradient, which `grad` derives. Leapfrog
//! steps (kick, drift, kick) keep the energy near its first value. NumPy has the force by its formula.

use crate::pictures::{self, Colors};
use crate::plots::{Series, plot};
use crate::run::Run;
use opfuse::func::{fori_loop, grad, scan_times};
use opfuse::{DType, Result, Tensor, compile, stack};

const STEP: f64 = 0.02;
const SOFTENING: f64 = 0.2;
const FRAMES: usize = 50;
const STEPS_PER_FRAME: i64 = 8;

/// Places, velocities and accelerations, `(3, bodies)`: pairs of bodies are then rows of numbers.
type Bodies = (Tensor, Tensor, Tensor);

/// The energy of all pairs, each counted once.
fn potential(x: &Tensor, mass: &Tensor) -> Result<Tensor> {
    let squares = x.unsqueeze(1)?.sub(&x.unsqueeze(2)?)?.square()?.sum(0, false)?;
    let pairs = squares.add(SOFTENING.powi(2))?.rsqrt()?.mul(mass)?.mul(&mass.unsqueeze(1)?)?;
    // A body with itself is a constant, which has no force.
    pairs.sum_all()?.sub(&mass.square()?.sum_all()?.div(SOFTENING)?)?.mul(-0.5)
}

fn acceleration(x: &Tensor, mass: &Tensor) -> Result<Tensor> {
    grad(|x: &Tensor| potential(x, mass)).call(x)?.neg()?.div(mass)
}

fn energy((x, v, _): &Bodies, mass: &Tensor) -> Result<Tensor> {
    let motion = mass.mul(&v.square()?.sum(0, false)?)?.sum_all()?.mul(0.5)?;
    motion.add(&potential(x, mass)?)
}

fn step((x, v, a): &Bodies, mass: &Tensor) -> Result<Bodies> {
    let v = v.add(&a.mul(STEP / 2.0)?)?;
    let x = x.add(&v.mul(STEP)?)?;
    let a = acceleration(&x, mass)?;
    let v = v.add(&a.mul(STEP / 2.0)?)?;
    Ok((x, v, a))
}

/// The places in all frames, and the energies at both ends.
fn frames(x: &Tensor, v: &Tensor, mass: &Tensor) -> Result<(Tensor, Tensor)> {
    let begin = (x.clone(), v.clone(), acceleration(x, mass)?);
    let frame = |bodies: &Bodies| {
        let bodies = fori_loop(0..STEPS_PER_FRAME, |_, bodies| step(bodies, mass), bodies)?;
        Ok((bodies.clone(), bodies.0))
    };
    let (last, places) = scan_times(frame, &begin, FRAMES)?;
    Ok((places, stack(&[&energy(&begin, mass)?, &energy(&last, mass)?], 0)?))
}

/// The frames from above, with 1 for each star of the first galaxy and -1 for each star of the other.
fn drawn(places: &Tensor, signs: &Tensor) -> Result<Tensor> {
    let side = 224i64;
    let cell = places.mul(16.0)?.add(side / 2)?.clamp_min(0)?.clamp_max(side - 2)?.to_dtype(DType::I64)?;
    let frame = Tensor::arange(0, FRAMES as i64, 1)?.unsqueeze(1)?;
    let at = [frame, cell.i((.., 1))?, cell.i((.., 0))?].map(Some);
    let empty = Tensor::zeros(&[FRAMES, side as usize, side as usize], DType::F64)?;
    let stars = empty.index_put(&at, signs, true)?;
    // Two pixels high and wide.
    let high = (&stars + stars.roll(1, 1)?)?;
    &high + high.roll(1, 2)?
}

pub(crate) fn run(run: &Run) -> Result<()> {
    let [x, v] = ["x", "v"].map(|name| run.recorded(name)?.t()?.contiguous());
    let (x, v, mass) = (x?, v?, run.recorded("mass")?);
    let (places, energies) = compile(frames).call((&x, &v, &mass))?;
    run.check("last", &places.i(-1)?.t()?, 1e-9)?;
    run.check("energies", &energies, 1e-10)?;

    let [before, after] = [0, 1].map(|at| energies.i(at)?.item::<f64>());
    let (before, after) = (before?, after?);
    run.say(format!("the energy drifts by {:.1e} of itself", ((after - before) / before).abs()));
    let compiled = compile(acceleration);
    run.race("accelerations", || acceleration(&x, &mass), || compiled.call((&x, &mass)))?;

    let half = mass.numel() / 2;
    let points = |from: usize, to: usize| {
        let last = places.i((-1, .., from..to))?.t()?.to_vec2::<f64>()?;
        Ok::<_, opfuse::Error>(last.iter().map(|x| (x[0], x[1])).collect())
    };
    let series = [Series::points("one galaxy", points(0, half)?), Series::points("the other", points(half, 2 * half)?)];
    plot(&run.file("nbody.svg"), ["Two galaxies after they met", "x", "y"], &series)?;
    let signs = Tensor::linspace(1.0, -1.0, 2 * half)?.sign()?;
    let frames = drawn(&places, &signs)?;
    pictures::save_frames(&run.file("nbody.png"), &pictures::scaled(&frames.flip(1)?, -1.0, 1.0)?, Colors::Signed)
}
