//! Optimizers on recorded gradients, with the trajectories that PyTorch recorded; states; schedules.

use crate::recorded::{Recorded, close, same};
use opfuse::nn::{CrossEntropy, Forward, Linear, Module, Sequential, State, Tanh};
use opfuse::optim::*;
use opfuse::{DType, Result, StateDict, Tensor, compile};

fn leaves(tensors: Vec<Tensor>) -> Result<Vec<Tensor>> {
    tensors.iter().try_for_each(|tensor| tensor.set_requires_grad(true))?;
    Ok(tensors)
}

fn check(case: &str, rule: impl Rule + Clone + 'static) -> Result<()> {
    let recorded = Recorded::open("optim.safetensors");
    let gradients = recorded.numbered(case, "gradient");
    let after = recorded.numbered(case, "after");
    let make = || -> Result<(Vec<Tensor>, Optimizer)> {
        let parameters = leaves(recorded.numbered(case, "start"))?;
        let optimizer = Optimizer::new(rule.clone(), parameters.clone())?;
        Ok((parameters, optimizer))
    };
    let step = |parameters: &[Tensor], optimizer: &Optimizer, at: i64| -> Result<()> {
        for (parameter, gradient) in parameters.iter().zip(&gradients) {
            parameter.set_grad(Some(&gradient.select(0, at)?.copy()?))?;
        }
        optimizer.step()
    };
    let (parameters, optimizer) = make()?;
    let (resumed, other) = make()?;
    for at in 0..20 {
        step(&parameters, &optimizer, at)?;
        for (index, (parameter, after)) in parameters.iter().zip(&after).enumerate() {
            close(&format!("{case}: parameter {index} after step {at}"), parameter, &after.select(0, at)?, 1e-6);
        }
        if at == 9 {
            // Half-way, another optimizer takes over the state.
            let saved: StateDict =
                optimizer.state_dict().into_iter().map(|(name, x)| (name, x.copy().expect("memory"))).collect();
            other.load_state_dict(&saved)?;
            for (to, from) in resumed.iter().zip(&parameters) {
                to.detach()?.copy_(&from.detach()?)?;
            }
        }
        if at > 9 {
            step(&resumed, &other, at)?;
        }
    }
    for (found, expected) in resumed.iter().zip(&parameters) {
        same(&format!("{case} resumed"), found, expected);
    }
    Ok(())
}

#[test]
fn trajectories_are_those_of_the_record() -> Result<()> {
    check("sgd", Sgd { lr: 0.1, ..Default::default() })?;
    let sgd = Sgd { lr: 0.1, momentum: 0.9, ..Default::default() };
    check("sgd_momentum", Sgd { dampening: 0.2, weight_decay: 0.01, ..sgd.clone() })?;
    check("sgd_nesterov", Sgd { nesterov: true, ..sgd })?;
    check("adam", Adam { lr: 0.05, weight_decay: 0.02, ..Default::default() })?;
    check("adam_amsgrad", Adam { lr: 0.05, amsgrad: true, ..Default::default() })?;
    check("adamw", AdamW { lr: 0.05, weight_decay: 0.1, ..Default::default() })?;
    check("adagrad", Adagrad { lr: 0.1, lr_decay: 0.05, weight_decay: 0.01, ..Default::default() })?;
    check("rmsprop", RmsProp { lr: 0.02, ..Default::default() })?;
    let centered = RmsProp { lr: 0.02, momentum: 0.8, centered: true, weight_decay: 0.01, ..Default::default() };
    check("rmsprop_centered", centered)
}

#[test]
fn lbfgs_follows_the_record() -> Result<()> {
    let recorded = Recorded::open("optim.safetensors");
    let matrix = recorded.get("lbfgs", "matrix");
    let x = leaves(vec![Tensor::zeros(&[6], DType::F64)?])?.remove(0);
    let options = LbfgsOptions { lr: 0.5, iterations: 4, history: 3, ..Default::default() };
    let optimizer = Lbfgs::new(vec![x.clone()], options)?;
    let mut losses = Vec::new();
    for _ in 0..6 {
        let loss = optimizer.step(|| {
            x.set_grad(None)?;
            let quartic = x.pow(4.0)?.sum_all()?.div(10.0)?;
            let loss = x.dot(&matrix.mv(&x)?)?.div(2.0)?.sub(x.sum_all()?)?.add(&quartic)?;
            loss.backward()?;
            loss.detach()
        })?;
        losses.push(loss.item::<f64>()?);
    }
    close("losses", &Tensor::try_from(losses)?, &recorded.get("lbfgs", "losses"), 1e-9);
    close("parameters", &x, &recorded.get("lbfgs", "after"), 1e-9);
    assert_eq!(optimizer.state_tensors().len(), 5);
    Ok(())
}

#[test]
fn schedules_are_those_of_the_record() {
    let recorded = Recorded::open("optim.safetensors");
    let check = |name: &str, schedule: &Schedule| {
        let rates: Vec<f64> = (0..30).map(|step| schedule.at(step)).collect();
        close(name, &Tensor::try_from(rates).expect("memory"), &recorded.get("schedule", name), 1e-12);
    };
    check("cosine", &Schedule::Cosine { lr: 0.2, warmup: 0, steps: 30, floor: 0.01 });
    check("step", &Schedule::Step { lr: 0.2, every: 7, factor: 0.3 });
    check("exponential", &Schedule::Exponential { lr: 0.2, factor: 0.9 });
    check("linear", &Schedule::Linear { from: 0.1, to: 0.2, steps: 12 });
    check("one_cycle", &Schedule::OneCycle { lr: 0.4, steps: 31, up: 0.3, start_divisor: 25.0, end_divisor: 1e4 });
    let parts = vec![(3, Schedule::Constant { lr: 1.0 }), (2, Schedule::Exponential { lr: 1.0, factor: 0.5 })];
    let rates: Vec<f64> = (0..6).map(|step| Schedule::Sequence(parts.clone()).at(step)).collect();
    assert_eq!(rates, [1.0, 1.0, 1.0, 1.0, 0.5, 0.25]);
}

/// Adan and Lion beside their formulas in f64.
#[test]
fn adan_and_lion_follow_their_formulas() -> Result<()> {
    let gradients = [0.5f64, -1.0, 0.25, 0.75];
    let run = |rule: Box<dyn Fn(Tensor) -> Result<Optimizer>>| -> Result<f64> {
        let x = leaves(vec![Tensor::try_from([1.0f64])?])?.remove(0);
        let optimizer = rule(x.clone())?;
        for gradient in gradients {
            x.set_grad(Some(&Tensor::try_from([gradient])?))?;
            optimizer.step()?;
        }
        x.detach()?.squeeze([0])?.item::<f64>()
    };
    let lion = run(Box::new(|x| Optimizer::new(Lion { lr: 0.1, weight_decay: 0.5, ..Default::default() }, vec![x])))?;
    let (mut x, mut m) = (1.0f64, 0.0f64);
    for g in gradients {
        x = x * (1.0 - 0.05) - 0.1 * (0.9 * m + 0.1 * g).signum();
        m = 0.99 * m + 0.01 * g;
    }
    assert!((lion - x).abs() < 1e-12, "{lion} instead of {x}");
    let adan = run(Box::new(|x| Optimizer::new(Adan { lr: 0.1, weight_decay: 0.5, ..Default::default() }, vec![x])))?;
    let (mut x, mut m, mut v, mut n, mut before) = (1.0f64, 0.0, 0.0, 0.0, gradients[0]);
    for (step, g) in (1..).zip(gradients) {
        let (b1, b2, b3) = (0.98f64, 0.92f64, 0.99f64);
        m = b1 * m + (1.0 - b1) * g;
        v = b2 * v + (1.0 - b2) * (g - before);
        n = b3 * n + (1.0 - b3) * (g + b2 * (g - before)).powi(2);
        let divisor = (n / (1.0 - b3.powi(step))).sqrt() + 1e-8;
        x = (x - 0.1 * (m / (1.0 - b1.powi(step)) + b2 * v / (1.0 - b2.powi(step))) / divisor) / 1.05;
        before = g;
    }
    assert!((adan - x).abs() < 1e-12, "{adan} instead of {x}");
    Ok(())
}

#[test]
fn muon_makes_orthogonal_steps_of_matrices() -> Result<()> {
    let x = leaves(vec![Tensor::zeros(&[6, 4], DType::F32)?])?.remove(0);
    let optimizer =
        Optimizer::new(Muon { lr: 1.0, weight_decay: 0.0, iterations: 10, ..Default::default() }, vec![x.clone()])?;
    x.set_grad(Some(&Tensor::randn(&[6, 4], DType::F32)?))?;
    optimizer.step()?;
    let step = x.detach()?.div(1.5f64.sqrt())?;
    let gram = step.t()?.mm(&step)?.to_vec2::<f32>()?;
    for (row, values) in gram.iter().enumerate() {
        for (column, value) in values.iter().enumerate() {
            // The iteration keeps singular values near 1, and not at 1.
            let range = if row == column { 0.4..1.6 } else { -0.5..0.5 };
            assert!(range.contains(value), "{gram:?}");
        }
    }
    let vector = leaves(vec![Tensor::zeros(&[3], DType::F32)?])?;
    let error = Optimizer::new(Muon::default(), vector).err().expect("it is for matrices");
    assert!(error.to_string().contains("group of AdamW"), "{error}");
    Ok(())
}

#[test]
fn groups_have_rules_and_rates_of_their_own_and_a_rate_compiles_nothing() -> Result<()> {
    let (a, b) = (leaves(vec![Tensor::zeros(&[2], DType::F32)?])?, leaves(vec![Tensor::zeros(&[3], DType::F32)?])?);
    let sgd = |lr| Sgd { lr, ..Default::default() };
    let optimizer = Optimizer::new(sgd(1.0), a.clone())?.with_group(sgd(0.5), b.clone())?;
    let step = || -> Result<()> {
        for x in [&a[0], &b[0]] {
            x.set_grad(Some(&Tensor::ones(x.sizes(), DType::F32)?))?;
        }
        optimizer.step()
    };
    step()?;
    optimizer.set_group_lr(1, 0.25)?;
    step()?;
    assert_eq!(a[0].to_vec::<f32>()?, [-2.0; 2]);
    assert_eq!(b[0].to_vec::<f32>()?, [-0.75; 3]);
    assert_eq!((optimizer.lr(0)?, optimizer.lr(1)?), (1.0, 0.25));
    assert!(optimizer.set_group_lr(2, 0.1).is_err());
    // A parameter without a gradient stays.
    b[0].set_grad(None)?;
    a[0].set_grad(Some(&Tensor::ones(&[2], DType::F32)?))?;
    optimizer.step()?;
    assert_eq!((a[0].to_vec::<f32>()?, b[0].to_vec::<f32>()?), (vec![-3.0; 2], vec![-0.75; 3]));
    Ok(())
}

#[test]
fn states_of_other_optimizers_and_bad_parameters_are_refused() -> Result<()> {
    let parameters = leaves(vec![Tensor::zeros(&[2], DType::F32)?])?;
    let adam = Optimizer::new(Adam::default(), parameters.clone())?;
    let sgd = Optimizer::new(Sgd { momentum: 0.9, ..Default::default() }, parameters.clone())?;
    let error = adam.load_state_dict(&sgd.state_dict()).expect_err("other names").to_string();
    assert!(error.contains("2 missing: 0.0.exp_avg, 0.0.exp_avg_sq"), "{error}");
    assert!(error.contains("1 unexpected: 0.0.momentum_buffer"), "{error}");
    let twice = [&parameters[..], &parameters].concat();
    let refused = |parameters: Vec<Tensor>, rule: Adam, what: &str| {
        let error = Optimizer::new(rule, parameters).err().expect("it is refused").to_string();
        assert!(error.contains(what), "{error}");
    };
    refused(twice, Adam::default(), "twice");
    refused(vec![Tensor::zeros(&[2], DType::F32)?], Adam::default(), "requires gradients");
    refused(parameters, Adam { betas: (1.0, 0.9), ..Default::default() }, "betas.0");
    Ok(())
}

#[test]
fn clipping_averages_and_scaling() -> Result<()> {
    let x = leaves(vec![Tensor::zeros(&[2], DType::F32)?])?;
    let set = |values: [f32; 2]| x[0].set_grad(Some(&Tensor::try_from(values)?));
    let gradient = || x[0].grad().expect("it has one").to_vec::<f32>();
    set([3.0, 4.0])?;
    assert_eq!(clip_grad_norm(&x, 10.0)?.item::<f32>()?, 5.0);
    assert_eq!(gradient()?, [3.0, 4.0]);
    clip_grad_norm(&x, 1.0)?;
    close("clipped", &Tensor::try_from(gradient()?)?, &Tensor::try_from([0.6f32, 0.8])?, 1e-6);
    set([-3.0, f32::NAN])?;
    clip_grad_value(&x, 2.0)?;
    assert!(gradient()?[0] == -2.0 && gradient()?[1].is_nan());
    let ema = Ema::new(x.clone(), 0.75)?;
    x[0].detach()?.fill_(4.0)?;
    ema.update()?;
    ema.swap()?;
    assert_eq!(x[0].to_vec::<f32>()?, [1.0, 1.0]);
    ema.swap()?;
    assert_eq!(x[0].to_vec::<f32>()?, [4.0, 4.0]);
    let optimizer = Optimizer::new(Sgd { lr: 1.0, ..Default::default() }, x.clone())?;
    let mut scaler = LossScaler::new(8.0)?;
    scaler.interval = 1;
    set([f32::INFINITY, 1.0])?;
    assert!(!scaler.step(&optimizer)?);
    assert_eq!((scaler.current()?, x[0].to_vec::<f32>()?), (4.0, vec![4.0, 4.0]));
    set([4.0, 8.0])?;
    assert!(scaler.step(&optimizer)?);
    assert_eq!((scaler.current()?, x[0].to_vec::<f32>()?), (8.0, vec![3.0, 2.0]));
    Ok(())
}

#[test]
fn a_whole_step_is_one_graph_with_eager_bits() -> Result<()> {
    opfuse::manual_seed(3);
    let model = Linear::new(6, 3)?;
    let copy = model.deep_clone()?;
    let rule = AdamW { lr: 0.01, ..Default::default() };
    let (own, other) = (Optimizer::new(rule.clone(), model.parameters())?, Optimizer::new(rule, copy.parameters())?);
    let step = |model: &Linear, optimizer: &Optimizer, x: &Tensor| -> Result<Tensor> {
        let loss = model.forward(x)?.tanh()?.square()?.mean_all()?;
        loss.backward()?;
        clip_grad_norm(&model.parameters(), 0.1)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        loss.detach()
    };
    let compiled = compile(|x: &Tensor| step(&model, &own, x));
    for at in 0..5 {
        let x = Tensor::randn(&[4, 6], DType::F32)?;
        if at == 3 {
            own.set_lr(0.02)?;
            other.set_lr(0.02)?;
        }
        same("loss", &compiled.call(&x)?, &step(&copy, &other, &x)?);
        same("weight", &model.weight, &copy.weight);
    }
    let counts = compiled.counts();
    assert_eq!((counts.captures, counts.eager), (1, 0), "{}", compiled.explain());
    Ok(())
}

#[test]
fn a_compiled_run_has_the_losses_of_the_record() -> Result<()> {
    let recorded = Recorded::open("optim.safetensors");
    let model = Sequential::new().with(Linear::new(6, 16)?).with(Tanh {}).with(Linear::new(16, 4)?);
    model.load_state_dict(&recorded.named("run", "weight"))?;
    let optimizer = Optimizer::new(AdamW { lr: 0.01, ..Default::default() }, model.parameters())?;
    let step = compile(|x: &Tensor, labels: &Tensor| {
        let loss = model.forward(x)?.cross_entropy(labels, &CrossEntropy::default())?;
        loss.backward()?;
        let norm = clip_grad_norm(&model.parameters(), 0.5)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        Ok(vec![loss.detach()?, norm])
    });
    let (x, labels) = (recorded.get("run", "input"), recorded.get("run", "labels"));
    let results = (0..100).map(|_| step.call((&x, &labels))).collect::<Result<Vec<_>>>()?;
    let losses: Vec<&Tensor> = results.iter().map(|pair| &pair[0]).collect();
    close("losses", &opfuse::stack(&losses, 0)?, &recorded.get("run", "losses"), 1e-6);
    close("the last norm", &results[99][1], &recorded.get("run", "norm"), 1e-5);
    assert_eq!((step.counts().captures, step.counts().eager), (1, 0), "{}", step.explain());
    Ok(())
}
