//! The Ising model on a square lattice, at sixteen temperatures at once.
//!
//! Metropolis et al., "Equation of State Calculations by Fast Computing Machines" (1953): a spin turns over with the
//! probability `min(1, exp(-β ΔE))`. Black sites of a checkerboard have white neighbours alone, so all of them are
//! visited at once, and then the white ones. Spins are compared with NumPy's one by one.
//!
//! Below the critical temperature `2 / ln(1 + √2)` the lattice stays magnetic: `m = (1 - sinh(2β)⁻⁴)^⅛`, by Yang, "The
//! Spontaneous Magnetization of a Two-Dimensional Ising Model" (1952).

use crate::draws::uniform;
use crate::pictures::{self, Colors};
use crate::plots::{Series, plot};
use crate::run::Run;
use opfuse::func::scan;
use opfuse::{DType, NewAxis, Result, Tensor, compile};

const SIDE: usize = 64;
const SWEEPS: i64 = 300;
/// Sweeps before averages are taken.
const SKIPPED: i64 = 100;

/// The lattices and what a sweep of them needs.
struct Model {
    temperatures: Tensor,
    /// One over the temperature, per lattice.
    beta: Tensor,
    /// The number of each site, for random numbers.
    site: Tensor,
    is_black: Tensor,
}

impl Model {
    fn new() -> Result<Model> {
        let temperatures = Tensor::linspace(1.5, 3.5, 16)?;
        let beta = temperatures.reciprocal()?.i((.., NewAxis, NewAxis))?;
        let place = Tensor::arange(0, SIDE as i64, 1)?;
        let is_black = place.unsqueeze(1)?.add(&place)?.remainder(2)?.eq(0)?;
        let n_sites = 16 * SIDE * SIDE;
        let site = Tensor::arange(0, n_sites as i64, 1)?.reshape([16, SIDE as i64, SIDE as i64])?;
        Ok(Model { temperatures, beta, site, is_black })
    }

    /// Visits the sites where `is_mine`. `half` counts these calls.
    fn half_sweep(&self, spins: &Tensor, is_mine: &Tensor, half: &Tensor) -> Result<Tensor> {
        let field = spins.roll(1, 1)?.add(&spins.roll(-1, 1)?)?.add(&spins.roll(1, 2)?)?.add(&spins.roll(-1, 2)?)?;
        let draw = uniform(&self.site.add(&half.mul(self.site.numel() as i64)?)?)?;
        let odds = self.beta.mul(-2.0)?.mul(spins)?.mul(&field)?.exp()?;
        draw.lt(&odds)?.logical_and(is_mine)?.where_(&spins.neg()?, spins)
    }

    fn sweep(&self, spins: &Tensor, sweep: &Tensor) -> Result<Tensor> {
        let spins = self.half_sweep(spins, &self.is_black, &sweep.mul(2)?)?;
        self.half_sweep(&spins, &self.is_black.logical_not()?, &sweep.mul(2)?.add(1)?)
    }

    /// All sweeps, with the magnetization and the energy per site after each.
    fn all_sweeps(&self, spins: &Tensor) -> Result<(Tensor, (Tensor, Tensor))> {
        let sweep = |spins: &Tensor, sweep: &Tensor| {
            let spins = self.sweep(spins, sweep)?;
            let magnetization = spins.mean([1, 2], false)?.abs()?;
            let bonds = spins.mul(&spins.roll(1, 1)?.add(&spins.roll(1, 2)?)?)?;
            Ok((spins, (magnetization, bonds.mean([1, 2], false)?.neg()?)))
        };
        scan(sweep, spins, &Tensor::arange(0, SWEEPS, 1)?)
    }
}

/// The magnetization of an infinite lattice.
fn exact(temperature: f64) -> f64 {
    (1.0 - (2.0 / temperature).sinh().powi(-4)).max(0.0).powf(0.125)
}

pub(crate) fn run(run: &Run) -> Result<()> {
    let model = Model::new()?;
    let begin = Tensor::ones(&[16, SIDE, SIDE], DType::F64)?;
    let (spins, (magnetizations, energies)) = compile(|spins: &Tensor| model.all_sweeps(spins)).call(&begin)?;
    let [magnetization, energy] = [magnetizations, energies].map(|series| series.i(SKIPPED..)?.mean(0, false));
    let (magnetization, energy) = (magnetization?, energy?);
    run.check("spins", &spins, 0.0)?;
    run.check("magnetization", &magnetization, 1e-12)?;
    run.check("energy", &energy, 1e-12)?;

    let temperatures = model.temperatures.to_vec::<f64>()?;
    let at = |list: &Tensor, at: usize| list.i(at)?.item::<f64>();
    let (cold, hot) = (at(&magnetization, 0)?, at(&magnetization, 15)?);
    run.say(format!("the magnetization is {cold:.3} at 1.5, where Yang has {:.3}, and {hot:.3} at 3.5", exact(1.5)));
    let (sweep, number) = (compile(|spins: &Tensor, n: &Tensor| model.sweep(spins, n)), Tensor::scalar(7i64)?);
    run.race("a sweep", || model.sweep(&spins, &number), || sweep.call((&spins, &number)))?;

    let curve = (0..200).map(|i| 1.5 + 0.01 * f64::from(i)).map(|t| (t, exact(t))).collect();
    let points = temperatures.iter().copied().zip(magnetization.to_vec::<f64>()?).collect();
    plot(
        &run.file("ising.svg"),
        ["Magnetization of the Ising model", "temperature", "per site"],
        &[Series::line("infinite lattice (Yang)", curve), Series::points("64 × 64 sites", points)],
    )?;
    let side_by_side = opfuse::cat(&[&spins.i(2)?, &spins.i(6)?, &spins.i(8)?, &spins.i(15)?], 1)?;
    let large = side_by_side.repeat_interleave(3, 0)?.repeat_interleave(3, 1)?;
    let drawn = pictures::scaled(&large.unsqueeze(0)?, -1.6, 1.6)?;
    pictures::save_frames(&run.file("ising.png"), &drawn, Colors::Signed)
}
