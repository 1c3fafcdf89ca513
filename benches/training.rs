#![allow(clippy::print_stdout, reason = "a benchmark prints its figure")]
//! The worker of `benches/training.py`: times training steps of five networks, and updates by AdamW alone.
//!
//! `training ROW THREADS SECONDS` takes turns between the whole step compiled, and the loss and the update compiled
//! apart. It prints the microseconds of the fastest of each. An update prints one figure.

use opfuse::device::pool;
use opfuse::nn::*;
use opfuse::optim::{AdamW, Optimizer};
use opfuse::{DType, Error, Result, Tensor, compile, manual_seed};
use std::time::{Duration, Instant};

/// The loss of a batch and its labels.
type Loss = Box<dyn Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync>;

/// A network with its loss, a batch, and labels.
struct Row {
    model: Box<dyn Module>,
    loss: Loss,
    x: Tensor,
    y: Tensor,
}

fn classes(model: impl Forward + Clone + 'static, x: &[usize], n: i64) -> Result<Row> {
    let own = model.clone();
    let loss = move |x: &Tensor, y: &Tensor| own.forward(x)?.cross_entropy(y, &CrossEntropy::default());
    let (x, y) = (Tensor::randn(x, DType::F32)?, Tensor::randint(0, n, &x[..1])?);
    Ok(Row { model: Box::new(model), loss: Box::new(loss), x, y })
}

#[derive(Clone, Module)]
struct Sequence<T> {
    inner: T,
    output: Linear,
}

impl Forward for Sequence<TransformerEncoder> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.output.forward(&self.inner.forward(x)?.mean([1], false)?)
    }
}

impl Forward for Sequence<LSTM> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.output.forward(&self.inner.forward(x, None)?.0.select(1, -1)?)
    }
}

fn row(name: &str) -> Result<Row> {
    let layer = Linear::new;
    match name {
        "mlp" => {
            let hidden = Sequential::new().with(layer(784, 512)?).with(ReLU {}).with(layer(512, 512)?).with(ReLU {});
            classes(hidden.with(layer(512, 10)?), &[64, 784], 10)
        }
        "cnn" => {
            let padded = Convolution { padding: 1.into(), ..Convolution::default() };
            let first = Sequential::new().with(Conv2d::with(1, 16, 3, padded.clone())?).with(ReLU {});
            let both = first.with(Conv2d::with(16, 32, 3, padded)?).with(ReLU {}).with(MaxPool2d::new(2));
            let flat = both.with(Flatten { start: 1, end: -1 }).with(layer(32 * 49, 64)?).with(ReLU {});
            classes(flat.with(layer(64, 10)?), &[32, 1, 14, 14], 10)
        }
        "transformer" => {
            let options = TransformerOptions {
                feedforward: 512,
                dropout: 0.0,
                gelu: true,
                batch_first: true,
                ..TransformerOptions::default()
            };
            let inner = TransformerEncoder::new(128, 4, 2, options)?;
            classes(Sequence { inner, output: layer(128, 10)? }, &[8, 64, 128], 10)
        }
        "lstm" => {
            let options = RecurrentOptions { batch_first: true, ..RecurrentOptions::default() };
            let inner = LSTM::new(64, 64, options)?;
            classes(Sequence { inner, output: layer(64, 10)? }, &[32, 32, 64], 10)
        }
        "autoencoder" => {
            let encoder = Sequential::new().with(layer(784, 256)?).with(SiLU {}).with(layer(256, 32)?).with(SiLU {});
            let model = encoder.with(layer(32, 256)?).with(SiLU {}).with(layer(256, 784)?);
            let own = model.clone();
            let loss = move |x: &Tensor, _: &Tensor| {
                own.forward(x)?.binary_cross_entropy_with_logits(x, None, None, Reduction::Mean)
            };
            let (x, y) = (Tensor::rand(&[64, 784], DType::F32)?, Tensor::zeros(&[1], DType::F32)?);
            Ok(Row { model: Box::new(model), loss: Box::new(loss), x, y })
        }
        other => Err(Error::argument("training", format!("no row {other}"))),
    }
}

/// The best times of pieces of work in turns, after three calls of each.
fn best<const N: usize>(seconds: u64, mut works: [&mut dyn FnMut() -> Result<()>; N]) -> Result<[Duration; N]> {
    let mut found = [Duration::MAX; N];
    for work in &mut works {
        (0..3).try_for_each(|_| work())?;
    }
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(seconds) {
        for (work, best) in works.iter_mut().zip(&mut found) {
            let start = Instant::now();
            work()?;
            *best = start.elapsed().min(*best);
        }
    }
    Ok(found)
}

fn steps(name: &str, seconds: u64) -> Result<()> {
    manual_seed(1);
    let Row { model, loss, x, y } = row(name)?;
    let optimizer = Optimizer::new(AdamW::default(), model.parameters())?;
    let whole = compile(|x: &Tensor, y: &Tensor| optimizer.minimize(&loss(x, y)?));
    let alone = compile(|x: &Tensor, y: &Tensor| loss(x, y));
    let [whole, apart] = best(
        seconds,
        [&mut || whole.call((&x, &y))?.item::<f32>().map(drop), &mut || {
            optimizer.minimize(&alone.call((&x, &y))?)?.item::<f32>().map(drop)
        }],
    )?;
    println!("{:.1} {:.1}", whole.as_secs_f64() * 1e6, apart.as_secs_f64() * 1e6);
    Ok(())
}

/// AdamW over so many tensors of so many elements.
fn updates(count: usize, elements: usize, seconds: u64) -> Result<()> {
    let tensors = (0..count).map(|_| Tensor::randn(&[elements], DType::F32)).collect::<Result<Vec<_>>>()?;
    for tensor in &tensors {
        tensor.set_requires_grad(true)?;
        tensor.set_grad(Some(&Tensor::randn(&[elements], DType::F32)?))?;
    }
    let optimizer = Optimizer::new(AdamW::default(), tensors)?;
    let [time] = best(seconds, [&mut || optimizer.step()])?;
    println!("{:.1}", time.as_secs_f64() * 1e6);
    Ok(())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.is_empty() {
        println!("benches/training.py compares with PyTorch");
        return Ok(());
    }
    let [row, threads, seconds] = &words[..] else {
        return Err(Error::argument("training", "usage: training ROW THREADS SECONDS"));
    };
    let misread = |_| Error::argument("training", "THREADS and SECONDS are whole numbers");
    let (threads, seconds): (usize, u64) = (threads.parse().map_err(misread)?, seconds.parse().map_err(misread)?);
    pool::with_threads(threads, || match row.as_str() {
        "adamw 100x1e4" => updates(100, 10_000, seconds),
        "adamw 1x1e7" => updates(1, 10_000_000, seconds),
        name => steps(name, seconds),
    })
}
