//! Optimizers: rules over groups of parameters.

use crate::autograd::no_grad;
use crate::compile::{Compiled, compile};
use crate::error::{Error, Result};
use crate::formats::StateDict;
use crate::nn::{State, state};
use crate::profile::stands_for;
use crate::tensor::Tensor;
use std::collections::HashSet;
use std::sync::Arc;

/// How one parameter changes by its gradient.
pub trait Rule: Send + Sync {
    /// The first learning rate.
    fn lr(&self) -> f64;

    /// The tensors that the rule keeps for a parameter, each of its sizes: names, and the numbers they start from.
    fn state(&self) -> Vec<(&'static str, f64)>;

    /// Writes the new parameter and its new state, in place.
    ///
    /// # Errors
    /// If the rule does not apply to the parameter.
    fn update(&self, parameter: &Tensor, gradient: &Tensor, state: &[Tensor], step: &StepTensors) -> Result<()>;

    /// Refuses numbers and parameters that the rule cannot work with.
    ///
    /// # Errors
    /// If there is such a number or parameter.
    fn check(&self, parameter: &Tensor) -> Result<()>;
}

/// What a step is told: 0-dim tensors of f64.
#[derive(Debug, Clone)]
pub struct StepTensors {
    /// The learning rate.
    pub lr: Tensor,
    /// The number of the step; the first is 1.
    pub count: Tensor,
}

/// Parameters that follow one rule.
struct Group {
    rule: Box<dyn Rule>,
    step: StepTensors,
    parameters: Vec<Tensor>,
    states: Vec<Vec<Tensor>>,
}

type Gradients = Vec<Option<Tensor>>;
type Update = Box<dyn Fn(&Gradients) -> Result<()> + Send + Sync>;

/// Applies rules to groups of parameters.
///
/// ```
/// use opfuse::nn::{Forward, Linear, Module};
/// use opfuse::optim::{AdamW, Optimizer};
/// use opfuse::{DType, Tensor, compile};
///
/// # fn main() -> opfuse::Result<()> {
/// let model = Linear::new(4, 1)?;
/// let optimizer = Optimizer::new(AdamW { lr: 0.01, ..Default::default() }, model.parameters())?;
/// // Forward pass, backward pass and update are one compiled function.
/// let step = compile(|x: &Tensor| {
///     let loss = model.forward(x)?.square()?.mean_all()?;
///     optimizer.minimize(&loss)?;
///     loss.detach()
/// });
/// let x = Tensor::ones(&[8, 4], DType::F32)?;
/// let first = step.call(&x)?.item::<f32>()?;
/// optimizer.set_lr(0.001)?; // compiles nothing
/// assert!(step.call(&x)?.item::<f32>()? < first);
/// # Ok(())
/// # }
/// ```
pub struct Optimizer {
    groups: Arc<Vec<Group>>,
    update: Compiled<Update, (Gradients,)>,
}

impl Optimizer {
    /// An optimizer of these parameters.
    ///
    /// # Errors
    /// If a number of the rule is out of its range, or if a parameter does not require gradients, is no leaf, is there
    /// twice, or does not fit the rule.
    #[track_caller]
    pub fn new(rule: impl Rule + 'static, parameters: Vec<Tensor>) -> Result<Optimizer> {
        Optimizer::of(Vec::new()).with_group(rule, parameters)
    }

    /// The optimizer with more parameters, which follow a rule of their own.
    ///
    /// # Errors
    /// As for [`Optimizer::new`]. Also if the optimizer has made compiled steps.
    #[track_caller]
    pub fn with_group(self, rule: impl Rule + 'static, parameters: Vec<Tensor>) -> Result<Optimizer> {
        let _place = stands_for();
        let Optimizer { groups, update } = self;
        drop(update);
        let Some(mut groups) = Arc::into_inner(groups) else {
            return Err(Error::argument("with_group", "the optimizer is in use; add groups before the first step"));
        };
        let mut known: HashSet<u64> = groups.iter().flat_map(|group| &group.parameters).map(Tensor::id).collect();
        let mut states = Vec::new();
        for (index, parameter) in parameters.iter().enumerate() {
            let refuse = |what: &str| Err(Error::argument("Optimizer", format!("parameter {index} {what}")));
            if !parameter.requires_grad() || !parameter.is_leaf() {
                return refuse("is no leaf that requires gradients; call set_requires_grad(true) on a leaf");
            }
            if !known.insert(parameter.id()) {
                return refuse("is there twice; Module::parameters lists each once");
            }
            rule.check(parameter)?;
            let _unrecorded = no_grad();
            let new = |&(_, value): &(&str, f64)| parameter.full_like(value);
            states.push(rule.state().iter().map(new).collect::<Result<Vec<_>>>()?);
        }
        let step = StepTensors { lr: Tensor::scalar(rule.lr())?, count: Tensor::scalar(0.0f64)? };
        groups.push(Group { rule: Box::new(rule), step, parameters, states });
        Ok(Optimizer::of(groups))
    }

    fn of(groups: Vec<Group>) -> Optimizer {
        let groups = Arc::new(groups);
        let own = groups.clone();
        let update: Update = Box::new(move |gradients| apply(&own, gradients));
        Optimizer { groups, update: compile(update) }
    }

    /// The parameters of all groups.
    pub fn parameters(&self) -> impl Iterator<Item = &Tensor> {
        self.groups.iter().flat_map(|group| &group.parameters)
    }

    /// Changes the parameters by their gradients, all in one compiled call. Those without a gradient stay. Inside a
    /// compiled function it becomes a part of that.
    ///
    /// # Errors
    /// If a rule fails.
    #[track_caller]
    pub fn step(&self) -> Result<()> {
        let _place = stands_for();
        let gradients: Gradients = self.parameters().map(Tensor::grad).collect();
        if gradients.iter().all(Option::is_none) {
            return Ok(());
        }
        let _unrecorded = no_grad();
        self.update.call(&gradients)
    }

    /// Clears the gradients.
    ///
    /// # Errors
    /// If a gradient cannot be cleared.
    #[track_caller]
    pub fn zero_grad(&self) -> Result<()> {
        let _place = stands_for();
        self.parameters().try_for_each(|parameter| parameter.set_grad(None))
    }

    /// A backward pass of the loss, a step, and no gradients afterwards. Returns the loss without its history.
    ///
    /// # Errors
    /// If the loss has no gradient, or as for [`Optimizer::step`].
    #[track_caller]
    pub fn minimize(&self, loss: &Tensor) -> Result<Tensor> {
        let _place = stands_for();
        loss.backward()?;
        self.step()?;
        self.zero_grad()?;
        loss.detach()
    }

    /// Sets the learning rate of all groups. Nothing is compiled anew.
    ///
    /// # Errors
    /// Only errors of the write.
    #[track_caller]
    pub fn set_lr(&self, lr: f64) -> Result<()> {
        let _place = stands_for();
        (0..self.groups.len()).try_for_each(|group| self.set_group_lr(group, lr))
    }

    /// Sets the learning rate of one group.
    ///
    /// # Errors
    /// If there is no such group.
    #[track_caller]
    pub fn set_group_lr(&self, group: usize, lr: f64) -> Result<()> {
        let none =
            || Error::argument("set_group_lr", format!("there are {} groups, and no {group}", self.groups.len()));
        self.groups.get(group).ok_or_else(none)?.step.lr.fill_(lr)
    }

    /// The learning rate of a group.
    ///
    /// # Errors
    /// If there is no such group.
    #[track_caller]
    pub fn lr(&self, group: usize) -> Result<f64> {
        let none = || Error::argument("lr", format!("there are {} groups, and no {group}", self.groups.len()));
        self.groups.get(group).ok_or_else(none)?.step.lr.item::<f64>()
    }

    /// The report of the compiled update.
    pub fn explain(&self) -> crate::Explain {
        self.update.explain()
    }

    /// The state by name: learning rates, counts of steps, and what the rules keep.
    pub fn state_dict(&self) -> StateDict {
        let mut all = StateDict::new();
        for (at, group) in self.groups.iter().enumerate() {
            all.insert(format!("{at}.lr"), group.step.lr.clone());
            all.insert(format!("{at}.step"), group.step.count.clone());
            for (index, tensors) in group.states.iter().enumerate() {
                for ((name, _), tensor) in group.rule.state().iter().zip(tensors) {
                    all.insert(format!("{at}.{index}.{name}"), tensor.clone());
                }
            }
        }
        all
    }

    /// Takes over a state that [`Optimizer::state_dict`] gave, so that training goes on by bits.
    ///
    /// # Errors
    /// If it is that of another optimizer: all names and sizes that do not fit are in one message. Nothing is written
    /// then.
    #[track_caller]
    pub fn load_state_dict(&self, from: &StateDict) -> Result<()> {
        state::load("Optimizer::load_state_dict", &self.state_dict(), from)
    }
}

impl State for Optimizer {
    fn state_tensors(&self) -> StateDict {
        self.state_dict()
    }
}

/// Applies the rules. `gradients` are those of all parameters, in order.
fn apply(groups: &[Group], gradients: &Gradients) -> Result<()> {
    let mut gradients = gradients.iter();
    for group in groups {
        let own: Vec<Option<&Tensor>> = gradients.by_ref().take(group.parameters.len()).map(Option::as_ref).collect();
        if own.iter().all(Option::is_none) {
            continue;
        }
        group.step.count.add_(1.0)?;
        for ((parameter, state), gradient) in group.parameters.iter().zip(&group.states).zip(own) {
            if let Some(gradient) = gradient {
                group.rule.update(parameter, gradient, state, &group.step)?;
            }
        }
    }
    Ok(())
}

/// Refuses a number that is not at least 0, or not below `below`.
pub(super) fn in_range(rule: &str, name: &str, value: f64, below: f64) -> Result<()> {
    if value >= 0.0 && value < below {
        return Ok(());
    }
    Err(Error::argument(rule, format!("{name} is {value}; it must be at least 0 and below {below}")))
}

/// The gradient with `decay` times the parameter added.
pub(super) fn decayed(gradient: &Tensor, parameter: &Tensor, decay: f64) -> Result<Tensor> {
    if decay == 0.0 { Ok(gradient.clone()) } else { gradient.add(parameter.mul(decay)?) }
}

/// The parameter without `lr * decay` of it.
pub(super) fn shrunk(parameter: &Tensor, lr: &Tensor, decay: f64) -> Result<Tensor> {
    if decay == 0.0 { Ok(parameter.clone()) } else { parameter.mul(lr.mul(-decay)?.add(1.0)?) }
}

/// `a` moved towards `b` by `weight`.
pub(super) fn moved(a: &Tensor, b: &Tensor, weight: f64) -> Result<Tensor> {
    a.add(b.sub(a)?.mul(weight)?)
}

/// `1 - beta^count`.
pub(super) fn correction(beta: f64, count: &Tensor) -> Result<Tensor> {
    Tensor::number(beta)?.pow(count)?.neg()?.add(1.0)
}
