//! Learning rates by step, as functions of the number of steps made so far.
//!
//! A schedule holds no state: after a resume it gives what it would have given.

use std::f64::consts::PI;

/// A learning rate by step.
///
/// ```
/// use opfuse::optim::Schedule;
///
/// let cosine = Schedule::Cosine { lr: 0.1, warmup: 10, steps: 100, floor: 0.0 };
/// assert_eq!((cosine.at(0), cosine.at(10), cosine.at(100)), (0.01, 0.1, 0.0));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Schedule {
    /// Always the same.
    Constant {
        /// The rate.
        lr: f64,
    },
    /// From one rate to another in so many steps, and then constant.
    Linear {
        /// The rate at step 0.
        from: f64,
        /// The rate from step `steps` on.
        to: f64,
        /// The number of steps in between.
        steps: usize,
    },
    /// Times a factor every so many steps.
    Step {
        /// The first rate.
        lr: f64,
        /// The number of steps with one rate.
        every: usize,
        /// The factor.
        factor: f64,
    },
    /// Times a factor at every step.
    Exponential {
        /// The first rate.
        lr: f64,
        /// The factor.
        factor: f64,
    },
    /// Up to a rate, linearly, and down along half a cosine (Loshchilov, Hutter 2017).
    Cosine {
        /// The highest rate.
        lr: f64,
        /// The number of steps up. The first rate is `lr / warmup`.
        warmup: usize,
        /// The number of steps up and down.
        steps: usize,
        /// The last rate.
        floor: f64,
    },
    /// Up and down along halves of a cosine (Smith, Topin 2018). PyTorch's part up is 0.3, its divisors are 25 and 1e4.
    OneCycle {
        /// The highest rate.
        lr: f64,
        /// The number of steps.
        steps: usize,
        /// The part of the steps that goes up.
        up: f64,
        /// The highest rate over the first.
        start_divisor: f64,
        /// The first rate over the last.
        end_divisor: f64,
    },
    /// Schedules for so many steps each, one after the other; the last one goes on. Each counts its own steps.
    Sequence(Vec<(usize, Schedule)>),
}

/// From `a` to `b` along half a cosine.
fn along_cosine(a: f64, b: f64, part: f64) -> f64 {
    b + (a - b) / 2.0 * (1.0 + (PI * part).cos())
}

impl Schedule {
    /// The rate of the step after `step` others.
    pub fn at(&self, step: usize) -> f64 {
        let part = |step: usize, steps: usize| if step >= steps { 1.0 } else { step as f64 / steps as f64 };
        match self {
            Schedule::Constant { lr } => *lr,
            Schedule::Linear { from, to, steps } => from + (to - from) * part(step, *steps),
            Schedule::Step { lr, every, factor } => lr * factor.powf((step / (*every).max(1)) as f64),
            Schedule::Exponential { lr, factor } => lr * factor.powf(step as f64),
            Schedule::Cosine { lr, warmup, .. } if step < *warmup => lr * (step + 1) as f64 / *warmup as f64,
            Schedule::Cosine { lr, warmup, steps, floor } => {
                along_cosine(*lr, *floor, part(step - warmup, steps.saturating_sub(*warmup)))
            }
            Schedule::OneCycle { lr, steps, up, start_divisor, end_divisor } => {
                let (first, top) = (lr / start_divisor, (up * *steps as f64 - 1.0).max(0.0));
                let (at, end) = (step as f64, (*steps as f64 - 1.0).max(top));
                if at < top {
                    along_cosine(first, *lr, at / top)
                } else {
                    let down = if end > top { ((at - top) / (end - top)).min(1.0) } else { 1.0 };
                    along_cosine(*lr, first / end_divisor, down)
                }
            }
            Schedule::Sequence(parts) => {
                let mut step = step;
                for (at, (steps, part)) in parts.iter().enumerate() {
                    if step < *steps || at + 1 == parts.len() {
                        return part.at(step);
                    }
                    step -= steps;
                }
                0.0
            }
        }
    }
}
