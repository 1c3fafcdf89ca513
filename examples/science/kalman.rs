//! A Kalman filter follows a moving body, and its likelihood is differentiated by the strength of the noise.
//!
//! Kalman, "A New Approach to Linear Filtering and Prediction Problems" (1960), for a velocity that is pushed at
//! random. `scan` carries the mean and the covariance through the observations. NumPy has the slope by a difference
//! quotient; here it is the gradient of the scan.

use crate::plots::{Series, plot};
use crate::run::Run;
use opfuse::func::{scan, value_and_grad};
use opfuse::{DType, Result, Tensor, compile};
use std::f64::consts::TAU;

/// The variance of an observation.
const NOISE: f64 = 4.0;
/// The variance of the push per step.
const PUSH: f64 = 0.05;

/// Mean and covariance of the state `(x, y, v_x, v_y)`.
type Belief = (Tensor, Tensor);

/// How a state moves and is seen.
struct Model {
    /// `x' = A x`.
    a: Tensor,
    /// The covariance that a step adds, for a push of 1.
    q: Tensor,
    /// `z = H x`.
    h: Tensor,
    /// The covariance of an observation.
    r: Tensor,
}

impl Model {
    fn new() -> Result<Model> {
        let two = Tensor::eye(2, DType::F64)?;
        Ok(Model {
            a: Tensor::try_from([[1.0, 1.0], [0.0, 1.0]])?.kron(&two)?,
            q: Tensor::try_from([[1.0 / 3.0, 0.5], [0.5, 1.0]])?.kron(&two)?,
            h: Tensor::try_from([[1.0, 0.0]])?.kron(&two)?,
            r: two.mul(NOISE)?,
        })
    }

    /// Moves the belief by a step, and corrects it by an observation, whose log likelihood is the second result.
    fn step(&self, (m, p): &Belief, z: &Tensor, push: &Tensor) -> Result<(Belief, Tensor)> {
        let (a, h) = (&self.a, &self.h);
        // m = A m, P = A P Aᵀ + Q
        let m = a.mv(m)?;
        let p = a.matmul(p)?.matmul(&a.t()?)?.add(&self.q.mul(push)?)?;
        // e = z - H m, S = H P Hᵀ + R, K = P Hᵀ S⁻¹
        let e = z.sub(&h.mv(&m)?)?;
        let seen = h.matmul(&p)?;
        let s = seen.matmul(&h.t()?)?.add(&self.r)?;
        let k = s.linalg_solve(&seen)?.t()?;
        // log N(e; 0, S)
        let distance = e.dot(&s.linalg_solve(&e)?)?;
        let likelihood = distance.add(&s.mul(TAU)?.linalg_det()?.log()?)?.mul(-0.5)?;
        // m + K e, P - K H P
        Ok(((m.add(&k.mv(&e)?)?, p.sub(&k.matmul(&seen)?)?), likelihood))
    }

    /// The means after all observations, the last covariance, and the log likelihood of all.
    fn filter(&self, seen: &Tensor, push: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
        let step = |belief: &Belief, z: &Tensor| {
            let (belief, likelihood) = self.step(belief, z, push)?;
            Ok((belief.clone(), (belief.0, likelihood)))
        };
        let begin = (Tensor::zeros(&[4], DType::F64)?, Tensor::eye(4, DType::F64)?.mul(100.0)?);
        let (last, (means, likelihoods)) = scan(step, &begin, seen)?;
        Ok((means, last.1, likelihoods.sum_all()?))
    }
}

pub(crate) fn run(run: &Run) -> Result<()> {
    let model = Model::new()?;
    let (seen, truth) = (run.recorded("seen")?, run.recorded("truth")?);
    let push = Tensor::scalar(PUSH)?;
    let filter = compile(|seen: &Tensor, push: &Tensor| model.filter(seen, push));
    let (means, cov, likelihood) = filter.call((&seen, &push))?;
    run.check("means", &means, 1e-11)?;
    run.check("cov", &cov, 1e-11)?;
    run.check("likelihood", &likelihood, 1e-12)?;

    // By the logarithm of the push, which may be any number.
    let of_log = |log: &Tensor| Ok(model.filter(&seen, &log.exp()?)?.2);
    let (_, slope) = compile(value_and_grad(of_log)).call(&push.log()?)?;
    run.check("slope", &slope, 1e-6)?;

    let error = |found: &Tensor| found.sub(&truth)?.square()?.sum(1, false)?.mean_all()?.sqrt()?.item::<f64>();
    let found = means.i((.., 0..2))?;
    run.say(format!("the path is off by {:.2}; observations are off by {:.2}", error(&found)?, error(&seen)?));
    let belief = (means.i(-1)?, cov);
    let z = seen.i(-1)?;
    let step = compile(|belief: &Belief, z: &Tensor| model.step(belief, z, &push));
    run.race("a step", || model.step(&belief, &z, &push), || step.call((&belief, &z)))?;

    let points = |x: &Tensor| Ok::<_, opfuse::Error>(x.to_vec2::<f64>()?.iter().map(|x| (x[0], x[1])).collect());
    let series = [
        Series::points("observed", points(&seen)?),
        Series::line("true path", points(&truth)?),
        Series::line("filtered", points(&found)?),
    ];
    plot(&run.file("kalman.svg"), ["A Kalman filter follows a path", "x", "y"], &series)
}
