//! How do parameters change by their gradients? Optimizers, schedules of the learning rate, and what goes with them.
//!
//! A [`Rule`] says how one parameter changes. An [`Optimizer`] applies rules to groups of parameters: all of them in
//! one compiled call. Learning rates and counts of steps are tensors, so a new rate compiles nothing, and a whole
//! training step can be one compiled function. States are tensors that are written in place and saved by name.
//!
//! | file | subject |
//! |---|---|
//! | `optimizer` | groups, the compiled update, states |
//! | `descent` | SGD, Adagrad, RMSprop, Lion |
//! | `moments` | Adam, AdamW, Adan |
//! | `muon` | orthogonal updates of matrices |
//! | `lbfgs` | steps from several evaluations |
//! | `schedule` | learning rates by step |
//! | `gradients` | clipping, averages of parameters, scaling of losses |

mod descent;
mod gradients;
mod lbfgs;
mod moments;
mod muon;
mod optimizer;
mod schedule;

pub use descent::{Adagrad, Lion, RmsProp, Sgd};
pub use gradients::{Ema, LossScaler, clip_grad_norm, clip_grad_value};
pub use lbfgs::{Lbfgs, LbfgsOptions};
pub use moments::{Adam, AdamW, Adan};
pub use muon::Muon;
pub use optimizer::{Optimizer, Rule, StepTensors};
pub use schedule::Schedule;
