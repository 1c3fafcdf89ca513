//! Sentence embeddings: all-MiniLM-L6-v2 from its published files, eagerly and compiled.
//!
//! ```text
//! scripts/fetch_minilm.sh
//! cargo run --release --example minilm [-- --model DIR]
//! ```
//!
//! It reads the weights, tokenizes a few sentences, and embeds them op by op and through `opfuse::compile`. The two
//! results are compared by bits, and with `reference.json`, which another framework wrote, within 1e-5. The exit code
//! says whether both held.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a demo talks to its terminal")]

mod model;
mod reference;
mod tokenizer;
mod unicode;
mod weights;

use model::Model;
use opfuse::{Result, Tensor};
use reference::Reference;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokenizer::{Batch, Tokenizer};

const USAGE: &str = "usage: minilm [--model DIR]\n\n  --model DIR   folder with model.safetensors, config.json and \
                     vocab.txt (default: models/all-MiniLM-L6-v2)";

/// What separates two frameworks that both compute in f32.
const TOLERANCE: f64 = 1e-5;

/// Runs a time is the median of.
const N_RUNS: usize = 7;

fn main() -> ExitCode {
    let folder = match parse_args(std::env::args().skip(1)) {
        Ok(Some(folder)) => folder,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("minilm: {message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&folder) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("minilm: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The model's folder, or `None` if only the usage is wanted.
fn parse_args(mut args: impl Iterator<Item = String>) -> Result<Option<PathBuf>, String> {
    let mut folder = PathBuf::from("models/all-MiniLM-L6-v2");
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--model" => folder = args.next().ok_or("--model needs a folder")?.into(),
            "-h" | "--help" => return Ok(None),
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    Ok(Some(folder))
}

/// The demo; `false` if a result is not what it must be.
fn run(folder: &Path) -> Result<bool> {
    let reference = Reference::parse(include_str!("reference.json"))?;
    let start = Instant::now();
    let model = Arc::new(Model::load(folder)?);
    let tokenizer = Tokenizer::load(&folder.join("vocab.txt"))?;
    println!("load: {}", millis(start.elapsed()));

    let sequences: Vec<Vec<i64>> = reference.sentences.iter().map(|row| tokenizer.encode(&row.text)).collect();
    let tokens_agree = sequences.iter().zip(&reference.sentences).all(|(ids, row)| *ids == row.ids);
    println!("tokens equal to the reference: {}", yes(tokens_agree));
    let inputs = Inputs::new(&tokenizer.pad(&sequences))?;
    // Another batch size and another length: the same kernels have to serve it.
    let small = Inputs::new(&tokenizer.pad(&sequences[..sequences.len().min(3)]))?;
    println!("batch: {} sentences of up to {} tokens", inputs.ids.sizes()[0], inputs.ids.sizes()[1]);

    let eager = inputs.forward(&model)?;
    let small_eager = small.forward(&model)?;
    let traced = Arc::clone(&model);
    let compiled =
        opfuse::compile(move |ids: &Tensor, positions: &Tensor, mask: &Tensor| traced.forward(ids, positions, mask));
    let call = |inputs: &Inputs| compiled.call((&inputs.ids, &inputs.positions, &inputs.mask));
    let start = Instant::now();
    let first = call(&inputs)?;
    let explain = compiled.explain();
    println!("first call: traced, fused, compiled and run: {}", millis(start.elapsed()));
    println!("  of that fuse: {}, compile: {}", millis(explain.plan_time), millis(explain.compile_time));
    println!("run eager: {}", millis(median(|| inputs.forward(&model))?));
    println!("run compiled: {}", millis(median(|| call(&inputs))?));
    let (before, after) = kernel_counts(&compiled.explain());
    println!("kernels: {before} before fusion, {after} after");

    let (second, small_second) = (call(&inputs)?, call(&small)?);
    let mut bits_agree = true;
    for (compiled, eager) in [(&first, &eager), (&second, &eager), (&small_second, &small_eager)] {
        bits_agree &= compiled.sizes() == eager.sizes() && bits(compiled)? == bits(eager)?;
    }
    println!("bits equal: {}", yes(bits_agree));

    let vectors = second.to_vec::<f32>()?;
    let error = reference.max_abs_error(&vectors);
    println!("max abs error against {}: {error:.2e} (limit {TOLERANCE:.0e})", reference.by);
    print_similarities(&reference, &vectors);
    // Not `error > TOLERANCE`: a NaN has to fail.
    Ok(tokens_agree && bits_agree && error <= TOLERANCE)
}

/// One batch as tensors.
struct Inputs {
    ids: Tensor,
    positions: Tensor,
    mask: Tensor,
}

impl Inputs {
    fn new(batch: &Batch) -> Result<Self> {
        let [n_sequences, length] = batch.sizes;
        let positions: Vec<i64> = (0..n_sequences).flat_map(|_| 0..length as i64).collect();
        Ok(Self {
            ids: Tensor::from_slice(&batch.ids, &batch.sizes)?,
            positions: Tensor::from_slice(&positions, &batch.sizes)?,
            mask: Tensor::from_slice(&batch.mask, &batch.sizes)?,
        })
    }

    fn forward(&self, model: &Model) -> Result<Tensor> {
        model.forward(&self.ids, &self.positions, &self.mask)
    }
}

/// Kernels one call would launch op by op, and how many it launches.
fn kernel_counts(explain: &opfuse::Explain) -> (usize, usize) {
    (explain.kernels_before, explain.kernels_after)
}

fn bits(tensor: &Tensor) -> Result<Vec<u32>> {
    Ok(tensor.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect())
}

fn median(mut call: impl FnMut() -> Result<Tensor>) -> Result<Duration> {
    let mut times = Vec::with_capacity(N_RUNS);
    for _ in 0..N_RUNS {
        let start = Instant::now();
        call()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times[N_RUNS / 2])
}

/// The cosine between every two sentences; the vectors have length 1, so it is their dot product.
fn print_similarities(reference: &Reference, vectors: &[f32]) {
    let n_sentences = reference.sentences.len();
    let rows: Vec<&[f32]> = vectors.chunks_exact(vectors.len() / n_sentences).collect();
    println!("cosine similarities:");
    for (at, (row, sentence)) in rows.iter().zip(&reference.sentences).enumerate() {
        let cosine = |other: &&[f32]| row.iter().zip(*other).map(|(a, b)| a * b).sum::<f32>();
        let cells: String = rows.iter().map(|other| format!(" {:6.3}", cosine(other))).collect();
        let text: String = sentence.text.chars().take(44).collect();
        println!("  {at} {cells}   {text:?}");
    }
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn yes(holds: bool) -> &'static str {
    if holds { "yes" } else { "NO" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Option<PathBuf>, String> {
        parse_args(args.iter().map(|&arg| arg.to_owned()))
    }

    #[test]
    fn arguments() {
        assert_eq!(parse(&[]), Ok(Some("models/all-MiniLM-L6-v2".into())));
        assert_eq!(parse(&["--model", "there"]), Ok(Some("there".into())));
        assert_eq!(parse(&["--help"]), Ok(None));
        assert!(parse(&["--model"]).is_err());
        assert!(parse(&["there"]).is_err());
    }

    /// Needs the model: says so when it is not there.
    #[test]
    fn tokens_are_the_reference_tokenizers() {
        let path = Path::new("models/all-MiniLM-L6-v2/vocab.txt");
        if !path.exists() {
            println!("skipped: {} is not there; scripts/fetch_minilm.sh downloads it", path.display());
            return;
        }
        let tokenizer = Tokenizer::load(path).expect("the fetched vocabulary is well formed");
        let reference =
            Reference::parse(include_str!("reference.json")).expect("the checked-in reference is well formed");
        for (text, ids) in reference.texts() {
            assert_eq!(tokenizer.encode(text), ids, "{text:?}");
        }
    }
}
