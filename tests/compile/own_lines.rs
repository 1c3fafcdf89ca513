//! Reports show lines of the program, and not of this crate, whatever part of the crate it calls.

use opfuse::compile::explain::Explain;
use opfuse::data::Accuracy;
use opfuse::func::{self, cond, fori_loop, grad, hessian, jacfwd, jacrev, jvp, linearize, scan, scan_times, vjp};
use opfuse::nn::{self, AttentionMask, Forward, Reduction, losses};
use opfuse::optim::{Adam, Ema, Optimizer, Sgd, clip_grad_norm, clip_grad_value};
use opfuse::profile::{Kind, Place};
use opfuse::{DType, Result, Tensor, compile, profile, vmap};

/// Numbers between 0 and 1.
fn batch(sizes: &[usize]) -> Result<Tensor> {
    let count: usize = sizes.iter().product();
    let numbers: Vec<f32> = (0..count).map(|at| (at * 7 % 13) as f32 / 13.0).collect();
    Tensor::from_slice(&numbers, sizes)
}

fn x() -> Result<Tensor> {
    batch(&[4, 4])
}

/// The places of a report: those of the calls in it, of its kernels, and of its backward pass.
fn places(explain: &Explain) -> Vec<(String, Place)> {
    let named =
        |node: &opfuse::compile::explain::NodeReport| Some((node.node.op()?.name().into(), node.place.clone()?));
    let mut all: Vec<(String, Place)> = explain.nodes.iter().filter_map(named).collect();
    for call in &explain.calls {
        all.extend(call.place.clone().map(|place| (call.operator.clone(), place)));
        all.extend(places(&call.before));
    }
    all.extend(explain.segments.iter().flat_map(|segment| places(&segment.report)));
    all.extend(explain.backward.iter().flat_map(|backward| places(backward)));
    all
}

/// What stands in another file than this one.
fn elsewhere(name: &str, found: Vec<(String, Place)>) -> Vec<String> {
    let others = found.into_iter().filter(|(_, place)| !place.file.ends_with("own_lines.rs"));
    others.map(|(op, place)| format!("{name}: {op} stands at {place}")).collect()
}

type Case<'a> = (&'static str, Box<dyn Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'a>);

/// Compiles each function, and profiles it. All that is recorded must stand in a line of this file.
fn check(cases: Vec<Case<'_>>) -> Result<()> {
    let mut wrong = Vec::new();
    for (name, function) in cases {
        let (_, profile) = profile(|| function(&x()?))?;
        let rows = profile.of_kind(Kind::Operator).filter_map(|row| Some((row.name.clone(), row.place.clone()?)));
        wrong.extend(elsewhere(&format!("{name}, profiled"), rows.collect()));
        let compiled = compile(function);
        compiled.call(&x()?)?;
        let report = compiled.explain();
        assert!(report.eager.is_none(), "{name}: {report}");
        let found = places(&report);
        assert!(!found.is_empty(), "{name}: no place is known: {report}");
        wrong.extend(elsewhere(name, found));
    }
    assert!(wrong.is_empty(), "{} are elsewhere:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

macro_rules! cases {
    ($($name:literal => $function:expr;)*) => {
        vec![$(($name, Box::new($function) as Box<dyn Fn(&Tensor) -> Result<Tensor> + Send + Sync>)),*]
    };
}

#[test]
fn calls_of_methods_stand_in_lines_of_the_program() -> Result<()> {
    let spd = |x: &Tensor| x.mm(&x.t()?)?.add(Tensor::eye(4, DType::F32)?);
    let kernel = batch(&[1, 1, 2, 2])?;
    check(cases! {
        "sum" => |x: &Tensor| x.sum((), false);
        "sum over dims" => |x: &Tensor| x.sum([0], true);
        "mean" => |x: &Tensor| x.mean([1], false);
        "means" => |x: &Tensor| x.mean_all()?.add(x.sum_all()?);
        "prod" => |x: &Tensor| x.prod(0, false)?.add(x.prod_all()?);
        "extrema" => |x: &Tensor| x.max_all()?.add(x.min_dim(0, false)?.0)?.add(x.amax([0], false)?);
        "var" => |x: &Tensor| x.var([0], 1, false)?.add(x.std((), 0, false)?);
        "logsumexp" => |x: &Tensor| x.logsumexp([0], false);
        "any" => |x: &Tensor| x.gt(0.5)?.any([0], false)?.logical_and(&x.gt(0.0)?.all((), false)?);
        "norm" => |x: &Tensor| x.norm(3, [0], false)?.add(x.norm(2, (), false)?);
        "cumsum" => |x: &Tensor| x.cumsum(0)?.add(x.cummax(0)?.0);
        "median" => |x: &Tensor| x.median()?.add(x.quantile(0.5, 0, true)?);
        "interp" => |x: &Tensor| x.interp(&x.select(0, 0)?, &x.select(0, 1)?);
        "einsum" => |x: &Tensor| nn::einsum("ij,kj->ik", &[x, x]);
        "conv" => move |x: &Tensor| x.reshape([1, 1, 4, 4])?.conv2d(&kernel, None, &nn::Convolution::default());
        "border_pad" => |x: &Tensor| x.border_pad([1, 1, 1, 1], nn::Border::Reflect);
        "clamp" => |x: &Tensor| x.clamp(0, 1)?.clamp(None, x);
        "index" => |x: &Tensor| x.i((1.., 0))?.add(1.0);
        "set" => |x: &Tensor| {
            let y = x.copy()?;
            y.set((0, ..), 1.0)?;
            Ok(y)
        };
        "operators" => |x: &Tensor| (x * 2.0)? + (1.0 - x);
        "inverse" => move |x: &Tensor| spd(x)?.linalg_inv()?.add(spd(x)?.linalg_det()?);
        "cholesky" => move |x: &Tensor| spd(x)?.linalg_cholesky(false);
        "solve" => move |x: &Tensor| spd(x)?.linalg_solve(x)?.add(&x.linalg_qr()?.0);
        "spectra" => move |x: &Tensor| spd(x)?.linalg_eigh()?.0.add(x.linalg_svd(false)?.1);
        "pinv" => |x: &Tensor| x.linalg_pinv(None)?.add(x.matrix_exp()?);
        "fft" => |x: &Tensor| x.rfft(None, -1)?.irfft(4, -1)?.add(x.fft(None, 0)?.real()?);
        "fftn" => |x: &Tensor| x.fftn(())?.ifftn(())?.abs()?.add(x.fftshift(())?);
        "stft" => |x: &Tensor| x.flatten(0, -1)?.stft(8, 2, None)?.istft(8, 2, None);
    })
}

#[test]
fn functions_of_functions_stand_in_lines_of_the_program() -> Result<()> {
    fn energy(x: &Tensor) -> Result<Tensor> {
        x.square()?.sum_all()
    }
    fn wave(x: &Tensor) -> Result<Tensor> {
        x.sin()
    }
    check(cases! {
        "grad" => |x: &Tensor| grad(energy).call(x);
        "value_and_grad" => |x: &Tensor| func::value_and_grad(energy).call(x)?.1.add(1.0);
        "grad of grad" => |x: &Tensor| grad(|x: &Tensor| grad(energy).call(x)?.square()?.sum_all()).call(x);
        "vjp" => |x: &Tensor| vjp(wave, x)?.1.call(x);
        "jvp" => |x: &Tensor| Ok(jvp(wave, x, x)?.1);
        "linearize" => |x: &Tensor| linearize(wave, x)?.1.call(x);
        "jacrev" => |x: &Tensor| jacrev(wave).call(x);
        "jacfwd" => |x: &Tensor| jacfwd(wave).call(x);
        "hessian" => |x: &Tensor| hessian(energy).call(x);
        "vmap" => |x: &Tensor| vmap(|x: &Tensor| x.sum_all()).out_dims(-1).call(x);
        "scan" => |x: &Tensor| Ok(scan(|c: &Tensor, x: &Tensor| Ok(((c + x)?, x.exp()?)), &x.select(0, 0)?, x)?.1);
        "scan_times" => |x: &Tensor| Ok(scan_times(|c: &Tensor| Ok((c.sin()?, c.clone())), x, 3)?.0);
        "fori_loop" => |x: &Tensor| fori_loop(0..3, |i: &Tensor, c: &Tensor| c * i, x);
        "while_loop" => |x: &Tensor| {
            func::while_loop(|c: &Tensor| c.sum_all()?.lt(90.0), |c: &Tensor| c.mul(2.0), x, 30)
        };
        "cond" => |x: &Tensor| cond(&x.sum_all()?.gt(0.0)?, |x: &Tensor| x.exp(), |x: &Tensor| x.neg(), x);
        "grad of scan" => |x: &Tensor| {
            let last = |x: &Tensor| scan_times(|c: &Tensor| Ok((c.sin()?, c.clone())), x, 3)?.0.sum_all();
            grad(last).call(x)
        };
        "backward" => |x: &Tensor| {
            let w = x.copy()?;
            w.set_requires_grad(true)?;
            w.square()?.sum_all()?.backward()?;
            w.grad().expect("w was used").add(1.0)
        };
    })?;
    // Where the compiled function is the transform itself, the line is the one that made it.
    let line = line!() + 1;
    let slope = compile(grad(energy));
    slope.call(&x()?)?;
    let found = places(&slope.explain());
    assert!(found.iter().any(|(_, place)| place.line == line && place.file.ends_with("own_lines.rs")), "{found:?}");
    let sums = compile(vmap(|x: &Tensor| x.sum_all()));
    sums.call(&x()?)?;
    let wrong: Vec<String> = [("grad", found), ("vmap", places(&sums.explain()))]
        .into_iter()
        .flat_map(|(name, at)| elsewhere(name, at))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}

#[test]
fn calls_of_modules_stand_in_lines_of_the_program() -> Result<()> {
    let linear = nn::Linear::new(4, 4)?;
    let bilinear = nn::Bilinear::new(4, 4, 2)?;
    let stack = nn::Sequential::new()
        .with(nn::Linear::new(4, 8)?)
        .with(nn::Tanh {})
        .with(nn::LayerNorm::new([8])?)
        .with(nn::Func::new(|x: &Tensor| x.relu()));
    let conv = nn::Conv2d::new(1, 2, [2, 2])?;
    let norms = (nn::BatchNorm1d::new(4)?, nn::GroupNorm::new(2, 4)?, nn::RmsNorm::new([4])?, nn::InstanceNorm::new(4));
    let table = nn::Embedding::new(5, 3)?;
    let bag = nn::EmbeddingBag::new(5, 3)?;
    let attention = nn::MultiheadAttention::new(4, 2)?;
    let options = nn::TransformerOptions { feedforward: 8, dropout: 0.0, ..nn::TransformerOptions::default() };
    let encoder = nn::TransformerEncoder::new(4, 2, 2, options)?;
    let decoder = nn::TransformerDecoder::new(4, 2, 1, options)?;
    let lstm = nn::LSTM::new(4, 3, nn::RecurrentOptions::default())?;
    let gru = nn::GRU::new(4, 3, nn::RecurrentOptions::default())?;
    let cell = nn::GRUCell::new(4, 4)?;
    let rotary = nn::RotaryEmbedding::new(4, 8, 10_000.0)?;
    let positions = nn::SinusoidalPositions::new(4, 8)?;
    let unfold = nn::Unfold { windows: nn::Windows::new([2, 2]) };
    let fold = nn::Fold { sizes: [4, 4], windows: nn::Windows::new([2, 2]) };
    let steps = |x: &Tensor| x.unsqueeze(1);
    let none = AttentionMask::default;
    let ids = |x: &Tensor| x.mul(4.0)?.to_dtype(DType::I64);
    check(cases! {
        "linear" => move |x: &Tensor| linear.forward(x);
        "bilinear" => move |x: &Tensor| bilinear.forward(x, x);
        "sequential" => move |x: &Tensor| stack.forward(x);
        "conv" => move |x: &Tensor| conv.forward(&x.reshape([1, 1, 4, 4])?);
        "norms" => move |x: &Tensor| {
            let y = norms.1.forward(&norms.0.forward(x)?)?;
            norms.3.forward(&norms.2.forward(&y)?.unsqueeze(0)?)
        };
        "embedding" => move |x: &Tensor| table.forward(&ids(x)?);
        "bag" => move |x: &Tensor| bag.forward(&ids(x)?);
        "attention" => move |x: &Tensor| {
            let x = steps(x)?;
            let causal = AttentionMask { is_causal: true, ..none() };
            let (y, weights) = attention.forward_weights(&x, &x, &x, &causal)?;
            attention.forward(&x, &x, &x, &none())?.add(&y)?.add(weights.sum_all()?)
        };
        "transformer" => move |x: &Tensor| {
            let x = steps(x)?;
            decoder.forward(&x, &encoder.forward(&x)?, &none(), &none())
        };
        "recurrent" => move |x: &Tensor| lstm.forward(&steps(x)?, None)?.0.add(gru.forward(&steps(x)?, None)?.0);
        "cell" => move |x: &Tensor| cell.forward(x, x);
        "positions" => move |x: &Tensor| positions.forward(&rotary.forward(x)?);
        "windows" => move |x: &Tensor| fold.forward(&unfold.forward(&x.reshape([1, 1, 4, 4])?)?);
        "losses" => |x: &Tensor| {
            let one = losses::gaussian_nll_loss(x, x, x, true, 1e-6, Reduction::Mean)?;
            let other = losses::poisson_nll_loss(x, x, true, true, 1e-8, Reduction::Mean)?;
            one.add(other)?.add(losses::soft_margin_loss(x, x, Reduction::Mean)?)
        };
        "cross_entropy" => move |x: &Tensor| x.cross_entropy(&ids(&x.select(0, 0)?)?.clamp(0, 3)?, &nn::CrossEntropy::default());
        "checkpoint" => |x: &Tensor| Ok(nn::checkpoint(|x| Ok(vec![x[0].exp()?.sin()?]), &[x])?.remove(0));
    })
}

#[test]
fn steps_of_optimizers_stand_in_lines_of_the_program() -> Result<()> {
    let leaf = || -> Result<Tensor> {
        let leaf = x()?;
        leaf.set_requires_grad(true)?;
        Ok(leaf)
    };
    let (w, v, u) = (leaf()?, leaf()?, leaf()?);
    let adam = Optimizer::new(Adam::default(), vec![w.clone()])?;
    let sgd = Optimizer::new(Sgd { momentum: 0.9, ..Sgd::default() }, vec![v.clone()])?;
    let averages = Ema::new(vec![u.clone()], 0.9)?;
    let eager = Optimizer::new(Adam::default(), vec![u.clone()])?;
    let (answers, classes) = (Accuracy::new()?, Tensor::from_slice(&[0i64, 1, 2, 3], &[4])?);
    check(cases! {
        "minimize" => |x: &Tensor| adam.minimize(&w.mul(x)?.sum_all()?);
        "clipped step" => |x: &Tensor| {
            v.mul(x)?.sum_all()?.backward()?;
            clip_grad_norm(std::slice::from_ref(&v), 1.0)?;
            clip_grad_value(std::slice::from_ref(&v), 0.5)?;
            sgd.step()?;
            sgd.zero_grad()?;
            v.detach()?.add(1.0)
        };
        "averages" => |x: &Tensor| {
            averages.update()?;
            answers.update(x, &classes)?;
            x.add(1.0)
        };
    })?;
    // The update that an optimizer compiles for itself has the line of the first step.
    u.square()?.sum_all()?.backward()?;
    eager.step()?;
    let wrong = elsewhere("update", places(&eager.explain()));
    assert!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}
